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

#include <trireme/layers/common.h>

#include "base/error.h"
#include "base/log.h"
#include "collectives/tcp_greeting.h"
#include "collectives/wait.h"

#define PORT_SECONDS  3.0 /* for another process to release the port; if it does not, report that soon */
#define MOST_GUESTS   64  /* most connections that have not identified themselves */
#define GUEST_SECONDS 2.0 /* time for that, if others are waiting */

/* Where a rank listens, as rank 0 sees it. */
typedef struct place {
    struct sockaddr_storage address;
    socklen_t length;
} place;

typedef struct meeting {
    int32_t rank, size;
    const trm_tcp_options *options;
    int listener;
    uint16_t listens_at;
    double end; /* of the deadline */
    int (*streams)[TRM_TCP_STREAMS];
} meeting;

static trm_status fail_late(const meeting *m, const char *what)
{
    return trm_fail(TRM_ERROR_LOST_RANK, "%s within %g s", what, m->options->deadline_seconds);
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

/* Listens at an address, port 0 takes any. Returns false if that is not possible there; then errno says why. */
static bool listen_at(meeting *m, const struct sockaddr *address, socklen_t length, bool any_port)
{
    int on = 1, off = 0;
    struct sockaddr_storage bound;
    socklen_t size = sizeof(bound);
    double end = trm_wait_now() + PORT_SECONDS;
    end = any_port ? 0 : end < m->end ? end : m->end;
    int fd = socket(address->sa_family, SOCK_STREAM, 0);
    if (fd < 0) {
        return false;
    }
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (address->sa_family == AF_INET6) {
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    }
    if (!listen_until(fd, address, length, end) || getsockname(fd, (struct sockaddr *)&bound, &size) != 0) {
        const int cause = errno;
        close(fd);
        errno = cause;
        return false;
    }
    prepare(fd);
    m->listener = fd;
    m->listens_at = ntohs(((struct sockaddr_in *)&bound)->sin_port); /* at the same offset in IPv6 */
    return true;
}

/* Listens at all addresses of this host, of both kinds where there is IPv6. */
static bool listen_everywhere(meeting *m, uint16_t port)
{
    const struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    const struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons(port)};
    return listen_at(m, (const struct sockaddr *)&six, sizeof(six), false) ||
           (errno != EADDRINUSE && listen_at(m, (const struct sockaddr *)&four, sizeof(four), false));
}

static bool is_loopback(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET) {
        return ntohl(((const struct sockaddr_in *)(const void *)address)->sin_addr.s_addr) >> 24 == 127;
    }
    return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)address)->sin6_addr);
}

/* The addresses of rank 0's host; to be freed by freeaddrinfo. Waits for a name that is not known yet: in a cluster's
 * name service that of a pod appears once the pod has an address. */
static trm_status find_first(const meeting *m, struct addrinfo **found)
{
    char service[8];
    snprintf(service, sizeof(service), "%d", (int)m->options->port);
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    int error;
    *found = NULL;
    while (((error = getaddrinfo(m->options->host, service, &hints, found)) == EAI_AGAIN || error == EAI_NONAME) &&
           trm_wait_now() < m->end) {
        nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    }
    if (error != 0) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot find the host of rank 0, %s: %s", m->options->host,
                 gai_strerror(error));
    }
    return TRM_OK;
}

/* Rank 0 listens at the address that all ranks were given. It listens everywhere if that address is not one of this
 * host, as behind a service's address, or if its own name means the loopback device here and there are other hosts. */
