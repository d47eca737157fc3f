/* Rules of the kinds whose dims follow from values or from data. */
#include "support/rule_case.h"
#include "support/support.h"

/* clang-format off */
#define SHAPE(...) {.kind = TRM_LAYER_SHAPE, .shape = {__VA_ARGS__}}
#define RESHAPE(zero_, ...) {.kind = TRM_LAYER_RESHAPE, .reshape = {{__VA_ARGS__}, zero_}}
#define SLICE(...) {.kind = TRM_LAYER_SLICE, .slice = {__VA_ARGS__}}
#define EXPAND(...) {.kind = TRM_LAYER_EXPAND, .expand = {{__VA_ARGS__}}}
#define TILE {.kind = TRM_LAYER_TILE}
#define RANGE {.kind = TRM_LAYER_RANGE}
#define NON_ZERO {.kind = TRM_LAYER_NON_ZERO}
#define UNIQUE(...) {.kind = TRM_LAYER_UNIQUE, .unique = {__VA_ARGS__}}
/* clang-format on */

typedef struct valued_case {
    rule_case rule;
    int64_t values[3][4]; /* of inputs 1 to 3; of RANGE, 0 to 2 */
} valued_case;

static void run_valued(const valued_case *tests, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const void *values[RULE_CASE_INPUTS] = {NULL};
        int32_t first = tests[i].rule.desc.kind == TRM_LAYER_RANGE ? 0 : 1;
        for (int32_t k = 0; k < 3; k++) {
            values[first + k] = tests[i].values[k];
        }
        rule_case_run_with(&tests[i].rule, values);
    }
}

static void without_values(void **state)
{
    (void)state;
    static const rule_case cases[] = {
        {SHAPE(0, INT32_MAX), {"f32[2,?,4]"}, "i64[3]"},
        {SHAPE(-1, 9), {"f32[2,?,4]"}, "i64[1]"},
        {SHAPE(2, 1), {"f32[2,?,4]"}, "i64[0]"},
        {SHAPE(0, INT32_MAX), {"f32[]"}, "i64[0]"},
        {SHAPE(0, 1), {NULL}, "!found 0 inputs, expected 1"},
        {RESHAPE(false, 0), {"f32[2,6]", "i64[3]"}, "f32[?,?,?]"},
        {RESHAPE(false, 3, {-1, 2, 6}), {"f32[2,6]", "i64[3]"}, "f32[?,2,6]"},
        {RESHAPE(false, 0), {"f32[2,6]", "i64[?]"}, "!shape has dims [?], expected a known number of sizes"},
        {RESHAPE(false, 0), {"f32[2,6]", "f32[2]"}, "!shape has type f32, expected i32"},
        {RESHAPE(true, 2, {0, 5}), {"f32[0,6]"}, "f32[0,5]"},
        {RESHAPE(true, 2, {0, 5}), {"f32[2,6]"}, "!the numbers of elements differ"},
        {RESHAPE(true, 2, {0, -1}), {"f32[0,6]"}, "!the numbers of elements differ"},
        {RESHAPE(true, 2, {0, 5}), {"f32[?,6]"}, "f32[0,5]"},
        {SLICE(0, 3, 0, -1), {"f32[5]"}, "f32[3]"},
        {SLICE(0, -1, INT64_MIN, -2), {"f32[5]"}, "f32[3]"},
        {SLICE(0, 9, -9, -1), {"f32[5]"}, "f32[5]"},
        {SLICE(0, 9, -9, -1), {"f32[0]"}, "f32[0]"},
        {SLICE(0, 4, 0, INT64_MIN), {"f32[5]"}, "f32[1]"},
        {SLICE(0, 0, 3, 1), {"f32[5]", "-", "i64[1]"}, "f32[?]"},
        {EXPAND(3, {2, 3, 4}), {"f32[3,1]"}, "f32[2,3,4]"},
        {EXPAND(1, {4}), {"f32[3,1]"}, "f32[3,4]"},
        {EXPAND(2, {2, 4}), {"f32[3,1]"}, "!do not broadcast"},
        {EXPAND(2, {-1, 4}), {"f32[3,1]"}, "!expand to size -1 at dimension 0"},
        {EXPAND(0), {"f32[3,1]", "i64[3]"}, "f32[?,3,?]"},
        {EXPAND(3, {-1, -1, 7}), {"f32[3,1]", "i64[3]"}, "f32[?,3,7]"},
        {TILE, {"f32[3,1]", "i64[2]"}, "f32[?,?]"},
        {TILE, {"f32[3,1]"}, "!found 1 inputs, expected 2"},
        {RANGE, {"f32[]", "f32[1]", "f32[]"}, "f32[?]"},
        {RANGE, {"f32[]", "f32[2]", "f32[]"}, "!limit has dims [2], expected one element"},
        {RANGE, {"f32[]", "i64[]", "f32[]"}, "!limit has type i64, expected f32"},
        {RANGE, {"u8[]", "u8[]", "u8[]"}, "!start has type u8"},
        {NON_ZERO, {"bool[2,3]"}, "i64[2,?] i64[]"},
        {UNIQUE(.flatten = true), {"f32[2,3]"}, "f32[?] i64[?] i64[6] i64[?] i64[]"},
        {UNIQUE(.axis = -1), {"f32[2,3]"}, "f32[2,?] i64[?] i64[3] i64[?] i64[]"},
        {UNIQUE(.axis = 2), {"f32[2,3]"}, "!found axis 2"},
    };
    RUN_CASES(cases);
}

