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
#define SOLVE_SHARED  (3 * CHUNK * DIM * 2 + (CHUNK * PITCH + 2 * CHUNK) * (int)sizeof(float))

/* The sums of logarithms of decays, by one warp: also for the launch that follows. */
static __device__ __forceinline__ void sum_decays(float *rates, int64_t stride, int n, float *decay, float *strength)
{
    const int lane = threadIdx.x & 31;
    float total = 0.0f;
#pragma unroll
    for (int half = 0; half < CHUNK; half += 32) {
        const int i = half + lane;
        float2 rate = i < n ? *(const float2 *)(rates + i * stride) : make_float2(0.0f, 0.0f);
        for (int offset = 1; offset < 32; offset *= 2) {
            const float before = __shfl_up_sync(0xffffffffu, rate.x, offset);
            rate.x += lane >= offset ? before : 0.0f;
        }
        rate.x += total;
        total = __shfl_sync(0xffffffffu, rate.x, 31);
        decay[i] = rate.x;
        strength[i] = rate.y;
        if (i < n) {
            rates[i * stride] = rate.x;
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
 * memory: 66 KB. Reads 48 KB and writes 40 of a full chunk; 13 million operations on tensor cores, 0.2 in f32 for T.
 */
template <typename T> static __global__ void __launch_bounds__(SOLVE_THREADS) solve_chunks(const trm_delta_chunks a)
{
    extern __shared__ __align__(16) char shared[];
    const uint32_t k_tile = shared_address(shared), q_tile = k_tile + CHUNK * DIM * 2,
                   v_tile = q_tile + CHUNK * DIM * 2;
    float *matrix = (float *)(shared + 3 * CHUNK * DIM * 2), *decay = matrix + CHUNK * PITCH, *strength = decay + CHUNK;
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
    copy_tile<DIM>(k_tile, (const T *)a.k + key_at * 2 * DIM, key_stride, CHUNK, n);
    copy_tile<DIM>(q_tile, (const T *)a.q + key_at * 2 * DIM, key_stride, CHUNK, n);
    copy_tile<DIM>(v_tile, (const T *)a.v + at * DIM, stride, CHUNK, n);
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
                    make_float2(row > column ? factor * sum[j][2 * half] * expf(of_row - of.x) : 0.0f,
                                row > column + 1 ? factor * sum[j][2 * half + 1] * expf(of_row - of.y) : 0.0f);
            }
        }
    }
    __syncwarp();
    invert_square(matrix + 16 * warp * (PITCH + 1));
    __syncthreads();
    invert_strip(matrix, (warp + (int)blockIdx.x) % PARTS);
    const int part = PARTS - 1 - warp;
    multiply_rows<T, DIM>(sum, q_tile, k_tile, part);
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
                pair[i] = pack2(row >= column ? x[2 * half] * expf(of_row - of.x) : 0.0f,
                                row > column ? x[2 * half + 1] * expf(of_row - of.y) : 0.0f, T());
            }
            store_row(scores + 8 * j, pair[0], pair[1], row < n);
        }
    }
    __syncthreads();
    float factor[PARTS][4];
#pragma unroll
    for (int i = 0; i < PARTS * 4; i++) {
        factor[i / 4][i % 4] = strength[16 * (i / 4) + 8 * (i % 4 / 2) + 2 * t + i % 2];
    }
    apply_inverse<T>(matrix, factor, v_tile, part, (T *)a.v + at * DIM, stride, n);
#pragma unroll
    for (int i = 0; i < PARTS * 4; i++) {
        factor[i / 4][i % 4] *= expf(decay[16 * (i / 4) + 8 * (i % 4 / 2) + 2 * t + i % 2]);
    }
    apply_inverse<T>(matrix, factor, k_tile, warp, (T *)a.w + at * DIM, stride, n);
}

/* ---- chunk by chunk --------------------------------------------------------------------------------- */

#define RUN_THREADS 64
#define COLUMNS     32 /* of the state, of a block; 16 of a warp */
#define RUN_SHARED  ((3 * CHUNK * DIM + CHUNK * CHUNK + CHUNK * COLUMNS) * 2 + CHUNK * (int)sizeof(float))

struct run_tiles {
    uint32_t w, q, k, scores, u;
    float *decay;
};

/* Where a block's chunks are: `at` is the first token's head. */
struct run_place {
    int64_t at, key_at;
    int head, column;
};

/* What a chunk needs first. */
template <typename T>
static __device__ __forceinline__ void fetch_early(const trm_delta_chunks &a, const run_tiles &tiles,
                                                   const run_place &p, int64_t first, int n)
{
    copy_tile<DIM>(tiles.w, (const T *)a.w + (p.at + first * a.heads) * DIM, (int64_t)a.heads * DIM, CHUNK, n);
    copy_tile<DIM>(tiles.q, (const T *)a.q + (p.key_at + first * a.key_heads) * 2 * DIM, (int64_t)a.key_heads * 2 * DIM,
                   CHUNK, n);
}

