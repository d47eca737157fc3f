/*
 * As cuda.cu's decoding kernel, for heads of 64 or 128 rotated as a whole, up to 8 query heads per key-value head, and
 * blocks of a multiple of 16 keys: keys and values go from the cache into the registers that the tensor cores take them
 * from. Hardly any shared memory is used, so that more blocks run at a time, of the products before and after, too.
 *
 * The fragments and their arithmetic are in cuda_direct.cuh, those of caches of e4m3 in cuda_f8.cuh.
 */
#include "attention/qkv/cuda_f8.cuh"

/* One block's static shared memory. A row is a query head of the block's key-value heads. */
template <typename C, int DIM> struct direct_block {
    float cosines[DIM / 2], sines[DIM / 2];
    float warp_state[DIRECT_WARPS][DIRECT_HEADS][2]; /* maximum in log2 units, sum of weights */
    float state[DIRECT_WARPS * DIRECT_HEADS][2];     /* of the block's rows, read by its cluster */
    __align__(16) C fresh[DIRECT_WARPS][2][DIM];     /* the step's key and value, of a warp's key-value head */
};

/* The warps' sums into a row of DIM floats per query head in `room` (rows DIM + 8 apart), in warp order; maxima and
 * sums of weights into block->state. Warp w has key-value head w % kv_heads of the block. Ends with a barrier. */
template <typename C, int DIM>
static __device__ __forceinline__ void join_warps(direct_sums<DIM> &sums, int group, int kv_heads, float *room,
                                                  direct_block<C, DIM> *block, int warp, int lane)
{
    const int stride = DIM + 8;
    int rows = kv_heads * group;
    float total = quad_sum(sums.total);
    if (lane % 4 == 0) {
        block->warp_state[warp][lane / 4][0] = sums.largest;
        block->warp_state[warp][lane / 4][1] = total;
    }
    put_sums<DIM, cache_form<C, DIM>::piece>(sums, group, room + warp * group * stride, stride, lane);
    __syncthreads();
    for (int i = threadIdx.x; i < rows * (DIM / 4); i += DIRECT_THREADS) {
        int row = i / (DIM / 4), first = row / group, r = row - first * group;
        float *at = room + row * stride + i % (DIM / 4) * 4, largest = -INFINITY, all = 0.0f;
        float4 value = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        for (int w = first; w < DIRECT_WARPS; w += kv_heads) {
            largest = fmaxf(largest, block->warp_state[w][r][0]);
        }
        float base = largest == -INFINITY ? 0.0f : largest;
        for (int w = first; w < DIRECT_WARPS; w += kv_heads) {
            float shrink = exp2f(block->warp_state[w][r][0] - base);
            float4 one = *(const float4 *)(at + (w - first) * group * stride);
            value.x += shrink * one.x;
            value.y += shrink * one.y;
            value.z += shrink * one.z;
            value.w += shrink * one.w;
            all += shrink * block->warp_state[w][r][1];
        }
        *(float4 *)at = value;
        if (i % (DIM / 4) == 0) {
            block->state[row][0] = largest;
            block->state[row][1] = all;
        }
    }
    __syncthreads();
}

/* Keys and values of a sequence of several queries, before any of them looks at one: rare in such steps. */
template <typename T, typename C, int DIM>
static __device__ __noinline__ void store_several(const trm_cuda_qkv &p, const qkv_work &work, int32_t kv_head,
                                                  direct_block<C, DIM> *block, bool stores, C (*fresh)[DIM], int lane)
{
    for (int32_t query = 0; query < work.queries; query++) {
        __syncthreads();
        find_angles(p, work.token + query, block->cosines, block->sines);
        __syncthreads();
        if (stores) {
            store_fresh<T, DIM>(p, key_rows_of(p.a, work.sequence, 0, kv_head), work.token + query,
                                work.keys - work.queries + query, block->cosines, block->sines, fresh, lane, C());
        }
    }
    __threadfence();
    __syncthreads();
}

