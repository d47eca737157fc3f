/* The mixture of experts of a block: a router, the experts that it chooses, and those that every token has. */
#include "graph/import/hf/parts.h"

#include <math.h>

#include "base/error.h"

/* Stored as [experts], or as [1, experts]. */
static trm_status add_correction(trm_hf_decoder *d, trm_dims experts, trm_tensor **tensor)
{
    const char *full = trm_hf_name(d, d->names->correction, "");
    trm_dtype dtype;
    trm_dims dims;
    trm_weight *stored, *weight;
    if (!trm_hf_checkpoint_describe(d->checkpoint, full, &dtype, &dims) || dims.n != 2 || dims.d[0] != 1) {
        return trm_hf_add_exact(d, d->names->correction, "", TRM_HF_BIAS, experts, TRM_F32, tensor);
    }
    dims.d[1] = experts.d[0];
    TRM_TRY(trm_hf_checkpoint_take(d->checkpoint, full, TRM_HF_BIAS, &dims, &stored));
    trm_status status = trm_weight_reshape(stored, &experts, &weight);
    trm_weight_destroy(stored);
    return status != TRM_OK ? status : trm_network_add_weight(d->network, full, weight, TRM_F32, tensor);
}

/* norm(x) * scale / sqrt(hidden) */
static trm_status add_router_input(trm_hf_decoder *d, trm_tensor *x, trm_tensor **output)
{
    const trm_hf_config *c = d->config;
    const trm_layer_desc norm = {.kind = TRM_LAYER_NORM, .norm = {.op = TRM_NORM_RMS, .eps = (float)c->norm_eps}};
    trm_tensor *inputs[2] = {x};
    TRM_TRY(trm_hf_add_weight(d, d->names->router_scale, "", TRM_HF_NORM, trm_dims1(c->hidden), &inputs[1]));
    TRM_TRY(trm_hf_add_layer(d, d->names->router, ".norm", &norm, inputs, 2, output));
    return trm_hf_add_scale(d, d->names->router, ".scaled", 1.0 / sqrt((double)c->hidden), *output, output);
}

/* x [T, hidden] -> ids and weights [T, k] */
static trm_status add_router(trm_hf_decoder *d, trm_tensor *x, trm_tensor *chosen[2])
{
    const trm_hf_moe *moe = &d->config->moe;
    const trm_hf_names *names = d->names;
    const trm_dims experts = trm_dims1(moe->experts);
    trm_tensor *inputs[TRM_ROUTER_INPUT_COUNT] = {x};
    trm_dims dims;
    trm_dtype dtype;
    if (names->router_scale != NULL) {
        TRM_TRY(add_router_input(d, x, &inputs[TRM_ROUTER_X]));
    }
    if (names->expert_scale != NULL) {
        TRM_TRY(trm_hf_add_exact(d, names->expert_scale, "", TRM_HF_NORM, experts, TRM_F32,
                                 &inputs[TRM_ROUTER_EXPERT_SCALE]));
    }
    if (!moe->router_f32 ||
        !trm_hf_checkpoint_describe(d->checkpoint, trm_hf_name(d, names->router, ".weight"), &dtype, &dims) ||
        dtype != TRM_F32) {
        dtype = d->dtype;
    }
    TRM_TRY(trm_hf_add_exact(d, names->router, ".weight", TRM_HF_MATRIX, trm_dims2(moe->experts, d->config->hidden),
                             dtype, &inputs[TRM_ROUTER_WEIGHT]));
    if (moe->router_bias) {
        TRM_TRY(trm_hf_add_exact(d, names->router, ".bias", TRM_HF_BIAS, experts, TRM_F32, &inputs[TRM_ROUTER_BIAS]));
    }
    if (moe->correction) {
        TRM_TRY(add_correction(d, experts, &inputs[TRM_ROUTER_CORRECTION]));
    }
    const trm_layer_desc desc = {.kind = TRM_LAYER_ROUTER, .router = moe->router};
    return trm_network_add_layer(d->network, trm_hf_name(d, names->router, ""), &desc, inputs, TRM_ROUTER_INPUT_COUNT,
                                 chosen);
}

/* ---- layers ---------------------------------------------------------------------------------------- */

