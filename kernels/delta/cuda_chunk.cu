/*
 * The gated delta rule by chunks of 64 tokens (Yang, Kautz, Hatamizadeh, "Gated Delta Networks", arXiv 2412.06464; the
 * WY form of Yang et al., arXiv 2406.06484).
 *
 * With c the sum of the logarithms of decays from a chunk's first token on, b the strengths and S the state before it:
 *   A = strictly lower part of b_i (k_i k_j) exp(c_i - c_j),  T = 1 / (1 + A),
 *   W = T (b exp(c) K),  U = T (b V),  P = lower part of (q_i k_j) exp(c_i - c_j),
 *   V' = U - W S,  Y = exp(c) Q S + P V',  S' = exp(c_last) S + (exp(c_last - c) K)^T V'.
 * T, W, U and P need no state: a block per chunk and head makes them. What is left goes chunk by chunk.
 *
 * Decays, T and the state are f32; factors of products are rounded to the type of x and summed in f32.
 */
#include "kernels/delta/cuda_chunk.cuh"

#include "kernels/cuda/common.cuh"
#include "kernels/delta/cuda_tile.cuh"

#define DIM TRM_DELTA_DIM

/* ---- what needs no state --------------------------------------------------------------------------- */

#define SOLVE_THREADS 128
#define PITCH         72 /* of a row of A and T: pairs of 8 rows are in different banks */
#define SOLVE_SHARED  (2 * CHUNK * DIM * 2 + (CHUNK * PITCH + 2 * CHUNK) * (int)sizeof(float))

/* The sums of logarithms of decays, by one warp. What a token has left of the state before the chunk, and what is left
 * of it behind the chunk, is for the launch that follows. */
static __device__ __forceinline__ void sum_decays(float *rates, int64_t stride, int n, float *decay, float *strength)
{
    const int lane = threadIdx.x & 31;
    float total = 0.0f, sums[CHUNK / 32];
#pragma unroll
    for (int half = 0; half < CHUNK / 32; half++) {
        const int i = 32 * half + lane;
        float2 rate = i < n ? *(const float2 *)(rates + i * stride) : make_float2(0.0f, 0.0f);
        for (int offset = 1; offset < 32; offset *= 2) {
            const float before = __shfl_up_sync(0xffffffffu, rate.x, offset);
            rate.x += lane >= offset ? before : 0.0f;
        }
        sums[half] = rate.x + total;
        total = __shfl_sync(0xffffffffu, sums[half], 31);
        decay[i] = sums[half];
        strength[i] = rate.y;
    }
#pragma unroll
    for (int half = 0; half < CHUNK / 32; half++) {
        const int i = 32 * half + lane;
        if (i < n) {
            *(float2 *)(rates + i * stride) = make_float2(expf(sums[half]), expf(total - sums[half]));
        }
    }
}

/* A square of 16 of A on the diagonal becomes its inverse with ones on the diagonal: a lane has a column. */
static __device__ __forceinline__ void invert_square(float *square)
{
    const int column = threadIdx.x & 15;
    float x[16];
#pragma unroll
    for (int i = 0; i < 16; i++) {
        float sum[2] = {i == column ? 1.0f : 0.0f, 0.0f};
#pragma unroll
        for (int k = 0; k < i; k += 4) {
            const float4 a = *(const float4 *)(square + i * PITCH + k);
            sum[0] -= a.x * x[k];
            sum[1] -= k + 1 < i ? a.y * x[k + 1] : 0.0f;
            sum[0] -= k + 2 < i ? a.z * x[k + 2] : 0.0f;
            sum[1] -= k + 3 < i ? a.w * x[k + 3] : 0.0f;
        }
        x[i] = sum[0] + sum[1];
    }
    __syncwarp();
    if ((threadIdx.x & 31) < 16) {
#pragma unroll
        for (int i = 0; i < 16; i++) {
            square[i * PITCH + column] = x[i];
        }
    }
}

/*
 * The squares of T below the one on the diagonal in part `strip` of the columns, by a warp: T_r = -T_rr sum over k of
 * A_rk T_k. Square (r, strip) of T is stored where square (strip, r) of A would be, which is above the diagonal. A lane
 * has a column and every other row.
 */
