/* Products as launches of a program. */
#include "kernels/matmul/cuda_gemm.h"

#include "base/error.h"
#include "kernels/cuda/cuda.h"

typedef struct gemm_args {
    trm_status (*run)(const trm_gemm *gemm, cudaStream_t stream);
    trm_gemm gemm;
} gemm_args;

static trm_status enqueue(void *args, trm_stream *stream)
{
    const gemm_args *a = args;
    return a->run(&a->gemm, trm_cuda_stream(stream));
}

trm_status trm_cuda_gemm_append(trm_program *program, const char *name,
                                trm_status (*run)(const trm_gemm *gemm, cudaStream_t stream), const trm_gemm *gemm)
{
    gemm_args *args = trm_program_alloc(program, sizeof(*args));
    if (args == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    *args = (gemm_args){run, *gemm};
    return trm_program_append(program, name, enqueue, args);
}
