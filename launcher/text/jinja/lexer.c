/* Turns the text of a template into tokens. */
#include "launcher/text/jinja/lexer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/c_locale.h"
#include "base/error.h"
#include "base/hex.h"
#include "launcher/text/jinja/text.h"
#include "launcher/text/strings/buffer.h"
#include "launcher/text/strings/utf8.h"

#define MAX_BRACKETS 256

typedef struct lexer {
    trm_arena *arena;
    const char *name;
    const char *text; /* [size], line ends are \n, NUL-terminated */
    size_t size, at;
    int32_t line;
    bool line_starting; /* the last tag ended with a newline */
    char brackets[MAX_BRACKETS];
    size_t n_brackets;
    trm_jinja_tokens *tokens;
} lexer;

static trm_status fail_at_line(const lexer *lex, const char *what)
{
    return trm_fail(TRM_ERROR_INVALID_MODEL, "%s line %d: %s", lex->name, lex->line, what);
}

static trm_status push(lexer *lex, trm_jinja_token_kind kind, trm_jinja_value value)
{
    trm_jinja_tokens *tokens = lex->tokens;
    if (tokens->count == tokens->capacity) {
        size_t capacity = tokens->capacity == 0 ? 256 : 2 * tokens->capacity;
        trm_jinja_token *items = trm_arena_array(lex->arena, capacity, sizeof(*items));
        if (items == NULL) {
            return TRM_ERROR_OUT_OF_MEMORY;
        }
        if (tokens->count > 0) {
            memcpy(items, tokens->items, tokens->count * sizeof(*items));
        }
        tokens->items = items;
        tokens->capacity = capacity;
    }
    tokens->items[tokens->count++] = (trm_jinja_token){.kind = kind, .line = lex->line, .value = value};
    return TRM_OK;
}

static bool looks_at(const lexer *lex, size_t at, const char *text)
{
    size_t size = strlen(text);
    return lex->size - at >= size && memcmp(lex->text + at, text, size) == 0;
}

/* Moves on, counting lines. */
static void skip_to(lexer *lex, size_t at)
{
    for (; lex->at < at; lex->at++) {
        lex->line += lex->text[lex->at] == '\n';
    }
}

/* If a tag ends at `at`, with `end` ("%}", "}}", "#}"), moves past it and the white space it removes. */
static bool skip_end(lexer *lex, size_t at, const char *end)
{
    bool variable = end[0] == '}';
    size_t next;
    if (looks_at(lex, at, end)) {
        next = at + 2;
        if (!variable && next < lex->size && lex->text[next] == '\n') {
            next++;
        }
    } else if (lex->text[at] == '-' && looks_at(lex, at + 1, end)) {
        next = at + 3;
        next += trm_jinja_leading_space(lex->text + next, lex->size - next);
    } else if (!variable && lex->text[at] == '+' && looks_at(lex, at + 1, end)) {
        next = at + 3;
    } else {
        return false;
    }
    skip_to(lex, next);
    lex->line_starting = lex->text[next - 1] == '\n';
    return true;
}

/* Data before a tag, without the white space that the tag's sign or lstrip_blocks removes. */
static trm_status push_data(lexer *lex, size_t end, char sign, bool strips_line)
{
    const char *data = lex->text + lex->at;
    size_t size = end - lex->at;
    if (sign == '-') {
        size -= trm_jinja_trailing_space(data, size);
    } else if (sign != '+' && strips_line) {
        const char *newline = memrchr(data, '\n', size);
        size_t line = newline == NULL ? 0 : (size_t)(newline - data) + 1;
        if ((line > 0 || lex->line_starting) && trm_jinja_leading_space(data + line, size - line) == size - line) {
            size = line;
        }
    }
    if (size > 0) {
        TRM_TRY(push(lex, TRM_JINJA_TOKEN_DATA, trm_jinja_text(data, size)));
    }
    skip_to(lex, end);
    return TRM_OK;
}

static size_t sign_size(const lexer *lex, size_t at)
{
    return at < lex->size && (lex->text[at] == '-' || lex->text[at] == '+') ? 1 : 0;
}

static size_t skip_spaces(const lexer *lex, size_t at)
{
    return at + trm_jinja_leading_space(lex->text + at, lex->size - at);
}

