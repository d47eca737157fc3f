/* The hub's thread: requests in, tokens back, the job started again when it is lost. */
#include "launcher/serve/hub_internal.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "launcher/serve/embedding.h"

#define SLOT_BITS 16
#define SLOT_MASK ((1u << SLOT_BITS) - 1)
#define POLL_MS   50
#define END_GRACE 3.0 /* seconds for the job to end in order */
#define MOST_FDS  (2 * SUPERVISOR_MOST_RANKS * 2 + 8)

const char *hub_state_name(hub_state state)
{
    static const char *const names[] = {"loading", "ready", "recovering", "draining", "sleeping", "ended"};
    return names[state];
}

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

static void set_state(hub *h, hub_state state)
{
    pthread_mutex_lock(&h->lock);
    h->state = state;
    pthread_cond_broadcast(&h->changed);
    pthread_mutex_unlock(&h->lock);
}

/* Choices and their ids: a slot in the low bits, a serial number above, so that late events find nobody. */

static bool give_id(hub *h, choice *ch)
{
    if (h->n_free == 0) {
        return false;
    }
    uint32_t slot = h->free_slots[--h->n_free];
    h->slots[slot] = ch;
    ch->id = ++h->serial << SLOT_BITS | slot;
    return true;
}

static void take_id(hub *h, choice *ch)
{
    if (ch->id != 0) {
        uint32_t slot = (uint32_t)(ch->id & SLOT_MASK);
        h->slots[slot] = NULL;
        h->free_slots[h->n_free++] = slot;
        ch->id = 0;
    }
}

static choice *find_choice(const hub *h, uint64_t id)
{
    choice *ch = h->slots[id & SLOT_MASK];
    return ch != NULL && ch->id == id ? ch : NULL;
}

static channel *leader(hub *h)
{
    return h->supervisor.phase == JOB_READY && !h->ending && !h->asleep ? h->supervisor.leader : NULL;
}

static void cancel_choice(hub *h, choice *ch)
{
    channel *c = leader(h);
    if (ch->id != 0 && ch->running && c != NULL) {
        (void)wire_write(&c->out, WIRE_CANCEL, &ch->id, sizeof(ch->id));
    }
    take_id(h, ch);
}

/* Forgets a request, whatever its state. */
static void retire(hub *h, completion *c)
{
    for (int32_t i = 0; i < c->n_choices; i++) {
        cancel_choice(h, &c->choices[i]);
    }
    *(c->previous != NULL ? &c->previous->next : &h->live) = c->next;
    if (c->next != NULL) {
        c->next->previous = c->previous;
    }
    h->m.live -= c->n_choices;
    completion_destroy(c);
}

static void count_finish(hub *h, const completion *c, metrics_finish reason)
{
    double now = supervisor_clock();
    h->m.finished[reason]++;
    histogram_observe(&h->m.end_to_end, now - c->received);
    histogram_observe(&h->m.output_size, (double)c->output_tokens);
    histogram_observe(&h->m.prompt_size, (double)c->prompt_tokens);
    h->m.prompt_tokens += c->prompt_tokens;
}

static void fail_request(hub *h, completion *c, int status, const char *code, const char *message)
{
    api_error error;
    api_fail(&error, status, NULL, code, "%s", message);
    completion_fail(c, &error);
    count_finish(h, c, FINISHED_ERROR);
    retire(h, c);
}

/* The request is done when its last choice is. */
static void settle(hub *h, completion *c)
{
    if (c->n_finished == c->n_choices) {
        bool length = strcmp(c->choices[0].finish_reason, "length") == 0;
        count_finish(h, c, length ? FINISHED_LENGTH : FINISHED_STOP);
        retire(h, c);
    }
}

static void finish_choice(hub *h, choice *ch, const char *reason)
{
    completion *c = ch->owner;
    take_id(h, ch);
    if (choice_finish(ch, reason) != TRM_OK) {
        fail_request(h, c, 503, NULL, trm_last_error());
        return;
    }
    settle(h, c);
}

