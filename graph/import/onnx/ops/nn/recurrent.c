/* RNN, GRU and LSTM. */
#include <ctype.h>
#include <string.h>

#include "graph/import/onnx/ops/ops.h"

/* Names of activations in the order of the catalogue, with the numbers they have where a node gives none. */
static const struct {
    const char *name;
    bool has_alpha, has_beta;
    float alpha, beta;
} activations[] = {
    {"sigmoid", false, false, 0.0f, 0.0f},   {"tanh", false, false, 0.0f, 0.0f},
    {"relu", false, false, 0.0f, 0.0f},      {"affine", true, true, 1.0f, 0.0f},
    {"leakyrelu", true, false, 0.01f, 0.0f}, {"thresholdedrelu", true, false, 1.0f, 0.0f},
    {"scaledtanh", true, true, 1.0f, 1.0f},  {"hardsigmoid", true, true, 0.2f, 0.5f},
    {"elu", true, false, 1.0f, 0.0f},        {"softsign", false, false, 0.0f, 0.0f},
    {"softplus", false, false, 0.0f, 0.0f},
};

static int32_t activation_named(const char *name)
{
    char lower[32] = "";
    for (size_t i = 0; name[i] != '\0' && i < sizeof(lower) - 1; i++) {
        lower[i] = (char)tolower((unsigned char)name[i]);
    }
    for (int32_t i = 0; i < (int32_t)(sizeof(activations) / sizeof(activations[0])); i++) {
        if (strcmp(activations[i].name, lower) == 0) {
            return i;
        }
    }
    return -1;
}

/* activations, activation_alpha, activation_beta: numbers are taken in order by those that have any. */
static void read_activations(trm_onnx_node *node, trm_recurrent_params *p, int32_t directions)
{
    static const trm_recurrent_activation usual[] = {TRM_RECURRENT_SIGMOID, TRM_RECURRENT_TANH, TRM_RECURRENT_TANH};
    const int32_t own = p->cell == TRM_RECURRENT_RNN ? 1 : p->cell == TRM_RECURRENT_GRU ? 2 : 3, n = own * directions;
    float alpha[6], beta[6];
    const int32_t given = trm_onnx_string_count(node, "activations");
    const int32_t alphas = trm_onnx_floats(node, "activation_alpha", alpha, 6);
    const int32_t betas = trm_onnx_floats(node, "activation_beta", beta, 6);
    if (!trm_onnx_failed(node) && given >= 0 && given != n) {
        trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "found %d activations, expected %d", (int)given, (int)n);
    }
    for (int32_t i = 0, a = 0, b = 0; i < n && !trm_onnx_failed(node); i++) {
        int32_t which = p->cell == TRM_RECURRENT_RNN ? (int32_t)TRM_RECURRENT_TANH : (int32_t)usual[i % own];
        if (given >= 0) {
            const char *name = trm_onnx_string_at(node, "activations", i);
            which = activation_named(name);
            if (which < 0) {
                trm_onnx_fail(node, TRM_ERROR_UNSUPPORTED, "activation %s is not supported", name);
                return;
            }
        }
        p->activations[i] = (trm_recurrent_activation)which;
        p->alpha[i] = activations[which].has_alpha && a < alphas ? alpha[a++] : activations[which].alpha;
        p->beta[i] = activations[which].has_beta && b < betas ? beta[b++] : activations[which].beta;
    }
}

/* With layout 1 the batch comes first. */
static trm_tensor *reordered(trm_onnx_node *node, trm_tensor *x, bool batch_first, int32_t a, int32_t b, int32_t c,
                             int32_t d)
{
    const int32_t perm[] = {a, b, c, d};
    return x == NULL || !batch_first ? x : trm_onnx_transpose(node, x, perm);
}

static void import_recurrent(trm_onnx_node *node)
{
    static const char *const directions[] = {"forward", "reverse", "bidirectional", NULL};
    const bool batch_first = trm_onnx_flag(node, "layout", false);
    trm_layer_desc desc = {.kind = TRM_LAYER_RECURRENT};
    trm_recurrent_params *p = &desc.recurrent;
    p->cell = (trm_recurrent_cell)node->row->data;
    p->direction = (trm_recurrent_direction)trm_onnx_choice(node, "direction", "forward", directions);
    p->clip = trm_onnx_float(node, "clip", 0.0f);
    p->linear_before_reset = p->cell == TRM_RECURRENT_GRU && trm_onnx_flag(node, "linear_before_reset", false);
    p->input_forget = p->cell == TRM_RECURRENT_LSTM && trm_onnx_flag(node, "input_forget", false);
    const trm_tensor *r = node->inputs[2];
    const int64_t hidden = trm_onnx_int(node, "hidden_size", r->dims.n == 3 ? r->dims.d[2] : 0);
    if (!trm_onnx_failed(node) && (hidden < 1 || hidden > INT32_MAX)) {
        trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "hidden_size is %lld, expected at least 1", (long long)hidden);
    }
    p->hidden = (int32_t)hidden;
    read_activations(node, p, p->direction == TRM_RECURRENT_BIDIRECTIONAL ? 2 : 1);
    trm_tensor *inputs[8] = {NULL}, *outputs[3] = {NULL};
    const int32_t n_inputs = p->cell == TRM_RECURRENT_LSTM ? 8 : 6;
    memcpy(inputs, node->inputs, (size_t)n_inputs * sizeof(inputs[0]));
    inputs[0] = reordered(node, inputs[0], batch_first, 1, 0, 2, 0);
    inputs[5] = reordered(node, inputs[5], batch_first, 1, 0, 2, 0);
    inputs[6] = reordered(node, inputs[6], batch_first, 1, 0, 2, 0);
    trm_onnx_layer(node, &desc, inputs, n_inputs, outputs);
    if (trm_onnx_wants(node, 0)) {
        trm_onnx_set(node, 0, reordered(node, outputs[0], batch_first, 2, 0, 1, 3));
    }
    for (int32_t i = 1; i < (p->cell == TRM_RECURRENT_LSTM ? 3 : 2); i++) {
        if (trm_onnx_wants(node, i)) {
            trm_onnx_set(node, i, reordered(node, outputs[i], batch_first, 1, 0, 2, 0));
        }
    }
}

const trm_onnx_operator trm_onnx_ops_recurrent[] = {
    {"", "RNN", 7, 3, import_recurrent, TRM_RECURRENT_RNN},
    {"", "GRU", 7, 3, import_recurrent, TRM_RECURRENT_GRU},
    {"", "LSTM", 7, 3, import_recurrent, TRM_RECURRENT_LSTM},
    {0},
};
