/*
 * Serving: continuous batching over a generator. Requests come and go at any time. A step runs the newest token of all
 * running sequences together with chunks of new prompts, over a paged KV cache. Sequences with the same prefix share
 * blocks of it.
 *
 * Rank 0 leads: it submits, cancels and steps. The other ranks follow: they run what rank 0 sends until it ends. One
 * thread uses a scheduler, its generator and its world; requests from other threads need a queue of the caller's. The
 * generator must not be used otherwise while it has a scheduler. Device memory is planned before the first step: steps
 * allocate none, and submit takes host memory for a request's tokens.
 *
 *   rank 0                                       others
 *   trm_scheduler_create                         trm_scheduler_create
 *   loop: submit, cancel, step -> events         trm_scheduler_follow
 *   trm_scheduler_end                            (returns)
 *   trm_scheduler_destroy                        trm_scheduler_destroy
 */
#ifndef TRIREME_SERVING_H
#define TRIREME_SERVING_H

#include <trireme/generate.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TRM_MAX_TOP_LOGPROBS 20
#define TRM_MAX_LOGIT_BIAS   512
#define TRM_MAX_STOP_TOKENS  16

typedef struct trm_scheduler trm_scheduler;

/* Where the time of a step went, on this rank. Some steps are profiled layer by layer, with the same results: one in 64
 * while weights stream, one in 1024 with several ranks. */
typedef struct trm_step_times {
    double seconds;            /* the whole step; on rank 0 from its layout to its tokens */
    double device_seconds;     /* of `seconds`, time that this rank's device was busy */
    double layer_seconds;      /* all layers, if the step was profiled; else 0 */
    double collective_seconds; /* of layer_seconds, layers that exchange with other ranks, including their waits */
} trm_step_times;
/* `times` is valid until it returns. */
typedef void (*trm_step_fn)(void *user, const trm_step_times *times);

/* Called on a rank that follows; on_heard below says when. */
typedef void (*trm_heard_fn)(void *user, bool has_step);

typedef struct trm_scheduler_options {
    size_t size;           /* sizeof(trm_scheduler_options) */
    bool no_prefix_cache;  /* do not keep full blocks of tokens in the cache after their sequence has ended */
    int32_t step_tokens;   /* tokens in one step: running sequences come first, prompts get the rest, at least one
                              token; 0: the generator's max_step_tokens */
    int32_t max_waiting;   /* requests that may wait; 0: 1024 */
    int32_t prefill_chunk; /* prompt tokens in a step with decoding sequences, to bound their delay; fewer, if the step
                              then has a multiple of 128 tokens and at least half of them. If none decodes, several
                              prompts take four times as many, and one prompt fills the step. 0: on CUDA 512 per GPU
                              on tp; beside more than 40 sequences up to 24 for each, in steps of 1024 or 2048 tokens
                              per GPU; on the host and while weights stream what fits into the step */
    trm_step_fn on_step;   /* called on every rank after each successful step, on the thread that makes it; must not use
                              the scheduler or its generator; may be NULL */
    trm_heard_fn on_heard; /* called on a rank that follows for every message of rank 0, which sends at least one per
                              second while it steps: with has_step before the rank runs a step for it (also one of the
                              draft model), and again without has_step after the step succeeded; may be NULL */
    void *user;            /* of on_step and on_heard */
} trm_scheduler_options;
#define TRM_SCHEDULER_OPTIONS_INIT TRM_MAKE(trm_scheduler_options, TRM_SET(size, sizeof(trm_scheduler_options)))

/* Creates a scheduler that runs up to the generator's max_sequences sequences at a time in its KV cache (cache_tokens
 * of trm_generator_options). Collective. Errors: INVALID_ARGUMENT, OUT_OF_MEMORY. */
TRM_API trm_status trm_scheduler_create(trm_generator *generator, const trm_scheduler_options *options,
                                        trm_scheduler **scheduler);
TRM_API void trm_scheduler_destroy(trm_scheduler *scheduler);

typedef struct trm_logit_bias {
    int32_t token;
    float bias; /* added to the logit; -100 or less bans the token; 100 or more beats all tokens with a smaller bias */
} trm_logit_bias;

/* How a token is sampled. Order: mask, logit bias, repetition penalty (tokens of prompt and output), presence and
 * frequency penalty (tokens of the output), temperature, typical-p, top-k, top-p, min-p. */

typedef struct trm_serving_sampling {
    trm_sampling base;          /* temperature, top_k, top_p, min_p, repetition_penalty, seed */
    float typical_p;            /* 0 or 1: off */
    float presence_penalty;     /* 0: off */
    float frequency_penalty;    /* 0: off */
    const trm_logit_bias *bias; /* [n_bias], at most TRM_MAX_LOGIT_BIAS; copied */
    int32_t n_bias;
} trm_serving_sampling;

