/*
 * From sets of schemas to cases. A schema's statements are added to a case; statements with alternatives wait until
 * the others are there, then the case is copied for each of them. What must not be followed has an alternative for each
 * way to break it; ways for which there is no statement are left out, which allows less.
 */
#include "launcher/text/grammar/schema.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "launcher/text/strings/buffer.h"

#define MAX_CASES     3000 /* of a set */
#define MAX_NOT_CASES 48   /* from which on one way to break a schema is enough */
#define DEEPEST       120  /* references and applicators within each other, without a value between */

typedef struct place {
    const schema_scope *scope;
    const schema_choice *parent;
} place;

static void absorb(schema_reader *reader, schema_case *c, const trm_json *schema, bool negated, const place *at);

/* ---- choices ---- */

static bool is_choice(const schema_choice *choice, schema_choice_kind kind, const trm_json *schema)
{
    return choice->kind == kind && choice->schema == schema;
}

static void add_choice(schema_reader *reader, schema_case *c, schema_choice_kind kind, const trm_json *schema,
                       const place *at)
{
    for (const schema_choice *open = at->parent; open != NULL; open = open->parent) {
        if (is_choice(open, kind, schema)) { /* an alternative that needs itself */
            c->failed = true;
            return;
        }
    }
    for (const schema_choice *known = c->pending; known != NULL; known = known->next) {
        if (is_choice(known, kind, schema) && known->scope == at->scope) {
            return;
        }
    }
    schema_choice *choice = trm_arena_alloc(&reader->tree->arena, sizeof(*choice));
    if (choice == NULL) {
        reader->tree->status = TRM_ERROR_OUT_OF_MEMORY;
        return;
    }
    *choice =
        (schema_choice){.next = c->pending, .parent = at->parent, .scope = at->scope, .kind = kind, .schema = schema};
    c->pending = choice;
}

/* ---- statements ---- */

static void read_count(schema_reader *reader, const trm_json *value, int32_t *count, bool is_max)
{
    double number = trm_json_number(value, -1);
    if (!trm_json_is_number(value) || number < 0 || number != floor(number)) {
        trm_schema_fail(reader, TRM_ERROR_INVALID_ARGUMENT, value, "not a count");
        return;
    }
    if (number > TRM_SCHEMA_MAX_COUNT) {
        if (!is_max) {
            trm_schema_fail(reader, TRM_ERROR_INVALID_ARGUMENT, value, "a count of more than 1000000");
        }
        return;
    }
    int32_t limit = (int32_t)number;
    if (is_max) {
        *count = *count < 0 || limit < *count ? limit : *count;
    } else {
        *count = limit > *count ? limit : *count;
    }
}

static void at_least(schema_case *c, double bound, bool exclusive)
{
    if (bound > c->bounds.min || (bound == c->bounds.min && exclusive)) {
        c->bounds.min = bound;
        c->bounds.min_exclusive = exclusive;
    }
}

static void at_most(schema_case *c, double bound, bool exclusive)
{
    if (bound < c->bounds.max || (bound == c->bounds.max && exclusive)) {
        c->bounds.max = bound;
        c->bounds.max_exclusive = exclusive;
    }
}

static void add_list(schema_reader *reader, schema_case *c, const schema_item **list, schema_item item, const place *at)
{
    (void)c;
    item.scope = at->scope;
    *list = trm_schema_add(reader, *list, item);
}

/* A name that is in the list. */
static bool has_name(const schema_item *list, const char *name)
{
    for (; list != NULL; list = list->next) {
        if (strcmp(list->text, name) == 0) {
            return true;
        }
    }
    return false;
}

static void add_name(schema_reader *reader, const schema_item **list, const char *name)
{
    if (name != NULL && !has_name(*list, name)) {
        *list = trm_schema_add(reader, *list, (schema_item){.text = name});
    }
}

static void require_names(schema_reader *reader, schema_case *c, const trm_json *names)
{
    for (const trm_json *name = trm_json_is_array(names) ? trm_json_first(names) : NULL; name != NULL;
         name = trm_json_next(name)) {
        if (!trm_json_is_string(name)) {
            trm_schema_fail(reader, TRM_ERROR_INVALID_ARGUMENT, name, "a name is not a string");
        }
        add_name(reader, &c->required, trm_json_string(name));
    }
}

