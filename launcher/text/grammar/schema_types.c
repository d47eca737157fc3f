/* The types that schemas allow, and schemas that no value can follow both. */
#include "launcher/text/grammar/schema.h"

#include <stdio.h>
#include <string.h>

#define DISJOINT_LEVELS 5

static const struct {
    const char *name;
    uint32_t types;
} type_names[] = {{"null", SCHEMA_NULL},      {"boolean", SCHEMA_TRUE | SCHEMA_FALSE},
                  {"integer", SCHEMA_NUMBER}, {"number", SCHEMA_NUMBER},
                  {"string", SCHEMA_STRING},  {"array", SCHEMA_ARRAY},
                  {"object", SCHEMA_OBJECT},  {"any", SCHEMA_ALL}};

static bool is_text(const trm_json *value, const char *text)
{
    return trm_json_is_string(value) && strcmp(trm_json_string(value), text) == 0;
}

/* The types of a `type` keyword; *whole says whether its numbers are integers. */
uint32_t trm_schema_read_types(schema_reader *reader, const trm_json *type, bool *whole)
{
    uint32_t types = 0;
    bool integer = false, number = false, list = trm_json_is_array(type);
    for (const trm_json *item = list ? trm_json_first(type) : type; item != NULL;
         item = list ? trm_json_next(item) : NULL) {
        size_t i = 0, n = sizeof(type_names) / sizeof(type_names[0]);
        while (i < n && !is_text(item, type_names[i].name)) {
            i++;
        }
        if (i == n) {
            char what[120] = "type is neither a string nor an array of strings";
            if (trm_json_is_string(item)) {
                snprintf(what, sizeof(what), "unknown type %.80s", trm_json_string(item));
            }
            trm_schema_fail(reader, TRM_ERROR_INVALID_ARGUMENT, type, what);
            return 0;
        }
        types |= type_names[i].types;
        integer |= is_text(item, "integer");
        number |= is_text(item, "number") || is_text(item, "any");
    }
    *whole = integer && !number;
    return types;
}

uint32_t trm_schema_type_of(const trm_json *value)
{
    return trm_json_is_bool(value)     ? (trm_json_truth(value, false) ? SCHEMA_TRUE : SCHEMA_FALSE)
           : trm_json_is_number(value) ? SCHEMA_NUMBER
           : trm_json_is_string(value) ? SCHEMA_STRING
           : trm_json_is_array(value)  ? SCHEMA_ARRAY
           : trm_json_is_object(value) ? SCHEMA_OBJECT
                                       : SCHEMA_NULL;
}

/* A schema's target if it is only a reference. */
static const trm_json *behind_refs(schema_reader *reader, const trm_json *schema)
{
    for (int i = 0; i < 20 && trm_json_is_object(schema) && reader->tree->status == TRM_OK; i++) {
        const trm_json *ref = trm_schema_member(schema, "$ref");
        if (ref == NULL || (!reader->refs_alone && trm_json_count(schema) > 1)) {
            break;
        }
        const trm_json *target = trm_schema_follow(reader, schema, ref);
        schema = target == NULL ? schema : target;
    }
    return schema;
}

uint32_t trm_schema_types(schema_reader *reader, const trm_json *schema)
{
    uint32_t types = SCHEMA_ALL;
    bool whole;
    schema = behind_refs(reader, schema);
    const trm_json *type = trm_schema_member(schema, "type"), *values = trm_schema_member(schema, "enum");
    const trm_json *value = trm_schema_member(schema, "const");
    if (!trm_json_is_object(schema)) {
        return trm_json_truth(schema, true) ? SCHEMA_ALL : 0;
    }
    if (type != NULL) {
        types = trm_schema_read_types(reader, type, &whole);
        types |= trm_json_truth(trm_schema_member(schema, "nullable"), false) ? SCHEMA_NULL : 0;
    }
    if (value != NULL) {
        types &= trm_schema_type_of(value);
    } else if (trm_json_is_array(values)) {
        uint32_t listed = 0;
        for (const trm_json *item = trm_json_first(values); item != NULL; item = trm_json_next(item)) {
            listed |= trm_schema_type_of(item);
        }
        types &= listed;
    }
    return types;
}

/* Whether a member that `a` requires cannot be one of `b`. */
static bool members_clash(schema_reader *reader, const trm_json *a, const trm_json *b, int level)
{
    const trm_json *required = trm_schema_member(a, "required"), *extra = trm_schema_member(b, "additionalProperties");
    const trm_json *of_a = trm_schema_member(a, "properties"), *of_b = trm_schema_member(b, "properties");
    const bool closed =
        trm_json_is_bool(extra) && !trm_json_truth(extra, true) && trm_schema_member(b, "patternProperties") == NULL;
    for (const trm_json *name = trm_json_is_array(required) ? trm_json_first(required) : NULL; name != NULL;
         name = trm_json_next(name)) {
        const char *text = trm_json_string(name) == NULL ? "" : trm_json_string(name);
        const trm_json *in_a = trm_schema_member(of_a, text), *in_b = trm_schema_member(of_b, text);
        if ((in_b == NULL && closed) ||
            (in_b != NULL && in_a != NULL && trm_schema_are_disjoint(reader, in_a, in_b, level + 1))) {
            return true;
        }
    }
    return false;
}

/* Whether no value with which `a` is done follows `b`: known if `a` lists its values. */
static bool values_clash(schema_reader *reader, const trm_json *a, const trm_json *b)
{
    const trm_json *value = trm_schema_member(a, "const"), *values = trm_schema_member(a, "enum");
    const schema_part part = {b, false};
    if (value != NULL) {
        return !trm_schema_matches(reader, &part, value);
    }
    bool clash = trm_json_is_array(values);
    for (const trm_json *item = clash ? trm_json_first(values) : NULL; item != NULL && clash;
         item = trm_json_next(item)) {
        clash = !trm_schema_matches(reader, &part, item);
    }
    return clash;
}

/* Whether it is plain that no value follows both schemas. */
bool trm_schema_are_disjoint(schema_reader *reader, const trm_json *a, const trm_json *b, int level)
{
    a = behind_refs(reader, a);
    b = behind_refs(reader, b);
    if (level > DISJOINT_LEVELS || !trm_schema_work(reader, 4) || !trm_json_is_object(a) || !trm_json_is_object(b)) {
        return false;
    }
    uint32_t common = trm_schema_types(reader, a) & trm_schema_types(reader, b);
    if (common == 0 || values_clash(reader, a, b) || values_clash(reader, b, a)) {
        return true;
    }
    if (common == SCHEMA_OBJECT && (members_clash(reader, a, b, level) || members_clash(reader, b, a, level))) {
        return true;
    }
    const trm_json *all_a = trm_schema_member(a, "allOf"), *all_b = trm_schema_member(b, "allOf");
    for (const trm_json *item = trm_json_is_array(all_a) ? trm_json_first(all_a) : NULL; item != NULL;
         item = trm_json_next(item)) {
        if (trm_schema_are_disjoint(reader, item, b, level + 1)) {
            return true;
        }
    }
    for (const trm_json *item = trm_json_is_array(all_b) ? trm_json_first(all_b) : NULL; item != NULL;
         item = trm_json_next(item)) {
        if (trm_schema_are_disjoint(reader, a, item, level + 1)) {
            return true;
        }
    }
    return false;
}
