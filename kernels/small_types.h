/*
 * The types that are only stored (types.h), one element at a time, and any type as what holds every value of it: f64 or
 * a 64-bit integer.
 */
#ifndef TRM_KERNELS_SMALL_TYPES_H
#define TRM_KERNELS_SMALL_TYPES_H

#include <trireme/layers/tensor.h>

#include <math.h>

#include "kernels/element.h"

/* ---- small floats ------------------------------------------------------------------------------ */

/* A sign, exponent and mantissa in one byte. Codes above `largest` are infinity or NaN where there are such. */
typedef struct trm_small_float {
    int32_t sign; /* its bit */
    int32_t mantissa, bias;
    int32_t largest;
    int32_t overflow; /* infinity, else NaN, else `largest` */
    int32_t nan;      /* with the sign's bit where that is NaN's only code; -0 of types without NaN */
} trm_small_float;

TRM_ELEMENT trm_small_float trm_small_float_of(trm_dtype dtype)
{
    switch (dtype) {
    case TRM_F8E4M3: {
        const trm_small_float f = {0x80, 3, 7, 0x7e, 0x7f, 0x7f};
        return f;
    }
    case TRM_F8E4M3FNUZ: {
        const trm_small_float f = {0x80, 3, 8, 0x7f, 0x80, 0x80};
        return f;
    }
    case TRM_F8E5M2: {
        const trm_small_float f = {0x80, 2, 15, 0x7b, 0x7c, 0x7e};
        return f;
    }
    case TRM_F8E5M2FNUZ: {
        const trm_small_float f = {0x80, 2, 16, 0x7f, 0x80, 0x80};
        return f;
    }
    case TRM_F6E2M3: {
        const trm_small_float f = {0x20, 3, 1, 0x1f, 0x1f, 0x20};
        return f;
    }
    case TRM_F6E3M2: {
        const trm_small_float f = {0x20, 2, 3, 0x1f, 0x1f, 0x20};
        return f;
    }
    default: { /* F4E2M1 */
        const trm_small_float f = {0x08, 1, 1, 0x07, 0x07, 0x08};
        return f;
    }
    }
}

TRM_ELEMENT bool trm_is_small_float(trm_dtype dtype)
{
    return (dtype >= TRM_F8E4M3 && dtype <= TRM_F4E2M1) || dtype == TRM_F6E2M3 || dtype == TRM_F6E3M2;
}

TRM_ELEMENT bool trm_is_small_integer(trm_dtype dtype)
{
    return dtype >= TRM_I4 && dtype <= TRM_U2;
}

/* Bits of an element that count. */
static inline int32_t trm_element_bits(trm_dtype dtype)
{
    switch (dtype) {
    case TRM_I4:
    case TRM_U4:
    case TRM_F4E2M1:
        return 4;
    case TRM_I2:
    case TRM_U2:
        return 2;
    case TRM_F6E2M3:
    case TRM_F6E3M2:
        return 6;
    default:
        return 8 * (int32_t)trm_dtype_size(dtype);
    }
}

TRM_ELEMENT double trm_small_float_decode(trm_dtype dtype, uint8_t bits)
{
    if (dtype == TRM_F8E8M0) {
        return bits == 0xff ? (double)NAN : ldexp(1.0, (int)bits - 127);
    }
    const trm_small_float f = trm_small_float_of(dtype);
    const int32_t code = bits & (f.sign - 1);
    const double sign = (bits & f.sign) != 0 ? -1.0 : 1.0;
    if (dtype == TRM_F8E4M3FNUZ || dtype == TRM_F8E5M2FNUZ) {
        if (bits == f.nan) {
            return (double)NAN;
        }
    } else if (code > f.largest) {
        return dtype == TRM_F8E5M2 && code == f.overflow ? sign * (double)INFINITY : (double)NAN;
    }
    const int32_t exponent = code >> f.mantissa, fraction = code & ((1 << f.mantissa) - 1);
    if (exponent == 0) {
        return sign * ldexp((double)fraction, 1 - f.bias - f.mantissa);
    }
    return sign * ldexp((double)((1 << f.mantissa) + fraction), exponent - f.bias - f.mantissa);
}

/* The exponent of `value`, of an f32 without regard to its sign; NaN for what is not finite. */
TRM_ELEMENT uint8_t trm_small_exponent(float value, bool unsaturated, trm_cast_round round)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    const uint32_t exponent = bits >> 23 & 0xff, fraction = bits & 0x7fffff;
    if (exponent == 0xff) {
        return 0xff;
    }
    bool up = round == TRM_CAST_ROUND_UP && fraction != 0;
    if (round == TRM_CAST_ROUND_NEAREST) {
        up = fraction > 0x400000 || (fraction == 0x400000 && exponent > 0);
    }
    up = up && (unsaturated || exponent < 0xfe);
    return (uint8_t)(exponent + (up ? 1 : 0));
}

