/* The JSON writer. */
#include "launcher/cli/report.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "launcher/text/utf8.h"

static void write_string(FILE *out, const char *text, size_t size)
{
    fputc('"', out);
    for (size_t at = 0, length; at < size; at += length) {
        if (trm_utf8_examine(text + at, size - at, &length) != TRM_UTF8_VALID) {
            fputs(TRM_REPLACEMENT_TEXT, out);
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

/* Comma, line and key before a value. */
static void lead_in(report *r, const char *key)
{
    if (r->depth == 0) {
        fputc('{', r->out);
        r->closers[0] = '}';
        r->first[0] = true;
        r->depth = 1;
    }
    if (!r->first[r->depth - 1]) {
        fputc(',', r->out);
    }
    r->first[r->depth - 1] = false;
    fprintf(r->out, "\n%*s", 2 * r->depth, "");
    if (key != NULL) {
        write_string(r->out, key, strlen(key));
        fputs(": ", r->out);
    }
}

void report_begin(report *r, FILE *out)
{
    *r = (report){.out = out};
}

void report_open(report *r, const char *key, char kind)
{
    lead_in(r, key);
    assert(r->depth < REPORT_DEPTH);
    fputc(kind, r->out);
    r->closers[r->depth] = kind == '{' ? '}' : ']';
    r->first[r->depth] = true;
    r->depth++;
}

void report_close(report *r)
{
    r->depth--;
    if (!r->first[r->depth]) {
        fprintf(r->out, "\n%*s", 2 * r->depth, "");
    }
    fputc(r->closers[r->depth], r->out);
}

void report_end(report *r)
{
    if (r->depth == 0) {
        fputs("{}", r->out);
    }
    while (r->depth > 0) {
        report_close(r);
    }
    fputc('\n', r->out);
}

void report_bytes(report *r, const char *key, const char *value, size_t size)
{
    lead_in(r, key);
    write_string(r->out, value, size);
}

void report_text(report *r, const char *key, const char *value)
{
    if (value == NULL) {
        lead_in(r, key);
        fputs("null", r->out);
    } else {
        report_bytes(r, key, value, strlen(value));
    }
}

void report_integer(report *r, const char *key, int64_t value)
{
    lead_in(r, key);
    fprintf(r->out, "%lld", (long long)value);
}

void report_number(report *r, const char *key, double value)
{
    lead_in(r, key);
    if (isfinite(value)) {
        fprintf(r->out, "%.9g", value);
    } else {
        fputs("null", r->out);
    }
}

void report_bool(report *r, const char *key, bool value)
{
    lead_in(r, key);
    fputs(value ? "true" : "false", r->out);
}
