/* Expressions of a template, in Jinja2's order of precedence. */
#include <string.h>

#include "base/error.h"
#include "launcher/text/jinja/parser_impl.h"

#define DEEPEST 200

static trm_status parse_or(trm_jinja_parser *parser, trm_jinja_node **node);
static trm_status parse_unary(trm_jinja_parser *parser, bool with_filter, trm_jinja_node **node);

trm_status trm_jinja_enter(trm_jinja_parser *parser)
{
    if (++parser->depth > DEEPEST) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s line %d: nested more than %d levels deep", parser->name,
                 trm_jinja_current(parser)->line, DEEPEST);
    }
    return TRM_OK;
}

/* Replaces a by a node over a and b. */
static trm_status wrap(trm_jinja_parser *parser, trm_jinja_node_kind kind, trm_jinja_node *b, trm_jinja_node **a)
{
    trm_jinja_node *node;
    TRM_TRY(trm_jinja_new_node(parser, kind, &node));
    node->line = (*a)->line;
    node->a = *a;
    node->b = b;
    *a = node;
    return TRM_OK;
}

trm_status trm_jinja_parse_expression(trm_jinja_parser *parser, trm_jinja_node **node)
{
    TRM_TRY(trm_jinja_enter(parser));
    TRM_TRY(parse_or(parser, node));
    while (trm_jinja_skip_word(parser, "if")) {
        trm_jinja_node *condition;
        TRM_TRY(trm_jinja_new_node(parser, TRM_JINJA_CONDITION, &condition));
        condition->b = *node;
        TRM_TRY(parse_or(parser, &condition->a));
        if (trm_jinja_skip_word(parser, "else")) {
            TRM_TRY(trm_jinja_parse_expression(parser, &condition->c));
        }
        *node = condition;
    }
    parser->depth--;
    return TRM_OK;
}

static trm_status parse_list_of(trm_jinja_parser *parser, const char *end, bool pairs, trm_jinja_node **list)
{
    for (trm_jinja_node **link = list; !trm_jinja_skip(parser, end); link = &(*link)->next) {
        if (link != list) {
            TRM_TRY(trm_jinja_expect(parser, ","));
            if (trm_jinja_skip(parser, end)) {
                break;
            }
        }
        trm_jinja_node *item;
        TRM_TRY(trm_jinja_parse_expression(parser, &item));
        if (pairs) {
            trm_jinja_node *value;
            TRM_TRY(trm_jinja_expect(parser, ":"));
            TRM_TRY(trm_jinja_parse_expression(parser, &value));
            TRM_TRY(wrap(parser, TRM_JINJA_PAIR, value, &item));
        }
        *link = item;
    }
    return TRM_OK;
}

static trm_status parse_constant(trm_jinja_parser *parser, trm_jinja_value value, trm_jinja_node **node)
{
    TRM_TRY(trm_jinja_new_node(parser, TRM_JINJA_CONST, node));
    (*node)->value = value;
    parser->at++;
    return TRM_OK;
}

static trm_status parse_name(trm_jinja_parser *parser, bool namespaces, trm_jinja_node **node)
{
    const trm_jinja_value *name = &trm_jinja_current(parser)->value;
    bool is_true = trm_jinja_is_text(name, "true") || trm_jinja_is_text(name, "True");
    if (is_true || trm_jinja_is_text(name, "false") || trm_jinja_is_text(name, "False")) {
        return parse_constant(parser, trm_jinja_bool(is_true), node);
    }
    if (trm_jinja_is_text(name, "none") || trm_jinja_is_text(name, "None")) {
        return parse_constant(parser, trm_jinja_none(), node);
    }
    TRM_TRY(parse_constant(parser, *name, node));
    (*node)->kind = TRM_JINJA_NAME;
    if (namespaces && trm_jinja_skip(parser, ".")) {
        (*node)->kind = TRM_JINJA_NSREF;
        TRM_TRY(trm_jinja_new_node(parser, TRM_JINJA_CONST, &(*node)->a));
        return trm_jinja_expect_name(parser, &(*node)->a->value);
    }
    return TRM_OK;
}

