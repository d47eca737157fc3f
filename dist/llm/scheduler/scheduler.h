/*
 * The scheduler's internals: requests, slots and the current step. The public calls are in <trireme/serving.h>.
 */
#ifndef TRM_DIST_LLM_SCHEDULER_SCHEDULER_H
#define TRM_DIST_LLM_SCHEDULER_SCHEDULER_H

#include <trireme/serving.h>

#include "dist/llm/scheduler/kv_block_pool.h"
#include "dist/llm/scheduler/draft_model.h"
#include "dist/llm/generator.h"
#include "dist/llm/scheduler/ngram_draft.h"
#include "dist/llm/scheduler/speculator.h"
#include "dist/llm/scheduler/state_pool.h"

/* Steps with prompts have a multiple of this number of tokens, the rows of a tile of products. */
#define TRM_CHUNK_GRAIN 128

typedef struct trm_sequence trm_sequence;
typedef struct trm_client trm_client; /* fair_queue.c */
typedef struct trm_level trm_level;

/* A request from submit to its last event: it waits, or runs in a slot. */
struct trm_sequence {
    trm_serving_request request;              /* pointers are to memory of this one allocation, or NULL */
    int32_t *tokens;                          /* [capacity] prompt and output */
    int64_t n_tokens, n_most;                 /* tokens known so far; the most that there may be */
    int64_t n_cached;                         /* tokens whose keys and values are in the blocks */
    int64_t n_found;                          /* tokens found in the prefix cache at the first admission */
    trm_client *client;                       /* the client within its priority */
    uint64_t arrival;                         /* order of submission */
    uint64_t turn;                            /* order of first admission, or of submission if resumed; 0: none yet */
    uint64_t passed;                          /* the last admission pass that left it waiting */
    double submitted, started;                /* seconds; started 0: no step yet */
    double first_token;                       /* when it came; 0: not yet */
    int32_t slot;                             /* slot; -1: waiting */
    int32_t n_blocks;                         /* in the slot's row of the table */
    uint64_t chain;                           /* serial of the last published or reused block; the root: none */
    int32_t n_published;                      /* number of blocks up to it */
    int32_t state, next_state;                /* slots of its state: behind n_cached tokens, behind the next step */
    int64_t cut;                              /* tokens of a prefix that others have, too: a chunk ends there */
    uint64_t kept;                            /* chain of the last state of its output that is kept; 0: none */
    bool counted;                             /* the device counts its tokens, for penalties */
    bool ahead;                               /* it takes part in the async step that is in flight */
    int64_t n_reported;                       /* prompt tokens whose logprobs were reported */
    int32_t banned[TRM_MAX_BANNED], n_banned; /* tokens that end it, masked until min_tokens */
    trm_ngram_draft lookup;                   /* speculation: of its tokens */
    trm_draft_record record;
    int32_t n_drafted, draft_class; /* draft tokens after n_tokens */
    float *pooled;                  /* [hidden] for an embedding: of the tokens so far */
    int32_t n_from_model;           /* of these from a draft model, whose cache has all but the last */
    int32_t guess;                  /* the first of them, even if none is verified; -1 */
    int32_t head_token, head_row;   /* of a draft head: the first draft token, and the row of the hidden state for the
                                       second; head_row -1: it has drafted none */
    trm_sequence *before, *after;   /* in its client's queue */
};

/* Steps of a draft head. */
typedef struct trm_head_steps {
    trm_generator *g;             /* NULL: there is no head */
    trm_step_sequence *sequences; /* [max_sequences] of the step */
    trm_sequence **lives;         /* [max_sequences] */
    int32_t *slots;               /* [max_sequences] */
    int32_t *tokens;              /* [max_step_tokens] */
    int32_t *chosen;              /* [max_sequences] */
} trm_head_steps;

/* An adapter of the generator. */
typedef struct trm_scheduled_adapter {
    uint64_t root;      /* what the first block of its sequences follows in the pool; never reused */
    int64_t n_requests; /* that wait or run with it */
    bool leaves;        /* it is unloaded when none does */
} trm_scheduled_adapter;

struct trm_scheduler {
    trm_generator *g;
    bool prefix_cache;
    int32_t step_tokens, max_waiting;
    int32_t prefill_chunk; /* tokens of prompts in a step with few decoding sequences */
    int32_t filled_step;   /* tokens that prompts fill a step to beside many of them; 0: not */
    int32_t long_prompt;   /* prompts with more tokens left than this share a step */
    double last_sent;      /* message to the followers */
    trm_step_fn on_step;   /* or NULL */
    trm_heard_fn on_heard; /* or NULL */
    void *user;            /* of both */
    bool lockstep;         /* every rank steps by itself: all have the same requests and make the same steps */
    bool ended;

