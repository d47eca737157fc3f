/*
 * Planning ahead for dims that are new: kernels that ask a library how to run a problem before they first do (an engine
 * of cuDNN, an algorithm of cuBLASLt) ask for all layers at a time, on the rank's processors, not one by one as the
 * layers are enqueued.
 */
#include "dist/runtime/engine.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/log.h"
#include "dist/runtime/load.h"
#include "kernels/prepare.h"

typedef struct preparing {
    const trm_context *context;
    int32_t *layers; /* [n] those that have something to plan */
    int32_t n;
    pthread_mutex_t mutex;
    int32_t failed; /* the first layer that did, or the number of layers */
    trm_held_error failure;
} preparing;

static void prepare_range(void *user, int64_t begin, int64_t end)
{
    preparing *p = user;
    for (int64_t i = begin; i < end; i++) {
        const trm_context_step *step = &p->context->steps[p->layers[i]];
        trm_status status = trm_preparation_find(step->kernel)->prepare(&step->call);
        if (status == TRM_OK) {
            continue;
        }
        pthread_mutex_lock(&p->mutex);
        if (p->layers[i] < p->failed) { /* the same whichever thread is first */
            p->failed = p->layers[i];
            trm_error_hold(status, &p->failure);
        }
        pthread_mutex_unlock(&p->mutex);
    }
}

/* Whether the kernel of a layer is one that this context's next run would have plan something. */
static bool has_to_plan(const trm_context *context, int32_t layer)
{
    const trm_context_step *step = &context->steps[layer];
    const trm_preparation *preparation =
        step->kernel == NULL || step->is_offloaded ? NULL : trm_preparation_find(step->kernel);
    return preparation != NULL && !preparation->is_done(&step->call);
}

/* The engine's threads, made when first wanted; NULL if there are none to be had: one thread then does it. */
static trm_pool *find_planners(trm_engine *engine)
{
    pthread_mutex_lock(&engine->planning);
    if (engine->planners == NULL && trm_pool_create(trm_world_threads(engine->world), &engine->planners) != TRM_OK) {
        TRM_WARN("kernels are planned by one thread: %s", trm_last_error());
        engine->planners = NULL;
    }
    trm_pool *planners = engine->planners;
    pthread_mutex_unlock(&engine->planning);
    return planners;
}

trm_status trm_context_prepare_steps(trm_context *context, int32_t begin, int32_t end)
{
    preparing p = {.context = context, .mutex = PTHREAD_MUTEX_INITIALIZER, .failed = end};
    int32_t first = begin;
    while (first < end && !has_to_plan(context, first)) {
        first++;
    }
    if (first == end || context->tuning != NULL) { /* tuning times what it then runs */
        return TRM_OK;
    }
    if (context->to_prepare == NULL) {
        const size_t n = (size_t)context->engine->plan->network->n_layers;
        context->to_prepare = calloc(n, sizeof(*context->to_prepare));
        if (context->to_prepare == NULL) {
            TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a list of %zu layers", n);
        }
    }
    p.layers = context->to_prepare;
    for (int32_t i = first; i < end; i++) {
        if (i == first || has_to_plan(context, i)) {
            p.layers[p.n++] = i;
        }
    }
    trm_pool_for(p.n > 1 ? find_planners(context->engine) : NULL, p.n, 1, prepare_range, &p);
    if (p.failure.status == TRM_OK) {
        return TRM_OK;
    }
    return trm_fail(p.failure.status, "layer %s (%s): %s", context->engine->plan->network->layers[p.failed]->name,
                    context->steps[p.failed].kernel->name, p.failure.cause);
}