/* Returns false when the request is gone. */
static bool submit_choice(hub *h, channel *to, choice *ch)
{
    const api_request *asked = &ch->owner->request;
    wire_submission submission = {.grammar_kind = (int32_t)asked->format, .grammar = asked->grammar};
    size_t output = ch->tokens.size - ch->n_prompt;
    if (output > 0 && (asked->max_tokens == (int64_t)output || (int64_t)ch->tokens.size >= h->ready.max_context)) {
        bool last = ch->owner->n_finished + 1 == ch->owner->n_choices;
        finish_choice(h, ch, "length"); /* the job was lost between the last token and the word that it was the last */
        return !last;
    }
    choice_submission(ch, &submission.request);
    if (wire_write_submission(&to->out, &submission) != TRM_OK) {
        fail_request(h, ch->owner, 400, NULL, trm_last_error());
        return false;
    }
    ch->running = true;
    return true;
}

/* The next choice of a request that the engine does not have; NULL if there is none. */
static choice *waiting_choice(const completion *c)
{
    for (int32_t i = 0; i < c->n_choices; i++) {
        if (!c->choices[i].running && !c->choices[i].finished) {
            return &c->choices[i];
        }
    }
    return NULL;
}

/* Hands choices to the engine that it does not have. */
static void submit_waiting(hub *h)
{
    channel *to = leader(h);
    if (to == NULL || !h->has_waiting) {
        return;
    }
    h->has_waiting = false;
    completion *next;
    for (completion *c = h->live; c != NULL; c = next) {
        next = c->next;
        int32_t left = 1;
        while (left > 0) {
            choice *ch = waiting_choice(c);
            left = 0;
            if (ch != NULL) {
                /* What ends here ends the whole request, which is then gone. */
                left = submit_choice(h, to, ch) ? 1 : 0;
            }
        }
    }
}

/* Requests that connections have handed over. */
static void admit(hub *h, completion *c)
{
    hub_state state = h->state;
    c->previous = NULL;
    c->next = h->live;
    if (h->live != NULL) {
        h->live->previous = c;
    }
    h->live = c;
    h->m.live += c->n_choices;
    double most = h->options.request_seconds, asked = c->request.timeout;
    double seconds = asked > 0 && (most <= 0 || asked < most) ? asked : most;
    c->deadline = seconds > 0 ? c->received + seconds : HUB_NEVER;
    if (state != HUB_READY && state != HUB_RECOVERING) {
        h->m.refused++;
        fail_request(h, c, 503, "unavailable",
                     state == HUB_LOADING    ? "the model is still loading"
                     : state == HUB_SLEEPING ? "the model sleeps until POST /wake_up"
                                             : "the server is ending");
        return;
    }
    if (c->n_choices > h->options.max_requests) { /* later is no better */
        char message[128];
        snprintf(message, sizeof(message), "the request has %d continuations or texts, the server takes at most %d",
                 c->n_choices, h->options.max_requests);
        h->m.refused++;
        fail_request(h, c, 400, "invalid_value", message);
        return;
    }
    bool fits = h->m.live <= h->options.max_requests;
    for (int32_t i = 0; i < c->n_choices && fits; i++) {
        fits = give_id(h, &c->choices[i]);
    }
    if (!fits) {
        h->m.refused++;
        fail_request(h, c, 429, "queue_full", "the server has as many requests as it takes, try again later");
        return;
    }
    h->has_waiting = true;
}

static void take_inbox(hub *h)
{
    uint64_t count;
    if (read(h->mailbox, &count, sizeof(count)) < 0) {
        return; /* nothing has come */
    }
    pthread_mutex_lock(&h->lock);
    completion *newest = h->inbox, *oldest = NULL;
    h->inbox = NULL;
    pthread_mutex_unlock(&h->lock);
    while (newest != NULL) {
        completion *next = newest->next;
        newest->next = oldest;
        oldest = newest;
        newest = next;
    }
    while (oldest != NULL) {
        completion *next = oldest->next;
        admit(h, oldest);
        oldest = next;
    }
}

