/* Conversions of the 16-bit floats against exhaustive and known values. */
#include "support/support.h"

#include <math.h>

#include "base/half.h"

static void every_f16_survives_a_round_trip(void **state)
{
    (void)state;
    for (uint32_t bits = 0; bits < 0x10000; bits++) {
        float value = trm_f16_to_f32((uint16_t)bits);
        if (isnan(value)) {
            assert_true(isnan(trm_f16_to_f32(trm_f32_to_f16(value))));
        } else {
            assert_int_equal(trm_f32_to_f16(value), bits);
        }
    }
}

static void f16_rounds_to_nearest_even(void **state)
{
    (void)state;
    for (uint32_t bits = 0; bits < 0x7bff; bits++) {
        float low = trm_f16_to_f32((uint16_t)bits);
        float high = trm_f16_to_f32((uint16_t)(bits + 1));
        float middle = (low + high) / 2; /* exact in f32 */
        assert_int_equal(trm_f32_to_f16(middle), bits + (bits & 1));
        assert_int_equal(trm_f32_to_f16(nextafterf(middle, low)), bits);
        assert_int_equal(trm_f32_to_f16(nextafterf(middle, high)), bits + 1);
    }
    assert_int_equal(trm_f32_to_f16(65519.0f), 0x7bff);
    assert_int_equal(trm_f32_to_f16(65520.0f), 0x7c00);
}

static void bf16_rounds_to_nearest_even(void **state)
{
    (void)state;
    for (uint32_t bits = 0; bits < 0x7f7f; bits++) {
        assert_int_equal(trm_f32_to_bf16(trm_bf16_to_f32((uint16_t)bits)), bits);
        uint32_t middle_bits = (bits << 16) | 0x8000;
        float middle;
        memcpy(&middle, &middle_bits, sizeof(middle));
        assert_int_equal(trm_f32_to_bf16(middle), bits + (bits & 1));
    }
    assert_true(isnan(trm_bf16_to_f32(trm_f32_to_bf16(NAN))));
}

static void f8e4m3_rounds_to_nearest_even_and_saturates(void **state)
{
    (void)state;
    for (uint32_t bits = 0; bits < 0x100; bits++) {
        float value = trm_f8e4m3_to_f32((uint8_t)bits);
        if ((bits & 0x7f) == 0x7f) {
            assert_true(isnan(value));
            continue;
        }
        assert_int_equal(trm_f32_to_f8e4m3(value), bits);
        const int exponent = (int)(bits >> 3 & 15), mantissa = (int)(bits & 7);
        const double size = exponent == 0 ? ldexp(mantissa, -9) : ldexp(8 + mantissa, exponent - 10);
        assert_true((double)value == (bits >= 0x80 ? -size : size));
        if ((bits & 0x7f) == 0x7e) {
            continue;
        }
        float next = trm_f8e4m3_to_f32((uint8_t)(bits + 1)), middle = (value + next) / 2;
        assert_int_equal(trm_f32_to_f8e4m3(middle), bits + (bits & 1));
        assert_int_equal(trm_f32_to_f8e4m3(nextafterf(middle, value)), bits);
        assert_int_equal(trm_f32_to_f8e4m3(nextafterf(middle, next)), bits + 1);
    }
    const float large[] = {448.5f, 463.9f, 464.0f, 480.0f, 1e30f, INFINITY};
    for (size_t i = 0; i < sizeof(large) / sizeof(large[0]); i++) {
        assert_int_equal(trm_f32_to_f8e4m3(large[i]), 0x7e);
        assert_int_equal(trm_f32_to_f8e4m3(-large[i]), 0xfe);
    }
    assert_int_equal(trm_f32_to_f8e4m3(NAN), 0x7f);
    assert_int_equal(trm_f32_to_f8e4m3(1e-40f), 0);
    assert_int_equal(trm_f32_to_f8e4m3(-0.0f), 0x80);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_f16_survives_a_round_trip),
        cmocka_unit_test(f16_rounds_to_nearest_even),
        cmocka_unit_test(bf16_rounds_to_nearest_even),
        cmocka_unit_test(f8e4m3_rounds_to_nearest_even_and_saturates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