static void limit_types(schema_case *c, uint32_t types)
{
    c->types &= types;
}

/* Whether the numbers beside an old exclusiveMinimum or exclusiveMaximum, which is a truth value, are exclusive. */
static bool is_exclusive(const trm_json *schema, const char *key)
{
    const trm_json *flag = trm_schema_member(schema, key);
    return trm_json_is_bool(flag) && trm_json_truth(flag, false);
}

typedef enum keyword {
    KEY_REF,
    KEY_DYNAMIC,
    KEY_ALL_OF,
    KEY_ANY_OF,
    KEY_ONE_OF,
    KEY_NOT,
    KEY_IF,
    KEY_TYPE,
    KEY_ENUM,
    KEY_CONST,
    KEY_MINIMUM,
    KEY_MAXIMUM,
    KEY_ABOVE,
    KEY_BELOW,
    KEY_MULTIPLE,
    KEY_MIN_LENGTH,
    KEY_MAX_LENGTH,
    KEY_PATTERN,
    KEY_FORMAT,
    KEY_MIN_ITEMS,
    KEY_MAX_ITEMS,
    KEY_UNIQUE,
    KEY_ITEMS,
    KEY_PREFIX,
    KEY_CONTAINS,
    KEY_REST_ITEMS,
    KEY_MIN_MEMBERS,
    KEY_MAX_MEMBERS,
    KEY_PROPERTIES,
    KEY_PATTERNS,
    KEY_ADDITIONAL,
    KEY_REQUIRED,
    KEY_NAMES,
    KEY_DEPEND,
    KEY_REST_MEMBERS,
    KEY_OTHER /* an annotation */
} keyword;

static keyword keyword_of(const char *name)
{
    static const struct {
        const char *name;
        keyword key;
    } keywords[] = {{"$ref", KEY_REF},
                    {"$dynamicRef", KEY_DYNAMIC},
                    {"$recursiveRef", KEY_DYNAMIC},
                    {"allOf", KEY_ALL_OF},
                    {"anyOf", KEY_ANY_OF},
                    {"oneOf", KEY_ONE_OF},
                    {"not", KEY_NOT},
                    {"if", KEY_IF},
                    {"type", KEY_TYPE},
                    {"enum", KEY_ENUM},
                    {"const", KEY_CONST},
                    {"minimum", KEY_MINIMUM},
                    {"maximum", KEY_MAXIMUM},
                    {"exclusiveMinimum", KEY_ABOVE},
                    {"exclusiveMaximum", KEY_BELOW},
                    {"multipleOf", KEY_MULTIPLE},
                    {"minLength", KEY_MIN_LENGTH},
                    {"maxLength", KEY_MAX_LENGTH},
                    {"pattern", KEY_PATTERN},
                    {"format", KEY_FORMAT},
                    {"minItems", KEY_MIN_ITEMS},
                    {"maxItems", KEY_MAX_ITEMS},
                    {"uniqueItems", KEY_UNIQUE},
                    {"items", KEY_ITEMS},
                    {"prefixItems", KEY_PREFIX},
                    {"contains", KEY_CONTAINS},
                    {"unevaluatedItems", KEY_REST_ITEMS},
                    {"minProperties", KEY_MIN_MEMBERS},
                    {"maxProperties", KEY_MAX_MEMBERS},
                    {"properties", KEY_PROPERTIES},
                    {"patternProperties", KEY_PATTERNS},
                    {"additionalProperties", KEY_ADDITIONAL},
                    {"required", KEY_REQUIRED},
                    {"propertyNames", KEY_NAMES},
                    {"dependentRequired", KEY_DEPEND},
                    {"dependentSchemas", KEY_DEPEND},
                    {"dependencies", KEY_DEPEND},
                    {"unevaluatedProperties", KEY_REST_MEMBERS}};
    for (size_t i = 0; i < sizeof(keywords) / sizeof(keywords[0]); i++) {
        if (strcmp(keywords[i].name, name) == 0) {
            return keywords[i].key;
        }
    }
    return KEY_OTHER;
}

static const char *text_of(schema_reader *reader, const trm_json *value)
{
    const char *text = trm_json_string(value);
    if (text == NULL) {
        trm_schema_fail(reader, TRM_ERROR_INVALID_ARGUMENT, value, "not a string");
    }
    return text == NULL ? "" : text;
}

