/*
 * The partitioner: checks mesh and pins, enumerates strategies, chooses among them, writes the rank's network, and
 * reports what it could not split.
 */
#include "dist/partition/problem.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "dist/partition/context_parallel.h"
#include "dist/parallel/world.h"
#include "graph/kinds/kind.h"
#include "graph/layer_runs.h"
#include "graph/regions.h"

/* ---- tensors ----------------------------------------------------------------------------------- */

static void init_tensors(trm_partitioner *partitioner)
{
    const trm_network *network = partitioner->network;
    for (int32_t i = 0; i < network->n_tensors; i++) {
        trm_partition_tensor *tensor = &partitioner->tensors[i];
        tensor->tensor = network->tensors[i];
        tensor->forms[0] = (trm_sharding){TRM_REPLICATED, 0, 1};
        tensor->n_forms = 1;
        tensor->first_use = tensor->last_use = tensor->pin = tensor->batch_axis = -1;
    }
    for (int32_t i = 0; i < network->n_layers; i++) {
        const trm_layer *layer = network->layers[i];
        for (int32_t j = 0; j < layer->n_inputs; j++) {
            if (layer->inputs[j] == NULL) {
                continue;
            }
            trm_partition_tensor *tensor = &partitioner->tensors[layer->inputs[j]->index];
            tensor->n_uses += tensor->last_use != i;
            tensor->first_use = tensor->first_use < 0 ? i : tensor->first_use;
            tensor->last_use = i;
        }
    }
}

static trm_status refuse_pin(const trm_tensor *tensor, const char *reason)
{
    TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "tensor %s cannot be pinned to \"%s\": %s", tensor->name, tensor->pin, reason);
}

/* A pin is a form over all ranks of the axis. */
static trm_status read_pin(trm_partitioner *partitioner, trm_partition_tensor *tensor)
{
    const trm_tensor *t = tensor->tensor;
    int axis = 0, used = 0;
    if (strcmp(t->pin, "replicate") == 0) {
        tensor->pin = 0;
        return TRM_OK;
    }
    if (sscanf(t->pin, "split %d%n", &axis, &used) != 1 || t->pin[used] != '\0') {
        return refuse_pin(t, "expected \"replicate\" or \"split <axis>\"");
    }
    char dims[TRM_DIMS_TEXT_SIZE], reason[TRM_DIMS_TEXT_SIZE + 100];
    trm_dims_format(&t->dims, dims);
    if (axis < 0 || axis >= t->dims.n) {
        snprintf(reason, sizeof(reason), "it has dims %s", dims);
        return refuse_pin(t, reason);
    }
    if (partitioner->n == 1) {
        return TRM_OK;
    }
    trm_sharding form = {TRM_SPLIT, axis, partitioner->n};
    int64_t size = t->dims.d[axis];
    if (size < 0) {
        snprintf(reason, sizeof(reason), "the size of axis %d of %s is not known when the network is partitioned", axis,
                 dims);
        return refuse_pin(t, reason);
    }
    if (!trm_sharding_is_possible(t, &form) ||
        (t->role != TRM_TENSOR_CONSTANT && !trm_sharding_is_even(&t->dims, &form))) {
        snprintf(reason, sizeof(reason), "axis %d of %s does not divide over %" PRId32 " ranks", axis, dims,
                 partitioner->n);
        return refuse_pin(t, reason);
    }
    tensor->pin = trm_partition_form(tensor, &form);
    return TRM_OK;
}

static trm_status read_pins(trm_partitioner *partitioner)
{
    for (int32_t i = 0; i < partitioner->network->n_tensors; i++) {
        if (partitioner->network->tensors[i]->pin != NULL) {
            TRM_TRY(read_pin(partitioner, &partitioner->tensors[i]));
        }
    }
    return TRM_OK;
}

