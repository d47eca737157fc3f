/*
 * The generator: a language model's engine and context, with the tensors that a step needs. The public calls are in
 * <trireme/generate.h>.
 */
#ifndef TRM_DIST_LLM_GENERATOR_H
#define TRM_DIST_LLM_GENERATOR_H

#include <trireme/generate.h>

#include "dist/llm/adapters.h"
#include "dist/llm/async_step.h"
#include "dist/llm/draft_head.h"
#include "dist/llm/graph_buckets.h"
#include "dist/llm/sampler.h"
#include "dist/llm/microbatch.h"

/* One sequence of a step: its new tokens and its cache blocks. */
typedef struct trm_step_sequence {
    const int32_t *tokens; /* [n_tokens] new tokens, followed by one more if all of them are targets */
    int32_t n_tokens;
    int64_t n_cached;                /* tokens already in the cache */
    int64_t n_prompt;                /* tokens of the prompt: its chunks share the rotary scaling of the whole */
    const int32_t *blocks;           /* blocks for n_cached + n_tokens tokens */
    int32_t read_slot, write_slot;   /* of states by sequence: what the step begins with, where it leaves its own */
    const trm_sampling_row *choices; /* [n_choices] */
    int32_t n_choices;  /* sample after this many last tokens: 0 for a chunk that does not end its prompt, 1, or more if
                           the last tokens are drafts */
    int32_t n_targets;  /* logprobs of the successors of this many first tokens; at most n_tokens */
    int32_t n_hidden;   /* hidden states of this many last tokens */
    int32_t target_top; /* and logprobs of this many most probable tokens */
    int32_t adapter;    /* 0: none */
    int32_t hidden_row; /* of a draft head: row of the hidden state before the first token */
} trm_step_sequence;

struct trm_generator {
    trm_model *model;
    trm_world *world;
    trm_engine *engine;
    trm_context *context;
    trm_model_info info;
    int64_t max_context;  /* tokens per sequence */
    int64_t cache_tokens; /* as asked for; 0: max_sequences full sequences */
    int32_t max_sequences, max_step_tokens;
    int32_t max_rows; /* logits rows in a step: one per sequence, and those of drafts */
    trm_speculation speculation;
    trm_generator *draft;    /* or NULL */
    trm_generator *head;     /* a draft head, this generator's own, or NULL */
    trm_draft_input of_head; /* of a draft head */
    int32_t token_ranks;     /* ranks along cp, which share the tokens of a step: it has a multiple of their number */
    int32_t block_tokens;    /* of a cache block, of which every one of these ranks has TRM_KV_BLOCK_SIZE */
    int32_t blocks_per_sequence, n_blocks; /* width of the block table; blocks of the cache */
    /* Versions of states by sequence: one more than the last tokens that can be taken back; 0: there are no states. */
    int32_t versions;
    int32_t state_slots; /* of them: for running sequences, and for prefixes */
    int64_t vocab;
    trm_adapter_slots adapters;

    /* inputs of the network; sequence_slots, rope_lengths and adapter_slots are NULL if it has none */
    const trm_tensor *token_ids, *positions, *sequence_starts, *sequence_lengths, *sequence_slots, *block_table,
        *logit_rows, *rope_lengths, *adapter_slots;
    const trm_tensor *logits, *hidden; /* [rows, ...]; hidden is NULL without embeddings */
    const trm_tensor *draft_hidden; /* what a draft head goes on with: of all tokens, or of a head's rows; NULL: none */
    char draft_hidden_name[256];    /* "": none */
    int32_t n_draft_hidden;         /* rows of it in the last step */
    bool was_microbatched;          /* the last step */
    char hidden_name[256];          /* "": none */
    unsigned char *hidden_staging;  /* [max_rows, hidden] of the last step's rows, in the tensor's type */

    trm_sampler sampler;
    trm_startup startup; /* without the world's share */

    /* Prefill steps of at least lane_tokens tokens run in microbatches; NULL: none does. */
    trm_microbatches *microbatches;
    int32_t lane_tokens;
    trm_step_sequence *lane_sequences; /* [2 * max_sequences] */

    bool tune;
    char *timing_cache; /* or NULL */
    trm_graph_buckets buckets;
    trm_async_step ahead;
    bool goes_on; /* of the next step: all its sequences will probably continue, and have a block for one more token */
    bool pad_steps; /* also pad steps and run them async if they are not captured */

