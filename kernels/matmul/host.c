/*
 * Matrix products: the reference in plain loops, and the fast one, which cuts the output into tiles, converts what is
 * not f32 tile by tile and multiplies each. The pool's threads take tiles.
 */
#include "kernels/matmul/host.h"

#include <string.h>

#include "base/range_check.h"
#include "kernels/host/gemm.h"

static bool leading_strides(const trm_dims *input, const trm_host_matmul *matmul, int64_t *strides)
{
    const int32_t shift = matmul->n_leading - (input->n - 2);
    for (int32_t i = 0; i < matmul->n_leading; i++) {
        strides[i] = 0;
        if (i >= shift && input->d[i - shift] != 1) {
            if (input->d[i - shift] != matmul->leading[i]) {
                return false;
            }
            strides[i] = trm_host_span(input, i - shift + 1, input->n);
        }
    }
    return true;
}

bool trm_host_matmul_init(trm_host_matmul *matmul, const trm_kernel_call *call)
{
    return call->n_inputs >= 2 && trm_host_is_float(call->inputs[0].dtype) &&
           trm_host_is_float(call->inputs[1].dtype) && trm_host_is_float(call->outputs[0].dtype) &&
           trm_host_matmul_init_any(matmul, call) && (matmul->bias == NULL || trm_host_is_float(matmul->bias->dtype));
}

bool trm_host_matmul_init_any(trm_host_matmul *matmul, const trm_kernel_call *call)
{
    const trm_matmul_params *p = &call->layer->matmul;
    const trm_view *a = &call->inputs[0], *b = &call->inputs[1], *out = &call->outputs[0];
    const int32_t na = a->dims.n, nb = b->dims.n, no = out->dims.n;
    if (call->n_inputs < 2 || call->n_inputs > 3 || call->n_outputs != 1 || na < 2 || nb < 2 ||
        no != (na > nb ? na : nb) || out->dtype != (p->out == TRM_DTYPE_NONE ? a->dtype : p->out) ||
        !trm_host_activation_is_known(p->activation)) {
        return false;
    }
    *matmul = (trm_host_matmul){.params = p, .a = a, .b = b, .out = out, .n_leading = no - 2};
    matmul->m = a->dims.d[na - (p->transpose_a ? 1 : 2)];
    matmul->k = a->dims.d[na - (p->transpose_a ? 2 : 1)];
    matmul->n = b->dims.d[nb - (p->transpose_b ? 2 : 1)];
    if (b->dims.d[nb - (p->transpose_b ? 1 : 2)] != matmul->k || out->dims.d[no - 2] != matmul->m ||
        out->dims.d[no - 1] != matmul->n) {
        return false;
    }
    memcpy(matmul->leading, out->dims.d, (size_t)matmul->n_leading * sizeof(int64_t));
    matmul->batches = trm_host_span(&out->dims, 0, matmul->n_leading);
    if (!leading_strides(&a->dims, matmul, matmul->a_strides) ||
        !leading_strides(&b->dims, matmul, matmul->b_strides)) {
        return false;
    }
    if (trm_kernel_call_has(call, 2)) {
        matmul->bias = &call->inputs[2];
        const trm_dims *bias = &matmul->bias->dims;
        if (bias->n < 1 || bias->d[bias->n - 1] != matmul->n ||
            (bias->n > 1 &&
             (bias->n != nb || bias->d[bias->n - 2] != 1 || !leading_strides(bias, matmul, matmul->bias_strides)))) {
            return false;
        }
    }
    if (nb == 2 && na > 2 && !p->transpose_a) {
        matmul->m *= matmul->batches;
        matmul->batches = 1;
        matmul->n_leading = 0;
    }
    return true;
}

trm_host_matmul_place trm_host_matmul_place_of(const trm_host_matmul *matmul, int64_t batch)
{
    trm_host_matmul_place place = {.out = batch * matmul->m * matmul->n};
    for (int32_t i = matmul->n_leading - 1; i >= 0; i--) {
        const int64_t at = batch % matmul->leading[i];
        batch /= matmul->leading[i];
        place.a += at * matmul->a_strides[i];
        place.b += at * matmul->b_strides[i];
        place.bias += at * matmul->bias_strides[i];
    }
    return place;
}

void trm_host_matmul_finish(const trm_host_matmul *matmul, int64_t bias_at, int64_t n, float *x)
{
    if (matmul->bias != NULL && matmul->bias->data != NULL) {
        float buffer[TRM_HOST_BLOCK];
        for (int64_t i = 0; i < n; i += TRM_HOST_BLOCK) {
            const int64_t block = trm_host_min(n - i, TRM_HOST_BLOCK);
            const float *bias = trm_host_load(matmul->bias->dtype, matmul->bias->data, bias_at + i, block, buffer);
            for (int64_t j = 0; j < block; j++) {
                x[i + j] += bias[j];
            }
        }
    }
    trm_host_activate(matmul->params->activation, x, n);
}

