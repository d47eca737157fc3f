/* CUMULATIVE: one line along the axis, from one end to the other. */
#ifndef TRM_KERNELS_REDUCE_CUMULATIVE_H
#define TRM_KERNELS_REDUCE_CUMULATIVE_H

#include "kernels/element.h"
#include "kernels/kernel.h"

typedef struct trm_cumulative_args {
    int64_t lines, n,
        inner; /* lines of n elements, `inner` apart; line l begins at l / inner * inner * n + l % inner */
    trm_cumulative_op op;
    trm_dtype dtype;
    bool exclusive, reverse;
    const void *x;
    void *y;
} trm_cumulative_args;

/* False if the call is not one these kernels know. */
static inline bool trm_cumulative_args_of(const trm_kernel_call *call, trm_cumulative_args *args)
{
    const trm_cumulative_params *p = &call->layer->cumulative;
    const trm_view *x = &call->inputs[0], *y = &call->outputs[0];
    const int32_t axis = trm_element_axis(p->axis, x->dims.n);
    if (call->n_inputs != 1 || call->n_outputs != 1 || axis < 0 || y->dtype != x->dtype ||
        !trm_element_same_dims(&x->dims, &y->dims) ||
        !(trm_element_is_float(x->dtype) || trm_element_is_integer(x->dtype))) {
        return false;
    }
    args->n = x->dims.d[axis];
    args->inner = trm_element_span(&x->dims, axis + 1, x->dims.n);
    args->lines = args->n == 0 ? 0 : trm_element_span(&x->dims, 0, axis) * args->inner;
    args->op = p->op;
    args->dtype = x->dtype;
    args->exclusive = p->exclusive;
    args->reverse = p->reverse;
    args->x = x->data;
    args->y = y->data;
    return true;
}

/* Sums and products are kept in f32 for f16, bf16 and f32, f64 for f64, 64 bits for integers. */
#define TRM_CUMULATIVE_LINE(suffix, type, load, store)                                                                 \
    TRM_ELEMENT void trm_cumulative_line_##suffix(const trm_cumulative_args *args, int64_t at, int64_t step)           \
    {                                                                                                                  \
        type sum = args->op == TRM_CUMULATIVE_PROD ? (type)1 : (type)0;                                                \
        for (int64_t i = 0; i < args->n; i++) {                                                                        \
            const type before = sum, value = (type)load(args->dtype, args->x, at);                                     \
            sum = args->op == TRM_CUMULATIVE_PROD ? sum * value : sum + value;                                         \
            store(args->dtype, args->y, at, args->exclusive ? before : sum);                                           \
            at += step;                                                                                                \
        }                                                                                                              \
    }
#define TRM_CUMULATIVE_STORE_U64(dtype, data, i, value) trm_element_store_i64(dtype, data, i, (int64_t)(value))
TRM_CUMULATIVE_LINE(f32, float, trm_element_load_f32, trm_element_store_f32)
TRM_CUMULATIVE_LINE(f64, double, trm_element_load_f64, trm_element_store_f64)
TRM_CUMULATIVE_LINE(u64, uint64_t, trm_element_load_i64, TRM_CUMULATIVE_STORE_U64)

TRM_ELEMENT void trm_element_cumulative(const trm_cumulative_args *args, int64_t line)
{
    const int64_t outer = line / args->inner;
    int64_t at = outer * args->inner * args->n + (line - outer * args->inner), step = args->inner;
    if (args->reverse) {
        at += (args->n - 1) * step;
        step = -step;
    }
    if (args->dtype == TRM_F64) {
        trm_cumulative_line_f64(args, at, step);
    } else if (trm_element_is_float(args->dtype)) {
        trm_cumulative_line_f32(args, at, step);
    } else {
        trm_cumulative_line_u64(args, at, step);
    }
}

#endif
