/*
 * The syntax tree of a template. It is in an arena and immutable once parsed.
 */
#ifndef TRM_LAUNCHER_TEXT_JINJA_PARSER_H
#define TRM_LAUNCHER_TEXT_JINJA_PARSER_H

#include <stddef.h>
#include <stdint.h>

#include <trireme/status.h>

#include "base/arena.h"
#include "launcher/text/jinja/value.h"

/* Members of each kind of node are listed after it; lists are chained by `next`. */
typedef enum trm_jinja_node_kind {
    /* statements */
    TRM_JINJA_DATA,         /* value: text */
    TRM_JINJA_OUTPUT,       /* a: what to print */
    TRM_JINJA_IF,           /* a: test, body, other: the else branch, or one IF for elif */
    TRM_JINJA_FOR,          /* a: target, b: what to iterate, c: test or NULL, body, other: else; flag: recursive */
    TRM_JINJA_SET,          /* a: target, b: value */
    TRM_JINJA_SET_BLOCK,    /* a: target, b: FILTERs on the text or NULL, body */
    TRM_JINJA_MACRO_DEF,    /* value: name, other: PARAMETERs, body; flag: it names varargs, flag2: kwargs */
    TRM_JINJA_CALL_BLOCK,   /* a: CALL, other: PARAMETERs, body */
    TRM_JINJA_FILTER_BLOCK, /* b: FILTERs, body */
    TRM_JINJA_WITH,         /* other: SETs, body */
    TRM_JINJA_SCOPE,        /* body */
    TRM_JINJA_BREAK,
    TRM_JINJA_CONTINUE,
    TRM_JINJA_PARAMETER, /* value: name, a: default or NULL */
    /* expressions */
    TRM_JINJA_CONST,     /* value */
    TRM_JINJA_NAME,      /* value: name */
    TRM_JINJA_NSREF,     /* value: name of a namespace, a: CONST with the attribute; a target only */
    TRM_JINJA_TUPLE_OF,  /* body: items */
    TRM_JINJA_LIST_OF,   /* body: items */
    TRM_JINJA_MAP_OF,    /* body: PAIRs */
    TRM_JINJA_PAIR,      /* a: key, b: value */
    TRM_JINJA_ATTRIBUTE, /* a: object, value: name */
    TRM_JINJA_ITEM,      /* a: object, b: index, or SLICE */
    TRM_JINJA_SLICE,     /* a, b, c: start, stop, step, each may be NULL */
    TRM_JINJA_CALL,      /* a: callee, body: ARGUMENTs */
    TRM_JINJA_ARGUMENT,  /* a: value; op: TRM_JINJA_BY_...; value: the keyword */
    TRM_JINJA_FILTER,    /* a: operand (NULL: the text of the block), value: name, body: ARGUMENTs */
    TRM_JINJA_TEST,      /* a: operand, value: name, body: ARGUMENTs */
    TRM_JINJA_NOT,       /* a */
    TRM_JINJA_AND,       /* a, b */
    TRM_JINJA_OR,        /* a, b */
    TRM_JINJA_CONDITION, /* a: test, b: value, c: other value or NULL */
    TRM_JINJA_COMPARE,   /* a, body: OPERANDs */
    TRM_JINJA_OPERAND,   /* op, a */
    TRM_JINJA_NEGATE,    /* a */
    TRM_JINJA_PLUS,      /* a */
    TRM_JINJA_BINARY,    /* op, a, b */
    TRM_JINJA_CONCAT     /* body: items */
} trm_jinja_node_kind;

typedef enum trm_jinja_op {
    TRM_JINJA_ADD,
    TRM_JINJA_SUBTRACT,
    TRM_JINJA_MULTIPLY,
    TRM_JINJA_DIVIDE,
    TRM_JINJA_FLOOR_DIVIDE,
    TRM_JINJA_MODULO,
    TRM_JINJA_POWER,
    TRM_JINJA_EQUAL,
    TRM_JINJA_NOT_EQUAL,
    TRM_JINJA_LESS,
    TRM_JINJA_LESS_EQUAL,
    TRM_JINJA_GREATER,
    TRM_JINJA_GREATER_EQUAL,
    TRM_JINJA_IN,
    TRM_JINJA_NOT_IN,
    TRM_JINJA_BY_POSITION,
    TRM_JINJA_BY_KEYWORD,
    TRM_JINJA_BY_LIST, /* *list */
    TRM_JINJA_BY_MAP   /* **map */
} trm_jinja_op;

typedef struct trm_jinja_node trm_jinja_node;
struct trm_jinja_node {
    uint8_t kind, op;
    bool flag, flag2;
    int32_t line;
    trm_jinja_value value;
    trm_jinja_node *a, *b, *c, *body, *other, *next;
};

/* Parses valid UTF-8 of at most 4 MiB. INVALID_MODEL with the line for wrong syntax, UNSUPPORTED for tags that chat
 * templates do not need (include, extends and similar). */
trm_status trm_jinja_parse(trm_arena *arena, const char *name, const char *source, size_t size,
                           trm_jinja_node **statements);

#endif
