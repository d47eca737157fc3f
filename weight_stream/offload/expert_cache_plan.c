/* Decides which experts' layers are cached, with how many slots, what a step then fetches, and what the CPU computes.
 */
#include "weight_stream/offload/expert_cache.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "graph/memory_plan.h"
#include "weight_stream/offload/expert_profile.h"
#include "weight_stream/offload/streaming.h"

int32_t trm_expert_cache_experts(const trm_layer *layer)
{
    return (int32_t)layer->inputs[TRM_EXPERTS_DOWN]->dims.d[0];
}

int32_t trm_expert_cache_chosen(const trm_layer *layer)
{
    return (int32_t)layer->inputs[TRM_EXPERTS_IDS]->dims.d[1];
}

/* Part of the time without the CPU that is worth other last bits. */
#define LESS 0.97

static size_t expert_bytes(const trm_tensor *tensor)
{
    return trm_dims_bytes(&tensor->dims, tensor->dtype) / (size_t)tensor->dims.d[0];
}

/* Bytes of one slot. */
static size_t slot_bytes(const trm_layer *layer)
{
    size_t sum = 0;
    for (int32_t i = TRM_EXPERTS_GATE_UP; i < layer->n_inputs; i++) {
        sum += layer->inputs[i] == NULL ? 0 : expert_bytes(layer->inputs[i]);
    }
    return sum;
}

/* ---- which layers ---- */

static int32_t count_uses(const trm_streaming_plan *s, int32_t weight)
{
    int32_t n = 0;
    for (int32_t i = 0; i < s->problem.n_uses; i++) {
        n += s->uses[i].weight == weight;
    }
    return n;
}

/* Whether all weights of the layer are stacked constants that no other layer streams; *streams: some can stream. */
static bool may_cache(const trm_streaming_plan *s, const trm_layer *layer, bool *streams)
{
    const int32_t experts = trm_expert_cache_experts(layer);
    bool may = true;
    *streams = false;
    for (int32_t i = TRM_EXPERTS_GATE_UP; i < layer->n_inputs; i++) {
        const trm_tensor *tensor = layer->inputs[i];
        if (tensor != NULL) {
            const int32_t weight = s->weight_of[tensor->index];
            may = may && tensor->role == TRM_TENSOR_CONSTANT && tensor->dims.n > 0 && tensor->dims.d[0] == experts &&
                  (weight < 0 || count_uses(s, weight) == 1);
            *streams = *streams || weight >= 0;
        }
    }
    return may;
}

