/*
 * A few rows against a quantised weight [n, k]: the products of decoding, bound by reading the weight once. Numbers
 * become 16-bit floats in registers, exactly; what a block of k makes is scaled in f32.
 */
#include "kernels/cuda/dequant_load.cuh"
#include "kernels/cuda/mma.cuh"

/* How a block works: WARPS that share k, TILES of 16 rows of the weight, LOADS of 16 bytes in flight per lane and row,
 * COLUMNS of 8 rows of x. */
template <int WARPS, int TILES, int LOADS, int COLUMNS> struct rows_form {
    static const int warps = WARPS, tiles = TILES, loads = LOADS, columns = COLUMNS;
};

/* The products of a load by rows of x, each word being a step of 16 (8 bits) or 2 x 16 (4 bits) elements of k. */
template <typename T, typename W, scale_mode MODE, bool ZERO, typename F>
static __device__ __forceinline__ void
multiply_load(float (&sums)[F::tiles][F::columns][4], rows_load<MODE, ZERO> (&loads)[F::tiles],
              const trm_dequant_gemm &gemm, const T *x, int rows, int k0, int g, int t)
{
    const int per_word = W::elements / 4, steps = W::bits == 4 ? 2 : 1;
    float parts[F::tiles][F::columns][4];
    uint4 both[F::columns];
    if (MODE == SCALE_LANE) {
#pragma unroll
        for (int i = 0; i < F::tiles; i++) {
            exchange_words(loads[i].weight[0], t);
            exchange_words(loads[i].weight[1], t);
        }
    }
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const int at = k0 + (MODE == SCALE_LANE ? j * W::elements + t * per_word : t * W::elements + j * per_word);
        uint32_t right[F::columns][2 * steps];
#pragma unroll
        for (int c = 0; c < F::columns; c++) {
            const bool inside = at < (int)gemm.k && c * 8 + g < rows;
            const T *from = x + (int64_t)(c * 8) * gemm.k + at;
            if (W::bits == 4) {
                const uint4 v = load_x16(from, inside);
                right[c][0] = pick_bytes(v.x, v.z, 0x5410);
                right[c][1] = pick_bytes(v.x, v.z, 0x7632);
                right[c][2 * steps - 2] = pick_bytes(v.y, v.w, 0x5410);
                right[c][2 * steps - 1] = pick_bytes(v.y, v.w, 0x7632);
            } else if (MODE == SCALE_LANE) {
                const uint2 v = load_x8(from, inside);
                right[c][0] = v.x;
                right[c][1] = v.y;
            } else { /* 16 bytes for this word and the next */
                if (j % 2 == 0) {
                    both[c] = load_x16(from, inside);
                }
                right[c][0] = j % 2 == 0 ? both[c].x : both[c].z;
                right[c][1] = j % 2 == 0 ? both[c].y : both[c].w;
            }
        }
#pragma unroll
        for (int i = 0; i < F::tiles; i++) {
            uint32_t left[2][2 * steps];
#pragma unroll
            for (int h = 0; h < 2; h++) {
                nibble_zero<T> zero;
                zero.usual();
                if (ZERO) {
                    zero.set((int)loads[i].zero[h][MODE == SCALE_LANE ? j : 0]);
                }
                pairs_of<W, ZERO>(word_of(loads[i].weight[h], j), left[h], W(), zero, T());
            }
#pragma unroll
            for (int c = 0; c < F::columns; c++) {
                float(&to)[4] = MODE == SCALE_ROW ? sums[i][c] : parts[i][c];
                if (MODE == SCALE_LANE || (MODE == SCALE_LOAD && j == 0)) {
#pragma unroll
                    for (int e = 0; e < 4; e++) {
                        to[e] = 0.0f;
                    }
                }
#pragma unroll
                for (int s = 0; s < steps; s++) {
                    mma_16816(to, left[0][2 * s], left[1][2 * s], left[0][2 * s + 1], left[1][2 * s + 1],
                              right[c][2 * s], right[c][2 * s + 1], T());
                }
                if (MODE == SCALE_LANE || (MODE == SCALE_LOAD && j == 3)) {
#pragma unroll
                    for (int e = 0; e < 4; e++) {
                        const uint32_t bits = loads[i].scale[e >> 1][MODE == SCALE_LANE ? j : 0];
                        sums[i][c][e] = fmaf(to[e], scale_of(gemm, bits), sums[i][c][e]);
                    }
                }
            }
        }
    }
}

