/* The dispatcher's thread: submits requests, handles tokens. */
#include "launcher/serve/replicas/dispatcher_internal.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "launcher/serve/responses/embedding.h"

#define SLOT_BITS 16
#define SLOT_MASK ((1u << SLOT_BITS) - 1)
#define POLL_MS   50

const char *dispatcher_state_name(dispatcher_state state)
{
    static const char *const names[] = {"loading", "ready", "recovering", "draining", "sleeping", "ended"};
    return names[state];
}

void dispatcher_set_state(dispatcher *d, dispatcher_state state)
{
    pthread_mutex_lock(&d->lock);
    d->state = state;
    pthread_cond_broadcast(&d->changed);
    pthread_mutex_unlock(&d->lock);
}

/* Ids of choices: a slot in the low bits, a serial number above it, so that late events find no choice. */

static bool give_id(dispatcher *d, choice *ch)
{
    if (d->n_free == 0) {
        return false;
    }
    uint32_t slot = d->free_slots[--d->n_free];
    d->slots[slot] = ch;
    ch->id = ++d->serial << SLOT_BITS | slot;
    return true;
}

/* The prompt has been processed, or is no longer needed. */
static void end_prompt(dispatcher *d, choice *ch)
{
    if (ch->running) {
        d->replicas[ch->replica].prompt_tokens -= ch->prompt_left;
        ch->prompt_left = 0;
    }
}

static void take_id(dispatcher *d, choice *ch)
{
    if (ch->running) {
        end_prompt(d, ch);
        ch->running = false;
        d->replicas[ch->replica].n_choices--;
    }
    if (ch->id != 0) {
        uint32_t slot = (uint32_t)(ch->id & SLOT_MASK);
        d->slots[slot] = NULL;
        d->free_slots[d->n_free++] = slot;
        ch->id = 0;
    }
}

static choice *find_choice(const dispatcher *d, uint64_t id)
{
    choice *ch = d->slots[id & SLOT_MASK];
    return ch != NULL && ch->id == id ? ch : NULL;
}

static void cancel_choice(dispatcher *d, choice *ch)
{
    channel *to = ch->running ? replica_leader(&d->replicas[ch->replica]) : NULL;
    if (ch->id != 0 && to != NULL) {
        (void)ipc_write(&to->out, IPC_CANCEL, &ch->id, sizeof(ch->id));
    }
    take_id(d, ch);
}

/* Counts the request for its client. Returns false when out of memory. */
static bool add_to_client(dispatcher *d, completion *c)
{
    dispatcher_client *holder = d->holders;
    while (holder != NULL && holder->id != c->client) {
        holder = holder->next;
    }
    if (holder == NULL) {
        holder = malloc(sizeof(*holder));
        if (holder == NULL) {
            return false;
        }
        *holder = (dispatcher_client){.id = c->client, .next = d->holders};
        d->holders = holder;
        d->n_holders++;
    }
    holder->live += c->n_choices;
    c->holder = holder;
    return true;
}

static void remove_from_client(dispatcher *d, completion *c)
{
    if (c->holder == NULL) {
        return;
    }
    c->holder->live -= c->n_choices;
    if (c->holder->live == 0) {
        dispatcher_client **at = &d->holders;
        while (*at != c->holder) {
            at = &(*at)->next;
        }
        *at = c->holder->next;
        d->n_holders--;
        free(c->holder);
    }
    c->holder = NULL;
}

/* Removes a request in any state. */
static void retire(dispatcher *d, completion *c)
{
    for (int32_t i = 0; i < c->n_choices; i++) {
        cancel_choice(d, &c->choices[i]);
    }
    *(c->previous != NULL ? &c->previous->next : &d->live) = c->next;
    *(c->next != NULL ? &c->next->previous : &d->oldest) = c->previous;
    remove_from_client(d, c);
    d->m.live -= c->n_choices;
    completion_destroy(c);
}

