/* Draft heads: planning beside their generator, and what they get of its steps. */
#include "dist/llm/draft_head.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "dist/llm/generator.h"
#include "graph/import/hf/model.h"
#include "graph/memory_plan.h"

bool trm_draft_head_wanted(const trm_generator_options *options)
{
    return options->speculation.kind == TRM_SPECULATION_MTP || options->draft_head != NULL;
}

trm_status trm_draft_head_check(const trm_generator_options *options, const trm_mesh *mesh)
{
    const trm_speculation_kind kind = options->speculation.kind;
    if (!trm_draft_head_wanted(options)) {
        return TRM_OK;
    }
    if (options->draft_head != NULL && (kind == TRM_SPECULATION_MTP || kind == TRM_SPECULATION_OFF)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "a draft head is given, and speculation is %s, expected lookup or auto",
                 kind == TRM_SPECULATION_OFF ? "off" : "mtp, with the model's own");
    }
    if (options->draft_head != NULL && !trm_model_is_draft_head(options->draft_head)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "the model that is given as a draft head is none: make it a draft model");
    }
    if (trm_mesh_ranks(mesh) > mesh->size[TRM_AXIS_TP]) {
        char text[64];
        trm_mesh_format(mesh, text, sizeof(text));
        TRM_FAIL(TRM_ERROR_UNSUPPORTED,
                 "a draft head (MTP or EAGLE-3) needs ranks along tp alone, the mesh is %s; use another mesh or "
                 "another way of speculation",
                 text);
    }
    return TRM_OK;
}

trm_status trm_draft_head_name(trm_generator *g, const trm_network *network)
{
    const char *name = network->n_outputs > 1 ? network->outputs[1]->name : "";
    int length = snprintf(g->draft_hidden_name, sizeof(g->draft_hidden_name), "%s", name);
    if (length < 0 || (size_t)length >= sizeof(g->draft_hidden_name)) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "the name of the model's hidden states is too long: %s", name);
    }
    g->of_head.hidden = network->n_outputs > 1 ? network->outputs[1]->dims.d[1] : 0;
    return TRM_OK;
}

trm_status trm_draft_head_find(trm_generator *g)
{
    if (g->draft_hidden_name[0] == '\0') {
        return TRM_OK;
    }
    g->draft_hidden = trm_network_find_tensor(g->engine->plan->network, g->draft_hidden_name);
    if (g->draft_hidden == NULL || g->draft_hidden->dims.n != 2 || g->draft_hidden->dims.d[1] != g->of_head.hidden) {
        TRM_FAIL(TRM_ERROR_INTERNAL, "the rank's network has no %s", g->draft_hidden_name);
    }
    return TRM_OK;
}

/* The limits of a head are those of its generator, with a row for each sequence. */
static void take_limits(const trm_generator *g, trm_generator *head)
{
    head->max_context = g->max_context;
    head->max_sequences = head->max_rows = g->max_sequences;
    head->max_step_tokens = g->max_step_tokens;
    head->token_ranks = g->token_ranks;
    head->block_tokens = g->block_tokens;
    head->blocks_per_sequence = g->blocks_per_sequence;
    head->tune = g->tune;
    head->pad_steps = g->pad_steps;
}

/* Builds the head's network and plans it. */
static trm_status plan_head(trm_generator *head, const trm_generator_options *options, const trm_build_options *build,
                            trm_plan **plan)
{
    const trm_hf_drafting drafting = {.head = options->draft_head};
    trm_dtype dtype = options->dtype;
    trm_network *network;
    if (dtype == TRM_DTYPE_NONE && build->backend == TRM_BACKEND_HOST) {
        dtype = TRM_F32;
    }
    TRM_TRY(trm_hf_build_draft_head(head->model, &drafting, dtype, options->cache_dtype, &network));
    head->vocab = network->outputs[0]->dims.d[1];
    trm_status status = trm_draft_head_name(head, network);
    if (status == TRM_OK) {
        status = trm_generator_build_plan(head, network, build, plan);
    }
    trm_network_destroy(network);
    return status;
}

