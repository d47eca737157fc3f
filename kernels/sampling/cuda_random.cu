/* Random fill on the GPU: the same numbers as kernels/sampling/host_random.c. */
#include "kernels/cuda/common.cuh"
#include "kernels/sampling/backends.h"

/* One element per thread and pass; bound by the integer multiplies of the generator, not by memory. */
template <typename T> static __global__ void random_fill(T *to, trm_dims dims, trm_random_fill_args args, int64_t count)
{
    for (int64_t i = global_thread(); i < count; i += global_threads()) {
        uint64_t index = (uint64_t)args.offset;
        int64_t rest = i;
        for (int axis = dims.n - 1; axis >= 0; axis--) {
            index += (uint64_t)(rest % dims.d[axis]) * (uint64_t)args.strides[axis];
            rest /= dims.d[axis];
        }
        to[i] = from_float<T>(fmaf(args.spread, trm_random_unit(args.seed, index), args.mean));
    }
}

trm_status trm_cuda_random_fill(trm_stream *stream, const trm_random_fill_args *args)
{
    int64_t count = trm_dims_count(&args->to.dims);
    if (count == 0) {
        return TRM_OK;
    }
    cudaStream_t handle = trm_cuda_stream(stream);
    DISPATCH_FLOAT(args->to.dtype, random_fill<T>
                   <<<grid_for(count, 256), 256, 0, handle>>>((T *)args->to.data, args->to.dims, *args, count));
    return trm_cuda_launched("cuda.random_fill");
}
