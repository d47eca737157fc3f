/* Statements: output, conditions, loops, assignments, macros. */
#include "launcher/text/jinja/eval.h"

#include <string.h>

#include "base/error.h"
#include "launcher/text/jinja/eval_impl.h"

#define MAX_STEPS      20000000
#define LARGEST_OUTPUT ((size_t)64 << 20)

typedef enum flow { FLOW_ON, FLOW_BREAK, FLOW_CONTINUE } flow;

static trm_status execute(trm_jinja_run *run, trm_jinja_scope *scope, const trm_jinja_node *list);

trm_status trm_jinja_new_scope(trm_jinja_run *run, trm_jinja_scope *parent, trm_jinja_scope **scope)
{
    void *memory;
    TRM_TRY(trm_jinja_alloc(run, 1, sizeof(**scope), &memory));
    *scope = memory;
    (*scope)->parent = parent;
    return TRM_OK;
}

trm_status trm_jinja_scope_set(trm_jinja_run *run, trm_jinja_scope *scope, const trm_jinja_value *name,
                               const trm_jinja_value *value)
{
    for (trm_jinja_variable *v = scope->variables; v != NULL; v = v->next) {
        if (v->name.size == name->size && memcmp(v->name.text, name->text, name->size) == 0) {
            v->value = *value;
            return TRM_OK;
        }
    }
    void *memory;
    TRM_TRY(trm_jinja_alloc(run, 1, sizeof(trm_jinja_variable), &memory));
    trm_jinja_variable *variable = memory;
    *variable = (trm_jinja_variable){.name = *name, .value = *value, .next = scope->variables};
    scope->variables = variable;
    return TRM_OK;
}

static trm_status set_literal(trm_jinja_run *run, trm_jinja_scope *scope, const char *name,
                              const trm_jinja_value *value)
{
    trm_jinja_value text = trm_jinja_literal(name);
    return trm_jinja_scope_set(run, scope, &text, value);
}

static const trm_jinja_value *find_variable(const trm_jinja_scope *scope, const trm_jinja_value *name)
{
    for (; scope != NULL; scope = scope->parent) {
        for (const trm_jinja_variable *v = scope->variables; v != NULL; v = v->next) {
            if (v->name.size == name->size && memcmp(v->name.text, name->text, name->size) == 0) {
                return &v->value;
            }
        }
    }
    return NULL;
}

trm_status trm_jinja_lookup(trm_jinja_run *run, const trm_jinja_scope *scope, const trm_jinja_value *name,
                            trm_jinja_value *value)
{
    const trm_jinja_value *found = find_variable(scope, name);
    if (found != NULL) {
        *value = *found;
        return TRM_OK;
    }
    const trm_jinja_builtin *function = trm_jinja_find_function(name);
    if (function != NULL) {
        return trm_jinja_bind_method(run, NULL, function, value);
    }
    return trm_jinja_undefined(run, value, "'%.*s' is undefined", (int)name->size, name->text);
}

static trm_status assign(trm_jinja_run *run, trm_jinja_scope *scope, const trm_jinja_node *target,
                         const trm_jinja_value *value)
{
    if (target->kind == TRM_JINJA_NAME) {
        return trm_jinja_scope_set(run, scope, &target->value, value);
    }
    if (target->kind == TRM_JINJA_NSREF) {
        const trm_jinja_value *found = find_variable(scope, &target->value);
        if (found == NULL || found->kind != TRM_JINJA_NAMESPACE) {
            return trm_jinja_fail(run, "cannot assign attribute on non-namespace object '%.*s'",
                                  (int)target->value.size, target->value.text);
        }
        return trm_jinja_map_set(run, found->map, &target->a->value, value);
    }
    const trm_jinja_list *items;
    TRM_TRY(trm_jinja_items(run, value, &items));
    size_t i = 0;
    for (const trm_jinja_node *part = target->body; part != NULL; part = part->next, i++) {
        if (i >= items->count) {
            return trm_jinja_fail(run, "not enough values to unpack (found %zu)", items->count);
        }
        TRM_TRY(assign(run, scope, part, &items->items[i]));
    }
    return i == items->count ? TRM_OK : trm_jinja_fail(run, "too many values to unpack (expected %zu)", i);
}

/* Runs a body in its own scope and returns its output as a string. */
static trm_status capture(trm_jinja_run *run, trm_jinja_scope *parent, const trm_jinja_node *body,
                          trm_jinja_value *text)
{
    trm_jinja_scope *scope;
    TRM_TRY(trm_jinja_new_scope(run, parent, &scope));
    return trm_jinja_capture_in(run, scope, body, text);
}

