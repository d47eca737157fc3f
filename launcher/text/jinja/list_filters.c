/* Filters on sequences and mappings. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "launcher/text/jinja/builtin.h"
#include "launcher/text/jinja/parser.h"
#include "launcher/text/jinja/string.h"
#include "launcher/text/strings/utf8.h"

/* Attribute "address.city.0" of an item, numbers as indices; NULL: the item. An undefined part becomes `otherwise`, if
 * given. */
static trm_status get_path(trm_jinja_run *run, const trm_jinja_value *item, const trm_jinja_value *path,
                           const trm_jinja_value *otherwise, trm_jinja_value *value)
{
    *value = *item;
    if (path == NULL || path->kind == TRM_JINJA_NONE) {
        return TRM_OK;
    }
    if (path->kind != TRM_JINJA_STRING) {
        const trm_jinja_value object = *value;
        return trm_jinja_item(run, &object, path, value);
    }
    for (size_t at = 0; at <= path->size;) {
        const char *dot = memchr(path->text + at, '.', path->size - at);
        size_t size = dot == NULL ? path->size - at : (size_t)(dot - path->text) - at;
        trm_jinja_value part = trm_jinja_text(path->text + at, size);
        if (size > 0 && size < 18 && strspn(part.text, "0123456789") >= size) {
            int64_t index = 0;
            for (size_t i = 0; i < size; i++) {
                index = index * 10 + (part.text[i] - '0');
            }
            part = trm_jinja_integer(index);
        }
        const trm_jinja_value object = *value;
        TRM_TRY(trm_jinja_item(run, &object, &part, value));
        if (value->kind == TRM_JINJA_UNDEFINED && otherwise != NULL && otherwise->kind != TRM_JINJA_NONE) {
            *value = *otherwise;
        }
        at += size + 1;
    }
    return TRM_OK;
}

static trm_status lower_text(trm_jinja_run *run, trm_jinja_value *value)
{
    const trm_jinja_value text = *value;
    return text.kind == TRM_JINJA_STRING ? trm_jinja_recase(run, &text, TRM_JINJA_LOWER, value) : TRM_OK;
}

static trm_status self_items(trm_jinja_call *call, const trm_jinja_list **items)
{
    return trm_jinja_items(call->run, call->self, items);
}

static trm_status new_result(trm_jinja_call *call, trm_jinja_kind kind)
{
    return trm_jinja_new_list(call->run, kind, 0, call->result);
}

static trm_status append(trm_jinja_call *call, const trm_jinja_value *item)
{
    TRM_TRY(trm_jinja_charge(call->run, 1));
    return trm_jinja_list_append(call->run, call->result->list, item);
}

static trm_status filter_first(trm_jinja_call *call)
{
    const trm_jinja_list *items;
    TRM_TRY(self_items(call, &items));
    if (items->count == 0) {
        return trm_jinja_undefined(call->run, call->result, "no first item, sequence was empty");
    }
    *call->result = items->items[0];
    return TRM_OK;
}

static trm_status filter_last(trm_jinja_call *call)
{
    const trm_jinja_list *items;
    if (call->self->kind == TRM_JINJA_ITERATOR) {
        return trm_jinja_fail(call->run, "'generator' object is not reversible");
    }
    TRM_TRY(self_items(call, &items));
    if (items->count == 0) {
        return trm_jinja_undefined(call->run, call->result, "no last item, sequence was empty");
    }
    *call->result = items->items[items->count - 1];
    return TRM_OK;
}

static trm_status copy_items(trm_jinja_call *call, trm_jinja_kind kind, bool backwards)
{
    const trm_jinja_list *items;
    TRM_TRY(self_items(call, &items));
    TRM_TRY(trm_jinja_new_list(call->run, kind, items->count, call->result));
    for (size_t i = 0; i < items->count; i++) {
        TRM_TRY(append(call, &items->items[backwards ? items->count - 1 - i : i]));
    }
    return TRM_OK;
}

static trm_status filter_list(trm_jinja_call *call)
{
    return copy_items(call, TRM_JINJA_LIST, false);
}

