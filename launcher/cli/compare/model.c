/* A language model as a network for compare: one prompt of random tokens, in one step. */
#include "launcher/cli/compare/compare.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "launcher/cli/job/caches.h"

/* A 32-bit integer input, to be filled in. */
static trm_status add_input(onnx_job *j, const char *name, trm_dims dims, int32_t **data)
{
    trm_tensor *tensor = trm_network_find_tensor(j->network, name);
    int64_t count = dims.n == 2 ? dims.d[0] * dims.d[1] : dims.d[0];
    *data = NULL;
    if (tensor == NULL) { /* not every model has all of them */
        return TRM_OK;
    }
    onnx_input *input = &j->inputs[j->n_inputs];
    *input = (onnx_input){.dims = dims, .min = dims, .max = dims, .dtype = TRM_I32};
    input->port = (trm_onnx_port){
        .name = trm_tensor_name(tensor), .type = "i32", .dtype = TRM_I32, .has_dims = true, .dims = dims};
    input->data = calloc((size_t)count + 1, sizeof(int32_t));
    if (input->data == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate input %s", name);
    }
    j->n_inputs++;
    *data = input->data;
    return TRM_OK;
}

static void count_up(int32_t *values, int64_t n)
{
    for (int64_t i = 0; values != NULL && i < n; i++) {
        values[i] = (int32_t)i;
    }
}

/* Fills in a prompt of `tokens` and asks for the logits of all. */
static trm_status add_inputs(onnx_job *j, int64_t tokens, int64_t vocab)
{
    int64_t blocks = (tokens + TRM_KV_BLOCK_SIZE - 1) / TRM_KV_BLOCK_SIZE;
    uint64_t seed = (uint64_t)settings_integer(j->all, SETTING_SEED) * 2 + 1;
    int32_t *ids, *positions, *starts, *lengths, *slots, *table, *rows, *rope;
    const trm_dims each = {1, {tokens}};
    j->inputs = calloc(8, sizeof(*j->inputs));
    if (j->inputs == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the inputs of a model");
    }
    TRM_TRY(add_input(j, "token_ids", each, &ids));
    TRM_TRY(add_input(j, "positions", each, &positions));
    TRM_TRY(add_input(j, "sequence_starts", (trm_dims){1, {2}}, &starts));
    TRM_TRY(add_input(j, "sequence_lengths", (trm_dims){1, {1}}, &lengths));
    TRM_TRY(add_input(j, "sequence_slots", (trm_dims){2, {1, 2}}, &slots)); /* slot 0 */
    TRM_TRY(add_input(j, "block_table", (trm_dims){2, {1, blocks}}, &table));
    TRM_TRY(add_input(j, "logit_rows", each, &rows));
    TRM_TRY(add_input(j, "rope_lengths", each, &rope));
    for (int64_t i = 0; ids != NULL && i < tokens; i++) {
        seed = seed * 6364136223846793005ull + 1442695040888963407ull;
        ids[i] = (int32_t)((seed >> 33) % (uint64_t)vocab);
    }
    count_up(positions, tokens);
    count_up(table, blocks);
    count_up(rows, tokens);
    for (int64_t i = 0; rope != NULL && i < tokens; i++) {
        rope[i] = (int32_t)tokens;
    }
    if (starts != NULL) {
        starts[1] = (int32_t)tokens;
    }
    if (lengths != NULL) {
        lengths[0] = (int32_t)tokens;
    }
    return TRM_OK;
}

/* The caches hold one prompt. */
static trm_status bound_states(onnx_job *j, int64_t layers, int64_t tokens)
{
    j->states = calloc((size_t)(layers * CACHES_PER_LAYER) + 1, sizeof(*j->states));
    if (j->states == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the bounds of %lld layers", (long long)layers);
    }
    j->n_states = caches_bound(j->network, layers, tokens, j->states);
    return TRM_OK;
}

trm_status compare_open_model(onnx_job *j)
{
    trm_model_info info;
    trm_dtype dtype, cache_dtype;
    TRM_TRY(job_backend(j->all, &j->backend));
    TRM_TRY(job_dtype(j->all, &dtype));
    TRM_TRY(job_cache_dtype(j->all, &cache_dtype));
    j->n_ranks = trm_world_size(j->job.world);
    TRM_TRY(trm_mesh_parse(settings_text(j->all, SETTING_MESH), j->n_ranks, &j->mesh));
    TRM_TRY(open_model(j->all, j->all->operands[0], &j->job.model));
    trm_model_get_info(j->job.model, &info);
    dtype = dtype == TRM_DTYPE_NONE && j->backend == TRM_BACKEND_HOST ? TRM_F32 : dtype;
    TRM_TRY(trm_model_build_network_with_cache(j->job.model, dtype, cache_dtype, &j->network));
    j->shown = j->network;
    int64_t tokens = settings_integer(j->all, SETTING_PROMPT_TOKENS);
    if (tokens > info.context_length) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "%lld prompt tokens exceed the context of %lld tokens", (long long)tokens,
                 (long long)info.context_length);
    }
    TRM_TRY(add_inputs(j, tokens, info.vocab));
    return bound_states(j, info.layers, tokens);
}
