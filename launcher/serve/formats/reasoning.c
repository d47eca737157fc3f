/* Separates reasoning from the answer. */
#include "launcher/serve/formats/reasoning.h"

#include <string.h>

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static size_t skip_spaces(const char *text, size_t at, size_t size)
{
    while (at < size && is_space(text[at])) {
        at++;
    }
    return at;
}

static size_t trim(const char *text, size_t begin, size_t end)
{
    while (end > begin && is_space(text[end - 1])) {
        end--;
    }
    return end;
}

/* The position of the closing tag or, unless the text is at its end, of a prefix of it at the end; otherwise size. */
static size_t find_close(const char *text, size_t at, size_t size, bool at_end, bool *whole)
{
    size_t length = sizeof(REASONING_CLOSE) - 1;
    while (at < size) {
        const char *found = memchr(text + at, REASONING_CLOSE[0], size - at);
        if (found == NULL) {
            break;
        }
        at = (size_t)(found - text);
        size_t rest = size - at;
        if (memcmp(text + at, REASONING_CLOSE, rest < length ? rest : length) == 0 && (rest >= length || !at_end)) {
            *whole = rest >= length;
            return at;
        }
        at++;
    }
    *whole = false;
    return size;
}

reasoning_parts reasoning_find(const char *text, size_t size, bool open, bool at_end)
{
    size_t length = sizeof(REASONING_OPEN) - 1, at = skip_spaces(text, 0, size), rest = size - at;
    bool begins = rest >= length && memcmp(text + at, REASONING_OPEN, length) == 0;
    if (!begins && rest < length && memcmp(text + at, REASONING_OPEN, rest) == 0 && !at_end) {
        return (reasoning_parts){.content = size}; /* not known yet */
    }
    if (!begins && !open) {
        return (reasoning_parts){0};
    }
    bool whole;
    size_t begin = skip_spaces(text, begins ? at + length : 0, size);
    size_t close = find_close(text, begin, size, at_end, &whole), end = trim(text, begin, close);
    return (reasoning_parts){.begin = begin,
                             .end = end,
                             .content = whole ? skip_spaces(text, close + sizeof(REASONING_CLOSE) - 1, size) : size};
}

bool reasoning_is_open(const char *prompt)
{
    size_t size = trim(prompt, 0, strlen(prompt)), length = sizeof(REASONING_OPEN) - 1;
    return size >= length && memcmp(prompt + size - length, REASONING_OPEN, length) == 0;
}
