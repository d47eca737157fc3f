/* The scale by which a DEQUANT_MATMUL quantizes x: one definition for both backends. */
#ifndef TRM_KERNELS_DEQUANT_QUANTIZE_H
#define TRM_KERNELS_DEQUANT_QUANTIZE_H

#include <trireme/layers/matmul.h>

#include "kernels/element.h"

/* Of columns whose largest magnitude is `largest`. Numbers are x times 1 / scale, both rounded to f32. */
TRM_ELEMENT float trm_x_scale(trm_x_quantization quantization, float x_scale, float largest)
{
    if (quantization == TRM_X_STATIC) {
        return x_scale;
    }
    const float scale = (largest > 0x1p-100f ? largest : 0x1p-100f) / 448.0f;
    return x_scale > 0.0f && scale > x_scale ? x_scale : scale;
}

#endif
