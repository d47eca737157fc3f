/* Sends requests and times their streams, all connections in one poll. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/json.h"
#include "launcher/serve/json/json_text.h"
#include "launcher/serve/load/load.h"
#include "launcher/serve/tls/tls.h"

#define LONGEST_REPLY ((size_t)64 << 20)
#define IDLE_SECONDS  300.0 /* a stream silent for this long has failed */

/* One connection and its request. */
typedef struct stream {
    int fd;           /* -1: free */
    tls_session *tls; /* NULL: plain HTTP */
    int32_t request;
    trm_bytes out, in;
    size_t sent, parsed; /* length of the headers in `in` */
    bool connected, has_head, chunked;
    bool is_whole; /* the body stays in `in`, with chunk framing */
    int status;
    double heard;
    double last; /* time of the last text */
    trm_bytes line;
    size_t chunk_left;
} stream;

typedef struct loader {
    const load_options *options;
    load_report *report;
    char host[256], port[16], base[256];
    tls_trust *trust;                   /* of https; otherwise NULL */
    struct addrinfo *address, *reached; /* all addresses of the host; the one on which the server listens */
    int64_t longest;                    /* context of the model, as the server reports it; 0: it does not */
    stream *streams;                    /* [concurrency] */
    size_t gap_capacity;
    uint64_t random;
    double began;
    int32_t begun, done;
    double next_at;
} loader;

static double now_of(const loader *l)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9 - l->began;
}

/* splitmix64 */
static uint64_t draw(loader *l)
{
    uint64_t z = l->random += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static double uniform(loader *l)
{
    return ((double)(draw(l) >> 11) + 0.5) * 0x1p-53;
}

static int32_t draw_length(loader *l, double median, double sigma)
{
    double normal = sqrt(-2 * log(uniform(l))) * cos(6.283185307179586 * uniform(l));
    double length = median * exp(sigma * normal);
    return length < 4 ? 4 : length > 2048 ? 2048 : (int32_t)length;
}

/* Finds the address on which the server listens: "localhost" has an IPv6 and an IPv4 address. */
static trm_status reach(loader *l)
{
    struct timeval patience = {.tv_sec = 10};
    int cause = 0;
    for (l->reached = l->address; l->reached != NULL; l->reached = l->reached->ai_next) {
        int fd = socket(l->reached->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        bool connected = fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience)) == 0 &&
                         connect(fd, l->reached->ai_addr, l->reached->ai_addrlen) == 0;
        cause = errno == EINPROGRESS ? ETIMEDOUT : errno;
        if (fd >= 0) {
            close(fd);
        }
        if (connected) {
            return TRM_OK;
        }
    }
    TRM_FAIL(TRM_ERROR_IO, "cannot reach %s port %s: %s", l->host, l->port, strerror(cause));
}

static trm_status split_url(loader *l)
{
    const char *url = l->options->url, *at;
    bool secure = strncmp(url, "https://", 8) == 0;
    if (!secure && strncmp(url, "http://", 7) != 0) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "server is \"%.200s\", expected http://HOST:PORT or https://HOST:PORT",
                 url);
    }
    at = url + (secure ? 8 : 7);
    bool bracket = *at == '[';
    size_t size = bracket ? strcspn(++at, "]") : strcspn(at, ":/");
    if (size == 0 || size >= sizeof(l->host)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "server is \"%.200s\", expected a host name", url);
    }
    memcpy(l->host, at, size);
    at += size + (bracket && at[size] == ']');
    strcpy(l->port, secure ? "443" : "80");
    if (*at == ':') {
        size = strspn(++at, "0123456789");
        if (size == 0 || size >= sizeof(l->port)) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "server is \"%.200s\", expected a number as port", url);
        }
        memcpy(l->port, at, size);
        l->port[size] = '\0';
        if (strtoull(l->port, NULL, 10) < 1 || strtoull(l->port, NULL, 10) > 65535) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "server is \"%.200s\", expected a port from 1 to 65535", url);
        }
        at += size;
    }
    size = strlen(at);
    while (size > 0 && at[size - 1] == '/') {
        size--;
    }
    if (size >= 3 && memcmp(at + size - 3, "/v1", 3) == 0) {
        size -= 3;
    }
    if (size >= sizeof(l->base)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "server is \"%.200s\", the path is too long", url);
    }
    memcpy(l->base, at, size);
    if (secure) {
        TRM_TRY(tls_trust_create(l->options->authorities, &l->trust));
    }
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    int failure = getaddrinfo(l->host, l->port, &hints, &l->address);
    if (failure != 0) {
        TRM_FAIL(TRM_ERROR_IO, "cannot resolve %s: %s", l->host, gai_strerror(failure));
    }
    return reach(l);
}

