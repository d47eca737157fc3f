/* The ring: copies in the order of the plan, each after the layer that frees its place. */
#include "weight_stream/ring.h"

#include <assert.h>
#include <stdlib.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/ranges.h"
#include "base/trace.h"
#include "kernels/codec/codec.h"

/* Stages for pieces: two are filled while one is unpacked. Pieces are copied in turn on this many streams, because a
 * graph takes 17 us from the end of a copy to the start of the next one that also waits for a kernel. */
#define STAGES        3
#define PIECE_STREAMS 2

typedef struct ring_schedule {
    const trm_residency *residency;
    int32_t n;           /* its fetches, valid after the plan is gone */
    trm_event **arrived; /* [n] */
    /* For the timeline; NULL: none was recorded. */
    trm_event **started, **copied; /* [n] before and behind the copy */
    bool *is_traced;               /* [n] both are of the current step */
    trm_event **freed;  /* [n] the layer that frees the place has run; NULL: none, or the same as the fetch before */
    bool packed, whole; /* some fetched weights are packed; some are not */
} ring_schedule;

struct trm_ring {
    trm_device *device;
    ring_schedule schedules[TRM_RING_MOST_SCHEDULES];
    int32_t n_schedules;
    ring_schedule *now; /* of the current step */
    const size_t *bytes;
    const trm_stored_weight *stored;
    trm_ring_sharing sharing; /* gather NULL: nothing is shared */
    unsigned char *memory;
    trm_reader *reader;  /* of weights read in every step; NULL: none */
    int32_t *read_place; /* [n] index of a fetch in the reader's list, for the first schedule */
    trm_stream *copies;
    trm_event *begins;
    unsigned char
        *stages; /* [STAGES] of stage_bytes; this and what follows: NULL if nothing that is fetched is packed */
    size_t stage_bytes;
    trm_stream *unpacks, *pieces_on[PIECE_STREAMS];
    trm_event *copied, *drained, *staged[STAGES], *emptied[STAGES];
    bool is_captured;    /* the current step */
    size_t n_pieces;     /* of the current step */
    size_t copied_bytes; /* enqueued since the step began */
    int32_t next;        /* number of enqueued fetches of the current step */
    int32_t awaited;     /* fetch that the next waiting layer needs first */
    int32_t skipped;     /* fetches before this one that are not yet enqueued are not needed in this step */
    const ring_schedule
        *primed;           /* schedule whose carried over fetches are done once all enqueued work has run; NULL: none */
    trm_event *last_freed; /* of the fetches enqueued so far */
    const trm_event *copies_waited, *unpacks_waited; /* the last of `freed` that these streams wait for */
};

static bool is_packed(const trm_ring *ring, const ring_schedule *p, int32_t fetch)
{
    return ring->stored[p->residency->fetches[fetch].weight].pieces != NULL;
}

static size_t stage_of(size_t piece)
{
    return trm_align_up(trm_stored_most_of_piece(piece), TRM_PIECE_ALIGNMENT);
}

size_t trm_ring_stage_bytes(size_t piece)
{
    return STAGES * stage_of(piece);
}

/* The fetch at a position of a step's order: those for the next step come last. */
static int32_t fetch_at(const trm_residency *residency, int32_t place)
{
    return (residency->n_carried + place) % residency->n_fetches;
}

/* Whether the fetch at a position waits for a layer that the one before it did not wait for. */
static bool waits_anew(const trm_residency *residency, int32_t place)
{
    int32_t after = residency->fetches[fetch_at(residency, place)].after_layer;
    return after >= 0 && (place == 0 || residency->fetches[fetch_at(residency, place - 1)].after_layer < after);
}

static trm_status create_events(trm_ring *ring, ring_schedule *p)
{
    size_t n = (size_t)p->n + 1;
    p->arrived = calloc(n, sizeof(*p->arrived));
    p->freed = calloc(n, sizeof(*p->freed));
    if (p->arrived == NULL || p->freed == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the events of %zu copies", n - 1);
    }
    for (int32_t place = 0; place < p->n; place++) {
        TRM_TRY(trm_event_create(ring->device, &p->arrived[place]));
        if (waits_anew(p->residency, place)) {
            TRM_TRY(trm_event_create(ring->device, &p->freed[fetch_at(p->residency, place)]));
        }
    }
    return TRM_OK;
}

