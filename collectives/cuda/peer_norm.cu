/* An all-reduce over peer memory with the residual addition and the norm that follow it, as one kernel. */
#include "collectives/cuda/peer.cuh"

#define ROW_BLOCKS    8 /* of a cluster at most: what every device allows */
#define BLOCK_THREADS 1024

typedef struct norm_args {
    trm_peer_norm n;
    trm_norm_params norm;
    int items;     /* of a row */
    int per_block; /* a thread has one */
    int blocks;    /* of a row: a cluster */
} norm_args;

/* What the blocks of a row send each other: of every warp of the row one part of a sum, twice for a layer norm. A
 * barrier counts the bytes as they arrive, so that nobody waits for anything else: a cluster's own barrier would first
 * wait for the packets to other GPUs to be acknowledged. */
typedef struct row_parts {
    float parts[2][ROW_BLOCKS * 32];
    uint64_t arrived[2];
} row_parts;

static __device__ __forceinline__ uint32_t shared_address(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

/* The same place in block `block` of the cluster. */
static __device__ __forceinline__ uint32_t address_in(uint32_t shared, int block)
{
    uint32_t mapped;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(mapped) : "r"(shared), "r"(block));
    return mapped;
}

/* Every thread of the cluster, before anything is sent. */
static __device__ __forceinline__ void prepare_parts(row_parts *row, int blocks)
{
#if __CUDA_ARCH__ >= 900
    if (blocks == 1) {
        return;
    }
    if (threadIdx.x == 0) {
        uint32_t bytes = (uint32_t)blocks * (blockDim.x >> 5) * 4;
        for (int i = 0; i < 2; i++) {
            uint32_t barrier = shared_address(&row->arrived[i]);
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" : : "r"(barrier) : "memory");
            asm volatile("fence.mbarrier_init.release.cluster;" : : : "memory");
            asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                         :
                         : "r"(barrier), "r"(bytes)
                         : "memory");
        }
    }
    asm volatile("barrier.cluster.arrive.aligned;" : : : "memory");
    asm volatile("barrier.cluster.wait.aligned;" : : : "memory");
#endif
}

/* Sums `x` over the threads of a row's blocks, in one order on every rank. `turn`: 0, then 1. */
static __device__ __forceinline__ float row_total(float x, row_parts *row, int turn, int blocks, int block)
{
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
    float *parts = row->parts[turn];
    x = warp_sum(x); /* in every lane */
    if (blocks == 1) {
        if (lane == 0) {
            parts[warp] = x;
        }
        __syncthreads();
    } else {
#if __CUDA_ARCH__ >= 900
        uint32_t barrier = shared_address(&row->arrived[turn]), done = 0;
        if (lane < blocks) {
            asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];"
                         :
                         : "r"(address_in(shared_address(&parts[block * warps + warp]), lane)), "r"(__float_as_uint(x)),
                           "r"(address_in(barrier, lane))
                         : "memory");
        }
        while (!done) { /* a block of the same cluster: it is running, and its own waits are bounded */
            asm volatile("{\n"
                         ".reg .pred arrived;\n"
                         "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 arrived, [%1], 0;\n"
                         "selp.u32 %0, 1, 0, arrived;\n"
                         "}"
                         : "=r"(done)
                         : "r"(barrier)
                         : "memory");
        }
#endif
    }
    float total = 0.0f;
    for (int i = lane; i < blocks * warps; i += 32) {
        total += parts[i];
    }
    return warp_sum(total);
}

/*
 * A row by a cluster of 1 to 8 blocks (one where there are no clusters), a thread per item of 8 bytes, 2 KiB of shared
 * memory. Sends its item to every peer; residual, weight and bias are read while the peers' items are in flight. The
 * sum of all ranks is rounded to T, and so is its sum with the residual, as if they were kernels of their own.
 */
template <typename T, int N>
static __global__ void __launch_bounds__(BLOCK_THREADS)
    all_reduce_norm(const __grid_constant__ trm_peer_link link, const __grid_constant__ norm_args a)
{
    __shared__ row_parts row;
    const int n = item_of<T>::n;
    int block = blockIdx.x % a.blocks, column = block * a.per_block + threadIdx.x;
    int64_t at = (int64_t)(blockIdx.x / a.blocks) * a.items + column;
    bool active = threadIdx.x < a.per_block && column < a.items, layer = a.norm.op == TRM_NORM_LAYER;
    start_next();
    prepare_parts(&row, a.blocks);
    if (active && threadIdx.x % 16 == 0) {
        if (a.n.weight != NULL) {
            prefetch_l2((const uint2 *)a.n.weight + column);
        }
        if (a.n.bias != NULL) {
            prefetch_l2((const uint2 *)a.n.bias + column);
        }
    }
    wait_for_previous();
    uint2 own = make_uint2(0, 0), residual = own, weight = own, bias = own;
    if (active) {
        own = ((const uint2 *)a.n.from)[at];
    }
    channel c = open_channel(link);
    float v[n];
#pragma unroll
    for (int j = 0; j < n; j++) {
        v[j] = 0.0f;
    }
    if (active) {
        send_to_all<N>(link, c, threadIdx.x, own);
        if (a.n.residual != NULL) {
            residual = ((const uint2 *)a.n.residual)[at];
        }
        if (a.n.weight != NULL) {
            weight = ((const uint2 *)a.n.weight)[column];
        }
        if (a.n.bias != NULL) {
            bias = ((const uint2 *)a.n.bias)[column];
        }
        add_items<T, N>(link, &c, threadIdx.x, own, v);
        unpack_item<T>(pack_item<T>(v), v);
        if (a.n.residual != NULL) {
            float r[n];
            unpack_item<T>(residual, r);
#pragma unroll
            for (int j = 0; j < n; j++) {
                v[j] += r[j];
            }
            residual = pack_item<T>(v); /* the sum from here on */
            unpack_item<T>(residual, v);
        }
    }
    float total = 0.0f, mean = 0.0f, width = (float)a.n.width;
#pragma unroll
    for (int j = 0; j < n; j++) {
        total += layer ? v[j] : v[j] * v[j];
    }
    total = row_total(total, &row, 0, a.blocks, block);
    if (layer) {
        mean = total / width;
        total = 0.0f;
#pragma unroll
        for (int j = 0; j < n; j++) {
            total += active ? (v[j] - mean) * (v[j] - mean) : 0.0f;
        }
        total = row_total(total, &row, 1, a.blocks, block);
    }
    float scale = 1.0f / sqrtf(total / width + a.norm.eps);
    if (active) {
        float w[n], b[n];
        unpack_item<T>(weight, w);
        unpack_item<T>(bias, b);
#pragma unroll
        for (int j = 0; j < n; j++) {
            v[j] = (v[j] - mean) * scale * (a.n.weight != NULL ? w[j] + a.norm.weight_offset : 1.0f) + b[j];
        }
        ((uint2 *)a.n.to)[at] = pack_item<T>(v);
        if (a.n.residual != NULL) {
            ((uint2 *)a.n.sum)[at] = residual;
        }
    }
    close_channel(link, c);
}

