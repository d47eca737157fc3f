/*
 * Layers of plugins: plugin. What their rows would say is asked of the plugin's table.
 *
 * A split of the table is a way to run over ranks, if the rule agrees with it for the dims of the layer: one that is
 * written for rows may not be one of vectors. Where it cuts one axis of all outputs, it also links that axis to those
 * of the inputs, so that batches are split along it, too.
 */
#include "graph/kinds/kind.h"

#include "base/error.h"
#include "kernels/plugin/plugin.h"

static trm_status infer_plugin(const trm_infer_call *call)
{
    const trm_plugin_layer *layer = trm_plugin_layer_of(call->desc);
    trm_plugin_tensor inputs[TRM_MAX_LAYER_INPUTS] = {{0}};
    if (layer == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "found layer %d of a plugin, which does not exist",
                 (int)call->desc->plugin.layer);
    }
    TRM_TRY(trm_infer_require_inputs(call, layer->plugin->table.least_inputs, layer->plugin->table.most_inputs));
    for (int32_t i = 0; i < call->n_inputs; i++) {
        if (trm_infer_has(call, i)) {
            inputs[i] = (trm_plugin_tensor){
                .dtype = call->dtypes[i],
                .dims = *call->dims[i],
                .values =
                    call->values == NULL || !(layer->plugin->table.value_inputs >> i & 1) ? NULL : call->values[i]};
        }
    }
    return trm_plugin_infer(layer, inputs, call->n_inputs, call->output_dims, call->output_dtypes);
}

static int32_t plugin_outputs(const trm_layer_desc *desc)
{
    const trm_plugin_layer *layer = trm_plugin_layer_of(desc);
    return layer == NULL ? 1 : layer->plugin->table.n_outputs;
}

static uint32_t plugin_value_inputs(const trm_layer_desc *desc)
{
    const trm_plugin_layer *layer = trm_plugin_layer_of(desc);
    return layer == NULL ? 0 : layer->plugin->table.value_inputs;
}

/* ---- splits ------------------------------------------------------------------------------------ */

/* The axis of a tensor that a split cuts; LINK_WHOLE: none; LINK_NEVER: it has no such axis. */
static int32_t axis_of(int8_t form, const trm_tensor *tensor)
{
    const int32_t axis = form > 0 ? form - 1 : form + tensor->dims.n;
    if (form == TRM_PLUGIN_WHOLE || form == TRM_PLUGIN_SUM) {
        return TRM_LINK_WHOLE;
    }
    return axis < 0 || axis >= tensor->dims.n ? TRM_LINK_NEVER : axis;
}

/* The dims of a tensor, twice as long along the axis that a split cuts; false if it has no such axis. */
static bool lengthen(int8_t form, const trm_tensor *tensor, trm_dims *dims)
{
    const int32_t axis = axis_of(form, tensor);
    *dims = tensor->dims;
    if (axis >= 0 && dims->d[axis] > 0) {
        dims->d[axis] *= 2;
    }
    return axis != TRM_LINK_NEVER;
}

/* Whether the rule agrees that tensors of this layer grow and shrink together along the axes of a split. */
static bool holds(const trm_plugin_split *split, const trm_layer *layer)
{
    trm_dims in[TRM_MAX_LAYER_INPUTS], out[TRM_MAX_LAYER_OUTPUTS], expected;
    const trm_dims *dims[TRM_MAX_LAYER_INPUTS];
    trm_dtype types[TRM_MAX_LAYER_INPUTS], out_types[TRM_MAX_LAYER_OUTPUTS];
    const trm_infer_call call = {.desc = &layer->desc,
                                 .n_inputs = layer->n_inputs,
                                 .dims = dims,
                                 .dtypes = types,
                                 .output_dims = out,
                                 .output_dtypes = out_types};
    for (int32_t i = 0; i < layer->n_inputs; i++) {
        const trm_tensor *input = layer->inputs[i];
        dims[i] = input == NULL ? NULL : &in[i];
        types[i] = input == NULL ? TRM_DTYPE_NONE : input->dtype;
        if (input != NULL && !lengthen(split->inputs[i], input, &in[i])) {
            return false;
        }
    }
    bool agrees = infer_plugin(&call) == TRM_OK;
    for (int32_t i = 0; agrees && i < layer->n_outputs; i++) {
        agrees = lengthen(split->outputs[i], layer->outputs[i], &expected) && expected.n == out[i].n;
        for (int32_t k = 0; agrees && k < expected.n; k++) {
            agrees = trm_dim_fits(expected.d[k], out[i].d[k]);
        }
    }
    return agrees;
}

/* Whether a split cuts axis k of every output and makes no sums. */
static bool cuts_axis(const trm_plugin_split *split, const trm_layer *layer, int32_t k)
{
    bool cuts = true;
    for (int32_t i = 0; i < layer->n_outputs; i++) {
        cuts = cuts && axis_of(split->outputs[i], layer->outputs[i]) == k;
    }
    for (int32_t i = 0; i < layer->n_inputs; i++) {
        cuts = cuts && split->inputs[i] != TRM_PLUGIN_SUM;
    }
    return cuts;
}

static int32_t link_plugin(const trm_layer *layer, int32_t k, int32_t i)
{
    const trm_plugin *table = &trm_plugin_layer_of(&layer->desc)->plugin->table;
    for (int32_t s = 0; s < table->n_splits; s++) {
        if (cuts_axis(&table->splits[s], layer, k) && holds(&table->splits[s], layer)) {
            return axis_of(table->splits[s].inputs[i], layer->inputs[i]);
        }
    }
    return TRM_LINK_NEVER;
}

/* The form of a tensor in a split; false if the tensor cannot have it without a rest. */
static bool take_form(int8_t form, const trm_tensor *tensor, int32_t parts, trm_sharding *sharding)
{
    const int32_t axis = axis_of(form, tensor);
    if (form == TRM_PLUGIN_SUM) {
        *sharding = trm_partial(parts);
    } else if (axis >= 0) {
        *sharding = trm_split(axis, parts);
    }
    return axis == TRM_LINK_WHOLE || (axis >= 0 && tensor->dims.d[axis] > 0 && tensor->dims.d[axis] % parts == 0);
}

static trm_status shard_plugin(const trm_layer *layer, int32_t parts, trm_way_taker *taker)
{
    const trm_plugin *table = &trm_plugin_layer_of(&layer->desc)->plugin->table;
    for (int32_t s = 0; s < table->n_splits; s++) {
        trm_way way = trm_way_whole();
        bool fits = holds(&table->splits[s], layer);
        for (int32_t i = 0; fits && i < layer->n_inputs; i++) {
            fits =
                layer->inputs[i] == NULL || take_form(table->splits[s].inputs[i], layer->inputs[i], parts, &way.in[i]);
        }
        for (int32_t i = 0; fits && i < layer->n_outputs; i++) {
            fits = take_form(table->splits[s].outputs[i], layer->outputs[i], parts, &way.out[i]);
        }
        TRM_TRY(fits ? taker->take(taker, layer, &way) : TRM_OK);
    }
    return TRM_OK;
}

const trm_kind trm_kind_plugin = {
    TRM_FIELDS(TRM_FIELD(PLUGIN, plugin, layer, .always = true)),
    .traits = TRM_KIND_TAKES_TIME | TRM_KIND_FOREIGN,
    .infer = infer_plugin,
    .output_count = plugin_outputs,
    .value_inputs_of = plugin_value_inputs,
    .link = link_plugin,
    .shard = shard_plugin,
};
