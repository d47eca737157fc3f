/* The expert cache's tables on CUDA device 0. On a machine without a GPU the test exits with 77, which CTest counts as
 * skipped. */
#include "support/device.h"
#include "support/support.h"

#include "kernels/expert_table_cases.h"

int main(void)
{
    if (test_lacks_cuda()) {
        return 77;
    }
    const struct CMUnitTest tests[] = {EXPERT_TABLE_CASES(EXPERT_TABLE_LIST)};
    return cmocka_run_group_tests(tests, test_open_cuda, test_close_device);
}
