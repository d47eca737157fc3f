/* Creates generators: limits, size of the KV cache, memory, and warm-up. */
#include "dist/llm/generator.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <trireme/system.h>

#include "base/checked.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/options.h"
#include "base/recorder.h"
#include "base/unit.h"
#include "dist/llm/sequence_states.h"
#include "graph/import/hf/model.h"
#include "graph/memory_plan.h"

/* Memory left free on a GPU for the CUDA context, captured steps, NCCL and cuBLAS. */
#define CUDA_RESERVE ((size_t)1 << 30)
/* Steps of at least this many tokens run in microbatches: shorter ones finish before the host has enqueued twice the
 * layers. */
#define LANE_TOKENS              1024
#define DEFAULT_STEP_TOKENS_CUDA 8192
/* With nothing resident a step hides the link from about 14000 tokens on (docs/measurements/2026-11-21.md). */
#define STREAMING_STEP_TOKENS_CUDA 16384
#define DEFAULT_STEP_TOKENS_HOST   512
#define MOST_SEQUENCES             65536
/* Rows of logits for drafted tokens in a step: more sequences than that fill a step by themselves. */
#define MOST_DRAFT_ROWS 128
#define DEFAULT_DRAFT   7
/* Each draft token is a version of the states of all sequences, some 60 MB of a sequence of Qwen3.5-35B-A3B. */
#define DEFAULT_DRAFT_OF_STATES 3
#define DEFAULT_DRAFT_OF_HEAD   3
#define TWICE_SEQUENCES         8
#define PREFIX_STATES           32 /* at most, besides those of running sequences */
#define WARM_PROMPT             64 /* tokens of the warm-up prompt: more than kernels for few rows accept */

/* The caller's options in the form of this version. */
static trm_status read_options(const trm_generator_options *options, trm_generator_options *own)
{
    *own = TRM_GENERATOR_OPTIONS_INIT;
    if (options == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "generator options are NULL: use TRM_GENERATOR_OPTIONS_INIT");
    }
    return trm_options_read("generator options", options, own);
}

/* While weights stream, twice the tokens cost nothing; more tokens than all sequences can have need no room. */
static int32_t streaming_step_tokens(const trm_generator *g)
{
    int64_t all = g->max_context * g->max_sequences;
    return all < STREAMING_STEP_TOKENS_CUDA ? (int32_t)all : STREAMING_STEP_TOKENS_CUDA;
}

/* Drafts are taken back by earlier versions of states. So are async steps, where the states of as many sequences are
 * small enough to have twice. */
static trm_status choose_draft(trm_generator *g, const trm_generator_options *options, bool has_states)
{
    const trm_speculation *wanted = &options->speculation;
    if (wanted->kind < TRM_SPECULATION_OFF || wanted->kind > TRM_SPECULATION_MTP || wanted->tokens < 0 ||
        wanted->tokens > TRM_MAX_DRAFT) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "speculation is of kind %d with %d tokens, expected off, lookup, auto or mtp and at most %d tokens",
                 (int)wanted->kind, wanted->tokens, TRM_MAX_DRAFT);
    }
    g->speculation = *wanted;
    g->max_rows = g->max_sequences;
    g->state_slots = g->max_sequences + (g->max_sequences < PREFIX_STATES ? g->max_sequences : PREFIX_STATES);
    g->versions = !has_states ? 0 : g->max_sequences <= TWICE_SEQUENCES ? 2 : 1;
    if (wanted->kind != TRM_SPECULATION_OFF) {
        g->speculation.tokens = wanted->tokens > 0                     ? wanted->tokens
                                : has_states                           ? DEFAULT_DRAFT_OF_STATES
                                : trm_draft_head_wanted(options)       ? DEFAULT_DRAFT_OF_HEAD
                                : wanted->kind == TRM_SPECULATION_AUTO ? TRM_MAX_DRAFT
                                                                       : DEFAULT_DRAFT;
        int64_t rows = (int64_t)g->max_sequences * g->speculation.tokens;
        g->max_rows += rows < MOST_DRAFT_ROWS ? (int32_t)rows : MOST_DRAFT_ROWS;
        g->versions = has_states ? g->speculation.tokens + 1 : 0;
    }
    return TRM_OK;
}

