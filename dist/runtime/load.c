/*
 * Loads weights. Threads take pieces in the order of the network. Each thread reads its piece into one of its two
 * pinned buffers, enqueues the copy to the device, and continues with the other buffer: file cache, memory and link are
 * busy at the same time, and no thread waits for another. On the host backend pieces are read in place.
 */
#include "dist/runtime/load.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/pool.h"

#define PIECE_BYTES ((size_t)2 << 20)
#define PAGE_BYTES  ((size_t)4096)
#define SLOTS       2 /* pieces in flight per thread */
/* Smaller reads of stored weights are not split over threads. */
#define READ_GRAIN           ((int64_t)256 << 10)
#define PROGRESS_NANOSECONDS 20000000

struct trm_load {
    trm_engine *engine;
    trm_load_options options;
    trm_stream *stream;
    trm_pool *pool;
    int32_t threads;
    unsigned char *staging; /* pinned [threads, SLOTS, piece_bytes]; NULL: pieces are read in place */
    trm_event **uploaded;   /* [threads, SLOTS] a slot's copy has finished */
    size_t total;           /* bytes, without alignment */
    _Atomic size_t done;
    _Atomic bool stops, ended;

    pthread_mutex_t mutex; /* protects what follows */
    pthread_cond_t ends;
    int32_t tensor; /* tensor whose pieces are taken, from element `first` */
    size_t first;
    trm_held_error failure; /* the first */

    pthread_t thread;
    bool has_thread;
    double seconds;
};

/* Part of a weight. */
typedef struct piece {
    const trm_tensor *tensor;
    size_t first, count; /* elements */
} piece;

/* ---- what is loaded and where to --------------------------------------------------------------- */

static bool is_wanted(const trm_load *load, const trm_tensor *tensor)
{
    return tensor->role == TRM_TENSOR_CONSTANT && !trm_plan_borrows(load->engine->plan, tensor) &&
           (load->options.only == NULL || load->options.only[tensor->index]);
}

/* Index of a weight kept in host memory, else -1. */
static int32_t stored_index(const trm_load *load, const trm_tensor *tensor)
{
    int32_t streamed = trm_streaming_weight(load->engine->plan, tensor);
    return streamed >= 0 && load->engine->places.stored[streamed].memory != NULL ? streamed : -1;
}

/* The device address of a constant; NULL if it is read in every step. */
static unsigned char *place_of(const trm_load *load, const trm_tensor *tensor)
{
    const trm_engine *engine = load->engine;
    int32_t streamed = trm_streaming_weight(engine->plan, tensor);
    return streamed >= 0 ? engine->places.resident[streamed]
                         : engine->weights + engine->plan->weight_offsets[tensor->index];
}

/* Whether a constant is read in pieces. */
static bool has_pieces(const trm_load *load, const trm_tensor *tensor)
{
    return is_wanted(load, tensor) && tensor->value == NULL && stored_index(load, tensor) < 0 &&
           place_of(load, tensor) != NULL;
}

static size_t bytes_of(const trm_tensor *tensor)
{
    return trm_dims_bytes(&tensor->dims, tensor->dtype);
}

static void count_bytes(trm_load *load)
{
    const trm_network *network = load->engine->plan->network;
    for (int32_t i = 0; i < network->n_tensors; i++) {
        load->total += is_wanted(load, network->tensors[i]) ? bytes_of(network->tensors[i]) : 0;
    }
}

/* ---- constants with values, and what host memory keeps ------------------------------------------ */

typedef struct parallel_read {
    trm_load *load;
    const trm_tensor *tensor;
    size_t first; /* element at the start of `to` */
    unsigned char *to;
} parallel_read;

static void note_failure(trm_load *load, const trm_tensor *tensor, trm_status status)
{
    pthread_mutex_lock(&load->mutex);
    if (load->failure.status == TRM_OK) {
        trm_error_hold(trm_fail_in(status, "weight %s", tensor->name), &load->failure);
    }
    pthread_mutex_unlock(&load->mutex);
}

