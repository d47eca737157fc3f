/* The parts of JSON texts. Numbers have at most 18 digits before the point and 18 after it: more carry no information,
 * and models sometimes write digits without end. */
#include "launcher/text/grammar/json_grammar.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"

#define MAX_INDENT     24 /* characters of white space after a line end */
#define MAX_DIGITS     18
#define EXACT_DIGITS   15 /* that a double keeps */
#define EXACT_FRACTION 6  /* of them behind the point */
#define LARGEST        INT64_C(999999999999999999)

static trm_grammar_node *class_of(trm_grammar_json *json, int32_t first, int32_t last)
{
    trm_grammar_range range = {first, last};
    return trm_grammar_class(json->tree, &range, 1, false);
}

static trm_grammar_node *digits(trm_grammar_json *json, int32_t min, int32_t max)
{
    return trm_grammar_repeat(json->tree, class_of(json, '0', '9'), min, max);
}

/* A call of the rule in *slot; `make` makes the rule if it does not exist. */
static trm_grammar_node *shared(trm_grammar_json *json, int32_t *slot, const char *name,
                                trm_grammar_node *(*make)(trm_grammar_json *json))
{
    if (*slot == 0) {
        int32_t rule = trm_grammar_add_rule(json->tree, name, strlen(name));
        if (rule < 0) {
            return NULL;
        }
        *slot = rule + 1;
        trm_grammar_node *node = make(json);
        json->tree->rules[rule].node = node;
    }
    return trm_grammar_call(json->tree, *slot - 1);
}

/* Nothing, a space, or a line end and an indent: bounded, since a model might write white space without end. */
static trm_grammar_node *make_space(trm_grammar_json *json)
{
    static const trm_grammar_range blank[] = {{' ', ' '}, {'\t', '\t'}};
    trm_grammar_tree *tree = json->tree;
    trm_grammar_node *indent = trm_grammar_repeat(tree, trm_grammar_class(tree, blank, 2, false), 0, MAX_INDENT);
    return trm_grammar_any_of(tree, 3, trm_grammar_literal(tree, ""), trm_grammar_literal(tree, " "),
                              trm_grammar_sequence(tree, 2, trm_grammar_literal(tree, "\n"), indent));
}

trm_grammar_node *trm_grammar_json_space(trm_grammar_json *json)
{
    return shared(json, &json->space, "(space)", make_space);
}

static trm_grammar_node *hex(trm_grammar_json *json, int32_t times)
{
    static const trm_grammar_range ranges[] = {{'0', '9'}, {'A', 'F'}, {'a', 'f'}};
    return trm_grammar_repeat(json->tree, trm_grammar_class(json->tree, ranges, 3, false), times, times);
}

/* "u" and four digits; surrogates in pairs only. */
static trm_grammar_node *unicode_escape(trm_grammar_json *json)
{
    static const trm_grammar_range plain[] = {{'0', '9'}, {'A', 'C'}, {'E', 'F'}, {'a', 'c'}, {'e', 'f'}};
    static const trm_grammar_range d[] = {{'D', 'D'}, {'d', 'd'}}, high[] = {{'8', '9'}, {'A', 'B'}, {'a', 'b'}};
    static const trm_grammar_range low[] = {{'C', 'F'}, {'c', 'f'}};
    trm_grammar_tree *tree = json->tree;
    trm_grammar_node *other = trm_grammar_sequence(tree, 2, trm_grammar_class(tree, plain, 5, false), hex(json, 3));
    trm_grammar_node *below =
        trm_grammar_sequence(tree, 3, trm_grammar_class(tree, d, 2, false), class_of(json, '0', '7'), hex(json, 2));
    trm_grammar_node *pair =
        trm_grammar_sequence(tree, 7, trm_grammar_class(tree, d, 2, false), trm_grammar_class(tree, high, 3, false),
                             hex(json, 2), trm_grammar_literal(tree, "\\u"), trm_grammar_class(tree, d, 2, false),
                             trm_grammar_class(tree, low, 2, false), hex(json, 2));
    return trm_grammar_sequence(tree, 2, trm_grammar_literal(tree, "u"),
                                trm_grammar_any_of(tree, 3, other, below, pair));
}

trm_grammar_node *trm_grammar_json_plain_character(trm_grammar_json *json)
{
    if (json->character == NULL) {
        json->character = trm_grammar_json_class(json->tree, NULL, 0, true);
    }
    return trm_grammar_copy(json->tree, json->character);
}

