/*
 * The host's part of the expert cache if host memory has no room for all experts: a cache of those that steps missed
 * most often, in pinned memory, and threads that read the others from files into it. A fetch demands its experts
 * (kernels/moe/expert_table.h); a thread answers as each one is there. No host call is part of a step; on the host
 * backend, whose streams run at once, the step itself answers.
 */
#ifndef TRM_WEIGHT_STREAM_OFFLOAD_EXPERT_STORE_H
#define TRM_WEIGHT_STREAM_OFFLOAD_EXPERT_STORE_H

#include "weight_stream/offload/expert_cache.h"

typedef struct trm_expert_store trm_expert_store;

/* For the cached layers [n] of the plan, in the memory of site->places, which it fills with the experts that are
 * predicted to be missed most. `sent`: zeroed memory of the device for trm_expert_supply.sent. */
trm_status trm_expert_store_create(const trm_offload_site *site, const trm_cached_layer *layers, int32_t n,
                                   int64_t *sent, trm_expert_store **made);
/* No step that refers to it may run anymore. Ignores NULL. */
void trm_expert_store_destroy(trm_expert_store *store, trm_device *device);

const trm_expert_supply *trm_expert_store_supply(const trm_expert_store *store);
/* Whether a tensor of a cached layer is supplied, and not on the device. */
bool trm_expert_store_has(const trm_expert_store *store, const trm_tensor *tensor);
/* Experts that fetches demanded: found in host memory, and read from files. NULL: none. Any thread. */
typedef struct trm_expert_store_counts {
    int64_t found, read;
} trm_expert_store_counts;
trm_expert_store_counts trm_expert_store_count(const trm_expert_store *store);
/* Whether an expert could not be read, or not in time, since the last call. NULL is OK. */
trm_status trm_expert_store_status(trm_expert_store *store);

#endif
