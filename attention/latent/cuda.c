/*
 * Latent attention on CUDA: what runs for a call. The absorbed form, by tensor cores where their kernels take it, else
 * by plain kernels; heads pass in pieces, so that their queries and sums fit into the workspace. Prompts of DeepSeek's
 * sizes attend to the step's own tokens in the expanded form.
 */
#include "attention/latent/cuda.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/hopper.h"
#include "kernels/kernel_list.h"
#include "kernels/matmul/cuda_gemm.h"

#define LIMIT          ((size_t)256 << 20) /* bytes of queries and sums at a time, unless one head has more */
#define EXPANDED_LIMIT ((size_t)640 << 20) /* of keys and values of a step's tokens; beyond, they are not expanded */
#define MOST_SEQUENCES 65536
#define ALIGNED(x)     (((x) + 255) & ~(size_t)255)

static bool describe(const trm_kernel_call *call, trm_latent_shape *s, trm_cuda_latent *l)
{
    trm_layer_desc desc;
    trm_kernel_call absorbed;
    if (!trm_latent_attention_describe(call, &desc, &absorbed, s)) {
        return false;
    }
    *l = (trm_cuda_latent){.a = trm_cuda_attention_of(&absorbed, &s->absorbed),
                           .q = call->inputs[TRM_LATENT_ATTENTION_Q].data,
                           .weight = s->weight.data,
                           .out = call->outputs[0].data,
                           .heads = (int32_t)s->heads,
                           .plain = (int32_t)s->plain,
                           .rotated = (int32_t)s->rotated,
                           .values = (int32_t)s->value_dim,
                           .constant = (call->constants >> TRM_LATENT_ATTENTION_WEIGHT & 1) != 0};
    l->a.shared_values = true;
    return true;
}

bool trm_cuda_latent_attention_accepts(const trm_kernel_call *call)
{
    trm_latent_shape s;
    trm_cuda_latent l;
    return describe(call, &s, &l) && s.absorbed.dim <= TRM_ATTENTION_PLAIN_MAX_DIM &&
           s.rank <= TRM_ATTENTION_PLAIN_MAX_VALUE && s.absorbed.sequences <= INT32_MAX &&
           s.absorbed.tokens * s.heads <= INT32_MAX && s.absorbed.table_blocks <= INT32_MAX &&
           s.absorbed.block_size <= INT32_MAX &&
           (l.a.dtype == TRM_F32 || l.a.dtype == TRM_F16 || l.a.dtype == TRM_BF16);
}

/* Whether dims and types are those of the tensor core kernels. Their sums depend on what else is in the step. */
static bool is_fast(const trm_kernel_call *call, const trm_latent_shape *s, trm_dtype dtype)
{
    return (dtype == TRM_F16 || dtype == TRM_BF16) && !call->batch_invariant && s->rank == TRM_LATENT_RANK &&
           s->rotated == TRM_LATENT_ROTATED && s->plain % 64 == 0 && s->plain > 0 && s->value_dim % 64 == 0 &&
           s->absorbed.scale > 0.0f && s->absorbed.block_size % 8 == 0 && s->absorbed.sequences <= MOST_SEQUENCES &&
           trm_cuda_hopper_processors() > 0;
}

static bool is_aligned(const trm_cuda_latent *l)
{
    return trm_aligned16(l->q) && trm_aligned16(l->weight) && trm_aligned16(l->out) && trm_aligned16(l->a.k) &&
           trm_aligned16(l->a.v) && trm_aligned16(l->a.key_cache);
}

/* Bytes of a head's query and sum for all tokens. */
static size_t bytes_of_head(const trm_latent_shape *s, size_t element)
{
    return (size_t)s->absorbed.tokens * (size_t)(s->absorbed.dim + s->rank) * element;
}

/* Not what a piece needs: that would fall where larger dims make for fewer heads. */
static size_t bytes_of_pieces(const trm_latent_shape *s)
{
    const size_t head = bytes_of_head(s, sizeof(float)), all = head * (size_t)s->heads;
    const size_t most = head > LIMIT ? head : LIMIT;
    return ALIGNED(all < most ? all : most);
}

/* What the tensor core kernels have before the queries and sums. */
static size_t bytes_before(const trm_latent_shape *s)
{
    return ALIGNED((size_t)trm_cuda_latent_plan_ints((int32_t)s->absorbed.sequences) * sizeof(int32_t)) +
           ALIGNED(TRM_LATENT_PARTIAL_BYTES);
}

