/* Kernels that fold one axis: reduce and softmax. Both walk [outer, d, inner] in blocks of inner columns. */
#include <math.h>
#include <string.h>

#include "kernels/host/host.h"

#define COLUMNS 128

typedef struct fold {
    const trm_kernel_call *call;
    int64_t outer, d, inner;
    int64_t blocks; /* of columns per outer index */
} fold;

static fold fold_of(const trm_kernel_call *call, int32_t axis)
{
    const trm_dims *x = &call->inputs[0].dims;
    fold f = {
        .call = call, .outer = trm_host_span(x, 0, axis), .d = x->d[axis], .inner = trm_host_span(x, axis + 1, x->n)};
    f.blocks = (f.inner + COLUMNS - 1) / COLUMNS;
    return f;
}

static bool is_of_bools(trm_reduce_op op, trm_dtype type)
{
    return type == TRM_BOOL && (op == TRM_REDUCE_MAX || op == TRM_REDUCE_MIN);
}

bool trm_host_reduce_accepts(const trm_kernel_call *call)
{
    const trm_reduce_params *p = &call->layer->reduce;
    const trm_dims *x = &call->inputs[0].dims;
    const trm_dtype type = call->inputs[0].dtype;
    const int32_t axis = trm_host_axis(p->axis, x->n);
    if (call->n_inputs != 1 || call->n_outputs != 1 || call->outputs[0].dtype != type || p->op < TRM_REDUCE_SUM ||
        p->op > TRM_REDUCE_AVG || axis < 0 || axis >= x->n ||
        !(trm_host_is_float(type) || type == TRM_F64 || trm_element_is_integer(type) || is_of_bools(p->op, type))) {
        return false;
    }
    trm_dims expected = {.n = 0};
    for (int32_t i = 0; i < x->n; i++) {
        if (i != axis) {
            expected.d[expected.n++] = x->d[i];
        } else if (p->keep_dims) {
            expected.d[expected.n++] = 1;
        }
    }
    return trm_element_same_dims(&expected, &call->outputs[0].dims);
}

static double fold_f64(trm_reduce_op op, double acc, double v)
{
    switch (op) {
    case TRM_REDUCE_PROD:
        return acc * v;
    case TRM_REDUCE_MAX:
        return v > acc || v != v ? v : acc;
    case TRM_REDUCE_MIN:
        return v < acc || v != v ? v : acc;
    default:
        return acc + v;
    }
}

/* Wraps around; maximum and minimum of u64 with both sides' top bit turned. */
static int64_t fold_i64(trm_reduce_op op, int64_t acc, int64_t v, uint64_t top)
{
    const int64_t a = (int64_t)((uint64_t)acc ^ top), b = (int64_t)((uint64_t)v ^ top);
    switch (op) {
    case TRM_REDUCE_PROD:
        return (int64_t)((uint64_t)acc * (uint64_t)v);
    case TRM_REDUCE_MAX:
        return b > a ? v : acc;
    case TRM_REDUCE_MIN:
        return b < a ? v : acc;
    default:
        return (int64_t)((uint64_t)acc + (uint64_t)v);
    }
}

/* What a reduction begins with: the smallest value of the type for the maximum, the largest for the minimum. */
static int64_t start_i64(trm_reduce_op op, trm_dtype type)
{
    const int bits = (int)trm_dtype_size(type) * 8;
    const bool has_sign = type == TRM_I8 || type == TRM_I16 || type == TRM_I32 || type == TRM_I64;
    const uint64_t ones = UINT64_MAX >> (64 - bits);
    switch (op) {
    case TRM_REDUCE_PROD:
        return 1;
    case TRM_REDUCE_MAX:
        return has_sign ? -(int64_t)(ones >> 1) - 1 : 0;
    case TRM_REDUCE_MIN:
        return (int64_t)(has_sign ? ones >> 1 : ones);
    default:
        return 0;
    }
}

static double start_f64(trm_reduce_op op)
{
    return op == TRM_REDUCE_PROD ? 1.0 : op == TRM_REDUCE_MAX ? -INFINITY : op == TRM_REDUCE_MIN ? INFINITY : 0.0;
}

/* The result of a sum: itself, or the average of d elements, which is 0 of none. */
static double finish_f64(const fold *f, double sum)
{
    return f->call->layer->reduce.op == TRM_REDUCE_AVG && f->d > 0 ? sum / (double)f->d : sum;
}

