/*
 * Elements of any type as one type, for those who look at values and do not compute with them.
 */
#ifndef TRM_BASE_ELEMENT_H
#define TRM_BASE_ELEMENT_H

#include <trireme/types.h>

/* Element i of `data`, rounded where 64-bit integers need it; bool as 0 or 1. Not a number for a type of less than a
 * byte. */
double trm_element_as_double(trm_dtype dtype, const void *data, int64_t i);
/* The other way: floats are rounded to nearest; integers towards zero, to the nearest end where they are out of range,
 * NaN to 0; bool is whether it is not 0. False, and nothing written, for a type of less than a byte. */
bool trm_element_set_double(trm_dtype dtype, void *data, int64_t i, double value);

#endif
