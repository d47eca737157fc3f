/* Connections of the gRPC server. */
#include "launcher/serve/grpc/grpc_server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "launcher/serve/grpc/grpc_streams.h"

#define MAX_STREAMS    128        /* of a connection at once */
#define MAX_FRAME      (1u << 20) /* bytes of a frame: large inputs come in few */
#define STREAM_WINDOW  ((int32_t)4 << 20)
#define SESSION_WINDOW ((int32_t)16 << 20)
#define SEND_BLOCK     ((size_t)256 << 10) /* bytes that are handed to the socket at once */
#define TICK_SECONDS   0.1
#define LAST_SECONDS   2 /* for the last replies to be read */

static void close_connection(grpc_server *s, grpc_connection *c)
{
    grpc_connection **at = &s->connections;
    while (*at != c) {
        at = &(*at)->next;
    }
    *at = c->next;
    s->n_connections--;
    while (c->streams != NULL) {
        grpc_free_stream(c->streams);
    }
    s->http2->session_del(c->session);
    trm_bytes_fini(&c->out);
    tls_close(c->tls);
    close(c->fd);
    free(c);
}

static void add_connection(grpc_server *s, int fd)
{
    const nghttp2_settings_entry settings[] = {{NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, MAX_STREAMS},
                                               {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, (uint32_t)STREAM_WINDOW},
                                               {NGHTTP2_SETTINGS_MAX_FRAME_SIZE, MAX_FRAME},
                                               {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, (uint32_t)GRPC_MAX_HEADERS}};
    const int yes = 1;
    grpc_connection *c = s->n_connections < s->options.max_connections ? calloc(1, sizeof(*c)) : NULL;
    if (c == NULL) {
        close(fd);
        return;
    }
    c->server = s;
    c->fd = fd;
    c->active = trm_clock_seconds();
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
    if ((s->identity != NULL && tls_accept(s->identity, fd, "h2", &c->tls) != TRM_OK) ||
        s->http2->session_server_new2(&c->session, s->callbacks, c, s->option) != 0) {
        tls_close(c->tls);
        close(fd);
        free(c);
        return;
    }
    (void)s->http2->submit_settings(c->session, NGHTTP2_FLAG_NONE, settings, 4);
    (void)s->http2->session_set_local_window_size(c->session, NGHTTP2_FLAG_NONE, 0, SESSION_WINDOW);
    c->next = s->connections;
    s->connections = c;
    s->n_connections++;
}

/* Reads at most GRPC_RECEIVE_BLOCK bytes, 0 if there are none now; false: the connection is over. */
static bool receive_some(grpc_connection *c, size_t *n)
{
    char *to = c->server->received;
    size_t got = 1;
    bool ended = false;
    *n = 0;
    if (c->tls != NULL) { /* record by record */
        while (got > 0 && !ended && *n < GRPC_RECEIVE_BLOCK) {
            if (tls_receive(c->tls, to + *n, GRPC_RECEIVE_BLOCK - *n, &got, &ended) != TRM_OK) {
                return false;
            }
            *n += got;
        }
        return *n > 0 || !ended;
    }
    const ssize_t read = recv(c->fd, to, GRPC_RECEIVE_BLOCK, MSG_DONTWAIT);
    *n = read > 0 ? (size_t)read : 0;
    return read > 0 || (read < 0 && (errno == EAGAIN || errno == EINTR));
}

static void receive(grpc_connection *c)
{
    for (int i = 0; i < 8 && !c->broken; i++) { /* others have their turn after that */
        size_t n;
        c->broken = !receive_some(c, &n);
        if (n == 0) {
            return;
        }
        c->active = trm_clock_seconds();
        c->broken =
            c->broken || c->server->http2->session_mem_recv(c->session, (const uint8_t *)c->server->received, n) < 0;
    }
}

/* Sends what the socket takes; false: the connection is over. */
static bool send_some(grpc_connection *c, const char *data, size_t size, size_t *sent)
{
    *sent = 0;
    if (c->tls != NULL) {
        return tls_send(c->tls, data, size, sent) == TRM_OK;
    }
    const ssize_t n = send(c->fd, data, size, MSG_DONTWAIT | MSG_NOSIGNAL);
    *sent = n > 0 ? (size_t)n : 0;
    return n >= 0 || errno == EAGAIN || errno == EINTR;
}

