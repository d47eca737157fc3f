/*
 * Measures how fast the CPU of a rank runs layers while the link is busy, and the cost of handing over a layer. Runs
 * before weights are loaded, on its own memory, since weights for the CPU are stored differently from copied ones: a
 * layer of each kind and type, repeatedly on different weights, and experts of a mixture.
 *
 * CPU and link share host memory, so both rates are measured at the same time. The CPU reads from memory, as in a step,
 * not from a cache of hundreds of megabytes. The link has work until the CPU has finished (unless it is many times
 * faster), and its rate counts the copies that finished by then.
 */
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/pool.h"
#include "graph/memory_plan.h"
#include "kernels/moe/host_few.h"
#include "kernels/moe/layer.h"
#include "kernels/program.h"
#include "weight_stream/offload/cpu_offload.h"
#include "weight_stream/offload/expert_cache.h"

/* Most bytes of weights to read, once, many times the size of caches; at most this part of free memory. They are
 * touched before, and the last quarter is read first, so that the state of caches and pending writes is as in a step.
 */
#define MOST_READ  ((size_t)3 << 30)
#define LEAST_READ ((size_t)1 << 22)
#define FREE_PARTS 8
#define WARM_PARTS 4
#define MOST_RUNS  1024
/* Pinned bytes among them, since pinning takes longer than reading; they are copied repeatedly meanwhile. There is a
 * quarter more to copy than the link finishes in that time. */
#define MOST_PINNED ((size_t)1 << 30)
#define MOST_COPY   ((size_t)64 << 20)
#define MOST_COPIES 256
#define LINK_AHEAD  1.25
/* Empty layers to hand over, each with a page to the CPU and back. */
#define HANDOVERS  40
#define PAGE_BYTES ((size_t)4096)

typedef struct measure {
    const trm_offload_site *site;
    const trm_plan *plan;
    size_t read, copy;      /* bytes of weights; of a copy */
    size_t copyable;        /* bytes of the first of them that are copied */
    unsigned char *weights; /* pages [read] */
    bool pinned;            /* those that are copied are */
    void *copied;           /* [copy] on the device */
    void *small[2];         /* a page of pinned memory, and of the device's */
    trm_stream *link, *layers;
    trm_event *begin, *ends[MOST_COPIES]; /* of copies, and of each */
    trm_pool *pool;
} measure;

static void touch(void *user, int64_t begin, int64_t end)
{
    uint16_t *weights = user;
    for (int64_t i = begin; i < end; i++) {
        weights[i] = (uint16_t)(0x3c00 + i % 97); /* a number of any type */
    }
}

static trm_status open_measure(measure *m)
{
    trm_device *device = m->site->world->device;
    void *memory;
    TRM_TRY(trm_pages_alloc(m->read, &memory));
    m->weights = memory;
    m->pool = trm_stream_native(m->site->device->stream);
    trm_pool_for(m->pool, (int64_t)(m->read / sizeof(uint16_t)), PAGE_BYTES, touch, m->weights);
    m->pinned = trm_device_pin(device, m->weights, m->copyable) ==
                TRM_OK; /* if pinning fails, copies are as slow as in steps */
    TRM_TRY(trm_device_alloc(device, m->copy, &m->copied));
    TRM_TRY(trm_device_alloc_host(device, PAGE_BYTES, &m->small[0]));
    TRM_TRY(trm_device_alloc(device, PAGE_BYTES, &m->small[1]));
    TRM_TRY(trm_stream_create_beside(device, &m->link));
    TRM_TRY(trm_stream_create(device, &m->layers));
    for (int32_t i = 0; i < MOST_COPIES; i++) {
        TRM_TRY(trm_event_create(device, &m->ends[i]));
    }
    return trm_event_create(device, &m->begin);
}

