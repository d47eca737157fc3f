/* Regular expressions as JSON schemas and clients write them: the common subset of ECMA 262 and Python. A text matches
 * as a whole, so anchors at the ends change nothing. */
#include <string.h>

#include "base/error.h"
#include "launcher/text/grammar/tree.h"
#include "launcher/text/strings/utf8.h"

#define MAX_RANGES 512
#define MAX_TIMES  10000

typedef struct regex_reader {
    trm_grammar_tree *tree;
    const char *text;
    size_t size, at;
    bool json;
    int32_t groups; /* open ones */
} regex_reader;

typedef struct range_list {
    trm_grammar_range items[MAX_RANGES];
    size_t count;
} range_list;

static trm_grammar_node *read_alternatives(regex_reader *reader);

static trm_grammar_node *fail_at(regex_reader *reader, trm_status status, const char *what)
{
    return trm_grammar_fail(reader->tree, status, "regular expression, character %zu: %s",
                            trm_utf8_count(reader->text, reader->at < reader->size ? reader->at : reader->size) + 1,
                            what);
}

static bool at_end(const regex_reader *reader)
{
    return reader->at >= reader->size || reader->tree->status != TRM_OK;
}

static char peek(const regex_reader *reader)
{
    return reader->at < reader->size ? reader->text[reader->at] : '\0';
}

static bool skip(regex_reader *reader, char c)
{
    bool found = reader->at < reader->size && reader->text[reader->at] == c;
    reader->at += found;
    return found;
}

static void add_range(regex_reader *reader, range_list *list, int32_t first, int32_t last)
{
    if (list->count == MAX_RANGES) {
        fail_at(reader, TRM_ERROR_INVALID_ARGUMENT, "a class has too many ranges");
        return;
    }
    list->items[list->count++] = (trm_grammar_range){first, last};
}

static int32_t take_character(regex_reader *reader)
{
    size_t size;
    int32_t c = trm_utf8_read(reader->text + reader->at, &size);
    reader->at += size;
    return c;
}

/* \d \w \s and their complements, ASCII except for white space. false: another letter. */
static bool add_named_class(regex_reader *reader, range_list *list, char name)
{
    static const trm_grammar_range digits[] = {{'0', '9'}};
    static const trm_grammar_range words[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
    static const trm_grammar_range spaces[] = {{9, 13},          {' ', ' '},       {0xa0, 0xa0},     {0x1680, 0x1680},
                                               {0x2000, 0x200a}, {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f},
                                               {0x3000, 0x3000}, {0xfeff, 0xfeff}};
    char lower = (char)(name | 0x20);
    const trm_grammar_range *ranges = lower == 'd' ? digits : lower == 'w' ? words : lower == 's' ? spaces : NULL;
    size_t count = lower == 'd' ? 1 : lower == 'w' ? 4 : sizeof(spaces) / sizeof(spaces[0]);
    if (ranges == NULL) {
        return false;
    }
    int32_t next = 0;
    for (size_t i = 0; i < count; i++) {
        if (name == lower) {
            add_range(reader, list, ranges[i].first, ranges[i].last);
        } else {
            add_range(reader, list, next, ranges[i].first - 1);
            next = ranges[i].last + 1;
        }
    }
    if (name != lower) {
        add_range(reader, list, next, 0x10ffff);
    }
    return true;
}

static int32_t read_hex(regex_reader *reader, size_t digits)
{
    int32_t value = 0;
    for (size_t i = 0; i < digits; i++) {
        char c = peek(reader);
        int digit = c >= '0' && c <= '9'                     ? c - '0'
                    : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10
                                                             : -1;
        if (digit < 0) {
            fail_at(reader, TRM_ERROR_INVALID_ARGUMENT, "a hexadecimal digit is missing");
            return 0;
        }
        value = value * 16 + digit;
        reader->at++;
    }
    return value;
}

/* Reads an escape of one character after its backslash. */
static int32_t read_escape(regex_reader *reader)
{
    static const char from[] = "nrtfv0", to[] = "\n\r\t\f\v";
    char c = peek(reader);
    const char *known = c == '\0' ? NULL : strchr(from, c);
    if (known != NULL) {
        reader->at++;
        return to[known - from];
    }
    if (c == 'x') {
        reader->at++;
        return read_hex(reader, 2);
    }
    if (c == 'u') {
        reader->at++;
        if (!skip(reader, '{')) {
            return read_hex(reader, 4);
        }
        const char *end = memchr(reader->text + reader->at, '}', reader->size - reader->at);
        size_t digits = end == NULL ? 0 : (size_t)(end - reader->text) - reader->at;
        int32_t value = digits >= 1 && digits <= 6 ? read_hex(reader, digits) : -1;
        if (value < 0 || value > 0x10ffff || !skip(reader, '}')) {
            fail_at(reader, TRM_ERROR_INVALID_ARGUMENT, "an invalid code point");
            return 0;
        }
        return value;
    }
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '\0') {
        fail_at(reader, TRM_ERROR_UNSUPPORTED, "this escape is not supported");
        return 0;
    }
    return take_character(reader);
}