/* Blocks of a row, so that the first ones fill theirs and all have some. */
static int blocks_for(int items, int threads)
{
    int blocks = 1;
    while (blocks < ROW_BLOCKS && items > blocks * threads) {
        blocks *= 2;
    }
    return blocks;
}

static int64_t row_items(const trm_peer_norm *n)
{
    return n->width * (int64_t)trm_dtype_size(n->dtype) / TRM_PEER_DATA;
}

/* Bytes up to which this beats a sum and a norm: 2 ranks 512 KiB in 6.4 and 9.1 us, 4 ranks 256 KiB in 8.9 and 9.5. */
int32_t trm_peer_norm_choose(int32_t size, const trm_peer_norm *n)
{
    static const int32_t threads[] = {256, 512, 1024}; /* the least that leave enough channels */
    size_t most = size == 2 ? 512 << 10 : 256 << 10;
    for (int i = 0; i < 3; i++) {
        if (trm_peer_norm_fits(size, n, threads[i])) {
            size_t bytes = (size_t)n->rows * (size_t)n->width * trm_dtype_size(n->dtype);
            return bytes <= most ? threads[i] : 0;
        }
    }
    return 0;
}

bool trm_peer_norm_fits(int32_t size, const trm_peer_norm *n, int32_t threads)
{
    uintptr_t addresses = (uintptr_t)n->from | (uintptr_t)n->residual | (uintptr_t)n->weight | (uintptr_t)n->bias |
                          (uintptr_t)n->to | (uintptr_t)n->sum;
    if (size < 2 || size > TRM_PEER_RANKS || !is_half_or_float(n->dtype) || addresses % TRM_PEER_DATA != 0 ||
        n->rows < 1 || n->width < 1 || n->width * (int64_t)trm_dtype_size(n->dtype) % TRM_PEER_DATA != 0 ||
        row_items(n) > ROW_BLOCKS * BLOCK_THREADS) {
        return false;
    }
    const int blocks = blocks_for((int)row_items(n), threads);
    return n->rows <= TRM_PEER_CHANNELS / blocks && (blocks == 1 || trm_cuda_has_clusters());
}

template <typename T, int N>
static void launch_for(const trm_peer_link *link, const norm_args *a, unsigned grid, unsigned block,
                       cudaStream_t stream)
{
    cudaLaunchAttribute attributes[MOST_ATTRIBUTES] = {};
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = block;
    config.stream = stream;
    config.attrs = attributes;
    config.numAttrs = launch_attributes(attributes, true, (unsigned)a->blocks);
    (void)cudaLaunchKernelEx(&config, all_reduce_norm<T, N>, *link, *a); /* trm_cuda_launched() sees the error */
}

template <typename T>
static void launch(const trm_peer_link *link, const norm_args *a, unsigned grid, unsigned block, cudaStream_t stream)
{
    typedef void (*launcher)(const trm_peer_link *, const norm_args *, unsigned, unsigned, cudaStream_t);
    static const launcher launchers[] = {launch_for<T, 2>, launch_for<T, 3>, launch_for<T, 4>, launch_for<T, 5>,
                                         launch_for<T, 6>, launch_for<T, 7>, launch_for<T, 8>};
    launchers[link->size - 2](link, a, grid, block, stream);
}

trm_status trm_cuda_peer_norm(const trm_peer_link *link, const trm_peer_norm *n, const trm_norm_params *norm,
                              int32_t threads, void *cuda_stream)
{
    if (threads < 32 || threads % 32 != 0 || threads > BLOCK_THREADS || !trm_peer_norm_fits(link->size, n, threads)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "all_reduce_norm of [%lld, %lld] %s over peer memory, by %d ranks",
                 (long long)n->rows, (long long)n->width, trm_dtype_name(n->dtype), (int)link->size);
    }
    norm_args a = {};
    a.n = *n;
    a.norm = *norm;
    a.items = (int)row_items(n);
    a.blocks = blocks_for(a.items, threads);
    a.per_block = (a.items + a.blocks - 1) / a.blocks;
    unsigned block = (unsigned)(a.per_block + 31) / 32 * 32;
    cudaStream_t stream = (cudaStream_t)cuda_stream;
    DISPATCH_FLOAT(n->dtype, launch<T>(link, &a, (unsigned)n->rows * (unsigned)a.blocks, block, stream));
    return trm_cuda_launched("all_reduce_norm over peer memory");
}
