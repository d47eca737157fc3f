#include "kernels/codec_cases.h"

#include <math.h>
#include <stdio.h>

#include "base/half.h"
#include "base/pool.h"
#include "kernels/codec/codec.h"
#include "support/device.h"
#include "support/support.h"

#define GUARD  64
#define FILLED 0xa5

/* Encodes, decodes on the device, compares; gives the bits of an element. */
static double round_trip(const uint16_t *from, size_t count, int32_t multiprocessors)
{
    trm_device *device = test_device;
    trm_stream *stream = test_stream;
    size_t bound = trm_bf16_encode_bound(count), bytes = count * sizeof(*from);
    unsigned char *encoded = malloc(bound + GUARD), *found = malloc(bytes + GUARD);
    assert_non_null(encoded);
    assert_non_null(found);
    memset(encoded, FILLED, bound + GUARD);
    memset(found, FILLED, bytes + GUARD);
    size_t size = trm_bf16_encode(NULL, from, count, encoded, bound);
    assert_true(size > 0 && size <= bound);
    for (size_t i = size; i < bound + GUARD; i++) {
        assert_int_equal(encoded[i], FILLED);
    }
    void *encoded_there, *there;
    assert_ok(trm_device_alloc(device, size, &encoded_there));
    assert_ok(trm_device_alloc(device, bytes + GUARD, &there));
    assert_ok(trm_stream_upload(stream, encoded_there, encoded, size));
    assert_ok(trm_stream_upload(stream, there, found, bytes + GUARD));
    assert_ok(trm_bf16_decode(stream, encoded_there, there, count, multiprocessors));
    assert_ok(trm_stream_download(stream, found, there, bytes + GUARD));
    assert_ok(trm_stream_synchronize(stream));
    assert_memory_equal(found, from, bytes);
    for (size_t i = 0; i < GUARD; i++) {
        assert_int_equal(found[bytes + i], FILLED);
    }
    trm_device_free(device, encoded_there);
    trm_device_free(device, there);
    free(encoded);
    free(found);
    return count == 0 ? 0 : (double)size * 8 / (double)count;
}

void all_patterns_come_back(void **state)
{
    (void)state;
    static uint16_t all[65536];
    for (size_t i = 0; i < 65536; i++) {
        all[i] = (uint16_t)i;
    }
    double bits = round_trip(all, 65536, 0);
    for (size_t i = 0; i < 65536; i++) { /* neighbours of other exponents */
        all[i] = (uint16_t)(i * 40503u);
    }
    assert_true(round_trip(all, 65536, 3) < 21.2);
    assert_true(bits < 21.2);
}

static float normal(uint64_t *state)
{
    double u = ((double)test_random_float(state) + 1) / 2 + 1e-12, v = (double)test_random_float(state);
    return (float)(sqrt(-2 * log(u)) * cos(3.14159265358979 * v));
}

void any_count_comes_back(void **state)
{
    (void)state;
    static const size_t counts[] = {0, 1, 7, 8, 9, 31, 255, 256, 257, 1023, 1024, 1025, 2047, 40000, 300003};
    uint64_t random = test_seed();
    uint16_t *numbers = malloc(300003 * sizeof(*numbers));
    assert_non_null(numbers);
    for (size_t i = 0; i < 300003; i++) {
        numbers[i] = trm_f32_to_bf16(normal(&random) * 0.02f);
    }
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        (void)round_trip(numbers, counts[i], (int32_t)(i % 4));
    }
    free(numbers);
}

enum { NORMAL, UNIFORM, ZEROS, ONE_EXPONENT, ANY_BITS, RARE_IN_ONE_LANE, SPREAD, KINDS };

static uint16_t number_of(int kind, size_t i, uint64_t *state)
{
    switch (kind) {
    case NORMAL:
        return trm_f32_to_bf16(normal(state) * 0.017f);
    case UNIFORM:
        return trm_f32_to_bf16(test_random_float(state) * 0.03f);
    case ZEROS:
        return 0;
    case ONE_EXPONENT:
        return (uint16_t)(0x3f80 | (test_random(state) & 0x807f));
    case ANY_BITS:
        return (uint16_t)test_random(state);
    case RARE_IN_ONE_LANE: /* all of whose second codes and exponents are one lane's, the last or another */
        return i / 8 % 32 == (i / 1024 % 2 == 0 ? 31 : 5) ? (uint16_t)test_random(state) : 0x3c00;
    default: /* eleven exponents, equally often */
        return (uint16_t)((0x70 + (uint32_t)test_random_below(state, 11)) << 7 | (test_random(state) & 0x807f));
    }
}

void any_numbers_come_back(void **state)
{
    (void)state;
    static const double most_bits[KINDS] = {10.9, 10.5, 10.1, 10.1, 21.2, 11.2, 14};
    enum { COUNT = 1 << 18 };
    uint64_t random = test_seed();
    uint16_t *numbers = malloc(COUNT * sizeof(*numbers));
    assert_non_null(numbers);
    for (int kind = 0; kind < KINDS; kind++) {
        for (size_t i = 0; i < COUNT; i++) {
            numbers[i] = number_of(kind, i, &random);
        }
        double bits = round_trip(numbers, COUNT, 0);
        print_message("numbers of kind %d: %.2f bits\n", kind, bits);
        assert_true(bits <= most_bits[kind]);
    }
    free(numbers);
}

/* What CUDA graphs and streams order is ordered here: encoded bytes arrive, are decoded, and their place is used again.
 */
void decodes_on_a_stream_beside(void **state)
{
    (void)state;
    enum { COUNT = 5000, TIMES = 20 };
    trm_device *device = test_device;
    trm_stream *beside;
    uint64_t random = test_seed();
    size_t bound = trm_bf16_encode_bound(COUNT) / 16 * 16 + 16, sizes[TIMES];
    uint16_t *numbers = malloc(TIMES * COUNT * sizeof(*numbers)), *found = malloc(TIMES * COUNT * sizeof(*numbers));
    unsigned char *encoded = malloc(TIMES * bound);
    void *slot, *there;
    assert_true(numbers != NULL && found != NULL && encoded != NULL);
    assert_ok(trm_stream_create_beside(device, &beside));
    assert_ok(trm_device_alloc(device, bound, &slot));
    assert_ok(trm_device_alloc(device, TIMES * COUNT * sizeof(*numbers), &there));
    for (size_t i = 0; i < (size_t)TIMES * COUNT; i++) {
        numbers[i] = number_of((int)(i / COUNT % KINDS), i, &random);
    }
    for (size_t i = 0; i < TIMES; i++) {
        sizes[i] = trm_bf16_encode(NULL, numbers + i * COUNT, COUNT, encoded + i * bound, bound);
        assert_ok(trm_stream_upload(beside, slot, encoded + i * bound, sizes[i]));
        assert_ok(trm_bf16_decode(beside, slot, (uint16_t *)there + i * COUNT, COUNT, 1));
    }
    assert_ok(trm_stream_download(beside, found, there, TIMES * COUNT * sizeof(*numbers)));
    assert_ok(trm_stream_synchronize(beside));
    assert_memory_equal(found, numbers, TIMES * COUNT * sizeof(*numbers));
    trm_stream_destroy(beside);
    trm_device_free(device, slot);
    trm_device_free(device, there);
    free(numbers);
    free(found);
    free(encoded);
}
