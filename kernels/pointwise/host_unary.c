/*
 * UNARY: f32, f16 and bf16 by blocks in f32, f64 as it is, integers in i64. One loop per operation, so that the simple
 * ones become vector code; what an operation is stands in kernels/pointwise/element.h.
 */
#include <string.h>

#include "kernels/pointwise/element.h"
#include "kernels/host/host.h"

bool trm_host_unary_accepts(const trm_kernel_call *call)
{
    const trm_unary_params *p = &call->layer->unary;
    const trm_dtype type = call->inputs[0].dtype;
    const trm_dtype out = trm_unary_is_test(p->op) ? TRM_BOOL : type;
    if (call->n_inputs != 1 || call->n_outputs != 1 || call->outputs[0].dtype != out ||
        !trm_element_same_dims(&call->inputs[0].dims, &call->outputs[0].dims) || p->op < TRM_UNARY_ACTIVATION ||
        p->op > TRM_UNARY_SWISH) {
        return false;
    }
    if (trm_element_is_integer(type) || type == TRM_BOOL) {
        return trm_unary_takes_integers(p->op) && (type != TRM_BOOL || p->op == TRM_UNARY_NOT);
    }
    return trm_element_is_float(type) && p->op != TRM_UNARY_NOT &&
           (p->op != TRM_UNARY_ACTIVATION || trm_host_activation_is_known(p->activation));
}

#define LOOP(name, op, suffix)                                                                                         \
    case TRM_UNARY_##op:                                                                                               \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            x[i] = trm_unary_##name##_##suffix(TRM_UNARY_##op, alpha, beta, x[i]);                                     \
        }                                                                                                              \
        break;
#define LOOPS_OF(suffix, type)                                                                                         \
    TRM_VECTOR_CLONES static void unary_##suffix(const trm_unary_params *p, type *x, int64_t n)                        \
    {                                                                                                                  \
        const type alpha = (type)p->alpha, beta = (type)p->beta;                                                       \
        switch (p->op) {                                                                                               \
            LOOP(plain, NEG, suffix)                                                                                   \
            LOOP(plain, ABS, suffix)                                                                                   \
            LOOP(plain, EXP, suffix)                                                                                   \
            LOOP(plain, LOG, suffix)                                                                                   \
            LOOP(plain, SQRT, suffix)                                                                                  \
            LOOP(plain, RECIPROCAL, suffix)                                                                            \
            LOOP(plain, ERF, suffix)                                                                                   \
            LOOP(plain, LINEAR, suffix)                                                                                \
            LOOP(plain, SOFTCAP, suffix)                                                                               \
            LOOP(plain, SIGN, suffix)                                                                                  \
            LOOP(plain, CEIL, suffix)                                                                                  \
            LOOP(plain, FLOOR, suffix)                                                                                 \
            LOOP(plain, ROUND, suffix)                                                                                 \
            LOOP(plain, CLIP, suffix)                                                                                  \
            LOOP(plain, ELU, suffix)                                                                                   \
            LOOP(plain, SELU, suffix)                                                                                  \
            LOOP(plain, CELU, suffix)                                                                                  \
            LOOP(plain, LEAKY_RELU, suffix)                                                                            \
            LOOP(plain, HARD_SIGMOID, suffix)                                                                          \
            LOOP(plain, THRESHOLDED_RELU, suffix)                                                                      \
            LOOP(plain, SHRINK, suffix)                                                                                \
            LOOP(plain, SWISH, suffix)                                                                                 \
        default:                                                                                                       \
            for (int64_t i = 0; i < n; i++) {                                                                          \
                x[i] = trm_unary_trigonometric_##suffix(p->op, x[i]);                                                  \
            }                                                                                                          \
            break;                                                                                                     \
        }                                                                                                              \
    }

LOOPS_OF(f32, float)
LOOPS_OF(f64, double)

static void floats(const trm_kernel_call *call, int64_t start, int64_t n)
{
    const trm_view *x = &call->inputs[0], *y = &call->outputs[0];
    const trm_unary_params *p = &call->layer->unary;
    float buffer[TRM_HOST_BLOCK];
    const float *from = trm_host_load(x->dtype, x->data, start, n, buffer);
    if (trm_unary_is_test(p->op)) {
        for (int64_t i = 0; i < n; i++) {
            ((bool *)y->data)[start + i] = trm_unary_test_f32(p->op, p->alpha, p->beta, from[i]);
        }
        return;
    }
    if (from != buffer) {
        memcpy(buffer, from, (size_t)n * sizeof(*from));
    }
    if (p->op == TRM_UNARY_ACTIVATION) {
        trm_host_activate(p->activation, buffer, n);
    } else {
        unary_f32(p, buffer, n);
    }
    trm_host_store(y->dtype, y->data, start, n, buffer);
}

static void doubles(const trm_kernel_call *call, int64_t start, int64_t n)
{
    const trm_unary_params *p = &call->layer->unary;
    const double *from = (const double *)call->inputs[0].data + start;
    if (trm_unary_is_test(p->op)) {
        for (int64_t i = 0; i < n; i++) {
            ((bool *)call->outputs[0].data)[start + i] =
                trm_unary_test_f64(p->op, (double)p->alpha, (double)p->beta, from[i]);
        }
        return;
    }
    double *to = (double *)call->outputs[0].data + start;
    memcpy(to, from, (size_t)n * sizeof(*from));
    if (p->op != TRM_UNARY_ACTIVATION) {
        unary_f64(p, to, n);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        to[i] = trm_activate_f64(p->activation, to[i]);
    }
}

static void integers(const trm_kernel_call *call, int64_t start, int64_t n)
{
    const trm_view *x = &call->inputs[0], *y = &call->outputs[0];
    int64_t v[TRM_HOST_BLOCK];
    trm_host_load_i64(x->dtype, x->data, start, n, v);
    for (int64_t i = 0; i < n; i++) {
        v[i] = trm_unary_i64(call->layer->unary.op, x->dtype == TRM_U64, x->dtype == TRM_BOOL, v[i]);
    }
    trm_host_store_i64(y->dtype, y->data, start, n, v);
}

static void unary_elements(const trm_kernel_call *call, int64_t begin, int64_t end)
{
    const trm_dtype type = call->inputs[0].dtype;
    for (int64_t i = begin; i < end; i += TRM_HOST_BLOCK) {
        const int64_t n = trm_host_min(end - i, TRM_HOST_BLOCK);
        if (trm_host_is_float(type)) {
            floats(call, i, n);
        } else if (type == TRM_F64) {
            doubles(call, i, n);
        } else {
            integers(call, i, n);
        }
    }
}

static void unary_range(void *user, int64_t begin, int64_t end)
{
    unary_elements(user, begin, end);
}

void trm_host_unary_block(const trm_kernel_call *call, int64_t n)
{
    unary_elements(call, 0, n);
}

trm_status trm_host_unary_run(const trm_kernel_call *call)
{
    trm_kernel_call copy = *call;
    trm_host_for(call, trm_dims_count(&call->outputs[0].dims), TRM_HOST_GRAIN / 4, unary_range, &copy);
    return TRM_OK;
}
