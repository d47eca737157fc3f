/* Regular expressions as JSON schemas and clients write them: the common subset of ECMA 262 and Python. An expression
 * is read with its anchors and look-aheads, which are then resolved from the end backwards: what follows is known, so a
 * look-ahead is an intersection with it. */
#include <string.h>

#include "base/error.h"
#include "base/hex.h"
#include "launcher/text/grammar/tree.h"
#include "launcher/text/strings/unicode.h"
#include "launcher/text/strings/utf8.h"

#define MAX_RANGES 2000
#define MAX_TIMES  1000000

typedef struct regex_reader {
    trm_grammar_tree *tree;
    const char *text;
    size_t size, at;
    bool json;
    int32_t groups; /* open ones */
    bool has_anchors;
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

/* Behind \\p or \\P: a general category such as {L} or {Lu}. */
static void add_property(regex_reader *reader, range_list *list, bool negated)
{
    char name[3] = {0};
    size_t n = 0;
    int32_t first = -1;
    bool braces = skip(reader, '{');
    while (n < 2 && ((peek(reader) >= 'A' && peek(reader) <= 'Z') || (peek(reader) >= 'a' && peek(reader) <= 'z'))) {
        name[n++] = reader->text[reader->at++];
    }
    if (!braces || !skip(reader, '}') || n == 0 || strchr("LMNPSZC", name[0]) == NULL) {
        fail_at(reader, TRM_ERROR_UNSUPPORTED, "this property of characters is not supported");
        return;
    }
    for (int32_t c = 0; c <= 0x110000 && reader->tree->status == TRM_OK; c++) {
        const char *found = c > 0x10ffff ? "" : trm_unicode_category(c);
        bool in = c <= 0x10ffff && (strncmp(found, name, n) == 0) != negated;
        if (in && first < 0) {
            first = c;
        } else if (!in && first >= 0) {
            add_range(reader, list, first, c - 1);
            first = -1;
        }
    }
}

static int32_t read_hex(regex_reader *reader, size_t digits)
{
    int32_t value = 0;
    for (size_t i = 0; i < digits; i++) {
        const int digit = trm_hex_digit(peek(reader));
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
    trm_grammar_node *node = reader->json ? trm_grammar_json_class(reader->tree, list->items, list->count, negated)
                                          : trm_grammar_class(reader->tree, list->items, list->count, negated);
    if (node != NULL) {
        node->is_character = true;
    }
    return node;
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
            if (peek(reader) == 'p' || peek(reader) == 'P') {
                add_property(reader, &list, reader->text[reader->at++] == 'P');
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

static trm_grammar_node *new_anchor(regex_reader *reader, trm_grammar_node_kind kind)
{
    reader->has_anchors = true;
    return trm_grammar_list(reader->tree, kind);
}

/* Behind "(?=" and "(?!". */
static trm_grammar_node *read_look(regex_reader *reader, bool negated)
{
    trm_grammar_node *look = new_anchor(reader, TRM_GRAMMAR_LOOK);
    if (!trm_grammar_enter(reader->tree)) {
        return NULL;
    }
    reader->groups++;
    trm_grammar_append(reader->tree, look, read_alternatives(reader));
    reader->groups--;
    reader->tree->depth--;
    if (!skip(reader, ')')) {
        return fail_at(reader, TRM_ERROR_INVALID_ARGUMENT, "an unterminated group");
    }
    look->min = negated;
    return look;
}

/* Behind "(". */
static trm_grammar_node *read_group(regex_reader *reader)
{
    if (skip(reader, '?')) {
        if (peek(reader) == '=' || peek(reader) == '!') {
            return read_look(reader, reader->text[reader->at++] == '!');
        }
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
            return fail_at(reader, TRM_ERROR_UNSUPPORTED, "look-behind and options are not supported");
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
        if (peek(reader) == 'p' || peek(reader) == 'P') {
            add_property(reader, &list, reader->text[reader->at++] == 'P');
            return make_class(reader, &list, false);
        }
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
        reader->at++;
        return new_anchor(reader, TRM_GRAMMAR_BEGIN);
    case '$':
        reader->at++;
        return new_anchor(reader, TRM_GRAMMAR_END);
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
        fail_at(reader, TRM_ERROR_INVALID_ARGUMENT, "a repetition of more than 1000000 times");
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

/* A look-ahead of one character before one character is that of the two which is both. */
static trm_grammar_node *join_look(regex_reader *reader, trm_grammar_node *look, trm_grammar_node *character)
{
    trm_grammar_tree *tree = reader->tree;
    const trm_grammar_node *child = look->child;
    while (child != NULL && (child->kind == TRM_GRAMMAR_ANY_OF || child->kind == TRM_GRAMMAR_SEQUENCE) &&
           !child->is_character && child->child != NULL && child->child->next == NULL) {
        child = child->child;
    }
    if (child == NULL || !child->is_character || character == NULL || !character->is_character) {
        return NULL;
    }
    trm_grammar_node *copy = trm_grammar_copy(tree, child);
    trm_grammar_node *both = trm_grammar_list(tree, TRM_GRAMMAR_BOTH);
    trm_grammar_append(tree, both, character);
    trm_grammar_append(tree, both, look->min != 0 ? trm_grammar_not(tree, copy) : copy);
    if (both != NULL) {
        both->is_character = true;
    }
    return both;
}

static trm_grammar_node *read_sequence(regex_reader *reader)
{
    trm_grammar_node *list = trm_grammar_list(reader->tree, TRM_GRAMMAR_SEQUENCE), *look = NULL;
    while (!at_end(reader) && peek(reader) != '|' && peek(reader) != ')') {
        trm_grammar_node *next = read_repeated(reader);
        trm_grammar_node *joined = look != NULL && next != NULL ? join_look(reader, look, next) : NULL;
        next = joined != NULL ? joined : next;
        if (joined == NULL) {
            trm_grammar_append(reader->tree, list, look);
        }
        look = next != NULL && next->kind == TRM_GRAMMAR_LOOK ? next : NULL;
        if (look == NULL) {
            trm_grammar_append(reader->tree, list, next);
        }
    }
    trm_grammar_append(reader->tree, list, look);
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

/* ---- anchors ---- */

static bool has_anchor(const trm_grammar_node *node)
{
    bool found = node->kind == TRM_GRAMMAR_LOOK || node->kind == TRM_GRAMMAR_BEGIN || node->kind == TRM_GRAMMAR_END;
    for (const trm_grammar_node *child = node->child; child != NULL && !found; child = child->next) {
        found = has_anchor(child);
    }
    return found;
}

/* Whether a node without anchors matches the empty text; with `always` nothing else. Anchors match it. */
static bool is_empty(const trm_grammar_node *node, bool always)
{
    bool all = true, any = false;
    for (const trm_grammar_node *child = node->child; child != NULL; child = child->next) {
        bool empty = is_empty(child, always);
        all = all && empty;
        any = any || empty;
    }
    switch (node->kind) {
    case TRM_GRAMMAR_TEXT:
        return node->size == 0;
    case TRM_GRAMMAR_SEQUENCE:
    case TRM_GRAMMAR_BOTH:
        return all;
    case TRM_GRAMMAR_ANY_OF:
        return always ? all : any;
    case TRM_GRAMMAR_REPEAT:
        return node->max == 0 || all || (!always && node->min == 0);
    case TRM_GRAMMAR_NOT:
        return !always && !all;
    case TRM_GRAMMAR_CLASS:
    case TRM_GRAMMAR_RULE:
    case TRM_GRAMMAR_MULTIPLE:
    case TRM_GRAMMAR_UNIQUE:
        return false;
    case TRM_GRAMMAR_LOOK:
    case TRM_GRAMMAR_BEGIN:
    case TRM_GRAMMAR_END:
        break;
    }
    return true;
}

typedef enum text_place {
    PLACE_BEGIN,  /* of the text */
    PLACE_BEHIND, /* at least one character is before it */
    PLACE_UNCLEAR
} text_place;

static trm_grammar_node *any_text(regex_reader *reader)
{
    range_list none = {.count = 0};
    return trm_grammar_repeat(reader->tree, make_class(reader, &none, true), 0, -1);
}

/* What `node` and then `rest` match at a place, as a tree without anchors. */
static trm_grammar_node *resolve(regex_reader *reader, const trm_grammar_node *node, trm_grammar_node *rest,
                                 text_place place)
{
    trm_grammar_tree *tree = reader->tree;
    trm_grammar_node *list;
    if (tree->status != TRM_OK || rest == NULL || !trm_grammar_enter(tree)) {
        return NULL;
    }
    if (!has_anchor(node)) {
        tree->depth--;
        return trm_grammar_sequence(tree, 2, trm_grammar_copy(tree, node), trm_grammar_copy(tree, rest));
    }
    switch (node->kind) {
    case TRM_GRAMMAR_SEQUENCE: {
        const trm_grammar_node *children[TRM_GRAMMAR_DEPTH];
        text_place places[TRM_GRAMMAR_DEPTH];
        size_t n = 0;
        for (const trm_grammar_node *child = node->child; child != NULL; child = child->next) {
            if (n == TRM_GRAMMAR_DEPTH) {
                rest = trm_grammar_fail(tree, TRM_ERROR_INVALID_ARGUMENT,
                                        "regular expression: more than %d parts beside an anchor", TRM_GRAMMAR_DEPTH);
                break;
            }
            children[n] = child;
            places[n++] = place;
            place = is_empty(child, true)     ? place
                    : !is_empty(child, false) ? PLACE_BEHIND
                    : place == PLACE_BEGIN    ? PLACE_UNCLEAR
                                              : place;
        }
        while (n-- > 0) {
            rest = resolve(reader, children[n], rest, places[n]);
        }
        break;
    }
    case TRM_GRAMMAR_ANY_OF:
        list = trm_grammar_list(tree, TRM_GRAMMAR_ANY_OF);
        for (const trm_grammar_node *child = node->child; child != NULL; child = child->next) {
            trm_grammar_append(tree, list, resolve(reader, child, rest, place));
        }
        rest = list;
        break;
    case TRM_GRAMMAR_REPEAT:
        if (node->max < 0 || node->max > 8) {
            rest = trm_grammar_fail(tree, TRM_ERROR_UNSUPPORTED,
                                    "regular expression: an anchor within a repetition is not supported");
        }
        rest = trm_grammar_copy(tree, rest);
        for (int32_t i = node->max; i-- > 0 && rest != NULL;) {
            trm_grammar_node *more = resolve(reader, node->child, rest, i == 0 ? place : PLACE_UNCLEAR);
            rest = i >= node->min ? trm_grammar_any_of(tree, 2, trm_grammar_copy(tree, rest), more) : more;
        }
        break;
    case TRM_GRAMMAR_LOOK: {
        trm_grammar_node *look = resolve(reader, node->child, any_text(reader), place);
        list = trm_grammar_list(tree, TRM_GRAMMAR_BOTH);
        trm_grammar_append(tree, list, trm_grammar_copy(tree, rest));
        trm_grammar_append(tree, list, node->min != 0 ? trm_grammar_not(tree, look) : look);
        rest = list;
        break;
    }
    case TRM_GRAMMAR_BEGIN:
        if (place == PLACE_UNCLEAR) {
            rest = trm_grammar_fail(tree, TRM_ERROR_UNSUPPORTED,
                                    "regular expression: ^ behind what may be empty is not supported");
        }
        rest = place == PLACE_BEHIND ? trm_grammar_list(tree, TRM_GRAMMAR_ANY_OF) : trm_grammar_copy(tree, rest);
        break;
    default: /* END */
        rest = is_empty(rest, false) ? trm_grammar_literal(tree, "") : trm_grammar_list(tree, TRM_GRAMMAR_ANY_OF);
        break;
    }
    tree->depth--;
    return tree->status == TRM_OK ? rest : NULL;
}

trm_grammar_node *trm_grammar_read_regex(trm_grammar_tree *tree, const char *text, size_t size,
                                         trm_grammar_regex_use use)
{
    regex_reader reader = {.tree = tree, .text = text, .size = size, .json = use != TRM_GRAMMAR_WHOLE};
    if (trm_utf8_valid_prefix(text, size) != size || memchr(text, '\0', size) != NULL) {
        return trm_grammar_fail(tree, TRM_ERROR_INVALID_ARGUMENT, "the regular expression is not UTF-8 text");
    }
    trm_grammar_node *node = read_alternatives(&reader);
    if (tree->status == TRM_OK && reader.at < size) {
        return fail_at(&reader, TRM_ERROR_INVALID_ARGUMENT, "an unmatched closing bracket");
    }
    if (tree->status != TRM_OK || (!reader.has_anchors && use != TRM_GRAMMAR_SEARCH_JSON)) {
        return node;
    }
    if (use != TRM_GRAMMAR_SEARCH_JSON) {
        return resolve(&reader, node, trm_grammar_literal(tree, ""), PLACE_BEGIN);
    }
    trm_grammar_node *behind = resolve(&reader, node, any_text(&reader), PLACE_BEHIND);
    if (!reader.has_anchors) {
        return trm_grammar_sequence(tree, 2, any_text(&reader), behind);
    }
    range_list none = {.count = 0};
    return trm_grammar_any_of(
        tree, 2, resolve(&reader, node, any_text(&reader), PLACE_BEGIN),
        trm_grammar_sequence(tree, 3, make_class(&reader, &none, true), any_text(&reader), behind));
}
