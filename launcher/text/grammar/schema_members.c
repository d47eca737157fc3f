/* Arrays and objects of JSON schemas. */
#include "launcher/text/grammar/schema.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "launcher/text/strings/utf8.h"

/* ---- arrays ---- */

/* item ("," space item){..} with min to max items in all. */
static trm_grammar_node *items_node(schema_reader *reader, const trm_json *items, int32_t min, int32_t max)
{
    trm_grammar_tree *tree = reader->tree;
    if (max == 0) {
        return trm_grammar_literal(tree, "");
    }
    trm_grammar_node *first =
        items == NULL ? trm_grammar_json_value(&reader->json) : trm_schema_read(reader, items, NULL);
    trm_grammar_node *more = trm_grammar_sequence(tree, 3, trm_grammar_literal(tree, ","),
                                                  trm_grammar_json_space(&reader->json), trm_grammar_copy(tree, first));
    trm_grammar_node *list = trm_grammar_sequence(
        tree, 2, first, trm_grammar_repeat(tree, more, min > 1 ? min - 1 : 0, max < 0 ? -1 : max - 1));
    return min > 0 ? list : trm_grammar_repeat(tree, list, 0, 1);
}

/* Items by position and then `rest` items, built from the last backwards: from position `min` on each may be missing.
 */
static trm_grammar_node *tuple_node(schema_reader *reader, const trm_json *prefix, const trm_json *rest, int32_t min,
                                    int32_t max)
{
    trm_grammar_tree *tree = reader->tree;
    int32_t count = (int32_t)trm_json_count(prefix);
    count = max >= 0 && max < count ? max : count;
    if (count > 64) {
        return trm_schema_fail_unsupported(reader, "an array of more than 64 schemas by position");
    }
    bool open = rest != NULL && !(trm_json_is_bool(rest) && !trm_json_truth(rest, true));
    if (min > count && !open) {
        return trm_schema_fail_wrong(reader, "minItems exceeds the possible number of items");
    }
    trm_grammar_node *tail = trm_grammar_literal(tree, "");
    if (open && (max < 0 || max > count)) {
        trm_grammar_node *more =
            trm_grammar_sequence(tree, 3, trm_grammar_literal(tree, ","), trm_grammar_json_space(&reader->json),
                                 trm_schema_read(reader, rest, NULL));
        tail = trm_grammar_repeat(tree, more, min > count ? min - count : 0, max < 0 ? -1 : max - count);
    }
    for (int32_t i = count - 1; i >= 0 && tree->status == TRM_OK; i--) {
        trm_grammar_node *item = trm_schema_read(reader, trm_json_at(prefix, (size_t)i), NULL);
        if (i > 0) {
            item = trm_grammar_sequence(tree, 3, trm_grammar_literal(tree, ","), trm_grammar_json_space(&reader->json),
                                        item);
        }
        tail = trm_grammar_sequence(tree, 2, item, tail);
        if (i >= min) {
            tail = trm_grammar_repeat(tree, tail, 0, 1);
        }
    }
    return tail;
}

trm_grammar_node *trm_schema_array(schema_reader *reader, const trm_json *schema)
{
    const trm_json *items = trm_schema_member(schema, "items"), *prefix = trm_schema_member(schema, "prefixItems");
    const trm_json *rest = items;
    int32_t min = 0, max = -1;
    trm_schema_read_count(reader, schema, "minItems", &min);
    trm_schema_read_count(reader, schema, "maxItems", &max);
    if (trm_json_is_array(items)) { /* the form of tuples before 2020 */
        prefix = items;
        rest = trm_schema_member(schema, "additionalItems");
    }
    if (max >= 0 && max < min) {
        return trm_schema_fail_wrong(reader, "maxItems is below minItems");
    }
    if (trm_json_truth(trm_schema_member(schema, "uniqueItems"), false)) {
        return trm_schema_fail_unsupported(reader, "uniqueItems");
    }
    trm_grammar_node *content =
        prefix != NULL ? tuple_node(reader, prefix, rest, min, max) : items_node(reader, items, min, max);
    return trm_grammar_json_brackets(&reader->json, "[", content, "]");
}

/* ---- objects ---- */

typedef struct schema_property {
    const char *name;
    const trm_json *schema; /* NULL: anything */
    bool required;
} schema_property;

/* Keys, from byte `at` on, that are not in names [count], which are sorted and equal before that byte. Without escapes,
 * so that no name hides behind one. */