static trm_status filter_reverse(trm_jinja_call *call)
{
    TRM_TRY(copy_items(call, TRM_JINJA_ITERATOR, true));
    if (call->self->kind == TRM_JINJA_STRING) {
        const trm_jinja_value nothing = trm_jinja_text("", 0);
        const trm_jinja_list *characters = call->result->list;
        return trm_jinja_join(call->run, characters, &nothing, call->result);
    }
    return TRM_OK;
}

static trm_status filter_join(trm_jinja_call *call)
{
    const trm_jinja_list *items;
    trm_jinja_value separator, parts;
    TRM_TRY(self_items(call, &items));
    TRM_TRY(trm_jinja_bound_text(call, 0, "", &separator));
    if (call->bound[1] != NULL) {
        TRM_TRY(trm_jinja_new_list(call->run, TRM_JINJA_LIST, items->count, &parts));
        for (size_t i = 0; i < items->count; i++) {
            trm_jinja_value part;
            TRM_TRY(get_path(call->run, &items->items[i], call->bound[1], NULL, &part));
            TRM_TRY(trm_jinja_list_append(call->run, parts.list, &part));
        }
        items = parts.list;
    }
    return trm_jinja_join(call->run, items, &separator, call->result);
}

static const trm_jinja_value *find_keyword(const trm_jinja_args *args, const char *name)
{
    for (size_t i = 0; i < args->n_keywords; i++) {
        if (trm_jinja_is_text(&args->keywords[i].name, name)) {
            return &args->keywords[i].value;
        }
    }
    return NULL;
}

/* The arguments after the first `n`. */
static trm_jinja_args rest_of(const trm_jinja_args *args, size_t n)
{
    trm_jinja_args rest = *args;
    n = n < args->count ? n : args->count;
    rest.items = n > 0 ? args->items + n : args->items;
    rest.count -= n;
    return rest;
}

/* map(attribute="name", default=...) or map("filter", arguments...). */
static trm_status filter_map(trm_jinja_call *call)
{
    const trm_jinja_list *items;
    const trm_jinja_args *args = call->args;
    const trm_jinja_value *attribute = args->count == 0 ? find_keyword(args, "attribute") : NULL;
    const trm_jinja_builtin *filter = NULL;
    if (!trm_jinja_truth(call->self)) { /* Jinja2 ignores everything else then, even whether this is iterable */
        return new_result(call, TRM_JINJA_ITERATOR);
    }
    if (attribute == NULL) {
        if (args->count == 0) {
            return trm_jinja_fail(call->run, "map requires a filter argument");
        }
        filter = args->items[0].kind == TRM_JINJA_STRING ? trm_jinja_find_filter(&args->items[0]) : NULL;
        if (filter == NULL) {
            return trm_jinja_fail(call->run, "map was given an unknown filter");
        }
    }
    const trm_jinja_args rest = rest_of(args, 1);
    TRM_TRY(self_items(call, &items));
    TRM_TRY(new_result(call, TRM_JINJA_ITERATOR));
    for (size_t i = 0; i < items->count; i++) {
        trm_jinja_value value;
        TRM_TRY(attribute != NULL
                    ? get_path(call->run, &items->items[i], attribute, find_keyword(args, "default"), &value)
                    : trm_jinja_call_builtin(call->run, filter, &items->items[i], &rest, &value));
        TRM_TRY(append(call, &value));
    }
    return TRM_OK;
}

enum { KEEP = 1, BY_ATTRIBUTE = 2, GREATEST = 1 }; /* variants of choose, and of extreme */

/* select and reject, and with BY_ATTRIBUTE selectattr and rejectattr: by a named test with its arguments, or by truth.
 */
