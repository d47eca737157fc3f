/*
 * Which way an exchange between the GPUs of one host takes, by its size: from times that were measured there once, at
 * some sizes, and are kept in the timing cache (kernels/tuner/tuner.h). Plain arithmetic on those times; they are
 * taken, and all ranks given the same, by dist/parallel/exchange_times.c.
 *
 * The first of a size's ways is used at it. Between two sizes the fastest is, by the lines through the times at both;
 * where an order was edited, half of the way each. The same times give the same ranges, bit by bit.
 */
#ifndef TRM_COLLECTIVES_CHOICE_H
#define TRM_COLLECTIVES_CHOICE_H

#include "collectives/peer.h"
#include "kernels/tuner/tuner.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TRM_PEER_WAYS     4
#define TRM_CHOICE_SIZES  9 /* of an op at most */
#define TRM_CHOICE_RANGES (TRM_CHOICE_SIZES * TRM_PEER_WAYS)

/* Sums of floats; what every rank gets of every rank, or of one. */
typedef enum trm_choice_op { TRM_CHOICE_ALL_REDUCE = 0, TRM_CHOICE_GATHER, TRM_CHOICE_OPS } trm_choice_op;

/* What the GPUs are joined by; the weakest link of any two. */
typedef enum trm_peer_joint { TRM_JOINT_UNKNOWN = 0, TRM_JOINT_PCIE, TRM_JOINT_NVLINK } trm_peer_joint;

/* What times are true of. */
typedef struct trm_choice_machine {
    int32_t nccl, driver; /* versions, as NCCL and CUDA count them */
    trm_peer_joint joint;
    int32_t ranks;
} trm_choice_machine;

/* Ways of one size, the one to use first. n 0: not known. */
typedef struct trm_choice_times {
    int32_t n;
    trm_peer_way ways[TRM_PEER_WAYS];
    double microseconds[TRM_PEER_WAYS];
} trm_choice_times;

/* Ways by size: ranges[0] up to its `most` bytes, ranges[1] from there on, and so on. n 0: not measured. */
typedef struct trm_choice {
    int32_t n;
    struct {
        size_t most;
        trm_peer_way way;
    } ranges[TRM_CHOICE_RANGES];
} trm_choice;

/* Sizes to measure, ascending; bytes of the vector, or of a rank's block. */
int32_t trm_choice_n_sizes(trm_choice_op op);
size_t trm_choice_size(trm_choice_op op, int32_t index);

/* "one_shot", "two_shot", "bulk"; "nccl" for NO_WAY. */
const char *trm_peer_way_name(trm_peer_way way);

/* The problem of the timing cache. */
void trm_choice_problem(const trm_choice_machine *machine, trm_choice_op op, size_t bytes,
                        char text[TRM_PROBLEM_TEXT_SIZE]);

/* The tactics of a timing that are ways, as they stand; others are passed over, and times that are not above 0 and at
 * most 1e9 us. */
void trm_choice_read(const trm_timing *timing, trm_choice_times *times);
/* Puts measured times in the order and to the digits that the cache keeps, so that they mean the same when they are
 * read, and gives them as `tactics` [TRM_PEER_WAYS]. */
void trm_choice_write(trm_choice_times *times, trm_tactic *tactics);

/* Ranges by the times of all sizes, `times` [trm_choice_n_sizes]; none where those of a size are not known. */
void trm_choice_make(trm_choice_op op, const trm_choice_times *times, trm_choice *choice);
/* Of a choice that was measured; NO_WAY, which is NCCL, past its last range. */
trm_peer_way trm_choice_way(const trm_choice *choice, size_t bytes);
/* "one_shot up to 512 KiB, bulk up to 8192 KiB, nccl" */
void trm_choice_describe(const trm_choice *choice, char *text, size_t size);

/* Of a communicator over peer memory alone: what was measured for it; until it is set constants decide. The same on
 * every rank, and when nothing is under way. collectives/cuda/peer.c */
const trm_choice *trm_communicator_peer_choice(const trm_communicator *communicator, trm_choice_op op);
void trm_communicator_set_peer_choice(trm_communicator *communicator, trm_choice_op op, const trm_choice *choice);
/* What its times are true of; the communicator that it leaves other exchanges to. */
void trm_communicator_peer_machine(const trm_communicator *communicator, trm_choice_machine *machine);
trm_communicator *trm_communicator_peer_inner(trm_communicator *communicator);
/* An all-reduce of a sum of up to TRM_PEER_BULK_BYTES, never by another communicator: added in rank order, with the
 * same bits whatever its size and whatever was measured. */
trm_status trm_communicator_peer_sum(trm_communicator *communicator, const trm_exchange *x, trm_stream *stream);

#ifdef __cplusplus
}
#endif
#endif
