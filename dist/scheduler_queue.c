/*
 * Who runs: admission, growth and preemption.
 *
 * Who is next scheduler_share.c says. Those that run are in order by priority, then by turn, which they keep while they
 * are preempted. A request is admitted with the blocks of all its tokens, so a prompt that has begun is never short of
 * memory; what grows later, grows at the cost of the last in order. The first in order therefore always runs to its
 * end.
 */
#include <assert.h>
#include <string.h>

#include "dist/scheduler.h"

#define BLOCK TRM_KV_BLOCK_SIZE

static bool is_ahead(const trm_live *a, const trm_live *b)
{
    return a->request.priority > b->request.priority ||
           (a->request.priority == b->request.priority && a->turn < b->turn);
}

static int32_t blocks_for(int64_t tokens)
{
    return (int32_t)((tokens + BLOCK - 1) / BLOCK);
}

static int32_t *row_of(const trm_scheduler *s, const trm_live *live)
{
    return s->table + (size_t)live->slot * (size_t)s->g->blocks_per_sequence;
}

/* ---- running ----------------------------------------------------------------------------------- */

static void place(trm_scheduler *s, trm_live *live)
{
    int32_t at = s->n_running++;
    for (; at > 0 && is_ahead(live, s->running[at - 1]); at--) {
        s->running[at] = s->running[at - 1];
    }
    s->running[at] = live;
    live->slot = s->free_slots[--s->n_free_slots];
    s->n_sent[live->slot] = 0;
}

void trm_scheduler_evict(trm_scheduler *s, trm_live *live)
{
    int32_t at = 0;
    while (s->running[at] != live) {
        at++;
    }
    memmove(s->running + at, s->running + at + 1, (size_t)(s->n_running - at - 1) * sizeof(trm_live *));
    s->n_running--;
    const int32_t *row = row_of(s, live);
    while (live->n_blocks > 0) {
        trm_blocks_release(&s->blocks, row[--live->n_blocks]);
    }
    trm_drafter_forget(&s->drafter, live->slot);
    s->free_slots[s->n_free_slots++] = live->slot;
    live->slot = -1;
    live->n_cached = 0;
    live->n_published = 0;
    live->chain = 0;
    live->counted = false;
}

/* Blocks kept free for those that run, so that a newcomer does not push another out at once. */
static int32_t headroom(const trm_scheduler *s)
{
    return s->n_running;
}

static void preempt(trm_scheduler *s, trm_live *live)
{
    trm_scheduler_evict(s, live);
    trm_scheduler_enqueue(s, live);
    s->stats.preemptions++;
}

bool trm_scheduler_grow(trm_scheduler *s, trm_live *live)
{
    while (live->n_blocks < blocks_for(live->n_tokens)) {
        if (s->blocks.n_free > 0) {
            row_of(s, live)[live->n_blocks++] = trm_blocks_take(&s->blocks);
            continue;
        }
        trm_live *last = s->running[s->n_running - 1];
        preempt(s, last);
        if (last == live) {
            return false;
        }
    }
    return true;
}

int32_t trm_scheduler_grow_for_drafts(trm_scheduler *s, trm_live *live, int32_t wanted)
{
    while (live->n_blocks < blocks_for(live->n_tokens + wanted) && s->blocks.n_free > headroom(s)) {
        row_of(s, live)[live->n_blocks++] = trm_blocks_take(&s->blocks);
    }
    int64_t room = (int64_t)live->n_blocks * BLOCK - live->n_tokens;
    return wanted < room ? wanted : (int32_t)room;
}

void trm_scheduler_publish(trm_scheduler *s, trm_live *live)
{
    const int32_t *row = row_of(s, live);
    for (; s->prefix_cache && (live->n_published + 1) * (int64_t)BLOCK <= live->n_cached; live->n_published++) {
        live->chain = trm_blocks_publish(&s->blocks, row[live->n_published], live->chain,
                                         live->tokens + (size_t)live->n_published * BLOCK);
    }
}

/* ---- admission --------------------------------------------------------------------------------- */

/* Not where something is wanted of every token. */
static bool looks_up(const trm_scheduler *s, const trm_live *live)
{
    return s->prefix_cache && live->request.prompt_logprobs < 0 && live->request.embedding != TRM_EMBEDDING_MEAN;
}

