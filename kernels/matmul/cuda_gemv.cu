/*
 * A few rows against a weight stored [n, k]: the products of decoding. Bound by reading the weight once. One row or
 * two are done by plain multiply-adds, which start and end fastest; up to 8 by tensor cores, for which they cost what
 * one costs.
 */
#include "kernels/matmul/cuda_gemm.h"
#include "kernels/cuda/mma.cuh"

/* 16 bytes that are read once: not kept in L1. ptxas moves ld.global.nc down across griddepcontrol.wait, so this is an
 * ordinary load. */
static __device__ __forceinline__ uint4 load_early(const void *from)
{
    uint4 v;
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(from));
    return v;
}

/* How a block of gemv_dot works: its warps share k in turns of warps * loads * 256, for `rows` rows of the weight. */
template <int WARPS, int ROWS, int LOADS> struct dot_form {
    static const int warps = WARPS, rows = ROWS, loads = LOADS; /* loads: of 16 bytes in flight per row and lane */
};

/* The sums of eight elements of two rows, rounded. */
template <typename T> static __device__ __forceinline__ uint4 add8(uint4 x, uint4 y)
{
    float u[8], v[8];
    unpack16<T>(x, u);
    unpack16<T>(y, v);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        u[i] += v[i];
    }
    return pack16<T>(u);
}

/* Eight elements of a row of x as they go into the products, times the norm's weight, and their squares added up. */
template <typename T, bool NORMED>
static __device__ __forceinline__ void take_x(uint4 x, uint4 norm, float offset, float (&v)[8], float &squares)
{
    unpack16<T>(x, v);
    if (NORMED) {
        float g[8];
        unpack16<T>(norm, g);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            squares = fmaf(v[i], v[i], squares);
            v[i] *= g[i] + offset;
        }
    }
}

template <typename T> static __device__ __forceinline__ float dot8(uint4 w, const float (&x)[8], float sum)
{
    float u[8];
    unpack16<T>(w, u);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        sum = fmaf(u[i], x[i], sum);
    }
    return sum;
}

/* A lane's weights of one turn: runs of 8 elements of each row from element k0 on; zeros outside. For a GLU the second
 * half of the rows are `up` elements behind the first. */
template <typename T, bool GLU, int ROWS, int LOADS>
static __device__ __forceinline__ void load_weights(uint4 (&w)[ROWS][LOADS], const T *weight, int64_t rows, int64_t k,
                                                    int64_t up, int64_t k0, int lane)
{
    const int half = GLU ? ROWS / 2 : ROWS;
#pragma unroll
    for (int u = 0; u < LOADS; u++) {
        int64_t at = k0 + u * 256 + lane * 8;
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            const T *row = weight + (r % half) * k + (r / half) * up;
            w[r][u] = at < k && r % half < rows ? load_early(row + at) : make_uint4(0, 0, 0, 0);
        }
    }
}

/* What a GLU kernel stores, both products being rounded first. */
template <typename T> static __device__ __forceinline__ T gated(trm_activation activation, float gate, float up)
{
    gate = to_float(from_float<T>(gate));
    up = to_float(from_float<T>(up));
    return from_float<T>(activate_as<T>(activation, gate) * up);
}

/* The norm's weights of a lane's elements of one turn, zeros outside and without any. */
template <typename T, int LOADS>
static __device__ __forceinline__ void load_norm(uint4 (&w)[LOADS], const T *norm, int64_t k, int64_t k0, int lane)
{
#pragma unroll
    for (int u = 0; u < LOADS; u++) {
        int64_t at = k0 + u * 256 + lane * 8;
        w[u] = norm != NULL && at < k ? *(const uint4 *)(norm + at) : make_uint4(0, 0, 0, 0);
    }
}

/* What gemv_dot multiplies by: GLU: half as many outputs, each of two rows of the weight, and no bias. NORMED: x, added
 * to the residual if there is one, is normalized, in that every block finds the sum of squares along with the products,
 * which are scaled by it at the end: nothing waits for the whole row. */
