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

/* Sums of the logarithms of decays and steps of a head's chunk, by a warp. What a token has left of the state before
 * the chunk, and what is left of its step behind the chunk, is for the launch that follows. */
template <typename T>
static __device__ __forceinline__ void sum_decays(const trm_scan_chunks &a, int64_t token, int n, int head,
                                                  float *decay, float *step)
{
    const int lane = threadIdx.x & 31;
    const float rate = -expf(a.scan.a_log[head]), bias = a.scan.step_bias[head];
    float total = 0.0f, sums[CHUNK / 32], steps[CHUNK / 32];
#pragma unroll
    for (int half = 0; half < CHUNK / 32; half++) {
        const int i = 32 * half + lane;
        const float raw = i < n ? to_float(((const T *)a.scan.step)[(token + i) * a.scan.heads + head]) + bias : 0.0f;
        const float softplus = fmaxf(raw, 0.0f) + log1pf(expf(-fabsf(raw)));
        steps[half] = i < n ? fminf(fmaxf(softplus, a.scan.step_min), a.scan.step_max) : 0.0f;
        float sum = fmaxf(rate * steps[half], -80.0f); /* sums of what is far below 0 would lose what follows */
        for (int offset = 1; offset < 32; offset *= 2) {
            const float before = __shfl_up_sync(0xffffffffu, sum, offset);
            sum += lane >= offset ? before : 0.0f;
        }
        sums[half] = sum + total;
        total = __shfl_sync(0xffffffffu, sums[half], 31);
        decay[i] = sums[half];
        step[i] = steps[half];
    }
#pragma unroll
    for (int half = 0; half < CHUNK / 32; half++) {
        const int i = 32 * half + lane;
        if (i < n) {
            *(float2 *)(a.rates + ((token + i) * a.scan.heads + head) * 2) =
                make_float2(expf(sums[half]), expf(total - sums[half]) * steps[half]);
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
    copy_tile<COLUMNS, SCORE_THREADS>(b_tile, (const T *)a.scan.b + at, a.scan.groups * COLUMNS, CHUNK, n, threadIdx.x);
    copy_tile<COLUMNS, SCORE_THREADS>(c_tile, (const T *)a.scan.c + at, a.scan.groups * COLUMNS, CHUNK, n, threadIdx.x);
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
                    pair[k] = pack2(row >= column ? x[2 * half] * d.x * __expf(of_row - c.x) : 0.0f,
                                    row > column ? x[2 * half + 1] * d.y * __expf(of_row - c.y) : 0.0f, T());
                }
                store_row(scores + 8 * j, pair[0], pair[1], row < n);
            }
        }
    }
}

/* ---- chunk by chunk --------------------------------------------------------------------------------- */

#define RUN_WARPS   2  /* that multiply; as many copy */
#define ROWS        32 /* of the state, of a block; 16 of a warp */
#define RUN_THREADS (2 * RUN_WARPS * 32)
#define COPIERS     (RUN_WARPS * 32)

/* Bytes of a stage. */
template <int COLUMNS> struct run_stage {
    static const int size = (2 * CHUNK * COLUMNS + CHUNK * CHUNK + CHUNK * ROWS) * 2 + 2 * CHUNK * (int)sizeof(float);
};

/* Where a block's chunks are, `at` the first token's head, and how many of its rows there are. */
struct run_place {
    int64_t at, group_at;
    int head, group, row, rows;
};

/* A chunk's tiles, in one of the stages. */
struct run_tiles {
    uint32_t b, c, scores, x;
    float *rates; /* [CHUNK, 2] */
};

template <int COLUMNS> static __device__ __forceinline__ run_tiles tiles_of(char *stage)
{
    run_tiles tiles;
    tiles.b = shared_address(stage);
    tiles.c = tiles.b + CHUNK * COLUMNS * 2;
    tiles.scores = tiles.c + CHUNK * COLUMNS * 2;
    tiles.x = tiles.scores + CHUNK * CHUNK * 2;
    tiles.rates = (float *)(stage + run_stage<COLUMNS>::size) - 2 * CHUNK;
    return tiles;
}

