/*
 * The open connections and until when each may wait for its client: for a request to arrive, for a reply to be read. A
 * thread closes those that take longer, and of a client with too many that wait the longest waiting ones.
 */
#ifndef TRM_LAUNCHER_SERVE_HTTP_CONNECTIONS_H
#define TRM_LAUNCHER_SERVE_HTTP_CONNECTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include <trireme/status.h>

typedef struct connections connections;
typedef struct open_connection open_connection;

/* max_waiting: connections of one client on which no request is complete. */
trm_status connections_create(int32_t max_waiting, connections **result);
/* When no connection is open. Accepts NULL. */
void connections_destroy(connections *all);

/* A connection has opened; the socket stays the caller's. NULL without memory: it is not watched. */
open_connection *connections_add(connections *all, int fd, uint64_t client);
/* Before its socket is closed. Accepts NULL. */
void connections_remove(connections *all, open_connection *one);
/* Waits for a request, for at most `seconds`. Accepts NULL, as the next ones. */
void connections_await_request(connections *all, open_connection *one, double seconds);
/* Waits for its client to send or read more, for at most `seconds`; 0: it waits for nothing. */
void connections_await_client(connections *all, open_connection *one, double seconds);

#endif
