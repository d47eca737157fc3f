/*
 * The memory plan: how much every tensor needs at the points of the profiles (min, opt, max).
 *
 * Dims are inferred at each point, and a tensor gets the most that it needs at any of them. Tensors whose dims no point
 * gives are allocated in a run (the count of a data-dependent layer is bounded, but values computed on the device are
 * unknown).
 */
#include "dist/plan/plan.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"
#include "dist/plan/streaming_plan.h"
#include "graph/inference.h"
#include "graph/layer_runs.h"
#include "graph/memory_plan.h"

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

bool trm_plan_layer_is_on_host(const trm_plan *plan, const trm_layer *layer)
{
    bool is = layer->n_outputs > 0;
    for (int32_t i = 0; i < layer->n_outputs; i++) {
        is = is && plan->on_host[layer->outputs[i]->index];
    }
    return is;
}

bool trm_plan_call_is_known(const trm_kernel_call *call)
{
    bool known = true;
    for (int32_t i = 0; i < call->n_inputs; i++) {
        known = known && trm_dims_are_known(&call->inputs[i].dims);
    }
    for (int32_t i = 0; i < call->n_outputs; i++) {
        known = known && trm_dims_are_known(&call->outputs[i].dims);
    }
    return known;
}

size_t trm_plan_kernel_workspace(const trm_plan *plan, const trm_kernel *kernel, const trm_kernel_call *call)
{
    size_t asked = kernel->workspace == NULL ? 0 : kernel->workspace(call);
    bool may_have_less = call->layer->kind == TRM_LAYER_CONVOLUTION && kernel->is_tuned; /* has alternatives */
    return may_have_less && plan->max_workspace > 0 && asked > plan->max_workspace ? plan->max_workspace : asked;
}

/* Why there is no kernel, if known. */
static const char *missing_kernel_cause(const trm_plan *plan)
{
#if !TRM_HAVE_CUDA
    if (plan->backend == TRM_BACKEND_CUDA) {
        return ": this build has no CUDA backend";
    }
#endif
    (void)plan;
    return "";
}

/* Raises *workspace to the need of every kernel that may run for these dims. */
static trm_status measure_workspace(const trm_plan *plan, const trm_dims *dims, size_t *workspace)
{
    for (int32_t i = 0; i < plan->network->n_layers; i++) {
        const trm_layer *layer = plan->network->layers[i];
        trm_kernel_call call;
        trm_plan_describe_call(layer, dims, &call);
        call.batch_invariant = plan->batch_invariant;
        if (trm_plan_layer_is_on_host(plan, layer) || !trm_plan_call_is_known(&call)) {
            continue;
        }
        const trm_kernel *kernel = trm_kernel_find(trm_all_kernels, trm_all_kernels_count, plan->backend, &call);
        if (kernel == NULL) {
            TRM_FAIL(TRM_ERROR_UNSUPPORTED, "layer %s (%s on %s) has no %s kernel%s", layer->name,
                     trm_layer_kind_name(layer->desc.kind),
                     layer->n_inputs > 0 && layer->inputs[0] != NULL ? trm_dtype_name(layer->inputs[0]->dtype)
                                                                     : "nothing",
                     trm_backend_name(plan->backend), missing_kernel_cause(plan));
        }
        size_t needed = trm_plan_kernel_workspace(plan, kernel, &call);
        *workspace = needed > *workspace ? needed : *workspace;
    }
    *workspace = trm_align_up(*workspace, TRM_TENSOR_ALIGNMENT);
    return TRM_OK;
}

/* Whether a tensor lies in a role's region; values computed on the host lie with the inputs. */
static bool lies_in(const trm_plan *plan, const trm_tensor *tensor, trm_tensor_role role)
{
    return (tensor->role == role && trm_streaming_weight(plan, tensor) < 0 && !trm_plan_borrows(plan, tensor)) ||
           (role == TRM_TENSOR_INPUT && plan->on_host[tensor->index]);
}

static trm_status size_in_region(const trm_plan *plan, const trm_tensor *tensor, size_t *bytes)
{
    *bytes = plan->tensor_bytes[tensor->index];
    return plan->on_host[tensor->index] ? TRM_OK : trm_tensor_bytes(tensor, &plan->max_dims[tensor->index], bytes);
}