/*
 * 16 * tiles outputs of n for all rows per block; its warps share k in turns and add up through shared memory, in warp
 * order. Tensor cores take numbers and x as gemv.cu's gemv_rows gives them: lane (g, t) has neighbours of k of rows g
 * and g + 8 of a tile, and of row g of x.
 */
template <typename T, typename W, scale_mode MODE, bool ZERO, typename F>
static __global__ void __launch_bounds__(F::warps * 32) dequant_rows(const __grid_constant__ trm_dequant_gemm gemm)
{
    const int per_load = 4 * W::elements, turn = F::warps * F::loads * per_load;
    __shared__ float partial[F::warps][F::tiles * F::columns][128];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, t = lane & 3;
    const int64_t n0 = (int64_t)blockIdx.x * (16 * F::tiles);
    const int k = (int)gemm.k;
    const int64_t row0 = (int64_t)blockIdx.y * (8 * F::columns);
    const int rows_left = (int)min(gemm.m - row0, (int64_t)(8 * F::columns));
    const T *x = (const T *)gemm.x + (row0 + g) * gemm.k;
    float sums[F::tiles][F::columns][4] = {};
    rows_load<MODE, ZERO> loads[F::loads][F::tiles];
    lane_rows<F::tiles> rows;
    int k0 = warp * (F::loads * per_load);
    start_next();
    find_rows<W>(rows, gemm, n0, g);
#pragma unroll
    for (int u = 0; u < F::loads; u++) {
        load_tiles<W>(loads[u], gemm, rows, k0 + u * per_load, t);
    }
    wait_for_previous();
    while (k0 < k) {
#pragma unroll
        for (int u = 0; u < F::loads; u++) {
            multiply_load<T, W, MODE, ZERO, F>(sums, loads[u], gemm, x, rows_left, k0 + u * per_load, g, t);
        }
        k0 += turn;
        if (k0 < k) {
#pragma unroll
            for (int u = 0; u < F::loads; u++) {
                load_tiles<W>(loads[u], gemm, rows, k0 + u * per_load, t);
            }
        }
    }
#pragma unroll
    for (int i = 0; i < F::tiles; i++) {
#pragma unroll
        for (int c = 0; c < F::columns; c++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                partial[warp][i * F::columns + c][lane * 4 + e] = sums[i][c][e];
            }
        }
    }
    __syncthreads();
    /* Number i of a part: accumulator i % 4 of lane i / 4: row g (+ 8) of the weight, row 2t (+ 1) of x. */
    for (int i = threadIdx.x; i < F::tiles * F::columns * 128; i += F::warps * 32) {
        const int part = i >> 7, owner = i >> 2 & 31, which = i & 3;
        const int row = part % F::columns * 8 + (owner & 3) * 2 + (which & 1);
        const int64_t column = n0 + part / F::columns * 16 + (owner >> 2) + (which >= 2 ? 8 : 0);
        if (row < rows_left && column < gemm.n) {
            float sum = 0.0f;
            for (int w = 0; w < F::warps; w++) {
                sum += partial[w][part][i & 127];
            }
            if (MODE == SCALE_ROW) {
                sum *= scale_of(gemm, load_scale_bits(gemm, (int32_t)(column >> gemm.shift_n)));
            }
            store_output(gemm, row0 + row, column, sum);
        }
    }
}

/* How a block of dequant_dot works, as gemv.cu's dot_form. */
template <int WARPS, int ROWS, int LOADS> struct dot_form {
    static const int warps = WARPS, rows = ROWS, loads = LOADS;
};

