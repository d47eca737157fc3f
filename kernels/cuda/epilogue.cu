/* Bias, activation and type of a product's output where the library's own epilogue cannot do them. */
#include "kernels/cuda/common.cuh"
#include "kernels/cuda/gemm.h"

/* One element per thread and pass; bound by device memory: 4 bytes read, 2 or 4 written. */
template <typename Bias, typename To> static __global__ void epilogue_elements(trm_epilogue e)
{
    int64_t count = e.rows * e.n;
    To *to = (To *)e.to;
    for (int64_t i = global_thread(); i < count; i += global_threads()) {
        float x = e.from != NULL ? e.from[i] : 0.0f;
        if (e.bias != NULL) {
            int64_t column = count <= UINT32_MAX ? (uint32_t)i % (uint32_t)e.n : i % e.n;
            x += to_float(((const Bias *)e.bias)[column]);
        }
        to[i] = from_float<To>(activate(e.activation, x));
    }
}

template <typename Bias> static void launch_epilogue(const trm_epilogue *e, cudaStream_t stream)
{
    unsigned grid = grid_for(e->rows * e->n, 256);
    DISPATCH_FLOAT(e->to_type, epilogue_elements<Bias, T><<<grid, 256, 0, stream>>>(*e));
}

trm_status trm_cuda_epilogue(const trm_epilogue *epilogue, cudaStream_t stream)
{
    if (epilogue->rows * epilogue->n == 0) {
        return TRM_OK;
    }
    DISPATCH_FLOAT(epilogue->bias_type, launch_epilogue<T>(epilogue, stream));
    return trm_cuda_launched("cuda.matmul epilogue");
}
