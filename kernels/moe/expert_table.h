/*
 * The expert cache of an EXPERTS layer: slots on the device for some of its experts, and a table on the device that
 * says which expert lies in which slot. Kernels read the experts in host memory. Calls of the device, not layers:
 * expert_table.c has the host's and defines them, cuda_expert_table.cu the others.
 *
 * A step calls trm_expert_table_select behind the router and trm_expert_table_fetch behind it. Then every expert that
 * the step uses lies in a slot, and the layer's kernels run on the slots, with numbers of slots in place of ids. No
 * host reads ids, so a step can be captured.
 *
 * The CPU may compute some of the missing experts where they lie, while the others are fetched. The select puts their
 * ids and the rows of x into a mailbox, memory of the host that both see; threads of the host poll it, answer, and
 * trm_expert_table_add waits for the answer and adds it to the layer's output.
 *
 * If host memory has room for a part of the experts only, a fetch first demands those that it is to bring, in memory of
 * the host that both see. A thread reads what is missing from files, and tells where each lies.
 */
#ifndef TRM_KERNELS_MOE_EXPERT_TABLE_H
#define TRM_KERNELS_MOE_EXPERT_TABLE_H

#include "kernels/device/device.h"
#include "kernels/moe/moe.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TRM_EXPERT_MOST_TENSORS 8 /* of an expert */

/* Places in trm_expert_table.clock. */
enum {
    TRM_EXPERT_STEPS = 0,
    TRM_EXPERT_HITS,   /* experts that a step used and found in a slot, each once per step */
    TRM_EXPERT_MISSES, /* experts that were fetched */
    TRM_EXPERT_HOSTED, /* experts that the CPU computed */
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
    int64_t *last;          /* [experts] the last step that used it; 0: none */
    int64_t *uses;          /* [experts] steps that used it */
    const int32_t *shares;  /* [1 + slots] of each number of missing experts, those for the CPU; NULL: none */
} trm_expert_table;

/* What a select hands over, and the number of the last answer. */
#define TRM_EXPERT_MOST_PAIRS 256
typedef struct trm_expert_mail {
    int64_t posted; /* number of the request, from 1 on; written last */
    int32_t layer, tokens, k;
    int32_t late;                         /* an answer did not come in time: written by the device */
    int32_t ids[TRM_EXPERT_MOST_PAIRS];   /* [tokens, k]; -1: not for the CPU */
    float weights[TRM_EXPERT_MOST_PAIRS]; /* [tokens, k] */
    unsigned char apart[256];             /* the device writes what is above, the host what is below */
    int64_t done;                         /* number of the last request that was answered; written last */
    unsigned char behind[248];
} trm_expert_mail;

/* Where they meet. All layers of a stream share one: a request is answered before the next is written. */
typedef struct trm_expert_mailbox {
    trm_expert_mail *mail;  /* as x and y, memory of trm_device_alloc_host */
    void *x;                /* rows of the layer's input */
    float *y;               /* [tokens, hidden] the answer */
    int64_t *sent;          /* [3] of the device: requests so far; number of the last select's, or 0; 1: one is late */
    int64_t limit;          /* ns that the device waits for an answer */
    trm_host_task_fn serve; /* on the host, where streams run at once, this answers; elsewhere a thread does */
    void *server;
} trm_expert_mailbox;

/* For whom a select may leave experts to the CPU. */
typedef struct trm_expert_post {
    const trm_expert_mailbox *box;
    int32_t layer, tokens, k;
    const float *weights; /* [tokens, k] of the router */
    const void *x;
    size_t x_bytes; /* of all rows */
} trm_expert_post;

/* A missing expert is fetched whatever the share, if the slot that was not used for the longest time was idle this many
 * times as long as the expert: then the slots hold what is used more seldom. */
#define TRM_EXPERT_RETURNS 16

/*
 * Gives every expert of a step a slot: ids [pairs] -> slot_ids [pairs], `first` + slot, or -1 for ids that are not held
 * here. Missing experts, the lowest first, take the slots that were not used for the longest time, of equal ones the
 * lowest. The step must not use more than `slots` experts; pairs <= slots is enough.
 *
 * With a post (else NULL), and shares, the CPU gets those of the missing experts that were not used for the longest
 * time, of equal ones the highest, and their slot ids are -1. While an answer is late it gets none.
 */
