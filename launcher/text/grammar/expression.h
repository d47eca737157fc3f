/*
 * Regular expressions over bytes and calls of rules, each stored once and known by its number. What an expression
 * allows after a byte is another expression, its derivative, so an automaton's states are expressions and come into
 * being when they are needed. Repetitions are counters, and there are intersections and complements.
 *
 * A table keeps its first failure: its calls then return NOTHING, so that only the end has to check.
 */
#ifndef TRM_LAUNCHER_TEXT_GRAMMAR_EXPRESSION_H
#define TRM_LAUNCHER_TEXT_GRAMMAR_EXPRESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <trireme/status.h>

#include "launcher/text/strings/buffer.h"

#define TRM_GRAMMAR_NEAR 16 /* bytes; few tokens are longer */

typedef uint32_t trm_expression;
#define TRM_NOTHING ((trm_expression)0) /* matches no text */
#define TRM_EMPTY   ((trm_expression)1) /* the empty text */
#define TRM_ANY     ((trm_expression)2) /* every text */

typedef enum trm_expression_kind {
    TRM_EXPRESSION_NOTHING,
    TRM_EXPRESSION_EMPTY,
    TRM_EXPRESSION_BYTES,      /* one byte of set a */
    TRM_EXPRESSION_SEQUENCE,   /* a, then b */
    TRM_EXPRESSION_EITHER,     /* one of pool[a, a + b) */
    TRM_EXPRESSION_BOTH,       /* all of pool[a, a + b), which have no calls */
    TRM_EXPRESSION_NOT,        /* every text except those of a, which has no calls */
    TRM_EXPRESSION_REPEAT,     /* a, min to max times; max -1: no limit */
    TRM_EXPRESSION_CALL,       /* rule a */
    TRM_EXPRESSION_MULTIPLE,   /* the rest of a decimal that is a multiple of multiples[a] */
    TRM_EXPRESSION_UNIQUE,     /* items of uniques[a]; min of them came before, none of which matches b;
                                  with max 1, behind one of them */
    TRM_EXPRESSION_UNIQUE_ITEM /* the rest b of an item, whose begin is `min` backwards, and then those of UNIQUE a */
} trm_expression_kind;

typedef struct trm_expression_node {
    uint8_t kind;
    bool nullable;    /* matches the empty text without a call */
    bool has_both;    /* BOTH, NOT or MULTIPLE within: may match nothing even so */
    bool has_calls;   /* CALL within */
    uint8_t life;     /* of those with has_both: unknown, dead or alive */
    uint8_t freedom;  /* whether it is free: unknown, no or yes */
    bool has_moves;   /* a byte may come without a call; for BOTH and NOT it may be true in vain */
    uint32_t a, b;    /* see the kinds; MULTIPLE: b is the remainder of the digits so far */
    int32_t min, max; /* REPEAT; MULTIPLE: what has been read, and digits behind the point */
    uint32_t next;    /* of the same hash, + 1 */
    uint32_t row;     /* of the automaton's moves, + 1 */
    uint32_t alike;   /* what allows the same next TRM_GRAMMAR_NEAR bytes, + 1 */
} trm_expression_node;

typedef struct trm_byte_set {
    uint64_t words[4];
} trm_byte_set;

/* Decimals that are multiples of number / 10^scale, without an exponent. */
typedef struct trm_multiple {
    uint32_t number, scale;
} trm_multiple;

/* Items that differ: min to max texts of `item`, each with `tail` behind it, and "," and `space` between them. An item
 * with a tail is complete as soon as it may be. */
typedef struct trm_unique {
    trm_expression item, tail, space;
    int32_t min, max;
} trm_unique;