TRM_VECTOR_CLONES static double fold_run(trm_reduce_op op, double acc, const float *v, int64_t n)
{
    if (op != TRM_REDUCE_SUM && op != TRM_REDUCE_AVG) {
        for (int64_t i = 0; i < n; i++) {
            acc = fold_f64(op, acc, (double)v[i]);
        }
        return acc;
    }
    double parts[8] = {0.0}; /* so that the loop becomes vector code */
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        for (int j = 0; j < 8; j++) {
            parts[j] += (double)v[i + j];
        }
    }
    for (; i < n; i++) {
        parts[0] += (double)v[i];
    }
    return acc + (((parts[0] + parts[4]) + (parts[2] + parts[6])) + ((parts[1] + parts[5]) + (parts[3] + parts[7])));
}

/* A row of neighbours, f32, f16 or bf16. */
static void reduce_row(const fold *f, int64_t from, int64_t to)
{
    const trm_view *x = &f->call->inputs[0], *y = &f->call->outputs[0];
    const trm_reduce_op op = f->call->layer->reduce.op;
    float buffer[TRM_HOST_BLOCK];
    double acc = start_f64(op);
    for (int64_t i = 0; i < f->d; i += TRM_HOST_BLOCK) {
        const int64_t n = trm_host_min(f->d - i, TRM_HOST_BLOCK);
        acc = fold_run(op, acc, trm_host_load(x->dtype, x->data, from + i, n, buffer), n);
    }
    const float result = (float)finish_f64(f, acc);
    trm_host_store(y->dtype, y->data, to, 1, &result);
}

/* `n` columns from element `from` on, into element `to` on. */
static void reduce_floats(const fold *f, int64_t from, int64_t to, int64_t n)
{
    const trm_view *x = &f->call->inputs[0], *y = &f->call->outputs[0];
    const trm_reduce_op op = f->call->layer->reduce.op;
    const double start = start_f64(op);
    double acc[COLUMNS];
    float buffer[COLUMNS];
    for (int64_t c = 0; c < n; c++) {
        acc[c] = start;
    }
    for (int64_t i = 0; i < f->d; i++) {
        if (x->dtype == TRM_F64) {
            const double *v = (const double *)x->data + from + i * f->inner;
            for (int64_t c = 0; c < n; c++) {
                acc[c] = fold_f64(op, acc[c], v[c]);
            }
        } else {
            const float *v = trm_host_load(x->dtype, x->data, from + i * f->inner, n, buffer);
            for (int64_t c = 0; c < n; c++) {
                acc[c] = fold_f64(op, acc[c], (double)v[c]);
            }
        }
    }
    for (int64_t c = 0; c < n; c++) {
        acc[c] = finish_f64(f, acc[c]);
        buffer[c] = (float)acc[c];
    }
    if (y->dtype == TRM_F64) {
        memcpy((double *)y->data + to, acc, (size_t)n * sizeof(double));
    } else {
        trm_host_store(y->dtype, y->data, to, n, buffer);
    }
}

static void reduce_integers(const fold *f, int64_t from, int64_t to, int64_t n)
{
    const trm_view *x = &f->call->inputs[0], *y = &f->call->outputs[0];
    const trm_reduce_op op = f->call->layer->reduce.op;
    const uint64_t top = x->dtype == TRM_U64 ? 1ull << 63 : 0;
    int64_t acc[COLUMNS], v[COLUMNS];
    for (int64_t c = 0; c < n; c++) {
        acc[c] = start_i64(op, x->dtype);
    }
    for (int64_t i = 0; i < f->d; i++) {
        trm_host_load_i64(x->dtype, x->data, from + i * f->inner, n, v);
        for (int64_t c = 0; c < n; c++) {
            acc[c] = fold_i64(op, acc[c], v[c], top);
        }
    }
    for (int64_t c = 0; op == TRM_REDUCE_AVG && f->d > 0 && c < n; c++) {
        acc[c] = top != 0 ? (int64_t)((uint64_t)acc[c] / (uint64_t)f->d) : acc[c] / f->d;
    }
    trm_host_store_i64(y->dtype, y->data, to, n, acc);
}

static void reduce_blocks(void *user, int64_t begin, int64_t end)
{
    const fold *f = user;
    const trm_dtype type = f->call->inputs[0].dtype;
    for (int64_t block = begin; block < end; block++) {
        const int64_t outer = block / f->blocks, column = block % f->blocks * COLUMNS;
        const int64_t n = trm_host_min(f->inner - column, COLUMNS);
        if (f->inner == 1 && trm_host_is_float(type)) {
            reduce_row(f, outer * f->d, outer);
        } else if (trm_element_is_integer(type) || type == TRM_BOOL) {
            reduce_integers(f, outer * f->d * f->inner + column, outer * f->inner + column, n);
        } else {
            reduce_floats(f, outer * f->d * f->inner + column, outer * f->inner + column, n);
        }
    }
}

