/*
 * The tests of sampling and random fill, for any backend.
 */
#ifndef TESTS_KERNELS_SAMPLE_CASES_H
#define TESTS_KERNELS_SAMPLE_CASES_H

/* Runs them on the device that `open` opens (support/device.h). Returns how many failed. */
int sample_tests_run(int (*open)(void **state));

#endif