/*
 * Masks tokens, for structured output. Called on rank 0 in trm_scheduler_step before the token after tokens [n_tokens]
 * (the output so far, n_resumed included) is sampled. mask [(vocab + 31) / 32] is all ones: clear the bits of tokens
 * that must not come, stop tokens included. Another status than OK, or a mask without tokens, ends the request with
 * TRM_FINISH_ERROR. Must not call the scheduler.
 *
 * With speculation a step also asks what may follow up to TRM_MAX_DRAFT draft tokens, each allowed by the mask before
 * it. Later calls may have other tokens in their place.
 */
typedef trm_status (*trm_mask_fn)(void *user, uint64_t id, const int32_t *tokens, int64_t n_tokens, uint32_t *mask);

/* The hidden state after the model's last norm: that of the last token, or the mean over all. */
typedef enum trm_embedding { TRM_EMBEDDING_NONE = 0, TRM_EMBEDDING_LAST, TRM_EMBEDDING_MEAN } trm_embedding;

typedef struct trm_serving_request {
    size_t size;           /* sizeof(trm_serving_request) */
    uint64_t id;           /* chosen by the caller; unique among unfinished requests */
    const int32_t *prompt; /* [n_prompt], n_prompt >= 1; copied */
    int64_t n_prompt;
    int64_t n_resumed;  /* last tokens of `prompt` that are output of an earlier run of this request: random draws and
                           penalties continue after them as if it had not been interrupted; less than n_prompt */
    int64_t max_tokens; /* most tokens to generate, without n_resumed; 0, or more than fit: to the end of the context;
                           TRM_NO_TOKENS: none, for prompt_logprobs and embeddings */
    int32_t priority;   /* larger goes first, for any client, and may preempt smaller */
    trm_serving_sampling sampling;
    bool ignore_eos;            /* the model's end-of-sequence tokens do not end the request */
    const int32_t *stop_tokens; /* [n_stop_tokens], at most TRM_MAX_STOP_TOKENS, in addition to those; copied */
    int32_t n_stop_tokens;
    int32_t min_tokens;      /* stop tokens are masked until the output has this many tokens */
    int32_t logprobs;        /* 0: none; 1 .. TRM_MAX_TOP_LOGPROBS: of each token, and of this many most probable ones;
                                TRM_LOGPROBS_CHOSEN: of each token alone */
    int32_t prompt_logprobs; /* the same for the prompt's tokens, from the second on */
    trm_mask_fn mask;        /* may be NULL */
    void *mask_user;
    trm_embedding embedding; /* of the prompt, with TRM_NO_TOKENS; needs a generator with `embeddings` */
    uint64_t client;         /* requests of one priority are admitted so that all clients get the same number of tokens,
                                and those of one client in order of arrival */
    int32_t adapter;         /* of trm_scheduler_load_adapter; 0: none */
    const char *traceparent; /* W3C trace context, for timelines; copied; NULL: none */
    const char *tracestate;  /* of it; likewise */
} trm_serving_request;
#define TRM_LOGPROBS_CHOSEN (-1) /* of logprobs and prompt_logprobs */
/* Greedy, to the end of the context. */
#define TRM_SERVING_REQUEST_INIT TRM_MAKE(trm_serving_request, TRM_SET(size, sizeof(trm_serving_request)))

/*
 * Queues a request; trm_scheduler_step returns its events. For several outputs of one prompt (n, best_of) submit
 * several requests with different seeds; the prefix cache computes the prompt once.
 *
 * A request that can never run fails at once and has no events. Rank 0 only. Errors: INVALID_ARGUMENT (a value out of
 * range, a token outside the vocabulary, a prompt longer than the context, a request that needs more cache than there
 * is, an id in use), BUSY (max_waiting requests wait already), OUT_OF_MEMORY.
 */
TRM_API trm_status trm_scheduler_submit(trm_scheduler *scheduler, const trm_serving_request *request);

/* Ends a request and frees its blocks at once; the next step's events have its FINISHED with TRM_FINISH_CANCELLED.
 * Returns false if there is no such request; it may just have finished. Rank 0 only. */
TRM_API bool trm_scheduler_cancel(trm_scheduler *scheduler, uint64_t id);

/*
 * Loads a LoRA adapter as trm_generator_load_adapter does, on all ranks between two steps. Adapters share no blocks of
 * the prefix cache, with each other or with requests without one. Rank 0 only.
 */
TRM_API trm_status trm_scheduler_load_adapter(trm_scheduler *scheduler, const char *folder, int32_t *adapter);
/* New requests cannot name the adapter any more; its room is free when the last request with it has ended. Rank 0
 * only. Error: INVALID_ARGUMENT (there is no such adapter). */
TRM_API trm_status trm_scheduler_unload_adapter(trm_scheduler *scheduler, int32_t adapter);

typedef struct trm_token_logprob {
    int32_t token;
    float logprob; /* natural logarithm of the model's probability, before mask, penalties and temperature */
} trm_token_logprob;