template <bool GLU, bool NORMED> struct dot_work {
    static const bool glu = GLU, normed = NORMED;
};

/*
 * F::rows outputs of n for M rows of x per block; its warps share k in turns and add up through shared memory in warp
 * order. Bytes moved: n * k of the weight once, M * k from cache per block. Bound by memory: in a captured chain of the
 * products of a Llama-3-8B layer, weights cold, M = 1: 4.08 TB/s, 0.90 of what a plain read reaches (4.55). The first
 * turn's weights are on their way while the kernel before ends. The chain: docs/measurements/2026-11-21.md.
 */
template <typename T, typename Out, int M, typename W, typename F>
static __global__ void __launch_bounds__(F::warps * 32) gemv_dot(trm_gemm gemm)
{
    const int outputs = W::glu ? F::rows / 2 : F::rows, columns = F::rows + (W::normed ? 1 : 0);
    __shared__ float partial[F::warps][columns][M];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, r = threadIdx.x / M, m = threadIdx.x % M;
    int64_t n0 = (int64_t)blockIdx.x * outputs, k = gemm.k, up = gemm.n * k, to = m * gemm.n + n0 + r;
    const T *weight = (const T *)gemm.b + n0 * k, *x = (const T *)gemm.a, *norm = (const T *)gemm.norm_weight;
    const T *residual = (const T *)gemm.residual;
    const bool stores = r < outputs && m < gemm.m && n0 + r < gemm.n;
    const float offset = norm != NULL ? gemm.norm_offset : 1.0f;
    const uint4 zero = make_uint4(0, 0, 0, 0);
    float sums[F::rows][M] = {}, squares[M] = {};
    uint4 w[F::rows][F::loads], g[F::loads];
    int64_t k0 = warp * (F::loads * 256);
    start_next();
    load_weights<T, W::glu>(w, weight, gemm.n - n0, k, up, k0, lane);
    if (W::normed) {
        load_norm<T>(g, norm, k, k0, lane);
    }
    const float bias = !W::glu && stores && gemm.bias != NULL ? to_float(((const T *)gemm.bias)[n0 + r]) : 0.0f;
    wait_for_previous();
    while (k0 < k) {
#pragma unroll
        for (int u = 0; u < F::loads; u++) {
            int64_t at = k0 + u * 256 + lane * 8;
#pragma unroll
            for (int i = 0; i < M; i++) {
                float v[8];
                uint4 row = at < k && i < gemm.m ? *(const uint4 *)(x + i * gemm.row_a + at) : zero;
                if (W::normed && residual != NULL && at < k) {
                    row = add8<T>(row, *(const uint4 *)(residual + at));
                    if (blockIdx.x == 0) {
                        *(uint4 *)((T *)gemm.sum + at) = row;
                    }
                }
                take_x<T, W::normed>(row, g[u], offset, v, squares[i]);
#pragma unroll
                for (int j = 0; j < F::rows; j++) {
                    sums[j][i] = dot8<T>(w[j][u], v, sums[j][i]);
                }
            }
        }
        k0 += F::warps * F::loads * 256;
        if (k0 < k) {
            load_weights<T, W::glu>(w, weight, gemm.n - n0, k, up, k0, lane);
            if (W::normed) {
                load_norm<T>(g, norm, k, k0, lane);
            }
        }
    }
#pragma unroll
    for (int j = 0; j < columns; j++) {
#pragma unroll
        for (int i = 0; i < M; i++) {
            float sum = warp_sum(j < F::rows ? sums[j < F::rows ? j : 0][i] : squares[i]);
            if (lane == 0) {
                partial[warp][j][i] = sum;
            }
        }
    }
    __syncthreads();
    if (!stores) {
        return;
    }
    float sum = 0.0f, other = 0.0f, square = 0.0f;
    for (int i = 0; i < F::warps; i++) {
        sum += partial[i][r][m];
        other += W::glu ? partial[i][r + outputs][m] : 0.0f;
        square += W::normed ? partial[i][columns - 1][m] : 0.0f;
    }
    if (W::normed) {
        const float scale = 1.0f / sqrtf(square / (float)k + gemm.norm_eps);
        sum *= scale;
        other *= scale;
    }
    if (W::glu) {
        ((T *)gemm.c)[to] = gated<T>(gemm.activation, sum, other);
        return;
    }
    ((Out *)gemm.c)[to] = from_float<Out>(activate(gemm.activation, sum + bias));
}

