/* Short convolutions, of the gated delta rule and of selective scans: part of the channels of a stored one. */
#include "graph/import/hf/parts.h"

#include <stdio.h>

#include "base/error.h"

/* The stored tensor <name><kind> [all, rest...], of which the channels of `c` are seen as `dims`. */
static trm_status add_cut(trm_hf_decoder *d, const trm_hf_convolution *c, const char *kind, trm_hf_weight_use use,
                          trm_dims stored, trm_dims dims, trm_tensor **tensor)
{
    char text[32];
    trm_weight *taken, *cut = NULL, *seen = NULL;
    snprintf(text, sizeof(text), "%s%s", c->suffix, kind);
    TRM_TRY(trm_hf_checkpoint_take(d->checkpoint, trm_hf_name(d, c->name, kind), use, &stored, &taken));
    trm_status status = trm_weight_slice(taken, 0, c->first, dims.d[0], &cut);
    status = status == TRM_OK ? trm_weight_reshape(cut, &dims, &seen) : status;
    trm_weight_destroy(cut);
    trm_weight_destroy(taken);
    return status != TRM_OK ? status
                            : trm_network_add_weight(d->network, trm_hf_name(d, c->name, text), seen, d->dtype, tensor);
}

trm_status trm_hf_add_convolution(trm_hf_decoder *d, const trm_hf_convolution *c, int64_t layer, trm_tensor *x,
                                  trm_dims heads, trm_tensor **output)
{
    const int64_t channels = heads.d[1] * heads.d[2];
    const trm_layer_desc desc = {.kind = TRM_LAYER_SHORT_CONVOLUTION,
                                 .short_convolution = {.activation = TRM_ACTIVATION_SILU}};
    trm_tensor *inputs[TRM_SHORT_CONVOLUTION_INPUT_COUNT] = {
        [TRM_SHORT_CONVOLUTION_X] = x,
        [TRM_SHORT_CONVOLUTION_SEQUENCE_STARTS] = d->starts,
        [TRM_SHORT_CONVOLUTION_SEQUENCE_LENGTHS] = d->lengths,
        [TRM_SHORT_CONVOLUTION_SEQUENCE_SLOTS] = d->slots,
    };
    char text[64];
    TRM_TRY(add_cut(d, c, ".weight", TRM_HF_MATRIX, trm_dims3(c->all, 1, c->taps), trm_dims2(channels, c->taps),
                    &inputs[TRM_SHORT_CONVOLUTION_WEIGHT]));
    if (c->bias) {
        TRM_TRY(add_cut(d, c, ".bias", TRM_HF_BIAS, trm_dims1(c->all), trm_dims1(channels),
                        &inputs[TRM_SHORT_CONVOLUTION_BIAS]));
    }
    snprintf(text, sizeof(text), "layers.%lld%s_inputs", (long long)layer, c->suffix);
    TRM_TRY(trm_network_add_state(d->network, text, d->dtype, trm_dims3(-1, -1, channels),
                                  &inputs[TRM_SHORT_CONVOLUTION_CACHE]));
    TRM_TRY(trm_hf_add_layer(d, c->name, c->suffix, &desc, inputs, TRM_SHORT_CONVOLUTION_INPUT_COUNT, output));
    snprintf(text, sizeof(text), "%s.heads", c->suffix);
    return trm_hf_add_reshape(d, c->name, text, *output, heads, output);
}
