/*
 * One inference request of KServe's protocol v2: a JSON object, and behind it the raw elements of tensors that say so
 * (the binary tensor extension).
 */
#ifndef TRM_LAUNCHER_SERVE_NETWORK_INFER_H
#define TRM_LAUNCHER_SERVE_NETWORK_INFER_H

#include "launcher/serve/network/served_network.h"
#include "launcher/serve/responses/http_exchange.h"

typedef struct infer_input {
    bool given;
    trm_dims dims;
    const void *data; /* [dims], in the body or in `owned` */
    void *owned;
} infer_input;

typedef struct infer_output {
    int32_t index;
    bool raw; /* behind the JSON */
} infer_output;

struct infer_request {
    infer_request *next; /* in the queue */
    const served_network *network;
    http_exchange *exchange; /* of the connection, which waits and so outlives the request */
    char *id;                /* NULL: none */
    infer_input *inputs;     /* [inputs of the network] */
    infer_output *outputs;   /* [n_outputs] */
    int32_t n_outputs;
    bool failed;
    api_error error;
    trm_bytes reply;
    size_t json_size; /* of the reply; the rest is raw */
};

/* The protocol's name of a type; NULL: it has none. */
const char *infer_type_name(trm_dtype dtype);

/* Parses a body whose first json_size bytes are JSON; the body must outlive the request. NULL with an error. */
infer_request *infer_parse(const served_network *network, const char *body, size_t size, size_t json_size,
                           http_exchange *exchange, api_error *error);
/* Runs the request and writes the reply or the error into it. */
void infer_run(infer_request *request, trm_context *context);
/* Wakes the connection. */
void infer_finish(infer_request *request);
void infer_destroy(infer_request *request);

#endif
