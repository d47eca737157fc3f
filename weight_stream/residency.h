/*
 * Which weights stay on the device, and how the others flow through a ring of staging memory. Pure arithmetic: the
 * order of the layers is known, so everything is computed before the first step.
 *
 * A streamed weight is fetched into the ring before the layer that uses it, in layer order; its place is free again
 * after that layer. The first fetches may be carried over: the previous step does them while its last layers run.
 * Nothing else is in the ring when a step begins. Consecutive uses of one weight share a fetch. A use may read the
 * weight in host memory (rows of a table): then nothing is fetched. A packed weight is copied in pieces to memory
 * beside the ring and unpacked into it.
 *
 * The CPU runs an offloaded layer on its weights in host memory: nothing is fetched for it either, and the link
 * continues meanwhile.
 */
#ifndef TRM_WEIGHT_STREAM_RESIDENCY_H
#define TRM_WEIGHT_STREAM_RESIDENCY_H

#include <trireme/types.h>

#include "base/arena.h"

typedef struct trm_residency_use {
    int32_t layer, weight;
    bool in_place; /* if streamed, it is read in place */
} trm_residency_use;

typedef struct trm_residency_problem {
    int32_t n_weights, n_uses, n_layers;
    const size_t *bytes;           /* [n_weights], of the device form */
    const size_t *part_bytes;      /* [n_weights] bytes that this rank fetches, others the rest; NULL: all */
    const size_t *link_bytes;      /* [n_weights] bytes copied for the part, fewer if packed; NULL: the same */
    const trm_residency_use *uses; /* [n_uses], by layer, in order */
    const int32_t *sections;       /* [n_layers] uses in different regions share no fetch; NULL: one region */
    const int32_t *runs;           /* [n_layers] expected runs of a layer per step, each with its fetches; NULL: once */
    const double *layer_seconds;   /* [n_layers] seconds of computing, with all weights present */
    const double *largest_seconds; /* [n_layers] the same in the largest step; NULL: there is none larger */
    double link_rate;              /* bytes per second from host to device */
    double copy_seconds;           /* overhead of a copy, in seconds */
    double gather_rate;            /* bytes per second from other ranks, when a layer needs them */
    const bool *in_files;          /* [n_weights] is read from files in every step, at file_rate; NULL: none */
    double file_rate;
    double unpack_rate; /* bytes of the device form per second; of those that are packed */
    size_t piece_bytes; /* bytes of the device form per piece */
    size_t stage_bytes; /* memory for packed pieces, if any are fetched */
    size_t budget;      /* the most bytes of weights that stay */
    size_t ring_limit;  /* the most bytes of staging, unless the least that works is more */
    bool quick;         /* use the first choice */
    const double
        *host_seconds; /* [n_layers] the CPU's seconds for a layer; negative: it cannot run it. NULL: cannot run any */
    const bool *offloaded; /* [n_layers] is offloaded; NULL: none */
} trm_residency_problem;

/* One copy into the ring. */
typedef struct trm_residency_fetch {
    int32_t weight, first_use, last_use; /* positions in the list of uses */
    int32_t first_layer, last_layer;
    int32_t after_layer; /* the layer after which its place is free, for a carried over fetch in the previous step; -1:
                            none */
    size_t offset;       /* in the ring */
} trm_residency_fetch;

typedef struct trm_residency {
    trm_arena arena;
    bool *resident;                        /* [n_weights] */
    int32_t *use_fetch;                    /* [n_uses] fetch of the weight; -1: resident or read in place */
    trm_residency_fetch *fetches;          /* [n_fetches], in the order they are used */
    int32_t n_fetches, n_carried;          /* the first n_carried come after all others, for the next step */
    size_t resident_bytes, streamed_bytes; /* the latter per step, in the device form; this, link_bytes, n_copies and
                                              all times count every run of a layer */
    size_t hosted_bytes;                   /* bytes of weights that the CPU reads in a step */
    int32_t n_hosted;                      /* layers */
    double host_seconds;                   /* seconds per step that the CPU is busy */
    size_t link_bytes;                     /* that are copied for them */
    size_t ring_bytes, stage_bytes;
    int32_t n_copies;
    double seconds; /* seconds of a step, by the model above */
    double *waits;  /* [n_layers + 1] wait of each layer for its weights, and last of the step for carried over ones */
    double link_seconds;    /* seconds per step that the link is busy */
    double compute_seconds; /* seconds of a step with all weights resident */
} trm_residency;

/* Places in a ring are multiples of this. */
#define TRM_RING_ALIGNMENT ((size_t)256)

/*
 * Chooses the residents. Weights that save the most link bytes per byte of memory stay first; equal ones are spread
 * evenly over the layers, so that link and layers work at the same time. Then exchanges improve the choice as long as
 * the predicted time falls. Error: OUT_OF_MEMORY.
 */
trm_status trm_residency_plan(const trm_residency_problem *problem, trm_residency *residency);
/* Computes fetches, their places, and times from a choice of residents [n_weights]. */
trm_status trm_residency_of(const trm_residency_problem *problem, const bool *resident, trm_residency *residency);
/* Chooses offloaded layers into offloaded [n_layers] for these residents [n_weights]: those that give the fastest step
 * if `share` is negative, else layers with that share (0 to 1) of the streamed bytes, spread evenly, regardless of
 * rates. Ignores problem->offloaded. */
trm_status trm_residency_host(const trm_residency_problem *problem, const bool *resident, double share,
                              bool *offloaded);
/* Chooses offloaded layers by time, and other residents with them if that is faster; `resident` [n_weights] is the
 * choice of trm_residency_plan. Tries to keep the largest weight, during whose copy or read link or CPU would idle,
 * with a new plan for the rest of the budget; and for few weights, unless problem->quick, swaps of any one or two. */
trm_status trm_residency_host_jointly(const trm_residency_problem *problem, bool *resident, bool *offloaded);
void trm_residency_fini(trm_residency *residency);

#endif
