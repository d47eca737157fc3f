/* The builder: passes and partition, to one rank's network; memory.c plans its memory. */
#include "dist/plan/plan.h"

#include <stdlib.h>
#include <string.h>

#include <trireme/trireme.h>

#include "base/error.h"
#include "base/options.h"
#include "base/log.h"
#include "base/recorder.h"
#include "dist/plan/streaming_plan.h"
#include "dist/parallel/world.h"
#include "kernels/fused/fused.h"
#include "kernels/int8/int8.h"

/* Checks that the peer of a SEND or RECV is another rank of the rank's group (NULL: of the mesh). */
static trm_status check_peer(const trm_collective_params *p, const int32_t *group, int32_t rank, int32_t ranks)
{
    const int32_t n = group == NULL ? ranks : p->group_size;
    bool valid = false;
    for (int32_t i = 0; i < n; i++) {
        const int32_t member = group == NULL ? i : group[i];
        valid = valid || (member != rank && p->root == (p->n_groups > 1 ? i : member));
    }
    if (!valid) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "%s of rank %d has peer %d, expected %s", trm_collective_op_name(p->op),
                 rank, p->root,
                 p->n_groups == 0   ? "another rank of the mesh"
                 : p->n_groups == 1 ? "another rank of its group"
                                    : "the index of another rank in its group");
    }
    return TRM_OK;
}

/* Checks a collective written by the network's author against the rank and the number of ranks. */
static trm_status check_exchange(const trm_collective_params *p, int32_t rank, int32_t ranks)
{
    const char *op = trm_collective_op_name(p->op);
    const bool has_peer = p->op == TRM_SEND || p->op == TRM_RECV;
    const int32_t *group = NULL; /* the rank's */
    if (p->n_groups == 0 && !has_peer && p->n_ranks != ranks) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "%s is for %d ranks, the mesh has %d", op, p->n_ranks, ranks);
    }
    for (int32_t i = 0; i < p->n_groups * p->group_size; i++) {
        if (p->groups[i] >= ranks) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "%s names rank %d, the mesh has %d", op, p->groups[i], ranks);
        }
        if (p->groups[i] == rank) {
            group = &p->groups[i - i % p->group_size];
        }
    }
    if (p->n_groups > 0 && group == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "%s has no group with rank %d: remove it from the network of that rank",
                 op, rank);
    }
    return has_peer ? check_peer(p, group, rank, ranks) : TRM_OK;
}

trm_status trm_plan_check_exchanges(const trm_plan *plan)
{
    for (int32_t i = 0; i < plan->network->n_layers; i++) {
        const trm_layer *layer = plan->network->layers[i];
        const trm_collective_params *collective = trm_layer_collective(&layer->desc);
        if (collective != NULL) {
            trm_status status = check_exchange(collective, plan->rank, trm_mesh_ranks(&plan->mesh));
            if (status != TRM_OK) {
                return trm_fail_in(status, "layer %s", layer->name);
            }
        }
    }
    return TRM_OK;
}

static void show_stage(const trm_build_options *options, const char *stage, const trm_network *network)
{
    if (options->on_stage != NULL) {
        options->on_stage(options->stage_user, stage, network);
    }
}

/* Fuses chains of elementwise layers, if this machine can run fused ones. */
static trm_status fuse_elementwise(trm_network *network, trm_backend backend)
{
    char why[512];
    if (trm_fused_available(backend, why, sizeof(why))) {
        return trm_pass_fuse_elementwise(network, NULL);
    }
    trm_log(TRM_LOG_INFO, "cannot fuse elementwise layers: %s", why);
    return TRM_OK;
}

/* Partitions by the bounds of inputs, which are the same on all ranks. */
static trm_status partition(trm_plan *plan, const trm_network *whole, const trm_build_options *options)
{
    trm_cost_model model;
    int32_t *runs = calloc((size_t)whole->n_layers + 1, sizeof(*runs));
    if (runs == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a list of %d layers", whole->n_layers);
    }
    trm_cost_model_default(options->backend, &model);
    model.runs = runs;
    trm_status status = trm_plan_expect_runs(whole, options, runs);
    if (status == TRM_OK) {
        status = trm_partition_bounded(whole, &options->mesh, options->rank, &model, options->bounds, options->n_bounds,
                                       &plan->network, &plan->partition);
    }
    free(runs);
    return status;
}

/* Makes the rank's network from the caller's. */
static trm_status make_local_network(trm_plan *plan, const trm_network *network, const trm_build_options *options)
{
    trm_network *whole;
    TRM_TRY(trm_network_clone(network, &whole));
    show_stage(options, "import", whole);
    trm_status status = trm_run_passes(whole, TRM_PASSES_BEFORE_PARTITION);
    if (status == TRM_OK) {
        show_stage(options, "passes", whole);
        status = partition(plan, whole, options);
    }
    trm_network_destroy(whole);
    TRM_TRY(status);
    show_stage(options, "partition", plan->network);
    TRM_TRY(trm_run_passes(plan->network, TRM_PASSES_AFTER_PARTITION));
    int32_t moved = 0;
    if (trm_int8_is_fast(options->backend)) {
        TRM_TRY(trm_pass_fuse_int8(plan->network, &moved));
    }
    if (options->backend == TRM_BACKEND_CUDA) {
        TRM_TRY(trm_pass_layouts(plan->network, options->allow_tf32, &moved));
    }
    if (moved > 0) {
        TRM_TRY(trm_run_passes(plan->network, TRM_PASSES_AFTER_PARTITION));
    }
    if (trm_int8_is_fast(options->backend)) {
        TRM_TRY(trm_pass_quantize_attention(plan->network, &moved));
    }
    if (!plan->partition.as_written) { /* networks written per rank may differ */
        TRM_TRY(trm_pass_fuse_exchanges(plan->network, NULL));
    }
    if (!options->batch_invariant) { /* batch-invariant products stay separate */
        TRM_TRY(trm_pass_fuse_norm_products(plan->network, NULL));
    }
    TRM_TRY(fuse_elementwise(plan->network, options->backend));
    show_stage(options, "final", plan->network);
    return TRM_OK;
}

