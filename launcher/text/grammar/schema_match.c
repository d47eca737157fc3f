/* Whether a given value follows a JSON schema, for values of const and enum. What is not known counts as neither. */
#include "launcher/text/grammar/schema.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "launcher/text/strings/utf8.h"

#define DEEPEST 100

typedef enum verdict { VERDICT_NO, VERDICT_YES, VERDICT_UNSURE } verdict;

static verdict judge(schema_reader *reader, const trm_json *schema, const trm_json *value);

static verdict both(verdict a, verdict b)
{
    return a == VERDICT_NO || b == VERDICT_NO           ? VERDICT_NO
           : a == VERDICT_UNSURE || b == VERDICT_UNSURE ? VERDICT_UNSURE
                                                        : VERDICT_YES;
}

static verdict opposite(verdict a)
{
    return a == VERDICT_UNSURE ? a : a == VERDICT_NO ? VERDICT_YES : VERDICT_NO;
}

static verdict from(bool holds)
{
    return holds ? VERDICT_YES : VERDICT_NO;
}

bool trm_schema_equal(const trm_json *a, const trm_json *b)
{
    if (trm_json_is_string(a) || trm_json_is_string(b)) {
        return trm_json_is_string(a) && trm_json_is_string(b) && strcmp(trm_json_string(a), trm_json_string(b)) == 0;
    }
    if (trm_json_is_number(a) || trm_json_is_number(b)) {
        return trm_json_is_number(a) && trm_json_is_number(b) && trm_json_number(a, 0) == trm_json_number(b, 0);
    }
    if (trm_json_is_bool(a) || trm_json_is_bool(b)) {
        return trm_json_is_bool(a) && trm_json_is_bool(b) && trm_json_truth(a, false) == trm_json_truth(b, false);
    }
    const bool objects = trm_json_is_object(a), arrays = trm_json_is_array(a);
    if (objects != trm_json_is_object(b) || arrays != trm_json_is_array(b) || trm_json_count(a) != trm_json_count(b)) {
        return false;
    }
    if (!objects && !arrays) {
        return true; /* both null */
    }
    const trm_json *y = trm_json_first(b);
    for (const trm_json *x = trm_json_first(a); x != NULL; x = trm_json_next(x), y = trm_json_next(y)) {
        const trm_json *other = objects ? trm_schema_member(b, trm_json_key(x)) : y;
        if (other == NULL || !trm_schema_equal(x, other)) {
            return false;
        }
    }
    return true;
}

static bool is_type(const trm_json *value, const char *type)
{
    const double number = trm_json_number(value, 0);
    return strcmp(type, "string") == 0    ? trm_json_is_string(value)
           : strcmp(type, "number") == 0  ? trm_json_is_number(value)
           : strcmp(type, "integer") == 0 ? trm_json_is_number(value) && number == floor(number)
           : strcmp(type, "boolean") == 0 ? trm_json_is_bool(value)
           : strcmp(type, "null") == 0    ? trm_schema_is_null(value)
           : strcmp(type, "object") == 0  ? trm_json_is_object(value)
           : strcmp(type, "array") == 0   ? trm_json_is_array(value)
                                          : strcmp(type, "any") == 0;
}

static verdict judge_type(const trm_json *schema, const trm_json *type, const trm_json *value)
{
    bool fits = trm_json_is_string(type) && is_type(value, trm_json_string(type));
    for (const trm_json *item = trm_json_is_array(type) ? trm_json_first(type) : NULL; item != NULL && !fits;
         item = trm_json_next(item)) {
        fits = trm_json_is_string(item) && is_type(value, trm_json_string(item));
    }
    return from(fits || (trm_schema_is_null(value) && trm_json_truth(trm_schema_member(schema, "nullable"), false)));
}

