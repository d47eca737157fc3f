/*
 * The ranks as processes: starts the job, hears their beats, notices when one dies, stops or hangs, and ends what is
 * left of it. Everything happens on the dispatcher's thread, which polls the descriptors given to it.
 */
#ifndef TRM_LAUNCHER_SERVE_REPLICAS_SUPERVISOR_H
#define TRM_LAUNCHER_SERVE_REPLICAS_SUPERVISOR_H

#include <sys/types.h>

#include "launcher/serve/ipc/channel.h"
#include "launcher/serve/ipc/heartbeat.h"

#define SUPERVISOR_MOST_RANKS 1024
#define SUPERVISOR_PATIENCE   10 /* beat timeouts of silence while a rank waits for a processor, or starts */

typedef struct supervisor_options {
    char *const *command; /* NULL-terminated: what starts the job; gets TRIREME_SERVE_SOCKET and TRIREME_SERVE_STARTING
                             in its environment */
    int32_t ranks;
    double
        heartbeat_seconds; /* a rank that is silent for longer has stopped, SUPERVISOR_PATIENCE times it if held up */
    double step_seconds;   /* a step that takes longer hangs, and a rank that looks for none for longer */
} supervisor_options;

typedef enum job_phase {
    JOB_NONE,    /* no process */
    JOB_LOADING, /* started, not ready yet */
    JOB_READY,
    JOB_ENDING /* told to end, or killed, and not gone yet */
} job_phase;

/* A rank's connection, from its hello on. */
typedef struct rank_link {
    channel channel;
    int32_t rank; /* -1: no hello yet */
    pid_t pid;    /* who connected, then as the hello has it; 0: unknown */
    int pidfd;    /* -1: none */
    bool leads;   /* rank 0's connection for requests and events, which does not beat */
    double heard; /* when it beat last, or connected */
    bool busy;
    unsigned long long heartbeats, done; /* as last seen: beats; steps while there is work, else turns */
    unsigned long long steps;            /* as last seen, busy or not */
    double progressed;                   /* when `done` or `busy` changed */
} rank_link;

typedef struct supervisor {
    supervisor_options options;
    char folder[64], path[96]; /* of the socket */
    int listener;
    pid_t child;
    int child_pidfd;
    job_phase phase;
    double started, ended; /* when the phase began */
    rank_link *links;      /* [n_links] */
    int32_t n_links, capacity;
    channel *leader;       /* rank 0's; NULL: none */
    heartbeats heartbeats; /* the job's */
    double checked;
    ipc_failure failure; /* what a rank said before it left; cause is failure_text */
    char failure_text[512];
    int exit_status; /* of the child, as waitpid gives it */
} supervisor;

trm_status supervisor_init(supervisor *s, const supervisor_options *options);
void supervisor_fini(supervisor *s); /* kills what is left */
/* As one of `starting` jobs that start at this time. */
trm_status supervisor_start(supervisor *s, int32_t starting);

/* Called with every descriptor to watch: for input, and for output where `output`. */
typedef void (*supervisor_watch_fn)(void *user, int fd, bool output);
void supervisor_watch(const supervisor *s, supervisor_watch_fn fn, void *user);

/* Called for every frame of rank 0 but READY and FAILED, which the supervisor reads itself. */
typedef void (*supervisor_frame_fn)(void *user, const ipc_frame *frame);

/*
 * Takes what has arrived and sends what waits. Another status than OK says, once, that the job of phases LOADING or
 * READY is lost, with the cause in the error record; it is then killed (ENDING), and its phase is NONE when its
 * launcher is gone. *became_ready is set once, with *ready, and not where the job is lost.
 */
trm_status supervisor_poll(supervisor *s, supervisor_frame_fn fn, void *user, bool *became_ready, ipc_ready *ready);
/* Kills the job. */
void supervisor_kill(supervisor *s);

double supervisor_clock(void); /* seconds */

#endif