static __device__ void invert_strip(float *matrix, int strip)
{
    const int lane = threadIdx.x & 31, column = lane & 15, odd = lane >> 4;
    for (int r = strip + 1; r < PARTS; r++) {
        float sum[8] = {}, result[8] = {};
        for (int part = strip; part < r; part++) {
#pragma unroll
            for (int k = 0; k < 16; k += 4) {
                const float *t = matrix + (16 * strip + k) * PITCH + 16 * part + column;
                const float t0 = t[0], t1 = t[PITCH], t2 = t[2 * PITCH], t3 = t[3 * PITCH];
#pragma unroll
                for (int i = 0; i < 8; i++) {
                    const float4 a = *(const float4 *)(matrix + (16 * r + 2 * i + odd) * PITCH + 16 * part + k);
                    sum[i] += a.x * t0 + a.y * t1 + a.z * t2 + a.w * t3;
                }
            }
        }
#pragma unroll
        for (int k = 0; k < 16; k += 4) {
            const float t0 = __shfl_sync(0xffffffffu, sum[k / 2], column);
            const float t1 = __shfl_sync(0xffffffffu, sum[k / 2], column + 16);
            const float t2 = __shfl_sync(0xffffffffu, sum[k / 2 + 1], column);
            const float t3 = __shfl_sync(0xffffffffu, sum[k / 2 + 1], column + 16);
#pragma unroll
            for (int i = 0; i < 8; i++) {
                const float4 a = *(const float4 *)(matrix + (16 * r + 2 * i + odd) * PITCH + 16 * r + k);
                result[i] -= a.x * t0 + a.y * t1 + a.z * t2 + a.w * t3;
            }
        }
#pragma unroll
        for (int i = 0; i < 8; i++) {
            matrix[(16 * strip + 2 * i + odd) * PITCH + 16 * r + column] = result[i];
        }
        __syncwarp();
    }
}

/* Rows 16 part .. of T with its columns times `factor`, times the tile: to `rows`, of which `n` are there. */
template <typename T>
static __device__ __forceinline__ void apply_inverse(const float *matrix, const float (&factor)[PARTS][4],
                                                     uint32_t tile, int part, T *rows, int64_t stride, int n)
{
    const int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
    float sum[DIM / 8][4] = {};
#pragma unroll
    for (int k = 0; k < PARTS; k++) {
        if (k > part) {
            break;
        }
        const float *square = matrix + (16 * k + g) * PITCH + 16 * part + 2 * t;
        const float2 a0 = *(const float2 *)square, a1 = *(const float2 *)(square + 8 * PITCH);
        const float2 a2 = *(const float2 *)(square + 8), a3 = *(const float2 *)(square + 8 * PITCH + 8);
        const float *f = factor[k];
        const uint32_t a[4] = {pack2(a0.x * f[0], a0.y * f[1], T()), pack2(a1.x * f[0], a1.y * f[1], T()),
                               pack2(a2.x * f[2], a2.y * f[3], T()), pack2(a3.x * f[2], a3.y * f[3], T())};
#pragma unroll
        for (int j = 0; j < DIM / 8; j += 2) {
            uint32_t b[4];
            load_right_transposed<DIM>(b, tile, 16 * k, 8 * j);
            mma_16816(sum[j], a[0], a[1], a[2], a[3], b[0], b[1], T());
            mma_16816(sum[j + 1], a[0], a[1], a[2], a[3], b[2], b[3], T());
        }
    }
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int row = 16 * part + 8 * half + g;
#pragma unroll
        for (int j = 0; j < DIM / 8; j += 2) {
            store_row(rows + row * stride + 8 * j, pack2(sum[j][2 * half], sum[j][2 * half + 1], T()),
                      pack2(sum[j + 1][2 * half], sum[j + 1][2 * half + 1], T()), row < n);
        }
    }
}

/*
 * A block has a chunk of a sequence and a head; rows are shared out so that every warp has as many products. Shared
 * memory: 51 KB. Reads 48 KB and writes 40 of a full chunk; 13 million operations on tensor cores, 0.2 in f32 for T.
 */
