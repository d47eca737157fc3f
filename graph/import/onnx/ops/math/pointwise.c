/* Operators that take elements one by one: arithmetic, comparison, logic, activations, selection. */
#include <float.h>
#include <math.h>

#include "graph/import/onnx/ops/ops.h"
#include "graph/import/onnx/ops/common.h"

/* ---- two inputs ------------------------------------------------------------------------------------------------- */

/* Before opset 7 the second input is broadcast only if an attribute says so, from an axis that another gives. */
static trm_tensor *second_of_old(trm_onnx_node *node)
{
    trm_tensor *a = node->inputs[0], *b = node->inputs[1];
    int64_t axis = trm_onnx_int(node, "axis", -1);
    if (node->opset >= 7 || !trm_onnx_flag(node, "broadcast", false) || axis < 0) {
        return b;
    }
    int32_t axes[TRM_MAX_DIMS], n = 0;
    for (int32_t i = (int32_t)axis + b->dims.n; i < a->dims.n && n < TRM_MAX_DIMS; i++) {
        axes[n] = b->dims.n + n;
        n++;
    }
    return n == 0 ? b : trm_onnx_unsqueeze(node, b, axes, n);
}

static void import_elementwise(trm_onnx_node *node)
{
    trm_elementwise_op op = (trm_elementwise_op)node->row->data;
    trm_onnx_set(node, 0, trm_onnx_elementwise(node, op, node->inputs[0], second_of_old(node)));
}

static void import_mod(trm_onnx_node *node)
{
    trm_elementwise_op op = trm_onnx_flag(node, "fmod", false) ? TRM_ELEMENTWISE_FMOD : TRM_ELEMENTWISE_MOD;
    trm_onnx_set(node, 0, trm_onnx_elementwise(node, op, node->inputs[0], node->inputs[1]));
}

/* The exponent may have another type: integers to a power of floats are computed in floats. */
static void import_pow(trm_onnx_node *node)
{
    trm_tensor *a = node->inputs[0], *b = second_of_old(node);
    trm_dtype dtype = a->dtype;
    if (trm_dtype_is_float(b->dtype) && !trm_dtype_is_float(dtype)) {
        a = trm_onnx_cast(node, a, b->dtype);
    } else {
        b = trm_onnx_cast(node, b, dtype);
    }
    trm_tensor *power = trm_onnx_elementwise(node, TRM_ELEMENTWISE_POW, a, b);
    trm_onnx_set(node, 0, trm_onnx_cast(node, power, dtype));
}

static void import_bit_shift(trm_onnx_node *node)
{
    static const char *const directions[] = {"LEFT", "RIGHT", NULL};
    trm_elementwise_op op = trm_onnx_choice(node, "direction", "LEFT", directions) == 0 ? TRM_ELEMENTWISE_SHIFT_LEFT
                                                                                        : TRM_ELEMENTWISE_SHIFT_RIGHT;
    trm_onnx_set(node, 0, trm_onnx_elementwise(node, op, node->inputs[0], node->inputs[1]));
}

/* Before opset 7 a slope [C] is one per channel. */
static void import_prelu(trm_onnx_node *node)
{
    trm_tensor *x = node->inputs[0], *slope = node->inputs[1];
    if (node->opset < 7 && slope->dims.n == 1 && slope->dims.d[0] != 1) {
        int32_t axes[TRM_MAX_DIMS], n = 0;
        for (int32_t i = 2; i < x->dims.n; i++) {
            axes[n] = n + 1;
            n++;
        }
        slope = n == 0 ? slope : trm_onnx_unsqueeze(node, slope, axes, n);
    }
    trm_onnx_set(node, 0, trm_onnx_elementwise(node, TRM_ELEMENTWISE_PRELU, x, slope));
}

/* ---- any number of inputs --------------------------------------------------------------------------------------- */

static trm_tensor *fold_inputs(trm_onnx_node *node, trm_elementwise_op op)
{
    trm_tensor *result = node->inputs[0];
    for (int32_t i = 1; i < node->n_inputs && !trm_onnx_failed(node); i++) {
        if (node->inputs[i] == NULL) {
            trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "input %d is not a tensor", (int)i);
        } else {
            result = trm_onnx_elementwise(node, op, result, node->inputs[i]);
        }
    }
    return result;
}