typedef enum trm_serving_event_kind {
    TRM_EVENT_TOKEN = 1,    /* a token of the output; not sent for the stop token */
    TRM_EVENT_PROMPT_TOKEN, /* a prompt's token with its logprobs, if prompt_logprobs is set; in order, each once */
    TRM_EVENT_FINISHED      /* the last event of a request */
} trm_serving_event_kind;

typedef struct trm_serving_event {
    trm_serving_event_kind kind;
    uint64_t id;
    int32_t token;                /* TOKEN, PROMPT_TOKEN; FINISHED with TRM_FINISH_STOP: the stop token */
    int64_t index;                /* TOKEN: 0, 1, ... of this run's output; PROMPT_TOKEN: position in the prompt */
    float logprob;                /* of `token`, if asked for */
    int32_t n_top;                /* 0 if not asked for */
    const trm_token_logprob *top; /* [n_top] most probable tokens, best first */
    trm_finish finish;            /* FINISHED */
    const char *error;            /* FINISHED with TRM_FINISH_ERROR: why */
    int64_t n_prompt, n_cached, n_output; /* FINISHED: tokens of the prompt; of these found in the cache on first
                                             admission; tokens of output */
    const float *embedding;               /* [n_embedding] FINISHED, if asked for; not normalized */
    int64_t n_embedding;
    double queue_seconds; /* FINISHED: from submit to the request's first step */
} trm_serving_event;

/*
 * Runs one step, if there is work, and returns its events: *events [*n_events] are valid until the next call with this
 * scheduler. Call it at least once a second even if there is no work: it tells the ranks that follow that rank 0 lives.
 * Rank 0 only. Errors: LOST_RANK, INTERNAL, ...; after an error the scheduler and its world can only be destroyed.
 */
TRM_API trm_status trm_scheduler_step(trm_scheduler *scheduler, const trm_serving_event **events, int32_t *n_events);
/* Whether there is a request that runs or waits, or an event to return. */
TRM_API bool trm_scheduler_has_work(const trm_scheduler *scheduler);

/* Runs steps as rank 0 sends them, until it calls trm_scheduler_end. Ranks other than 0 only. Errors: those of
 * trm_scheduler_step. */
TRM_API trm_status trm_scheduler_follow(trm_scheduler *scheduler);
/* Lets trm_scheduler_follow of the other ranks return. Unfinished requests get no more events. Rank 0 only, once. */
TRM_API trm_status trm_scheduler_end(trm_scheduler *scheduler);

/* Counters since creation, and the current state. Rank 0 only. */
typedef struct trm_scheduler_stats {
    int32_t running, waiting;         /* requests now; preempted ones wait */
    int32_t max_running, max_waiting; /* limits */
    int32_t block_tokens;             /* tokens per block */
    int32_t blocks;                   /* of the KV cache */
    int32_t blocks_used;              /* held by running requests */
    int32_t blocks_cached;            /* held by no request, kept for the prefix cache */
    int64_t prefix_queries;           /* prompt tokens looked up in the prefix cache */
    int64_t prefix_hits;              /* prompt tokens found there */
    int64_t preemptions;
    int64_t steps, decode_steps; /* decode_steps: those without prompts */
    int64_t prompt_tokens;       /* run through the network, again after a preemption */
    int64_t generated_tokens;    /* of output */
    int64_t drafted_tokens;      /* draft tokens verified */
    int64_t accepted_tokens;     /* draft tokens accepted */
    int64_t finished[8];         /* requests, by trm_finish */
    double step_seconds;         /* in steps, from layout to the tokens on the host */
    double wait_seconds;         /* of step_seconds, waiting for the device */
    double device_seconds;       /* of step_seconds, from the first to the last work of this rank's device */
    double last_step_seconds, last_device_seconds;
    /* Weight streaming on this rank; 0 if all weights stay */
    int64_t streamed_bytes, unpacked_bytes; /* copied; of weights after unpacking */
    int64_t hosted_bytes;                   /* of weights read by CPU offload */
    int64_t expert_hits, expert_misses; /* experts found in the expert cache, and fetched, once per layer and step */
    int64_t expert_hosted;              /* missing experts that the CPU computed */
    double link_rate;                   /* bytes per second */
    int32_t last_step_sequences, last_step_tokens;
    bool last_step_captured; /* the last step was one graph launch */
} trm_scheduler_stats;
TRM_API void trm_scheduler_get_stats(const trm_scheduler *scheduler, trm_scheduler_stats *stats);
/* How long layers waited for streamed weights in the last profiled step (trm_step_times). Calls fn for each layer whose
 * weights were fetched, in order; `layer` is valid until fn returns. fn may be NULL. Returns the number of profiled
 * steps so far. On any rank, for this rank; not while a step runs on another thread. */
TRM_API int64_t trm_scheduler_stalls(const trm_scheduler *scheduler, trm_stall_fn fn, void *user);

#ifdef __cplusplus
}
#endif
#endif
