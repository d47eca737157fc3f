/*
 * The one thread that owns the state of serving: live requests, the jobs' processes, what goes between them.
 * Connections hand requests over and are woken with replies; everything else stays here. Each job is a replica of the
 * model. When one is lost the dispatcher starts it anew and submits its requests again, with the tokens they have
 * already given, to any replica that serves.
 */
#ifndef TRM_LAUNCHER_SERVE_REPLICAS_DISPATCHER_H
#define TRM_LAUNCHER_SERVE_REPLICAS_DISPATCHER_H

#include "launcher/serve/replicas/metrics.h"
#include "launcher/serve/replicas/router.h"
#include "launcher/serve/replicas/supervisor.h"
#include "launcher/serve/responses/completion.h"

#define DISPATCHER_MOST_CHOICES 65536 /* engine requests alive at a time */

typedef struct dispatcher dispatcher;

typedef struct dispatcher_options {
    const supervisor_options *replicas; /* [n_replicas], of as many ranks each; copied */
    int32_t n_replicas;
    bool prefix_cache;                            /* replicas keep what prompts were computed */
    int32_t max_requests;                         /* choices alive at a time; more are refused with 429 */
    double request_seconds;                       /* a request that takes longer is ended; 0: never */
    double silent_seconds;                        /* a stream without bytes for so long gets a comment; 0: never */
    int32_t most_restarts;                        /* of a replica that does not become ready, in a row */
    void (*log)(void *user, const char *message); /* what an operator wants to know; may be NULL */
    void *log_user;
} dispatcher_options;

/* How the server is, for /health and /ready: READY while a replica serves. */
typedef enum dispatcher_state {
    DISPATCHER_LOADING,
    DISPATCHER_READY,
    DISPATCHER_RECOVERING,
    DISPATCHER_DRAINING,
    DISPATCHER_SLEEPING,
    DISPATCHER_ENDED
} dispatcher_state;
const char *dispatcher_state_name(dispatcher_state state);

/* Starts the jobs and the thread. */
trm_status dispatcher_create(const dispatcher_options *options, dispatcher **result);
/* Ends jobs and thread; requests that are live or come later are answered with 503. NULL is ignored. */
void dispatcher_stop(dispatcher *d);
void dispatcher_destroy(dispatcher *d); /* after dispatcher_stop, when no connection uses it any more */

dispatcher_state dispatcher_get_state(dispatcher *d);
/* Limits of every replica, and the seconds of the slowest start; false before all were ready once. */
bool dispatcher_get_ready(dispatcher *d, ipc_ready *ready);
/* Why the dispatcher has ended by itself: OK if it was told to. */
trm_status dispatcher_failure(dispatcher *d, char *cause, size_t size);

/* Takes a request over. What it is refused for comes as its reply. Any thread. */
void dispatcher_submit(dispatcher *d, completion *c);
/* Watches the client's socket from now on: when it goes away, the request is cancelled. Any thread; dispatcher_unwatch
 * before the socket is closed. */
void dispatcher_watch(dispatcher *d, http_exchange *x, int fd);
void dispatcher_unwatch(dispatcher *d, http_exchange *x, int fd);
/* A connection has ended: dispatcher_submit's requests of exchanges that are gone are cancelled. Any thread. */
void dispatcher_connection_ended(dispatcher *d);
/* Takes no more requests and ends when the live ones are done, at the latest after `seconds`. Any thread. */
void dispatcher_drain(dispatcher *d, double seconds);

/* Ends the jobs, which frees the devices, until dispatcher_wake; requests are refused meanwhile. Waits until they are
 * gone, at most `seconds`. OK where it sleeps already. Errors: BUSY (requests are live, or it does not serve now),
 * INTERNAL (it takes longer). Any thread but the dispatcher's. */
trm_status dispatcher_sleep(dispatcher *d, double seconds);
/* Starts the jobs again, if they sleep; requests are taken from now on and wait for them. Any thread. */
void dispatcher_wake(dispatcher *d);

/* Counters now, for /metrics and the page. Any thread. */
void dispatcher_snapshot(dispatcher *d, metrics *copy);
/* Appends what the layers of the last step of any replica that was looked at waited for weights, as ipc_stalls has it,
 * and a NUL; of no such step "". Any thread. */
trm_status dispatcher_stalls(dispatcher *d, trm_bytes *layers);

#endif
