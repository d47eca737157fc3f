/*
 * How far a quantized model is from the one that it was made of, on a text.
 */
#ifndef TRM_LAUNCHER_CLI_QUANTIZE_EVALUATE_H
#define TRM_LAUNCHER_CLI_QUANTIZE_EVALUATE_H

#include <trireme/trireme.h>

#include "launcher/cli/settings/settings.h"

typedef struct evaluation {
    int64_t tokens; /* that were predicted */
    double perplexity_before, perplexity_after;
    double divergence; /* the mean of the Kullback-Leibler divergences of the tokens' distributions, in nats */
    double agreement;  /* of the tokens: the most probable one is the same */
    double rate_before, rate_after; /* tokens per second, of prompts */
} evaluation;

/* Gets steps done and all of them; false ends the call with CANCELLED. */
typedef bool (*evaluate_tick_fn)(void *user, int64_t done, int64_t total);

/* A world of this process alone, on the backend and device of the settings. */
trm_status evaluate_open_world(const settings *all, trm_backend *backend, trm_world **world);
/* Fails as evaluate() would where --text cannot be read by the model in `folder`. */
trm_status evaluate_check(const settings *all, const char *folder);
/* Runs both models, one after the other, over the beginning of --text. */
trm_status evaluate(const settings *all, const char *before, const char *after, evaluate_tick_fn tick, void *user,
                    evaluation *result);

/* A part of a model, by a pattern for the names of its layers. */
typedef struct evaluated_part {
    char *pattern;
    double divergence;
} evaluated_part;
/* The divergence of the model in `folder`, with one part after the other quantized to `weights` alone, on the first
 * passage of --text. */
trm_status evaluate_parts(const settings *all, const char *folder, const char *weights, evaluated_part *parts,
                          int32_t n, evaluate_tick_fn tick, void *user);

#endif