/* To the nearest, or the even one of two; out of range to the largest number, or unless there is none to infinity or
 * NaN where `unsaturated`. */
TRM_ELEMENT uint8_t trm_small_float_encode(trm_dtype dtype, double value, bool unsaturated, trm_cast_round round)
{
    if (dtype == TRM_F8E8M0) {
        return trm_small_exponent((float)value, unsaturated, round);
    }
    const trm_small_float f = trm_small_float_of(dtype);
    const bool has_negative_zero = dtype != TRM_F8E4M3FNUZ && dtype != TRM_F8E5M2FNUZ;
    if (value != value) {
        return (uint8_t)f.nan;
    }
    const int32_t sign = signbit(value) ? f.sign : 0;
    const double size = fabs(value);
    int32_t code = size == 0.0 ? 0 : f.largest + 1;
    if (size > 0.0 && size < 0x1p20) { /* more than any of them reaches */
        int exponent;
        (void)frexp(size, &exponent);
        exponent = exponent - 1 < 1 - f.bias ? 1 - f.bias : exponent - 1;
        const int32_t steps = (int32_t)rint(ldexp(size, f.mantissa - exponent));
        code = ((exponent + f.bias - 1) << f.mantissa) + steps; /* a carry goes to the exponent by itself */
    }
    if (code > f.largest) {
        code = unsaturated ? f.overflow : f.largest;
    }
    return (uint8_t)(code == 0 && !has_negative_zero ? 0 : sign | code);
}

/* ---- any type ---------------------------------------------------------------------------------- */

/* One element, exactly: `f` if it is a float, else `i`, of u64 by its bits. */
typedef struct trm_wide {
    bool is_float, is_u64;
    double f;
    int64_t i;
} trm_wide;

TRM_ELEMENT trm_wide trm_wide_load(trm_dtype dtype, const void *data, int64_t i)
{
    trm_wide w = {false, false, 0.0, 0};
    if (trm_element_is_float(dtype)) {
        w.is_float = true;
        w.f = trm_element_load_f64(dtype, data, i);
    } else if (trm_is_small_float(dtype)) {
        w.is_float = true;
        w.f = trm_small_float_decode(dtype, ((const uint8_t *)data)[i]);
    } else if (dtype == TRM_I4 || dtype == TRM_I2) {
        w.i = ((const int8_t *)data)[i];
    } else if (dtype == TRM_U4 || dtype == TRM_U2 || dtype == TRM_BOOL) {
        w.i = ((const uint8_t *)data)[i];
    } else {
        w.is_u64 = dtype == TRM_U64;
        w.i = trm_element_load_i64(dtype, data, i);
    }
    return w;
}

TRM_ELEMENT double trm_wide_f64(trm_wide w)
{
    return w.is_float ? w.f : w.is_u64 ? (double)(uint64_t)w.i : (double)w.i;
}

/* The f32 next to `value` whose last bit says whether it is inexact (round to odd): rounding it again to a shorter type
 * gives what rounding `value` at once would. */
TRM_ELEMENT float trm_round_to_odd(double value)
{
    float nearest = (float)value;
    if ((double)nearest == value || value != value) {
        return nearest;
    }
    uint32_t bits;
    memcpy(&bits, &nearest, sizeof(bits));
    bits -= fabs((double)nearest) > fabs(value); /* toward zero; from infinity to the largest */
    bits |= 1;
    memcpy(&nearest, &bits, sizeof(nearest));
    return nearest;
}

/* Toward zero, held inside low .. high, which may be 2^63, as no i64 is; NaN is 0. */
TRM_ELEMENT int64_t trm_saturate_i64(double value, double low, double high)
{
    if (value != value) {
        return 0;
    }
    return value <= low ? (int64_t)low : value < high ? (int64_t)value : high < 0x1p63 ? (int64_t)high : INT64_MAX;
}

TRM_ELEMENT uint64_t trm_saturate_u64(double value)
{
    return !(value > 0.0) ? 0 : value >= 0x1p64 ? UINT64_MAX : (uint64_t)value;
}

