/* All-gathers, broadcasts and all-to-alls over peer memory: bytes, whatever their type. */
#include "collectives/cuda/peer.cuh"

#define BLOCK_THREADS 512 /* at most */

typedef struct gather_args {
    const unsigned char *from;
    unsigned char *to;
    int64_t bytes; /* of a block */
    int items;     /* of a block; the last may be cut short */
    int per_block;
    int root;     /* of a broadcast; -1: everybody's blocks are gathered */
    bool deals;   /* a rank has a block for each: an all-to-all */
    bool aligned; /* items of all blocks may be read and written whole */
} gather_args;

static __device__ __forceinline__ uint2 load_bytes(const gather_args &a, int block, int item)
{
    int64_t at = (int64_t)item * TRM_PEER_DATA;
    const unsigned char *from = a.from + block * a.bytes;
    if (a.aligned && at + TRM_PEER_DATA <= a.bytes) {
        return *(const uint2 *)(from + at);
    }
    uint64_t data = 0;
    for (int j = 0; j < TRM_PEER_DATA && at + j < a.bytes; j++) {
        data |= (uint64_t)from[at + j] << 8 * j;
    }
    return make_uint2((uint32_t)data, (uint32_t)(data >> 32));
}

static __device__ __forceinline__ void store_bytes(const gather_args &a, int block, int item, uint2 data)
{
    int64_t at = (int64_t)item * TRM_PEER_DATA;
    unsigned char *to = a.to + block * a.bytes;
    if (a.aligned && at + TRM_PEER_DATA <= a.bytes) {
        *(uint2 *)(to + at) = data;
        return;
    }
    uint64_t bits = (uint64_t)data.y << 32 | data.x;
    for (int j = 0; j < TRM_PEER_DATA && at + j < a.bytes; j++) {
        to[at + j] = (unsigned char)(bits >> 8 * j);
    }
}

/*
 * A thread per item of 8 bytes, in up to 64 blocks of 128 to 512 threads, as in an all-reduce of one shot. In a
 * broadcast all send too, if nothing of use: that everybody hears from everybody is what channels rest on.
 */
template <int N>
static __global__ void __launch_bounds__(BLOCK_THREADS)
    gather_one_shot(const __grid_constant__ trm_peer_link link, const __grid_constant__ gather_args a)
{
    int first = blockIdx.x * a.per_block, n = min(a.per_block, a.items - first);
    bool gives = a.root < 0 || a.root == link.rank;
    begin_overlapped();
    channel c = open_channel(link);
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        uint2 own = gives ? load_bytes(a, a.deals ? link.rank : 0, first + i) : make_uint2(0, 0);
        if (a.deals) {
#pragma unroll
            for (int r = 0; r < N; r++) {
                if (r != link.rank) {
                    send_item(link, c, r, 0, i, load_bytes(a, r, first + i));
                }
            }
        } else {
            send_to_all<N>(link, c, i, own);
        }
        if (gives) {
            store_bytes(a, a.root < 0 ? link.rank : 0, first + i, own);
        }
    }
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        uint2 items[N];
        bool seen[N];
#pragma unroll
        for (int r = 0; r < N; r++) {
            seen[r] = load_packet(place_of(link, c, link.rank, 0, r, i), c.epoch, &items[r]);
        }
#pragma unroll
        for (int r = 0; r < N; r++) {
            if (r != link.rank) {
                uint2 data = await_item(link, &c, r, 0, i, seen[r], items[r]);
                if (a.root < 0 || a.root == r) {
                    store_bytes(a, a.root < 0 ? r : 0, first + i, data);
                }
            }
        }
    }
    close_channel(link, c);
}

bool trm_peer_gathers(int32_t size, size_t bytes)
{
    return size >= 2 && size <= TRM_PEER_RANKS && bytes <= (size_t)256 << 10;
}

static trm_status launch_gather(const trm_peer_link *link, int32_t root, bool deals, const void *from, void *to,
                                size_t bytes, void *cuda_stream)
{
    typedef void (*kernel)(trm_peer_link, gather_args);
    static const kernel kernels[] = {gather_one_shot<2>, gather_one_shot<3>, gather_one_shot<4>, gather_one_shot<5>,
                                     gather_one_shot<6>, gather_one_shot<7>, gather_one_shot<8>};
    if (!trm_peer_gathers(link->size, bytes) || bytes == 0 || root >= link->size) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "gather of %zu bytes over peer memory, by %d ranks, root %d", bytes,
                 (int)link->size, (int)root);
    }
    gather_args a = {};
    a.from = (const unsigned char *)from;
    a.to = (unsigned char *)to;
    a.bytes = (int64_t)bytes;
    a.items = (int)((bytes + TRM_PEER_DATA - 1) / TRM_PEER_DATA);
    a.root = root;
    a.deals = deals;
    a.aligned = (((uintptr_t)from | (uintptr_t)to | (root < 0 ? bytes : 0)) & (TRM_PEER_DATA - 1)) == 0;
    int most = (a.items + TRM_PEER_CHANNELS - 1) / TRM_PEER_CHANNELS; /* every block has an item */
    a.per_block = most > 128 ? (most + 31) / 32 * 32 : 128;
    unsigned threads = (unsigned)(a.per_block < BLOCK_THREADS ? a.per_block : BLOCK_THREADS);
    launch_overlapped(kernels[link->size - 2], (unsigned)(a.items + a.per_block - 1) / (unsigned)a.per_block, threads,
                      0, (cudaStream_t)cuda_stream, *link, a);
    return trm_cuda_launched("gather over peer memory");
}

trm_status trm_cuda_peer_gather(const trm_peer_link *link, int32_t root, const void *from, void *to, size_t bytes,
                                void *cuda_stream)
{
    return launch_gather(link, root, false, from, to, bytes, cuda_stream);
}

trm_status trm_cuda_peer_all_to_all(const trm_peer_link *link, const void *from, void *to, size_t bytes,
                                    void *cuda_stream)
{
    return launch_gather(link, -1, true, from, to, bytes, cuda_stream);
}
