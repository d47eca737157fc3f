#include "kernels/matmul_fused/dequant.h"

static const trm_kernel_table *const tables[] = {&trm_host_kernels, &trm_cuda_kernels};

/* The second part: the product of what the first makes. */
static void add_product(const trm_kernel_call *call, const trm_dequant_matmul_params *params, const trm_view *between,
                        trm_kernel_parts *parts)
{
    trm_kernel_call *product = trm_kernel_parts_add(parts, call, TRM_LAYER_DEQUANT_MATMUL);
    const int32_t most = TRM_DEQUANT_MATMUL_INPUT_COUNT, n = call->n_inputs < most ? call->n_inputs : most;
    parts->layers[1].dequant_matmul = *params;
    product->inputs[product->n_inputs++] = *between;
    while (product->n_inputs < n) {
        trm_kernel_parts_pass(product, call, product->n_inputs);
    }
    while (product->n_inputs > 0 && !trm_kernel_call_has(product, product->n_inputs - 1)) {
        product->n_inputs--;
    }
    product->outputs[0] = call->outputs[0];
}

static void begin(trm_kernel_parts *parts, const trm_view *between)
{
    parts->tables = tables;
    parts->n_tables = 2;
    parts->between = trm_kernel_parts_room(between);
}

bool trm_norm_dequant_matmul_parts(const trm_kernel_call *call, trm_kernel_parts *parts)
{
    const trm_norm_dequant_matmul_params *p = &call->layer->norm_dequant_matmul;
    const trm_view *x = &call->inputs[TRM_DEQUANT_MATMUL_X];
    if (call->n_inputs < 3 || x->dims.n < 2 || call->n_outputs != (p->residual ? 2 : 1)) {
        return false;
    }
    const trm_view between = {call->workspace, x->dtype, x->dims};
    begin(parts, &between);
    trm_kernel_call *norm = trm_kernel_parts_add(parts, call, TRM_LAYER_NORM);
    parts->layers[0].norm =
        (trm_norm_params){.residual = p->residual, .eps = p->eps, .weight_offset = p->weight_offset};
    trm_kernel_parts_pass(norm, call, TRM_DEQUANT_MATMUL_X);
    if (p->residual) {
        trm_kernel_parts_pass(norm, call, TRM_NORM_DEQUANT_MATMUL_RESIDUAL);
    }
    if (trm_kernel_call_has(call, TRM_NORM_DEQUANT_MATMUL_NORM_WEIGHT)) {
        trm_kernel_parts_pass(norm, call, TRM_NORM_DEQUANT_MATMUL_NORM_WEIGHT);
    }
    norm->n_outputs = call->n_outputs;
    norm->outputs[0] = between;
    norm->outputs[1] = call->outputs[1];
    norm->unread = call->unread & ~1u; /* the sum keeps its place, behind what is normalized */
    add_product(call, &p->product, &between, parts);
    return true;
}

bool trm_glu_dequant_matmul_parts(const trm_kernel_call *call, trm_kernel_parts *parts)
{
    const trm_view *x = &call->inputs[TRM_DEQUANT_MATMUL_X];
    const int32_t last = x->dims.n - 1;
    if (call->n_inputs < 3 || last < 1 || x->dims.d[last] % 2 != 0 || call->n_outputs != 1) {
        return false;
    }
    trm_view between = {call->workspace, x->dtype, x->dims};
    between.dims.d[last] /= 2;
    begin(parts, &between);
    trm_kernel_call *glu = trm_kernel_parts_add(parts, call, TRM_LAYER_GLU);
    parts->layers[0].glu = (trm_glu_params){call->layer->glu_dequant_matmul.activation};
    trm_kernel_parts_pass(glu, call, TRM_DEQUANT_MATMUL_X);
    glu->outputs[0] = between;
    add_product(call, &call->layer->glu_dequant_matmul.product, &between, parts);
    return true;
}
