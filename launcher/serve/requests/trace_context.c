/* Checks traceparent and tracestate by the grammar of the standard, sections 3.2 and 3.3. */
#include "launcher/serve/requests/trace_context.h"

#include <string.h>
#include <strings.h>

#define MOST_MEMBERS   32
#define LONGEST_KEY    256
#define LONGEST_TENANT 241
#define LONGEST_SYSTEM 14
#define LONGEST_VALUE  256
#define PARENT_LENGTH  (TRACE_PARENT_SIZE - 1)

static const char hex[] = "0123456789abcdef";

/* Whether `size` hexadecimal digits begin here; not all of them 0, if they name something. */
static bool is_hex(const char *text, size_t size, bool names)
{
    size_t zeros = 0;
    for (size_t i = 0; i < size; i++) {
        if (text[i] == '\0' || strchr(hex, text[i]) == NULL) {
            return false;
        }
        zeros += text[i] == '0';
    }
    return !names || zeros < size;
}

/* 00-TRACE-PARENT-FLAGS. A later version begins like that, and has "-" before what follows. */
static bool take_parent(const char *value, size_t size, char parent[TRACE_PARENT_SIZE])
{
    if (size < PARENT_LENGTH || value[2] != '-' || value[35] != '-' || value[52] != '-' || !is_hex(value, 2, false) ||
        strncmp(value, "ff", 2) == 0 || !is_hex(value + 3, 32, true) || !is_hex(value + 36, 16, true) ||
        !is_hex(value + 53, 2, false)) {
        return false;
    }
    const bool is_first = strncmp(value, "00", 2) == 0;
    if (size > PARENT_LENGTH && (is_first || value[PARENT_LENGTH] != '-')) {
        return false;
    }
    memcpy(parent, value, PARENT_LENGTH);
    parent[PARENT_LENGTH] = '\0';
    if (!is_first) { /* what we pass on is of version 00, of whose flags we know the first */
        const char flags = parent[54];
        memcpy(parent, "00", 2);
        parent[53] = '0';
        parent[54] = (strchr(hex, flags) - hex) % 2 == 1 ? '1' : '0';
    }
    return true;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

void trace_context_take(trace_context *trace, const char *name, size_t name_size, const char *value, size_t size)
{
    while (size > 0 && is_blank(value[0])) {
        value++;
        size--;
    }
    while (size > 0 && is_blank(value[size - 1])) {
        size--;
    }
    if (name_size == strlen("traceparent") && strncasecmp(name, "traceparent", name_size) == 0) {
        if (++trace->n_parents > 1 || !take_parent(value, size, trace->parent)) {
            trace->parent[0] = '\0';
        }
    } else if (name_size == strlen("tracestate") && strncasecmp(name, "tracestate", name_size) == 0) {
        const size_t used = strlen(trace->state), comma = used > 0 && size > 0;
        if (used + comma + size >= sizeof(trace->state) || memchr(value, '\0', size) != NULL) {
            trace->bad_state = true;
            return;
        }
        memcpy(trace->state + used, ",", comma);
        memcpy(trace->state + used + comma, value, size);
        trace->state[used + comma + size] = '\0';
    }
}

/* Length of the characters of a key that begin here: the first a letter, or also a digit. */
static size_t key_length(const char *text, bool may_begin_with_digit)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz", digits[] = "0123456789";
    static const char later[] = "abcdefghijklmnopqrstuvwxyz0123456789_-*/";
    const bool begins = text[0] != '\0' &&
                        (strchr(letters, text[0]) != NULL || (may_begin_with_digit && strchr(digits, text[0]) != NULL));
    return begins ? strspn(text, later) : 0;
}

/* KEY=VALUE, a key being NAME or TENANT@SYSTEM, within `size` characters. */
static bool is_member(const char *text, size_t size)
{
    size_t key = key_length(text, false);
    const size_t tenant = key_length(text, true);
    if (tenant > 0 && text[tenant] == '@') {
        const size_t system = key_length(text + tenant + 1, false);
        if (system == 0 || system > LONGEST_SYSTEM || tenant > LONGEST_TENANT) {
            return false;
        }
        key = tenant + 1 + system;
    } else if (key > LONGEST_KEY) {
        return false;
    }
    if (key == 0 || key >= size || text[key] != '=') {
        return false;
    }
    const size_t length = size - key - 1;
    for (size_t i = key + 1; i < size; i++) {
        if (text[i] < 0x20 || text[i] > 0x7e || text[i] == '=') {
            return false;
        }
    }
    return length > 0 && length <= LONGEST_VALUE; /* it does not end in a blank: those were cut */
}

static bool is_state(const char *text)
{
    int32_t members = 0;
    for (const char *at = text, *end;; at = end + 1) {
        end = at + strcspn(at, ",");
        const char *last = end;
        while (at < last && is_blank(at[0])) {
            at++;
        }
        while (at < last && is_blank(last[-1])) {
            last--;
        }
        if (at < last && (!is_member(at, (size_t)(last - at)) || ++members > MOST_MEMBERS)) {
            return false;
        }
        if (*end == '\0') {
            return members > 0;
        }
    }
}

void trace_context_check(trace_context *trace)
{
    if (trace->parent[0] == '\0' || trace->bad_state || !is_state(trace->state)) {
        trace->state[0] = '\0';
    }
}
