/*
 * Rows of a quantized weight as floats, number * scale rounded once: for products of many rows, which are the
 * library's.
 */
#include "kernels/dequant/cuda.cuh"

/* Eight neighbouring numbers at `from`, less the zero of those of 4 bits. */
static __device__ __forceinline__ void numbers_of(const char *from, int zero, float (&to)[8], weight_u4)
{
    const uint32_t word = *(const uint32_t *)from;
    const float less = 128.0f + (float)zero;
#pragma unroll
    for (int i = 0; i < 8; i++) { /* the bits above the point of 128 */
        const uint32_t bits = i < 4 ? word << (16 - 4 * i) : word >> (4 * i - 16);
        to[i] = __uint_as_float(and_or<0x000f0000u, 0x43000000u>(bits)) - less;
    }
}
static __device__ __forceinline__ float number_of(const char *row, int64_t i, int, weight_f4)
{
    const uint32_t bits = (uint32_t)((uint8_t)row[i / 2] >> (i % 2 * 4));
    return __uint_as_float((bits & 8) << 28 | (bits & 7) << 22) * 0x1p126f;
}
static __device__ __forceinline__ void numbers_of(const char *from, int, float (&to)[8], weight_f4)
{
#pragma unroll
    for (int i = 0; i < 8; i++) {
        to[i] = number_of(from, i, 0, weight_f4());
    }
}
template <typename W> static __device__ __forceinline__ void numbers_of(const char *from, int, float (&to)[8], W)
{
    const uint2 words = *(const uint2 *)from;
    floats_of(words.x, *(float(*)[4])to, W());
    floats_of(words.y, *(float(*)[4])(to + 4), W());
}

/* One number of a row of k. */
static __device__ __forceinline__ float number_of(const char *row, int64_t i, int zero, weight_u4)
{
    return (float)(((uint8_t)row[i / 2] >> (i % 2 * 4) & 15) - zero);
}
template <typename W> static __device__ __forceinline__ float number_of(const char *row, int64_t i, int, W)
{
    float v[4];
    floats_of((uint32_t)(uint8_t)row[i], v, W());
    return v[0];
}

/* Threads of a block have runs of 8 elements of one row, whose scale changes between runs at most. Bound by memory. */
template <typename T, typename W>
static __global__ void __launch_bounds__(256) dequantize_runs(trm_dequant_gemm gemm, int64_t first, T *to)
{
    const int64_t row = first + blockIdx.x;
    const char *from = (const char *)gemm.weight + row * gemm.k * W::bits / 8;
    const int32_t scales = (int32_t)(row / gemm.block_n * gemm.scale_row);
    const int32_t k = (int32_t)gemm.k, block = (int32_t)gemm.block_k;
    T *out = to + blockIdx.x * gemm.k;
    for (int32_t at = (int32_t)threadIdx.x * 8; at < k; at += 256 * 8) {
        const int32_t i = scales + at / block;
        const float scale =
            scale_of(gemm, load_scale_bits(gemm, (const char *)gemm.scale + (int64_t)i * scale_size(gemm)));
        float v[8];
        numbers_of(from + at * W::bits / 8, gemm.zero != NULL ? gemm.zero[i] : 8, v, W());
#pragma unroll
        for (int e = 0; e < 8; e++) {
            v[e] *= scale;
        }
        store8(out + at, v);
    }
}

template <typename T, typename W>
static __global__ void dequantize_each(trm_dequant_gemm gemm, int64_t first, int64_t count, T *to)
{
    for (int64_t e = global_thread(); e < count; e += global_threads()) {
        const int64_t row = first + e / gemm.k, at = e % gemm.k;
        const int32_t i = (int32_t)(row / gemm.block_n * gemm.scale_row + at / gemm.block_k);
        const float scale =
            scale_of(gemm, load_scale_bits(gemm, (const char *)gemm.scale + (int64_t)i * scale_size(gemm)));
        const char *from = (const char *)gemm.weight + row * (gemm.k * W::bits / 8);
        to[e] = from_float<T>(number_of(from, at, gemm.zero != NULL ? gemm.zero[i] : 8, W()) * scale);
    }
}

template <typename T, typename W>
static void launch(const trm_dequant_gemm *gemm, int64_t first, int64_t rows, T *to, cudaStream_t stream)
{
    if (gemm->k % 8 == 0 && (gemm->block_k % 8 == 0 || gemm->block_k >= gemm->k) && trm_aligned16(gemm->weight) &&
        trm_aligned16(to) && gemm->k <= INT32_MAX / 2) {
        dequantize_runs<T, W><<<(unsigned)rows, 256, 0, stream>>>(*gemm, first, to);
        return;
    }
    const int64_t count = rows * gemm->k;
    dequantize_each<T, W><<<grid_for(count, 256), 256, 0, stream>>>(*gemm, first, count, to);
}

trm_status trm_cuda_dequantize(const trm_dequant_gemm *gemm, int64_t first, int64_t rows, void *to, cudaStream_t stream)
{
    DISPATCH_FLOAT(
        gemm->in,
        if (gemm->weight_type == TRM_F8E4M3) {
            launch<T, weight_f8>(gemm, first, rows, (T *)to, stream);
        } else if (gemm->weight_type == TRM_I8) {
            launch<T, weight_i8>(gemm, first, rows, (T *)to, stream);
        } else if (gemm->weight_type == TRM_F4E2M1) { launch<T, weight_f4>(gemm, first, rows, (T *)to, stream); } else {
            launch<T, weight_u4>(gemm, first, rows, (T *)to, stream);
        });
    return trm_cuda_launched("cuda.dequant_matmul dequantize");
}