static void import_fold(trm_onnx_node *node)
{
    trm_onnx_set(node, 0, fold_inputs(node, (trm_elementwise_op)node->row->data));
}

static void import_mean(trm_onnx_node *node)
{
    trm_tensor *sum = fold_inputs(node, TRM_ELEMENTWISE_ADD);
    trm_onnx_set(node, 0, trm_onnx_elementwise_scalar(node, TRM_ELEMENTWISE_DIV, sum, (double)node->n_inputs));
}

/* ---- one input -------------------------------------------------------------------------------------------------- */

static void import_unary(trm_onnx_node *node)
{
    trm_onnx_set(node, 0, trm_onnx_unary(node, (trm_unary_op)node->row->data, node->inputs[0]));
}

static void import_activation(trm_onnx_node *node)
{
    trm_tensor *x = node->inputs[0];
    trm_activation activation = (trm_activation)node->row->data;
    if (activation == TRM_ACTIVATION_RELU && trm_dtype_is_integer(x->dtype)) {
        trm_onnx_set(node, 0, trm_onnx_elementwise_scalar(node, TRM_ELEMENTWISE_MAX, x, 0.0));
    } else {
        trm_onnx_set(node, 0, trm_onnx_activation(node, activation, x));
    }
}

/* Operations with parameters: attributes with defaults. */
static void import_with_parameters(trm_onnx_node *node)
{
    static const struct {
        trm_unary_op op;
        const char *alpha, *beta;
        float normal_alpha, normal_beta;
    } rows[] = {
        {TRM_UNARY_ELU, "alpha", NULL, 1.0f, 0.0f},
        {TRM_UNARY_SELU, "alpha", "gamma", 1.67326319217681884765625f, 1.05070102214813232421875f},
        {TRM_UNARY_CELU, "alpha", NULL, 1.0f, 0.0f},
        {TRM_UNARY_LEAKY_RELU, "alpha", NULL, 0.01f, 0.0f},
        {TRM_UNARY_HARD_SIGMOID, "alpha", "beta", 0.2f, 0.5f},
        {TRM_UNARY_THRESHOLDED_RELU, "alpha", NULL, 1.0f, 0.0f},
        {TRM_UNARY_SHRINK, "lambd", "bias", 0.5f, 0.0f},
        {TRM_UNARY_SWISH, "alpha", NULL, 1.0f, 0.0f},
    };
    trm_tensor *x = node->inputs[0];
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (rows[i].op != (trm_unary_op)node->row->data) {
            continue;
        }
        float alpha = trm_onnx_float(node, rows[i].alpha, rows[i].normal_alpha);
        float beta = rows[i].beta == NULL ? 0.0f : trm_onnx_float(node, rows[i].beta, rows[i].normal_beta);
        if (rows[i].op == TRM_UNARY_SELU && node->opset < 6) {
            alpha = trm_onnx_float(node, "alpha", 1.6732f);
            beta = trm_onnx_float(node, "gamma", 1.0507f);
        }
        trm_tensor *y = trm_onnx_cast(node, x, trm_dtype_is_integer(x->dtype) ? TRM_F64 : x->dtype);
        y = trm_onnx_unary_with(node, rows[i].op, y, alpha, beta);
        trm_onnx_set(node, 0, trm_onnx_cast(node, y, x->dtype));
    }
}

/* alpha f(beta x), f in the row: operators of ONNX's early opsets that importers still take. */
static void import_scaled(trm_onnx_node *node)
{
    const float alpha = trm_onnx_float(node, "alpha", 1.0f), beta = trm_onnx_float(node, "beta", 1.0f);
    trm_tensor *x = trm_onnx_elementwise_scalar(node, TRM_ELEMENTWISE_MUL, node->inputs[0], (double)beta);
    trm_tensor *y = trm_onnx_activation(node, (trm_activation)node->row->data, x);
    trm_onnx_set(node, 0, trm_onnx_elementwise_scalar(node, TRM_ELEMENTWISE_MUL, y, (double)alpha));
}

