/*
 * Elements of any type as a double, for code that inspects values and does not compute with them.
 */
#ifndef TRM_BASE_ELEMENT_H
#define TRM_BASE_ELEMENT_H

#include <trireme/types.h>

/* Element i of `data`; 64-bit integers are rounded, bool is 0 or 1. NaN for types of less than a byte. */
double trm_element_as_double(trm_dtype dtype, const void *data, int64_t i);
/* Writes element i. Floats round to nearest; integers round towards zero and clamp to their range, NaN becomes 0; bool
 * is true if the value is not 0. Returns false and writes nothing for types of less than a byte. */
bool trm_element_set_double(trm_dtype dtype, void *data, int64_t i, double value);

#endif