template <typename T> static __global__ void __launch_bounds__(SOLVE_THREADS) solve_chunks(const trm_delta_chunks a)
{
    extern __shared__ __align__(16) char shared[];
    const uint32_t k_tile = shared_address(shared), tile = k_tile + CHUNK * DIM * 2; /* tile: of q, then of v */
    float *matrix = (float *)(shared + 2 * CHUNK * DIM * 2), *decay = matrix + CHUNK * PITCH, *strength = decay + CHUNK;
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3, head = (int)blockIdx.y;
    int32_t sequence, chunk;
    begin_overlapped();
    find_run<CHUNK>(a.sequences, (int32_t)blockIdx.x, &sequence, &chunk);
    const int64_t start = a.sequences.starts[sequence], first = (int64_t)chunk * CHUNK;
    const int64_t end = chunked_tokens(a.sequences.starts[sequence + 1] - start, a.places);
    if (first >= end) {
        return;
    }
    const int n = end - first < CHUNK ? (int)(end - first) : CHUNK;
    const int64_t token = start + first, at = token * a.heads + head, stride = (int64_t)a.heads * DIM;
    const int64_t key_at = token * a.key_heads + head / (a.heads / a.key_heads), key_stride = 2 * DIM * a.key_heads;
    copy_tile<DIM, SOLVE_THREADS>(k_tile, (const T *)a.k + key_at * 2 * DIM, key_stride, CHUNK, n, threadIdx.x);
    copy_tile<DIM, SOLVE_THREADS>(tile, (const T *)a.q + key_at * 2 * DIM, key_stride, CHUNK, n, threadIdx.x);
    copies_commit();
    if (warp == 0) {
        sum_decays(a.rates + at * 2, (int64_t)a.heads * 2, n, decay, strength);
    }
    copies_wait<0>();
    __syncthreads();
    float sum[8][4];
    multiply_rows<T, DIM>(sum, k_tile, k_tile, warp);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int row = 16 * warp + 8 * half + g;
        const float of_row = decay[row], factor = strength[row];
#pragma unroll
        for (int j = 0; j < 8; j++) {
            const int column = 8 * j + 2 * t;
            const float2 of = *(const float2 *)(decay + column);
            if (j < 2 * warp + 2) {
                *(float2 *)(matrix + row * PITCH + column) =
                    make_float2(row > column ? factor * sum[j][2 * half] * __expf(of_row - of.x) : 0.0f,
                                row > column + 1 ? factor * sum[j][2 * half + 1] * __expf(of_row - of.y) : 0.0f);
            }
        }
    }
    __syncwarp();
    invert_square(matrix + 16 * warp * (PITCH + 1));
    const int part = PARTS - 1 - warp;
    multiply_rows<T, DIM>(sum, tile, k_tile, part);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int row = 16 * part + 8 * half + g;
        T *scores = (T *)a.scores + (at + (int64_t)row * a.heads) * CHUNK;
        const float of_row = decay[row];
#pragma unroll
        for (int j = 0; j < 8; j += 2) {
            if (j >= 2 * part + 2) {
                break;
            }
            uint32_t pair[2];
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const int column = 8 * (j + i) + 2 * t;
                const float2 of = *(const float2 *)(decay + column);
                const float(&x)[4] = sum[j + i];
                pair[i] = pack2(row >= column ? x[2 * half] * __expf(of_row - of.x) : 0.0f,
                                row > column ? x[2 * half + 1] * __expf(of_row - of.y) : 0.0f, T());
            }
            store_row(scores + 8 * j, pair[0], pair[1], row < n);
        }
    }
    __syncthreads();
    copy_tile<DIM, SOLVE_THREADS>(tile, (const T *)a.v + at * DIM, stride, CHUNK, n, threadIdx.x);
    copies_commit();
    invert_strip(matrix, (warp + (int)blockIdx.x) % PARTS);
    copies_wait<0>();
    __syncthreads();
    float factor[PARTS][4];
#pragma unroll
    for (int i = 0; i < PARTS * 4; i++) {
        factor[i / 4][i % 4] = strength[16 * (i / 4) + 8 * (i % 4 / 2) + 2 * t + i % 2];
    }
    apply_inverse<T>(matrix, factor, tile, part, (T *)a.v + at * DIM, stride, n);
