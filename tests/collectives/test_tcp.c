/* The TCP transport between threads of this process, over the loop device. */
#include "support/support.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "cases.h"
#include "collectives/tcp_connect.h"
#include "collectives/tcp_greeting.h"
#include "collectives/transport.h"

typedef struct tcp_rank {
    pthread_t thread;
    int32_t rank, size, claims; /* the size this rank believes in */
    uint16_t port;
    double deadline;
    const char *secret;
    void (*fn)(struct tcp_rank *rank, trm_communicator *communicator);
    trm_status status;
    char cause[512];
    case_result result;
} tcp_rank;

/* A port that nobody listens at. Processes that choose at the same time choose apart, and none of what the system gives
 * out by itself (from 32768 on). */
static uint16_t free_port(void)
{
    static int n;
    for (;;) {
        const int on = 1, port = 10000 + (getpid() * 16 + n++) % 22000;
        struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)), 0);
        bool free = bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0 && listen(fd, 1) == 0;
        close(fd);
        if (free) {
            return (uint16_t)port;
        }
    }
}

static trm_tcp_options options_at(uint16_t port, const char *secret, double deadline)
{
    return (trm_tcp_options){.host = "127.0.0.1", .port = port, .secret = secret, .deadline_seconds = deadline};
}

static void *run_tcp_rank(void *argument)
{
    tcp_rank *rank = argument;
    trm_transport *transport = NULL;
    trm_communicator *communicator = NULL;
    const trm_tcp_options options = options_at(rank->port, rank->secret, rank->deadline);
    rank->status = trm_transport_tcp_create(rank->rank, rank->claims, &options, &transport);
    if (rank->status == TRM_OK) {
        rank->status = trm_communicator_pairwise_create(transport, rank->deadline, &communicator);
        trm_transport_release(transport);
    }
    if (rank->status == TRM_OK) {
        rank->fn(rank, communicator);
    }
    snprintf(rank->cause, sizeof(rank->cause), "%s", trm_last_error());
    trm_communicator_destroy(communicator);
    return NULL;
}

/* Starts ranks 0 .. started - 1 of `size`, and waits for them. */
static void run_tcp(tcp_rank *ranks, int32_t started, int32_t size, double deadline,
                    void (*fn)(tcp_rank *rank, trm_communicator *communicator))
{
    uint16_t port = free_port();
    for (int32_t r = 0; r < started; r++) {
        int32_t claims = ranks[r].claims != 0 ? ranks[r].claims : size;
        ranks[r] = (tcp_rank){.rank = r,
                              .size = size,
                              .claims = claims,
                              .port = port,
                              .deadline = deadline,
                              .secret = ranks[r].secret,
                              .fn = fn};
        assert_int_equal(pthread_create(&ranks[r].thread, NULL, run_tcp_rank, &ranks[r]), 0);
    }
    for (int32_t r = 0; r < started; r++) {
        pthread_join(ranks[r].thread, NULL);
    }
}

static void all_cases(tcp_rank *rank, trm_communicator *c)
{
    static const size_t counts[] = {37};
    case_setup setup = {NULL, NULL, counts, 1, &rank->result};
    case_run_groups(c, &setup);
    trm_exchange large = {TRM_ALL_TO_ALL, TRM_REDUCE_NONE, TRM_U64, NULL,
                          NULL,           100001,          0}; /* more than a socket buffers */
    case_run(c, &setup, large, false);
}

static void test_cases(void **state)
{
    (void)state;
    for (int32_t n = 2; n <= 4; n++) {
        tcp_rank ranks[4] = {{0}};
        run_tcp(ranks, n, n, 30.0, all_cases);
        for (int32_t r = 0; r < n; r++) {
            if (ranks[r].status != TRM_OK || ranks[r].result.failed > 0) {
                fail_msg("rank %d: %s %s", (int)r, ranks[r].cause, ranks[r].result.why);
            }
            assert_true(ranks[r].result.run > 100);
        }
    }
}

static void never(tcp_rank *rank, trm_communicator *c)
{
    (void)c;
    rank->status = TRM_ERROR_INTERNAL;
}

