/*
 * Matrix products of f64 and of integers: plain loops over rows, in f64 or in 64-bit integers whose low bits are
 * stored.
 */
#include <string.h>

#include "kernels/pointwise/element.h"
#include "kernels/matmul/host.h"

/* Columns at a time: the sums and a converted run of b stay in the innermost cache. */
#define COLUMNS 256

typedef struct place {
    int64_t a, b, bias, out; /* first elements of the operands of this row */
    int64_t m;               /* row in its batch */
} place;

static place place_of(const trm_host_matmul *mm, int64_t row)
{
    const trm_host_matmul_place at = trm_host_matmul_place_of(mm, row / mm->m);
    const int64_t m = row % mm->m;
    return (place){at.a, at.b, at.bias, at.out + m * mm->n, m};
}

static inline int64_t a_index(const trm_host_matmul *mm, const place *p, int64_t k)
{
    return p->a + (mm->params->transpose_a ? k * mm->m + p->m : p->m * mm->k + k);
}

static void f64_columns(const trm_host_matmul *mm, const place *p, int64_t column, int64_t n)
{
    const double *a = mm->a->data, *b = mm->b->data;
    const double *bias = mm->bias != NULL ? mm->bias->data : NULL;
    double sums[COLUMNS];
    for (int64_t j = 0; j < n; j++) {
        sums[j] = 0.0;
    }
    for (int64_t k = 0; k < mm->k && !mm->params->transpose_b; k++) {
        const double x = a[a_index(mm, p, k)], *row = b + p->b + k * mm->n + column;
        for (int64_t j = 0; j < n; j++) {
            sums[j] += x * row[j];
        }
    }
    for (int64_t j = 0; j < n && mm->params->transpose_b; j++) {
        const double *row = b + p->b + (column + j) * mm->k;
        for (int64_t k = 0; k < mm->k; k++) {
            sums[j] += a[a_index(mm, p, k)] * row[k];
        }
    }
    for (int64_t j = 0; j < n; j++) {
        const double sum = sums[j] + (bias != NULL ? bias[p->bias + column + j] : 0.0);
        ((double *)mm->out->data)[p->out + column + j] = trm_activate_f64(mm->params->activation, sum);
    }
}

/* Sums modulo 2^64 have the right low bits whatever the type. */
static void integer_columns(const trm_host_matmul *mm, const place *p, int64_t column, int64_t n)
{
    int64_t sums[COLUMNS], row[COLUMNS], x;
    memset(sums, 0, sizeof(sums));
    if (mm->bias != NULL && mm->bias->data != NULL) {
        trm_host_load_i64(mm->bias->dtype, mm->bias->data, p->bias + column, n, sums);
    }
    for (int64_t k = 0; k < mm->k && !mm->params->transpose_b; k++) {
        trm_host_load_i64(mm->a->dtype, mm->a->data, a_index(mm, p, k), 1, &x);
        trm_host_load_i64(mm->b->dtype, mm->b->data, p->b + k * mm->n + column, n, row);
        for (int64_t j = 0; j < n; j++) {
            sums[j] = (int64_t)((uint64_t)sums[j] + (uint64_t)x * (uint64_t)row[j]);
        }
    }
    for (int64_t j = 0; j < n && mm->params->transpose_b; j++) {
        for (int64_t k = 0; k < mm->k; k += COLUMNS) {
            const int64_t count = trm_host_min(mm->k - k, COLUMNS);
            trm_host_load_i64(mm->b->dtype, mm->b->data, p->b + (column + j) * mm->k + k, count, row);
            for (int64_t i = 0; i < count; i++) {
                const int64_t from = a_index(mm, p, k + i);
                const uint64_t y = (uint64_t)trm_element_load_i64(mm->a->dtype, mm->a->data, from);
                sums[j] = (int64_t)((uint64_t)sums[j] + y * (uint64_t)row[i]);
            }
        }
    }
    trm_host_store_i64(mm->out->dtype, mm->out->data, p->out + column, n, sums);
}

#define ROWS  4 /* of i32 at a time, which share what is read of b */
#define BLOCK 64

/* sums [ROWS, BLOCK] += a [k, ROWS] b [k, BLOCK], whose rows are `stride` apart. Modulo 2^32. */
TRM_VECTOR_CLONES static void add_products(const uint32_t *restrict a, const uint32_t *restrict b, int64_t stride,
                                           int64_t k, uint32_t *restrict sums)
{
    uint32_t own[ROWS][BLOCK];
    memcpy(own, sums, sizeof(own));
    for (int64_t i = 0; i < k; i++) {
        for (int32_t r = 0; r < ROWS; r++) {
            for (int32_t j = 0; j < BLOCK; j++) {
                own[r][j] += a[i * ROWS + r] * b[i * stride + j];
            }
        }
    }
    memcpy(sums, own, sizeof(own));
}

