/*
 * Products of matrices on the calling thread, by OpenBLAS or by our own loops.
 */
#ifndef TRM_KERNELS_HOST_GEMM_H
#define TRM_KERNELS_HOST_GEMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* c [m, n] = a [m, k] times b [k, n], added to c if `add`. A transposed operand is stored as [k, m] or [n, k]. lda, ldb
 * and ldc are elements from row to row as stored. m, n, k and these are at most INT32_MAX. */
typedef struct trm_gemm {
    bool transpose_a, transpose_b, add;
    int64_t m, n, k, lda, ldb, ldc;
} trm_gemm;

/* By OpenBLAS if trm_host_gemm_load found it, else by our own loops. Any thread. */
void trm_host_gemm_f32(const trm_gemm *g, const float *a, const float *b, float *c);
void trm_host_gemm_f64(const trm_gemm *g, const double *a, const double *b, double *c);

/* By our own loops: packed blocks, 6 rows of 16 (f32) or 8 (f64) sums in registers. */
void trm_host_gemm_own_f32(const trm_gemm *g, const float *a, const float *b, float *c);
void trm_host_gemm_own_f64(const trm_gemm *g, const double *a, const double *b, double *c);

/* Looks for OpenBLAS once and tells it to use one thread. Writes its file to `path`, empty if there is none, and
 * returns `path`; NULL, 0: only looks. */
const char *trm_host_gemm_load(char *path, size_t size);

#endif
