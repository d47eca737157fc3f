/*
 * The floating-point half of element.h, which includes this once for f32 and once for f64: TRM_REAL is the type,
 * TRM_REAL_NAME(n) and TRM_REAL_MATH(n) give the names of our and the C library's functions for it, TRM_REAL_VALUE(x)
 * a constant.
 */

TRM_ELEMENT TRM_REAL TRM_REAL_NAME(trm_softplus)(TRM_REAL x)
{
    const TRM_REAL log_term = TRM_REAL_MATH(log1p)(TRM_REAL_MATH(exp)(-TRM_REAL_MATH(fabs)(x)));
    return (x > 0 ? x : 0) + log_term;
}

TRM_ELEMENT TRM_REAL TRM_REAL_NAME(trm_activate)(trm_activation activation, TRM_REAL x)
{
    const TRM_REAL one = 1, half = TRM_REAL_VALUE(0.5);
    switch (activation) {
    case TRM_ACTIVATION_RELU:
        return x < 0 ? 0 : x; /* keeps NaN */
    case TRM_ACTIVATION_SILU:
        return x / (one + TRM_REAL_MATH(exp)(-x));
    case TRM_ACTIVATION_GELU:
        return half * x * (one + TRM_REAL_MATH(erf)(x * TRM_REAL_VALUE(0.70710678118654752)));
    case TRM_ACTIVATION_GELU_TANH:
        return half * x *
               (one +
                TRM_REAL_MATH(tanh)(TRM_REAL_VALUE(0.79788456080286536) * (x + TRM_REAL_VALUE(0.044715) * x * x * x)));
    case TRM_ACTIVATION_SIGMOID:
        return one / (one + TRM_REAL_MATH(exp)(-x));
    case TRM_ACTIVATION_TANH:
        return TRM_REAL_MATH(tanh)(x);
    case TRM_ACTIVATION_QUICK_GELU:
        return x / (one + TRM_REAL_MATH(exp)(TRM_REAL_VALUE(-1.702) * x));
    case TRM_ACTIVATION_HARD_SWISH: {
        const TRM_REAL gate = x / 6 + half;
        return x * (gate < 0 ? 0 : gate > 1 ? one : gate);
    }
    case TRM_ACTIVATION_MISH:
        return x * TRM_REAL_MATH(tanh)(TRM_REAL_NAME(trm_softplus)(x));
    case TRM_ACTIVATION_SOFTPLUS:
        return x != x ? x : TRM_REAL_NAME(trm_softplus)(x);
    case TRM_ACTIVATION_SOFTSIGN:
        return x / (one + TRM_REAL_MATH(fabs)(x));
    default:
        return x;
    }
}

TRM_ELEMENT TRM_REAL TRM_REAL_NAME(trm_unary_trigonometric)(trm_unary_op op, TRM_REAL x)
{
    switch (op) {
    case TRM_UNARY_SIN:
        return TRM_REAL_MATH(sin)(x);
    case TRM_UNARY_COS:
        return TRM_REAL_MATH(cos)(x);
    case TRM_UNARY_TAN:
        return TRM_REAL_MATH(tan)(x);
    case TRM_UNARY_ASIN:
        return TRM_REAL_MATH(asin)(x);
    case TRM_UNARY_ACOS:
        return TRM_REAL_MATH(acos)(x);
    case TRM_UNARY_ATAN:
        return TRM_REAL_MATH(atan)(x);
    case TRM_UNARY_SINH:
        return TRM_REAL_MATH(sinh)(x);
    case TRM_UNARY_COSH:
        return TRM_REAL_MATH(cosh)(x);
    case TRM_UNARY_ASINH:
        return TRM_REAL_MATH(asinh)(x);
    case TRM_UNARY_ACOSH:
        return TRM_REAL_MATH(acosh)(x);
    default:
        return TRM_REAL_MATH(atanh)(x);
    }
}

