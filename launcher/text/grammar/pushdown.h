/*
 * Runs the pushdown automaton. A configuration is the set of (state, stack) pairs that the text so far leads to.
 * Stacks and configurations are interned and numbered, and the move of a configuration on a byte is cached, so that
 * after a while a text is followed by table lookups, as if the grammar were regular.
 */
#ifndef TRM_LAUNCHER_TEXT_GRAMMAR_PUSHDOWN_H
#define TRM_LAUNCHER_TEXT_GRAMMAR_PUSHDOWN_H

#include "launcher/text/grammar/automaton.h"

#define TRM_GRAMMAR_NOWHERE UINT32_MAX       /* no text continues here */
#define TRM_GRAMMAR_UNKNOWN (UINT32_MAX - 1) /* not computed yet */

typedef struct trm_grammar_stack {
    uint32_t state;  /* state to continue in */
    uint32_t parent; /* the stack below; 0 is the empty one */
    uint32_t depth;
    uint32_t next; /* of the same hash, + 1 */
} trm_grammar_stack;

typedef struct trm_grammar_config {
    uint32_t first_item, n_items; /* in items; state << 32 | stack, sorted */
    uint32_t next;                /* of the same hash, + 1 */
    bool ends;                    /* the text may end here */
    bool self_known;
    bool free_known, is_free; /* any characters that stand for themselves in a JSON string may follow */
    uint8_t visits;
    uint64_t self_groups; /* groups of bytes that lead back to this configuration */
    uint32_t *mask;       /* of allowed tokens, or NULL */
} trm_grammar_config;

typedef struct trm_grammar_pushdown {
    trm_grammar_automaton *automaton;
    trm_grammar_stack *stacks;
    size_t n_stacks, stack_capacity;
    uint32_t *stack_slots;
    size_t n_stack_slots;
    trm_grammar_config *configs;
    size_t n_configs, config_capacity;
    uint32_t *config_slots;
    size_t n_config_slots;
    uint32_t *moves; /* [n_configs, n_classes] */
    size_t move_capacity;
    uint64_t *items;
    size_t n_items, item_capacity;
    /* the closure under construction */
    uint64_t *found, *todo; /* [MAX_ITEMS] */
    uint32_t *seen;         /* stamps of a hash table of pairs */
    uint64_t *seen_items;
    uint32_t stamp, n_found, n_todo, n_seen;
    bool found_end;
    uint64_t class_groups[256];
} trm_grammar_pushdown;

trm_status trm_grammar_pushdown_init(trm_grammar_pushdown *pushdown, trm_grammar_automaton *automaton);
void trm_grammar_pushdown_fini(trm_grammar_pushdown *pushdown);
/* Begins a call, which has a budget of work. */
void trm_grammar_pushdown_begin(trm_grammar_pushdown *pushdown);
/* The configuration before any text. */
trm_status trm_grammar_pushdown_start(trm_grammar_pushdown *pushdown, uint32_t *config);
/* Computes and caches the move on a class of bytes. */
trm_status trm_grammar_pushdown_find(trm_grammar_pushdown *pushdown, uint32_t config, uint32_t class, uint32_t *next);
static inline trm_status trm_grammar_pushdown_step(trm_grammar_pushdown *pushdown, uint32_t config, uint8_t byte,
                                                   uint32_t *next)
{
    uint32_t class = pushdown->automaton->x.class_of[byte];
    *next = pushdown->moves[(size_t)config * pushdown->automaton->x.n_classes + class];
    return *next != TRM_GRAMMAR_UNKNOWN ? TRM_OK : trm_grammar_pushdown_find(pushdown, config, class, next);
}
/* The configuration with every state replaced by one with smaller counters: it allows the same next TRM_GRAMMAR_NEAR
 * bytes. */
trm_status trm_grammar_pushdown_find_alike(trm_grammar_pushdown *pushdown, uint32_t config, uint32_t *alike);
/* Finds the groups of bytes that lead back to the configuration. */
trm_status trm_grammar_pushdown_find_self(trm_grammar_pushdown *pushdown, uint32_t config);
/* Whether any text of characters that stand for themselves in a JSON string may follow, as far as is plain. */
bool trm_grammar_pushdown_is_free(trm_grammar_pushdown *pushdown, uint32_t config);
/* Bytes in use. */
size_t trm_grammar_pushdown_memory(const trm_grammar_pushdown *pushdown);
/* Drops everything except the configurations [n], whose numbers change, and the states that they need. */
trm_status trm_grammar_pushdown_collect(trm_grammar_pushdown *pushdown, uint32_t *const *configs, size_t n);

#endif
