/*
 * Sizes and numbers as people read them: in a unit, or with as many decimals, that leaves them digits however small
 * they are. For texts; reports have plain numbers.
 */
#ifndef TRM_BASE_UNIT_H
#define TRM_BASE_UNIT_H

#include <stdint.h>

/* A unit of bytes. */
typedef struct trm_unit {
    double bytes;
    const char *name;
} trm_unit;

/* GiB, MiB or KiB: the largest of which there is an eighth at least. For texts whose sizes are to have one unit, of the
 * largest of them. */
trm_unit trm_unit_of(double bytes);

typedef struct trm_unit_text {
    char text[32];
} trm_unit_text;

/* "28.00 MiB", or "100 B" of less than an eighth of a KiB. */
trm_unit_text trm_size_text(double bytes);
/* "8.030 billion", "7.344 million", and as it is what is less than a tenth of a million. */
trm_unit_text trm_count_text(int64_t count);
/* So many decimals, or as many as two significant digits take: with one "16.4", "0.043". */
trm_unit_text trm_number_text(double number, int decimals);

#endif
