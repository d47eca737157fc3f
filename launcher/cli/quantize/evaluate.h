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
} evaluation;

/* A world of this process alone, on the backend and device of the settings. */
trm_status evaluate_open_world(const settings *all, trm_backend *backend, trm_world **world);
/* The beginning of a text as tokens, of which the first *n are to be used, as the model in `folder` has them. */
trm_status evaluate_read_tokens(const char *path, const char *folder, int64_t *n, trm_tokens *tokens);
/* Runs both models, one after the other, over the beginning of --text. */
trm_status evaluate(const settings *all, const char *before, const char *after, evaluation *result);

#endif
