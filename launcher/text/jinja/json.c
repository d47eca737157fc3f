/* Reads and writes JSON like Python's json module: integers stay integers, mappings keep their order. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/c_locale.h"
#include "base/error.h"
#include "base/json_scan.h"
#include "launcher/text/jinja/value.h"
#include "launcher/text/strings/utf8.h"

/* A reader of text that trm_json_scan has validated, so it checks nothing twice. */
typedef struct json_reader {
    trm_jinja_run *run;
    const char *at;
} json_reader;

static void skip_space(json_reader *reader)
{
    while (*reader->at == ' ' || *reader->at == '\n' || *reader->at == '\r' || *reader->at == '\t') {
        reader->at++;
    }
}

static int32_t read_unit(const char *digits)
{
    char text[5] = {digits[0], digits[1], digits[2], digits[3], '\0'};
    return (int32_t)strtol(text, NULL, 16);
}

static char *read_escape(json_reader *reader, char *out)
{
    static const char from[] = "bfnrt", to[] = "\b\f\n\r\t";
    char c = reader->at[1];
    if (c != 'u') {
        const char *known = strchr(from, c);
        *out = known != NULL ? to[known - from] : c;
        reader->at += 2;
        return out + 1;
    }
    int32_t unit = read_unit(reader->at + 2);
    reader->at += 6;
    if (unit >= 0xd800 && unit < 0xdc00) {
        unit = 0x10000 + ((unit - 0xd800) << 10) + (read_unit(reader->at + 2) - 0xdc00);
        reader->at += 6;
    }
    return out + trm_utf8_write(out, unit);
}

static trm_status read_string(json_reader *reader, trm_jinja_value *value)
{
    const char *end = ++reader->at;
    while (*end != '"') {
        end += *end == '\\' ? 2 : 1;
    }
    void *memory;
    TRM_TRY(trm_jinja_alloc(reader->run, (size_t)(end - reader->at), 1, &memory));
    char *text = memory, *out = text;
    while (reader->at < end) {
        if (*reader->at == '\\') {
            out = read_escape(reader, out);
        } else {
            *out++ = *reader->at++;
        }
    }
    reader->at++;
    *value = trm_jinja_text(text, (size_t)(out - text));
    return TRM_OK;
}

static void read_number(json_reader *reader, trm_jinja_value *value)
{
    size_t size = strspn(reader->at, "-+0123456789.eE");
    char text[80];
    memcpy(text, reader->at, size); /* the scan allows 63 characters */
    text[size] = '\0';
    reader->at += size;
    *value = trm_jinja_float(trm_c_strtod(text, NULL));
    if (strpbrk(text, ".eE") == NULL) {
        errno = 0;
        long long integer = strtoll(text, NULL, 10);
        if (errno == 0) {
            *value = trm_jinja_integer(integer);
        }
    }
}

static trm_status read_value(json_reader *reader, trm_jinja_value *value);

static trm_status read_object(json_reader *reader, trm_jinja_value *value)
{
    TRM_TRY(trm_jinja_new_map(reader->run, TRM_JINJA_MAP, value));
    reader->at++;
    skip_space(reader);
    while (*reader->at != '}') {
        trm_jinja_value key, member;
        TRM_TRY(read_string(reader, &key));
        skip_space(reader);
        reader->at++;
        TRM_TRY(read_value(reader, &member));
        TRM_TRY(trm_jinja_map_set(reader->run, value->map, &key, &member));
        reader->at += *reader->at == ',';
        skip_space(reader);
    }
    reader->at++;
    return TRM_OK;
}

static trm_status read_array(json_reader *reader, trm_jinja_value *value)
{
    TRM_TRY(trm_jinja_new_list(reader->run, TRM_JINJA_LIST, 0, value));
    reader->at++;
    skip_space(reader);
    while (*reader->at != ']') {
        trm_jinja_value item;
        TRM_TRY(read_value(reader, &item));
        TRM_TRY(trm_jinja_list_append(reader->run, value->list, &item));
        reader->at += *reader->at == ',';
        skip_space(reader);
    }
    reader->at++;
    return TRM_OK;
}