static void close_measure(measure *m)
{
    trm_device *device = m->site->world->device;
    if (m->layers != NULL) {
        (void)trm_stream_synchronize(m->layers);
    }
    if (m->link != NULL) {
        (void)trm_stream_synchronize(m->link);
    }
    trm_event_destroy(m->begin);
    for (int32_t i = 0; i < MOST_COPIES; i++) {
        trm_event_destroy(m->ends[i]);
    }
    trm_stream_destroy(m->link);
    trm_stream_destroy(m->layers);
    trm_device_free(device, m->small[1]);
    trm_device_free_host(device, m->small[0]);
    trm_device_free(device, m->copied);
    if (m->pinned) {
        trm_device_unpin(device, m->weights);
    }
    trm_pages_free(m->weights, m->read);
}

/* A run of a layer and its status. */
typedef struct run {
    const trm_kernel *kernel;
    trm_kernel_call call;
    trm_status status;
} run;

static void run_layer(void *user)
{
    run *r = user;
    r->status = r->kernel == NULL ? TRM_OK : trm_kernel_run(r->kernel, &r->call);
}

/* Seconds of runs handed over one after the other. */
static trm_status time_runs(measure *m, void *user, int32_t n, double *seconds)
{
    run *runs = user;
    const trm_small_copy in = {m->small[0], m->small[1], PAGE_BYTES}, out = {m->small[1], m->small[0], PAGE_BYTES};
    double began = trm_clock_seconds();
    trm_status status = TRM_OK;
    for (int32_t i = 0; status == TRM_OK && i < n; i++) {
        status = trm_stream_copy_small(m->layers, &in, 1);
        status = status == TRM_OK ? trm_stream_host_task(m->layers, run_layer, &runs[i]) : status;
        status = status == TRM_OK ? trm_stream_copy_small(m->layers, &out, 1) : status;
    }
    trm_status ended = trm_stream_synchronize(m->layers); /* tasks refer to the runs, even if one was not accepted */
    TRM_TRY(status);
    TRM_TRY(ended);
    *seconds = trm_clock_seconds() - began;
    for (int32_t i = 0; i < n; i++) {
        TRM_TRY(runs[i].status);
    }
    return TRM_OK;
}

static size_t weight_bytes(const trm_plan *plan, const trm_layer *layer)
{
    size_t bytes = 0;
    for (int32_t k = 0; k < layer->n_inputs; k++) {
        int32_t weight = layer->inputs[k] == NULL ? -1 : trm_streaming_weight(plan, layer->inputs[k]);
        bytes += weight < 0 ? 0 : trm_align_up(plan->streaming->bytes[weight], TRM_TENSOR_ALIGNMENT);
    }
    return bytes;
}

static size_t view_bytes(const trm_view *view)
{
    return trm_align_up(trm_dims_bytes(&view->dims, view->dtype), TRM_TENSOR_ALIGNMENT);
}

/* Sets the addresses of a call: weights from `weights`, all others in `others`, with the workspace at the end. */
static size_t place_call(const trm_plan *plan, const trm_layer *layer, run *r, unsigned char *weights,
                         unsigned char *others)
{
    size_t at = 0;
    for (int32_t k = 0; k < layer->n_inputs; k++) {
        trm_view *input = &r->call.inputs[k];
        if (layer->inputs[k] == NULL) {
            continue;
        }
        bool streams = trm_streaming_weight(plan, layer->inputs[k]) >= 0;
        input->data = streams ? weights : others + at;
        weights += streams ? view_bytes(input) : 0;
        at += streams ? 0 : view_bytes(input);
    }
    for (int32_t k = 0; k < layer->n_outputs; k++) {
        r->call.outputs[k].data = others + at;
        at += view_bytes(&r->call.outputs[k]);
    }
    r->call.workspace = others + at;
    r->call.workspace_size = r->kernel->workspace == NULL ? 0 : r->kernel->workspace(&r->call);
    return at + r->call.workspace_size;
}

/* Enqueues copies of weights that are not being read, so that they are not cached either. */
static trm_status keep_link_busy(measure *m, int32_t copies)
{
    const size_t pieces = m->copyable / m->copy;
    TRM_TRY(trm_event_record(m->begin, m->link));
    for (size_t i = 0; i < (size_t)copies; i++) {
        const size_t at = (pieces / 2 + i) % pieces * m->copy;
        TRM_TRY(trm_stream_upload(m->link, m->copied, m->weights + at, m->copy));
        TRM_TRY(trm_event_record(m->ends[i], m->link));
    }
    return TRM_OK;
}

