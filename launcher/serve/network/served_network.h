/*
 * A network that the server runs: its inputs and outputs, a bounded queue of requests, and one thread for each of its
 * contexts. Where the network joins requests, those that wait together and differ in the first dim only run as one.
 * Reference-counted: requests hold it, so that it can be unloaded while replies are still sent.
 */
#ifndef TRM_LAUNCHER_SERVE_NETWORK_SERVED_NETWORK_H
#define TRM_LAUNCHER_SERVE_NETWORK_SERVED_NETWORK_H

#include <trireme/engine.h>

#include "launcher/serve/network/network_stats.h"
#include "launcher/serve/requests/api_request.h"

#define SERVED_MAX_INSTANCES 64
#define SERVED_MAX_PREFERRED 16

typedef struct served_port {
    const char *name;
    trm_dtype dtype;
    trm_dims dims; /* -1: any size that the plan allows */
} served_port;

typedef struct infer_request infer_request;
typedef struct served_network served_network;

typedef struct served_options {
    trm_world *world;
    const char *name, *version, *platform;
    const trm_network *network;              /* to read inputs and outputs from */
    trm_context *const *contexts;            /* [n_contexts]; each is used by a thread alone until served_stop */
    int32_t n_contexts, max_waiting;         /* requests in the queue */
    double queue_seconds;                    /* that a request may wait in the queue if it does not say; 0: unlimited */
    int32_t max_batch;                       /* largest first dim of a run; 0: the first dim is no batch */
    bool joins;                              /* requests that wait together run as one */
    double batch_seconds;                    /* how long a request waits for others to be joined with */
    int32_t preferred[SERVED_MAX_PREFERRED]; /* [n_preferred] batches that do not wait for more */
    int32_t n_preferred;
    void (*release)(void *user); /* called when nobody uses what the options point to any more; may be NULL */
    void *user;
} served_options;

/* Starts the threads. Errors: UNSUPPORTED (a type without a name in the protocol), INVALID_ARGUMENT (an
 * input or output has no open first dim for the batch). On failure `release` is not called. */
trm_status served_create(const served_options *options, served_network **result);
served_network *served_retain(served_network *n);
/* Accepts NULL. The last one must follow served_stop. */
void served_release(served_network *n);
/* Takes no more requests. */
void served_drain(served_network *n);
bool served_is_ready(served_network *n); /* it takes requests */
bool served_is_idle(served_network *n);  /* no request waits or runs */
/* Answers waiting requests with an error and ends the threads after their current runs. Accepts NULL. */
void served_stop(served_network *n);

const served_options *served_get_options(const served_network *n);
int32_t served_max_batch(const served_network *n);
int32_t served_input_count(const served_network *n);
int32_t served_output_count(const served_network *n);
const served_port *served_input(const served_network *n, int32_t index);
const served_port *served_output(const served_network *n, int32_t index);
void served_get_stats(served_network *n, network_stats *stats);

/* Queues a request and, if `wait` is not NULL, calls it before a thread can answer the request. False: the queue is
 * full or drains, and `wait` was not called. */
bool served_submit(served_network *n, infer_request *request, void (*wait)(void *user), void *user);

/* The same with an error of status 503. A network that has just been replaced refuses, too: then look it up again, at
 * most SERVED_TURNS times in all, while served_is_ready says no. */
#define SERVED_TURNS 4
bool served_accept(served_network *n, infer_request *request, void (*wait)(void *user), void *user, api_error *error);

#endif
