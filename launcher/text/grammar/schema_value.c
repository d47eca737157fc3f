/* Numbers and strings of JSON schemas. */
#include "launcher/text/grammar/schema.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/c_locale.h"
#include "base/error.h"
#include "launcher/text/jinja/value.h"
#include "launcher/text/strings/utf8.h"

/* ---- numbers ---- */

#define MAX_MULTIPLE 20000 /* remainders that a multiple distinguishes */
#define MAX_SCALE    9     /* digits behind the point of what numbers are multiples of */

/* A number as a decimal: number / 10^scale. */
static bool read_decimal(double value, trm_multiple *decimal)
{
    char text[400];
    uint64_t number = 0;
    uint32_t scale = 0, zeros = 0;
    trm_c_snprintf(text, sizeof(text), "%.*f", MAX_SCALE, value);
    bool behind = false;
    for (const char *at = text; *at != '\0'; at++) {
        if (*at == '.') {
            behind = true;
        } else if (*at == '0') {
            zeros++;
            scale += behind;
        } else if (*at >= '1' && *at <= '9') {
            for (; zeros > 0 && number <= MAX_MULTIPLE; zeros--) {
                number *= 10;
            }
            number = number * 10 + (uint64_t)(*at - '0');
            scale += behind;
        }
        if (number > MAX_MULTIPLE) {
            return false;
        }
    }
    for (; zeros > 0 && scale > 0; zeros--) {
        scale--;
    }
    for (; zeros > 0 && number <= MAX_MULTIPLE; zeros--) {
        number *= 10;
    }
    *decimal = (trm_multiple){(uint32_t)number, scale};
    const double read = (double)number / pow(10, scale);
    return number > 0 && number <= MAX_MULTIPLE && fabs(read - value) <= 1e-15 * value;
}

static trm_grammar_node *multiple_node(schema_reader *reader, trm_multiple decimal)
{
    trm_grammar_node *node = trm_grammar_list(reader->tree, TRM_GRAMMAR_MULTIPLE);
    if (node != NULL) {
        node->min = (int32_t)decimal.number;
        node->max = (int32_t)decimal.scale;
    }
    return node;
}

static trm_grammar_node *integers(schema_reader *reader, const trm_grammar_bounds *bounds, bool alone)
{
    if (!isfinite(bounds->min) && !isfinite(bounds->max)) {
        return alone ? trm_grammar_json_integer(&reader->json) : trm_grammar_json_plain_integer(&reader->json);
    }
    const double largest = 9e17;
    double min = bounds->min < -largest ? -largest : ceil(bounds->min);
    double max = bounds->max > largest ? largest : floor(bounds->max);
    min += bounds->min_exclusive && min == bounds->min ? 1 : 0;
    max -= bounds->max_exclusive && max == bounds->max ? 1 : 0;
    return min > max ? trm_grammar_list(reader->tree, TRM_GRAMMAR_ANY_OF)
                     : trm_grammar_json_range(&reader->json, (int64_t)min, (int64_t)max);
}

/* The least common multiple, if it is small enough. */
static bool join_multiples(trm_multiple a, trm_multiple b, trm_multiple *joined)
{
    uint64_t p = a.number, q = b.number;
    const uint32_t scale = a.scale > b.scale ? a.scale : b.scale;
    for (uint32_t i = a.scale; i < scale; i++) {
        p *= 10;
    }
    for (uint32_t i = b.scale; i < scale; i++) {
        q *= 10;
    }
    uint64_t x = p, y = q;
    while (y != 0) {
        const uint64_t rest = x % y;
        x = y;
        y = rest;
    }
    const uint64_t least = p / x * q;
    *joined = (trm_multiple){(uint32_t)least, scale};
    return least <= MAX_MULTIPLE;
}

