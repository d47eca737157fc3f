/*
 * What latent attention multiplies before and after attention over latents, by tensor cores: for every head a product
 * of all tokens with a part of the weight. With few tokens bound by reading the weight once, 2 * 256 * 512 elements a
 * head for DeepSeek-V3, with many by mma.sync.
 */
#include "attention/cuda/rows.cuh"
#include "attention/latent/cuda.h"

#define TILE    64 /* tokens, columns, and elements of the inner dimension at a time */
#define STRIDE  72 /* elements from row to row in shared memory: rows of 8 in other banks */
#define THREADS 128

/* Starts the copy of 64 rows of 64 elements, `pitch` apart; rows from `rows` on become zeros. */
template <typename T>
static __device__ __forceinline__ void copy_tile(T *to, const T *from, int64_t pitch, int32_t rows)
{
#pragma unroll
    for (int i = 0; i < TILE * TILE / 8 / THREADS; i++) {
        int index = i * THREADS + (int)threadIdx.x, row = index / 8, column = index % 8 * 8;
        bool valid = row < rows;
        copy16_async(shared_address(to + row * STRIDE + column), from + (valid ? row * pitch : 0) + column, valid);
    }
}

/* What is rotated of a head's queries, as it is. */
template <typename T> static __device__ void copy_rotated(const trm_cuda_latent &l, int32_t first, int32_t head)
{
    const int32_t width = l.plain + l.rotated, units = l.rotated / 8;
    const int32_t rows = (int32_t)l.a.tokens - first < TILE ? (int32_t)l.a.tokens - first : TILE;
    for (int32_t i = threadIdx.x; i < rows * units; i += THREADS) {
        const int64_t token = first + i / units;
        const int32_t column = i % units * 8;
        const T *from = (const T *)l.q + (token * l.heads + l.first_head + head) * width + l.plain + column;
        T *to = (T *)l.a.q + (token * l.a.query_heads + head) * l.a.dim + l.a.value_dim + column;
        *(uint4 *)to = *(const uint4 *)from;
    }
}

/* Whether the tokens from `first` on, up to 64, are all of one sequence whose queries attend to nothing in the absorbed
 * form. */
static __device__ __forceinline__ bool has_nothing(const trm_cuda_latent &l, int32_t first, int32_t rows)
{
    if (l.expanded == NULL) {
        return false;
    }
    const int32_t sequence = trm_attention_sequence_of(l.a.starts, l.a.sequences, first);
    if (sequence < 0 || first + rows > l.a.starts[sequence + 1]) {
        return false;
    }
    return trm_cuda_latent_keys(l, sequence, l.a.starts[sequence + 1] - l.a.starts[sequence]) == 0;
}

/* What a token's output in the expanded form counts, and this one; {1, 0}: this one is nothing. */
static __device__ __forceinline__ float2 counts_of(const trm_cuda_latent &l, int32_t token, int32_t head)
{
    const int32_t sequence = l.expanded == NULL ? -1 : trm_attention_sequence_of(l.a.starts, l.a.sequences, token);
    const int32_t queries = sequence < 0 ? 0 : l.a.starts[sequence + 1] - l.a.starts[sequence];
    if (sequence < 0 || !trm_cuda_latent_is_split(l, queries)) {
        return make_float2(0.0f, 1.0f);
    }
    if (l.a.lengths[sequence] == queries) {
        return make_float2(1.0f, 0.0f);
    }
    const float own = l.logs[(int64_t)token * l.a.query_heads + head];
    const float other = l.expanded_logs[(int64_t)token * l.heads + l.first_head + head];
    const float part = 1.0f / (1.0f + exp2f(own - other)); /* infinity gives 0 */
    return make_float2(part, 1.0f - part);
}

/*
 * Block (64 columns, 64 tokens, head), a warp for 16 tokens. QUERIES: queries [tokens, plain] times weight [plain,
 * rank]; behind the blocks of all columns, one for what is rotated. Otherwise: sums [tokens, rank] times the transpose
 * of weight [values, rank]. Shared memory: two stages of both factors, 36 KiB.
 */
