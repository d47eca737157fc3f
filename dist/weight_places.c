/* Where weights that can be streamed are: on the device or in host memory, and moving them between the two. */
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "dist/streaming.h"

/* What is copied to see how fast the link is, and how often. */
#define PROBE_BYTES ((size_t)64 << 20)
#define PROBES      3

/* ---- host memory ------------------------------------------------------------------------------- */

static void drop_stored(trm_weight_places *places, const trm_plan *plan, trm_device *device, int32_t i)
{
    if (places->is_pinned[i]) {
        trm_device_unpin(device, places->stored[i]);
    }
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

static size_t stored_bytes(const trm_plan *plan)
{
    const trm_streaming_plan *s = plan->streaming;
    return s->streamable - s->residency.resident_bytes;
}

static trm_status check_host_memory(const trm_plan *plan, int32_t sharing)
{
    size_t needed = stored_bytes(plan), available = trm_memory_available() / (size_t)(sharing < 1 ? 1 : sharing);
    if (needed > available) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY,
                 "rank %d streams %.2f GiB of weights from host memory, %.2f GiB are available for each of %d rank%s: "
                 "give more of them a place on the device (a larger weight budget)",
                 plan->rank, (double)needed / 0x1p30, (double)available / 0x1p30, sharing, sharing == 1 ? "" : "s");
    }
    return TRM_OK;
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
    TRM_TRY(check_host_memory(plan, sharing));
    for (int32_t i = 0; i < places->n; i++) {
        TRM_TRY(s->residency.resident[i] ? trm_device_alloc(device, s->bytes[i], &places->resident[i])
                                         : trm_pages_alloc(s->bytes[i], &places->stored[i]));
    }
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
    TRM_TRY_GOTO(status, trm_device_alloc(device, bytes, &to), done);
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
    for (int32_t i = 0; i < places->n; i++) {
        resident[i] = places->resident[i] != NULL;
    }
    trm_status status = trm_streaming_adjust(plan, resident, rate, places->pinned);
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
    void *memory = NULL;
    size_t bytes = plan->streaming->bytes[i];
    TRM_TRY(trm_pages_alloc(bytes, &memory));
    trm_status status = trm_stream_download(stream, memory, places->resident[i], bytes);
    status = status == TRM_OK ? trm_stream_synchronize(stream) : status;
    if (status != TRM_OK) {
        trm_pages_free(memory, bytes);
        return status;
    }
    places->stored[i] = memory;
    drop_resident(places, trm_stream_device(stream), i);
    return TRM_OK;
}

static trm_status move_to_device(trm_weight_places *places, const trm_plan *plan, trm_stream *stream, int32_t i)
{
    void *memory = NULL;
    trm_device *device = trm_stream_device(stream);
    size_t bytes = plan->streaming->bytes[i];
    TRM_TRY(trm_device_alloc(device, bytes, &memory));
    trm_status status = trm_stream_upload(stream, memory, places->stored[i], bytes);
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
        status = !resident[i] || places->stored[i] == NULL ? TRM_OK : move_to_device(places, plan, stream, i);
    }
    trm_stream_destroy(stream);
    if (status != TRM_OK) {
        char cause[512];
        snprintf(cause, sizeof(cause), "%s", trm_last_error());
        (void)adjust(places, plan, 0);
        return trm_fail(status, "cannot change the weight budget to %zu bytes: %s", budget, cause);
    }
    pin_stored(places, plan, device);
    return adjust(places, plan, 0);
}