#define REFERENCE_COLUMNS 8 /* at a time */

static float element(const trm_view *view, int64_t i)
{
    float buffer;
    return *trm_host_load(view->dtype, view->data, i, 1, &buffer);
}

/* REFERENCE_COLUMNS sums over k in order, of f32 that is read in place: several sums do not wait for one addition after
 * another. */
TRM_VECTOR_CLONES TRM_RANGES_CHECKED static void reference_lanes(int64_t k, const float *a, int64_t a_step,
                                                                 const float *b, int64_t b_column, int64_t b_step,
                                                                 double *sums)
{
    const float *columns[REFERENCE_COLUMNS];
    double lanes[REFERENCE_COLUMNS] = {0};
    for (int j = 0; j < REFERENCE_COLUMNS; j++) {
        columns[j] = b + j * b_column;
    }
    for (int64_t i = 0; i < k; i++) {
        const double x = a[i * a_step];
        const int64_t at = i * b_step;
        for (int j = 0; j < REFERENCE_COLUMNS; j++) {
            lanes[j] += x * (double)columns[j][at];
        }
    }
    memcpy(sums, lanes, sizeof(lanes));
}

/* The sums of `n` neighbouring columns, each over k in order. The batch-invariant mode runs whole models so. */
static void reference_sums(const trm_host_matmul *mm, int64_t a, int64_t a_step, int64_t b, int64_t b_column,
                           int64_t b_step, int64_t n, double *sums)
{
    if (mm->a->dtype == TRM_F32 && mm->b->dtype == TRM_F32 && n == REFERENCE_COLUMNS) {
        const float *pa = (const float *)mm->a->data + a, *pb = (const float *)mm->b->data + b;
        const int64_t last = mm->k > 0 ? mm->k - 1 : 0;
        trm_check_range(pa, mm->k > 0 ? last * a_step + 1 : 0, sizeof(float));
        trm_check_range(pb, mm->k > 0 ? last * b_step + (n - 1) * b_column + 1 : 0, sizeof(float));
        reference_lanes(mm->k, pa, a_step, pb, b_column, b_step, sums);
        return;
    }
    for (int64_t j = 0; j < n; j++) {
        sums[j] = 0.0;
        for (int64_t k = 0; k < mm->k; k++) {
            sums[j] += (double)element(mm->a, a + k * a_step) * (double)element(mm->b, b + j * b_column + k * b_step);
        }
    }
}

/* Rows begin .. end - 1 over all batches. */
static void reference_rows(void *user, int64_t begin, int64_t end)
{
    const trm_host_matmul *mm = user;
    const int64_t a_row = mm->params->transpose_a ? 1 : mm->k, a_step = mm->params->transpose_a ? mm->m : 1;
    const int64_t b_column = mm->params->transpose_b ? mm->k : 1, b_step = mm->params->transpose_b ? 1 : mm->n;
    for (int64_t row = begin; row < end; row++) {
        const trm_host_matmul_place at = trm_host_matmul_place_of(mm, row / mm->m);
        const int64_t m = row % mm->m;
        for (int64_t column = 0; column < mm->n; column += REFERENCE_COLUMNS) {
            const int64_t n = trm_host_min(mm->n - column, REFERENCE_COLUMNS);
            double sums[REFERENCE_COLUMNS];
            float results[REFERENCE_COLUMNS];
            reference_sums(mm, at.a + m * a_row, a_step, at.b + column * b_column, b_column, b_step, n, sums);
            for (int64_t j = 0; j < n; j++) {
                results[j] = (float)sums[j];
            }
            trm_host_matmul_finish(mm, at.bias + column, n, results);
            trm_host_store(mm->out->dtype, mm->out->data, at.out + m * mm->n + column, n, results);
        }
    }
}

/* What the kernel of few rows needs, so that workspaces do not fall when rows are more. */
size_t trm_host_matmul_reference_workspace(const trm_kernel_call *call)
{
    return trm_host_gemv_workspace(call);
}

size_t trm_host_matmul_tiled_workspace(const trm_kernel_call *call)
{
    return trm_host_gemv_workspace(call);
}

bool trm_host_matmul_reference_accepts(const trm_kernel_call *call)
{
    trm_host_matmul matmul;
    return trm_host_matmul_init(&matmul, call);
}

trm_status trm_host_matmul_reference_run(const trm_kernel_call *call)
{
    trm_host_matmul matmul;
    if (trm_host_matmul_init(&matmul, call) && matmul.n > 0) {
        trm_host_for(call, matmul.batches * matmul.m, 1, reference_rows, &matmul);
    }
    return TRM_OK;
}

