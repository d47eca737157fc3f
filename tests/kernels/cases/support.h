/*
 * What the files of kernel cases share: types to go through, making a case, and places in tensors for the meanings.
 */
#ifndef TESTS_KERNELS_CASES_SUPPORT_H
#define TESTS_KERNELS_CASES_SUPPORT_H

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "support/kernel_case.h"
#include "support/support.h"

#define TRM_CASE_TABLE __attribute__((unused)) static const

#define COUNT(array) ((int32_t)(sizeof(array) / sizeof((array)[0])))

TRM_CASE_TABLE trm_dtype floats[] = {TRM_F32, TRM_F16, TRM_BF16};
TRM_CASE_TABLE trm_dtype numbers[] = {TRM_F32, TRM_F16, TRM_BF16, TRM_F64, TRM_I8,  TRM_U8,
                                      TRM_I16, TRM_U16, TRM_I32,  TRM_U32, TRM_I64, TRM_U64};
TRM_CASE_TABLE trm_dtype all_types[] = {TRM_F32, TRM_F16, TRM_BF16, TRM_F64, TRM_I8,  TRM_U8,  TRM_I16,
                                        TRM_U16, TRM_I32, TRM_U32,  TRM_I64, TRM_U64, TRM_BOOL};

static inline bool is_floating(trm_dtype dtype)
{
    return dtype == TRM_F32 || dtype == TRM_F16 || dtype == TRM_BF16 || dtype == TRM_F64;
}

static inline bool is_unsigned(trm_dtype dtype)
{
    return dtype == TRM_U8 || dtype == TRM_U16 || dtype == TRM_U32 || dtype == TRM_U64 || dtype == TRM_BOOL;
}

TRM_PRINTF(2, 3) static inline kernel_case new_case(trm_layer_kind kind, const char *format, ...)
{
    kernel_case test;
    memset(&test, 0, sizeof(test));
    test.layer.kind = kind;
    test.tolerance = 1.0;
    int used = snprintf(test.name, sizeof(test.name), "%s ", trm_layer_kind_name(kind));
    va_list args;
    va_start(args, format);
    vsnprintf(test.name + used, sizeof(test.name) - (size_t)used, format, args);
    va_end(args);
    return test;
}

static inline kernel_case_input *add_input(kernel_case *test, trm_dtype dtype, trm_dims dims, double low, double high)
{
    kernel_case_input *input = &test->inputs[test->n_inputs++];
    *input = (kernel_case_input){.dtype = dtype, .dims = dims, .low = low, .high = high};
    return input;
}

/* Values over the usual range of a type. */
static inline kernel_case_input *add_data(kernel_case *test, trm_dtype dtype, trm_dims dims)
{
    const double high = is_floating(dtype) ? 2.0 : dtype == TRM_BOOL ? 1.0 : 100.0;
    return add_input(test, dtype, dims, is_unsigned(dtype) ? 0.0 : -high, high);
}

static inline void add_output(kernel_case *test, trm_dtype dtype, trm_dims dims)
{
    test->outputs[test->n_outputs++] = (kernel_case_output){.dtype = dtype, .dims = dims};
}

/* ---- places, for the meanings ------------------------------------------------------------------- */

typedef struct place {
    int64_t i[TRM_MAX_DIMS];
} place;

static inline place place_of(const trm_dims *dims, int64_t index)
{
    place p = {{0}};
    for (int32_t axis = dims->n - 1; axis >= 0; axis--) {
        p.i[axis] = index % dims->d[axis];
        index /= dims->d[axis];
    }
    return p;
}

TEST_UNCHECKED static inline int64_t index_of(const trm_dims *dims, const int64_t *i)
{
    int64_t index = 0;
    for (int32_t axis = 0; axis < dims->n; axis++) {
        index = index * dims->d[axis] + i[axis];
    }
    return index;
}

/* Index into an operand that broadcasts over `out`. */
static inline int64_t broadcast_index(const trm_dims *operand, const trm_dims *out, const place *p)
{
    int64_t index = 0;
    for (int32_t axis = 0; axis < operand->n; axis++) {
        const int64_t at = operand->d[axis] == 1 ? 0 : p->i[axis + out->n - operand->n];
        index = index * operand->d[axis] + at;
    }
    return index;
}

static inline int32_t axis_of(int32_t axis, const trm_dims *dims)
{
    return axis < 0 ? axis + dims->n : axis;
}

static inline int64_t count_of_output(const kernel_case *test)
{
    return trm_dims_count(&test->outputs[0].dims);
}

static inline bool is_integer(trm_dtype dtype)
{
    return dtype >= TRM_I8 && dtype <= TRM_U64;
}

/* Low bits of a whole number, as an integer of the type. */
static inline double wrap(trm_dtype dtype, double value)
{
    const bool four = dtype == TRM_I4 || dtype == TRM_U4, two = dtype == TRM_I2 || dtype == TRM_U2;
    const double range = ldexp(1.0, four ? 4 : two ? 2 : (int)trm_dtype_size(dtype) * 8);
    const bool has_sign = dtype == TRM_I4 || dtype == TRM_I2 || dtype == TRM_I8 || dtype == TRM_I16 ||
                          dtype == TRM_I32 || dtype == TRM_I64;
    if (value >= (has_sign ? -range / 2.0 : 0.0) && value < (has_sign ? range / 2.0 : range)) {
        return value; /* where adding the range would lose bits */
    }
    double rest = fmod(value, range);
    rest += rest < 0.0 ? range : 0.0;
    return has_sign && rest >= range / 2.0 ? rest - range : rest;
}

#endif
