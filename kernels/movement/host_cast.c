/*
 * Cast, any type to any. Between the 16-bit floats and f32 by vector loops; everything else through f64 or 64-bit
 * integers, which hold every source value exactly, so that a value is rounded once. Types that are only stored go
 * element by element (kernels/small_types.h).
 */
#include <math.h>
#include <string.h>

#include "base/half.h"
#include "kernels/small_types.h"
#include "kernels/host/host.h"

static bool is_floating(trm_dtype dtype)
{
    return trm_host_is_float(dtype) || dtype == TRM_F64;
}

static void load_floats(trm_dtype dtype, const void *data, int64_t start, int64_t n, double *to)
{
    if (dtype == TRM_F64) {
        memcpy(to, (const double *)data + start, (size_t)n * sizeof(double));
        return;
    }
    float buffer[TRM_HOST_BLOCK];
    const float *from = trm_host_load(dtype, data, start, n, buffer);
    for (int64_t i = 0; i < n; i++) {
        to[i] = (double)from[i];
    }
}

#define LOAD(type)                                                                                                     \
    for (int64_t i = 0; i < n; i++) {                                                                                  \
        to[i] = ((const type *)data)[start + i];                                                                       \
    }                                                                                                                  \
    break

void trm_host_load_i64(trm_dtype dtype, const void *data, int64_t start, int64_t n, int64_t *to)
{
    switch (dtype) {
    case TRM_I8:
    case TRM_I4:
    case TRM_I2:
        LOAD(int8_t);
    case TRM_U8:
    case TRM_U4:
    case TRM_U2:
    case TRM_BOOL:
        LOAD(uint8_t);
    case TRM_I16:
        LOAD(int16_t);
    case TRM_U16:
        LOAD(uint16_t);
    case TRM_I32:
        LOAD(int32_t);
    case TRM_U32:
        LOAD(uint32_t);
    default:
        memcpy(to, (const int64_t *)data + start, (size_t)n * sizeof(int64_t));
        break;
    }
}

#define STORE(type, expression)                                                                                        \
    for (int64_t i = 0; i < n; i++) {                                                                                  \
        ((type *)data)[start + i] = (type)(expression);                                                                \
    }                                                                                                                  \
    break

/* Floats: to integers by truncation, out of range to the nearest end, NaN to 0. */
static void store_floats(trm_dtype dtype, void *data, int64_t start, int64_t n, const double *v)
{
    switch (dtype) {
    case TRM_F32:
        STORE(float, v[i]);
    case TRM_F16:
        STORE(uint16_t, trm_f32_to_f16(trm_round_to_odd(v[i])));
    case TRM_BF16:
        STORE(uint16_t, trm_f32_to_bf16(trm_round_to_odd(v[i])));
    case TRM_F64:
        STORE(double, v[i]);
    case TRM_I8:
        STORE(int8_t, trm_saturate_i64(v[i], INT8_MIN, INT8_MAX));
    case TRM_U8:
        STORE(uint8_t, trm_saturate_i64(v[i], 0, UINT8_MAX));
    case TRM_I16:
        STORE(int16_t, trm_saturate_i64(v[i], INT16_MIN, INT16_MAX));
    case TRM_U16:
        STORE(uint16_t, trm_saturate_i64(v[i], 0, UINT16_MAX));
    case TRM_I32:
        STORE(int32_t, trm_saturate_i64(v[i], INT32_MIN, INT32_MAX));
    case TRM_U32:
        STORE(uint32_t, trm_saturate_i64(v[i], 0, UINT32_MAX));
    case TRM_I64:
        STORE(int64_t, trm_saturate_i64(v[i], -0x1p63, 0x1p63));
    case TRM_U64:
        STORE(uint64_t, trm_saturate_u64(v[i]));
    case TRM_BOOL:
        STORE(uint8_t, v[i] != 0.0);
    default:
        break;
    }
}

