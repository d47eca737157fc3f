/*
 * The pipeline of the kernels that decode through shared memory: a block's query heads, up to 16, against a range of
 * keys of one sequence and key-value head. Each of its 4 warps takes every fourth run of 16 keys, with its own stages
 * of shared memory and its own softmax; no barrier until the end, when the warps' sums are joined.
 */
#ifndef TRM_ATTENTION_CUDA_STAGES_CUH
#define TRM_ATTENTION_CUDA_STAGES_CUH

#include "attention/cuda/rows.cuh"

#define STAGE_KEYS 16 /* per warp and step */

/* GPUs before Hopper and of 12.x have less shared memory: fewer stages of a warp and, with heads of 256, fewer warps.
 */
#if defined(__CUDA_ARCH__) && (__CUDA_ARCH__ < 900 || __CUDA_ARCH__ >= 1200)
#define STAGES_FOR_HOPPER false
#else
#define STAGES_FOR_HOPPER true
#endif

/* Dynamic shared memory of a block, with DP + 8 elements from row to row: q, then per warp stages of keys and values.
 * In place of the stages, at the end, the warps' sums and the block's. */
template <typename T, int DP, bool HOPPER = STAGES_FOR_HOPPER> struct stage_shape {
    static const int stages = HOPPER ? 3 : 2;
    static const int warps = HOPPER || DP <= 128 ? 4 : 2, threads = warps * 32;
    static const int step = warps * STAGE_KEYS; /* keys of all warps */
    static const int stride = DP + 8;
    static const int tile = STAGE_KEYS * stride;      /* elements */
    static const int warp_sums = warps * 16 * stride; /* floats */
    static const int bytes = (16 * stride + warps * stages * 2 * tile) * (int)sizeof(T);
    static_assert(HOPPER || bytes <= 99 * 1024, "GPUs of 8.6, 8.9 and 12.0 have no more");
    static_assert((warp_sums + 16 * DP) * sizeof(float) <= warps * stages * 2 * tile * sizeof(T),
                  "the sums fit where the stages were");
};

/* A launch's threads and bytes of shared memory, for the code that runs on the current device. */
template <typename T, int DP> static void stage_launch(int *threads, int *bytes)
{
    const int code = trm_cuda_code();
    const bool hopper = code >= 90 && code < 120;
    *threads = hopper ? stage_shape<T, DP, true>::threads : stage_shape<T, DP, false>::threads;
    *bytes = hopper ? stage_shape<T, DP, true>::bytes : stage_shape<T, DP, false>::bytes;
}

/* What a block knows of its query heads: maxima in log2 units and sums of weights. */
template <typename T, int DP> struct stage_state {
    float warps[stage_shape<T, DP>::warps][16][2];
    float block[16][2];
};

/* Starts the copies of 16 keys and their values by a warp. Most tiles lie in one block of the cache and are whole: one
 * look into the table, and addresses that follow from each other. */
template <typename T, int DP>
static __device__ __forceinline__ void copy_tile(const trm_cuda_attention &a, const key_rows &places, T *k_tile,
                                                 T *v_tile, int32_t key, int32_t end, int lane)
{
    const int stride = stage_shape<T, DP>::stride, chunks = DP / 8;
    const T *keys = (const T *)a.key_cache, *values = (const T *)a.value_cache;
    uint32_t size = (uint32_t)places.block_size, block = (uint32_t)key / size, offset = (uint32_t)key - block * size;
    if (offset + STAGE_KEYS > size || key + STAGE_KEYS > end || a.dim != DP) {
        load_keys_values<T, STAGE_KEYS, DP, stride, 32>(places, keys, values, k_tile, v_tile, key, end, a.dim, lane);
        return;
    }
    int64_t step = (int64_t)places.kv_heads * DP; /* from one key to the next */
    int64_t first = ((int64_t)places.table[block] * size + offset) * step + places.kv_head * DP;
#pragma unroll
    for (int i = 0; i < STAGE_KEYS * chunks / 32; i++) {
        int index = i * 32 + lane, row = index / chunks, column = index % chunks * 8;
        int64_t at = first + row * step + column;
        copy16_async(shared_address(k_tile + row * stride + column), keys + at, true);
        copy16_async(shared_address(v_tile + row * stride + column), values + at, true);
    }
}

/* Starts the copies of this warp's first stages. */
template <typename T, int DP>
static __device__ __forceinline__ void start_copies(const trm_cuda_attention &a, const key_rows &places, T *stages,
                                                    int32_t first_key, int32_t end, int lane)
{
    const int tile = stage_shape<T, DP>::tile;
#pragma unroll
    for (int s = 0; s < stage_shape<T, DP>::stages - 1; s++) {
        int32_t key = first_key + s * stage_shape<T, DP>::step;
        T *k_tile = stages + s * 2 * tile;
        if (key < end) {
            copy_tile<T, DP>(a, places, k_tile, k_tile + tile, key, end, lane);
        }
        copies_commit();
    }
}