/*
 * Block (place in the cluster, p.heads key-value heads, sequence). The blocks of the cluster share the keys; in a block
 * the warps that have the same key-value head take runs of 16 keys in turn, each with its own softmax. The warp that
 * sees the step's key also stores it and its value. Where the inputs of the step allow it, the cached keys and values
 * are on their way, and the angles are known, before the product of q, k and v ends. Sequences of several queries, rare
 * in such steps, are one block's, one query after the other.
 */
template <typename T, typename C, int DIM>
static __global__ void __launch_bounds__(DIRECT_THREADS, 2) decode_direct(const __grid_constant__ trm_cuda_qkv p)
{
    typedef cache_form<C, DIM> form;
    extern __shared__ __align__(16) unsigned char shared[];
    __shared__ direct_block<C, DIM> block;
    const int stride = DIM + 8, keys = form::keys;
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, part = warp / p.heads, step = DIRECT_WARPS / p.heads * keys;
    int32_t rank = (int32_t)blockIdx.x;
    int32_t first_kv = (int32_t)blockIdx.y * p.heads;
    int32_t row_bytes = p.a.kv_heads * DIM * (int32_t)sizeof(C);
    int shift = 31 - __clz(p.a.block_size);
    C(*fresh)[DIM] = block.fresh[warp];
    qkv_work work;
    work.sequence = blockIdx.z;
    work.kv_head = first_kv + warp % p.heads;
    work.heads = p.heads * p.a.group;
    work.first_head = first_kv * p.a.group;
    start_next();
    if (!p.early) {
        wait_for_previous();
    }
    work.token = p.a.starts[work.sequence];
    work.queries = p.a.starts[work.sequence + 1] - work.token;
    work.keys = p.a.lengths[work.sequence];
    const int32_t *table = p.a.table + (int64_t)work.sequence * p.a.table_blocks;
    lane_places places = places_of<C, DIM>(p, work.kv_head, lane);
    bool several = work.queries > 1;
    trm_key_range range = seen_keys(p.a, 0, work.queries, work.keys);
    if (work.queries <= 0 || (several && (rank > 0 || p.apart))) {
        wait_for_previous(); /* a kernel that ends says that all before it have */
        return;
    }
    int32_t sharing = several ? 1 : p.cluster, newest = several ? -1 : work.keys - 1;
    if (several) {
        wait_for_previous();
        store_several<T, C, DIM>(p, work, work.kv_head, &block, part == 0, fresh, lane);
    }
    for (int32_t query = 0; query < work.queries; query++) {
        range = seen_keys(p.a, query, work.queries, work.keys);
        int32_t low = range.low / keys * keys;
        int32_t size = trm_attention_split_size(range.high - low, sharing, keys);
        int64_t start = low + (several ? 0 : (int64_t)rank * size);
        int32_t begin = start < range.high ? (int32_t)start : range.high;
        int32_t end = range.high - begin < size ? range.high : begin + size, key = begin + part * keys;
        typename form::tile tile;
        tile_place place = find_tile<keys>(table, shift, key, end);
        load_keys(places, place, row_bytes, tile, lane);
        load_values(places, place, row_bytes, tile, lane);
        find_angles(p, work.token + query, block.cosines, block.sines);
        wait_for_previous();
        __syncthreads(); /* the angles */
        uint4 q[DIM / 32];
        load_queries<T, DIM>(p, q, work.token + query, work.kv_head, lane);
        bool sees = newest >= begin && newest < end && newest >= key && (newest - key) % step < keys;
        bool unseen = newest >= range.high && rank == 0 && part == 0;
        if (sees || unseen) {
            store_fresh<T, DIM>(p, key_rows_of(p.a, work.sequence, 0, work.kv_head), work.token, newest, block.cosines,
                                block.sines, fresh, lane, C());
        }
        prepare_elements<T, DIM>(p, q, (const T *)p.q_norm, block.cosines, block.sines, lane);
        float scale = take_queries<T, DIM>(p, q, lane, C());
        direct_sums<DIM> sums;
        clear_sums<DIM>(sums);
        while (key < end) {
            if (sees && newest - key < keys) { /* what was read there is older */
                take_fresh<C, DIM>(tile, fresh, newest - key, lane);
            }
            int32_t next = key + step;
            float scores[keys / 8][4];
            place = find_tile<keys>(table, shift, next, end);
            multiply_tile<typename form::math, DIM>(q, tile, scores);
            if (next < end) {
                load_keys(places, place, row_bytes, tile, lane);
            }
            weigh_tile<DIM>(p, scale, scores, key, range, sums, lane);
            add_tile<typename form::math, DIM>(tile, scores, sums);
            if (next < end) {
                load_values(places, place, row_bytes, tile, lane);
            }
            key = next;
        }
        if (sharing == 1 && p.heads == DIRECT_WARPS) {
            store_warp<T, DIM, form::piece>(p, sums, work.token + query, work.kv_head * p.a.group, lane);
            __syncthreads(); /* before the next query's angles */
            continue;
        }
        join_warps<C, DIM>(sums, p.a.group, p.heads, (float *)shared, &block, warp, lane);
        if (sharing == 1) {
            store_block<T, DIM, stride>(p, work, work.token + query, (float *)shared, block.state);
            __syncthreads(); /* before the next query */
        }
    }
    if (sharing == 1) {
        return;
    }
    cluster_arrive();
    cluster_wait();
    join_blocks<T, DIM, stride>(p, work, work.token, (float *)shared, block.state, p.cluster, rank, 0, true);
    cluster_arrive(); /* the others may still read here */
    cluster_wait();
}

