/*
 * What quantizing did to each layer, and the reports about it.
 */
#ifndef TRM_LAUNCHER_CLI_QUANTIZE_SUMMARY_H
#define TRM_LAUNCHER_CLI_QUANTIZE_SUMMARY_H

#include <stdio.h>

#include <trireme/model.h>

#include "launcher/cli/quantize/evaluate.h"

typedef struct quantize_summary {
    const char *model, *weights, *folder;
    trm_quantized_layer *layers; /* [count], with names of their own */
    size_t count, room;
    int32_t chosen;  /* layers whose numbers were chosen by samples */
    evaluation text; /* tokens is 0: on none */
} quantize_summary;

typedef struct quantize_totals {
    int64_t before, after; /* bytes */
    double mean, worst;    /* errors; the mean by the number of weights */
    const char *worst_name;
} quantize_totals;

/* false: no memory */
bool quantize_summary_add(quantize_summary *summary, const trm_quantized_layer *layer);
void quantize_summary_fini(quantize_summary *summary);
quantize_totals quantize_summary_totals(const quantize_summary *summary);
/* What the text showed in one line; "" without one. */
void quantize_summary_describe_text(const quantize_summary *summary, char *text, size_t size);
/* INVALID_ARGUMENT unless the name of a report ends in .json, .html or .txt. */
trm_status quantize_summary_check_path(const char *path);
/* Writes the report in the form that the end of its name says. */
void quantize_summary_write(const quantize_summary *summary, const char *path, FILE *out);

#endif
