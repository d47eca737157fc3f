/*
 * Which weights stay on the device, and how the others flow through a ring of staging memory. Arithmetic alone: the
 * order of the layers is known, so all of it is computed before the first step.
 *
 * A streamed weight is fetched into the ring before the layer that uses it, in the order of the layers; its place is
 * free again when that layer has run. The first fetches may be carried over: the step before makes them while its last
 * layers run. Nothing else is in the ring when a step begins. Uses of one weight that follow
 * each other in the list of uses share a fetch. A use may read the weight where it lies in host memory (rows of a
 * table): then nothing is fetched for it. A packed weight is copied in pieces to memory beside the ring and unpacked
 * into it.
 *
 * A offloaded layer is run by the processors, which read its weights where they lie: nothing is fetched for it either,
 * and the link goes on meanwhile.
 */
#ifndef TRM_WEIGHT_STREAM_RESIDENCY_H
#define TRM_WEIGHT_STREAM_RESIDENCY_H

#include <trireme/types.h>

#include "base/arena.h"

typedef struct trm_residency_use {
    int32_t layer, weight;
    bool in_place; /* streamed, it is read where it lies */
} trm_residency_use;

typedef struct trm_residency_problem {
    int32_t n_weights, n_uses, n_layers;
    const size_t *bytes;      /* [n_weights], of the device form */
    const size_t *part_bytes; /* [n_weights] of them that this rank fetches, others the rest; NULL: all of them */
    const size_t *link_bytes; /* [n_weights] that are copied for the part: fewer where it is packed; NULL: the same */
    const trm_residency_use *uses; /* [n_uses], by layer, which are run in their order */
    const int32_t *sections;     /* [n_layers] uses in layers of different ones share no fetch; NULL: all are of one */
    const int32_t *runs;         /* [n_layers] how often a layer is thought to run in a step, in which it is fetched for
                                    each time; NULL: once */
    const double *layer_seconds; /* [n_layers] of computing, all weights being there */
    const double *largest_seconds; /* [n_layers] of that in the largest step; NULL: there is none larger */
    double link_rate;              /* bytes per second from host to device */
    double copy_seconds;           /* of a copy, beyond its bytes */
    double gather_rate;            /* bytes per second that come from other ranks, when a layer needs them */
    const bool *in_files;          /* [n_weights] read from files in every step, at file_rate; NULL: none is */
    double file_rate;
    double unpack_rate;         /* bytes of the device form per second; of those that are packed */
    size_t piece_bytes;         /* of the device form, that are copied and unpacked at a time */
    size_t stage_bytes;         /* memory that packed weights pass through, if any is fetched */
    size_t budget;              /* the most bytes of weights that stay */
    size_t ring_limit;          /* the most bytes of staging, unless the least that works is more */
    bool quick;                 /* a first choice will do */
    const double *host_seconds; /* [n_layers] that processors take for a layer; negative: they cannot. NULL: for all */
    const bool *offloaded;      /* [n_layers] those that they run, of which they can; NULL: none */
} trm_residency_problem;

/* One copy into the ring. */
typedef struct trm_residency_fetch {
    int32_t weight, first_use, last_use; /* the latter are positions in the list of uses */
    int32_t first_layer, last_layer;
    int32_t after_layer; /* the layer that must have run before its place is free, of one carried over that of the step
                            before; -1: none */
    size_t offset;       /* in the ring */
} trm_residency_fetch;

typedef struct trm_residency {
    trm_arena arena;
    bool *resident;               /* [n_weights] */
    int32_t *use_fetch;           /* [n_uses] the fetch that brings the weight; -1: resident or read in place */
    trm_residency_fetch *fetches; /* [n_fetches], in the order they are used */
    int32_t n_fetches, n_carried; /* the first n_carried are made behind all others, for the next step */
    size_t resident_bytes, streamed_bytes; /* the latter per step, of the device form; this, link_bytes, n_copies and
                                              all times with every run of a layer */
    size_t hosted_bytes;                   /* of weights that processors read in a step */
    int32_t n_hosted;                      /* layers */
    double host_seconds;                   /* of a step, that processors are busy */
    size_t link_bytes;                     /* that are copied for them */
    size_t ring_bytes, stage_bytes;
    int32_t n_copies;
    double seconds;         /* of a step, by the model of this header */
    double *waits;          /* [n_layers + 1] of it that a layer waits for what it needs, and at last the step for what
                               is carried over */
    double link_seconds;    /* that the link is busy in a step */
    double compute_seconds; /* of a step with everything resident */
} trm_residency;

/* Places in a ring are multiples of this. */
#define TRM_RING_ALIGNMENT ((size_t)256)

/*
 * Chooses. Weights that save most bytes of the link per byte of memory stay first; among equals they are spread evenly
 * over the layers, so that the link and the layers have work at the same time; then the choice is bettered by exchanges
 * as long as the predicted time falls. OUT_OF_MEMORY only.
 */
trm_status trm_residency_plan(const trm_residency_problem *problem, trm_residency *residency);
/* Everything that follows from a choice of residents [n_weights]: fetches, their places, and the time. */
trm_status trm_residency_of(const trm_residency_problem *problem, const bool *resident, trm_residency *residency);
/* Which layers to give to the processors, into offloaded [n_layers], where these weights stay [n_weights]: those with
 * which a step takes least, or with `share` from 0 to 1 layers that read that share of what does not stay, spread
 * evenly, whatever the rates are. share negative: by the time. problem->offloaded is not looked at. */
trm_status trm_residency_host(const trm_residency_problem *problem, const bool *resident, double share,
                              bool *offloaded);
/* Which layers to give to the processors by the time, and with them other weights that stay, if that takes less:
 * `resident` [n_weights] is what trm_residency_plan chose. Tried is that the largest weight stays, which else leaves
 * link or processors idle as long as it is on its way or being read, with what is then chosen for the rest of the
 * budget; and of few weights, unless problem->quick, any one or two the other way. */
trm_status trm_residency_host_jointly(const trm_residency_problem *problem, bool *resident, bool *offloaded);
void trm_residency_fini(trm_residency *residency);

#endif