trm_status trm_expert_cache_find(const trm_plan *plan, trm_streaming_plan *s)
{
    const trm_network *network = plan->network;
    const size_t n = (size_t)network->n_layers + 1;
    bool may = s->problem.sections == NULL && s->n_sharers == 1;
    s->expert_layers = trm_arena_array(&s->arena, n, sizeof(trm_layer *));
    s->cached = trm_arena_array(&s->arena, n, sizeof(*s->cached));
    s->cached_seconds = trm_arena_array(&s->arena, n, sizeof(*s->cached_seconds));
    s->has_experts = trm_arena_array(&s->arena, (size_t)s->problem.n_weights + 1, sizeof(*s->has_experts));
    s->host_limit = trm_streaming_host_limit(s, trm_streaming_host_room(1)); /* until an engine is made */
    s->hit_rates = trm_arena_array(&s->arena, n, sizeof(*s->hit_rates));
    if (s->expert_layers == NULL || s->cached == NULL || s->cached_seconds == NULL || s->has_experts == NULL ||
        s->hit_rates == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    for (int32_t i = 0; i < network->n_layers; i++) {
        const trm_layer *layer = network->layers[i];
        bool streams;
        if (layer->desc.kind == TRM_LAYER_EXPERTS) {
            may = may && may_cache(s, layer, &streams);
            if (may && streams) {
                s->cached[i] = true;
                s->expert_layers[s->n_expert_layers++] = layer;
            }
        }
    }
    s->n_expert_layers = may ? s->n_expert_layers : 0;
    for (int32_t i = 0; may && i < s->problem.n_uses; i++) {
        s->has_experts[s->uses[i].weight] = s->has_experts[s->uses[i].weight] || s->cached[s->uses[i].layer];
    }
    s->expert_misses = trm_arena_array(&s->arena, (size_t)trm_expert_cache_all(s) + 1, sizeof(*s->expert_misses));
    return s->expert_misses == NULL ? TRM_ERROR_OUT_OF_MEMORY : TRM_OK;
}

/* ---- how many slots ---- */

/* Marks the weights that stay beside a cache; returns their bytes. */
static size_t keep_others(const trm_streaming_plan *s, bool *resident)
{
    size_t sum = 0;
    memset(resident, 0, (size_t)s->problem.n_weights * sizeof(*resident));
    for (int32_t i = 0; i < s->problem.n_uses; i++) {
        const trm_residency_use *use = &s->uses[i];
        if (!s->cached[use->layer] && !use->in_place && !resident[use->weight]) {
            resident[use->weight] = true;
            sum += s->bytes[use->weight];
        }
    }
    return sum;
}

void trm_expert_cache_drop(trm_streaming_plan *s)
{
    s->expert_slots = 0;
    s->expert_bytes = 0;
    s->hosts_experts = false;
    s->host_experts = 0;
}

int32_t trm_expert_cache_all(const trm_streaming_plan *s)
{
    int32_t sum = 0;
    for (int32_t i = 0; i < s->n_expert_layers; i++) {
        sum += trm_expert_cache_experts(s->expert_layers[i]);
    }
    return sum;
}

/* Chooses how many experts host memory holds beside the other weights that do not stay: all, or those of a cache. False
 * if it has no room for a token's. */
static bool fit_host(trm_streaming_plan *s, const bool *resident, int32_t chosen)
{
    size_t all = 0, others = 0;
    for (int32_t i = 0; i < s->problem.n_weights; i++) {
        all += resident[i] ? 0 : s->part_bytes[i];
        others += resident[i] || s->has_experts[i] ? 0 : s->part_bytes[i];
    }
    if (all <= s->host_limit) {
        return true;
    }
    s->host_expert_bytes = 0;
    for (int32_t i = 0; i < s->n_expert_layers; i++) {
        trm_cached_layer placed;
        (void)trm_expert_cache_place(s->expert_layers[i], s->expert_slots, NULL, &placed);
        s->host_expert_bytes = placed.host_bytes > s->host_expert_bytes ? placed.host_bytes : s->host_expert_bytes;
    }
    const size_t experts = (size_t)trm_expert_cache_all(s);
    const size_t fit = s->host_limit < others ? 0 : (s->host_limit - others) / s->host_expert_bytes;
    s->host_experts = (int32_t)(fit < experts ? fit : experts);
    return s->host_experts >= chosen;
}

static void predict(trm_streaming_plan *s);

bool trm_expert_cache_choose(trm_streaming_plan *s, size_t budget, bool *resident)
{
    for (int32_t i = 0; s->host_experts > 0 && i < s->problem.n_weights; i++) {
        s->in_files[i] = s->in_files[i] && !s->has_experts[i]; /* that was so by the plan before */
    }
    trm_expert_cache_drop(s);
    if (s->n_expert_layers == 0) {
        return false;
    }
    int32_t chosen = 1, experts = 0;
    size_t all = 0;
    for (int32_t i = 0; i < s->n_expert_layers; i++) {
        const trm_layer *layer = s->expert_layers[i];
        const int32_t k = trm_expert_cache_chosen(layer), held = trm_expert_cache_experts(layer);
        chosen = k > chosen ? k : chosen;
        experts = held > experts ? held : experts;
        all += slot_bytes(layer);
    }
    const size_t others = keep_others(s, resident);
    const size_t slots = others > budget ? 0 : (budget - others) / all;
    if (slots < (size_t)chosen || slots >= (size_t)experts) {
        return false;
    }
    s->expert_slots = (int32_t)slots;
    for (int32_t i = 0; i < s->n_expert_layers; i++) {
        trm_cached_layer unused;
        s->expert_bytes += trm_expert_cache_place(s->expert_layers[i], s->expert_slots, NULL, &unused);
    }
    if (!fit_host(s, resident, chosen)) {
        trm_expert_cache_drop(s);
        return false;
    }
    predict(s);
    return true;
}

static void *take(unsigned char *memory, size_t *at, size_t bytes)
{
    void *taken = memory == NULL ? NULL : memory + *at;
    *at += trm_align_up(bytes, TRM_TENSOR_ALIGNMENT);
    return taken;
}

size_t trm_expert_cache_place(const trm_layer *layer, int32_t slots, unsigned char *memory, trm_cached_layer *cached)
{
    const int32_t experts = trm_expert_cache_experts(layer);
    const size_t most = (size_t)(slots < experts ? slots : experts), chosen = (size_t)trm_expert_cache_chosen(layer);
    size_t at = 0;
    *cached = (trm_cached_layer){.layer = layer};
    cached->table.experts = experts;
    cached->table.first = (int32_t)layer->desc.experts.first;
    cached->table.slots = (int32_t)most;
    cached->table.slot_of = take(memory, &at, (size_t)experts * sizeof(int32_t));
    cached->table.expert_of = take(memory, &at, most * sizeof(int32_t));
    cached->table.used = take(memory, &at, most * sizeof(int64_t));
    cached->table.clock = take(memory, &at, TRM_EXPERT_CLOCKS * sizeof(int64_t));
    cached->table.last = take(memory, &at, (size_t)experts * sizeof(int64_t));
    cached->table.uses = take(memory, &at, (size_t)experts * sizeof(int64_t));
    cached->table.missing = take(memory, &at, (1 + 2 * most) * sizeof(int32_t));
    cached->shares = take(memory, &at, (1 + most) * sizeof(int32_t));
    cached->sent = take(memory, &at, 3 * sizeof(int64_t));
    cached->slot_ids = take(memory, &at, (most > chosen ? most : chosen) * sizeof(int32_t));
    cached->table_bytes = at;
    for (int32_t i = TRM_EXPERTS_GATE_UP; i < layer->n_inputs; i++) {
        if (layer->inputs[i] != NULL) {
            const size_t bytes = expert_bytes(layer->inputs[i]);
            cached->inputs[cached->n] = i;
            cached->tensors[cached->n++] =
                (trm_expert_tensor){NULL, take(memory, &at, most * bytes), bytes, cached->host_bytes};
            cached->host_bytes += trm_align_up(bytes, TRM_TENSOR_ALIGNMENT);
        }
    }
    return at;
}

/* ---- what a step fetches ---- */

/* Experts of a token that are held here. */
static double used_experts(const trm_layer *layer)
{
    const trm_layer *router = layer->inputs[TRM_EXPERTS_IDS]->producer;
    const double held = trm_expert_cache_experts(layer), chosen = trm_expert_cache_chosen(layer);
    const bool is_routed =
        router != NULL && (router->desc.kind == TRM_LAYER_ROUTER ||
                           router->desc.kind == TRM_LAYER_NORM_ROUTER); /* whose inputs begin alike */
    const double all = is_routed ? (double)router->inputs[TRM_ROUTER_WEIGHT]->dims.d[0] : held;
    return chosen * held / (all > held ? all : held);
}

static int more_first(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x < y) - (x > y);
}

