/*
 * The one thread that owns the state of serving: live requests, the jobs' processes, what goes between them.
 * Connections hand requests over and are woken with replies; everything else stays here. Each job is a replica of the
 * model. When one is lost the hub starts it anew and submits its requests again, with the tokens they have already
 * given, to any replica that serves.
 */
#ifndef TRM_LAUNCHER_SERVE_REPLICAS_HUB_H
#define TRM_LAUNCHER_SERVE_REPLICAS_HUB_H

#include "launcher/serve/replicas/metrics.h"
#include "launcher/serve/replicas/router.h"
#include "launcher/serve/replicas/supervisor.h"
#include "launcher/serve/responses/completion.h"

#define HUB_MOST_CHOICES 65536 /* engine requests alive at a time */

typedef struct hub hub;

typedef struct hub_options {
    const supervisor_options *replicas; /* [n_replicas], of as many ranks each; copied */
    int32_t n_replicas;
    bool prefix_cache;                            /* replicas keep what prompts were computed */
    int32_t max_requests;                         /* choices alive at a time; more are refused with 429 */
    double request_seconds;                       /* a request that takes longer is ended; 0: never */
    double silent_seconds;                        /* a stream without bytes for so long gets a comment; 0: never */
    int32_t most_restarts;                        /* of a replica that does not become ready, in a row */
    void (*log)(void *user, const char *message); /* what an operator wants to know; may be NULL */
    void *log_user;
} hub_options;

/* How the server is, for /health and /ready: READY while a replica serves. */
typedef enum hub_state { HUB_LOADING, HUB_READY, HUB_RECOVERING, HUB_DRAINING, HUB_SLEEPING, HUB_ENDED } hub_state;
const char *hub_state_name(hub_state state);

/* Starts the jobs and the thread. */
trm_status hub_create(const hub_options *options, hub **result);
/* Ends jobs and thread; requests that are live or come later are answered with 503. NULL is ignored. */
void hub_stop(hub *h);
void hub_destroy(hub *h); /* after hub_stop, when no connection uses it any more */

hub_state hub_get_state(hub *h);
/* Limits of every replica, and the seconds of the slowest start; false before all were ready once. */
bool hub_get_ready(hub *h, wire_ready *ready);
/* Blocks until the hub's state is not `state`, or `seconds` have passed. */
hub_state hub_wait(hub *h, hub_state state, double seconds);
/* Why the hub has ended by itself: OK if it was told to. */
trm_status hub_failure(hub *h, char *cause, size_t size);

/* Takes a request over. What it is refused for comes as its reply. Any thread. */
void hub_submit(hub *h, completion *c);
/* Watches the client's socket from now on: when it goes away, the request is cancelled. Any thread; hub_forget before
 * the socket is closed. */
void hub_watch(hub *h, exchange *x, int fd);
void hub_forget(hub *h, exchange *x, int fd);
/* A connection has ended: hub_submit's requests of exchanges that are gone are cancelled. Any thread. */
void hub_poke(hub *h);
/* Takes no more requests and ends when the live ones are done, at the latest after `seconds`. Any thread. */
void hub_drain(hub *h, double seconds);

/* Ends the jobs, which frees the devices, until hub_wake; requests are refused meanwhile. Waits until they are gone, at
 * most `seconds`. OK where it sleeps already. Errors: BUSY (requests are live, or it does not serve now), INTERNAL (it
 * takes longer). Any thread but the hub's. */
trm_status hub_sleep(hub *h, double seconds);
/* Starts the jobs again, if they sleep; requests are taken from now on and wait for them. Any thread. */
void hub_wake(hub *h);

/* Counters now, for /metrics and the page. Any thread. */
void hub_snapshot(hub *h, metrics *copy);
/* Appends what the layers of the last step of any replica that was looked at waited for weights, as wire_stalls has it,
 * and a NUL; of no such step "". Any thread. */
trm_status hub_stalls(hub *h, trm_bytes *layers);

#endif