/* If the block at `at` (of "{%") is raw or endraw: the end of its tag, otherwise 0. */
static size_t find_raw(const lexer *lex, size_t at, const char *word)
{
    size_t begin = skip_spaces(lex, at + 2 + sign_size(lex, at + 2));
    if (!looks_at(lex, begin, word)) {
        return 0;
    }
    size_t end = skip_spaces(lex, begin + strlen(word));
    bool ends = looks_at(lex, end, "%}") || looks_at(lex, end, "-%}") ||
                (looks_at(lex, end, "+%}") && strcmp(word, "endraw") == 0);
    return ends ? end : 0;
}

/* Reads from after {% raw %} to after {% endraw %}. */
static trm_status lex_raw(lexer *lex)
{
    for (size_t at = lex->at; at < lex->size; at++) {
        size_t end = looks_at(lex, at, "{%") ? find_raw(lex, at, "endraw") : 0;
        if (end != 0) {
            TRM_TRY(push_data(lex, at, lex->text[at + 2], true));
            skip_end(lex, end, "%}");
            return TRM_OK;
        }
    }
    return fail_at_line(lex, "missing end of raw directive");
}

static bool is_digit(char c, int base)
{
    const int digit = trm_hex_digit(c);
    return digit >= 0 && digit < base;
}

/* Reads an escape of Python's unicode-escape at lex->text[at] (a backslash); returns its length, 0 if it is invalid. */
static size_t read_escape(const lexer *lex, size_t at, size_t end, trm_bytes *out, trm_status *status)
{
    static const char from[] = "\\'\"abfnrtv", to[] = "\\'\"\a\b\f\n\r\t\v";
    char c = lex->text[at + 1];
    const char *known = c == '\0' ? NULL : strchr(from, c);
    if (known != NULL) {
        *status = trm_bytes_append(out, &to[known - from], 1);
        return 2;
    }
    if (c == '\n') {
        return 2;
    }
    size_t most = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0, base = 16, begin = at + 2, n = 0;
    if (most == 0 && is_digit(c, 8)) {
        most = 3;
        base = 8;
        begin = at + 1;
    } else if (most == 0) {
        *status = trm_bytes_append(out, "\\", 1);
        return 1;
    }
    int64_t value = 0;
    while (n < most && begin + n < end && is_digit(lex->text[begin + n], (int)base)) {
        value = value * (int64_t)base + trm_hex_digit(lex->text[begin + n++]);
    }
    if ((base == 16 && n < most) || value > 0x10ffff || (value >= 0xd800 && value < 0xe000)) {
        return 0;
    }
    *status = trm_bytes_append_codepoint(out, (int32_t)value);
    return begin + n - at;
}

static trm_status lex_string(lexer *lex)
{
    char quote = lex->text[lex->at];
    size_t begin = lex->at + 1, end = begin;
    bool escapes = false;
    while (end < lex->size && lex->text[end] != quote) {
        escapes |= lex->text[end] == '\\';
        end += lex->text[end] == '\\' ? 2 : 1;
    }
    if (end >= lex->size) {
        return fail_at_line(lex, "an unterminated string");
    }
    trm_jinja_value value = trm_jinja_text(lex->text + begin, end - begin);
    if (escapes) {
        trm_bytes out = {0};
        trm_status status = trm_bytes_reserve(&out, end - begin + 8);
        for (size_t at = begin; at < end && status == TRM_OK;) {
            if (lex->text[at] != '\\') {
                status = trm_bytes_append(&out, lex->text + at++, 1);
                continue;
            }
            size_t size = read_escape(lex, at, end, &out, &status);
            if (size == 0) {
                status = fail_at_line(lex, "an invalid escape in a string");
            }
            at += size;
        }
        char *copy = status == TRM_OK ? trm_arena_alloc(lex->arena, out.size + 1) : NULL;
        if (copy != NULL) {
            memcpy(copy, out.data, out.size);
            value = trm_jinja_text(copy, out.size);
        } else if (status == TRM_OK) {
            status = TRM_ERROR_OUT_OF_MEMORY;
        }
        trm_bytes_fini(&out);
        TRM_TRY(status);
    }
    TRM_TRY(push(lex, TRM_JINJA_TOKEN_STRING, value));
    skip_to(lex, end + 1);
    return TRM_OK;
}

