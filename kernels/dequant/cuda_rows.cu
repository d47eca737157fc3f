/*
 * A few rows against a quantized weight [n, k]: the products of decoding, bound by reading the weight once. Numbers
 * become 16-bit floats in registers, exactly; what a block of k makes is scaled in f32.
 */
#include "kernels/dequant/cuda_load.cuh"
#include "kernels/cuda/mma.cuh"

/* How a block works: WARPS that share k, TILES of 16 rows of the weight, LOADS in flight per lane and tile, COLUMNS of
 * 8 rows of x; at least BLOCKS of them fit into a multiprocessor. */
template <int WARPS, int TILES, int LOADS, int COLUMNS, int BLOCKS> struct rows_form {
    static const int warps = WARPS, tiles = TILES, loads = LOADS, columns = COLUMNS, blocks = BLOCKS;
};

static __device__ __forceinline__ void clear(float (&sums)[4])
{
    sums[0] = sums[1] = sums[2] = sums[3] = 0.0f;
}

/* x for word j of a lane: the pairs of one step of 16 elements of k, or two. `both` are 16 bytes for two words of 8
 * bits, of which the first loads. */
template <typename T, typename W, scale_mode MODE>
static __device__ __forceinline__ void take_x(uint32_t (&to)[W::bits == 4 ? 4 : 2], uint4 &both, const T *x, int j)
{
    const int at = MODE >= SCALE_LANE ? j * W::elements : j * (W::elements / 4);
    if (W::bits == 4) {
        const uint4 v = *(const uint4 *)(x + at);
        to[0] = pick_bytes(v.x, v.z, 0x5410);
        to[1] = pick_bytes(v.x, v.z, 0x7632);
        to[W::bits == 4 ? 2 : 0] = pick_bytes(v.y, v.w, 0x5410);
        to[W::bits == 4 ? 3 : 1] = pick_bytes(v.y, v.w, 0x7632);
    } else if (MODE >= SCALE_LANE) {
        const uint2 v = *(const uint2 *)(x + at);
        to[0] = v.x;
        to[1] = v.y;
    } else {
        both = j % 2 == 0 ? *(const uint4 *)(x + at) : both;
        to[0] = j % 2 == 0 ? both.x : both.z;
        to[1] = j % 2 == 0 ? both.y : both.w;
    }
}

/* The products of a load by rows of x, which begin at x for this lane: scaled, or for SCALE_ROW as they are. */
template <typename T, typename W, scale_mode MODE, bool ZERO, typename F>
static __device__ __forceinline__ void multiply_load(float (&sums)[F::tiles][F::columns][4],
                                                     lane_load (&loads)[F::tiles], const trm_dequant_gemm &gemm,
                                                     const T *const (&x)[F::columns], int x_at, int lane)
{
    const int steps = W::bits == 4 ? 2 : 1, t = lane & 3;
    float parts[F::tiles][F::columns][4], scale[F::tiles][2], second[F::tiles][2];
    uint32_t minus[F::tiles][2];
    uint4 both[F::columns];
#pragma unroll
    for (int i = 0; i < F::tiles; i++) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            if (MODE >= SCALE_LANE) {
                exchange_words(loads[i].weight[h], t);
            }
            second[i][h] = MODE == SCALE_HALF ? scale_of(gemm, loads[i].second[h]) : 0.0f;
            scale[i][h] = MODE == SCALE_ROW ? 1.0f : scale_of(gemm, loads[i].scale[h]) * units<T>(W());
            minus[i][h] = minus_zero<T, ZERO>(loads[i].zero[h]);
        }
    }
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const bool first = MODE >= SCALE_LANE || (MODE == SCALE_LOAD && j == 0);
        const bool last = MODE >= SCALE_LANE || (MODE == SCALE_LOAD && j == 3);
        const int source = (lane & ~3) + j; /* SCALE_LANE, SCALE_HALF: who has the word's scale and zero */
        uint32_t right[F::columns][2 * steps];
#pragma unroll
        for (int c = 0; c < F::columns; c++) {
            take_x<T, W, MODE>(right[c], both[c], x[c] + x_at, j);
        }
