/*
 * The transport between threads of one process: messages wait in a queue per sender and receiver until the receiver has
 * copied them from the sender's buffer.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "collectives/transport.h"
#include "collectives/wait.h"

typedef enum letter_state {
    LETTER_WAITING = 0,
    LETTER_TAKEN, /* the receiver is copying it */
    LETTER_DONE
} letter_state;

typedef struct letter {
    struct letter *next;
    uint32_t channel;
    const void *bytes;
    size_t size;
    letter_state state;
} letter;

typedef struct queue {
    letter *first, *last;
} queue;

/* What the ranks share; freed by the last of them. */
typedef struct office {
    pthread_mutex_t mutex;
    pthread_cond_t changed[TRM_MAX_RANKS]; /* for each rank: a message for it arrived, or one of its own is done */
    int32_t size, users;
    trm_notice notice;
    queue queues[]; /* [from, to] */
} office;

typedef struct local {
    trm_transport base;
    office *office;
    letter letters[TRM_MAX_RANKS]; /* messages of this rank in the current transfer */
} local;

static queue *queue_of(office *o, int32_t from, int32_t to)
{
    return &o->queues[from * o->size + to];
}

static void append(queue *q, letter *l)
{
    l->next = NULL;
    if (q->first == NULL) {
        q->first = l;
    } else {
        q->last->next = l;
    }
    q->last = l;
}

static void unlink_letter(queue *q, const letter *l)
{
    letter *before = NULL;
    for (letter *at = q->first; at != NULL; before = at, at = at->next) {
        if (at != l) {
            continue;
        }
        if (before == NULL) {
            q->first = at->next;
        } else {
            before->next = at->next;
        }
        if (q->last == at) {
            q->last = before;
        }
        return;
    }
}

static letter *find_letter(queue *q, uint32_t channel)
{
    letter *l = q->first;
    while (l != NULL && l->channel != channel) {
        l = l->next;
    }
    return l;
}

/* Copies waiting messages for open receives. The mutex is held on entry and return, not while copying. */
static trm_status take_letters(local *t, uint32_t channel, const trm_message *receives, int32_t n_receives,
                               bool *received, int32_t *n_done)
{
    office *o = t->office;
    for (int32_t i = 0; i < n_receives; i++) {
        queue *q = queue_of(o, receives[i].peer, t->base.rank);
        letter *l = received[i] ? NULL : find_letter(q, channel);
        if (l == NULL) {
            continue;
        }
        if (l->size != receives[i].size) {
            return trm_transport_lost(&t->base, receives[i].peer, "sent %zu bytes, expected %zu", l->size,
                                      receives[i].size);
        }
        unlink_letter(q, l);
        l->state = LETTER_TAKEN;
        pthread_mutex_unlock(&o->mutex);
        memcpy(receives[i].bytes, l->bytes, l->size);
        pthread_mutex_lock(&o->mutex);
        l->state = LETTER_DONE;
        received[i] = true;
        ++*n_done;
        pthread_cond_signal(&o->changed[receives[i].peer]);
    }
    return TRM_OK;
}

/* Removes messages that will not be read; waits for running copies. */
static void recall_letters(local *t, const trm_message *sends, int32_t n_sends)
{
    for (int32_t i = 0; i < n_sends; i++) {
        letter *l = &t->letters[i];
        while (l->state == LETTER_TAKEN) {
            pthread_cond_wait(&t->office->changed[t->base.rank], &t->office->mutex);
        }
        if (l->state == LETTER_WAITING) {
            unlink_letter(queue_of(t->office, t->base.rank, sends[i].peer), l);
        }
    }
}

static bool all_sent(const local *t, int32_t n_sends)
{
    for (int32_t i = 0; i < n_sends; i++) {
        if (t->letters[i].state != LETTER_DONE) {
            return false;
        }
    }
    return true;
}

/* The first peer that a transfer is waiting for. */
static int32_t missing_peer(const local *t, const trm_message *sends, const trm_message *receives, int32_t n_receives,
                            const bool *received)
{
    for (int32_t i = 0; i < n_receives; i++) {
        if (!received[i]) {
            return receives[i].peer;
        }
    }
    int32_t i = 0;
    while (t->letters[i].state == LETTER_DONE) {
        i++;
    }
    return sends[i].peer;
}

static void deadline_after(double seconds, struct timespec *end)
{
    double at = trm_wait_now() + seconds;
    end->tv_sec = (time_t)at;
    end->tv_nsec = (long)((at - (double)end->tv_sec) * 1e9);
}

