/* Walks inference once through a run and counts the passes of loops. */
#include "graph/layer_runs.h"

#include <stdlib.h>

#include "base/error.h"
#include "graph/inference.h"

/* Most layers to walk over, those of loops in every pass, so that planning stays fast. */
#define MOST_WALKED ((int64_t)1 << 16)
/* Most runs of a layer in nested loops of guessed passes. */
#define MOST_GUESSED 512
#define MOST_RUNS    (1 << 20)

/* What the walk saw of a loop, by its LOOP. */
typedef struct loop_seen {
    int64_t ends, passes; /* how often it ended, and passes in total */
    bool is_open;         /* some condition was unknown */
    bool is_under_way;
} loop_seen;

typedef struct walker {
    const trm_network *network;
    trm_inference *inference;
    trm_dims *dims;  /* [n_tensors] */
    bool *assumed;   /* [n_tensors] elements or dims are unknown, or depend on unknown ones */
    loop_seen *seen; /* [n_layers] */
} walker;

/* Outputs that depend on assumed tensors are assumed. */
static void spread(walker *w)
{
    bool again = true;
    while (again) { /* loops carry it back */
        again = false;
        for (int32_t i = 0; i < w->network->n_layers; i++) {
            const trm_layer *layer = w->network->layers[i];
            bool reads = false;
            for (int32_t k = 0; k < layer->n_inputs; k++) {
                reads = reads || (layer->inputs[k] != NULL && w->assumed[layer->inputs[k]->index]);
            }
            for (int32_t k = 0; reads && k < layer->n_outputs; k++) {
                w->assumed[layer->outputs[k]->index] = true;
            }
            if (reads && layer->desc.kind == TRM_LAYER_NEXT && !w->assumed[layer->inputs[1]->index]) {
                w->assumed[layer->inputs[1]->index] = again = true;
            }
        }
    }
}

static void note_assumed(walker *w, const trm_tensor *tensor)
{
    if (!w->assumed[tensor->index]) {
        w->assumed[tensor->index] = true;
        spread(w);
    }
}

/* An unknown condition: assume that branches are taken and loops run once. */
static trm_status assume(walker *w, const trm_inference_stop *stop)
{
    const trm_layer *layer = stop->layer;
    const bool is_else = layer->desc.kind == TRM_LAYER_IF && layer->desc.branch.negated;
    const unsigned char holds = layer->desc.kind == TRM_LAYER_END_LOOP || is_else ? 0 : 1;
    note_assumed(w, stop->tensor);
    return trm_inference_give(w->inference, stop->tensor, &(trm_dims){0}, &holds);
}

/* Continues after a layer at *next, and counts passes of loops. A loop of unknown condition runs only once. */
static trm_status jump(walker *w, const trm_layer *layer, int32_t *next)
{
    static const unsigned char is_over = 0;
    const bool ends = layer->desc.kind == TRM_LAYER_END_LOOP;
    const int32_t begin = ends ? trm_inference_regions(w->inference)->other[layer->index] : layer->index;
    loop_seen *loop = &w->seen[begin];
    loop->is_open =
        loop->is_open || w->assumed[layer->inputs[0]->index] || w->assumed[w->network->layers[begin]->inputs[0]->index];
    if (ends && loop->is_open) {
        TRM_TRY(trm_inference_give(w->inference, layer->inputs[0], &(trm_dims){0}, &is_over));
    }
    TRM_TRY(trm_inference_jump(w->inference, next));
    loop->passes += ends;
    loop->is_under_way = *next <= layer->index;
    loop->ends += !loop->is_under_way; /* also of a loop without a pass */
    return TRM_OK;
}

/* Fills in `seen` as far as the walk gets. */
static trm_status walk(walker *w)
{
    trm_inference_stop stop;
    int32_t at = 0;
    for (int64_t walked = 0; walked < MOST_WALKED;) {
        TRM_TRY(trm_inference_run(w->inference, &stop));
        if (stop.state == TRM_INFERENCE_DONE) {
            return TRM_OK;
        }
        if (stop.state == TRM_INFERENCE_COUNT) {
            for (int32_t i = 0; i < stop.layer->n_outputs; i++) {
                note_assumed(w, stop.layer->outputs[i]);
            }
            TRM_TRY(trm_inference_give_count(w->inference, TRM_COUNT_LARGEST));
        } else if (stop.state == TRM_INFERENCE_JUMP) {
            walked += stop.layer->index + 1 - at;
            TRM_TRY(jump(w, stop.layer, &at));
        } else if (trm_kind_is_control(stop.layer->desc.kind)) {
            TRM_TRY(assume(w, &stop));
        } else if (stop.tensor->dtype == TRM_BOOL) { /* it may also be a condition, and is asked for only once */
            return TRM_OK;
        } else {
            TRM_TRY(trm_inference_give(w->inference, stop.tensor, NULL, NULL));
        }
    }
    return TRM_OK;
}

