/*
 * Captured steps: a step is padded to one of a few forms, so that one launch does what was captured for that form.
 */
#ifndef TRM_DIST_LLM_GRAPH_BUCKETS_H
#define TRM_DIST_LLM_GRAPH_BUCKETS_H

#include <stdbool.h>
#include <stdint.h>

#include "dist/llm/sampler.h"
#include "kernels/device/device.h"

/* What a step is padded to. */
typedef struct trm_step_form {
    int32_t tokens, sequences, rows; /* rows of logits */
} trm_step_form;

typedef struct trm_graph_bucket {
    trm_step_form form;
    bool ready;        /* tuned where that is wanted, and libraries set up outside a capture */
    int32_t schedule;  /* of the ring, that it was captured with */
    int32_t uses;      /* before it was captured */
    uint64_t last_use; /* of those that give way to others; 0: the place is free */
    trm_graph_exec *execs[TRM_SAMPLE_MODE_COUNT]; /* NULL until first used */
    trm_graph_exec
        *aheads[TRM_SAMPLE_MODE_COUNT]; /* so are these: decode steps that go on where the one before ended */
} trm_graph_bucket;

/* Forms that every generator has from the beginning: decode steps, and those of one sequence's drafts. */
#define TRM_MAX_BUCKETS 64
/* Forms of other steps, the ones used last. */
#define TRM_MIXED_FORMS 48

typedef struct trm_graph_buckets {
    trm_graph_bucket fixed[TRM_MAX_BUCKETS], mixed[TRM_MIXED_FORMS];
    int32_t n_decode, n_draft; /* of `fixed`: numbers of sequences, then numbers of tokens of one sequence's drafts */
    uint64_t uses;
    uint64_t places; /* version of the weights' places that captured steps have the addresses of */
} trm_graph_buckets;

/* Decode steps of up to max_sequences sequences; steps that verify up to `drafts` drafted tokens of one sequence (0:
 * none), with max_rows rows at most. */
void trm_graph_buckets_init(trm_graph_buckets *steps, int32_t max_sequences, int32_t drafts, int32_t max_rows);
/* Drops all that was captured. */
void trm_graph_buckets_drop(trm_graph_buckets *steps);

/* The smallest decode step of at least n sequences, which there must be. */
trm_graph_bucket *trm_graph_bucket_decode(trm_graph_buckets *steps, int32_t n);
/* The same for a step that verifies drafts of one sequence, n tokens; NULL: there is none. */
trm_graph_bucket *trm_graph_bucket_draft(trm_graph_buckets *steps, int32_t n);
/* The step for any other mix of prompts, drafts and newest tokens, none of it more than `most`; NULL: too many tokens
 * for a capture to pay. It takes the place of the one not used for longest. */
trm_graph_bucket *trm_graph_bucket_mixed(trm_graph_buckets *steps, const trm_step_form *form,
                                         const trm_step_form *most);

#endif