static trm_status local_transfer(trm_transport *transport, uint32_t channel, double deadline_seconds,
                                 const trm_message *sends, int32_t n_sends, const trm_message *receives,
                                 int32_t n_receives)
{
    local *t = (local *)transport;
    office *o = t->office;
    bool received[TRM_MAX_RANKS] = {false};
    int32_t n_done = 0;
    struct timespec end;
    deadline_after(deadline_seconds, &end);
    trm_status status = TRM_OK;
    pthread_mutex_lock(&o->mutex);
    for (int32_t i = 0; i < n_sends; i++) {
        t->letters[i] = (letter){NULL, channel, sends[i].bytes, sends[i].size, LETTER_WAITING};
        append(queue_of(o, transport->rank, sends[i].peer), &t->letters[i]);
        pthread_cond_signal(&o->changed[sends[i].peer]);
    }
    for (;;) {
        int32_t n_before = n_done;
        status = take_letters(t, channel, receives, n_receives, received, &n_done);
        if (status != TRM_OK || (n_done == n_receives && all_sent(t, n_sends))) {
            break;
        }
        if (o->notice.status != TRM_OK) {
            status = trm_transport_break(transport, &o->notice);
            break;
        }
        if (n_done > n_before) {
            continue; /* the mutex was released for copying: messages may have arrived since */
        }
        if (pthread_cond_timedwait(&o->changed[transport->rank], &o->mutex, &end) != 0) {
            status = trm_transport_lost(transport, missing_peer(t, sends, receives, n_receives, received),
                                        "did not arrive within %g s", deadline_seconds);
            break;
        }
    }
    if (status != TRM_OK) {
        recall_letters(t, sends, n_sends);
    }
    pthread_mutex_unlock(&o->mutex);
    return status;
}

static void local_notify(trm_transport *transport, const trm_notice *notice, double seconds)
{
    (void)seconds; /* peers see it when they check next */
    office *o = ((local *)transport)->office;
    pthread_mutex_lock(&o->mutex);
    if (o->notice.status == TRM_OK) {
        o->notice = *notice;
    }
    for (int32_t r = 0; r < o->size; r++) {
        pthread_cond_signal(&o->changed[r]);
    }
    pthread_mutex_unlock(&o->mutex);
}

static void local_poll(trm_transport *transport)
{
    office *o = ((local *)transport)->office;
    pthread_mutex_lock(&o->mutex);
    if (o->notice.status != TRM_OK) {
        trm_transport_break(transport, &o->notice);
    }
    pthread_mutex_unlock(&o->mutex);
}

static void local_destroy(trm_transport *transport)
{
    office *o = ((local *)transport)->office;
    pthread_mutex_lock(&o->mutex);
    int32_t users = --o->users;
    pthread_mutex_unlock(&o->mutex);
    if (users == 0) {
        for (int32_t r = 0; r < o->size; r++) {
            pthread_cond_destroy(&o->changed[r]);
        }
        pthread_mutex_destroy(&o->mutex);
        free(o);
    }
    free(transport);
}

static const trm_transport_ops local_ops = {"local", local_transfer, local_notify, local_poll, local_destroy};

static office *open_office(int32_t size)
{
    office *o = calloc(1, sizeof(*o) + (size_t)size * (size_t)size * sizeof(queue));
    if (o == NULL) {
        return NULL;
    }
    o->size = o->users = size;
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_mutex_init(&o->mutex, NULL);
    for (int32_t r = 0; r < size; r++) {
        pthread_cond_init(&o->changed[r], &attributes);
    }
    pthread_condattr_destroy(&attributes);
    return o;
}

trm_status trm_transport_local_create(int32_t size, trm_transport **transports)
{
    if (size < 1 || size > TRM_MAX_RANKS) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "local ranks are %d, expected 1 to %d", (int)size, TRM_MAX_RANKS);
    }
    local *made[TRM_MAX_RANKS] = {NULL};
    office *o = open_office(size);
    bool complete = o != NULL;
    for (int32_t r = 0; r < size && complete; r++) {
        made[r] = calloc(1, sizeof(local));
        complete = made[r] != NULL;
    }
    if (!complete) {
        for (int32_t r = 0; r < size; r++) {
            free(made[r]);
        }
        free(o);
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %d local ranks", (int)size);
    }
    for (int32_t r = 0; r < size; r++) {
        made[r]->base = (trm_transport){.ops = &local_ops, .rank = r, .size = size, .users = 1};
        made[r]->office = o;
        transports[r] = &made[r]->base;
    }
    return TRM_OK;
}

trm_status trm_communicator_local_create(int32_t size, double deadline_seconds, trm_communicator **communicators)
{
    trm_transport *transports[TRM_MAX_RANKS];
    TRM_TRY(trm_transport_local_create(size, transports));
    trm_status status = TRM_OK;
    for (int32_t r = 0; r < size; r++) {
        communicators[r] = NULL;
        if (status == TRM_OK) {
            status = trm_communicator_pairwise_create(transports[r], deadline_seconds, &communicators[r]);
        }
        trm_transport_release(transports[r]);
    }
    for (int32_t r = 0; r < size && status != TRM_OK; r++) {
        trm_communicator_destroy(communicators[r]);
        communicators[r] = NULL;
    }
    return status;
}
