/*
 * One HTTP call, shared by its connection and the dispatcher: the dispatcher writes status and bytes, the connection
 * sends them. Reference-counted, since either may end first. Bytes that a slow reader leaves unread are bounded.
 */
#ifndef TRM_LAUNCHER_SERVE_RESPONSES_HTTP_EXCHANGE_H
#define TRM_LAUNCHER_SERVE_RESPONSES_HTTP_EXCHANGE_H

#include <pthread.h>
#include <stdatomic.h>

#include "launcher/serve/json/json_text.h"
#include "launcher/serve/requests/api_request.h"
#include "launcher/serve/requests/trace_context.h"
#include "launcher/text/strings/buffer.h"

#define HTTP_EXCHANGE_MAX_UNREAD ((size_t)512 << 10) /* bytes; a single piece may exceed it */

typedef struct http_exchange {
    atomic_int references;
    atomic_bool gone; /* the connection has ended: nobody reads */
    atomic_bool left; /* the client has closed its end; the connection has not noticed yet */
    void (*wake)(void *connection);
    void *connection;
    char id[72];         /* of the request, for logs and headers */
    trace_context trace; /* of the request, likewise, and for timelines; set before others see the exchange */
    /* Guarded by the lock: */
    pthread_mutex_t lock;
    bool sleeping;   /* the connection waits for wake */
    int status;      /* HTTP status; 0: not decided yet */
    bool streams;    /* bytes are streamed as events */
    bool ended;      /* no more bytes will come */
    bool broken;     /* ended in the middle of a stream: the connection must be cut */
    int retry_after; /* Retry-After in seconds; 0: no such header */
    trm_bytes out;
    size_t taken;
    int64_t prompt_tokens, output_tokens; /* for the log */
} http_exchange;

trm_status http_exchange_create(void (*wake)(void *connection), void *connection, http_exchange **result);
http_exchange *http_exchange_retain(http_exchange *x);
void http_exchange_release(http_exchange *x);

/* For the dispatcher: */
/* Sends the whole reply at once. */
void http_exchange_reply(http_exchange *x, int status, const char *body, size_t size);
void http_exchange_reply_error(http_exchange *x, const api_error *error);
/* Begin, continue and end a stream. http_exchange_stream returns false if the reader is too slow or gone: the stream is
 * then broken. */
void http_exchange_begin_stream(http_exchange *x);
bool http_exchange_stream(http_exchange *x, const char *bytes, size_t size);
void http_exchange_end_stream(http_exchange *x, bool broken);
/* Wakes the connection if it sleeps. */
void http_exchange_wake(http_exchange *x);
/* The client has left: nothing more is written, and the connection is woken to notice. */
void http_exchange_abandon(http_exchange *x);

/* {"type":"error","error":{...}}: OpenAI's clients read `error`, Anthropic's clients both. */
void api_error_write(const api_error *error, json_text *json);

#endif
