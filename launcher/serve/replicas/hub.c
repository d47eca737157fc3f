/* The hub's thread: requests in, tokens back. */
#include "launcher/serve/replicas/hub_internal.h"

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

const char *hub_state_name(hub_state state)
{
    static const char *const names[] = {"loading", "ready", "recovering", "draining", "sleeping", "ended"};
    return names[state];
}

void hub_set_state(hub *h, hub_state state)
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

/* Its prompt has been run, or need not be any more. */
static void end_prompt(hub *h, choice *ch)
{
    if (ch->running) {
        h->replicas[ch->replica].prompt_tokens -= ch->prompt_left;
        ch->prompt_left = 0;
    }
}

static void take_id(hub *h, choice *ch)
{
    if (ch->running) {
        end_prompt(h, ch);
        ch->running = false;
        h->replicas[ch->replica].n_choices--;
    }
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

static void cancel_choice(hub *h, choice *ch)
{
    channel *to = ch->running ? replica_leader(&h->replicas[ch->replica]) : NULL;
    if (ch->id != 0 && to != NULL) {
        (void)wire_write(&to->out, WIRE_CANCEL, &ch->id, sizeof(ch->id));
    }
    take_id(h, ch);
}

/* False: there is no memory for it. */
static bool hold(hub *h, completion *c)
{
    hub_client *holder = h->holders;
    while (holder != NULL && holder->id != c->client) {
        holder = holder->next;
    }
    if (holder == NULL) {
        holder = malloc(sizeof(*holder));
        if (holder == NULL) {
            return false;
        }
        *holder = (hub_client){.id = c->client, .next = h->holders};
        h->holders = holder;
        h->n_holders++;
    }
    holder->live += c->n_choices;
    c->holder = holder;
    return true;
}

static void let_go(hub *h, completion *c)
{
    if (c->holder == NULL) {
        return;
    }
    c->holder->live -= c->n_choices;
    if (c->holder->live == 0) {
        hub_client **at = &h->holders;
        while (*at != c->holder) {
            at = &(*at)->next;
        }
        *at = c->holder->next;
        h->n_holders--;
        free(c->holder);
    }
    c->holder = NULL;
}

/* Forgets a request, whatever its state. */
static void retire(hub *h, completion *c)
{
    for (int32_t i = 0; i < c->n_choices; i++) {
        cancel_choice(h, &c->choices[i]);
    }
    *(c->previous != NULL ? &c->previous->next : &h->live) = c->next;
    *(c->next != NULL ? &c->next->previous : &h->oldest) = c->previous;
    let_go(h, c);
    h->m.live -= c->n_choices;
    completion_destroy(c);
}

static void count_finish(hub *h, const completion *c, metrics_finish reason)
{
    double now = supervisor_clock();
    size_t longest = 0;
    for (int32_t i = 0; i < c->n_choices; i++) {
        size_t output = c->choices[i].tokens.size - c->choices[i].n_prompt;
        longest = output > longest ? output : longest;
    }
    histogram_observe(&h->m.longest_output, (double)longest);
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

/* Returns false when the request is gone. */
static bool finish_choice(hub *h, choice *ch, const char *reason)
{
    completion *c = ch->owner;
    if (ch->running) { /* what follows this text in a conversation begins with it */
        router_note(&h->router, ch->tokens.data, ch->tokens.size, ch->replica);
    }
    take_id(h, ch);
    if (choice_finish(ch, reason) != TRM_OK) {
        fail_request(h, c, 503, NULL, trm_last_error());
        return false;
    }
    bool last = c->n_finished == c->n_choices;
    settle(h, c);
    return !last;
}

/* `unseen`: tokens that the replica has to run for it. Returns false when the request is gone. */
static bool submit_choice(hub *h, replica *r, choice *ch, int64_t unseen)
{
    const api_request *asked = &ch->owner->request;
    wire_submission submission = {.grammar_kind = (int32_t)asked->format, .grammar = asked->grammar};
    size_t output = ch->tokens.size - ch->n_prompt;
    if (output > 0 && (asked->max_tokens == (int64_t)output || (int64_t)ch->tokens.size >= h->ready.max_context)) {
        /* Its replica was lost between the last token and the word that it was the last. */
        return finish_choice(h, ch, "length");
    }
    choice_submission(ch, &submission.request);
    if (wire_write_submission(&replica_leader(r)->out, &submission) != TRM_OK) {
        fail_request(h, ch->owner, 400, NULL, trm_last_error());
        return false;
    }
    ch->running = true;
    ch->replica = r->index;
    ch->prompt_left = unseen;
    r->n_choices++;
    r->prompt_tokens += unseen;
    return true;
}

/* The replica that is to have it, and the tokens it has to run for it; NULL: none serves now. */
static replica *choose_replica(hub *h, const choice *ch, int64_t *unseen)
{
    router_replica state[ROUTER_MOST_REPLICAS] = {0};
    for (int32_t i = 0; i < h->n_replicas; i++) {
        replica *r = &h->replicas[i];
        state[i] = (router_replica){replica_leader(r) != NULL, r->n_choices, r->ready.max_sequences, r->prompt_tokens};
    }
    int32_t best = router_choose(&h->router, ch->tokens.data, ch->tokens.size, state, unseen);
    if (best >= 0) {
        router_note(&h->router, ch->tokens.data, ch->tokens.size, best);
    }
    return best >= 0 ? &h->replicas[best] : NULL;
}

/* The next choice of a request that no replica has; NULL if there is none. */
static choice *waiting_choice(const completion *c)
{
    for (int32_t i = 0; i < c->n_choices; i++) {
        if (!c->choices[i].running && !c->choices[i].finished) {
            return &c->choices[i];
        }
    }
    return NULL;
}

/* Hands choices to replicas that none has, where one serves, in the order in which they came. */
static void submit_waiting(hub *h)
{
    if (!h->has_waiting || !replicas_serve(h)) {
        return;
    }
    h->has_waiting = false;
    completion *newer;
    for (completion *c = h->oldest; c != NULL; c = newer) {
        newer = c->previous;
        choice *ch = waiting_choice(c);
        while (ch != NULL) {
            /* What ends here may end the whole request, which is then gone. */
            int64_t unseen;
            replica *r = choose_replica(h, ch, &unseen);
            ch = submit_choice(h, r, ch, unseen) ? waiting_choice(c) : NULL;
        }
    }
}

void hub_divide_again(hub *h)
{
    for (completion *c = h->live; c != NULL; c = c->next) { /* the newest first: the oldest keep their turn */
        for (int32_t i = 0; i < c->n_choices; i++) {
            choice *ch = &c->choices[i];
            const replica *r = ch->running ? &h->replicas[ch->replica] : NULL;
            bool waits = r != NULL && ch->prompt_left > 0 && ch->prompt_seen == 0;
            if (waits && r->n_choices > r->ready.max_sequences) {
                cancel_choice(h, ch);
                (void)give_id(h, ch); /* there is that of the cancelled one; its end is nobody's */
                h->has_waiting = true;
            }
        }
    }
}

/* ---- a full server ------------------------------------------------------------------------------------- */

static void refuse_full(hub *h, completion *c)
{
    h->m.refused++;
    fail_request(h, c, 429, "queue_full", "the server has as many requests as it takes, try again later");
}

/* Whether `other` may be refused after all in favour of `c`: nothing of it has come, and its client keeps as much. */
static bool may_yield(const completion *other, const completion *c)
{
    return other->holder != NULL && !other->yields && other->holder->live - other->n_choices >= c->holder->live &&
           !other->begun && other->first_token == 0 && other->n_finished == 0 &&
           other->request.priority <= c->request.priority;
}

/* Takes places for `c` from the clients that have most, the newest request first, as long as its own has no more than
 * an even part; from none of them if they have too few. */
static void take_places(hub *h, const completion *c)
{
    int32_t live = h->m.live;
    if ((int64_t)c->holder->live * h->n_holders > h->options.max_requests) {
        return;
    }
    while (live > h->options.max_requests) {
        completion *last = NULL;
        for (completion *other = h->live; other != NULL; other = other->next) {
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
    for (completion *other = h->live; other != NULL; other = older) {
        older = other->next;
        if (other->yields) {
            other->yields = false;
            other->holder->live += other->n_choices;
            if (live <= h->options.max_requests) {
                refuse_full(h, other);
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
    *(h->live != NULL ? &h->live->previous : &h->oldest) = c;
    h->live = c;
    h->m.live += c->n_choices;
    double most = h->options.request_seconds, asked = c->request.timeout;
    double seconds = asked > 0 && (most <= 0 || asked < most) ? asked : most;
    c->deadline = seconds > 0 ? c->received + seconds : HUB_NEVER;
    pthread_mutex_lock(&h->lock);
    bool wakes = state == HUB_SLEEPING && !h->sleep_wanted;
    pthread_mutex_unlock(&h->lock);
    if (state != HUB_READY && state != HUB_RECOVERING && !wakes) {
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
    if (hold(h, c) && h->m.live > h->options.max_requests) {
        take_places(h, c);
    }
    bool fits = c->holder != NULL && h->m.live <= h->options.max_requests;
    for (int32_t i = 0; i < c->n_choices && fits; i++) {
        fits = give_id(h, &c->choices[i]);
    }
    if (!fits) {
        refuse_full(h, c);
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
    end_prompt(h, ch);
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
        router_note(&h->router, ch->tokens.data, ch->tokens.size, ch->replica);
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
    fail_request(h, ch->owner, status, status == 400 ? "invalid_value" : "unavailable", refusal->cause);
}

static void take_frame(void *user, const wire_frame *frame)
{
    replica *r = user;
    hub *h = r->hub;
    wire_event event;
    wire_refusal refusal;
    wire_stalls stalls;
    if (frame->kind == WIRE_EVENT && wire_read_event(frame, &event) == TRM_OK) {
        take_event(h, &event.event);
    } else if (frame->kind == WIRE_REFUSED && wire_read_refusal(frame, &refusal) == TRM_OK) {
        take_refusal(h, &refusal);
    } else if (frame->kind == WIRE_STATS) {
        (void)wire_read(frame, &r->engine, sizeof(r->engine));
    } else if (frame->kind == WIRE_STALLS && wire_read_stalls(frame, &stalls) == TRM_OK) {
        replicas_keep_stalls(h, stalls.layers);
    }
}

void hub_fail_all(hub *h, const char *message)
{
    while (h->live != NULL) {
        fail_request(h, h->live, 503, "unavailable", message);
    }
}

void hub_end(hub *h, trm_status failure)
{
    pthread_mutex_lock(&h->lock);
    h->failure = failure;
    snprintf(h->cause, sizeof(h->cause), "%s", failure == TRM_OK ? "" : trm_last_error());
    pthread_mutex_unlock(&h->lock);
    hub_fail_all(h, "the server has ended");
    hub_set_state(h, HUB_ENDED);
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
        if (!broken && c->open) {
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

/* Proxies cut a connection on which nothing comes for a while, such as one whose request waits. */
static void keep_open(hub *h)
{
    double now = supervisor_clock(), silent = h->options.silent_seconds;
    if (silent <= 0 || now - h->kept_open < POLL_MS * 1e-3) { /* events may come thousands of times a second */
        return;
    }
    h->kept_open = now;
    for (completion *c = h->live; c != NULL; c = c->next) {
        if (c->request.stream && now - (c->open ? c->spoke : c->received) >= silent) {
            completion_keep_open(c);
        }
    }
}

/* Drains, and ends the jobs once nothing is live. Returns whether the thread is done. */
static bool wind_up(hub *h)
{
    pthread_mutex_lock(&h->lock);
    double until = h->drain_until;
    bool stop = h->stop, idle = h->inbox == NULL;
    pthread_mutex_unlock(&h->lock);
    if (h->state == HUB_ENDED) {
        return stop;
    }
    if (until == HUB_NEVER && !stop) {
        return false;
    }
    if (h->state != HUB_DRAINING) {
        hub_set_state(h, HUB_DRAINING);
    }
    if (supervisor_clock() > until || stop) {
        hub_fail_all(h, "the server is ending");
    }
    if (h->live != NULL || !idle) {
        return false;
    }
    if (!h->ending) {
        replicas_end(h);
        h->ending = true;
    }
    if (replicas_are_gone(h)) {
        hub_end(h, TRM_OK);
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
    /* Without memory it is looked at when poll's time is over. */
    if (trm_array_grow((void **)&w->entries, &w->capacity, w->n + 1, sizeof(*w->entries)) == TRM_OK) {
        w->entries[w->n++] = (struct pollfd){.fd = fd, .events = (short)(POLLIN | (output ? POLLOUT : 0))};
    }
}

static void *hub_main(void *user)
{
    hub *h = user;
    watched w = {0};
    do {
        w.n = 0;
        add_watched(&w, h->mailbox, false);
        add_watched(&w, h->clients, false);
        for (int32_t i = 0; i < h->n_replicas; i++) {
            supervisor_watch(&h->replicas[i].supervisor, add_watched, &w);
        }
        poll(w.entries, (nfds_t)w.n, POLL_MS);
        take_inbox(h);
        drop_gone(h);
        replicas_tend(h, take_frame);
        submit_waiting(h);
        replicas_send(h);
        drop_late(h);
        keep_open(h);
        replicas_publish(h);
    } while (!wind_up(h));
    free(w.entries);
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
        status = router_init(&h->router, options->n_replicas, options->prefix_cache);
    }
    if (status == TRM_OK) {
        status = replicas_start(h);
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
    replicas_fini(h);
    router_fini(&h->router);
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
