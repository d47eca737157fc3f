/*
 * Graph buckets: a step is padded to one of a few forms, so that it is one launch of the graph captured for that form.
 * Captured steps are in the cache of the generator's context (dist/runtime/capture_cache.h), by their form.
 */
#ifndef TRM_DIST_LLM_GRAPH_BUCKETS_H
#define TRM_DIST_LLM_GRAPH_BUCKETS_H

#include "dist/llm/sampler.h"
#include "dist/runtime/capture_cache.h"

/* What a step is padded to. */
typedef struct trm_step_form {
    int32_t tokens, sequences, rows; /* rows of logits */
    int32_t table_blocks;            /* width of the block table; 0: of the whole context */
} trm_step_form;

/* Buckets that every generator has from the start: decode steps, and steps that verify drafts of one sequence. */
#define TRM_MAX_BUCKETS 64
/* Buckets of other steps, the most recently used. */
#define TRM_MIXED_FORMS 48

/* Sequences of up to this many blocks decode with a block table of this width, where the context is longer: attention
 * chooses its kernel by the table's width. */
#define TRM_NARROW_BLOCKS 128

typedef struct trm_graph_buckets {
    trm_step_form fixed[TRM_MAX_BUCKETS];
    int32_t narrow_blocks;     /* width of another block table that decode steps may have; 0: none */
    int32_t n_decode, n_draft; /* buckets of `fixed`: first decode steps by number of sequences, then draft steps by
                                  number of tokens */
} trm_graph_buckets;

/* Makes buckets for decode steps of up to max_sequences sequences, also with a block table of narrow_blocks (0: not),
 * and for steps that verify up to `drafts` draft tokens of one sequence (0: none), with at most max_rows rows. */
void trm_graph_buckets_init(trm_graph_buckets *buckets, int32_t max_sequences, int32_t drafts, int32_t max_rows,
                            int32_t narrow_blocks);
/* Makes a cache for them, whose fixed buckets stay, and for TRM_MIXED_FORMS others. */
trm_status trm_graph_buckets_open(const trm_graph_buckets *buckets, trm_capture_cache *cache);

/* The smallest decode bucket of at least n sequences, which must exist, of up to `blocks` blocks each. */
trm_step_form trm_graph_bucket_decode(const trm_graph_buckets *buckets, int32_t n, int32_t blocks);
/* The same for a step of n tokens that verifies drafts of one sequence; NULL: none. */
const trm_step_form *trm_graph_bucket_draft(const trm_graph_buckets *buckets, int32_t n);
/* The form for any other mix of prompts, drafts and decoding sequences, within `most`; false: too many tokens for a
 * capture to pay off. */
bool trm_graph_bucket_mixed(const trm_step_form *form, const trm_step_form *most, trm_step_form *padded);

/* The form of a captured step. */
static inline const trm_step_form *trm_graph_bucket_form(const trm_captured_shape *step)
{
    return (const trm_step_form *)step->key;
}
/* A captured step's variant: async steps are apart. */
static inline int32_t trm_graph_bucket_variant(trm_sample_mode mode, bool is_async)
{
    return (int32_t)mode + (is_async ? TRM_SAMPLE_MODE_COUNT : 0);
}

#endif