/* What the engine says. */

static void take_token(hub *h, choice *ch, const trm_serving_event *event)
{
    completion *c = ch->owner;
    double now = supervisor_clock();
    bool stopped;
    if (c->first_token == 0) {
        c->first_token = now;
        histogram_observe(&h->m.first_token, now - c->received);
    } else if (c->n_choices == 1) {
        histogram_observe(&h->m.between_tokens, now - c->last_token);
    }
    c->last_token = now;
    h->m.output_tokens++;
    if (choice_take(ch, event, &stopped) != TRM_OK) {
        fail_request(h, c, 503, NULL, trm_last_error());
    } else if (stopped) {
        cancel_choice(h, ch);
        finish_choice(h, ch, "stop");
    }
}

static void count_phases(hub *h, const completion *c, double queue_seconds)
{
    histogram_observe(&h->m.queue, queue_seconds);
    if (c->first_token > 0 && c->n_choices == 1) {
        double prefill = c->first_token - c->received - queue_seconds;
        histogram_observe(&h->m.prefill, prefill > 0 ? prefill : 0);
        histogram_observe(&h->m.decode, c->last_token - c->first_token);
    }
}

static void take_event(hub *h, const trm_serving_event *event)
{
    choice *ch = find_choice(h, event->id);
    if (ch == NULL) {
        return; /* cancelled meanwhile */
    }
    if (event->kind == TRM_EVENT_TOKEN) {
        take_token(h, ch, event);
    } else if (event->kind == TRM_EVENT_PROMPT_TOKEN) {
        choice_take_prompt(ch, event);
    } else if (event->kind == TRM_EVENT_FINISHED) {
        ch->owner->cached_tokens += event->n_cached;
        count_phases(h, ch->owner, event->queue_seconds);
        if (event->finish == TRM_FINISH_ERROR) {
            take_id(h, ch);
            fail_request(h, ch->owner, 400, "generation_failed", event->error);
        } else if (event->n_embedding > 0 && embedding_keep(ch, event->embedding, event->n_embedding) != TRM_OK) {
            take_id(h, ch);
            fail_request(h, ch->owner, 503, NULL, trm_last_error());
        } else {
            finish_choice(h, ch, event->finish == TRM_FINISH_LENGTH ? "length" : "stop");
        }
    }
}

static void take_refusal(hub *h, const wire_refusal *refusal)
{
    choice *ch = find_choice(h, refusal->id);
    if (ch == NULL) {
        return;
    }
    take_id(h, ch);
    int status = refusal->status == TRM_ERROR_BUSY ? 429 : refusal->status == TRM_ERROR_INVALID_ARGUMENT ? 400 : 503;
    h->m.refused++;
    fail_request(h, ch->owner, status, status == 400 ? "context_length_exceeded" : "unavailable", refusal->cause);
}

static void keep_stalls(hub *h, const wire_stalls *stalls)
{
    pthread_mutex_lock(&h->lock);
    h->stalls.size = 0;
    (void)trm_bytes_append(&h->stalls, stalls->layers, strlen(stalls->layers)); /* without memory there are none */
    pthread_mutex_unlock(&h->lock);
}

static void take_frame(void *user, const wire_frame *frame)
{
    hub *h = user;
    wire_event event;
    wire_refusal refusal;
    wire_stalls stalls;
    if (frame->kind == WIRE_EVENT && wire_read_event(frame, &event) == TRM_OK) {
        take_event(h, &event.event);
    } else if (frame->kind == WIRE_REFUSED && wire_read_refusal(frame, &refusal) == TRM_OK) {
        take_refusal(h, &refusal);
    } else if (frame->kind == WIRE_STATS) {
        (void)wire_read(frame, &h->m.engine, sizeof(h->m.engine));
    } else if (frame->kind == WIRE_STALLS && wire_read_stalls(frame, &stalls) == TRM_OK) {
        keep_stalls(h, &stalls);
    }
}

/* The job: lost, started again, ended. */