/* Allocates what a timeline needs, if one is recorded. */
static trm_status create_traced(trm_ring *ring, ring_schedule *p)
{
    size_t n = (size_t)p->n + 1;
    if (!trm_trace_is_on()) {
        return TRM_OK;
    }
    p->started = calloc(n, sizeof(*p->started));
    p->copied = calloc(n, sizeof(*p->copied));
    p->is_traced = calloc(n, sizeof(*p->is_traced));
    if (p->started == NULL || p->copied == NULL || p->is_traced == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the events of %zu copies", n - 1);
    }
    for (int32_t k = 0; k < p->n; k++) {
        TRM_TRY(trm_event_create(ring->device, &p->started[k]));
        TRM_TRY(trm_event_create(ring->device, &p->copied[k]));
    }
    return TRM_OK;
}

/* Allocates memory and events for unpacking. */
static trm_status create_stages(trm_ring *ring)
{
    size_t largest = 0;
    void *memory;
    for (int32_t i = 0; i < ring->n_schedules; i++) {
        ring_schedule *p = &ring->schedules[i];
        for (int32_t k = 0; k < p->n; k++) {
            size_t piece = ring->stored[p->residency->fetches[k].weight].piece_bytes;
            bool packed = is_packed(ring, p, k);
            largest = packed && piece > largest ? piece : largest;
            p->packed = p->packed || packed;
            p->whole = p->whole || !packed;
        }
    }
    if (largest == 0) {
        return TRM_OK;
    }
    ring->stage_bytes = stage_of(largest);
    TRM_TRY(trm_device_alloc(ring->device, trm_ring_stage_bytes(largest), &memory));
    ring->stages = memory;
    TRM_TRY(trm_event_create(ring->device, &ring->copied));
    TRM_TRY(trm_event_create(ring->device, &ring->drained));
    for (int32_t i = 0; i < STAGES; i++) {
        TRM_TRY(trm_event_create(ring->device, &ring->staged[i]));
        TRM_TRY(trm_event_create(ring->device, &ring->emptied[i]));
    }
    for (int32_t i = 0; i < PIECE_STREAMS; i++) {
        TRM_TRY(trm_stream_create_beside(ring->device, &ring->pieces_on[i]));
    }
    return trm_stream_create_beside(ring->device, &ring->unpacks);
}

static trm_status create_reader(trm_ring *ring, const trm_reader_options *files)
{
    const ring_schedule *p = &ring->schedules[0];
    trm_reader_options options = files == NULL ? (trm_reader_options){0} : *files;
    int32_t *items = calloc((size_t)p->n + 1, sizeof(*items));
    ring->read_place = calloc((size_t)p->n + 1, sizeof(*ring->read_place));
    if (items == NULL || ring->read_place == NULL) {
        free(items);
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a list of %d copies", p->n);
    }
    options.items = items;
    options.n_items = 0;
    options.bytes = ring->bytes;
    for (int32_t k = 0; k < p->n; k++) {
        if (ring->stored[p->residency->fetches[k].weight].memory == NULL) {
            ring->read_place[k] = options.n_items;
            items[options.n_items++] = p->residency->fetches[k].weight;
        }
    }
    assert(options.n_items == 0 || files != NULL);
    trm_status status = options.n_items == 0 ? TRM_OK : trm_reader_create(ring->device, &options, &ring->reader);
    free(items);
    return status;
}

trm_status trm_ring_create(trm_device *device, const trm_residency *const *schedules, int32_t n_schedules,
                           const size_t *bytes, const trm_stored_weight *stored, const trm_reader_options *files,
                           const trm_ring_sharing *sharing, trm_ring **ring)
{
    trm_ring *made = calloc(1, sizeof(*made));
    if (made == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a ring");
    }
    assert(n_schedules >= 1 && n_schedules <= TRM_RING_MOST_SCHEDULES);
    *made = (trm_ring){.device = device, .n_schedules = n_schedules, .bytes = bytes, .stored = stored};
    made->sharing = sharing == NULL ? (trm_ring_sharing){0} : *sharing;
    made->now = made->schedules;
    size_t most = 0;
    for (int32_t i = 0; i < n_schedules; i++) {
        made->schedules[i] = (ring_schedule){.residency = schedules[i], .n = schedules[i]->n_fetches};
        most = schedules[i]->ring_bytes > most ? schedules[i]->ring_bytes : most;
    }
    trm_status status;
    void *memory;
    TRM_TRY_GOTO(status, trm_device_alloc(device, most, &memory), destroy);
    made->memory = memory;
    TRM_TRY_GOTO(status, trm_stream_create_beside(device, &made->copies), destroy);
    TRM_TRY_GOTO(status, trm_event_create(device, &made->begins), destroy);
    for (int32_t i = 0; i < n_schedules; i++) {
        TRM_TRY_GOTO(status, create_events(made, &made->schedules[i]), destroy);
        TRM_TRY_GOTO(status, create_traced(made, &made->schedules[i]), destroy);
    }
    TRM_TRY_GOTO(status, create_stages(made), destroy);
    TRM_TRY_GOTO(status, create_reader(made, files), destroy);
    *ring = made;
    return TRM_OK;
destroy:
    trm_ring_destroy(made);
    return status;
}

