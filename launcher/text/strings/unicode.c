/* Properties of code points and normal forms. */
#include "launcher/text/strings/unicode.h"

#include <stdlib.h>
#include <string.h>

#include <utf8proc.h>

#include "base/error.h"
#include "launcher/text/strings/utf8.h"

typedef struct range {
    int32_t first, last;
} range;

/*
 * Differences from the tokenizers library: its tables are of Unicode 8 for categories, 9 for combining marks, 10 for
 * decompositions and combining classes. These ranges are punctuation, marks, controls, decomposable characters and
 * classes that came later. Numbers and cases it takes from Rust's own tables, of Unicode 17.
 */
static const range later_categories[] = {
    {0x61D, 0x61D},     {0x7FD, 0x7FD},     {0x890, 0x8E2},     {0x9FD, 0x9FE},     {0xA76, 0xA76},
    {0xAFA, 0xAFF},     {0xB55, 0xB55},     {0xC04, 0xC3C},     {0xC77, 0xC77},     {0xC84, 0xC84},
    {0xD00, 0xD00},     {0xD3B, 0xD3C},     {0xD81, 0xD81},     {0xEBA, 0xEBA},     {0xECE, 0xECE},
    {0x180F, 0x1886},   {0x1ABF, 0x1ACE},   {0x1B7D, 0x1B7E},   {0x1DF6, 0x1DFB},   {0x2E43, 0x2E5D},
    {0xA82C, 0xA82C},   {0xA8C5, 0xA8C5},   {0xA8FF, 0xA8FF},   {0xA9BD, 0xA9BD},   {0x10D24, 0x10F89},
    {0x11070, 0x11074}, {0x110C2, 0x110CD}, {0x111CF, 0x111CF}, {0x1123E, 0x11241}, {0x1133B, 0x1133B},
    {0x11438, 0x1145E}, {0x11660, 0x1166C}, {0x116B9, 0x116B9}, {0x1182F, 0x11FFF}, {0x12FF1, 0x13455},
    {0x16E97, 0x16F4F}, {0x16FE2, 0x16FE4}, {0x1CF00, 0x1CF46}, {0x1E000, 0x1E4EF}, {0x1E944, 0x1E95F}};
static const range later_marks[] = {
    {0x7FD, 0x7FD},     {0x898, 0x8D3},     {0x9FE, 0x9FE},     {0xAFA, 0xAFF},     {0xB55, 0xB55},
    {0xC04, 0xC3C},     {0xCF3, 0xCF3},     {0xD00, 0xD00},     {0xD3B, 0xD3C},     {0xD81, 0xD81},
    {0xEBA, 0xEBA},     {0xECE, 0xECE},     {0x1715, 0x1715},   {0x180F, 0x180F},   {0x1ABF, 0x1ACE},
    {0x1CF7, 0x1CF7},   {0x1DF6, 0x1DFA},   {0xA82C, 0xA82C},   {0xA8FF, 0xA8FF},   {0x10D24, 0x10F85},
    {0x11070, 0x11074}, {0x110C2, 0x110C2}, {0x11145, 0x11146}, {0x111CE, 0x111CF}, {0x11241, 0x11241},
    {0x1133B, 0x1133B}, {0x1145E, 0x1145E}, {0x1182C, 0x11A99}, {0x11D31, 0x11F42}, {0x13440, 0x13455},
    {0x16F4F, 0x16F4F}, {0x16F7F, 0x16F87}, {0x16FE4, 0x16FF1}, {0x1CF00, 0x1CF46}, {0x1E08F, 0x1E4EF}};
static const range later_decompositions[] = {{0x32FF, 0x32FF},   {0xA7F2, 0xA7F4},   {0xAB69, 0xAB69},
                                             {0x10781, 0x107BA}, {0x11938, 0x11938}, {0x1E030, 0x1E06D},
                                             {0x1F16C, 0x1F16C}, {0x1FBF0, 0x1FBF9}};
static const range later_classes[] = {{0x7FD, 0x7FD},     {0x898, 0x89F},     {0x8CA, 0x8D3},     {0x9FE, 0x9FE},
                                      {0xC3C, 0xC3C},     {0xD3B, 0xD3C},     {0xEBA, 0xEBA},     {0x1715, 0x1715},
                                      {0x1ABF, 0x1ACE},   {0x1DF6, 0x1DFA},   {0xA82C, 0xA82C},   {0x10D24, 0x10F85},
                                      {0x11070, 0x11070}, {0x1133B, 0x1133B}, {0x1145E, 0x1145E}, {0x11839, 0x11A99},
                                      {0x11D42, 0x11F42}, {0x16FF0, 0x16FF1}, {0x1E08F, 0x1E4EF}};
