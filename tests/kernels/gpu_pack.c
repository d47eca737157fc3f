/* Unpacking on CUDA device 0. Exits 77 if there is none. */
#include <stdio.h>

#include "support/support.h"

#include "kernels/pack_cases.h"

static trm_device *device;
static trm_stream *stream;

static int open_device(void **state)
{
    (void)state;
    assert_ok(trm_device_open(TRM_BACKEND_CUDA, 0, 0, &device));
    assert_ok(trm_stream_create(device, &stream));
    return 0;
}

static int close_device(void **state)
{
    (void)state;
    trm_stream_destroy(stream);
    trm_device_close(device);
    return 0;
}

#define TEST(name, call)                                                                                               \
    static void name(void **state)                                                                                     \
    {                                                                                                                  \
        (void)state;                                                                                                   \
        call(stream);                                                                                                  \
    }

TEST(all_patterns, pack_all_patterns)
TEST(any_count, pack_any_count)
TEST(any_numbers, pack_any_numbers)
TEST(beside, pack_on_a_stream_beside)

int main(void)
{
    char why[256] = "";
    if (trm_device_cuda_count(why, sizeof(why)) == 0) {
        fprintf(stderr, "skipped: %s\n", why);
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_patterns),
        cmocka_unit_test(any_count),
        cmocka_unit_test(any_numbers),
        cmocka_unit_test(beside),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
