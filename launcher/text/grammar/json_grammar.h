/*
 * The parts of JSON texts, as expressions.
 */
#ifndef TRM_LAUNCHER_TEXT_GRAMMAR_JSON_GRAMMAR_H
#define TRM_LAUNCHER_TEXT_GRAMMAR_JSON_GRAMMAR_H

#include "launcher/text/grammar/tree.h"

/* Rules, made on first use. */
typedef struct trm_grammar_json {
    trm_grammar_tree *tree;
    const trm_grammar_node *character;                            /* plain one, made on first use */
    int32_t space, string, number, integer, value, object, array; /* 0: not made yet, else the rule + 1 */
} trm_grammar_json;

trm_grammar_node *trm_grammar_json_space(trm_grammar_json *json);
trm_grammar_node *trm_grammar_json_string(trm_grammar_json *json);
trm_grammar_node *trm_grammar_json_number(trm_grammar_json *json);
trm_grammar_node *trm_grammar_json_integer(trm_grammar_json *json);
/* Without a call of a rule, and with no more digits than a double keeps. Equal decimals are equal texts, except 0 and
 * -0. */
trm_grammar_node *trm_grammar_json_plain_integer(trm_grammar_json *json);
trm_grammar_node *trm_grammar_json_plain_decimal(trm_grammar_json *json);
trm_grammar_node *trm_grammar_json_object(trm_grammar_json *json);
trm_grammar_node *trm_grammar_json_array(trm_grammar_json *json);
trm_grammar_node *trm_grammar_json_value(trm_grammar_json *json);
/* One character of a string, with any escape. */
trm_grammar_node *trm_grammar_json_character(trm_grammar_json *json);
/* One character of a string with its shortest escape, if it needs one: equal strings are then equal texts. */
trm_grammar_node *trm_grammar_json_plain_character(trm_grammar_json *json);
/* first ("," space more)* between brackets such as "{" and "}". */
trm_grammar_node *trm_grammar_json_brackets(trm_grammar_json *json, const char *open, trm_grammar_node *content,
                                            const char *close);
/* A string of the document with the shortest escapes. */
trm_grammar_node *trm_grammar_json_text(trm_grammar_json *json, const char *text);
/* A string of the document in quotes, escaped where necessary. */
trm_grammar_node *trm_grammar_json_quoted(trm_grammar_json *json, const char *text);
/* Integers from min to max in decimal. */
trm_grammar_node *trm_grammar_json_range(trm_grammar_json *json, int64_t min, int64_t max);

#endif