static trm_status listen_as_first(meeting *m)
{
    struct addrinfo *found;
    TRM_TRY(find_first(m, &found));
    bool local = false, listens = false, everywhere = false;
    for (struct addrinfo *at = found; at != NULL && !listens; at = at->ai_next) {
        local = is_loopback(at->ai_addr);
        everywhere = local && m->options->several_hosts;
        listens =
            everywhere ? listen_everywhere(m, m->options->port) : listen_at(m, at->ai_addr, at->ai_addrlen, false);
    }
    if (!listens && errno == EADDRNOTAVAIL) {
        everywhere = true;
        listens = listen_everywhere(m, m->options->port);
    }
    const int cause = errno;
    freeaddrinfo(found);
    if (!listens) {
        TRM_FAIL(TRM_ERROR_IO, "rank 0 cannot listen at %s, port %d: %s", m->options->host, (int)m->options->port,
                 strerror(cause));
    }
    if (m->options->secret == NULL && (everywhere || !local)) {
        trm_log(TRM_LOG_WARNING,
                "ranks meet at %s, port %d, without a secret: whoever reaches it can join the job (TRIREME_SECRET)",
                m->options->host, (int)m->options->port);
    }
    return TRM_OK;
}

/* Another rank listens at the address from which it reaches rank 0, over the connection `fd`. */
static trm_status listen_beside(meeting *m, int fd)
{
    struct sockaddr_storage own;
    socklen_t size = sizeof(own);
    bool known = getsockname(fd, (struct sockaddr *)&own, &size) == 0;
    if (known) {
        ((struct sockaddr_in *)&own)->sin_port = 0;
    }
    if (!known || !listen_at(m, (const struct sockaddr *)&own, size, true)) {
        TRM_FAIL(TRM_ERROR_IO, "rank %d cannot listen for other ranks: %s", (int)m->rank, strerror(errno));
    }
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

/* What the peer's verdict means. */
static trm_status fail_refused(const meeting *m, int32_t peer, const trm_tcp_welcome *reply)
{
    switch (reply->verdict) {
    case TRM_TCP_WRONG_SIZE:
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "rank %d has a job of %d ranks, but rank %d one of %d", (int)m->rank,
                 (int)m->size, (int)peer, (int)reply->size);
    case TRM_TCP_RANK_TAKEN:
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "two processes have rank %d", (int)m->rank);
    default:
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "rank %d and rank %d have different secrets: TRIREME_SECRET must be the same on all ranks",
                 (int)m->rank, (int)peer);
    }
}

/* Introduces this rank on a connection to `peer`. */
static trm_status greet(const meeting *m, int32_t peer, int fd, int stream)
{
    trm_tcp_hello hello = {TRM_TCP_MAGIC, m->rank, m->size, stream, m->listens_at, {{0}}};
    trm_tcp_challenge challenge;
    trm_tcp_welcome reply;
    TRM_TRY(trm_tcp_make_nonce(&hello.nonce));
    bool heard = move_all(fd, &hello, sizeof(hello), true, m->end) &&
                 move_all(fd, &challenge, sizeof(challenge), false, m->end) && challenge.magic == TRM_TCP_MAGIC;
    if (heard) {
        trm_tcp_proof proof = trm_tcp_prove(m->options->secret, TRM_TCP_CONNECTS, &hello, &challenge);
        heard = move_all(fd, &proof, sizeof(proof), true, m->end) && move_all(fd, &reply, sizeof(reply), false, m->end);
    }
    if (!heard) {
        TRM_FAIL(TRM_ERROR_LOST_RANK, "rank %d cannot connect to rank %d", (int)m->rank, (int)peer);
    }
    trm_tcp_proof expected = trm_tcp_prove(m->options->secret, TRM_TCP_ACCEPTS, &hello, &challenge);
    if (reply.verdict != TRM_TCP_WELCOME || !trm_tcp_same_proof(&reply.proof, &expected)) {
        return fail_refused(m, peer, &reply);
    }
    return TRM_OK;
}

/* Opens both streams to `peer`. */
static trm_status connect_streams(meeting *m, int32_t peer, const struct sockaddr *address, socklen_t length)
{
    for (int stream = 0; stream < TRM_TCP_STREAMS; stream++) {
        int fd = connect_once(address, length, m->end);
        if (fd < 0) {
            TRM_FAIL(TRM_ERROR_LOST_RANK, "rank %d cannot connect to rank %d", (int)m->rank, (int)peer);
        }
        trm_status status = greet(m, peer, fd, stream);
        if (status != TRM_OK) {
            close(fd);
            return status;
        }
        m->streams[peer][stream] = fd;
    }
    return TRM_OK;
}