static trm_status status_of(trm_load *load)
{
    pthread_mutex_lock(&load->mutex);
    const trm_status status = trm_error_give_back(&load->failure);
    pthread_mutex_unlock(&load->mutex);
    return status;
}

static void read_range(void *user, int64_t begin, int64_t end)
{
    parallel_read *read = user;
    const trm_tensor *tensor = read->tensor;
    trm_status status =
        trm_weight_read(tensor->weight, tensor->dtype, read->first + (size_t)begin, (size_t)(end - begin),
                        read->to + (size_t)begin * trm_dtype_size(tensor->dtype));
    if (status != TRM_OK) {
        note_failure(read->load, tensor, status);
    }
}

/* Reads bytes of the device form of a weight, on all threads. */
static trm_status read_stored(void *user, size_t begin, size_t size, void *to)
{
    parallel_read *read = user;
    size_t element = trm_dtype_size(read->tensor->dtype);
    if (read->tensor->value != NULL) {
        memcpy(to, (const unsigned char *)read->tensor->value + begin, size);
        return TRM_OK;
    }
    read->first = begin / element;
    read->to = to;
    trm_pool_for(read->load->pool, (int64_t)(size / element), READ_GRAIN, read_range, read);
    return status_of(read->load);
}

/* Loads what is not read in pieces. */
static trm_status load_others(trm_load *load)
{
    trm_engine *engine = load->engine;
    const trm_network *network = engine->plan->network;
    bool on_host = trm_device_backend(engine->world->device) == TRM_BACKEND_HOST;
    for (int32_t i = 0; i < network->n_tensors && !atomic_load(&load->stops); i++) {
        const trm_tensor *tensor = network->tensors[i];
        if (!is_wanted(load, tensor) || has_pieces(load, tensor)) {
            continue;
        }
        int32_t stored = stored_index(load, tensor);
        unsigned char *to = place_of(load, tensor);
        if (stored >= 0) {
            TRM_TRY(trm_weight_residency_store(&engine->places, engine->plan, engine->world->device, stored,
                                               read_stored, &(parallel_read){.load = load, .tensor = tensor}));
        } else if (to != NULL && on_host) {
            memcpy(to, tensor->value, bytes_of(tensor));
        } else if (to != NULL) {
            TRM_TRY(trm_stream_upload(load->stream, to, tensor->value, bytes_of(tensor)));
        }
        atomic_fetch_add(&load->done, bytes_of(tensor));
    }
    return TRM_OK;
}

/* ---- pieces ------------------------------------------------------------------------------------ */

/* Elements of a tensor per piece: whole rows if they fit, so that transposed weights are read in tiles. */
static size_t piece_count(const trm_load *load, const trm_tensor *tensor)
{
    size_t most = load->options.piece_bytes / trm_dtype_size(tensor->dtype);
    size_t row = tensor->dims.n > 0 ? (size_t)tensor->dims.d[tensor->dims.n - 1] : 1;
    return row > 0 && row <= most ? most / row * row : most;
}

/* The next piece in the order of the network; false: none, or loading was stopped. */
static bool take_piece(trm_load *load, piece *p)
{
    const trm_network *network = load->engine->plan->network;
    bool found = false;
    pthread_mutex_lock(&load->mutex);
    while (!found && load->tensor < network->n_tensors && load->failure.status == TRM_OK &&
           !atomic_load(&load->stops)) {
        const trm_tensor *tensor = network->tensors[load->tensor];
        size_t count = has_pieces(load, tensor) ? (size_t)trm_dims_count(&tensor->dims) : 0;
        if (load->first >= count) {
            load->tensor++;
            load->first = 0;
            continue;
        }
        size_t most = piece_count(load, tensor), left = count - load->first;
        *p = (piece){tensor, load->first, left < most ? left : most};
        load->first += p->count;
        found = true;
    }
    pthread_mutex_unlock(&load->mutex);
    return found;
}

