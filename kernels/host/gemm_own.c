/*
 * Products of matrices where no BLAS is installed. K is cut into pieces; of a piece, ROWS rows of a and one panel of
 * columns of b are copied in the order in which the inner loop reads them, and are then in the core's caches. The inner
 * loop keeps a tile of c in registers. Its form for the processor is chosen at run time.
 */
#include <string.h>

#include "base/range_check.h"
#include "kernels/host/gemm.h"
#include "kernels/host/host.h"

#define ROWS  64  /* of a at a time: [ROWS, DEPTH] stays in the level 2 cache */
#define DEPTH 256 /* of k at a time: a panel of b [DEPTH, columns] stays in the level 1 cache */

/* Of a tile of c. */
#define MOST_ROWS    8
#define MOST_COLUMNS 32

typedef float four __attribute__((vector_size(16), aligned(4), may_alias));

/* Four lines of k neighbours to to[p * width + i]. */
TRM_RANGES_CHECKED static void pack_four(const float *from, int64_t line, int64_t width, int64_t k, float *to)
{
    int64_t p = 0;
    for (; p + 4 <= k; p += 4, from += 4, to += 4 * width) {
        const four a = *(const four *)from, b = *(const four *)(from + line);
        const four c = *(const four *)(from + 2 * line), d = *(const four *)(from + 3 * line);
        const four ab = __builtin_shufflevector(a, b, 0, 4, 1, 5), cd = __builtin_shufflevector(c, d, 0, 4, 1, 5);
        const four ab2 = __builtin_shufflevector(a, b, 2, 6, 3, 7), cd2 = __builtin_shufflevector(c, d, 2, 6, 3, 7);
        *(four *)to = __builtin_shufflevector(ab, cd, 0, 1, 4, 5);
        *(four *)(to + width) = __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
        *(four *)(to + 2 * width) = __builtin_shufflevector(ab2, cd2, 0, 1, 4, 5);
        *(four *)(to + 3 * width) = __builtin_shufflevector(ab2, cd2, 2, 3, 6, 7);
    }
    for (; p < k; p++, from++, to += width) {
        for (int64_t i = 0; i < 4; i++) {
            to[i] = from[i * line];
        }
    }
}

/*
 * to[p * width + i] = element p of line i, for p < k and i < width; zero from `count` lines on. Either lines are `line`
 * elements apart and their elements are neighbours, or `across`, lines are neighbours and their elements `line` apart.
 */
TRM_RANGES_CHECKED static void pack(const float *from, int64_t line, bool across, int64_t count, int64_t width,
                                    int64_t k, float *to)
{
    if (count < width) {
        memset(to, 0, (size_t)(width * k) * sizeof(*to));
    }
    for (int64_t i = 0; i < (across ? k : count); i++) {
        trm_check_range(from + i * line, across ? count : k, sizeof(*from));
    }
    if (across) {
        for (int64_t p = 0; p < k; p++) {
            memcpy(to + p * width, from + p * line, (size_t)count * sizeof(*to));
        }
        return;
    }
    int64_t i = 0;
    for (; i + 4 <= count; i += 4) {
        pack_four(from + i * line, line, width, k, to + i);
    }
    for (; i < count; i++) {
        for (int64_t p = 0; p < k; p++) {
            to[p * width + i] = from[i * line + p];
        }
    }
}

/*
 * A form of the inner loop: a tile of c = panel a [k, rows] times panel b [k, columns], stored or added, of which only
 * the first m rows and n columns exist.
 */
typedef void inner_loop(int64_t k, const float *a, const float *b, bool add, int64_t m, int64_t n, float *c,
                        int64_t ldc);

/* With tiles of `rows` rows and two vectors of `bytes`. */
#define INNER_LOOP(name, attributes, bytes, rows)                                                                      \
    attributes TRM_RANGES_CHECKED static void name(int64_t k, const float *a, const float *b, bool add, int64_t m,     \
                                                   int64_t n, float *c, int64_t ldc)                                   \
    {                                                                                                                  \
        enum { LANES = (bytes) / sizeof(float), COLUMNS = 2 * LANES };                                                 \
        typedef float lanes __attribute__((vector_size(bytes), aligned(4), may_alias));                                \
        lanes left[rows] = {{0}}, right[rows] = {{0}};                                                                 \
        for (int64_t p = 0; p < k; p++, a += (rows), b += COLUMNS) {                                                   \
            const lanes b0 = *(const lanes *)b, b1 = *(const lanes *)(b + LANES);                                      \
            for (int i = 0; i < (rows); i++) {                                                                         \
                left[i] += a[i] * b0;                                                                                  \
                right[i] += a[i] * b1;                                                                                 \
            }                                                                                                          \
        }                                                                                                              \
        float edge[(rows)*COLUMNS];                                                                                    \
        const bool whole = m == (rows) && n == COLUMNS;                                                                \
        for (int i = 0; i < (rows); i++) {                                                                             \
            float *to = whole ? c + i * ldc : edge + i * COLUMNS;                                                      \
            lanes *to0 = (lanes *)to, *to1 = (lanes *)(to + LANES);                                                    \
            if (whole && add) {                                                                                        \
                left[i] += *to0;                                                                                       \
                right[i] += *to1;                                                                                      \
            }                                                                                                          \
            *to0 = left[i];                                                                                            \
            *to1 = right[i];                                                                                           \
        }                                                                                                              \
        for (int64_t i = 0; !whole && i < m; i++) {                                                                    \
            for (int64_t j = 0; j < n; j++) {                                                                          \
                c[i * ldc + j] = edge[i * COLUMNS + j] + (add ? c[i * ldc + j] : 0.0f);                                \
            }                                                                                                          \
        }                                                                                                              \
    }

