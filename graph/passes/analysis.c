/*
 * Uses and classes of dims.
 *
 * Two unknown dimensions of one class are equal in every run. A class starts at an input or state and follows
 * the rules of layers; where a rule makes a new size, a new class starts. Nothing is computed with sizes.
 */
#include "graph/passes/analysis.h"

#include <stdlib.h>

#include "base/error.h"
#include "graph/regions.h"

/* ---- classes of dims --------------------------------------------------------------------------- */

typedef struct class_walk {
    trm_analysis *analysis;
    int32_t next; /* the next class nobody has */
} class_walk;

/* Axis `to` of `out` is axis `from` of `in`, or a new size if `in` is NULL. */
static void set_class(class_walk *walk, const trm_tensor *out, int32_t to, const trm_tensor *in, int32_t from)
{
    bool follows = in != NULL && in->dims.d[from] == -1;
    walk->analysis->dim_class[out->index][to] = follows ? walk->analysis->dim_class[in->index][from] : walk->next++;
}

/* All axes of `out` are those of `in`; those before `rank` of it only. */
static void follow_axes(class_walk *walk, const trm_tensor *out, const trm_tensor *in, int32_t rank)
{
    for (int32_t i = 0; i < out->dims.n; i++) {
        set_class(walk, out, i, i < rank ? in : NULL, i);
    }
}

/* The leading axes of `out`, broadcast from a and b without their last `skip`. */
static void follow_broadcast(class_walk *walk, const trm_tensor *out, const trm_tensor *a, const trm_tensor *b,
                             int32_t skip)
{
    for (int32_t i = 0; i < out->dims.n - skip; i++) {
        int32_t at_a = i - (out->dims.n - a->dims.n), at_b = i - (out->dims.n - b->dims.n);
        bool has_a = at_a >= 0 && a->dims.d[at_a] == -1, has_b = at_b >= 0 && b->dims.d[at_b] == -1;
        int32_t class_a = has_a ? walk->analysis->dim_class[a->index][at_a] : -1;
        int32_t class_b = has_b ? walk->analysis->dim_class[b->index][at_b] : -1;
        if (has_a && has_b && class_a != class_b) {
            set_class(walk, out, i, NULL, 0);
        } else {
            set_class(walk, out, i, has_a ? a : has_b ? b : NULL, has_a ? at_a : at_b);
        }
    }
}

/* The axes of `out`, to which all inputs broadcast: unknown ones are the same where every input that is unknown there
 * agrees. */
static void follow_inputs(class_walk *walk, const trm_layer *layer, const trm_tensor *out)
{
    for (int32_t i = 0; i < out->dims.n; i++) {
        const trm_tensor *from = NULL;
        int32_t from_axis = 0;
        bool agree = true;
        for (int32_t k = 0; k < layer->n_inputs; k++) {
            const trm_tensor *in = layer->inputs[k];
            int32_t axis = i - (out->dims.n - in->dims.n);
            if (axis < 0 || in->dims.d[axis] != -1) {
                continue;
            }
            agree = agree && (from == NULL || walk->analysis->dim_class[from->index][from_axis] ==
                                                  walk->analysis->dim_class[in->index][axis]);
            from = in;
            from_axis = axis;
        }
        set_class(walk, out, i, agree ? from : NULL, from_axis);
    }
}

static void follow_fused(class_walk *walk, const trm_layer *layer)
{
    follow_inputs(walk, layer, layer->outputs[0]);
    for (int32_t i = 1; i < layer->n_outputs; i++) {
        follow_axes(walk, layer->outputs[i], layer->outputs[0], layer->outputs[0]->dims.n);
    }
}

/* The one axis of a reshape's input that its -1 stands for, or -1. */
static int32_t inferred_from(const trm_dims *in, const trm_dims *wanted)
{
    int64_t from = 1, to = 1;
    int32_t axis = -1;
    for (int32_t i = 0; i < in->n; i++) {
        if (i < wanted->n && wanted->d[i] == 0) {
            continue;
        }
        if (in->d[i] == -1) {
            if (axis >= 0) {
                return -1;
            }
            axis = i;
        } else {
            from *= in->d[i];
        }
    }
    for (int32_t i = 0; i < wanted->n; i++) {
        to *= wanted->d[i] > 0 ? wanted->d[i] : 1;
    }
    return from == to && from != 0 ? axis : -1;
}