static trm_status choose_limits(trm_generator *g, const trm_generator_options *options, trm_backend backend,
                                bool has_states)
{
    bool cuda = backend == TRM_BACKEND_CUDA;
    int64_t longest = g->info.context_length;
    if (options->max_context < 0 || options->max_sequences < 0 || options->max_step_tokens < 0 ||
        options->cache_tokens < 0) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "context, sequences, step tokens and cache must not be negative");
    }
    if (longest > 0 && options->max_context > longest) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "max_context is %lld tokens, the model has %lld",
                 (long long)options->max_context, (long long)longest);
    }
    g->max_context = options->max_context > 0 ? options->max_context : longest > 0 ? longest : 4096;
    if (g->max_context > INT32_MAX - g->block_tokens || options->max_sequences > MOST_SEQUENCES) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "generator has %d sequences of %lld tokens, expected at most %d sequences of %d tokens",
                 options->max_sequences, (long long)g->max_context, MOST_SEQUENCES, INT32_MAX - g->block_tokens);
    }
    g->max_sequences = options->max_sequences > 0 ? options->max_sequences : 1;
    g->tune = !options->no_tune;
    g->cache_tokens = options->cache_tokens;
    bool streams = options->weight_budget.kind > TRM_WEIGHT_BUDGET_AUTO;
    g->max_step_tokens = options->max_step_tokens > 0 ? options->max_step_tokens
                         : !cuda                      ? DEFAULT_STEP_TOKENS_HOST
                         : streams                    ? streaming_step_tokens(g)
                                                      : DEFAULT_STEP_TOKENS_CUDA * g->token_ranks;
    TRM_TRY(choose_draft(g, options, has_states));
    if (g->max_step_tokens < g->max_rows) {
        g->max_step_tokens = g->max_rows;
    }
    g->max_step_tokens = trm_generator_padded(g, g->max_step_tokens);
    int64_t blocks = trm_generator_blocks(g, g->max_context);
    if (blocks > INT32_MAX / g->max_sequences) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "%d sequences of %lld tokens need more cache blocks than can be numbered",
                 g->max_sequences, (long long)g->max_context);
    }
    g->blocks_per_sequence = (int32_t)blocks;
    return TRM_OK;
}

trm_status trm_generator_build_plan(trm_generator *g, trm_network *network, const trm_build_options *wanted,
                                    trm_plan **plan)
{
    int32_t n_bounds = 0;
    trm_shape_bound *bounds = calloc((size_t)network->n_tensors + 1, sizeof(*bounds));
    if (bounds == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the bounds of a network");
    }
    const trm_shape_bound inputs[] = {
        {.tensor = "token_ids", .max = trm_dims1(g->max_step_tokens)},
        {.tensor = "positions", .max = trm_dims1(g->max_step_tokens)},
        {.tensor = "rope_lengths", .max = trm_dims1(g->max_step_tokens)},
        {.tensor = "adapter_slots", .max = trm_dims1(g->max_step_tokens)},
        {.tensor = "sequence_starts", .max = trm_dims1(g->max_sequences + 1)},
        {.tensor = "sequence_lengths", .max = trm_dims1(g->max_sequences)},
        {.tensor = "sequence_slots", .max = trm_dims2(g->max_sequences, 2)},
        {.tensor = "block_table", .max = trm_dims2(g->max_sequences, g->blocks_per_sequence)},
        {.tensor = "logit_rows", .max = trm_dims1(g->max_rows)},
        {.tensor = "hidden", .max = trm_dims2(g->max_step_tokens, g->of_head.hidden)},
        {.tensor = "hidden_rows", .max = trm_dims1(g->max_step_tokens)},
    };
    for (size_t i = 0; i < sizeof(inputs) / sizeof(inputs[0]); i++) {
        if (trm_network_find_tensor(network, inputs[i].tensor) != NULL) {
            bounds[n_bounds++] = inputs[i];
        }
    }
    for (int32_t i = 0; i < network->n_tensors; i++) {
        const trm_tensor *tensor = network->tensors[i];
        if (trm_tensor_is_by_sequence(tensor)) {
            bounds[n_bounds++] = (trm_shape_bound){
                .tensor = tensor->name, .max = trm_sequence_state_dims(network, tensor, g->state_slots, g->versions)};
        } else if (trm_tensor_is_by_block(tensor)) {
            bounds[n_bounds] = (trm_shape_bound){.tensor = tensor->name, .max = tensor->dims};
            bounds[n_bounds++].max.d[0] = 1;
        }
    }
    trm_build_options options = *wanted;
    options.bounds = bounds;
    options.n_bounds = n_bounds;
    trm_status status = trm_build(network, &options, plan);
    free(bounds);
    return status;
}

/* Whether long steps run in microbatches: if collectives take GPU time, and weights do not stream, since each
 * microbatch would stream them again. */
static bool wants_lanes(const trm_generator *g, const trm_plan *plan)
{
    return plan->backend == TRM_BACKEND_CUDA && plan->streaming == NULL && g->max_step_tokens >= LANE_TOKENS &&
           !trm_generator_is_head(g) &&
           (plan->mesh.size[TRM_AXIS_TP] > 1 || plan->mesh.size[TRM_AXIS_PP] > 1 || g->token_ranks > 1);
}

