/*
 * Writes one rank's network: the chosen layers over this rank's parts of their tensors, transfers between stages, and
 * outputs. Each conversion (forms.c) comes just before the first layer that needs it.
 */
#include "dist/partition/emitter.h"

#include <assert.h>
#include <string.h>

#include "base/error.h"
#include "dist/partition/context_parallel.h"
#include "dist/parallel/world.h"
#include "graph/kinds/kind.h"

/* ---- between stages ---------------------------------------------------------------------------- */

static int32_t stage_of(const trm_emitter *e, const trm_tensor *tensor)
{
    int32_t stage = 0;
    while (e->partitioner->stage_begins[stage + 1] <= tensor->producer->index) {
        stage++;
    }
    return stage;
}

/* The rank with this rank's position in another stage. */
static int32_t peer_in(const trm_emitter *e, int32_t stage)
{
    return e->world_rank + (stage - e->stage) * trm_mesh_tensor_ranks(e->mesh);
}

static void count_send(trm_emitter *e, const trm_tensor *tensor)
{
    e->report->n_collectives++;
    e->report->seconds += trm_partition_send_seconds(e->partitioner, tensor, trm_emitter_form(e, tensor, 0));
}

static trm_status send(trm_emitter *e, const trm_tensor *tensor, int32_t stage)
{
    trm_layer_desc desc = {
        .kind = TRM_LAYER_DIST_COLLECTIVE,
        .collective = {.op = TRM_SEND, .reduce = TRM_REDUCE_NONE, .root = peer_in(e, stage), .n_ranks = 2}};
    trm_tensor *sent;
    count_send(e, tensor);
    return trm_emitter_add(e, tensor, "send", &desc, *trm_emitter_slot(e, tensor, 0), &sent);
}

