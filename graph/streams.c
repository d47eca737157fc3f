/* Assigns layers to streams, greedily in order, with vector clocks of what is known to be finished. */
#include "graph/streams.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "graph/kinds/kind.h"
#include "graph/memory_plan.h"

#define ALL (TRM_MOST_AUX_STREAMS + 1)

/* The last finished layer of each stream; -1: none. */
typedef struct clock {
    int32_t done[ALL];
} clock;

typedef struct assigner {
    const trm_network *network;
    trm_streams *out;
    int32_t n;      /* most streams */
    clock *clocks;  /* [n_layers] when a layer is finished */
    clock now[ALL]; /* at the end of each stream */
    int32_t n_waits, wait_capacity;
} assigner;

static void merge(clock *to, const clock *from)
{
    for (int32_t s = 0; s < ALL; s++) {
        to->done[s] = from->done[s] > to->done[s] ? from->done[s] : to->done[s];
    }
}

/* The layer that writes an input's memory; -1 if no layer that runs does. */
static int32_t maker_of(const assigner *a, const trm_tensor *input)
{
    const trm_tensor *storage = input == NULL ? NULL : trm_tensor_storage(input);
    if (storage == NULL || storage->role != TRM_TENSOR_ACTIVATION || a->out->of[storage->producer->index] < 0) {
        return -1;
    }
    return storage->producer->index;
}

/* When everything that a layer reads is ready. */
static clock inputs_ready(const assigner *a, const trm_layer *layer)
{
    clock ready;
    memset(&ready, -1, sizeof(ready));
    for (int32_t i = 0; i < layer->n_inputs; i++) {
        int32_t maker = maker_of(a, layer->inputs[i]);
        if (maker >= 0) {
            merge(&ready, &a->clocks[maker]);
        }
    }
    return ready;
}

/* Whether the last layer of a stream writes an input of the layer. */
static bool follows(const assigner *a, const trm_layer *layer, int32_t stream)
{
    bool found = false;
    for (int32_t i = 0; i < layer->n_inputs; i++) {
        int32_t maker = maker_of(a, layer->inputs[i]);
        found = found || (maker >= 0 && maker == a->out->tails[stream]);
    }
    return found;
}

/* The stream that continues with the layer's inputs; else one without other waits; else the main one. */
static int32_t choose_stream(const assigner *a, const trm_layer *layer, const clock *ready)
{
    if (trm_layer_collective(&layer->desc) != NULL) {
        return 0;
    }
    for (int32_t s = 0; s < a->n; s++) {
        if (follows(a, layer, s)) {
            return s;
        }
    }
    for (int32_t s = 0; s < a->n; s++) {
        if (a->out->tails[s] <= ready->done[s]) {
            return s;
        }
    }
    return 0;
}

static trm_status add_wait(assigner *a, int32_t layer, trm_arena *arena)
{
    if (a->n_waits == a->wait_capacity) {
        int32_t capacity = a->wait_capacity * 2 + 64;
        int32_t *grown = trm_arena_array(arena, (size_t)capacity, sizeof(*grown));
        if (grown == NULL) {
            return TRM_ERROR_OUT_OF_MEMORY;
        }
        if (a->n_waits > 0) {
            memcpy(grown, a->out->waits, (size_t)a->n_waits * sizeof(*grown));
        }
        a->out->waits = grown;
        a->wait_capacity = capacity;
    }
    a->out->waits[a->n_waits++] = layer;
    a->out->is_awaited[layer] = true;
    return TRM_OK;
}

/* Latest first, so that one wait makes others unnecessary. */
static trm_status add_waits(assigner *a, const trm_layer *layer, clock *start, trm_arena *arena)
{
    for (;;) {
        int32_t latest = -1;
        for (int32_t i = 0; i < layer->n_inputs; i++) {
            int32_t maker = maker_of(a, layer->inputs[i]);
            bool is_done = maker < 0 || start->done[a->out->of[maker]] >= maker;
            latest = !is_done && maker > latest ? maker : latest;
        }
        if (latest < 0) {
            return TRM_OK;
        }
        TRM_TRY(add_wait(a, latest, arena));
        merge(start, &a->clocks[latest]);
    }
}

static trm_status assign_layers(assigner *a, const bool *skipped, trm_arena *arena)
{
    trm_streams *out = a->out;
    for (int32_t i = 0; i < a->network->n_layers; i++) {
        const trm_layer *layer = a->network->layers[i];
        out->first_wait[i] = a->n_waits;
        out->of[i] = -1;
        if (skipped[i] || layer->desc.kind == TRM_LAYER_RESHAPE) {
            continue;
        }
        clock ready = inputs_ready(a, layer);
        int32_t s = choose_stream(a, layer, &ready);
        out->of[i] = s;
        clock start = a->now[s];
        TRM_TRY(add_waits(a, layer, &start, arena));
        start.done[s] = i;
        a->clocks[i] = a->now[s] = start;
        out->tails[s] = i;
        out->n = s > out->n ? s : out->n;
    }
    out->first_wait[a->network->n_layers] = a->n_waits;
    for (int32_t s = 1; s < a->n; s++) {
        out->joins[s] = a->now[0].done[s] < out->tails[s];
    }
    return TRM_OK;
}

