/*
 * FUSED_ELEMENTWISE: steps over blocks that stay in cache, by the loops of the layers that they stand for. A value that
 * repeats along a block is computed once.
 */
#include <string.h>

#include "kernels/fused/fused.h"
#include "kernels/host/host.h"

#define BLOCK 128

/* All inputs laid over the output: neighbouring axes joined where every input allows it. */
typedef struct fused {
    const trm_kernel_call *call;
    trm_layer_desc layers[TRM_MAX_FUSED_STEPS];
    int32_t n;
    int64_t dims[TRM_MAX_DIMS];
    int64_t strides[TRM_MAX_LAYER_INPUTS][TRM_MAX_DIMS]; /* in elements, the last 0 or 1 */
} fused;

/* Elements of one block. */
typedef struct value {
    void *data;
    trm_dtype type;
    bool repeats; /* one element stands for all */
} value;

static bool lay_out(const trm_kernel_call *call, fused *f)
{
    const trm_dims *out = &call->outputs[0].dims;
    int64_t strides[TRM_MAX_LAYER_INPUTS][TRM_MAX_DIMS];
    for (int32_t k = 0; k < call->n_inputs; k++) {
        const trm_dims *in = &call->inputs[k].dims;
        if (in->n > out->n) {
            return false;
        }
        for (int32_t i = 0; i < out->n; i++) {
            const int32_t own = i - (out->n - in->n);
            strides[k][i] = own >= 0 && in->d[own] != 1 ? trm_host_span(in, own + 1, in->n) : 0;
            if (own >= 0 && in->d[own] != 1 && in->d[own] != out->d[i]) {
                return false;
            }
        }
    }
    f->call = call;
    f->n = 0;
    for (int32_t i = 0; i < out->n; i++) {
        int32_t last = f->n - 1;
        bool joins = last >= 0;
        if (out->d[i] == 1) {
            continue;
        }
        for (int32_t k = 0; joins && k < call->n_inputs; k++) {
            joins = f->strides[k][last] == strides[k][i] * out->d[i];
        }
        if (!joins) {
            f->dims[++last] = 1;
            f->n++;
        }
        f->dims[last] *= out->d[i];
        for (int32_t k = 0; k < call->n_inputs; k++) {
            f->strides[k][last] = strides[k][i];
        }
    }
    if (f->n == 0) {
        f->n = 1;
        f->dims[0] = 1;
        for (int32_t k = 0; k < call->n_inputs; k++) {
            f->strides[k][0] = 0;
        }
    }
    return true;
}

bool trm_host_fused_accepts(const trm_kernel_call *call)
{
    const trm_fused_elementwise_params *p = &call->layer->fused_elementwise;
    fused f;
    if (p->n_steps < 1 || p->n_steps > TRM_MAX_FUSED_STEPS || call->n_outputs != p->n_outputs || !lay_out(call, &f)) {
        return false;
    }
    for (int32_t i = 0; i < p->n_outputs; i++) {
        if (call->outputs[i].dtype != p->steps[p->outputs[i]].type ||
            !trm_element_same_dims(&call->outputs[i].dims, &call->outputs[0].dims)) {
            return false;
        }
    }
    return true;
}

static void put_number(trm_dtype type, float number, void *data)
{
    if (trm_host_is_float(type)) {
        trm_host_store(type, data, 0, 1, &number);
    } else if (type == TRM_F64) {
        *(double *)data = (double)number;
    } else {
        const int64_t whole = (int64_t)number;
        trm_host_store_i64(type, data, 0, 1, &whole);
    }
}

static trm_view view_of(const value *v, int64_t n)
{
    return (trm_view){v->data, v->type, {1, {v->repeats ? 1 : n}}};
}

static void select_block(const value *condition, const value *a, const value *b, void *to, int64_t n)
{
    const size_t size = trm_dtype_size(a->type);
    for (int64_t i = 0; i < n; i++) {
        const bool first = ((const uint8_t *)condition->data)[condition->repeats ? 0 : i] != 0;
        const value *from = first ? a : b;
        memcpy((char *)to + (size_t)i * size, (const char *)from->data + (from->repeats ? 0 : (size_t)i * size), size);
    }
}