/* Reads digits of a base with single underscores between them; copies only the digits. */
static size_t take_digits(const lexer *lex, size_t at, int base, char *digits, size_t *count)
{
    while (at < lex->size && *count < 60) {
        bool joined = lex->text[at] == '_' && at + 1 < lex->size && is_digit(lex->text[at + 1], base);
        if (!joined && !is_digit(lex->text[at], base)) {
            break;
        }
        if (!joined) {
            digits[(*count)++] = lex->text[at];
        }
        at++;
    }
    return at;
}

static trm_status lex_number(lexer *lex)
{
    char digits[80];
    size_t count = 0, at = lex->at;
    int base = 10;
    if (lex->text[at] == '0' && at + 2 < lex->size) {
        char c = lex->text[at + 1];
        int other = c == 'x' || c == 'X' ? 16 : c == 'o' || c == 'O' ? 8 : c == 'b' || c == 'B' ? 2 : 10;
        if (other != 10 && is_digit(lex->text[at + 2], other)) {
            base = other;
            at += 2;
        }
    }
    at = take_digits(lex, at, base, digits, &count);
    bool real = false;
    if (base == 10 && at + 1 < lex->size && lex->text[at] == '.' && is_digit(lex->text[at + 1], 10)) {
        digits[count++] = '.';
        at = take_digits(lex, at + 1, 10, digits, &count);
        real = true;
    }
    size_t exponent = at + 1 + (at + 1 < lex->size ? sign_size(lex, at + 1) : 0);
    if (base == 10 && at < lex->size && (lex->text[at] == 'e' || lex->text[at] == 'E') && exponent < lex->size &&
        is_digit(lex->text[exponent], 10)) {
        digits[count++] = 'e';
        if (exponent == at + 2) {
            digits[count++] = lex->text[at + 1];
        }
        at = take_digits(lex, exponent, 10, digits, &count);
        real = true;
    }
    digits[count] = '\0';
    errno = 0;
    trm_jinja_value value =
        real ? trm_jinja_float(trm_c_strtod(digits, NULL)) : trm_jinja_integer(strtoll(digits, NULL, base));
    if (count >= 60 || (!real && errno != 0)) {
        return fail_at_line(lex, "a number is too large");
    }
    TRM_TRY(push(lex, TRM_JINJA_TOKEN_NUMBER, value));
    lex->at = at;
    return TRM_OK;
}

static trm_status lex_operator(lexer *lex)
{
    static const char *const pairs[] = {"//", "**", "==", "!=", ">=", "<="};
    const char *text = lex->text + lex->at;
    size_t size = 1;
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        if (looks_at(lex, lex->at, pairs[i])) {
            size = 2;
        }
    }
    if (size == 1 && (*text == '\0' || strchr("+-/*%~[](){}<>=.:|,;", *text) == NULL)) {
        return fail_at_line(lex, "unexpected character in a tag");
    }
    const char *opening = size == 1 ? strchr("([{", *text) : NULL, *closing = size == 1 ? strchr(")]}", *text) : NULL;
    if (opening != NULL) {
        if (lex->n_brackets == MAX_BRACKETS) {
            return fail_at_line(lex, "brackets are nested too deep");
        }
        lex->brackets[lex->n_brackets++] = *opening == '(' ? ')' : *opening == '[' ? ']' : '}';
    } else if (closing != NULL && (lex->n_brackets == 0 || lex->brackets[--lex->n_brackets] != *closing)) {
        return fail_at_line(lex, "an unmatched closing bracket");
    }
    TRM_TRY(push(lex, TRM_JINJA_TOKEN_OPERATOR, trm_jinja_text(text, size)));
    lex->at += size;
    return TRM_OK;
}

static size_t name_size(const lexer *lex, size_t at)
{
    size_t begin = at;
    while (at < lex->size) {
        size_t size;
        if (!trm_jinja_is_word(trm_utf8_read(lex->text + at, &size))) {
            break;
        }
        at += size;
    }
    return at - begin;
}