/* Adds the products of k rows of b, which begin at `b`, to n columns of rows of the output. */
static void add_columns(const uint32_t *a, const uint32_t *b, int64_t width, int64_t k, int64_t rows, int64_t n,
                        uint32_t *out)
{
    uint32_t sums[ROWS * BLOCK] = {0}, edge[COLUMNS * BLOCK];
    int64_t stride = width;
    for (int64_t r = 0; r < rows; r++) {
        memcpy(sums + r * BLOCK, out + r * width, (size_t)n * sizeof(sums[0]));
    }
    if (n < BLOCK) { /* a block of the same width, so that there is one loop */
        for (int64_t i = 0; i < k; i++) {
            memcpy(edge + i * BLOCK, b + i * width, (size_t)n * sizeof(edge[0]));
            memset(edge + i * BLOCK + n, 0, (size_t)(BLOCK - n) * sizeof(edge[0]));
        }
        b = edge;
        stride = BLOCK;
    }
    add_products(a, b, stride, k, sums);
    for (int64_t r = 0; r < rows; r++) {
        memcpy(out + r * width, sums + r * BLOCK, (size_t)n * sizeof(sums[0]));
    }
}

/* `rows` rows of a batch's product of i32, from `first` on. */
static void i32_rows(const trm_host_matmul *mm, const place *first, int64_t rows)
{
    const uint32_t *a = mm->a->data, *b = (const uint32_t *)mm->b->data + first->b;
    uint32_t *out = (uint32_t *)mm->out->data + first->out, taken[COLUMNS * ROWS] = {0};
    for (int64_t i = 0; i < rows * mm->n; i++) {
        out[i] = mm->bias != NULL ? ((const uint32_t *)mm->bias->data)[first->bias + i % mm->n] : 0;
    }
    for (int64_t k0 = 0; k0 < mm->k; k0 += COLUMNS) {
        const int64_t k = trm_host_min(mm->k - k0, COLUMNS);
        for (int64_t r = 0; r < rows; r++) {
            place p = *first;
            p.m += r;
            for (int64_t i = 0; i < k; i++) {
                taken[i * ROWS + r] = a[a_index(mm, &p, k0 + i)];
            }
        }
        for (int64_t column = 0; column < mm->n; column += BLOCK) {
            add_columns(taken, b + k0 * mm->n + column, mm->n, k, rows, trm_host_min(mm->n - column, BLOCK),
                        out + column);
        }
    }
}

static void i32_blocks(void *user, int64_t begin, int64_t end)
{
    const trm_host_matmul *mm = user;
    const int64_t blocks = (mm->m + ROWS - 1) / ROWS;
    for (int64_t block = begin; block < end; block++) {
        const int64_t m0 = block % blocks * ROWS;
        const place first = place_of(mm, block / blocks * mm->m + m0);
        i32_rows(mm, &first, trm_host_min(mm->m - m0, ROWS));
    }
}

static void wide_rows(void *user, int64_t begin, int64_t end)
{
    const trm_host_matmul *mm = user;
    for (int64_t row = begin; row < end; row++) {
        const place p = place_of(mm, row);
        for (int64_t column = 0; column < mm->n; column += COLUMNS) {
            const int64_t n = trm_host_min(mm->n - column, COLUMNS);
            if (mm->out->dtype == TRM_F64) {
                f64_columns(mm, &p, column, n);
            } else {
                integer_columns(mm, &p, column, n);
            }
        }
    }
}

bool trm_host_matmul_wide_accepts(const trm_kernel_call *call)
{
    trm_host_matmul mm;
    const trm_dtype type = call->n_inputs > 0 ? call->inputs[0].dtype : TRM_DTYPE_NONE;
    return (type == TRM_F64 ||
            (trm_element_is_integer(type) && call->layer->matmul.activation == TRM_ACTIVATION_NONE)) &&
           trm_host_matmul_init_any(&mm, call) && mm.b->dtype == type && mm.out->dtype == type &&
           (mm.bias == NULL || mm.bias->dtype == type);
}

trm_status trm_host_matmul_wide_run(const trm_kernel_call *call)
{
    trm_host_matmul mm;
    if (!trm_host_matmul_init_any(&mm, call) || mm.n == 0) {
        return TRM_OK;
    }
    const bool whole = mm.bias == NULL || mm.bias->data != NULL;
    if (mm.out->dtype == TRM_I32 && !mm.params->transpose_b && whole && mm.k > 0) {
        trm_host_for(call, mm.batches * ((mm.m + ROWS - 1) / ROWS), trm_host_row_grain(mm.n * mm.k / 4), i32_blocks,
                     &mm);
    } else {
        trm_host_for(call, mm.batches * mm.m, trm_host_row_grain(mm.n * mm.k), wide_rows, &mm);
    }
    return TRM_OK;
}
