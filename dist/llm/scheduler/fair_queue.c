/*
 * The fair queue: waiting requests and their order.
 *
 * Priorities are strict: each is a level, and a level waits for all above it. Within a level clients share equally,
 * counted in tokens: the next request is the oldest one of the client that was served least. This is fair queueing by
 * virtual time (Goyal, Vin, Cheng: Start-time Fair Queueing, 1996) with tokens as the work, as by Sheng et al. for
 * language models (Fairness in Serving Large Language Models, 2024). A client without waiting requests starts at the
 * level's clock, so that nobody saves up unused service. Every admission advances the clock, so that endless newcomers
 * cannot starve a client that was served more. The clock is never behind the least served waiting client, nor behind
 * what a client received while nobody waited, so that service that delayed nobody is not held against it. A level
 * without requests forgets its counts.
 *
 * A request that was admitted once keeps its turn: if it is preempted, or resumed after its job was lost, it goes
 * before all requests that were never admitted, of any client.
 */
#include <stdlib.h>

#include "base/error.h"
#include "dist/llm/scheduler/scheduler.h"

#define OUTPUT_WORK 2    /* a token of output takes about as long as two of a prompt (docs/internals/scheduler.md) */
#define MOST_IDLE   1024 /* idle clients per level whose count is kept */

/* A client's requests of one priority. */
struct trm_client {
    uint64_t id;
    trm_level *level;
    int64_t served;             /* tokens, counted from the clock at the time when it began to wait */
    trm_sequence *first, *last; /* waiting requests, in order */
    trm_sequence *at;           /* this admission pass left all requests before it waiting */
    uint64_t pass;              /* number of that pass; 0: none */
    int32_t n_live;
    trm_client *next;
};

struct trm_level {
    int32_t priority;
    int64_t clock; /* tokens that a client that always waited would have received */
    trm_client *clients;
    int32_t n_live, n_waiting; /* requests; clients with requests that wait */
    trm_level *next;           /* of lower priority */
};

/* ---- clients ----------------------------------------------------------------------------------- */

static bool is_idle(const trm_client *client)
{
    return client->n_live == 0;
}

/* A client that is not ahead of the clock is like a new one. */
static bool is_forgettable(const trm_client *client)
{
    return is_idle(client) && client->served <= client->level->clock;
}

static void forget_client(trm_client **at)
{
    trm_client *client = *at;
    *at = client->next;
    free(client);
}

/* Removes clients whose count no longer matters. */
static void sweep(trm_level *level)
{
    int32_t n_idle = 0;
    trm_client **least = NULL;
    for (trm_client **at = &level->clients; *at != NULL;) {
        if (is_forgettable(*at)) {
            forget_client(at);
            continue;
        }
        n_idle += is_idle(*at);
        least = is_idle(*at) && (least == NULL || (*at)->served < (*least)->served) ? at : least;
        at = &(*at)->next;
    }
    if (n_idle > MOST_IDLE) {
        forget_client(least);
    }
}

static trm_client *find_client(const trm_level *level, uint64_t id)
{
    trm_client *client = level->clients;
    while (client != NULL && client->id != id) {
        client = client->next;
    }
    return client;
}

static void drop_level(trm_level **at)
{
    trm_level *level = *at;
    *at = level->next;
    while (level->clients != NULL) {
        forget_client(&level->clients);
    }
    free(level);
}

static trm_level **place_of_level(trm_scheduler *s, int32_t priority)
{
    trm_level **at = &s->levels;
    while (*at != NULL && (*at)->priority > priority) {
        at = &(*at)->next;
    }
    return at;
}

trm_status trm_scheduler_join(trm_scheduler *s, trm_sequence *sequence)
{
    const trm_serving_request *r = &sequence->request;
    trm_level **at = place_of_level(s, r->priority), *level = *at;
    bool fresh = level == NULL || level->priority != r->priority;
    if (fresh) {
        level = calloc(1, sizeof(*level));
        if (level == NULL) {
            TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate request %llu", (unsigned long long)r->id);
        }
        *level = (trm_level){.priority = r->priority, .next = *at};
        *at = level;
    }
    sweep(level);
    trm_client *client = find_client(level, r->client);
    if (client == NULL) {
        client = malloc(sizeof(*client));
        if (client == NULL) {
            if (fresh) {
                drop_level(at);
            }
            TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate request %llu", (unsigned long long)r->id);
        }
        *client = (trm_client){.id = r->client, .level = level, .next = level->clients};
        level->clients = client;
    }
    client->n_live++;
    level->n_live++;
    sequence->client = client;
    return TRM_OK;
}

void trm_scheduler_leave(trm_scheduler *s, trm_sequence *sequence)
{
    trm_level *level = sequence->client->level;
    sequence->client->n_live--;
    if (--level->n_live == 0) {
        drop_level(place_of_level(s, level->priority));
    }
    sequence->client = NULL;
}

/* ---- those that wait --------------------------------------------------------------------------- */

