/* The world: this process, its device, and its peers. */
#include "dist/parallel/world.h"

#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <trireme/system.h>
#include <trireme/version.h>

#include "base/c_locale.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/options.h"
#include "base/ranges.h"
#include "base/recorder.h"
#include "dist/parallel/bootstrap.h"
#include "dist/parallel/topology.h"
#include "kernels/device/import.h"

#define DEFAULT_DEADLINE_SECONDS 60.0
#define MOST_REPLICAS            TRM_MAX_RANKS

/* What every rank sends about itself at the start. */
typedef struct introduction {
    char host[64];
    char processors[256]; /* allowed, before binding */
    char options[160];    /* text that must be the same on every rank */
} introduction;

/* What it sends about its device, once open. */
typedef struct device_card {
    char host[64];
    char uuid[48];
    int32_t ordinal;
} device_card;

static trm_status read_deadline(double given, double *seconds)
{
    const char *text = getenv("TRIREME_DEADLINE");
    *seconds = given > 0 ? given : DEFAULT_DEADLINE_SECONDS;
    if (given == 0 && text != NULL) {
        char *end;
        *seconds = trm_c_strtod(text, &end);
        if (end == text || *end != '\0' || !(*seconds > 0) || !isfinite(*seconds)) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "environment variable TRIREME_DEADLINE is \"%s\", expected seconds",
                     text);
        }
    }
    if (!(given >= 0) || !isfinite(given)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "world has a deadline of %g s", given);
    }
    return TRM_OK;
}

static trm_status read_exchange(const char **exchange)
{
    static const char *const names[] = {"auto", "peer", "nccl"};
    const char *text = getenv("TRIREME_EXCHANGE");
    *exchange = text == NULL ? names[0] : NULL;
    for (int i = 0; text != NULL && i < 3; i++) {
        *exchange = strcmp(text, names[i]) == 0 ? names[i] : *exchange;
    }
    if (*exchange == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "environment variable TRIREME_EXCHANGE is \"%s\", expected auto, peer or nccl", text);
    }
    return TRM_OK;
}

static trm_status check_options(const trm_world_options *options)
{
    if (options->backend != TRM_BACKEND_HOST && options->backend != TRM_BACKEND_CUDA) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "world has backend %d", (int)options->backend);
    }
    if (options->gpu < 0 || options->threads < 0) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "world has gpu %d and %d threads", (int)options->gpu,
                 (int)options->threads);
    }
    bool is_one = options->replica == 0 && options->replicas >= 0;
    bool is_one_of_many = options->replica >= 0 && options->replica < options->replicas;
    if ((!is_one && !is_one_of_many) || options->replicas > MOST_REPLICAS) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "world is replica %d of %d, expected one of at most %d",
                 (int)options->replica, (int)options->replicas, MOST_REPLICAS);
    }
    if (options->starting < 0 || options->starting > (is_one_of_many ? options->replicas : 1)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "starting is %d, expected at most the %d replicas", (int)options->starting,
                 (int)options->replicas);
    }
    return TRM_OK;
}

static int32_t replicas_of(const trm_world_options *options)
{
    return options->replicas > 1 ? options->replicas : 1;
}

/* Fills in the local rank and size from host names if the launcher does not say. */
static void find_local(const introduction *all, trm_world *world)
{
    int32_t rank = 0, size = 0;
    for (int32_t r = 0; r < world->size; r++) {
        if (strcmp(all[r].host, all[world->rank].host) == 0) {
            rank += r < world->rank;
            size++;
        }
    }
    if (world->local_rank < 0 || world->local_size < 1) {
        world->local_rank = rank;
        world->local_size = size;
    }
}