/* Adjacent strings are joined. */
static trm_status parse_strings(trm_jinja_parser *parser, trm_jinja_node **node)
{
    TRM_TRY(parse_constant(parser, trm_jinja_current(parser)->value, node));
    while (trm_jinja_current(parser)->kind == TRM_JINJA_TOKEN_STRING) {
        trm_jinja_value *value = &(*node)->value;
        const trm_jinja_value *more = &trm_jinja_current(parser)->value;
        char *joined = trm_arena_alloc(parser->arena, value->size + more->size + 1);
        if (joined == NULL) {
            return TRM_ERROR_OUT_OF_MEMORY;
        }
        memcpy(joined, value->text, value->size);
        memcpy(joined + value->size, more->text, more->size);
        *value = trm_jinja_text(joined, value->size + more->size);
        parser->at++;
    }
    return TRM_OK;
}

static trm_status parse_primary(trm_jinja_parser *parser, bool namespaces, trm_jinja_node **node)
{
    switch (trm_jinja_current(parser)->kind) {
    case TRM_JINJA_TOKEN_NAME:
        return parse_name(parser, namespaces, node);
    case TRM_JINJA_TOKEN_STRING:
        return parse_strings(parser, node);
    case TRM_JINJA_TOKEN_NUMBER:
        return parse_constant(parser, trm_jinja_current(parser)->value, node);
    default:
        break;
    }
    if (trm_jinja_skip(parser, "(")) {
        TRM_TRY(trm_jinja_parse_tuple(parser, TRM_JINJA_TUPLE_IN_BRACKETS, NULL, node));
        return trm_jinja_expect(parser, ")");
    }
    bool list = trm_jinja_skip(parser, "[");
    if (list || trm_jinja_skip(parser, "{")) {
        TRM_TRY(trm_jinja_new_node(parser, list ? TRM_JINJA_LIST_OF : TRM_JINJA_MAP_OF, node));
        return parse_list_of(parser, list ? "]" : "}", !list, &(*node)->body);
    }
    return trm_jinja_syntax_error(parser, "an expression");
}

static bool ends_slice(const trm_jinja_parser *parser)
{
    return trm_jinja_looks_at(parser, "]") || trm_jinja_looks_at(parser, ",") || trm_jinja_looks_at(parser, ":");
}

/* index, or start:stop:step. */
static trm_status parse_index(trm_jinja_parser *parser, trm_jinja_node **node)
{
    trm_jinja_node *parts[3] = {NULL, NULL, NULL};
    int part = 0;
    if (!ends_slice(parser)) {
        TRM_TRY(trm_jinja_parse_expression(parser, &parts[0]));
    }
    while (part < 2 && trm_jinja_skip(parser, ":")) {
        part++;
        if (!ends_slice(parser)) {
            TRM_TRY(trm_jinja_parse_expression(parser, &parts[part]));
        }
    }
    if (part == 0) {
        *node = parts[0];
        return parts[0] == NULL ? trm_jinja_syntax_error(parser, "an index") : TRM_OK;
    }
    TRM_TRY(trm_jinja_new_node(parser, TRM_JINJA_SLICE, node));
    (*node)->a = parts[0];
    (*node)->b = parts[1];
    (*node)->c = parts[2];
    return TRM_OK;
}

