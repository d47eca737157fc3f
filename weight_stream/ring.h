/*
 * The ring: staging memory on the device through which streamed weights flow while a step runs, as a residency plan
 * says. Copies go on a stream of their own, joined with the layers' stream by events, so that a step with them can be
 * captured whole. What is packed is copied in pieces to a few places beside the ring and unpacked into it, on a stream
 * of its own, too: the link goes on meanwhile.
 *
 * The engine calls trm_ring_begin before the first layer, trm_ring_before and trm_ring_after around every layer, in
 * their order, and trm_ring_end behind the last; where layers are left out or run again, trm_ring_skip and
 * trm_ring_repeat. A ring serves one step at a time. A step that is captured finds in the
 * ring what the step before it carried over: before every launch of one, trm_ring_prime is called.
 *
 * One ring may serve several schedules: plans for steps of different kinds, of the same weights and with the same
 * resident ones. What is carried over belongs to a schedule, and is fetched anew when another one's step comes.
 */
#ifndef TRM_WEIGHT_STREAM_RING_H
#define TRM_WEIGHT_STREAM_RING_H

#include "kernels/device/device.h"
#include "weight_stream/reader.h"
#include "weight_stream/residency.h"
#include "weight_stream/stored.h"

typedef struct trm_ring trm_ring;

/* Bytes of the memory that packed weights pass through, of pieces of at most `piece` bytes of the device form. */
size_t trm_ring_stage_bytes(size_t piece);

/* Weights that ranks fetch together: this one a part of each, of which all get all when a layer needs it. */
typedef struct trm_ring_sharing {
    const size_t *begins; /* [n_weights] where in its device form the part begins */
    const bool *shared;   /* [n_weights]; the others are fetched whole */
    /* Brings the other ranks' parts, of part_bytes each and in the order of the ranks, to the memory of a weight. */
    trm_status (*gather)(void *user, void *memory, size_t part_bytes, trm_stream *stream);
    void *user;
} trm_ring_sharing;

#define TRM_RING_MOST_SCHEDULES 2

/* Memory and events for schedules, which the ring refers to until it is destroyed. stored [n_weights]: the part of a
 * streamed weight that this rank fetches, as it lies in host memory; it must be there as long as the ring. Where it has
 * none, the part is read in every step as `files` says, whose list of items is not looked at; it may be NULL if there
 * is none such, and there is none where there are several schedules. bytes [n_weights], of the parts. sharing: NULL
 * where all are fetched whole; what it has goes with the plan. */
trm_status trm_ring_create(trm_device *device, const trm_residency *const *schedules, int32_t n_schedules,
                           const size_t *bytes, const trm_stored_weight *stored, const trm_reader_options *files,
                           const trm_ring_sharing *sharing, trm_ring **ring);
/* Waits for copies under way; NULL is ignored. The schedules may be gone by then. */
void trm_ring_destroy(trm_ring *ring);

/* Bytes that were copied since a step began that is not captured, packed ones as they are on their way. */
size_t trm_ring_copied_bytes(const trm_ring *ring);

/* Where a fetch of a schedule puts its weight. */
void *trm_ring_slot(const trm_ring *ring, int32_t schedule, int32_t fetch);

/* Starts a step of a schedule whose layers run on `stream`: from here on copies may write the ring. */
trm_status trm_ring_begin(trm_ring *ring, int32_t schedule, trm_stream *stream);
/* Lets the stream wait for what a layer needs, and gathers what is shared; *waits (may be NULL): whether there is
 * anything. */
trm_status trm_ring_before(trm_ring *ring, int32_t layer, trm_stream *stream, bool *waits);
/* Gives the places of what a layer was the last to use to the copies that come next. */
trm_status trm_ring_after(trm_ring *ring, int32_t layer, trm_stream *stream);
/* Behind layer begin - 1, if layers begin .. end - 1 do not run: nothing more is fetched for them, what is on its way
 * is waited for. */
trm_status trm_ring_skip(trm_ring *ring, int32_t begin, int32_t end, trm_stream *stream);
/* Behind layer end - 1, if layers begin .. end - 1 run once more: what they need is fetched again. No fetch may serve a
 * layer of theirs and another. Neither this nor the above is for steps that are captured. */
trm_status trm_ring_repeat(trm_ring *ring, int32_t begin, int32_t end, trm_stream *stream);
/* Lets the stream wait for what is carried over to the next step; *waits (may be NULL): whether there is anything. */
trm_status trm_ring_end(trm_ring *ring, trm_stream *stream, bool *waits);
/* Fetches what is carried over from step to step of a schedule, where the last step was another one's or did not end
 * well. */
trm_status trm_ring_prime(trm_ring *ring, int32_t schedule, trm_stream *stream);

#endif
