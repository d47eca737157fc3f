/* Connects ranks: each first connects to rank 0, which then sends everyone the addresses of the others. */
#include "collectives/tcp_connect.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <trireme/layers.h>

#include "base/error.h"
#include "collectives/wait.h"

#define HELLO_MAGIC   0x54524d31u
#define PORT_SECONDS  3.0 /* for another process to release the port; if it does not, report that soon */
#define MOST_GUESTS   64  /* most connections that have not identified themselves */
#define GUEST_SECONDS 2.0 /* time for that, if others are waiting */

/* The first bytes of a connection. */
typedef struct hello {
    uint32_t magic;
    int32_t rank, size, stream;
    uint32_t port; /* where the rank listens */
} hello;

/* Where a rank listens, as rank 0 sees it. */
typedef struct place {
    struct sockaddr_storage address;
    socklen_t length;
} place;

typedef struct meeting {
    int32_t rank, size;
    int listener;
    uint16_t listens_at;
    double end; /* of the deadline */
    double deadline_seconds;
    int (*streams)[TRM_TCP_STREAMS];
} meeting;

static trm_status fail_late(const meeting *m, const char *what)
{
    return trm_fail(TRM_ERROR_LOST_RANK, "%s within %g s", what, m->deadline_seconds);
}

/* Whether `fd` is ready for `events` before the deadline. */
static bool wait_ready(int fd, short events, double end)
{
    for (;;) {
        double left = end - trm_wait_now();
        if (left <= 0) {
            return false;
        }
        struct pollfd entry = {.fd = fd, .events = events};
        int n = poll(&entry, 1, left > 1.0 ? 1000 : (int)(left * 1000) + 1);
        if (n > 0) {
            return true;
        }
        if (n < 0 && errno != EINTR) {
            return false;
        }
    }
}

/* Reads or writes all of `size` bytes; false at the deadline or if the peer is gone. */
static bool move_all(int fd, void *bytes, size_t size, bool write, double end)
{
    for (size_t at = 0; at < size;) {
        char *from = (char *)bytes + at;
        ssize_t n = write ? send(fd, from, size - at, MSG_NOSIGNAL) : recv(fd, from, size - at, 0);
        if (n > 0) {
            at += (size_t)n;
        } else if (n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) ||
                   !wait_ready(fd, write ? POLLOUT : POLLIN, end)) {
            return false;
        }
    }
    return true;
}

static void prepare(int fd)
{
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    fcntl(fd, F_SETFD, FD_CLOEXEC);
}

/* Retries while another process has the port: an earlier one may be about to release it. */
static bool listen_until(int fd, const struct sockaddr *address, socklen_t length, double end)
{
    for (bool bound = false;;) {
        bound = bound || bind(fd, address, length) == 0;
        if (bound && listen(fd, 256) == 0) {
            return true;
        }
        if (errno != EADDRINUSE || trm_wait_now() >= end) {
            return false;
        }
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
}

/* Port 0 takes any. */
static trm_status listen_at(meeting *m, uint16_t port)
{
    int on = 1, off = 0;
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons(port)};
    m->listener = socket(AF_INET6, SOCK_STREAM, 0);
    bool both = m->listener >= 0 && setsockopt(m->listener, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off)) == 0;
    if (!both) { /* no IPv6 here */
        if (m->listener >= 0) {
            close(m->listener);
        }
        m->listener = socket(AF_INET, SOCK_STREAM, 0);
    }
    setsockopt(m->listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    const struct sockaddr *address = both ? (const struct sockaddr *)&six : (const struct sockaddr *)&four;
    struct sockaddr_storage bound;
    socklen_t length = sizeof(bound);
    double end = trm_wait_now() + PORT_SECONDS;
    end = port == 0 ? 0 : end < m->end ? end : m->end;
    if (!listen_until(m->listener, address, both ? sizeof(six) : sizeof(four), end) ||
        getsockname(m->listener, (struct sockaddr *)&bound, &length) != 0) {
        TRM_FAIL(TRM_ERROR_IO, "rank %d cannot listen at port %d: %s", (int)m->rank, (int)port, strerror(errno));
    }
    prepare(m->listener);
    /* The port has the same offset in both kinds of address. */
    m->listens_at = ntohs(((struct sockaddr_in *)&bound)->sin_port);
    return TRM_OK;
}

bool trm_tcp_meets_itself(int fd)
{
    struct sockaddr_storage here, there;
    socklen_t here_size = sizeof(here), there_size = sizeof(there);
    memset(&here, 0, sizeof(here));
    memset(&there, 0, sizeof(there));
    return getsockname(fd, (struct sockaddr *)&here, &here_size) == 0 &&
           getpeername(fd, (struct sockaddr *)&there, &there_size) == 0 && here_size == there_size &&
           memcmp(&here, &there, here_size) == 0;
}

