/*
 * The padded form by matrix products of the library, with the scores in memory: what is too long for the plain kernel
 * and not for tensor cores of 16-bit floats (f32 above all). The queries of the heads that share a key-value head are
 * neighbours, so a pair of sequence and key-value head is one product; pairs pass in pieces whose scores fit into the
 * workspace.
 */
#include "attention/cuda/attention.h"
#include "kernels/cuda/cuda.h"
#include "kernels/kernel_list.h"
#include "kernels/matmul/cuda_gemm.h"
#include "kernels/kernel.h"

#define LEAST_SCORES ((int64_t)8192)     /* below, one launch of the plain kernel is faster than three */
#define SCORES_LIMIT ((size_t)256 << 20) /* bytes of scores at a time, unless one pair has more */
#define ALIGNED(x)   (((x) + 255) & ~(size_t)255)

typedef struct product_plan {
    trm_attention_shape shape;
    trm_dtype dtype;
    int64_t pairs, piece; /* pairs of sequence and key-value head; at a time */
    int64_t rows;         /* queries of a pair */
    size_t scores, weights, product;
    trm_layer_desc qk, wv;
    trm_kernel_call q_by_k, w_by_v; /* of one piece */
} product_plan;

static trm_view view_of(trm_dtype dtype, int64_t pairs, int64_t rows, int64_t columns)
{
    return (trm_view){.dtype = dtype, .dims = {3, {pairs, rows, columns}}};
}

/* The two products of `pairs` pairs. */
static void describe_products(product_plan *plan, int64_t pairs)
{
    const trm_attention_shape *s = &plan->shape;
    plan->qk = (trm_layer_desc){.kind = TRM_LAYER_MATMUL, .matmul = {.transpose_b = true, .out = TRM_F32}};
    plan->wv = (trm_layer_desc){.kind = TRM_LAYER_MATMUL};
    plan->q_by_k = (trm_kernel_call){.layer = &plan->qk, .n_inputs = 2, .n_outputs = 1};
    plan->q_by_k.inputs[0] = view_of(plan->dtype, pairs, plan->rows, s->dim);
    plan->q_by_k.inputs[1] = view_of(plan->dtype, pairs, s->keys, s->dim);
    plan->q_by_k.outputs[0] = view_of(TRM_F32, pairs, plan->rows, s->keys);
    plan->w_by_v = (trm_kernel_call){.layer = &plan->wv, .n_inputs = 2, .n_outputs = 1};
    plan->w_by_v.inputs[0] = view_of(plan->dtype, pairs, plan->rows, s->keys);
    plan->w_by_v.inputs[1] = view_of(plan->dtype, pairs, s->keys, s->value_dim);
    plan->w_by_v.outputs[0] = view_of(plan->dtype, pairs, plan->rows, s->value_dim);
}

static bool plan_make(const trm_kernel_call *call, product_plan *plan)
{
    if (!trm_attention_describe(call, &plan->shape)) {
        return false;
    }
    const trm_attention_shape *s = &plan->shape;
    plan->dtype = call->inputs[TRM_ATTENTION_Q].dtype;
    plan->pairs = s->sequences * s->kv_heads;
    plan->rows = s->query_heads / s->kv_heads * s->queries;
    size_t pair = (size_t)plan->rows * (size_t)s->keys;
    plan->piece = pair == 0 ? plan->pairs : (int64_t)(SCORES_LIMIT / (pair * sizeof(float)));
    plan->piece = plan->piece < 1 ? 1 : plan->piece < plan->pairs ? plan->piece : plan->pairs;
    /* Not what the piece needs: that would fall where larger dims make for fewer pairs. */
    size_t all = (size_t)plan->pairs * pair * sizeof(float), most = pair * sizeof(float);
    most = most < SCORES_LIMIT ? SCORES_LIMIT : most;
    plan->scores = ALIGNED(all < most ? all : most);
    plan->weights = plan->dtype == TRM_F32 ? 0 : ALIGNED(plan->scores / 2);
    describe_products(plan, plan->piece);
    size_t first = trm_cuda_matmul_workspace(&plan->q_by_k), second = trm_cuda_matmul_workspace(&plan->w_by_v);
    plan->product = first > second ? first : second;
    return true;
}

