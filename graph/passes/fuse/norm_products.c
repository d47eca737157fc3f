/*
 * Fuses norms into the products and routers that read them: a step of one token is a chain of kernels of a few
 * microseconds, so its time depends on their number. Fuses norms and GLUs into products that quantize them.
 */
#include "graph/network.h"

#include "graph/passes/pattern.h"

/* Whether a layer is x times a weight [N, K] transposed. */
static bool is_linear(const trm_layer *layer)
{
    return layer->desc.kind == TRM_LAYER_MATMUL && layer->desc.matmul.transpose_b && !layer->desc.matmul.transpose_a &&
           layer->inputs[1]->dims.n == 2 &&
           (layer->n_inputs < 3 || layer->inputs[2] == NULL || layer->inputs[2]->dims.n == 1);
}

/* The RMS norm that alone makes input 0 of a product for it, or NULL. */
static trm_layer *find_norm(const trm_analysis *analysis, const trm_layer *product)
{
    trm_layer *norm = trm_analysis_private_producer(analysis, product->inputs[0], TRM_LAYER_NORM);
    return norm != NULL && norm->desc.norm.op == TRM_NORM_RMS && norm->inputs[0]->dims.n >= 2 &&
                   product->inputs[0] == norm->outputs[0]
               ? norm
               : NULL;
}

/* An output of one layer becomes output `at`, the last, of another. */
static void take_output(trm_layer *layer, int32_t at, trm_tensor *output)
{
    layer->outputs[at] = output;
    layer->n_outputs = at + 1;
    output->producer = layer;
}

static void set_inputs(trm_layer *product, trm_tensor *const *inputs, int32_t n)
{
    product->n_inputs = 0;
    for (int32_t i = 0; i < TRM_MAX_LAYER_INPUTS; i++) {
        product->inputs[i] = i < n ? inputs[i] : NULL;
        product->n_inputs = product->inputs[i] != NULL ? i + 1 : product->n_inputs;
    }
}

/* A norm's sum becomes the product's. */
static void take_sum(trm_layer *product, trm_layer *norm)
{
    if (norm->desc.norm.residual) {
        take_output(product, 1, norm->outputs[1]);
        norm->n_outputs = 1; /* for dead code */
    }
}

/* norm(x) @ w^T, with a GLU or without -> one layer, which also makes the norm's sum. */
static bool fuse(trm_analysis *analysis, trm_layer *product)
{
    const bool gated = product->desc.kind == TRM_LAYER_MATMUL_GLU;
    if (!gated && !is_linear(product)) {
        return false;
    }
    trm_layer *norm = find_norm(analysis, product);
    if (norm == NULL) {
        return false;
    }
    const bool residual = norm->desc.norm.residual;
    const int32_t weight = residual ? 2 : 1;
    trm_tensor *const inputs[TRM_NORM_MATMUL_INPUT_COUNT] = {
        norm->inputs[0], product->inputs[1], !gated && product->n_inputs > 2 ? product->inputs[2] : NULL,
        norm->n_inputs > weight ? norm->inputs[weight] : NULL, residual ? norm->inputs[1] : NULL};
    const trm_norm_matmul_params params = {
        .residual = residual,
        .gated = gated,
        .eps = norm->desc.norm.eps,
        .weight_offset = norm->desc.norm.weight_offset,
        .activation = gated ? product->desc.glu.activation : product->desc.matmul.activation,
        .out = gated ? TRM_DTYPE_NONE : product->desc.matmul.out,
    };
    product->desc = (trm_layer_desc){.kind = TRM_LAYER_NORM_MATMUL, .norm_matmul = params};
    set_inputs(product, inputs, TRM_NORM_MATMUL_INPUT_COUNT);
    take_sum(product, norm);
    return true;
}

