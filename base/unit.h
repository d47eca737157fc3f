/*
 * Sizes and numbers for people: in a unit, or with enough decimals, so that small ones keep their digits. For text;
 * reports have plain numbers.
 */
#ifndef TRM_BASE_UNIT_H
#define TRM_BASE_UNIT_H

#include <stdint.h>

/* A unit of bytes. */
typedef struct trm_unit {
    double bytes;
    const char *name;
} trm_unit;

/* GiB, MiB or KiB: the largest unit of which `bytes` is at least an eighth. If several sizes share a unit, take that of
 * the largest. */
trm_unit trm_unit_of(double bytes);

typedef struct trm_unit_text {
    char text[32];
} trm_unit_text;

/* "28.00 MiB"; "100 B" below an eighth of a KiB. */
trm_unit_text trm_size_text(double bytes);
/* "8.030 billion", "7.344 million"; the plain number below a tenth of a million. */
trm_unit_text trm_count_text(int64_t count);
/* `decimals` decimals, or as many as two significant digits need: with one, "16.4" and "0.043". */
trm_unit_text trm_number_text(double number, int decimals);

#endif
