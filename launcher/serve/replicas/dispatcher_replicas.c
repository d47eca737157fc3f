/* The jobs of replicas: loss and restart, sleep, end. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "launcher/serve/replicas/dispatcher_internal.h"

#define END_GRACE  3.0  /* seconds for jobs to finish and exit */
#define LATE_START 60.0 /* seconds between starts of a job that was given up */

static void say(const dispatcher *d, const char *format, ...) TRM_PRINTF(2, 3);
static void say(const dispatcher *d, const char *format, ...)
{
    char line[1024];
    va_list arguments;
    va_start(arguments, format);
    const int used = d->options.name != NULL ? snprintf(line, sizeof(line), "model %s: ", d->options.name) : 0;
    vsnprintf(line + used, sizeof(line) - (size_t)used, format, arguments);
    va_end(arguments);
    if (d->options.log != NULL) {
        d->options.log(d->options.log_user, line);
    }
}

trm_status replicas_start(dispatcher *d)
{
    int32_t n = d->options.n_replicas;
    d->replicas = calloc((size_t)n, sizeof(*d->replicas));
    if (d->replicas == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %d replicas", n);
    }
    for (; d->n_replicas < n; d->n_replicas++) {
        replica *r = &d->replicas[d->n_replicas];
        r->dispatcher = d;
        r->index = d->n_replicas;
        TRM_TRY(supervisor_init(&r->supervisor, &d->options.replicas[r->index]));
    }
    d->options.replicas = NULL; /* the caller's */
    for (int32_t i = 0; i < n && !d->options.on_demand; i++) {
        TRM_TRY(supervisor_start(&d->replicas[i].supervisor, n));
    }
    return TRM_OK;
}

void replicas_fini(dispatcher *d)
{
    for (int32_t i = 0; i < d->n_replicas; i++) {
        supervisor_fini(&d->replicas[i].supervisor);
    }
    free(d->replicas);
    d->replicas = NULL;
    d->n_replicas = 0;
}

channel *replica_leader(replica *r)
{
    bool serves = r->supervisor.phase == JOB_READY && !r->dispatcher->ending && !r->dispatcher->asleep;
    return serves ? r->supervisor.leader : NULL;
}

static int32_t count_serving(const dispatcher *d)
{
    int32_t n = 0;
    for (int32_t i = 0; i < d->n_replicas; i++) {
        n += replica_leader(&d->replicas[i]) != NULL;
    }
    return n;
}

/* Replicas that have allocated all their memory. */
static int32_t count_ready(const dispatcher *d)
{
    int32_t n = 0;
    for (int32_t i = 0; i < d->n_replicas; i++) {
        n += d->replicas[i].supervisor.phase == JOB_READY;
    }
    return n;
}

bool replicas_serve(const dispatcher *d)
{
    return count_serving(d) > 0;
}

bool replicas_run(const dispatcher *d)
{
    for (int32_t i = 0; i < d->n_replicas; i++) {
        if (d->replicas[i].n_choices > 0) {
            return true;
        }
    }
    return false;
}

void replicas_send(dispatcher *d)
{
    for (int32_t i = 0; i < d->n_replicas; i++) {
        channel *to = replica_leader(&d->replicas[i]);
        if (to != NULL) {
            (void)channel_send(to); /* a failure shows as a loss at the next poll */
        }
    }
}

void replicas_keep_stalls(dispatcher *d, const char *layers)
{
    pthread_mutex_lock(&d->lock);
    d->stalls.size = 0;
    (void)trm_bytes_append(&d->stalls, layers, strlen(layers)); /* left out when memory is short */
    pthread_mutex_unlock(&d->lock);
}

/* ---- loss and return ----------------------------------------------------------------------------------- */

/* The job has ended; counters of the next one begin at 0. */
static void forget_job(dispatcher *d, replica *r)
{
    metrics_add_counters(&r->engine_before, &r->engine);
    r->engine = (trm_scheduler_stats){0};
    router_forget(&d->router, r->index);
    adapters_forget(d, r->index);
    if (d->n_replicas == 1) {
        replicas_keep_stalls(d, "");
    }
}

