/* "..." % values and "...".format(values), as far as templates need them: strings, integers and floats with width and
 * precision. */
#include <stdio.h>
#include <string.h>

#include "base/c_locale.h"
#include "base/error.h"
#include "launcher/text/jinja/builtin.h"
#include "launcher/text/jinja/string.h"
#include "launcher/text/strings/utf8.h"

#define WIDEST 1000

/* The format of one value. */
typedef struct format_spec {
    char fill[5]; /* one character */
    char align;   /* '<', '>', '^', '=' or 0 */
    char sign;    /* '+', ' ' or 0 */
    bool alternate;
    int width, precision; /* precision -1: none */
    char type;            /* s r d f e g x X o c or 0 */
} format_spec;

static int read_count(const trm_jinja_value *text, size_t *at)
{
    int count = 0;
    while (*at < text->size && text->text[*at] >= '0' && text->text[*at] <= '9') {
        count = count > WIDEST ? count : count * 10 + (text->text[*at] - '0');
        (*at)++;
    }
    return count;
}

static trm_status format_number(trm_jinja_run *run, const format_spec *spec, const trm_jinja_value *value, char *text,
                                size_t capacity)
{
    char format[16] = "%", type = spec->type;
    size_t n = 1;
    bool integer = strchr("dxXo", type) != NULL;
    if (!trm_jinja_is_number(value) || (integer && value->kind == TRM_JINJA_FLOAT && type != 'd')) {
        return trm_jinja_fail(run, "%%%c format: a number is required, not %s", type, trm_jinja_type_name(value));
    }
    if (spec->sign != '\0') {
        format[n++] = spec->sign;
    }
    if (spec->alternate) {
        format[n++] = '#';
    }
    memcpy(format + n, integer ? "ll" : ".*", 2);
    format[n + 2] = type;
    format[n + 3] = '\0';
    double number = trm_jinja_to_double(value);
    int size;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    if (integer) {
        long long whole = value->kind == TRM_JINJA_FLOAT ? 0 : trm_jinja_to_integer(value);
        if (value->kind == TRM_JINJA_FLOAT) {
            if (!(number > -9e18 && number < 9e18)) {
                return trm_jinja_fail(run, "an integer has more than 64 bits");
            }
            whole = (long long)number;
        }
        if (type != 'd' && whole < 0) {
            return trm_jinja_fail(run, "negative numbers are only written in decimal");
        }
        size = snprintf(text, capacity, format, whole);
    } else {
        size = trm_c_snprintf(text, capacity, format, spec->precision < 0 ? 6 : spec->precision, number);
    }
#pragma GCC diagnostic pop
    return size < 0 || (size_t)size >= capacity ? trm_jinja_fail(run, "a number is too long") : TRM_OK;
}