/* Rank 0 may start later than this rank, so this retries. */
static trm_status connect_to_first(meeting *m)
{
    double start = trm_wait_now();
    while (trm_wait_now() < m->end) {
        struct addrinfo *found;
        TRM_TRY(find_first(m, &found));
        for (struct addrinfo *at = found; at != NULL; at = at->ai_next) {
            int probe = connect_once(at->ai_addr, at->ai_addrlen, m->end);
            if (probe >= 0) {
                trm_status status = listen_beside(m, probe);
                close(probe); /* sends nothing; rank 0 ignores it */
                if (status == TRM_OK) {
                    status = connect_streams(m, 0, at->ai_addr, at->ai_addrlen);
                }
                freeaddrinfo(found);
                return status;
            }
        }
        freeaddrinfo(found);
        trm_wait_pause(8 * (trm_wait_now() - start), TRM_WAIT_YIELDS);
    }
    char what[256];
    snprintf(what, sizeof(what), "rank 0 did not answer at %s:%d", m->options->host, (int)m->options->port);
    return fail_late(m, what);
}

/* A connection that has not yet identified itself. */
typedef struct guest {
    int fd;
    place from;
    trm_tcp_hello hello;
    trm_tcp_challenge challenge; /* sent when the hello is there */
    trm_tcp_proof proof;
    size_t n_heard; /* bytes of hello and proof */
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

/* The verdict on a connection that has sent its proof. */
static trm_tcp_verdict judge(const meeting *m, const guest *one)
{
    const trm_tcp_hello *hello = &one->hello;
    trm_tcp_proof expected = trm_tcp_prove(m->options->secret, TRM_TCP_CONNECTS, hello, &one->challenge);
    if (!trm_tcp_same_proof(&one->proof, &expected)) {
        trm_log(TRM_LOG_WARNING, "rank %d refused a connection as rank %d that does not know the job's secret",
                (int)m->rank, (int)hello->rank);
        return TRM_TCP_WRONG_SECRET;
    }
    if (hello->size != m->size || hello->rank >= m->size) {
        trm_log(TRM_LOG_WARNING, "rank %d refused rank %d of a job of %d ranks, expected %d", (int)m->rank,
                (int)hello->rank, (int)hello->size, (int)m->size);
        return TRM_TCP_WRONG_SIZE;
    }
    if (m->streams[hello->rank][hello->stream] >= 0 || hello->rank == m->rank) {
        trm_log(TRM_LOG_WARNING, "rank %d refused a second process with rank %d", (int)m->rank, (int)hello->rank);
        return TRM_TCP_RANK_TAKEN;
    }
    return TRM_TCP_WELCOME;
}

/* Takes over the connection of a rank, or sends it away. */
static bool seat(meeting *m, guest *one, place *places)
{
    const trm_tcp_hello *hello = &one->hello;
    trm_tcp_welcome reply = {.verdict = judge(m, one)};
    reply.size = reply.verdict == TRM_TCP_WRONG_SECRET ? 0 : m->size;
    if (reply.verdict == TRM_TCP_WELCOME) {
        reply.proof = trm_tcp_prove(m->options->secret, TRM_TCP_ACCEPTS, hello, &one->challenge);
    }
    bool sent = send(one->fd, &reply, sizeof(reply), MSG_NOSIGNAL) == (ssize_t)sizeof(reply);
    if (!sent || reply.verdict != TRM_TCP_WELCOME) {
        return false;
    }
    m->streams[hello->rank][hello->stream] = one->fd;
    if (places != NULL) {
        places[hello->rank] = one->from;
        ((struct sockaddr_in *)&places[hello->rank].address)->sin_port = htons((uint16_t)hello->port);
    }
    return true;
}

/* Sends the challenge to a connection whose hello is complete; false: it is a stranger. */
static bool challenge_guest(guest *one)
{
    const trm_tcp_hello *hello = &one->hello;
    one->challenge.magic = TRM_TCP_MAGIC;
    return hello->magic == TRM_TCP_MAGIC && hello->stream >= 0 && hello->stream < TRM_TCP_STREAMS && hello->rank >= 0 &&
           trm_tcp_make_nonce(&one->challenge.nonce) == TRM_OK &&
           send(one->fd, &one->challenge, sizeof(one->challenge), MSG_NOSIGNAL) == (ssize_t)sizeof(one->challenge);
}

/* Reads from connection i; removes it if it is complete or wrong. Returns whether it is a rank now. */
static bool hear(meeting *m, guests *all, int32_t i, place *places)
{
    guest *one = &all->at[i];
    const bool greets = one->n_heard < sizeof(one->hello);
    const size_t at = greets ? one->n_heard : one->n_heard - sizeof(one->hello);
    const size_t size = greets ? sizeof(one->hello) : sizeof(one->proof);
    ssize_t n = recv(one->fd, (greets ? (char *)&one->hello : (char *)&one->proof) + at, size - at, 0);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
        return false;
    }
    one->n_heard += n > 0 ? (size_t)n : 0;
    const bool complete = n > 0 && at + (size_t)n == size;
    if (n > 0 && (!complete || (greets && challenge_guest(one)))) {
        return false;
    }
    if (complete && !greets && seat(m, one, places)) {
        strike(all, i);
        return true;
    }
    send_away(all, i);
    return false;
}