static trm_status read_value(json_reader *reader, trm_jinja_value *value)
{
    trm_status status = TRM_OK;
    TRM_TRY(trm_jinja_charge(reader->run, 1));
    skip_space(reader);
    switch (*reader->at) {
    case '{':
        status = read_object(reader, value);
        break;
    case '[':
        status = read_array(reader, value);
        break;
    case '"':
        status = read_string(reader, value);
        break;
    case 't':
    case 'f':
        *value = trm_jinja_bool(*reader->at == 't');
        reader->at += value->truth ? 4 : 5;
        break;
    case 'n':
        *value = trm_jinja_none();
        reader->at += 4;
        break;
    default:
        read_number(reader, value);
    }
    skip_space(reader);
    return status;
}

trm_status trm_jinja_read_json(trm_jinja_run *run, const char *name, const char *text, size_t size,
                               trm_jinja_value *value)
{
    trm_status status = trm_json_scan(name, text, size);
    if (status != TRM_OK) {
        return status == TRM_ERROR_INVALID_MODEL ? TRM_ERROR_INVALID_ARGUMENT : status;
    }
    void *copy;
    TRM_TRY(trm_jinja_alloc(run, size + 1, 1, &copy)); /* with the terminating NUL */
    memcpy(copy, text, size);
    json_reader reader = {.run = run, .at = copy};
    return read_value(&reader, value);
}

static trm_status write_string(const trm_jinja_value *string, bool ascii, trm_bytes *out)
{
    TRM_TRY(trm_bytes_append(out, "\"", 1));
    for (size_t at = 0; at < string->size;) {
        size_t size;
        int32_t c = trm_utf8_read(string->text + at, &size);
        static const char from[] = "\"\\\n\r\t\f\b", to[] = "\"\\nrtfb";
        const char *known = c > 0 && c < 0x80 ? strchr(from, c) : NULL;
        char escape[16];
        if (known != NULL) {
            snprintf(escape, sizeof(escape), "\\%c", to[known - from]);
        } else if (c < 0x20) {
            snprintf(escape, sizeof(escape), "\\u%04x", (unsigned)c);
        } else if (ascii && c >= 0x10000) {
            unsigned high = 0xd800 + ((unsigned)(c - 0x10000) >> 10), low = 0xdc00 + ((unsigned)(c - 0x10000) & 0x3ff);
            snprintf(escape, sizeof(escape), "\\u%04x\\u%04x", high, low);
        } else if (ascii && c >= 0x80) {
            snprintf(escape, sizeof(escape), "\\u%04x", (unsigned)c);
        } else {
            memcpy(escape, string->text + at, size);
            escape[size] = '\0';
            TRM_TRY(trm_bytes_append(out, escape, size));
            at += size;
            continue;
        }
        TRM_TRY(trm_bytes_append(out, escape, strlen(escape)));
        at += size;
    }
    return trm_bytes_append(out, "\"", 1);
}

typedef struct json_writer {
    trm_jinja_run *run;
    const trm_jinja_json_style *style;
    trm_bytes *out;
    int32_t level;
} json_writer;

static trm_status write_value(json_writer *writer, const trm_jinja_value *value);

static trm_status write_line(json_writer *writer)
{
    if (!writer->style->lines) {
        return TRM_OK;
    }
    TRM_TRY(trm_bytes_append(writer->out, "\n", 1));
    for (int32_t i = 0; i < writer->level; i++) {
        TRM_TRY(trm_bytes_append(writer->out, writer->style->indent.text, writer->style->indent.size));
    }
    return TRM_OK;
}

/* Keys of other types than str become strings as in Python. */
static trm_status write_key(json_writer *writer, const trm_jinja_value *key)
{
    if (key->kind == TRM_JINJA_STRING) {
        return write_string(key, writer->style->ascii, writer->out);
    }
    if (!trm_jinja_is_number(key) && key->kind != TRM_JINJA_NONE) {
        return trm_jinja_fail(writer->run, "keys of JSON must be str, int, float, bool or None, not %s",
                              trm_jinja_type_name(key));
    }
    TRM_TRY(trm_bytes_append(writer->out, "\"", 1));
    TRM_TRY(write_value(writer, key));
    return trm_bytes_append(writer->out, "\"", 1);
}

