/* Connections over libmicrohttpd: request bodies in, replies and streams out. */
#include "launcher/serve/http/server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "launcher/serve/http/server_access.h"
#include "launcher/serve/http/server_framing.h"
#include "launcher/serve/http/server_internal.h"
#include "launcher/serve/network/infer.h"
#include "launcher/serve/network/repository.h"
#include "launcher/serve/tls/tls.h"

#define STREAM_BLOCK         ((size_t)16 << 10)
#define SEND_BUFFER          (128 << 10) /* bytes that the kernel buffers for a client that does not read */
#define SLOWEST_READER       1024.0      /* bytes per second at which a client must read a reply */
#define LAST_REPLIES_SECONDS 2
#define CLIENT_SHARE         4     /* one connection in this many may wait for requests of one client */
#define CLIENT_CONNECTIONS   16    /* which may always have this many */
#define PREFLIGHT_SECONDS    "600" /* how long browsers may cache a preflight reply */
#define SPARE_CONNECTIONS    64    /* connections beyond the limit that still get a 429; more are not accepted */

static void wake_connection(void *connection)
{
    MHD_resume_connection(connection);
}

/* Sets how long this call may wait for its client; 0: it waits for nothing. */
static void await_client(const call *c, double seconds)
{
    connections_await_client(c->server->open, c->place, seconds);
}

/* Replies. */

/* Headers that let a browser pass a reply to a page of another origin
 * (https://fetch.spec.whatwg.org/#http-cors-protocol). Replies set no cookies, so credentials are not allowed; keys are
 * headers, which a page must send itself. */
static void add_origin(const call *c, struct MHD_Response *response)
{
    const server *s = c->server;
    const char *origin = access_origin(c);
    if (s->options.n_origins > 0 && !s->any_origin) {
        MHD_add_response_header(response, MHD_HTTP_HEADER_VARY, MHD_HTTP_HEADER_ORIGIN);
    }
    if (origin == NULL) {
        return;
    }
    MHD_add_response_header(response, MHD_HTTP_HEADER_ACCESS_CONTROL_ALLOW_ORIGIN, s->any_origin ? "*" : origin);
    if (!c->preflight || c->route == NULL) {
        MHD_add_response_header(response, MHD_HTTP_HEADER_ACCESS_CONTROL_EXPOSE_HEADERS,
                                "X-Request-Id, Retry-After, traceparent");
        return;
    }
    const char *headers =
        MHD_lookup_connection_value(c->connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_ACCESS_CONTROL_REQUEST_HEADERS);
    if (headers != NULL) {
        MHD_add_response_header(response, MHD_HTTP_HEADER_ACCESS_CONTROL_ALLOW_HEADERS, headers);
    }
    MHD_add_response_header(response, MHD_HTTP_HEADER_ACCESS_CONTROL_ALLOW_METHODS, c->route->method);
    MHD_add_response_header(response, MHD_HTTP_HEADER_ACCESS_CONTROL_MAX_AGE, PREFLIGHT_SECONDS);
}

static void add_headers(call *c, struct MHD_Response *response, int status, int retry_after)
{
    add_origin(c, response);
    char text[16];
    MHD_add_response_header(response, "X-Request-Id", c->exchange->id);
    if (c->exchange->trace.parent[0] != '\0') {
        MHD_add_response_header(response, "traceparent", c->exchange->trace.parent);
    }
    if (retry_after > 0) {
        snprintf(text, sizeof(text), "%d", retry_after);
        MHD_add_response_header(response, MHD_HTTP_HEADER_RETRY_AFTER, text);
    }
    if (status == 401) {
        MHD_add_response_header(response, MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer");
    }
    if (c->closes) {
        MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close");
    }
    if (c->allowed != NULL) {
        MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW,
                                strcmp(c->allowed, "GET") == 0 ? "GET, HEAD" : c->allowed);
    }
}

static enum MHD_Result queue(call *c, int status, struct MHD_Response *response)
{
    if (response == NULL) {
        return MHD_NO;
    }
    await_client(c, c->server->options.body_seconds + (double)c->sent / SLOWEST_READER);
    c->status = status;
    c->answered = true;
    enum MHD_Result result = MHD_queue_response(c->connection, (unsigned)status, response);
    MHD_destroy_response(response);
    return result;
}

