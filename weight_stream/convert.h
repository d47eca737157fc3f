/*
 * Converts runs of elements from one type to another while they are read.
 */
#ifndef TRM_WEIGHT_STREAM_CONVERT_H
#define TRM_WEIGHT_STREAM_CONVERT_H

#include <trireme/types.h>

/* Whether the types are equal, both floats, or F8E4M3 and f32. */
bool trm_convertible(trm_dtype from, trm_dtype to);
/* Converts `count` elements, rounding to nearest even. Neither side need be aligned; they must not overlap. */
void trm_convert(trm_dtype from, const void *source, trm_dtype to, void *target, size_t count);

#endif