static verdict judge_number(const trm_json *schema, const char *key, double bound, double value)
{
    const trm_json *above = trm_schema_member(schema, "exclusiveMinimum");
    const trm_json *below = trm_schema_member(schema, "exclusiveMaximum");
    if (strcmp(key, "minimum") == 0) {
        return from(trm_json_is_bool(above) && trm_json_truth(above, false) ? value > bound : value >= bound);
    }
    if (strcmp(key, "maximum") == 0) {
        return from(trm_json_is_bool(below) && trm_json_truth(below, false) ? value < bound : value <= bound);
    }
    if (strcmp(key, "exclusiveMinimum") == 0) {
        return from(value > bound);
    }
    if (strcmp(key, "exclusiveMaximum") == 0) {
        return from(value < bound);
    }
    const double quotient = value / bound;
    return bound <= 0                                                       ? VERDICT_UNSURE
           : quotient == floor(quotient)                                    ? VERDICT_YES
           : fabs(quotient - round(quotient)) < 1e-6 * (1 + fabs(quotient)) ? VERDICT_UNSURE
                                                                            : VERDICT_NO;
}

/* How many of a list of schemas a value follows; *unsure of how many that is not known. */
static int32_t count_followed(schema_reader *reader, const trm_json *list, const trm_json *value, int32_t *unsure)
{
    int32_t count = 0;
    *unsure = 0;
    for (const trm_json *item = trm_json_first(list); item != NULL; item = trm_json_next(item)) {
        const verdict found = judge(reader, item, value);
        count += found == VERDICT_YES;
        *unsure += found == VERDICT_UNSURE;
    }
    return count;
}

static verdict judge_items(schema_reader *reader, const trm_json *schema, const trm_json *value)
{
    const trm_json *prefix = trm_schema_member(schema, "prefixItems"), *items = trm_schema_member(schema, "items");
    const trm_json *rest = items;
    verdict all = VERDICT_YES;
    size_t index = 0;
    if (trm_json_is_array(items)) {
        prefix = items;
        rest = trm_schema_member(schema, "additionalItems");
    }
    for (const trm_json *item = trm_json_first(value); item != NULL; item = trm_json_next(item), index++) {
        const trm_json *of_item = index < trm_json_count(prefix) ? trm_json_at(prefix, index) : rest;
        all = of_item == NULL ? all : both(all, judge(reader, of_item, item));
    }
    return all;
}

static verdict judge_contains(schema_reader *reader, const trm_json *schema, const trm_json *of_item,
                              const trm_json *value)
{
    const double min = trm_json_number(trm_schema_member(schema, "minContains"), 1);
    const double max = trm_json_number(trm_schema_member(schema, "maxContains"), INFINITY);
    double low = 0, high = 0;
    for (const trm_json *item = trm_json_first(value); item != NULL; item = trm_json_next(item)) {
        const verdict found = judge(reader, of_item, item);
        low += found == VERDICT_YES;
        high += found != VERDICT_NO;
    }
    return low >= min && high <= max ? VERDICT_YES : high < min || low > max ? VERDICT_NO : VERDICT_UNSURE;
}

static verdict judge_members(schema_reader *reader, const trm_json *schema, const trm_json *value)
{
    const trm_json *properties = trm_schema_member(schema, "properties");
    const trm_json *patterns = trm_schema_member(schema, "patternProperties");
    const trm_json *extra = trm_schema_member(schema, "additionalProperties");
    verdict all = VERDICT_YES;
    for (const trm_json *member = trm_json_first(value); member != NULL; member = trm_json_next(member)) {
        const trm_json *named = trm_schema_member(properties, trm_json_key(member));
        bool known = named != NULL;
        all = known ? both(all, judge(reader, named, member)) : all;
        for (const trm_json *item = trm_json_is_object(patterns) ? trm_json_first(patterns) : NULL; item != NULL;
             item = trm_json_next(item)) {
            if (trm_schema_pattern_matches(reader, trm_json_key(item), trm_json_key(member))) {
                all = both(all, judge(reader, item, member));
                known = true;
            }
        }
        all = known || extra == NULL ? all : both(all, judge(reader, extra, member));
    }
    return all;
}

