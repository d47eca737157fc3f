/*
 * Which of several ways tuning chose for a problem, remembered for the process and the current device. From any thread.
 */
#ifndef TRM_KERNELS_TUNER_CUDA_TACTIC_CACHE_H
#define TRM_KERNELS_TUNER_CUDA_TACTIC_CACHE_H

#include "kernels/matmul/cuda_gemm.h"
#include "kernels/tuner/tuner.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What tells a problem from others, its layer's kind first; the rest 0. */
typedef struct trm_choice_key {
    int64_t words[13]; /* the last: the device, filled in here */
} trm_choice_key;

void trm_choice_remember(const trm_choice_key *key, int32_t way);
/* Whether a way is known, which *way is then. */
bool trm_choice_recall(const trm_choice_key *key, int32_t *way);

#define TRM_MOST_WAYS 16

/* The ways of a problem: their names as tactics, those that can do it, and of them those worth timing, bit by bit. */
typedef struct trm_choice_ways {
    const char *const *names;
    int32_t n; /* at most TRM_MOST_WAYS */
    uint32_t accepted, tried;
    trm_status (*run)(void *user, int32_t way); /* on the stream, once */
    void *user;
} trm_choice_ways;

/* Remembers for `key` the way that the tuner knows for the problem, else, where it may time anything, the fastest of
 * those that are tried, and records the times. Not while capturing; `run` overwrites the output. */
trm_status trm_choice_tune(const trm_choice_key *key, const char *problem, const trm_choice_ways *ways,
                           cudaStream_t stream, struct trm_tuner *tuner);

#ifdef __cplusplus
}
#endif
#endif
