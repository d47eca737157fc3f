/* Tables of cached experts on the host, which defines them. */
#include "support/device.h"
#include "support/support.h"

#include "kernels/expert_table_cases.h"

int main(void)
{
    const struct CMUnitTest tests[] = {EXPERT_TABLE_CASES(EXPERT_TABLE_LIST)};
    return cmocka_run_group_tests(tests, test_open_host_pool, test_close_device);
}
