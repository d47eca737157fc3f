/*
 * Translates Oniguruma's syntax, in which tokenizer.json is written, to PCRE2's. Relevant differences: the contents of
 * \s \w \h \v and the POSIX brackets; (?m) means dot-matches-newline; an option in the middle of a group applies to
 * the rest of the group, including alternatives; {n,m}+ repeats the repetition instead of being possessive; {,n} is
 * {0,n}; classes nest and intersect ([a-z&&[^x]]).
 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "launcher/text/regex/regex.h"
#include "launcher/text/regex/regex_property.h"
#include "launcher/text/strings/utf8.h"

#define DEEPEST_NESTING 100
#define NO_ATOM         SIZE_MAX

typedef struct translator {
    const char *in;
    size_t at, size;
    trm_bytes *out;
    int depth; /* of groups and classes */
} translator;

static trm_status translate_sequence(translator *t);
static trm_status translate_class(translator *t, trm_bytes *out);

static char peek(const translator *t, size_t ahead)
{
    return t->at + ahead < t->size ? t->in[t->at + ahead] : '\0';
}

static trm_status emit(trm_bytes *out, const char *text)
{
    return trm_bytes_append(out, text, strlen(text));
}

static trm_status emit_codepoint(trm_bytes *out, int32_t codepoint)
{
    char text[16];
    snprintf(text, sizeof(text), "\\x{%x}", (unsigned)codepoint);
    return emit(out, text);
}

static trm_status unsupported(const translator *t, const char *what)
{
    TRM_FAIL(TRM_ERROR_UNSUPPORTED, "regex \"%.200s\" uses %s, which is not supported", t->in, what);
}

static trm_status malformed(const translator *t, const char *what)
{
    TRM_FAIL(TRM_ERROR_INVALID_MODEL, "regex \"%.200s\" does not compile: %s at byte %zu", t->in, what, t->at);
}

static trm_status enter(translator *t)
{
    return ++t->depth > DEEPEST_NESTING ? malformed(t, "too many nested groups") : TRM_OK;
}

/* A set outside a class. */
static trm_status emit_set(trm_bytes *out, const trm_regex_set *set)
{
    if (set->property) {
        TRM_TRY(emit(out, set->negated ? "\\P" : "\\p"));
        return emit(out, set->items + 2);
    }
    TRM_TRY(emit(out, set->negated ? "[^" : "["));
    TRM_TRY(emit(out, set->items));
    return emit(out, "]");
}

/* \p{name}, \p{^name} or \P{name}; t->at is after the p. */
static trm_status read_property(translator *t, bool negated, trm_regex_set *set)
{
    if (peek(t, 0) != '{') {
        return malformed(t, "\\p without a brace");
    }
    const char *name = t->in + t->at + 1;
    const char *close = memchr(name, '}', t->size - t->at - 1);
    if (close == NULL) {
        return malformed(t, "\\p{ without a closing brace");
    }
    t->at = (size_t)(close - t->in) + 1;
    bool inverted = *name == '^';
    name += inverted;
    TRM_TRY(trm_regex_set_property(name, (size_t)(close - name), set));
    set->negated = negated != inverted;
    return TRM_OK;
}

static trm_status read_hex(translator *t, size_t least, size_t most, int32_t *codepoint)
{
    uint32_t value = 0;
    size_t digits = 0;
    while (digits < most && isxdigit((unsigned char)peek(t, 0))) {
        char c = (char)tolower((unsigned char)t->in[t->at++]);
        value = value * 16 + (uint32_t)(c <= '9' ? c - '0' : c - 'a' + 10);
        digits++;
    }
    if (digits < least || value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) {
        return malformed(t, "an invalid character number");
    }
    *codepoint = (int32_t)value;
    return TRM_OK;
}

