/*
 * The attention layer on CUDA: stores the step's keys and values, then gives sequences of one query to the decode
 * kernel and the rest to a prefill kernel, or everything to one of the others. choose() says which, for what the layer
 * asks for, its workspace and its launches. They depend on dims, types and alignment alone, so that a captured step
 * stays right as lengths grow.
 */
#include "attention/cuda/attention.h"

#include "attention/cuda/geometry.h"
#include "attention/cuda/invariant.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/hopper.h"
#include "kernels/kernel.h"

static bool is_float(trm_dtype dtype)
{
    return dtype == TRM_F32 || dtype == TRM_F16 || dtype == TRM_BF16;
}

bool trm_cuda_attention_is_fast(const trm_attention_shape *s, trm_dtype dtype)
{
    return (dtype == TRM_F16 || dtype == TRM_BF16) && s->dim == s->value_dim && s->dim % 8 == 0 && s->dim >= 8 &&
           s->dim <= 256 && (!s->packed || (s->sequences <= 65535 && s->query_heads <= 65535)); /* of a grid */
}

/* Whether the tiles of f32.cu do a call. */
static bool has_f32_tiles(const trm_attention_shape *s, trm_dtype dtype)
{
    return dtype == TRM_F32 && !s->cached && !s->sinks && s->dim == s->value_dim && s->dim % 4 == 0 && s->dim >= 4 &&
           s->dim <= 128 && (s->dim <= 64 || trm_cuda_block_memory() >= 116 * 1024); /* of 128 dimensions */
}

/* Whether one of a call's sequences may have one query and the decode kernel is of use. */
static bool has_decode(const trm_attention_shape *s)
{
    return s->cached && (trm_cuda_attention_is_sparse(s->tokens, 1, s->share) || s->sequences > 1);
}

/* Whether a sequence may have several queries. */
static bool has_prefill(const trm_attention_shape *s)
{
    return !s->packed || s->tokens > 1 || !s->cached;
}

/* Whether the kernel for Hopper GPUs may take the prefill of such a call. */
static bool is_for_hopper(const trm_attention_shape *s, trm_dtype dtype)
{
    int64_t tokens = s->packed ? s->tokens : s->sequences * s->queries;
    int64_t tiles = tokens / 2 + s->sequences; /* more than there ever are: 64 heads in a tile of 128 rows */
    bool form = s->packed || (s->rows_first && !s->masked && s->keys > 0 && s->sequences <= INT32_MAX / s->keys);
    return form && trm_cuda_attention_is_fast(s, dtype) && s->scale > 0.0f && (!s->cached || s->block_size % 8 == 0) &&
           tiles * s->query_heads <= INT32_MAX && trm_cuda_hopper_processors() > 0;
}

bool trm_cuda_attention_accepts(const trm_kernel_call *call)
{
    trm_attention_shape s;
    if (!trm_attention_describe(call, &s) || call->layer->attention.n_ranks > 1) {
        return false;
    }
    trm_dtype dtype = call->inputs[TRM_ATTENTION_Q].dtype;
    trm_dtype mask = s.masked ? call->inputs[TRM_ATTENTION_MASK].dtype : TRM_BOOL;
    bool same = call->inputs[TRM_ATTENTION_K].dtype == dtype && call->inputs[TRM_ATTENTION_V].dtype == dtype &&
                call->outputs[0].dtype == dtype && (!s.cached || s.cache_dtype == dtype || s.cache_dtype == TRM_F8E4M3);
    bool fits = s.sequences <= INT32_MAX && s.tokens <= INT32_MAX && s.queries <= INT32_MAX && s.keys <= INT32_MAX &&
                s.query_heads <= INT32_MAX && s.table_blocks <= INT32_MAX && s.block_size <= INT32_MAX &&
                s.dim <= TRM_ATTENTION_PLAIN_MAX_DIM && s.value_dim <= TRM_ATTENTION_PLAIN_MAX_VALUE;
    return is_float(dtype) && same && fits && (mask == TRM_BOOL || is_float(mask));
}

