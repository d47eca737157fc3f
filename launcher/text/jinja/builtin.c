/* Binds arguments; global functions, tests, and methods of values other than strings. */
#include "launcher/text/jinja/builtin.h"

#include <math.h>
#include <string.h>
#include <time.h>

#include "base/c_locale.h"
#include "base/error.h"
#include "launcher/text/jinja/parser.h"
#include "launcher/text/jinja/text.h"
#include "launcher/text/strings/utf8.h"

#define LONGEST_RANGE 100000 /* as in Jinja2's sandbox */

const trm_jinja_builtin *trm_jinja_find_in(const trm_jinja_builtin *table, size_t count, const trm_jinja_value *name)
{
    for (size_t i = 0; i < count; i++) {
        if (trm_jinja_is_text(name, table[i].name)) {
            return &table[i];
        }
    }
    return NULL;
}

trm_status trm_jinja_bind_method(trm_jinja_run *run, const trm_jinja_value *self, const trm_jinja_builtin *builtin,
                                 trm_jinja_value *value)
{
    void *memory;
    TRM_TRY(trm_jinja_alloc(run, 1, sizeof(trm_jinja_bound_method), &memory));
    trm_jinja_bound_method *method = memory;
    method->self = self == NULL ? trm_jinja_none() : *self;
    method->builtin = builtin;
    *value = (trm_jinja_value){.kind = self == NULL ? TRM_JINJA_FUNCTION : TRM_JINJA_METHOD, .object = method};
    return TRM_OK;
}

/* Index of a name in "old new count", or -1. */
static int find_parameter(const char *parameters, const trm_jinja_value *name)
{
    for (int i = 0; *parameters != '\0'; i++) {
        size_t size = strcspn(parameters, " ");
        if (size == name->size && memcmp(parameters, name->text, size) == 0) {
            return i;
        }
        parameters += size + (parameters[size] == ' ');
    }
    return -1;
}

static size_t count_parameters(const char *parameters)
{
    size_t count = *parameters != '\0';
    for (; *parameters != '\0'; parameters++) {
        count += *parameters == ' ';
    }
    return count;
}

trm_status trm_jinja_call_builtin(trm_jinja_run *run, const trm_jinja_builtin *builtin, const trm_jinja_value *self,
                                  const trm_jinja_args *args, trm_jinja_value *result)
{
    trm_jinja_call call = {.run = run, .self = self, .args = args, .way = builtin->way, .result = result};
    TRM_TRY(trm_jinja_charge(run, 1));
    if (builtin->parameters != NULL) {
        if (args->count > count_parameters(builtin->parameters)) {
            return trm_jinja_fail(run, "%s takes at most %zu arguments, %zu were given", builtin->name,
                                  count_parameters(builtin->parameters), args->count);
        }
        for (size_t i = 0; i < args->count; i++) {
            call.bound[i] = &args->items[i];
        }
        for (size_t i = 0; i < args->n_keywords; i++) {
            const trm_jinja_value *name = &args->keywords[i].name;
            int parameter = find_parameter(builtin->parameters, name);
            if (parameter < 0 || call.bound[parameter] != NULL) {
                return trm_jinja_fail(run, "%s got an unexpected keyword argument '%.*s'", builtin->name,
                                      (int)name->size, name->text);
            }
            call.bound[parameter] = &args->keywords[i].value;
        }
        for (int i = 0; i < builtin->required; i++) {
            if (call.bound[i] == NULL) {
                return trm_jinja_fail(run, "%s needs %d arguments", builtin->name, builtin->required);
            }
        }
    }
    return builtin->function(&call);
}

trm_status trm_jinja_bound_integer(const trm_jinja_call *call, int parameter, int64_t *value)
{
    const trm_jinja_value *given = call->bound[parameter];
    if (given == NULL || given->kind == TRM_JINJA_NONE) {
        return TRM_OK;
    }
    if (!trm_jinja_is_integer(given)) {
        return trm_jinja_fail(call->run, "'%s' object cannot be interpreted as an integer", trm_jinja_type_name(given));
    }
    *value = trm_jinja_to_integer(given);
    return TRM_OK;
}