/* Most tokens of a microbatch, unless a sequence cannot be split. */
static int64_t lane_rows(const trm_generator *g)
{
    return (g->max_step_tokens + 1) / 2 + TRM_MICROBATCH_GRAIN;
}

/* Device memory of the second microbatch: inputs, activations and workspace again, and buffers of all-reduces by
 * copies. */
static size_t lane_bytes(const trm_generator *g, const trm_plan *plan)
{
    return wants_lanes(g, plan) ? plan->input_bytes + plan->activation_bytes + plan->workspace_bytes +
                                      trm_microbatch_sums_bytes(plan, g->world->communicator, lane_rows(g))
                                : 0;
}

/* Bytes of a cache block, of which the plan has one. */
static size_t block_bytes(const trm_plan *plan, const trm_memory_plan *need)
{
    return need->state - trm_plan_slot_bytes(plan);
}

/* On a GPU, suggest weight streaming unless it is already on. */
static trm_status fail_without_memory(const trm_generator *g, const trm_plan *plan, const trm_memory_plan *need,
                                      const trm_device_info *info, size_t others, int64_t blocks, size_t block)
{
    double cache = (double)blocks * (double)block;
    bool may_stream = info->backend == TRM_BACKEND_CUDA && plan->streaming == NULL;
    const size_t states = trm_plan_slot_bytes(plan);
    const trm_unit unit = trm_unit_of((double)others + cache);
    char of_states[64] = "";
    if (states > 0) {
        snprintf(of_states, sizeof(of_states), ", states of sequences and adapters %.3f", (double)states / unit.bytes);
    }
    TRM_FAIL(
        TRM_ERROR_OUT_OF_MEMORY,
        "rank %d needs %.3f %s of memory on %s (weights %.3f, staging %.3f, cache of %lld tokens %.3f%s, activations "
        "%.3f, workspace and reserve %.3f), %s of %s are free%s",
        g->world->rank, ((double)others + cache) / unit.bytes, unit.name, info->name,
        (double)need->weights / unit.bytes, (double)need->staging / unit.bytes, (long long)(blocks * g->block_tokens),
        cache / unit.bytes, of_states, (double)need->activations / unit.bytes,
        (double)(others - need->weights - need->staging - need->activations - states) / unit.bytes,
        trm_size_text((double)info->memory_free).text, trm_size_text((double)info->memory_total).text,
        may_stream ? "; with a weight budget (auto) the rest streams from host memory" : "");
}

/* Blocks for all sequences, or as many as were asked for, at least for one sequence. */
static int64_t wanted_blocks(const trm_generator *g)
{
    if (g->cache_tokens == 0) {
        return (int64_t)g->max_sequences * g->blocks_per_sequence;
    }
    int64_t blocks = g->cache_tokens / g->block_tokens;
    blocks = blocks < INT32_MAX ? blocks : INT32_MAX;
    return blocks > g->blocks_per_sequence ? blocks : g->blocks_per_sequence;
}

/* Resolves an automatic weight budget: weights get what activations, a draft head and a cache of the wanted size leave.
 * If no size was asked for, the cache gets at most a quarter of the memory. */
static trm_status fit_weights(const trm_generator *g, trm_plan *plan, const trm_draft_head_size *head, bool fixed,
                              size_t memory)
{
    trm_memory_plan need;
    trm_plan_memory(plan, &need);
    size_t cache = (block_bytes(plan, &need) + head->block) * (size_t)wanted_blocks(g);
    cache = !fixed && cache > memory / 4 ? memory / 4 : cache;
    size_t others =
        g->sampler.bytes + head->others + need.activations + need.workspace + trm_plan_slot_bytes(plan) + cache;
    return trm_streaming_fit(plan, memory > others ? memory - others : 0);
}

/* Number of blocks of this rank's cache: as many as are wanted, or as fit into memory. `fixed`: the context length was
 * asked for, so fewer are an error. */
static trm_status count_blocks(trm_generator *g, trm_plan *plan, const trm_plan *head_plan, bool fixed, int64_t *blocks)
{
    trm_device_info info;
    TRM_TRY(trm_device_get_info(g->world->device, &info));
    trm_stream *stream;
    TRM_TRY(trm_stream_create(g->world->device, &stream));
    g->sampler.bytes = trm_sampler_bytes(stream, g->max_rows, g->max_sequences, g->vocab);
    const trm_draft_head_size head = trm_draft_head_size_of(g->head, head_plan, stream);
    trm_stream_destroy(stream);
    size_t reserve = CUDA_RESERVE;
    if (info.backend == TRM_BACKEND_HOST) { /* the ranks of one machine share its memory */
        trm_world_share_memory(g->world, &info, &reserve);
    }
    TRM_TRY(fit_weights(g, plan, &head, fixed, info.memory_free > reserve ? info.memory_free - reserve : 0));
    trm_memory_plan need;
    trm_plan_memory(plan, &need);
    const size_t block = block_bytes(plan, &need) + head.block;
    size_t others =
        g->sampler.bytes + lane_bytes(g, plan) + need.total - block_bytes(plan, &need) + head.others + reserve;
    size_t room = info.memory_free > others ? info.memory_free - others : 0;
    int64_t wanted = wanted_blocks(g);
    int64_t least = g->cache_tokens > 0 ? (fixed ? g->blocks_per_sequence : 1) : fixed ? wanted : g->max_sequences;
    size_t held = block > 0 ? room / block : info.memory_free > others ? (size_t)wanted : 0;
    *blocks = held < (size_t)wanted ? (int64_t)held : wanted;
    return *blocks < least ? fail_without_memory(g, plan, &need, &info, others, least, block) : TRM_OK;
}

