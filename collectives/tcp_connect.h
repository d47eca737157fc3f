/*
 * Connects every pair of ranks by two streams, starting from a host and a port.
 */
#ifndef TRM_COLLECTIVES_TCP_CONNECT_H
#define TRM_COLLECTIVES_TCP_CONNECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <trireme/status.h>

enum { TRM_TCP_DATA = 0, TRM_TCP_CONTROL, TRM_TCP_STREAMS };

/* The same on every rank. */
typedef struct trm_tcp_options {
    const char *host; /* of rank 0, which listens there */
    uint16_t port;
    const char *secret; /* who does not know it cannot join; NULL: none, rank 0 warns unless the host is a loopback */
    bool several_hosts; /* ranks run on other hosts than rank 0 */
    double deadline_seconds;
} trm_tcp_options;

/* Ranks meet at rank 0's host and port. A connection that is not a rank, or of another job, is refused, and the wait
 * goes on. streams [size][TRM_TCP_STREAMS] get nonblocking sockets, -1 for the rank itself; on failure all are closed
 * and -1. Collective. */
trm_status trm_tcp_connect_all(int32_t rank, int32_t size, const trm_tcp_options *options,
                               int (*streams)[TRM_TCP_STREAMS]);

/* Whether a socket is connected to itself. If nobody listens at an ephemeral port, the system may give that very port
 * to a connecting socket, and the connection succeeds. */
bool trm_tcp_meets_itself(int fd);

#endif