static void import_gelu(trm_onnx_node *node)
{
    static const char *const forms[] = {"none", "tanh", NULL};
    bool tanh_form = trm_onnx_choice(node, "approximate", "none", forms) == 1;
    trm_activation activation = tanh_form ? TRM_ACTIVATION_GELU_TANH : TRM_ACTIVATION_GELU;
    trm_onnx_set(node, 0, trm_onnx_activation(node, activation, node->inputs[0]));
}

/* swish(a) * b, by one layer where the gate is silu. */
static void import_swiglu(trm_onnx_node *node)
{
    const float alpha = trm_onnx_float(node, "alpha", 1.0f);
    trm_tensor *a = node->inputs[0], *b = node->inputs[1];
    if (alpha == 1.0f && a->dims.n > 0 && a->dtype != TRM_F64) {
        const trm_layer_desc desc = {.kind = TRM_LAYER_GLU, .glu = {.activation = TRM_ACTIVATION_SILU}};
        trm_onnx_set(node, 0, trm_onnx_add(node, &desc, a, b, NULL, NULL));
        return;
    }
    trm_tensor *gate = trm_onnx_unary_with(node, TRM_UNARY_SWISH, a, alpha, 0.0f);
    trm_onnx_set(node, 0, trm_onnx_elementwise(node, TRM_ELEMENTWISE_MUL, gate, b));
}

/* Tests of types that are only stored look at them as f32. */
static void import_is_nan(trm_onnx_node *node)
{
    trm_tensor *x = node->inputs[0];
    x = trm_onnx_cast(node, x, trm_dtype_is_float(x->dtype) ? x->dtype : TRM_F32);
    trm_onnx_set(node, 0, trm_onnx_unary(node, TRM_UNARY_IS_NAN, x));
}

static void import_is_inf(trm_onnx_node *node)
{
    trm_tensor *x = node->inputs[0];
    float negative = trm_onnx_flag(node, "detect_negative", true) ? 1.0f : 0.0f;
    float positive = trm_onnx_flag(node, "detect_positive", true) ? 1.0f : 0.0f;
    x = trm_onnx_cast(node, x, trm_dtype_is_float(x->dtype) ? x->dtype : TRM_F32);
    trm_onnx_set(node, 0, trm_onnx_unary_with(node, TRM_UNARY_IS_INF, x, negative, positive));
}

/* One layer where both bounds are known and f32 holds them, else a maximum and a minimum. */
static void import_clip(trm_onnx_node *node)
{
    trm_tensor *x = node->inputs[0], *low = node->inputs[1], *high = node->inputs[2];
    double least = -INFINITY, most = INFINITY;
    if (node->opset < 11) {
        least = (double)trm_onnx_float(node, "min", -FLT_MAX);
        most = (double)trm_onnx_float(node, "max", FLT_MAX);
        low = high = NULL;
    }
    bool known = (low == NULL || trm_onnx_known_float(node, low, &least)) &&
                 (high == NULL || trm_onnx_known_float(node, high, &most));
    if (known && trm_dtype_is_float(x->dtype) && (double)(float)least == least && (double)(float)most == most) {
        trm_onnx_set(node, 0, trm_onnx_unary_with(node, TRM_UNARY_CLIP, x, (float)least, (float)most));
        return;
    }
    trm_tensor *y = low == NULL ? x : trm_onnx_elementwise(node, TRM_ELEMENTWISE_MAX, x, low);
    trm_onnx_set(node, 0, high == NULL ? y : trm_onnx_elementwise(node, TRM_ELEMENTWISE_MIN, y, high));
}

static void import_where(trm_onnx_node *node)
{
    trm_onnx_set(node, 0, trm_onnx_select(node, node->inputs[0], node->inputs[1], node->inputs[2]));
}

