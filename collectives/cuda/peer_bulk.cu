/*
 * All-reduces of large vectors over peer memory.
 *
 * Packets that carry their own flag would double the bytes, and here bytes are what counts: so data goes as it is, and
 * a flag follows it. The vector is cut in N parts. A block sends its slice of part r to rank r, adds what it was sent
 * of its own part, sends the sum to all, and takes theirs: an epoch of the block's channel (see collectives/peer.h).
 *
 * In the next exchange slices may lie elsewhere, and channels may have other epochs: but a rank begins it when all its
 * blocks have what they were sent, so its peers have added all of their parts; and sends sums when they have begun it
 * too, and so have taken all of the last. One set of places is enough.
 */
#include "collectives/cuda/peer.cuh"

#define BLOCK_THREADS 512
#define AT_ONCE       4 /* loads in flight per thread */

typedef struct bulk_args {
    const void *from;
    void *to;
    int64_t count; /* elements */
    int items;     /* of 16 bytes; the last may be cut short by `count` */
    int part_items, per_block;
    bool aligned; /* items may be read and written whole */
} bulk_args;

template <typename T> struct bulk_item {
    static const int n = 16 / sizeof(T); /* elements */
};

template <typename T> static __device__ __forceinline__ void unpack_bulk(uint4 raw, float *to)
{
    unpack_item<T>(make_uint2(raw.x, raw.y), to);
    unpack_item<T>(make_uint2(raw.z, raw.w), to + item_of<T>::n);
}

template <typename T> static __device__ __forceinline__ uint4 pack_bulk(const float *from)
{
    uint2 low = pack_item<T>(from), high = pack_item<T>(from + item_of<T>::n);
    return make_uint4(low.x, low.y, high.x, high.y);
}

/* Item `item` of the vector; elements past its end are 0. */
template <typename T> static __device__ __forceinline__ uint4 load_bulk(const bulk_args &a, int64_t item)
{
    const int n = bulk_item<T>::n;
    if (a.aligned && (item + 1) * n <= a.count) {
        return ((const uint4 *)a.from)[item];
    }
    float v[n];
#pragma unroll
    for (int j = 0; j < n; j++) {
        v[j] = item * n + j < a.count ? to_float(((const T *)a.from)[item * n + j]) : 0.0f;
    }
    return pack_bulk<T>(v);
}

template <typename T> static __device__ __forceinline__ void store_bulk(const bulk_args &a, int64_t item, uint4 data)
{
    const int n = bulk_item<T>::n;
    if (a.aligned && (item + 1) * n <= a.count) {
        ((uint4 *)a.to)[item] = data;
        return;
    }
    float v[n];
    unpack_bulk<T>(data, v);
#pragma unroll
    for (int j = 0; j < n; j++) {
        if (item * n + j < a.count) {
            ((T *)a.to)[item * n + j] = from_float<T>(v[j]);
        }
    }
}

/* Where `sender` puts its items of a part in the mailbox of `owner`. */
template <int N>
static __device__ __forceinline__ uint4 *bulk_place(const trm_peer_link &link, int owner, int phase, int sender)
{
    char *bulk = (char *)link.mailboxes[owner] + trm_peer_packet_bytes(N);
    return (uint4 *)bulk + (int64_t)(phase * N + sender) * trm_peer_part_items(N);
}

/* Where `sender` says that it has sent: the epoch, at the end of the mailbox. */
template <int N>
static __device__ __forceinline__ uint32_t *flag_place(const trm_peer_link &link, int owner, int phase, int sender)
{
    char *flags = (char *)link.mailboxes[owner] + trm_peer_packet_bytes(N) + trm_peer_bulk_bytes(N);
    return (uint32_t *)flags + (phase * N + sender) * TRM_PEER_CHANNELS + blockIdx.x;
}