/* One step over n elements, into to->data. */
static void run_step(const fused *f, int32_t step, const value *const *operands, int32_t n_operands, value *to,
                     int64_t n)
{
    trm_kernel_call call;
    call.layer = &f->layers[step];
    call.n_inputs = n_operands;
    call.n_outputs = 1;
    to->repeats = true;
    for (int32_t k = 0; k < n_operands; k++) {
        to->repeats = to->repeats && operands[k]->repeats;
        call.inputs[k] = view_of(operands[k], n);
    }
    call.outputs[0] = view_of(to, n);
    n = to->repeats ? 1 : n;
    switch (call.layer->kind) {
    case TRM_LAYER_ELEMENTWISE:
        trm_host_elementwise_block(&call);
        break;
    case TRM_LAYER_UNARY:
        trm_host_unary_block(&call, n);
        break;
    case TRM_LAYER_CAST:
        trm_host_cast_block(&call, n);
        break;
    case TRM_LAYER_SELECT:
        select_block(operands[0], operands[1], operands[2], to->data, n);
        break;
    default: /* VALUE */
        put_number(to->type, f->call->layer->fused_elementwise.steps[step].alpha, to->data);
        break;
    }
}

/* n elements of a value, which may be one that repeats, to element `at` of an output. */
static void store_block(const value *v, const trm_view *output, int64_t at, int64_t n)
{
    const size_t size = trm_dtype_size(v->type);
    char *to = (char *)output->data + (size_t)at * size;
    for (int64_t i = 0; v->repeats && i < n; i++) {
        memcpy(to + (size_t)i * size, v->data, size);
    }
    if (!v->repeats) {
        memcpy(to, v->data, (size_t)n * size);
    }
}

/* n elements from element `at` of the output on, where the inputs are at `offsets`. */
static void run_block(const fused *f, const int64_t *offsets, int64_t at, int64_t n, void *scratch)
{
    const trm_fused_elementwise_params *p = &f->call->layer->fused_elementwise;
    value inputs[TRM_MAX_LAYER_INPUTS], results[TRM_MAX_FUSED_STEPS];
    for (int32_t k = 0; k < f->call->n_inputs; k++) {
        const trm_view *in = &f->call->inputs[k];
        inputs[k].data = (char *)in->data + (size_t)offsets[k] * trm_dtype_size(in->dtype);
        inputs[k].type = in->dtype;
        inputs[k].repeats = f->strides[k][f->n - 1] == 0;
    }
    for (int32_t i = 0; i < p->n_steps; i++) {
        const int32_t read[3] = {p->steps[i].a, p->steps[i].b, p->steps[i].c},
                      n_read = trm_fused_operands(p->steps[i].op);
        const value *operands[3];
        for (int32_t k = 0; k < n_read; k++) {
            operands[k] = read[k] < TRM_MAX_LAYER_INPUTS ? &inputs[read[k]] : &results[read[k] - TRM_MAX_LAYER_INPUTS];
        }
        results[i].data = (char *)scratch + (size_t)i * BLOCK * sizeof(double);
        results[i].type = p->steps[i].type;
        run_step(f, i, operands, n_read, &results[i], n);
    }
    for (int32_t i = 0; i < p->n_outputs; i++) {
        store_block(&results[p->outputs[i]], &f->call->outputs[i], at, n);
    }
}

/* Elements begin .. end - 1 of the output, run by run along the innermost axis. */
static void fused_range(void *user, int64_t begin, int64_t end)
{
    const fused *f = user;
    const int32_t last = f->n - 1;
    const int64_t width = f->dims[last];
    double scratch[TRM_MAX_FUSED_STEPS * BLOCK];
    int64_t offsets[TRM_MAX_LAYER_INPUTS];
    for (int64_t at = begin; at < end;) {
        int64_t rest = at / width;
        const int64_t inner = at % width;
        for (int32_t k = 0; k < f->call->n_inputs; k++) {
            offsets[k] = inner * f->strides[k][last];
        }
        for (int32_t axis = last - 1; axis >= 0; axis--) {
            for (int32_t k = 0; k < f->call->n_inputs; k++) {
                offsets[k] += rest % f->dims[axis] * f->strides[k][axis];
            }
            rest /= f->dims[axis];
        }
        const int64_t run = trm_host_min(width - inner, end - at), n = trm_host_min(run, BLOCK);
        run_block(f, offsets, at, n, scratch);
        at += n;
    }
}

trm_status trm_host_fused_run(const trm_kernel_call *call)
{
    fused f;
    const trm_fused_elementwise_params *p = &call->layer->fused_elementwise;
    const int64_t count = trm_dims_count(&call->outputs[0].dims);
    if (count > 0 && lay_out(call, &f)) {
        for (int32_t i = 0; i < p->n_steps; i++) {
            f.layers[i] = trm_fused_step_layer(&p->steps[i]);
        }
        trm_host_for(call, count, TRM_HOST_GRAIN / 4, fused_range, &f);
    }
    return TRM_OK;
}