static void import_cumulative(trm_onnx_node *node)
{
    trm_tensor *x = node->inputs[0];
    trm_layer_desc desc = {.kind = TRM_LAYER_CUMULATIVE};
    desc.cumulative.op = (trm_cumulative_op)node->row->data;
    desc.cumulative.axis = trm_onnx_axis(node, trm_onnx_input_int(node, 1, 0), x->dims.n);
    desc.cumulative.exclusive = trm_onnx_flag(node, "exclusive", false);
    desc.cumulative.reverse = trm_onnx_flag(node, "reverse", false);
    trm_onnx_set(node, 0, trm_onnx_add(node, &desc, x, NULL, NULL, NULL));
}

static void import_det(trm_onnx_node *node)
{
    const trm_layer_desc desc = {.kind = TRM_LAYER_DETERMINANT};
    trm_onnx_set(node, 0, trm_onnx_add(node, &desc, node->inputs[0], NULL, NULL, NULL));
}

static void import_bit_cast(trm_onnx_node *node)
{
    trm_layer_desc desc = {.kind = TRM_LAYER_CAST, .cast = {.bits = true}};
    desc.cast.to = trm_onnx_type(node, "to", TRM_DTYPE_NONE);
    trm_onnx_set(node, 0, trm_onnx_add(node, &desc, node->inputs[0], NULL, NULL, NULL));
}

#define ELEMENTWISE(name, since, op)                                                                                   \
    {                                                                                                                  \
        "", name, since, 2, import_elementwise, TRM_ELEMENTWISE_##op                                                   \
    }
#define FOLD(name, op)                                                                                                 \
    {                                                                                                                  \
        "", name, 1, 1, import_fold, TRM_ELEMENTWISE_##op                                                              \
    }
#define UNARY(name, since, op)                                                                                         \
    {                                                                                                                  \
        "", name, since, 1, import_unary, TRM_UNARY_##op                                                               \
    }
#define ACTIVATION(name, since, op)                                                                                    \
    {                                                                                                                  \
        "", name, since, 1, import_activation, TRM_ACTIVATION_##op                                                     \
    }
#define WITH(name, since, op)                                                                                          \
    {                                                                                                                  \
        "", name, since, 1, import_with_parameters, TRM_UNARY_##op                                                     \
    }

/* ---- activations of fused operators ------------------------------------------------------------------------------ */

trm_tensor *trm_onnx_fused_activation(trm_onnx_node *node, trm_tensor *x)
{
    static const char *const names[] = {"",     "Relu", "Sigmoid", "Tanh", "LeakyRelu", "HardSigmoid",
                                        "Clip", "Gelu", NULL};
    static const trm_activation plain[] = {TRM_ACTIVATION_NONE, TRM_ACTIVATION_RELU, TRM_ACTIVATION_SIGMOID,
                                           TRM_ACTIVATION_TANH};
    float given[3];
    const int32_t kind = trm_onnx_choice(node, "activation", "", names);
    const int32_t n = trm_onnx_floats(node, "activation_params", given, 3); /* of FusedConv, in order; else by name */
    const float alpha = n > 0 ? given[0] : trm_onnx_float(node, "activation_alpha", kind == 5 ? 0.2f : 0.01f);
    const float beta = n > 1 ? given[1] : trm_onnx_float(node, "activation_beta", 0.5f);
    switch (kind) {
    case 0:
        return x;
    case 4:
        return trm_onnx_unary_with(node, TRM_UNARY_LEAKY_RELU, x, alpha, 0.0f);
    case 5:
        return trm_onnx_unary_with(node, TRM_UNARY_HARD_SIGMOID, x, alpha, beta);
    case 6:
        return trm_onnx_unary_with(node, TRM_UNARY_CLIP, x, alpha, beta);
    case 7:
        return trm_onnx_activation(node, TRM_ACTIVATION_GELU, x);
    default:
        return trm_onnx_activation(node, plain[kind], x);
    }
}

