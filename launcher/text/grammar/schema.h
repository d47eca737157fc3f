/*
 * The parts of the JSON schema reader: schema.c has the keywords of a schema, schema_value.c single values,
 * schema_members.c arrays and objects.
 */
#ifndef TRM_LAUNCHER_TEXT_GRAMMAR_SCHEMA_H
#define TRM_LAUNCHER_TEXT_GRAMMAR_SCHEMA_H

#include "base/json.h"
#include "launcher/text/grammar/json_grammar.h"

/* A schema that $ref refers to, and its rule. */
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

/* The member, also if it is null; NULL if absent. */
const trm_json *trm_schema_member(const trm_json *object, const char *key);
/* Record a failure; return NULL. */
trm_grammar_node *trm_schema_fail_unsupported(schema_reader *reader, const char *what);
trm_grammar_node *trm_schema_fail_wrong(schema_reader *reader, const char *what);
bool trm_schema_is_null(const trm_json *value);
/* Reads const and enum: values of the type next to them, which may be an array of types, or of the enclosing schema's
 * `type`. */
trm_grammar_node *trm_schema_const(schema_reader *reader, const trm_json *value, const trm_json *types,
                                   const char *type);
trm_grammar_node *trm_schema_enum(schema_reader *reader, const trm_json *values, const trm_json *types,
                                  const char *type);
/* Reads a count such as minItems; if absent, *count stays. */
void trm_schema_read_count(schema_reader *reader, const trm_json *schema, const char *key, int32_t *count);
/* The expression of a value of a type. */
trm_grammar_node *trm_schema_integer(schema_reader *reader, const trm_json *schema);
trm_grammar_node *trm_schema_number(schema_reader *reader, const trm_json *schema);
trm_grammar_node *trm_schema_string(schema_reader *reader, const trm_json *schema);
trm_grammar_node *trm_schema_array(schema_reader *reader, const trm_json *schema);
trm_grammar_node *trm_schema_object(schema_reader *reader, const trm_json *schema);
/* `type` is that of the enclosing schema, or NULL. */
trm_grammar_node *trm_schema_read(schema_reader *reader, const trm_json *schema, const char *type);
/* A call of the rule of a schema, which is read once however often it is referred to. */
trm_grammar_node *trm_schema_call(schema_reader *reader, const trm_json *schema);

#endif
