/* Deterministic automata by the subset construction. Removes states that cannot reach an end, and refuses left
 * recursion. */
#include "launcher/text/grammar/automaton.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "launcher/text/grammar/minimize.h"
#include "launcher/text/grammar/nfa.h"
#include "launcher/text/strings/buffer.h"

#define MAX_STATES 200000
#define MAX_MOVES  ((size_t)16 << 20)
#define MAX_WORK   400000000

/* A set of NFA states in the builder's pool. */
typedef struct subset {
    uint32_t begin, count, next; /* next: of the same hash, + 1 */
} subset;

typedef struct call_edge {
    uint32_t rule, target;
} call_edge;

typedef struct dfa_builder {
    const trm_grammar_nfa *nfa;
    trm_grammar_automaton *out;
    const trm_grammar_tree *tree;
    size_t moves_capacity, first_call_capacity, calls_capacity, subset_capacity;
    call_edge *calls; /* of all states, in the order of first_call */
    size_t n_calls;
    subset *subsets; /* [n_states of the rule] */
    size_t n_subsets;
    trm_ids pool;    /* NFA states of the subsets */
    uint32_t *slots; /* [slot_count] subset + 1 */
    size_t slot_count;
    uint32_t *stamps; /* [NFA states] the last closure that contains the state */
    uint32_t stamp;
    trm_ids set, todo; /* the closure under construction */
    uint32_t base;     /* first state of the rule */
    uint32_t *starts;  /* [n_rules] */
    int64_t work;
} dfa_builder;

static trm_status charge(dfa_builder *b, size_t work)
{
    b->work += (int64_t)work;
    if (b->work > MAX_WORK) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "the grammar takes too long to compile");
    }
    return TRM_OK;
}

static void find_classes(const trm_grammar_nfa *nfa, trm_grammar_automaton *out)
{
    bool begins[257] = {true};
    for (size_t i = 0; i < nfa->n_edges; i++) {
        if (nfa->edges[i].kind == TRM_GRAMMAR_EDGE_BYTES) {
            begins[nfa->edges[i].first] = true;
            begins[nfa->edges[i].last + 1] = true;
        }
    }
    uint32_t class = 0;
    for (int i = 0; i < 256; i++) {
        class += i > 0 && begins[i];
        out->class_of[i] = (uint8_t) class;
    }
    out->n_classes = class + 1;
}

static trm_status add_to_set(dfa_builder *b, uint32_t state)
{
    if (b->stamps[state] == b->stamp) {
        return TRM_OK;
    }
    b->stamps[state] = b->stamp;
    TRM_TRY(trm_ids_append(&b->set, (int32_t)state));
    return trm_ids_append(&b->todo, (int32_t)state);
}

/* Adds to the set what empty edges reach. */
static trm_status close_set(dfa_builder *b)
{
    while (b->todo.size > 0) {
        uint32_t state = (uint32_t)b->todo.data[--b->todo.size];
        for (uint32_t e = b->nfa->first_edge[state]; e != TRM_GRAMMAR_NONE; e = b->nfa->edges[e].next) {
            TRM_TRY(charge(b, 1));
            if (b->nfa->edges[e].kind == TRM_GRAMMAR_EDGE_EMPTY) {
                TRM_TRY(add_to_set(b, b->nfa->edges[e].target));
            }
        }
    }
    return TRM_OK;
}

static int by_value(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

static uint32_t hash_set(const int32_t *set, size_t count)
{
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < count; i++) {
        hash = (hash ^ (uint32_t)set[i]) * 16777619u;
        hash ^= hash >> 15;
    }
    return hash;
}

static trm_status rehash(dfa_builder *b)
{
    size_t count = b->slot_count == 0 ? 1024 : 2 * b->slot_count;
    uint32_t *slots = calloc(count, sizeof(*slots));
    if (slots == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %zu states of a grammar", count);
    }
    free(b->slots);
    b->slots = slots;
    b->slot_count = count;
    for (size_t i = 0; i < b->n_subsets; i++) {
        uint32_t at = hash_set(b->pool.data + b->subsets[i].begin, b->subsets[i].count) & (uint32_t)(count - 1);
        b->subsets[i].next = slots[at];
        slots[at] = (uint32_t)i + 1;
    }
    return TRM_OK;
}