static void follow_reshape(class_walk *walk, const trm_layer *layer)
{
    const trm_tensor *in = layer->inputs[0], *out = layer->outputs[0];
    const trm_dims *wanted = &layer->desc.reshape.dims;
    int32_t inferred = inferred_from(&in->dims, wanted);
    for (int32_t i = 0; i < out->dims.n; i++) {
        if (wanted->d[i] == 0) {
            set_class(walk, out, i, in, i);
        } else {
            set_class(walk, out, i, wanted->d[i] == -1 && inferred >= 0 ? in : NULL, inferred);
        }
    }
}

static void follow_gather(class_walk *walk, const trm_layer *layer)
{
    const trm_tensor *data = layer->inputs[0], *indices = layer->inputs[1], *out = layer->outputs[0];
    int32_t axis = layer->desc.gather.axis;
    for (int32_t i = 0; i < out->dims.n; i++) {
        if (i >= axis && i < axis + indices->dims.n) {
            set_class(walk, out, i, indices, i - axis);
        } else {
            set_class(walk, out, i, data, i < axis ? i : i - indices->dims.n + 1);
        }
    }
}

static void follow_matmul(class_walk *walk, const trm_layer *layer)
{
    const trm_tensor *a = layer->inputs[0], *b = layer->inputs[1], *out = layer->outputs[0];
    const trm_matmul_params *matmul = &layer->desc.matmul;
    follow_broadcast(walk, out, a, b, 2);
    set_class(walk, out, out->dims.n - 2, a, a->dims.n - (matmul->transpose_a ? 1 : 2));
    set_class(walk, out, out->dims.n - 1, b, b->dims.n - (matmul->transpose_b ? 2 : 1));
}

/* All axes but one are those of the first input. */
static void follow_but(class_walk *walk, const trm_layer *layer, int32_t axis)
{
    follow_axes(walk, layer->outputs[0], layer->inputs[0], layer->inputs[0]->dims.n);
    set_class(walk, layer->outputs[0], axis, NULL, 0);
}

/* Dims of a RECV that names axes of its inputs. */
static void follow_receive(class_walk *walk, const trm_layer *layer)
{
    const trm_tensor *out = layer->outputs[0];
    for (int32_t i = 0; i < out->dims.n; i++) {
        int64_t axes = -layer->desc.collective.dims.d[i], k = 0;
        int32_t j = 0;
        bool is_one = axes > 0 && (axes & (axes - 1)) == 0;
        while (is_one && axes >> k != 1) {
            k++;
        }
        for (; is_one && j < layer->n_inputs && k >= layer->inputs[j]->dims.n; j++) {
            k -= layer->inputs[j]->dims.n;
        }
        bool follows = is_one && j < layer->n_inputs;
        set_class(walk, out, i, follows ? layer->inputs[j] : NULL, follows ? (int32_t)k : 0);
    }
}

static void follow_collective(class_walk *walk, const trm_layer *layer)
{
    if (layer->desc.collective.op == TRM_RECV && layer->desc.collective.dtype != TRM_DTYPE_NONE) {
        follow_receive(walk, layer);
        return;
    }
    switch (layer->desc.collective.op) {
    case TRM_ALL_GATHER:
    case TRM_GATHER:
    case TRM_REDUCE_SCATTER:
    case TRM_SCATTER:
        follow_but(walk, layer, layer->desc.collective.axis);
        break;
    default:
        follow_axes(walk, layer->outputs[0], layer->inputs[0], layer->inputs[0]->dims.n);
        break;
    }
}

static void follow_reduce(class_walk *walk, const trm_layer *layer)
{
    const trm_tensor *out = layer->outputs[0];
    bool shifts = !layer->desc.reduce.keep_dims;
    for (int32_t i = 0; i < out->dims.n; i++) {
        set_class(walk, out, i, layer->inputs[0], shifts && i >= layer->desc.reduce.axis ? i + 1 : i);
    }
}

/* Unknown dims of all outputs may be anything. */
static void follow_nothing(class_walk *walk, const trm_layer *layer)
{
    for (int32_t i = 0; i < layer->n_outputs; i++) {
        follow_axes(walk, layer->outputs[i], NULL, 0);
    }
}

