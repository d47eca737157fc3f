/*
 * The cases of the attention layer, for any backend.
 */
#ifndef TESTS_ATTENTION_CASES_H
#define TESTS_ATTENTION_CASES_H

#include "support/kernel_case.h"

/* clang-format off */
#define ATTENTION_CASE_FAMILIES(X) \
    X(packed) X(cached) X(f8) X(padded) X(sinks) X(shares) X(qkv) X(qkv_f8) X(qkv_sinks) X(qkv_gates) X(latent)
/* clang-format on */

#define DECLARE(family) void attention_cases_##family(kernel_case_bench *bench);
ATTENTION_CASE_FAMILIES(DECLARE)
#undef DECLARE

/* Scores of sinks, [ATTENTION_SINKS], by head: among the scores of keys, and so far from them that one side vanishes.
 */
enum { ATTENTION_SINKS = 64 };
extern const double attention_sinks[ATTENTION_SINKS];

/* The meaning of the packed form. */
void attention_meaning_packed(const kernel_case *test, double *const *inputs, double *const *outputs);

#endif
