/* Arrays of JSON schemas: items by position and behind them, contains, items that differ. */
#include "launcher/text/grammar/schema.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

#define MAX_POSITIONS 1000 /* rules for positions, times those for what is contained */
#define MAX_CONTAINS  3
#define MAX_DISTINCT  10 /* values, any set of which may be left */

/* What is known of the items of a case. */
typedef struct array_reader {
    schema_reader *reader;
    const schema_case *c;
    const schema_item **contains;
    size_t n_contains;
    int32_t n_prefix; /* items whose schemas differ by position */
    int32_t *rules;   /* [positions, counts] or -1 */
    int32_t positions, counts;
} array_reader;

static const trm_json *prefix_of(const trm_json *schema)
{
    const trm_json *prefix = trm_schema_member(schema, "prefixItems"), *items = trm_schema_member(schema, "items");
    return trm_json_is_array(prefix) ? prefix : trm_json_is_array(items) ? items : NULL; /* the form before 2020 */
}

/* The schema of items behind those by position; NULL: any. */
static const trm_json *rest_of(const trm_json *schema)
{
    const trm_json *items = trm_schema_member(schema, "items");
    return trm_json_is_array(items) ? trm_schema_member(schema, "additionalItems") : items;
}

/* Whether a schema below unevaluatedItems speaks of an item. */
static bool is_evaluated(const schema_case *c, const schema_item *rest, int32_t position)
{
    for (const schema_item *item = c->arrays; item != NULL; item = item->next) {
        if (!item->negated && trm_schema_is_below(item->scope, rest->scope) &&
            (rest_of(item->schema) != NULL || position < (int32_t)trm_json_count(prefix_of(item->schema)))) {
            return true;
        }
    }
    for (const schema_item *item = c->rest_items; item != NULL; item = item->next) {
        if (item != rest && trm_schema_is_below(item->scope, rest->scope)) {
            return true;
        }
    }
    return false;
}

/* The schemas of the item at a position; those from n_prefix on are alike. */
static schema_part *parts_at(const array_reader *a, int32_t position, size_t *count)
{
    size_t capacity = MAX_CONTAINS, n = 0;
    for (const schema_item *item = a->c->arrays; item != NULL; item = item->next) {
        capacity++;
    }
    for (const schema_item *item = a->c->rest_items; item != NULL; item = item->next) {
        capacity++;
    }
    schema_part *parts = trm_arena_array(&a->reader->tree->arena, capacity, sizeof(*parts));
    *count = 0;
    if (parts == NULL) {
        a->reader->tree->status = TRM_ERROR_OUT_OF_MEMORY;
        return NULL;
    }
    size_t n_items;
    const schema_item **items = trm_schema_in_order(a->reader, a->c->arrays, &n_items);
    for (size_t i = 0; i < n_items; i++) {
        const trm_json *prefix = items[i]->negated ? NULL : prefix_of(items[i]->schema);
        const trm_json *schema = items[i]->negated                            ? items[i]->schema
                                 : position < (int32_t)trm_json_count(prefix) ? trm_json_at(prefix, (size_t)position)
                                                                              : rest_of(items[i]->schema);
        if (schema != NULL) {
            parts[n++] = (schema_part){schema, items[i]->negated};
        }
    }
    for (const schema_item *item = a->c->rest_items; item != NULL; item = item->next) {
        if (!is_evaluated(a->c, item, position)) {
            parts[n++] = (schema_part){item->schema, false};
        }
    }
    *count = n;
    return parts;
}

static trm_grammar_node *item_at(const array_reader *a, int32_t position)
{
    size_t count;
    schema_part *parts = parts_at(a, position, &count);
    return parts == NULL ? NULL : trm_schema_call(a->reader, parts, count);
}

/* item ("," space item){..} with min to max items in all. */
static trm_grammar_node *repeated(schema_reader *reader, trm_grammar_node *item, int32_t min, int32_t max)
{
    trm_grammar_tree *tree = reader->tree;
    if (max == 0) {
        return trm_grammar_literal(tree, "");
    }
    trm_grammar_node *more = trm_schema_comma_before(reader, trm_grammar_copy(tree, item));
    trm_grammar_node *list = trm_grammar_sequence(
        tree, 2, item, trm_grammar_repeat(tree, more, min > 1 ? min - 1 : 0, max < 0 ? -1 : max - 1));
    return min > 0 ? list : trm_grammar_repeat(tree, list, 0, 1);
}

