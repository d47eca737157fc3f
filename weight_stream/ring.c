/* The ring: copies in the order of the plan, each behind the layer that frees its place. */
#include "weight_stream/ring.h"

#include <assert.h>
#include <stdlib.h>

#include "base/error.h"

struct trm_ring {
    trm_device *device;
    const trm_residency *residency;
    const size_t *bytes;
    const void *const *stored;
    unsigned char *memory;
    trm_reader *reader; /* of what is read in every step; NULL: nothing is */
    trm_stream *copies;
    trm_event *begins;
    trm_event **arrived; /* [n_fetches] */
    trm_event **freed;   /* [n_fetches] the layer that frees the place has run; NULL: none does, or the fetch before has
                            the same */
    int32_t n;           /* fetches, also when the plan is gone */
    int32_t next;        /* fetch of the step under way */
    int32_t awaited;     /* fetch that the next waiting layer needs first */
};

/* Fetch k waits for a layer that the one before it has not waited for. */
static bool waits_anew(const trm_residency *residency, int32_t k)
{
    int32_t after = residency->fetches[k].after_layer;
    return after >= 0 && (k == 0 || residency->fetches[k - 1].after_layer < after);
}

static trm_status create_events(trm_ring *ring)
{
    size_t n = (size_t)ring->residency->n_fetches + 1;
    ring->arrived = calloc(n, sizeof(*ring->arrived));
    ring->freed = calloc(n, sizeof(*ring->freed));
    if (ring->arrived == NULL || ring->freed == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the events of %zu copies", n - 1);
    }
    TRM_TRY(trm_event_create(ring->device, &ring->begins));
    for (int32_t k = 0; k < ring->residency->n_fetches; k++) {
        TRM_TRY(trm_event_create(ring->device, &ring->arrived[k]));
        if (waits_anew(ring->residency, k)) {
            TRM_TRY(trm_event_create(ring->device, &ring->freed[k]));
        }
    }
    return TRM_OK;
}

static trm_status create_reader(trm_ring *ring, const trm_reader_options *files)
{
    const trm_residency *residency = ring->residency;
    trm_reader_options options = files == NULL ? (trm_reader_options){0} : *files;
    int32_t *items = calloc((size_t)residency->n_fetches + 1, sizeof(*items));
    if (items == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a list of %d copies", residency->n_fetches);
    }
    options.items = items;
    options.n_items = 0;
    options.bytes = ring->bytes;
    for (int32_t k = 0; k < residency->n_fetches; k++) {
        if (ring->stored[residency->fetches[k].weight] == NULL) {
            items[options.n_items++] = residency->fetches[k].weight;
        }
    }
    assert(options.n_items == 0 || files != NULL);
    trm_status status = options.n_items == 0 ? TRM_OK : trm_reader_create(ring->device, &options, &ring->reader);
    free(items);
    return status;
}

trm_status trm_ring_create(trm_device *device, const trm_residency *residency, const size_t *bytes,
                           const void *const *stored, const trm_reader_options *files, trm_ring **ring)
{
    trm_ring *made = calloc(1, sizeof(*made));
    if (made == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a ring");
    }
    *made = (trm_ring){
        .device = device, .residency = residency, .bytes = bytes, .stored = stored, .n = residency->n_fetches};
    trm_status status;
    void *memory;
    TRM_TRY_GOTO(status, trm_device_alloc(device, residency->ring_bytes, &memory), destroy);
    made->memory = memory;
    TRM_TRY_GOTO(status, trm_stream_create_beside(device, &made->copies), destroy);
    TRM_TRY_GOTO(status, create_events(made), destroy);
    TRM_TRY_GOTO(status, create_reader(made, files), destroy);
    *ring = made;
    return TRM_OK;
destroy:
    trm_ring_destroy(made);
    return status;
}

void trm_ring_destroy(trm_ring *ring)
{
    if (ring == NULL) {
        return;
    }
    if (ring->copies != NULL) {
        (void)trm_stream_synchronize(ring->copies);
    }
    trm_reader_destroy(ring->reader);
    for (int32_t k = 0; k < ring->n; k++) {
        trm_event_destroy(ring->arrived == NULL ? NULL : ring->arrived[k]);
        trm_event_destroy(ring->freed == NULL ? NULL : ring->freed[k]);
    }
    trm_event_destroy(ring->begins);
    trm_stream_destroy(ring->copies);
    trm_device_free(ring->device, ring->memory);
    free(ring->arrived);
    free(ring->freed);
    free(ring);
}

void *trm_ring_slot(const trm_ring *ring, int32_t fetch)
{
    return ring->memory + ring->residency->fetches[fetch].offset;
}

/* From the stored form of a weight in host memory to its device form in the ring, on the stream of copies. Here alone
 * it matters what the stored form is. */
static trm_status fetch_weight(trm_ring *ring, int32_t k)
{
    int32_t weight = ring->residency->fetches[k].weight;
    if (ring->stored[weight] == NULL) {
        return trm_reader_upload(ring->reader, ring->copies, trm_ring_slot(ring, k));
    }
    return trm_stream_upload(ring->copies, trm_ring_slot(ring, k), ring->stored[weight], ring->bytes[weight]);
}

/* Enqueues copies whose places are free once `layer` has run. */
static trm_status enqueue_copies(trm_ring *ring, int32_t layer)
{
    const trm_residency *residency = ring->residency;
    for (; ring->next < residency->n_fetches && residency->fetches[ring->next].after_layer <= layer; ring->next++) {
        if (ring->freed[ring->next] != NULL) {
            TRM_TRY(trm_stream_wait_event(ring->copies, ring->freed[ring->next]));
        }
        TRM_TRY(fetch_weight(ring, ring->next));
        TRM_TRY(trm_event_record(ring->arrived[ring->next], ring->copies));
    }
    return TRM_OK;
}

trm_status trm_ring_begin(trm_ring *ring, trm_stream *stream)
{
    ring->next = ring->awaited = 0;
    if (ring->residency->n_fetches == 0) {
        return TRM_OK;
    }
    if (ring->reader != NULL) {
        trm_reader_begin(ring->reader);
    }
    TRM_TRY(trm_event_record(ring->begins, stream));
    TRM_TRY(trm_stream_wait_event(ring->copies, ring->begins));
    return enqueue_copies(ring, -1);
}

trm_status trm_ring_before(trm_ring *ring, int32_t layer, trm_stream *stream, bool *waits)
{
    const trm_residency *residency = ring->residency;
    int32_t last = -1;
    for (; ring->awaited < residency->n_fetches && residency->fetches[ring->awaited].first_layer == layer;
         ring->awaited++) {
        last = ring->awaited;
    }
    if (waits != NULL) {
        *waits = last >= 0;
    }
    return last < 0 ? TRM_OK : trm_stream_wait_event(stream, ring->arrived[last]); /* copies are in order */
}

trm_status trm_ring_after(trm_ring *ring, int32_t layer, trm_stream *stream)
{
    const trm_residency *residency = ring->residency;
    if (ring->next == residency->n_fetches || residency->fetches[ring->next].after_layer != layer) {
        return TRM_OK;
    }
    TRM_TRY(trm_event_record(ring->freed[ring->next], stream));
    return enqueue_copies(ring, layer);
}