/* Appends one value. */
static trm_status write_field(trm_jinja_run *run, const format_spec *spec, const trm_jinja_value *value, trm_bytes *out)
{
    char number[1500];
    trm_jinja_value text;
    bool is_number = false;
    if (spec->width > WIDEST || spec->precision > WIDEST) {
        return trm_jinja_fail(run, "a format is wider than %d", WIDEST);
    }
    if (spec->type == 'r') {
        trm_bytes repr = {0};
        trm_status status = trm_jinja_write_repr(run, value, &repr);
        TRM_TRY(trm_jinja_take(run, &repr, status, &text));
    } else if (spec->type == 's' || spec->type == '\0') {
        TRM_TRY(trm_jinja_string(run, value, &text));
    } else {
        TRM_TRY(format_number(run, spec, value, number, sizeof(number)));
        TRM_TRY(trm_jinja_copy_text(run, number, strlen(number), &text));
        is_number = true;
    }
    if (!is_number && spec->precision >= 0) {
        const trm_jinja_value stop = trm_jinja_integer(spec->precision), whole = text;
        const trm_jinja_value *parts[3] = {NULL, &stop, NULL};
        TRM_TRY(trm_jinja_slice(run, &whole, parts, &text));
    }
    char align = spec->align != '\0' ? spec->align : is_number || trm_jinja_is_number(value) ? '>' : '<';
    const trm_jinja_value fill = trm_jinja_literal(spec->fill[0] == '\0' ? " " : spec->fill), body = text;
    size_t sign = align == '=' && text.size > 0 && strchr("+- ", text.text[0]) != NULL ? 1 : 0;
    TRM_TRY(trm_bytes_append(out, text.text, sign));
    const trm_jinja_value rest = trm_jinja_text(body.text + sign, body.size - sign);
    if (align == '^') { /* format() puts the extra character at the right */
        int64_t length = (int64_t)trm_utf8_count(rest.text, rest.size);
        int64_t left = spec->width > length ? (spec->width - length) / 2 : 0;
        trm_jinja_value half;
        TRM_TRY(trm_jinja_pad(run, &rest, length + left, &fill, 1, &half));
        TRM_TRY(trm_jinja_pad(run, &half, spec->width, &fill, -1, &text));
    } else {
        TRM_TRY(trm_jinja_pad(run, &rest, spec->width - (int)sign, &fill, align == '<' ? -1 : 1, &text));
    }
    return trm_bytes_append(out, text.text, text.size);
}

/* ---- "..." % values ---- */

typedef struct percent_values {
    const trm_jinja_value *value; /* a tuple, a mapping, or a single value */
    size_t next;
} percent_values;

static trm_status next_value(trm_jinja_run *run, percent_values *values, const trm_jinja_value **value)
{
    bool tuple = values->value->kind == TRM_JINJA_TUPLE;
    size_t count = tuple ? values->value->list->count : 1;
    if (values->next >= count) {
        return trm_jinja_fail(run, "not enough arguments for format string");
    }
    *value = tuple ? &values->value->list->items[values->next] : values->value;
    values->next++;
    return TRM_OK;
}

static trm_status write_percent(trm_jinja_run *run, const trm_jinja_value *format, size_t *at, percent_values *values,
                                trm_bytes *out)
{
    format_spec spec = {.precision = -1};
    const trm_jinja_value *value = NULL;
    const char *text = format->text;
    if (*at < format->size && text[*at] == '(') {
        const char *close = memchr(text + *at, ')', format->size - *at);
        if (close == NULL || values->value->kind != TRM_JINJA_MAP) {
            return trm_jinja_fail(run, "format requires a mapping");
        }
        trm_jinja_value key = trm_jinja_text(text + *at + 1, (size_t)(close - text) - *at - 1);
        value = trm_jinja_map_find(run, values->value->map, &key);
        if (value == NULL) {
            return trm_jinja_fail(run, "the format needs '%.*s', which is not given", (int)key.size, key.text);
        }
        *at = (size_t)(close - text) + 1;
        values->next = 1;
    }
    for (; *at < format->size && text[*at] != '\0' && strchr("-+ #0", text[*at]) != NULL; (*at)++) {
        char flag = text[*at];
        if (flag == '-') {
            spec.align = '<';
        } else if (flag == '0' && spec.align != '<') {
            spec.align = '=';
            spec.fill[0] = '0';
        } else if (flag == '#') {
            spec.alternate = true;
        } else if (flag == '+' || (flag == ' ' && spec.sign == '\0')) {
            spec.sign = flag;
        }
    }
    spec.width = read_count(format, at);
    if (*at < format->size && text[*at] == '.') {
        (*at)++;
        spec.precision = read_count(format, at);
    }
    char type = *at < format->size ? text[(*at)++] : '\0';
    if (type == '%') {
        return trm_bytes_append(out, "%", 1);
    }
    if (type == '\0' || strchr("srdiufFeEgGxXo", type) == NULL) {
        return trm_jinja_fail(run, "unsupported format character in a format string");
    }
    spec.type = type == 'i' || type == 'u' ? 'd' : type;
    if ((type == 's' || type == 'r') && (spec.align == '=' || spec.align == '\0')) {
        spec.align = '>';
        spec.fill[0] = ' ';
    }
    TRM_TRY(value == NULL ? next_value(run, values, &value) : TRM_OK);
    return write_field(run, &spec, value, out);
}