static void test_rank_that_does_not_join(void **state)
{
    (void)state;
    tcp_rank ranks[3] = {{0}};
    run_tcp(ranks, 2, 3, 0.5, never);
    assert_int_equal(ranks[0].status, TRM_ERROR_LOST_RANK);
    assert_non_null(strstr(ranks[0].cause, "not all ranks joined within 0.5 s"));
    assert_int_equal(ranks[1].status, TRM_ERROR_LOST_RANK);
}

static void test_sizes_that_differ(void **state)
{
    (void)state;
    tcp_rank ranks[2] = {{.claims = 2}, {.claims = 3}};
    run_tcp(ranks, 2, 2, 1.0, never);
    assert_int_equal(ranks[0].status, TRM_ERROR_LOST_RANK); /* its own rank 1 might have come */
    assert_non_null(strstr(ranks[0].cause, "not all ranks joined within 1 s"));
    assert_int_equal(ranks[1].status, TRM_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(ranks[1].cause, "rank 1 has a job of 3 ranks, but rank 0 one of 2"));
}

/* Only who has the job's secret, or none where it has none, can join. */
static void test_secrets(void **state)
{
    (void)state;
    static const char *const rows[][2] = {{"secret", "secret"}, {NULL, NULL},     {"secret", "Secret"},
                                          {"secret", NULL},     {NULL, "secret"}, {"a", "ab"}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const bool same = i < 2;
        tcp_rank ranks[3] = {{.secret = rows[i][0]}, {.secret = rows[i][1]}, {.secret = rows[i][1]}};
        run_tcp(ranks, same ? 3 : 2, same ? 3 : 2, same ? 30.0 : 0.5, same ? all_cases : never);
        if (!same) {
            assert_int_equal(ranks[0].status, TRM_ERROR_LOST_RANK);
            assert_int_equal(ranks[1].status, TRM_ERROR_INVALID_ARGUMENT);
            assert_non_null(strstr(ranks[1].cause, "rank 1 and rank 0 have different secrets"));
            continue;
        }
        for (int32_t r = 0; r < 3; r++) {
            assert_int_equal(ranks[r].status, TRM_OK);
        }
    }
}

/* Rank 1 leaves before the exchange: at once a failure, with no deadline to wait for. */
static void rank_1_leaves(tcp_rank *rank, trm_communicator *c)
{
    float value = 1.0f;
    trm_exchange x = {TRM_ALL_REDUCE, TRM_REDUCE_SUM, TRM_F32, &value, &value, 1, 0};
    rank->status = rank->rank == 1 ? TRM_OK : trm_communicator_exchange(c, &x, NULL);
}

static void test_rank_that_leaves(void **state)
{
    (void)state;
    tcp_rank ranks[2] = {{0}};
    run_tcp(ranks, 2, 2, 60.0, rank_1_leaves);
    assert_int_equal(ranks[0].status, TRM_ERROR_LOST_RANK);
    assert_non_null(strstr(ranks[0].cause, "rank 1 closed its connection"));
}

static void rank_1_gives_up(tcp_rank *rank, trm_communicator *c)
{
    float value = 1.0f;
    trm_exchange x = {TRM_ALL_REDUCE, TRM_REDUCE_SUM, TRM_F32, &value, &value, 1, 0};
    if (rank->rank == 1) {
        trm_communicator_abort(c);
    }
    rank->status = trm_communicator_exchange(c, &x, NULL);
}

static void test_rank_that_gives_up(void **state)
{
    (void)state;
    tcp_rank ranks[2] = {{0}};
    run_tcp(ranks, 2, 2, 60.0, rank_1_gives_up);
    assert_int_equal(ranks[0].status, TRM_ERROR_LOST_RANK);
    assert_non_null(strstr(ranks[0].cause, "rank 1 failed: lost rank: gave up"));
    assert_non_null(strstr(ranks[1].cause, "gave up"));
}

static void test_host_that_is_not(void **state)
{
    (void)state;
    trm_transport *transport;
    trm_tcp_options options = options_at(29500, NULL, 1.0);
    assert_fails(trm_transport_tcp_create(2, 2, &options, &transport), TRM_ERROR_INVALID_ARGUMENT, "rank 2 of 2");
    options.host = "no-such-host.invalid";
    assert_fails(trm_transport_tcp_create(1, 2, &options, &transport), TRM_ERROR_INVALID_ARGUMENT,
                 "cannot find the host of rank 0, no-such-host.invalid");
}