/* Sizes the cache to the number of blocks that fit on every rank. */
static trm_status size_cache(trm_generator *g, trm_plan *plan, int64_t blocks)
{
    int64_t sequences = g->cache_tokens > 0 ? 1 : g->max_sequences; /* that fit at the same time in any case */
    if (blocks < sequences * g->blocks_per_sequence) {
        g->blocks_per_sequence = (int32_t)(blocks / sequences);
        g->max_context = (int64_t)g->blocks_per_sequence * g->block_tokens;
        if (g->world->rank == 0) {
            TRM_WARN("memory holds %lld tokens for each of %d sequences, not the model's %lld",
                     (long long)g->max_context, g->max_sequences, (long long)g->info.context_length);
        }
    }
    g->n_blocks = (int32_t)blocks;
    return trm_plan_set_state_blocks(plan, blocks);
}

static trm_status find_tensors(trm_generator *g)
{
    trm_network *network = g->engine->plan->network;
    const struct {
        const char *name;
        const trm_tensor **tensor;
    } inputs[] = {
        {"token_ids", &g->token_ids},
        {"positions", &g->positions},
        {"sequence_starts", &g->sequence_starts},
        {"sequence_lengths", &g->sequence_lengths},
        {"sequence_slots", &g->sequence_slots},
        {"block_table", &g->block_table},
        {"logit_rows", &g->logit_rows},
        {"rope_lengths", &g->rope_lengths},
        {"adapter_slots", &g->adapter_slots},
        {"logits", &g->logits},
        {"hidden_rows", &g->of_head.rows},
    };
    for (size_t i = 0; i < sizeof(inputs) / sizeof(inputs[0]); i++) {
        *inputs[i].tensor = trm_network_find_tensor(network, inputs[i].name);
    }
    for (size_t i = 0; i < sizeof(inputs) / sizeof(inputs[0]); i++) {
        const bool may_lack = inputs[i].tensor == &g->rope_lengths || inputs[i].tensor == &g->sequence_slots ||
                              inputs[i].tensor == &g->adapter_slots || inputs[i].tensor == &g->of_head.rows;
        if (*inputs[i].tensor == NULL && !may_lack) {
            TRM_FAIL(TRM_ERROR_INTERNAL, "the model's network has no %s", inputs[i].name);
        }
    }
    if (g->hidden_name[0] != '\0') {
        g->hidden = trm_network_find_tensor(network, g->hidden_name);
        if (g->hidden == NULL || g->hidden->dims.n != 2 || g->hidden->dims.d[1] < 1) {
            TRM_FAIL(TRM_ERROR_INTERNAL, "the rank's network has no %s", g->hidden_name);
        }
    }
    return trm_draft_head_find(g);
}

/* Dims of a decode step in this form, for the plan's workspace. */
static trm_status cover_decode(trm_generator *g, trm_plan *plan, const trm_step_form *form)
{
    const int64_t b = form->tokens, n = form->sequences;
    trm_dims *dims = calloc((size_t)plan->network->n_tensors + 1, sizeof(*dims));
    if (dims == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate dims");
    }
    for (int32_t i = 0; i < plan->network->n_tensors; i++) {
        const trm_tensor *tensor = plan->network->tensors[i];
        if (tensor->role != TRM_TENSOR_INPUT) {
            continue;
        }
        dims[i] = strcmp(tensor->name, "sequence_starts") == 0    ? trm_dims1(n + 1)
                  : strcmp(tensor->name, "block_table") == 0      ? trm_dims2(n, trm_generator_table_blocks(g, form))
                  : strcmp(tensor->name, "sequence_lengths") == 0 ? trm_dims1(n)
                  : strcmp(tensor->name, "sequence_slots") == 0   ? trm_dims2(n, 2)
                  : strcmp(tensor->name, "logit_rows") == 0       ? trm_dims1(b)
                  : strcmp(tensor->name, "hidden") == 0           ? plan->max_dims[i]
                                                                  : trm_dims1(trm_generator_padded(g, b));
    }
    trm_status status = trm_plan_cover(plan, dims);
    free(dims);
    return status;
}

