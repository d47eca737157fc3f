/*
 * What quantizing did to each layer and to the model.
 */
#ifndef TRM_LAUNCHER_CLI_QUANTIZE_SUMMARY_H
#define TRM_LAUNCHER_CLI_QUANTIZE_SUMMARY_H

#include <stdio.h>

#include <trireme/model.h>

#include "launcher/cli/quantize/evaluate.h"
#include "launcher/cli/quantize/groups.h"
#include "launcher/cli/quantize/method.h"

typedef struct summary_layer {
    trm_quantized_layer layer; /* with a name of its own, without arrays */
    double output_error;       /* of the layer's outputs on samples; negative: no samples */
} summary_layer;

typedef struct quantize_summary {
    const char *model, *weights, *folder;
    const quantize_method *method;
    summary_layer *layers; /* [count] */
    size_t count, room;
    int64_t samples;       /* tokens */
    int32_t chosen;        /* layers whose numbers were chosen by samples */
    int32_t without;       /* layers that got none: experts without a token */
    int32_t rescaled;      /* groups of layers with factors on their columns */
    evaluation text;       /* tokens is 0: on none */
    evaluated_part *parts; /* [n_parts], sorted when they are written */
    int32_t n_parts;
} quantize_summary;

typedef struct quantize_totals {
    int64_t before, after; /* bytes */
    double mean, worst;    /* errors; the mean by the number of weights */
    const char *worst_name;
} quantize_totals;

/* false: no memory */
bool quantize_summary_add(quantize_summary *summary, const trm_quantized_layer *layer, double output_error);
/* Lists the parts of a model that are to be measured alone. */
trm_status quantize_summary_list_parts(quantize_summary *summary, const groups *all);
void quantize_summary_fini(quantize_summary *summary);
quantize_totals quantize_summary_totals(const quantize_summary *summary);
/* How numbers were chosen, in one line; "" for the nearest. */
void quantize_summary_describe_method(const quantize_summary *summary, char *text, size_t size);
/* What the text showed in one line; "" without one. */
void quantize_summary_describe_text(const quantize_summary *summary, char *text, size_t size);
/* The parts whose quantizing moves the model the most, if they were measured. */
void quantize_summary_print_parts(const quantize_summary *summary, FILE *out);

/* INVALID_ARGUMENT unless the name of a report ends in .json, .html or .txt. */
trm_status quantize_summary_check_path(const char *path);
/* Writes the report in the form that the end of its name says. */
void quantize_summary_write(const quantize_summary *summary, const char *path, FILE *out);

#endif