/* How a block of gemv_rows works: its warps share k in turns of warps * loads * 32, for tiles of 16 rows of the weight.
 */
template <int WARPS, int TILES, int LOADS> struct rows_form {
    static const int warps = WARPS, tiles = TILES, loads = LOADS;
};

/* A lane's weights of one turn: of each tile rows g and g + 8; zeros outside. */
template <typename T, typename F>
static __device__ __forceinline__ void load_tiles(uint4 (&w)[F::tiles][2][F::loads], const trm_gemm &gemm, int64_t n0,
                                                  int64_t k0)
{
    const int g = threadIdx.x >> 2 & 7, t = threadIdx.x & 3;
#pragma unroll
    for (int i = 0; i < F::tiles * 2; i++) {
        int64_t row = n0 + i * 8 + g;
#pragma unroll
        for (int u = 0; u < F::loads; u++) {
            int64_t at = k0 + u * 32 + t * 8;
            w[i / 2][i % 2][u] = at < gemm.k && row < gemm.n ? load_early((const T *)gemm.b + row * gemm.k + at)
                                                             : make_uint4(0, 0, 0, 0);
        }
    }
}

/*
 * F::tiles times 16 outputs of n for all rows per block; its warps share k in turns and add up through shared memory,
 * in warp order, so that results do not depend on timing. Bytes moved: n * k of the weight once, m * k from cache per
 * block. The first turn's weights are on their way while the kernel before ends. In chains of one product
 * with cold weights 8 rows take 13.7, 9.9 and 30.2 us for q/k/v, o and down of Llama-3-8B: 0.81, 0.75 and 0.85 of the
 * read rate (docs/measurements/2026-11-28.md).
 *
 * mma m16n8k16 wants of lane (g, t) = (lane / 4, lane % 4) the weight at k slots 2t, 2t+1, 2t+8, 2t+9 of rows g and g +
 * 8, and x at the same slots of row g. Which k a slot means is ours to choose as long as both sides agree: lane t takes
 * 8 neighbours, k = 8t .. 8t+7, as one 16-byte load, the first four for one mma and the last four for the next.
 */