/* Makes the input of the logits' product an output. */
static trm_status mark_hidden(trm_generator *g, trm_network *network)
{
    const trm_layer *layer = network->outputs[0]->producer;
    while (layer != NULL && layer->desc.kind != TRM_LAYER_MATMUL && layer->desc.kind != TRM_LAYER_DEQUANT_MATMUL) {
        layer = layer->inputs[0]->producer;
    }
    if (layer == NULL || layer->inputs[0]->producer == NULL || layer->inputs[0]->dims.n != 2) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "the model has no embeddings: its logits are not a product of hidden states");
    }
    trm_tensor *hidden = layer->inputs[0];
    int length = snprintf(g->hidden_name, sizeof(g->hidden_name), "%s", hidden->name);
    if (length < 0 || (size_t)length >= sizeof(g->hidden_name)) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "the name of the model's hidden states is too long: %s", hidden->name);
    }
    return trm_network_mark_output(network, hidden);
}

/* Ranks of a generator step together, so they may share weights; weights that the CPU reads are not shared. */
static trm_weight_sharing choose_sharing(const trm_weight_budget *budget)
{
    return budget->sharing != TRM_WEIGHT_SHARING_AUTO ? budget->sharing
           : trm_wants_share(budget)                  ? TRM_WEIGHT_SHARING_OFF
                                                      : TRM_WEIGHT_SHARING_ON;
}

/* Plans the model's network with a cache of one block. */
static trm_status plan_model(trm_generator *g, const trm_generator_options *options, const trm_build_options *build,
                             trm_plan **plan)
{
    trm_model_get_info(g->model, &g->info);
    g->vocab = g->info.vocab;
    g->token_ranks = build->mesh.size[TRM_AXIS_CP];
    g->block_tokens = TRM_KV_BLOCK_SIZE * g->token_ranks;
    trm_dtype dtype = options->dtype;
    if (dtype == TRM_DTYPE_NONE && build->backend == TRM_BACKEND_HOST) {
        dtype = TRM_F32;
    }
    trm_network *network;
    TRM_TRY(trm_adapter_slots_choose(options, &g->adapters));
    TRM_TRY(trm_draft_head_check(options, &build->mesh));
    const trm_hf_adapters adapters = {.slots = g->adapters.n, .rank = g->adapters.rank};
    const trm_hf_drafting drafting = {.head = options->draft_head};
    TRM_TRY(trm_hf_build_network(g->model, dtype, options->cache_dtype, &adapters,
                                 trm_draft_head_wanted(options) ? &drafting : NULL, &network));
    trm_status status = trm_draft_head_name(g, network);
    if (status == TRM_OK && options->embeddings) {
        status = mark_hidden(g, network);
        status = status == TRM_ERROR_UNSUPPORTED ? TRM_OK : status; /* requests for one are refused */
    }
    if (status == TRM_OK) {
        status = choose_limits(g, options, build->backend, trm_network_has_sequence_states(network));
    }
    if (status == TRM_OK) {
        status = trm_generator_build_plan(g, network, build, plan);
    }
    trm_network_destroy(network);
    if (status == TRM_OK && options->weight_budget.kind != TRM_WEIGHT_BUDGET_OFF) {
        trm_weight_budget budget = options->weight_budget;
        budget.sharing = choose_sharing(&budget);
        (*plan)->expert_profile = options->expert_profile;
        status = trm_plan_set_weight_budget(*plan, &budget);
        (*plan)->expert_profile = NULL; /* the caller's */
        if (status != TRM_OK) {
            trm_plan_destroy(*plan);
            *plan = NULL;
        }
    }
    return status;
}

TRM_CALL(NULL, trm_generator_plan,
         (trm_model *model, const trm_generator_options *options, const trm_build_options *build, trm_plan **plan,
          int64_t *cache_tokens),
         (model, options, build, plan, cache_tokens))
{
    if (model == NULL || build == NULL || plan == NULL || cache_tokens == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot plan a generator: model, build, plan or cache_tokens is NULL");
    }
    trm_generator_options own;
    TRM_TRY(read_options(options, &own));
    trm_build_options wanted = TRM_BUILD_OPTIONS_INIT;
    TRM_TRY(trm_options_read("build options", build, &wanted));
    wanted.backend = trm_system_backend(wanted.backend);
    wanted.mesh = trm_mesh_resolve(&wanted.mesh, 1);
    trm_generator g = {.model = model};
    trm_plan *made;
    TRM_TRY(plan_model(&g, &own, &wanted, &made));
    int64_t blocks = wanted_blocks(&g);
    trm_status status = trm_plan_set_state_blocks(made, blocks);
    if (status != TRM_OK) {
        trm_plan_destroy(made);
        return status;
    }
    *cache_tokens = blocks * g.block_tokens;
    *plan = made;
    return TRM_OK;
}

