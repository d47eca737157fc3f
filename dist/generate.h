/*
 * The generator: a language model's engine and context with the tensors a step needs at hand. The public calls are in
 * <trireme/generate.h>.
 */
#ifndef TRM_DIST_GENERATE_H
#define TRM_DIST_GENERATE_H

#include <trireme/generate.h>

#include "dist/lanes.h"
#include "kernels/sample.h"

/* How the tokens of a step are chosen; each way is a captured step of its own. */
typedef enum trm_sample_mode {
    TRM_SAMPLE_GREEDY = 0,
    TRM_SAMPLE_DRAW,      /* temperature, top-k, top-p, min-p */
    TRM_SAMPLE_PENALISED, /* the same with a repetition penalty: needs the tokens seen */
    TRM_SAMPLE_MODE_COUNT
} trm_sample_mode;

/* Decode steps run padded to one of these numbers of sequences, so that a few captured steps serve all. */
#define TRM_MAX_BUCKETS 64

/* One sequence of a step: which tokens go in and where its cache lies. */
typedef struct trm_step_sequence {
    const int32_t *tokens; /* [n_tokens] new tokens */
    int32_t n_tokens;
    int64_t n_cached;             /* tokens already in the cache */
    int64_t n_prompt;             /* tokens of the prompt: its chunks share the rotary scaling of the whole */
    const int32_t *blocks;        /* those that hold n_cached + n_tokens tokens */
    const trm_sampling *sampling; /* NULL: no token is wanted (a prompt's chunk that is not its last) */
    const uint32_t *seen;         /* [seen_words] when the penalty is on */
    uint64_t counter;             /* tokens generated so far */
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
    int32_t blocks_per_sequence, n_blocks; /* width of the block table; blocks of the cache */
    int64_t vocab;

    /* inputs of the network; rope_lengths is NULL where the model has none */
    const trm_tensor *token_ids, *positions, *sequence_starts, *sequence_lengths, *block_table, *logit_rows,
        *rope_lengths;
    const trm_tensor *logits;

    /* sampling: device memory, and host memory that is copied to it in the step */
    unsigned char *sample_memory; /* [sample_bytes] */
    size_t sample_bytes;
    trm_sample_row *rows, *rows_staging; /* [max_sequences] */
    uint32_t *seen, *seen_staging;       /* [max_sequences, seen_words] */
    int32_t *chosen, *chosen_staging;    /* [max_sequences] */
    void *sample_workspace;
    int64_t seen_words;

    /* steps of at least lane_tokens tokens that are not of decoding run in lanes; NULL: none does */
    trm_lanes *lanes;
    int32_t lane_tokens;
    trm_step_sequence *lane_sequences; /* [2 * max_sequences] */

    int32_t buckets[TRM_MAX_BUCKETS], n_buckets;
    bool tune;
    char *timing_cache;             /* or NULL */
    bool is_ready[TRM_MAX_BUCKETS]; /* tuned, and libraries set up outside a capture */
    uint64_t captured_places;       /* version of the weights' places that captured steps have the addresses of */
    trm_graph_exec *captured[TRM_MAX_BUCKETS][TRM_SAMPLE_MODE_COUNT]; /* CUDA; NULL until first used */
};

/* Lets steps of at least `tokens` tokens run in lanes. Where it pays, a generator does so itself. */
trm_status trm_generator_use_lanes(trm_generator *generator, int32_t tokens);

/* Runs one step over n sequences and waits for it. chosen [n] receives the token of every sequence that wants one. With
 * `decode` all sequences have one token and the step may run captured and padded. Collective. */
trm_status trm_generator_step(trm_generator *generator, const trm_step_sequence *sequences, int32_t n, bool decode,
                              int32_t *chosen);

#endif