/* Reads an escape of one character, t->at after the backslash; *codepoint is -1 if it is another escape. */
static trm_status read_character_escape(translator *t, int32_t *codepoint)
{
    static const char letters[] = "ntrfvae", values[] = "\n\t\r\f\v\a\x1b";
    size_t size;
    *codepoint = -1;
    if (t->at >= t->size) {
        return malformed(t, "a backslash at the end");
    }
    char c = peek(t, 0);
    const char *known = strchr(letters, c);
    if (known != NULL) {
        t->at++;
        *codepoint = values[known - letters];
    } else if (c == 'x' && peek(t, 1) == '{') {
        t->at += 2;
        TRM_TRY(read_hex(t, 1, 8, codepoint));
        if (peek(t, 0) != '}') {
            return unsupported(t, "a list of characters in \\x{}");
        }
        t->at++;
    } else if (c == 'x') {
        t->at++;
        TRM_TRY(read_hex(t, 1, 2, codepoint));
        if (*codepoint > 0x7F) {
            return unsupported(t, "a raw byte above \\x7f");
        }
    } else if (c == 'u') {
        t->at++;
        TRM_TRY(read_hex(t, 4, 4, codepoint));
    } else if (c == '0') {
        t->at++;
        *codepoint = 0;
        for (int i = 0; i < 2 && peek(t, 0) >= '0' && peek(t, 0) <= '7'; i++) {
            *codepoint = *codepoint * 8 + (t->in[t->at++] - '0');
        }
    } else if (!isalnum((unsigned char)c)) {
        *codepoint = trm_utf8_read(t->in + t->at, &size);
        t->at += size;
    }
    return TRM_OK;
}

/* \w and \p{Word} outside a class. */
static void widen_word(trm_regex_set *set)
{
    if (strcmp(set->items, TRM_REGEX_WORD) == 0) {
        snprintf(set->items, sizeof(set->items), "%s", TRM_REGEX_ONIG_WORD);
    }
}

/* An escape outside a class; t->at is at the backslash. */
static trm_status translate_escape(translator *t)
{
    t->at++;
    int32_t codepoint;
    TRM_TRY(read_character_escape(t, &codepoint));
    if (codepoint >= 0) {
        return emit_codepoint(t->out, codepoint);
    }
    char c = t->in[t->at++];
    trm_regex_set set;
    if (trm_regex_set_escape(c, &set)) {
        widen_word(&set);
        return emit_set(t->out, &set);
    }
    switch (c) {
    case 'p':
    case 'P':
        TRM_TRY(read_property(t, c == 'P', &set));
        widen_word(&set);
        return emit_set(t->out, &set);
    case 'b':
        return emit(t->out, "(?:(?<=[" TRM_REGEX_ONIG_WORD "])(?![" TRM_REGEX_ONIG_WORD "])|(?<![" TRM_REGEX_ONIG_WORD
                            "])(?=[" TRM_REGEX_ONIG_WORD "]))");
    case 'B':
        return emit(t->out, "(?:(?<=[" TRM_REGEX_ONIG_WORD "])(?=[" TRM_REGEX_ONIG_WORD "])|(?<![" TRM_REGEX_ONIG_WORD
                            "])(?![" TRM_REGEX_ONIG_WORD "]))");
    case 'N':
        return emit(t->out, "[^\\n]");
    case 'O':
        return emit(t->out, "(?s:.)");
    case 'A':
    case 'z':
    case 'Z':
    case 'G':
    case 'R':
    case 'X': {
        char pass[3] = {'\\', c, '\0'};
        return emit(t->out, pass);
    }
    default:
        break;
    }
    if (isdigit((unsigned char)c)) {
        char reference[16];
        snprintf(reference, sizeof(reference), "\\g{%c}", c);
        return isdigit((unsigned char)peek(t, 0)) ? unsupported(t, "a reference above 9") : emit(t->out, reference);
    }
    if (strchr("kgKyYcCM", c) != NULL) {
        char what[24];
        snprintf(what, sizeof(what), "the escape \\%c", c);
        return unsupported(t, what);
    }
    return emit_codepoint(t->out, (unsigned char)c); /* a letter without a meaning is literal */
}

/* Reads an element of a class: a character, or if *codepoint is -1, `set`. */
static trm_status read_class_element(translator *t, int32_t *codepoint, trm_regex_set *set)
{
    size_t size;
    if (peek(t, 0) != '\\') {
        *codepoint = trm_utf8_read(t->in + t->at, &size);
        t->at += size;
        return TRM_OK;
    }
    t->at++;
    TRM_TRY(read_character_escape(t, codepoint));
    if (*codepoint >= 0) {
        return TRM_OK;
    }
    char c = t->in[t->at++];
    if (c == 'p' || c == 'P') {
        return read_property(t, c == 'P', set);
    }
    if (trm_regex_set_escape(c, set)) {
        return TRM_OK;
    }
    if (isdigit((unsigned char)c) || strchr("RXcCM", c) != NULL) {
        return unsupported(t, "this escape in a class");
    }
    *codepoint = c == 'b' ? '\b' : (unsigned char)c;
    return TRM_OK;
}

