/*
 * The beats of a job's ranks: a few counters for each in memory that the ranks and the front end share (memfd), so that
 * a rank tells how it is by a store, and nobody has to read what it said before. The front end makes the memory and
 * hands its descriptor to each rank over the socket.
 */
#ifndef TRM_LAUNCHER_SERVE_IPC_HEARTBEAT_H
#define TRM_LAUNCHER_SERVE_IPC_HEARTBEAT_H

#include <trireme/status.h>

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a rank's steps took, in seconds since its start. */
typedef struct heartbeat_times {
    double step, device; /* in steps, and of that with the device at work */
    double last_step;
    double layer, collective; /* of steps that were looked at: in all layers, in collectives */
    double last_collective;   /* of the last of them */
} heartbeat_times;

/* One rank's, in the shared memory: it alone writes. Two lines of a cache apart, so that ranks do not disturb each
 * other. */
typedef struct heartbeat {
    _Alignas(128)
        atomic_ullong heartbeats; /* of its thread that only beats, several times a second: the process runs */
    atomic_ullong turns;          /* of the thread that makes steps: steps, and looks for one while there is none */
    atomic_ullong steps;          /* of them steps */
    atomic_int busy;              /* there is work, on ranks that follow a step, so `steps` should grow */
    atomic_int thread;            /* the one that beats; 0: has not begun */
    atomic_ullong step, device, last_step, layer, collective, last_collective; /* heartbeat_times in nanoseconds */
} heartbeat;

typedef struct heartbeats {
    int fd;           /* -1: none */
    heartbeat *ranks; /* [n] */
    int32_t n;
} heartbeats;

#define HEARTBEATS_NONE ((heartbeats){.fd = -1})

/* The front end's: all are 0. IO. */
trm_status heartbeats_create(heartbeats *b, int32_t n);
/* A rank's: takes the descriptor over. IO: it is not such memory of n ranks. */
trm_status heartbeats_open(heartbeats *b, int fd, int32_t n);
void heartbeats_close(heartbeats *b);
heartbeat_times heartbeat_get_times(heartbeat *rank);

/* Over a Unix socket. IO; receive waits for at most `seconds`. */
trm_status heartbeats_send(const heartbeats *b, int socket);
trm_status heartbeats_receive(heartbeats *b, int socket, int32_t n, double seconds);

#endif