#pragma unroll
        for (int i = 0; i < F::tiles; i++) {
            uint32_t left[2][2 * steps];
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const bool others = ZERO && MODE >= SCALE_LANE;
                const uint32_t less = others ? __shfl_sync(0xffffffffu, minus[i][h], source) : minus[i][h];
                pairs_of(word_of(loads[i].weight[h], j), less, left[h], W(), T());
            }
            if (MODE == SCALE_HALF) { /* lanes 2 and 3 of four have what the second scale is of */
                float more[F::columns][4];
#pragma unroll
                for (int c = 0; c < F::columns; c++) {
                    clear(more[c]);
#pragma unroll
                    for (int s = 0; s < steps; s++) {
                        mma_16816(more[c], t < 2 ? 0 : left[0][2 * s], t < 2 ? 0 : left[1][2 * s],
                                  t < 2 ? 0 : left[0][2 * s + 1], t < 2 ? 0 : left[1][2 * s + 1], right[c][2 * s],
                                  right[c][2 * s + 1], T());
                    }
                }
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    const float factor = __shfl_sync(0xffffffffu, second[i][h], source);
#pragma unroll
                    for (int e = 0; e < 2 * F::columns; e++) {
                        float &sum = sums[i][e / 2][2 * h + e % 2];
                        sum = fmaf(more[e / 2][2 * h + e % 2], factor, sum);
                    }
#pragma unroll
                    for (int s = 0; s < 2 * steps; s++) {
                        left[h][s] = t < 2 ? left[h][s] : 0;
                    }
                }
            }
#pragma unroll
            for (int c = 0; c < F::columns; c++) {
                float(&to)[4] = MODE == SCALE_ROW ? sums[i][c] : parts[i][c];
                if (first) {
                    clear(to);
                }
#pragma unroll
                for (int s = 0; s < steps; s++) {
                    mma_16816(to, left[0][2 * s], left[1][2 * s], left[0][2 * s + 1], left[1][2 * s + 1],
                              right[c][2 * s], right[c][2 * s + 1], T());
                }
            }
            if (last) {
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    const float factor =
                        MODE >= SCALE_LANE ? __shfl_sync(0xffffffffu, scale[i][h], source) : scale[i][h];
#pragma unroll
                    for (int c = 0; c < F::columns; c++) {
#pragma unroll
                        for (int e = 2 * h; e < 2 * h + 2; e++) {
                            sums[i][c][e] = fmaf(parts[i][c][e], factor, sums[i][c][e]);
                        }
                    }
                }
            }
        }
    }
}

/*
 * 16 * tiles outputs of n for 8 * columns rows of x per block; its warps share k in turns and add up through shared
 * memory, in warp order. Tensor cores take numbers and x as matmul/cuda_gemv.cu's gemv_rows gives them: lane (g, t) has
 * neighbours of k of rows g and g + 8 of a tile, and of row g of x. Loads are in flight for the whole of a turn.
 */
