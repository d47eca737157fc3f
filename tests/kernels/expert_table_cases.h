/*
 * Tables of cached experts on any backend: every expert of a step lies in the slot that the table says, and the slots
 * that were not used for the longest time are taken; or the CPU gets it.
 */
#ifndef TESTS_KERNELS_EXPERT_TABLE_CASES_H
#define TESTS_KERNELS_EXPERT_TABLE_CASES_H

#include "kernels/device/device.h"

#define EXPERT_TABLE_CASES(X)                                                                                          \
    X(few_experts)                                                                                                     \
    X(all_slots_in_use)                                                                                                \
    X(most_experts)                                                                                                    \
    X(experts_of_other_ranks) X(any_table) X(experts_for_the_cpu) X(late_answers) X(supplied_experts) X(late_experts)

#define DECLARE(name) void name(void **state);
EXPERT_TABLE_CASES(DECLARE)
#undef DECLARE

/* For lists of tests; the device is that of support/device.h. */
#define EXPERT_TABLE_LIST(name) cmocka_unit_test(name),

#endif
