/*
 * Attention in f32 whose products may round their factors to TF32: the padded form on tensor cores. Bound by device
 * memory for short sequences.
 */
#include "attention/cuda/rows.cuh"

#define TF32_CHUNK 64 /* keys of a stage */
#define TF32_DIM   64
/* Floats between rows in shared memory. Keys: two rows that are read together, 16 floats of each, meet all banks;
 * values: four pairs of rows, 8 floats of each. */
#define KEY_STRIDE   (TF32_DIM + 16)
#define VALUE_STRIDE (TF32_DIM + 4)

/* c [16, 8] += a [16, 8] * b [8, 8] in TF32. Lane 4 g + t has: a0 (g, t), a1 (g + 8, t), a2 (g, t + 4), a3 (g + 8, t +
 * 4), b0 (t, g), b1 (t + 4, g), c as mma_16816. */
static __device__ __forceinline__ void mma_1688(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                                uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

static __device__ __forceinline__ uint32_t to_tf32(float x)
{
    uint32_t bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
    return bits;
}

/* Four floats as factors. */
static __device__ __forceinline__ void load_factors(const float *from, uint32_t (&to)[4])
{
    const float4 v = *(const float4 *)from;
    to[0] = to_tf32(v.x);
    to[1] = to_tf32(v.y);
    to[2] = to_tf32(v.z);
    to[3] = to_tf32(v.w);
}

/* Starts the copy of keys key .. key + 63 and their values; zeros from `end` on, and elements from `dim` on. */
template <int THREADS>
static __device__ __forceinline__ void load_stage(const trm_cuda_attention &a, const key_rows &places, float *k_tile,
                                                  float *v_tile, int32_t key)
{
    const int chunks = TF32_DIM / 4;
#pragma unroll
    for (int i = 0; i < TF32_CHUNK * chunks / THREADS; i++) {
        const int index = i * THREADS + (int)threadIdx.x, row = index / chunks, column = index % chunks * 4;
        const bool valid = key + row < a.keys && column < a.dim;
        const int64_t at = valid ? vector_of(places, key + row) * a.dim + column : 0;
        copy16_async(shared_address(k_tile + row * KEY_STRIDE + column), (const float *)a.k + at, valid);
        copy16_async(shared_address(v_tile + row * VALUE_STRIDE + column), (const float *)a.v + at, valid);
    }
}

/* scores [16, KEYS] = q k^T of a warp. The order of the dimension is free: lane t has 4 t .. 4 t + 3 of each 16. */
template <int KEYS>
static __device__ __forceinline__ void multiply_keys_tf32(float (&scores)[KEYS / 8][4],
                                                          const uint32_t (&q)[TF32_DIM / 16][2][4], const float *k_tile,
                                                          int lane)
{
    const float *mine = k_tile + lane / 4 * KEY_STRIDE + lane % 4 * 4;
#pragma unroll
    for (int j = 0; j < KEYS / 8; j++) {
        scores[j][0] = scores[j][1] = scores[j][2] = scores[j][3] = 0.0f;
#pragma unroll
        for (int step = 0; step < TF32_DIM / 16; step++) {
            uint32_t b[4];
            load_factors(mine + j * 8 * KEY_STRIDE + step * 16, b);
            mma_1688(scores[j], q[step][0][0], q[step][1][0], q[step][0][1], q[step][1][1], b[0], b[1]);
            mma_1688(scores[j], q[step][0][2], q[step][1][2], q[step][0][3], q[step][1][3], b[2], b[3]);
        }
    }
}

/* out += weights [16, KEYS] v of a warp. An accumulator of 8 keys is the left operand of the same keys, 2 t and 2 t + 1
 * of lane t. Tile j of out is elements 4 n + j of the first half of the dimension, of the second from 4 on, for n in 0
 * .. 7. */
template <int KEYS>
static __device__ __forceinline__ void
add_values_tf32(float (&out)[TF32_DIM / 8][4], const float (&weights)[KEYS / 8][4], const float *v_tile, int lane)
{
    const float *mine = v_tile + lane % 4 * 2 * VALUE_STRIDE + lane / 4 * 4;
#pragma unroll
    for (int i = 0; i < KEYS / 8; i++) {
        const uint32_t a0 = to_tf32(weights[i][0]), a1 = to_tf32(weights[i][2]);
        const uint32_t a2 = to_tf32(weights[i][1]), a3 = to_tf32(weights[i][3]);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            uint32_t b0[4], b1[4];
            load_factors(mine + i * 8 * VALUE_STRIDE + half * TF32_DIM / 2, b0);
            load_factors(mine + (i * 8 + 1) * VALUE_STRIDE + half * TF32_DIM / 2, b1);
#pragma unroll
            for (int j = 0; j < 4; j++) {
                mma_1688(out[half * 4 + j], a0, a1, a2, a3, b0[j], b1[j]);
            }
        }
    }
}

