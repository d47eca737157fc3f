/*
 * Products of a few rows with a transposed weight, the shape of decoding: every weight is read once, at the speed of
 * memory. Threads take ranges of weight rows; a few weight rows at a time meet all rows of a. Where both are bf16 and
 * the processor has a matrix unit, that does it (host_tiles.h).
 */
#include <string.h>

#include "base/half.h"
#include "base/range_check.h"
#include "kernels/matmul/host.h"
#include "kernels/matmul/host_tiles.h"

#define MAX_ROWS  8
#define MAX_GROUP 4 /* weight rows at a time */
#if defined(__aarch64__)
#define LANES       8 /* two registers of NEON, which has 32 */
#define MOST_IN_TWO 4 /* rows of a that meet two weight rows at once */
#else
#define LANES       16 /* one AVX-512 register of f32, two of AVX2 */
#define MOST_IN_TWO 8
#endif
#define COLUMNS 32          /* outputs between two stores */
#define PAIRS   (2 * LANES) /* elements of a between whose even and odd ones it is ordered for weights of bf16 */
#define AHEAD   1024 /* bytes that weights are asked for ahead: the processor's own prefetching ends with a page */

typedef float lanes __attribute__((vector_size(LANES * sizeof(float)), aligned(4), may_alias));
typedef int32_t words __attribute__((vector_size(LANES * sizeof(int32_t)), aligned(2), may_alias));
typedef uint16_t halves __attribute__((vector_size(LANES * sizeof(uint16_t)), aligned(2), may_alias));
#if defined(__aarch64__)
typedef __fp16 native_halves __attribute__((vector_size(LANES * sizeof(__fp16)), aligned(2), may_alias));
#endif

#define INLINE TRM_RANGES_CHECKED static inline __attribute__((always_inline))

typedef struct gemv {
    trm_host_matmul mm;
    const float *a;        /* [m, k]; for weights of bf16, of PAIRS elements first the even ones, then the odd ones */
    const uint16_t *tiles; /* a for the matrix unit, or NULL */
} gemv;

/* LANES weights of f32 or f16 from element `at` as f32. */
INLINE void load_lanes(trm_dtype type, const void *weights, int64_t at, lanes *to)
{
    if (type == TRM_F32) {
        *to = *(const lanes *)((const float *)weights + at);
        return;
    }
    const halves *from = (const halves *)((const uint16_t *)weights + at);
#if defined(__aarch64__)
    *to = __builtin_convertvector(*(const native_halves *)from, lanes);
#else
    const words wide = __builtin_convertvector(*from, words);
    /* As f16_to_f32 in convert.c. */
    const lanes value = (lanes)((wide & 0x7fff) << 13) * 0x1p112f;
    *to = (lanes)((words)value | ((value >= 65536.0f) & 0x7f800000) | ((wide & 0x8000) << 16));
#endif
}

INLINE float load_one(trm_dtype type, const void *weights, int64_t at)
{
    return type == TRM_F32    ? ((const float *)weights)[at]
           : type == TRM_BF16 ? trm_bf16_to_f32(((const uint16_t *)weights)[at])
                              : trm_f16_to_f32(((const uint16_t *)weights)[at]);
}

INLINE float sum_lanes(const lanes *v)
{
    float parts[LANES];
    memcpy(parts, v, sizeof(parts));
    for (int half = LANES / 2; half > 0; half /= 2) {
        for (int i = 0; i < half; i++) {
            parts[i] += parts[i + half];
        }
    }
    return parts[0];
}

