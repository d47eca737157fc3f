/*
 * How many drafted tokens a step verifies, so that it gives the most tokens a second: from how often the drafts of each
 * sequence were right and how long steps of how many tokens took. Knows nothing of where drafts come from.
 */
#ifndef TRM_DIST_LLM_SCHEDULER_SPECULATOR_H
#define TRM_DIST_LLM_SCHEDULER_SPECULATOR_H

#include <stdbool.h>
#include <stdint.h>

#include <trireme/generate.h>

/* How often a sequence's drafts were right: by how sure the guess was, from 0 to TRM_DRAFT_CLASSES - 1. */
#define TRM_DRAFT_CLASSES 3
typedef struct trm_draft_record {
    float right[TRM_DRAFT_CLASSES]; /* share of drafted tokens that came, of those that were looked at */
} trm_draft_record;
void trm_draft_record_init(trm_draft_record *record);
/* Of a draft of a class `n` tokens were looked at (up to the first wrong one), and all or all but the last right. */
void trm_draft_record_note(trm_draft_record *record, int32_t class, int32_t n, int32_t right);

/* A sequence of the step. */
typedef struct trm_draft {
    int32_t n;   /* tokens drafted */
    float right; /* how likely each is right if those before it are */
} trm_draft;

#define TRM_STEP_SIZES 160 /* classes of steps: by the number of their tokens up to 64, then by 32 */

/* How long steps of a size take. */
typedef struct trm_step_time {
    double seconds;
    int32_t n;
} trm_step_time;

typedef struct trm_speculator {
    trm_step_time plain[TRM_STEP_SIZES], drafting[TRM_STEP_SIZES];
    int32_t n_plain;  /* steps without drafts that were timed */
    int32_t declined; /* steps in a row in which drafts did not seem to pay */
} trm_speculator;

/* Notes a step of `sequences` sequences with a token each and `drafted` more. */
void trm_speculator_note(trm_speculator *speculator, int32_t sequences, int32_t drafted, double seconds);
/* The most drafted tokens of each sequence that a step should have: 0 to `most`. `sequences` include those without
 * drafts; `room` is for drafted tokens in all. */
int32_t trm_speculator_choose(trm_speculator *speculator, int32_t sequences, const trm_draft *drafts, int32_t n_drafts,
                              int32_t most, int32_t room);

#endif