trm_status trm_draft_head_plan(trm_generator *g, const trm_generator_options *options, const trm_build_options *build,
                               const trm_plan *whole, trm_plan **plan)
{
    trm_generator *head = calloc(1, sizeof(*head));
    if (head == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a draft head");
    }
    g->head = head;
    head->of_head.is_head = true;
    head->model = g->model;
    head->world = g->world;
    head->info = g->info;
    take_limits(g, head);
    head->timing_cache = g->timing_cache == NULL ? NULL : strdup(g->timing_cache);
    if (options->draft_head != NULL) {
        TRM_TRY(trm_hf_draft_tokens(options->draft_head, &head->of_head.tokens));
    }
    TRM_TRY(plan_head(head, options, build, plan));
    return trm_plan_borrow_weights(*plan, whole);
}

trm_draft_head_size trm_draft_head_size_of(trm_generator *head, const trm_plan *plan, trm_stream *stream)
{
    trm_draft_head_size size = {0};
    if (plan != NULL) {
        trm_memory_plan need;
        trm_plan_memory(plan, &need);
        head->sampler.bytes = trm_sampler_bytes(stream, head->max_rows, head->max_sequences, head->vocab);
        size.block = need.state - trm_plan_slot_bytes(plan);
        size.others = head->sampler.bytes + need.total - size.block;
    }
    return size;
}

trm_status trm_draft_head_size_cache(trm_generator *g, trm_plan *plan)
{
    trm_generator *head = g->head;
    head->n_blocks = g->n_blocks;
    take_limits(g, head);
    TRM_TRY(trm_plan_set_state_blocks(plan, g->n_blocks));
    return trm_generator_cover_steps(head, plan);
}

void trm_draft_head_add_memory(const trm_generator *head, trm_memory_plan *memory)
{
    trm_memory_plan own;
    trm_plan_memory(head->engine->plan, &own);
    memory->weights += own.weights;
    memory->state += own.state;
    memory->activations += own.activations;
    memory->workspace += own.workspace + head->sampler.bytes;
    memory->total += own.total + head->sampler.bytes;
}

trm_status trm_draft_head_bind(trm_generator *head)
{
    const trm_plan *plan = head->engine->plan;
    const trm_tensor *input = trm_network_find_tensor(plan->network, "hidden");
    if (input == NULL || input->role != TRM_TENSOR_INPUT) {
        TRM_FAIL(TRM_ERROR_INTERNAL, "the draft head's network has no input of hidden states");
    }
    const trm_dims dims = plan->max_dims[input->index];
    head->of_head.memory = trm_context_input_memory(head->context) + plan->input_offsets[input->index];
    TRM_TRY(trm_stream_fill_zero(head->context->stream, head->of_head.memory, trm_dims_bytes(&dims, input->dtype)));
    return trm_context_bind_input(head->context, input->name, dims, head->of_head.memory);
}

trm_status trm_draft_head_feed(trm_generator *head, trm_generator *from)
{
    const size_t row = (size_t)from->of_head.hidden * trm_dtype_size(from->draft_hidden->dtype);
    const size_t room = (size_t)head->max_step_tokens * row;
    trm_context *const *contexts = from->was_microbatched ? from->microbatches->contexts : &from->context;
    size_t at = 0;
    for (int32_t i = 0; i < (from->was_microbatched ? TRM_MICROBATCHES : 1); i++) {
        const trm_tensor *tensor = from->draft_hidden;
        const int64_t rows =
            from->was_microbatched ? contexts[i]->dims[tensor->index].d[0] : (int64_t)from->n_draft_hidden;
        const size_t bytes = (size_t)rows * row;
        if (bytes > room - at) {
            TRM_FAIL(TRM_ERROR_INTERNAL, "a step gave a draft head %lld hidden states more than its %d",
                     (long long)rows, head->max_step_tokens);
        }
        TRM_TRY(trm_stream_copy(head->context->stream, head->of_head.memory + at,
                                trm_context_address(contexts[i], tensor), bytes));
        at += bytes;
    }
    return TRM_OK;
}

int32_t trm_draft_head_token(const trm_generator *head, int32_t token)
{
    return head->of_head.tokens == NULL ? token : head->of_head.tokens[token];
}