static void fail_all(hub *h, const char *message)
{
    while (h->live != NULL) {
        fail_request(h, h->live, 503, "unavailable", message);
    }
}

static void end_hub(hub *h, trm_status failure)
{
    pthread_mutex_lock(&h->lock);
    h->failure = failure;
    snprintf(h->cause, sizeof(h->cause), "%s", failure == TRM_OK ? "" : trm_last_error());
    pthread_mutex_unlock(&h->lock);
    fail_all(h, "the server has ended");
    set_state(h, HUB_ENDED);
}

/* `loss` is why; the cause is in the error record. */
static void take_loss(hub *h, trm_status loss)
{
    if (h->ending || h->asleep) {
        return;
    }
    if (!h->was_ready || h->failed_starts >= h->options.most_restarts) {
        end_hub(h, loss);
        return;
    }
    say(h, "the job is lost: %s; starting it again for %d live requests", trm_last_error(), h->m.live);
    h->failed_starts++;
    h->lost_at = h->lost_at > 0 ? h->lost_at : supervisor_clock();
    metrics_begin_job(&h->m);
    keep_stalls(h, &(wire_stalls){.layers = ""});
    h->m.restarts++;
    for (completion *c = h->live; c != NULL; c = c->next) {
        for (int32_t i = 0; i < c->n_choices; i++) {
            c->choices[i].running = false;
        }
    }
    h->has_waiting = true;
    if (h->state != HUB_DRAINING) {
        set_state(h, HUB_RECOVERING);
    }
}

static void take_ready(hub *h, const wire_ready *ready)
{
    h->failed_starts = 0;
    pthread_mutex_lock(&h->lock);
    h->ready = *ready;
    h->was_ready = true;
    h->state = h->state == HUB_DRAINING ? HUB_DRAINING : HUB_READY;
    pthread_cond_broadcast(&h->changed);
    pthread_mutex_unlock(&h->lock);
    if (h->lost_at > 0) {
        h->m.recovery_seconds = supervisor_clock() - h->lost_at;
        h->lost_at = 0;
        say(h, "serving again after %.2f s", h->m.recovery_seconds);
    }
}

/* Clients that have closed their end, and connections that are no more. */
static void drop_gone(hub *h)
{
    struct epoll_event events[64];
    pthread_mutex_lock(&h->lock); /* hub_forget waits meanwhile, so exchanges in the set are alive */
    int n = epoll_wait(h->clients, events, 64, 0);
    for (int i = 0; i < n; i++) {
        exchange *x = events[i].data.ptr;
        atomic_store(&x->left, true);
    }
    pthread_mutex_unlock(&h->lock);
    completion *next;
    for (completion *c = h->live; c != NULL; c = next) {
        next = c->next;
        bool broken = atomic_load(&c->exchange->gone) || atomic_load(&c->exchange->left);
        if (!broken && c->begun) {
            pthread_mutex_lock(&c->exchange->lock);
            broken = c->exchange->broken; /* a reader too slow */
            pthread_mutex_unlock(&c->exchange->lock);
        }
        if (broken) {
            exchange_abandon(c->exchange);
            h->m.gone++;
            count_finish(h, c, FINISHED_ABORT);
            retire(h, c);
        }
    }
}

static void drop_late(hub *h)
{
    double now = supervisor_clock();
    completion *next;
    for (completion *c = h->live; c != NULL; c = next) {
        next = c->next;
        if (now > c->deadline) {
            char message[128];
            snprintf(message, sizeof(message), "the request took longer than its %g seconds",
                     c->deadline - c->received);
            fail_request(h, c, 408, "timeout", message);
        }
    }
}

/* Ends the job in order, where that is possible, else at once. */
static void end_job(hub *h)
{
    channel *to = leader(h);
    if (to == NULL || wire_write(&to->out, WIRE_END, NULL, 0) != TRM_OK || channel_send(to) != TRM_OK) {
        supervisor_kill(&h->supervisor);
    }
    h->ending_since = supervisor_clock();
}

