/*
 * The tokenizer behind <trireme/tokenizer.h>: the parts of a tokenizer.json and the way through them.
 *
 *   text -> valid UTF-8 -> raw added tokens -> normalizers -> normalized added tokens -> pre-tokenizers -> model
 *        -> post-processor -> ids -> token strings -> decoder steps -> text
 */
#ifndef TRM_LAUNCHER_TEXT_TOKENIZER_TOKENIZER_H
#define TRM_LAUNCHER_TEXT_TOKENIZER_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <trireme/tokenizer.h>

#include "launcher/text/tokenizer/added.h"
#include "launcher/text/tokenizer/decode.h"
#include "launcher/text/tokenizer/model.h"
#include "launcher/text/tokenizer/normalize.h"
#include "launcher/text/tokenizer/postprocess.h"
#include "launcher/text/tokenizer/pretokenize.h"

/* A token as the decoder sees it. */
typedef struct trm_id_entry {
    const char *text;    /* its text in the vocabulary, NULL for a hole */
    const char *decoded; /* the decoder's input; differs for added tokens that the normalizer changes */
    uint32_t decoded_size;
    bool special;
} trm_id_entry;

/* Immutable once opened, except for the model's atomic notes on whole tokens. */
struct trm_tokenizer {
    trm_arena arena;
    trm_regex *regexes;
    trm_normalizers normalizers;
    trm_pretokenizers pretokenizers;
    trm_model model;
    trm_added added;
    trm_postprocessor postprocessor;
    trm_decode_steps decoder;
    trm_id_entry *entries; /* [size] by id */
    int32_t size;
};

/* Opens a tokenizer from the text of a tokenizer.json; errors begin with `name`. */
trm_status trm_tokenizer_parse(const char *name, const char *text, size_t size, trm_tokenizer **tokenizer);

#endif