static void count_finish(dispatcher *d, const completion *c, metrics_finish reason)
{
    double now = supervisor_clock();
    size_t longest = 0;
    for (int32_t i = 0; i < c->n_choices; i++) {
        size_t output = c->choices[i].tokens.size - c->choices[i].n_prompt;
        longest = output > longest ? output : longest;
    }
    histogram_observe(&d->m.longest_output, (double)longest);
    d->m.finished[reason]++;
    histogram_observe(&d->m.end_to_end, now - c->received);
    histogram_observe(&d->m.output_size, (double)c->output_tokens);
    histogram_observe(&d->m.prompt_size, (double)c->prompt_tokens);
    d->m.prompt_tokens += c->prompt_tokens;
}

static void fail_request(dispatcher *d, completion *c, int status, const char *code, const char *message)
{
    api_error error;
    api_fail(&error, status, NULL, code, "%s", message);
    completion_fail(c, &error);
    count_finish(d, c, FINISHED_ERROR);
    retire(d, c);
}

/* Ends the request if its last choice has finished. */
static void settle(dispatcher *d, completion *c)
{
    if (c->n_finished == c->n_choices) {
        bool length = strcmp(c->choices[0].finish_reason, "length") == 0;
        count_finish(d, c, length ? FINISHED_LENGTH : FINISHED_STOP);
        retire(d, c);
    }
}

/* Returns false if the request is gone. */
static bool finish_choice(dispatcher *d, choice *ch, const char *reason)
{
    completion *c = ch->owner;
    if (ch->running) { /* the next turn of a conversation begins with this text */
        router_note(&d->router, ch->tokens.data, ch->tokens.size, ch->replica);
    }
    take_id(d, ch);
    if (choice_finish(ch, reason) != TRM_OK) {
        fail_request(d, c, 503, NULL, trm_last_error());
        return false;
    }
    bool last = c->n_finished == c->n_choices;
    settle(d, c);
    return !last;
}

/* `unseen`: tokens that the replica must process for it. Returns false if the request is gone. */
static bool submit_choice(dispatcher *d, replica *r, choice *ch, int64_t unseen)
{
    const api_request *asked = &ch->owner->request;
    ipc_submission submission = {.grammar_kind = (int32_t)asked->format, .grammar = asked->grammar};
    size_t output = ch->tokens.size - ch->n_prompt;
    if (output > 0 && (asked->max_tokens == (int64_t)output || (int64_t)ch->tokens.size >= d->ready.max_context)) {
        /* The replica was lost between its last token and the end of the request. */
        return finish_choice(d, ch, "length");
    }
    choice_submission(ch, &submission.request);
    if (ipc_write_submission(&replica_leader(r)->out, &submission) != TRM_OK) {
        fail_request(d, ch->owner, 400, NULL, trm_last_error());
        return false;
    }
    ch->running = true;
    ch->replica = r->index;
    ch->prompt_left = unseen;
    r->n_choices++;
    r->prompt_tokens += unseen;
    return true;
}

/* Chooses a replica and counts the tokens it must process; NULL: none is serving. */
static replica *choose_replica(dispatcher *d, const choice *ch, int64_t *unseen)
{
    router_replica state[ROUTER_MAX_REPLICAS] = {0};
    for (int32_t i = 0; i < d->n_replicas; i++) {
        replica *r = &d->replicas[i];
        state[i] = (router_replica){replica_leader(r) != NULL, r->n_choices, r->ready.max_sequences, r->prompt_tokens};
    }
    int32_t best = router_choose(&d->router, ch->tokens.data, ch->tokens.size, state, unseen);
    if (best >= 0) {
        router_note(&d->router, ch->tokens.data, ch->tokens.size, best);
    }
    return best >= 0 ? &d->replicas[best] : NULL;
}

/* The next choice of a request that has no replica; NULL if all are answered. */
static choice *waiting_choice(const completion *c)
{
    for (int32_t i = 0; i < c->n_choices; i++) {
        if (!c->choices[i].running && !c->choices[i].finished) {
            return &c->choices[i];
        }
    }
    return NULL;
}

