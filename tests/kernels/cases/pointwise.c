/* Cases and meanings of the kinds that take elements one by one. */
#include <math.h>

#include "kernels/cases/support.h"
#include "kernels/cases/cases.h"

/* ---- meanings ----------------------------------------------------------------------------------- */

double meaning_activation(trm_activation activation, double v)
{
    switch (activation) {
    case TRM_ACTIVATION_RELU:
        return v > 0.0 ? v : 0.0;
    case TRM_ACTIVATION_SILU:
        return v / (1.0 + exp(-v));
    case TRM_ACTIVATION_GELU:
        return v * 0.5 * erfc(-v / sqrt(2.0));
    case TRM_ACTIVATION_GELU_TANH:
        return 0.5 * v * (1.0 + tanh(sqrt(2.0 / acos(-1.0)) * (v + 0.044715 * v * v * v)));
    case TRM_ACTIVATION_SIGMOID:
        return 1.0 / (1.0 + exp(-v));
    case TRM_ACTIVATION_TANH:
        return tanh(v);
    case TRM_ACTIVATION_QUICK_GELU:
        return v / (1.0 + exp(-1.702 * v));
    case TRM_ACTIVATION_HARD_SWISH:
        return v * fmax(0.0, fmin(1.0, v / 6.0 + 0.5));
    case TRM_ACTIVATION_MISH:
        return v * tanh(log1p(exp(v)));
    case TRM_ACTIVATION_SOFTPLUS:
        return v > 700.0 ? v : log1p(exp(v));
    case TRM_ACTIVATION_SOFTSIGN:
        return v / (1.0 + fabs(v));
    default:
        return v;
    }
}

static double bits(trm_elementwise_op op, double x, double y)
{
    const int64_t a = (int64_t)x, b = (int64_t)y;
    return (double)(op == TRM_ELEMENTWISE_AND ? (a & b) : op == TRM_ELEMENTWISE_OR ? (a | b) : (a ^ b));
}

static double combine(trm_elementwise_op op, trm_dtype dtype, double x, double y)
{
    switch (op) {
    case TRM_ELEMENTWISE_ADD:
        return x + y;
    case TRM_ELEMENTWISE_SUB:
        return x - y;
    case TRM_ELEMENTWISE_MUL:
        return x * y;
    case TRM_ELEMENTWISE_DIV:
        return is_integer(dtype) ? (y == 0.0 ? 0.0 : trunc(x / y)) : x / y;
    case TRM_ELEMENTWISE_MIN:
        return isnan(x) || isnan(y) ? NAN : fmin(x, y);
    case TRM_ELEMENTWISE_MAX:
        return isnan(x) || isnan(y) ? NAN : fmax(x, y);
    case TRM_ELEMENTWISE_POW:
        return is_integer(dtype) ? trunc(pow(x, y)) : pow(x, y);
    case TRM_ELEMENTWISE_MOD:
        if (isinf(y) && isfinite(x)) {
            return x == 0.0 || (x < 0.0) == (y < 0.0) ? copysign(x, y) : y;
        }
        return is_integer(dtype) && y == 0.0 ? 0.0 : x - y * floor(x / y);
    case TRM_ELEMENTWISE_FMOD:
        return is_integer(dtype) && y == 0.0 ? 0.0 : fmod(x, y);
    case TRM_ELEMENTWISE_EQUAL:
        return x == y;
    case TRM_ELEMENTWISE_LESS:
        return x < y;
    case TRM_ELEMENTWISE_LESS_EQUAL:
        return x <= y;
    case TRM_ELEMENTWISE_GREATER:
        return x > y;
    case TRM_ELEMENTWISE_GREATER_EQUAL:
        return x >= y;
    case TRM_ELEMENTWISE_AND:
    case TRM_ELEMENTWISE_OR:
    case TRM_ELEMENTWISE_XOR:
        return bits(op, x, y);
    case TRM_ELEMENTWISE_SHIFT_LEFT:
        return y < 0.0 ? 0.0 : x * exp2(y);
    case TRM_ELEMENTWISE_SHIFT_RIGHT:
        return y < 0.0 ? (x < 0.0 ? -1.0 : 0.0) : floor(x / exp2(y));
    case TRM_ELEMENTWISE_PRELU:
        return x < 0.0 ? x * y : x;
    }
    return NAN;
}

