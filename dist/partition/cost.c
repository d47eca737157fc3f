/*
 * The cost of running and resharding: a layer takes the longer of moving its bytes and its arithmetic; an exchange
 * takes a latency plus its bytes over the links.
 */
#include "dist/partition/problem.h"

#include <math.h>

#include "graph/kinds/kind.h"

/*
 * memory_price: users of n ranks want each to hold an n-th of the model, more than the last microsecond of a small
 * layer. At 8 all matrices except the smallest (about 1 MB on an H200) are split, and also embedding tables, which gain
 * no speed from it.
 */
void trm_cost_model_default(trm_backend backend, trm_cost_model *model)
{
    static const trm_cost_model host = {.memory_bandwidth = 10e9,
                                        .compute_rate = 50e9,
                                        .link_bandwidth = 4e9,
                                        .link_latency = 10e-6,
                                        .layer_overhead = 0.5e-6,
                                        .memory_price = 8.0,
                                        .unknown_dimension = 16};
    static const trm_cost_model cuda = {.memory_bandwidth = 3e12,
                                        .compute_rate = 500e12,
                                        .link_bandwidth = 300e9,
                                        .link_latency = 8e-6,
                                        .layer_overhead = 2e-6,
                                        .memory_price = 8.0,
                                        .unknown_dimension = 16};
    *model = backend == TRM_BACKEND_CUDA ? cuda : host;
}

/*
 * Computing with summands costs this share of a layer's start more than reducing them first: each summand is rounded
 * separately, and an addition after the all-reduce fuses with the norm after it. It is far less than an exchange, so
 * that saving one still pays off.
 */
static const double partial_share = 0.5;

static double known(const trm_partitioner *partitioner, int64_t dim)
{
    return (double)(dim < 0 ? partitioner->model.unknown_dimension : dim);
}

static double count_elements(const trm_partitioner *partitioner, const trm_dims *dims)
{
    double count = 1.0;
    for (int32_t i = 0; i < dims->n; i++) {
        count *= known(partitioner, dims->d[i]);
    }
    return count;
}

static double whole_bytes(const trm_partitioner *partitioner, const trm_tensor *tensor)
{
    return count_elements(partitioner, &tensor->dims) * (double)trm_dtype_size(tensor->dtype);
}

/* Elements of one rank's part. */
static double count_local(const trm_partitioner *partitioner, const trm_dims *dims, const trm_sharding *sharding)
{
    const trm_dims local = trm_sharding_local_dims(dims, sharding);
    const bool is_open = sharding->kind == TRM_SPLIT && dims->d[sharding->axis] < 0;
    return count_elements(partitioner, &local) / (is_open ? (double)sharding->parts : 1.0);
}

static double local_bytes(const trm_partitioner *partitioner, const trm_tensor *tensor, const trm_sharding *sharding)
{
    return count_local(partitioner, &tensor->dims, sharding) * (double)trm_dtype_size(tensor->dtype);
}

/* ---- layers ------------------------------------------------------------------------------------ */

double trm_partition_rent(const trm_partitioner *partitioner, const trm_tensor *tensor, const trm_sharding *sharding)
{
    const trm_cost_model *model = &partitioner->model;
    return model->memory_price * local_bytes(partitioner, tensor, sharding) / model->memory_bandwidth;
}

double trm_partition_layer_price(const trm_partitioner *partitioner, const trm_layer *layer,
                                 const trm_strategy *strategy)
{
    double price = 0.0;
    for (int32_t i = 0; i < layer->n_inputs; i++) {
        if (layer->inputs[i] == NULL) {
            continue;
        }
        const trm_partition_tensor *input = &partitioner->tensors[layer->inputs[i]->index];
        const trm_sharding *form = &input->forms[strategy->inputs[i]];
        bool is_kept = input->tensor->role == TRM_TENSOR_CONSTANT || input->tensor->role == TRM_TENSOR_STATE;
        price += form->kind == TRM_PARTIAL ? partial_share * partitioner->model.layer_overhead : 0.0;
        price += is_kept && !input->tracked ? trm_partition_rent(partitioner, input->tensor, form) : 0.0;
    }
    return price;
}

static const trm_sharding *input_form(const trm_partitioner *partitioner, const trm_layer *layer,
                                      const trm_strategy *strategy, int32_t i)
{
    return &partitioner->tensors[layer->inputs[i]->index].forms[strategy->inputs[i]];
}

static double flops(const trm_partitioner *partitioner, const trm_layer *layer, const trm_strategy *strategy,
                    double output_elements)
{
    const trm_kind *kind = trm_kind_of(layer);
    if (kind->multiplications == NULL) {
        return 0.0;
    }
    trm_dims in[TRM_MAX_LAYER_INPUTS];
    for (int32_t i = 0; i < layer->n_inputs; i++) {
        in[i] = layer->inputs[i] == NULL
                    ? (trm_dims){0}
                    : trm_sharding_local_dims(&layer->inputs[i]->dims, input_form(partitioner, layer, strategy, i));
    }
    return 2.0 * output_elements * kind->multiplications(layer, in, partitioner->model.unknown_dimension);
}

