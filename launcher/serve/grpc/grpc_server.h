/*
 * KServe's GRPCInferenceService and grpc.health.v1.Health over HTTP/2, in clear or with TLS. One thread has the
 * sockets, reads messages and writes replies; requests run on the threads of their networks.
 */
#ifndef TRM_LAUNCHER_SERVE_GRPC_GRPC_SERVER_H
#define TRM_LAUNCHER_SERVE_GRPC_GRPC_SERVER_H

#include "launcher/serve/http/server.h"

typedef struct grpc_options {
    const char *host;
    int32_t port; /* 0: any free port */
    int32_t max_connections;
    size_t max_message;    /* bytes of a request */
    double client_seconds; /* for a request to arrive and a reply to be read; idle connections stay as long */
    struct repository *repository;
    struct shared_regions *regions;        /* NULL: no memory is shared with clients */
    const server *keys;                    /* whose API keys are needed */
    const char *tls_certificate, *tls_key; /* PEM files; NULL: no TLS */
    const char *tls_client_authorities;    /* PEM file; NULL: clients need no certificate */
} grpc_options;

typedef struct grpc_server grpc_server;

/* Starts to listen. Errors: UNSUPPORTED (no libnghttp2; no GnuTLS), INVALID_ARGUMENT (certificate and key), IO. */
trm_status grpc_server_create(const grpc_options *options, grpc_server **result);
int32_t grpc_server_port(const grpc_server *s);
/* Sends the last replies and closes all connections. The networks and the repository must have answered everything.
 * Accepts NULL. */
void grpc_server_destroy(grpc_server *s);

#endif
