/*
 * JSON schemas: OpenAI's structured outputs and more. Properties come in the order of the schema; objects and tuples
 * that say nothing about additional members have none. Keywords that limit what is valid and that are not known here
 * are refused, never ignored.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/json.h"
#include "launcher/text/grammar/json_text.h"
#include "launcher/text/grammar/number.h"
#include "launcher/text/jinja/value.h"
#include "launcher/text/utf8.h"

#define MOST_COUNT 10000

/* A schema that is named by $ref, and its rule. */
typedef struct schema_ref {
    const trm_json *schema;
    int32_t rule;
} schema_ref;

typedef struct schema_reader {
    trm_grammar_tree *tree;
    trm_grammar_json json;
    const trm_json *root;
    schema_ref *refs;
    size_t n_refs, capacity;
} schema_reader;

static trm_grammar_node *read_schema(schema_reader *reader, const trm_json *schema, const char *type);

/* The member also if it is null; NULL if absent. */
static const trm_json *member(const trm_json *object, const char *key)
{
    for (const trm_json *item = trm_json_first(object); item != NULL; item = trm_json_next(item)) {
        if (strcmp(trm_json_key(item), key) == 0) {
            return item;
        }
    }
    return NULL;
}

static trm_grammar_node *fail_unsupported(schema_reader *reader, const char *what)
{
    return trm_grammar_fail(reader->tree, TRM_ERROR_UNSUPPORTED, "JSON schema: %.80s is not supported", what);
}

static trm_grammar_node *fail_wrong(schema_reader *reader, const char *what)
{
    return trm_grammar_fail(reader->tree, TRM_ERROR_INVALID_ARGUMENT, "JSON schema: %s", what);
}

static bool is_null(const trm_json *value)
{
    return value != NULL && !trm_json_is_object(value) && !trm_json_is_array(value) && !trm_json_is_string(value) &&
           !trm_json_is_number(value) && !trm_json_is_bool(value);
}

/* ---- values of const and enum ---- */

static trm_grammar_node *value_node(schema_reader *reader, const trm_json *value)
{
    trm_grammar_tree *tree = reader->tree;
    if (trm_json_is_string(value)) {
        return trm_grammar_json_quoted(&reader->json, trm_json_string(value));
    }
    if (trm_json_is_number(value)) {
        char text[40];
        int64_t integer;
        if (trm_json_integer(value, &integer)) {
            snprintf(text, sizeof(text), "%lld", (long long)integer);
        } else {
            trm_jinja_format_float(trm_json_number(value, 0), text);
        }
        return trm_grammar_literal(tree, text);
    }
    if (!trm_json_is_object(value) && !trm_json_is_array(value)) {
        return trm_grammar_literal(tree, is_null(value) ? "null" : trm_json_truth(value, false) ? "true" : "false");
    }
    bool object = trm_json_is_object(value);
    trm_grammar_node *list = trm_grammar_list(tree, TRM_GRAMMAR_SEQUENCE);
    for (const trm_json *item = trm_json_first(value); item != NULL && tree->status == TRM_OK;
         item = trm_json_next(item)) {
        if (item != trm_json_first(value)) {
            trm_grammar_append(tree, list, trm_grammar_literal(tree, ","));
            trm_grammar_append(tree, list, trm_grammar_json_space(&reader->json));
        }
        if (object) {
            trm_grammar_append(tree, list, trm_grammar_json_quoted(&reader->json, trm_json_key(item)));
            trm_grammar_append(tree, list, trm_grammar_literal(tree, ":"));
            trm_grammar_append(tree, list, trm_grammar_json_space(&reader->json));
        }
        trm_grammar_append(tree, list, value_node(reader, item));
    }
    return trm_grammar_json_brackets(&reader->json, object ? "{" : "[", list, object ? "}" : "]");
}