/* Whether a query's result must not depend on what else is in the step. Without a cache a call has whole sequences. */
static bool is_invariant(const trm_kernel_call *call, const trm_attention_shape *s)
{
    return call->batch_invariant && s->cached;
}

/* Keys of padded calls up to which short.cu is faster than hopper.cu. On an H200, 64 sequences with 12 heads of 64: 128
 * keys 25.1 and 26.9 us, 256 keys 70.4 and 61.1; one of 197 keys 5.9 and 7.9. */
#define SHORT_IS_FASTER 208

bool trm_cuda_attention_hopper_accepts(const trm_kernel_call *call)
{
    trm_attention_shape s;
    if (!trm_cuda_attention_accepts(call) || !trm_attention_describe(call, &s) || is_invariant(call, &s) ||
        !has_prefill(&s) || !is_for_hopper(&s, call->inputs[TRM_ATTENTION_Q].dtype)) {
        return false;
    }
    trm_cuda_attention a = trm_cuda_attention_of(call, &s);
    return s.sinks || !(trm_cuda_attention_is_short(&a) && s.keys <= SHORT_IS_FASTER);
}

/* Of the partial results of the batch-invariant mode; beyond it, a warp takes all splits of its queries. */
#define INVARIANT_LIMIT ((size_t)64 << 20)

/* False if they are more than the limit: *bytes is then that. */
static bool invariant_partial(const trm_attention_shape *s, size_t *bytes)
{
    const size_t row = (size_t)s->query_heads * (size_t)(s->dim + 2) * sizeof(float);
    const size_t rows = (size_t)trm_attention_few_slots(s->tokens, s->sequences);
    const size_t splits = (size_t)trm_cuda_attention_invariant_splits(s);
    const bool fits = rows == 0 || splits <= INVARIANT_LIMIT / row / rows;
    *bytes = fits ? splits * rows * row : INVARIANT_LIMIT;
    return fits;
}

/* Few sequences can have several queries: most often there is nothing to do, which the smaller kernel finds sooner. */
static bool is_sparse(const trm_attention_shape *s)
{
    return has_decode(s) && trm_cuda_attention_is_sparse(s->tokens, s->sequences, s->share);
}

/* Who computes a call. */
typedef enum trm_attention_kernel {
    TRM_ATTENTION_PLAIN,            /* any form, type and size: plain.cu */
    TRM_ATTENTION_F32,              /* f32.cu */
    TRM_ATTENTION_TF32,             /* tf32.cu */
    TRM_ATTENTION_SHORT,            /* short.cu */
    TRM_ATTENTION_TENSOR,           /* one query by decode.cu, several by prefill.cu */
    TRM_ATTENTION_HOPPER,           /* one query by decode.cu, several by hopper.cu */
    TRM_ATTENTION_INVARIANT,        /* whatever else is in the step, and what reads an e4m3 cache: invariant.cu */
    TRM_ATTENTION_INVARIANT_HOPPER, /* few queries by that, more by hopper.cu */
} trm_attention_kernel;

/* `aligned`: addresses are as tensor cores take them; `hopper`: Hopper's kernel may do what it can. */
static trm_attention_kernel choose(const trm_kernel_call *call, const trm_attention_shape *s, bool aligned, bool hopper)
{
    const trm_cuda_attention a = trm_cuda_attention_of(call, s);
    const bool fast = trm_cuda_attention_is_fast(s, a.dtype) && aligned, invariant = is_invariant(call, s);
    hopper = hopper && !invariant && fast && has_prefill(s) && !is_sparse(s) && trm_cuda_attention_hopper_ready();
    const bool is_share = s->share.ranks > 1; /* of which invariant.cu knows nothing */
    if (invariant || a.cache_f8) {
        return !fast || is_share ? TRM_ATTENTION_PLAIN
               : hopper          ? TRM_ATTENTION_INVARIANT_HOPPER
                                 : TRM_ATTENTION_INVARIANT;
    }
    if (call->allow_tf32 && !s->sinks && trm_cuda_attention_takes_tf32(&a) && aligned) {
        return TRM_ATTENTION_TF32;
    }
    if (!fast) {
        return has_f32_tiles(s, a.dtype) && aligned ? TRM_ATTENTION_F32 : TRM_ATTENTION_PLAIN;
    }
    const bool is_short = !s->sinks && trm_cuda_attention_is_short(&a);
    return hopper ? TRM_ATTENTION_HOPPER : is_short ? TRM_ATTENTION_SHORT : TRM_ATTENTION_TENSOR;
}