static trm_status choose(trm_jinja_call *call)
{
    bool keep = (call->way & KEEP) != 0, by_attribute = (call->way & BY_ATTRIBUTE) != 0;
    const trm_jinja_list *items;
    size_t skipped = by_attribute ? 1 : 0;
    if (!trm_jinja_truth(call->self)) {
        return new_result(call, TRM_JINJA_ITERATOR);
    }
    if (call->args->count < skipped) {
        return trm_jinja_fail(call->run, "missing parameter for attribute name");
    }
    const trm_jinja_value *attribute = by_attribute ? &call->args->items[0] : NULL;
    const trm_jinja_value *name = call->args->count > skipped ? &call->args->items[skipped] : NULL;
    const trm_jinja_builtin *test = NULL;
    if (name != NULL) {
        test = name->kind == TRM_JINJA_STRING ? trm_jinja_find_test(name) : NULL;
        if (test == NULL) {
            return trm_jinja_fail(call->run, "there is no test of the given name");
        }
    }
    const trm_jinja_args rest = rest_of(call->args, skipped + 1);
    TRM_TRY(self_items(call, &items));
    TRM_TRY(new_result(call, TRM_JINJA_ITERATOR));
    for (size_t i = 0; i < items->count; i++) {
        trm_jinja_value value, holds;
        TRM_TRY(get_path(call->run, &items->items[i], attribute, NULL, &value));
        holds = value;
        if (test != NULL) {
            TRM_TRY(trm_jinja_call_builtin(call->run, test, &value, &rest, &holds));
        }
        if (trm_jinja_truth(&holds) == keep) {
            TRM_TRY(append(call, &items->items[i]));
        }
    }
    return TRM_OK;
}

typedef struct sort_item {
    trm_jinja_value key, value;
} sort_item;

/* Stable; items with equal keys keep their order even in reverse. */
static trm_status merge_sort(trm_jinja_run *run, sort_item *items, sort_item *spare, size_t count, bool reverse)
{
    if (count < 2) {
        return TRM_OK;
    }
    size_t half = count / 2, a = 0, b = half, n = 0;
    TRM_TRY(merge_sort(run, items, spare, half, reverse));
    TRM_TRY(merge_sort(run, items + half, spare, count - half, reverse));
    while (a < half || b < count) {
        int order = a == half ? 1 : b == count ? -1 : 0;
        if (order == 0) {
            TRM_TRY(trm_jinja_compare(run, &items[b].key, &items[a].key, "<", &order));
            order = reverse ? (order > 0 ? 1 : -1) : (order < 0 ? 1 : -1);
        }
        spare[n++] = order > 0 ? items[b++] : items[a++];
    }
    memcpy(items, spare, count * sizeof(*items));
    return TRM_OK;
}

/* The sort key of an item: its attributes "a,b", in lower case unless case matters. */
static trm_status sort_key(trm_jinja_run *run, const trm_jinja_value *item, const trm_jinja_value *paths,
                           bool case_sensitive, trm_jinja_value *key)
{
    TRM_TRY(trm_jinja_new_list(run, TRM_JINJA_LIST, 1, key));
    size_t at = 0;
    do {
        trm_jinja_value path, value;
        if (paths != NULL && paths->kind == TRM_JINJA_STRING) {
            const char *comma = memchr(paths->text + at, ',', paths->size - at);
            size_t size = comma == NULL ? paths->size - at : (size_t)(comma - paths->text) - at;
            path = trm_jinja_text(paths->text + at, size);
            at += size + 1;
        } else {
            path = paths == NULL ? trm_jinja_none() : *paths;
        }
        TRM_TRY(get_path(run, item, &path, NULL, &value));
        TRM_TRY(case_sensitive ? TRM_OK : lower_text(run, &value));
        TRM_TRY(trm_jinja_list_append(run, key->list, &value));
    } while (paths != NULL && paths->kind == TRM_JINJA_STRING && at <= paths->size);
    return TRM_OK;
}

static trm_status sort_into(trm_jinja_call *call, sort_item *items, size_t count, bool reverse)
{
    void *spare;
    TRM_TRY(trm_jinja_alloc(call->run, count, sizeof(*items), &spare));
    TRM_TRY(merge_sort(call->run, items, spare, count, reverse));
    TRM_TRY(new_result(call, TRM_JINJA_LIST));
    for (size_t i = 0; i < count; i++) {
        TRM_TRY(append(call, &items[i].value));
    }
    return TRM_OK;
}

static trm_status filter_sort(trm_jinja_call *call)
{
    const trm_jinja_list *list;
    void *memory;
    TRM_TRY(self_items(call, &list));
    TRM_TRY(trm_jinja_alloc(call->run, list->count, sizeof(sort_item), &memory));
    sort_item *items = memory;
    for (size_t i = 0; i < list->count; i++) {
        items[i].value = list->items[i];
        TRM_TRY(
            sort_key(call->run, &list->items[i], call->bound[2], trm_jinja_bound_truth(call, 1, false), &items[i].key));
    }
    return sort_into(call, items, list->count, trm_jinja_bound_truth(call, 0, false));
}