trm_grammar_node *trm_grammar_json_character(trm_grammar_json *json)
{
    static const trm_grammar_range escaped[] = {{0, 0x1f}, {'"', '"'}, {'\\', '\\'}};
    static const trm_grammar_range letters[] = {{'"', '"'}, {'/', '/'}, {'\\', '\\'}, {'b', 'b'},
                                                {'f', 'f'}, {'n', 'n'}, {'r', 'r'},   {'t', 't'}};
    trm_grammar_tree *tree = json->tree;
    trm_grammar_node *escape =
        trm_grammar_any_of(tree, 2, trm_grammar_class(tree, letters, 8, false), unicode_escape(json));
    return trm_grammar_any_of(tree, 2, trm_grammar_class(tree, escaped, 3, true),
                              trm_grammar_sequence(tree, 2, trm_grammar_literal(tree, "\\"), escape));
}

static trm_grammar_node *make_string(trm_grammar_json *json)
{
    trm_grammar_tree *tree = json->tree;
    return trm_grammar_sequence(tree, 3, trm_grammar_literal(tree, "\""),
                                trm_grammar_repeat(tree, trm_grammar_json_character(json), 0, -1),
                                trm_grammar_literal(tree, "\""));
}

trm_grammar_node *trm_grammar_json_string(trm_grammar_json *json)
{
    return shared(json, &json->string, "(string)", make_string);
}

/* Integers of up to `most` digits. */
static trm_grammar_node *integer_of(trm_grammar_json *json, int32_t most)
{
    trm_grammar_tree *tree = json->tree;
    trm_grammar_node *more = trm_grammar_sequence(tree, 2, class_of(json, '1', '9'), digits(json, 0, most - 1));
    return trm_grammar_sequence(tree, 2, trm_grammar_repeat(tree, trm_grammar_literal(tree, "-"), 0, 1),
                                trm_grammar_any_of(tree, 2, trm_grammar_literal(tree, "0"), more));
}

static trm_grammar_node *make_integer(trm_grammar_json *json)
{
    return integer_of(json, MAX_DIGITS);
}

trm_grammar_node *trm_grammar_json_integer(trm_grammar_json *json)
{
    return shared(json, &json->integer, "(integer)", make_integer);
}

static trm_grammar_node *make_number(trm_grammar_json *json)
{
    static const trm_grammar_range e[] = {{'E', 'E'}, {'e', 'e'}}, sign[] = {{'+', '+'}, {'-', '-'}};
    trm_grammar_tree *tree = json->tree;
    trm_grammar_node *fraction =
        trm_grammar_sequence(tree, 2, trm_grammar_literal(tree, "."), digits(json, 1, MAX_DIGITS));
    trm_grammar_node *exponent = trm_grammar_sequence(
        tree, 3, trm_grammar_class(tree, e, 2, false),
        trm_grammar_repeat(tree, trm_grammar_class(tree, sign, 2, false), 0, 1), digits(json, 1, 2));
    return trm_grammar_sequence(tree, 3, make_integer(json), trm_grammar_repeat(tree, fraction, 0, 1),
                                trm_grammar_repeat(tree, exponent, 0, 1));
}

trm_grammar_node *trm_grammar_json_number(trm_grammar_json *json)
{
    return shared(json, &json->number, "(number)", make_number);
}

trm_grammar_node *trm_grammar_json_plain_integer(trm_grammar_json *json)
{
    return integer_of(json, EXACT_DIGITS);
}

trm_grammar_node *trm_grammar_json_plain_decimal(trm_grammar_json *json)
{
    trm_grammar_tree *tree = json->tree;
    trm_grammar_node *fraction = trm_grammar_sequence(tree, 3, trm_grammar_literal(tree, "."),
                                                      digits(json, 0, EXACT_FRACTION - 1), class_of(json, '1', '9'));
    return trm_grammar_sequence(tree, 2, integer_of(json, EXACT_DIGITS - EXACT_FRACTION),
                                trm_grammar_repeat(tree, fraction, 0, 1));
}

trm_grammar_node *trm_grammar_json_brackets(trm_grammar_json *json, const char *open, trm_grammar_node *content,
                                            const char *close)
{
    trm_grammar_tree *tree = json->tree;
    return trm_grammar_sequence(tree, 5, trm_grammar_literal(tree, open), trm_grammar_json_space(json), content,
                                trm_grammar_json_space(json), trm_grammar_literal(tree, close));
}

/* item ("," space item)*, or nothing. */
static trm_grammar_node *any_number_of(trm_grammar_json *json, trm_grammar_node *(*make)(trm_grammar_json *json))
{
    trm_grammar_tree *tree = json->tree;
    trm_grammar_node *more =
        trm_grammar_sequence(tree, 3, trm_grammar_literal(tree, ","), trm_grammar_json_space(json), make(json));
    trm_grammar_node *items = trm_grammar_sequence(tree, 2, make(json), trm_grammar_repeat(tree, more, 0, -1));
    return trm_grammar_repeat(tree, items, 0, 1);
}