static void meaning_elementwise(const kernel_case *test, double *const *inputs, double *const *outputs)
{
    const trm_dims *out = &test->outputs[0].dims;
    const trm_dtype dtype = test->outputs[0].dtype;
    for (int64_t i = 0; i < count_of_output(test); i++) {
        const place p = place_of(out, i);
        const double x = inputs[0][broadcast_index(&test->inputs[0].dims, out, &p)];
        const double y = inputs[1][broadcast_index(&test->inputs[1].dims, out, &p)];
        const double z = combine(test->layer.elementwise.op, test->inputs[0].dtype, x, y);
        outputs[0][i] = is_integer(dtype) ? wrap(dtype, z) : z;
    }
}

static double apply(const trm_unary_params *p, trm_dtype dtype, double v)
{
    const double alpha = (double)p->alpha, beta = (double)p->beta;
    switch (p->op) {
    case TRM_UNARY_ACTIVATION:
        return meaning_activation(p->activation, v);
    case TRM_UNARY_NEG:
        return -v;
    case TRM_UNARY_ABS:
        return fabs(v);
    case TRM_UNARY_EXP:
        return exp(v);
    case TRM_UNARY_LOG:
        return log(v);
    case TRM_UNARY_SQRT:
        return sqrt(v);
    case TRM_UNARY_RECIPROCAL:
        return 1.0 / v;
    case TRM_UNARY_ERF:
        return erf(v);
    case TRM_UNARY_LINEAR:
        return alpha * v + beta;
    case TRM_UNARY_SOFTCAP:
        return alpha * tanh(v / alpha);
    case TRM_UNARY_SIGN:
        return isnan(v) ? NAN : (double)(v > 0.0) - (double)(v < 0.0);
    case TRM_UNARY_CEIL:
        return ceil(v);
    case TRM_UNARY_FLOOR:
        return floor(v);
    case TRM_UNARY_ROUND:
        return fabs(v - trunc(v)) == 0.5 ? 2.0 * round(v / 2.0) : round(v);
    case TRM_UNARY_SIN:
        return sin(v);
    case TRM_UNARY_COS:
        return cos(v);
    case TRM_UNARY_TAN:
        return tan(v);
    case TRM_UNARY_ASIN:
        return asin(v);
    case TRM_UNARY_ACOS:
        return acos(v);
    case TRM_UNARY_ATAN:
        return atan(v);
    case TRM_UNARY_SINH:
        return sinh(v);
    case TRM_UNARY_COSH:
        return cosh(v);
    case TRM_UNARY_ASINH:
        return asinh(v);
    case TRM_UNARY_ACOSH:
        return acosh(v);
    case TRM_UNARY_ATANH:
        return atanh(v);
    case TRM_UNARY_NOT:
        return dtype == TRM_BOOL ? v == 0.0 : -1.0 - v;
    case TRM_UNARY_IS_NAN:
        return isnan(v) != 0;
    case TRM_UNARY_IS_INF:
        return (v == INFINITY && beta != 0.0) || (v == -INFINITY && alpha != 0.0);
    case TRM_UNARY_CLIP:
        return isnan(v) ? NAN : fmin(beta, fmax(alpha, v));
    case TRM_UNARY_ELU:
        return v < 0.0 ? alpha * (exp(v) - 1.0) : v;
    case TRM_UNARY_SELU:
        return beta * (v < 0.0 ? alpha * (exp(v) - 1.0) : v);
    case TRM_UNARY_CELU:
        return fmax(0.0, v) + fmin(0.0, alpha * (exp(v / alpha) - 1.0));
    case TRM_UNARY_LEAKY_RELU:
        return v < 0.0 ? alpha * v : v;
    case TRM_UNARY_HARD_SIGMOID:
        return fmax(0.0, fmin(1.0, alpha * v + beta));
    case TRM_UNARY_THRESHOLDED_RELU:
        return v > alpha ? v : 0.0;
    case TRM_UNARY_SHRINK:
        return v < -alpha ? v + beta : v > alpha ? v - beta : 0.0;
    case TRM_UNARY_SWISH:
        return v / (1.0 + exp(-alpha * v));
    }
    return NAN;
}

static void meaning_unary(const kernel_case *test, double *const *inputs, double *const *outputs)
{
    const trm_dtype dtype = test->outputs[0].dtype;
    for (int64_t i = 0; i < count_of_output(test); i++) {
        const double v = apply(&test->layer.unary, test->inputs[0].dtype, inputs[0][i]);
        outputs[0][i] = is_integer(dtype) ? wrap(dtype, v) : v;
    }
}

static void meaning_glu(const kernel_case *test, double *const *inputs, double *const *outputs)
{
    const trm_dims *out = &test->outputs[0].dims;
    const int64_t n = out->d[out->n - 1];
    for (int64_t i = 0; i < count_of_output(test); i++) {
        const int64_t joined = i / n * 2 * n + i % n;
        const double gate = test->n_inputs == 2 ? inputs[0][i] : inputs[0][joined];
        const double up = test->n_inputs == 2 ? inputs[1][i] : inputs[0][joined + n];
        outputs[0][i] = meaning_activation(test->layer.glu.activation, gate) * up;
    }
}

