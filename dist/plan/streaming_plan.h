/*
 * The streaming plan: which weights can stream, which of them stay, and when the others are copied.
 * weight_stream/offload makes and changes it; the plan owns it.
 */
#ifndef TRM_DIST_PLAN_STREAMING_PLAN_H
#define TRM_DIST_PLAN_STREAMING_PLAN_H

#include <trireme/engine.h>

#include "base/arena.h"
#include "graph/network.h"
#include "weight_stream/residency.h"

/* How fast the CPU runs layers. */
#define TRM_CPU_OFFLOAD_KINDS 4
typedef struct trm_cpu_offload_rates {
    double host; /* bytes of weights per second that the CPU reads while the link is busy, for layers without an entry
                    below */
    double link; /* bytes per second of the link meanwhile; 0: unknown */
    double handover;   /* additional seconds per layer */
    double experts;    /* bytes of experts per second that the CPU computes while the link is busy; 0: unknown */
    double round_trip; /* seconds from a step's request to the CPU to its answer besides (expert_offload.h) */
    struct {
        const trm_layer *layer; /* representative of equal layers */
        double host;
    } kinds[TRM_CPU_OFFLOAD_KINDS];
    int32_t n_kinds;
} trm_cpu_offload_rates;

typedef struct trm_streaming_plan {
    trm_arena arena;
    trm_weight_budget asked;
    bool guesses_passes;        /* there is a loop of unknown length */
    bool is_refused;            /* CPU offload was asked for a rank with loops or branches */
    int32_t *weight_of;         /* [n_tensors]; -1: always stays */
    const trm_tensor **tensors; /* [n_weights] */
    size_t *bytes;              /* [n_weights] */
    size_t *link_bytes;     /* [n_weights] bytes that are copied if it streams; an estimate at first for packed ones */
    size_t *guessed_bytes;  /* [n_weights] that estimate */
    size_t *packed_bytes;   /* [n_weights] packed size, if it may be packed: as last packed, or that estimate */
    bool *packs;            /* [n_weights] is packed in host memory */
    bool *packable;         /* [n_weights] may be packed, unless the CPU reads it */
    bool *stays;            /* [n_weights] stays because of CPU offload; scratch of planning */
    bool *offloaded;        /* [n_layers] runs on the CPU in small steps */
    double *host_seconds;   /* [n_layers] seconds on the CPU; negative: cannot run there */
    double advised_seconds; /* seconds of a step with CPU offload, if that is clearly less; else 0 */
    bool advises;           /* look for CPU offload */
    bool hosts;             /* some layers run on the CPU */
    /* The expert cache, weight_stream/offload/expert_cache.h. */
    const trm_layer **expert_layers; /* [n_expert_layers] whose experts may be cached */
    int32_t n_expert_layers;
    int32_t expert_slots;     /* of a layer with as many experts or more; 0: no cache */
    size_t expert_bytes;      /* device memory of the cache */
    bool hosts_experts;       /* the CPU computes missing experts in small steps */
    bool *cached;             /* [n_layers] is one of these layers */
    bool *has_experts;        /* [n_weights] is a weight of one of them */
    size_t host_limit;        /* host memory for weights if some stay in files */
    int32_t host_experts;     /* experts of all layers that a cache in host memory holds, while others are read
                                 from files; 0: host memory holds all */
    size_t host_expert_bytes; /* of each */
    double *expert_uses;      /* [experts of all these layers] of the expert profile; NULL: none */
    double *expert_misses;    /* [experts of all these layers] predicted of each in a step of one token */
    double *hit_rates;        /* [n_expert_layers] predicted share of a token's experts that are in slots */
    double host_hit_rate;     /* predicted share of the others that host memory has */
    const char *profile_path; /* of the profile's file; NULL: none */
    uint64_t profile_hash;
    double *cached_seconds;          /* [n_layers] of these in a small step */
    trm_cpu_offload_rates rates;     /* rates of the CPU; estimates until measured */
    bool measured;                   /* rates of CPU and link are measured */
    bool *shared;                    /* [n_weights] is streamed in equal parts by the ranks of this rank's group */
    size_t *part_begin, *part_bytes; /* [n_weights] the part of its device form that this rank copies; all, if alone */
    int32_t n_sharers, share;        /* ranks that stream together, or 1; index of this one */
    int32_t groups[TRM_MAX_RANKS];   /* [n_groups, n_sharers] of the whole mesh */
    int32_t n_groups;
    bool *in_files;                         /* [n_weights] is read from files in every step */
    size_t *row_bytes;                      /* [n_weights] for weights stored transposed in files; else 0 */
    size_t streamable;                      /* sum of bytes */
    trm_residency_use *uses, *fetched_uses; /* the latter if no weight is used in place */
    int32_t *first_use;                     /* [n_layers + 1] in uses */
    double largest_products;                /* seconds of products with weights in a run with the largest inputs */
    trm_residency_problem problem;
    trm_residency_problem first; /* before measuring: the same on all ranks that share */
    trm_residency residency;     /* schedule of steps that run only on the device */
    trm_residency small; /* schedule of steps with CPU offload or expert cache; with the same resident weights */
} trm_streaming_plan;

/* The copy schedules of a ring; both are the same without CPU offload and expert cache. */
enum { TRM_COPY_SCHEDULE_LARGE, TRM_COPY_SCHEDULE_SMALL, TRM_COPY_SCHEDULE_COUNT };
int32_t trm_streaming_copy_schedules(const trm_streaming_plan *s); /* number of different ones */
const trm_residency *trm_streaming_copy_schedule(const trm_streaming_plan *s, int32_t schedule);
/* Bytes of device memory that weights pass through. */
size_t trm_streaming_staging(const trm_streaming_plan *s);

/* Index of a tensor among the streamable weights, or -1. */
int32_t trm_streaming_weight(const trm_plan *plan, const trm_tensor *tensor);
void trm_streaming_plan_destroy(trm_streaming_plan *streaming);

#endif
