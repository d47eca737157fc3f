/* Filters on strings and numbers. */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/c_locale.h"
#include "base/error.h"
#include "launcher/text/jinja/builtin.h"
#include "launcher/text/jinja/parser.h"
#include "launcher/text/jinja/string.h"
#include "launcher/text/jinja/text.h"
#include "launcher/text/strings/utf8.h"

static trm_status self_text(trm_jinja_call *call, trm_jinja_value *text)
{
    return trm_jinja_string(call->run, call->self, text);
}

/* Jinja2's rule: words begin after white space, hyphens and opening brackets. */
static trm_status filter_title(trm_jinja_call *call)
{
    trm_jinja_value text;
    trm_bytes out = {0};
    TRM_TRY(self_text(call, &text));
    TRM_TRY(trm_jinja_charge(call->run, text.size / 16));
    trm_status status = trm_bytes_reserve(&out, text.size);
    bool begins = true;
    for (size_t at = 0; at < text.size && status == TRM_OK;) {
        size_t size;
        int32_t c = trm_utf8_read(text.text + at, &size);
        status = trm_jinja_append_cased(&out, c, begins ? TRM_JINJA_CASE_UPPER : TRM_JINJA_CASE_LOWER);
        begins = trm_jinja_is_space(c) || (c > 0 && c < 0x80 && strchr("-({[<", c) != NULL);
        at += size;
    }
    return trm_jinja_take(call->run, &out, status, call->result);
}

static trm_status filter_trim(trm_jinja_call *call)
{
    trm_jinja_value text;
    const trm_jinja_value *chars = call->bound[0];
    TRM_TRY(self_text(call, &text));
    if (chars != NULL && chars->kind == TRM_JINJA_NONE) {
        chars = NULL;
    }
    if (chars != NULL && chars->kind != TRM_JINJA_STRING) {
        return trm_jinja_fail(call->run, "trim needs characters, found '%s'", trm_jinja_type_name(chars));
    }
    TRM_TRY(trm_jinja_charge(call->run, text.size / 64));
    *call->result = trm_jinja_strip(&text, chars, true, true);
    return TRM_OK;
}

static trm_status filter_replace(trm_jinja_call *call)
{
    trm_jinja_value text, from, to;
    int64_t most = -1;
    TRM_TRY(self_text(call, &text));
    TRM_TRY(trm_jinja_bound_text(call, 0, "", &from));
    TRM_TRY(trm_jinja_bound_text(call, 1, "", &to));
    TRM_TRY(trm_jinja_bound_integer(call, 2, &most));
    return trm_jinja_replace(call->run, &text, &from, &to, most < 0 ? -1 : most, call->result);
}

static trm_status filter_string(trm_jinja_call *call)
{
    return self_text(call, call->result);
}

