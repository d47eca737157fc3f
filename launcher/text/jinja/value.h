/*
 * Values of templates, with Python's semantics as Jinja2 uses them. They are in the arena of one rendering (or, for
 * constants, of the template) and immutable, except for namespaces, loops and similar.
 */
#ifndef TRM_LAUNCHER_TEXT_JINJA_VALUE_H
#define TRM_LAUNCHER_TEXT_JINJA_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <trireme/status.h>

#include "base/arena.h"
#include "launcher/text/strings/buffer.h"

typedef enum trm_jinja_kind {
    TRM_JINJA_UNDEFINED, /* text: what is undefined, for messages */
    TRM_JINJA_NONE,
    TRM_JINJA_BOOL,
    TRM_JINJA_INTEGER,
    TRM_JINJA_FLOAT,
    TRM_JINJA_STRING,
    TRM_JINJA_LIST,
    TRM_JINJA_TUPLE,
    TRM_JINJA_RANGE,    /* a list that prints differently */
    TRM_JINJA_VIEW,     /* keys(), values(), items() of a mapping */
    TRM_JINJA_ITERATOR, /* results of generators: true, without a length, empty once iterated */
    TRM_JINJA_MAP,
    TRM_JINJA_NAMESPACE,
    TRM_JINJA_MACRO,
    TRM_JINJA_FUNCTION, /* a global function */
    TRM_JINJA_METHOD,   /* of a value */
    TRM_JINJA_LOOP,
    TRM_JINJA_CYCLER,
    TRM_JINJA_JOINER
} trm_jinja_kind;

typedef struct trm_jinja_value trm_jinja_value;
typedef struct trm_jinja_list trm_jinja_list;
typedef struct trm_jinja_map trm_jinja_map;

struct trm_jinja_value {
    trm_jinja_kind kind;
    union {
        bool truth;
        int64_t integer;
        double number;
        struct {
            const char *text; /* UTF-8, not NUL-terminated */
            size_t size;
        };
        trm_jinja_list *list;
        trm_jinja_map *map;
        void *object; /* of the remaining kinds: trm_jinja_macro, _bound_method, _loop, _cycle */
    };
};

struct trm_jinja_list {
    trm_jinja_value *items; /* [count] */
    size_t count, capacity;
    const char *view; /* VIEW: "dict_keys" and so on */
};

typedef struct trm_jinja_entry {
    trm_jinja_value key, value;
} trm_jinja_entry;

struct trm_jinja_map {
    trm_jinja_entry *entries; /* [count], in order of insertion */
    size_t count, capacity;
};

#define TRM_JINJA_DEPTH 1000 /* of nested evaluations, calls and values together */

/* One rendering: its memory, its limits, and its position, for errors. */
typedef struct trm_jinja_run {
    trm_arena arena;
    const char *name; /* of the template */
    int32_t line;
    int32_t depth;
    int64_t steps; /* left */
    int64_t now;   /* seconds since 1970 for strftime_now */
    trm_bytes *out;
    int32_t flow; /* trm_jinja_flow of eval.c */
} trm_jinja_run;

/* Records "<template> line N: ..." and returns INVALID_ARGUMENT. */
trm_status trm_jinja_fail(const trm_jinja_run *run, const char *format, ...) TRM_PRINTF(2, 3);
/* Takes steps from the remaining ones; fails if there are none. */
trm_status trm_jinja_charge(trm_jinja_run *run, size_t steps);
/* Zeroed memory of the rendering; fails at its limit. */
trm_status trm_jinja_alloc(trm_jinja_run *run, size_t count, size_t size, void **memory);

static inline trm_jinja_value trm_jinja_none(void)
{
    return (trm_jinja_value){.kind = TRM_JINJA_NONE};
}
static inline trm_jinja_value trm_jinja_bool(bool truth)
{
    return (trm_jinja_value){.kind = TRM_JINJA_BOOL, .truth = truth};
}
static inline trm_jinja_value trm_jinja_integer(int64_t integer)
{
    return (trm_jinja_value){.kind = TRM_JINJA_INTEGER, .integer = integer};
}
static inline trm_jinja_value trm_jinja_float(double number)
{
    return (trm_jinja_value){.kind = TRM_JINJA_FLOAT, .number = number};
}
/* Does not copy. */
static inline trm_jinja_value trm_jinja_text(const char *text, size_t size)
{
    return (trm_jinja_value){.kind = TRM_JINJA_STRING, .text = text, .size = size};
}
trm_jinja_value trm_jinja_literal(const char *text);
static inline bool trm_jinja_is_sequence(const trm_jinja_value *value)
{
    return value->kind >= TRM_JINJA_LIST && value->kind <= TRM_JINJA_ITERATOR;
}
static inline bool trm_jinja_is_integer(const trm_jinja_value *value)
{
    return value->kind == TRM_JINJA_INTEGER || value->kind == TRM_JINJA_BOOL;
}
static inline bool trm_jinja_is_number(const trm_jinja_value *value)
{
    return trm_jinja_is_integer(value) || value->kind == TRM_JINJA_FLOAT;
}
/* Of an integer or truth value. */
static inline int64_t trm_jinja_to_integer(const trm_jinja_value *value)
{
    return value->kind == TRM_JINJA_BOOL ? value->truth : value->integer;
}
/* Of any number. */
static inline double trm_jinja_to_double(const trm_jinja_value *value)
{
    return value->kind == TRM_JINJA_FLOAT ? value->number : (double)trm_jinja_to_integer(value);
}
/* Whether this is the string `text`. */
bool trm_jinja_is_text(const trm_jinja_value *value, const char *text);