/* Fills the buffer with frames, while it is small. */
static void gather(grpc_connection *c)
{
    while (!c->broken && c->out.size - c->out_sent < SEND_BLOCK) {
        const uint8_t *data;
        const ssize_t n = c->server->http2->session_mem_send(c->session, &data);
        if (n <= 0) {
            c->broken = n < 0;
            return;
        }
        c->broken = trm_bytes_append(&c->out, (const char *)data, (size_t)n) != TRM_OK;
    }
}

static void transmit(grpc_connection *c)
{
    for (gather(c); !c->broken && c->out.size > c->out_sent; gather(c)) {
        size_t n;
        c->broken = !send_some(c, c->out.data + c->out_sent, c->out.size - c->out_sent, &n);
        if (n == 0) {
            c->blocked = c->blocked > 0 ? c->blocked : trm_clock_seconds();
            return;
        }
        c->out_sent += n;
        c->active = trm_clock_seconds();
        c->blocked = 0;
        if (c->out_sent == c->out.size) {
            c->out.size = c->out_sent = 0;
        } else if (c->out_sent > SEND_BLOCK) {
            memmove(c->out.data, c->out.data + c->out_sent, c->out.size - c->out_sent);
            c->out.size -= c->out_sent;
            c->out_sent = 0;
        }
    }
}

/* Ends what takes too long: messages that do not arrive, replies that are not read, deadlines, idle connections. */
static void check_times(grpc_connection *c, double now)
{
    const double limit = c->server->options.client_seconds;
    const http2_library *h = c->server->http2;
    for (grpc_stream *s = c->streams; s != NULL; s = s->next) {
        const bool arriving =
            !s->in_ended && !s->discards && (s->in.size > 0 || s->method == NULL || !s->method->streamed);
        if (s->deadline > 0 && now > s->deadline && !s->ended) {
            grpc_end_stream(s, GRPC_DEADLINE_EXCEEDED, "the deadline has passed");
        } else if (arriving && now - s->arrives > limit && s->n_calls < GRPC_MAX_CALLS) {
            grpc_end_stream(s, GRPC_DEADLINE_EXCEEDED, "the request did not arrive in time");
        } else if ((s->ended || s->out.size > s->out_sent) && now - s->reads > limit) {
            (void)h->submit_rst_stream(c->session, NGHTTP2_FLAG_NONE, s->id, NGHTTP2_CANCEL);
            s->reads = now;
        }
    }
    if (c->blocked > 0 && now - c->blocked > limit) {
        c->broken = true;
    }
    if (c->streams == NULL && now - c->active > limit) { /* a request may be on its way: it is still served */
        c->broken = c->closing;
        c->closing = true;
        c->active = now;
        (void)h->submit_shutdown_notice(c->session);
    }
}

static void accept_all(grpc_server *s)
{
    for (int i = 0; i < 64; i++) {
        const int fd = accept4(s->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0) { /* without descriptors or memory the socket stays ready */
            const bool passing = errno == EAGAIN || errno == EINTR || errno == ECONNABORTED;
            s->pauses = passing ? 0 : trm_clock_seconds() + TICK_SECONDS;
            return;
        }
        add_connection(s, fd);
    }
}

/* Waits for sockets and answers; the first two entries are the server's own. */
static struct pollfd *wait_for_events(const grpc_server *s, struct pollfd *entries)
{
    const nfds_t n = 2 + (nfds_t)s->n_connections;
    struct pollfd *grown = realloc(entries, n * sizeof(*entries));
    if (grown == NULL) {
        free(entries);
        return NULL;
    }
    grown[0] = (struct pollfd){.fd = s->wake, .events = POLLIN};
    grown[1] = (struct pollfd){.fd = s->fd, .events = trm_clock_seconds() < s->pauses ? 0 : POLLIN};
    size_t i = 2;
    for (const grpc_connection *c = s->connections; c != NULL; c = c->next) {
        const bool writes = c->out.size > c->out_sent;
        const bool out = c->tls != NULL ? tls_wants_write(c->tls, writes) : writes;
        grown[i++] = (struct pollfd){.fd = c->fd, .events = (short)(POLLIN | (out ? POLLOUT : 0))};
    }
    (void)poll(grown, n, (int)(TICK_SECONDS * 1000));
    return grown;
}