/* Drains, and ends the job once nothing is live. Returns whether the thread is done. */
static bool wind_up(hub *h)
{
    pthread_mutex_lock(&h->lock);
    double until = h->drain_until;
    bool stop = h->stop, idle = h->inbox == NULL;
    pthread_mutex_unlock(&h->lock);
    double now = supervisor_clock();
    if (h->state == HUB_ENDED) {
        return stop;
    }
    if (until == HUB_NEVER && !stop) {
        return false;
    }
    if (h->state != HUB_DRAINING) {
        set_state(h, HUB_DRAINING);
    }
    if (now > until || stop) {
        fail_all(h, "the server is ending");
    }
    if (h->live != NULL || !idle) {
        return false;
    }
    if (!h->ending) {
        end_job(h);
        h->ending = true;
    }
    if (h->supervisor.phase == JOB_NONE || now - h->ending_since > END_GRACE) {
        supervisor_kill(&h->supervisor);
        end_hub(h, TRM_OK);
    }
    return false;
}

static void publish(hub *h)
{
    double now = supervisor_clock();
    h->m.ranks = h->options.supervisor.ranks;
    for (int32_t i = 0; i < h->supervisor.n_links; i++) {
        const rank_link *link = &h->supervisor.links[i];
        if (!link->leads && link->rank >= 0 && link->rank < METRICS_MOST_RANKS) {
            h->m.rank[link->rank].beat = link->beat;
            h->m.rank[link->rank].heard_ago = now - link->heard;
        }
    }
    pthread_mutex_lock(&h->lock);
    h->published = h->m;
    pthread_mutex_unlock(&h->lock);
}

/* Falls asleep where that is wanted and nothing is live, and wakes up. */
static void tend_sleep(hub *h)
{
    pthread_mutex_lock(&h->lock);
    bool wanted = h->sleep_wanted, gone = h->supervisor.phase == JOB_NONE;
    if (wanted && !h->asleep && (h->state != HUB_READY || h->live != NULL)) {
        h->sleep_wanted = wanted = false;
        h->sleep_refused = true;
    }
    h->asleep_and_gone = h->asleep && gone && wanted;
    pthread_cond_broadcast(&h->changed);
    pthread_mutex_unlock(&h->lock);
    if (wanted && !h->asleep) {
        end_job(h);
        h->asleep = true;
        set_state(h, HUB_SLEEPING);
        say(h, "the model sleeps");
    } else if (h->asleep && !gone && supervisor_clock() - h->ending_since > END_GRACE) {
        supervisor_kill(&h->supervisor);
    } else if (!wanted && h->asleep && gone && h->state == HUB_SLEEPING) {
        h->asleep = false;
        h->lost_at = supervisor_clock(); /* and is started again as after a loss */
        metrics_begin_job(&h->m);
        keep_stalls(h, &(wire_stalls){.layers = ""});
        set_state(h, HUB_RECOVERING);
    }
}

typedef struct watched {
    struct pollfd entries[MOST_FDS];
    nfds_t n;
} watched;

static void add_watched(void *user, int fd, bool output)
{
    watched *w = user;
    if (w->n < MOST_FDS) {
        w->entries[w->n++] = (struct pollfd){.fd = fd, .events = (short)(POLLIN | (output ? POLLOUT : 0))};
    }
}

static void tend_job(hub *h)
{
    bool became_ready;
    wire_ready ready;
    trm_status loss = supervisor_poll(&h->supervisor, take_frame, h, &became_ready, &ready);
    if (became_ready) {
        take_ready(h, &ready);
    }
    if (loss != TRM_OK) {
        take_loss(h, loss);
    }
    if (h->supervisor.phase == JOB_NONE && h->lost_at > 0 && h->state != HUB_ENDED && !h->ending) {
        if (supervisor_start(&h->supervisor) != TRM_OK) {
            end_hub(h, TRM_ERROR_IO);
        }
    }
}

