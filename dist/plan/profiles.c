/*
 * The profiles of a plan, from the caller's bounds.
 */
#include "dist/plan/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "graph/layer_runs.h"
#include "graph/memory_plan.h"

/* Checks the bound of `tensor` of the rank's network: dimensions that the network knows must agree. */
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

/* Checks the dims of a point of a bound: sizes, equal to known ones, min <= opt <= max. */
static trm_status check_point(const trm_tensor *tensor, const trm_shape_bound *bound, trm_plan_point point)
{
    const trm_dims *found = trm_shape_bound_dims(bound, point);
    const trm_dims *above = point == TRM_POINT_MAX ? found : trm_shape_bound_dims(bound, (trm_plan_point)(point + 1));
    trm_dims dims;
    TRM_TRY(apply_bound(tensor, found, &dims));
    for (int32_t k = 0; k < dims.n; k++) {
        if (dims.d[k] != found->d[k]) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "bound of %s has %lld at dimension %d, expected %lld", tensor->name,
                     (long long)found->d[k], k, (long long)dims.d[k]);
        }
        if (above->n == dims.n && dims.d[k] > above->d[k]) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "bound of %s has %lld as %s and %lld as %s at dimension %d",
                     tensor->name, (long long)dims.d[k], trm_plan_point_name(point), (long long)above->d[k],
                     trm_plan_point_name((trm_plan_point)(point + 1)), k);
        }
    }
    return TRM_OK;
}

trm_status trm_plan_check_bounds(const trm_network *network, const trm_build_options *options)
{
    for (int32_t i = 0; i < options->n_bounds; i++) {
        const trm_shape_bound *bound = &options->bounds[i];
        const trm_tensor *tensor = trm_network_find_tensor(network, bound->tensor);
        if (tensor == NULL || (tensor->role != TRM_TENSOR_INPUT && tensor->role != TRM_TENSOR_STATE)) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "bound for %s, which is not an input or state of the network",
                     bound->tensor == NULL ? "NULL" : bound->tensor);
        }
        if (bound->profile < 0 || bound->profile >= TRM_MAX_PROFILES) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "bound of %s has profile %d, expected 0 to %d", tensor->name,
                     bound->profile, TRM_MAX_PROFILES - 1);
        }
        for (int32_t point = TRM_POINT_COUNT; point-- > 0;) {
            TRM_TRY(check_point(tensor, bound, (trm_plan_point)point));
        }
    }
    return TRM_OK;
}

static const trm_shape_bound *find_bound(const trm_build_options *options, const char *name, int32_t profile)
{
    return trm_shape_bound_find(options->bounds, options->n_bounds, name, profile);
}

