/* Streams and messages of the gRPC server (https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md). */
#include "launcher/serve/grpc/grpc_streams.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"

#define MAX_RESETS    200               /* unanswered streams in a row that a client may reset */
#define HELD_MESSAGES 32                /* longest messages that all clients together may have in memory */
#define UNREAD_STREAM ((size_t)4 << 20) /* replies of a stream that its client has not read; more wait */

const grpc_options *grpc_get_options(const grpc_server *s)
{
    return &s->options;
}

static grpc_status status_of(int http)
{
    return http == 404                  ? GRPC_NOT_FOUND
           : http == 499                ? GRPC_CANCELLED
           : http == 408 || http == 504 ? GRPC_DEADLINE_EXCEEDED
           : http == 413 || http == 429 ? GRPC_RESOURCE_EXHAUSTED
           : http == 503                ? GRPC_UNAVAILABLE
           : http == 501                ? GRPC_UNIMPLEMENTED
           : http >= 500                ? GRPC_INTERNAL
                                        : GRPC_INVALID_ARGUMENT;
}

/* ---- replies --------------------------------------------------------------------------------------------- */

static nghttp2_nv header(const char *name, const char *value)
{
    return (nghttp2_nv){(uint8_t *)(uintptr_t)name, (uint8_t *)(uintptr_t)value, strlen(name), strlen(value),
                        NGHTTP2_NV_FLAG_NONE};
}

#define MOST_HEADERS 3

/* The headers that begin a reply. */
static size_t reply_headers(const grpc_stream *s, nghttp2_nv to[MOST_HEADERS])
{
    to[0] = header(":status", "200");
    to[1] = header("content-type", "application/grpc");
    to[2] = header("traceparent", s->trace.parent);
    return s->trace.parent[0] != '\0' ? 3 : 2;
}

/* Fills in grpc-status and grpc-message, whose texts the caller has. */
static size_t trailers(const grpc_stream *s, char status[12], char message[3 * GRPC_LONGEST_MESSAGE], nghttp2_nv to[2])
{
    static const char digits[] = "0123456789ABCDEF";
    size_t n = 0;
    for (const unsigned char *at = (const unsigned char *)s->message; *at != '\0'; at++) {
        if (*at < ' ' || *at > '~' || *at == '%') {
            message[n++] = '%';
            message[n++] = digits[*at >> 4];
            message[n++] = digits[*at & 15];
        } else {
            message[n++] = (char)*at;
        }
    }
    message[n] = '\0';
    snprintf(status, 12, "%d", (int)s->status);
    to[0] = header("grpc-status", status);
    to[1] = header("grpc-message", message);
    return n > 0 ? 2 : 1;
}

/* Gives bytes back to the client's window while the stream takes more. */
static void consume(grpc_stream *s)
{
    if (s->unconsumed > 0 && s->n_calls < GRPC_MAX_CALLS && s->out.size - s->out_sent < UNREAD_STREAM) {
        (void)s->connection->server->http2->session_consume_stream(s->connection->session, s->id, s->unconsumed);
        s->unconsumed = 0;
    }
}

static ssize_t read_out(nghttp2_session *session, int32_t id, uint8_t *to, size_t most, uint32_t *flags,
                        nghttp2_data_source *source, void *user)
{
    grpc_stream *s = source->ptr;
    const size_t left = s->out.size - s->out_sent, n = left < most ? left : most;
    (void)user;
    if (n == 0 && !s->ended) {
        return NGHTTP2_ERR_DEFERRED;
    }
    if (n > 0) {
        memcpy(to, s->out.data + s->out_sent, n);
        s->out_sent += n;
        s->reads = trm_clock_seconds();
    }
    if (s->out_sent == s->out.size) {
        s->out_sent = 0;
        trm_bytes_fini(&s->out);
        s->out = (trm_bytes){0};
        if (s->ended) {
            char status[12], message[3 * GRPC_LONGEST_MESSAGE];
            nghttp2_nv last[2];
            const size_t count = trailers(s, status, message, last);
            *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
            (void)s->connection->server->http2->submit_trailer(session, id, last, count);
        }
    }
    consume(s);
    return (ssize_t)n;
}