static trm_status need_map(const trm_jinja_call *call)
{
    return call->self->kind == TRM_JINJA_MAP
               ? TRM_OK
               : trm_jinja_fail(call->run, "expected a mapping, found '%s'", trm_jinja_type_name(call->self));
}

static trm_status new_pair(trm_jinja_run *run, const trm_jinja_entry *entry, trm_jinja_value *pair)
{
    TRM_TRY(trm_jinja_new_list(run, TRM_JINJA_TUPLE, 2, pair));
    TRM_TRY(trm_jinja_list_append(run, pair->list, &entry->key));
    return trm_jinja_list_append(run, pair->list, &entry->value);
}

static trm_status filter_dictsort(trm_jinja_call *call)
{
    trm_jinja_value by;
    void *memory;
    TRM_TRY(need_map(call));
    TRM_TRY(trm_jinja_bound_text(call, 1, "key", &by));
    if (!trm_jinja_is_text(&by, "key") && !trm_jinja_is_text(&by, "value")) {
        return trm_jinja_fail(call->run, "dictsort can only sort by key or value");
    }
    const trm_jinja_map *map = call->self->map;
    TRM_TRY(trm_jinja_alloc(call->run, map->count, sizeof(sort_item), &memory));
    sort_item *items = memory;
    for (size_t i = 0; i < map->count; i++) {
        TRM_TRY(new_pair(call->run, &map->entries[i], &items[i].value));
        items[i].key = trm_jinja_is_text(&by, "key") ? map->entries[i].key : map->entries[i].value;
        TRM_TRY(trm_jinja_bound_truth(call, 0, false) ? TRM_OK : lower_text(call->run, &items[i].key));
    }
    return sort_into(call, items, map->count, trm_jinja_bound_truth(call, 2, false));
}

static trm_status filter_items(trm_jinja_call *call)
{
    TRM_TRY(new_result(call, TRM_JINJA_ITERATOR));
    if (call->self->kind == TRM_JINJA_UNDEFINED) {
        return TRM_OK;
    }
    TRM_TRY(need_map(call));
    for (size_t i = 0; i < call->self->map->count; i++) {
        trm_jinja_value pair;
        TRM_TRY(new_pair(call->run, &call->self->map->entries[i], &pair));
        TRM_TRY(append(call, &pair));
    }
    return TRM_OK;
}

static trm_status filter_unique(trm_jinja_call *call)
{
    const trm_jinja_list *items;
    trm_jinja_value seen;
    TRM_TRY(self_items(call, &items));
    TRM_TRY(trm_jinja_new_map(call->run, TRM_JINJA_MAP, &seen)); /* as it refuses unhashable values */
    TRM_TRY(new_result(call, TRM_JINJA_ITERATOR));
    for (size_t i = 0; i < items->count; i++) {
        trm_jinja_value key;
        TRM_TRY(get_path(call->run, &items->items[i], call->bound[1], NULL, &key));
        TRM_TRY(trm_jinja_bound_truth(call, 0, false) ? TRM_OK : lower_text(call->run, &key));
        size_t before = seen.map->count;
        TRM_TRY(trm_jinja_map_set(call->run, seen.map, &key, &key));
        if (seen.map->count > before) {
            TRM_TRY(append(call, &items->items[i]));
        }
    }
    return TRM_OK;
}

static trm_status extreme(trm_jinja_call *call)
{
    bool greatest = call->way == GREATEST;
    const trm_jinja_list *items;
    TRM_TRY(self_items(call, &items));
    if (items->count == 0) {
        return trm_jinja_undefined(call->run, call->result, "no aggregated item, sequence was empty");
    }
    trm_jinja_value best;
    for (size_t i = 0; i < items->count; i++) {
        trm_jinja_value key;
        int order = 1;
        TRM_TRY(get_path(call->run, &items->items[i], call->bound[1], NULL, &key));
        TRM_TRY(trm_jinja_bound_truth(call, 0, false) ? TRM_OK : lower_text(call->run, &key));
        if (i > 0) {
            TRM_TRY(trm_jinja_compare(call->run, &key, &best, greatest ? ">" : "<", &order));
            order = greatest ? order : -order;
        }
        if (order > 0) {
            best = key;
            *call->result = items->items[i];
        }
    }
    return TRM_OK;
}

