/* Stacks, configurations and the moves between them. */
#include "launcher/text/grammar/pushdown.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "launcher/text/grammar/vocab.h"
#include "launcher/text/strings/buffer.h"

#define MAX_ITEMS   2000    /* pairs of one configuration */
#define SEEN_SLOTS  8192    /* at least four times as many */
#define DEEPEST     250     /* stacks; deeper nesting is not allowed */
#define MAX_WORK    1000000 /* operations of one call: some tens of milliseconds */
#define MAX_CONFIGS 400000

void trm_grammar_pushdown_fini(trm_grammar_pushdown *pushdown)
{
    for (size_t i = 0; i < pushdown->n_configs; i++) {
        free(pushdown->configs[i].mask);
    }
    free(pushdown->stacks);
    free(pushdown->stack_slots);
    free(pushdown->configs);
    free(pushdown->config_slots);
    free(pushdown->moves);
    free(pushdown->items);
    free(pushdown->found);
    free(pushdown->todo);
    free(pushdown->seen);
    free(pushdown->seen_items);
    *pushdown = (trm_grammar_pushdown){0};
}

trm_status trm_grammar_pushdown_init(trm_grammar_pushdown *pushdown, trm_grammar_automaton *automaton)
{
    *pushdown = (trm_grammar_pushdown){.automaton = automaton};
    pushdown->found = calloc(MAX_ITEMS, sizeof(*pushdown->found));
    pushdown->todo = calloc(SEEN_SLOTS, sizeof(*pushdown->todo));
    pushdown->seen = calloc(SEEN_SLOTS, sizeof(*pushdown->seen));
    pushdown->seen_items = calloc(SEEN_SLOTS, sizeof(*pushdown->seen_items));
    void *data = NULL;
    trm_status status = TRM_OK;
    if (pushdown->found == NULL || pushdown->todo == NULL || pushdown->seen == NULL || pushdown->seen_items == NULL) {
        status = trm_fail(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a grammar's tables");
    }
    if (status == TRM_OK) {
        status = trm_array_grow(&data, &pushdown->stack_capacity, 1, sizeof(*pushdown->stacks));
        pushdown->stacks = data;
    }
    if (status != TRM_OK) {
        trm_grammar_pushdown_fini(pushdown);
        return status;
    }
    pushdown->stacks[0] = (trm_grammar_stack){0};
    pushdown->n_stacks = 1;
    for (int byte = 0; byte < 256; byte++) {
        pushdown->class_groups[automaton->x.class_of[byte]] |= (uint64_t)1 << trm_grammar_group_of((uint8_t)byte);
    }
    return TRM_OK;
}

void trm_grammar_pushdown_begin(trm_grammar_pushdown *pushdown)
{
    trm_grammar_automaton_begin(pushdown->automaton, MAX_WORK);
}

size_t trm_grammar_pushdown_memory(const trm_grammar_pushdown *pushdown)
{
    return pushdown->n_configs * (sizeof(*pushdown->configs) + pushdown->automaton->x.n_classes * sizeof(uint32_t)) +
           pushdown->n_items * sizeof(uint64_t) + pushdown->n_stacks * sizeof(*pushdown->stacks) +
           trm_grammar_automaton_memory(pushdown->automaton);
}

static uint32_t hash_pair(uint64_t pair)
{
    pair *= 0x9E3779B97F4A7C15u;
    return (uint32_t)(pair >> 32);
}

static trm_status grow_slots(uint32_t **slots, size_t *count)
{
    size_t larger = *count == 0 ? 256 : 2 * *count;
    uint32_t *made = calloc(larger, sizeof(*made));
    if (made == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %zu entries of a grammar", larger);
    }
    free(*slots);
    *slots = made;
    *count = larger;
    return TRM_OK;
}

static uint32_t stack_slot(const trm_grammar_pushdown *pushdown, uint32_t state, uint32_t parent)
{
    return hash_pair((uint64_t)state << 32 | parent) & (uint32_t)(pushdown->n_stack_slots - 1);
}

/* The stack with a state on top of another stack. */
static trm_status push_stack(trm_grammar_pushdown *pushdown, uint32_t state, uint32_t parent, uint32_t *stack)
{
    if (pushdown->n_stacks * 2 >= pushdown->n_stack_slots) {
        TRM_TRY(grow_slots(&pushdown->stack_slots, &pushdown->n_stack_slots));
        for (size_t i = 1; i < pushdown->n_stacks; i++) {
            uint32_t slot = stack_slot(pushdown, pushdown->stacks[i].state, pushdown->stacks[i].parent);
            pushdown->stacks[i].next = pushdown->stack_slots[slot];
            pushdown->stack_slots[slot] = (uint32_t)i + 1;
        }
    }
    uint32_t slot = stack_slot(pushdown, state, parent);
    for (uint32_t i = pushdown->stack_slots[slot]; i != 0; i = pushdown->stacks[i - 1].next) {
        if (pushdown->stacks[i - 1].state == state && pushdown->stacks[i - 1].parent == parent) {
            *stack = i - 1;
            return TRM_OK;
        }
    }
    void *data = pushdown->stacks;
    TRM_TRY(trm_array_grow(&data, &pushdown->stack_capacity, pushdown->n_stacks + 1, sizeof(*pushdown->stacks)));
    pushdown->stacks = data;
    pushdown->stacks[pushdown->n_stacks] = (trm_grammar_stack){.state = state,
                                                               .parent = parent,
                                                               .depth = pushdown->stacks[parent].depth + 1,
                                                               .next = pushdown->stack_slots[slot]};
    *stack = (uint32_t)pushdown->n_stacks++;
    pushdown->stack_slots[slot] = *stack + 1;
    return TRM_OK;
}

static trm_status fail_ambiguous(void)
{
    return trm_fail(TRM_ERROR_INVALID_ARGUMENT, "the grammar is too ambiguous for the text");
}

static void begin_closure(trm_grammar_pushdown *pushdown)
{
    pushdown->stamp++;
    pushdown->n_found = pushdown->n_todo = pushdown->n_seen = 0;
    pushdown->found_end = false;
}

static trm_status add_pair(trm_grammar_pushdown *pushdown, uint32_t state, uint32_t stack)
{
    uint64_t pair = (uint64_t)state << 32 | stack;
    uint32_t slot = hash_pair(pair) & (SEEN_SLOTS - 1);
    while (pushdown->seen[slot] == pushdown->stamp) {
        if (pushdown->seen_items[slot] == pair) {
            return TRM_OK;
        }
        slot = (slot + 1) & (SEEN_SLOTS - 1);
    }
    if (pushdown->n_seen++ == SEEN_SLOTS / 2 || pushdown->automaton->x.work-- <= 0) {
        return fail_ambiguous();
    }
    pushdown->seen[slot] = pushdown->stamp;
    pushdown->seen_items[slot] = pair;
    pushdown->todo[pushdown->n_todo++] = pair;
    return TRM_OK;
}

/* Follows calls and returns, which take no text; finds the pairs from which text can continue. */
static trm_status close_pairs(trm_grammar_pushdown *pushdown)
{
    trm_grammar_automaton *a = pushdown->automaton;
    while (pushdown->n_todo > 0) {
        uint64_t pair = pushdown->todo[--pushdown->n_todo];
        uint32_t state = (uint32_t)(pair >> 32), stack = (uint32_t)pair, first, count;
        bool has_moves;
        if (trm_expression_get(&a->x, state)->nullable) {
            if (stack == 0) {
                pushdown->found_end = true;
            } else {
                TRM_TRY(add_pair(pushdown, pushdown->stacks[stack].state, pushdown->stacks[stack].parent));
            }
        }
        TRM_TRY(trm_grammar_automaton_calls(a, state, &first, &count));
        for (uint32_t i = 0; i < count; i++) {
            uint32_t under = stack, rule = (uint32_t)a->calls.data[first + 2 * i];
            uint32_t target = (uint32_t)a->calls.data[first + 2 * i + 1];
            if (target != TRM_EMPTY) { /* else it would only return */
                if (pushdown->stacks[stack].depth == DEEPEST) {
                    continue;
                }
                TRM_TRY(push_stack(pushdown, target, stack, &under));
            }
            TRM_TRY(add_pair(pushdown, a->rules[rule], under));
        }
        TRM_TRY(trm_grammar_automaton_has_moves(a, state, &has_moves));
        if (has_moves) {
            if (pushdown->n_found == MAX_ITEMS) {
                return fail_ambiguous();
            }
            pushdown->found[pushdown->n_found++] = pair;
        }
    }
    return TRM_OK;
}

static int by_pair(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static uint32_t config_slot(const trm_grammar_pushdown *pushdown, const uint64_t *items, size_t count, bool ends)
{
    uint64_t hash = ends;
    for (size_t i = 0; i < count; i++) {
        hash = (hash ^ items[i]) * 0x9E3779B97F4A7C15u;
        hash ^= hash >> 29;
    }
    return (uint32_t)hash & (uint32_t)(pushdown->n_config_slots - 1);
}

static trm_status rehash_configs(trm_grammar_pushdown *pushdown)
{
    TRM_TRY(grow_slots(&pushdown->config_slots, &pushdown->n_config_slots));
    for (size_t i = 0; i < pushdown->n_configs; i++) {
        trm_grammar_config *c = &pushdown->configs[i];
        uint32_t slot = config_slot(pushdown, pushdown->items + c->first_item, c->n_items, c->ends);
        c->next = pushdown->config_slots[slot];
        pushdown->config_slots[slot] = (uint32_t)i + 1;
    }
    return TRM_OK;
}

static trm_status add_config(trm_grammar_pushdown *pushdown, uint32_t slot)
{
    size_t classes = pushdown->automaton->x.n_classes;
    if (pushdown->n_configs == MAX_CONFIGS) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "the grammar has more than %d positions in one step", MAX_CONFIGS);
    }
    void *data = pushdown->items;
    TRM_TRY(trm_array_grow(&data, &pushdown->item_capacity, pushdown->n_items + pushdown->n_found, sizeof(uint64_t)));
    pushdown->items = data;
    data = pushdown->moves;
    TRM_TRY(trm_array_grow(&data, &pushdown->move_capacity, (pushdown->n_configs + 1) * classes, sizeof(uint32_t)));
    pushdown->moves = data;
    data = pushdown->configs;
    TRM_TRY(trm_array_grow(&data, &pushdown->config_capacity, pushdown->n_configs + 1, sizeof(*pushdown->configs)));
    pushdown->configs = data;
    if (pushdown->n_found > 0) {
        memcpy(pushdown->items + pushdown->n_items, pushdown->found, pushdown->n_found * sizeof(uint64_t));
    }
    for (size_t i = 0; i < classes; i++) {
        pushdown->moves[pushdown->n_configs * classes + i] = TRM_GRAMMAR_UNKNOWN;
    }
    pushdown->configs[pushdown->n_configs] = (trm_grammar_config){.first_item = (uint32_t)pushdown->n_items,
                                                                  .n_items = pushdown->n_found,
                                                                  .ends = pushdown->found_end,
                                                                  .next = pushdown->config_slots[slot]};
    pushdown->n_items += pushdown->n_found;
    pushdown->config_slots[slot] = (uint32_t)++pushdown->n_configs;
    return TRM_OK;
}

