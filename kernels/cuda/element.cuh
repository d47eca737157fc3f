/*
 * Launches of element functions (kernels/element.h), one thread per element and pass:
 *
 *     return launch_elements<trm_one_hot_args, trm_element_one_hot>(call, args, count, "cuda.one_hot");
 *     return launch_placed_elements<trm_pad_args, trm_element_pad>(call, args, count, "cuda.pad");
 *
 *     TRM_CUDA_ELEMENT_KERNEL(one_hot)          all there is to a kind whose elements are those of its output
 *     TRM_CUDA_PLACED_ELEMENT_KERNEL(pad)
 *
 * They overlap the kernel before them: an element function may read and write anything, but is given no `__restrict__`
 * pointers (overlap.cuh).
 */
#ifndef TRM_KERNELS_CUDA_ELEMENT_CUH
#define TRM_KERNELS_CUDA_ELEMENT_CUH

#include "kernels/cuda/common.cuh"
#include "kernels/element.h"

template <typename Args, void (*Element)(const Args *, int64_t)>
static __global__ void __launch_bounds__(256) run_elements(const Args args, int64_t count)
{
    begin_overlapped();
    for (int64_t i = global_thread(); i < count; i += global_threads()) {
        Element(&args, i);
    }
}

/* Coordinates by 32-bit divisions where the count allows. */
template <typename Args, void (*Element)(const Args *, const int64_t *, int64_t), typename Index>
static __global__ void __launch_bounds__(256) run_placed_elements(const Args args, Index count)
{
    begin_overlapped();
    for (Index i = (Index)global_thread(); i < count; i += (Index)global_threads()) {
        int64_t at[TRM_MAX_DIMS];
        Index rest = i;
        for (int axis = args.dims.n - 1; axis >= 0; axis--) {
            Index size = (Index)args.dims.d[axis], next = rest / size;
            at[axis] = (int64_t)(rest - next * size);
            rest = next;
        }
        Element(&args, at, (int64_t)i);
    }
}

template <typename Args, void (*Element)(const Args *, int64_t)>
static inline trm_status launch_elements(const trm_kernel_call *call, const Args &args, int64_t count, const char *name)
{
    if (count <= 0) {
        return TRM_OK;
    }
    launch_overlapped(run_elements<Args, Element>, grid_for(count, 256), 256, 0, trm_cuda_stream(call->stream), args,
                      count);
    return trm_cuda_launched(name);
}

template <typename Args, void (*Element)(const Args *, const int64_t *, int64_t)>
static inline trm_status launch_placed_elements(const trm_kernel_call *call, const Args &args, int64_t count,
                                                const char *name)
{
    if (count <= 0) {
        return TRM_OK;
    }
    cudaStream_t stream = trm_cuda_stream(call->stream);
    if (count <= INT32_MAX / 2) {
        launch_overlapped(run_placed_elements<Args, Element, uint32_t>, grid_for(count, 256), 256, 0, stream, args,
                          (uint32_t)count);
    } else {
        launch_overlapped(run_placed_elements<Args, Element, int64_t>, grid_for(count, 256), 256, 0, stream, args,
                          count);
    }
    return trm_cuda_launched(name);
}

/* trm_cuda_KIND_accepts and trm_cuda_KIND_run by trm_KIND_args_of and trm_element_KIND. */
#define TRM_CUDA_ELEMENT_KERNEL(kind)        TRM_CUDA_KERNEL_OF_ELEMENTS(kind, launch_elements)
#define TRM_CUDA_PLACED_ELEMENT_KERNEL(kind) TRM_CUDA_KERNEL_OF_ELEMENTS(kind, launch_placed_elements)
#define TRM_CUDA_KERNEL_OF_ELEMENTS(kind, launch)                                                                      \
    bool trm_cuda_##kind##_accepts(const trm_kernel_call *call)                                                        \
    {                                                                                                                  \
        trm_##kind##_args args;                                                                                        \
        return trm_##kind##_args_of(call, &args);                                                                      \
    }                                                                                                                  \
                                                                                                                       \
    trm_status trm_cuda_##kind##_run(const trm_kernel_call *call)                                                      \
    {                                                                                                                  \
        trm_##kind##_args args;                                                                                        \
        if (!trm_##kind##_args_of(call, &args)) {                                                                      \
            return TRM_OK;                                                                                             \
        }                                                                                                              \
        return launch<trm_##kind##_args, trm_element_##kind>(call, args, trm_dims_count(&call->outputs[0].dims),       \
                                                             "cuda." #kind);                                           \
    }

#endif