static bool expect(schema_reader *reader, const trm_json *value, bool fits, const char *what)
{
    if (!fits) {
        trm_schema_fail(reader, TRM_ERROR_INVALID_ARGUMENT, value, what);
    }
    return fits;
}

static void add_contains(schema_reader *reader, schema_case *c, const trm_json *schema, const trm_json *value,
                         const place *at)
{
    const trm_json *min = trm_schema_member(schema, "minContains"), *max = trm_schema_member(schema, "maxContains");
    schema_item item = {.schema = value, .min = 0, .max = -1};
    if (min != NULL) {
        read_count(reader, min, &item.min, false);
    } else {
        item.min = 1;
    }
    if (max != NULL) {
        read_count(reader, max, &item.max, true);
    }
    add_list(reader, c, &c->contains, item, at);
}

/* Adds one member of a schema to a case. */
static void absorb_member(schema_reader *reader, schema_case *c, const trm_json *schema, const trm_json *member,
                          bool *has_objects, bool *has_arrays, const place *at)
{
    bool whole = false;
    uint32_t types;
    const trm_json *target;
    switch (keyword_of(trm_json_key(member))) {
    case KEY_REF:
        target = trm_schema_follow(reader, schema, member);
        if (target != NULL) {
            absorb(reader, c, target, false, at);
        }
        break;
    case KEY_DYNAMIC:
        trm_schema_fail(reader, TRM_ERROR_UNSUPPORTED, member, "dynamic references are not supported");
        break;
    case KEY_ALL_OF:
        if (expect(reader, member, trm_json_is_array(member), "not an array of schemas")) {
            for (const trm_json *item = trm_json_first(member); item != NULL; item = trm_json_next(item)) {
                absorb(reader, c, item, false, at);
            }
        }
        break;
    case KEY_ANY_OF:
    case KEY_ONE_OF:
        if (expect(reader, member, trm_json_is_array(member) && trm_json_count(member) > 0,
                   "not an array of at least one schema")) {
            add_choice(reader, c,
                       keyword_of(trm_json_key(member)) == KEY_ANY_OF ? SCHEMA_CHOICE_ANY : SCHEMA_CHOICE_ONE, member,
                       at);
        }
        break;
    case KEY_NOT:
        absorb(reader, c, member, true, at);
        break;
    case KEY_IF:
        if (trm_schema_member(schema, "then") != NULL || trm_schema_member(schema, "else") != NULL) {
            add_choice(reader, c, SCHEMA_CHOICE_IF, schema, at);
        }
        break;
    case KEY_TYPE:
        types = trm_schema_read_types(reader, member, &whole);
        if (trm_json_truth(trm_schema_member(schema, "nullable"), false)) { /* of OpenAPI */
            types |= SCHEMA_NULL;
        }
        c->whole |= whole;
        limit_types(c, types);
        break;
    case KEY_ENUM:
    case KEY_CONST:
        whole = keyword_of(trm_json_key(member)) == KEY_CONST;
        if (!whole && !expect(reader, member, trm_json_is_array(member), "enum is not an array of values")) {
            break;
        }
        if (!c->has_values || whole) { /* values are checked against the whole set */
            c->has_values = true;
            c->is_const = whole;
            c->values = member;
        }
        break;
    case KEY_MINIMUM:
        if (expect(reader, member, trm_json_is_number(member), "not a number")) {
            at_least(c, trm_json_number(member, 0), is_exclusive(schema, "exclusiveMinimum"));
        }
        break;
    case KEY_MAXIMUM:
        if (expect(reader, member, trm_json_is_number(member), "not a number")) {
            at_most(c, trm_json_number(member, 0), is_exclusive(schema, "exclusiveMaximum"));
        }
        break;
    case KEY_ABOVE:
        if (!trm_json_is_bool(member) && expect(reader, member, trm_json_is_number(member), "not a number")) {
            at_least(c, trm_json_number(member, 0), true);
        }
        break;
    case KEY_BELOW:
        if (!trm_json_is_bool(member) && expect(reader, member, trm_json_is_number(member), "not a number")) {
            at_most(c, trm_json_number(member, 0), true);
        }
        break;
    case KEY_MULTIPLE:
        if (expect(reader, member, trm_json_number(member, 0) > 0, "not a number above 0")) {
            add_list(reader, c, &c->multiples, (schema_item){.schema = member}, at);
        }
        break;
    case KEY_MIN_LENGTH:
        read_count(reader, member, &c->min_length, false);
        break;
    case KEY_MAX_LENGTH:
        read_count(reader, member, &c->max_length, true);
        break;
    case KEY_PATTERN:
        add_list(reader, c, &c->strings, (schema_item){.text = text_of(reader, member), .schema = member}, at);
        break;
    case KEY_FORMAT:
        add_list(reader, c, &c->strings,
                 (schema_item){.text = text_of(reader, member), .schema = member, .is_format = true}, at);
        break;
    case KEY_MIN_ITEMS:
        read_count(reader, member, &c->min_items, false);
        break;
    case KEY_MAX_ITEMS:
        read_count(reader, member, &c->max_items, true);
        break;
    case KEY_UNIQUE:
        c->unique |= trm_json_truth(member, false);
        break;
    case KEY_ITEMS:
    case KEY_PREFIX:
        if (!*has_arrays) {
            add_list(reader, c, &c->arrays, (schema_item){.schema = schema}, at);
        }
        *has_arrays = true;
        break;
    case KEY_CONTAINS:
        add_contains(reader, c, schema, member, at);
        break;
    case KEY_REST_ITEMS:
        add_list(reader, c, &c->rest_items, (schema_item){.schema = member}, at);
        break;
    case KEY_MIN_MEMBERS:
        read_count(reader, member, &c->min_members, false);
        break;
    case KEY_MAX_MEMBERS:
        read_count(reader, member, &c->max_members, true);
        break;
    case KEY_PROPERTIES:
    case KEY_PATTERNS:
    case KEY_ADDITIONAL:
        if (expect(reader, member,
                   trm_json_is_object(member) ||
                       (trm_json_is_bool(member) && keyword_of(trm_json_key(member)) == KEY_ADDITIONAL),
                   "not an object of schemas") &&
            !*has_objects) {
            add_list(reader, c, &c->objects, (schema_item){.schema = schema}, at);
            *has_objects = true;
        }
        break;
    case KEY_REQUIRED:
        require_names(reader, c, member);
        break;
    case KEY_NAMES:
        add_list(reader, c, &c->names, (schema_item){.schema = member}, at);
        break;
    case KEY_DEPEND:
        for (const trm_json *item = trm_json_is_object(member) ? trm_json_first(member) : NULL; item != NULL;
             item = trm_json_next(item)) {
            add_choice(reader, c, SCHEMA_CHOICE_DEPEND, item, at);
        }
        break;
    case KEY_REST_MEMBERS:
        add_list(reader, c, &c->rest_members, (schema_item){.schema = member}, at);
        break;
    case KEY_OTHER:
        break;
    }
}