template <typename W, bool SCALED, typename F>
static __device__ __forceinline__ void load_dot(uint4 (&w)[F::rows][F::loads], uint32_t (&scale)[F::rows][F::loads],
                                                const trm_dequant_gemm &gemm, int64_t n0, int k0, int lane)
{
#pragma unroll
    for (int u = 0; u < F::loads; u++) {
        const int at = k0 + u * 32 * W::elements + lane * W::elements;
#pragma unroll
        for (int r = 0; r < F::rows; r++) {
            const int64_t row = min(n0 + r, gemm.n - 1);
            w[r][u] = load_once((const char *)gemm.weight + row * gemm.k + at, at < (int)gemm.k);
            if (SCALED) {
                const int column = min(at >> gemm.shift_k, (int)gemm.scale_row - 1);
                scale[r][u] = load_scale_bits(gemm, (int32_t)((row >> gemm.shift_n) * gemm.scale_row) + column);
            }
        }
    }
}

/*
 * 8 bits, up to M rows of x, by plain multiply-adds: F::rows outputs of n per block, whose warps share k in turns. 16
 * bytes have one scale.
 */
template <typename T, typename W, int M, bool SCALED, typename F>
static __global__ void __launch_bounds__(F::warps * 32) dequant_dot(const __grid_constant__ trm_dequant_gemm gemm)
{
    __shared__ float partial[F::warps][F::rows][M];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, turn = F::warps * F::loads * 32 * W::elements;
    const int64_t n0 = (int64_t)blockIdx.x * F::rows;
    const T *x = (const T *)gemm.x;
    float sums[F::rows][M] = {};
    uint4 w[F::rows][F::loads];
    uint32_t scale[F::rows][F::loads];
    int k0 = warp * (F::loads * 32 * W::elements);
    start_next();
    load_dot<W, SCALED, F>(w, scale, gemm, n0, k0, lane);
    wait_for_previous();
    while (k0 < (int)gemm.k) {
#pragma unroll
        for (int u = 0; u < F::loads; u++) {
            const int at = k0 + u * 32 * W::elements + lane * W::elements;
            float parts[F::rows][M] = {};
#pragma unroll
            for (int half = 0; half < 2; half++) {
#pragma unroll
                for (int i = 0; i < M; i++) {
                    float v[8];
                    const uint4 from = load_x16(x + i * gemm.k + at + half * 8, at < (int)gemm.k && i < (int)gemm.m);
                    unpack16<T>(from, v);
#pragma unroll
                    for (int r = 0; r < F::rows; r++) {
                        float(&to)[M] = SCALED ? parts[r] : sums[r];
#pragma unroll
                        for (int j = 0; j < 2; j++) {
                            float number[4];
                            floats_of(word_of(w[r][u], 2 * half + j), number, W());
#pragma unroll
                            for (int e = 0; e < 4; e++) {
                                to[i] = fmaf(number[e], v[4 * j + e], to[i]);
                            }
                        }
                    }
                }
            }
            if (SCALED) {
#pragma unroll
                for (int r = 0; r < F::rows; r++) {
#pragma unroll
                    for (int i = 0; i < M; i++) {
                        sums[r][i] = fmaf(parts[r][i], scale_of(gemm, scale[r][u]), sums[r][i]);
                    }
                }
            }
        }
        k0 += turn;
        if (k0 < (int)gemm.k) {
            load_dot<W, SCALED, F>(w, scale, gemm, n0, k0, lane);
        }
    }
#pragma unroll
    for (int r = 0; r < F::rows; r++) {
#pragma unroll
        for (int i = 0; i < M; i++) {
            const float sum = warp_sum(sums[r][i]);
            if (lane == 0) {
                partial[warp][r][i] = sum;
            }
        }
    }
    __syncthreads();
    const int r = threadIdx.x / M, row = threadIdx.x % M;
    if (r < F::rows && row < gemm.m && n0 + r < gemm.n) {
        float sum = 0.0f;
        for (int i = 0; i < F::warps; i++) {
            sum += partial[i][r][row];
        }
        if (!SCALED) {
            sum *= scale_of(gemm, load_scale_bits(gemm, (int32_t)((n0 + r) >> gemm.shift_n)));
        }
        store_output(gemm, row, n0 + r, sum);
    }
}

template <typename T, typename W, scale_mode MODE, bool ZERO, typename F>
static void launch_rows(const trm_dequant_gemm *gemm, cudaStream_t stream)
{
    const int64_t tile = 16 * F::tiles, rows = 8 * F::columns;
    const dim3 grid((unsigned)((gemm->n + tile - 1) / tile), (unsigned)((gemm->m + rows - 1) / rows));
    launch_kernel(gemm->constant, dequant_rows<T, W, MODE, ZERO, F>, grid, F::warps * 32, 0, stream, *gemm);
}

