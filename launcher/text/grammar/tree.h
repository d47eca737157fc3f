/*
 * Grammars as trees: readers of schemas, regular expressions and EBNF build them, automata are made from them. A
 * builder keeps its first failure: its calls then return NULL and accept NULL for children, so that only the end has
 * to check.
 */
#ifndef TRM_LAUNCHER_TEXT_GRAMMAR_TREE_H
#define TRM_LAUNCHER_TEXT_GRAMMAR_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <trireme/status.h>

#include "base/arena.h"
#include "base/map.h"

#define TRM_GRAMMAR_DEPTH 200 /* of nested expressions */

typedef enum trm_grammar_node_kind {
    TRM_GRAMMAR_TEXT,     /* text [size], may be empty */
    TRM_GRAMMAR_CLASS,    /* one character of ranges [n_ranges] */
    TRM_GRAMMAR_SEQUENCE, /* children in order */
    TRM_GRAMMAR_ANY_OF,   /* one of the children; without children: matches nothing */
    TRM_GRAMMAR_REPEAT,   /* the child, min to max times */
    TRM_GRAMMAR_RULE,     /* a rule by number */
    TRM_GRAMMAR_BOTH,     /* a text that all children match, none of which has a rule */
    TRM_GRAMMAR_NOT,      /* a text that the child, which has no rule, does not match */
    TRM_GRAMMAR_MULTIPLE, /* a decimal that is a multiple of min / 10^max */
    TRM_GRAMMAR_UNIQUE, /* min to max of the first child, all different, each with the third behind it, if there is one,
                           and with "," and the second between them */
    /* these three only while regex.c reads an expression */
    TRM_GRAMMAR_LOOK,  /* what follows begins with the child; with min 1 it does not */
    TRM_GRAMMAR_BEGIN, /* the begin of the text */
    TRM_GRAMMAR_END
} trm_grammar_node_kind;

typedef struct trm_grammar_range {
    int32_t first, last; /* code points */
} trm_grammar_range;

typedef struct trm_grammar_node trm_grammar_node;
struct trm_grammar_node {
    trm_grammar_node_kind kind;
    int32_t min, max; /* max -1: no limit */
    int32_t rule;
    bool is_character; /* matches exactly one character, escaped or not */
    size_t size;       /* of text, or number of ranges */
    const char *text;
    const trm_grammar_range *ranges; /* sorted, disjoint */
    trm_grammar_node *child, *last;  /* a list through `next` */
    trm_grammar_node *next;
};

typedef struct trm_grammar_rule {
    const char *name;
    trm_grammar_node *node; /* NULL: referred to but not defined yet */
} trm_grammar_rule;

typedef struct trm_grammar_tree {
    trm_arena arena;
    trm_status status; /* of the first failure */
    trm_grammar_rule *rules;
    size_t n_rules, capacity;
    trm_map names; /* of rules */
    size_t n_nodes;
    int32_t root; /* rule */
    int32_t depth;
} trm_grammar_tree;

void trm_grammar_tree_fini(trm_grammar_tree *tree);
/* Records a failure, unless there is one already. Returns NULL. */
trm_grammar_node *trm_grammar_fail(trm_grammar_tree *tree, trm_status status, const char *format, ...) TRM_PRINTF(3, 4);
/* Enters a nested expression; false, with the failure recorded, at the limit. Leave with depth--. */
bool trm_grammar_enter(trm_grammar_tree *tree);

/* A new rule; a negative number on failure. `name` is copied. */
int32_t trm_grammar_add_rule(trm_grammar_tree *tree, const char *name, size_t size);
/* The rule of this name, or -1. */
int32_t trm_grammar_find_rule(const trm_grammar_tree *tree, const char *name, size_t size);

trm_grammar_node *trm_grammar_text(trm_grammar_tree *tree, const char *text, size_t size); /* copied */
trm_grammar_node *trm_grammar_literal(trm_grammar_tree *tree, const char *text);
/* Ranges in any order; with `negated` all other code points except surrogates. Copied. */
trm_grammar_node *trm_grammar_class(trm_grammar_tree *tree, const trm_grammar_range *ranges, size_t count,
                                    bool negated);
trm_grammar_node *trm_grammar_list(trm_grammar_tree *tree, trm_grammar_node_kind kind);
/* Adds a child, which must not be in another list, to a SEQUENCE or ANY_OF. */
void trm_grammar_append(trm_grammar_tree *tree, trm_grammar_node *list, trm_grammar_node *child);
trm_grammar_node *trm_grammar_sequence(trm_grammar_tree *tree, size_t count, ...); /* of trm_grammar_node * */
trm_grammar_node *trm_grammar_any_of(trm_grammar_tree *tree, size_t count, ...);
trm_grammar_node *trm_grammar_repeat(trm_grammar_tree *tree, trm_grammar_node *child, int32_t min, int32_t max);
trm_grammar_node *trm_grammar_call(trm_grammar_tree *tree, int32_t rule);
trm_grammar_node *trm_grammar_not(trm_grammar_tree *tree, trm_grammar_node *child);
/* `tail` may be NULL. */
trm_grammar_node *trm_grammar_unique(trm_grammar_tree *tree, trm_grammar_node *item, trm_grammar_node *space,
                                     trm_grammar_node *tail, int32_t min, int32_t max);
/* A copy of the expression for another list. */
trm_grammar_node *trm_grammar_copy(trm_grammar_tree *tree, const trm_grammar_node *node);

/* Readers, which set tree->root. */
void trm_grammar_read_ebnf(trm_grammar_tree *tree, const char *text, size_t size);
void trm_grammar_read_schema(trm_grammar_tree *tree, const char *text, size_t size);
void trm_grammar_read_json(trm_grammar_tree *tree);
void trm_grammar_read_enum(trm_grammar_tree *tree, const char *text, size_t size);
typedef enum trm_grammar_regex_use {
    TRM_GRAMMAR_WHOLE,       /* the whole text matches */
    TRM_GRAMMAR_WHOLE_JSON,  /* the text between the quotes of a JSON string, with the shortest escapes */
    TRM_GRAMMAR_SEARCH_JSON, /* a part of such a text matches */
} trm_grammar_regex_use;
trm_grammar_node *trm_grammar_read_regex(trm_grammar_tree *tree, const char *text, size_t size,
                                         trm_grammar_regex_use use);
/* One character of the ranges between the quotes of a JSON string, escaped if necessary. */
trm_grammar_node *trm_grammar_json_class(trm_grammar_tree *tree, const trm_grammar_range *ranges, size_t count,
                                         bool negated);

#endif
