/* Values of templates: construction, equality, order, text. */
#include "launcher/text/jinja/value.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/c_locale.h"
#include "base/error.h"
#include "launcher/text/jinja/text.h"
#include "launcher/text/strings/utf8.h"

#define MEMORY_LIMIT ((size_t)256 << 20)

trm_status trm_jinja_fail(const trm_jinja_run *run, const char *format, ...)
{
    char text[800];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    size_t size = trm_utf8_valid_prefix(text, strlen(text)); /* a long text may have been cut within a character */
    return trm_fail(TRM_ERROR_INVALID_ARGUMENT, "%s line %d: %.*s", run->name, run->line, (int)size, text);
}

trm_status trm_jinja_charge(trm_jinja_run *run, size_t steps)
{
    if (steps > (size_t)run->steps) {
        run->steps = 0;
        return trm_jinja_fail(run, "the template takes too many steps");
    }
    run->steps -= (int64_t)steps;
    return TRM_OK;
}

trm_status trm_jinja_alloc(trm_jinja_run *run, size_t count, size_t size, void **memory)
{
    *memory = NULL;
    size_t left = run->arena.used < MEMORY_LIMIT ? MEMORY_LIMIT - run->arena.used : 0;
    if (count > left / size) {
        return trm_jinja_fail(run, "the template needs more than %zu MiB of memory", MEMORY_LIMIT >> 20);
    }
    *memory = trm_arena_array(&run->arena, count == 0 ? 1 : count, size);
    return *memory == NULL ? TRM_ERROR_OUT_OF_MEMORY : TRM_OK;
}

trm_jinja_value trm_jinja_literal(const char *text)
{
    return trm_jinja_text(text, strlen(text));
}

bool trm_jinja_is_text(const trm_jinja_value *value, const char *text)
{
    return value->kind == TRM_JINJA_STRING && value->size == strlen(text) &&
           memcmp(value->text, text, value->size) == 0;
}

trm_status trm_jinja_undefined(trm_jinja_run *run, trm_jinja_value *value, const char *format, ...)
{
    char text[200];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    TRM_TRY(trm_jinja_copy_text(run, text, trm_utf8_valid_prefix(text, strlen(text)), value));
    value->kind = TRM_JINJA_UNDEFINED;
    return TRM_OK;
}

trm_status trm_jinja_copy_text(trm_jinja_run *run, const char *text, size_t size, trm_jinja_value *value)
{
    void *copy;
    TRM_TRY(trm_jinja_alloc(run, size, 1, &copy));
    if (size > 0) {
        memcpy(copy, text, size);
    }
    *value = trm_jinja_text(copy, size);
    return TRM_OK;
}

trm_status trm_jinja_take(trm_jinja_run *run, trm_bytes *bytes, trm_status so_far, trm_jinja_value *string)
{
    trm_status status = so_far;
    if (status == TRM_OK) {
        status = trm_jinja_copy_text(run, bytes->data, bytes->size, string);
    }
    trm_bytes_fini(bytes);
    return status;
}

trm_status trm_jinja_new_list(trm_jinja_run *run, trm_jinja_kind kind, size_t capacity, trm_jinja_value *value)
{
    void *list, *items = NULL;
    TRM_TRY(trm_jinja_alloc(run, 1, sizeof(trm_jinja_list), &list));
    if (capacity > 0) {
        TRM_TRY(trm_jinja_alloc(run, capacity, sizeof(trm_jinja_value), &items));
    }
    *(trm_jinja_list *)list = (trm_jinja_list){.items = items, .capacity = capacity};
    *value = (trm_jinja_value){.kind = kind, .list = list};
    return TRM_OK;
}

trm_status trm_jinja_list_append(trm_jinja_run *run, trm_jinja_list *list, const trm_jinja_value *item)
{
    if (list->count == list->capacity) {
        size_t capacity = list->capacity == 0 ? 8 : 2 * list->capacity;
        void *items;
        TRM_TRY(trm_jinja_alloc(run, capacity, sizeof(trm_jinja_value), &items));
        if (list->count > 0) {
            memcpy(items, list->items, list->count * sizeof(*list->items));
        }
        list->items = items;
        list->capacity = capacity;
    }
    list->items[list->count++] = *item;
    return TRM_OK;
}