/* One attempt; -1 if nobody listens there (yet). */
static int connect_once(const struct sockaddr *address, socklen_t length, double end)
{
    int fd = socket(address->sa_family, SOCK_STREAM, 0);
    if (fd < 0) {
        return -1;
    }
    prepare(fd);
    int error = 0;
    socklen_t size = sizeof(error);
    if ((connect(fd, address, length) != 0 && errno != EINPROGRESS) || !wait_ready(fd, POLLOUT, end) ||
        getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0 || error != 0) {
        close(fd);
        return -1;
    }
    if (trm_tcp_meets_itself(fd)) {
        const struct linger at_once = {1, 0}; /* rank 0 is to listen there */
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
        close(fd);
        return -1;
    }
    return fd;
}

/* Opens both streams to `peer` and introduces this rank. */
static trm_status connect_streams(meeting *m, int32_t peer, const struct sockaddr *address, socklen_t length)
{
    for (int stream = 0; stream < TRM_TCP_STREAMS; stream++) {
        int fd = connect_once(address, length, m->end);
        hello mine = {HELLO_MAGIC, m->rank, m->size, stream, m->listens_at};
        if (fd < 0 || !move_all(fd, &mine, sizeof(mine), true, m->end)) {
            if (fd >= 0) {
                close(fd);
            }
            TRM_FAIL(TRM_ERROR_LOST_RANK, "rank %d cannot connect to rank %d", (int)m->rank, (int)peer);
        }
        m->streams[peer][stream] = fd;
    }
    return TRM_OK;
}

/* Rank 0 may start later than this rank, so this retries. */
static trm_status connect_to_first(meeting *m, const char *host, uint16_t port)
{
    char service[8];
    snprintf(service, sizeof(service), "%d", (int)port);
    double start = trm_wait_now();
    while (trm_wait_now() < m->end) {
        struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
        int error = getaddrinfo(host, service, &hints, &found);
        if (error != 0 && error != EAI_AGAIN) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot find the host of rank 0, %s: %s", host, gai_strerror(error));
        }
        for (struct addrinfo *at = found; at != NULL; at = at->ai_next) {
            int probe = connect_once(at->ai_addr, at->ai_addrlen, m->end);
            if (probe >= 0) {
                close(probe); /* sends nothing; rank 0 ignores it */
                trm_status status = connect_streams(m, 0, at->ai_addr, at->ai_addrlen);
                freeaddrinfo(found);
                return status;
            }
        }
        if (found != NULL) {
            freeaddrinfo(found);
        }
        trm_wait_pause(8 * (trm_wait_now() - start));
    }
    char what[256];
    snprintf(what, sizeof(what), "rank 0 did not answer at %s:%d", host, (int)port);
    return fail_late(m, what);
}

/* A connection that has not yet identified itself. */
typedef struct guest {
    int fd;
    place from;
    hello said;
    size_t n_said; /* bytes of it */
    double since;
} guest;

/* Connections of the listener, the oldest first. */
typedef struct guests {
    guest at[MOST_GUESTS];
    int32_t n;
} guests;

static void strike(guests *all, int32_t i)
{
    memmove(all->at + i, all->at + i + 1, (size_t)(--all->n - i) * sizeof(all->at[0]));
}

static void send_away(guests *all, int32_t i)
{
    close(all->at[i].fd);
    strike(all, i);
}

/* Whether another may connect: in place of the oldest, if it has stayed silent. */
static bool has_place(const guests *all)
{
    return all->n < MOST_GUESTS || trm_wait_now() - all->at[0].since > GUEST_SECONDS;
}

/* Accepts waiting connections. */
static void let_in(meeting *m, guests *all)
{
    guest one = {.from = {.length = sizeof(one.from.address)}, .since = trm_wait_now()};
    one.fd = accept(m->listener, (struct sockaddr *)&one.from.address, &one.from.length);
    if (one.fd < 0) {
        return;
    }
    prepare(one.fd);
    if (all->n == MOST_GUESTS) {
        send_away(all, 0);
    }
    all->at[all->n++] = one;
}

/* Takes over the connection of a rank that has identified itself. */
static trm_status seat(meeting *m, const guest *one, place *places)
{
    const hello *said = &one->said;
    if (said->size != m->size || said->rank >= m->size) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "rank %d has a job of %d ranks, expected %d", (int)said->rank,
                 (int)said->size, (int)m->size);
    }
    int *slot = &m->streams[said->rank][said->stream];
    if (*slot >= 0 || said->rank == m->rank) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "two processes have rank %d", (int)said->rank);
    }
    *slot = one->fd;
    if (places != NULL) {
        places[said->rank] = one->from;
        ((struct sockaddr_in *)&places[said->rank].address)->sin_port = htons((uint16_t)said->port);
    }
    return TRM_OK;
}

