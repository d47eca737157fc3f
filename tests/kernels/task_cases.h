/*
 * Tasks of the host in a stream, the small copies around them and copies of rows, on any backend; captured, too, where
 * that can be.
 */
#ifndef TESTS_KERNELS_TASK_CASES_H
#define TESTS_KERNELS_TASK_CASES_H

#include "kernels/device/device.h"

#define TASK_CASES(X) X(small_copies_of_any_size) X(rows_to_places_apart) X(tasks_run_in_their_place)

#define DECLARE(name) void name(void **state);
TASK_CASES(DECLARE)
#undef DECLARE

/* For lists of tests; the device is that of support/device.h. */
#define TASK_LIST(name) cmocka_unit_test(name),

#endif