/* Sends the headers of a reply that has messages, or goes on with it. */
static void respond(grpc_stream *s)
{
    const http2_library *h = s->connection->server->http2;
    nghttp2_session *session = s->connection->session;
    if (s->responded) {
        (void)h->session_resume_data(session, s->id);
        return;
    }
    nghttp2_nv headers[MOST_HEADERS];
    const size_t n = reply_headers(s, headers);
    const nghttp2_data_provider provider = {.source = {.ptr = s}, .read_callback = read_out};
    s->responded = true;
    (void)h->submit_response(session, s->id, headers, n, &provider);
}

/* Takes the stream's calls off it. Those that wait elsewhere are freed when they come back. */
static void free_call(grpc_call *call);
static void abandon_calls(grpc_stream *s)
{
    for (grpc_call *call = s->first, *next; call != NULL; call = next) {
        next = call->next;
        call->stream = NULL;
        atomic_store(&call->gone, true);
        if (!call->waits || call->done) {
            free_call(call);
        }
    }
    s->first = s->last = NULL;
    s->n_calls = 0;
}

static void drop_in(grpc_stream *s)
{
    s->connection->server->held -= s->in.size;
    trm_bytes_fini(&s->in);
    s->in = (trm_bytes){0};
}

void grpc_end_stream(grpc_stream *s, grpc_status status, const char *message)
{
    const http2_library *h = s->connection->server->http2;
    if (s->ended) {
        return;
    }
    abandon_calls(s);
    drop_in(s);
    s->ended = s->discards = true;
    s->status = status;
    snprintf(s->message, sizeof(s->message), "%s", message);
    s->reads = trm_clock_seconds();
    if (s->responded) {
        respond(s);
        return;
    }
    char code[12], text[3 * GRPC_LONGEST_MESSAGE];
    nghttp2_nv headers[MOST_HEADERS + 2];
    const size_t first = reply_headers(s, headers), n = first + trailers(s, code, text, headers + first);
    s->responded = true;
    (void)h->submit_response(s->connection->session, s->id, headers, n, NULL);
}

/* Fills in the prefix of a message and puts it behind those that wait to be sent. Takes the bytes over. */
static bool send_message(grpc_stream *s, trm_bytes *message)
{
    const size_t size = message->size - GRPC_PREFIX;
    for (int i = 0; i < 4; i++) {
        message->data[1 + i] = (char)(size >> (24 - 8 * i));
    }
    bool kept = true;
    if (s->out.size == 0) {
        trm_bytes_fini(&s->out);
        s->out = *message;
        s->out_sent = 0;
        s->reads = trm_clock_seconds();
    } else {
        kept = trm_bytes_append(&s->out, message->data, message->size) == TRM_OK;
        trm_bytes_fini(message);
    }
    *message = (trm_bytes){0};
    return kept;
}

/* ---- calls ----------------------------------------------------------------------------------------------- */

static void free_call(grpc_call *call)
{
    call->server->held -= call->message.size;
    infer_destroy(call->request);
    repository_job_free(call->job);
    trm_bytes_fini(&call->message);
    trm_bytes_fini(&call->reply.bytes);
    free(call);
}

void grpc_call_finish(grpc_call *call)
{
    grpc_server *s = call->server;
    const uint64_t one = 1;
    pthread_mutex_lock(&s->lock);
    call->next_done = s->done;
    s->done = call;
    (void)!write(s->wake, &one, sizeof(one)); /* under the lock: the server may end right after */
    pthread_mutex_unlock(&s->lock);
}

/* An error within a stream: ModelStreamInferResponse with its message, and the id of the request if it is known. */
static void write_stream_error(grpc_call *call)
{
    proto_writer *w = &call->reply;
    w->bytes.size = GRPC_PREFIX;
    proto_put_text(w, 1, call->error.message);
    if (call->request != NULL && call->request->id != NULL) {
        const size_t place = proto_begin(w, 2);
        proto_put_text(w, 3, call->request->id);
        proto_end(w, place);
    }
}