/* After a barrier of the block: all its stores are there for whoever sees the flag. */
static __device__ __forceinline__ void set_flag(uint32_t *flag, uint32_t epoch)
{
    asm volatile("st.release.sys.global.u32 [%0], %1;" : : "l"(flag), "r"(epoch) : "memory");
}

/* Every thread: until all peers have sent to this block. */
template <int N> static __device__ __forceinline__ void await_flags(const trm_peer_link &link, channel *c, int phase)
{
    int sender = (int)threadIdx.x;
    if (sender < N && sender != link.rank && !c->lost) {
        const uint32_t *flag = flag_place<N>(link, link.rank, phase, sender);
        long_wait wait = {0, 0};
        uint32_t seen = 0;
        for (unsigned turn = 1; seen != c->epoch && !c->lost; turn++) {
            asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(seen) : "l"(flag) : "memory");
            if (turn % TURNS_PER_LOOK == 0 && seen != c->epoch) {
                c->lost = give_up(link, sender, &wait);
            }
        }
    }
    c->lost = __syncthreads_or(c->lost) != 0;
}

/* A block's slice of a part: n items from `first`, which is item `at` of the vector. */
typedef struct slice {
    int at, first, n;
} slice;

static __device__ __forceinline__ slice slice_of(const bulk_args &a, int part)
{
    slice s;
    s.first = (int)blockIdx.x * a.per_block;
    s.at = part * a.part_items + s.first;
    s.n = min(min(a.per_block, a.part_items - s.first), a.items - s.at);
    return s;
}

template <typename T, int N>
static __device__ __forceinline__ void send_parts(const trm_peer_link &link, const channel &c, const bulk_args &a)
{
#pragma unroll
    for (int k = 1; k < N; k++) {
        int r = (link.rank + k) % N; /* each begins with another peer */
        slice s = slice_of(a, r);
        uint4 *place = bulk_place<N>(link, r, 0, link.rank) + s.first;
        for (int i = (int)threadIdx.x; i < s.n && !c.lost; i += AT_ONCE * BLOCK_THREADS) {
            uint4 data[AT_ONCE];
#pragma unroll
            for (int j = 0; j < AT_ONCE; j++) {
                int item = i + j * BLOCK_THREADS;
                if (item < s.n) {
                    data[j] = load_bulk<T>(a, s.at + item);
                }
            }
#pragma unroll
            for (int j = 0; j < AT_ONCE; j++) {
                int item = i + j * BLOCK_THREADS;
                if (item < s.n) {
                    place[item] = data[j];
                }
            }
        }
        __syncthreads();
        if (threadIdx.x == 0 && !c.lost) {
            set_flag(flag_place<N>(link, r, 0, link.rank), c.epoch);
        }
    }
}

/* Adds the slices of this rank's part in rank order and sends the sum to all. */
template <typename T, int N>
static __device__ __forceinline__ void add_part(const trm_peer_link &link, const channel &c, const bulk_args &a)
{
    slice s = slice_of(a, link.rank);
    for (int i = (int)threadIdx.x; i < s.n && !c.lost; i += BLOCK_THREADS) {
        uint4 given[N];
#pragma unroll
        for (int r = 0; r < N; r++) {
            given[r] =
                r == link.rank ? load_bulk<T>(a, s.at + i) : __ldcg(bulk_place<N>(link, link.rank, 0, r) + s.first + i);
        }
        float sum[bulk_item<T>::n];
#pragma unroll
        for (int r = 0; r < N; r++) {
            float v[bulk_item<T>::n];
            unpack_bulk<T>(given[r], v);
#pragma unroll
            for (int j = 0; j < bulk_item<T>::n; j++) {
                sum[j] = r == 0 ? v[j] : sum[j] + v[j];
            }
        }
        uint4 data = pack_bulk<T>(sum);
#pragma unroll
        for (int k = 1; k < N; k++) {
            bulk_place<N>(link, (link.rank + k) % N, 1, link.rank)[s.first + i] = data;
        }
        store_bulk<T>(a, s.at + i, data);
    }
    __syncthreads();
    if (threadIdx.x < N && (int)threadIdx.x != link.rank && !c.lost) {
        set_flag(flag_place<N>(link, (int)threadIdx.x, 1, link.rank), c.epoch);
    }
}