bool trm_jinja_bound_truth(const trm_jinja_call *call, int parameter, bool otherwise)
{
    return call->bound[parameter] == NULL ? otherwise : trm_jinja_truth(call->bound[parameter]);
}

trm_status trm_jinja_bound_text(const trm_jinja_call *call, int parameter, const char *otherwise,
                                trm_jinja_value *value)
{
    if (call->bound[parameter] == NULL) {
        *value = trm_jinja_literal(otherwise);
        return TRM_OK;
    }
    return trm_jinja_string(call->run, call->bound[parameter], value);
}

/* ---- global functions ---- */

static trm_status function_range(trm_jinja_call *call)
{
    int64_t start = 0, stop = 0, step = 1;
    TRM_TRY(trm_jinja_bound_integer(call, 0, call->bound[1] == NULL ? &stop : &start));
    TRM_TRY(trm_jinja_bound_integer(call, 1, &stop));
    TRM_TRY(trm_jinja_bound_integer(call, 2, &step));
    if (step == 0) {
        return trm_jinja_fail(call->run, "range() arg 3 must not be zero");
    }
    TRM_TRY(trm_jinja_new_list(call->run, TRM_JINJA_RANGE, 0, call->result));
    for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
        if (call->result->list->count == LONGEST_RANGE) {
            return trm_jinja_fail(call->run, "a range has more than %d items", LONGEST_RANGE);
        }
        trm_jinja_value item = trm_jinja_integer(i);
        TRM_TRY(trm_jinja_list_append(call->run, call->result->list, &item));
        if (__builtin_add_overflow(i, step, &i)) {
            break;
        }
    }
    return TRM_OK;
}

/* dict(...) and namespace(...): a mapping or pairs, then keywords. */
static trm_status make_map(trm_jinja_call *call)
{
    trm_jinja_kind kind = (trm_jinja_kind)call->way;
    TRM_TRY(trm_jinja_new_map(call->run, kind, call->result));
    trm_jinja_map *map = call->result->map;
    if (call->args->count > 1) {
        return trm_jinja_fail(call->run, "dict expected at most 1 argument, got %zu", call->args->count);
    }
    const trm_jinja_value *from = call->args->count == 1 ? &call->args->items[0] : NULL;
    if (from != NULL && from->kind == TRM_JINJA_MAP) {
        for (size_t i = 0; i < from->map->count; i++) {
            TRM_TRY(trm_jinja_map_set(call->run, map, &from->map->entries[i].key, &from->map->entries[i].value));
        }
    } else if (from != NULL) {
        const trm_jinja_list *pairs, *pair;
        TRM_TRY(trm_jinja_items(call->run, from, &pairs));
        for (size_t i = 0; i < pairs->count; i++) {
            TRM_TRY(trm_jinja_items(call->run, &pairs->items[i], &pair));
            if (pair->count != 2) {
                return trm_jinja_fail(call->run, "dict needs pairs, found %zu items", pair->count);
            }
            TRM_TRY(trm_jinja_map_set(call->run, map, &pair->items[0], &pair->items[1]));
        }
    }
    for (size_t i = 0; i < call->args->n_keywords; i++) {
        TRM_TRY(trm_jinja_map_set(call->run, map, &call->args->keywords[i].name, &call->args->keywords[i].value));
    }
    return TRM_OK;
}

static trm_status new_cycle(trm_jinja_call *call, trm_jinja_kind kind, trm_jinja_cycle **cycle)
{
    void *memory;
    TRM_TRY(trm_jinja_alloc(call->run, 1, sizeof(**cycle), &memory));
    *cycle = memory;
    *call->result = (trm_jinja_value){.kind = kind, .object = memory};
    return TRM_OK;
}

