/* Calls to the dispatcher from other threads: state, requests, sleep. */
#include <errno.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <time.h>

#include "base/error.h"
#include "launcher/serve/replicas/dispatcher_internal.h"

struct timespec dispatcher_clock_after(double seconds)
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

dispatcher_state dispatcher_get_state(dispatcher *d)
{
    pthread_mutex_lock(&d->lock);
    dispatcher_state state = d->state;
    pthread_mutex_unlock(&d->lock);
    return state;
}

bool dispatcher_get_ready(dispatcher *d, ipc_ready *ready)
{
    pthread_mutex_lock(&d->lock);
    bool was_ready = d->was_ready;
    *ready = d->ready;
    pthread_mutex_unlock(&d->lock);
    return was_ready;
}

trm_status dispatcher_failure(dispatcher *d)
{
    pthread_mutex_lock(&d->lock);
    const trm_status failure = trm_error_give_back(&d->failure);
    pthread_mutex_unlock(&d->lock);
    return failure;
}

void dispatcher_submit(dispatcher *d, completion *c)
{
    c->received = supervisor_clock();
    pthread_mutex_lock(&d->lock);
    bool late = d->stopped;
    if (!late) {
        c->next = d->inbox;
        d->inbox = c;
    }
    pthread_mutex_unlock(&d->lock);
    if (late) {
        dispatcher_refuse_late(c);
    } else {
        dispatcher_notify(d);
    }
}

void dispatcher_watch(dispatcher *d, http_exchange *x, int fd)
{
    struct epoll_event event = {.events = EPOLLRDHUP | EPOLLONESHOT, .data.ptr = x};
    pthread_mutex_lock(&d->lock);
    (void)epoll_ctl(d->clients, EPOLL_CTL_ADD, fd, &event); /* without it, a client that leaves is noticed later */
    pthread_mutex_unlock(&d->lock);
}

void dispatcher_unwatch(dispatcher *d, http_exchange *x, int fd)
{
    (void)x;
    pthread_mutex_lock(&d->lock);
    (void)epoll_ctl(d->clients, EPOLL_CTL_DEL, fd, NULL);
    pthread_mutex_unlock(&d->lock);
    dispatcher_notify(d);
}

void dispatcher_connection_ended(dispatcher *d)
{
    dispatcher_notify(d);
}

void dispatcher_drain(dispatcher *d, double seconds)
{
    double until = supervisor_clock() + seconds;
    pthread_mutex_lock(&d->lock);
    d->drain_until = until < d->drain_until ? until : d->drain_until;
    pthread_mutex_unlock(&d->lock);
    dispatcher_notify(d);
}

trm_status dispatcher_sleep(dispatcher *d, double seconds)
{
    struct timespec until = dispatcher_clock_after(seconds);
    int waited = 0;
    pthread_mutex_lock(&d->lock);
    d->rest = REST_ASLEEP;
    d->sleep_refused = false;
    dispatcher_notify(d);
    while (!d->sleep_refused && !d->asleep_and_gone && waited == 0) {
        waited = pthread_cond_timedwait(&d->changed, &d->lock, &until);
    }
    bool refused = d->sleep_refused, gone = d->asleep_and_gone;
    int32_t live = d->published.live;
    dispatcher_state state = d->state;
    pthread_mutex_unlock(&d->lock);
    if (refused) {
        TRM_FAIL(TRM_ERROR_BUSY, "%s is %s with %d live requests, expected it to be ready with none",
                 d->options.name != NULL ? d->options.name : "the server", dispatcher_state_name(state), live);
    }
    return gone ? TRM_OK : trm_fail(TRM_ERROR_INTERNAL, "the ranks did not end within %.0f s", seconds);
}

void dispatcher_wake(dispatcher *d, bool load)
{
    pthread_mutex_lock(&d->lock);
    if (!d->options.on_demand) {
        d->rest = REST_NONE;
    } else if (d->rest == REST_ASLEEP) {
        d->rest = REST_UNLOADED;
    }
    if (load && d->options.on_demand && d->rest != REST_NONE) {
        d->load_wanted = true;
        d->used = supervisor_clock();
    }
    pthread_mutex_unlock(&d->lock);
    dispatcher_notify(d);
}

dispatcher_use dispatcher_get_use(dispatcher *d)
{
    pthread_mutex_lock(&d->lock);
    dispatcher_use use = {.state = d->state,
                          .gone = d->asleep_and_gone,
                          .leaving = d->rest != REST_NONE,
                          .asleep = d->rest == REST_ASLEEP,
                          .lacks_memory = d->lacks_memory,
                          .live = d->published.live,
                          .used = d->used};
    if (d->rest == REST_UNLOADED) {
        use.wanted = d->waits_since > 0 ? d->waits_since : d->load_wanted ? d->used : 0;
    }
    pthread_mutex_unlock(&d->lock);
    return use;
}

void dispatcher_load(dispatcher *d)
{
    pthread_mutex_lock(&d->lock);
    d->rest = d->rest == REST_UNLOADED ? REST_NONE : d->rest;
    d->asleep_and_gone = d->rest != REST_NONE;
    d->load_wanted = d->lacks_memory = false;
    pthread_mutex_unlock(&d->lock);
    dispatcher_notify(d);
}

void dispatcher_unload(dispatcher *d)
{
    pthread_mutex_lock(&d->lock);
    d->rest = d->rest == REST_NONE ? REST_UNLOADED : d->rest;
    pthread_mutex_unlock(&d->lock);
    dispatcher_notify(d);
}

void dispatcher_retry(dispatcher *d)
{
    pthread_mutex_lock(&d->lock);
    d->lacks_memory = false;
    pthread_mutex_unlock(&d->lock);
}

void dispatcher_give_up(dispatcher *d)
{
    pthread_mutex_lock(&d->lock);
    d->gives_up = true;
    pthread_mutex_unlock(&d->lock);
    dispatcher_notify(d);
}

trm_status dispatcher_stalls(dispatcher *d, trm_bytes *layers)
{
    pthread_mutex_lock(&d->lock);
    trm_status status = trm_bytes_append(layers, d->stalls.data, d->stalls.size);
    pthread_mutex_unlock(&d->lock);
    return status == TRM_OK ? trm_bytes_append(layers, "", 1) : status;
}

void dispatcher_snapshot(dispatcher *d, metrics *copy)
{
    pthread_mutex_lock(&d->lock);
    *copy = d->published;
    pthread_mutex_unlock(&d->lock);
}
