/*
 * Filters, tests, methods and global functions: named C functions whose parameters are bound as in Python.
 */
#ifndef TRM_LAUNCHER_TEXT_JINJA_BUILTIN_H
#define TRM_LAUNCHER_TEXT_JINJA_BUILTIN_H

#include "launcher/text/jinja/value.h"

typedef struct trm_jinja_keyword {
    trm_jinja_value name, value;
} trm_jinja_keyword;

typedef struct trm_jinja_args {
    const trm_jinja_value *items; /* [count] by position */
    size_t count;
    const trm_jinja_keyword *keywords; /* [n_keywords] */
    size_t n_keywords;
} trm_jinja_args;

#define TRM_JINJA_MAX_PARAMETERS 5

typedef struct trm_jinja_call {
    trm_jinja_run *run;
    const trm_jinja_value
        *self; /* the operand of a filter or test, or the owner of the method; NULL for global functions */
    const trm_jinja_args *args;
    const trm_jinja_value *bound[TRM_JINJA_MAX_PARAMETERS]; /* by parameter, NULL if not given */
    int way;                                                /* the builtin's */
    trm_jinja_value *result;
} trm_jinja_call;

typedef struct trm_jinja_builtin {
    const char *name;
    trm_status (*function)(trm_jinja_call *call);
    int required;           /* number of required parameters */
    const char *parameters; /* "old new count"; NULL: takes any arguments, unbound */
    int way;                /* which of several operations the function performs */
} trm_jinja_builtin;

typedef struct trm_jinja_bound_method {
    trm_jinja_value self;
    const trm_jinja_builtin *builtin;
} trm_jinja_bound_method;

/* NULL if there is none. */
const trm_jinja_builtin *trm_jinja_find_filter(const trm_jinja_value *name);
const trm_jinja_builtin *trm_jinja_find_test(const trm_jinja_value *name);
const trm_jinja_builtin *trm_jinja_find_function(const trm_jinja_value *name);
const trm_jinja_builtin *trm_jinja_find_method(const trm_jinja_value *self, const trm_jinja_value *name);
const trm_jinja_builtin *trm_jinja_find_in(const trm_jinja_builtin *table, size_t count, const trm_jinja_value *name);

extern const trm_jinja_builtin trm_jinja_text_filters[];
extern const size_t trm_jinja_n_text_filters;
extern const trm_jinja_builtin trm_jinja_list_filters[];
extern const size_t trm_jinja_n_list_filters;
extern const trm_jinja_builtin trm_jinja_string_methods[];
extern const size_t trm_jinja_n_string_methods;

/* A METHOD of *self, or if NULL a FUNCTION. */
trm_status trm_jinja_bind_method(trm_jinja_run *run, const trm_jinja_value *self, const trm_jinja_builtin *builtin,
                                 trm_jinja_value *value);
/* Binds the arguments and calls. */
trm_status trm_jinja_call_builtin(trm_jinja_run *run, const trm_jinja_builtin *builtin, const trm_jinja_value *self,
                                  const trm_jinja_args *args, trm_jinja_value *result);

/* Bound parameters with a type; if absent, *value stays. */
trm_status trm_jinja_bound_integer(const trm_jinja_call *call, int parameter, int64_t *value);
bool trm_jinja_bound_truth(const trm_jinja_call *call, int parameter, bool otherwise);
/* A string, or str() of the value. */
trm_status trm_jinja_bound_text(const trm_jinja_call *call, int parameter, const char *otherwise,
                                trm_jinja_value *value);

/* A filter and a method; `way` is a trm_jinja_casing. */
trm_status trm_jinja_change_case(trm_jinja_call *call);

/* operators.c */
trm_status trm_jinja_binary(trm_jinja_run *run, int op, const trm_jinja_value *a, const trm_jinja_value *b,
                            trm_jinja_value *result);
/* Evaluates a comparison, from EQUAL to NOT_IN. */
trm_status trm_jinja_test_op(trm_jinja_run *run, int op, const trm_jinja_value *a, const trm_jinja_value *b,
                             bool *holds);
trm_status trm_jinja_negate(trm_jinja_run *run, const trm_jinja_value *a, trm_jinja_value *result);
/* object.name and object[index], looked up as in Jinja2. */
trm_status trm_jinja_attribute(trm_jinja_run *run, const trm_jinja_value *object, const trm_jinja_value *name,
                               trm_jinja_value *result);
trm_status trm_jinja_item(trm_jinja_run *run, const trm_jinja_value *object, const trm_jinja_value *index,
                          trm_jinja_value *result);
/* object[start:stop:step]; each may be NULL. */
trm_status trm_jinja_slice(trm_jinja_run *run, const trm_jinja_value *object, const trm_jinja_value *const parts[3],
                           trm_jinja_value *result);
/* The first position of `part` in text[from..], or SIZE_MAX. */
size_t trm_jinja_find_text(const trm_jinja_value *text, size_t from, const trm_jinja_value *part);

/* format.c */
/* Python's "..." % value. */
trm_status trm_jinja_percent(trm_jinja_run *run, const trm_jinja_value *format, const trm_jinja_value *value,
                             trm_jinja_value *result);
/* "...".format(...) with fields {} {0} {name} and simple format specifications. */
trm_status trm_jinja_brace_format(trm_jinja_call *call);

/* Attributes of loops and cyclers; *found is false if there is none of this name. */
trm_status trm_jinja_loop_attribute(trm_jinja_run *run, const trm_jinja_value *loop, const trm_jinja_value *name,
                                    bool *found, trm_jinja_value *result);
/* state of loops, cyclers and joiners */
typedef struct trm_jinja_loop {
    const trm_jinja_list *items;
    size_t index;
    int32_t depth;
    const void *node; /* of a recursive loop, otherwise NULL */
    void *scope;      /* the enclosing trm_jinja_scope */
    bool changed_before;
    trm_jinja_value changed;
} trm_jinja_loop;
typedef struct trm_jinja_cycle {
    const trm_jinja_list *items; /* of a cycler */
    trm_jinja_value separator;   /* of a joiner */
    size_t index;
} trm_jinja_cycle;

#endif
