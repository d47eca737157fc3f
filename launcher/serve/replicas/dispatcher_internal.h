/*
 * What the dispatcher's thread (dispatcher.c for requests, dispatcher_replicas.c for jobs) and the calls of other
 * threads (dispatcher_calls.c) share.
 */
#ifndef TRM_LAUNCHER_SERVE_REPLICAS_DISPATCHER_INTERNAL_H
#define TRM_LAUNCHER_SERVE_REPLICAS_DISPATCHER_INTERNAL_H

#include <pthread.h>

#include "launcher/serve/replicas/dispatcher.h"

#define DISPATCHER_NEVER 1e300

/* A job of ranks that has the whole model. */
typedef struct replica {
    dispatcher *dispatcher;
    int32_t index;
    supervisor supervisor;
    ipc_ready ready; /* as it last was */
    bool was_ready;
    bool given_up; /* so many starts in a row have failed that it is not waited for */
    int32_t failed_starts;
    double lost_at;                    /* 0: it is not lost */
    double next_start;                 /* not before, while it is lost */
    int32_t n_choices;                 /* that it has */
    int64_t prompt_tokens;             /* their prompt_left */
    trm_scheduler_stats engine;        /* as the job last told, which begins at 0 after a restart */
    trm_scheduler_stats engine_before; /* counters of the jobs before it */
} replica;

/* Whose requests are live. */
typedef struct dispatcher_client {
    uint64_t id;
    int32_t live; /* choices */
    struct dispatcher_client *next;
} dispatcher_client;

struct dispatcher {
    dispatcher_options options;
    pthread_t thread;
    int mailbox, clients; /* an eventfd, and the epoll of clients' sockets */
    /* Behind the lock. */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    dispatcher_state state;
    completion *inbox;  /* newest first */
    bool stop;          /* the thread shall end */
    bool stopped;       /* it has */
    double drain_until; /* DISPATCHER_NEVER: not draining */
    double kept_open;   /* when streams were last looked at for silence */
    bool was_ready;     /* all replicas were */
    bool sleep_wanted, sleep_refused;
    bool asleep_and_gone; /* asleep, and the jobs have ended */
    ipc_ready ready;
    metrics published;
    trm_bytes stalls; /* of a job's last step that was looked at: ipc_stalls.layers, without its NUL */
    trm_status failure;
    char cause[512];
    /* The thread's own. */
    replica *replicas; /* [n_replicas] */
    int32_t n_replicas;
    router router;
    completion *live, *oldest;  /* from the newest on by next, from the oldest on by previous */
    dispatcher_client *holders; /* of live requests */
    int32_t n_holders;
    choice **slots;       /* [DISPATCHER_MOST_CHOICES] */
    uint32_t *free_slots; /* [n_free] */
    int32_t n_free;
    uint64_t serial;
    metrics m;
    bool asleep; /* the jobs have been told to end, or have, and are not wanted */
    bool ending; /* they are told to end for good */
    double ending_since;
    bool has_waiting; /* choices that are not submitted yet */
};

/* Wakes the thread. */
void dispatcher_notify(dispatcher *d);
/* Answers a request that came when there was nobody to take it. */
void dispatcher_refuse_late(completion *c);

/* Of dispatcher.c, for the dispatcher's thread. */
void dispatcher_set_state(dispatcher *d, dispatcher_state state);
/* Answers every live request with 503. */
void dispatcher_fail_all(dispatcher *d, const char *message);
/* The server is over; the cause of a failure is in the error record. */
void dispatcher_end(dispatcher *d, trm_status failure);
/* Divides what waits for a place at a replica once more; what has begun stays. */
void dispatcher_rebalance(dispatcher *d);

/* Of dispatcher_replicas.c, for the dispatcher's thread. */
trm_status replicas_start(dispatcher *d);
void replicas_fini(dispatcher *d); /* kills what is left */
/* Whether one takes requests now. */
bool replicas_serve(const dispatcher *d);
/* The connection for them; NULL: it takes none. */
channel *replica_leader(replica *r);
/* Takes what jobs say (`fn`'s user is the replica), notices what is lost and starts it again, falls asleep and wakes.
 */
void replicas_tend(dispatcher *d, supervisor_frame_fn fn);
/* Sends what waits. */
void replicas_send(dispatcher *d);
/* Ends the jobs in order, where that is possible, else at once. */
void replicas_end(dispatcher *d);
/* Whether they have ended; what has not after a grace is killed. */
bool replicas_are_gone(dispatcher *d);
/* What other threads see. */
void replicas_publish(dispatcher *d);
/* What layers of one waited for weights, as ipc_stalls has it. */
void replicas_keep_stalls(dispatcher *d, const char *layers);

#endif
