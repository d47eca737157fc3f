/*
 * The strategies of every layer kind: with which forms of its inputs a layer can run on each rank without
 * communication, and the resulting forms of its outputs.
 *
 * Three observations give nearly all of them, for any kind:
 *   - everything whole on every rank, always;
 *   - an axis of the output that follows an axis of the inputs may be split (graph/axis_links.h);
 *   - a layer that is linear in some inputs maps their partial sums to a partial sum.
 * The rest is specific to a kind: a product over a split inner axis, an embedding table split by rows, a sum over a
 * split axis, attention heads. The row of the kind (graph/kinds/kind.h) has these facts.
 */
#include "dist/partition/problem.h"

#include <string.h>

#include "base/error.h"
#include "graph/kinds/kind.h"

/* ---- forms ------------------------------------------------------------------------------------- */

bool trm_sharding_is_even(const trm_dims *dims, const trm_sharding *sharding)
{
    return sharding->kind != TRM_SPLIT || dims->d[sharding->axis] < 0 || dims->d[sharding->axis] % sharding->parts == 0;
}

int32_t trm_partition_form(trm_partition_tensor *tensor, const trm_sharding *sharding)
{
    for (int32_t i = 0; i < tensor->n_forms; i++) {
        const trm_sharding *form = &tensor->forms[i];
        if (form->kind == sharding->kind &&
            (form->kind == TRM_REPLICATED ||
             (form->parts == sharding->parts && (form->kind == TRM_PARTIAL || form->axis == sharding->axis)))) {
            return i;
        }
    }
    if (tensor->n_forms == TRM_MAX_FORMS) {
        return -1;
    }
    tensor->forms[tensor->n_forms] = *sharding;
    return tensor->n_forms++;
}

/* ---- ways as strategies ------------------------------------------------------------------------ */

/* Collects ways for the partitioner. */
typedef struct strategy_taker {
    trm_way_taker base;
    trm_partitioner *partitioner;
} strategy_taker;

bool trm_sharding_is_possible(const trm_tensor *tensor, const trm_sharding *form)
{
    if (form->kind == TRM_PARTIAL) {
        return tensor->role == TRM_TENSOR_ACTIVATION && trm_dtype_is_float(tensor->dtype);
    }
    if (form->kind == TRM_REPLICATED) {
        return true;
    }
    int64_t size = tensor->dims.d[form->axis];
    if (size < form->parts || trm_ceil_div(size, form->parts) * (form->parts - 1) >= size) {
        return false; /* unknown sizes are -1 */
    }
    return trm_sharding_is_even(&tensor->dims, form) || tensor->role == TRM_TENSOR_ACTIVATION ||
           tensor->role == TRM_TENSOR_CONSTANT;
}

/* The same if the batch is split: nothing else is. */
static bool batch_is_possible(const trm_partition_tensor *t, const trm_sharding *form)
{
    const trm_tensor *tensor = t->tensor;
    if (form->kind != TRM_SPLIT) {
        return trm_sharding_is_possible(tensor, form);
    }
    const bool is_constant = tensor->role == TRM_TENSOR_CONSTANT;
    return tensor->dims.d[form->axis] != 0 && trm_sharding_is_even(&tensor->dims, form) &&
           (is_constant || t->batch_axis == form->axis);
}

/* Adds a form to a tensor; false if it cannot have the form or is pinned to another. */
static bool admit(trm_partitioner *partitioner, const trm_tensor *tensor, const trm_sharding *form, uint8_t *index)
{
    trm_partition_tensor *t = &partitioner->tensors[tensor->index];
    bool decides_dims = form->kind != TRM_REPLICATED && trm_inference_wants(partitioner->inference, tensor);
    const bool shares = partitioner->shares_batch;
    if (decides_dims || !(shares ? batch_is_possible(t, form) : trm_sharding_is_possible(tensor, form))) {
        return false;
    }
    int32_t found = trm_partition_form(t, form);
    bool fixed = tensor->role == TRM_TENSOR_CONSTANT || tensor->role == TRM_TENSOR_STATE;
    if (found < 0 || (fixed && t->pin >= 0 && t->pin != found)) {
        return false;
    }
    *index = (uint8_t)found;
    return true;
}

