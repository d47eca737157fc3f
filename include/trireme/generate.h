/*
 * Generation: a model on this rank's device that continues prompts.
 *
 * Every rank of the world makes the same calls with the same arguments and gets the same tokens. One thread at a time
 * uses a generator.
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
 * Speculative decoding: a step verifies draft tokens. An n-gram draft is what followed the same tokens earlier in the
 * sequence. Every position is sampled as it would be without drafts, with its own random draw; a draft token is
 * accepted only if it equals the sampled token. Speculative decoding is therefore lossless, if the backend's sums do
 * not depend on the number of rows.
 */
typedef enum trm_speculation_kind {
    TRM_SPECULATION_OFF = 0,
    TRM_SPECULATION_NGRAM, /* verify drafts in every step that has some */
    TRM_SPECULATION_AUTO,  /* verify as many as pay off, by the measured acceptance rate and step times */
    TRM_SPECULATION_MTP    /* in every step, of the model's own MTP layer, applied once for each draft token */
} trm_speculation_kind;
#define TRM_MAX_DRAFT 15
typedef struct trm_speculation {
    trm_speculation_kind kind;
    int32_t tokens; /* most draft tokens per sequence and step, up to TRM_MAX_DRAFT; 0: 7, or 15 with AUTO, or 3 of a
                       draft head */
} trm_speculation;

/* Parses "off", "lookup", "lookup:N" (at most N tokens), "auto", "auto:N", "mtp" or "mtp:N". Error: INVALID_ARGUMENT.
 */
TRM_API trm_status trm_speculation_parse(const char *text, trm_speculation *speculation);

typedef struct trm_generator_options {
    size_t size;              /* sizeof(trm_generator_options) */
    trm_dtype dtype;          /* NONE: the weights' type on CUDA, f32 on the host */
    trm_mesh mesh;            /* of zeros: all ranks of the world on tp */
    int64_t max_context;      /* tokens per sequence, prompt included; 0: the model's, or what memory has room for */
    int32_t max_sequences;    /* sequences in one step; 0: 1 */
    int32_t max_step_tokens;  /* tokens in one step; longer prompts are cut into chunks. 0: 8192 on CUDA, up to 16384
                                 with  a weight budget of a fixed size, 512 on the host */
    trm_progress_fn progress; /* called while weights load; may be NULL */
    void *progress_user;
    bool no_tune; /* CUDA: take our own kernel or the library's first proposal for each product, so that the first
                     tokens come sooner, instead of timing several before a decode step is captured */
    int64_t cache_tokens; /* tokens that the KV cache holds in total, at least max_context; fewer if memory is short.
                             Sequences without room wait. 0: max_sequences * max_context */
    const char *timing_cache;        /* file with measured times (trm_context_tune); NULL: none */
    trm_weight_budget weight_budget; /* weights that stay on the device; AUTO: as many as cache and activations leave
                                        room for */
    trm_speculation speculation;
    bool embeddings;      /* requests may ask for the last hidden states (serving.h), if logits are a product of them */
    bool batch_invariant; /* the bits of a sequence's logits do not depend on what else is in its steps, on the chunks
                             of its prompt, or on the drafts verified with it; costs time. More than two GPUs need
                             access to each other's memory */
    trm_dtype cache_dtype; /* of cached keys and values: NONE: as computed; F8E4M3: half the bytes of bf16
                              (trm_model_build_network_with_cache) */
    bool pad_steps;        /* host: pad steps to the sizes of graph buckets and start decode steps before the last one's
                              tokens are read, as CUDA always does, so that both backends run the same steps */
    int32_t reserved;      /* 0; padding in older programs */
    int32_t max_adapters;  /* LoRA adapters that may be loaded at a time (trm_generator_load_adapter); 0: none */
    int32_t max_adapter_rank; /* largest rank of one; 0: 16. Memory is planned for it, of every linear layer */
    trm_model *draft_head; /* an EAGLE-3 head (trm_model_is_draft_head) that drafts instead of n-grams, with speculation
                              NGRAM or AUTO; it must outlive the generator. NULL: none. A draft head, as an MTP layer,
                              shares the generator's cache blocks, and needs ranks along tp alone */
    const char *expert_profile; /* folder of expert profiles (trm_expert_profile_path), read when the generator is made
                                   and written when it goes, so that an expert cache begins with the most used experts;
                                   NULL: none */
} trm_generator_options;
#define TRM_GENERATOR_OPTIONS_INIT TRM_MAKE(trm_generator_options, TRM_SET(size, sizeof(trm_generator_options)))

/* Builds the model's network, partitions it, loads this rank's weights and plans all memory. The model and the world
 * must outlive the generator. Collective. Errors: those of trm_build and trm_engine_create; OUT_OF_MEMORY says how much
 * is needed and how much there is. */
TRM_API trm_status trm_generator_create(trm_model *model, trm_world *world, const trm_generator_options *options,
                                        trm_generator **generator);
TRM_API void trm_generator_destroy(trm_generator *generator);
/* Sets the recorder (recorder.h) for failed calls about the generator, its engine, its context and its scheduler; NULL:
 * the world's. */
TRM_API void trm_generator_set_recorder(trm_generator *generator, trm_recorder *recorder);

/*
 * Makes the plan that a generator with these options would have, without a device: for `build->rank` of `build->mesh`,
 * with a cache for max_sequences full sequences, whose size in tokens is *cache_tokens. Ignores bounds in `build`.
 */