trm_status trm_jinja_percent(trm_jinja_run *run, const trm_jinja_value *format, const trm_jinja_value *value,
                             trm_jinja_value *result)
{
    trm_bytes out = {0};
    percent_values values = {.value = value};
    TRM_TRY(trm_jinja_charge(run, format->size / 16));
    trm_status status = trm_bytes_reserve(&out, format->size);
    for (size_t at = 0; at < format->size && status == TRM_OK;) {
        const char *sign = memchr(format->text + at, '%', format->size - at);
        size_t end = sign == NULL ? format->size : (size_t)(sign - format->text);
        status = trm_bytes_append(&out, format->text + at, end - at);
        at = end + 1;
        if (sign != NULL && status == TRM_OK) {
            status = write_percent(run, format, &at, &values, &out);
        }
    }
    bool left = value->kind == TRM_JINJA_TUPLE ? values.next < value->list->count
                                               : value->kind != TRM_JINJA_MAP && values.next == 0;
    if (status == TRM_OK && left) {
        status = trm_jinja_fail(run, "not all arguments converted during string formatting");
    }
    return trm_jinja_take(run, &out, status, result);
}

/* ---- "...".format(values) ---- */

static bool is_align(char c)
{
    return c != '\0' && strchr("<>^=", c) != NULL;
}

/* [[fill]align][sign][#][0][width][.precision][type] */
static trm_status read_spec(trm_jinja_run *run, const trm_jinja_value *text, format_spec *spec)
{
    size_t at = 0, fill = text->size > 0 ? trm_utf8_size(text->text[0]) : 0;
    *spec = (format_spec){.precision = -1};
    if (fill > 0 && fill < text->size && is_align(text->text[fill])) {
        memcpy(spec->fill, text->text, fill);
        spec->align = text->text[fill];
        at = fill + 1;
    } else if (text->size > 0 && is_align(text->text[0])) {
        spec->align = text->text[at++];
    }
    if (at < text->size && (text->text[at] == '+' || text->text[at] == '-' || text->text[at] == ' ')) {
        spec->sign = text->text[at] == '-' ? '\0' : text->text[at];
        at++;
    }
    if (at < text->size && text->text[at] == '#') {
        spec->alternate = true;
        at++;
    }
    if (at < text->size && text->text[at] == '0' && spec->align == '\0') {
        spec->align = '=';
        spec->fill[0] = '0';
        at++;
    }
    spec->width = read_count(text, &at);
    if (at < text->size && text->text[at] == '.') {
        at++;
        spec->precision = read_count(text, &at);
    }
    if (at < text->size && text->text[at] != '\0' && strchr("sdfFeEgGxXo", text->text[at]) != NULL) {
        spec->type = text->text[at++];
    }
    return at == text->size ? TRM_OK : trm_jinja_fail(run, "unsupported format specification");
}

