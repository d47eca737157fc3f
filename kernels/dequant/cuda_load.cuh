/*
 * What kernels of few and of tens of rows have in common: how a warp loads a quantized weight with its scales, and how
 * an output is stored. Lane (g, t) = (lane / 4, lane % 4) has rows g and g + 8 of a tile of 16, of which four lanes
 * load 64 bytes at a time.
 */
#ifndef TRM_KERNELS_DEQUANT_CUDA_LOAD_CUH
#define TRM_KERNELS_DEQUANT_CUDA_LOAD_CUH

#include "kernels/dequant/cuda.cuh"

/* 16 bytes that are read once: not kept in L1. Not ld.global.nc, which ptxas moves across the wait. */
static __device__ __forceinline__ uint4 load_once(const void *from)
{
    uint4 v;
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(from));
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
    SCALE_HALF, /* also between the first 8 bytes of a lane and the others */
};

/* Where rows g and g + 8 of a tile begin for a lane; rows behind the last are the last. */
struct lane_rows {
    const char *weight[2], *scale[2];
    const uint8_t *zero[2];
};

/* What a lane holds of one load: its 16 bytes of both rows, and their scales and zeros. */
struct lane_load {
    uint4 weight[2];
    uint32_t scale[2], zero[2];
    uint32_t second[2]; /* SCALE_HALF: the scales of the last 8 bytes */
};

template <typename W>
static __device__ __forceinline__ void find_rows(lane_rows &rows, const trm_dequant_gemm &gemm, int n0, int lane)
{
    const int row_bytes = (int)gemm.k * W::bits / 8;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int row = min(n0 + (lane >> 2) + 8 * h, (int)gemm.n - 1);
        rows.weight[h] = (const char *)gemm.weight + (int64_t)row * row_bytes + (lane & 3) * 16;
        const int first = (row >> gemm.shift_n) * (int)gemm.scale_row;
        rows.scale[h] = (const char *)gemm.scale + (int64_t)first * scale_size(gemm);
        rows.zero[h] = gemm.zero + first;
        asm volatile("" : "+l"(rows.scale[h]), "+l"(rows.zero[h])); /* to be kept, not computed again for every load */
    }
}

/* Load number i of a row. */
template <typename W, scale_mode MODE, bool ZERO>
static __device__ __forceinline__ void load_rows(lane_load &load, const trm_dequant_gemm &gemm, const lane_rows &rows,
                                                 int i, int t)
{
    const uint32_t at = MODE >= SCALE_LANE ? (i * 4 + t) * W::elements : i * 4 * W::elements;
    const uint32_t column = MODE == SCALE_ROW ? 0 : at >> gemm.shift_k;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        load.weight[h] = load_once(rows.weight[h] + (uint32_t)i * 64);
    }
#pragma unroll
    for (int h = 0; h < 2; h++) {
        if (MODE != SCALE_ROW) {
            load.scale[h] = load_scale_bits(gemm, rows.scale[h] + column * scale_size(gemm));
        }
        if (MODE == SCALE_HALF) {
            load.second[h] = load_scale_bits(gemm, rows.scale[h] + (column + 1) * scale_size(gemm));
        }
        if (ZERO) {
            load.zero[h] = load_zero(rows.zero[h] + column);
        }
    }
}

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

/* With the bias. */
static __device__ __forceinline__ void store_output(const trm_dequant_gemm &gemm, int row, int column, float value)
{
    const int64_t to = (int64_t)row * (int)gemm.n + column;
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
