/*
 * A table of the problems that a library was asked about, and of what was chosen for each. It has a fixed number of
 * places for what was not tuned, which give way to others. What was tuned stays: another table is added where it finds
 * no place.
 *
 * The caller locks it, and defines its slots: a struct that begins with a trm_tactic_state, has a key, which is
 * compared as bytes, and what the choice is.
 */
#ifndef TRM_KERNELS_TUNER_TACTIC_CACHE_H
#define TRM_KERNELS_TUNER_TACTIC_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum trm_tactic_state {
    TRM_TACTIC_FREE = 0,
    TRM_TACTIC_ASKED,    /* about to be chosen, by a thread */
    TRM_TACTIC_PROPOSED, /* chosen without timing */
    TRM_TACTIC_TUNED,
    TRM_TACTIC_NONE /* the library does not do it, or slower than others */
} trm_tactic_state;

typedef struct trm_tactic_cache {
    void *slots; /* [n + 1], zeros at first; the last is for what finds no place among the others */
    uint64_t n;  /* a power of two */
    size_t size; /* of a slot */
    size_t key;  /* where it is in a slot */
    size_t key_size;
    void (*release)(void *slot);   /* what a slot owns, before it is emptied; or NULL */
    struct trm_tactic_cache *more; /* NULL at first */
} trm_tactic_cache;

/* The slot of a problem that is not FREE, or NULL. */
void *trm_tactic_cache_find(const trm_tactic_cache *cache, const void *key);
/* The same, else a FREE slot with the key: an empty one, or that of a problem that was only proposed. Without either it
 * is the last slot, and for what is `tuned` one of another table, or where there is no memory for that, any. What is
 * tuned moves out of the last slot with nothing but its key. */
void *trm_tactic_cache_get(trm_tactic_cache *cache, const void *key, bool tuned);
/* The TUNED slot with the smallest ratio to a key, `most` at most, of equals that with the first key, or NULL.
 * ratio(theirs, key): how many times as large one is as the other, or INFINITY where they are not of a kind. */
void *trm_tactic_cache_nearest(const trm_tactic_cache *cache, const void *key, double most,
                               double (*ratio)(const void *theirs, const void *key));

#endif