static trm_grammar_node *enum_node(schema_reader *reader, const trm_json *values)
{
    trm_grammar_node *list = trm_grammar_list(reader->tree, TRM_GRAMMAR_ANY_OF);
    if (!trm_json_is_array(values) || trm_json_count(values) == 0) {
        return fail_wrong(reader, "enum is no array of at least one value");
    }
    for (const trm_json *item = trm_json_first(values); item != NULL && reader->tree->status == TRM_OK;
         item = trm_json_next(item)) {
        trm_grammar_append(reader->tree, list, value_node(reader, item));
    }
    return list;
}

/* ---- references ---- */

static trm_grammar_node *call_schema(schema_reader *reader, const trm_json *schema)
{
    for (size_t i = 0; i < reader->n_refs; i++) {
        if (reader->refs[i].schema == schema) {
            return trm_grammar_call(reader->tree, reader->refs[i].rule);
        }
    }
    char name[40];
    snprintf(name, sizeof(name), "(schema %zu)", reader->n_refs);
    int32_t rule = trm_grammar_add_rule(reader->tree, name, strlen(name));
    if (rule >= 0 && reader->n_refs == reader->capacity) {
        size_t capacity = reader->capacity == 0 ? 16 : 2 * reader->capacity;
        schema_ref *refs = realloc(reader->refs, capacity * sizeof(*refs));
        if (refs == NULL) {
            return trm_grammar_fail(reader->tree, TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %zu references", capacity);
        }
        reader->refs = refs;
        reader->capacity = capacity;
    }
    if (rule < 0) {
        return NULL;
    }
    reader->refs[reader->n_refs++] = (schema_ref){schema, rule};
    return trm_grammar_call(reader->tree, rule);
}

/* One name of a JSON pointer, ~0 and ~1 read. */
static bool take_name(const char **pointer, char *name, size_t capacity)
{
    size_t n = 0;
    while (**pointer != '\0' && **pointer != '/') {
        char c = *(*pointer)++;
        if (c == '~' && (**pointer == '0' || **pointer == '1')) {
            c = *(*pointer)++ == '0' ? '~' : '/';
        }
        if (n + 1 >= capacity) {
            return false;
        }
        name[n++] = c;
    }
    name[n] = '\0';
    return true;
}

static trm_grammar_node *ref_node(schema_reader *reader, const trm_json *ref)
{
    const char *pointer = trm_json_string(ref);
    const trm_json *at = reader->root;
    if (pointer == NULL || pointer[0] != '#') {
        return fail_unsupported(reader, "a $ref to another document");
    }
    const char *rest = pointer + 1;
    while (*rest == '/' && at != NULL) {
        char name[256];
        rest++;
        if (!take_name(&rest, name, sizeof(name))) {
            return fail_wrong(reader, "a $ref has a name of more than 255 bytes");
        }
        if (trm_json_is_array(at)) {
            at = trm_json_at(at, (size_t)strtoul(name, NULL, 10));
        } else {
            at = trm_json_is_object(at) ? member(at, name) : NULL;
        }
    }
    if (at == NULL || *rest != '\0') {
        return trm_grammar_fail(reader->tree, TRM_ERROR_INVALID_ARGUMENT, "JSON schema: $ref %.200s names nothing",
                                pointer);
    }
    return call_schema(reader, at);
}

/* ---- counts and bounds ---- */

/* A count such as minItems; absent leaves *count. */
static void read_count(schema_reader *reader, const trm_json *schema, const char *key, int32_t *count)
{
    const trm_json *found = member(schema, key);
    int64_t value = 0;
    if (found == NULL) {
        return;
    }
    if (!trm_json_integer(found, &value) || value < 0) {
        trm_grammar_fail(reader->tree, TRM_ERROR_INVALID_ARGUMENT, "JSON schema: %s is no count", key);
    } else if (value > MOST_COUNT && strncmp(key, "min", 3) == 0) {
        trm_grammar_fail(reader->tree, TRM_ERROR_INVALID_ARGUMENT, "JSON schema: %s is larger than %d", key,
                         MOST_COUNT);
    } else {
        *count = value > MOST_COUNT ? MOST_COUNT : (int32_t)value;
    }
}

static void read_bound(schema_reader *reader, const trm_json *schema, const char *key, double *bound)
{
    const trm_json *found = member(schema, key);
    if (found != NULL && !trm_json_is_number(found)) {
        trm_grammar_fail(reader->tree, TRM_ERROR_INVALID_ARGUMENT, "JSON schema: %s is no number", key);
    }
    *bound = trm_json_is_number(found) ? trm_json_number(found, 0) : *bound;
}

static bool read_bounds(schema_reader *reader, const trm_json *schema, trm_grammar_bounds *bounds)
{
    double min = -INFINITY, max = INFINITY, above = -INFINITY, below = INFINITY;
    read_bound(reader, schema, "minimum", &min);
    read_bound(reader, schema, "maximum", &max);
    read_bound(reader, schema, "exclusiveMinimum", &above);
    read_bound(reader, schema, "exclusiveMaximum", &below);
    *bounds = (trm_grammar_bounds){.min = above >= min ? above : min,
                                   .max = below <= max ? below : max,
                                   .min_exclusive = above >= min,
                                   .max_exclusive = below <= max};
    return isfinite(bounds->min) || isfinite(bounds->max);
}

static trm_grammar_node *integer_node(schema_reader *reader, const trm_json *schema)
{
    trm_grammar_bounds bounds;
    if (!read_bounds(reader, schema, &bounds)) {
        return trm_grammar_json_integer(&reader->json);
    }
    const double largest = 9e17;
    double min = bounds.min < -largest ? -largest : ceil(bounds.min);
    double max = bounds.max > largest ? largest : floor(bounds.max);
    min += bounds.min_exclusive && min == bounds.min ? 1 : 0;
    max -= bounds.max_exclusive && max == bounds.max ? 1 : 0;
    if (min > max) {
        return trm_grammar_fail(reader->tree, TRM_ERROR_INVALID_ARGUMENT,
                                "JSON schema: no integer lies between the minimum and the maximum");
    }
    return trm_grammar_json_range(&reader->json, (int64_t)min, (int64_t)max);
}

static trm_grammar_node *number_node(schema_reader *reader, const trm_json *schema)
{
    trm_grammar_bounds bounds;
    if (!read_bounds(reader, schema, &bounds)) {
        return trm_grammar_json_number(&reader->json);
    }
    return trm_grammar_number_range(&reader->json, &bounds);
}

/* ---- strings ---- */

#define DATE                                                                                                           \
    "[0-9]{4}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))"
#define TIME  "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,6})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
#define BYTE  "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
#define LABEL "[A-Za-z0-9]([A-Za-z0-9-]{0,30}[A-Za-z0-9])?"

/* The expression of a format; NULL: any text. */
static const char *format_pattern(const char *format)
{
    static const struct {
        const char *name, *pattern;
    } formats[] = {
        {"date", DATE},
        {"time", TIME},
        {"date-time", DATE "T" TIME},
        {"uuid", "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"},
        {"ipv4", BYTE "(\\." BYTE "){3}"},
        {"hostname", LABEL "(\\." LABEL "){0,8}"},
        {"email", "[A-Za-z0-9_+-]{1,32}(\\.[A-Za-z0-9_+-]{1,32}){0,3}@(" LABEL "\\.){1,6}[A-Za-z]{2,20}"},
    };
    for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++) {
        if (strcmp(format, formats[i].name) == 0) {
            return formats[i].pattern;
        }
    }
    return NULL;
}

