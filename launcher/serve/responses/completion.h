/*
 * A generating request on its way: its prompts, choices and the text of each, and how that becomes the reply, whole or
 * as a stream. Used by the dispatcher's thread alone once it is submitted. Of the engine only tokens come in.
 */
#ifndef TRM_LAUNCHER_SERVE_RESPONSES_COMPLETION_H
#define TRM_LAUNCHER_SERVE_RESPONSES_COMPLETION_H

#include <trireme/serving.h>
#include <trireme/tokenizer.h>

#include "launcher/serve/json/json_text.h"
#include "launcher/serve/responses/http_exchange.h"
#include "launcher/serve/responses/tool_stream.h"
#include "launcher/text/text_sink.h"

typedef struct completion completion;

/* One continuation of one prompt: one request of the engine's. */
typedef struct choice {
    completion *owner;
    int32_t index;       /* in the reply */
    int32_t prompt;      /* which one it continues */
    uint64_t id;         /* of the engine's request; 0: none is live */
    bool running;        /* a replica has it */
    int32_t replica;     /* which one, while running */
    int64_t prompt_left; /* tokens that it has to run before the next one comes, while running; 0: one has come */
    trm_ids tokens; /* the prompt's, then those of the output so far: what is submitted again when a rank is lost */
    size_t n_prompt;
    text_sink sink;
    size_t told, told_reasoning; /* bytes of sink.text before which content, and reasoning, is in the stream */
    tool_stream calls;           /* those of it in the stream */
    size_t prompt_seen;          /* tokens of the prompt whose logprobs have come */
    trm_decoder *prompt_decoder; /* of those; NULL: none has come */
    size_t offset, counted;      /* characters of the text before the next token, and bytes of sink.text in them */
    bool named;                  /* the name of a forced tool call has been sent */
    float *embedding;            /* [n_embedding] of an EMBEDDING */
    int64_t n_embedding;
    double likelihood; /* sum of the logprobs of its tokens, with best_of */
    bool written;      /* it is in the reply */
    bool finished;
    const char *finish_reason; /* NULL: not yet */
    uint64_t seed;
    /* Of tokens whose text is not in the reply yet; pieces of JSON without brackets. */
    json_text logprobs, logprob_tokens, logprob_values, logprob_tops, logprob_offsets;
    size_t
        told_logprobs; /* bytes of logprobs that are in the stream; of a RESPONSE, which tells all again at its end */
    json_text prompt_logprobs; /* of a prompt's first choice, for all of them */
} choice;

struct completion {
    http_exchange *exchange;
    api_request request;
    const trm_tokenizer *tokenizer;
    const char *model; /* served name, the server's */
    uint64_t client;   /* whose it is */
    char id[48];
    int64_t created; /* seconds since 1970 */
    choice *choices; /* [n_choices] */
    int32_t n_choices, n_finished;
    int32_t n_events; /* of a RESPONSE's stream so far */
    bool open;        /* the stream is, and the status with it */
    bool begun;       /* its first event has been sent */
    double spoke;     /* when bytes were last sent in it */
    bool failed;      /* an error has been replied */
    trm_bytes head;   /* of every event of a stream of completions, once there was one */
    int64_t prompt_tokens, cached_tokens, output_tokens;
    double received, submitted, first_token, last_token; /* supervisor_clock; 0: not yet */
    double deadline;
    completion *next, *previous;      /* the dispatcher's list */
    struct dispatcher_client *holder; /* the dispatcher's: its client, while it is live */
    bool yields;                      /* the dispatcher's, while it looks for places */
};

/* Takes over the request (empty afterwards) and the prompts' tokens [request->n_prompts], which are then empty too.
 * Retains the exchange. */
trm_status completion_create(http_exchange *x, api_request *request, trm_tokens *prompts,
                             const trm_tokenizer *tokenizer, const char *model, completion **result);
void completion_destroy(completion *c);

/* What the engine is asked for; arrays are the choice's. */
trm_status choice_submission(const choice *ch, trm_serving_request *request);
/* A token has come. Text that is certain goes into the stream. *stopped: a stop string has come. */
trm_status choice_take(choice *ch, const trm_serving_event *event, bool *stopped);
/* The logprob of a token of the prompt, in order. */
void choice_take_prompt(choice *ch, const trm_serving_event *event);
/* No more tokens come: `reason` is "stop", "length", ... Ends the reply with the last choice. */
trm_status choice_finish(choice *ch, const char *reason);
/* Sends an event of the stream, without the empty line at its end, and frees it. */
void completion_send(completion *c, json_text *json);
/* An event with a name, up to the first member of its object, "type"; ends the object and sends it. */
json_text completion_begin_event(const char *type);
void completion_end_event(completion *c, json_text *json);
/* A comment in the stream, which clients pass over: that somebody is here. */
void completion_keep_open(completion *c);
/* Ends the whole request with an error: as a reply, or as the last event of a stream. */
void completion_fail(completion *c, const api_error *error);

#endif
