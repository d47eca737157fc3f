/*
 * Runs at the shapes that profiles name, with zeros for inputs: kernels are loaded, planned and captured by the first
 * runs of a shape, so those behind these do not wait for it.
 */
#include "dist/engine.h"

#include <stdlib.h>

#include "base/error.h"
#include "graph/regions.h"

/* Runs of a shape: what libraries need, then the capture. */
#define RUNS 2

/* Whether a point of a profile says all that decides dims. */
static bool is_whole(const trm_context *context, const trm_plan_profile *profile, int32_t point)
{
    bool whole = profile->has[point];
    for (int32_t i = 0; i < context->n_value_inputs && whole; i++) {
        const int32_t input = context->value_inputs[i]->index;
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

/* As many zeros as the largest input has bytes. */
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

trm_status trm_context_warm_up(trm_context *context)
{
    if (context == NULL || context->is_started) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot warm up: %s",
                 context == NULL ? "context is NULL" : "a run was started and not finished");
    }
    const trm_plan *plan = context->engine->plan;
    TRM_TRY(trm_context_refuse_captured(context, "warm up"));
    if (trm_network_has_regions(plan->network)) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "cannot warm up: what loops and branches do depends on what inputs hold");
    }
    void *zeros = NULL;
    trm_status status = make_zeros(plan, &zeros);
    for (int32_t p = 0; p < plan->n_profiles; p++) {
        const bool wanted = context->profile < 0 || context->profile == p;
        for (int32_t point = 0; point < TRM_POINT_COUNT && wanted && status == TRM_OK; point++) {
            if (is_whole(context, &plan->profiles[p], point)) {
                status = run_point(context, &plan->profiles[p], point, zeros);
            }
        }
    }
    free(zeros);
    for (int32_t i = 0; i < plan->network->n_tensors; i++) {
        context->input_is_set[i] = false;
    }
    return status == TRM_OK && plan->state_bytes > 0 ? trm_context_reset(context) : status;
}
