/* Sampling and random fill on CUDA device 0. Exits 77 if there is none. */
#include "support/device.h"

#include "kernels/sample_cases.h"

int main(void)
{
    return test_lacks_cuda() ? 77 : sample_tests_run(test_open_cuda);
}
