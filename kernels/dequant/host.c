/*
 * Products with quantized weights: a piece of a weight row at a time becomes f32 and meets the rows of x, which were
 * made f32 before. Threads take weight rows. A result depends on its row of x alone, not on how many there are. Where x
 * is bf16 and the processor has a matrix unit, that meets 16 rows of x at a time (matmul/host_tiles.h); what stands for
 * numbers of a quantized x is rounded to bf16 there.
 */
#include <string.h>

#include "base/half.h"
#include "kernels/dequant/quantize.h"
#include "kernels/small_types.h"
#include "kernels/host/host.h"
#include "kernels/matmul/host_tiles.h"

#define LANES  16
#define ROWS   32 /* of x that a piece of the weight meets */
#define COLUMN 32 /* results between two stores */

#define CHAINS 4 /* of sums: the latency of a multiplication in units of its issue interval */

typedef float lanes __attribute__((vector_size(LANES * sizeof(float)), aligned(4), may_alias));
typedef int32_t words __attribute__((vector_size(LANES * sizeof(int32_t)), aligned(4), may_alias));
typedef uint8_t bytes __attribute__((vector_size(LANES), aligned(1), may_alias));
typedef int8_t signed_bytes __attribute__((vector_size(LANES), aligned(1), may_alias));

typedef struct product {
    const trm_dequant_matmul_params *params;
    const trm_view *x, *weight, *scale, *bias, *zero_point, *out; /* bias and zero_point may be NULL */
    int64_t m, n, k;
    int64_t block_n, block_k, scales; /* blocks in a row */
    const float *rows;                /* [m, k] */
    uint16_t *quantized;              /* [m, k], the same in bf16, or NULL */
    float values[256];                /* of the bits of an F8E4M3 */
} product;

static const trm_view *view_of(const trm_kernel_call *call, int32_t i)
{
    return trm_kernel_call_has(call, i) ? &call->inputs[i] : NULL;
}

static bool is_as_scale(const product *p, const trm_view *view)
{
    const int64_t blocks_n = (p->n + p->block_n - 1) / p->block_n;
    return view->dims.n == 2 && view->dims.d[0] == blocks_n && view->dims.d[1] == p->scales;
}

/* Whether a byte has two numbers: integers, or floats. */
static bool is_packed(const product *p)
{
    return p->weight->dtype == TRM_U8 || p->weight->dtype == TRM_F4E2M1;
}

static bool types_are_known(const product *p)
{
    return trm_host_is_float(p->x->dtype) && trm_host_is_float(p->scale->dtype) && trm_host_is_float(p->out->dtype) &&
           (is_packed(p) || p->weight->dtype == TRM_I8 || p->weight->dtype == TRM_F8E4M3) &&
           (p->bias == NULL || trm_host_is_float(p->bias->dtype)) &&
           (p->zero_point == NULL || (p->weight->dtype == TRM_U8 && p->zero_point->dtype == TRM_U8));
}

static bool product_of(const trm_kernel_call *call, product *p)
{
    const trm_dequant_matmul_params *params = &call->layer->dequant_matmul;
    if (call->n_inputs < 3 || call->n_inputs > TRM_DEQUANT_MATMUL_INPUT_COUNT || call->n_outputs != 1 ||
        params->block_n < 1 || params->block_k < 0) {
        return false;
    }
    *p = (product){.params = params,
                   .x = &call->inputs[TRM_DEQUANT_MATMUL_X],
                   .weight = &call->inputs[TRM_DEQUANT_MATMUL_WEIGHT],
                   .scale = &call->inputs[TRM_DEQUANT_MATMUL_SCALE],
                   .bias = view_of(call, TRM_DEQUANT_MATMUL_BIAS),
                   .zero_point = view_of(call, TRM_DEQUANT_MATMUL_ZERO_POINT),
                   .out = &call->outputs[0]};
    const trm_dims *x = &p->x->dims, *weight = &p->weight->dims, *out = &p->out->dims;
    if (!types_are_known(p) || x->n < 1 || x->n != out->n || weight->n != 2) {
        return false;
    }
    p->m = trm_host_span(x, 0, x->n - 1);
    p->n = weight->d[0];
    p->k = weight->d[1] * (is_packed(p) ? 2 : 1);
    p->block_n = params->block_n;
    p->block_k = params->block_k > 0 ? params->block_k : p->k > 0 ? p->k : 1;
    p->scales = params->block_k > 0 ? (p->k + p->block_k - 1) / p->block_k : 1;
    return x->d[x->n - 1] == p->k && out->d[x->n - 1] == p->n && trm_host_span(out, 0, x->n - 1) == p->m &&
           !(is_packed(p) && params->block_k % 2 != 0) && is_as_scale(p, p->scale) &&
           (p->zero_point == NULL || is_as_scale(p, p->zero_point)) &&
           (p->bias == NULL || (p->bias->dims.n == 1 && p->bias->dims.d[0] == p->n));
}

