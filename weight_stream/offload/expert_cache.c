/* The expert cache at run time: its memory, and the launches that fetch what a layer uses. */
#include "weight_stream/offload/expert_cache.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "kernels/moe/moe.h"
#include "weight_stream/offload/expert_offload.h"
#include "weight_stream/offload/expert_profile.h"
#include "weight_stream/offload/expert_store.h"

struct trm_expert_cache {
    trm_streaming_plan *plan;
    int32_t n;
    trm_cached_layer *layers;    /* [n] */
    int32_t *of;                 /* [n_layers of the network] index in `layers`, or -1 */
    unsigned char *memory;       /* of the device: tables and slots */
    int64_t *counts;             /* [n, TRM_EXPERT_CLOCKS] in host memory that the device writes */
    trm_expert_offload *offload; /* NULL: the CPU computes no experts */
    trm_expert_store *store;     /* NULL: host memory holds all experts */
    int32_t most;                /* experts of a round: all of them have room on the device and in host memory */
    bool *is_filled;             /* [n] its slots have the most used experts of the profile */
    int64_t read_to_fill;        /* experts that were read from files for that */
};

/* Allocates tables and slots, and empties them. */
static trm_status allocate(const trm_streaming_plan *s, trm_device *device, trm_stream *stream, trm_expert_cache *made)
{
    const size_t counts = (size_t)s->n_expert_layers * TRM_EXPERT_CLOCKS * sizeof(int64_t);
    void *memory;
    TRM_TRY(trm_device_alloc(device, s->expert_bytes, &memory));
    made->memory = memory;
    TRM_TRY(trm_device_alloc_host(device, counts, &memory));
    made->counts = memory;
    memset(made->counts, 0, counts);
    size_t at = 0;
    for (int32_t i = 0; i < s->n_expert_layers; i++) {
        trm_cached_layer *cached = &made->layers[i];
        unsigned char *begin = made->memory + at;
        at += trm_expert_cache_place(s->expert_layers[i], s->expert_slots, begin, cached);
        cached->table.counts = made->counts + (size_t)i * TRM_EXPERT_CLOCKS;
        made->of[cached->layer->index] = i;
        made->n++;
        TRM_TRY(trm_stream_fill_zero(stream, begin, cached->table_bytes));
    }
    return trm_stream_synchronize(stream);
}

/* Lets the CPU compute its share of what is missing. */
static trm_status open_offload(const trm_offload_site *site, trm_stream *stream, trm_expert_cache *made)
{
    const trm_streaming_plan *s = site->plan->streaming;
    if (!s->hosts_experts) {
        return TRM_OK;
    }
    for (int32_t i = 0; i < made->n; i++) {
        trm_cached_layer *cached = &made->layers[i];
        int32_t shares[TRM_MOE_MOST_EXPERTS + 1];
        for (int32_t k = 0; k <= cached->table.slots; k++) {
            shares[k] = trm_expert_cache_share(s, cached->layer, k);
        }
        TRM_TRY(trm_stream_upload(stream, cached->shares, shares, (size_t)(cached->table.slots + 1) * sizeof(*shares)));
        TRM_TRY(trm_stream_synchronize(stream));
        cached->table.shares = cached->shares;
    }
    return trm_expert_offload_create(site, made->layers[0].sent, &made->offload);
}

