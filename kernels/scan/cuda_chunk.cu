/*
 * SELECTIVE_SCAN by chunks of 64 tokens (Dao, Gu, "Transformers are SSMs", arXiv 2405.21060, section 6).
 *
 * With c the sum of the logarithms of decays from a chunk's first token on, d the steps and S the state before it:
 *   P = lower part of (C_i B_j) exp(c_i - c_j) d_j,  Y = exp(c) C S^T + P X + skip X,
 *   S' = exp(c_last) S + (exp(c_last - c) d X)^T B.
 * P needs no state: blocks of a chunk and some heads make it. What is left goes chunk by chunk.
 *
 * Decays and the state are f32; factors of products are rounded to the type of x and summed in f32.
 */
#include "kernels/scan/cuda_chunk.cuh"

#include "kernels/cuda/common.cuh"
#include "kernels/delta/cuda_tile.cuh"

/* ---- what needs no state --------------------------------------------------------------------------- */

#define SCORE_THREADS 128
#define SCORE_WARPS   (SCORE_THREADS / 32)
#define SCORE_HEADS   8 /* of a block, of one group */

/* Sums of the logarithms of decays and steps of a head's chunk, by a warp. */
template <typename T>
static __device__ __forceinline__ void sum_decays(const trm_scan_chunks &a, int64_t token, int n, int head,
                                                  float *decay, float *step)
{
    const int lane = threadIdx.x & 31;
    const float rate = -expf(a.scan.a_log[head]), bias = a.scan.step_bias[head];
    float total = 0.0f;
#pragma unroll
    for (int half = 0; half < CHUNK; half += 32) {
        const int i = half + lane;
        const int64_t at = (token + i) * a.scan.heads + head;
        const float raw = i < n ? to_float(((const T *)a.scan.step)[at]) + bias : 0.0f;
        const float softplus = fmaxf(raw, 0.0f) + log1pf(expf(-fabsf(raw)));
        const float d = i < n ? fminf(fmaxf(softplus, a.scan.step_min), a.scan.step_max) : 0.0f;
        float sum = fmaxf(rate * d, -80.0f); /* sums of what is far below 0 would lose what follows */
        for (int offset = 1; offset < 32; offset *= 2) {
            const float before = __shfl_up_sync(0xffffffffu, sum, offset);
            sum += lane >= offset ? before : 0.0f;
        }
        sum += total;
        total = __shfl_sync(0xffffffffu, sum, 31);
        decay[i] = sum;
        step[i] = d;
        if (i < n) {
            *(float2 *)(a.rates + at * 2) = make_float2(sum, d);
        }
    }
}

/* A block has a chunk of a sequence and up to 8 heads of a group. Shared memory: 36 KB for 128 columns. Bound by device
 * memory: writes 8 KB of a head. */