/* The configuration of the pairs found. */
static trm_status find_config(trm_grammar_pushdown *pushdown, uint32_t *config)
{
    if (pushdown->n_found == 0 && !pushdown->found_end) {
        *config = TRM_GRAMMAR_NOWHERE;
        return TRM_OK;
    }
    if (pushdown->n_configs * 2 >= pushdown->n_config_slots) {
        TRM_TRY(rehash_configs(pushdown));
    }
    if (pushdown->n_found > 1) {
        qsort(pushdown->found, pushdown->n_found, sizeof(uint64_t), by_pair);
    }
    uint32_t slot = config_slot(pushdown, pushdown->found, pushdown->n_found, pushdown->found_end);
    for (uint32_t i = pushdown->config_slots[slot]; i != 0; i = pushdown->configs[i - 1].next) {
        const trm_grammar_config *c = &pushdown->configs[i - 1];
        if (c->n_items == pushdown->n_found && c->ends == pushdown->found_end &&
            (c->n_items == 0 ||
             memcmp(pushdown->items + c->first_item, pushdown->found, c->n_items * sizeof(uint64_t)) == 0)) {
            *config = i - 1;
            return TRM_OK;
        }
    }
    TRM_TRY(add_config(pushdown, slot));
    *config = (uint32_t)pushdown->n_configs - 1;
    return TRM_OK;
}

