#include "kernels/tuner/tactic_cache.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

#define PROBES 8 /* places of a key */

typedef struct slot {
    trm_tactic_state state;
} slot;

static slot *slot_at(const trm_tactic_cache *cache, uint64_t i)
{
    return (slot *)((char *)cache->slots + i * cache->size);
}

static void *key_of(const trm_tactic_cache *cache, slot *s)
{
    return (char *)s + cache->key;
}

static uint64_t home_of(const trm_tactic_cache *cache, const void *key)
{
    const uint64_t hash = trm_hash_bytes(TRM_HASH_START, key, cache->key_size);
    return hash ^ (hash >> 29);
}

/* Place number i of a key that is at home there; after the last comes the spare. */
static slot *place_of(const trm_tactic_cache *cache, uint64_t home, uint64_t i)
{
    return slot_at(cache, i < PROBES ? (home + i) & (cache->n - 1) : cache->n);
}

static void empty(const trm_tactic_cache *cache, slot *s)
{
    if (cache->release != NULL) {
        cache->release(s);
    }
    memset(s, 0, cache->size);
}

/* In one table. */
static slot *find_here(const trm_tactic_cache *cache, uint64_t home, const void *key)
{
    for (uint64_t i = 0; i <= PROBES; i++) {
        slot *s = place_of(cache, home, i);
        if (s->state != TRM_TACTIC_FREE && memcmp(key_of(cache, s), key, cache->key_size) == 0) {
            return s;
        }
    }
    return NULL;
}

void *trm_tactic_cache_find(const trm_tactic_cache *cache, const void *key)
{
    const uint64_t home = home_of(cache, key);
    slot *found = NULL;
    for (; found == NULL && cache != NULL; cache = cache->more) {
        found = find_here(cache, home, key);
    }
    return found;
}

/* A place whose state is among the first `n` of those that give way, the first of them first, or NULL. */
static slot *place_among(const trm_tactic_cache *cache, uint64_t home, int32_t n)
{
    static const trm_tactic_state giving_way[] = {TRM_TACTIC_FREE, TRM_TACTIC_PROPOSED, TRM_TACTIC_ASKED,
                                                  TRM_TACTIC_NONE, TRM_TACTIC_TUNED};
    slot *place = NULL;
    for (int32_t state = 0; place == NULL && state < n; state++) {
        for (uint64_t i = 0; place == NULL && i < PROBES; i++) {
            slot *s = place_of(cache, home, i);
            place = s->state == giving_way[state] ? s : NULL;
        }
    }
    return place;
}

/* The table behind one, or NULL without memory for it. */
static trm_tactic_cache *table_behind(trm_tactic_cache *cache)
{
    if (cache->more == NULL) {
        trm_tactic_cache *more = malloc(sizeof(*more));
        void *slots = calloc(cache->n + 1, cache->size);
        if (more == NULL || slots == NULL) {
            free(more);
            free(slots);
            return NULL;
        }
        *more = *cache;
        more->slots = slots;
        cache->more = more;
    }
    return cache->more;
}

void *trm_tactic_cache_get(trm_tactic_cache *cache, const void *key, bool tuned)
{
    const uint64_t home = home_of(cache, key);
    slot *spare = slot_at(cache, cache->n), *found = trm_tactic_cache_find(cache, key);
    if (found != NULL && (found != spare || !tuned)) {
        return found;
    }
    if (found != NULL) {
        empty(cache, found);
    }
    slot *place = NULL;
    for (trm_tactic_cache *table = cache; place == NULL && table != NULL; table = tuned ? table_behind(table) : NULL) {
        place = place_among(table, home, 2);
    }
    if (place == NULL) {
        place = tuned ? place_among(cache, home, 5) : spare;
    }
    empty(cache, place);
    memcpy(key_of(cache, place), key, cache->key_size);
    return place;
}

void *trm_tactic_cache_nearest(const trm_tactic_cache *cache, const void *key, double most,
                               double (*ratio)(const void *theirs, const void *key))
{
    slot *nearest = NULL;
    for (const trm_tactic_cache *table = cache; table != NULL; table = table->more) {
        for (uint64_t i = 0; i < table->n; i++) {
            slot *s = slot_at(table, i);
            const double times = s->state == TRM_TACTIC_TUNED ? ratio(key_of(table, s), key) : most + 1;
            const bool before =
                nearest == NULL || memcmp(key_of(table, s), key_of(table, nearest), table->key_size) < 0;
            if (times < most || (times <= most && before)) {
                nearest = s;
                most = times;
            }
        }
    }
    return nearest;
}
