/* Products of matrices: OpenBLAS, loaded at run time, and our own loops for machines without it. */
#include "kernels/host/gemm.h"

#include <pthread.h>

#include "base/library.h"
#include "kernels/host/host.h"

/* The C interface of BLAS with 32-bit sizes. */
enum { ROW_MAJOR = 101, NO_TRANSPOSE = 111, TRANSPOSE = 112 };
typedef void sgemm_fn(int order, int ta, int tb, int m, int n, int k, float alpha, const float *a, int lda,
                      const float *b, int ldb, float beta, float *c, int ldc);
typedef void dgemm_fn(int order, int ta, int tb, int m, int n, int k, double alpha, const double *a, int lda,
                      const double *b, int ldb, double beta, double *c, int ldc);

static struct {
    pthread_once_t once;
    void *handle;
    sgemm_fn *sgemm;
    dgemm_fn *dgemm;
    void (*set_num_threads)(int n);
} blas = {.once = PTHREAD_ONCE_INIT};

static void load_library(void)
{
    static const char *const names[] = {"libopenblas.so.0", "libopenblasp.so.0"};
    static const trm_library_symbol symbols[] = {
        {"cblas_sgemm", &blas.sgemm, false},
        {"cblas_dgemm", &blas.dgemm, false},
        {"openblas_set_num_threads", &blas.set_num_threads, false},
    };
    if (trm_library_open(names, 2, symbols, 3, &blas.handle) == TRM_OK) {
        blas.set_num_threads(1); /* the pool splits products itself; threads beside it would only compete */
    }
}

const char *trm_host_gemm_load(char *path, size_t size)
{
    pthread_once(&blas.once, load_library);
    return path != NULL ? trm_library_path(blas.handle, path, size) : NULL;
}

#define REAL   float
#define WIDTH  8
#define GEMM   trm_host_gemm_own_f32
#define BLOCK  multiply_block_f32
#define PACK   pack_f32
#define VECTOR vector_f32
#include "kernels/host/gemm_loops.h"
#undef REAL
#undef WIDTH
#undef GEMM
#undef BLOCK
#undef PACK
#undef VECTOR

#define REAL   double
#define WIDTH  4
#define GEMM   trm_host_gemm_own_f64
#define BLOCK  multiply_block_f64
#define PACK   pack_f64
#define VECTOR vector_f64
#include "kernels/host/gemm_loops.h"

void trm_host_gemm_f32(const trm_gemm *g, const float *a, const float *b, float *c)
{
    if (blas.sgemm == NULL) {
        trm_host_gemm_own_f32(g, a, b, c);
        return;
    }
    blas.sgemm(ROW_MAJOR, g->transpose_a ? TRANSPOSE : NO_TRANSPOSE, g->transpose_b ? TRANSPOSE : NO_TRANSPOSE,
               (int)g->m, (int)g->n, (int)g->k, 1.0f, a, (int)g->lda, b, (int)g->ldb, g->add ? 1.0f : 0.0f, c,
               (int)g->ldc);
}

void trm_host_gemm_f64(const trm_gemm *g, const double *a, const double *b, double *c)
{
    if (blas.dgemm == NULL) {
        trm_host_gemm_own_f64(g, a, b, c);
        return;
    }
    blas.dgemm(ROW_MAJOR, g->transpose_a ? TRANSPOSE : NO_TRANSPOSE, g->transpose_b ? TRANSPOSE : NO_TRANSPOSE,
               (int)g->m, (int)g->n, (int)g->k, 1.0, a, (int)g->lda, b, (int)g->ldb, g->add ? 1.0 : 0.0, c,
               (int)g->ldc);
}