/* Adds what a schema says to a case. */
static void absorb(schema_reader *reader, schema_case *c, const trm_json *schema, bool negated, const place *at)
{
    bool has_objects = false, has_arrays = false;
    if (!trm_schema_work(reader, 1)) {
        return;
    }
    if (trm_json_is_bool(schema)) {
        c->failed |= trm_json_truth(schema, true) == negated;
        return;
    }
    if (!trm_json_is_object(schema)) {
        trm_schema_fail(reader, TRM_ERROR_INVALID_ARGUMENT, schema, "a schema is neither an object nor a truth value");
        return;
    }
    if (negated) { /* what it says is not evaluated */
        add_choice(reader, c, SCHEMA_CHOICE_NOT, schema, &(place){NULL, at->parent});
        return;
    }
    if (++reader->depth > DEEPEST) {
        trm_schema_fail(reader, TRM_ERROR_INVALID_ARGUMENT, schema,
                        "a $ref leads back to itself without a value between");
    }
    schema_scope *scope = trm_arena_alloc(&reader->tree->arena, sizeof(*scope));
    if (scope == NULL) {
        reader->tree->status = TRM_ERROR_OUT_OF_MEMORY;
        reader->depth--;
        return;
    }
    scope->parent = at->scope;
    const place here = {scope, at->parent};
    const trm_json *ref = reader->refs_alone ? trm_schema_member(schema, "$ref") : NULL;
    for (const trm_json *member = ref != NULL && trm_json_is_string(ref) ? ref : trm_json_first(schema);
         member != NULL && reader->tree->status == TRM_OK; member = member == ref ? NULL : trm_json_next(member)) {
        absorb_member(reader, c, schema, member, &has_objects, &has_arrays, &here);
    }
    reader->depth--;
}

