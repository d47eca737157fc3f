/*
 * The transport over TCP, for jobs started without MPI. Two ranks make their common exchanges in the same order, so the
 * next message of a peer is always the expected one: messages are read only when needed, and never stored.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/error.h"
#include "collectives/tcp_connect.h"
#include "collectives/transport.h"
#include "collectives/wait.h"

/* Before each message on a data stream. */
typedef struct frame {
    uint64_t channel, size;
} frame;

/* Messages of control streams. */
typedef enum control_kind {
    CONTROL_NOTICE = 1, /* a rank failed */
    CONTROL_SEEN,       /* a notice has arrived */
    CONTROL_BYE         /* the rank leaves normally */
} control_kind;

typedef struct control {
    int32_t kind;
    trm_notice notice;
} control;

/* A message in flight. */
typedef struct flow {
    const trm_message *message;
    frame head;
    size_t at; /* bytes done, including the head */
} flow;

typedef struct tcp_transport {
    trm_transport base;
    int streams[TRM_MAX_RANKS][TRM_TCP_STREAMS];
    control incoming[TRM_MAX_RANKS]; /* partly read */
    size_t incoming_size[TRM_MAX_RANKS];
    bool left[TRM_MAX_RANKS]; /* said goodbye, or is gone */
    bool seen[TRM_MAX_RANKS]; /* knows of our notice */
    flow sends[TRM_MAX_RANKS], receives[TRM_MAX_RANKS];
} tcp_transport;

