/*
 * Arena: memory that is freed together. Used at build and load time, and to prepare a step; never while one runs.
 */
#ifndef TRM_BASE_ARENA_H
#define TRM_BASE_ARENA_H

#include <stddef.h>

#include <trireme/status.h>

typedef struct trm_arena_chunk trm_arena_chunk;

/* Zero-initialized is empty and ready. */
typedef struct trm_arena {
    trm_arena_chunk *chunks;
    trm_arena_chunk *spare; /* kept from before it was cleared */
    size_t used;            /* bytes handed out, for reports */
} trm_arena;

/* Returns zeroed memory aligned for any type, or NULL with the cause recorded. */
void *trm_arena_alloc(trm_arena *arena, size_t size);
/* Returns an array of zeroed elements; an overflow counts as out of memory. */
void *trm_arena_array(trm_arena *arena, size_t count, size_t size);
char *trm_arena_strdup(trm_arena *arena, const char *text);
char *trm_arena_printf(trm_arena *arena, const char *format, ...) TRM_PRINTF(2, 3);
/* Takes back everything that was handed out, and keeps the memory for reuse. */
void trm_arena_clear(trm_arena *arena);
/* Frees everything; the arena is then empty and ready. */
void trm_arena_fini(trm_arena *arena);

#endif
