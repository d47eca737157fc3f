/* ROUTER, NORM_ROUTER and EXPERTS layers on CUDA: by the fast kernels where they take the call, else by the plain ones.
 */
#include "kernels/cuda/cuda.h"
#include "kernels/moe/cuda_moe.h"
#include "kernels/moe/layer.h"
#include "kernels/parts.h"

/* ---- router ----------------------------------------------------------------------------------------- */

/* For more tokens a product and a kernel that chooses are faster than one kernel that does both (bench_moe), which has
 * a single block for a token where there are no clusters. */
#define MOST_TOGETHER 16

static const trm_kernel_table *const tables[] = {&trm_cuda_kernels};

/* The logits as a product of its own, in f32: x becomes f32 before where only the weight is. */
static bool logits_parts(const trm_kernel_call *call, trm_kernel_parts *parts)
{
    const trm_view *weight = &call->inputs[TRM_ROUTER_WEIGHT];
    trm_view x = call->inputs[TRM_ROUTER_X];
    const trm_view logits = {call->workspace, TRM_F32, {2, {x.dims.d[0], weight->dims.d[0]}}};
    parts->tables = tables;
    parts->n_tables = 1;
    parts->between = trm_kernel_parts_room(&logits);
    if (x.dtype != weight->dtype && weight->dtype == TRM_F32) {
        trm_kernel_call *cast = trm_kernel_parts_add(parts, call, TRM_LAYER_CAST);
        parts->layers[0].cast.to = TRM_F32;
        trm_kernel_parts_pass(cast, call, TRM_ROUTER_X);
        x.dtype = TRM_F32;
        x.data = call->workspace != NULL ? (char *)call->workspace + parts->between : NULL;
        cast->outputs[0] = x;
        parts->between += trm_kernel_parts_room(&x);
    }
    trm_kernel_call *product = trm_kernel_parts_add(parts, call, TRM_LAYER_MATMUL);
    parts->layers[parts->n - 1].matmul = (trm_matmul_params){.transpose_b = true, .out = TRM_F32};
    product->allow_tf32 = false; /* which experts are chosen hangs on the last bits */
    product->inputs[product->n_inputs++] = x;
    trm_kernel_parts_pass(product, call, TRM_ROUTER_WEIGHT);
    product->outputs[0] = logits;
    return true;
}

static bool takes_parts(const trm_kernel_call *call)
{
    const bool apart = call->inputs[TRM_ROUTER_X].dims.d[0] > MOST_TOGETHER || !trm_cuda_has_clusters();
    return (call->batch_invariant || apart) && trm_kernel_parts_accepts(call, TRM_BACKEND_CUDA, logits_parts);
}

bool trm_cuda_router_accepts(const trm_kernel_call *call)
{
    trm_moe_router router;
    return trm_moe_router_of(call, &router);
}

size_t trm_cuda_router_workspace(const trm_kernel_call *call)
{
    return trm_kernel_parts_workspace(call, TRM_BACKEND_CUDA, logits_parts);
}

typedef struct router_args {
    trm_moe_router router;
    bool constant_weight;
} router_args;

static trm_status enqueue_router(void *user, trm_stream *stream)
{
    const router_args *args = user;
    return trm_cuda_moe_router_run(&args->router, args->constant_weight, trm_stream_native(stream));
}

static trm_status enqueue_plain_router(void *user, trm_stream *stream)
{
    const router_args *args = user;
    return trm_cuda_moe_router_plain(&args->router, trm_stream_native(stream));
}