enum MHD_Result call_reply(call *c, int status, const char *type, const char *body, size_t size)
{
    struct MHD_Response *response =
        MHD_create_response_from_buffer(size, (void *)(uintptr_t)body, MHD_RESPMEM_MUST_COPY);
    if (response != NULL) {
        MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
        add_headers(c, response, status, status == 429 || status == 503 ? 1 : 0);
    }
    c->sent = size;
    return queue(c, status, response);
}

enum MHD_Result call_reply_json(call *c, int status, json_text *json)
{
    enum MHD_Result result =
        json->status != TRM_OK ? MHD_NO : call_reply(c, status, "application/json", json->bytes.data, json->bytes.size);
    json_text_fini(json);
    return result;
}

enum MHD_Result call_reply_tensors(call *c, trm_bytes *reply, size_t json_size)
{
    char text[24];
    struct MHD_Response *response = MHD_create_response_from_buffer(reply->size, reply->data, MHD_RESPMEM_MUST_FREE);
    const bool mixed = json_size < reply->size;
    c->sent = reply->size;
    if (response == NULL) {
        trm_bytes_fini(reply);
        return MHD_NO;
    }
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE,
                            mixed ? "application/octet-stream" : "application/json");
    snprintf(text, sizeof(text), "%zu", json_size);
    MHD_add_response_header(response, "Inference-Header-Content-Length", text);
    add_headers(c, response, 200, 0);
    return queue(c, 200, response);
}

enum MHD_Result call_reply_error(call *c, const api_error *error)
{
    json_text json = {0};
    c->server->options.routes->write_error(error, &json);
    return call_reply_json(c, error->status, &json);
}

enum MHD_Result call_reply_failure(call *c, trm_status status, const char *param)
{
    api_error error;
    api_fail_status(&error, status, param);
    return call_reply_error(c, &error);
}

enum MHD_Result call_wait(call *c)
{
    pthread_mutex_lock(&c->exchange->lock);
    c->exchange->sleeping = true;
    MHD_suspend_connection(c->connection);
    pthread_mutex_unlock(&c->exchange->lock);
    return MHD_YES;
}

/* Takes bytes of a stream, or suspends the connection until there are some. */
static ssize_t read_stream(void *user, uint64_t position, char *to, size_t most)
{
    call *c = user;
    http_exchange *x = c->exchange;
    (void)position;
    pthread_mutex_lock(&x->lock);
    size_t have = x->out.size - x->taken;
    ssize_t result = 0;
    if (have > 0) {
        size_t size = have < most ? have : most;
        memcpy(to, x->out.data + x->taken, size);
        x->taken += size;
        if (x->taken == x->out.size) {
            x->out.size = x->taken = 0;
        }
        c->sent += size;
        result = (ssize_t)size;
        await_client(c, c->server->options.body_seconds); /* to read it */
    } else if (x->ended) {
        await_client(c, c->server->options.body_seconds);
        result = x->broken ? MHD_CONTENT_READER_END_WITH_ERROR : MHD_CONTENT_READER_END_OF_STREAM;
    } else {
        await_client(c, 0);
        x->sleeping = true;
        MHD_suspend_connection(c->connection);
    }
    pthread_mutex_unlock(&x->lock);
    return result;
}

/* Sends the dispatcher's reply if it has come, otherwise suspends the connection. */
static enum MHD_Result answer_exchange(call *c)
{
    http_exchange *x = c->exchange;
    pthread_mutex_lock(&x->lock);
    if (x->status == 0) {
        x->sleeping = true;
        MHD_suspend_connection(c->connection);
        pthread_mutex_unlock(&x->lock);
        return MHD_YES;
    }
    int status = x->status, retry_after = x->retry_after;
    struct MHD_Response *response;
    if (x->streams) {
        response = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, STREAM_BLOCK, read_stream, c, NULL);
    } else {
        response = MHD_create_response_from_buffer(x->out.size, x->out.data, MHD_RESPMEM_MUST_COPY);
        c->sent = x->out.size;
    }
    bool streams = x->streams, broken = x->broken && !x->streams;
    pthread_mutex_unlock(&x->lock);
    if (broken) { /* nobody reads it */
        if (response != NULL) {
            MHD_destroy_response(response);
        }
        c->status = status;
        return MHD_NO;
    }
    if (response != NULL) {
        MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE,
                                streams ? "text/event-stream; charset=utf-8" : "application/json");
        if (streams) {
            MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-cache");
            MHD_add_response_header(response, "X-Accel-Buffering", "no");
        }
        add_headers(c, response, status, retry_after);
    }
    return queue(c, status, response);
}

