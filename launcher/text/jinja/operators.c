/* Operators, attributes, items and slices with Python's semantics. */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/error.h"
#include "launcher/text/jinja/builtin.h"
#include "launcher/text/jinja/parser.h"
#include "launcher/text/strings/utf8.h"

static trm_status fail_undefined(const trm_jinja_run *run, const trm_jinja_value *value)
{
    return trm_jinja_fail(run, "%.*s", (int)value->size, value->text);
}

static trm_status fail_operands(const trm_jinja_run *run, const char *op, const trm_jinja_value *a,
                                const trm_jinja_value *b)
{
    if (a->kind == TRM_JINJA_UNDEFINED || b->kind == TRM_JINJA_UNDEFINED) {
        return fail_undefined(run, a->kind == TRM_JINJA_UNDEFINED ? a : b);
    }
    return trm_jinja_fail(run, "unsupported operand type(s) for %s: '%s' and '%s'", op, trm_jinja_type_name(a),
                          trm_jinja_type_name(b));
}

static const char *op_text(int op)
{
    static const char *const texts[] = {
        [TRM_JINJA_ADD] = "+",
        [TRM_JINJA_SUBTRACT] = "-",
        [TRM_JINJA_MULTIPLY] = "*",
        [TRM_JINJA_DIVIDE] = "/",
        [TRM_JINJA_FLOOR_DIVIDE] = "//",
        [TRM_JINJA_MODULO] = "%",
        [TRM_JINJA_POWER] = "**",
        [TRM_JINJA_EQUAL] = "==",
        [TRM_JINJA_NOT_EQUAL] = "!=",
        [TRM_JINJA_LESS] = "<",
        [TRM_JINJA_LESS_EQUAL] = "<=",
        [TRM_JINJA_GREATER] = ">",
        [TRM_JINJA_GREATER_EQUAL] = ">=",
        [TRM_JINJA_IN] = "in",
        [TRM_JINJA_NOT_IN] = "not in",
    };
    return texts[op];
}

static bool integer_power(int64_t base, int64_t exponent, int64_t *result)
{
    int64_t value = 1;
    bool fits = true;
    while (exponent > 0 && fits) {
        if (exponent & 1) {
            fits = !__builtin_mul_overflow(value, base, &value);
        }
        exponent >>= 1;
        if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) {
            fits = false;
        }
    }
    *result = value;
    return fits;
}

/* Rounds towards minus infinity, as in Python. */
static int64_t floor_divide(int64_t a, int64_t b)
{
    int64_t quotient = a / b;
    return quotient - ((a % b != 0) && ((a < 0) != (b < 0)));
}

static trm_status integers(trm_jinja_run *run, int op, int64_t a, int64_t b, trm_jinja_value *result)
{
    int64_t value = 0;
    bool fits = true;
    bool divides = op == TRM_JINJA_DIVIDE || op == TRM_JINJA_FLOOR_DIVIDE || op == TRM_JINJA_MODULO;
    if (divides && b == 0) {
        return trm_jinja_fail(run, "division by zero");
    }
    switch (op) {
    case TRM_JINJA_ADD:
        fits = !__builtin_add_overflow(a, b, &value);
        break;
    case TRM_JINJA_SUBTRACT:
        fits = !__builtin_sub_overflow(a, b, &value);
        break;
    case TRM_JINJA_MULTIPLY:
        fits = !__builtin_mul_overflow(a, b, &value);
        break;
    case TRM_JINJA_DIVIDE:
        *result = trm_jinja_float((double)a / (double)b);
        return TRM_OK;
    case TRM_JINJA_FLOOR_DIVIDE:
        fits = !(a == INT64_MIN && b == -1);
        value = fits ? floor_divide(a, b) : 0;
        break;
    case TRM_JINJA_MODULO:
        value = b == -1 ? 0 : a % b;
        value += value != 0 && (value < 0) != (b < 0) ? b : 0;
        break;
    default:
        if (b < 0) {
            if (a == 0) {
                return trm_jinja_fail(run, "0.0 cannot be raised to a negative power");
            }
            *result = trm_jinja_float(pow((double)a, (double)b));
            return TRM_OK;
        }
        fits = integer_power(a, b, &value);
    }
    *result = trm_jinja_integer(value);
    return fits ? TRM_OK : trm_jinja_fail(run, "the result of %s has more than 64 bits", op_text(op));
}