/* Those of a schedule. */
static void destroy_events(ring_schedule *p)
{
    for (int32_t k = 0; k < p->n; k++) {
        trm_event_destroy(p->arrived == NULL ? NULL : p->arrived[k]);
        trm_event_destroy(p->freed == NULL ? NULL : p->freed[k]);
        trm_event_destroy(p->started == NULL ? NULL : p->started[k]);
        trm_event_destroy(p->copied == NULL ? NULL : p->copied[k]);
    }
    free(p->arrived);
    free(p->freed);
    free(p->started);
    free(p->copied);
    free(p->is_traced);
}

void trm_ring_destroy(trm_ring *ring)
{
    if (ring == NULL) {
        return;
    }
    if (ring->copies != NULL) {
        (void)trm_stream_synchronize(ring->copies);
    }
    for (int32_t i = 0; i < PIECE_STREAMS; i++) {
        if (ring->pieces_on[i] != NULL) {
            (void)trm_stream_synchronize(ring->pieces_on[i]);
        }
    }
    if (ring->unpacks != NULL) {
        (void)trm_stream_synchronize(ring->unpacks);
    }
    trm_reader_destroy(ring->reader);
    free(ring->read_place);
    for (int32_t i = 0; i < ring->n_schedules; i++) {
        destroy_events(&ring->schedules[i]);
    }
    for (int32_t i = 0; i < STAGES; i++) {
        trm_event_destroy(ring->staged[i]);
        trm_event_destroy(ring->emptied[i]);
    }
    trm_event_destroy(ring->copied);
    trm_event_destroy(ring->drained);
    trm_event_destroy(ring->begins);
    for (int32_t i = 0; i < PIECE_STREAMS; i++) {
        trm_stream_destroy(ring->pieces_on[i]);
    }
    trm_stream_destroy(ring->unpacks);
    trm_stream_destroy(ring->copies);
    trm_device_free(ring->device, ring->stages);
    trm_device_free(ring->device, ring->memory);
    free(ring);
}

size_t trm_ring_copied_bytes(const trm_ring *ring)
{
    return ring->copied_bytes;
}

void *trm_ring_slot(const trm_ring *ring, int32_t schedule, int32_t fetch)
{
    return ring->memory + ring->schedules[schedule].residency->fetches[fetch].offset;
}

/* The address of this rank's part of a weight. */
static unsigned char *part_of_slot(const trm_ring *ring, int32_t k)
{
    const trm_residency_fetch *fetch = &ring->now->residency->fetches[k];
    size_t begin = ring->sharing.gather == NULL ? 0 : ring->sharing.begins[fetch->weight];
    return ring->memory + fetch->offset + begin;
}

/* Records an event for the timeline, if there is one. */
static trm_status mark(trm_event *event, trm_stream *stream)
{
    return event == NULL ? TRM_OK : trm_event_record(event, stream);
}

/* Copies a piece to the stage that was unpacked longest ago, and unpacks it. */
static trm_status fetch_piece(trm_ring *ring, const void *from, size_t size, unsigned char *to, size_t bytes,
                              trm_event *started, trm_event *copied)
{
    size_t number = ring->n_pieces++, turn = number % STAGES;
    trm_stream *copies = ring->pieces_on[number % PIECE_STREAMS];
    unsigned char *stage = ring->stages + turn * ring->stage_bytes;
    if (number < PIECE_STREAMS) {
        TRM_TRY(trm_stream_wait_event(copies, ring->drained));
    }
    if (number >= STAGES) {
        TRM_TRY(trm_stream_wait_event(copies, ring->emptied[turn]));
    }
    TRM_TRY(mark(started, copies));
    TRM_TRY(trm_stream_upload(copies, stage, from, size));
    TRM_TRY(mark(copied, copies));
    TRM_TRY(trm_event_record(ring->staged[turn], copies));
    TRM_TRY(trm_stream_wait_event(ring->unpacks, ring->staged[turn]));
    TRM_TRY(trm_bf16_decode(ring->unpacks, stage, to, bytes / sizeof(uint16_t), 0));
    return trm_event_record(ring->emptied[turn], ring->unpacks);
}

