/*
 * A draft model: a smaller model of the same world drafts the next tokens of each sequence, and the scheduler's model
 * verifies them. Each slot has its own cache in the small generator, which holds a prefix of the slot's tokens. All
 * steps are greedy, and all ranks make them together.
 */
#ifndef TRM_DIST_LLM_SCHEDULER_DRAFT_MODEL_H
#define TRM_DIST_LLM_SCHEDULER_DRAFT_MODEL_H

#include "dist/llm/generator.h"

/* A slot to draft for. */
typedef struct trm_draft_slot {
    int32_t slot;
    int32_t *tokens;  /* [n_tokens + most] known ones, then the drafts */
    int64_t n_tokens; /* at least 1 */
    int32_t most;     /* to be drafted */
    int32_t n;        /* drafted */
    int32_t given;    /* tokens in the current step */
} trm_draft_slot;

typedef struct trm_draft_model {
    trm_generator *g;
    int32_t slots, step_tokens;
    int32_t *blocks;              /* [slots, blocks_per_sequence] */
    int64_t *n_cached;            /* [slots] tokens of the slot in the cache */
    trm_draft_slot *wanted;       /* [slots] */
    trm_step_sequence *sequences; /* [slots] */
    int32_t *slot_of;             /* [slots] of the sequences of a step */
    int32_t *chosen;              /* [slots] */
} trm_draft_model;

/* Allocates for `slots` sequences; steps have at most step_tokens tokens. */
trm_status trm_draft_model_init(trm_draft_model *drafter, trm_generator *g, int32_t slots, int32_t step_tokens);
void trm_draft_model_fini(trm_draft_model *drafter);
/* Empties the slot's cache, for another sequence. */
void trm_draft_model_forget(trm_draft_model *drafter, int32_t slot);
/* Keeps the first `right` draft tokens after n_tokens, which were accepted. */
void trm_draft_model_keep(trm_draft_model *drafter, int32_t slot, int64_t n_tokens, int32_t drafted, int32_t right);

/* Fills the next step for wanted [n]: first what the caches lack, then one token at a time. Returns its number of
 * sequences; 0: no step. */
int32_t trm_draft_model_fill(trm_draft_model *drafter, int32_t n);
/* Runs the step of `sequences` [n], on every rank. */
trm_status trm_draft_model_step(trm_draft_model *drafter, int32_t n);
/* Takes the tokens of the step filled. */
void trm_draft_model_take(trm_draft_model *drafter, int32_t n);

#endif
