/*
 * One product of row-major matrices as cuBLASLt and our own kernels take it:
 * c[i] = activation(op(a[i]) * op(b[i]) + bias) for i of a batch.
 */
#ifndef TRM_KERNELS_MATMUL_CUDA_GEMM_H
#define TRM_KERNELS_MATMUL_CUDA_GEMM_H

#include <cuda_runtime_api.h>

#include "kernels/program.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How the scales of an fp8 product lie, all f32, beginning at a multiple of 16 bytes. */
typedef enum trm_gemm_scales {
    TRM_GEMM_UNSCALED = 0,
    TRM_GEMM_ROWS_SCALED,  /* scale_a [m], scale_b [n] */
    TRM_GEMM_BLOCKS_SCALED /* scale_a [k / 128, m], scale_b [n / 128, k / 128 and up to a multiple of 4]; rounded up */
} trm_gemm_scales;

typedef struct trm_gemm {
    int64_t m, n, k;                             /* op(a) is [m, k], op(b) [k, n], c [m, n] */
    int64_t batch, stride_a, stride_b, stride_c; /* in elements */
    int64_t stride_bias;                         /* 0: the same for all of a batch */
    int64_t row_a;                               /* elements from one row of a, as stored, to the next */
    bool transpose_a, transpose_b;
    bool tf32;       /* factors of f32 products may be rounded to TF32 */
    bool constant_b; /* b and bias were complete before anything now on the stream: they may be read before the wait */
    trm_dtype in, out;
    trm_activation activation;
    const void *a, *b;
    const void *bias; /* [n] of type `in`, of fp8 products F16 if `out` is, else BF16; or NULL */
    void *c;
    /* cuda_cublaslt.c alone: a and b of F8E4M3, b transposed and a not. */
    trm_gemm_scales scales;
    const float *scale_a, *scale_b;
    /* cuda_gemv.cu alone, of one row: a and `residual` (or NULL) are added and rounded, which goes into `sum`, and that
     * is normalized (RMS) and taken times norm_weight + norm_offset (no weight: 1) before the product, in f32. */
    bool normed;
    float norm_eps, norm_offset;
    const void *norm_weight, *residual;
    void *sum;
    int32_t form; /* of cuda_gemv.cu: 1 + that of trm_cuda_gemv_forms, 0 for the usual one; changes the order of sums */
} trm_gemm;

/* What the library has as workspace, in every product of a process. */
#define TRM_GEMM_WORKSPACE ((size_t)32 << 20)

/* Chooses the library's algorithm for a product, with real addresses, as the tuner knows it or by timing. */
trm_status trm_cuda_gemm_tune(const trm_gemm *gemm, void *workspace, trm_stream *stream, struct trm_tuner *tuner);

/* The same for a matrix product layer, of all ways to do it. */
trm_status trm_cuda_matmul_tune(const trm_kernel_call *call, struct trm_tuner *tuner);

/* Calls `run(user)` a few times on the stream, each time with a cold cache, and gives the shortest time of one call.
 * Takes 128 MiB of device memory meanwhile. */
trm_status trm_cuda_time(cudaStream_t stream, trm_status (*run)(void *user), void *user, float *milliseconds);

/* cuda_gemm.c: one launch that runs a product. */
trm_status trm_cuda_gemm_append(trm_program *program, const char *name,
                                trm_status (*run)(const trm_gemm *gemm, cudaStream_t stream), const trm_gemm *gemm);

/* cuda_gemv.cu: m up to 8 rows against b transposed, 16-bit floats; bound by reading b once. */
bool trm_cuda_gemv_accepts(const trm_gemm *gemm);
trm_status trm_cuda_gemv_run(const trm_gemm *gemm, cudaStream_t stream);
/* The forms that it has for this m, by the names of their tactics. */
int32_t trm_cuda_gemv_forms(const trm_gemm *gemm, const char *const **names);

/* The same with the GLU of the product instead: b has 2 * n rows, the gate's first, out is in, there is no bias.
 * Accepted is what is faster so than one after the other. */
bool trm_cuda_gemv_glu_accepts(const trm_gemm *gemm);
trm_status trm_cuda_gemv_glu_run(const trm_gemm *gemm, cudaStream_t stream);

/* matmul_fused/cuda_glu.cu: the GLU, by SiLU or GELU's tangent, of a product of some hundred rows, whose b has 2 * n
 * rows, the gate's first; 16-bit floats, no bias. On Hopper alone. */
bool trm_cuda_glu_product_accepts(const trm_gemm *gemm);
trm_status trm_cuda_glu_product_run(const trm_gemm *gemm, cudaStream_t stream);

/* cuda_invariant.cu: rows against b transposed, 16-bit floats, every element summed in an order that n and k alone
 * decide.
 */
bool trm_cuda_invariant_accepts(const trm_gemm *gemm);
trm_status trm_cuda_invariant_run(const trm_gemm *gemm, cudaStream_t stream);
/* The forms it has, which change nothing but the time: rows of a tile, and whether a block takes all of k. */
typedef struct trm_invariant_form {
    int32_t rows;
    bool walk;
    int32_t most_splits;
} trm_invariant_form;
int32_t trm_cuda_invariant_forms(const trm_invariant_form **forms);
/* The same in form number `form` with k in `splits` pieces, which change the order. */
trm_status trm_cuda_invariant_run_as(const trm_gemm *gemm, int32_t form, int32_t splits, cudaStream_t stream);
int32_t trm_cuda_invariant_splits(int64_t n, int64_t k);

/* cuda_epilogue.cu: to[i, j] = activation(from[i, j] + bias[j]) for `rows` rows of n. from is f32, or NULL for zeros;
 * `to` may be the same address where it is f32 too. */
typedef struct trm_epilogue {
    int64_t rows, n;
    const float *from;
    const void *bias; /* or NULL */
    trm_dtype bias_type, to_type;
    trm_activation activation;
    void *to;
} trm_epilogue;
trm_status trm_cuda_epilogue(const trm_epilogue *epilogue, cudaStream_t stream);
/* data[i] = activation(data[i]) for `count` floats of up to 4 bytes, aligned to 16 bytes. */
trm_status trm_cuda_activate_in_place(void *data, int64_t count, trm_dtype dtype, trm_activation activation,
                                      cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
