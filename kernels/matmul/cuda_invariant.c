/*
 * The matrix product layer where no row may depend on how many there are: tensor cores for weights as checkpoints have
 * them (cuda_invariant.cu), plain loops for the rest (cuda_wide.cu).
 */
#include "kernels/cuda/cuda.h"
#include "kernels/matmul/cuda_gemm.h"
#include "kernels/kernel_list.h"

/* The leading dimensions of a view are all 1. */
static bool is_matrix(const trm_dims *dims)
{
    for (int32_t i = 0; i < dims->n - 2; i++) {
        if (dims->d[i] != 1) {
            return false;
        }
    }
    return true;
}

static bool has_bias(const trm_kernel_call *call)
{
    return call->n_inputs > 2 && call->inputs[2].dtype != TRM_DTYPE_NONE;
}

/* The call as one product of all rows. */
static trm_gemm gemm_of(const trm_kernel_call *call)
{
    const trm_view *a = &call->inputs[0], *b = &call->inputs[1], *c = &call->outputs[0];
    const int64_t k = a->dims.d[a->dims.n - 1];
    trm_gemm gemm = {.m = k > 0 ? trm_dims_count(&a->dims) / k : 0,
                     .n = c->dims.d[c->dims.n - 1],
                     .k = k,
                     .batch = 1,
                     .row_a = k,
                     .transpose_a = call->layer->matmul.transpose_a,
                     .transpose_b = call->layer->matmul.transpose_b,
                     .constant_b = (call->constants >> 1 & 1) != 0,
                     .in = a->dtype,
                     .out = c->dtype,
                     .activation = call->layer->matmul.activation,
                     .a = a->data,
                     .b = b->data,
                     .bias = has_bias(call) ? call->inputs[2].data : NULL,
                     .c = c->data};
    return gemm;
}

bool trm_cuda_matmul_invariant_accepts(const trm_kernel_call *call)
{
    const trm_view *a = &call->inputs[0], *b = &call->inputs[1];
    if (!call->batch_invariant || a->dims.n < 2 || b->dims.n < 2 || b->dtype != a->dtype || !is_matrix(&b->dims) ||
        (has_bias(call) &&
         (call->inputs[2].dtype != a->dtype ||
          trm_dims_count(&call->inputs[2].dims) != call->outputs[0].dims.d[call->outputs[0].dims.n - 1]))) {
        return false;
    }
    trm_gemm gemm = gemm_of(call);
    gemm.a = gemm.b = gemm.c = NULL; /* where they lie is seen when it runs */
    return trm_cuda_invariant_accepts(&gemm);
}

trm_status trm_cuda_matmul_invariant_run(const trm_kernel_call *call)
{
    const trm_gemm gemm = gemm_of(call);
    if (gemm.m == 0 || gemm.n == 0) {
        return TRM_OK;
    }
    return trm_cuda_invariant_accepts(&gemm) ? trm_cuda_invariant_run(&gemm, trm_cuda_stream(call->stream))
                                             : trm_cuda_matmul_wide_run(call);
}
