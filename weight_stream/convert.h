/*
 * Runs of elements converted from one type to another on their way out of a file.
 */
#ifndef TRM_WEIGHT_STREAM_CONVERT_H
#define TRM_WEIGHT_STREAM_CONVERT_H

#include <trireme/types.h>

/* Same type, or floats among each other. */
bool trm_convertible(trm_dtype from, trm_dtype to);
/* Converts `count` elements, rounding to nearest even. Neither side need be aligned; they must not overlap. */
void trm_convert(trm_dtype from, const void *source, trm_dtype to, void *target, size_t count);

#endif