static const range later_numbers[] = {{0x10D40, 0x10D49}, {0x116D0, 0x116E3}, {0x11BF0, 0x11BF9},
                                      {0x11DE0, 0x11DE9}, {0x16130, 0x16139}, {0x16D70, 0x16D79},
                                      {0x16FF4, 0x16FF6}, {0x1CCF0, 0x1CCF9}, {0x1E5F1, 0x1E5FA}};
static const struct later_case {
    int32_t first, last, lower;
} later_cases[] = {{0x1C89, 0x1C89, 0x1C8A},   {0xA7CB, 0xA7CB, 0x264},  {0xA7CC, 0xA7CC, 0xA7CD},
                   {0xA7CE, 0xA7CE, 0xA7CF},   {0xA7D2, 0xA7D2, 0xA7D3}, {0xA7D4, 0xA7D4, 0xA7D5},
                   {0xA7DA, 0xA7DA, 0xA7DB},   {0xA7DC, 0xA7DC, 0x19B},  {0x10D50, 0x10D65, 0x10D70},
                   {0x16EA0, 0x16EB8, 0x16EBB}};

static bool in_ranges(const range *ranges, size_t count, int32_t c)
{
    for (size_t i = 0; i < count && ranges[i].first <= c; i++) {
        if (c <= ranges[i].last) {
            return true;
        }
    }
    return false;
}

#define IN(ranges, c) in_ranges(ranges, sizeof(ranges) / sizeof((ranges)[0]), c)

bool trm_unicode_is_space(int32_t c)
{
    if (c < 0x80) {
        return c == ' ' || (c >= 0x9 && c <= 0xD);
    }
    return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
           c == 0x202F || c == 0x205F || c == 0x3000;
}

bool trm_unicode_is_numeric(int32_t c)
{
    if (c < 0x80) {
        return c >= '0' && c <= '9';
    }
    utf8proc_category_t category = utf8proc_category(c);
    return (category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO) || IN(later_numbers, c);
}

bool trm_unicode_is_punctuation(int32_t c)
{
    if (c < 0x80) {
        return (c >= 0x21 && c <= 0x2F) || (c >= 0x3A && c <= 0x40) || (c >= 0x5B && c <= 0x60) ||
               (c >= 0x7B && c <= 0x7E);
    }
    utf8proc_category_t category = utf8proc_category(c);
    bool other = c == 0x166D || c == 0x111C9; /* punctuation in that version */
    return other || (category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO && !IN(later_categories, c));
}

bool trm_unicode_is_mark(int32_t c)
{
    utf8proc_category_t category = utf8proc_category(c);
    bool other = c == 0x1CF2 || c == 0x1CF3; /* marks in that version */
    return other || (category >= UTF8PROC_CATEGORY_MN && category <= UTF8PROC_CATEGORY_ME && c != 0x111C9 &&
                     !IN(later_marks, c));
}

bool trm_unicode_is_mark_nonspacing(int32_t c)
{
    bool other = c == 0x1734; /* nonspacing in that version */
    return other || (utf8proc_category(c) == UTF8PROC_CATEGORY_MN && c != 0x111C9 && !IN(later_categories, c));
}

bool trm_unicode_is_control(int32_t c)
{
    utf8proc_category_t category = utf8proc_category(c);
    bool control =
        category == UTF8PROC_CATEGORY_CC || category == UTF8PROC_CATEGORY_CF || category == UTF8PROC_CATEGORY_CO;
    return control && !IN(later_categories, c);
}