/* Walks from the known values of inputs to the end. */
static trm_status look(walker *w, const void *const *values)
{
    const trm_network *network = w->network;
    TRM_TRY(trm_inference_create(network, &w->inference));
    trm_inference_follow_conditions(w->inference);
    for (int32_t i = 0; i < network->n_tensors; i++) {
        const trm_tensor *tensor = network->tensors[i];
        if (tensor->role == TRM_TENSOR_INPUT && values != NULL && values[i] != NULL &&
            trm_inference_wants(w->inference, tensor)) {
            TRM_TRY(trm_inference_give(w->inference, tensor, &w->dims[i], values[i]));
        }
    }
    TRM_TRY(trm_inference_begin(w->inference, w->dims));
    return walk(w);
}

/* Passes of a loop each time that a run reaches it. */
static double passes_of(const loop_seen *loop, bool *is_guess)
{
    const double found = (double)loop->passes / (double)(loop->ends > 0 ? loop->ends : 1);
    *is_guess = loop->ends == 0 || loop->is_open || loop->is_under_way;
    return *is_guess && found < TRM_LOOP_PASSES ? TRM_LOOP_PASSES : found;
}

static int32_t runs_inside(double around, double passes, bool is_guess)
{
    const double all = around * passes, most = around > MOST_GUESSED ? around : MOST_GUESSED;
    const double runs = is_guess && all > most ? most : all;
    return runs < 1 ? 1 : runs > MOST_RUNS ? MOST_RUNS : (int32_t)(runs + 0.5);
}

/* Counts runs of layers in regions from `seen` of their loops. */
static void multiply(const trm_network *network, const trm_regions *regions, const loop_seen *seen, int32_t *runs,
                     bool *guessed)
{
    for (int32_t i = 0; i < network->n_layers; i++) {
        const int32_t begin = regions->inside[i]; /* it precedes the layer */
        runs[i] = begin < 0 ? 1 : runs[begin];
        if (begin >= 0 && network->layers[begin]->desc.kind == TRM_LAYER_LOOP) {
            bool is_guess;
            const double passes = passes_of(&seen[begin], &is_guess);
            runs[i] = runs_inside(runs[begin], passes, is_guess);
            *guessed = *guessed || is_guess;
        }
    }
}

trm_status trm_layer_runs(const trm_network *network, const trm_dims *dims, const void *const *values, int32_t *runs,
                          bool *guessed)
{
    const size_t n_tensors = (size_t)network->n_tensors + 1;
    *guessed = false;
    for (int32_t i = 0; i < network->n_layers; i++) {
        runs[i] = 1;
    }
    if (!trm_network_has_regions(network)) {
        return TRM_OK;
    }
    trm_regions regions;
    trm_status status;
    TRM_TRY(trm_regions_find(network, &regions));
    walker w = {.network = network,
                .dims = calloc(n_tensors, sizeof(*w.dims)),
                .assumed = calloc(n_tensors, sizeof(*w.assumed)),
                .seen = calloc((size_t)network->n_layers + 1, sizeof(*w.seen))};
    if (w.dims == NULL || w.assumed == NULL || w.seen == NULL) {
        status = trm_fail(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the loops of %d layers", network->n_layers);
        goto done;
    }
    for (int32_t i = 0; i < network->n_tensors; i++) {
        w.dims[i] = dims != NULL ? dims[i] : network->tensors[i]->dims;
    }
    status = look(&w, values);
    if (status != TRM_ERROR_OUT_OF_MEMORY) { /* a failed walk has seen nothing */
        multiply(network, &regions, w.seen, runs, guessed);
        status = TRM_OK;
    }
done:
    trm_inference_destroy(w.inference);
    trm_regions_fini(&regions);
    free(w.dims);
    free(w.assumed);
    free(w.seen);
    return status;
}
