/* The MLP of a block. */
#include "graph/import/hf/parts.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "kernels/kernel.h"

/* A number that the checkpoint has, [] or [1], as the compute type holds it; `value` is its default. */
static trm_status take_number(trm_hf_decoder *d, const char *part, double *value)
{
    const char *full = trm_hf_name(d, d->names->xielu, part);
    trm_dtype dtype;
    trm_dims dims;
    trm_weight *weight;
    float number = (float)*value;
    if (trm_hf_checkpoint_describe(d->checkpoint, full, &dtype, &dims)) {
        dims = trm_dims_count(&dims) == 1 ? dims : trm_dims1(1);
        TRM_TRY(trm_hf_checkpoint_take(d->checkpoint, full, TRM_HF_BIAS, &dims, &weight));
        trm_status status = trm_weight_read(weight, TRM_F32, 0, 1, &number);
        if (status == TRM_OK) {
            status = trm_network_note_deciding(d->network, weight);
        }
        trm_weight_destroy(weight);
        TRM_TRY(status);
    }
    *value = trm_hf_round(d->dtype, number);
    return TRM_OK;
}

static double softplus(double x)
{
    return log1p(exp(-fabs(x))) + fmax(x, 0.0);
}

/* xIELU (arXiv 2411.13010): x > 0 ? p x^2 + beta x : n (e^min(x, eps) - 1 - x) + beta x, with p = softplus(alpha_p) and
 * n = beta + softplus(alpha_n). */
static trm_status add_xielu(trm_hf_decoder *d, trm_tensor *x, trm_tensor **output)
{
    double alpha_p = 0.0, alpha_n = 0.0, beta = 0.5, eps = -1e-6;
    TRM_TRY(take_number(d, ".alpha_p", &alpha_p));
    TRM_TRY(take_number(d, ".alpha_n", &alpha_n));
    TRM_TRY(take_number(d, ".beta", &beta));
    TRM_TRY(take_number(d, ".eps", &eps));
    const double p = trm_hf_round(d->dtype, softplus(alpha_p));
    const double n = trm_hf_round(d->dtype, beta + trm_hf_round(d->dtype, softplus(alpha_n)));
    const trm_layer_desc relu = {.kind = TRM_LAYER_UNARY, .unary = {.activation = TRM_ACTIVATION_RELU}},
                         sign = {.kind = TRM_LAYER_CAST, .cast = {.to = TRM_BOOL}},
                         clip = {.kind = TRM_LAYER_UNARY,
                                 .unary = {.op = TRM_UNARY_CLIP, .alpha = -FLT_MAX, .beta = (float)eps}},
                         elu = {.kind = TRM_LAYER_UNARY, .unary = {.op = TRM_UNARY_ELU, .alpha = 1.0f}},
                         subtract = {.kind = TRM_LAYER_ELEMENTWISE, .elementwise = {TRM_ELEMENTWISE_SUB}},
                         select = {.kind = TRM_LAYER_SELECT};
    trm_tensor *positive, *is_positive, *negative, *linear;
    TRM_TRY(trm_hf_add_layer(d, "mlp.relu", "", &relu, &x, 1, &positive));
    TRM_TRY(trm_hf_add_layer(d, "mlp.is_positive", "", &sign, &positive, 1, &is_positive));
    TRM_TRY(trm_hf_add_product(d, "mlp.squared", positive, x, &positive));
    TRM_TRY(trm_hf_add_scale(d, "mlp.positive", "", p, positive, &positive));
    TRM_TRY(trm_hf_add_layer(d, "mlp.clipped", "", &clip, &x, 1, &negative));
    TRM_TRY(trm_hf_add_layer(d, "mlp.elu", "", &elu, &negative, 1, &negative));
    TRM_TRY(trm_hf_add_layer(d, "mlp.difference", "", &subtract, (trm_tensor *[]){negative, x}, 2, &negative));
    TRM_TRY(trm_hf_add_scale(d, "mlp.negative", "", n, negative, &negative));
    TRM_TRY(
        trm_hf_add_layer(d, "mlp.curve", "", &select, (trm_tensor *[]){is_positive, positive, negative}, 3, output));
    TRM_TRY(trm_hf_add_scale(d, "mlp.linear", "", beta, x, &linear));
    return trm_hf_add_sum(d, "mlp.activation", *output, linear, output);
}