template <typename T, typename W, int M, bool SCALED, typename F>
static void launch_dot(const trm_dequant_gemm *gemm, cudaStream_t stream)
{
    launch_kernel(gemm->constant, dequant_dot<T, W, M, SCALED, F>, (unsigned)((gemm->n + F::rows - 1) / F::rows),
                  F::warps * 32, 0, stream, *gemm);
}

#define MOST_ROWS   16
#define MOST_BLOCKS 65535 /* of a grid, in y */

/* The power of two that is `block`, or -1; a block of all `size` counts as one that is large enough. */
static int32_t shift_of(int64_t block, int64_t size)
{
    int32_t shift = 0;
    while ((int64_t)1 << shift < block) {
        shift++;
    }
    return (int64_t)1 << shift == block || block >= size ? shift : -1;
}

bool trm_cuda_dequant_rows_accepts(const trm_dequant_gemm *gemm)
{
    const int32_t lane = gemm->weight_type == TRM_U8 ? weight_u4::elements : weight_f8::elements;
    return (gemm->in == TRM_BF16 || gemm->in == TRM_F16) && (gemm->out == gemm->in || gemm->out == TRM_F32) &&
           gemm->k > 0 && gemm->k % lane == 0 && gemm->k <= INT32_MAX / 2 && gemm->m <= (int64_t)MOST_BLOCKS * 8 &&
           shift_of(gemm->block_n, gemm->n) >= 0 && shift_of(gemm->block_k, gemm->k) >= 0 && gemm->block_k >= lane &&
           trm_aligned16(gemm->x) && trm_aligned16(gemm->weight);
}

int64_t trm_cuda_dequant_rows_most(const trm_dequant_gemm *gemm)
{
    (void)gemm;
    return MOST_ROWS;
}

/* Warps and loads say in which order k is summed, so they do not depend on the number of rows. */
template <typename T, typename W, scale_mode MODE, bool ZERO>
static void launch_form(const trm_dequant_gemm *gemm, cudaStream_t stream)
{
    const int loads = W::bits == 4 ? 2 : 4;
    if (gemm->m <= 8) {
        launch_rows<T, W, MODE, ZERO, rows_form<8, 1, loads, 1>>(gemm, stream);
    } else {
        launch_rows<T, W, MODE, ZERO, rows_form<8, 1, loads, 2>>(gemm, stream);
    }
}

template <typename T, typename W, bool ZERO> static void launch_mode(const trm_dequant_gemm *gemm, cudaStream_t stream)
{
    if (gemm->block_k >= gemm->k) {
        launch_form<T, W, SCALE_ROW, ZERO>(gemm, stream);
    } else if (gemm->block_k >= 4 * W::elements) {
        launch_form<T, W, SCALE_LOAD, ZERO>(gemm, stream);
    } else {
        launch_form<T, W, SCALE_LANE, ZERO>(gemm, stream);
    }
}

template <typename T> static void launch_type(const trm_dequant_gemm *gemm, cudaStream_t stream)
{
    if (gemm->weight_type == TRM_F8E4M3) {
        launch_mode<T, weight_f8, false>(gemm, stream);
    } else if (gemm->weight_type == TRM_I8) {
        launch_mode<T, weight_i8, false>(gemm, stream);
    } else if (gemm->zero != NULL) {
        launch_mode<T, weight_u4, true>(gemm, stream);
    } else {
        launch_mode<T, weight_u4, false>(gemm, stream);
    }
}

trm_status trm_cuda_dequant_rows_run(const trm_dequant_gemm *gemm, cudaStream_t stream)
{
    trm_dequant_gemm g = *gemm;
    g.shift_n = shift_of(g.block_n, g.n);
    g.shift_k = shift_of(g.block_k, g.k);
    if (g.in == TRM_BF16) {
        launch_type<__nv_bfloat16>(&g, stream);
    } else {
        launch_type<__half>(&g, stream);
    }
    return trm_cuda_launched("cuda.dequant_matmul rows");
}
