/* What tuning chose, and the tuning of what has a few ways. */
#include "kernels/tuner/cuda_tactic_cache.h"

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "kernels/tuner/tactic_cache.h"

#define SLOTS 4096 /* a power of two */

typedef struct slot {
    trm_tactic_state state;
    int32_t way;
    trm_choice_key key;
} slot;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static slot slots[SLOTS + 1];

/* Used under the mutex. */
static trm_tactic_cache choices = {
    .slots = slots, .n = SLOTS, .size = sizeof(slot), .key = offsetof(slot, key), .key_size = sizeof(trm_choice_key)};

/* Of the current device. */
static bool describe(const trm_choice_key *key, trm_choice_key *described)
{
    int device;
    const bool has_device = cudaGetDevice(&device) == cudaSuccess;
    *described = *key;
    described->words[sizeof(key->words) / sizeof(key->words[0]) - 1] = has_device ? device : -1;
    return has_device;
}

void trm_choice_remember(const trm_choice_key *key, int32_t way)
{
    trm_choice_key described;
    if (!describe(key, &described)) {
        return;
    }
    pthread_mutex_lock(&mutex);
    slot *found = trm_tactic_cache_get(&choices, &described, true);
    found->state = TRM_TACTIC_TUNED;
    found->way = way;
    pthread_mutex_unlock(&mutex);
}

bool trm_choice_recall(const trm_choice_key *key, int32_t *way)
{
    trm_choice_key described;
    if (!describe(key, &described)) {
        return false;
    }
    pthread_mutex_lock(&mutex);
    const slot *found = trm_tactic_cache_find(&choices, &described);
    *way = found != NULL ? found->way : *way;
    pthread_mutex_unlock(&mutex);
    return found != NULL;
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