static trm_status parse_arguments(trm_jinja_parser *parser, trm_jinja_node **list)
{
    uint8_t last = TRM_JINJA_BY_POSITION;
    for (trm_jinja_node **link = list; !trm_jinja_skip(parser, ")"); link = &(*link)->next) {
        if (link != list) {
            TRM_TRY(trm_jinja_expect(parser, ","));
            if (trm_jinja_skip(parser, ")")) {
                break;
            }
        }
        trm_jinja_node *argument;
        TRM_TRY(trm_jinja_new_node(parser, TRM_JINJA_ARGUMENT, &argument));
        argument->op = TRM_JINJA_BY_POSITION;
        const trm_jinja_token *token = trm_jinja_current(parser);
        if (trm_jinja_skip(parser, "*")) {
            argument->op = TRM_JINJA_BY_LIST;
        } else if (trm_jinja_skip(parser, "**")) {
            argument->op = TRM_JINJA_BY_MAP;
        } else if (token->kind == TRM_JINJA_TOKEN_NAME && token[1].kind == TRM_JINJA_TOKEN_OPERATOR &&
                   trm_jinja_is_text(&token[1].value, "=")) {
            argument->op = TRM_JINJA_BY_KEYWORD;
            argument->value = token->value;
            parser->at += 2;
        }
        bool allowed = argument->op >= last && (argument->op != last || argument->op < TRM_JINJA_BY_LIST);
        allowed |= argument->op == TRM_JINJA_BY_KEYWORD && last == TRM_JINJA_BY_LIST;
        if (!allowed) {
            return trm_jinja_syntax_error(parser, "arguments by position, then by keyword, then *list and **map");
        }
        last = argument->op;
        TRM_TRY(trm_jinja_parse_expression(parser, &argument->a));
        *link = argument;
    }
    return TRM_OK;
}

static trm_status parse_call(trm_jinja_parser *parser, trm_jinja_node **node)
{
    TRM_TRY(wrap(parser, TRM_JINJA_CALL, NULL, node));
    return parse_arguments(parser, &(*node)->body);
}

static trm_status parse_subscripts(trm_jinja_parser *parser, trm_jinja_node **node)
{
    trm_jinja_node *index;
    TRM_TRY(parse_index(parser, &index));
    if (trm_jinja_looks_at(parser, ",")) {
        return trm_jinja_syntax_error(parser, "one index");
    }
    TRM_TRY(trm_jinja_expect(parser, "]"));
    return wrap(parser, TRM_JINJA_ITEM, index, node);
}

static trm_status parse_postfix(trm_jinja_parser *parser, trm_jinja_node **node)
{
    for (;;) {
        if (trm_jinja_skip(parser, ".")) {
            const trm_jinja_token *token = trm_jinja_current(parser);
            if (token->kind == TRM_JINJA_TOKEN_NUMBER && token->value.kind == TRM_JINJA_INTEGER) {
                trm_jinja_node *index;
                TRM_TRY(parse_constant(parser, token->value, &index));
                TRM_TRY(wrap(parser, TRM_JINJA_ITEM, index, node));
                continue;
            }
            TRM_TRY(wrap(parser, TRM_JINJA_ATTRIBUTE, NULL, node));
            TRM_TRY(trm_jinja_expect_name(parser, &(*node)->value));
        } else if (trm_jinja_skip(parser, "[")) {
            TRM_TRY(parse_subscripts(parser, node));
        } else if (trm_jinja_skip(parser, "(")) {
            TRM_TRY(parse_call(parser, node));
        } else {
            return TRM_OK;
        }
    }
}

/* Names with dots are unknown here, but must be parsed. */
static trm_status parse_filter_name(trm_jinja_parser *parser, trm_jinja_value *name)
{
    TRM_TRY(trm_jinja_expect_name(parser, name));
    if (trm_jinja_looks_at(parser, ".")) {
        return trm_jinja_syntax_error(parser, "the name of a filter or test, without dots");
    }
    return TRM_OK;
}

static trm_status parse_filter(trm_jinja_parser *parser, trm_jinja_node **node)
{
    trm_jinja_node *filter;
    TRM_TRY(trm_jinja_new_node(parser, TRM_JINJA_FILTER, &filter));
    filter->a = *node;
    TRM_TRY(parse_filter_name(parser, &filter->value));
    if (trm_jinja_skip(parser, "(")) {
        TRM_TRY(parse_arguments(parser, &filter->body));
    }
    *node = filter;
    return TRM_OK;
}

