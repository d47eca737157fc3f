/* The builder: partition, passes and the memory of one rank. */
#include "dist/plan.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "dist/world.h"
#include "graph/memory_plan.h"

const trm_kernel_table *const trm_all_kernels[] = {
    &trm_cuda_kernels,
    &trm_host_kernels,
    &trm_attention_kernels,
    &trm_collective_kernels,
};
const int32_t trm_all_kernels_count = sizeof(trm_all_kernels) / sizeof(trm_all_kernels[0]);

void trm_plan_describe_call(const trm_layer *layer, const trm_dims *dims, trm_kernel_call *call)
{
    *call = (trm_kernel_call){.layer = &layer->desc, .n_inputs = layer->n_inputs, .n_outputs = layer->n_outputs};
    for (int32_t i = 0; i < layer->n_inputs; i++) {
        if (layer->inputs[i] != NULL) {
            call->inputs[i] = (trm_view){NULL, layer->inputs[i]->dtype, dims[layer->inputs[i]->index]};
            call->constants |= layer->inputs[i]->role == TRM_TENSOR_CONSTANT ? 1u << i : 0;
        }
    }
    for (int32_t i = 0; i < layer->n_outputs; i++) {
        call->outputs[i] = (trm_view){NULL, layer->outputs[i]->dtype, dims[layer->outputs[i]->index]};
    }
}

/* Raises *workspace to what any kernel that may be chosen for these dims needs. */
static trm_status measure_workspace(const trm_plan *plan, const trm_dims *dims, size_t *workspace)
{
    for (int32_t i = 0; i < plan->network->n_layers; i++) {
        const trm_layer *layer = plan->network->layers[i];
        trm_kernel_call call;
        trm_plan_describe_call(layer, dims, &call);
        const trm_kernel *kernel = trm_kernel_find(trm_all_kernels, trm_all_kernels_count, plan->backend, &call);
        if (kernel == NULL) {
            TRM_FAIL(TRM_ERROR_UNSUPPORTED, "layer %s (%s on %s) has no %s kernel", layer->name,
                     trm_layer_kind_name(layer->desc.kind),
                     layer->n_inputs > 0 && layer->inputs[0] != NULL ? trm_dtype_name(layer->inputs[0]->dtype)
                                                                     : "nothing",
                     trm_backend_name(plan->backend));
        }
        size_t needed = kernel->workspace == NULL ? 0 : kernel->workspace(&call);
        *workspace = needed > *workspace ? needed : *workspace;
    }
    *workspace = trm_align_up(*workspace, TRM_TENSOR_ALIGNMENT);
    return TRM_OK;
}

/* Gives every tensor of one role its place in that role's region. */
static trm_status lay_out(const trm_plan *plan, trm_tensor_role role, size_t *offsets, size_t *total)
{
    *total = 0;
    for (int32_t i = 0; i < plan->network->n_tensors; i++) {
        const trm_tensor *tensor = plan->network->tensors[i];
        offsets[i] = SIZE_MAX;
        if (tensor->role == role) {
            size_t bytes;
            TRM_TRY(trm_tensor_bytes(tensor, &plan->max_dims[i], &bytes));
            offsets[i] = *total;
            if (bytes > SIZE_MAX - TRM_TENSOR_ALIGNMENT ||
                !trm_checked_add(*total, trm_align_up(bytes, TRM_TENSOR_ALIGNMENT), total)) {
                TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "tensor %s brings the plan past the address space", tensor->name);
            }
        }
    }
    return TRM_OK;
}

/* Sums of the regions may be taken without a check from here on. */
static trm_status check_total(const trm_plan *plan)
{
    const size_t parts[] = {plan->weight_bytes, plan->state_bytes, plan->input_bytes, plan->activation_bytes,
                            plan->workspace_bytes};
    size_t total = 0;
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        if (!trm_checked_add(total, parts[i], &total) || total > PTRDIFF_MAX) {
            TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "the plan needs more memory than there are addresses");
        }
    }
    return TRM_OK;
}

static trm_status plan_memory(trm_plan *plan)
{
    TRM_TRY(trm_infer_network(plan->network, plan->max_dims));
    TRM_TRY(lay_out(plan, TRM_TENSOR_CONSTANT, plan->weight_offsets, &plan->weight_bytes));
    TRM_TRY(lay_out(plan, TRM_TENSOR_STATE, plan->state_offsets, &plan->state_bytes));
    TRM_TRY(lay_out(plan, TRM_TENSOR_INPUT, plan->input_offsets, &plan->input_bytes));
    TRM_TRY(
        trm_memory_plan_activations(plan->network, plan->max_dims, plan->activation_offsets, &plan->activation_bytes));
    TRM_TRY(measure_workspace(plan, plan->max_dims, &plan->workspace_bytes));
    return check_total(plan);
}

static const trm_dims *find_bound(const trm_build_options *options, const char *name)
{
    for (int32_t i = 0; i < options->n_bounds; i++) {
        if (strcmp(options->bounds[i].tensor, name) == 0) {
            return &options->bounds[i].max;
        }
    }
    return NULL;
}

