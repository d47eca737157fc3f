/* How fast the processors of a rank read weights while the link is busy, and what handing a layer over to them costs.
 * Measured before weights are loaded, on memory of its own: what processors are to read is stored otherwise than what
 * is copied. */
#include <stdatomic.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/pool.h"
#include "dist/engine.h"
#include "dist/load.h"

/* What is read, beyond any cache, and what is copied meanwhile, as often as that is not over. */
#define READ_BYTES   ((size_t)1 << 30)
#define COPIED_BYTES ((size_t)64 << 20)
#define COPIES       48
#define READS        4
#define COLUMNS      4096
#define ROW_BYTES    (COLUMNS * 2)
#define ROWS         (READ_BYTES / ROW_BYTES)
/* With a row of zeros, and the outputs. */
#define PAGE_BYTES (READ_BYTES + ROW_BYTES + ROWS * 2)
/* Layers that are handed over and do nothing. */
#define HANDOVERS 40

typedef struct measure {
    trm_engine *engine;
    unsigned char *weights; /* pages of PAGE_BYTES */
    void *pinned, *copied;  /* COPIED_BYTES, on the host and on the device */
    void *small[2];         /* a page of pinned memory, and of the device's */
    trm_stream *link, *layers;
    trm_event *begin, *end;
} measure;

static void touch(void *user, int64_t begin, int64_t end)
{
    uint16_t *weights = user;
    for (int64_t i = begin * COLUMNS; i < end * COLUMNS; i++) {
        weights[i] = (uint16_t)(0x3c00 + i % 97);
    }
}

static trm_status open_measure(measure *m)
{
    trm_device *device = m->engine->world->device;
    void *memory;
    TRM_TRY(trm_pages_alloc(PAGE_BYTES, &memory));
    m->weights = memory;
    TRM_TRY(trm_device_alloc_host(device, COPIED_BYTES, &m->pinned));
    TRM_TRY(trm_device_alloc(device, COPIED_BYTES, &m->copied));
    TRM_TRY(trm_device_alloc_host(device, ROW_BYTES, &m->small[0]));
    TRM_TRY(trm_device_alloc(device, ROW_BYTES, &m->small[1]));
    TRM_TRY(trm_stream_create_beside(device, &m->link));
    TRM_TRY(trm_stream_create(device, &m->layers));
    TRM_TRY(trm_event_create(device, &m->begin));
    return trm_event_create(device, &m->end);
}

static void close_measure(measure *m)
{
    trm_device *device = m->engine->world->device;
    if (m->link != NULL) {
        (void)trm_stream_synchronize(m->link);
    }
    trm_event_destroy(m->begin);
    trm_event_destroy(m->end);
    trm_stream_destroy(m->link);
    trm_stream_destroy(m->layers);
    trm_device_free(device, m->small[1]);
    trm_device_free_host(device, m->small[0]);
    trm_device_free(device, m->copied);
    trm_device_free_host(device, m->pinned);
    trm_pages_free(m->weights, PAGE_BYTES);
}

/* Bytes per second of a product that reads all weights, beside copies; and of these. */
static trm_status measure_reading(measure *m, double *host_rate, double *link_rate)
{
    const int64_t n = (int64_t)ROWS;
    unsigned char *x = m->weights + READ_BYTES, *out = x + ROW_BYTES;
    const trm_layer_desc desc = {.kind = TRM_LAYER_MATMUL, .matmul = {.transpose_b = true}};
    float workspace[COLUMNS];
    const trm_kernel_call call = {
        .layer = &desc,
        .n_inputs = 2,
        .n_outputs = 1,
        .inputs = {{x, TRM_BF16, {2, {1, COLUMNS}}}, {m->weights, TRM_BF16, {2, {n, COLUMNS}}}},
        .outputs = {{out, TRM_BF16, {2, {1, n}}}},
        .stream = m->engine->crew.stream,
        .workspace = workspace,
        .workspace_size = sizeof(workspace)};
    const trm_kernel *kernel = trm_kernel_find(trm_all_kernels, trm_all_kernels_count, TRM_BACKEND_HOST, &call);
    double least = 0;
    float milliseconds;
    trm_pool_for(trm_stream_native(m->engine->crew.stream), n, 1, touch, m->weights);
    TRM_TRY(kernel->run(&call));
    TRM_TRY(trm_event_record(m->begin, m->link));
    for (int32_t i = 0; i < COPIES; i++) {
        TRM_TRY(trm_stream_upload(m->link, m->copied, m->pinned, COPIED_BYTES));
    }
    TRM_TRY(trm_event_record(m->end, m->link));
    for (int32_t i = 0; i < READS; i++) {
        double began = trm_clock_seconds();
        TRM_TRY(kernel->run(&call));
        double took = trm_clock_seconds() - began;
        bool beside = false;
        TRM_TRY(trm_event_query(m->end, &beside));
        least = least == 0 || (took < least && !beside) ? took : least;
    }
    TRM_TRY(trm_stream_synchronize(m->link));
    TRM_TRY(trm_event_elapsed_ms(m->begin, m->end, &milliseconds));
    *host_rate = (double)READ_BYTES / least;
    *link_rate = milliseconds > 0 ? (double)COPIED_BYTES * COPIES / ((double)milliseconds * 1e-3) : 0;
    return TRM_OK;
}

static void do_nothing(void *user)
{
    (void)user;
}

/* Seconds of a layer that is handed over and does nothing. */
static trm_status measure_handover(measure *m, double *seconds)
{
    const trm_small_copy in = {m->small[0], m->small[1], ROW_BYTES}, out = {m->small[1], m->small[0], ROW_BYTES};
    for (int32_t turn = 0; turn < 2; turn++) { /* the first one warms up */
        double began = trm_clock_seconds();
        for (int32_t i = 0; i < HANDOVERS; i++) {
            TRM_TRY(trm_stream_copy_small(m->layers, &in, 1));
            TRM_TRY(trm_stream_host_task(m->layers, do_nothing, NULL));
            TRM_TRY(trm_stream_copy_small(m->layers, &out, 1));
        }
        TRM_TRY(trm_stream_synchronize(m->layers));
        *seconds = (trm_clock_seconds() - began) / HANDOVERS;
    }
    return TRM_OK;
}

trm_status trm_hosting_measure(trm_engine *engine, trm_hosting_rates *rates)
{
    measure m = {.engine = engine};
    trm_hosting_rates found = {0};
    TRM_TRY(trm_hosting_open_crew(engine));
    trm_status status = open_measure(&m);
    status = status == TRM_OK ? measure_reading(&m, &found.host, &found.link) : status;
    status = status == TRM_OK ? measure_handover(&m, &found.handover) : status;
    close_measure(&m);
    TRM_TRY(status);
    TRM_DEBUG(
        "rank %d: %d threads read weights at %.1f GB/s beside a link of %.1f GB/s, a layer is handed over in %.1f us",
        engine->plan->rank, (int)trm_pool_threads(trm_stream_native(engine->crew.stream)), found.host / 1e9,
        found.link / 1e9, found.handover * 1e6);
    *rates = found;
    return TRM_OK;
}