/* The address of the client; NULL: unknown. */
static const struct sockaddr *address_of(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    return info != NULL ? info->client_addr : NULL;
}

/* Identifies a client by its address. A host may use any address of its 64-bit IPv6 network, so only the network
 * counts. */
static uint64_t client_at(const struct sockaddr *from)
{
    if (from->sa_family == AF_INET) {
        const struct in_addr *address = &((const struct sockaddr_in *)(const void *)from)->sin_addr;
        return trm_hash_bytes(TRM_HASH_START, address, sizeof(*address));
    }
    const struct in6_addr *address = &((const struct sockaddr_in6 *)(const void *)from)->sin6_addr;
    bool mapped = IN6_IS_ADDR_V4MAPPED(address);
    return trm_hash_bytes(TRM_HASH_START, address->s6_addr + (mapped ? 12 : 0), mapped ? 4 : 8);
}

/* Identifies the client by its key, or without keys by its address. */
static uint64_t client_of(const call *c)
{
    const struct sockaddr *from = c->server->n_keys == 0 ? address_of(c->connection) : NULL;
    return from != NULL ? client_at(from) : c->key;
}

enum MHD_Result call_submit(call *c, api_request *request, trm_tokens *prompts)
{
    completion *submitted;
    const char *name = request->adapter > 0 ? request->model : c->model->name;
    trm_status status = completion_create(c->exchange, request, prompts, c->model->tokenizer, name, &submitted);
    if (status != TRM_OK) {
        api_error error;
        api_fail_status(&error, status, NULL);
        return call_reply_error(c, &error);
    }
    submitted->client = client_of(c);
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(c->connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    if (info != NULL) {
        c->fd = info->connect_fd;
        c->watched = true;
        dispatcher_watch(c->model->dispatcher, c->exchange, c->fd);
    }
    dispatcher_submit(c->model->dispatcher, submitted);
    return answer_exchange(c);
}

/* Calls. */

/* Uses the client's request id if it is valid, otherwise makes one. */
static void choose_id(call *c)
{
    const char *given = MHD_lookup_connection_value(c->connection, MHD_HEADER_KIND, "X-Request-Id");
    static const char decent[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    char *id = c->exchange->id;
    if (given != NULL && *given != '\0' && strlen(given) <= 64 && strspn(given, decent) == strlen(given)) {
        strcpy(id, given);
    } else {
        snprintf(id, sizeof(c->exchange->id), "%016llx%08llx", (unsigned long long)c->server->instance,
                 (unsigned long long)atomic_fetch_add(&c->server->serial, 1));
    }
}

static enum MHD_Result take_trace_header(void *user, enum MHD_ValueKind kind, const char *key, size_t key_size,
                                         const char *value, size_t size)
{
    (void)kind;
    trace_context_take(user, key, key_size, value != NULL ? value : "", size);
    return MHD_YES;
}

/* Reads the trace context, which may have several headers. */
static void read_trace(const call *c)
{
    trace_context *trace = &c->exchange->trace;
    MHD_get_connection_values_n(c->connection, MHD_HEADER_KIND, take_trace_header, trace);
    trace_context_check(trace);
}

static open_connection *place_of(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info != NULL ? info->socket_context : NULL;
}

/* The request line has arrived; the headers follow. */
static void *begin_call(void *user, const char *target, struct MHD_Connection *connection)
{
    call *c = calloc(1, sizeof(*c));
    if (c == NULL || http_exchange_create(wake_connection, connection, &c->exchange) != TRM_OK) {
        free(c);
        return NULL;
    }
    c->server = user;
    c->connection = connection;
    c->fd = -1;
    c->began = supervisor_clock();
    c->place = place_of(connection);
    connections_await_request(c->server->open, c->place, c->server->options.body_seconds);
    c->target = target;
    snprintf(c->path, sizeof(c->path), "%s", target != NULL ? target : ""); /* until it is decoded */
    c->clean = target != NULL && framing_target_is_clean(target);
    return c;
}

/* Checks a request before its body is read. Returns false after an error was replied. */
static bool check_call(call *c, const char *method, const char *version, api_error *error)
{
    server *s = c->server;
    bool is_head = strcmp(c->method, "HEAD") == 0; /* the reply to GET, sent without its body */
    bool chunked;
    if (!framing_check(c->connection, method, c->target, c->clean, version, &chunked, error)) {
        c->closes = true;
        return false;
    }
    const union MHD_ConnectionInfo *tls =
        s->authorities != NULL ? MHD_get_connection_info(c->connection, MHD_CONNECTION_INFO_GNUTLS_SESSION) : NULL;
    if (s->authorities != NULL && !tls_client_is_trusted(tls != NULL ? tls->tls_session : NULL)) {
        c->closes = true;
        return api_fail(error, 403, NULL, "invalid_certificate",
                        "the client has no certificate that the server trusts (--tls-client-authorities)");
    }
    c->closes = chunked; /* whoever reads the chunks in another way finds no request after them */
    c->preflight = strcmp(c->method, "OPTIONS") == 0 && access_origin(c) != NULL;
    const route *known = NULL;
    const route_table *routes = s->options.routes;
    for (size_t i = 0; i < routes->n; i++) {
        const char *path = routes->rows[i].path;
        size_t length = strlen(path);
        bool under = length > 1 && path[length - 1] == '/'; /* and a name */
        if (under ? strncmp(path, c->path, length) == 0 : strcmp(path, c->path) == 0) {
            known = &routes->rows[i];
            if (c->preflight || strcmp(known->method, is_head ? "GET" : c->method) == 0) {
                c->route = known;
            }
        }
    }
    if (c->route == NULL) {
        c->allowed = known == NULL ? NULL : known->method;
        return known != NULL ? api_fail(error, 405, NULL, "method_not_allowed", "method %s is not allowed for %s",
                                        c->method, c->path)
                             : api_fail(error, 404, NULL, "not_found", "there is no path %s", c->path);
    }
    if (c->preflight) { /* no key needed: browsers send preflights without one */
        return true;
    }
    if (!c->route->open && !access_check_page(c, error)) {
        return false;
    }
    c->key = s->n_keys > 0 ? access_key(c) : 0;
    if (s->n_keys > 0 && !c->route->open && c->key == 0) {
        return api_fail(error, 401, NULL, "invalid_api_key",
                        "the request has no valid API key (Authorization: Bearer KEY)");
    }
    if (atomic_load(&s->connections) > s->options.max_connections && !c->route->open) {
        return api_fail(error, 429, NULL, "too_many_connections",
                        "the server is at its limit of %d connections, try again later", s->options.max_connections);
    }
    const char *length = MHD_lookup_connection_value(c->connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_LENGTH);
    if (length != NULL && strtoull(length, NULL, 10) > s->options.max_body) {
        return api_fail(error, 413, NULL, "request_too_large", "the request has %s bytes, expected at most %zu", length,
                        s->options.max_body);
    }
    const char *coding = MHD_lookup_connection_value(c->connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_ENCODING);
    if (coding != NULL && strcasecmp(coding, "identity") != 0) {
        return api_fail(error, 415, NULL, "unsupported_encoding", "the body has Content-Encoding %.32s, expected none",
                        coding);
    }
    return true;
}

static enum MHD_Result take_body(call *c, const char *data, size_t *size)
{
    server *s = c->server;
    double seconds = supervisor_clock() - c->began;
    /* A reply is impossible in the middle of a body: a late or too large body is read on for a while. */
    c->too_late = c->too_late || seconds > s->options.body_seconds;
    c->too_large = c->too_large || c->body.size + *size > s->options.max_body;
    if (!c->too_late && !c->too_large && !c->answered && trm_bytes_append(&c->body, data, *size) != TRM_OK) {
        return MHD_NO;
    }
    c->read += *size;
    *size = 0;
    return seconds > 2 * s->options.body_seconds || c->read > 2 * s->options.max_body ? MHD_NO : MHD_YES;
}

static enum MHD_Result take_call(void *user, struct MHD_Connection *connection, const char *url, const char *method,
                                 const char *version, const char *data, size_t *size, void **state)
{
    server *s = user;
    call *c = *state;
    api_error error;
    (void)connection;
    if (c == NULL) {
        return MHD_NO;
    }
    if (!c->heard) {
        c->heard = true;
        atomic_fetch_add(&s->calls, 1);
        snprintf(c->method, sizeof(c->method), "%s", method);
        snprintf(c->path, sizeof(c->path), "%s", url);
        choose_id(c);
        read_trace(c);
        await_client(c, 2 * s->options.body_seconds); /* take_body replies before that */
        return check_call(c, method, version, &error) ? MHD_YES : call_reply_error(c, &error);
    }
    if (*size > 0) {
        return take_body(c, data, size);
    }
    if (c->answered) {
        return MHD_YES;
    }
    await_client(c, 0);
    if (c->too_large) {
        api_fail(&error, 413, NULL, "request_too_large", "the request has more than %zu bytes", s->options.max_body);
        return call_reply_error(c, &error);
    }
    if (c->too_late) {
        api_fail(&error, 408, NULL, "timeout", "the request did not arrive within %g s", s->options.body_seconds);
        return call_reply_error(c, &error);
    }
    if (c->watched) { /* woken */
        return answer_exchange(c);
    }
    return c->preflight ? call_reply(c, 204, "text/plain", "", 0) : c->route->answer(c);
}

static void log_call(const call *c, int64_t prompt_tokens, int64_t output_tokens)
{
    json_text json = {0};
    char time_text[40], address[INET6_ADDRSTRLEN] = "";
    struct timespec now;
    struct tm parts;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &parts);
    size_t at = strftime(time_text, sizeof(time_text), "%Y-%m-%dT%H:%M:%S", &parts);
    snprintf(time_text + at, sizeof(time_text) - at, ".%03ldZ", now.tv_nsec / 1000000);
    const struct sockaddr *from = address_of(c->connection);
    if (from != NULL) {
        const void *bytes = from->sa_family == AF_INET6
                                ? (const void *)&((const struct sockaddr_in6 *)(const void *)from)->sin6_addr
                                : (const void *)&((const struct sockaddr_in *)(const void *)from)->sin_addr;
        inet_ntop(from->sa_family, bytes, address, sizeof(address));
    }
    json_object(&json, NULL);
    json_string(&json, "time", time_text);
    json_string(&json, "id", c->exchange->id);
    if (c->exchange->trace.parent[0] != '\0') {
        json_string(&json, "traceparent", c->exchange->trace.parent);
    }
    if (c->exchange->trace.state[0] != '\0') {
        json_string(&json, "tracestate", c->exchange->trace.state);
    }
    json_string(&json, "client", address);
    json_string(&json, "method", c->method);
    json_string(&json, "path", c->path);
    json_integer(&json, "status", c->status);
    json_integer(&json, "bytes", (int64_t)c->sent);
    json_number(&json, "seconds", supervisor_clock() - c->began);
    if (prompt_tokens > 0) {
        json_integer(&json, "prompt_tokens", prompt_tokens);
        json_integer(&json, "completion_tokens", output_tokens);
    }
    json_end_object(&json);
    json_literal(&json, "\n");
    if (json.status == TRM_OK) {
        log_write(c->server->options.log, json.bytes.data, json.bytes.size);
    }
    json_text_fini(&json);
}

static void end_call(void *user, struct MHD_Connection *connection, void **state,
                     enum MHD_RequestTerminationCode reason)
{
    server *s = user;
    call *c = *state;
    if (c == NULL) {
        return;
    }
    http_exchange *x = c->exchange;
    if (c->watched) {
        dispatcher_unwatch(c->model->dispatcher, x, c->fd);
    }
    if (c->grammar != NULL) {
        grammar_cache_release(c->model->grammars, c->grammar);
    }
    pthread_mutex_lock(&x->lock);
    atomic_store(&x->gone, true);
    int64_t prompt_tokens = x->prompt_tokens, output_tokens = x->output_tokens;
    pthread_mutex_unlock(&x->lock);
    if (c->watched) {
        dispatcher_connection_ended(c->model->dispatcher);
    }
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_HTTP_STATUS);
    if (c->status == 0 && info != NULL) {
        c->status = (int)info->http_status; /* libmicrohttpd refused the request */
    }
    if (reason != MHD_REQUEST_TERMINATED_COMPLETED_OK && c->status < 400) {
        c->status = 499; /* the client disconnected; other servers log 499 too */
    }
    atomic_fetch_add(&s->replies[c->status / 100 % 6], 1);
    atomic_fetch_sub(&s->calls, c->heard);
    if (s->options.access_log) {
        log_call(c, prompt_tokens, output_tokens);
    }
    connections_await_request(s->open, c->place, s->options.body_seconds);
    infer_destroy(c->inference);
    repository_job_free(c->job);
    trm_bytes_fini(&c->body);
    http_exchange_release(x);
    free(c);
    *state = NULL;
}

