/*
 * Graph buckets: a step is padded to one of a few shapes, so that it is one launch of the graph captured for that
 * shape.
 */
#ifndef TRM_DIST_LLM_GRAPH_BUCKETS_H
#define TRM_DIST_LLM_GRAPH_BUCKETS_H

#include <stdbool.h>
#include <stdint.h>

#include "dist/llm/sampler.h"
#include "kernels/device/device.h"

/* The shape that a step is padded to. */
typedef struct trm_step_form {
    int32_t tokens, sequences, rows; /* rows of logits */
    int32_t table_blocks;            /* width of the block table; 0: of the whole context */
} trm_step_form;

typedef struct trm_graph_bucket {
    trm_step_form form;
    bool ready;                                    /* tuned, if wanted, and libraries initialized outside a capture */
    int32_t schedule;                              /* copy schedule of the ring that it was captured with */
    int32_t uses;                                  /* uses before it was captured */
    uint64_t last_use;                             /* of buckets that can be replaced; 0: the place is free */
    trm_graph_exec *execs[TRM_SAMPLE_MODE_COUNT];  /* NULL until first used */
    trm_graph_exec *aheads[TRM_SAMPLE_MODE_COUNT]; /* also NULL until first used: async decode steps */
} trm_graph_bucket;

/* Buckets that every generator has from the start: decode steps, and steps that verify drafts of one sequence. */
#define TRM_MAX_BUCKETS 64
/* Buckets of other steps, the most recently used. */
#define TRM_MIXED_FORMS 48

/* Sequences of up to this many blocks decode with a block table of this width, where the context is longer: attention
 * chooses its kernel by the table's width. */
#define TRM_NARROW_BLOCKS 128

typedef struct trm_graph_buckets {
    trm_graph_bucket fixed[TRM_MAX_BUCKETS], mixed[TRM_MIXED_FORMS];
    trm_graph_bucket narrow[TRM_MAX_BUCKETS]; /* the decode steps of `fixed`, with a narrow block table */
    int32_t narrow_blocks;                    /* its width; 0: decode steps have one width */
    int32_t n_decode, n_draft; /* buckets of `fixed`: first decode steps by number of sequences, then draft steps by
                                  number of tokens */
    uint64_t uses;
    uint64_t places; /* version of the weight residency whose addresses captured steps use */
} trm_graph_buckets;

/* Makes buckets for decode steps of up to max_sequences sequences, also with a block table of narrow_blocks (0: not),
 * and for steps that verify up to `drafts` draft tokens of one sequence (0: none), with at most max_rows rows. */
void trm_graph_buckets_init(trm_graph_buckets *steps, int32_t max_sequences, int32_t drafts, int32_t max_rows,
                            int32_t narrow_blocks);
/* Drops all captured graphs. */
void trm_graph_buckets_drop(trm_graph_buckets *steps);

/* The smallest decode bucket of at least n sequences, which must exist, of up to `blocks` blocks each. */
trm_graph_bucket *trm_graph_bucket_decode(trm_graph_buckets *steps, int32_t n, int32_t blocks);
/* The same for a step of n tokens that verifies drafts of one sequence; NULL: none. */
trm_graph_bucket *trm_graph_bucket_draft(trm_graph_buckets *steps, int32_t n);
/* The bucket for any other mix of prompts, drafts and decoding sequences, within `most`; NULL: too many tokens for a
 * capture to pay off. A new one replaces the least recently used. */
trm_graph_bucket *trm_graph_bucket_mixed(trm_graph_buckets *steps, const trm_step_form *form,
                                         const trm_step_form *most);

#endif