trm_status trm_host_reduce_run(const trm_kernel_call *call)
{
    fold f = fold_of(call, trm_host_axis(call->layer->reduce.axis, call->inputs[0].dims.n));
    const int64_t work = f.d * trm_host_min(f.inner, COLUMNS);
    trm_host_for(call, f.outer * f.blocks, trm_host_row_grain(work), reduce_blocks, &f);
    return TRM_OK;
}

bool trm_host_softmax_accepts(const trm_kernel_call *call)
{
    const trm_view *x = &call->inputs[0], *y = &call->outputs[0];
    const int32_t axis = trm_host_axis(call->layer->softmax.axis, x->dims.n);
    return call->n_inputs == 1 && call->n_outputs == 1 && (trm_host_is_float(x->dtype) || x->dtype == TRM_F64) &&
           y->dtype == x->dtype && axis >= 0 && axis < x->dims.n && trm_element_same_dims(&x->dims, &y->dims);
}

/* The larger of two; NaN is larger than anything. */
static inline float larger(float v, float max)
{
    return ((max == max) & !(max >= v)) ? v : max;
}

TRM_VECTOR_CLONES static void keep_larger(const float *restrict v, int64_t n, float *restrict max)
{
    for (int64_t i = 0; i < n; i++) {
        max[i] = larger(v[i], max[i]);
    }
}

/* e[i] = e^(v[i] - max[i]) */
TRM_VECTOR_CLONES static void exp_of(const float *v, const float *max, int64_t n, float *e)
{
    for (int64_t i = 0; i < n; i++) {
        e[i] = v[i] - max[i];
    }
    trm_host_exp(e, n);
}

/* The largest of n elements; NaN is larger than anything. */
TRM_VECTOR_CLONES static float max_of(const float *v, int64_t n)
{
    enum { PARTS = 32 }; /* so that the loop becomes vector code */
    float parts[PARTS], max = -INFINITY;
    int64_t i = 0;
    for (int32_t k = 0; k < PARTS; k++) {
        parts[k] = -INFINITY;
    }
    for (; i + PARTS <= n; i += PARTS) {
        for (int32_t k = 0; k < PARTS; k++) {
            parts[k] = larger(v[i + k], parts[k]);
        }
    }
    for (; i < n; i++) {
        max = v[i] > max || v[i] != v[i] ? v[i] : max;
    }
    for (int32_t k = 0; k < PARTS; k++) {
        max = parts[k] > max || parts[k] != parts[k] ? parts[k] : max;
    }
    return max;
}

TRM_VECTOR_CLONES static void subtract(const float *v, float max, int64_t n, float *to)
{
    for (int64_t i = 0; i < n; i++) {
        to[i] = v[i] - max;
    }
}

TRM_VECTOR_CLONES static void scale_by(float *x, float scale, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        x[i] *= scale;
    }
}

/* Softmax of a row of neighbours. Exponentials of f32 are kept in y on the way; those of other types are made twice. */
static void softmax_row(const trm_view *x, const trm_view *y, int64_t start, int64_t d)
{
    float buffer[TRM_HOST_BLOCK], block_of[TRM_HOST_BLOCK];
    float max = -INFINITY;
    double sum = 0.0;
    const bool kept = y->dtype == TRM_F32;
    for (int64_t i = 0; i < d; i += TRM_HOST_BLOCK) {
        const int64_t n = trm_host_min(d - i, TRM_HOST_BLOCK);
        const float largest = max_of(trm_host_load(x->dtype, x->data, start + i, n, buffer), n);
        max = largest > max || largest != largest ? largest : max;
    }
    for (int64_t i = 0; i < d; i += TRM_HOST_BLOCK) {
        const int64_t n = trm_host_min(d - i, TRM_HOST_BLOCK);
        float *result = kept ? (float *)y->data + start + i : block_of;
        subtract(trm_host_load(x->dtype, x->data, start + i, n, buffer), max, n, result);
        trm_host_exp(result, n);
        sum = fold_run(TRM_REDUCE_SUM, sum, result, n);
    }
    const float scale = (float)(1.0 / sum);
    if (kept) {
        scale_by((float *)y->data + start, scale, d);
        return;
    }
    for (int64_t i = 0; i < d; i += TRM_HOST_BLOCK) {
        const int64_t n = trm_host_min(d - i, TRM_HOST_BLOCK);
        subtract(trm_host_load(x->dtype, x->data, start + i, n, buffer), max, n, block_of);
        trm_host_exp(block_of, n);
        scale_by(block_of, scale, n);
        trm_host_store(y->dtype, y->data, start + i, n, block_of);
    }
}

