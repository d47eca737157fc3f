/*
 * Shared by statements and expressions: scopes, macros.
 */
#ifndef TRM_LAUNCHER_TEXT_JINJA_EVAL_IMPL_H
#define TRM_LAUNCHER_TEXT_JINJA_EVAL_IMPL_H

#include "launcher/text/jinja/builtin.h"
#include "launcher/text/jinja/parser.h"

typedef struct trm_jinja_variable trm_jinja_variable;
struct trm_jinja_variable {
    trm_jinja_value name, value;
    trm_jinja_variable *next;
};

/* Variables of a loop pass, of a macro call, or of the template. */
typedef struct trm_jinja_scope trm_jinja_scope;
struct trm_jinja_scope {
    trm_jinja_scope *parent;
    trm_jinja_variable *variables;
};

typedef struct trm_jinja_macro {
    const trm_jinja_node *node; /* MACRO_DEF, or the CALL_BLOCK of caller() */
    trm_jinja_scope *scope;     /* the scope of its definition */
} trm_jinja_macro;

trm_status trm_jinja_new_scope(trm_jinja_run *run, trm_jinja_scope *parent, trm_jinja_scope **scope);
trm_status trm_jinja_scope_set(trm_jinja_run *run, trm_jinja_scope *scope, const trm_jinja_value *name,
                               const trm_jinja_value *value);
/* Looks up a variable, then a global function; otherwise undefined. */
trm_status trm_jinja_lookup(trm_jinja_run *run, const trm_jinja_scope *scope, const trm_jinja_value *name,
                            trm_jinja_value *value);

trm_status trm_jinja_eval(trm_jinja_run *run, trm_jinja_scope *scope, const trm_jinja_node *node,
                          trm_jinja_value *value);
/* Evaluates a CALL with the caller() of a call block, or NULL. */
trm_status trm_jinja_eval_call(trm_jinja_run *run, trm_jinja_scope *scope, const trm_jinja_node *node,
                               const trm_jinja_value *caller, trm_jinja_value *value);
/* Applies filters to *value (none if node is NULL). */
trm_status trm_jinja_eval_filters(trm_jinja_run *run, trm_jinja_scope *scope, const trm_jinja_node *node,
                                  trm_jinja_value *value);

trm_status trm_jinja_capture_in(trm_jinja_run *run, trm_jinja_scope *scope, const trm_jinja_node *body,
                                trm_jinja_value *text);
trm_status trm_jinja_call_macro(trm_jinja_run *run, const trm_jinja_macro *macro, const trm_jinja_args *args,
                                const trm_jinja_value *caller, trm_jinja_value *result);
trm_status trm_jinja_run_loop(trm_jinja_run *run, trm_jinja_scope *scope, const trm_jinja_node *node,
                              const trm_jinja_value *iterable, int32_t depth);

#endif