static trm_grammar_node *string_node(schema_reader *reader, const trm_json *schema)
{
    trm_grammar_tree *tree = reader->tree;
    const trm_json *pattern_member = member(schema, "pattern");
    const char *pattern = trm_json_string(pattern_member), *format = trm_json_string(member(schema, "format"));
    int32_t min = 0, max = -1;
    read_count(reader, schema, "minLength", &min);
    read_count(reader, schema, "maxLength", &max);
    if (pattern_member != NULL && pattern == NULL) {
        return fail_wrong(reader, "pattern is no string");
    }
    pattern = pattern == NULL && format != NULL ? format_pattern(format) : pattern;
    trm_grammar_node *text;
    if (pattern != NULL) {
        if (min > 0 || max >= 0) {
            return fail_unsupported(reader, "a length beside a pattern or format");
        }
        text = trm_grammar_read_regex(tree, pattern, strlen(pattern), true);
    } else if (min == 0 && max < 0) {
        return trm_grammar_json_string(&reader->json);
    } else if (max >= 0 && max < min) {
        return fail_wrong(reader, "maxLength is below minLength");
    } else {
        text = trm_grammar_repeat(tree, trm_grammar_json_character(&reader->json), min, max);
    }
    return trm_grammar_sequence(tree, 3, trm_grammar_literal(tree, "\""), text, trm_grammar_literal(tree, "\""));
}