static trm_status lay_out_tensor(const trm_plan *plan, const trm_tensor *tensor, size_t *offsets, size_t *total)
{
    size_t bytes;
    TRM_TRY(size_in_region(plan, tensor, &bytes));
    offsets[tensor->index] = *total;
    if (bytes > SIZE_MAX - TRM_TENSOR_ALIGNMENT ||
        !trm_checked_add(*total, trm_align_up(bytes, TRM_TENSOR_ALIGNMENT), total)) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "the plan exceeds the address space at tensor %s", tensor->name);
    }
    return TRM_OK;
}

/* Places every tensor of a role in its region, with `last` (-1: none) at the end. */
static trm_status lay_out(const trm_plan *plan, trm_tensor_role role, int32_t last, size_t *offsets, size_t *total)
{
    *total = 0;
    for (int32_t i = 0; i < plan->network->n_tensors; i++) {
        const trm_tensor *tensor = plan->network->tensors[i];
        offsets[i] = SIZE_MAX;
        if (i != last && lies_in(plan, tensor, role)) {
            TRM_TRY(lay_out_tensor(plan, tensor, offsets, total));
        }
    }
    return last < 0 ? TRM_OK : lay_out_tensor(plan, plan->network->tensors[last], offsets, total);
}

/* The copied region ends with the largest input, so that a run copies only the used part of it. */
static trm_status lay_out_inputs(trm_plan *plan)
{
    size_t bytes, most = 0;
    plan->last_input = -1;
    for (int32_t i = 0; i < plan->network->n_tensors; i++) {
        if (lies_in(plan, plan->network->tensors[i], TRM_TENSOR_INPUT)) {
            TRM_TRY(size_in_region(plan, plan->network->tensors[i], &bytes));
            plan->last_input = plan->last_input < 0 || bytes > most ? i : plan->last_input;
            most = bytes > most ? bytes : most;
        }
    }
    return lay_out(plan, TRM_TENSOR_INPUT, plan->last_input, plan->input_offsets, &plan->input_bytes);
}

/* From here on the regions can be added without overflow checks. */
static trm_status check_total(const trm_plan *plan)
{
    size_t workspace;
    if (!trm_checked_mul(plan->workspace_bytes, (size_t)plan->streams.n + 1, &workspace)) {
        workspace = SIZE_MAX;
    }
    const size_t parts[] = {plan->weight_bytes, plan->state_bytes, plan->input_bytes, plan->activation_bytes,
                            workspace};
    size_t total = 0;
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        if (!trm_checked_add(total, parts[i], &total) || total > PTRDIFF_MAX) {
            TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "the plan exceeds the address space");
        }
    }
    return TRM_OK;
}

/* ---- points ------------------------------------------------------------------------------------ */

/* Infers dims [n_tensors] from those of inputs and states, with the values of the point, or unknown values for a NULL
 * profile. `count` is the count of data-dependent layers, TRM_COUNT_LARGEST or OPEN; *counted says whether there are
 * any. */
static trm_status infer_with_counts(trm_inference *inference, const trm_plan *plan, const trm_plan_profile *profile,
                                    trm_plan_point point, int64_t count, trm_dims *dims, bool *counted)
{
    for (int32_t i = 0; i < plan->network->n_tensors; i++) {
        const trm_tensor *tensor = plan->network->tensors[i];
        if (tensor->role == TRM_TENSOR_INPUT && trm_inference_wants(inference, tensor)) {
            TRM_TRY(
                trm_inference_give(inference, tensor, &dims[i], profile == NULL ? NULL : profile->values[point][i]));
        }
    }
    TRM_TRY(trm_inference_begin(inference, dims));
    trm_inference_stop stop;
    TRM_TRY(trm_inference_run(inference, &stop));
    while (stop.state != TRM_INFERENCE_DONE) {
        if (stop.state == TRM_INFERENCE_COUNT) {
            *counted = true;
            TRM_TRY(trm_inference_give_count(inference, count));
        } else {
            TRM_TRY(trm_inference_give(inference, stop.tensor, NULL, NULL));
        }
        TRM_TRY(trm_inference_run(inference, &stop));
    }
    return TRM_OK;
}

/* The same with the largest counts. If a network is valid only for others, as when entries are reshaped to fixed dims,
 * counts stay open, and a run with a wrong count fails. To find a valid count would take a walk for each. */
