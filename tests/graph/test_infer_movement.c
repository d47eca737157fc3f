/* Rules of the kinds that take or place elements by position, or order them. */
#include "support/support.h"

#include "support/rule_case.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* A case whose input `at` is known to hold `values`. */
typedef struct known_case {
    rule_case rule;
    int32_t at;
    int64_t values[8];
} known_case;

static void run_known(const known_case *test)
{
    const void *values[RULE_CASE_INPUTS] = {NULL};
    values[test->at] = test->values;
    rule_case_run_with(&test->rule, values);
}

static void pad(void **state)
{
    (void)state;
#define PAD(...)                                                                                                       \
    {                                                                                                                  \
        .kind = TRM_LAYER_PAD, .pad = { __VA_ARGS__ }                                                                  \
    }
    static const rule_case cases[] = {
        {PAD(.before = {1, 0}, .after = {2, 3}), {"f32[2,?]"}, "f32[5,?]"},
        {PAD(.before = {-1, 0}), {"i4[2,7]"}, "i4[1,7]"},
        {PAD(.before = {-3}), {"f32[2]"}, "!axis 0 of size 2 is padded by -3 and 0"},
        {PAD(.mode = TRM_PAD_EDGE, .before = {1}), {"f32[0]"}, "!axis 0 has size 0"},
        {PAD(.mode = (trm_pad_mode)9), {"f32[2]"}, "!found pad mode 9"},
        {PAD(0), {"f32[2,3]", "i64[4]"}, "f32[?,?]"},
        {PAD(0), {"f32[2,3]", "i32[4]"}, "!pads has type i32, expected i64"},
        {PAD(0), {"f32[2,3]", "-", "f16[]"}, "!value has type f16, expected f32"},
    };
    static const known_case known[] = {
        {{PAD(0), {"f32[2,3]", "i64[4]"}, "f32[4,2]"}, 1, {1, -1, 1, 0}},
        {{PAD(0), {"f32[2,3]", "i64[3]"}, "!pads has 3 values, expected 4"}, 1, {1, 1, 1}},
    };
    RUN_CASES(cases);
    for (size_t i = 0; i < COUNT(known); i++) {
        run_known(&known[i]);
    }
}

static void gather(void **state)
{
    (void)state;
#define ELEMENTS(axis_)                                                                                                \
    {                                                                                                                  \
        .kind = TRM_LAYER_GATHER_ELEMENTS, .gather_elements = { axis_ }                                                \
    }
#define ROWS(batch)                                                                                                    \
    {                                                                                                                  \
        .kind = TRM_LAYER_GATHER_ND, .gather_nd = { batch }                                                            \
    }
    static const rule_case cases[] = {
        {ELEMENTS(-1), {"bf16[4,9]", "i32[3,20]"}, "bf16[3,20]"},
        {ELEMENTS(0), {"bf16[4,9]", "i64[3,20]"}, "!indices has dims [3, 20], expected as many axes as data [4, 9]"},
        {ELEMENTS(0), {"bf16[4,9]", "i64[3]"}, "!indices has dims [3]"},
        {ELEMENTS(2), {"bf16[4,9]", "i64[3,9]"}, "!found axis 2"},
        {ELEMENTS(0), {"f32[4]", "f32[3]"}, "!indices has type f32, expected i32 or i64"},
        {ROWS(0), {"f32[4,5,6]", "i64[7,8,2]"}, "f32[7,8,6]"},
        {ROWS(1), {"f32[?,5,6]", "i64[3,1]"}, "f32[3,6]"},
        {ROWS(1), {"f32[4,5]", "i64[3,1]"}, "!batch axis 0 of indices is 3, expected 4"},
        {ROWS(0), {"f32[4]", "i64[3,2]"}, "!indices address 2 axes"},
        {ROWS(0), {"f32[4]", "i64[3,?]"}, "!expected a known last axis"},
        {ROWS(2), {"f32[4,3]", "i64[4,2]"}, "!expected a known last axis behind 2 batch axes"},
    };
    RUN_CASES(cases);
}

static void scatter(void **state)
{
    (void)state;
#define SCATTER(...)                                                                                                   \
    {                                                                                                                  \
        .kind = TRM_LAYER_SCATTER, .scatter = { __VA_ARGS__ }                                                          \
    }
    static const rule_case cases[] = {
        {SCATTER(.axis = 1), {"f32[4,5]", "i64[3,9]", "f32[3,9]"}, "f32[4,5]"},
        {SCATTER(.axis = 1), {"f32[4,5]", "i64[3,9]", "f32[3,8]"}, "!updates has dims [3, 8], expected [3, 9]"},
        {SCATTER(.axis = 1), {"f32[4,5]", "i64[5,9]", "f32[5,9]"}, "!indices has dims [5, 9]"},
        {SCATTER(.form = TRM_SCATTER_ND), {"u8[4,5]", "i64[3,1]", "u8[3,5]"}, "u8[4,5]"},
        {SCATTER(.form = TRM_SCATTER_ND),
         {"u8[4,5]", "i64[3,1]", "u8[3,4]"},
         "!updates has dims [3, 4], expected [3, 5]"},
        {SCATTER(.form = TRM_SCATTER_ND), {"u8[4,5]", "i64[3,1]", "i8[3,5]"}, "!updates has type i8, expected u8"},
        {SCATTER(.reduction = (trm_scatter_reduction)7), {"f32[4]", "i64[3]", "f32[3]"}, "!reduction 7"},
    };
    RUN_CASES(cases);
}

