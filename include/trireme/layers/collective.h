/* Exchanges between ranks. */
#ifndef TRIREME_LAYERS_COLLECTIVE_H
#define TRIREME_LAYERS_COLLECTIVE_H

#include <trireme/layers/common.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TRM_COLLECTIVE_OPS(X)                                                                                          \
    X(TRM_ALL_REDUCE, "all_reduce")                                                                                    \
    X(TRM_ALL_GATHER, "all_gather")                                                                                    \
    X(TRM_BROADCAST, "broadcast")                                                                                      \
    X(TRM_REDUCE, "reduce")                                                                                            \
    X(TRM_REDUCE_SCATTER, "reduce_scatter")                                                                            \
    X(TRM_ALL_TO_ALL, "all_to_all")                                                                                    \
    X(TRM_GATHER, "gather")                                                                                            \
    X(TRM_SCATTER, "scatter")                                                                                          \
    X(TRM_SEND, "send") /* to `root`; the output is the input */                                                       \
    X(TRM_RECV, "recv") /* from `root`; the output holds what came, the inputs give its dims and type */
typedef enum trm_collective_op { TRM_COLLECTIVE_OPS(TRM_ENUMERATOR) } trm_collective_op;

/*
 * One exchange between the ranks of a group; n is the group's size.
 *
 *   op              reduce   root     output along `axis`   content
 *   ALL_REDUCE      yes      -        same                  the reduction, on every rank
 *   ALL_GATHER      no       -        n * d                 all inputs in group order, on every rank
 *   BROADCAST       no       yes      same                  the root's input
 *   REDUCE          yes      yes      same                  the reduction on the root; elsewhere undefined
 *   REDUCE_SCATTER  yes      -        d / n                 rank i gets slice i of the reduction
 *   ALL_TO_ALL      no       -        same                  slice j of rank i becomes slice i of rank j
 *   GATHER          no       yes      n * d                 all inputs on the root; elsewhere undefined
 *   SCATTER         no       yes      d / n                 slice i of the root's input on rank i
 *   SEND, RECV      no       peer     same
 *
 * groups lists global ranks; n_groups groups of group_size each, and a rank runs the layer in the group
 * that names it. n_groups 0 is one group of all ranks. root is a global rank of the group (for several groups, an
 * index into the group). avg divides by n; on integers it truncates. Of bools max
 * (or) and min (and) only.
 *
 * RECV's output has the type and dims of its input, or, if `dtype` is set, that type and `dims`: a rank needs no tensor
 * like what it receives. A negative entry -m stands for axes of the inputs (up to 16, their axes counted one after the
 * other): that of number k where bit k of m is set, and if several are, what they broadcast to.
 */
typedef struct trm_collective_params {
    trm_collective_op op;
    trm_reduce_op reduce;
    int32_t axis;
    int32_t root;
    int32_t n_ranks; /* n, so that shapes follow without a communicator */
    int32_t n_groups, group_size;
    int32_t groups[TRM_MAX_RANKS];
    trm_dtype dtype; /* RECV only; NONE: like the input */
    trm_dims dims;
} trm_collective_params;

/* "all_reduce", ...; "sum", ..., "none"; "invalid" out of range. */
TRM_API const char *trm_collective_op_name(trm_collective_op op);
TRM_API const char *trm_reduce_op_name(trm_reduce_op op);

#ifdef __cplusplus
}
#endif
#endif
