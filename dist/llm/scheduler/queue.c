/*
 * Running requests: admission, growth and preemption.
 *
 * fair_queue.c orders waiting requests. Running ones are ordered by priority, then by turn, which they keep while
 * preempted. A request is admitted with blocks for all its tokens, so that a prompt never runs out of memory. A request
 * that grows later may preempt the last in order. The first in order therefore always finishes.
 */
#include <assert.h>
#include <string.h>

#include "dist/llm/scheduler/scheduler.h"

static bool is_ahead(const trm_sequence *a, const trm_sequence *b)
{
    return a->request.priority > b->request.priority ||
           (a->request.priority == b->request.priority && a->turn < b->turn);
}

static int32_t *row_of(const trm_scheduler *s, const trm_sequence *sequence)
{
    return s->table + (size_t)sequence->slot * (size_t)s->g->blocks_per_sequence;
}

/* ---- running ----------------------------------------------------------------------------------- */

static void place(trm_scheduler *s, trm_sequence *sequence)
{
    int32_t at = s->n_running++;
    for (; at > 0 && is_ahead(sequence, s->running[at - 1]); at--) {
        s->running[at] = s->running[at - 1];
    }
    s->running[at] = sequence;
    sequence->slot = s->free_slots[--s->n_free_slots];
    s->n_sent[sequence->slot] = 0;
}

/* ---- states by sequence ------------------------------------------------------------------------- */

/* Whether the state behind a request's tokens in the cache can be found by their blocks, and nobody keeps it yet. */
static bool is_worth_keeping(const trm_scheduler *s, const trm_sequence *sequence)
{
    return s->prefix_cache && sequence->state == sequence->next_state && sequence->n_published > 0 &&
           sequence->n_cached == (int64_t)sequence->n_published * s->g->block_tokens &&
           trm_state_pool_find(&s->states, sequence->chain) < 0;
}

/* Of its output a request keeps the latest state alone. */
static void keep_state(trm_scheduler *s, trm_sequence *sequence)
{
    trm_state_pool_keep(&s->states, sequence->state, sequence->chain);
    if (sequence->n_cached > sequence->request.n_prompt) {
        if (sequence->kept != 0) {
            trm_state_pool_drop(&s->states, sequence->kept);
        }
        sequence->kept = sequence->chain;
    }
}

void trm_scheduler_begin_state(trm_scheduler *s, trm_sequence *sequence)
{
    /* Every request that is admitted must find a slot. */
    if (s->states.n_free > s->n_free_slots && is_worth_keeping(s, sequence)) {
        keep_state(s, sequence);
        sequence->next_state = trm_state_pool_take(&s->states);
    }
}

void trm_scheduler_end_state(trm_scheduler *s, trm_sequence *sequence)
{
    if (sequence->state != sequence->next_state) {
        trm_state_pool_release(&s->states, sequence->state);
        sequence->state = sequence->next_state;
    }
}

static void leave_state(trm_scheduler *s, trm_sequence *sequence)
{
    if (s->states.n == 0) {
        return;
    }
    if (is_worth_keeping(s, sequence)) {
        keep_state(s, sequence);
    }
    trm_scheduler_end_state(s, sequence);
    trm_state_pool_release(&s->states, sequence->state);
    sequence->cut = 0;
    sequence->kept = 0;
}

/* ---- eviction ------------------------------------------------------------------------------------ */

void trm_scheduler_evict(trm_scheduler *s, trm_sequence *sequence)
{
    int32_t at = 0;
    while (s->running[at] != sequence) {
        at++;
    }
    memmove(s->running + at, s->running + at + 1, (size_t)(s->n_running - at - 1) * sizeof(trm_sequence *));
    s->n_running--;
    const int32_t *row = row_of(s, sequence);
    while (sequence->n_blocks > 0) {
        trm_kv_block_pool_release(&s->blocks, row[--sequence->n_blocks]);
    }
    trm_draft_model_forget(&s->drafter, sequence->slot);
    leave_state(s, sequence);
    s->free_slots[s->n_free_slots++] = sequence->slot;
    sequence->slot = -1;
    sequence->n_cached = 0;
    sequence->n_published = 0;
    sequence->chain = trm_scheduler_root(s, sequence);
    sequence->counted = false;
    sequence->ahead = false;
    sequence->head_row = -1;
}