static trm_status load_piece(trm_load *load, const piece *p, int32_t slot)
{
    const trm_tensor *tensor = p->tensor;
    size_t element = trm_dtype_size(tensor->dtype);
    unsigned char *place = place_of(load, tensor) + p->first * element;
    if (load->staging == NULL) {
        return trm_weight_read(tensor->weight, tensor->dtype, p->first, p->count, place);
    }
    unsigned char *staging = load->staging + (size_t)slot * load->options.piece_bytes;
    TRM_TRY(trm_event_synchronize(load->uploaded[slot]));
    TRM_TRY(trm_weight_read(tensor->weight, tensor->dtype, p->first, p->count, staging));
    TRM_TRY(trm_stream_upload(load->stream, place, staging, p->count * element));
    return trm_event_record(load->uploaded[slot], load->stream);
}

/* Runs threads begin .. end - 1. */
static void load_pieces(void *user, int64_t begin, int64_t end)
{
    trm_load *load = user;
    for (int64_t thread = begin; thread < end; thread++) {
        piece p;
        for (int32_t turn = 0; take_piece(load, &p); turn = (turn + 1) % SLOTS) {
            trm_status status = load_piece(load, &p, (int32_t)thread * SLOTS + turn);
            if (status != TRM_OK) {
                note_failure(load, p.tensor, status);
                return;
            }
            atomic_fetch_add(&load->done, p.count * trm_dtype_size(p.tensor->dtype));
        }
    }
}

/* ---- a load as a whole ------------------------------------------------------------------------- */

static trm_status open_staging(trm_load *load)
{
    trm_device *device = load->engine->world->device;
    void *memory;
    size_t n = (size_t)load->threads * SLOTS;
    load->uploaded = calloc(n, sizeof(trm_event *));
    if (load->uploaded == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %zu events", n);
    }
    TRM_TRY(trm_device_alloc_host(device, n * load->options.piece_bytes, &memory));
    load->staging = memory;
    for (size_t i = 0; i < n; i++) {
        TRM_TRY(trm_event_create(device, &load->uploaded[i]));
        TRM_TRY(trm_event_record(load->uploaded[i], load->stream));
    }
    return TRM_OK;
}

static void close_staging(trm_load *load)
{
    trm_device *device = load->engine->world->device;
    for (int32_t i = 0; load->uploaded != NULL && i < load->threads * SLOTS; i++) {
        trm_event_destroy(load->uploaded[i]);
    }
    free(load->uploaded);
    trm_device_free_host(device, load->staging);
    load->uploaded = NULL;
    load->staging = NULL;
}

static trm_status load_all(trm_load *load)
{
    trm_engine *engine = load->engine;
    trm_device *device = engine->world->device;
    double began = trm_clock_seconds();
    bool staged = load->options.staged || trm_device_backend(device) != TRM_BACKEND_HOST;
    trm_status status;
    TRM_TRY_GOTO(status, trm_stream_create(device, &load->stream), close);
    TRM_TRY_GOTO(status, trm_pool_create(load->threads, &load->pool), close);
    TRM_TRY_GOTO(status, staged ? open_staging(load) : TRM_OK, close);
    engine->places.pool = load->pool;
    status = load_others(load);
    engine->places.pool = NULL;
    if (status == TRM_OK) {
        trm_pool_for(load->pool, load->threads, 1, load_pieces, load);
        trm_status copied = trm_stream_synchronize(load->stream);
        status = status_of(load);
        status = status == TRM_OK ? copied : status;
    } else {
        (void)trm_stream_synchronize(load->stream);
    }
close:
    close_staging(load);
    trm_pool_destroy(load->pool);
    trm_stream_destroy(load->stream);
    load->pool = NULL;
    load->stream = NULL;
    load->seconds = trm_clock_seconds() - began;
    return status;
}

/* Chooses pieces and threads, and so pinned memory, no more than needed: allocating it takes longer than loading a
 * small network. */
