/*
 * Products with weights that are stored in numbers of 8 or 4 bits and a scale per block, as the CUDA kernels of
 * DEQUANT_MATMUL take them: y [m, n] = x [m, k] times the transpose of the weight, plus bias.
 */
#ifndef TRM_KERNELS_DEQUANT_CUDA_H
#define TRM_KERNELS_DEQUANT_CUDA_H

#include <cuda_runtime_api.h>

#include <trireme/layers/matmul.h>

#include "kernels/matmul/cuda_gemm.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct trm_dequant_gemm {
    int64_t m, n, k;
    int64_t block_n, block_k; /* of the weight that share a scale */
    int64_t scale_row;        /* scales of a row of blocks */
    trm_dtype weight_type;    /* F8E4M3, I8, or U8 and F4E2M1: two numbers of 4 bits a byte */
    trm_dtype scale_type;     /* F32, F16, BF16 */
    trm_dtype in, out;        /* of x and bias; of y: the same or F32 */
    bool constant;            /* weight, scale and zero were complete before anything now on the stream */
    int32_t shift_n, shift_k; /* of our own products: block_n and block_k as powers of two */
    trm_x_quantization x_quantization;
    float x_scale;
    const void *x, *weight, *scale;
    const void *bias;    /* [n], or NULL */
    const uint8_t *zero; /* as scale, of 4 bits; NULL: 8 */
    void *y;
} trm_dequant_gemm;

/* The product that a call asks for, without its shifts. */
trm_dequant_gemm trm_dequant_gemm_of(const trm_kernel_call *call);

/* cuda_rows.cu: 16-bit floats and blocks that are powers of two, with F4E2M1 16 or 32 columns; for up to 16 rows or so,
 * bound by reading the weight once. Any number may be given, and a row's result does not depend on it. */
bool trm_cuda_dequant_rows_accepts(const trm_dequant_gemm *gemm);
trm_status trm_cuda_dequant_rows_run(const trm_dequant_gemm *gemm, cudaStream_t stream);

/* cuda_dot.cu: the same calls for one row and 8 bits. */
bool trm_cuda_dequant_dot_accepts(const trm_dequant_gemm *gemm);
trm_status trm_cuda_dequant_dot_run(const trm_dequant_gemm *gemm, cudaStream_t stream);

/* cuda_wide.cu: the same calls for tens of rows, on Hopper, except F4E2M1 and 8 bits in blocks of less than 64. */
bool trm_cuda_dequant_wide_accepts(const trm_dequant_gemm *gemm);
trm_status trm_cuda_dequant_wide_run(const trm_dequant_gemm *gemm, cudaStream_t stream);

/* The power of two that is `block`, or -1; a block of all `size` counts as one that is large enough. */
static inline int32_t trm_dequant_shift(int64_t block, int64_t size)
{
    int32_t shift = 0;
    while ((int64_t)1 << shift < block) {
        shift++;
    }
    return (int64_t)1 << shift == block || block >= size ? shift : -1;
}

/* The product with its shifts, which our own kernels take. */
static inline trm_dequant_gemm trm_dequant_shifted(const trm_dequant_gemm *gemm)
{
    trm_dequant_gemm shifted = *gemm;
    shifted.shift_n = trm_dequant_shift(gemm->block_n, gemm->n);
    shifted.shift_k = trm_dequant_shift(gemm->block_k, gemm->k);
    return shifted;
}

/* cuda_floats.cu: `rows` rows of the weight from `first` on as floats of type `in`, rounded once; k > 0. */
trm_status trm_cuda_dequantize(const trm_dequant_gemm *gemm, int64_t first, int64_t rows, void *to,
                               cudaStream_t stream);

/* Where rows of x go as numbers and scales. Those of the last four rows may be written twice: a product whose scales
 * are of blocks has a multiple of four rows, so that another does the last ones. */
typedef struct trm_quantized_rows {
    int64_t m, k;
    int32_t group; /* columns that share a scale: 128, or k and more */
    trm_x_quantization quantization;
    float x_scale;
    uint8_t *numbers;     /* [m, k] e4m3 */
    int64_t rows;         /* of the first product */
    float *scales, *last; /* [groups, rows], [groups, 4] or NULL */
} trm_quantized_rows;

/* cuda_quantize.cu: rows [m, k] of 16-bit floats, k a multiple of 16 and at most TRM_MOST_QUANTIZED, aligned to 16
 * bytes; with a GLU of rows [m, 2 * k], rounded to the type before. */
#define TRM_MOST_QUANTIZED 65536
trm_status trm_cuda_quantize_rows(const void *x, trm_dtype type, const trm_quantized_rows *to, cudaStream_t stream);
trm_status trm_cuda_quantize_glu(const void *gate_up, trm_dtype type, trm_activation activation,
                                 const trm_quantized_rows *to, cudaStream_t stream);

/* cuda_fp8.c: products of quantized rows by the library, on Hopper: by rows, or blocks of 128 x 128. */
typedef struct trm_fp8_product {
    trm_quantized_rows x;
    trm_gemm gemm, last; /* last.m is 0, or 4: rows that the first product has no room for */
    const float *scale;  /* of the weight, [scale_rows, scale_row], to be copied to rows of padded_row */
    int64_t scale_rows, scale_row, padded_row; /* padded_row is 0 where they lie as the library takes them */
    void *workspace;
} trm_fp8_product;

/* Whether types, dims and device are such; what is needed as workspace then. */
bool trm_cuda_fp8_accepts(const trm_dequant_gemm *gemm);
size_t trm_cuda_fp8_workspace(const trm_dequant_gemm *gemm);
/* The product with its places in the workspace. False where the library does not do it. */
bool trm_cuda_fp8_product(const trm_dequant_gemm *gemm, void *workspace, trm_fp8_product *product);
/* Appends what multiplies quantized rows. */
trm_status trm_cuda_fp8_append(const trm_fp8_product *product, trm_program *program);
trm_status trm_cuda_fp8_tune(const trm_fp8_product *product, trm_stream *stream, struct trm_tuner *tuner);

/* cuda.c: whether a DEQUANT_MATMUL call quantizes x, as it was tuned; the product then. */
bool trm_cuda_dequant_takes_fp8(const trm_kernel_call *call, trm_fp8_product *product);

#ifdef __cplusplus
}
#endif
#endif
