/*
 * Transposes matrices that files store the other way round than kernels read them.
 */
#ifndef TRM_WEIGHT_STREAM_TRANSPOSE_H
#define TRM_WEIGHT_STREAM_TRANSPOSE_H

#include <trireme/types.h>

/*
 * Element i of line k, at source + k * pitch, becomes element k of row i, at target + i * target_pitch, converted as by
 * trm_convert: source [lines, count], target [count, lines]. Pitches are bytes. Nothing needs alignment; the two must
 * not overlap. Fastest if there are many lines, or they fill cache lines of the target.
 */
void trm_transpose(trm_dtype from, const void *source, size_t pitch, size_t lines, size_t count, trm_dtype to,
                   void *target, size_t target_pitch);

#endif
