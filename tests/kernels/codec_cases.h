/*
 * Encoded bf16 on any backend: what is decoded is what was encoded, bit by bit.
 */
#ifndef TESTS_KERNELS_CODEC_CASES_H
#define TESTS_KERNELS_CODEC_CASES_H

#include "kernels/device/device.h"

#define CODEC_CASES(X)                                                                                                 \
    X(all_patterns_come_back) X(any_count_comes_back) X(any_numbers_come_back) X(decodes_on_a_stream_beside)

#define DECLARE(name) void name(void **state);
CODEC_CASES(DECLARE)
#undef DECLARE

/* For lists of tests; the device is that of support/device.h. */
#define CODEC_LIST(name) cmocka_unit_test(name),

#endif