/* And what later. Scores above the diagonal, which nobody wrote, are left out. */
template <typename T>
static __device__ __forceinline__ void fetch_late(const trm_delta_chunks &a, const run_tiles &tiles, const run_place &p,
                                                  int64_t first, int n)
{
    const int64_t at = p.at + first * a.heads;
    const T *scores = (const T *)a.scores + at * CHUNK;
    copy_tile<DIM>(tiles.k, (const T *)a.k + (p.key_at + first * a.key_heads) * 2 * DIM, (int64_t)a.key_heads * 2 * DIM,
                   CHUNK, n);
    copy_tile<COLUMNS>(tiles.u, (const T *)a.v + at * DIM + p.column, (int64_t)a.heads * DIM, CHUNK, n);
    for (int i = threadIdx.x; i < CHUNK * CHUNK / 8; i += RUN_THREADS) {
        const int row = i / (CHUNK / 8), piece = i % (CHUNK / 8);
        if (piece / 2 <= row / 16) {
            copy16_async(tile_at<CHUNK>(tiles.scores, row, piece),
                         scores + (row < n ? row : 0) * (int64_t)a.heads * CHUNK + piece * 8, row < n);
        }
    }
    const int row = (int)threadIdx.x; /* V' is 0 in those that are not there */
    copy_float(tiles.decay + row, a.rates + (at + (row < n ? row : 0) * (int64_t)a.heads) * 2, row < n);
}

/* A chunk of n tokens, whose early tiles are there; those of the next one are asked for. The state's columns are rows
 * of every product here, so that results are the left operands of those that follow. */
template <typename T>
static __device__ __forceinline__ void run_chunk(const trm_delta_chunks &a, const run_tiles &tiles, const run_place &p,
                                                 float (&s)[DIM / 8][4], int64_t first, int n, int64_t next, int next_n)
{
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
    float v[8][4] = {}, y[8][4] = {};
#pragma unroll
    for (int k = 0; k < DIM / 16; k++) {
        uint32_t left[4];
        pack_left<T>(left, s[2 * k], s[2 * k + 1]);
#pragma unroll
        for (int j = 0; j < PARTS; j++) {
            uint32_t w[4], q[4];
            load_right<DIM>(w, tiles.w, 16 * j, 16 * k);
            load_right<DIM>(q, tiles.q, 16 * j, 16 * k);
            mma_16816(v[2 * j], left[0], left[1], left[2], left[3], w[0], w[1], T());
            mma_16816(v[2 * j + 1], left[0], left[1], left[2], left[3], w[2], w[3], T());
            mma_16816(y[2 * j], left[0], left[1], left[2], left[3], q[0], q[1], T());
            mma_16816(y[2 * j + 1], left[0], left[1], left[2], left[3], q[2], q[3], T());
        }
    }
    copies_wait<0>();
    __syncthreads();
    if (next_n > 0) {
        fetch_early<T>(a, tiles, p, next, next_n);
    }
    copies_commit();
    const float last = tiles.decay[n - 1];
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
            const float2 c = *(const float2 *)(tiles.decay + 8 * i + 2 * t);
            const float begin[2] = {expf(c.x), expf(c.y)}, rest[2] = {expf(last - c.x), expf(last - c.y)};
#pragma unroll
            for (int e = 0; e < 4; e++) {
                y[i][e] *= begin[e % 2];
                v[i][e] *= rest[e % 2];
            }
        }
        pack_left<T>(faded[j], v[2 * j], v[2 * j + 1]);
    }
#pragma unroll
    for (int j = 0; j < PARTS; j++) {
#pragma unroll
        for (int k = 0; k <= j; k++) {
            uint32_t b[4];
            load_right<CHUNK>(b, tiles.scores, 16 * j, 16 * k);
            mma_16816(y[2 * j], plain[k][0], plain[k][1], plain[k][2], plain[k][3], b[0], b[1], T());
            mma_16816(y[2 * j + 1], plain[k][0], plain[k][1], plain[k][2], plain[k][3], b[2], b[3], T());
        }
    }
#pragma unroll
    for (int j = 0; j < 8; j++) {
        const int row = 8 * j + g;
        T *to = (T *)a.y + (p.at + (first + row) * a.heads) * DIM + p.column + 16 * warp;
        store_row(to, transpose_matrix(pack2(y[j][0], y[j][1], T())), transpose_matrix(pack2(y[j][2], y[j][3], T())),
                  row < n);
    }
    const float rest = expf(last);