static trm_status fetch_packed(trm_ring *ring, int32_t k, trm_event *started, trm_event *copied)
{
    int32_t weight = ring->now->residency->fetches[k].weight;
    const trm_stored_weight *stored = &ring->stored[weight];
    unsigned char *to = part_of_slot(ring, k);
    for (int32_t i = 0; i < stored->n_pieces; i++) {
        TRM_TRY(fetch_piece(ring, stored->memory + stored->pieces[i], stored->pieces[i + 1] - stored->pieces[i],
                            to + (size_t)i * stored->piece_bytes,
                            trm_stored_piece_bytes(stored, ring->bytes[weight], i), i == 0 ? started : NULL,
                            i == stored->n_pieces - 1 ? copied : NULL));
    }
    return TRM_OK;
}

/* Fetches a weight from its stored form in host memory, or from files, to its device form in the ring. */
static trm_status fetch_weight(trm_ring *ring, int32_t k)
{
    const int32_t weight = ring->now->residency->fetches[k].weight;
    const bool traces = ring->now->started != NULL && !ring->is_captured;
    trm_event *started = traces ? ring->now->started[k] : NULL, *copied = traces ? ring->now->copied[k] : NULL;
    if (ring->now->started != NULL) {
        ring->now->is_traced[k] = traces;
    }
    if (is_packed(ring, ring->now, k)) {
        return fetch_packed(ring, k, started, copied);
    }
    TRM_TRY(mark(started, ring->copies));
    if (ring->stored[weight].memory == NULL) {
        trm_reader_go_to(ring->reader, ring->read_place[k]);
        TRM_TRY(trm_reader_upload(ring->reader, ring->copies, part_of_slot(ring, k)));
    } else {
        TRM_TRY(
            trm_stream_upload(ring->copies, part_of_slot(ring, k), ring->stored[weight].memory, ring->bytes[weight]));
    }
    return mark(copied, ring->copies);
}

/* Bytes that the link carries. */
static size_t link_bytes(const trm_ring *ring, int32_t k)
{
    const int32_t weight = ring->now->residency->fetches[k].weight;
    return is_packed(ring, ring->now, k) ? ring->stored[weight].bytes : ring->bytes[weight];
}

static trm_status enqueue_copy(trm_ring *ring, int32_t k)
{
    ring->copied_bytes += link_bytes(ring, k);
    trm_range_begin("weight fetch");
    const trm_status status = fetch_weight(ring, k);
    trm_range_end();
    TRM_TRY(status);
    return trm_event_record(ring->now->arrived[k], is_packed(ring, ring->now, k) ? ring->unpacks : ring->copies);
}

/* A stream may be ready for a copy while the engine makes another, so a copy begins when the one before it in its row
 * has ended at the earliest. */
trm_status trm_ring_trace(trm_ring *ring, trm_event *began, double begin, const char *const rows[3],
                          const char *(*name)(void *user, int32_t weight), void *user)
{
    const ring_schedule *now = ring->now;
    int32_t n_packed = 0;
    for (int32_t place = 0; now->started != NULL && place < now->n; place++) {
        const int32_t k = fetch_at(now->residency, place);
        float started, copied;
        if (!now->is_traced[k]) {
            continue;
        }
        now->is_traced[k] = false;
        TRM_TRY(trm_event_elapsed_ms(began, now->started[k], &started));
        TRM_TRY(trm_event_elapsed_ms(began, now->copied[k], &copied));
        const trm_trace_value bytes = {.key = "bytes", .number = (int64_t)link_bytes(ring, k)};
        trm_trace_span span = {.category = "weights",
                               .name = name(user, now->residency->fetches[k].weight),
                               .row = trm_trace_row(rows[is_packed(ring, now, k) ? 1 + n_packed++ % 2 : 0]),
                               .values = &bytes,
                               .n_values = 1};
        const double end = begin + (double)copied * 1e-3;
        span.begin = trm_trace_after(span.row, begin + (double)started * 1e-3);
        span.seconds = end - span.begin;
        trm_trace_add(&span);
    }
    return TRM_OK;
}

