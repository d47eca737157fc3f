#include "base/element.h"

#include <math.h>
#include <string.h>

#include "base/half.h"

double trm_element_as_double(trm_dtype dtype, const void *data, int64_t i)
{
    switch (dtype) {
    case TRM_F32:
        return (double)((const float *)data)[i];
    case TRM_F64:
        return ((const double *)data)[i];
    case TRM_F16:
        return (double)trm_f16_to_f32(((const uint16_t *)data)[i]);
    case TRM_BF16:
        return (double)trm_bf16_to_f32(((const uint16_t *)data)[i]);
    case TRM_I8:
        return ((const int8_t *)data)[i];
    case TRM_U8:
    case TRM_BOOL:
        return ((const uint8_t *)data)[i];
    case TRM_I16:
        return ((const int16_t *)data)[i];
    case TRM_U16:
        return ((const uint16_t *)data)[i];
    case TRM_I32:
        return ((const int32_t *)data)[i];
    case TRM_U32:
        return ((const uint32_t *)data)[i];
    case TRM_I64:
        return (double)((const int64_t *)data)[i];
    case TRM_U64:
        return (double)((const uint64_t *)data)[i];
    default:
        return NAN;
    }
}

/* Rounds f16 and bf16 only once: the f32 on the way has its last bit set if it is not exact. */
static float round_to_odd(double value)
{
    float nearest = (float)value;
    if ((double)nearest == value || isnan(value) || isinf(nearest)) {
        return nearest;
    }
    float inward = fabs((double)nearest) > fabs(value) ? nextafterf(nearest, 0.0f) : nearest;
    uint32_t bits;
    memcpy(&bits, &inward, sizeof(bits));
    bits |= 1;
    memcpy(&inward, &bits, sizeof(bits));
    return inward;
}

/* Rounds towards zero and clamps to least .. most, which are exact doubles or one past the integer meant. */
static int64_t to_integer(double value, double least, double most)
{
    if (isnan(value)) {
        return 0;
    }
    return value <= least  ? (int64_t)least
           : value >= most ? (most >= 0x1p63 ? INT64_MAX : (int64_t)most)
                           : (int64_t)value;
}

bool trm_element_set_double(trm_dtype dtype, void *data, int64_t i, double value)
{
    switch (dtype) {
    case TRM_F32:
        ((float *)data)[i] = (float)value;
        return true;
    case TRM_F64:
        ((double *)data)[i] = value;
        return true;
    case TRM_F16:
        ((uint16_t *)data)[i] = trm_f32_to_f16(round_to_odd(value));
        return true;
    case TRM_BF16:
        ((uint16_t *)data)[i] = trm_f32_to_bf16(round_to_odd(value));
        return true;
    case TRM_I8:
        ((int8_t *)data)[i] = (int8_t)to_integer(value, INT8_MIN, INT8_MAX);
        return true;
    case TRM_U8:
        ((uint8_t *)data)[i] = (uint8_t)to_integer(value, 0, UINT8_MAX);
        return true;
    case TRM_BOOL:
        ((uint8_t *)data)[i] = value != 0;
        return true;
    case TRM_I16:
        ((int16_t *)data)[i] = (int16_t)to_integer(value, INT16_MIN, INT16_MAX);
        return true;
    case TRM_U16:
        ((uint16_t *)data)[i] = (uint16_t)to_integer(value, 0, UINT16_MAX);
        return true;
    case TRM_I32:
        ((int32_t *)data)[i] = (int32_t)to_integer(value, INT32_MIN, INT32_MAX);
        return true;
    case TRM_U32:
        ((uint32_t *)data)[i] = (uint32_t)to_integer(value, 0, UINT32_MAX);
        return true;
    case TRM_I64:
        ((int64_t *)data)[i] = to_integer(value, -0x1p63, 0x1p63);
        return true;
    case TRM_U64:
        ((uint64_t *)data)[i] = value >= 0x1p64   ? UINT64_MAX
                                : value >= 0x1p63 ? (uint64_t)value
                                                  : (uint64_t)to_integer(value, 0, 0x1p63);
        return true;
    default:
        return false;
    }
}
