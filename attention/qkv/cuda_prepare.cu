/*
 * Queries, keys and values of a step with prompts: normalized, rotated, keys and values stored in the cache, for heads
 * of 64, 128 or 256 that are rotated as a whole, not interleaved. cuda.cu has the kernel for other heads, and what each
 * element becomes: this one gives the same bits.
 */
#include "attention/cuda/fp8.cuh"
#include "attention/qkv/cuda.cuh"

#define WARPS 4
#define BATCH 3 /* groups of heads that a warp has on their way at a time: of 48 heads of 128 all of its own */

/* The row of the cache that a token's key goes to, or -1 where its sequence's table has no place for it. */
static __device__ __forceinline__ int64_t row_in_cache(const trm_cuda_attention &a, int32_t token)
{
    int32_t sequence = trm_attention_sequence_of(a.starts, a.sequences, token);
    if (sequence < 0) {
        return -1;
    }
    int32_t key = a.lengths[sequence] - (a.starts[sequence + 1] - token);
    if (key < 0 || key / a.block_size >= a.table_blocks) {
        return -1;
    }
    key_rows rows = key_rows_of(a, sequence, 0, 0);
    rows.kv_heads = 1;
    return vector_of(rows, key);
}

/* 8 elements of a head and their partners, normalized with `weight` and rounded. LANES lanes have the head; the order
 * of the sum is prepare_head's. */
template <typename T, int LANES>
static __device__ __forceinline__ void normalise(const trm_cuda_qkv &p, const T *weight, int column, float *low,
                                                 float *high)
{
    float first = 0.0f, second = 0.0f;
#pragma unroll
    for (int j = 0; j < 8; j++) {
        first += low[j] * low[j];
    }
#pragma unroll
    for (int j = 0; j < 8; j++) {
        second += high[j] * high[j];
    }
    float total = first + second;
#pragma unroll
    for (int offset = LANES / 2; offset > 0; offset /= 2) {
        total += __shfl_xor_sync(0xffffffffu, total, offset);
    }
    if (weight == NULL) {
        return;
    }
    float scale = 1.0f / sqrtf(total / (float)p.a.dim + p.eps), w[8];
    load16(weight + column, w);
#pragma unroll
    for (int j = 0; j < 8; j++) {
        low[j] = low[j] * scale * (w[j] + p.weight_offset);
    }
    load16(weight + LANES * 8 + column, w);
#pragma unroll
    for (int j = 0; j < 8; j++) {
        high[j] = high[j] * scale * (w[j] + p.weight_offset);
    }
    unpack16<T>(pack16<T>(low), low);
    unpack16<T>(pack16<T>(high), high);
}

/* Block: a token, 128 threads; LANES lanes a head of 16 * LANES. Bound by device memory: qkv is read once and written
 * once, in two places. */
