/* Sampling and random fill on the host. */
#include "support/support.h"

#include "kernels/sample_cases.h"

static trm_device *device;
static trm_stream *stream;

static int open_device(void **state)
{
    (void)state;
    assert_ok(trm_device_open(TRM_BACKEND_HOST, 0, 2, &device));
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

TEST(greedy, sample_greedy)
TEST(equals_naive, sample_equals_naive)
TEST(flat_rows, sample_of_flat_rows)
TEST(follows_the_distribution, sample_follows_the_distribution)
TEST(logits, logits_are_adjusted_and_reported)
TEST(refuses_bad_vocabularies, sample_refuses_bad_vocabularies)
TEST(random_fill, random_fill_is_by_index)

int main(void)
{

    const struct CMUnitTest tests[] = {
        cmocka_unit_test(greedy),      cmocka_unit_test(equals_naive),
        cmocka_unit_test(flat_rows),   cmocka_unit_test(follows_the_distribution),
        cmocka_unit_test(logits),      cmocka_unit_test(refuses_bad_vocabularies),
        cmocka_unit_test(random_fill),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
