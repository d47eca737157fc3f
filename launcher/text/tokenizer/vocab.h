/*
 * A vocabulary: token strings and their ids, both ways.
 */
#ifndef TRM_LAUNCHER_TEXT_TOKENIZER_VOCAB_H
#define TRM_LAUNCHER_TEXT_TOKENIZER_VOCAB_H

#include <stddef.h>
#include <stdint.h>

#include <trireme/status.h>

#include "base/arena.h"

/* Upper bound of ids: twelve times the largest known vocabulary. It bounds the memory that a hostile file can ask for.
 */
#define TRM_VOCAB_LIMIT ((int64_t)1 << 22)

typedef struct trm_token {
    const char *text; /* NULL if no token has this id; NUL-terminated */
    uint32_t size;
    uint32_t hash;
} trm_token;

typedef struct trm_vocab {
    trm_token *tokens; /* [size] by id */
    int32_t size;      /* highest id + 1 */
    int32_t count;     /* number of tokens */
    int32_t *slots;    /* open addressing over ids, -1 is free */
    uint32_t mask;
} trm_vocab;

/* Makes room for ids 0 .. size - 1, in the arena. */
trm_status trm_vocab_create(trm_arena *arena, int32_t size, trm_vocab *vocab);
/* Gives `id` its text (not copied). If the text exists already, it moves to this id. */
void trm_vocab_add(trm_vocab *vocab, int32_t id, const char *text);
/* The id of text[size], -1 if there is none. */
int32_t trm_vocab_find(const trm_vocab *vocab, const char *text, size_t size);

uint64_t trm_text_hash(const char *text, size_t size);

#endif
