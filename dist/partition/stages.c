/*
 * Pipeline stages: cuts the list of layers along the pp axis.
 *
 * Stages are consecutive layers. The cuts make the slowest stage about as fast as possible, by the cost of each layer's
 * cheapest strategy (with the price of its weights, so that memory is balanced too) and of sending tensors across the
 * cut. Tensors cross whole. A cut is possible if the receiver can derive their dims from the network's inputs, no state
 * is used on both sides, and it is outside loops and branches.
 */
#include "dist/partition/problem.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "base/error.h"
#include "graph/passes/analysis.h"
#include "graph/regions.h"

/* A stage may take this much longer than the slowest must, if less is sent: cut between blocks, not inside them. */
static const double slack = 1.1;

bool trm_partition_crosses(const trm_partition_tensor *tensor, int32_t cut)
{
    const trm_layer *producer = tensor->tensor->producer;
    return producer != NULL && producer->index < cut && tensor->last_use >= cut;
}

/* The axis of a network input of this class, as a bit at the axis's number among those of all inputs; 0: none. */
static int64_t find_axis(const trm_network *network, const trm_analysis *analysis, int32_t dim_class)
{
    int32_t k = 0;
    for (int32_t i = 0; i < network->n_tensors; i++) {
        const trm_tensor *tensor = network->tensors[i];
        if (tensor->role != TRM_TENSOR_INPUT) {
            continue;
        }
        for (int32_t axis = 0; axis < tensor->dims.n && k < 63; axis++, k++) {
            if (tensor->dims.d[axis] == -1 && analysis->dim_class[tensor->index][axis] == dim_class) {
                return (int64_t)1 << k;
            }
        }
    }
    return 0;
}

/*
 * The axes of network inputs that give an unknown dimension of a tensor, as bits: one, or several that broadcast in an
 * addition of unknown sizes. 0 if it does not follow from inputs. Traces back through the producer.
 */
static int64_t trace_axis(const trm_partitioner *partitioner, const trm_analysis *analysis, const trm_tensor *tensor,
                          int32_t axis)
{
    int32_t dim_class = analysis->dim_class[tensor->index][axis];
    int64_t axes = find_axis(partitioner->network, analysis, dim_class);
    const trm_layer *producer = tensor->producer;
    for (int32_t i = 0; axes == 0 && producer != NULL && i < producer->n_inputs; i++) {
        const trm_tensor *input = producer->inputs[i];
        for (int32_t k = 0; input != NULL && k < input->dims.n; k++) { /* a layer that keeps the size */
            if (input->dims.d[k] == -1 && analysis->dim_class[input->index][k] == dim_class) {
                return -partitioner->tensors[input->index].sent_dims.d[k];
            }
        }
    }
    if (axes != 0 || producer == NULL || producer->desc.kind != TRM_LAYER_ELEMENTWISE) {
        return axes;
    }
    for (int32_t i = 0; i < 2; i++) { /* the addition that made the size */
        const trm_tensor *input = producer->inputs[i];
        int32_t k = axis - (tensor->dims.n - input->dims.n);
        if (k >= 0 && input->dims.d[k] == -1) {
            int64_t more = -partitioner->tensors[input->index].sent_dims.d[k];
            if (more == 0) {
                return 0;
            }
            axes |= more;
        }
    }
    return axes;
}

/* Keeps a region, and the layers that enter and leave it, in one stage. */
static bool is_of_region(const trm_tensor *tensor)
{
    const trm_layer *producer = tensor->producer;
    return producer != NULL && trm_kind_is_control(producer->desc.kind) &&
           producer->desc.kind != TRM_LAYER_LOOP_OUTPUT && producer->desc.kind != TRM_LAYER_MERGE;
}

