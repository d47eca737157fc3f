/*
 * What one element of ELEMENTWISE, UNARY and the activations is, for C and CUDA: in f32 (also for f16 and bf16), in
 * f64, and for integers in i64 or u64, whose low bits are stored.
 */
#ifndef TRM_KERNELS_POINTWISE_ELEMENT_H
#define TRM_KERNELS_POINTWISE_ELEMENT_H

#include <math.h>

#include <trireme/layers/pointwise.h>

#include "kernels/element.h"

/* ---- kinds of operations ----------------------------------------------------------------------- */

TRM_ELEMENT bool trm_elementwise_is_comparison(trm_elementwise_op op)
{
    return op >= TRM_ELEMENTWISE_EQUAL && op <= TRM_ELEMENTWISE_GREATER_EQUAL;
}

/* AND, OR, XOR: of integers and bools only. */
TRM_ELEMENT bool trm_elementwise_is_logical(trm_elementwise_op op)
{
    return op >= TRM_ELEMENTWISE_AND && op <= TRM_ELEMENTWISE_XOR;
}

TRM_ELEMENT bool trm_elementwise_is_shift(trm_elementwise_op op)
{
    return op == TRM_ELEMENTWISE_SHIFT_LEFT || op == TRM_ELEMENTWISE_SHIFT_RIGHT;
}

TRM_ELEMENT bool trm_elementwise_is_power(trm_elementwise_op op)
{
    return op >= TRM_ELEMENTWISE_POW && op <= TRM_ELEMENTWISE_FMOD;
}

TRM_ELEMENT bool trm_unary_is_test(trm_unary_op op)
{
    return op == TRM_UNARY_IS_NAN || op == TRM_UNARY_IS_INF;
}

TRM_ELEMENT bool trm_unary_takes_integers(trm_unary_op op)
{
    return op == TRM_UNARY_NEG || op == TRM_UNARY_ABS || op == TRM_UNARY_SIGN || op == TRM_UNARY_NOT;
}

/* And hyperbolic. */
TRM_ELEMENT bool trm_unary_is_trigonometric(trm_unary_op op)
{
    return op >= TRM_UNARY_SIN && op <= TRM_UNARY_ATANH;
}

/* ---- floats ------------------------------------------------------------------------------------- */

#define TRM_REAL          float
#define TRM_REAL_NAME(n)  n##_f32
#define TRM_REAL_MATH(n)  n##f
#define TRM_REAL_VALUE(x) x##f
#include "kernels/pointwise/element_real.h"
#undef TRM_REAL
#undef TRM_REAL_NAME
#undef TRM_REAL_MATH
#undef TRM_REAL_VALUE

#define TRM_REAL          double
#define TRM_REAL_NAME(n)  n##_f64
#define TRM_REAL_MATH(n)  n
#define TRM_REAL_VALUE(x) x
#include "kernels/pointwise/element_real.h"
#undef TRM_REAL
#undef TRM_REAL_NAME
#undef TRM_REAL_MATH
#undef TRM_REAL_VALUE

/* ---- integers ---------------------------------------------------------------------------------- */

TRM_ELEMENT uint64_t trm_power_u64(uint64_t x, uint64_t y)
{
    uint64_t result = 1;
    for (; y > 0; y >>= 1) {
        result *= (y & 1) != 0 ? x : 1;
        x *= x;
    }
    return result;
}

/* A negative exponent gives the truncated power. */
TRM_ELEMENT int64_t trm_power_i64(int64_t x, int64_t y)
{
    if (y < 0) {
        return x == 1 ? 1 : x == -1 ? (y % 2 == 0 ? 1 : -1) : 0;
    }
    return (int64_t)trm_power_u64((uint64_t)x, (uint64_t)y);
}

/* Toward zero; 0 by a divisor of 0. */
TRM_ELEMENT int64_t trm_divide_i64(int64_t x, int64_t y)
{
    return y == 0 ? 0 : y == -1 ? (int64_t)(0 - (uint64_t)x) : x / y;
}

/* With the sign of the dividend; 0 by a divisor of 0. */
TRM_ELEMENT int64_t trm_remainder_i64(int64_t x, int64_t y)
{
    return y == 0 || y == -1 ? 0 : x % y;
}

/* With the sign of the divisor. */
TRM_ELEMENT int64_t trm_modulo_i64(int64_t x, int64_t y)
{
    const int64_t rest = trm_remainder_i64(x, y);
    return rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest;
}