#pragma unroll
    for (int i = 0; i < PARTS * 4; i++) {
        factor[i / 4][i % 4] *= __expf(decay[16 * (i / 4) + 8 * (i % 4 / 2) + 2 * t + i % 2]);
    }
    apply_inverse<T>(matrix, factor, k_tile, warp, (T *)a.w + at * DIM, stride, n);
}

/* ---- chunk by chunk --------------------------------------------------------------------------------- */

#define RUN_WARPS   2  /* that multiply; as many copy */
#define COLUMNS     32 /* of the state, of a block; 16 of a warp */
#define RUN_THREADS (2 * RUN_WARPS * 32)
#define COPIERS     (RUN_WARPS * 32)
#define STAGE       ((3 * CHUNK * DIM + CHUNK * CHUNK + CHUNK * COLUMNS) * 2 + 2 * CHUNK * (int)sizeof(float))

/* Where a block's chunks are: `at` is the first token's head. */
struct run_place {
    int64_t at, key_at;
    int head, column;
};

/* A chunk's tiles, in one of the stages. */
struct run_tiles {
    uint32_t w, q, k, scores, u;
    float *rates; /* [CHUNK, 2] */
};

static __device__ __forceinline__ run_tiles tiles_of(char *stage)
{
    run_tiles tiles;
    tiles.w = shared_address(stage);
    tiles.q = tiles.w + CHUNK * DIM * 2;
    tiles.k = tiles.q + CHUNK * DIM * 2;
    tiles.scores = tiles.k + CHUNK * DIM * 2;
    tiles.u = tiles.scores + CHUNK * CHUNK * 2;
    tiles.rates = (float *)(stage + STAGE) - 2 * CHUNK;
    return tiles;
}

/* Tokens `first` .. + n - 1 of the sequence on their way. */
template <typename T>
static __device__ __forceinline__ void fetch_chunk(const trm_delta_chunks &a, const run_tiles &tiles,
                                                   const run_place &p, int64_t first, int n)
{
    const int thread = (int)threadIdx.x - RUN_WARPS * 32;
    const int64_t at = p.at + first * a.heads, key_at = (p.key_at + first * a.key_heads) * 2 * DIM;
    const int64_t stride = (int64_t)a.heads * DIM, key_stride = (int64_t)a.key_heads * 2 * DIM;
    copy_tile<DIM, COPIERS>(tiles.w, (const T *)a.w + at * DIM, stride, CHUNK, n, thread);
    copy_tile<DIM, COPIERS>(tiles.q, (const T *)a.q + key_at, key_stride, CHUNK, n, thread);
    copy_tile<DIM, COPIERS>(tiles.k, (const T *)a.k + key_at, key_stride, CHUNK, n, thread);
    copy_tile<COLUMNS, COPIERS>(tiles.u, (const T *)a.v + at * DIM + p.column, stride, CHUNK, n, thread);
    copy_scores<COPIERS>(tiles.scores, (const T *)a.scores + at * CHUNK, (int64_t)a.heads * CHUNK, n, thread);
    copy_rates(tiles.rates, a.rates + at * 2, a.heads, n, thread);
}

/* The state's columns are rows of every product here, so that results are the left operands of those that follow. Of
 * tokens behind the first n all but the scores is 0, and nothing is stored. */
template <typename T>
static __device__ __forceinline__ void run_chunk(const run_tiles &tiles, float (&s)[DIM / 8][4], int n, T *out,
                                                 int64_t stride)
{
    const int warp = threadIdx.x >> 5, t = threadIdx.x & 3;
    float v[8][4] = {}, y[8][4] = {};
    uint32_t w[2][2][4], q[2][2][4];
#pragma unroll
    for (int step = 0; step <= DIM / 8; step++) { /* half of the tokens each; tiles are read ahead of their use */
        if (step < DIM / 8) {
#pragma unroll
            for (int i = 0; i < 2; i++) {
                load_right<DIM>(w[step & 1][i], tiles.w, 32 * (step & 1) + 16 * i, 16 * (step / 2));
                load_right<DIM>(q[step & 1][i], tiles.q, 32 * (step & 1) + 16 * i, 16 * (step / 2));
            }
        }
        if (step > 0) {
            const int k = (step - 1) / 2, half = (step - 1) & 1;
            uint32_t left[4];
            pack_left<T>(left, s[2 * k], s[2 * k + 1]);
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const uint32_t(&b)[4] = w[half][i], (&c)[4] = q[half][i];
                const int j = 4 * half + 2 * i;
                mma_16816(v[j], left[0], left[1], left[2], left[3], b[0], b[1], T());
                mma_16816(v[j + 1], left[0], left[1], left[2], left[3], b[2], b[3], T());
                mma_16816(y[j], left[0], left[1], left[2], left[3], c[0], c[1], T());
                mma_16816(y[j + 1], left[0], left[1], left[2], left[3], c[2], c[3], T());
            }
        }
    }
    uint32_t plain[PARTS][4], faded[PARTS][4]; /* V', and times what is left of it behind the chunk */