trm_status trm_jinja_new_map(trm_jinja_run *run, trm_jinja_kind kind, trm_jinja_value *value)
{
    void *map;
    TRM_TRY(trm_jinja_alloc(run, 1, sizeof(trm_jinja_map), &map));
    *value = (trm_jinja_value){.kind = kind, .map = map};
    return TRM_OK;
}

static bool is_hashable(const trm_jinja_value *key, int32_t depth)
{
    if (key->kind == TRM_JINJA_TUPLE) {
        for (size_t i = 0; i < key->list->count; i++) {
            if (depth >= TRM_JINJA_DEPTH || !is_hashable(&key->list->items[i], depth + 1)) {
                return false;
            }
        }
        return true;
    }
    return key->kind != TRM_JINJA_LIST && key->kind != TRM_JINJA_MAP && key->kind != TRM_JINJA_VIEW;
}

static trm_jinja_entry *find_entry(trm_jinja_run *run, const trm_jinja_map *map, const trm_jinja_value *key)
{
    for (size_t i = 0; i < map->count; i++) {
        trm_jinja_entry *entry = &map->entries[i];
        bool same = key->kind == TRM_JINJA_STRING
                        ? entry->key.kind == TRM_JINJA_STRING && entry->key.size == key->size &&
                              memcmp(entry->key.text, key->text, key->size) == 0
                        : trm_jinja_equal(run, &entry->key, key);
        if (same) {
            return entry;
        }
    }
    return NULL;
}

trm_status trm_jinja_map_set(trm_jinja_run *run, trm_jinja_map *map, const trm_jinja_value *key,
                             const trm_jinja_value *value)
{
    if (!is_hashable(key, 0)) {
        return trm_jinja_fail(run, "unhashable type: '%s'", trm_jinja_type_name(key));
    }
    TRM_TRY(trm_jinja_charge(run, map->count / 16));
    trm_jinja_entry *entry = find_entry(run, map, key);
    if (entry != NULL) {
        entry->value = *value;
        return TRM_OK;
    }
    if (map->count == map->capacity) {
        size_t capacity = map->capacity == 0 ? 8 : 2 * map->capacity;
        void *entries;
        TRM_TRY(trm_jinja_alloc(run, capacity, sizeof(trm_jinja_entry), &entries));
        if (map->count > 0) {
            memcpy(entries, map->entries, map->count * sizeof(*map->entries));
        }
        map->entries = entries;
        map->capacity = capacity;
    }
    map->entries[map->count++] = (trm_jinja_entry){*key, *value};
    return TRM_OK;
}

const trm_jinja_value *trm_jinja_map_find(trm_jinja_run *run, const trm_jinja_map *map, const trm_jinja_value *key)
{
    const trm_jinja_entry *entry = find_entry(run, map, key);
    return entry == NULL ? NULL : &entry->value;
}

const trm_jinja_value *trm_jinja_map_get(const trm_jinja_map *map, const char *key)
{
    for (size_t i = 0; i < map->count; i++) {
        if (trm_jinja_is_text(&map->entries[i].key, key)) {
            return &map->entries[i].value;
        }
    }
    return NULL;
}

bool trm_jinja_truth(const trm_jinja_value *value)
{
    switch (value->kind) {
    case TRM_JINJA_UNDEFINED:
    case TRM_JINJA_NONE:
        return false;
    case TRM_JINJA_BOOL:
        return value->truth;
    case TRM_JINJA_INTEGER:
        return value->integer != 0;
    case TRM_JINJA_FLOAT:
        return value->number != 0;
    case TRM_JINJA_STRING:
        return value->size > 0;
    case TRM_JINJA_LIST:
    case TRM_JINJA_TUPLE:
    case TRM_JINJA_RANGE:
    case TRM_JINJA_VIEW:
        return value->list->count > 0;
    case TRM_JINJA_MAP:
        return value->map->count > 0;
    default:
        return true;
    }
}