static trm_status filter_escape(trm_jinja_call *call)
{
    static const char from[] = "&<>'\"";
    static const char *const to[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    trm_jinja_value text;
    trm_bytes out = {0};
    TRM_TRY(self_text(call, &text));
    TRM_TRY(trm_jinja_charge(call->run, text.size / 16));
    trm_status status = trm_bytes_reserve(&out, text.size);
    for (size_t i = 0; i < text.size && status == TRM_OK; i++) {
        const char *found = text.text[i] == '\0' ? NULL : strchr(from, text.text[i]);
        status = found == NULL ? trm_bytes_append(&out, text.text + i, 1)
                               : trm_bytes_append(&out, to[found - from], strlen(to[found - from]));
    }
    return trm_jinja_take(call->run, &out, status, call->result);
}

static trm_status filter_urlencode(trm_jinja_call *call)
{
    trm_jinja_value text;
    trm_bytes out = {0};
    TRM_TRY(self_text(call, &text));
    TRM_TRY(trm_jinja_charge(call->run, text.size / 16));
    trm_status status = trm_bytes_reserve(&out, text.size);
    for (size_t i = 0; i < text.size && status == TRM_OK; i++) {
        unsigned char c = (unsigned char)text.text[i];
        char escape[8];
        bool plain = c < 0x80 && (isalnum(c) || (c != '\0' && strchr("_.-~/", c) != NULL));
        snprintf(escape, sizeof(escape), plain ? "%c" : "%%%02X", c);
        status = trm_bytes_append(&out, escape, strlen(escape));
    }
    return trm_jinja_take(call->run, &out, status, call->result);
}

static trm_status filter_indent(trm_jinja_call *call)
{
    trm_jinja_value text, indent, lines;
    const trm_jinja_value space = trm_jinja_text(" ", 1), nothing = trm_jinja_text("", 0);
    int64_t width = 4;
    bool first = trm_jinja_bound_truth(call, 1, false), blank = trm_jinja_bound_truth(call, 2, false);
    TRM_TRY(self_text(call, &text));
    if (call->bound[0] != NULL && call->bound[0]->kind == TRM_JINJA_STRING) {
        indent = *call->bound[0];
    } else {
        TRM_TRY(trm_jinja_bound_integer(call, 0, &width));
        TRM_TRY(trm_jinja_pad(call->run, &nothing, width, &space, -1, &indent));
    }
    trm_bytes out = {0};
    trm_status status = trm_bytes_append(&out, text.text, text.size);
    if (status == TRM_OK) {
        status = trm_bytes_append(&out, "\n", 1); /* as in Jinja2, so that an empty last line counts */
    }
    TRM_TRY(trm_jinja_take(call->run, &out, status, &text));
    TRM_TRY(trm_jinja_split_lines(call->run, &text, false, &lines));
    status = trm_bytes_reserve(&out, text.size);
    for (size_t i = 0; i < lines.list->count && status == TRM_OK; i++) {
        const trm_jinja_value *line = &lines.list->items[i];
        status = i > 0 ? trm_bytes_append(&out, "\n", 1) : TRM_OK;
        if (status == TRM_OK && (i == 0 ? first : blank || line->size > 0)) {
            status = trm_bytes_append(&out, indent.text, indent.size);
        }
        if (status == TRM_OK) {
            status = trm_jinja_charge(call->run, 1 + indent.size / 16);
        }
        if (status == TRM_OK) {
            status = trm_bytes_append(&out, line->text, line->size);
        }
    }
    return trm_jinja_take(call->run, &out, status, call->result);
}

static trm_status filter_truncate(trm_jinja_call *call)
{
    trm_jinja_value text, end, kept;
    int64_t length = 255, leeway = 5, has, end_length;
    TRM_TRY(self_text(call, &text));
    TRM_TRY(trm_jinja_bound_integer(call, 0, &length));
    TRM_TRY(trm_jinja_bound_text(call, 2, "...", &end));
    TRM_TRY(trm_jinja_bound_integer(call, 3, &leeway));
    TRM_TRY(trm_jinja_length(call->run, &text, &has));
    TRM_TRY(trm_jinja_length(call->run, &end, &end_length));
    if (length < end_length || leeway < 0) {
        return trm_jinja_fail(call->run, "truncate needs a length of at least %lld", (long long)end_length);
    }
    if (has <= length || has - length <= leeway) {
        *call->result = text;
        return TRM_OK;
    }
    trm_jinja_value stop = trm_jinja_integer(length - end_length);
    const trm_jinja_value *parts[3] = {NULL, &stop, NULL};
    TRM_TRY(trm_jinja_slice(call->run, &text, parts, &kept));
    const char *space = memrchr(kept.text, ' ', kept.size);
    if (!trm_jinja_bound_truth(call, 1, false) && space != NULL) {
        kept.size = (size_t)(space - kept.text);
    }
    return trm_jinja_binary(call->run, TRM_JINJA_ADD, &kept, &end, call->result);
}

static trm_status filter_wordcount(trm_jinja_call *call)
{
    trm_jinja_value text;
    int64_t count = 0;
    bool in_word = false;
    TRM_TRY(self_text(call, &text));
    TRM_TRY(trm_jinja_charge(call->run, text.size / 16));
    for (size_t at = 0; at < text.size;) {
        size_t size;
        bool word = trm_jinja_is_word(trm_utf8_read(text.text + at, &size));
        count += word && !in_word;
        in_word = word;
        at += size;
    }
    *call->result = trm_jinja_integer(count);
    return TRM_OK;
}

static trm_status filter_center(trm_jinja_call *call)
{
    trm_jinja_value text;
    const trm_jinja_value space = trm_jinja_text(" ", 1);
    int64_t width = 80;
    TRM_TRY(self_text(call, &text));
    TRM_TRY(trm_jinja_bound_integer(call, 0, &width));
    return trm_jinja_pad(call->run, &text, width, &space, 0, call->result);
}

static trm_status filter_format(trm_jinja_call *call)
{
    trm_jinja_value text, values;
    TRM_TRY(self_text(call, &text));
    if (call->args->n_keywords > 0) {
        TRM_TRY(trm_jinja_new_map(call->run, TRM_JINJA_MAP, &values));
        for (size_t i = 0; i < call->args->n_keywords; i++) {
            const trm_jinja_keyword *keyword = &call->args->keywords[i];
            TRM_TRY(trm_jinja_map_set(call->run, values.map, &keyword->name, &keyword->value));
        }
    } else {
        TRM_TRY(trm_jinja_new_list(call->run, TRM_JINJA_TUPLE, call->args->count, &values));
        for (size_t i = 0; i < call->args->count; i++) {
            TRM_TRY(trm_jinja_list_append(call->run, values.list, &call->args->items[i]));
        }
    }
    return trm_jinja_percent(call->run, &text, &values, call->result);
}

/* tojson of chat templates: json.dumps(x, ensure_ascii=False), without HTML escapes. */
static trm_status filter_tojson(trm_jinja_call *call)
{
    const trm_jinja_value *indent = call->bound[1], *separators = call->bound[2];
    trm_jinja_json_style style = {.ascii = trm_jinja_bound_truth(call, 0, false),
                                  .sort_keys = trm_jinja_bound_truth(call, 3, false),
                                  .lines = indent != NULL && indent->kind != TRM_JINJA_NONE,
                                  .indent = trm_jinja_text("", 0),
                                  .colon = trm_jinja_text(": ", 2)};
    style.comma = style.lines ? trm_jinja_text(",", 1) : trm_jinja_text(", ", 2);
    if (style.lines && indent->kind == TRM_JINJA_STRING) {
        style.indent = *indent;
    } else if (style.lines) {
        const trm_jinja_value nothing = trm_jinja_text("", 0), space = trm_jinja_text(" ", 1);
        int64_t width = 0;
        TRM_TRY(trm_jinja_bound_integer(call, 1, &width));
        TRM_TRY(trm_jinja_pad(call->run, &nothing, width, &space, -1, &style.indent));
    }
    if (separators != NULL && separators->kind != TRM_JINJA_NONE) {
        const trm_jinja_list *pair;
        TRM_TRY(trm_jinja_items(call->run, separators, &pair));
        if (pair->count != 2 || pair->items[0].kind != TRM_JINJA_STRING || pair->items[1].kind != TRM_JINJA_STRING) {
            return trm_jinja_fail(call->run, "the separators of tojson must be two strings");
        }
        style.comma = pair->items[0];
        style.colon = pair->items[1];
    }
    trm_bytes out = {0};
    trm_status status = trm_jinja_write_json(call->run, call->self, &style, &out);
    return trm_jinja_take(call->run, &out, status, call->result);
}

/* Copies a number's text as C reads it: without white space around it and single underscores between digits. false: not
 * a number. */
static bool number_text(const trm_jinja_value *text, char out[80])
{
    trm_jinja_value rest = trm_jinja_strip(text, NULL, true, true);
    size_t n = 0;
    for (size_t i = 0; i < rest.size; i++) {
        bool between = rest.text[i] == '_' && i > 0 && i + 1 < rest.size &&
                       isxdigit((unsigned char)rest.text[i - 1]) != 0 && isxdigit((unsigned char)rest.text[i + 1]) != 0;
        if (between) {
            continue;
        }
        if (n == 79 || !(isalnum((unsigned char)rest.text[i]) || rest.text[i] == '+' || rest.text[i] == '-' ||
                         rest.text[i] == '.')) {
            return false;
        }
        out[n++] = rest.text[i];
    }
    out[n] = '\0';
    return n > 0;
}

/* Python's float(text). */
static bool read_float(const trm_jinja_value *text, double *number)
{
    char digits[80], *end;
    if (!number_text(text, digits) || strpbrk(digits, "xXpP") != NULL) {
        return false;
    }
    *number = trm_c_strtod(digits, &end);
    return *end == '\0';
}

/* Python's int(text, base). */
static bool read_integer(const trm_jinja_value *text, int64_t base, int64_t *integer)
{
    char digits[80], *end;
    if ((base != 0 && (base < 2 || base > 36)) || !number_text(text, digits)) {
        return false;
    }
    size_t sign = digits[0] == '-' || digits[0] == '+', prefix = 0;
    char kind = digits[sign] == '0' ? (char)tolower((unsigned char)digits[sign + 1]) : '\0';
    int64_t named = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 0;
    if (named != 0 && (base == named || base == 0)) {
        prefix = 2;
        base = named;
    }
    memmove(digits + sign, digits + sign + prefix, strlen(digits + sign + prefix) + 1);
    errno = 0;
    *integer = strtoll(digits, &end, base == 0 ? 10 : (int)base);
    return isalnum((unsigned char)digits[sign]) && *end == '\0' && errno == 0;
}

static trm_status filter_int(trm_jinja_call *call)
{
    static const trm_jinja_value zero = {.kind = TRM_JINJA_INTEGER};
    const trm_jinja_value *self = call->self, *otherwise = call->bound[0] == NULL ? &zero : call->bound[0];
    int64_t base = 10, integer;
    double number = NAN;
    TRM_TRY(trm_jinja_bound_integer(call, 1, &base));
    *call->result = *otherwise;
    if (trm_jinja_is_integer(self)) {
        *call->result = trm_jinja_integer(trm_jinja_to_integer(self));
        return TRM_OK;
    }
    if (self->kind == TRM_JINJA_STRING) {
        if (read_integer(self, base, &integer)) {
            *call->result = trm_jinja_integer(integer);
            return TRM_OK;
        }
        if (!read_float(self, &number)) {
            return TRM_OK;
        }
    } else if (self->kind == TRM_JINJA_FLOAT) {
        number = self->number;
    }
    if (fabs(number) < 9.2e18) {
        *call->result = trm_jinja_integer((int64_t)number);
    } else if (isfinite(number)) {
        return trm_jinja_fail(call->run, "an integer has more than 64 bits");
    }
    return TRM_OK;
}

static trm_status filter_float(trm_jinja_call *call)
{
    double number;
    if (trm_jinja_is_number(call->self)) {
        *call->result = trm_jinja_float(trm_jinja_to_double(call->self));
    } else if (call->self->kind == TRM_JINJA_STRING && read_float(call->self, &number)) {
        *call->result = trm_jinja_float(number);
    } else {
        *call->result = call->bound[0] == NULL ? trm_jinja_float(0) : *call->bound[0];
    }
    return TRM_OK;
}

static trm_status need_number(const trm_jinja_call *call)
{
    if (call->self->kind == TRM_JINJA_UNDEFINED) {
        return trm_jinja_fail(call->run, "%.*s", (int)call->self->size, call->self->text);
    }
    return trm_jinja_is_number(call->self)
               ? TRM_OK
               : trm_jinja_fail(call->run, "expected a number, found '%s'", trm_jinja_type_name(call->self));
}

static trm_status filter_abs(trm_jinja_call *call)
{
    TRM_TRY(need_number(call));
    *call->result = *call->self;
    if (trm_jinja_is_integer(call->self)) {
        *call->result = trm_jinja_integer(trm_jinja_to_integer(call->self));
    }
    bool negative = call->self->kind == TRM_JINJA_FLOAT ? signbit(call->self->number) != 0 : call->result->integer < 0;
    const trm_jinja_value value = *call->result;
    return negative ? trm_jinja_negate(call->run, &value, call->result) : TRM_OK;
}

static trm_status filter_round(trm_jinja_call *call)
{
    trm_jinja_value method;
    int64_t precision = 0;
    TRM_TRY(need_number(call));
    TRM_TRY(trm_jinja_bound_integer(call, 0, &precision));
    TRM_TRY(trm_jinja_bound_text(call, 1, "common", &method));
    double number = trm_jinja_to_double(call->self);
    if (trm_jinja_is_text(&method, "common")) {
        if (trm_jinja_is_integer(call->self) && precision >= 0) {
            *call->result = trm_jinja_integer(trm_jinja_to_integer(call->self));
        } else if (precision >= 0) {
            char text[512]; /* printing rounds the exact value half to even, as in Python */
            int size = trm_c_snprintf(text, sizeof(text), "%.*f", precision > 100 ? 100 : (int)precision, number);
            *call->result = trm_jinja_float(size < (int)sizeof(text) ? trm_c_strtod(text, NULL) : number);
        } else {
            double scale = pow(10, precision < -308 ? 308 : (double)-precision);
            double rounded = nearbyint(number / scale) * scale;
            *call->result =
                call->self->kind == TRM_JINJA_FLOAT ? trm_jinja_float(rounded) : trm_jinja_integer((int64_t)rounded);
        }
        return TRM_OK;
    }
    bool up = trm_jinja_is_text(&method, "ceil");
    if (!up && !trm_jinja_is_text(&method, "floor")) {
        return trm_jinja_fail(call->run, "the method of round must be common, ceil or floor");
    }
    double scale = pow(10, (double)precision);
    *call->result = trm_jinja_float((up ? ceil(number * scale) : floor(number * scale)) / scale);
    return TRM_OK;
}

static trm_status filter_default(trm_jinja_call *call)
{
    bool use = call->self->kind == TRM_JINJA_UNDEFINED ||
               (trm_jinja_bound_truth(call, 1, false) && !trm_jinja_truth(call->self));
    *call->result = !use ? *call->self : call->bound[0] != NULL ? *call->bound[0] : trm_jinja_text("", 0);
    return TRM_OK;
}

static trm_status filter_length(trm_jinja_call *call)
{
    int64_t length;
    TRM_TRY(trm_jinja_length(call->run, call->self, &length));
    *call->result = trm_jinja_integer(length);
    return TRM_OK;
}

static const trm_jinja_builtin table[] = {
    {"upper", trm_jinja_change_case, 0, "", TRM_JINJA_UPPER},
    {"lower", trm_jinja_change_case, 0, "", TRM_JINJA_LOWER},
    {"capitalize", trm_jinja_change_case, 0, "", TRM_JINJA_CAPITALIZE},
    {"title", filter_title, 0, "", 0},
    {"trim", filter_trim, 0, "chars", 0},
    {"replace", filter_replace, 2, "old new count", 0},
    {"string", filter_string, 0, "", 0},
    {"safe", filter_string, 0, "", 0},
    {"escape", filter_escape, 0, "", 0},
    {"e", filter_escape, 0, "", 0},
    {"forceescape", filter_escape, 0, "", 0},
    {"urlencode", filter_urlencode, 0, "", 0},
    {"indent", filter_indent, 0, "width first blank", 0},
    {"truncate", filter_truncate, 0, "length killwords end leeway", 0},
    {"wordcount", filter_wordcount, 0, "", 0},
    {"center", filter_center, 0, "width", 0},
    {"format", filter_format, 0, NULL, 0},
    {"tojson", filter_tojson, 0, "ensure_ascii indent separators sort_keys", 0},
    {"int", filter_int, 0, "default base", 0},
    {"float", filter_float, 0, "default", 0},
    {"abs", filter_abs, 0, "", 0},
    {"round", filter_round, 0, "precision method", 0},
    {"default", filter_default, 0, "default_value boolean", 0},
    {"d", filter_default, 0, "default_value boolean", 0},
    {"length", filter_length, 0, "", 0},
    {"count", filter_length, 0, "", 0},
};

const trm_jinja_builtin *trm_jinja_find_filter(const trm_jinja_value *name)
{
    const trm_jinja_builtin *found = trm_jinja_find_in(table, sizeof(table) / sizeof(table[0]), name);
    return found != NULL ? found : trm_jinja_find_in(trm_jinja_list_filters, trm_jinja_n_list_filters, name);
}