/* Submits waiting choices in order of arrival, if a replica is serving. */
static void submit_waiting(dispatcher *d)
{
    pthread_mutex_lock(&d->lock);
    bool rests = d->rest == REST_UNLOADED;
    pthread_mutex_unlock(&d->lock);
    if (!d->has_waiting || rests || !replicas_serve(d)) {
        return;
    }
    d->has_waiting = false;
    completion *newer;
    for (completion *c = d->oldest; c != NULL; c = newer) {
        newer = c->previous;
        choice *ch = waiting_choice(c);
        while (ch != NULL) {
            /* this may end the whole request, which is then gone */
            int64_t unseen;
            replica *r = choose_replica(d, ch, &unseen);
            ch = submit_choice(d, r, ch, unseen) ? waiting_choice(c) : NULL;
        }
    }
}

void dispatcher_rebalance(dispatcher *d)
{
    for (completion *c = d->live; c != NULL; c = c->next) { /* newest first, so that the oldest keep their place */
        for (int32_t i = 0; i < c->n_choices; i++) {
            choice *ch = &c->choices[i];
            const replica *r = ch->running ? &d->replicas[ch->replica] : NULL;
            bool waits = r != NULL && ch->prompt_left > 0 && ch->prompt_seen == 0;
            if (waits && r->n_choices > r->ready.max_sequences) {
                cancel_choice(d, ch);
                (void)give_id(d, ch); /* the id of the cancelled choice is free; its last event finds no choice */
                d->has_waiting = true;
            }
        }
    }
}

/* ---- a full server ------------------------------------------------------------------------------------- */

static void refuse_full(dispatcher *d, completion *c)
{
    d->m.refused++;
    fail_request(d, c, 429, "queue_full", "the server is at its limit of requests, try again later");
}

/* Whether `other` may be refused in favor of `c`: it has produced nothing, and its client keeps at least as many
 * choices as that of `c`. */
static bool may_yield(const completion *other, const completion *c)
{
    return other->holder != NULL && !other->yields && other->holder->live - other->n_choices >= c->holder->live &&
           !other->begun && other->first_token == 0 && other->n_finished == 0 &&
           other->request.priority <= c->request.priority;
}

/* Makes room for `c` by refusing the newest requests of the clients that have most, as long as its own client has no
 * more than an equal share. Refuses nobody if that would not make enough room. */
static void take_places(dispatcher *d, const completion *c)
{
    int32_t live = d->m.live;
    if ((int64_t)c->holder->live * d->n_holders > d->options.max_requests) {
        return;
    }
    while (live > d->options.max_requests) {
        completion *last = NULL;
        for (completion *other = d->live; other != NULL; other = other->next) {
            if (may_yield(other, c) && (last == NULL || other->holder->live > last->holder->live)) {
                last = other;
            }
        }
        if (last == NULL) {
            break;
        }
        last->yields = true;
        last->holder->live -= last->n_choices;
        live -= last->n_choices;
    }
    completion *older;
    for (completion *other = d->live; other != NULL; other = older) {
        older = other->next;
        if (other->yields) {
            other->yields = false;
            other->holder->live += other->n_choices;
            if (live <= d->options.max_requests) {
                refuse_full(d, other);
            }
        }
    }
}

