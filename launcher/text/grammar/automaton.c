/* Automata from trees: rules become expressions; calls that cannot be completed are dropped, and left recursion is
 * refused. */
#include "launcher/text/grammar/automaton.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

#define MAX_WORK  6000000 /* operations to compile: about a tenth of a second */
#define MAX_NODES 600000  /* expressions of a compiled grammar */
#define DEEPEST   2000
#define UNKNOWN   UINT32_MAX
#define KNOWN     256

/* ---- from trees to expressions ---- */

typedef struct converter {
    const trm_grammar_tree *tree;
    trm_expressions *x;
    int32_t depth;
    struct {
        const void *key; /* what copies of a node share */
        trm_expression e;
    } known[KNOWN]; /* characters, which are used again and again */
} converter;

static trm_expression convert(converter *c, const trm_grammar_node *node, trm_expression rest);

static trm_expression convert_list(converter *c, const trm_grammar_node *node, trm_expression rest)
{
    trm_ids list = {0};
    trm_expression e = TRM_NOTHING;
    for (const trm_grammar_node *child = node->child; child != NULL && c->x->status == TRM_OK; child = child->next) {
        trm_expression part = convert(c, child, TRM_EMPTY);
        c->x->status = c->x->status == TRM_OK ? trm_ids_append(&list, (int32_t)part) : c->x->status;
    }
    if (c->x->status == TRM_OK) {
        e = node->kind == TRM_GRAMMAR_BOTH ? trm_expression_both(c->x, (const trm_expression *)list.data, list.size)
                                           : trm_expression_either(c->x, (const trm_expression *)list.data, list.size);
    }
    trm_ids_fini(&list);
    return trm_expression_sequence(c->x, e, rest);
}

