/*
 * Quantized weights as the library makes them, for searches that try many: a form's numbers of a block of a row.
 */
#ifndef TRM_LAUNCHER_CLI_QUANTIZE_FORM_H
#define TRM_LAUNCHER_CLI_QUANTIZE_FORM_H

#include <trireme/types.h>

typedef enum quantize_numbers { NUMBERS_INT, NUMBERS_E2M1, NUMBERS_E4M3 } quantize_numbers;

typedef struct quantize_form {
    quantize_numbers numbers;
    int32_t bits;
    int32_t group;   /* columns that share a scale; 0: all */
    bool has_int8_x; /* asks for activations of int8, or of e4m3 */
    bool has_e4m3_x;
} quantize_form;

/* The form of weights of this name; false for blocks of several rows and unknown names. */
bool quantize_form_named(const char *weights, quantize_form *form);
/* The scale of a block whose largest magnitude is `largest`, before it is rounded to the type of scales. */
float quantize_form_scale(const quantize_form *form, float largest);
/* What stands for x under a scale. */
float quantize_form_round(const quantize_form *form, float x, float scale);

#endif