template <typename T, int COLUMNS>
static __global__ void __launch_bounds__(SCORE_THREADS) score_chunks(const trm_scan_chunks a, int parts_of_group)
{
    extern __shared__ __align__(16) char shared[];
    const uint32_t b_tile = shared_address(shared), c_tile = b_tile + CHUNK * COLUMNS * 2;
    float *decays = (float *)(shared + 2 * CHUNK * COLUMNS * 2), *steps = decays + SCORE_HEADS * CHUNK;
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
    const int of_group = (int)(a.scan.heads / a.scan.groups), group = (int)blockIdx.y / parts_of_group;
    const int first_head = (int)blockIdx.y % parts_of_group * SCORE_HEADS;
    const int heads = of_group - first_head < SCORE_HEADS ? of_group - first_head : SCORE_HEADS;
    int32_t sequence, chunk;
    begin_overlapped();
    find_run<CHUNK>(a.scan.sequences, (int32_t)blockIdx.x, &sequence, &chunk);
    const int64_t start = a.scan.sequences.starts[sequence], first = (int64_t)chunk * CHUNK;
    const int64_t end = chunked_tokens(a.scan.sequences.starts[sequence + 1] - start, a.scan.places);
    if (first >= end) {
        return;
    }
    const int n = end - first < CHUNK ? (int)(end - first) : CHUNK;
    const int64_t token = start + first, at = (token * a.scan.groups + group) * COLUMNS;
    copy_tile<COLUMNS>(b_tile, (const T *)a.scan.b + at, a.scan.groups * COLUMNS, CHUNK, n);
    copy_tile<COLUMNS>(c_tile, (const T *)a.scan.c + at, a.scan.groups * COLUMNS, CHUNK, n);
    copies_commit();
    for (int i = warp; i < heads; i += SCORE_WARPS) {
        sum_decays<T>(a, token, n, group * of_group + first_head + i, decays + i * CHUNK, steps + i * CHUNK);
    }
    copies_wait<0>();
    __syncthreads();
    float sum[8][4];
    multiply_rows<T, COLUMNS>(sum, c_tile, b_tile, warp);
    for (int i = 0; i < heads; i++) {
        const float *decay = decays + i * CHUNK, *step = steps + i * CHUNK;
        const int64_t head = group * of_group + first_head + i;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int row = 16 * warp + 8 * half + g;
            T *scores = (T *)a.scores + ((token + row) * a.scan.heads + head) * CHUNK;
            const float of_row = decay[row];
#pragma unroll
            for (int j = 0; j < 8; j += 2) {
                if (j >= 2 * warp + 2) {
                    break;
                }
                uint32_t pair[2];
#pragma unroll
                for (int k = 0; k < 2; k++) {
                    const int column = 8 * (j + k) + 2 * t;
                    const float2 c = *(const float2 *)(decay + column), d = *(const float2 *)(step + column);
                    const float(&x)[4] = sum[j + k];
                    pair[k] = pack2(row >= column ? x[2 * half] * d.x * expf(of_row - c.x) : 0.0f,
                                    row > column ? x[2 * half + 1] * d.y * expf(of_row - c.y) : 0.0f, T());
                }
                store_row(scores + 8 * j, pair[0], pair[1], row < n);
            }
        }
    }
}

/* ---- chunk by chunk --------------------------------------------------------------------------------- */

#define RUN_THREADS 64
#define ROWS        32 /* of the state, of a block; 16 of a warp */

template <int COLUMNS> struct run_shared {
    static const int floats = (2 * CHUNK * COLUMNS + CHUNK * CHUNK + CHUNK * ROWS) * 2;
    static const int size = floats + 2 * CHUNK * (int)sizeof(float);
};

struct run_tiles {
    uint32_t b, c, scores, x;
    float *rates; /* [CHUNK, 2] */
};

/* Where a block's chunks are, `at` the first token's head, and how many of its rows there are. */
struct run_place {
    int64_t at, group_at;
    int head, group, row, rows;
};

/* What a chunk needs first. */
template <typename T, int COLUMNS>
static __device__ __forceinline__ void fetch_early(const trm_scan_chunks &a, const run_tiles &tiles, const run_place &p,
                                                   int64_t first, int n)
{
    copy_tile<COLUMNS>(tiles.c, (const T *)a.scan.c + (p.group_at + first * a.scan.groups) * COLUMNS,
                       a.scan.groups * COLUMNS, CHUNK, n);
}

/* And what later. Scores above the diagonal, which nobody wrote, are left out. */
template <typename T, int COLUMNS>
static __device__ __forceinline__ void fetch_late(const trm_scan_chunks &a, const run_tiles &tiles, const run_place &p,
                                                  int64_t first, int n)
{
    const int64_t at = p.at + first * a.scan.heads;
    copy_tile<COLUMNS>(tiles.b, (const T *)a.scan.b + (p.group_at + first * a.scan.groups) * COLUMNS,
                       a.scan.groups * COLUMNS, CHUNK, n);
#pragma unroll 2
    for (int i = threadIdx.x; i < CHUNK * ROWS / 8; i += RUN_THREADS) {
        const int row = i / (ROWS / 8), piece = i % (ROWS / 8);
        const bool is_there = row < n && piece * 8 < p.rows;
        copy16_async(tile_at<ROWS>(tiles.x, row, piece),
                     (const T *)a.scan.x + (at + (is_there ? row * a.scan.heads : 0)) * a.scan.dim + p.row +
                         (is_there ? piece * 8 : 0),
                     is_there);
    }
#pragma unroll 2
    for (int i = threadIdx.x; i < CHUNK * CHUNK / 8; i += RUN_THREADS) {
        const int row = i / (CHUNK / 8), piece = i % (CHUNK / 8);
        if (piece / 2 <= row / 16) {
            copy16_async(tile_at<CHUNK>(tiles.scores, row, piece),
                         (const T *)a.scores + (at + (row < n ? row * a.scan.heads : 0)) * CHUNK + piece * 8, row < n);
        }
    }
    for (int i = threadIdx.x; i < 2 * CHUNK; i += RUN_THREADS) {
        const int row = i / 2;
        copy_float(tiles.rates + i, a.rates + (at + (row < n ? row * a.scan.heads : 0)) * 2 + i % 2, row < n);
    }
}

