/*
 * Device helpers of exchanges over peer memory: packets, channels, bounded waits. See collectives/peer.h for the
 * protocol.
 *
 * A word of 8 bytes is written and read by one access of 8 bytes, relaxed, at system scope; the memory model makes such
 * an access single-copy atomic (a vector of two is two of them), so its data are those of its epoch. Nothing else is
 * read on the strength of it, so it needs neither release nor acquire, which would cost a round trip of the link each.
 * What orders the reuse of a place is the end of a kernel and the wait for it (overlap.cuh).
 */
#ifndef TRM_COLLECTIVES_CUDA_PEER_CUH
#define TRM_COLLECTIVES_CUDA_PEER_CUH

#include "collectives/peer.h"
#include "kernels/cuda/common.cuh"

/* Turns of a wait between two looks at the clock, and time between two looks at the host's memory. */
#define TURNS_PER_LOOK       128
#define NANOSECONDS_PER_LOOK 5000000

static __device__ __forceinline__ void store_packet(void *place, uint2 data, uint32_t epoch)
{
    uint64_t first = (uint64_t)epoch << 32 | data.x, second = (uint64_t)epoch << 32 | data.y;
    asm volatile("st.relaxed.sys.global.v2.b64 [%0], {%1, %2};" : : "l"(place), "l"(first), "l"(second) : "memory");
}

/* Whether the packet of `epoch` is there. */
static __device__ __forceinline__ bool load_packet(const void *place, uint32_t epoch, uint2 *data)
{
    uint64_t first, second;
    asm volatile("ld.relaxed.sys.global.v2.b64 {%0, %1}, [%2];" : "=l"(first), "=l"(second) : "l"(place) : "memory");
    *data = make_uint2((uint32_t)first, (uint32_t)second);
    return (uint32_t)(first >> 32) == epoch && (uint32_t)(second >> 32) == epoch;
}

