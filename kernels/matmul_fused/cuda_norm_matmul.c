/*
 * NORM_MATMUL on CUDA: one kernel for one row, the norm and the product one after the other for more, for which that is
 * faster ([2, 4096] x [4096, 28672] with its GLU: by 3 us).
 */
#include "kernels/matmul_fused/norm_matmul.h"

#include "kernels/cuda/cuda.h"
#include "kernels/matmul/cuda_gemm.h"
#include "kernels/kernel_list.h"

static bool is_constant(const trm_kernel_call *call, int32_t input)
{
    return trm_kernel_call_input(call, input) == NULL || (call->constants >> input & 1) != 0;
}

/* The call as a product, whose n is the output's. */
static trm_gemm gemm_of(const trm_kernel_call *call)
{
    const trm_norm_matmul_params *p = &call->layer->norm_matmul;
    const trm_view *x = &call->inputs[TRM_NORM_MATMUL_X], *out = &call->outputs[0];
    const int64_t k = x->dims.d[x->dims.n - 1];
    trm_gemm gemm = {
        .m = k > 0 ? trm_dims_count(&x->dims) / k : 0,
        .n = out->dims.d[out->dims.n - 1],
        .k = k,
        .batch = 1,
        .row_a = k,
        .transpose_b = true,
        .constant_b = is_constant(call, TRM_NORM_MATMUL_WEIGHT) && is_constant(call, TRM_NORM_MATMUL_NORM_WEIGHT) &&
                      is_constant(call, TRM_NORM_MATMUL_BIAS),
        .in = x->dtype,
        .out = out->dtype,
        .activation = p->activation,
        .a = x->data,
        .b = call->inputs[TRM_NORM_MATMUL_WEIGHT].data,
        .bias = trm_kernel_call_input(call, TRM_NORM_MATMUL_BIAS),
        .c = out->data,
        .normed = true,
        .norm_eps = p->eps,
        .norm_offset = p->weight_offset,
        .norm_weight = trm_kernel_call_input(call, TRM_NORM_MATMUL_NORM_WEIGHT),
        .residual = trm_kernel_call_input(call, TRM_NORM_MATMUL_RESIDUAL),
        .sum = p->residual ? call->outputs[1].data : NULL,
    };
    return gemm;
}

static bool takes_one_kernel(const trm_kernel_call *call, const trm_gemm *gemm)
{
    return !call->batch_invariant && gemm->m == 1 && gemm->n > 0 &&
           (call->layer->norm_matmul.gated ? trm_cuda_gemv_glu_accepts(gemm) : trm_cuda_gemv_accepts(gemm));
}

bool trm_cuda_norm_matmul_accepts(const trm_kernel_call *call)
{
    return trm_kernel_parts_accepts(call, TRM_BACKEND_CUDA, trm_norm_matmul_parts);
}

size_t trm_cuda_norm_matmul_workspace(const trm_kernel_call *call)
{
    return trm_kernel_parts_workspace(call, TRM_BACKEND_CUDA, trm_norm_matmul_parts);
}

trm_status trm_cuda_norm_matmul_prepare(const trm_kernel_call *call, trm_program *program)
{
    const trm_gemm gemm = gemm_of(call);
    if (!takes_one_kernel(call, &gemm)) {
        return trm_kernel_parts_prepare(call, TRM_BACKEND_CUDA, trm_norm_matmul_parts, program);
    }
    return call->layer->norm_matmul.gated
               ? trm_cuda_gemm_append(program, "cuda.gemv_glu norm", trm_cuda_gemv_glu_run, &gemm)
               : trm_cuda_gemm_append(program, "cuda.gemv norm", trm_cuda_gemv_run, &gemm);
}