static void *hub_main(void *user)
{
    hub *h = user;
    watched *w = calloc(1, sizeof(*w));
    while (w != NULL) {
        w->n = 0;
        add_watched(w, h->mailbox, false);
        add_watched(w, h->clients, false);
        supervisor_watch(&h->supervisor, add_watched, w);
        poll(w->entries, w->n, POLL_MS);
        take_inbox(h);
        drop_gone(h);
        tend_job(h);
        tend_sleep(h);
        submit_waiting(h);
        channel *to = leader(h);
        if (to != NULL) {
            (void)channel_send(to); /* a failure shows as a loss at the next look */
        }
        drop_late(h);
        publish(h);
        if (wind_up(h)) {
            break;
        }
    }
    free(w);
    return NULL;
}

/* Begin and end. */

void hub_knock(hub *h)
{
    uint64_t one = 1;
    if (write(h->mailbox, &one, sizeof(one)) < 0) {
        return; /* the counter is full: it will be read */
    }
}

trm_status hub_create(const hub_options *options, hub **result)
{
    hub *h = calloc(1, sizeof(*h));
    if (h == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the server");
    }
    *h = (hub){.options = *options, .mailbox = -1, .clients = -1, .drain_until = HUB_NEVER};
    pthread_mutex_init(&h->lock, NULL);
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&h->changed, &clock);
    pthread_condattr_destroy(&clock);
    metrics_init(&h->m);
    h->published = h->m;
    h->supervisor.listener = -1;
    h->mailbox = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    h->clients = epoll_create1(EPOLL_CLOEXEC);
    h->slots = calloc(HUB_MOST_CHOICES, sizeof(*h->slots));
    h->free_slots = calloc(HUB_MOST_CHOICES, sizeof(*h->free_slots));
    trm_status status = TRM_OK;
    if (h->slots == NULL || h->free_slots == NULL) {
        status = trm_fail(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the server");
    } else if (h->mailbox < 0 || h->clients < 0) {
        status = trm_fail(TRM_ERROR_IO, "cannot make the server's descriptors: %s", strerror(errno));
    }
    for (uint32_t i = 0; status == TRM_OK && i < HUB_MOST_CHOICES; i++) {
        h->free_slots[h->n_free++] = HUB_MOST_CHOICES - 1 - i;
    }
    if (status == TRM_OK) {
        status = supervisor_init(&h->supervisor, &options->supervisor);
    }
    if (status == TRM_OK) {
        status = supervisor_start(&h->supervisor);
    }
    if (status == TRM_OK && pthread_create(&h->thread, NULL, hub_main, h) != 0) {
        status = trm_fail(TRM_ERROR_INTERNAL, "cannot start the server's thread");
    }
    if (status != TRM_OK) {
        h->thread = 0;
        hub_destroy(h);
        return status;
    }
    *result = h;
    return TRM_OK;
}

void hub_refuse_late(completion *c)
{
    api_error error;
    api_fail(&error, 503, NULL, "unavailable", "the server has ended");
    completion_fail(c, &error);
    completion_destroy(c);
}

void hub_stop(hub *h)
{
    if (h == NULL || h->thread == 0) {
        return;
    }
    pthread_mutex_lock(&h->lock);
    h->stop = true;
    pthread_mutex_unlock(&h->lock);
    hub_knock(h);
    pthread_join(h->thread, NULL);
    h->thread = 0;
    pthread_mutex_lock(&h->lock);
    h->stopped = true;
    completion *late = h->inbox;
    h->inbox = NULL;
    pthread_mutex_unlock(&h->lock);
    while (late != NULL) {
        completion *next = late->next;
        hub_refuse_late(late);
        late = next;
    }
}

void hub_destroy(hub *h)
{
    if (h == NULL) {
        return;
    }
    hub_stop(h);
    supervisor_fini(&h->supervisor);
    if (h->mailbox >= 0) {
        close(h->mailbox);
    }
    if (h->clients >= 0) {
        close(h->clients);
    }
    free(h->slots);
    free(h->free_slots);
    trm_bytes_fini(&h->stalls);
    pthread_cond_destroy(&h->changed);
    pthread_mutex_destroy(&h->lock);
    free(h);
}
