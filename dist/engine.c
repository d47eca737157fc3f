/* The engine: a plan's weights on this rank's device. */
#include "dist/engine.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "base/pool.h"
#include "kernels/fused.h"

/* Weights pass through a few pinned buffers of this size; reading one overlaps with copying the others. */
#define STAGING_BYTES   ((size_t)32 << 20)
#define STAGING_BUFFERS 3
/* Below this a read is not worth sharing out. */
#define READ_GRAIN ((int64_t)256 << 10)

typedef struct loader {
    trm_engine *engine;
    trm_stream *stream;
    trm_pool *pool;
    unsigned char *staging[STAGING_BUFFERS]; /* CUDA only */
    trm_event *uploaded[STAGING_BUFFERS];
    int32_t turn;
    const bool *only; /* [n_tensors] which constants; NULL: all */
    trm_progress_fn progress;
    void *user;
    size_t done, total; /* bytes, without what aligns them */
} loader;

typedef struct parallel_read {
    const trm_weight *weight;
    trm_dtype dtype;
    size_t first; /* element at the start of `to` */
    unsigned char *to;
    pthread_mutex_t mutex;
    trm_status status;
    char cause[512];
} parallel_read;

static void read_range(void *user, int64_t begin, int64_t end)
{
    parallel_read *read = user;
    trm_status status = trm_weight_read(read->weight, read->dtype, read->first + (size_t)begin, (size_t)(end - begin),
                                        read->to + (size_t)begin * trm_dtype_size(read->dtype));
    if (status != TRM_OK) {
        pthread_mutex_lock(&read->mutex);
        if (read->status == TRM_OK) {
            read->status = status;
            strncpy(read->cause, trm_last_error(), sizeof(read->cause) - 1);
        }
        pthread_mutex_unlock(&read->mutex);
    }
}

/* Elements first .. first + count - 1 of a weight into host memory, on all threads. */
static trm_status read_parallel(loader *load, const trm_tensor *tensor, size_t first, size_t count, void *to)
{
    parallel_read read = {.weight = tensor->weight,
                          .dtype = tensor->dtype,
                          .first = first,
                          .to = to,
                          .mutex = PTHREAD_MUTEX_INITIALIZER,
                          .status = TRM_OK};
    trm_pool_for(load->pool, (int64_t)count, READ_GRAIN, read_range, &read);
    if (read.status != TRM_OK) {
        return trm_fail(read.status, "weight %s: %s", tensor->name, read.cause);
    }
    return TRM_OK;
}

static trm_status load_through_staging(loader *load, const trm_tensor *tensor, unsigned char *to)
{
    size_t element = trm_dtype_size(tensor->dtype);
    size_t count = (size_t)trm_dims_count(&tensor->dims);
    size_t most = STAGING_BYTES / element;
    for (size_t first = 0; first < count; first += most) {
        size_t part = count - first < most ? count - first : most;
        int32_t turn = load->turn;
        load->turn = (turn + 1) % STAGING_BUFFERS;
        TRM_TRY(trm_event_synchronize(load->uploaded[turn]));
        TRM_TRY(read_parallel(load, tensor, first, part, load->staging[turn]));
        TRM_TRY(trm_stream_upload(load->stream, to + first * element, load->staging[turn], part * element));
        TRM_TRY(trm_event_record(load->uploaded[turn], load->stream));
        if (load->progress != NULL) {
            load->progress(load->user, load->done + (first + part) * element, load->total);
        }
    }
    return TRM_OK;
}

/* Where a constant is to lie on the device, NULL if nowhere for long. */
static unsigned char *place_of(const loader *load, const trm_tensor *tensor)
{
    const trm_engine *engine = load->engine;
    int32_t streamed = trm_streaming_weight(engine->plan, tensor);
    return streamed >= 0 ? engine->places.resident[streamed]
                         : engine->weights + engine->plan->weight_offsets[tensor->index];
}

typedef struct stored_read {
    loader *load;
    const trm_tensor *tensor;
} stored_read;

static trm_status read_stored(void *user, size_t begin, size_t size, void *to)
{
    const stored_read *read = user;
    size_t element = trm_dtype_size(read->tensor->dtype);
    if (read->tensor->value != NULL) {
        memcpy(to, (const unsigned char *)read->tensor->value + begin, size);
        return TRM_OK;
    }
    return read_parallel(read->load, read->tensor, begin / element, size / element, to);
}

