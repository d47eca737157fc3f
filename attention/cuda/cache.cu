/* The step's keys and values into the paged cache. Bound by device memory: each vector is read once and written once.
 */
#include "attention/cuda/rows.cuh"

/* One token per block and pass, 128 threads, in units of 2 to 16 bytes; k_units, v_units: of one token. */
template <typename Unit>
static __global__ void __launch_bounds__(128) store_tokens(trm_cuda_attention a, int32_t k_units, int32_t v_units)
{
    begin_overlapped();
    if (a.next_tile != NULL && blockIdx.x == 0 && threadIdx.x == 0) {
        *a.next_tile = 0;
    }
    for (int32_t token = blockIdx.x; token < a.tokens; token += gridDim.x) {
        int32_t sequence = trm_attention_sequence_of(a.starts, a.sequences, token);
        if (sequence < 0) {
            continue;
        }
        int32_t position = a.lengths[sequence] - (a.starts[sequence + 1] - token);
        int32_t block = position / a.block_size;
        if (position < 0 || block >= a.table_blocks) {
            continue; /* lengths that the caller's table does not cover: nothing is written past it */
        }
        int64_t row =
            (int64_t)a.table[(int64_t)sequence * a.table_blocks + block] * a.block_size + position % a.block_size;
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

trm_status trm_cuda_attention_store(const trm_cuda_attention *a, cudaStream_t stream)
{
    size_t element = trm_dtype_size(a->dtype);
    size_t k_bytes = (size_t)a->kv_heads * (size_t)a->dim * element,
           v_bytes = (size_t)a->kv_heads * (size_t)a->value_dim * element;
    bool wide = k_bytes % 16 == 0 && v_bytes % 16 == 0 && trm_aligned16(a->k) && trm_aligned16(a->v) &&
                trm_aligned16(a->key_cache) && trm_aligned16(a->value_cache);
    unsigned grid = (unsigned)(a->tokens < 65536 ? a->tokens : 65536);
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
