/* Where weights that can be streamed are: on the device or in host memory, and moving them between the two. */
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "dist/streaming.h"

/* Of the host memory that is free, weights take this many parts in so many. */
#define HOST_SHARE 19
#define HOST_PARTS 20
/* What is copied to see how fast the link is, and how often. */
#define PROBE_BYTES       ((size_t)256 << 20)
#define LEAST_PROBE_BYTES ((size_t)1 << 20)
#define PROBES            3

/* ---- host memory ------------------------------------------------------------------------------- */

static void drop_stored(trm_weight_places *places, const trm_plan *plan, trm_device *device, int32_t i)
{
    if (places->is_pinned[i]) {
        trm_device_unpin(device, places->stored[i]);
    }
    places->host_used -= places->stored[i] != NULL ? plan->streaming->bytes[i] : 0;
    trm_pages_free(places->stored[i], plan->streaming->bytes[i]);
    places->stored[i] = NULL;
    places->is_pinned[i] = false;
}

static void drop_resident(trm_weight_places *places, trm_device *device, int32_t i)
{
    trm_device_free(device, places->resident[i]);
    places->resident[i] = NULL;
}

/* Pins what is not pinned yet; what the system refuses stays ordinary memory. */
static void pin_stored(trm_weight_places *places, const trm_plan *plan, trm_device *device)
{
    const size_t *bytes = plan->streaming->bytes;
    places->pinned = true;
    for (int32_t i = 0; i < places->n; i++) {
        if (places->stored[i] != NULL && !places->is_pinned[i] && places->pinned) {
            places->is_pinned[i] = trm_device_pin(device, places->stored[i], bytes[i]) == TRM_OK;
            if (!places->is_pinned[i]) {
                TRM_WARN("rank %d: %s: weights are streamed from ordinary memory, which is several times slower and is "
                         "not captured",
                         plan->rank, trm_last_error());
            }
        }
        places->pinned = places->pinned && (places->stored[i] == NULL || places->is_pinned[i]);
    }
}

/* Takes host memory for a weight if there is room. */
static trm_status take_stored(trm_weight_places *places, const trm_plan *plan, int32_t i)
{
    size_t bytes = plan->streaming->bytes[i];
    if (bytes <= places->host_limit - places->host_used) {
        TRM_TRY(trm_pages_alloc(bytes, &places->stored[i]));
        places->host_used += bytes;
    }
    return TRM_OK;
}

/* Says what host memory has no room for. */
static void report_files(const trm_weight_places *places, const trm_plan *plan)
{
    size_t files = 0;
    for (int32_t i = 0; i < places->n; i++) {
        files += places->stored[i] == NULL && places->resident[i] == NULL ? plan->streaming->bytes[i] : 0;
    }
    if (files > 0) {
        TRM_WARN("rank %d: host memory has room for %.2f GiB of weights, %.2f GiB are read from their files in every "
                 "step, at the speed of the disk",
                 plan->rank, (double)places->host_limit / 0x1p30, (double)files / 0x1p30);
    }
}

/* ---- making places ----------------------------------------------------------------------------- */

trm_status trm_weight_places_init(trm_weight_places *places, const trm_plan *plan, trm_device *device, int32_t sharing)
{
    const trm_streaming_plan *s = plan->streaming;
    size_t n = (size_t)s->problem.n_weights + 1;
    *places = (trm_weight_places){.n = s->problem.n_weights, .version = 1};
    places->resident = calloc(n, sizeof(void *));
    places->stored = calloc(n, sizeof(void *));
    places->is_pinned = calloc(n, sizeof(*places->is_pinned));
    if (places->resident == NULL || places->stored == NULL || places->is_pinned == NULL) {
        places->n = 0;
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the places of %zu weights", n - 1);
    }
    places->host_limit = s->asked.host_bytes > 0
                             ? s->asked.host_bytes
                             : trm_memory_available() / (size_t)(sharing < 1 ? 1 : sharing) / HOST_PARTS * HOST_SHARE;
    for (int32_t i = 0; i < places->n; i++) { /* tables first: their rows are read where they lie */
        bool wanted = !s->residency.resident[i] && trm_streaming_reads_in_place(plan, i);
        TRM_TRY(wanted ? take_stored(places, plan, i) : TRM_OK);
    }
    for (int32_t i = 0; i < places->n; i++) {
        if (s->residency.resident[i]) {
            TRM_TRY(trm_device_alloc(device, s->bytes[i], &places->resident[i]));
        } else if (places->stored[i] == NULL) {
            TRM_TRY(take_stored(places, plan, i));
        }
    }
    report_files(places, plan);
    return TRM_OK;
}

