/*
 * The goldens of tests/goldens/hf, and the ways of running a model on them: in one pass, in chunks, token by token and
 * as a ragged batch, over a paged cache whose blocks lie in shuffled order. What runs the network is the caller's: the
 * test interpreter, or an execution context on any number of ranks.
 */
#ifndef TESTS_SUPPORT_HF_GOLDEN_H
#define TESTS_SUPPORT_HF_GOLDEN_H

#include <trireme/engine.h>
#include <trireme/model.h>

#include "support/interpreter.h"

#define TEST_GOLDEN_PROMPTS 3

/* Logits [n, vocab] of some positions. */
typedef struct test_golden_logits {
    int32_t n;
    int32_t *rows; /* [n] */
    float *values; /* [n, vocab] */
} test_golden_logits;

typedef struct test_golden_prompt {
    int32_t n;
    int32_t *tokens;           /* [n] */
    int32_t prefix;            /* tokens prefilled before decoding to the prompt's end */
    test_golden_logits whole;  /* of one pass */
    test_golden_logits decode; /* of the prefix's last token, and decoded ones */
} test_golden_prompt;

typedef struct test_golden {
    const char *name;
    trm_model *model;
    trm_model_info info;
    bool quantizes_x;     /* some product quantizes its x */
    bool chooses_experts; /* some router takes fewer experts than there are */
    double largest;       /* of the magnitudes of all logits */
    test_golden_prompt prompts[TEST_GOLDEN_PROMPTS];
} test_golden;

/* Names of all goldens, the folders of tests/goldens/hf in order; NULL past the end. */
const char *test_golden_name(int32_t index);
/* Path of a golden's model folder; valid until the next call. */
const char *test_golden_folder(const char *name);
void test_golden_open(const char *name, test_golden *golden); /* the test fails if it cannot */
void test_golden_close(test_golden *golden);

/* Of a run's rows: the largest difference from the golden's logits, relative to the golden's largest logit. */
typedef struct test_golden_difference {
    double worst, median; /* infinite where a logit is not a number; more than half of the rows are within the median */
} test_golden_difference;

/* The difference to accept when computing in `dtype` (NONE: the weights'). Where x is quantized, sums in another order
 * make another number of what lies between two. */
double test_golden_tolerance(const test_golden *golden, trm_dtype dtype);
/* The same where x is quantized by other scales, or not at all: rows of the tiny models, cut over 4 ranks, differ by up
 * to 0.29. */
#define TEST_GOLDEN_OTHER_SCALES 4e-1
/* Whether the worst row is within the tolerance. A tolerance of 1e-2 or more is for roundings that may give a token
 * another expert; its row, and rows that attend to it, then differ by any amount. Models that choose experts are judged
 * by the median row there, which must be within two thirds of it: a wrong kernel changes most rows. The worst must be
 * within 2, as far apart as logits of this size can be. */
bool test_golden_agrees(const test_golden *golden, const test_golden_difference *difference, double tolerance);

/* What runs the network: gives inputs, runs, hands out the logits [rows, vocab]. Each fails the test on errors. */
typedef struct test_runner {
    void *self;
    const trm_network *network; /* to see which inputs it has */
    void (*set_input)(void *self, const char *name, trm_dims dims, const void *data);
    const float *(*run)(void *self);
} test_runner;

test_runner test_runner_of_interpreter(test_interpreter *interpreter);
/* `network` is the one the context's plan was built from. */
test_runner test_runner_of_context(trm_context *context, const trm_network *network);

/* Blocks of the cache that the functions below use; give states that many. Sequence s of a batch has its own share. */
#define TEST_GOLDEN_SEQUENCES 4
#define TEST_GOLDEN_BLOCKS    4 /* of each sequence */
#define TEST_GOLDEN_CACHE     (TEST_GOLDEN_SEQUENCES * TEST_GOLDEN_BLOCKS + 3)

/* Most tokens and rows of a step that the functions below make, for bounds. */
#define TEST_GOLDEN_STEP_TOKENS 144 /* up to 4 ranks share them */

/* Bounds of the inputs and states of a golden's network, for trm_build: at most TEST_GOLDEN_MAX_BOUNDS. Returns their
 * number; names live with the network. */
#define TEST_GOLDEN_MAX_BOUNDS 32
int32_t test_golden_bounds(const trm_network *network, trm_shape_bound *bounds);

test_golden_difference test_golden_run_whole(const test_golden *golden, const test_runner *runner);
test_golden_difference test_golden_run_chunks(const test_golden *golden, const test_runner *runner, int32_t chunk);
test_golden_difference test_golden_run_decode(const test_golden *golden, const test_runner *runner);
/* All prompts at once: prefixes of all, with a sequence that has no tokens between, then decoding side by side. */
test_golden_difference test_golden_run_batch(const test_golden *golden, const test_runner *runner);

#endif
