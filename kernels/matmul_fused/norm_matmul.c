/*
 * NORM_MATMUL as a norm into the workspace and a product, with its GLU or without: the host's reference, and CUDA's way
 * for many rows.
 */
#include "kernels/matmul_fused/norm_matmul.h"

#include "kernels/matmul_fused/pair.h"

static bool has(const trm_kernel_call *call, int32_t input)
{
    return input < call->n_inputs && call->inputs[input].dtype != TRM_DTYPE_NONE;
}

static void add_input(trm_kernel_call *part, const trm_kernel_call *call, int32_t input)
{
    part->constants |= (call->constants >> input & 1) << part->n_inputs;
    part->inputs[part->n_inputs++] = call->inputs[input];
}

static void make_norm(const trm_kernel_call *call, trm_kernel_pair *pair, trm_view between)
{
    const trm_norm_matmul_params *p = &call->layer->norm_matmul;
    trm_kernel_call *norm = &pair->calls[0];
    pair->descs[0] = (trm_layer_desc){
        .kind = TRM_LAYER_NORM,
        .norm = {.residual = p->residual, .eps = p->eps, .weight_offset = p->weight_offset},
    };
    *norm = *call;
    norm->layer = &pair->descs[0];
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
    norm->unread &= ~1u; /* the sum keeps its place, behind what is normalized */
}

static void make_product(const trm_kernel_call *call, trm_kernel_pair *pair, trm_view between)
{
    const trm_norm_matmul_params *p = &call->layer->norm_matmul;
    trm_kernel_call *product = &pair->calls[1];
    if (p->gated) {
        pair->descs[1] = (trm_layer_desc){.kind = TRM_LAYER_MATMUL_GLU, .glu = {p->activation}};
    } else {
        pair->descs[1] = (trm_layer_desc){
            .kind = TRM_LAYER_MATMUL,
            .matmul = {.transpose_b = true, .activation = p->activation, .out = p->out},
        };
    }
    *product = *call;
    product->layer = &pair->descs[1];
    product->n_inputs = 1;
    product->n_outputs = 1;
    product->constants = product->unread = 0;
    product->inputs[0] = between;
    add_input(product, call, TRM_NORM_MATMUL_WEIGHT);
    if (has(call, TRM_NORM_MATMUL_BIAS)) {
        add_input(product, call, TRM_NORM_MATMUL_BIAS);
    }
}

static bool take_apart(const trm_kernel_call *call, trm_kernel_pair *pair)
{
    const trm_view *x = &call->inputs[TRM_NORM_MATMUL_X];
    if (call->n_inputs < 2 || call->inputs[TRM_NORM_MATMUL_WEIGHT].dims.n != 2 || x->dims.n < 2 ||
        call->n_outputs != (call->layer->norm_matmul.residual ? 2 : 1)) {
        return false;
    }
    const trm_view between = {call->workspace, x->dtype, x->dims};
    make_norm(call, pair, between);
    make_product(call, pair, between);
    return true;
}

bool trm_norm_matmul_accepts(const trm_kernel_call *call, trm_backend backend)
{
    return trm_kernel_pair_accepts(call, backend, take_apart);
}

size_t trm_norm_matmul_workspace(const trm_kernel_call *call, trm_backend backend)
{
    return trm_kernel_pair_workspace(call, backend, take_apart);
}

trm_status trm_norm_matmul_run(const trm_kernel_call *call, trm_backend backend)
{
    return trm_kernel_pair_run(call, backend, take_apart);
}

trm_status trm_norm_matmul_tune(const trm_kernel_call *call, trm_backend backend, struct trm_tuner *tuner)
{
    return trm_kernel_pair_tune(call, backend, take_apart, tuner);
}