/* Marks its requests to be submitted again. Returns their number. */
static int32_t release_choices(dispatcher *d, replica *r)
{
    int32_t n = r->n_choices;
    for (completion *c = d->live; c != NULL; c = c->next) {
        for (int32_t i = 0; i < c->n_choices; i++) {
            choice *ch = &c->choices[i];
            ch->running = ch->running && ch->replica != r->index;
        }
    }
    r->n_choices = 0;
    r->prompt_tokens = 0;
    d->has_waiting = d->has_waiting || n > 0;
    return n;
}

static bool all_given_up(const dispatcher *d)
{
    for (int32_t i = 0; i < d->n_replicas; i++) {
        if (!d->replicas[i].given_up) {
            return false;
        }
    }
    return true;
}

/* The first restart after a loss is immediate; further ones wait. */
static double pause_before_start(const replica *r)
{
    return r->given_up ? LATE_START : r->failed_starts;
}

/* `loss` is the status, trm_last_error the cause. */
static void take_loss(dispatcher *d, replica *r, trm_status loss)
{
    if (d->ending || d->asleep || d->state == DISPATCHER_ENDED) {
        return;
    }
    char name[32] = "the job", later[32] = "";
    trm_held_error held;
    trm_error_hold(loss, &held);
    if (d->n_replicas > 1) {
        snprintf(name, sizeof(name), "replica %d", r->index);
        (void)trm_fail_in(loss, "%s", name);
    }
    r->given_up = r->failed_starts >= d->options.most_restarts;
    if (d->options.on_demand && (d->state == DISPATCHER_LOADING || all_given_up(d))) {
        dispatcher_abandon(d, trm_error_give_back(&held));
        return;
    }
    if (!d->was_ready || all_given_up(d)) {
        dispatcher_end(d, loss);
        return;
    }
    double now = supervisor_clock(), pause = pause_before_start(r);
    if (pause > 0) {
        snprintf(later, sizeof(later), " in %g s", pause);
    }
    say(d, "%s is lost: %s; restarting it%s with %d live requests", name, held.cause, later, r->n_choices);
    r->lost_at = r->lost_at > 0 ? r->lost_at : now;
    r->next_start = now + pause;
    r->failed_starts++;
    d->m.restarts++;
    forget_job(d, r);
    int32_t released = release_choices(d, r);
    int32_t others = count_serving(d);
    if (others == 0 && d->state != DISPATCHER_DRAINING) {
        dispatcher_set_state(d, DISPATCHER_RECOVERING);
    } else if (others > 0 && released > 0) {
        say(d, "%d other replicas take over its %d requests", others, released);
    }
}

/* The limits that every replica can keep. */
static ipc_ready common_limits(const dispatcher *d)
{
    ipc_ready all = d->replicas[0].ready;
    for (int32_t i = 1; i < d->n_replicas; i++) {
        const ipc_ready *one = &d->replicas[i].ready;
        all.max_context = one->max_context < all.max_context ? one->max_context : all.max_context;
        all.cache_tokens = one->cache_tokens < all.cache_tokens ? one->cache_tokens : all.cache_tokens;
        all.max_sequences = one->max_sequences < all.max_sequences ? one->max_sequences : all.max_sequences;
        all.load_seconds = one->load_seconds > all.load_seconds ? one->load_seconds : all.load_seconds;
    }
    return all;
}

static void take_ready(dispatcher *d, replica *r, const ipc_ready *ready)
{
    bool all = true, loading = d->state == DISPATCHER_LOADING;
    if (d->state == DISPATCHER_ENDED) {
        return;
    }
    r->failed_starts = 0;
    r->given_up = false;
    r->ready = *ready;
    r->was_ready = true;
    for (int32_t i = 0; i < d->n_replicas; i++) {
        all = all && d->replicas[i].was_ready;
    }
    if (all) {
        pthread_mutex_lock(&d->lock);
        d->ready = common_limits(d);
        d->was_ready = true;
        d->state = d->state == DISPATCHER_LOADING || d->state == DISPATCHER_RECOVERING ? DISPATCHER_READY : d->state;
        pthread_cond_broadcast(&d->changed);
        pthread_mutex_unlock(&d->lock);
    }
    if (r->lost_at > 0) {
        double seconds = supervisor_clock() - r->lost_at;
        r->lost_at = 0;
        d->m.recovery_seconds = loading ? d->m.recovery_seconds : seconds;
        if (loading) { /* it was not lost */
        } else if (d->n_replicas > 1) {
            say(d, "replica %d is serving again after %.2f s", r->index, d->m.recovery_seconds);
        } else {
            say(d, "serving again after %.2f s", d->m.recovery_seconds);
        }
    }
    if (d->n_replicas > 1) {
        dispatcher_rebalance(d); /* it is idle, others may have more than they can run */
    }
}

