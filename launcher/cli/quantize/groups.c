/* Walks the network from the products to what makes their inputs. */
#include "launcher/cli/quantize/groups.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

typedef struct finder {
    const trm_model *model;
    const trm_network *network;
    const trm_network *quantized;
    groups *to;
} finder;

void groups_fini(groups *found)
{
    for (int32_t i = 0; i < found->n; i++) {
        group *g = &found->list[i];
        for (int32_t k = 0; k < g->n_layers; k++) {
            free(g->layers[k].weight);
        }
        free(g->layers);
        free(g->tensor);
        free(g->weight);
        free(g->bias);
    }
    free(found->list);
    *found = (groups){0};
}

const group *groups_of(const groups *all, const char *weight)
{
    for (int32_t i = 0; i < all->n; i++) {
        for (int32_t k = 0; k < all->list[i].n_layers; k++) {
            if (strcmp(all->list[i].layers[k].weight, weight) == 0) {
                return &all->list[i];
            }
        }
    }
    return NULL;
}

/* ---- names ------------------------------------------------------------------------------------------------------ */

/* The stored weight that a tensor is, or is a part of: its name, or that without the last word before ".weight".
 * false: neither is stored, or not with two dims of which the last is `columns`. */
static bool find_stored(const finder *f, const trm_tensor *tensor, int64_t columns, char name[512], int64_t *rows)
{
    trm_dims dims;
    const char *full = tensor != NULL ? trm_tensor_name(tensor) : "";
    snprintf(name, 512, "%s", full);
    if (!trm_model_weight_dims(f->model, name, &dims)) {
        char *end = strrchr(name, '.'), *word;
        if (end == NULL) {
            return false;
        }
        *end = '\0';
        word = strrchr(name, '.');
        if (word == NULL) {
            return false;
        }
        snprintf(word, 512 - (size_t)(word - name), ".weight");
        if (!trm_model_weight_dims(f->model, name, &dims)) {
            return false;
        }
    }
    *rows = dims.d[0];
    return dims.n == 2 && dims.d[1] == columns;
}

/* Whether the tensor is a stored weight of its own. */
static bool is_stored(const finder *f, const trm_tensor *tensor, int64_t n)
{
    trm_dims dims;
    return tensor != NULL && trm_model_weight_dims(f->model, trm_tensor_name(tensor), &dims) && dims.d[0] == n;
}

/* Whether the layer that makes this weight's product is quantized. A part of a weight is as all of it. */
static bool is_quantized(const finder *f, const char *weight)
{
    trm_layer_info layer;
    const size_t size = strlen(weight) - strlen(".weight");
    for (int32_t i = 0; trm_network_get_layer(f->quantized, i, &layer); i++) {
        if (layer.desc->kind == TRM_LAYER_DEQUANT_MATMUL && strncmp(layer.name, weight, size) == 0 &&
            (layer.name[size] == '\0' || layer.name[size] == '.')) {
            return true;
        }
    }
    return false;
}

/* ---- groups ----------------------------------------------------------------------------------------------------- */

static trm_status add_group(finder *f, const char *tensor, int64_t columns, group **added)
{
    group *list = realloc(f->to->list, ((size_t)f->to->n + 1) * sizeof(*list));
    if (list == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "no memory for a list of layers");
    }
    f->to->list = list;
    *added = &list[f->to->n];
    **added = (group){.tensor = strdup(tensor), .columns = columns, .repeat = 1, .width = columns};
    if ((*added)->tensor == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "no memory for the name of a tensor");
    }
    f->to->n++;
    return TRM_OK;
}

static trm_status add_layer(group *g, const char *weight, int64_t rows, bool quantized)
{
    for (int32_t i = 0; i < g->n_layers; i++) {
        if (strcmp(g->layers[i].weight, weight) == 0) {
            return TRM_OK; /* another part of it */
        }
    }
    group_layer *layers = realloc(g->layers, ((size_t)g->n_layers + 1) * sizeof(*layers));
    if (layers == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "no memory for a list of layers");
    }
    g->layers = layers;
    layers[g->n_layers] = (group_layer){strdup(weight), rows, quantized};
    if (layers[g->n_layers].weight == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "no memory for the name of a weight");
    }
    g->n_layers++;
    return TRM_OK;
}

