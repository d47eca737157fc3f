/* Expressions: names, calls, filters, tests, operators. */
#include <string.h>

#include "base/error.h"
#include "launcher/text/jinja/eval_impl.h"

/* The evaluated arguments of a call; lists are in the rendering's memory. */
static trm_status eval_arguments(trm_jinja_run *run, trm_jinja_scope *scope, const trm_jinja_node *list,
                                 trm_jinja_args *args)
{
    trm_jinja_value items, keywords, value;
    *args = (trm_jinja_args){0};
    if (list == NULL) {
        return TRM_OK;
    }
    TRM_TRY(trm_jinja_new_list(run, TRM_JINJA_LIST, 0, &items));
    TRM_TRY(trm_jinja_new_map(run, TRM_JINJA_MAP, &keywords));
    for (const trm_jinja_node *node = list; node != NULL; node = node->next) {
        TRM_TRY(trm_jinja_eval(run, scope, node->a, &value));
        const trm_jinja_list *more;
        switch (node->op) {
        case TRM_JINJA_BY_KEYWORD:
            TRM_TRY(trm_jinja_map_set(run, keywords.map, &node->value, &value));
            break;
        case TRM_JINJA_BY_LIST:
            TRM_TRY(trm_jinja_items(run, &value, &more));
            for (size_t i = 0; i < more->count; i++) {
                TRM_TRY(trm_jinja_list_append(run, items.list, &more->items[i]));
            }
            break;
        case TRM_JINJA_BY_MAP:
            if (value.kind != TRM_JINJA_MAP) {
                return trm_jinja_fail(run, "argument after ** must be a mapping, not %s", trm_jinja_type_name(&value));
            }
            for (size_t i = 0; i < value.map->count; i++) {
                if (value.map->entries[i].key.kind != TRM_JINJA_STRING) {
                    return trm_jinja_fail(run, "keywords must be strings");
                }
                TRM_TRY(trm_jinja_map_set(run, keywords.map, &value.map->entries[i].key, &value.map->entries[i].value));
            }
            break;
        default:
            TRM_TRY(trm_jinja_list_append(run, items.list, &value));
        }
    }
    void *copy;
    TRM_TRY(trm_jinja_alloc(run, keywords.map->count, sizeof(trm_jinja_keyword), &copy));
    for (size_t i = 0; i < keywords.map->count; i++) {
        ((trm_jinja_keyword *)copy)[i] =
            (trm_jinja_keyword){keywords.map->entries[i].key, keywords.map->entries[i].value};
    }
    *args = (trm_jinja_args){items.list->items, items.list->count, copy, keywords.map->count};
    return TRM_OK;
}

static trm_status call_loop(trm_jinja_run *run, const trm_jinja_loop *loop, const trm_jinja_args *args,
                            trm_jinja_value *value)
{
    if (loop->node == NULL || args->count != 1) {
        return trm_jinja_fail(run, "loop() works in recursive loops and takes what to iterate");
    }
    trm_bytes out = {0}, *before = run->out;
    run->out = &out;
    trm_status status = trm_bytes_reserve(&out, 1);
    if (status == TRM_OK && run->depth >= TRM_JINJA_DEPTH) {
        status = trm_jinja_fail(run, "calls are nested too deep");
    }
    if (status == TRM_OK) {
        run->depth++;
        status = trm_jinja_run_loop(run, loop->scope, loop->node, &args->items[0], loop->depth + 1);
        run->depth--;
    }
    run->out = before;
    return trm_jinja_take(run, &out, status, value);
}

static trm_status call_value(trm_jinja_run *run, const trm_jinja_value *callee, const trm_jinja_args *args,
                             const trm_jinja_value *caller, trm_jinja_value *value)
{
    const trm_jinja_bound_method *method;
    trm_jinja_cycle *joiner;
    switch (callee->kind) {
    case TRM_JINJA_MACRO:
        return trm_jinja_call_macro(run, callee->object, args, caller, value);
    case TRM_JINJA_FUNCTION:
    case TRM_JINJA_METHOD:
        method = callee->object;
        return trm_jinja_call_builtin(run, method->builtin, &method->self, args, value);
    case TRM_JINJA_LOOP:
        return call_loop(run, callee->object, args, value);
    case TRM_JINJA_JOINER:
        joiner = callee->object;
        *value = joiner->index++ == 0 ? trm_jinja_text("", 0) : joiner->separator;
        return TRM_OK;
    case TRM_JINJA_UNDEFINED:
        return trm_jinja_fail(run, "%.*s", (int)callee->size, callee->text);
    default:
        return trm_jinja_fail(run, "'%s' object is not callable", trm_jinja_type_name(callee));
    }
}

