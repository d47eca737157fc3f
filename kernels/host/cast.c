/*
 * Cast, any type to any. Between the 16-bit floats and f32 by vector loops; everything else through f64 or 64-bit
 * integers, which hold every source value exactly, so that a value is rounded once.
 */
#include <math.h>
#include <string.h>

#include "base/half.h"
#include "kernels/host/host.h"

/* A block of source values: floats as f64, integers as i64 (u64 as its bits). */
typedef union values {
    double f[TRM_HOST_BLOCK];
    int64_t i[TRM_HOST_BLOCK];
} values;

static bool is_floating(trm_dtype dtype)
{
    return trm_host_is_float(dtype) || dtype == TRM_F64;
}

#define LOAD(field, type)                                                                                              \
    for (int64_t i = 0; i < n; i++) {                                                                                  \
        to->field[i] = (__typeof__(to->field[0]))((const type *)data)[start + i];                                      \
    }                                                                                                                  \
    break

static void load(trm_dtype dtype, const void *data, int64_t start, int64_t n, values *to)
{
    float buffer[TRM_HOST_BLOCK];
    switch (dtype) {
    case TRM_F64:
        LOAD(f, double);
    case TRM_I8:
        LOAD(i, int8_t);
    case TRM_U8:
    case TRM_BOOL:
        LOAD(i, uint8_t);
    case TRM_I16:
        LOAD(i, int16_t);
    case TRM_U16:
        LOAD(i, uint16_t);
    case TRM_I32:
        LOAD(i, int32_t);
    case TRM_U32:
        LOAD(i, uint32_t);
    case TRM_I64:
    case TRM_U64:
        memcpy(to->i, (const int64_t *)data + start, (size_t)n * sizeof(int64_t));
        break;
    default: {
        const float *from = trm_host_load(dtype, data, start, n, buffer);
        for (int64_t i = 0; i < n; i++) {
            to->f[i] = (double)from[i];
        }
        break;
    }
    }
}

/* The f32 next to `value` whose last bit says whether it is inexact (round to odd): rounding it again to a
 * shorter type gives what rounding `value` at once would. */
static float round_to_odd(double value)
{
    float nearest = (float)value;
    if ((double)nearest == value || isnan(value)) {
        return nearest;
    }
    uint32_t bits;
    memcpy(&bits, &nearest, sizeof(bits));
    bits -= fabs((double)nearest) > fabs(value); /* toward zero; from infinity to the largest */
    bits |= 1;
    memcpy(&nearest, &bits, sizeof(nearest));
    return nearest;
}

static int64_t saturate_i64(double value, double low, double high)
{
    /* `high` may be 2^63, which no i64 is. */
    return isnan(value) ? 0 : value <= low ? (int64_t)low : value >= 0x1p63 ? INT64_MAX : (int64_t)fmin(value, high);
}

static uint64_t saturate_u64(double value)
{
    return isnan(value) || value <= 0.0 ? 0 : value >= 0x1p64 ? UINT64_MAX : (uint64_t)value;
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
        STORE(uint16_t, trm_f32_to_f16(round_to_odd(v[i])));
    case TRM_BF16:
        STORE(uint16_t, trm_f32_to_bf16(round_to_odd(v[i])));
    case TRM_F64:
        STORE(double, v[i]);
    case TRM_I8:
        STORE(int8_t, saturate_i64(v[i], INT8_MIN, INT8_MAX));
    case TRM_U8:
        STORE(uint8_t, saturate_i64(v[i], 0, UINT8_MAX));
    case TRM_I16:
        STORE(int16_t, saturate_i64(v[i], INT16_MIN, INT16_MAX));
    case TRM_U16:
        STORE(uint16_t, saturate_i64(v[i], 0, UINT16_MAX));
    case TRM_I32:
        STORE(int32_t, saturate_i64(v[i], INT32_MIN, INT32_MAX));
    case TRM_U32:
        STORE(uint32_t, saturate_i64(v[i], 0, UINT32_MAX));
    case TRM_I64:
        STORE(int64_t, saturate_i64(v[i], -0x1p63, 0x1p63));
    case TRM_U64:
        STORE(uint64_t, saturate_u64(v[i]));
    case TRM_BOOL:
        STORE(uint8_t, v[i] != 0.0);
    default:
        break;
    }
}

/* Integers: to shorter integers by their low bits. */
static void store_integers(trm_dtype dtype, void *data, int64_t start, int64_t n, const int64_t *v, bool is_u64)
{
    switch (dtype) {
    case TRM_F32:
        STORE(float, is_u64 ? (float)(uint64_t)v[i] : (float)v[i]);
    case TRM_F16:
        STORE(uint16_t, trm_f32_to_f16(round_to_odd(is_u64 ? (double)(uint64_t)v[i] : (double)v[i])));
    case TRM_BF16:
        STORE(uint16_t, trm_f32_to_bf16(round_to_odd(is_u64 ? (double)(uint64_t)v[i] : (double)v[i])));
    case TRM_F64:
        STORE(double, is_u64 ? (double)(uint64_t)v[i] : (double)v[i]);
    case TRM_I8:
    case TRM_U8:
        STORE(uint8_t, v[i]);
    case TRM_I16:
    case TRM_U16:
        STORE(uint16_t, v[i]);
    case TRM_I32:
    case TRM_U32:
        STORE(uint32_t, v[i]);
    case TRM_I64:
    case TRM_U64:
        memcpy((int64_t *)data + start, v, (size_t)n * sizeof(*v));
        break;
    case TRM_BOOL:
        STORE(uint8_t, v[i] != 0);
    default:
        break;
    }
}

static void cast_range(void *user, int64_t begin, int64_t end)
{
    const trm_kernel_call *call = user;
    const trm_view *x = &call->inputs[0], *y = &call->outputs[0];
    float buffer[TRM_HOST_BLOCK];
    values v;
    for (int64_t i = begin; i < end; i += TRM_HOST_BLOCK) {
        const int64_t n = trm_host_min(end - i, TRM_HOST_BLOCK);
        if (trm_host_is_float(x->dtype) && trm_host_is_float(y->dtype)) {
            trm_host_store(y->dtype, y->data, i, n, trm_host_load(x->dtype, x->data, i, n, buffer));
        } else if (is_floating(x->dtype)) {
            load(x->dtype, x->data, i, n, &v);
            store_floats(y->dtype, y->data, i, n, v.f);
        } else {
            load(x->dtype, x->data, i, n, &v);
            store_integers(y->dtype, y->data, i, n, v.i, x->dtype == TRM_U64);
        }
    }
}

bool trm_host_cast_accepts(const trm_kernel_call *call)
{
    return call->n_inputs == 1 && call->n_outputs == 1 && call->outputs[0].dtype == call->layer->cast.to &&
           trm_dtype_size(call->inputs[0].dtype) > 0 && trm_dtype_size(call->layer->cast.to) > 0 &&
           trm_host_same_dims(&call->inputs[0].dims, &call->outputs[0].dims);
}

trm_status trm_host_cast_run(const trm_kernel_call *call)
{
    trm_kernel_call copy = *call;
    trm_pool_for(trm_host_pool(call), trm_dims_count(&call->outputs[0].dims), TRM_HOST_GRAIN, cast_range, &copy);
    return TRM_OK;
}
