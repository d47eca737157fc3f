/* States are partitioned into classes by what they are, and classes are split TRM_GRAMMAR_NEAR times by where they
 * lead. */
#include "launcher/text/grammar/minimize.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

#define MAX_WORK ((size_t)60 << 20)

typedef struct splitter {
    const trm_grammar_automaton *a;
    uint32_t *class_of, *next_of; /* [n_states] before and after a round; DEAD has a class of its own */
    uint32_t *first;              /* [n_states] first state of a class of the round */
    uint32_t *slots;              /* [n_slots] class + 1 */
    size_t n_slots;
    uint32_t n_classes;
} splitter;

static uint64_t mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * 0x9E3779B97F4A7C15u;
    return hash ^ hash >> 29;
}

static uint32_t class_after(const splitter *s, uint32_t state, uint32_t class)
{
    uint32_t target = s->a->moves[(size_t)state * s->a->n_classes + class];
    return target == TRM_GRAMMAR_DEAD ? TRM_GRAMMAR_DEAD : s->class_of[target];
}

/* The signature of a state: what it is, or in later rounds where it leads. */
static uint64_t hash_state(const splitter *s, uint32_t state, bool by_moves)
{
    const trm_grammar_automaton *a = s->a;
    if (by_moves) {
        uint64_t hash = s->class_of[state];
        for (uint32_t c = 0; c < a->n_classes; c++) {
            hash = mix(hash, class_after(s, state, c));
        }
        return hash;
    }
    uint64_t hash = (uint64_t)(a->accepts[state] + 2 * a->has_moves[state]);
    for (uint32_t i = a->first_call[state]; i < a->first_call[state + 1]; i++) {
        hash = mix(mix(hash, a->calls[i].start), a->calls[i].target);
    }
    return hash;
}

static bool are_equal(const splitter *s, uint32_t x, uint32_t y, bool by_moves)
{
    const trm_grammar_automaton *a = s->a;
    if (by_moves) {
        bool equal = s->class_of[x] == s->class_of[y];
        for (uint32_t c = 0; c < a->n_classes && equal; c++) {
            equal = class_after(s, x, c) == class_after(s, y, c);
        }
        return equal;
    }
    uint32_t n = a->first_call[x + 1] - a->first_call[x];
    bool equal = a->accepts[x] == a->accepts[y] && a->has_moves[x] == a->has_moves[y] &&
                 n == a->first_call[y + 1] - a->first_call[y];
    for (uint32_t i = 0; i < n && equal; i++) {
        const trm_grammar_call_edge *p = &a->calls[a->first_call[x] + i], *q = &a->calls[a->first_call[y] + i];
        equal = p->start == q->start && p->target == q->target;
    }
    return equal;
}

/* Partitions all states in a round. */
static void split(splitter *s, bool by_moves)
{
    memset(s->slots, 0, s->n_slots * sizeof(*s->slots));
    s->n_classes = 0;
    for (uint32_t state = 0; state < s->a->n_states; state++) {
        size_t at = (size_t)hash_state(s, state, by_moves) & (s->n_slots - 1);
        while (s->slots[at] != 0 && !are_equal(s, s->first[s->slots[at] - 1], state, by_moves)) {
            at = (at + 1) & (s->n_slots - 1);
        }
        if (s->slots[at] == 0) {
            s->first[s->n_classes] = state;
            s->slots[at] = ++s->n_classes;
        }
        s->next_of[state] = s->slots[at] - 1;
    }
    uint32_t *swapped = s->class_of;
    s->class_of = s->next_of;
    s->next_of = swapped;
}

trm_status trm_grammar_find_alike(trm_grammar_automaton *a)
{
    splitter s = {.a = a, .n_slots = 16};
    while (s.n_slots < 2 * (size_t)a->n_states) {
        s.n_slots *= 2;
    }
    a->alike = calloc(a->n_states, sizeof(*a->alike));
    s.class_of = calloc(a->n_states, sizeof(*s.class_of));
    s.next_of = calloc(a->n_states, sizeof(*s.next_of));
    s.first = calloc(a->n_states, sizeof(*s.first));
    s.slots = calloc(s.n_slots, sizeof(*s.slots));
    trm_status status = TRM_OK;
    if (a->alike == NULL || s.class_of == NULL || s.next_of == NULL || s.first == NULL || s.slots == NULL) {
        status = trm_fail(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %u states of a grammar", a->n_states);
    } else {
        bool worth = (size_t)a->n_states * a->n_classes <= MAX_WORK / TRM_GRAMMAR_NEAR;
        uint32_t before = 0;
        split(&s, false);
        for (int round = 0; worth && round < TRM_GRAMMAR_NEAR && s.n_classes != before; round++) {
            before = s.n_classes;
            split(&s, true);
        }
        for (uint32_t state = 0; state < a->n_states; state++) {
            a->alike[state] = worth ? s.first[s.class_of[state]] : state;
        }
    }
    free(s.class_of);
    free(s.next_of);
    free(s.first);
    free(s.slots);
    return status;
}
