/* Runs of elements to and from f32, and activations over runs. */
#include <math.h>
#include <string.h>

#include "base/half.h"
#include "kernels/pointwise/element.h"
#include "kernels/host/host.h"

/*
 * f16 by whole words without branches, so that the loops below become vector code. The bits of a half, shifted to a
 * float's places, are the value times 2^-112; infinity and NaN come out as 2^16 or more and get the full exponent.
 * Every aarch64 has instructions for it.
 */
static inline float f16_to_f32(uint16_t half)
{
#if defined(__aarch64__)
    __fp16 native;
    memcpy(&native, &half, sizeof(native));
    return (float)native;
#else
    uint32_t bits = (uint32_t)(half & 0x7fffu) << 13;
    float value;
    memcpy(&value, &bits, sizeof(value));
    value *= 0x1p112f;
    uint32_t scaled;
    memcpy(&scaled, &value, sizeof(scaled));
    scaled |= value >= 65536.0f ? 0x7f800000u : 0;
    scaled |= (uint32_t)(half & 0x8000u) << 16;
    memcpy(&value, &scaled, sizeof(value));
    return value;
#endif
}

TRM_VECTOR_CLONES static void load_f16(const uint16_t *from, int64_t n, float *to)
{
    for (int64_t i = 0; i < n; i++) {
        to[i] = f16_to_f32(from[i]);
    }
}

TRM_VECTOR_CLONES static void load_bf16(const uint16_t *from, int64_t n, float *to)
{
    for (int64_t i = 0; i < n; i++) {
        to[i] = trm_bf16_to_f32(from[i]);
    }
}

/* The three arms of trm_f32_to_f16 computed always and chosen among. */
static inline uint16_t f32_to_f16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    uint32_t magnitude = bits & 0x7fffffffu;
    uint32_t normal = (magnitude + 0xfffu + ((magnitude >> 13) & 1u) - 0x38000000u) >> 13;
    float absolute;
    memcpy(&absolute, &magnitude, sizeof(absolute));
    absolute += 0.5f;
    uint32_t small;
    memcpy(&small, &absolute, sizeof(small));
    small -= 0x3f000000u;
    uint32_t result = magnitude < 0x38800000u ? small : normal;
    result = magnitude >= 0x477ff000u ? 0x7c00u : result;
    result = magnitude > 0x7f800000u ? 0x7e00u : result;
    return (uint16_t)(result | ((bits >> 16) & 0x8000u));
}

TRM_VECTOR_CLONES static void store_f16(const float *from, int64_t n, uint16_t *to)
{
    for (int64_t i = 0; i < n; i++) {
        to[i] = f32_to_f16(from[i]);
    }
}

TRM_VECTOR_CLONES static void store_bf16(const float *from, int64_t n, uint16_t *to)
{
    for (int64_t i = 0; i < n; i++) {
        to[i] = trm_f32_to_bf16(from[i]);
    }
}

const float *trm_host_load(trm_dtype dtype, const void *data, int64_t start, int64_t n, float *buffer)
{
    switch (dtype) {
    case TRM_F16:
        load_f16((const uint16_t *)data + start, n, buffer);
        return buffer;
    case TRM_BF16:
        load_bf16((const uint16_t *)data + start, n, buffer);
        return buffer;
    default:
        return (const float *)data + start;
    }
}

void trm_host_store(trm_dtype dtype, void *data, int64_t start, int64_t n, const float *from)
{
    switch (dtype) {
    case TRM_F16:
        store_f16(from, n, (uint16_t *)data + start);
        break;
    case TRM_BF16:
        store_bf16(from, n, (uint16_t *)data + start);
        break;
    default:
        memmove((float *)data + start, from, (size_t)n * sizeof(float));
        break;
    }
}

/*
 * e^x = 2^n e^r with n the nearest integer to x / ln 2 (found by adding 1.5 * 2^23, which rounds) and r within ln 2 /
 * 2, e^r by its series to r^7. ln 2 is split in two so that r is exact. Without branches, to become vector code.
 */