/* ---- experts ---------------------------------------------------------------------------------------------------- */

static bool ends_with(const char *name, const char *end)
{
    const size_t size = strlen(name), n = strlen(end);
    return size >= n && strcmp(name + size - n, end) == 0;
}

/* The weights of experts that are stored one by one, "<prefix>.<e>.<matrix>.weight": those of `columns` that read the
 * layer's input, or the one that reads the inner activations. NULL past the last. */
static const char *expert_weight(const finder *f, const char *prefix, bool down, int32_t *index, trm_dims *dims)
{
    const size_t size = strlen(prefix);
    const char *name;
    for (; (name = trm_model_weight_name(f->model, *index)) != NULL; ++*index) {
        const bool is_down = ends_with(name, ".down_proj.weight") || ends_with(name, ".w2.weight");
        if (strncmp(name, prefix, size) == 0 && name[size] == '.' && name[size + 1] >= '0' && name[size + 1] <= '9' &&
            is_down == down && ends_with(name, ".weight") && trm_model_weight_dims(f->model, name, dims) &&
            dims->n == 2) {
            ++*index;
            return name;
        }
    }
    return NULL;
}

static void expert_prefix(const trm_layer_info *experts, char prefix[512])
{
    snprintf(prefix, 512, "%s", trm_tensor_name(experts->inputs[TRM_EXPERTS_GATE_UP]));
    char *end = strrchr(prefix, '.');
    if (end != NULL) {
        *end = '\0';
    }
}

static bool experts_are_quantized(const finder *f, const char *name)
{
    trm_layer_info layer;
    for (int32_t i = 0; trm_network_get_layer(f->quantized, i, &layer); i++) {
        if (layer.desc->kind == TRM_LAYER_EXPERTS && strcmp(layer.name, name) == 0) {
            return layer.n_inputs > TRM_EXPERTS_DOWN_SCALE && layer.inputs[TRM_EXPERTS_DOWN_SCALE] != NULL;
        }
    }
    return false;
}

/* false: they are stored as one weight. */
static trm_status add_experts(finder *f, group *g, const trm_layer_info *layer, bool *foldable)
{
    char prefix[512];
    const char *name;
    trm_dims dims;
    int32_t index = 0, count = 0;
    const bool quantized = experts_are_quantized(f, layer->name);
    expert_prefix(layer, prefix);
    while ((name = expert_weight(f, prefix, false, &index, &dims)) != NULL) {
        TRM_TRY(add_layer(g, name, dims.d[0], quantized));
        count++;
    }
    *foldable = *foldable && count > 0;
    return TRM_OK;
}

/* A group for the inner activations of each expert. */
static trm_status add_inner(finder *f, const trm_layer_info *layer)
{
    char prefix[512], expert[512], up[512];
    const char *name;
    trm_dims dims, up_dims;
    int32_t index = 0;
    expert_prefix(layer, prefix);
    while (experts_are_quantized(f, layer->name) && (name = expert_weight(f, prefix, true, &index, &dims)) != NULL) {
        group *g;
        const char *end = strchr(name + strlen(prefix) + 1, '.');
        snprintf(expert, sizeof(expert), "%.*s", (int)(end - name), name);
        TRM_TRY(add_group(f, expert, dims.d[1], &g));
        TRM_TRY(add_layer(g, name, dims.d[0], true));
        snprintf(up, sizeof(up), "%.490s.%s", expert, ends_with(name, ".w2.weight") ? "w3.weight" : "up_proj.weight");
        if (layer->inputs[TRM_EXPERTS_GATE_UP_BIAS] == NULL && trm_model_weight_dims(f->model, up, &up_dims) &&
            up_dims.d[0] == g->columns) {
            g->source = GROUP_SOURCE_LINEAR;
            g->weight = strdup(up);
        }
    }
    return TRM_OK;
}