/* The bound of `tensor`, which is of the rank's network: dimensions that the network knows must agree with it. */
static trm_status apply_bound(const trm_tensor *tensor, const trm_dims *bound, trm_dims *max)
{
    if (bound->n != tensor->dims.n) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "bound of %s has %d dimensions, expected %d", tensor->name, bound->n,
                 tensor->dims.n);
    }
    *max = tensor->dims;
    for (int32_t i = 0; i < max->n; i++) {
        if (max->d[i] < 0) {
            max->d[i] = bound->d[i];
        }
        if (max->d[i] < 0) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "bound of %s has dimension %lld at position %d, expected a size",
                     tensor->name, (long long)max->d[i], i);
        }
    }
    return TRM_OK;
}

static trm_status apply_bounds(trm_plan *plan, const trm_build_options *options)
{
    for (int32_t i = 0; i < plan->network->n_tensors; i++) {
        const trm_tensor *tensor = plan->network->tensors[i];
        plan->max_dims[i] = tensor->dims;
        if (tensor->role != TRM_TENSOR_INPUT && tensor->role != TRM_TENSOR_STATE) {
            continue;
        }
        const trm_dims *bound = find_bound(options, tensor->name);
        bool known = true;
        for (int32_t k = 0; k < tensor->dims.n; k++) {
            known = known && tensor->dims.d[k] >= 0;
        }
        if (bound != NULL) {
            TRM_TRY(apply_bound(tensor, bound, &plan->max_dims[i]));
        } else if (!known) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "%s %s has unknown dimensions and no bound",
                     tensor->role == TRM_TENSOR_INPUT ? "input" : "state", tensor->name);
        }
    }
    return TRM_OK;
}

/* Whether a collective that its author wrote suits the rank and the number of ranks. */
static trm_status check_exchange(const trm_collective_params *p, int32_t rank, int32_t ranks)
{
    const char *op = trm_collective_op_name(p->op);
    bool peer = p->op == TRM_SEND || p->op == TRM_RECV, named = p->n_groups == 0;
    if (p->n_groups == 0 && !peer && p->n_ranks != ranks) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "%s is for %d ranks, the mesh has %d", op, p->n_ranks, ranks);
    }
    for (int32_t i = 0; i < p->n_groups * p->group_size; i++) {
        if (p->groups[i] >= ranks) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "%s names rank %d, the mesh has %d", op, p->groups[i], ranks);
        }
        named = named || p->groups[i] == rank;
    }
    if (!named) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "%s names no group with rank %d: leave it out of that rank's network", op,
                 rank);
    }
    int32_t most = p->n_groups > 1 ? p->group_size : ranks;
    if (peer && (p->root >= most || (p->n_groups <= 1 && p->root == rank))) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "%s of rank %d has peer %d, expected another of %d ranks", op, rank,
                 p->root, most);
    }
    return TRM_OK;
}

static trm_status check_exchanges(const trm_plan *plan)
{
    for (int32_t i = 0; i < plan->network->n_layers; i++) {
        const trm_layer *layer = plan->network->layers[i];
        if (layer->desc.kind == TRM_LAYER_DIST_COLLECTIVE) {
            trm_status status = check_exchange(&layer->desc.collective, plan->rank, trm_mesh_ranks(&plan->mesh));
            if (status != TRM_OK) {
                return trm_fail_in(status, "layer %s", layer->name);
            }
        }
    }
    return TRM_OK;
}

static void show_stage(const trm_build_options *options, const char *stage, const trm_network *network)
{
    if (options->on_stage != NULL) {
        options->on_stage(options->stage_user, stage, network);
    }
}

/* From the caller's network to the rank's. */
static trm_status make_local_network(trm_plan *plan, const trm_network *network, const trm_build_options *options)
{
    trm_network *whole;
    TRM_TRY(trm_network_clone(network, &whole));
    show_stage(options, "import", whole);
    trm_status status = trm_run_passes(whole, TRM_PASSES_BEFORE_PARTITION);
    if (status == TRM_OK) {
        show_stage(options, "passes", whole);
        trm_cost_model model;
        trm_cost_model_default(options->backend, &model);
        status = trm_partition(whole, &options->mesh, options->rank, &model, &plan->network, &plan->partition);
    }
    trm_network_destroy(whole);
    TRM_TRY(status);
    show_stage(options, "partition", plan->network);
    TRM_TRY(trm_run_passes(plan->network, TRM_PASSES_AFTER_PARTITION));
    show_stage(options, "final", plan->network);
    return TRM_OK;
}

static trm_status check_options(const trm_build_options *options)
{
    if (options->size != sizeof(*options)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "build options have size %zu, expected %zu: use TRM_BUILD_OPTIONS_INIT",
                 options->size, sizeof(*options));
    }
    if (options->backend != TRM_BACKEND_HOST && options->backend != TRM_BACKEND_CUDA) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "build has backend %d", (int)options->backend);
    }
    if (options->n_bounds < 0 || (options->n_bounds > 0 && options->bounds == NULL)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "build has %d bounds%s", options->n_bounds,
                 options->bounds == NULL ? ", but no list of them" : "");
    }
    return TRM_OK;
}