static trm_status infer_point(trm_inference *inference, const trm_plan *plan, const trm_plan_profile *profile,
                              trm_plan_point point, trm_dims *dims)
{
    bool counted = false;
    trm_status status = infer_with_counts(inference, plan, profile, point, TRM_COUNT_LARGEST, dims, &counted);
    if (status != TRM_ERROR_INVALID_ARGUMENT || !counted) {
        return status;
    }
    TRM_DEBUG("data-dependent dims stay unknown, because the largest do not fit: %s", trm_last_error());
    return infer_with_counts(inference, plan, profile, point, TRM_COUNT_OPEN, dims, &counted);
}

/* Dims of inputs at a point; the rest is as in max_dims. */
static void start_point(const trm_plan *plan, const trm_plan_profile *profile, trm_plan_point point, trm_dims *dims)
{
    memcpy(dims, plan->max_dims, (size_t)plan->network->n_tensors * sizeof(*dims));
    for (int32_t i = 0; i < plan->network->n_tensors; i++) {
        if (plan->network->tensors[i]->role == TRM_TENSOR_INPUT) {
            dims[i] = profile->dims[point][i];
        }
    }
}

/* Raises tensor_bytes to the point's needs, and clears on_host for values that it cannot compute. */
static trm_status measure_tensors(trm_plan *plan, const trm_inference *inference, const trm_dims *dims)
{
    for (int32_t i = 0; i < plan->network->n_tensors; i++) {
        const trm_tensor *tensor = plan->network->tensors[i];
        if (tensor->role != TRM_TENSOR_ACTIVATION) {
            continue;
        }
        size_t bytes = SIZE_MAX;
        if (trm_dims_are_known(&dims[i])) {
            TRM_TRY(trm_tensor_bytes(tensor, &dims[i], &bytes));
        }
        plan->tensor_bytes[i] = bytes > plan->tensor_bytes[i] ? bytes : plan->tensor_bytes[i];
        plan->on_host[i] = plan->on_host[i] && trm_inference_computed(inference, tensor);
    }
    return TRM_OK;
}

typedef enum point_use { USE_TENSORS, USE_WORKSPACE } point_use;

/* Walks over all points of all profiles, the max of profile 0 last, whose dims of activations max_dims keeps. */
static trm_status walk_points(trm_plan *plan, trm_inference *inference, trm_dims *dims, point_use use)
{
    for (int32_t p = plan->n_profiles; p-- > 0;) {
        const trm_plan_profile *profile = &plan->profiles[p];
        for (int32_t point = 0; point < TRM_POINT_COUNT; point++) {
            if (!profile->has[point]) {
                continue;
            }
            start_point(plan, profile, (trm_plan_point)point, dims);
            trm_status status = infer_point(inference, plan, profile, (trm_plan_point)point, dims);
            if (status == TRM_OK && use == USE_TENSORS) {
                status = measure_tensors(plan, inference, dims);
            } else if (status == TRM_OK) {
                status = measure_workspace(plan, dims, &plan->workspace_bytes);
            }
            if (status != TRM_OK) {
                return plan->n_profiles == 1 && point == TRM_POINT_MAX
                           ? status
                           : trm_fail_in(status, "profile %d at its %s dims", p,
                                         trm_plan_point_name((trm_plan_point)point));
            }
        }
    }
    for (int32_t i = 0; i < plan->network->n_tensors; i++) {
        if (plan->network->tensors[i]->role == TRM_TENSOR_ACTIVATION) {
            plan->max_dims[i] = dims[i];
        }
    }
    return TRM_OK;
}

/* Bytes of activations in the arena: values computed on the host lie elsewhere. */
static trm_status place_activations(trm_plan *plan, const trm_regions *regions, size_t *sizes)
{
    int32_t *ends = plan->streams.ends;
    if (regions->n > 0) { /* then there is one stream */
        ends = trm_arena_array(&plan->arena, (size_t)plan->network->n_tensors + 1, sizeof(*ends));
        if (ends == NULL) {
            return TRM_ERROR_OUT_OF_MEMORY;
        }
        trm_regions_extend_lives(plan->network, regions, ends);
    }
    plan->grows = false;
    for (int32_t i = 0; i < plan->network->n_tensors; i++) {
        bool is_activation = plan->network->tensors[i]->role == TRM_TENSOR_ACTIVATION;
        sizes[i] = plan->on_host[i] ? TRM_NO_PLACE : plan->tensor_bytes[i];
        plan->grows = plan->grows || (is_activation && plan->tensor_bytes[i] == SIZE_MAX);
    }
    return trm_memory_plan_place(plan->network, sizes, ends, plan->activation_offsets, &plan->activation_bytes);
}