/* ---- alternatives ---- */

/* These change a copy of a case by alternative `index` of a choice; false past the last. */

static bool take_one(schema_reader *reader, schema_case *c, const trm_json *list, size_t index, const place *at)
{
    const trm_json *chosen = trm_json_at(list, index);
    if (index >= trm_json_count(list)) {
        return false;
    }
    absorb(reader, c, chosen, false, at);
    for (const trm_json *item = trm_json_first(list); item != NULL; item = trm_json_next(item)) {
        if (item != chosen && !trm_schema_are_disjoint(reader, chosen, item, 0)) {
            absorb(reader, c, item, true, at);
        }
    }
    return true;
}

static bool take_if(schema_reader *reader, schema_case *c, const trm_json *schema, size_t index, const place *at)
{
    const trm_json *next = trm_schema_member(schema, index == 0 ? "then" : "else");
    absorb(reader, c, trm_schema_member(schema, "if"), index == 1, at);
    if (next != NULL) {
        absorb(reader, c, next, false, at);
    }
    return index < 2;
}

static bool take_depend(schema_reader *reader, schema_case *c, const trm_json *member, size_t index, const place *at)
{
    const char *name = trm_json_key(member);
    if (index == 0) {
        add_name(reader, &c->absent, name);
    } else if (index == 1) {
        limit_types(c, SCHEMA_OBJECT);
        add_name(reader, &c->required, name);
        if (trm_json_is_array(member)) {
            require_names(reader, c, member);
        } else if (trm_json_is_string(member)) {
            add_name(reader, &c->required, trm_json_string(member));
        } else {
            absorb(reader, c, member, false, at);
        }
    }
    return index < 2;
}

/* Breaks a bound of a number: `at_top` says that it is an upper one. */
static void break_bound(schema_case *c, double bound, bool at_top, bool exclusive)
{
    limit_types(c, SCHEMA_NUMBER);
    if (at_top) {
        at_least(c, bound, !exclusive);
    } else {
        at_most(c, bound, !exclusive);
    }
}

/* Breaks a least or largest count. */
static void break_count(schema_reader *reader, schema_case *c, const trm_json *value, bool at_top, uint32_t type,
                        int32_t *min, int32_t *max)
{
    int32_t count = at_top ? -1 : 0;
    limit_types(c, type);
    read_count(reader, value, &count, at_top);
    if (at_top) {
        c->failed |= count < 0;
        *min = count + 1 > *min ? count + 1 : *min;
    } else {
        c->failed |= count == 0;
        *max = *max < 0 || count - 1 < *max ? count - 1 : *max;
    }
}