/* router(norm(x)) -> one layer, which also makes the norm and its sum. */
static bool fuse_router(const trm_analysis *analysis, trm_layer *router)
{
    trm_layer *norm = router->desc.kind == TRM_LAYER_ROUTER ? router->inputs[TRM_ROUTER_X]->producer : NULL;
    if (norm == NULL || norm->desc.kind != TRM_LAYER_NORM || norm->desc.norm.op != TRM_NORM_RMS ||
        analysis->touched[norm->index] || router->inputs[TRM_ROUTER_X] != norm->outputs[0]) {
        return false;
    }
    const bool residual = norm->desc.norm.residual;
    const int32_t weight = residual ? 2 : 1;
    trm_tensor *inputs[TRM_NORM_ROUTER_INPUT_COUNT] = {norm->inputs[0]};
    for (int32_t i = TRM_ROUTER_WEIGHT; i < router->n_inputs; i++) {
        inputs[i] = router->inputs[i];
    }
    inputs[TRM_NORM_ROUTER_NORM_WEIGHT] = norm->n_inputs > weight ? norm->inputs[weight] : NULL;
    inputs[TRM_NORM_ROUTER_RESIDUAL] = residual ? norm->inputs[1] : NULL;
    router->desc = (trm_layer_desc){
        .kind = TRM_LAYER_NORM_ROUTER,
        .norm_router = {router->desc.router, residual, norm->desc.norm.eps, norm->desc.norm.weight_offset}};
    set_inputs(router, inputs, TRM_NORM_ROUTER_INPUT_COUNT);
    for (int32_t i = 0; i < norm->n_outputs; i++) {
        take_output(router, TRM_NORM_ROUTER_NORM + i, norm->outputs[i]);
    }
    norm->n_outputs = 0; /* for dead code */
    return true;
}

/* A norm or a GLU and the product of it in e4m3 -> one layer. */
static bool fuse_quantized(const trm_analysis *analysis, trm_layer *product)
{
    const trm_dequant_matmul_params params = product->desc.dequant_matmul;
    if (product->desc.kind != TRM_LAYER_DEQUANT_MATMUL || params.x_quantization == TRM_X_AS_IS ||
        product->inputs[TRM_DEQUANT_MATMUL_WEIGHT]->dtype != TRM_F8E4M3) {
        return false;
    }
    trm_tensor *inputs[TRM_NORM_DEQUANT_MATMUL_INPUT_COUNT] = {NULL};
    for (int32_t i = 0; i < product->n_inputs; i++) {
        inputs[i] = product->inputs[i];
    }
    trm_layer *norm = find_norm(analysis, product);
    if (norm != NULL) {
        const bool residual = norm->desc.norm.residual;
        const int32_t weight = residual ? 2 : 1;
        inputs[TRM_DEQUANT_MATMUL_X] = norm->inputs[0];
        inputs[TRM_NORM_DEQUANT_MATMUL_NORM_WEIGHT] = norm->n_inputs > weight ? norm->inputs[weight] : NULL;
        inputs[TRM_NORM_DEQUANT_MATMUL_RESIDUAL] = residual ? norm->inputs[1] : NULL;
        product->desc = (trm_layer_desc){
            .kind = TRM_LAYER_NORM_DEQUANT_MATMUL,
            .norm_dequant_matmul = {params, residual, norm->desc.norm.eps, norm->desc.norm.weight_offset}};
        set_inputs(product, inputs, TRM_NORM_DEQUANT_MATMUL_INPUT_COUNT);
        take_sum(product, norm);
        return true;
    }
    const trm_layer *glu = trm_analysis_private_producer(analysis, product->inputs[0], TRM_LAYER_GLU);
    if (glu == NULL || glu->n_inputs != 1 || glu->inputs[0]->dims.n < 2) {
        return false;
    }
    inputs[TRM_DEQUANT_MATMUL_X] = glu->inputs[0];
    product->desc = (trm_layer_desc){.kind = TRM_LAYER_GLU_DEQUANT_MATMUL,
                                     .glu_dequant_matmul = {params, glu->desc.glu.activation}};
    set_inputs(product, inputs, TRM_DEQUANT_MATMUL_INPUT_COUNT);
    return true;
}

static bool fuse_any(trm_analysis *analysis, trm_layer *layer)
{
    return fuse(analysis, layer) || fuse_router(analysis, layer) || fuse_quantized(analysis, layer);
}

trm_status trm_pass_fuse_norm_products(trm_network *network, int32_t *changes)
{
    return trm_pattern_apply(network, fuse_any, changes);
}