template <typename T, typename Out, typename F>
static __global__ void __launch_bounds__(F::warps * 32) gemv_rows(trm_gemm gemm)
{
    const int outputs = 16 * F::tiles, sums = outputs * 8;
    __shared__ float partial[F::warps][sums];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, t = lane & 3;
    int64_t n0 = (int64_t)blockIdx.x * outputs, k = gemm.k, k0 = warp * (F::loads * 32);
    const T *x = (const T *)gemm.a + g * gemm.row_a;
    float c[F::tiles][4] = {};
    uint4 w[F::tiles][2][F::loads];
    start_next();
    load_tiles<T, F>(w, gemm, n0, k0);
    wait_for_previous();
    while (k0 < k) {
        uint4 v[F::loads];
#pragma unroll
        for (int u = 0; u < F::loads; u++) {
            int64_t at = k0 + u * 32 + t * 8;
            v[u] = at < k && g < gemm.m ? *(const uint4 *)(x + at) : make_uint4(0, 0, 0, 0);
        }
#pragma unroll
        for (int u = 0; u < F::loads; u++) {
#pragma unroll
            for (int i = 0; i < F::tiles; i++) {
                const uint4 low = w[i][0][u], high = w[i][1][u];
                mma_16816(c[i], low.x, high.x, low.y, high.y, v[u].x, v[u].y, T());
                mma_16816(c[i], low.z, high.z, low.w, high.w, v[u].z, v[u].w, T());
            }
        }
        k0 += F::warps * F::loads * 32;
        if (k0 < k) {
            load_tiles<T, F>(w, gemm, n0, k0);
        }
    }
#pragma unroll
    for (int i = 0; i < F::tiles * 4; i++) {
        partial[warp][i / 4 * 128 + lane * 4 + i % 4] = c[i / 4][i % 4];
    }
    __syncthreads();
    for (int i = threadIdx.x; i < sums; i += F::warps * 32) {
        /* Accumulator i % 4 of lane i / 4 % 32: row g (+ 8) of the tile, row 2t (+ 1) of x. */
        int owner = i >> 2 & 31, which = i & 3, column = i / 128 * 16 + (owner >> 2) + (which >= 2 ? 8 : 0);
        int64_t row = (owner & 3) * 2 + (which & 1);
        float sum = 0.0f;
        for (int j = 0; j < F::warps; j++) {
            sum += partial[j][i];
        }
        if (row < gemm.m && n0 + column < gemm.n) {
            sum += gemm.bias != NULL ? to_float(((const T *)gemm.bias)[n0 + column]) : 0.0f;
            ((Out *)gemm.c)[row * gemm.n + n0 + column] = from_float<Out>(activate(gemm.activation, sum));
        }
    }
}

bool trm_cuda_gemv_accepts(const trm_gemm *gemm)
{
    if (gemm->normed && (gemm->m > 1 || !trm_aligned16(gemm->norm_weight) || !trm_aligned16(gemm->residual) ||
                         !trm_aligned16(gemm->sum))) {
        return false;
    }
    return gemm->m <= 8 && gemm->batch == 1 && !gemm->transpose_a && gemm->transpose_b && gemm->k % 8 == 0 &&
           gemm->row_a % 8 == 0 && (gemm->in == TRM_BF16 || gemm->in == TRM_F16) &&
           (gemm->out == gemm->in || gemm->out == TRM_F32) && trm_aligned16(gemm->a) && trm_aligned16(gemm->b) &&
           gemm->n <= INT32_MAX;
}

template <typename T, typename Out, int M, typename W, typename F>
static void launch_dot(const trm_gemm *gemm, cudaStream_t stream)
{
    int64_t rows = W::glu ? 2 * gemm->n : gemm->n;
    /* The kernel reads b and the norm's weight before the wait. */
    launch_kernel(gemm->constant_b, gemv_dot<T, Out, M, W, F>, (unsigned)((rows + F::rows - 1) / F::rows),
                  F::warps * 32, 0, stream, *gemm);
}

/*
 * Forms for one row of x, of some twenty tried in chains of one product with cold weights and a carve-out of
 * 100 %, us on an H200:
 *
 *   n x k          8, 4, 2   8, 2, 1   4, 4, 2   4, 4, 1
 *   6144 x 4096      13.39     13.01     14.17     14.13
 *   28672 x 4096     54.22     53.96     56.23     55.83
 *   4096 x 14336     27.66     28.12     28.77     32.21
 *   4096 x 7168      14.44     14.82     14.99     16.44
 *   4096 x 3584       8.26      7.82      8.10      8.54
 *   1536 x 4096       3.63      4.06      6.32      6.69
 *   4096 x 2048       5.32      5.58      4.55      4.94
 *   3072 x 2048       4.84      4.54      3.55      4.69
 *   16384 x 2048     18.66     16.87     16.87     16.12
 *   4096 x 1024       3.85      3.59      2.64      2.55
 */