/* Takes way *index to break one member of a schema; false, with *index counted down, if it has fewer. */
static bool break_member(schema_reader *reader, schema_case *c, const trm_json *schema, const trm_json *member,
                         size_t *index, const place *at)
{
    const bool is_list = trm_json_is_array(member), is_object = trm_json_is_object(member);
    const double number = trm_json_number(member, 0);
    const trm_json *item = is_list || is_object ? trm_json_first(member) : NULL, *other;
    const trm_json *target;
    bool whole = false;
    uint32_t types;
#define WAY ((*index)-- == 0)
    switch (keyword_of(trm_json_key(member))) {
    case KEY_REF:
        if (WAY) {
            target = trm_schema_follow(reader, schema, member);
            if (target != NULL) {
                absorb(reader, c, target, true, at);
            }
            return true;
        }
        break;
    case KEY_ALL_OF:
        for (; item != NULL; item = trm_json_next(item)) {
            if (WAY) {
                absorb(reader, c, item, true, at);
                return true;
            }
        }
        break;
    case KEY_ANY_OF:
    case KEY_ONE_OF:
        if (WAY) {
            for (; item != NULL; item = trm_json_next(item)) {
                absorb(reader, c, item, true, at);
            }
            return true;
        }
        for (; item != NULL && keyword_of(trm_json_key(member)) == KEY_ONE_OF; item = trm_json_next(item)) {
            for (other = trm_json_next(item); other != NULL; other = trm_json_next(other)) {
                if (WAY) {
                    absorb(reader, c, item, false, at);
                    absorb(reader, c, other, false, at);
                    return true;
                }
            }
        }
        break;
    case KEY_NOT:
        if (WAY) {
            absorb(reader, c, member, false, at);
            return true;
        }
        break;
    case KEY_IF:
        for (int i = 0; i < 2; i++) {
            const trm_json *next = trm_schema_member(schema, i == 0 ? "then" : "else");
            if (next != NULL && WAY) {
                absorb(reader, c, member, i == 1, at);
                absorb(reader, c, next, true, at);
                return true;
            }
        }
        break;
    case KEY_TYPE:
        types = trm_schema_read_types(reader, member, &whole);
        types |= trm_json_truth(trm_schema_member(schema, "nullable"), false) ? SCHEMA_NULL : 0;
        if (WAY) {
            limit_types(c, SCHEMA_ALL & ~types);
            return true;
        }
        if (whole && WAY) {
            limit_types(c, SCHEMA_NUMBER);
            c->failed |= c->whole;
            add_list(reader, c, &c->multiples, (schema_item){.negated = true}, at);
            return true;
        }
        break;
    case KEY_ENUM:
    case KEY_CONST:
        if (WAY) {
            whole = keyword_of(trm_json_key(member)) == KEY_CONST;
            for (item = whole ? member : item; item != NULL; item = whole ? NULL : trm_json_next(item)) {
                add_list(reader, c, &c->excluded, (schema_item){.schema = item}, at);
            }
            return true;
        }
        break;
    case KEY_MINIMUM:
        if (WAY) {
            break_bound(c, number, false, is_exclusive(schema, "exclusiveMinimum"));
            return true;
        }
        break;
    case KEY_MAXIMUM:
        if (WAY) {
            break_bound(c, number, true, is_exclusive(schema, "exclusiveMaximum"));
            return true;
        }
        break;
    case KEY_ABOVE:
        if (!trm_json_is_bool(member) && WAY) {
            break_bound(c, number, false, true);
            return true;
        }
        break;
    case KEY_BELOW:
        if (!trm_json_is_bool(member) && WAY) {
            break_bound(c, number, true, true);
            return true;
        }
        break;
    case KEY_MULTIPLE:
        if (WAY) {
            limit_types(c, SCHEMA_NUMBER);
            add_list(reader, c, &c->multiples, (schema_item){.schema = member, .negated = true}, at);
            return true;
        }
        break;
    case KEY_MIN_LENGTH:
    case KEY_MAX_LENGTH:
        if (WAY) {
            break_count(reader, c, member, keyword_of(trm_json_key(member)) == KEY_MAX_LENGTH, SCHEMA_STRING,
                        &c->min_length, &c->max_length);
            return true;
        }
        break;
    case KEY_PATTERN:
        if (WAY) {
            limit_types(c, SCHEMA_STRING);
            add_list(reader, c, &c->strings,
                     (schema_item){.text = text_of(reader, member), .schema = member, .negated = true}, at);
            return true;
        }
        break;
    case KEY_MIN_ITEMS:
    case KEY_MAX_ITEMS:
        if (WAY) {
            break_count(reader, c, member, keyword_of(trm_json_key(member)) == KEY_MAX_ITEMS, SCHEMA_ARRAY,
                        &c->min_items, &c->max_items);
            return true;
        }
        break;
    case KEY_ITEMS:
        if (!is_list && trm_schema_member(schema, "prefixItems") == NULL && WAY) {
            limit_types(c, SCHEMA_ARRAY);
            add_list(reader, c, &c->contains, (schema_item){.schema = member, .negated = true, .min = 1, .max = -1},
                     at);
            return true;
        }
        break;
    case KEY_CONTAINS:
        if (trm_schema_member(schema, "minContains") == NULL && trm_schema_member(schema, "maxContains") == NULL &&
            WAY) {
            limit_types(c, SCHEMA_ARRAY);
            add_list(reader, c, &c->arrays, (schema_item){.schema = member, .negated = true}, at);
            return true;
        }
        break;
    case KEY_MIN_MEMBERS:
    case KEY_MAX_MEMBERS:
        if (WAY) {
            break_count(reader, c, member, keyword_of(trm_json_key(member)) == KEY_MAX_MEMBERS, SCHEMA_OBJECT,
                        &c->min_members, &c->max_members);
            return true;
        }
        break;
    case KEY_PROPERTIES:
        for (; item != NULL && is_object; item = trm_json_next(item)) {
            if (WAY) {
                limit_types(c, SCHEMA_OBJECT);
                add_name(reader, &c->required, trm_json_key(item));
                add_list(reader, c, &c->members,
                         (schema_item){.text = trm_json_key(item), .schema = item, .negated = true}, at);
                return true;
            }
        }
        break;
    case KEY_REQUIRED:
        for (; item != NULL && is_list; item = trm_json_next(item)) {
            if (WAY) {
                limit_types(c, SCHEMA_OBJECT);
                add_name(reader, &c->absent, text_of(reader, item));
                return true;
            }
        }
        break;
    case KEY_DEPEND:
        for (; item != NULL && is_object; item = trm_json_next(item)) {
            for (other = trm_json_is_array(item) ? trm_json_first(item) : item; other != NULL;
                 other = trm_json_is_array(item) ? trm_json_next(other) : NULL) {
                if (WAY) {
                    limit_types(c, SCHEMA_OBJECT);
                    add_name(reader, &c->required, trm_json_key(item));
                    if (trm_json_is_string(other)) {
                        add_name(reader, &c->absent, trm_json_string(other));
                    } else {
                        absorb(reader, c, other, true, at);
                    }
                    return true;
                }
            }
        }
        break;
    case KEY_DYNAMIC:
    case KEY_FORMAT:
    case KEY_UNIQUE:
    case KEY_PREFIX:
    case KEY_REST_ITEMS:
    case KEY_PATTERNS:
    case KEY_ADDITIONAL:
    case KEY_NAMES:
    case KEY_REST_MEMBERS:
    case KEY_OTHER:
        break;
    }
#undef WAY
    return false;
}