/* Predicts which share of the missing experts a cache in host memory has: it holds those missed most often. */
static double predict_host(const trm_streaming_plan *s)
{
    const int32_t all = trm_expert_cache_all(s);
    double *sorted = s->host_experts == 0 ? NULL : malloc((size_t)all * sizeof(*sorted)), sum = 0, found = 0;
    if (sorted == NULL) {
        return s->host_experts == 0 ? 1 : (double)s->host_experts / all;
    }
    memcpy(sorted, s->expert_misses, (size_t)all * sizeof(*sorted));
    qsort(sorted, (size_t)all, sizeof(*sorted), more_first);
    for (int32_t i = 0; i < all; i++) {
        sum += sorted[i];
        found += i < s->host_experts ? sorted[i] : 0;
    }
    free(sorted);
    return sum > 0 ? found / sum : 1;
}

/* Predicts what steps find, by the profile if there is one. */
static void predict(trm_streaming_plan *s)
{
    const double *uses = trm_expert_profile_is_known(s) ? s->expert_uses : NULL;
    int32_t at = 0;
    for (int32_t i = 0; i < s->n_expert_layers; i++) {
        const int32_t experts = trm_expert_cache_experts(s->expert_layers[i]);
        s->hit_rates[i] =
            trm_expert_profile_predict(uses == NULL ? NULL : uses + at, experts, used_experts(s->expert_layers[i]),
                                       s->expert_slots, s->expert_misses + at);
        at += experts;
    }
    s->host_hit_rate = predict_host(s);
}

