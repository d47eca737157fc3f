/* cuda.cu beyond the layer: the norm of what several ranks have summands of, and one that is quantized. */
#ifndef TRM_KERNELS_NORM_CUDA_H
#define TRM_KERNELS_NORM_CUDA_H

#include "kernels/dequant/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The norm of a sum: of up to TRM_NORM_PARTS parts, added in their order in f32 and rounded, then with `residual`, and
 * rounded. All [rows, width] but weight and bias [width], in whole runs of 16 bytes and aligned to them; residual,
 * weight, bias and sum may be NULL. The bits are those of trm_cuda_norm_run on the rounded sum. */
#define TRM_NORM_PARTS 8
typedef struct trm_norm_of_parts {
    trm_dtype dtype; /* f32, f16, bf16, of everything */
    int64_t rows, width;
    const void *parts[TRM_NORM_PARTS];
    int32_t n_parts;
    const void *residual, *weight, *bias;
    void *to, *sum;
} trm_norm_of_parts;
trm_status trm_cuda_norm_of_parts(const trm_norm_of_parts *n, const trm_norm_params *norm, void *cuda_stream);

/* An RMS norm of 16-bit floats, rounded to their type, as numbers and scales instead of its first output; `accepts`
 * looks at addresses, too. */
bool trm_cuda_norm_quantized_accepts(const trm_kernel_call *norm);
trm_status trm_cuda_norm_quantized(const trm_kernel_call *norm, const trm_quantized_rows *to, void *cuda_stream);

#ifdef __cplusplus
}
#endif
#endif
