#include "kernels/tuner/tactic_cache.h"

#include <string.h>

#include "base/hash.h"

#define PROBES 8 /* places of a key */

typedef struct slot {
    trm_problem_state state;
} slot;

static slot *slot_at(const trm_problems *problems, uint64_t i)
{
    return (slot *)((char *)problems->slots + i * problems->size);
}

static void *key_of(const trm_problems *problems, slot *s)
{
    return (char *)s + problems->key;
}

static uint64_t home_of(const trm_problems *problems, const void *key)
{
    const uint64_t hash = trm_hash_bytes(TRM_HASH_START, key, problems->key_size);
    return hash ^ (hash >> 29);
}

/* Place number i of a key that is at home there; after the last comes the spare. */
static slot *place_of(const trm_problems *problems, uint64_t home, uint64_t i)
{
    return slot_at(problems, i < PROBES ? (home + i) & (problems->n - 1) : problems->n);
}

static void empty(const trm_problems *problems, slot *s)
{
    if (problems->release != NULL) {
        problems->release(s);
    }
    memset(s, 0, problems->size);
}

void *trm_problems_find(const trm_problems *problems, const void *key)
{
    const uint64_t home = home_of(problems, key);
    for (uint64_t i = 0; i <= PROBES; i++) {
        slot *s = place_of(problems, home, i);
        if (s->state != TRM_PROBLEM_FREE && memcmp(key_of(problems, s), key, problems->key_size) == 0) {
            return s;
        }
    }
    return NULL;
}

void *trm_problems_get(const trm_problems *problems, const void *key, bool tuned)
{
    const uint64_t home = home_of(problems, key);
    slot *spare = slot_at(problems, problems->n), *found = trm_problems_find(problems, key);
    if (found != NULL && (found != spare || !tuned)) {
        return found;
    }
    if (found != NULL) {
        empty(problems, found);
    }
    static const trm_problem_state giving_way[] = {TRM_PROBLEM_FREE, TRM_PROBLEM_PROPOSED, TRM_PROBLEM_ASKED,
                                                   TRM_PROBLEM_NONE, TRM_PROBLEM_TUNED};
    slot *place = NULL;
    for (int32_t state = 0; place == NULL && state < (tuned ? 5 : 2); state++) {
        for (uint64_t i = 0; place == NULL && i < PROBES; i++) {
            slot *s = place_of(problems, home, i);
            place = s->state == giving_way[state] ? s : NULL;
        }
    }
    place = place != NULL ? place : spare;
    empty(problems, place);
    memcpy(key_of(problems, place), key, problems->key_size);
    return place;
}

void *trm_problems_nearest(const trm_problems *problems, const void *key, double most,
                           double (*ratio)(const void *theirs, const void *key))
{
    slot *nearest = NULL;
    for (uint64_t i = 0; i < problems->n; i++) {
        slot *s = slot_at(problems, i);
        const double times = s->state == TRM_PROBLEM_TUNED ? ratio(key_of(problems, s), key) : most + 1;
        const bool before =
            nearest == NULL || memcmp(key_of(problems, s), key_of(problems, nearest), problems->key_size) < 0;
        if (times < most || (times <= most && before)) {
            nearest = s;
            most = times;
        }
    }
    return nearest;
}