trm_status trm_plan_expect_runs(const trm_network *network, const trm_build_options *options, int32_t *runs)
{
    const size_t n = (size_t)network->n_tensors + 1;
    trm_dims *dims = calloc(n, sizeof(*dims));
    const void **values = calloc(n, sizeof(*values));
    trm_status status = TRM_OK;
    if (dims == NULL || values == NULL) {
        status = trm_fail(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the dims of %zu tensors", n - 1);
    }
    for (int32_t i = 0; status == TRM_OK && i < network->n_tensors; i++) {
        const trm_tensor *tensor = network->tensors[i];
        const trm_shape_bound *bound = tensor->name == NULL ? NULL : find_bound(options, tensor->name, 0);
        dims[i] = tensor->dims;
        if (bound != NULL && (tensor->role == TRM_TENSOR_INPUT || tensor->role == TRM_TENSOR_STATE)) {
            status = apply_bound(tensor, trm_shape_bound_dims(bound, TRM_POINT_OPT), &dims[i]);
            values[i] = tensor->role == TRM_TENSOR_INPUT ? trm_shape_bound_values(bound, TRM_POINT_OPT) : NULL;
        }
    }
    bool guessed;
    status = status == TRM_OK ? trm_layer_runs(network, dims, values, runs, &guessed) : status;
    free(dims);
    free(values);
    return status;
}

/* A copy of the elements of a tensor at a point, or NULL. */
static trm_status copy_values(trm_plan *plan, const trm_tensor *tensor, const trm_dims *dims, const void *values,
                              const void **copy)
{
    *copy = NULL;
    if (values == NULL) {
        return TRM_OK;
    }
    size_t bytes;
    TRM_TRY(trm_tensor_bytes(tensor, dims, &bytes));
    void *made = trm_arena_alloc(&plan->arena, bytes > 0 ? bytes : 1);
    if (made == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    *copy = memcpy(made, values, bytes);
    return TRM_OK;
}

/* Copies the dims and elements of a bound at all points of a profile. */
static trm_status set_input_points(trm_plan *plan, trm_plan_profile *profile, const trm_tensor *tensor,
                                   const trm_shape_bound *bound)
{
    const trm_shape_bound fixed = {.tensor = tensor->name, .max = tensor->dims};
    bound = bound == NULL ? &fixed : bound;
    for (int32_t point = 0; point < TRM_POINT_COUNT; point++) {
        trm_dims *dims = &profile->dims[point][tensor->index];
        TRM_TRY(apply_bound(tensor, trm_shape_bound_dims(bound, (trm_plan_point)point), dims));
        profile->has[point] = profile->has[point] || trm_shape_bound_says(bound, (trm_plan_point)point);
        const void *values = trm_shape_bound_values(bound, (trm_plan_point)point);
        TRM_TRY(copy_values(plan, tensor, dims, values, &profile->values[point][tensor->index]));
    }
    return TRM_OK;
}

/* Whether a named dimension is known at a point, from the caller or the network. */
static bool says_dim(const trm_build_options *options, int32_t profile, trm_plan_point point, const trm_named_dim *dim)
{
    const trm_shape_bound *bound = find_bound(options, dim->input->name, profile);
    return dim->input->dims.d[dim->axis] >= 0 || (bound != NULL && trm_shape_bound_says(bound, point));
}

/* At a point that an input's bound lacks, its named dimensions take the size of others of the name. */
static void follow_names(const trm_plan *plan, trm_plan_profile *profile, const trm_build_options *options,
                         int32_t index, trm_plan_point point)
{
    const trm_network *network = plan->network;
    for (int32_t last = 0; last < network->n_named_dims; last++) {
        int64_t size = -1;
        for (int32_t i = network->named_dims[last].is_last ? last : -1; i >= 0; i = network->named_dims[i].previous) {
            const trm_named_dim *dim = &network->named_dims[i];
            if (says_dim(options, index, point, dim)) {
                size = profile->dims[point][dim->input->index].d[dim->axis];
            }
        }
        for (int32_t i = size >= 0 ? last : -1; i >= 0; i = network->named_dims[i].previous) {
            const trm_named_dim *dim = &network->named_dims[i];
            const int32_t input = dim->input->index;
            if (profile->values[point][input] == NULL && !says_dim(options, index, point, dim)) {
                profile->dims[point][input].d[dim->axis] = size;
            }
        }
    }
}

/* Sizes of dimensions that have a name at each point of a profile; warns once where a name has several. */
static void settle_names(const trm_plan *plan, trm_plan_profile *profile, const trm_build_options *options,
                         int32_t index)
{
    bool warned = false;
    for (int32_t point = TRM_POINT_COUNT; point-- > 0;) {
        char where[64];
        snprintf(where, sizeof(where), "profile %d at its %s dims: ", (int)index,
                 trm_plan_point_name((trm_plan_point)point));
        follow_names(plan, profile, options, index, (trm_plan_point)point);
        warned = warned || trm_network_check_named_dims(plan->network, profile->dims[point], true, where);
    }
}

/* Checks that ranks that split a batch divide it at each point. */
static trm_status check_batches(const trm_plan *plan, const trm_plan_profile *profile, int32_t index)
{
    for (int32_t point = TRM_POINT_COUNT; point-- > 0;) {
        for (int32_t i = 0; i < plan->network->n_tensors; i++) {
            const trm_tensor *tensor = plan->network->tensors[i];
            if (tensor->role != TRM_TENSOR_INPUT) {
                continue;
            }
            const trm_status status = trm_partition_check_batch(tensor, &profile->dims[point][i]);
            if (status != TRM_OK) {
                return trm_fail_in(status, "profile %d at its %s dims", (int)index,
                                   trm_plan_point_name((trm_plan_point)point));
            }
        }
    }
    return TRM_OK;
}

/* The smallest dims of an input whose bound has no min are 0. */
static void open_downwards(const trm_plan *plan, trm_plan_profile *profile, const trm_build_options *options,
                           int32_t index)
{
    for (int32_t i = 0; i < plan->network->n_tensors; i++) {
        const trm_tensor *tensor = plan->network->tensors[i];
        const trm_shape_bound *bound = find_bound(options, tensor->name, index);
        for (int32_t k = 0; tensor->role == TRM_TENSOR_INPUT && k < tensor->dims.n; k++) {
            if (tensor->dims.d[k] < 0 && (bound == NULL || bound->min.n == 0)) {
                profile->least[i].d[k] = 0;
            }
        }
    }
}

/* Keeps the bounds of inputs for trm_plan_get_bound. */
static trm_status keep_bounds(trm_plan *plan, const trm_build_options *options)
{
    plan->bounds = trm_arena_array(&plan->arena, (size_t)options->n_bounds + 1, sizeof(*plan->bounds));
    if (plan->bounds == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    for (int32_t i = 0; i < options->n_bounds; i++) {
        const trm_shape_bound *bound = &options->bounds[i];
        const trm_tensor *tensor = trm_network_find_tensor(plan->network, bound->tensor);
        if (tensor == NULL || tensor->role != TRM_TENSOR_INPUT) {
            continue;
        }
        trm_shape_bound *kept = &plan->bounds[plan->n_bounds++];
        *kept = *bound;
        kept->tensor = tensor->name;
        TRM_TRY(copy_values(plan, tensor, &bound->max, bound->max_values, &kept->max_values));
        TRM_TRY(copy_values(plan, tensor, trm_shape_bound_dims(bound, TRM_POINT_MIN), bound->min_values,
                            &kept->min_values));
        TRM_TRY(copy_values(plan, tensor, trm_shape_bound_dims(bound, TRM_POINT_OPT), bound->opt_values,
                            &kept->opt_values));
    }
    return TRM_OK;
}

static trm_status set_profile(trm_plan *plan, const trm_build_options *options, int32_t index)
{
    trm_plan_profile *profile = &plan->profiles[index];
    size_t n = (size_t)plan->network->n_tensors;
    profile->least = trm_arena_array(&plan->arena, n, sizeof(trm_dims));
    for (int32_t point = 0; point < TRM_POINT_COUNT; point++) {
        profile->dims[point] = trm_arena_array(&plan->arena, n, sizeof(trm_dims));
        profile->values[point] = trm_arena_array(&plan->arena, n, sizeof(void *));
        if (profile->dims[point] == NULL || profile->values[point] == NULL || profile->least == NULL) {
            return TRM_ERROR_OUT_OF_MEMORY;
        }
    }
    profile->has[TRM_POINT_MAX] = true; /* also for networks without inputs */
    for (int32_t i = 0; i < plan->network->n_tensors; i++) {
        const trm_tensor *tensor = plan->network->tensors[i];
        trm_dims *max = &plan->max_dims[i];
        if (tensor->role != TRM_TENSOR_INPUT && tensor->role != TRM_TENSOR_STATE) {
            continue;
        }
        const trm_shape_bound *bound = find_bound(options, tensor->name, index);
        if (bound == NULL && !trm_dims_are_known(&tensor->dims)) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "%s %s has unknown dimensions and no bound",
                     tensor->role == TRM_TENSOR_INPUT ? "input" : "state", tensor->name);
        }
        if (tensor->role == TRM_TENSOR_STATE) {
            TRM_TRY(apply_bound(tensor, bound == NULL ? &tensor->dims : &bound->max, max));
            continue;
        }
        TRM_TRY(set_input_points(plan, profile, tensor, bound));
        const trm_dims *largest = &profile->dims[TRM_POINT_MAX][i];
        max->n = largest->n;
        for (int32_t k = 0; k < max->n; k++) {
            max->d[k] = largest->d[k] > max->d[k] ? largest->d[k] : max->d[k];
        }
    }
    settle_names(plan, profile, options, index);
    TRM_TRY(check_batches(plan, profile, index));
    memcpy(profile->least, profile->dims[TRM_POINT_MIN], n * sizeof(trm_dims));
    open_downwards(plan, profile, options, index);
    return TRM_OK;
}

trm_status trm_plan_set_profiles(trm_plan *plan, const trm_build_options *options)
{
    size_t n = (size_t)plan->network->n_tensors;
    plan->max_dims = trm_arena_array(&plan->arena, n, sizeof(trm_dims));
    plan->on_host = trm_arena_array(&plan->arena, n, sizeof(bool));
    size_t **tables[] = {&plan->weight_offsets, &plan->state_offsets, &plan->input_offsets, &plan->activation_offsets,
                         &plan->tensor_bytes};
    bool allocated = plan->max_dims != NULL && plan->on_host != NULL;
    for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++) {
        *tables[i] = trm_arena_array(&plan->arena, n, sizeof(size_t));
        allocated = allocated && *tables[i] != NULL;
    }
    if (!allocated) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    for (size_t i = 0; i < n; i++) {
        const trm_tensor *tensor = plan->network->tensors[i];
        plan->max_dims[i] = tensor->role == TRM_TENSOR_CONSTANT ? tensor->dims : (trm_dims){0};
    }
    plan->n_profiles = 1;
    for (int32_t i = 0; i < options->n_bounds; i++) {
        int32_t profile = options->bounds[i].profile;
        plan->n_profiles = profile >= plan->n_profiles ? profile + 1 : plan->n_profiles;
    }
    for (int32_t i = 0; i < plan->n_profiles; i++) {
        TRM_TRY(set_profile(plan, options, i));
    }
    return keep_bounds(plan, options);
}