/* Does `n` pieces of work, the first of which is `user`; returns the seconds. */
typedef trm_status (*work_fn)(measure *m, void *user, int32_t n, double *seconds);

/* Works beside this many copies. Returns the seconds, and the bytes per second of the copies that finished by then, at
 * least one. */
static trm_status time_beside_link(measure *m, work_fn work, void *user, int32_t n, int32_t copies, double *seconds,
                                   double *link)
{
    trm_status status = keep_link_busy(m, copies);
    status = status == TRM_OK ? work(m, user, n, seconds) : status;
    trm_status ended = trm_stream_synchronize(m->link);
    TRM_TRY(status);
    TRM_TRY(ended);
    *link = 0;
    for (int32_t i = 0; i < copies; i++) {
        float milliseconds;
        TRM_TRY(trm_event_elapsed_ms(m->begin, m->ends[i], &milliseconds));
        if (milliseconds > 0 && (i == 0 || (double)milliseconds * 1e-3 <= *seconds)) {
            *link = (double)(i + 1) * (double)m->copy / ((double)milliseconds * 1e-3);
        }
    }
    return TRM_OK;
}

static int32_t copies_of(const measure *m, double bytes)
{
    double copies = bytes / (double)m->copy + 1;
    return copies < MOST_COPIES ? (int32_t)copies : MOST_COPIES;
}

/* Bytes of weights per second of a layer that reads all weights in turn, after warming up on the last ones, and of the
 * link meanwhile. */
static trm_status time_layer(measure *m, run *runs, int32_t n, size_t bytes, double handover, double *rate,
                             double *link)
{
    const int32_t warm = n > WARM_PARTS ? n / WARM_PARTS : 1;
    double seconds = 0;
    TRM_TRY(time_beside_link(m, time_runs, runs + n - warm, warm, copies_of(m, 2.0 * warm * (double)bytes), &seconds,
                             link));
    seconds *= (double)n / warm * LINK_AHEAD;
    TRM_TRY(time_beside_link(m, time_runs, runs, n, copies_of(m, *link * seconds), &seconds, link));
    double reading = seconds - n * handover;
    reading = reading > seconds / 5 ? reading : seconds / 5; /* for a small model nearly all time is handing over */
    *rate = (double)n * (double)bytes / reading;
    return TRM_OK;
}