static __device__ __forceinline__ uint64_t nanoseconds(void)
{
    uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

/* A block's channel in one exchange. */
typedef struct channel {
    uint32_t epoch;
    bool lost; /* as this thread knows: do not send, do not wait */
} channel;

/* After the wait for the kernel before, which may have been an exchange. */
static __device__ __forceinline__ channel open_channel(const trm_peer_link &link)
{
    const volatile trm_peer_state *state = link.state;
    channel c;
    c.epoch = state->epochs[blockIdx.x] + 1;
    c.lost = state->dead != 0;
    return c;
}

/* Every thread of the block calls it, once it needs the channel's state no more. */
static __device__ __forceinline__ void close_channel(const trm_peer_link &link, const channel &c)
{
    __syncthreads(); /* all have read the epoch */
    if (threadIdx.x == 0) {
        link.state->epochs[blockIdx.x] = c.epoch;
    }
}

/* Where `sender` puts item `item` in the mailbox of `owner`. */
static __device__ __forceinline__ void *place_of(const trm_peer_link &link, const channel &c, int owner, int phase,
                                                 int sender, int item)
{
    int set = (int)(c.epoch & 1) * TRM_PEER_PHASES + phase;
    int64_t index = ((int64_t)(set * link.size + sender) * TRM_PEER_CHANNELS + blockIdx.x) * TRM_PEER_ITEMS + item;
    return (char *)link.mailboxes[owner] + index * 16;
}

/* What a thread knows of a wait that takes long. */
typedef struct long_wait {
    uint64_t end, next_look; /* 0: not begun */
} long_wait;

/* The slow part of a wait: whether to give up. Host memory is read rarely: if thousands of threads read it over PCIe
 * whenever ranks are slightly apart, they drift apart further (measured: a millisecond per exchange). The first thread
 * that gives up tells the host which rank it waited for. */
static __device__ __noinline__ bool give_up(const trm_peer_link &link, int sender, long_wait *wait)
{
    volatile trm_peer_state *state = link.state;
    volatile trm_peer_report *report = link.report;
    uint64_t now = nanoseconds();
    if (wait->end == 0) {
        wait->end = now + link.deadline_nanoseconds;
        wait->next_look = now + NANOSECONDS_PER_LOOK;
    }
    if (state->dead != 0) {
        return true;
    }
    if (now < wait->next_look) {
        return false;
    }
    wait->next_look = now + NANOSECONDS_PER_LOOK;
    bool stopped = report->stop != 0;
    if (!stopped && now < wait->end) {
        return false;
    }
    if (atomicExch(&link.state->dead, 1u) == 0 && !stopped) {
        report->lost = 1u + (uint32_t)sender;
    }
    return true;
}

static __device__ __forceinline__ void send_item(const trm_peer_link &link, const channel &c, int to, int phase,
                                                 int item, uint2 data)
{
    if (!c.lost) {
        store_packet(place_of(link, c, to, phase, link.rank, item), data, c.epoch);
    }
}

/* To every peer, in rank order: that each rank begins with another peer was tried and is not faster. */
template <int N>
static __device__ __forceinline__ void send_to_all(const trm_peer_link &link, const channel &c, int item, uint2 data)
{
#pragma unroll
    for (int r = 0; r < N; r++) {
        if (r != link.rank) {
            send_item(link, c, r, 0, item, data);
        }
    }
}

/* Item `item` from `sender`; undefined after a failed wait. `seen` is a first read of its place. */
static __device__ __forceinline__ uint2 await_item(const trm_peer_link &link, channel *c, int sender, int phase,
                                                   int item, bool seen, uint2 data)
{
    const void *place = place_of(link, *c, link.rank, phase, sender, item);
    long_wait wait = {0, 0};
    for (unsigned turn = 1; !seen && !c->lost; turn++) {
        seen = load_packet(place, c->epoch, &data);
        if (turn % TURNS_PER_LOOK == 0 && !seen) {
            c->lost = give_up(link, sender, &wait);
        }
    }
    return data;
}

/* Elements of T in an item. */
template <typename T> struct item_of {
    static const int n = TRM_PEER_DATA / sizeof(T);
};

template <typename T> static __device__ __forceinline__ void unpack_item(uint2 raw, float *to)
{
    unpack2(raw.x, to + 0, T());
    unpack2(raw.y, to + 2, T());
}
template <> __device__ __forceinline__ void unpack_item<float>(uint2 raw, float *to)
{
    to[0] = __uint_as_float(raw.x);
    to[1] = __uint_as_float(raw.y);
}
template <typename T> static __device__ __forceinline__ uint2 pack_item(const float *from)
{
    return make_uint2(pack2(from[0], from[1], T()), pack2(from[2], from[3], T()));
}
template <> __device__ __forceinline__ uint2 pack_item<float>(const float *from)
{
    return make_uint2(__float_as_uint(from[0]), __float_as_uint(from[1]));
}

/* The sum of an item of all N ranks, in rank order, in f32; `own` is this rank's. */
template <typename T, int N>
static __device__ __forceinline__ void add_items(const trm_peer_link &link, channel *c, int item, uint2 own, float *sum)
{
    uint2 items[N];
    bool seen[N];
#pragma unroll
    for (int r = 0; r < N; r++) { /* all looks on their way before the first wait; one's own place is not used */
        seen[r] = load_packet(place_of(link, *c, link.rank, 0, r, item), c->epoch, &items[r]);
        seen[r] |= r == link.rank;
        items[r] = r == link.rank ? own : items[r];
    }
#pragma unroll
    for (int r = 0; r < N; r++) {
        float v[item_of<T>::n];
        unpack_item<T>(await_item(link, c, r, 0, item, seen[r], items[r]), v);
#pragma unroll
        for (int j = 0; j < item_of<T>::n; j++) {
            sum[j] = r == 0 ? v[j] : sum[j] + v[j];
        }
    }
}

#endif
