/*
 * The dispatcher: the thread that owns the state of serving, that is live requests, the processes of the jobs, and the
 * messages between them. Connections hand requests over and are woken with replies. Each job is a replica of the
 * model. If one is lost, the dispatcher restarts it and submits its requests, with the tokens generated so far, to any
 * replica that is serving.
 */
#ifndef TRM_LAUNCHER_SERVE_REPLICAS_DISPATCHER_H
#define TRM_LAUNCHER_SERVE_REPLICAS_DISPATCHER_H

#include "launcher/serve/replicas/metrics.h"
#include "launcher/serve/replicas/router.h"
#include "launcher/serve/replicas/supervisor.h"
#include "launcher/serve/responses/completion.h"

#define DISPATCHER_MAX_CHOICES 65536 /* concurrent engine requests */

typedef struct dispatcher dispatcher;

typedef struct dispatcher_options {
    const char *name; /* of the model, in messages; NULL: it is the only one */
    /* The jobs start with dispatcher_load, and requests wait for them. Jobs that cannot be started do not end the
     * dispatcher: the requests that wait get the cause, and the next request asks for the jobs again. */
    bool on_demand;
    double start_seconds;               /* on demand: how long a request waits for the jobs to be started */
    const supervisor_options *replicas; /* [n_replicas], all with the same number of ranks; copied */
    int32_t n_replicas;
    bool prefix_cache;           /* replicas cache the prefixes of prompts */
    int32_t max_requests;        /* maximum concurrent choices; more get 429 */
    double request_seconds;      /* time limit of a request; 0: none */
    double silent_seconds;       /* send a comment on a stream silent for this long; 0: never */
    const char *const *adapters; /* [n_adapters] "NAME=FOLDER" to load at first */
    int32_t n_adapters;
    int32_t most_restarts;                        /* consecutive failed starts of a replica before it is given up */
    void (*log)(void *user, const char *message); /* messages for the operator; may be NULL */
    void *log_user;
} dispatcher_options;

/* State for /health and /ready: READY while a replica is serving. */
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
/* Ends jobs and thread. Live and later requests get 503. NULL is ignored. */
void dispatcher_stop(dispatcher *d);
void dispatcher_destroy(dispatcher *d); /* after dispatcher_stop, when no connection uses it any more */

dispatcher_state dispatcher_get_state(dispatcher *d);
/* The common limits of the replicas, and the load time of the slowest; false before all were ready once. */
bool dispatcher_get_ready(dispatcher *d, ipc_ready *ready);
/* Why the dispatcher ended by itself; OK if the caller asked for it. */
trm_status dispatcher_failure(dispatcher *d);

/* Takes ownership of a request. A refusal comes as its reply. Any thread. */
void dispatcher_submit(dispatcher *d, completion *c);
/* Watches the client's socket and cancels the request when the client closes it. Any thread; call dispatcher_unwatch
 * before the socket is closed. */
void dispatcher_watch(dispatcher *d, http_exchange *x, int fd);
void dispatcher_unwatch(dispatcher *d, http_exchange *x, int fd);
/* A connection has ended: cancels requests whose exchange is gone. Any thread. */
void dispatcher_connection_ended(dispatcher *d);
/* Refuses new requests and ends when the live ones are done, at the latest after `seconds`. Any thread. */
void dispatcher_drain(dispatcher *d, double seconds);

/* Ends the jobs, which frees the devices, until dispatcher_wake; requests are refused meanwhile. Waits for the jobs to
 * end, at most `seconds`. OK if it is asleep already. Errors: BUSY (requests are live, or it is not ready), INTERNAL
 * (timeout). Any thread except the dispatcher's. */
trm_status dispatcher_sleep(dispatcher *d, double seconds);
/* Restarts the jobs if they are asleep; requests are accepted from now on and wait for them. On demand, the jobs wait
 * for dispatcher_load; with `load` they are wanted as if a request had come. Any thread. */
void dispatcher_wake(dispatcher *d, bool load);

/* Where an on-demand dispatcher stands. */
typedef struct dispatcher_use {
    dispatcher_state state;
    bool gone;           /* the jobs have ended, or have not been started */
    bool leaving;        /* dispatcher_unload was called, or dispatcher_sleep */
    bool asleep;         /* dispatcher_sleep was called: no request loads it */
    bool lacks_memory;   /* the last start failed because memory was short; its requests wait */
    int32_t live;        /* choices */
    double wanted, used; /* since when the jobs are wanted, 0: they are not; time of the last request */
} dispatcher_use;
/* Any thread. */
dispatcher_use dispatcher_get_use(dispatcher *d);
/* Starts the jobs, which are gone. Any thread. */
void dispatcher_load(dispatcher *d);
/* Ends the jobs when nothing runs on them any more. Requests that have not begun wait for the next start. Any thread.
 */
void dispatcher_unload(dispatcher *d);
/* Forgets that the last start lacked memory. Any thread. */
void dispatcher_retry(dispatcher *d);
/* Answers the requests that wait with the cause of the last failed start. Any thread. */
void dispatcher_give_up(dispatcher *d);

/* The number of an adapter in requests; 0 if no adapter has this name. Any thread. */
int32_t dispatcher_find_adapter(dispatcher *d, const char *name);
/* Loads an adapter on all replicas, in place of one of the same name with `replace`, and waits for it, at most
 * `seconds`. Errors: BUSY (the server is not ready, or no room), INVALID_ARGUMENT (the name is taken), what the ranks
 * say, INTERNAL (timeout). Any thread except the dispatcher's. */
trm_status dispatcher_load_adapter(dispatcher *d, const char *name, const char *folder, bool replace, double seconds);
/* Takes an adapter away for new requests; false if no adapter has this name. Any thread. */
bool dispatcher_unload_adapter(dispatcher *d, const char *name);
typedef struct dispatcher_adapter {
    const char *name, *folder;
    int64_t created; /* seconds since 1970 */
} dispatcher_adapter;
/* Copies the adapters there are into the arena; returns their number. Any thread. */
int32_t dispatcher_list_adapters(dispatcher *d, trm_arena *arena, dispatcher_adapter **list);

/* Current counters, for /metrics and the page. Any thread. */
void dispatcher_snapshot(dispatcher *d, metrics *copy);
/* Appends the waits for weights of the last profiled step of any replica, in the form of ipc_stalls, and a NUL; "" if
 * there was none. Any thread. */
trm_status dispatcher_stalls(dispatcher *d, trm_bytes *layers);

#endif