static void close_stream(stream *s)
{
    tls_close(s->tls);
    s->tls = NULL;
    if (s->fd >= 0) {
        close(s->fd);
    }
    s->fd = -1;
    s->out.size = s->in.size = s->line.size = s->sent = s->parsed = s->chunk_left = 0;
    s->connected = s->has_head = s->chunked = false;
}

static trm_status open_stream(loader *l, stream *s)
{
    int yes = 1;
    s->fd = socket(l->reached->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (s->fd < 0 || (connect(s->fd, l->reached->ai_addr, l->reached->ai_addrlen) != 0 && errno != EINPROGRESS)) {
        int cause = errno;
        close_stream(s);
        TRM_FAIL(TRM_ERROR_IO, "cannot connect to %s port %s: %s", l->host, l->port, strerror(cause));
    }
    setsockopt(s->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
    s->heard = now_of(l);
    trm_status status = l->trust == NULL ? TRM_OK : tls_open(l->trust, l->host, s->fd, &s->tls);
    if (status != TRM_OK) {
        close_stream(s);
    }
    return status;
}

/* Writes headers and body of a request into s->out. */
static trm_status write_request(loader *l, stream *s, const char *method, const char *path, const json_text *body)
{
    char head[1400];
    const char *key = l->options->key;
    size_t size = body == NULL ? 0 : body->bytes.size;
    int written = snprintf(head, sizeof(head),
                           "%s %s%s HTTP/1.1\r\nHost: %s:%s\r\nConnection: close\r\n%s%s%sContent-Type: "
                           "application/json\r\nContent-Length: %zu\r\n\r\n",
                           method, l->base, path, l->host, l->port, key != NULL ? "Authorization: Bearer " : "",
                           key != NULL ? key : "", key != NULL ? "\r\n" : "", size);
    if (written < 0 || (size_t)written >= sizeof(head)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "the API key is too long");
    }
    TRM_TRY(trm_bytes_append(&s->out, head, (size_t)written));
    return size > 0 ? trm_bytes_append(&s->out, body->bytes.data, size) : TRM_OK;
}

static trm_status begin_request(loader *l, stream *s)
{
    const load_options *o = l->options;
    load_result *result = &l->report->results[l->begun];
    json_text body = {0};
    result->prompt_tokens = o->spread ? draw_length(l, 100, 1.25) : o->prompt_tokens;
    result->output_tokens = 0;
    int64_t most = o->spread ? draw_length(l, 140, 0.85) : o->output_tokens;
    if (o->spread && l->longest > 1) {
        most = most < l->longest / 2 ? most : l->longest / 2;
        result->prompt_tokens =
            (int32_t)(result->prompt_tokens < l->longest - most ? result->prompt_tokens : l->longest - most);
    }
    json_object(&body, NULL);
    json_string(&body, "model", l->report->model);
    json_array(&body, "prompt");
    for (int32_t i = 0; i < result->prompt_tokens; i++) {
        json_integer(&body, NULL, 4 + (int64_t)(draw(l) % (uint64_t)(o->vocab - 4)));
    }
    json_end_array(&body);
    json_integer(&body, "max_tokens", most);
    json_number(&body, "temperature", 0);
    json_bool(&body, "ignore_eos", true);
    json_bool(&body, "stream", true);
    json_object(&body, "stream_options");
    json_bool(&body, "include_usage", true);
    json_end_object(&body);
    json_end_object(&body);
    trm_status status = body.status;
    if (status == TRM_OK) {
        status = open_stream(l, s);
    }
    if (status == TRM_OK) {
        status = write_request(l, s, "POST", "/v1/completions", &body);
    }
    json_text_fini(&body);
    TRM_TRY(status);
    s->request = l->begun++;
    s->last = 0;
    result->sent = now_of(l);
    return TRM_OK;
}

static void end_request(loader *l, stream *s, const char *error)
{
    load_result *result = &l->report->results[s->request];
    snprintf(result->error, sizeof(result->error), "%s", error);
    close_stream(s);
    l->done++;
    if (l->options->progress != NULL) {
        l->options->progress(l->options->progress_user, l->done, l->options->requests);
    }
}

static trm_status add_gap(loader *l, double gap)
{
    load_report *r = l->report;
    TRM_TRY(trm_array_grow((void **)&r->gaps, &l->gap_capacity, r->n_gaps + 1, sizeof(double)));
    r->gaps[r->n_gaps++] = gap;
    return TRM_OK;
}

/* A token may be a NUL character, which the parser's strings cannot hold; only its existence counts here. */
static void replace_zeros(char *text, size_t size)
{
    static const char zero[] = "\\u0000";
    const size_t n = sizeof(zero) - 1;
    for (char *at = text; (at = memmem(at, size - (size_t)(at - text), zero, n)) != NULL; at += n) {
        at[n - 1] = '1';
    }
}

/* Handles one event of a stream. */
static trm_status take_event(loader *l, stream *s, char *text, size_t size, double now)
{
    load_result *result = &l->report->results[s->request];
    trm_json_document *document;
    if (size == 6 && memcmp(text, "[DONE]", 6) == 0) {
        result->done = true;
        return TRM_OK;
    }
    replace_zeros(text, size);
    TRM_TRY(trm_json_parse("event", text, size, &document));
    const trm_json *root = trm_json_root(document);
    const trm_json *choice = trm_json_at(trm_json_get(root, "choices"), 0);
    const char *piece = trm_json_string(trm_json_get(choice, "text"));
    const char *failure = trm_json_string(trm_json_get(trm_json_get(root, "error"), "message"));
    int64_t tokens;
    trm_status status = TRM_OK;
    if (failure != NULL) {
        snprintf(result->error, sizeof(result->error), "%s", failure);
    }
    if (trm_json_integer(trm_json_get(trm_json_get(root, "usage"), "completion_tokens"), &tokens)) {
        result->output_tokens = (int32_t)tokens;
    }
    if (trm_json_integer(trm_json_get(trm_json_get(root, "usage"), "prompt_tokens"), &tokens)) {
        result->prompt_tokens = (int32_t)tokens;
    }
    if (piece != NULL && *piece != '\0') {
        if (result->first == 0) {
            result->first = now;
        } else {
            status = add_gap(l, now - s->last);
        }
        s->last = result->last = now;
    }
    trm_json_close(document);
    return status;
}

/* Handles bytes of a stream, without chunk framing. */
static trm_status take_body(loader *l, stream *s, const char *data, size_t size, double now)
{
    for (size_t i = 0; i < size; i++) {
        if (data[i] != '\n') {
            TRM_TRY(trm_bytes_append(&s->line, data + i, 1));
            continue;
        }
        while (s->line.size > 0 && s->line.data[s->line.size - 1] == '\r') {
            s->line.size--;
        }
        size_t mark = s->line.size > 5 && memcmp(s->line.data, "data:", 5) == 0 ? 5 : 0;
        mark += mark > 0 && s->line.data[mark] == ' '; /* some servers leave it out */
        if (mark > 0) {
            TRM_TRY(take_event(l, s, s->line.data + mark, s->line.size - mark, now));
        }
        s->line.size = 0;
    }
    return TRM_OK;
}

static trm_status take_head(stream *s)
{
    if (s->in.size == 0) {
        return TRM_OK;
    }
    char *end = memmem(s->in.data, s->in.size, "\r\n\r\n", 4);
    if (end == NULL) {
        return TRM_OK;
    }
    if (s->in.size < 12 || memcmp(s->in.data, "HTTP/1.", 7) != 0) {
        TRM_FAIL(TRM_ERROR_IO, "the server does not reply in HTTP");
    }
    *end = '\0';
    s->status = atoi(s->in.data + 9);
    s->chunked = strcasestr(s->in.data, "transfer-encoding: chunked") != NULL;
    s->has_head = true;
    s->parsed = (size_t)(end - s->in.data) + 4;
    return TRM_OK;
}

/* Removes the framing of complete chunks. */
static trm_status take_chunks(loader *l, stream *s, double now)
{
    while (s->parsed < s->in.size) {
        size_t have = s->in.size - s->parsed;
        char *data = s->in.data + s->parsed;
        if (s->chunk_left > 0) {
            size_t size = have < s->chunk_left ? have : s->chunk_left;
            TRM_TRY(take_body(l, s, data, size, now));
            s->parsed += size;
            s->chunk_left -= size;
            continue;
        }
        char *end = memmem(data, have, "\r\n", 2);
        if (end == NULL) {
            break;
        }
        if (end != data) { /* not the end of the last chunk */
            s->chunk_left = strtoull(data, NULL, 16);
        }
        s->parsed += (size_t)(end - data) + 2;
    }
    memmove(s->in.data, s->in.data + s->parsed, s->in.size - s->parsed);
    s->in.size -= s->parsed;
    s->parsed = 0;
    return TRM_OK;
}

/* A body that ends with its connection, or after a length. */
static trm_status take_plain(loader *l, stream *s, double now)
{
    if (s->parsed < s->in.size) {
        TRM_TRY(take_body(l, s, s->in.data + s->parsed, s->in.size - s->parsed, now));
    }
    s->in.size = s->parsed = 0;
    return TRM_OK;
}

/* Receives bytes, if there are any. */
static trm_status read_some(stream *s, void *data, size_t size, size_t *got, bool *ended)
{
    if (s->tls != NULL) {
        return tls_receive(s->tls, data, size, got, ended);
    }
    ssize_t result;
    do {
        result = recv(s->fd, data, size, 0);
    } while (result < 0 && errno == EINTR);
    if (result < 0 && errno != EAGAIN && errno != EWOULDBLOCK) {
        TRM_FAIL(TRM_ERROR_IO, "cannot receive: %s", strerror(errno));
    }
    *ended = result == 0;
    *got = result > 0 ? (size_t)result : 0;
    return TRM_OK;
}

/* Reads what has arrived. *ended: the server has closed the connection. */
static trm_status receive(loader *l, stream *s, bool *ended)
{
    double now = now_of(l);
    for (;;) {
        size_t got;
        TRM_TRY(trm_bytes_reserve(&s->in, 65536));
        TRM_TRY(read_some(s, s->in.data + s->in.size, 65536, &got, ended));
        if (got == 0) {
            break;
        }
        s->in.size += got;
        s->heard = now;
        if (s->in.size > LONGEST_REPLY) {
            TRM_FAIL(TRM_ERROR_IO, "the reply is longer than %zu bytes", LONGEST_REPLY);
        }
    }
    if (!s->has_head) {
        TRM_TRY(take_head(s));
    }
    if (!s->has_head || s->status != 200 || s->is_whole) {
        return TRM_OK;
    }
    return s->chunked ? take_chunks(l, s, now) : take_plain(l, s, now);
}

/* Sends as much as possible; nothing before the connection is established. */
static trm_status write_some(stream *s, const void *data, size_t size, size_t *sent)
{
    if (s->tls != NULL) {
        return tls_send(s->tls, data, size, sent);
    }
    ssize_t result;
    do {
        result = send(s->fd, data, size, MSG_NOSIGNAL);
    } while (result < 0 && errno == EINTR);
    if (result < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != ENOTCONN) {
        TRM_FAIL(TRM_ERROR_IO, "cannot send: %s", strerror(errno));
    }
    *sent = result > 0 ? (size_t)result : 0;
    return TRM_OK;
}

static trm_status transmit(stream *s)
{
    size_t sent = 1;
    while (s->sent < s->out.size && sent > 0) {
        TRM_TRY(write_some(s, s->out.data + s->sent, s->out.size - s->sent, &sent));
        s->sent += sent;
    }
    return TRM_OK;
}

/* The events to poll for. */
static short wanted(const stream *s)
{
    bool writes = s->sent < s->out.size;
    writes = s->tls != NULL ? tls_wants_write(s->tls, writes) : writes;
    return (short)(POLLIN | (writes ? POLLOUT : 0));
}

/* The JSON object of a complete body, or NULL. */
static trm_json_document *open_body(const stream *s)
{
    trm_json_document *document = NULL;
    const char *start = s->in.size > s->parsed ? memchr(s->in.data + s->parsed, '{', s->in.size - s->parsed) : NULL;
    const char *end = start == NULL ? NULL : memrchr(start, '}', s->in.size - (size_t)(start - s->in.data));
    return end != NULL && trm_json_parse("reply", start, (size_t)(end - start) + 1, &document) == TRM_OK ? document
                                                                                                         : NULL;
}

/* Why the server did not answer with a stream. */
static void explain(const stream *s, char *error, size_t size)
{
    trm_json_document *document = open_body(s);
    const trm_json *found = document == NULL ? NULL : trm_json_get(trm_json_root(document), "error");
    const char *cause = trm_json_string(trm_json_get(found, "message"));
    snprintf(error, size, "status %d%s%s", s->status, cause == NULL ? "" : ": ", cause == NULL ? "" : cause);
    trm_json_close(document);
}

/* Handles input of a connection and ends its request when it is answered or has failed. */
static void tend(loader *l, stream *s, short events)
{
    bool ended = false;
    trm_status status = transmit(s);
    if (status == TRM_OK && (events & (POLLIN | POLLHUP | POLLERR)) != 0) {
        status = receive(l, s, &ended);
    }
    load_result *result = &l->report->results[s->request];
    char error[160] = "";
    if (status != TRM_OK) {
        snprintf(error, sizeof(error), "%s", trm_last_error());
    } else if (now_of(l) - s->heard > IDLE_SECONDS) {
        snprintf(error, sizeof(error), "no data for %g s", IDLE_SECONDS);
    } else if (ended && !result->done && s->has_head && s->status != 200) {
        explain(s, error, sizeof(error));
    } else if (ended && !result->done) {
        snprintf(error, sizeof(error), "the stream was cut (status %d)", s->status);
    } else if (!ended && !result->done) {
        return;
    } else {
        snprintf(error, sizeof(error), "%s", result->error);
    }
    end_request(l, s, error);
}

/* Asks for the name of the model and its context. */
static trm_status find_model(loader *l)
{
    stream s = {.fd = -1, .is_whole = true};
    bool ended = false;
    if (l->options->model != NULL) {
        snprintf(l->report->model, sizeof(l->report->model), "%s", l->options->model);
        return TRM_OK;
    }
    trm_status status = open_stream(l, &s);
    if (status == TRM_OK) {
        status = write_request(l, &s, "GET", "/v1/models", NULL);
    }
    while (status == TRM_OK && !ended) {
        struct pollfd entry = {.fd = s.fd, .events = wanted(&s)};
        if (poll(&entry, 1, 10000) <= 0) {
            status = trm_fail(TRM_ERROR_IO, "%s port %s does not answer", l->host, l->port);
            break;
        }
        status = transmit(&s);
        if (status == TRM_OK && (entry.revents & (POLLIN | POLLHUP | POLLERR)) != 0) {
            status = receive(l, &s, &ended);
        }
    }
    trm_json_document *document = status == TRM_OK ? open_body(&s) : NULL;
    const trm_json *first = document == NULL ? NULL : trm_json_at(trm_json_get(trm_json_root(document), "data"), 0);
    const char *name = trm_json_string(trm_json_get(first, "id"));
    if (status == TRM_OK && name == NULL) {
        status = trm_fail(TRM_ERROR_IO, "%s lists no model (status %d)", l->options->url, s.status);
    }
    if (status == TRM_OK) {
        snprintf(l->report->model, sizeof(l->report->model), "%s", name);
        trm_json_integer(trm_json_get(first, "max_model_len"), &l->longest);
    }
    trm_json_close(document);
    close_stream(&s);
    trm_bytes_fini(&s.in);
    trm_bytes_fini(&s.out);
    return status;
}

/* Starts due requests on free connections. */
static void begin_due(loader *l)
{
    const load_options *o = l->options;
    for (int32_t i = 0; i < o->concurrency && l->begun < o->requests; i++) {
        stream *s = &l->streams[i];
        if (s->fd >= 0) {
            continue;
        }
        if (o->rate > 0) {
            if (now_of(l) < l->next_at) {
                return;
            }
            l->next_at += -log(uniform(l)) / o->rate;
        }
        int32_t index = l->begun;
        if (begin_request(l, s) != TRM_OK) {
            s->request = index;
            l->begun = index + 1;
            end_request(l, s, trm_last_error());
        }
    }
}

static trm_status run(loader *l)
{
    const load_options *o = l->options;
    struct pollfd *entries = calloc((size_t)o->concurrency, sizeof(*entries));
    if (entries == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %d connections", o->concurrency);
    }
    while (l->done < o->requests) {
        begin_due(l);
        for (int32_t i = 0; i < o->concurrency; i++) {
            const stream *s = &l->streams[i];
            entries[i] = (struct pollfd){.fd = s->fd, .events = s->fd < 0 ? 0 : wanted(s)};
        }
        double wait = o->rate > 0 && l->begun < o->requests ? l->next_at - now_of(l) : 0.1;
        poll(entries, (nfds_t)o->concurrency, wait <= 0 ? 1 : wait > 0.1 ? 100 : 1 + (int)(wait * 1000));
        for (int32_t i = 0; i < o->concurrency; i++) {
            if (l->streams[i].fd >= 0 && l->streams[i].fd == entries[i].fd) {
                tend(l, &l->streams[i], entries[i].revents);
            }
        }
    }
    free(entries);
    return TRM_OK;
}

trm_status load_run(const load_options *options, load_report *report)
{
    *report = (load_report){.options = *options, .n = options->requests};
    loader l = {.options = options, .report = report, .random = options->seed};
    trm_status status;
    report->results = calloc((size_t)options->requests, sizeof(*report->results));
    l.streams = calloc((size_t)options->concurrency, sizeof(*l.streams));
    if (report->results == NULL || l.streams == NULL) {
        status = trm_fail(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %d requests", options->requests);
        goto out;
    }
    for (int32_t i = 0; i < options->concurrency; i++) {
        l.streams[i].fd = -1;
    }
    l.began = now_of(&l);
    TRM_TRY_GOTO(status, split_url(&l), out);
    TRM_TRY_GOTO(status, find_model(&l), out);
    l.began += now_of(&l);
    TRM_TRY_GOTO(status, run(&l), out);
    report->seconds = now_of(&l);
out:
    for (int32_t i = 0; l.streams != NULL && i < options->concurrency; i++) {
        close_stream(&l.streams[i]);
        trm_bytes_fini(&l.streams[i].in);
        trm_bytes_fini(&l.streams[i].out);
        trm_bytes_fini(&l.streams[i].line);
    }
    free(l.streams);
    tls_trust_destroy(l.trust);
    if (l.address != NULL) {
        freeaddrinfo(l.address);
    }
    if (status != TRM_OK) {
        load_report_fini(report);
    }
    return status;
}

void load_report_fini(load_report *report)
{
    free(report->results);
    free(report->gaps);
    *report = (load_report){0};
}