static trm_status doubles(trm_jinja_run *run, int op, double a, double b, trm_jinja_value *result)
{
    bool divides = op == TRM_JINJA_DIVIDE || op == TRM_JINJA_FLOOR_DIVIDE || op == TRM_JINJA_MODULO;
    if (divides && b == 0) {
        return trm_jinja_fail(run, "division by zero");
    }
    double value;
    switch (op) {
    case TRM_JINJA_ADD:
        value = a + b;
        break;
    case TRM_JINJA_SUBTRACT:
        value = a - b;
        break;
    case TRM_JINJA_MULTIPLY:
        value = a * b;
        break;
    case TRM_JINJA_DIVIDE:
        value = a / b;
        break;
    case TRM_JINJA_FLOOR_DIVIDE:
        value = floor(a / b);
        break;
    case TRM_JINJA_MODULO:
        value = fmod(a, b);
        value += value != 0 && (value < 0) != (b < 0) ? b : 0;
        break;
    default:
        value = pow(a, b);
    }
    *result = trm_jinja_float(value);
    return TRM_OK;
}

static trm_status repeat(trm_jinja_run *run, const trm_jinja_value *what, int64_t times, trm_jinja_value *result)
{
    size_t count = times < 0 ? 0 : (size_t)times,
           size = what->kind == TRM_JINJA_STRING ? what->size : what->list->count;
    size_t total;
    if (__builtin_mul_overflow(count, size, &total)) {
        return trm_jinja_fail(run, "a repetition is too long");
    }
    if (what->kind == TRM_JINJA_STRING) {
        void *memory;
        TRM_TRY(trm_jinja_alloc(run, total, 1, &memory));
        for (size_t i = 0; i < count && size > 0; i++) {
            memcpy((char *)memory + i * size, what->text, size);
        }
        *result = trm_jinja_text(memory, total);
        return TRM_OK;
    }
    TRM_TRY(trm_jinja_new_list(run, what->kind, total, result));
    for (size_t i = 0; i < total; i++) {
        TRM_TRY(trm_jinja_list_append(run, result->list, &what->list->items[i % size]));
    }
    return TRM_OK;
}

static trm_status join(trm_jinja_run *run, const trm_jinja_value *a, const trm_jinja_value *b, trm_jinja_value *result)
{
    if (a->kind == TRM_JINJA_STRING) {
        void *memory;
        TRM_TRY(trm_jinja_alloc(run, a->size + b->size, 1, &memory));
        memcpy(memory, a->text, a->size);
        memcpy((char *)memory + a->size, b->text, b->size);
        *result = trm_jinja_text(memory, a->size + b->size);
        return TRM_OK;
    }
    TRM_TRY(trm_jinja_new_list(run, a->kind, a->list->count + b->list->count, result));
    for (size_t i = 0; i < a->list->count + b->list->count; i++) {
        const trm_jinja_value *item = i < a->list->count ? &a->list->items[i] : &b->list->items[i - a->list->count];
        TRM_TRY(trm_jinja_list_append(run, result->list, item));
    }
    return TRM_OK;
}

static bool can_repeat(const trm_jinja_value *value)
{
    return value->kind == TRM_JINJA_STRING || value->kind == TRM_JINJA_LIST || value->kind == TRM_JINJA_TUPLE;
}

