/*
 * Rows as numbers of e4m3 and their scales, on their way out of a kernel that has them in registers: a block has a
 * row, a thread of it VECTORS runs of 8 elements that are blockDim.x runs apart from its own number on.
 */
#ifndef TRM_KERNELS_DEQUANT_CUDA_QUANTIZE_CUH
#define TRM_KERNELS_DEQUANT_CUDA_QUANTIZE_CUH

#include <cuda_fp8.h>

#include "kernels/cuda/common.cuh"
#include "kernels/dequant/cuda.h"
#include "kernels/dequant/quantize.h"

static __device__ __forceinline__ uint32_t numbers_of4(const float *v, float inverse)
{
    const uint32_t low =
        __nv_cvt_float2_to_fp8x2(make_float2(v[0] * inverse, v[1] * inverse), __NV_SATFINITE, __NV_E4M3);
    const uint32_t high =
        __nv_cvt_float2_to_fp8x2(make_float2(v[2] * inverse, v[3] * inverse), __NV_SATFINITE, __NV_E4M3);
    return low | high << 16;
}

static __device__ __forceinline__ void store_numbers(const trm_quantized_rows &q, int64_t row, int run,
                                                     const float (&v)[8], float inverse)
{
    *(uint2 *)(q.numbers + row * q.k + run * 8) = make_uint2(numbers_of4(v, inverse), numbers_of4(v + 4, inverse));
}

static __device__ __forceinline__ void store_scale(const trm_quantized_rows &q, int64_t row, int64_t group, float scale)
{
    if (row < q.rows) {
        q.scales[group * q.rows + row] = scale;
    }
    if (q.last != NULL && row >= q.m - 4) {
        q.last[group * 4 + row - (q.m - 4)] = scale;
    }
}

/* v: of the runs that lie behind the row's end 0. GROUPS: of 128 columns. Every thread of the block calls it; scratch
 * is that of block_max. */
template <int VECTORS, bool GROUPS>
static __device__ __forceinline__ void quantize_row(const trm_quantized_rows &q, int64_t row,
                                                    const float (&v)[VECTORS][8], float *scratch)
{
    const int runs = (int)(q.k / 8), first = (int)threadIdx.x, step = (int)blockDim.x;
    float largest[VECTORS], all = 0.0f;
#pragma unroll
    for (int i = 0; i < VECTORS; i++) {
        largest[i] = 0.0f;
#pragma unroll
        for (int j = 0; j < 8; j++) {
            largest[i] = fmaxf(largest[i], fabsf(v[i][j]));
        }
        all = fmaxf(all, largest[i]);
    }
    if (!GROUPS && q.quantization == TRM_X_DYNAMIC) {
        all = block_max(all, scratch);
    }
#pragma unroll
    for (int i = 0; i < VECTORS; i++) {
        const int run = first + i * step;
        if (GROUPS) { /* 16 threads have one */
            all = largest[i];
#pragma unroll
            for (int offset = 8; offset > 0; offset /= 2) {
                all = fmaxf(all, __shfl_xor_sync(0xffffffffu, all, offset));
            }
        }
        const float scale = trm_x_scale(q.quantization, q.x_scale, all, 448.0f);
        if (run < runs) {
            store_numbers(q, row, run, v[i], 1.0f / scale);
        }
        if (run < runs && (GROUPS ? run % 16 == 0 : run == 0)) {
            store_scale(q, row, run / 16, scale);
        }
    }
}

/* Threads of a block, and runs that each has then, for rows of k elements: 1, 2, 4 or 8. */
static inline unsigned quantize_threads(int64_t k)
{
    const int64_t runs = k / 8;
    return (unsigned)(runs > 4096 ? 1024 : runs > 512 ? 512 : (runs + 31) / 32 * 32);
}
static inline int quantize_vectors(int64_t k)
{
    const int64_t runs = k / 8, threads = quantize_threads(k);
    return runs <= threads ? 1 : runs <= 2 * threads ? 2 : runs <= 4 * threads ? 4 : 8;
}

#endif
