/*
 * Rotary position embedding (Su et al. 2021), with the frequencies of dynamic NTK scaling and of longrope chosen per
 * token. Angles are products rounded to f32, as in the implementations that models are trained with.
 */
#include <math.h>
#include <string.h>

#include "kernels/host/host.h"

#define MAX_PAIRS 512 /* rotary_dim / 2 */

bool trm_host_rope_accepts(const trm_kernel_call *call)
{
    const trm_rope_params *p = &call->layer->rope;
    const trm_view *x = &call->inputs[0], *positions = &call->inputs[1], *frequencies = &call->inputs[2],
                   *lengths = &call->inputs[3];
    const bool plain = p->scaling == TRM_ROPE_PLAIN;
    if (call->n_inputs < (plain ? 3 : 4) || call->n_outputs != 1 || p->scaling < TRM_ROPE_PLAIN ||
        p->scaling > TRM_ROPE_LONG || !trm_host_is_float(x->dtype) || call->outputs[0].dtype != x->dtype ||
        x->dims.n != 3 || !trm_element_same_dims(&x->dims, &call->outputs[0].dims) || p->rotary_dim < 2 ||
        p->rotary_dim % 2 != 0 || p->first < 0 || p->first + p->rotary_dim > x->dims.d[2] ||
        p->rotary_dim / 2 > MAX_PAIRS) {
        return false;
    }
    return positions->dtype == TRM_I32 && positions->dims.n == 1 && positions->dims.d[0] == x->dims.d[0] &&
           frequencies->dtype == TRM_F32 &&
           trm_dims_count(&frequencies->dims) == (p->scaling == TRM_ROPE_LONG ? p->rotary_dim : p->rotary_dim / 2) &&
           (plain || (lengths->dtype == TRM_I32 && trm_element_same_dims(&lengths->dims, &positions->dims)));
}

/* Frequency i of a token whose sequence has `length` tokens. */
static float frequency(const trm_rope_params *p, const float *frequencies, int32_t i, int64_t length)
{
    if (p->scaling == TRM_ROPE_PLAIN || length <= p->original_length) {
        return frequencies[i];
    }
    if (p->scaling == TRM_ROPE_LONG) {
        return frequencies[p->rotary_dim / 2 + i];
    }
    const double dim = (double)p->rotary_dim, factor = (double)p->factor;
    const double growth = factor * (double)length / (double)p->original_length - (factor - 1.0);
    const double base = (double)p->base * pow(growth, dim / (dim - 2.0));
    return (float)(1.0 / pow(base, 2.0 * (double)i / dim));
}

static void rotate_head(const trm_rope_params *p, const float *cosines, const float *sines, const float *x, float *y)
{
    const int32_t pairs = p->rotary_dim / 2;
    const int32_t step = p->interleaved ? 2 : 1, other = p->interleaved ? 1 : pairs;
    for (int32_t i = 0; i < pairs; i++) {
        const float first = x[i * step], second = x[i * step + other];
        y[i * step] = first * cosines[i] - second * sines[i];
        y[i * step + other] = second * cosines[i] + first * sines[i];
    }
}

static void rope_tokens(void *user, int64_t begin, int64_t end)
{
    const trm_kernel_call *call = user;
    const trm_rope_params *p = &call->layer->rope;
    const trm_view *x = &call->inputs[0], *y = &call->outputs[0];
    const int64_t heads = x->dims.d[1], head_dim = x->dims.d[2];
    const size_t size = trm_dtype_size(x->dtype);
    float cosines[MAX_PAIRS], sines[MAX_PAIRS], from[2 * MAX_PAIRS], to[2 * MAX_PAIRS];
    for (int64_t t = begin; t < end; t++) {
        const float position = (float)((const int32_t *)call->inputs[1].data)[t];
        const int64_t length = p->scaling == TRM_ROPE_PLAIN ? 0 : ((const int32_t *)call->inputs[3].data)[t];
        for (int32_t i = 0; i < p->rotary_dim / 2; i++) {
            const float angle = position * frequency(p, call->inputs[2].data, i, length);
            cosines[i] = cosf(angle) * p->magnitude;
            sines[i] = sinf(angle) * p->magnitude;
        }
        for (int64_t h = 0; h < heads; h++) {
            const int64_t head = (t * heads + h) * head_dim, at = head + p->first;
            rotate_head(p, cosines, sines, trm_host_load(x->dtype, x->data, at, p->rotary_dim, from), to);
            trm_host_store(y->dtype, y->data, at, p->rotary_dim, to);
            const size_t rest = (size_t)(at + p->rotary_dim) * size, start = (size_t)head * size;
            memcpy((char *)y->data + start, (const char *)x->data + start, (size_t)p->first * size);
            memcpy((char *)y->data + rest, (const char *)x->data + rest, (size_t)(head + head_dim) * size - rest);
        }
    }
}

trm_status trm_host_rope_run(const trm_kernel_call *call)
{
    const trm_dims *dims = &call->inputs[0].dims;
    if (trm_dims_count(dims) > 0) {
        trm_kernel_call copy = *call;
        trm_host_for(call, dims->d[0], 1 + 4096 / (dims->d[1] * dims->d[2]), rope_tokens, &copy);
    }
    return TRM_OK;
}