trm_status trm_grammar_pushdown_start(trm_grammar_pushdown *pushdown, uint32_t *config)
{
    begin_closure(pushdown);
    TRM_TRY(add_pair(pushdown, pushdown->automaton->rules[pushdown->automaton->root], 0));
    TRM_TRY(close_pairs(pushdown));
    TRM_TRY(find_config(pushdown, config));
    if (*config == TRM_GRAMMAR_NOWHERE) { /* all continuations are deeper than a stack may be */
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "the grammar is nested too deeply");
    }
    return TRM_OK;
}

trm_status trm_grammar_pushdown_find(trm_grammar_pushdown *pushdown, uint32_t config, uint32_t class, uint32_t *next)
{
    trm_grammar_automaton *a = pushdown->automaton;
    const trm_grammar_config *c = &pushdown->configs[config];
    begin_closure(pushdown);
    for (uint32_t i = 0; i < c->n_items; i++) {
        uint64_t pair = pushdown->items[c->first_item + i];
        trm_expression target;
        TRM_TRY(trm_grammar_automaton_move(a, (trm_expression)(pair >> 32), class, &target));
        if (target != TRM_NOTHING) {
            TRM_TRY(add_pair(pushdown, target, (uint32_t)pair));
        }
    }
    TRM_TRY(close_pairs(pushdown));
    TRM_TRY(find_config(pushdown, next));
    pushdown->moves[(size_t)config * a->x.n_classes + class] = *next;
    return TRM_OK;
}