/* The value of a field: "", "0" or "name", followed by attributes. */
static trm_status find_field(trm_jinja_call *call, const trm_jinja_value *field, size_t *next, trm_jinja_value *value)
{
    size_t size = 0, at = 0;
    while (size < field->size && field->text[size] != '.' && field->text[size] != '[') {
        size++;
    }
    trm_jinja_value name = trm_jinja_text(field->text, size);
    int index = read_count(&name, &at);
    if (at == size) {
        size_t position = size == 0 ? (*next)++ : (size_t)index;
        if (position >= call->args->count) {
            return trm_jinja_fail(call->run, "replacement index %zu out of range for positional args", position);
        }
        *value = call->args->items[position];
    } else {
        bool found = false;
        for (size_t i = 0; i < call->args->n_keywords && !found; i++) {
            found = trm_jinja_equal(call->run, &call->args->keywords[i].name, &name);
            *value = found ? call->args->keywords[i].value : *value;
        }
        if (!found) {
            return trm_jinja_fail(call->run, "the format needs '%.*s', which is not given", (int)size, field->text);
        }
    }
    while (size < field->size) {
        bool item = field->text[size++] == '[';
        size_t begin = size;
        while (size < field->size && (item ? field->text[size] != ']' : strchr(".[", field->text[size]) == NULL)) {
            size++;
        }
        trm_jinja_value part = trm_jinja_text(field->text + begin, size - begin);
        const trm_jinja_value object = *value;
        at = 0;
        index = read_count(&part, &at);
        if (item && part.size > 0 && at == part.size) {
            part = trm_jinja_integer(index);
        }
        TRM_TRY(item ? trm_jinja_item(call->run, &object, &part, value)
                     : trm_jinja_attribute(call->run, &object, &part, value));
        size += item && size < field->size;
    }
    return TRM_OK;
}

static trm_status write_replacement(trm_jinja_call *call, const trm_jinja_value *field, size_t *next, trm_bytes *out)
{
    const char *colon = field->size == 0 ? NULL : memchr(field->text, ':', field->size);
    size_t end = colon == NULL ? field->size : (size_t)(colon - field->text);
    trm_jinja_value name = trm_jinja_text(field->text, end), value = trm_jinja_none(), text;
    trm_jinja_value spec_text =
        colon == NULL ? trm_jinja_text("", 0) : trm_jinja_text(colon + 1, field->size - end - 1);
    bool repr = end >= 2 && field->text[end - 2] == '!' && field->text[end - 1] == 'r';
    bool str = end >= 2 && field->text[end - 2] == '!' && field->text[end - 1] == 's';
    name.size -= repr || str ? 2 : 0;
    format_spec spec;
    TRM_TRY(read_spec(call->run, &spec_text, &spec));
    TRM_TRY(find_field(call, &name, next, &value));
    if (repr || str) {
        spec.type = repr ? 'r' : 's';
        TRM_TRY(str ? trm_jinja_string(call->run, &value, &text) : TRM_OK);
        value = str ? text : value;
    }
    return write_field(call->run, &spec, &value, out);
}

static trm_status write_format(trm_jinja_call *call, trm_bytes *out)
{
    const trm_jinja_value *format = call->self;
    size_t next = 0;
    for (size_t at = 0; at < format->size;) {
        char c = format->text[at];
        if (c != '{' && c != '}') {
            TRM_TRY(trm_bytes_append(out, &c, 1));
            at++;
            continue;
        }
        if (at + 1 < format->size && format->text[at + 1] == c) {
            TRM_TRY(trm_bytes_append(out, &c, 1));
            at += 2;
            continue;
        }
        const char *close = c == '{' ? memchr(format->text + at, '}', format->size - at) : NULL;
        if (close == NULL) {
            return trm_jinja_fail(call->run, "single '%c' encountered in format string", c);
        }
        trm_jinja_value field = trm_jinja_text(format->text + at + 1, (size_t)(close - format->text) - at - 1);
        TRM_TRY(trm_jinja_charge(call->run, 1));
        TRM_TRY(write_replacement(call, &field, &next, out));
        at = (size_t)(close - format->text) + 1;
    }
    return TRM_OK;
}

trm_status trm_jinja_brace_format(trm_jinja_call *call)
{
    trm_bytes out = {0};
    trm_status status = trm_bytes_reserve(&out, call->self->size);
    if (status == TRM_OK) {
        status = write_format(call, &out);
    }
    return trm_jinja_take(call->run, &out, status, call->result);
}
