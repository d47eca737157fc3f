/* The hub from other threads: its state, requests handed over, sleep. */
#include <errno.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <time.h>

#include "base/error.h"
#include "launcher/serve/replicas/hub_internal.h"

static struct timespec clock_after(double seconds)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)seconds;
    until.tv_nsec += (long)((seconds - (double)(time_t)seconds) * 1e9);
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        until.tv_sec++;
    }
    return until;
}

hub_state hub_get_state(hub *h)
{
    pthread_mutex_lock(&h->lock);
    hub_state state = h->state;
    pthread_mutex_unlock(&h->lock);
    return state;
}

bool hub_get_ready(hub *h, wire_ready *ready)
{
    pthread_mutex_lock(&h->lock);
    bool was_ready = h->was_ready;
    *ready = h->ready;
    pthread_mutex_unlock(&h->lock);
    return was_ready;
}

hub_state hub_wait(hub *h, hub_state state, double seconds)
{
    struct timespec until = clock_after(seconds);
    pthread_mutex_lock(&h->lock);
    while (h->state == state && pthread_cond_timedwait(&h->changed, &h->lock, &until) == 0) {
    }
    hub_state now = h->state;
    pthread_mutex_unlock(&h->lock);
    return now;
}

trm_status hub_failure(hub *h, char *cause, size_t size)
{
    pthread_mutex_lock(&h->lock);
    trm_status failure = h->failure;
    snprintf(cause, size, "%s", h->cause);
    pthread_mutex_unlock(&h->lock);
    return failure;
}

void hub_submit(hub *h, completion *c)
{
    c->received = supervisor_clock();
    pthread_mutex_lock(&h->lock);
    bool late = h->stopped;
    if (!late) {
        c->next = h->inbox;
        h->inbox = c;
    }
    pthread_mutex_unlock(&h->lock);
    if (late) {
        hub_refuse_late(c);
    } else {
        hub_knock(h);
    }
}

void hub_watch(hub *h, exchange *x, int fd)
{
    struct epoll_event event = {.events = EPOLLRDHUP | EPOLLONESHOT, .data.ptr = x};
    pthread_mutex_lock(&h->lock);
    (void)epoll_ctl(h->clients, EPOLL_CTL_ADD, fd, &event); /* unwatched, a client that leaves is noticed later */
    pthread_mutex_unlock(&h->lock);
}

void hub_forget(hub *h, exchange *x, int fd)
{
    (void)x;
    pthread_mutex_lock(&h->lock);
    (void)epoll_ctl(h->clients, EPOLL_CTL_DEL, fd, NULL);
    pthread_mutex_unlock(&h->lock);
    hub_knock(h);
}

void hub_poke(hub *h)
{
    hub_knock(h);
}

void hub_drain(hub *h, double seconds)
{
    double until = supervisor_clock() + seconds;
    pthread_mutex_lock(&h->lock);
    h->drain_until = until < h->drain_until ? until : h->drain_until;
    pthread_mutex_unlock(&h->lock);
    hub_knock(h);
}

trm_status hub_sleep(hub *h, double seconds)
{
    struct timespec until = clock_after(seconds);
    int waited = 0;
    pthread_mutex_lock(&h->lock);
    h->sleep_wanted = true;
    h->sleep_refused = false;
    hub_knock(h);
    while (!h->sleep_refused && !h->asleep_and_gone && waited == 0) {
        waited = pthread_cond_timedwait(&h->changed, &h->lock, &until);
    }
    bool refused = h->sleep_refused, gone = h->asleep_and_gone;
    int32_t live = h->published.live;
    hub_state state = h->state;
    pthread_mutex_unlock(&h->lock);
    if (refused) {
        TRM_FAIL(TRM_ERROR_BUSY, "the server is %s with %d live requests, expected it to be ready with none",
                 hub_state_name(state), live);
    }
    return gone ? TRM_OK : trm_fail(TRM_ERROR_INTERNAL, "the ranks have not ended after %.0f s", seconds);
}

void hub_wake(hub *h)
{
    pthread_mutex_lock(&h->lock);
    h->sleep_wanted = false;
    pthread_mutex_unlock(&h->lock);
    hub_knock(h);
}

trm_status hub_stalls(hub *h, trm_bytes *layers)
{
    pthread_mutex_lock(&h->lock);
    trm_status status = trm_bytes_append(layers, h->stalls.data, h->stalls.size);
    pthread_mutex_unlock(&h->lock);
    return status == TRM_OK ? trm_bytes_append(layers, "", 1) : status;
}

void hub_snapshot(hub *h, metrics *copy)
{
    pthread_mutex_lock(&h->lock);
    *copy = h->published;
    pthread_mutex_unlock(&h->lock);
}