typedef struct only_rank {
    uint16_t port;
    trm_status status;
} only_rank;

static void *join_alone(void *argument)
{
    only_rank *rank = argument;
    int streams[1][TRM_TCP_STREAMS];
    const trm_tcp_options options = options_at(rank->port, NULL, 600.0);
    rank->status = trm_tcp_connect_all(0, 1, &options, streams);
    return NULL;
}

/* A port that another has: waited for until it is free, or until the deadline. */
/* Strangers that connect and stay silent, or say a part of something: ranks that come later are met at once, and one
 * whose greeting comes late in two pieces as well. */
typedef struct strangers {
    uint16_t port;
    int fds[80]; /* more than are listened to at a time */
} strangers;

static void connect_strangers(strangers *all)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(all->port)};
    inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    for (size_t i = 0; i < sizeof(all->fds) / sizeof(all->fds[0]); i++) {
        do {
            all->fds[i] = socket(AF_INET, SOCK_STREAM, 0);
            if (connect(all->fds[i], (struct sockaddr *)&address, sizeof(address)) == 0) {
                break;
            }
            close(all->fds[i]); /* rank 0 does not listen yet */
            usleep(1000);
        } while (true);
        if (i % 2 == 0) {
            (void)!send(all->fds[i], "2MRT", 4, MSG_NOSIGNAL);
        }
    }
}

static void nothing_more(tcp_rank *rank, trm_communicator *c)
{
    (void)rank;
    (void)c;
}

static double seconds_now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static void test_silent_strangers(void **state)
{
    (void)state;
    tcp_rank ranks[2] = {{0}};
    strangers all = {.port = free_port()};
    for (int32_t r = 0; r < 2; r++) {
        ranks[r] =
            (tcp_rank){.rank = r, .size = 2, .claims = 2, .port = all.port, .deadline = 60.0, .fn = nothing_more};
    }
    assert_int_equal(pthread_create(&ranks[0].thread, NULL, run_tcp_rank, &ranks[0]), 0);
    connect_strangers(&all);
    const double began = seconds_now();
    assert_int_equal(pthread_create(&ranks[1].thread, NULL, run_tcp_rank, &ranks[1]), 0);
    for (int32_t r = 0; r < 2; r++) {
        pthread_join(ranks[r].thread, NULL);
        assert_int_equal(ranks[r].status, TRM_OK);
    }
    assert_true(seconds_now() - began < 10.0); /* two seconds for each would be 160 */
    for (size_t i = 0; i < sizeof(all.fds) / sizeof(all.fds[0]); i++) {
        close(all.fds[i]);
    }
}

/* Connects to rank 0 and sends a hello. */
static int say_hello(uint16_t port, const trm_tcp_hello *hello)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    for (;;) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0) {
            assert_int_equal(send(fd, hello, sizeof(*hello), MSG_NOSIGNAL), sizeof(*hello));
            return fd;
        }
        close(fd); /* rank 0 does not listen yet */
        usleep(1000);
    }
}

/* Answers the challenge; the verdict. */
static trm_tcp_verdict answer(int fd, const trm_tcp_hello *hello, const char *secret)
{
    trm_tcp_challenge challenge;
    trm_tcp_welcome reply;
    assert_int_equal(recv(fd, &challenge, sizeof(challenge), MSG_WAITALL), sizeof(challenge));
    trm_tcp_proof proof = trm_tcp_prove(secret, TRM_TCP_CONNECTS, hello, &challenge);
    assert_int_equal(send(fd, &proof, sizeof(proof), MSG_NOSIGNAL), sizeof(proof));
    assert_int_equal(recv(fd, &reply, sizeof(reply), MSG_WAITALL), sizeof(reply));
    proof = trm_tcp_prove(secret, TRM_TCP_ACCEPTS, hello, &challenge);
    assert_int_equal(trm_tcp_same_proof(&reply.proof, &proof), reply.verdict == TRM_TCP_WELCOME);
    return (trm_tcp_verdict)reply.verdict;
}

