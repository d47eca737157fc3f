/*
 * MATMUL_GLU as a product into the workspace and a GLU of it: the host's reference, and CUDA's way for many rows.
 */
#include "kernels/matmul_glu.h"

#include "base/error.h"

#define ALIGNMENT ((size_t)256)

typedef struct parts {
    trm_layer_desc product_desc, glu_desc;
    trm_kernel_call product, glu;
    const trm_kernel *product_kernel, *glu_kernel;
    size_t room;              /* of the product, at the beginning of the workspace */
    size_t product_workspace; /* behind it; GLUs need none */
} parts;

static bool take_apart(const trm_kernel_call *call, trm_backend backend, parts *made)
{
    static const trm_kernel_table *const tables[] = {&trm_host_kernels, &trm_cuda_kernels};
    const trm_view *x = &call->inputs[0], *weight = &call->inputs[1];
    *made = (parts){0};
    if (call->n_inputs != 2 || call->n_outputs != 1 || weight->dims.n != 2 || x->dims.n < 2) {
        return false;
    }
    made->product_desc = (trm_layer_desc){.kind = TRM_LAYER_MATMUL, .matmul = {.transpose_b = true}};
    made->glu_desc = (trm_layer_desc){.kind = TRM_LAYER_GLU, .glu = call->layer->glu};
    trm_view between = {call->workspace, x->dtype, x->dims};
    between.dims.d[between.dims.n - 1] = weight->dims.d[0];
    made->product = *call;
    made->product.layer = &made->product_desc;
    made->product.outputs[0] = between;
    made->glu = *call;
    made->glu.layer = &made->glu_desc;
    made->glu.n_inputs = 1;
    made->glu.inputs[0] = between;
    made->glu.constants = 0;
    made->room = (size_t)trm_dims_count(&between.dims) * trm_dtype_size(between.dtype);
    made->room = (made->room + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    made->product_kernel = trm_kernel_find(tables, 2, backend, &made->product);
    made->glu_kernel = trm_kernel_find(tables, 2, backend, &made->glu);
    if (made->product_kernel == NULL || made->glu_kernel == NULL || made->glu_kernel->workspace != NULL) {
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

bool trm_matmul_glu_accepts(const trm_kernel_call *call, trm_backend backend)
{
    parts made;
    return take_apart(call, backend, &made);
}

size_t trm_matmul_glu_workspace(const trm_kernel_call *call, trm_backend backend)
{
    parts made;
    return take_apart(call, backend, &made) ? made.room + made.product_workspace : 0;
}

static trm_status take_apart_to_run(const trm_kernel_call *call, trm_backend backend, parts *made)
{
    if (!take_apart(call, backend, made) || made->room + made->product_workspace > call->workspace_size) {
        TRM_FAIL(TRM_ERROR_INTERNAL, "a matmul_glu call does not fit the layer it was accepted for");
    }
    return TRM_OK;
}

trm_status trm_matmul_glu_run(const trm_kernel_call *call, trm_backend backend)
{
    parts made;
    TRM_TRY(take_apart_to_run(call, backend, &made));
    TRM_TRY(made.product_kernel->run(&made.product));
    return made.glu_kernel->run(&made.glu);
}

trm_status trm_matmul_glu_tune(const trm_kernel_call *call, trm_backend backend, struct trm_tuner *tuner)
{
    parts made;
    TRM_TRY(take_apart_to_run(call, backend, &made));
    return made.product_kernel->tune != NULL ? made.product_kernel->tune(&made.product, tuner) : TRM_OK;
}