/* The dims of a tensor as a RECV with the network's inputs writes them. */
static void write_dims(const trm_partitioner *partitioner, const trm_analysis *analysis, trm_partition_tensor *tensor,
                       int32_t n_inputs)
{
    trm_dims *dims = &tensor->sent_dims;
    *dims = tensor->tensor->dims;
    tensor->can_be_sent = n_inputs >= 1 && n_inputs <= TRM_MAX_LAYER_INPUTS && !is_of_region(tensor->tensor);
    for (int32_t i = 0; i < dims->n; i++) {
        if (dims->d[i] == -1) {
            dims->d[i] = -trace_axis(partitioner, analysis, tensor->tensor, i);
            tensor->can_be_sent = tensor->can_be_sent && dims->d[i] != 0;
        }
    }
}

static trm_status find_dims(trm_partitioner *partitioner)
{
    const trm_network *network = partitioner->network;
    int32_t n_inputs = trm_network_input_count(network);
    trm_analysis analysis;
    TRM_TRY(trm_analysis_init(network, &analysis));
    for (int32_t i = 0; i < network->n_tensors; i++) {
        if (network->tensors[i]->producer == NULL) {
            write_dims(partitioner, &analysis, &partitioner->tensors[i], n_inputs);
        }
    }
    for (int32_t i = 0; i < network->n_layers; i++) {
        for (int32_t j = 0; j < network->layers[i]->n_outputs; j++) {
            int32_t index = network->layers[i]->outputs[j]->index;
            write_dims(partitioner, &analysis, &partitioner->tensors[index], n_inputs);
        }
    }
    trm_analysis_fini(&analysis);
    return TRM_OK;
}

/* Seconds of sending the tensors that cross a cut before each layer; INFINITY if there can be no cut. */
static void price_cuts(const trm_partitioner *partitioner, double *cuts)
{
    const trm_network *network = partitioner->network;
    const trm_sharding whole = {TRM_REPLICATED, 0, 1};
    for (int32_t i = 0; i <= network->n_layers; i++) {
        cuts[i] = 0.0;
    }
    for (int32_t i = 0; i < network->n_tensors; i++) {
        const trm_partition_tensor *tensor = &partitioner->tensors[i];
        const trm_tensor *t = tensor->tensor;
        int32_t from = t->producer != NULL ? t->producer->index + 1 : tensor->first_use + 1;
        bool stays = t->role == TRM_TENSOR_STATE || (t->role == TRM_TENSOR_ACTIVATION && !tensor->can_be_sent);
        double seconds = stays ? INFINITY : trm_partition_send_seconds(partitioner, t, &whole);
        bool matters = t->role == TRM_TENSOR_STATE || t->role == TRM_TENSOR_ACTIVATION;
        for (int32_t cut = from; matters && cut <= tensor->last_use; cut++) {
            cuts[cut] += seconds;
        }
        if (t->is_output && stays && t->producer != NULL) { /* every other stage receives it */
            for (int32_t cut = 1; cut < network->n_layers; cut++) {
                cuts[cut] = INFINITY;
            }
        }
    }
}

/* Data for placing the cuts: arrays over layers, and tables [stages, n + 1] over numbers of stages and their ends. */
typedef struct placing {
    int32_t n, stages;
    double *sums;   /* [n + 1] cost of the layers before i */
    double *cuts;   /* [n + 1] cost of a cut before layer i */
    double *best;   /* best cost of stages 0 .. s that end before layer i */
    int32_t *first; /* where the last of them begins */
} placing;

/*
 * Without a limit, minimizes the slowest stage; with one, minimizes the cost of the cuts while no stage takes longer.
 * Returns the minimum.
 */
