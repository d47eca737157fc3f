/* Connections that wait for their client for too long, or that one client has too many of, are closed; others stay. */
#include "launcher/serve/http/connections.h"
#include "support/support.h"

#include <poll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define N 8

static connections *all;
static int ours[N], theirs[N];
static open_connection *places[N];

static void open_all(int32_t max_waiting, const uint64_t clients[N])
{
    assert_ok(connections_create(max_waiting, &all));
    for (int i = 0; i < N; i++) {
        int pair[2];
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
        ours[i] = pair[0];
        theirs[i] = pair[1];
        places[i] = connections_add(all, ours[i], clients[i]);
        assert_non_null(places[i]);
    }
}

static void close_all(void)
{
    for (int i = 0; i < N; i++) {
        connections_remove(all, places[i]);
        close(ours[i]);
        close(theirs[i]);
    }
    connections_destroy(all);
}

/* Bit i: connection i was shut down. */
static unsigned closed(void)
{
    unsigned result = 0;
    for (int i = 0; i < N; i++) {
        struct pollfd entry = {.fd = theirs[i], .events = POLLIN};
        result |= (unsigned)(poll(&entry, 1, 0) > 0) << i;
    }
    return result;
}

static void wait_until_closed(unsigned expected)
{
    const time_t began = time(NULL);
    while (closed() != expected) {
        if ((closed() & ~expected) != 0 || time(NULL) - began > 600) {
            fail_msg("connections %x are closed, expected %x", closed(), expected);
        }
        usleep(10000);
    }
}

static void those_that_wait_too_long_are_closed(void **state)
{
    (void)state;
    const uint64_t clients[N] = {0, 1, 2, 3, 4, 5, 6, 7};
    open_all(N, clients);
    connections_await_request(all, places[0], 0.1);
    connections_await_client(all, places[1], 0.1); /* a body that does not come, a reply that is not read */
    connections_await_client(all, places[2], 0.1);
    connections_await_client(all, places[2], 0); /* at work now */
    connections_await_request(all, places[3], 0.1);
    connections_await_request(all, places[3], 1000);
    connections_await_client(all, places[4], 1000);
    wait_until_closed(3);
    connections_await_client(all, places[2], 0.1); /* its reply is not read */
    wait_until_closed(7);
    usleep(300000); /* a look at all later */
    assert_int_equal(closed(), 7);
    close_all();
}

static void the_oldest_of_a_client_are_closed(void **state)
{
    (void)state;
    const uint64_t clients[N] = {1, 1, 2, 1, 1, 1, 2, 3};
    open_all(2, clients);
    for (int i = 0; i < N; i++) {
        if (i == 4) { /* has a request */
            connections_await_client(all, places[i], 1000);
            continue;
        }
        connections_await_request(all, places[i], 1000);
        connections_await_request(all, places[0], 1000); /* a piece of a request: it waits since then all the same */
        usleep(1000);
    }
    assert_int_equal(closed(), 0); /* at once none */
    wait_until_closed(1 | 2);      /* of 0, 1, 3 and 5 */
    connections_await_request(all, places[4], 1000);
    wait_until_closed(1 | 2 | 8);
    close_all();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(those_that_wait_too_long_are_closed),
        cmocka_unit_test(the_oldest_of_a_client_are_closed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