/* ---- pointwise ---------------------------------------------------------------------------------- */

static void elementwise_case(kernel_case_bench *bench, trm_dtype dtype, trm_elementwise_op op, trm_dims a, trm_dims b,
                             trm_dims out)
{
    kernel_case test = new_case(TRM_LAYER_ELEMENTWISE, "op %d %s %d-d with %d-d, %lld", (int)op, trm_dtype_name(dtype),
                                (int)a.n, (int)b.n, (long long)trm_dims_count(&out));
    test.layer.elementwise.op = op;
    if (op == TRM_ELEMENTWISE_SHIFT_LEFT || op == TRM_ELEMENTWISE_SHIFT_RIGHT) {
        add_data(&test, dtype, a);
        add_input(&test, dtype, b, 0.0, 9.0);
    } else if (op >= TRM_ELEMENTWISE_EQUAL && op <= TRM_ELEMENTWISE_GREATER_EQUAL) {
        add_input(&test, dtype, a, is_unsigned(dtype) ? 0.0 : -2.0, dtype == TRM_BOOL ? 1.0 : 2.0);
        add_input(&test, dtype, b, is_unsigned(dtype) ? 0.0 : -2.0, dtype == TRM_BOOL ? 1.0 : 2.0);
    } else if (op == TRM_ELEMENTWISE_POW) {
        add_input(&test, dtype, a, 0.5, 5.0);
        add_input(&test, dtype, b, is_unsigned(dtype) ? 0.0 : -2.0, 3.0);
    } else {
        add_data(&test, dtype, a);
        add_data(&test, dtype, b);
        if ((op == TRM_ELEMENTWISE_DIV || op == TRM_ELEMENTWISE_MOD || op == TRM_ELEMENTWISE_FMOD) &&
            is_floating(dtype)) {
            test.inputs[1].low = 0.25;
        }
    }
    add_output(&test, op >= TRM_ELEMENTWISE_EQUAL && op <= TRM_ELEMENTWISE_GREATER_EQUAL ? TRM_BOOL : dtype, out);
    kernel_case_run(bench, &test, meaning_elementwise);
}

static void unary_case(kernel_case_bench *bench, trm_dtype dtype, trm_unary_params p, trm_dims dims, double low,
                       double high)
{
    kernel_case test = new_case(TRM_LAYER_UNARY, "op %d activation %d %s of %lld", (int)p.op, (int)p.activation,
                                trm_dtype_name(dtype), (long long)trm_dims_count(&dims));
    test.layer.unary = p;
    add_input(&test, dtype, dims, low, high);
    add_output(&test, p.op == TRM_UNARY_IS_NAN || p.op == TRM_UNARY_IS_INF ? TRM_BOOL : dtype, dims);
    kernel_case_run(bench, &test, meaning_unary);
}

static void glu_case(kernel_case_bench *bench, trm_dtype dtype, trm_activation activation, trm_dims dims, bool joined)
{
    kernel_case test = new_case(TRM_LAYER_GLU, "activation %d %s%s of %lld", (int)activation, trm_dtype_name(dtype),
                                joined ? " joined" : "", (long long)trm_dims_count(&dims));
    test.layer.glu.activation = activation;
    trm_dims in = dims;
    in.d[in.n - 1] *= joined ? 2 : 1;
    add_input(&test, dtype, in, -6.0, 6.0);
    if (!joined) {
        add_input(&test, dtype, in, -6.0, 6.0);
    }
    add_output(&test, dtype, dims);
    kernel_case_run(bench, &test, meaning_glu);
}

