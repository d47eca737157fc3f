/* ROUTER and EXPERTS layers on CUDA: by the fast kernels where they take the call, else by the plain ones. */
#include "kernels/cuda/cuda.h"
#include "kernels/moe/cuda_moe.h"
#include "kernels/moe/layer.h"

/* An aligned address in place of one that is not known yet: device memory is aligned when the call runs. */
static const void *some(const void *data)
{
    return data != NULL ? data : (const void *)(uintptr_t)256;
}

static bool is_fast_router(const trm_moe_router *router)
{
    trm_moe_router asked = *router;
    static int32_t ids;
    static float weights;
    asked.x = some(asked.x);
    asked.weight = some(asked.weight);
    asked.ids = &ids;
    asked.weights = &weights;
    return trm_cuda_moe_router_accepts(&asked);
}

bool trm_cuda_router_accepts(const trm_kernel_call *call)
{
    trm_moe_router router;
    return trm_moe_router_of(call, &router);
}

trm_status trm_cuda_router_run(const trm_kernel_call *call)
{
    trm_moe_router router;
    if (!trm_moe_router_of(call, &router) || router.tokens == 0) {
        return TRM_OK;
    }
    TRM_TRY(trm_moe_router_check(&router));
    cudaStream_t stream = trm_stream_native(call->stream);
    return is_fast_router(&router)
               ? trm_cuda_moe_router_run(&router, (call->constants >> TRM_ROUTER_WEIGHT & 1) != 0, stream)
               : trm_cuda_moe_router_plain(&router, stream);
}

static bool is_fast(const trm_moe_experts *experts)
{
    trm_moe_experts asked = *experts;
    static char y;
    asked.x = some(asked.x);
    asked.ids = some(asked.ids);
    asked.weights = some(asked.weights);
    asked.gate_up = some(asked.gate_up);
    asked.down = some(asked.down);
    asked.gate_up_scale = some(asked.gate_up_scale);
    asked.down_scale = some(asked.down_scale);
    asked.y = asked.y != NULL ? asked.y : (void *)((uintptr_t)&y / 256 * 256);
    return trm_cuda_moe_experts_accepts(&asked);
}

bool trm_cuda_experts_accepts(const trm_kernel_call *call)
{
    trm_moe_experts experts;
    return trm_moe_experts_of(call, &experts) && (is_fast(&experts) || trm_cuda_moe_experts_plain_accepts(&experts));
}

size_t trm_cuda_experts_workspace(const trm_kernel_call *call)
{
    trm_moe_experts experts;
    if (!trm_moe_experts_of(call, &experts) || !is_fast(&experts)) {
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
    if (!is_fast(&experts)) {
        return trm_cuda_moe_experts_plain(&experts, stream);
    }
    const trm_moe_plan plan = trm_cuda_moe_experts_plan(&experts);
    return trm_cuda_moe_experts_run(&experts, &plan, call->workspace, stream);
}