static void count_connection(void *user, struct MHD_Connection *connection, void **state,
                             enum MHD_ConnectionNotificationCode code)
{
    server *s = user;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
        const struct sockaddr *from = address_of(connection);
        *state = info == NULL ? NULL : connections_add(s->open, info->connect_fd, from != NULL ? client_at(from) : 0);
        connections_await_request(s->open, *state, s->options.body_seconds);
        atomic_fetch_add(&s->connections, 1);
    } else {
        connections_remove(s->open, *state);
        *state = NULL;
        atomic_fetch_sub(&s->connections, 1);
    }
}

/* ---- start and end --------------------------------------------------------------------------------------- */

static trm_status read_tls(server *s)
{
    size_t size;
    if (s->options.tls_certificate == NULL && s->options.tls_key == NULL) {
        if (s->options.tls_client_authorities != NULL) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "--tls-client-authorities needs --tls-certificate and --tls-key");
        }
        return TRM_OK;
    }
    if (s->options.tls_certificate == NULL || s->options.tls_key == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "TLS needs --tls-certificate and --tls-key, found only one of them");
    }
    if (MHD_is_feature_supported(MHD_FEATURE_TLS) != MHD_YES) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "TLS is not available: libmicrohttpd was built without it");
    }
    TRM_TRY(trm_file_read_stream(s->options.tls_certificate, (size_t)1 << 20, &s->certificate, &size));
    if (s->options.tls_client_authorities != NULL) {
        TRM_TRY(tls_check_authorities(s->options.tls_client_authorities));
        TRM_TRY(trm_file_read_stream(s->options.tls_client_authorities, (size_t)1 << 20, &s->authorities, &size));
    }
    return trm_file_read_stream(s->options.tls_key, (size_t)1 << 20, &s->key, &size);
}