static void unary_cases(kernel_case_bench *bench, trm_dtype dtype)
{
    for (int32_t activation = TRM_ACTIVATION_NONE; activation <= TRM_ACTIVATION_SOFTSIGN; activation++) {
        unary_case(bench, dtype,
                   (trm_unary_params){.op = TRM_UNARY_ACTIVATION, .activation = (trm_activation)activation},
                   DIMS(3, 333), -8.0, 8.0);
    }
    static const double wide[] = {-1000.0, -100.0, -88.0, -20.0, 0.0, 20.0, 88.0, 100.0, 1000.0};
    for (int32_t activation = TRM_ACTIVATION_RELU; activation <= TRM_ACTIVATION_SOFTSIGN; activation++) {
        kernel_case test =
            new_case(TRM_LAYER_UNARY, "activation %d of far values %s", (int)activation, trm_dtype_name(dtype));
        test.layer.unary = (trm_unary_params){.op = TRM_UNARY_ACTIVATION, .activation = (trm_activation)activation};
        add_input(&test, dtype, DIMS(COUNT(wide)), 0, 0)->values = wide;
        add_output(&test, dtype, DIMS(COUNT(wide)));
        kernel_case_run(bench, &test, meaning_unary);
    }
    unary_case(bench, dtype, (trm_unary_params){.op = TRM_UNARY_NEG}, DIMS(1000), -3, 3);
    unary_case(bench, dtype, (trm_unary_params){.op = TRM_UNARY_ABS}, DIMS(1001), -3, 3);
    unary_case(bench, dtype, (trm_unary_params){.op = TRM_UNARY_EXP}, DIMS(7, 9), -10, 10);
    unary_case(bench, dtype, (trm_unary_params){.op = TRM_UNARY_LOG}, DIMS(7, 9), 0.01, 50);
    unary_case(bench, dtype, (trm_unary_params){.op = TRM_UNARY_SQRT}, DIMS(63), 0.0, 100);
    unary_case(bench, dtype, (trm_unary_params){.op = TRM_UNARY_RECIPROCAL}, DIMS(65), 0.1, 9);
    unary_case(bench, dtype, (trm_unary_params){.op = TRM_UNARY_ERF}, DIMS(5, 5, 5), -4, 4);
    unary_case(bench, dtype, (trm_unary_params){.op = TRM_UNARY_LINEAR, .alpha = -1.25f, .beta = 3.0f}, DIMS(77), -4,
               4);
    unary_case(bench, dtype, (trm_unary_params){.op = TRM_UNARY_SOFTCAP, .alpha = 30.0f}, DIMS(5000), -200, 200);
    unary_case(bench, dtype, (trm_unary_params){.op = TRM_UNARY_NEG}, SCALAR, -3, 3);
    unary_case(bench, dtype, (trm_unary_params){.op = TRM_UNARY_NEG}, DIMS(3, 0), -3, 3);
}

