/* The CUDA kernel of gain_swish.c. */
#include <stdio.h>

#include <cuda_runtime.h>

#include "gain_swish.h"

/* Bound by memory: x is read and y written once; gains come from cache. */
static __global__ void swish(const float *x, const float *gain, float *y, long long count, long long n, float sharpness)
{
    const long long stride = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride) {
        const float v = x[i];
        y[i] = gain[i % n] * v / (1.0f + expf(-sharpness * v));
    }
}

/* Enqueues and returns: no allocation, no waiting, so that a run can be captured. */
extern "C" bool gain_swish_enqueue(trm_plugin_call *call)
{
    const gain_swish *self = static_cast<const gain_swish *>(call->self);
    const trm_dims *dims = &call->inputs[0].dims;
    long long count = 1;
    for (int i = 0; i < dims->n; i++) {
        count *= dims->d[i];
    }
    const long long blocks = (count + 255) / 256;
    swish<<<(unsigned)(blocks < 4096 ? blocks : 4096), 256, 0, static_cast<cudaStream_t>(call->stream)>>>(
        static_cast<const float *>(call->inputs[0].data), static_cast<const float *>(call->inputs[1].data),
        static_cast<float *>(call->outputs[0].data), count, dims->d[dims->n - 1], self->sharpness);
    const cudaError_t error = cudaGetLastError();
    if (error != cudaSuccess) {
        snprintf(call->error, call->error_size, "%s", cudaGetErrorString(error));
    }
    return error == cudaSuccess;
}
