/*
 * Async decode steps. If every sequence of a step is likely to continue, the device starts the next step at once with
 * the sampled tokens, and the host is one step behind. The host takes the async step as it is, or without sequences
 * that have ended. If it asks for another step, the async step is dropped. What a step wrote to the cache for a
 * sequence that it is not taken for lies after the sequence's end, and is overwritten by later steps.
 */
#ifndef TRM_DIST_LLM_ASYNC_STEP_H
#define TRM_DIST_LLM_ASYNC_STEP_H

#include "dist/llm/graph_buckets.h"
#include "dist/llm/sampler.h"

/* The step that the host waits for, the one before it and the one ahead of it. */
#define TRM_ASYNC_STEP_TURNS 3

typedef struct trm_async_step {
    trm_captured_shape *step; /* bucket of the async step; NULL: none */
    trm_sample_mode mode;
    int32_t n;         /* sequences */
    int64_t *n_cached; /* [max_sequences] of the async step */
    int32_t *tokens;   /* [max_sequences] its input tokens, once the host has the step before */
    int32_t *rows;     /* [max_sequences] its row of each sequence that it is taken for */

    int64_t n_taken, n_vain; /* async steps that the host used, and that it dropped */
    int32_t turn;            /* of the step that the host waits for */
    trm_event *ends[TRM_ASYNC_STEP_TURNS];
    int32_t *chosen[TRM_ASYNC_STEP_TURNS]; /* [max_sequences] pinned: the tokens of an async step */
} trm_async_step;

struct trm_generator;
struct trm_step_sequence;

trm_status trm_async_step_init(struct trm_generator *generator);
void trm_async_step_fini(struct trm_generator *generator);

/* Whether the async step is this one, perhaps with more sequences; fills `rows`. */
bool trm_async_step_applies(struct trm_generator *generator, const struct trm_step_sequence *sequences, int32_t n);
/* Waits for the async step and drops it. Collective, as the step is. */
trm_status trm_async_step_settle(struct trm_generator *generator);
/* Enqueues the step after that of `sequences`, which was enqueued in bucket `step`. Their block tables have room for
 * its tokens. Collective. */
trm_status trm_async_step_enqueue(struct trm_generator *generator, trm_captured_shape *step, trm_sample_mode mode,
                                  const struct trm_step_sequence *sequences, int32_t n);

#endif
