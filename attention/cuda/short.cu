/*
 * Attention of many short sequences, the padded form of encoders: all keys and values of a head lie in shared memory at
 * once, so that nothing is waited for but their arrival. Bound by device memory (q, k, v and out once) where there are
 * many sequences, by the length of the way through one block where there are few.
 */
#include "attention/cuda/rows.cuh"

#define SHORT_CHUNK  64 /* keys that are waited for together */
#define SHORT_CHUNKS 4
#define SHORT_DIM    64

/* Copies are in flight in groups, one per chunk; waits until `left` of them at most are. */
static __device__ __forceinline__ void wait_for_chunks(int left)
{
    switch (left) {
    case 0:
        copies_wait<0>();
        break;
    case 1:
        copies_wait<1>();
        break;
    case 2:
        copies_wait<2>();
        break;
    default:
        copies_wait<3>();
    }
}

/* Eight floats as QUANTIZE makes i8 of them; NaN becomes 0. */
static __device__ __forceinline__ uint2 numbers_of(const float (&v)[8], float scale)
{
    uint32_t words[2] = {};
#pragma unroll
    for (int i = 0; i < 8; i++) {
        words[i / 4] |= ((uint32_t)min(max(__float2int_rn(v[i] / scale), -128), 127) & 0xff) << i % 4 * 8;
    }
    return make_uint2(words[0], words[1]);
}

/* The output of a warp's 16 rows: lanes of a row exchange, so that each stores 16 bytes. */
template <typename T>
static __device__ __forceinline__ void store_rows(const trm_cuda_attention &a, const key_rows &queries, int32_t first,
                                                  const float (&out)[SHORT_DIM / 8][4], const float (&row_part)[2],
                                                  int lane)
{
    const float number_scale =
        a.number_scale != NULL ? trm_element_load_f32(a.number_scale_type, a.number_scale, 0) : 1.0f;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const float total = quad_sum(row_part[r]);
        const float scale = total == 0.0f ? 0.0f : 1.0f / total; /* no key seen: zeros */
        const int32_t query = first + lane / 4 + r * 8;
        T *to = (T *)a.out + (query < a.queries ? vector_of(queries, query) : 0) * a.dim;
#pragma unroll
        for (int j = 0; j < SHORT_DIM / 8; j += 4) {
            /* This lane has pair `lane % 4` of the eights j .. j + 3, and is to have eight j + lane % 4. */
            uint32_t mine[4], whole[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                mine[i] = pack2(out[j + i][2 * r] * scale, out[j + i][2 * r + 1] * scale, T());
            }
#pragma unroll
            for (int turn = 0; turn < 4; turn++) { /* with lane % 4 ^ turn */
                const int peer = lane % 4 ^ turn;
                const uint32_t give = peer == 0 ? mine[0] : peer == 1 ? mine[1] : peer == 2 ? mine[2] : mine[3];
                const uint32_t got = __shfl_xor_sync(0xffffffffu, give, turn);
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    whole[i] = i == peer ? got : whole[i];
                }
            }
            const int column = (j + lane % 4) * 8;
            if (query < a.queries && column < a.dim) {
                if (a.number_scale == NULL) {
                    *(uint4 *)(to + column) = make_uint4(whole[0], whole[1], whole[2], whole[3]);
                } else {
                    float v[8];
                    unpack16<T>(make_uint4(whole[0], whole[1], whole[2], whole[3]), v);
                    *(uint2 *)((int8_t *)a.out + (to - (T *)a.out) + column) = numbers_of(v, number_scale);
                }
            }
        }
    }
}

/* The step of the online softmax over KEYS keys of a chunk, their tiles in shared memory. */
template <typename T, int KEYS>
static __device__ __forceinline__ void
add_keys(const uint32_t (&q)[SHORT_DIM / 16][4], const T *k_tile, const T *v_tile, const float *key_mask, float scale,
         float (&out)[SHORT_DIM / 8][4], float (&row_max)[2], float (&row_part)[2], int lane)
{
    const int stride = SHORT_DIM + 8;
    float scores[KEYS / 8][4], shrink[2];
    multiply_keys<T, KEYS, SHORT_DIM, stride>(scores, q, 0, b_address(k_tile, stride, lane));
#pragma unroll
    for (int j = 0; j < KEYS / 8; j++) {
        const float2 added = *(const float2 *)(key_mask + j * 8 + lane % 4 * 2);
        scores[j][0] = scores[j][0] * scale + added.x;
        scores[j][1] = scores[j][1] * scale + added.y;
        scores[j][2] = scores[j][2] * scale + added.x;
        scores[j][3] = scores[j][3] * scale + added.y;
    }
    softmax_step<KEYS>(scores, row_max, row_part, shrink);
    add_values<T, KEYS, SHORT_DIM, stride>(out, scores, shrink, bt_address(v_tile, stride, lane));
}

/*
 * A block takes 16 queries per warp of one sequence and one head. Shared memory: the queries, then `chunks` * 64 keys
 * and as many values in rows of 2 * 64 + 16 bytes (the 16 keep ldmatrix free of bank conflicts), then what the mask
 * adds to each key's score: 83 KB for 128 queries and 256 keys, 56 for 128 and 128.
 */
