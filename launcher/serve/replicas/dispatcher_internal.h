/*
 * Shared by the dispatcher's thread (dispatcher.c for requests, dispatcher_replicas.c for jobs) and the calls of other
 * threads (dispatcher_calls.c).
 */
#ifndef TRM_LAUNCHER_SERVE_REPLICAS_DISPATCHER_INTERNAL_H
#define TRM_LAUNCHER_SERVE_REPLICAS_DISPATCHER_INTERNAL_H

#include <pthread.h>

#include "base/error.h"
#include "launcher/serve/replicas/adapters.h"
#include "launcher/serve/replicas/dispatcher.h"

#define DISPATCHER_NEVER 1e300

/* Whether the jobs run, or have ended; requests then wait, or are refused. */
typedef enum dispatcher_rest { REST_NONE, REST_UNLOADED, REST_ASLEEP } dispatcher_rest;

/* A job of ranks with a copy of the model. */
typedef struct replica {
    dispatcher *dispatcher;
    int32_t index;
    supervisor supervisor;
    ipc_ready ready; /* the last READY message */
    bool was_ready;
    bool given_up; /* too many consecutive starts failed: others do not wait for it */
    int32_t failed_starts;
    double lost_at;                    /* 0: not lost */
    double next_start;                 /* earliest time of the next start, while lost */
    int32_t n_choices;                 /* submitted to it */
    int64_t prompt_tokens;             /* their prompt_left */
    trm_scheduler_stats engine;        /* of the current job, from 0 after a restart */
    trm_scheduler_stats engine_before; /* counters of earlier jobs */
} replica;

/* A client with live requests. */
typedef struct dispatcher_client {
    uint64_t id;
    int32_t live; /* choices */
    struct dispatcher_client *next;
} dispatcher_client;

struct dispatcher {
    dispatcher_options options;
    pthread_t thread;
    int mailbox, clients; /* an eventfd; an epoll of clients' sockets */
    /* Guarded by the lock: */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    dispatcher_state state;
    completion *inbox;    /* newest first */
    bool stop;            /* the thread must end */
    bool stopped;         /* it has */
    double drain_until;   /* DISPATCHER_NEVER: not draining */
    double kept_open;     /* time of the last check for silent streams */
    bool was_ready;       /* all replicas were ready once */
    dispatcher_rest rest; /* that others ask for */
    bool sleep_refused;
    bool asleep_and_gone; /* asleep, and the jobs have ended */
    bool load_wanted;     /* on demand: although no request waits */
    bool lacks_memory, gives_up;
    double waits_since; /* on demand: arrival of the oldest live request; 0: none is live */
    double used;        /* time of the last request */
    ipc_ready ready;
    metrics published;
    trm_bytes stalls; /* of the last profiled step of a job: ipc_stalls.layers without NUL */
    trm_held_error failure;
    served_adapters adapters;
    /* Owned by the thread: */
    replica *replicas; /* [n_replicas] */
    int32_t n_replicas;
    router router;
    completion *live, *oldest;  /* newest first by next, oldest first by previous */
    dispatcher_client *holders; /* of live requests */
    int32_t n_holders;
    choice **slots;       /* [DISPATCHER_MAX_CHOICES] */
    uint32_t *free_slots; /* [n_free] */
    int32_t n_free;
    uint64_t serial;
    metrics m;
    bool asleep; /* the jobs have ended or are ending, and are not restarted */
    bool ending; /* the jobs are ending for good */
    double ending_since;
    bool has_waiting; /* some choices are not submitted yet */
};

/* Wakes the thread. */
void dispatcher_notify(dispatcher *d);
/* The time of waits for d->changed. */
struct timespec dispatcher_clock_after(double seconds);
/* Answers a request that came after the end. */
void dispatcher_refuse_late(completion *c);

/* In dispatcher.c, for the dispatcher's thread: */
void dispatcher_set_state(dispatcher *d, dispatcher_state state);
/* Answers every live request with 503. */
void dispatcher_fail_all(dispatcher *d, const char *message);
/* Ends the server; trm_last_error has the cause of a failure. */
void dispatcher_end(dispatcher *d, trm_status failure);
/* On demand: the jobs cannot be started, or go on. They end, and requests are answered with the cause in
 * trm_last_error, unless memory is short: the requests then wait for dispatcher_load or dispatcher_give_up. */
void dispatcher_abandon(dispatcher *d, trm_status failure);
/* Redistributes choices that wait at a replica; those that have begun stay. */
void dispatcher_rebalance(dispatcher *d);

/* In dispatcher_replicas.c, for the dispatcher's thread: */
trm_status replicas_start(dispatcher *d);
void replicas_fini(dispatcher *d); /* kills remaining processes */
/* Whether a replica accepts requests now. */
bool replicas_serve(const dispatcher *d);
/* Whether a choice is submitted to any. */
bool replicas_run(const dispatcher *d);
/* The channel for requests; NULL: it accepts none. */
channel *replica_leader(replica *r);
/* Handles messages of jobs (`fn` gets the replica as `user`), restarts lost jobs, falls asleep and wakes up. */
void replicas_tend(dispatcher *d, supervisor_frame_fn fn);
/* Sends buffered frames. */
void replicas_send(dispatcher *d);
/* Asks the jobs to finish; kills those that cannot be asked. */
void replicas_end(dispatcher *d);
/* Whether the jobs have ended. Kills those that exceed the grace time. */
bool replicas_are_gone(dispatcher *d);
/* Publishes counters for other threads. */
void replicas_publish(dispatcher *d);
/* Keeps the waits for weights of a replica, in the form of ipc_stalls. */
void replicas_keep_stalls(dispatcher *d, const char *layers);

#endif