trm_status trm_grammar_pushdown_find_alike(trm_grammar_pushdown *pushdown, uint32_t config, uint32_t *alike)
{
    const trm_grammar_config *c = &pushdown->configs[config];
    begin_closure(pushdown);
    for (uint32_t i = 0; i < c->n_items; i++) {
        uint64_t pair = pushdown->items[c->first_item + i];
        const trm_expression state = trm_expression_alike(&pushdown->automaton->x, (trm_expression)(pair >> 32));
        TRM_TRY(pushdown->automaton->x.status);
        TRM_TRY(add_pair(pushdown, state, (uint32_t)pair));
    }
    pushdown->n_found = pushdown->n_todo;
    memcpy(pushdown->found, pushdown->todo, pushdown->n_found * sizeof(*pushdown->found));
    pushdown->found_end = c->ends;
    return find_config(pushdown, alike);
}

trm_status trm_grammar_pushdown_find_self(trm_grammar_pushdown *pushdown, uint32_t config)
{
    uint64_t others = 0;
    for (uint32_t class = 0; class < pushdown->automaton->x.n_classes; class ++) {
        uint32_t next = pushdown->moves[(size_t)config * pushdown->automaton->x.n_classes + class];
        if (next == TRM_GRAMMAR_UNKNOWN) {
            TRM_TRY(trm_grammar_pushdown_find(pushdown, config, class, &next));
        }
        others |= next == config ? 0 : pushdown->class_groups[class];
    }
    pushdown->configs[config].self_groups = ~others;
    pushdown->configs[config].self_known = true;
    return TRM_OK;
}