/* Every operation on a float type, over its domain. */
static void all_unary_cases(kernel_case_bench *bench, trm_dtype dtype)
{
    static const struct {
        trm_unary_params p;
        double low, high;
    } cases[] = {
        {{.op = TRM_UNARY_NEG}, -9, 9},
        {{.op = TRM_UNARY_ABS}, -9, 9},
        {{.op = TRM_UNARY_EXP}, -9, 9},
        {{.op = TRM_UNARY_LOG}, 0.1, 9},
        {{.op = TRM_UNARY_SQRT}, 0, 9},
        {{.op = TRM_UNARY_RECIPROCAL}, 0.1, 9},
        {{.op = TRM_UNARY_ERF}, -4, 4},
        {{.op = TRM_UNARY_LINEAR, .alpha = -1.25f, .beta = 3.0f}, -4, 4},
        {{.op = TRM_UNARY_SOFTCAP, .alpha = 3.0f}, -9, 9},
        {{.op = TRM_UNARY_SIGN}, -9, 9},
        {{.op = TRM_UNARY_CEIL}, -9, 9},
        {{.op = TRM_UNARY_FLOOR}, -9, 9},
        {{.op = TRM_UNARY_ROUND}, -9, 9},
        {{.op = TRM_UNARY_SIN}, -20, 20},
        {{.op = TRM_UNARY_COS}, -20, 20},
        {{.op = TRM_UNARY_TAN}, -1.4, 1.4},
        {{.op = TRM_UNARY_ASIN}, -1, 1},
        {{.op = TRM_UNARY_ACOS}, -1, 1},
        {{.op = TRM_UNARY_ATAN}, -9, 9},
        {{.op = TRM_UNARY_SINH}, -5, 5},
        {{.op = TRM_UNARY_COSH}, -5, 5},
        {{.op = TRM_UNARY_ASINH}, -9, 9},
        {{.op = TRM_UNARY_ACOSH}, 1, 9},
        {{.op = TRM_UNARY_ATANH}, -0.9, 0.9},
        {{.op = TRM_UNARY_IS_NAN}, -1, 1},
        {{.op = TRM_UNARY_IS_INF, .alpha = 1, .beta = 1}, -1, 1},
        {{.op = TRM_UNARY_CLIP, .alpha = -1.5f, .beta = 0.75f}, -4, 4},
        {{.op = TRM_UNARY_CLIP, .alpha = 1.5f, .beta = -0.75f}, -4, 4},
        {{.op = TRM_UNARY_ELU, .alpha = 1.5f}, -4, 4},
        {{.op = TRM_UNARY_SELU, .alpha = 1.67326319f, .beta = 1.05070102f}, -4, 4},
        {{.op = TRM_UNARY_CELU, .alpha = 2.0f}, -4, 4},
        {{.op = TRM_UNARY_LEAKY_RELU, .alpha = 0.1f}, -4, 4},
        {{.op = TRM_UNARY_HARD_SIGMOID, .alpha = 0.2f, .beta = 0.5f}, -4, 4},
        {{.op = TRM_UNARY_THRESHOLDED_RELU, .alpha = 2.0f}, -4, 4},
        {{.op = TRM_UNARY_SHRINK, .alpha = 1.5f, .beta = 0.5f}, -4, 4},
        {{.op = TRM_UNARY_SWISH, .alpha = 1.5f}, -9, 9},
    };
    for (int32_t i = 0; i < COUNT(cases); i++) {
        unary_case(bench, dtype, cases[i].p, DIMS(3, 41 + i), cases[i].low, cases[i].high);
    }
    static const double extremes[] = {NAN, INFINITY, -INFINITY, 0.0, -0.0, 0.5, 1.5, 2.5, -0.5, -2.5};
    static const trm_unary_params ops[] = {
        {.op = TRM_UNARY_IS_NAN},
        {.op = TRM_UNARY_IS_INF, .alpha = 1.0f},
        {.op = TRM_UNARY_IS_INF, .beta = 1.0f},
        {.op = TRM_UNARY_ROUND},
        {.op = TRM_UNARY_SIGN},
        {.op = TRM_UNARY_CLIP, .alpha = -1.0f, .beta = 1.0f},
        {.op = TRM_UNARY_LEAKY_RELU, .alpha = 0.5f},
        {.op = TRM_UNARY_THRESHOLDED_RELU, .alpha = 0.5f},
        {.op = TRM_UNARY_SHRINK, .alpha = 0.5f, .beta = 0.25f},
        {.op = TRM_UNARY_ACTIVATION, .activation = TRM_ACTIVATION_SOFTPLUS},
    };
    for (int32_t i = 0; i < COUNT(ops); i++) {
        kernel_case test =
            new_case(TRM_LAYER_UNARY, "op %d of extremes %s, %d", (int)ops[i].op, trm_dtype_name(dtype), (int)i);
        test.layer.unary = ops[i];
        add_input(&test, dtype, DIMS(COUNT(extremes)), 0, 0)->values = extremes;
        add_output(&test, ops[i].op == TRM_UNARY_IS_NAN || ops[i].op == TRM_UNARY_IS_INF ? TRM_BOOL : dtype,
                   DIMS(COUNT(extremes)));
        kernel_case_run(bench, &test, meaning_unary);
    }
}

/* NaN and infinities on either side. */
static void extremes_case(kernel_case_bench *bench, trm_dtype dtype, trm_elementwise_op op)
{
    const double a[] = {NAN, 1.0, NAN, INFINITY, -INFINITY, 0.0, 3.0};
    const double b[] = {1.0, NAN, NAN, 2.0, 2.0, -INFINITY, INFINITY};
    kernel_case test = new_case(TRM_LAYER_ELEMENTWISE, "op %d of extremes %s", (int)op, trm_dtype_name(dtype));
    test.layer.elementwise.op = op;
    add_input(&test, dtype, DIMS(COUNT(a)), 0, 0)->values = a;
    add_input(&test, dtype, DIMS(COUNT(b)), 0, 0)->values = b;
    const bool compares = op >= TRM_ELEMENTWISE_EQUAL && op <= TRM_ELEMENTWISE_GREATER_EQUAL;
    add_output(&test, compares ? TRM_BOOL : dtype, DIMS(COUNT(a)));
    kernel_case_run(bench, &test, meaning_elementwise);
}

