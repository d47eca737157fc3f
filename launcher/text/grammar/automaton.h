/*
 * The automaton of a grammar. Its states are expressions, made when they are met; with a stack of states to return to
 * they accept the texts of the grammar. No state is a dead end.
 */
#ifndef TRM_LAUNCHER_TEXT_GRAMMAR_AUTOMATON_H
#define TRM_LAUNCHER_TEXT_GRAMMAR_AUTOMATON_H

#include "launcher/text/grammar/expression.h"
#include "launcher/text/grammar/tree.h"

/* The calls of a state. */
typedef struct trm_grammar_row {
    uint32_t first_call, n_calls; /* pairs in calls */
    bool has_calls;               /* they are known */
    bool has_moves, moves_known;
} trm_grammar_row;

typedef struct trm_grammar_automaton {
    trm_expressions x;
    trm_expression *rules; /* [n_rules] */
    size_t n_rules;
    uint32_t root;
    trm_grammar_row *rows; /* of states that were left or asked */
    size_t n_rows, row_capacity;
    uint32_t *moves; /* [n_rows, classes] target, NOTHING, or UINT32_MAX if not known yet */
    size_t move_capacity;
    trm_ids calls; /* pairs of a rule and the state after it */
} trm_grammar_automaton;

/* INVALID_ARGUMENT if the grammar is too large or takes too long, is left recursive, or matches no text. */
trm_status trm_grammar_build(const trm_grammar_tree *tree, trm_grammar_automaton *automaton);
void trm_grammar_automaton_fini(trm_grammar_automaton *automaton);
/* The expression of a tree's node; a failure is recorded in x. */
trm_expression trm_grammar_expression(const trm_grammar_tree *tree, trm_expressions *x, const trm_grammar_node *node);

/* Allows `work` more operations. */
void trm_grammar_automaton_begin(trm_grammar_automaton *automaton, int64_t work);
/* Where a state goes on a class of bytes; NOTHING: nowhere. */
trm_status trm_grammar_automaton_move(trm_grammar_automaton *automaton, trm_expression state, uint32_t class,
                                      trm_expression *target);
/* The calls of a state: *count pairs of a rule and a state at automaton->calls.data[*first]. */
trm_status trm_grammar_automaton_calls(trm_grammar_automaton *automaton, trm_expression state, uint32_t *first,
                                       uint32_t *count);
trm_status trm_grammar_automaton_has_moves(trm_grammar_automaton *automaton, trm_expression state, bool *has_moves);
size_t trm_grammar_automaton_memory(const trm_grammar_automaton *automaton); /* bytes in use */
/* Makes `fresh` an automaton of the same rules without any other state; memo [states of `automaton`] says where
 * trm_expression_copy put them. */
trm_status trm_grammar_automaton_renew(const trm_grammar_automaton *automaton, trm_grammar_automaton *fresh,
                                       uint32_t *memo);

#endif