static double layer_hit_rate(const trm_streaming_plan *s, const trm_layer *layer)
{
    int32_t i = 0;
    while (s->expert_layers[i] != layer) {
        i++;
    }
    return s->hit_rates[i];
}

/* ---- what the CPU computes ---- */

/* Seconds in which CPU and link bring or compute an expert, and from a request to its answer besides. */
typedef struct expert_seconds {
    double cpu, link, handover;
} expert_seconds;

static expert_seconds seconds_of(const trm_streaming_plan *s, const trm_layer *layer, double link_rate)
{
    const double bytes = (double)slot_bytes(layer), cpu = s->rates.experts > 0 ? s->rates.experts : s->rates.host;
    return (expert_seconds){bytes / cpu, bytes / link_rate, s->rates.round_trip};
}

int32_t trm_expert_cache_share(const trm_streaming_plan *s, const trm_layer *layer, int32_t missing)
{
    if (s->asked.host_compute == TRM_HOST_COMPUTE_PERCENT) {
        return (int32_t)(missing * s->asked.host_percent / 100 + 0.5);
    }
    const expert_seconds each = seconds_of(s, layer, s->problem.link_rate);
    int32_t best = 0;
    double least = missing * each.link;
    for (int32_t n = 1; n <= missing; n++) {
        const double cpu = n * each.cpu + each.handover, link = (missing - n) * each.link;
        const double seconds = cpu > link ? cpu : link;
        best = seconds < least ? n : best;
        least = seconds < least ? seconds : least;
    }
    return best;
}

/* Experts of a token that are missing, and how many of them the CPU takes. */
static double missing_of(const trm_streaming_plan *s, const trm_layer *layer)
{
    return used_experts(layer) * (1 - layer_hit_rate(s, layer));
}

static double share_of(const trm_streaming_plan *s, const trm_layer *layer, double link_rate)
{
    const double missing = missing_of(s, layer);
    const expert_seconds each = seconds_of(s, layer, link_rate);
    if (s->asked.host_compute == TRM_HOST_COMPUTE_PERCENT) {
        return missing * s->asked.host_percent / 100;
    }
    const double share = (missing * each.link - each.handover) / (each.cpu + each.link); /* both end at once */
    return share < 0 ? 0 : share;
}

/* Bytes of a layer's missing experts that come from files. */
static double read_of(const trm_streaming_plan *s, const trm_layer *layer)
{
    return missing_of(s, layer) * (1 - s->host_hit_rate) * (double)slot_bytes(layer);
}