void kernel_cases_pointwise(kernel_case_bench *bench)
{
    for (int32_t t = 0; t < COUNT(numbers); t++) {
        for (int32_t op = TRM_ELEMENTWISE_ADD; op <= TRM_ELEMENTWISE_PRELU; op++) {
            const bool of_integers = op >= TRM_ELEMENTWISE_AND && op <= TRM_ELEMENTWISE_SHIFT_RIGHT;
            if (is_floating(numbers[t]) && of_integers) {
                continue;
            }
            elementwise_case(bench, numbers[t], (trm_elementwise_op)op, DIMS(5, 77), DIMS(5, 77), DIMS(5, 77));
            elementwise_case(bench, numbers[t], (trm_elementwise_op)op, DIMS(4, 1, 5), DIMS(3, 1), DIMS(4, 3, 5));
            elementwise_case(bench, numbers[t], (trm_elementwise_op)op, DIMS(3, 64), DIMS(3, 64), DIMS(3, 64));
        }
        for (int32_t op = TRM_UNARY_NEG; !is_floating(numbers[t]) && op <= TRM_UNARY_NOT; op++) {
            if (op == TRM_UNARY_NEG || op == TRM_UNARY_ABS || op == TRM_UNARY_SIGN || op == TRM_UNARY_NOT) {
                unary_case(bench, numbers[t], (trm_unary_params){.op = (trm_unary_op)op}, DIMS(5, 77),
                           is_unsigned(numbers[t]) ? 0 : -100, 100);
            }
        }
        if (is_floating(numbers[t])) {
            all_unary_cases(bench, numbers[t]);
        }
    }
    unary_case(bench, TRM_BOOL, (trm_unary_params){.op = TRM_UNARY_NOT}, DIMS(5, 77), 0, 1);
    for (int32_t op = TRM_ELEMENTWISE_EQUAL; op <= TRM_ELEMENTWISE_XOR; op++) {
        if (op == TRM_ELEMENTWISE_EQUAL || op >= TRM_ELEMENTWISE_AND) {
            elementwise_case(bench, TRM_BOOL, (trm_elementwise_op)op, DIMS(4, 1, 5), DIMS(3, 1), DIMS(4, 3, 5));
        }
    }
    for (int32_t t = 0; t < COUNT(floats); t++) {
        const trm_dtype dtype = floats[t];
        const trm_elementwise_op add = TRM_ELEMENTWISE_ADD;
        extremes_case(bench, dtype, TRM_ELEMENTWISE_MIN);
        extremes_case(bench, dtype, TRM_ELEMENTWISE_MAX);
        for (int32_t op = TRM_ELEMENTWISE_MOD; op <= TRM_ELEMENTWISE_GREATER_EQUAL; op++) {
            extremes_case(bench, dtype, (trm_elementwise_op)op);
        }
        extremes_case(bench, dtype, TRM_ELEMENTWISE_PRELU);
        elementwise_case(bench, dtype, add, SCALAR, SCALAR, SCALAR);
        elementwise_case(bench, dtype, add, DIMS(600), SCALAR, DIMS(600));
        elementwise_case(bench, dtype, TRM_ELEMENTWISE_SUB, SCALAR, DIMS(7, 100), DIMS(7, 100));
        elementwise_case(bench, dtype, TRM_ELEMENTWISE_SUB, DIMS(33, 130), DIMS(130), DIMS(33, 130));
        elementwise_case(bench, dtype, TRM_ELEMENTWISE_DIV, DIMS(33, 1), DIMS(33, 129), DIMS(33, 129));
        elementwise_case(bench, dtype, add, DIMS(2, 1, 3, 1, 2, 1, 3, 1), DIMS(1, 2, 1, 3, 1, 2, 1, 3),
                         DIMS(2, 2, 3, 3, 2, 2, 3, 3));
        elementwise_case(bench, dtype, add, DIMS(3, 0), DIMS(3, 1), DIMS(3, 0));
        elementwise_case(bench, dtype, add, DIMS(20001), DIMS(20001), DIMS(20001));
        unary_cases(bench, dtype);
        for (int32_t activation = TRM_ACTIVATION_NONE; activation <= TRM_ACTIVATION_SOFTSIGN; activation++) {
            glu_case(bench, dtype, (trm_activation)activation, DIMS(3, 4, 56), false);
            glu_case(bench, dtype, (trm_activation)activation, DIMS(9, 111), true);
        }
        glu_case(bench, dtype, TRM_ACTIVATION_SILU, DIMS(2, 1025), true);
        glu_case(bench, dtype, TRM_ACTIVATION_SILU, DIMS(0, 8), true);
    }
}

/* ---- select and cumulative ---------------------------------------------------------------------- */

static void meaning_select(const kernel_case *test, double *const *inputs, double *const *outputs)
{
    const trm_dims *out = &test->outputs[0].dims;
    for (int64_t i = 0; i < count_of_output(test); i++) {
        const place p = place_of(out, i);
        const int32_t from = inputs[0][broadcast_index(&test->inputs[0].dims, out, &p)] != 0.0 ? 1 : 2;
        outputs[0][i] = inputs[from][broadcast_index(&test->inputs[from].dims, out, &p)];
    }
}

