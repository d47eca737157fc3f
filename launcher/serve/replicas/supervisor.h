/*
 * The processes of a job: starts them, checks their heartbeats, notices when a rank dies, stops or hangs, and kills
 * what is left. Everything runs on the dispatcher's thread, which polls the descriptors.
 */
#ifndef TRM_LAUNCHER_SERVE_REPLICAS_SUPERVISOR_H
#define TRM_LAUNCHER_SERVE_REPLICAS_SUPERVISOR_H

#include <sys/types.h>

#include "base/error.h"
#include "base/temporary.h"
#include "launcher/serve/ipc/channel.h"
#include "launcher/serve/ipc/heartbeat.h"

#define SUPERVISOR_MAX_RANKS 1024
#define SUPERVISOR_PATIENCE  10 /* heartbeat timeouts for a rank that waits for a processor, or starts */

typedef struct supervisor_options {
    char *const
        *command; /* NULL-terminated command; gets TRIREME_SERVE_SOCKET and TRIREME_SERVE_STARTING in its environment */
    int32_t ranks;
    int output;               /* of the job; 0: standard error */
    double heartbeat_seconds; /* a rank that is silent for longer is lost; SUPERVISOR_PATIENCE times as long if it is
                                 delayed */
    double step_seconds;      /* a rank whose step, or poll for a step, takes longer is lost */
    double start_seconds;     /* a job that is not ready, and makes no progress for longer, is lost; 0: no limit */
} supervisor_options;

typedef enum job_phase {
    JOB_NONE,    /* no process */
    JOB_LOADING, /* started, not ready yet */
    JOB_READY,
    JOB_ENDING /* told to end, or killed, and not gone yet */
} job_phase;

/* The connection of a rank. */
typedef struct rank_link {
    channel channel;
    int32_t rank; /* -1: no hello yet */
    pid_t pid;    /* the connected process, then as in its hello; 0: unknown */
    int pidfd;    /* -1: none */
    bool leads;   /* rank 0's connection for requests and events, without heartbeats */
    double heard; /* time of its last heartbeat, or of the connection */
    bool busy;
    unsigned long long heartbeats, done; /* last values: heartbeats; steps while there is work, otherwise turns */
    unsigned long long steps;            /* last value */
    double progressed;                   /* when `done` or `busy` changed */
} rank_link;

typedef struct supervisor {
    supervisor_options options;
    char name[64]; /* of the socket, which is no file */
    int listener;
    trm_temporary folder; /* for Open MPI's files of the job; none with one rank */
    pid_t child;
    int child_pidfd;
    job_phase phase;
    double started, ended;       /* when the phase began */
    unsigned long long progress; /* of a job that starts: grows or changes while ranks connect and load */
    double progressed;           /* when it did last */
    rank_link *links;            /* [n_links] */
    int32_t n_links, capacity;
    channel *leader;       /* rank 0's; NULL: none */
    heartbeats heartbeats; /* the job's */
    double checked;
    trm_held_error failure; /* what a rank reported before it left */
    int exit_status;        /* of the child, as from waitpid */
} supervisor;

trm_status supervisor_init(supervisor *s, const supervisor_options *options);
void supervisor_fini(supervisor *s); /* kills remaining processes */
/* Starts the job; `starting` jobs start at this time. */
trm_status supervisor_start(supervisor *s, int32_t starting);

/* Calls fn for every descriptor to poll: for input, and for output if `output`. */
typedef void (*supervisor_watch_fn)(void *user, int fd, bool output);
void supervisor_watch(const supervisor *s, supervisor_watch_fn fn, void *user);

/* Called for every frame of rank 0 except READY and FAILED, which the supervisor handles. */
typedef void (*supervisor_frame_fn)(void *user, const ipc_frame *frame);

/*
 * Handles what has arrived and sends what is buffered. A failure means, once, that the LOADING or READY job is lost,
 * with the cause in trm_last_error. The job is then killed (ENDING); its phase is NONE when its launcher has exited.
 * *became_ready is set once, with *ready, and not if the job is lost.
 */
trm_status supervisor_poll(supervisor *s, supervisor_frame_fn fn, void *user, bool *became_ready, ipc_ready *ready);
/* Kills the job. */
void supervisor_kill(supervisor *s);

double supervisor_clock(void); /* seconds */

#endif