static trm_status add_experts(trm_hf_decoder *d, trm_tensor *x, trm_tensor *const chosen[2], trm_tensor **output)
{
    const trm_hf_moe *moe = &d->config->moe;
    const char *part = d->names->experts;
    trm_tensor *inputs[TRM_EXPERTS_INPUT_COUNT] = {x, chosen[0], chosen[1]};
    TRM_TRY(trm_hf_add_expert_weights(d, inputs));
    const trm_layer_desc desc = {.kind = TRM_LAYER_EXPERTS,
                                 .experts = {.activation = moe->activation,
                                             .interleaved = moe->interleaved,
                                             .weighted_input = moe->weighted_input,
                                             .limit = (float)moe->limit,
                                             .alpha = (float)moe->alpha}};
    return trm_hf_add_layer(d, part, "", &desc, inputs, TRM_EXPERTS_INPUT_COUNT, output);
}

/* x [T, hidden] -> [T, hidden]: the experts that every token has, weighted by a sigmoid if there is a router for it. */
static trm_status add_shared(trm_hf_decoder *d, trm_tensor *x, trm_tensor **output)
{
    const trm_hf_names *names = d->names;
    const int64_t width = d->config->moe.shared_width;
    TRM_TRY(names->shared_gate_up != NULL
                ? trm_hf_add_joined_mlp(d, names->shared_gate_up, names->shared_down, width, x, output)
                : trm_hf_add_plain_mlp(d, names->shared_gate, names->shared_up, names->shared_down, width, x, output));
    if (names->shared_router == NULL) {
        return TRM_OK;
    }
    trm_tensor *gate;
    const trm_layer_desc sigmoid = {.kind = TRM_LAYER_UNARY,
                                    .unary = {TRM_UNARY_ACTIVATION, TRM_ACTIVATION_SIGMOID, 0.0f, 0.0f}};
    TRM_TRY(trm_hf_add_linear(d, names->shared_router, &trm_hf_whole, false, 1, d->config->hidden, x, &gate));
    TRM_TRY(trm_hf_add_layer(d, names->shared_router, ".sigmoid", &sigmoid, &gate, 1, &gate));
    return trm_hf_add_product(d, "mlp.shared_weighted", *output, gate, output);
}

trm_status trm_hf_add_moe(trm_hf_decoder *d, trm_tensor *x, trm_tensor **output)
{
    trm_tensor *chosen[2], *routed, *shared;
    const trm_hf_names *names = d->names;
    const int64_t hidden = d->config->hidden, latent = d->config->moe.latent;
    TRM_TRY(add_router(d, x, chosen));
    routed = x;
    if (latent > 0) {
        TRM_TRY(trm_hf_add_linear(d, names->latent_in, &trm_hf_whole, d->config->mlp_bias, latent, hidden, x, &routed));
    }
    TRM_TRY(add_experts(d, routed, chosen, &routed));
    if (latent > 0) {
        TRM_TRY(trm_hf_add_linear(d, names->latent_out, &trm_hf_whole, d->config->mlp_bias, hidden, latent, routed,
                                  &routed));
    }
    if (d->config->moe.shared_width == 0) {
        *output = routed;
        return TRM_OK;
    }
    TRM_TRY(add_shared(d, x, &shared));
    return trm_hf_add_sum(d, "mlp.mixture", routed, shared, output);
}

trm_status trm_hf_add_moe_beside(trm_hf_decoder *d, trm_tensor *x, trm_tensor *mlp, trm_tensor **output)
{
    const trm_hf_names *names = d->names;
    const int64_t hidden = d->config->hidden;
    trm_tensor *chosen[2], *routed;
    TRM_TRY(trm_hf_add_norm(d, names->beside_mlp_norm, hidden, mlp, &mlp));
    TRM_TRY(add_router(d, x, chosen));
    TRM_TRY(trm_hf_add_norm(d, names->beside_norm, hidden, x, &routed));
    TRM_TRY(add_experts(d, routed, chosen, &routed));
    TRM_TRY(trm_hf_add_norm(d, names->beside_post_norm, hidden, routed, &routed));
    return trm_hf_add_sum(d, "mlp.mixture", mlp, routed, output);
}