/* The output of a warp's 16 rows: a lane has 8 neighbours of each half of a row. */
static __device__ __forceinline__ void store_rows(const trm_cuda_attention &a, const key_rows &queries, int32_t first,
                                                  const float (&out)[TF32_DIM / 8][4], const float (&row_part)[2],
                                                  int lane)
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const float total = quad_sum(row_part[r]);
        const float scale = total == 0.0f ? 0.0f : 1.0f / total; /* no key seen: zeros */
        const int32_t query = first + lane / 4 + r * 8;
        if (query >= a.queries) {
            continue; /* after the shuffles of quad_sum: the four lanes share a row */
        }
        float *to = (float *)a.out + vector_of(queries, query) * a.dim;
#pragma unroll
        for (int half = 0; half < 2; half++) {
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const int column = half * TF32_DIM / 2 + lane % 4 * 8 + i * 4, c = 2 * r + i;
                if (column < a.dim) {
                    *(float4 *)(to + column) = make_float4(out[half * 4][c] * scale, out[half * 4 + 1][c] * scale,
                                                           out[half * 4 + 2][c] * scale, out[half * 4 + 3][c] * scale);
                }
            }
        }
    }
}

/* The step of the online softmax over KEYS keys of a chunk, their tiles in shared memory. */
template <int KEYS>
static __device__ __forceinline__ void
add_keys(const uint32_t (&q)[TF32_DIM / 16][2][4], const float *k_tile, const float *v_tile, const float *key_mask,
         float scale, float (&out)[TF32_DIM / 8][4], float (&row_max)[2], float (&row_part)[2], int lane)
{
    float scores[KEYS / 8][4], shrink[2];
    multiply_keys_tf32<KEYS>(scores, q, k_tile, lane);
#pragma unroll
    for (int j = 0; j < KEYS / 8; j++) {
        const float2 added = *(const float2 *)(key_mask + j * 8 + lane % 4 * 2);
        scores[j][0] = scores[j][0] * scale + added.x;
        scores[j][1] = scores[j][1] * scale + added.y;
        scores[j][2] = scores[j][2] * scale + added.x;
        scores[j][3] = scores[j][3] * scale + added.y;
    }
    softmax_step<KEYS>(scores, row_max, row_part, shrink);
#pragma unroll
    for (int j = 0; j < TF32_DIM / 8; j++) {
        out[j][0] *= shrink[0];
        out[j][1] *= shrink[0];
        out[j][2] *= shrink[1];
        out[j][3] *= shrink[1];
    }
    add_values_tf32<KEYS>(out, scores, v_tile, lane);
}

/*
 * A block takes 16 queries per warp of one sequence and one head, a lane's share of them in registers; keys and values
 * pass in chunks of 64 through two stages of shared memory, 37 KB each.
 */
template <int WARPS>
static __global__ void __launch_bounds__(32 * WARPS, WARPS == 8 ? 2 : 3) tf32_rows(trm_cuda_attention a)
{
    extern __shared__ __align__(16) float stages[];
    __shared__ float key_mask[2][TF32_CHUNK];
    const int threads = 32 * WARPS, rows = 16 * WARPS, stage_size = TF32_CHUNK * (KEY_STRIDE + VALUE_STRIDE);
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const int32_t tiles = (a.queries + rows - 1) / rows, head = (int32_t)(blockIdx.x % (unsigned)a.query_heads);
    const int32_t tile = (int32_t)(blockIdx.x / (unsigned)a.query_heads);
    const int32_t sequence = tile / tiles, start = tile % tiles * rows + warp * 16;
    const key_rows places = padded_rows_of(a, sequence, head / a.group, a.kv_heads, a.keys);
    const key_rows queries = padded_rows_of(a, sequence, head, a.query_heads, a.queries);
    begin_overlapped();
    load_stage<threads>(a, places, stages, stages + TF32_CHUNK * KEY_STRIDE, 0);
    copies_commit();
    uint32_t q[TF32_DIM / 16][2][4];
#pragma unroll
    for (int step = 0; step < TF32_DIM / 16; step++) {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const int32_t query = start + lane / 4 + r * 8, column = step * 16 + lane % 4 * 4;
            q[step][r][0] = q[step][r][1] = q[step][r][2] = q[step][r][3] = 0;
            if (query < a.queries && column < a.dim) {
                load_factors((const float *)a.q + vector_of(queries, query) * a.dim + column, q[step][r]);
            }
        }
    }
    float out[TF32_DIM / 8][4], row_max[2] = {-INFINITY, -INFINITY}, row_part[2] = {0.0f, 0.0f};
