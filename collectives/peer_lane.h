/*
 * All-reduce and norm of many rows beside other work: what travels is copied by the GPUs' copy engines, which take no
 * multiprocessor from products that run at the time.
 *
 * Each rank owns a part of the rows. It sends the others their parts of its summands, adds up its own part with the
 * residual, normalizes it, and sends the result to all: a reduce-scatter, a norm and an all-gather, so a norm is
 * computed once, not by every rank. The residual stream stays with the owners of its rows, unless somebody else reads
 * it.
 *
 * A lane is the memory for one such exchange at a time: places for the summands of this rank's rows, one for each rank,
 * and for the gathered result, which all ranks have mapped. Behind its copies a rank writes the lane's epoch into a
 * word of every peer and waits for theirs: a kernel of one warp, whose wait is bounded as all are. No place is written
 * to before it was read: who sends summands has the last result of every rank, so those have added up what they had;
 * who sends a result has the summands of every rank, so those have read the last result.
 */
#ifndef TRM_COLLECTIVES_PEER_LANE_H
#define TRM_COLLECTIVES_PEER_LANE_H

#include "base/checked.h"
#include "collectives/peer.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct trm_peer_lane trm_peer_lane;

/* A lane of a communicator, with room for tensors of so many bytes: one that came back, or a new one. The communicator
 * owns them all and keeps them, those that are too small for later ones too, until it goes. NULL in *lane: this is no
 * communicator over peer memory, or not every rank has the memory. Collective, with the same lanes taken and returned
 * before on all ranks. */
trm_status trm_communicator_take_lane(trm_communicator *communicator, size_t bytes, trm_peer_lane **lane);
/* When all that was enqueued for it has run. NULL is ignored. */
void trm_peer_lane_return(trm_peer_lane *lane);
/* Of a lane's memory: summands of a rank's rows from one rank; all of it, with the gathered result and words. */
static inline size_t trm_peer_lane_part_bytes(int32_t size, size_t bytes)
{
    return trm_align_up((bytes + (size_t)size - 1) / (size_t)size, 256);
}
static inline size_t trm_peer_lane_bytes(int32_t size, size_t bytes)
{
    return (size_t)size * trm_peer_lane_part_bytes(size, bytes) + trm_align_up(bytes, 256) + 256;
}

/* Whether a lane does it: rows in whole runs of 16 bytes and aligned to them, and room. The same on every rank. */
bool trm_peer_lane_takes(const trm_peer_lane *lane, const trm_peer_norm *n);
/* Where results are gathered; n->to may be it. */
void *trm_peer_lane_gathered(const trm_peer_lane *lane);
/* Enqueues it on the stream, always the same one of a lane or ordered with it; not capturable. Of n->sum only this
 * rank's part of the rows is written and of n->residual only they are read, but all of the sum is with `whole_sum`. */
trm_status trm_peer_lane_norm(trm_peer_lane *lane, const trm_peer_norm *n, const trm_norm_params *norm, bool whole_sum,
                              trm_stream *stream);

/* What an ALL_REDUCE_NORM is called with. collectives/layer.c */
trm_peer_norm trm_all_reduce_norm_describe(const trm_kernel_call *call);

/* For the communicator, whose link they keep; `host` moves host bytes between the same ranks. Collective; NULL in *lane
 * if a rank has not the memory or cannot map that of another. */
trm_status trm_peer_lanes_take(trm_peer_lane **lanes, trm_device *device, trm_communicator *host,
                               const trm_peer_link *link, size_t bytes, trm_peer_lane **lane);
/* Frees them, each after all ranks have closed it where `together`. */
void trm_peer_lanes_destroy(trm_peer_lane *lanes, bool together);

/* peer_lane.cu: writes `epoch` into this rank's word of every peer, `theirs` [link->size], behind all that is before it
 * on the stream, and waits until the words of all peers, `mine` [link->size], are not before it. */
trm_status trm_cuda_peer_meet(const trm_peer_link *link, uint32_t *const *theirs, const uint32_t *mine, uint32_t epoch,
                              void *cuda_stream);

#ifdef __cplusplus
}
#endif
#endif
