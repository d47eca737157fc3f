/*
 * Captured steps: a step is padded to one of a few forms, so that one launch does what was captured for that form.
 */
#ifndef TRM_DIST_CAPTURED_H
#define TRM_DIST_CAPTURED_H

#include <stdbool.h>
#include <stdint.h>

#include "dist/chooser.h"
#include "kernels/device.h"

/* What a step is padded to. */
typedef struct trm_step_form {
    int32_t tokens, sequences, rows; /* rows of logits */
} trm_step_form;

typedef struct trm_captured_step {
    trm_step_form form;
    bool ready;        /* tuned where that is wanted, and libraries set up outside a capture */
    int32_t program;   /* of the ring, that it was captured with */
    int32_t uses;      /* before it was captured */
    uint64_t last_use; /* of those that give way to others; 0: the place is free */
    trm_graph_exec *execs[TRM_SAMPLE_MODE_COUNT]; /* NULL until first used */
    trm_graph_exec
        *aheads[TRM_SAMPLE_MODE_COUNT]; /* so are these: decode steps that go on where the one before ended */
} trm_captured_step;

/* Forms that every generator has from the beginning: decode steps, and those of one sequence's drafts. */
#define TRM_MAX_BUCKETS 64
/* Forms of other steps, the ones used last. */
#define TRM_MIXED_FORMS 48

typedef struct trm_captured_steps {
    trm_captured_step fixed[TRM_MAX_BUCKETS], mixed[TRM_MIXED_FORMS];
    int32_t n_decode, n_draft; /* of `fixed`: numbers of sequences, then numbers of tokens of one sequence's drafts */
    uint64_t uses;
    uint64_t places; /* version of the weights' places that captured steps have the addresses of */
} trm_captured_steps;

/* Decode steps of up to max_sequences sequences; steps that verify up to `drafts` drafted tokens of one sequence (0:
 * none), with max_rows rows at most. */
void trm_captured_steps_init(trm_captured_steps *steps, int32_t max_sequences, int32_t drafts, int32_t max_rows);
/* Drops all that was captured. */
void trm_captured_steps_drop(trm_captured_steps *steps);

/* The smallest decode step of at least n sequences, which there must be. */
trm_captured_step *trm_captured_decode(trm_captured_steps *steps, int32_t n);
/* The same for a step that verifies drafts of one sequence, n tokens; NULL: there is none. */
trm_captured_step *trm_captured_draft(trm_captured_steps *steps, int32_t n);
/* The step for any other mix of prompts, drafts and newest tokens, none of it more than `most`; NULL: too many tokens
 * for a capture to pay. It takes the place of the one not used for longest. */
trm_captured_step *trm_captured_mixed(trm_captured_steps *steps, const trm_step_form *form, const trm_step_form *most);

#endif