#pragma unroll
    for (int j = 0; j < PARTS; j++) {
        uint32_t u[4];
        load_left_transposed<COLUMNS>(u, tiles.u, 16 * j, 16 * warp);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float(&of)[4] = v[2 * j + i / 2];
            float each[2];
            unpack2(u[i], each, T());
            of[i % 2 * 2] = each[0] - of[i % 2 * 2];
            of[i % 2 * 2 + 1] = each[1] - of[i % 2 * 2 + 1];
        }
        pack_left<T>(plain[j], v[2 * j], v[2 * j + 1]);
#pragma unroll
        for (int i = 2 * j; i < 2 * j + 2; i++) {
            const float4 rate = *(const float4 *)(tiles.rates + 2 * (8 * i + 2 * t));
#pragma unroll
            for (int e = 0; e < 4; e++) {
                y[i][e] *= e % 2 == 0 ? rate.x : rate.z;
                v[i][e] *= e % 2 == 0 ? rate.y : rate.w;
            }
        }
        pack_left<T>(faded[j], v[2 * j], v[2 * j + 1]);
    }
    const float rest = tiles.rates[2 * (n - 1)];
#pragma unroll
    for (int i = 0; i < DIM / 2; i++) {
        s[i / 4][i % 4] *= rest;
    }
    add_scores<T>(y, plain, tiles.scores);
    add_product<T, DIM>(s, faded, tiles.k);
    store_tokens(y, out, stride, n);
}

/* The matrix of a warp's columns between registers and memory. */
static __device__ __forceinline__ int64_t state_at(int i)
{
    return (i / 4 * 8 + i % 2) * DIM + i % 4 / 2 * 8;
}

/* All chunks of a sequence, `all` tokens: while the first warps multiply, the others fetch what comes next. */
template <typename T, int STAGES>
static __device__ void run_sequence(const trm_delta_chunks &a, char *stages, int32_t sequence, int64_t all, run_place p)
{
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
    const bool multiplies = warp < RUN_WARPS;
    const int64_t start = a.sequences.starts[sequence];
    const int64_t old = a.sequences.lengths[sequence] - (a.sequences.starts[sequence + 1] - start);
    const int64_t of_place = (int64_t)a.heads * DIM * DIM;
    const int64_t of_lane = ((int64_t)p.head * DIM + 2 * t) * DIM + p.column + 16 * warp + g;
    const int64_t read = a.sequences.slots[2 * sequence] * (int64_t)a.places + old % a.places;
    const int64_t written = a.sequences.slots[2 * sequence + 1] * (int64_t)a.places + (old + all) % a.places;
    const float *from = a.state + read * of_place + of_lane;
    float *to = a.state + written * of_place + of_lane;
    float s[DIM / 8][4]; /* transposed: rows are columns of the state */
    p.at = start * a.heads + p.head;
    p.key_at = start * a.key_heads + p.head / (a.heads / a.key_heads);
    if (multiplies) {
#pragma unroll
        for (int i = 0; i < DIM / 2; i++) {
            s[i / 4][i % 4] = old > 0 ? from[state_at(i)] : 0.0f;
        }
    } else {
        fetch_chunk<T>(a, tiles_of(stages), p, 0, all < CHUNK ? (int)all : CHUNK);
        copies_commit();
    }
    int stage = 0;
    for (int64_t first = 0; first < all; first += CHUNK) {
        const int64_t next = first + CHUNK, left = all - next;
        const int next_stage = STAGES == 1 ? 0 : stage ^ 1;
        copies_wait<0>();
        __syncthreads();
        if (multiplies) {
            run_chunk<T>(tiles_of(stages + stage * STAGE), s, left < 0 ? (int)(all - first) : CHUNK,
                         (T *)a.y + (p.at + first * a.heads) * DIM + p.column + 16 * warp, (int64_t)a.heads * DIM);
        }
        if (STAGES == 1) {
            __syncthreads();
        }
        if (!multiplies && left > 0) {
            fetch_chunk<T>(a, tiles_of(stages + next_stage * STAGE), p, next, left < CHUNK ? (int)left : CHUNK);
            copies_commit();
        }
        stage = next_stage;
    }
    if (multiplies) {
#pragma unroll
        for (int i = 0; i < DIM / 2; i++) {
            to[state_at(i)] = s[i / 4][i % 4];
        }
    }
    __syncthreads();
}