static trm_grammar_node *make_member(trm_grammar_json *json)
{
    return trm_grammar_sequence(json->tree, 4, trm_grammar_json_string(json), trm_grammar_literal(json->tree, ":"),
                                trm_grammar_json_space(json), trm_grammar_json_value(json));
}

static trm_grammar_node *make_object(trm_grammar_json *json)
{
    return trm_grammar_json_brackets(json, "{", any_number_of(json, make_member), "}");
}

trm_grammar_node *trm_grammar_json_object(trm_grammar_json *json)
{
    return shared(json, &json->object, "(object)", make_object);
}

static trm_grammar_node *make_array(trm_grammar_json *json)
{
    return trm_grammar_json_brackets(json, "[", any_number_of(json, trm_grammar_json_value), "]");
}

trm_grammar_node *trm_grammar_json_array(trm_grammar_json *json)
{
    return shared(json, &json->array, "(array)", make_array);
}

static trm_grammar_node *make_value(trm_grammar_json *json)
{
    trm_grammar_tree *tree = json->tree;
    return trm_grammar_any_of(tree, 7, trm_grammar_json_object(json), trm_grammar_json_array(json),
                              trm_grammar_json_string(json), trm_grammar_json_number(json),
                              trm_grammar_literal(tree, "true"), trm_grammar_literal(tree, "false"),
                              trm_grammar_literal(tree, "null"));
}

trm_grammar_node *trm_grammar_json_value(trm_grammar_json *json)
{
    return shared(json, &json->value, "(value)", make_value);
}

/* The escape of a character between quotes; NULL if it needs none. */
static const char *escape_of(int32_t c, char text[8])
{
    static const char from[] = "\"\\\n\r\t\f\b", to[] = "\"\\nrtfb";
    const char *known = c > 0 && c < 0x80 ? strchr(from, c) : NULL;
    if (known != NULL) {
        snprintf(text, 8, "\\%c", to[known - from]);
        return text;
    }
    if (c < 0x20) {
        snprintf(text, 8, "\\u%04x", (unsigned)c & 0xffff);
        return text;
    }
    return NULL;
}

trm_grammar_node *trm_grammar_json_text(trm_grammar_json *json, const char *text)
{
    trm_grammar_tree *tree = json->tree;
    trm_grammar_node *list = trm_grammar_list(tree, TRM_GRAMMAR_SEQUENCE);
    while (*text != '\0') {
        char escape[8];
        size_t plain = strcspn(text, "\"\\\n\r\t\f\b\x01\x02\x03\x04\x05\x06\x07\x0b\x0e\x0f\x10\x11\x12\x13\x14\x15"
                                     "\x16\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f");
        trm_grammar_append(tree, list, trm_grammar_text(tree, text, plain));
        text += plain;
        if (*text != '\0') {
            const char *escaped = escape_of((unsigned char)*text++, escape);
            trm_grammar_append(tree, list, trm_grammar_literal(tree, escaped == NULL ? "" : escaped));
        }
    }
    return list;
}

trm_grammar_node *trm_grammar_json_quoted(trm_grammar_json *json, const char *text)
{
    return trm_grammar_sequence(json->tree, 3, trm_grammar_literal(json->tree, "\""), trm_grammar_json_text(json, text),
                                trm_grammar_literal(json->tree, "\""));
}

trm_grammar_node *trm_grammar_json_class(trm_grammar_tree *tree, const trm_grammar_range *ranges, size_t count,
                                         bool negated)
{
    static const trm_grammar_range special[] = {{0, 0x1f}, {'"', '"'}, {'\\', '\\'}};
    trm_grammar_node *all = trm_grammar_class(tree, ranges, count, negated);
    trm_grammar_node *list = trm_grammar_list(tree, TRM_GRAMMAR_ANY_OF);
    trm_grammar_range *plain = all == NULL ? NULL : trm_arena_array(&tree->arena, 4 * all->size + 4, sizeof(*plain));
    if (plain == NULL) {
        tree->status = tree->status == TRM_OK ? TRM_ERROR_OUT_OF_MEMORY : tree->status;
        return NULL;
    }
    size_t n = 0;
    for (size_t i = 0; i < all->size; i++) {
        int32_t next = all->ranges[i].first, last = all->ranges[i].last;
        for (size_t k = 0; k < 3; k++) {
            for (int32_t c = special[k].first > next ? special[k].first : next; c <= special[k].last && c <= last;
                 c++) {
                char escape[8];
                const char *escaped = escape_of(c, escape);
                trm_grammar_append(tree, list, trm_grammar_literal(tree, escaped == NULL ? "" : escaped));
            }
            if (special[k].first > next && next <= last) {
                plain[n++] = (trm_grammar_range){next, last < special[k].first - 1 ? last : special[k].first - 1};
            }
            next = special[k].last + 1 > next ? special[k].last + 1 : next;
        }
        if (next <= last) {
            plain[n++] = (trm_grammar_range){next, last};
        }
    }
    trm_grammar_append(tree, list, trm_grammar_class(tree, plain, n, false));
    if (tree->status != TRM_OK) {
        return NULL;
    }
    list->is_character = true;
    return list;
}