typedef dot_form<8, 4, 2> usual_form;
typedef dot_form<8, 2, 1> middle_form;   /* k up to 4096 */
typedef dot_form<4, 4, 2> short_form;    /* k up to 2048 */
typedef dot_form<4, 4, 1> shortest_form; /* many rows of them, or k up to 1024 */
typedef dot_form<4, 8, 1> normed_form;   /* of a normed x with k up to 3600 */
typedef dot_form<8, 8, 2> long_form;     /* of one with a longer k */
typedef dot_form<8, 8, 1> gated_form;    /* of one with a GLU and k up to 3600 */
typedef dot_form<8, 4, 1> wide_form;     /* many rows with a GLU and k up to 4096 */

/*
 * A normed x costs each block the more the fewer rows it has, and blocks that do not fit at once cost a second wave,
 * however few they are: 5120 rows are 0.97 waves of normed_form and 1.1 of shortest_form. Decoding one stream on an
 * H200, tok/s, with forms of the product behind the norm; 8B with 16 of its layers (docs/measurements/2026-11-28.md):
 *
 *   rows x k                       4, 4, 1   4, 8, 1   8, 8, 2   8, 4, 2   3, 8, 1   3, 4, 2
 *   6144 x 4096      8B, q/k/v      491.6     491.0     500.4     497.7     498.6
 *   5120 x 2880      gpt-oss-20b    599.8     616.8               599.4
 *   201088 x 2880    its logits     617.9                                             618.5   (8, 4, 1: 599.8)
 *   5120 x 2048      qwen3-30b     1093.8    1092.1              1062.3
 *   28672 x 4096     8B, gate/up                        491.9     493.0                       (8, 8, 1: 491.6)
 *
 * On two GPUs an exchange makes the norm. 8B's gate and up there, 14336 x 4096: 453.5 with middle_form, 458.1 with
 * wide_form. Other forms of its other products are slower, by up to 4 %.
 */

template <typename T, typename Out, typename W> static void launch_row(const trm_gemm *gemm, cudaStream_t stream)
{
    int64_t rows = W::glu ? 2 * gemm->n : gemm->n;
    if (W::normed) {
        if (gemm->k > 3600) {
            if (W::glu || rows > 8192) {
                launch_dot<T, Out, 1, W, usual_form>(gemm, stream);
            } else {
                launch_dot<T, Out, 1, W, long_form>(gemm, stream);
            }
        } else if (W::glu && gemm->k > 1024 && rows > 8192) {
            launch_dot<T, Out, 1, W, gated_form>(gemm, stream);
        } else if (gemm->k <= 2048 || rows > 8192) {
            launch_dot<T, Out, 1, W, shortest_form>(gemm, stream);
        } else {
            launch_dot<T, Out, 1, W, normed_form>(gemm, stream);
        }
    } else if (gemm->k <= 1024 || (gemm->k <= 2048 && rows > 4096) ||
               (gemm->k <= 4096 && rows >= 3072 && rows <= 4096)) {
        launch_dot<T, Out, 1, W, shortest_form>(gemm, stream);
    } else if (gemm->k <= 2048) {
        launch_dot<T, Out, 1, W, short_form>(gemm, stream);
    } else if (W::glu && gemm->k <= 4096 && rows > 8192) {
        launch_dot<T, Out, 1, W, wide_form>(gemm, stream);
    } else if (gemm->k <= 4096 && rows >= 3072) {
        launch_dot<T, Out, 1, W, middle_form>(gemm, stream);
    } else {
        launch_dot<T, Out, 1, W, usual_form>(gemm, stream);
    }
}

/* Forms of gemv_rows: warps, tiles, loads. Which is best depends on how many blocks fit at once, and is timed. */
#define ROWS_FORMS(X)                                                                                                  \
    X(16, 1, 2) X(12, 1, 2) X(16, 1, 4) X(12, 1, 4) X(8, 1, 4) X(16, 2, 2) X(16, 2, 4) X(8, 2, 4) X(8, 2, 2)