static void with_values(void **state)
{
    (void)state;
    static const valued_case cases[] = {
        {{RESHAPE(false, 0), {"f32[2,6]", "i64[3]"}, "f32[2,3,2]"}, {{0, 3, -1}}},
        {{RESHAPE(false, 2, {7, 7}), {"f32[2,6]", "i64[2]"}, "f32[3,4]"}, {{3, 4}}},
        {{RESHAPE(true, 0), {"f32[2,0]", "i64[2]"}, "f32[0,9]"}, {{0, 9}}},
        {{RESHAPE(false, 0), {"f32[2,6]", "i64[2]"}, "!the numbers of elements differ"}, {{5, 2}}},
        {{RESHAPE(false, 0), {"f32[2,6]", "i64[2]"}, "!expected sizes of at least 0 and at most one -1"}, {{-1, -1}}},
        {{SLICE(0, 0, 0, 0), {"f32[9]", "i64[1]", "i64[]", "i64[1]"}, "f32[3]"}, {{8}, {1}, {-3}}},
        {{SLICE(0, 2, 0, 1), {"f32[9]", "-", "i64[1]"}, "f32[5]"}, {{0}, {7}}},
        {{SLICE(0, 0, 0, 0), {"f32[9]", "i64[1]", "i64[1]", "i64[1]"}, "!slice has step 0"}, {{0}, {1}, {0}}},
        {{SLICE(0, 0, 9, 1), {"f32[9]", "i64[2]"}, "!start has 2 values, expected 1"}, {{0, 1}}},
        {{EXPAND(0), {"f32[3,1]", "i64[3]"}, "f32[2,3,4]"}, {{2, 1, 4}}},
        {{EXPAND(0), {"f32[3,1]", "i64[2]"}, "!do not broadcast"}, {{2, 4}}},
        {{TILE, {"f32[3,?]", "i64[2]"}, "f32[6,?]"}, {{2, 5}}},
        {{TILE, {"f32[3,2]", "i64[2]"}, "!found -1 repeats of axis 1"}, {{2, -1}}},
        {{TILE, {"f32[3,2]", "i64[2]"}, "!overflows"}, {{INT64_MAX, 1}}},
        {{RANGE, {"i64[]", "i64[]", "i64[]"}, "i64[4]"}, {{10}, {0}, {-3}}},
        {{RANGE, {"i64[]", "i64[]", "i64[]"}, "i64[0]"}, {{10}, {0}, {3}}},
        {{RANGE, {"i64[]", "i64[]", "i64[]"}, "!delta is 0"}, {{10}, {0}, {0}}},
        {{RANGE, {"i64[]", "i64[]", "i64[]"}, "!do not fit into memory"}, {{INT64_MIN}, {INT64_MAX}, {1}}},
    };
    run_valued(cases, sizeof(cases) / sizeof(cases[0]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(without_values), cmocka_unit_test(with_values)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
