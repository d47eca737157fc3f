/* What tuning chose, in a table without chains. */
#include "kernels/tuner/cuda_tactic_cache.h"

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/hash.h"

#define SLOTS 4096 /* a power of two */

typedef struct slot {
    trm_choice_key key;
    int device;
    bool used;
    int32_t way;
} slot;

static struct {
    pthread_mutex_t mutex;
    slot slots[SLOTS];
} choices = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static slot *slot_of(const trm_choice_key *key, int device)
{
    const uint64_t hash = trm_hash_bytes(trm_hash_bytes(TRM_HASH_START, key, sizeof(*key)), &device, sizeof(device));
    return &choices.slots[(hash >> 32 ^ hash) & (SLOTS - 1)];
}

void trm_choice_remember(const trm_choice_key *key, int32_t way)
{
    int device;
    if (cudaGetDevice(&device) != cudaSuccess) {
        return;
    }
    pthread_mutex_lock(&choices.mutex);
    *slot_of(key, device) = (slot){*key, device, true, way};
    pthread_mutex_unlock(&choices.mutex);
}

bool trm_choice_recall(const trm_choice_key *key, int32_t *way)
{
    int device;
    if (cudaGetDevice(&device) != cudaSuccess) {
        return false;
    }
    pthread_mutex_lock(&choices.mutex);
    const slot *found = slot_of(key, device);
    const bool known = found->used && found->device == device && memcmp(&found->key, key, sizeof(*key)) == 0;
    *way = known ? found->way : *way;
    pthread_mutex_unlock(&choices.mutex);
    return known;
}

/* ---- tuning ---- */

typedef struct timed_run {
    const trm_choice_ways *ways;
    int32_t way;
} timed_run;

static trm_status enqueue(void *user)
{
    const timed_run *run = user;
    return run->ways->run(run->ways->user, run->way);
}

/* False if the tactic is none of the ways, or one that cannot do the problem. */
static bool use_tactic(const trm_choice_key *key, const trm_choice_ways *ways, const char *name)
{
    for (int32_t i = 0; i < ways->n; i++) {
        if ((ways->accepted >> i & 1) != 0 && strcmp(name, ways->names[i]) == 0) {
            trm_choice_remember(key, i);
            return true;
        }
    }
    return false;
}

trm_status trm_choice_tune(const trm_choice_key *key, const char *problem, const trm_choice_ways *ways,
                           cudaStream_t stream, struct trm_tuner *tuner)
{
    trm_tactic tactics[TRM_MOST_WAYS];
    int32_t known, n = 0;
    const trm_timing *timing = trm_tuner_find(tuner, problem);
    for (int32_t i = 0; timing != NULL && i < timing->n_tactics; i++) {
        if (use_tactic(key, ways, timing->tactics[i].name)) {
            trm_tuner_take(tuner, problem, &timing->tactics[i], 1);
            return TRM_OK;
        }
    }
    if (trm_tuner_proposals(tuner) == 0 || (tuner == NULL && trm_choice_recall(key, &known))) {
        return TRM_OK;
    }
    for (int32_t i = 0; i < ways->n; i++) {
        if ((ways->accepted & ways->tried) >> i & 1) {
            timed_run run = {ways, i};
            float milliseconds;
            TRM_TRY(trm_cuda_time(stream, enqueue, &run, &milliseconds));
            snprintf(tactics[n].name, sizeof(tactics[n].name), "%s", ways->names[i]);
            tactics[n++].microseconds = (double)milliseconds * 1e3;
        }
    }
    if (n == 0) {
        return TRM_OK;
    }
    trm_tactics_sort(tactics, n);
    (void)use_tactic(key, ways, tactics[0].name);
    trm_tuner_take(tuner, problem, &tactics[0], 1);
    return trm_tuner_record(tuner, problem, tactics, n);
}
