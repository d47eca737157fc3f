/* Separates reasoning from the answer. */
#include "launcher/serve/formats/reasoning.h"

#include <string.h>

/* The first row whose sign a template has decides. */
static const reasoning_marks families[] = {
    {"</response>", "<think>", "</think>", "<response>", "</response>", false}, /* Granite 3.3 */
    {"<|END_THINKING|>", "<|START_THINKING|>", "<|END_THINKING|>", "<|START_RESPONSE|>", "<|END_RESPONSE|>",
     true}, /* Cohere */
    {"</seed:think>", "<seed:think>", "</seed:think>", NULL, NULL, false},
    {"[/THINK]", "[THINK]", "[/THINK]", NULL, NULL, true},               /* Magistral */
    {"<channel|>", "<|channel>thought", "<channel|>", NULL, NULL, true}, /* Gemma 4 */
    {"Here is my response:", "Here is my thought process:", "Here is my response:", NULL, NULL,
     false}, /* Granite 3.2 */
    {"</think>", "<think>", "</think>", NULL, NULL, false},
};

const reasoning_marks *reasoning_of(const trm_chat_template *chat)
{
    for (size_t i = 0; i < sizeof(families) / sizeof(families[0]); i++) {
        if (trm_chat_template_mentions(chat, families[i].sign)) {
            return &families[i];
        }
    }
    return NULL;
}

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

/* The position of a mark or, unless the text is at its end, of a prefix of it at the end; otherwise size. */
static size_t find_mark(const char *text, size_t at, size_t size, const char *mark, bool at_end, bool *whole)
{
    size_t length = strlen(mark);
    while (at < size) {
        const char *found = memchr(text + at, mark[0], size - at);
        if (found == NULL) {
            break;
        }
        at = (size_t)(found - text);
        size_t rest = size - at;
        if (memcmp(text + at, mark, rest < length ? rest : length) == 0 && (rest >= length || !at_end)) {
            *whole = rest >= length;
            return at;
        }
        at++;
    }
    *whole = false;
    return size;
}

/* Where the answer behind a position begins; the text's size if that is not known yet. */
static size_t answer_begin(const reasoning_marks *marks, const char *text, size_t at, size_t size, bool at_end)
{
    at = skip_spaces(text, at, size);
    if (marks->answer_open == NULL) {
        return at;
    }
    size_t length = strlen(marks->answer_open), rest = size - at;
    if (memcmp(text + at, marks->answer_open, rest < length ? rest : length) != 0) {
        return at;
    }
    return rest >= length ? skip_spaces(text, at + length, size) : at_end ? at : size;
}

reasoning_parts reasoning_find(const reasoning_marks *marks, const char *text, size_t size, bool open, bool at_end)
{
    size_t length = strlen(marks->open), at = skip_spaces(text, 0, size), rest = size - at;
    bool begins = rest >= length && memcmp(text + at, marks->open, length) == 0;
    if (!begins && rest < length && memcmp(text + at, marks->open, rest) == 0 && !at_end) {
        return (reasoning_parts){.content = size}; /* not known yet */
    }
    if (!begins && !open) {
        return (reasoning_parts){0};
    }
    bool whole;
    size_t begin = skip_spaces(text, begins ? at + length : 0, size);
    size_t close = find_mark(text, begin, size, marks->close, at_end, &whole), end = trim(text, begin, close);
    return (reasoning_parts){.begin = begin,
                             .end = end,
                             .content =
                                 whole ? answer_begin(marks, text, close + strlen(marks->close), size, at_end) : size};
}

size_t reasoning_answer_end(const reasoning_marks *marks, const char *text, size_t from, size_t size, bool at_end)
{
    bool whole;
    return marks->answer_close == NULL ? size : find_mark(text, from, size, marks->answer_close, at_end, &whole);
}

bool reasoning_is_open(const reasoning_marks *marks, const char *prompt)
{
    size_t size = trim(prompt, 0, strlen(prompt)), length = strlen(marks->open);
    return size >= length && memcmp(prompt + size - length, marks->open, length) == 0;
}
