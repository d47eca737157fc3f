/*
 * How ranks that have only a host and a port in common come to be connected, every pair by two streams.
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

/* Whether a socket is connected to itself. While nobody listens at a port that the system also gives out by itself, an
 * attempt to connect to it is given that very port now and then, and succeeds. */
bool trm_tcp_meets_itself(int fd);

#endif