/* Accepts the connections of n_ranks ranks and rejects others. places: addresses of ranks; may be NULL. */
static trm_status accept_all(meeting *m, int32_t n_ranks, place *places)
{
    guests all = {.n = 0};
    trm_status status = TRM_OK;
    for (int32_t missing = n_ranks * TRM_TCP_STREAMS; missing > 0;) {
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
        for (int32_t i = all.n - 1; i >= 0; i--) { /* from the last, as those behind move up */
            missing -= entries[i + 1].revents != 0 && hear(m, &all, i, places);
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

static trm_status meet(meeting *m)
{
    place places[TRM_MAX_RANKS];
    memset(places, 0, sizeof(places));
    size_t size = (size_t)m->size * sizeof(places[0]);
    if (m->rank == 0) {
        TRM_TRY(listen_as_first(m));
        TRM_TRY(accept_all(m, m->size - 1, places));
        for (int32_t r = 1; r < m->size; r++) {
            if (!move_all(m->streams[r][TRM_TCP_DATA], places, size, true, m->end)) {
                TRM_FAIL(TRM_ERROR_LOST_RANK, "rank %d closed its connection", (int)r);
            }
        }
        return TRM_OK;
    }
    TRM_TRY(connect_to_first(m));
    if (!move_all(m->streams[0][TRM_TCP_DATA], places, size, false, m->end)) {
        return fail_late(m, "rank 0 did not send the addresses of the other ranks");
    }
    for (int32_t r = 1; r < m->rank; r++) {
        TRM_TRY(connect_streams(m, r, (struct sockaddr *)&places[r].address, places[r].length));
    }
    return accept_all(m, m->size - 1 - m->rank, NULL);
}

trm_status trm_tcp_connect_all(int32_t rank, int32_t size, const trm_tcp_options *options,
                               int (*streams)[TRM_TCP_STREAMS])
{
    meeting m = {.rank = rank, .size = size, .options = options, .listener = -1, .streams = streams};
    m.end = trm_wait_now() + options->deadline_seconds;
    for (int32_t r = 0; r < size; r++) {
        streams[r][TRM_TCP_DATA] = streams[r][TRM_TCP_CONTROL] = -1;
    }
    trm_status status = meet(&m);
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