/* Bounds belong to inputs and states of the caller's network, and agree with the dimensions that it knows. */
static trm_status check_bounds(const trm_network *network, const trm_build_options *options)
{
    for (int32_t i = 0; i < options->n_bounds; i++) {
        const trm_shape_bound *bound = &options->bounds[i];
        const trm_tensor *tensor = trm_network_find_tensor(network, bound->tensor);
        if (tensor == NULL || (tensor->role != TRM_TENSOR_INPUT && tensor->role != TRM_TENSOR_STATE)) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "there is a bound for %s, which is no input or state of the network",
                     bound->tensor == NULL ? "NULL" : bound->tensor);
        }
        trm_dims max;
        TRM_TRY(apply_bound(tensor, &bound->max, &max));
        for (int32_t k = 0; k < max.n; k++) {
            if (max.d[k] != bound->max.d[k]) {
                TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "bound of %s has %lld at dimension %d, expected %lld",
                         tensor->name, (long long)bound->max.d[k], k, (long long)max.d[k]);
            }
        }
    }
    return TRM_OK;
}

trm_status trm_build(const trm_network *network, const trm_build_options *options, trm_plan **plan)
{
    if (network == NULL || options == NULL || plan == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot build: network, options or plan is NULL");
    }
    TRM_TRY(check_options(options));
    TRM_TRY(check_bounds(network, options));
    trm_plan *made = calloc(1, sizeof(*made));
    if (made == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a plan");
    }
    made->backend = options->backend;
    made->mesh = options->mesh;
    made->rank = options->rank;
    trm_status status;
    TRM_TRY_GOTO(status, make_local_network(made, network, options), destroy);
    if (made->partition.as_written) {
        TRM_TRY_GOTO(status, check_exchanges(made), destroy);
    }
    size_t n = (size_t)made->network->n_tensors;
    made->max_dims = trm_arena_array(&made->arena, n, sizeof(trm_dims));
    size_t **tables[] = {&made->weight_offsets, &made->state_offsets, &made->input_offsets, &made->activation_offsets};
    bool allocated = made->max_dims != NULL;
    for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++) {
        *tables[i] = trm_arena_array(&made->arena, n, sizeof(size_t));
        allocated = allocated && *tables[i] != NULL;
    }
    if (!allocated) {
        status = TRM_ERROR_OUT_OF_MEMORY;
        goto destroy;
    }
    TRM_TRY_GOTO(status, apply_bounds(made, options), destroy);
    TRM_TRY_GOTO(status, plan_memory(made), destroy);
    *plan = made;
    return TRM_OK;
destroy:
    trm_plan_destroy(made);
    return status;
}

trm_status trm_plan_set_state_blocks(trm_plan *plan, int64_t blocks)
{
    for (int32_t i = 0; i < plan->network->n_tensors; i++) {
        const trm_tensor *tensor = plan->network->tensors[i];
        if (tensor->role == TRM_TENSOR_STATE && tensor->dims.n > 0 && tensor->dims.d[0] < 0) {
            plan->max_dims[i].d[0] = blocks;
        }
    }
    return plan_memory(plan);
}

trm_status trm_plan_cover(trm_plan *plan, const trm_dims *dims)
{
    trm_dims *all = calloc((size_t)plan->network->n_tensors + 1, sizeof(*all));
    if (all == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the dims of %d tensors", plan->network->n_tensors);
    }
    memcpy(all, plan->max_dims, (size_t)plan->network->n_tensors * sizeof(*all));
    for (int32_t i = 0; i < plan->network->n_tensors; i++) {
        if (plan->network->tensors[i]->role == TRM_TENSOR_INPUT) {
            all[i] = dims[i];
        }
    }
    trm_status status = trm_infer_network(plan->network, all);
    if (status == TRM_OK) {
        status = measure_workspace(plan, all, &plan->workspace_bytes);
    }
    if (status == TRM_OK) {
        status = check_total(plan);
    }
    free(all);
    return status;
}

void trm_plan_destroy(trm_plan *plan)
{
    if (plan != NULL) {
        trm_network_destroy(plan->network);
        trm_arena_fini(&plan->arena);
        free(plan);
    }
}

char *trm_plan_to_text(const trm_plan *plan)
{
    return plan == NULL ? NULL : trm_network_to_text(plan->network);
}

void trm_plan_memory(const trm_plan *plan, trm_memory_plan *memory)
{
    *memory = (trm_memory_plan){
        .weights = plan->weight_bytes,
        .state = plan->state_bytes,
        .activations = plan->input_bytes + plan->activation_bytes,
        .workspace = plan->workspace_bytes,
    };
    memory->total = memory->weights + memory->state + memory->activations + memory->workspace;
}
