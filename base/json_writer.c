/* The JSON writer. */
#include "base/json_writer.h"
#include "base/c_locale.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* Whether a UTF-8 character begins here, and its length; if not, the length of what one U+FFFD replaces: the longest
 * prefix of a character (Unicode 3.9, table 3-7). */
static bool examine(const unsigned char *text, size_t size, size_t *length)
{
    unsigned char lead = text[0], least = 0x80, most = 0xBF;
    size_t wanted = lead < 0x80 ? 1 : lead < 0xC2 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : lead < 0xF5 ? 4 : 0;
    least = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : least;
    most = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : most;
    for (*length = 1; *length < wanted && *length < size; ++*length) {
        if (text[*length] < least || text[*length] > most) {
            return false;
        }
        least = 0x80;
        most = 0xBF;
    }
    return *length == wanted;
}

void trm_json_write_text(FILE *out, const char *text, size_t size)
{
    fputc('"', out);
    for (size_t at = 0, length; at < size; at += length) {
        if (!examine((const unsigned char *)text + at, size - at, &length)) {
            fputs("\xEF\xBF\xBD", out); /* U+FFFD */
            continue;
        }
        switch (text[at]) {
        case '"':
            fputs("\\\"", out);
            break;
        case '\\':
            fputs("\\\\", out);
            break;
        case '\n':
            fputs("\\n", out);
            break;
        case '\t':
            fputs("\\t", out);
            break;
        case '\r':
            fputs("\\r", out);
            break;
        default:
            if ((unsigned char)text[at] < 0x20) {
                fprintf(out, "\\u%04x", (unsigned)text[at]);
            } else {
                fwrite(text + at, 1, length, out);
            }
        }
    }
    fputc('"', out);
}

/* Writes comma, newline and key before a value. */
static void lead_in(trm_json_writer *w, const char *key)
{
    if (w->depth == 0) {
        fputc('{', w->out);
        w->closers[0] = '}';
        w->first[0] = true;
        w->depth = 1;
    }
    if (!w->first[w->depth - 1]) {
        fputc(',', w->out);
    }
    w->first[w->depth - 1] = false;
    fprintf(w->out, "\n%*s", 2 * w->depth, "");
    if (key != NULL) {
        trm_json_write_text(w->out, key, strlen(key));
        fputs(": ", w->out);
    }
}

void trm_json_writer_begin(trm_json_writer *w, FILE *out)
{
    *w = (trm_json_writer){.out = out};
}

void trm_json_writer_open(trm_json_writer *w, const char *key, char kind)
{
    lead_in(w, key);
    assert(w->depth < TRM_JSON_WRITER_DEPTH);
    fputc(kind, w->out);
    w->closers[w->depth] = kind == '{' ? '}' : ']';
    w->first[w->depth] = true;
    w->depth++;
}

void trm_json_writer_close(trm_json_writer *w)
{
    w->depth--;
    if (!w->first[w->depth]) {
        fprintf(w->out, "\n%*s", 2 * w->depth, "");
    }
    fputc(w->closers[w->depth], w->out);
}

void trm_json_writer_end(trm_json_writer *w)
{
    if (w->depth == 0) {
        fputs("{}", w->out);
    }
    while (w->depth > 0) {
        trm_json_writer_close(w);
    }
    fputc('\n', w->out);
}

void trm_json_writer_bytes(trm_json_writer *w, const char *key, const char *value, size_t size)
{
    lead_in(w, key);
    trm_json_write_text(w->out, value, size);
}

void trm_json_writer_text(trm_json_writer *w, const char *key, const char *value)
{
    if (value == NULL) {
        lead_in(w, key);
        fputs("null", w->out);
    } else {
        trm_json_writer_bytes(w, key, value, strlen(value));
    }
}

void trm_json_writer_integer(trm_json_writer *w, const char *key, int64_t value)
{
    lead_in(w, key);
    fprintf(w->out, "%lld", (long long)value);
}

void trm_json_writer_number(trm_json_writer *w, const char *key, double value)
{
    lead_in(w, key);
    if (isfinite(value)) {
        char text[32];
        trm_c_snprintf(text, sizeof(text), "%.9g", value);
        fputs(text, w->out);
    } else {
        fputs("null", w->out);
    }
}

void trm_json_writer_bool(trm_json_writer *w, const char *key, bool value)
{
    lead_in(w, key);
    fputs(value ? "true" : "false", w->out);
}