trm_status server_open_socket(const char *host, int32_t number, int *result)
{
    char port[16];
    struct addrinfo hints = {.ai_flags = AI_PASSIVE, .ai_socktype = SOCK_STREAM}, *found = NULL;
    snprintf(port, sizeof(port), "%d", number);
    int failure = getaddrinfo(host, port, &hints, &found);
    if (failure != 0) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot resolve the address to listen on, %s: %s", host,
                 gai_strerror(failure));
    }
    int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int yes = 1, unread = SEND_BUFFER;
    bool ready = fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) == 0 &&
                 setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &unread, sizeof(unread)) == 0 &&
                 bind(fd, found->ai_addr, found->ai_addrlen) == 0 && listen(fd, 1024) == 0;
    int cause = errno;
    freeaddrinfo(found);
    if (!ready) {
        if (fd >= 0) {
            close(fd);
        }
        TRM_FAIL(TRM_ERROR_IO, "cannot listen on %s port %d: %s", host, number, strerror(cause));
    }
    *result = fd;
    return TRM_OK;
}

static trm_status start_daemon(server *s)
{
    int fd = -1;
    const server_options *o = &s->options;
    TRM_TRY(server_open_socket(o->host, o->port, &fd));
    /* Not epoll: edge-triggered, libmicrohttpd 0.9.75 misses the end of a connection that sent half a request. */
    unsigned flags = MHD_USE_POLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME;
    struct MHD_OptionItem tls[] = {
        {MHD_OPTION_HTTPS_MEM_CERT, 0, s->certificate},
        {MHD_OPTION_HTTPS_MEM_KEY, 0, s->key},
        {s->authorities != NULL ? MHD_OPTION_HTTPS_MEM_TRUST : MHD_OPTION_END, 0, s->authorities},
        {MHD_OPTION_END, 0, NULL}};
    struct MHD_OptionItem none[] = {{MHD_OPTION_END, 0, NULL}};
    if (s->certificate != NULL) {
        flags |= MHD_USE_TLS;
    }
    unsigned threads = o->threads > 0 ? (unsigned)o->threads : 4;
    unsigned most = (unsigned)o->max_connections + SPARE_CONNECTIONS;
    s->daemon = MHD_start_daemon(
        flags, 0, NULL, NULL, take_call, s, MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_NOTIFY_COMPLETED, end_call, s,
        MHD_OPTION_NOTIFY_CONNECTION, count_connection, s, MHD_OPTION_URI_LOG_CALLBACK, begin_call, s,
        MHD_OPTION_CONNECTION_LIMIT, most + threads, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)o->body_seconds,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)32 << 10, MHD_OPTION_THREAD_POOL_SIZE, threads, MHD_OPTION_ARRAY,
        s->certificate != NULL ? tls : none, MHD_OPTION_END);
    if (s->daemon == NULL) {
        close(fd);
        if (s->certificate != NULL) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot serve HTTPS with certificate %s and key %s",
                     o->tls_certificate, o->tls_key);
        }
        TRM_FAIL(TRM_ERROR_INTERNAL, "cannot start the HTTP server on %s port %d", o->host, o->port);
    }
    return TRM_OK;
}