/* Items by position and then repeated ones, built from the last backwards. */
static trm_grammar_node *by_position(const array_reader *a)
{
    schema_reader *reader = a->reader;
    trm_grammar_tree *tree = reader->tree;
    const int32_t min = a->c->min_items, max = a->c->max_items;
    const int32_t count = max >= 0 && max < a->n_prefix ? max : a->n_prefix;
    if (a->n_prefix == 0) {
        return repeated(reader, item_at(a, 0), min, max);
    }
    trm_grammar_node *tail = trm_grammar_literal(tree, "");
    if (max < 0 || max > count) {
        tail = trm_grammar_repeat(tree, trm_schema_comma_before(reader, item_at(a, count)),
                                  min > count ? min - count : 0, max < 0 ? -1 : max - count);
    }
    for (int32_t i = count - 1; i >= 0 && tree->status == TRM_OK; i--) {
        trm_grammar_node *item = item_at(a, i);
        int32_t rule = i % 16 == 15 ? trm_grammar_add_rule(tree, "(items)", 7) : -1;
        if (rule >= 0) { /* or the expression grows deep */
            tree->rules[rule].node = tail;
            tail = trm_grammar_call(tree, rule);
        }
        tail = trm_grammar_sequence(tree, 2, i > 0 ? trm_schema_comma_before(reader, item) : item, tail);
        if (i >= min) {
            tail = trm_grammar_repeat(tree, tail, 0, 1);
        }
    }
    return tail;
}

/* ---- contains ---- */

/* How many of contains[which] a number of counts has, and the number with one more. */
static int32_t most_of(const schema_item *item)
{
    return item->max >= 0 ? item->max + 1 : item->min;
}

static int32_t count_of(const array_reader *a, int32_t counts, size_t which, int32_t *step)
{
    *step = 1;
    for (size_t i = 0; i < which; i++) {
        counts /= most_of(a->contains[i]) + 1;
        *step *= most_of(a->contains[i]) + 1;
    }
    return counts % (most_of(a->contains[which]) + 1);
}

/* The rule of what follows `position` items (those beyond the last position are alike) with what they contain. */
static trm_grammar_node *containing(array_reader *a, int32_t position, int32_t counts)
{
    schema_reader *reader = a->reader;
    trm_grammar_tree *tree = reader->tree;
    int32_t *rule = &a->rules[position * a->counts + counts], step;
    if (*rule >= 0 || !trm_schema_work(reader, 10)) {
        return *rule < 0 ? NULL : trm_grammar_call(tree, *rule);
    }
    *rule = trm_grammar_add_rule(tree, "(items)", 7);
    if (*rule < 0) {
        return NULL;
    }
    trm_grammar_node *list = trm_grammar_list(tree, TRM_GRAMMAR_ANY_OF);
    bool complete = position >= a->c->min_items;
    for (size_t i = 0; i < a->n_contains; i++) {
        complete = complete && count_of(a, counts, i, &step) >= a->contains[i]->min;
    }
    if (complete) {
        trm_grammar_append(tree, list, trm_grammar_literal(tree, ""));
    }
    const bool full = a->c->max_items >= 0 && position >= a->c->max_items;
    const int32_t next = position + 1 < a->positions ? position + 1 : position;
    for (uint32_t chosen = 0; chosen < 1u << a->n_contains && !full && tree->status == TRM_OK; chosen++) {
        size_t count;
        schema_part *parts = parts_at(a, position, &count);
        int32_t after = counts;
        bool possible = parts != NULL;
        for (size_t i = 0; i < a->n_contains && possible; i++) {
            const schema_item *item = a->contains[i];
            const int32_t has = count_of(a, counts, i, &step);
            if ((chosen >> i & 1) != 0) {
                parts[count++] = (schema_part){item->schema, item->negated};
                possible = item->max < 0 || has < item->max;
                after += has < most_of(item) ? step : 0;
            } else if (item->max >= 0) {
                parts[count++] = (schema_part){item->schema, !item->negated};
            }
        }
        if (possible) {
            trm_grammar_node *item = trm_schema_call(reader, parts, count);
            item = position > 0 ? trm_schema_comma_before(reader, item) : item;
            trm_grammar_append(tree, list, trm_grammar_sequence(tree, 2, item, containing(a, next, after)));
        }
    }
    if (tree->status == TRM_OK) {
        tree->rules[*rule].node = list;
    }
    return trm_grammar_call(tree, *rule);
}

