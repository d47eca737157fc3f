/*
 * A trie over the bytes of a vocabulary, to find the tokens that begin a text.
 */
#ifndef TRM_LAUNCHER_TEXT_TOKENIZER_TRIE_H
#define TRM_LAUNCHER_TEXT_TOKENIZER_TRIE_H

#include <stddef.h>
#include <stdint.h>

#include <trireme/status.h>

#include "base/arena.h"

typedef struct trm_trie_node {
    uint32_t children; /* index of the first child; they are adjacent and sorted by label */
    int32_t id;        /* the token that ends here, -1 if none */
    uint16_t count;    /* of children */
    uint8_t label;     /* the byte that leads here */
} trm_trie_node;

typedef struct trm_trie {
    trm_trie_node *nodes; /* nodes[0] is the root */
    uint32_t size;
    uint32_t root_children[256]; /* 0: none */
} trm_trie;

typedef struct trm_trie_entry {
    const char *text;
    uint32_t size;
    int32_t id;
} trm_trie_entry;

/* Builds a trie over entries[count], which it sorts; of equal texts the last one counts. Empty texts are left out. */
trm_status trm_trie_build(trm_arena *arena, trm_trie_entry *entries, size_t count, trm_trie *trie);
/* The child of `node` for `byte`, 0 if there is none. */
uint32_t trm_trie_step(const trm_trie *trie, uint32_t node, uint8_t byte);
/* The longest entry that is a prefix of text[size]: its id and *length, or -1. The search begins at `node` (0: the
 * root). */
int32_t trm_trie_longest(const trm_trie *trie, uint32_t node, const char *text, size_t size, size_t *length);

#endif