TRM_API trm_status trm_generator_plan(trm_model *model, const trm_generator_options *options,
                                      const trm_build_options *build, trm_plan **plan, int64_t *cache_tokens);

/*
 * Sets a draft model: `draft`, a generator of a smaller model with the same tokenizer, drafts the tokens that the
 * generator verifies, instead of n-gram drafts; NULL removes it. Both belong to the same world; `draft` has at least as
 * many sequences, and drafts end at its context's end. The generator was created with speculation and has no scheduler
 * now. Both must live as long as either is used, and `draft` must not be used otherwise. Error: INVALID_ARGUMENT.
 */
TRM_API trm_status trm_generator_set_draft(trm_generator *generator, trm_generator *draft);

/*
 * Loads a LoRA adapter from PEFT's folder (adapter_config.json, adapter_model.safetensors). *adapter, at least 1, names
 * it in requests until it is unloaded. Collective, and not while requests run, except through a scheduler (serving.h).
 * Errors: IO, INVALID_MODEL (it does not fit the model), UNSUPPORTED (it has more than LoRA of linear layers, or a rank
 * above max_adapter_rank), BUSY (there are max_adapters of them), INVALID_ARGUMENT (the generator has no room for any).
 */
TRM_API trm_status trm_generator_load_adapter(trm_generator *generator, const char *folder, int32_t *adapter);
/* Collective. Error: INVALID_ARGUMENT (there is no such adapter). */
TRM_API trm_status trm_generator_unload_adapter(trm_generator *generator, int32_t adapter);

/* What a generator was planned with. */
typedef struct trm_generator_limits {
    int64_t max_context;  /* tokens per sequence */
    int64_t cache_tokens; /* tokens that the KV cache holds in total */
    int32_t max_sequences, max_step_tokens;
    trm_memory_plan memory; /* of this rank; workspace includes the sampler's and microbatches' */
    trm_streaming_info streaming;
} trm_generator_limits;
TRM_API void trm_generator_get_limits(const trm_generator *generator, trm_generator_limits *limits);
/* Where the time went until the generator was ready, in seconds of this rank. The parts follow each other, except
 * weights_seconds. */
typedef struct trm_startup {
    double join_seconds;         /* reading the machine's topology, meeting the other ranks */
    double device_seconds;       /* opening driver and device */
    double communicator_seconds; /* collectives on the device; 0 with one rank */
    double plan_seconds;         /* network, passes, partition, memory plan */
    double engine_seconds;       /* allocating weights; if weights stream, also reading them */
    double context_seconds;      /* cache, activations, workspace */
    double tune_seconds;         /* reading the timing cache, and timing what it lacks */
    double capture_seconds;      /* running and capturing the first decode steps */
    double wait_seconds;         /* waiting for the rest of the weights */
    double weights_seconds;      /* reading and copying the weights, in the background from engine_seconds on */
    int64_t weight_bytes;        /* of this rank */
} trm_startup;
TRM_API void trm_generator_get_startup(const trm_generator *generator, trm_startup *startup);
/* Calls trm_engine_set_weight_budget of the generator's engine; not during another call about the generator. */
TRM_API trm_status trm_generator_set_weight_budget(trm_generator *generator, size_t bytes);
/* The generator's context, for layer times: while these are on, steps run layer by layer and are not captured. */
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
    TRM_FINISH_CALLBACK,  /* the callback returned false */
    TRM_FINISH_CANCELLED, /* serving.h: trm_scheduler_cancel */
    TRM_FINISH_ERROR      /* serving.h: the request's mask failed or allowed no token */
} trm_finish;

/* A prompt and its result. */
typedef struct trm_request {
    const int32_t *prompt; /* [n_prompt], n_prompt >= 1 */
    int64_t n_prompt;
    int64_t max_tokens; /* 0: to the end of the context; TRM_NO_TOKENS */
    trm_sampling sampling;
    bool ignore_eos;
    int32_t adapter; /* of trm_generator_load_adapter; 0: none */
    /* out */
    int64_t n_generated;
    trm_finish finish;
} trm_request;
#define TRM_NO_TOKENS (-1) /* of max_tokens: generate nothing */
/* Greedy, to the end of the context. */
#define TRM_REQUEST_INIT TRM_MAKE(trm_request, TRM_SET(max_tokens, 0))

/* Called for every token except an end of sequence, on the calling thread, on every rank: print on rank 0 alone.
 * Returns false to end the sequence; it must return the same on every rank. Must not use the generator. */
typedef bool (*trm_token_fn)(void *user, int32_t request, int32_t token);

typedef struct trm_generate_stats {
    int64_t prompt_tokens, generated_tokens, steps; /* without requests of TRM_NO_TOKENS, which are not run */
    int64_t decode_tokens;                          /* tokens from steps without prompts, which took decode_seconds */
    double prefill_seconds, decode_seconds, first_token_seconds;
    int64_t drafted_tokens, accepted_tokens; /* draft tokens verified; accepted */
} trm_generate_stats;

/* Continues requests [n], max_sequences at a time. `fn` and `stats` may be NULL. Collective: if one rank fails alone,
 * the others wait until their deadline, unless it calls trm_world_abort. Errors: INVALID_ARGUMENT (a prompt longer than
 * the context, a token out of range), LOST_RANK, ... */
TRM_API trm_status trm_generate(trm_generator *generator, trm_request *requests, int32_t n, trm_token_fn fn, void *user,
                                trm_generate_stats *stats);

#ifdef __cplusplus
}
#endif
#endif