static trm_status measure_layer(measure *m, const trm_layer *layer, double handover, double *rate, double *link)
{
    const size_t bytes = weight_bytes(m->plan, layer);
    const size_t n = m->read / bytes < MOST_RUNS ? m->read / bytes : MOST_RUNS;
    run first = {0};
    trm_cpu_offload_describe(layer, m->plan->max_dims, 1, &first.call);
    first.kernel = trm_kernel_find(trm_all_kernels, trm_all_kernels_count, TRM_BACKEND_HOST, &first.call);
    first.call.stream = m->site->device->stream;
    run *runs = calloc(n + 1, sizeof(*runs));
    const size_t size = place_call(m->plan, layer, &first, m->weights, NULL);
    unsigned char *others = aligned_alloc(TRM_TENSOR_ALIGNMENT, trm_align_up(size + 1, TRM_TENSOR_ALIGNMENT));
    trm_status status = runs == NULL || others == NULL
                            ? trm_fail(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %zu runs of a layer", n)
                            : TRM_OK;
    for (size_t i = 0; status == TRM_OK && i < n; i++) {
        runs[i] = first;
        (void)place_call(m->plan, layer, &runs[i], m->weights + i * bytes, others);
    }
    if (status == TRM_OK) {
        memset(others, 0, size);
        status = time_layer(m, runs, (int32_t)n, bytes, handover, rate, link);
    }
    free(others);
    free(runs);
    return status;
}

/* Experts in turn, as requests of small steps ask for them (expert_offload.h). */
typedef struct expert_run {
    trm_moe_experts experts;
    int32_t *ids; /* [experts.k] */
    void *workspace;
    float *y;
} expert_run;

static trm_status time_experts(measure *m, void *user, int32_t n, double *seconds)
{
    expert_run *r = user;
    const double began = trm_clock_seconds();
    for (int32_t i = 0; i < n; i++) {
        for (int32_t k = 0; k < r->experts.k; k++) {
            r->ids[k] = (i * r->experts.k + k) % r->experts.experts;
        }
        trm_moe_few_run(m->pool, &r->experts, r->workspace, r->y);
    }
    *seconds = trm_clock_seconds() - began;
    return TRM_OK;
}

/* The call of an experts' layer of one token that chose `chosen` of as many experts as there is memory for. */
static bool describe_experts(const measure *m, const trm_layer *layer, int32_t chosen, size_t *bytes, expert_run *r)
{
    trm_kernel_call call;
    trm_cached_layer cached;
    size_t at = 0;
    trm_cpu_offload_describe(layer, m->plan->max_dims, 1, &call);
    (void)trm_expert_cache_place(layer, 1, NULL, &cached);
    *bytes = 0;
    for (int32_t i = 0; i < cached.n; i++) {
        *bytes += cached.tensors[i].bytes;
    }
    const size_t n = m->read / *bytes;
    for (int32_t i = 0; i < cached.n; i++) {
        call.inputs[cached.inputs[i]].data = m->weights + at;
        at += n * cached.tensors[i].bytes / TRM_TENSOR_ALIGNMENT * TRM_TENSOR_ALIGNMENT;
    }
    if (n < (size_t)chosen + 1 || !trm_moe_experts_of(&call, &r->experts)) {
        return false;
    }
    r->experts.experts = (int32_t)(n - 1); /* places are rounded down */
    r->experts.first = 0;
    r->experts.k = chosen;
    return true;
}

/* Bytes per second at which the CPU computes half of a token's experts, and of the link meanwhile. */
static trm_status measure_experts(measure *m, const trm_layer *layer, double *rate, double *link)
{
    expert_run r = {0};
    size_t bytes;
    double seconds;
    const int32_t chosen = (trm_expert_cache_chosen(layer) + 1) / 2;
    if (!describe_experts(m, layer, chosen, &bytes, &r)) {
        return TRM_OK;
    }
    const size_t x_bytes = (size_t)r.experts.hidden * sizeof(float), ids_bytes = (size_t)chosen * sizeof(int32_t);
    const size_t workspace = trm_align_up(trm_moe_few_workspace(&r.experts, 1), TRM_TENSOR_ALIGNMENT);
    unsigned char *memory =
        aligned_alloc(TRM_TENSOR_ALIGNMENT, trm_align_up(workspace + 2 * (x_bytes + ids_bytes), TRM_TENSOR_ALIGNMENT));
    if (memory == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %zu bytes to measure experts", workspace);
    }
    memset(memory, 0, workspace + 2 * (x_bytes + ids_bytes));
    r.workspace = memory;
    r.experts.x = memory + workspace;
    r.y = (float *)(memory + workspace + x_bytes);
    r.experts.weights = (float *)(memory + workspace + 2 * x_bytes);
    r.experts.ids = r.ids = (int32_t *)(memory + workspace + 2 * x_bytes + ids_bytes);
    const int32_t n = r.experts.experts / chosen, warm = n > WARM_PARTS ? n / WARM_PARTS : 1;
    const double each = (double)bytes * chosen;
    trm_status status = time_beside_link(m, time_experts, &r, warm, copies_of(m, 2.0 * warm * each), &seconds, link);
    if (status == TRM_OK) {
        const int32_t copies = copies_of(m, *link * seconds * n / warm * LINK_AHEAD);
        status = time_beside_link(m, time_experts, &r, n, copies, &seconds, link);
    }
    *rate = status == TRM_OK && seconds > 0 ? n * each / seconds : 0;
    free(memory);
    return status;
}

/* Representative layers of each kind and type: the largest that is read several times. */
static int32_t choose_layers(const trm_plan *plan, size_t read, const trm_layer **layers)
{
    const trm_network *network = plan->network;
    int32_t n = 0;
    for (int32_t i = 0; i < network->n_layers; i++) {
        const trm_layer *layer = network->layers[i];
        int32_t k = 0;
        if (plan->streaming->host_seconds[i] < 0 || weight_bytes(plan, layer) > read) {
            continue;
        }
        while (k < n && !trm_cpu_offload_alike(layers[k], layer)) {
            k++;
        }
        if (k == n && n < TRM_CPU_OFFLOAD_KINDS) {
            layers[n++] = layer;
        } else if (k < n && weight_bytes(plan, layer) <= read / 4 &&
                   weight_bytes(plan, layer) > weight_bytes(plan, layers[k])) {
            layers[k] = layer;
        }
    }
    return n;
}

static trm_status measure_all(measure *m, trm_cpu_offload_rates *rates)
{
    const trm_layer *layers[TRM_CPU_OFFLOAD_KINDS];
    double seconds = 0;
    run *idle = calloc(HANDOVERS, sizeof(*idle));
    if (idle == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %d runs of a layer", HANDOVERS);
    }
    trm_status status = TRM_OK;
    for (int32_t turn = 0; status == TRM_OK && turn < 2; turn++) { /* the first one warms up */
        status = time_runs(m, idle, HANDOVERS, &seconds);
    }
    free(idle);
    TRM_TRY(status);
    rates->handover = seconds / HANDOVERS;
    rates->n_kinds = choose_layers(m->plan, m->read, layers);
    for (int32_t i = 0; i < rates->n_kinds; i++) {
        double link;
        rates->kinds[i].layer = layers[i];
        TRM_TRY(measure_layer(m, layers[i], rates->handover, &rates->kinds[i].host, &link));
        rates->link = i == 0 || link < rates->link ? link : rates->link;
        TRM_DEBUG(
            "rank %d: %d threads run %s at %.1f GB/s beside a link of %.1f GB/s, handing over a layer takes %.1f us",
            m->plan->rank, (int)trm_pool_threads(m->pool), layers[i]->name, rates->kinds[i].host / 1e9, link / 1e9,
            rates->handover * 1e6);
    }
    if (m->plan->streaming->n_expert_layers > 0) {
        double link = 0;
        TRM_TRY(measure_experts(m, m->plan->streaming->expert_layers[0], &rates->experts, &link));
        rates->link = link > 0 && (rates->n_kinds == 0 || link < rates->link) ? link : rates->link;
        TRM_DEBUG("rank %d: %d threads compute experts at %.1f GB/s beside a link of %.1f GB/s", m->plan->rank,
                  (int)trm_pool_threads(m->pool), rates->experts / 1e9, link / 1e9);
    }
    return TRM_OK;
}

trm_status trm_cpu_offload_measure(const trm_offload_site *site, trm_cpu_offload_rates *rates)
{
    const size_t all = site->plan->streaming->streamable;
    const size_t most = trm_memory_available() / (size_t)site->world->memory_sharers / FREE_PARTS;
    measure m = {.site = site, .plan = site->plan, .read = all * 2, .copy = all / 4};
    trm_cpu_offload_rates found = site->plan->streaming->rates;
    m.read = m.read < MOST_READ ? m.read : MOST_READ;
    m.read = m.read < most ? m.read : most;
    m.read = m.read < LEAST_READ ? LEAST_READ : m.read;
    m.copyable = m.read < MOST_PINNED ? m.read : MOST_PINNED;
    m.copy = m.copy < m.copyable / 4 ? m.copy : m.copyable / 4;
    m.copy = m.copy < PAGE_BYTES ? PAGE_BYTES : m.copy < MOST_COPY ? m.copy : MOST_COPY;
    TRM_TRY(trm_cpu_offload_open_device(site));
    trm_status status = open_measure(&m);
    status = status == TRM_OK ? measure_all(&m, &found) : status;
    close_measure(&m);
    TRM_TRY(status);
    *rates = found;
    return TRM_OK;
}