static bool equal_maps(trm_jinja_run *run, const trm_jinja_map *a, const trm_jinja_map *b)
{
    if (a->count != b->count) {
        return false;
    }
    for (size_t i = 0; i < a->count; i++) {
        const trm_jinja_value *other = trm_jinja_map_find(run, b, &a->entries[i].key);
        if (other == NULL || !trm_jinja_equal(run, &a->entries[i].value, other)) {
            return false;
        }
    }
    return true;
}

static bool equal(trm_jinja_run *run, const trm_jinja_value *a, const trm_jinja_value *b)
{
    if (trm_jinja_is_number(a) && trm_jinja_is_number(b)) {
        if (trm_jinja_is_integer(a) && trm_jinja_is_integer(b)) {
            return trm_jinja_to_integer(a) == trm_jinja_to_integer(b);
        }
        return trm_jinja_to_double(a) == trm_jinja_to_double(b);
    }
    if (a->kind != b->kind) {
        return false;
    }
    switch (a->kind) {
    case TRM_JINJA_UNDEFINED:
    case TRM_JINJA_NONE:
        return true;
    case TRM_JINJA_STRING:
        return a->size == b->size && memcmp(a->text, b->text, a->size) == 0;
    case TRM_JINJA_MAP:
        return a->map == b->map || equal_maps(run, a->map, b->map);
    case TRM_JINJA_LIST:
    case TRM_JINJA_TUPLE:
    case TRM_JINJA_RANGE:
    case TRM_JINJA_VIEW:
        if (a->list->count != b->list->count) {
            return false;
        }
        for (size_t i = 0; i < a->list->count && a->list != b->list; i++) {
            if (!trm_jinja_equal(run, &a->list->items[i], &b->list->items[i])) {
                return false;
            }
        }
        return true;
    default:
        return a->object == b->object;
    }
}

bool trm_jinja_equal(trm_jinja_run *run, const trm_jinja_value *a, const trm_jinja_value *b)
{
    if (run->steps <= 0 || run->depth >= TRM_JINJA_DEPTH) {
        run->steps = 0; /* every later evaluation fails */
        return false;
    }
    run->steps--;
    run->depth++;
    bool same = equal(run, a, b);
    run->depth--;
    return same;
}

static trm_status compare_items(trm_jinja_run *run, const trm_jinja_list *a, const trm_jinja_list *b,
                                const char *operator_text, int *order)
{
    for (size_t i = 0; i < a->count && i < b->count; i++) {
        if (!trm_jinja_equal(run, &a->items[i], &b->items[i])) {
            return trm_jinja_compare(run, &a->items[i], &b->items[i], operator_text, order);
        }
    }
    *order = (a->count > b->count) - (a->count < b->count);
    return TRM_OK;
}

trm_status trm_jinja_compare(trm_jinja_run *run, const trm_jinja_value *a, const trm_jinja_value *b,
                             const char *operator_text, int *order)
{
    TRM_TRY(trm_jinja_charge(run, 1));
    if (trm_jinja_is_integer(a) && trm_jinja_is_integer(b)) {
        int64_t x = trm_jinja_to_integer(a), y = trm_jinja_to_integer(b);
        *order = (x > y) - (x < y);
        return TRM_OK;
    }
    if (trm_jinja_is_number(a) && trm_jinja_is_number(b)) {
        double x = trm_jinja_to_double(a), y = trm_jinja_to_double(b);
        *order = (x > y) - (x < y);
        return TRM_OK;
    }
    if (a->kind == TRM_JINJA_STRING && b->kind == TRM_JINJA_STRING) { /* UTF-8 bytes sort like code points */
        int c = memcmp(a->text, b->text, a->size < b->size ? a->size : b->size);
        *order = c != 0 ? c : (a->size > b->size) - (a->size < b->size);
        return TRM_OK;
    }
    if (a->kind == b->kind && (a->kind == TRM_JINJA_LIST || a->kind == TRM_JINJA_TUPLE)) {
        if (run->depth >= TRM_JINJA_DEPTH) {
            return trm_jinja_fail(run, "a value is nested too deep");
        }
        run->depth++;
        trm_status status = compare_items(run, a->list, b->list, operator_text, order);
        run->depth--;
        return status;
    }
    if (a->kind == TRM_JINJA_UNDEFINED || b->kind == TRM_JINJA_UNDEFINED) {
        const trm_jinja_value *u = a->kind == TRM_JINJA_UNDEFINED ? a : b;
        return trm_jinja_fail(run, "%.*s", (int)u->size, u->text);
    }
    return trm_jinja_fail(run, "'%s' not supported between instances of '%s' and '%s'", operator_text,
                          trm_jinja_type_name(a), trm_jinja_type_name(b));
}

