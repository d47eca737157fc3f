/* Packed bf16 on the host: the encoder, and the decoder that others are compared with. */
#include "support/support.h"

#include "base/pool.h"
#include "kernels/pack.h"
#include "kernels/pack_cases.h"

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

TEST(all_patterns, pack_all_patterns)
TEST(any_count, pack_any_count)
TEST(any_numbers, pack_any_numbers)
TEST(beside, pack_on_a_stream_beside)

/* Threads do not change the bytes; with a byte less than they take there are none. */
static void room_and_threads(void **state)
{
    (void)state;
    enum { COUNT = 100000 };
    static uint16_t numbers[COUNT];
    uint64_t random = test_seed();
    for (size_t i = 0; i < COUNT; i++) {
        numbers[i] = (uint16_t)(0x3c00 + test_random_below(&random, 2000));
    }
    size_t bound = trm_pack_bound(COUNT);
    unsigned char *one = malloc(bound), *many = malloc(bound);
    assert_true(one != NULL && many != NULL);
    trm_pool *pool;
    assert_ok(trm_pool_create(4, &pool));
    size_t size = trm_pack(NULL, numbers, COUNT, one, bound);
    assert_true(trm_pack(pool, numbers, COUNT, many, bound) == size);
    assert_memory_equal(one, many, size);
    assert_int_equal(trm_pack(pool, numbers, COUNT, many, size - 1), 0);
    assert_int_equal(trm_pack(pool, numbers, COUNT, many, 100), 0);
    assert_true(trm_pack(pool, numbers, COUNT, many, size) == size);
    trm_pool_destroy(pool);
    free(one);
    free(many);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_patterns), cmocka_unit_test(any_count),        cmocka_unit_test(any_numbers),
        cmocka_unit_test(beside),       cmocka_unit_test(room_and_threads),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
