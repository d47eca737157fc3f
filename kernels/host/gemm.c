/* Loading a BLAS at run time, and products with it. */
#include "kernels/host/gemm.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/library.h"
#include "base/log.h"

/* Of the C interface to BLAS with integers of 32 bits. */
enum { ROW_MAJOR = 101, NO_TRANSPOSE = 111, TRANSPOSE = 112 };

typedef void sgemm_fn(int order, int transpose_a, int transpose_b, int m, int n, int k, float alpha, const float *a,
                      int lda, const float *b, int ldb, float beta, float *c, int ldc);
typedef void dgemm_fn(int order, int transpose_a, int transpose_b, int m, int n, int k, double alpha, const double *a,
                      int lda, const double *b, int ldb, double beta, double *c, int ldc);

static struct {
    pthread_once_t once;
    trm_status status;
    char why[1024];
    sgemm_fn *sgemm;
    dgemm_fn *dgemm;
    void (*set_threads)(int threads);
    char *(*core)(void);
} blas = {.once = PTHREAD_ONCE_INIT};

/* Whether the kernels that OpenBLAS chose have vectors as wide as ours. Releases older than a processor take those for
 * an older one: 0.3.21 runs SSE3 on Emerald Rapids and AVX2 on Zen 5. The first three have AVX-512. */
static bool is_wide(const char *core)
{
    static const char *const cores[] = {"SkylakeX", "Cooperlake", "SapphireRapids", "Haswell", "Zen"};
    const int32_t forms = trm_host_gemm_own_forms(), n = forms == 3 ? 3 : 5;
    for (int32_t i = 0; i < n; i++) {
        if (strcmp(core, cores[i]) == 0) {
            return true;
        }
    }
    return forms == 1; /* no wider ones here */
}

static void load(void)
{
    const char *named = getenv("TRIREME_BLAS"), *names[] = {"libopenblas.so.0", "libopenblas.so"};
    const bool is_named = named != NULL && named[0] != '\0';
    if (is_named && strcmp(named, "none") == 0) {
        return;
    }
    const trm_library_symbol symbols[] = {{"cblas_sgemm", &blas.sgemm, false},
                                          {"cblas_dgemm", &blas.dgemm, false},
                                          {"openblas_set_num_threads", &blas.set_threads, true},
                                          {"openblas_get_corename", &blas.core, true}};
    void *handle = NULL;
    char path[512];
    const trm_status status = trm_library_open(is_named ? &named : names, is_named ? 1 : 2, symbols, 4, &handle);
    if (status != TRM_OK) {
        if (is_named) {
            blas.status = status;
            snprintf(blas.why, sizeof(blas.why), "TRIREME_BLAS names a library that cannot be used: %s",
                     trm_last_error());
        }
        return;
    }
    if (blas.set_threads != NULL) { /* the pool splits products itself; other threads would only compete */
        blas.set_threads(1);
    }
    const char *core = blas.core != NULL ? blas.core() : "unknown";
    if (!is_named && !is_wide(core)) {
        blas.sgemm = NULL;
    }
    TRM_DEBUG("products on the host: %s for %s%s", trm_library_path(handle, path, sizeof(path)), core,
              blas.sgemm == NULL ? ", for f64 alone" : "");
}

trm_status trm_host_blas_load(void)
{
    (void)pthread_once(&blas.once, load);
    if (blas.status != TRM_OK) {
        TRM_FAIL(blas.status, "%s", blas.why);
    }
    return TRM_OK;
}

void trm_host_gemm(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k, const float *a, int64_t lda,
                   const float *b, int64_t ldb, bool add, float *c, int64_t ldc)
{
    (void)pthread_once(&blas.once, load);
    if (blas.sgemm == NULL) {
        trm_host_gemm_own(0, transpose_a, transpose_b, m, n, k, a, lda, b, ldb, add, c, ldc);
        return;
    }
    blas.sgemm(ROW_MAJOR, transpose_a ? TRANSPOSE : NO_TRANSPOSE, transpose_b ? TRANSPOSE : NO_TRANSPOSE, (int)m,
               (int)n, (int)k, 1.0f, a, (int)lda, b, (int)ldb, add ? 1.0f : 0.0f, c, (int)ldc);
}

void trm_host_gemm_f64(int64_t m, int64_t n, int64_t k, const double *a, int64_t lda, const double *b, int64_t ldb,
                       double *c, int64_t ldc)
{
    (void)pthread_once(&blas.once, load);
    if (blas.dgemm == NULL) {
        trm_host_gemm_own_f64(m, n, k, a, lda, b, ldb, c, ldc);
        return;
    }
    blas.dgemm(ROW_MAJOR, NO_TRANSPOSE, TRANSPOSE, (int)m, (int)n, (int)k, 1.0, a, (int)lda, b, (int)ldb, 0.0, c,
               (int)ldc);
}