bool trm_cuda_attention_products_accepts(const trm_kernel_call *call)
{
    trm_attention_shape s;
    return trm_cuda_attention_accepts(call) && trm_attention_describe(call, &s) && !s.packed && !s.rows_first &&
           !s.sinks && !trm_cuda_attention_uses_tensor_cores(call) && s.dim > 0 && s.keys > 0 &&
           s.sequences * s.query_heads * s.queries * s.keys >= LEAST_SCORES;
}

size_t trm_cuda_attention_products_workspace(const trm_kernel_call *call)
{
    product_plan plan;
    return plan_make(call, &plan) ? plan.product + plan.scores + plan.weights : 0;
}

/* The products of the pairs from `first` on, with their addresses. */
static void place(product_plan *plan, const trm_kernel_call *call, int64_t first)
{
    const trm_attention_shape *s = &plan->shape;
    size_t size = trm_dtype_size(plan->dtype);
    char *scores = (char *)call->workspace + plan->product;
    const char *q = call->inputs[TRM_ATTENTION_Q].data, *k = call->inputs[TRM_ATTENTION_K].data;
    const char *v = call->inputs[TRM_ATTENTION_V].data;
    char *out = call->outputs[0].data;
    int64_t left = plan->pairs - first;
    describe_products(plan, left < plan->piece ? left : plan->piece);
    plan->q_by_k.inputs[0].data = (void *)(uintptr_t)(q + (size_t)(first * plan->rows * s->dim) * size);
    plan->q_by_k.inputs[1].data = (void *)(uintptr_t)(k + (size_t)(first * s->keys * s->dim) * size);
    plan->q_by_k.outputs[0].data = scores;
    plan->w_by_v.inputs[0].data = plan->weights == 0 ? scores : scores + plan->scores;
    plan->w_by_v.inputs[1].data = (void *)(uintptr_t)(v + (size_t)(first * s->keys * s->value_dim) * size);
    plan->w_by_v.outputs[0].data = out + (size_t)(first * plan->rows * s->value_dim) * size;
    plan->q_by_k.workspace = plan->w_by_v.workspace = call->workspace;
    plan->q_by_k.workspace_size = plan->w_by_v.workspace_size = plan->product;
    plan->q_by_k.stream = plan->w_by_v.stream = call->stream;
}

typedef struct softmax_args {
    trm_cuda_attention attention;
    int64_t first, pairs;
    const float *scores;
    void *weights;
    trm_layer_desc qk, wv; /* of the products around it */
} softmax_args;

static trm_status run_softmax(void *user, trm_stream *stream)
{
    const softmax_args *args = user;
    return trm_cuda_attention_softmax(&args->attention, args->first, args->pairs, args->scores, args->weights,
                                      trm_cuda_stream(stream));
}

/* Both products, of the first piece. */
static trm_status tune(const trm_kernel_call *call, product_plan *plan, struct trm_tuner *tuner)
{
    if (plan->pairs == 0) {
        return TRM_OK;
    }
    place(plan, call, 0);
    TRM_TRY(trm_cuda_matmul_tune(&plan->q_by_k, tuner));
    return trm_cuda_matmul_tune(&plan->w_by_v, tuner);
}

trm_status trm_cuda_attention_products_prepare(const trm_kernel_call *call, trm_program *program)
{
    product_plan plan;
    if (!plan_make(call, &plan)) {
        TRM_FAIL(TRM_ERROR_INTERNAL, "an attention call does not fit the layer it was accepted for");
    }
    struct trm_tuner *tuner;
    if (trm_program_take_tuner(program, &tuner)) {
        TRM_TRY(tune(call, &plan, tuner));
    }
    for (int64_t first = 0; first < plan.pairs; first += plan.piece) {
        softmax_args *args = trm_program_alloc(program, sizeof(*args));
        if (args == NULL) {
            return TRM_ERROR_OUT_OF_MEMORY;
        }
        place(&plan, call, first);
        *args = (softmax_args){trm_cuda_attention_of(call, &plan.shape),
                               first,
                               plan.q_by_k.inputs[0].dims.d[0],
                               plan.q_by_k.outputs[0].data,
                               plan.w_by_v.inputs[0].data,
                               plan.qk,
                               plan.wv};
        plan.q_by_k.layer = &args->qk;
        plan.w_by_v.layer = &args->wv;
        TRM_TRY(trm_cuda_matmul_prepare(&plan.q_by_k, program));
        TRM_TRY(trm_program_append(program, "cuda.attention.softmax", run_softmax, args));
        TRM_TRY(trm_cuda_matmul_prepare(&plan.w_by_v, program));
    }
    return TRM_OK;
}
