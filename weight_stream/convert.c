/*
 * Conversion loops. Every element function is free of branches, so that the compiler vectorizes the loop around it;
 * base/half.h has the plain versions, which the tests compare with.
 */
#include "weight_stream/convert.h"

#include <assert.h>
#include <string.h>

#include "base/half.h"

static inline uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static inline float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static inline float f32_from_bf16(uint16_t value)
{
    return float_of((uint32_t)value << 16);
}

static inline float f32_from_f16(uint16_t value)
{
    uint32_t sign = (uint32_t)(value & 0x8000u) << 16;
    uint32_t magnitude = value & 0x7fffu;
    uint32_t normal = (magnitude << 13) + (112u << 23);
    uint32_t special = (magnitude << 13) | 0x7f800000u;
    uint32_t small = bits_of((float)(int32_t)magnitude * 0x1p-24f);
    uint32_t bits = magnitude < 0x400u ? small : normal;
    bits = magnitude >= 0x7c00u ? special : bits;
    return float_of(bits | sign);
}

/* Rounds to odd, so that a second rounding to 16 bits gives what one rounding would have given. */
static inline float f32_from_f64_to_odd(double value)
{
    float nearest = (float)value;
    uint32_t bits = bits_of(nearest);
    double back = (double)nearest;
    bool inexact = back != value && value == value;
    bool away = inexact && ((value > 0) ? back > value : back < value);
    bits -= away ? 1u : 0u; /* towards zero: from infinity to the largest number too */
    bits |= inexact ? 1u : 0u;
    return float_of(bits);
}

static inline uint16_t bf16_from_f32(float value)
{
    uint32_t bits = bits_of(value);
    uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    uint32_t quiet = (bits >> 16) | 0x40u;
    return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}

static inline uint16_t f16_from_f32(float value)
{
    uint32_t bits = bits_of(value);
    uint32_t sign = (bits >> 16) & 0x8000u;
    uint32_t magnitude = bits & 0x7fffffffu;
    uint32_t normal = (magnitude + 0xfffu + ((magnitude >> 13) & 1u) - 0x38000000u) >> 13;
    uint32_t clamped = magnitude < 0x38800000u ? magnitude : 0;
    uint32_t small = bits_of(float_of(clamped) + 0.5f) - 0x3f000000u; /* the sum rounds to a multiple of 2^-24 */
    uint32_t result = magnitude < 0x38800000u ? small : normal;
    result = magnitude >= 0x477ff000u ? 0x7c00u : result;
    result = magnitude > 0x7f800000u ? 0x7e00u : result;
    return (uint16_t)(sign | result);
}

#define LOOP(name, source_type, target_type, expression)                                                               \
    static void name(const unsigned char *source, unsigned char *target, size_t count)                                 \
    {                                                                                                                  \
        for (size_t i = 0; i < count; i++) {                                                                           \
            source_type value;                                                                                         \
            memcpy(&value, source + i * sizeof(value), sizeof(value));                                                 \
            target_type result = (expression);                                                                         \
            memcpy(target + i * sizeof(result), &result, sizeof(result));                                              \
        }                                                                                                              \
    }

LOOP(f8_to_f32, uint8_t, float, trm_f8e4m3_to_f32(value))
LOOP(f32_to_f16, float, uint16_t, f16_from_f32(value))
LOOP(f32_to_bf16, float, uint16_t, bf16_from_f32(value))
LOOP(f32_to_f64, float, double, (double)value)
LOOP(f16_to_f32, uint16_t, float, f32_from_f16(value))
LOOP(f16_to_bf16, uint16_t, uint16_t, bf16_from_f32(f32_from_f16(value)))
LOOP(f16_to_f64, uint16_t, double, (double)f32_from_f16(value))
LOOP(bf16_to_f32, uint16_t, float, f32_from_bf16(value))
LOOP(bf16_to_f16, uint16_t, uint16_t, f16_from_f32(f32_from_bf16(value)))
LOOP(bf16_to_f64, uint16_t, double, (double)f32_from_bf16(value))
LOOP(f64_to_f32, double, float, (float)value)
LOOP(f64_to_f16, double, uint16_t, f16_from_f32(f32_from_f64_to_odd(value)))
LOOP(f64_to_bf16, double, uint16_t, bf16_from_f32(f32_from_f64_to_odd(value)))

typedef void (*convert_fn)(const unsigned char *source, unsigned char *target, size_t count);

static const convert_fn loops[TRM_F64 + 1][TRM_F64 + 1] = {
    [TRM_F32] = {[TRM_F16] = f32_to_f16, [TRM_BF16] = f32_to_bf16, [TRM_F64] = f32_to_f64},
    [TRM_F16] = {[TRM_F32] = f16_to_f32, [TRM_BF16] = f16_to_bf16, [TRM_F64] = f16_to_f64},
    [TRM_BF16] = {[TRM_F32] = bf16_to_f32, [TRM_F16] = bf16_to_f16, [TRM_F64] = bf16_to_f64},
    [TRM_F64] = {[TRM_F32] = f64_to_f32, [TRM_F16] = f64_to_f16, [TRM_BF16] = f64_to_bf16},
};

bool trm_convertible(trm_dtype from, trm_dtype to)
{
    if (trm_dtype_size(from) == 0 || trm_dtype_size(to) == 0) {
        return false;
    }
    return from == to || (from <= TRM_F64 && to <= TRM_F64) || (from == TRM_F8E4M3 && to == TRM_F32);
}

void trm_convert(trm_dtype from, const void *source, trm_dtype to, void *target, size_t count)
{
    assert(trm_convertible(from, to));
    if (from == to) {
        memcpy(target, source, count * trm_dtype_size(from));
    } else if (from == TRM_F8E4M3) {
        f8_to_f32(source, target, count);
    } else {
        loops[from][to](source, target, count);
    }
}