static void deliver(grpc_stream *s, grpc_call *call)
{
    trm_bytes *reply = &call->reply.bytes;
    if (!call->failed && call->request != NULL) {
        trm_bytes_fini(reply);
        *reply = call->request->reply;
        call->request->reply = (trm_bytes){0};
    }
    if (call->failed && call->streamed) {
        write_stream_error(call);
    } else if (call->failed) {
        grpc_end_stream(s, status_of(call->error.status), call->error.message);
        return;
    }
    if (call->reply.status != TRM_OK || !send_message(s, reply)) {
        grpc_end_stream(s, GRPC_RESOURCE_EXHAUSTED, "the server is out of memory for a reply");
        return;
    }
    s->ended = !call->streamed;
    respond(s);
}

/* Sends the answers that are there, in the order of the messages. */
static void flush_calls(grpc_stream *s)
{
    while (s->first != NULL && s->first->done) {
        grpc_call *call = s->first;
        s->first = call->next;
        s->last = s->first == NULL ? NULL : s->last;
        s->n_calls--;
        deliver(s, call);
        free_call(call);
    }
    if (s->method != NULL && s->method->streamed && s->in_ended && s->first == NULL && !s->ended) {
        s->ended = true;
        s->reads = trm_clock_seconds();
        respond(s);
    }
    consume(s);
}

static void start_call(grpc_stream *s)
{
    grpc_call *call = calloc(1, sizeof(*call));
    if (call == NULL || trm_bytes_reserve(&call->reply.bytes, 64) != TRM_OK) {
        free(call);
        grpc_end_stream(s, GRPC_RESOURCE_EXHAUSTED, "the server is out of memory for a request");
        return;
    }
    call->server = s->connection->server;
    call->stream = s;
    call->message = s->in;
    call->trace = &s->trace;
    call->deadline = s->deadline;
    call->streamed = s->method->streamed;
    atomic_init(&call->gone, false);
    memset(call->reply.bytes.data, 0, GRPC_PREFIX);
    call->reply.bytes.size = GRPC_PREFIX;
    s->in = (trm_bytes){0};
    s->complete = false;
    *(s->first == NULL ? &s->first : &s->last->next) = call;
    s->last = call;
    s->n_calls++;
    s->method->answer(call);
    if (!call->waits) {
        call->done = true;
    }
    flush_calls(s);
}

void grpc_take_done(grpc_server *s)
{
    uint64_t count;
    grpc_call *done = NULL;
    (void)!read(s->wake, &count, sizeof(count));
    pthread_mutex_lock(&s->lock);
    while (s->done != NULL) {
        grpc_call *call = s->done;
        s->done = call->next_done;
        call->next_done = done;
        done = call;
    }
    pthread_mutex_unlock(&s->lock);
    while (done != NULL) {
        grpc_call *call = done;
        done = call->next_done;
        call->done = true;
        const bool failed = call->request != NULL ? call->request->failed : call->job->failed;
        if (failed) {
            call->failed = true;
            call->error = call->request != NULL ? call->request->error : call->job->error;
        }
        if (call->stream != NULL) {
            flush_calls(call->stream);
        } else {
            free_call(call);
        }
    }
}

/* ---- what nghttp2 calls ---------------------------------------------------------------------------------- */

static grpc_stream *stream_of(const grpc_connection *c, int32_t id)
{
    return c->server->http2->session_get_stream_user_data(c->session, id);
}

static int begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
    grpc_connection *c = user;
    if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST) {
        return 0;
    }
    grpc_stream *s = calloc(1, sizeof(*s));
    if (s == NULL) {
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    }
    s->connection = c;
    s->id = frame->hd.stream_id;
    s->arrives = s->reads = trm_clock_seconds();
    s->next = c->streams;
    c->streams = s;
    (void)c->server->http2->session_set_stream_user_data(session, s->id, s);
    return 0;
}

/* "5010m": at most 8 digits and a unit. */
static double read_timeout(const char *text)
{
    static const char units[] = "HMSmun";
    static const double seconds[] = {3600, 60, 1, 1e-3, 1e-6, 1e-9};
    const size_t digits = strspn(text, "0123456789");
    const char *unit = text[digits] != '\0' ? strchr(units, text[digits]) : NULL;
    return digits >= 1 && digits <= 8 && unit != NULL ? (double)strtol(text, NULL, 10) * seconds[unit - units] : 0;
}

static void copy_value(char *to, size_t size, const uint8_t *value, size_t length)
{
    snprintf(to, size, "%.*s", (int)(length < size ? length : size - 1), (const char *)value);
}