static trm_status new_state(dfa_builder *b)
{
    trm_grammar_automaton *out = b->out;
    size_t states = (size_t)out->n_states + 1;
    if (states > MAX_STATES || states * out->n_classes > MAX_MOVES) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "the grammar is too large: its automaton has more than %u states",
                 out->n_states);
    }
    void *data = out->moves;
    TRM_TRY(trm_array_grow(&data, &b->moves_capacity, states * out->n_classes, sizeof(*out->moves)));
    out->moves = data;
    data = out->first_call;
    TRM_TRY(trm_array_grow(&data, &b->first_call_capacity, states + 1, sizeof(*out->first_call)));
    out->first_call = data;
    out->n_states++;
    return TRM_OK;
}

/* The state of the set, which is closed and sorted here; a new one if the set is new. An empty set is DEAD. */
static trm_status find_state(dfa_builder *b, uint32_t *state)
{
    *state = TRM_GRAMMAR_DEAD;
    TRM_TRY(close_set(b));
    if (b->set.size == 0) {
        return TRM_OK;
    }
    qsort(b->set.data, b->set.size, sizeof(*b->set.data), by_value);
    TRM_TRY(charge(b, 8 * b->set.size));
    if (b->n_subsets >= b->slot_count / 2) {
        TRM_TRY(rehash(b));
    }
    uint32_t slot = hash_set(b->set.data, b->set.size) & (uint32_t)(b->slot_count - 1);
    for (uint32_t i = b->slots[slot]; i != 0; i = b->subsets[i - 1].next) {
        const subset *s = &b->subsets[i - 1];
        if (s->count == b->set.size && memcmp(b->pool.data + s->begin, b->set.data, s->count * sizeof(int32_t)) == 0) {
            *state = b->base + i - 1;
            return TRM_OK;
        }
    }
    void *data = b->subsets;
    TRM_TRY(trm_array_grow(&data, &b->subset_capacity, b->n_subsets + 1, sizeof(*b->subsets)));
    b->subsets = data;
    TRM_TRY(new_state(b));
    b->subsets[b->n_subsets] =
        (subset){.begin = (uint32_t)b->pool.size, .count = (uint32_t)b->set.size, .next = b->slots[slot]};
    TRM_TRY(trm_ids_reserve(&b->pool, b->set.size));
    memcpy(b->pool.data + b->pool.size, b->set.data, b->set.size * sizeof(int32_t));
    b->pool.size += b->set.size;
    b->slots[slot] = (uint32_t)++b->n_subsets;
    *state = b->base + (uint32_t)b->n_subsets - 1;
    return TRM_OK;
}

static void begin_set(dfa_builder *b)
{
    b->stamp++;
    b->set.size = b->todo.size = 0;
}

/* The states that a subset reaches on a class of bytes. */
static trm_status move_on_class(dfa_builder *b, const subset *from, uint8_t byte, uint32_t *target)
{
    begin_set(b);
    for (uint32_t i = 0; i < from->count; i++) {
        uint32_t state = (uint32_t)b->pool.data[from->begin + i];
        for (uint32_t e = b->nfa->first_edge[state]; e != TRM_GRAMMAR_NONE; e = b->nfa->edges[e].next) {
            const trm_grammar_edge *edge = &b->nfa->edges[e];
            TRM_TRY(charge(b, 1));
            if (edge->kind == TRM_GRAMMAR_EDGE_BYTES && byte >= edge->first && byte <= edge->last) {
                TRM_TRY(add_to_set(b, edge->target));
            }
        }
    }
    return find_state(b, target);
}

/* The rules that the states of a subset call, each once, in order. */
static trm_status called_rules(dfa_builder *b, const subset *from, trm_ids *rules)
{
    rules->size = 0;
    for (uint32_t i = 0; i < from->count; i++) {
        uint32_t state = (uint32_t)b->pool.data[from->begin + i];
        for (uint32_t e = b->nfa->first_edge[state]; e != TRM_GRAMMAR_NONE; e = b->nfa->edges[e].next) {
            if (b->nfa->edges[e].kind == TRM_GRAMMAR_EDGE_CALL) {
                TRM_TRY(trm_ids_append(rules, (int32_t)b->nfa->edges[e].rule));
            }
        }
    }
    if (rules->size > 1) {
        qsort(rules->data, rules->size, sizeof(*rules->data), by_value);
    }
    size_t n = 0;
    for (size_t i = 0; i < rules->size; i++) {
        if (i == 0 || rules->data[i] != rules->data[i - 1]) {
            rules->data[n++] = rules->data[i];
        }
    }
    rules->size = n;
    return TRM_OK;
}

