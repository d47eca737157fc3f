/*
 * How far one tensor is from another: what `compare` prints of two, and whether that is near enough.
 */
#ifndef TRM_LAUNCHER_CLI_TENSOR_ERROR_H
#define TRM_LAUNCHER_CLI_TENSOR_ERROR_H

#include "launcher/cli/report.h"
#include "launcher/cli/settings.h"

typedef struct tensor_value {
    trm_dtype dtype;
    trm_dims dims;
    void *data; /* [dims], to free() */
} tensor_value;
void tensor_value_fini(tensor_value *value);
int64_t tensor_value_count(const tensor_value *value);

/* Element i may be off by absolute + relative * |reference i|. */
typedef struct tensor_tolerance {
    double relative, absolute;
    double of_rms; /* added to `absolute`: this share of the reference's root mean square */
    double share;  /* of elements that may be off by more, up to 4 times as much */
} tensor_tolerance;
/* What --rtol and --atol say, and where they do not, what suits the type: what is added up in another order, and
 * rounded at other places, differs by so much at most in a deep network. */
tensor_tolerance tensor_tolerance_for(const settings *all, trm_dtype dtype);

/* Differences are over pairs of finite numbers. Two NaN, and infinities of the same sign, are equal. */
typedef struct tensor_error {
    int64_t count, outside; /* elements; those that are off by more than the tolerance, or not finite on one side */
    int64_t far;            /* of those: by more than 4 times as much, or not finite */
    int64_t nan_found, nan_expected, infinite_found, infinite_expected;
    double max_absolute, max_relative, mean_absolute, rms_error, rms_expected, cosine;
    int64_t worst; /* the element that is furthest off, as a multiple of its tolerance; -1: none is off at all */
    double worst_found, worst_expected;
} tensor_error;

/* Both have the same dims. */
void tensor_error_measure(const tensor_value *found, const tensor_value *expected, const tensor_tolerance *tolerance,
                          tensor_error *error);
/* Whether the tensors are near enough. */
bool tensor_error_holds(const tensor_error *error, const tensor_tolerance *tolerance);
/* Its members, within an object. */
void tensor_error_report(report *r, const tensor_error *error);
/* "[0, 3, 7]", where the worst element is. */
void tensor_error_place(const tensor_value *value, int64_t index, char *text, size_t size);

#endif