trm_status trm_jinja_capture_in(trm_jinja_run *run, trm_jinja_scope *scope, const trm_jinja_node *body,
                                trm_jinja_value *text)
{
    trm_bytes out = {0}, *before = run->out;
    run->out = &out;
    trm_status status = trm_bytes_reserve(&out, 1);
    if (status == TRM_OK) {
        status = execute(run, scope, body);
    }
    run->out = before;
    return trm_jinja_take(run, &out, status, text);
}

static trm_status check_output(const trm_jinja_run *run)
{
    if (run->out->size > LARGEST_OUTPUT) {
        return trm_jinja_fail(run, "the template prints more than %zu MiB", LARGEST_OUTPUT >> 20);
    }
    return TRM_OK;
}

/* Lists the items that pass the loop's test. */
static trm_status select_items(trm_jinja_run *run, trm_jinja_scope *scope, const trm_jinja_node *node,
                               const trm_jinja_list *items, trm_jinja_list *selected)
{
    for (size_t i = 0; i < items->count; i++) {
        trm_jinja_scope *inner;
        trm_jinja_value holds;
        TRM_TRY(trm_jinja_new_scope(run, scope, &inner));
        TRM_TRY(assign(run, inner, node->a, &items->items[i]));
        TRM_TRY(trm_jinja_eval(run, inner, node->c, &holds));
        if (trm_jinja_truth(&holds)) {
            TRM_TRY(trm_jinja_list_append(run, selected, &items->items[i]));
        }
    }
    return TRM_OK;
}

trm_status trm_jinja_run_loop(trm_jinja_run *run, trm_jinja_scope *scope, const trm_jinja_node *node,
                              const trm_jinja_value *iterable, int32_t depth)
{
    const trm_jinja_list *items;
    trm_jinja_value selected;
    TRM_TRY(trm_jinja_items(run, iterable, &items));
    if (node->c != NULL) {
        TRM_TRY(trm_jinja_new_list(run, TRM_JINJA_LIST, items->count, &selected));
        TRM_TRY(select_items(run, scope, node, items, selected.list));
        items = selected.list;
    }
    void *memory;
    TRM_TRY(trm_jinja_alloc(run, 1, sizeof(trm_jinja_loop), &memory));
    trm_jinja_loop *loop = memory;
    *loop = (trm_jinja_loop){.items = items, .depth = depth, .node = node->flag ? node : NULL, .scope = scope};
    trm_jinja_value loop_value = {.kind = TRM_JINJA_LOOP, .object = loop};
    bool completed = false; /* some pass ran to its end: Jinja2 runs the else branch also after an early break */
    for (size_t i = 0; i < items->count; i++) {
        trm_jinja_scope *inner;
        loop->index = i;
        TRM_TRY(trm_jinja_new_scope(run, scope, &inner));
        TRM_TRY(set_literal(run, inner, "loop", &loop_value));
        TRM_TRY(assign(run, inner, node->a, &items->items[i]));
        TRM_TRY(execute(run, inner, node->body));
        completed |= run->flow == FLOW_ON;
        bool stop = run->flow == FLOW_BREAK;
        run->flow = FLOW_ON;
        if (stop) {
            break;
        }
    }
    if (!completed && node->other != NULL) {
        trm_jinja_scope *inner;
        TRM_TRY(trm_jinja_new_scope(run, scope, &inner));
        TRM_TRY(execute(run, inner, node->other));
    }
    return TRM_OK;
}

static trm_status execute_if(trm_jinja_run *run, trm_jinja_scope *scope, const trm_jinja_node *node)
{
    for (;;) {
        trm_jinja_value holds;
        TRM_TRY(trm_jinja_eval(run, scope, node->a, &holds));
        if (trm_jinja_truth(&holds)) {
            return execute(run, scope, node->body);
        }
        if (node->other == NULL || node->other->kind != TRM_JINJA_IF || node->other->next != NULL) {
            return execute(run, scope, node->other);
        }
        node = node->other;
        run->line = node->line;
        TRM_TRY(trm_jinja_charge(run, 1));
    }
}

