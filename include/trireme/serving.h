/*
 * Serving: continuous batching over a generator. Requests come and go at any time; every step runs the newest token of
 * all running sequences and chunks of new prompts together, over a paged cache whose blocks are shared between
 * sequences with the same beginning.
 *
 * Rank 0 leads: it submits, cancels and steps. The other ranks follow: they run what rank 0 sends them until it ends.
 * A scheduler, its generator and its world are used by one thread; requests of other threads pass through a queue of
 * the caller's. While a scheduler exists its generator must not be used in another way. All memory of the device is
 * planned before the first step; a step allocates nothing, a request's tokens are host memory taken by submit.
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

/* Where the time of a step went, on this rank. Some steps are looked at: they are run layer by layer, with the same
 * results, to see how long each takes: one of 64 while weights stream, one of 1024 where there are several ranks. */
typedef struct trm_step_times {
    double seconds;            /* on rank 0 from its layout to its tokens */
    double device_seconds;     /* of them its device was at work */
    double layer_seconds;      /* of all layers, where the step was looked at; else 0 */
    double collective_seconds; /* of them those that exchange with other ranks, waits for these included */
} trm_step_times;
/* `times` lives until it returns. */
typedef void (*trm_step_fn)(void *user, const trm_step_times *times);

typedef void (*trm_heard_fn)(void *user, bool has_step);

typedef struct trm_scheduler_options {
    size_t size;           /* sizeof(trm_scheduler_options) */
    bool no_prefix_cache;  /* do not keep full blocks of tokens in the cache after their sequence has ended */
    int32_t step_tokens;   /* tokens in one step: running sequences first, prompts with what is left, at least one
                              prompt token; 0: the generator's max_step_tokens */
    int32_t max_waiting;   /* requests that wait for a place; 0: 1024 */
    int32_t prefill_chunk; /* tokens of prompts in a step in which other sequences decode, so that these do not wait for
                              long; from 64 on it is raised to fill up a multiple of 64. Where none decodes, several
                              prompts take four times as many, one all there is room for. 0: on CUDA 512 for each GPU on
                              tp, unless weights stream; else what the step has room for */
    trm_step_fn on_step; /* called on every rank after each of its steps that succeeded, by the thread that makes them;
                            it must not call the scheduler or its generator; may be NULL */
    trm_heard_fn on_heard; /* the same on a rank that follows, whenever it hears of rank 0, which is at least once a
                              second while rank 0 steps: has_step where it makes a step for that now, of the draft
                              model too, and once more without when that has succeeded; may be NULL */
    void *user;            /* of both */
} trm_scheduler_options;
#define TRM_SCHEDULER_OPTIONS_INIT TRM_MAKE(trm_scheduler_options, TRM_SET(size, sizeof(trm_scheduler_options)))

/* Collective. The generator's max_sequences sequences run at a time, its cache is the pool of blocks (see cache_tokens
 * of trm_generator_options). Errors: INVALID_ARGUMENT, OUT_OF_MEMORY. */
TRM_API trm_status trm_scheduler_create(trm_generator *generator, const trm_scheduler_options *options,
                                        trm_scheduler **scheduler);
TRM_API void trm_scheduler_destroy(trm_scheduler *scheduler);

/* What a token's choice depends on beside the logits. Order: mask, logit bias, repetition penalty (tokens of prompt and
 * output), presence and frequency penalty (tokens of the output), temperature, typical-p, top-k, top-p, min-p. */
typedef struct trm_logit_bias {
    int32_t token;
    float bias; /* added; -100 or less bans the token, 100 or more leaves it no rival without a bias as large */
} trm_logit_bias;

typedef struct trm_serving_sampling {
    trm_sampling base;          /* temperature, top_k, top_p, min_p, repetition_penalty, seed */
    float typical_p;            /* 0 or 1: off */
    float presence_penalty;     /* 0: off */
    float frequency_penalty;    /* 0: off */
    const trm_logit_bias *bias; /* [n_bias], at most TRM_MAX_LOGIT_BIAS; copied */
    int32_t n_bias;
} trm_serving_sampling;

