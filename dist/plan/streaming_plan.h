/*
 * What a plan says of weights that stream: which they are, which of them stay, and when the others are copied. The
 * offload room (weight_stream/offload) makes it and changes it; the plan owns it.
 */
#ifndef TRM_DIST_PLAN_STREAMING_PLAN_H
#define TRM_DIST_PLAN_STREAMING_PLAN_H

#include <trireme/engine.h>

#include "base/arena.h"
#include "graph/network.h"
#include "weight_stream/residency.h"

/* How fast layers are handed over to the processors and run by them. */
#define TRM_CPU_OFFLOAD_KINDS 4
typedef struct trm_cpu_offload_rates {
    double host;     /* bytes of weights per second that they read while the link is busy, of layers like none below */
    double link;     /* bytes per second that the link brings meanwhile; 0: not known */
    double handover; /* seconds of a layer beyond that */
    struct {
        const trm_layer *layer; /* and all that are alike */
        double host;
    } kinds[TRM_CPU_OFFLOAD_KINDS];
    int32_t n_kinds;
} trm_cpu_offload_rates;

typedef struct trm_streaming_plan {
    trm_arena arena;
    trm_weight_budget asked;
    bool guesses_passes; /* there is a loop whose passes are not known before a run */
    bool is_refused;     /* the processors of a rank with loops or branches are to compute a share of its layers */
    int32_t *weight_of;  /* [n_tensors]; -1: stays whatever the budget */
    const trm_tensor **tensors; /* [n_weights] */
    size_t *bytes;              /* [n_weights] */
    size_t *link_bytes;         /* [n_weights] that are copied where it streams; of packed ones a guess at first */
    size_t *guessed_bytes;      /* [n_weights] that guess */
    size_t *packed_bytes;   /* [n_weights] where it is packed if it may be: as it was when it last was, or that guess */
    bool *packs;            /* [n_weights] to be packed in host memory */
    bool *packable;         /* [n_weights] that may be, if no processor reads them */
    bool *stays;            /* [n_weights] that stay as processors run layers; scratch of planning */
    bool *offloaded;        /* [n_layers] that processors run in small steps */
    double *host_seconds;   /* [n_layers] that takes; negative: they cannot */
    double advised_seconds; /* of a step if processors ran layers, where that is clearly less; else 0 */
    bool advises;           /* to look for that */
    bool hosts;             /* there are some */
    trm_cpu_offload_rates rates; /* of processors; guesses until they are measured */
    bool measured;               /* they are, and the link beside them */
    bool *shared; /* [n_weights] fetched in equal parts by the ranks of `groups` that this one is among */
    size_t *part_begin, *part_bytes; /* [n_weights] the part of its device form that this rank fetches: all, if alone */
    int32_t n_sharers, share;        /* ranks that fetch together, or 1; the place of this one among them */
    int32_t groups[TRM_MAX_RANKS];   /* [n_groups, n_sharers] of the whole mesh */
    int32_t n_groups;
    bool *in_files;                         /* [n_weights] read in every step */
    size_t *row_bytes;                      /* [n_weights] of those that files have the other way round; else 0 */
    size_t streamable;                      /* sum of bytes */
    trm_residency_use *uses, *fetched_uses; /* the latter with none in place */
    int32_t *first_use;                     /* [n_layers + 1] in uses */
    double largest_products;                /* seconds of products with weights in a run with the largest inputs */
    trm_residency_problem problem;
    trm_residency_problem first; /* as it was before anything was measured: the same on all that share */
    trm_residency residency;     /* of steps that run on the device alone */
    trm_residency small; /* of steps in which processors run the offloaded layers; with the same resident weights */
} trm_streaming_plan;

/* The schedules of a ring, and the plan of each: both are the same where processors run nothing. */
enum { TRM_COPY_SCHEDULE_LARGE, TRM_COPY_SCHEDULE_SMALL, TRM_COPY_SCHEDULE_COUNT };
const trm_residency *trm_streaming_copy_schedule(const trm_streaming_plan *s, int32_t schedule);
/* Bytes of device memory that weights pass through. */
size_t trm_streaming_staging(const trm_streaming_plan *s);

/* The number of a tensor among the weights that can be streamed, or -1. */
int32_t trm_streaming_weight(const trm_plan *plan, const trm_tensor *tensor);
void trm_streaming_plan_destroy(trm_streaming_plan *streaming);

#endif