static trm_status load_constant(loader *load, const trm_tensor *tensor, size_t bytes)
{
    bool on_host = load->staging[0] == NULL; /* the device's memory is ours */
    trm_engine *engine = load->engine;
    int32_t streamed = trm_streaming_weight(engine->plan, tensor);
    if (streamed >= 0 && engine->places.stored[streamed].memory != NULL) {
        return trm_weight_places_store(&engine->places, engine->plan, engine->world->device, streamed, read_stored,
                                       &(stored_read){load, tensor});
    }
    unsigned char *to = place_of(load, tensor);
    if (to == NULL) { /* it is read in every step */
        return TRM_OK;
    }
    if (tensor->value != NULL && on_host) {
        memcpy(to, tensor->value, bytes);
        return TRM_OK;
    }
    if (tensor->value != NULL) {
        return trm_stream_upload(load->stream, to, tensor->value, bytes);
    }
    return on_host ? read_parallel(load, tensor, 0, (size_t)trm_dims_count(&tensor->dims), to)
                   : load_through_staging(load, tensor, to);
}

static bool is_wanted(const loader *load, const trm_tensor *tensor)
{
    return tensor->role == TRM_TENSOR_CONSTANT && (load->only == NULL || load->only[tensor->index]);
}

static trm_status load_constants(loader *load)
{
    const trm_plan *plan = load->engine->plan;
    for (int32_t i = 0; i < plan->network->n_tensors; i++) {
        const trm_tensor *tensor = plan->network->tensors[i];
        load->total += is_wanted(load, tensor) ? trm_dims_bytes(&tensor->dims, tensor->dtype) : 0;
    }
    for (int32_t i = 0; i < plan->network->n_tensors; i++) {
        const trm_tensor *tensor = plan->network->tensors[i];
        if (!is_wanted(load, tensor)) {
            continue;
        }
        size_t bytes = trm_dims_bytes(&tensor->dims, tensor->dtype);
        TRM_TRY(load_constant(load, tensor, bytes));
        load->done += bytes;
        if (load->progress != NULL) {
            load->progress(load->user, load->done, load->total);
        }
    }
    return trm_stream_synchronize(load->stream);
}

static int32_t loader_threads(const trm_world *world)
{
    trm_device_info info;
    if (trm_device_backend(world->device) == TRM_BACKEND_HOST && trm_device_get_info(world->device, &info) == TRM_OK) {
        return info.threads; /* the rank's share already */
    }
    cpu_set_t cpus;
    int32_t n = sched_getaffinity(0, sizeof(cpus), &cpus) == 0 ? CPU_COUNT(&cpus) : 1;
    n /= world->local_size > 1 ? world->local_size : 1;
    return n < 1 ? 1 : n;
}

trm_status trm_engine_load_weights(trm_engine *engine, const bool *only, trm_progress_fn progress, void *user)
{
    trm_device *device = engine->world->device;
    loader load = {.engine = engine, .only = only, .progress = progress, .user = user};
    trm_status status;
    TRM_TRY_GOTO(status, trm_stream_create(device, &load.stream), destroy);
    TRM_TRY_GOTO(status, trm_pool_create(loader_threads(engine->world), &load.pool), destroy);
    if (trm_device_backend(device) != TRM_BACKEND_HOST) {
        for (int32_t i = 0; i < STAGING_BUFFERS; i++) {
            void *memory;
            TRM_TRY_GOTO(status, trm_device_alloc_host(device, STAGING_BYTES, &memory), destroy);
            load.staging[i] = memory;
            TRM_TRY_GOTO(status, trm_event_create(device, &load.uploaded[i]), destroy);
            TRM_TRY_GOTO(status, trm_event_record(load.uploaded[i], load.stream), destroy);
        }
    }
    engine->places.pool = load.pool;
    status = load_constants(&load);
    engine->places.pool = NULL;
    engine->loaded_bytes = load.done;
destroy:
    for (int32_t i = 0; i < STAGING_BUFFERS; i++) {
        trm_event_destroy(load.uploaded[i]);
        trm_device_free_host(device, load.staging[i]);
    }
    trm_pool_destroy(load.pool);
    trm_stream_destroy(load.stream);
    return status;
}

/* Left free when weights are to take what there is: for what CUDA and its libraries allocate themselves. */
#define RESERVE ((size_t)1 << 30)

/* Whether the device holds what the plan needs; if not, the record shows the plan. An automatic budget that nobody has
 * resolved takes what one context leaves. */
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
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY,
                 "rank %d needs %.2f GiB of memory on %s (weights %.2f, staging %.2f, state %.2f, activations %.2f, "
                 "workspace %.2f), %.2f GiB of %.2f GiB are free",
                 plan->rank, (double)need.total / 0x1p30, info.name, (double)need.weights / 0x1p30,
                 (double)need.staging / 0x1p30, (double)need.state / 0x1p30, (double)need.activations / 0x1p30,
                 (double)need.workspace / 0x1p30, (double)info.memory_free / 0x1p30,
                 (double)info.memory_total / 0x1p30);
    }
    return TRM_OK;
}