const char *trm_jinja_type_name(const trm_jinja_value *value)
{
    static const char *const names[] = {
        [TRM_JINJA_UNDEFINED] = "Undefined", [TRM_JINJA_NONE] = "NoneType",
        [TRM_JINJA_BOOL] = "bool",           [TRM_JINJA_INTEGER] = "int",
        [TRM_JINJA_FLOAT] = "float",         [TRM_JINJA_STRING] = "str",
        [TRM_JINJA_LIST] = "list",           [TRM_JINJA_TUPLE] = "tuple",
        [TRM_JINJA_RANGE] = "range",         [TRM_JINJA_VIEW] = "dict view",
        [TRM_JINJA_ITERATOR] = "generator",  [TRM_JINJA_MAP] = "dict",
        [TRM_JINJA_NAMESPACE] = "Namespace", [TRM_JINJA_MACRO] = "Macro",
        [TRM_JINJA_FUNCTION] = "function",   [TRM_JINJA_METHOD] = "builtin_function_or_method",
        [TRM_JINJA_LOOP] = "LoopContext",    [TRM_JINJA_CYCLER] = "Cycler",
        [TRM_JINJA_JOINER] = "Joiner",
    };
    return names[value->kind];
}

trm_status trm_jinja_length(trm_jinja_run *run, const trm_jinja_value *value, int64_t *length)
{
    switch (value->kind) {
    case TRM_JINJA_UNDEFINED:
        *length = 0;
        return TRM_OK;
    case TRM_JINJA_STRING:
        TRM_TRY(trm_jinja_charge(run, value->size / 64));
        *length = (int64_t)trm_utf8_count(value->text, value->size);
        return TRM_OK;
    case TRM_JINJA_MAP:
        *length = (int64_t)value->map->count;
        return TRM_OK;
    case TRM_JINJA_LIST:
    case TRM_JINJA_TUPLE:
    case TRM_JINJA_RANGE:
    case TRM_JINJA_VIEW:
        *length = (int64_t)value->list->count;
        return TRM_OK;
    default:
        return trm_jinja_fail(run, "object of type '%s' has no len()", trm_jinja_type_name(value));
    }
}

static trm_status list_characters(trm_jinja_run *run, const trm_jinja_value *string, trm_jinja_list *list)
{
    for (size_t at = 0; at < string->size;) {
        size_t size = trm_utf8_size(string->text[at]);
        trm_jinja_value character = trm_jinja_text(string->text + at, size);
        TRM_TRY(trm_jinja_list_append(run, list, &character));
        at += size;
    }
    return TRM_OK;
}

trm_status trm_jinja_items(trm_jinja_run *run, const trm_jinja_value *value, const trm_jinja_list **items)
{
    trm_jinja_value made;
    if (trm_jinja_is_sequence(value)) {
        *items = value->list;
        if (value->kind == TRM_JINJA_ITERATOR) {
            TRM_TRY(trm_jinja_new_list(run, TRM_JINJA_LIST, 0, &made));
            *made.list = *value->list;
            value->list->count = value->list->capacity = 0;
            *items = made.list;
        }
        return TRM_OK;
    }
    TRM_TRY(trm_jinja_new_list(run, TRM_JINJA_LIST, value->kind == TRM_JINJA_MAP ? value->map->count : 0, &made));
    *items = made.list;
    switch (value->kind) {
    case TRM_JINJA_UNDEFINED:
        return TRM_OK;
    case TRM_JINJA_STRING:
        return list_characters(run, value, made.list);
    case TRM_JINJA_MAP:
        for (size_t i = 0; i < value->map->count; i++) {
            TRM_TRY(trm_jinja_list_append(run, made.list, &value->map->entries[i].key));
        }
        return TRM_OK;
    default:
        return trm_jinja_fail(run, "'%s' object is not iterable", trm_jinja_type_name(value));
    }
}

