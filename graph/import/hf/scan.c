/* The selective scan of a block (Mamba-2), in place of attention: one projection to a gate, x, b, c and steps, short
 * convolutions of x, b and c, the scan with its state, and a norm of its output times the gate. */
#include "graph/import/hf/parts.h"

#include <stdio.h>

#include "base/error.h"

enum { GATE = 0, X, B, C, STEP };

/* Those rows of the projection. */
static trm_status add_part(trm_hf_decoder *d, int which, trm_tensor *x, trm_tensor **output)
{
    static const char *const suffixes[] = {".z", ".x", ".b", ".c", ".dt"};
    const trm_hf_scan *c = &d->config->scan;
    const int64_t inner = c->heads * c->head_dim, of_groups = c->groups * c->columns;
    const int64_t counts[] = {inner, inner, of_groups, of_groups, c->heads};
    const int64_t all = 2 * inner + 2 * of_groups + c->heads;
    trm_hf_rows rows = {.suffix = suffixes[which], .view = trm_dims1(all), .count = counts[which]};
    for (int i = 0; i < which; i++) {
        rows.first += counts[i];
    }
    return trm_hf_add_linear(d, d->names->scan_in, &rows, c->bias, all, d->config->hidden, x, output);
}

static trm_status add_convolved(trm_hf_decoder *d, int64_t layer, int which, trm_tensor *x, trm_tensor **output)
{
    static const char *const suffixes[] = {NULL, ".x", ".b", ".c"};
    const trm_hf_scan *c = &d->config->scan;
    const int64_t inner = c->heads * c->head_dim, of_groups = c->groups * c->columns;
    const trm_hf_convolution convolution = {.name = d->names->scan_convolution,
                                            .suffix = suffixes[which],
                                            .all = inner + 2 * of_groups,
                                            .first = which == X ? 0 : inner + (which - B) * of_groups,
                                            .taps = c->taps,
                                            .bias = c->convolution_bias};
    const trm_dims heads = which == X ? trm_dims3(0, c->heads, c->head_dim) : trm_dims3(0, c->groups, c->columns);
    TRM_TRY(add_part(d, which, x, &x));
    return trm_hf_add_convolution(d, &convolution, layer, x, heads, output);
}

/* norm(y * silu(z)) by groups, all [T, heads * head_dim] */
static trm_status add_gated_norm(trm_hf_decoder *d, trm_tensor *y, trm_tensor *z, trm_tensor **output)
{
    const trm_hf_scan *c = &d->config->scan;
    const char *name = d->names->scan_norm;
    const int64_t inner = c->heads * c->head_dim, width = inner / c->groups;
    const trm_layer_desc glu = {.kind = TRM_LAYER_GLU, .glu = {TRM_ACTIVATION_SILU}};
    const trm_layer_desc norm = {.kind = TRM_LAYER_NORM,
                                 .norm = {.op = TRM_NORM_RMS, .eps = (float)d->config->norm_eps}};
    const trm_dims groups = trm_dims2(c->groups, width), stored = trm_dims1(inner);
    trm_tensor *gated, *scale;
    trm_weight *taken, *seen;
    TRM_TRY(trm_hf_add_layer(d, name, ".gated", &glu, (trm_tensor *[]){z, y}, 2, &gated));
    if (c->groups == 1) {
        TRM_TRY(trm_hf_add_weight(d, name, ".weight", TRM_HF_NORM, stored, &scale));
        return trm_hf_add_layer(d, name, "", &norm, (trm_tensor *[]){gated, scale}, 2, output);
    }
    TRM_TRY(trm_hf_checkpoint_take(d->checkpoint, trm_hf_name(d, name, ".weight"), TRM_HF_NORM, &stored, &taken));
    trm_status status = trm_weight_reshape(taken, &groups, &seen);
    trm_weight_destroy(taken);
    TRM_TRY(status);
    TRM_TRY(trm_network_add_weight(d->network, trm_hf_name(d, name, ".weight"), seen, d->dtype, &scale));
    TRM_TRY(trm_hf_add_reshape(d, name, ".groups", gated, trm_dims3(0, c->groups, width), &gated));
    TRM_TRY(trm_hf_add_layer(d, name, "", &norm, &gated, 1, &gated));
    TRM_TRY(trm_hf_add_product(d, "scan.normed", gated, scale, &gated));
    return trm_hf_add_reshape(d, name, ".joined", gated, trm_dims2(0, inner), output);
}

trm_status trm_hf_add_scan(trm_hf_decoder *d, int64_t layer, trm_tensor *x, trm_tensor **output)
{
    const trm_hf_scan *c = &d->config->scan;
    const trm_hf_names *names = d->names;
    const trm_layer_desc desc = {.kind = TRM_LAYER_SELECTIVE_SCAN,
                                 .selective_scan = {.step_min = (float)c->step_min, .step_max = (float)c->step_max}};
    const char *const vectors[] = {names->scan_a_log, names->scan_step_bias, names->scan_skip};
    trm_tensor *inputs[TRM_SELECTIVE_SCAN_INPUT_COUNT] = {
        [TRM_SELECTIVE_SCAN_SEQUENCE_STARTS] = d->starts,
        [TRM_SELECTIVE_SCAN_SEQUENCE_LENGTHS] = d->lengths,
        [TRM_SELECTIVE_SCAN_SEQUENCE_SLOTS] = d->slots,
    };
    trm_tensor *z;
    char text[64];
    TRM_TRY(add_part(d, GATE, x, &z));
    for (int which = X; which <= C; which++) {
        TRM_TRY(add_convolved(d, layer, which, x, &inputs[TRM_SELECTIVE_SCAN_X + which - X]));
    }
    TRM_TRY(add_part(d, STEP, x, &inputs[TRM_SELECTIVE_SCAN_STEP]));
    for (int i = 0; i < 3; i++) {
        TRM_TRY(trm_hf_add_exact(d, vectors[i], "", TRM_HF_BIAS, trm_dims1(c->heads), TRM_F32,
                                 &inputs[TRM_SELECTIVE_SCAN_A_LOG + i]));
    }
    snprintf(text, sizeof(text), "layers.%lld.scan_state", (long long)layer);
    const trm_dims state = {5, {-1, -1, c->heads, c->head_dim, c->columns}};
    TRM_TRY(trm_network_add_state(d->network, text, TRM_F32, state, &inputs[TRM_SELECTIVE_SCAN_STATE]));
    TRM_TRY(trm_hf_add_layer(d, "scan", "", &desc, inputs, TRM_SELECTIVE_SCAN_INPUT_COUNT, output));
    TRM_TRY(trm_hf_add_reshape(d, "scan", ".joined", *output, trm_dims2(0, c->heads * c->head_dim), output));
    return add_gated_norm(d, *output, z, output);
}
