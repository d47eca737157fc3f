/*
 * How far two tensors differ: the figures that compare, and run and bench of a network, print, and whether they are
 * within tolerance.
 */
#ifndef TRM_LAUNCHER_CLI_TENSOR_ERROR_H
#define TRM_LAUNCHER_CLI_TENSOR_ERROR_H

#include "launcher/cli/job/report.h"
#include "launcher/cli/settings/settings.h"

typedef struct tensor_value {
    trm_dtype dtype;
    trm_dims dims;
    void *data; /* [dims], to be freed */
} tensor_value;
void tensor_value_fini(tensor_value *value);
int64_t tensor_value_count(const tensor_value *value);
bool tensor_same_dims(const trm_dims *a, const trm_dims *b);
/* Of 16, 32 or 64 bits. */
bool tensor_is_float(trm_dtype dtype);

/* What --limit can bound. */
typedef enum tensor_limit {
    TENSOR_LIMIT_OUTSIDE, /* fraction of elements beyond the tolerance */
    TENSOR_LIMIT_MEAN,    /* of absolute differences */
    TENSOR_LIMIT_RMS,
    TENSOR_LIMIT_MAX,
    TENSOR_LIMIT_COSINE, /* 1 - cosine similarity */
    TENSOR_LIMITS
} tensor_limit;

/* Element i may differ by absolute + relative * |reference i|. */
typedef struct tensor_tolerance {
    double relative, absolute;
    double of_rms;               /* added to `absolute`: this fraction of the reference's root mean square */
    double share;                /* fraction of elements that may exceed the tolerance, up to 4 times */
    bool limited[TENSOR_LIMITS]; /* if there are any, the limits decide, not each element */
    double limits[TENSOR_LIMITS];
} tensor_tolerance;
/* Whether every --limit is "KIND=X" with a known kind. */
trm_status tensor_check_limits(const settings *all);
/* The tolerance given by --limit, --rtol and --atol, with defaults by type: the most that another order of summation
 * and other places of rounding change in a deep network. */
tensor_tolerance tensor_tolerance_for(const settings *all, trm_dtype dtype);
/* Of two types, the coarser decides. */
tensor_tolerance tensor_tolerance_of(const settings *all, trm_dtype a, trm_dtype b);
/* Updates the coarsest float so far with a tensor of this type: later tensors carry its errors, whatever their own
 * type. `coarsest` begins as TRM_DTYPE_NONE. */
trm_dtype tensor_coarsest(const settings *all, trm_dtype coarsest, trm_dtype dtype);

/* Differences are over pairs of finite numbers. Two NaN, and infinities of the same sign, are equal. */
typedef struct tensor_error {
    int64_t count, outside; /* elements; those beyond the tolerance, or not finite on one side */
    int64_t far;            /* of those: by more than 4 times, or not finite */
    int64_t unequal;        /* of those: not finite on one side, and not the same on both */
    int64_t nan_found, nan_expected, infinite_found, infinite_expected;
    double max_absolute, max_relative, mean_absolute, rms_error, rms_expected, cosine;
    int64_t worst; /* the element furthest off, relative to its tolerance; -1: all are equal */
    double worst_found, worst_expected;
} tensor_error;

/* Both have the same dims. */
void tensor_error_measure(const tensor_value *found, const tensor_value *expected, const tensor_tolerance *tolerance,
                          tensor_error *error);
/* Whether the tensors are within tolerance. An element that is not finite on one side and not the same on both never
 * is. */
bool tensor_error_holds(const tensor_error *error, const tensor_tolerance *tolerance);
/* Whether `error` is worse than another one of the same reference. */
bool tensor_error_is_worse(const tensor_error *error, const tensor_error *other);
/* Columns of a table: their names, without a newline, and the figures below them. */
void tensor_error_print_head(void);
void tensor_error_print(const tensor_error *error);
/* Reports the figures as members of the open object. */
void tensor_error_report(report *r, const tensor_error *error);
/* "[0, 3, 7]": where the worst element is. */
void tensor_error_place(const tensor_value *value, int64_t index, char *text, size_t size);
/* Why the tensors differ: "12 of 100 elements differ, at [0, 3] it is 1.5, expected 1.2", or the first exceeded limit.
 */
void tensor_error_describe(const tensor_error *error, const tensor_tolerance *tolerance, const char *place, char *text,
                           size_t size);

#endif