/* Derives from the forms that the rules found which tensors the search must track, and the costs of conversions. */
static trm_status price(trm_partitioner *partitioner)
{
    const trm_network *network = partitioner->network;
    for (int32_t i = 0; i < network->n_tensors; i++) {
        trm_partition_tensor *tensor = &partitioner->tensors[i];
        bool is_kept = tensor->tensor->role == TRM_TENSOR_CONSTANT || tensor->tensor->role == TRM_TENSOR_STATE;
        int32_t n = tensor->n_forms;
        tensor->tracked = n > 1 && (!is_kept || tensor->n_uses > 1);
        if (!tensor->tracked || is_kept) {
            continue;
        }
        tensor->conversion = trm_arena_array(&partitioner->arena, (size_t)n * (size_t)n, sizeof(double));
        if (tensor->conversion == NULL) {
            return TRM_ERROR_OUT_OF_MEMORY;
        }
        for (int32_t from = 0; from < n; from++) {
            for (int32_t to = 0; to < n; to++) {
                tensor->conversion[from * n + to] = trm_partition_conversion_seconds(
                    partitioner, tensor->tensor, &tensor->forms[from], &tensor->forms[to]);
            }
        }
    }
    for (int32_t i = 0; i < network->n_layers; i++) {
        trm_partition_layer *layer = &partitioner->layers[i];
        for (int32_t j = 0; j < layer->n_strategies; j++) {
            trm_strategy *strategy = &layer->strategies[j];
            strategy->cost = trm_partition_layer_seconds(partitioner, network->layers[i], strategy) +
                             trm_partition_layer_price(partitioner, network->layers[i], strategy);
        }
    }
    return TRM_OK;
}

/* ---- the report -------------------------------------------------------------------------------- */

/* Reports attention layers whose heads, or rows along cp, are not split over all ranks. */
static void note_attention(const trm_partitioner *partitioner, trm_partition_report *report)
{
    const trm_layer *first = NULL;
    int32_t count = 0, first_parts = 1;
    for (int32_t i = 0; i < partitioner->network->n_layers; i++) {
        const trm_layer *layer = partitioner->network->layers[i];
        int32_t kv_parts;
        if (layer->desc.kind != TRM_LAYER_ATTENTION &&
            (layer->desc.kind != TRM_LAYER_LATENT_ATTENTION || partitioner->shares_rows)) {
            continue;
        }
        int32_t parts = partitioner->shares_rows
                            ? (trm_attention_rows_divide(layer, partitioner->n) ? partitioner->n : 1)
                            : trm_attention_head_parts(layer, partitioner->n, &kv_parts);
        if (parts < partitioner->n) {
            first_parts = first == NULL ? parts : first_parts;
            first = first == NULL ? layer : first;
            count++;
        }
    }
    if (first == NULL) {
        return;
    }
    char more[64] = "", how[64] = "replicated";
    if (count > 1) {
        snprintf(more, sizeof(more), " and %" PRId32 " more", count - 1);
    }
    if (first_parts > 1) {
        snprintf(how, sizeof(how), "split into at most %" PRId32 " parts", first_parts);
    }
    if (partitioner->shares_rows) {
        snprintf(report->note, sizeof(report->note),
                 "attention %.200s%s is replicated: rows are unknown, do not divide over %" PRId32
                 " ranks, or are more than keys under causal upper_left",
                 first->name, more, partitioner->n);
        return;
    }
    const bool latent = first->desc.kind == TRM_LAYER_LATENT_ATTENTION;
    snprintf(report->note, sizeof(report->note),
             "attention %.200s%s is %s: %" PRId64 " query and %" PRId64 " kv heads do not divide over %" PRId32
             " ranks",
             first->name, more, how, first->inputs[TRM_ATTENTION_Q]->dims.d[1],
             first->inputs[latent ? TRM_ATTENTION_Q : TRM_ATTENTION_K]->dims.d[1], partitioner->n);
}

/* ---- one axis ---------------------------------------------------------------------------------- */

/* A layer with an exchange written by the network's author. */
static const trm_layer *find_exchange(const trm_network *network)
{
    for (int32_t i = 0; i < network->n_layers; i++) {
        const trm_layer *layer = network->layers[i];
        if (trm_layer_collective(&layer->desc) != NULL ||
            (layer->desc.kind == TRM_LAYER_ATTENTION && layer->desc.attention.n_ranks > 1)) {
            return layer;
        }
    }
    return NULL;
}

static trm_status check_mesh(const trm_mesh *mesh, int32_t rank)
{
    int64_t size = 1;
    for (int32_t i = 0; i < TRM_AXIS_COUNT; i++) {
        if (mesh->size[i] < 1) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "the mesh has an axis of size %" PRId32 ", expected at least 1",
                     mesh->size[i]);
        }
        if (mesh->size[i] > 1 && i == TRM_AXIS_EP) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot partition a network over mesh axis ep; use tp, cp, pp or dp");
        }
        size *= mesh->size[i];
        if (size > TRM_MAX_RANKS) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "the mesh has more than %d ranks", TRM_MAX_RANKS);
        }
    }
    if (rank < 0 || rank >= size) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "rank %" PRId32 " is not in a mesh of %" PRId64 " ranks", rank, size);
    }
    return TRM_OK;
}