/* A rank that stalls before its greeting, for longer than strangers used to be waited for, and sends it in pieces. */
static void test_slow_greeting(void **state)
{
    (void)state;
    tcp_rank first = {.rank = 0, .size = 2, .claims = 2, .port = free_port(), .deadline = 60.0, .fn = nothing_more};
    strangers all = {.port = first.port};
    assert_int_equal(pthread_create(&first.thread, NULL, run_tcp_rank, &first), 0);
    connect_strangers(&all);
    usleep(2500000);
    for (int i = 0; i < 2; i++) {
        int fd = all.fds[77 + 2 * i]; /* of the last, which are there still, those that have said nothing */
        const trm_tcp_hello hello = {TRM_TCP_MAGIC, 1, 2, i, 1, {{0}}};
        assert_int_equal(send(fd, &hello, 5, MSG_NOSIGNAL), 5);
        usleep(50000);
        assert_int_equal(send(fd, (const char *)&hello + 5, sizeof(hello) - 5, MSG_NOSIGNAL), sizeof(hello) - 5);
        assert_int_equal(answer(fd, &hello, NULL), TRM_TCP_WELCOME);
    }
    pthread_join(first.thread, NULL);
    assert_int_equal(first.status, TRM_OK);
    for (size_t i = 0; i < sizeof(all.fds) / sizeof(all.fds[0]); i++) {
        close(all.fds[i]);
    }
}

/* Others than the ranks are refused while rank 0 waits: without the secret, of another job, of a rank that is there, or
 * with what another has said before. */
static void test_refusals(void **state)
{
    (void)state;
    tcp_rank ranks[2];
    const uint16_t port = free_port();
    for (int32_t r = 0; r < 2; r++) {
        ranks[r] = (tcp_rank){
            .rank = r, .size = 2, .claims = 2, .port = port, .deadline = 60.0, .secret = "secret", .fn = nothing_more};
    }
    assert_int_equal(pthread_create(&ranks[0].thread, NULL, run_tcp_rank, &ranks[0]), 0);
    const struct {
        trm_tcp_hello hello;
        const char *secret;
        trm_tcp_verdict verdict;
    } rows[] = {{{TRM_TCP_MAGIC, 1, 2, 0, 4242, {{0}}}, NULL, TRM_TCP_WRONG_SECRET},
                {{TRM_TCP_MAGIC, 1, 2, 1, 4242, {{1}}}, "secre", TRM_TCP_WRONG_SECRET},
                {{TRM_TCP_MAGIC, 9, 9, 0, 1, {{0}}}, NULL, TRM_TCP_WRONG_SECRET},
                {{TRM_TCP_MAGIC, 9, 9, 0, 1, {{0}}}, "secret", TRM_TCP_WRONG_SIZE},
                {{TRM_TCP_MAGIC, 1, 3, 0, 1, {{0}}}, "secret", TRM_TCP_WRONG_SIZE},
                {{TRM_TCP_MAGIC, 0, 2, 0, 1, {{0}}}, "secret", TRM_TCP_RANK_TAKEN}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        int fd = say_hello(port, &rows[i].hello);
        assert_int_equal(answer(fd, &rows[i].hello, rows[i].secret), rows[i].verdict);
        char byte;
        assert_int_equal(recv(fd, &byte, 1, MSG_WAITALL), 0); /* and sent away */
        close(fd);
    }
    /* A proof made for another challenge. */
    const trm_tcp_hello hello = {TRM_TCP_MAGIC, 1, 2, 0, 1, {{0}}};
    trm_tcp_challenge challenge[2];
    trm_tcp_welcome reply;
    int fds[2];
    for (int i = 0; i < 2; i++) {
        fds[i] = say_hello(port, &hello);
        assert_int_equal(recv(fds[i], &challenge[i], sizeof(challenge[i]), MSG_WAITALL), sizeof(challenge[i]));
    }
    trm_tcp_proof proof = trm_tcp_prove("secret", TRM_TCP_CONNECTS, &hello, &challenge[0]);
    assert_int_equal(send(fds[1], &proof, sizeof(proof), MSG_NOSIGNAL), sizeof(proof));
    assert_int_equal(recv(fds[1], &reply, sizeof(reply), MSG_WAITALL), sizeof(reply));
    assert_int_equal(reply.verdict, TRM_TCP_WRONG_SECRET);
    close(fds[0]);
    close(fds[1]);
    assert_int_equal(pthread_create(&ranks[1].thread, NULL, run_tcp_rank, &ranks[1]), 0);
    for (int32_t r = 0; r < 2; r++) {
        pthread_join(ranks[r].thread, NULL);
        assert_int_equal(ranks[r].status, TRM_OK);
    }
}

