/* The jobs that serve: lost, started again, asleep, ended. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "launcher/serve/replicas/hub_internal.h"

#define END_GRACE  3.0  /* seconds for jobs to end in order */
#define LATE_START 60.0 /* seconds between starts of a job that is given up */

static void say(const hub *h, const char *format, ...) TRM_PRINTF(2, 3);
static void say(const hub *h, const char *format, ...)
{
    char line[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    if (h->options.log != NULL) {
        h->options.log(h->options.log_user, line);
    }
}

trm_status replicas_start(hub *h)
{
    int32_t n = h->options.n_replicas;
    h->replicas = calloc((size_t)n, sizeof(*h->replicas));
    if (h->replicas == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %d replicas", n);
    }
    for (; h->n_replicas < n; h->n_replicas++) {
        replica *r = &h->replicas[h->n_replicas];
        r->hub = h;
        r->index = h->n_replicas;
        TRM_TRY(supervisor_init(&r->supervisor, &h->options.replicas[r->index]));
    }
    h->options.replicas = NULL; /* the caller's */
    for (int32_t i = 0; i < n; i++) {
        TRM_TRY(supervisor_start(&h->replicas[i].supervisor, n));
    }
    return TRM_OK;
}

void replicas_fini(hub *h)
{
    for (int32_t i = 0; i < h->n_replicas; i++) {
        supervisor_fini(&h->replicas[i].supervisor);
    }
    free(h->replicas);
    h->replicas = NULL;
    h->n_replicas = 0;
}

channel *replica_leader(replica *r)
{
    bool serves = r->supervisor.phase == JOB_READY && !r->hub->ending && !r->hub->asleep;
    return serves ? r->supervisor.leader : NULL;
}

static int32_t count_serving(const hub *h)
{
    int32_t n = 0;
    for (int32_t i = 0; i < h->n_replicas; i++) {
        n += replica_leader(&h->replicas[i]) != NULL;
    }
    return n;
}

/* Those that have all the memory they take. */
static int32_t count_ready(const hub *h)
{
    int32_t n = 0;
    for (int32_t i = 0; i < h->n_replicas; i++) {
        n += h->replicas[i].supervisor.phase == JOB_READY;
    }
    return n;
}

bool replicas_serve(const hub *h)
{
    return count_serving(h) > 0;
}

void replicas_send(hub *h)
{
    for (int32_t i = 0; i < h->n_replicas; i++) {
        channel *to = replica_leader(&h->replicas[i]);
        if (to != NULL) {
            (void)channel_send(to); /* a failure shows as a loss at the next look */
        }
    }
}

void replicas_keep_stalls(hub *h, const char *layers)
{
    pthread_mutex_lock(&h->lock);
    h->stalls.size = 0;
    (void)trm_bytes_append(&h->stalls, layers, strlen(layers)); /* without memory there are none */
    pthread_mutex_unlock(&h->lock);
}

/* ---- loss and return ----------------------------------------------------------------------------------- */

/* The job is over, and the next one counts from 0. */
static void forget_job(hub *h, replica *r)
{
    metrics_add_counters(&r->engine_before, &r->engine);
    r->engine = (trm_scheduler_stats){0};
    router_forget(&h->router, r->index);
    if (h->n_replicas == 1) {
        replicas_keep_stalls(h, "");
    }
}

/* Its requests are to be submitted again. Returns their number. */
static int32_t release_choices(hub *h, replica *r)
{
    int32_t n = r->n_choices;
    for (completion *c = h->live; c != NULL; c = c->next) {
        for (int32_t i = 0; i < c->n_choices; i++) {
            choice *ch = &c->choices[i];
            ch->running = ch->running && ch->replica != r->index;
        }
    }
    r->n_choices = 0;
    r->prompt_tokens = 0;
    h->has_waiting = h->has_waiting || n > 0;
    return n;
}

static bool all_given_up(const hub *h)
{
    for (int32_t i = 0; i < h->n_replicas; i++) {
        if (!h->replicas[i].given_up) {
            return false;
        }
    }
    return true;
}

/* The first start after a loss comes at once; what has failed since is given time. */
static double pause_before_start(const replica *r)
{
    return r->given_up ? LATE_START : r->failed_starts;
}

/* `loss` is why; the cause is in the error record. */
static void take_loss(hub *h, replica *r, trm_status loss)
{
    if (h->ending || h->asleep || h->state == HUB_ENDED) {
        return;
    }
    char name[32] = "the job", later[32] = "", cause[512];
    snprintf(cause, sizeof(cause), "%s", trm_last_error());
    if (h->n_replicas > 1) {
        snprintf(name, sizeof(name), "replica %d", r->index);
        (void)trm_fail(loss, "%s: %s", name, cause);
    }
    r->given_up = r->failed_starts >= h->options.most_restarts;
    if (!h->was_ready || all_given_up(h)) {
        hub_end(h, loss);
        return;
    }
    double now = supervisor_clock(), pause = pause_before_start(r);
    if (pause > 0) {
        snprintf(later, sizeof(later), " in %g s", pause);
    }
    say(h, "%s is lost: %s; starting it again%s for %d live requests", name, cause, later, r->n_choices);
    r->lost_at = r->lost_at > 0 ? r->lost_at : now;
    r->next_start = now + pause;
    r->failed_starts++;
    h->m.restarts++;
    forget_job(h, r);
    int32_t released = release_choices(h, r);
    int32_t others = count_serving(h);
    if (others == 0 && h->state != HUB_DRAINING) {
        hub_set_state(h, HUB_RECOVERING);
    } else if (others > 0 && released > 0) {
        say(h, "%d replicas that serve take over its %d requests", others, released);
    }
}

/* What every replica keeps to. */
static wire_ready common_limits(const hub *h)
{
    wire_ready all = h->replicas[0].ready;
    for (int32_t i = 1; i < h->n_replicas; i++) {
        const wire_ready *one = &h->replicas[i].ready;
        all.max_context = one->max_context < all.max_context ? one->max_context : all.max_context;
        all.cache_tokens = one->cache_tokens < all.cache_tokens ? one->cache_tokens : all.cache_tokens;
        all.max_sequences = one->max_sequences < all.max_sequences ? one->max_sequences : all.max_sequences;
        all.load_seconds = one->load_seconds > all.load_seconds ? one->load_seconds : all.load_seconds;
    }
    return all;
}

static void take_ready(hub *h, replica *r, const wire_ready *ready)
{
    bool all = true;
    if (h->state == HUB_ENDED) {
        return;
    }
    r->failed_starts = 0;
    r->given_up = false;
    r->ready = *ready;
    r->was_ready = true;
    for (int32_t i = 0; i < h->n_replicas; i++) {
        all = all && h->replicas[i].was_ready;
    }
    if (all) {
        pthread_mutex_lock(&h->lock);
        h->ready = common_limits(h);
        h->was_ready = true;
        h->state = h->state == HUB_LOADING || h->state == HUB_RECOVERING ? HUB_READY : h->state;
        pthread_cond_broadcast(&h->changed);
        pthread_mutex_unlock(&h->lock);
    }
    if (r->lost_at > 0) {
        h->m.recovery_seconds = supervisor_clock() - r->lost_at;
        r->lost_at = 0;
        if (h->n_replicas > 1) {
            say(h, "replica %d is serving again after %.2f s", r->index, h->m.recovery_seconds);
        } else {
            say(h, "serving again after %.2f s", h->m.recovery_seconds);
        }
    }
    if (h->n_replicas > 1) {
        hub_divide_again(h); /* it has nothing to do, others may have more than they can do at a time */
    }
}

static void hear_job(hub *h, replica *r, supervisor_frame_fn fn)
{
    bool became_ready;
    wire_ready ready;
    trm_status loss = supervisor_poll(&r->supervisor, fn, r, &became_ready, &ready);
    if (became_ready) {
        take_ready(h, r, &ready);
    }
    if (loss != TRM_OK) {
        take_loss(h, r, loss);
    }
}

/* Whether another job loads that was started before this one was lost: it was not told of it, and takes of the memory
 * that is free what it finds. What it leaves is known when it is ready. */
static bool waits_for_another(const hub *h, const replica *r)
{
    for (int32_t i = 0; i < h->n_replicas; i++) {
        const supervisor *other = &h->replicas[i].supervisor;
        if (other != &r->supervisor && other->phase == JOB_LOADING && other->started < r->lost_at) {
            return true;
        }
    }
    return false;
}

/* Starts it again, if it is lost and its time has come. */
static void restart_job(hub *h, replica *r)
{
    bool wanted = r->lost_at > 0 && supervisor_clock() >= r->next_start && !h->asleep && !h->ending;
    if (r->supervisor.phase == JOB_NONE && wanted && h->state != HUB_ENDED && !waits_for_another(h, r)) {
        trm_status loss = supervisor_start(&r->supervisor, h->n_replicas - count_ready(h));
        if (loss != TRM_OK) {
            take_loss(h, r, loss);
        }
    }
}

/* ---- the end, and sleep -------------------------------------------------------------------------------- */

void replicas_end(hub *h)
{
    for (int32_t i = 0; i < h->n_replicas; i++) {
        replica *r = &h->replicas[i];
        channel *to = replica_leader(r);
        if (to == NULL || wire_write(&to->out, WIRE_END, NULL, 0) != TRM_OK || channel_send(to) != TRM_OK) {
            supervisor_kill(&r->supervisor);
        }
    }
    h->ending_since = supervisor_clock();
}

bool replicas_are_gone(hub *h)
{
    bool gone = true, late = supervisor_clock() - h->ending_since > END_GRACE;
    for (int32_t i = 0; i < h->n_replicas; i++) {
        supervisor *s = &h->replicas[i].supervisor;
        if (late && s->phase != JOB_NONE && s->phase != JOB_ENDING) {
            supervisor_kill(s);
        }
        gone = gone && s->phase == JOB_NONE;
    }
    return gone;
}

/* Falls asleep where that is wanted and nothing is live, and wakes up. */
static void tend_sleep(hub *h)
{
    bool gone = h->asleep && replicas_are_gone(h);
    pthread_mutex_lock(&h->lock);
    bool wanted = h->sleep_wanted;
    if (wanted && (h->live != NULL || (!h->asleep && h->state != HUB_READY))) {
        h->sleep_wanted = wanted = false;
        h->sleep_refused = true;
    }
    h->asleep_and_gone = gone && wanted;
    pthread_cond_broadcast(&h->changed);
    pthread_mutex_unlock(&h->lock);
    if (wanted && !h->asleep) {
        replicas_end(h);
        h->asleep = true;
        hub_set_state(h, HUB_SLEEPING);
        say(h, "the model sleeps");
    } else if (!wanted && gone && h->state == HUB_SLEEPING) {
        h->asleep = false;
        for (int32_t i = 0; i < h->n_replicas; i++) {
            replica *r = &h->replicas[i];
            r->lost_at = supervisor_clock(); /* and is started again as after a loss */
            r->next_start = 0;
            r->given_up = false;
            r->failed_starts = 0;
            forget_job(h, r);
        }
        hub_set_state(h, HUB_RECOVERING);
    }
}

void replicas_tend(hub *h, supervisor_frame_fn fn)
{
    for (int32_t i = 0; i < h->n_replicas; i++) {
        hear_job(h, &h->replicas[i], fn);
    }
    for (int32_t i = 0; i < h->n_replicas; i++) { /* once it is known which others are lost as well */
        restart_job(h, &h->replicas[i]);
    }
    tend_sleep(h);
}

/* ---- what others see ----------------------------------------------------------------------------------- */

void replicas_publish(hub *h)
{
    double now = supervisor_clock();
    metrics *m = &h->m;
    m->replicas = h->n_replicas;
    m->ranks = h->replicas[0].supervisor.options.ranks;
    m->engine = (trm_scheduler_stats){0};
    for (int32_t i = 0; i < h->n_replicas; i++) {
        replica *r = &h->replicas[i];
        m->replica[i].serves = replica_leader(r) != NULL;
        m->replica[i].live = r->n_choices;
        metrics_add_counters(&m->engine, &r->engine_before);
        metrics_add_counters(&m->engine, &r->engine);
        metrics_add_gauges(&m->engine, &r->engine);
        for (int32_t k = 0; k < r->supervisor.n_links; k++) {
            const rank_link *link = &r->supervisor.links[k];
            int32_t at = i * m->ranks + link->rank;
            if (!link->leads && link->rank >= 0 && at < METRICS_MOST_RANKS) {
                beat *own = &r->supervisor.beats.ranks[link->rank];
                m->rank[at].steps = atomic_load(&own->steps);
                m->rank[at].times = beats_times(own);
                m->rank[at].heard = link->heard;
            }
        }
        for (int32_t k = i * m->ranks; k < (i + 1) * m->ranks && k < METRICS_MOST_RANKS; k++) {
            m->rank[k].heard_ago = m->rank[k].heard > 0 ? now - m->rank[k].heard : 0;
        }
    }
    pthread_mutex_lock(&h->lock);
    h->published = *m;
    pthread_mutex_unlock(&h->lock);
}
