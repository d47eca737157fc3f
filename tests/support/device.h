/*
 * The device of a group of tests: opened by its set-up, closed by its tear-down.
 *
 *     return cmocka_run_group_tests(tests, test_open_host, test_close_device);
 */
#ifndef TESTS_SUPPORT_DEVICE_H
#define TESTS_SUPPORT_DEVICE_H

#include "kernels/device/device.h"

extern trm_device *test_device;
extern trm_stream *test_stream;

/* Beside the other a host device with a pool, if test_open_both_hosts opened it. */
extern trm_stream *test_pool_stream;

int test_open_host(void **state);       /* one thread */
int test_open_host_pool(void **state);  /* three */
int test_open_both_hosts(void **state); /* one thread; the pool has three */
int test_open_cuda(void **state);       /* CUDA device 0 */
int test_close_device(void **state);

/* Whether there is no GPU, with a line that says why: the program then exits 77. */
bool test_lacks_cuda(void);

#endif