/* How often layers run, unless the caller knows. */
static trm_status find_runs(trm_partitioner *partitioner)
{
    const trm_network *network = partitioner->network;
    bool guessed;
    if (partitioner->model.runs != NULL) {
        return TRM_OK;
    }
    int32_t *runs = trm_arena_array(&partitioner->arena, (size_t)network->n_layers + 1, sizeof(*runs));
    if (runs == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    partitioner->model.runs = runs;
    return trm_layer_runs(network, NULL, NULL, runs, &guessed);
}

trm_status trm_partition_prepare(trm_partitioner *partitioner, int32_t stages)
{
    const trm_network *network = partitioner->network;
    partitioner->tensors =
        trm_arena_array(&partitioner->arena, (size_t)network->n_tensors, sizeof(*partitioner->tensors));
    partitioner->layers = trm_arena_array(&partitioner->arena, (size_t)network->n_layers, sizeof(*partitioner->layers));
    if (partitioner->tensors == NULL || partitioner->layers == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    init_tensors(partitioner);
    TRM_TRY(find_runs(partitioner));
    if (!partitioner->shares_batch) { /* pins are along tp or cp */
        TRM_TRY(read_pins(partitioner));
    }
    TRM_TRY(trm_partition_enumerate(partitioner));
    TRM_TRY(price(partitioner));
    return trm_partition_cut_stages(partitioner, stages);
}

/* Only padded attention has rows to split. */
static bool has_rows(const trm_network *network)
{
    bool has = false;
    for (int32_t i = 0; i < network->n_layers; i++) {
        const trm_layer_desc *desc = &network->layers[i]->desc;
        has = has || (desc->kind == TRM_LAYER_ATTENTION && desc->attention.form != TRM_ATTENTION_PACKED_NHD);
    }
    return has;
}

static trm_status check_rows(const trm_network *network, const trm_mesh *mesh)
{
    if (mesh->size[TRM_AXIS_TP] > 1) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "cannot partition a network without attention over a cache over mesh axes cp and tp together; use one "
                 "of them");
    }
    if (!has_rows(network)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "mesh axis cp shares attention over padded sequences or over a cache, and "
                                             "the network has none; use tp, pp or dp");
    }
    return TRM_OK;
}

static trm_status solve(trm_partitioner *partitioner, const trm_mesh *mesh, int32_t rank, trm_network **local,
                        trm_partition_report *report)
{
    if (partitioner->shares_rows) {
        TRM_TRY(check_rows(partitioner->network, mesh));
        partitioner->model.memory_price = 0; /* context parallelism is for speed: weights may be whole on every rank */
    }
    TRM_TRY(trm_partition_prepare(partitioner, mesh->size[TRM_AXIS_PP]));
    TRM_TRY(trm_partition_search(partitioner));
    note_attention(partitioner, report);
    if (partitioner->n_stages > 1) {
        report->n_parts = partitioner->n_parts;
        memcpy(report->parts, partitioner->parts, sizeof(report->parts));
    }
    return trm_partition_emit(partitioner, mesh, rank, local, report);
}

/* The network as its author wrote it for the rank; adds the exchanges of context parallel attention. */
static trm_status clone_as_written(const trm_network *network, const trm_mesh *mesh, int32_t rank, trm_network **local)
{
    trm_network *made;
    TRM_TRY(trm_network_clone(network, &made));
    trm_status status = trm_context_parallel_lower(made, mesh, rank);
    if (status != TRM_OK) {
        trm_network_destroy(made);
        return status;
    }
    *local = made;
    return TRM_OK;
}

/* ---- the batch --------------------------------------------------------------------------------- */

typedef struct sharing {
    int32_t *runs;        /* of its layers */
    trm_network *network; /* network of a rank with its part of the batch; NULL: ranks along dp are replicas */
    const char *cause;    /* why they are, if not because of a state */
} sharing;

static bool has_state(const trm_network *network)
{
    bool has = false;
    for (int32_t i = 0; i < network->n_tensors; i++) {
        has = has || network->tensors[i]->role == TRM_TENSOR_STATE;
    }
    return has;
}

/* Whether inputs have a batch of unknown size. */
static bool batch_is_open(const trm_partitioner *partitioner)
{
    bool is_open = false;
    for (int32_t i = 0; i < partitioner->network->n_tensors; i++) {
        const trm_tensor *tensor = partitioner->network->tensors[i];
        is_open = is_open || (tensor->role == TRM_TENSOR_INPUT && partitioner->tensors[i].batch_axis == 0 &&
                              tensor->dims.d[0] < 0);
    }
    return is_open;
}

