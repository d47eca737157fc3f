/*
 * Chooses how the GPUs of one host exchange data, by size, from times measured once at some sizes and kept in the
 * timing cache (kernels/tuner/tuner.h). Pure arithmetic; dist/parallel/exchange_times.c measures the times and gives
 * all ranks the same.
 *
 * At a size its first way is used. Between two sizes the fastest is used, by lines through the times at both; if an
 * order was edited, each way gets half. Equal times give equal ranges.
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

/* The weakest link between any two GPUs. */
typedef enum trm_peer_joint { TRM_JOINT_UNKNOWN = 0, TRM_JOINT_PCIE, TRM_JOINT_NVLINK } trm_peer_joint;

/* The configuration that times belong to. */
typedef struct trm_choice_machine {
    int32_t nccl, driver; /* versions, as NCCL and CUDA count them */
    trm_peer_joint joint;
    int32_t ranks;
} trm_choice_machine;

/* Ways of one size, the preferred first. n 0: unknown. */
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

/* Reads the ways among a timing's tactics, in order; skips other tactics, and times that are not above 0 and at most
 * 1e9 us. */
void trm_choice_read(const trm_timing *timing, trm_choice_times *times);
/* Sorts and rounds measured times as the cache does, so that they mean the same when read, and writes them as `tactics`
 * [TRM_PEER_WAYS]. */
void trm_choice_write(trm_choice_times *times, trm_tactic *tactics);

/* Ranges from the times of all sizes, `times` [trm_choice_n_sizes]; none if a size has no times. */
void trm_choice_make(trm_choice_op op, const trm_choice_times *times, trm_choice *choice);
/* The way for a size; NO_WAY, which is NCCL, past the last range. */
trm_peer_way trm_choice_way(const trm_choice *choice, size_t bytes);
/* "one_shot up to 512 KiB, bulk up to 8192 KiB, nccl" */
void trm_choice_describe(const trm_choice *choice, char *text, size_t size);

/* Sets the measured choice of a communicator over peer memory; until then constants decide. The same on every rank,
 * with no exchange running. collectives/cuda/peer.c */
const trm_choice *trm_communicator_peer_choice(const trm_communicator *communicator, trm_choice_op op);
void trm_communicator_set_peer_choice(trm_communicator *communicator, trm_choice_op op, const trm_choice *choice);
/* The configuration of its times; the communicator for other exchanges. */
void trm_communicator_peer_machine(const trm_communicator *communicator, trm_choice_machine *machine);
trm_communicator *trm_communicator_peer_inner(trm_communicator *communicator);
/* An all-reduce of up to TRM_PEER_BULK_BYTES, always over peer memory: adds in rank order, with the same bits for any
 * size and any measurement. */
trm_status trm_communicator_peer_sum(trm_communicator *communicator, const trm_exchange *x, trm_stream *stream);

#ifdef __cplusplus
}
#endif
#endif
