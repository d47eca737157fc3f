/*
 * What the hub's thread (hub.c) and the calls of other threads (hub_calls.c) share.
 */
#ifndef TRM_LAUNCHER_SERVE_HUB_INTERNAL_H
#define TRM_LAUNCHER_SERVE_HUB_INTERNAL_H

#include <pthread.h>

#include "launcher/serve/hub.h"

#define HUB_NEVER 1e300

struct hub {
    hub_options options;
    pthread_t thread;
    int mailbox, clients; /* an eventfd, and the epoll of clients' sockets */
    /* Behind the lock. */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    hub_state state;
    completion *inbox;  /* newest first */
    bool stop;          /* the thread shall end */
    bool stopped;       /* it has */
    double drain_until; /* HUB_NEVER: not draining */
    bool was_ready;
    bool sleep_wanted, sleep_refused;
    bool asleep_and_gone; /* asleep, and the job has ended */
    wire_ready ready;
    metrics published;
    trm_bytes stalls; /* of the job's last step that was looked at: wire_stalls.layers, without its NUL */
    trm_status failure;
    char cause[512];
    /* The thread's own. */
    supervisor supervisor;
    completion *live;
    choice **slots;       /* [HUB_MOST_CHOICES] */
    uint32_t *free_slots; /* [n_free] */
    int32_t n_free;
    uint64_t serial;
    metrics m;
    int32_t failed_starts;
    double lost_at; /* 0: the job is not lost */
    bool asleep;    /* the job has been told to end, or has, and is not wanted */
    bool ending;    /* WIRE_END has been sent */
    double ending_since;
    bool has_waiting; /* choices that are not submitted yet */
};

/* Wakes the thread. */
void hub_knock(hub *h);
/* Answers a request that came when there was nobody to take it. */
void hub_refuse_late(completion *c);

#endif