trm_status trm_jinja_parse_filters(trm_jinja_parser *parser, bool bare, trm_jinja_node **node)
{
    *node = NULL;
    while (bare || trm_jinja_skip(parser, "|")) {
        TRM_TRY(parse_filter(parser, node));
        bare = false;
    }
    return TRM_OK;
}

static bool starts_test_argument(const trm_jinja_parser *parser)
{
    switch (trm_jinja_current(parser)->kind) {
    case TRM_JINJA_TOKEN_NAME:
        return !trm_jinja_looks_at_word(parser, "else") && !trm_jinja_looks_at_word(parser, "or") &&
               !trm_jinja_looks_at_word(parser, "and");
    case TRM_JINJA_TOKEN_STRING:
    case TRM_JINJA_TOKEN_NUMBER:
        return true;
    default:
        return trm_jinja_looks_at(parser, "[") || trm_jinja_looks_at(parser, "{");
    }
}

/* Behind "is". */
static trm_status parse_test(trm_jinja_parser *parser, trm_jinja_node **node)
{
    bool negated = trm_jinja_skip_word(parser, "not");
    TRM_TRY(wrap(parser, TRM_JINJA_TEST, NULL, node));
    TRM_TRY(parse_filter_name(parser, &(*node)->value));
    if (trm_jinja_skip(parser, "(")) {
        TRM_TRY(parse_arguments(parser, &(*node)->body));
    } else if (starts_test_argument(parser)) {
        if (trm_jinja_looks_at_word(parser, "is")) {
            return trm_jinja_syntax_error(parser, "anything but a test, since tests cannot be chained");
        }
        trm_jinja_node *argument;
        TRM_TRY(trm_jinja_new_node(parser, TRM_JINJA_ARGUMENT, &argument));
        argument->op = TRM_JINJA_BY_POSITION;
        TRM_TRY(parse_primary(parser, false, &argument->a));
        TRM_TRY(parse_postfix(parser, &argument->a));
        (*node)->body = argument;
    }
    return negated ? wrap(parser, TRM_JINJA_NOT, NULL, node) : TRM_OK;
}

static trm_status parse_unary(trm_jinja_parser *parser, bool with_filter, trm_jinja_node **node)
{
    TRM_TRY(trm_jinja_enter(parser));
    bool negate = trm_jinja_skip(parser, "-");
    if (negate || trm_jinja_skip(parser, "+")) {
        TRM_TRY(parse_unary(parser, false, node));
        TRM_TRY(wrap(parser, negate ? TRM_JINJA_NEGATE : TRM_JINJA_PLUS, NULL, node));
    } else {
        TRM_TRY(parse_primary(parser, false, node));
    }
    TRM_TRY(parse_postfix(parser, node));
    while (with_filter) {
        if (trm_jinja_skip(parser, "|")) {
            TRM_TRY(parse_filter(parser, node));
        } else if (trm_jinja_skip_word(parser, "is")) {
            TRM_TRY(parse_test(parser, node));
        } else if (trm_jinja_skip(parser, "(")) {
            TRM_TRY(parse_call(parser, node));
        } else {
            break;
        }
    }
    parser->depth--;
    return TRM_OK;
}

typedef struct binary_operator {
    const char *text;
    trm_jinja_op op;
} binary_operator;

static const binary_operator *find_operator(trm_jinja_parser *parser, const binary_operator *table)
{
    for (; table->text != NULL; table++) {
        if (trm_jinja_skip(parser, table->text)) {
            return table;
        }
    }
    return NULL;
}

/* operand (operator operand)*, from the left. */
static trm_status parse_chain(trm_jinja_parser *parser, const binary_operator *table,
                              trm_status (*operand)(trm_jinja_parser *, trm_jinja_node **), trm_jinja_node **node)
{
    TRM_TRY(operand(parser, node));
    const binary_operator *found;
    while ((found = find_operator(parser, table)) != NULL) {
        trm_jinja_node *right;
        TRM_TRY(operand(parser, &right));
        TRM_TRY(wrap(parser, TRM_JINJA_BINARY, right, node));
        (*node)->op = (uint8_t)found->op;
    }
    return TRM_OK;
}