/* Admits a request handed over by a connection. */
static void admit(dispatcher *d, completion *c)
{
    dispatcher_state state = d->state;
    c->previous = NULL;
    c->next = d->live;
    *(d->live != NULL ? &d->live->previous : &d->oldest) = c;
    d->live = c;
    d->m.live += c->n_choices;
    const bool ends = state == DISPATCHER_DRAINING || state == DISPATCHER_ENDED;
    double most = d->options.request_seconds, asked = c->request.timeout;
    double seconds = asked > 0 && (most <= 0 || asked < most) ? asked : most;
    c->deadline = seconds > 0 ? c->received + seconds : DISPATCHER_NEVER;
    pthread_mutex_lock(&d->lock);
    bool wakes =
        d->options.on_demand ? d->rest != REST_ASLEEP && !ends : state == DISPATCHER_SLEEPING && d->rest == REST_NONE;
    d->used = c->received;
    pthread_mutex_unlock(&d->lock);
    if (state != DISPATCHER_READY && state != DISPATCHER_RECOVERING && !wakes) {
        d->m.refused++;
        fail_request(d, c, 503, "unavailable",
                     state == DISPATCHER_LOADING    ? "the model is loading"
                     : state == DISPATCHER_SLEEPING ? "the model is asleep until POST /wake_up"
                                                    : "the server is shutting down");
        return;
    }
    if (c->n_choices > d->options.max_requests) { /* trying again later would not help */
        char message[128];
        snprintf(message, sizeof(message), "the request has %d choices, the server takes at most %d", c->n_choices,
                 d->options.max_requests);
        d->m.refused++;
        fail_request(d, c, 400, "invalid_value", message);
        return;
    }
    if (add_to_client(d, c) && d->m.live > d->options.max_requests) {
        take_places(d, c);
    }
    bool fits = c->holder != NULL && d->m.live <= d->options.max_requests;
    for (int32_t i = 0; i < c->n_choices && fits; i++) {
        fits = give_id(d, &c->choices[i]);
    }
    if (!fits) {
        refuse_full(d, c);
        return;
    }
    d->has_waiting = true;
}

static void take_inbox(dispatcher *d)
{
    uint64_t count;
    if (read(d->mailbox, &count, sizeof(count)) < 0) {
        return; /* nothing has arrived */
    }
    pthread_mutex_lock(&d->lock);
    completion *newest = d->inbox, *oldest = NULL;
    d->inbox = NULL;
    pthread_mutex_unlock(&d->lock);
    while (newest != NULL) {
        completion *next = newest->next;
        newest->next = oldest;
        oldest = newest;
        newest = next;
    }
    while (oldest != NULL) {
        completion *next = oldest->next;
        admit(d, oldest);
        oldest = next;
    }
}

/* ---- events of the engine -------------------------------------------------------------------------------- */

static void take_token(dispatcher *d, choice *ch, const trm_serving_event *event)
{
    completion *c = ch->owner;
    double now = supervisor_clock();
    bool stopped;
    end_prompt(d, ch);
    if (c->first_token == 0) {
        c->first_token = now;
        histogram_observe(&d->m.first_token, now - c->received);
    } else if (c->n_choices == 1) {
        histogram_observe(&d->m.between_tokens, now - c->last_token);
    }
    c->last_token = now;
    d->m.output_tokens++;
    if (choice_take(ch, event, &stopped) != TRM_OK) {
        fail_request(d, c, 503, NULL, trm_last_error());
    } else if (stopped) {
        router_note(&d->router, ch->tokens.data, ch->tokens.size, ch->replica);
        cancel_choice(d, ch);
        finish_choice(d, ch, "stop");
    }
}

static void count_phases(dispatcher *d, const completion *c, double queue_seconds)
{
    histogram_observe(&d->m.queue, queue_seconds);
    if (c->first_token > 0 && c->n_choices == 1) {
        double prefill = c->first_token - c->received - queue_seconds;
        histogram_observe(&d->m.prefill, prefill > 0 ? prefill : 0);
        histogram_observe(&d->m.decode, c->last_token - c->first_token);
    }
}

static void take_event(dispatcher *d, const trm_serving_event *event)
{
    choice *ch = find_choice(d, event->id);
    if (ch == NULL) {
        return; /* cancelled meanwhile */
    }
    if (event->kind == TRM_EVENT_TOKEN) {
        take_token(d, ch, event);
    } else if (event->kind == TRM_EVENT_PROMPT_TOKEN) {
        choice_take_prompt(ch, event);
    } else if (event->kind == TRM_EVENT_FINISHED) {
        ch->owner->cached_tokens += event->n_cached;
        count_phases(d, ch->owner, event->queue_seconds);
        if (event->finish == TRM_FINISH_ERROR) {
            take_id(d, ch);
            fail_request(d, ch->owner, 400, "generation_failed", event->error);
        } else if (event->n_embedding > 0 && embedding_keep(ch, event->embedding, event->n_embedding) != TRM_OK) {
            take_id(d, ch);
            fail_request(d, ch->owner, 503, NULL, trm_last_error());
        } else {
            finish_choice(d, ch, event->finish == TRM_FINISH_LENGTH ? "length" : "stop");
        }
    }
}

