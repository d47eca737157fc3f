/*
 * Shared by the files of the HTTP front end: the server, one call, and replies.
 */
#ifndef TRM_LAUNCHER_SERVE_HTTP_SERVER_INTERNAL_H
#define TRM_LAUNCHER_SERVE_HTTP_SERVER_INTERNAL_H

#include <microhttpd.h>

#include "launcher/serve/http/connections.h"
#include "launcher/serve/http/server.h"

#define SERVER_MAX_KEYS     4096
#define SERVER_LONGEST_HOST 256 /* with its NUL */

struct server {
    server_options options;
    struct MHD_Daemon *daemon;
    char *certificate, *key, *authorities; /* contents of the TLS files */
    char *keys;                            /* contents of the key file */
    const char *key_list[SERVER_MAX_KEYS];
    size_t n_keys;
    char machine[2][SERVER_LONGEST_HOST]; /* names of this machine, maybe empty; only without keys */
    bool any_origin;                      /* the allowed origins include "*" */
    int64_t started;                      /* seconds since 1970 */
    struct connections *open;
    atomic_int connections, calls; /* open connections, and calls being answered */
    atomic_llong replies[6];       /* by hundreds of their status */
    atomic_ullong serial;
    uint64_t instance; /* random; with the serial it makes ids */
};

/* One HTTP request on its connection. */
typedef struct call {
    server *server;
    struct MHD_Connection *connection;
    open_connection *place; /* in the list of open connections */
    const struct route *route;
    const char *allowed; /* the allowed method, if the call has another; otherwise NULL */
    bool preflight;      /* a CORS preflight request */
    size_t key;          /* number of its API key, from 1; 0: none */
    const char *target;  /* the raw request target; valid only until the headers have arrived */
    bool clean;          /* it consists of visible characters */
    bool heard;          /* the headers have arrived */
    bool closes;         /* the connection must close after the reply */
    char method[8];
    char path[512]; /* truncated */
    trm_bytes body;
    bool too_large, too_late, answered;
    size_t read; /* bytes of the body, kept or not */
    double began;
    const served_model *model; /* that the request is for; NULL: none yet */
    http_exchange *exchange;   /* the dispatcher's reply, or only the id of a call answered at once */
    bool watched;
    cached_grammar *grammar;         /* that the request asked for; NULL: none yet */
    struct infer_request *inference; /* of a network; NULL: none */
    struct repository_job *job;      /* a load or unload; NULL: none */
    int fd, status;
    size_t sent;
} call;

/* Replies at once. `type` is a content type. */
enum MHD_Result call_reply(call *c, int status, const char *type, const char *body, size_t size);
enum MHD_Result call_reply_json(call *c, int status, json_text *json); /* and frees it */
/* Takes over JSON of json_size bytes with raw elements behind it. */
enum MHD_Result call_reply_tensors(call *c, trm_bytes *reply, size_t json_size);
enum MHD_Result call_reply_error(call *c, const api_error *error);
/* Suspends the connection until http_exchange_wake; the call is then answered anew. */
enum MHD_Result call_wait(call *c);
/* Submits the parsed request to the dispatcher, whose reply is sent when it comes; prompts [n_prompts] are tokens. */
enum MHD_Result call_submit(call *c, api_request *request, trm_tokens *prompts);

/* Replies with a failure in trm_last_error. */
enum MHD_Result call_reply_failure(call *c, trm_status status, const char *param);
/* Parses the body of a small call as a JSON object; NULL after an error was replied. */
trm_json_document *call_parse_body(call *c, enum MHD_Result *result);

typedef enum MHD_Result route_fn(call *c);

typedef struct route {
    const char *method, *path; /* a path that ends in / stands for everything below it */
    route_fn *answer;
    bool open;           /* needs no key */
    const char *summary; /* for /openapi.json */
} route;

struct route_table {
    const route *rows; /* [n]; of rows that match a path the last one counts */
    size_t n;
    void (*write_error)(const api_error *error, json_text *json);
};

#endif