static trm_status function_cycler(trm_jinja_call *call)
{
    trm_jinja_cycle *cycle;
    trm_jinja_value items;
    if (call->args->count == 0) {
        return trm_jinja_fail(call->run, "cycler needs at least one item");
    }
    TRM_TRY(trm_jinja_new_list(call->run, TRM_JINJA_LIST, call->args->count, &items));
    for (size_t i = 0; i < call->args->count; i++) {
        TRM_TRY(trm_jinja_list_append(call->run, items.list, &call->args->items[i]));
    }
    TRM_TRY(new_cycle(call, TRM_JINJA_CYCLER, &cycle));
    cycle->items = items.list;
    return TRM_OK;
}

static trm_status function_joiner(trm_jinja_call *call)
{
    trm_jinja_cycle *cycle;
    TRM_TRY(new_cycle(call, TRM_JINJA_JOINER, &cycle));
    return trm_jinja_bound_text(call, 0, ", ", &cycle->separator);
}

static trm_status function_raise_exception(trm_jinja_call *call)
{
    trm_jinja_value text;
    TRM_TRY(trm_jinja_bound_text(call, 0, "", &text));
    return trm_jinja_fail(call->run, "%.*s", (int)(text.size < 700 ? text.size : 700), text.text);
}

static trm_status function_strftime_now(trm_jinja_call *call)
{
    trm_jinja_value format;
    char text[1024], format_text[256];
    struct tm parts;
    time_t now = call->run->now != 0 ? (time_t)call->run->now : time(NULL);
    TRM_TRY(trm_jinja_bound_text(call, 0, "", &format));
    if (format.size + 2 > sizeof(format_text) || memchr(format.text, '\0', format.size) != NULL ||
        localtime_r(&now, &parts) == NULL) {
        return trm_jinja_fail(call->run, "strftime_now cannot format this");
    }
    memcpy(format_text, format.text, format.size);
    format_text[format.size] = ' '; /* to distinguish an empty result from one that does not fit */
    format_text[format.size + 1] = '\0';
    size_t size = trm_c_strftime(text, sizeof(text), format_text, &parts);
    if (size == 0 || trm_utf8_valid_prefix(text, size) != size) {
        return trm_jinja_fail(call->run, "strftime_now cannot format this");
    }
    return trm_jinja_copy_text(call->run, text, size - 1, call->result);
}

const trm_jinja_builtin *trm_jinja_find_function(const trm_jinja_value *name)
{
    static const trm_jinja_builtin table[] = {
        {"range", function_range, 1, "start stop step", 0},
        {"dict", make_map, 0, NULL, TRM_JINJA_MAP},
        {"namespace", make_map, 0, NULL, TRM_JINJA_NAMESPACE},
        {"cycler", function_cycler, 0, NULL, 0},
        {"joiner", function_joiner, 0, "sep", 0},
        {"raise_exception", function_raise_exception, 1, "message", 0},
        {"strftime_now", function_strftime_now, 1, "format", 0},
    };
    return trm_jinja_find_in(table, sizeof(table) / sizeof(table[0]), name);
}

/* ---- tests ---- */

static trm_status answer(trm_jinja_call *call, bool holds)
{
    *call->result = trm_jinja_bool(holds);
    return TRM_OK;
}

static trm_status test_defined(trm_jinja_call *call)
{
    return answer(call, call->self->kind != TRM_JINJA_UNDEFINED);
}

static trm_status test_undefined(trm_jinja_call *call)
{
    return answer(call, call->self->kind == TRM_JINJA_UNDEFINED);
}

static trm_status test_none(trm_jinja_call *call)
{
    return answer(call, call->self->kind == TRM_JINJA_NONE);
}

static trm_status test_boolean(trm_jinja_call *call)
{
    return answer(call, call->self->kind == TRM_JINJA_BOOL);
}

static trm_status test_true(trm_jinja_call *call)
{
    return answer(call, call->self->kind == TRM_JINJA_BOOL && call->self->truth);
}

static trm_status test_false(trm_jinja_call *call)
{
    return answer(call, call->self->kind == TRM_JINJA_BOOL && !call->self->truth);
}

static trm_status test_integer(trm_jinja_call *call)
{
    return answer(call, call->self->kind == TRM_JINJA_INTEGER);
}

