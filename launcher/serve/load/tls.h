/*
 * HTTPS for the load generator: sessions over sockets that do not wait. GnuTLS is found at run time; it is there where
 * libmicrohttpd serves HTTPS with it.
 */
#ifndef TRM_LAUNCHER_SERVE_LOAD_TLS_H
#define TRM_LAUNCHER_SERVE_LOAD_TLS_H

#include <stdbool.h>
#include <stddef.h>

#include <trireme/status.h>

/* Whom all sessions trust. */
typedef struct tls_trust tls_trust;
/* One connection. */
typedef struct tls_session tls_session;

/* Certificates of the PEM file `authorities`; NULL: the system's. Errors: UNSUPPORTED (no GnuTLS), IO (no file),
 * INVALID_ARGUMENT (no certificates in it). */
trm_status tls_trust_create(const char *authorities, tls_trust **trust);
void tls_trust_destroy(tls_trust *trust);

/* A session to `host`, whose name or address the server's certificate must have, over the connecting socket `fd`, which
 * stays the caller's. */
trm_status tls_open(tls_trust *trust, const char *host, int fd, tls_session **session);
void tls_close(tls_session *session);
/* Whether the socket must take bytes, and not have some, before the session goes on; `writes`: the caller has some. */
bool tls_wants_write(const tls_session *session, bool writes);

/* Moves bytes as far as the socket lets; *moved may be 0. *ended: the server has closed. Both begin with the handshake.
 */
trm_status tls_send(tls_session *session, const void *data, size_t size, size_t *moved);
trm_status tls_receive(tls_session *session, void *data, size_t size, size_t *moved, bool *ended);

#endif