void trm_jinja_format_float(double number, char text[40])
{
    if (isnan(number) || isinf(number)) {
        snprintf(text, 40, "%s", isnan(number) ? "nan" : number < 0 ? "-inf" : "inf");
        return;
    }
    char digits[40];
    int precision = 1;
    do { /* the fewest digits that read back the same */
        trm_c_snprintf(digits, sizeof(digits), "%.*e", precision - 1, number);
    } while (trm_c_strtod(digits, NULL) != number && precision++ < 17);
    char *e = strchr(digits, 'e');
    long exponent = strtol(e + 1, NULL, 10);
    *e = '\0';
    if (exponent < -4 || exponent >= 16) {
        snprintf(text, 40, "%.30se%c%02d", digits, exponent < 0 ? '-' : '+', (int)labs(exponent) % 1000);
    } else {
        int decimals = (int)strlen(digits) - (number < 0 || signbit(number) ? 2 : 1) - 1 - (int)exponent;
        /* digits is d.ddd: the decimals that remain after the point when the exponent is applied */
        decimals = strchr(digits, '.') == NULL ? -(int)exponent : decimals;
        trm_c_snprintf(text, 40, "%.*f", decimals < 1 ? 1 : decimals, number);
    }
}

/* repr() of a string: quotes chosen as in Python, escapes for unprintable characters. */
static trm_status write_quoted(const trm_jinja_value *string, trm_bytes *out)
{
    bool single = string->size > 0 && memchr(string->text, '\'', string->size) != NULL;
    char quote = single && memchr(string->text, '"', string->size) == NULL ? '"' : '\'';
    TRM_TRY(trm_bytes_append(out, &quote, 1));
    for (size_t at = 0; at < string->size;) {
        size_t size;
        int32_t c = trm_utf8_read(string->text + at, &size);
        char escape[16];
        if (c == quote || c == '\\') {
            snprintf(escape, sizeof(escape), "\\%c", (char)c);
        } else if (c == '\n' || c == '\r' || c == '\t') {
            snprintf(escape, sizeof(escape), "\\%c", c == '\n' ? 'n' : c == '\r' ? 'r' : 't');
        } else if (trm_jinja_is_printable(c)) {
            memcpy(escape, string->text + at, size);
            escape[size] = '\0';
        } else {
            const char *format = c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x";
            snprintf(escape, sizeof(escape), format, (unsigned)c);
        }
        TRM_TRY(trm_bytes_append(out, escape, strlen(escape)));
        at += size;
    }
    return trm_bytes_append(out, &quote, 1);
}

static trm_status write_sequence(trm_jinja_run *run, const trm_jinja_value *value, trm_bytes *out)
{
    const trm_jinja_list *list = value->list;
    if (value->kind == TRM_JINJA_RANGE) {
        char text[100];
        int64_t first = list->count > 0 ? list->items[0].integer : 0;
        int64_t step = list->count > 1 ? list->items[1].integer - first : 1;
        int64_t end = first + (int64_t)list->count * step;
        snprintf(text, sizeof(text), step == 1 ? "range(%lld, %lld)" : "range(%lld, %lld, %lld)", (long long)first,
                 (long long)end, (long long)step);
        return trm_bytes_append(out, text, strlen(text));
    }
    if (value->kind == TRM_JINJA_VIEW) {
        TRM_TRY(trm_bytes_append(out, list->view, strlen(list->view)));
        TRM_TRY(trm_bytes_append(out, "(", 1));
    }
    TRM_TRY(trm_bytes_append(out, value->kind == TRM_JINJA_TUPLE ? "(" : "[", 1));
    for (size_t i = 0; i < list->count; i++) {
        TRM_TRY(trm_bytes_append(out, ", ", i > 0 ? 2 : 0));
        TRM_TRY(trm_jinja_write_repr(run, &list->items[i], out));
    }
    const char *end = value->kind == TRM_JINJA_TUPLE  ? list->count == 1 ? ",)" : ")"
                      : value->kind == TRM_JINJA_VIEW ? "])"
                                                      : "]";
    return trm_bytes_append(out, end, strlen(end));
}

