/* Reductions, and what is computed along one axis: softmax and its kin, Lp and mean-variance normalization. */
#include "graph/import/onnx/ops/ops.h"
#include "graph/import/onnx/ops/common.h"

trm_dtype trm_onnx_wide(trm_dtype dtype)
{
    return dtype == TRM_F16 || dtype == TRM_BF16 ? TRM_F32 : trm_dtype_is_float(dtype) ? dtype : TRM_F64;
}

/* ---- reductions ------------------------------------------------------------------------------------------------ */

typedef enum reduction {
    REDUCTION_PLAIN, /* data - REDUCTION_PLAIN is a trm_reduce_op */
    REDUCTION_L1 = 16,
    REDUCTION_L2,
    REDUCTION_LOG_SUM,
    REDUCTION_LOG_SUM_EXP,
    REDUCTION_SUM_SQUARE
} reduction;

typedef struct reduced {
    int32_t axes[TRM_MAX_DIMS];
    int32_t n;
    bool keep_dims;
} reduced;

static trm_tensor *sum_of(trm_onnx_node *node, trm_tensor *x, const reduced *r)
{
    return trm_onnx_reduce(node, TRM_REDUCE_SUM, x, r->axes, r->n, r->keep_dims);
}

/* log of the sum of e^x, shifted by the maximum if that is finite. */
static trm_tensor *log_sum_exp(trm_onnx_node *node, trm_tensor *x, const reduced *r)
{
    trm_tensor *max = trm_onnx_reduce(node, TRM_REDUCE_MAX, x, r->axes, r->n, true);
    trm_tensor *infinite = trm_onnx_unary_with(node, TRM_UNARY_IS_INF, max, 1.0f, 1.0f);
    trm_tensor *shift = trm_onnx_select(node, infinite, trm_onnx_scalar(node, x->dtype, 0.0), max);
    trm_tensor *e = trm_onnx_unary(node, TRM_UNARY_EXP, trm_onnx_elementwise(node, TRM_ELEMENTWISE_SUB, x, shift));
    trm_tensor *y = trm_onnx_unary(node, TRM_UNARY_LOG, sum_of(node, e, r));
    return trm_onnx_elementwise(node, TRM_ELEMENTWISE_ADD, y,
                                r->keep_dims ? shift : trm_onnx_squeeze(node, shift, r->axes, r->n));
}

static trm_tensor *reduce_by(trm_onnx_node *node, int32_t what, trm_tensor *x, const reduced *r)
{
    switch (what) {
    case REDUCTION_L1:
        return sum_of(
            node, x->dtype >= TRM_U8 && (x->dtype - TRM_U8) % 2 == 0 ? x : trm_onnx_unary(node, TRM_UNARY_ABS, x), r);
    case REDUCTION_L2:
        return trm_onnx_unary(node, TRM_UNARY_SQRT,
                              sum_of(node, trm_onnx_elementwise(node, TRM_ELEMENTWISE_MUL, x, x), r));
    case REDUCTION_LOG_SUM:
        return trm_onnx_unary(node, TRM_UNARY_LOG, sum_of(node, x, r));
    case REDUCTION_LOG_SUM_EXP:
        return log_sum_exp(node, x, r);
    case REDUCTION_SUM_SQUARE:
        return sum_of(node, trm_onnx_elementwise(node, TRM_ELEMENTWISE_MUL, x, x), r);
    default:
        return trm_onnx_reduce(node, (trm_reduce_op)what, x, r->axes, r->n, r->keep_dims);
    }
}

static void import_reduce(trm_onnx_node *node)
{
    trm_tensor *x = node->inputs[0];
    const int32_t what = node->row->data;
    reduced r = {.keep_dims = trm_onnx_flag(node, "keepdims", true)};
    r.n = trm_onnx_axes(node, "axes", 1, x->dims.n, r.axes);
    if (r.n <= 0 && !trm_onnx_flag(node, "noop_with_empty_axes", false)) {
        r.n = x->dims.n;
        for (int32_t i = 0; i < r.n; i++) {
            r.axes[i] = i;
        }
    }
    r.n = r.n < 0 ? 0 : r.n;
    /* Integers stay integers where all is exact. */
    const bool exact = what < REDUCTION_L1 ||
                       ((what == REDUCTION_L1 || what == REDUCTION_SUM_SQUARE) && !trm_dtype_is_float(x->dtype));
    trm_tensor *wide = exact ? x : trm_onnx_cast(node, x, trm_onnx_wide(x->dtype));
    trm_onnx_set(node, 0, trm_onnx_cast(node, reduce_by(node, what, wide, &r), x->dtype));
}

