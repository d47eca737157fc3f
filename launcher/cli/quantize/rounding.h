/*
 * Chooses the integers of a layer, and the scales of its blocks, by its inputs.
 */
#ifndef TRM_LAUNCHER_CLI_QUANTIZE_ROUNDING_H
#define TRM_LAUNCHER_CLI_QUANTIZE_ROUNDING_H

#include "base/pool.h"
#include "launcher/cli/quantize/samples.h"

typedef struct rounding {
    samples *s; /* may have no tokens */
    trm_pool *pool;
    bool gptq;       /* numbers by GPTQ, not the nearest */
    bool clip;       /* scales by the least square error, of each column times the mean square of its inputs */
    bool keeps_q;    /* not those of q and k, whose products go into a softmax, as AWQ has it */
    int32_t chosen;  /* layers whose numbers were chosen by samples */
    int32_t without; /* those that got no input: experts without a token */
    double *sums;    /* GPTQ's factors of the last input, [columns, columns] */
    char *summed;    /* a weight that has that input */
} rounding;

void rounding_fini(rounding *r);
/* A trm_quantize_choose_fn. */
trm_status rounding_choose(void *rounding, const trm_quantize_choice *choice);

#endif