trm_status server_create(const server_options *options, server **result)
{
    server *s = calloc(1, sizeof(*s));
    if (s == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the HTTP server");
    }
    s->options = *options;
    s->started = (int64_t)time(NULL);
    if (getrandom(&s->instance, sizeof(s->instance), GRND_NONBLOCK) != sizeof(s->instance)) {
        s->instance = (uint64_t)s->started;
    }
    trm_status status;
    TRM_TRY_GOTO(status, access_init(s), destroy);
    TRM_TRY_GOTO(status, read_tls(s), destroy);
    int32_t share = options->max_connections / CLIENT_SHARE;
    TRM_TRY_GOTO(status, connections_create(share > CLIENT_CONNECTIONS ? share : CLIENT_CONNECTIONS, &s->open),
                 destroy);
    TRM_TRY_GOTO(status, start_daemon(s), destroy);
    *result = s;
    return TRM_OK;
destroy:
    server_destroy(s);
    return status;
}

/* All zero if unknown. */
static struct sockaddr_storage own_address(const server *s)
{
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(s->daemon, MHD_DAEMON_INFO_LISTEN_FD);
    struct sockaddr_storage address = {0};
    socklen_t size = sizeof(address);
    if (info != NULL) {
        (void)getsockname(info->listen_fd, (struct sockaddr *)&address, &size);
    }
    return address;
}

