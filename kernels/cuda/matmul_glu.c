/*
 * MATMUL_GLU on CUDA: one kernel for one row or two, the product and the GLU one after the other for more.
 */
#include "kernels/matmul_glu.h"

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/launch.h"

/* The call as a product whose n is the GLU's: half of the weight's rows. */
static trm_gemm gemm_of(const trm_kernel_call *call)
{
    const trm_view *x = &call->inputs[0];
    const int64_t k = x->dims.d[x->dims.n - 1];
    trm_gemm gemm = {.m = k > 0 ? trm_dims_count(&x->dims) / k : 0,
                     .n = call->inputs[1].dims.d[0] / 2,
                     .k = k,
                     .batch = 1,
                     .row_a = k,
                     .transpose_b = true,
                     .constant_b = (call->constants >> 1 & 1) != 0,
                     .in = x->dtype,
                     .out = call->outputs[0].dtype,
                     .activation = call->layer->glu.activation,
                     .a = x->data,
                     .b = call->inputs[1].data,
                     .c = call->outputs[0].data};
    return gemm;
}

static bool takes_one_kernel(const trm_kernel_call *call, const trm_gemm *gemm)
{
    return !call->batch_invariant && gemm->k > 0 && trm_cuda_gemv_glu_accepts(gemm);
}

bool trm_cuda_matmul_glu_accepts(const trm_kernel_call *call)
{
    return trm_matmul_glu_accepts(call, TRM_BACKEND_CUDA);
}

size_t trm_cuda_matmul_glu_workspace(const trm_kernel_call *call)
{
    return trm_matmul_glu_workspace(call, TRM_BACKEND_CUDA);
}

trm_status trm_cuda_matmul_glu_run(const trm_kernel_call *call)
{
    trm_gemm gemm = gemm_of(call);
    if (gemm.m == 0 || gemm.n == 0) {
        return TRM_OK;
    }
    if (takes_one_kernel(call, &gemm)) {
        return trm_cuda_gemv_glu_run(&gemm, trm_cuda_stream(call->stream));
    }
    return trm_matmul_glu_run(call, TRM_BACKEND_CUDA);
}

trm_status trm_cuda_matmul_glu_tune(const trm_kernel_call *call, struct trm_tuner *tuner)
{
    trm_gemm gemm = gemm_of(call);
    bool nothing = gemm.m == 0 || gemm.n == 0 || takes_one_kernel(call, &gemm);
    return nothing ? TRM_OK : trm_matmul_glu_tune(call, TRM_BACKEND_CUDA, tuner);
}
