/* The compact JSON writer. */
#include "launcher/serve/json/json_text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "launcher/text/strings/utf8.h"

static void put(json_text *json, const char *data, size_t size)
{
    if (json->status == TRM_OK && size > 0) {
        json->status = trm_bytes_append(&json->bytes, data, size);
    }
}

void json_literal(json_text *json, const char *text)
{
    put(json, text, strlen(text));
}

void json_literal_bytes(json_text *json, const char *data, size_t size)
{
    put(json, data, size);
    json->comma = json->comma || size > 0;
}

void json_text_fini(json_text *json)
{
    trm_bytes_fini(&json->bytes);
    *json = (json_text){0};
}

/* Text without escapes is written in one piece. */
static void put_string(json_text *json, const char *text, size_t size)
{
    put(json, "\"", 1);
    size_t kept = 0, length;
    for (size_t at = 0; at < size; at += length) {
        unsigned char c = (unsigned char)text[at];
        length = 1;
        if (c >= 0x20 && c < 0x7F && c != '"' && c != '\\') {
            continue;
        }
        if (c >= 0x80 && trm_utf8_examine(text + at, size - at, &length) == TRM_UTF8_VALID) {
            continue;
        }
        put(json, text + kept, at - kept);
        kept = at + length;
        char escape[8];
        if (c >= 0x80) {
            put(json, TRM_REPLACEMENT_TEXT, TRM_REPLACEMENT_SIZE);
        } else if (c == '"' || c == '\\') {
            escape[0] = '\\';
            escape[1] = (char)c;
            put(json, escape, 2);
        } else if (c == '\n') {
            put(json, "\\n", 2);
        } else {
            snprintf(escape, sizeof(escape), "\\u%04x", c);
            put(json, escape, 6);
        }
    }
    put(json, text + kept, size - kept);
    put(json, "\"", 1);
}

/* Writes the comma and key before a value. */
static void lead_in(json_text *json, const char *key)
{
    if (json->comma) {
        put(json, ",", 1);
    }
    if (key != NULL) {
        put_string(json, key, strlen(key));
        put(json, ":", 1);
    }
    json->comma = true;
}

static void open_level(json_text *json, const char *key, const char *bracket)
{
    lead_in(json, key);
    put(json, bracket, 1);
    json->comma = false;
}

static void close_level(json_text *json, const char *bracket)
{
    put(json, bracket, 1);
    json->comma = true;
}

void json_object(json_text *json, const char *key)
{
    open_level(json, key, "{");
}

void json_array(json_text *json, const char *key)
{
    open_level(json, key, "[");
}

void json_end_object(json_text *json)
{
    close_level(json, "}");
}

void json_end_array(json_text *json)
{
    close_level(json, "]");
}

void json_bytes(json_text *json, const char *key, const char *value, size_t size)
{
    lead_in(json, key);
    put_string(json, value, size);
}

void json_string(json_text *json, const char *key, const char *value)
{
    if (value == NULL) {
        json_null(json, key);
    } else {
        json_bytes(json, key, value, strlen(value));
    }
}

void json_integer(json_text *json, const char *key, int64_t value)
{
    char text[24], *begin = text + sizeof(text);
    uint64_t rest = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    do {
        *--begin = (char)('0' + rest % 10);
        rest /= 10;
    } while (rest > 0);
    if (value < 0) {
        *--begin = '-';
    }
    lead_in(json, key);
    put(json, begin, (size_t)(text + sizeof(text) - begin));
}

void json_number(json_text *json, const char *key, double value)
{
    char text[40];
    if (!isfinite(value)) {
        json_null(json, key);
        return;
    }
    lead_in(json, key);
    put(json, text, (size_t)snprintf(text, sizeof(text), "%.9g", value));
}

void json_bool(json_text *json, const char *key, bool value)
{
    lead_in(json, key);
    json_literal(json, value ? "true" : "false");
}

void json_null(json_text *json, const char *key)
{
    lead_in(json, key);
    put(json, "null", 4);
}

void json_raw(json_text *json, const char *key, const char *value, size_t size)
{
    lead_in(json, key);
    put(json, value, size);
}
