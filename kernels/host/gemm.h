/*
 * Products of matrices on the calling thread, by OpenBLAS where it is installed, else by our own loops.
 */
#ifndef TRM_KERNELS_HOST_GEMM_H
#define TRM_KERNELS_HOST_GEMM_H

#include <stdbool.h>
#include <stdint.h>

#include <trireme/status.h>

/*
 * Row-major c [m, n] = op(a) [m, k] times op(b) [k, n], added to c with `add`. With transpose_a, a is [k, m]; with
 * transpose_b, b is [n, k]. lda, ldb and ldc are the elements from one row of a, b and c as they lie to the next, below
 * 2^31 as are m, n and k.
 */
void trm_host_gemm(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k, const float *a, int64_t lda,
                   const float *b, int64_t ldb, bool add, float *c, int64_t ldc);
/* Row-major c [m, n] = a [m, k] times b [n, k] transposed, in f64. */
void trm_host_gemm_f64(int64_t m, int64_t n, int64_t k, const double *a, int64_t lda, const double *b, int64_t ldb,
                       double *c, int64_t ldc);

/* Our own, whatever is installed, in one of its forms from 0, the fastest, to trm_host_gemm_own_forms() - 1: those that
 * the processor can run. gemm_own.c. */
int32_t trm_host_gemm_own_forms(void);
void trm_host_gemm_own(int32_t form, bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k,
                       const float *a, int64_t lda, const float *b, int64_t ldb, bool add, float *c, int64_t ldc);
void trm_host_gemm_own_f64(int64_t m, int64_t n, int64_t k, const double *a, int64_t lda, const double *b, int64_t ldb,
                           double *c, int64_t ldc);

/*
 * Looks for the library, once in the life of the process: the file that the environment variable TRIREME_BLAS names, or
 * OpenBLAS; none if the variable is `none`. TRM_ERROR_NO_DEVICE if the file that is named does not load or lacks the
 * functions. Products that come before it look for it, too, and are our own where this fails. OpenBLAS that nobody
 * named leaves products of f32 to our own where it does not know the processor and has narrower vectors for it.
 */
trm_status trm_host_blas_load(void);

#endif