/* Its dims follow from the network's inputs, which every stage has. */
static trm_status receive(trm_emitter *e, const trm_tensor *tensor, int32_t stage)
{
    const trm_partition_tensor *t = &e->partitioner->tensors[tensor->index];
    trm_layer_desc desc = {.kind = TRM_LAYER_DIST_COLLECTIVE,
                           .collective = {.op = TRM_RECV,
                                          .reduce = TRM_REDUCE_NONE,
                                          .root = peer_in(e, stage),
                                          .n_ranks = 2,
                                          .dtype = tensor->dtype,
                                          .dims = t->sent_dims}};
    trm_tensor *inputs[TRM_MAX_LAYER_INPUTS];
    int32_t n_inputs = trm_network_input_count(e->network);
    assert(t->can_be_sent && n_inputs <= TRM_MAX_LAYER_INPUTS);
    for (int32_t i = 0; i < n_inputs; i++) {
        inputs[i] = trm_network_input(e->network, i);
    }
    const char *name = trm_arena_printf(&e->arena, "%s.recv", tensor->name);
    if (name == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    count_send(e, tensor);
    return trm_network_add_layer(e->network, name, &desc, inputs, n_inputs, trm_emitter_slot(e, tensor, 0));
}

/*
 * Tensors that cross into a stage come from the previous one, those that cross out go to the next, in tensor order on
 * both sides. A stage receives first and sends last, so that stages never deadlock.
 */
static trm_status receive_crossing(trm_emitter *e)
{
    const trm_network *network = e->partitioner->network;
    for (int32_t i = 0; e->stage > 0 && i < network->n_tensors; i++) {
        if (trm_partition_crosses(&e->partitioner->tensors[i], e->begin)) {
            TRM_TRY(receive(e, network->tensors[i], e->stage - 1));
            TRM_TRY(trm_emitter_arrive(e, network->tensors[i], 0));
        }
    }
    return TRM_OK;
}

static trm_status send_crossing(trm_emitter *e)
{
    const trm_network *network = e->partitioner->network;
    for (int32_t i = 0; e->end < network->n_layers && i < network->n_tensors; i++) {
        if (trm_partition_crosses(&e->partitioner->tensors[i], e->end)) {
            TRM_TRY(trm_emitter_acquire(e, network->tensors[i], 0));
            TRM_TRY(send(e, network->tensors[i], e->stage + 1));
        }
    }
    return TRM_OK;
}

/* Sends a network output from the stage that computes it to those that have not received it. */
static trm_status share_output(trm_emitter *e, const trm_tensor *output)
{
    int32_t owner = stage_of(e, output);
    for (int32_t stage = 0; stage < e->partitioner->n_stages; stage++) {
        bool has_it = stage == owner || (stage > owner && trm_partition_crosses(&e->partitioner->tensors[output->index],
                                                                                e->partitioner->stage_begins[stage]));
        if (!has_it && e->stage == owner) {
            TRM_TRY(send(e, output, stage));
        } else if (!has_it && e->stage == stage) {
            TRM_TRY(receive(e, output, owner));
        }
    }
    return TRM_OK;
}

/* ---- layers ------------------------------------------------------------------------------------ */

/* Adapts a layer's parameters to the sharding. */
static void localize(const trm_emitter *e, const trm_layer *layer, const trm_strategy *strategy, trm_layer_desc *desc)
{
    const trm_kind *kind = trm_kind_of(layer);
    if (kind->localize == NULL) {
        return;
    }
    const trm_tensor *rows = layer->inputs[kind->rows_of];
    const trm_sharding *form = trm_emitter_form(e, rows, strategy->inputs[kind->rows_of]);
    int64_t first_row = 0, length;
    if (form->kind == TRM_SPLIT && form->axis == 0 && rows->dims.d[0] >= 0) {
        trm_emitter_part_range(e, rows, form, &first_row, &length);
    }
    kind->localize(layer, trm_emitter_form(e, layer->outputs[0], strategy->outputs[0]), first_row, desc);
}

/* Only the first summand gets the bias of a product, or the addend of a convolution; a split bias belongs to each rank.
 */
static bool leaves_out(const trm_emitter *e, const trm_layer *layer, const trm_strategy *strategy, int32_t input)
{
    const trm_sharding *out = trm_emitter_form(e, layer->outputs[0], strategy->outputs[0]);
    bool is_added = (trm_kind_of(layer)->added >> input & 1) != 0;
    return is_added && out->kind == TRM_PARTIAL && trm_emitter_part(e, out) > 0 &&
           trm_emitter_form(e, layer->inputs[input], strategy->inputs[input])->kind == TRM_REPLICATED;
}

/* Slices keys or values, before a transpose that produces them. */
static trm_status cut_seen(trm_emitter *e, const trm_tensor *tensor, int32_t rows, int64_t begin, int64_t end,
                           trm_tensor **made)
{
    const trm_layer *from = (*made)->producer;
    if (from == NULL || from->desc.kind != TRM_LAYER_TRANSPOSE) {
        return trm_emitter_slice(e, tensor, "seen", rows, begin, end, *made, made);
    }
    const trm_layer_desc order = from->desc;
    TRM_TRY(trm_emitter_slice(e, tensor, "part", order.transpose.perm[rows], begin, end, from->inputs[0], made));
    return trm_emitter_add(e, tensor, "seen", &order, *made, made);
}

/* Splits rows of queries: slices the keys that they see, and the mask's columns. */
static trm_status cut_keys(trm_emitter *e, const trm_layer *layer, const trm_strategy *strategy, trm_tensor **inputs,
                           trm_layer_desc *desc)
{
    const trm_tensor *q = layer->inputs[TRM_ATTENTION_Q], *k = layer->inputs[TRM_ATTENTION_K];
    const int32_t rows = desc->attention.form == TRM_ATTENTION_PADDED_BNHD ? 1 : 2;
    const trm_sharding *form = trm_emitter_form(e, q, strategy->inputs[TRM_ATTENTION_Q]);
    if (desc->attention.causal == TRM_CAUSAL_NONE || form->kind != TRM_SPLIT || form->axis != rows) {
        return TRM_OK;
    }
    int64_t start, length, begin, end;
    trm_emitter_part_range(e, q, form, &start, &length);
    trm_context_parallel_keys(&desc->attention, q->dims.d[rows], k->dims.d[rows], start, length, &begin, &end);
    desc->attention.causal = TRM_CAUSAL_LOWER_RIGHT;
    for (int32_t i = TRM_ATTENTION_K; i <= TRM_ATTENTION_V; i++) {
        TRM_TRY(cut_seen(e, layer->inputs[i], rows, begin, end, &inputs[i]));
    }
    const trm_tensor *mask = layer->n_inputs > TRM_ATTENTION_MASK ? layer->inputs[TRM_ATTENTION_MASK] : NULL;
    const int32_t last = mask == NULL ? -1 : mask->dims.n - 1;
    trm_tensor **columns = &inputs[TRM_ATTENTION_MASK];
    if (last < 0 || mask->dims.d[last] == 1) {
        return TRM_OK;
    }
    if (mask->dims.d[last] == -1) { /* it may have one column for all keys, which cannot be cut */
        const trm_layer_desc expand = {.kind = TRM_LAYER_EXPAND, .expand = {.dims = {1, {k->dims.d[rows]}}}};
        TRM_TRY(trm_emitter_add(e, mask, "expand", &expand, *columns, columns));
    }
    return trm_emitter_slice(e, mask, "seen", last, begin, end, *columns, columns);
}

/* Exchanges rows of all queries, for the keys of this rank, against those of this rank's queries, for all keys. */
static trm_status exchange_rows(trm_emitter *e, const trm_tensor *of, const char *what, trm_tensor **tensor)
{
    trm_layer_desc desc = {.kind = TRM_LAYER_DIST_COLLECTIVE,
                           .collective = {.op = TRM_ALL_TO_ALL, .reduce = TRM_REDUCE_NONE}};
    trm_emitter_list_axis_groups(e->mesh, TRM_AXIS_CP, &desc.collective);
    e->report->n_collectives++;
    return trm_emitter_add(e, of, what, &desc, *tensor, tensor);
}

/*
 * Attention of ranks that share tokens and cache: each attends with all queries of the step to its share of the keys,
 * then gets what all have found for its own queries, and joins it.
 */
static trm_status emit_shared_attention(trm_emitter *e, const trm_layer *layer, const trm_layer_desc *desc,
                                        trm_tensor *const *inputs, trm_tensor **output)
{
    const trm_tensor *of = layer->outputs[0];
    const char *name = trm_arena_printf(&e->arena, "%s.share", layer->name);
    trm_layer_desc share = *desc;
    trm_tensor *found[2], *joined[TRM_ATTENTION_JOIN_INPUT_COUNT] = {NULL};
    if (name == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    share.attention.cache_ranks = e->partitioner->n;
    share.attention.cache_rank = e->rank;
    TRM_TRY(trm_network_add_layer(e->network, name, &share, inputs, TRM_ATTENTION_VALUE_CACHE + 1, found));
    TRM_TRY(exchange_rows(e, of, "all_to_all", &found[0]));
    TRM_TRY(exchange_rows(e, of, "logs.all_to_all", &found[1]));
    joined[TRM_ATTENTION_JOIN_RESULTS] = found[0];
    joined[TRM_ATTENTION_JOIN_LOGS] = found[1];
    joined[TRM_ATTENTION_JOIN_SINKS] = layer->n_inputs > TRM_ATTENTION_SINKS ? inputs[TRM_ATTENTION_SINKS] : NULL;
    const trm_layer_desc join = {.kind = TRM_LAYER_ATTENTION_JOIN, .attention_join = {.n_ranks = e->partitioner->n}};
    return trm_network_add_layer(e->network, layer->name, &join, joined, TRM_ATTENTION_JOIN_INPUT_COUNT, output);
}

/* Turns the shape of a whole tensor into that of this rank's part. */
static trm_status localize_shape(trm_emitter *e, const trm_layer *layer, const trm_strategy *strategy,
                                 trm_tensor **inputs)
{
    const trm_sharding *out = trm_emitter_form(e, layer->outputs[0], strategy->outputs[0]);
    const int32_t at = out->kind == TRM_SPLIT ? trm_partition_shape_divides(layer, out->axis) : -1;
    return at < 0 ? TRM_OK
                  : trm_emitter_scale_sizes(e, layer->outputs[0], "shape", TRM_ELEMENTWISE_DIV, at, out->parts,
                                            inputs[1], &inputs[1]);
}

/* Computes the dims of the whole tensor from this rank's part, for a SHAPE that reads the split axis. */
static trm_status restore_shape(trm_emitter *e, const trm_layer *layer, const trm_strategy *strategy,
                                trm_tensor **output)
{
    const trm_sharding *in = trm_emitter_form(e, layer->inputs[0], strategy->inputs[0]);
    const int32_t n = layer->inputs[0]->dims.n, start = layer->desc.shape.start;
    const int32_t at = in->axis - (start < -n ? 0 : start < 0 ? start + n : start);
    const bool asks = in->kind == TRM_SPLIT && at >= 0 && at < layer->outputs[0]->dims.d[0];
    return asks ? trm_emitter_scale_sizes(e, layer->outputs[0], "whole", TRM_ELEMENTWISE_MUL, at, in->parts, *output,
                                          output)
                : TRM_OK;
}

static trm_status acquire_input(trm_emitter *e, const trm_layer *layer, int32_t i)
{
    const trm_partition_layer *choices = &e->partitioner->layers[layer->index];
    const trm_tensor *input = layer->inputs[i];
    if (input->role == TRM_TENSOR_INPUT && e->forms[input->index] == 0) {
        TRM_TRY(trm_emitter_arrive(e, input, 0));
    }
    return trm_emitter_acquire(e, input, choices->strategies[choices->chosen].inputs[i]);
}

/* Converts tensors from outside a region before it begins: inside, only ENTER may read them. */
static trm_status emit_before_region(trm_emitter *e, const trm_layer *begin)
{
    for (int32_t i = begin->index + 1; i < e->regions.other[begin->index]; i++) {
        const trm_layer *layer = e->partitioner->network->layers[i];
        if (layer->desc.kind == TRM_LAYER_ENTER && e->regions.inside[i] == begin->index &&
            trm_regions_enters(&e->regions, layer)) {
            TRM_TRY(acquire_input(e, layer, 0));
        }
    }
    return TRM_OK;
}

/* Adds an exchange along dp or cp, which the network already has. */
static void count_exchange(trm_emitter *e, const trm_layer *layer)
{
    const trm_collective_params *p = &layer->desc.collective;
    const bool adds = p->op != TRM_ALL_GATHER && p->op != TRM_ALL_TO_ALL;
    const trm_sharding from = {adds ? TRM_PARTIAL : TRM_SPLIT, p->axis, p->n_ranks};
    const trm_sharding to = {p->op == TRM_REDUCE_SCATTER ? TRM_SPLIT : TRM_REPLICATED, p->axis, p->n_ranks};
    const trm_tensor *tensor = p->op == TRM_REDUCE_SCATTER ? layer->inputs[0] : layer->outputs[0];
    e->report->n_collectives++;
    e->report->seconds += e->runs * trm_partition_conversion_seconds(e->partitioner, tensor, &from, &to);
    e->report->bytes_exchanged += e->runs * trm_partition_conversion_bytes(e->partitioner, tensor, &from, &to);
}

/* Whether a layer of parts of the inputs has the parts of the outputs that the strategy says. */
static trm_status check_parts(const trm_emitter *e, const trm_layer *layer, const trm_strategy *strategy,
                              trm_tensor *const *outputs)
{
    for (int32_t i = 0; i < layer->n_outputs; i++) {
        const trm_dims expected = trm_sharding_local_dims(&layer->outputs[i]->dims,
                                                          trm_emitter_form(e, layer->outputs[i], strategy->outputs[i]));
        bool fits = outputs[i]->dims.n == expected.n && outputs[i]->dtype == layer->outputs[i]->dtype;
        for (int32_t k = 0; fits && k < expected.n; k++) {
            fits = trm_dim_fits(outputs[i]->dims.d[k], expected.d[k]);
        }
        if (!fits) {
            char found[TRM_DIMS_TEXT_SIZE], wanted[TRM_DIMS_TEXT_SIZE];
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                     "layer %s gives output %d as %s for a part of its inputs, expected the part %s", layer->name,
                     (int)i, trm_dims_format(&outputs[i]->dims, found), trm_dims_format(&expected, wanted));
        }
    }
    return TRM_OK;
}

static trm_status emit_layer(trm_emitter *e, const trm_layer *layer)
{
    const trm_partition_layer *choices = &e->partitioner->layers[layer->index];
    const trm_strategy *strategy = &choices->strategies[choices->chosen];
    trm_tensor *inputs[TRM_MAX_LAYER_INPUTS] = {NULL}, *outputs[TRM_MAX_LAYER_OUTPUTS];
    for (int32_t i = 0; i < layer->n_inputs; i++) {
        const trm_tensor *input = layer->inputs[i];
        bool left_out = input != NULL && leaves_out(e, layer, strategy, i);
        if (input == NULL || (left_out && input->role == TRM_TENSOR_CONSTANT)) {
            continue;
        }
        TRM_TRY(acquire_input(e, layer, i));
        inputs[i] = left_out ? NULL : *trm_emitter_slot(e, input, strategy->inputs[i]);
    }
    e->report->seconds += e->runs * trm_partition_layer_seconds(e->partitioner, layer, strategy);
    if (e->partitioner->is_share && trm_layer_collective(&layer->desc) != NULL) {
        count_exchange(e, layer);
    }
    trm_layer_desc desc = layer->desc;
    localize(e, layer, strategy, &desc);
    if (desc.kind == TRM_LAYER_ATTENTION && desc.attention.form != TRM_ATTENTION_PACKED_NHD) {
        TRM_TRY(cut_keys(e, layer, strategy, inputs, &desc));
    }
    TRM_TRY(localize_shape(e, layer, strategy, inputs));
    e->partitioner->layers[layer->index].written = e->network->n_layers;
    const bool shares_cache = e->partitioner->shares_tokens && trm_partition_has_cache(layer);
    TRM_TRY(shares_cache ? emit_shared_attention(e, layer, &desc, inputs, outputs)
                         : trm_network_add_layer(e->network, layer->name, &desc, inputs, layer->n_inputs, outputs));
    TRM_TRY(trm_kind_is(layer, TRM_KIND_FOREIGN) ? check_parts(e, layer, strategy, outputs) : TRM_OK);
    if (desc.kind == TRM_LAYER_SHAPE) {
        TRM_TRY(restore_shape(e, layer, strategy, &outputs[0]));
    }
    for (int32_t i = 0; i < layer->n_outputs; i++) {
        *trm_emitter_slot(e, layer->outputs[i], strategy->outputs[i]) = outputs[i];
        TRM_TRY(trm_emitter_arrive(e, layer->outputs[i], strategy->outputs[i]));
    }
    return TRM_OK;
}

/* Makes network outputs whole after the stage's last layer that reads them. */
static trm_status emit_outputs_done(trm_emitter *e, int32_t layer)
{
    const trm_network *network = e->partitioner->network;
    for (int32_t i = 0; i < network->n_outputs; i++) {
        const trm_tensor *output = network->outputs[i];
        if (output->producer == NULL || stage_of(e, output) != e->stage) {
            continue;
        }
        int32_t last = e->partitioner->tensors[output->index].last_use;
        last = last < output->producer->index ? output->producer->index : last;
        if (layer == (last < e->end ? last : e->end - 1)) {
            TRM_TRY(trm_emitter_acquire(e, output, 0));
        }
    }
    return TRM_OK;
}

/* The whole tensor takes the name of the part that it was made from, or of a layer's output. */
static trm_status name_output(trm_emitter *e, const trm_tensor *output, trm_tensor *whole)
{
    if (strcmp(whole->name, output->name) == 0) {
        return TRM_OK;
    }
    trm_tensor *other = trm_network_find_tensor(e->network, output->name);
    if (other != NULL) {
        const char *what = "shard";
        for (int32_t f = 1; f < e->partitioner->tensors[output->index].n_forms; f++) {
            bool is_partial = trm_emitter_form(e, output, f)->kind == TRM_PARTIAL;
            what = *trm_emitter_slot(e, output, f) == other && is_partial ? "partial" : what;
        }
        const char *name = trm_arena_printf(&e->arena, "%s.%s", output->name, what);
        if (name == NULL) {
            return TRM_ERROR_OUT_OF_MEMORY;
        }
        TRM_TRY(trm_network_rename_tensor(e->network, other, name));
    }
    return trm_network_rename_tensor(e->network, whole, output->name);
}

/* Every stage has every output, at its end and in order. */
static trm_status emit_outputs(trm_emitter *e)
{
    const trm_network *network = e->partitioner->network;
    for (int32_t i = 0; i < network->n_outputs; i++) {
        const trm_tensor *output = network->outputs[i];
        trm_tensor **whole = trm_emitter_slot(e, output, 0);
        if (output->role == TRM_TENSOR_CONSTANT) {
            TRM_TRY(trm_emitter_keep(e, output, 0));
        } else if (output->producer != NULL) {
            TRM_TRY(share_output(e, output));
        }
        TRM_TRY(name_output(e, output, *whole));
        TRM_TRY(trm_network_mark_output(e->network, *whole));
    }
    return TRM_OK;
}

static trm_status emit_inputs(trm_emitter *e)
{
    const trm_network *network = e->partitioner->network;
    for (int32_t i = 0; i < network->n_tensors; i++) {
        const trm_tensor *tensor = network->tensors[i];
        if (tensor->role == TRM_TENSOR_INPUT) {
            trm_tensor **made = trm_emitter_slot(e, tensor, 0);
            const bool is_shared = e->partitioner->shares_batch && tensor->dims.n > 0 && tensor->dims.d[0] < 0 &&
                                   e->partitioner->tensors[i].batch_axis == 0;
            TRM_TRY(trm_network_add_input(e->network, tensor->name, tensor->dtype, tensor->dims, made));
            (*made)->batch_ranks = is_shared ? e->partitioner->n : tensor->batch_ranks;
        }
    }
    for (int32_t i = 0; i < network->n_named_dims; i++) {
        const trm_named_dim *dim = &network->named_dims[i];
        TRM_TRY(trm_network_name_dim(e->network, *trm_emitter_slot(e, dim->input, 0), dim->axis, dim->name));
    }
    return TRM_OK;
}

/* Which part of the whole tensor a form is; unknown if a part along dp is split again. */
static trm_status note_part(trm_emitter *e, const trm_tensor *tensor, const trm_sharding *form, trm_tensor *made)
{
    static const trm_part_kind kinds[] = {
        [TRM_REPLICATED] = TRM_PART_WHOLE, [TRM_SPLIT] = TRM_PART_SPLIT, [TRM_PARTIAL] = TRM_PART_SUMMAND};
    const trm_tensor_part *known = &tensor->part;
    if (e->partitioner->is_share && known->kind != TRM_PART_WHOLE &&
        (e->partitioner->n > 1 || known->kind == TRM_PART_UNKNOWN)) {
        return TRM_OK;
    }
    const char *name = trm_arena_strdup(&e->network->arena, e->partitioner->is_share ? known->of : tensor->name);
    if (name == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    if (e->partitioner->is_share && known->kind != TRM_PART_WHOLE) {
        made->part = *known;
        made->part.of = name;
        return TRM_OK;
    }
    made->part = (trm_tensor_part){.kind = kinds[form->kind],
                                   .axis = form->kind == TRM_SPLIT ? form->axis : 0,
                                   .parts = form->kind == TRM_REPLICATED ? 1 : form->parts,
                                   .of = name,
                                   .whole = form->kind == TRM_SPLIT ? tensor->dims.d[form->axis] : 0};
    return TRM_OK;
}

/* Pins are kept if the network is partitioned again. */
static trm_status keep_pin(trm_emitter *e, const trm_tensor *tensor, trm_tensor *made)
{
    const bool keeps = e->partitioner->shares_batch && tensor->pin != NULL;
    return keeps ? trm_network_pin(e->network, made, tensor->pin) : TRM_OK;
}

/* Notes which part of a whole tensor each written tensor is, for inspecting values. */
static trm_status note_parts(trm_emitter *e)
{
    const trm_network *network = e->partitioner->network;
    for (int32_t i = 0; i < network->n_tensors; i++) {
        const trm_tensor *tensor = network->tensors[i];
        for (int32_t f = 0; f < e->partitioner->tensors[i].n_forms; f++) {
            trm_tensor *made = *trm_emitter_slot(e, tensor, f);
            if (made != NULL) {
                TRM_TRY(note_part(e, tensor, trm_emitter_form(e, tensor, f), made));
                TRM_TRY(keep_pin(e, tensor, made));
            }
        }
    }
    return TRM_OK;
}

static trm_status emit(trm_emitter *e)
{
    const trm_network *network = e->partitioner->network;
    e->tensors = trm_arena_array(&e->arena, (size_t)network->n_tensors * TRM_MAX_FORMS, sizeof(trm_tensor *));
    e->forms = trm_arena_array(&e->arena, (size_t)network->n_tensors, sizeof(*e->forms));
    if (e->tensors == NULL || e->forms == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    TRM_TRY(emit_inputs(e));
    TRM_TRY(receive_crossing(e));
    for (int32_t i = e->begin; i < e->end; i++) {
        e->runs = e->partitioner->model.runs[i];
        if (trm_kind_begins_region(network->layers[i]->desc.kind)) {
            TRM_TRY(emit_before_region(e, network->layers[i]));
        }
        TRM_TRY(emit_layer(e, network->layers[i]));
        TRM_TRY(emit_outputs_done(e, i));
    }
    e->runs = 1;
    TRM_TRY(send_crossing(e));
    TRM_TRY(emit_outputs(e));
    return note_parts(e);
}

trm_status trm_partition_emit(const trm_partitioner *partitioner, const trm_mesh *mesh, int32_t rank,
                              trm_network **local, trm_partition_report *report)
{
    const bool shares = partitioner->shares_batch; /* of all stages, which are split later */
    int32_t stage = shares ? 0 : trm_mesh_coordinate(mesh, TRM_AXIS_PP, rank);
    trm_emitter e = {.partitioner = partitioner,
                     .mesh = mesh,
                     .world_rank = rank,
                     .rank = shares ? trm_mesh_coordinate(mesh, trm_partition_batch_mesh_axis(partitioner), rank)
                                    : rank % partitioner->n,
                     .stage = stage,
                     .begin = partitioner->stage_begins[stage],
                     .end = partitioner->stage_begins[stage + 1],
                     .runs = 1,
                     .report = report};
    TRM_TRY(trm_network_create(&e.network));
    e.network->refittable = partitioner->network->refittable;
    trm_status status = trm_network_copy_deciding(e.network, partitioner->network);
    status = status == TRM_OK ? trm_regions_find(partitioner->network, &e.regions) : status;
    status = status == TRM_OK ? emit(&e) : status;
    trm_regions_fini(&e.regions);
    trm_arena_fini(&e.arena);
    if (status != TRM_OK) {
        trm_network_destroy(e.network);
        return status;
    }
    *local = e.network;
    return TRM_OK;
}
