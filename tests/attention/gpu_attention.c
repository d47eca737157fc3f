/* The attention cases on CUDA device 0. Exits 77 if there is none. */
#include "support/device.h"
#include "support/support.h"

#include "attention/cases.h"

#define TEST(family)                                                                                                   \
    static void family(void **state)                                                                                   \
    {                                                                                                                  \
        (void)state;                                                                                                   \
        kernel_cases_check(&trm_attention_kernels, attention_cases_##family);                                          \
    }
#define LIST(family) cmocka_unit_test(family),

ATTENTION_CASE_FAMILIES(TEST)

int main(void)
{
    if (test_lacks_cuda()) {
        return 77;
    }
    const struct CMUnitTest tests[] = {ATTENTION_CASE_FAMILIES(LIST)};
    cmocka_set_test_filter(getenv("TRM_TEST_ONLY")); /* NULL: all */
    return cmocka_run_group_tests(tests, test_open_cuda, test_close_device);
}
