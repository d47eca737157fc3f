/*
 * LORA in two launches: inner [tokens, ranks] = A x in f32 in the workspace, then y + B inner. `ranks` are those of all
 * pairs side by side. Steps of few tokens take the matrices of each token by themselves; of more, tiles of 64 tokens
 * multiply on tensor cores, once for each adapter that a tile has: prompts have few. Slots are read on the device.
 */
#include "kernels/cuda/common.cuh"
#include "kernels/cuda/mma.cuh"
#include "kernels/kernel_list.h"
#include "kernels/lora/lora.h"

#define THREADS     128
#define FEW_TOKENS  32   /* beyond, tiles read A and B less often */
#define MAX_RANKS   4096 /* of all pairs: floats in shared memory */
#define TILE_TOKENS 64
#define TILE_RANKS  32
#define TILE_K      64
#define TILE_PITCH  (TILE_K + 8) /* no two rows of a matrix in the same banks */
#define TILE_WIDTH  64           /* columns */

struct lora_call {
    trm_lora_args args;
    int32_t ranks; /* of all pairs */
    float *inner;  /* [tokens, ranks] */
};

/* The pair of row `r` of inner, and its row of A; -1 behind the last. */
static __device__ __forceinline__ int pair_of_rank(const lora_call &c, int r, int *row)
{
    int pair = 0;
    while (pair < c.args.n_pairs && r >= c.args.pairs[pair].rank) {
        r -= (int)c.args.pairs[pair++].rank;
    }
    *row = r;
    return pair < c.args.n_pairs ? pair : -1;
}

static __device__ __forceinline__ bool has_adapter(const lora_call &c, int slot)
{
    return slot >= 0 && slot < c.args.adapters;
}

/* ---- few tokens ---------------------------------------------------------------------------------- */

static __device__ __forceinline__ float sum_of_block(float x)
{
    __shared__ float parts[THREADS / 32];
#pragma unroll
    for (int i = 16; i > 0; i /= 2) {
        x += __shfl_xor_sync(0xffffffffu, x, i);
    }
    if ((threadIdx.x & 31) == 0) {
        parts[threadIdx.x >> 5] = x;
    }
    __syncthreads();
    return (parts[0] + parts[1]) + (parts[2] + parts[3]);
}

/* A block has 128 threads and one element of inner: it reads a row of A and one of x, 16 KB for K = 4096 in 16 bits.
 * `whole`: rows are of 16 bytes. */
template <typename T> static __global__ void __launch_bounds__(THREADS) shrink(const lora_call c, bool whole)
{
    const int token = blockIdx.y, k = (int)c.args.k;
    int row;
    const int pair = pair_of_rank(c, blockIdx.x, &row);
    begin_overlapped();
    const int slot = c.args.slots[token];
    if (!has_adapter(c, slot)) {
        return;
    }
    const T *a = (const T *)c.args.pairs[pair].a + ((int64_t)slot * c.args.pairs[pair].rank + row) * k;
    const T *x = (const T *)c.args.x + (int64_t)token * k;
    const int n = vec16<T>::n;
    float sum = 0.0f;
    for (int i = threadIdx.x * n; whole && i < k; i += THREADS * n) {
        float left[n], right[n];
        load16(a + i, left);
        load16(x + i, right);
#pragma unroll
        for (int j = 0; j < n; j++) {
            sum += left[j] * right[j];
        }
    }
    for (int i = threadIdx.x; !whole && i < k; i += THREADS) {
        sum += to_float(a[i]) * to_float(x[i]);
    }
    sum = sum_of_block(sum);
    if (threadIdx.x == 0) {
        c.inner[(int64_t)token * c.ranks + blockIdx.x] = sum;
    }
}

/* A block has 128 threads and as many columns of a token, and its row of inner in shared memory: each thread reads its
 * row of B. */
template <typename T> static __global__ void __launch_bounds__(THREADS) expand(const lora_call c)
{
    extern __shared__ float inner[];
    const int token = blockIdx.y;
    int64_t column = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    begin_overlapped();
    const int slot = c.args.slots[token];
    const bool has = has_adapter(c, slot);
    for (int i = threadIdx.x; has && i < c.ranks; i += THREADS) {
        inner[i] = c.inner[(int64_t)token * c.ranks + i];
    }
    __syncthreads();
    if (column >= c.args.columns) {
        return;
    }
    const int64_t at = (int64_t)token * c.args.columns + column;
    float sum = to_float(((const T *)c.args.y)[at]), added = 0.0f;
    if (has) {
        int pair = 0, first = 0;
        while (column >= c.args.pairs[pair].columns) {
            column -= c.args.pairs[pair].columns;
            first += (int)c.args.pairs[pair++].rank;
        }
        const int rank = (int)c.args.pairs[pair].rank;
        const T *b = (const T *)c.args.pairs[pair].b + ((int64_t)slot * c.args.pairs[pair].columns + column) * rank;
        const int n = vec16<T>::n;
        if (rank % n == 0) {
            for (int r = 0; r < rank; r += n) {
                float values[n];
                load16(b + r, values);
#pragma unroll
                for (int j = 0; j < n; j++) {
                    added += values[j] * inner[first + r + j];
                }
            }
        } else {
            for (int r = 0; r < rank; r++) {
                added += to_float(b[r]) * inner[first + r];
            }
        }
    }
    ((T *)c.args.out)[at] = from_float<T>(sum + added);
}

