/* Normal forms and properties are those of the versions of Unicode that Hugging Face tokenizers has tables of, older
 * and newer ones than ours. The expected texts were printed by its normalizers (0.23.3), over which all code points
 * agree. */
#include "launcher/text/strings/unicode.h"

#include <stdlib.h>

#include "support/support.h"

static void normal_forms_are_of_unicode_10(void **state)
{
    (void)state;
    static const struct {
        trm_normal_form form;
        const char *text, *expected;
    } examples[] = {
        {TRM_NFD, u8"a\u0323\u0301", u8"a\u0323\u0301"},
        {TRM_NFD, u8"a\u0301\u0323", u8"a\u0323\u0301"},
        {TRM_NFD, u8"a\u0345\u1abf", u8"a\u0345\u1abf"}, /* a mark of Unicode 13: no class, stays behind */
        {TRM_NFD, u8"a\u0301\U0001e2ae\u0323", u8"a\u0301\U0001e2ae\u0323"},
        {TRM_NFC, u8"a\u0e48\u0301e\u0301", u8"\u00e1\u0e48\u00e9"}, /* one that was there: composed over */
        {TRM_NFC, u8"a\u1abf\u0301", u8"a\u1abf\u0301"},
        {TRM_NFC, u8"a\u1abfe\u0301\u1abf\u0301", u8"a\u1abf\u00e9\u1abf\u0301"},
        {TRM_NFC, u8"e\u0301\U00011935\U00011930e\u0301", u8"\u00e9\U00011935\U00011930\u00e9"},
        {TRM_NFC, u8"\u1100\u1161\u11a8", u8"\uac01"},
        {TRM_NFKD, u8"\U0001e030\ufb01", u8"\U0001e030fi"}, /* a decomposition of Unicode 15 */
        {TRM_NFKC, u8"\U0001e06d\u2460", u8"\U0001e06d1"},
    };
    for (size_t i = 0; i < sizeof(examples) / sizeof(examples[0]); i++) {
        trm_bytes out = {0};
        const char *text = examples[i].text, *expected = examples[i].expected;
        assert_ok(trm_unicode_append_normal(&out, text, strlen(text), examples[i].form));
        if (out.size != strlen(expected) || memcmp(out.data, expected, out.size) != 0) {
            fail_msg("example %zu: %.*s, expected %s", i, (int)out.size, (const char *)out.data, expected);
        }
        free(out.data);
    }
}

static void lower_cases_are_of_unicode_17(void **state)
{
    (void)state;
    static const int32_t upper[] = {'A', 0xC9, 0x1C89, 0xA7CB, 0xA7DC, 0x10D51, 0x16EB8, 0x10D66};
    static const char lower[] = u8"a\u00e9\u1c8a\u0264\u019b\U00010d71\U00016ed3\U00010d66";
    trm_bytes out = {0};
    for (size_t i = 0; i < sizeof(upper) / sizeof(upper[0]); i++) {
        assert_ok(trm_unicode_append_lower(&out, upper[i]));
    }
    assert_int_equal(out.size, sizeof(lower) - 1);
    assert_memory_equal(out.data, lower, out.size);
    free(out.data);
}

static void properties_are_of_the_same_versions(void **state)
{
    (void)state;
    assert_true(trm_unicode_is_mark(0x301) && trm_unicode_is_mark(0xCBC) && trm_unicode_is_mark(0x1CF3));
    assert_false(trm_unicode_is_mark(0xCF3) || trm_unicode_is_mark(0xECE) || trm_unicode_is_mark(0x11F01) ||
                 trm_unicode_is_mark(0x13440) || trm_unicode_is_mark(0x1E4EF));
    assert_true(trm_unicode_is_mark_nonspacing(0x301) && trm_unicode_is_mark_nonspacing(0x1734));
    assert_false(trm_unicode_is_mark_nonspacing(0xECE) || trm_unicode_is_mark_nonspacing(0x11241) ||
                 trm_unicode_is_mark_nonspacing(0x1E4EC));
    assert_true(trm_unicode_is_control(0xAD) && trm_unicode_is_control(0xE000));
    assert_false(trm_unicode_is_control(0x13439) || trm_unicode_is_control(0x13430));
    assert_true(trm_unicode_is_numeric(0x661) && trm_unicode_is_numeric(0x10D40) && trm_unicode_is_numeric(0x1E5FA));
    assert_false(trm_unicode_is_numeric(0x10D4A) || trm_unicode_is_numeric('a'));
    assert_true(trm_unicode_is_punctuation(0x2014));
    assert_false(trm_unicode_is_punctuation(0x2E5D));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(normal_forms_are_of_unicode_10),
        cmocka_unit_test(lower_cases_are_of_unicode_17),
        cmocka_unit_test(properties_are_of_the_same_versions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
