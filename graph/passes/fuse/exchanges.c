/*
 * Fuses all-reduces and the norms that read them, so that data is normalized as it arrives. For networks with the same
 * layers on all ranks.
 */
#include "graph/network.h"

#include <stdlib.h>

#include "base/error.h"
#include "graph/passes/analysis.h"

/* Whether an exchange stands between two layers: ranks meet in the order of their layers. */
static bool exchanges_between(const trm_network *network, const trm_layer *first, const trm_layer *last)
{
    for (int32_t i = first->index + 1; i < last->index; i++) {
        if (trm_layer_collective(&network->layers[i]->desc) != NULL) {
            return true;
        }
    }
    return false;
}

/* The sum over ranks that makes `tensor` for one reader, or NULL. */
static trm_layer *private_sum(const trm_analysis *analysis, const trm_tensor *tensor)
{
    trm_layer *layer = trm_analysis_private_producer(analysis, tensor, TRM_LAYER_DIST_COLLECTIVE);
    bool sums =
        layer != NULL && layer->desc.collective.op == TRM_ALL_REDUCE && layer->desc.collective.reduce == TRM_REDUCE_SUM;
    return sums ? layer : NULL;
}

/* norm(all_reduce(x)) -> all_reduce_norm(x). With a residual either of the two may be what was reduced. Gives the layer
 * that is left over. */
static trm_layer *join(trm_analysis *analysis, const trm_network *network, trm_layer *norm)
{
    const int32_t weight = norm->desc.kind == TRM_LAYER_NORM && norm->desc.norm.residual ? 2 : 1;
    if (norm->desc.kind != TRM_LAYER_NORM || weight >= norm->n_inputs || norm->inputs[weight] == NULL ||
        norm->inputs[0]->dtype == TRM_F64) { /* the joined layer's kernels have a weight, and f32 sums */
        return NULL;
    }
    for (int32_t i = 0; i < weight; i++) {
        trm_layer *sum = private_sum(analysis, norm->inputs[i]);
        if (sum == NULL || exchanges_between(network, sum, norm)) {
            continue;
        }
        trm_layer_desc desc = {.kind = TRM_LAYER_ALL_REDUCE_NORM,
                               .all_reduce_norm = {.collective = sum->desc.collective, .norm = norm->desc.norm}};
        desc.all_reduce_norm.collective.axis = desc.all_reduce_norm.collective.root = 0; /* nothing here */
        norm->desc = desc;
        norm->inputs[i] = norm->inputs[0]; /* the other one is the residual */
        norm->inputs[0] = sum->inputs[0];
        return sum;
    }
    return NULL;
}

trm_status trm_pass_fuse_exchanges(trm_network *network, int32_t *changes)
{
    trm_analysis analysis;
    TRM_TRY(trm_analysis_init(network, &analysis));
    bool *remove = calloc((size_t)network->n_layers + 1, sizeof(*remove));
    if (remove == NULL) {
        trm_analysis_fini(&analysis);
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot change a network of %d layers", network->n_layers);
    }
    for (int32_t i = 0; i < network->n_layers; i++) {
        const trm_layer *left = join(&analysis, network, network->layers[i]);
        if (left != NULL) {
            remove[left->index] = true;
            if (changes != NULL) {
                (*changes)++;
            }
        }
    }
    trm_network_remove_layers(network, remove);
    free(remove);
    trm_analysis_fini(&analysis);
    return TRM_OK;
}