static verdict judge_dependencies(schema_reader *reader, const trm_json *dependencies, const trm_json *value)
{
    verdict all = VERDICT_YES;
    for (const trm_json *item = trm_json_first(dependencies); item != NULL; item = trm_json_next(item)) {
        if (trm_schema_member(value, trm_json_key(item)) == NULL) {
            continue;
        }
        if (!trm_json_is_array(item)) {
            all = both(all, judge(reader, item, value));
        }
        for (const trm_json *name = trm_json_is_array(item) ? trm_json_first(item) : NULL; name != NULL;
             name = trm_json_next(name)) {
            const char *text = trm_json_string(name);
            all = both(all, from(text != NULL && trm_schema_member(value, text) != NULL));
        }
    }
    return all;
}

static verdict judge_string(schema_reader *reader, const char *key, const trm_json *said, const trm_json *value)
{
    const char *text = trm_json_string(value);
    const double length = (double)trm_utf8_count(text, strlen(text));
    if (strcmp(key, "minLength") == 0) {
        return from(length >= trm_json_number(said, 0));
    }
    if (strcmp(key, "maxLength") == 0) {
        return from(length <= trm_json_number(said, 0));
    }
    return trm_json_is_string(said) ? from(trm_schema_pattern_matches(reader, trm_json_string(said), text))
                                    : VERDICT_UNSURE;
}

static verdict judge_array(schema_reader *reader, const trm_json *schema, const trm_json *member, const trm_json *value)
{
    const char *key = trm_json_key(member);
    const double count = (double)trm_json_count(value);
    if (strcmp(key, "minItems") == 0) {
        return from(count >= trm_json_number(member, 0));
    }
    if (strcmp(key, "maxItems") == 0) {
        return from(count <= trm_json_number(member, 0));
    }
    if (strcmp(key, "contains") == 0) {
        return judge_contains(reader, schema, member, value);
    }
    if (strcmp(key, "uniqueItems") == 0 && trm_json_truth(member, false)) {
        for (const trm_json *a = trm_json_first(value); a != NULL; a = trm_json_next(a)) {
            for (const trm_json *b = trm_json_next(a); b != NULL; b = trm_json_next(b)) {
                if (trm_schema_equal(a, b)) {
                    return VERDICT_NO;
                }
            }
        }
        return VERDICT_YES;
    }
    if (strcmp(key, "unevaluatedItems") == 0) {
        return VERDICT_UNSURE;
    }
    return strcmp(key, "items") == 0 || strcmp(key, "prefixItems") == 0 ? judge_items(reader, schema, value)
                                                                        : VERDICT_YES;
}

static verdict judge_object(schema_reader *reader, const trm_json *schema, const trm_json *member,
                            const trm_json *value)
{
    const char *key = trm_json_key(member);
    const double count = (double)trm_json_count(value);
    verdict all = VERDICT_YES;
    if (strcmp(key, "minProperties") == 0) {
        return from(count >= trm_json_number(member, 0));
    }
    if (strcmp(key, "maxProperties") == 0) {
        return from(count <= trm_json_number(member, 0));
    }
    if (strcmp(key, "required") == 0) {
        for (const trm_json *name = trm_json_is_array(member) ? trm_json_first(member) : NULL; name != NULL;
             name = trm_json_next(name)) {
            const char *text = trm_json_string(name);
            all = both(all, from(text != NULL && trm_schema_member(value, text) != NULL));
        }
        return all;
    }
    if (strcmp(key, "properties") == 0 || strcmp(key, "patternProperties") == 0 ||
        strcmp(key, "additionalProperties") == 0) {
        return judge_members(reader, schema, value);
    }
    if (strcmp(key, "dependentRequired") == 0 || strcmp(key, "dependentSchemas") == 0 ||
        strcmp(key, "dependencies") == 0) {
        return judge_dependencies(reader, member, value);
    }
    return strcmp(key, "propertyNames") == 0 || strcmp(key, "unevaluatedProperties") == 0 ? VERDICT_UNSURE
                                                                                          : VERDICT_YES;
}