static trm_status parse_filtered(trm_jinja_parser *parser, trm_jinja_node **node)
{
    return parse_unary(parser, true, node);
}

static trm_status parse_power(trm_jinja_parser *parser, trm_jinja_node **node)
{
    static const binary_operator table[] = {{"**", TRM_JINJA_POWER}, {NULL, 0}};
    return parse_chain(parser, table, parse_filtered, node);
}

static trm_status parse_product(trm_jinja_parser *parser, trm_jinja_node **node)
{
    static const binary_operator table[] = {{"*", TRM_JINJA_MULTIPLY},
                                            {"/", TRM_JINJA_DIVIDE},
                                            {"//", TRM_JINJA_FLOOR_DIVIDE},
                                            {"%", TRM_JINJA_MODULO},
                                            {NULL, 0}};
    return parse_chain(parser, table, parse_power, node);
}

static trm_status parse_concat(trm_jinja_parser *parser, trm_jinja_node **node)
{
    TRM_TRY(parse_product(parser, node));
    if (!trm_jinja_looks_at(parser, "~")) {
        return TRM_OK;
    }
    trm_jinja_node *concat;
    TRM_TRY(trm_jinja_new_node(parser, TRM_JINJA_CONCAT, &concat));
    concat->body = *node;
    for (trm_jinja_node **link = &concat->body->next; trm_jinja_skip(parser, "~"); link = &(*link)->next) {
        TRM_TRY(parse_product(parser, link));
    }
    *node = concat;
    return TRM_OK;
}

static trm_status parse_sum(trm_jinja_parser *parser, trm_jinja_node **node)
{
    static const binary_operator table[] = {{"+", TRM_JINJA_ADD}, {"-", TRM_JINJA_SUBTRACT}, {NULL, 0}};
    return parse_chain(parser, table, parse_concat, node);
}

static bool find_comparison(trm_jinja_parser *parser, uint8_t *op)
{
    static const binary_operator table[] = {{"==", TRM_JINJA_EQUAL},
                                            {"!=", TRM_JINJA_NOT_EQUAL},
                                            {"<=", TRM_JINJA_LESS_EQUAL},
                                            {"<", TRM_JINJA_LESS},
                                            {">=", TRM_JINJA_GREATER_EQUAL},
                                            {">", TRM_JINJA_GREATER},
                                            {NULL, 0}};
    const binary_operator *found = find_operator(parser, table);
    if (found != NULL) {
        *op = (uint8_t)found->op;
        return true;
    }
    if (trm_jinja_skip_word(parser, "in")) {
        *op = TRM_JINJA_IN;
        return true;
    }
    const trm_jinja_token *token = trm_jinja_current(parser);
    if (trm_jinja_looks_at_word(parser, "not") && token[1].kind == TRM_JINJA_TOKEN_NAME &&
        trm_jinja_is_text(&token[1].value, "in")) {
        parser->at += 2;
        *op = TRM_JINJA_NOT_IN;
        return true;
    }
    return false;
}

static trm_status parse_compare(trm_jinja_parser *parser, trm_jinja_node **node)
{
    TRM_TRY(parse_sum(parser, node));
    uint8_t op;
    trm_jinja_node **link = NULL;
    while (find_comparison(parser, &op)) {
        if (link == NULL) {
            TRM_TRY(wrap(parser, TRM_JINJA_COMPARE, NULL, node));
            link = &(*node)->body;
        }
        TRM_TRY(trm_jinja_new_node(parser, TRM_JINJA_OPERAND, link));
        (*link)->op = op;
        TRM_TRY(parse_sum(parser, &(*link)->a));
        link = &(*link)->next;
    }
    return TRM_OK;
}