/* Blocks kept free for running requests, so that a new request does not preempt another at once. */
static int32_t headroom(const trm_scheduler *s)
{
    return s->n_running;
}

static void preempt(trm_scheduler *s, trm_sequence *sequence)
{
    trm_scheduler_evict(s, sequence);
    trm_scheduler_enqueue(s, sequence);
    s->stats.preemptions++;
}

bool trm_scheduler_grow(trm_scheduler *s, trm_sequence *sequence)
{
    while (sequence->n_blocks < trm_generator_blocks(s->g, sequence->n_tokens)) {
        if (s->blocks.n_free > 0) {
            row_of(s, sequence)[sequence->n_blocks++] = trm_kv_block_pool_take(&s->blocks);
            continue;
        }
        trm_sequence *last = s->running[s->n_running - 1];
        preempt(s, last);
        if (last == sequence) {
            return false;
        }
    }
    return true;
}

int32_t trm_scheduler_grow_for_drafts(trm_scheduler *s, trm_sequence *sequence, int32_t wanted)
{
    while (sequence->n_blocks < trm_generator_blocks(s->g, sequence->n_tokens + wanted) &&
           s->blocks.n_free > headroom(s)) {
        row_of(s, sequence)[sequence->n_blocks++] = trm_kv_block_pool_take(&s->blocks);
    }
    int64_t room = (int64_t)sequence->n_blocks * s->g->block_tokens - sequence->n_tokens;
    return wanted < room ? wanted : (int32_t)room;
}

void trm_scheduler_publish(trm_scheduler *s, trm_sequence *sequence)
{
    const int32_t *row = row_of(s, sequence);
    for (; s->prefix_cache && (sequence->n_published + 1) * (int64_t)s->g->block_tokens <= sequence->n_cached;
         sequence->n_published++) {
        sequence->chain =
            trm_kv_block_pool_publish(&s->blocks, row[sequence->n_published], sequence->chain,
                                      sequence->tokens + (size_t)sequence->n_published * s->g->block_tokens);
    }
}

/* ---- admission --------------------------------------------------------------------------------- */

/* Not if the request wants results of every prompt token. */
static bool looks_up(const trm_scheduler *s, const trm_sequence *sequence)
{
    return s->prefix_cache && sequence->request.prompt_logprobs < 0 &&
           sequence->request.embedding != TRM_EMBEDDING_MEAN;
}

/* A cached prefix of a request. */
typedef struct prefix {
    int32_t n;      /* blocks */
    int32_t idle;   /* of them, that nobody holds */
    uint64_t chain; /* serial of the last one; the request's root: none */
    int32_t state;  /* slot of the state behind it, or -1 */
    int32_t known;  /* blocks of a longer one, perhaps without a state */
} prefix;

/* Whether the state in a slot can be held beside one of the request's own, and other requests still find theirs. */
static bool can_hold(const trm_scheduler *s, int32_t slot)
{
    return s->states.n_free - (s->states.slots[slot].holders == 0) >= s->n_free_slots;
}

/* Finds the longest cached prefix of a request's tokens, without the last token, which must run for its logits; with
 * states by sequence, the longest behind which there is one. Writes the blocks to `row` (may be NULL). */
static prefix find_prefix(const trm_scheduler *s, const trm_sequence *sequence, int32_t *row)
{
    uint64_t chain = trm_scheduler_root(s, sequence);
    prefix found = {.state = -1, .chain = chain};
    int32_t n = 0, idle = 0;
    bool may = looks_up(s, sequence);
    for (; may && (n + 1) * (int64_t)s->g->block_tokens < sequence->n_tokens; n++) {
        int32_t block = trm_kv_block_pool_find(&s->blocks, chain, sequence->tokens + (size_t)n * s->g->block_tokens);
        if (block < 0) {
            break;
        }
        chain = s->blocks.blocks[block].serial;
        idle += s->blocks.blocks[block].holders == 0;
        if (row != NULL) {
            row[n] = block;
        }
        const int32_t state = s->states.n > 0 ? trm_state_pool_find(&s->states, chain) : -1;
        if (s->states.n == 0 || (state >= 0 && can_hold(s, state))) {
            found = (prefix){.n = n + 1, .idle = idle, .chain = chain, .state = state};
        }
    }
    found.known = n;
    return found;
}

