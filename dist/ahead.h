/*
 * A decode step that is under way before it is asked for: where every sequence of a step is likely to go on, the next
 * step follows it on the device at once, with the tokens that it chose, and the host is one step behind. If something
 * else is asked for then, the step was in vain: what it wrote to the cache lies behind the sequences' ends.
 */
#ifndef TRM_DIST_AHEAD_H
#define TRM_DIST_AHEAD_H

#include "dist/captured.h"
#include "dist/chooser.h"

/* The step waited for, the one before it and the one ahead of it. */
#define TRM_AHEAD_TURNS 3

typedef struct trm_ahead {
    trm_captured_step *step; /* the form of the step that is ahead; NULL: none is */
    trm_sample_mode mode;
    int32_t n;         /* sequences */
    int64_t *n_cached; /* [max_sequences] of the step that is ahead */
    int32_t *tokens;   /* [max_sequences] its tokens, once the step before has been waited for */

    int64_t n_taken, n_vain; /* steps that were ahead and were asked for, and that were not */
    int32_t turn;            /* of the step waited for */
    trm_event *ends[TRM_AHEAD_TURNS];
    int32_t *chosen[TRM_AHEAD_TURNS]; /* [max_sequences] pinned: the tokens of a step that was ahead */
} trm_ahead;

struct trm_generator;
struct trm_step_sequence;

trm_status trm_ahead_init(struct trm_generator *generator);
void trm_ahead_fini(struct trm_generator *generator);

/* Whether the step that is ahead is this one. */
bool trm_ahead_is(const struct trm_generator *generator, const struct trm_step_sequence *sequences, int32_t n);
/* Lets the step that is ahead run to its end and forgets it. Collective, as the step is. */
trm_status trm_ahead_settle(struct trm_generator *generator);
/* Enqueues the step behind one of `sequences`, which has been enqueued in this form. Their tables have a block for its
 * tokens. Collective. */
trm_status trm_ahead_enqueue(struct trm_generator *generator, trm_captured_step *step, trm_sample_mode mode,
                             const struct trm_step_sequence *sequences, int32_t n);

#endif
