/* The MLP of a block. */
#include "graph/import/hf/parts.h"

#include "base/error.h"

static trm_status add_activation(trm_hf_decoder *d, trm_tensor *x, trm_tensor **output)
{
    const trm_hf_config *c = d->config;
    trm_layer_desc unary = {.kind = TRM_LAYER_UNARY, .unary = {TRM_UNARY_ACTIVATION, c->activation, 0.0f, 0.0f}};
    TRM_TRY(trm_hf_add_layer(d, "mlp.activation", "", &unary, &x, 1, output));
    return c->squared ? trm_hf_add_product(d, "mlp.squared", *output, *output, output) : TRM_OK;
}

trm_status trm_hf_add_mlp(trm_hf_decoder *d, trm_tensor *x, trm_tensor **output)
{
    const trm_hf_config *c = d->config;
    const trm_hf_names *names = d->names;
    trm_tensor *gate = NULL, *up, *inner;
    if (names->gate_up != NULL) {
        trm_hf_rows range = {.suffix = ".gate", .view = trm_dims1(2 * c->intermediate), .count = c->intermediate};
        TRM_TRY(trm_hf_add_linear(d, names->gate_up, &range, c->mlp_bias, 2 * c->intermediate, c->hidden, x, &gate));
        range.suffix = ".up";
        range.first = c->intermediate;
        TRM_TRY(trm_hf_add_linear(d, names->gate_up, &range, c->mlp_bias, 2 * c->intermediate, c->hidden, x, &up));
    } else {
        if (names->gate != NULL) {
            TRM_TRY(
                trm_hf_add_linear(d, names->gate, &trm_hf_whole, c->mlp_bias, c->intermediate, c->hidden, x, &gate));
        }
        TRM_TRY(trm_hf_add_linear(d, names->up, &trm_hf_whole, c->mlp_bias, c->intermediate, c->hidden, x, &up));
    }
    if (gate != NULL && !c->squared) {
        trm_layer_desc glu = {.kind = TRM_LAYER_GLU, .glu = {c->activation}};
        TRM_TRY(trm_hf_add_layer(d, "mlp.activation", "", &glu, (trm_tensor *[]){gate, up}, 2, &inner));
    } else {
        TRM_TRY(add_activation(d, gate != NULL ? gate : up, &inner));
        if (gate != NULL) {
            TRM_TRY(trm_hf_add_product(d, "mlp.gated", inner, up, &inner));
        }
    }
    return trm_hf_add_linear(d, names->down, &trm_hf_whole, c->mlp_bias, c->hidden, c->intermediate, inner, output);
}
