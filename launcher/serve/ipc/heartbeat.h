/*
 * Heartbeats of a job's ranks: counters of each rank in memory that the ranks and the front end share (memfd). A rank
 * reports its state by a store; no reader has to keep up. The front end creates the memory and sends its descriptor to
 * each rank over the socket.
 */
#ifndef TRM_LAUNCHER_SERVE_IPC_HEARTBEAT_H
#define TRM_LAUNCHER_SERVE_IPC_HEARTBEAT_H

#include <trireme/status.h>

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Times of a rank's steps, in seconds since its start. */
typedef struct heartbeat_times {
    double step, device; /* in steps; of that, with the device at work */
    double last_step;
    double layer, collective; /* of profiled steps: in all layers, in collectives */
    double last_collective;   /* of the last of them */
} heartbeat_times;

/* Counters of one rank, which alone writes them. Two cache lines apart, so that ranks do not disturb each other. */
typedef struct heartbeat {
    _Alignas(128) atomic_ullong heartbeats; /* counts the heartbeat thread, several times a second: the process runs */
    atomic_ullong turns;                    /* counts steps of the step thread, and its polls while it is idle */
    atomic_ullong steps;                    /* steps among them */
    atomic_int busy;                        /* there is work on ranks that follow, so `steps` should grow */
    atomic_int thread;                      /* the heartbeat thread; 0: not started */
    atomic_ullong loaded;                   /* bytes of weights, while they load */
    atomic_ullong step, device, last_step, layer, collective, last_collective; /* heartbeat_times in nanoseconds */
} heartbeat;

typedef struct heartbeats {
    int fd;           /* -1: none */
    heartbeat *ranks; /* [n] */
    int32_t n;
} heartbeats;

#define HEARTBEATS_NONE ((heartbeats){.fd = -1})

/* For the front end: creates the memory, all zero. IO. */
trm_status heartbeats_create(heartbeats *b, int32_t n);
/* For a rank: takes ownership of the descriptor. IO: it is not heartbeat memory of n ranks. */
trm_status heartbeats_open(heartbeats *b, int fd, int32_t n);
void heartbeats_close(heartbeats *b);
heartbeat_times heartbeat_get_times(heartbeat *rank);

/* Transfer over a Unix socket. IO; receive waits for at most `seconds`. */
trm_status heartbeats_send(const heartbeats *b, int socket);
trm_status heartbeats_receive(heartbeats *b, int socket, int32_t n, double seconds);

#endif
