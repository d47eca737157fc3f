/*
 * All-reduces of microbatches by copy engines (collectives/peer_lane.h): which of a network's can use them, and running
 * them. An all-reduce followed by a norm can, if the ranks have peer access; each rank then has its own rows of the sum
 * and the whole result.
 */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "dist/llm/microbatch.h"

/* Most ranks for all-reduces by copies: more have not been measured. */
#define MOST_COPYING_RANKS 2

static bool is_fused(const trm_layer *layer)
{
    return layer->desc.kind == TRM_LAYER_ALL_REDUCE_NORM;
}

/* The first all-reduce that can use copies; others between the same ranks can too. NULL: none can. */
static const trm_layer *first_sum(const trm_plan *plan)
{
    const bool few = trm_mesh_ranks(&plan->mesh) <= MOST_COPYING_RANKS && plan->mesh.size[TRM_AXIS_PP] == 1;
    for (int32_t i = 0; i < plan->network->n_layers && few; i++) {
        const trm_layer *layer = plan->network->layers[i];
        if (is_fused(layer)) {
            const int32_t ranks = layer->desc.all_reduce_norm.collective.n_ranks;
            return ranks >= 2 ? layer : NULL;
        }
    }
    return NULL;
}

/* Bytes of the largest all-reduce of this many rows. */
static size_t largest_sum(const trm_network *network, int64_t rows)
{
    size_t most = 0;
    for (int32_t i = 0; i < network->n_layers; i++) {
        const trm_tensor *x = network->layers[i]->inputs[0];
        if (is_fused(network->layers[i]) && x->dims.n > 0 && x->dims.d[x->dims.n - 1] > 0) {
            size_t bytes = (size_t)rows * (size_t)x->dims.d[x->dims.n - 1] * trm_dtype_size(x->dtype);
            most = bytes > most ? bytes : most;
        }
    }
    return most;
}

/* The first all-reduce may be between fewer ranks; their communicator uses peer memory only if that of all ranks does.
 */
static bool is_over_peer_memory(const trm_communicator *communicator)
{
#if TRM_HAVE_CUDA
    return trm_communicator_peer_link(communicator) != NULL;
#else
    (void)communicator;
    return false;
#endif
}

size_t trm_microbatch_sums_bytes(const trm_plan *plan, const trm_communicator *communicator, int64_t rows)
{
    const trm_layer *first = first_sum(plan);
    if (first == NULL || (communicator != NULL && !is_over_peer_memory(communicator))) {
        return 0;
    }
    return TRM_MICROBATCHES *
           trm_peer_lane_bytes(first->desc.all_reduce_norm.collective.n_ranks, largest_sum(plan->network, rows));
}

#if TRM_HAVE_CUDA

static bool has_same_ranks(const trm_layer *layer, const trm_layer *first)
{
    const trm_collective_params *a = &layer->desc.all_reduce_norm.collective;
    const trm_collective_params *b = &first->desc.all_reduce_norm.collective;
    const size_t bytes = (size_t)a->n_groups * (size_t)a->group_size * sizeof(*a->groups);
    return a->n_groups == b->n_groups && a->group_size == b->group_size &&
           (a->n_groups == 0 || memcmp(a->groups, b->groups, bytes) == 0);
}

static bool is_output(const trm_network *network, const trm_tensor *tensor)
{
    for (int32_t i = 0; i < network->n_outputs; i++) {
        if (network->outputs[i] == tensor) {
            return true;
        }
    }
    return false;
}

/* Whether a sum is read only as residual of all-reduces by copies, which need only their rank's rows. */
static bool is_read_by_rows(const trm_microbatches *microbatches, const trm_tensor *sum)
{
    const trm_network *network = microbatches->contexts[0]->engine->plan->network;
    for (int32_t i = 0; i < network->n_layers; i++) {
        for (int32_t j = 0; j < network->layers[i]->n_inputs; j++) {
            if (network->layers[i]->inputs[j] == sum && (!microbatches->layers[i].copies || j != 1)) {
                return false;
            }
        }
    }
    return !is_output(network, sum);
}

/* Whether only products read the result of a layer, write elsewhere, and have run before the next result is gathered.
 */
static bool is_read_at_once(const trm_microbatches *microbatches, int32_t index)
{
    const trm_network *network = microbatches->contexts[0]->engine->plan->network;
    const trm_tensor *result = network->layers[index]->outputs[0];
    bool is_over = false;
    for (int32_t i = index + 1; i < network->n_layers; i++) {
        const trm_layer *layer = network->layers[i];
        const bool is_product = layer->desc.kind == TRM_LAYER_MATMUL || layer->desc.kind == TRM_LAYER_MATMUL_GLU;
        for (int32_t j = 0; j < layer->n_inputs; j++) {
            if (layer->inputs[j] == result && (is_over || !is_product || j > 0)) {
                return false;
            }
        }
        is_over = is_over || microbatches->layers[i].copies;
    }
    return !is_output(network, result);
}