/* Adds a set to a class; a set that has no form inside a class becomes an alternative to it. */
static trm_status add_set(trm_bytes *items, trm_bytes *alternatives, const trm_regex_set *set)
{
    if (set->property) {
        return emit_set(items, set);
    }
    if (!set->negated) {
        return emit(items, set->items);
    }
    TRM_TRY(emit(alternatives, "|"));
    return emit_set(alternatives, set);
}

static trm_status read_posix_bracket(translator *t, bool *found, trm_regex_set *set)
{
    const char *name = t->in + t->at + 2;
    size_t left = t->size - t->at - 2, size = 0;
    bool negated = left > 0 && *name == '^';
    name += negated;
    left -= negated;
    while (size < left && isalpha((unsigned char)name[size])) {
        size++;
    }
    *found = left - size >= 2 && name[size] == ':' && name[size + 1] == ']';
    if (*found) {
        TRM_TRY(trm_regex_set_posix(name, size, set));
        set->negated = negated;
        t->at = (size_t)(name - t->in) + size + 2;
    }
    return TRM_OK;
}

/* Reads a union of elements up to ] or && as items of one class and further alternatives ("|..."). */
static trm_status read_union(translator *t, bool first, trm_bytes *items, trm_bytes *alternatives)
{
    while (t->at < t->size) {
        char c = peek(t, 0);
        if ((c == ']' && !first) || (c == '&' && peek(t, 1) == '&')) {
            return TRM_OK;
        }
        first = false;
        trm_regex_set set;
        if (c == '[') {
            bool posix = false;
            if (peek(t, 1) == ':') {
                TRM_TRY(read_posix_bracket(t, &posix, &set));
            }
            if (posix) {
                TRM_TRY(add_set(items, alternatives, &set));
            } else {
                TRM_TRY(emit(alternatives, "|"));
                TRM_TRY(translate_class(t, alternatives));
            }
            continue;
        }
        int32_t low = -1, high = -1;
        TRM_TRY(read_class_element(t, &low, &set));
        if (low < 0) {
            TRM_TRY(add_set(items, alternatives, &set));
            continue;
        }
        TRM_TRY(emit_codepoint(items, low));
        if (peek(t, 0) == '-' && peek(t, 1) != ']' && peek(t, 1) != '[' && t->at + 1 < t->size) {
            t->at++;
            TRM_TRY(read_class_element(t, &high, &set));
            if (high < low) {
                return malformed(t, "an invalid range in a class");
            }
            TRM_TRY(emit(items, "-"));
            TRM_TRY(emit_codepoint(items, high));
        }
    }
    return malformed(t, "an unterminated class");
}

/* The expression of one union. */
static trm_status emit_union(const translator *t, trm_bytes *out, const trm_bytes *items, const trm_bytes *alternatives)
{
    if (items->size == 0 && alternatives->size == 0) {
        return malformed(t, "an empty class");
    }
    if (alternatives->size > 0) {
        TRM_TRY(emit(out, "(?:"));
    }
    if (items->size > 0) {
        TRM_TRY(emit(out, "["));
        TRM_TRY(trm_bytes_append(out, items->data, items->size));
        TRM_TRY(emit(out, "]"));
    }
    if (alternatives->size > 0) {
        size_t skip = items->size == 0; /* the first bar */
        TRM_TRY(trm_bytes_append(out, alternatives->data + skip, alternatives->size - skip));
        TRM_TRY(emit(out, ")"));
    }
    return TRM_OK;
}

