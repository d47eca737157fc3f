/*
 * The cases of every layer kind but attention and collectives, for any backend.
 */
#ifndef TESTS_KERNELS_CASES_CASES_H
#define TESTS_KERNELS_CASES_CASES_H

#include "support/kernel_case.h"

/* Every family of cases, one per line: kernel_cases_<family>(bench) runs them, a test of each name calls it. */
/* clang-format off */
#define KERNEL_CASE_FAMILIES(X) \
    X(cast) \
    X(movement) /* reshape, transpose, slice, concat, gather, embedding */ \
    X(matmul) \
    X(matmul_glu) \
    X(norm_matmul) \
    X(dequant_matmul) \
    X(fused_dequant_matmul) /* norm_dequant_matmul, glu_dequant_matmul */ \
    X(int8_product) \
    X(moe) /* router, norm_router, experts */ \
    X(delta) /* short_convolution, gated_delta, delta_net */ \
    X(scan) /* selective_scan */ \
    X(lora) \
    X(convolution) \
    X(pool) \
    X(vision) \
    X(recurrent) \
    X(pointwise) /* elementwise, unary, glu */ \
    X(selection) /* select, cumulative */ \
    X(quantization) \
    X(signal) /* fourier, determinant, random */ \
    X(norm) \
    X(fold) /* softmax, reduce */ \
    X(rope) \
    X(shapes) /* shape, expand, tile, range, slice by inputs, non_zero, unique */ \
    X(indexing)
/* clang-format on */

#define DECLARE(family) void kernel_cases_##family(kernel_case_bench *bench);
KERNEL_CASE_FAMILIES(DECLARE)
#undef DECLARE

/* DEQUANT_MATMUL as its kernels of 16-bit floats take it, of more rows and fewer than they are chosen for. */
void kernel_cases_dequant_rows(kernel_case_bench *bench);
/* DEQUANT_MATMUL with a quantized x, as kernels take it that do quantize it. */
void kernel_cases_dequant_quantized(kernel_case_bench *bench);
/* MATMUL_GLU as the kernel for some hundred rows of 16-bit floats takes it, of fewer and more, too. */
void kernel_cases_matmul_glu_rows(kernel_case_bench *bench);

/* What an activation is, in f64. */
double meaning_activation(trm_activation activation, double v);

#endif
