/*
 * A kernel case: one layer with its inputs, and what must come out. The same cases run on every backend; the
 * expected values are computed in f64 by a plain function on the host.
 */
#ifndef TESTS_SUPPORT_KERNEL_CASE_H
#define TESTS_SUPPORT_KERNEL_CASE_H

#include "kernels/kernel.h"

typedef struct kernel_case_input {
    trm_dtype dtype; /* TRM_DTYPE_NONE: not given */
    trm_dims dims;
    double low, high;     /* random values between them, whole numbers for integers */
    const double *values; /* or these [count] */
    bool is_state;        /* may be changed: the expected function changes its copy too */
    bool is_f4;           /* U8 that kernels see as F4E2M1, two in a byte */
} kernel_case_input;

typedef struct kernel_case_output {
    trm_dtype dtype;
    trm_dims dims;
    bool partly;  /* a data-dependent output of the largest dims, of which only */
    int64_t used; /* the first `used` elements are written */
} kernel_case_output;

static inline int64_t kernel_case_used(const kernel_case_output *output)
{
    return output->partly ? output->used : trm_dims_count(&output->dims);
}

typedef struct kernel_case {
    char name[192];
    trm_layer_desc layer;
    int32_t n_inputs, n_outputs;
    kernel_case_input inputs[TRM_MAX_LAYER_INPUTS];
    kernel_case_output outputs[TRM_MAX_LAYER_OUTPUTS];
    double tolerance; /* times the type's own; 0: bit-exact after rounding to the type */
    bool in_place;    /* the output has the input's address */
    uint32_t unread;  /* bit i: output i need not be written */
    bool tf32;        /* f32 factors may be rounded to TF32: then the tolerance is that of f16 */
    double spread;    /* root mean square of errors that are not in proportion to the results: of sums of rounded
                         factors, before an activation; 0: none */
} kernel_case;

/* The meaning of a layer on f64 values: reads inputs[i] (NULL: not given), writes outputs[i]. Inputs are what the type
 * holds; outputs are rounded afterwards. */
typedef void (*kernel_case_meaning)(const kernel_case *test, double *const *inputs, double *const *outputs);

/* Where cases run. */
typedef struct kernel_case_bench {
    trm_device *device;
    trm_stream *streams[2]; /* one may be NULL; what is in the memory of `device` is there for both */
    const trm_kernel_table *table;
    int32_t named;                 /* cases, those of other parts too (test_in_part) */
    int32_t cases, runs, failures; /* counted */
} kernel_case_bench;

/* Runs the case on every kernel of the bench's backend that accepts it, on each stream twice over differently poisoned
 * outputs (with a sanitizer of the compiler once, on one stream), and counts a failure, with a line that says which,
 * if: no kernel accepts it, a value is off, an element was not written, or memory beside the outputs, the workspace or
 * an input was. */
void kernel_case_run(kernel_case_bench *bench, const kernel_case *test, kernel_case_meaning meaning);

/* Runs `cases` with the kernels of the table on test_device (support/device.h), on its stream and that of the pool.
 * Fails the running test if any case does, or if there are none. */
void kernel_cases_check(const trm_kernel_table *table, void (*cases)(kernel_case_bench *bench));

/* `value` rounded once to the type, as a double. Integers: truncated toward zero and saturated. */
double kernel_case_round(trm_dtype dtype, double value);

/* DIMS(2, 3): [2, 3]. */
#define DIMS(...) ((trm_dims){(int32_t)(sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), {__VA_ARGS__}})
#define SCALAR    ((trm_dims){.n = 0})

#endif
