/* Sampling and random fill on the host. */
#include "support/device.h"

#include "kernels/sample_cases.h"

int main(void)
{
    return sample_tests_run(test_open_host_pool);
}