trm_status trm_expert_cache_create(const trm_offload_site *site, trm_stream *stream, trm_expert_cache **made)
{
    const trm_streaming_plan *s = site->plan->streaming;
    trm_device *device = site->world->device;
    *made = NULL;
    if (s->expert_slots == 0) {
        return TRM_OK;
    }
    const size_t n = (size_t)site->plan->network->n_layers;
    trm_expert_cache *cache = calloc(1, sizeof(*cache));
    if (cache == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the expert cache");
    }
    cache->plan = site->plan->streaming;
    cache->is_filled = calloc((size_t)s->n_expert_layers, sizeof(*cache->is_filled));
    cache->layers = calloc((size_t)s->n_expert_layers, sizeof(*cache->layers));
    cache->of = malloc(n * sizeof(*cache->of));
    for (size_t i = 0; cache->of != NULL && i < n; i++) {
        cache->of[i] = -1;
    }
    trm_status status = cache->layers == NULL || cache->of == NULL || cache->is_filled == NULL
                            ? trm_fail(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the expert cache of %zu layers", n)
                            : allocate(s, device, stream, cache);
    status = status == TRM_OK ? open_offload(site, stream, cache) : status;
    cache->most = s->host_experts > 0 && s->host_experts < s->expert_slots ? s->host_experts : s->expert_slots;
    if (status == TRM_OK && s->host_experts > 0) {
        status = trm_expert_store_create(site, cache->layers, cache->n, cache->layers[0].sent, &cache->store);
    }
    if (status != TRM_OK) {
        trm_expert_cache_destroy(cache, device);
        return status;
    }
    *made = cache;
    return TRM_OK;
}

/* Adds what was used to the profile. */
static trm_status learn(const trm_expert_cache *cache, trm_device *device)
{
    int64_t *uses = calloc((size_t)trm_expert_cache_all(cache->plan) + 1, sizeof(*uses)), *at = uses;
    trm_stream *stream = NULL;
    trm_status status = uses == NULL ? TRM_ERROR_OUT_OF_MEMORY : trm_stream_create(device, &stream);
    for (int32_t i = 0; status == TRM_OK && i < cache->n; i++) {
        const trm_expert_table *table = &cache->layers[i].table;
        status = trm_stream_download(stream, at, table->uses, (size_t)table->experts * sizeof(*at));
        at += table->experts;
    }
    status = status == TRM_OK ? trm_stream_synchronize(stream) : status;
    trm_stream_destroy(stream);
    if (status == TRM_OK && cache->n > 0) {
        trm_expert_profile_add(cache->plan, uses);
    }
    free(uses);
    return status;
}

void trm_expert_cache_destroy(trm_expert_cache *cache, trm_device *device)
{
    if (cache != NULL) {
        if (cache->plan->profile_path != NULL && cache->n == cache->plan->n_expert_layers) {
            (void)learn(cache, device);
        }
        trm_expert_offload_destroy(cache->offload, device);
        trm_expert_store_destroy(cache->store, device);
        trm_device_free(device, cache->memory);
        trm_device_free_host(device, cache->counts);
        free(cache->layers);
        free(cache->is_filled);
        free(cache->of);
        free(cache);
    }
}

bool trm_expert_cache_suits(const trm_expert_cache *cache, const trm_dims *dims)
{
    bool suits = cache != NULL;
    for (int32_t i = 0; suits && i < cache->n; i++) {
        const trm_expert_table *table = &cache->layers[i].table;
        const int64_t pairs = trm_dims_count(&dims[cache->layers[i].layer->inputs[TRM_EXPERTS_IDS]->index]);
        /* of the pairs, the share that has no slot, if all experts are equally likely */
        const double fetched = (double)pairs * (table->experts - table->slots) / table->experts;
        suits = pairs >= 0 && (pairs <= table->slots || fetched <= table->experts);
    }
    return suits;
}

static trm_cached_layer *find(trm_expert_cache *cache, int32_t layer)
{
    return cache == NULL || cache->of[layer] < 0 ? NULL : &cache->layers[cache->of[layer]];
}

void trm_expert_cache_redirect(trm_expert_cache *cache, int32_t layer, trm_kernel_call *call)
{
    trm_cached_layer *cached = find(cache, layer);
    if (cached == NULL) {
        return;
    }
    cached->ids = call->inputs[TRM_EXPERTS_IDS].data;
    call->inputs[TRM_EXPERTS_IDS].data = cached->slot_ids;
    call->constants &= ~(1u << TRM_EXPERTS_IDS);
    for (int32_t i = 0; i < cached->n; i++) {
        trm_view *view = &call->inputs[cached->inputs[i]];
        cached->tensors[i].from =
            trm_expert_store_has(cache->store, cached->layer->inputs[cached->inputs[i]]) ? NULL : view->data;
        view->data = cached->tensors[i].to;
        call->constants &= ~(1u << cached->inputs[i]); /* it may arrive just before */
    }
}

typedef struct expert_args {
    trm_expert_table table;
    const int32_t *ids;
    int64_t pairs;
    int32_t *slot_ids;
    int32_t n;
    trm_expert_tensor tensors[TRM_EXPERT_MOST_TENSORS];
    trm_expert_post post;            /* box NULL: nothing is for the CPU */
    const trm_expert_supply *supply; /* NULL: host memory holds all */
    trm_view y;
} expert_args;

static trm_status select_slots(void *user, trm_stream *stream)
{
    const expert_args *args = user;
    return trm_expert_table_select(stream, &args->table, args->ids, args->pairs, args->slot_ids,
                                   args->post.box != NULL ? &args->post : NULL);
}

static trm_status fetch_missing(void *user, trm_stream *stream)
{
    const expert_args *args = user;
    return trm_expert_table_fetch(stream, &args->table, args->tensors, args->n, args->supply, args->post.layer);
}

static trm_status add_answer(void *user, trm_stream *stream)
{
    const expert_args *args = user;
    return trm_expert_table_add(stream, args->post.box, args->y.dtype, args->y.data, trm_dims_count(&args->y.dims));
}

/* Appends the launches of a round of tokens from `first` on, whose call is `round`. box NULL: nothing is for the CPU.
 */
static trm_status append_round(const trm_expert_cache *cache, int32_t layer, const trm_expert_mailbox *box,
                               int64_t first, const trm_kernel *kernel, const trm_kernel_call *round,
                               trm_program *program)
{
    const trm_cached_layer *cached = &cache->layers[layer];
    const trm_view *x = &round->inputs[TRM_EXPERTS_X];
    const int64_t tokens = x->dims.d[0];
    const int32_t k = trm_expert_cache_chosen(cached->layer);
    expert_args *args = trm_program_alloc(program, sizeof(*args));
    if (args == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    *args = (expert_args){.table = cached->table,
                          .ids = cached->ids + first * k,
                          .pairs = tokens * k,
                          .slot_ids = cached->slot_ids,
                          .n = cached->n,
                          .post = {.box = box,
                                   .layer = layer,
                                   .tokens = (int32_t)tokens,
                                   .k = k,
                                   .weights = round->inputs[TRM_EXPERTS_WEIGHTS].data,
                                   .x = x->data,
                                   .x_bytes = trm_dims_bytes(&x->dims, x->dtype)},
                          .supply = cache->store == NULL ? NULL : trm_expert_store_supply(cache->store),
                          .y = round->outputs[0]};
    memcpy(args->tensors, cached->tensors, sizeof(args->tensors));
    TRM_TRY(trm_program_append(program, "choose slots of experts", select_slots, args));
    TRM_TRY(trm_program_append(program, "fetch experts", fetch_missing, args));
    TRM_TRY(trm_kernel_prepare(kernel, round, program));
    return box == NULL ? TRM_OK : trm_program_append(program, "add experts of the CPU", add_answer, args);
}

/* Rows from `first` on of a tensor [tokens, ...]. */
static void take_rows(trm_view *view, int64_t first, int64_t rows)
{
    const size_t bytes = trm_dims_bytes(&view->dims, view->dtype) / (size_t)view->dims.d[0];
    view->data = (unsigned char *)view->data + (size_t)first * bytes;
    view->dims.d[0] = rows;
}

/* Fetches the experts [n] that lie in the slots from `slot` on by the table, and waits. */
static trm_status fetch_into(const trm_expert_cache *cache, const trm_cached_layer *cached, int32_t layer,
                             const int32_t *experts, int32_t slot, int32_t n, trm_stream *stream)
{
    int32_t missing[1 + 2 * TRM_MOE_MOST_EXPERTS] = {n};
    for (int32_t j = 0; j < n; j++) {
        missing[1 + 2 * j] = experts[slot + j];
        missing[2 + 2 * j] = slot + j;
    }
    TRM_TRY(trm_stream_upload(stream, cached->table.missing, missing, (size_t)(1 + 2 * n) * sizeof(*missing)));
    TRM_TRY(trm_expert_table_fetch(stream, &cached->table, cached->tensors, cached->n,
                                   cache->store == NULL ? NULL : trm_expert_store_supply(cache->store), layer));
    return trm_stream_synchronize(stream);
}

/* Fills the slots of a layer with the most used experts of the profile, the most used last: the first slot is taken
 * first. With a cache in host memory, a token's experts at a time, so that it keeps what it has. */
static trm_status fill(trm_expert_cache *cache, int32_t layer, trm_stream *stream)
{
    const trm_cached_layer *cached = &cache->layers[layer];
    const trm_expert_table *table = &cached->table;
    int32_t experts[TRM_MOE_MOST_EXPERTS], slot_of[TRM_MOE_MOST_EXPERTS] = {0}, expert_of[TRM_MOE_MOST_EXPERTS];
    trm_expert_profile_order(cache->plan, layer, experts);
    for (int32_t s = 0; s < table->slots; s++) {
        experts[s] = experts[table->experts - table->slots + s];
        expert_of[s] = experts[s] + 1;
        slot_of[experts[s]] = s + 1;
    }
    TRM_TRY(trm_stream_upload(stream, table->slot_of, slot_of, (size_t)table->experts * sizeof(*slot_of)));
    TRM_TRY(trm_stream_upload(stream, table->expert_of, expert_of, (size_t)table->slots * sizeof(*expert_of)));
    const int32_t chosen = trm_expert_cache_chosen(cached->layer);
    const int32_t most = cache->store == NULL ? table->slots : chosen < cache->most ? chosen : cache->most;
    const int64_t before = trm_expert_store_count(cache->store).read;
    for (int32_t s = 0; s < table->slots; s += most) {
        TRM_TRY(
            fetch_into(cache, cached, layer, experts, s, table->slots - s < most ? table->slots - s : most, stream));
    }
    cache->read_to_fill += trm_expert_store_count(cache->store).read - before;
    return trm_expert_store_status(cache->store);
}

trm_status trm_expert_cache_prepare(trm_expert_cache *cache, int32_t layer, const trm_kernel *kernel,
                                    const trm_kernel_call *call, trm_program *program)
{
    const trm_cached_layer *cached = find(cache, layer);
    if (cached == NULL) {
        return trm_kernel_prepare(kernel, call, program);
    }
    const int64_t tokens = call->inputs[TRM_EXPERTS_X].dims.d[0];
    const int64_t fit = (cached->table.slots < cache->most ? cached->table.slots : cache->most) /
                        trm_expert_cache_chosen(cached->layer);
    const int64_t most = fit > 0 ? fit : 1; /* fewer slots than a token's experts only if all held here have one */
    if (!cache->is_filled[cache->of[layer]] && trm_expert_profile_is_known(cache->plan)) {
        TRM_TRY(fill(cache, cache->of[layer], call->stream));
        cache->is_filled[cache->of[layer]] = true;
    }
    const bool hosts = cache->offload != NULL && tokens <= TRM_HOST_COMPUTE_ROWS;
    if (hosts) {
        TRM_TRY(trm_expert_offload_place(cache->offload, cache->of[layer], cached, call));
    }
    for (int64_t first = 0; first < tokens; first += most) {
        const int64_t rows = tokens - first < most ? tokens - first : most;
        trm_kernel_call round = *call;
        take_rows(&round.inputs[TRM_EXPERTS_X], first, rows);
        take_rows(&round.inputs[TRM_EXPERTS_WEIGHTS], first, rows);
        take_rows(&round.outputs[0], first, rows);
        round.inputs[TRM_EXPERTS_IDS].dims.d[0] = rows; /* slots of this round only */
        TRM_TRY(append_round(cache, cache->of[layer], hosts ? trm_expert_offload_box(cache->offload) : NULL, first,
                             kernel, &round, program));
    }
    return TRM_OK;
}

trm_expert_counts trm_expert_cache_counts(const trm_expert_cache *cache)
{
    trm_expert_counts sum = {0};
    for (int32_t i = 0; cache != NULL && i < cache->n; i++) {
        const trm_cached_layer *cached = &cache->layers[i];
        const int64_t misses = __atomic_load_n(&cached->table.counts[TRM_EXPERT_MISSES], __ATOMIC_RELAXED);
        const int64_t hosted = __atomic_load_n(&cached->table.counts[TRM_EXPERT_HOSTED], __ATOMIC_RELAXED);
        sum.hits += __atomic_load_n(&cached->table.counts[TRM_EXPERT_HITS], __ATOMIC_RELAXED);
        sum.misses += misses;
        sum.hosted += hosted;
        for (int32_t k = 0; k < cached->n; k++) {
            sum.bytes += misses * (int64_t)cached->tensors[k].bytes;
            sum.hosted_bytes += hosted * (int64_t)cached->tensors[k].bytes;
        }
    }
    if (cache != NULL) {
        sum.read = trm_expert_store_count(cache->store).read - cache->read_to_fill;
    }
    return sum;
}

trm_status trm_expert_cache_status(trm_expert_cache *cache)
{
    if (cache == NULL) {
        return TRM_OK;
    }
    TRM_TRY(trm_expert_offload_status(cache->offload));
    return trm_expert_store_status(cache->store);
}
