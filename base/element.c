#include "base/element.h"

#include <math.h>

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