template <typename T, int LANES>
static __global__ void __launch_bounds__(WARPS * 32)
    prepare_whole(const __grid_constant__ trm_cuda_qkv p, T *queries, uint32_t *next_tile)
{
    constexpr int DIM = 16 * LANES, HALF = DIM / 2, HEADS = 32 / LANES;
    __shared__ __align__(16) float cosines[HALF], sines[HALF];
    __shared__ int64_t row;
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, column = lane % LANES * 8;
    int32_t hq = p.a.query_heads, hkv = p.a.kv_heads, all = hq + 2 * hkv;
    bool waited = false, normed = p.q_norm != NULL || p.k_norm != NULL;
    start_next();
    if (!p.early) {
        wait_for_previous();
        waited = true;
    }
    for (int32_t token = blockIdx.x; token < p.a.tokens; token += gridDim.x) {
        find_angles(p, token, cosines, sines);
        if (threadIdx.x == 0) {
            row = row_in_cache(p.a, token);
        }
        if (!waited) {
            wait_for_previous();
            waited = true;
        }
        if (token == 0 && threadIdx.x == 0) {
            *next_tile = 0;
        }
        bool is_first = true;
        for (int32_t group = warp; is_first || group * HEADS < all; group += WARPS * BATCH) {
            uint4 raw[BATCH][2];
#pragma unroll
            for (int b = 0; b < BATCH; b++) {
                int32_t head = (group + b * WARPS) * HEADS + lane / LANES;
                raw[b][0] = raw[b][1] = make_uint4(0, 0, 0, 0);
                if (head < all) {
                    const T *from = head_of<T>(p, token, head) + column;
                    raw[b][0] = *(const uint4 *)from;
                    raw[b][1] = *(const uint4 *)(from + HALF);
                }
            }
            if (is_first) {
                __syncthreads(); /* the angles and the row */
                is_first = false;
            }
#pragma unroll
            for (int b = 0; b < BATCH; b++) {
                int32_t head = (group + b * WARPS) * HEADS + lane / LANES;
                bool rotates = head < hq + hkv;
                float low[8], high[8];
                unpack16<T>(raw[b][0], low);
                unpack16<T>(raw[b][1], high);
                if (normed) { /* of all lanes, as they add up together */
                    normalise<T, LANES>(p,
                                        (const T *)(head < hq ? p.q_norm
                                                    : rotates ? p.k_norm
                                                              : NULL),
                                        column, low, high);
                }
                if (rotates) {
                    float rotated_low[8], rotated_high[8];
#pragma unroll
                    for (int j = 0; j < 8; j++) {
                        float u = low[j], v = high[j], c = cosines[column + j], s = sines[column + j];
                        rotated_low[j] = u * c - v * s;
                        rotated_high[j] = v * c + u * s;
                    }
                    raw[b][0] = pack16<T>(rotated_low);
                    raw[b][1] = pack16<T>(rotated_high);
                }
                T *to = queries + ((int64_t)token * hq + head) * DIM;
                if (head >= hq) {
                    void *cache = rotates ? p.a.key_cache : p.a.value_cache;
                    int64_t at = (row * hkv + (head - (rotates ? hq : hq + hkv))) * DIM;
                    to = (T *)cache + at;
                    if (p.a.cache_f8 && head < all && row >= 0) {
                        float inverse = rotates ? p.a.key_inverse : p.a.value_inverse;
                        uint8_t *bytes = (uint8_t *)cache + at + column;
                        *(uint2 *)bytes = f8_pack8_of<T>(raw[b][0], inverse);
                        *(uint2 *)(bytes + HALF) = f8_pack8_of<T>(raw[b][1], inverse);
                    }
                }
                if (head < hq || (head < all && row >= 0 && !p.a.cache_f8)) {
                    *(uint4 *)(to + column) = raw[b][0];
                    *(uint4 *)(to + column + HALF) = raw[b][1];
                }
            }
        }
        __syncthreads(); /* before the next token's angles */
    }
}

bool trm_cuda_qkv_prepares_whole(const trm_cuda_qkv *qkv)
{
    return !qkv->apart && !qkv->rope.interleaved && qkv->rope.rotary_dim == qkv->a.dim &&
           (qkv->a.dim == 64 || qkv->a.dim == 128 || qkv->a.dim == 256);
}

template <typename T>
static void launch(const trm_cuda_qkv *qkv, void *queries, uint32_t *next_tile, cudaStream_t stream)
{
    dim3 grid((unsigned)(qkv->a.tokens < 1 << 20 ? qkv->a.tokens : 1 << 20));
    void (*kernel)(trm_cuda_qkv, T *, uint32_t *) = qkv->a.dim == 64    ? prepare_whole<T, 4>
                                                    : qkv->a.dim == 128 ? prepare_whole<T, 8>
                                                                        : prepare_whole<T, 16>;
    launch_overlapped(kernel, grid, WARPS * 32, 0, stream, *qkv, (T *)queries, next_tile);
}

trm_status trm_cuda_qkv_prepare_whole(const trm_cuda_qkv *qkv, void *queries, uint32_t *next_tile, cudaStream_t stream)
{
    if (qkv->a.dtype == TRM_F16) {
        launch<__half>(qkv, queries, next_tile, stream);
    } else {
        launch<__nv_bfloat16>(qkv, queries, next_tile, stream);
    }
    return trm_cuda_launched("cuda.qkv_attention prepare");
}