/* Adds a strategy unless a tensor cannot have its form. */
static trm_status take(trm_way_taker *self, const trm_layer *layer, const trm_way *way)
{
    trm_partitioner *partitioner = ((strategy_taker *)self)->partitioner;
    trm_partition_layer *made = &partitioner->layers[layer->index];
    trm_strategy strategy = {{0}, {0}, 0.0};
    for (int32_t i = 0; i < layer->n_inputs; i++) {
        if (layer->inputs[i] != NULL && !admit(partitioner, layer->inputs[i], &way->in[i], &strategy.inputs[i])) {
            return TRM_OK;
        }
    }
    for (int32_t i = 0; i < layer->n_outputs; i++) {
        if (!admit(partitioner, layer->outputs[i], &way->out[i], &strategy.outputs[i])) {
            return TRM_OK;
        }
    }
    if (made->n_strategies == made->capacity) {
        int32_t capacity = made->capacity == 0 ? 8 : made->capacity * 2;
        trm_strategy *grown = trm_arena_array(&partitioner->arena, (size_t)capacity, sizeof(*grown));
        if (grown == NULL) {
            return TRM_ERROR_OUT_OF_MEMORY;
        }
        if (made->n_strategies > 0) {
            memcpy(grown, made->strategies, (size_t)made->n_strategies * sizeof(*grown));
        }
        made->strategies = grown;
        made->capacity = capacity;
    }
    made->strategies[made->n_strategies++] = strategy;
    return TRM_OK;
}

/* Splits along every possible axis of the outputs, and the inputs' axes that it follows. */
static trm_status offer_axis(trm_way_taker *taker, const trm_layer *layer, int32_t k, int32_t parts)
{
    const trm_kind *kind = trm_kind_of(layer);
    trm_way way = trm_way_whole();
    uint32_t inputs = 0;
    int64_t size = layer->outputs[0]->dims.d[k];
    bool is_even = size % parts == 0;
    for (int32_t i = 0; i < layer->n_inputs; i++) {
        if (layer->inputs[i] == NULL) {
            continue;
        }
        int32_t axis = trm_layer_axis_link(layer, k, i);
        if (axis == TRM_LINK_NEVER) {
            return TRM_OK;
        }
        if (axis == TRM_LINK_WHOLE) {
            continue;
        }
        int64_t linked = layer->inputs[i]->dims.d[axis];
        if (linked != size && (layer->desc.kind != TRM_LAYER_RESHAPE || linked % parts != 0 || !is_even)) {
            return TRM_OK;
        }
        way.in[i] = trm_split(axis, parts);
        inputs |= 1u << i;
    }
    for (int32_t i = 0; i < layer->n_outputs; i++) {
        way.out[i] = trm_split(k, parts);
    }
    bool keeps = is_even || (kind->keeps_zero != NULL && kind->keeps_zero(layer, inputs));
    return keeps ? taker->take(taker, layer, &way) : TRM_OK;
}

/* Partial sums, for inputs in which the layer is linear. */
static trm_status offer_partial(trm_way_taker *taker, const trm_layer *layer, int32_t parts)
{
    const trm_kind *kind = trm_kind_of(layer);
    for (int32_t s = 0; s < (int32_t)(sizeof(kind->linear) / sizeof(kind->linear[0])) && kind->linear[s] != 0; s++) {
        trm_way way = trm_way_whole();
        for (int32_t i = 0; i < layer->n_inputs; i++) {
            way.in[i] = (kind->linear[s] >> i & 1) != 0 ? trm_partial(parts) : trm_replicated();
        }
        way.out[0] = trm_partial(parts);
        bool linear = kind->is_linear == NULL || kind->is_linear(layer, kind->linear[s]);
        if (kind->linear_if.offset != 0) {
            linear = (kind->linear_if.values >> trm_kind_value(layer, kind->linear_if.offset) & 1) != 0;
        }
        TRM_TRY(linear ? taker->take(taker, layer, &way) : TRM_OK);
    }
    return TRM_OK;
}

/* ---- all layers -------------------------------------------------------------------------------- */