/* ---- tiles of tokens ------------------------------------------------------------------------------- */

/* The smallest slot of an adapter above `last` among those of a tile, in every thread; INT32_MAX: none. */
static __device__ __forceinline__ int next_adapter(const int *slots, int last)
{
    const int lane = threadIdx.x & 31;
    const int a = slots[lane] > last ? slots[lane] : INT32_MAX,
              b = slots[lane + 32] > last ? slots[lane + 32] : INT32_MAX;
    return (int)__reduce_min_sync(0xffffffffu, (unsigned)(a < b ? a : b));
}

/* The slots of a tile's tokens; -1 of those without an adapter and behind the end. */
static __device__ __forceinline__ void load_slots(const lora_call &c, int64_t first, int *slots)
{
    if (threadIdx.x < TILE_TOKENS) {
        const int slot = first + threadIdx.x < c.args.tokens ? c.args.slots[first + threadIdx.x] : -1;
        slots[threadIdx.x] = has_adapter(c, slot) ? slot : -1;
    }
    __syncthreads();
}

template <typename T> struct shrink_memory {
    T x[2][TILE_TOKENS][TILE_PITCH], a[2][TILE_RANKS][TILE_PITCH];
    int slots[TILE_TOKENS];
};

/* Starts copies of columns k .. k + 63 of x and of A's rows, zeros behind their ends. */
template <typename T>
static __device__ __forceinline__ void copy_tiles(const lora_call &c, shrink_memory<T> &memory, int stage,
                                                  int64_t first, const T *const *rows, int k)
{
    for (int i = threadIdx.x; i < (TILE_TOKENS + TILE_RANKS) * (TILE_K / 8); i += THREADS) {
        const int row = i / (TILE_K / 8), at = i % (TILE_K / 8) * 8;
        const bool is_x = row < TILE_TOKENS, in = k + at < c.args.k;
        const T *from = is_x ? (first + row < c.args.tokens ? (const T *)c.args.x + (first + row) * c.args.k : NULL)
                             : rows[row - TILE_TOKENS];
        const T *to = is_x ? &memory.x[stage][row][at] : &memory.a[stage][row - TILE_TOKENS][at];
        const bool valid = from != NULL && in;
        copy16_async(shared_address(to), valid ? from + k + at : (const T *)c.args.x, valid);
    }
    copies_commit();
}

/*
 * A block has 4 warps of 16 tokens each and 32 rows of inner, for each adapter of the tile one after the other: rows of
 * x with another one are zeros. Shared memory: 27 KB, two stages of 64 columns. x is read once for each 32 ranks, A
 * once for each tile.
 */
