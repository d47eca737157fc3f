/*
 * The expert cache: slots on the device for some experts of each EXPERTS layer (kernels/moe/expert_table.h), for models
 * whose experts do not all fit. In a small step a layer fetches only the experts that it uses and that are in no slot.
 * Larger steps, such as prompts, stream the whole weights through the ring, and leave the cache as it is. With
 * --host-compute the CPU computes some of the missing experts of small steps (expert_offload.h). If the experts do not
 * fit in host memory, a cache there holds some, and the others are read from files (expert_store.h).
 *
 * expert_cache_plan.c decides whether there is a cache and how many slots it has, expert_cache.c runs it.
 */
#ifndef TRM_WEIGHT_STREAM_OFFLOAD_EXPERT_CACHE_H
#define TRM_WEIGHT_STREAM_OFFLOAD_EXPERT_CACHE_H

#include "dist/plan/plan.h"
#include "dist/plan/streaming_plan.h"
#include "kernels/moe/expert_table.h"
#include "kernels/program.h"
#include "weight_stream/offload/cpu_offload.h"

/* ---- the plan ---- */

/* Lists the layers whose experts may be cached: none, or all with streamable weights. Part of
 * trm_streaming_make_problem. */
trm_status trm_expert_cache_find(const trm_plan *plan, trm_streaming_plan *s);
/* Chooses the slots for a budget, and the weights that stay [n_weights]: all but experts and tables whose rows are read
 * in place. False, and no slots, if the budget has no room for a token's experts, or for all of them. */
bool trm_expert_cache_choose(trm_streaming_plan *s, size_t budget, bool *resident);
/* Removes the cache from the plan. */
void trm_expert_cache_drop(trm_streaming_plan *s);
/* Decides whether the CPU computes missing experts, and estimates the seconds of each cached layer [n_layers] in a step
 * of one token. */
void trm_expert_cache_estimate(trm_streaming_plan *s, double link_rate, double *seconds);
/* Seconds that a step of one token would take less if the CPU did and does not. */
double trm_expert_cache_gain(const trm_streaming_plan *s);
/* Bytes that a step of one token fetches then, and that the CPU reads. */
size_t trm_expert_cache_fetched(const trm_streaming_plan *s);
size_t trm_expert_cache_hosted(const trm_streaming_plan *s);
/* Bytes of these that are read from files. */
size_t trm_expert_cache_read(const trm_streaming_plan *s);
/* Of `missing` experts of a layer's step, how many the CPU computes: a fixed share, or what makes CPU and link end
 * soonest. */
int32_t trm_expert_cache_share(const trm_streaming_plan *s, const trm_layer *layer, int32_t missing);
/* Share of a token's experts that lie in slots then. */
double trm_expert_cache_hit_rate(const trm_streaming_plan *s);

/* Experts, and experts of a token, of an EXPERTS layer. */
int32_t trm_expert_cache_experts(const trm_layer *layer);
int32_t trm_expert_cache_chosen(const trm_layer *layer);
/* Experts of all cached layers. */
int32_t trm_expert_cache_all(const trm_streaming_plan *s);

/* The memory of a layer with `slots` slots. */
typedef struct trm_cached_layer {
    const trm_layer *layer;
    trm_expert_table table;
    int32_t *slot_ids; /* [slots, or experts of a token if more] what its kernels get as ids */
    int32_t n;
    int32_t inputs[TRM_EXPERT_MOST_TENSORS]; /* [n] inputs of the layer that are cached */
    trm_expert_tensor tensors[TRM_EXPERT_MOST_TENSORS];
    size_t host_bytes;  /* of an expert in a host cache */
    const int32_t *ids; /* of the call that was placed last */
    int32_t *shares;    /* [1 + slots] table.shares, if the CPU computes missing experts */
    int64_t *sent;      /* [3] of the mailbox or the supply, if it is the first layer */
    size_t table_bytes; /* of the tables, which lie before the slots */
} trm_cached_layer;

/* Places a layer's slots and tables in `memory`, and returns their bytes; `memory` NULL: only counts. */
size_t trm_expert_cache_place(const trm_layer *layer, int32_t slots, unsigned char *memory, trm_cached_layer *cached);

/* ---- running ---- */

typedef struct trm_expert_cache trm_expert_cache;

/* Allocates the cache of an engine's plan, with empty slots. *made is NULL if the plan has none. */
trm_status trm_expert_cache_create(const trm_offload_site *site, trm_stream *stream, trm_expert_cache **made);
/* Nothing that refers to it may run anymore. Ignores NULL. */
void trm_expert_cache_destroy(trm_expert_cache *cache, trm_device *device);
/* Whether steps of these dims [n_tensors] use it: if they fetch no more than all experts. No for NULL. */
bool trm_expert_cache_suits(const trm_expert_cache *cache, const trm_dims *dims);
/* Makes the call of a cached layer read the slots; leaves other calls as they are. */
void trm_expert_cache_redirect(trm_expert_cache *cache, int32_t layer, trm_kernel_call *call);
/* Appends what runs a call of a layer; if it was redirected, in rounds of as many tokens as have slots for all their
 * experts, each behind the launches that bring these, and before one that adds what the CPU computed. */
trm_status trm_expert_cache_prepare(trm_expert_cache *cache, int32_t layer, const trm_kernel *kernel,
                                    const trm_kernel_call *call, trm_program *program);
/* What steps found and fetched. */
typedef struct trm_expert_counts {
    int64_t hits, misses, hosted; /* experts found, fetched and computed by the CPU, each once per layer and step */
    int64_t read;                 /* of the fetched ones, those that were not in host memory */
    int64_t bytes, hosted_bytes;  /* that were fetched, and that the CPU read */
} trm_expert_counts;
/* Those of all steps since it was made; the last ones may lack. NULL: none. Any thread. */
trm_expert_counts trm_expert_cache_counts(const trm_expert_cache *cache);
/* Whether the CPU failed to compute an expert, or to read one, since the last call; call it after each step. NULL is
 * OK. */
trm_status trm_expert_cache_status(trm_expert_cache *cache);

#endif
