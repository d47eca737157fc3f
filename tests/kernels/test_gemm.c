/* Products of matrices by our own loops and by OpenBLAS, against sums in order. */
#include "support/support.h"

#include <math.h>

#include "kernels/host/gemm.h"

#define MOST 420 /* rows of an operand, and elements from row to row */

typedef void gemm_f32(const trm_gemm *g, const float *a, const float *b, float *c);
typedef void gemm_f64(const trm_gemm *g, const double *a, const double *b, double *c);

static float a32[MOST * MOST], b32[MOST * MOST], c32[MOST * MOST];
static double a64[MOST * MOST], b64[MOST * MOST], c64[MOST * MOST], expected[MOST * MOST];

static void fill(uint64_t *random)
{
    for (size_t i = 0; i < (size_t)MOST * MOST; i++) {
        a64[i] = a32[i] = test_random_float(random);
        b64[i] = b32[i] = test_random_float(random);
        expected[i] = c64[i] = c32[i] = test_random_float(random);
    }
}

static void multiply(const trm_gemm *g)
{
    for (int64_t i = 0; i < g->m * g->n; i++) {
        const int64_t row = i / g->n, column = i % g->n;
        double sum = g->add ? expected[row * g->ldc + column] : 0;
        for (int64_t k = 0; k < g->k; k++) {
            sum += a64[g->transpose_a ? k * g->lda + row : row * g->lda + k] *
                   b64[g->transpose_b ? column * g->ldb + k : k * g->ldb + column];
        }
        expected[row * g->ldc + column] = sum;
    }
}

/* Nothing but the product is written, and that is near. */
static void check(const trm_gemm *g, gemm_f32 *f32, gemm_f64 *f64, uint64_t *random)
{
    fill(random);
    multiply(g);
    f32(g, a32, b32, c32);
    f64(g, a64, b64, c64);
    for (size_t i = 0; i < (size_t)MOST * MOST; i++) {
        const double bound = 1e-6 * (double)(g->k + 1);
        if (!(fabs((double)c32[i] - expected[i]) <= bound && fabs(c64[i] - expected[i]) <= bound * 1e-8)) {
            fail_msg("[%d, %d, %d], transposed %d, %d, add %d: element %d is %g and %g, expected %g", (int)g->m,
                     (int)g->n, (int)g->k, g->transpose_a, g->transpose_b, g->add, (int)i, (double)c32[i], c64[i],
                     expected[i]);
        }
    }
}

static void check_all(gemm_f32 *f32, gemm_f64 *f64)
{
    static const int64_t sizes[][3] = {{1, 1, 1},    {6, 16, 256},   {5, 17, 3},   {7, 15, 257}, {64, 256, 64},
                                       {13, 129, 1}, {12, 128, 300}, {400, 1, 40}, {1, 400, 40}, {3, 31, 400}};
    uint64_t random = test_seed();
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        for (int flags = 0; flags < 8; flags++) {
            const int64_t m = sizes[i][0], n = sizes[i][1], k = sizes[i][2], more = flags == 5 ? 0 : flags;
            trm_gemm g = {.transpose_a = flags & 1, .transpose_b = flags & 2, .add = flags & 4, .m = m, .n = n, .k = k};
            g.lda = (g.transpose_a ? m : k) + more;
            g.ldb = (g.transpose_b ? k : n) + 2 * more;
            g.ldc = n + more;
            check(&g, f32, f64, &random);
        }
    }
}

static void test_own(void **state)
{
    (void)state;
    check_all(trm_host_gemm_own_f32, trm_host_gemm_own_f64);
}

/* The library where there is one. */
static void test_chosen(void **state)
{
    (void)state;
    char path[1024];
    print_message("OpenBLAS: \"%s\"\n", trm_host_gemm_load(path, sizeof(path)));
    check_all(trm_host_gemm_f32, trm_host_gemm_f64);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_own), cmocka_unit_test(test_chosen)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