static bool take_not(schema_reader *reader, schema_case *c, const trm_json *schema, size_t index, const place *at)
{
    const trm_json *ref = reader->refs_alone ? trm_schema_member(schema, "$ref") : NULL;
    for (const trm_json *member = ref != NULL ? ref : trm_json_first(schema);
         member != NULL && reader->tree->status == TRM_OK; member = member == ref ? NULL : trm_json_next(member)) {
        if (break_member(reader, c, schema, member, &index, at)) {
            return true;
        }
    }
    return false;
}

static bool take(schema_reader *reader, schema_case *c, const schema_choice *choice, size_t index)
{
    const place at = {choice->scope, choice};
    switch (choice->kind) {
    case SCHEMA_CHOICE_ANY:
        if (index < trm_json_count(choice->schema)) {
            absorb(reader, c, trm_json_at(choice->schema, index), false, &at);
        }
        return index < trm_json_count(choice->schema);
    case SCHEMA_CHOICE_ONE:
        return take_one(reader, c, choice->schema, index, &at);
    case SCHEMA_CHOICE_IF:
        return index < 2 && take_if(reader, c, choice->schema, index, &at);
    case SCHEMA_CHOICE_DEPEND:
        return take_depend(reader, c, choice->schema, index, &at);
    case SCHEMA_CHOICE_NOT:
        break;
    }
    return take_not(reader, c, choice->schema, index, &at);
}

/* ---- cases ---- */

