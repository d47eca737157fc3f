/* Arena of doubling chunks. */
#include "base/arena.h"

#include <stdarg.h>
#include <stdalign.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"

#define FIRST_CHUNK   ((size_t)16 << 10)
#define LARGEST_CHUNK ((size_t)4 << 20)

struct trm_arena_chunk {
    trm_arena_chunk *next;
    size_t size, used;
    alignas(max_align_t) unsigned char bytes[];
};

/* A chunk with `size` bytes left: one kept from before, or a new one twice as large as the last. */
static trm_arena_chunk *add_chunk(trm_arena *arena, size_t size)
{
    size_t capacity = arena->chunks == NULL ? FIRST_CHUNK : arena->chunks->size * 2;
    capacity = capacity > LARGEST_CHUNK ? LARGEST_CHUNK : capacity;
    capacity = capacity < size ? size : capacity;
    trm_arena_chunk **spare = &arena->spare, *chunk;
    while (*spare != NULL && (*spare)->size < size) {
        spare = &(*spare)->next;
    }
    chunk = *spare;
    if (chunk != NULL) {
        *spare = chunk->next;
        capacity = chunk->size;
    } else {
        chunk = malloc(sizeof(*chunk) + capacity);
    }
    if (chunk == NULL) {
        trm_fail(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %zu bytes of host memory", capacity);
        return NULL;
    }
    *chunk = (trm_arena_chunk){.next = arena->chunks, .size = capacity};
    arena->chunks = chunk;
    return chunk;
}

void *trm_arena_alloc(trm_arena *arena, size_t size)
{
    if (size > SIZE_MAX / 2) {
        trm_fail(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %zu bytes of host memory", size);
        return NULL;
    }
    size = trm_align_up(size == 0 ? 1 : size, alignof(max_align_t));
    trm_arena_chunk *chunk = arena->chunks;
    if (chunk == NULL || chunk->size - chunk->used < size) {
        chunk = add_chunk(arena, size);
        if (chunk == NULL) {
            return NULL;
        }
    }
    void *memory = chunk->bytes + chunk->used;
    chunk->used += size;
    arena->used += size;
    return memset(memory, 0, size);
}

void *trm_arena_array(trm_arena *arena, size_t count, size_t size)
{
    size_t bytes;
    if (!trm_checked_mul(count, size, &bytes)) {
        bytes = SIZE_MAX;
    }
    return trm_arena_alloc(arena, bytes);
}

char *trm_arena_strdup(trm_arena *arena, const char *text)
{
    size_t size = strlen(text) + 1;
    char *copy = trm_arena_alloc(arena, size);
    return copy == NULL ? NULL : memcpy(copy, text, size);
}

char *trm_arena_printf(trm_arena *arena, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    char *text = length < 0 ? NULL : trm_arena_alloc(arena, (size_t)length + 1);
    if (text != NULL) {
        va_start(args, format);
        vsnprintf(text, (size_t)length + 1, format, args);
        va_end(args);
    }
    return text;
}

void trm_arena_clear(trm_arena *arena)
{
    while (arena->chunks != NULL) {
        trm_arena_chunk *chunk = arena->chunks;
        arena->chunks = chunk->next;
        chunk->next = arena->spare;
        arena->spare = chunk;
    }
    arena->used = 0;
}

void trm_arena_fini(trm_arena *arena)
{
    trm_arena_clear(arena);
    for (trm_arena_chunk *chunk = arena->spare; chunk != NULL;) {
        trm_arena_chunk *next = chunk->next;
        free(chunk);
        chunk = next;
    }
    *arena = (trm_arena){0};
}
