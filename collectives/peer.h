/*
 * Kernels that exchange over peer memory: their arguments from the communicator (cuda/peer.c) and their launchers
 * (cuda/peer.cu). One host, up to TRM_PEER_RANKS GPUs that can write to each other's memory.
 *
 * Every rank owns a mailbox that all peers have mapped. It holds packets of 16 bytes: two words of 8 bytes, each 4
 * bytes of data and 4 of its epoch. The epoch shows that data has arrived, so that a message costs one way through the
 * link: no flag after it, no barrier before the next.
 *
 * A block of a kernel works on its own channel of the mailboxes, with the block of the same number on every other rank.
 * A channel counts its epochs in device memory, where the block itself advances them, so that a captured graph can be
 * replayed. Packets of even and odd epochs have different places: a rank sends those of epoch e once it has all of e -
 * 1, which every peer sent after the kernel in which it read all of e - 2. So no packet is overwritten before it was
 * read, however far ahead a rank is, if in every epoch a block receives at least one packet from every peer. Packets
 * are never cleared: an old one has an epoch that does not repeat for 2^32 exchanges.
 */
#ifndef TRM_COLLECTIVES_PEER_H
#define TRM_COLLECTIVES_PEER_H

#include <stddef.h>
#include <stdint.h>

#include <trireme/layers/norm.h>

#include "collectives/communicator.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TRM_PEER_RANKS    8
#define TRM_PEER_CHANNELS 64   /* most blocks: all resident on the device at once, also beside running kernels */
#define TRM_PEER_ITEMS    1024 /* packets per channel, sender, phase and parity */
#define TRM_PEER_PHASES   2    /* scattered parts, gathered results */
#define TRM_PEER_DATA     8    /* bytes of data in a packet: an item */

#define TRM_PEER_BULK_BYTES ((size_t)8 << 20) /* most bytes of a vector without packets */

#ifdef __CUDACC__
#define TRM_PEER_BOTH __host__ __device__
#else
#define TRM_PEER_BOTH
#endif

/* In host memory that the device can reach. */
typedef struct trm_peer_report {
    uint32_t lost; /* by the device: 1 + the rank that did not arrive */
    uint32_t stop; /* by the host: stop waiting */
} trm_peer_report;

/* In device memory, zero at first. */
typedef struct trm_peer_state {
    uint32_t epochs[TRM_PEER_CHANNELS]; /* of the last exchange */
    uint32_t dead;                      /* a wait has failed: stop sending and waiting */
} trm_peer_state;

/* Arguments of a kernel, by value. */
typedef struct trm_peer_link {
    int32_t rank, size;
    uint64_t deadline_nanoseconds;
    void *mailboxes[TRM_PEER_RANKS]; /* mailboxes of all ranks, as mapped here */
    trm_peer_state *state;
    trm_peer_report *report;
} trm_peer_link;

/* A mailbox: packets; data of large vectors for each phase; their flags. */
static TRM_PEER_BOTH inline size_t trm_peer_packet_bytes(int32_t size)
{
    return (size_t)2 * TRM_PEER_PHASES * (size_t)size * TRM_PEER_CHANNELS * TRM_PEER_ITEMS * 16;
}
/* Most items of 16 bytes in a part of a large vector. */
static TRM_PEER_BOTH inline size_t trm_peer_part_items(int32_t size)
{
    return (TRM_PEER_BULK_BYTES / 16 + (size_t)size - 1) / (size_t)size;
}
static TRM_PEER_BOTH inline size_t trm_peer_bulk_bytes(int32_t size)
{
    return (size_t)TRM_PEER_PHASES * (size_t)size * trm_peer_part_items(size) * 16;
}
static inline size_t trm_peer_mailbox_bytes(int32_t size)
{
    return trm_peer_packet_bytes(size) + trm_peer_bulk_bytes(size) +
           (size_t)TRM_PEER_PHASES * (size_t)size * TRM_PEER_CHANNELS * sizeof(uint32_t);
}

