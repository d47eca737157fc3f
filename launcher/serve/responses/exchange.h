/*
 * One HTTP call between the connection it came by and the hub that answers it: the hub writes status and bytes, the
 * connection takes them. Two owners, so references are counted. Bytes that a slow reader leaves are bounded.
 */
#ifndef TRM_LAUNCHER_SERVE_RESPONSES_EXCHANGE_H
#define TRM_LAUNCHER_SERVE_RESPONSES_EXCHANGE_H

#include <pthread.h>
#include <stdatomic.h>

#include "launcher/serve/json/json_text.h"
#include "launcher/serve/requests/api_request.h"
#include "launcher/text/strings/buffer.h"

#define EXCHANGE_MOST_UNREAD ((size_t)512 << 10) /* bytes; one piece may go beyond it */

typedef struct exchange {
    atomic_int references;
    atomic_bool gone; /* the connection is no more: nobody reads */
    atomic_bool left; /* the client has closed its end: the connection has yet to notice */
    void (*wake)(void *connection);
    void *connection;
    char id[72]; /* of the request, for logs and headers */
    /* Behind the lock. */
    pthread_mutex_t lock;
    bool sleeping;   /* the connection waits for wake */
    int status;      /* HTTP status; 0: not decided yet */
    bool streams;    /* bytes go out as they come, as events */
    bool ended;      /* no more bytes will come */
    bool broken;     /* ended in the middle of a stream: the connection must be cut */
    int retry_after; /* seconds; 0: no such header */
    trm_bytes out;
    size_t taken;
    int64_t prompt_tokens, output_tokens; /* for the log */
} exchange;

trm_status exchange_create(void (*wake)(void *connection), void *connection, exchange **result);
exchange *exchange_retain(exchange *x);
void exchange_release(exchange *x);

/* The hub's side. */
/* The whole reply at once. */
void exchange_reply(exchange *x, int status, const char *body, size_t size);
void exchange_reply_error(exchange *x, const api_error *error);
/* A stream begins, goes on, ends. exchange_stream returns false when the reader is too slow or gone: the stream is then
 * broken. */
void exchange_begin_stream(exchange *x);
bool exchange_stream(exchange *x, const char *bytes, size_t size);
void exchange_end_stream(exchange *x, bool broken);
/* The client has left: nothing more is written, and the connection is woken so that it notices. */
void exchange_abandon(exchange *x);

/* {"type":"error","error":{...}}: OpenAI's clients read the latter, Anthropic's both. */
void api_error_write(const api_error *error, json_text *json);

#endif
