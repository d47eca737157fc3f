/*
 * The mixture of experts of a block: a router, the experts that it chooses, and those that every token has.
 *
 * Checkpoints store experts one by one or stacked. Either becomes the stacked weights of an EXPERTS layer by views.
 */
#include "graph/import/hf/parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

/* Takes a whole weight of the router, which is small and exact. */
static trm_status add_exact(trm_hf_decoder *d, const char *part, const char *suffix, trm_hf_weight_use use,
                            trm_dims dims, trm_dtype dtype, trm_tensor **tensor)
{
    const char *full = trm_hf_name(d, part, suffix);
    trm_weight *weight;
    TRM_TRY(trm_hf_checkpoint_take(d->checkpoint, full, use, &dims, &weight));
    return trm_network_add_weight(d->network, full, weight, dtype, tensor);
}

/* x [T, hidden] -> ids and weights [T, k] */
static trm_status add_router(trm_hf_decoder *d, trm_tensor *x, trm_tensor *chosen[2])
{
    const trm_hf_moe *moe = &d->config->moe;
    const trm_hf_names *names = d->names;
    const trm_dims experts = trm_dims1(moe->experts);
    trm_tensor *inputs[TRM_ROUTER_INPUT_COUNT] = {x};
    TRM_TRY(add_exact(d, names->router, ".weight", TRM_HF_MATRIX, trm_dims2(moe->experts, d->config->hidden),
                      moe->router_f32 ? TRM_F32 : d->dtype, &inputs[TRM_ROUTER_WEIGHT]));
    if (moe->router_bias) {
        TRM_TRY(add_exact(d, names->router, ".bias", TRM_HF_BIAS, experts, TRM_F32, &inputs[TRM_ROUTER_BIAS]));
    }
    if (moe->correction) {
        TRM_TRY(add_exact(d, names->correction, "", TRM_HF_BIAS, experts, TRM_F32, &inputs[TRM_ROUTER_CORRECTION]));
    }
    const trm_layer_desc desc = {.kind = TRM_LAYER_ROUTER, .router = moe->router};
    return trm_network_add_layer(d->network, trm_hf_name(d, names->router, ""), &desc, inputs, TRM_ROUTER_INPUT_COUNT,
                                 chosen);
}

/* ---- weights of experts -------------------------------------------------------------------------- */

/* Joins `n` weights [rows, columns] one below the other; takes them over. */
static trm_status join(trm_weight **parts, int32_t n, const trm_dims *dims, trm_weight **joined)
{
    trm_weight *stacked = NULL;
    trm_status status = trm_weight_concat((const trm_weight *const *)parts, n, 0, &stacked);
    if (status == TRM_OK) {
        status = trm_weight_reshape(stacked, dims, joined);
    }
    trm_weight_destroy(stacked);
    for (int32_t i = 0; i < n; i++) {
        trm_weight_destroy(parts[i]);
    }
    free(parts);
    return status;
}

/* The matrices `names` [n_names], [rows, columns] each, of all experts: [experts, n_names, rows, columns] as `dims`. */
static trm_status take_each(trm_hf_decoder *d, const char *const *names, int32_t n_names, int64_t rows, int64_t columns,
                            const trm_dims *dims, trm_weight **weight)
{
    const int32_t experts = (int32_t)d->config->moe.experts;
    const trm_dims matrix = trm_dims2(rows, columns);
    trm_weight **parts = calloc((size_t)experts * (size_t)n_names, sizeof(*parts));
    int32_t n = 0;
    if (parts == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "no memory for the weights of %d experts", (int)experts);
    }
    trm_status status = TRM_OK;
    for (int32_t e = 0; e < experts && status == TRM_OK; e++) {
        for (int32_t i = 0; i < n_names && status == TRM_OK; i++) {
            char part[128];
            snprintf(part, sizeof(part), "%s.%d.%s", d->names->experts, (int)e, names[i]);
            status = trm_hf_checkpoint_take(d->checkpoint, trm_hf_name(d, part, ".weight"), TRM_HF_MATRIX, &matrix,
                                            &parts[n]);
            n += status == TRM_OK;
        }
    }
    if (status == TRM_OK) {
        return join(parts, n, dims, weight);
    }
    for (int32_t i = 0; i < n; i++) {
        trm_weight_destroy(parts[i]);
    }
    free(parts);
    return status;
}