trm_status trm_hf_add_activation(trm_hf_decoder *d, const char *part, trm_tensor *x, trm_tensor **output)
{
    const trm_hf_config *c = d->config;
    if (d->names->xielu != NULL) {
        return add_xielu(d, x, output);
    }
    trm_layer_desc unary = {.kind = TRM_LAYER_UNARY, .unary = {TRM_UNARY_ACTIVATION, c->activation, 0.0f, 0.0f}};
    TRM_TRY(trm_hf_add_layer(d, part, "", &unary, &x, 1, output));
    return c->squared ? trm_hf_add_product(d, "mlp.squared", *output, *output, output) : TRM_OK;
}

/* What the activation makes of gate and up, or of up alone. `part` begins the names of its layers. */
static trm_status add_inner(trm_hf_decoder *d, const char *part, trm_tensor *gate, trm_tensor *up, trm_tensor **inner)
{
    const trm_hf_config *c = d->config;
    char text[64];
    snprintf(text, sizeof(text), "%s.activation", part);
    if (gate != NULL && !c->squared) {
        trm_layer_desc glu = {.kind = TRM_LAYER_GLU, .glu = {c->activation}};
        return trm_hf_add_layer(d, text, "", &glu, (trm_tensor *[]){gate, up}, 2, inner);
    }
    TRM_TRY(trm_hf_add_activation(d, text, gate != NULL ? gate : up, inner));
    snprintf(text, sizeof(text), "%s.gated", part);
    return gate != NULL ? trm_hf_add_product(d, text, *inner, up, inner) : TRM_OK;
}

/* The module that a linear layer is in: "mlp" of "mlp.down_proj". */
static void name_module(const char *linear, char *module, size_t size)
{
    const char *dot = strrchr(linear, '.');
    snprintf(module, size, "%.*s", (int)(dot != NULL ? (size_t)(dot - linear) : strlen(linear)), linear);
}

trm_status trm_hf_add_plain_mlp(trm_hf_decoder *d, const char *gate, const char *up, const char *down, int64_t width,
                                trm_tensor *x, trm_tensor **output)
{
    const trm_hf_config *c = d->config;
    char part[64];
    name_module(down, part, sizeof(part));
    trm_tensor *gated = NULL, *raised, *inner;
    if (gate != NULL) {
        TRM_TRY(trm_hf_add_linear(d, gate, &trm_hf_whole, c->mlp_bias, width, c->hidden, x, &gated));
    }
    TRM_TRY(trm_hf_add_linear(d, up, &trm_hf_whole, c->mlp_bias, width, c->hidden, x, &raised));
    TRM_TRY(add_inner(d, part, gated, raised, &inner));
    return trm_hf_add_linear(d, down, &trm_hf_whole, c->mlp_bias, c->hidden, width, inner, output);
}

trm_status trm_hf_add_joined_mlp(trm_hf_decoder *d, const char *gate_up, const char *down, int64_t width, trm_tensor *x,
                                 trm_tensor **output)
{
    const trm_hf_config *c = d->config;
    char part[64];
    name_module(down, part, sizeof(part));
    trm_tensor *gate, *up, *inner;
    trm_hf_rows range = {.suffix = ".gate", .view = trm_dims1(2 * width), .count = width};
    TRM_TRY(trm_hf_add_linear(d, gate_up, &range, c->mlp_bias, 2 * width, c->hidden, x, &gate));
    range.suffix = ".up";
    range.first = width;
    TRM_TRY(trm_hf_add_linear(d, gate_up, &range, c->mlp_bias, 2 * width, c->hidden, x, &up));
    TRM_TRY(add_inner(d, part, gate, up, &inner));
    return trm_hf_add_linear(d, down, &trm_hf_whole, c->mlp_bias, c->hidden, width, inner, output);
}

trm_status trm_hf_add_mlp(trm_hf_decoder *d, int64_t layer, trm_tensor *x, trm_tensor **output)
{
    const trm_hf_config *c = d->config;
    const trm_hf_names *names = d->names;
    const int64_t width = c->intermediate * (c->borrowing_doubled && trm_hf_borrows(c, layer) ? 2 : 1);
    if (c->moe.experts > 0 && !c->moe.beside && (c->moe.dense == NULL || !c->moe.dense[layer])) {
        return trm_hf_add_moe(d, x, output);
    }
    return names->gate_up != NULL ? trm_hf_add_joined_mlp(d, names->gate_up, names->down, width, x, output)
                                  : trm_hf_add_plain_mlp(d, names->gate, names->up, names->down, width, x, output);
}
