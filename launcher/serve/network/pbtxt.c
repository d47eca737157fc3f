/* A reader of protobuf's text format. */
#include "launcher/serve/network/pbtxt.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "launcher/text/strings/buffer.h"

typedef struct scanner {
    const char *source, *at, *end;
    int32_t line, depth;
} scanner;

static trm_status fail(const scanner *s, const char *expected)
{
    char found[8] = "the end";
    if (s->at < s->end) {
        snprintf(found, sizeof(found), isprint((unsigned char)*s->at) ? "'%c'" : "\\x%02x", (unsigned char)*s->at);
    }
    TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s, line %d has %s, expected %s", s->source, s->line, found, expected);
}

/* Passes white space and comments. */
static void skip(scanner *s)
{
    bool comment = false;
    for (; s->at < s->end; s->at++) {
        comment = (comment && *s->at != '\n') || *s->at == '#';
        s->line += *s->at == '\n';
        if (!comment && strchr(" \t\r\n\v\f", *s->at) == NULL) {
            return;
        }
        if (*s->at == '\0' && !comment) { /* strchr finds it */
            return;
        }
    }
}

static bool take(scanner *s, char c)
{
    skip(s);
    if (s->at == s->end || *s->at != c) {
        return false;
    }
    s->at++;
    return true;
}

static bool is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

static trm_status read_name(scanner *s, char **name)
{
    skip(s);
    const char *from = s->at;
    while (s->at < s->end && is_word(*s->at)) {
        s->at++;
    }
    if (s->at == from) {
        return fail(s, "the name of a field");
    }
    *name = strndup(from, (size_t)(s->at - from));
    if (*name == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a field of %s", s->source);
    }
    return TRM_OK;
}

/* The character of an escape; \ and its kind are passed. */
static trm_status read_escape(scanner *s, char *result)
{
    static const char from[] = "abfnrtv\\'\"?", to[] = "\a\b\f\n\r\t\v\\'\"?";
    const char *known = *s->at != '\0' ? strchr(from, *s->at) : NULL;
    int value = 0, digits = 0;
    if (known != NULL) {
        *result = to[known - from];
        s->at++;
        return TRM_OK;
    }
    if (*s->at == 'x' || *s->at == 'X') {
        s->at++;
        for (; digits < 2 && s->at < s->end && isxdigit((unsigned char)*s->at); digits++, s->at++) {
            const int c = tolower((unsigned char)*s->at);
            value = 16 * value + (c <= '9' ? c - '0' : c - 'a' + 10);
        }
    } else {
        for (; digits < 3 && s->at < s->end && *s->at >= '0' && *s->at <= '7'; digits++, s->at++) {
            value = 8 * value + (*s->at - '0');
        }
    }
    if (digits == 0 || value > 255 || value == 0) {
        return fail(s, "an escape of a character that is not NUL");
    }
    *result = (char)value;
    return TRM_OK;
}

static trm_status read_string(scanner *s, trm_bytes *to)
{
    const char quote = *s->at++;
    for (; s->at < s->end && *s->at != quote;) {
        char c = *s->at++;
        if (c == '\n' || c == '\0') {
            s->at--;
            return fail(s, "a closing quote");
        }
        if (c == '\\') {
            if (s->at == s->end) {
                break;
            }
            TRM_TRY(read_escape(s, &c));
        }
        TRM_TRY(trm_bytes_append(to, &c, 1));
    }
    if (s->at == s->end) {
        return fail(s, "a closing quote");
    }
    s->at++;
    return TRM_OK;
}

/* A number, a word, or strings one after the other. */
static trm_status read_scalar(scanner *s, char **text)
{
    trm_bytes bytes = {0};
    trm_status status = trm_bytes_reserve(&bytes, 1);
    skip(s);
    if (s->at < s->end && (*s->at == '"' || *s->at == '\'')) {
        while (status == TRM_OK && s->at < s->end && (*s->at == '"' || *s->at == '\'')) {
            status = read_string(s, &bytes);
            skip(s);
        }
    } else {
        const char *from = s->at;
        while (s->at < s->end && (is_word(*s->at) || strchr("+-.", *s->at) != NULL) && *s->at != '\0') {
            s->at++;
        }
        status = status != TRM_OK ? status
                 : s->at == from  ? fail(s, "a value")
                                  : trm_bytes_append(&bytes, from, (size_t)(s->at - from));
    }
    if (status == TRM_OK) {
        status = trm_bytes_append(&bytes, "", 1);
    }
    if (status != TRM_OK) {
        trm_bytes_fini(&bytes);
        return status;
    }
    *text = bytes.data;
    return TRM_OK;
}

static trm_status read_fields(scanner *s, char close, pbtxt_field **first);

