/* The engine: a plan's weights on this rank's device. */
#include "dist/runtime/engine.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "base/recorder.h"
#include "base/unit.h"
#include "dist/runtime/load.h"
#include "kernels/fused/fused.h"

/* Memory left free by an automatic budget, for allocations of CUDA and its libraries. */
#define RESERVE ((size_t)1 << 30)

/* Checks that the plan fits the device; if not, the error has the memory plan. Resolves an automatic budget to what one
 * context leaves. */
static trm_status check_memory(trm_plan *plan, trm_device *device)
{
    trm_memory_plan need;
    trm_plan_memory(plan, &need);
    trm_device_info info;
    TRM_TRY(trm_device_get_info(device, &info));
    size_t others = need.total - need.weights - need.staging + (info.backend == TRM_BACKEND_CUDA ? RESERVE : 0);
    TRM_TRY(trm_streaming_fit(plan, info.memory_free > others ? info.memory_free - others : 0));
    trm_plan_memory(plan, &need);
    if (need.total > info.memory_free) {
        const trm_unit unit = trm_unit_of((double)need.total);
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY,
                 "rank %d needs %.3f %s of memory on %s (weights %.3f, staging %.3f, state %.3f, activations %.3f, "
                 "workspace %.3f), %s of %s are free",
                 plan->rank, (double)need.total / unit.bytes, unit.name, info.name, (double)need.weights / unit.bytes,
                 (double)need.staging / unit.bytes, (double)need.state / unit.bytes,
                 (double)need.activations / unit.bytes, (double)need.workspace / unit.bytes,
                 trm_size_text((double)info.memory_free).text, trm_size_text((double)info.memory_total).text);
    }
    return TRM_OK;
}

static trm_status check_fits(trm_plan *plan, const trm_world *world)
{
    trm_backend backend = trm_device_backend(world->device);
    if (plan->backend != backend || plan->rank != world->rank) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "the plan is for rank %d on %s, this rank is %d on %s", plan->rank,
                 trm_backend_name(plan->backend), world->rank, trm_backend_name(backend));
    }
    int32_t ranks = trm_mesh_ranks(&plan->mesh);
    if (ranks != world->size) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "the plan is for a mesh of %d ranks, the world has %d", ranks,
                 world->size);
    }
    return check_memory(plan, world->device);
}

/* The groups of a layer, as a rank broadcasts them. */
typedef struct group_card {
    int32_t n_groups, group_size;
    int32_t groups[TRM_MAX_RANKS];
} group_card;

static int32_t list_groups(const trm_network *network, group_card *cards)
{
    int32_t count = 0;
    for (int32_t i = 0; i < network->n_layers; i++) {
        const trm_collective_params *p = trm_layer_collective(&network->layers[i]->desc);
        if (p != NULL && p->n_groups > 0) {
            if (cards != NULL) {
                cards[count] = (group_card){.n_groups = p->n_groups, .group_size = p->group_size};
                memcpy(cards[count].groups, p->groups, sizeof(p->groups));
            }
            count++;
        }
    }
    return count;
}

