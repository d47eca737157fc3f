/* Characters with the properties of Python's str. */
#include "launcher/text/jinja/text.h"

#include <utf8proc.h>

#include "base/error.h"
#include "launcher/text/strings/unicode.h"
#include "launcher/text/strings/utf8.h"

bool trm_jinja_is_space(int32_t codepoint)
{
    return trm_unicode_is_space(codepoint) || (codepoint >= 0x1c && codepoint <= 0x1f);
}

bool trm_jinja_is_line_end(int32_t codepoint)
{
    return (codepoint >= 0x0a && codepoint <= 0x0d) || (codepoint >= 0x1c && codepoint <= 0x1e) || codepoint == 0x85 ||
           codepoint == 0x2028 || codepoint == 0x2029;
}

bool trm_jinja_is_printable(int32_t codepoint)
{
    switch (utf8proc_category(codepoint)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
        return false;
    case UTF8PROC_CATEGORY_ZS:
        return codepoint == ' ';
    default:
        return true;
    }
}

bool trm_jinja_is_letter(int32_t codepoint)
{
    utf8proc_category_t category = utf8proc_category(codepoint);
    return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

bool trm_jinja_is_decimal(int32_t codepoint)
{
    return utf8proc_category(codepoint) == UTF8PROC_CATEGORY_ND;
}

/* Decimal digits, superscripts, and digits in circles and brackets: the single digits of category No. */
bool trm_jinja_is_digit(int32_t codepoint)
{
    return trm_jinja_is_decimal(codepoint) || codepoint == 0xb2 || codepoint == 0xb3 || codepoint == 0xb9 ||
           codepoint == 0x2070 || (codepoint >= 0x2074 && codepoint <= 0x2079) ||
           (codepoint >= 0x2080 && codepoint <= 0x2089) || (codepoint >= 0x2460 && codepoint <= 0x2468);
}

bool trm_jinja_is_numeric(int32_t codepoint)
{
    return trm_unicode_is_numeric(codepoint);
}

bool trm_jinja_is_upper(int32_t codepoint)
{
    return utf8proc_isupper(codepoint) != 0;
}

bool trm_jinja_is_lower(int32_t codepoint)
{
    return utf8proc_islower(codepoint) != 0;
}

bool trm_jinja_is_word(int32_t codepoint)
{
    return codepoint == '_' || trm_jinja_is_letter(codepoint) || trm_unicode_is_numeric(codepoint);
}

trm_status trm_jinja_append_cased(trm_bytes *out, int32_t codepoint, trm_jinja_case to)
{
    if (codepoint == 0xdf && to != TRM_JINJA_CASE_LOWER) { /* sharp s, the most common special casing */
        return trm_bytes_append(out, to == TRM_JINJA_CASE_UPPER ? "SS" : "Ss", 2);
    }
    return trm_bytes_append_codepoint(out, to == TRM_JINJA_CASE_UPPER   ? utf8proc_toupper(codepoint)
                                           : to == TRM_JINJA_CASE_LOWER ? utf8proc_tolower(codepoint)
                                                                        : utf8proc_totitle(codepoint));
}

size_t trm_jinja_leading_space(const char *text, size_t size)
{
    size_t at = 0;
    while (at < size) {
        size_t length;
        if (!trm_jinja_is_space(trm_utf8_read(text + at, &length))) {
            break;
        }
        at += length;
    }
    return at;
}

size_t trm_jinja_trailing_space(const char *text, size_t size)
{
    size_t end = size;
    while (end > 0) {
        size_t length;
        if (!trm_jinja_is_space(trm_utf8_read_back(text, text + end, &length))) {
            break;
        }
        end -= length;
    }
    return size - end;
}