#define AUTO_STREAMS 2    /* four are hardly faster than two (docs/measurements/2026-11-21.md) */
#define LEAST_WIDTH  1.25 /* layers that can run at once: networks with fewer gain nothing */

/* Chooses streams for parallel branches, if a run waits for nothing and only tensors order layers. */
static trm_status assign_streams(trm_plan *plan, const trm_inference *inference)
{
    const trm_network *network = plan->network;
    int32_t most = plan->max_aux_streams == TRM_AUX_STREAMS_AUTO ? AUTO_STREAMS : plan->max_aux_streams;
    bool wanted = most > 0 && plan->backend == TRM_BACKEND_CUDA && !trm_inference_may_stop(inference);
    if (wanted && plan->max_aux_streams == TRM_AUX_STREAMS_AUTO) {
        double width;
        TRM_TRY(trm_streams_width(network, &width));
        TRM_DEBUG("on average %.2f layers can run at once", width);
        wanted = width >= LEAST_WIDTH;
    }
    for (int32_t i = 0; i < network->n_tensors; i++) {
        wanted = wanted && network->tensors[i]->role != TRM_TENSOR_STATE && plan->tensor_bytes[i] != SIZE_MAX;
    }
    bool *skipped = calloc((size_t)network->n_layers + 1, sizeof(*skipped));
    if (skipped == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a list of %d layers", network->n_layers);
    }
    for (int32_t i = 0; i < network->n_layers; i++) {
        skipped[i] = trm_plan_layer_is_on_host(plan, network->layers[i]);
    }
    trm_status status = trm_streams_assign(network, skipped, wanted ? most : 0, &plan->arena, &plan->streams);
    free(skipped);
    if (plan->streams.n == 0) {
        plan->streams = (trm_streams){0};
    }
    return status;
}

/* Tensors of regions differ in every pass and may not be computed: they have no single value for a run. */
static bool may_be_on_host(const trm_regions *regions, const trm_tensor *tensor)
{
    return tensor->role == TRM_TENSOR_ACTIVATION &&
           (regions->n == 0 ||
            (regions->inside[tensor->producer->index] < 0 && !trm_kind_is_control(tensor->producer->desc.kind)));
}

static trm_status plan_with(trm_plan *plan, trm_inference *inference, trm_dims *dims, size_t *sizes)
{
    for (int32_t i = 0; i < plan->network->n_tensors; i++) {
        plan->tensor_bytes[i] = 0;
        plan->on_host[i] = may_be_on_host(trm_inference_regions(inference), plan->network->tensors[i]);
    }
    plan->workspace_bytes = 0;
    TRM_TRY(walk_points(plan, inference, dims, USE_TENSORS));
    TRM_TRY(walk_points(plan, inference, dims, USE_WORKSPACE));
    TRM_TRY(lay_out(plan, TRM_TENSOR_CONSTANT, -1, plan->weight_offsets, &plan->weight_bytes));
    TRM_TRY(lay_out(plan, TRM_TENSOR_STATE, -1, plan->state_offsets, &plan->state_bytes));
    TRM_TRY(lay_out_inputs(plan));
    TRM_TRY(assign_streams(plan, inference));
    TRM_TRY(place_activations(plan, trm_inference_regions(inference), sizes));
    return check_total(plan);
}