static void serve_once(grpc_server *s, struct pollfd *entries, double now, bool check)
{
    size_t i = 2;
    grpc_take_done(s);
    for (grpc_connection *c = s->connections, *next; c != NULL; c = next) {
        next = c->next;
        if (entries[i++].revents & (POLLIN | POLLHUP | POLLERR)) {
            receive(c);
        }
        if (check) {
            check_times(c, now);
        }
        transmit(c);
        const bool over = c->out.size == c->out_sent && !s->http2->session_want_read(c->session) &&
                          !s->http2->session_want_write(c->session);
        if (c->broken || over) {
            close_connection(s, c);
        }
    }
    if (entries[1].revents != 0) {
        accept_all(s);
    }
}

/* Whether a reply is still on its way. */
static bool is_busy(const grpc_server *s)
{
    for (const grpc_connection *c = s->connections; c != NULL; c = c->next) {
        if (c->streams != NULL || c->out.size > c->out_sent) {
            return true;
        }
    }
    return false;
}

static void *serve(void *user)
{
    grpc_server *s = user;
    struct pollfd *entries = NULL;
    double checked = 0, until = 0;
    while ((entries = wait_for_events(s, entries)) != NULL) {
        const double now = trm_clock_seconds();
        const bool check = now - checked >= TICK_SECONDS;
        checked = check ? now : checked;
        serve_once(s, entries, now, check);
        if (atomic_load(&s->stopping)) {
            for (grpc_connection *c = s->connections; c != NULL && until == 0; c = c->next) {
                (void)s->http2->submit_goaway(c->session, NGHTTP2_FLAG_NONE, INT32_MAX, NGHTTP2_NO_ERROR, NULL, 0);
            }
            until = until == 0 ? now + LAST_SECONDS : until;
            if (now > until || !is_busy(s)) {
                break;
            }
        }
    }
    free(entries);
    while (s->connections != NULL) {
        close_connection(s, s->connections);
    }
    return NULL;
}

/* ---- start and end --------------------------------------------------------------------------------------- */

static trm_status start(grpc_server *s)
{
    TRM_TRY(http2_library_open(&s->http2));
    if (s->options.tls_certificate != NULL) {
        TRM_TRY(tls_identity_create(s->options.tls_certificate, s->options.tls_key, s->options.tls_client_authorities,
                                    &s->identity));
    }
    TRM_TRY(grpc_make_callbacks(s));
    TRM_TRY(server_open_socket(s->options.host, s->options.port, &s->fd));
    s->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    s->received = malloc(GRPC_RECEIVE_BLOCK);
    s->started = s->wake >= 0 && s->received != NULL && pthread_create(&s->thread, NULL, serve, s) == 0;
    if (!s->started) {
        TRM_FAIL(TRM_ERROR_INTERNAL, "cannot start the gRPC server");
    }
    return TRM_OK;
}

trm_status grpc_server_create(const grpc_options *options, grpc_server **result)
{
    grpc_server *s = calloc(1, sizeof(*s));
    if (s == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the gRPC server");
    }
    s->options = *options;
    s->fd = s->wake = -1;
    atomic_init(&s->stopping, false);
    pthread_mutex_init(&s->lock, NULL);
    trm_status status = start(s);
    if (status != TRM_OK) {
        grpc_server_destroy(s);
        return status;
    }
    *result = s;
    return TRM_OK;
}

int32_t grpc_server_port(const grpc_server *s)
{
    struct sockaddr_storage address = {0};
    socklen_t size = sizeof(address);
    (void)getsockname(s->fd, (struct sockaddr *)&address, &size);
    return ntohs(address.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)(void *)&address)->sin6_port
                                               : ((struct sockaddr_in *)(void *)&address)->sin_port);
}

void grpc_server_destroy(grpc_server *s)
{
    const uint64_t one = 1;
    if (s == NULL) {
        return;
    }
    if (s->started) {
        atomic_store(&s->stopping, true);
        (void)!write(s->wake, &one, sizeof(one));
        pthread_join(s->thread, NULL);
        pthread_mutex_lock(&s->lock); /* grpc_call_finish has ended */
        pthread_mutex_unlock(&s->lock);
        grpc_take_done(s);
    }
    if (s->callbacks != NULL) {
        s->http2->session_callbacks_del(s->callbacks);
    }
    if (s->option != NULL) {
        s->http2->option_del(s->option);
    }
    tls_trust_destroy(s->identity);
    if (s->fd >= 0) {
        close(s->fd);
    }
    if (s->wake >= 0) {
        close(s->wake);
    }
    pthread_mutex_destroy(&s->lock);
    free(s->received);
    free(s);
}
