/* Which GPUs the code of a build runs on. */
#include "tests/support/support.h"

#include <cmocka.h>

#include "kernels/device/architectures.h"

static void ptx_runs_on_every_newer_gpu(void **state)
{
    (void)state;
    const char *const both[] = {"80", "80-virtual"};
    for (int i = 0; i < 2; i++) {
        assert_false(trm_architectures_run_on(both[i], 7, 5));
        assert_true(trm_architectures_run_on(both[i], 8, 0));
        assert_true(trm_architectures_run_on(both[i], 8, 9));
        assert_true(trm_architectures_run_on(both[i], 9, 0));
        assert_true(trm_architectures_run_on(both[i], 12, 0));
    }
}

static void machine_code_stays_in_its_generation(void **state)
{
    (void)state;
    assert_true(trm_architectures_run_on("80-real", 8, 0));
    assert_true(trm_architectures_run_on("80-real", 8, 6));
    assert_false(trm_architectures_run_on("86-real", 8, 0));
    assert_false(trm_architectures_run_on("80-real", 9, 0));
}

static void special_code_runs_where_it_is_for(void **state)
{
    (void)state;
    const char *const exact[] = {"90a", "90a-real", "90a-virtual"};
    for (int i = 0; i < 3; i++) {
        assert_false(trm_architectures_run_on(exact[i], 8, 0));
        assert_true(trm_architectures_run_on(exact[i], 9, 0));
        assert_false(trm_architectures_run_on(exact[i], 10, 0));
    }
    assert_true(trm_architectures_run_on("100f-real", 10, 3));
    assert_false(trm_architectures_run_on("100f-real", 12, 0));
}

static void one_of_several_is_enough(void **state)
{
    (void)state;
    assert_true(trm_architectures_run_on("80-virtual,90a-real", 8, 0));
    assert_true(trm_architectures_run_on("90a-real,80-virtual", 12, 1));
    static const char all[] = "80,86-real,89-real,90a-real,100-real,120"; /* the default */
    static const int32_t run[][2] = {{8, 0},  {8, 6},  {8, 7},  {8, 9},  {9, 0}, {10, 0},
                                     {10, 3}, {11, 0}, {12, 0}, {12, 1}, {13, 0}};
    for (size_t i = 0; i < sizeof(run) / sizeof(run[0]); i++) {
        assert_true(trm_architectures_run_on(all, run[i][0], run[i][1]));
    }
    assert_true(trm_architectures_run_on("86-real,90a-real", 9, 0));
    assert_false(trm_architectures_run_on("86-real,90a-real", 10, 0));
    assert_false(trm_architectures_run_on("", 9, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ptx_runs_on_every_newer_gpu),
        cmocka_unit_test(machine_code_stays_in_its_generation),
        cmocka_unit_test(special_code_runs_where_it_is_for),
        cmocka_unit_test(one_of_several_is_enough),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
