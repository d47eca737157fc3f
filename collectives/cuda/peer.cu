/* All-reduces over peer memory. */
#include "collectives/cuda/peer.cuh"

#define BLOCK_THREADS 512 /* at most */
#define BULK_BLOCKS   32  /* they fill the link, and leave a product beside them most of the multiprocessors */

typedef struct all_reduce_args {
    const void *from;
    void *to;
    int64_t count; /* elements */
    int items;     /* of the vector, or of a part of it in two shots; the last may be cut short by `count` */
    int per_block;
    bool aligned; /* items may be read and written whole */
} all_reduce_args;

/* Item `item` of the vector; elements past its end are 0. */
template <typename T> static __device__ __forceinline__ uint2 load_item(const all_reduce_args &a, int64_t item)
{
    const int n = item_of<T>::n;
    if (a.aligned && (item + 1) * n <= a.count) {
        return ((const uint2 *)a.from)[item];
    }
    float v[n];
#pragma unroll
    for (int j = 0; j < n; j++) {
        v[j] = item * n + j < a.count ? to_float(((const T *)a.from)[item * n + j]) : 0.0f;
    }
    return pack_item<T>(v);
}

template <typename T>
static __device__ __forceinline__ void store_item(const all_reduce_args &a, int64_t item, uint2 data)
{
    const int n = item_of<T>::n;
    if (a.aligned && (item + 1) * n <= a.count) {
        ((uint2 *)a.to)[item] = data;
        return;
    }
    float v[n];
    unpack_item<T>(data, v);
#pragma unroll
    for (int j = 0; j < n; j++) {
        if (item * n + j < a.count) {
            ((T *)a.to)[item * n + j] = from_float<T>(v[j]);
        }
    }
}

/*
 * A thread per item of 8 bytes, in up to 64 blocks of 128 to 512 threads: sends it to every peer, then adds what every
 * peer sent. 16 (N - 1) bytes over the link per item. Bound by latency up to some 64 KiB: the launch, one read, one way
 * through the link, one write.
 */
template <typename T, int N>
static __global__ void __launch_bounds__(BLOCK_THREADS)
    all_reduce_one_shot(const __grid_constant__ trm_peer_link link, const __grid_constant__ all_reduce_args a)
{
    int first = blockIdx.x * a.per_block, n = min(a.per_block, a.items - first);
    begin_overlapped();
    uint2 own = make_uint2(0, 0);
    if (threadIdx.x < n) { /* on its way along with the channel's state */
        own = load_item<T>(a, first + threadIdx.x);
    }
    channel c = open_channel(link);
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        send_to_all<N>(link, c, i, i == threadIdx.x ? own : load_item<T>(a, first + i));
    }
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        float sum[item_of<T>::n];
        add_items<T, N>(link, &c, i, i == threadIdx.x ? own : load_item<T>(a, first + i), sum);
        store_item<T>(a, first + i, pack_item<T>(sum));
    }
    close_channel(link, c);
}

/*
 * The vector in N parts of a.items; rank r adds part r and sends the sum to all: 32 (N - 1) / N bytes over the link per
 * item. A thread has the same items in every part in both phases, so that from == to is no race.
 */
template <typename T, int N>
static __global__ void __launch_bounds__(BLOCK_THREADS)
    all_reduce_two_shot(const __grid_constant__ trm_peer_link link, const __grid_constant__ all_reduce_args a)
{
    begin_overlapped();
    channel c = open_channel(link);
    int64_t items = (a.count + item_of<T>::n - 1) / item_of<T>::n;
    int first = blockIdx.x * a.per_block, n = min(a.per_block, a.items - first);
#pragma unroll
    for (int k = 1; k < N; k++) {
        int r = (link.rank + k) % N; /* each begins with another peer */
        for (int i = threadIdx.x; i < n; i += blockDim.x) {
            int64_t item = (int64_t)r * a.items + first + i;
            if (item < items) {
                send_item(link, c, r, 0, i, load_item<T>(a, item));
            }
        }
    }
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        int64_t item = (int64_t)link.rank * a.items + first + i;
        if (item < items) {
            float sum[item_of<T>::n];
            add_items<T, N>(link, &c, i, load_item<T>(a, item), sum);
            uint2 data = pack_item<T>(sum);
#pragma unroll
            for (int k = 1; k < N; k++) {
                send_item(link, c, (link.rank + k) % N, 1, i, data);
            }
            store_item<T>(a, item, data);
        }
    }
#pragma unroll
    for (int k = 1; k < N; k++) {
        int r = (link.rank + N - k) % N; /* the one that sent to this rank in its turn k */
        for (int i = threadIdx.x; i < n; i += blockDim.x) {
            int64_t item = (int64_t)r * a.items + first + i;
            if (item < items) {
                store_item<T>(a, item, await_item(link, &c, r, 1, i, false, make_uint2(0, 0)));
            }
        }
    }
    close_channel(link, c);
}

static int64_t items_for(size_t bytes, int32_t size, trm_peer_way way)
{
    int64_t items = (int64_t)((bytes + TRM_PEER_DATA - 1) / TRM_PEER_DATA);
    return way == TRM_PEER_TWO_SHOT ? (items + size - 1) / size : items;
}