static trm_status test_float(trm_jinja_call *call)
{
    return answer(call, call->self->kind == TRM_JINJA_FLOAT);
}

static trm_status test_number(trm_jinja_call *call)
{
    return answer(call, trm_jinja_is_number(call->self));
}

static trm_status test_string(trm_jinja_call *call)
{
    return answer(call, call->self->kind == TRM_JINJA_STRING);
}

static trm_status test_mapping(trm_jinja_call *call)
{
    return answer(call, call->self->kind == TRM_JINJA_MAP);
}

static trm_status test_iterable(trm_jinja_call *call)
{
    trm_jinja_kind kind = call->self->kind;
    return answer(call, trm_jinja_is_sequence(call->self) || kind == TRM_JINJA_STRING || kind == TRM_JINJA_MAP ||
                            kind == TRM_JINJA_UNDEFINED || kind == TRM_JINJA_LOOP);
}

/* Jinja2 asks for a length and items by index, which mappings and undefined values have too. */
static trm_status test_sequence(trm_jinja_call *call)
{
    trm_jinja_kind kind = call->self->kind;
    return answer(call, kind == TRM_JINJA_LIST || kind == TRM_JINJA_TUPLE || kind == TRM_JINJA_RANGE ||
                            kind == TRM_JINJA_STRING || kind == TRM_JINJA_MAP || kind == TRM_JINJA_UNDEFINED);
}

static trm_status test_callable(trm_jinja_call *call)
{
    trm_jinja_kind kind = call->self->kind;
    return answer(call, kind == TRM_JINJA_MACRO || kind == TRM_JINJA_FUNCTION || kind == TRM_JINJA_METHOD ||
                            kind == TRM_JINJA_LOOP || kind == TRM_JINJA_JOINER || kind == TRM_JINJA_UNDEFINED);
}

static trm_status test_sameas(trm_jinja_call *call)
{
    const trm_jinja_value *a = call->self, *b = call->bound[0];
    bool same = a->kind == b->kind;
    if (same && (trm_jinja_is_sequence(a) || a->kind >= TRM_JINJA_MAP)) {
        same = a->object == b->object;
    } else if (same) {
        same = trm_jinja_equal(call->run, a, b);
    }
    return answer(call, same);
}

static trm_status remainder_of(trm_jinja_call *call, int64_t divisor, int64_t *remainder)
{
    trm_jinja_value by = trm_jinja_integer(divisor), result;
    TRM_TRY(trm_jinja_binary(call->run, TRM_JINJA_MODULO, call->self, &by, &result));
    *remainder = result.kind == TRM_JINJA_INTEGER ? result.integer
                 : result.number == 0             ? 0
                 : result.number == 1             ? 1
                                                  : 2;
    return TRM_OK;
}

static trm_status test_odd(trm_jinja_call *call)
{
    int64_t remainder;
    TRM_TRY(remainder_of(call, 2, &remainder));
    return answer(call, remainder == 1);
}

static trm_status test_even(trm_jinja_call *call)
{
    int64_t remainder;
    TRM_TRY(remainder_of(call, 2, &remainder));
    return answer(call, remainder == 0);
}

static trm_status test_divisibleby(trm_jinja_call *call)
{
    int64_t divisor = 1, remainder;
    TRM_TRY(trm_jinja_bound_integer(call, 0, &divisor));
    TRM_TRY(remainder_of(call, divisor, &remainder));
    return answer(call, remainder == 0);
}

/* str.isupper and str.islower: some letter has the case, none the other one. */
static trm_status test_case(trm_jinja_call *call)
{
    bool upper = call->way != 0;
    trm_jinja_value text;
    bool any = false, other = false;
    TRM_TRY(trm_jinja_string(call->run, call->self, &text));
    for (size_t at = 0; at < text.size;) {
        size_t size;
        int32_t c = trm_utf8_read(text.text + at, &size);
        any |= upper ? trm_jinja_is_upper(c) : trm_jinja_is_lower(c);
        other |= upper ? trm_jinja_is_lower(c) : trm_jinja_is_upper(c);
        at += size;
    }
    return answer(call, any && !other);
}

