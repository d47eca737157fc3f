/* Products of matrices: our own in every form that the processor can run, and what happens without a BLAS. */
#include "support/support.h"

#include <math.h>
#include <stdlib.h>

#include "kernels/device/device_impl.h"
#include "kernels/host/gemm.h"

#define MOST 300

static float a[(MOST + 3) * (MOST + 3)], b[(MOST + 3) * (MOST + 3)], c[(MOST + 3) * (MOST + 3)],
    before[(MOST + 3) * (MOST + 3)];
static double a64[MOST * MOST], b64[MOST * MOST], c64[MOST * MOST];

static void fill(float *to, size_t n, uint32_t seed)
{
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        to[i] = (float)(int32_t)(seed >> 8 & 0xffff) / 32768.0f - 1.0f;
    }
}

static void check(int32_t form, bool ta, bool tb, int64_t m, int64_t n, int64_t k, int64_t pad, bool add)
{
    const int64_t lda = (ta ? m : k) + pad, ldb = (tb ? k : n) + pad, ldc = n + pad;
    memcpy(c, before, sizeof(c));
    if (form < 0) {
        trm_host_gemm(ta, tb, m, n, k, a, lda, b, ldb, add, c, ldc);
    } else {
        trm_host_gemm_own(form, ta, tb, m, n, k, a, lda, b, ldb, add, c, ldc);
    }
    for (int64_t i = 0; i < m; i++) {
        for (int64_t j = 0; j < ldc; j++) {
            double sum = add || j >= n ? (double)before[i * ldc + j] : 0.0, most = fabs(sum);
            for (int64_t p = 0; j < n && p < k; p++) {
                const double x = (double)a[ta ? p * lda + i : i * lda + p] * (double)b[tb ? j * ldb + p : p * ldb + j];
                sum += x;
                most += fabs(x);
            }
            if (fabs((double)c[i * ldc + j] - sum) > (j < n ? 2e-6 * most : 0.0)) {
                fail_msg("form %d, transposed %d %d, [%d, %d, %d], pad %d, add %d: [%d, %d] is %g, expected %g", form,
                         ta, tb, (int)m, (int)n, (int)k, (int)pad, add, (int)i, (int)j, (double)c[i * ldc + j], sum);
            }
        }
    }
    assert_memory_equal(c + m * ldc, before + m * ldc, sizeof(c) - (size_t)(m * ldc) * sizeof(*c));
}

/* Around the sizes of tiles and panels of every form. */
static void multiplies_every_shape(void **state)
{
    (void)state;
    static const int64_t shapes[][3] = {{1, 1, 1},    {1, 33, 5},   {7, 31, 3},    {8, 32, 4},   {9, 9, 256},
                                        {6, 16, 257}, {13, 40, 64}, {64, 64, 255}, {65, 8, 17},  {131, 70, 300},
                                        {5, 3, 0},    {0, 4, 4},    {4, 0, 4},     {70, 259, 31}};
    fill(a, sizeof(a) / sizeof(*a), 1);
    fill(b, sizeof(b) / sizeof(*b), 2);
    fill(before, sizeof(before) / sizeof(*before), 3);
    assert_true(trm_host_gemm_own_forms() >= 1);
    for (int32_t form = -1; form < trm_host_gemm_own_forms(); form++) {
        for (size_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]); s++) {
            for (int bits = 0; bits < 16; bits++) {
                check(form, bits & 1, bits & 2, shapes[s][0], shapes[s][1], shapes[s][2], bits & 4 ? 3 : 0, bits & 8);
            }
        }
    }
}

/* What was in c is not read where the product is not added to it. */
static void overwrites_what_is_no_number(void **state)
{
    (void)state;
    for (int32_t form = 0; form < trm_host_gemm_own_forms(); form++) {
        for (int64_t n = 1; n <= 32; n++) {
            for (int64_t i = 0; i < 8 * 32; i++) {
                c[i] = NAN;
                a[i] = b[i] = 1.0f;
            }
            trm_host_gemm_own(form, false, false, 8, n, 8, a, 8, b, n, false, c, n);
            for (int64_t i = 0; i < 8 * n; i++) {
                assert_float_equal(c[i], 8.0f, 0.0f);
            }
        }
    }
}

static void multiplies_f64(void **state)
{
    (void)state;
    static const int64_t shapes[][3] = {{1, 1, 1}, {3, 5, 7}, {4, 4, 8}, {9, 13, 33}, {2, 3, 0}};
    for (size_t i = 0; i < MOST * MOST; i++) {
        a64[i] = (double)(i * 7 % 23) - 11.0;
        b64[i] = (double)(i * 5 % 19) - 9.0;
    }
    for (size_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]); s++) {
        const int64_t m = shapes[s][0], n = shapes[s][1], k = shapes[s][2], lda = k + 2, ldb = k + 1, ldc = n + 3;
        trm_host_gemm_own_f64(m, n, k, a64, lda, b64, ldb, c64, ldc);
        for (int64_t i = 0; i < m * n; i++) {
            double sum = 0.0; /* whole numbers: exact */
            for (int64_t p = 0; p < k; p++) {
                sum += a64[i / n * lda + p] * b64[i % n * ldb + p];
            }
            assert_true(c64[i / n * ldc + i % n] == sum);
        }
    }
}

/* This program names a library without these functions (main). */
static void says_which_library_cannot_be_used(void **state)
{
    (void)state;
    trm_device *device = NULL;
    assert_int_equal(trm_host_device_open(1, &device), TRM_ERROR_NO_DEVICE);
    assert_non_null(strstr(trm_last_error(), "TRIREME_BLAS names a library that cannot be used: "));
    assert_non_null(strstr(trm_last_error(), "libm.so.6 has no function cblas_sgemm"));
}

int main(void)
{
    setenv("TRIREME_BLAS", "libm.so.6", 1);
    const struct CMUnitTest tests[] = {cmocka_unit_test(multiplies_every_shape),
                                       cmocka_unit_test(overwrites_what_is_no_number), cmocka_unit_test(multiplies_f64),
                                       cmocka_unit_test(says_which_library_cannot_be_used)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