static void one_hot(void **state)
{
    (void)state;
#define ONE_HOT(axis_)                                                                                                 \
    {                                                                                                                  \
        .kind = TRM_LAYER_ONE_HOT, .one_hot = { axis_ }                                                                \
    }
#define REVERSE(batch, time_)                                                                                          \
    {                                                                                                                  \
        .kind = TRM_LAYER_REVERSE_SEQUENCE, .reverse_sequence = { batch, time_ }                                       \
    }
    static const rule_case cases[] = {
        {ONE_HOT(-1), {"i64[2,3]", "i64[]", "f16[2]"}, "f16[2,3,?]"},
        {ONE_HOT(3), {"i64[2,3]", "i64[]", "f16[2]"}, "!found axis 3"},
        {ONE_HOT(0), {"i64[2]", "i64[]", "f16[3]"}, "!values has dims [3], expected [2]"},
        {ONE_HOT(0), {"bool[2]", "i64[]", "f16[2]"}, "!indices has type bool"},
        {REVERSE(0, 1), {"f32[2,3,4]", "i64[2]"}, "f32[2,3,4]"},
        {REVERSE(1, 0), {"f32[2,3,4]", "i64[2]"}, "!lengths has dims [2], expected [3]"},
        {REVERSE(1, 1), {"f32[2,3,4]", "i64[3]"}, "!batch axis is 1 and time axis 1"},
        {REVERSE(0, 1), {"f32[2]", "i64[2]"}, "!expected at least 2 dimensions"},
    };
    static const known_case known[] = {
        {{ONE_HOT(1), {"f32[2,3]", "i64[1]", "bool[2]"}, "bool[2,5,3]"}, 1, {5}},
        {{ONE_HOT(1), {"f32[2,3]", "i64[1]", "bool[2]"}, "!depth is -1"}, 1, {-1}},
    };
    RUN_CASES(cases);
    for (size_t i = 0; i < COUNT(known); i++) {
        run_known(&known[i]);
    }
}

static void order(void **state)
{
    (void)state;
#define TOPK(axis_)                                                                                                    \
    {                                                                                                                  \
        .kind = TRM_LAYER_TOPK, .topk = {.axis = axis_ }                                                               \
    }
#define ARG(...)                                                                                                       \
    {                                                                                                                  \
        .kind = TRM_LAYER_ARG_REDUCE, .arg_reduce = { __VA_ARGS__ }                                                    \
    }
    static const rule_case cases[] = {
        {TOPK(-1), {"f32[2,9]", "i64[1]"}, "f32[2,?] i64[2,?]"},
        {TOPK(2), {"f32[2,9]", "i64[1]"}, "!found axis 2"},
        {TOPK(0), {"f32[2,9]", "f32[1]"}, "!k has type f32"},
        {ARG(.axis = 1), {"u16[2,?,4]"}, "i64[2,4]"},
        {ARG(.axis = -2, .keep_dims = true), {"bool[2,?,4]"}, "i64[2,1,4]"},
        {ARG(.axis = 0), {"f32[]"}, "!found axis 0"},
    };
    static const known_case known[] = {
        {{TOPK(1), {"f32[2,9]", "i64[]"}, "f32[2,4] i64[2,4]"}, 1, {4}},
        {{TOPK(1), {"f32[2,9]", "i64[1]"}, "!k is 10, expected 0 to the 9 of axis 1"}, 1, {10}},
    };
    RUN_CASES(cases);
    for (size_t i = 0; i < COUNT(known); i++) {
        run_known(&known[i]);
    }
}

static void fold(void **state)
{
    (void)state;
#define REDUCE(op_)                                                                                                    \
    {                                                                                                                  \
        .kind = TRM_LAYER_REDUCE, .reduce = {.op = op_, .axis = 0 }                                                    \
    }
#define NORM(...)                                                                                                      \
    {                                                                                                                  \
        .kind = TRM_LAYER_NORM, .norm = { __VA_ARGS__ }                                                                \
    }
    static const rule_case cases[] = {
        {REDUCE(TRM_REDUCE_MAX), {"bool[2,3]"}, "bool[3]"},
        {REDUCE(TRM_REDUCE_SUM), {"bool[2,3]"}, "!x has type bool, expected numbers"},
        {REDUCE(TRM_REDUCE_MAX), {"f8e4m3[2,3]"}, "!x has type f8e4m3, expected numbers"},
        {NORM(.op = TRM_NORM_RMS), {"f64[2,3]"}, "f64[2,3]"},
        {NORM(.op = TRM_NORM_LAYER), {"f16[2,?]", "-", "f16[3]"}, "f16[2,3]"},
        {NORM(.op = TRM_NORM_LAYER, .residual = true), {"f16[2,3]", "f16[2,3]"}, "f16[2,3] f16[2,3]"},
    };
    RUN_CASES(cases);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pad),     cmocka_unit_test(gather), cmocka_unit_test(scatter),
        cmocka_unit_test(one_hot), cmocka_unit_test(order),  cmocka_unit_test(fold),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