static trm_status introduce(trm_world *world, const trm_topology *topology, const trm_world_options *options,
                            introduction *all)
{
    introduction mine = {{0}, {0}, {0}};
    gethostname(mine.host, sizeof(mine.host) - 1);
    trm_topology_allowed(topology, mine.processors, sizeof(mine.processors));
    snprintf(mine.options, sizeof(mine.options),
             "version %s, backend %s, deadline %g s, exchange %s, replica %d of %d, %d start", TRM_VERSION,
             trm_backend_name(options->backend), world->deadline_seconds, world->exchange, (int)options->replica,
             (int)replicas_of(options), (int)options->starting);
    if (world->bootstrap == NULL) {
        all[0] = mine;
    } else {
        TRM_TRY(trm_bootstrap_gather(world->bootstrap, &mine, sizeof(mine), all));
    }
    for (int32_t r = 1; r < world->size; r++) {
        if (strcmp(all[r].options, all[0].options) != 0) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "rank %d has options that differ from rank 0: %s, expected %s", (int)r,
                     all[r].options, all[0].options);
        }
    }
    find_local(all, world);
    world->local_rank += options->replica * world->local_size;
    world->memory_sharers = world->local_size * (options->starting > 0 ? options->starting : replicas_of(options));
    world->local_size *= replicas_of(options);
    return TRM_OK;
}

static int32_t count_processors(void)
{
    cpu_set_t cpus;
    return sched_getaffinity(0, sizeof(cpus), &cpus) == 0 ? CPU_COUNT(&cpus) : 1;
}

/* Ranks of one host with the same mask share it, also with ranks of replicas; a rank with its own mask was bound by its
 * launcher. */
static trm_status place_on_cores(trm_world *world, trm_topology *topology, const trm_world_options *options,
                                 const introduction *all, int32_t *threads)
{
    int32_t index = 0, count = 0;
    for (int32_t r = 0; r < world->size; r++) {
        const introduction *mine = &all[world->rank];
        if (strcmp(all[r].host, mine->host) == 0 && strcmp(all[r].processors, mine->processors) == 0) {
            index += r < world->rank;
            count++;
        }
    }
    bool bind = !options->no_bind && options->backend == TRM_BACKEND_HOST;
    index += options->replica * count;
    count *= replicas_of(options);
    world->processors = count_processors() / count;
    TRM_TRY(trm_topology_take_share(topology, index, count, bind, threads));
    if (options->threads > 0) {
        *threads = options->threads;
    }
    return TRM_OK;
}

static trm_status open_device(trm_world *world, trm_topology *topology, const trm_world_options *options,
                              int32_t threads)
{
    int32_t ordinal = 0;
    if (options->backend == TRM_BACKEND_CUDA) {
        char why[256] = "";
        int32_t seen = trm_device_cuda_count(why, sizeof(why));
        if (seen == 0) {
            TRM_FAIL(TRM_ERROR_NO_DEVICE, "no usable CUDA device: %s", why);
        }
        if (options->gpu == 0 && options->replicas > 1 && world->local_size > seen) {
            TRM_FAIL(TRM_ERROR_NO_DEVICE, "%d replicas of %d ranks need %d GPUs, this machine has %d",
                     (int)options->replicas, (int)(world->local_size / options->replicas), (int)world->local_size,
                     (int)seen);
        }
        ordinal = options->gpu > 0 ? options->gpu - 1 : world->local_rank % seen;
    }
    TRM_TRY(trm_device_open(options->backend, ordinal, threads, &world->device));
    if (options->backend == TRM_BACKEND_CUDA && !options->no_bind) {
        trm_device_info info;
        TRM_TRY(trm_device_get_info(world->device, &info));
        TRM_TRY(trm_topology_bind_near(topology, info.pci_bus_id));
    }
    return TRM_OK;
}

/* NCCL may hang if two ranks use the same GPU. */
static trm_status check_devices_differ(trm_world *world)
{
    device_card mine = {{0}, {0}, 0}, all[TRM_MAX_RANKS];
    trm_device_info info;
    TRM_TRY(trm_device_get_info(world->device, &info));
    gethostname(mine.host, sizeof(mine.host) - 1);
    memcpy(mine.uuid, info.uuid, sizeof(mine.uuid));
    mine.ordinal = info.ordinal;
    TRM_TRY(trm_bootstrap_gather(world->bootstrap, &mine, sizeof(mine), all));
    for (int32_t a = 0; a < world->size; a++) {
        for (int32_t b = a + 1; b < world->size; b++) {
            if (all[a].uuid[0] != '\0' && strncmp(all[a].uuid, all[b].uuid, sizeof(all[a].uuid)) == 0) {
                TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                         "ranks %d and %d both use GPU %s (device %d on %s), expected one GPU per rank", (int)a, (int)b,
                         all[a].uuid, (int)all[a].ordinal, all[a].host);
            }
        }
    }
    return TRM_OK;
}

