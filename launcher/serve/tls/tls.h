/*
 * TLS sessions over non-blocking sockets: of the load generator, and of the gRPC server's connections. GnuTLS is loaded
 * at run time; it is present wherever libmicrohttpd serves HTTPS.
 */
#ifndef TRM_LAUNCHER_SERVE_TLS_TLS_H
#define TRM_LAUNCHER_SERVE_TLS_TLS_H

#include <stdbool.h>
#include <stddef.h>

#include <trireme/status.h>

/* Credentials of all sessions: whom a client trusts, or who a server is. */
typedef struct tls_trust tls_trust;
/* One connection. */
typedef struct tls_session tls_session;

/* Loads trusted certificates from the PEM file `authorities`; NULL: the system's. Errors: UNSUPPORTED (no GnuTLS), IO
 * (no file), INVALID_ARGUMENT (no certificates in it). */
trm_status tls_trust_create(const char *authorities, tls_trust **trust);
/* Loads a server's certificate chain and private key, PEM files. Clients must have certificates that one of
 * `authorities` has signed; NULL: they need none. Errors: as above, INVALID_ARGUMENT also for a key that does not fit.
 */
trm_status tls_identity_create(const char *certificate, const char *key, const char *authorities, tls_trust **identity);
/* Whether the file has authorities, with the errors of tls_trust_create. */
trm_status tls_check_authorities(const char *authorities);
/* Whether the client of a session of GnuTLS that a library has (gnutls_session_t) has a certificate that it trusts. */
bool tls_client_is_trusted(void *session);
void tls_trust_destroy(tls_trust *trust); /* of both; accepts NULL */

/* A session with `host`, whose name or address the server's certificate must have, over the connecting socket `fd`,
 * which the caller owns. */
trm_status tls_open(tls_trust *trust, const char *host, int fd, tls_session **session);
/* A session of a server with the client at the other end of `fd`; `protocol` is what follows, such as "h2" (ALPN). */
trm_status tls_accept(tls_trust *identity, int fd, const char *protocol, tls_session **session);
void tls_close(tls_session *session); /* accepts NULL */
/* Whether to poll the socket for output rather than input before the session can continue; `writes`: the caller has
 * bytes to send. */
bool tls_wants_write(const tls_session *session, bool writes);

/* Send and receive as much as the socket allows; *moved may be 0. *ended: the other end has closed. Both begin with the
 * handshake. */
trm_status tls_send(tls_session *session, const void *data, size_t size, size_t *moved);
trm_status tls_receive(tls_session *session, void *data, size_t size, size_t *moved, bool *ended);

#endif