template <typename T> static __global__ void __launch_bounds__(THREADS) shrink_tiles(const lora_call c)
{
    __shared__ __align__(16) shrink_memory<T> memory;
    __shared__ const T *rows[TILE_RANKS];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane / 4, t = lane % 4;
    const int64_t first = (int64_t)blockIdx.x * TILE_TOKENS;
    const int first_rank = blockIdx.y * TILE_RANKS, k_end = (int)c.args.k;
    float sums[TILE_RANKS / 8][4] = {};
    begin_overlapped();
    load_slots(c, first, memory.slots);
    for (int slot = next_adapter(memory.slots, -1); slot != INT32_MAX; slot = next_adapter(memory.slots, slot)) {
        if (threadIdx.x < TILE_RANKS) {
            int row;
            const int pair = pair_of_rank(c, first_rank + threadIdx.x, &row);
            rows[threadIdx.x] =
                pair < 0 ? NULL
                         : (const T *)c.args.pairs[pair].a + ((int64_t)slot * c.args.pairs[pair].rank + row) * k_end;
        }
        __syncthreads();
        const uint32_t low = memory.slots[16 * warp + g] == slot ? UINT32_MAX : 0;
        const uint32_t high = memory.slots[16 * warp + g + 8] == slot ? UINT32_MAX : 0;
        copy_tiles(c, memory, 0, first, rows, 0);
        for (int k = 0, stage = 0; k < k_end; k += TILE_K, stage ^= 1) {
            if (k + TILE_K < k_end) {
                copy_tiles(c, memory, stage ^ 1, first, rows, k + TILE_K);
                copies_wait<1>();
            } else {
                copies_wait<0>();
            }
            __syncthreads();
#pragma unroll
            for (int i = 0; i < TILE_K; i += 16) {
                uint32_t x[4], a[4];
                load_matrices(x, shared_address(&memory.x[stage][16 * warp + lane % 16][i + lane / 16 * 8]));
#pragma unroll
                for (int j = 0; j < TILE_RANKS / 16; j++) {
                    load_matrices(a, shared_address(&memory.a[stage][16 * j + lane % 16][i + lane / 16 * 8]));
                    mma_16816(sums[2 * j], x[0] & low, x[1] & high, x[2] & low, x[3] & high, a[0], a[2], T());
                    mma_16816(sums[2 * j + 1], x[0] & low, x[1] & high, x[2] & low, x[3] & high, a[1], a[3], T());
                }
            }
            __syncthreads();
        }
    }
#pragma unroll
    for (int j = 0; j < TILE_RANKS / 8; j++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int64_t token = first + 16 * warp + g + i / 2 * 8;
            const int rank = first_rank + 8 * j + 2 * t + i % 2;
            if (token < c.args.tokens && rank < c.ranks) {
                c.inner[token * c.ranks + rank] = sums[j][i];
            }
        }
    }
}

/* Two floats as 16-bit numbers and, in `rest`, what these leave. */
template <typename T> static __device__ __forceinline__ uint32_t split(float a, float b, uint32_t *rest)
{
    const float high[2] = {to_float(from_float<T>(a)), to_float(from_float<T>(b))};
    *rest = pack2(a - high[0], b - high[1], T());
    return pack2(high[0], high[1], T());
}

/* The pair whose columns block `tile` of the grid has; *tile becomes the number within them, *rank the pair's first. */
static __device__ __forceinline__ int pair_of_tile(const lora_call &c, int *tile, int *rank)
{
    int pair = 0;
    *rank = 0;
    for (int tiles = (int)((c.args.pairs[0].columns + TILE_WIDTH - 1) / TILE_WIDTH); *tile >= tiles;
         tiles = (int)((c.args.pairs[pair].columns + TILE_WIDTH - 1) / TILE_WIDTH)) {
        *tile -= tiles;
        *rank += (int)c.args.pairs[pair++].rank;
    }
    return pair;
}

/*
 * A block has 4 warps of 16 tokens each and 64 columns of a pair, for each adapter of a warp's tokens one after the
 * other. inner is two 16-bit numbers for each float, so that nothing is lost of it. B is read once for each warp, in
 * whole sectors for ranks of 16 and more.
 */
template <typename T> static __global__ void __launch_bounds__(THREADS) expand_tiles(const lora_call c)
{
    __shared__ int slots[TILE_TOKENS];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane / 4, t = lane % 4;
    const int64_t first = (int64_t)blockIdx.x * TILE_TOKENS;
    int tile = blockIdx.y, first_rank;
    const int pair = pair_of_tile(c, &tile, &first_rank);
    const int rank = (int)c.args.pairs[pair].rank, columns = (int)c.args.pairs[pair].columns;
    float sums[TILE_WIDTH / 8][4] = {};
    begin_overlapped();
    load_slots(c, first, slots);
    const int own[2] = {slots[16 * warp + g], slots[16 * warp + g + 8]};
    const float *inner[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        inner[i] = c.inner + (first + 16 * warp + g + 8 * i) * c.ranks + first_rank;
    }
    for (int slot = next_adapter(slots, -1); slot != INT32_MAX; slot = next_adapter(slots, slot)) {
        if (!__any_sync(0xffffffffu, own[0] == slot || own[1] == slot)) {
            continue;
        }
        const T *b = (const T *)c.args.pairs[pair].b + (int64_t)slot * columns * rank;
        for (int r = 0; r < rank; r += 16) {
            uint32_t high[4], rest[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int at = r + 2 * t + i / 2 * 8;
                const bool in = own[i % 2] == slot && at < rank;
                high[i] = split<T>(in ? inner[i % 2][at] : 0.0f, in ? inner[i % 2][at + 1] : 0.0f, &rest[i]);
            }
#pragma unroll
            for (int j = 0; j < TILE_WIDTH / 8; j++) {
                const int column = tile * TILE_WIDTH + 8 * j + g;
                const T *from = b + (int64_t)column * rank + r + 2 * t;
                const bool in = column < columns;
                const uint32_t b0 = in && r + 2 * t < rank ? *(const uint32_t *)from : 0;
                const uint32_t b1 = in && r + 2 * t + 8 < rank ? *(const uint32_t *)(from + 8) : 0;
                mma_16816(sums[j], high[0], high[1], high[2], high[3], b0, b1, T());
                mma_16816(sums[j], rest[0], rest[1], rest[2], rest[3], b0, b1, T());
            }
        }
    }
#pragma unroll
    for (int j = 0; j < TILE_WIDTH / 8; j++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int64_t token = first + 16 * warp + g + i / 2 * 8;
            const int column = tile * TILE_WIDTH + 8 * j + 2 * t + i % 2;
            if (token < c.args.tokens && column < columns) {
                const int64_t at = token * c.args.columns + c.args.pairs[pair].first + column;
                ((T *)c.args.out)[at] = from_float<T>(to_float(((const T *)c.args.y)[at]) + sums[j][i]);
            }
        }
    }
}

