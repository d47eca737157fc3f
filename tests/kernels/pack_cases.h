/*
 * Packed bf16 on any backend: what is unpacked is what was packed, bit by bit.
 */
#ifndef TESTS_KERNELS_PACK_CASES_H
#define TESTS_KERNELS_PACK_CASES_H

#include "kernels/device/device.h"

#define PACK_CASES(X) X(pack_all_patterns) X(pack_any_count) X(pack_any_numbers) X(pack_on_a_stream_beside)

#define DECLARE(name) void name(void **state);
PACK_CASES(DECLARE)
#undef DECLARE

/* For lists of tests; the device is that of support/device.h. */
#define PACK_LIST(name) cmocka_unit_test(name),

#endif
