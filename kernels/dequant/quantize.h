/* The scale by which a DEQUANT_MATMUL quantizes x: one definition for both backends. */
#ifndef TRM_KERNELS_DEQUANT_QUANTIZE_H
#define TRM_KERNELS_DEQUANT_QUANTIZE_H

#include <trireme/layers/matmul.h>

#include "kernels/element.h"

/* Of columns whose largest magnitude is `largest`, for numbers up to `most`: 448 of e4m3, 127.5 of i8, where the
 * largest is rounded by half a step as others are. Numbers of e4m3 are x times 1 / scale, both rounded to f32;
 * of i8 x / scale, as the largest lies between two numbers. */
TRM_ELEMENT float trm_x_scale(trm_x_quantization quantization, float x_scale, float largest, float most)
{
    if (quantization == TRM_X_STATIC) {
        return x_scale;
    }
    const float scale = (largest > 0x1p-100f ? largest : 0x1p-100f) / most;
    return x_scale > 0.0f && scale > x_scale ? x_scale : scale;
}

#endif