static bool splits_something(const trm_partitioner *partitioner)
{
    bool splits = false;
    for (int32_t i = 0; i < partitioner->network->n_layers; i++) {
        const trm_layer *layer = partitioner->network->layers[i];
        const trm_partition_layer *choices = &partitioner->layers[i];
        for (int32_t k = 0; k < layer->n_outputs; k++) {
            splits = splits || choices->strategies[choices->chosen].outputs[k] != 0;
        }
    }
    return splits;
}

/* How often the layers of the split network run, by those of the whole; conversions are outside loops. */
static trm_status find_runs_of_share(const trm_partitioner *p, sharing *shared)
{
    shared->runs = malloc(((size_t)shared->network->n_layers + 1) * sizeof(*shared->runs));
    if (shared->runs == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a list of %d layers", shared->network->n_layers);
    }
    for (int32_t i = 0; i < shared->network->n_layers; i++) {
        shared->runs[i] = 1;
    }
    for (int32_t i = 0; i < p->network->n_layers; i++) {
        shared->runs[p->layers[i].written] = p->model.runs[i];
    }
    return TRM_OK;
}

/* Share of their cost that conversions count: users of dp want the batch split even if it does not pay off, or was
 * guessed too small. */
static const double pressed = 1e-6;

static trm_status share(trm_partitioner *p, const trm_mesh *mesh, int32_t rank, sharing *shared)
{
    TRM_TRY(trm_partition_prepare(p, 1));
    if (!p->has_batch) {
        shared->cause = "the first input has no batch, a first dimension other than 1";
        return TRM_OK;
    }
    if (mesh->size[TRM_AXIS_PP] > 1 && batch_is_open(p)) {
        shared->cause = "with pipeline stages (pp) the batch needs a known size to be split";
        return TRM_OK;
    }
    TRM_TRY(trm_partition_search(p));
    if (!splits_something(p)) {
        p->discount = pressed;
        TRM_TRY(price(p));
        TRM_TRY(trm_partition_search(p));
    }
    if (!splits_something(p)) {
        shared->cause = "no layer is known to keep the entries of the batch apart";
        return TRM_OK;
    }
    trm_partition_report counted_later = {0};
    TRM_TRY(trm_partition_emit(p, mesh, rank, &shared->network, &counted_later));
    return find_runs_of_share(p, shared);
}

/* Makes the network of a rank with its part of the batch, which the other axes of the mesh then split. */
static trm_status share_batch(const trm_partitioner *whole, const trm_mesh *mesh, int32_t rank, sharing *shared)
{
    if (mesh->size[TRM_AXIS_DP] == 1 || has_state(whole->network)) {
        return TRM_OK;
    }
    trm_partitioner p = {.network = whole->network,
                         .model = whole->model,
                         .n = mesh->size[TRM_AXIS_DP],
                         .shares_batch = true,
                         .bounds = whole->bounds,
                         .n_bounds = whole->n_bounds};
    p.model.memory_price = 0; /* weights are whole on every rank */
    trm_status status = share(&p, mesh, rank, shared);
    trm_arena_fini(&p.arena);
    if (status == TRM_OK && shared->cause != NULL && rank == 0) {
        TRM_WARN("mesh axis dp splits nothing, all its ranks compute the same: %s", shared->cause);
    }
    return status;
}

/* ---- tokens ------------------------------------------------------------------------------------ */

/* Tokens of a step that ranks along cp are chosen for: those of a chunk of a long prompt. */
#define TOKENS_OF_CHUNK 4096

bool trm_partition_has_cache(const trm_layer *layer)
{
    return layer->desc.kind == TRM_LAYER_ATTENTION && layer->desc.attention.form == TRM_ATTENTION_PACKED_NHD &&
           layer->n_inputs > TRM_ATTENTION_KEY_CACHE && layer->inputs[TRM_ATTENTION_KEY_CACHE] != NULL;
}