/* Runs `use` with an inference and its dims. */
static trm_status with_inference(trm_plan *plan, trm_status (*use)(trm_plan *, trm_inference *, trm_dims *, size_t *))
{
    size_t n = (size_t)plan->network->n_tensors + 1;
    trm_dims *dims = calloc(n, sizeof(*dims));
    size_t *sizes = calloc(n, sizeof(*sizes));
    trm_inference *inference = NULL;
    trm_status status;
    if (dims == NULL || sizes == NULL) {
        status = trm_fail(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the dims of %zu tensors", n - 1);
        goto done;
    }
    TRM_TRY_GOTO(status, trm_inference_create(plan->network, &inference), done);
    status = use(plan, inference, dims, sizes);
done:
    trm_inference_destroy(inference);
    free(dims);
    free(sizes);
    return status;
}

trm_status trm_plan_usual_dims(trm_plan *plan, int32_t profile, trm_dims *dims)
{
    const trm_plan_profile *from = &plan->profiles[profile];
    trm_plan_point point = from->has[TRM_POINT_OPT] ? TRM_POINT_OPT : TRM_POINT_MAX;
    trm_inference *inference = NULL;
    TRM_TRY(trm_inference_create(plan->network, &inference));
    start_point(plan, from, point, dims);
    trm_status status = infer_point(inference, plan, from, point, dims);
    trm_inference_destroy(inference);
    return status;
}

trm_status trm_plan_layer_runs(const trm_plan *plan, int32_t *runs, bool *guessed)
{
    const trm_plan_profile *profile = &plan->profiles[0];
    const trm_plan_point point = profile->has[TRM_POINT_OPT] ? TRM_POINT_OPT : TRM_POINT_MAX;
    trm_dims *dims = calloc((size_t)plan->network->n_tensors + 1, sizeof(*dims));
    if (dims == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the dims of %d tensors", plan->network->n_tensors);
    }
    start_point(plan, profile, point, dims);
    trm_status status = trm_layer_runs(plan->network, dims, profile->values[point], runs, guessed);
    free(dims);
    return status;
}

trm_status trm_plan_lay_out_memory(trm_plan *plan)
{
    return with_inference(plan, plan_with);
}

trm_status trm_plan_lay_out_weights(trm_plan *plan)
{
    TRM_TRY(lay_out(plan, TRM_TENSOR_CONSTANT, -1, plan->weight_offsets, &plan->weight_bytes));
    return check_total(plan);
}

trm_status trm_plan_borrow_weights(trm_plan *plan, const trm_plan *lender)
{
    const trm_network *network = plan->network;
    plan->borrowed = trm_arena_array(&plan->arena, (size_t)network->n_tensors, sizeof(*plan->borrowed));
    if (plan->borrowed == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the weights of %d tensors", network->n_tensors);
    }
    for (int32_t i = 0; i < network->n_tensors; i++) {
        const trm_tensor *tensor = network->tensors[i];
        const trm_tensor *theirs =
            tensor->weight == NULL ? NULL : trm_network_find_tensor(lender->network, tensor->name);
        const bool same = theirs != NULL && theirs->role == TRM_TENSOR_CONSTANT && theirs->weight != NULL &&
                          theirs->dtype == tensor->dtype && trm_dims_equal(&theirs->dims, &tensor->dims) &&
                          trm_weight_equal(theirs->weight, tensor->weight);
        plan->borrowed[i] = same && trm_streaming_weight(lender, theirs) < 0 ? theirs : NULL;
    }
    return trm_plan_lay_out_weights(plan);
}

trm_status trm_plan_set_state_blocks(trm_plan *plan, int64_t blocks)
{
    for (int32_t i = 0; i < plan->network->n_tensors; i++) {
        const trm_tensor *tensor = plan->network->tensors[i];
        if (trm_tensor_is_by_block(tensor)) {
            plan->max_dims[i].d[0] = blocks;
        }
    }
    return trm_plan_lay_out_memory(plan);
}

size_t trm_plan_slot_bytes(const trm_plan *plan)
{
    size_t total = 0, bytes;
    for (int32_t i = 0; i < plan->network->n_tensors; i++) {
        const trm_tensor *tensor = plan->network->tensors[i];
        if (tensor->role == TRM_TENSOR_STATE && !trm_tensor_is_by_block(tensor) &&
            trm_tensor_bytes(tensor, &plan->max_dims[i], &bytes) == TRM_OK) {
            total += trm_align_up(bytes, TRM_TENSOR_ALIGNMENT);
        }
    }
    return total;
}

trm_status trm_plan_cover(trm_plan *plan, const trm_dims *dims)
{
    trm_dims *all = calloc((size_t)plan->network->n_tensors + 1, sizeof(*all));
    trm_inference *inference = NULL;
    trm_status status;
    if (all == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the dims of %d tensors", plan->network->n_tensors);
    }
    memcpy(all, plan->max_dims, (size_t)plan->network->n_tensors * sizeof(*all));
    for (int32_t i = 0; i < plan->network->n_tensors; i++) {
        if (plan->network->tensors[i]->role == TRM_TENSOR_INPUT) {
            all[i] = dims[i];
        }
    }
    TRM_TRY_GOTO(status, trm_inference_create(plan->network, &inference), done);
    TRM_TRY_GOTO(status, infer_point(inference, plan, NULL, TRM_POINT_MAX, all), done);
    TRM_TRY_GOTO(status, measure_workspace(plan, all, &plan->workspace_bytes), done);
    status = check_total(plan);
done:
    trm_inference_destroy(inference);
    free(all);
    return status;
}
