/*
 * The attention layer on CUDA: stores the step's keys and values, then gives sequences of one query to the decode
 * kernel and the rest to a prefill kernel, or everything to the plain kernel. What is launched depends on dims and
 * types alone, so that a captured step stays right as lengths grow.
 */
#include "attention/cuda/attention.h"

#include "attention/cuda/geometry.h"
#include "attention/cuda/invariant.h"
#include "kernels/cuda/cuda.h"

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
    return dtype == TRM_F32 && !s->cached && s->dim == s->value_dim && s->dim % 4 == 0 && s->dim >= 4 && s->dim <= 128;
}

/* Whether one of a call's sequences may have one query and the decode kernel is of use. */
static bool has_decode(const trm_attention_shape *s)
{
    return s->cached && (s->tokens == 1 || s->sequences > 1);
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
    return TRM_HAVE_SM90A && form && trm_cuda_attention_is_fast(s, dtype) && s->scale > 0.0f &&
           (!s->cached || s->block_size % 8 == 0) && tiles * s->query_heads <= INT32_MAX;
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
                s.dim <= TRM_ATTENTION_PLAIN_MAX_DIM && s.value_dim <= TRM_ATTENTION_PLAIN_MAX_DIM;
    return is_float(dtype) && same && fits && (mask == TRM_BOOL || is_float(mask));
}

/* Whether a query's result must not depend on what else is in the step. Without a cache a call has whole sequences. */
static bool is_invariant(const trm_kernel_call *call, const trm_attention_shape *s)
{
    return call->batch_invariant && s->cached;
}

