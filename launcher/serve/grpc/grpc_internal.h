/*
 * Shared by the files of the gRPC server: connections (grpc_server.c), streams (grpc_streams.c), methods
 * (grpc_methods.c).
 */
#ifndef TRM_LAUNCHER_SERVE_GRPC_GRPC_INTERNAL_H
#define TRM_LAUNCHER_SERVE_GRPC_GRPC_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "launcher/serve/grpc/grpc_server.h"
#include "launcher/serve/grpc/http2_library.h"
#include "launcher/serve/grpc/infer_proto.h"
#include "launcher/serve/network/repository.h"

#define GRPC_PREFIX 5 /* bytes before a message: compressed or not, and its length */

/* Codes of grpc-status. */
typedef enum grpc_status {
    GRPC_OK = 0,
    GRPC_CANCELLED = 1,
    GRPC_INVALID_ARGUMENT = 3,
    GRPC_DEADLINE_EXCEEDED = 4,
    GRPC_NOT_FOUND = 5,
    GRPC_RESOURCE_EXHAUSTED = 8,
    GRPC_UNIMPLEMENTED = 12,
    GRPC_INTERNAL = 13,
    GRPC_UNAVAILABLE = 14,
    GRPC_UNAUTHENTICATED = 16
} grpc_status;

typedef struct grpc_stream grpc_stream;
typedef struct grpc_call grpc_call;

/* One message of a client, until it is answered. */
struct grpc_call {
    grpc_call *next; /* of its stream, in the order of arrival */
    grpc_call *next_done;
    grpc_server *server;
    grpc_stream *stream; /* NULL: it was closed */
    trm_bytes message;   /* with its prefix */
    infer_request *request;
    const trace_context *trace; /* of the stream, while the method begins */
    repository_job *job;
    double deadline; /* on trm_clock_seconds; 0: none */
    bool streamed;   /* of ModelStreamInfer */
    atomic_bool gone;
    bool done, waits;   /* answered; a network or the repository has it */
    proto_writer reply; /* with room for its prefix */
    bool failed;
    api_error error;
};

/* Fills in the call's reply, or its error and `failed`; or hands it on, with `waits`. */
typedef void grpc_method_fn(grpc_call *call);

typedef struct grpc_method {
    const char *path;
    grpc_method_fn *answer;
    bool open;     /* needs no key */
    bool streamed; /* many messages both ways */
} grpc_method;

/* NULL: unknown. */
const grpc_method *grpc_find_method(const char *path);
const grpc_options *grpc_get_options(const grpc_server *s);
/* Called on any thread when a call that waits has its reply or error. */
void grpc_call_finish(grpc_call *call);

#endif