trm_status trm_jinja_eval_call(trm_jinja_run *run, trm_jinja_scope *scope, const trm_jinja_node *node,
                               const trm_jinja_value *caller, trm_jinja_value *value)
{
    trm_jinja_value callee;
    trm_jinja_args args;
    TRM_TRY(trm_jinja_eval(run, scope, node->a, &callee));
    TRM_TRY(eval_arguments(run, scope, node->body, &args));
    run->line = node->line;
    return call_value(run, &callee, &args, caller, value);
}

/* Applies a filter or test to *value. */
static trm_status apply(trm_jinja_run *run, trm_jinja_scope *scope, const trm_jinja_node *node,
                        const trm_jinja_value *operand, trm_jinja_value *value)
{
    bool test = node->kind == TRM_JINJA_TEST;
    const trm_jinja_builtin *builtin = test ? trm_jinja_find_test(&node->value) : trm_jinja_find_filter(&node->value);
    if (builtin == NULL) {
        return trm_jinja_fail(run, "no %s named '%.*s'", test ? "test" : "filter", (int)node->value.size,
                              node->value.text);
    }
    trm_jinja_args args;
    TRM_TRY(eval_arguments(run, scope, node->body, &args));
    run->line = node->line;
    return trm_jinja_call_builtin(run, builtin, operand, &args, value);
}

trm_status trm_jinja_eval_filters(trm_jinja_run *run, trm_jinja_scope *scope, const trm_jinja_node *node,
                                  trm_jinja_value *value)
{
    if (node == NULL) {
        return TRM_OK;
    }
    if (run->depth >= TRM_JINJA_DEPTH) {
        return trm_jinja_fail(run, "too many filters in a row");
    }
    run->depth++;
    trm_status status = trm_jinja_eval_filters(run, scope, node->a, value);
    run->depth--;
    TRM_TRY(status);
    trm_jinja_value operand = *value;
    return apply(run, scope, node, &operand, value);
}

static trm_status eval_items(trm_jinja_run *run, trm_jinja_scope *scope, const trm_jinja_node *node,
                             trm_jinja_value *value)
{
    trm_jinja_value item, other;
    if (node->kind == TRM_JINJA_MAP_OF) {
        TRM_TRY(trm_jinja_new_map(run, TRM_JINJA_MAP, value));
        for (const trm_jinja_node *pair = node->body; pair != NULL; pair = pair->next) {
            TRM_TRY(trm_jinja_eval(run, scope, pair->a, &item));
            TRM_TRY(trm_jinja_eval(run, scope, pair->b, &other));
            TRM_TRY(trm_jinja_map_set(run, value->map, &item, &other));
        }
        return TRM_OK;
    }
    TRM_TRY(trm_jinja_new_list(run, node->kind == TRM_JINJA_LIST_OF ? TRM_JINJA_LIST : TRM_JINJA_TUPLE, 0, value));
    for (const trm_jinja_node *part = node->body; part != NULL; part = part->next) {
        TRM_TRY(trm_jinja_eval(run, scope, part, &item));
        TRM_TRY(trm_jinja_list_append(run, value->list, &item));
    }
    return TRM_OK;
}

static trm_status eval_item(trm_jinja_run *run, trm_jinja_scope *scope, const trm_jinja_node *node,
                            trm_jinja_value *value)
{
    trm_jinja_value object, index;
    TRM_TRY(trm_jinja_eval(run, scope, node->a, &object));
    if (node->b->kind != TRM_JINJA_SLICE) {
        TRM_TRY(trm_jinja_eval(run, scope, node->b, &index));
        return trm_jinja_item(run, &object, &index, value);
    }
    const trm_jinja_node *nodes[3] = {node->b->a, node->b->b, node->b->c};
    trm_jinja_value values[3];
    const trm_jinja_value *parts[3] = {NULL, NULL, NULL};
    for (int i = 0; i < 3; i++) {
        if (nodes[i] != NULL) {
            TRM_TRY(trm_jinja_eval(run, scope, nodes[i], &values[i]));
            parts[i] = &values[i];
        }
    }
    return trm_jinja_slice(run, &object, parts, value);
}

/* a < b < c: as long as it holds. */
static trm_status eval_compare(trm_jinja_run *run, trm_jinja_scope *scope, const trm_jinja_node *node,
                               trm_jinja_value *value)
{
    trm_jinja_value left, right;
    bool holds = true;
    TRM_TRY(trm_jinja_eval(run, scope, node->a, &left));
    for (const trm_jinja_node *operand = node->body; operand != NULL && holds; operand = operand->next) {
        TRM_TRY(trm_jinja_eval(run, scope, operand->a, &right));
        TRM_TRY(trm_jinja_test_op(run, operand->op, &left, &right, &holds));
        left = right;
    }
    *value = trm_jinja_bool(holds);
    return TRM_OK;
}

