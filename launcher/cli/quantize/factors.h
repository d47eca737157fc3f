/*
 * Factors on the columns of weights that make a model easier to quantize and leave what it computes: columns are
 * multiplied, and what makes the layers' input is divided.
 *
 * AWQ (Lin and others, 2023, arXiv:2306.00978): factors make columns that matter larger in their block, so that they
 * are rounded more finely. SmoothQuant (Xiao and others, 2022, arXiv:2211.10438): factors take large activations out of
 * a few columns of x and into the weights, so that x can be rounded, too.
 */
#ifndef TRM_LAUNCHER_CLI_QUANTIZE_FACTORS_H
#define TRM_LAUNCHER_CLI_QUANTIZE_FACTORS_H

#include "base/pool.h"
#include "launcher/cli/quantize/form.h"
#include "launcher/cli/quantize/samples.h"

typedef struct factor_list {
    trm_weight_factors *list;
    int32_t n;
    float **arrays; /* that they are in */
    int32_t n_arrays;
    int32_t groups; /* that have factors */
} factor_list;

typedef struct factor_options {
    quantize_form form;
    bool smooth;  /* SmoothQuant; else AWQ */
    double alpha; /* of SmoothQuant: the share of the large numbers that goes into the weights */
    trm_pool *pool;
    bool (*tick)(void *user, int64_t done, int64_t total); /* groups; false ends it with CANCELLED */
    void *user;
} factor_options;

/* Chooses factors for groups whose input can be divided, and sets `divide` of their samples. factor_list_fini also
 * after a failure. */
trm_status factors_choose(samples *s, const factor_options *options, factor_list *factors);
void factor_list_fini(factor_list *factors);

#endif