trm_status trm_expert_table_select(trm_stream *stream, const trm_expert_table *table, const int32_t *ids, int64_t pairs,
                                   int32_t *slot_ids, const trm_expert_post *post);

/* Adds the CPU's answer to the last select of this mailbox, if there is to be one, to y [n] of f32, f16 or bf16. After
 * `limit` without an answer y stays as it is, and mail->late is set. */
trm_status trm_expert_table_add(trm_stream *stream, const trm_expert_mailbox *box, trm_dtype type, void *y, int64_t n);

/* A tensor of all experts, stacked, and its slots. */
typedef struct trm_expert_tensor {
    const void *from; /* [experts] of `bytes`, in memory of the device or pinned host memory; NULL: it is supplied */
    void *to;         /* [slots] of `bytes` */
    size_t bytes;     /* of one expert */
    size_t offset;    /* if it is supplied, of the tensor in an expert */
} trm_expert_tensor;

/* Where an expert lies, as the host answers. */
typedef struct trm_expert_found {
    const unsigned char *at; /* pinned host memory; NULL: it could not be read */
    int64_t number;          /* of the demand; written last */
} trm_expert_found;

/* What a fetch demands, and the answers. */
typedef struct trm_expert_demand {
    int64_t posted; /* number of the demand, from 1 on; written last */
    int32_t layer, n;
    int32_t late;                                 /* an answer did not come in time: written by the device */
    int32_t experts[TRM_MOE_MOST_EXPERTS];        /* [n], different ones, from 0 on */
    unsigned char apart[256];                     /* the device writes what is above, the host what is below */
    int64_t done;                                 /* number of the last demand that was answered; written last */
    trm_expert_found found[TRM_MOE_MOST_EXPERTS]; /* [n] of the last demand */
} trm_expert_demand;

/* Where they meet. All layers of a stream share one: what was supplied stays until the next demand. */
typedef struct trm_expert_supply {
    trm_expert_demand *demand; /* memory of trm_device_alloc_host */
    int64_t *sent;             /* [3] of the device: demands so far; number of the last fetch's, or 0; 1: one is late */
    int64_t limit;             /* ns that the device waits for an expert */
    trm_host_task_fn serve;    /* on the host, where streams run at once, this answers; elsewhere a thread does */
    void *server;
} trm_expert_supply;

/* Copies the missing experts of the last select to their slots. With a supply (else NULL) the host is asked where they
 * lie, as layer `layer`. Those that it does not supply within the limit, or cannot, leave their slots empty; the
 * former set demand->late. While a demand is late nothing is demanded, and slots stay empty. */
trm_status trm_expert_table_fetch(trm_stream *stream, const trm_expert_table *table, const trm_expert_tensor *tensors,
                                  int32_t n, const trm_expert_supply *supply, int32_t layer);

/* The backends'. */
trm_status trm_host_expert_select(trm_stream *stream, const trm_expert_table *table, const int32_t *ids, int64_t pairs,
                                  int32_t *slot_ids, const trm_expert_post *post);
trm_status trm_host_expert_add(trm_stream *stream, const trm_expert_mailbox *box, trm_dtype type, void *y, int64_t n);
trm_status trm_cuda_expert_select(trm_stream *stream, const trm_expert_table *table, const int32_t *ids, int64_t pairs,
                                  int32_t *slot_ids, const trm_expert_post *post);
trm_status trm_cuda_expert_add(trm_stream *stream, const trm_expert_mailbox *box, trm_dtype type, void *y, int64_t n);
trm_status trm_host_expert_fetch(trm_stream *stream, const trm_expert_table *table, const trm_expert_tensor *tensors,
                                 int32_t n, const trm_expert_supply *supply, int32_t layer);
trm_status trm_cuda_expert_fetch(trm_stream *stream, const trm_expert_table *table, const trm_expert_tensor *tensors,
                                 int32_t n, const trm_expert_supply *supply, int32_t layer);

#ifdef __cplusplus
}
#endif
#endif