/* ---- prompts ------------------------------------------------------------------------------------- */

/* Of the expanded form: a counter, logs of both forms, keys and values, and what their product works with. */
typedef struct expansion {
    size_t logs, product, all; /* bytes */
    trm_layer_desc layer;
    trm_kernel_call call; /* latents times the weight */
} expansion;

/* False where sizes are others, or no sequence can have more than a few queries. */
static bool expansion_make(const trm_kernel_call *call, const trm_latent_shape *s, expansion *e)
{
    const int64_t tokens = s->absorbed.tokens, columns = s->heads * (s->plain + s->value_dim);
    const trm_view *latents = &call->inputs[TRM_LATENT_ATTENTION_LATENT];
    if (s->plain != TRM_LATENT_PLAIN || s->value_dim != TRM_LATENT_VALUES || tokens <= TRM_LATENT_FEW) {
        return false;
    }
    e->layer = (trm_layer_desc){.kind = TRM_LAYER_MATMUL, .matmul = {.transpose_b = true}};
    e->call = (trm_kernel_call){.layer = &e->layer, .n_inputs = 2, .n_outputs = 1, .stream = call->stream};
    e->call.inputs[0] = *latents;
    e->call.inputs[1] = (trm_view){s->weight.data, latents->dtype, {2, {columns, s->rank}}};
    e->call.outputs[0] = (trm_view){NULL, latents->dtype, {2, {tokens, columns}}};
    e->logs = ALIGNED((size_t)(tokens * s->heads) * sizeof(float));
    e->product = ALIGNED(trm_cuda_matmul_workspace(&e->call));
    e->all = 256 + 2 * e->logs + e->product + ALIGNED((size_t)(tokens * columns) * trm_dtype_size(latents->dtype));
    return true;
}

/* Bytes for it: as for the most that is expanded if that is more, so that they do not fall. */
static size_t bytes_of_expansion(const trm_kernel_call *call, const trm_latent_shape *s)
{
    expansion e;
    return !expansion_make(call, s, &e) ? 0 : e.all < EXPANDED_LIMIT ? e.all : EXPANDED_LIMIT;
}

size_t trm_cuda_latent_attention_workspace(const trm_kernel_call *call)
{
    trm_latent_shape s;
    trm_cuda_latent l;
    if (!describe(call, &s, &l)) {
        return 0;
    }
    return bytes_of_pieces(&s) + (is_fast(call, &s, l.a.dtype) ? bytes_before(&s) + bytes_of_expansion(call, &s) : 0);
}

/* ---- launches ------------------------------------------------------------------------------------ */

typedef struct latent_args {
    trm_status (*run)(const trm_cuda_latent *latent, cudaStream_t stream);
    trm_cuda_latent latent;
} latent_args;

static trm_status enqueue(void *user, trm_stream *stream)
{
    const latent_args *args = user;
    return args->run(&args->latent, trm_cuda_stream(stream));
}