/* ---- arrays ---- */

/* item ("," space item){..} with min to max items in all. */
static trm_grammar_node *items_node(schema_reader *reader, const trm_json *items, int32_t min, int32_t max)
{
    trm_grammar_tree *tree = reader->tree;
    if (max == 0) {
        return trm_grammar_literal(tree, "");
    }
    trm_grammar_node *first = items == NULL ? trm_grammar_json_value(&reader->json) : read_schema(reader, items, NULL);
    trm_grammar_node *more = trm_grammar_sequence(tree, 3, trm_grammar_literal(tree, ","),
                                                  trm_grammar_json_space(&reader->json), trm_grammar_copy(tree, first));
    trm_grammar_node *list = trm_grammar_sequence(
        tree, 2, first, trm_grammar_repeat(tree, more, min > 1 ? min - 1 : 0, max < 0 ? -1 : max - 1));
    return min > 0 ? list : trm_grammar_repeat(tree, list, 0, 1);
}

/* Items by position and then `rest` ones, from the last backwards: each may be missing from position `min` on. */
static trm_grammar_node *tuple_node(schema_reader *reader, const trm_json *prefix, const trm_json *rest, int32_t min,
                                    int32_t max)
{
    trm_grammar_tree *tree = reader->tree;
    int32_t count = (int32_t)trm_json_count(prefix);
    count = max >= 0 && max < count ? max : count;
    if (count > 64) {
        return fail_unsupported(reader, "an array of more than 64 schemas by position");
    }
    bool open = rest != NULL && !(trm_json_is_bool(rest) && !trm_json_truth(rest, true));
    if (min > count && !open) {
        return fail_wrong(reader, "minItems asks for more items than there can be");
    }
    trm_grammar_node *tail = trm_grammar_literal(tree, "");
    if (open && (max < 0 || max > count)) {
        trm_grammar_node *more =
            trm_grammar_sequence(tree, 3, trm_grammar_literal(tree, ","), trm_grammar_json_space(&reader->json),
                                 read_schema(reader, rest, NULL));
        tail = trm_grammar_repeat(tree, more, min > count ? min - count : 0, max < 0 ? -1 : max - count);
    }
    for (int32_t i = count - 1; i >= 0 && tree->status == TRM_OK; i--) {
        trm_grammar_node *item = read_schema(reader, trm_json_at(prefix, (size_t)i), NULL);
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

static trm_grammar_node *array_node(schema_reader *reader, const trm_json *schema)
{
    const trm_json *items = member(schema, "items"), *prefix = member(schema, "prefixItems");
    const trm_json *rest = items;
    int32_t min = 0, max = -1;
    read_count(reader, schema, "minItems", &min);
    read_count(reader, schema, "maxItems", &max);
    if (trm_json_is_array(items)) { /* how tuples were written before 2020 */
        prefix = items;
        rest = member(schema, "additionalItems");
    }
    if (max >= 0 && max < min) {
        return fail_wrong(reader, "maxItems is below minItems");
    }
    if (trm_json_truth(member(schema, "uniqueItems"), false)) {
        return fail_unsupported(reader, "uniqueItems");
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

/* Keys, from their byte `at` on, that are none of names [count], which are sorted and alike before that byte. Written
 * without escapes, so that no name hides behind one. */
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

/* key ":" space value of a member that has no name in the schema. */
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
                                                                         : read_schema(reader, schema, NULL);
    return trm_grammar_sequence(tree, 4, key, trm_grammar_literal(tree, ":"), trm_grammar_json_space(&reader->json),
                                value);
}

static trm_grammar_node *property_node(schema_reader *reader, const schema_property *property)
{
    trm_grammar_node *value =
        property->schema == NULL ? trm_grammar_json_value(&reader->json) : read_schema(reader, property->schema, NULL);
    return trm_grammar_sequence(reader->tree, 4, trm_grammar_json_quoted(&reader->json, property->name),
                                trm_grammar_literal(reader->tree, ":"), trm_grammar_json_space(&reader->json), value);
}

static trm_grammar_node *comma_before(schema_reader *reader, trm_grammar_node *node)
{
    return trm_grammar_sequence(reader->tree, 3, trm_grammar_literal(reader->tree, ","),
                                trm_grammar_json_space(&reader->json), node);
}

/*
 * The members of an object, from the last backwards. `behind` is what may follow once a member was written, `first`
 * what may stand if none was yet. Both are rules where they are used twice, so that the expression stays linear in the
 * number of properties.
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
    const trm_json *named = member(schema, "properties"), *required = member(schema, "required");
    trm_grammar_tree *tree = reader->tree;
    if ((named != NULL && !trm_json_is_object(named)) || (required != NULL && !trm_json_is_array(required))) {
        fail_wrong(reader, "properties is no object, or required no array");
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
            fail_wrong(reader, "required names a property that there cannot be");
            return NULL;
        }
        if (i == n) {
            const trm_json *extra = member(schema, "additionalProperties");
            properties[n++] = (schema_property){.name = name, .schema = trm_json_is_object(extra) ? extra : NULL};
        }
        properties[i].required = true;
    }
    *count = n;
    return properties;
}

static trm_grammar_node *object_node(schema_reader *reader, const trm_json *schema)
{
    trm_grammar_tree *tree = reader->tree;
    const trm_json *extra = member(schema, "additionalProperties");
    bool has_names = trm_json_count(member(schema, "properties")) > 0;
    bool open = extra == NULL ? !has_names : !trm_json_is_bool(extra) || trm_json_truth(extra, true);
    int32_t min = 0, max = -1;
    size_t count = 0, n_required = 0;
    read_count(reader, schema, "minProperties", &min);
    read_count(reader, schema, "maxProperties", &max);
    schema_property *properties = list_properties(reader, schema, open, &count);
    for (size_t i = 0; properties != NULL && i < count; i++) {
        n_required += properties[i].required;
    }
    if (properties == NULL || tree->status != TRM_OK) {
        return NULL;
    }
    bool min_holds = (size_t)min <= n_required, max_holds = max < 0 || (!open && (size_t)max >= count);
    if (count > 0 && (!min_holds || !max_holds)) {
        return fail_unsupported(reader, "minProperties or maxProperties beside properties");
    }
    if (max >= 0 && max < min) {
        return fail_wrong(reader, "maxProperties is below minProperties");
    }
    if (count == 0 && !open && min > 0) {
        return fail_wrong(reader, "minProperties asks for more members than there can be");
    }
    trm_grammar_node *more = open ? extra_member(reader, properties, count, extra) : NULL;
    trm_grammar_node *members =
        members_node(reader, properties, count, more, count == 0 ? min : 0, count == 0 ? max : -1);
    return trm_grammar_json_brackets(&reader->json, "{", members, "}");
}

/* ---- schemas ---- */

static trm_grammar_node *typed_node(schema_reader *reader, const trm_json *schema, const char *type)
{
    trm_grammar_tree *tree = reader->tree;
    static const struct {
        const char *name;
        trm_grammar_node *(*read)(schema_reader *reader, const trm_json *schema);
    } types[] = {{"object", object_node},
                 {"array", array_node},
                 {"string", string_node},
                 {"number", number_node},
                 {"integer", integer_node}};
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        if (strcmp(type, types[i].name) == 0) {
            return types[i].read(reader, schema);
        }
    }
    if (strcmp(type, "boolean") == 0) {
        return trm_grammar_any_of(tree, 2, trm_grammar_literal(tree, "true"), trm_grammar_literal(tree, "false"));
    }
    if (strcmp(type, "null") == 0) {
        return trm_grammar_literal(tree, "null");
    }
    return trm_grammar_fail(tree, TRM_ERROR_INVALID_ARGUMENT, "JSON schema: the type %.40s is not known", type);
}

/* What a schema without a type speaks of; NULL: anything. */
static const char *implied_type(const trm_json *schema)
{
    static const char *const keys[][2] = {
        {"properties", "object"},       {"required", "object"},        {"additionalProperties", "object"},
        {"minProperties", "object"},    {"maxProperties", "object"},   {"items", "array"},
        {"prefixItems", "array"},       {"minItems", "array"},         {"maxItems", "array"},
        {"pattern", "string"},          {"minLength", "string"},       {"maxLength", "string"},
        {"format", "string"},           {"minimum", "number"},         {"maximum", "number"},
        {"exclusiveMinimum", "number"}, {"exclusiveMaximum", "number"}};
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        if (member(schema, keys[i][0]) != NULL) {
            return keys[i][1];
        }
    }
    return NULL;
}

static bool is_one_of(const char *key, const char *const *list)
{
    for (; *list != NULL; list++) {
        if (strcmp(key, *list) == 0) {
            return true;
        }
    }
    return false;
}

static const char *const annotations[] = {
    "title",   "description", "default",    "examples", "example",         "$schema",     "$id",
    "id",      "$comment",    "deprecated", "readOnly", "writeOnly",       "$defs",       "definitions",
    "$anchor", "strict",      "name",       "nullable", "contentEncoding", "$vocabulary", "contentMediaType",
    NULL};
static const char *const known[] = {"type",
                                    "enum",
                                    "const",
                                    "anyOf",
                                    "oneOf",
                                    "allOf",
                                    "$ref",
                                    "properties",
                                    "required",
                                    "additionalProperties",
                                    "minProperties",
                                    "maxProperties",
                                    "items",
                                    "prefixItems",
                                    "additionalItems",
                                    "minItems",
                                    "maxItems",
                                    "uniqueItems",
                                    "pattern",
                                    "minLength",
                                    "maxLength",
                                    "format",
                                    "minimum",
                                    "maximum",
                                    "exclusiveMinimum",
                                    "exclusiveMaximum",
                                    NULL};

/* Keywords beside those that decide alone. */
static bool check_keywords(schema_reader *reader, const trm_json *schema, const char *alone)
{
    for (const trm_json *item = trm_json_first(schema); item != NULL; item = trm_json_next(item)) {
        const char *key = trm_json_key(item);
        if (is_one_of(key, annotations) || strncmp(key, "x-", 2) == 0) {
            continue;
        }
        if (!is_one_of(key, known)) {
            fail_unsupported(reader, key);
            return false;
        }
        if (alone != NULL && strcmp(key, alone) != 0 && strcmp(key, "type") != 0) {
            char text[100];
            snprintf(text, sizeof(text), "%.40s beside %.40s", key, alone);
            fail_unsupported(reader, text);
            return false;
        }
    }
    return true;
}

/* anyOf and oneOf; alternatives without a type have that of the schema around them. */
static trm_grammar_node *alternatives_node(schema_reader *reader, const trm_json *list, const char *type)
{
    trm_grammar_node *node = trm_grammar_list(reader->tree, TRM_GRAMMAR_ANY_OF);
    if (!trm_json_is_array(list) || trm_json_count(list) == 0) {
        return fail_wrong(reader, "anyOf or oneOf is no array of at least one schema");
    }
    for (const trm_json *item = trm_json_first(list); item != NULL && reader->tree->status == TRM_OK;
         item = trm_json_next(item)) {
        trm_grammar_append(reader->tree, node, read_schema(reader, item, type));
    }
    return node;
}

static trm_grammar_node *types_node(schema_reader *reader, const trm_json *schema, const trm_json *types)
{
    trm_grammar_node *node = trm_grammar_list(reader->tree, TRM_GRAMMAR_ANY_OF);
    for (const trm_json *item = trm_json_first(types); item != NULL && reader->tree->status == TRM_OK;
         item = trm_json_next(item)) {
        if (!trm_json_is_string(item)) {
            return fail_wrong(reader, "type is neither a string nor an array of strings");
        }
        trm_grammar_append(reader->tree, node, typed_node(reader, schema, trm_json_string(item)));
    }
    return node;
}

static trm_grammar_node *read_object_schema(schema_reader *reader, const trm_json *schema, const char *type)
{
    static const char *const deciders[] = {"$ref", "const", "enum", "anyOf", "oneOf", "allOf"};
    const trm_json *types = member(schema, "type");
    type = trm_json_is_string(types) ? trm_json_string(types) : type;
    for (size_t i = 0; i < sizeof(deciders) / sizeof(deciders[0]); i++) {
        const trm_json *decider = member(schema, deciders[i]);
        if (decider == NULL) {
            continue;
        }
        if (!check_keywords(reader, schema, deciders[i])) {
            return NULL;
        }
        switch (i) {
        case 0:
            return ref_node(reader, decider);
        case 1:
            return value_node(reader, decider);
        case 2:
            return enum_node(reader, decider);
        case 5:
            return trm_json_is_array(decider) && trm_json_count(decider) == 1
                       ? read_schema(reader, trm_json_at(decider, 0), type)
                       : fail_unsupported(reader, "allOf of several schemas");
        default:
            return alternatives_node(reader, decider, type);
        }
    }
    if (!check_keywords(reader, schema, NULL)) {
        return NULL;
    }
    if (trm_json_is_array(types)) {
        return types_node(reader, schema, types);
    }
    if (types != NULL && !trm_json_is_string(types)) {
        return fail_wrong(reader, "type is neither a string nor an array of strings");
    }
    type = type == NULL ? implied_type(schema) : type;
    return type == NULL ? trm_grammar_json_value(&reader->json) : typed_node(reader, schema, type);
}

/* `type` is that of a schema around this one, or NULL. */
static trm_grammar_node *read_schema(schema_reader *reader, const trm_json *schema, const char *type)
{
    trm_grammar_tree *tree = reader->tree;
    if (trm_json_is_bool(schema)) {
        return trm_json_truth(schema, true) ? trm_grammar_json_value(&reader->json)
                                            : trm_grammar_list(tree, TRM_GRAMMAR_ANY_OF);
    }
    if (!trm_json_is_object(schema)) {
        return fail_wrong(reader, "a schema is neither an object nor a truth value");
    }
    if (!trm_grammar_enter(tree)) {
        return NULL;
    }
    trm_grammar_node *node = read_object_schema(reader, schema, type);
    if (trm_json_truth(member(schema, "nullable"), false)) {
        node = trm_grammar_any_of(tree, 2, node, trm_grammar_literal(tree, "null"));
    }
    tree->depth--;
    return node;
}

void trm_grammar_read_schema(trm_grammar_tree *tree, const char *text, size_t size)
{
    trm_json_document *document = NULL;
    trm_status status = trm_json_parse("JSON schema", text, size, &document);
    if (status != TRM_OK) {
        tree->status = status == TRM_ERROR_INVALID_MODEL ? TRM_ERROR_INVALID_ARGUMENT : status;
        return;
    }
    schema_reader reader = {.tree = tree, .json = {.tree = tree}, .root = trm_json_root(document)};
    trm_grammar_node *root = call_schema(&reader, reader.root);
    for (size_t i = 0; i < reader.n_refs && tree->status == TRM_OK; i++) { /* grows while it runs */
        trm_grammar_node *node = read_schema(&reader, reader.refs[i].schema, NULL);
        if (tree->status == TRM_OK) {
            tree->rules[reader.refs[i].rule].node = node;
        }
    }
    if (tree->status == TRM_OK) {
        tree->root = root->rule;
    }
    free(reader.refs);
    trm_json_close(document);
}