/* out[r * COLUMNS + g] = row r of a times weight row `row` + g. Inlined with constant type, m and group. */
INLINE void dot_rows(trm_dtype type, int m, int group, const void *weights, int64_t row, const float *a, int64_t k,
                     float *out)
{
    lanes sums[MAX_GROUP][MAX_ROWS];
    for (int g = 0; g < group; g++) {
        for (int r = 0; r < m; r++) {
            sums[g][r] = (lanes){0};
        }
    }
    const int64_t step = type == TRM_BF16 ? PAIRS : LANES, size = type == TRM_F32 ? 4 : 2, ahead = AHEAD / size;
    int64_t i = 0;
    for (; i + step <= k; i += step) {
        /* Past the end of a row comes the next group, not the next row. */
        const char *next = (const char *)weights + (row * k + i + ahead + (i + ahead < k ? 0 : (group - 1) * k)) * size;
        for (int g = 0; g < group; g++) {
            __builtin_prefetch(next + g * k * size, 0, 3);
            if (type == TRM_BF16) {
                const words pairs = *(const words *)((const uint16_t *)weights + (row + g) * k + i);
                const lanes even = (lanes)(pairs << 16), odd = (lanes)(pairs & (int32_t)0xffff0000);
                for (int r = 0; r < m; r++) {
                    sums[g][r] += even * *(const lanes *)(a + r * k + i);
                    sums[g][r] += odd * *(const lanes *)(a + r * k + i + LANES);
                }
            } else {
                lanes w;
                load_lanes(type, weights, (row + g) * k + i, &w);
                for (int r = 0; r < m; r++) {
                    sums[g][r] += w * *(const lanes *)(a + r * k + i);
                }
            }
        }
    }
    for (int g = 0; g < group; g++) {
        for (int r = 0; r < m; r++) {
            float sum = sum_lanes(&sums[g][r]);
            for (int64_t j = i; j < k; j++) {
                sum += a[r * k + j] * load_one(type, weights, (row + g) * k + j);
            }
            out[r * COLUMNS + g] = sum;
        }
    }
}

INLINE void dot_range(trm_dtype type, int m, const void *weights, int64_t row, int64_t n, const float *a, int64_t k,
                      float *out)
{
    const int group = m <= 2 ? MAX_GROUP : m <= MOST_IN_TWO ? 2 : 1; /* as many sums as there are registers */
    int64_t i = 0;
    for (; i + group <= n; i += group) {
        dot_rows(type, m, group, weights, row + i, a, k, out + i);
    }
    for (; i < n; i++) {
        dot_rows(type, m, 1, weights, row + i, a, k, out + i);
    }
}

/* By 8, 4, 2 and 1 rows of a; the weight rows stay in the cache in between. */
#define DOT(type, suffix)                                                                                              \
    TRM_VECTOR_CLONES TRM_RANGES_CHECKED static void dot_##suffix(int64_t m, const void *weights, int64_t row,         \
                                                                  int64_t n, const float *a, int64_t k, float *out)    \
    {                                                                                                                  \
        for (; m >= 8; m -= 8, a += 8 * k, out += 8 * COLUMNS) {                                                       \
            dot_range(type, 8, weights, row, n, a, k, out);                                                            \
        }                                                                                                              \
        for (; m >= 4; m -= 4, a += 4 * k, out += 4 * COLUMNS) {                                                       \
            dot_range(type, 4, weights, row, n, a, k, out);                                                            \
        }                                                                                                              \
        for (; m >= 2; m -= 2, a += 2 * k, out += 2 * COLUMNS) {                                                       \
            dot_range(type, 2, weights, row, n, a, k, out);                                                            \
        }                                                                                                              \
        for (; m >= 1; m--, a += k, out += COLUMNS) {                                                                  \
            dot_range(type, 1, weights, row, n, a, k, out);                                                            \
        }                                                                                                              \
    }

DOT(TRM_F32, f32)
DOT(TRM_F16, f16)
DOT(TRM_BF16, bf16)

static void run_columns(void *user, int64_t begin, int64_t end)
{
    const gemv *g = user;
    const trm_host_matmul *mm = &g->mm;
    float out[TRM_TILE_ROWS * COLUMNS];
    if (g->tiles == NULL) {
        const int64_t size = (int64_t)trm_dtype_size(mm->b->dtype);
        trm_check_range((const char *)mm->b->data + begin * mm->k * size, (end - begin) * mm->k, size);
        trm_check_range(g->a, mm->m * mm->k, sizeof(float));
    }
    for (int64_t column = begin; column < end; column += COLUMNS) {
        const int64_t n = trm_host_min(end - column, COLUMNS);
        if (g->tiles != NULL) {
            trm_host_tiles_dot((const uint16_t *)mm->b->data + column * mm->k, n, g->tiles, mm->m, mm->k, out, COLUMNS);
        } else if (mm->b->dtype == TRM_F16) {
            dot_f16(mm->m, mm->b->data, column, n, g->a, mm->k, out);
        } else if (mm->b->dtype == TRM_BF16) {
            dot_bf16(mm->m, mm->b->data, column, n, g->a, mm->k, out);
        } else {
            dot_f32(mm->m, mm->b->data, column, n, g->a, mm->k, out);
        }
        for (int64_t r = 0; r < mm->m; r++) {
            trm_host_matmul_finish(mm, column, n, out + r * COLUMNS);
            trm_host_store(mm->out->dtype, mm->out->data, r * mm->n + column, n, out + r * COLUMNS);
        }
    }
}

