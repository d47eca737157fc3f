/* Single values of JSON schemas: const and enum, numbers and their bounds, strings. */
#include "launcher/text/grammar/schema.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "launcher/text/grammar/number.h"
#include "launcher/text/jinja/value.h"
#include "launcher/text/strings/utf8.h"

#define MAX_COUNT 10000

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
        return trm_grammar_literal(tree, trm_schema_is_null(value)      ? "null"
                                         : trm_json_truth(value, false) ? "true"
                                                                        : "false");
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

static bool is_of(const trm_json *value, const char *type)
{
    double number = trm_json_number(value, 0);
    return strcmp(type, "string") == 0    ? trm_json_is_string(value)
           : strcmp(type, "number") == 0  ? trm_json_is_number(value)
           : strcmp(type, "integer") == 0 ? trm_json_is_number(value) && number == floor(number)
           : strcmp(type, "boolean") == 0 ? trm_json_is_bool(value)
           : strcmp(type, "null") == 0    ? trm_schema_is_null(value)
           : strcmp(type, "object") == 0  ? trm_json_is_object(value)
                                          : strcmp(type, "array") == 0 && trm_json_is_array(value);
}

/* Whether a value has one of the types of a schema, or the enclosing schema's `type`. */
static bool fits(const trm_json *value, const trm_json *types, const char *type)
{
    if (!trm_json_is_array(types)) {
        return type == NULL || is_of(value, type);
    }
    bool found = false;
    for (const trm_json *item = trm_json_first(types); item != NULL && !found; item = trm_json_next(item)) {
        found = trm_json_is_string(item) && is_of(value, trm_json_string(item));
    }
    return found;
}

trm_grammar_node *trm_schema_const(schema_reader *reader, const trm_json *value, const trm_json *types,
                                   const char *type)
{
    return fits(value, types, type) ? value_node(reader, value) : trm_grammar_list(reader->tree, TRM_GRAMMAR_ANY_OF);
}

trm_grammar_node *trm_schema_enum(schema_reader *reader, const trm_json *values, const trm_json *types,
                                  const char *type)
{
    trm_grammar_node *list = trm_grammar_list(reader->tree, TRM_GRAMMAR_ANY_OF);
    if (!trm_json_is_array(values) || trm_json_count(values) == 0) {
        return trm_schema_fail_wrong(reader, "enum is not an array of at least one value");
    }
    for (const trm_json *item = trm_json_first(values); item != NULL && reader->tree->status == TRM_OK;
         item = trm_json_next(item)) {
        if (fits(item, types, type)) {
            trm_grammar_append(reader->tree, list, value_node(reader, item));
        }
    }
    return list;
}

/* ---- counts and bounds ---- */

/* Reads a count such as minItems; if absent, *count stays. */
void trm_schema_read_count(schema_reader *reader, const trm_json *schema, const char *key, int32_t *count)
{
    const trm_json *found = trm_schema_member(schema, key);
    int64_t value = 0;
    if (found == NULL) {
        return;
    }
    if (!trm_json_integer(found, &value) || value < 0) {
        trm_grammar_fail(reader->tree, TRM_ERROR_INVALID_ARGUMENT, "JSON schema: %s is not a count", key);
    } else if (value > MAX_COUNT && strncmp(key, "min", 3) == 0) {
        trm_grammar_fail(reader->tree, TRM_ERROR_INVALID_ARGUMENT, "JSON schema: %s is larger than %d", key, MAX_COUNT);
    } else {
        *count = value > MAX_COUNT ? MAX_COUNT : (int32_t)value;
    }
}

static void read_bound(schema_reader *reader, const trm_json *schema, const char *key, double *bound)
{
    const trm_json *found = trm_schema_member(schema, key);
    if (found != NULL && !trm_json_is_number(found)) {
        trm_grammar_fail(reader->tree, TRM_ERROR_INVALID_ARGUMENT, "JSON schema: %s is not a number", key);
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

trm_grammar_node *trm_schema_integer(schema_reader *reader, const trm_json *schema)
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
                                "JSON schema: there is no integer between the minimum and the maximum");
    }
    return trm_grammar_json_range(&reader->json, (int64_t)min, (int64_t)max);
}

trm_grammar_node *trm_schema_number(schema_reader *reader, const trm_json *schema)
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

trm_grammar_node *trm_schema_string(schema_reader *reader, const trm_json *schema)
{
    trm_grammar_tree *tree = reader->tree;
    const trm_json *pattern_member = trm_schema_member(schema, "pattern");
    const char *pattern = trm_json_string(pattern_member),
               *format = trm_json_string(trm_schema_member(schema, "format"));
    int32_t min = 0, max = -1;
    trm_schema_read_count(reader, schema, "minLength", &min);
    trm_schema_read_count(reader, schema, "maxLength", &max);
    if (pattern_member != NULL && pattern == NULL) {
        return trm_schema_fail_wrong(reader, "pattern is not a string");
    }
    pattern = pattern == NULL && format != NULL ? format_pattern(format) : pattern;
    trm_grammar_node *text;
    if (pattern != NULL) {
        if (min > 0 || max >= 0) {
            return trm_schema_fail_unsupported(reader, "a length together with a pattern or format");
        }
        text = trm_grammar_read_regex(tree, pattern, strlen(pattern), true);
    } else if (min == 0 && max < 0) {
        return trm_grammar_json_string(&reader->json);
    } else if (max >= 0 && max < min) {
        return trm_schema_fail_wrong(reader, "maxLength is below minLength");
    } else {
        text = trm_grammar_repeat(tree, trm_grammar_json_character(&reader->json), min, max);
    }
    return trm_grammar_sequence(tree, 3, trm_grammar_literal(tree, "\""), text, trm_grammar_literal(tree, "\""));
}