static trm_status read_value(scanner *s, pbtxt_field *field)
{
    const bool round = take(s, '{'), angle = !round && take(s, '<');
    if (!round && !angle) {
        return read_scalar(s, &field->text);
    }
    if (++s->depth > PBTXT_MAX_DEPTH) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s, line %d has messages nested deeper than %d", s->source, s->line,
                 PBTXT_MAX_DEPTH);
    }
    TRM_TRY(read_fields(s, round ? '}' : '>', &field->first));
    s->depth--;
    return TRM_OK;
}

/* Appends a field without its value. */
static trm_status add_field(const char *source, int32_t line, const char *name, pbtxt_field ***end)
{
    pbtxt_field *field = calloc(1, sizeof(*field));
    char *copy = strdup(name);
    if (field == NULL || copy == NULL) {
        free(field);
        free(copy);
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a field of %s", source);
    }
    field->name = copy;
    field->line = line;
    **end = field;
    *end = &field->next;
    return TRM_OK;
}

/* The values of a list, each as a field of this name. */
static trm_status read_list(scanner *s, const char *name, pbtxt_field ***end)
{
    if (take(s, ']')) {
        return TRM_OK;
    }
    do {
        pbtxt_field **place = *end;
        TRM_TRY(add_field(s->source, s->line, name, end));
        TRM_TRY(read_value(s, *place));
    } while (take(s, ','));
    return take(s, ']') ? TRM_OK : fail(s, "] or ,");
}

static trm_status read_field(scanner *s, pbtxt_field ***end)
{
    char *name;
    TRM_TRY(read_name(s, &name));
    const bool colon = take(s, ':');
    trm_status status;
    skip(s);
    if (!colon && (s->at == s->end || strchr("{<[", *s->at) == NULL)) {
        status = fail(s, "a colon and a value, or a message");
    } else if (take(s, '[')) {
        status = read_list(s, name, end);
    } else {
        pbtxt_field **place = *end;
        status = add_field(s->source, s->line, name, end);
        status = status == TRM_OK ? read_value(s, *place) : status;
    }
    free(name);
    return status;
}

static trm_status read_fields(scanner *s, char close, pbtxt_field **first)
{
    pbtxt_field **end = first;
    for (;;) {
        skip(s);
        if (s->at == s->end) {
            return close == '\0' ? TRM_OK : fail(s, close == '}' ? "}" : ">");
        }
        if (close != '\0' && take(s, close)) {
            return TRM_OK;
        }
        TRM_TRY(read_field(s, &end));
        (void)(take(s, ',') || take(s, ';'));
    }
}

trm_status pbtxt_parse(const char *source, const char *text, size_t size, pbtxt_field **first)
{
    scanner s = {.source = source, .at = text, .end = text + size, .line = 1};
    *first = NULL;
    if (size > PBTXT_MAX_BYTES) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s has %zu bytes, expected at most %zu", source, size, PBTXT_MAX_BYTES);
    }
    trm_status status = read_fields(&s, '\0', first);
    if (status != TRM_OK) {
        pbtxt_free(*first);
        *first = NULL;
    }
    return status;
}

static trm_status take_json(const char *source, const trm_json *value, pbtxt_field *field)
{
    char number[32];
    int64_t whole;
    const char *text = trm_json_string(value);
    if (trm_json_is_object(value)) {
        return pbtxt_from_json(source, value, &field->first);
    }
    if (trm_json_is_bool(value)) {
        text = trm_json_truth(value, false) ? "true" : "false";
    } else if (trm_json_integer(value, &whole)) {
        snprintf(number, sizeof(number), "%" PRId64, whole);
        text = number;
    }
    if (text == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "field %s of %s is no string, integer, boolean or object", field->name,
                 source);
    }
    field->text = strdup(text);
    if (field->text == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a field of %s", source);
    }
    return TRM_OK;
}

/* The parser of JSON bounds the depth. */
static trm_status add_members(const char *source, const trm_json *object, pbtxt_field **end)
{
    for (const trm_json *member = trm_json_first(object); member != NULL; member = trm_json_next(member)) {
        const bool list = trm_json_is_array(member);
        for (const trm_json *value = list ? trm_json_first(member) : member; value != NULL;
             value = list ? trm_json_next(value) : NULL) {
            pbtxt_field **place = end;
            TRM_TRY(add_field(source, 0, trm_json_key(member), &end));
            TRM_TRY(take_json(source, value, *place));
        }
    }
    return TRM_OK;
}

trm_status pbtxt_from_json(const char *source, const trm_json *object, pbtxt_field **first)
{
    *first = NULL;
    trm_status status = add_members(source, object, first);
    if (status != TRM_OK) {
        pbtxt_free(*first);
        *first = NULL;
    }
    return status;
}

void pbtxt_free(pbtxt_field *first)
{
    while (first != NULL) {
        pbtxt_field *next = first->next;
        pbtxt_free(first->first);
        free(first->name);
        free(first->text);
        free(first);
        first = next;
    }
}