/* Makes the groups of the layers of rank `root`. Collective. */
static trm_status open_groups_of(trm_world *world, const trm_network *network, int32_t root)
{
    int32_t count = list_groups(network, NULL);
    TRM_TRY(trm_world_broadcast(world, &count, sizeof(count), root));
    group_card *cards = calloc((size_t)count + 1, sizeof(*cards));
    trm_status status = TRM_OK;
    if (cards == NULL) {
        status = trm_fail(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the groups of %d layers", count);
    } else if (world->rank == root) {
        list_groups(network, cards);
    }
    status = trm_world_all_ok(world, status);
    if (status == TRM_OK) {
        status = trm_world_broadcast(world, cards, (size_t)count * sizeof(*cards), root);
    }
    for (int32_t i = 0; status == TRM_OK && i < count; i++) {
        trm_communicator *part;
        status =
            trm_communicator_part(world->communicator, cards[i].groups, cards[i].n_groups, cards[i].group_size, &part);
    }
    free(cards);
    return status;
}

/*
 * If the network's author wrote the collectives, ranks may have different layers, but all must take part in making a
 * group's communicator: every rank broadcasts its groups, and all make them in the same order. A world made of parts
 * cannot ask; its groups are made when a layer first runs.
 */
static trm_status open_written_groups(trm_world *world, const trm_plan *plan)
{
    trm_status status = TRM_OK;
    for (int32_t r = 0; status == TRM_OK && plan->partition.as_written && world->bootstrap != NULL && r < world->size;
         r++) {
        status = open_groups_of(world, plan->network, r);
    }
    return status;
}

/* Compiles generated kernels now, so that no run waits for one. */
static trm_status prepare_kernels(const trm_engine *engine)
{
    const trm_network *network = engine->plan->network;
    for (int32_t i = 0; i < network->n_layers; i++) {
        const trm_layer *layer = network->layers[i];
        trm_dtype types[TRM_MAX_LAYER_INPUTS];
        if (layer->desc.kind != TRM_LAYER_FUSED_ELEMENTWISE) {
            continue;
        }
        for (int32_t k = 0; k < layer->n_inputs; k++) {
            types[k] = layer->inputs[k]->dtype;
        }
        trm_status status = trm_fused_prepare(engine->world->device, &layer->desc, types, layer->n_inputs);
        if (status != TRM_OK) {
            return trm_fail_in(status, "layer %s", layer->name);
        }
    }
    return TRM_OK;
}

trm_offload_site trm_engine_offload_site(trm_engine *engine)
{
    return (trm_offload_site){engine->plan, engine->world, &engine->places, &engine->offload_device};
}

/* Measures layers on this rank's CPU, which decides how its weights are stored. On the host backend the CPU is the
 * device. */
static trm_status measure_cpu_offload(trm_engine *engine)
{
    const trm_streaming_plan *s = engine->plan->streaming;
    bool hosts = s->hosts || s->asked.host_compute == TRM_HOST_COMPUTE_AUTO;
    trm_cpu_offload_rates rates;
    if (!hosts || s->n_sharers > 1 || engine->plan->backend == TRM_BACKEND_HOST) {
        return TRM_OK;
    }
    const trm_offload_site site = trm_engine_offload_site(engine);
    TRM_TRY(trm_cpu_offload_measure(&site, &rates));
    return trm_streaming_use_rates(engine->plan, &rates);
}

/* A rank's own part, which may fail on one rank alone. If all weights stay, they are still loading when it returns. */
static trm_status fill_engine(trm_engine *engine)
{
    trm_plan *plan = engine->plan;
    trm_device *device = engine->world->device;
    TRM_TRY(trm_streaming_check(plan));
    TRM_TRY(check_fits(plan, engine->world));
    TRM_TRY(trm_plan_use_tactics(plan, device));
    void *memory;
    TRM_TRY(trm_device_alloc(device, plan->weight_bytes, &memory));
    engine->weights = memory;
    TRM_TRY(prepare_kernels(engine));
    if (plan->streaming == NULL) {
        return trm_load_start(engine, NULL, &engine->load);
    }
    TRM_TRY(measure_cpu_offload(engine));
    return trm_weight_residency_init(&engine->places, plan, device, engine->world->memory_sharers,
                                     trm_world_threads(engine->world));
}

/* Waits for the weights, and completes streaming. */
trm_status trm_engine_finish_loading(trm_engine *engine, trm_progress_fn progress, void *user)
{
    if (engine->load == NULL) {
        return TRM_OK;
    }
    trm_status status = trm_load_wait(engine->load, progress, user);
    engine->loaded_bytes = trm_load_bytes(engine->load);
    engine->load_seconds = trm_load_seconds(engine->load);
    trm_load_destroy(engine->load);
    engine->load = NULL;
    TRM_DEBUG("rank %d: %s of weights loaded in %.3f s", engine->plan->rank,
              trm_size_text((double)engine->loaded_bytes).text, engine->load_seconds);
    return status;
}

/* Streamed weights must be loaded before a context is created, which needs their addresses. */
static trm_status load_streamed(trm_engine *engine, trm_progress_fn progress, void *user)
{
    if (engine->plan->streaming == NULL) {
        return TRM_OK;
    }
    TRM_TRY(trm_load_start(engine, NULL, &engine->load));
    TRM_TRY(trm_engine_finish_loading(engine, progress, user));
    trm_weight_residency_pin(&engine->places, engine->plan, engine->world->device);
    return TRM_OK;
}

/* Plans with rates that all ranks measure at the same time. Collective. */
static trm_status settle_streamed(trm_engine *engine)
{
    trm_plan *plan = engine->plan;
    trm_world *world = engine->world;
    trm_status status = TRM_OK;
    trm_streaming_rates rates = {0};
    if (plan->streaming != NULL) {
        status = trm_weight_residency_measure(&engine->places, plan, world->device, &rates);
    }
    TRM_TRY(trm_world_all_ok(world, status));
    TRM_TRY(trm_streaming_measure_gather(world, engine->sharers, &rates.gather));
    TRM_TRY(trm_streaming_agree_on_rates(world, engine->sharers, &rates));
    if (plan->streaming != NULL) {
        status = trm_weight_residency_settle(&engine->places, plan, &rates);
    }
    TRM_TRY(trm_world_all_ok(world, status));
    int64_t stay = !trm_streaming_fetches(plan);
    TRM_TRY(trm_world_has_host_communicator(world) ? trm_world_minimum(world, &stay, 1) : TRM_OK);
    engine->others_stay = world->size == 1 || (trm_world_has_host_communicator(world) && stay == 1);
    return TRM_OK;
}

trm_status trm_engine_begin(trm_plan *plan, trm_world *world, trm_progress_fn progress, void *user, trm_engine **engine)
{
    trm_engine *made = calloc(1, sizeof(*made));
    trm_status status;
    if (made == NULL) {
        trm_plan_destroy(plan);
        status = trm_fail(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate an engine");
    } else {
        *made = (trm_engine){
            .plan = plan, .world = world, .planning = PTHREAD_MUTEX_INITIALIZER, .sharing = PTHREAD_MUTEX_INITIALIZER};
        status = fill_engine(made);
        status = status == TRM_OK ? load_streamed(made, progress, user) : status;
    }
    TRM_TRY_GOTO(status, trm_world_all_ok(world, status), destroy);
    TRM_TRY_GOTO(status, open_written_groups(world, plan), destroy);
    TRM_TRY_GOTO(status, trm_partition_open_groups(&plan->mesh, &plan->partition, world->communicator), destroy);
    TRM_TRY_GOTO(status, trm_streaming_check_alike(plan, world), destroy);
    TRM_TRY_GOTO(status, trm_streaming_open_group(plan, world, &made->sharers), destroy);
    TRM_TRY_GOTO(status, settle_streamed(made), destroy);
    *engine = made;
    return TRM_OK;
destroy:
    trm_engine_destroy(made);
    return status;
}

TRM_CALL(trm_world_recorder(world), trm_engine_create,
         (trm_plan *plan, trm_world *world, trm_progress_fn progress, void *user, trm_engine **engine),
         (plan, world, progress, user, engine))
{
    if (plan == NULL || world == NULL || engine == NULL) {
        trm_plan_destroy(plan);
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot create an engine: plan, world or engine is NULL");
    }
    trm_engine *made;
    TRM_TRY(trm_engine_begin(plan, world, progress, user, &made));
    trm_status status = trm_world_all_ok(world, trm_engine_finish_loading(made, progress, user));
    if (status != TRM_OK) {
        trm_engine_destroy(made);
        return status;
    }
    *engine = made;
    return TRM_OK;
}

void trm_engine_destroy(trm_engine *engine)
{
    if (engine != NULL) {
        trm_load_destroy(engine->load);
        trm_device_free(engine->world->device, engine->weights);
        trm_weight_residency_fini(&engine->places, engine->plan, engine->world->device);
        trm_offload_device_close(&engine->offload_device);
        trm_pool_destroy(engine->planners);
        pthread_mutex_destroy(&engine->planning);
        pthread_mutex_destroy(&engine->sharing);
        trm_plan_destroy(engine->plan);
        free(engine);
    }
}

TRM_CALL(trm_engine_recorder(engine), trm_engine_set_weight_budget, (trm_engine *engine, size_t bytes),
         (engine, bytes))
{
    if (engine == NULL || engine->plan->streaming == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot set a weight budget: %s",
                 engine == NULL ? "engine is NULL" : "the engine's plan had no weight budget");
    }
    trm_held_error changed;
    trm_error_hold(trm_weight_residency_change(&engine->places, engine->plan, engine->world->device, bytes), &changed);
    engine->others_stay = engine->world->size == 1;
    const trm_status alike =
        trm_streaming_check_alike(engine->plan, engine->world); /* the others are waiting for this rank */
    return changed.status == TRM_OK ? alike : trm_error_give_back(&changed);
}

void trm_engine_streaming(const trm_engine *engine, trm_streaming_info *info)
{
    const trm_weight_residency *places = &engine->places;
    trm_plan_streaming(engine->plan, info);
    info->pinned = places->pinned;
    info->measured = places->measured.link > 0;
    info->host = places->host_used;
    for (int32_t i = 0; i < places->n; i++) {
        info->files += places->stored[i].memory == NULL && places->resident[i] == NULL
                           ? engine->plan->streaming->part_bytes[i]
                           : 0;
    }
    info->file_buffers = info->files > 0 ? TRM_READER_HOST_BYTES : 0;
    pthread_mutex_t *sharing = (pthread_mutex_t *)(uintptr_t)&engine->sharing;
    pthread_mutex_lock(sharing);
    const trm_expert_counts counts = trm_expert_cache_counts(engine->experts);
    pthread_mutex_unlock(sharing);
    info->expert_hits = counts.hits;
    info->expert_misses = counts.misses;
    info->expert_hosted = counts.hosted;
    info->expert_reads = counts.read;
}

void trm_engine_set_recorder(trm_engine *engine, trm_recorder *recorder)
{
    engine->recorder = recorder;
}

trm_recorder *trm_engine_recorder(const trm_engine *engine)
{
    return engine == NULL ? NULL : engine->recorder != NULL ? engine->recorder : trm_world_recorder(engine->world);
}