typedef struct form {
    inner_loop *loop;
    int64_t rows, columns; /* of a tile */
} form;

/* As many sums as fit beside two vectors of b and one of a: 12 in 16 registers, 16 in 32. The fastest form comes first;
 * a processor that can run one can run those behind it. */
#if defined(__x86_64__)
INNER_LOOP(loop_avx512, __attribute__((target("avx512f"))), 64, 8)
INNER_LOOP(loop_avx2, __attribute__((target("avx2,fma"))), 32, 6)
INNER_LOOP(loop_sse2, , 16, 6)

static const form forms[] = {{loop_avx512, 8, 32}, {loop_avx2, 6, 16}, {loop_sse2, 6, 8}};

static int32_t first_form(void)
{
    return __builtin_cpu_supports("avx512f")                                 ? 0
           : __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? 1
                                                                             : 2;
}
#else
INNER_LOOP(loop_plain, , 16, 8) /* NEON's registers on aarch64 */

static const form forms[] = {{loop_plain, 8, 8}};

static int32_t first_form(void)
{
    return 0;
}
#endif

int32_t trm_host_gemm_own_forms(void)
{
    return (int32_t)(sizeof(forms) / sizeof(forms[0])) - first_form();
}

void trm_host_gemm_own(int32_t index, bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k,
                       const float *a, int64_t lda, const float *b, int64_t ldb, bool add, float *c, int64_t ldc)
{
    const form f = forms[first_form() + index];
    const int64_t a_line = transpose_a ? 1 : lda, a_step = transpose_a ? lda : 1;
    const int64_t b_line = transpose_b ? ldb : 1, b_step = transpose_b ? 1 : ldb;
    float a_panels[(ROWS + MOST_ROWS) * DEPTH], b_panel[MOST_COLUMNS * DEPTH];
    for (int64_t i = 0; k == 0 && !add && i < m; i++) {
        memset(c + i * ldc, 0, (size_t)n * sizeof(*c));
    }
    for (int64_t p = 0; p < k; p += DEPTH) {
        const int64_t depth = trm_host_min(k - p, DEPTH);
        for (int64_t i0 = 0; i0 < m; i0 += ROWS) {
            const int64_t end = trm_host_min(m, i0 + ROWS);
            for (int64_t i = i0; i < end; i += f.rows) {
                pack(a + i * a_line + p * a_step, lda, transpose_a, trm_host_min(end - i, f.rows), f.rows, depth,
                     a_panels + (i - i0) * depth);
            }
            for (int64_t j = 0; j < n; j += f.columns) {
                const int64_t width = trm_host_min(n - j, f.columns);
                pack(b + j * b_line + p * b_step, ldb, !transpose_b, width, f.columns, depth, b_panel);
                for (int64_t i = i0; i < end; i += f.rows) {
                    const int64_t height = trm_host_min(end - i, f.rows);
                    for (int64_t r = 0; r < height; r++) {
                        trm_check_range(c + (i + r) * ldc + j, width, sizeof(*c));
                    }
                    f.loop(depth, a_panels + (i - i0) * depth, b_panel, add || p > 0, height, width, c + i * ldc + j,
                           ldc);
                }
            }
        }
    }
}

#define F64_COLUMNS 4 /* at a time */
#define F64_LANES   8

typedef double f64_lanes __attribute__((vector_size(F64_LANES * sizeof(double)), aligned(8), may_alias));

/* One row of a times `n` rows of b, at most F64_COLUMNS. */
TRM_VECTOR_CLONES TRM_RANGES_CHECKED static void dot_f64(int64_t n, int64_t k, const double *a, const double *b,
                                                         int64_t ldb, double *c)
{
    f64_lanes sums[F64_COLUMNS] = {{0}};
    const double *rows[F64_COLUMNS];
    for (int64_t j = 0; j < F64_COLUMNS; j++) {
        rows[j] = b + (j < n ? j : 0) * ldb;
    }
    int64_t p = 0;
    for (; p + F64_LANES <= k; p += F64_LANES) {
        const f64_lanes x = *(const f64_lanes *)(a + p);
        for (int j = 0; j < F64_COLUMNS; j++) {
            sums[j] += x * *(const f64_lanes *)(rows[j] + p);
        }
    }
    for (int64_t j = 0; j < n; j++) {
        double sum = 0.0;
        for (int l = 0; l < F64_LANES; l++) {
            sum += sums[j][l];
        }
        for (int64_t q = p; q < k; q++) {
            sum += a[q] * rows[j][q];
        }
        c[j] = sum;
    }
}

void trm_host_gemm_own_f64(int64_t m, int64_t n, int64_t k, const double *a, int64_t lda, const double *b, int64_t ldb,
                           double *c, int64_t ldc)
{
    for (int64_t j = 0; j < n; j += F64_COLUMNS) {
        const int64_t width = trm_host_min(n - j, F64_COLUMNS);
        for (int64_t i = 0; i < m; i++) {
            trm_check_range(a + i * lda, k, sizeof(*a));
            for (int64_t r = 0; r < width; r++) {
                trm_check_range(b + (j + r) * ldb, k, sizeof(*b));
            }
            dot_f64(width, k, a + i * lda, b + j * ldb, ldb, c + i * ldc + j);
        }
    }
}
