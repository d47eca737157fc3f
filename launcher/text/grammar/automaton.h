/*
 * The automaton of a grammar: one deterministic automaton per rule, over classes of bytes and calls of rules. With a
 * stack of return states they accept the texts of the grammar.
 */
#ifndef TRM_LAUNCHER_TEXT_GRAMMAR_AUTOMATON_H
#define TRM_LAUNCHER_TEXT_GRAMMAR_AUTOMATON_H

#include "launcher/text/grammar/tree.h"

#define TRM_GRAMMAR_DEAD UINT32_MAX

typedef struct trm_grammar_call_edge {
    uint32_t start;  /* state of the called rule */
    uint32_t target; /* state after it */
} trm_grammar_call_edge;

typedef struct trm_grammar_automaton {
    uint8_t class_of[256]; /* of each byte: bytes of one class are equivalent */
    uint32_t n_classes;
    uint32_t n_states;
    uint32_t *moves;      /* [n_states, n_classes] target or DEAD */
    uint32_t *first_call; /* [n_states + 1] into calls */
    trm_grammar_call_edge *calls;
    bool *accepts;   /* [n_states] the rule may end here */
    bool *has_moves; /* [n_states] */
    bool *is_tail;   /* [n_states] accepts and has no moves: needs no return */
    uint32_t start;  /* of the root */
    uint32_t *alike; /* [n_states] the first equivalent state (minimize.h) */
} trm_grammar_automaton;

/* INVALID_ARGUMENT if the grammar is too large or takes too long, is left recursive, or matches no text. */
trm_status trm_grammar_build(const trm_grammar_tree *tree, trm_grammar_automaton *automaton);
void trm_grammar_automaton_fini(trm_grammar_automaton *automaton);

#endif
