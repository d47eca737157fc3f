/*
 * QKV_ATTENTION on CUDA: one kernel in steps in which hardly any sequence has several queries; in others one that
 * prepares queries, keys and values, and the kernels of ATTENTION behind it. What is launched depends on dims and types
 * alone.
 */
#include "attention/qkv/cuda.h"

#include "kernels/cuda/cuda.h"
#include "kernels/kernel.h"

#define ALIGNMENT ((size_t)256)
/* Of one-kernel steps: trm_cuda_qkv_clusters() never makes more rows of partial results. */
#define PARTIAL_ROWS ((size_t)264 * 16)
/* Tables up to this many keys: clusters of blocks, by cuda_direct.cu; beyond: equal shares, by cuda_shares.cu. Of many
 * sequences and heads, where a warp has a sequence's keys to itself, fewer. */
#define SHARE_KEYS      2048
#define SHARE_KEYS_MANY 1024
/* Pairs of sequence and key-value head that are few: joined by a kernel of its own. */
#define MOST_JOINED_APART 32

bool trm_cuda_qkv_attention_accepts(const trm_kernel_call *call)
{
    trm_layer_desc desc;
    trm_kernel_call attention;
    trm_attention_shape s;
    if (!trm_qkv_attention_describe(call, &desc, &attention, &s) || !trm_cuda_attention_accepts(&attention)) {
        return false;
    }
    const trm_dtype dtype = call->inputs[TRM_QKV_ATTENTION_QKV].dtype;
    for (int32_t i = TRM_QKV_ATTENTION_Q_NORM; i <= TRM_QKV_ATTENTION_K_NORM; i++) {
        if (trm_kernel_call_has(call, i) && call->inputs[i].dtype != dtype) {
            return false;
        }
    }
    const trm_rope_params *rope = &call->layer->qkv_attention.rope;
    return call->inputs[TRM_QKV_ATTENTION_QKV].dims.d[1] % 8 == 0 && trm_cuda_attention_is_fast(&s, dtype) &&
           s.cached && s.block_size > 0 && rope->rotary_dim <= s.dim && rope->rotary_dim % 2 == 0;
}

/* Key-value heads of a block of the kernels that keep fragments in registers: several where sequences times heads are
 * more blocks than run at once. */
static int32_t heads_of_block(const trm_attention_shape *s)
{
    int32_t heads = 1;
    while (heads < TRM_QKV_MOST_HEADS && s->kv_heads % (2 * heads) == 0 &&
           s->sequences * s->kv_heads / heads > TRM_QKV_BLOCKS) {
        heads *= 2;
    }
    return heads;
}

/* Whether cuda_shares.cu runs what it can: a sequence may be so long that its keys are dealt out to all blocks. */
static bool takes_shares(const trm_attention_shape *s)
{
    const bool many = s->sequences * s->kv_heads > TRM_QKV_BLOCKS;
    return s->table_blocks * s->block_size > (many ? SHARE_KEYS_MANY : SHARE_KEYS);
}