/* A chunk of n tokens, whose early tile is there; that of the next one is asked for. The state's rows are rows of every
 * product, so that results are the left operands of those that follow. */
template <typename T, int COLUMNS>
static __device__ __forceinline__ void run_chunk(const trm_scan_chunks &a, const run_tiles &tiles, const run_place &p,
                                                 float (&s)[COLUMNS / 8][4], int64_t first, int n, int64_t next,
                                                 int next_n)
{
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
    float y[8][4] = {};
#pragma unroll
    for (int k = 0; k < COLUMNS / 16; k++) {
        uint32_t left[4];
        pack_left<T>(left, s[2 * k], s[2 * k + 1]);
#pragma unroll
        for (int j = 0; j < PARTS; j++) {
            uint32_t c[4];
            load_right<COLUMNS>(c, tiles.c, 16 * j, 16 * k);
            mma_16816(y[2 * j], left[0], left[1], left[2], left[3], c[0], c[1], T());
            mma_16816(y[2 * j + 1], left[0], left[1], left[2], left[3], c[2], c[3], T());
        }
    }
    copies_wait<0>();
    __syncthreads();
    if (next_n > 0) {
        fetch_early<T, COLUMNS>(a, tiles, p, next, next_n);
    }
    copies_commit();
    const float last = tiles.rates[2 * (n - 1)], skip = a.scan.skip[p.head];
    uint32_t x[PARTS][4], faded[PARTS][4]; /* faded: times the step and what is left of it behind the chunk */
#pragma unroll
    for (int j = 0; j < PARTS; j++) {
        load_left_transposed<ROWS>(x[j], tiles.x, 16 * j, 16 * warp);
#pragma unroll
        for (int i = 0; i < 2; i++) { /* of 8 tokens each */
            const float4 rate = *(const float4 *)(tiles.rates + 2 * (16 * j + 8 * i + 2 * t));
            const float begin[2] = {expf(rate.x), expf(rate.z)};
            const float rest[2] = {expf(last - rate.x) * rate.y, expf(last - rate.z) * rate.w};
            float(&of)[4] = y[2 * j + i];
#pragma unroll
            for (int half = 0; half < 2; half++) {
                float each[2];
                unpack2(x[j][2 * i + half], each, T());
                of[2 * half] = of[2 * half] * begin[0] + skip * each[0];
                of[2 * half + 1] = of[2 * half + 1] * begin[1] + skip * each[1];
                faded[j][2 * i + half] = pack2(each[0] * rest[0], each[1] * rest[1], T());
            }
        }
    }
#pragma unroll
    for (int j = 0; j < PARTS; j++) {
#pragma unroll
        for (int k = 0; k <= j; k++) {
            uint32_t b[4];
            load_right<CHUNK>(b, tiles.scores, 16 * j, 16 * k);
            mma_16816(y[2 * j], x[k][0], x[k][1], x[k][2], x[k][3], b[0], b[1], T());
            mma_16816(y[2 * j + 1], x[k][0], x[k][1], x[k][2], x[k][3], b[2], b[3], T());
        }
    }
#pragma unroll
    for (int j = 0; j < 8; j++) {
        const int row = 8 * j + g;
        T *to = (T *)a.scan.y + (p.at + (first + row) * a.scan.heads) * a.scan.dim + p.row + 16 * warp;
        store_row(to, transpose_matrix(pack2(y[j][0], y[j][1], T())), transpose_matrix(pack2(y[j][2], y[j][3], T())),
                  row < n && 16 * warp < p.rows);
    }
    const float rest = expf(last);
#pragma unroll
    for (int i = 0; i < COLUMNS / 8; i += 2) {
#pragma unroll
        for (int e = 0; e < 4; e++) {
            s[i][e] *= rest;
            s[i + 1][e] *= rest;
        }
#pragma unroll
        for (int k = 0; k < PARTS; k++) {
            uint32_t b[4];
            load_right_transposed<COLUMNS>(b, tiles.b, 16 * k, 8 * i);
            mma_16816(s[i], faded[k][0], faded[k][1], faded[k][2], faded[k][3], b[0], b[1], T());
            mma_16816(s[i + 1], faded[k][0], faded[k][1], faded[k][2], faded[k][3], b[2], b[3], T());
        }
    }
}

