/*
 * The generator: a language model's engine and context with the tensors a step needs at hand. The public calls are in
 * <trireme/generate.h>.
 */
#ifndef TRM_DIST_LLM_GENERATOR_H
#define TRM_DIST_LLM_GENERATOR_H

#include <trireme/generate.h>

#include "dist/llm/async_step.h"
#include "dist/llm/graph_buckets.h"
#include "dist/llm/sampler.h"
#include "dist/llm/microbatch.h"

/* One sequence of a step: which tokens go in and where its cache lies. */
typedef struct trm_step_sequence {
    const int32_t *tokens; /* [n_tokens] new tokens, followed by one more where all of them are targets */
    int32_t n_tokens;
    int64_t n_cached;                /* tokens already in the cache */
    int64_t n_prompt;                /* tokens of the prompt: its chunks share the rotary scaling of the whole */
    const int32_t *blocks;           /* those that hold n_cached + n_tokens tokens */
    const trm_sampling_row *choices; /* [n_choices] */
    int32_t n_choices;  /* of the last so many tokens the next is chosen: 0 (a prompt's chunk that is not its last), 1,
                           or  more where the last tokens are drafts */
    int32_t n_targets;  /* the first so many tokens' successors' logprobs are wanted; n_tokens at most */
    int32_t n_hidden;   /* of the last so many tokens the hidden states are wanted */
    int32_t target_top; /* and of so many most probable ones */
} trm_step_sequence;

struct trm_generator {
    trm_model *model;
    trm_world *world;
    trm_engine *engine;
    trm_context *context;
    trm_model_info info;
    int64_t max_context;  /* tokens per sequence */
    int64_t cache_tokens; /* asked for; 0: max_sequences full sequences */
    int32_t max_sequences, max_step_tokens;
    int32_t max_rows; /* of logits in a step: one of each sequence, and those of drafts */
    trm_speculation speculation;
    trm_generator *draft;                  /* or NULL */
    int32_t blocks_per_sequence, n_blocks; /* width of the block table; blocks of the cache */
    int64_t vocab;

    /* inputs of the network; rope_lengths is NULL where the model has none */
    const trm_tensor *token_ids, *positions, *sequence_starts, *sequence_lengths, *block_table, *logit_rows,
        *rope_lengths;
    const trm_tensor *logits, *hidden; /* [rows, ..]; hidden is NULL without embeddings */
    char hidden_name[256];             /* "": none */
    unsigned char *hidden_staging;     /* [max_rows, hidden] of the last step's rows, in the tensor's type */

    trm_sampler sampler;
    trm_startup startup; /* without the world's share */

    /* steps of at least lane_tokens tokens that are not of decoding run in microbatches; NULL: none does */
    trm_microbatches *microbatches;
    int32_t lane_tokens;
    trm_step_sequence *lane_sequences; /* [2 * max_sequences] */

    bool tune;
    char *timing_cache; /* or NULL */
    trm_graph_buckets captured;
    trm_async_step ahead;
    bool goes_on;   /* of the next step: all its sequences are likely to go on, and have a block for one more token */
    bool pad_steps; /* steps are padded and run ahead where none is captured, too */

    trm_event *began;      /* of the step: inputs are about to be copied */
    double device_seconds; /* of the last step, from then until its tokens were on the host */
    bool was_captured;     /* the last step was */

    /* While weights stream, or with several ranks, one step of many is run layer by layer, to see what each takes */
    bool samples;
    int64_t n_steps, n_sampled; /* the former are those that could have been looked at */
    double layer_seconds;       /* of all layers of the last step, and of those that exchange with other ranks; 0 */
    double collective_seconds;  /* unless it was looked at */
};

/* Where failures of calls about a generator go (base/recorder.h); it may be NULL. */
trm_recorder *trm_generator_recorder(const trm_generator *generator);

/* Lets steps of at least `tokens` tokens run in microbatches. Where it pays, a generator does so itself. */
trm_status trm_generator_use_microbatches(trm_generator *generator, int32_t tokens);

/* Rows of logits a step needs for a sequence: those of its targets, of its choices, then of its hidden states. */
static inline int32_t trm_step_rows(const trm_step_sequence *sequence)
{
    return sequence->n_targets + sequence->n_choices + sequence->n_hidden;
}

/* Runs one step over n sequences and waits for it. chosen [n_choices of each] (may be NULL) receives the chosen tokens;
 * the sampler's staging memory has the logprobs by row. Steps in which every sequence has one token and wants one may
 * run captured and padded. At most max_rows rows. Collective: rank 0's choice is everyone's. Such a step with
 * `goes_on` starts the step behind it, too, which must be settled or the next. */
trm_status trm_generator_step(trm_generator *generator, const trm_step_sequence *sequences, int32_t n, int32_t *chosen);
/* Lets a generator whose weights stream, or with other ranks, look at a step now and then; nothing for others. */
trm_status trm_generator_time_steps(trm_generator *generator);
/* Rank 0's choice of n rows is everyone's from here on. */
trm_status trm_generator_agree_on_tokens(trm_generator *generator, int32_t n_rows);
/* Times the products of steps with about `tokens` tokens of up to max_sequences sequences, where the generator tunes.
 */
trm_status trm_generator_tune_mixed(trm_generator *generator, int32_t tokens);
/* Adds the hidden states of a row of the last step to `sum` [hidden]. */
void trm_generator_add_hidden(const trm_generator *generator, int32_t row, float *sum);

#endif