/* Ways of an all-reduce. ONE_SHOT: all ranks send everything to all, and each adds. TWO_SHOT: each rank adds a part and
 * sends it. BULK: the same without packets, with a flag after the data. */
typedef enum trm_peer_way { TRM_PEER_NO_WAY = 0, TRM_PEER_ONE_SHOT, TRM_PEER_TWO_SHOT, TRM_PEER_BULK } trm_peer_way;

/* The fastest way for this many bytes between `size` ranks; NO_WAY: another communicator is faster. */
trm_peer_way trm_peer_choose(int32_t size, size_t bytes);
/* Whether this many bytes fit the mailboxes that way. */
bool trm_peer_fits(int32_t size, size_t bytes, trm_peer_way way);

/* to = the sum over all ranks of from [count] of f32, f16 or bf16, added in rank order in f32 and rounded once: the
 * same bits on every rank. Any alignment; to == from is allowed. `threads` of a block, a multiple of 32 to 512; 0:
 * chosen. */
trm_status trm_cuda_peer_all_reduce(const trm_peer_link *link, trm_peer_way way, trm_dtype dtype, const void *from,
                                    void *to, size_t count, int32_t threads, void *cuda_stream);

/* The same by TRM_PEER_BULK with this many blocks, at most TRM_PEER_CHANNELS. */
trm_status trm_cuda_peer_all_reduce_bulk(const trm_peer_link *link, trm_dtype dtype, const void *from, void *to,
                                         size_t count, int32_t blocks, void *cuda_stream);

/* Whether peer memory is fastest for a gather or broadcast of this many bytes per rank. */
bool trm_peer_gathers(int32_t size, size_t bytes);
/* to [size, bytes] = from [bytes] of every rank; with a root of at least 0, to [bytes] = from of that rank, and only it
 * reads `from`. Any alignment; each rank's own block may already be in place. */
trm_status trm_cuda_peer_gather(const trm_peer_link *link, int32_t root, const void *from, void *to, size_t bytes,
                                void *cuda_stream);

/* Block r of to [size, bytes] = block `rank` of from [size, bytes] of rank r, where gathers of `bytes` are possible. */
trm_status trm_cuda_peer_all_to_all(const trm_peer_link *link, const void *from, void *to, size_t bytes,
                                    void *cuda_stream);

/* All-reduce and norm in one kernel, see trm_all_reduce_norm_params: all [rows, width] except weight and bias [width].
 */
typedef struct trm_peer_norm {
    trm_dtype dtype; /* f32, f16 or bf16, of all tensors */
    int64_t rows, width;
    const void *from, *residual, *weight, *bias; /* all except `from` may be NULL */
    void *to, *sum;                              /* sum: of the ranks' sum and the residual, with one */
} trm_peer_norm;

/* Whether one kernel can do it: few rows, a width of whole items, all aligned to 8 bytes. */
bool trm_peer_norm_fits(int32_t size, const trm_peer_norm *n, int32_t threads);
/* Threads for trm_cuda_peer_norm; 0: separate sum and norm are faster, or it does not fit. */
int32_t trm_peer_norm_choose(int32_t size, const trm_peer_norm *n);
/* Rounds like the two separate layers, with the same bits on every rank. `threads` of a block, a multiple of 32 to
 * 1024, sets how many blocks share a row. */
trm_status trm_cuda_peer_norm(const trm_peer_link *link, const trm_peer_norm *n, const trm_norm_params *norm,
                              int32_t threads, void *cuda_stream);

/* Enqueues one kernel on `stream` if `communicator` uses peer memory and that is fastest; else *done is false. */
trm_status trm_communicator_peer_norm(trm_communicator *communicator, const trm_peer_norm *n,
                                      const trm_norm_params *norm, trm_stream *stream, bool *done);
/* Kernel arguments of a communicator over peer memory; NULL for another. */
const trm_peer_link *trm_communicator_peer_link(const trm_communicator *communicator);

#ifdef __cplusplus
}
#endif
#endif