/* LANES numbers of a byte each as f32. */
static inline void load_bytes(trm_dtype type, const uint8_t *from, lanes *to)
{
    if (type == TRM_I8) {
        *to = __builtin_convertvector(*(const signed_bytes *)from, lanes);
        return;
    }
    /* An F8E4M3's bits at a float's places have an exponent that is 120 less; the codes below 8 are multiples of 2^-9,
     * and the largest is NaN. (Shifted alone they would be denormal, which some processors multiply slowly.) */
    const words wide = __builtin_convertvector(*(const bytes *)from, words), code = wide & 0x7f;
    const words small = (words)(__builtin_convertvector(code, lanes) * 0x1p-9f), normal = (code << 20) + (120 << 23);
    const words is_small = code < 8;
    *to = (lanes)((small & is_small) | (normal & ~is_small) | ((code == 0x7f) & 0x7fc00000) | ((wide & 0x80) << 24));
}

/* Floats e2m1, twice: the highest of 4 bits is the sign. */
static const float doubled_f4[16] = {0, 1, 2, 3, 4, 6, 8, 12, -0.0f, -1, -2, -3, -4, -6, -8, -12};

/* `count` floats of 4 bits from the low bits of a byte on. */
static inline void load_f4(const uint8_t *from, int64_t count, float scale, float *to)
{
    const float half = 0.5f * scale;
    for (int64_t i = 0; i < count; i++) {
        to[i] = doubled_f4[from[i / 2] >> (i % 2 * 4) & 15] * half;
    }
}