static void choose_layers(trm_microbatches *microbatches, const trm_layer *first)
{
    const trm_network *network = microbatches->contexts[0]->engine->plan->network;
    for (int32_t i = 0; i < network->n_layers; i++) {
        microbatches->layers[i].copies = is_fused(network->layers[i]) && has_same_ranks(network->layers[i], first);
    }
    for (int32_t i = 0; i < network->n_layers; i++) {
        const trm_layer *layer = network->layers[i];
        trm_microbatch_layer *own = &microbatches->layers[i];
        if (!own->copies) {
            continue;
        }
        own->whole_sum = layer->n_outputs > 1 && !is_read_by_rows(microbatches, layer->outputs[1]);
        own->in_place = is_read_at_once(microbatches, i);
        for (int32_t j = i + 1; j < network->n_layers && own->in_place; j++) {
            microbatches->layers[j].reads_gathered |=
                network->layers[j]->n_inputs > 0 && network->layers[j]->inputs[0] == layer->outputs[0];
        }
    }
}

trm_status trm_microbatch_sums_init(trm_microbatches *microbatches, int64_t rows)
{
    const trm_engine *engine = microbatches->contexts[0]->engine;
    const trm_network *network = engine->plan->network;
    const trm_layer *first = first_sum(engine->plan);
    if (first == NULL || trm_device_backend(engine->world->device) != TRM_BACKEND_CUDA) {
        return TRM_OK;
    }
    const trm_collective_params *p = &first->desc.all_reduce_norm.collective;
    trm_communicator *part;
    TRM_TRY(trm_communicator_part(engine->world->communicator, p->groups, p->n_groups, p->group_size, &part));
    for (int32_t i = 0; part != NULL && i < TRM_MICROBATCHES; i++) {
        TRM_TRY(trm_communicator_take_lane(part, largest_sum(network, rows), &microbatches->places[i]));
        microbatches->gathered[i] =
            microbatches->places[i] == NULL ? NULL : trm_peer_lane_gathered(microbatches->places[i]);
    }
    if (microbatches->places[0] == NULL || microbatches->places[1] == NULL) {
        trm_microbatch_sums_fini(microbatches);
        TRM_INFO("rank %d: all-reduces of microbatches do not use copy engines", engine->plan->rank);
        return TRM_OK;
    }
    choose_layers(microbatches, first);
    return TRM_OK;
}

void trm_microbatch_sums_fini(trm_microbatches *microbatches)
{
    for (int32_t i = 0; i < TRM_MICROBATCHES; i++) {
        trm_peer_lane_return(microbatches->places[i]);
        microbatches->places[i] = NULL;
    }
}

bool trm_microbatch_sums_can_copy(const trm_microbatches *microbatches)
{
    const trm_network *network = microbatches->contexts[0]->engine->plan->network;
    bool all = microbatches->places[0] != NULL && microbatches->places[1] != NULL;
    for (int32_t i = 0; i < network->n_layers && all; i++) {
        for (int32_t microbatch = 0; microbatch < TRM_MICROBATCHES && microbatches->layers[i].copies; microbatch++) {
            trm_peer_norm n = trm_all_reduce_norm_describe(trm_context_call(microbatches->contexts[microbatch], i));
            all = all && trm_peer_lane_takes(microbatches->places[microbatch], &n);
        }
    }
    return all;
}

trm_status trm_microbatch_sums_add(trm_microbatches *microbatches, int32_t microbatch, int32_t layer,
                                   trm_stream *stream)
{
    const trm_kernel_call *call = trm_context_call(microbatches->contexts[microbatch], layer);
    const trm_microbatch_layer *own = &microbatches->layers[layer];
    trm_peer_norm n = trm_all_reduce_norm_describe(call);
    if (own->in_place) {
        n.to = microbatches->gathered[microbatch];
    }
    return trm_peer_lane_norm(microbatches->places[microbatch], &n, &call->layer->all_reduce_norm.norm, own->whole_sum,
                              stream);
}

#else

trm_status trm_microbatch_sums_init(trm_microbatches *microbatches, int64_t rows)
{
    (void)microbatches;
    (void)rows;
    return TRM_OK;
}

void trm_microbatch_sums_fini(trm_microbatches *microbatches)
{
    (void)microbatches;
}

bool trm_microbatch_sums_can_copy(const trm_microbatches *microbatches)
{
    (void)microbatches;
    return false;
}

trm_status trm_microbatch_sums_add(trm_microbatches *microbatches, int32_t microbatch, int32_t layer,
                                   trm_stream *stream)
{
    (void)microbatches;
    (void)microbatch;
    (void)layer;
    (void)stream;
    TRM_FAIL(TRM_ERROR_INTERNAL, "all-reduces by copy engines need CUDA");
}

#endif
