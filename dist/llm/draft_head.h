/*
 * Draft heads: a small generator beside a generator, which owns it. It predicts further tokens from the generator's
 * hidden states, with a cache of its own in blocks of the same numbers. Row i of that cache is made of token i + 1 and
 * the hidden state of token i; so a step of the head follows every step of the generator.
 */
#ifndef TRM_DIST_LLM_DRAFT_HEAD_H
#define TRM_DIST_LLM_DRAFT_HEAD_H

#include <trireme/generate.h>

#include "dist/plan/plan.h"
#include "graph/network.h"

/* What a draft head has besides other generators. */
typedef struct trm_draft_input {
    bool is_head;
    int64_t hidden;         /* elements of a hidden state */
    const trm_tensor *rows; /* input: where each token's hidden state is */
    unsigned char *memory;  /* device [max_step_tokens, hidden]: hidden states to begin with */
    int32_t *tokens;        /* [vocab] the generator's token for each of the head's; NULL: they are the same */
} trm_draft_input;

/* Device memory that a head needs: of a cache block, and all else. Zeros without a plan. */
typedef struct trm_draft_head_size {
    size_t block, others;
} trm_draft_head_size;

/* Whether a generator with these options has a draft head. */
bool trm_draft_head_wanted(const trm_generator_options *options);
/* Refuses meshes and options that a draft head does not go with. */
trm_status trm_draft_head_check(const trm_generator_options *options, const trm_mesh *mesh);
/* Notes the second output of a network with a draft head, or of one. */
trm_status trm_draft_head_name(trm_generator *g, const trm_network *network);
/* Finds that output in the rank's network. */
trm_status trm_draft_head_find(trm_generator *g);
/* Makes g->head, with the limits of `g`, which has its own; plans it with a cache of one block, and with the weights
 * that it shares with the generator's plan, `whole`. */
trm_status trm_draft_head_plan(trm_generator *g, const trm_generator_options *options, const trm_build_options *build,
                               const trm_plan *whole, trm_plan **plan);
/* Head and plan may be NULL. */
trm_draft_head_size trm_draft_head_size_of(trm_generator *head, const trm_plan *plan, trm_stream *stream);
/* Gives the head as many cache blocks as `g` has. */
trm_status trm_draft_head_size_cache(trm_generator *g, trm_plan *plan);
void trm_draft_head_add_memory(const trm_generator *head, trm_memory_plan *memory);
/* Makes the device memory of hidden states an input of the head's steps. */
trm_status trm_draft_head_bind(trm_generator *head);

/* Gives the head the hidden states of the last step of `from`, its generator or itself: its next step begins with them.
 */
trm_status trm_draft_head_feed(trm_generator *head, trm_generator *from);
/* The generator's token for a token of the head. */
int32_t trm_draft_head_token(const trm_generator *head, int32_t token);

#endif