void trm_grammar_read_json(trm_grammar_tree *tree)
{
    trm_grammar_json json = {.tree = tree};
    int32_t root = trm_grammar_add_rule(tree, "root", 4);
    trm_grammar_node *object = trm_grammar_json_object(&json);
    if (tree->status == TRM_OK) {
        tree->rules[root].node = object;
        tree->root = root;
    }
}

/* ---- ranges of integers ---- */

/* Digits from low to high, which have equally many digits. */
static trm_grammar_node *same_length(trm_grammar_json *json, const char *low, const char *high)
{
    trm_grammar_tree *tree = json->tree;
    int32_t rest = (int32_t)strlen(low) - 1;
    if (rest < 0) {
        return trm_grammar_literal(tree, "");
    }
    if (low[0] == high[0]) {
        return trm_grammar_sequence(tree, 2, class_of(json, low[0], low[0]), same_length(json, low + 1, high + 1));
    }
    char nines[MAX_DIGITS + 1], zeros[MAX_DIGITS + 1];
    memset(nines, '9', (size_t)rest);
    memset(zeros, '0', (size_t)rest);
    nines[rest] = zeros[rest] = '\0';
    bool low_is_round = strcmp(low + 1, zeros) == 0, high_is_round = strcmp(high + 1, nines) == 0;
    char first = (char)(low[0] + !low_is_round), last = (char)(high[0] - !high_is_round);
    trm_grammar_node *list = trm_grammar_list(tree, TRM_GRAMMAR_ANY_OF);
    if (!low_is_round) {
        trm_grammar_append(
            tree, list,
            trm_grammar_sequence(tree, 2, class_of(json, low[0], low[0]), same_length(json, low + 1, nines)));
    }
    if (first <= last) {
        trm_grammar_append(tree, list,
                           trm_grammar_sequence(tree, 2, class_of(json, first, last), digits(json, rest, rest)));
    }
    if (!high_is_round) {
        trm_grammar_append(
            tree, list,
            trm_grammar_sequence(tree, 2, class_of(json, high[0], high[0]), same_length(json, zeros, high + 1)));
    }
    return tree->status == TRM_OK ? list : NULL;
}

/* 0 <= min <= max < 10^18 */
static trm_grammar_node *natural_range(trm_grammar_json *json, int64_t min, int64_t max)
{
    trm_grammar_tree *tree = json->tree;
    trm_grammar_node *list = trm_grammar_list(tree, TRM_GRAMMAR_ANY_OF);
    for (int64_t begin = 0, end = 9; begin <= max && begin < LARGEST;
         begin = end + 1, end = end < LARGEST ? end * 10 + 9 : end) {
        int64_t low = min > begin ? min : begin, high = max < end ? max : end;
        if (low <= high) {
            char low_text[24], high_text[24];
            snprintf(low_text, sizeof(low_text), "%lld", (long long)low);
            snprintf(high_text, sizeof(high_text), "%lld", (long long)high);
            trm_grammar_append(tree, list, same_length(json, low_text, high_text));
        }
    }
    return tree->status == TRM_OK ? list : NULL;
}

trm_grammar_node *trm_grammar_json_range(trm_grammar_json *json, int64_t min, int64_t max)
{
    trm_grammar_tree *tree = json->tree;
    trm_grammar_node *list = trm_grammar_list(tree, TRM_GRAMMAR_ANY_OF);
    min = min < -LARGEST ? -LARGEST : min;
    max = max > LARGEST ? LARGEST : max;
    if (min > max) {
        return trm_grammar_fail(tree, TRM_ERROR_INVALID_ARGUMENT, "there is no integer from %lld to %lld",
                                (long long)min, (long long)max);
    }
    if (min < 0) {
        trm_grammar_append(tree, list,
                           trm_grammar_sequence(tree, 2, trm_grammar_literal(tree, "-"),
                                                natural_range(json, max < 0 ? -max : 1, -min)));
    }
    if (max >= 0) {
        trm_grammar_append(tree, list, natural_range(json, min > 0 ? min : 0, max));
    }
    return tree->status == TRM_OK ? list : NULL;
}
