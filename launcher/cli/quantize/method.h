/*
 * What --method asks for, and whether it goes with the weights.
 */
#ifndef TRM_LAUNCHER_CLI_QUANTIZE_METHOD_H
#define TRM_LAUNCHER_CLI_QUANTIZE_METHOD_H

#include "launcher/cli/quantize/form.h"
#include "launcher/cli/settings/settings.h"

typedef struct quantize_method {
    quantize_form form;
    bool awq, smooth; /* factors on columns */
    bool clip;        /* scales by least squares: of awq with integers, and mse */
    bool gptq;
    char text[64]; /* as it is reported: "awq, gptq"; "nearest" */
} quantize_method;

/* INVALID_ARGUMENT for words that are unknown, exclude each other, do not go with the weights or lack --samples. */
trm_status quantize_method_read(const settings *all, const char *weights, quantize_method *method);

#endif