bool trm_peer_fits(int32_t size, size_t bytes, trm_peer_way way)
{
    if (way == TRM_PEER_BULK) { /* empty slices have flags too */
        return size >= 2 && size <= TRM_PEER_RANKS && bytes > 0 && bytes <= TRM_PEER_BULK_BYTES;
    }
    /* In two shots every part but the last must fill its blocks, so that each block hears from each. */
    size_t least = way == TRM_PEER_TWO_SHOT ? (size_t)size * (size_t)size * TRM_PEER_DATA : 0;
    return way != TRM_PEER_NO_WAY && size >= 2 && size <= TRM_PEER_RANKS && bytes >= least &&
           bytes <= (size_t)1 << 30 && items_for(bytes, size, way) <= TRM_PEER_CHANNELS * TRM_PEER_ITEMS;
}

/* Where one way overtakes another on H200 (bench_exchange): 2 ranks 512 KiB in 5.8 and 6.0 us, 4 ranks 64 KiB in 4.6
 * and 5.3, 128 KiB in 5.8 and 5.7; 4 ranks 1 MiB in 14.4 (two shots) and 15.5 (bulk), 2 MiB in 26.9 and 20.1, where
 * NCCL needs 17.5 and 26.3, 8 MiB in 51 and 58; NCCL leaves products beside it more, so longer prompts are faster with
 * it. 3 and more than 4 ranks are as 4, by guess. */
trm_peer_way trm_peer_choose(int32_t size, size_t bytes)
{
    size_t one_shot = size == 2 ? 512 << 10 : 96 << 10, two_shot = 1 << 20;
    trm_peer_way way = bytes <= one_shot ? TRM_PEER_ONE_SHOT : bytes <= two_shot ? TRM_PEER_TWO_SHOT : TRM_PEER_BULK;
    return trm_peer_fits(size, bytes, way) ? way : TRM_PEER_NO_WAY;
}

template <typename T, int N>
static void launch_for(const trm_peer_link *link, trm_peer_way way, const all_reduce_args *a, dim3 grid, dim3 block,
                       cudaStream_t stream)
{
    if (way == TRM_PEER_ONE_SHOT) {
        launch_overlapped(all_reduce_one_shot<T, N>, grid, block, 0, stream, *link, *a);
    } else {
        launch_overlapped(all_reduce_two_shot<T, N>, grid, block, 0, stream, *link, *a);
    }
}

template <typename T>
static void launch(const trm_peer_link *link, trm_peer_way way, const all_reduce_args *a, dim3 grid, dim3 block,
                   cudaStream_t stream)
{
    typedef void (*launcher)(const trm_peer_link *, trm_peer_way, const all_reduce_args *, dim3, dim3, cudaStream_t);
    static const launcher launchers[] = {launch_for<T, 2>, launch_for<T, 3>, launch_for<T, 4>, launch_for<T, 5>,
                                         launch_for<T, 6>, launch_for<T, 7>, launch_for<T, 8>};
    launchers[link->size - 2](link, way, a, grid, block, stream);
}

trm_status trm_cuda_peer_all_reduce(const trm_peer_link *link, trm_peer_way way, trm_dtype dtype, const void *from,
                                    void *to, size_t count, int32_t threads, void *cuda_stream)
{
    size_t bytes = count * trm_dtype_size(dtype);
    if (way == TRM_PEER_BULK) {
        return trm_cuda_peer_all_reduce_bulk(link, dtype, from, to, count, BULK_BLOCKS, cuda_stream);
    }
    if (!is_half_or_float(dtype) || !trm_peer_fits(link->size, bytes, way) || threads < 0 || threads > BLOCK_THREADS ||
        threads % 32 != 0) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "all_reduce of %zu %s over peer memory, by %d ranks with %d threads",
                 count, trm_dtype_name(dtype), (int)link->size, (int)threads);
    }
    all_reduce_args a = {};
    a.from = from;
    a.to = to;
    a.count = (int64_t)count;
    a.items = (int)items_for(bytes, link->size, way);
    a.aligned = (((uintptr_t)from | (uintptr_t)to) & (TRM_PEER_DATA - 1)) == 0;
    /* Few threads a block spread a small vector over many multiprocessors. Every block has an item: a channel's safety
     * rests on that. */
    int least = threads > 0 ? threads : 128, most = (a.items + TRM_PEER_CHANNELS - 1) / TRM_PEER_CHANNELS;
    a.per_block = most > least ? (most + 31) / 32 * 32 : least;
    threads = threads > 0 ? threads : a.per_block < BLOCK_THREADS ? a.per_block : BLOCK_THREADS;
    dim3 grid((unsigned)((a.items + a.per_block - 1) / a.per_block)), block((unsigned)threads);
    cudaStream_t stream = (cudaStream_t)cuda_stream;
    DISPATCH_FLOAT(dtype, launch<T>(link, way, &a, grid, block, stream));
    return trm_cuda_launched("all_reduce over peer memory");
}