/* All chunks of a sequence, `all` tokens. */
template <typename T, int COLUMNS>
static __device__ void run_sequence(const trm_scan_chunks &a, const run_tiles &tiles, int32_t sequence, int64_t all,
                                    run_place p)
{
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
    const trm_delta_sequences &of = a.scan.sequences;
    const int64_t start = of.starts[sequence], old = of.lengths[sequence] - (of.starts[sequence + 1] - start);
    const int64_t of_place = a.scan.heads * a.scan.dim * COLUMNS;
    const int64_t of_lane = (p.head * a.scan.dim + p.row + 16 * warp + g) * COLUMNS + 2 * t;
    const bool is_there = 16 * warp < p.rows;
    const float *from =
        a.scan.state + (of.slots[2 * sequence] * a.scan.places + old % a.scan.places) * of_place + of_lane;
    float *to =
        a.scan.state + (of.slots[2 * sequence + 1] * a.scan.places + (old + all) % a.scan.places) * of_place + of_lane;
    float s[COLUMNS / 8][4];
    p.at = start * a.scan.heads + p.head;
    p.group_at = start * a.scan.groups + p.group;
    fetch_early<T, COLUMNS>(a, tiles, p, 0, all < CHUNK ? (int)all : CHUNK);
    copies_commit();
#pragma unroll
    for (int i = 0; i < COLUMNS / 4; i++) {
        const float2 pair =
            old > 0 && is_there ? *(const float2 *)(from + i % 2 * 8 * COLUMNS + i / 2 * 8) : make_float2(0.0f, 0.0f);
        s[i / 2][i % 2 * 2] = pair.x;
        s[i / 2][i % 2 * 2 + 1] = pair.y;
    }
    for (int64_t first = 0; first < all; first += CHUNK) {
        const int64_t next = first + CHUNK, left = all - next;
        const int n = left < 0 ? (int)(all - first) : CHUNK;
        copies_wait<0>();
        __syncthreads();
        fetch_late<T, COLUMNS>(a, tiles, p, first, n);
        copies_commit();
        run_chunk<T, COLUMNS>(a, tiles, p, s, first, n, next, left < 0 ? 0 : left < CHUNK ? (int)left : CHUNK);
    }
#pragma unroll
    for (int i = 0; i < COLUMNS / 4; i++) {
        if (is_there) {
            *(float2 *)(to + i % 2 * 8 * COLUMNS + i / 2 * 8) =
                make_float2(s[i / 2][i % 2 * 2], s[i / 2][i % 2 * 2 + 1]);
        }
    }
    __syncthreads();
}

/*
 * A block has two warps and 32 rows of a head, 16 of a warp, which needs nothing of the other one; blocks along y share
 * the sequences that have chunks. Shared memory: 45 KB for 128 columns, where tiles come in while others are used. A
 * chunk takes 148 instructions of a warp's tensor core.
 */