static void add_parts(trm_partitioner *partitioner, int32_t parts)
{
    for (int32_t i = 0; i < partitioner->n_parts; i++) {
        if (partitioner->parts[i] == parts) {
            return;
        }
    }
    if (parts > 1 && partitioner->n_parts < (int32_t)(sizeof(partitioner->parts) / sizeof(partitioner->parts[0]))) {
        partitioner->parts[partitioner->n_parts++] = parts;
    }
}

/* Splits of the batch, and sums over it. */
static trm_status offer_batch(strategy_taker *self, const trm_layer *layer)
{
    const trm_batch_axes *axes = &self->partitioner->layers[layer->index].batch;
    const trm_kind *kind = trm_kind_of(layer);
    const int32_t n = self->partitioner->n;
    trm_way way = trm_way_whole();
    for (int32_t i = 0; i < layer->n_inputs; i++) {
        way.in[i] = axes->inputs[i] < 0 ? trm_replicated() : trm_split(axes->inputs[i], n);
    }
    for (int32_t i = 0; i < layer->n_outputs; i++) {
        way.out[i] = axes->outputs[i] < 0 ? trm_replicated() : trm_split(axes->outputs[i], n);
    }
    TRM_TRY(axes->can ? take(&self->base, layer, &way) : TRM_OK);
    TRM_TRY(offer_partial(&self->base, layer, n));
    if (kind->shard_batch == NULL) {
        return TRM_OK;
    }
    self->base.batch_axis = self->partitioner->tensors[layer->inputs[0]->index].batch_axis;
    return kind->shard_batch(layer, n, &self->base);
}

static trm_status enumerate_layer(trm_partitioner *partitioner, const trm_layer *layer)
{
    strategy_taker self = {{.take = take, .shares_rows = partitioner->shares_rows}, partitioner};
    const trm_kind *kind = trm_kind_of(layer);
    const trm_way whole = trm_way_whole();
    const bool has_share = partitioner->shares_tokens && trm_partition_has_cache(layer); /* of its cache */
    TRM_TRY(has_share ? TRM_OK : take(&self.base, layer, &whole));
    if (partitioner->shares_batch) {
        return offer_batch(&self, layer);
    }
    for (int32_t i = 0; i < partitioner->n_parts; i++) {
        int32_t parts = partitioner->parts[i];
        for (int32_t k = 0; k < layer->outputs[0]->dims.n; k++) {
            TRM_TRY(offer_axis(&self.base, layer, k, parts));
        }
        TRM_TRY(offer_partial(&self.base, layer, parts));
        TRM_TRY(kind->shard == NULL ? TRM_OK : kind->shard(layer, parts, &self.base));
    }
    if (partitioner->layers[layer->index].n_strategies == 0) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "layer %s cannot run over %d ranks with its constants and states pinned like this", layer->name,
                 partitioner->n);
    }
    return TRM_OK;
}

static trm_status enumerate_layers(trm_partitioner *partitioner)
{
    for (int32_t i = 0; i < partitioner->network->n_layers; i++) {
        TRM_TRY(enumerate_layer(partitioner, partitioner->network->layers[i]));
    }
    return TRM_OK;
}

trm_status trm_partition_enumerate(trm_partitioner *partitioner)
{
    const trm_network *network = partitioner->network;
    add_parts(partitioner, partitioner->n);
    for (int32_t i = 0; i < network->n_layers; i++) {
        const bool by_heads = !partitioner->shares_rows && !partitioner->shares_batch;
        if (by_heads) {
            int32_t kv_parts;
            add_parts(partitioner, trm_attention_head_parts(network->layers[i], partitioner->n, &kv_parts));
            add_parts(partitioner, kv_parts);
        }
    }
    TRM_TRY(trm_inference_create(network, &partitioner->inference));
    trm_status status = TRM_OK;
    if (partitioner->shares_batch) {
        status = trm_partition_find_batch(partitioner, &partitioner->has_batch);
    }
    status = status == TRM_OK ? enumerate_layers(partitioner) : status;
    trm_inference_destroy(partitioner->inference);
    partitioner->inference = NULL;
    return status;
}