/* Windows over images: the batch stays, and axes whose padding makes up for the window. */
static void follow_window(class_walk *walk, const trm_layer *layer)
{
    const bool pool = layer->desc.kind == TRM_LAYER_POOL;
    const trm_convolution_params *c = &layer->desc.convolution;
    const trm_pool_params *p = &layer->desc.pool;
    const bool last = pool ? p->channels_last : c->channels_last;
    for (int32_t o = 0; o < layer->n_outputs; o++) {
        const trm_tensor *out = layer->outputs[o];
        for (int32_t i = 0; i < out->dims.n; i++) {
            const int32_t k = i - (last ? 1 : 2), channels = last ? out->dims.n - 1 : 1;
            bool stays = i == 0 || (i == channels && pool);
            if (k >= 0 && k < TRM_MAX_SPATIAL && i != channels) {
                const int64_t kernel = pool ? p->kernel[k] : layer->inputs[1]->dims.d[i];
                const int64_t gaps = (pool ? p->dilation[k] : c->dilation[k]) * (kernel - 1);
                const int64_t pads = pool ? (int64_t)p->before[k] + p->after[k] : (int64_t)c->before[k] + c->after[k];
                const bool same = (pool ? p->auto_pad : c->auto_pad) != TRM_AUTO_PAD_NONE;
                stays = (pool ? p->stride[k] : c->stride[k]) == 1 && (same || (kernel != -1 && pads == gaps));
            }
            set_class(walk, out, i, stays ? layer->inputs[0] : NULL, i);
        }
    }
}

/* Axes of the input that are not asked to be of another size. */
static void follow_expand(class_walk *walk, const trm_layer *layer)
{
    const trm_tensor *in = layer->inputs[0], *out = layer->outputs[0];
    const trm_dims *sizes = &layer->desc.expand.dims;
    for (int32_t i = 0; i < out->dims.n; i++) {
        int32_t own = i - (out->dims.n - in->dims.n), asked = i - (out->dims.n - sizes->n);
        bool follows = own >= 0 && layer->n_inputs == 1 && (asked < 0 || sizes->d[asked] == 1);
        set_class(walk, out, i, follows ? in : NULL, follows ? own : 0);
    }
}

/* Axes that are not padded, or repeated once. */
static void follow_kept(class_walk *walk, const trm_layer *layer)
{
    const trm_tensor *in = layer->inputs[0], *out = layer->outputs[0];
    const trm_tensor *by = layer->n_inputs > 1 ? layer->inputs[1] : NULL;
    const int64_t *values = by != NULL && by->dtype == TRM_I64 ? by->value : NULL;
    for (int32_t i = 0; i < out->dims.n; i++) {
        bool kept = values != NULL && values[i] == 1;
        if (layer->desc.kind == TRM_LAYER_PAD) {
            kept = by == NULL       ? layer->desc.pad.before[i] == 0 && layer->desc.pad.after[i] == 0
                   : values != NULL ? values[i] == 0 && values[in->dims.n + i] == 0
                                    : false;
        }
        set_class(walk, out, i, kept ? in : NULL, kept ? i : 0);
    }
}

