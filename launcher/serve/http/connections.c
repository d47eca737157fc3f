/* The sockets belong to libmicrohttpd, which notices a shutdown as the end of the connection. */
#include "launcher/serve/http/connections.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>

#include "base/error.h"
#include "launcher/serve/replicas/supervisor.h"

#define LOOK_SECONDS  0.25 /* from one look at all connections to the next */
#define GRACE_SECONDS 1.0  /* so long a connection may wait whatever its client has: a burst takes time to read */

struct open_connection {
    open_connection *next, **place; /* place: what points to it */
    int fd;
    uint64_t client;
    bool waits;   /* for a request */
    double since; /* it waits */
    double end;   /* of its time; 0: none */
};

struct connections {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    pthread_t thread;
    bool runs, stops;
    open_connection *first;
    int32_t n_waiting, max_waiting;
};

/* Clients together, of each the last to wait first. */
static int by_client(const void *left, const void *right)
{
    const open_connection *a = *(open_connection *const *)left, *b = *(open_connection *const *)right;
    if (a->client != b->client) {
        return a->client < b->client ? -1 : 1;
    }
    return (a->since < b->since) - (a->since > b->since);
}

static void thin_out(connections *all, double now)
{
    open_connection **waiting = malloc((size_t)all->n_waiting * sizeof(*waiting));
    int32_t n = 0, of_client = 0;
    for (open_connection *one = all->first; waiting != NULL && one != NULL; one = one->next) {
        if (one->waits) {
            waiting[n++] = one;
        }
    }
    if (n > 0) {
        qsort(waiting, (size_t)n, sizeof(*waiting), by_client);
    }
    for (int32_t i = 0; i < n; i++) {
        of_client = i > 0 && waiting[i]->client == waiting[i - 1]->client ? of_client + 1 : 1;
        if (of_client > all->max_waiting && now - waiting[i]->since > GRACE_SECONDS) {
            shutdown(waiting[i]->fd, SHUT_RDWR);
        }
    }
    free(waiting);
}

static void look(connections *all)
{
    const double now = supervisor_clock();
    for (open_connection *one = all->first; one != NULL; one = one->next) {
        if (one->end > 0 && now > one->end) {
            shutdown(one->fd, SHUT_RDWR);
            one->end = 0;
        }
    }
    if (all->n_waiting > all->max_waiting) {
        thin_out(all, now);
    }
}

static void *run(void *user)
{
    connections *all = user;
    pthread_mutex_lock(&all->lock);
    while (!all->stops) {
        if (all->first == NULL) {
            pthread_cond_wait(&all->wake, &all->lock);
            continue;
        }
        look(all);
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += (long)(LOOK_SECONDS * 1e9);
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&all->wake, &all->lock, &until);
    }
    pthread_mutex_unlock(&all->lock);
    return NULL;
}

trm_status connections_create(int32_t max_waiting, connections **result)
{
    connections *all = calloc(1, sizeof(*all));
    if (all == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the list of connections");
    }
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&all->wake, &clock);
    pthread_condattr_destroy(&clock);
    pthread_mutex_init(&all->lock, NULL);
    all->max_waiting = max_waiting;
    all->runs = pthread_create(&all->thread, NULL, run, all) == 0;
    if (!all->runs) {
        connections_destroy(all);
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot start the thread that watches connections");
    }
    *result = all;
    return TRM_OK;
}

void connections_destroy(connections *all)
{
    if (all == NULL) {
        return;
    }
    if (all->runs) {
        pthread_mutex_lock(&all->lock);
        all->stops = true;
        pthread_cond_signal(&all->wake);
        pthread_mutex_unlock(&all->lock);
        pthread_join(all->thread, NULL);
    }
    pthread_cond_destroy(&all->wake);
    pthread_mutex_destroy(&all->lock);
    free(all);
}

open_connection *connections_add(connections *all, int fd, uint64_t client)
{
    open_connection *one = calloc(1, sizeof(*one));
    if (one == NULL) {
        return NULL;
    }
    one->fd = fd;
    one->client = client;
    pthread_mutex_lock(&all->lock);
    one->next = all->first;
    one->place = &all->first;
    if (one->next != NULL) {
        one->next->place = &one->next;
    } else {
        pthread_cond_signal(&all->wake);
    }
    all->first = one;
    pthread_mutex_unlock(&all->lock);
    return one;
}

void connections_remove(connections *all, open_connection *one)
{
    if (one == NULL) {
        return;
    }
    pthread_mutex_lock(&all->lock);
    all->n_waiting -= one->waits;
    *one->place = one->next;
    if (one->next != NULL) {
        one->next->place = one->place;
    }
    pthread_mutex_unlock(&all->lock);
    free(one);
}

static void wait_for(connections *all, open_connection *one, bool request, double seconds)
{
    if (one == NULL) {
        return;
    }
    pthread_mutex_lock(&all->lock);
    const double now = supervisor_clock();
    if (request && !one->waits) {
        one->since = now;
    }
    all->n_waiting += request - one->waits;
    one->waits = request;
    one->end = seconds > 0 ? now + seconds : 0;
    pthread_mutex_unlock(&all->lock);
}

void connections_await_request(connections *all, open_connection *one, double seconds)
{
    wait_for(all, one, true, seconds);
}

void connections_await_client(connections *all, open_connection *one, double seconds)
{
    wait_for(all, one, false, seconds);
}