void trm_weight_places_fini(trm_weight_places *places, const trm_plan *plan, trm_device *device)
{
    for (int32_t i = 0; i < places->n; i++) {
        drop_resident(places, device, i);
        drop_stored(places, plan, device, i);
    }
    free(places->resident);
    free(places->stored);
    free(places->is_pinned);
    *places = (trm_weight_places){0};
}

/* Bytes per second of copies from one of the stored weights. */
static trm_status measure_link(const trm_weight_places *places, const trm_plan *plan, trm_device *device, double *rate)
{
    const size_t *all = plan->streaming->bytes;
    int32_t largest = -1;
    for (int32_t i = 0; i < places->n; i++) {
        if (places->stored[i] != NULL && (largest < 0 || all[i] > all[largest])) {
            largest = i;
        }
    }
    *rate = 0;
    if (largest < 0) {
        return TRM_OK;
    }
    size_t bytes = all[largest] < PROBE_BYTES ? all[largest] : PROBE_BYTES;
    trm_stream *stream = NULL;
    trm_event *start = NULL, *end = NULL;
    void *to = NULL;
    trm_status status;
    while ((status = trm_device_alloc(device, bytes, &to)) != TRM_OK && bytes > LEAST_PROBE_BYTES) {
        bytes /= 2; /* memory may be nearly full by now */
    }
    TRM_TRY_GOTO(status, status, done);
    TRM_TRY_GOTO(status, trm_stream_create(device, &stream), done);
    TRM_TRY_GOTO(status, trm_event_create(device, &start), done);
    TRM_TRY_GOTO(status, trm_event_create(device, &end), done);
    for (int32_t i = 0; i < PROBES; i++) {
        float milliseconds;
        TRM_TRY_GOTO(status, trm_event_record(start, stream), done);
        TRM_TRY_GOTO(status, trm_stream_upload(stream, to, places->stored[largest], bytes), done);
        TRM_TRY_GOTO(status, trm_event_record(end, stream), done);
        TRM_TRY_GOTO(status, trm_stream_synchronize(stream), done);
        TRM_TRY_GOTO(status, trm_event_elapsed_ms(start, end, &milliseconds), done);
        double found = milliseconds > 0 ? (double)bytes / ((double)milliseconds * 1e-3) : 0;
        *rate = found > *rate ? found : *rate;
    }
done:
    trm_event_destroy(start);
    trm_event_destroy(end);
    trm_stream_destroy(stream);
    trm_device_free(device, to);
    return status;
}

/* The plan of where weights are. */
static trm_status adjust(trm_weight_places *places, trm_plan *plan, double rate)
{
    bool *resident = calloc((size_t)places->n + 1, sizeof(*resident));
    if (resident == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the places of %d weights", places->n);
    }
    bool rows_in_place = places->pinned;
    places->capturable = places->pinned;
    for (int32_t i = 0; i < places->n; i++) {
        bool is_read = places->resident[i] == NULL && places->stored[i] == NULL;
        resident[i] = places->resident[i] != NULL;
        places->capturable = places->capturable && !is_read;
        rows_in_place = rows_in_place && !(is_read && trm_streaming_reads_in_place(plan, i));
    }
    trm_status status = trm_streaming_adjust(plan, resident, rate, rows_in_place);
    free(resident);
    places->version++;
    return status;
}

