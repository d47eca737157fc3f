/* Refits an engine: gives the weights of its network new bases, and loads their elements. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/map.h"
#include "base/recorder.h"
#include "dist/runtime/engine.h"
#include "dist/runtime/load.h"
#include "dist/plan/weight_source.h"

/* ---- the weights of a plan ----------------------------------------------------------------------------- */

typedef struct listing {
    trm_map seen;
    trm_weight_fn fn;
    void *user;
} listing;

static trm_status tell_weight(void *user, const trm_weight_form *stored, trm_weight **found)
{
    listing *l = user;
    bool existing;
    *found = NULL;
    TRM_TRY(trm_map_add(&l->seen, stored->name, strlen(stored->name), 0, &existing));
    if (!existing) {
        l->fn(l->user, stored->name, stored->dtype, &stored->dims);
    }
    return TRM_OK;
}

TRM_CALL(NULL, trm_plan_for_weights, (const trm_plan *plan, trm_weight_fn fn, void *user), (plan, fn, user))
{
    if (plan == NULL || fn == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot list weights: plan or function is NULL");
    }
    listing l = {.fn = fn, .user = user};
    trm_status status = TRM_OK;
    for (int32_t i = 0; status == TRM_OK && i < plan->network->n_tensors; i++) {
        trm_weight *same = NULL;
        if (plan->network->tensors[i]->weight != NULL) {
            status = trm_weight_rebase(plan->network->tensors[i]->weight, tell_weight, &l, &same);
        }
    }
    trm_map_fini(&l.seen);
    return status;
}

/* ---- refit --------------------------------------------------------------------------------------------- */

static trm_status load_changed(trm_engine *engine, const bool *changed)
{
    trm_plan *plan = engine->plan;
    trm_status status = trm_load_run(engine, &(trm_load_options){.only = changed});
    if (plan->streaming == NULL) {
        return status;
    }
    engine->places.refilled = true; /* the CPU may have copies of small weights that stay */
    trm_held_error loaded;
    trm_error_hold(status, &loaded);
    const trm_status followed = trm_weight_residency_follow(&engine->places, plan, engine->world->device);
    return loaded.status == TRM_OK ? followed : trm_error_give_back(&loaded);
}

/* Gives every weight of the network the base that `find` returns, and loads changed ones. */
static trm_status refit(trm_engine *engine, trm_weight_find_fn find, void *user, int32_t *n_changed)
{
    const trm_network *network = engine->plan->network;
    bool *changed = calloc((size_t)network->n_tensors + 1, sizeof(*changed));
    trm_status status = TRM_OK;
    *n_changed = 0;
    if (changed == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a list of %d tensors", network->n_tensors);
    }
    for (int32_t i = 0; status == TRM_OK && i < network->n_tensors; i++) {
        trm_tensor *tensor = network->tensors[i];
        trm_weight *rebased = NULL;
        if (tensor->weight != NULL) {
            status = trm_weight_rebase(tensor->weight, find, user, &rebased);
        }
        if (rebased != NULL) {
            trm_weight_destroy(tensor->weight);
            tensor->weight = rebased;
            changed[i] = true;
            ++*n_changed;
        }
    }
    if (status == TRM_OK && *n_changed > 0) {
        status = load_changed(engine, changed);
    }
    free(changed);
    return status;
}

static trm_status check_engine(const trm_engine *engine)
{
    if (engine == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot refit: engine is NULL");
    }
    trm_streaming_info streaming;
    trm_engine_streaming(engine, &streaming);
    if (streaming.files > 0) { /* contexts have already read weights ahead for their next run */
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "cannot refit an engine that reads %zu bytes of its weights from files in every run: allow more host "
                 "memory",
                 streaming.files);
    }
    if (!engine->plan->network->refittable) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "cannot refit an engine whose network was not refittable: constants were computed from its weights");
    }
    return TRM_OK;
}

/* Finds one weight, by name. */
typedef struct replacement {
    const char *name;
    trm_weight *weight;
} replacement;

static trm_status find_replacement(void *user, const trm_weight_form *stored, trm_weight **found)
{
    const replacement *r = user;
    *found = NULL;
    if (strcmp(stored->name, r->name) != 0) {
        return TRM_OK;
    }
    TRM_TRY(trm_weight_check_like(r->weight, stored, "the caller"));
    return trm_weight_clone(r->weight, found);
}

TRM_CALL(trm_engine_recorder(engine), trm_engine_refit,
         (trm_engine *engine, const char *name, trm_dtype dtype, trm_dims dims, const void *data),
         (engine, name, dtype, dims, data))
{
    size_t bytes = trm_dtype_size(dtype);
    TRM_TRY(check_engine(engine));
    for (int32_t i = 0; i < dims.n && i < TRM_MAX_DIMS; i++) {
        if (dims.d[i] < 0 || __builtin_mul_overflow(bytes, (size_t)dims.d[i], &bytes)) {
            bytes = 0;
        }
    }
    if (name == NULL || data == NULL || bytes == 0 || dims.n < 0 || dims.n > TRM_MAX_DIMS) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot refit: name or data is NULL, or the dims hold no elements");
    }
    trm_weight_file *file;
    replacement r = {.name = name};
    int32_t n_changed = 0;
    TRM_TRY(trm_weight_file_from_bytes(data, bytes, name, &file));
    trm_status status = trm_weight_from_file(file, 0, name, dtype, &dims, &r.weight);
    trm_weight_file_release(file);
    TRM_TRY(status);
    status = refit(engine, find_replacement, &r, &n_changed);
    trm_weight_destroy(r.weight);
    if (status == TRM_OK && n_changed == 0) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "the engine has no weight %s", name);
    }
    return status;
}

static trm_status find_in_source(void *user, const trm_weight_form *stored, trm_weight **found)
{
    return trm_weight_source_replace(user, stored, found);
}

TRM_CALL(trm_engine_recorder(engine), trm_engine_refit_from, (trm_engine *engine, const char *weights),
         (engine, weights))
{
    trm_weight_source *source;
    int32_t n_changed = 0;
    TRM_TRY(check_engine(engine));
    if (weights == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot refit: weights is NULL");
    }
    TRM_TRY(trm_weight_source_open(weights, &source));
    trm_status status = refit(engine, find_in_source, source, &n_changed);
    trm_weight_source_close(source);
    if (status == TRM_OK && n_changed == 0) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "%s has none of the engine's weights", weights);
    }
    return status;
}
