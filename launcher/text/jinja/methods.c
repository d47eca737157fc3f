/* Methods of strings, as in Python's str. */
#include <stdint.h>
#include <string.h>

#include "base/error.h"
#include "launcher/text/jinja/builtin.h"
#include "launcher/text/jinja/string.h"
#include "launcher/text/jinja/text.h"
#include "launcher/text/strings/utf8.h"

/* The direction of a search, and whether it must find something. */
enum { FROM_LEFT = 1, FROM_RIGHT = 2, MUST = 4 };

static trm_status give_bool(trm_jinja_call *call, bool truth)
{
    *call->result = trm_jinja_bool(truth);
    return TRM_OK;
}

static trm_status need_string(const trm_jinja_call *call, const trm_jinja_value *value)
{
    return value->kind == TRM_JINJA_STRING
               ? TRM_OK
               : trm_jinja_fail(call->run, "expected a str, found '%s'", trm_jinja_type_name(value));
}

static trm_status strip(trm_jinja_call *call)
{
    const trm_jinja_value *chars = call->bound[0];
    if (chars != NULL && chars->kind != TRM_JINJA_NONE) {
        TRM_TRY(need_string(call, chars));
    } else {
        chars = NULL;
    }
    TRM_TRY(trm_jinja_charge(call->run, call->self->size / 64));
    *call->result = trm_jinja_strip(call->self, chars, (call->way & FROM_LEFT) != 0, (call->way & FROM_RIGHT) != 0);
    return TRM_OK;
}

static trm_status append_text(trm_jinja_call *call, const char *text, size_t size)
{
    trm_jinja_value part = trm_jinja_text(text, size);
    return trm_jinja_list_append(call->run, call->result->list, &part);
}

/* Splits at runs of white space. */
static trm_status split_space(trm_jinja_call *call, int64_t most)
{
    const char *text = call->self->text;
    size_t size = call->self->size, at = trm_jinja_leading_space(text, size);
    for (int64_t n = 0; at < size; n++) {
        if (n == most) {
            return append_text(call, text + at, size - at);
        }
        size_t begin = at, length;
        while (at < size && !trm_jinja_is_space(trm_utf8_read(text + at, &length))) {
            at += length;
        }
        TRM_TRY(append_text(call, text + begin, at - begin));
        at += trm_jinja_leading_space(text + at, size - at);
    }
    return TRM_OK;
}

static trm_status split_text(trm_jinja_call *call, const trm_jinja_value *separator, int64_t most)
{
    size_t at = 0;
    for (int64_t n = 0; n != most; n++) {
        size_t found = trm_jinja_find_text(call->self, at, separator);
        if (found == SIZE_MAX) {
            break;
        }
        TRM_TRY(append_text(call, call->self->text + at, found - at));
        at = found + separator->size;
    }
    return append_text(call, call->self->text + at, call->self->size - at);
}

static void reverse_list(trm_jinja_list *list)
{
    for (size_t i = 0; i < list->count / 2; i++) {
        trm_jinja_value other = list->items[i];
        list->items[i] = list->items[list->count - 1 - i];
        list->items[list->count - 1 - i] = other;
    }
}

/* The same from the end; the parts are collected backwards. */
static trm_status rsplit_text(trm_jinja_call *call, const trm_jinja_value *separator, int64_t most)
{
    trm_jinja_value rest = *call->self;
    for (int64_t n = 0; n != most; n++) {
        size_t found = trm_jinja_find_last(&rest, separator);
        if (found == SIZE_MAX) {
            break;
        }
        TRM_TRY(append_text(call, rest.text + found + separator->size, rest.size - found - separator->size));
        rest.size = found;
    }
    TRM_TRY(append_text(call, rest.text, rest.size));
    reverse_list(call->result->list);
    return TRM_OK;
}

static trm_status rsplit_space(trm_jinja_call *call, int64_t most)
{
    const char *text = call->self->text;
    size_t end = call->self->size - trm_jinja_trailing_space(text, call->self->size);
    for (int64_t n = 0; end > 0; n++) {
        size_t begin = n == most ? 0 : end, length;
        while (n != most && begin > 0 && !trm_jinja_is_space(trm_utf8_read_back(text, text + begin, &length))) {
            begin -= length;
        }
        TRM_TRY(append_text(call, text + begin, end - begin));
        end = n == most ? 0 : begin - trm_jinja_trailing_space(text, begin);
    }
    reverse_list(call->result->list);
    return TRM_OK;
}

