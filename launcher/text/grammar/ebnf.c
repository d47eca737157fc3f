/*
 * Grammars in the two notations that clients send.
 *
 *   llama.cpp:  root ::= "a" name* [0-9]{2} ( x | y )?      # comment; starts at root
 *   Lark:       start: "a" NAME* /[0-9]{2}/ [x] ( y | z )?  // comment; starts at start
 */
#include <string.h>

#include "base/error.h"
#include "base/hex.h"
#include "launcher/text/grammar/tree.h"
#include "launcher/text/strings/utf8.h"

#define MAX_RANGES 512
#define MAX_TIMES  10000

typedef struct ebnf_reader {
    trm_grammar_tree *tree;
    const char *text;
    size_t size, at;
    bool lark;
    int32_t brackets; /* open brackets: line ends mean nothing within them */
} ebnf_reader;

static trm_grammar_node *read_alternatives(ebnf_reader *reader);

static trm_grammar_node *fail_at(ebnf_reader *reader, const char *what)
{
    int line = 1;
    for (size_t i = 0; i < reader->at && i < reader->size; i++) {
        line += reader->text[i] == '\n';
    }
    return trm_grammar_fail(reader->tree, TRM_ERROR_INVALID_ARGUMENT, "grammar line %d: %s", line, what);
}

static bool looks_at(const ebnf_reader *reader, const char *text)
{
    size_t size = strlen(text);
    return reader->size - reader->at >= size && memcmp(reader->text + reader->at, text, size) == 0;
}

static char peek(const ebnf_reader *reader)
{
    return reader->at < reader->size ? reader->text[reader->at] : '\0';
}

static bool skip(ebnf_reader *reader, char c)
{
    bool found = reader->at < reader->size && reader->text[reader->at] == c;
    reader->at += found;
    return found;
}

/* Skips white space and comments; with `lines` line ends too. */
static void skip_space(ebnf_reader *reader, bool lines)
{
    while (reader->at < reader->size) {
        char c = reader->text[reader->at];
        if (c == '#' || (reader->lark && looks_at(reader, "//"))) {
            while (reader->at < reader->size && reader->text[reader->at] != '\n') {
                reader->at++;
            }
        } else if (c == ' ' || c == '\t' || c == '\r' || (c == '\n' && (lines || reader->brackets > 0))) {
            reader->at++;
        } else {
            break;
        }
    }
}

/* A rule continues in the next line if that begins with a bar. */
static void skip_to_bar(ebnf_reader *reader)
{
    size_t before = reader->at;
    skip_space(reader, true);
    if (peek(reader) != '|') {
        reader->at = before;
    }
}

