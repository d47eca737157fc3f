/* The strict scanner: no recursion, one bit per open bracket. */
#include "base/json_scan.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/hex.h"

#define MAX_NUMBER 63 /* cJSON copies a number into 64 bytes */

typedef struct scanner {
    const char *name;
    const unsigned char *text;
    size_t size, at;
    size_t marks;     /* keys and numbers seen */
    size_t stop_mark; /* stop before this mark */
    size_t values;    /* seen */
    uint64_t objects; /* bit d: level d is an object, else an array */
    int depth;
} scanner;

typedef enum expected {
    EXPECT_VALUE,
    EXPECT_KEY,
    EXPECT_FIRST_KEY,     /* or } */
    EXPECT_FIRST_ELEMENT, /* or ] */
    EXPECT_END,           /* of the value: , or ] or } or the end of the text */
} expected;

static trm_status fail_at(const scanner *scan, size_t at, const char *what)
{
    size_t line = 1, start = 0;
    for (size_t i = 0; i < at; i++) {
        if (scan->text[i] == '\n') {
            line++;
            start = i + 1;
        }
    }
    return trm_fail(TRM_ERROR_INVALID_MODEL, "%s: line %zu column %zu: %s", scan->name, line, at - start + 1, what);
}

static trm_status fail_found(const scanner *scan, const char *wanted)
{
    char what[96];
    if (scan->at >= scan->size) {
        snprintf(what, sizeof(what), "unexpected end of text, expected %s", wanted);
    } else if (scan->text[scan->at] > 32 && scan->text[scan->at] < 127) {
        snprintf(what, sizeof(what), "found '%c', expected %s", scan->text[scan->at], wanted);
    } else {
        snprintf(what, sizeof(what), "found byte 0x%02x, expected %s", scan->text[scan->at], wanted);
    }
    return fail_at(scan, scan->at, what);
}

static int peek(const scanner *scan)
{
    return scan->at < scan->size ? scan->text[scan->at] : -1;
}

static void skip_space(scanner *scan)
{
    for (int c = peek(scan); c == ' ' || c == '\n' || c == '\r' || c == '\t'; c = peek(scan)) {
        scan->at++;
    }
}