static trm_status add_calls(dfa_builder *b, size_t index, const trm_ids *rules)
{
    for (size_t r = 0; r < rules->size; r++) {
        uint32_t target;
        const subset from = b->subsets[index];
        begin_set(b);
        for (uint32_t i = 0; i < from.count; i++) {
            uint32_t state = (uint32_t)b->pool.data[from.begin + i];
            for (uint32_t e = b->nfa->first_edge[state]; e != TRM_GRAMMAR_NONE; e = b->nfa->edges[e].next) {
                const trm_grammar_edge *edge = &b->nfa->edges[e];
                TRM_TRY(charge(b, 1));
                if (edge->kind == TRM_GRAMMAR_EDGE_CALL && edge->rule == (uint32_t)rules->data[r]) {
                    TRM_TRY(add_to_set(b, edge->target));
                }
            }
        }
        TRM_TRY(find_state(b, &target));
        void *data = b->calls;
        TRM_TRY(trm_array_grow(&data, &b->calls_capacity, b->n_calls + 1, sizeof(*b->calls)));
        b->calls = data;
        b->calls[b->n_calls++] = (call_edge){(uint32_t)rules->data[r], target};
    }
    return TRM_OK;
}

static trm_status build_rule(dfa_builder *b, size_t rule, trm_ids *rules)
{
    trm_grammar_automaton *out = b->out;
    uint8_t byte_of[256] = {0}; /* one byte of each class */
    for (int i = 255; i >= 0; i--) {
        byte_of[out->class_of[i]] = (uint8_t)i;
    }
    b->base = out->n_states;
    b->n_subsets = b->pool.size = 0;
    memset(b->slots, 0, b->slot_count * sizeof(*b->slots));
    begin_set(b);
    TRM_TRY(add_to_set(b, b->nfa->begin[rule]));
    TRM_TRY(find_state(b, &b->starts[rule]));
    for (size_t i = 0; i < b->n_subsets; i++) {
        for (uint32_t c = 0; c < out->n_classes; c++) {
            uint32_t target;
            const subset from = b->subsets[i];
            TRM_TRY(move_on_class(b, &from, byte_of[c], &target));
            out->moves[(b->base + i) * out->n_classes + c] = target;
        }
        out->first_call[b->base + i] = (uint32_t)b->n_calls;
        const subset from = b->subsets[i];
        TRM_TRY(called_rules(b, &from, rules));
        TRM_TRY(add_calls(b, i, rules));
    }
    out->first_call[out->n_states] = (uint32_t)b->n_calls;
    return TRM_OK;
}

/* Notes which states accept: those of the rule whose set contains the last NFA state. Runs per rule. */
static trm_status note_accepting(dfa_builder *b, size_t rule, size_t *capacity)
{
    void *data = b->out->accepts;
    TRM_TRY(trm_array_grow(&data, capacity, b->out->n_states, sizeof(*b->out->accepts)));
    b->out->accepts = data;
    for (size_t i = 0; i < b->n_subsets; i++) {
        bool accepts = false;
        for (uint32_t k = 0; k < b->subsets[i].count; k++) {
            accepts |= (uint32_t)b->pool.data[b->subsets[i].begin + k] == b->nfa->end[rule];
        }
        b->out->accepts[b->base + i] = accepts;
    }
    return TRM_OK;
}