template <typename T, typename W, scale_mode MODE, bool ZERO, typename F>
static __global__ void __launch_bounds__(F::warps * 32, F::blocks)
    dequant_rows(const __grid_constant__ trm_dequant_gemm gemm)
{
    const int per_load = 4 * W::elements, turn = F::warps * F::loads;
    __shared__ __align__(16) float partial[F::warps][F::tiles * F::columns][128];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, t = lane & 3;
    const int count = (int)gemm.k / per_load;
    const int n0 = (int)blockIdx.x * (16 * F::tiles), row0 = (int)blockIdx.y * (8 * F::columns);
    const int rows_left = min((int)gemm.m - row0, 8 * F::columns), n = (int)gemm.n;
    float sums[F::tiles][F::columns][4];
    lane_load loads[F::loads][F::tiles];
    lane_rows rows[F::tiles];
    uint32_t scale[F::tiles][2];
    const T *x[F::columns];
    int first = warp * F::loads;
    start_next();
#pragma unroll
    for (int i = 0; i < F::tiles; i++) {
        find_rows<W>(rows[i], gemm, n0 + i * 16, lane);
    }
#pragma unroll
    for (int u = 0; u < F::loads; u++) {
        if (first + u < count) {
#pragma unroll
            for (int i = 0; i < F::tiles; i++) {
                load_rows<W, MODE, ZERO>(loads[u][i], gemm, rows[i], first + u, t);
            }
        }
    }
    if (MODE == SCALE_ROW) {
#pragma unroll
        for (int i = 0; i < 2 * F::tiles; i++) {
            scale[i / 2][i % 2] = load_scale_bits(gemm, rows[i / 2].scale[i % 2]);
        }
    }
#pragma unroll
    for (int c = 0; c < F::columns; c++) {
        x[c] = (const T *)gemm.x + (int64_t)(row0 + min(c * 8 + g, rows_left - 1)) * (int)gemm.k +
               t * (MODE >= SCALE_LANE ? W::elements / 4 : W::elements);
#pragma unroll
        for (int i = 0; i < F::tiles; i++) {
            clear(sums[i][c]);
        }
    }
    wait_for_previous();
    for (; first < count; first += turn) {
#pragma unroll
        for (int u = 0; u < F::loads; u++) {
            if (first + u < count) {
                multiply_load<T, W, MODE, ZERO, F>(sums, loads[u], gemm, x, (first + u) * per_load, lane);
            }
            if (first + u + turn < count) {
#pragma unroll
                for (int i = 0; i < F::tiles; i++) {
                    load_rows<W, MODE, ZERO>(loads[u][i], gemm, rows[i], first + u + turn, t);
                }
            }
        }
    }
#pragma unroll
    for (int i = 0; i < F::tiles; i++) {
#pragma unroll
        for (int c = 0; c < F::columns; c++) {
            float v[4];
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const float factor = MODE == SCALE_ROW ? scale_of(gemm, scale[i][e >> 1]) * units<T>(W()) : 1.0f;
                v[e] = sums[i][c][e] * factor;
            }
            *(float4 *)&partial[warp][i * F::columns + c][lane * 4] = make_float4(v[0], v[1], v[2], v[3]);
        }
    }
    __syncthreads();
    /* Number i of a part: accumulator i % 4 of lane i / 4: row g (+ 8) of the weight, row 2t (+ 1) of x. */
    for (int i = threadIdx.x; i < F::tiles * F::columns * 128; i += F::warps * 32) {
        const int part = i >> 7, owner = i >> 2 & 31, which = i & 3;
        const int row = part % F::columns * 8 + (owner & 3) * 2 + (which & 1);
        const int column = n0 + part / F::columns * 16 + (owner >> 2) + (which >= 2 ? 8 : 0);
        if (row < rows_left && column < n) {
            float sum = 0.0f;
#pragma unroll
            for (int w = 0; w < F::warps; w++) {
                sum += partial[w][part][i & 127];
            }
            store_output(gemm, row0 + row, column, sum);
        }
    }
}

template <typename T, typename W, scale_mode MODE, bool ZERO, typename F>
static void launch_rows(const trm_dequant_gemm *gemm, cudaStream_t stream)
{
    const int64_t tile = 16 * F::tiles, rows = 8 * F::columns;
    const dim3 grid((unsigned)((gemm->n + tile - 1) / tile), (unsigned)((gemm->m + rows - 1) / rows));
    launch_kernel(gemm->constant, dequant_rows<T, W, MODE, ZERO, F>, grid, F::warps * 32, 0, stream, *gemm);
}

#define MOST_BLOCKS 65535 /* of a grid, in y */

bool trm_cuda_dequant_rows_accepts(const trm_dequant_gemm *gemm)
{
    const bool is_f4 = gemm->weight_type == TRM_F4E2M1;
    const int32_t lane = gemm->weight_type == TRM_U8 || is_f4 ? weight_u4::elements : weight_f8::elements;
    const bool blocks = is_f4 ? gemm->block_k == 16 || gemm->block_k == 32 : gemm->block_k >= lane;
    return blocks && (gemm->in == TRM_BF16 || gemm->in == TRM_F16) && (gemm->out == gemm->in || gemm->out == TRM_F32) &&
           gemm->k > 0 && gemm->k % (4 * lane) == 0 && gemm->k <= INT32_MAX / 2 &&
           gemm->m <= (int64_t)MOST_BLOCKS * 8 && trm_dequant_shift(gemm->block_n, gemm->n) >= 0 &&
           trm_dequant_shift(gemm->block_k, gemm->k) >= 0 && trm_aligned16(gemm->x) && trm_aligned16(gemm->weight);
}