static trm_status parse_not(trm_jinja_parser *parser, trm_jinja_node **node)
{
    if (!trm_jinja_skip_word(parser, "not")) {
        return parse_compare(parser, node);
    }
    TRM_TRY(trm_jinja_enter(parser));
    TRM_TRY(parse_not(parser, node));
    parser->depth--;
    return wrap(parser, TRM_JINJA_NOT, NULL, node);
}

static trm_status parse_and(trm_jinja_parser *parser, trm_jinja_node **node)
{
    TRM_TRY(parse_not(parser, node));
    while (trm_jinja_skip_word(parser, "and")) {
        trm_jinja_node *right;
        TRM_TRY(parse_not(parser, &right));
        TRM_TRY(wrap(parser, TRM_JINJA_AND, right, node));
    }
    return TRM_OK;
}

static trm_status parse_or(trm_jinja_parser *parser, trm_jinja_node **node)
{
    TRM_TRY(parse_and(parser, node));
    while (trm_jinja_skip_word(parser, "or")) {
        trm_jinja_node *right;
        TRM_TRY(parse_and(parser, &right));
        TRM_TRY(wrap(parser, TRM_JINJA_OR, right, node));
    }
    return TRM_OK;
}

static bool ends_tuple(const trm_jinja_parser *parser, const char *end)
{
    trm_jinja_token_kind kind = trm_jinja_current(parser)->kind;
    return kind == TRM_JINJA_TOKEN_VARIABLE_END || kind == TRM_JINJA_TOKEN_BLOCK_END ||
           trm_jinja_looks_at(parser, ")") || (end != NULL && trm_jinja_looks_at_word(parser, end));
}

trm_status trm_jinja_parse_tuple(trm_jinja_parser *parser, int flags, const char *end, trm_jinja_node **node)
{
    trm_jinja_node *first = NULL, **link = &first;
    bool tuple = false;
    while (!ends_tuple(parser, end)) {
        TRM_TRY((flags & TRM_JINJA_TUPLE_NO_CONDITION) != 0 ? parse_or(parser, link)
                                                            : trm_jinja_parse_expression(parser, link));
        link = &(*link)->next;
        if (!trm_jinja_skip(parser, ",")) {
            break;
        }
        tuple = true;
    }
    if (!tuple && first != NULL) {
        *node = first;
        return TRM_OK;
    }
    if (!tuple && (flags & TRM_JINJA_TUPLE_IN_BRACKETS) == 0) {
        return trm_jinja_syntax_error(parser, "an expression");
    }
    TRM_TRY(trm_jinja_new_node(parser, TRM_JINJA_TUPLE_OF, node));
    (*node)->body = first;
    return TRM_OK;
}

trm_status trm_jinja_parse_target(trm_jinja_parser *parser, const char *end, bool namespaces, trm_jinja_node **node)
{
    trm_jinja_node *first = NULL, **link = &first;
    bool tuple = false;
    TRM_TRY(trm_jinja_enter(parser));
    while (!ends_tuple(parser, end) && !trm_jinja_looks_at(parser, "=")) {
        if (trm_jinja_skip(parser, "(")) {
            TRM_TRY(trm_jinja_parse_target(parser, NULL, namespaces, link));
            TRM_TRY(trm_jinja_expect(parser, ")"));
        } else {
            TRM_TRY(parse_primary(parser, namespaces, link));
            if ((*link)->kind != TRM_JINJA_NAME && (*link)->kind != TRM_JINJA_NSREF) {
                return trm_jinja_syntax_error(parser, "names to assign to, before this");
            }
        }
        link = &(*link)->next;
        if (!trm_jinja_skip(parser, ",")) {
            break;
        }
        tuple = true;
    }
    parser->depth--;
    if (first == NULL) {
        return trm_jinja_syntax_error(parser, "a name to assign to");
    }
    *node = first;
    if (tuple) {
        TRM_TRY(trm_jinja_new_node(parser, TRM_JINJA_TUPLE_OF, node));
        (*node)->body = first;
    }
    return TRM_OK;
}
