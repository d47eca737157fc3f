#include "kernels/matmul_fused/norm_matmul.h"

static const trm_kernel_table *const tables[] = {&trm_host_kernels, &trm_cuda_kernels};

static void add_norm(const trm_kernel_call *call, trm_kernel_parts *parts, trm_view between)
{
    const trm_norm_matmul_params *p = &call->layer->norm_matmul;
    trm_kernel_call *norm = trm_kernel_parts_add(parts, call, TRM_LAYER_NORM);
    parts->layers[0].norm =
        (trm_norm_params){.residual = p->residual, .eps = p->eps, .weight_offset = p->weight_offset};
    trm_kernel_parts_pass(norm, call, TRM_NORM_MATMUL_X);
    if (p->residual) {
        trm_kernel_parts_pass(norm, call, TRM_NORM_MATMUL_RESIDUAL);
    }
    if (trm_kernel_call_has(call, TRM_NORM_MATMUL_NORM_WEIGHT)) {
        trm_kernel_parts_pass(norm, call, TRM_NORM_MATMUL_NORM_WEIGHT);
    }
    norm->n_outputs = call->n_outputs;
    norm->outputs[0] = between;
    norm->outputs[1] = call->outputs[1];
    norm->unread = call->unread & ~1u; /* the sum keeps its place, behind what is normalized */
}

static void add_product(const trm_kernel_call *call, trm_kernel_parts *parts, trm_view between)
{
    const trm_norm_matmul_params *p = &call->layer->norm_matmul;
    trm_kernel_call *product = trm_kernel_parts_add(parts, call, p->gated ? TRM_LAYER_MATMUL_GLU : TRM_LAYER_MATMUL);
    if (p->gated) {
        parts->layers[1].glu = (trm_glu_params){p->activation};
    } else {
        parts->layers[1].matmul = (trm_matmul_params){.transpose_b = true, .activation = p->activation, .out = p->out};
    }
    product->inputs[product->n_inputs++] = between;
    trm_kernel_parts_pass(product, call, TRM_NORM_MATMUL_WEIGHT);
    if (trm_kernel_call_has(call, TRM_NORM_MATMUL_BIAS)) {
        trm_kernel_parts_pass(product, call, TRM_NORM_MATMUL_BIAS);
    }
    product->outputs[0] = call->outputs[0];
}

bool trm_norm_matmul_parts(const trm_kernel_call *call, trm_kernel_parts *parts)
{
    const trm_view *x = &call->inputs[TRM_NORM_MATMUL_X];
    if (call->n_inputs < 2 || call->inputs[TRM_NORM_MATMUL_WEIGHT].dims.n != 2 || x->dims.n < 2 ||
        call->n_outputs != (call->layer->norm_matmul.residual ? 2 : 1)) {
        return false;
    }
    const trm_view between = {call->workspace, x->dtype, x->dims};
    parts->tables = tables;
    parts->n_tables = 2;
    parts->between = trm_kernel_parts_room(&between);
    add_norm(call, parts, between);
    add_product(call, parts, between);
    return true;
}