static int take_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name, size_t name_size,
                       const uint8_t *value, size_t value_size, uint8_t flags, void *user)
{
    grpc_connection *c = user;
    grpc_stream *s = stream_of(c, frame->hd.stream_id);
    char text[64];
    (void)session, (void)flags;
    if (s == NULL) {
        return 0;
    }
    s->header_bytes += name_size + value_size + 32;
    if (s->header_bytes > GRPC_MAX_HEADERS) {
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    }
    const char *key = (const char *)name; /* ends with NUL */
    copy_value(text, sizeof(text), value, value_size);
    if (strcmp(key, ":method") == 0) {
        s->is_post = strcmp(text, "POST") == 0;
    } else if (strcmp(key, ":path") == 0) {
        copy_value(s->path, sizeof(s->path), value, value_size);
    } else if (strcmp(key, "content-type") == 0) {
        s->is_grpc = strcmp(text, "application/grpc") == 0 || strncmp(text, "application/grpc+", 17) == 0 ||
                     strncmp(text, "application/grpc;", 17) == 0;
    } else if (strcmp(key, "grpc-timeout") == 0) {
        const double seconds = read_timeout(text);
        s->deadline = seconds > 0 ? trm_clock_seconds() + seconds : 0;
    } else if (strcmp(key, "authorization") == 0) {
        copy_value(s->authorization, sizeof(s->authorization), value, value_size);
    }
    trace_context_take(&s->trace, key, name_size, (const char *)value, value_size);
    return 0;
}

/* The headers are complete. */
static void open_stream(grpc_stream *s)
{
    const server *keys = s->connection->server->options.keys;
    char text[GRPC_LONGEST_PATH + 64];
    trace_context_check(&s->trace);
    s->method = grpc_find_method(s->path);
    if (!s->is_post || !s->is_grpc) {
        grpc_end_stream(s, GRPC_INTERNAL, "expected method POST and content-type application/grpc");
    } else if (s->method == NULL) {
        snprintf(text, sizeof(text), "there is no method %s", s->path);
        grpc_end_stream(s, GRPC_UNIMPLEMENTED, text);
    } else if (!s->method->open && server_needs_key(keys) && server_find_key(keys, s->authorization) == 0) {
        grpc_end_stream(s, GRPC_UNAUTHENTICATED, "the request has no valid API key (authorization: Bearer KEY)");
    }
}

/* No more messages come. */
static void end_input(grpc_stream *s)
{
    s->in_ended = true;
    if (s->discards) {
        return;
    }
    if (s->in.size > 0 && !s->complete) {
        grpc_end_stream(s, GRPC_INTERNAL, "a message is cut off");
    } else if (s->method->streamed) {
        flush_calls(s);
    } else if (!s->complete) {
        grpc_end_stream(s, GRPC_INVALID_ARGUMENT, "the request has no message");
    } else {
        start_call(s);
    }
}

