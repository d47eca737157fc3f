/*
 * Numbers between bounds, as decimals without an exponent: alternatives by the digits before the point and, where
 * those equal a bound's, by the digits after it.
 */
#include "launcher/text/grammar/number.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/c_locale.h"
#include "launcher/text/jinja/value.h"

#define MAX_FRACTION  18
#define LARGEST_WHOLE INT64_C(999999999999999)

/* The absolute value of a bound. */
typedef struct decimal {
    int64_t whole;
    char fraction[40]; /* digits, no zeros at the end */
    bool exclusive;
} decimal;

static trm_grammar_node *nothing(trm_grammar_json *json)
{
    return trm_grammar_list(json->tree, TRM_GRAMMAR_ANY_OF);
}

static trm_grammar_node *digits(trm_grammar_json *json, char first, char last, int32_t min, int32_t max)
{
    trm_grammar_range range = {first, last};
    return trm_grammar_repeat(json->tree, trm_grammar_class(json->tree, &range, 1, false), min, max);
}

/* A digit of a range, then any digits; nothing for an empty range. */
static trm_grammar_node *free_behind(trm_grammar_json *json, char first, char last)
{
    if (first > last) {
        return nothing(json);
    }
    return trm_grammar_sequence(json->tree, 2, digits(json, first, last, 1, 1),
                                digits(json, '0', '9', 0, MAX_FRACTION));
}

static trm_grammar_node *then(trm_grammar_json *json, char digit, trm_grammar_node *rest)
{
    return trm_grammar_sequence(json->tree, 2, digits(json, digit, digit, 1, 1), rest);
}

/* At least `least` digits of a fraction >= f; with `exclusive` > f. */
static trm_grammar_node *at_least(trm_grammar_json *json, const char *f, bool exclusive, int32_t least)
{
    if (*f == '\0') {
        return !exclusive ? digits(json, '0', '9', least, MAX_FRACTION)
                          : trm_grammar_sequence(json->tree, 2, digits(json, '0', '0', 0, MAX_FRACTION),
                                                 free_behind(json, '1', '9'));
    }
    return trm_grammar_any_of(json->tree, 2, free_behind(json, (char)(*f + 1), '9'),
                              then(json, *f, at_least(json, f + 1, exclusive, 0)));
}

/* Digits of a fraction <= f; with `exclusive` < f. */
static trm_grammar_node *at_most(trm_grammar_json *json, const char *f, bool exclusive, int32_t least)
{
    if (*f == '\0') {
        return exclusive ? nothing(json) : digits(json, '0', '0', least, MAX_FRACTION);
    }
    trm_grammar_node *list = trm_grammar_any_of(json->tree, 2, free_behind(json, '0', (char)(*f - 1)),
                                                then(json, *f, at_most(json, f + 1, exclusive, 0)));
    if (least == 0) {
        trm_grammar_append(json->tree, list, trm_grammar_literal(json->tree, ""));
    }
    return list;
}

/* Digits between the fractions of two bounds. */
static trm_grammar_node *between(trm_grammar_json *json, const char *low, bool low_exclusive, const char *high,
                                 bool high_exclusive, int32_t least)
{
    if (*low == '\0' && !low_exclusive) {
        return at_most(json, high, high_exclusive, least);
    }
    if (*high == '\0') {
        return nothing(json);
    }
    char from = *low == '\0' ? '0' : *low;
    const char *low_rest = *low == '\0' ? low : low + 1;
    if (from > *high) {
        return nothing(json);
    }
    if (from == *high) {
        return then(json, from, between(json, low_rest, low_exclusive, high + 1, high_exclusive, 0));
    }
    return trm_grammar_any_of(json->tree, 3, then(json, from, at_least(json, low_rest, low_exclusive, 0)),
                              free_behind(json, (char)(from + 1), (char)(*high - 1)),
                              then(json, *high, at_most(json, high + 1, high_exclusive, 0)));
}