static bool fits_tiles(const trm_host_matmul *mm)
{
    return mm->a->dtype == TRM_BF16 && mm->b->dtype == TRM_BF16 && mm->k > 0 && mm->k % TRM_TILE_K == 0 &&
           trm_host_tiles_are_there();
}

bool trm_host_gemv_accepts(const trm_kernel_call *call)
{
    trm_host_matmul mm;
    return !call->batch_invariant && trm_host_matmul_init(&mm, call) && mm.batches == 1 &&
           mm.m <= (fits_tiles(&mm) ? TRM_TILE_ROWS : MAX_ROWS) && mm.params->transpose_b &&
           (!mm.params->transpose_a || mm.m == 1);
}

/* Room for the rows of a in f32, which is also enough for twice as many in bf16. Of the kernels that take more rows,
 * too: a plan measures workspaces at its largest dims, and must have room for the runs with fewer rows that come here.
 */
size_t trm_host_gemv_workspace(const trm_kernel_call *call)
{
    trm_host_matmul mm;
    if (!trm_host_matmul_init(&mm, call) || (mm.a->dtype == TRM_F32 && mm.b->dtype != TRM_BF16)) {
        return 0;
    }
    return (size_t)(mm.m < MAX_ROWS ? mm.m : MAX_ROWS) * (size_t)mm.k * sizeof(float);
}

/* Rows begin .. end - 1 of a as dot_rows() wants them. */
static void convert_rows(void *user, int64_t begin, int64_t end)
{
    const gemv *g = user;
    const trm_host_matmul *mm = &g->mm;
    float buffer[TRM_HOST_BLOCK];
    for (int64_t row = begin; row < end; row++) {
        float *to = (float *)g->a + row * mm->k;
        for (int64_t i = 0; i < mm->k; i += TRM_HOST_BLOCK) {
            const int64_t n = trm_host_min(mm->k - i, TRM_HOST_BLOCK);
            const float *from = trm_host_load(mm->a->dtype, mm->a->data, row * mm->k + i, n, buffer);
            const int64_t ordered = mm->b->dtype == TRM_BF16 ? n - n % PAIRS : 0;
            for (int64_t j = 0; j < ordered; j += PAIRS) {
                for (int64_t l = 0; l < LANES; l++) {
                    to[i + j + l] = from[j + 2 * l];
                    to[i + j + LANES + l] = from[j + 2 * l + 1];
                }
            }
            memcpy(to + i + ordered, from + ordered, (size_t)(n - ordered) * sizeof(float));
        }
    }
}

trm_status trm_host_gemv_run(const trm_kernel_call *call)
{
    gemv g = {.tiles = NULL};
    if (!trm_host_matmul_init(&g.mm, call) || g.mm.m * g.mm.n == 0) {
        return TRM_OK;
    }
    trm_pool *pool = trm_host_pool(call);
    const trm_host_matmul *mm = &g.mm;
    if (fits_tiles(mm)) {
        g.tiles = trm_host_tiles_arrange(pool, mm->a->data, mm->m, mm->k, call->workspace);
    } else if (mm->a->dtype == TRM_F32 && mm->b->dtype != TRM_BF16) {
        g.a = mm->a->data;
    } else {
        g.a = call->workspace;
        trm_pool_for(pool, mm->m, trm_host_row_grain(mm->k), convert_rows, &g);
    }
    trm_pool_for(pool, mm->n, 1 + 65536 / (mm->k + 1), run_columns, &g);
    return TRM_OK;
}