static trm_status filter_sum(trm_jinja_call *call)
{
    const trm_jinja_list *items;
    TRM_TRY(self_items(call, &items));
    trm_jinja_value sum = call->bound[1] != NULL ? *call->bound[1] : trm_jinja_integer(0);
    for (size_t i = 0; i < items->count; i++) {
        trm_jinja_value item;
        const trm_jinja_value before = sum;
        TRM_TRY(trm_jinja_charge(call->run, 1));
        TRM_TRY(get_path(call->run, &items->items[i], call->bound[0], NULL, &item));
        TRM_TRY(trm_jinja_binary(call->run, TRM_JINJA_ADD, &before, &item, &sum));
    }
    *call->result = sum;
    return TRM_OK;
}

static trm_status filter_batch(trm_jinja_call *call)
{
    const trm_jinja_list *items;
    int64_t size = 0;
    TRM_TRY(self_items(call, &items));
    TRM_TRY(trm_jinja_bound_integer(call, 0, &size));
    if (size < 1 || size > 100000) {
        return trm_jinja_fail(call->run, "batch needs a size from 1 to 100000");
    }
    TRM_TRY(new_result(call, TRM_JINJA_ITERATOR));
    for (size_t i = 0; i < items->count; i += (size_t)size) {
        trm_jinja_value row;
        TRM_TRY(trm_jinja_new_list(call->run, TRM_JINJA_LIST, 0, &row));
        for (size_t k = i; k < i + (size_t)size; k++) {
            bool fill = k >= items->count && call->bound[1] != NULL && call->bound[1]->kind != TRM_JINJA_NONE;
            if (k < items->count || fill) {
                TRM_TRY(trm_jinja_charge(call->run, 1));
                TRM_TRY(trm_jinja_list_append(call->run, row.list, fill ? call->bound[1] : &items->items[k]));
            }
        }
        TRM_TRY(append(call, &row));
    }
    return TRM_OK;
}

static trm_status filter_attr(trm_jinja_call *call)
{
    if (call->bound[0]->kind != TRM_JINJA_STRING) {
        return trm_jinja_fail(call->run, "attr needs the name of an attribute");
    }
    const trm_jinja_builtin *method = trm_jinja_find_method(call->self, call->bound[0]);
    if (method != NULL) {
        return trm_jinja_bind_method(call->run, call->self, method, call->result);
    }
    if (call->self->kind == TRM_JINJA_NAMESPACE || call->self->kind == TRM_JINJA_LOOP) {
        return trm_jinja_attribute(call->run, call->self, call->bound[0], call->result);
    }
    return trm_jinja_undefined(call->run, call->result, "'%s' object has no such attribute",
                               trm_jinja_type_name(call->self));
}

const trm_jinja_builtin trm_jinja_list_filters[] = {
    {"first", filter_first, 0, "", 0},
    {"last", filter_last, 0, "", 0},
    {"list", filter_list, 0, "", 0},
    {"reverse", filter_reverse, 0, "", 0},
    {"join", filter_join, 0, "d attribute", 0},
    {"map", filter_map, 0, NULL, 0},
    {"select", choose, 0, NULL, KEEP},
    {"reject", choose, 0, NULL, 0},
    {"selectattr", choose, 0, NULL, KEEP | BY_ATTRIBUTE},
    {"rejectattr", choose, 0, NULL, BY_ATTRIBUTE},
    {"sort", filter_sort, 0, "reverse case_sensitive attribute", 0},
    {"dictsort", filter_dictsort, 0, "case_sensitive by reverse", 0},
    {"items", filter_items, 0, "", 0},
    {"unique", filter_unique, 0, "case_sensitive attribute", 0},
    {"min", extreme, 0, "case_sensitive attribute", 0},
    {"max", extreme, 0, "case_sensitive attribute", GREATEST},
    {"sum", filter_sum, 0, "attribute start", 0},
    {"batch", filter_batch, 1, "linecount fill_with", 0},
    {"attr", filter_attr, 1, "name", 0},
};
const size_t trm_jinja_n_list_filters = sizeof(trm_jinja_list_filters) / sizeof(trm_jinja_list_filters[0]);
