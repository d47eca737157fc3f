/*
 * The cases of every layer kind but attention and collectives, for any backend.
 */
#ifndef TESTS_KERNELS_CASES_H
#define TESTS_KERNELS_CASES_H

#include "support/kernel_case.h"

void kernel_cases_cast(kernel_case_bench *bench);
void kernel_cases_movement(kernel_case_bench *bench); /* reshape, transpose, slice, concat, gather, embedding */
void kernel_cases_matmul(kernel_case_bench *bench);
void kernel_cases_norm(kernel_case_bench *bench);
void kernel_cases_fold(kernel_case_bench *bench); /* softmax, reduce */
void kernel_cases_rope(kernel_case_bench *bench);

/* cases_pointwise.c, with their meanings */
void kernel_cases_pointwise(kernel_case_bench *bench); /* elementwise, unary, glu */
double meaning_activation(trm_activation activation, double v);

/* cases_index.c, with their meanings */
void kernel_cases_indexing(kernel_case_bench *bench); /* pad */

/* The meaning of each kind in f64. */
void meaning_cast(const kernel_case *test, double *const *inputs, double *const *outputs);
void meaning_reshape(const kernel_case *test, double *const *inputs, double *const *outputs);
void meaning_transpose(const kernel_case *test, double *const *inputs, double *const *outputs);
void meaning_slice(const kernel_case *test, double *const *inputs, double *const *outputs);
void meaning_concat(const kernel_case *test, double *const *inputs, double *const *outputs);
void meaning_gather(const kernel_case *test, double *const *inputs, double *const *outputs);
void meaning_embedding(const kernel_case *test, double *const *inputs, double *const *outputs);
void meaning_matmul(const kernel_case *test, double *const *inputs, double *const *outputs);
void meaning_norm(const kernel_case *test, double *const *inputs, double *const *outputs);
void meaning_softmax(const kernel_case *test, double *const *inputs, double *const *outputs);
void meaning_reduce(const kernel_case *test, double *const *inputs, double *const *outputs);
void meaning_rope(const kernel_case *test, double *const *inputs, double *const *outputs);

#endif
