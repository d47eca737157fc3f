/*
 * Conversions between f32 and the 16-bit float types and e4m3, round to nearest even, for host code.
 */
#ifndef TRM_BASE_HALF_H
#define TRM_BASE_HALF_H

#include <stdint.h>
#include <string.h>

static inline float trm_bf16_to_f32(uint16_t value)
{
    uint32_t bits = (uint32_t)value << 16;
    float result;
    memcpy(&result, &bits, sizeof(result));
    return result;
}

static inline uint16_t trm_f32_to_bf16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    if ((bits & 0x7fffffffu) > 0x7f800000u) {
        return (uint16_t)((bits >> 16) | 0x40u); /* quiet NaN */
    }
    bits += 0x7fffu + ((bits >> 16) & 1u);
    return (uint16_t)(bits >> 16);
}

static inline float trm_f16_to_f32(uint16_t value)
{
    uint32_t sign = (uint32_t)(value & 0x8000u) << 16;
    uint32_t exponent = (value >> 10) & 0x1fu;
    uint32_t mantissa = value & 0x3ffu;
    uint32_t bits;
    if (exponent == 0x1f) {
        bits = sign | 0x7f800000u | (mantissa << 13);
    } else if (exponent != 0) {
        bits = sign | ((exponent + 112u) << 23) | (mantissa << 13);
    } else {
        float small = (float)mantissa * 0x1p-24f;
        memcpy(&bits, &small, sizeof(bits));
        bits |= sign;
    }
    float result;
    memcpy(&result, &bits, sizeof(result));
    return result;
}

static inline uint16_t trm_f32_to_f16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    uint16_t sign = (uint16_t)((bits >> 16) & 0x8000u);
    uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) {
        return (uint16_t)(sign | 0x7e00u);
    }
    if (magnitude >= 0x477ff000u) { /* would round to 65536 or more */
        return (uint16_t)(sign | 0x7c00u);
    }
    if (magnitude < 0x38800000u) { /* below 2^-14: a multiple of 2^-24 */
        float absolute;
        memcpy(&absolute, &magnitude, sizeof(absolute));
        float shifted = absolute + 0.5f; /* ulp of [0.5, 1) is 2^-24: the sum rounds as we need */
        uint32_t rounded;
        memcpy(&rounded, &shifted, sizeof(rounded));
        return (uint16_t)(sign | (rounded - 0x3f000000u));
    }
    magnitude += 0xfffu + ((magnitude >> 13) & 1u);
    return (uint16_t)(sign | ((magnitude - 0x38000000u) >> 13));
}

static inline float trm_f8e4m3_to_f32(uint8_t value)
{
    uint32_t bits = (uint32_t)(value & 0x7fu) << 20;
    float result;
    memcpy(&result, &bits, sizeof(result));
    result *= 0x1p120f; /* exponent 0 is a denormal in both types */
    memcpy(&bits, &result, sizeof(bits));
    bits = (value & 0x7fu) == 0x7fu ? 0x7fc00000u : bits;
    bits |= (uint32_t)(value & 0x80u) << 24;
    memcpy(&result, &bits, sizeof(result));
    return result;
}

/* Values beyond the largest number become 448; NaN stays NaN. */
static inline uint8_t trm_f32_to_f8e4m3(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    uint8_t sign = (uint8_t)((bits >> 24) & 0x80u);
    uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) {
        return 0x7fu;
    }
    if (magnitude >= 0x43e00000u) {
        return (uint8_t)(sign | 0x7eu);
    }
    if (magnitude < 0x3c800000u) { /* below 2^-6: a multiple of 2^-9 */
        float absolute;
        memcpy(&absolute, &magnitude, sizeof(absolute));
        float shifted = absolute + 0x1p14f; /* ulp of [2^14, 2^15) is 2^-9: the sum rounds as we need */
        uint32_t rounded;
        memcpy(&rounded, &shifted, sizeof(rounded));
        return (uint8_t)(sign | (rounded - 0x46800000u));
    }
    magnitude += 0x7ffffu + ((magnitude >> 20) & 1u);
    return (uint8_t)(sign | ((magnitude - 0x3c000000u) >> 20));
}

#endif
