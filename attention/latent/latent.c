/* The description of a LATENT_ATTENTION call that every implementation starts from. */
#include <math.h>

#include "attention/attention_impl.h"
#include "kernels/kernel.h"

bool trm_latent_attention_describe(const trm_kernel_call *call, trm_layer_desc *desc, trm_kernel_call *attention,
                                   trm_latent_shape *shape)
{
    if (call->n_inputs != TRM_LATENT_ATTENTION_INPUT_COUNT || call->n_outputs != 1) {
        return false;
    }
    const trm_view *q = &call->inputs[TRM_LATENT_ATTENTION_Q], *latent = &call->inputs[TRM_LATENT_ATTENTION_LATENT];
    const trm_view *rope_key = &call->inputs[TRM_LATENT_ATTENTION_ROPE_KEY];
    const trm_view *weight = &call->inputs[TRM_LATENT_ATTENTION_WEIGHT];
    const trm_view *cache = &call->inputs[TRM_LATENT_ATTENTION_CACHE];
    if (q->dims.n != 3 || latent->dims.n != 2 || rope_key->dims.n != 3 || weight->dims.n != 3 || cache->dims.n != 3) {
        return false;
    }
    const int64_t tokens = q->dims.d[0], rotated = rope_key->dims.d[2], rank = latent->dims.d[1];
    const trm_latent_shape s = {.weight = *weight,
                                .heads = q->dims.d[1],
                                .plain = q->dims.d[2] - rotated,
                                .rotated = rotated,
                                .value_dim = call->outputs[0].dims.n == 3 ? call->outputs[0].dims.d[2] : 0,
                                .rank = rank};
    if (latent->dims.d[0] != tokens || rope_key->dims.d[0] != tokens || rope_key->dims.d[1] != 1 || s.plain < 0 ||
        s.value_dim < 1 || weight->dims.d[0] != s.heads || weight->dims.d[1] != s.plain + s.value_dim ||
        weight->dims.d[2] != rank || cache->dims.d[2] != rank + rotated) {
        return false;
    }
    const float scale = call->layer->latent_attention.scale;
    *desc = (trm_layer_desc){
        .kind = TRM_LAYER_ATTENTION,
        .attention = {.causal = TRM_CAUSAL_LOWER_RIGHT,
                      .scale = scale != 0.0f ? scale : (float)(1.0 / sqrt((double)(s.plain + rotated)))}};
    *attention = (trm_kernel_call){.layer = desc,
                                   .n_inputs = TRM_ATTENTION_VALUE_CACHE + 1,
                                   .n_outputs = 1,
                                   .stream = call->stream,
                                   .communicator = call->communicator,
                                   .batch_invariant = call->batch_invariant};
    const trm_dtype dtype = q->dtype;
    const trm_dims *blocks = &cache->dims;
    attention->inputs[TRM_ATTENTION_Q] = (trm_view){q->data, dtype, {3, {tokens, s.heads, rank + rotated}}};
    attention->inputs[TRM_ATTENTION_K] = (trm_view){latent->data, dtype, {3, {tokens, 1, rank + rotated}}};
    attention->inputs[TRM_ATTENTION_V] = (trm_view){rope_key->data, dtype, {3, {tokens, 1, rank}}};
    for (int32_t i = 0; i < 3; i++) {
        attention->inputs[TRM_ATTENTION_SEQUENCE_STARTS + i] = call->inputs[TRM_LATENT_ATTENTION_SEQUENCE_STARTS + i];
    }
    attention->inputs[TRM_ATTENTION_KEY_CACHE] =
        (trm_view){cache->data, cache->dtype, {4, {blocks->d[0], blocks->d[1], 1, rank + rotated}}};
    attention->inputs[TRM_ATTENTION_VALUE_CACHE] =
        (trm_view){cache->data, cache->dtype, {4, {blocks->d[0], blocks->d[1], 1, rank}}};
    attention->outputs[0] = (trm_view){call->outputs[0].data, dtype, {3, {tokens, s.heads, rank}}};
    *shape = s;
    if (!trm_attention_describe(attention, &shape->absorbed)) {
        return false;
    }
    for (int32_t i = 0; i < call->n_inputs; i++) {
        const bool index = i >= TRM_LATENT_ATTENTION_SEQUENCE_STARTS && i <= TRM_LATENT_ATTENTION_BLOCK_TABLE;
        if (call->inputs[i].dtype != (index ? TRM_I32 : dtype)) {
            return false;
        }
    }
    return call->outputs[0].dtype == dtype && call->outputs[0].dims.d[0] == tokens &&
           call->outputs[0].dims.d[1] == s.heads;
}