static uint64_t turn_of(const trm_sequence *sequence)
{
    return sequence->turn > 0 ? sequence->turn : UINT64_MAX;
}

/* Order within a client and level. */
static bool waits_before(const trm_sequence *a, const trm_sequence *b)
{
    return turn_of(a) != turn_of(b) ? turn_of(a) < turn_of(b) : a->arrival < b->arrival;
}

/* Order within a level. */
static bool is_next_before(const trm_sequence *a, const trm_sequence *b)
{
    return turn_of(a) != turn_of(b)                 ? turn_of(a) < turn_of(b)
           : a->client->served != b->client->served ? a->client->served < b->client->served
                                                    : a->arrival < b->arrival;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* A client without waiting requests, except resumed ones, begins to wait. */
static void begin(trm_client *client)
{
    trm_level *level = client->level;
    int64_t least = INT64_MAX;
    for (const trm_client *other = level->clients; other != NULL; other = other->next) {
        least = other->first != NULL && other->served < least ? other->served : least;
    }
    level->clock = least < INT64_MAX ? larger(level->clock, least) : level->clock;
    client->served = larger(client->served, level->clock);
}

void trm_scheduler_enqueue(trm_scheduler *s, trm_sequence *sequence)
{
    trm_client *client = sequence->client;
    if (sequence->turn == 0 && (client->last == NULL || client->last->turn > 0)) {
        begin(client);
    }
    client->level->n_waiting += client->first == NULL;
    client->pass = 0;
    trm_sequence *before = client->last;
    while (before != NULL && waits_before(sequence, before)) {
        before = before->before;
    }
    sequence->before = before;
    sequence->after = before != NULL ? before->after : client->first;
    *(before != NULL ? &before->after : &client->first) = sequence;
    *(sequence->after != NULL ? &sequence->after->before : &client->last) = sequence;
    sequence->slot = -1;
    s->n_waiting++;
}

void trm_scheduler_dequeue(trm_scheduler *s, trm_sequence *sequence)
{
    trm_client *client = sequence->client;
    client->at = client->at == sequence ? sequence->after : client->at;
    *(sequence->before != NULL ? &sequence->before->after : &client->first) = sequence->after;
    *(sequence->after != NULL ? &sequence->after->before : &client->last) = sequence->before;
    sequence->before = sequence->after = NULL;
    client->level->n_waiting -= client->first == NULL;
    s->n_waiting--;
}

trm_sequence *trm_scheduler_find_waiting(const trm_scheduler *s, uint64_t id)
{
    for (const trm_level *level = s->levels; level != NULL; level = level->next) {
        for (const trm_client *client = level->clients; client != NULL; client = client->next) {
            for (trm_sequence *sequence = client->first; sequence != NULL; sequence = sequence->after) {
                if (sequence->request.id == id) {
                    return sequence;
                }
            }
        }
    }
    return NULL;
}

/* The first request of a client that this admission pass has not left waiting. */
static trm_sequence *first_of(trm_client *client, uint64_t pass)
{
    if (client->pass != pass) {
        client->pass = pass;
        client->at = client->first;
    }
    while (client->at != NULL && client->at->passed == pass) {
        client->at = client->at->after;
    }
    return client->at;
}

trm_sequence *trm_scheduler_next(const trm_scheduler *s)
{
    trm_sequence *best = NULL;
    for (const trm_level *level = s->levels; level != NULL && best == NULL; level = level->next) {
        for (trm_client *client = level->clients; client != NULL; client = client->next) {
            trm_sequence *sequence = first_of(client, s->pass);
            best = sequence != NULL && (best == NULL || is_next_before(sequence, best)) ? sequence : best;
        }
    }
    return best;
}

void trm_scheduler_give_turn(trm_scheduler *s, trm_sequence *sequence)
{
    const trm_client *client = sequence->client;
    trm_level *level = client->level;
    if (sequence->turn == 0) {
        sequence->turn = ++s->turns;
        level->clock = larger(level->clock, client->served);
    }
}

void trm_scheduler_charge_prompt(trm_sequence *sequence, int64_t tokens)
{
    trm_client *client = sequence->client;
    client->served += tokens;
    client->level->clock += tokens / (client->level->n_waiting + (client->first == NULL));
}

void trm_scheduler_charge_output(trm_sequence *sequence)
{
    trm_client *client = sequence->client;
    trm_level *level = client->level;
    client->served += OUTPUT_WORK;
    if (level->n_waiting == 0) {
        level->clock = larger(level->clock, client->served);
    }
}

void trm_scheduler_drop_waiting(trm_scheduler *s)
{
    while (s->levels != NULL) {
        for (const trm_client *client = s->levels->clients; client != NULL; client = client->next) {
            for (trm_sequence *sequence = client->first, *after; sequence != NULL; sequence = after) {
                after = sequence->after;
                free(sequence);
            }
        }
        drop_level(&s->levels);
    }
}