static trm_expression convert_sequence(converter *c, const trm_grammar_node *node, trm_expression rest)
{
    size_t n = 0;
    for (const trm_grammar_node *child = node->child; child != NULL; child = child->next) {
        n++;
    }
    const trm_grammar_node **children = calloc(n + 1, sizeof(const trm_grammar_node *));
    if (children == NULL) {
        c->x->status = trm_fail(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %zu parts of a grammar", n);
        return TRM_NOTHING;
    }
    n = 0;
    for (const trm_grammar_node *child = node->child; child != NULL; child = child->next) {
        children[n++] = child;
    }
    while (n > 0 && c->x->status == TRM_OK) {
        rest = convert(c, children[--n], rest);
    }
    free(children);
    return rest;
}

static trm_expression convert_class(converter *c, const trm_grammar_node *node)
{
    trm_ids list = {0};
    trm_expression e = TRM_NOTHING;
    for (size_t i = 0; i < node->size && c->x->status == TRM_OK; i++) {
        trm_expression part = trm_expression_codepoints(c->x, node->ranges[i].first, node->ranges[i].last);
        c->x->status = c->x->status == TRM_OK ? trm_ids_append(&list, (int32_t)part) : c->x->status;
    }
    if (c->x->status == TRM_OK) {
        e = trm_expression_either(c->x, (const trm_expression *)list.data, list.size);
    }
    trm_ids_fini(&list);
    return e;
}

static trm_expression convert_unique(converter *c, const trm_grammar_node *node)
{
    const trm_grammar_node *space = node->child->next, *tail = space->next;
    trm_unique unique = {.tail = TRM_EMPTY, .min = node->min, .max = node->max};
    unique.item = convert(c, node->child, TRM_EMPTY);
    unique.space = convert(c, space, TRM_EMPTY);
    unique.tail = tail == NULL ? TRM_EMPTY : convert(c, tail, TRM_EMPTY);
    return trm_expression_unique(c->x, unique);
}

/* What a node matches, then `rest`. */
static trm_expression convert(converter *c, const trm_grammar_node *node, trm_expression rest)
{
    trm_expressions *x = c->x;
    trm_expression e = TRM_NOTHING;
    if (++c->depth > DEEPEST) {
        trm_expression_fail(x, "is nested too deeply");
    }
    if (x->status != TRM_OK) {
        c->depth--;
        return TRM_NOTHING;
    }
    const void *key = node->kind == TRM_GRAMMAR_CLASS ? (const void *)node->ranges
                      : node->is_character            ? (const void *)node->child
                                                      : NULL;
    const size_t at = ((uintptr_t)key >> 4) % KNOWN;
    if (key != NULL) {
        if (c->known[at].key != key) {
            c->known[at].key = key;
            c->known[at].e =
                node->kind == TRM_GRAMMAR_CLASS ? convert_class(c, node) : convert_list(c, node, TRM_EMPTY);
        }
        c->depth--;
        return trm_expression_sequence(x, c->known[at].e, rest);
    }
    switch (node->kind) {
    case TRM_GRAMMAR_TEXT:
        e = rest;
        for (size_t i = node->size; i-- > 0 && x->status == TRM_OK;) {
            const uint8_t byte = (uint8_t)node->text[i];
            e = trm_expression_sequence(x, trm_expression_byte_range(x, byte, byte), e);
        }
        break;
    case TRM_GRAMMAR_CLASS: /* above */
        break;
    case TRM_GRAMMAR_SEQUENCE:
        e = convert_sequence(c, node, rest);
        break;
    case TRM_GRAMMAR_ANY_OF:
    case TRM_GRAMMAR_BOTH:
        e = convert_list(c, node, rest);
        break;
    case TRM_GRAMMAR_NOT:
        e = trm_expression_sequence(x, trm_expression_not(x, convert(c, node->child, TRM_EMPTY)), rest);
        break;
    case TRM_GRAMMAR_REPEAT:
        e = trm_expression_sequence(
            x, trm_expression_repeat(x, convert(c, node->child, TRM_EMPTY), node->min, node->max), rest);
        break;
    case TRM_GRAMMAR_RULE:
        e = trm_expression_sequence(x, trm_expression_call(x, (uint32_t)node->rule), rest);
        break;
    case TRM_GRAMMAR_MULTIPLE:
        e = trm_expression_sequence(
            x, trm_expression_multiple(x, (trm_multiple){(uint32_t)node->min, (uint32_t)node->max}), rest);
        break;
    case TRM_GRAMMAR_UNIQUE:
        e = convert_unique(c, node);
        e = trm_expression_sequence(x, e, rest);
        break;
    case TRM_GRAMMAR_LOOK:
    case TRM_GRAMMAR_BEGIN:
    case TRM_GRAMMAR_END:
        x->status = trm_fail(TRM_ERROR_INTERNAL, "a grammar has an anchor in its tree");
        break;
    }
    c->depth--;
    return e;
}

trm_expression trm_grammar_expression(const trm_grammar_tree *tree, trm_expressions *x, const trm_grammar_node *node)
{
    converter c = {.tree = tree, .x = x};
    return convert(&c, node, TRM_EMPTY);
}

static trm_status convert_rules(const trm_grammar_tree *tree, trm_grammar_automaton *a)
{
    converter c = {.tree = tree, .x = &a->x};
    for (size_t i = 0; i < tree->n_rules && a->x.status == TRM_OK; i++) {
        a->rules[i] = convert(&c, tree->rules[i].node, TRM_EMPTY);
    }
    return a->x.status;
}

/* ---- what cannot be completed, what calls itself ---- */

/* For each expression, and then each rule, whether something holds. Parts have smaller numbers than the whole, so that
 * one pass in order answers for all expressions if the answers for rules are known. */
typedef struct survey {
    trm_grammar_automaton *a;
    bool *live, *empty;            /* [expressions] can be completed; can be completed without text */
    bool *rule_lives, *rule_empty; /* [n_rules] */
} survey;

static void survey_one(const survey *s, trm_expression e)
{
    const trm_expressions *x = &s->a->x;
    const trm_expression_node *node = trm_expression_get(x, e);
    bool live = true, empty = node->nullable;
    switch ((trm_expression_kind)node->kind) {
    case TRM_EXPRESSION_SEQUENCE:
        live = s->live[node->a] && s->live[node->b];
        empty = s->empty[node->a] && s->empty[node->b];
        break;
    case TRM_EXPRESSION_EITHER:
        live = false;
        for (uint32_t i = 0; i < node->b; i++) {
            live |= s->live[x->pool.data[node->a + i]];
            empty |= s->empty[x->pool.data[node->a + i]];
        }
        break;
    case TRM_EXPRESSION_REPEAT:
        live = node->min == 0 || s->live[node->a];
        empty |= s->empty[node->a];
        break;
    case TRM_EXPRESSION_CALL:
        live = s->rule_lives[node->a];
        empty = s->rule_empty[node->a];
        break;
    case TRM_EXPRESSION_NOTHING:
        live = false;
        break;
    case TRM_EXPRESSION_EMPTY:
    case TRM_EXPRESSION_BYTES:
    case TRM_EXPRESSION_BOTH:
    case TRM_EXPRESSION_NOT:
    case TRM_EXPRESSION_MULTIPLE:
    case TRM_EXPRESSION_UNIQUE:
    case TRM_EXPRESSION_UNIQUE_ITEM:
        live = node->life != 1; /* asked before */
        break;
    }
    s->live[e] = live;
    s->empty[e] = empty;
}

static trm_status survey_all(survey *s)
{
    trm_expressions *x = &s->a->x;
    for (bool changed = true; changed;) {
        changed = false;
        x->work -= (int64_t)x->n_nodes / 4;
        if (x->work < 0) {
            trm_expression_fail(x, "takes too long to compile");
            return x->status;
        }
        for (size_t e = 0; e < x->n_nodes; e++) {
            survey_one(s, (trm_expression)e);
        }
        for (size_t i = s->a->n_rules; i-- > 0;) {
            const bool live = s->live[s->a->rules[i]], empty = s->empty[s->a->rules[i]];
            changed |= live != s->rule_lives[i] || empty != s->rule_empty[i];
            s->rule_lives[i] = live;
            s->rule_empty[i] = empty;
        }
    }
    return TRM_OK;
}

/* Appends the rules that an expression may call before any text. */
static trm_status first_calls(const survey *s, trm_expression e, uint32_t *seen, uint32_t stamp, trm_ids *found)
{
    trm_expressions *x = &s->a->x;
    trm_ids todo = {0};
    trm_status status = trm_ids_append(&todo, (int32_t)e);
    while (status == TRM_OK && todo.size > 0) {
        const trm_expression at = (trm_expression)todo.data[--todo.size];
        const trm_expression_node *node = trm_expression_get(x, at);
        if (seen[at] == stamp || !node->has_calls) {
            continue;
        }
        seen[at] = stamp;
        x->work--;
        if (node->kind == TRM_EXPRESSION_CALL) {
            status = trm_ids_append(found, (int32_t)node->a);
        } else if (node->kind == TRM_EXPRESSION_EITHER) {
            for (uint32_t i = 0; i < node->b && status == TRM_OK; i++) {
                status = trm_ids_append(&todo, x->pool.data[node->a + i]);
            }
        } else {
            status = trm_ids_append(&todo, (int32_t)node->a);
            if (status == TRM_OK && node->kind == TRM_EXPRESSION_SEQUENCE && s->empty[node->a]) {
                status = trm_ids_append(&todo, (int32_t)node->b);
            }
        }
    }
    trm_ids_fini(&todo);
    return status;
}

typedef enum visit { VISIT_NEW, VISIT_OPEN, VISIT_DONE } visit;

/* Walks rules depth first along their first calls; a rule that is met while it is open calls itself. The list of calls
 * holds for each open rule those left, below them -1 - rule. */
static trm_status walk_recursion(const survey *s, const trm_grammar_tree *tree, uint32_t *seen, uint8_t *visits,
                                 trm_ids *calls)
{
    for (size_t first = 0; first < s->a->n_rules; first++) {
        TRM_TRY(trm_ids_append(calls, (int32_t)first));
        while (calls->size > 0) {
            const int32_t top = calls->data[--calls->size];
            if (top < 0) {
                visits[-1 - top] = VISIT_DONE;
            } else if (visits[top] == VISIT_OPEN) {
                TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                         "rule %.60s of the grammar calls itself before any text (left recursion)",
                         tree->rules[top].name);
            } else if (visits[top] == VISIT_NEW) {
                visits[top] = VISIT_OPEN;
                TRM_TRY(trm_ids_append(calls, -1 - top));
                TRM_TRY(first_calls(s, s->a->rules[top], seen, (uint32_t)top + 1, calls));
            }
            if (s->a->x.work < 0) {
                TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "the grammar takes too long to compile");
            }
        }
    }
    return TRM_OK;
}