static trm_status watch_bootstrap(void *user)
{
    return trm_transport_check(((trm_bootstrap *)user)->transport);
}

static trm_status open_nccl(trm_world *world)
{
    unsigned char id[TRM_NCCL_ID_SIZE] = {0};
    TRM_TRY(check_devices_differ(world));
    TRM_TRY(trm_bootstrap_all_ok(world->bootstrap, world->rank == 0 ? trm_nccl_make_id(id) : TRM_OK));
    TRM_TRY(trm_world_broadcast(world, id, sizeof(id), 0));
    trm_status status = trm_communicator_nccl_create(world->device, id, world->rank, world->size,
                                                     world->deadline_seconds, &world->communicator);
    TRM_TRY(trm_bootstrap_all_ok(world->bootstrap, status));
    world->communicator->watch = watch_bootstrap;
    world->communicator->watch_user = world->bootstrap;
    return TRM_OK;
}

static trm_status open_peers(trm_world *world)
{
    char why[256] = "";
    trm_communicator *nccl = world->communicator;
    if (strcmp(world->exchange, "nccl") == 0) {
        return TRM_OK;
    }
    TRM_TRY(trm_communicator_peer_create(world->device, world->bootstrap->control, nccl, &world->communicator, why,
                                         sizeof(why)));
    if (world->communicator == nccl && strcmp(world->exchange, "peer") == 0) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "TRIREME_EXCHANGE is peer, but the GPUs have no peer access: %s", why);
    }
    if (world->communicator == nccl) {
        trm_log(TRM_LOG_INFO, "all exchanges use NCCL: %s", why);
    }
    return TRM_OK;
}

static trm_status open_communicator(trm_world *world)
{
    if (world->size == 1) {
        return trm_communicator_self_create(&world->communicator);
    }
    if (trm_device_backend(world->device) == TRM_BACKEND_CUDA) {
        TRM_TRY(open_nccl(world));
        return open_peers(world);
    }
    return trm_communicator_pairwise_create(world->bootstrap->transport, world->deadline_seconds, &world->communicator);
}

static trm_status open_parts(trm_world *world, trm_topology *topology, const trm_world_options *options)
{
    introduction all[TRM_MAX_RANKS];
    int32_t threads = 1;
    TRM_TRY(introduce(world, topology, options, all));
    trm_status status = place_on_cores(world, topology, options, all, &threads);
    double began = trm_clock_seconds();
    if (status == TRM_OK) {
        status = open_device(world, topology, options, threads);
    }
    world->device_seconds = trm_clock_seconds() - began;
    if (world->bootstrap != NULL) { /* no rank continues to wait for one without a device */
        status = trm_bootstrap_all_ok(world->bootstrap, status);
    }
    TRM_TRY(status);
    began = trm_clock_seconds();
    TRM_TRY(open_communicator(world));
    world->communicator_seconds = trm_clock_seconds() - began;
    trm_log(TRM_LOG_DEBUG, "rank %d of %d, local rank %d of %d, started by %s, %s backend, %d threads",
            (int)world->rank, (int)world->size, (int)world->local_rank, (int)world->local_size, world->launcher,
            trm_backend_name(options->backend), (int)threads);
    return TRM_OK;
}

TRM_CALL(NULL, trm_world_open, (const trm_world_options *options, trm_world **world), (options, world))
{
    trm_world_options own = TRM_WORLD_OPTIONS_INIT;
    if (world == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot open a world: world is NULL");
    }
    TRM_TRY(trm_options_read("world options", options, &own));
    own.backend = trm_system_backend(own.backend);
    options = &own;
    TRM_TRY(check_options(options));
    trm_ranges_open();
    double deadline;
    const char *exchange;
    TRM_TRY(read_deadline(options->deadline_seconds, &deadline));
    TRM_TRY(read_exchange(&exchange));
    trm_launcher launch;
    TRM_TRY(trm_launcher_detect(trm_environment, &launch));
    trm_world *w = calloc(1, sizeof(*w));
    if (w == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the world");
    }
    double began = trm_clock_seconds();
    w->deadline_seconds = deadline;
    w->exchange = exchange;
    w->launcher = launch.launcher;
    trm_topology *topology = NULL;
    trm_status status = TRM_OK;
    if (launch.size != 1) {
        TRM_TRY_GOTO(status, trm_bootstrap_open(&launch, deadline, &w->bootstrap), close_world);
    }
    w->rank = launch.rank;
    w->size = launch.size;
    w->local_rank = launch.local_rank;
    w->local_size = launch.local_size;
    TRM_TRY_GOTO(status, trm_topology_open(&topology), close_world);
    if (launch.binds_by_default && !options->no_bind) {
        TRM_TRY_GOTO(status, trm_topology_unbind(topology), close_world);
    }
    status = open_parts(w, topology, options);
    w->join_seconds = trm_clock_seconds() - began - w->device_seconds - w->communicator_seconds;
close_world:
    trm_topology_close(topology);
    if (status != TRM_OK) {
        if (w->bootstrap != NULL) { /* a peer that finished opening may have failed meanwhile */
            status = trm_bootstrap_status(w->bootstrap, status);
        }
        trm_world_close(w);
        return status;
    }
    *world = w;
    return TRM_OK;
}