trm_status trm_jinja_binary(trm_jinja_run *run, int op, const trm_jinja_value *a, const trm_jinja_value *b,
                            trm_jinja_value *result)
{
    if (trm_jinja_is_integer(a) && trm_jinja_is_integer(b)) {
        return integers(run, op, trm_jinja_to_integer(a), trm_jinja_to_integer(b), result);
    }
    if (trm_jinja_is_number(a) && trm_jinja_is_number(b)) {
        return doubles(run, op, trm_jinja_to_double(a), trm_jinja_to_double(b), result);
    }
    if (op == TRM_JINJA_ADD && a->kind == b->kind && can_repeat(a)) {
        return join(run, a, b, result);
    }
    if (op == TRM_JINJA_MULTIPLY && can_repeat(a) && trm_jinja_is_integer(b)) {
        return repeat(run, a, trm_jinja_to_integer(b), result);
    }
    if (op == TRM_JINJA_MULTIPLY && can_repeat(b) && trm_jinja_is_integer(a)) {
        return repeat(run, b, trm_jinja_to_integer(a), result);
    }
    if (op == TRM_JINJA_MODULO && a->kind == TRM_JINJA_STRING) {
        return trm_jinja_percent(run, a, b, result);
    }
    if (op == TRM_JINJA_ADD && a->kind == TRM_JINJA_STRING && b->kind != TRM_JINJA_UNDEFINED) {
        return trm_jinja_fail(run, "can only concatenate str (not \"%s\") to str", trm_jinja_type_name(b));
    }
    return fail_operands(run, op_text(op), a, b);
}

trm_status trm_jinja_negate(trm_jinja_run *run, const trm_jinja_value *a, trm_jinja_value *result)
{
    if (a->kind == TRM_JINJA_FLOAT) {
        *result = trm_jinja_float(-a->number);
        return TRM_OK;
    }
    if (a->kind == TRM_JINJA_UNDEFINED) {
        return fail_undefined(run, a);
    }
    if (!trm_jinja_is_integer(a) || trm_jinja_to_integer(a) == INT64_MIN) {
        return trm_jinja_fail(run, "bad operand type for unary -: '%s'", trm_jinja_type_name(a));
    }
    *result = trm_jinja_integer(-trm_jinja_to_integer(a));
    return TRM_OK;
}

size_t trm_jinja_find_text(const trm_jinja_value *text, size_t from, const trm_jinja_value *part)
{
    if (part->size > text->size - from) {
        return SIZE_MAX;
    }
    const char *found =
        part->size == 0 ? text->text + from : memmem(text->text + from, text->size - from, part->text, part->size);
    return found == NULL ? SIZE_MAX : (size_t)(found - text->text);
}

static trm_status contains(trm_jinja_run *run, const trm_jinja_value *item, const trm_jinja_value *in, bool *holds)
{
    *holds = false;
    if (in->kind == TRM_JINJA_STRING) {
        if (item->kind != TRM_JINJA_STRING) {
            return trm_jinja_fail(run, "'in <string>' requires string as left operand, not %s",
                                  trm_jinja_type_name(item));
        }
        TRM_TRY(trm_jinja_charge(run, in->size / 64));
        *holds = trm_jinja_find_text(in, 0, item) != SIZE_MAX;
        return TRM_OK;
    }
    if (in->kind == TRM_JINJA_MAP) {
        *holds = trm_jinja_map_find(run, in->map, item) != NULL;
        return TRM_OK;
    }
    if (!trm_jinja_is_sequence(in) && in->kind != TRM_JINJA_UNDEFINED) {
        return trm_jinja_fail(run, "argument of type '%s' is not iterable", trm_jinja_type_name(in));
    }
    const trm_jinja_list *items;
    TRM_TRY(trm_jinja_items(run, in, &items));
    for (size_t i = 0; i < items->count && !*holds; i++) {
        *holds = trm_jinja_equal(run, &items->items[i], item);
    }
    return TRM_OK;
}

trm_status trm_jinja_test_op(trm_jinja_run *run, int op, const trm_jinja_value *a, const trm_jinja_value *b,
                             bool *holds)
{
    int order = 0;
    switch (op) {
    case TRM_JINJA_EQUAL:
    case TRM_JINJA_NOT_EQUAL:
        *holds = trm_jinja_equal(run, a, b) == (op == TRM_JINJA_EQUAL);
        return TRM_OK;
    case TRM_JINJA_IN:
    case TRM_JINJA_NOT_IN:
        TRM_TRY(contains(run, a, b, holds));
        *holds = *holds == (op == TRM_JINJA_IN);
        return TRM_OK;
    default:
        TRM_TRY(trm_jinja_compare(run, a, b, op_text(op), &order));
        *holds = op == TRM_JINJA_LESS         ? order < 0
                 : op == TRM_JINJA_LESS_EQUAL ? order <= 0
                 : op == TRM_JINJA_GREATER    ? order > 0
                                              : order >= 0;
        bool comparable =
            !(a->kind == TRM_JINJA_FLOAT && isnan(a->number)) && !(b->kind == TRM_JINJA_FLOAT && isnan(b->number));
        *holds = *holds && comparable;
        return TRM_OK;
    }
}

