/* Stacks, configurations and the way from one to the next. */
#include "launcher/text/grammar/machine.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "launcher/text/grammar/vocab.h"
#include "launcher/text/strings/buffer.h"

#define MOST_ITEMS   2000    /* pairs of one configuration */
#define SEEN_SLOTS   8192    /* at least four times as many */
#define DEEPEST      250     /* stacks; deeper nesting is not allowed */
#define MOST_WORK    4000000 /* pairs visited in one call: a few tenths of a second */
#define MOST_CONFIGS 400000

void trm_grammar_machine_fini(trm_grammar_machine *machine)
{
    for (size_t i = 0; i < machine->n_configs; i++) {
        free(machine->configs[i].mask);
    }
    free(machine->stacks);
    free(machine->stack_slots);
    free(machine->configs);
    free(machine->config_slots);
    free(machine->moves);
    free(machine->items);
    free(machine->found);
    free(machine->todo);
    free(machine->seen);
    free(machine->seen_items);
    *machine = (trm_grammar_machine){0};
}

trm_status trm_grammar_machine_init(trm_grammar_machine *machine, const trm_grammar_automaton *automaton)
{
    *machine = (trm_grammar_machine){.automaton = automaton};
    machine->found = calloc(MOST_ITEMS, sizeof(*machine->found));
    machine->todo = calloc(SEEN_SLOTS, sizeof(*machine->todo));
    machine->seen = calloc(SEEN_SLOTS, sizeof(*machine->seen));
    machine->seen_items = calloc(SEEN_SLOTS, sizeof(*machine->seen_items));
    void *data = NULL;
    trm_status status = TRM_OK;
    if (machine->found == NULL || machine->todo == NULL || machine->seen == NULL || machine->seen_items == NULL) {
        status = trm_fail(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a grammar's tables");
    }
    if (status == TRM_OK) {
        status = trm_array_grow(&data, &machine->stack_capacity, 1, sizeof(*machine->stacks));
        machine->stacks = data;
    }
    if (status != TRM_OK) {
        trm_grammar_machine_fini(machine);
        return status;
    }
    machine->stacks[0] = (trm_grammar_stack){0};
    machine->n_stacks = 1;
    for (int byte = 0; byte < 256; byte++) {
        machine->class_groups[automaton->class_of[byte]] |= (uint64_t)1 << trm_grammar_group_of((uint8_t)byte);
    }
    return TRM_OK;
}

void trm_grammar_machine_begin(trm_grammar_machine *machine)
{
    machine->work = MOST_WORK;
}

size_t trm_grammar_machine_memory(const trm_grammar_machine *machine)
{
    return machine->n_configs * (sizeof(*machine->configs) + machine->automaton->n_classes * sizeof(uint32_t)) +
           machine->n_items * sizeof(uint64_t) + machine->n_stacks * sizeof(*machine->stacks);
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

static uint32_t stack_slot(const trm_grammar_machine *machine, uint32_t state, uint32_t parent)
{
    return hash_pair((uint64_t)state << 32 | parent) & (uint32_t)(machine->n_stack_slots - 1);
}

/* The stack with a state on top of another stack. */
static trm_status push_stack(trm_grammar_machine *machine, uint32_t state, uint32_t parent, uint32_t *stack)
{
    if (machine->n_stacks * 2 >= machine->n_stack_slots) {
        TRM_TRY(grow_slots(&machine->stack_slots, &machine->n_stack_slots));
        for (size_t i = 1; i < machine->n_stacks; i++) {
            uint32_t slot = stack_slot(machine, machine->stacks[i].state, machine->stacks[i].parent);
            machine->stacks[i].next = machine->stack_slots[slot];
            machine->stack_slots[slot] = (uint32_t)i + 1;
        }
    }
    uint32_t slot = stack_slot(machine, state, parent);
    for (uint32_t i = machine->stack_slots[slot]; i != 0; i = machine->stacks[i - 1].next) {
        if (machine->stacks[i - 1].state == state && machine->stacks[i - 1].parent == parent) {
            *stack = i - 1;
            return TRM_OK;
        }
    }
    void *data = machine->stacks;
    TRM_TRY(trm_array_grow(&data, &machine->stack_capacity, machine->n_stacks + 1, sizeof(*machine->stacks)));
    machine->stacks = data;
    machine->stacks[machine->n_stacks] = (trm_grammar_stack){.state = state,
                                                             .parent = parent,
                                                             .depth = machine->stacks[parent].depth + 1,
                                                             .next = machine->stack_slots[slot]};
    *stack = (uint32_t)machine->n_stacks++;
    machine->stack_slots[slot] = *stack + 1;
    return TRM_OK;
}

static trm_status fail_ambiguous(void)
{
    return trm_fail(TRM_ERROR_INVALID_ARGUMENT, "the grammar has too many ways to read the text");
}

static void begin_closure(trm_grammar_machine *machine)
{
    machine->stamp++;
    machine->n_found = machine->n_todo = machine->n_seen = 0;
    machine->found_end = false;
}

static trm_status add_pair(trm_grammar_machine *machine, uint32_t state, uint32_t stack)
{
    uint64_t pair = (uint64_t)state << 32 | stack;
    uint32_t slot = hash_pair(pair) & (SEEN_SLOTS - 1);
    while (machine->seen[slot] == machine->stamp) {
        if (machine->seen_items[slot] == pair) {
            return TRM_OK;
        }
        slot = (slot + 1) & (SEEN_SLOTS - 1);
    }
    if (machine->n_seen++ == SEEN_SLOTS / 2 || machine->work-- <= 0) {
        return fail_ambiguous();
    }
    machine->seen[slot] = machine->stamp;
    machine->seen_items[slot] = pair;
    machine->todo[machine->n_todo++] = pair;
    return TRM_OK;
}

/* Follows calls and returns, which take no text; pairs that text can go on from are found. */
static trm_status close_pairs(trm_grammar_machine *machine)
{
    const trm_grammar_automaton *a = machine->automaton;
    while (machine->n_todo > 0) {
        uint64_t pair = machine->todo[--machine->n_todo];
        uint32_t state = (uint32_t)(pair >> 32), stack = (uint32_t)pair;
        if (a->accepts[state] && stack == 0) {
            machine->found_end = true;
        } else if (a->accepts[state]) {
            TRM_TRY(add_pair(machine, machine->stacks[stack].state, machine->stacks[stack].parent));
        }
        for (uint32_t i = a->first_call[state]; i < a->first_call[state + 1]; i++) {
            uint32_t under = stack;
            if (!a->is_tail[a->calls[i].target]) {
                if (machine->stacks[stack].depth == DEEPEST) {
                    continue;
                }
                TRM_TRY(push_stack(machine, a->calls[i].target, stack, &under));
            }
            TRM_TRY(add_pair(machine, a->calls[i].start, under));
        }
        if (a->has_moves[state]) {
            if (machine->n_found == MOST_ITEMS) {
                return fail_ambiguous();
            }
            machine->found[machine->n_found++] = pair;
        }
    }
    return TRM_OK;
}

static int by_pair(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static uint32_t config_slot(const trm_grammar_machine *machine, const uint64_t *items, size_t count, bool ends)
{
    uint64_t hash = ends;
    for (size_t i = 0; i < count; i++) {
        hash = (hash ^ items[i]) * 0x9E3779B97F4A7C15u;
        hash ^= hash >> 29;
    }
    return (uint32_t)hash & (uint32_t)(machine->n_config_slots - 1);
}

static trm_status rehash_configs(trm_grammar_machine *machine)
{
    TRM_TRY(grow_slots(&machine->config_slots, &machine->n_config_slots));
    for (size_t i = 0; i < machine->n_configs; i++) {
        trm_grammar_config *c = &machine->configs[i];
        uint32_t slot = config_slot(machine, machine->items + c->first_item, c->n_items, c->ends);
        c->next = machine->config_slots[slot];
        machine->config_slots[slot] = (uint32_t)i + 1;
    }
    return TRM_OK;
}

static trm_status add_config(trm_grammar_machine *machine, uint32_t slot)
{
    size_t classes = machine->automaton->n_classes;
    if (machine->n_configs == MOST_CONFIGS) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "the grammar has more than %d places in one step", MOST_CONFIGS);
    }
    void *data = machine->items;
    TRM_TRY(trm_array_grow(&data, &machine->item_capacity, machine->n_items + machine->n_found, sizeof(uint64_t)));
    machine->items = data;
    data = machine->moves;
    TRM_TRY(trm_array_grow(&data, &machine->move_capacity, (machine->n_configs + 1) * classes, sizeof(uint32_t)));
    machine->moves = data;
    data = machine->configs;
    TRM_TRY(trm_array_grow(&data, &machine->config_capacity, machine->n_configs + 1, sizeof(*machine->configs)));
    machine->configs = data;
    if (machine->n_found > 0) {
        memcpy(machine->items + machine->n_items, machine->found, machine->n_found * sizeof(uint64_t));
    }
    for (size_t i = 0; i < classes; i++) {
        machine->moves[machine->n_configs * classes + i] = TRM_GRAMMAR_UNKNOWN;
    }
    machine->configs[machine->n_configs] = (trm_grammar_config){.first_item = (uint32_t)machine->n_items,
                                                                .n_items = machine->n_found,
                                                                .ends = machine->found_end,
                                                                .next = machine->config_slots[slot]};
    machine->n_items += machine->n_found;
    machine->config_slots[slot] = (uint32_t)++machine->n_configs;
    return TRM_OK;
}

/* The configuration of what was found. */
static trm_status find_config(trm_grammar_machine *machine, uint32_t *config)
{
    if (machine->n_found == 0 && !machine->found_end) {
        *config = TRM_GRAMMAR_NOWHERE;
        return TRM_OK;
    }
    if (machine->n_configs * 2 >= machine->n_config_slots) {
        TRM_TRY(rehash_configs(machine));
    }
    if (machine->n_found > 1) {
        qsort(machine->found, machine->n_found, sizeof(uint64_t), by_pair);
    }
    uint32_t slot = config_slot(machine, machine->found, machine->n_found, machine->found_end);
    for (uint32_t i = machine->config_slots[slot]; i != 0; i = machine->configs[i - 1].next) {
        const trm_grammar_config *c = &machine->configs[i - 1];
        if (c->n_items == machine->n_found && c->ends == machine->found_end &&
            (c->n_items == 0 ||
             memcmp(machine->items + c->first_item, machine->found, c->n_items * sizeof(uint64_t)) == 0)) {
            *config = i - 1;
            return TRM_OK;
        }
    }
    TRM_TRY(add_config(machine, slot));
    *config = (uint32_t)machine->n_configs - 1;
    return TRM_OK;
}

trm_status trm_grammar_machine_start(trm_grammar_machine *machine, uint32_t *config)
{
    begin_closure(machine);
    TRM_TRY(add_pair(machine, machine->automaton->start, 0));
    TRM_TRY(close_pairs(machine));
    TRM_TRY(find_config(machine, config));
    if (*config == TRM_GRAMMAR_NOWHERE) { /* all ways in are deeper than a stack may be */
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "the grammar is nested too deep");
    }
    return TRM_OK;
}

