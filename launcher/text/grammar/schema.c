/*
 * JSON schemas: OpenAI's structured outputs and more. Properties come in the order of the schema; objects and tuples
 * without a statement about additional members have none. Unknown keywords that restrict what is valid are refused,
 * never ignored.
 */
#include "launcher/text/grammar/schema.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "launcher/text/strings/buffer.h"

/* The member, also if it is null; NULL if absent. */
const trm_json *trm_schema_member(const trm_json *object, const char *key)
{
    for (const trm_json *item = trm_json_first(object); item != NULL; item = trm_json_next(item)) {
        if (strcmp(trm_json_key(item), key) == 0) {
            return item;
        }
    }
    return NULL;
}

trm_grammar_node *trm_schema_fail_unsupported(schema_reader *reader, const char *what)
{
    return trm_grammar_fail(reader->tree, TRM_ERROR_UNSUPPORTED, "JSON schema: %.80s is not supported", what);
}

trm_grammar_node *trm_schema_fail_wrong(schema_reader *reader, const char *what)
{
    return trm_grammar_fail(reader->tree, TRM_ERROR_INVALID_ARGUMENT, "JSON schema: %s", what);
}

bool trm_schema_is_null(const trm_json *value)
{
    return value != NULL && !trm_json_is_object(value) && !trm_json_is_array(value) && !trm_json_is_string(value) &&
           !trm_json_is_number(value) && !trm_json_is_bool(value);
}

/* ---- references ---- */

trm_grammar_node *trm_schema_call(schema_reader *reader, const trm_json *schema)
{
    for (size_t i = 0; i < reader->n_refs; i++) {
        if (reader->refs[i].schema == schema) {
            return trm_grammar_call(reader->tree, reader->refs[i].rule);
        }
    }
    char name[40];
    snprintf(name, sizeof(name), "(schema %zu)", reader->n_refs);
    int32_t rule = trm_grammar_add_rule(reader->tree, name, strlen(name));
    if (rule < 0) {
        return NULL;
    }
    void *refs = reader->refs;
    if (trm_array_grow(&refs, &reader->capacity, reader->n_refs + 1, sizeof(*reader->refs)) != TRM_OK) {
        return trm_grammar_fail(reader->tree, TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %zu references",
                                reader->n_refs + 1);
    }
    reader->refs = refs;
    reader->refs[reader->n_refs++] = (schema_ref){schema, rule};
    return trm_grammar_call(reader->tree, rule);
}

/* Reads a name of a JSON pointer with ~0 and ~1. */
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
        return trm_schema_fail_unsupported(reader, "a $ref to another document");
    }
    const char *rest = pointer + 1;
    while (*rest == '/' && at != NULL) {
        char name[256];
        rest++;
        if (!take_name(&rest, name, sizeof(name))) {
            return trm_schema_fail_wrong(reader, "a $ref has a name of more than 255 bytes");
        }
        if (trm_json_is_array(at)) {
            at = trm_json_at(at, (size_t)strtoul(name, NULL, 10));
        } else {
            at = trm_json_is_object(at) ? trm_schema_member(at, name) : NULL;
        }
    }
    if (at == NULL || *rest != '\0') {
        return trm_grammar_fail(reader->tree, TRM_ERROR_INVALID_ARGUMENT, "JSON schema: $ref %.200s does not exist",
                                pointer);
    }
    return trm_schema_call(reader, at);
}

/* ---- schemas ---- */

static trm_grammar_node *typed_node(schema_reader *reader, const trm_json *schema, const char *type)
{
    trm_grammar_tree *tree = reader->tree;
    static const struct {
        const char *name;
        trm_grammar_node *(*read)(schema_reader *reader, const trm_json *schema);
    } types[] = {{"object", trm_schema_object},
                 {"array", trm_schema_array},
                 {"string", trm_schema_string},
                 {"number", trm_schema_number},
                 {"integer", trm_schema_integer}};
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
    return trm_grammar_fail(tree, TRM_ERROR_INVALID_ARGUMENT, "JSON schema: unknown type %.40s", type);
}