template <typename T, bool QUERIES> static __global__ void __launch_bounds__(THREADS) latent_product(trm_cuda_latent l)
{
    __shared__ __align__(16) T tiles[2][2][TILE * STRIDE];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const int32_t head = blockIdx.z, first = (int32_t)blockIdx.y * TILE, column = (int32_t)blockIdx.x * TILE;
    const int32_t rank = l.a.value_dim, inner = QUERIES ? l.plain : rank;
    const int32_t rows = (int32_t)l.a.tokens - first < TILE ? (int32_t)l.a.tokens - first : TILE;
    const T *weight = (const T *)l.weight + (int64_t)(l.first_head + head) * (l.plain + l.values) * rank;
    start_next();
    if (QUERIES && column >= rank) {
        wait_for_previous();
        if (!has_nothing(l, first, rows)) {
            copy_rotated<T>(l, first, head);
        }
        return;
    }
    weight += QUERIES ? column : (int64_t)(l.plain + column) * rank;
    const int64_t step = QUERIES ? (int64_t)TILE * rank : TILE; /* of the weight, from one inner tile to the next */
    const int64_t pitch = QUERIES ? (int64_t)l.heads * (l.plain + l.rotated) : (int64_t)l.a.query_heads * rank;
    const T *from = QUERIES ? (const T *)l.q + first * pitch + (int64_t)(l.first_head + head) * (l.plain + l.rotated)
                            : (const T *)l.a.out + first * pitch + (int64_t)head * rank;
    if (l.constant) {
        copy_tile(tiles[0][1], weight, rank, TILE);
    }
    wait_for_previous();
    if (has_nothing(l, first, rows)) {
        copies_commit();
        copies_wait<0>();
        return;
    }
    if (!l.constant) {
        copy_tile(tiles[0][1], weight, rank, TILE);
    }
    copy_tile(tiles[0][0], from, pitch, rows);
    copies_commit();
    float sums[TILE / 8][4];
#pragma unroll
    for (int j = 0; j < TILE / 8; j++) {
        sums[j][0] = sums[j][1] = sums[j][2] = sums[j][3] = 0.0f;
    }
    for (int32_t k = 0; k < inner; k += TILE) {
        const int stage = k / TILE & 1;
        if (k + TILE < inner) {
            copy_tile(tiles[stage ^ 1][1], weight + (k / TILE + 1) * step, rank, TILE);
            copy_tile(tiles[stage ^ 1][0], from + k + TILE, pitch, rows);
        }
        copies_commit();
        copies_wait<1>(); /* this stage's */
        __syncthreads();
        const uint32_t a_at = a_address(tiles[stage][0] + warp * 16 * STRIDE, STRIDE, lane);
        const uint32_t b_at =
            QUERIES ? bt_address(tiles[stage][1], STRIDE, lane) : b_address(tiles[stage][1], STRIDE, lane);
#pragma unroll
        for (int i = 0; i < TILE / 16; i++) {
            uint32_t a[4];
            load_matrices(a, a_at + i * 32);
#pragma unroll
            for (int j = 0; j < TILE / 16; j++) {
                uint32_t b[4];
                if (QUERIES) {
                    load_matrices_transposed(b, b_at + i * 16 * STRIDE * 2 + j * 32);
                } else {
                    load_matrices(b, b_at + j * 16 * STRIDE * 2 + i * 32);
                }
                mma_16816(sums[2 * j], a[0], a[1], a[2], a[3], b[0], b[1], T());
                mma_16816(sums[2 * j + 1], a[0], a[1], a[2], a[3], b[2], b[3], T());
            }
        }
        __syncthreads(); /* before the stage is filled again */
    }
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int32_t row = warp * 16 + lane / 4 + 8 * r;
        const int64_t token = first + row;
        T *to = QUERIES ? (T *)l.a.q + (token * l.a.query_heads + head) * l.a.dim
                        : (T *)l.out + (token * l.heads + l.first_head + head) * l.values;
        if (row >= rows) {
            continue;
        }
        const float2 counts = QUERIES ? make_float2(0.0f, 1.0f) : counts_of(l, (int32_t)token, head);
        if (counts.x == 1.0f) { /* it stands there */
            continue;
        }
#pragma unroll
        for (int j = 0; j < TILE / 8; j++) {
            uint32_t *at = (uint32_t *)(to + column + 8 * j + lane % 4 * 2);
            float x = sums[j][2 * r], y = sums[j][2 * r + 1];
            if (counts.x != 0.0f) {
                float other[2];
                unpack2(*at, other, T());
                x = counts.x * other[0] + counts.y * x;
                y = counts.x * other[1] + counts.y * y;
            }
            *at = pack2(x, y, T());
        }
    }
}

static dim3 grid_of(const trm_cuda_latent *l, int32_t columns)
{
    return dim3((unsigned)columns, (unsigned)((l->a.tokens + TILE - 1) / TILE), (unsigned)l->a.query_heads);
}

trm_status trm_cuda_latent_queries(const trm_cuda_latent *l, cudaStream_t stream)
{
    const dim3 grid = grid_of(l, l->a.value_dim / TILE + 1);
    if (l->a.dtype == TRM_F16) {
        launch_overlapped(latent_product<__half, true>, grid, THREADS, 0, stream, *l);
    } else {
        launch_overlapped(latent_product<__nv_bfloat16, true>, grid, THREADS, 0, stream, *l);
    }
    return trm_cuda_launched("cuda.latent_attention queries");
}

trm_status trm_cuda_latent_values(const trm_cuda_latent *l, cudaStream_t stream)
{
    const dim3 grid = grid_of(l, l->values / TILE);
    if (l->a.dtype == TRM_F16) {
        launch_overlapped(latent_product<__half, false>, grid, THREADS, 0, stream, *l);
    } else {
        launch_overlapped(latent_product<__nv_bfloat16, false>, grid, THREADS, 0, stream, *l);
    }
    return trm_cuda_launched("cuda.latent_attention values");
}