/* ---- what makes an input ------------------------------------------------------------------------------------------
 */

static bool find_producer(const finder *f, const trm_tensor *tensor, trm_layer_info *layer)
{
    for (int32_t i = 0; trm_network_get_layer(f->network, i, layer); i++) {
        for (int32_t k = 0; k < layer->n_outputs; k++) {
            if (layer->outputs[k] == tensor) {
                return true;
            }
        }
    }
    return false;
}

static int32_t count_readers(const finder *f, const trm_tensor *tensor)
{
    int32_t n = 0;
    trm_layer_info layer;
    for (int32_t i = 0; trm_network_get_layer(f->network, i, &layer); i++) {
        for (int32_t k = 0; k < layer.n_inputs; k++) {
            n += layer.inputs[k] == tensor ? 1 : 0;
        }
    }
    return n;
}

/* The layer that makes a tensor, or what it is a view of, for its readers alone. */
static bool trace(const finder *f, const trm_tensor *tensor, trm_layer_info *layer)
{
    bool found = find_producer(f, tensor, layer);
    while (found && (layer->desc->kind == TRM_LAYER_RESHAPE || layer->desc->kind == TRM_LAYER_GATHER)) {
        const trm_tensor *from = layer->inputs[0];
        found = count_readers(f, from) == 1 && find_producer(f, from, layer);
    }
    return found;
}

static trm_status set_source(group *g, group_source source, const trm_tensor *weight, const trm_tensor *bias)
{
    g->source = source;
    g->weight = strdup(trm_tensor_name(weight));
    g->bias = bias != NULL ? strdup(trm_tensor_name(bias)) : NULL;
    if (g->weight == NULL || (bias != NULL && g->bias == NULL)) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "no memory for the name of a weight");
    }
    return TRM_OK;
}

/* A product [T, rows] that nothing else reads, with a stored weight of its own. */
static trm_status fold_product(const finder *f, group *g, const trm_tensor *tensor, int64_t rows)
{
    trm_layer_info layer;
    if (count_readers(f, tensor) != 1 || !trace(f, tensor, &layer) || layer.desc->kind != TRM_LAYER_MATMUL ||
        count_readers(f, layer.outputs[0]) != 1 || !is_stored(f, layer.inputs[1], rows)) {
        return TRM_OK;
    }
    const trm_tensor *bias = layer.n_inputs > 2 ? layer.inputs[2] : NULL;
    return bias == NULL || is_stored(f, bias, rows) ? set_source(g, GROUP_SOURCE_LINEAR, layer.inputs[1], bias)
                                                    : TRM_OK;
}

/* attention(q, k, v) [T, heads, width]: heads share those of v. */
static trm_status fold_attention(const finder *f, group *g, const trm_layer_info *attention)
{
    const trm_dims v = trm_tensor_dims(attention->inputs[TRM_ATTENTION_V]),
                   out = trm_tensor_dims(attention->outputs[0]);
    if (v.n != 3 || out.n != 3 || out.d[1] * out.d[2] != g->columns || v.d[2] != out.d[2] || out.d[1] % v.d[1] != 0) {
        return TRM_OK;
    }
    TRM_TRY(fold_product(f, g, attention->inputs[TRM_ATTENTION_V], v.d[1] * v.d[2]));
    if (g->source == GROUP_SOURCE_LINEAR) {
        g->repeat = out.d[1] / v.d[1];
        g->width = v.d[2];
    }
    return TRM_OK;
}

