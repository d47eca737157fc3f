/* Rules of the kinds that take elements one by one, but elementwise and unary. */
#include "support/rule_case.h"
#include "support/support.h"

#define SELECT                                                                                                         \
    {                                                                                                                  \
        .kind = TRM_LAYER_SELECT                                                                                       \
    }
#define ROTATE(...)                                                                                                    \
    {                                                                                                                  \
        .kind = TRM_LAYER_ROTATE, .rotate = { __VA_ARGS__ }                                                            \
    }
#define CUMULATIVE(...)                                                                                                \
    {                                                                                                                  \
        .kind = TRM_LAYER_CUMULATIVE, .cumulative = { __VA_ARGS__ }                                                    \
    }
#define QUANTIZE(...)                                                                                                  \
    {                                                                                                                  \
        .kind = TRM_LAYER_QUANTIZE, .quantize = { __VA_ARGS__ }                                                        \
    }
#define DEQUANTIZE(...)                                                                                                \
    {                                                                                                                  \
        .kind = TRM_LAYER_DEQUANTIZE, .quantize = { __VA_ARGS__ }                                                      \
    }

#define FOURIER(...)                                                                                                   \
    {                                                                                                                  \
        .kind = TRM_LAYER_FOURIER, .fourier = { __VA_ARGS__ }                                                          \
    }
#define DETERMINANT                                                                                                    \
    {                                                                                                                  \
        .kind = TRM_LAYER_DETERMINANT                                                                                  \
    }
#define RANDOM(o, t)                                                                                                   \
    {                                                                                                                  \
        .kind = TRM_LAYER_RANDOM, .random = {.op = (o), .to = (t), .samples = 5 }                                      \
    }
#define BITS(t)                                                                                                        \
    {                                                                                                                  \
        .kind = TRM_LAYER_CAST, .cast = {.to = (t), .bits = true }                                                     \
    }

static void selecting_and_summing(void **state)
{
    (void)state;
    static const rule_case cases[] = {
        {SELECT, {"bool[2,1]", "f32[3]", "f32[]"}, "f32[2,3]"},
        {SELECT, {"bool[?]", "u4[3]", "u4[1]"}, "u4[3]"},
        {SELECT, {"u8[3]", "f32[3]", "f32[3]"}, "!condition has type u8, expected bool"},
        {SELECT, {"bool[3]", "f32[3]", "f16[3]"}, "!b has type f16, expected f32"},
        {SELECT, {"bool[3]", "f32[4]", "f32[4]"}, "!do not broadcast"},
        {ROTATE(6), {"f16[2,?,8]", "f16[?,6]", "f16[?,6]"}, "f16[2,?,8]"},
        {ROTATE(6), {"f32[2,5,8]", "f32[2,1,3]", "f32[2,1,3]"}, "f32[2,5,8]"},
        {ROTATE(6), {"f32[2,5,8]", "f32[2,1,4]", "f32[2,1,4]"}, "!cos has dims [2, 1, 4], expected 6 or 3 columns"},
        {ROTATE(6), {"f32[2,5,8]", "f32[4,6]", "f32[4,6]"}, "!cos has dims [4, 6]"},
        {ROTATE(6), {"f32[2,5,8]", "f32[5,6]", "f32[5,3]"}, "!sin has dims [5, 3]"},
        {ROTATE(6), {"f32[2,5,8]", "f16[5,6]", "f16[5,6]"}, "!cos has type f16"},
        {ROTATE(10), {"f32[2,5,8]", "f32[5,6]", "f32[5,6]"}, "!rotary_dim is 10, expected"},
        {ROTATE(3), {"f32[2,5,8]", "f32[5,6]", "f32[5,6]"}, "!rotary_dim is 3, expected"},
        {ROTATE(2), {"i32[2,5,8]", "i32[2]", "i32[2]"}, "!x has type i32"},
        {CUMULATIVE(.axis = -1), {"i32[2,?]"}, "i32[2,?]"},
        {CUMULATIVE(.axis = 2), {"i32[2,?]"}, "!found axis 2"},
        {CUMULATIVE(.axis = 0), {"bool[2,?]"}, "!x has type bool, expected numbers"},
    };
    RUN_CASES(cases);
}