bool server_needs_key(const server *s)
{
    return s->n_keys > 0;
}

bool server_is_public(const server *s)
{
    struct sockaddr_storage address = own_address(s);
    const struct in6_addr *six = &((struct sockaddr_in6 *)(void *)&address)->sin6_addr;
    const bool mapped = address.ss_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(six);
    const unsigned char first = address.ss_family == AF_INET
                                    ? ((unsigned char *)&((struct sockaddr_in *)(void *)&address)->sin_addr)[0]
                                    : six->s6_addr[12];
    const bool loopback = address.ss_family == AF_INET || mapped ? first == 127 : IN6_IS_ADDR_LOOPBACK(six);
    return s->n_keys == 0 && !loopback;
}

int32_t server_port(const server *s)
{
    struct sockaddr_storage address = own_address(s);
    return ntohs(address.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)(void *)&address)->sin6_port
                                               : ((struct sockaddr_in *)(void *)&address)->sin_port);
}

void server_destroy(server *s)
{
    if (s == NULL) {
        return;
    }
    if (s->daemon != NULL) {
        /* Replies in flight must arrive; connections that sleep cannot be ended. */
        for (int32_t i = 0; i < s->options.n_models; i++) {
            grammar_cache_stop(s->options.models[i].grammars);
        }
        double until = supervisor_clock() + LAST_REPLIES_SECONDS;
        while (atomic_load(&s->calls) > 0 && supervisor_clock() < until) {
            struct timespec pause = {.tv_nsec = 10000000};
            nanosleep(&pause, NULL);
        }
        MHD_stop_daemon(s->daemon);
    }
    connections_destroy(s->open);
    free(s->keys);
    free(s->certificate);
    free(s->key);
    free(s->authorities);
    free(s);
}