/* Whether a state can reach the end of its rule, given which rules can be completed. */
static bool update_live(const dfa_builder *b, bool *live, const bool *productive)
{
    const trm_grammar_automaton *a = b->out;
    bool changed = false;
    for (uint32_t s = a->n_states; s-- > 0;) {
        bool now = live[s] || a->accepts[s];
        for (uint32_t c = 0; c < a->n_classes && !now; c++) {
            uint32_t target = a->moves[(size_t)s * a->n_classes + c];
            now = target != TRM_GRAMMAR_DEAD && live[target];
        }
        for (uint32_t i = a->first_call[s]; i < a->first_call[s + 1] && !now; i++) {
            now = productive[b->calls[i].rule] && live[b->calls[i].target];
        }
        changed |= now && !live[s];
        live[s] = now;
    }
    return changed;
}

/* Removes moves and calls that cannot reach an end, so that every walk over the automaton can finish. */
static trm_status prune(dfa_builder *b, bool *live, bool *productive)
{
    trm_grammar_automaton *a = b->out;
    bool changed = true;
    while (changed) {
        TRM_TRY(charge(b, (size_t)a->n_states * (a->n_classes / 8 + 1)));
        changed = update_live(b, live, productive);
        for (size_t r = 0; r < b->tree->n_rules; r++) {
            productive[r] = live[b->starts[r]];
        }
    }
    if (!productive[b->tree->root]) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "the grammar matches no text at all");
    }
    a->calls = calloc(b->n_calls + 1, sizeof(*a->calls));
    a->has_moves = calloc(a->n_states, sizeof(*a->has_moves));
    a->is_tail = calloc(a->n_states, sizeof(*a->is_tail));
    if (a->calls == NULL || a->has_moves == NULL || a->is_tail == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %u states of a grammar", a->n_states);
    }
    uint32_t n = 0;
    for (uint32_t s = 0; s < a->n_states; s++) {
        for (uint32_t c = 0; c < a->n_classes; c++) {
            uint32_t *target = &a->moves[(size_t)s * a->n_classes + c];
            *target = *target != TRM_GRAMMAR_DEAD && live[*target] ? *target : TRM_GRAMMAR_DEAD;
            a->has_moves[s] |= *target != TRM_GRAMMAR_DEAD;
        }
        uint32_t begin = a->first_call[s], end = a->first_call[s + 1];
        a->first_call[s] = n;
        for (uint32_t i = begin; i < end; i++) {
            if (productive[b->calls[i].rule] && live[b->calls[i].target]) {
                a->calls[n++] = (trm_grammar_call_edge){b->starts[b->calls[i].rule], b->calls[i].target};
                b->calls[n - 1] = b->calls[i]; /* n - 1 <= i */
            }
        }
        a->is_tail[s] = a->accepts[s] && !a->has_moves[s] && n == a->first_call[s];
    }
    a->first_call[a->n_states] = n;
    b->n_calls = n;
    return TRM_OK;
}

/* Whether a rule can be completed without text, then whether it can call itself without any: walks from `rule` over
 * states that need no text. */
typedef struct recursion {
    dfa_builder *b;
    bool *empty;    /* [n_rules] */
    uint32_t *seen; /* [n_states] stamps */
    uint32_t stamp;
    trm_ids todo;
} recursion;

/* Visits the states of `rule` that need no text; *through says whether its end is among them. With `follow` it enters
 * called rules too, and *back says whether `rule` is called. */
static trm_status walk_empty(recursion *r, uint32_t rule, bool follow, bool *through, bool *back)
{
    const trm_grammar_automaton *a = r->b->out;
    r->stamp++;
    r->todo.size = 0;
    *through = *back = false;
    TRM_TRY(trm_ids_append(&r->todo, (int32_t)r->b->starts[rule]));
    r->seen[r->b->starts[rule]] = r->stamp;
    while (r->todo.size > 0) {
        uint32_t s = (uint32_t)r->todo.data[--r->todo.size];
        TRM_TRY(charge(r->b, 1));
        *through |= a->accepts[s];
        for (uint32_t i = a->first_call[s]; i < a->first_call[s + 1]; i++) {
            uint32_t called = r->b->calls[i].rule, next[2] = {TRM_GRAMMAR_DEAD, TRM_GRAMMAR_DEAD};
            *back |= called == rule;
            next[0] = r->empty[called] ? a->calls[i].target : TRM_GRAMMAR_DEAD;
            next[1] = follow ? a->calls[i].start : TRM_GRAMMAR_DEAD;
            for (int k = 0; k < 2; k++) {
                if (next[k] != TRM_GRAMMAR_DEAD && r->seen[next[k]] != r->stamp) {
                    r->seen[next[k]] = r->stamp;
                    TRM_TRY(trm_ids_append(&r->todo, (int32_t)next[k]));
                }
            }
        }
    }
    return TRM_OK;
}

