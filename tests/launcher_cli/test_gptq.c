/* Rounding by GPTQ: the layer's outputs are nearer to those of the weight than with the nearest numbers. */
#include "support/support.h"

#include <math.h>
#include <stdlib.h>

#include "launcher/cli/quantize/gptq.h"

enum { INPUTS = 300, ROWS = 20, COLUMNS = 64, GROUP = 16, GROUPS = COLUMNS / GROUP };

static float weight[ROWS * COLUMNS], scales[ROWS * GROUPS], inputs[INPUTS * COLUMNS];
static int8_t numbers[ROWS * COLUMNS];
static double sums[COLUMNS * COLUMNS];

static void make_weight(void)
{
    uint64_t seed = 7;
    for (int i = 0; i < ROWS * COLUMNS; i++) {
        weight[i] = test_random_float(&seed);
    }
    for (int i = 0; i < ROWS * GROUPS; i++) {
        float most = 0.0f;
        for (int c = 0; c < GROUP; c++) {
            most = fmaxf(most, fabsf(weight[i * GROUP + c]));
        }
        scales[i] = most / 7.5f;
    }
}

static int nearest(int r, int c)
{
    const long number = lrint((double)weight[r * COLUMNS + c] / (double)scales[r * GROUPS + c / GROUP]);
    return (int)(number > 7 ? 7 : number < -8 ? -8 : number);
}

/* The square of the difference of all outputs. */
static double output_error(bool by_gptq)
{
    double error = 0.0;
    for (int t = 0; t < INPUTS; t++) {
        for (int r = 0; r < ROWS; r++) {
            double sum = 0.0;
            for (int c = 0; c < COLUMNS; c++) {
                const int number = by_gptq ? numbers[r * COLUMNS + c] : nearest(r, c);
                const double d = (double)weight[r * COLUMNS + c] - number * (double)scales[r * GROUPS + c / GROUP];
                sum += d * (double)inputs[t * COLUMNS + c];
            }
            error += sum * sum;
        }
    }
    return error;
}

static void round_weight(void)
{
    memset(sums, 0, sizeof(sums));
    gptq_add_inputs(NULL, sums, inputs, INPUTS, COLUMNS);
    assert_true(gptq_factor(NULL, sums, COLUMNS));
    assert_true(gptq_round(NULL, sums, weight, scales, ROWS, COLUMNS, GROUP, -8, 7, numbers));
}

static void correlated_inputs_make_up_for_errors(void **state)
{
    (void)state;
    uint64_t seed = 11;
    make_weight();
    for (int t = 0; t < INPUTS; t++) {
        float shared[4];
        for (int k = 0; k < 4; k++) {
            shared[k] = test_random_float(&seed);
        }
        for (int c = 0; c < COLUMNS; c++) {
            inputs[t * COLUMNS + c] = shared[c % 4] + 0.5f * shared[c / 16] + 0.2f * test_random_float(&seed);
        }
    }
    round_weight();
    const double by_gptq = output_error(true), by_nearest = output_error(false);
    if (getenv("TRM_TEST_VERBOSE") != NULL) {
        print_message("error %.4f of that of the nearest numbers\n", by_gptq / by_nearest);
    }
    assert_true(by_gptq < 0.5 * by_nearest);
}

/* Inputs of which one is not 0 at a time: no number makes up for another. */
static void separate_inputs_leave_the_nearest(void **state)
{
    (void)state;
    make_weight();
    memset(inputs, 0, sizeof(inputs));
    for (int t = 0; t < INPUTS; t++) {
        inputs[t * COLUMNS + t % COLUMNS] = 1.0f + (float)(t % 7);
    }
    round_weight();
    for (int i = 0; i < ROWS * COLUMNS; i++) {
        assert_int_equal(numbers[i], nearest(i / COLUMNS, i % COLUMNS));
    }
}

/* factors' factors is the inverse of the damped sums. */
static void factors_are_those_of_the_inverse(void **state)
{
    (void)state;
    uint64_t seed = 3;
    static double whole[COLUMNS * COLUMNS];
    double mean = 0.0;
    for (int i = 0; i < INPUTS * COLUMNS; i++) {
        inputs[i] = test_random_float(&seed) + (float)(i % 5) * 0.1f;
    }
    memset(whole, 0, sizeof(whole));
    for (int t = 0; t < INPUTS; t++) {
        for (int i = 0; i < COLUMNS * COLUMNS; i++) {
            whole[i] += (double)inputs[t * COLUMNS + i / COLUMNS] * (double)inputs[t * COLUMNS + i % COLUMNS];
        }
    }
    for (int i = 0; i < COLUMNS; i++) {
        mean += whole[i * COLUMNS + i] / COLUMNS;
    }
    for (int i = 0; i < COLUMNS; i++) {
        whole[i * COLUMNS + i] += 0.01 * mean;
    }
    memset(sums, 0, sizeof(sums));
    gptq_add_inputs(NULL, sums, inputs, INPUTS, COLUMNS);
    assert_true(gptq_factor(NULL, sums, COLUMNS));
    for (int i = 0; i < COLUMNS; i++) {
        for (int j = 0; j < COLUMNS; j++) { /* (factors' factors) whole */
            double product = 0.0;
            for (int k = 0; k < COLUMNS; k++) {
                double inverse = 0.0;
                for (int l = 0; l <= i && l <= k; l++) {
                    inverse += sums[l * COLUMNS + i] * sums[l * COLUMNS + k];
                }
                product += inverse * whole[k * COLUMNS + j];
            }
            assert_true(fabs(product - (i == j ? 1.0 : 0.0)) < 1e-9);
        }
    }
}

static void bad_sums_are_noticed(void **state)
{
    (void)state;
    memset(sums, 0, sizeof(sums));
    assert_true(gptq_factor(NULL, sums, COLUMNS));
    sums[3 * COLUMNS + 3] = NAN;
    assert_false(gptq_factor(NULL, sums, COLUMNS));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(correlated_inputs_make_up_for_errors),
        cmocka_unit_test(separate_inputs_leave_the_nearest),
        cmocka_unit_test(factors_are_those_of_the_inverse),
        cmocka_unit_test(bad_sums_are_noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
