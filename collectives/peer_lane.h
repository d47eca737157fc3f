/*
 * All-reduce and norm of many rows beside other work: the GPUs' copy engines move the data and take no multiprocessors
 * from products that run meanwhile.
 *
 * Each rank owns a part of the rows. It sends the others their parts of its summands, adds up its own part with the
 * residual, normalizes it, and sends the result to all: a reduce-scatter, a norm and an all-gather, so a norm is
 * computed once, not by every rank. Only the owners of its rows have the residual stream, unless another layer reads
 * it.
 *
 * A lane is the memory for one such exchange at a time: buffers for the summands of this rank's rows, one per rank, and
 * for the gathered result, mapped by all ranks. After its copies a rank writes the lane's epoch into a word of every
 * peer and waits for theirs, in a kernel of one warp with a bounded wait. No buffer is overwritten before it was read:
 * a rank that sends summands has the last result of every rank, so these have added their summands; a rank that sends a
 * result has the summands of every rank, so these have read the last result.
 */
#ifndef TRM_COLLECTIVES_PEER_LANE_H
#define TRM_COLLECTIVES_PEER_LANE_H

#include "base/checked.h"
#include "collectives/peer.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct trm_peer_lane trm_peer_lane;

/* Takes a lane of a communicator for tensors of this many bytes: a returned one, or a new one. The communicator owns
 * all lanes until it is destroyed. *lane is NULL if the communicator does not use peer memory, or a rank lacks the
 * memory. Collective, after the same lanes were taken and returned on all ranks. */
trm_status trm_communicator_take_lane(trm_communicator *communicator, size_t bytes, trm_peer_lane **lane);
/* Returns a lane; all its enqueued work must have run. Ignores NULL. */
void trm_peer_lane_return(trm_peer_lane *lane);
/* Bytes of a lane: summands of a rank's rows from one rank; everything, with the gathered result and words. */
static inline size_t trm_peer_lane_part_bytes(int32_t size, size_t bytes)
{
    return trm_align_up((bytes + (size_t)size - 1) / (size_t)size, 256);
}
static inline size_t trm_peer_lane_bytes(int32_t size, size_t bytes)
{
    return (size_t)size * trm_peer_lane_part_bytes(size, bytes) + trm_align_up(bytes, 256) + 256;
}

/* Whether a lane can do it: rows of whole, aligned 16 bytes, and enough room. The same on every rank. */
bool trm_peer_lane_takes(const trm_peer_lane *lane, const trm_peer_norm *n);
/* The buffer of gathered results; n->to may be it. */
void *trm_peer_lane_gathered(const trm_peer_lane *lane);
/* Enqueues it on the stream, the same one for a lane or one ordered with it; cannot be captured. Writes only this
 * rank's rows of n->sum and reads only those of n->residual; with `whole_sum` writes all of the sum. */
trm_status trm_peer_lane_norm(trm_peer_lane *lane, const trm_peer_norm *n, const trm_norm_params *norm, bool whole_sum,
                              trm_stream *stream);

/* Arguments of an ALL_REDUCE_NORM. collectives/layer.c */
trm_peer_norm trm_all_reduce_norm_describe(const trm_kernel_call *call);

/* Creates a lane for the communicator, whose link it keeps; `host` moves host memory between the same ranks.
 * Collective; *lane is NULL if a rank lacks the memory or cannot map another's. */
trm_status trm_peer_lanes_take(trm_peer_lane **lanes, trm_device *device, trm_communicator *host,
                               const trm_peer_link *link, size_t bytes, trm_peer_lane **lane);
/* Frees all lanes; with `together`, each after all ranks have closed it. */
void trm_peer_lanes_destroy(trm_peer_lane *lanes, bool together);

/* peer_lane.cu: writes `epoch` into this rank's word of every peer, `theirs` [link->size], behind all that is before it
 * on the stream, and waits until the words of all peers, `mine` [link->size], are not before it. */
trm_status trm_cuda_peer_meet(const trm_peer_link *link, uint32_t *const *theirs, const uint32_t *mine, uint32_t epoch,
                              void *cuda_stream);

#ifdef __cplusplus
}
#endif
#endif