static trm_grammar_node *with_contains(array_reader *a)
{
    schema_reader *reader = a->reader;
    int64_t counts = 1, positions = a->n_prefix;
    for (size_t i = 0; i < a->n_contains; i++) {
        counts *= most_of(a->contains[i]) + 1;
        if (counts > MAX_POSITIONS) {
            return trm_schema_fail(reader, TRM_ERROR_UNSUPPORTED, a->contains[i]->schema,
                                   "contains with such counts is not supported");
        }
    }
    positions = a->c->min_items > positions ? a->c->min_items : positions;
    positions = a->c->max_items > positions ? a->c->max_items : positions;
    positions = (positions > 0 ? positions : 1) + 1;
    if (positions * counts > MAX_POSITIONS) {
        return trm_schema_fail(reader, TRM_ERROR_UNSUPPORTED, a->contains[0]->schema,
                               "contains with that many items is not supported");
    }
    a->positions = (int32_t)positions;
    a->counts = (int32_t)counts;
    a->rules = trm_arena_array(&reader->tree->arena, (size_t)(positions * counts), sizeof(*a->rules));
    if (a->rules == NULL) {
        reader->tree->status = TRM_ERROR_OUT_OF_MEMORY;
        return NULL;
    }
    memset(a->rules, 0xff, (size_t)(positions * counts) * sizeof(*a->rules));
    return containing(a, 0, 0);
}

/* ---- items that differ ---- */

/* All values that an item may have, if they are few; false if they are not known. */
static bool list_values(const array_reader *a, const trm_json **values, size_t *count)
{
    size_t n_parts;
    schema_part *parts = parts_at(a, 0, &n_parts);
    schema_cases cases = {0};
    bool known = a->n_prefix == 0 && parts != NULL && n_parts > 0;
    *count = 0;
    if (known) {
        trm_schema_find_cases(a->reader, parts, n_parts, &cases);
    }
    for (size_t i = 0; i < cases.count && known; i++) {
        const schema_case *c = &cases.items[i];
        known = c->has_values;
        for (const trm_json *value = !known        ? NULL
                                     : c->is_const ? c->values
                                                   : trm_json_first(c->values);
             value != NULL && known; value = c->is_const ? NULL : trm_json_next(value)) {
            bool allowed = true, listed = false;
            for (size_t k = 0; k < n_parts && allowed; k++) {
                allowed = trm_schema_matches(a->reader, &parts[k], value);
            }
            for (size_t k = 0; k < *count; k++) {
                listed |= trm_schema_equal(values[k], value);
            }
            known = !allowed || listed || *count < MAX_DISTINCT;
            if (allowed && !listed && known) {
                values[(*count)++] = value;
            }
        }
    }
    free(cases.items);
    return known && a->reader->tree->status == TRM_OK;
}

/* The rule of what follows when values[i] has come for each bit i of `used`. */
static trm_grammar_node *distinct(array_reader *a, const trm_json *const *values, size_t count, uint32_t used)
{
    schema_reader *reader = a->reader;
    trm_grammar_tree *tree = reader->tree;
    const int32_t n_used = __builtin_popcount(used);
    if (a->rules[used] >= 0) {
        return trm_grammar_call(tree, a->rules[used]);
    }
    a->rules[used] = trm_grammar_add_rule(tree, "(items)", 7);
    if (a->rules[used] < 0) {
        return NULL;
    }
    trm_grammar_node *list = trm_grammar_list(tree, TRM_GRAMMAR_ANY_OF);
    if (n_used >= a->c->min_items) {
        trm_grammar_append(tree, list, trm_grammar_literal(tree, ""));
    }
    for (size_t i = 0; i < count && (a->c->max_items < 0 || n_used < a->c->max_items) && tree->status == TRM_OK; i++) {
        if ((used >> i & 1) == 0) {
            trm_grammar_node *item = trm_schema_literal(reader, values[i]);
            item = n_used > 0 ? trm_schema_comma_before(reader, item) : item;
            trm_grammar_append(tree, list,
                               trm_grammar_sequence(tree, 2, item, distinct(a, values, count, used | 1u << i)));
        }
    }
    if (tree->status == TRM_OK) {
        tree->rules[a->rules[used]].node = list;
    }
    return trm_grammar_call(tree, a->rules[used]);
}

/* Items as one expression without calls in which equal values are equal texts: strings and integers. NULL if they are
 * something else. */