static trm_status split(trm_jinja_call *call)
{
    int64_t most = -1;
    bool from_right = call->way == FROM_RIGHT;
    const trm_jinja_value *separator = call->bound[0];
    TRM_TRY(trm_jinja_bound_integer(call, 1, &most));
    TRM_TRY(trm_jinja_charge(call->run, call->self->size / 64));
    TRM_TRY(trm_jinja_new_list(call->run, TRM_JINJA_LIST, 0, call->result));
    most = most < 0 ? -1 : most;
    if (separator == NULL || separator->kind == TRM_JINJA_NONE) {
        return from_right && most >= 0 ? rsplit_space(call, most) : split_space(call, most);
    }
    TRM_TRY(need_string(call, separator));
    if (separator->size == 0) {
        return trm_jinja_fail(call->run, "empty separator");
    }
    return from_right ? rsplit_text(call, separator, most) : split_text(call, separator, most);
}

static trm_status method_splitlines(trm_jinja_call *call)
{
    TRM_TRY(trm_jinja_charge(call->run, call->self->size / 64));
    return trm_jinja_split_lines(call->run, call->self, trm_jinja_bound_truth(call, 0, false), call->result);
}

/* The part of the string given by start and end (parameters 1 and 2), and its position. */
static trm_status bounded_part(trm_jinja_call *call, trm_jinja_value *part, int64_t *offset)
{
    const trm_jinja_value *bounds[3] = {call->bound[1], call->bound[2], NULL};
    *part = *call->self;
    *offset = 0;
    TRM_TRY(trm_jinja_charge(call->run, call->self->size / 64));
    if (bounds[0] != NULL || bounds[1] != NULL) {
        TRM_TRY(trm_jinja_slice(call->run, call->self, bounds, part));
        *offset = (int64_t)trm_utf8_count(call->self->text, (size_t)(part->text - call->self->text));
    }
    return TRM_OK;
}

static bool has_affix(const trm_jinja_value *text, const trm_jinja_value *affix, bool at_end)
{
    return affix->size <= text->size &&
           memcmp(at_end ? text->text + text->size - affix->size : text->text, affix->text, affix->size) == 0;
}

static trm_status test_affix(trm_jinja_call *call)
{
    bool at_end = call->way == FROM_RIGHT;
    trm_jinja_value part;
    int64_t offset;
    const trm_jinja_value *affix = call->bound[0];
    TRM_TRY(bounded_part(call, &part, &offset));
    if (affix->kind != TRM_JINJA_TUPLE) {
        TRM_TRY(need_string(call, affix));
        return give_bool(call, has_affix(&part, affix, at_end));
    }
    bool holds = false;
    for (size_t i = 0; i < affix->list->count; i++) {
        TRM_TRY(need_string(call, &affix->list->items[i]));
        holds |= has_affix(&part, &affix->list->items[i], at_end);
    }
    return give_bool(call, holds);
}

static trm_status remove_affix(trm_jinja_call *call)
{
    bool at_end = call->way == FROM_RIGHT;
    TRM_TRY(need_string(call, call->bound[0]));
    *call->result = *call->self;
    if (has_affix(call->self, call->bound[0], at_end)) {
        call->result->size -= call->bound[0]->size;
        call->result->text += at_end ? 0 : call->bound[0]->size;
    }
    return TRM_OK;
}

static trm_status find(trm_jinja_call *call)
{
    bool last = (call->way & FROM_RIGHT) != 0, must = (call->way & MUST) != 0;
    trm_jinja_value part;
    int64_t offset;
    TRM_TRY(need_string(call, call->bound[0]));
    TRM_TRY(bounded_part(call, &part, &offset));
    size_t found = last ? trm_jinja_find_last(&part, call->bound[0]) : trm_jinja_find_text(&part, 0, call->bound[0]);
    if (found == SIZE_MAX && must) {
        return trm_jinja_fail(call->run, "substring not found");
    }
    *call->result = trm_jinja_integer(found == SIZE_MAX ? -1 : offset + (int64_t)trm_utf8_count(part.text, found));
    return TRM_OK;
}

static trm_status method_count(trm_jinja_call *call)
{
    trm_jinja_value part;
    int64_t offset, count = 0;
    TRM_TRY(need_string(call, call->bound[0]));
    TRM_TRY(bounded_part(call, &part, &offset));
    if (call->bound[0]->size == 0) {
        *call->result = trm_jinja_integer((int64_t)trm_utf8_count(part.text, part.size) + 1);
        return TRM_OK;
    }
    for (size_t at = 0; (at = trm_jinja_find_text(&part, at, call->bound[0])) != SIZE_MAX; count++) {
        at += call->bound[0]->size;
    }
    *call->result = trm_jinja_integer(count);
    return TRM_OK;
}