/* The digits of `whole`, then a point with digits if wanted. */
static trm_grammar_node *with_fraction(trm_grammar_json *json, int64_t whole, trm_grammar_node *fraction, bool bare)
{
    char text[24];
    snprintf(text, sizeof(text), "%lld", (long long)whole);
    trm_grammar_node *list = trm_grammar_any_of(
        json->tree, 1, trm_grammar_sequence(json->tree, 2, trm_grammar_literal(json->tree, "."), fraction));
    if (bare) {
        trm_grammar_append(json->tree, list, trm_grammar_literal(json->tree, ""));
    }
    return trm_grammar_sequence(json->tree, 2, trm_grammar_literal(json->tree, text), list);
}

static trm_grammar_node *positive(trm_grammar_json *json, const decimal *low, const decimal *high)
{
    trm_grammar_tree *tree = json->tree;
    trm_grammar_node *list = nothing(json);
    bool low_bare = low->fraction[0] == '\0' && !low->exclusive;
    bool high_bare = high->fraction[0] != '\0' || !high->exclusive;
    if (low->whole > high->whole) {
        return list;
    }
    if (low->whole == high->whole) {
        trm_grammar_append(
            tree, list,
            with_fraction(json, low->whole,
                          between(json, low->fraction, low->exclusive, high->fraction, high->exclusive, 1),
                          low_bare && high_bare));
        return list;
    }
    trm_grammar_append(tree, list,
                       with_fraction(json, low->whole, at_least(json, low->fraction, low->exclusive, 1), low_bare));
    trm_grammar_append(tree, list,
                       with_fraction(json, high->whole, at_most(json, high->fraction, high->exclusive, 1), high_bare));
    if (high->whole - low->whole > 1) {
        trm_grammar_node *fraction =
            trm_grammar_sequence(tree, 2, trm_grammar_literal(tree, "."), digits(json, '0', '9', 1, MAX_FRACTION));
        trm_grammar_append(tree, list,
                           trm_grammar_sequence(tree, 2, trm_grammar_json_range(json, low->whole + 1, high->whole - 1),
                                                trm_grammar_repeat(tree, fraction, 0, 1)));
    }
    return list;
}

/* The decimal of a bound's absolute value. */
static decimal decimal_of(double bound, bool exclusive)
{
    char text[400]; /* a number below 10^15 has few digits before the point; %.17f would show its binary tail */
    decimal d = {.exclusive = exclusive};
    double size = fabs(bound);
    if (size >= (double)LARGEST_WHOLE) {
        d.whole = LARGEST_WHOLE;
        return d;
    }
    trm_jinja_format_float(size, text);
    if (strchr(text, 'e') != NULL) { /* below 0.0001 */
        trm_c_snprintf(text, sizeof(text), "%.30f", size);
    }
    char *point = strchr(text, '.');
    *point = '\0';
    d.whole = strtoll(text, NULL, 10);
    snprintf(d.fraction, sizeof(d.fraction), "%.*s", MAX_FRACTION, point + 1);
    for (size_t n = strlen(d.fraction); n > 0 && d.fraction[n - 1] == '0'; n--) {
        d.fraction[n - 1] = '\0';
    }
    return d;
}

trm_grammar_node *trm_grammar_number_range(trm_grammar_json *json, const trm_grammar_bounds *bounds)
{
    trm_grammar_tree *tree = json->tree;
    trm_grammar_node *list = nothing(json);
    const decimal zero = {0};
    if (bounds->max >= 0) {
        decimal low = bounds->min > 0 ? decimal_of(bounds->min, bounds->min_exclusive) : zero;
        low.exclusive = low.exclusive || (bounds->min == 0 && bounds->min_exclusive);
        decimal high = decimal_of(bounds->max, bounds->max_exclusive);
        trm_grammar_append(tree, list, positive(json, &low, &high));
    }
    if (bounds->min < 0) {
        decimal low = bounds->max < 0 ? decimal_of(bounds->max, bounds->max_exclusive) : zero;
        low.exclusive = low.exclusive || bounds->max >= 0; /* no -0 */
        decimal high = decimal_of(bounds->min, bounds->min_exclusive);
        trm_grammar_append(tree, list,
                           trm_grammar_sequence(tree, 2, trm_grammar_literal(tree, "-"), positive(json, &low, &high)));
    }
    return tree->status == TRM_OK ? list : NULL;
}