static void quantization(void **state)
{
    (void)state;
    static const rule_case cases[] = {
        {QUANTIZE(.to = TRM_U8), {"f16[2,?]", "f16[]", "u8[]"}, "u8[2,?]"},
        {QUANTIZE(.axis = 1, .to = TRM_I8), {"f32[2,3]", "f32[3]", "i8[3]"}, "i8[2,3]"},
        {QUANTIZE(.axis = 1, .block_size = 4, .to = TRM_I4), {"f32[2,9]", "f32[2,3]"}, "i4[2,9]"},
        {QUANTIZE(.axis = 1, .block_size = 4, .to = TRM_I4), {"f32[2,?]", "f32[2,3]"}, "i4[2,?]"},
        {QUANTIZE(.to = TRM_F8E4M3), {"f32[2]", "f32[1]"}, "f8e4m3[2]"},
        {QUANTIZE(.to = TRM_I32), {"f32[2]", "f32[1]"}, "!quantized to i32, expected integers of up to 16 bits"},
        {QUANTIZE(.to = TRM_U8), {"i32[2]", "f32[1]"}, "!x has type i32, expected a float type"},
        {QUANTIZE(.to = TRM_U8), {"f32[2]", "i32[1]"}, "!scale has type i32, expected a float type"},
        {QUANTIZE(.to = TRM_U8), {"f32[2]", "f32[]", "i8[]"}, "!zero_point has type i8, expected u8"},
        {QUANTIZE(.to = TRM_U8), {"f32[2]", "f32[3]"}, "!scale has dims [3], expected [2]"},
        {QUANTIZE(.to = TRM_U8), {"f32[2]", "f32[2]", "u8[1]"}, "!zero_point has dims [1], expected [2]"},
        {QUANTIZE(.block_size = 4, .to = TRM_U8), {"f32[9]", "f32[2]"}, "!scale has dims [2], expected [3]"},
        {QUANTIZE(.block_size = -4, .to = TRM_U8), {"f32[9]", "f32[2]"}, "!block_size is -4, expected at least 0"},
        {DEQUANTIZE(.axis = 0), {"u8[2,?]", "f16[]", "u8[]"}, "f16[2,?]"},
        {DEQUANTIZE(.to = TRM_F32), {"i4[2,?]", "f16[2]"}, "f32[2,?]"},
        {DEQUANTIZE(.to = TRM_F32), {"f4e2m1[8]", "f8e8m0[]"}, "f32[8]"},
        {DEQUANTIZE(.axis = 0), {"f4e2m1[8]", "f8e8m0[]"}, "!dequantized to f8e8m0, expected a float type"},
        {DEQUANTIZE(.axis = 0), {"i64[8]", "f32[]"}, "!x has type i64, expected integers of up to 32 bits"},
    };
    RUN_CASES(cases);
}

static void signals(void **state)
{
    (void)state;
    static const rule_case cases[] = {
        {FOURIER(.axis = 1), {"f32[2,?,1]"}, "f32[2,?,2]"},
        {FOURIER(.axis = -2, .onesided = true), {"f64[2,9,1]"}, "f64[2,5,2]"},
        {FOURIER(.axis = 1, .onesided = true, .length = 16), {"f32[2,?,3,2]"}, "f32[2,9,3,2]"},
        {FOURIER(.axis = 1, .inverse = true, .onesided = true), {"f32[2,9,2]"}, "f32[2,16,1]"},
        {FOURIER(.axis = 1, .inverse = true), {"f32[2,9,2]"}, "f32[2,9,2]"},
        {FOURIER(.axis = 2), {"f32[2,9,2]"}, "!expected 1 or 2 parts behind the axis"},
        {FOURIER(.axis = 1), {"f32[2,9,3]"}, "!expected 1 or 2 parts behind the axis"},
        {FOURIER(.axis = 1, .length = -1), {"f32[2,9,2]"}, "!length is -1, expected at least 0"},
        {FOURIER(.axis = 1, .inverse = true, .onesided = true), {"f32[2,0,2]"}, "!x has no points of a spectrum"},
        {DETERMINANT, {"f32[?,3,3]"}, "f32[?]"},
        {DETERMINANT, {"f64[4,4]"}, "f64[]"},
        {DETERMINANT, {"f32[2,3]"}, "!x has dims [2, 3], expected square matrices"},
        {RANDOM(TRM_RANDOM_UNIFORM, TRM_F32), {"i64[3]"}, "f32[?,?,?]"},
        {RANDOM(TRM_RANDOM_NORMAL, TRM_I32), {"i64[3]"}, "!random numbers of type i32, expected a float type"},
        {RANDOM(TRM_RANDOM_NORMAL, TRM_F32), {"i64[?]"}, "!shape has -1 values, expected a known number"},
        {RANDOM(TRM_RANDOM_BERNOULLI, TRM_BOOL), {"f32[3,?]"}, "bool[3,?]"},
        {RANDOM(TRM_RANDOM_BERNOULLI, TRM_I4), {"f32[3,?]"}, "!random numbers of type i4"},
        {RANDOM(TRM_RANDOM_MULTINOMIAL, TRM_I64), {"f32[3,9]"}, "i64[3,5]"},
        {RANDOM(TRM_RANDOM_MULTINOMIAL, TRM_F32), {"f32[3,9]"}, "!random numbers of type f32, expected i32 or i64"},
    };
    RUN_CASES(cases);
    static const int64_t shape[] = {4, 5}, wrong[] = {4, -5};
    const void *values[RULE_CASE_INPUTS] = {shape};
    const rule_case known = {RANDOM(TRM_RANDOM_UNIFORM, TRM_F16), {"i64[2]"}, "f16[4,5]"};
    rule_case_run_with(&known, values);
    const rule_case negative = {RANDOM(TRM_RANDOM_UNIFORM, TRM_F16), {"i64[2]"}, "!shape has -5"};
    values[0] = wrong;
    rule_case_run_with(&negative, values);
}

static void casts_of_bits(void **state)
{
    (void)state;
    static const rule_case cases[] = {
        {BITS(TRM_F32), {"i32[3]"}, "f32[3]"},
        {BITS(TRM_U4), {"f4e2m1[3]"}, "u4[3]"},
        {BITS(TRM_F16), {"i32[3]"}, "!cast of the bits of i32 to f16, expected types of one size"},
        {BITS(TRM_U8), {"i4[3]"}, "!cast of the bits of i4 to u8, expected types of one size"},
    };
    RUN_CASES(cases);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(selecting_and_summing), cmocka_unit_test(quantization),
                                       cmocka_unit_test(signals), cmocka_unit_test(casts_of_bits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