typedef struct trm_expressions {
    trm_status status; /* of the first failure */
    trm_expression_node *nodes;
    size_t n_nodes, node_capacity;
    uint32_t *slots; /* [n_slots] node + 1 */
    size_t n_slots;
    trm_ids pool; /* lists of EITHER and BOTH */
    trm_byte_set *sets;
    size_t n_sets, set_capacity;
    uint32_t *set_slots; /* [n_set_slots] set + 1 */
    size_t n_set_slots;
    trm_multiple *multiples;
    size_t n_multiples, multiple_capacity;
    trm_unique *uniques;
    size_t n_uniques, unique_capacity;
    trm_expression single[256]; /* of each byte, + 1 */
    uint8_t byte_of[256];       /* a byte of each class: bytes of one class are in the same sets */
    uint8_t class_of[256];
    uint32_t n_classes;
    size_t max_nodes; /* more fail */
    int64_t work;     /* left before a failure */
    int32_t depth, inside;
} trm_expressions;

trm_status trm_expressions_init(trm_expressions *x);
void trm_expressions_fini(trm_expressions *x);
static inline const trm_expression_node *trm_expression_get(const trm_expressions *x, trm_expression e)
{
    return &x->nodes[e];
}
/* Records a failure for want of room or time. Returns NOTHING. */
trm_expression trm_expression_fail(trm_expressions *x, const char *what);

/* The number of a node; that of an equal one if there is one. A list of the node at the pool's end is then dropped. */
trm_expression trm_expression_store(trm_expressions *x, const trm_expression_node *node);
/* These simplify: what they return may be of another kind. */
trm_expression trm_expression_bytes(trm_expressions *x, const trm_byte_set *set);
trm_expression trm_expression_byte_range(trm_expressions *x, uint8_t first, uint8_t last);
trm_expression trm_expression_sequence(trm_expressions *x, trm_expression a, trm_expression b);
trm_expression trm_expression_either(trm_expressions *x, const trm_expression *list, size_t count);
trm_expression trm_expression_both(trm_expressions *x, const trm_expression *list, size_t count);
trm_expression trm_expression_not(trm_expressions *x, trm_expression a);
trm_expression trm_expression_repeat(trm_expressions *x, trm_expression a, int32_t min, int32_t max);
trm_expression trm_expression_call(trm_expressions *x, uint32_t rule);
trm_expression trm_expression_multiple(trm_expressions *x, trm_multiple multiple);
trm_expression trm_expression_unique(trm_expressions *x, trm_unique unique);
/* One code point of first to last in UTF-8; no surrogates. */
trm_expression trm_expression_codepoints(trm_expressions *x, int32_t first, int32_t last);

/* Finds the classes of bytes, when all sets are there. */
void trm_expression_find_classes(trm_expressions *x);
/* Divides the classes of bytes into groups that lead to the same derivative; their number. */
uint32_t trm_expression_groups(trm_expressions *x, trm_expression e, uint8_t group_of[256]);
/* What may follow the byte; NOTHING if no text can be completed then. */
trm_expression trm_expression_derive(trm_expressions *x, trm_expression e, uint8_t byte);
/* Whether any text matches, if all rules do. Searches through derivatives where there are intersections. */
bool trm_expression_is_alive(trm_expressions *x, trm_expression e);
/* Fails if the items of a UNIQUE cannot differ as often as they must. */
void trm_expression_check_unique(trm_expressions *x, trm_expression e);
bool trm_expression_matches(trm_expressions *x, trm_expression e, const char *text, size_t size);
/* Appends pairs of a rule that may be called first and what follows it; a rule comes once. */
void trm_expression_calls(trm_expressions *x, trm_expression e, trm_ids *pairs);
/* An expression that allows the same next TRM_GRAMMAR_NEAR bytes, with counters as small as possible. */
trm_expression trm_expression_alike(trm_expressions *x, trm_expression e);
/* Whether any text of characters that stand for themselves in a JSON string may follow. False if that is not plain. */
bool trm_expression_is_free(trm_expressions *x, trm_expression e);
/* Copies an expression of another table, whose sets and multiples this one has too; memo [from->n_nodes] holds what was
 * copied before, + 1. */
trm_expression trm_expression_copy(trm_expressions *x, const trm_expressions *from, trm_expression e, uint32_t *memo);

#endif