/* The unions of an intersection: all except the last as look-aheads. */
static trm_status translate_intersection(translator *t, trm_bytes *body, bool *plain)
{
    trm_bytes items = {0}, alternatives = {0};
    trm_status status;
    for (bool first = true;; first = false) {
        items.size = alternatives.size = 0;
        TRM_TRY_GOTO(status, read_union(t, first, &items, &alternatives), done);
        bool last = peek(t, 0) == ']';
        t->at += last ? 1 : 2;
        *plain = first && last && alternatives.size == 0;
        if (*plain) { /* only the items: the caller writes the brackets */
            TRM_TRY_GOTO(status, items.size > 0 ? TRM_OK : malformed(t, "an empty class"), done);
            TRM_TRY_GOTO(status, trm_bytes_append(body, items.data, items.size), done);
            break;
        }
        if (!last) {
            TRM_TRY_GOTO(status, emit(body, "(?="), done);
        }
        TRM_TRY_GOTO(status, emit_union(t, body, &items, &alternatives), done);
        if (last) {
            break;
        }
        TRM_TRY_GOTO(status, emit(body, ")"), done);
    }
done:
    trm_bytes_fini(&items);
    trm_bytes_fini(&alternatives);
    return status;
}

/* Reads a class; t->at is at its bracket. */
static trm_status translate_class(translator *t, trm_bytes *out)
{
    TRM_TRY(enter(t));
    t->at++;
    bool negated = peek(t, 0) == '^', plain = false;
    t->at += negated;
    trm_bytes body = {0};
    trm_status status = translate_intersection(t, &body, &plain);
    const char *open = plain ? (negated ? "[^" : "[") : (negated ? "(?:(?!" : "(?:");
    const char *close = plain ? "]" : (negated ? ")(?s:.))" : ")");
    if (status == TRM_OK) {
        status = emit(out, open);
    }
    if (status == TRM_OK) {
        status = trm_bytes_append(out, body.data, body.size);
    }
    if (status == TRM_OK) {
        status = emit(out, close);
    }
    trm_bytes_fini(&body);
    t->depth--;
    return status;
}

/* Reads (?imx-imx: or (?imx-imx); *isolated for the latter. Writes the start of a group in both cases. */
static trm_status translate_options(translator *t, bool *isolated)
{
    TRM_TRY(emit(t->out, "(?"));
    for (; t->at < t->size && peek(t, 0) != ')' && peek(t, 0) != ':'; t->at++) {
        char c = peek(t, 0);
        if (strchr("imx-", c) == NULL) {
            return unsupported(t, "this group option");
        }
        char option[2] = {c == 'm' ? 's' : c, '\0'};
        TRM_TRY(emit(t->out, option));
    }
    *isolated = peek(t, 0) == ')';
    t->at++;
    return emit(t->out, ":");
}

/* Reads the part of a group after "(?" up to its content. */
static trm_status translate_group_start(translator *t, bool *isolated)
{
    char c = peek(t, 0);
    if (c == ':' || c == '=' || c == '!' || c == '>') {
        char start[4] = {'(', '?', c, '\0'};
        t->at++;
        return emit(t->out, start);
    }
    if (c == '<' && (peek(t, 1) == '=' || peek(t, 1) == '!')) {
        char start[5] = {'(', '?', '<', peek(t, 1), '\0'};
        t->at += 2;
        return emit(t->out, start);
    }
    if (c == '<') { /* names are only for references, which are refused */
        const char *close = memchr(t->in + t->at, '>', t->size - t->at);
        if (close == NULL) {
            return malformed(t, "an unterminated group name");
        }
        t->at = (size_t)(close - t->in) + 1;
        return emit(t->out, "(");
    }
    return translate_options(t, isolated);
}

/* Reads a group; t->at is at its parenthesis. */
static trm_status translate_group(translator *t, size_t *isolated_groups)
{
    TRM_TRY(enter(t));
    t->at++;
    bool isolated = false;
    if (peek(t, 0) == '?' && peek(t, 1) == '#') {
        const char *close = memchr(t->in + t->at, ')', t->size - t->at);
        t->at = close == NULL ? t->size : (size_t)(close - t->in) + 1;
        t->depth--;
        return close == NULL ? malformed(t, "an unterminated comment") : TRM_OK;
    }
    if (peek(t, 0) == '?') {
        t->at++;
        TRM_TRY(translate_group_start(t, &isolated));
    } else {
        TRM_TRY(emit(t->out, "("));
    }
    if (isolated) { /* stays open up to the end of the enclosing group; depth counts it */
        ++*isolated_groups;
        return TRM_OK;
    }
    TRM_TRY(translate_sequence(t));
    if (peek(t, 0) != ')') {
        return malformed(t, "an unterminated group");
    }
    t->at++;
    t->depth--;
    return emit(t->out, ")");
}