/* ---- launches ------------------------------------------------------------------------------------- */

template <typename T> static void launch_few(const lora_call &c, cudaStream_t stream)
{
    const bool whole = c.args.k % vec16<T>::n == 0;
    for (int64_t token = 0; token < c.args.tokens; token += 65535) { /* the most blocks along y */
        const unsigned n = (unsigned)(c.args.tokens - token < 65535 ? c.args.tokens - token : 65535);
        lora_call part = c;
        part.args.x = (const T *)c.args.x + token * c.args.k;
        part.args.y = (const T *)c.args.y + token * c.args.columns;
        part.args.out = (T *)c.args.out + token * c.args.columns;
        part.args.slots = c.args.slots + token;
        part.inner = c.inner + token * c.ranks;
        launch_overlapped(shrink<T>, dim3((unsigned)c.ranks, n), THREADS, 0, stream, part, whole);
        launch_overlapped(expand<T>, dim3((unsigned)((c.args.columns + THREADS - 1) / THREADS), n), THREADS,
                          (size_t)c.ranks * sizeof(float), stream, part);
    }
}

template <typename T> static void launch_tiles(const lora_call &c, cudaStream_t stream)
{
    const unsigned tiles = (unsigned)((c.args.tokens + TILE_TOKENS - 1) / TILE_TOKENS);
    unsigned across = 0;
    for (int32_t i = 0; i < c.args.n_pairs; i++) {
        across += (unsigned)((c.args.pairs[i].columns + TILE_WIDTH - 1) / TILE_WIDTH);
    }
    launch_overlapped(shrink_tiles<T>, dim3(tiles, (unsigned)((c.ranks + TILE_RANKS - 1) / TILE_RANKS)), THREADS, 0,
                      stream, c);
    launch_overlapped(expand_tiles<T>, dim3(tiles, across), THREADS, 0, stream, c);
}

/* Ranks of all pairs; *even: those that tiles can take. */
static int64_t count_ranks(const trm_lora_args *args, bool *even)
{
    int64_t ranks = 0;
    *even = args->k % 8 == 0;
    for (int32_t i = 0; i < args->n_pairs; i++) {
        ranks += args->pairs[i].rank;
        *even = *even && args->pairs[i].rank % 8 == 0;
    }
    return ranks;
}

bool trm_cuda_lora_accepts(const trm_kernel_call *call)
{
    trm_lora_args args;
    bool even;
    return trm_lora_args_of(call, &args) && count_ranks(&args, &even) <= MAX_RANKS && args.k <= INT32_MAX / 2 &&
           args.columns <= INT32_MAX / 2;
}

size_t trm_cuda_lora_workspace(const trm_kernel_call *call)
{
    trm_lora_args args;
    bool even;
    return trm_lora_args_of(call, &args) ? (size_t)(args.tokens * count_ranks(&args, &even)) * sizeof(float) : 0;
}

trm_status trm_cuda_lora_run(const trm_kernel_call *call)
{
    lora_call c = {};
    bool even;
    if (!trm_lora_args_of(call, &c.args) || c.args.tokens * c.args.columns == 0) {
        return TRM_OK;
    }
    c.ranks = (int32_t)count_ranks(&c.args, &even);
    c.inner = (float *)call->workspace;
    cudaStream_t stream = trm_cuda_stream(call->stream);
    const bool tiles = even && c.args.tokens > FEW_TOKENS && !call->batch_invariant;
    if (tiles && c.args.dtype == TRM_BF16) {
        launch_tiles<__nv_bfloat16>(c, stream);
    } else if (tiles && c.args.dtype == TRM_F16) {
        launch_tiles<__half>(c, stream);
    } else {
        DISPATCH_FLOAT(c.args.dtype, launch_few<T>(c, stream));
    }
    return trm_cuda_launched("cuda.lora");
}