    trm_event *began;      /* start of the step, before its inputs are copied */
    double device_seconds; /* of the last step, from `began` until its tokens are on the host */
    bool was_captured;     /* the last step was launched as a graph */

    /* While weights stream, or with several ranks, some steps are profiled layer by layer. */
    bool samples, is_sample;    /* is_sample: this step */
    bool is_traced;             /* this step's layers are timed for the timeline alone */
    int64_t n_steps, n_sampled; /* steps that could be profiled, and that were */
    double layer_seconds;       /* of all layers of the last step, and of its collectives; 0 */
    double collective_seconds;  /* unless it was profiled */
};

/* Whether the generator is itself a draft head. */
static inline bool trm_generator_is_head(const trm_generator *generator)
{
    return generator->of_head.is_head;
}

/* ---- generator.c, for draft heads ----------------------------------------------------------------- */

/* Plans a network by the generator's limits, with a cache of one block. */
trm_status trm_generator_build_plan(trm_generator *generator, trm_network *network, const trm_build_options *wanted,
                                    trm_plan **plan);
/* Makes the plan's workspace large enough for every decode step. */
trm_status trm_generator_cover_steps(trm_generator *generator, trm_plan *plan);
/* Allocates what comes after the weights. */
trm_status trm_generator_prepare(trm_generator *generator);

/* ---- warm_up.c ------------------------------------------------------------------------------------- */

/* Tunes and captures the greedy decode step of every bucket, and runs a short prompt. Steps that sample are captured at
 * first use and need no tuning then. Collective. */
trm_status trm_generator_warm_up(trm_generator *generator);

/* The recorder for failed calls about a generator (base/recorder.h), which may be NULL. */
trm_recorder *trm_generator_recorder(const trm_generator *generator);

/* Makes steps of at least `tokens` tokens run in microbatches. A generator does so itself if it pays off. */
trm_status trm_generator_use_microbatches(trm_generator *generator, int32_t tokens);

/* Width of the block table of a step in this form, which may be NULL. */
static inline int32_t trm_generator_table_blocks(const trm_generator *generator, const trm_step_form *form)
{
    return form != NULL && form->table_blocks > 0 ? form->table_blocks : generator->blocks_per_sequence;
}

/* Number of cache blocks for `tokens` tokens. */
static inline int32_t trm_generator_blocks(const trm_generator *generator, int64_t tokens)
{
    return (int32_t)((tokens + generator->block_tokens - 1) / generator->block_tokens);
}

/* `tokens`, rounded up to a number that ranks along cp can share; down, where that would pass INT32_MAX. */
static inline int32_t trm_generator_padded(const trm_generator *generator, int32_t tokens)
{
    const int64_t ranks = generator->token_ranks, padded = (tokens + ranks - 1) / ranks * ranks;
    return (int32_t)(padded <= INT32_MAX ? padded : INT32_MAX / ranks * ranks);
}

/* Number of logits rows that a step needs for a sequence: of its targets, its choices, then its hidden states. */
static inline int32_t trm_step_rows(const trm_step_sequence *sequence)
{
    return sequence->n_targets + sequence->n_choices + sequence->n_hidden;
}

/* Runs one step over sequences [n], of at most max_rows rows, and waits for it. chosen [sum of n_choices] (may be NULL)
 * receives the sampled tokens; the sampler's staging memory has the logprobs by row. Steps in which every sequence has
 * one token and wants one may run padded and captured; with `goes_on` such a step also starts an async step, which must
 * be the next one or be settled. Collective: rank 0's tokens count for all. */
trm_status trm_generator_step(trm_generator *generator, const trm_step_sequence *sequences, int32_t n, int32_t *chosen);
/* Profiles some steps if weights stream or there are several ranks; else does nothing. */
trm_status trm_generator_time_steps(trm_generator *generator);
/* Copies rank 0's sampled tokens of n rows to all ranks. */
trm_status trm_generator_agree_on_tokens(trm_generator *generator, int32_t n_rows);
/* If the generator tunes, times the products of steps with about `tokens` tokens of up to max_sequences sequences. */
trm_status trm_generator_tune_mixed(trm_generator *generator, int32_t tokens);
/* Adds the hidden states of a row of the last step to `sum` [hidden]. */
void trm_generator_add_hidden(const trm_generator *generator, int32_t row, float *sum);

#endif
