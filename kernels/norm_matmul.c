/*
 * NORM_MATMUL as a norm into the workspace and a product, with its GLU or without: the host's reference, and CUDA's way
 * for many rows.
 */
#include "kernels/norm_matmul.h"

#include "base/error.h"

#define ALIGNMENT ((size_t)256)

typedef struct parts {
    trm_layer_desc norm_desc, product_desc;
    trm_kernel_call norm, product;
    const trm_kernel *norm_kernel, *product_kernel;
    size_t room;              /* of what is normalised, at the beginning of the workspace */
    size_t product_workspace; /* behind it; norms need none */
} parts;

static bool has(const trm_kernel_call *call, int32_t input)
{
    return input < call->n_inputs && call->inputs[input].dtype != TRM_DTYPE_NONE;
}

static void add_input(trm_kernel_call *part, const trm_kernel_call *call, int32_t input)
{
    part->constants |= (call->constants >> input & 1) << part->n_inputs;
    part->inputs[part->n_inputs++] = call->inputs[input];
}

static void make_norm(const trm_kernel_call *call, parts *made, trm_view between)
{
    const trm_norm_matmul_params *p = &call->layer->norm_matmul;
    trm_kernel_call *norm = &made->norm;
    made->norm_desc = (trm_layer_desc){
        .kind = TRM_LAYER_NORM,
        .norm = {.residual = p->residual, .eps = p->eps, .weight_offset = p->weight_offset},
    };
    *norm = *call;
    norm->layer = &made->norm_desc;
    norm->n_inputs = 0;
    norm->constants = 0;
    add_input(norm, call, TRM_NORM_MATMUL_X);
    if (p->residual) {
        add_input(norm, call, TRM_NORM_MATMUL_RESIDUAL);
    }
    if (has(call, TRM_NORM_MATMUL_NORM_WEIGHT)) {
        add_input(norm, call, TRM_NORM_MATMUL_NORM_WEIGHT);
    }
    norm->outputs[0] = between;
    norm->unread &= ~1u; /* the sum keeps its place, behind what is normalised */
}

static void make_product(const trm_kernel_call *call, parts *made, trm_view between)
{
    const trm_norm_matmul_params *p = &call->layer->norm_matmul;
    trm_kernel_call *product = &made->product;
    if (p->gated) {
        made->product_desc = (trm_layer_desc){.kind = TRM_LAYER_MATMUL_GLU, .glu = {p->activation}};
    } else {
        made->product_desc = (trm_layer_desc){
            .kind = TRM_LAYER_MATMUL,
            .matmul = {.transpose_b = true, .activation = p->activation, .out = p->out},
        };
    }
    *product = *call;
    product->layer = &made->product_desc;
    product->n_inputs = 1;
    product->n_outputs = 1;
    product->constants = product->unread = 0;
    product->inputs[0] = between;
    add_input(product, call, TRM_NORM_MATMUL_WEIGHT);
    if (has(call, TRM_NORM_MATMUL_BIAS)) {
        add_input(product, call, TRM_NORM_MATMUL_BIAS);
    }
}

static bool take_apart(const trm_kernel_call *call, trm_backend backend, parts *made)
{
    static const trm_kernel_table *const tables[] = {&trm_host_kernels, &trm_cuda_kernels};
    const trm_view *x = &call->inputs[TRM_NORM_MATMUL_X];
    *made = (parts){0};
    if (call->n_inputs < 2 || call->inputs[TRM_NORM_MATMUL_WEIGHT].dims.n != 2 || x->dims.n < 2 ||
        call->n_outputs != (call->layer->norm_matmul.residual ? 2 : 1)) {
        return false;
    }
    const trm_view between = {call->workspace, x->dtype, x->dims};
    make_norm(call, made, between);
    make_product(call, made, between);
    made->room = (size_t)trm_dims_count(&x->dims) * trm_dtype_size(x->dtype);
    made->room = (made->room + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    made->norm_kernel = trm_kernel_find(tables, 2, backend, &made->norm);
    made->product_kernel = trm_kernel_find(tables, 2, backend, &made->product);
    if (made->norm_kernel == NULL || made->product_kernel == NULL || made->norm_kernel->workspace != NULL) {
        return false;
    }
    made->product_workspace =
        made->product_kernel->workspace != NULL ? made->product_kernel->workspace(&made->product) : 0;
    if (call->workspace != NULL) {
        made->product.workspace = (char *)call->workspace + made->room;
        made->product.workspace_size = call->workspace_size > made->room ? call->workspace_size - made->room : 0;
    }
    return true;
}

bool trm_norm_matmul_accepts(const trm_kernel_call *call, trm_backend backend)
{
    parts made;
    return take_apart(call, backend, &made);
}

size_t trm_norm_matmul_workspace(const trm_kernel_call *call, trm_backend backend)
{
    parts made;
    return take_apart(call, backend, &made) ? made.room + made.product_workspace : 0;
}

static trm_status take_apart_to_run(const trm_kernel_call *call, trm_backend backend, parts *made)
{
    if (!take_apart(call, backend, made) || made->room + made->product_workspace > call->workspace_size) {
        TRM_FAIL(TRM_ERROR_INTERNAL, "a norm_matmul call does not fit the layer it was accepted for");
    }
    return TRM_OK;
}

trm_status trm_norm_matmul_run(const trm_kernel_call *call, trm_backend backend)
{
    parts made;
    TRM_TRY(take_apart_to_run(call, backend, &made));
    TRM_TRY(made.norm_kernel->run(&made.norm));
    return made.product_kernel->run(&made.product);
}

trm_status trm_norm_matmul_tune(const trm_kernel_call *call, trm_backend backend, struct trm_tuner *tuner)
{
    parts made;
    TRM_TRY(take_apart_to_run(call, backend, &made));
    return made.product_kernel->tune != NULL ? made.product_kernel->tune(&made.product, tuner) : TRM_OK;
}
