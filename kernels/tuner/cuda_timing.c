/* Timing of a launch by events, for the choice between variants of a kernel: with a cold cache, as a step finds it. */
#include "kernels/cuda/cuda.h"
#include "kernels/matmul/cuda_gemm.h"

#define RUNS 5
/* Larger than any L2, so that writing it leaves nothing of the operands there. */
#define FLUSH_BYTES ((size_t)128 << 20)

typedef struct stopwatch {
    cudaEvent_t start, end;
    void *flush;
} stopwatch;

static trm_status time_once(const stopwatch *watch, cudaStream_t stream, trm_status (*run)(void *user), void *user,
                            float *milliseconds)
{
    cudaEvent_t start = watch->start, end = watch->end;
    TRM_CUDA_TRY(cudaMemsetAsync(watch->flush, 0, FLUSH_BYTES, stream));
    TRM_CUDA_TRY(cudaEventRecord(start, stream));
    TRM_TRY(run(user));
    TRM_CUDA_TRY(cudaEventRecord(end, stream));
    TRM_CUDA_TRY(cudaEventSynchronize(end));
    TRM_CUDA_TRY(cudaEventElapsedTime(milliseconds, start, end));
    return TRM_OK;
}

static trm_status open_watch(stopwatch *watch)
{
    TRM_CUDA_TRY(cudaEventCreate(&watch->start));
    TRM_CUDA_TRY(cudaEventCreate(&watch->end));
    TRM_CUDA_TRY(cudaMalloc(&watch->flush, FLUSH_BYTES));
    return TRM_OK;
}

static void close_watch(stopwatch *watch)
{
    if (watch->start != NULL) {
        (void)cudaEventDestroy(watch->start);
    }
    if (watch->end != NULL) {
        (void)cudaEventDestroy(watch->end);
    }
    (void)cudaFree(watch->flush);
}

trm_status trm_cuda_time(cudaStream_t stream, trm_status (*run)(void *user), void *user, float *milliseconds)
{
    stopwatch watch = {NULL, NULL, NULL};
    trm_status status = open_watch(&watch);
    float best = 0.0f;
    for (int i = 0; status == TRM_OK && i < RUNS + 1; i++) {
        float time = 0.0f;
        status = time_once(&watch, stream, run, user, &time);
        if (i == 1 || (i > 1 && time < best)) { /* the first run loads code */
            best = time;
        }
    }
    close_watch(&watch);
    if (status == TRM_OK) {
        *milliseconds = best;
    }
    return status;
}
