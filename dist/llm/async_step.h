/*
 * A decode step that is under way before it is asked for: where every sequence of a step is likely to go on, the next
 * step follows it on the device at once, with the tokens that it chose, and the host is one step behind. If something
 * else is asked for then, the step was in vain: what it wrote to the cache lies behind the sequences' ends.
 */
#ifndef TRM_DIST_LLM_ASYNC_STEP_H
#define TRM_DIST_LLM_ASYNC_STEP_H

#include "dist/llm/graph_buckets.h"
#include "dist/llm/sampler.h"

/* The step waited for, the one before it and the one ahead of it. */
#define TRM_ASYNC_STEP_TURNS 3

typedef struct trm_async_step {
    trm_graph_bucket *step; /* the form of the step that is ahead; NULL: none is */
    trm_sample_mode mode;
    int32_t n;         /* sequences */
    int64_t *n_cached; /* [max_sequences] of the step that is ahead */
    int32_t *tokens;   /* [max_sequences] its tokens, once the step before has been waited for */

    int64_t n_taken, n_vain; /* steps that were ahead and were asked for, and that were not */
    int32_t turn;            /* of the step waited for */
    trm_event *ends[TRM_ASYNC_STEP_TURNS];
    int32_t *chosen[TRM_ASYNC_STEP_TURNS]; /* [max_sequences] pinned: the tokens of a step that was ahead */
} trm_async_step;

struct trm_generator;
struct trm_step_sequence;

trm_status trm_async_step_init(struct trm_generator *generator);
void trm_async_step_fini(struct trm_generator *generator);

/* Whether the step that is ahead is this one. */
bool trm_async_step_applies(const struct trm_generator *generator, const struct trm_step_sequence *sequences,
                            int32_t n);
/* Lets the step that is ahead run to its end and forgets it. Collective, as the step is. */
trm_status trm_async_step_settle(struct trm_generator *generator);
/* Enqueues the step behind one of `sequences`, which has been enqueued in this form. Their tables have a block for its
 * tokens. Collective. */
trm_status trm_async_step_enqueue(struct trm_generator *generator, trm_graph_bucket *step, trm_sample_mode mode,
                                  const struct trm_step_sequence *sequences, int32_t n);

#endif