static trm_grammar_node *make_class(regex_reader *reader, const range_list *list, bool negated)
{
    return reader->json ? trm_grammar_json_class(reader->tree, list->items, list->count, negated)
                        : trm_grammar_class(reader->tree, list->items, list->count, negated);
}

static trm_grammar_node *make_character(regex_reader *reader, int32_t c)
{
    range_list list = {.count = 1};
    list.items[0] = (trm_grammar_range){c, c};
    return make_class(reader, &list, false);
}

/* Behind "[". */
static trm_grammar_node *read_class(regex_reader *reader)
{
    range_list list = {.count = 0};
    bool negated = skip(reader, '^');
    for (bool first = true; !skip(reader, ']') || first; first = false) {
        if (first && reader->at > 0 && reader->text[reader->at - 1] == ']') {
            /* "[]" is empty in ECMA, a bracket in Python */
            return fail_at(reader, TRM_ERROR_UNSUPPORTED,
                           "a bracket at the start of a class is not supported, escape it");
        }
        if (at_end(reader)) {
            return fail_at(reader, TRM_ERROR_INVALID_ARGUMENT, "an unterminated class");
        }
        int32_t low;
        if (skip(reader, '\\')) {
            if (add_named_class(reader, &list, peek(reader))) {
                reader->at++;
                continue;
            }
            if (skip(reader, 'b')) {
                low = '\b';
            } else {
                low = read_escape(reader);
            }
        } else {
            low = take_character(reader);
        }
        int32_t high = low;
        if (peek(reader) == '-' && reader->at + 1 < reader->size && reader->text[reader->at + 1] != ']') {
            reader->at++;
            high = skip(reader, '\\') ? read_escape(reader) : take_character(reader);
        }
        if (high < low) {
            return fail_at(reader, TRM_ERROR_INVALID_ARGUMENT, "a range that ends before it begins");
        }
        add_range(reader, &list, low, high);
    }
    return make_class(reader, &list, negated);
}

/* Behind "(". */
static trm_grammar_node *read_group(regex_reader *reader)
{
    if (skip(reader, '?')) {
        bool named = skip(reader, 'P');
        if (named || peek(reader) == '<') {
            bool look_behind = reader->at + 1 < reader->size && reader->text[reader->at] == '<' &&
                               (reader->text[reader->at + 1] == '=' || reader->text[reader->at + 1] == '!');
            const char *end = memchr(reader->text + reader->at, '>', reader->size - reader->at);
            if (look_behind || peek(reader) != '<' || end == NULL) {
                return fail_at(reader, TRM_ERROR_UNSUPPORTED, "this kind of group is not supported");
            }
            reader->at = (size_t)(end - reader->text) + 1;
        } else if (!skip(reader, ':')) {
            return fail_at(reader, TRM_ERROR_UNSUPPORTED, "look-around and options are not supported");
        }
    }
    if (!trm_grammar_enter(reader->tree)) {
        return NULL;
    }
    reader->groups++;
    trm_grammar_node *node = read_alternatives(reader);
    reader->groups--;
    reader->tree->depth--;
    if (!skip(reader, ')')) {
        return fail_at(reader, TRM_ERROR_INVALID_ARGUMENT, "an unterminated group");
    }
    return node;
}

