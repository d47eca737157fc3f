/*
 * What kernels of few and of tens of rows have in common: how a warp loads a quantised weight with its scales, and how
 * an output is stored. Lane (g, t) = (lane / 4, lane % 4) has rows g and g + 8 of a tile of 16.
 */
#ifndef TRM_KERNELS_CUDA_DEQUANT_LOAD_CUH
#define TRM_KERNELS_CUDA_DEQUANT_LOAD_CUH

#include "kernels/cuda/dequant.cuh"

/* 16 bytes that are read once: not kept in L1; zeros if not `valid`. Not ld.global.nc, which ptxas moves across the
 * wait. */
static __device__ __forceinline__ uint4 load_once(const void *from, bool valid)
{
    uint4 v = make_uint4(0, 0, 0, 0);
    asm volatile("{ .reg .pred p; setp.ne.u32 p, %5, 0; @p ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4]; }"
                 : "+r"(v.x), "+r"(v.y), "+r"(v.z), "+r"(v.w)
                 : "l"(from), "r"((uint32_t)valid));
    return v;
}

/* What many blocks read, after the wait. */
static __device__ __forceinline__ uint4 load_x16(const void *from, bool valid)
{
    uint4 v = make_uint4(0, 0, 0, 0);
    asm volatile("{ .reg .pred p; setp.ne.u32 p, %5, 0; @p ld.global.v4.u32 {%0, %1, %2, %3}, [%4]; }"
                 : "+r"(v.x), "+r"(v.y), "+r"(v.z), "+r"(v.w)
                 : "l"(from), "r"((uint32_t)valid));
    return v;
}

static __device__ __forceinline__ uint2 load_x8(const void *from, bool valid)
{
    uint2 v = make_uint2(0, 0);
    asm volatile("{ .reg .pred p; setp.ne.u32 p, %3, 0; @p ld.global.v2.u32 {%0, %1}, [%2]; }"
                 : "+r"(v.x), "+r"(v.y)
                 : "l"(from), "r"((uint32_t)valid));
    return v;
}

static __device__ __forceinline__ uint32_t word_of(const uint4 &v, int i)
{
    return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

/* Where scales change along k, in terms of the 4 x 16 bytes of a row that four lanes load together: */
enum scale_mode {
    SCALE_ROW,  /* nowhere */
    SCALE_LOAD, /* between such loads at most */
    SCALE_LANE, /* between the 16 bytes of a lane and the next */
};

/* What a lane holds of one load of 4 x 16 bytes of rows g and g + 8 of a tile. */
template <scale_mode MODE, bool ZERO> struct rows_load {
    static const int scales = MODE == SCALE_ROW ? 1 : MODE == SCALE_LOAD ? 1 : 4;
    uint4 weight[2];
    uint32_t scale[2][scales];
    uint32_t zero[2][ZERO ? scales : 1];
};

/* Exchanges words so that lane t of four has word t of the 16 bytes of each of them. */
static __device__ __forceinline__ void exchange_words(uint4 &v, int t)
{
    uint32_t a = t & 1 ? v.x : v.y, b = t & 1 ? v.z : v.w;
    a = __shfl_xor_sync(0xffffffffu, a, 1);
    b = __shfl_xor_sync(0xffffffffu, b, 1);
    if (t & 1) {
        v.x = a;
        v.z = b;
    } else {
        v.y = a;
        v.w = b;
    }
    a = t & 2 ? v.x : v.z;
    b = t & 2 ? v.y : v.w;
    a = __shfl_xor_sync(0xffffffffu, a, 2);
    b = __shfl_xor_sync(0xffffffffu, b, 2);
    if (t & 2) {
        v.x = a;
        v.y = b;
    } else {
        v.z = a;
        v.w = b;
    }
}

/* Where rows g and g + 8 of a lane's tiles begin; rows behind the last are the last. */
template <int TILES> struct lane_rows {
    const char *weight[TILES][2];
    int32_t scale[TILES][2]; /* the first of the row's */
};

template <typename W, int TILES>
static __device__ __forceinline__ void find_rows(lane_rows<TILES> &rows, const trm_dequant_gemm &gemm, int64_t n0,
                                                 int g)
{
#pragma unroll
    for (int i = 0; i < 2 * TILES; i++) {
        const int64_t row = min(n0 + g + 8 * i, gemm.n - 1);
        rows.weight[i / 2][i % 2] = (const char *)gemm.weight + row * gemm.k * W::bits / 8;
        rows.scale[i / 2][i % 2] = (int32_t)((row >> gemm.shift_n) * gemm.scale_row);
    }
}

template <typename W, scale_mode MODE, bool ZERO, int TILES>
static __device__ __forceinline__ void load_tiles(rows_load<MODE, ZERO> (&loads)[TILES], const trm_dequant_gemm &gemm,
                                                  const lane_rows<TILES> &rows, int k0, int t)
{
    const int at = k0 + t * W::elements, k = (int)gemm.k, last = (int)gemm.scale_row - 1;
#pragma unroll
    for (int i = 0; i < TILES; i++) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            loads[i].weight[h] = load_once(rows.weight[i][h] + at * W::bits / 8, at < k);
#pragma unroll
            for (int j = 0; j < rows_load<MODE, ZERO>::scales; j++) {
                const int column = MODE == SCALE_ROW ? 0 : min((k0 + j * W::elements) >> gemm.shift_k, last);
                if (MODE != SCALE_ROW) {
                    loads[i].scale[h][j] = load_scale_bits(gemm, rows.scale[i][h] + column);
                }
                if (ZERO) {
                    loads[i].zero[h][j] = load_zero(gemm, rows.scale[i][h] + column);
                }
            }
        }
    }
}

/* With the bias. */
static __device__ __forceinline__ void store_output(const trm_dequant_gemm &gemm, int64_t row, int64_t column,
                                                    float value)
{
    const int64_t to = row * gemm.n + column;
    if (gemm.bias != NULL) {
        value += gemm.in == TRM_BF16 ? to_float(((const __nv_bfloat16 *)gemm.bias)[column])
                                     : to_float(((const __half *)gemm.bias)[column]);
    }
    if (gemm.out == TRM_F32) {
        ((float *)gemm.y)[to] = value;
    } else if (gemm.out == TRM_BF16) {
        ((__nv_bfloat16 *)gemm.y)[to] = from_float<__nv_bfloat16>(value);
    } else {
        ((__half *)gemm.y)[to] = from_float<__half>(value);
    }
}

#endif
