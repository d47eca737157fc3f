/*
 * Arena: memory that lives and dies together. Used at build and load time, and when a step is prepared; never
 * while one runs.
 */
#ifndef TRM_BASE_ARENA_H
#define TRM_BASE_ARENA_H

#include <stddef.h>

#include <trireme/status.h>

typedef struct trm_arena_chunk trm_arena_chunk;

/* Zero-initialized is empty and ready. */
typedef struct trm_arena {
    trm_arena_chunk *chunks;
    trm_arena_chunk *spare; /* of before it was cleared */
    size_t used;            /* bytes handed out, for reports */
} trm_arena;

/* Zeroed memory aligned for any type, or NULL with the error record set. */
void *trm_arena_alloc(trm_arena *arena, size_t size);
/* An array of zeroed elements; overflow is out of memory. */
void *trm_arena_array(trm_arena *arena, size_t count, size_t size);
char *trm_arena_strdup(trm_arena *arena, const char *text);
char *trm_arena_printf(trm_arena *arena, const char *format, ...) TRM_PRINTF(2, 3);
/* Takes everything back, and keeps the memory for what comes next. */
void trm_arena_clear(trm_arena *arena);
/* Frees everything; the arena is empty and ready again. */
void trm_arena_fini(trm_arena *arena);

#endif