void trm_world_share_memory(const trm_world *world, trm_device_info *info, size_t *reserve)
{
    size_t sharers = (size_t)world->memory_sharers;
    const size_t most = info->memory_total / (size_t)world->local_size;
    info->memory_free /= sharers;
    if (info->memory_free > most) {
        info->memory_free = most;
        sharers = (size_t)world->local_size;
    }
    *reserve = info->memory_total / 20 / sharers;
}

void trm_world_close(trm_world *world)
{
    if (world == NULL) {
        return;
    }
    bool failed = world->bootstrap != NULL && trm_transport_check(world->bootstrap->transport) != TRM_OK;
    if (failed && world->communicator != NULL) {
        trm_communicator_abort(world->communicator); /* peers do not take part in leaving it */
    }
    trm_communicator_destroy(world->communicator);
    trm_device_close(world->device);
    trm_bootstrap_close(world->bootstrap);
    free(world);
}

void trm_world_abort(trm_world *world, trm_status status)
{
    if (world == NULL) {
        return;
    }
    if (world->bootstrap != NULL) {
        trm_bootstrap_abort(world->bootstrap, status);
    } else if (world->communicator != NULL) {
        trm_communicator_abort(world->communicator);
    }
}

static trm_status all_ok(trm_world *world, trm_status mine)
{
    if (world == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot compare the ranks: world is NULL");
    }
    return world->bootstrap == NULL ? mine : trm_bootstrap_all_ok(world->bootstrap, mine);
}

/* No TRM_CALL: a failure of this rank was already recorded by the call that failed. */
trm_status trm_world_all_ok(trm_world *world, trm_status mine)
{
    trm_call_enter();
    trm_status status = all_ok(world, mine);
    bool is_known = world != NULL && mine != TRM_OK;
    (void)trm_call_leave(is_known ? TRM_OK : status, trm_world_recorder(world), "trm_world_all_ok");
    return status;
}

void trm_world_set_recorder(trm_world *world, trm_recorder *recorder)
{
    world->recorder = recorder;
}

trm_recorder *trm_world_recorder(const trm_world *world)
{
    return world == NULL ? NULL : world->recorder;
}

trm_backend trm_world_backend(const trm_world *world)
{
    return trm_device_backend(world->device);
}

int32_t trm_world_rank(const trm_world *world)
{
    return world->rank;
}

int32_t trm_world_size(const trm_world *world)
{
    return world->size;
}

int32_t trm_world_local_rank(const trm_world *world)
{
    return world->local_rank;
}

int32_t trm_world_gpu(const trm_world *world)
{
    trm_device_info info;
    if (trm_device_backend(world->device) == TRM_BACKEND_HOST || trm_device_get_info(world->device, &info) != TRM_OK) {
        return 0;
    }
    return info.ordinal + 1;
}

TRM_CALL(trm_world_recorder(world), trm_memory_allocate, (trm_world *world, size_t bytes, void **memory),
         (world, bytes, memory))
{
    if (world == NULL || memory == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot allocate memory: world or memory is NULL");
    }
    return trm_device_alloc(world->device, bytes, memory);
}

void trm_memory_free(trm_world *world, void *memory)
{
    trm_device_free(world->device, memory);
}