/* Every op but ACTIVATION, the trigonometric ones, and those that give bool. */
TRM_ELEMENT TRM_REAL TRM_REAL_NAME(trm_unary_plain)(trm_unary_op op, TRM_REAL alpha, TRM_REAL beta, TRM_REAL x)
{
    const TRM_REAL one = 1, zero = 0;
    switch (op) {
    case TRM_UNARY_NEG:
        return -x;
    case TRM_UNARY_ABS:
        return TRM_REAL_MATH(fabs)(x);
    case TRM_UNARY_EXP:
        return TRM_REAL_MATH(exp)(x);
    case TRM_UNARY_LOG:
        return TRM_REAL_MATH(log)(x);
    case TRM_UNARY_SQRT:
        return TRM_REAL_MATH(sqrt)(x);
    case TRM_UNARY_RECIPROCAL:
        return one / x;
    case TRM_UNARY_ERF:
        return TRM_REAL_MATH(erf)(x);
    case TRM_UNARY_LINEAR:
        return TRM_REAL_MATH(fma)(alpha, x, beta);
    case TRM_UNARY_SOFTCAP:
        return alpha * TRM_REAL_MATH(tanh)(x / alpha);
    case TRM_UNARY_SIGN:
        return x > 0 ? one : x < 0 ? -one : x;
    case TRM_UNARY_CEIL:
        return TRM_REAL_MATH(ceil)(x);
    case TRM_UNARY_FLOOR:
        return TRM_REAL_MATH(floor)(x);
    case TRM_UNARY_ROUND:
        return TRM_REAL_MATH(rint)(x);
    case TRM_UNARY_CLIP:
        x = x < alpha ? alpha : x;
        return x > beta ? beta : x;
    case TRM_UNARY_ELU:
        return x < 0 ? alpha * TRM_REAL_MATH(expm1)(x) : x;
    case TRM_UNARY_SELU:
        return beta * (x < 0 ? alpha * TRM_REAL_MATH(expm1)(x) : x);
    case TRM_UNARY_CELU: {
        const TRM_REAL low = alpha * TRM_REAL_MATH(expm1)(x / alpha);
        return (x < 0 ? zero : x) + (low > 0 ? zero : low);
    }
    case TRM_UNARY_LEAKY_RELU:
        return x < 0 ? alpha * x : x;
    case TRM_UNARY_HARD_SIGMOID:
        x = TRM_REAL_MATH(fma)(alpha, x, beta);
        return x < 0 ? zero : x > 1 ? one : x;
    case TRM_UNARY_THRESHOLDED_RELU:
        return x > alpha ? x : zero; /* of NaN, too: ONNX defines both by comparisons */
    case TRM_UNARY_SHRINK:
        return x < -alpha ? x + beta : x > alpha ? x - beta : zero;
    case TRM_UNARY_SWISH:
        return x / (one + TRM_REAL_MATH(exp)(-alpha * x));
    default:
        return x;
    }
}

/* IS_NAN and IS_INF. */
TRM_ELEMENT bool TRM_REAL_NAME(trm_unary_test)(trm_unary_op op, TRM_REAL alpha, TRM_REAL beta, TRM_REAL x)
{
    if (op == TRM_UNARY_IS_NAN) {
        return x != x;
    }
    return (x - x) != (x - x) && x == x && (x < 0 ? alpha : beta) != 0;
}

/* With the sign of the divisor, as numpy's mod. */
TRM_ELEMENT TRM_REAL TRM_REAL_NAME(trm_modulo)(TRM_REAL x, TRM_REAL y)
{
    const TRM_REAL rest = TRM_REAL_MATH(fmod)(x, y);
    if (rest == 0) {
        return TRM_REAL_MATH(copysign)(rest, y);
    }
    return (rest < 0) != (y < 0) ? rest + y : rest;
}

/* POW, MOD and FMOD, apart because their code is large. */
TRM_ELEMENT TRM_REAL TRM_REAL_NAME(trm_binary_power)(trm_elementwise_op op, TRM_REAL x, TRM_REAL y)
{
    switch (op) {
    case TRM_ELEMENTWISE_POW:
        return TRM_REAL_MATH(pow)(x, y);
    case TRM_ELEMENTWISE_MOD:
        return TRM_REAL_NAME(trm_modulo)(x, y);
    default:
        return TRM_REAL_MATH(fmod)(x, y);
    }
}

/* Every other op but comparisons and those of integers. NaN wins in MIN and MAX. */
TRM_ELEMENT TRM_REAL TRM_REAL_NAME(trm_binary_plain)(trm_elementwise_op op, TRM_REAL x, TRM_REAL y)
{
    switch (op) {
    case TRM_ELEMENTWISE_ADD:
        return x + y;
    case TRM_ELEMENTWISE_SUB:
        return x - y;
    case TRM_ELEMENTWISE_MUL:
        return x * y;
    case TRM_ELEMENTWISE_DIV:
        return x / y;
    case TRM_ELEMENTWISE_MIN:
        return x < y || x != x ? x : y;
    case TRM_ELEMENTWISE_MAX:
        return x > y || x != x ? x : y;
    default: /* PRELU */
        return x < 0 ? x * y : x;
    }
}

TRM_ELEMENT TRM_REAL TRM_REAL_NAME(trm_binary)(trm_elementwise_op op, TRM_REAL x, TRM_REAL y)
{
    return trm_elementwise_is_power(op) ? TRM_REAL_NAME(trm_binary_power)(op, x, y)
                                        : TRM_REAL_NAME(trm_binary_plain)(op, x, y);
}

TRM_ELEMENT bool TRM_REAL_NAME(trm_compare)(trm_elementwise_op op, TRM_REAL x, TRM_REAL y)
{
    switch (op) {
    case TRM_ELEMENTWISE_EQUAL:
        return x == y;
    case TRM_ELEMENTWISE_LESS:
        return x < y;
    case TRM_ELEMENTWISE_LESS_EQUAL:
        return x <= y;
    case TRM_ELEMENTWISE_GREATER:
        return x > y;
    default:
        return x >= y;
    }
}