trm_status trm_weight_places_settle(trm_weight_places *places, trm_plan *plan, trm_device *device)
{
    double rate;
    pin_stored(places, plan, device);
    TRM_TRY(measure_link(places, plan, device, &rate));
    return adjust(places, plan, rate);
}

/* ---- another budget ---------------------------------------------------------------------------- */

static trm_status move_to_host(trm_weight_places *places, const trm_plan *plan, trm_stream *stream, int32_t i)
{
    TRM_TRY(take_stored(places, plan, i));
    if (places->stored[i] != NULL) { /* otherwise it is read again when it is needed */
        trm_status status =
            trm_stream_download(stream, places->stored[i], places->resident[i], plan->streaming->bytes[i]);
        status = status == TRM_OK ? trm_stream_synchronize(stream) : status;
        if (status != TRM_OK) {
            drop_stored(places, plan, trm_stream_device(stream), i);
            return status;
        }
    }
    drop_resident(places, trm_stream_device(stream), i);
    return TRM_OK;
}

/* From its source, piece by piece. */
static trm_status read_to_device(trm_plan *plan, trm_stream *stream, int32_t i, unsigned char *to)
{
    size_t bytes = plan->streaming->bytes[i], most = bytes < PROBE_BYTES ? bytes : PROBE_BYTES;
    void *piece = NULL;
    trm_status status = trm_pages_alloc(most, &piece);
    for (size_t begin = 0; status == TRM_OK && begin < bytes; begin += most) {
        size_t size = bytes - begin < most ? bytes - begin : most;
        status = trm_streaming_read(plan, i, begin, size, piece);
        status = status == TRM_OK ? trm_stream_upload(stream, to + begin, piece, size) : status;
        status = status == TRM_OK ? trm_stream_synchronize(stream) : status;
    }
    trm_pages_free(piece, most);
    return status;
}

static trm_status move_to_device(trm_weight_places *places, trm_plan *plan, trm_stream *stream, int32_t i)
{
    void *memory = NULL;
    trm_device *device = trm_stream_device(stream);
    size_t bytes = plan->streaming->bytes[i];
    TRM_TRY(trm_device_alloc(device, bytes, &memory));
    trm_status status = places->stored[i] != NULL ? trm_stream_upload(stream, memory, places->stored[i], bytes)
                                                  : read_to_device(plan, stream, i, memory);
    status = status == TRM_OK ? trm_stream_synchronize(stream) : status;
    if (status != TRM_OK) {
        trm_device_free(device, memory);
        return status;
    }
    places->resident[i] = memory;
    drop_stored(places, plan, device, i);
    return TRM_OK;
}

trm_status trm_weight_places_change(trm_weight_places *places, trm_plan *plan, trm_device *device, size_t budget)
{
    trm_stream *stream = NULL;
    TRM_TRY(trm_stream_create(device, &stream));
    trm_status status = trm_streaming_replan(plan, budget);
    const bool *resident = plan->streaming->residency.resident;
    for (int32_t i = 0; status == TRM_OK && i < places->n; i++) {
        status = resident[i] || places->resident[i] == NULL ? TRM_OK : move_to_host(places, plan, stream, i);
    }
    for (int32_t i = 0; status == TRM_OK && i < places->n; i++) {
        status = !resident[i] || places->resident[i] != NULL ? TRM_OK : move_to_device(places, plan, stream, i);
    }
    trm_stream_destroy(stream);
    if (status != TRM_OK) {
        char cause[512];
        snprintf(cause, sizeof(cause), "%s", trm_last_error());
        (void)adjust(places, plan, 0);
        return trm_fail(status, "cannot change the weight budget to %zu bytes: %s", budget, cause);
    }
    pin_stored(places, plan, device);
    report_files(places, plan);
    return adjust(places, plan, 0);
}