static trm_status make_macro(trm_jinja_run *run, trm_jinja_scope *scope, const trm_jinja_node *node,
                             trm_jinja_value *value)
{
    void *memory;
    TRM_TRY(trm_jinja_alloc(run, 1, sizeof(trm_jinja_macro), &memory));
    *(trm_jinja_macro *)memory = (trm_jinja_macro){.node = node, .scope = scope};
    *value = (trm_jinja_value){.kind = TRM_JINJA_MACRO, .object = memory};
    return TRM_OK;
}

static trm_status execute_call_block(trm_jinja_run *run, trm_jinja_scope *scope, const trm_jinja_node *node)
{
    trm_jinja_value caller, result;
    TRM_TRY(make_macro(run, scope, node, &caller));
    TRM_TRY(trm_jinja_eval_call(run, scope, node->a, &caller, &result));
    return trm_jinja_write(run, &result, run->out);
}

static trm_status execute_with(trm_jinja_run *run, trm_jinja_scope *scope, const trm_jinja_node *node)
{
    trm_jinja_scope *inner;
    TRM_TRY(trm_jinja_new_scope(run, scope, &inner));
    for (const trm_jinja_node *set = node->other; set != NULL; set = set->next) {
        trm_jinja_value value;
        TRM_TRY(trm_jinja_eval(run, scope, set->b, &value));
        TRM_TRY(assign(run, inner, set->a, &value));
    }
    return execute(run, inner, node->body);
}

static trm_status execute_set(trm_jinja_run *run, trm_jinja_scope *scope, const trm_jinja_node *node)
{
    trm_jinja_value value;
    if (node->kind == TRM_JINJA_SET) {
        TRM_TRY(trm_jinja_eval(run, scope, node->b, &value));
    } else {
        TRM_TRY(capture(run, scope, node->body, &value));
        TRM_TRY(trm_jinja_eval_filters(run, scope, node->b, &value));
    }
    return assign(run, scope, node->a, &value);
}

static trm_status execute_one(trm_jinja_run *run, trm_jinja_scope *scope, const trm_jinja_node *node)
{
    trm_jinja_value value;
    trm_jinja_scope *inner;
    switch (node->kind) {
    case TRM_JINJA_DATA:
        TRM_TRY(trm_bytes_append(run->out, node->value.text, node->value.size));
        return check_output(run);
    case TRM_JINJA_OUTPUT:
        TRM_TRY(trm_jinja_eval(run, scope, node->a, &value));
        TRM_TRY(trm_jinja_write(run, &value, run->out));
        return check_output(run);
    case TRM_JINJA_IF:
        return execute_if(run, scope, node);
    case TRM_JINJA_FOR:
        TRM_TRY(trm_jinja_eval(run, scope, node->b, &value));
        return trm_jinja_run_loop(run, scope, node, &value, 0);
    case TRM_JINJA_SET:
    case TRM_JINJA_SET_BLOCK:
        return execute_set(run, scope, node);
    case TRM_JINJA_MACRO_DEF:
        TRM_TRY(make_macro(run, scope, node, &value));
        return trm_jinja_scope_set(run, scope, &node->value, &value);
    case TRM_JINJA_CALL_BLOCK:
        return execute_call_block(run, scope, node);
    case TRM_JINJA_FILTER_BLOCK:
        TRM_TRY(capture(run, scope, node->body, &value));
        TRM_TRY(trm_jinja_eval_filters(run, scope, node->b, &value));
        return trm_jinja_write(run, &value, run->out);
    case TRM_JINJA_WITH:
        return execute_with(run, scope, node);
    case TRM_JINJA_SCOPE:
        TRM_TRY(trm_jinja_new_scope(run, scope, &inner));
        return execute(run, inner, node->body);
    default:
        run->flow = node->kind == TRM_JINJA_BREAK ? FLOW_BREAK : FLOW_CONTINUE;
        return TRM_OK;
    }
}

static trm_status execute(trm_jinja_run *run, trm_jinja_scope *scope, const trm_jinja_node *list)
{
    if (run->depth >= TRM_JINJA_DEPTH) {
        return trm_jinja_fail(run, "calls are nested too deep");
    }
    run->depth++;
    trm_status status = TRM_OK;
    for (const trm_jinja_node *node = list; node != NULL && status == TRM_OK && run->flow == FLOW_ON;
         node = node->next) {
        run->line = node->line;
        status = trm_jinja_charge(run, 1);
        if (status == TRM_OK) {
            status = execute_one(run, scope, node);
        }
    }
    run->depth--;
    return status;
}