static bool would_block(void)
{
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

static void send_control(tcp_transport *t, int32_t peer, control_kind kind, const trm_notice *notice)
{
    control c = {.kind = (int32_t)kind};
    if (notice != NULL) {
        c.notice = *notice;
    }
    if (t->streams[peer][TRM_TCP_CONTROL] >= 0) { /* small and rare: a full buffer means that the peer is stuck */
        (void)!send(t->streams[peer][TRM_TCP_CONTROL], &c, sizeof(c), MSG_NOSIGNAL);
    }
}

static void take_control(tcp_transport *t, int32_t peer)
{
    const control *c = &t->incoming[peer];
    if (c->kind == CONTROL_NOTICE) {
        trm_transport_break(&t->base, &c->notice);
        send_control(t, peer, CONTROL_SEEN, NULL);
    } else if (c->kind == CONTROL_SEEN) {
        t->seen[peer] = true;
    } else {
        t->left[peer] = true;
    }
}

/* Reads the control streams. A notice precedes a closed connection, which may be its consequence. */
static void tcp_poll(trm_transport *transport)
{
    tcp_transport *t = (tcp_transport *)transport;
    int32_t gone = -1;
    for (int32_t peer = 0; peer < transport->size; peer++) {
        int fd = t->streams[peer][TRM_TCP_CONTROL];
        while (fd >= 0 && !t->left[peer]) {
            size_t *at = &t->incoming_size[peer];
            ssize_t n = recv(fd, (char *)&t->incoming[peer] + *at, sizeof(control) - *at, 0);
            if (n < 0 && would_block()) {
                break;
            }
            if (n <= 0) {
                t->left[peer] = true;
                gone = peer;
                break;
            }
            *at += (size_t)n;
            if (*at == sizeof(control)) {
                *at = 0;
                take_control(t, peer);
            }
        }
    }
    if (gone >= 0 && transport->notice.status == TRM_OK) {
        trm_transport_lost(transport, gone, "closed its connection");
    }
}

/* A peer's data stream has ended: its notice says why, if it sent one. */
static trm_status fail_closed(tcp_transport *t, int32_t peer)
{
    TRM_TRY(trm_transport_check(&t->base));
    return trm_transport_lost(&t->base, peer, "closed its connection");
}

static bool is_done(const flow *f)
{
    return f->at == sizeof(frame) + f->message->size;
}

static trm_status advance_send(tcp_transport *t, flow *f)
{
    while (!is_done(f)) {
        struct iovec parts[2];
        int n_parts = 0;
        if (f->at < sizeof(frame)) {
            parts[n_parts++] = (struct iovec){(char *)&f->head + f->at, sizeof(frame) - f->at};
        }
        size_t body = f->at < sizeof(frame) ? 0 : f->at - sizeof(frame);
        parts[n_parts++] = (struct iovec){(char *)f->message->bytes + body, f->message->size - body};
        struct msghdr all = {.msg_iov = parts, .msg_iovlen = (size_t)n_parts};
        ssize_t n = sendmsg(t->streams[f->message->peer][TRM_TCP_DATA], &all, MSG_NOSIGNAL);
        if (n < 0) {
            return would_block() ? TRM_OK : fail_closed(t, f->message->peer);
        }
        f->at += (size_t)n;
    }
    return TRM_OK;
}

static trm_status advance_receive(tcp_transport *t, flow *f, uint32_t channel)
{
    while (!is_done(f)) {
        bool head = f->at < sizeof(frame);
        char *to = head ? (char *)&f->head + f->at : (char *)f->message->bytes + (f->at - sizeof(frame));
        size_t rest = head ? sizeof(frame) - f->at : f->message->size + sizeof(frame) - f->at;
        ssize_t n = recv(t->streams[f->message->peer][TRM_TCP_DATA], to, rest, 0);
        if (n <= 0) {
            return n < 0 && would_block() ? TRM_OK : fail_closed(t, f->message->peer);
        }
        f->at += (size_t)n;
        if (head && f->at == sizeof(frame) && (f->head.size != f->message->size || f->head.channel != channel)) {
            return trm_transport_lost(&t->base, f->message->peer, "sent %zu bytes%s, expected %zu",
                                      (size_t)f->head.size, f->head.channel != channel ? " to another group" : "",
                                      f->message->size);
        }
    }
    return TRM_OK;
}

/* Sleeps until one of the awaited streams, or a control stream, is ready. */
static void wait_for_streams(const tcp_transport *t, int32_t n_sends, int32_t n_receives, double seconds)
{
    struct pollfd entries[3 * TRM_MAX_RANKS];
    nfds_t n = 0;
    for (int32_t i = 0; i < n_sends; i++) {
        if (!is_done(&t->sends[i])) {
            entries[n++] = (struct pollfd){t->streams[t->sends[i].message->peer][TRM_TCP_DATA], POLLOUT, 0};
        }
    }
    for (int32_t i = 0; i < n_receives; i++) {
        if (!is_done(&t->receives[i])) {
            entries[n++] = (struct pollfd){t->streams[t->receives[i].message->peer][TRM_TCP_DATA], POLLIN, 0};
        }
    }
    for (int32_t peer = 0; peer < t->base.size; peer++) {
        if (t->streams[peer][TRM_TCP_CONTROL] >= 0 && !t->left[peer]) {
            entries[n++] = (struct pollfd){t->streams[peer][TRM_TCP_CONTROL], POLLIN, 0};
        }
    }
    (void)poll(entries, n, seconds > 1.0 ? 1000 : (int)(seconds * 1000) + 1);
}

static trm_status tcp_transfer(trm_transport *transport, uint32_t channel, double deadline_seconds,
                               const trm_message *sends, int32_t n_sends, const trm_message *receives,
                               int32_t n_receives)
{
    tcp_transport *t = (tcp_transport *)transport;
    for (int32_t i = 0; i < n_sends; i++) {
        t->sends[i] = (flow){&sends[i], {channel, sends[i].size}, 0};
    }
    for (int32_t i = 0; i < n_receives; i++) {
        t->receives[i] = (flow){&receives[i], {0, 0}, 0};
    }
    double end = trm_wait_now() + deadline_seconds;
    for (;;) {
        int32_t missing = -1; /* a peer that a message is waiting for; receives say more */
        for (int32_t i = 0; i < n_sends; i++) {
            TRM_TRY(advance_send(t, &t->sends[i]));
            missing = is_done(&t->sends[i]) ? missing : sends[i].peer;
        }
        for (int32_t i = 0; i < n_receives; i++) {
            TRM_TRY(advance_receive(t, &t->receives[i], channel));
            missing = is_done(&t->receives[i]) ? missing : receives[i].peer;
        }
        if (missing < 0) {
            return TRM_OK;
        }
        TRM_TRY(trm_transport_check(transport));
        double left = end - trm_wait_now();
        if (left <= 0) {
            return trm_transport_lost(transport, missing, "did not arrive within %g s", deadline_seconds);
        }
        wait_for_streams(t, n_sends, n_receives, left);
    }
}

static bool all_seen(const tcp_transport *t)
{
    for (int32_t peer = 0; peer < t->base.size; peer++) {
        if (peer != t->base.rank && !t->seen[peer] && !t->left[peer]) {
            return false;
        }
    }
    return true;
}

static void tcp_notify(trm_transport *transport, const trm_notice *notice, double seconds)
{
    tcp_transport *t = (tcp_transport *)transport;
    for (int32_t peer = 0; peer < transport->size; peer++) {
        t->seen[peer] = false;
        send_control(t, peer, CONTROL_NOTICE, notice);
    }
    for (double end = trm_wait_now() + seconds; !all_seen(t) && trm_wait_now() < end;) {
        wait_for_streams(t, 0, 0, end - trm_wait_now());
        tcp_poll(transport);
    }
}

static void tcp_destroy(trm_transport *transport)
{
    tcp_transport *t = (tcp_transport *)transport;
    for (int32_t peer = 0; peer < transport->size; peer++) {
        if (transport->notice.status == TRM_OK) {
            send_control(t, peer, CONTROL_BYE, NULL);
        }
        for (int stream = 0; stream < TRM_TCP_STREAMS; stream++) {
            if (t->streams[peer][stream] >= 0) {
                close(t->streams[peer][stream]);
            }
        }
    }
    free(t);
}

static const trm_transport_ops tcp_ops = {"tcp", tcp_transfer, tcp_notify, tcp_poll, tcp_destroy};

trm_status trm_transport_tcp_create(int32_t rank, int32_t size, const trm_tcp_options *options,
                                    trm_transport **transport)
{
    if (size < 1 || size > TRM_MAX_RANKS || rank < 0 || rank >= size) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "rank %d of %d, expected at most %d ranks", (int)rank, (int)size,
                 TRM_MAX_RANKS);
    }
    tcp_transport *t = calloc(1, sizeof(*t));
    if (t == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the TCP transport");
    }
    t->base = (trm_transport){.ops = &tcp_ops, .rank = rank, .size = size, .users = 1};
    trm_status status = trm_tcp_connect_all(rank, size, options, t->streams);
    if (status != TRM_OK) {
        free(t);
        return status;
    }
    t->left[rank] = true;
    *transport = &t->base;
    return TRM_OK;
}