TRM_CALL(trm_world_recorder(world), trm_memory_open,
         (trm_world *world, const void *handle, size_t bytes, void **memory), (world, handle, bytes, memory))
{
    if (world == NULL || handle == NULL || memory == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot open memory: world, handle or memory is NULL");
    }
    return trm_device_import(world->device, handle, bytes, memory);
}

void trm_memory_close(trm_world *world, void *memory)
{
    trm_device_release(world->device, memory);
}

TRM_CALL(trm_world_recorder(world), trm_memory_pin, (trm_world *world, void *memory, size_t bytes),
         (world, memory, bytes))
{
    if (world == NULL || memory == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot pin memory: world or memory is NULL");
    }
    return trm_device_pin(world->device, memory, bytes);
}

void trm_memory_unpin(trm_world *world, void *memory)
{
    trm_device_unpin(world->device, memory);
}

TRM_CALL(trm_world_recorder(world), trm_memory_move, (trm_world *world, const trm_memory_copy *copies, int32_t n),
         (world, copies, n))
{
    if (world == NULL || (copies == NULL && n > 0)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot copy memory: world or copies is NULL");
    }
    return trm_device_copy(world->device, copies, n);
}

bool trm_world_has_host_communicator(const trm_world *world)
{
    return world->bootstrap != NULL || world->size == 1 || trm_device_backend(world->device) == TRM_BACKEND_HOST;
}

trm_status trm_world_host_communicator(trm_world *world, trm_communicator **communicator)
{
    *communicator = world->bootstrap != NULL ? world->bootstrap->control : world->communicator;
    if (!trm_world_has_host_communicator(world)) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "this world has no channel for host memory");
    }
    return TRM_OK;
}

TRM_CALL(trm_world_recorder(world), trm_world_broadcast, (trm_world *world, void *bytes, size_t size, int32_t root),
         (world, bytes, size, root))
{
    if (world == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot broadcast: world is NULL");
    }
    trm_communicator *communicator;
    TRM_TRY(trm_world_host_communicator(world, &communicator));
    trm_exchange x = {TRM_BROADCAST, TRM_REDUCE_NONE, TRM_U8, bytes, bytes, size, root};
    return trm_communicator_exchange(communicator, &x, NULL);
}

trm_status trm_world_minimum(trm_world *world, int64_t *values, size_t n)
{
    trm_communicator *communicator;
    TRM_TRY(trm_world_host_communicator(world, &communicator));
    trm_exchange x = {TRM_ALL_REDUCE, TRM_REDUCE_MIN, TRM_I64, values, values, n, 0};
    return trm_communicator_exchange(communicator, &x, NULL);
}

/* Two hashes from different starts, and the size: enough to detect mistakes, not attacks. */
typedef struct fingerprint {
    uint64_t size, first, second;
} fingerprint;

static fingerprint fingerprint_of(const void *bytes, size_t size)
{
    return (fingerprint){size, trm_hash_bytes(TRM_HASH_START, bytes, size),
                         trm_hash_bytes(0x9e3779b97f4a7c15ull, bytes, size)};
}

trm_status trm_world_agree(trm_world *world, const char *what, const void *bytes, size_t size)
{
    trm_communicator *communicator;
    TRM_TRY(trm_world_host_communicator(world, &communicator));
    fingerprint mine = fingerprint_of(bytes, size), all[TRM_MAX_RANKS];
    trm_exchange x = {TRM_ALL_GATHER, TRM_REDUCE_NONE, TRM_U8, &mine, all, sizeof(mine), 0};
    TRM_TRY(trm_communicator_exchange(communicator, &x, NULL));
    for (int32_t r = 1; r < world->size; r++) {
        if (memcmp(&all[r], &all[0], sizeof(mine)) != 0) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "rank %d differs from rank 0 in %s", (int)r, what);
        }
    }
    return TRM_OK;
}

/* For a rank with a device: each reader thread has pinned memory of its own. */
#define MOST_THREADS 32

int32_t trm_world_threads(const trm_world *world)
{
    trm_device_info info;
    if (trm_device_backend(world->device) == TRM_BACKEND_HOST && trm_device_get_info(world->device, &info) == TRM_OK) {
        return info.threads; /* already the rank's share */
    }
    const int32_t allowed = count_processors(), n = world->processors < allowed ? world->processors : allowed;
    return n < 1 ? 1 : n > MOST_THREADS ? MOST_THREADS : n;
}