    trm_scheduled_adapter adapters[TRM_MAX_ADAPTERS]; /* adapter n is at n - 1 */
    trm_kv_block_pool blocks;
    trm_state_pool states; /* with states by sequence */
    trm_level *levels;     /* by priority, highest first: waiting requests */
    int32_t n_waiting;
    trm_sequence **running; /* [max_sequences] by priority, then turn, the first n_running */
    int32_t n_running;
    int32_t *free_slots; /* [max_sequences] */
    int32_t n_free_slots;
    uint64_t arrivals, turns;
    uint64_t pass; /* of admission */

    /* by slot, on every rank */
    int32_t *table;  /* [max_sequences, blocks_per_sequence] */
    int32_t *n_sent; /* [max_sequences] blocks of a slot that the other ranks know */

    /* the current step */
    trm_step_sequence *sequences; /* [max_sequences] */
    trm_sampling_row *choices;    /* [max_rows] */
    uint32_t *masks;              /* [max_rows, mask_words] */
    trm_sequence **lives;         /* [max_sequences] */
    int32_t *slots;               /* [max_sequences] */
    int32_t *chosen;              /* [max_rows] */
    int32_t n_sequences, n_tokens, n_choices;
    trm_speculator speculator;
    trm_draft *drafts;       /* [max_sequences] */
    trm_draft_model drafter; /* with a draft model */
    trm_head_steps head;     /* with a draft head */
    double draft_seconds;    /* of the step */
    int32_t n_drafted;       /* draft tokens of the step */
    int32_t *message;        /* [message_words] */
    size_t message_words;

    trm_serving_event *events; /* [max_events] */
    trm_token_logprob *tops;   /* [max_rows, TRM_LOGITS_MAX_TOP] of the step's rows */
    int32_t n_events, max_events;
    bool events_given; /* the caller has these events: the next call starts over */
    float *embeddings; /* [max_sequences, hidden] of events */
    int32_t n_embeddings;
    char (*errors)[256]; /* [max_sequences] texts of events */
    int32_t n_errors;
    trm_scheduler_stats stats;
    trm_expert_counts experts; /* when streamed bytes were last counted */
};

double trm_scheduler_now(void);

/* scheduler.c */
/* Creates a scheduler that every rank submits the same requests to and steps, for trm_generate. Collective. */
trm_status trm_scheduler_create_lockstep(trm_generator *generator, const trm_scheduler_options *options,
                                         trm_scheduler **scheduler);
/* The recorder for failed calls about it (base/recorder.h), which may be NULL. */
static inline trm_recorder *trm_scheduler_recorder(const trm_scheduler *s)
{
    return s == NULL ? NULL : trm_generator_recorder(s->g);
}

/* What the first block of a request's tokens follows in the pool: sequences of different adapters share none. */
static inline uint64_t trm_scheduler_root(const trm_scheduler *s, const trm_sequence *sequence)
{
    const int32_t adapter = sequence->request.adapter;
    return adapter == 0 ? 0 : s->adapters[adapter - 1].root;
}

/* Whether this rank submits and steps: rank 0, or all in lockstep. */
static inline bool trm_scheduler_leads(const trm_scheduler *s)
{
    return s->lockstep || s->g->world->rank == 0;
}
/* Fails if a request can never run. */
trm_status trm_scheduler_check(const trm_generator *g, const trm_serving_request *request);
trm_serving_event *trm_scheduler_event(trm_scheduler *s, trm_serving_event_kind kind, const trm_sequence *sequence);
/* Ends a request that is in no list: adds its last event and frees it. */
void trm_scheduler_finish(trm_scheduler *s, trm_sequence *sequence, trm_finish finish, int32_t token,
                          const char *error);

/* request_trace.c */
/* Adds a request that ends now to the timeline of rank 0, if one is recorded. */
void trm_scheduler_trace(const trm_scheduler *s, const trm_sequence *sequence, trm_finish finish);

/* adapters.c */
/* Gives the adapters that the generator has their roots. */
void trm_scheduler_init_adapters(trm_scheduler *s);
/* A request with an adapter was submitted, or has ended, which may unload it. */
void trm_scheduler_hold_adapter(trm_scheduler *s, int32_t adapter);
void trm_scheduler_drop_adapter(trm_scheduler *s, int32_t adapter);

/* step.c */
/* Reports a successful step of this rank that took `seconds`. */
void trm_scheduler_tell_step(const trm_scheduler *s, double seconds);