/* Warps and loads say in which order k is summed, so they do not depend on the number of rows of x. */
template <typename T, typename W, scale_mode MODE, bool ZERO, int WARPS, int LOADS, int TILES, int BLOCKS>
static void launch_columns(const trm_dequant_gemm *gemm, cudaStream_t stream)
{
    if (gemm->m <= 8) {
        launch_rows<T, W, MODE, ZERO, rows_form<WARPS, TILES, LOADS, 1, BLOCKS>>(gemm, stream);
    } else {
        launch_rows<T, W, MODE, ZERO, rows_form<WARPS, W::bits == 4 ? 2 : 1, LOADS, 2, 1>>(gemm, stream);
    }
}

#define FEW_TILES  264 /* of 16 rows of the weight: two for each multiprocessor of an H200 */
#define MANY_TILES 800

template <typename T, typename W, scale_mode MODE, bool ZERO>
static void launch_form(const trm_dequant_gemm *gemm, cudaStream_t stream, W)
{
    launch_columns<T, W, MODE, ZERO, 16, 2, 1, 1>(gemm, stream);
}

/* Of some thirty forms: few tiles leave multiprocessors without work unless many warps share one; where there are many,
 * several share what is made of x. */
template <typename T, typename W, scale_mode MODE, bool ZERO>
static void launch_form(const trm_dequant_gemm *gemm, cudaStream_t stream, weight_u4)
{
    const int64_t tiles = (gemm->n + 15) / 16;
    if (tiles <= FEW_TILES && MODE == SCALE_LOAD && gemm->m == 1) {
        launch_rows<T, W, MODE, ZERO, rows_form<16, 1, 1, 1, 1>>(gemm, stream);
    } else if (tiles <= FEW_TILES) {
        launch_columns<T, W, MODE, ZERO, 16, 1, 2, 1>(gemm, stream);
    } else if (tiles < MANY_TILES) {
        launch_columns<T, W, MODE, ZERO, 8, 2, 1, 3>(gemm, stream);
    } else if (MODE == SCALE_LANE) {
        launch_columns<T, W, MODE, ZERO, 8, 1, 1, 4>(gemm, stream);
    } else {
        launch_columns<T, W, MODE, ZERO, 8, 1, 4, 2>(gemm, stream);
    }
}

/* Scales of 16 or 32 numbers, as NVFP4 and MXFP4 have. */
template <typename T, scale_mode MODE> static void launch_f4(const trm_dequant_gemm *gemm, cudaStream_t stream)
{
    if ((gemm->n + 15) / 16 <= FEW_TILES) {
        launch_columns<T, weight_f4, MODE, false, 16, 1, 2, 1>(gemm, stream);
    } else {
        launch_columns<T, weight_f4, MODE, false, 8, 1, 1, 4>(gemm, stream);
    }
}

template <typename T, typename W, bool ZERO> static void launch_mode(const trm_dequant_gemm *gemm, cudaStream_t stream)
{
    if (gemm->block_k >= gemm->k) {
        launch_form<T, W, SCALE_ROW, ZERO>(gemm, stream, W());
    } else if (gemm->block_k >= 4 * W::elements) {
        launch_form<T, W, SCALE_LOAD, ZERO>(gemm, stream, W());
    } else {
        launch_form<T, W, SCALE_LANE, ZERO>(gemm, stream, W());
    }
}

template <typename T> static void launch_type(const trm_dequant_gemm *gemm, cudaStream_t stream)
{
    if (gemm->weight_type == TRM_F8E4M3) {
        launch_mode<T, weight_f8, false>(gemm, stream);
    } else if (gemm->weight_type == TRM_I8) {
        launch_mode<T, weight_i8, false>(gemm, stream);
    } else if (gemm->weight_type == TRM_F4E2M1 && gemm->block_k == 16) {
        launch_f4<T, SCALE_HALF>(gemm, stream);
    } else if (gemm->weight_type == TRM_F4E2M1) {
        launch_f4<T, SCALE_LANE>(gemm, stream);
    } else if (gemm->zero != NULL) {
        launch_mode<T, weight_u4, true>(gemm, stream);
    } else {
        launch_mode<T, weight_u4, false>(gemm, stream);
    }
}

trm_status trm_cuda_dequant_rows_run(const trm_dequant_gemm *gemm, cudaStream_t stream)
{
    const trm_dequant_gemm g = trm_dequant_shifted(gemm);
    if (g.in == TRM_BF16) {
        launch_type<__nv_bfloat16>(&g, stream);
    } else {
        launch_type<__half>(&g, stream);
    }
    return trm_cuda_launched("cuda.dequant_matmul rows");
}