size_t trm_cuda_attention_workspace(const trm_kernel_call *call)
{
    trm_attention_shape s;
    size_t bytes = 0;
    if (!trm_attention_describe(call, &s)) {
        return 0;
    }
    switch (choose(call, &s, true, false)) {
    case TRM_ATTENTION_INVARIANT:
    case TRM_ATTENTION_INVARIANT_HOPPER:
        (void)invariant_partial(&s, &bytes);
        return TRM_CUDA_COUNTER_BYTES + bytes;
    case TRM_ATTENTION_SHORT:
    case TRM_ATTENTION_TENSOR:
    case TRM_ATTENTION_HOPPER:
        bytes = has_decode(&s) ? (size_t)trm_cuda_attention_splits(&s) : 0;
        return TRM_CUDA_COUNTER_BYTES +
               bytes * (size_t)(s.sequences * s.query_heads) * (size_t)(s.value_dim + 2) * sizeof(float);
    case TRM_ATTENTION_PLAIN:
    case TRM_ATTENTION_F32:
    case TRM_ATTENTION_TF32:
        break;
    }
    return 0;
}

trm_cuda_attention trm_cuda_attention_of(const trm_kernel_call *call, const trm_attention_shape *s)
{
    const trm_attention_params *p = &call->layer->attention;
    trm_cuda_attention a = {
        .q = trm_kernel_call_input(call, TRM_ATTENTION_Q),
        .k = trm_kernel_call_input(call, TRM_ATTENTION_K),
        .v = trm_kernel_call_input(call, TRM_ATTENTION_V),
        .out = call->outputs[0].data,
        .starts = trm_kernel_call_input(call, TRM_ATTENTION_SEQUENCE_STARTS),
        .lengths = trm_kernel_call_input(call, TRM_ATTENTION_SEQUENCE_LENGTHS),
        .table = trm_kernel_call_input(call, TRM_ATTENTION_BLOCK_TABLE),
        .mask = trm_kernel_call_input(call, TRM_ATTENTION_MASK),
        .sinks = trm_kernel_call_input(call, TRM_ATTENTION_SINKS),
        .mask_type = s->masked ? call->inputs[TRM_ATTENTION_MASK].dtype : TRM_BOOL,
        .dtype = call->inputs[TRM_ATTENTION_Q].dtype,
        .tokens = s->packed ? s->tokens : s->sequences * s->queries,
        .sequences = (int32_t)s->sequences,
        .queries = (int32_t)s->queries,
        .keys = (int32_t)s->keys,
        .query_heads = (int32_t)s->query_heads,
        .kv_heads = (int32_t)s->kv_heads,
        .group = (int32_t)(s->query_heads / s->kv_heads),
        .dim = (int32_t)s->dim,
        .value_dim = (int32_t)s->value_dim,
        .table_blocks = (int32_t)s->table_blocks,
        .block_size = (int32_t)s->block_size,
        .causal = p->causal,
        .window = p->chunked ? -p->window : p->window,
        .scale = s->scale,
        .softcap = p->softcap,
        .key_inverse = s->key_inverse,
        .value_inverse = s->value_inverse,
        .value_scale = s->value_scale,
        .cache_f8 = s->cached && s->cache_dtype == TRM_F8E4M3,
        .packed = s->packed,
        .rows_first = s->rows_first,
        .cached = s->cached,
    };
    if (s->cached) {
        a.key_cache = call->inputs[TRM_ATTENTION_KEY_CACHE].data;
        a.value_cache = call->inputs[TRM_ATTENTION_VALUE_CACHE].data;
        a.cache_rows = call->inputs[TRM_ATTENTION_KEY_CACHE].dims.d[0] * s->block_size;
        a.share = s->share;
        a.logs = s->share.ranks > 1 ? call->outputs[1].data : NULL;
    }
    for (int i = 0; i < 4; i++) {
        a.mask_strides[i] = s->mask_strides[i];
    }
    return a;
}