/* A weight of all experts that is stored as one, [experts, rows, columns], seen as `dims`. */
static trm_status take_stacked(trm_hf_decoder *d, const char *part, int64_t rows, int64_t columns, const trm_dims *dims,
                               trm_weight **weight)
{
    const trm_dims stored = trm_dims3(d->config->moe.experts, rows, columns);
    trm_weight *whole;
    TRM_TRY(trm_hf_checkpoint_take(d->checkpoint, trm_hf_name(d, part, ""), TRM_HF_MATRIX, &stored, &whole));
    trm_status status = trm_weight_reshape(whole, dims, weight);
    trm_weight_destroy(whole);
    return status;
}

/* Whether the checkpoint has all experts in one weight; a random one does. */
static bool is_stacked(trm_hf_decoder *d)
{
    const char *part = d->names->experts_gate_up;
    return part != NULL && trm_hf_checkpoint_has(d->checkpoint, trm_hf_name(d, part, ""));
}

static trm_status take_experts(trm_hf_decoder *d, trm_weight **gate_up, trm_weight **down)
{
    const trm_hf_names *names = d->names;
    const int64_t experts = d->config->moe.experts, width = d->config->moe.width, hidden = d->config->hidden;
    const int32_t halves = names->expert_gate != NULL ? 2 : 1;
    const trm_dims up_dims = {4, {experts, halves, width, hidden}}, down_dims = trm_dims3(experts, hidden, width);
    trm_status status;
    *gate_up = *down = NULL;
    if (is_stacked(d)) {
        TRM_TRY(take_stacked(d, names->experts_gate_up, halves * width, hidden, &up_dims, gate_up));
        status = take_stacked(d, names->experts_down, hidden, width, &down_dims, down);
    } else {
        const char *const up[] = {names->expert_gate, names->expert_up};
        TRM_TRY(take_each(d, halves == 2 ? up : up + 1, halves, width, hidden, &up_dims, gate_up));
        status = take_each(d, &names->expert_down, 1, hidden, width, &down_dims, down);
    }
    if (status != TRM_OK) {
        trm_weight_destroy(*gate_up);
    }
    return status;
}

/* ---- layers ---------------------------------------------------------------------------------------- */

static trm_status add_experts(trm_hf_decoder *d, trm_tensor *x, trm_tensor *const chosen[2], trm_tensor **output)
{
    const trm_hf_moe *moe = &d->config->moe;
    const char *part = d->names->experts;
    trm_weight *gate_up, *down;
    trm_tensor *inputs[TRM_EXPERTS_INPUT_COUNT] = {x, chosen[0], chosen[1]};
    TRM_TRY(take_experts(d, &gate_up, &down));
    trm_status status = trm_network_add_weight(d->network, trm_hf_name(d, part, ".gate_up"), gate_up, d->dtype,
                                               &inputs[TRM_EXPERTS_GATE_UP]);
    if (status != TRM_OK) {
        trm_weight_destroy(down);
        return status;
    }
    TRM_TRY(
        trm_network_add_weight(d->network, trm_hf_name(d, part, ".down"), down, d->dtype, &inputs[TRM_EXPERTS_DOWN]));
    const trm_layer_desc desc = {.kind = TRM_LAYER_EXPERTS,
                                 .experts = {.activation = moe->activation,
                                             .weighted_input = moe->weighted_input,
                                             .limit = (float)moe->limit,
                                             .alpha = (float)moe->alpha}};
    return trm_hf_add_layer(d, part, "", &desc, inputs, TRM_EXPERTS_INPUT_COUNT, output);
}

/* x [T, hidden] -> [T, hidden]: the experts that every token has, weighted by a sigmoid if there is a router for it. */
static trm_status add_shared(trm_hf_decoder *d, trm_tensor *x, trm_tensor **output)
{
    const trm_hf_names *names = d->names;
    TRM_TRY(trm_hf_add_plain_mlp(d, names->shared_gate, names->shared_up, names->shared_down,
                                 d->config->moe.shared_width, x, output));
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
    TRM_TRY(add_router(d, x, chosen));
    TRM_TRY(add_experts(d, x, chosen, &routed));
    if (d->config->moe.shared_width == 0) {
        *output = routed;
        return TRM_OK;
    }
    TRM_TRY(add_shared(d, x, &shared));
    return trm_hf_add_sum(d, "mlp.mixture", routed, shared, output);
}