static void follow_layer(class_walk *walk, const trm_layer *layer)
{
    const trm_tensor *in = layer->inputs[0], *out = layer->outputs[0];
    switch (layer->desc.kind) {
    case TRM_LAYER_RESHAPE:
        if (layer->n_inputs > 1) {
            follow_nothing(walk, layer);
        } else {
            follow_reshape(walk, layer);
        }
        break;
    case TRM_LAYER_TRANSPOSE:
        for (int32_t i = 0; i < out->dims.n; i++) {
            set_class(walk, out, i, in, layer->desc.transpose.perm[i]);
        }
        break;
    case TRM_LAYER_SLICE:
        follow_but(walk, layer, layer->desc.slice.axis);
        break;
    case TRM_LAYER_CONCAT:
        follow_but(walk, layer, layer->desc.concat.axis);
        break;
    case TRM_LAYER_GATHER:
        follow_gather(walk, layer);
        break;
    case TRM_LAYER_EMBEDDING:
        set_class(walk, out, 0, layer->inputs[1], 0);
        set_class(walk, out, 1, in, 1);
        break;
    case TRM_LAYER_MATMUL:
        follow_matmul(walk, layer);
        break;
    case TRM_LAYER_DEQUANT_MATMUL:
    case TRM_LAYER_MATMUL_GLU:
        follow_axes(walk, out, in, in->dims.n - 1);
        break;
    case TRM_LAYER_NORM_MATMUL: /* the sum has all axes of x */
        for (int32_t i = 0; i < layer->n_outputs; i++) {
            follow_axes(walk, layer->outputs[i], in, in->dims.n - (i == 0));
        }
        break;
    case TRM_LAYER_ELEMENTWISE:
        follow_broadcast(walk, out, in, layer->inputs[1], 0);
        break;
    case TRM_LAYER_SELECT:
    case TRM_LAYER_FUSED_ELEMENTWISE:
        follow_fused(walk, layer);
        break;
    case TRM_LAYER_GLU:
        follow_axes(walk, out, in, layer->n_inputs == 2 ? in->dims.n : in->dims.n - 1);
        break;
    case TRM_LAYER_REDUCE:
        follow_reduce(walk, layer);
        break;
    case TRM_LAYER_ATTENTION:
        follow_axes(walk, out, in, in->dims.n - 1);
        set_class(walk, out, out->dims.n - 1, layer->inputs[TRM_ATTENTION_V], out->dims.n - 1);
        break;
    case TRM_LAYER_QKV_ATTENTION:
        follow_axes(walk, out, in, 1);
        break;
    case TRM_LAYER_DIST_COLLECTIVE:
        follow_collective(walk, layer);
        break;
    case TRM_LAYER_EXPAND:
        follow_expand(walk, layer);
        break;
    case TRM_LAYER_PAD:
    case TRM_LAYER_TILE:
        follow_kept(walk, layer);
        break;
    case TRM_LAYER_ENTER:
    case TRM_LAYER_LOOP_OUTPUT:
        follow_axes(walk, out, in, out->dims.n);
        break;
    case TRM_LAYER_GATHER_ELEMENTS:
        follow_axes(walk, out, layer->inputs[1], out->dims.n);
        break;
    case TRM_LAYER_ARG_REDUCE:
        for (int32_t i = 0; i < out->dims.n; i++) {
            bool shifts = !layer->desc.arg_reduce.keep_dims;
            set_class(walk, out, i, in, shifts && i >= layer->desc.arg_reduce.axis ? i + 1 : i);
        }
        break;
    case TRM_LAYER_CONVOLUTION:
    case TRM_LAYER_POOL:
        follow_window(walk, layer);
        break;
    case TRM_LAYER_DECONVOLUTION:
    case TRM_LAYER_DEFORMABLE_CONVOLUTION:
    case TRM_LAYER_GRID_SAMPLE:
    case TRM_LAYER_COL2IM:
        for (int32_t i = 0; i < layer->n_outputs; i++) { /* the batch */
            follow_axes(walk, layer->outputs[i], in, 1);
        }
        break;
    case TRM_LAYER_CAST:
    case TRM_LAYER_UNARY:
    case TRM_LAYER_NORM:
    case TRM_LAYER_SOFTMAX:
    case TRM_LAYER_ROPE:
    case TRM_LAYER_ROTATE:
    case TRM_LAYER_SCATTER:
    case TRM_LAYER_REVERSE_SEQUENCE:
    case TRM_LAYER_CUMULATIVE:
    case TRM_LAYER_GROUP_NORM:
    case TRM_LAYER_LRN:
    case TRM_LAYER_QUANTIZE:
    case TRM_LAYER_DEQUANTIZE: /* the same dims for every output */
        for (int32_t i = 0; i < layer->n_outputs; i++) {
            follow_axes(walk, layer->outputs[i], in, in->dims.n);
        }
        break;
    default:
        follow_nothing(walk, layer);
        break;
    }
}