/* The limits of an integer type, as doubles: of the 64-bit ones the upper is one more. */
TRM_ELEMENT double trm_integer_low(trm_dtype dtype)
{
    switch (dtype) {
    case TRM_I8:
        return -0x1p7;
    case TRM_I16:
        return -0x1p15;
    case TRM_I32:
        return -0x1p31;
    case TRM_I64:
        return -0x1p63;
    case TRM_I4:
        return -8.0;
    case TRM_I2:
        return -2.0;
    default:
        return 0.0;
    }
}

TRM_ELEMENT double trm_integer_high(trm_dtype dtype)
{
    switch (dtype) {
    case TRM_I8:
        return 0x1p7 - 1.0;
    case TRM_U8:
        return 0x1p8 - 1.0;
    case TRM_I16:
        return 0x1p15 - 1.0;
    case TRM_U16:
        return 0x1p16 - 1.0;
    case TRM_I32:
        return 0x1p31 - 1.0;
    case TRM_U32:
        return 0x1p32 - 1.0;
    case TRM_I64:
        return 0x1p63;
    case TRM_I4:
        return 7.0;
    case TRM_U4:
        return 15.0;
    case TRM_I2:
        return 1.0;
    case TRM_U2:
        return 3.0;
    default:
        return 0x1p64;
    }
}

/* The low bits of an i64 as an element. */
TRM_ELEMENT void trm_wide_store_low_bits(trm_dtype dtype, void *data, int64_t i, int64_t value)
{
    switch (dtype) {
    case TRM_I4:
        ((int8_t *)data)[i] = (int8_t)(((value & 15) ^ 8) - 8);
        break;
    case TRM_U4:
        ((uint8_t *)data)[i] = (uint8_t)(value & 15);
        break;
    case TRM_I2:
        ((int8_t *)data)[i] = (int8_t)(((value & 3) ^ 2) - 2);
        break;
    case TRM_U2:
        ((uint8_t *)data)[i] = (uint8_t)(value & 3);
        break;
    default:
        trm_element_store_i64(dtype, data, i, value);
        break;
    }
}

/* What CAST does, rounding once. */
TRM_ELEMENT void trm_wide_store(trm_dtype dtype, void *data, int64_t i, trm_wide w, bool unsaturated,
                                trm_cast_round round)
{
    switch (dtype) {
    case TRM_F32:
        ((float *)data)[i] = w.is_float ? (float)w.f : w.is_u64 ? (float)(uint64_t)w.i : (float)w.i;
        return;
    case TRM_F16:
        ((uint16_t *)data)[i] = trm_element_to_f16(trm_round_to_odd(trm_wide_f64(w)));
        return;
    case TRM_BF16:
        ((uint16_t *)data)[i] = trm_element_to_bf16(trm_round_to_odd(trm_wide_f64(w)));
        return;
    case TRM_F64:
        ((double *)data)[i] = trm_wide_f64(w);
        return;
    case TRM_BOOL:
        ((uint8_t *)data)[i] = w.is_float ? w.f != 0.0 : w.i != 0;
        return;
    default:
        break;
    }
    if (trm_is_small_float(dtype)) {
        ((uint8_t *)data)[i] = trm_small_float_encode(dtype, trm_wide_f64(w), unsaturated, round);
    } else if (!w.is_float) {
        trm_wide_store_low_bits(dtype, data, i, w.i);
    } else if (dtype == TRM_U64) {
        ((uint64_t *)data)[i] = trm_saturate_u64(w.f);
    } else if (trm_is_small_integer(dtype)) {
        trm_wide_store_low_bits(dtype, data, i, fabs(w.f) < 0x1p63 ? (int64_t)w.f : 0);
    } else {
        trm_wide_store_low_bits(dtype, data, i, trm_saturate_i64(w.f, trm_integer_low(dtype), trm_integer_high(dtype)));
    }
}

/* Element i of x by CAST into y. */
TRM_ELEMENT void trm_element_cast(const trm_cast_params *p, int32_t size, trm_dtype from, const void *x, void *y,
                                  int64_t i)
{
    if (!p->bits) {
        trm_wide_store(p->to, y, i, trm_wide_load(from, x, i), p->unsaturated, p->round);
    } else if (trm_is_small_integer(p->to)) {
        trm_wide_store_low_bits(p->to, y, i, ((const uint8_t *)x)[i]);
    } else if (trm_is_small_integer(from)) { /* without the copies of the sign */
        ((uint8_t *)y)[i] = (uint8_t)(((const uint8_t *)x)[i] & (from == TRM_I4 || from == TRM_U4 ? 15 : 3));
    } else {
        trm_element_move(size, y, i, x, i);
    }
}

#endif