#pragma unroll
    for (int j = 0; j < TF32_DIM / 8; j++) {
        out[j][0] = out[j][1] = out[j][2] = out[j][3] = 0.0f;
    }
    const float scale = a.scale * LOG2_E;
    const bool idle = start >= a.queries;
    int stage = 0;
    for (int32_t key = 0; key < a.keys; key += TF32_CHUNK, stage ^= 1) {
        if (key + TF32_CHUNK < a.keys) {
            float *next = stages + (stage ^ 1) * stage_size;
            load_stage<threads>(a, places, next, next + TF32_CHUNK * KEY_STRIDE, key + TF32_CHUNK);
        }
        copies_commit();
        if ((int)threadIdx.x < TF32_CHUNK) {
            const int32_t at = key + (int32_t)threadIdx.x;
            key_mask[stage][threadIdx.x] = at >= a.keys     ? -INFINITY
                                           : a.mask == NULL ? 0.0f
                                                            : mask_log2(a, sequence, head, 0, at);
        }
        copies_wait<1>();
        __syncthreads();
        const float *k_tile = stages + stage * stage_size, *v_tile = k_tile + TF32_CHUNK * KEY_STRIDE;
        if (!idle && a.keys - key > 16) {
            add_keys<TF32_CHUNK>(q, k_tile, v_tile, key_mask[stage], scale, out, row_max, row_part, lane);
        } else if (!idle) { /* the 197 rows of a vision transformer end with 5 keys */
            add_keys<16>(q, k_tile, v_tile, key_mask[stage], scale, out, row_max, row_part, lane);
        }
        __syncthreads(); /* before this stage is filled again */
    }
    copies_wait<0>();
    store_rows(a, queries, start, out, row_part, lane);
}

bool trm_cuda_attention_takes_tf32(const trm_cuda_attention *a)
{
    const int64_t tiles = (a->queries + 63) / 64;
    return a->dtype == TRM_F32 && !a->packed && a->dim == a->value_dim && a->dim <= TF32_DIM && a->dim % 4 == 0 &&
           a->causal == TRM_CAUSAL_NONE && a->window <= 0 && !(a->softcap > 0.0f) &&
           (a->mask == NULL || a->mask_strides[2] == 0) && tiles * a->sequences * a->query_heads <= INT32_MAX;
}

template <int WARPS> static trm_status launch_rows(const trm_cuda_attention *a, cudaStream_t stream)
{
    const int rows = 16 * WARPS, shared = 2 * TF32_CHUNK * (KEY_STRIDE + VALUE_STRIDE) * (int)sizeof(float);
    const unsigned blocks =
        (unsigned)a->sequences * (unsigned)((a->queries + rows - 1) / rows) * (unsigned)a->query_heads;
    TRM_CUDA_TRY(cudaFuncSetAttribute(tf32_rows<WARPS>, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
    launch_overlapped(tf32_rows<WARPS>, blocks, 32 * WARPS, (size_t)shared, stream, *a);
    return trm_cuda_launched("cuda.attention tf32");
}

trm_status trm_cuda_attention_tf32(const trm_cuda_attention *a, cudaStream_t stream)
{
    /* Larger tiles read keys less often, smaller ones are more blocks. */
    const int64_t large = (int64_t)a->sequences * a->query_heads * ((a->queries + 127) / 128);
    return a->queries > 64 && large >= 132 ? launch_rows<8>(a, stream) : launch_rows<4>(a, stream);
}
