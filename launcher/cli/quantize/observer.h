/*
 * Chooses how large the numbers are that 8 bits hold, by a histogram of all that were seen.
 */
#ifndef TRM_LAUNCHER_CLI_QUANTIZE_OBSERVER_H
#define TRM_LAUNCHER_CLI_QUANTIZE_OBSERVER_H

#include <trireme/types.h>

#define OBSERVER_BINS 2048

typedef enum observer_rule {
    OBSERVER_MINMAX = 0, /* the largest */
    OBSERVER_PERCENTILE, /* 99.99 % are not larger */
    OBSERVER_MSE,        /* the least square error */
    OBSERVER_ENTROPY     /* the distribution of numbers is nearest to that of the rounded ones (Kullback-Leibler) */
} observer_rule;

typedef struct observer {
    float largest;              /* magnitude; NaN if one was */
    double bins[OBSERVER_BINS]; /* counts of magnitudes, in equal parts up to the largest */
} observer;

/* false: no such rule */
bool observer_rule_named(const char *name, observer_rule *rule);
/* First all numbers for their largest, then all again for the histogram. */
void observer_measure(observer *o, const float *numbers, int64_t n);
void observer_count(observer *o, const float *numbers, int64_t n);
/* The scale of int8, of which 127 times is the limit. */
float observer_scale(const observer *o, observer_rule rule);

#endif
