#include "kernels/matmul_fused/matmul_glu.h"

static const trm_kernel_table *const tables[] = {&trm_host_kernels, &trm_cuda_kernels};

bool trm_matmul_glu_parts(const trm_kernel_call *call, trm_kernel_parts *parts)
{
    const trm_view *x = &call->inputs[0], *weight = &call->inputs[1];
    if (call->n_inputs != 2 || call->n_outputs != 1 || weight->dims.n != 2 || x->dims.n < 2) {
        return false;
    }
    trm_view between = {call->workspace, x->dtype, x->dims};
    between.dims.d[between.dims.n - 1] = weight->dims.d[0];
    parts->tables = tables;
    parts->n_tables = 2;
    parts->between = trm_kernel_parts_room(&between);
    trm_kernel_call *product = trm_kernel_parts_add(parts, call, TRM_LAYER_MATMUL);
    parts->layers[0].matmul = (trm_matmul_params){.transpose_b = true};
    trm_kernel_parts_pass(product, call, 0);
    trm_kernel_parts_pass(product, call, 1);
    product->outputs[0] = between;
    trm_kernel_call *glu = trm_kernel_parts_add(parts, call, TRM_LAYER_GLU);
    parts->layers[1].glu = call->layer->glu;
    glu->inputs[glu->n_inputs++] = between;
    glu->outputs[0] = call->outputs[0];
    return true;
}