/* Enqueues fetches whose places are free once `layer` has run. For packed ones only the unpacking waits for the place.
 */
static trm_status enqueue_copies(trm_ring *ring, int32_t layer)
{
    const trm_residency *residency = ring->now->residency;
    for (; ring->next < residency->n_fetches; ring->next++) {
        int32_t k = fetch_at(residency, ring->next);
        if (residency->fetches[k].after_layer > layer) {
            break;
        }
        const bool packed = is_packed(ring, ring->now, k);
        trm_stream *writes = packed ? ring->unpacks : ring->copies;
        const trm_event **waited = packed ? &ring->unpacks_waited : &ring->copies_waited;
        ring->last_freed = ring->now->freed[k] != NULL ? ring->now->freed[k] : ring->last_freed;
        if (k >= residency->n_carried && k < ring->skipped) {
            continue;
        }
        if (*waited != ring->last_freed) {
            TRM_TRY(trm_stream_wait_event(writes, ring->last_freed));
            *waited = ring->last_freed;
        }
        TRM_TRY(enqueue_copy(ring, k));
    }
    return TRM_OK;
}

/* Makes the stream wait for the last of the fetches begin .. end - 1 on either stream. */
static trm_status await_fetches(trm_ring *ring, int32_t begin, int32_t end, trm_stream *stream, bool *waits)
{
    int32_t last[2] = {-1, -1}; /* copied, unpacked: both are in order */
    for (int32_t k = begin; k < end; k++) {
        last[is_packed(ring, ring->now, k)] = k;
    }
    if (waits != NULL) {
        *waits = begin < end;
    }
    TRM_TRY(last[0] < 0 ? TRM_OK : trm_stream_wait_event(stream, ring->now->arrived[last[0]]));
    return last[1] < 0 ? TRM_OK : trm_stream_wait_event(stream, ring->now->arrived[last[1]]);
}

/* A failed step may have left copies and unpacking: neither starts before the other has finished. `copies`: whether the
 * copy stream takes part. */
static trm_status drain(trm_ring *ring, bool copies)
{
    if (copies) {
        TRM_TRY(trm_event_record(ring->copied, ring->copies));
        TRM_TRY(trm_stream_wait_event(ring->unpacks, ring->copied));
    }
    TRM_TRY(trm_event_record(ring->drained, ring->unpacks));
    return copies ? trm_stream_wait_event(ring->copies, ring->drained) : TRM_OK;
}

/* Orders later work after what is on `stream`, and after copies of the previous step. A capture must not have a stream
 * that only waits. */
static trm_status begin_copies(trm_ring *ring, trm_stream *stream)
{
    ring->n_pieces = 0;
    ring->last_freed = NULL;
    ring->copies_waited = ring->unpacks_waited = NULL;
    TRM_TRY(trm_event_record(ring->begins, stream));
    if (ring->now->whole) {
        TRM_TRY(trm_stream_wait_event(ring->copies, ring->begins));
    }
    if (ring->now->packed) {
        TRM_TRY(trm_stream_wait_event(ring->unpacks, ring->begins));
        TRM_TRY(drain(ring, ring->now->whole));
    }
    return TRM_OK;
}

trm_status trm_ring_prime(trm_ring *ring, int32_t schedule, trm_stream *stream)
{
    ring->now = &ring->schedules[schedule];
    ring->is_captured = false;
    const int32_t n = ring->now->residency->n_carried;
    if (ring->primed == ring->now || ring->now->n == 0) { /* without fetches the ring stays as it is */
        return TRM_OK;
    }
    if (ring->unpacks != NULL) { /* the streams of the step before may be others than this one's */
        TRM_TRY(drain(ring, true));
    }
    ring->primed = NULL;
    if (n > 0) {
        TRM_TRY(begin_copies(ring, stream));
        for (int32_t k = 0; k < n; k++) {
            TRM_TRY(enqueue_copy(ring, k));
        }
        TRM_TRY(await_fetches(ring, 0, n, stream, NULL));
    }
    ring->primed = ring->now;
    return TRM_OK;
}

