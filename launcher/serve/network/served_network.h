/*
 * A network that the HTTP server serves: its inputs and outputs, and the one thread that runs its context. Requests
 * wait in a bounded queue. Connections parse requests (infer.h) and send replies.
 */
#ifndef TRM_LAUNCHER_SERVE_NETWORK_SERVED_NETWORK_H
#define TRM_LAUNCHER_SERVE_NETWORK_SERVED_NETWORK_H

#include <trireme/engine.h>

typedef struct served_port {
    const char *name;
    trm_dtype dtype;
    trm_dims dims; /* -1: any size that the plan allows */
} served_port;

typedef struct infer_request infer_request;
typedef struct served_network served_network;

typedef struct served_options {
    const char *name, *platform;
    const trm_network *network; /* to read inputs and outputs from */
    trm_context *context;       /* used by the thread alone until served_destroy */
    int32_t max_waiting;        /* requests in the queue */
} served_options;

/* Starts the thread. What the options point to must outlive the network. Error: UNSUPPORTED (a type without a name in
 * the protocol). */
trm_status served_create(const served_options *options, served_network **result);
/* Takes no more requests. */
void served_drain(served_network *n);
bool served_is_ready(served_network *n); /* it takes requests */
bool served_is_idle(served_network *n);  /* no request waits or runs */
/* Answers waiting requests with an error and ends the thread after the current run. Accepts NULL, as served_destroy. */
void served_stop(served_network *n);
void served_destroy(served_network *n);

const served_options *served_get_options(const served_network *n);
int32_t served_input_count(const served_network *n);
int32_t served_output_count(const served_network *n);
const served_port *served_input(const served_network *n, int32_t index);
const served_port *served_output(const served_network *n, int32_t index);

/* Queues a request and calls `wait` before the thread can answer it; infer_finish is called then, on the thread. False:
 * the queue is full or drains, and `wait` was not called. */
bool served_submit(served_network *n, infer_request *request, void (*wait)(void *user), void *user);

#endif
