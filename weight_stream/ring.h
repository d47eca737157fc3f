/*
 * The ring: staging memory on the device through which streamed weights flow while a step runs, as a residency plan
 * says. Copies use a stream of their own, joined with the layers' stream by events, so that a whole step can be
 * captured. Packed weights are copied in pieces to a few stages beside the ring and unpacked into it on another stream,
 * so that the link continues meanwhile.
 *
 * The engine calls trm_ring_begin before the first layer, trm_ring_before and trm_ring_after around every layer, in
 * order, and trm_ring_end after the last; if layers are skipped or repeated, trm_ring_skip and trm_ring_repeat. A ring
 * serves one step at a time. A captured step expects in the ring what the previous step carried over: call
 * trm_ring_prime before every launch.
 *
 * One ring may serve several copy schedules: plans for different kinds of steps with the same weights and residents.
 * Carried over fetches belong to a schedule, and are done again for a step of another one.
 */
#ifndef TRM_WEIGHT_STREAM_RING_H
#define TRM_WEIGHT_STREAM_RING_H

#include "kernels/device/device.h"
#include "weight_stream/reader.h"
#include "weight_stream/residency.h"
#include "weight_stream/stored.h"

typedef struct trm_ring trm_ring;

/* Bytes of the stages for packed pieces of at most `piece` bytes in the device form. */
size_t trm_ring_stage_bytes(size_t piece);

/* Weights that ranks stream together: this rank copies a part of each, and all gather the whole when a layer needs it.
 */
typedef struct trm_ring_sharing {
    const size_t *begins; /* [n_weights] offset of the part in the device form */
    const bool *shared;   /* [n_weights] is shared; others are fetched whole */
    /* Gathers the other ranks' parts, part_bytes each and in rank order, into the memory of a weight. */
    trm_status (*gather)(void *user, void *memory, size_t part_bytes, trm_stream *stream);
    void *user;
} trm_ring_sharing;

#define TRM_RING_MOST_SCHEDULES 2

/* Creates a ring for schedules, which must outlive its use. stored [n_weights] is this rank's part of each streamed
 * weight in host memory, which must outlive the ring. Parts without memory are read in every step through `files`,
 * whose list of items is ignored; it may be NULL if there are none. Only the first schedule may fetch such parts. bytes
 * [n_weights]: sizes of the parts. sharing NULL: all weights are fetched whole. */
trm_status trm_ring_create(trm_device *device, const trm_residency *const *schedules, int32_t n_schedules,
                           const size_t *bytes, const trm_stored_weight *stored, const trm_reader_options *files,
                           const trm_ring_sharing *sharing, trm_ring **ring);
/* Waits for running copies. Ignores NULL. The schedules may already be destroyed. */
void trm_ring_destroy(trm_ring *ring);

/* Bytes copied since an uncaptured step began, packed weights as packed. */
size_t trm_ring_copied_bytes(const trm_ring *ring);

/* Adds the copies of the step that has just run to the timeline, if it was not captured and the ring was created while
 * one was recorded, in these rows: of whole weights, and in turn of packed ones, which two streams copy. `began`: an
 * event of the step, at time `begin`. `name` gives that of a weight. */
trm_status trm_ring_trace(trm_ring *ring, trm_event *began, double begin, const char *const rows[3],
                          const char *(*name)(void *user, int32_t weight), void *user);

/* The address of a schedule's fetch. */
void *trm_ring_slot(const trm_ring *ring, int32_t schedule, int32_t fetch);

/* Begins a step of a schedule whose layers run on `stream`: from now on copies may write the ring. */
trm_status trm_ring_begin(trm_ring *ring, int32_t schedule, trm_stream *stream);
/* Makes the stream wait for a layer's weights, and gathers shared ones; *waits (may be NULL) says whether there are
 * any. */
trm_status trm_ring_before(trm_ring *ring, int32_t layer, trm_stream *stream, bool *waits);
/* Frees the places that a layer was the last to use, for the next copies. */
trm_status trm_ring_after(trm_ring *ring, int32_t layer, trm_stream *stream);
/* After layer begin - 1, if layers begin .. end - 1 do not run: stops fetching for them, and waits for fetches in
 * flight. */
trm_status trm_ring_skip(trm_ring *ring, int32_t begin, int32_t end, trm_stream *stream);
/* After layer end - 1, if layers begin .. end - 1 run again: fetches their weights again. No fetch may serve one of
 * these layers and another layer. This and the call above are not for captured steps. */
trm_status trm_ring_repeat(trm_ring *ring, int32_t begin, int32_t end, trm_stream *stream);
/* Makes the stream wait for fetches carried over to the next step; *waits (may be NULL) says whether there are any. */
trm_status trm_ring_end(trm_ring *ring, trm_stream *stream, bool *waits);
/* Does the carried over fetches of a schedule, if the last step belonged to another one or failed. */
trm_status trm_ring_prime(trm_ring *ring, int32_t schedule, trm_stream *stream);

#endif
