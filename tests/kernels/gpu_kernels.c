/* The kernel cases on CUDA device 0. Exits 77 if there is none. */
#include "support/device.h"
#include "support/support.h"

#include "kernels/cases/cases.h"

#define TEST(family)                                                                                                   \
    static void family(void **state)                                                                                   \
    {                                                                                                                  \
        (void)state;                                                                                                   \
        kernel_cases_check(&trm_cuda_kernels, kernel_cases_##family);                                                  \
    }
#define LIST(family) cmocka_unit_test(family),

KERNEL_CASE_FAMILIES(TEST)

int main(void)
{
    if (test_lacks_cuda()) {
        return 77;
    }
    const struct CMUnitTest tests[] = {KERNEL_CASE_FAMILIES(LIST)};
    cmocka_set_test_filter(getenv("TRM_TEST_ONLY")); /* NULL: all */
    cmocka_set_skip_filter(getenv("TRM_TEST_SKIP")); /* NULL: none */
    return cmocka_run_group_tests(tests, test_open_cuda, test_close_device);
}