/* Reads {n} {n,} {n,m} {,m}; false if the brace is literal. */
static bool read_interval(translator *t, char text[24], bool *exact)
{
    unsigned low = 0, high = 0;
    int used = 0, size = 0;
    const char *in = t->in + t->at;
    if (sscanf(in, "{%5[0-9]}%n", text, &used) == 1 && used > 0) {
        *exact = true;
    } else if (sscanf(in, "{%5u,%5u}%n", &low, &high, &used) == 2 && used > 0) {
        *exact = false;
    } else if (sscanf(in, "{%5u,}%n", &low, &used) == 1 && used > 0) {
        *exact = false;
    } else if (sscanf(in, "{,%5u}%n", &high, &used) == 1 && used > 0) {
        *exact = false;
    } else {
        return false;
    }
    for (int i = 0; i < used; i++) {
        if (strchr("{},0123456789", in[i]) == NULL || used > 20) {
            return false; /* sscanf skips spaces and accepts signs */
        }
    }
    size = snprintf(text, 24, "%.*s", used, in);
    if (size > 1 && text[1] == ',') {
        snprintf(text, 24, "{0%.*s", used - 1, in + 1);
    }
    t->at += (size_t)used;
    return true;
}

static trm_status wrap_atom(trm_bytes *out, size_t atom)
{
    TRM_TRY(emit(out, "(?:"));
    memmove(out->data + atom + 3, out->data + atom, out->size - atom - 3);
    memcpy(out->data + atom, "(?:", 3);
    return emit(out, ")");
}

static trm_status translate_repeat(translator *t, size_t atom)
{
    char interval[24];
    bool exact = false;
    char c = peek(t, 0);
    if (c == '{') {
        if (!read_interval(t, interval, &exact)) {
            t->at++;
            return emit(t->out, "\\{");
        }
        if (atom == NO_ATOM) {
            return malformed(t, "nothing to repeat");
        }
        TRM_TRY(emit(t->out, interval));
        char next = peek(t, 0);
        if (next == '+' || (next == '?' && exact)) {
            TRM_TRY(wrap_atom(t->out, atom));
            t->at++;
            return emit(t->out, next == '+' ? "+" : "?");
        }
    } else {
        char repeat[2] = {c, '\0'};
        t->at++;
        TRM_TRY(emit(t->out, repeat));
    }
    char mode[2] = {peek(t, 0), '\0'};
    if (mode[0] == '?' || (mode[0] == '+' && c != '{')) {
        t->at++;
        return emit(t->out, mode);
    }
    return TRM_OK;
}

/* Reads alternatives up to a closing parenthesis or the end. */
static trm_status translate_sequence(translator *t)
{
    size_t atom = NO_ATOM, isolated_groups = 0;
    while (t->at < t->size && (peek(t, 0) != ')' || t->depth == 0)) {
        char c = peek(t, 0);
        size_t start = t->out->size;
        switch (c) {
        case '*':
        case '+':
        case '?':
        case '{':
            TRM_TRY(translate_repeat(t, atom));
            continue;
        case '(': {
            size_t before = isolated_groups;
            TRM_TRY(translate_group(t, &isolated_groups));
            atom = isolated_groups > before ? NO_ATOM : start;
            continue;
        }
        case '[':
            TRM_TRY(translate_class(t, t->out));
            break;
        case '\\':
            TRM_TRY(translate_escape(t));
            break;
        default: {
            size_t size = trm_utf8_size(c);
            TRM_TRY(trm_bytes_append(t->out, t->in + t->at, size));
            t->at += size;
            start = c == '|' ? NO_ATOM : start;
            break;
        }
        }
        atom = start;
    }
    for (; isolated_groups > 0; isolated_groups--) {
        t->depth--;
        TRM_TRY(emit(t->out, ")"));
    }
    return TRM_OK;
}

trm_status trm_regex_translate(const char *pattern, trm_bytes *translated)
{
    translator t = {.in = pattern, .size = strlen(pattern), .out = translated};
    TRM_TRY(translate_sequence(&t));
    if (t.at < t.size) {
        return malformed(&t, "an unmatched closing parenthesis");
    }
    return trm_bytes_reserve(translated, 1);
}
