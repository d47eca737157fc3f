/*
 * A few rows against a weight stored [n, k]: the products of decoding. Bound by reading the weight once; tensor cores
 * do the arithmetic because up to 8 rows then cost what one costs.
 */
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/mma.cuh"

#define GEMV_WARPS 8
#define GEMV_LOADS 4 /* 16-byte loads in flight per row and lane */

/* 16 bytes that are read once: not kept in L1. */
static __device__ __forceinline__ uint4 load_stream(const void *from)
{
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(from));
    return v;
}

/*
 * 16 outputs of n for all rows per block; its 8 warps share k in turns of 128 and add up through 4 KiB of shared
 * memory, in warp order, so that results do not depend on timing. Bytes moved: n * k of the weight once, m * k from
 * cache per block.
 *
 * mma m16n8k16 wants of lane (g, t) = (lane / 4, lane % 4) the weight at k slots 2t, 2t+1, 2t+8, 2t+9 of rows g and g +
 * 8, and x at the same slots of row g. Which k a slot means is ours to choose as long as both sides agree: lane t takes
 * 8 neighbours, k = 8t .. 8t+7, as one 16-byte load, the first four for one mma and the last four for the next.
 */
template <typename T, typename Out> static __global__ void __launch_bounds__(GEMV_WARPS * 32) gemv_rows(trm_gemm gemm)
{
    __shared__ float partial[GEMV_WARPS][128];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, t = lane & 3;
    int64_t n0 = (int64_t)blockIdx.x * 16, k = gemm.k;
    bool has_low = n0 + g < gemm.n, has_high = n0 + g + 8 < gemm.n, has_x = g < gemm.m;
    const T *low = (const T *)gemm.b + (n0 + g) * k, *high = low + 8 * k;
    const T *x = (const T *)gemm.a + g * gemm.row_a;
    const uint4 zero = make_uint4(0, 0, 0, 0);
    float c[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    for (int64_t k0 = warp * 128; k0 < k; k0 += GEMV_WARPS * 128) {
        uint4 w_low[GEMV_LOADS], w_high[GEMV_LOADS], w_x[GEMV_LOADS];
#pragma unroll
        for (int u = 0; u < GEMV_LOADS; u++) {
            int64_t at = k0 + u * 32 + t * 8;
            bool inside = at < k;
            w_low[u] = inside && has_low ? load_stream(low + at) : zero;
            w_high[u] = inside && has_high ? load_stream(high + at) : zero;
            w_x[u] = inside && has_x ? *(const uint4 *)(x + at) : zero;
        }
#pragma unroll
        for (int u = 0; u < GEMV_LOADS; u++) {
            mma_16816(c, w_low[u].x, w_high[u].x, w_low[u].y, w_high[u].y, w_x[u].x, w_x[u].y, T());
            mma_16816(c, w_low[u].z, w_high[u].z, w_low[u].w, w_high[u].w, w_x[u].z, w_x[u].w, T());
        }
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        partial[warp][lane * 4 + i] = c[i];
    }
    __syncthreads();
    if (threadIdx.x >= 128) {
        return;
    }
    /* Thread i holds accumulator i % 4 of lane i / 4: row g (+ 8) of the weight, row 2t (+ 1) of x. */
    float sum = 0.0f;
    for (int w = 0; w < GEMV_WARPS; w++) {
        sum += partial[w][threadIdx.x];
    }
    int owner = threadIdx.x >> 2, which = threadIdx.x & 3;
    int64_t column = n0 + (owner >> 2) + (which >= 2 ? 8 : 0), row = (owner & 3) * 2 + (which & 1);
    if (row < gemm.m && column < gemm.n) {
        if (gemm.bias != NULL) {
            sum += to_float(((const T *)gemm.bias)[column]);
        }
        ((Out *)gemm.c)[row * gemm.n + column] = from_float<Out>(activate(gemm.activation, sum));
    }
}

bool trm_cuda_gemv_accepts(const trm_gemm *gemm)
{
    return gemm->m <= 8 && gemm->batch == 1 && !gemm->transpose_a && gemm->transpose_b && gemm->k % 8 == 0 &&
           gemm->row_a % 8 == 0 && (gemm->in == TRM_BF16 || gemm->in == TRM_F16) &&
           (gemm->out == gemm->in || gemm->out == TRM_F32) && trm_aligned16(gemm->a) && trm_aligned16(gemm->b) &&
           gemm->n <= (int64_t)INT32_MAX * 16;
}

trm_status trm_cuda_gemv_run(const trm_gemm *gemm, cudaStream_t stream)
{
    unsigned grid = (unsigned)((gemm->n + 15) / 16), threads = GEMV_WARPS * 32;
    if (gemm->in == TRM_BF16 && gemm->out == TRM_BF16) {
        gemv_rows<__nv_bfloat16, __nv_bfloat16><<<grid, threads, 0, stream>>>(*gemm);
    } else if (gemm->in == TRM_BF16) {
        gemv_rows<__nv_bfloat16, float><<<grid, threads, 0, stream>>>(*gemm);
    } else if (gemm->out == TRM_F16) {
        gemv_rows<__half, __half><<<grid, threads, 0, stream>>>(*gemm);
    } else {
        gemv_rows<__half, float><<<grid, threads, 0, stream>>>(*gemm);
    }
    return trm_cuda_launched("cuda.matmul gemv");
}