/* Tokens `first` .. + n - 1 of the sequence on their way. Columns of x behind the head's rows are zeros. */
template <typename T, int COLUMNS>
static __device__ __forceinline__ void fetch_chunk(const trm_scan_chunks &a, const run_tiles &tiles, const run_place &p,
                                                   int64_t first, int n)
{
    const int thread = (int)threadIdx.x - RUN_WARPS * 32, piece = thread % (ROWS / 8);
    const int64_t at = p.at + first * a.scan.heads, group_at = (p.group_at + first * a.scan.groups) * COLUMNS;
    const int64_t stride = a.scan.heads * a.scan.dim;
    const T *x = (const T *)a.scan.x + at * a.scan.dim + p.row;
    copy_tile<COLUMNS, COPIERS>(tiles.c, (const T *)a.scan.c + group_at, a.scan.groups * COLUMNS, CHUNK, n, thread);
    copy_tile<COLUMNS, COPIERS>(tiles.b, (const T *)a.scan.b + group_at, a.scan.groups * COLUMNS, CHUNK, n, thread);
#pragma unroll
    for (int row = thread / (ROWS / 8); row < CHUNK; row += COPIERS / (ROWS / 8)) {
        const bool is_there = row < n && piece * 8 < p.rows;
        copy16_async(tile_at<ROWS>(tiles.x, row, piece), is_there ? x + row * stride + piece * 8 : x, is_there);
    }
    copy_scores<COPIERS>(tiles.scores, (const T *)a.scores + at * CHUNK, a.scan.heads * CHUNK, n, thread);
    copy_rates(tiles.rates, a.rates + at * 2, a.scan.heads, n, thread);
}

/* The state's rows are rows of every product, so that results are the left operands of those that follow. Of tokens
 * behind the first n all but the scores is 0, and nothing is stored. */
template <typename T, int COLUMNS>
static __device__ __forceinline__ void run_chunk(const run_tiles &tiles, float (&s)[COLUMNS / 8][4], int n, float skip,
                                                 T *out, int64_t stride)
{
    const int warp = threadIdx.x >> 5, t = threadIdx.x & 3;
    float y[8][4] = {};
    uint32_t c[2][PARTS][4];
#pragma unroll
    for (int step = 0; step <= COLUMNS / 16; step++) { /* tiles are read ahead of their use */
        if (step < COLUMNS / 16) {
#pragma unroll
            for (int j = 0; j < PARTS; j++) {
                load_right<COLUMNS>(c[step & 1][j], tiles.c, 16 * j, 16 * step);
            }
        }
        if (step > 0) {
            uint32_t left[4];
            pack_left<T>(left, s[2 * step - 2], s[2 * step - 1]);
#pragma unroll
            for (int j = 0; j < PARTS; j++) {
                const uint32_t(&b)[4] = c[(step - 1) & 1][j];
                mma_16816(y[2 * j], left[0], left[1], left[2], left[3], b[0], b[1], T());
                mma_16816(y[2 * j + 1], left[0], left[1], left[2], left[3], b[2], b[3], T());
            }
        }
    }
    uint32_t x[PARTS][4], faded[PARTS][4]; /* faded: times the step and what is left of it behind the chunk */
#pragma unroll
    for (int j = 0; j < PARTS; j++) {
        load_left_transposed<ROWS>(x[j], tiles.x, 16 * j, 16 * warp);
#pragma unroll
        for (int i = 0; i < 2; i++) { /* of 8 tokens each */
            const float4 rate = *(const float4 *)(tiles.rates + 2 * (16 * j + 8 * i + 2 * t));
            float(&of)[4] = y[2 * j + i];
#pragma unroll
            for (int half = 0; half < 2; half++) {
                float each[2];
                unpack2(x[j][2 * i + half], each, T());
                of[2 * half] = of[2 * half] * rate.x + skip * each[0];
                of[2 * half + 1] = of[2 * half + 1] * rate.z + skip * each[1];
                faded[j][2 * i + half] = pack2(each[0] * rate.y, each[1] * rate.w, T());
            }
        }
    }
    const float rest = tiles.rates[2 * (n - 1)];
#pragma unroll
    for (int i = 0; i < COLUMNS / 2; i++) {
        s[i / 4][i % 4] *= rest;
    }
    add_scores<T>(y, x, tiles.scores);
    add_product<T, COLUMNS>(s, faded, tiles.b);
    store_tokens(y, out, stride, n);
}