static trm_status append(trm_program *program, const char *name,
                         trm_status (*run)(const trm_cuda_latent *latent, cudaStream_t stream),
                         const trm_cuda_latent *latent)
{
    latent_args *args = trm_program_alloc(program, sizeof(*args));
    if (args == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    *args = (latent_args){run, *latent};
    return trm_program_append(program, name, enqueue, args);
}

static trm_status run_plain_attention(const trm_cuda_latent *latent, cudaStream_t stream)
{
    return trm_cuda_attention_plain(&latent->a, stream);
}

/* Some heads, whose absorbed form is described. */
static trm_status append_heads(const trm_cuda_latent *l, bool fast, trm_program *program)
{
    if (!fast) {
        TRM_TRY(append(program, "cuda.latent_attention.plain_queries", trm_cuda_latent_plain_queries, l));
        TRM_TRY(append(program, "cuda.latent_attention.plain", run_plain_attention, l));
        return append(program, "cuda.latent_attention.plain_values", trm_cuda_latent_plain_values, l);
    }
    TRM_TRY(append(program, "cuda.latent_attention.queries", trm_cuda_latent_queries, l));
    TRM_TRY(append(program, "cuda.latent_attention", trm_cuda_latent_attention, l));
    TRM_TRY(append(program, "cuda.latent_attention.join", trm_cuda_latent_join, l));
    return append(program, "cuda.latent_attention.values", trm_cuda_latent_values, l);
}

/* The step's tokens as keys and values, and prompts against them. */
static trm_status append_prompts(const trm_kernel_call *call, const trm_latent_shape *s, trm_cuda_latent *l,
                                 char *memory, trm_program *program)
{
    expansion e;
    if (!expansion_make(call, s, &e) || e.all > EXPANDED_LIMIT ||
        s->absorbed.tokens <= s->absorbed.sequences + TRM_LATENT_FEW) { /* most likely there is no prompt */
        return TRM_OK;
    }
    trm_layer_desc *layer = trm_program_alloc(program, sizeof(*layer));
    if (layer == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    *layer = e.layer;
    l->a.next_tile = (uint32_t *)memory;
    l->logs = (float *)(memory + 256);
    l->expanded_logs = (float *)(memory + 256 + e.logs);
    e.call.layer = layer;
    e.call.workspace = memory + 256 + 2 * e.logs;
    e.call.workspace_size = e.product;
    l->expanded = e.call.outputs[0].data = memory + 256 + 2 * e.logs + e.product;
    TRM_TRY(trm_cuda_matmul_prepare(&e.call, program));
    return append(program, "cuda.latent_attention.prefill", trm_cuda_latent_prefill, l);
}

/* Chooses how the keys and values of prompts are made. */
static trm_status tune(const trm_kernel_call *call, struct trm_tuner *tuner)
{
    trm_latent_shape s;
    trm_cuda_latent l;
    expansion e;
    if (!describe(call, &s, &l) || !is_fast(call, &s, l.a.dtype) || !expansion_make(call, &s, &e) ||
        e.all > EXPANDED_LIMIT) {
        return TRM_OK;
    }
    char *memory = (char *)call->workspace + bytes_before(&s);
    e.call.workspace = memory + 256 + 2 * e.logs;
    e.call.workspace_size = e.product;
    e.call.outputs[0].data = memory + 256 + 2 * e.logs + e.product;
    return trm_cuda_matmul_tune(&e.call, tuner);
}

trm_status trm_cuda_latent_attention_prepare(const trm_kernel_call *call, trm_program *program)
{
    trm_latent_shape s;
    trm_cuda_latent l;
    if (!describe(call, &s, &l)) {
        TRM_FAIL(TRM_ERROR_INTERNAL, "a latent attention call does not fit the layer it was accepted for");
    }
    if (s.absorbed.sequences == 0 || s.absorbed.tokens == 0) {
        return TRM_OK;
    }
    struct trm_tuner *tuner;
    if (trm_program_take_tuner(program, &tuner)) {
        TRM_TRY(tune(call, tuner));
    }
    const bool fast = is_fast(call, &s, l.a.dtype) && is_aligned(&l) && trm_cuda_hopper_ready();
    const size_t element = fast ? trm_dtype_size(l.a.dtype) : sizeof(float), head = bytes_of_head(&s, element);
    char *memory = call->workspace;
    int64_t piece = (int64_t)(bytes_of_pieces(&s) / head);
    piece = piece < s.heads ? piece : s.heads;
    if (fast) {
        /* Blocks that have the same keys run at a time, so that these come from memory once. */
        const int32_t tiles = (int32_t)((piece + TRM_LATENT_ROWS - 1) / TRM_LATENT_ROWS);
        l.width = tiles < 4 ? tiles : 1;
        const int processors = trm_cuda_hopper_processors();
        l.shares = (processors < TRM_LATENT_BLOCKS ? processors : TRM_LATENT_BLOCKS) / l.width;
        l.plan = (int32_t *)memory;
        l.a.partial = (float *)(memory + bytes_before(&s) - ALIGNED(TRM_LATENT_PARTIAL_BYTES));
        memory += bytes_before(&s);
        TRM_TRY(append_prompts(call, &s, &l, memory, program));
        memory += bytes_of_expansion(call, &s);
    }
    for (int64_t first = 0; first < s.heads; first += piece) {
        l.first_head = (int32_t)first;
        l.a.query_heads = l.a.group = (int32_t)(s.heads - first < piece ? s.heads - first : piece);
        l.a.q = memory;
        l.a.out = memory + (size_t)(s.absorbed.tokens * l.a.query_heads * s.absorbed.dim) * element;
        if (first == 0) {
            TRM_TRY(append(program, "cuda.latent_attention.store", trm_cuda_latent_store, &l));
        } else if (fast && l.a.query_heads < piece) { /* other units */
            TRM_TRY(append(program, "cuda.latent_attention.store", trm_cuda_latent_store, &l));
        }
        TRM_TRY(append_heads(&l, fast, program));
    }
    return TRM_OK;
}