trm_status trm_cuda_router_prepare(const trm_kernel_call *call, trm_program *program)
{
    trm_moe_router router;
    if (!trm_moe_router_of(call, &router) || router.tokens == 0) {
        return TRM_OK;
    }
    TRM_TRY(trm_moe_router_check(&router));
    const bool parts = takes_parts(call);
    if (parts) {
        TRM_TRY(trm_kernel_parts_prepare(call, TRM_BACKEND_CUDA, logits_parts, program));
        router.logits = call->workspace;
    }
    router_args *args = trm_program_alloc(program, sizeof(*args));
    if (args == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    *args = (router_args){router, (call->constants >> TRM_ROUTER_WEIGHT & 1) != 0};
    return trm_cuda_moe_router_accepts(&router)
               ? trm_program_append(program, parts ? "cuda.router choice" : "cuda.router", enqueue_router, args)
               : trm_program_append(program, "cuda.router plain", enqueue_plain_router, args);
}

/* ---- a norm before the router ----------------------------------------------------------------------- */

bool trm_cuda_norm_router_accepts(const trm_kernel_call *call)
{
    return trm_kernel_parts_accepts(call, TRM_BACKEND_CUDA, trm_norm_router_parts);
}

size_t trm_cuda_norm_router_workspace(const trm_kernel_call *call)
{
    return trm_kernel_parts_workspace(call, TRM_BACKEND_CUDA, trm_norm_router_parts);
}

typedef struct norm_router_args {
    trm_moe_router router;
    trm_moe_norm norm;
    bool constant_weights;
} norm_router_args;

/* Whether one kernel does it. */
static bool norm_router_of(const trm_kernel_call *call, norm_router_args *args)
{
    const trm_norm_router_params *p = &call->layer->norm_router;
    trm_kernel_parts parts = {0};
    if (call->batch_invariant || !trm_norm_router_parts(call, &parts) ||
        !trm_moe_router_of(&parts.calls[1], &args->router) || takes_parts(&parts.calls[1])) {
        return false;
    }
    const trm_kernel_call *norm = &parts.calls[0];
    const int32_t weight = p->residual ? 2 : 1;
    const bool has_weight = norm->n_inputs > weight;
    args->router.x = call->inputs[TRM_ROUTER_X].data;
    args->norm = (trm_moe_norm){.weight = has_weight ? norm->inputs[weight].data : NULL,
                                .residual = p->residual ? norm->inputs[1].data : NULL,
                                .to = norm->outputs[0].data,
                                .sum = p->residual && (norm->unread >> 1 & 1) == 0 ? norm->outputs[1].data : NULL,
                                .eps = p->eps,
                                .offset = p->weight_offset};
    args->constant_weights = (parts.calls[1].constants >> TRM_ROUTER_WEIGHT & 1) != 0 &&
                             (!has_weight || (norm->constants >> weight & 1) != 0);
    return trm_cuda_moe_norm_router_accepts(&args->router, &args->norm);
}

static trm_status enqueue_norm_router(void *user, trm_stream *stream)
{
    const norm_router_args *args = user;
    return trm_cuda_moe_norm_router_run(&args->router, &args->norm, args->constant_weights, trm_stream_native(stream));
}

trm_status trm_cuda_norm_router_prepare(const trm_kernel_call *call, trm_program *program)
{
    norm_router_args found, *args;
    if (!norm_router_of(call, &found)) {
        return trm_kernel_parts_prepare(call, TRM_BACKEND_CUDA, trm_norm_router_parts, program);
    }
    args = trm_program_alloc(program, sizeof(*args));
    if (args == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    *args = found;
    return trm_program_append(program, "cuda.router norm", enqueue_norm_router, args);
}

/* ---- experts ---------------------------------------------------------------------------------------- */

bool trm_cuda_experts_accepts(const trm_kernel_call *call)
{
    trm_moe_experts experts;
    return trm_moe_experts_of(call, &experts) &&
           (trm_cuda_moe_experts_accepts(&experts) || trm_cuda_moe_experts_plain_accepts(&experts));
}

size_t trm_cuda_experts_workspace(const trm_kernel_call *call)
{
    trm_moe_experts experts;
    if (!trm_moe_experts_of(call, &experts) || !trm_cuda_moe_experts_accepts(&experts)) {
        return 0;
    }
    /* Also what fewer tokens take, whose kernels are others. */
    size_t most = 0;
    for (int64_t tokens = experts.tokens; tokens > 0; tokens /= 2) {
        trm_moe_experts fewer = experts;
        fewer.tokens = tokens;
        const trm_moe_plan plan = trm_cuda_moe_experts_plan(&fewer);
        const size_t needs = trm_cuda_moe_experts_workspace(&fewer, &plan);
        most = needs > most ? needs : most;
    }
    return most;
}

trm_status trm_cuda_experts_run(const trm_kernel_call *call)
{
    trm_moe_experts experts;
    if (!trm_moe_experts_of(call, &experts) || experts.tokens == 0) {
        return TRM_OK;
    }
    TRM_TRY(trm_moe_experts_check(&experts));
    cudaStream_t stream = trm_stream_native(call->stream);
    if (!trm_cuda_moe_experts_accepts(&experts)) {
        return trm_cuda_moe_experts_plain(&experts, stream);
    }
    const trm_moe_plan plan = trm_cuda_moe_experts_plan(&experts);
    return trm_cuda_moe_experts_run(&experts, &plan, call->workspace, stream);
}