/* Seconds of a layer's missing experts, `hosted` of which the CPU takes. Files are read while the link copies. */
static double miss_seconds(const trm_streaming_plan *s, const trm_layer *layer, double link_rate, double hosted)
{
    const expert_seconds each = seconds_of(s, layer, link_rate);
    const double link = (missing_of(s, layer) - hosted) * each.link, file = read_of(s, layer) / s->problem.file_rate;
    const double cpu = hosted > 0 ? hosted * each.cpu + each.handover : 0;
    return cpu > link ? cpu : file > link ? file : link;
}

/* Seconds of all missing experts of a step, with or without the CPU. */
static double all_seconds(const trm_streaming_plan *s, double link_rate, bool hosts)
{
    double sum = 0;
    for (int32_t i = 0; i < s->n_expert_layers; i++) {
        const trm_layer *layer = s->expert_layers[i];
        sum += miss_seconds(s, layer, link_rate, hosts ? share_of(s, layer, link_rate) : 0);
    }
    return sum;
}

double trm_expert_cache_gain(const trm_streaming_plan *s)
{
    return s->expert_slots == 0 || s->hosts_experts || s->host_experts > 0
               ? 0
               : all_seconds(s, s->problem.link_rate, false) - all_seconds(s, s->problem.link_rate, true);
}

static double hosted_of(const trm_streaming_plan *s, const trm_layer *layer)
{
    return s->hosts_experts ? share_of(s, layer, s->problem.link_rate) : 0;
}

void trm_expert_cache_estimate(trm_streaming_plan *s, double link_rate, double *seconds)
{
    s->hosts_experts =
        s->host_experts == 0 && /* the CPU reads experts in host memory */
        (trm_wants_share(&s->asked) || (s->asked.host_compute == TRM_HOST_COMPUTE_AUTO &&
                                        all_seconds(s, link_rate, true) < all_seconds(s, link_rate, false) * LESS));
    for (int32_t i = 0; i < s->n_expert_layers; i++) {
        const trm_layer *layer = s->expert_layers[i];
        const double share = used_experts(layer) / trm_expert_cache_experts(layer);
        const double hosted = s->hosts_experts ? share_of(s, layer, link_rate) : 0;
        seconds[layer->index] = s->problem.layer_seconds[layer->index] * (share < 1 ? share : 1) +
                                s->problem.copy_seconds + miss_seconds(s, layer, link_rate, hosted);
    }
}

size_t trm_expert_cache_fetched(const trm_streaming_plan *s)
{
    double sum = 0;
    for (int32_t i = 0; s->expert_slots > 0 && i < s->n_expert_layers; i++) {
        const trm_layer *layer = s->expert_layers[i];
        sum += (missing_of(s, layer) - hosted_of(s, layer)) * (double)slot_bytes(layer);
    }
    return (size_t)sum;
}

size_t trm_expert_cache_read(const trm_streaming_plan *s)
{
    double sum = 0;
    for (int32_t i = 0; s->expert_slots > 0 && i < s->n_expert_layers; i++) {
        sum += read_of(s, s->expert_layers[i]);
    }
    return (size_t)sum;
}

size_t trm_expert_cache_hosted(const trm_streaming_plan *s)
{
    double sum = 0;
    for (int32_t i = 0; s->expert_slots > 0 && i < s->n_expert_layers; i++) {
        sum += hosted_of(s, s->expert_layers[i]) * (double)slot_bytes(s->expert_layers[i]);
    }
    return (size_t)sum;
}

double trm_expert_cache_hit_rate(const trm_streaming_plan *s)
{
    double used = 0, found = 0;
    for (int32_t i = 0; s->expert_slots > 0 && i < s->n_expert_layers; i++) {
        const trm_layer *layer = s->expert_layers[i];
        used += used_experts(layer);
        found += used_experts(layer) * layer_hit_rate(s, layer);
    }
    return used > 0 ? found / used : 0;
}