/* Prepares this rank for steps of this many tokens in microbatches. */
static trm_status make_lanes(trm_generator *g, int32_t tokens)
{
    trm_microbatches_destroy(g->microbatches);
    free(g->lane_sequences);
    g->microbatches = NULL;
    g->lane_sequences = calloc(2 * (size_t)g->max_sequences, sizeof(*g->lane_sequences));
    if (g->lane_sequences == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the microbatches of %d sequences", g->max_sequences);
    }
    g->lane_tokens = tokens;
    return trm_microbatches_create(g->context, &g->microbatches);
}

trm_status trm_generator_prepare(trm_generator *g)
{
    TRM_TRY(find_tensors(g));
    TRM_TRY(trm_context_create(g->engine, &g->context));
    TRM_TRY(trm_graph_buckets_open(&g->buckets, trm_context_captures(g->context)));
    TRM_TRY(trm_event_create(g->world->device, &g->began));
    TRM_TRY(trm_async_step_init(g));
    if (wants_lanes(g, g->engine->plan)) {
        TRM_TRY(make_lanes(g, LANE_TOKENS));
    }
    TRM_TRY(trm_sampler_init(&g->sampler, g->context->stream, g->max_rows, g->max_sequences, g->vocab));
    g->sampler.follows = g->world->rank != 0;
    if (g->hidden != NULL) {
        void *memory;
        size_t row = (size_t)g->hidden->dims.d[1] * trm_dtype_size(g->hidden->dtype);
        TRM_TRY(trm_device_alloc_host(g->world->device, (size_t)g->max_rows * row, &memory));
        g->hidden_staging = memory;
    }
    return trm_generator_is_head(g) ? trm_draft_head_bind(g) : TRM_OK;
}

trm_status trm_generator_use_microbatches(trm_generator *g, int32_t tokens)
{
    TRM_TRY(trm_world_all_ok(g->world, make_lanes(g, tokens)));
    return trm_world_all_ok(g->world, trm_microbatch_sums_init(g->microbatches, lane_rows(g)));
}

/* This rank's own part before the cache is sized. */
static trm_status plan_rank(trm_generator *g, const trm_generator_options *options, trm_plan **plan,
                            trm_plan **head_plan)
{
    const trm_build_options build = {.size = sizeof(build),
                                     .backend = trm_device_backend(g->world->device),
                                     .mesh = options->mesh,
                                     .rank = g->world->rank,
                                     .batch_invariant = options->batch_invariant};
    TRM_TRY(plan_model(g, options, &build, plan));
    g->timing_cache = options->timing_cache == NULL ? NULL : strdup(options->timing_cache);
    if ((*plan)->partition.note[0] != '\0' && g->world->rank == 0) {
        TRM_WARN("%s", (*plan)->partition.note);
    }
    return trm_draft_head_wanted(options) ? trm_draft_head_plan(g, options, &build, *plan, head_plan) : TRM_OK;
}

/* Ranks with different options or models would wait for each other, or compute garbage. Collective. */
static trm_status check_alike(const trm_generator *g, const trm_generator_options *options)
{
    if (g->world->size == 1) {
        return TRM_OK;
    }
    const trm_model_info *m = &g->info;
    const bool replicas = options->mesh.size[TRM_AXIS_DP] > 1;
    char text[512], mesh[64];
    trm_mesh_format(&options->mesh, mesh, sizeof(mesh));
    snprintf(text, sizeof(text),
             "%s %s %lld %lld %lld %lld %lld %lld %lld; %lld %d %d %lld %s %s %s %d %d %d %d %d %d %d %d %d %d %lld",
             m->architecture, trm_dtype_name(m->weight_dtype), (long long)m->layers, (long long)m->hidden,
             (long long)m->heads, (long long)m->kv_heads, (long long)m->intermediate, (long long)m->vocab,
             (long long)m->parameters, (long long)g->max_context, g->max_sequences, g->max_step_tokens,
             (long long)g->cache_tokens, trm_dtype_name(options->dtype), trm_dtype_name(options->cache_dtype), mesh,
             (int)g->speculation.kind, g->speculation.tokens, options->embeddings, options->batch_invariant,
             replicas ? (int)options->weight_budget.kind : options->weight_budget.kind != TRM_WEIGHT_BUDGET_OFF,
             (int)(replicas ? choose_sharing(&options->weight_budget) : options->weight_budget.sharing),
             options->no_tune, options->pad_steps, g->adapters.n, g->adapters.rank,
             g->head == NULL ? -1LL : (long long)g->head->vocab);
    return trm_world_agree(
        g->world,
        "model, mesh, types, context, number of sequences, speculation, draft head, embeddings, batch invariance, "
        "sharing of weights, tuning, padding of steps or adapters",
        text, strlen(text));
}