/* The only text of a number among decimals without an exponent and without zeros at the end; false if it has none. */
static bool write_decimal(double value, char text[40])
{
    trm_jinja_format_float(value, text);
    size_t size = strlen(text);
    if (strchr(text, 'e') != NULL) {
        return false;
    }
    text[size > 2 && strcmp(text + size - 2, ".0") == 0 ? size - 2 : size] = '\0';
    return true;
}

/* With `distinct`, numbers that are equal are the same text. */
static trm_grammar_node *number_node(schema_reader *reader, const schema_case *c, bool distinct)
{
    trm_grammar_tree *tree = reader->tree;
    const bool bounded = isfinite(c->bounds.min) || isfinite(c->bounds.max);
    bool plain = c->multiples != NULL;
    trm_grammar_node *minus_zero = distinct ? trm_grammar_not(tree, trm_grammar_literal(tree, "-0")) : NULL;
    for (const schema_item *item = c->excluded; item != NULL; item = item->next) {
        distinct |= trm_json_is_number(item->schema);
    }
    for (const schema_item *item = c->multiples; item != NULL; item = item->next) {
        distinct |= item->negated;
    }
    plain = plain || distinct;
    trm_grammar_node *base = c->whole   ? integers(reader, &c->bounds, !plain)
                             : bounded  ? trm_grammar_number_range(&reader->json, &c->bounds)
                             : distinct ? trm_grammar_json_plain_decimal(&reader->json)
                             : plain    ? NULL /* a multiple says all */
                                        : trm_grammar_json_number(&reader->json);
    if (!plain) {
        return base;
    }
    trm_grammar_node *both = trm_grammar_list(tree, TRM_GRAMMAR_BOTH);
    trm_grammar_append(tree, both, base);
    trm_grammar_append(tree, both, minus_zero);
    if (distinct && bounded && !c->whole) {
        trm_grammar_append(tree, both, trm_grammar_json_plain_decimal(&reader->json));
    }
    trm_multiple all = {0};
    for (const schema_item *item = c->multiples; item != NULL && tree->status == TRM_OK; item = item->next) {
        trm_multiple decimal = {1, 0};
        if (item->schema != NULL && !read_decimal(trm_json_number(item->schema, 0), &decimal)) {
            return trm_schema_fail(reader, TRM_ERROR_UNSUPPORTED, item->schema,
                                   "multipleOf has too many digits, which is not supported");
        }
        if (item->negated) {
            trm_grammar_append(tree, both, trm_grammar_not(tree, multiple_node(reader, decimal)));
        } else if (all.number == 0) {
            all = decimal;
        } else if (!join_multiples(all, decimal, &all)) {
            return trm_schema_fail(reader, TRM_ERROR_UNSUPPORTED, item->schema,
                                   "multipleOf of several such numbers is not supported");
        }
    }
    if (all.number != 0) {
        trm_grammar_append(tree, both, multiple_node(reader, all));
    }
    for (const schema_item *item = c->excluded; item != NULL && tree->status == TRM_OK; item = item->next) {
        char text[40];
        if (!trm_json_is_number(item->schema)) {
            continue;
        }
        if (!write_decimal(trm_json_number(item->schema, 0), text)) {
            return trm_grammar_list(tree, TRM_GRAMMAR_ANY_OF);
        }
        trm_grammar_append(tree, both, trm_grammar_not(tree, trm_grammar_literal(tree, text)));
        if (trm_json_number(item->schema, 0) == 0) {
            trm_grammar_append(tree, both, trm_grammar_not(tree, trm_grammar_literal(tree, "-0")));
        }
    }
    return both;
}

trm_grammar_node *trm_schema_number(schema_reader *reader, const schema_case *c)
{
    return number_node(reader, c, false);
}

trm_grammar_node *trm_schema_distinct_number(schema_reader *reader, const schema_case *c)
{
    return number_node(reader, c, true);
}

/* ---- strings ---- */