/* A cache must be that of such attention, whose blocks have keys of all ranks. States by sequence are whole. */
static trm_status check_states(const trm_network *network, const trm_mesh *mesh)
{
    for (int32_t i = 0; i < network->n_layers; i++) {
        const trm_layer *layer = network->layers[i];
        for (int32_t k = 0; k < layer->n_inputs && !trm_partition_has_cache(layer); k++) {
            if (layer->inputs[k] != NULL && trm_tensor_is_by_block(layer->inputs[k])) {
                TRM_FAIL(TRM_ERROR_UNSUPPORTED,
                         "mesh axis cp shares the tokens of attention over keys and values, and layer %s has state %s; "
                         "use tp or pp",
                         layer->name, layer->inputs[k]->name);
            }
        }
    }
    if (mesh->size[TRM_AXIS_PP] > 1) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "mesh axis cp shares the tokens of a network with a cache, whose stages then "
                                        "cannot be split; use cp with tp, without pp");
    }
    return TRM_OK;
}

/* Makes the network of a rank with its part of the tokens, which the ranks along tp then split. */
static trm_status share_tokens(const trm_partitioner *whole, const trm_mesh *mesh, int32_t rank, sharing *shared)
{
    TRM_TRY(check_states(whole->network, mesh));
    trm_partitioner p = {.network = whole->network,
                         .model = whole->model,
                         .n = mesh->size[TRM_AXIS_CP],
                         .shares_batch = true,
                         .shares_tokens = true};
    p.model.memory_price = 0; /* weights are whole on every rank along cp */
    p.model.unknown_dimension = TOKENS_OF_CHUNK;
    trm_status status = share(&p, mesh, rank, shared);
    trm_arena_fini(&p.arena);
    return status;
}

/* ---- the entry --------------------------------------------------------------------------------- */

static trm_status partition(trm_partitioner *partitioner, const trm_mesh *mesh, int32_t rank, trm_network **local,
                            trm_partition_report *report)
{
    sharing shared = {0};
    trm_status status;
    const trm_network *network = partitioner->network;
    const bool shares_tokens = mesh->size[TRM_AXIS_CP] > 1 && has_state(network) && !has_rows(network);
    TRM_TRY_GOTO(status,
                 shares_tokens ? share_tokens(partitioner, mesh, rank, &shared)
                               : share_batch(partitioner, mesh, rank, &shared),
                 done);
    if (shared.network != NULL) {
        partitioner->network = shared.network;
        partitioner->model.runs = shared.runs;
        partitioner->is_share = true;
        report->shares_tokens = shares_tokens;
        report->shares_batch = !shares_tokens;
    }
    if (shares_tokens) {
        partitioner->n = mesh->size[TRM_AXIS_TP];
        partitioner->shares_rows = false;
    }
    status = solve(partitioner, mesh, rank, local, report);
    if (status == TRM_OK && shared.cause != NULL && !shares_tokens && report->note[0] == '\0') {
        snprintf(report->note, sizeof(report->note), "mesh axis dp splits nothing: %s", shared.cause);
    }
done:
    trm_network_destroy(shared.network);
    free(shared.runs);
    return status;
}

trm_status trm_partition_bounded(const trm_network *network, const trm_mesh *mesh, int32_t rank,
                                 const trm_cost_model *model, const trm_shape_bound *bounds, int32_t n_bounds,
                                 trm_network **local, trm_partition_report *report)
{
    trm_partition_report made = {0};
    const trm_layer *exchange = find_exchange(network);
    TRM_TRY(check_mesh(mesh, rank));
    trm_partitioner partitioner = {.network = network,
                                   .n = trm_mesh_tensor_ranks(mesh),
                                   .shares_rows = mesh->size[TRM_AXIS_CP] > 1,
                                   .bounds = bounds,
                                   .n_bounds = n_bounds};
    if (model != NULL) {
        partitioner.model = *model;
    } else {
        trm_cost_model_default(TRM_BACKEND_HOST, &partitioner.model);
    }
    trm_status status;
    if (exchange != NULL) {
        status = clone_as_written(network, mesh, rank, local);
        made.as_written = true;
        snprintf(made.note, sizeof(made.note),
                 "layer %.200s exchanges data between ranks: every rank runs the network as written", exchange->name);
    } else {
        status = partition(&partitioner, mesh, rank, local, &made);
    }
    made.has_regions = trm_network_has_regions(network) && (exchange == NULL || trm_mesh_ranks(mesh) == 1);
    trm_arena_fini(&partitioner.arena);
    if (status == TRM_OK && report != NULL) {
        *report = made;
    }
    return status;
}

trm_status trm_partition(const trm_network *network, const trm_mesh *mesh, int32_t rank, const trm_cost_model *model,
                         trm_network **local, trm_partition_report *report)
{
    return trm_partition_bounded(network, mesh, rank, model, NULL, 0, local, report);
}