bool trm_unicode_is_cjk_ideograph(int32_t c)
{
    return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
           (c >= 0x2A700 && c <= 0x2B73F) || (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
           (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

const char *trm_unicode_category(int32_t codepoint)
{
    return utf8proc_category_string(codepoint);
}

trm_status trm_unicode_append_lower(trm_bytes *out, int32_t c)
{
    if (c == 0x130) { /* the only character whose lower case has two code points */
        return trm_bytes_append(out, "i\xCC\x87", 3);
    }
    for (size_t i = 0; c >= 0x1C89 && i < sizeof(later_cases) / sizeof(later_cases[0]); i++) {
        if (c >= later_cases[i].first && c <= later_cases[i].last) {
            return trm_bytes_append_codepoint(out, c - later_cases[i].first + later_cases[i].lower);
        }
    }
    return trm_bytes_append_codepoint(out, c < 0x80 ? c + (c >= 'A' && c <= 'Z') * 32 : utf8proc_tolower(c));
}

bool trm_unicode_breaks(int32_t before, int32_t after, int32_t *state)
{
    return utf8proc_grapheme_break_stateful(before, after, state);
}

typedef struct codepoints {
    int32_t *data;
    size_t size, capacity;
} codepoints;

static trm_status codepoints_reserve(codepoints *list, size_t more)
{
    void *data = list->data;
    TRM_TRY(trm_array_grow(&data, &list->capacity, list->size + more, sizeof(*list->data)));
    list->data = data;
    return TRM_OK;
}

static trm_status decompose(codepoints *list, const char *text, size_t size, utf8proc_option_t options)
{
    int boundary = 0;
    for (size_t at = 0, step; at < size; at += step) {
        int32_t c = trm_utf8_read(text + at, &step);
        TRM_TRY(codepoints_reserve(list, 32)); /* the longest decomposition has 18 code points */
        if (c < 0x80 || IN(later_decompositions, c)) {
            list->data[list->size++] = c;
            continue;
        }
        utf8proc_ssize_t count = utf8proc_decompose_char(c, list->data + list->size, 32, options, &boundary);
        if (count < 0 || count > 32) {
            TRM_FAIL(TRM_ERROR_INTERNAL, "cannot decompose U+%04X: %s", (unsigned)c,
                     count < 0 ? utf8proc_errmsg(count) : "too long");
        }
        list->size += (size_t)count;
    }
    return TRM_OK;
}

static uint8_t combining_class(int32_t c)
{
    return IN(later_classes, c) ? 0 : (uint8_t)utf8proc_get_property(c)->combining_class;
}

/* Sorts each run of marks by combining class, stably. By counting, because runs come from requests and may be long. */
static trm_status order_marks(codepoints *list)
{
    int32_t *sorted = NULL;
    trm_status status = TRM_OK;
    for (size_t begin = 0; begin < list->size;) {
        size_t end = begin;
        bool ordered = true;
        uint8_t last = 0;
        for (; end < list->size && list->data[end] >= 0x300; end++) {
            uint8_t class = combining_class(list->data[end]);
            if (class == 0) {
                break;
            }
            ordered = ordered && class >= last;
            last = class;
        }
        if (!ordered) {
            if (sorted == NULL && (sorted = malloc(list->size * sizeof(*sorted))) == NULL) {
                status = trm_fail(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %zu code points", list->size);
                break;
            }
            size_t starts[257] = {0};
            for (size_t i = begin; i < end; i++) {
                starts[combining_class(list->data[i]) + 1]++;
            }
            for (size_t i = 1; i < 257; i++) {
                starts[i] += starts[i - 1];
            }
            for (size_t i = begin; i < end; i++) {
                sorted[starts[combining_class(list->data[i])]++] = list->data[i];
            }
            memcpy(list->data + begin, sorted, (end - begin) * sizeof(*sorted));
        }
        begin = end + 1;
    }
    free(sorted);
    return status;
}

/* Composes the text between marks that utf8proc knows and the library does not, since nothing composes across them; and
 * only before U+11930, because later characters compose in later versions only. */
static trm_status compose(codepoints *list)
{
    size_t size = 0;
    for (size_t begin = 0, end; begin < list->size; begin = end) {
        for (end = begin + 1; end < list->size; end++) {
            if (list->data[end] >= 0x300 && (IN(later_classes, list->data[end]) || list->data[end] == 0x11930)) {
                break;
            }
        }
        utf8proc_ssize_t count = utf8proc_normalize_utf32(list->data + begin, (utf8proc_ssize_t)(end - begin),
                                                          (utf8proc_option_t)(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
        if (count < 0) {
            TRM_FAIL(TRM_ERROR_INTERNAL, "cannot compose a text: %s", utf8proc_errmsg(count));
        }
        memmove(list->data + size, list->data + begin, (size_t)count * sizeof(*list->data));
        size += (size_t)count;
    }
    list->size = size;
    return TRM_OK;
}

trm_status trm_unicode_append_normal(trm_bytes *out, const char *text, size_t size, trm_normal_form form)
{
    size_t ascii = 0;
    while (ascii < size && (unsigned char)text[ascii] < 0x80) {
        ascii++;
    }
    if (ascii == size) {
        return trm_bytes_append(out, text, size);
    }
    bool compatible = form == TRM_NFKC || form == TRM_NFKD;
    int options = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (compatible ? UTF8PROC_COMPAT : 0);
    codepoints list = {0};
    trm_status status;
    TRM_TRY_GOTO(status, decompose(&list, text, size, (utf8proc_option_t)options), done);
    TRM_TRY_GOTO(status, order_marks(&list), done);
    if (form == TRM_NFC || form == TRM_NFKC) {
        TRM_TRY_GOTO(status, compose(&list), done);
    }
    TRM_TRY_GOTO(status, trm_bytes_reserve(out, list.size * 4), done);
    for (size_t i = 0; i < list.size; i++) {
        out->size += trm_utf8_write(out->data + out->size, list.data[i]);
    }
done:
    free(list.data);
    return status;
}