static trm_status write_map(trm_jinja_run *run, const trm_jinja_map *map, trm_bytes *out)
{
    TRM_TRY(trm_bytes_append(out, "{", 1));
    for (size_t i = 0; i < map->count; i++) {
        TRM_TRY(trm_bytes_append(out, ", ", i > 0 ? 2 : 0));
        TRM_TRY(trm_jinja_write_repr(run, &map->entries[i].key, out));
        TRM_TRY(trm_bytes_append(out, ": ", 2));
        TRM_TRY(trm_jinja_write_repr(run, &map->entries[i].value, out));
    }
    return trm_bytes_append(out, "}", 1);
}

static trm_status write_nested(trm_jinja_run *run, const trm_jinja_value *value, trm_bytes *out)
{
    if (run->depth >= TRM_JINJA_DEPTH) {
        return trm_jinja_fail(run, "a value is nested too deep");
    }
    run->depth++;
    trm_status status =
        value->kind == TRM_JINJA_MAP ? write_map(run, value->map, out) : write_sequence(run, value, out);
    run->depth--;
    return status;
}

trm_status trm_jinja_write_repr(trm_jinja_run *run, const trm_jinja_value *value, trm_bytes *out)
{
    TRM_TRY(trm_jinja_charge(run, 1));
    return value->kind == TRM_JINJA_STRING      ? write_quoted(value, out)
           : value->kind == TRM_JINJA_UNDEFINED ? trm_bytes_append(out, "Undefined", 9)
                                                : trm_jinja_write(run, value, out);
}

trm_status trm_jinja_write(trm_jinja_run *run, const trm_jinja_value *value, trm_bytes *out)
{
    char text[40];
    switch (value->kind) {
    case TRM_JINJA_UNDEFINED:
        return TRM_OK;
    case TRM_JINJA_NONE:
        return trm_bytes_append(out, "None", 4);
    case TRM_JINJA_BOOL:
        return trm_bytes_append(out, value->truth ? "True" : "False", value->truth ? 4 : 5);
    case TRM_JINJA_INTEGER:
        snprintf(text, sizeof(text), "%lld", (long long)value->integer);
        return trm_bytes_append(out, text, strlen(text));
    case TRM_JINJA_FLOAT:
        trm_jinja_format_float(value->number, text);
        return trm_bytes_append(out, text, strlen(text));
    case TRM_JINJA_STRING:
        return trm_bytes_append(out, value->text, value->size);
    case TRM_JINJA_LIST:
    case TRM_JINJA_TUPLE:
    case TRM_JINJA_RANGE:
    case TRM_JINJA_VIEW:
    case TRM_JINJA_MAP:
        return write_nested(run, value, out);
    case TRM_JINJA_ITERATOR:
        return trm_jinja_fail(run, "a generator has no text, make it a list first");
    default:
        return trm_jinja_fail(run, "a %s has no text", trm_jinja_type_name(value));
    }
}

trm_status trm_jinja_string(trm_jinja_run *run, const trm_jinja_value *value, trm_jinja_value *string)
{
    if (value->kind == TRM_JINJA_STRING) {
        *string = *value;
        return TRM_OK;
    }
    trm_bytes text = {0};
    trm_status status = trm_bytes_reserve(&text, 1);
    if (status == TRM_OK) {
        status = trm_jinja_write(run, value, &text);
    }
    return trm_jinja_take(run, &text, status, string);
}