trm_status trm_generator_cover_steps(trm_generator *g, trm_plan *plan)
{
    trm_graph_buckets *buckets = &g->buckets;
    trm_status status = TRM_OK;
    trm_graph_buckets_init(buckets, g->max_sequences,
                           g->speculation.kind == TRM_SPECULATION_OFF ? 0 : g->speculation.tokens, g->max_rows,
                           g->blocks_per_sequence > TRM_NARROW_BLOCKS ? TRM_NARROW_BLOCKS : 0);
    for (int32_t i = 0; status == TRM_OK && i < buckets->n_decode + buckets->n_draft; i++) {
        status = cover_decode(g, plan, &buckets->fixed[i]);
    }
    for (int32_t i = 0; status == TRM_OK && buckets->narrow_blocks > 0 && i < buckets->n_decode; i++) {
        const trm_step_form narrow = trm_graph_bucket_decode(buckets, buckets->fixed[i].sequences, 1);
        status = cover_decode(g, plan, &narrow);
    }
    return status;
}

/* Sizes the cache for the rank with the least memory, and the workspace for every decode step. Collective. */
static trm_status plan_cache(trm_generator *g, trm_plan *plan, trm_plan *head_plan, bool fixed)
{
    int64_t blocks = 0;
    trm_status status = count_blocks(g, plan, head_plan, fixed, &blocks);
    TRM_TRY(trm_world_all_ok(g->world, status));
    TRM_TRY(trm_world_minimum(g->world, &blocks, 1));
    TRM_TRY(trm_streaming_agree(plan, g->world));
    status = size_cache(g, plan, blocks);
    if (status == TRM_OK) {
        status = trm_generator_cover_steps(g, plan);
    }
    if (status == TRM_OK && head_plan != NULL) {
        status = trm_draft_head_size_cache(g, head_plan);
    }
    return trm_world_all_ok(g->world, status);
}

static trm_status choose_exchanges(trm_world *world, const trm_generator_options *options)
{
    const int32_t level = options->no_tune ? 0 : TRM_TUNE_USUAL;
    return trm_world_all_ok(world, trm_world_choose_exchanges(world, &options->mesh, level, options->timing_cache));
}

/* Ends the part of the startup that began at *began and begins the next. */
static void note(double *began, double *seconds)
{
    double now = trm_clock_seconds();
    *seconds = now - *began;
    *began = now;
}