/* Tile sizes: converted operands (64 and 256 KiB) and the sums (64 KiB) stay in a core's cache and on its stack. */
#define TILE_M 64
#define TILE_N 256
#define TILE_K 256

typedef struct tiling {
    trm_host_matmul mm;
    int64_t tiles_m, tiles_n;
    int64_t tile_k; /* all of K if nothing is converted */
} tiling;

/* Rows x columns of a matrix as f32 with its leading dimension: in place, or converted into `buffer`. */
static const float *load_tile(const trm_view *view, int64_t start, int64_t stride, int64_t rows, int64_t columns,
                              float *buffer, int64_t *leading)
{
    if (view->dtype == TRM_F32) {
        *leading = stride;
        return (const float *)view->data + start;
    }
    for (int64_t row = 0; row < rows; row++) {
        trm_host_load(view->dtype, view->data, start + row * stride, columns, buffer + row * columns);
    }
    *leading = columns;
    return buffer;
}

/* sums [m, n] = the product of rows m0 .. of a and columns n0 .. of b. */
static void multiply_tile(const tiling *t, int64_t a, int64_t b, int64_t m0, int64_t m, int64_t n0, int64_t n,
                          float *sums, int64_t sums_stride)
{
    const trm_host_matmul *mm = &t->mm;
    const bool ta = mm->params->transpose_a, tb = mm->params->transpose_b;
    float a_buffer[TILE_M * TILE_K], b_buffer[TILE_N * TILE_K];
    for (int64_t k0 = 0; k0 < mm->k; k0 += t->tile_k) {
        const int64_t k = trm_host_min(mm->k - k0, t->tile_k);
        int64_t lda, ldb;
        const float *pa = ta ? load_tile(mm->a, a + k0 * mm->m + m0, mm->m, k, m, a_buffer, &lda)
                             : load_tile(mm->a, a + m0 * mm->k + k0, mm->k, m, k, a_buffer, &lda);
        const float *pb = tb ? load_tile(mm->b, b + n0 * mm->k + k0, mm->k, n, k, b_buffer, &ldb)
                             : load_tile(mm->b, b + k0 * mm->n + n0, mm->n, k, n, b_buffer, &ldb);
        trm_host_gemm(ta, tb, m, n, k, pa, lda, pb, ldb, k0 > 0, sums, sums_stride);
    }
}

static void run_tiles(void *user, int64_t begin, int64_t end)
{
    const tiling *t = user;
    const trm_host_matmul *mm = &t->mm;
    float buffer[TILE_M * TILE_N];
    for (int64_t tile = begin; tile < end; tile++) {
        /* Neighbouring tiles share their part of b, the weights. */
        const int64_t m0 = tile % t->tiles_m * TILE_M, n0 = tile / t->tiles_m % t->tiles_n * TILE_N;
        const int64_t m = trm_host_min(mm->m - m0, TILE_M), n = trm_host_min(mm->n - n0, TILE_N);
        const trm_host_matmul_place at = trm_host_matmul_place_of(mm, tile / (t->tiles_m * t->tiles_n));
        const int64_t out = at.out + m0 * mm->n + n0;
        const bool direct = mm->out->dtype == TRM_F32;
        float *sums = direct ? (float *)mm->out->data + out : buffer;
        const int64_t stride = direct ? mm->n : n;
        multiply_tile(t, at.a, at.b, m0, m, n0, n, sums, stride);
        for (int64_t row = 0; row < m; row++) {
            trm_host_matmul_finish(mm, at.bias + n0, n, sums + row * stride);
            if (!direct) {
                trm_host_store(mm->out->dtype, mm->out->data, out + row * mm->n, n, sums + row * stride);
            }
        }
    }
}

bool trm_host_matmul_tiled_accepts(const trm_kernel_call *call)
{
    trm_host_matmul matmul;
    return !call->batch_invariant && trm_host_matmul_init(&matmul, call) && matmul.k > 0 && matmul.m <= INT32_MAX &&
           matmul.n <= INT32_MAX && matmul.k <= INT32_MAX;
}

trm_status trm_host_matmul_tiled_run(const trm_kernel_call *call)
{
    tiling t;
    if (!trm_host_matmul_init(&t.mm, call)) {
        return TRM_OK;
    }
    t.tiles_m = (t.mm.m + TILE_M - 1) / TILE_M;
    t.tiles_n = (t.mm.n + TILE_N - 1) / TILE_N;
    t.tile_k = t.mm.a->dtype == TRM_F32 && t.mm.b->dtype == TRM_F32 ? t.mm.k : TILE_K;
    trm_host_for(call, t.mm.batches * t.tiles_m * t.tiles_n, 1, run_tiles, &t);
    return TRM_OK;
}
