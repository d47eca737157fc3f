/*
 * Nondeterministic automata of a grammar's rules, built from its tree.
 */
#ifndef TRM_LAUNCHER_TEXT_GRAMMAR_NFA_H
#define TRM_LAUNCHER_TEXT_GRAMMAR_NFA_H

#include "launcher/text/grammar/tree.h"

#define TRM_GRAMMAR_NONE UINT32_MAX

typedef enum trm_grammar_edge_kind {
    TRM_GRAMMAR_EDGE_EMPTY,
    TRM_GRAMMAR_EDGE_BYTES,
    TRM_GRAMMAR_EDGE_CALL
} trm_grammar_edge_kind;

typedef struct trm_grammar_edge {
    uint32_t target;
    uint32_t next;             /* edge of the same state, or NONE */
    uint32_t rule;             /* CALL */
    uint8_t kind, first, last; /* BYTES */
} trm_grammar_edge;

typedef struct trm_grammar_nfa {
    uint32_t *first_edge; /* [n_states] or NONE */
    size_t n_states, state_capacity;
    trm_grammar_edge *edges;
    size_t n_edges, edge_capacity;
    uint32_t *begin, *end; /* [n_rules] first and last state of a rule */
} trm_grammar_nfa;

trm_status trm_grammar_nfa_build(const trm_grammar_tree *tree, trm_grammar_nfa *nfa);
void trm_grammar_nfa_fini(trm_grammar_nfa *nfa);

#endif