/* All chunks of a sequence, `all` tokens: while the first warps multiply, the others fetch what comes next. */
template <typename T, int COLUMNS, int STAGES>
static __device__ void run_sequence(const trm_scan_chunks &a, char *stages, int32_t sequence, int64_t all, run_place p)
{
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
    const bool copies = warp >= RUN_WARPS, multiplies = !copies && 16 * warp < p.rows;
    const trm_delta_sequences &of = a.scan.sequences;
    const int64_t start = of.starts[sequence], old = of.lengths[sequence] - (of.starts[sequence + 1] - start);
    const int64_t places = a.scan.places, of_place = a.scan.heads * a.scan.dim * COLUMNS;
    const int64_t of_lane = (p.head * a.scan.dim + p.row + 16 * warp + g) * COLUMNS + 2 * t;
    const float *from = a.scan.state + (of.slots[2 * sequence] * places + old % places) * of_place + of_lane;
    float *to = a.scan.state + (of.slots[2 * sequence + 1] * places + (old + all) % places) * of_place + of_lane;
    const float skip = a.scan.skip[p.head];
    float s[COLUMNS / 8][4];
    p.at = start * a.scan.heads + p.head;
    p.group_at = start * a.scan.groups + p.group;
    if (copies) {
        fetch_chunk<T, COLUMNS>(a, tiles_of<COLUMNS>(stages), p, 0, all < CHUNK ? (int)all : CHUNK);
        copies_commit();
    } else if (multiplies) {
#pragma unroll
        for (int i = 0; i < COLUMNS / 4; i++) {
            const float2 pair =
                old > 0 ? *(const float2 *)(from + i % 2 * 8 * COLUMNS + i / 2 * 8) : float2{0.0f, 0.0f};
            s[i / 2][i % 2 * 2] = pair.x;
            s[i / 2][i % 2 * 2 + 1] = pair.y;
        }
    }
    int stage = 0;
    for (int64_t first = 0; first < all; first += CHUNK) {
        const int64_t next = first + CHUNK, left = all - next;
        const int next_stage = STAGES == 1 ? 0 : stage ^ 1;
        copies_wait<0>();
        __syncthreads();
        if (multiplies) {
            run_chunk<T, COLUMNS>(tiles_of<COLUMNS>(stages + stage * run_stage<COLUMNS>::size), s,
                                  left < 0 ? (int)(all - first) : CHUNK, skip,
                                  (T *)a.scan.y + (p.at + first * a.scan.heads) * a.scan.dim + p.row + 16 * warp,
                                  a.scan.heads * a.scan.dim);
        }
        if (STAGES == 1) {
            __syncthreads();
        }
        if (copies && left > 0) {
            fetch_chunk<T, COLUMNS>(a, tiles_of<COLUMNS>(stages + next_stage * run_stage<COLUMNS>::size), p, next,
                                    left < CHUNK ? (int)left : CHUNK);
            copies_commit();
        }
        stage = next_stage;
    }
    if (multiplies) {
#pragma unroll
        for (int i = 0; i < COLUMNS / 4; i++) {
            *(float2 *)(to + i % 2 * 8 * COLUMNS + i / 2 * 8) =
                make_float2(s[i / 2][i % 2 * 2], s[i / 2][i % 2 * 2 + 1]);
        }
    }
    __syncthreads();
}

/*
 * A block has two warps that multiply, with 16 rows of a head each, and two that copy; blocks along y share the
 * sequences that have chunks. Shared memory: 45 KB a stage for 128 columns. A chunk takes 148 instructions of a warp's
 * tensor core.
 */
template <typename T, int COLUMNS, int STAGES>
static __global__ void __launch_bounds__(RUN_THREADS) run_chunks(const trm_scan_chunks a, int blocks_of_head)
{
    extern __shared__ __align__(16) char shared[];
    run_place p = {};
    p.head = (int)blockIdx.x / blocks_of_head;
    p.group = p.head / (int)(a.scan.heads / a.scan.groups);
    p.row = (int)blockIdx.x % blocks_of_head * ROWS;
    p.rows = (int)a.scan.dim - p.row;
    begin_overlapped();
    each_chunked(a.scan.sequences, a.scan.places,
                 [&](int32_t sequence, int64_t all) { run_sequence<T, COLUMNS, STAGES>(a, shared, sequence, all, p); });
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

template <typename T, int COLUMNS, int STAGES>
static trm_status launch_stages(const trm_scan_chunks *a, cudaStream_t stream)
{
    const int blocks_of_head = (int)((a->scan.dim + ROWS - 1) / ROWS), shared = STAGES * run_stage<COLUMNS>::size;
    const unsigned blocks = (unsigned)(a->scan.heads * blocks_of_head);
    const dim3 grid(blocks, chunked_at_once(a->scan.sequences.n, a->scan.tokens, blocks));
    TRM_CUDA_TRY(
        cudaFuncSetAttribute(run_chunks<T, COLUMNS, STAGES>, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
    launch_overlapped(run_chunks<T, COLUMNS, STAGES>, grid, RUN_THREADS, (size_t)shared, stream, *a, blocks_of_head);
    return trm_cuda_launched("cuda.selective_scan.chunks");
}

template <typename T, int COLUMNS> static trm_status launch_run(const trm_scan_chunks *a, cudaStream_t stream)
{
    return trm_cuda_block_memory() >= 2 * run_stage<COLUMNS>::size ? launch_stages<T, COLUMNS, 2>(a, stream)
                                                                   : launch_stages<T, COLUMNS, 1>(a, stream);
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