static void take_refusal(dispatcher *d, const ipc_refusal *refusal)
{
    choice *ch = find_choice(d, refusal->id);
    if (ch == NULL) {
        return;
    }
    take_id(d, ch);
    int status = refusal->status == TRM_ERROR_BUSY ? 429 : refusal->status == TRM_ERROR_INVALID_ARGUMENT ? 400 : 503;
    d->m.refused++;
    fail_request(d, ch->owner, status, status == 400 ? "invalid_value" : "unavailable", refusal->cause);
}

static void take_frame(void *user, const ipc_frame *frame)
{
    replica *r = user;
    dispatcher *d = r->dispatcher;
    ipc_event event;
    ipc_refusal refusal;
    ipc_stalls stalls;
    ipc_adapter adapter;
    if (frame->kind == IPC_EVENT && ipc_read_event(frame, &event) == TRM_OK) {
        take_event(d, &event.event);
    } else if (frame->kind == IPC_REFUSED && ipc_read_refusal(frame, &refusal) == TRM_OK) {
        take_refusal(d, &refusal);
    } else if (frame->kind == IPC_ADAPTER && ipc_read_adapter(frame, &adapter) == TRM_OK) {
        adapters_take(r, &adapter);
    } else if (frame->kind == IPC_STATS) {
        (void)ipc_read(frame, &r->engine, sizeof(r->engine));
    } else if (frame->kind == IPC_STALLS && ipc_read_stalls(frame, &stalls) == TRM_OK) {
        replicas_keep_stalls(d, stalls.layers);
    }
}

void dispatcher_fail_all(dispatcher *d, const char *message)
{
    while (d->live != NULL) {
        fail_request(d, d->live, 503, "unavailable", message);
    }
}

void dispatcher_end(dispatcher *d, trm_status failure)
{
    pthread_mutex_lock(&d->lock);
    trm_error_hold(failure, &d->failure);
    pthread_mutex_unlock(&d->lock);
    dispatcher_fail_all(d, "the server has ended");
    dispatcher_set_state(d, DISPATCHER_ENDED);
}

/* Cancels requests of clients that closed their end, and of connections that are gone. */
static void drop_gone(dispatcher *d)
{
    struct epoll_event events[64];
    pthread_mutex_lock(&d->lock); /* dispatcher_unwatch waits meanwhile, so the exchanges in the set are alive */
    int n = epoll_wait(d->clients, events, 64, 0);
    for (int i = 0; i < n; i++) {
        http_exchange *x = events[i].data.ptr;
        atomic_store(&x->left, true);
    }
    pthread_mutex_unlock(&d->lock);
    completion *next;
    for (completion *c = d->live; c != NULL; c = next) {
        next = c->next;
        bool broken = atomic_load(&c->exchange->gone) || atomic_load(&c->exchange->left);
        if (!broken && c->open) {
            pthread_mutex_lock(&c->exchange->lock);
            broken = c->exchange->broken; /* the reader is too slow */
            pthread_mutex_unlock(&c->exchange->lock);
        }
        if (broken) {
            http_exchange_abandon(c->exchange);
            d->m.gone++;
            count_finish(d, c, FINISHED_ABORT);
            retire(d, c);
        }
    }
}

