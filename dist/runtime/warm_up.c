/*
 * Warms up: runs the shapes that profiles name, and all between if they are few, with zeros for inputs. The first runs
 * of a shape load, prepare and capture its kernels, so that later runs do not wait for that.
 */
#include "dist/runtime/context.h"

#include <stdlib.h>

#include "base/error.h"
#include "base/recorder.h"
#include "graph/regions.h"

/* Runs per shape: one to initialize libraries, one to capture. */
#define RUNS 2

/* Whether a point of a profile has all values that decide dims. */
static bool is_whole(const trm_context *context, const trm_plan_profile *profile, int32_t point)
{
    bool whole = profile->has[point];
    int32_t n;
    const trm_tensor *const *inputs = trm_context_value_inputs(context, &n);
    for (int32_t i = 0; i < n && whole; i++) {
        const int32_t input = inputs[i]->index;
        whole = profile->values[point][input] != NULL || trm_dims_count(&profile->dims[point][input]) == 0;
    }
    return whole;
}

static trm_status run_point(trm_context *context, const trm_plan_profile *profile, int32_t point, const void *zeros)
{
    const trm_network *network = context->engine->plan->network;
    for (int32_t i = 0; i < network->n_tensors; i++) {
        const trm_tensor *tensor = network->tensors[i];
        if (tensor->role == TRM_TENSOR_INPUT) {
            const void *values = profile->values[point][i];
            TRM_TRY(
                trm_context_set_input(context, tensor->name, profile->dims[point][i], values != NULL ? values : zeros));
        }
    }
    for (int32_t run = 0; run < RUNS; run++) {
        TRM_TRY(trm_context_run(context));
    }
    return TRM_OK;
}

/* Varying sizes of a profile: dims of inputs with the same bounds, such as the batch, count as one. */
typedef struct sizes {
    int32_t n;
    int64_t min[TRM_MAX_DIMS], max[TRM_MAX_DIMS];
} sizes;

/* The index of a dimension among the sizes, added if new; -1 if it does not vary, TRM_MAX_DIMS if `all` is full. */
static int32_t size_of(sizes *all, int64_t min, int64_t max)
{
    int32_t i = 0;
    while (i < all->n && (all->min[i] != min || all->max[i] != max)) {
        i++;
    }
    if (min == max) {
        return -1;
    }
    if (i == all->n && i < TRM_MAX_DIMS) {
        all->min[i] = min;
        all->max[i] = max;
        all->n++;
    }
    return i;
}

/* Number of shapes from min to max of a profile; 0 if unknown or too many. */
static int64_t count_shapes(const trm_context *context, const trm_plan_profile *profile, sizes *all)
{
    const trm_network *network = context->engine->plan->network;
    int64_t count = 1;
    int32_t n;
    (void)trm_context_value_inputs(context, &n);
    all->n = 0;
    if (!profile->has[TRM_POINT_MIN] || n > 0) {
        return 0;
    }
    for (int32_t i = 0; i < network->n_tensors; i++) {
        const trm_dims *min = &profile->dims[TRM_POINT_MIN][i], *max = &profile->dims[TRM_POINT_MAX][i];
        for (int32_t k = 0; network->tensors[i]->role == TRM_TENSOR_INPUT && k < max->n; k++) {
            if (size_of(all, min->d[k], max->d[k]) == TRM_MAX_DIMS) {
                return 0;
            }
        }
    }
    for (int32_t i = 0; i < all->n && count > 0; i++) {
        const int64_t steps = all->max[i] - all->min[i] + 1;
        count = steps > TRM_KEPT_CAPTURES / count ? 0 : count * steps;
    }
    return count;
}

/* Runs shape number `number`. Skips a shape that the network's rules reject: sizes counted as one may differ. */
static trm_status run_between(trm_context *context, const trm_plan_profile *profile, sizes *all, int64_t number,
                              const void *zeros)
{
    const trm_network *network = context->engine->plan->network;
    int64_t now[TRM_MAX_DIMS];
    for (int32_t i = 0; i < all->n; i++) {
        const int64_t steps = all->max[i] - all->min[i] + 1;
        now[i] = all->min[i] + number % steps;
        number /= steps;
    }
    trm_status status = TRM_OK;
    for (int32_t i = 0; i < network->n_tensors && status == TRM_OK; i++) {
        const trm_tensor *tensor = network->tensors[i];
        trm_dims dims = tensor->role == TRM_TENSOR_INPUT ? profile->dims[TRM_POINT_MAX][i] : (trm_dims){0};
        for (int32_t k = 0; k < dims.n; k++) {
            const int32_t size = size_of(all, profile->dims[TRM_POINT_MIN][i].d[k], dims.d[k]);
            dims.d[k] = size >= 0 ? now[size] : dims.d[k];
        }
        if (tensor->role == TRM_TENSOR_INPUT) {
            status = trm_context_set_input(context, tensor->name, dims, zeros);
        }
    }
    for (int32_t run = 0; run < RUNS && status == TRM_OK; run++) {
        status = trm_context_run(context);
    }
    return status == TRM_ERROR_INVALID_ARGUMENT ? TRM_OK : status;
}

static trm_status run_profile(trm_context *context, const trm_plan_profile *profile, const void *zeros)
{
    sizes all;
    for (int32_t point = 0; point < TRM_POINT_COUNT; point++) {
        if (is_whole(context, profile, point)) {
            TRM_TRY(run_point(context, profile, point, zeros));
        }
    }
    const int64_t between = count_shapes(context, profile, &all);
    for (int64_t i = 0; i < between; i++) {
        TRM_TRY(run_between(context, profile, &all, i, zeros));
    }
    return TRM_OK;
}

/* Zeros for the largest input. */
static trm_status make_zeros(const trm_plan *plan, void **zeros)
{
    size_t bytes = 1;
    for (int32_t i = 0; i < plan->network->n_tensors; i++) {
        const trm_tensor *tensor = plan->network->tensors[i];
        const size_t of_input =
            tensor->role == TRM_TENSOR_INPUT ? trm_dims_bytes(&plan->max_dims[i], tensor->dtype) : 0;
        bytes = of_input > bytes ? of_input : bytes;
    }
    *zeros = calloc(bytes, 1);
    if (*zeros == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %zu bytes for an input", bytes);
    }
    return TRM_OK;
}

TRM_CALL(trm_context_recorder(context), trm_context_warm_up, (trm_context *context), (context))
{
    if (context == NULL || context->is_started) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot warm up: %s",
                 context == NULL ? "context is NULL" : "a run was started but not finished");
    }
    const trm_plan *plan = context->engine->plan;
    TRM_TRY(trm_context_refuse_captured(context, "warm up"));
    if (trm_network_has_regions(plan->network)) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "cannot warm up: loops or branches depend on the elements of inputs");
    }
    void *zeros = NULL;
    trm_status status = make_zeros(plan, &zeros);
    for (int32_t p = 0; p < plan->n_profiles; p++) {
        const bool wanted = trm_context_runs_profile(context, p);
        if (wanted && status == TRM_OK) {
            status = run_profile(context, &plan->profiles[p], zeros);
        }
    }
    free(zeros);
    trm_context_forget_inputs(context);
    return status == TRM_OK && plan->state_bytes > 0 ? trm_context_reset(context) : status;
}