/* An undefined value; the formatted message says what is undefined. */
trm_status trm_jinja_undefined(trm_jinja_run *run, trm_jinja_value *value, const char *format, ...) TRM_PRINTF(3, 4);
trm_status trm_jinja_copy_text(trm_jinja_run *run, const char *text, size_t size, trm_jinja_value *value);
trm_status trm_jinja_new_list(trm_jinja_run *run, trm_jinja_kind kind, size_t capacity, trm_jinja_value *value);
trm_status trm_jinja_list_append(trm_jinja_run *run, trm_jinja_list *list, const trm_jinja_value *item);
trm_status trm_jinja_new_map(trm_jinja_run *run, trm_jinja_kind kind, trm_jinja_value *value);
/* Adds or replaces. Fails for keys that Python cannot hash. */
trm_status trm_jinja_map_set(trm_jinja_run *run, trm_jinja_map *map, const trm_jinja_value *key,
                             const trm_jinja_value *value);
/* NULL if absent. */
const trm_jinja_value *trm_jinja_map_find(trm_jinja_run *run, const trm_jinja_map *map, const trm_jinja_value *key);
const trm_jinja_value *trm_jinja_map_get(const trm_jinja_map *map, const char *key);

bool trm_jinja_truth(const trm_jinja_value *value);
bool trm_jinja_equal(trm_jinja_run *run, const trm_jinja_value *a, const trm_jinja_value *b);
/* Below 0, 0, above 0, as Python orders values; fails where Python does. `operator` is for the message. */
trm_status trm_jinja_compare(trm_jinja_run *run, const trm_jinja_value *a, const trm_jinja_value *b,
                             const char *operator_text, int *order);
/* Python's name of the type, for messages: "str", "dict", "NoneType". */
const char *trm_jinja_type_name(const trm_jinja_value *value);
/* Characters of a string, items of a sequence or mapping; fails for others. */
trm_status trm_jinja_length(trm_jinja_run *run, const trm_jinja_value *value, int64_t *length);
/* The result of iterating, as a list that must not be changed: items, keys, characters. */
trm_status trm_jinja_items(trm_jinja_run *run, const trm_jinja_value *value, const trm_jinja_list **items);

/* str() and repr() of Python, appended. */
trm_status trm_jinja_write(trm_jinja_run *run, const trm_jinja_value *value, trm_bytes *out);
trm_status trm_jinja_write_repr(trm_jinja_run *run, const trm_jinja_value *value, trm_bytes *out);
/* str(): the value itself if it is a string. */
trm_status trm_jinja_string(trm_jinja_run *run, const trm_jinja_value *value, trm_jinja_value *string);
/* Moves the text of a buffer into the rendering's memory and ends the buffer, also on failure. */
trm_status trm_jinja_take(trm_jinja_run *run, trm_bytes *bytes, trm_status so_far, trm_jinja_value *string);
/* The shortest digits that read back as this number, as in Python's repr; at most 32 bytes. */
void trm_jinja_format_float(double number, char text[40]);

/* Parses JSON; errors begin with `name`. Integers beyond 64 bits become floats. */
trm_status trm_jinja_read_json(trm_jinja_run *run, const char *name, const char *text, size_t size,
                               trm_jinja_value *value);

/* Options of Python's json.dumps. */
typedef struct trm_jinja_json_style {
    bool ascii, sort_keys;
    bool lines;             /* with an indent */
    trm_jinja_value indent; /* STRING, one level of it */
    trm_jinja_value comma;  /* STRING */
    trm_jinja_value colon;  /* STRING */
} trm_jinja_json_style;
trm_status trm_jinja_write_json(trm_jinja_run *run, const trm_jinja_value *value, const trm_jinja_json_style *style,
                                trm_bytes *out);

#endif