static trm_grammar_node *other_key(schema_reader *reader, const char *const *names, size_t count, size_t at)
{
    trm_grammar_tree *tree = reader->tree;
    trm_grammar_node *list = trm_grammar_list(tree, TRM_GRAMMAR_ANY_OF);
    if (!trm_grammar_enter(tree)) {
        return NULL;
    }
    trm_grammar_range *used = trm_arena_array(&tree->arena, count + 3, sizeof(*used));
    if (used == NULL) {
        tree->status = TRM_ERROR_OUT_OF_MEMORY;
        return NULL;
    }
    used[0] = (trm_grammar_range){0, 0x1f};
    used[1] = (trm_grammar_range){'"', '"'};
    used[2] = (trm_grammar_range){'\\', '\\'};
    trm_grammar_node *any = trm_grammar_repeat(tree, trm_grammar_class(tree, used, 3, true), 0, -1);
    size_t n_used = 3, i = 0;
    bool ends = false;
    while (i < count && names[i][at] == '\0') { /* this name ends here */
        ends = true;
        i++;
    }
    while (i < count && tree->status == TRM_OK) {
        size_t size, end = i + 1;
        int32_t c = trm_utf8_read(names[i] + at, &size);
        while (end < count && strncmp(names[end] + at, names[i] + at, size) == 0) {
            end++;
        }
        if (c >= 0x20 && c != '"' && c != '\\') {
            trm_grammar_range range = {c, c};
            trm_grammar_append(tree, list,
                               trm_grammar_sequence(tree, 2, trm_grammar_class(tree, &range, 1, false),
                                                    other_key(reader, names + i, end - i, at + size)));
            used[n_used++] = range;
        }
        i = end;
    }
    trm_grammar_append(tree, list, trm_grammar_sequence(tree, 2, trm_grammar_class(tree, used, n_used, true), any));
    if (!ends) {
        trm_grammar_append(tree, list, trm_grammar_literal(tree, ""));
    }
    tree->depth--;
    return list;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* key ":" space value of a member without a name in the schema. */
static trm_grammar_node *extra_member(schema_reader *reader, const schema_property *properties, size_t count,
                                      const trm_json *schema)
{
    trm_grammar_tree *tree = reader->tree;
    trm_grammar_node *key = NULL;
    if (count == 0) {
        key = trm_grammar_json_string(&reader->json);
    } else {
        const char **names = trm_arena_array(&tree->arena, count, sizeof(*names));
        if (names == NULL) {
            tree->status = TRM_ERROR_OUT_OF_MEMORY;
            return NULL;
        }
        for (size_t i = 0; i < count; i++) {
            names[i] = properties[i].name;
        }
        qsort(names, count, sizeof(*names), by_text);
        key = trm_grammar_sequence(tree, 3, trm_grammar_literal(tree, "\""), other_key(reader, names, count, 0),
                                   trm_grammar_literal(tree, "\""));
    }
    trm_grammar_node *value = schema == NULL || trm_json_is_bool(schema) ? trm_grammar_json_value(&reader->json)
                                                                         : trm_schema_read(reader, schema, NULL);
    return trm_grammar_sequence(tree, 4, key, trm_grammar_literal(tree, ":"), trm_grammar_json_space(&reader->json),
                                value);
}

static trm_grammar_node *property_node(schema_reader *reader, const schema_property *property)
{
    trm_grammar_node *value = property->schema == NULL ? trm_grammar_json_value(&reader->json)
                                                       : trm_schema_read(reader, property->schema, NULL);
    return trm_grammar_sequence(reader->tree, 4, trm_grammar_json_quoted(&reader->json, property->name),
                                trm_grammar_literal(reader->tree, ":"), trm_grammar_json_space(&reader->json), value);
}

static trm_grammar_node *comma_before(schema_reader *reader, trm_grammar_node *node)
{
    return trm_grammar_sequence(reader->tree, 3, trm_grammar_literal(reader->tree, ","),
                                trm_grammar_json_space(&reader->json), node);
}

/*
 * The members of an object, built from the last backwards. `behind` may follow once a member was written, `first` may
 * stand if none was yet. Both are rules if used twice, so that the expression stays linear in the number of
 * properties.
 */
static trm_grammar_node *members_node(schema_reader *reader, const schema_property *properties, size_t count,
                                      trm_grammar_node *extra, int32_t min_extra, int32_t max_extra)
{
    trm_grammar_tree *tree = reader->tree;
    trm_grammar_node *behind = trm_grammar_literal(tree, ""), *first = trm_grammar_literal(tree, "");
    if (extra != NULL && max_extra != 0) {
        int32_t more_min = count > 0 ? 0 : min_extra - 1, more_max = max_extra < 0 ? -1 : max_extra - 1;
        behind = trm_grammar_repeat(tree, comma_before(reader, trm_grammar_copy(tree, extra)), 0, max_extra);
        trm_grammar_node *more = trm_grammar_repeat(tree, comma_before(reader, trm_grammar_copy(tree, extra)),
                                                    more_min < 0 ? 0 : more_min, more_max);
        first = trm_grammar_sequence(tree, 2, trm_grammar_copy(tree, extra), more);
        first = min_extra > 0 ? first : trm_grammar_repeat(tree, first, 0, 1);
    }
    bool any_required = false;
    for (size_t i = 0; i < count; i++) {
        any_required |= properties[i].required;
    }
    size_t last_needed = 0; /* `first` is needed up to the first required property */
    while (any_required && !properties[last_needed].required) {
        last_needed++;
    }
    for (size_t i = count; i-- > 0 && tree->status == TRM_OK;) {
        bool needs_first = !any_required || i <= last_needed;
        if (needs_first || i % 32 == 0) { /* behind is used by both, or the expression grows deep */
            int32_t rule = trm_grammar_add_rule(tree, "(members)", 9);
            if (rule < 0) {
                return NULL;
            }
            tree->rules[rule].node = behind;
            behind = trm_grammar_call(tree, rule);
        }
        trm_grammar_node *property = property_node(reader, &properties[i]);
        if (needs_first) {
            trm_grammar_node *with =
                trm_grammar_sequence(tree, 2, trm_grammar_copy(tree, property), trm_grammar_copy(tree, behind));
            first = properties[i].required ? with : trm_grammar_any_of(tree, 2, with, first);
        }
        if (i > 0) {
            trm_grammar_node *next = comma_before(reader, property);
            next = properties[i].required ? next : trm_grammar_repeat(tree, next, 0, 1);
            behind = trm_grammar_sequence(tree, 2, next, behind);
        }
    }
    return tree->status == TRM_OK ? first : NULL;
}

/* Properties, and names that are only in `required`. */
static schema_property *list_properties(schema_reader *reader, const trm_json *schema, bool open, size_t *count)
{
    const trm_json *named = trm_schema_member(schema, "properties"), *required = trm_schema_member(schema, "required");
    trm_grammar_tree *tree = reader->tree;
    if ((named != NULL && !trm_json_is_object(named)) || (required != NULL && !trm_json_is_array(required))) {
        trm_schema_fail_wrong(reader, "properties is not an object, or required is not an array");
        return NULL;
    }
    size_t capacity = trm_json_count(named) + trm_json_count(required) + 1;
    schema_property *properties = trm_arena_array(&tree->arena, capacity, sizeof(*properties));
    if (properties == NULL) {
        tree->status = TRM_ERROR_OUT_OF_MEMORY;
        return NULL;
    }
    size_t n = 0;
    for (const trm_json *item = trm_json_first(named); named != NULL && item != NULL; item = trm_json_next(item)) {
        properties[n++] = (schema_property){.name = trm_json_key(item), .schema = item};
    }
    for (const trm_json *item = trm_json_first(required); required != NULL && item != NULL;
         item = trm_json_next(item)) {
        const char *name = trm_json_string(item);
        size_t i = 0;
        while (name != NULL && i < n && strcmp(properties[i].name, name) != 0) {
            i++;
        }
        if (name == NULL || (i == n && !open)) {
            trm_schema_fail_wrong(reader, "required names a property that is not allowed");
            return NULL;
        }
        if (i == n) {
            const trm_json *extra = trm_schema_member(schema, "additionalProperties");
            properties[n++] = (schema_property){.name = name, .schema = trm_json_is_object(extra) ? extra : NULL};
        }
        properties[i].required = true;
    }
    *count = n;
    return properties;
}

trm_grammar_node *trm_schema_object(schema_reader *reader, const trm_json *schema)
{
    trm_grammar_tree *tree = reader->tree;
    const trm_json *extra = trm_schema_member(schema, "additionalProperties");
    bool has_names = trm_json_count(trm_schema_member(schema, "properties")) > 0;
    bool open = extra == NULL ? !has_names : !trm_json_is_bool(extra) || trm_json_truth(extra, true);
    int32_t min = 0, max = -1;
    size_t count = 0, n_required = 0;
    trm_schema_read_count(reader, schema, "minProperties", &min);
    trm_schema_read_count(reader, schema, "maxProperties", &max);
    schema_property *properties = list_properties(reader, schema, open, &count);
    for (size_t i = 0; properties != NULL && i < count; i++) {
        n_required += properties[i].required;
    }
    if (properties == NULL || tree->status != TRM_OK) {
        return NULL;
    }
    bool min_holds = (size_t)min <= n_required, max_holds = max < 0 || (!open && (size_t)max >= count);
    if (count > 0 && (!min_holds || !max_holds)) {
        return trm_schema_fail_unsupported(reader, "minProperties or maxProperties together with properties");
    }
    if (max >= 0 && max < min) {
        return trm_schema_fail_wrong(reader, "maxProperties is below minProperties");
    }
    if (count == 0 && !open && min > 0) {
        return trm_schema_fail_wrong(reader, "minProperties exceeds the possible number of members");
    }
    trm_grammar_node *more = open ? extra_member(reader, properties, count, extra) : NULL;
    trm_grammar_node *members =
        members_node(reader, properties, count, more, count == 0 ? min : 0, count == 0 ? max : -1);
    return trm_grammar_json_brackets(&reader->json, "{", members, "}");
}