/* Finds the longest beginning of a request's tokens in the cache, less one token at least, which must be run for its
 * logits. Blocks found are written to `row` (may be NULL). */
static int32_t find_prefix(const trm_scheduler *s, const trm_live *live, int32_t *row, uint64_t *chain, int32_t *idle)
{
    int32_t n = 0;
    *chain = 0;
    *idle = 0;
    bool may = looks_up(s, live);
    for (; may && (n + 1) * (int64_t)BLOCK < live->n_tokens; n++) {
        int32_t block = trm_blocks_find(&s->blocks, *chain, live->tokens + (size_t)n * BLOCK);
        if (block < 0) {
            break;
        }
        *chain = s->blocks.blocks[block].serial;
        *idle += s->blocks.blocks[block].holders == 0;
        if (row != NULL) {
            row[n] = block;
        }
    }
    return n;
}

/* Whether a running request is about to compute blocks that this one could find: it waits for them then. */
static bool is_being_computed(const trm_scheduler *s, const trm_live *live, int32_t found)
{
    if (!looks_up(s, live)) {
        return false;
    }
    for (int32_t i = 0; i < s->n_running; i++) {
        const trm_live *other = s->running[i];
        if (other->n_tokens - other->n_cached <= 1) {
            continue;
        }
        int64_t most = other->n_tokens < live->n_tokens - 1 ? other->n_tokens : live->n_tokens - 1, common = 0;
        while (common < most && other->tokens[common] == live->tokens[common]) {
            common++;
        }
        common -= common % BLOCK;
        if (common > (int64_t)found * BLOCK && other->n_cached < common) {
            return true;
        }
    }
    return false;
}

/* Whether the last in order of those running is behind a request by priority, not by its turn alone. */
static bool may_displace(const trm_scheduler *s, const trm_live *live)
{
    return s->n_running > 0 && s->running[s->n_running - 1]->request.priority < live->request.priority;
}

static void admit(trm_scheduler *s, trm_live *live)
{
    int32_t idle;
    trm_scheduler_dequeue(s, live);
    trm_scheduler_give_turn(s, live);
    place(s, live);
    int32_t *row = row_of(s, live);
    live->n_blocks = live->n_published = find_prefix(s, live, row, &live->chain, &idle);
    for (int32_t i = 0; i < live->n_blocks; i++) {
        trm_blocks_retain(&s->blocks, row[i]);
    }
    live->n_cached = (int64_t)live->n_blocks * BLOCK;
    for (int32_t n = blocks_for(live->n_tokens); live->n_blocks < n;) {
        row[live->n_blocks++] = trm_blocks_take(&s->blocks);
    }
    if (live->started == 0.0) {
        live->started = trm_scheduler_now();
        live->n_found = live->n_cached;
        trm_scheduler_charge_prompt(live, live->n_tokens - live->n_cached);
        s->stats.prefix_queries += live->n_tokens;
        s->stats.prefix_hits += live->n_cached;
    }
}

/* Takes the places of requests of lower priority until it has one, if it may. Whether it is admitted. */
static bool make_place(trm_scheduler *s, trm_live *live)
{
    for (;;) {
        uint64_t chain;
        int32_t idle, needed = blocks_for(live->n_tokens) - find_prefix(s, live, NULL, &chain, &idle);
        if (s->n_free_slots > 0 && needed + idle + (s->n_running > 0 ? headroom(s) : 0) <= s->blocks.n_free) {
            admit(s, live);
            return true;
        }
        if (!may_displace(s, live)) {
            return false;
        }
        preempt(s, s->running[s->n_running - 1]);
    }
}

void trm_scheduler_admit(trm_scheduler *s)
{
    s->pass++;
    for (trm_live *live = trm_scheduler_next(s); live != NULL; live = trm_scheduler_next(s)) {
        uint64_t chain;
        int32_t idle;
        if (s->n_free_slots == 0 && !may_displace(s, live)) {
            return;
        }
        if (is_being_computed(s, live, find_prefix(s, live, NULL, &chain, &idle))) {
            live->passed = s->pass; /* those behind it may go ahead meanwhile */
        } else if (!make_place(s, live)) {
            return;
        }
    }
}