/*
 * Which tokens may come next, for structured output: called on rank 0 in trm_scheduler_step before the token after
 * tokens [n_tokens] (the output so far, those of n_resumed included) is chosen. mask [(vocab + 31) / 32] is all ones:
 * clear the bits of tokens that may not come (stop tokens as well). Another status than OK, or a mask without any
 * token, ends the request with TRM_FINISH_ERROR. It must not call the scheduler.
 *
 * With speculation a step also asks what may follow up to TRM_MAX_DRAFT tokens that are only drafted, each allowed by
 * the mask before it: later calls may have other tokens there.
 */
typedef trm_status (*trm_mask_fn)(void *user, uint64_t id, const int32_t *tokens, int64_t n_tokens, uint32_t *mask);

/* The hidden states behind the model's last norm, of one token or the mean over all. */
typedef enum trm_embedding { TRM_EMBEDDING_NONE = 0, TRM_EMBEDDING_LAST, TRM_EMBEDDING_MEAN } trm_embedding;

typedef struct trm_serving_request {
    size_t size;           /* sizeof(trm_serving_request) */
    uint64_t id;           /* the caller's, of one live request at a time */
    const int32_t *prompt; /* [n_prompt], n_prompt >= 1; copied */
    int64_t n_prompt;
    int64_t n_resumed;  /* the last tokens of `prompt` that are output of an earlier run of this request: draws and
                           penalties go on behind them as if it had not been interrupted; less than n_prompt */
    int64_t max_tokens; /* that may come, not counting n_resumed; cut to what the context has room for. 0: as many as
                           that; TRM_NO_TOKENS: none, for prompt_logprobs and embeddings */
    int32_t priority;   /* larger goes first, whoever's it is, and may take the place of smaller */
    trm_serving_sampling sampling;
    bool ignore_eos;            /* the model's end-of-sequence tokens do not end it */
    const int32_t *stop_tokens; /* [n_stop_tokens], at most TRM_MAX_STOP_TOKENS, beside those; copied */
    int32_t n_stop_tokens;
    int32_t min_tokens;      /* no stop token before so many tokens of output: they are masked; 0 */
    int32_t logprobs;        /* 0: none; 1 .. TRM_MAX_TOP_LOGPROBS: of each token, and of this many most probable ones;
                                TRM_LOGPROBS_CHOSEN: of each token alone */
    int32_t prompt_logprobs; /* the same for the prompt's tokens from the second on */
    trm_mask_fn mask;        /* may be NULL */
    void *mask_user;
    trm_embedding embedding; /* of the prompt, with max_tokens 0; the generator must have been made for embeddings */
    uint64_t client;         /* whose it is: requests of one priority are admitted so that clients are served alike, in
                                tokens; those of one client in the order in which they came */
} trm_serving_request;
#define TRM_LOGPROBS_CHOSEN (-1) /* of logprobs and prompt_logprobs */
/* Greedy, to the end of the context. */
#define TRM_SERVING_REQUEST_INIT TRM_MAKE(trm_serving_request, TRM_SET(size, sizeof(trm_serving_request)))

/*
 * Takes a request; its events come from trm_scheduler_step. n and best_of are requests of their own with other seeds
 * and the same prompt, which the prefix cache computes once.
 *
 * What can never run is refused at once, with the reason in trm_last_error(): INVALID_ARGUMENT (a value out of range, a
 * token outside the vocabulary, a prompt longer than the context, a request that needs more cache than there is, an id
 * that is live). BUSY: max_waiting requests wait already. OUT_OF_MEMORY. No event follows a refusal. Rank 0 only.
 */
TRM_API trm_status trm_scheduler_submit(trm_scheduler *scheduler, const trm_serving_request *request);

/* Ends a request: its blocks are free at once, and the next step's events have its FINISHED (TRM_FINISH_CANCELLED).
 * Returns false if there is no such request (it may just have finished). Rank 0 only. */
TRM_API bool trm_scheduler_cancel(trm_scheduler *scheduler, uint64_t id);

typedef struct trm_token_logprob {
    int32_t token;
    float logprob; /* natural logarithm of the probability the model gives, before sampling changes anything */
} trm_token_logprob;

typedef enum trm_serving_event_kind {
    TRM_EVENT_TOKEN = 1,    /* a token of the output; not sent for the stop token */
    TRM_EVENT_PROMPT_TOKEN, /* a prompt's token with its logprobs, in order, with prompt_logprobs; each comes once */
    TRM_EVENT_FINISHED      /* the last event of a request */
} trm_serving_event_kind;