/* Reads from connection i; removes it if it is complete or wrong. *seated says whether it is a rank. */
static trm_status hear(meeting *m, guests *all, int32_t i, place *places, bool *seated)
{
    guest *one = &all->at[i];
    const hello *said = &one->said;
    *seated = false;
    ssize_t n = recv(one->fd, (char *)&one->said + one->n_said, sizeof(one->said) - one->n_said, 0);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
        return TRM_OK;
    }
    one->n_said += n > 0 ? (size_t)n : 0;
    if (n > 0 && one->n_said < sizeof(*said)) {
        return TRM_OK;
    }
    if (n <= 0 || said->magic != HELLO_MAGIC || said->stream < 0 || said->stream >= TRM_TCP_STREAMS || said->rank < 0) {
        send_away(all, i); /* a stranger */
        return TRM_OK;
    }
    TRM_TRY(seat(m, one, places));
    strike(all, i);
    *seated = true;
    return TRM_OK;
}

/* Accepts the connections of n_ranks ranks and rejects others. places: addresses of ranks; may be NULL. */
static trm_status accept_all(meeting *m, int32_t n_ranks, place *places)
{
    guests all = {.n = 0};
    trm_status status = TRM_OK;
    for (int32_t missing = n_ranks * TRM_TCP_STREAMS; missing > 0 && status == TRM_OK;) {
        const bool open = has_place(&all);
        const int longest = open ? 1000 : 100; /* ms */
        struct pollfd entries[MOST_GUESTS + 1] = {{.fd = open ? m->listener : -1, .events = POLLIN}};
        for (int32_t i = 0; i < all.n; i++) {
            entries[i + 1] = (struct pollfd){.fd = all.at[i].fd, .events = POLLIN};
        }
        double left = m->end - trm_wait_now();
        if (left <= 0) {
            status = fail_late(m, "not all ranks joined");
            break;
        }
        (void)poll(entries, (nfds_t)all.n + 1, left * 1000 > longest ? longest : (int)(left * 1000) + 1);
        for (int32_t i = all.n - 1; i >= 0 && status == TRM_OK; i--) { /* from the last, as those behind move up */
            bool seated = false;
            if (entries[i + 1].revents != 0) {
                status = hear(m, &all, i, places, &seated);
            }
            missing -= seated;
        }
        if (entries[0].revents != 0) {
            let_in(m, &all);
        }
    }
    while (all.n > 0) {
        send_away(&all, all.n - 1);
    }
    return status;
}

static trm_status meet(meeting *m, const char *host, uint16_t port)
{
    place places[TRM_MAX_RANKS];
    memset(places, 0, sizeof(places));
    size_t size = (size_t)m->size * sizeof(places[0]);
    TRM_TRY(listen_at(m, m->rank == 0 ? port : 0));
    if (m->rank == 0) {
        TRM_TRY(accept_all(m, m->size - 1, places));
        for (int32_t r = 1; r < m->size; r++) {
            if (!move_all(m->streams[r][TRM_TCP_DATA], places, size, true, m->end)) {
                TRM_FAIL(TRM_ERROR_LOST_RANK, "rank %d closed its connection", (int)r);
            }
        }
        return TRM_OK;
    }
    TRM_TRY(connect_to_first(m, host, port));
    if (!move_all(m->streams[0][TRM_TCP_DATA], places, size, false, m->end)) {
        return fail_late(m, "rank 0 did not send the addresses of the other ranks");
    }
    for (int32_t r = 1; r < m->rank; r++) {
        TRM_TRY(connect_streams(m, r, (struct sockaddr *)&places[r].address, places[r].length));
    }
    return accept_all(m, m->size - 1 - m->rank, NULL);
}

trm_status trm_tcp_connect_all(int32_t rank, int32_t size, const char *host, uint16_t port, double deadline_seconds,
                               int (*streams)[TRM_TCP_STREAMS])
{
    meeting m = {.rank = rank, .size = size, .listener = -1, .deadline_seconds = deadline_seconds, .streams = streams};
    m.end = trm_wait_now() + deadline_seconds;
    for (int32_t r = 0; r < size; r++) {
        streams[r][TRM_TCP_DATA] = streams[r][TRM_TCP_CONTROL] = -1;
    }
    trm_status status = meet(&m, host, port);
    if (m.listener >= 0) {
        close(m.listener);
    }
    for (int32_t i = 0; status != TRM_OK && i < size * TRM_TCP_STREAMS; i++) {
        int *fd = &streams[i / TRM_TCP_STREAMS][i % TRM_TCP_STREAMS];
        if (*fd >= 0) {
            close(*fd);
            *fd = -1;
        }
    }
    return status;
}
