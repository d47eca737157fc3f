/* Decoding on CUDA device 0. Exits 77 if there is none. */
#include "support/device.h"
#include "support/support.h"

#include "kernels/codec_cases.h"

int main(void)
{
    if (test_lacks_cuda()) {
        return 77;
    }
    const struct CMUnitTest tests[] = {CODEC_CASES(CODEC_LIST)};
    return cmocka_run_group_tests(tests, test_open_cuda, test_close_device);
}
