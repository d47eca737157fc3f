/* ATTENTION_QUANTIZE as an ATTENTION and a QUANTIZE. */
#include "attention/attention_impl.h"
#include "kernels/parts.h"

bool trm_attention_quantize_describe(const trm_kernel_call *call, trm_kernel_call *attention,
                                     trm_attention_shape *shape)
{
    if (call->n_inputs != TRM_ATTENTION_QUANTIZE_INPUT_COUNT || call->n_outputs != 1 ||
        call->outputs[0].dtype != TRM_I8 || trm_kernel_call_has(call, TRM_ATTENTION_KEY_CACHE)) {
        return false;
    }
    *attention = *call; /* its layer's parameters are those of ATTENTION */
    attention->outputs[0].dtype = call->inputs[TRM_ATTENTION_Q].dtype;
    attention->outputs[0].data = NULL;
    attention->n_inputs = TRM_ATTENTION_INPUT_COUNT;
    while (attention->n_inputs > 0 && !trm_kernel_call_has(attention, attention->n_inputs - 1)) {
        attention->n_inputs--;
    }
    return trm_attention_describe(attention, shape);
}

bool trm_attention_quantize_parts(const trm_kernel_call *call, trm_kernel_parts *parts)
{
    static const trm_kernel_table *const tables[] = {&trm_host_kernels, &trm_cuda_kernels, &trm_attention_kernels};
    trm_attention_shape shape;
    trm_kernel_call attention;
    if (!trm_attention_quantize_describe(call, &attention, &shape)) {
        return false;
    }
    parts->tables = tables;
    parts->n_tables = 3;
    attention.outputs[0].data = call->workspace;
    parts->between = trm_kernel_parts_room(&attention.outputs[0]);
    trm_kernel_call *part = trm_kernel_parts_add(parts, call, TRM_LAYER_ATTENTION);
    parts->layers[0].attention = call->layer->attention;
    attention.layer = part->layer;
    *part = attention;
    trm_kernel_call *quantize = trm_kernel_parts_add(parts, call, TRM_LAYER_QUANTIZE);
    parts->layers[1].quantize = (trm_quantize_params){.to = TRM_I8};
    quantize->inputs[quantize->n_inputs++] = attention.outputs[0];
    trm_kernel_parts_pass(quantize, call, TRM_ATTENTION_QUANTIZE_SCALE);
    quantize->outputs[0] = call->outputs[0];
    return true;
}
