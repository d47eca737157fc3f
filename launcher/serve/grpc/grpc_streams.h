/*
 * Shared by the two halves of the gRPC server: messages and streams (grpc_streams.c), sockets (grpc_server.c). All but
 * grpc_call_finish run on the server's thread.
 */
#ifndef TRM_LAUNCHER_SERVE_GRPC_GRPC_STREAMS_H
#define TRM_LAUNCHER_SERVE_GRPC_GRPC_STREAMS_H

#include "launcher/serve/grpc/grpc_internal.h"
#include "launcher/serve/tls/tls.h"

#define GRPC_MAX_CALLS       32 /* messages of a stream without an answer, from which on its window does not grow */
#define GRPC_MAX_HEADERS     ((size_t)16 << 10) /* bytes of a request's headers */
#define GRPC_RECEIVE_BLOCK   ((size_t)256 << 10)
#define GRPC_LONGEST_PATH    128
#define GRPC_LONGEST_MESSAGE 768

typedef struct grpc_connection grpc_connection;

struct grpc_stream {
    grpc_stream *next;
    grpc_connection *connection;
    int32_t id;
    const grpc_method *method;
    char path[GRPC_LONGEST_PATH], authorization[512];
    size_t header_bytes;
    bool is_post, is_grpc;
    trace_context trace;
    double deadline; /* 0: none */
    double arrives;  /* since when the current message arrives */
    double reads;    /* since when the client has read nothing of `out` */
    trm_bytes in;    /* a message so far, with its prefix */
    bool complete;   /* it is whole; only of methods with one message */
    bool in_ended, discards;
    size_t unconsumed; /* bytes that arrived and are not yet given back to the client's window */
    grpc_call *first, *last;
    int32_t n_calls;
    trm_bytes out;
    size_t out_sent;
    bool responded, ended; /* the reply's headers are out; after `out` the trailers follow */
    grpc_status status;
    char message[GRPC_LONGEST_MESSAGE];
};

struct grpc_connection {
    grpc_connection *next;
    grpc_server *server;
    int fd;
    tls_session *tls; /* NULL: in clear */
    nghttp2_session *session;
    grpc_stream *streams;
    trm_bytes out;
    size_t out_sent;
    double active, blocked; /* last traffic; since when the socket takes nothing, 0: it does */
    int32_t resets;
    bool broken, closing;
};

struct grpc_server {
    grpc_options options;
    const http2_library *http2;
    tls_trust *identity; /* NULL: no TLS */
    nghttp2_session_callbacks *callbacks;
    nghttp2_option *option;
    int fd, wake; /* sockets to listen on, eventfd */
    pthread_t thread;
    bool started;
    atomic_bool stopping;
    grpc_connection *connections;
    int32_t n_connections;
    double pauses;  /* until when no connection is accepted */
    size_t held;    /* bytes of messages in memory */
    char *received; /* [GRPC_RECEIVE_BLOCK] */
    pthread_mutex_t lock;
    grpc_call *done; /* guarded by the lock; last first */
};

/* Sets nghttp2's callbacks and options. Error: OUT_OF_MEMORY. */
trm_status grpc_make_callbacks(grpc_server *s);
/* Takes the answers of networks and the repository. */
void grpc_take_done(grpc_server *s);
/* Ends a stream with a status; what else arrives on it is discarded. */
void grpc_end_stream(grpc_stream *s, grpc_status status, const char *message);
void grpc_free_stream(grpc_stream *s);

#endif
