/*
 * Shared by the parsers of statements and of expressions.
 */
#ifndef TRM_LAUNCHER_TEXT_JINJA_PARSER_IMPL_H
#define TRM_LAUNCHER_TEXT_JINJA_PARSER_IMPL_H

#include "launcher/text/jinja/lexer.h"
#include "launcher/text/jinja/parser.h"

typedef struct trm_jinja_parser {
    trm_arena *arena;
    const char *name;
    const trm_jinja_token *tokens;
    size_t at;
    int32_t depth; /* of nested statements and expressions */
    int32_t loops; /* around the current token, within its macro */
} trm_jinja_parser;

static inline const trm_jinja_token *trm_jinja_current(const trm_jinja_parser *parser)
{
    return &parser->tokens[parser->at];
}
static inline bool trm_jinja_looks_at(const trm_jinja_parser *parser, const char *operator_text)
{
    const trm_jinja_token *token = trm_jinja_current(parser);
    return token->kind == TRM_JINJA_TOKEN_OPERATOR && trm_jinja_is_text(&token->value, operator_text);
}
static inline bool trm_jinja_looks_at_word(const trm_jinja_parser *parser, const char *word)
{
    const trm_jinja_token *token = trm_jinja_current(parser);
    return token->kind == TRM_JINJA_TOKEN_NAME && trm_jinja_is_text(&token->value, word);
}
static inline bool trm_jinja_skip(trm_jinja_parser *parser, const char *operator_text)
{
    bool found = trm_jinja_looks_at(parser, operator_text);
    parser->at += found;
    return found;
}
static inline bool trm_jinja_skip_word(trm_jinja_parser *parser, const char *word)
{
    bool found = trm_jinja_looks_at_word(parser, word);
    parser->at += found;
    return found;
}

/* "line N: found X, expected ..." at the current token. */
trm_status trm_jinja_syntax_error(const trm_jinja_parser *parser, const char *expected);
trm_status trm_jinja_new_node(trm_jinja_parser *parser, trm_jinja_node_kind kind, trm_jinja_node **node);
trm_status trm_jinja_expect(trm_jinja_parser *parser, const char *operator_text);
trm_status trm_jinja_expect_name(trm_jinja_parser *parser, trm_jinja_value *name);
/* Enters a level; fails at the limit. Leave with depth--. */
trm_status trm_jinja_enter(trm_jinja_parser *parser);

trm_status trm_jinja_parse_expression(trm_jinja_parser *parser, trm_jinja_node **node);
enum {
    TRM_JINJA_TUPLE_NO_CONDITION = 1, /* items are not conditional expressions */
    TRM_JINJA_TUPLE_IN_BRACKETS = 2   /* may be empty */
};
/* An expression, or several separated by commas; `end` is a word that ends it, or NULL. */
trm_status trm_jinja_parse_tuple(trm_jinja_parser *parser, int flags, const char *end, trm_jinja_node **node);
/* The target of an assignment: a name, a tuple of names, or with `namespaces` also name.attribute. */
trm_status trm_jinja_parse_target(trm_jinja_parser *parser, const char *end, bool namespaces, trm_jinja_node **node);
/* "name(arguments) | name ..." as FILTERs around an operand that is NULL; `bare`: the first has no bar before it. *node
 * stays NULL if there is none. */
trm_status trm_jinja_parse_filters(trm_jinja_parser *parser, bool bare, trm_jinja_node **node);

#endif