/* What a keyword says of values of every type. */
static verdict judge_any(schema_reader *reader, const trm_json *schema, const trm_json *member, const trm_json *value,
                         bool *known)
{
    const char *key = trm_json_key(member);
    int32_t unsure, count;
    *known = true;
    if (strcmp(key, "type") == 0) {
        return judge_type(schema, member, value);
    }
    if (strcmp(key, "const") == 0) {
        return from(trm_schema_equal(member, value));
    }
    if (strcmp(key, "enum") == 0) {
        bool found = false;
        for (const trm_json *item = trm_json_first(member); item != NULL && !found; item = trm_json_next(item)) {
            found = trm_schema_equal(item, value);
        }
        return from(found);
    }
    if (strcmp(key, "$ref") == 0) {
        const trm_json *target = trm_schema_follow(reader, schema, member);
        return target == NULL ? VERDICT_UNSURE : judge(reader, target, value);
    }
    if (strcmp(key, "not") == 0) {
        return opposite(judge(reader, member, value));
    }
    if (strcmp(key, "allOf") == 0 || strcmp(key, "anyOf") == 0 || strcmp(key, "oneOf") == 0) {
        const int32_t all = (int32_t)trm_json_count(member);
        count = count_followed(reader, member, value, &unsure);
        if (key[0] == 'a' && key[1] == 'l') {
            return count == all ? VERDICT_YES : count + unsure == all ? VERDICT_UNSURE : VERDICT_NO;
        }
        if (key[0] == 'a') {
            return count > 0 ? VERDICT_YES : unsure > 0 ? VERDICT_UNSURE : VERDICT_NO;
        }
        return unsure > 0 ? VERDICT_UNSURE : from(count == 1);
    }
    if (strcmp(key, "if") == 0) {
        const verdict holds = judge(reader, member, value);
        const trm_json *next = trm_schema_member(schema, holds == VERDICT_YES ? "then" : "else");
        return holds == VERDICT_UNSURE ? holds : next == NULL ? VERDICT_YES : judge(reader, next, value);
    }
    *known = strncmp(key, "$dynamicRef", 11) != 0 && strncmp(key, "$recursiveRef", 13) != 0;
    if (!*known) {
        *known = true;
        return VERDICT_UNSURE;
    }
    *known = false;
    return VERDICT_YES;
}

static verdict judge_member(schema_reader *reader, const trm_json *schema, const trm_json *member,
                            const trm_json *value)
{
    static const char *const numbers[] = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"};
    static const char *const strings[] = {"minLength", "maxLength", "pattern"};
    const char *key = trm_json_key(member);
    bool known;
    const verdict any = judge_any(reader, schema, member, value, &known);
    if (known) {
        return any;
    }
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]) && trm_json_is_number(value); i++) {
        if (strcmp(key, numbers[i]) == 0 && trm_json_is_number(member)) {
            return judge_number(schema, key, trm_json_number(member, 0), trm_json_number(value, 0));
        }
    }
    for (size_t i = 0; i < sizeof(strings) / sizeof(strings[0]) && trm_json_is_string(value); i++) {
        if (strcmp(key, strings[i]) == 0) {
            return judge_string(reader, key, member, value);
        }
    }
    return trm_json_is_array(value)    ? judge_array(reader, schema, member, value)
           : trm_json_is_object(value) ? judge_object(reader, schema, member, value)
                                       : VERDICT_YES;
}

static verdict judge(schema_reader *reader, const trm_json *schema, const trm_json *value)
{
    verdict all = VERDICT_YES;
    if (trm_json_is_bool(schema)) {
        return from(trm_json_truth(schema, true));
    }
    if (!trm_json_is_object(schema) || !trm_schema_work(reader, 1) || reader->depth >= DEEPEST) {
        return VERDICT_UNSURE;
    }
    reader->depth++;
    const trm_json *ref = reader->refs_alone ? trm_schema_member(schema, "$ref") : NULL;
    for (const trm_json *member = ref != NULL && trm_json_is_string(ref) ? ref : trm_json_first(schema);
         member != NULL && all != VERDICT_NO; member = member == ref ? NULL : trm_json_next(member)) {
        all = both(all, judge_member(reader, schema, member, value));
    }
    reader->depth--;
    return all;
}

bool trm_schema_matches(schema_reader *reader, const schema_part *part, const trm_json *value)
{
    return judge(reader, part->schema, value) == (part->negated ? VERDICT_NO : VERDICT_YES);
}
