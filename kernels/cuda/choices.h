/*
 * Which of several ways tuning chose for a problem, remembered for the process and the current device. A later choice
 * may push out an earlier one, whose problem is then done the usual way. From any thread.
 */
#ifndef TRM_KERNELS_CUDA_CHOICES_H
#define TRM_KERNELS_CUDA_CHOICES_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What tells a problem from others, its layer's kind first; the rest 0. */
typedef struct trm_choice_key {
    int64_t words[12];
} trm_choice_key;

void trm_choice_remember(const trm_choice_key *key, int32_t way);
/* Whether a way is known, which *way is then. */
bool trm_choice_recall(const trm_choice_key *key, int32_t *way);

#ifdef __cplusplus
}
#endif
#endif
