/* The attention cases on the host, alone and with a pool of threads. */
#include "support/support.h"

#include "attention/cases.h"

static void run_cases(void (*cases)(kernel_case_bench *bench))
{
    static const trm_kernel_table *const tables[] = {&trm_attention_kernels};
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

static void packed(void **state)
{
    (void)state;
    run_cases(attention_cases_packed);
}

static void cached(void **state)
{
    (void)state;
    run_cases(attention_cases_cached);
}

static void padded(void **state)
{
    (void)state;
    run_cases(attention_cases_padded);
}

static void qkv(void **state)
{
    (void)state;
    run_cases(attention_cases_qkv);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(packed), cmocka_unit_test(cached), cmocka_unit_test(padded),
                                       cmocka_unit_test(qkv)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