/* Whether a running request is about to compute blocks that this one can reuse, so that it waits for them. */
static bool is_being_computed(const trm_scheduler *s, const trm_sequence *sequence, int32_t found)
{
    if (!looks_up(s, sequence) || s->states.n > 0) { /* states are kept where chunks end, wherever that is */
        return false;
    }
    for (int32_t i = 0; i < s->n_running; i++) {
        const trm_sequence *other = s->running[i];
        if (other->n_tokens - other->n_cached <= 1 || other->request.adapter != sequence->request.adapter) {
            continue;
        }
        int64_t most = other->n_tokens < sequence->n_tokens - 1 ? other->n_tokens : sequence->n_tokens - 1, common = 0;
        while (common < most && other->tokens[common] == sequence->tokens[common]) {
            common++;
        }
        common -= common % s->g->block_tokens;
        if (common > (int64_t)found * s->g->block_tokens && other->n_cached < common) {
            return true;
        }
    }
    return false;
}

/* Whether the last running request has a lower priority than this one. */
static bool may_displace(const trm_scheduler *s, const trm_sequence *sequence)
{
    return s->n_running > 0 && s->running[s->n_running - 1]->request.priority < sequence->request.priority;
}

/* Gives a request a slot of its own for its state, which begins as that behind its prefix. */
static void begin_states(trm_scheduler *s, trm_sequence *sequence, const prefix *found)
{
    if (s->states.n == 0) {
        return;
    }
    if (found->state >= 0) {
        trm_state_pool_retain(&s->states, found->state);
    }
    sequence->next_state = trm_state_pool_take(&s->states);
    sequence->state = found->state >= 0 ? found->state : sequence->next_state;
    sequence->cut = (int64_t)found->known * s->g->block_tokens;
}

static void admit(trm_scheduler *s, trm_sequence *sequence)
{
    trm_scheduler_dequeue(s, sequence);
    trm_scheduler_give_turn(s, sequence);
    const int32_t slot = s->free_slots[s->n_free_slots - 1];
    int32_t *row = s->table + (size_t)slot * (size_t)s->g->blocks_per_sequence;
    const prefix found = find_prefix(s, sequence, row);
    place(s, sequence);
    begin_states(s, sequence, &found);
    sequence->n_blocks = sequence->n_published = found.n;
    sequence->chain = found.chain;
    for (int32_t i = 0; i < sequence->n_blocks; i++) {
        trm_kv_block_pool_retain(&s->blocks, row[i]);
    }
    sequence->n_cached = (int64_t)sequence->n_blocks * s->g->block_tokens;
    for (int32_t n = trm_generator_blocks(s->g, sequence->n_tokens); sequence->n_blocks < n;) {
        row[sequence->n_blocks++] = trm_kv_block_pool_take(&s->blocks);
    }
    if (sequence->started == 0.0) {
        sequence->started = trm_scheduler_now();
        sequence->n_found = sequence->n_cached;
        trm_scheduler_charge_prompt(sequence, sequence->n_tokens - sequence->n_cached);
        s->stats.prefix_queries += sequence->n_tokens;
        s->stats.prefix_hits += sequence->n_cached;
    }
}

/* Preempts requests of lower priority until the request is admitted; returns whether it was. */
static bool make_place(trm_scheduler *s, trm_sequence *sequence)
{
    for (;;) {
        const prefix found = find_prefix(s, sequence, NULL);
        const int32_t needed = trm_generator_blocks(s->g, sequence->n_tokens) - found.n;
        if (s->n_free_slots > 0 && needed + found.idle + (s->n_running > 0 ? headroom(s) : 0) <= s->blocks.n_free) {
            admit(s, sequence);
            return true;
        }
        if (!may_displace(s, sequence)) {
            return false;
        }
        preempt(s, s->running[s->n_running - 1]);
    }
}

void trm_scheduler_admit(trm_scheduler *s)
{
    s->pass++;
    for (trm_sequence *sequence = trm_scheduler_next(s); sequence != NULL; sequence = trm_scheduler_next(s)) {
        if (s->n_free_slots == 0 && !may_displace(s, sequence)) {
            return;
        }
        if (is_being_computed(s, sequence, find_prefix(s, sequence, NULL).n)) {
            sequence->passed = s->pass; /* later requests may go first */
        } else if (!make_place(s, sequence)) {
            return;
        }
    }
}