void trm_host_store_i64(trm_dtype dtype, void *data, int64_t start, int64_t n, const int64_t *v)
{
    switch (trm_dtype_size(dtype)) {
    case 1:
        if (dtype == TRM_BOOL) {
            STORE(uint8_t, v[i] != 0);
        }
        STORE(uint8_t, v[i]);
    case 2:
        STORE(uint16_t, v[i]);
    case 4:
        STORE(uint32_t, v[i]);
    default:
        memcpy((int64_t *)data + start, v, (size_t)n * sizeof(*v));
        break;
    }
}

/* Integers to floats. */
static void store_converted(trm_dtype dtype, void *data, int64_t start, int64_t n, const int64_t *v, bool is_u64)
{
    switch (dtype) {
    case TRM_F32:
        STORE(float, is_u64 ? (float)(uint64_t)v[i] : (float)v[i]);
    case TRM_F16:
        STORE(uint16_t, trm_f32_to_f16(trm_round_to_odd(is_u64 ? (double)(uint64_t)v[i] : (double)v[i])));
    case TRM_BF16:
        STORE(uint16_t, trm_f32_to_bf16(trm_round_to_odd(is_u64 ? (double)(uint64_t)v[i] : (double)v[i])));
    default:
        STORE(double, is_u64 ? (double)(uint64_t)v[i] : (double)v[i]);
    }
}

static void cast_elements(const trm_kernel_call *call, int64_t begin, int64_t end)
{
    const trm_view *x = &call->inputs[0], *y = &call->outputs[0];
    float buffer[TRM_HOST_BLOCK];
    double floats[TRM_HOST_BLOCK];
    int64_t integers[TRM_HOST_BLOCK];
    const int32_t size = (int32_t)trm_dtype_size(y->dtype);
    for (int64_t i = begin; i < end; i += TRM_HOST_BLOCK) {
        const int64_t n = trm_host_min(end - i, TRM_HOST_BLOCK);
        if (x->dtype > TRM_BOOL || y->dtype > TRM_BOOL || call->layer->cast.bits) {
            for (int64_t j = i; j < i + n; j++) {
                trm_element_cast(&call->layer->cast, size, x->dtype, x->data, y->data, j);
            }
        } else if (trm_host_is_float(x->dtype) && trm_host_is_float(y->dtype)) {
            trm_host_store(y->dtype, y->data, i, n, trm_host_load(x->dtype, x->data, i, n, buffer));
        } else if (is_floating(x->dtype)) {
            load_floats(x->dtype, x->data, i, n, floats);
            store_floats(y->dtype, y->data, i, n, floats);
        } else {
            trm_host_load_i64(x->dtype, x->data, i, n, integers);
            if (is_floating(y->dtype)) {
                store_converted(y->dtype, y->data, i, n, integers, x->dtype == TRM_U64);
            } else {
                trm_host_store_i64(y->dtype, y->data, i, n, integers);
            }
        }
    }
}

static void cast_range(void *user, int64_t begin, int64_t end)
{
    cast_elements(user, begin, end);
}

void trm_host_cast_block(const trm_kernel_call *call, int64_t n)
{
    cast_elements(call, 0, n);
}

bool trm_host_cast_accepts(const trm_kernel_call *call)
{
    return call->n_inputs == 1 && call->n_outputs == 1 && call->outputs[0].dtype == call->layer->cast.to &&
           trm_dtype_size(call->inputs[0].dtype) > 0 && trm_dtype_size(call->layer->cast.to) > 0 &&
           trm_element_same_dims(&call->inputs[0].dims, &call->outputs[0].dims);
}

trm_status trm_host_cast_run(const trm_kernel_call *call)
{
    trm_kernel_call copy = *call;
    trm_host_for(call, trm_dims_count(&call->outputs[0].dims), TRM_HOST_GRAIN, cast_range, &copy);
    return TRM_OK;
}
