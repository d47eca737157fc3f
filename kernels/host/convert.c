/* Runs of elements to and from f32, and activations over runs. */
#include <math.h>
#include <string.h>

#include "base/half.h"
#include "kernels/host/host.h"

/*
 * f16 by whole words without branches, so that the loops below become vector code. The bits of a half, shifted to a
 * float's places, are the value times 2^-112; infinity and NaN come out as 2^16 or more and get the full exponent.
 */
static inline float f16_to_f32(uint16_t half)
{
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

#define EACH(expression)                                                                                               \
    for (int64_t i = 0; i < n; i++) {                                                                                  \
        const float v = x[i];                                                                                          \
        x[i] = (expression);                                                                                           \
    }                                                                                                                  \
    break

bool trm_host_activation_is_known(trm_activation activation)
{
    return activation >= TRM_ACTIVATION_NONE && activation <= TRM_ACTIVATION_QUICK_GELU;
}

void trm_host_activate(trm_activation activation, float *x, int64_t n)
{
    switch (activation) {
    case TRM_ACTIVATION_NONE:
        break;
    case TRM_ACTIVATION_RELU:
        EACH(v < 0.0f ? 0.0f : v); /* keeps NaN */
    case TRM_ACTIVATION_SILU:
        EACH(v / (1.0f + expf(-v)));
    case TRM_ACTIVATION_GELU:
        EACH(0.5f * v * (1.0f + erff(v * 0.70710678118654752f)));
    case TRM_ACTIVATION_GELU_TANH:
        EACH(0.5f * v * (1.0f + tanhf(0.79788456080286536f * (v + 0.044715f * v * v * v))));
    case TRM_ACTIVATION_SIGMOID:
        EACH(1.0f / (1.0f + expf(-v)));
    case TRM_ACTIVATION_TANH:
        EACH(tanhf(v));
    case TRM_ACTIVATION_QUICK_GELU:
        EACH(v / (1.0f + expf(-1.702f * v)));
    }
}