static double place(const placing *p, double limit)
{
    size_t width = (size_t)p->n + 1;
    for (int32_t i = 0; i <= p->n; i++) {
        bool fits = i > 0 && p->sums[i] <= limit;
        p->best[i] = !fits ? INFINITY : limit == INFINITY ? p->sums[i] : 0.0;
        p->first[i] = 0;
    }
    for (int32_t s = 1; s < p->stages; s++) {
        for (int32_t i = 0; i <= p->n; i++) {
            double least = INFINITY;
            for (int32_t j = i; j-- > 1;) {
                double layers = p->sums[i] - p->sums[j], own = layers + p->cuts[j];
                double before = p->best[(size_t)(s - 1) * width + (size_t)j];
                if (layers > limit || (limit == INFINITY && layers >= least)) {
                    break; /* a longer stage takes longer */
                }
                double all =
                    limit < INFINITY ? (own <= limit ? before + p->cuts[j] : INFINITY) : (own > before ? own : before);
                if (all < least) {
                    least = all;
                    p->first[(size_t)s * width + (size_t)i] = j;
                }
            }
            p->best[(size_t)s * width + (size_t)i] = least;
        }
    }
    return p->best[(size_t)(p->stages - 1) * width + (size_t)p->n];
}

/* Stages do not share constants: the search pays for one once, but each stage that reads it must pay. */
static double shared_rent(const trm_partitioner *partitioner, const trm_layer *layer, const trm_strategy *strategy)
{
    double rent = 0.0;
    for (int32_t i = 0; i < layer->n_inputs; i++) {
        if (layer->inputs[i] != NULL && layer->inputs[i]->role == TRM_TENSOR_CONSTANT) {
            const trm_partition_tensor *tensor = &partitioner->tensors[layer->inputs[i]->index];
            rent += tensor->tracked
                        ? trm_partition_rent(partitioner, tensor->tensor, &tensor->forms[strategy->inputs[i]])
                        : 0.0;
        }
    }
    return rent;
}

/* Time counts for each run of the layer, the price of memory once. */
static double cheapest(const trm_partitioner *partitioner, int32_t index)
{
    const trm_partition_layer *layer = &partitioner->layers[index];
    const trm_layer *of = partitioner->network->layers[index];
    const int32_t again = partitioner->model.runs[index] - 1;
    double least = INFINITY;
    for (int32_t i = 0; i < layer->n_strategies; i++) {
        double cost = layer->strategies[i].cost + shared_rent(partitioner, of, &layer->strategies[i]);
        cost += again > 0 ? again * trm_partition_layer_seconds(partitioner, of, &layer->strategies[i]) : 0.0;
        least = cost < least ? cost : least;
    }
    return least;
}

trm_status trm_partition_cut_stages(trm_partitioner *partitioner, int32_t stages)
{
    int32_t n = partitioner->network->n_layers;
    size_t width = (size_t)n + 1;
    partitioner->n_stages = stages;
    partitioner->stage_begins[0] = 0;
    partitioner->stage_begins[stages] = n;
    if (stages == 1) {
        return TRM_OK;
    }
    TRM_TRY(find_dims(partitioner));
    placing p = {n,
                 stages,
                 trm_arena_array(&partitioner->arena, width, sizeof(double)),
                 trm_arena_array(&partitioner->arena, width, sizeof(double)),
                 trm_arena_array(&partitioner->arena, width * (size_t)stages, sizeof(double)),
                 trm_arena_array(&partitioner->arena, width * (size_t)stages, sizeof(int32_t))};
    if (p.sums == NULL || p.cuts == NULL || p.best == NULL || p.first == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    for (int32_t i = 0; i < n; i++) {
        p.sums[i + 1] = p.sums[i] + cheapest(partitioner, i);
    }
    price_cuts(partitioner, p.cuts);
    double slowest = place(&p, INFINITY);
    if (slowest == INFINITY) {
        TRM_FAIL(
            TRM_ERROR_INVALID_ARGUMENT,
            "the network's %" PRId32 " layers cannot be cut into %" PRId32
            " stages: tensors cross a cut only if their dims are known or those of inputs, states never, and loops "
            "and branches are not cut",
            n, stages);
    }
    place(&p, slack * slowest);
    for (int32_t s = stages - 1, end = n; s > 0; s--) {
        end = p.first[(size_t)s * width + (size_t)end];
        partitioner->stage_begins[s] = end;
    }
    return TRM_OK;
}
