/* The kernel cases on CUDA device 0. Exits 77 if there is none. */
#include <stdio.h>

#include "support/support.h"

#include "kernels/cases.h"

static kernel_case_bench bench;

static int open_device(void **state)
{
    (void)state;
    static const trm_kernel_table *const tables[] = {&trm_cuda_kernels};
    bench.tables = tables;
    bench.n_tables = 1;
    assert_ok(trm_device_open(TRM_BACKEND_CUDA, 0, 0, &bench.device));
    assert_ok(trm_stream_create(bench.device, &bench.stream));
    return 0;
}

static int close_device(void **state)
{
    (void)state;
    trm_stream_destroy(bench.stream);
    trm_device_close(bench.device);
    return 0;
}

static void run_cases(void (*cases)(kernel_case_bench *bench))
{
    bench.cases = bench.runs = bench.failures = 0;
    cases(&bench);
    print_message("%d cases, %d runs, %d failures\n", (int)bench.cases, (int)bench.runs, (int)bench.failures);
    assert_true(bench.cases > 0);
    assert_int_equal(bench.failures, 0);
}

#define TEST(name)                                                                                                     \
    static void name(void **state)                                                                                     \
    {                                                                                                                  \
        (void)state;                                                                                                   \
        run_cases(kernel_cases_##name);                                                                                \
    }

KERNEL_CASE_FAMILIES(TEST)

int main(void)
{
    char why[256] = "";
    if (trm_device_cuda_count(why, sizeof(why)) == 0) {
        fprintf(stderr, "skipped: %s\n", why);
        return 77;
    }
#define LIST(name) cmocka_unit_test(name),
    const struct CMUnitTest tests[] = {KERNEL_CASE_FAMILIES(LIST)};
#undef LIST
    cmocka_set_test_filter(getenv("TRM_TEST_ONLY")); /* NULL: all */
    cmocka_set_skip_filter(getenv("TRM_TEST_SKIP")); /* NULL: none */
    return cmocka_run_group_tests(tests, open_device, close_device);
}