/* Reads from after "{{" or "{%" to after its end. */
static trm_status lex_tag(lexer *lex, const char *end)
{
    lex->n_brackets = 0;
    for (;;) {
        if (lex->at >= lex->size) {
            return fail_at_line(lex, "the template ends within a tag");
        }
        if (lex->n_brackets == 0) {
            int32_t line = lex->line;
            if (skip_end(lex, lex->at, end)) {
                TRM_TRY(push(lex, end[0] == '}' ? TRM_JINJA_TOKEN_VARIABLE_END : TRM_JINJA_TOKEN_BLOCK_END,
                             trm_jinja_none()));
                lex->tokens->items[lex->tokens->count - 1].line = line;
                return TRM_OK;
            }
        }
        char c = lex->text[lex->at];
        size_t space = trm_jinja_leading_space(lex->text + lex->at, lex->size - lex->at), length;
        if (space > 0) {
            skip_to(lex, lex->at + space);
        } else if (c >= '0' && c <= '9') {
            TRM_TRY(lex_number(lex));
        } else if ((length = name_size(lex, lex->at)) > 0) {
            TRM_TRY(push(lex, TRM_JINJA_TOKEN_NAME, trm_jinja_text(lex->text + lex->at, length)));
            lex->at += length;
        } else if (c == '\'' || c == '"') {
            TRM_TRY(lex_string(lex));
        } else {
            TRM_TRY(lex_operator(lex));
        }
    }
}

static trm_status lex_comment(lexer *lex)
{
    for (size_t at = lex->at; at < lex->size; at++) {
        if (skip_end(lex, at, "#}")) {
            return TRM_OK;
        }
    }
    return fail_at_line(lex, "missing end of comment tag");
}

/* Reads one piece of data and the tag after it. */
static trm_status lex_piece(lexer *lex, size_t tag)
{
    char kind = lex->text[tag + 1];
    size_t raw = kind == '%' ? find_raw(lex, tag, "raw") : 0;
    size_t sign = sign_size(lex, tag + 2);
    TRM_TRY(push_data(lex, tag, sign > 0 ? lex->text[tag + 2] : '\0', kind != '{'));
    if (raw != 0) {
        /* {% raw %} removes no newline */
        bool minus = lex->text[raw] == '-';
        skip_to(lex, minus ? skip_spaces(lex, raw + 3) : raw + 2);
        lex->line_starting = lex->text[lex->at - 1] == '\n';
        return lex_raw(lex);
    }
    skip_to(lex, tag + 2 + sign);
    if (kind == '#') {
        return lex_comment(lex);
    }
    TRM_TRY(push(lex, kind == '{' ? TRM_JINJA_TOKEN_VARIABLE_BEGIN : TRM_JINJA_TOKEN_BLOCK_BEGIN, trm_jinja_none()));
    return lex_tag(lex, kind == '{' ? "}}" : "%}");
}

/* Copies the source with \n for every line end, without one at its end. */
static char *normalize(trm_arena *arena, const char *source, size_t *size)
{
    char *text = trm_arena_alloc(arena, *size + 1);
    if (text == NULL) {
        return NULL;
    }
    size_t n = 0;
    for (size_t i = 0; i < *size; i++) {
        if (source[i] == '\r') {
            text[n++] = '\n';
            i += i + 1 < *size && source[i + 1] == '\n';
        } else {
            text[n++] = source[i];
        }
    }
    if (n > 0 && text[n - 1] == '\n') {
        n--;
    }
    text[n] = '\0';
    *size = n;
    return text;
}

trm_status trm_jinja_lex(trm_arena *arena, const char *name, const char *source, size_t size, trm_jinja_tokens *tokens)
{
    lexer lex = {.arena = arena, .name = name, .line = 1, .line_starting = true, .tokens = tokens};
    lex.text = normalize(arena, source, &size);
    lex.size = size;
    if (lex.text == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    for (size_t at = 0; at + 1 < size;) {
        bool tag = lex.text[at] == '{' && strchr("{%#", lex.text[at + 1]) != NULL && lex.text[at + 1] != '\0';
        if (!tag) {
            at++;
            continue;
        }
        TRM_TRY(lex_piece(&lex, at));
        at = lex.at;
    }
    if (lex.at < size) {
        TRM_TRY(push(&lex, TRM_JINJA_TOKEN_DATA, trm_jinja_text(lex.text + lex.at, size - lex.at)));
    }
    return push(&lex, TRM_JINJA_TOKEN_END, trm_jinja_none());
}