static trm_status eval_concat(trm_jinja_run *run, trm_jinja_scope *scope, const trm_jinja_node *node,
                              trm_jinja_value *value)
{
    trm_bytes text = {0};
    trm_status status = trm_bytes_reserve(&text, 1);
    for (const trm_jinja_node *part = node->body; part != NULL && status == TRM_OK; part = part->next) {
        trm_jinja_value item;
        status = trm_jinja_eval(run, scope, part, &item);
        if (status == TRM_OK) {
            status = trm_jinja_write(run, &item, &text);
        }
    }
    return trm_jinja_take(run, &text, status, value);
}

static trm_status eval_logic(trm_jinja_run *run, trm_jinja_scope *scope, const trm_jinja_node *node,
                             trm_jinja_value *value)
{
    TRM_TRY(trm_jinja_eval(run, scope, node->a, value));
    bool truth = trm_jinja_truth(value);
    switch (node->kind) {
    case TRM_JINJA_NOT:
        *value = trm_jinja_bool(!truth);
        return TRM_OK;
    case TRM_JINJA_CONDITION:
        if (truth || node->c != NULL) {
            return trm_jinja_eval(run, scope, truth ? node->b : node->c, value);
        }
        return trm_jinja_undefined(run, value, "the inline if-expression evaluated to false and no else is defined");
    default: /* and, or */
        return truth == (node->kind == TRM_JINJA_AND) ? trm_jinja_eval(run, scope, node->b, value) : TRM_OK;
    }
}

static trm_status eval_arithmetic(trm_jinja_run *run, trm_jinja_scope *scope, const trm_jinja_node *node,
                                  trm_jinja_value *value)
{
    trm_jinja_value a, b;
    TRM_TRY(trm_jinja_eval(run, scope, node->a, &a));
    if (node->kind == TRM_JINJA_BINARY) {
        TRM_TRY(trm_jinja_eval(run, scope, node->b, &b));
        return trm_jinja_binary(run, node->op, &a, &b, value);
    }
    if (node->kind == TRM_JINJA_NEGATE) {
        return trm_jinja_negate(run, &a, value);
    }
    if (!trm_jinja_is_number(&a)) {
        return trm_jinja_fail(run, "bad operand type for unary +: '%s'", trm_jinja_type_name(&a));
    }
    *value = a.kind == TRM_JINJA_BOOL ? trm_jinja_integer(a.truth) : a;
    return TRM_OK;
}

static trm_status eval_node(trm_jinja_run *run, trm_jinja_scope *scope, const trm_jinja_node *node,
                            trm_jinja_value *value)
{
    trm_jinja_value operand;
    switch (node->kind) {
    case TRM_JINJA_CONST:
        *value = node->value;
        return TRM_OK;
    case TRM_JINJA_NAME:
        return trm_jinja_lookup(run, scope, &node->value, value);
    case TRM_JINJA_TUPLE_OF:
    case TRM_JINJA_LIST_OF:
    case TRM_JINJA_MAP_OF:
        return eval_items(run, scope, node, value);
    case TRM_JINJA_ATTRIBUTE:
        TRM_TRY(trm_jinja_eval(run, scope, node->a, &operand));
        return trm_jinja_attribute(run, &operand, &node->value, value);
    case TRM_JINJA_ITEM:
        return eval_item(run, scope, node, value);
    case TRM_JINJA_CALL:
        return trm_jinja_eval_call(run, scope, node, NULL, value);
    case TRM_JINJA_FILTER:
    case TRM_JINJA_TEST:
        TRM_TRY(trm_jinja_eval(run, scope, node->a, &operand));
        return apply(run, scope, node, &operand, value);
    case TRM_JINJA_NOT:
    case TRM_JINJA_AND:
    case TRM_JINJA_OR:
    case TRM_JINJA_CONDITION:
        return eval_logic(run, scope, node, value);
    case TRM_JINJA_COMPARE:
        return eval_compare(run, scope, node, value);
    case TRM_JINJA_CONCAT:
        return eval_concat(run, scope, node, value);
    default:
        return eval_arithmetic(run, scope, node, value);
    }
}

trm_status trm_jinja_eval(trm_jinja_run *run, trm_jinja_scope *scope, const trm_jinja_node *node,
                          trm_jinja_value *value)
{
    TRM_TRY(trm_jinja_charge(run, 1));
    if (run->depth >= TRM_JINJA_DEPTH) {
        return trm_jinja_fail(run, "calls and expressions are nested too deep");
    }
    run->depth++;
    trm_status status = eval_node(run, scope, node, value);
    run->depth--;
    return status;
}
