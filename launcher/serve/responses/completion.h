/*
 * A generating request: its prompts, its choices with their text, and the reply made from them, complete or streamed.
 * After it is submitted, only the dispatcher's thread uses it.
 */
#ifndef TRM_LAUNCHER_SERVE_RESPONSES_COMPLETION_H
#define TRM_LAUNCHER_SERVE_RESPONSES_COMPLETION_H

#include <trireme/serving.h>
#include <trireme/tokenizer.h>

#include "launcher/serve/json/json_text.h"
#include "launcher/serve/responses/http_exchange.h"
#include "launcher/serve/formats/reply_reader.h"
#include "launcher/text/text_sink.h"

typedef struct completion completion;

#define CALL_ID_SIZE 160

/* A part of a RESPONSE's or MESSAGES' text: an item, or a block of content. */
typedef struct reply_part {
    bool open; /* begun and not ended */
    reply_kind kind;
    int32_t index;         /* among the parts */
    trm_bytes text;        /* so far; of a CALL its arguments */
    trm_bytes name;        /* of a CALL */
    char id[CALL_ID_SIZE]; /* of a CALL */
    trm_bytes blank;       /* white space before content; it is left out where a call follows */
} reply_part;

/* One continuation of one prompt; one request of the engine. */
typedef struct choice {
    completion *owner;
    int32_t index;       /* in the reply */
    int32_t prompt;      /* index of its prompt */
    uint64_t id;         /* of the engine's request; 0: none is live */
    bool running;        /* submitted to a replica */
    int32_t replica;     /* index of that replica */
    int64_t prompt_left; /* prompt tokens to process before the next token, while running; 0: a token has come */
    trm_ids tokens;      /* of the prompt and the output so far; resubmitted if a rank is lost */
    size_t n_prompt;
    text_sink sink;
    reply_reader reader;                 /* of a chat: what has been streamed */
    size_t streamed, streamed_reasoning; /* bytes of content, and of reasoning, that have been streamed */
    reply_part part;                     /* the part of a RESPONSE or MESSAGES that is being streamed */
    size_t ids_streamed;                 /* output tokens whose ids were streamed */
    size_t prompt_seen;                  /* prompt tokens whose logprobs have come */
    trm_decoder *prompt_decoder;         /* of those; NULL: none yet */
    size_t offset, counted; /* characters of the text before the next token, and bytes of sink.text in them */
    float *embedding;       /* [n_embedding] of an EMBEDDING */
    int64_t n_embedding;
    double likelihood; /* sum of the logprobs of its tokens, for best_of */
    bool written;      /* it is in the reply */
    bool finished;
    const char *finish_reason; /* NULL: not finished */
    uint64_t seed;
    /* logprobs of tokens whose text has not been sent; JSON without brackets */
    json_text logprobs, logprob_tokens, logprob_values, logprob_tops, logprob_offsets;
    size_t streamed_logprobs;  /* bytes of logprobs that were streamed; a RESPONSE repeats all at its end */
    json_text prompt_logprobs; /* of a prompt's first choice, for all of them */
} choice;

struct completion {
    http_exchange *exchange;
    api_request request;
    const trm_tokenizer *tokenizer;
    const char *model; /* name of the model; owned by the server */
    uint64_t client;   /* identifies the client */
    char id[48];
    int64_t created; /* seconds since 1970 */
    choice *choices; /* [n_choices] */
    int32_t n_choices, n_finished;
    int32_t n_events; /* sequence number in the stream of a RESPONSE */
    bool open;        /* the stream, and with it the status, has been sent */
    bool begun;       /* its first event has been sent */
    double last_sent; /* time of the last bytes in it */
    bool failed;      /* an error has been replied */
    trm_bytes head;   /* common part of every event of a completions stream, once written */
    int64_t prompt_tokens, cached_tokens, output_tokens;
    double received, submitted, first_token, last_token; /* supervisor_clock; 0: not yet */
    double deadline;
    completion *next, *previous;      /* the dispatcher's list */
    struct dispatcher_client *holder; /* the dispatcher's record of its client, while live */
    bool yields;                      /* used by the dispatcher to find room */
};

/* Takes ownership of the request and of the prompts' tokens [request->n_prompts], which are empty afterwards. Retains
 * the exchange. */
trm_status completion_create(http_exchange *x, api_request *request, trm_tokens *prompts,
                             const trm_tokenizer *tokenizer, const char *model, completion **result);
void completion_destroy(completion *c);

/* Fills in the engine's request; its arrays belong to the choice. */
trm_status choice_submission(const choice *ch, trm_serving_request *request);
/* Handles a token and streams completed text. *stopped: a stop string was found. */
trm_status choice_take(choice *ch, const trm_serving_event *event, bool *stopped);
/* Handles the logprob of a prompt token, in order. */
void choice_take_prompt(choice *ch, const trm_serving_event *event);
/* Ends a choice: `reason` is "stop", "length", ... The last choice ends the reply. */
trm_status choice_finish(choice *ch, const char *reason);
/* Reads the next piece of a chat's reply. */
bool choice_next_piece(choice *ch, reply_piece *piece);
/* Whether a finished choice ends with calls that can be made. */
bool choice_is_call(const choice *ch);
/* Writes the id of the call that a piece begins: the model's own, or one with the prefix. */
void choice_call_id(const choice *ch, const reply_piece *piece, const char *prefix, char id[CALL_ID_SIZE]);
/* Sends a stream event, without the blank line at its end, and frees it. */
void completion_send(completion *c, json_text *json);
/* Begin a named event, up to the first member of its object, "type"; end the object and send it. */
json_text completion_begin_event(const char *type);
void completion_end_event(completion *c, json_text *json);
/* Sends a comment in the stream, which clients ignore, as a sign of life. */
void completion_keep_open(completion *c);
/* Ends the whole request with an error: as a reply, or as the last event of a stream. */
void completion_fail(completion *c, const api_error *error);

#endif