typedef struct trm_serving_event {
    trm_serving_event_kind kind;
    uint64_t id;
    int32_t token;                /* TOKEN, PROMPT_TOKEN; FINISHED with TRM_FINISH_STOP: the stop token */
    int64_t index;                /* TOKEN: 0, 1, ... of this run's output; PROMPT_TOKEN: position in the prompt */
    float logprob;                /* of `token`, where asked for */
    int32_t n_top;                /* most probable tokens, best first; 0 where not asked for */
    const trm_token_logprob *top; /* [n_top] */
    trm_finish finish;            /* FINISHED */
    const char *error;            /* FINISHED with TRM_FINISH_ERROR: why */
    int64_t n_prompt, n_cached, n_output; /* FINISHED: tokens of the prompt, of them found in the cache when first
                                             admitted, and tokens of output */
    const float *embedding;               /* [n_embedding] FINISHED, where asked for; not normalized */
    int64_t n_embedding;
    double queue_seconds; /* FINISHED: from submit to the first step it was part of */
} trm_serving_event;

/*
 * Runs one step, if there is anything to run, and gives what came of it: *events [*n_events] live until the next call
 * with this scheduler. Ranks that follow are told to stay even if there is nothing to do, so call it at least every
 * second. Rank 0 only. Errors: LOST_RANK, INTERNAL, ...: the scheduler and its world are of no more use then.
 */
TRM_API trm_status trm_scheduler_step(trm_scheduler *scheduler, const trm_serving_event **events, int32_t *n_events);
/* Whether the next step has something to do: a request that runs or waits, or an event to give. */
TRM_API bool trm_scheduler_has_work(const trm_scheduler *scheduler);

/* Runs steps as rank 0 sends them, until it calls trm_scheduler_end. Ranks other than 0 only. Errors as for a step. */
TRM_API trm_status trm_scheduler_follow(trm_scheduler *scheduler);
/* Lets the other ranks' trm_scheduler_follow return. Live requests get no more events. Rank 0 only, once. */
TRM_API trm_status trm_scheduler_end(trm_scheduler *scheduler);

/* Counters since creation, and what is now. Rank 0 only. */
typedef struct trm_scheduler_stats {
    int32_t running, waiting;         /* requests now; preempted ones wait */
    int32_t max_running, max_waiting; /* limits */
    int32_t block_tokens;             /* tokens of a block */
    int32_t blocks;                   /* of the cache */
    int32_t blocks_used;              /* held by running requests */
    int32_t blocks_cached;            /* held by none, with tokens that may be found again */
    int64_t prefix_queries;           /* prompt tokens looked up in the prefix cache */
    int64_t prefix_hits;              /* of them found */
    int64_t preemptions;
    int64_t steps, decode_steps; /* decode_steps: of them without any prompt */
    int64_t prompt_tokens;       /* run through the network, those run again after a preemption as well */
    int64_t generated_tokens;    /* of output */
    int64_t drafted_tokens;      /* verified by speculation */
    int64_t accepted_tokens;     /* of them right */
    int64_t finished[8];         /* requests, by trm_finish */
    double step_seconds;         /* in steps, from layout to the tokens on the host */
    double wait_seconds;         /* of them waiting for the device */
    double device_seconds;       /* of them from the first thing this rank's device had to do in a step to its last */
    double last_step_seconds, last_device_seconds;
    /* Weights that stream, of this rank: bytes that were copied, bytes of weights they became, the link's bytes per
     * second; 0 where every weight stays */
    int64_t streamed_bytes, unpacked_bytes;
    int64_t hosted_bytes; /* of weights that processors read */
    double link_rate;
    int32_t last_step_sequences, last_step_tokens;
    bool last_step_captured; /* it was launched as a whole */
} trm_scheduler_stats;
TRM_API void trm_scheduler_get_stats(const trm_scheduler *scheduler, trm_scheduler_stats *stats);
/* While weights stream one step of 64 is looked at (trm_step_times), also for what each layer waits for. Calls fn for
 * the layers of the last such step that weights were fetched for, in their order. Returns how many such steps there
 * were; 0: none, and fn (NULL: only that is asked) is not called. On any rank, of this rank; not while a step runs on
 * another thread. `layer` is valid until fn returns. */
TRM_API int64_t trm_scheduler_stalls(const trm_scheduler *scheduler, trm_stall_fn fn, void *user);

#ifdef __cplusplus
}
#endif
#endif