TRM_CALL(trm_world_recorder(world), trm_generator_create,
         (trm_model *model, trm_world *world, const trm_generator_options *options, trm_generator **generator),
         (model, world, options, generator))
{
    if (model == NULL || world == NULL || generator == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot create a generator: model, world or generator is NULL");
    }
    trm_generator_options own;
    TRM_TRY(read_options(options, &own));
    own.mesh = trm_mesh_resolve(&own.mesh, world->size);
    options = &own;
    trm_generator *g = calloc(1, sizeof(*g));
    trm_plan *plan = NULL, *head_plan = NULL;
    double began = trm_clock_seconds();
    trm_status status = g == NULL ? trm_fail(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a generator") : TRM_OK;
    if (status == TRM_OK) {
        g->model = model;
        g->world = world;
        g->pad_steps = options->pad_steps;
        status = plan_rank(g, options, &plan, &head_plan);
    }
    TRM_TRY_GOTO(status, trm_world_all_ok(world, status), destroy);
    TRM_TRY_GOTO(status, check_alike(g, options), destroy);
    TRM_TRY_GOTO(status, choose_exchanges(world, options), destroy);
    TRM_TRY_GOTO(status, plan_cache(g, plan, head_plan, options->max_context > 0), destroy);
    trm_startup *startup = &g->startup;
    note(&began, &startup->plan_seconds);
    status = trm_engine_begin(plan, world, options->progress, options->progress_user, &g->engine);
    plan = NULL; /* the engine owns it, or has destroyed it */
    note(&began, &startup->engine_seconds);
    if (status == TRM_OK && head_plan != NULL) {
        status = trm_engine_begin(head_plan, world, options->progress, options->progress_user, &g->head->engine);
        head_plan = NULL;
    }
    if (status == TRM_OK && g->head != NULL) {
        g->head->engine->lender = g->engine;
    }
    if (status == TRM_OK) {
        status = trm_generator_prepare(g);
    }
    if (status == TRM_OK && g->head != NULL) {
        status = trm_generator_prepare(g->head);
    }
    TRM_TRY_GOTO(status, trm_world_all_ok(world, status), destroy);
    status = g->microbatches == NULL ? TRM_OK : trm_microbatch_sums_init(g->microbatches, lane_rows(g));
    TRM_TRY_GOTO(status, trm_world_all_ok(world, status), destroy);
    note(&began, &startup->context_seconds);
    TRM_TRY_GOTO(status, trm_generator_warm_up(g), destroy);
    TRM_TRY_GOTO(status, g->head == NULL ? TRM_OK : trm_generator_warm_up(g->head), destroy);
    note(&began, &startup->capture_seconds);
    startup->capture_seconds -= startup->tune_seconds;
    status = trm_engine_finish_loading(g->engine, options->progress, options->progress_user);
    if (status == TRM_OK && g->head != NULL) {
        status = trm_engine_finish_loading(g->head->engine, options->progress, options->progress_user);
    }
    TRM_TRY_GOTO(status, trm_world_all_ok(world, status), destroy);
    note(&began, &startup->wait_seconds);
    *generator = g;
    return TRM_OK;
destroy:
    trm_plan_destroy(plan);
    trm_plan_destroy(head_plan);
    trm_generator_destroy(g);
    return status;
}

void trm_generator_destroy(trm_generator *g)
{
    if (g == NULL) {
        return;
    }
    trm_generator_destroy(g->head);
    (void)trm_async_step_settle(g); /* there is one after a failed generation */
    trm_async_step_fini(g);
    free(g->timing_cache);
    trm_sampler_fini(&g->sampler);
    trm_device_free_host(g->world->device, g->hidden_staging);
    trm_microbatches_destroy(g->microbatches);
    free(g->lane_sequences);
    free(g->of_head.tokens);
    trm_event_destroy(g->began);
    trm_context_destroy(g->context);
    trm_engine_destroy(g->engine);
    free(g);
}

void trm_generator_get_limits(const trm_generator *g, trm_generator_limits *limits)
{
    *limits = (trm_generator_limits){.max_context = g->max_context,
                                     .cache_tokens = (int64_t)g->n_blocks * g->block_tokens,
                                     .max_sequences = g->max_sequences,
                                     .max_step_tokens = g->max_step_tokens};
    trm_plan_memory(g->engine->plan, &limits->memory);
    trm_engine_streaming(g->engine, &limits->streaming);
    const size_t more = g->sampler.bytes + lane_bytes(g, g->engine->plan);
    limits->memory.workspace += more;
    limits->memory.total += more;
    if (g->head != NULL) {
        trm_draft_head_add_memory(g->head, &limits->memory);
    }
}

void trm_generator_get_startup(const trm_generator *g, trm_startup *startup)
{
    *startup = g->startup;
    startup->weight_bytes = (int64_t)g->engine->loaded_bytes;
    startup->weights_seconds = g->engine->load_seconds;
    startup->join_seconds = g->world->join_seconds;
    startup->device_seconds = g->world->device_seconds;
    startup->communicator_seconds = g->world->communicator_seconds;
}

trm_context *trm_generator_context(trm_generator *generator)
{
    return generator->context;
}

TRM_CALL(trm_generator_recorder(generator), trm_generator_set_weight_budget, (trm_generator *generator, size_t bytes),
         (generator, bytes))
{
    if (generator == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot set a weight budget: generator is NULL");
    }
    return trm_engine_set_weight_budget(generator->engine, bytes);
}

TRM_CALL(trm_generator_recorder(g), trm_generator_set_draft, (trm_generator *g, trm_generator *draft), (g, draft))
{
    if (g == NULL || g == draft || (draft != NULL && (draft->world != g->world || draft->draft != NULL))) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot set a draft model: %s",
                 g == NULL    ? "generator is NULL"
                 : g == draft ? "a generator cannot draft for itself"
                              : "it belongs to another world, or has a draft model itself");
    }
    if (draft != NULL && g->head != NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot set a draft model: the generator has a draft head");
    }
    if (draft != NULL && draft->versions > 0) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED,
                 "cannot draft with a model that has states by sequence: they cannot take back a rejected draft");
    }
    if (draft != NULL && (g->speculation.kind == TRM_SPECULATION_OFF || draft->max_sequences < g->max_sequences)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "cannot set a draft model of %d sequences: the generator has %d and speculation %s, expected at least "
                 "as many and speculation on",
                 draft->max_sequences, g->max_sequences, g->speculation.kind == TRM_SPECULATION_OFF ? "off" : "on");
    }
    g->draft = draft;
    return TRM_OK;
}

void trm_generator_set_recorder(trm_generator *generator, trm_recorder *recorder)
{
    trm_engine_set_recorder(generator->engine, recorder);
}

trm_recorder *trm_generator_recorder(const trm_generator *generator)
{
    return generator == NULL ? NULL : trm_engine_recorder(generator->engine);
}