static void choose_pieces(trm_load *load)
{
    trm_load_options *o = &load->options;
    size_t pages = (load->total + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    size_t usual = pages < PAGE_BYTES ? PAGE_BYTES : pages < PIECE_BYTES ? pages : PIECE_BYTES;
    o->piece_bytes = o->piece_bytes > 0 ? o->piece_bytes : usual;
    size_t pieces = (load->total + o->piece_bytes - 1) / o->piece_bytes;
    int32_t threads = o->threads > 0 ? o->threads : trm_world_threads(load->engine->world);
    load->threads = pieces < 1 ? 1 : pieces < (size_t)threads ? (int32_t)pieces : threads;
}

static void init(trm_load *load, trm_engine *engine, const trm_load_options *options)
{
    load->engine = engine;
    load->options = options == NULL ? (trm_load_options){0} : *options;
    load->failure.status = TRM_OK;
    pthread_mutex_init(&load->mutex, NULL);
    pthread_cond_init(&load->ends, NULL);
    count_bytes(load);
    choose_pieces(load);
}

static void fini(trm_load *load)
{
    pthread_mutex_destroy(&load->mutex);
    pthread_cond_destroy(&load->ends);
}

trm_status trm_load_run(trm_engine *engine, const trm_load_options *options)
{
    trm_load load = {0};
    init(&load, engine, options);
    trm_status status = load_all(&load);
    fini(&load);
    return status;
}

/* The thread of a load. */
static void *run_thread(void *user)
{
    trm_load *load = user;
    trm_status status = load_all(load);
    pthread_mutex_lock(&load->mutex);
    if (load->failure.status == TRM_OK) {
        trm_error_hold(status, &load->failure); /* the error record belongs to this thread */
    }
    atomic_store(&load->ended, true);
    pthread_cond_broadcast(&load->ends);
    pthread_mutex_unlock(&load->mutex);
    return NULL;
}

/* Zeros the device memory, so that kernels that run before the weights arrive meet no infinities. */
static trm_status clear_weights(trm_engine *engine)
{
    trm_device *device = engine->world->device;
    if (trm_device_backend(device) == TRM_BACKEND_HOST) {
        return TRM_OK; /* nothing runs before the weights there */
    }
    trm_stream *stream;
    TRM_TRY(trm_stream_create(device, &stream));
    trm_status status = trm_stream_fill_zero(stream, engine->weights, engine->plan->weight_bytes);
    status = status == TRM_OK ? trm_stream_synchronize(stream) : status;
    trm_stream_destroy(stream);
    return status;
}

trm_status trm_load_start(trm_engine *engine, const trm_load_options *options, trm_load **load)
{
    TRM_TRY(clear_weights(engine));
    trm_load *made = calloc(1, sizeof(*made));
    if (made == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the loader of weights");
    }
    init(made, engine, options);
    made->has_thread = pthread_create(&made->thread, NULL, run_thread, made) == 0;
    if (!made->has_thread) {
        run_thread(made);
    }
    *load = made;
    return TRM_OK;
}

trm_status trm_load_wait(trm_load *load, trm_progress_fn progress, void *user)
{
    if (load == NULL) {
        return TRM_OK;
    }
    while (progress != NULL && !atomic_load(&load->ended)) {
        progress(user, atomic_load(&load->done), load->total);
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += PROGRESS_NANOSECONDS;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_mutex_lock(&load->mutex);
        if (!atomic_load(&load->ended)) {
            pthread_cond_timedwait(&load->ends, &load->mutex, &until);
        }
        pthread_mutex_unlock(&load->mutex);
    }
    if (load->has_thread) {
        pthread_join(load->thread, NULL);
        load->has_thread = false;
        if (progress != NULL && load->failure.status == TRM_OK) {
            progress(user, load->total, load->total);
        }
    }
    return status_of(load);
}

double trm_load_seconds(const trm_load *load)
{
    return load == NULL ? 0 : load->seconds;
}

size_t trm_load_bytes(const trm_load *load)
{
    return load == NULL ? 0 : load->total;
}

void trm_load_destroy(trm_load *load)
{
    if (load == NULL) {
        return;
    }
    atomic_store(&load->stops, true);
    if (load->has_thread) {
        pthread_join(load->thread, NULL);
    }
    fini(load);
    free(load);
}
