/*
 * Prepares kernels for new dims: kernels that ask a library for an engine (cuDNN) or algorithm (cuBLASLt) before their
 * first launch do so for all layers in parallel, on the rank's CPUs, instead of one by one as layers are enqueued.
 */
#include "dist/runtime/context.h"

#include <stdlib.h>

#include "base/error.h"
#include "base/log.h"
#include "dist/runtime/load.h"
#include "kernels/prepare.h"

typedef struct planning {
    const trm_program *program;
    int32_t *launches; /* [n] launches with something to prepare */
    int32_t n;
    pthread_mutex_t mutex;
    int32_t failed; /* the first launch that failed, or the number of launches */
    trm_held_error failure;
} planning;

static void plan_range(void *user, int64_t begin, int64_t end)
{
    planning *p = user;
    for (int64_t i = begin; i < end; i++) {
        const trm_kernel_call *call;
        const trm_kernel *kernel = trm_launch_kernel(&p->program->launches[p->launches[i]], &call);
        trm_status status = trm_preparation_find(kernel)->prepare(call);
        if (status == TRM_OK) {
            continue;
        }
        pthread_mutex_lock(&p->mutex);
        if (p->launches[i] < p->failed) { /* the same error whichever thread is first */
            p->failed = p->launches[i];
            trm_error_hold(status, &p->failure);
        }
        pthread_mutex_unlock(&p->mutex);
    }
}

/* Whether the next run would prepare something for this launch. */
static bool has_to_plan(const trm_program *program, int32_t launch)
{
    const trm_kernel_call *call;
    const trm_kernel *kernel = trm_launch_kernel(&program->launches[launch], &call);
    const trm_preparation *preparation = kernel == NULL ? NULL : trm_preparation_find(kernel);
    return preparation != NULL && !preparation->is_done(call);
}

/* The engine's threads, created when first needed; NULL if that fails: one thread then prepares. */
static trm_pool *find_planners(trm_engine *engine)
{
    pthread_mutex_lock(&engine->planning);
    if (engine->planners == NULL && trm_pool_create(trm_world_threads(engine->world), &engine->planners) != TRM_OK) {
        TRM_WARN("preparing kernels on one thread: %s", trm_last_error());
        engine->planners = NULL;
    }
    trm_pool *planners = engine->planners;
    pthread_mutex_unlock(&engine->planning);
    return planners;
}

static trm_status reserve(trm_context *context, int32_t n)
{
    if (n > context->to_plan_capacity) {
        int32_t *larger = realloc(context->to_plan, (size_t)n * sizeof(*larger));
        if (larger == NULL) {
            TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a list of %d launches", n);
        }
        context->to_plan = larger;
        context->to_plan_capacity = n;
    }
    return TRM_OK;
}

trm_status trm_context_plan_ahead(trm_context *context)
{
    const trm_program *program = &context->program;
    planning p = {.program = program, .mutex = PTHREAD_MUTEX_INITIALIZER, .failed = program->n};
    int32_t first = 0;
    while (first < program->n && !has_to_plan(program, first)) {
        first++;
    }
    if (first == program->n || context->tuning != NULL) { /* tuning prepares what it times */
        return TRM_OK;
    }
    TRM_TRY(reserve(context, program->n));
    p.launches = context->to_plan;
    for (int32_t i = first; i < program->n; i++) {
        if (i == first || has_to_plan(program, i)) {
            p.launches[p.n++] = i;
        }
    }
    trm_pool_for(p.n > 1 ? find_planners(context->engine) : NULL, p.n, 1, plan_range, &p);
    if (p.failure.status == TRM_OK) {
        return TRM_OK;
    }
    const trm_launch *failed = &program->launches[p.failed];
    return trm_fail(p.failure.status, "layer %s (%s): %s", context->engine->plan->network->layers[failed->layer]->name,
                    failed->name, p.failure.cause);
}