/* Columns at .. at + count - 1 of a weight row, all of one block, as f32. */
static inline void load_piece(const product *p, int64_t row, int64_t at, int64_t count, float *to)
{
    const int64_t block = row / p->block_n * p->scales + at / p->block_k;
    float buffer;
    const float scale = *trm_host_load(p->scale->dtype, p->scale->data, block, 1, &buffer);
    const uint8_t *from = (const uint8_t *)p->weight->data;
    int64_t i = 0;
    if (p->weight->dtype == TRM_F4E2M1) {
        load_f4(from + (row * p->k + at) / 2, count, scale, to);
        return;
    }
    if (p->weight->dtype == TRM_U8) { /* at and, but at the end of a row, count are even */
        from += (row * p->k + at) / 2;
        const int32_t zero = p->zero_point != NULL ? ((const uint8_t *)p->zero_point->data)[block] : 8;
        for (; i + 2 * LANES <= count; i += 2 * LANES) {
            const bytes both = *(const bytes *)(from + i / 2), low = both & 15, high = both >> 4;
            const bytes first =
                __builtin_shufflevector(low, high, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
            const bytes second =
                __builtin_shufflevector(low, high, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
            *(lanes *)(to + i) = __builtin_convertvector(__builtin_convertvector(first, words) - zero, lanes) * scale;
            *(lanes *)(to + i + LANES) =
                __builtin_convertvector(__builtin_convertvector(second, words) - zero, lanes) * scale;
        }
        for (; i < count; i++) {
            to[i] = (float)((i % 2 == 0 ? from[i / 2] & 15 : from[i / 2] >> 4) - zero) * scale;
        }
        return;
    }
    const trm_dtype type = p->weight->dtype;
    from += row * p->k + at;
    for (; i + LANES <= count; i += LANES) {
        lanes numbers;
        load_bytes(type, from + i, &numbers);
        *(lanes *)(to + i) = numbers * scale;
    }
    for (; i < count; i++) {
        to[i] = (type == TRM_I8 ? (float)(int8_t)from[i] : p->values[from[i]]) * scale;
    }
}

static inline float dot(const float *a, const float *b, int64_t n)
{
    lanes sums[CHAINS] = {{0}};
    int64_t i = 0;
    for (; i + CHAINS * LANES <= n; i += CHAINS * LANES) {
        for (int c = 0; c < CHAINS; c++) {
            sums[c] += *(const lanes *)(a + i + c * LANES) * *(const lanes *)(b + i + c * LANES);
        }
    }
    for (; i + LANES <= n; i += LANES) {
        sums[0] += *(const lanes *)(a + i) * *(const lanes *)(b + i);
    }
    const lanes all = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    float parts[LANES], rest = 0.0f;
    memcpy(parts, &all, sizeof(parts));
    for (; i < n; i++) {
        rest += a[i] * b[i];
    }
    for (int half = LANES / 2; half > 0; half /= 2) {
        for (int j = 0; j < half; j++) {
            parts[j] += parts[j + half];
        }
    }
    return parts[0] + rest;
}

/* sums[r] = row first + r of x times a row of the weight. */
static inline void weight_row(const product *p, int64_t row, int64_t first, int64_t rows, double *sums)
{
    float piece[TRM_HOST_BLOCK];
    memset(sums, 0, (size_t)rows * sizeof(*sums));
    for (int64_t at = 0; at < p->k;) {
        const int64_t block_end = (at / p->block_k + 1) * p->block_k;
        const int64_t end = trm_host_min(trm_host_min(block_end, p->k), at + TRM_HOST_BLOCK);
        load_piece(p, row, at, end - at, piece);
        for (int64_t r = 0; r < rows; r++) {
            sums[r] += (double)dot(p->rows + (first + r) * p->k + at, piece, end - at);
        }
        at = end;
    }
}

TRM_VECTOR_CLONES static void weight_rows(void *user, int64_t begin, int64_t end)
{
    const product *p = user;
    float results[ROWS][COLUMN], bias[COLUMN];
    double sums[ROWS];
    for (int64_t first = 0; first < p->m; first += ROWS) {
        const int64_t rows = trm_host_min(p->m - first, ROWS);
        for (int64_t column = begin; column < end; column += COLUMN) {
            const int64_t columns = trm_host_min(end - column, COLUMN);
            const float *added =
                p->bias != NULL ? trm_host_load(p->bias->dtype, p->bias->data, column, columns, bias) : NULL;
            for (int64_t c = 0; c < columns; c++) {
                weight_row(p, column + c, first, rows, sums);
                for (int64_t r = 0; r < rows; r++) {
                    results[r][c] = (float)sums[r] + (added != NULL ? added[c] : 0.0f);
                }
            }
            for (int64_t r = 0; r < rows; r++) {
                trm_host_store(p->out->dtype, p->out->data, (first + r) * p->n + column, columns, results[r]);
            }
        }
    }
}

/* Columns of a row as what stands for them once they are quantized by one scale. */
static void quantize_columns(const trm_dequant_matmul_params *params, bool to_integers, float *columns, int64_t count)
{
    const float most = to_integers ? 127.5f : 448.0f;
    float largest = 0.0f;
    for (int64_t i = 0; i < count; i++) {
        const float size = fabsf(columns[i]);
        largest = size > largest ? size : largest;
    }
    const float scale = trm_x_scale(params->x_quantization, params->x_scale, largest, most), inverse = 1.0f / scale;
    for (int64_t i = 0; i < count && to_integers; i++) {
        columns[i] = fminf(fmaxf(rintf(columns[i] / scale), -128.0f), 127.0f) * scale;
    }
    for (int64_t i = 0; i < count && !to_integers; i++) {
        columns[i] = trm_f8e4m3_to_f32(trm_f32_to_f8e4m3(columns[i] * inverse)) * scale;
    }
}

static void convert_rows(void *user, int64_t begin, int64_t end)
{
    const product *p = user;
    float *rows = (float *)p->rows;
    for (int64_t at = begin * p->k; at < end * p->k; at += TRM_HOST_BLOCK) {
        const int64_t count = trm_host_min(end * p->k - at, TRM_HOST_BLOCK);
        const float *from = trm_host_load(p->x->dtype, p->x->data, at, count, rows + at);
        if (from != rows + at) {
            memcpy(rows + at, from, (size_t)count * sizeof(*rows));
        }
    }
    for (int64_t row = begin; p->params->x_quantization != TRM_X_AS_IS && row < end; row++) {
        for (int64_t at = 0; at < p->k; at += p->block_k) {
            quantize_columns(p->params, p->weight->dtype == TRM_I8, rows + row * p->k + at,
                             trm_host_min(p->k - at, p->block_k));
        }
        if (p->quantized != NULL) {
            trm_host_store(TRM_BF16, p->quantized, row * p->k, p->k, rows + row * p->k);
        }
    }
}

static bool fits_tiles(const product *p, trm_host_quantized *weights)
{
    *weights = (trm_host_quantized){p->weight, p->scale, p->zero_point, p->k, p->block_n, p->block_k, p->scales};
    return p->x->dtype == TRM_BF16 && p->weight->dtype != TRM_F4E2M1 && trm_host_tiles_take(weights);
}

typedef struct tiled {
    const product *p;
    trm_host_quantized weights;
    const uint16_t *x; /* arranged */
    int64_t first, m;  /* rows of x */
} tiled;

static void tile_rows(void *user, int64_t begin, int64_t end)
{
    const tiled *t = user;
    const product *p = t->p;
    float results[TRM_TILE_ROWS * COLUMN], buffer[COLUMN];
    for (int64_t column = begin; column < end; column += COLUMN) {
        const int64_t columns = trm_host_min(end - column, COLUMN);
        trm_host_tiles_dot_quantized(&t->weights, column, columns, t->x, t->m, results, COLUMN);
        const float *bias =
            p->bias != NULL ? trm_host_load(p->bias->dtype, p->bias->data, column, columns, buffer) : NULL;
        for (int64_t r = 0; r < t->m; r++) {
            float *row = results + r * COLUMN;
            for (int64_t c = 0; c < columns && bias != NULL; c++) {
                row[c] += bias[c];
            }
            trm_host_store(p->out->dtype, p->out->data, (t->first + r) * p->n + column, columns, row);
        }
    }
}

static void run_tiles(const product *p, const trm_host_quantized *weights, trm_pool *pool, uint16_t *room)
{
    const uint16_t *x = p->quantized != NULL ? p->quantized : p->x->data;
    for (int64_t first = 0; first < p->m; first += TRM_TILE_ROWS) {
        tiled t = {.p = p, .weights = *weights, .first = first, .m = trm_host_min(p->m - first, TRM_TILE_ROWS)};
        t.x = trm_host_tiles_arrange(pool, x + first * p->k, t.m, p->k, room);
        trm_pool_for(pool, p->n, 1 + 65536 / (p->k + 1), tile_rows, &t);
    }
}

bool trm_host_dequant_matmul_accepts(const trm_kernel_call *call)
{
    product p;
    return product_of(call, &p);
}

/* Rows of x in f32, where x is something else; of a quantized x also in bf16. */
size_t trm_host_dequant_matmul_workspace(const trm_kernel_call *call)
{
    const trm_view *x = &call->inputs[TRM_DEQUANT_MATMUL_X];
    const bool quantized = call->layer->dequant_matmul.x_quantization != TRM_X_AS_IS;
    const size_t count = (size_t)trm_dims_count(&x->dims);
    return x->dtype == TRM_F32 && !quantized ? 0 : count * (sizeof(float) + (quantized ? sizeof(uint16_t) : 0));
}

trm_status trm_host_dequant_matmul_run(const trm_kernel_call *call)
{
    product p;
    if (!product_of(call, &p) || p.m == 0 || p.n == 0) {
        return TRM_OK;
    }
    trm_host_quantized weights;
    const bool tiles = fits_tiles(&p, &weights), quantized = p.params->x_quantization != TRM_X_AS_IS;
    p.rows = p.x->dtype == TRM_F32 && !quantized ? p.x->data : call->workspace;
    p.quantized = tiles && quantized ? (uint16_t *)call->workspace + p.m * p.k * 2 : NULL;
    if (quantized || (!tiles && p.x->dtype != TRM_F32)) {
        trm_host_for(call, p.m, trm_host_row_grain(p.k), convert_rows, &p);
    }
    if (tiles) {
        run_tiles(&p, &weights, trm_host_pool(call), call->workspace);
        return TRM_OK;
    }
    for (int32_t i = 0; p.weight->dtype == TRM_F8E4M3 && i < 256; i++) {
        p.values[i] = (float)trm_small_float_decode(TRM_F8E4M3, (uint8_t)i);
    }
    trm_host_for(call, p.n, trm_host_row_grain(p.k), weight_rows, &p);
    return TRM_OK;
}
