/* The kernel cases on the host, alone and with a pool of threads. */
#include "support/device.h"
#include "support/support.h"

#include "kernels/cases/cases.h"

#define TEST(family)                                                                                                   \
    static void family(void **state)                                                                                   \
    {                                                                                                                  \
        (void)state;                                                                                                   \
        kernel_cases_check(&trm_host_kernels, kernel_cases_##family);                                                  \
    }
#define LIST(family) cmocka_unit_test(family),

KERNEL_CASE_FAMILIES(TEST)
TEST(dequant_quantized)

int main(void)
{
    const struct CMUnitTest tests[] = {KERNEL_CASE_FAMILIES(LIST) LIST(dequant_quantized)};
    cmocka_set_test_filter(getenv("TRM_TEST_ONLY")); /* NULL: all */
    return cmocka_run_group_tests(tests, test_open_both_hosts, test_close_device);
}