static int by_key(const void *a, const void *b)
{
    const trm_jinja_value *x = &((const trm_jinja_entry *)a)->key, *y = &((const trm_jinja_entry *)b)->key;
    int order = memcmp(x->text, y->text, x->size < y->size ? x->size : y->size);
    return order != 0 ? order : (x->size > y->size) - (x->size < y->size);
}

static trm_status sorted_entries(json_writer *writer, const trm_jinja_map *map, const trm_jinja_entry **entries)
{
    void *copy;
    *entries = map->entries;
    if (!writer->style->sort_keys || map->count == 0) {
        return TRM_OK;
    }
    for (size_t i = 0; i < map->count; i++) {
        if (map->entries[i].key.kind != TRM_JINJA_STRING) {
            return trm_jinja_fail(writer->run, "only string keys can be sorted");
        }
    }
    TRM_TRY(trm_jinja_alloc(writer->run, map->count, sizeof(*map->entries), &copy));
    memcpy(copy, map->entries, map->count * sizeof(*map->entries));
    qsort(copy, map->count, sizeof(*map->entries), by_key);
    *entries = copy;
    return TRM_OK;
}

static trm_status write_container(json_writer *writer, const trm_jinja_value *value)
{
    const trm_jinja_json_style *style = writer->style;
    bool map = value->kind == TRM_JINJA_MAP;
    size_t count = map ? value->map->count : value->list->count;
    const trm_jinja_entry *entries = NULL;
    if (map) {
        TRM_TRY(sorted_entries(writer, value->map, &entries));
    }
    TRM_TRY(trm_bytes_append(writer->out, map ? "{" : "[", 1));
    writer->level++;
    for (size_t i = 0; i < count; i++) {
        if (i > 0) {
            TRM_TRY(trm_bytes_append(writer->out, style->comma.text, style->comma.size));
        }
        TRM_TRY(write_line(writer));
        if (map) {
            TRM_TRY(write_key(writer, &entries[i].key));
            TRM_TRY(trm_bytes_append(writer->out, style->colon.text, style->colon.size));
        }
        TRM_TRY(write_value(writer, map ? &entries[i].value : &value->list->items[i]));
    }
    writer->level--;
    if (count > 0) {
        TRM_TRY(write_line(writer));
    }
    return trm_bytes_append(writer->out, map ? "}" : "]", 1);
}

static trm_status write_value(json_writer *writer, const trm_jinja_value *value)
{
    TRM_TRY(trm_jinja_charge(writer->run, 1));
    switch (value->kind) {
    case TRM_JINJA_NONE:
        return trm_bytes_append(writer->out, "null", 4);
    case TRM_JINJA_BOOL:
        return trm_bytes_append(writer->out, value->truth ? "true" : "false", value->truth ? 4 : 5);
    case TRM_JINJA_FLOAT:
        if (isnan(value->number) || isinf(value->number)) {
            const char *text = isnan(value->number) ? "NaN" : value->number < 0 ? "-Infinity" : "Infinity";
            return trm_bytes_append(writer->out, text, strlen(text));
        }
        return trm_jinja_write(writer->run, value, writer->out);
    case TRM_JINJA_INTEGER:
        return trm_jinja_write(writer->run, value, writer->out);
    case TRM_JINJA_STRING:
        return write_string(value, writer->style->ascii, writer->out);
    case TRM_JINJA_LIST:
    case TRM_JINJA_TUPLE:
    case TRM_JINJA_MAP:
        if (writer->level + writer->run->depth >= TRM_JINJA_DEPTH) {
            return trm_jinja_fail(writer->run, "a value is nested too deep");
        }
        return write_container(writer, value);
    default:
        return trm_jinja_fail(writer->run, "Object of type %s is not JSON serializable", trm_jinja_type_name(value));
    }
}

trm_status trm_jinja_write_json(trm_jinja_run *run, const trm_jinja_value *value, const trm_jinja_json_style *style,
                                trm_bytes *out)
{
    json_writer writer = {.run = run, .style = style, .out = out};
    return write_value(&writer, value);
}