/* Rank 0 listens at the address it was given and at no other. */
static void test_listens_at_its_address(void **state)
{
    (void)state;
    tcp_rank first = {.rank = 0, .size = 2, .claims = 2, .port = free_port(), .deadline = 60.0, .fn = nothing_more};
    assert_int_equal(pthread_create(&first.thread, NULL, run_tcp_rank, &first), 0);
    const trm_tcp_hello hello = {TRM_TCP_MAGIC, 1, 2, 0, 1, {{0}}};
    int fds[2] = {say_hello(first.port, &hello), -1};
    struct sockaddr_in other = {.sin_family = AF_INET, .sin_port = htons(first.port)};
    inet_pton(AF_INET, "127.0.0.2", &other.sin_addr);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&other, sizeof(other)), -1);
    close(fd);
    assert_int_equal(answer(fds[0], &hello, NULL), TRM_TCP_WELCOME);
    const trm_tcp_hello second = {TRM_TCP_MAGIC, 1, 2, 1, 1, {{0}}};
    fds[1] = say_hello(first.port, &second);
    assert_int_equal(answer(fds[1], &second, NULL), TRM_TCP_WELCOME);
    pthread_join(first.thread, NULL);
    assert_int_equal(first.status, TRM_OK);
    close(fds[0]);
    close(fds[1]);
}

static void test_port_in_use(void **state)
{
    (void)state;
    int streams[1][TRM_TCP_STREAMS], holder = socket(AF_INET, SOCK_STREAM, 0);
    only_rank rank = {.port = free_port()};
    const struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(rank.port)};
    assert_int_equal(setsockopt(holder, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int)), 0);
    assert_int_equal(bind(holder, (const struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(listen(holder, 1), 0);
    const trm_tcp_options options = options_at(rank.port, NULL, 0.1);
    assert_fails(trm_tcp_connect_all(0, 1, &options, streams), TRM_ERROR_IO, "Address already in use");
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, join_alone, &rank), 0);
    usleep(100000);
    close(holder);
    pthread_join(thread, NULL);
    assert_int_equal(rank.status, TRM_OK);
}

/* The system gives out the port that is connected to: here the test asks for it, elsewhere chance does. */
static void test_connection_to_itself(void **state)
{
    (void)state;
    for (int listens = 0; listens < 2; listens++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0), listener = socket(AF_INET, SOCK_STREAM, 0);
        const int bound = listens ? listener : fd;
        struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
        socklen_t size = sizeof(address);
        assert_int_equal(bind(bound, (struct sockaddr *)&address, size), 0);
        assert_int_equal(getsockname(bound, (struct sockaddr *)&address, &size), 0);
        if (listens) {
            assert_int_equal(listen(listener, 1), 0);
        }
        assert_false(trm_tcp_meets_itself(fd));
        assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
        assert_int_equal(trm_tcp_meets_itself(fd), !listens);
        close(fd);
        close(listener);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),
        cmocka_unit_test(test_rank_that_does_not_join),
        cmocka_unit_test(test_sizes_that_differ),
        cmocka_unit_test(test_secrets),
        cmocka_unit_test(test_rank_that_leaves),
        cmocka_unit_test(test_rank_that_gives_up),
        cmocka_unit_test(test_host_that_is_not),
        cmocka_unit_test(test_silent_strangers),
        cmocka_unit_test(test_slow_greeting),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_listens_at_its_address),
        cmocka_unit_test(test_port_in_use),
        cmocka_unit_test(test_connection_to_itself),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
