/*
 * The cases of the attention layer, for any backend.
 */
#ifndef TESTS_ATTENTION_CASES_H
#define TESTS_ATTENTION_CASES_H

#include "support/kernel_case.h"

void attention_cases_packed(kernel_case_bench *bench);
void attention_cases_cached(kernel_case_bench *bench);
void attention_cases_padded(kernel_case_bench *bench);
void attention_cases_qkv(kernel_case_bench *bench);

/* The meaning of the packed form. */
void attention_meaning_packed(const kernel_case *test, double *const *inputs, double *const *outputs);

#endif