static trm_status no_attribute(trm_jinja_run *run, const trm_jinja_value *object, const trm_jinja_value *name,
                               trm_jinja_value *result)
{
    int size = (int)(name->size < 100 ? name->size : 100);
    return trm_jinja_undefined(run, result, "'%s' object has no attribute '%.*s'", trm_jinja_type_name(object), size,
                               name->text);
}

static trm_status find_method(trm_jinja_run *run, const trm_jinja_value *object, const trm_jinja_value *name,
                              bool *found, trm_jinja_value *result)
{
    *found = false;
    if (object->kind == TRM_JINJA_LOOP || object->kind == TRM_JINJA_CYCLER) {
        TRM_TRY(trm_jinja_loop_attribute(run, object, name, found, result));
        if (*found) {
            return TRM_OK;
        }
    }
    const trm_jinja_builtin *method = trm_jinja_find_method(object, name);
    *found = method != NULL;
    return *found ? trm_jinja_bind_method(run, object, method, result) : TRM_OK;
}

trm_status trm_jinja_attribute(trm_jinja_run *run, const trm_jinja_value *object, const trm_jinja_value *name,
                               trm_jinja_value *result)
{
    if (object->kind == TRM_JINJA_UNDEFINED) {
        return fail_undefined(run, object);
    }
    bool found;
    TRM_TRY(find_method(run, object, name, &found, result));
    if (found) {
        return TRM_OK;
    }
    if (object->kind == TRM_JINJA_MAP || object->kind == TRM_JINJA_NAMESPACE) {
        const trm_jinja_value *value = trm_jinja_map_find(run, object->map, name);
        if (value != NULL) {
            *result = *value;
            return TRM_OK;
        }
    }
    return no_attribute(run, object, name, result);
}

static bool has_items(const trm_jinja_value *value)
{
    return value->kind == TRM_JINJA_LIST || value->kind == TRM_JINJA_TUPLE || value->kind == TRM_JINJA_RANGE;
}

/* Character `index` of a string. */
static trm_status character_at(trm_jinja_run *run, const trm_jinja_value *string, int64_t index, bool *found,
                               trm_jinja_value *result)
{
    int64_t count;
    TRM_TRY(trm_jinja_length(run, string, &count));
    index += index < 0 ? count : 0;
    *found = index >= 0 && index < count;
    if (*found) {
        size_t at = 0;
        for (int64_t i = 0; i < index; i++) {
            at += trm_utf8_size(string->text[at]);
        }
        *result = trm_jinja_text(string->text + at, trm_utf8_size(string->text[at]));
    }
    return TRM_OK;
}

trm_status trm_jinja_item(trm_jinja_run *run, const trm_jinja_value *object, const trm_jinja_value *index,
                          trm_jinja_value *result)
{
    bool found = false;
    if (object->kind == TRM_JINJA_UNDEFINED) {
        return fail_undefined(run, object);
    }
    if (object->kind == TRM_JINJA_MAP) {
        const trm_jinja_value *value = trm_jinja_map_find(run, object->map, index);
        if (value != NULL) {
            *result = *value;
            return TRM_OK;
        }
    } else if (has_items(object) && trm_jinja_is_integer(index)) {
        int64_t i = trm_jinja_to_integer(index), count = (int64_t)object->list->count;
        i += i < 0 ? count : 0;
        if (i >= 0 && i < count) {
            *result = object->list->items[i];
            return TRM_OK;
        }
    } else if (object->kind == TRM_JINJA_STRING && trm_jinja_is_integer(index)) {
        TRM_TRY(character_at(run, object, trm_jinja_to_integer(index), &found, result));
        if (found) {
            return TRM_OK;
        }
    }
    if (index->kind == TRM_JINJA_STRING) {
        TRM_TRY(find_method(run, object, index, &found, result));
        if (!found && object->kind == TRM_JINJA_NAMESPACE) {
            return trm_jinja_attribute(run, object, index, result);
        }
        return found ? TRM_OK : no_attribute(run, object, index, result);
    }
    if (index->kind == TRM_JINJA_INTEGER) {
        return trm_jinja_undefined(run, result, "%s object has no element %lld", trm_jinja_type_name(object),
                                   (long long)index->integer);
    }
    return trm_jinja_undefined(run, result, "%s object has no such element", trm_jinja_type_name(object));
}

