/* Shared by methods and filters of strings. */
#include "launcher/text/jinja/string.h"

#include <string.h>

#include "base/error.h"
#include "launcher/text/jinja/builtin.h"
#include "launcher/text/jinja/text.h"
#include "launcher/text/strings/utf8.h"

#define WIDEST 1000000

static bool is_stripped(const char *character, size_t size, const trm_jinja_value *chars)
{
    if (chars == NULL) {
        size_t length;
        return trm_jinja_is_space(trm_utf8_read(character, &length));
    }
    for (size_t at = 0; at < chars->size; at += trm_utf8_size(chars->text[at])) {
        if (trm_utf8_size(chars->text[at]) == size && memcmp(chars->text + at, character, size) == 0) {
            return true;
        }
    }
    return false;
}

trm_jinja_value trm_jinja_strip(const trm_jinja_value *string, const trm_jinja_value *chars, bool left, bool right)
{
    trm_jinja_value rest = *string;
    while (left && rest.size > 0) {
        size_t size = trm_utf8_size(rest.text[0]);
        if (!is_stripped(rest.text, size, chars)) {
            break;
        }
        rest.text += size;
        rest.size -= size;
    }
    while (right && rest.size > 0) {
        size_t size;
        (void)trm_utf8_read_back(rest.text, rest.text + rest.size, &size);
        if (!is_stripped(rest.text + rest.size - size, size, chars)) {
            break;
        }
        rest.size -= size;
    }
    return rest;
}

size_t trm_jinja_find_last(const trm_jinja_value *text, const trm_jinja_value *part)
{
    if (part->size > text->size) {
        return SIZE_MAX;
    }
    size_t at = text->size - part->size;
    while (memcmp(text->text + at, part->text, part->size) != 0) {
        if (at == 0) {
            return SIZE_MAX;
        }
        at--;
    }
    return at;
}

trm_status trm_jinja_split_lines(trm_jinja_run *run, const trm_jinja_value *string, bool keep_ends,
                                 trm_jinja_value *list)
{
    TRM_TRY(trm_jinja_new_list(run, TRM_JINJA_LIST, 0, list));
    for (size_t at = 0; at < string->size;) {
        size_t begin = at, length = 0;
        while (at < string->size && !trm_jinja_is_line_end(trm_utf8_read(string->text + at, &length))) {
            at += length;
        }
        size_t end = at;
        if (at < string->size) {
            at += length;
            at += string->text[end] == '\r' && at < string->size && string->text[at] == '\n';
        }
        trm_jinja_value line = trm_jinja_text(string->text + begin, (keep_ends ? at : end) - begin);
        TRM_TRY(trm_jinja_list_append(run, list->list, &line));
    }
    return TRM_OK;
}

static trm_status replace_into(trm_jinja_run *run, const trm_jinja_value *string, const trm_jinja_value *from,
                               const trm_jinja_value *to, int64_t most, trm_bytes *out)
{
    size_t at = 0;
    TRM_TRY(trm_bytes_reserve(out, string->size));
    for (int64_t n = 0; n != most; n++) {
        if (out->size > ((size_t)256 << 20)) {
            return trm_jinja_fail(run, "a text with replacements is too long");
        }
        size_t found = trm_jinja_find_text(string, at, from);
        if (found == SIZE_MAX || (from->size == 0 && at >= string->size)) {
            if (from->size == 0) {
                TRM_TRY(trm_bytes_append(out, to->text, to->size)); /* the empty text after the end */
            }
            break;
        }
        TRM_TRY(trm_bytes_append(out, string->text + at, found - at));
        TRM_TRY(trm_bytes_append(out, to->text, to->size));
        at = found + from->size;
        if (from->size == 0) { /* before each character */
            size_t size = trm_utf8_size(string->text[at]);
            TRM_TRY(trm_bytes_append(out, string->text + at, size));
            at += size;
        }
    }
    return trm_bytes_append(out, string->text + at, string->size - at);
}