/* Binds the parameters of a macro; the remaining arguments go to varargs and kwargs. */
static trm_status bind_macro(trm_jinja_run *run, const trm_jinja_macro *macro, const trm_jinja_args *args,
                             trm_jinja_scope *scope)
{
    const trm_jinja_node *node = macro->node;
    size_t position = 0, used = 0;
    for (const trm_jinja_node *p = node->other; p != NULL; p = p->next) {
        trm_jinja_value value;
        const trm_jinja_value *given = position < args->count ? &args->items[position] : NULL;
        position++;
        for (size_t i = 0; i < args->n_keywords; i++) {
            if (trm_jinja_equal(run, &args->keywords[i].name, &p->value)) {
                used++;
                if (given != NULL) {
                    return trm_jinja_fail(run, "a macro got two values for its parameter '%.*s'", (int)p->value.size,
                                          p->value.text);
                }
                given = &args->keywords[i].value;
            }
        }
        if (given != NULL) {
            value = *given;
        } else if (p->a != NULL) {
            TRM_TRY(trm_jinja_eval(run, scope, p->a, &value));
        } else {
            TRM_TRY(trm_jinja_undefined(run, &value, "parameter '%.*s' was not provided", (int)p->value.size,
                                        p->value.text));
        }
        TRM_TRY(trm_jinja_scope_set(run, scope, &p->value, &value));
    }
    if (args->count > position && !node->flag) {
        return trm_jinja_fail(run, "a macro takes not more than %zu argument(s)", position);
    }
    if (args->n_keywords > used && !node->flag2) {
        return trm_jinja_fail(run, "a macro takes no keyword argument '%.*s'", (int)args->keywords[0].name.size,
                              args->keywords[0].name.text);
    }
    trm_jinja_value list, map;
    TRM_TRY(trm_jinja_new_list(run, TRM_JINJA_TUPLE, 0, &list));
    for (size_t i = position; i < args->count; i++) {
        TRM_TRY(trm_jinja_list_append(run, list.list, &args->items[i]));
    }
    TRM_TRY(trm_jinja_new_map(run, TRM_JINJA_MAP, &map));
    for (size_t i = 0; i < args->n_keywords; i++) {
        bool taken = false;
        for (const trm_jinja_node *p = node->other; p != NULL; p = p->next) {
            taken |= trm_jinja_equal(run, &args->keywords[i].name, &p->value);
        }
        if (!taken) {
            TRM_TRY(trm_jinja_map_set(run, map.map, &args->keywords[i].name, &args->keywords[i].value));
        }
    }
    TRM_TRY(node->flag ? set_literal(run, scope, "varargs", &list) : TRM_OK);
    return node->flag2 ? set_literal(run, scope, "kwargs", &map) : TRM_OK;
}

trm_status trm_jinja_call_macro(trm_jinja_run *run, const trm_jinja_macro *macro, const trm_jinja_args *args,
                                const trm_jinja_value *caller, trm_jinja_value *result)
{
    trm_jinja_scope *scope;
    TRM_TRY(trm_jinja_new_scope(run, macro->scope, &scope));
    if (macro->node->kind == TRM_JINJA_MACRO_DEF) {
        trm_jinja_value none;
        TRM_TRY(trm_jinja_undefined(run, &none, "'caller' is undefined"));
        TRM_TRY(set_literal(run, scope, "caller", caller == NULL ? &none : caller));
    }
    TRM_TRY(bind_macro(run, macro, args, scope));
    int32_t line = run->line;
    TRM_TRY(trm_jinja_capture_in(run, scope, macro->node->body, result));
    run->line = line;
    return TRM_OK;
}

void trm_jinja_run_init(trm_jinja_run *run, const char *name)
{
    *run = (trm_jinja_run){.name = name, .line = 1, .steps = MAX_STEPS};
}

void trm_jinja_run_fini(trm_jinja_run *run)
{
    trm_arena_fini(&run->arena);
}

trm_status trm_jinja_render(trm_jinja_run *run, const trm_jinja_node *statements, const trm_jinja_map *globals,
                            trm_bytes *out)
{
    trm_jinja_scope *scope, *top;
    TRM_TRY(trm_jinja_new_scope(run, NULL, &scope));
    for (size_t i = 0; i < globals->count; i++) {
        TRM_TRY(trm_jinja_scope_set(run, scope, &globals->entries[i].key, &globals->entries[i].value));
    }
    TRM_TRY(trm_jinja_new_scope(run, scope, &top));
    run->out = out;
    return execute(run, top, statements);
}
