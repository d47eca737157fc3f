/* Sizes and numbers as text: none of them says 0 of what is there. */
#include "support/support.h"

#include "base/unit.h"

static void sizes(void **state)
{
    (void)state;
    static const struct {
        double bytes;
        const char *text;
    } cases[] = {
        {0, "0.00 KiB"},
        {1, "1 B"},
        {127, "127 B"},
        {128, "0.12 KiB"},
        {4096, "4.00 KiB"},
        {0x1p17 - 1, "128.00 KiB"},
        {0x1p17, "0.12 MiB"},
        {1.5 * 0x1p20, "1.50 MiB"},
        {0x1p27 - 1024, "128.00 MiB"},
        {0x1p27, "0.12 GiB"},
        {140.25 * 0x1p30, "140.25 GiB"},
        {0x1p44, "16384.00 GiB"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_string_equal(trm_size_text(cases[i].bytes).text, cases[i].text);
        assert_true(strstr(cases[i].text, trm_unit_of(cases[i].bytes).name) || strstr(cases[i].text, " B"));
    }
    assert_true(trm_unit_of(0x1p20).bytes == 0x1p20);
}

static void counts(void **state)
{
    (void)state;
    static const struct {
        int64_t count;
        const char *text;
    } cases[] = {{0, "0"},
                 {3, "3"},
                 {99999, "99999"},
                 {100000, "0.100 million"},
                 {7344000, "7.344 million"},
                 {494032768, "494.033 million"},
                 {8030261248, "8.030 billion"}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_string_equal(trm_count_text(cases[i].count).text, cases[i].text);
    }
}

static void numbers(void **state)
{
    (void)state;
    static const struct {
        double number;
        int decimals;
        const char *text;
    } cases[] = {
        {1369.06, 1, "1369.1"},
        {16.42, 1, "16.4"},
        {1, 1, "1.0"},
        {0.97, 1, "0.97"},
        {0.0432, 1, "0.043"},
        {0.01, 1, "0.010"},
        {0, 1, "0.0"},
        {0.0000123, 1, "0.000012"},
        {2.5e-9, 1, "2.5e-09"},
        {5321.4, 0, "5321"},
        {5.32, 0, "5.3"},
        {0.04, 0, "0.040"},
        {0, 0, "0"},
        {12.345, 2, "12.35"},
        {0.0041, 2, "0.0041"},
        {1e12, 2, "1000000000000.00"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_string_equal(trm_number_text(cases[i].number, cases[i].decimals).text, cases[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes),
        cmocka_unit_test(counts),
        cmocka_unit_test(numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