/* The tensor core kernels read 16 bytes at a time; memory of a device is that aligned, but a view may not be. */
static bool is_aligned(const trm_cuda_attention *a)
{
    return trm_aligned16(a->q) && trm_aligned16(a->k) && trm_aligned16(a->v) && trm_aligned16(a->out) &&
           trm_aligned16(a->key_cache) && trm_aligned16(a->value_cache);
}

/* ---- launches ---------------------------------------------------------------------------------- */

typedef struct attention_args {
    trm_status (*run)(const trm_cuda_attention *attention, cudaStream_t stream);
    trm_cuda_attention attention;
} attention_args;

static trm_status enqueue(void *user, trm_stream *stream)
{
    const attention_args *args = user;
    return args->run(&args->attention, trm_cuda_stream(stream));
}

static trm_status append(trm_program *program, const char *name,
                         trm_status (*run)(const trm_cuda_attention *attention, cudaStream_t stream),
                         const trm_cuda_attention *attention)
{
    attention_args *args = trm_program_alloc(program, sizeof(*args));
    if (args == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    *args = (attention_args){run, *attention};
    return trm_program_append(program, name, enqueue, args);
}

/* Few queries, then those of more by Hopper's kernel where that may be. */
static trm_status append_invariant(const trm_kernel_call *call, const trm_attention_shape *s, trm_cuda_attention *a,
                                   bool hopper, trm_program *program)
{
    size_t bytes;
    a->splits = invariant_partial(s, &bytes) ? (int32_t)trm_cuda_attention_invariant_splits(s) : 1;
    a->partial = (float *)((char *)call->workspace + TRM_CUDA_COUNTER_BYTES);
    if (!hopper) {
        return append(program, "cuda.attention.invariant", trm_cuda_attention_invariant, a);
    }
    if (s->sequences > 1 || s->tokens <= TRM_ATTENTION_FEW_QUERIES) {
        TRM_TRY(append(program, "cuda.attention.few", trm_cuda_attention_few, a));
        a->skipped = TRM_ATTENTION_FEW_QUERIES;
    }
    return s->tokens > a->skipped ? append(program, "cuda.attention.hopper", trm_cuda_attention_hopper, a) : TRM_OK;
}

/* Sequences of one query, then those of several. */
static trm_status append_tensor(const trm_kernel_call *call, const trm_attention_shape *s, trm_cuda_attention *a,
                                bool hopper, bool decoded, trm_program *program)
{
    if (has_decode(s) && !decoded) {
        a->splits = trm_cuda_attention_splits(s);
        a->partial = (float *)((char *)call->workspace + TRM_CUDA_COUNTER_BYTES);
        TRM_TRY(append(program, "cuda.attention.decode", trm_cuda_attention_decode, a));
    }
    if (!has_prefill(s)) {
        return TRM_OK;
    }
    a->skipped = has_decode(s) ? 1 : 0;
    return hopper ? append(program, "cuda.attention.hopper", trm_cuda_attention_hopper, a)
                  : append(program, "cuda.attention.prefill", trm_cuda_attention_prefill, a);
}

/* `stored`: the step's keys and values are in the cache, and next_tile is 0. `decoded`: sequences of one query are
 * done. */
static trm_status prepare(const trm_kernel_call *call, bool hopper, bool stored, bool decoded, trm_program *program)
{
    trm_attention_shape s;
    if (!trm_attention_describe(call, &s)) {
        TRM_FAIL(TRM_ERROR_INTERNAL, "an attention call does not fit the layer it was accepted for");
    }
    trm_cuda_attention a = trm_cuda_attention_of(call, &s);
    const trm_attention_kernel kernel = choose(call, &s, is_aligned(&a), hopper);
    hopper = kernel == TRM_ATTENTION_HOPPER || kernel == TRM_ATTENTION_INVARIANT_HOPPER;
    if (hopper) {
        a.next_tile = call->workspace;
    }
    if (s.cached && s.sequences > 0 && s.tokens > 0 && !stored) {
        TRM_TRY(append(program, "cuda.attention.store", trm_cuda_attention_store, &a));
    }
    if (trm_dims_count(&call->outputs[0].dims) == 0 || s.sequences == 0) {
        return TRM_OK;
    }
    if (is_invariant(call, &s) || a.cache_f8) {
        a.skipped = decoded ? 1 : 0;
    }
    switch (kernel) {
    case TRM_ATTENTION_PLAIN:
        return append(program, "cuda.attention.plain", trm_cuda_attention_plain, &a);
    case TRM_ATTENTION_F32:
        return append(program, "cuda.attention.f32", trm_cuda_attention_f32, &a);
    case TRM_ATTENTION_TF32:
        return append(program, "cuda.attention.tf32", trm_cuda_attention_tf32, &a);
    case TRM_ATTENTION_SHORT:
        return append(program, "cuda.attention.short", trm_cuda_attention_short, &a);
    case TRM_ATTENTION_TENSOR:
    case TRM_ATTENTION_HOPPER:
        return append_tensor(call, &s, &a, hopper, decoded, program);
    case TRM_ATTENTION_INVARIANT:
    case TRM_ATTENTION_INVARIANT_HOPPER:
        break;
    }
    return append_invariant(call, &s, &a, hopper, program);
}

bool trm_cuda_attention_uses_tensor_cores(const trm_kernel_call *call)
{
    trm_attention_shape s;
    return trm_attention_describe(call, &s) && trm_cuda_attention_is_fast(&s, call->inputs[TRM_ATTENTION_Q].dtype);
}

trm_status trm_cuda_attention_prepare(const trm_kernel_call *call, trm_program *program)
{
    return prepare(call, false, false, false, program);
}

trm_status trm_cuda_attention_hopper_prepare(const trm_kernel_call *call, trm_program *program)
{
    return prepare(call, true, false, false, program);
}

trm_status trm_cuda_attention_prepare_stored(const trm_kernel_call *call, bool decoded, trm_program *program)
{
    return prepare(call, trm_cuda_attention_hopper_accepts(call), true, decoded, program);
}

trm_status trm_cuda_attention_quantize_prepare(const trm_kernel_call *call, trm_program *program, bool *joined)
{
    trm_kernel_call attention;
    trm_attention_shape s;
    *joined = false;
    if (!trm_attention_quantize_describe(call, &attention, &s) || s.packed || !trm_cuda_attention_accepts(&attention) ||
        trm_cuda_attention_hopper_accepts(&attention) || trm_dims_count(&call->outputs[0].dims) == 0) {
        return TRM_OK;
    }
    attention.outputs[0].data = call->outputs[0].data;
    trm_cuda_attention a = trm_cuda_attention_of(&attention, &s);
    *joined = choose(&attention, &s, is_aligned(&a), false) == TRM_ATTENTION_SHORT;
    a.number_scale = call->inputs[TRM_ATTENTION_QUANTIZE_SCALE].data;
    a.number_scale_type = call->inputs[TRM_ATTENTION_QUANTIZE_SCALE].dtype;
    return *joined ? append(program, "cuda.attention.short", trm_cuda_attention_short, &a) : TRM_OK;
}