/* Answers requests for which the jobs were not, or cannot be, started. */
static void drop_unloaded(dispatcher *d)
{
    pthread_mutex_lock(&d->lock);
    const bool gives_up = d->gives_up;
    const trm_held_error failure = d->failure;
    d->gives_up = false;
    d->lacks_memory = d->lacks_memory && !gives_up;
    pthread_mutex_unlock(&d->lock);
    if (gives_up) {
        dispatcher_fail_all(d, failure.cause);
    }
    const double now = supervisor_clock();
    completion *next;
    for (completion *c = d->live; c != NULL && d->asleep; c = next) {
        next = c->next;
        if (now - c->received > d->options.start_seconds) {
            char message[768];
            snprintf(message, sizeof(message),
                     "model %s was not loaded within %g s: other models that are loaded have requests", d->options.name,
                     d->options.start_seconds);
            fail_request(d, c, 503, "unavailable", message);
        }
    }
}

static void drop_late(dispatcher *d)
{
    double now = supervisor_clock();
    completion *next;
    for (completion *c = d->live; c != NULL; c = next) {
        next = c->next;
        if (now > c->deadline) {
            char message[128];
            snprintf(message, sizeof(message), "the request exceeded its time limit of %g seconds",
                     c->deadline - c->received);
            fail_request(d, c, 408, "timeout", message);
        }
    }
}

/* Sends comments on silent streams: proxies cut connections without traffic, such as one whose request waits. */
static void keep_open(dispatcher *d)
{
    double now = supervisor_clock(), silent = d->options.silent_seconds;
    if (silent <= 0 || now - d->kept_open < POLL_MS * 1e-3) { /* events may arrive thousands of times a second */
        return;
    }
    d->kept_open = now;
    for (completion *c = d->live; c != NULL; c = c->next) {
        if (c->request.stream && now - (c->open ? c->last_sent : c->received) >= silent) {
            completion_keep_open(c);
        }
    }
}

/* Drains, and ends the jobs when no request is live. Returns whether the thread is done. */
static bool wind_up(dispatcher *d)
{
    pthread_mutex_lock(&d->lock);
    double until = d->drain_until;
    bool stop = d->stop, idle = d->inbox == NULL;
    pthread_mutex_unlock(&d->lock);
    if (d->state == DISPATCHER_ENDED) {
        return stop;
    }
    if (until == DISPATCHER_NEVER && !stop) {
        return false;
    }
    if (d->state != DISPATCHER_DRAINING) {
        dispatcher_set_state(d, DISPATCHER_DRAINING);
    }
    if (supervisor_clock() > until || stop || (d->options.on_demand && d->asleep)) {
        dispatcher_fail_all(d, "the server is shutting down");
    }
    if (d->live != NULL || !idle) {
        return false;
    }
    if (!d->ending) {
        replicas_end(d);
        d->ending = true;
    }
    if (replicas_are_gone(d)) {
        dispatcher_end(d, TRM_OK);
    }
    return false;
}

typedef struct watched {
    struct pollfd *entries; /* [n] */
    size_t n, capacity;
} watched;

static void add_watched(void *user, int fd, bool output)
{
    watched *w = user;
    /* When out of memory, the event is handled at the end of poll's timeout. */
    if (trm_array_grow((void **)&w->entries, &w->capacity, w->n + 1, sizeof(*w->entries)) == TRM_OK) {
        w->entries[w->n++] = (struct pollfd){.fd = fd, .events = (short)(POLLIN | (output ? POLLOUT : 0))};
    }
}

static void *dispatcher_main(void *user)
{
    dispatcher *d = user;
    watched w = {0};
    do {
        w.n = 0;
        add_watched(&w, d->mailbox, false);
        add_watched(&w, d->clients, false);
        for (int32_t i = 0; i < d->n_replicas; i++) {
            supervisor_watch(&d->replicas[i].supervisor, add_watched, &w);
        }
        poll(w.entries, (nfds_t)w.n, POLL_MS);
        take_inbox(d);
        drop_gone(d);
        replicas_tend(d, take_frame);
        adapters_tend(d);
        submit_waiting(d);
        replicas_send(d);
        drop_late(d);
        if (d->options.on_demand) {
            drop_unloaded(d);
        }
        keep_open(d);
        replicas_publish(d);
    } while (!wind_up(d));
    free(w.entries);
    return NULL;
}