trm_status trm_grammar_machine_find(trm_grammar_machine *machine, uint32_t config, uint32_t class, uint32_t *next)
{
    const trm_grammar_automaton *a = machine->automaton;
    const trm_grammar_config *c = &machine->configs[config];
    begin_closure(machine);
    for (uint32_t i = 0; i < c->n_items; i++) {
        uint64_t pair = machine->items[c->first_item + i];
        uint32_t target = a->moves[(pair >> 32) * a->n_classes + class];
        if (target != TRM_GRAMMAR_DEAD) {
            TRM_TRY(add_pair(machine, target, (uint32_t)pair));
        }
    }
    TRM_TRY(close_pairs(machine));
    TRM_TRY(find_config(machine, next));
    machine->moves[(size_t)config * a->n_classes + class] = *next;
    return TRM_OK;
}

trm_status trm_grammar_machine_find_alike(trm_grammar_machine *machine, uint32_t config, uint32_t *alike)
{
    const trm_grammar_config *c = &machine->configs[config];
    begin_closure(machine);
    for (uint32_t i = 0; i < c->n_items; i++) {
        uint64_t pair = machine->items[c->first_item + i];
        TRM_TRY(add_pair(machine, machine->automaton->alike[pair >> 32], (uint32_t)pair));
    }
    machine->n_found = machine->n_todo;
    memcpy(machine->found, machine->todo, machine->n_found * sizeof(*machine->found));
    machine->found_end = c->ends;
    return find_config(machine, alike);
}

