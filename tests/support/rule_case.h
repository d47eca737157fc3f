/*
 * A case of a shape and type rule: tensors are written as "f32[2,?]", an expected failure as "!" and a part of its
 * cause.
 */
#ifndef TESTS_SUPPORT_RULE_CASE_H
#define TESTS_SUPPORT_RULE_CASE_H

#include "graph/network.h"

#define RULE_CASE_INPUTS TRM_MAX_LAYER_INPUTS

typedef struct rule_case {
    trm_layer_desc desc;
    const char *inputs[RULE_CASE_INPUTS]; /* "-" is an input that is not given */
    const char *expected;                 /* outputs, separated by a space */
} rule_case;

/* Fails the running test if the rule gives something else. `values` [RULE_CASE_INPUTS]: of value inputs, in their type,
 * NULL where they are not known. */
void rule_case_run_with(const rule_case *test, const void *const *values);
void rule_case_run(const rule_case *test);

#define RUN_CASES(cases)                                                                                               \
    for (size_t i_ = 0; i_ < sizeof(cases) / sizeof((cases)[0]); i_++) {                                               \
        rule_case_run(&(cases)[i_]);                                                                                   \
    }

#endif