/* ---- memory -------------------------------------------------------------------------------------------- */

/* The last user on each stream of every tensor with memory of its own, including its views. */
static void collect_users(const assigner *a, clock *users)
{
    const trm_network *network = a->network;
    memset(users, -1, (size_t)network->n_tensors * sizeof(*users));
    for (int32_t i = 0; i < network->n_layers; i++) {
        const trm_layer *layer = network->layers[i];
        int32_t s = a->out->of[i];
        for (int32_t k = 0; s >= 0 && k < layer->n_inputs + layer->n_outputs; k++) {
            const trm_tensor *used = k < layer->n_inputs ? layer->inputs[k] : layer->outputs[k - layer->n_inputs];
            if (used != NULL) {
                users[trm_tensor_storage(used)->index].done[s] = i;
            }
        }
    }
    for (int32_t i = network->n_layers - 1; i >= 0; i--) { /* from the end, for slices of slices */
        const trm_layer *layer = network->layers[i];
        if (layer->desc.kind == TRM_LAYER_SLICE) {
            merge(&users[trm_tensor_storage(layer->inputs[0])->index],
                  &users[trm_tensor_storage(layer->outputs[0])->index]);
        }
    }
}

static int32_t find_end(const assigner *a, const clock *users)
{
    for (int32_t i = a->network->n_layers - 1; i >= 0; i--) {
        const int32_t own = a->out->of[i];
        bool is_after = true;
        for (int32_t s = 0; own >= 0 && s < a->n; s++) {
            const int32_t done = s == own ? i - 1 : a->clocks[i].done[s];
            is_after = is_after && done >= users->done[s];
        }
        if (!is_after) {
            return i;
        }
    }
    return -1;
}

static trm_status find_ends(const assigner *a)
{
    const trm_network *network = a->network;
    clock *users = calloc((size_t)network->n_tensors + 1, sizeof(*users));
    if (users == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the users of %d tensors", network->n_tensors);
    }
    collect_users(a, users);
    for (int32_t i = 0; i < network->n_tensors; i++) {
        const trm_tensor *tensor = network->tensors[i];
        bool is_own = tensor->role == TRM_TENSOR_ACTIVATION && trm_tensor_storage(tensor) == tensor;
        a->out->ends[i] = is_own ? find_end(a, &users[i]) : -1;
    }
    free(users);
    return TRM_OK;
}

trm_status trm_streams_width(const trm_network *network, double *width)
{
    int32_t *before =
        calloc((size_t)network->n_layers + 1, sizeof(*before)); /* length of the longest chain that ends with it */
    int32_t all = 0, longest = 0;
    if (before == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the chains of %d layers", network->n_layers);
    }
    for (int32_t i = 0; i < network->n_layers; i++) {
        const trm_layer *layer = network->layers[i];
        const int32_t own = trm_kind_is(layer, TRM_KIND_TAKES_TIME);
        for (int32_t k = 0; k < layer->n_inputs; k++) {
            const trm_layer *from = layer->inputs[k] == NULL ? NULL : layer->inputs[k]->producer;
            before[i] = from != NULL && before[from->index] > before[i] ? before[from->index] : before[i];
        }
        before[i] += own;
        all += own;
        longest = before[i] > longest ? before[i] : longest;
    }
    free(before);
    *width = longest == 0 ? 1 : (double)all / longest;
    return TRM_OK;
}

trm_status trm_streams_assign(const trm_network *network, const bool *skipped, int32_t most, trm_arena *arena,
                              trm_streams *streams)
{
    const size_t n = (size_t)network->n_layers;
    most = most > TRM_MOST_AUX_STREAMS ? TRM_MOST_AUX_STREAMS : most;
    *streams = (trm_streams){0};
    if (most <= 0) {
        return TRM_OK;
    }
    assigner a = {.network = network, .out = streams, .n = most + 1};
    streams->of = trm_arena_array(arena, n + 1, sizeof(*streams->of));
    streams->first_wait = trm_arena_array(arena, n + 1, sizeof(*streams->first_wait));
    streams->is_awaited = trm_arena_array(arena, n + 1, sizeof(*streams->is_awaited));
    streams->ends = trm_arena_array(arena, (size_t)network->n_tensors + 1, sizeof(*streams->ends));
    a.clocks = calloc(n + 1, sizeof(*a.clocks));
    if (streams->of == NULL || streams->first_wait == NULL || streams->is_awaited == NULL || streams->ends == NULL ||
        a.clocks == NULL) {
        free(a.clocks);
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the streams of %zu layers", n);
    }
    memset(streams->is_awaited, 0, n + 1);
    memset(streams->tails, -1, sizeof(streams->tails));
    memset(a.now, -1, sizeof(a.now));
    trm_status status = assign_layers(&a, skipped, arena);
    if (status == TRM_OK && streams->n > 0) {
        status = find_ends(&a);
    }
    free(a.clocks);
    return status;
}
