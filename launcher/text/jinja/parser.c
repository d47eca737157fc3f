/* Statements of a template. */
#include "launcher/text/jinja/parser.h"

#include <string.h>

#include "base/error.h"
#include "launcher/text/jinja/parser_impl.h"

#define LARGEST_SOURCE ((size_t)4 << 20)

trm_status trm_jinja_syntax_error(const trm_jinja_parser *parser, const char *expected)
{
    const trm_jinja_token *token = trm_jinja_current(parser);
    static const char *const names[] = {
        [TRM_JINJA_TOKEN_END] = "the end of the template",
        [TRM_JINJA_TOKEN_DATA] = "text",
        [TRM_JINJA_TOKEN_VARIABLE_BEGIN] = "'{{'",
        [TRM_JINJA_TOKEN_VARIABLE_END] = "'}}'",
        [TRM_JINJA_TOKEN_BLOCK_BEGIN] = "'{%'",
        [TRM_JINJA_TOKEN_BLOCK_END] = "'%}'",
        [TRM_JINJA_TOKEN_STRING] = "a string",
        [TRM_JINJA_TOKEN_NUMBER] = "a number",
    };
    if (token->kind == TRM_JINJA_TOKEN_NAME || token->kind == TRM_JINJA_TOKEN_OPERATOR) {
        int size = (int)(token->value.size < 40 ? token->value.size : 40);
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s line %d: found '%.*s', expected %s", parser->name, token->line, size,
                 token->value.text, expected);
    }
    TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s line %d: found %s, expected %s", parser->name, token->line,
             names[token->kind], expected);
}

trm_status trm_jinja_new_node(trm_jinja_parser *parser, trm_jinja_node_kind kind, trm_jinja_node **node)
{
    *node = trm_arena_alloc(parser->arena, sizeof(**node));
    if (*node == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    (*node)->kind = (uint8_t)kind;
    (*node)->line = trm_jinja_current(parser)->line;
    return TRM_OK;
}

trm_status trm_jinja_expect(trm_jinja_parser *parser, const char *operator_text)
{
    if (!trm_jinja_skip(parser, operator_text)) {
        char text[16] = "'";
        strncat(text, operator_text, 8);
        strcat(text, "'");
        return trm_jinja_syntax_error(parser, text);
    }
    return TRM_OK;
}

trm_status trm_jinja_expect_name(trm_jinja_parser *parser, trm_jinja_value *name)
{
    const trm_jinja_token *token = trm_jinja_current(parser);
    if (token->kind != TRM_JINJA_TOKEN_NAME) {
        return trm_jinja_syntax_error(parser, "a name");
    }
    *name = token->value;
    parser->at++;
    return TRM_OK;
}

static trm_status expect_block_end(trm_jinja_parser *parser)
{
    if (trm_jinja_current(parser)->kind != TRM_JINJA_TOKEN_BLOCK_END) {
        return trm_jinja_syntax_error(parser, "'%}'");
    }
    parser->at++;
    return TRM_OK;
}

static trm_status parse_statements(trm_jinja_parser *parser, const char *const *ends, trm_jinja_node **list);

/* Parses the body of a block, from the end of its first tag to after the name of its end tag, one of `ends`
 * (NULL-terminated). */
static trm_status parse_body(trm_jinja_parser *parser, const char *const *ends, trm_jinja_node **list)
{
    (void)trm_jinja_skip(parser, ":");
    TRM_TRY(expect_block_end(parser));
    TRM_TRY(parse_statements(parser, ends, list));
    parser->at++;
    return TRM_OK;
}

static trm_status parse_for(trm_jinja_parser *parser, trm_jinja_node **node)
{
    static const char *const ends[] = {"endfor", "else", NULL}, *const ends_else[] = {"endfor", NULL};
    trm_jinja_node *loop;
    TRM_TRY(trm_jinja_new_node(parser, TRM_JINJA_FOR, &loop));
    TRM_TRY(trm_jinja_parse_target(parser, "in", false, &loop->a));
    if (!trm_jinja_skip_word(parser, "in")) {
        return trm_jinja_syntax_error(parser, "'in'");
    }
    TRM_TRY(trm_jinja_parse_tuple(parser, TRM_JINJA_TUPLE_NO_CONDITION, "recursive", &loop->b));
    if (trm_jinja_skip_word(parser, "if")) {
        TRM_TRY(trm_jinja_parse_expression(parser, &loop->c));
    }
    loop->flag = trm_jinja_skip_word(parser, "recursive");
    parser->loops++;
    TRM_TRY(parse_body(parser, ends, &loop->body));
    parser->loops--;
    if (trm_jinja_is_text(&parser->tokens[parser->at - 1].value, "else")) {
        TRM_TRY(parse_body(parser, ends_else, &loop->other));
    }
    *node = loop;
    return TRM_OK;
}

static trm_status parse_if(trm_jinja_parser *parser, trm_jinja_node **node)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL}, *const ends_else[] = {"endif", NULL};
    trm_jinja_node **link = node;
    for (;;) {
        trm_jinja_node *branch;
        TRM_TRY(trm_jinja_new_node(parser, TRM_JINJA_IF, &branch));
        TRM_TRY(trm_jinja_parse_tuple(parser, TRM_JINJA_TUPLE_NO_CONDITION, NULL, &branch->a));
        TRM_TRY(parse_body(parser, ends, &branch->body));
        *link = branch;
        link = &branch->other;
        const trm_jinja_value *end = &parser->tokens[parser->at - 1].value;
        if (trm_jinja_is_text(end, "endif")) {
            return TRM_OK;
        }
        if (trm_jinja_is_text(end, "else")) {
            return parse_body(parser, ends_else, link);
        }
    }
}