template <typename T, int COLUMNS>
static __global__ void __launch_bounds__(RUN_THREADS) run_chunks(const trm_scan_chunks a, int blocks_of_head)
{
    extern __shared__ __align__(16) char shared[];
    run_tiles tiles;
    run_place p = {};
    tiles.b = shared_address(shared);
    tiles.c = tiles.b + CHUNK * COLUMNS * 2;
    tiles.scores = tiles.c + CHUNK * COLUMNS * 2;
    tiles.x = tiles.scores + CHUNK * CHUNK * 2;
    tiles.rates = (float *)(shared + run_shared<COLUMNS>::floats);
    p.head = (int)blockIdx.x / blocks_of_head;
    p.group = p.head / (int)(a.scan.heads / a.scan.groups);
    p.row = (int)blockIdx.x % blocks_of_head * ROWS;
    p.rows = (int)a.scan.dim - p.row;
    begin_overlapped();
    each_chunked(a.scan.sequences, a.scan.places,
                 [&](int32_t sequence, int64_t all) { run_sequence<T, COLUMNS>(a, tiles, sequence, all, p); });
}

/* ---- launches ---------------------------------------------------------------------------------------- */

template <typename T, int COLUMNS> static trm_status launch_score(const trm_scan_chunks *a, cudaStream_t stream)
{
    const int parts = (int)((a->scan.heads / a->scan.groups + SCORE_HEADS - 1) / SCORE_HEADS);
    const int shared = 2 * CHUNK * COLUMNS * 2 + 2 * SCORE_HEADS * CHUNK * (int)sizeof(float);
    const dim3 grid((unsigned)(a->scan.tokens / CHUNK + a->scan.sequences.n), (unsigned)(parts * a->scan.groups));
    TRM_CUDA_TRY(cudaFuncSetAttribute(score_chunks<T, COLUMNS>, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
    launch_overlapped(score_chunks<T, COLUMNS>, grid, SCORE_THREADS, (size_t)shared, stream, *a, parts);
    return trm_cuda_launched("cuda.selective_scan.score");
}

template <typename T, int COLUMNS> static trm_status launch_run(const trm_scan_chunks *a, cudaStream_t stream)
{
    const int blocks_of_head = (int)((a->scan.dim + ROWS - 1) / ROWS), shared = run_shared<COLUMNS>::size;
    const unsigned blocks = (unsigned)(a->scan.heads * blocks_of_head);
    const dim3 grid(blocks, chunked_at_once(a->scan.sequences.n, a->scan.tokens, blocks));
    TRM_CUDA_TRY(cudaFuncSetAttribute(run_chunks<T, COLUMNS>, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
    launch_overlapped(run_chunks<T, COLUMNS>, grid, RUN_THREADS, (size_t)shared, stream, *a, blocks_of_head);
    return trm_cuda_launched("cuda.selective_scan.chunks");
}

template <typename T> static trm_status launch_score_of(const trm_scan_chunks *a, cudaStream_t stream)
{
    return a->scan.columns == 64    ? launch_score<T, 64>(a, stream)
           : a->scan.columns == 128 ? launch_score<T, 128>(a, stream)
                                    : launch_score<T, 256>(a, stream);
}

template <typename T> static trm_status launch_run_of(const trm_scan_chunks *a, cudaStream_t stream)
{
    return a->scan.columns == 64    ? launch_run<T, 64>(a, stream)
           : a->scan.columns == 128 ? launch_run<T, 128>(a, stream)
                                    : launch_run<T, 256>(a, stream);
}

trm_status trm_cuda_scan_score_chunks(void *chunks, trm_stream *stream)
{
    const trm_scan_chunks *a = (const trm_scan_chunks *)chunks;
    return a->scan.dtype == TRM_F16 ? launch_score_of<__half>(a, trm_cuda_stream(stream))
                                    : launch_score_of<__nv_bfloat16>(a, trm_cuda_stream(stream));
}

trm_status trm_cuda_scan_run_chunks(void *chunks, trm_stream *stream)
{
    const trm_scan_chunks *a = (const trm_scan_chunks *)chunks;
    return a->scan.dtype == TRM_F16 ? launch_run_of<__half>(a, trm_cuda_stream(stream))
                                    : launch_run_of<__nv_bfloat16>(a, trm_cuda_stream(stream));
}