static void find_classes(const trm_network *network, trm_analysis *analysis)
{
    class_walk walk = {analysis, 0};
    for (int32_t i = 0; i < network->n_tensors; i++) {
        const trm_tensor *tensor = network->tensors[i];
        for (int32_t j = 0; tensor->role != TRM_TENSOR_ACTIVATION && j < tensor->dims.n; j++) {
            set_class(&walk, tensor, j, NULL, 0);
        }
    }
    for (int32_t i = 0; i < network->n_layers; i++) {
        follow_layer(&walk, network->layers[i]);
    }
    analysis->n_classes = walk.next;
}

bool trm_analysis_same_dims(const trm_analysis *analysis, const trm_tensor *a, const trm_tensor *b)
{
    bool same = trm_dims_equal(&a->dims, &b->dims);
    for (int32_t i = 0; same && i < a->dims.n; i++) {
        same = a->dims.d[i] != -1 || analysis->dim_class[a->index][i] == analysis->dim_class[b->index][i];
    }
    return same;
}

/* ---- uses -------------------------------------------------------------------------------------- */

static void count_uses(const trm_network *network, trm_analysis *analysis)
{
    for (int32_t i = 0; i < network->n_layers; i++) {
        trm_layer *layer = network->layers[i];
        for (int32_t j = 0; j < layer->n_inputs; j++) {
            if (layer->inputs[j] != NULL) {
                int32_t index = layer->inputs[j]->index;
                analysis->user[index] = analysis->use_count[index]++ == 0 ? layer : NULL;
            }
        }
    }
    for (int32_t i = 0; i < network->n_outputs; i++) {
        int32_t index = network->outputs[i]->index;
        analysis->use_count[index]++;
        analysis->user[index] = NULL;
    }
}

trm_layer *trm_analysis_only_user(const trm_analysis *analysis, const trm_tensor *tensor)
{
    trm_layer *user = tensor->pin == NULL ? analysis->user[tensor->index] : NULL;
    return user != NULL && !analysis->touched[user->index] ? user : NULL;
}

trm_layer *trm_analysis_private_producer(const trm_analysis *analysis, const trm_tensor *tensor, trm_layer_kind kind)
{
    trm_layer *producer = tensor == NULL ? NULL : tensor->producer;
    bool is_private = producer != NULL && producer->desc.kind == kind && !analysis->touched[producer->index] &&
                      trm_analysis_only_user(analysis, tensor) != NULL;
    return is_private ? producer : NULL;
}

bool trm_layer_has_effects(const trm_layer *layer)
{
    if (trm_layer_collective(&layer->desc) != NULL) {
        return true;
    }
    if (trm_kind_is_control(layer->desc.kind)) { /* the walk goes as they say */
        return layer->desc.kind != TRM_LAYER_ENTER && layer->desc.kind != TRM_LAYER_MERGE &&
               layer->desc.kind != TRM_LAYER_LOOP_OUTPUT;
    }
    for (int32_t i = 0; i < layer->n_inputs; i++) {
        if (layer->inputs[i] != NULL && layer->inputs[i]->role == TRM_TENSOR_STATE) {
            return true;
        }
    }
    return layer->desc.kind == TRM_LAYER_ATTENTION && layer->desc.attention.n_ranks > 1;
}

/* ---- life -------------------------------------------------------------------------------------- */

trm_status trm_analysis_init(const trm_network *network, trm_analysis *analysis)
{
    size_t tensors = (size_t)network->n_tensors + 1, layers = (size_t)network->n_layers + 1;
    *analysis = (trm_analysis){.n_tensors = network->n_tensors, .n_layers = network->n_layers};
    analysis->use_count = calloc(tensors, sizeof(*analysis->use_count));
    analysis->user = calloc(tensors, sizeof(trm_layer *));
    analysis->dim_class = calloc(tensors, sizeof(*analysis->dim_class));
    analysis->touched = calloc(layers, sizeof(*analysis->touched));
    if (analysis->use_count == NULL || analysis->user == NULL || analysis->dim_class == NULL ||
        analysis->touched == NULL) {
        trm_analysis_fini(analysis);
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot analyze a network of %zu tensors", tensors);
    }
    count_uses(network, analysis);
    find_classes(network, analysis);
    return TRM_OK;
}

void trm_analysis_fini(trm_analysis *analysis)
{
    free(analysis->use_count);
    free(analysis->user);
    free(analysis->dim_class);
    free(analysis->touched);
    *analysis = (trm_analysis){0};
}