static trm_status compare_with(trm_jinja_call *call)
{
    int op = call->way;
    bool holds;
    TRM_TRY(trm_jinja_test_op(call->run, op, call->self, call->bound[0], &holds));
    return answer(call, holds);
}

static trm_status test_filter(trm_jinja_call *call)
{
    return answer(call, call->self->kind == TRM_JINJA_STRING && trm_jinja_find_filter(call->self) != NULL);
}

static trm_status test_test(trm_jinja_call *call)
{
    return answer(call, call->self->kind == TRM_JINJA_STRING && trm_jinja_find_test(call->self) != NULL);
}

const trm_jinja_builtin *trm_jinja_find_test(const trm_jinja_value *name)
{
    static const trm_jinja_builtin table[] = {
        {"defined", test_defined, 0, "", 0},
        {"undefined", test_undefined, 0, "", 0},
        {"none", test_none, 0, "", 0},
        {"boolean", test_boolean, 0, "", 0},
        {"true", test_true, 0, "", 0},
        {"false", test_false, 0, "", 0},
        {"integer", test_integer, 0, "", 0},
        {"float", test_float, 0, "", 0},
        {"number", test_number, 0, "", 0},
        {"string", test_string, 0, "", 0},
        {"mapping", test_mapping, 0, "", 0},
        {"iterable", test_iterable, 0, "", 0},
        {"sequence", test_sequence, 0, "", 0},
        {"callable", test_callable, 0, "", 0},
        {"sameas", test_sameas, 1, "other", 0},
        {"odd", test_odd, 0, "", 0},
        {"even", test_even, 0, "", 0},
        {"divisibleby", test_divisibleby, 1, "num", 0},
        {"upper", test_case, 0, "", true},
        {"lower", test_case, 0, "", false},
        {"eq", compare_with, 1, "other", TRM_JINJA_EQUAL},
        {"equalto", compare_with, 1, "other", TRM_JINJA_EQUAL},
        {"==", compare_with, 1, "other", TRM_JINJA_EQUAL},
        {"ne", compare_with, 1, "other", TRM_JINJA_NOT_EQUAL},
        {"!=", compare_with, 1, "other", TRM_JINJA_NOT_EQUAL},
        {"lt", compare_with, 1, "other", TRM_JINJA_LESS},
        {"lessthan", compare_with, 1, "other", TRM_JINJA_LESS},
        {"<", compare_with, 1, "other", TRM_JINJA_LESS},
        {"le", compare_with, 1, "other", TRM_JINJA_LESS_EQUAL},
        {"<=", compare_with, 1, "other", TRM_JINJA_LESS_EQUAL},
        {"gt", compare_with, 1, "other", TRM_JINJA_GREATER},
        {"greaterthan", compare_with, 1, "other", TRM_JINJA_GREATER},
        {">", compare_with, 1, "other", TRM_JINJA_GREATER},
        {"ge", compare_with, 1, "other", TRM_JINJA_GREATER_EQUAL},
        {">=", compare_with, 1, "other", TRM_JINJA_GREATER_EQUAL},
        {"in", compare_with, 1, "seq", TRM_JINJA_IN},
        {"filter", test_filter, 0, "", 0},
        {"test", test_test, 0, "", 0},
    };
    return trm_jinja_find_in(table, sizeof(table) / sizeof(table[0]), name);
}

/* ---- methods of mappings, lists, loops, cyclers ---- */

static trm_status make_view(trm_jinja_call *call, const char *view)
{
    const trm_jinja_map *map = call->self->map;
    TRM_TRY(trm_jinja_new_list(call->run, TRM_JINJA_VIEW, map->count, call->result));
    call->result->list->view = view;
    for (size_t i = 0; i < map->count; i++) {
        trm_jinja_value item = map->entries[i].key;
        if (strcmp(view, "dict_values") == 0) {
            item = map->entries[i].value;
        } else if (strcmp(view, "dict_items") == 0) {
            TRM_TRY(trm_jinja_new_list(call->run, TRM_JINJA_TUPLE, 2, &item));
            TRM_TRY(trm_jinja_list_append(call->run, item.list, &map->entries[i].key));
            TRM_TRY(trm_jinja_list_append(call->run, item.list, &map->entries[i].value));
        }
        TRM_TRY(trm_jinja_list_append(call->run, call->result->list, &item));
    }
    return TRM_OK;
}