/* Removes types of which no value can follow the case; false if none is left. */
static bool is_possible(schema_case *c)
{
    for (const schema_item *item = c->excluded; item != NULL; item = item->next) {
        const uint32_t type = trm_schema_type_of(item->schema);
        const bool empty = trm_json_count(item->schema) == 0;
        if ((type & (SCHEMA_NULL | SCHEMA_TRUE | SCHEMA_FALSE)) != 0) {
            c->types &= ~type;
        } else if (type == SCHEMA_ARRAY && empty) {
            c->min_items = c->min_items < 1 ? 1 : c->min_items;
        } else if (type == SCHEMA_OBJECT && empty) {
            c->min_members = c->min_members < 1 ? 1 : c->min_members;
        } else if (type == SCHEMA_ARRAY || type == SCHEMA_OBJECT) {
            c->types &= c->has_values ? SCHEMA_ALL : ~type; /* no expression for all others */
        }
    }
    for (const schema_item *item = c->required; item != NULL; item = item->next) {
        if (has_name(c->absent, item->text)) {
            c->types &= ~(uint32_t)SCHEMA_OBJECT;
        }
    }
    const trm_grammar_bounds *b = &c->bounds;
    if (b->min > b->max || (b->min == b->max && (b->min_exclusive || b->max_exclusive))) {
        c->types &= ~(uint32_t)SCHEMA_NUMBER;
    }
    c->types &= c->max_length >= 0 && c->min_length > c->max_length ? ~(uint32_t)SCHEMA_STRING : SCHEMA_ALL;
    c->types &= c->max_items >= 0 && c->min_items > c->max_items ? ~(uint32_t)SCHEMA_ARRAY : SCHEMA_ALL;
    c->types &= c->max_members >= 0 && c->min_members > c->max_members ? ~(uint32_t)SCHEMA_OBJECT : SCHEMA_ALL;
    return !c->failed && c->types != 0;
}

/* The oldest choice; those about what must not be followed come last, when most of them can be decided. */
static const schema_choice *next_choice(const schema_case *c)
{
    const schema_choice *oldest = NULL, *other = NULL;
    for (const schema_choice *choice = c->pending; choice != NULL; choice = choice->next) {
        oldest = choice;
        other = choice->kind != SCHEMA_CHOICE_NOT ? choice : other;
    }
    return other != NULL ? other : oldest;
}

static const schema_choice *without(schema_reader *reader, const schema_choice *list, const schema_choice *choice)
{
    if (list == NULL || list == choice) {
        return list == NULL ? NULL : list->next;
    }
    schema_choice *copy = trm_arena_alloc(&reader->tree->arena, sizeof(*copy));
    if (copy == NULL) {
        reader->tree->status = TRM_ERROR_OUT_OF_MEMORY;
        return NULL;
    }
    *copy = *list;
    copy->next = without(reader, list->next, choice);
    return copy;
}

static void expand(schema_reader *reader, schema_case *c, schema_cases *cases)
{
    trm_grammar_tree *tree = reader->tree;
    if (tree->status != TRM_OK || !is_possible(c) || !trm_schema_work(reader, 20)) {
        return;
    }
    const schema_choice *choice = next_choice(c);
    if (choice == NULL) {
        void *items = cases->items;
        if (cases->count == MAX_CASES) {
            trm_schema_fail(reader, TRM_ERROR_INVALID_ARGUMENT, NULL, "it has too many combinations of alternatives");
            return;
        }
        tree->status = trm_array_grow(&items, &cases->capacity, cases->count + 1, sizeof(*cases->items));
        cases->items = items;
        if (tree->status == TRM_OK) {
            cases->items[cases->count++] = *c;
        }
        return;
    }
    if (++reader->depth > DEEPEST) {
        trm_schema_fail(reader, TRM_ERROR_INVALID_ARGUMENT, choice->schema, "its alternatives are nested too deeply");
    }
    schema_case base = *c;
    base.pending = without(reader, c->pending, choice);
    const size_t before = cases->count;
    bool more = true;
    for (size_t index = 0; more && tree->status == TRM_OK; index++) {
        schema_case copy = base;
        more = take(reader, &copy, choice, index);
        if (more) {
            expand(reader, &copy, cases);
        }
        /* one way to break a schema is enough where there are many */
        more = more && !(choice->kind == SCHEMA_CHOICE_NOT && cases->count > before && cases->count > MAX_NOT_CASES);
    }
    reader->depth--;
}

void trm_schema_find_cases(schema_reader *reader, const schema_part *parts, size_t count, schema_cases *cases)
{
    schema_case c = {.types = SCHEMA_ALL,
                     .bounds = {.min = -INFINITY, .max = INFINITY},
                     .max_length = -1,
                     .max_items = -1,
                     .max_members = -1};
    const place at = {NULL, NULL};
    for (size_t i = 0; i < count; i++) {
        absorb(reader, &c, parts[i].schema, parts[i].negated, &at);
    }
    expand(reader, &c, cases);
}