static int take_frame(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
    grpc_connection *c = user;
    (void)session;
    grpc_stream *s =
        frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA ? stream_of(c, frame->hd.stream_id) : NULL;
    if (s == NULL) {
        return 0;
    }
    if (frame->hd.type == NGHTTP2_HEADERS && frame->headers.cat == NGHTTP2_HCAT_REQUEST) {
        open_stream(s);
    }
    if ((frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0 && !s->in_ended) {
        end_input(s);
    }
    return 0;
}

/* The last frame of a reply is sent: what its client still sends is not wanted. (A reset before would drop the reply.)
 */
static int frame_sent(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
    const grpc_connection *c = user;
    grpc_stream *s = frame->hd.type == NGHTTP2_HEADERS ? stream_of(c, frame->hd.stream_id) : NULL;
    if (s != NULL && (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0 && !s->in_ended) {
        (void)c->server->http2->submit_rst_stream(session, NGHTTP2_FLAG_NONE, s->id, NGHTTP2_NO_ERROR);
    }
    return 0;
}

static uint32_t message_size(const trm_bytes *in)
{
    const unsigned char *p = (const unsigned char *)in->data;
    return (uint32_t)p[1] << 24 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 8 | p[4];
}

/* The five bytes before a message. */
static bool check_prefix(grpc_stream *s)
{
    const grpc_server *owner = s->connection->server;
    char text[160];
    if (s->in.data[0] != 0) {
        grpc_end_stream(s, GRPC_UNIMPLEMENTED, "compressed messages are not supported");
        return false;
    }
    if (message_size(&s->in) > owner->options.max_message) {
        snprintf(text, sizeof(text), "a message has %u bytes, expected at most %zu (--max-body)", message_size(&s->in),
                 owner->options.max_message);
        grpc_end_stream(s, GRPC_RESOURCE_EXHAUSTED, text);
        return false;
    }
    return true;
}

static void take_bytes(grpc_stream *s, const uint8_t *data, size_t size)
{
    grpc_server *owner = s->connection->server;
    while (size > 0 && !s->discards) {
        if (s->complete) {
            grpc_end_stream(s, GRPC_INVALID_ARGUMENT, "the request has more than one message");
            return;
        }
        if (s->in.size == 0) {
            s->arrives = trm_clock_seconds();
        }
        const size_t whole = s->in.size < GRPC_PREFIX ? GRPC_PREFIX : GRPC_PREFIX + (size_t)message_size(&s->in);
        const size_t n = whole - s->in.size < size ? whole - s->in.size : size;
        if (owner->held + n > HELD_MESSAGES * (owner->options.max_message + GRPC_PREFIX) ||
            trm_bytes_append(&s->in, (const char *)data, n) != TRM_OK) {
            grpc_end_stream(s, GRPC_RESOURCE_EXHAUSTED, "the server holds too many requests, try again later");
            return;
        }
        owner->held += n;
        data += n;
        size -= n;
        if (s->in.size == GRPC_PREFIX && whole == GRPC_PREFIX && !check_prefix(s)) {
            return;
        }
        if (s->in.size >= GRPC_PREFIX && s->in.size == GRPC_PREFIX + (size_t)message_size(&s->in)) {
            s->complete = true;
            if (s->method->streamed) {
                start_call(s);
            }
        }
    }
}

static int take_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *data, size_t size, void *user)
{
    grpc_connection *c = user;
    const http2_library *h = c->server->http2;
    grpc_stream *s = stream_of(c, id);
    (void)flags;
    (void)h->session_consume_connection(session, size);
    if (s == NULL || s->discards) {
        (void)h->session_consume_stream(session, id, size);
        return 0;
    }
    s->unconsumed += size;
    take_bytes(s, data, size);
    consume(s);
    return 0;
}

void grpc_free_stream(grpc_stream *s)
{
    grpc_stream **at = &s->connection->streams;
    while (*at != s) {
        at = &(*at)->next;
    }
    *at = s->next;
    abandon_calls(s);
    drop_in(s);
    trm_bytes_fini(&s->out);
    free(s);
}

static int close_stream(nghttp2_session *session, int32_t id, uint32_t error, void *user)
{
    grpc_connection *c = user;
    grpc_stream *s = stream_of(c, id);
    if (s == NULL) {
        return 0;
    }
    /* A client that only resets streams makes work for nothing. */
    c->resets = error != NGHTTP2_NO_ERROR && !s->ended ? c->resets + 1 : 0;
    grpc_free_stream(s);
    if (c->resets > MAX_RESETS) {
        (void)c->server->http2->session_terminate_session(session, NGHTTP2_ENHANCE_YOUR_CALM);
        c->closing = true;
    }
    return 0;
}

trm_status grpc_make_callbacks(grpc_server *s)
{
    const http2_library *h = s->http2;
    if (h->session_callbacks_new(&s->callbacks) != 0 || h->option_new(&s->option) != 0) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the gRPC server");
    }
    h->option_set_no_auto_window_update(s->option, 1);
    h->session_callbacks_set_on_begin_headers_callback(s->callbacks, begin_headers);
    h->session_callbacks_set_on_header_callback(s->callbacks, take_header);
    h->session_callbacks_set_on_frame_recv_callback(s->callbacks, take_frame);
    h->session_callbacks_set_on_frame_send_callback(s->callbacks, frame_sent);
    h->session_callbacks_set_on_data_chunk_recv_callback(s->callbacks, take_data);
    h->session_callbacks_set_on_stream_close_callback(s->callbacks, close_stream);
    return TRM_OK;
}