static trm_status map_items(trm_jinja_call *call)
{
    return make_view(call, "dict_items");
}

static trm_status map_keys(trm_jinja_call *call)
{
    return make_view(call, "dict_keys");
}

static trm_status map_values(trm_jinja_call *call)
{
    return make_view(call, "dict_values");
}

static trm_status map_get(trm_jinja_call *call)
{
    const trm_jinja_value *found = trm_jinja_map_find(call->run, call->self->map, call->bound[0]);
    *call->result = found != NULL ? *found : call->bound[1] != NULL ? *call->bound[1] : trm_jinja_none();
    return TRM_OK;
}

/* Values are immutable, so a copy is the value itself. */
static trm_status copy_self(trm_jinja_call *call)
{
    *call->result = *call->self;
    return TRM_OK;
}

static trm_status refuse_change(trm_jinja_call *call)
{
    return trm_jinja_fail(call->run, "templates cannot change a %s", trm_jinja_type_name(call->self));
}

static trm_status list_index(trm_jinja_call *call)
{
    for (size_t i = 0; i < call->self->list->count; i++) {
        if (trm_jinja_equal(call->run, &call->self->list->items[i], call->bound[0])) {
            *call->result = trm_jinja_integer((int64_t)i);
            return TRM_OK;
        }
    }
    return trm_jinja_fail(call->run, "the value is not in the list");
}

static trm_status list_count(trm_jinja_call *call)
{
    int64_t count = 0;
    for (size_t i = 0; i < call->self->list->count; i++) {
        count += trm_jinja_equal(call->run, &call->self->list->items[i], call->bound[0]);
    }
    *call->result = trm_jinja_integer(count);
    return TRM_OK;
}

static trm_status loop_cycle(trm_jinja_call *call)
{
    const trm_jinja_loop *loop = call->self->object;
    if (call->args->count == 0) {
        return trm_jinja_fail(call->run, "no items for cycling given");
    }
    *call->result = call->args->items[loop->index % call->args->count];
    return TRM_OK;
}

static trm_status loop_changed(trm_jinja_call *call)
{
    trm_jinja_loop *loop = call->self->object;
    trm_jinja_value now;
    TRM_TRY(trm_jinja_new_list(call->run, TRM_JINJA_TUPLE, call->args->count, &now));
    for (size_t i = 0; i < call->args->count; i++) {
        TRM_TRY(trm_jinja_list_append(call->run, now.list, &call->args->items[i]));
    }
    *call->result = trm_jinja_bool(!loop->changed_before || !trm_jinja_equal(call->run, &loop->changed, &now));
    loop->changed = now;
    loop->changed_before = true;
    return TRM_OK;
}

static trm_status cycler_next(trm_jinja_call *call)
{
    trm_jinja_cycle *cycle = call->self->object;
    *call->result = cycle->items->items[cycle->index];
    cycle->index = (cycle->index + 1) % cycle->items->count;
    return TRM_OK;
}

static trm_status cycler_reset(trm_jinja_call *call)
{
    ((trm_jinja_cycle *)call->self->object)->index = 0;
    *call->result = trm_jinja_none();
    return TRM_OK;
}

static trm_status cycler_current(const trm_jinja_value *cycler, trm_jinja_value *result)
{
    const trm_jinja_cycle *cycle = cycler->object;
    *result = cycle->items->items[cycle->index];
    return TRM_OK;
}