trm_status trm_jinja_replace(trm_jinja_run *run, const trm_jinja_value *string, const trm_jinja_value *from,
                             const trm_jinja_value *to, int64_t most, trm_jinja_value *result)
{
    trm_bytes out = {0};
    TRM_TRY(trm_jinja_charge(run, string->size / 16));
    trm_status status = replace_into(run, string, from, to, most, &out);
    return trm_jinja_take(run, &out, status, result);
}

trm_status trm_jinja_join(trm_jinja_run *run, const trm_jinja_list *items, const trm_jinja_value *separator,
                          trm_jinja_value *result)
{
    trm_bytes out = {0};
    trm_status status = trm_bytes_reserve(&out, 1);
    for (size_t i = 0; i < items->count && status == TRM_OK; i++) {
        if (i > 0) {
            status = trm_bytes_append(&out, separator->text, separator->size);
        }
        if (status == TRM_OK) {
            status = trm_jinja_charge(run, 1 + separator->size / 64);
        }
        if (status == TRM_OK) {
            status = trm_jinja_write(run, &items->items[i], &out);
        }
        if (status == TRM_OK && out.size > ((size_t)256 << 20)) {
            status = trm_jinja_fail(run, "a joined text is too long");
        }
    }
    return trm_jinja_take(run, &out, status, result);
}

static trm_status recase_into(const trm_jinja_value *string, trm_jinja_casing casing, trm_bytes *out)
{
    bool first = true, in_word = false;
    TRM_TRY(trm_bytes_reserve(out, string->size));
    for (size_t at = 0; at < string->size;) {
        size_t size;
        int32_t c = trm_utf8_read(string->text + at, &size);
        trm_jinja_case to = casing == TRM_JINJA_UPPER ? TRM_JINJA_CASE_UPPER : TRM_JINJA_CASE_LOWER;
        if (casing == TRM_JINJA_SWAP && trm_jinja_is_lower(c)) {
            to = TRM_JINJA_CASE_UPPER;
        } else if ((casing == TRM_JINJA_TITLE && !in_word) || (casing == TRM_JINJA_CAPITALIZE && first)) {
            to = TRM_JINJA_CASE_TITLE;
        }
        in_word = trm_jinja_is_upper(c) || trm_jinja_is_lower(c);
        first = false;
        TRM_TRY(trm_jinja_append_cased(out, c, to));
        at += size;
    }
    return TRM_OK;
}

trm_status trm_jinja_recase(trm_jinja_run *run, const trm_jinja_value *string, trm_jinja_casing casing,
                            trm_jinja_value *result)
{
    trm_bytes out = {0};
    TRM_TRY(trm_jinja_charge(run, string->size / 16));
    trm_status status = recase_into(string, casing, &out);
    return trm_jinja_take(run, &out, status, result);
}

trm_status trm_jinja_pad(trm_jinja_run *run, const trm_jinja_value *string, int64_t width, const trm_jinja_value *fill,
                         int side, trm_jinja_value *result)
{
    int64_t length;
    TRM_TRY(trm_jinja_length(run, string, &length));
    if (width > WIDEST) {
        return trm_jinja_fail(run, "a text of %lld characters is too wide", (long long)width);
    }
    int64_t missing = width > length ? width - length : 0;
    /* center puts the extra character at the left if both are odd, as in Python */
    int64_t left = side < 0 ? 0 : side > 0 ? missing : missing / 2 + (missing & width & 1);
    trm_bytes out = {0};
    trm_status status = trm_bytes_reserve(&out, 1);
    for (int64_t i = 0; i <= missing && status == TRM_OK; i++) {
        if (i == left) {
            status = trm_bytes_append(&out, string->text, string->size);
        }
        if (i < missing && status == TRM_OK) {
            status = trm_bytes_append(&out, fill->text, fill->size);
        }
    }
    return trm_jinja_take(run, &out, status, result);
}