/* ---- softmax ---------------------------------------------------------------------------------------------------- */

trm_tensor *trm_onnx_log_softmax(trm_onnx_node *node, trm_tensor *x, int32_t axis)
{
    trm_tensor *wide = trm_onnx_cast(node, x, trm_onnx_wide(x->dtype));
    trm_tensor *max = trm_onnx_reduce(node, TRM_REDUCE_MAX, wide, &axis, 1, true);
    trm_tensor *shifted = trm_onnx_elementwise(node, TRM_ELEMENTWISE_SUB, wide, max);
    trm_tensor *sum =
        trm_onnx_reduce(node, TRM_REDUCE_SUM, trm_onnx_unary(node, TRM_UNARY_EXP, shifted), &axis, 1, true);
    trm_tensor *y = trm_onnx_elementwise(node, TRM_ELEMENTWISE_SUB, shifted, trm_onnx_unary(node, TRM_UNARY_LOG, sum));
    return trm_onnx_cast(node, y, x->dtype);
}

/* 1 at the first largest along the axis, else 0. */
static trm_tensor *hardmax(trm_onnx_node *node, trm_tensor *x, int32_t axis)
{
    const trm_layer_desc largest = {.kind = TRM_LAYER_ARG_REDUCE, .arg_reduce = {.axis = axis}};
    const trm_layer_desc hot = {.kind = TRM_LAYER_ONE_HOT, .one_hot = {axis}};
    const trm_onnx_dim depth = trm_onnx_dim_of(node, x, axis);
    const int64_t off_on[] = {0, 1};
    trm_tensor *values = trm_onnx_cast(node, trm_onnx_i64s(node, off_on, 2), x->dtype);
    return trm_onnx_add(node, &hot, trm_onnx_add(node, &largest, x, NULL, NULL, NULL), trm_onnx_shape(node, &depth, 1),
                        values, NULL);
}

enum { SOFTMAX, LOG_SOFTMAX, HARDMAX };

/* Before opset 13 over all dims from the axis on at once. */
static void import_softmax(trm_onnx_node *node)
{
    trm_tensor *x = node->inputs[0], *flat = x;
    const bool joined = node->row->since < 13;
    const int32_t rank = x->dims.n;
    int32_t axis = trm_onnx_axis(node, trm_onnx_int(node, "axis", joined ? 1 : -1), rank);
    if (trm_onnx_failed(node)) {
        return;
    }
    const bool flatten = joined && axis != rank - 1;
    if (flatten) {
        flat = trm_onnx_flatten(node, x, axis);
        axis = 1;
    }
    trm_tensor *y = node->row->data == SOFTMAX       ? trm_onnx_softmax(node, flat, axis)
                    : node->row->data == LOG_SOFTMAX ? trm_onnx_log_softmax(node, flat, axis)
                                                     : hardmax(node, flat, axis);
    if (flatten) {
        trm_onnx_dim dims[TRM_MAX_DIMS];
        trm_onnx_dims_of(node, x, dims);
        y = trm_onnx_reshape_to(node, y, dims, rank);
    }
    trm_onnx_set(node, 0, y);
}

/* ---- normalization along axes ------------------------------------------------------------------------------------ */