/* Start, stop and step of a slice of `count` items, adjusted as in Python. */
static trm_status slice_range(trm_jinja_run *run, const trm_jinja_value *const parts[3], int64_t count, int64_t *start,
                              int64_t *stop, int64_t *step)
{
    int64_t values[3] = {0, 0, 1};
    bool given[3];
    for (int i = 0; i < 3; i++) {
        given[i] = parts[i] != NULL && parts[i]->kind != TRM_JINJA_NONE;
        if (given[i] && !trm_jinja_is_integer(parts[i])) {
            return trm_jinja_fail(run, "slice indices must be integers or None, not %s", trm_jinja_type_name(parts[i]));
        }
        if (given[i]) {
            values[i] = trm_jinja_to_integer(parts[i]);
        }
    }
    *step = values[2];
    if (*step == 0) {
        return trm_jinja_fail(run, "slice step cannot be zero");
    }
    int64_t lowest = *step < 0 ? -1 : 0, highest = *step < 0 ? count - 1 : count;
    for (int i = 0; i < 2; i++) {
        int64_t value = values[i];
        if (!given[i]) {
            value = (i == 0) == (*step > 0) ? lowest : highest;
        } else {
            value += value < 0 ? count : 0;
            value = value < lowest ? lowest : value > highest ? highest : value;
        }
        *(i == 0 ? start : stop) = value;
    }
    return TRM_OK;
}

static trm_status slice_string(trm_jinja_run *run, const trm_jinja_value *string, int64_t start, int64_t stop,
                               int64_t step, int64_t count, trm_jinja_value *result)
{
    if (step == 1) { /* shares the memory */
        size_t begin = 0, end;
        int64_t at = 0;
        for (; at < start && at < count; at++) {
            begin += trm_utf8_size(string->text[begin]);
        }
        for (end = begin; at < stop && at < count; at++) {
            end += trm_utf8_size(string->text[end]);
        }
        *result = trm_jinja_text(string->text + begin, end - begin);
        return TRM_OK;
    }
    const trm_jinja_list *characters;
    TRM_TRY(trm_jinja_items(run, string, &characters));
    trm_bytes text = {0};
    trm_status status = trm_bytes_reserve(&text, 1);
    for (int64_t i = start; status == TRM_OK && (step > 0 ? i < stop : i > stop);) {
        status = trm_bytes_append(&text, characters->items[i].text, characters->items[i].size);
        if (__builtin_add_overflow(i, step, &i)) {
            break;
        }
    }
    return trm_jinja_take(run, &text, status, result);
}

trm_status trm_jinja_slice(trm_jinja_run *run, const trm_jinja_value *object, const trm_jinja_value *const parts[3],
                           trm_jinja_value *result)
{
    int64_t count, start = 0, stop = 0, step = 1;
    if (object->kind == TRM_JINJA_UNDEFINED) {
        return fail_undefined(run, object);
    }
    if (!has_items(object) && object->kind != TRM_JINJA_STRING) { /* Jinja2 ignores Python's TypeError */
        return trm_jinja_undefined(run, result, "%s object has no such element", trm_jinja_type_name(object));
    }
    TRM_TRY(trm_jinja_length(run, object, &count));
    TRM_TRY(slice_range(run, parts, count, &start, &stop, &step));
    if (object->kind == TRM_JINJA_STRING) {
        return slice_string(run, object, start, stop, step, count, result);
    }
    TRM_TRY(trm_jinja_new_list(run, object->kind, 0, result));
    for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
        TRM_TRY(trm_jinja_list_append(run, result->list, &object->list->items[i]));
        if (__builtin_add_overflow(i, step, &i)) {
            break;
        }
    }
    return TRM_OK;
}