/* The block's keys begin .. end - 1 against its query heads, whose first stages are on their way: sums [16][DP] behind
 * the warps' sums, maxima and sums of weights in `state`. Key number `newest`, if not -1, and its value are in `fresh`,
 * not yet in the cache. */
template <typename T, int DP>
static __device__ __forceinline__ void walk_keys(const trm_cuda_attention &a, int32_t heads, const key_rows &places,
                                                 T *q_tile, stage_state<T, DP> *state, int32_t begin, int32_t end,
                                                 int32_t newest, const T (*fresh)[DP], int warp, int lane)
{
    const int stages_of = stage_shape<T, DP>::stages;
    const int stride = stage_shape<T, DP>::stride, tile = stage_shape<T, DP>::tile;
    const bool keep_q = DP <= 128;
    T *stages = q_tile + 16 * stride + warp * stages_of * 2 * tile;
    uint32_t q[DP / 16][4], q_at = a_address(q_tile, stride, lane);
    if (keep_q) {
#pragma unroll
        for (int step = 0; step < DP / 16; step++) {
            load_matrices(q[step], q_at + step * 32);
        }
    }
    float out[DP / 8][4], row_max[2] = {-INFINITY, -INFINITY}, row_part[2] = {0.0f, 0.0f};
#pragma unroll
    for (int j = 0; j < DP / 8; j++) {
        out[j][0] = out[j][1] = out[j][2] = out[j][3] = 0.0f;
    }
    int stage = 0;
    for (int32_t key = begin + warp * STAGE_KEYS; key < end; key += stage_shape<T, DP>::step) {
        copies_wait<stages_of - 2>(); /* this step's keys and values */
        __syncwarp();                 /* of all lanes; and all are done with the stage filled next */
        int32_t ahead = key + (stages_of - 1) * stage_shape<T, DP>::step;
        int filled = stage == 0 ? stages_of - 1 : stage - 1;
        T *next = stages + filled * 2 * tile;
        if (ahead < end) {
            copy_tile<T, DP>(a, places, next, next + tile, ahead, end, lane);
        }
        copies_commit();
        T *k_tile = stages + stage * 2 * tile, *v_tile = k_tile + tile;
        if (newest >= key && newest < key + STAGE_KEYS) { /* what was copied there is older */
            for (int i = lane; i < DP / 4; i += 32) {
                bool is_value = i >= DP / 8;
                int column = (is_value ? i - DP / 8 : i) * 8;
                *(uint4 *)((is_value ? v_tile : k_tile) + (newest - key) * stride + column) =
                    *(const uint4 *)(fresh[is_value] + column);
            }
            __syncwarp();
        }
        float scores[STAGE_KEYS / 8][4], shrink[2];
        multiply_keys<T, STAGE_KEYS, DP, stride>(scores, keep_q ? q : NULL, q_at, b_address(k_tile, stride, lane));
#pragma unroll
        for (int j = 0; j < STAGE_KEYS / 8; j++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                bool seen = key + j * 8 + lane % 4 * 2 + i % 2 < end;
                scores[j][i] = seen ? score_log2(scores[j][i], a.scale, a.softcap) : -INFINITY;
            }
        }
        softmax_step<STAGE_KEYS>(scores, row_max, row_part, shrink);
        add_values<T, STAGE_KEYS, DP, stride>(out, scores, shrink, bt_address(v_tile, stride, lane));
        stage = stage == stages_of - 1 ? 0 : stage + 1;
    }
    copies_wait<0>();
    __syncthreads(); /* every warp is done with its stages: their memory holds the sums now */
    float *sums = (float *)(q_tile + 16 * stride);
#pragma unroll
    for (int r = 0; r < 2; r++) {
        int row = lane / 4 + r * 8;
        float total = quad_sum(row_part[r]);
        if (lane % 4 == 0) {
            state->warps[warp][row][0] = row_max[r];
            state->warps[warp][row][1] = total;
        }
        if (row < heads) {
#pragma unroll
            for (int j = 0; j < DP / 8; j++) {
                float2 pair = make_float2(out[j][2 * r], out[j][2 * r + 1]);
                *(float2 *)(sums + (warp * 16 + row) * stride + j * 8 + lane % 4 * 2) = pair;
            }
        }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < heads * DP; i += (stage_shape<T, DP>::threads)) {
        int row = i / DP, column = i % DP;
        float largest = -INFINITY, value = 0.0f, total = 0.0f;
#pragma unroll
        for (int w = 0; w < stage_shape<T, DP>::warps; w++) {
            largest = fmaxf(largest, state->warps[w][row][0]);
        }
        float base = largest == -INFINITY ? 0.0f : largest;
#pragma unroll
        for (int w = 0; w < stage_shape<T, DP>::warps; w++) {
            float shrink = exp2f(state->warps[w][row][0] - base);
            value += shrink * sums[(w * 16 + row) * stride + column];
            total += shrink * state->warps[w][row][1];
        }
        sums[stage_shape<T, DP>::warp_sums + i] = value;
        if (column == 0) {
            state->block[row][0] = largest;
            state->block[row][1] = total;
        }
    }
}

#endif