/* Writes the rules anew without calls of rules that cannot be completed and intersections that match nothing. */
static void drop_dead(survey *s, uint32_t *numbers)
{
    trm_grammar_automaton *a = s->a;
    trm_expressions *x = &a->x;
    const size_t count = x->n_nodes;
    for (size_t e = 0; e < count && x->status == TRM_OK; e++) {
        const trm_expression_node node = *trm_expression_get(x, (trm_expression)e);
        trm_ids list = {0};
        numbers[e] = (uint32_t)e;
        if (!node.has_calls && !node.has_both) {
            continue;
        }
        switch ((trm_expression_kind)node.kind) {
        case TRM_EXPRESSION_BOTH:
        case TRM_EXPRESSION_NOT:
            numbers[e] = s->live[e] ? (uint32_t)e : TRM_NOTHING;
            break;
        case TRM_EXPRESSION_CALL:
            numbers[e] = s->rule_lives[node.a] ? (uint32_t)e : TRM_NOTHING;
            break;
        case TRM_EXPRESSION_SEQUENCE:
            numbers[e] = trm_expression_sequence(x, numbers[node.a], numbers[node.b]);
            break;
        case TRM_EXPRESSION_REPEAT:
            numbers[e] = trm_expression_repeat(x, numbers[node.a], node.min, node.max);
            break;
        case TRM_EXPRESSION_EITHER:
            for (uint32_t i = 0; i < node.b && x->status == TRM_OK; i++) {
                x->status = trm_ids_append(&list, (int32_t)numbers[x->pool.data[node.a + i]]);
            }
            numbers[e] = trm_expression_either(x, (const trm_expression *)list.data, list.size);
            trm_ids_fini(&list);
            break;
        default: /* has no part outside an intersection */
            break;
        }
    }
    for (size_t i = 0; i < a->n_rules; i++) {
        a->rules[i] = numbers[a->rules[i]];
    }
}