/* Length of the UTF-8 sequence at `bytes`, 0 if it is invalid (Unicode 15.0, table 3-7). */
static size_t utf8_length(const unsigned char *bytes, size_t size)
{
    unsigned char first = bytes[0];
    size_t length = first < 0x80 ? 1 : first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;
    if (length > size || length < 2) {
        return length > size ? 0 : length;
    }
    unsigned char low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
    unsigned char high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
    if (bytes[1] < low || bytes[1] > high) {
        return 0;
    }
    for (size_t i = 2; i < length; i++) {
        if ((bytes[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    return length;
}

/* Four hexadecimal digits at `at`; false if there are none. */
static bool read_hex(const scanner *scan, size_t at, unsigned *value)
{
    *value = 0;
    for (size_t i = at; i < at + 4; i++) {
        const int digit = i < scan->size ? trm_hex_digit(scan->text[i]) : -1;
        if (digit < 0) {
            return false;
        }
        *value = *value << 4 | (unsigned)digit;
    }
    return true;
}

static trm_status scan_escape(scanner *scan)
{
    size_t start = scan->at++;
    int c = peek(scan);
    if (c != 'u') {
        if (c < 0 || c == 0 || strchr("\"\\/bfnrt", c) == NULL) {
            return fail_at(scan, start, "invalid escape in a string");
        }
        scan->at++;
        return TRM_OK;
    }
    unsigned unit, second;
    if (!read_hex(scan, scan->at + 1, &unit)) {
        return fail_at(scan, start, "\\u without four hexadecimal digits");
    }
    scan->at += 5;
    if (unit == 0) {
        return fail_at(scan, start, "\\u0000 in a string");
    }
    if (unit >= 0xd800 && unit < 0xe000) {
        bool pair = unit < 0xdc00 && peek(scan) == '\\' && scan->at + 1 < scan->size &&
                    scan->text[scan->at + 1] == 'u' && read_hex(scan, scan->at + 2, &second) && second >= 0xdc00 &&
                    second < 0xe000;
        if (!pair) {
            return fail_at(scan, start, "unpaired surrogate in a string");
        }
        scan->at += 6;
    }
    return TRM_OK;
}

static trm_status scan_string(scanner *scan)
{
    size_t start = scan->at++;
    for (;;) {
        int c = peek(scan);
        if (c < 0) {
            return fail_at(scan, start, "unterminated string");
        }
        if (c == '"') {
            scan->at++;
            return TRM_OK;
        }
        if (c < 0x20) {
            return fail_at(scan, scan->at, "control character in a string");
        }
        if (c == '\\') {
            TRM_TRY(scan_escape(scan));
            continue;
        }
        size_t length = utf8_length(scan->text + scan->at, scan->size - scan->at);
        if (length == 0) {
            return fail_at(scan, scan->at, "invalid UTF-8");
        }
        scan->at += length;
    }
}

static bool skip_digits(scanner *scan)
{
    size_t start = scan->at;
    while (peek(scan) >= '0' && peek(scan) <= '9') {
        scan->at++;
    }
    return scan->at > start;
}

static trm_status scan_number(scanner *scan)
{
    size_t start = scan->at;
    if (peek(scan) == '-') {
        scan->at++;
    }
    if (peek(scan) == '0') {
        scan->at++;
    } else if (!skip_digits(scan)) {
        return fail_found(scan, "a digit");
    }
    if (peek(scan) == '.') {
        scan->at++;
        if (!skip_digits(scan)) {
            return fail_found(scan, "a digit");
        }
    }
    if (peek(scan) == 'e' || peek(scan) == 'E') {
        scan->at++;
        if (peek(scan) == '+' || peek(scan) == '-') {
            scan->at++;
        }
        if (!skip_digits(scan)) {
            return fail_found(scan, "a digit");
        }
    }
    if (scan->at - start > MAX_NUMBER) {
        return fail_at(scan, start, "number of more than 63 characters");
    }
    return TRM_OK;
}

static trm_status scan_literal(scanner *scan, const char *word)
{
    size_t length = strlen(word);
    if (scan->size - scan->at < length || memcmp(scan->text + scan->at, word, length) != 0) {
        return fail_found(scan, "a value");
    }
    scan->at += length;
    return TRM_OK;
}

static trm_status scan_value(scanner *scan, expected *next)
{
    *next = EXPECT_END;
    int c = peek(scan);
    if (++scan->values > TRM_JSON_MAX_VALUES) {
        return fail_at(scan, scan->at, "more than 4194304 values");
    }
    switch (c) {
    case '{':
    case '[':
        if (scan->depth == TRM_JSON_MAX_DEPTH) {
            return fail_at(scan, scan->at, "nested more than 64 levels deep");
        }
        scan->objects &= ~((uint64_t)1 << scan->depth);
        scan->objects |= (uint64_t)(c == '{') << scan->depth;
        scan->depth++;
        scan->at++;
        *next = c == '{' ? EXPECT_FIRST_KEY : EXPECT_FIRST_ELEMENT;
        return TRM_OK;
    case '"':
        return scan_string(scan);
    case 't':
        return scan_literal(scan, "true");
    case 'f':
        return scan_literal(scan, "false");
    case 'n':
        return scan_literal(scan, "null");
    default:
        if (c != '-' && (c < '0' || c > '9')) {
            return fail_found(scan, "a value");
        }
        return scan->marks++ == scan->stop_mark ? TRM_OK : scan_number(scan);
    }
}

static trm_status scan_key(scanner *scan, expected *next)
{
    if (peek(scan) != '"') {
        return fail_found(scan, "a key in quotes");
    }
    if (scan->marks++ == scan->stop_mark) {
        return TRM_OK;
    }
    TRM_TRY(scan_string(scan));
    skip_space(scan);
    if (peek(scan) != ':') {
        return fail_found(scan, "':'");
    }
    scan->at++;
    *next = EXPECT_VALUE;
    return TRM_OK;
}

/* Scans what follows a value inside brackets. */
static trm_status scan_separator(scanner *scan, expected *next)
{
    bool object = (scan->objects >> (scan->depth - 1) & 1) != 0;
    int c = peek(scan);
    if (c == (object ? '}' : ']')) {
        scan->depth--;
        *next = EXPECT_END;
    } else if (c == ',') {
        *next = object ? EXPECT_KEY : EXPECT_VALUE;
    } else {
        return fail_found(scan, object ? "',' or '}'" : "',' or ']'");
    }
    scan->at++;
    return TRM_OK;
}

/* Scans to the end of the text, or up to stop_mark. */
static trm_status scan_text(scanner *scan)
{
    expected next = EXPECT_VALUE;
    while (scan->stop_mark == SIZE_MAX || scan->marks <= scan->stop_mark) {
        skip_space(scan);
        if (next == EXPECT_END && scan->depth == 0) {
            return scan->at < scan->size ? fail_found(scan, "the end of the text") : TRM_OK;
        }
        bool empty =
            (next == EXPECT_FIRST_KEY && peek(scan) == '}') || (next == EXPECT_FIRST_ELEMENT && peek(scan) == ']');
        if (next == EXPECT_END || empty) {
            TRM_TRY(scan_separator(scan, &next));
        } else if (next == EXPECT_KEY || next == EXPECT_FIRST_KEY) {
            TRM_TRY(scan_key(scan, &next));
        } else {
            TRM_TRY(scan_value(scan, &next));
        }
    }
    return TRM_OK;
}

trm_status trm_json_scan(const char *name, const char *text, size_t size)
{
    scanner scan = {.name = name, .text = (const unsigned char *)text, .size = size, .stop_mark = SIZE_MAX};
    return scan_text(&scan);
}

trm_status trm_json_fail_at_mark(const char *name, const char *text, size_t size, size_t mark, const char *what)
{
    scanner scan = {.name = name, .text = (const unsigned char *)text, .size = size, .stop_mark = mark};
    TRM_TRY(scan_text(&scan));
    return fail_at(&scan, scan.at, what);
}