/* fair_queue.c: waiting requests */
/* Finds or makes the client of a new request, until it leaves. OUT_OF_MEMORY. */
trm_status trm_scheduler_join(trm_scheduler *s, trm_sequence *sequence);
void trm_scheduler_leave(trm_scheduler *s, trm_sequence *sequence);
void trm_scheduler_enqueue(trm_scheduler *s, trm_sequence *sequence);
void trm_scheduler_dequeue(trm_scheduler *s, trm_sequence *sequence);
trm_sequence *trm_scheduler_find_waiting(const trm_scheduler *s, uint64_t id);
/* The next request to admit, of those that this admission pass has not left waiting; NULL: none. */
trm_sequence *trm_scheduler_next(const trm_scheduler *s);
/* Notes that a request is admitted; the first time it gets the next turn. */
void trm_scheduler_give_turn(trm_scheduler *s, trm_sequence *sequence);
/* Counts service of a client: a prompt of this many tokens when it is admitted; a token of output. */
void trm_scheduler_charge_prompt(trm_sequence *sequence, int64_t tokens);
void trm_scheduler_charge_output(trm_sequence *sequence);
/* Frees the waiting requests and the levels; running ones have been freed. */
void trm_scheduler_drop_waiting(trm_scheduler *s);

/* queue.c: running requests */
/* Removes a running request from its slot and releases its blocks. */
void trm_scheduler_evict(trm_scheduler *s, trm_sequence *sequence);
/* Admits waiting requests while there are slots, and blocks for all their tokens. */
void trm_scheduler_admit(trm_scheduler *s);
/* Gets a block for a running request's next token, by preempting a later request or itself. Returns whether it still
 * runs. */
bool trm_scheduler_grow(trm_scheduler *s, trm_sequence *sequence);
/* Takes blocks for up to `wanted` more tokens without preempting; returns for how many. */
int32_t trm_scheduler_grow_for_drafts(trm_scheduler *s, trm_sequence *sequence, int32_t wanted);
/* Chooses where a step leaves a running request's state: where it was, unless that is to be kept for its prefix. */
void trm_scheduler_begin_state(trm_scheduler *s, trm_sequence *sequence);
/* The step that a request took part in has ended. */
void trm_scheduler_end_state(trm_scheduler *s, trm_sequence *sequence);
/* Publishes full blocks. */
void trm_scheduler_publish(trm_scheduler *s, trm_sequence *sequence);

/* draft.c: speculation */
/* Drafts the tokens of each decoding sequence that this step verifies. */
trm_status trm_scheduler_draft(trm_scheduler *s);
/* Notes that `n` draft tokens were verified and `right` accepted. */
void trm_scheduler_note_draft(trm_sequence *sequence, int32_t n, int32_t right);
/* Keeps the accepted tokens in a draft model's cache. */
void trm_scheduler_keep_drafts(trm_scheduler *s, const trm_sequence *sequence, int32_t right);

/* draft_head.c */
/* Allocates the steps of the generator's draft head, if it has one. OUT_OF_MEMORY. */
trm_status trm_scheduler_init_head(trm_scheduler *s);
void trm_scheduler_fini_head(trm_scheduler *s);
/* Lets the draft head follow the step that has run: it fills its cache for the step's tokens and drafts the first token
 * of each sequence. */
trm_status trm_scheduler_follow_with_head(trm_scheduler *s);
/* Drafts at most `most` tokens for each sequence that wants some with the draft head. */
trm_status trm_scheduler_draft_by_head(trm_scheduler *s, int32_t most);
/* Runs a step of the head, n sequences; `begins`: it begins with the generator's hidden states, not its own. */
trm_status trm_scheduler_step_head(trm_scheduler *s, int32_t n, bool begins);
/* Number of a sequence's draft tokens that equal the n tokens sampled with them, of which the last has no draft. */
int32_t trm_scheduler_count_right(const trm_sequence *sequence, const int32_t *chosen, int32_t n);

/* step_broadcast.c: messages of rank 0 to the others; none with one rank. */
size_t trm_scheduler_message_words(const trm_generator *g, int32_t step_tokens);
/* goes_on: whether an async step may follow, of which the others need the blocks. */
trm_status trm_scheduler_send_step(trm_scheduler *s, bool goes_on);
/* Sends a sign of life if rank 0 has not sent anything for long. */
trm_status trm_scheduler_send_beat(trm_scheduler *s);
trm_status trm_scheduler_send_end(trm_scheduler *s);
/* Sends the folder that all load as an adapter. INVALID_ARGUMENT if its name is too long. */
trm_status trm_scheduler_send_adapter(trm_scheduler *s, const char *folder, int32_t adapter);
/* Sends a step of the draft model with n sequences, or of the draft head. */
trm_status trm_scheduler_send_draft(trm_scheduler *s, int32_t n);
trm_status trm_scheduler_send_head(trm_scheduler *s, int32_t n, bool begins);

#endif