template <typename T, int N>
static __device__ __forceinline__ void take_parts(const trm_peer_link &link, const channel &c, const bulk_args &a)
{
#pragma unroll
    for (int k = 1; k < N; k++) {
        int r = (link.rank + k) % N;
        slice s = slice_of(a, r);
        const uint4 *place = bulk_place<N>(link, link.rank, 1, r) + s.first;
        for (int i = (int)threadIdx.x; i < s.n; i += AT_ONCE * BLOCK_THREADS) {
            uint4 data[AT_ONCE];
#pragma unroll
            for (int j = 0; j < AT_ONCE; j++) {
                int item = i + j * BLOCK_THREADS;
                if (item < s.n) {
                    data[j] = __ldcg(place + item);
                }
            }
#pragma unroll
            for (int j = 0; j < AT_ONCE; j++) {
                int item = i + j * BLOCK_THREADS;
                if (item < s.n) {
                    store_bulk<T>(a, s.at + item, data[j]);
                }
            }
        }
    }
}

/*
 * Blocks of 512 threads, each with a slice of every part; 2 (N - 1) / N of the vector's bytes over the link, each way.
 * Bound by the link. A thread has the same items of a part in every phase, so from == to is no race.
 */
template <typename T, int N>
static __global__ void __launch_bounds__(BLOCK_THREADS)
    all_reduce_bulk(const __grid_constant__ trm_peer_link link, const __grid_constant__ bulk_args a)
{
    begin_overlapped();
    channel c = open_channel(link);
    send_parts<T, N>(link, c, a);
    await_flags<N>(link, &c, 0);
    add_part<T, N>(link, c, a);
    await_flags<N>(link, &c, 1);
    take_parts<T, N>(link, c, a);
    close_channel(link, c);
}

template <typename T>
static void launch(const trm_peer_link *link, const bulk_args *a, unsigned blocks, cudaStream_t stream)
{
    typedef void (*kernel)(trm_peer_link, bulk_args);
    static const kernel kernels[] = {all_reduce_bulk<T, 2>, all_reduce_bulk<T, 3>, all_reduce_bulk<T, 4>,
                                     all_reduce_bulk<T, 5>, all_reduce_bulk<T, 6>, all_reduce_bulk<T, 7>,
                                     all_reduce_bulk<T, 8>};
    launch_overlapped(kernels[link->size - 2], blocks, BLOCK_THREADS, 0, stream, *link, *a);
}

trm_status trm_cuda_peer_all_reduce_bulk(const trm_peer_link *link, trm_dtype dtype, const void *from, void *to,
                                         size_t count, int32_t blocks, void *cuda_stream)
{
    size_t bytes = count * trm_dtype_size(dtype);
    if (!is_half_or_float(dtype) || !trm_peer_fits(link->size, bytes, TRM_PEER_BULK) || blocks < 1 ||
        blocks > TRM_PEER_CHANNELS) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "all_reduce of %zu %s over peer memory, by %d ranks with %d blocks", count,
                 trm_dtype_name(dtype), (int)link->size, (int)blocks);
    }
    bulk_args a = {};
    a.from = from;
    a.to = to;
    a.count = (int64_t)count;
    a.items = (int)((bytes + 15) / 16);
    a.part_items = (a.items + link->size - 1) / link->size;
    a.per_block = (a.part_items + blocks - 1) / blocks;
    a.aligned = (((uintptr_t)from | (uintptr_t)to) & 15) == 0;
    DISPATCH_FLOAT(dtype, launch<T>(link, &a, (unsigned)blocks, (cudaStream_t)cuda_stream));
    return trm_cuda_launched("all_reduce over peer memory");
}