static trm_grammar_node *read_atom(regex_reader *reader)
{
    range_list list = {.count = 0};
    char c = peek(reader);
    switch (c) {
    case '(':
        reader->at++;
        return read_group(reader);
    case '[':
        reader->at++;
        return read_class(reader);
    case '.':
        reader->at++;
        add_range(reader, &list, '\n', '\n');
        add_range(reader, &list, '\r', '\r');
        return make_class(reader, &list, true);
    case '\\':
        reader->at++;
        if (add_named_class(reader, &list, peek(reader))) {
            reader->at++;
            return make_class(reader, &list, false);
        }
        return make_character(reader, read_escape(reader));
    case '*':
    case '+':
    case '?':
        return fail_at(reader, TRM_ERROR_INVALID_ARGUMENT, "nothing to repeat");
    case '^':
    case '$':
        return fail_at(reader, TRM_ERROR_UNSUPPORTED, "an anchor within the expression is not supported");
    default:
        return make_character(reader, take_character(reader));
    }
}

static int32_t read_count(regex_reader *reader)
{
    int32_t count = 0;
    while (peek(reader) >= '0' && peek(reader) <= '9') {
        count = count > MAX_TIMES ? count : count * 10 + (peek(reader) - '0');
        reader->at++;
    }
    return count;
}

/* Reads {3} {3,} {3,5} {,5}; any other brace is literal. */
static bool read_braces(regex_reader *reader, int32_t *min, int32_t *max)
{
    size_t begin = reader->at++;
    bool low = peek(reader) >= '0' && peek(reader) <= '9';
    *min = *max = read_count(reader);
    bool comma = skip(reader, ','), high = peek(reader) >= '0' && peek(reader) <= '9';
    if (comma) {
        *max = high ? read_count(reader) : -1;
    }
    if ((!low && !high) || !skip(reader, '}')) {
        reader->at = begin;
        return false;
    }
    if (*min > MAX_TIMES || *max > MAX_TIMES) {
        fail_at(reader, TRM_ERROR_INVALID_ARGUMENT, "a repetition of more than 10000 times");
    }
    return true;
}

static trm_grammar_node *read_repeated(regex_reader *reader)
{
    trm_grammar_node *node = read_atom(reader);
    int32_t levels = 0;
    while (!at_end(reader)) {
        int32_t min = 0, max = -1;
        if (skip(reader, '*')) {
        } else if (skip(reader, '+')) {
            min = 1;
        } else if (skip(reader, '?')) {
            max = 1;
        } else if (peek(reader) != '{' || !read_braces(reader, &min, &max)) {
            break;
        }
        (void)skip(reader, '?'); /* greediness does not change what matches */
        if (++levels > 20) {
            return fail_at(reader, TRM_ERROR_INVALID_ARGUMENT, "too many repetitions of repetitions");
        }
        node = trm_grammar_repeat(reader->tree, node, min, max);
    }
    return node;
}

static trm_grammar_node *read_sequence(regex_reader *reader)
{
    trm_grammar_node *list = trm_grammar_list(reader->tree, TRM_GRAMMAR_SEQUENCE);
    bool first = true;
    while (!at_end(reader) && peek(reader) != '|' && peek(reader) != ')') {
        bool last = reader->at + 1 == reader->size || reader->text[reader->at + 1] == '|' ||
                    reader->text[reader->at + 1] == ')';
        if ((peek(reader) == '^' && first) || (peek(reader) == '$' && last)) {
            reader->at++;
        } else {
            trm_grammar_append(reader->tree, list, read_repeated(reader));
        }
        first = false;
    }
    return list;
}

static trm_grammar_node *read_alternatives(regex_reader *reader)
{
    trm_grammar_node *list = trm_grammar_list(reader->tree, TRM_GRAMMAR_ANY_OF);
    do {
        trm_grammar_append(reader->tree, list, read_sequence(reader));
    } while (skip(reader, '|'));
    return reader->tree->status == TRM_OK ? list : NULL;
}

trm_grammar_node *trm_grammar_read_regex(trm_grammar_tree *tree, const char *text, size_t size, bool json)
{
    regex_reader reader = {.tree = tree, .text = text, .size = size, .json = json};
    if (trm_utf8_valid_prefix(text, size) != size || memchr(text, '\0', size) != NULL) {
        return trm_grammar_fail(tree, TRM_ERROR_INVALID_ARGUMENT, "the regular expression is not UTF-8 text");
    }
    trm_grammar_node *node = read_alternatives(&reader);
    if (tree->status == TRM_OK && reader.at < size) {
        return fail_at(&reader, TRM_ERROR_INVALID_ARGUMENT, "an unmatched closing bracket");
    }
    return node;
}