static void hear_job(dispatcher *d, replica *r, supervisor_frame_fn fn)
{
    bool became_ready;
    ipc_ready ready;
    trm_status loss = supervisor_poll(&r->supervisor, fn, r, &became_ready, &ready);
    if (became_ready) {
        take_ready(d, r, &ready);
    }
    if (loss != TRM_OK) {
        take_loss(d, r, loss);
    }
}

/* Whether another job is loading that was started before this one was lost: it takes whatever memory it finds free. How
 * much it leaves is known when it is ready. */
static bool waits_for_another(const dispatcher *d, const replica *r)
{
    for (int32_t i = 0; i < d->n_replicas; i++) {
        const supervisor *other = &d->replicas[i].supervisor;
        if (other != &r->supervisor && other->phase == JOB_LOADING && other->started < r->lost_at) {
            return true;
        }
    }
    return false;
}

/* Restarts a lost job if it is due. */
static void restart_job(dispatcher *d, replica *r)
{
    bool wanted = r->lost_at > 0 && supervisor_clock() >= r->next_start && !d->asleep && !d->ending;
    if (r->supervisor.phase == JOB_NONE && wanted && d->state != DISPATCHER_ENDED && !waits_for_another(d, r)) {
        trm_status loss = supervisor_start(&r->supervisor, d->n_replicas - count_ready(d));
        if (loss != TRM_OK) {
            take_loss(d, r, loss);
        }
    }
}

/* ---- the end, and sleep -------------------------------------------------------------------------------- */

void replicas_end(dispatcher *d)
{
    for (int32_t i = 0; i < d->n_replicas; i++) {
        replica *r = &d->replicas[i];
        channel *to = replica_leader(r);
        if (to == NULL || ipc_write(&to->out, IPC_END, NULL, 0) != TRM_OK || channel_send(to) != TRM_OK) {
            supervisor_kill(&r->supervisor);
        }
    }
    d->ending_since = supervisor_clock();
}

bool replicas_are_gone(dispatcher *d)
{
    bool gone = true, late = supervisor_clock() - d->ending_since > END_GRACE;
    for (int32_t i = 0; i < d->n_replicas; i++) {
        supervisor *s = &d->replicas[i].supervisor;
        if (late && s->phase != JOB_NONE && s->phase != JOB_ENDING) {
            supervisor_kill(s);
        }
        gone = gone && s->phase == JOB_NONE;
    }
    return gone;
}

static void fall_asleep(dispatcher *d)
{
    replicas_end(d);
    d->asleep = true;
    dispatcher_set_state(d, DISPATCHER_SLEEPING);
}

static void wake_up(dispatcher *d)
{
    d->asleep = false;
    for (int32_t i = 0; i < d->n_replicas; i++) {
        replica *r = &d->replicas[i];
        r->lost_at = supervisor_clock(); /* the job is restarted as after a loss */
        r->next_start = 0;
        r->given_up = false;
        r->was_ready = r->was_ready && !d->options.on_demand;
        r->failed_starts = 0;
        forget_job(d, r);
    }
    d->has_waiting = d->has_waiting || d->live != NULL;
    dispatcher_set_state(d, d->options.on_demand ? DISPATCHER_LOADING : DISPATCHER_RECOVERING);
}

/* Whether the jobs may end as asked: not while they start, nor while choices run. REST_ASLEEP wants no requests at
 * all. */
static bool may_rest(const dispatcher *d, dispatcher_rest wanted)
{
    const bool serves = d->state == DISPATCHER_READY || (wanted == REST_UNLOADED && d->state == DISPATCHER_RECOVERING);
    return (serves || d->asleep) && (wanted == REST_ASLEEP ? d->live == NULL : !replicas_run(d));
}

