/* One sequence, whose tokens are all in one step. */
#include "launcher/cli/quantize/passages.h"

#include <stdlib.h>

#include "base/error.h"
#include "launcher/cli/job/caches.h"
#include "launcher/cli/job/job.h"

#define MOST_INPUTS 8

static int64_t blocks_of(int64_t tokens)
{
    return (tokens + TRM_KV_BLOCK_SIZE - 1) / TRM_KV_BLOCK_SIZE;
}

static bool has(const trm_network *network, const char *name)
{
    return trm_network_find_tensor(network, name) != NULL;
}

/* The bounds of inputs that the network has. */
static int32_t bound_inputs(const passages *p, const trm_network *network, trm_shape_bound *bounds)
{
    const int64_t t = p->tokens;
    const struct {
        const char *name;
        trm_dims max, min;
    } inputs[MOST_INPUTS] = {{"token_ids", {1, {t}}, {1, {1}}},
                             {"positions", {1, {t}}, {1, {1}}},
                             {"logit_rows", {1, {t}}, {1, {1}}},
                             {"rope_lengths", {1, {t}}, {1, {1}}},
                             {"sequence_starts", {1, {2}}, {1, {2}}},
                             {"sequence_lengths", {1, {1}}, {1, {1}}},
                             {"sequence_slots", {2, {1, 2}}, {2, {1, 2}}},
                             {"block_table", {2, {1, blocks_of(t)}}, {2, {1, 1}}}};
    int32_t n = 0;
    for (int i = 0; i < MOST_INPUTS; i++) {
        if (has(network, inputs[i].name)) {
            bounds[n++] = (trm_shape_bound){
                .tensor = inputs[i].name, .max = inputs[i].max, .min = inputs[i].min, .opt = inputs[i].max};
        }
    }
    return n;
}

static trm_status build(const passages *p, const settings *all, const trm_network *network, int64_t layers,
                        trm_backend backend, trm_plan **plan)
{
    trm_weight_budget budget;
    trm_build_options options = TRM_BUILD_OPTIONS_INIT;
    trm_shape_bound *bounds = calloc((size_t)(layers * CACHES_PER_LAYER) + MOST_INPUTS, sizeof(*bounds));
    if (bounds == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the bounds of %lld layers", (long long)layers);
    }
    options.n_bounds = bound_inputs(p, network, bounds);
    options.n_bounds += caches_bound(network, layers, p->tokens, bounds + options.n_bounds);
    options.bounds = bounds;
    options.backend = backend;
    trm_status status = trm_build(network, &options, plan);
    free(bounds);
    TRM_TRY(status);
    TRM_TRY_GOTO(status, job_budget(all, &budget), failed);
    TRM_TRY_GOTO(status, trm_plan_set_weight_budget(*plan, &budget), failed);
    return TRM_OK;
failed:
    trm_plan_destroy(*plan);
    return status;
}

trm_status passages_open(passages *p, const settings *all, const char *folder, trm_dtype dtype, trm_backend backend,
                         trm_world *world, passages_mark_fn mark, void *user)
{
    trm_model *model;
    *p = (passages){0};
    TRM_TRY(trm_model_open(folder, &model));
    return passages_begin(p, all, model, dtype, backend, world, mark, user);
}

trm_status passages_begin(passages *p, const settings *all, trm_model *model, trm_dtype dtype, trm_backend backend,
                          trm_world *world, passages_mark_fn mark, void *user)
{
    trm_model_info info;
    trm_network *network;
    trm_plan *plan;
    *p = (passages){.model = model};
    trm_model_get_info(p->model, &info);
    p->vocab = info.vocab;
    p->tokens = info.context_length > 0 && info.context_length < PASSAGE_TOKENS ? info.context_length : PASSAGE_TOKENS;
    p->numbers = calloc(PASSAGE_TOKENS, sizeof(*p->numbers));
    if (p->numbers == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the inputs of a model");
    }
    for (int32_t i = 0; i < PASSAGE_TOKENS; i++) {
        p->numbers[i] = i;
    }
    dtype = dtype == TRM_DTYPE_NONE && backend == TRM_BACKEND_HOST ? TRM_F32 : dtype;
    TRM_TRY(trm_model_build_network(p->model, dtype, &network));
    p->has_rope_lengths = has(network, "rope_lengths");
    p->has_slots = has(network, "sequence_slots");
    trm_status status = mark != NULL ? mark(user, network) : TRM_OK;
    status = status != TRM_OK ? status : build(p, all, network, info.layers, backend, &plan);
    trm_network_destroy(network);
    TRM_TRY(status);
    TRM_TRY(trm_engine_create(plan, world, NULL, NULL, &p->engine));
    return trm_context_create(p->engine, &p->context);
}

void passages_close(passages *p)
{
    trm_context_destroy(p->context);
    trm_engine_destroy(p->engine);
    trm_model_close(p->model);
    free(p->numbers);
    *p = (passages){0};
}

trm_status passages_run(passages *p, const int32_t *ids, int64_t n, const float **logits)
{
    const int32_t length = (int32_t)n, starts[] = {0, length}, slots[] = {0, 0};
    int32_t lengths[PASSAGE_TOKENS];
    const trm_dims each = {1, {n}};
    const void *output;
    trm_dims dims;
    for (int64_t i = 0; i < n; i++) {
        lengths[i] = length;
    }
    TRM_TRY(trm_context_set_input(p->context, "token_ids", each, ids));
    TRM_TRY(trm_context_set_input(p->context, "positions", each, p->numbers));
    TRM_TRY(trm_context_set_input(p->context, "logit_rows", each, p->numbers));
    TRM_TRY(trm_context_set_input(p->context, "sequence_starts", (trm_dims){1, {2}}, starts));
    TRM_TRY(trm_context_set_input(p->context, "sequence_lengths", (trm_dims){1, {1}}, &length));
    TRM_TRY(trm_context_set_input(p->context, "block_table", (trm_dims){2, {1, blocks_of(n)}}, p->numbers));
    if (p->has_rope_lengths) {
        TRM_TRY(trm_context_set_input(p->context, "rope_lengths", each, lengths));
    }
    if (p->has_slots) {
        TRM_TRY(trm_context_set_input(p->context, "sequence_slots", (trm_dims){2, {1, 2}}, slots));
    }
    TRM_TRY(trm_context_run(p->context));
    TRM_TRY(trm_context_output(p->context, "logits", &dims, &output));
    *logits = output;
    return TRM_OK;
}