static trm_status parse_set(trm_jinja_parser *parser, trm_jinja_node **node)
{
    static const char *const ends[] = {"endset", NULL};
    TRM_TRY(trm_jinja_new_node(parser, TRM_JINJA_SET, node));
    TRM_TRY(trm_jinja_parse_target(parser, NULL, true, &(*node)->a));
    if (trm_jinja_skip(parser, "=")) {
        return trm_jinja_parse_tuple(parser, 0, NULL, &(*node)->b);
    }
    (*node)->kind = TRM_JINJA_SET_BLOCK;
    TRM_TRY(trm_jinja_parse_filters(parser, false, &(*node)->b));
    return parse_body(parser, ends, &(*node)->body);
}

static trm_status parse_parameters(trm_jinja_parser *parser, trm_jinja_node **list)
{
    TRM_TRY(trm_jinja_expect(parser, "("));
    bool defaults = false;
    for (trm_jinja_node **link = list; !trm_jinja_skip(parser, ")"); link = &(*link)->next) {
        if (link != list) {
            TRM_TRY(trm_jinja_expect(parser, ","));
        }
        trm_jinja_node *parameter;
        TRM_TRY(trm_jinja_new_node(parser, TRM_JINJA_PARAMETER, &parameter));
        TRM_TRY(trm_jinja_expect_name(parser, &parameter->value));
        if (trm_jinja_skip(parser, "=")) {
            defaults = true;
            TRM_TRY(trm_jinja_parse_expression(parser, &parameter->a));
        } else if (defaults) {
            return trm_jinja_syntax_error(parser, "a default, as for the parameter before it");
        }
        *link = parameter;
    }
    return TRM_OK;
}

static trm_status parse_macro(trm_jinja_parser *parser, trm_jinja_node **node)
{
    static const char *const ends[] = {"endmacro", NULL};
    TRM_TRY(trm_jinja_new_node(parser, TRM_JINJA_MACRO_DEF, node));
    TRM_TRY(trm_jinja_expect_name(parser, &(*node)->value));
    TRM_TRY(parse_parameters(parser, &(*node)->other));
    size_t begin = parser->at;
    int32_t loops = parser->loops;
    parser->loops = 0;
    TRM_TRY(parse_body(parser, ends, &(*node)->body));
    parser->loops = loops;
    for (size_t i = begin; i < parser->at; i++) {
        (*node)->flag |=
            parser->tokens[i].kind == TRM_JINJA_TOKEN_NAME && trm_jinja_is_text(&parser->tokens[i].value, "varargs");
        (*node)->flag2 |=
            parser->tokens[i].kind == TRM_JINJA_TOKEN_NAME && trm_jinja_is_text(&parser->tokens[i].value, "kwargs");
    }
    return TRM_OK;
}