bool trm_grammar_pushdown_is_free(trm_grammar_pushdown *pushdown, uint32_t config)
{
    trm_grammar_config *c = &pushdown->configs[config];
    for (uint32_t i = 0; i < c->n_items && !c->free_known && !c->is_free; i++) {
        c->is_free =
            trm_expression_is_free(&pushdown->automaton->x, (trm_expression)(pushdown->items[c->first_item + i] >> 32));
    }
    c->free_known = pushdown->automaton->x.status == TRM_OK;
    return c->is_free;
}

/* Where the states of an automaton are in another one. */
typedef struct state_copier {
    trm_grammar_pushdown *to;
    const trm_grammar_pushdown *from;
    uint32_t *memo; /* [states] + 1 */
} state_copier;

static trm_status copy_state(const state_copier *copier, trm_expression state, trm_expression *copy)
{
    trm_expressions *x = &copier->to->automaton->x;
    *copy = trm_expression_copy(x, &copier->from->automaton->x, state, copier->memo);
    return x->status;
}

static trm_status copy_stack(const state_copier *copier, uint32_t stack, uint32_t *copy)
{
    uint32_t states[DEEPEST + 1], depth = 0;
    for (; stack != 0; stack = copier->from->stacks[stack].parent) {
        states[depth++] = copier->from->stacks[stack].state;
    }
    *copy = 0;
    while (depth > 0) {
        trm_expression state;
        TRM_TRY(copy_state(copier, states[--depth], &state));
        TRM_TRY(push_stack(copier->to, state, *copy, copy));
    }
    return TRM_OK;
}

static trm_status copy_config(const state_copier *copier, uint32_t config, uint32_t *copy)
{
    const trm_grammar_config *c = &copier->from->configs[config];
    begin_closure(copier->to);
    copier->to->found_end = c->ends;
    for (uint32_t i = 0; i < c->n_items; i++) {
        uint64_t pair = copier->from->items[c->first_item + i];
        trm_expression state;
        uint32_t stack;
        TRM_TRY(copy_state(copier, (trm_expression)(pair >> 32), &state));
        TRM_TRY(copy_stack(copier, (uint32_t)pair, &stack));
        copier->to->found[copier->to->n_found++] = (uint64_t)state << 32 | stack;
    }
    return find_config(copier->to, copy);
}

trm_status trm_grammar_pushdown_collect(trm_grammar_pushdown *pushdown, uint32_t *const *configs, size_t n)
{
    trm_grammar_automaton automaton;
    trm_grammar_pushdown fresh = {0};
    uint32_t *memo = calloc(pushdown->automaton->x.n_nodes + 1, sizeof(*memo));
    uint32_t *numbers = calloc(n + 1, sizeof(*numbers));
    const state_copier copier = {.to = &fresh, .from = pushdown, .memo = memo};
    trm_status status = TRM_OK;
    if (numbers == NULL || memo == NULL) {
        free(numbers);
        free(memo);
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %zu positions of a grammar", n);
    }
    status = trm_grammar_automaton_renew(pushdown->automaton, &automaton, memo);
    status = status == TRM_OK ? trm_grammar_pushdown_init(&fresh, &automaton) : status;
    for (size_t i = 0; i < n && status == TRM_OK; i++) {
        status = copy_config(&copier, *configs[i], &numbers[i]);
    }
    for (size_t i = 0; i < n && status == TRM_OK; i++) {
        *configs[i] = numbers[i];
    }
    free(numbers);
    free(memo);
    if (status != TRM_OK) {
        trm_grammar_pushdown_fini(&fresh);
        trm_grammar_automaton_fini(&automaton);
        return status;
    }
    fresh.automaton = pushdown->automaton;
    trm_grammar_automaton_fini(pushdown->automaton);
    *pushdown->automaton = automaton;
    trm_grammar_pushdown_fini(pushdown);
    *pushdown = fresh;
    return TRM_OK;
}