const trm_jinja_builtin *trm_jinja_find_method(const trm_jinja_value *self, const trm_jinja_value *name)
{
    static const trm_jinja_builtin of_map[] = {
        {"items", map_items, 0, "", 0},         {"keys", map_keys, 0, "", 0},
        {"values", map_values, 0, "", 0},       {"get", map_get, 1, "key default", 0},
        {"copy", copy_self, 0, "", 0},          {"update", refuse_change, 0, NULL, 0},
        {"pop", refuse_change, 0, NULL, 0},     {"clear", refuse_change, 0, NULL, 0},
        {"popitem", refuse_change, 0, NULL, 0}, {"setdefault", refuse_change, 0, NULL, 0},
    };
    static const trm_jinja_builtin of_list[] = {
        {"index", list_index, 1, "value", 0},   {"count", list_count, 1, "value", 0},
        {"copy", copy_self, 0, "", 0},          {"append", refuse_change, 0, NULL, 0},
        {"insert", refuse_change, 0, NULL, 0},  {"pop", refuse_change, 0, NULL, 0},
        {"extend", refuse_change, 0, NULL, 0},  {"remove", refuse_change, 0, NULL, 0},
        {"reverse", refuse_change, 0, NULL, 0}, {"sort", refuse_change, 0, NULL, 0},
        {"clear", refuse_change, 0, NULL, 0},
    };
    static const trm_jinja_builtin of_loop[] = {{"cycle", loop_cycle, 0, NULL, 0},
                                                {"changed", loop_changed, 0, NULL, 0}};
    static const trm_jinja_builtin of_cycler[] = {{"next", cycler_next, 0, "", 0}, {"reset", cycler_reset, 0, "", 0}};
    switch (self->kind) {
    case TRM_JINJA_STRING:
        return trm_jinja_find_in(trm_jinja_string_methods, trm_jinja_n_string_methods, name);
    case TRM_JINJA_MAP:
        return trm_jinja_find_in(of_map, sizeof(of_map) / sizeof(of_map[0]), name);
    case TRM_JINJA_LIST:
        return trm_jinja_find_in(of_list, sizeof(of_list) / sizeof(of_list[0]), name);
    case TRM_JINJA_TUPLE:
    case TRM_JINJA_RANGE:
        return trm_jinja_find_in(of_list, 2, name);
    case TRM_JINJA_LOOP:
        return trm_jinja_find_in(of_loop, 2, name);
    case TRM_JINJA_CYCLER:
        return trm_jinja_find_in(of_cycler, 2, name);
    default:
        return NULL;
    }
}

trm_status trm_jinja_loop_attribute(trm_jinja_run *run, const trm_jinja_value *value, const trm_jinja_value *name,
                                    bool *found, trm_jinja_value *result)
{
    *found = value->kind == TRM_JINJA_CYCLER && trm_jinja_is_text(name, "current");
    if (value->kind == TRM_JINJA_CYCLER) {
        return *found ? cycler_current(value, result) : TRM_OK;
    }
    const trm_jinja_loop *loop = value->object;
    int64_t index = (int64_t)loop->index, count = (int64_t)loop->items->count;
    const struct {
        const char *name;
        trm_jinja_value value;
    } attributes[] = {
        {"index", trm_jinja_integer(index + 1)},        {"index0", trm_jinja_integer(index)},
        {"revindex", trm_jinja_integer(count - index)}, {"revindex0", trm_jinja_integer(count - index - 1)},
        {"first", trm_jinja_bool(index == 0)},          {"last", trm_jinja_bool(index == count - 1)},
        {"length", trm_jinja_integer(count)},           {"depth", trm_jinja_integer(loop->depth + 1)},
        {"depth0", trm_jinja_integer(loop->depth)},
    };
    *found = true;
    for (size_t i = 0; i < sizeof(attributes) / sizeof(attributes[0]); i++) {
        if (trm_jinja_is_text(name, attributes[i].name)) {
            *result = attributes[i].value;
            return TRM_OK;
        }
    }
    bool next = trm_jinja_is_text(name, "nextitem");
    if (next || trm_jinja_is_text(name, "previtem")) {
        if (next ? index + 1 >= count : index == 0) {
            return trm_jinja_undefined(run, result, "there is no %s item", next ? "next" : "previous");
        }
        *result = loop->items->items[next ? index + 1 : index - 1];
        return TRM_OK;
    }
    *found = false;
    return TRM_OK;
}