static void select_case(kernel_case_bench *bench, trm_dtype dtype, trm_dims condition, trm_dims a, trm_dims b,
                        trm_dims out)
{
    kernel_case test = new_case(TRM_LAYER_SELECT, "%s by %d-d, %lld", trm_dtype_name(dtype), (int)condition.n,
                                (long long)trm_dims_count(&out));
    test.tolerance = 0.0;
    add_data(&test, TRM_BOOL, condition);
    add_data(&test, dtype, a);
    add_data(&test, dtype, b);
    add_output(&test, dtype, out);
    kernel_case_run(bench, &test, meaning_select);
}

static void meaning_cumulative(const kernel_case *test, double *const *inputs, double *const *outputs)
{
    const trm_cumulative_params *p = &test->layer.cumulative;
    const trm_dims *x = &test->inputs[0].dims;
    const int32_t axis = axis_of(p->axis, x);
    for (int64_t i = 0; i < count_of_output(test); i++) {
        place at = place_of(x, i);
        const int64_t end = at.i[axis];
        double sum = p->op == TRM_CUMULATIVE_PROD ? 1.0 : 0.0;
        for (int64_t j = 0; j < x->d[axis]; j++) {
            const bool counts = p->reverse ? j > end : j < end;
            if (counts || (j == end && !p->exclusive)) {
                at.i[axis] = j;
                const double v = inputs[0][index_of(x, at.i)];
                sum = p->op == TRM_CUMULATIVE_PROD ? sum * v : sum + v;
            }
        }
        outputs[0][i] = is_integer(test->outputs[0].dtype) ? wrap(test->outputs[0].dtype, sum) : sum;
    }
}

static void cumulative_case(kernel_case_bench *bench, trm_dtype dtype, trm_cumulative_params p, trm_dims dims)
{
    kernel_case test =
        new_case(TRM_LAYER_CUMULATIVE, "%s %s axis %d%s%s of %lld", trm_dtype_name(dtype),
                 p.op == TRM_CUMULATIVE_PROD ? "product" : "sum", (int)p.axis, p.exclusive ? " exclusive" : "",
                 p.reverse ? " reverse" : "", (long long)trm_dims_count(&dims));
    test.layer.cumulative = p;
    test.tolerance = 20.0;
    const bool product = p.op == TRM_CUMULATIVE_PROD;
    if (is_floating(dtype)) {
        add_input(&test, dtype, dims, product ? 0.9 : -1.0, product ? 1.1 : 1.0);
    } else {
        add_input(&test, dtype, dims, product ? 1.0 : 0.0, product ? 2.0 : 9.0);
    }
    add_output(&test, dtype, dims);
    kernel_case_run(bench, &test, meaning_cumulative);
}

/* ---- quantize ----------------------------------------------------------------------------------- */

static double scale_of(const kernel_case *test, const double *scales, int64_t i)
{
    const trm_quantize_params *p = &test->layer.quantize;
    const trm_dims *x = &test->inputs[0].dims, *scale = &test->inputs[1].dims;
    if (trm_dims_count(scale) == 1 && p->block_size == 0) {
        return scales[0];
    }
    place at = place_of(x, i);
    const int32_t axis = axis_of(p->axis, x);
    if (p->block_size == 0) {
        return scales[at.i[axis]];
    }
    at.i[axis] /= p->block_size;
    return scales[index_of(scale, at.i)];
}

static void meaning_quantize(const kernel_case *test, double *const *inputs, double *const *outputs)
{
    for (int64_t i = 0; i < count_of_output(test); i++) {
        const double scale = scale_of(test, inputs[1], i);
        const double zero = test->n_inputs > 2 ? scale_of(test, inputs[2], i) : 0.0;
        if (test->layer.kind == TRM_LAYER_DEQUANTIZE) {
            outputs[0][i] = (inputs[0][i] - zero) * scale;
            continue;
        }
        const bool is_float = trm_dtype_name(test->outputs[0].dtype)[0] == 'f';
        const double ratio = (double)((float)inputs[0][i] / (float)scale);
        outputs[0][i] = is_float ? ratio + zero : rint(ratio) + zero;
    }
}

static void quantize_case(kernel_case_bench *bench, trm_layer_kind kind, trm_dtype wide, trm_dtype small, trm_dims dims,
                          trm_dims scales, int32_t axis, int32_t block, bool zero)
{
    kernel_case test =
        new_case(kind, "%s %s of %lld with %lld scales, axis %d, block %d", trm_dtype_name(wide), trm_dtype_name(small),
                 (long long)trm_dims_count(&dims), (long long)trm_dims_count(&scales), (int)axis, (int)block);
    const bool quantize = kind == TRM_LAYER_QUANTIZE;
    test.layer.quantize = (trm_quantize_params){.axis = axis, .block_size = block, .to = quantize ? small : wide};
    test.tolerance = quantize ? 0.0 : 1.0;
    const bool is_float = trm_dtype_name(small)[0] == 'f', has_sign = trm_dtype_name(small)[0] != 'u';
    if (quantize) {
        add_input(&test, wide, dims, -30.0, 30.0);
    } else {
        add_input(&test, small, dims, has_sign ? -8.0 : 0.0, 15.0);
    }
    add_input(&test, wide, scales, 0.1, 0.5);
    if (zero && !is_float) {
        add_input(&test, small, scales, has_sign ? -2.0 : 0.0, 3.0);
    }
    add_output(&test, quantize ? small : wide, dims);
    kernel_case_run(bench, &test, meaning_quantize);
}