/* sums[i] += e[i] */
TRM_VECTOR_CLONES static void add_to(const float *restrict e, int64_t n, double *restrict sums)
{
    for (int64_t i = 0; i < n; i++) {
        sums[i] += (double)e[i];
    }
}

TRM_VECTOR_CLONES static void multiply(const float *restrict scales, int64_t n, float *restrict e)
{
    for (int64_t i = 0; i < n; i++) {
        e[i] *= scales[i];
    }
}

/* The same for `n` columns that lie side by side. */
static void softmax_columns(const fold *f, int64_t start, int64_t n)
{
    const trm_view *x = &f->call->inputs[0], *y = &f->call->outputs[0];
    const bool kept = y->dtype == TRM_F32;
    float buffer[COLUMNS], max[COLUMNS], result[COLUMNS], scales[COLUMNS];
    double sum[COLUMNS];
    for (int64_t c = 0; c < n; c++) {
        max[c] = -INFINITY;
        sum[c] = 0.0;
    }
    for (int64_t i = 0; i < f->d; i++) {
        keep_larger(trm_host_load(x->dtype, x->data, start + i * f->inner, n, buffer), n, max);
    }
    for (int64_t i = 0; i < f->d; i++) {
        float *e = kept ? (float *)y->data + start + i * f->inner : result;
        exp_of(trm_host_load(x->dtype, x->data, start + i * f->inner, n, buffer), max, n, e);
        add_to(e, n, sum);
    }
    for (int64_t c = 0; c < n; c++) {
        scales[c] = (float)(1.0 / sum[c]);
    }
    for (int64_t i = 0; i < f->d; i++) {
        float *e = kept ? (float *)y->data + start + i * f->inner : result;
        if (!kept) {
            exp_of(trm_host_load(x->dtype, x->data, start + i * f->inner, n, buffer), max, n, e);
        }
        multiply(scales, n, e);
        if (!kept) {
            trm_host_store(y->dtype, y->data, start + i * f->inner, n, e);
        }
    }
}

static void softmax_columns_f64(const fold *f, int64_t start, int64_t n)
{
    const double *x = (const double *)f->call->inputs[0].data + start;
    double *y = (double *)f->call->outputs[0].data + start;
    for (int64_t c = 0; c < n; c++) {
        double max = -INFINITY, sum = 0.0;
        for (int64_t i = 0; i < f->d; i++) {
            const double v = x[i * f->inner + c];
            max = v > max || v != v ? v : max;
        }
        for (int64_t i = 0; i < f->d; i++) {
            y[i * f->inner + c] = exp(x[i * f->inner + c] - max);
            sum += y[i * f->inner + c];
        }
        for (int64_t i = 0; i < f->d; i++) {
            y[i * f->inner + c] /= sum;
        }
    }
}

static void softmax_blocks(void *user, int64_t begin, int64_t end)
{
    const fold *f = user;
    for (int64_t block = begin; block < end; block++) {
        const int64_t outer = block / f->blocks, column = block % f->blocks * COLUMNS;
        const int64_t start = outer * f->d * f->inner + column;
        if (f->call->inputs[0].dtype == TRM_F64) {
            softmax_columns_f64(f, start, trm_host_min(f->inner - column, COLUMNS));
        } else if (f->inner == 1) {
            softmax_row(&f->call->inputs[0], &f->call->outputs[0], start, f->d);
        } else {
            softmax_columns(f, start, trm_host_min(f->inner - column, COLUMNS));
        }
    }
}

trm_status trm_host_softmax_run(const trm_kernel_call *call)
{
    fold f = fold_of(call, trm_host_axis(call->layer->softmax.axis, call->inputs[0].dims.n));
    if (f.d > 0) {
        const int64_t work = f.d * trm_host_min(f.inner, COLUMNS) * 4;
        trm_host_for(call, f.outer * f.blocks, trm_host_row_grain(work), softmax_blocks, &f);
    }
    return TRM_OK;
}