static trm_status find_source(const finder *f, group *g, const trm_tensor *x)
{
    trm_layer_info layer;
    if (!trace(f, x, &layer)) {
        return TRM_OK;
    }
    const trm_layer_desc *desc = layer.desc;
    const trm_tensor *bias = layer.n_inputs > 2 ? layer.inputs[2] : NULL;
    switch (desc->kind) {
    case TRM_LAYER_NORM:
        if (!desc->norm.residual && layer.n_inputs > 1 && is_stored(f, layer.inputs[1], g->columns) &&
            count_readers(f, layer.inputs[1]) == 1 && (bias == NULL || is_stored(f, bias, g->columns))) {
            TRM_TRY(set_source(g, GROUP_SOURCE_NORM, layer.inputs[1], bias));
            g->offset = desc->norm.weight_offset;
        }
        return TRM_OK;
    case TRM_LAYER_GLU:
        return fold_product(f, g, layer.inputs[1], g->columns);
    case TRM_LAYER_UNARY: /* relu(a x) = a relu(x) for a > 0 */
        return desc->unary.op == TRM_UNARY_ACTIVATION && desc->unary.activation == TRM_ACTIVATION_RELU
                   ? fold_product(f, g, layer.inputs[0], g->columns)
                   : TRM_OK;
    case TRM_LAYER_ATTENTION:
        return fold_attention(f, g, &layer);
    default:
        return TRM_OK;
    }
}

/* ---- all -------------------------------------------------------------------------------------------------------- */

/* Adds what reads x to the group; foldable: all of it takes factors. */
static trm_status add_readers(finder *f, group *g, const trm_tensor *x, bool *foldable)
{
    trm_layer_info layer;
    char name[512];
    int64_t rows;
    for (int32_t i = 0; trm_network_get_layer(f->network, i, &layer); i++) {
        const trm_layer_kind kind = layer.desc->kind;
        for (int32_t k = 0; k < layer.n_inputs; k++) {
            if (layer.inputs[k] != x) {
                continue;
            }
            if (k == 0 && ((kind == TRM_LAYER_MATMUL && layer.desc->matmul.transpose_b) || kind == TRM_LAYER_ROUTER) &&
                find_stored(f, layer.inputs[1], g->columns, name, &rows)) {
                TRM_TRY(add_layer(g, name, rows, is_quantized(f, name)));
            } else if (k == TRM_EXPERTS_X && kind == TRM_LAYER_EXPERTS) {
                TRM_TRY(add_experts(f, g, &layer, foldable));
            } else {
                *foldable = false;
            }
        }
    }
    return TRM_OK;
}

static bool has_group(const groups *all, const char *tensor)
{
    for (int32_t i = 0; i < all->n; i++) {
        if (strcmp(all->list[i].tensor, tensor) == 0) {
            return true;
        }
    }
    return false;
}

/* Drops the last group if it has no layer to quantize. */
static void drop_plain(groups *all)
{
    const group *g = &all->list[all->n - 1];
    for (int32_t i = 0; i < g->n_layers; i++) {
        if (g->layers[i].is_quantized) {
            return;
        }
    }
    groups last = {malloc(sizeof(group)), 1};
    if (last.list != NULL) {
        last.list[0] = *g;
        groups_fini(&last);
        all->n--;
    }
}

trm_status groups_find(const trm_model *model, const trm_network *network, const trm_network *quantized, groups *found)
{
    finder f = {model, network, quantized, found};
    trm_layer_info layer;
    *found = (groups){0};
    for (int32_t i = 0; trm_network_get_layer(network, i, &layer); i++) {
        const trm_layer_kind kind = layer.desc->kind;
        const bool is_product = kind == TRM_LAYER_MATMUL && layer.desc->matmul.transpose_b;
        const trm_tensor *x = is_product || kind == TRM_LAYER_EXPERTS ? layer.inputs[0] : NULL;
        const trm_dims dims = x != NULL ? trm_tensor_dims(x) : (trm_dims){0};
        bool foldable = true;
        group *g;
        if (dims.n == 2 && !has_group(found, trm_tensor_name(x))) {
            TRM_TRY(add_group(&f, trm_tensor_name(x), dims.d[1], &g));
            TRM_TRY(add_readers(&f, g, x, &foldable));
            TRM_TRY(foldable ? find_source(&f, g, x) : TRM_OK);
            drop_plain(found);
        }
        TRM_TRY(kind == TRM_LAYER_EXPERTS ? add_inner(&f, &layer) : TRM_OK);
    }
    return TRM_OK;
}
