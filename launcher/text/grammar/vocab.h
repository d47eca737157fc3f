/*
 * The bytes of a vocabulary's tokens, as a tree in depth-first order.
 */
#ifndef TRM_LAUNCHER_TEXT_GRAMMAR_VOCAB_H
#define TRM_LAUNCHER_TEXT_GRAMMAR_VOCAB_H

#include <trireme/grammar.h>

#include "base/arena.h"
#include "launcher/text/strings/buffer.h"

#define TRM_GRAMMAR_LONGEST_TOKEN 255

/* Bytes belong to at most 64 groups, so that sets of groups are words: each ASCII symbol is one, digits, lower-case and
 * upper-case letters are one each, and so on. */
typedef struct trm_grammar_trie_node {
    uint64_t groups; /* of the bytes below this node */
    uint32_t skip;   /* the node after everything below this one */
    uint32_t token;  /* index into order of the first token at or below this node */
    uint16_t n_here; /* tokens that end here */
    uint8_t byte;    /* the byte that leads here */
    uint8_t depth;   /* 1 for the first byte */
} trm_grammar_trie_node;

typedef struct trm_grammar_trie {
    trm_grammar_trie_node *nodes; /* [n_nodes + 1]; the last one only ends the tokens */
    uint32_t n_nodes;
    int32_t *order; /* token ids by their bytes */
    uint32_t n_order;
} trm_grammar_trie;

struct trm_grammar_vocab {
    trm_arena arena;
    trm_grammar_trie plain;         /* tokens of whole characters that stand for themselves in a JSON string */
    trm_grammar_trie other;         /* all others */
    trm_grammar_trie longer;        /* tokens of more than TRM_GRAMMAR_NEAR bytes */
    uint32_t *is_plain, *is_longer; /* [(size + 31) / 32] bits of those */
    const uint8_t **bytes;          /* [size] bytes of a token; NULL for tokens that are never allowed */
    uint8_t *lengths;               /* [size] */
    int32_t size;
    int32_t *end_tokens;
    size_t n_end_tokens;
};

uint8_t trm_grammar_group_of(uint8_t byte);
/* Memory of a grammar, states and masks included. */
size_t trm_grammar_bytes(trm_grammar *grammar);
/* The bytes that token `id` adds to a text, often part of a character; they replace *bytes. None for a hole. */
trm_status trm_grammar_token_bytes(const trm_tokenizer *tokenizer, int32_t id, trm_bytes *bytes);

#endif