TRM_ELEMENT int64_t trm_binary_i64(trm_elementwise_op op, int64_t x, int64_t y)
{
    switch (op) {
    case TRM_ELEMENTWISE_ADD:
        return (int64_t)((uint64_t)x + (uint64_t)y);
    case TRM_ELEMENTWISE_SUB:
        return (int64_t)((uint64_t)x - (uint64_t)y);
    case TRM_ELEMENTWISE_MUL:
        return (int64_t)((uint64_t)x * (uint64_t)y);
    case TRM_ELEMENTWISE_DIV:
        return trm_divide_i64(x, y);
    case TRM_ELEMENTWISE_MIN:
        return x < y ? x : y;
    case TRM_ELEMENTWISE_MAX:
        return x > y ? x : y;
    case TRM_ELEMENTWISE_POW:
        return trm_power_i64(x, y);
    case TRM_ELEMENTWISE_MOD:
        return trm_modulo_i64(x, y);
    case TRM_ELEMENTWISE_FMOD:
        return trm_remainder_i64(x, y);
    case TRM_ELEMENTWISE_AND:
        return x & y;
    case TRM_ELEMENTWISE_OR:
        return x | y;
    case TRM_ELEMENTWISE_XOR:
        return x ^ y;
    case TRM_ELEMENTWISE_SHIFT_LEFT:
        return (uint64_t)y < 64 ? (int64_t)((uint64_t)x << y) : 0;
    case TRM_ELEMENTWISE_SHIFT_RIGHT:
        return (uint64_t)y < 64 ? x >> y : x < 0 ? -1 : 0;
    case TRM_ELEMENTWISE_PRELU:
        return x < 0 ? (int64_t)((uint64_t)x * (uint64_t)y) : x;
    default: /* comparisons: trm_compare_i64 */
        return 0;
    }
}

TRM_ELEMENT uint64_t trm_binary_u64(trm_elementwise_op op, uint64_t x, uint64_t y)
{
    switch (op) {
    case TRM_ELEMENTWISE_ADD:
        return x + y;
    case TRM_ELEMENTWISE_SUB:
        return x - y;
    case TRM_ELEMENTWISE_MUL:
        return x * y;
    case TRM_ELEMENTWISE_DIV:
        return y == 0 ? 0 : x / y;
    case TRM_ELEMENTWISE_MIN:
        return x < y ? x : y;
    case TRM_ELEMENTWISE_MAX:
        return x > y ? x : y;
    case TRM_ELEMENTWISE_POW:
        return trm_power_u64(x, y);
    case TRM_ELEMENTWISE_MOD:
    case TRM_ELEMENTWISE_FMOD:
        return y == 0 ? 0 : x % y;
    case TRM_ELEMENTWISE_AND:
        return x & y;
    case TRM_ELEMENTWISE_OR:
        return x | y;
    case TRM_ELEMENTWISE_XOR:
        return x ^ y;
    case TRM_ELEMENTWISE_SHIFT_LEFT:
        return y < 64 ? x << y : 0;
    case TRM_ELEMENTWISE_SHIFT_RIGHT:
        return y < 64 ? x >> y : 0;
    case TRM_ELEMENTWISE_PRELU:
        return x;
    default: /* comparisons: trm_compare_u64 */
        return 0;
    }
}

#define TRM_COMPARE_INTEGERS(name, type)                                                                               \
    TRM_ELEMENT bool name(trm_elementwise_op op, type x, type y)                                                       \
    {                                                                                                                  \
        switch (op) {                                                                                                  \
        case TRM_ELEMENTWISE_EQUAL:                                                                                    \
            return x == y;                                                                                             \
        case TRM_ELEMENTWISE_LESS:                                                                                     \
            return x < y;                                                                                              \
        case TRM_ELEMENTWISE_LESS_EQUAL:                                                                               \
            return x <= y;                                                                                             \
        case TRM_ELEMENTWISE_GREATER:                                                                                  \
            return x > y;                                                                                              \
        default:                                                                                                       \
            return x >= y;                                                                                             \
        }                                                                                                              \
    }
TRM_COMPARE_INTEGERS(trm_compare_i64, int64_t)
TRM_COMPARE_INTEGERS(trm_compare_u64, uint64_t)
#undef TRM_COMPARE_INTEGERS

/* NEG, ABS, SIGN and NOT, by bits; `is_unsigned` for u64 and what fits it, `is_bool` for NOT. */
TRM_ELEMENT int64_t trm_unary_i64(trm_unary_op op, bool is_unsigned, bool is_bool, int64_t x)
{
    switch (op) {
    case TRM_UNARY_NEG:
        return (int64_t)(0 - (uint64_t)x);
    case TRM_UNARY_ABS:
        return x < 0 && !is_unsigned ? (int64_t)(0 - (uint64_t)x) : x;
    case TRM_UNARY_SIGN:
        return x == 0 ? 0 : x < 0 && !is_unsigned ? -1 : 1;
    default: /* NOT */
        return is_bool ? x == 0 : ~x;
    }
}

#endif