/* ---- launching ---------------------------------------------------------------------------------- */

bool trm_cuda_qkv_is_direct(const trm_cuda_qkv *p)
{
    return p->a.group <= DIRECT_HEADS && (p->a.dim == 64 || p->a.dim == 128) && p->rope.rotary_dim == p->a.dim &&
           !p->rope.interleaved && p->a.block_size >= DIRECT_KEYS && (p->a.block_size & (p->a.block_size - 1)) == 0;
}

void trm_cuda_qkv_direct_cut(trm_cuda_qkv *p)
{
    int64_t pairs = (int64_t)p->a.sequences * p->a.kv_heads, most = p->a.table_blocks * (p->a.block_size / DIRECT_KEYS);
    p->cluster = 1;
    while (trm_cuda_has_clusters() && p->cluster < QKV_MAX_CLUSTER && 4 * p->cluster <= most &&
           pairs * p->cluster * 4 <= TRM_QKV_BLOCKS * p->heads) {
        p->cluster *= 2;
    }
}

template <typename T, typename C, int DIM> static trm_status launch_direct(const trm_cuda_qkv *p, cudaStream_t stream)
{
    cudaLaunchAttribute attributes[MOST_ATTRIBUTES] = {};
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)p->cluster, (unsigned)(p->a.kv_heads / p->heads), (unsigned)p->a.sequences);
    config.blockDim = DIRECT_THREADS;
    config.dynamicSmemBytes = (size_t)(DIRECT_WARPS * p->a.group * (DIM + 8)) * sizeof(float);
    config.stream = stream;
    config.attrs = attributes;
    config.numAttrs = launch_attributes(attributes, true, (unsigned)p->cluster);
    (void)cudaLaunchKernelEx(&config, decode_direct<T, C, DIM>, *p); /* trm_cuda_launched() sees the error */
    return trm_cuda_launched("cuda.qkv_attention decode");
}

template <typename T, typename C> static trm_status launch_direct_for(const trm_cuda_qkv *p, cudaStream_t stream)
{
    return p->a.dim == 64 ? launch_direct<T, C, 64>(p, stream) : launch_direct<T, C, 128>(p, stream);
}

template <typename T> static trm_status launch_direct_of(const trm_cuda_qkv *p, cudaStream_t stream)
{
    return p->a.cache_f8 ? launch_direct_for<T, e4m3>(p, stream) : launch_direct_for<T, T>(p, stream);
}

trm_status trm_cuda_qkv_direct(const trm_cuda_qkv *p, cudaStream_t stream)
{
    return p->a.dtype == TRM_F16 ? launch_direct_of<__half>(p, stream) : launch_direct_of<__nv_bfloat16>(p, stream);
}