static trm_status parse_call_block(trm_jinja_parser *parser, trm_jinja_node **node)
{
    static const char *const ends[] = {"endcall", NULL};
    TRM_TRY(trm_jinja_new_node(parser, TRM_JINJA_CALL_BLOCK, node));
    if (trm_jinja_looks_at(parser, "(")) {
        TRM_TRY(parse_parameters(parser, &(*node)->other));
    }
    TRM_TRY(trm_jinja_parse_expression(parser, &(*node)->a));
    if ((*node)->a->kind != TRM_JINJA_CALL) {
        return trm_jinja_syntax_error(parser, "a call before this");
    }
    return parse_body(parser, ends, &(*node)->body);
}

static trm_status parse_filter_block(trm_jinja_parser *parser, trm_jinja_node **node)
{
    static const char *const ends[] = {"endfilter", NULL};
    TRM_TRY(trm_jinja_new_node(parser, TRM_JINJA_FILTER_BLOCK, node));
    TRM_TRY(trm_jinja_parse_filters(parser, true, &(*node)->b));
    return parse_body(parser, ends, &(*node)->body);
}

static trm_status parse_with(trm_jinja_parser *parser, trm_jinja_node **node)
{
    static const char *const ends[] = {"endwith", NULL};
    TRM_TRY(trm_jinja_new_node(parser, TRM_JINJA_WITH, node));
    trm_jinja_node **link = &(*node)->other;
    while (trm_jinja_current(parser)->kind != TRM_JINJA_TOKEN_BLOCK_END) {
        if (link != &(*node)->other) {
            TRM_TRY(trm_jinja_expect(parser, ","));
        }
        TRM_TRY(trm_jinja_new_node(parser, TRM_JINJA_SET, link));
        TRM_TRY(trm_jinja_parse_target(parser, NULL, false, &(*link)->a));
        TRM_TRY(trm_jinja_expect(parser, "="));
        TRM_TRY(trm_jinja_parse_expression(parser, &(*link)->b));
        link = &(*link)->next;
    }
    return parse_body(parser, ends, &(*node)->body);
}

static trm_status parse_print(trm_jinja_parser *parser, trm_jinja_node **node)
{
    trm_jinja_node **link = node;
    do {
        TRM_TRY(trm_jinja_new_node(parser, TRM_JINJA_OUTPUT, link));
        TRM_TRY(trm_jinja_parse_expression(parser, &(*link)->a));
        link = &(*link)->next;
    } while (trm_jinja_skip(parser, ","));
    return TRM_OK;
}

static trm_status parse_generation(trm_jinja_parser *parser, trm_jinja_node **node)
{
    static const char *const ends[] = {"endgeneration", NULL};
    TRM_TRY(trm_jinja_new_node(parser, TRM_JINJA_SCOPE, node));
    return parse_body(parser, ends, &(*node)->body);
}

static trm_status parse_loop_control(trm_jinja_parser *parser, trm_jinja_node **node)
{
    bool is_break = trm_jinja_is_text(&parser->tokens[parser->at - 1].value, "break");
    if (parser->loops == 0) {
        return trm_jinja_syntax_error(parser, "break and continue inside loops only, before this");
    }
    return trm_jinja_new_node(parser, is_break ? TRM_JINJA_BREAK : TRM_JINJA_CONTINUE, node);
}

