/*
 * The models of tokenizer.json: from a piece of pre-tokenized text to ids. bpe.c, unigram.c and wordpiece.c each hold
 * one algorithm and its loading; model.c dispatches, loads vocabularies, and has WordLevel, a lookup.
 */
#ifndef TRM_LAUNCHER_TEXT_TOKENIZER_MODEL_H
#define TRM_LAUNCHER_TEXT_TOKENIZER_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <trireme/status.h>

#include "launcher/text/strings/buffer.h"
#include "launcher/text/tokenizer/loader.h"
#include "launcher/text/tokenizer/trie.h"
#include "launcher/text/tokenizer/vocab.h"

typedef enum trm_model_kind {
    TRM_MODEL_BPE,
    TRM_MODEL_UNIGRAM,
    TRM_MODEL_WORDPIECE,
    TRM_MODEL_WORDLEVEL
} trm_model_kind;

/* A merge of BPE: the pair of ids, its rank, and its result. */
typedef struct trm_merge {
    uint64_t pair; /* left id << 32 | right id; UINT64_MAX marks a free slot */
    uint32_t rank;
    int32_t id;
} trm_merge;

typedef struct trm_bpe {
    trm_merge *merges; /* open addressing */
    uint32_t merge_mask;
    int32_t byte_ids[256];         /* of <0x00> .. <0xFF>; -1 where missing */
    int32_t character_ids[0x3000]; /* of the first code points if there is neither prefix nor suffix; -1 */
    const char *unk_token;         /* NULL: unknown characters are dropped */
    int32_t unk_id;                /* -1: not in the vocabulary */
    const char *prefix, *suffix;   /* of characters that do not begin, and that end, a piece; never NULL */
    bool fuse_unk, byte_fallback, ignore_merges;
    /* Whether encoding the text of a token gives that token: 0 unknown, 1 yes, 2 no. Saves the merging of pieces that
     * are whole tokens, which are many. */
    _Atomic unsigned char *whole; /* [vocab.size] */
} trm_bpe;

typedef struct trm_unigram {
    trm_trie trie;
    double *scores; /* [vocab.size] log probabilities */
    double unk_score;
    int32_t unk_id; /* -1: unknown characters are an error */
    int32_t byte_ids[256];
    bool byte_fallback;
} trm_unigram;

typedef struct trm_wordpiece {
    trm_trie trie;
    uint32_t continuation; /* node at the end of the prefix of continuing pieces; 0: no token has it */
    bool has_prefix;       /* the prefix is not empty */
    const char *unk_token;
    int32_t unk_id; /* -1: not in the vocabulary */
    size_t longest; /* maximum characters of a piece; longer ones are unknown */
} trm_wordpiece;

typedef struct trm_model {
    trm_model_kind kind;
    trm_vocab vocab;
    union {
        trm_bpe bpe;
        trm_unigram unigram;
        trm_wordpiece wordpiece; /* WordLevel uses its unk_token and unk_id */
    };
} trm_model;

typedef struct trm_symbol trm_symbol;
typedef struct trm_merge_candidate trm_merge_candidate;
typedef struct trm_path_node trm_path_node;

/* Buffers shared by the pieces of one text. Zero-initialized is ready. */
typedef struct trm_model_scratch {
    trm_symbol *symbols;
    size_t symbol_capacity;
    trm_merge_candidate *heap;
    size_t heap_capacity, heap_size;
    trm_path_node *path;
    size_t path_capacity;
    trm_bytes text;
} trm_model_scratch;

void trm_model_scratch_fini(trm_model_scratch *scratch);

/* Loads the member "model". UNSUPPORTED naming an unknown type. */
trm_status trm_model_load(const trm_text_loader *loader, const trm_json *json, trm_model *model);
/* Appends the ids of one piece. INVALID_MODEL if it needs an unknown token that the model does not have. */
trm_status trm_model_encode(const trm_model *model, const char *piece, size_t size, trm_model_scratch *scratch,
                            trm_ids *ids);

/* The same for each algorithm; trm_bpe_load and trm_wordpiece_load need the vocabulary loaded. */
trm_status trm_bpe_load(const trm_text_loader *loader, const trm_json *json, trm_model *model);
trm_status trm_bpe_encode(const trm_model *model, const char *piece, size_t size, trm_model_scratch *scratch,
                          trm_ids *ids);
trm_status trm_unigram_load(const trm_text_loader *loader, const trm_json *json, trm_model *model);
trm_status trm_unigram_encode(const trm_model *model, const char *piece, size_t size, trm_model_scratch *scratch,
                              trm_ids *ids);
trm_status trm_wordpiece_load(const trm_text_loader *loader, const trm_json *json, trm_model *model);
trm_status trm_wordpiece_encode(const trm_model *model, const char *piece, size_t size, trm_ids *ids);

/* Fills in the ids of the byte tokens <0x00> .. <0xFF>. */
void trm_model_find_bytes(const trm_vocab *vocab, int32_t byte_ids[256]);
/* All tokens of a vocabulary as a trie. */
trm_status trm_model_build_trie(const trm_text_loader *loader, const trm_vocab *vocab, trm_trie *trie);

#endif