static trm_status check_options(const trm_build_options *options)
{
    if (options->backend != TRM_BACKEND_HOST && options->backend != TRM_BACKEND_CUDA) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "build has backend %d", (int)options->backend);
    }
    if (options->max_aux_streams < TRM_AUX_STREAMS_AUTO || options->max_aux_streams > TRM_MAX_AUX_STREAMS) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "build has %d aux streams, expected -1 to %d", options->max_aux_streams,
                 TRM_MAX_AUX_STREAMS);
    }
    if (options->n_bounds < 0 || (options->n_bounds > 0 && options->bounds == NULL)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "build has %d bounds%s", options->n_bounds,
                 options->bounds == NULL ? ", but no list of them" : "");
    }
    return TRM_OK;
}

TRM_CALL(NULL, trm_build, (const trm_network *network, const trm_build_options *options, trm_plan **plan),
         (network, options, plan))
{
    if (network == NULL || options == NULL || plan == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot build: network, options or plan is NULL");
    }
    trm_build_options own = TRM_BUILD_OPTIONS_INIT;
    TRM_TRY(trm_options_read("build options", options, &own));
    own.backend = trm_system_backend(own.backend);
    own.mesh = trm_mesh_resolve(&own.mesh, 1);
    options = &own;
    TRM_TRY(check_options(options));
    TRM_TRY(trm_plan_check_bounds(network, options));
    trm_plan *made = calloc(1, sizeof(*made));
    if (made == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a plan");
    }
    made->backend = options->backend;
    made->mesh = options->mesh;
    made->rank = options->rank;
    made->allow_tf32 = options->allow_tf32;
    made->batch_invariant = options->batch_invariant;
    made->max_workspace = options->max_workspace;
    made->max_aux_streams = options->max_aux_streams;
    trm_status status;
    TRM_TRY_GOTO(status, make_local_network(made, network, options), destroy);
    if (made->partition.as_written) {
        TRM_TRY_GOTO(status, trm_plan_check_exchanges(made), destroy);
    }
    TRM_TRY_GOTO(status, trm_plan_set_profiles(made, options), destroy);
    TRM_TRY_GOTO(status, trm_plan_lay_out_memory(made), destroy);
    *plan = made;
    return TRM_OK;
destroy:
    trm_plan_destroy(made);
    return status;
}

void trm_plan_destroy(trm_plan *plan)
{
    if (plan != NULL) {
        trm_streaming_plan_destroy(plan->streaming);
        trm_network_destroy(plan->network);
        trm_arena_fini(&plan->arena);
        free(plan);
    }
}

char *trm_plan_to_text(const trm_plan *plan)
{
    return plan == NULL ? NULL : trm_network_to_text(plan->network);
}

const trm_network *trm_plan_network(const trm_plan *plan)
{
    return plan->network;
}

void trm_plan_get_info(const trm_plan *plan, trm_plan_info *info)
{
    *info = (trm_plan_info){.backend = plan->backend,
                            .mesh = plan->mesh,
                            .rank = plan->rank,
                            .n_ranks = trm_mesh_ranks(&plan->mesh),
                            .n_profiles = plan->n_profiles,
                            .n_collectives = plan->partition.n_collectives,
                            .refittable = plan->network->refittable,
                            .n_aux_streams = plan->streams.n,
                            .n_tactics = plan->n_tactics,
                            .device = plan->n_tactics > 0 ? plan->device.name : NULL,
                            .multiprocessors = plan->device.multiprocessors,
                            .cc_major = plan->device.major,
                            .cc_minor = plan->device.minor,
                            .library = trm_version(),
                            .format = plan->format};
    memcpy(info->n_weights, plan->n_file_weights, sizeof(info->n_weights));
}

bool trm_plan_get_bound(const trm_plan *plan, int32_t index, trm_shape_bound *bound)
{
    if (index < 0 || index >= plan->n_bounds) {
        return false;
    }
    *bound = plan->bounds[index];
    return true;
}

size_t trm_plan_workspace(const trm_plan *plan)
{
    return plan->workspace_bytes * ((size_t)plan->streams.n + 1);
}

void trm_plan_memory(const trm_plan *plan, trm_memory_plan *memory)
{
    *memory = (trm_memory_plan){
        .weights = plan->weight_bytes,
        .state = plan->state_bytes,
        .activations = plan->input_bytes + plan->activation_bytes,
        .workspace = trm_plan_workspace(plan),
    };
    if (plan->streaming != NULL) {
        memory->weights += plan->streaming->residency.resident_bytes + plan->streaming->expert_bytes;
        memory->staging = trm_streaming_staging(plan->streaming);
    }
    memory->total = memory->weights + memory->staging + memory->state + memory->activations + memory->workspace;
}
