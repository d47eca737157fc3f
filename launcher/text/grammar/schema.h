/*
 * The JSON schema reader. A value's schema is a set of parts: schemas that it follows and schemas that it must not
 * follow. A set becomes cases, any one of which the value follows: what allOf, anyOf, oneOf, not, if, $ref and
 * dependencies say is gone there, only statements about single values, items and members are left. A case gives one
 * expression per type; items and members are sets again, and every set is a rule.
 *
 *   schema.c         the reader, references, sets and their rules
 *   schema_types.c   types that schemas allow, schemas that exclude each other
 *   schema_cases.c   from sets to cases
 *   schema_value.c   numbers and strings of a case
 *   schema_array.c, schema_object.c
 *   schema_match.c   whether a given value follows a schema, for enum and const
 *
 * What is allowed may be less than what a schema allows, never more.
 */
#ifndef TRM_LAUNCHER_TEXT_GRAMMAR_SCHEMA_H
#define TRM_LAUNCHER_TEXT_GRAMMAR_SCHEMA_H

#include "base/json.h"
#include "launcher/text/grammar/expression.h"
#include "launcher/text/grammar/json_grammar.h"
#include "launcher/text/grammar/number.h"

#define TRM_SCHEMA_MAX_COUNT 1000000 /* larger lengths and counts are as good as none */

typedef enum schema_type {
    SCHEMA_NULL = 1,
    SCHEMA_TRUE = 2,
    SCHEMA_FALSE = 4,
    SCHEMA_NUMBER = 8,
    SCHEMA_STRING = 16,
    SCHEMA_ARRAY = 32,
    SCHEMA_OBJECT = 64,
    SCHEMA_ALL = 127
} schema_type;

typedef struct schema_part {
    const trm_json *schema;
    uintptr_t negated; /* the value must not follow it; no padding, since parts are keys of a map */
} schema_part;

/* A schema that was read, below the one that led to it: unevaluated members and items are those of its descendants. */
typedef struct schema_scope schema_scope;
struct schema_scope {
    const schema_scope *parent;
};

/* A statement of a case. Lists have the newest first. */
typedef struct schema_item schema_item;
struct schema_item {
    const schema_item *next;
    const schema_scope *scope;
    const trm_json *schema; /* schema, value or array of values */
    const char *text;       /* pattern, format or name */
    bool negated, is_format, is_list;
    int32_t min, max; /* contains */
};

/* An alternative that is still to be taken. */
typedef enum schema_choice_kind {
    SCHEMA_CHOICE_ANY,    /* anyOf */
    SCHEMA_CHOICE_ONE,    /* oneOf */
    SCHEMA_CHOICE_IF,     /* if, then, else */
    SCHEMA_CHOICE_DEPEND, /* a member of dependentRequired, dependentSchemas or dependencies */
    SCHEMA_CHOICE_NOT     /* a schema that the value must not follow */
} schema_choice_kind;

typedef struct schema_choice schema_choice;
struct schema_choice {
    const schema_choice *next;
    const schema_choice *parent; /* the one whose alternative brought it */
    const schema_scope *scope;
    schema_choice_kind kind;
    const trm_json *schema; /* with the keyword; DEPEND: the member */
};

typedef struct schema_case {
    uint32_t types;
    bool whole;  /* numbers are integers */
    bool unique; /* items differ */
    bool has_values, failed;
    const trm_json *values; /* if has_values: an array of them, or with is_const the value */
    bool is_const;
    trm_grammar_bounds bounds;
    int32_t min_length, max_length, min_items, max_items, min_members, max_members; /* max -1: no limit */
    const schema_item *excluded;                                                    /* values */
    const schema_item *multiples;                                                   /* numbers */
    const schema_item *strings;                                                     /* patterns and formats */
    const schema_item *arrays; /* schemas with items, prefixItems */
    const schema_item *contains;
    const schema_item *objects;                   /* schemas with properties, patternProperties, additionalProperties */
    const schema_item *names;                     /* schemas of names */
    const schema_item *required, *absent;         /* names */
    const schema_item *members;                   /* a name and the schema of its value */
    const schema_item *rest_members, *rest_items; /* schemas with unevaluatedProperties, unevaluatedItems */
    const schema_choice *pending;
} schema_case;

typedef struct schema_cases {
    schema_case *items;
    size_t count, capacity;
} schema_cases;

/* A set of parts and its rule. */
typedef struct schema_set {
    const schema_part *parts;
    size_t count;
    int32_t rule;
} schema_set;