TRM_VECTOR_CLONES void trm_host_exp(float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const float v = x[i];
        float clamped = v < -87.3f ? -87.3f : v;
        clamped = clamped > 88.8f ? 88.8f : clamped;
        const float shifted = clamped * 1.44269504f + 12582912.0f;
        const float rounded = shifted - 12582912.0f;
        const float r = (clamped - rounded * 0.693359375f) + rounded * 2.12194440e-4f;
        float p = 1.9875691500e-4f;
        p = p * r + 1.3981999507e-3f;
        p = p * r + 8.3334519073e-3f;
        p = p * r + 4.1665795894e-2f;
        p = p * r + 1.6666665459e-1f;
        p = p * r + 5.0000001201e-1f;
        p = p * (r * r) + r + 1.0f;
        uint32_t bits, exponent;
        memcpy(&bits, &p, sizeof(bits));
        memcpy(&exponent, &shifted, sizeof(exponent));
        bits += exponent << 23;
        float result;
        memcpy(&result, &bits, sizeof(result));
        result = v < -87.3f ? 0.0f : result;
        result = v > 88.72283f ? INFINITY : result;
        x[i] = v != v ? v : result;
    }
}

/* x = v / (1 + e^(-scale v)), or without the factor v, by blocks so that the exponentials are vector code. */
static void apply_sigmoid(float *x, int64_t n, float scale, bool multiply)
{
    float e[TRM_HOST_BLOCK];
    for (int64_t i = 0; i < n; i += TRM_HOST_BLOCK) {
        const int64_t block = trm_host_min(n - i, TRM_HOST_BLOCK);
        for (int64_t j = 0; j < block; j++) {
            e[j] = -scale * x[i + j];
        }
        trm_host_exp(e, block);
        for (int64_t j = 0; j < block; j++) {
            x[i + j] = (multiply ? x[i + j] : 1.0f) / (1.0f + e[j]);
        }
    }
}

/* v (1 + tanh(u)) / 2 = v / (1 + e^(-2u)), u = sqrt(2 / pi) (v + 0.044715 v^3). */
static void gelu_tanh(float *x, int64_t n)
{
    float e[TRM_HOST_BLOCK];
    for (int64_t i = 0; i < n; i += TRM_HOST_BLOCK) {
        const int64_t block = trm_host_min(n - i, TRM_HOST_BLOCK);
        for (int64_t j = 0; j < block; j++) {
            const float v = x[i + j];
            e[j] = -2.0f * 0.79788456080286536f * (v + 0.044715f * v * v * v);
        }
        trm_host_exp(e, block);
        for (int64_t j = 0; j < block; j++) {
            x[i + j] /= 1.0f + e[j];
        }
    }
}

bool trm_host_activation_is_known(trm_activation activation)
{
    return activation >= TRM_ACTIVATION_NONE && activation <= TRM_ACTIVATION_SOFTSIGN;
}

void trm_host_activate(trm_activation activation, float *x, int64_t n)
{
    switch (activation) {
    case TRM_ACTIVATION_NONE:
        break;
    case TRM_ACTIVATION_RELU:
        for (int64_t i = 0; i < n; i++) {
            x[i] = x[i] < 0.0f ? 0.0f : x[i]; /* keeps NaN */
        }
        break;
    case TRM_ACTIVATION_SILU:
        apply_sigmoid(x, n, 1.0f, true);
        break;
    case TRM_ACTIVATION_GELU_TANH:
        gelu_tanh(x, n);
        break;
    case TRM_ACTIVATION_SIGMOID:
        apply_sigmoid(x, n, 1.0f, false);
        break;
    case TRM_ACTIVATION_QUICK_GELU:
        apply_sigmoid(x, n, 1.702f, true);
        break;
    case TRM_ACTIVATION_HARD_SWISH:
        for (int64_t i = 0; i < n; i++) {
            x[i] = trm_activate_f32(TRM_ACTIVATION_HARD_SWISH, x[i]);
        }
        break;
    default:
        for (int64_t i = 0; i < n; i++) {
            x[i] = trm_activate_f32(activation, x[i]);
        }
        break;
    }
}
