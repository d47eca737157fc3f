/*
 * MATMUL_GLU as a product into the workspace and a GLU of it: the host's reference, and CUDA's way for many rows.
 */
#include "kernels/matmul_fused/matmul_glu.h"

#include "kernels/matmul_fused/pair.h"

static bool take_apart(const trm_kernel_call *call, trm_kernel_pair *pair)
{
    const trm_view *x = &call->inputs[0], *weight = &call->inputs[1];
    if (call->n_inputs != 2 || call->n_outputs != 1 || weight->dims.n != 2 || x->dims.n < 2) {
        return false;
    }
    trm_kernel_call *product = &pair->calls[0], *glu = &pair->calls[1];
    trm_view between = {call->workspace, x->dtype, x->dims};
    between.dims.d[between.dims.n - 1] = weight->dims.d[0];
    pair->descs[0] = (trm_layer_desc){.kind = TRM_LAYER_MATMUL, .matmul = {.transpose_b = true}};
    pair->descs[1] = (trm_layer_desc){.kind = TRM_LAYER_GLU, .glu = call->layer->glu};
    *product = *call;
    product->layer = &pair->descs[0];
    product->outputs[0] = between;
    *glu = *call;
    glu->layer = &pair->descs[1];
    glu->n_inputs = 1;
    glu->inputs[0] = between;
    glu->constants = 0;
    return true;
}

bool trm_matmul_glu_accepts(const trm_kernel_call *call, trm_backend backend)
{
    return trm_kernel_pair_accepts(call, backend, take_apart);
}

size_t trm_matmul_glu_workspace(const trm_kernel_call *call, trm_backend backend)
{
    return trm_kernel_pair_workspace(call, backend, take_apart);
}

trm_status trm_matmul_glu_run(const trm_kernel_call *call, trm_backend backend)
{
    return trm_kernel_pair_run(call, backend, take_apart);
}

trm_status trm_matmul_glu_tune(const trm_kernel_call *call, trm_backend backend, struct trm_tuner *tuner)
{
    return trm_kernel_pair_tune(call, backend, take_apart, tuner);
}