static trm_status partition(trm_jinja_call *call)
{
    bool last = call->way == FROM_RIGHT;
    const trm_jinja_value *self = call->self, *separator = call->bound[0];
    TRM_TRY(need_string(call, separator));
    if (separator->size == 0) {
        return trm_jinja_fail(call->run, "empty separator");
    }
    TRM_TRY(trm_jinja_charge(call->run, self->size / 64));
    TRM_TRY(trm_jinja_new_list(call->run, TRM_JINJA_TUPLE, 3, call->result));
    size_t found = last ? trm_jinja_find_last(self, separator) : trm_jinja_find_text(self, 0, separator);
    bool there = found != SIZE_MAX;
    size_t before = there ? found : last ? 0 : self->size, behind = there ? found + separator->size : before;
    TRM_TRY(append_text(call, self->text, before));
    TRM_TRY(append_text(call, self->text + before, there ? separator->size : 0));
    return append_text(call, self->text + behind, self->size - behind);
}

static trm_status method_replace(trm_jinja_call *call)
{
    int64_t most = -1;
    TRM_TRY(need_string(call, call->bound[0]));
    TRM_TRY(need_string(call, call->bound[1]));
    TRM_TRY(trm_jinja_bound_integer(call, 2, &most));
    return trm_jinja_replace(call->run, call->self, call->bound[0], call->bound[1], most, call->result);
}

static trm_status method_join(trm_jinja_call *call)
{
    const trm_jinja_list *items;
    TRM_TRY(trm_jinja_items(call->run, call->bound[0], &items));
    for (size_t i = 0; i < items->count; i++) {
        if (items->items[i].kind != TRM_JINJA_STRING) {
            return trm_jinja_fail(call->run, "sequence item %zu: expected str instance, %s found", i,
                                  trm_jinja_type_name(&items->items[i]));
        }
    }
    return trm_jinja_join(call->run, items, call->self, call->result);
}

trm_status trm_jinja_change_case(trm_jinja_call *call)
{
    trm_jinja_value text;
    TRM_TRY(trm_jinja_string(call->run, call->self, &text));
    return trm_jinja_recase(call->run, &text, (trm_jinja_casing)call->way, call->result);
}

/* way: -1 text at the left, 1 at the right, 0 in the middle. */
static trm_status pad(trm_jinja_call *call)
{
    int64_t width = 0;
    trm_jinja_value fill;
    TRM_TRY(trm_jinja_bound_integer(call, 0, &width));
    TRM_TRY(trm_jinja_bound_text(call, 1, " ", &fill));
    if (trm_utf8_count(fill.text, fill.size) != 1) {
        return trm_jinja_fail(call->run, "the fill character must be exactly one character long");
    }
    return trm_jinja_pad(call->run, call->self, width, &fill, call->way, call->result);
}

static trm_status method_zfill(trm_jinja_call *call)
{
    int64_t width = 0;
    TRM_TRY(trm_jinja_bound_integer(call, 0, &width));
    const trm_jinja_value zero = trm_jinja_text("0", 1);
    const trm_jinja_value *self = call->self;
    bool sign = self->size > 0 && (self->text[0] == '-' || self->text[0] == '+');
    if (!sign) {
        return trm_jinja_pad(call->run, self, width, &zero, 1, call->result);
    }
    trm_jinja_value digits = trm_jinja_text(self->text + 1, self->size - 1), padded;
    TRM_TRY(trm_jinja_pad(call->run, &digits, width - 1, &zero, 1, &padded));
    trm_bytes text = {0};
    trm_status status = trm_bytes_append(&text, self->text, 1);
    if (status == TRM_OK) {
        status = trm_bytes_append(&text, padded.text, padded.size);
    }
    return trm_jinja_take(call->run, &text, status, call->result);
}

/* Whether the string is not empty and all its characters are of a kind. */
static trm_status test_all(trm_jinja_call *call, bool (*is)(int32_t codepoint))
{
    bool all = call->self->size > 0;
    TRM_TRY(trm_jinja_charge(call->run, call->self->size / 64));
    for (size_t at = 0; at < call->self->size && all;) {
        size_t size;
        all = is(trm_utf8_read(call->self->text + at, &size));
        at += size;
    }
    return give_bool(call, all);
}

