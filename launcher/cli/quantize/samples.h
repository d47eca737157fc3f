/*
 * The inputs of linear layers on given tokens: one run of the model keeps them in files. Of experts, the tokens that a
 * router gave to each.
 */
#ifndef TRM_LAUNCHER_CLI_QUANTIZE_SAMPLES_H
#define TRM_LAUNCHER_CLI_QUANTIZE_SAMPLES_H

#include <stdio.h>

#include <trireme/trireme.h>

#include "launcher/cli/quantize/groups.h"
#include "launcher/cli/settings/settings.h"

/* Of each column of a weight's inputs. */
typedef struct sample_stats {
    int64_t columns, n;
    double *absolute, *square, *largest; /* [columns] the means of |x| and x^2, the largest |x| */
} sample_stats;

/* The input of a group. */
typedef struct sample {
    FILE *values;       /* [n, columns] f32, in a file without a name; NULL for inner activations of an expert */
    float *divide;      /* [columns] that the values are divided by when they are read, or NULL */
    sample_stats stats; /* once they were asked for */
} sample;

/* Experts whose weights are stored one by one. */
typedef struct sampled_experts {
    char *prefix, *ids; /* of their weights' names; the tensor [n, k] i32 */
    int64_t k;
    FILE *file;     /* ids */
    int32_t input;  /* the group of their input */
    bool has_inner; /* inner activations can be computed */
    trm_expert_activation activation;
} sampled_experts;

typedef struct samples {
    trm_model *model; /* as it was */
    groups groups;
    sample *inputs; /* [groups.n] */
    sampled_experts *experts;
    int32_t n_experts;
    int64_t n; /* tokens; 0: nothing was sampled */
    const char *beside;
    sample_stats last; /* of an expert */
} samples;

/* Finds the groups of the model in `folder` as `weights` quantizes it, without layers of `keep`. Files lie beside
 * `beside`. samples_fini also after a failure. */
trm_status samples_open(samples *s, const settings *all, const char *folder, const char *weights, const char *beside);
/* Runs the model over --samples. `tick` (may be NULL) gets tokens done and all of them; false ends it with CANCELLED.
 */
trm_status samples_collect(samples *s, const settings *all, const char *folder,
                           bool (*tick)(void *user, int64_t done, int64_t total), void *user);
void samples_fini(samples *s);

/* Gets `n` lines [n, columns]; a failure ends the reading. */
typedef trm_status (*samples_fn)(void *user, const float *lines, int64_t n);
/* Calls fn with the inputs of a stored weight, some lines at a time; *count becomes their number. An expert has those
 * tokens that were its. */
trm_status samples_each(const samples *s, const char *weight, samples_fn fn, void *user, int64_t *count);

/* Their statistics, valid until the next call; NULL without inputs. */
trm_status samples_stats(samples *s, const char *weight, const sample_stats **stats);
void sample_stats_fini(sample_stats *stats);
/* Divides the inputs of a group from now on, [columns]. */
trm_status samples_divide(samples *s, const group *g, const float *factors);

#endif