template <typename T, int WARPS>
static __global__ void __launch_bounds__(32 * WARPS, 16 / WARPS) short_rows(trm_cuda_attention a, int chunks)
{
    extern __shared__ __align__(16) unsigned char shared[];
    const int stride = SHORT_DIM + 8, threads = 32 * WARPS, rows = 16 * WARPS;
    T *q_tile = (T *)shared, *k_tile = q_tile + rows * stride, *v_tile = k_tile + chunks * SHORT_CHUNK * stride;
    float *key_mask = (float *)(v_tile + chunks * SHORT_CHUNK * stride);
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const int32_t tiles = (a.queries + rows - 1) / rows, head = (int32_t)(blockIdx.x % (unsigned)a.query_heads);
    const int32_t tile = (int32_t)(blockIdx.x / (unsigned)a.query_heads);
    const int32_t sequence = tile / tiles, start = tile % tiles * rows;
    const key_rows places = padded_rows_of(a, sequence, head / a.group, a.kv_heads, a.keys);
    const key_rows queries = padded_rows_of(a, sequence, head, a.query_heads, a.queries);
    begin_overlapped();
#pragma unroll
    for (int i = 0; i < rows * SHORT_DIM / 8 / threads; i++) {
        const int index = i * threads + (int)threadIdx.x, row = index / (SHORT_DIM / 8);
        const int column = index % (SHORT_DIM / 8) * 8;
        const bool valid = start + row < a.queries && column < a.dim;
        const int64_t at = valid ? vector_of(queries, start + row) * a.dim + column : 0;
        copy16_async(shared_address(q_tile + row * stride + column), (const T *)a.q + at, valid);
    }
    for (int chunk = 0; chunk < chunks; chunk++) {
        const int at = chunk * SHORT_CHUNK;
        load_keys_values<T, SHORT_CHUNK, SHORT_DIM, stride, threads>(places, (const T *)a.k, (const T *)a.v,
                                                                     k_tile + at * stride, v_tile + at * stride, at,
                                                                     a.keys, a.dim, (int)threadIdx.x);
        copies_commit();
    }
    for (int key = (int)threadIdx.x; key < chunks * SHORT_CHUNK; key += threads) {
        const bool valid = key < a.keys;
        key_mask[key] = !valid ? -INFINITY : a.mask == NULL ? 0.0f : mask_log2(a, sequence, head, 0, key);
    }

    uint32_t q[SHORT_DIM / 16][4];
    float out[SHORT_DIM / 8][4], row_max[2] = {-INFINITY, -INFINITY}, row_part[2] = {0.0f, 0.0f};
    const float scale = a.scale * LOG2_E;
    const bool idle = start + warp * 16 >= a.queries;
#pragma unroll
    for (int j = 0; j < SHORT_DIM / 8; j++) {
        out[j][0] = out[j][1] = out[j][2] = out[j][3] = 0.0f;
    }
    for (int chunk = 0; chunk < chunks; chunk++) {
        const int at = chunk * SHORT_CHUNK;
        wait_for_chunks(chunks - 1 - chunk);
        __syncthreads();
        if (chunk == 0) {
            const uint32_t q_at = a_address(q_tile + warp * 16 * stride, stride, lane);
#pragma unroll
            for (int step = 0; step < SHORT_DIM / 16; step++) {
                load_matrices(q[step], q_at + step * 32);
            }
        }
        if (idle) {
            continue;
        }
        if (a.keys - at > 16) {
            add_keys<T, SHORT_CHUNK>(q, k_tile + at * stride, v_tile + at * stride, key_mask + at, scale, out, row_max,
                                     row_part, lane);
        } else { /* the 197 rows of a vision transformer end with 5 keys */
            add_keys<T, 16>(q, k_tile + at * stride, v_tile + at * stride, key_mask + at, scale, out, row_max, row_part,
                            lane);
        }
    }
    store_rows<T>(a, queries, start + warp * 16, out, row_part, lane);
}

bool trm_cuda_attention_is_short(const trm_cuda_attention *a)
{
    const int64_t tiles = (a->queries + 63) / 64;
    return !a->packed && a->dim == a->value_dim && a->dim <= SHORT_DIM && a->dim % 8 == 0 &&
           a->keys <= SHORT_CHUNKS * SHORT_CHUNK && a->causal == TRM_CAUSAL_NONE && a->window <= 0 &&
           !(a->softcap > 0.0f) && (a->mask == NULL || a->mask_strides[2] == 0) &&
           tiles * a->sequences * a->query_heads <= INT32_MAX;
}

template <typename T, int WARPS> static trm_status launch_rows(const trm_cuda_attention *a, cudaStream_t stream)
{
    const int rows = 16 * WARPS, chunks = a->keys > 0 ? (a->keys + SHORT_CHUNK - 1) / SHORT_CHUNK : 1;
    const int shared = (rows + 2 * chunks * SHORT_CHUNK) * (SHORT_DIM + 8) * (int)sizeof(T) +
                       chunks * SHORT_CHUNK * (int)sizeof(float);
    const unsigned blocks =
        (unsigned)a->sequences * (unsigned)((a->queries + rows - 1) / rows) * (unsigned)a->query_heads;
    TRM_CUDA_TRY(cudaFuncSetAttribute(short_rows<T, WARPS>, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
    launch_overlapped(short_rows<T, WARPS>, blocks, 32 * WARPS, (size_t)shared, stream, *a, chunks);
    return trm_cuda_launched("cuda.attention short");
}

template <typename T> static trm_status launch_short(const trm_cuda_attention *a, cudaStream_t stream)
{
    /* Larger tiles read keys less often, smaller ones are more blocks. */
    const int64_t large = (int64_t)a->sequences * a->query_heads * ((a->queries + 127) / 128);
    return a->queries > 64 && large >= 132 ? launch_rows<T, 8>(a, stream) : launch_rows<T, 4>(a, stream);
}

trm_status trm_cuda_attention_short(const trm_cuda_attention *a, cudaStream_t stream)
{
    return a->dtype == TRM_F16 ? launch_short<__half>(a, stream) : launch_short<__nv_bfloat16>(a, stream);
}