static trm_status method_isspace(trm_jinja_call *call)
{
    return test_all(call, trm_jinja_is_space);
}

static trm_status method_isalpha(trm_jinja_call *call)
{
    return test_all(call, trm_jinja_is_letter);
}

static trm_status method_isdecimal(trm_jinja_call *call)
{
    return test_all(call, trm_jinja_is_decimal);
}

static trm_status method_isnumeric(trm_jinja_call *call)
{
    return test_all(call, trm_jinja_is_numeric);
}

static trm_status method_isdigit(trm_jinja_call *call)
{
    return test_all(call, trm_jinja_is_digit);
}

static bool is_letter_or_number(int32_t codepoint)
{
    return trm_jinja_is_letter(codepoint) || trm_jinja_is_numeric(codepoint);
}

static trm_status method_isalnum(trm_jinja_call *call)
{
    return test_all(call, is_letter_or_number);
}

/* Jinja2's tests of these names are the methods. */
static trm_status test_by_name(trm_jinja_call *call, const char *name)
{
    trm_jinja_value text = trm_jinja_literal(name);
    const trm_jinja_args none = {0};
    return trm_jinja_call_builtin(call->run, trm_jinja_find_test(&text), call->self, &none, call->result);
}

static trm_status method_isupper(trm_jinja_call *call)
{
    return test_by_name(call, "upper");
}

static trm_status method_islower(trm_jinja_call *call)
{
    return test_by_name(call, "lower");
}

const trm_jinja_builtin trm_jinja_string_methods[] = {
    {"strip", strip, 0, "chars", FROM_LEFT | FROM_RIGHT},
    {"lstrip", strip, 0, "chars", FROM_LEFT},
    {"rstrip", strip, 0, "chars", FROM_RIGHT},
    {"split", split, 0, "sep maxsplit", FROM_LEFT},
    {"rsplit", split, 0, "sep maxsplit", FROM_RIGHT},
    {"splitlines", method_splitlines, 0, "keepends", 0},
    {"startswith", test_affix, 1, "prefix start end", FROM_LEFT},
    {"endswith", test_affix, 1, "suffix start end", FROM_RIGHT},
    {"removeprefix", remove_affix, 1, "prefix", FROM_LEFT},
    {"removesuffix", remove_affix, 1, "suffix", FROM_RIGHT},
    {"find", find, 1, "sub start end", FROM_LEFT},
    {"rfind", find, 1, "sub start end", FROM_RIGHT},
    {"index", find, 1, "sub start end", FROM_LEFT | MUST},
    {"rindex", find, 1, "sub start end", FROM_RIGHT | MUST},
    {"count", method_count, 1, "sub start end", 0},
    {"partition", partition, 1, "sep", FROM_LEFT},
    {"rpartition", partition, 1, "sep", FROM_RIGHT},
    {"replace", method_replace, 2, "old new count", 0},
    {"join", method_join, 1, "iterable", 0},
    {"upper", trm_jinja_change_case, 0, "", TRM_JINJA_UPPER},
    {"lower", trm_jinja_change_case, 0, "", TRM_JINJA_LOWER},
    {"casefold", trm_jinja_change_case, 0, "", TRM_JINJA_LOWER},
    {"title", trm_jinja_change_case, 0, "", TRM_JINJA_TITLE},
    {"capitalize", trm_jinja_change_case, 0, "", TRM_JINJA_CAPITALIZE},
    {"swapcase", trm_jinja_change_case, 0, "", TRM_JINJA_SWAP},
    {"ljust", pad, 1, "width fillchar", -1},
    {"center", pad, 1, "width fillchar", 0},
    {"rjust", pad, 1, "width fillchar", 1},
    {"zfill", method_zfill, 1, "width", 0},
    {"isspace", method_isspace, 0, "", 0},
    {"isalpha", method_isalpha, 0, "", 0},
    {"isdecimal", method_isdecimal, 0, "", 0},
    {"isdigit", method_isdigit, 0, "", 0},
    {"isnumeric", method_isnumeric, 0, "", 0},
    {"isalnum", method_isalnum, 0, "", 0},
    {"isupper", method_isupper, 0, "", 0},
    {"islower", method_islower, 0, "", 0},
    {"format", trm_jinja_brace_format, 0, NULL, 0},
};
const size_t trm_jinja_n_string_methods = sizeof(trm_jinja_string_methods) / sizeof(trm_jinja_string_methods[0]);