const trm_onnx_operator trm_onnx_ops_pointwise[] = {
    ELEMENTWISE("Add", 1, ADD),
    ELEMENTWISE("Sub", 1, SUB),
    ELEMENTWISE("Mul", 1, MUL),
    ELEMENTWISE("Div", 1, DIV),
    ELEMENTWISE("Equal", 1, EQUAL),
    ELEMENTWISE("Less", 1, LESS),
    ELEMENTWISE("LessOrEqual", 12, LESS_EQUAL),
    ELEMENTWISE("Greater", 1, GREATER),
    ELEMENTWISE("GreaterOrEqual", 12, GREATER_EQUAL),
    ELEMENTWISE("And", 1, AND),
    ELEMENTWISE("Or", 1, OR),
    ELEMENTWISE("Xor", 1, XOR),
    ELEMENTWISE("BitwiseAnd", 18, AND),
    ELEMENTWISE("BitwiseOr", 18, OR),
    ELEMENTWISE("BitwiseXor", 18, XOR),
    {"", "BitShift", 11, 2, import_bit_shift, 0},
    {"", "Mod", 10, 2, import_mod, 0},
    {"", "Pow", 1, 2, import_pow, 0},
    {"", "PRelu", 1, 2, import_prelu, 0},
    FOLD("Sum", ADD),
    FOLD("Max", MAX),
    FOLD("Min", MIN),
    {"", "Mean", 1, 1, import_mean, 0},
    UNARY("Abs", 1, ABS),
    UNARY("Neg", 1, NEG),
    UNARY("Exp", 1, EXP),
    UNARY("Log", 1, LOG),
    UNARY("Sqrt", 1, SQRT),
    UNARY("Reciprocal", 1, RECIPROCAL),
    UNARY("Erf", 9, ERF),
    UNARY("Sign", 9, SIGN),
    UNARY("Ceil", 1, CEIL),
    UNARY("Floor", 1, FLOOR),
    UNARY("Round", 11, ROUND),
    UNARY("Sin", 7, SIN),
    UNARY("Cos", 7, COS),
    UNARY("Tan", 7, TAN),
    UNARY("Asin", 7, ASIN),
    UNARY("Acos", 7, ACOS),
    UNARY("Atan", 7, ATAN),
    UNARY("Sinh", 9, SINH),
    UNARY("Cosh", 9, COSH),
    UNARY("Asinh", 9, ASINH),
    UNARY("Acosh", 9, ACOSH),
    UNARY("Atanh", 9, ATANH),
    UNARY("Not", 1, NOT),
    UNARY("BitwiseNot", 18, NOT),
    {"", "IsNaN", 9, 1, import_is_nan, 0},
    {"", "IsInf", 10, 1, import_is_inf, 0},
    ACTIVATION("Relu", 1, RELU),
    ACTIVATION("Sigmoid", 1, SIGMOID),
    ACTIVATION("Tanh", 1, TANH),
    ACTIVATION("Softplus", 1, SOFTPLUS),
    ACTIVATION("Softsign", 1, SOFTSIGN),
    ACTIVATION("HardSwish", 14, HARD_SWISH),
    ACTIVATION("Mish", 18, MISH),
    {"", "Gelu", 20, 1, import_gelu, 0},
    WITH("Elu", 1, ELU),
    WITH("Selu", 1, SELU),
    WITH("Celu", 12, CELU),
    WITH("LeakyRelu", 1, LEAKY_RELU),
    WITH("HardSigmoid", 1, HARD_SIGMOID),
    WITH("ThresholdedRelu", 1, THRESHOLDED_RELU),
    WITH("Shrink", 9, SHRINK),
    WITH("Swish", 24, SWISH),
    {"", "ScaledTanh", 1, 1, import_scaled, TRM_ACTIVATION_TANH},
    {"", "ParametricSoftplus", 1, 1, import_scaled, TRM_ACTIVATION_SOFTPLUS},
    {"", "SwiGLU", 28, 2, import_swiglu, 0},
    {"", "Clip", 1, 1, import_clip, 0},
    {"", "Where", 9, 3, import_where, 0},
    {"", "CumSum", 11, 2, import_cumulative, TRM_CUMULATIVE_SUM},
    {"", "CumProd", 26, 2, import_cumulative, TRM_CUMULATIVE_PROD},
    {"", "Det", 11, 1, import_det, 0},
    {"", "BitCast", 26, 1, import_bit_cast, 0},
    {0},
};
