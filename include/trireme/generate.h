/*
 * Generation: a model on this rank's device, and sessions that continue prompts.
 *
 * Every rank of the world makes the same calls with the same arguments; tokens come out alike on all of them. A
 * generator is used by one thread at a time.
 */
#ifndef TRIREME_GENERATE_H
#define TRIREME_GENERATE_H

#include <trireme/engine.h>
#include <trireme/model.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct trm_generator trm_generator;

/*
 * Speculation: a step verifies tokens that were drafted, by looking up what followed the same tokens earlier in the
 * sequence. Each position's token is chosen as it would be without, with its own draw; drafts are kept as far as they
 * are the tokens chosen. So tokens are the same with and without it, where the backend's sums do not depend on the
 * number of rows.
 */
typedef enum trm_speculation_kind {
    TRM_SPECULATION_OFF = 0,
    TRM_SPECULATION_NGRAM, /* in every step for which there are drafts */
    TRM_SPECULATION_AUTO   /* as far as it pays, from how often drafts are right and how long steps take */
} trm_speculation_kind;
#define TRM_MAX_DRAFT 15
typedef struct trm_speculation {
    trm_speculation_kind kind;
    int32_t tokens; /* drafted for a sequence in a step at most, up to TRM_MAX_DRAFT; 0: 7, with AUTO 15 */
} trm_speculation;

/* "off", "lookup", "lookup:N" with N tokens at most, "auto", "auto:N". INVALID_ARGUMENT for anything else. */
TRM_API trm_status trm_speculation_parse(const char *text, trm_speculation *speculation);

typedef struct trm_generator_options {
    size_t size;              /* sizeof(trm_generator_options) */
    trm_dtype dtype;          /* NONE: the weights' type on CUDA, f32 on the host */
    trm_mesh mesh;            /* of zeros: all ranks of the world on tp */
    int64_t max_context;      /* tokens per sequence, prompt included; 0: the model's, as far as memory goes */
    int32_t max_sequences;    /* sequences in one step; 0: 1 */
    int32_t max_step_tokens;  /* tokens in one step, prompts are cut into such chunks; 0: 8192 on CUDA, up to 16384 with
                                 a  weight budget that says how much stays, 512 on the host */
    trm_progress_fn progress; /* while weights load; may be NULL */
    void *progress_user;
    bool no_tune; /* CUDA: take our own kernel or the library's first proposal for each product, so that the first
                     tokens come sooner, instead of timing several before a decode step is captured */
    int64_t cache_tokens; /* tokens the cache holds in all, as far as memory goes, at least max_context; sequences that
                             find no room wait. 0: max_sequences * max_context */
    const char *timing_cache;        /* file that keeps what was timed (trm_context_tune); NULL: none */
    trm_weight_budget weight_budget; /* weights that stay on the device; AUTO: what cache and activations leave */
    trm_speculation speculation;
    bool embeddings;       /* the last hidden states can be asked for (serving.h), where logits are a product of them */
    bool batch_invariant;  /* a sequence's logits have the same bits whatever else is in its steps, in which chunks its
                              prompt came and how many drafts are verified with it; costs time. Several GPUs need access
                              to each other's memory, or be two */
    trm_dtype cache_dtype; /* of cached keys and values: NONE, as computed; F8E4M3, so that memory holds twice as many
                              tokens (see trm_model_build_network_with_cache) */
    bool pad_steps;        /* host: pad steps to the sizes of graph buckets and start decode steps before the last one's
                              tokens are read, as CUDA always does, so that both backends run the same steps */
} trm_generator_options;
#define TRM_GENERATOR_OPTIONS_INIT TRM_MAKE(trm_generator_options, TRM_SET(size, sizeof(trm_generator_options)))

/* Builds the model's network, partitions it, loads this rank's weights and plans all memory. The model and the world
 * must outlive the generator. Errors as for trm_build and trm_engine_create; OUT_OF_MEMORY records what is needed and
 * what there is. */
TRM_API trm_status trm_generator_create(trm_model *model, trm_world *world, const trm_generator_options *options,
                                        trm_generator **generator);
TRM_API void trm_generator_destroy(trm_generator *generator);
/* The recorder of failures (recorder.h) of calls about the generator, its engine and context, and a scheduler of it;
 * NULL: the world's. */
TRM_API void trm_generator_set_recorder(trm_generator *generator, trm_recorder *recorder);

/*
 * The plan a generator with these options would have, without a device: for `build->rank` of `build->mesh`, with a
 * cache for max_sequences full sequences, whose size in tokens is *cache_tokens. Bounds in `build` are ignored.
 */
TRM_API trm_status trm_generator_plan(trm_model *model, const trm_generator_options *options,
                                      const trm_build_options *build, trm_plan **plan, int64_t *cache_tokens);

