/*
 * How far one tensor is from another: what `compare`, and `run` and `bench` of a network, print of two, and whether
 * that is near enough.
 */
#ifndef TRM_LAUNCHER_CLI_TENSOR_ERROR_H
#define TRM_LAUNCHER_CLI_TENSOR_ERROR_H

#include "launcher/cli/job/report.h"
#include "launcher/cli/settings/settings.h"

typedef struct tensor_value {
    trm_dtype dtype;
    trm_dims dims;
    void *data; /* [dims], to free() */
} tensor_value;
void tensor_value_fini(tensor_value *value);
int64_t tensor_value_count(const tensor_value *value);
bool tensor_same_dims(const trm_dims *a, const trm_dims *b);
/* Of 16, 32 or 64 bits. */
bool tensor_is_float(trm_dtype dtype);

/* What --limit may hold a tensor to. */
typedef enum tensor_limit {
    TENSOR_LIMIT_OUTSIDE, /* share of elements that are off by more than the tolerance */
    TENSOR_LIMIT_MEAN,    /* of absolute differences */
    TENSOR_LIMIT_RMS,
    TENSOR_LIMIT_MAX,
    TENSOR_LIMIT_COSINE, /* 1 - cosine similarity */
    TENSOR_LIMITS
} tensor_limit;

/* Element i may be off by absolute + relative * |reference i|. */
typedef struct tensor_tolerance {
    double relative, absolute;
    double of_rms;               /* added to `absolute`: this share of the reference's root mean square */
    double share;                /* of elements that may be off by more, up to 4 times as much */
    bool limited[TENSOR_LIMITS]; /* with any of them the limits decide, and not each element */
    double limits[TENSOR_LIMITS];
} tensor_tolerance;
/* Whether every --limit is "KIND=X" with a kind there is. */
trm_status tensor_check_limits(const settings *all);
/* What --limit, --rtol and --atol say, and where they do not, what suits the type: what is added up in another order,
 * and rounded at other places, differs by so much at most in a deep network. */
tensor_tolerance tensor_tolerance_for(const settings *all, trm_dtype dtype);
/* Of two types: the coarser decides. */
tensor_tolerance tensor_tolerance_of(const settings *all, trm_dtype a, trm_dtype b);
/* The coarsest float so far, when a tensor of this type is noted: what is computed of it has its errors, whatever its
 * own type. `coarsest` is TRM_DTYPE_NONE at first. */
trm_dtype tensor_coarsest(const settings *all, trm_dtype coarsest, trm_dtype dtype);

/* Differences are over pairs of finite numbers. Two NaN, and infinities of the same sign, are equal. */
typedef struct tensor_error {
    int64_t count, outside; /* elements; those that are off by more than the tolerance, or not finite on one side */
    int64_t far;            /* of those: by more than 4 times as much, or not finite */
    int64_t unequal;        /* of those: not finite on one side, and not the same on both */
    int64_t nan_found, nan_expected, infinite_found, infinite_expected;
    double max_absolute, max_relative, mean_absolute, rms_error, rms_expected, cosine;
    int64_t worst; /* the element that is furthest off, as a multiple of its tolerance; -1: none is off at all */
    double worst_found, worst_expected;
} tensor_error;

/* Both have the same dims. */
void tensor_error_measure(const tensor_value *found, const tensor_value *expected, const tensor_tolerance *tolerance,
                          tensor_error *error);
/* Whether the tensors are near enough. What is not finite on one side and not the same on both never is. */
bool tensor_error_holds(const tensor_error *error, const tensor_tolerance *tolerance);
/* Whether `error` is to be shown rather than another one of the same reference. */
bool tensor_error_is_worse(const tensor_error *error, const tensor_error *other);
/* Columns of a table: their names, without the end of the line, and what stands below them. */
void tensor_error_print_head(void);
void tensor_error_print(const tensor_error *error);
/* Its members, within an object. */
void tensor_error_report(report *r, const tensor_error *error);
/* "[0, 3, 7]", where the worst element is. */
void tensor_error_place(const tensor_value *value, int64_t index, char *text, size_t size);
/* Why it does not hold: "12 of 100 elements are off, at [0, 3] it is 1.5, expected 1.2", or by the first limit. */
void tensor_error_describe(const tensor_error *error, const tensor_tolerance *tolerance, const char *place, char *text,
                           size_t size);

#endif