/* ---- creation and destruction ---------------------------------------------------------------------------- */

void dispatcher_notify(dispatcher *d)
{
    uint64_t one = 1;
    if (write(d->mailbox, &one, sizeof(one)) < 0) {
        return; /* a full counter is not yet read: the thread will wake up */
    }
}

trm_status dispatcher_create(const dispatcher_options *options, dispatcher **result)
{
    dispatcher *d = calloc(1, sizeof(*d));
    if (d == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the server");
    }
    *d = (dispatcher){.options = *options, .mailbox = -1, .clients = -1, .drain_until = DISPATCHER_NEVER};
    if (options->on_demand) {
        d->state = DISPATCHER_SLEEPING;
        d->rest = REST_UNLOADED;
        d->asleep = d->asleep_and_gone = true;
    }
    pthread_mutex_init(&d->lock, NULL);
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&d->changed, &clock);
    pthread_condattr_destroy(&clock);
    metrics_init(&d->m);
    d->published = d->m;
    d->mailbox = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    d->clients = epoll_create1(EPOLL_CLOEXEC);
    d->slots = calloc(DISPATCHER_MAX_CHOICES, sizeof(*d->slots));
    d->free_slots = calloc(DISPATCHER_MAX_CHOICES, sizeof(*d->free_slots));
    trm_status status = TRM_OK;
    if (d->slots == NULL || d->free_slots == NULL) {
        status = trm_fail(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the server");
    } else if (d->mailbox < 0 || d->clients < 0) {
        status = trm_fail(TRM_ERROR_IO, "cannot create the server's descriptors: %s", strerror(errno));
    }
    for (uint32_t i = 0; status == TRM_OK && i < DISPATCHER_MAX_CHOICES; i++) {
        d->free_slots[d->n_free++] = DISPATCHER_MAX_CHOICES - 1 - i;
    }
    if (status == TRM_OK) {
        status = router_init(&d->router, options->n_replicas, options->prefix_cache);
    }
    for (int32_t i = 0; status == TRM_OK && i < options->n_adapters; i++) {
        status = adapters_require(d, options->adapters[i]);
    }
    if (status == TRM_OK) {
        status = replicas_start(d);
    }
    if (status == TRM_OK && pthread_create(&d->thread, NULL, dispatcher_main, d) != 0) {
        status = trm_fail(TRM_ERROR_INTERNAL, "cannot start the server's thread");
    }
    if (status != TRM_OK) {
        d->thread = 0;
        dispatcher_destroy(d);
        return status;
    }
    *result = d;
    return TRM_OK;
}

void dispatcher_refuse_late(completion *c)
{
    api_error error;
    api_fail(&error, 503, NULL, "unavailable", "the server has ended");
    completion_fail(c, &error);
    completion_destroy(c);
}

void dispatcher_stop(dispatcher *d)
{
    if (d == NULL || d->thread == 0) {
        return;
    }
    pthread_mutex_lock(&d->lock);
    d->stop = true;
    pthread_mutex_unlock(&d->lock);
    dispatcher_notify(d);
    pthread_join(d->thread, NULL);
    d->thread = 0;
    pthread_mutex_lock(&d->lock);
    d->stopped = true;
    completion *late = d->inbox;
    d->inbox = NULL;
    pthread_mutex_unlock(&d->lock);
    while (late != NULL) {
        completion *next = late->next;
        dispatcher_refuse_late(late);
        late = next;
    }
}

void dispatcher_destroy(dispatcher *d)
{
    if (d == NULL) {
        return;
    }
    dispatcher_stop(d);
    replicas_fini(d);
    router_fini(&d->router);
    if (d->mailbox >= 0) {
        close(d->mailbox);
    }
    if (d->clients >= 0) {
        close(d->clients);
    }
    free(d->slots);
    free(d->free_slots);
    trm_bytes_fini(&d->stalls);
    adapters_fini(d);
    pthread_cond_destroy(&d->changed);
    pthread_mutex_destroy(&d->lock);
    free(d);
}