int32_t trm_cuda_gemv_forms(const trm_gemm *gemm, const char *const **names)
{
#define ROWS_NAME(w, t, l) "own.gemv." #w "x" #t "x" #l,
    static const char *const dot[] = {"own.gemv"}, *const rows[] = {ROWS_FORMS(ROWS_NAME)};
    *names = gemm->m <= 2 ? dot : rows;
    return gemm->m <= 2 ? 1 : (int32_t)(sizeof(rows) / sizeof(rows[0]));
}

template <typename T, typename Out> static void launch_rows(const trm_gemm *gemm, cudaStream_t stream)
{
#define ROWS_ENUM(w, t, l) ROWS_##w##_##t##_##l,
    enum rows_name { ROWS_USUAL, ROWS_FORMS(ROWS_ENUM) };
    const int32_t usual = gemm->n > 65536 || gemm->k <= 1024 ? ROWS_16_2_4
                          : gemm->n >= 5120                  ? ROWS_12_1_2
                                                             : ROWS_16_1_2;
    switch (gemm->form == ROWS_USUAL ? usual : gemm->form) {
#define ROWS_CASE(w, t, l)                                                                                             \
    case ROWS_##w##_##t##_##l:                                                                                         \
        launch_kernel(gemm->constant_b, gemv_rows<T, Out, rows_form<w, t, l>>,                                         \
                      (unsigned)((gemm->n + 16 * t - 1) / (16 * t)), w * 32, 0, stream, *gemm);                        \
        break;
        ROWS_FORMS(ROWS_CASE)
    default:
        break;
    }
}

template <typename T, typename Out> static void launch(const trm_gemm *gemm, cudaStream_t stream)
{
    if (gemm->normed) {
        launch_row<T, Out, dot_work<false, true>>(gemm, stream);
    } else if (gemm->m == 1) {
        launch_row<T, Out, dot_work<false, false>>(gemm, stream);
    } else if (gemm->m == 2) {
        launch_dot<T, Out, 2, dot_work<false, false>, usual_form>(gemm, stream);
    } else {
        launch_rows<T, Out>(gemm, stream);
    }
}

/* Of one row or two: see trm_cuda_gemv_glu_accepts(). */
template <typename T> static void launch_glu(const trm_gemm *gemm, cudaStream_t stream)
{
    if (gemm->normed) {
        launch_row<T, T, dot_work<true, true>>(gemm, stream);
    } else if (gemm->m == 1) {
        launch_row<T, T, dot_work<true, false>>(gemm, stream);
    } else {
        launch_dot<T, T, 2, dot_work<true, false>, usual_form>(gemm, stream);
    }
}

trm_status trm_cuda_gemv_run(const trm_gemm *gemm, cudaStream_t stream)
{
    if (gemm->in == TRM_BF16 && gemm->out == TRM_BF16) {
        launch<__nv_bfloat16, __nv_bfloat16>(gemm, stream);
    } else if (gemm->in == TRM_BF16) {
        launch<__nv_bfloat16, float>(gemm, stream);
    } else if (gemm->out == TRM_F16) {
        launch<__half, __half>(gemm, stream);
    } else {
        launch<__half, float>(gemm, stream);
    }
    return trm_cuda_launched("cuda.matmul gemv");
}

/* 4 rows of Llama-3-8B's gate and up took 94 us in one kernel and 8 rows 120, where the product alone takes little more
 * than for one row, 52 us. */
bool trm_cuda_gemv_glu_accepts(const trm_gemm *gemm)
{
    return gemm->m <= 2 && trm_cuda_gemv_accepts(gemm) && gemm->out == gemm->in;
}

trm_status trm_cuda_gemv_glu_run(const trm_gemm *gemm, cudaStream_t stream)
{
    if (gemm->in == TRM_BF16) {
        launch_glu<__nv_bfloat16>(gemm, stream);
    } else {
        launch_glu<__half>(gemm, stream);
    }
    return trm_cuda_launched("cuda.matmul_glu gemv");
}
