/*
 * The step's latents and rope keys into the paged cache, bound by device memory: each is read once and written once.
 * And the plan of cuda_hopper.cu: how many tiles of keys there are before those of each sequence.
 */
#include "attention/cuda/geometry.h"
#include "attention/latent/cuda.h"
#include "kernels/cuda/common.cuh"

/* By one warp: sequences in runs of 32, with a sum over the lanes. */
static __device__ void make_plan(const trm_cuda_latent &l, int lane)
{
    const trm_cuda_attention &a = l.a;
    int32_t total = 0, units = 0, longest = 0;
    for (int32_t base = 0; base < a.sequences; base += 32) {
        int32_t s = base + lane, tiles = 0, count = 0;
        if (s < a.sequences) {
            int32_t queries = a.starts[s + 1] - a.starts[s];
            int32_t rows = TRM_LATENT_ROWS * l.width;
            count = queries <= 0 ? 0 : (queries * a.query_heads + rows - 1) / rows;
            tiles = (trm_cuda_latent_keys(l, s, queries) + TRM_LATENT_KEYS - 1) / TRM_LATENT_KEYS;
            count = tiles > 0 ? count : 0;
            longest = count > 0 && tiles > longest ? tiles : longest;
            units += count;
        }
        int32_t own = count * tiles, sum = own;
#pragma unroll
        for (int offset = 1; offset < 32; offset *= 2) {
            int32_t other = __shfl_up_sync(0xffffffffu, sum, offset);
            sum += lane >= offset ? other : 0;
        }
        if (s < a.sequences) {
            l.plan[s] = total + sum - own;
        }
        total += __shfl_sync(0xffffffffu, sum, 31);
    }
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) {
        int32_t other = __shfl_xor_sync(0xffffffffu, longest, offset);
        longest = other > longest ? other : longest;
        units += __shfl_xor_sync(0xffffffffu, units, offset);
    }
    if (lane == 0) {
        l.plan[a.sequences] = total;
        l.plan[a.sequences + 1] = units;
        l.plan[a.sequences + 2] = longest;
    }
}

/* One token per block and pass, 128 threads, in units of 2 to 16 bytes; `units`, `rope_units`: of one token. */
template <typename Unit>
static __global__ void __launch_bounds__(128) store_latents(trm_cuda_latent l, int32_t units, int32_t rope_units)
{
    const trm_cuda_attention &a = l.a;
    begin_overlapped();
    if (l.plan != NULL && blockIdx.x == 0 && threadIdx.x < 32) {
        make_plan(l, (int)threadIdx.x);
    }
    for (int32_t token = blockIdx.x; token < a.tokens; token += gridDim.x) {
        int32_t sequence = trm_attention_sequence_of(a.starts, a.sequences, token);
        if (sequence < 0) {
            continue;
        }
        int32_t position = a.lengths[sequence] - (a.starts[sequence + 1] - token), block = position / a.block_size;
        if (position < 0 || block >= a.table_blocks) { /* past what the caller's table covers */
            continue;
        }
        int64_t row =
            (int64_t)a.table[(int64_t)sequence * a.table_blocks + block] * a.block_size + position % a.block_size;
        const Unit *latent = (const Unit *)a.k + (int64_t)token * units;
        const Unit *rope = (const Unit *)a.v + (int64_t)token * rope_units;
        Unit *to = (Unit *)a.key_cache + row * (units + rope_units);
        for (int i = threadIdx.x; i < units + rope_units; i += blockDim.x) {
            to[i] = i < units ? latent[i] : rope[i - units];
        }
    }
}

trm_status trm_cuda_latent_store(const trm_cuda_latent *l, cudaStream_t stream)
{
    const trm_cuda_attention *a = &l->a;
    const size_t element = trm_dtype_size(a->dtype);
    const size_t bytes = (size_t)a->value_dim * element, rope_bytes = (size_t)l->rotated * element;
    const bool wide = bytes % 16 == 0 && rope_bytes % 16 == 0 && trm_aligned16(a->k) && trm_aligned16(a->v) &&
                      trm_aligned16(a->key_cache);
    const unsigned grid = (unsigned)(a->tokens < 65536 ? a->tokens : 65536);
    if (wide) {
        launch_overlapped(store_latents<uint4>, grid, 128, 0, stream, *l, (int32_t)(bytes / 16),
                          (int32_t)(rope_bytes / 16));
    } else if (element == 4) {
        launch_overlapped(store_latents<uint32_t>, grid, 128, 0, stream, *l, (int32_t)(bytes / 4),
                          (int32_t)(rope_bytes / 4));
    } else {
        launch_overlapped(store_latents<uint16_t>, grid, 128, 0, stream, *l, (int32_t)(bytes / 2),
                          (int32_t)(rope_bytes / 2));
    }
    return trm_cuda_launched("cuda.latent_attention store");
}
