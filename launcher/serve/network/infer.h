/*
 * One inference request: inputs, wanted outputs, and how its client is answered. The readers (infer_json.h, and that of
 * gRPC) fill it in; a served network runs it.
 */
#ifndef TRM_LAUNCHER_SERVE_NETWORK_INFER_H
#define TRM_LAUNCHER_SERVE_NETWORK_INFER_H

#include "launcher/serve/network/served_network.h"
#include "launcher/serve/network/shared_memory.h"
#include "launcher/serve/requests/api_request.h"
#include "launcher/serve/requests/trace_context.h"
#include "launcher/text/strings/buffer.h"

typedef struct infer_input {
    bool given;
    trm_dims dims;
    size_t bytes;
    const void *data; /* [dims], in the body or in `owned`, of any alignment; NULL: in `region` */
    void *owned;
    shared_region *region;
    uint64_t region_offset;
    const char *source; /* in the region, for copies to the GPU; set when it runs */
} infer_input;

typedef struct infer_output {
    int32_t index;
    bool raw;              /* behind the JSON */
    shared_region *region; /* where it goes instead; NULL: into the reply */
    uint64_t region_offset, region_size;
    trm_dims dims;
    const void *data; /* [dims]; valid in `write` */
    size_t bytes;
    bool is_written; /* the run left it in `region` */
} infer_output;

/* How a request is answered; on threads of the network. */
typedef struct infer_client {
    trm_status (*write)(infer_request *request); /* writes the outputs into `reply` */
    void (*finish)(infer_request *request);      /* the request has its reply or its error; may free it */
    bool (*is_gone)(infer_request *request);     /* nobody waits for the reply any more */
} infer_client;

struct infer_request {
    infer_request *next;     /* in the queue or a batch */
    served_network *network; /* retained */
    const infer_client *client;
    void *user; /* of the client */
    char *id;   /* NULL: none */
    trace_context trace;
    infer_input *inputs;   /* [inputs of the network] */
    infer_output *outputs; /* [n_outputs] */
    int32_t n_outputs;
    int64_t elements;       /* of its batch; 1 if the network does not join requests */
    double queue_seconds;   /* time that it may wait; 0: the network's default */
    double queued, expires; /* on trm_clock_seconds; expires 0: never */
    bool failed;
    api_error error;
    trm_bytes reply;
    size_t json_size; /* of the reply; the rest is raw */
};

/* The protocol's name of a type; NULL: it has none. */
const char *infer_type_name(trm_dtype dtype);
/* FP16 and BF16 have no numbers in JSON, and no field of their own in gRPC. */
bool infer_is_only_raw(trm_dtype dtype);

/* An empty request. NULL with an error, as below. */
infer_request *infer_create(served_network *network, const infer_client *client, void *user, api_error *error);
/* Accepts NULL. */
void infer_destroy(infer_request *request);

/* Begins an input that has this type and shape [n]: *port and *input are its places, whose elements must follow. */
bool infer_begin_input(infer_request *request, const char *name, const char *type, const int64_t *shape, size_t n,
                       const served_port **port, infer_input **input, api_error *error);
/* Takes elements as they lie in `data`, which must outlive the request. */
bool infer_take_raw(const served_port *port, infer_input *input, const void *data, size_t bytes, api_error *error);
/* Checks that elements of a BOOL input are 0 or 1. Error: INVALID_ARGUMENT. */
trm_status infer_check_bool(const served_port *port, const void *data, size_t bytes);
/* Allocates `owned` for elements. */
bool infer_allocate(const served_port *port, infer_input *input, api_error *error);
/* Takes elements that lie in a region until the request runs. */
bool infer_take_shared(const served_port *port, infer_input *input, shared_regions *regions, const char *region,
                       uint64_t offset, uint64_t size, api_error *error);
/* `raw`: how the client writes it; *output, if not NULL: its place, until the next call. */
bool infer_add_output(infer_request *request, const char *name, bool raw, infer_output **output, api_error *error);
bool infer_add_all_outputs(infer_request *request, bool raw, api_error *error);
/* Sends an output into a region. */
bool infer_share_output(infer_output *output, shared_regions *regions, const char *region, uint64_t offset,
                        uint64_t size, api_error *error);
/* Writes outputs into their regions; a client calls it in `write`. */
trm_status infer_write_shared(const infer_request *request);
/* When all inputs are read: checks that there are all, and counts the elements of the batch. */
bool infer_check(infer_request *request, api_error *error);

#endif