#define YEAR   "(?!0000)[0-9]{4}"
#define MONTHS "((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))"
#define LEAP   "([0-9]{2}(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)-02-29"
#define DATE   "(" YEAR "-" MONTHS "|" LEAP ")"
#define TIME   "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
#define BYTE   "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
#define IPV4   BYTE "(\\." BYTE "){3}"
#define LABEL  "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
#define ATOM   "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]{1,64}"
#define HEX    "[0-9a-fA-F]"
#define GROUP  HEX "{1,4}"
#define IPV6                                                                                                           \
    "((" GROUP ":){7}" GROUP "|(" GROUP ":){1,7}:|(" GROUP ":){1,6}:" GROUP "|(" GROUP ":){1,5}(:" GROUP               \
    "){1,2}|(" GROUP ":){1,4}(:" GROUP "){1,3}|(" GROUP ":){1,3}(:" GROUP "){1,4}|(" GROUP ":){1,2}(:" GROUP           \
    "){1,5}|" GROUP ":(:" GROUP "){1,6}|:(:" GROUP "){1,7}|::)"
#define URI_CHAR "([A-Za-z0-9._~!$&'()*+,;=:@-]|%" HEX HEX ")"
#define URI_PATH "(" URI_CHAR "|/)*"
#define URI_TAIL "(\\?(" URI_CHAR "|[/?])*)?(#(" URI_CHAR "|[/?])*)?"
#define URI_HOST                                                                                                       \
    "//(([A-Za-z0-9._~-]|%" HEX HEX ")+@)?([A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?|\\[" IPV6                          \
    "\\])(:[0-9]{1,5})?(/" URI_PATH ")?"
#define URI      "[A-Za-z][A-Za-z0-9+.-]*:(" URI_HOST "|/?" URI_CHAR URI_PATH ")" URI_TAIL
#define RELATIVE "(" URI_HOST "|/(" URI_CHAR URI_PATH ")?|([A-Za-z0-9._~!$&'()*+,;=@-]|%" HEX HEX ")*(/" URI_PATH ")?)"
#define VARIABLE "[A-Za-z0-9_]+(\\.[A-Za-z0-9_]+)*(\\*|:[1-9][0-9]{0,3})?"
#define TEMPLATE "(" URI_CHAR "|[/?#]|\\{[+#./;?&]?" VARIABLE "(," VARIABLE "){0,8}\\})*"
/* Expressions without groups in groups: a subset that all dialects know. */
#define RX_CLASS "\\[\\^?([A-Za-z0-9_ .,:;/@%]|a-z|A-Z|0-9|\\\\[dws.])+\\]"
#define RX_TIMES "([*+?]|\\{[0-9]{1,3}(,)?\\})?"
#define RX_ITEM  "([A-Za-z0-9_ ,:;/@%.-]|\\\\[dwsDWSnt.*+?()|/^$\\\\-]|" RX_CLASS ")" RX_TIMES
#define RX_GROUP "\\((\\?:)?(" RX_ITEM ")*(\\|(" RX_ITEM ")*)*\\)" RX_TIMES
#define RX       "\\^?(" RX_ITEM "|" RX_GROUP ")*(\\|(" RX_ITEM "|" RX_GROUP ")*)*\\$?"
#define POINTER  "(/([^~/]|~[01])*)*"
#define PERIOD   "P([0-9]+W|([0-9]+Y([0-9]+M([0-9]+D)?)?|[0-9]+M([0-9]+D)?|[0-9]+D)(T" CLOCK ")?|T" CLOCK ")"
#define CLOCK    "([0-9]+H([0-9]+M([0-9]+S)?)?|[0-9]+M([0-9]+S)?|[0-9]+S)"