static void import_lp_normalization(trm_onnx_node *node)
{
    trm_tensor *x = trm_onnx_cast(node, node->inputs[0], trm_onnx_wide(node->inputs[0]->dtype));
    const int64_t p = trm_onnx_int(node, "p", 2);
    if (p != 1 && p != 2) {
        trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "p is %lld, expected 1 or 2", (long long)p);
        return;
    }
    const reduced r = {.axes = {trm_onnx_axis(node, trm_onnx_int(node, "axis", -1), x->dims.n)}, 1, true};
    trm_tensor *norm = reduce_by(node, p == 1 ? REDUCTION_L1 : REDUCTION_L2, x, &r);
    trm_tensor *zero = trm_onnx_scalar(node, x->dtype, 0.0);
    trm_tensor *is_zero = trm_onnx_elementwise(node, TRM_ELEMENTWISE_EQUAL, norm, zero);
    trm_tensor *y = trm_onnx_select(node, is_zero, zero, trm_onnx_elementwise(node, TRM_ELEMENTWISE_DIV, x, norm));
    trm_onnx_set(node, 0, trm_onnx_cast(node, y, node->inputs[0]->dtype));
}

static void import_mean_variance(trm_onnx_node *node)
{
    trm_tensor *x = trm_onnx_cast(node, node->inputs[0], trm_onnx_wide(node->inputs[0]->dtype));
    int32_t axes[TRM_MAX_DIMS] = {0, 2, 3}, n = 3, rank = x->dims.n;
    if (trm_onnx_has(node, "axes")) {
        n = trm_onnx_axes(node, "axes", -1, rank, axes);
    } else if (rank < 4) {
        trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "the input has %d dimensions, expected at least 4", (int)rank);
    }
    if (trm_onnx_failed(node)) {
        return;
    }
    trm_tensor *mean = trm_onnx_reduce(node, TRM_REDUCE_AVG, x, axes, n, true);
    trm_tensor *d = trm_onnx_elementwise(node, TRM_ELEMENTWISE_SUB, x, mean);
    trm_tensor *variance =
        trm_onnx_reduce(node, TRM_REDUCE_AVG, trm_onnx_elementwise(node, TRM_ELEMENTWISE_MUL, d, d), axes, n, true);
    trm_tensor *deviation =
        trm_onnx_elementwise_scalar(node, TRM_ELEMENTWISE_ADD, trm_onnx_unary(node, TRM_UNARY_SQRT, variance), 1e-9);
    trm_tensor *y = trm_onnx_elementwise(node, TRM_ELEMENTWISE_DIV, d, deviation);
    trm_onnx_set(node, 0, trm_onnx_cast(node, y, node->inputs[0]->dtype));
}

const trm_onnx_operator trm_onnx_ops_reduce[] = {
    {"", "ReduceSum", 1, 1, import_reduce, TRM_REDUCE_SUM},
    {"", "ReduceProd", 1, 1, import_reduce, TRM_REDUCE_PROD},
    {"", "ReduceMax", 1, 1, import_reduce, TRM_REDUCE_MAX},
    {"", "ReduceMin", 1, 1, import_reduce, TRM_REDUCE_MIN},
    {"", "ReduceMean", 1, 1, import_reduce, TRM_REDUCE_AVG},
    {"", "ReduceL1", 1, 1, import_reduce, REDUCTION_L1},
    {"", "ReduceL2", 1, 1, import_reduce, REDUCTION_L2},
    {"", "ReduceLogSum", 1, 1, import_reduce, REDUCTION_LOG_SUM},
    {"", "ReduceLogSumExp", 1, 1, import_reduce, REDUCTION_LOG_SUM_EXP},
    {"", "ReduceSumSquare", 1, 1, import_reduce, REDUCTION_SUM_SQUARE},
    {"", "Softmax", 1, 1, import_softmax, SOFTMAX},
    {"", "Softmax", 13, 1, import_softmax, SOFTMAX},
    {"", "LogSoftmax", 1, 1, import_softmax, LOG_SOFTMAX},
    {"", "LogSoftmax", 13, 1, import_softmax, LOG_SOFTMAX},
    {"", "Hardmax", 1, 1, import_softmax, HARDMAX},
    {"", "Hardmax", 13, 1, import_softmax, HARDMAX},
    {"", "LpNormalization", 1, 1, import_lp_normalization, 0},
    {"", "MeanVarianceNormalization", 9, 1, import_mean_variance, 0},
    {0},
};
