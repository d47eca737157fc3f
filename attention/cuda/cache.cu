/* The step's keys and values into the paged cache. Bound by device memory: each vector is read once and written once.
 */
#include "attention/cuda/fp8.cuh"
#include "attention/cuda/rows.cuh"

/* The row of the cache that a token goes to, or -1: of no sequence, in another rank's share, or past what the caller's
 * table covers. */
static __device__ __forceinline__ int64_t row_of(const trm_cuda_attention &a, int32_t token)
{
    int32_t sequence = trm_attention_sequence_of(a.starts, a.sequences, token);
    if (sequence < 0) {
        return -1;
    }
    int32_t position = a.lengths[sequence] - (a.starts[sequence + 1] - token);
    if (a.share.ranks > 1 && position >= 0) {
        position = trm_cache_share_place(a.share, position);
    }
    int32_t block = position / a.block_size;
    if (position < 0 || block >= a.table_blocks) {
        return -1;
    }
    return (int64_t)a.table[(int64_t)sequence * a.table_blocks + block] * a.block_size + position % a.block_size;
}

/* One token per block and pass, 128 threads, in units of 2 to 16 bytes; k_units, v_units: of one token. */
template <typename Unit>
static __global__ void __launch_bounds__(128) store_tokens(trm_cuda_attention a, int32_t k_units, int32_t v_units)
{
    begin_overlapped();
    if (a.next_tile != NULL && blockIdx.x == 0 && threadIdx.x == 0) {
        *a.next_tile = 0;
    }
    for (int32_t token = blockIdx.x; token < a.tokens; token += gridDim.x) {
        int64_t row = row_of(a, token);
        if (row < 0) {
            continue;
        }
        const Unit *k = (const Unit *)a.k + (int64_t)token * k_units, *v = (const Unit *)a.v + (int64_t)token * v_units;
        Unit *keys = (Unit *)a.key_cache + row * k_units, *values = (Unit *)a.value_cache + row * v_units;
        for (int i = threadIdx.x; i < k_units + v_units; i += blockDim.x) {
            if (i < k_units) {
                keys[i] = k[i];
            } else {
                values[i - k_units] = v[i - k_units];
            }
        }
    }
}

/* The same into an e4m3 cache, RUN elements at a time: 8, whose addresses are multiples of 16, or 1. */
template <typename T, int RUN> static __global__ void __launch_bounds__(128) store_f8(trm_cuda_attention a)
{
    begin_overlapped();
    if (a.next_tile != NULL && blockIdx.x == 0 && threadIdx.x == 0) {
        *a.next_tile = 0;
    }
    int32_t k_width = a.kv_heads * a.dim, v_width = a.kv_heads * a.value_dim;
    for (int32_t token = blockIdx.x; token < a.tokens; token += gridDim.x) {
        int64_t row = row_of(a, token);
        if (row < 0) {
            continue;
        }
        for (int32_t i = (int32_t)threadIdx.x * RUN; i < k_width + v_width; i += (int32_t)blockDim.x * RUN) {
            bool is_key = i < k_width;
            const T *from = is_key ? (const T *)a.k + (int64_t)token * k_width + i
                                   : (const T *)a.v + (int64_t)token * v_width + i - k_width;
            uint8_t *to = is_key ? (uint8_t *)a.key_cache + row * k_width + i
                                 : (uint8_t *)a.value_cache + row * v_width + i - k_width;
            float inverse = is_key ? a.key_inverse : a.value_inverse;
            if (RUN == 8) {
                float values[8];
                load8(from, values);
                *(uint2 *)to = f8_pack8(values, inverse);
            } else {
                *to = f8_of(__fmul_rn(to_float(*from), inverse));
            }
        }
    }
}

static trm_status launch_f8(const trm_cuda_attention *a, unsigned grid, cudaStream_t stream)
{
    bool wide = a->kv_heads * a->dim % 8 == 0 && a->kv_heads * a->value_dim % 8 == 0 && trm_aligned16(a->k) &&
                trm_aligned16(a->v) && trm_aligned16(a->key_cache) && trm_aligned16(a->value_cache);
    if (wide) {
        DISPATCH_FLOAT(a->dtype, launch_overlapped(store_f8<T, 8>, grid, 128, 0, stream, *a));
    } else {
        DISPATCH_FLOAT(a->dtype, launch_overlapped(store_f8<T, 1>, grid, 128, 0, stream, *a));
    }
    return trm_cuda_launched("cuda.attention store");
}

trm_status trm_cuda_attention_store(const trm_cuda_attention *a, cudaStream_t stream)
{
    size_t element = trm_dtype_size(a->dtype);
    size_t k_bytes = (size_t)a->kv_heads * (size_t)a->dim * element,
           v_bytes = (size_t)a->kv_heads * (size_t)a->value_dim * element;
    bool wide = k_bytes % 16 == 0 && v_bytes % 16 == 0 && trm_aligned16(a->k) && trm_aligned16(a->v) &&
                trm_aligned16(a->key_cache) && trm_aligned16(a->value_cache);
    unsigned grid = (unsigned)(a->tokens < 65536 ? a->tokens : 65536);
    if (a->cache_f8) {
        return launch_f8(a, grid, stream);
    }
    if (wide) {
        launch_overlapped(store_tokens<uint4>, grid, 128, 0, stream, *a, (int32_t)(k_bytes / 16),
                          (int32_t)(v_bytes / 16));
    } else if (element == 4) {
        launch_overlapped(store_tokens<uint32_t>, grid, 128, 0, stream, *a, (int32_t)(k_bytes / 4),
                          (int32_t)(v_bytes / 4));
    } else {
        launch_overlapped(store_tokens<uint16_t>, grid, 128, 0, stream, *a, (int32_t)(k_bytes / 2),
                          (int32_t)(v_bytes / 2));
    }
    return trm_cuda_launched("cuda.attention store");
}
