/* Bias, activation and type of a product's output where the library's own epilogue cannot do them. */
#include "kernels/cuda/common.cuh"
#include "kernels/matmul/cuda_gemm.h"

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

/* 16 bytes per thread and pass, then the rest one by one; bound by device memory. FIXED: the activation, where the
 * compiler is to know it, or NONE. */
template <typename T, trm_activation FIXED>
static __global__ void __launch_bounds__(256) activate_in_place(T *data, int64_t count, trm_activation activation)
{
    const int n = vec16<T>::n;
    const trm_activation what = FIXED == TRM_ACTIVATION_NONE ? activation : FIXED;
    begin_overlapped();
    for (int64_t i = global_thread(); i < count / n; i += global_threads()) {
        float v[n];
        load16(data + i * n, v);
#pragma unroll
        for (int j = 0; j < n; j++) {
            v[j] = activate_as<T>(what, v[j]);
        }
        store16(data + i * n, v);
    }
    for (int64_t i = count / n * n + global_thread(); i < count; i += global_threads()) {
        data[i] = from_float<T>(activate_as<T>(what, to_float(data[i])));
    }
}

template <typename T>
static void launch_activate(T *data, int64_t count, trm_activation activation, cudaStream_t stream)
{
    const unsigned grid = grid_for(count / vec16<T>::n + 1, 256);
    if (activation == TRM_ACTIVATION_GELU) {
        launch_overlapped(activate_in_place<T, TRM_ACTIVATION_GELU>, grid, 256, 0, stream, data, count, activation);
    } else if (activation == TRM_ACTIVATION_SILU) {
        launch_overlapped(activate_in_place<T, TRM_ACTIVATION_SILU>, grid, 256, 0, stream, data, count, activation);
    } else {
        launch_overlapped(activate_in_place<T, TRM_ACTIVATION_NONE>, grid, 256, 0, stream, data, count, activation);
    }
}

trm_status trm_cuda_activate_in_place(void *data, int64_t count, trm_dtype dtype, trm_activation activation,
                                      cudaStream_t stream)
{
    DISPATCH_FLOAT(dtype, launch_activate((T *)data, count, activation, stream));
    return trm_cuda_launched("cuda.matmul activation");
}
