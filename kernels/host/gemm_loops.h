/*
 * The loops of gemm.c for one type, REAL, whose vectors have WIDTH elements. Blocks of both operands are copied so that
 * the inner loop reads them in order: k steps of ROWS elements of a, and of 2 * WIDTH elements of b. Edges are filled
 * with zeros.
 */
#include <string.h>

#ifndef TRM_KERNELS_HOST_GEMM_LOOPS_H
#define TRM_KERNELS_HOST_GEMM_LOOPS_H
#define ROWS    6   /* 6 x 2 vectors of sums, 2 of b and 1 of a are the 16 registers of AVX2 */
#define DEPTH   256 /* steps of k at a time: b's block is 128 KiB (f32) or 256 KiB (f64), a's 6 or 12 KiB */
#define COLUMNS 128
#endif

typedef REAL VECTOR __attribute__((vector_size(WIDTH * sizeof(REAL)), aligned(sizeof(REAL)), may_alias));

/* sums [ROWS, 2 * WIDTH] = a [k, ROWS] transposed times b [k, 2 * WIDTH]. */
TRM_VECTOR_CLONES
static void BLOCK(int64_t k, const REAL *a, const REAL *b, REAL *sums)
{
    VECTOR left[ROWS] = {{0}}, right[ROWS] = {{0}};
    for (int64_t i = 0; i < k; i++) {
        const VECTOR b0 = *(const VECTOR *)(b + i * 2 * WIDTH), b1 = *(const VECTOR *)(b + i * 2 * WIDTH + WIDTH);
#pragma GCC unroll 6
        for (int row = 0; row < ROWS; row++) {
            left[row] += a[i * ROWS + row] * b0;
            right[row] += a[i * ROWS + row] * b1;
        }
    }
#pragma GCC unroll 6
    for (int row = 0; row < ROWS; row++) {
        *(VECTOR *)(sums + row * 2 * WIDTH) = left[row];
        *(VECTOR *)(sums + row * 2 * WIDTH + WIDTH) = right[row];
    }
}

/* to [k, width] = elements (at, i) for `at` from 0 to n - 1 and i from 0 to k - 1, each at from[at * step + i *
 * stride]. */
static void PACK(const REAL *from, int64_t step, int64_t stride, int64_t n, int64_t k, int64_t width, REAL *to)
{
    if (n < width) {
        memset(to, 0, (size_t)(k * width) * sizeof(*to));
    }
    if (step == 1) {
        for (int64_t i = 0; i < k; i++) {
            memcpy(to + i * width, from + i * stride, (size_t)n * sizeof(*to));
        }
        return;
    }
    for (int64_t at = 0; at < n; at++) {
        for (int64_t i = 0; i < k; i++) {
            to[i * width + at] = from[at * step + i * stride];
        }
    }
}

void GEMM(const trm_gemm *g, const REAL *a, const REAL *b, REAL *c)
{
    REAL left[DEPTH * ROWS], right[DEPTH * COLUMNS], sums[ROWS * 2 * WIDTH];
    const int64_t row_a = g->transpose_a ? 1 : g->lda, step_a = g->transpose_a ? g->lda : 1;
    const int64_t column_b = g->transpose_b ? g->ldb : 1, step_b = g->transpose_b ? 1 : g->ldb;
    for (int64_t row = 0; row < g->m && !g->add; row++) {
        memset(c + row * g->ldc, 0, (size_t)g->n * sizeof(*c));
    }
    for (int64_t n0 = 0; n0 < g->n; n0 += COLUMNS) {
        const int64_t n = trm_host_min(g->n - n0, COLUMNS);
        for (int64_t k0 = 0; k0 < g->k; k0 += DEPTH) {
            const int64_t k = trm_host_min(g->k - k0, DEPTH);
            for (int64_t j = 0; j < n; j += 2 * WIDTH) {
                PACK(b + (n0 + j) * column_b + k0 * step_b, column_b, step_b, trm_host_min(n - j, 2 * WIDTH), k,
                     2 * WIDTH, right + j * k);
            }
            for (int64_t m0 = 0; m0 < g->m; m0 += ROWS) {
                const int64_t m = trm_host_min(g->m - m0, ROWS);
                PACK(a + m0 * row_a + k0 * step_a, row_a, step_a, m, k, ROWS, left);
                for (int64_t j = 0; j < n; j += 2 * WIDTH) {
                    const int64_t columns = trm_host_min(n - j, 2 * WIDTH);
                    BLOCK(k, left, right + j * k, sums);
                    for (int64_t row = 0; row < m; row++) {
                        REAL *to = c + (m0 + row) * g->ldc + n0 + j;
                        for (int64_t i = 0; i < columns; i++) {
                            to[i] += sums[row * 2 * WIDTH + i];
                        }
                    }
                }
            }
        }
    }
}
