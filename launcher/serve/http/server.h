/*
 * The HTTP front end: connections, routes, limits, API keys, the access log. It parses and tokenizes on the
 * connections' threads and leaves the rest to the dispatcher.
 */
#ifndef TRM_LAUNCHER_SERVE_HTTP_SERVER_H
#define TRM_LAUNCHER_SERVE_HTTP_SERVER_H

#include <trireme/chat.h>
#include <trireme/model.h>
#include <trireme/tokenizer.h>

#include "launcher/serve/log/log_writer.h"
#include "launcher/serve/replicas/dispatcher.h"
#include "launcher/serve/requests/grammar_cache.h"

#define SERVER_LONGEST_NAME 200

/* The paths that a server answers, and how it writes errors. */
typedef struct route_table route_table;
extern const route_table language_model_routes, network_routes;

/* A language model. Everything belongs to the caller. */
typedef struct served_model {
    const char *name, *folder; /* in the API either names it */
    const trm_model_info *info;
    const trm_tokenizer *tokenizer;
    const trm_chat_template *chat; /* NULL: the model has none */
    grammar_cache *grammars;       /* to check grammars */
    trm_embedding pooling;         /* NONE: no embeddings */
    dispatcher *dispatcher;
} served_model;

typedef struct server_options {
    const route_table *routes;
    const char *host; /* "127.0.0.1", "::", "0.0.0.0", or a host name */
    int32_t port;     /* 0: any free port */
    int32_t threads;  /* of connections; 0: a few */
    int32_t max_connections;
    size_t max_body;            /* maximum bytes of a request */
    double body_seconds;        /* for a request to arrive; also how long idle connections stay open */
    const char *key_file;       /* one API key per line; NULL: no keys needed */
    bool sleeps;                /* clients may use /sleep and /wake_up */
    bool loads;                 /* clients may load and unload adapters */
    const char *const *origins; /* [n_origins] allowed origins of browser pages; "*": any */
    int32_t n_origins;
    const char *const *hosts; /* [n_hosts] names of the server for browsers, if there are no keys; "*": any */
    int32_t n_hosts;
    const char *tls_certificate, *tls_key; /* files; NULL: plain HTTP */
    const char *tls_client_authorities;    /* file; NULL: clients need no certificate */
    log_writer *log;
    bool access_log;
    const served_model *models; /* [n_models]; none for network_routes */
    int32_t n_models;
    bool takes_sampling;            /* requests that do not say how to sample take the model's way */
    struct repository *repository;  /* of network_routes, which use nothing else of a model */
    struct shared_regions *regions; /* of network_routes; NULL: no memory is shared with clients */
} server_options;

typedef struct server server;

/* Starts to listen. Everything that the options point to must outlive the server. */
trm_status server_create(const server_options *options, server **result);
int32_t server_port(const server *s);
/* Opens a socket that listens, does not block and buffers little for clients that do not read. */
trm_status server_open_socket(const char *host, int32_t port, int *result);
bool server_needs_key(const server *s);
/* The number of the API key in the value of an Authorization header, from 1; 0: none. */
size_t server_find_key(const server *s, const char *authorization);
/* Whether it needs no keys and listens at more than the loopback address. */
bool server_is_public(const server *s);
/* Closes every connection. The dispatcher must have answered everything submitted. */
void server_destroy(server *s);

#endif