trm_status trm_ring_begin(trm_ring *ring, int32_t schedule, trm_stream *stream)
{
    ring->now = &ring->schedules[schedule];
    ring->next = ring->awaited = ring->skipped = 0;
    if (ring->now->residency->n_fetches == 0) {
        return TRM_OK;
    }
    if (!trm_stream_is_capturing(stream)) {
        TRM_TRY(trm_ring_prime(ring, schedule, stream));
        ring->primed = NULL; /* until the step has ended */
    }
    ring->is_captured = trm_stream_is_capturing(stream);
    ring->copied_bytes = 0;
    if (ring->reader != NULL) {
        trm_reader_begin(ring->reader);
    }
    TRM_TRY(begin_copies(ring, stream));
    return enqueue_copies(ring, -1);
}

trm_status trm_ring_before(trm_ring *ring, int32_t layer, trm_stream *stream, bool *waits)
{
    const trm_residency *residency = ring->now->residency;
    int32_t begin = ring->awaited;
    while (ring->awaited < residency->n_fetches && residency->fetches[ring->awaited].first_layer == layer) {
        ring->awaited++;
    }
    int32_t first = begin > residency->n_carried ? begin : residency->n_carried;
    TRM_TRY(await_fetches(ring, first, ring->awaited, stream, waits));
    for (int32_t k = begin; k < ring->awaited && ring->sharing.gather != NULL; k++) {
        const trm_residency_fetch *fetch = &residency->fetches[k];
        if (ring->sharing.shared[fetch->weight]) {
            TRM_TRY(ring->sharing.gather(ring->sharing.user, ring->memory + fetch->offset, ring->bytes[fetch->weight],
                                         stream));
        }
    }
    return TRM_OK;
}

trm_status trm_ring_after(trm_ring *ring, int32_t layer, trm_stream *stream)
{
    const trm_residency *residency = ring->now->residency;
    if (ring->next == residency->n_fetches) {
        return TRM_OK;
    }
    int32_t k = fetch_at(residency, ring->next);
    if (residency->fetches[k].after_layer != layer) {
        return TRM_OK;
    }
    TRM_TRY(trm_event_record(ring->now->freed[k], stream));
    return enqueue_copies(ring, layer);
}

static int32_t larger(int32_t a, int32_t b)
{
    return a > b ? a : b;
}

trm_status trm_ring_skip(trm_ring *ring, int32_t begin, int32_t end, trm_stream *stream)
{
    const trm_residency *residency = ring->now->residency;
    int32_t first = larger(ring->awaited, residency->n_carried), enqueued = residency->n_carried + ring->next;
    while (ring->awaited < residency->n_fetches && residency->fetches[ring->awaited].first_layer < end) {
        ring->awaited++;
    }
    /* the next fetch to their places may use another stream */
    TRM_TRY(await_fetches(ring, first, enqueued < ring->awaited ? enqueued : ring->awaited, stream, NULL));
    ring->skipped = ring->awaited;
    for (int32_t layer = begin; layer < end; layer++) {
        TRM_TRY(trm_ring_after(ring, layer, stream));
    }
    return TRM_OK;
}

/* Everything copied ahead for later layers is copied again too: it may occupy places that they need. */
trm_status trm_ring_repeat(trm_ring *ring, int32_t begin, int32_t end, trm_stream *stream)
{
    const trm_residency *residency = ring->now->residency;
    const int32_t n_carried = residency->n_carried;
    int32_t first = 0;
    while (first < residency->n_fetches && residency->fetches[first].first_layer < begin) {
        assert(residency->fetches[first].last_layer < begin || residency->fetches[first].last_layer >= end);
        first++;
    }
    if (first == residency->n_fetches || residency->fetches[first].first_layer >= end) {
        return TRM_OK;
    }
    TRM_TRY(begin_copies(ring, stream));
    for (int32_t k = first; k < n_carried; k++) {
        TRM_TRY(enqueue_copy(ring, k));
    }
    TRM_TRY(await_fetches(ring, first, n_carried, stream, NULL));
    ring->awaited = first;
    ring->skipped = 0;
    ring->next = larger(first - n_carried, 0);
    return enqueue_copies(ring, begin - 1);
}

trm_status trm_ring_end(trm_ring *ring, trm_stream *stream, bool *waits)
{
    TRM_TRY(await_fetches(ring, 0, ring->now->residency->n_carried, stream, waits));
    ring->primed = trm_stream_is_capturing(stream) || ring->now->n == 0 ? ring->primed : ring->now;
    return TRM_OK;
}
