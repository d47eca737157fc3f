/*
 * The inputs of linear layers on a text, and numbers that GPTQ chooses by them.
 */
#ifndef TRM_LAUNCHER_CLI_QUANTIZE_SAMPLES_H
#define TRM_LAUNCHER_CLI_QUANTIZE_SAMPLES_H

#include <stdio.h>

#include <trireme/trireme.h>

#include "launcher/cli/settings/settings.h"

/* A tensor that is the input of layers. */
typedef struct sample {
    char *tensor;
    int64_t columns;
    FILE *values; /* [n, columns] f32, in a file without a name */
} sample;

typedef struct samples {
    sample *inputs; /* [n_inputs] */
    int32_t n_inputs;
    struct sampled_layer {
        char *name;
        int32_t input;
    } * layers;       /* [n_layers] */
    int32_t n_layers; /* those of the network; of parts of a weight, all of them */
    int64_t n;        /* tokens */
    double *sums;     /* factors of the input used last, [columns, columns] */
    int32_t factored; /* that input; -1: none */
    int32_t chosen;   /* layers whose numbers were chosen */
} samples;

/* Runs the model in `folder` over the beginning of --samples. samples_fini also after a failure. */
trm_status samples_collect(samples *s, const settings *all, const char *folder);
void samples_fini(samples *s);
/* The numbers of a layer by GPTQ; those of a layer without samples stay the nearest. */
trm_status samples_choose(samples *s, const trm_quantize_choice *choice);

#endif