/* Parses one statement or, for print, a list; the current token follows its name. */
static trm_status parse_statement(trm_jinja_parser *parser, const trm_jinja_value *name, trm_jinja_node **node)
{
    static const struct {
        const char *name;
        trm_status (*parse)(trm_jinja_parser *parser, trm_jinja_node **node);
    } tags[] = {
        {"for", parse_for},
        {"if", parse_if},
        {"set", parse_set},
        {"macro", parse_macro},
        {"call", parse_call_block},
        {"filter", parse_filter_block},
        {"with", parse_with},
        {"print", parse_print},
        {"break", parse_loop_control},
        {"continue", parse_loop_control},
        {"generation", parse_generation},
    };
    static const char *const unsupported[] = {"include", "extends", "import", "from", "block", "autoescape"};
    for (size_t i = 0; i < sizeof(tags) / sizeof(tags[0]); i++) {
        if (trm_jinja_is_text(name, tags[i].name)) {
            TRM_TRY(trm_jinja_enter(parser));
            TRM_TRY(tags[i].parse(parser, node));
            parser->depth--;
            return TRM_OK;
        }
    }
    for (size_t i = 0; i < sizeof(unsupported) / sizeof(unsupported[0]); i++) {
        if (trm_jinja_is_text(name, unsupported[i])) {
            TRM_FAIL(TRM_ERROR_UNSUPPORTED, "%s line %d: the tag '%s' is not supported in chat templates", parser->name,
                     trm_jinja_current(parser)->line, unsupported[i]);
        }
    }
    TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s line %d: unknown tag '%.*s'", parser->name, trm_jinja_current(parser)->line,
             (int)(name->size < 40 ? name->size : 40), name->text);
}

static bool is_one_of(const trm_jinja_value *name, const char *const *words)
{
    for (; words != NULL && *words != NULL; words++) {
        if (trm_jinja_is_text(name, *words)) {
            return true;
        }
    }
    return false;
}

/* Parses statements up to the name of a tag in `ends`, which becomes the current token; NULL: to the end of the
 * template. */
static trm_status parse_statements(trm_jinja_parser *parser, const char *const *ends, trm_jinja_node **list)
{
    trm_jinja_node **link = list;
    for (;;) {
        const trm_jinja_token *token = trm_jinja_current(parser);
        if (token->kind == TRM_JINJA_TOKEN_END) {
            if (ends != NULL) {
                char expected[60] = "the tag '";
                strncat(expected, ends[0], 30);
                strcat(expected, "'");
                return trm_jinja_syntax_error(parser, expected);
            }
            return TRM_OK;
        }
        parser->at++;
        if (token->kind == TRM_JINJA_TOKEN_DATA) {
            TRM_TRY(trm_jinja_new_node(parser, TRM_JINJA_DATA, link));
            (*link)->value = token->value;
        } else if (token->kind == TRM_JINJA_TOKEN_VARIABLE_BEGIN) {
            TRM_TRY(trm_jinja_new_node(parser, TRM_JINJA_OUTPUT, link));
            TRM_TRY(trm_jinja_parse_tuple(parser, 0, NULL, &(*link)->a));
            if (trm_jinja_current(parser)->kind != TRM_JINJA_TOKEN_VARIABLE_END) {
                return trm_jinja_syntax_error(parser, "'}}'");
            }
            parser->at++;
        } else {
            trm_jinja_value name;
            if (is_one_of(&trm_jinja_current(parser)->value, ends) &&
                trm_jinja_current(parser)->kind == TRM_JINJA_TOKEN_NAME) {
                return TRM_OK;
            }
            TRM_TRY(trm_jinja_expect_name(parser, &name));
            TRM_TRY(parse_statement(parser, &name, link));
            TRM_TRY(expect_block_end(parser));
        }
        while (*link != NULL) {
            link = &(*link)->next;
        }
    }
}

trm_status trm_jinja_parse(trm_arena *arena, const char *name, const char *source, size_t size,
                           trm_jinja_node **statements)
{
    if (size > LARGEST_SOURCE) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s has %zu bytes, expected at most %zu", name, size, LARGEST_SOURCE);
    }
    trm_jinja_tokens tokens = {0};
    TRM_TRY(trm_jinja_lex(arena, name, source, size, &tokens));
    trm_jinja_parser parser = {.arena = arena, .name = name, .tokens = tokens.items};
    trm_jinja_node *list = NULL;
    TRM_TRY(parse_statements(&parser, NULL, &list));
    *statements = list;
    return TRM_OK;
}
