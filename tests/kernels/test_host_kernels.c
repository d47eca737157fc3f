/* The kernel cases on the host, alone and with a pool of threads. */
#include "support/support.h"

#include "kernels/cases.h"

static void run_cases(void (*cases)(kernel_case_bench *bench))
{
    static const trm_kernel_table *const tables[] = {&trm_host_kernels};
    for (int32_t threads = 1; threads <= 3; threads += 2) {
        kernel_case_bench bench = {.tables = tables, .n_tables = 1};
        assert_ok(trm_device_open(TRM_BACKEND_HOST, 0, threads, &bench.device));
        assert_ok(trm_stream_create(bench.device, &bench.stream));
        cases(&bench);
        trm_stream_destroy(bench.stream);
        trm_device_close(bench.device);
        print_message("%d cases, %d runs, %d failures\n", (int)bench.cases, (int)bench.runs, (int)bench.failures);
        assert_true(bench.cases > 0);
        assert_int_equal(bench.failures, 0);
    }
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
#define LIST(name) cmocka_unit_test(name),
    const struct CMUnitTest tests[] = {KERNEL_CASE_FAMILIES(LIST)};
#undef LIST
    cmocka_set_test_filter(getenv("TRM_TEST_ONLY")); /* NULL: all */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