/* The expression of a format; NULL: any text. */
static const char *format_pattern(const char *format)
{
    static const struct {
        const char *name, *pattern;
    } formats[] = {
        {"date", DATE},
        {"time", TIME},
        {"date-time", DATE "T" TIME},
        {"duration", PERIOD},
        {"uuid", HEX "{8}-" HEX "{4}-" HEX "{4}-" HEX "{4}-" HEX "{12}"},
        {"ipv4", IPV4},
        {"ipv6", IPV6},
        {"hostname", LABEL "(\\." LABEL "){0,8}"},
        {"idn-hostname", LABEL "(\\." LABEL "){0,8}"},
        {"email", ATOM "(\\." ATOM "){0,3}@(" LABEL "\\.){1,6}[A-Za-z]{2,20}"},
        {"idn-email", ATOM "(\\." ATOM "){0,3}@(" LABEL "\\.){1,6}[A-Za-z]{2,20}"},
        {"uri", URI},
        {"iri", URI},
        {"uri-reference", "(" URI "|" RELATIVE URI_TAIL ")"},
        {"iri-reference", "(" URI "|" RELATIVE URI_TAIL ")"},
        {"uri-template", TEMPLATE},
        {"regex", RX},
        {"json-pointer", POINTER},
        {"relative-json-pointer", "(0|[1-9][0-9]{0,8})(#|" POINTER ")"},
    };
    for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++) {
        if (strcmp(format, formats[i].name) == 0) {
            return formats[i].pattern;
        }
    }
    return NULL;
}

/* The least and largest number of characters that a node of a string can match; *max -1: no limit. */
static void find_lengths(const trm_grammar_node *node, int64_t *min, int64_t *max)
{
    const int64_t huge = INT64_C(1) << 40;
    int64_t low, high;
    *min = 0;
    *max = node->kind == TRM_GRAMMAR_NOT ? -1 : 0;
    if (node->is_character || node->kind == TRM_GRAMMAR_CLASS) {
        *min = *max = 1;
        return;
    }
    if (node->kind == TRM_GRAMMAR_TEXT) {
        *min = *max = (int64_t)trm_utf8_count(node->text, node->size);
        return;
    }
    for (const trm_grammar_node *child = node->child; child != NULL && node->kind != TRM_GRAMMAR_NOT;
         child = child->next) {
        find_lengths(child, &low, &high);
        if (node->kind == TRM_GRAMMAR_SEQUENCE) {
            *min += low;
            *max = *max < 0 || high < 0 || *max > huge ? -1 : *max + high;
        } else if (node->kind == TRM_GRAMMAR_REPEAT) {
            *min = low * node->min;
            *max = node->max < 0 || high < 0 || high > huge / (node->max + 1) ? (high == 0 ? 0 : -1) : high * node->max;
        } else if (node->kind == TRM_GRAMMAR_BOTH) {
            *min = low > *min ? low : *min;
            *max = child == node->child || *max < 0 ? high : high < 0 || high > *max ? *max : high;
        } else {
            *min = child == node->child || low < *min ? low : *min;
            *max = child == node->child ? high : *max < 0 || high < 0 ? -1 : high > *max ? high : *max;
        }
    }
}

/* The node with its length bounded, if that is simple; else NULL. */
static trm_grammar_node *bound_simply(schema_reader *reader, trm_grammar_node *node, int32_t min, int32_t max)
{
    int64_t least, most;
    find_lengths(node, &least, &most);
    if (least >= min && (max < 0 || (most >= 0 && most <= max))) {
        return node;
    }
    while ((node->kind == TRM_GRAMMAR_ANY_OF || node->kind == TRM_GRAMMAR_SEQUENCE) && !node->is_character &&
           node->child != NULL && node->child->next == NULL) {
        node = node->child;
    }
    if (node->kind != TRM_GRAMMAR_REPEAT) {
        return NULL;
    }
    find_lengths(node->child, &least, &most);
    if (least != 1 || most != 1) {
        return NULL;
    }
    const int32_t low = node->min > min ? node->min : min;
    const int32_t high = max < 0 || (node->max >= 0 && node->max < max) ? node->max : max;
    return high >= 0 && high < low ? trm_grammar_list(reader->tree, TRM_GRAMMAR_ANY_OF)
                                   : trm_grammar_repeat(reader->tree, node->child, low, high);
}