/* The type that the keywords of a schema without a type imply; NULL: any. */
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
        if (trm_schema_member(schema, keys[i][0]) != NULL) {
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

static const char *const annotations[] = {"title",
                                          "description",
                                          "default",
                                          "examples",
                                          "example",
                                          "$schema",
                                          "$id",
                                          "id",
                                          "$comment",
                                          "deprecated",
                                          "readOnly",
                                          "writeOnly",
                                          "$defs",
                                          "definitions",
                                          "$anchor",
                                          "strict",
                                          "name",
                                          "nullable",
                                          "contentEncoding",
                                          "$vocabulary",
                                          "contentMediaType",
                                          "discriminator",
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

/* Keywords next to those that decide alone. */
static bool check_keywords(schema_reader *reader, const trm_json *schema, const char *alone)
{
    for (const trm_json *item = trm_json_first(schema); item != NULL; item = trm_json_next(item)) {
        const char *key = trm_json_key(item);
        if (is_one_of(key, annotations) || strncmp(key, "x-", 2) == 0) {
            continue;
        }
        if (!is_one_of(key, known)) {
            trm_schema_fail_unsupported(reader, key);
            return false;
        }
        if (alone != NULL && strcmp(key, alone) != 0 && strcmp(key, "type") != 0) {
            char text[100];
            snprintf(text, sizeof(text), "%.40s together with %.40s", key, alone);
            trm_schema_fail_unsupported(reader, text);
            return false;
        }
    }
    return true;
}

/* Reads anyOf and oneOf; alternatives without a type have that of the enclosing schema. */
static trm_grammar_node *alternatives_node(schema_reader *reader, const trm_json *list, const char *type)
{
    trm_grammar_node *node = trm_grammar_list(reader->tree, TRM_GRAMMAR_ANY_OF);
    if (!trm_json_is_array(list) || trm_json_count(list) == 0) {
        return trm_schema_fail_wrong(reader, "anyOf or oneOf is not an array of at least one schema");
    }
    for (const trm_json *item = trm_json_first(list); item != NULL && reader->tree->status == TRM_OK;
         item = trm_json_next(item)) {
        trm_grammar_append(reader->tree, node, trm_schema_read(reader, item, type));
    }
    return node;
}

static trm_grammar_node *types_node(schema_reader *reader, const trm_json *schema, const trm_json *types)
{
    trm_grammar_node *node = trm_grammar_list(reader->tree, TRM_GRAMMAR_ANY_OF);
    for (const trm_json *item = trm_json_first(types); item != NULL && reader->tree->status == TRM_OK;
         item = trm_json_next(item)) {
        if (!trm_json_is_string(item)) {
            return trm_schema_fail_wrong(reader, "type is neither a string nor an array of strings");
        }
        trm_grammar_append(reader->tree, node, typed_node(reader, schema, trm_json_string(item)));
    }
    return node;
}

static trm_grammar_node *read_object_schema(schema_reader *reader, const trm_json *schema, const char *type)
{
    static const char *const deciders[] = {"$ref", "const", "enum", "anyOf", "oneOf", "allOf"};
    const trm_json *types = trm_schema_member(schema, "type");
    type = trm_json_is_string(types) ? trm_json_string(types) : type;
    for (size_t i = 0; i < sizeof(deciders) / sizeof(deciders[0]); i++) {
        const trm_json *decider = trm_schema_member(schema, deciders[i]);
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
            return trm_schema_const(reader, decider, types, type);
        case 2:
            return trm_schema_enum(reader, decider, types, type);
        case 5:
            return trm_json_is_array(decider) && trm_json_count(decider) == 1
                       ? trm_schema_read(reader, trm_json_at(decider, 0), type)
                       : trm_schema_fail_unsupported(reader, "allOf of several schemas");
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
        return trm_schema_fail_wrong(reader, "type is neither a string nor an array of strings");
    }
    type = type == NULL ? implied_type(schema) : type;
    return type == NULL ? trm_grammar_json_value(&reader->json) : typed_node(reader, schema, type);
}

/* `type` is that of the enclosing schema, or NULL. */
trm_grammar_node *trm_schema_read(schema_reader *reader, const trm_json *schema, const char *type)
{
    trm_grammar_tree *tree = reader->tree;
    if (trm_json_is_bool(schema)) {
        return trm_json_truth(schema, true) ? trm_grammar_json_value(&reader->json)
                                            : trm_grammar_list(tree, TRM_GRAMMAR_ANY_OF);
    }
    if (!trm_json_is_object(schema)) {
        return trm_schema_fail_wrong(reader, "a schema is neither an object nor a truth value");
    }
    if (!trm_grammar_enter(tree)) {
        return NULL;
    }
    trm_grammar_node *node = read_object_schema(reader, schema, type);
    if (trm_json_truth(trm_schema_member(schema, "nullable"), false)) {
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
    trm_grammar_node *root = trm_schema_call(&reader, reader.root);
    for (size_t i = 0; i < reader.n_refs && tree->status == TRM_OK; i++) { /* grows while it runs */
        trm_grammar_node *node = trm_schema_read(&reader, reader.refs[i].schema, NULL);
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