/* Asks of every intersection whether it matches anything. */
static void find_life(trm_expressions *x)
{
    const size_t count = x->n_nodes;
    for (size_t e = 0; e < count && x->status == TRM_OK; e++) {
        const uint8_t kind = trm_expression_get(x, (trm_expression)e)->kind;
        if (kind == TRM_EXPRESSION_BOTH || kind == TRM_EXPRESSION_NOT) {
            (void)trm_expression_is_alive(x, (trm_expression)e);
        }
        if (kind == TRM_EXPRESSION_UNIQUE) {
            trm_expression_check_unique(x, (trm_expression)e);
        }
    }
}

static trm_status check(const trm_grammar_tree *tree, trm_grammar_automaton *a)
{
    survey s = {.a = a};
    trm_ids calls = {0};
    size_t count = a->x.n_nodes;
    uint32_t *numbers = calloc(count, sizeof(*numbers));
    uint8_t *visits = calloc(a->n_rules, sizeof(*visits));
    s.live = calloc(count, sizeof(*s.live));
    s.empty = calloc(count, sizeof(*s.empty));
    s.rule_lives = calloc(a->n_rules, sizeof(*s.rule_lives));
    s.rule_empty = calloc(a->n_rules, sizeof(*s.rule_empty));
    trm_status status = TRM_OK;
    if (numbers == NULL || visits == NULL || s.live == NULL || s.empty == NULL || s.rule_lives == NULL ||
        s.rule_empty == NULL) {
        status = trm_fail(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %zu expressions of a grammar", count);
    }
    status = status == TRM_OK ? survey_all(&s) : status;
    if (status == TRM_OK && !s.rule_lives[a->root]) {
        status = trm_fail(TRM_ERROR_INVALID_ARGUMENT, "the grammar matches no text at all");
    }
    status = status == TRM_OK ? walk_recursion(&s, tree, numbers, visits, &calls) : status;
    bool all = true;
    for (size_t i = 0; i < a->n_rules && status == TRM_OK; i++) {
        all = all && s.rule_lives[i];
    }
    for (size_t e = TRM_EMPTY; e < count && status == TRM_OK; e++) {
        all = all && s.live[e];
    }
    if (status == TRM_OK && !all) {
        drop_dead(&s, numbers);
        status = a->x.status;
    }
    free(numbers);
    free(visits);
    free(s.live);
    free(s.empty);
    free(s.rule_lives);
    free(s.rule_empty);
    trm_ids_fini(&calls);
    return status;
}

trm_status trm_grammar_build(const trm_grammar_tree *tree, trm_grammar_automaton *automaton)
{
    trm_grammar_automaton *a = automaton;
    *a = (trm_grammar_automaton){.n_rules = tree->n_rules, .root = (uint32_t)tree->root};
    trm_status status = trm_expressions_init(&a->x);
    a->x.max_nodes = MAX_NODES;
    a->x.work = MAX_WORK;
    a->rules = calloc(tree->n_rules + 1, sizeof(*a->rules));
    if (status == TRM_OK && a->rules == NULL) {
        status = trm_fail(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %zu rules of a grammar", tree->n_rules);
    }
    status = status == TRM_OK ? convert_rules(tree, a) : status;
    if (status == TRM_OK) {
        trm_expression_find_classes(&a->x);
        find_life(&a->x);
        status = a->x.status;
    }
    status = status == TRM_OK ? check(tree, a) : status;
    if (status != TRM_OK) {
        trm_grammar_automaton_fini(a);
    }
    return status;
}

void trm_grammar_automaton_fini(trm_grammar_automaton *automaton)
{
    trm_expressions_fini(&automaton->x);
    free(automaton->rules);
    free(automaton->rows);
    free(automaton->moves);
    trm_ids_fini(&automaton->calls);
    *automaton = (trm_grammar_automaton){0};
}

/* ---- states ---- */

void trm_grammar_automaton_begin(trm_grammar_automaton *automaton, int64_t work)
{
    automaton->x.status = TRM_OK;
    automaton->x.work = work;
    automaton->x.depth = automaton->x.inside = 0;
    automaton->x.max_nodes = SIZE_MAX / 64; /* grammar.c drops what is not needed */
}

static trm_status find_row(trm_grammar_automaton *a, trm_expression state, uint32_t *row)
{
    if (a->x.nodes[state].row == 0) {
        void *data = a->rows;
        TRM_TRY(trm_array_grow(&data, &a->row_capacity, a->n_rows + 1, sizeof(*a->rows)));
        a->rows = data;
        data = a->moves;
        TRM_TRY(trm_array_grow(&data, &a->move_capacity, (a->n_rows + 1) * a->x.n_classes, sizeof(*a->moves)));
        a->moves = data;
        a->rows[a->n_rows] = (trm_grammar_row){0};
        memset(a->moves + a->n_rows * a->x.n_classes, 0xff, a->x.n_classes * sizeof(*a->moves));
        a->x.nodes[state].row = (uint32_t)++a->n_rows;
    }
    *row = a->x.nodes[state].row - 1;
    return TRM_OK;
}

trm_status trm_grammar_automaton_move(trm_grammar_automaton *automaton, trm_expression state, uint32_t class,
                                      trm_expression *target)
{
    uint32_t row;
    TRM_TRY(find_row(automaton, state, &row));
    uint32_t *moves = &automaton->moves[(size_t)row * automaton->x.n_classes];
    if (moves[class] == UNKNOWN) {
        uint8_t group_of[256];
        (void)trm_expression_groups(&automaton->x, state, group_of);
        const trm_expression next = trm_expression_derive(&automaton->x, state, automaton->x.byte_of[class]);
        TRM_TRY(automaton->x.status);
        for (uint32_t i = 0; i < automaton->x.n_classes; i++) {
            moves[i] = group_of[i] == group_of[class] ? next : moves[i];
        }
    }
    *target = moves[class];
    return TRM_OK;
}

trm_status trm_grammar_automaton_calls(trm_grammar_automaton *automaton, trm_expression state, uint32_t *first,
                                       uint32_t *count)
{
    uint32_t row;
    *first = *count = 0;
    if (!automaton->x.nodes[state].has_calls) {
        return TRM_OK;
    }
    TRM_TRY(find_row(automaton, state, &row));
    if (!automaton->rows[row].has_calls) {
        trm_ids pairs = {0};
        trm_expression_calls(&automaton->x, state, &pairs);
        trm_status status = automaton->x.status;
        automaton->rows[row].first_call = (uint32_t)automaton->calls.size;
        automaton->rows[row].n_calls = (uint32_t)pairs.size / 2;
        status = status == TRM_OK ? trm_ids_reserve(&automaton->calls, pairs.size) : status;
        for (size_t i = 0; i < pairs.size && status == TRM_OK; i++) {
            automaton->calls.data[automaton->calls.size++] = pairs.data[i];
        }
        trm_ids_fini(&pairs);
        TRM_TRY(status);
        automaton->rows[row].has_calls = true;
    }
    *first = automaton->rows[row].first_call;
    *count = automaton->rows[row].n_calls;
    return TRM_OK;
}

trm_status trm_grammar_automaton_has_moves(trm_grammar_automaton *automaton, trm_expression state, bool *has_moves)
{
    const trm_expression_node *node = &automaton->x.nodes[state];
    uint32_t row;
    *has_moves = node->has_moves;
    if (!node->has_moves || !node->has_both || !node->nullable) {
        return TRM_OK;
    }
    TRM_TRY(find_row(automaton, state, &row));
    if (!automaton->rows[row].moves_known) {
        trm_expression target = TRM_NOTHING;
        for (uint32_t class = 0; class < automaton->x.n_classes && target == TRM_NOTHING; class ++) {
            TRM_TRY(trm_grammar_automaton_move(automaton, state, class, &target));
        }
        automaton->rows[row].has_moves = target != TRM_NOTHING;
        automaton->rows[row].moves_known = true;
    }
    *has_moves = automaton->rows[row].has_moves;
    return TRM_OK;
}

size_t trm_grammar_automaton_memory(const trm_grammar_automaton *automaton)
{
    return automaton->x.n_nodes * sizeof(*automaton->x.nodes) + automaton->x.pool.size * sizeof(int32_t) +
           automaton->n_rows * (sizeof(*automaton->rows) + automaton->x.n_classes * sizeof(*automaton->moves)) +
           automaton->calls.size * sizeof(int32_t);
}

trm_status trm_grammar_automaton_renew(const trm_grammar_automaton *automaton, trm_grammar_automaton *fresh,
                                       uint32_t *memo)
{
    const trm_expressions *from = &automaton->x;
    *fresh = (trm_grammar_automaton){.n_rules = automaton->n_rules, .root = automaton->root};
    TRM_TRY(trm_expressions_init(&fresh->x));
    fresh->rules = calloc(automaton->n_rules + 1, sizeof(*fresh->rules));
    fresh->x.sets = calloc(from->n_sets + 1, sizeof(*fresh->x.sets));
    fresh->x.multiples = calloc(from->n_multiples + 1, sizeof(*fresh->x.multiples));
    fresh->x.uniques = calloc(from->n_uniques + 1, sizeof(*fresh->x.uniques));
    fresh->x.n_uniques = fresh->x.unique_capacity = from->n_uniques;
    if (fresh->rules == NULL || fresh->x.sets == NULL || fresh->x.multiples == NULL || fresh->x.uniques == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %zu rules of a grammar", automaton->n_rules);
    }
    for (size_t i = 0; i < from->n_sets; i++) {
        fresh->x.sets[i] = from->sets[i];
    }
    for (size_t i = 0; i < from->n_multiples; i++) {
        fresh->x.multiples[i] = from->multiples[i];
    }
    fresh->x.n_sets = fresh->x.set_capacity = from->n_sets;
    fresh->x.n_multiples = fresh->x.multiple_capacity = from->n_multiples;
    memcpy(fresh->x.class_of, from->class_of, sizeof(from->class_of));
    memcpy(fresh->x.byte_of, from->byte_of, sizeof(from->byte_of));
    fresh->x.n_classes = from->n_classes;
    trm_grammar_automaton_begin(fresh, from->work);
    for (size_t i = 0; i < from->n_uniques; i++) {
        fresh->x.uniques[i] = from->uniques[i];
        fresh->x.uniques[i].item = trm_expression_copy(&fresh->x, from, from->uniques[i].item, memo);
        fresh->x.uniques[i].tail = trm_expression_copy(&fresh->x, from, from->uniques[i].tail, memo);
        fresh->x.uniques[i].space = trm_expression_copy(&fresh->x, from, from->uniques[i].space, memo);
    }
    for (size_t i = 0; i < automaton->n_rules && fresh->x.status == TRM_OK; i++) {
        fresh->rules[i] = trm_expression_copy(&fresh->x, from, automaton->rules[i], memo);
    }
    return fresh->x.status;
}
