/* ROUTER and EXPERTS layers on CUDA. */
#include "kernels/cuda/cuda.h"
#include "kernels/moe/layer.h"

bool trm_cuda_router_accepts(const trm_kernel_call *call)
{
    trm_moe_router router;
    return trm_moe_router_of(call, &router) && trm_cuda_moe_router_accepts(&router);
}

trm_status trm_cuda_router_run(const trm_kernel_call *call)
{
    trm_moe_router router;
    if (!trm_moe_router_of(call, &router) || router.tokens == 0) {
        return TRM_OK;
    }
    return trm_cuda_moe_router_run(&router, (call->constants >> TRM_ROUTER_WEIGHT & 1) != 0,
                                   trm_stream_native(call->stream));
}

bool trm_cuda_experts_accepts(const trm_kernel_call *call)
{
    trm_moe_experts experts;
    return trm_moe_experts_of(call, &experts) && trm_cuda_moe_experts_accepts(&experts);
}

size_t trm_cuda_experts_workspace(const trm_kernel_call *call)
{
    trm_moe_experts experts;
    if (!trm_moe_experts_of(call, &experts)) {
        return 0;
    }
    const trm_moe_plan plan = trm_cuda_moe_experts_plan(&experts);
    return trm_cuda_moe_experts_workspace(&experts, &plan);
}

trm_status trm_cuda_experts_run(const trm_kernel_call *call)
{
    trm_moe_experts experts;
    if (!trm_moe_experts_of(call, &experts) || experts.tokens == 0) {
        return TRM_OK;
    }
    const trm_moe_plan plan = trm_cuda_moe_experts_plan(&experts);
    return trm_cuda_moe_experts_run(&experts, &plan, call->workspace, trm_stream_native(call->stream));
}