static trm_grammar_node *plain_items(const array_reader *a)
{
    schema_reader *reader = a->reader;
    trm_grammar_tree *tree = reader->tree;
    size_t n_parts;
    schema_part *parts = parts_at(a, 0, &n_parts);
    schema_cases cases = {0};
    trm_grammar_node *list = trm_grammar_list(tree, TRM_GRAMMAR_ANY_OF);
    bool plain = a->n_prefix == 0 && parts != NULL;
    if (plain) {
        trm_schema_find_cases(reader, parts, n_parts, &cases);
    }
    for (size_t i = 0; i < cases.count && plain && tree->status == TRM_OK; i++) {
        schema_case c = cases.items[i];
        if (c.has_values) {
            trm_grammar_append(tree, list, trm_schema_values(reader, &c, parts, n_parts));
            const trm_json *first = c.is_const ? c.values : trm_json_first(c.values);
            for (const trm_json *value = first; value != NULL; value = c.is_const ? NULL : trm_json_next(value)) {
                plain = plain && !trm_json_is_array(value) && !trm_json_is_object(value);
            }
            continue;
        }
        plain = (c.types & (SCHEMA_ARRAY | SCHEMA_OBJECT)) == 0;
        for (int bit = SCHEMA_NULL; bit <= SCHEMA_FALSE; bit *= 2) {
            if ((c.types & (uint32_t)bit) != 0) {
                trm_grammar_append(tree, list,
                                   trm_grammar_literal(tree, bit == SCHEMA_NULL   ? "null"
                                                             : bit == SCHEMA_TRUE ? "true"
                                                                                  : "false"));
            }
        }
        if ((c.types & SCHEMA_NUMBER) != 0) {
            trm_grammar_append(tree, list, trm_schema_distinct_number(reader, &c));
        }
        if ((c.types & SCHEMA_STRING) != 0) {
            trm_grammar_node *text = trm_schema_string_text(reader, &c);
            text =
                text != NULL ? text : trm_grammar_repeat(tree, trm_grammar_json_plain_character(&reader->json), 0, -1);
            trm_grammar_append(
                tree, list,
                trm_grammar_sequence(tree, 3, trm_grammar_literal(tree, "\""), text, trm_grammar_literal(tree, "\"")));
        }
    }
    free(cases.items);
    return plain && tree->status == TRM_OK ? list : NULL;
}

static trm_grammar_node *all_distinct(array_reader *a)
{
    trm_grammar_tree *tree = a->reader->tree;
    const trm_json *values[MAX_DISTINCT];
    size_t count;
    if (a->n_contains > 0) {
        return trm_schema_fail(a->reader, TRM_ERROR_UNSUPPORTED, NULL,
                               "uniqueItems together with contains is not supported");
    }
    if (list_values(a, values, &count)) {
        a->rules = trm_arena_array(&tree->arena, (size_t)1 << count, sizeof(*a->rules));
        if (a->rules == NULL) {
            tree->status = TRM_ERROR_OUT_OF_MEMORY;
            return NULL;
        }
        memset(a->rules, 0xff, ((size_t)1 << count) * sizeof(*a->rules));
        return distinct(a, values, count, 0);
    }
    trm_grammar_node *item = tree->status == TRM_OK ? plain_items(a) : NULL;
    if (item == NULL) {
        return trm_schema_fail(a->reader, TRM_ERROR_UNSUPPORTED, NULL,
                               "uniqueItems of items other than strings, numbers and few values is not supported");
    }
    return trm_grammar_unique(tree, item, trm_grammar_json_space(&a->reader->json), NULL, a->c->min_items,
                              a->c->max_items);
}

trm_grammar_node *trm_schema_array(schema_reader *reader, const schema_case *c)
{
    array_reader a = {.reader = reader, .c = c};
    trm_grammar_node *content;
    size_t n = 0;
    if (c->max_items < 0 && c->min_items == 0 && c->arrays == NULL && c->contains == NULL && c->rest_items == NULL &&
        !c->unique) {
        return trm_grammar_json_array(&reader->json);
    }
    for (const schema_item *item = c->arrays; item != NULL; item = item->next) {
        const size_t count = item->negated ? 0 : trm_json_count(prefix_of(item->schema));
        a.n_prefix = (int32_t)count > a.n_prefix ? (int32_t)count : a.n_prefix;
    }
    a.contains = trm_schema_in_order(reader, c->contains, &n);
    for (size_t i = 0; i < n; i++) { /* what nothing is asked of is left out */
        if (a.contains[i]->min > 0 || a.contains[i]->max >= 0) {
            a.contains[a.n_contains++] = a.contains[i];
        }
    }
    if (a.n_contains > MAX_CONTAINS) {
        return trm_schema_fail(reader, TRM_ERROR_UNSUPPORTED, c->contains->schema,
                               "more than three contains together are not supported");
    }
    if (a.n_prefix > 2000) {
        return trm_schema_fail(reader, TRM_ERROR_UNSUPPORTED, NULL,
                               "an array of more than 2000 schemas by position is not supported");
    }
    if (c->unique && c->max_items != 0 && c->max_items != 1) {
        content = all_distinct(&a);
    } else {
        content = a.n_contains > 0 ? with_contains(&a) : by_position(&a);
    }
    return trm_grammar_json_brackets(&reader->json, "[", content, "]");
}
