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

/* Rank 0 listens at host:port. streams [size][TRM_TCP_STREAMS] get nonblocking sockets, -1 for the rank itself; on
 * failure all are closed and -1. Collective. */
trm_status trm_tcp_connect_all(int32_t rank, int32_t size, const char *host, uint16_t port, double deadline_seconds,
                               int (*streams)[TRM_TCP_STREAMS]);

/* Whether a socket is connected to itself. If nobody listens at an ephemeral port, the system may give that very port
 * to a connecting socket, and the connection succeeds. */
bool trm_tcp_meets_itself(int fd);

#endif