/* Falls asleep if asked to and idle; wakes up if asked to. */
static void tend_sleep(dispatcher *d)
{
    bool gone = d->asleep && replicas_are_gone(d);
    pthread_mutex_lock(&d->lock);
    bool may = may_rest(d, d->rest);
    if (d->rest == REST_ASLEEP && !may) {
        d->rest = d->asleep && d->options.on_demand ? REST_UNLOADED : REST_NONE;
        d->sleep_refused = true;
    }
    dispatcher_rest wanted = d->rest;
    d->asleep_and_gone = gone && wanted != REST_NONE;
    pthread_cond_broadcast(&d->changed);
    pthread_mutex_unlock(&d->lock);
    if (wanted != REST_NONE && may && !d->asleep) {
        fall_asleep(d);
        say(d, "%s", wanted == REST_ASLEEP ? "the model is asleep" : "unloaded");
    } else if (wanted == REST_NONE && gone && d->state == DISPATCHER_SLEEPING) {
        wake_up(d);
    }
}

void dispatcher_abandon(dispatcher *d, trm_status failure)
{
    trm_held_error held;
    (void)trm_fail_in(failure, "cannot load model %s", d->options.name);
    trm_error_hold(failure, &held);
    if (d->options.log != NULL) {
        d->options.log(d->options.log_user, held.cause);
    }
    for (int32_t i = 0; i < d->n_replicas; i++) {
        (void)release_choices(d, &d->replicas[i]);
        forget_job(d, &d->replicas[i]);
    }
    pthread_mutex_lock(&d->lock);
    d->failure = held;
    d->lacks_memory = failure == TRM_ERROR_OUT_OF_MEMORY;
    d->gives_up = !d->lacks_memory || d->state == DISPATCHER_DRAINING;
    d->load_wanted = false;
    d->rest = d->rest == REST_NONE ? REST_UNLOADED : d->rest;
    pthread_mutex_unlock(&d->lock);
    if (d->state != DISPATCHER_DRAINING) {
        fall_asleep(d);
    }
}

void replicas_tend(dispatcher *d, supervisor_frame_fn fn)
{
    for (int32_t i = 0; i < d->n_replicas; i++) {
        hear_job(d, &d->replicas[i], fn);
    }
    for (int32_t i = 0; i < d->n_replicas; i++) { /* only after all losses are known */
        restart_job(d, &d->replicas[i]);
    }
    tend_sleep(d);
}

/* ---- what others see ----------------------------------------------------------------------------------- */

void replicas_publish(dispatcher *d)
{
    double now = supervisor_clock();
    metrics *m = &d->m;
    m->replicas = d->n_replicas;
    m->ranks = d->replicas[0].supervisor.options.ranks;
    m->engine = (trm_scheduler_stats){0};
    for (int32_t i = 0; i < d->n_replicas; i++) {
        replica *r = &d->replicas[i];
        m->replica[i].serves = replica_leader(r) != NULL;
        m->replica[i].live = r->n_choices;
        metrics_add_counters(&m->engine, &r->engine_before);
        metrics_add_counters(&m->engine, &r->engine);
        if (m->replica[i].serves) {
            metrics_add_gauges(&m->engine, &r->engine);
        }
        for (int32_t k = 0; k < r->supervisor.n_links; k++) {
            const rank_link *link = &r->supervisor.links[k];
            int32_t at = i * m->ranks + link->rank;
            if (!link->leads && link->rank >= 0 && at < METRICS_MAX_RANKS) {
                heartbeat *own = &r->supervisor.heartbeats.ranks[link->rank];
                m->rank[at].steps = atomic_load(&own->steps);
                m->rank[at].times = heartbeat_get_times(own);
                m->rank[at].heard = link->heard;
            }
        }
        for (int32_t k = i * m->ranks; k < (i + 1) * m->ranks && k < METRICS_MAX_RANKS; k++) {
            m->rank[k].heard_ago = m->rank[k].heard > 0 ? now - m->rank[k].heard : 0;
        }
    }
    pthread_mutex_lock(&d->lock);
    d->published = *m;
    d->waits_since = d->oldest != NULL ? d->oldest->received : 0;
    pthread_mutex_unlock(&d->lock);
}