static trm_status check_fits(trm_plan *plan, const trm_world *world)
{
    trm_backend backend = trm_device_backend(world->device);
    if (plan->backend != backend || plan->rank != world->rank) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "the plan is for rank %d on %s, this is rank %d on %s", plan->rank,
                 trm_backend_name(plan->backend), world->rank, trm_backend_name(backend));
    }
    int32_t ranks = trm_mesh_ranks(&plan->mesh);
    if (ranks != world->size) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "the plan is for a mesh of %d ranks, the world has %d", ranks,
                 world->size);
    }
    return check_memory(plan, world->device);
}

/* The groups of a layer, as one rank tells them to the others. */
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

/* Makes the groups that the layers of rank `root` name. Collective. */
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
 * Where the networks' authors wrote the collectives, ranks may have different layers, but all must take part when the
 * communicator of a group is made: every rank tells its groups, and all make them in one order. A world made of parts
 * has nobody to ask; its groups are made when a layer first runs.
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

/* Kernels that are made for a layer are made now, so that no run has to wait for one. */
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

/* What a rank does by itself; may fail on one alone. */
static trm_status fill_engine(trm_engine *engine, trm_progress_fn progress, void *user)
{
    trm_plan *plan = engine->plan;
    trm_device *device = engine->world->device;
    TRM_TRY(check_fits(plan, engine->world));
    TRM_TRY(trm_plan_use_tactics(plan, device));
    void *memory;
    TRM_TRY(trm_device_alloc(device, plan->weight_bytes, &memory));
    engine->weights = memory;
    TRM_TRY(prepare_kernels(engine));
    if (plan->streaming == NULL) {
        return trm_engine_load_weights(engine, NULL, progress, user);
    }
    TRM_TRY(trm_weight_places_init(&engine->places, plan, device, engine->world->local_size,
                                   loader_threads(engine->world)));
    TRM_TRY(trm_engine_load_weights(engine, NULL, progress, user));
    return trm_weight_places_settle(&engine->places, plan, device);
}

trm_status trm_engine_create(trm_plan *plan, trm_world *world, trm_progress_fn progress, void *user,
                             trm_engine **engine)
{
    if (plan == NULL || world == NULL || engine == NULL) {
        trm_plan_destroy(plan);
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot create an engine: plan, world or engine is NULL");
    }
    trm_engine *made = calloc(1, sizeof(*made));
    trm_status status;
    if (made == NULL) {
        trm_plan_destroy(plan);
        status = trm_fail(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate an engine");
    } else {
        *made = (trm_engine){.plan = plan, .world = world};
        status = fill_engine(made, progress, user);
    }
    TRM_TRY_GOTO(status, trm_world_all_ok(world, status), destroy);
    TRM_TRY_GOTO(status, open_written_groups(world, plan), destroy);
    TRM_TRY_GOTO(status, trm_partition_open_groups(&plan->mesh, &plan->partition, world->communicator), destroy);
    TRM_DEBUG("rank %d: %.1f MiB of weights loaded", plan->rank, (double)plan->weight_bytes / 0x1p20);
    *engine = made;
    return TRM_OK;
destroy:
    trm_engine_destroy(made);
    return status;
}

void trm_engine_destroy(trm_engine *engine)
{
    if (engine != NULL) {
        trm_device_free(engine->world->device, engine->weights);
        trm_weight_places_fini(&engine->places, engine->plan, engine->world->device);
        trm_plan_destroy(engine->plan);
        free(engine);
    }
}

trm_status trm_engine_set_weight_budget(trm_engine *engine, size_t bytes)
{
    if (engine == NULL || engine->plan->streaming == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot set a weight budget: %s",
                 engine == NULL ? "engine is NULL" : "the engine's plan had none");
    }
    return trm_weight_places_change(&engine->places, engine->plan, engine->world->device, bytes);
}

void trm_engine_streaming(const trm_engine *engine, trm_streaming_info *info)
{
    const trm_weight_places *places = &engine->places;
    trm_plan_streaming(engine->plan, info);
    info->pinned = places->pinned;
    info->host = places->host_used;
    for (int32_t i = 0; i < places->n; i++) {
        info->files +=
            places->stored[i].memory == NULL && places->resident[i] == NULL ? engine->plan->streaming->bytes[i] : 0;
    }
}
