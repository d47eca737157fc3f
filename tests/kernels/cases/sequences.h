/* The sequences of a step, for the cases of kinds with a state by sequence. */
#ifndef TRM_TESTS_KERNELS_CASES_SEQUENCES_H
#define TRM_TESTS_KERNELS_CASES_SEQUENCES_H

#include "kernels/cases/support.h"

/* Sequences of a step: new tokens and tokens in all. Slots are read from the last on; every other sequence writes
 * another one. */
typedef struct step {
    int32_t n;
    int64_t tokens[8], lengths[8];
} step;

static inline int64_t tokens_of(const step *s)
{
    int64_t tokens = 0;
    for (int32_t i = 0; i < s->n; i++) {
        tokens += s->tokens[i];
    }
    return tokens;
}

/* The three inputs of sequences. A sequence without tokens has a slot that is not there. */
static inline void add_sequences(kernel_case *test, const step *s, double *values)
{
    double *starts = values, *lengths = values + 16, *slots = values + 32;
    starts[0] = 0.0;
    for (int32_t i = 0; i < s->n; i++) {
        starts[i + 1] = starts[i] + (double)s->tokens[i];
        lengths[i] = (double)s->lengths[i];
        slots[2 * i] = s->tokens[i] == 0 ? 1e6 : (double)(2 * (s->n - i) - 1);
        slots[2 * i + 1] = slots[2 * i] + (double)(i % 2);
    }
    add_input(test, TRM_I32, DIMS(s->n + 1), 0.0, 0.0)->values = starts;
    add_input(test, TRM_I32, DIMS(s->n), 0.0, 0.0)->values = lengths;
    add_input(test, TRM_I32, DIMS(s->n, 2), 0.0, 0.0)->values = slots;
}

#endif