/* An e4m3 cache: the kernels of the batch-invariant mode read it, too, and for long sequences Hopper's. */
static bool is_f8(const trm_attention_shape *s)
{
    return s->cached && s->cache_dtype == TRM_F8E4M3;
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
    return !(trm_cuda_attention_is_short(&a) && s.keys <= SHORT_IS_FASTER);
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

/* `hopper`: long sequences by Hopper's kernel, where that is allowed. */
static trm_status run_invariant(const trm_kernel_call *call, const trm_attention_shape *s, trm_cuda_attention *a,
                                bool hopper)
{
    size_t bytes;
    cudaStream_t stream = trm_cuda_stream(call->stream);
    a->splits = invariant_partial(s, &bytes) ? (int32_t)trm_cuda_attention_invariant_splits(s) : 1;
    a->partial = (float *)((char *)call->workspace + TRM_CUDA_COUNTER_BYTES);
    if (!hopper) {
        return trm_cuda_attention_invariant(a, stream);
    }
    if (s->sequences > 1 || s->tokens <= TRM_ATTENTION_FEW_QUERIES) {
        TRM_TRY(trm_cuda_attention_few(a, stream));
        a->skipped = TRM_ATTENTION_FEW_QUERIES;
    }
    return s->tokens > a->skipped ? trm_cuda_attention_hopper(a, stream) : TRM_OK;
}

size_t trm_cuda_attention_workspace(const trm_kernel_call *call)
{
    trm_attention_shape s;
    if (!trm_attention_describe(call, &s) || !trm_cuda_attention_is_fast(&s, call->inputs[0].dtype)) {
        return 0;
    }
    if (is_invariant(call, &s) || is_f8(&s)) {
        size_t bytes;
        (void)invariant_partial(&s, &bytes);
        return TRM_CUDA_COUNTER_BYTES + bytes;
    }
    size_t splits = has_decode(&s) ? (size_t)trm_cuda_attention_splits(&s) : 0;
    return TRM_CUDA_COUNTER_BYTES +
           splits * (size_t)(s.sequences * s.query_heads) * (size_t)(s.value_dim + 2) * sizeof(float);
}

static const void *input(const trm_kernel_call *call, int32_t i)
{
    return i < call->n_inputs ? call->inputs[i].data : NULL;
}

trm_cuda_attention trm_cuda_attention_of(const trm_kernel_call *call, const trm_attention_shape *s)
{
    const trm_attention_params *p = &call->layer->attention;
    trm_cuda_attention a = {
        .q = input(call, TRM_ATTENTION_Q),
        .k = input(call, TRM_ATTENTION_K),
        .v = input(call, TRM_ATTENTION_V),
        .out = call->outputs[0].data,
        .starts = input(call, TRM_ATTENTION_SEQUENCE_STARTS),
        .lengths = input(call, TRM_ATTENTION_SEQUENCE_LENGTHS),
        .table = input(call, TRM_ATTENTION_BLOCK_TABLE),
        .mask = input(call, TRM_ATTENTION_MASK),
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
        .window = p->window,
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

/* Few sequences can have several queries: most often there is nothing to do, which the smaller kernel finds sooner. */
static bool is_sparse(const trm_attention_shape *s)
{
    return has_decode(s) && s->tokens <= s->sequences;
}

/* `stored`: the step's keys and values are in the cache, and next_tile is 0. `decoded`: sequences of one query are
 * done. */
static trm_status run_attention(const trm_kernel_call *call, bool hopper, bool stored, bool decoded)
{
    trm_attention_shape s;
    if (!trm_attention_describe(call, &s)) {
        TRM_FAIL(TRM_ERROR_INTERNAL, "an attention call does not fit the layer it was accepted for");
    }
    cudaStream_t stream = trm_cuda_stream(call->stream);
    trm_cuda_attention a = trm_cuda_attention_of(call, &s);
    bool fast = trm_cuda_attention_is_fast(&s, a.dtype) && is_aligned(&a);
    const bool invariant = is_invariant(call, &s);
    hopper = hopper && !invariant && fast && has_prefill(&s) && !is_sparse(&s) && trm_cuda_attention_hopper_ready();
    if (hopper) {
        a.next_tile = call->workspace;
    }
    if (s.cached && s.sequences > 0 && s.tokens > 0 && !stored) {
        TRM_TRY(trm_cuda_attention_store(&a, stream));
    }
    if (trm_dims_count(&call->outputs[0].dims) == 0 || s.sequences == 0) {
        return TRM_OK;
    }
    if (invariant || a.cache_f8) {
        a.skipped = decoded ? 1 : 0;
        return fast ? run_invariant(call, &s, &a, hopper) : trm_cuda_attention_plain(&a, stream);
    }
    if (call->allow_tf32 && trm_cuda_attention_takes_tf32(&a) && is_aligned(&a)) {
        return trm_cuda_attention_tf32(&a, stream);
    }
    if (!fast && has_f32_tiles(&s, a.dtype) && is_aligned(&a)) {
        return trm_cuda_attention_f32(&a, stream);
    }
    if (!fast) {
        return trm_cuda_attention_plain(&a, stream);
    }
    if (trm_cuda_attention_is_short(&a) && !hopper) {
        return trm_cuda_attention_short(&a, stream);
    }
    if (has_decode(&s) && !decoded) {
        a.splits = trm_cuda_attention_splits(&s);
        a.partial = (float *)((char *)call->workspace + TRM_CUDA_COUNTER_BYTES);
        TRM_TRY(trm_cuda_attention_decode(&a, stream));
    }
    if (has_prefill(&s)) {
        a.skipped = has_decode(&s) ? 1 : 0;
        TRM_TRY(hopper ? trm_cuda_attention_hopper(&a, stream) : trm_cuda_attention_prefill(&a, stream));
    }
    return TRM_OK;
}

bool trm_cuda_attention_uses_tensor_cores(const trm_kernel_call *call)
{
    trm_attention_shape s;
    return trm_attention_describe(call, &s) && trm_cuda_attention_is_fast(&s, call->inputs[TRM_ATTENTION_Q].dtype);
}

trm_status trm_cuda_attention_run(const trm_kernel_call *call)
{
    return run_attention(call, false, false, false);
}

trm_status trm_cuda_attention_hopper_run(const trm_kernel_call *call)
{
    return run_attention(call, true, false, false);
}

trm_status trm_cuda_attention_run_stored(const trm_kernel_call *call, bool decoded)
{
    return run_attention(call, trm_cuda_attention_hopper_accepts(call), true, decoded);
}
