/* Limits by histograms of numbers whose best ones are known. */
#include "support/support.h"

#include <math.h>
#include <stdlib.h>

#include "launcher/cli/quantize/observer.h"

enum { COUNT = 100000 };

static float numbers[COUNT];

/* The limit of a rule, after numbers were seen in two parts. */
static double limit_of(observer_rule rule)
{
    observer *o = calloc(1, sizeof(*o));
    assert_non_null(o);
    observer_measure(o, numbers, COUNT / 2);
    observer_measure(o, numbers + COUNT / 2, COUNT / 2);
    observer_count(o, numbers, COUNT / 2);
    observer_count(o, numbers + COUNT / 2, COUNT / 2);
    const double limit = 127.0 * (double)observer_scale(o, rule);
    free(o);
    return limit;
}

/* Uniform numbers from -1 to 1. */
static void make_uniform(void)
{
    uint64_t seed = 5;
    for (int i = 0; i < COUNT; i++) {
        numbers[i] = test_random_float(&seed);
    }
    numbers[7] = -1.0f;
}

static void uniform_numbers_are_not_cut(void **state)
{
    (void)state;
    make_uniform();
    assert_true(fabs(limit_of(OBSERVER_MINMAX) - 1.0) < 1e-6);
    assert_true(limit_of(OBSERVER_PERCENTILE) > 0.999);
    assert_true(limit_of(OBSERVER_MSE) > 0.98);
    assert_true(limit_of(OBSERVER_ENTROPY) > 0.9);
}

/* Five numbers of a hundred thousand are ten times the others: a scale for them would waste most levels. */
static void a_few_outliers_are_cut(void **state)
{
    (void)state;
    make_uniform();
    for (int i = 0; i < 5; i++) {
        numbers[100 * i] = 10.0f;
    }
    assert_true(fabs(limit_of(OBSERVER_MINMAX) - 10.0) < 1e-5);
    assert_true(fabs(limit_of(OBSERVER_PERCENTILE) - 1.0) < 0.01);
    assert_true(limit_of(OBSERVER_ENTROPY) < 1.5);
    assert_true(limit_of(OBSERVER_MSE) < 10.0);
}

/* What cutting the outliers costs is more than what it gains. */
static void outliers_that_weigh_stay(void **state)
{
    (void)state;
    make_uniform();
    for (int i = 0; i < 2000; i++) {
        numbers[50 * i] = 10.0f;
    }
    assert_true(limit_of(OBSERVER_MSE) > 9.9);
    assert_true(limit_of(OBSERVER_PERCENTILE) > 9.9);
}

static void odd_numbers_have_a_scale(void **state)
{
    (void)state;
    observer *o = calloc(1, sizeof(*o));
    observer_rule rule;
    const float zeros[3] = {0.0f}, bad[2] = {1.0f, NAN};
    observer_measure(o, zeros, 3);
    observer_count(o, zeros, 3);
    assert_true(observer_scale(o, OBSERVER_ENTROPY) == 1.0f);
    observer_measure(o, bad, 2);
    assert_true(isnan(o->largest));
    assert_true(observer_rule_named("entropy", &rule) && rule == OBSERVER_ENTROPY);
    assert_false(observer_rule_named("kl", &rule));
    free(o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(uniform_numbers_are_not_cut),
        cmocka_unit_test(a_few_outliers_are_cut),
        cmocka_unit_test(outliers_that_weigh_stay),
        cmocka_unit_test(odd_numbers_have_a_scale),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
