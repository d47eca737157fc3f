/* The experts' layer on CUDA: which kernels a call takes. */
#include "kernels/cuda/cuda.h"
#include "kernels/moe/cuda_moe.h"

bool trm_cuda_moe_experts_accepts(const trm_moe_experts *p)
{
    const int32_t whole = p->format == TRM_MOE_HALVES ? 8 : p->format == TRM_MOE_MXFP4 ? 32 : 16; /* of 16 bytes */
    return trm_moe_experts_check(p) == TRM_OK && p->type != TRM_F32 && p->format <= TRM_MOE_F8_ROWS &&
           p->hidden % whole == 0 && p->width % whole == 0 && (p->format != TRM_MOE_MXFP4 || p->type == TRM_BF16) &&
           trm_aligned16(p->x) && trm_aligned16(p->y) && trm_aligned16(p->gate_up) && trm_aligned16(p->down) &&
           trm_aligned16(p->gate_up_scale) && trm_aligned16(p->down_scale) && trm_aligned16(p->residual);
}

trm_moe_plan trm_cuda_moe_experts_plan(const trm_moe_experts *p)
{
    trm_moe_plan plan = {TRM_MOE_PAIRS, 0, 0, 0};
    /* Pairs read an expert's weights from L2 as often as tokens chose it: that pays while most experts are one's. Where
     * tokens are split, products of them are so much cheaper that it pays for two tokens at most. */
    const int64_t pairs = p->tokens * p->k, most = p->format == TRM_MOE_MXFP4 ? p->experts : p->experts / 2;
    const bool many = trm_cuda_moe_splits(p) ? p->tokens > 2 : p->tokens > 1 && pairs > most;
    if ((many || p->batch_invariant) && trm_cuda_moe_grouped_accepts(p)) {
        plan.regime = TRM_MOE_GROUPED;
        trm_cuda_moe_grouped_choose(p, &plan);
    } else if (!p->batch_invariant) { /* else always the first form, whose sums have the same order for any number */
        trm_cuda_moe_pairs_choose(p, &plan);
    }
    return plan;
}

size_t trm_cuda_moe_experts_workspace(const trm_moe_experts *p, const trm_moe_plan *plan)
{
    return plan->regime == TRM_MOE_PAIRS ? trm_cuda_moe_pairs_workspace(p) : trm_cuda_moe_grouped_workspace(p, plan);
}

trm_status trm_cuda_moe_experts_run(const trm_moe_experts *p, const trm_moe_plan *plan, void *workspace, void *stream)
{
    if (p->tokens == 0) {
        return TRM_OK;
    }
    if (plan->regime == TRM_MOE_GROUPED) {
        return trm_cuda_moe_grouped_run(p, plan, workspace, (cudaStream_t)stream);
    }
    switch (p->format) {
    case TRM_MOE_HALVES:
        return trm_cuda_moe_pairs_run(p, plan, workspace, (cudaStream_t)stream);
    case TRM_MOE_MXFP4:
        return trm_cuda_moe_pairs_f4_run(p, workspace, (cudaStream_t)stream);
    default:
        return trm_cuda_moe_pairs_f8_run(p, workspace, (cudaStream_t)stream);
    }
}
