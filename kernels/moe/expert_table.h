/*
 * The expert cache of an EXPERTS layer: slots on the device for some of its experts, and a table on the device that
 * says which expert lies in which slot. All experts lie in host memory, where kernels read them. Calls of the device,
 * not layers: expert_table.c has the host's and defines them, cuda_expert_table.cu the others.
 *
 * A step calls trm_expert_table_select behind the router and trm_expert_table_fetch behind it. Then every expert that
 * the step uses lies in a slot, and the layer's kernels run on the slots, with numbers of slots in place of ids. No
 * host reads ids, so a step can be captured.
 */
#ifndef TRM_KERNELS_MOE_EXPERT_TABLE_H
#define TRM_KERNELS_MOE_EXPERT_TABLE_H

#include "kernels/device/device.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TRM_EXPERT_MOST_TENSORS 8 /* of an expert */

/* Places in trm_expert_table.clock. */
enum {
    TRM_EXPERT_STEPS = 0,
    TRM_EXPERT_HITS, /* experts that a step used and found in a slot, each once per step */
    TRM_EXPERT_MISSES,
    TRM_EXPERT_CLOCKS
};

/* The table of a layer. Everything is memory of the device, except `counts`. */
typedef struct trm_expert_table {
    int32_t experts, first; /* ids first .. first + experts - 1 are held here; at most TRM_MOE_MOST_EXPERTS */
    int32_t slots;          /* at most `experts` */
    int32_t *slot_of;       /* [experts] slot + 1; 0: not cached */
    int32_t *expert_of;     /* [slots] expert + 1; 0: empty */
    int64_t *used;          /* [slots] the last step that used it; 0: none */
    int64_t *clock;         /* [TRM_EXPERT_CLOCKS] */
    int32_t *missing;       /* [1 + 2 slots] how many the step fetches, then the expert and the slot of each */
    int64_t *counts;        /* [TRM_EXPERT_CLOCKS] copy of `clock` in host memory that the device writes */
} trm_expert_table;

/*
 * Gives every expert of a step a slot: ids [pairs] -> slot_ids [pairs], `first` + slot, or -1 for ids that are not held
 * here. Missing experts, the lowest first, take the slots that were not used for the longest time, of equal ones the
 * lowest. The step must not use more than `slots` experts; pairs <= slots is enough.
 */
trm_status trm_expert_table_select(trm_stream *stream, const trm_expert_table *table, const int32_t *ids, int64_t pairs,
                                   int32_t *slot_ids);

/* A tensor of all experts, stacked, and its slots. */
typedef struct trm_expert_tensor {
    const void *from; /* [experts] of `bytes`, in memory of the device or pinned host memory */
    void *to;         /* [slots] of `bytes` */
    size_t bytes;     /* of one expert */
} trm_expert_tensor;

/* Copies the missing experts of the last select to their slots. */
trm_status trm_expert_table_fetch(trm_stream *stream, const trm_expert_table *table, const trm_expert_tensor *tensors,
                                  int32_t n);

/* The backends'. */
trm_status trm_host_expert_select(trm_stream *stream, const trm_expert_table *table, const int32_t *ids, int64_t pairs,
                                  int32_t *slot_ids);
trm_status trm_cuda_expert_select(trm_stream *stream, const trm_expert_table *table, const int32_t *ids, int64_t pairs,
                                  int32_t *slot_ids);
trm_status trm_host_expert_fetch(trm_stream *stream, const trm_expert_table *table, const trm_expert_tensor *tensors,
                                 int32_t n);
trm_status trm_cuda_expert_fetch(trm_stream *stream, const trm_expert_table *table, const trm_expert_tensor *tensors,
                                 int32_t n);

#ifdef __cplusplus
}
#endif
#endif
