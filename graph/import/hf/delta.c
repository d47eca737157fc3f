/* The gated delta rule of a block, in place of attention: projections, short convolutions of queries, keys and values,
 * the rule with its state, and a norm of its heads times a gate. */
#include "graph/import/hf/parts.h"

#include <stdio.h>

#include "base/error.h"

enum { QUERY = 0, KEY, VALUE, GATE, STRENGTH, DECAY, PARTS };

#define UNIT_EPS 1e-6f /* under the length of queries and keys */

/* A part of the projections: the linear layer `name` with `out` rows in all, and which of its rows. */
typedef struct part {
    const char *name;
    int64_t out;
    trm_hf_rows rows;
} part;

static part find_part(const trm_hf_decoder *d, int which)
{
    static const char *const suffixes[PARTS] = {".q", ".k", ".v", ".z", ".b", ".a"};
    const trm_hf_delta *c = &d->config->delta;
    const trm_hf_names *names = d->names;
    const bool is_wide = which <= GATE;
    const int64_t keys = c->key_heads * c->key_dim, values = c->value_heads * c->value_dim;
    part found = {.rows = {.suffix = suffixes[which]}};
    if (names->delta_qkvz == NULL && which >= GATE) {
        found.name = which == GATE ? names->delta_z : which == STRENGTH ? names->delta_b : names->delta_a;
        found.out = which == GATE ? values : c->value_heads;
        found.rows = trm_hf_whole;
        return found;
    }
    if (names->delta_qkvz == NULL) {
        found.name = names->delta_qkv;
        found.out = 2 * keys + values;
        found.rows.view = trm_dims1(found.out);
        found.rows.first = which * keys;
        found.rows.count = which == VALUE ? values : keys;
        return found;
    }
    const int64_t of_head = (is_wide ? values : c->value_heads) / c->key_heads;
    found.name = is_wide ? names->delta_qkvz : names->delta_ba;
    found.rows.axis = 1;
    found.rows.count = which <= KEY ? c->key_dim : of_head;
    found.rows.first = which <= VALUE ? which * c->key_dim : which == GATE ? 2 * c->key_dim + of_head : 0;
    found.rows.first += which == DECAY ? of_head : 0;
    found.rows.view = trm_dims2(c->key_heads, 2 * of_head + (is_wide ? 2 * c->key_dim : 0));
    found.out = c->key_heads * found.rows.view.d[1];
    return found;
}

/* Projects x to heads of queries, keys or values and lets them pass their convolution: [T, heads, dim]. */
static trm_status add_heads(trm_hf_decoder *d, int64_t layer, int which, trm_tensor *x, trm_tensor **heads)
{
    const trm_hf_delta *c = &d->config->delta;
    const part p = find_part(d, which);
    const trm_hf_convolution convolution = {.name = d->names->delta_convolution,
                                            .suffix = p.rows.suffix,
                                            .all = 2 * c->key_heads * c->key_dim + c->value_heads * c->value_dim,
                                            .first = which * c->key_heads * c->key_dim,
                                            .taps = c->taps};
    const trm_dims dims =
        which == VALUE ? trm_dims3(0, c->value_heads, c->value_dim) : trm_dims3(0, c->key_heads, c->key_dim);
    TRM_TRY(trm_hf_add_linear(d, p.name, &p.rows, false, p.out, d->config->hidden, x, &x));
    return trm_hf_add_convolution(d, &convolution, layer, x, dims, heads);
}

static trm_status add_part(trm_hf_decoder *d, int which, trm_tensor *x, trm_tensor **output)
{
    const part p = find_part(d, which);
    return trm_hf_add_linear(d, p.name, &p.rows, false, p.out, d->config->hidden, x, output);
}

/* norm(x [T, heads, dim]) * silu(z [T, heads * dim]) -> [T, heads * dim] */
static trm_status add_gated_norm(trm_hf_decoder *d, trm_tensor *x, trm_tensor *z, trm_tensor **output)
{
    const trm_hf_delta *c = &d->config->delta;
    const char *name = d->names->delta_norm;
    const trm_layer_desc norm = {.kind = TRM_LAYER_NORM,
                                 .norm = {.op = TRM_NORM_RMS, .eps = (float)d->config->norm_eps}};
    const trm_layer_desc glu = {.kind = TRM_LAYER_GLU, .glu = {TRM_ACTIVATION_SILU}};
    trm_tensor *inputs[2] = {x, NULL}, *normed;
    TRM_TRY(trm_hf_add_weight(d, name, ".weight", TRM_HF_NORM, trm_dims1(c->value_dim), &inputs[1]));
    TRM_TRY(trm_hf_add_layer(d, name, "", &norm, inputs, 2, &normed));
    TRM_TRY(trm_hf_add_reshape(d, name, ".joined", normed, trm_dims2(0, c->value_heads * c->value_dim), &normed));
    return trm_hf_add_layer(d, name, ".gated", &glu, (trm_tensor *[]){z, normed}, 2, output);
}

trm_status trm_hf_add_delta(trm_hf_decoder *d, int64_t layer, trm_tensor *x, trm_tensor **output)
{
    const trm_hf_delta *c = &d->config->delta;
    const trm_dims heads = trm_dims1(c->value_heads);
    const trm_layer_desc desc = {.kind = TRM_LAYER_GATED_DELTA, .gated_delta = {.eps = UNIT_EPS}};
    trm_tensor *inputs[TRM_GATED_DELTA_INPUT_COUNT] = {
        [TRM_GATED_DELTA_SEQUENCE_STARTS] = d->starts,
        [TRM_GATED_DELTA_SEQUENCE_LENGTHS] = d->lengths,
        [TRM_GATED_DELTA_SEQUENCE_SLOTS] = d->slots,
    };
    trm_tensor *z;
    char text[64];
    for (int which = QUERY; which <= VALUE; which++) {
        TRM_TRY(add_heads(d, layer, which, x, &inputs[TRM_GATED_DELTA_Q + which]));
    }
    TRM_TRY(add_part(d, GATE, x, &z));
    TRM_TRY(add_part(d, STRENGTH, x, &inputs[TRM_GATED_DELTA_B]));
    TRM_TRY(add_part(d, DECAY, x, &inputs[TRM_GATED_DELTA_A]));
    TRM_TRY(
        trm_hf_add_exact(d, d->names->delta_a_log, "", TRM_HF_BIAS, heads, TRM_F32, &inputs[TRM_GATED_DELTA_A_LOG]));
    TRM_TRY(
        trm_hf_add_exact(d, d->names->delta_a_bias, "", TRM_HF_BIAS, heads, TRM_F32, &inputs[TRM_GATED_DELTA_A_BIAS]));
    snprintf(text, sizeof(text), "layers.%lld.delta_state", (long long)layer);
    const trm_dims state = {5, {-1, -1, c->value_heads, c->key_dim, c->value_dim}};
    TRM_TRY(trm_network_add_state(d->network, text, TRM_F32, state, &inputs[TRM_GATED_DELTA_STATE]));
    TRM_TRY(trm_hf_add_layer(d, "delta", "", &desc, inputs, TRM_GATED_DELTA_INPUT_COUNT, output));
    return add_gated_norm(d, *output, z, output);
}