double trm_partition_layer_seconds(const trm_partitioner *partitioner, const trm_layer *layer,
                                   const trm_strategy *strategy)
{
    const trm_cost_model *model = &partitioner->model;
    double bytes = 0.0, output_bytes = 0.0, output_elements = 0.0;
    if (layer->desc.kind == TRM_LAYER_RESHAPE) {
        return 0.0; /* moves nothing */
    }
    for (int32_t i = 0; i < layer->n_outputs; i++) {
        const trm_partition_tensor *output = &partitioner->tensors[layer->outputs[i]->index];
        const trm_sharding *form = &output->forms[strategy->outputs[i]];
        output_bytes += local_bytes(partitioner, output->tensor, form);
        output_elements += count_local(partitioner, &output->tensor->dims, form);
    }
    for (int32_t i = 0; i < layer->n_inputs; i++) {
        if (layer->inputs[i] != NULL) {
            bool is_looked_up = i == 0 && trm_kind_is(layer, TRM_KIND_LOOKS_UP);
            bytes += is_looked_up
                         ? output_bytes
                         : local_bytes(partitioner, layer->inputs[i], input_form(partitioner, layer, strategy, i));
        }
    }
    double moving = (bytes + output_bytes) / model->memory_bandwidth;
    double computing = flops(partitioner, layer, strategy, output_elements) / model->compute_rate;
    return model->layer_overhead + (moving > computing ? moving : computing);
}

/* ---- conversions ------------------------------------------------------------------------------- */

/* Cost of rearranging blocks that are not along the outermost axis: reading and writing the tensor once. */
static double rearranging(const trm_partitioner *partitioner, const trm_tensor *tensor, int32_t axis)
{
    double outer = 1.0;
    for (int32_t i = 0; i < axis; i++) {
        outer *= known(partitioner, tensor->dims.d[i]);
    }
    const trm_cost_model *model = &partitioner->model;
    return outer <= 1.0 ? 0.0
                        : model->layer_overhead + 2.0 * whole_bytes(partitioner, tensor) / model->memory_bandwidth;
}

double trm_partition_conversion_bytes(const trm_partitioner *partitioner, const trm_tensor *tensor,
                                      const trm_sharding *from, const trm_sharding *to)
{
    if (from->kind == TRM_REPLICATED) {
        return 0.0;
    }
    double once = whole_bytes(partitioner, tensor) * (double)(from->parts - 1) / (double)from->parts;
    return from->kind == TRM_PARTIAL && to->kind == TRM_REPLICATED ? 2.0 * once : once;
}

double trm_partition_send_seconds(const trm_partitioner *partitioner, const trm_tensor *tensor,
                                  const trm_sharding *sharding)
{
    const trm_cost_model *model = &partitioner->model;
    return model->link_latency + local_bytes(partitioner, tensor, sharding) / model->link_bandwidth;
}

static double convert_seconds(const trm_partitioner *partitioner, const trm_tensor *tensor, const trm_sharding *from,
                              const trm_sharding *to)
{
    const trm_cost_model *model = &partitioner->model;
    if (from->kind == TRM_REPLICATED) { /* a slice, which cannot add zeros at the end */
        bool possible = to->kind == TRM_SPLIT && trm_sharding_is_even(&tensor->dims, to);
        const bool in_place = partitioner->shares_batch && possible && to->axis == 0; /* usually a view */
        double part = possible && !in_place ? local_bytes(partitioner, tensor, to) : 0.0;
        return possible ? model->layer_overhead + 2.0 * part / model->memory_bandwidth : INFINITY;
    }
    double exchange =
        model->link_latency + trm_partition_conversion_bytes(partitioner, tensor, from, to) / model->link_bandwidth;
    if (from->kind == TRM_PARTIAL && to->kind == TRM_REPLICATED) {
        return exchange;
    }
    if (from->kind == TRM_PARTIAL && to->kind == TRM_SPLIT && to->parts == from->parts &&
        trm_sharding_is_even(&tensor->dims, to)) {
        return exchange + rearranging(partitioner, tensor, to->axis);
    }
    if (from->kind == TRM_SPLIT && to->kind == TRM_REPLICATED) {
        double trimming =
            trm_sharding_is_even(&tensor->dims, from)
                ? 0.0
                : model->layer_overhead + 2.0 * whole_bytes(partitioner, tensor) / model->memory_bandwidth;
        return exchange + rearranging(partitioner, tensor, from->axis) + trimming;
    }
    return INFINITY;
}

double trm_partition_conversion_seconds(const trm_partitioner *partitioner, const trm_tensor *tensor,
                                        const trm_sharding *from, const trm_sharding *to)
{
    return convert_seconds(partitioner, tensor, from, to) * (partitioner->discount > 0 ? partitioner->discount : 1.0);
}