static trm_grammar_node *text_of_length(schema_reader *reader, int32_t min, int32_t max)
{
    return trm_grammar_repeat(reader->tree, trm_grammar_json_plain_character(&reader->json), min, max);
}

/* What a pattern or format allows. */
static trm_grammar_node *statement_node(schema_reader *reader, const schema_item *item)
{
    trm_grammar_tree *tree = reader->tree;
    const char *pattern = item->is_format ? format_pattern(item->text) : item->text;
    if (pattern == NULL) {
        return NULL;
    }
    trm_grammar_tree *failed = tree;
    trm_grammar_node *node = trm_grammar_read_regex(tree, pattern, strlen(pattern),
                                                    item->is_format ? TRM_GRAMMAR_WHOLE_JSON : TRM_GRAMMAR_SEARCH_JSON);
    if (failed->status == TRM_ERROR_INVALID_ARGUMENT || failed->status == TRM_ERROR_UNSUPPORTED) {
        char what[300];
        trm_status status = tree->status;
        snprintf(what, sizeof(what), "%.290s", trm_last_error());
        tree->status = TRM_OK;
        return trm_schema_fail(reader, status, item->schema, what);
    }
    return item->negated ? trm_grammar_not(tree, node) : node;
}

trm_grammar_node *trm_schema_string_text(schema_reader *reader, const schema_case *c)
{
    trm_grammar_tree *tree = reader->tree;
    trm_grammar_node *both = trm_grammar_list(tree, TRM_GRAMMAR_BOTH), *only = NULL;
    size_t n = 0, n_matched = 0;
    for (const schema_item *item = c->strings; item != NULL && tree->status == TRM_OK; item = item->next) {
        trm_grammar_node *node = statement_node(reader, item);
        n += node != NULL;
        n_matched += node != NULL && !item->negated;
        only = node != NULL ? node : only;
        trm_grammar_append(tree, both, node);
    }
    for (const schema_item *item = c->excluded; item != NULL && tree->status == TRM_OK; item = item->next) {
        if (trm_json_is_string(item->schema)) {
            trm_grammar_append(
                tree, both, trm_grammar_not(tree, trm_grammar_json_text(&reader->json, trm_json_string(item->schema))));
            n++;
        }
    }
    if (tree->status != TRM_OK) {
        return NULL;
    }
    const bool bounded = c->min_length > 0 || c->max_length >= 0;
    if (n == 0) {
        return bounded ? text_of_length(reader, c->min_length, c->max_length) : NULL;
    }
    if (n == 1 && n_matched == 1) {
        trm_grammar_node *simple = bound_simply(reader, only, c->min_length, c->max_length);
        if (simple != NULL) {
            return trm_grammar_copy(tree, simple);
        }
    }
    if (bounded || n_matched == 0) {
        trm_grammar_append(tree, both, text_of_length(reader, c->min_length, c->max_length));
    }
    return both;
}

trm_grammar_node *trm_schema_string(schema_reader *reader, const schema_case *c)
{
    trm_grammar_tree *tree = reader->tree;
    trm_grammar_node *text = NULL;
    bool plain = c->strings == NULL;
    for (const schema_item *item = c->excluded; item != NULL; item = item->next) {
        plain = plain && !trm_json_is_string(item->schema);
    }
    if (plain && (c->min_length > 0 || c->max_length >= 0)) { /* with any escape */
        text = trm_grammar_repeat(tree, trm_grammar_json_character(&reader->json), c->min_length, c->max_length);
    } else {
        text = trm_schema_string_text(reader, c);
    }
    if (text == NULL) {
        return trm_grammar_json_string(&reader->json);
    }
    return trm_grammar_sequence(tree, 3, trm_grammar_literal(tree, "\""), text, trm_grammar_literal(tree, "\""));
}
