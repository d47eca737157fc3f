/* Timing of a launch by events, for the choice between variants of a kernel. */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/gemm.h"

#define RUNS 5

static trm_status time_once(cudaStream_t stream, trm_status (*run)(void *user), void *user, cudaEvent_t start,
                            cudaEvent_t end, float *milliseconds)
{
    TRM_CUDA_TRY(cudaEventRecord(start, stream));
    TRM_TRY(run(user));
    TRM_CUDA_TRY(cudaEventRecord(end, stream));
    TRM_CUDA_TRY(cudaEventSynchronize(end));
    TRM_CUDA_TRY(cudaEventElapsedTime(milliseconds, start, end));
    return TRM_OK;
}

trm_status trm_cuda_time(cudaStream_t stream, trm_status (*run)(void *user), void *user, float *milliseconds)
{
    cudaEvent_t start = NULL, end = NULL;
    TRM_CUDA_TRY(cudaEventCreate(&start));
    cudaError_t error = cudaEventCreate(&end);
    trm_status status = error == cudaSuccess ? TRM_OK : trm_cuda_fail(error, "cudaEventCreate");
    float best = 0.0f;
    for (int i = 0; status == TRM_OK && i < RUNS + 1; i++) {
        float time = 0.0f;
        status = time_once(stream, run, user, start, end, &time);
        if (i == 1 || (i > 1 && time < best)) { /* the first run loads code and warms caches */
            best = time;
        }
    }
    (void)cudaEventDestroy(start);
    if (end != NULL) {
        (void)cudaEventDestroy(end);
    }
    if (status == TRM_OK) {
        *milliseconds = best;
    }
    return status;
}