trm_status trm_grammar_machine_find_self(trm_grammar_machine *machine, uint32_t config)
{
    uint64_t others = 0;
    for (uint32_t class = 0; class < machine->automaton->n_classes; class ++) {
        uint32_t next = machine->moves[(size_t)config * machine->automaton->n_classes + class];
        if (next == TRM_GRAMMAR_UNKNOWN) {
            TRM_TRY(trm_grammar_machine_find(machine, config, class, &next));
        }
        others |= next == config ? 0 : machine->class_groups[class];
    }
    machine->configs[config].self_groups = ~others;
    machine->configs[config].self_known = true;
    return TRM_OK;
}

/* A stack of another machine in this one. */
static trm_status copy_stack(trm_grammar_machine *machine, const trm_grammar_machine *from, uint32_t stack,
                             uint32_t *copy)
{
    uint32_t states[DEEPEST + 1], depth = 0;
    for (; stack != 0; stack = from->stacks[stack].parent) {
        states[depth++] = from->stacks[stack].state;
    }
    *copy = 0;
    while (depth > 0) {
        TRM_TRY(push_stack(machine, states[--depth], *copy, copy));
    }
    return TRM_OK;
}

static trm_status copy_config(trm_grammar_machine *machine, const trm_grammar_machine *from, uint32_t config,
                              uint32_t *copy)
{
    const trm_grammar_config *c = &from->configs[config];
    begin_closure(machine);
    machine->found_end = c->ends;
    for (uint32_t i = 0; i < c->n_items; i++) {
        uint64_t pair = from->items[c->first_item + i];
        uint32_t stack;
        TRM_TRY(copy_stack(machine, from, (uint32_t)pair, &stack));
        machine->found[machine->n_found++] = (pair >> 32 << 32) | stack;
    }
    return find_config(machine, copy);
}

trm_status trm_grammar_machine_collect(trm_grammar_machine *machine, uint32_t *const *configs, size_t n)
{
    trm_grammar_machine fresh;
    TRM_TRY(trm_grammar_machine_init(&fresh, machine->automaton));
    uint32_t *numbers = calloc(n + 1, sizeof(*numbers));
    trm_status status = TRM_OK;
    if (numbers == NULL) {
        status = trm_fail(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %zu places of a grammar", n);
    }
    for (size_t i = 0; i < n && status == TRM_OK; i++) {
        status = copy_config(&fresh, machine, *configs[i], &numbers[i]);
    }
    for (size_t i = 0; i < n && status == TRM_OK; i++) {
        *configs[i] = numbers[i];
    }
    free(numbers);
    if (status != TRM_OK) {
        trm_grammar_machine_fini(&fresh);
        return status;
    }
    fresh.work = machine->work;
    trm_grammar_machine_fini(machine);
    *machine = fresh;
    return TRM_OK;
}