/*
 * Lets `draft`, a generator of a smaller model with the same tokenizer, draft what a generator verifies, in place of
 * lookup; NULL: no longer. Both are of the same world, `draft` with at least as many sequences; drafts end where its
 * context does. The generator must have been made with speculation, and both must live as long as either is used; no
 * scheduler may exist. `draft` must not be used otherwise meanwhile. Errors: INVALID_ARGUMENT.
 */
TRM_API trm_status trm_generator_set_draft(trm_generator *generator, trm_generator *draft);

/* What a generator was planned with. */
typedef struct trm_generator_limits {
    int64_t max_context;  /* tokens per sequence */
    int64_t cache_tokens; /* tokens the cache holds in all */
    int32_t max_sequences, max_step_tokens;
    trm_memory_plan memory; /* of this rank; workspace includes the sampler's and that of long steps */
    trm_streaming_info streaming;
} trm_generator_limits;
TRM_API void trm_generator_get_limits(const trm_generator *generator, trm_generator_limits *limits);
/* Where the time went until a generator was ready: seconds of this rank, one after the other but for weights_seconds.
 */
typedef struct trm_startup {
    double join_seconds;         /* the world: the machine, meeting the other ranks */
    double device_seconds;       /* driver and device */
    double communicator_seconds; /* collectives on the device; with one rank there are none */
    double plan_seconds;         /* network, passes, partition, memory plan */
    double engine_seconds;       /* memory of the weights; while weights stream, reading them, too */
    double context_seconds;      /* cache, activations, workspace */
    double tune_seconds;         /* timing what is not in the timing cache, or reading the cache */
    double capture_seconds;      /* first decode steps, and capturing them */
    double wait_seconds;         /* for weights that were not there by then */
    double weights_seconds;      /* reading and copying the weights, beside all from the engine's memory on */
    int64_t weight_bytes;        /* of this rank */
} trm_startup;
TRM_API void trm_generator_get_startup(const trm_generator *generator, trm_startup *startup);
/* trm_engine_set_weight_budget of its engine, between calls of the generator. */
TRM_API trm_status trm_generator_set_weight_budget(trm_generator *generator, size_t bytes);
/* The context the generator runs on, for profiling: while that is on, steps run layer by layer, not captured. */
TRM_API trm_context *trm_generator_context(trm_generator *generator);

typedef struct trm_sampling {
    float temperature;        /* 0: greedy */
    int32_t top_k;            /* 0: off */
    float top_p;              /* 0 or 1: off */
    float min_p;              /* 0: off */
    float repetition_penalty; /* 0 or 1: off */
    uint64_t seed;
} trm_sampling;
#define TRM_SAMPLING_INIT TRM_MAKE(trm_sampling, TRM_SET(temperature, 0.0f)) /* greedy */

typedef enum trm_finish {
    TRM_FINISH_NONE = 0,  /* still running */
    TRM_FINISH_STOP,      /* an end-of-sequence token */
    TRM_FINISH_LENGTH,    /* max_tokens or the context is used up */
    TRM_FINISH_CALLBACK,  /* the callback asked for it */
    TRM_FINISH_CANCELLED, /* serving.h: trm_scheduler_cancel */
    TRM_FINISH_ERROR      /* serving.h: the request's mask failed or left no token */
} trm_finish;

/* One prompt and what became of it. */
typedef struct trm_request {
    const int32_t *prompt; /* [n_prompt], n_prompt >= 1 */
    int64_t n_prompt;
    int64_t max_tokens; /* 0: as many as the context has room for; TRM_NO_TOKENS */
    trm_sampling sampling;
    bool ignore_eos;
    /* out */
    int64_t n_generated;
    trm_finish finish;
} trm_request;
#define TRM_NO_TOKENS (-1) /* of max_tokens: none at all */
/* Greedy, to the end of the context. */
#define TRM_REQUEST_INIT TRM_MAKE(trm_request, TRM_SET(max_tokens, 0))

/* Called for every token as it comes but the end of sequence, from the calling thread, on every rank. Return false to
 * end this sequence: it must then return false on every rank. It must not call this generator. */
typedef bool (*trm_token_fn)(void *user, int32_t request, int32_t token);

typedef struct trm_generate_stats {
    int64_t prompt_tokens, generated_tokens, steps; /* prompts of requests for no tokens are not run */
    int64_t decode_tokens; /* of generated_tokens those that steps without prompts gave, which took decode_seconds */
    double prefill_seconds, decode_seconds, first_token_seconds;
    int64_t drafted_tokens, accepted_tokens; /* speculation: verified, and of them right */
} trm_generate_stats;

/* Continues n requests, max_sequences at a time; `fn` may be NULL. Errors: INVALID_ARGUMENT (a prompt longer than the
 * context, a token out of range), LOST_RANK, ...; `stats` may be NULL. */
TRM_API trm_status trm_generate(trm_generator *generator, trm_request *requests, int32_t n, trm_token_fn fn, void *user,
                                trm_generate_stats *stats);

#ifdef __cplusplus
}
#endif
#endif