static size_t queries_room(const trm_attention_shape *s)
{
    size_t bytes = (size_t)(s->tokens * s->query_heads * s->dim) * 2;
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

size_t trm_cuda_qkv_attention_workspace(const trm_kernel_call *call)
{
    trm_layer_desc desc;
    trm_kernel_call attention;
    trm_attention_shape s;
    if (!trm_qkv_attention_describe(call, &desc, &attention, &s)) {
        return 0;
    }
    size_t rows = (size_t)TRM_QKV_BLOCKS * 2 * (size_t)(heads_of_block(&s) * (s.query_heads / s.kv_heads));
    size_t shares = takes_shares(&s) ? rows * TRM_QKV_PART_ROW((size_t)s.dim) : 0;
    size_t clusters = PARTIAL_ROWS * (size_t)(s.dim + 2),
           partial = (shares > clusters ? shares : clusters) * sizeof(float);
    size_t behind = TRM_CUDA_COUNTER_BYTES + partial;
    size_t needed = trm_cuda_attention_workspace(&attention);
    return queries_room(&s) + (needed > behind ? needed : behind);
}

/* Whether no kernel writes what the caller gives for a step. */
static bool inputs_stand(const trm_kernel_call *call)
{
    uint32_t all = 1u << TRM_QKV_ATTENTION_SEQUENCE_STARTS | 1u << TRM_QKV_ATTENTION_SEQUENCE_LENGTHS |
                   1u << TRM_QKV_ATTENTION_BLOCK_TABLE | 1u << TRM_QKV_ATTENTION_POSITIONS |
                   1u << TRM_QKV_ATTENTION_INV_FREQ;
    all |= trm_kernel_call_has(call, TRM_QKV_ATTENTION_LENGTHS) ? 1u << TRM_QKV_ATTENTION_LENGTHS : 0;
    return (call->constants & all) == all;
}

/* ---- launches ---------------------------------------------------------------------------------- */

typedef struct qkv_args {
    trm_cuda_qkv qkv;
    void *queries; /* of what prepares, with its counter */
    uint32_t *next_tile;
} qkv_args;

static trm_status run_prepare(void *user, trm_stream *stream)
{
    const qkv_args *args = user;
    return trm_cuda_qkv_prepare(&args->qkv, args->queries, args->next_tile, trm_cuda_stream(stream));
}

static trm_status run_decode(void *user, trm_stream *stream)
{
    qkv_args *args = user;
    args->qkv.counters = trm_cuda_stream_counters(stream);
    return trm_cuda_qkv_decode(&args->qkv, trm_cuda_stream(stream));
}

/* The call for the kernels, except the memory for partial results. */
static trm_cuda_qkv qkv_of(const trm_kernel_call *call, const trm_kernel_call *attention, const trm_attention_shape *s)
{
    const trm_qkv_attention_params *params = &call->layer->qkv_attention;
    return (trm_cuda_qkv){
        .a = trm_cuda_attention_of(attention, s),
        .qkv = call->inputs[TRM_QKV_ATTENTION_QKV].data,
        .width = call->inputs[TRM_QKV_ATTENTION_QKV].dims.d[1],
        .positions = trm_kernel_call_input(call, TRM_QKV_ATTENTION_POSITIONS),
        .inv_freq = trm_kernel_call_input(call, TRM_QKV_ATTENTION_INV_FREQ),
        .rope_lengths =
            params->rope.scaling != TRM_ROPE_PLAIN ? trm_kernel_call_input(call, TRM_QKV_ATTENTION_LENGTHS) : NULL,
        .q_norm = trm_kernel_call_input(call, TRM_QKV_ATTENTION_Q_NORM),
        .k_norm = trm_kernel_call_input(call, TRM_QKV_ATTENTION_K_NORM),
        .rope = params->rope,
        .eps = params->eps,
        .weight_offset = params->weight_offset,
        .early = inputs_stand(call),
    };
}

static bool is_aligned(const trm_cuda_qkv *qkv)
{
    return trm_aligned16(qkv->qkv) && trm_aligned16(qkv->a.out) && trm_aligned16(qkv->a.key_cache) &&
           trm_aligned16(qkv->a.value_cache) && trm_aligned16(qkv->q_norm) && trm_aligned16(qkv->k_norm);
}

/* Shares the keys among blocks; whether qkv_direct.cu or qkv_shares.cu does it. */
static bool cut(trm_cuda_qkv *qkv, const trm_attention_shape *s)
{
    if (!trm_cuda_qkv_is_direct(qkv)) {
        trm_cuda_qkv_clusters(s, &qkv->cluster, &qkv->clusters);
        return false;
    }
    qkv->heads = heads_of_block(s);
    qkv->shared_out = takes_shares(s);
    qkv->joined_apart = s->sequences * s->kv_heads <= MOST_JOINED_APART;
    qkv->clusters = 1;
    trm_cuda_qkv_direct_cut(qkv);
    return true;
}

trm_status trm_cuda_qkv_attention_prepare(const trm_kernel_call *call, trm_program *program)
{
    trm_layer_desc desc;
    trm_kernel_call attention;
    trm_attention_shape s;
    if (!trm_qkv_attention_describe(call, &desc, &attention, &s) ||
        trm_cuda_qkv_attention_workspace(call) > call->workspace_size) {
        TRM_FAIL(TRM_ERROR_INTERNAL, "a qkv_attention call does not fit the layer it was accepted for");
    }
    if (s.tokens == 0 || s.sequences == 0) {
        return TRM_OK;
    }
    qkv_args *args = trm_program_alloc(program, sizeof(*args));
    if (args == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    trm_cuda_qkv *qkv = &args->qkv;
    *qkv = qkv_of(call, &attention, &s);
    if (!is_aligned(qkv)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "a tensor of a qkv_attention is not aligned to 16 bytes");
    }
    const bool direct = cut(qkv, &s);
    const bool apart = call->batch_invariant || (qkv->a.cache_f8 && !direct); /* from the kernels that prepare */
    if (s.tokens <= s.sequences && !apart) {
        qkv->a.partial = call->workspace;
        return trm_program_append(program, "cuda.qkv_attention", run_decode, args);
    }
    const size_t room = queries_room(&s);
    attention.inputs[TRM_ATTENTION_Q].data = call->workspace;
    attention.workspace = (char *)call->workspace + room;
    attention.workspace_size = call->workspace_size - room;
    args->queries = call->workspace;
    args->next_tile = attention.workspace;
    qkv->a.partial = (float *)(void *)((char *)attention.workspace + TRM_CUDA_COUNTER_BYTES);
    qkv->apart = direct && s.sequences > 1 && !apart;
    TRM_TRY(trm_program_append(program, "cuda.qkv_attention.prepare", run_prepare, args));
    if (qkv->apart) {
        TRM_TRY(trm_program_append(program, "cuda.qkv_attention", run_decode, args));
    }
    return trm_cuda_attention_prepare_stored(&attention, qkv->apart, program);
}
