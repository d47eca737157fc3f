/* Encoded bf16 on the host: the encoder, and the decoder that others are compared with. */
#include "support/device.h"
#include "support/support.h"

#include "base/pool.h"
#include "kernels/codec/codec.h"
#include "kernels/codec_cases.h"

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
    size_t bound = trm_bf16_encode_bound(COUNT);
    unsigned char *one = malloc(bound), *many = malloc(bound);
    assert_true(one != NULL && many != NULL);
    trm_pool *pool;
    assert_ok(trm_pool_create(4, &pool));
    size_t size = trm_bf16_encode(NULL, numbers, COUNT, one, bound);
    assert_true(trm_bf16_encode(pool, numbers, COUNT, many, bound) == size);
    assert_memory_equal(one, many, size);
    assert_int_equal(trm_bf16_encode(pool, numbers, COUNT, many, size - 1), 0);
    assert_int_equal(trm_bf16_encode(pool, numbers, COUNT, many, 100), 0);
    assert_true(trm_bf16_encode(pool, numbers, COUNT, many, size) == size);
    trm_pool_destroy(pool);
    free(one);
    free(many);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CODEC_CASES(CODEC_LIST) cmocka_unit_test(room_and_threads),
    };
    return cmocka_run_group_tests(tests, test_open_host_pool, test_close_device);
}
