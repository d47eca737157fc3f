/*
 * A few rows against a weight stored [n, k]: the products of decoding. Bound by reading the weight once. Up to 4 rows
 * are done by plain multiply-adds, which start and end fastest; up to 8 by tensor cores, for which they cost what one
 * costs.
 */
#include "kernels/matmul/cuda_gemm.h"
#include "kernels/cuda/mma.cuh"

#define GEMV_WARPS 8
#define GEMV_LOADS 4 /* 16-byte loads in flight per row and lane */

/* 16 bytes that are read once: not kept in L1. ptxas moves ld.global.nc down across griddepcontrol.wait; loads that are
 * to be on their way before it are ordinary ones. */
static __device__ __forceinline__ uint4 load_early(const void *from)
{
    uint4 v;
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(from));
    return v;
}

static __device__ __forceinline__ uint4 load_stream(const void *from)
{
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
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
    if (gemm.bias != NULL) {
        sum += to_float(((const T *)gemm.bias)[n0 + r]);
    }
    ((Out *)gemm.c)[to] = from_float<Out>(activate(gemm.activation, sum));
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
    begin_overlapped(); /* loads ahead of the wait were tried: 2 % slower at 8 rows */
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
typedef dot_form<8, 4, 1> normed_form;   /* of a normed x, which costs each block the more the fewer rows it has */
typedef dot_form<8, 8, 1> summed_form;   /* of one with a residual, and many rows */

template <typename T, typename Out, typename W> static void launch_row(const trm_gemm *gemm, cudaStream_t stream)
{
    int64_t rows = W::glu ? 2 * gemm->n : gemm->n;
    if (W::normed) {
        if (gemm->residual != NULL && gemm->k > 1024 && rows > 8192) {
            launch_dot<T, Out, 1, W, summed_form>(gemm, stream);
        } else if (gemm->k <= 2048 || rows <= 8192) {
            launch_dot<T, Out, 1, W, shortest_form>(gemm, stream);
        } else {
            launch_dot<T, Out, 1, W, normed_form>(gemm, stream);
        }
    } else if (gemm->k <= 1024 || (gemm->k <= 2048 && rows > 4096) ||
               (gemm->k <= 4096 && rows >= 3072 && rows <= 4096)) {
        launch_dot<T, Out, 1, W, shortest_form>(gemm, stream);
    } else if (gemm->k <= 2048) {
        launch_dot<T, Out, 1, W, short_form>(gemm, stream);
    } else if (gemm->k <= 4096 && rows >= 3072) {
        launch_dot<T, Out, 1, W, middle_form>(gemm, stream);
    } else {
        launch_dot<T, Out, 1, W, usual_form>(gemm, stream);
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
    } else if (gemm->m <= 4) {
        launch_dot<T, Out, 4, dot_work<false, false>, usual_form>(gemm, stream);
    } else {
        launch_overlapped(gemv_rows<T, Out>, (unsigned)((gemm->n + 15) / 16), GEMV_WARPS * 32, 0, stream, *gemm);
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