static bool is_name_byte(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

static size_t name_size(const ebnf_reader *reader)
{
    size_t size = 0;
    while (reader->at + size < reader->size && is_name_byte(reader->text[reader->at + size])) {
        size++;
    }
    return size;
}

/* The rule of a name, which may be defined later. */
static int32_t rule_of(ebnf_reader *reader, const char *name, size_t size)
{
    int32_t rule = trm_grammar_find_rule(reader->tree, name, size);
    return rule >= 0 ? rule : trm_grammar_add_rule(reader->tree, name, size);
}

/* Reads a character of a string or class, with escapes; -1 after a failure. */
static int32_t read_character(ebnf_reader *reader)
{
    static const char from[] = "nrtfv0ab", to[] = "\n\r\t\f\v\0\a\b";
    size_t size;
    bool escaped = skip(reader, '\\');
    if (reader->at >= reader->size) {
        fail_at(reader, "the grammar ends within a string or class");
        return -1;
    }
    if (!escaped) {
        int32_t c = trm_utf8_read(reader->text + reader->at, &size);
        reader->at += size;
        return c;
    }
    char c = peek(reader);
    const char *known = c == '\0' ? NULL : strchr(from, c);
    size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (known != NULL) {
        reader->at++;
        return to[known - from];
    }
    if (digits == 0) {
        int32_t plain = trm_utf8_read(reader->text + reader->at, &size);
        reader->at += size;
        return plain;
    }
    reader->at++;
    int64_t value = 0;
    for (size_t i = 0; i < digits; i++) {
        const int digit = trm_hex_digit(peek(reader));
        if (digit < 0) {
            fail_at(reader, "a hexadecimal digit is missing");
            return -1;
        }
        value = value * 16 + digit;
        reader->at++;
    }
    if (value > 0x10ffff || (value >= 0xd800 && value < 0xe000)) {
        fail_at(reader, "an invalid code point");
        return -1;
    }
    return (int32_t)value;
}

static trm_grammar_node *character_node(ebnf_reader *reader, int32_t c, bool any_case)
{
    trm_grammar_range ranges[2] = {{c, c}, {c ^ 0x20, c ^ 0x20}};
    bool letter = (c | 0x20) >= 'a' && (c | 0x20) <= 'z';
    return trm_grammar_class(reader->tree, ranges, any_case && letter ? 2 : 1, false);
}

/* Reads "text", in Lark with a suffix i for any case, or "a".."z". */
static trm_grammar_node *read_string(ebnf_reader *reader)
{
    trm_grammar_node *list = trm_grammar_list(reader->tree, TRM_GRAMMAR_SEQUENCE);
    char quote = reader->text[reader->at++];
    size_t begin = reader->at, count = 0;
    int32_t last = 0;
    size_t end = begin;
    while (end < reader->size && reader->text[end] != quote) {
        end += reader->text[end] == '\\' ? 2 : 1;
    }
    bool any_case = reader->lark && end + 1 < reader->size && reader->text[end + 1] == 'i';
    while (reader->at < reader->size && peek(reader) != quote && reader->tree->status == TRM_OK) {
        last = read_character(reader);
        count++;
        trm_grammar_append(reader->tree, list, character_node(reader, last, any_case));
    }
    if (!skip(reader, quote)) {
        return fail_at(reader, "an unterminated string");
    }
    reader->at += any_case;
    if (reader->lark && count == 1 && looks_at(reader, "..")) {
        reader->at += 2;
        if (!skip(reader, quote)) {
            return fail_at(reader, "a range needs a second string");
        }
        trm_grammar_range range = {last, read_character(reader)};
        if (!skip(reader, quote) || range.last < range.first) {
            return fail_at(reader, "a wrong range");
        }
        return trm_grammar_class(reader->tree, &range, 1, false);
    }
    return reader->tree->status == TRM_OK ? list : NULL;
}

/* Reads a class after its "[". */
static trm_grammar_node *read_class(ebnf_reader *reader)
{
    trm_grammar_range ranges[MAX_RANGES];
    size_t count = 0;
    bool negated = skip(reader, '^');
    while (!skip(reader, ']')) {
        if (reader->at >= reader->size || reader->tree->status != TRM_OK) {
            return fail_at(reader, "an unterminated class");
        }
        int32_t low = read_character(reader), high = low;
        if (peek(reader) == '-' && reader->at + 1 < reader->size && reader->text[reader->at + 1] != ']') {
            reader->at++;
            high = read_character(reader);
        }
        if (high < low || count == MAX_RANGES) {
            return fail_at(reader, high < low ? "a range that ends before it begins" : "a class has too many ranges");
        }
        ranges[count++] = (trm_grammar_range){low, high};
    }
    return trm_grammar_class(reader->tree, ranges, count, negated);
}

/* Lark's /expression/. */
static trm_grammar_node *read_slashes(ebnf_reader *reader)
{
    size_t begin = ++reader->at;
    while (reader->at < reader->size && peek(reader) != '/' && peek(reader) != '\n') {
        reader->at += peek(reader) == '\\' && reader->at + 1 < reader->size ? 2 : 1;
    }
    size_t size = reader->at - begin;
    if (!skip(reader, '/')) {
        return fail_at(reader, "an unterminated regular expression");
    }
    if (is_name_byte(peek(reader))) {
        return fail_at(reader, "options of regular expressions are not supported");
    }
    return trm_grammar_read_regex(reader->tree, reader->text + begin, size, TRM_GRAMMAR_WHOLE);
}

static trm_grammar_node *read_group(ebnf_reader *reader, char end)
{
    if (!trm_grammar_enter(reader->tree)) {
        return NULL;
    }
    reader->at++;
    reader->brackets++;
    trm_grammar_node *node = read_alternatives(reader);
    skip_space(reader, true);
    reader->brackets--;
    reader->tree->depth--;
    if (!skip(reader, end)) {
        return fail_at(reader, "a bracket is not closed");
    }
    return node;
}

static trm_grammar_node *read_atom(ebnf_reader *reader)
{
    static const trm_grammar_range none[1];
    char c = peek(reader);
    size_t size = name_size(reader);
    if (c == '"' || (c == '\'' && !reader->lark)) {
        return read_string(reader);
    }
    if (c == '(') {
        return read_group(reader, ')');
    }
    if (c == '[') {
        if (reader->lark) {
            return trm_grammar_repeat(reader->tree, read_group(reader, ']'), 0, 1);
        }
        reader->at++;
        return read_class(reader);
    }
    if (c == '/' && reader->lark) {
        return read_slashes(reader);
    }
    if (c == '.' && !reader->lark) {
        reader->at++;
        return trm_grammar_class(reader->tree, none, 0, true);
    }
    if (size == 0) {
        return fail_at(reader, "expected a string, a class, a name or a bracket");
    }
    int32_t rule = rule_of(reader, reader->text + reader->at, size);
    reader->at += size;
    return rule < 0 ? NULL : trm_grammar_call(reader->tree, rule);
}

static int32_t read_count(ebnf_reader *reader)
{
    int32_t count = 0;
    while (peek(reader) >= '0' && peek(reader) <= '9') {
        count = count > MAX_TIMES ? count : count * 10 + (peek(reader) - '0');
        reader->at++;
    }
    return count;
}

/* Reads {2} {2,} {2,5} {,5}, and Lark's ~ 2 and ~ 2..5. */
static bool read_times(ebnf_reader *reader, int32_t *min, int32_t *max)
{
    bool braces = reader->text[reader->at++] == '{';
    skip_space(reader, false);
    *min = *max = read_count(reader);
    skip_space(reader, false);
    if (braces ? skip(reader, ',') : looks_at(reader, "..")) {
        reader->at += braces ? 0 : 2;
        skip_space(reader, false);
        *max = peek(reader) >= '0' && peek(reader) <= '9' ? read_count(reader) : -1;
        skip_space(reader, false);
    }
    if ((braces && !skip(reader, '}')) || *min > MAX_TIMES || *max > MAX_TIMES) {
        fail_at(reader, "a repetition is invalid, or of more than 10000 times");
        return false;
    }
    return true;
}

static trm_grammar_node *read_repeated(ebnf_reader *reader)
{
    trm_grammar_node *node = read_atom(reader);
    for (int32_t levels = 0; reader->tree->status == TRM_OK; levels++) {
        int32_t min = 0, max = -1;
        size_t before = reader->at;
        skip_space(reader, false);
        bool times = peek(reader) == '{' || (reader->lark && peek(reader) == '~');
        if (skip(reader, '*')) {
        } else if (skip(reader, '+')) {
            min = 1;
        } else if (skip(reader, '?')) {
            max = 1;
        } else if (!times) {
            reader->at = before;
            break;
        } else if (!read_times(reader, &min, &max)) {
            return NULL;
        }
        if (levels == 20) {
            return fail_at(reader, "too many repetitions of repetitions");
        }
        node = trm_grammar_repeat(reader->tree, node, min, max);
    }
    return node;
}

static bool ends_sequence(const ebnf_reader *reader)
{
    char c = peek(reader);
    return reader->at >= reader->size || c == '|' || c == ')' || c == '\n' || (c == ']' && reader->lark) ||
           (reader->lark && looks_at(reader, "->"));
}

static trm_grammar_node *read_alternatives(ebnf_reader *reader)
{
    trm_grammar_node *list = trm_grammar_list(reader->tree, TRM_GRAMMAR_ANY_OF);
    do {
        trm_grammar_node *sequence = trm_grammar_list(reader->tree, TRM_GRAMMAR_SEQUENCE);
        skip_space(reader, !reader->lark);
        while (!ends_sequence(reader) && reader->tree->status == TRM_OK) {
            trm_grammar_append(reader->tree, sequence, read_repeated(reader));
            skip_space(reader, false);
        }
        if (reader->lark && looks_at(reader, "->")) { /* a name for the tree that Lark builds */
            reader->at += 2;
            skip_space(reader, false);
            reader->at += name_size(reader);
            skip_space(reader, false);
        }
        trm_grammar_append(reader->tree, list, sequence);
        skip_to_bar(reader);
    } while (skip(reader, '|') && reader->tree->status == TRM_OK);
    return reader->tree->status == TRM_OK ? list : NULL;
}

static void read_rule(ebnf_reader *reader)
{
    if (reader->lark && peek(reader) == '%') {
        fail_at(reader, "directives (%import, %ignore and so on) are not supported");
        return;
    }
    if (reader->lark) {
        reader->at += peek(reader) == '?' || peek(reader) == '!';
    }
    size_t size = name_size(reader);
    int32_t rule = size == 0 ? -1 : rule_of(reader, reader->text + reader->at, size);
    if (rule < 0) {
        fail_at(reader, "expected the name of a rule");
        return;
    }
    reader->at += size;
    skip_space(reader, false);
    if (reader->lark && skip(reader, '.')) { /* a priority */
        (void)read_count(reader);
        skip_space(reader, false);
    }
    if (!looks_at(reader, reader->lark ? ":" : "::=")) {
        fail_at(reader, reader->lark ? "expected ':'" : "expected '::='");
        return;
    }
    reader->at += reader->lark ? 1 : 3;
    if (reader->tree->rules[rule].node != NULL) {
        fail_at(reader, "a rule is defined twice");
        return;
    }
    trm_grammar_node *node = read_alternatives(reader);
    if (reader->tree->status == TRM_OK) {
        reader->tree->rules[rule].node = node;
    }
    skip_space(reader, false);
    if (reader->at < reader->size && peek(reader) != '\n') {
        fail_at(reader, "expected the end of the rule");
    }
}

/* Recognizes the notation: only llama.cpp's has "::=" outside strings and comments. */
static bool is_lark(const char *text, size_t size)
{
    return memmem(text, size, "::=", 3) == NULL;
}

void trm_grammar_read_ebnf(trm_grammar_tree *tree, const char *text, size_t size)
{
    ebnf_reader reader = {.tree = tree, .text = text, .size = size, .lark = is_lark(text, size)};
    if (trm_utf8_valid_prefix(text, size) != size) {
        trm_grammar_fail(tree, TRM_ERROR_INVALID_ARGUMENT, "the grammar is not UTF-8 text");
        return;
    }
    skip_space(&reader, true);
    while (reader.at < size && tree->status == TRM_OK) {
        read_rule(&reader);
        skip_space(&reader, true);
    }
    for (size_t i = 0; i < tree->n_rules && tree->status == TRM_OK; i++) {
        if (tree->rules[i].node == NULL) {
            trm_grammar_fail(tree, TRM_ERROR_INVALID_ARGUMENT, "the grammar uses the undefined rule %.60s",
                             tree->rules[i].name);
        }
    }
    const char *root = reader.lark ? "start" : "root";
    tree->root = trm_grammar_find_rule(tree, root, strlen(root));
    if (tree->status == TRM_OK && tree->root < 0) {
        trm_grammar_fail(tree, TRM_ERROR_INVALID_ARGUMENT, "the grammar has no start rule %s", root);
    }
}
