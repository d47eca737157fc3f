/*
 * One suite of tests for the device of every backend: test_device.c runs it on the host, gpu_device.c on a GPU. The
 * device is that of support/device.h. What only one backend promises stands beside its main().
 */
#ifndef TESTS_KERNELS_DEVICE_SUITE_H
#define TESTS_KERNELS_DEVICE_SUITE_H

#define DEVICE_SUITE(X)                                                                                                \
    X(says_what_it_is)                                                                                                 \
    X(moves_memory)                                                                                                    \
    X(nothing_is_taken_as_memory)                                                                                      \
    X(copies_go_through)                                                                                               \
    X(events_order_streams)                                                                                            \
    X(captured_steps_run_again)                                                                                        \
    X(works_from_another_thread)                                                                                       \
    X(too_much_memory_is_refused)                                                                                      \
    X(small_copies_of_any_size)                                                                                        \
    X(rows_to_places_apart)                                                                                            \
    X(tasks_run_in_their_place)

#define DECLARE(name) void name(void **state);
DEVICE_SUITE(DECLARE)
#undef DECLARE

/* For lists of tests. */
#define DEVICE_TEST(name) cmocka_unit_test(name),

#endif