#pragma unroll
    for (int i = 0; i < DIM / 8; i += 2) {
#pragma unroll
        for (int e = 0; e < 4; e++) {
            s[i][e] *= rest;
            s[i + 1][e] *= rest;
        }
#pragma unroll
        for (int k = 0; k < PARTS; k++) {
            uint32_t b[4];
            load_right_transposed<DIM>(b, tiles.k, 16 * k, 8 * i);
            mma_16816(s[i], faded[k][0], faded[k][1], faded[k][2], faded[k][3], b[0], b[1], T());
            mma_16816(s[i + 1], faded[k][0], faded[k][1], faded[k][2], faded[k][3], b[2], b[3], T());
        }
    }
}

/* All chunks of a sequence, `all` tokens. */
template <typename T>
static __device__ void run_sequence(const trm_delta_chunks &a, const run_tiles &tiles, int32_t sequence, int64_t all,
                                    run_place p)
{
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
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
    fetch_early<T>(a, tiles, p, 0, all < CHUNK ? (int)all : CHUNK);
    copies_commit();
#pragma unroll
    for (int i = 0; i < DIM / 2; i++) {
        s[i / 4][i % 4] = old > 0 ? from[(i / 4 * 8 + i % 2) * DIM + i % 4 / 2 * 8] : 0.0f;
    }
    for (int64_t first = 0; first < all; first += CHUNK) {
        const int64_t next = first + CHUNK, left = all - next;
        const int n = left < 0 ? (int)(all - first) : CHUNK;
        copies_wait<0>();
        __syncthreads();
        fetch_late<T>(a, tiles, p, first, n);
        copies_commit();
        run_chunk<T>(a, tiles, p, s, first, n, next, left < 0 ? 0 : left < CHUNK ? (int)left : CHUNK);
    }
#pragma unroll
    for (int i = 0; i < DIM / 2; i++) {
        to[(i / 4 * 8 + i % 2) * DIM + i % 4 / 2 * 8] = s[i / 4][i % 4];
    }
    __syncthreads();
}

/*
 * A block has two warps and 32 columns of a head, 16 of a warp, which needs nothing of the other one; blocks along y
 * share the sequences that have chunks. Shared memory: 60 KB, where tiles come in while others are used. A chunk takes
 * 212 instructions of a warp's tensor core, and reads 60 KB.
 */
template <typename T> static __global__ void __launch_bounds__(RUN_THREADS) run_chunks(const trm_delta_chunks a)
{
    extern __shared__ __align__(16) char shared[];
    const int tile = CHUNK * DIM * 2;
    run_tiles tiles;
    run_place p = {};
    tiles.w = shared_address(shared);
    tiles.q = tiles.w + tile;
    tiles.k = tiles.q + tile;
    tiles.scores = tiles.k + tile;
    tiles.u = tiles.scores + CHUNK * CHUNK * 2;
    tiles.decay = (float *)(shared + RUN_SHARED) - CHUNK;
    p.head = (int)blockIdx.x / (DIM / COLUMNS);
    p.column = (int)blockIdx.x % (DIM / COLUMNS) * COLUMNS;
    begin_overlapped();
    each_chunked(a.sequences, a.places,
                 [&](int32_t sequence, int64_t all) { run_sequence<T>(a, tiles, sequence, all, p); });
}

/* ---- launches ---------------------------------------------------------------------------------------- */

template <typename T> static trm_status launch_solve(const trm_delta_chunks *a, cudaStream_t stream)
{
    const dim3 grid((unsigned)(a->tokens / CHUNK + a->sequences.n), (unsigned)a->heads);
    TRM_CUDA_TRY(cudaFuncSetAttribute(solve_chunks<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, SOLVE_SHARED));
    launch_overlapped(solve_chunks<T>, grid, SOLVE_THREADS, SOLVE_SHARED, stream, *a);
    return trm_cuda_launched("cuda.delta_net.solve");
}

template <typename T> static trm_status launch_run(const trm_delta_chunks *a, cudaStream_t stream)
{
    const unsigned blocks = (unsigned)a->heads * (DIM / COLUMNS);
    const dim3 grid(blocks, chunked_at_once(a->sequences.n, a->tokens, blocks));
    TRM_CUDA_TRY(cudaFuncSetAttribute(run_chunks<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, RUN_SHARED));
    launch_overlapped(run_chunks<T>, grid, RUN_THREADS, RUN_SHARED, stream, *a);
    return trm_cuda_launched("cuda.delta_net.chunks");
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
    return a->dtype == TRM_F16 ? launch_run<__half>(a, trm_cuda_stream(stream))
                               : launch_run<__nv_bfloat16>(a, trm_cuda_stream(stream));
}
