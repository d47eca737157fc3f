/*
 * How many draft tokens a step verifies for the most tokens per second, by the acceptance rate of each sequence and the
 * times of steps by size. It knows nothing of where drafts come from.
 */
#ifndef TRM_DIST_LLM_SCHEDULER_SPECULATOR_H
#define TRM_DIST_LLM_SCHEDULER_SPECULATOR_H

#include <stdbool.h>
#include <stdint.h>

#include <trireme/generate.h>

/* Acceptance rates of a sequence, by confidence of the draft, 0 to TRM_DRAFT_CLASSES - 1. */
#define TRM_DRAFT_CLASSES 3
typedef struct trm_draft_record {
    float right[TRM_DRAFT_CLASSES]; /* share of verified draft tokens that were accepted */
} trm_draft_record;
void trm_draft_record_init(trm_draft_record *record);
/* Notes a draft of a class: `n` tokens were verified (up to the first wrong one), and `right` accepted. */
void trm_draft_record_note(trm_draft_record *record, int32_t class, int32_t n, int32_t right);

/* A sequence of a step. */
typedef struct trm_draft {
    int32_t n;   /* tokens drafted */
    float right; /* probability that each is right if those before it are */
} trm_draft;

#define TRM_STEP_SIZES 160 /* classes of steps: by the number of their tokens up to 64, then by 32 */

/* Times of steps by size class. */
typedef struct trm_step_time {
    double seconds;
    int32_t n;
} trm_step_time;

typedef struct trm_speculator {
    trm_step_time plain[TRM_STEP_SIZES], drafting[TRM_STEP_SIZES];
    int32_t n_plain;  /* timed steps without drafts */
    int32_t declined; /* consecutive steps in which drafts did not seem to pay off */
} trm_speculator;

/* Notes a step of `sequences` sequences with one token each and `drafted` draft tokens. */
void trm_speculator_note(trm_speculator *speculator, int32_t sequences, int32_t drafted, double seconds);
/* Most draft tokens per sequence that a step should have, 0 to `most`. `sequences` includes those without drafts;
 * `room` is the limit for all draft tokens. */
int32_t trm_speculator_choose(trm_speculator *speculator, int32_t sequences, const trm_draft *drafts, int32_t n_drafts,
                              int32_t most, int32_t room);

#endif
