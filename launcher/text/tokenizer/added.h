/*
 * Added tokens: strings that become one token wherever they occur, found before the rest is split. Those with
 * "normalized": false are searched in the original text, the others in the normalized text.
 */
#ifndef TRM_LAUNCHER_TEXT_TOKENIZER_ADDED_H
#define TRM_LAUNCHER_TEXT_TOKENIZER_ADDED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <trireme/status.h>

#include "launcher/text/tokenizer/loader.h"
#include "launcher/text/tokenizer/normalize.h"
#include "launcher/text/tokenizer/pieces.h"
#include "launcher/text/tokenizer/trie.h"
#include "launcher/text/tokenizer/vocab.h"

typedef struct trm_added_token {
    const char *content;
    const char *sought; /* the string to search for, which is also passed to the decoder: normalized content */
    size_t sought_size;
    int32_t id;
    bool single_word, lstrip, rstrip, normalized, special;
} trm_added_token;

typedef struct trm_added {
    trm_added_token *tokens; /* [count] */
    size_t count;
    trm_trie raw, normalized; /* over `sought`; its ids are indices of tokens */
    bool any_raw, any_normalized;
    trm_regex *word; /* one word character; NULL unless a token is single_word */
} trm_added;

/* Loads the member "added_tokens" (NULL: none). Ids follow the vocabulary, as Hugging Face assigns them: a content in
 * the model keeps the model's id, another gets the next free one; the file's "id" must only be in range. */
trm_status trm_added_load(const trm_text_loader *loader, const trm_json *json, const trm_vocab *vocab,
                          const trm_normalizers *normalizers, trm_added *added);

/* Finds added tokens in text[0 .. size), the longest at the leftmost position; appends tokens and the text between
 * them, shifted by `base`. */
trm_status trm_added_split(const trm_added *added, bool normalized, const char *text, size_t size, size_t base,
                           bool at_start, trm_piece_list *list);

#endif