typedef struct schema_reader {
    trm_grammar_tree *tree;
    trm_grammar_json json;
    const trm_json *root, *never; /* never: a schema that nothing follows */
    const trm_json *at;           /* what is being read, for errors */
    bool refs_alone;              /* nothing beside a $ref counts, as before 2019 */
    bool has_ids;                 /* schemas within the root have identifiers */
    int64_t n_values;             /* of the document */
    trm_map keys;                 /* of sets */
    schema_set *sets;
    size_t n_sets, capacity;
    trm_expressions matcher; /* expressions for matching texts, without classes */
    trm_map patterns;        /* text of a pattern to its expression */
    int64_t work;
    int32_t depth;
} schema_reader;

/* ---- schema.c ---- */

/* The member, also if it is null; NULL if absent. */
const trm_json *trm_schema_member(const trm_json *object, const char *key);
bool trm_schema_is_null(const trm_json *value);
/* Record a failure at `at` (NULL: at what is being read); return NULL. */
trm_grammar_node *trm_schema_fail(schema_reader *reader, trm_status status, const trm_json *at, const char *what);
/* Counts down the work that is left. Returns false, with the error recorded, when it is used up. */
bool trm_schema_work(schema_reader *reader, int64_t work);
/* What a $ref refers to; NULL, with the failure recorded, if nothing. */
const trm_json *trm_schema_follow(schema_reader *reader, const trm_json *schema, const trm_json *ref);
/* A call of the rule of a set, which is read once however often it is used. */
trm_grammar_node *trm_schema_call(schema_reader *reader, const schema_part *parts, size_t count);
/* A value of const or enum. */
trm_grammar_node *trm_schema_literal(schema_reader *reader, const trm_json *value);
const schema_item *trm_schema_add(schema_reader *reader, const schema_item *list, schema_item item);
/* The items in the order of the document, in the arena. */
const schema_item **trm_schema_in_order(schema_reader *reader, const schema_item *list, size_t *count);
/* Whether a schema was read below another one, or is it. */
bool trm_schema_is_below(const schema_scope *scope, const schema_scope *above);
/* "," and space before a node. */
trm_grammar_node *trm_schema_comma_before(schema_reader *reader, trm_grammar_node *node);
/* Whether a pattern matches a string, unanchored. */
bool trm_schema_pattern_matches(schema_reader *reader, const char *pattern, const char *text);
/* The values of a case with values that the whole set allows, as alternatives. */
trm_grammar_node *trm_schema_values(schema_reader *reader, const schema_case *c, const schema_part *parts,
                                    size_t count);

/* ---- schema_types.c ---- */

/* The types of a `type` keyword; *whole says whether its numbers are integers. */
uint32_t trm_schema_read_types(schema_reader *reader, const trm_json *type, bool *whole);
uint32_t trm_schema_type_of(const trm_json *value);
/* The types that a schema may have, by a quick look. */
uint32_t trm_schema_types(schema_reader *reader, const trm_json *schema);
/* Whether no value can follow both schemas, by a quick look; `level`: how many levels the look has gone down. */
bool trm_schema_are_disjoint(schema_reader *reader, const trm_json *a, const trm_json *b, int level);

/* ---- schema_cases.c ---- */

/* The cases of a set; free cases->items. */
void trm_schema_find_cases(schema_reader *reader, const schema_part *parts, size_t count, schema_cases *cases);

/* ---- expressions of a case ---- */

trm_grammar_node *trm_schema_number(schema_reader *reader, const schema_case *c);
/* Equal numbers are equal texts. */
trm_grammar_node *trm_schema_distinct_number(schema_reader *reader, const schema_case *c);
trm_grammar_node *trm_schema_string(schema_reader *reader, const schema_case *c);
/* What may stand between the quotes of a string, with the shortest escapes; NULL if anything may. */
trm_grammar_node *trm_schema_string_text(schema_reader *reader, const schema_case *c);
trm_grammar_node *trm_schema_array(schema_reader *reader, const schema_case *c);
trm_grammar_node *trm_schema_object(schema_reader *reader, const schema_case *c);
/* The names that schemas of names allow, between their quotes; NULL if all. */
trm_grammar_node *trm_schema_names(schema_reader *reader, const schema_part *parts, size_t count);

/* ---- schema_match.c ---- */

/* Whether a value follows a schema; false too if the schema says something that is not known. */
bool trm_schema_matches(schema_reader *reader, const schema_part *part, const trm_json *value);
bool trm_schema_equal(const trm_json *a, const trm_json *b);

#endif