/*
 * A block has two warps that multiply, with 16 columns of a head each, and two that copy; blocks along y share the
 * sequences that have chunks. Shared memory: 61 KB a stage. A chunk takes 212 instructions of a warp's tensor core, and
 * reads 58 KB.
 */
template <typename T, int STAGES>
static __global__ void __launch_bounds__(RUN_THREADS) run_chunks(const trm_delta_chunks a)
{
    extern __shared__ __align__(16) char shared[];
    run_place p = {};
    p.head = (int)blockIdx.x / (DIM / COLUMNS);
    p.column = (int)blockIdx.x % (DIM / COLUMNS) * COLUMNS;
    begin_overlapped();
    each_chunked(a.sequences, a.places,
                 [&](int32_t sequence, int64_t all) { run_sequence<T, STAGES>(a, shared, sequence, all, p); });
}

/* ---- launches ---------------------------------------------------------------------------------------- */

template <typename T> static trm_status launch_solve(const trm_delta_chunks *a, cudaStream_t stream)
{
    const dim3 grid((unsigned)(a->tokens / CHUNK + a->sequences.n), (unsigned)a->heads);
    TRM_CUDA_TRY(cudaFuncSetAttribute(solve_chunks<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, SOLVE_SHARED));
    launch_overlapped(solve_chunks<T>, grid, SOLVE_THREADS, SOLVE_SHARED, stream, *a);
    return trm_cuda_launched("cuda.delta_net.solve");
}

template <typename T, int STAGES> static trm_status launch_run(const trm_delta_chunks *a, cudaStream_t stream)
{
    const unsigned blocks = (unsigned)a->heads * (DIM / COLUMNS);
    const dim3 grid(blocks, chunked_at_once(a->sequences.n, a->tokens, blocks));
    TRM_CUDA_TRY(
        cudaFuncSetAttribute(run_chunks<T, STAGES>, cudaFuncAttributeMaxDynamicSharedMemorySize, STAGES * STAGE));
    launch_overlapped(run_chunks<T, STAGES>, grid, RUN_THREADS, STAGES * STAGE, stream, *a);
    return trm_cuda_launched("cuda.delta_net.chunks");
}

template <typename T> static trm_status launch_run_of(const trm_delta_chunks *a, cudaStream_t stream)
{
    return trm_cuda_block_memory() >= 2 * STAGE ? launch_run<T, 2>(a, stream) : launch_run<T, 1>(a, stream);
}

trm_status trm_cuda_delta_solve_chunks(void *chunks, trm_stream *stream)
{
    const trm_delta_chunks *a = (const trm_delta_chunks *)chunks;
    return a->dtype == TRM_F16 ? launch_solve<__half>(a, trm_cuda_stream(stream))
                               : launch_solve<__nv_bfloat16>(a, trm_cuda_stream(stream));
}

trm_status trm_cuda_delta_run_chunks(void *chunks, trm_stream *stream)
{
    const trm_delta_chunks *a = (const trm_delta_chunks *)chunks;
    return a->dtype == TRM_F16 ? launch_run_of<__half>(a, trm_cuda_stream(stream))
                               : launch_run_of<__nv_bfloat16>(a, trm_cuda_stream(stream));
}