static trm_status check_recursion(dfa_builder *b, recursion *r)
{
    bool changed = true, through, back;
    while (changed) {
        changed = false;
        TRM_TRY(charge(b, b->out->n_states));
        for (size_t i = 0; i < b->tree->n_rules; i++) {
            TRM_TRY(walk_empty(r, (uint32_t)i, false, &through, &back));
            changed |= through && !r->empty[i];
            r->empty[i] |= through;
        }
    }
    for (size_t i = 0; i < b->tree->n_rules; i++) {
        TRM_TRY(charge(b, 100));
        TRM_TRY(walk_empty(r, (uint32_t)i, true, &through, &back));
        if (back) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                     "rule %.60s of the grammar calls itself before any text (left recursion)", b->tree->rules[i].name);
        }
    }
    return TRM_OK;
}

static trm_status finish(dfa_builder *b)
{
    trm_grammar_automaton *a = b->out;
    bool *live = calloc(a->n_states, sizeof(*live)), *productive = calloc(b->tree->n_rules, sizeof(*productive));
    recursion r = {.b = b};
    r.empty = calloc(b->tree->n_rules, sizeof(*r.empty));
    r.seen = calloc(a->n_states, sizeof(*r.seen));
    trm_status status = TRM_OK;
    if (live == NULL || productive == NULL || r.empty == NULL || r.seen == NULL) {
        status = trm_fail(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %u states of a grammar", a->n_states);
    }
    if (status == TRM_OK) {
        status = prune(b, live, productive);
    }
    if (status == TRM_OK) {
        status = check_recursion(b, &r);
    }
    a->start = b->starts[b->tree->root];
    free(live);
    free(productive);
    free(r.empty);
    free(r.seen);
    trm_ids_fini(&r.todo);
    return status;
}

static trm_status build(dfa_builder *b)
{
    trm_ids rules = {0};
    size_t accepts_capacity = 0;
    trm_status status = TRM_OK;
    b->stamps = calloc(b->nfa->n_states + 1, sizeof(*b->stamps));
    b->starts = calloc(b->tree->n_rules + 1, sizeof(*b->starts));
    if (b->stamps == NULL || b->starts == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %zu states of a grammar", b->nfa->n_states);
    }
    TRM_TRY(rehash(b));
    for (size_t i = 0; i < b->tree->n_rules && status == TRM_OK; i++) {
        status = build_rule(b, i, &rules);
        if (status == TRM_OK) {
            status = note_accepting(b, i, &accepts_capacity);
        }
    }
    trm_ids_fini(&rules);
    return status == TRM_OK ? finish(b) : status;
}

trm_status trm_grammar_build(const trm_grammar_tree *tree, trm_grammar_automaton *automaton)
{
    trm_grammar_nfa nfa = {0};
    dfa_builder b = {.nfa = &nfa, .out = automaton, .tree = tree};
    trm_status status = trm_grammar_nfa_build(tree, &nfa);
    if (status == TRM_OK) {
        find_classes(&nfa, automaton);
        status = build(&b);
    }
    if (status == TRM_OK) {
        status = trm_grammar_find_alike(automaton);
    }
    free(b.calls);
    free(b.subsets);
    free(b.slots);
    free(b.stamps);
    free(b.starts);
    trm_ids_fini(&b.pool);
    trm_ids_fini(&b.set);
    trm_ids_fini(&b.todo);
    trm_grammar_nfa_fini(&nfa);
    if (status != TRM_OK) {
        trm_grammar_automaton_fini(automaton);
    }
    return status;
}

void trm_grammar_automaton_fini(trm_grammar_automaton *automaton)
{
    free(automaton->moves);
    free(automaton->first_call);
    free(automaton->calls);
    free(automaton->accepts);
    free(automaton->has_moves);
    free(automaton->is_tail);
    free(automaton->alike);
    *automaton = (trm_grammar_automaton){0};
}