void kernel_cases_selection(kernel_case_bench *bench)
{
    for (int32_t t = 0; t < COUNT(all_types); t++) {
        select_case(bench, all_types[t], DIMS(3, 40), DIMS(3, 40), DIMS(3, 40), DIMS(3, 40));
        select_case(bench, all_types[t], DIMS(5, 1, 7), DIMS(3, 1), DIMS(2, 1, 1, 7), DIMS(2, 5, 3, 7));
    }
    select_case(bench, TRM_F32, SCALAR, SCALAR, SCALAR, SCALAR);
    select_case(bench, TRM_F32, DIMS(30), SCALAR, SCALAR, DIMS(30));
    select_case(bench, TRM_F32, SCALAR, DIMS(3, 0), DIMS(3, 1), DIMS(3, 0));
    for (int32_t t = 0; t < COUNT(numbers); t++) {
        for (int32_t form = 0; form < 4; form++) {
            const trm_cumulative_params sum = {.axis = 1, .exclusive = (form & 1) != 0, .reverse = (form & 2) != 0};
            const trm_cumulative_params product = {TRM_CUMULATIVE_PROD, -1, (form & 1) != 0, (form & 2) != 0};
            cumulative_case(bench, numbers[t], sum, DIMS(3, 20, 5));
            cumulative_case(bench, numbers[t], sum, DIMS(2, 700, 3));
            cumulative_case(bench, numbers[t], product, DIMS(7, 5));
            cumulative_case(bench, numbers[t], product, DIMS(2, 45));
        }
    }
    cumulative_case(bench, TRM_F32, (trm_cumulative_params){.axis = 0}, DIMS(0, 4));
    cumulative_case(bench, TRM_F32, (trm_cumulative_params){.axis = 0}, DIMS(4, 0));
    cumulative_case(bench, TRM_F64, (trm_cumulative_params){.axis = 0}, DIMS(3000));
    cumulative_case(bench, TRM_F32, (trm_cumulative_params){.axis = 0}, DIMS(1));
}

void kernel_cases_quantization(kernel_case_bench *bench)
{
    static const trm_dtype small[] = {TRM_I8,     TRM_U8,         TRM_I16,    TRM_U16,    TRM_I4,
                                      TRM_U4,     TRM_I2,         TRM_U2,     TRM_F8E4M3, TRM_F8E4M3FNUZ,
                                      TRM_F8E5M2, TRM_F8E5M2FNUZ, TRM_F4E2M1, TRM_F6E2M3, TRM_F6E3M2};
    for (int32_t s = 0; s < COUNT(small); s++) {
        for (int32_t kind = TRM_LAYER_QUANTIZE; kind <= TRM_LAYER_DEQUANTIZE; kind++) {
            const trm_layer_kind k = (trm_layer_kind)kind;
            for (int32_t f = 0; f < COUNT(floats); f++) {
                quantize_case(bench, k, floats[f], small[s], DIMS(3, 50), SCALAR, 1, 0, true);
                quantize_case(bench, k, floats[f], small[s], DIMS(3, 48), SCALAR, 1, 0, f % 2 == 0);
                quantize_case(bench, k, floats[f], small[s], DIMS(3, 20, 5), DIMS(20), -2, 0, true);
            }
            quantize_case(bench, k, TRM_F32, small[s], DIMS(3, 50), DIMS(1), 1, 0, false);
            quantize_case(bench, k, TRM_F32, small[s], DIMS(3, 21, 5), DIMS(3, 6, 5), 1, 4, true);
            quantize_case(bench, k, TRM_F32, small[s], DIMS(3, 32), DIMS(3, 2), -1, 16, false);
            quantize_case(bench, k, TRM_F32, small[s], DIMS(0, 32), DIMS(0, 2), -1, 16, false);
        }
    }
    quantize_case(bench, TRM_LAYER_DEQUANTIZE, TRM_F32, TRM_I32, DIMS(3, 50), DIMS(50), 1, 0, false);
}
