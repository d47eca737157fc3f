/* Methods of strings, as Python's str has them. */
#include <stdint.h>
#include <string.h>

#include "base/error.h"
#include "launcher/text/jinja/builtin.h"
#include "launcher/text/jinja/string.h"
#include "launcher/text/jinja/text.h"
#include "launcher/text/utf8.h"

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

static trm_status strip(trm_jinja_call *call, bool left, bool right)
{
    const trm_jinja_value *chars = call->bound[0];
    if (chars != NULL && chars->kind != TRM_JINJA_NONE) {
        TRM_TRY(need_string(call, chars));
    } else {
        chars = NULL;
    }
    TRM_TRY(trm_jinja_charge(call->run, call->self->size / 64));
    *call->result = trm_jinja_strip(call->self, chars, left, right);
    return TRM_OK;
}

static trm_status method_strip(trm_jinja_call *call)
{
    return strip(call, true, true);
}

static trm_status method_lstrip(trm_jinja_call *call)
{
    return strip(call, true, false);
}

static trm_status method_rstrip(trm_jinja_call *call)
{
    return strip(call, false, true);
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

/* The same from the end; the parts are gathered backwards. */
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

static trm_status split(trm_jinja_call *call, bool from_right)
{
    int64_t most = -1;
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

static trm_status method_split(trm_jinja_call *call)
{
    return split(call, false);
}

static trm_status method_rsplit(trm_jinja_call *call)
{
    return split(call, true);
}

static trm_status method_splitlines(trm_jinja_call *call)
{
    TRM_TRY(trm_jinja_charge(call->run, call->self->size / 64));
    return trm_jinja_split_lines(call->run, call->self, trm_jinja_bound_truth(call, 0, false), call->result);
}

/* The part of the string that start and end (parameters 1 and 2) leave, and where it begins in it. */
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

static trm_status test_affix(trm_jinja_call *call, bool at_end)
{
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

static trm_status method_startswith(trm_jinja_call *call)
{
    return test_affix(call, false);
}

static trm_status method_endswith(trm_jinja_call *call)
{
    return test_affix(call, true);
}

static trm_status remove_affix(trm_jinja_call *call, bool at_end)
{
    TRM_TRY(need_string(call, call->bound[0]));
    *call->result = *call->self;
    if (has_affix(call->self, call->bound[0], at_end)) {
        call->result->size -= call->bound[0]->size;
        call->result->text += at_end ? 0 : call->bound[0]->size;
    }
    return TRM_OK;
}

static trm_status method_removeprefix(trm_jinja_call *call)
{
    return remove_affix(call, false);
}

static trm_status method_removesuffix(trm_jinja_call *call)
{
    return remove_affix(call, true);
}

static trm_status find(trm_jinja_call *call, bool last, bool must)
{
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

static trm_status method_find(trm_jinja_call *call)
{
    return find(call, false, false);
}

static trm_status method_rfind(trm_jinja_call *call)
{
    return find(call, true, false);
}

static trm_status method_index(trm_jinja_call *call)
{
    return find(call, false, true);
}

static trm_status method_rindex(trm_jinja_call *call)
{
    return find(call, true, true);
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

static trm_status partition(trm_jinja_call *call, bool last)
{
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

static trm_status method_partition(trm_jinja_call *call)
{
    return partition(call, false);
}

static trm_status method_rpartition(trm_jinja_call *call)
{
    return partition(call, true);
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

static trm_status change_case(trm_jinja_call *call, trm_jinja_casing casing)
{
    return trm_jinja_recase(call->run, call->self, casing, call->result);
}

static trm_status method_upper(trm_jinja_call *call)
{
    return change_case(call, TRM_JINJA_UPPER);
}

static trm_status method_lower(trm_jinja_call *call)
{
    return change_case(call, TRM_JINJA_LOWER);
}

static trm_status method_title(trm_jinja_call *call)
{
    return change_case(call, TRM_JINJA_TITLE);
}

static trm_status method_capitalize(trm_jinja_call *call)
{
    return change_case(call, TRM_JINJA_CAPITALIZE);
}

static trm_status method_swapcase(trm_jinja_call *call)
{
    return change_case(call, TRM_JINJA_SWAP);
}

static trm_status pad(trm_jinja_call *call, int side)
{
    int64_t width = 0;
    trm_jinja_value fill;
    TRM_TRY(trm_jinja_bound_integer(call, 0, &width));
    TRM_TRY(trm_jinja_bound_text(call, 1, " ", &fill));
    if (trm_utf8_count(fill.text, fill.size) != 1) {
        return trm_jinja_fail(call->run, "the fill character must be exactly one character long");
    }
    return trm_jinja_pad(call->run, call->self, width, &fill, side, call->result);
}

static trm_status method_ljust(trm_jinja_call *call)
{
    return pad(call, -1);
}

static trm_status method_center(trm_jinja_call *call)
{
    return pad(call, 0);
}

static trm_status method_rjust(trm_jinja_call *call)
{
    return pad(call, 1);
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

/* Whether the string has characters and all of them are of a kind. */
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

/* The tests of Jinja2 by these names are the methods. */
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
    {"strip", method_strip, 0, "chars"},
    {"lstrip", method_lstrip, 0, "chars"},
    {"rstrip", method_rstrip, 0, "chars"},
    {"split", method_split, 0, "sep maxsplit"},
    {"rsplit", method_rsplit, 0, "sep maxsplit"},
    {"splitlines", method_splitlines, 0, "keepends"},
    {"startswith", method_startswith, 1, "prefix start end"},
    {"endswith", method_endswith, 1, "suffix start end"},
    {"removeprefix", method_removeprefix, 1, "prefix"},
    {"removesuffix", method_removesuffix, 1, "suffix"},
    {"find", method_find, 1, "sub start end"},
    {"rfind", method_rfind, 1, "sub start end"},
    {"index", method_index, 1, "sub start end"},
    {"rindex", method_rindex, 1, "sub start end"},
    {"count", method_count, 1, "sub start end"},
    {"partition", method_partition, 1, "sep"},
    {"rpartition", method_rpartition, 1, "sep"},
    {"replace", method_replace, 2, "old new count"},
    {"join", method_join, 1, "iterable"},
    {"upper", method_upper, 0, ""},
    {"lower", method_lower, 0, ""},
    {"casefold", method_lower, 0, ""},
    {"title", method_title, 0, ""},
    {"capitalize", method_capitalize, 0, ""},
    {"swapcase", method_swapcase, 0, ""},
    {"ljust", method_ljust, 1, "width fillchar"},
    {"center", method_center, 1, "width fillchar"},
    {"rjust", method_rjust, 1, "width fillchar"},
    {"zfill", method_zfill, 1, "width"},
    {"isspace", method_isspace, 0, ""},
    {"isalpha", method_isalpha, 0, ""},
    {"isdecimal", method_isdecimal, 0, ""},
    {"isdigit", method_isdigit, 0, ""},
    {"isnumeric", method_isnumeric, 0, ""},
    {"isalnum", method_isalnum, 0, ""},
    {"isupper", method_isupper, 0, ""},
    {"islower", method_islower, 0, ""},
    {"format", trm_jinja_brace_format, 0, NULL},
};
const size_t trm_jinja_n_string_methods = sizeof(trm_jinja_string_methods) / sizeof(trm_jinja_string_methods[0]);
