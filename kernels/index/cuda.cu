/*
 * Kernels that take or place elements by position: pad, gather by element and by rows of indices, scatter, one-hot,
 * reversed sequences. One thread per element; bound by device memory. The functions of one element are in
 * headers of the kind.
 */
#include "kernels/cuda/element.cuh"
#include "kernels/kernel_list.h"
#include "kernels/index/gather.h"
#include "kernels/index/one_hot.h"
#include "kernels/index/pad.h"
#include "kernels/index/scatter.h"

TRM_CUDA_PLACED_ELEMENT_KERNEL(pad)
TRM_CUDA_PLACED_ELEMENT_KERNEL(gather_elements)
TRM_CUDA_ELEMENT_KERNEL(gather_nd)
TRM_CUDA_ELEMENT_KERNEL(one_hot)
TRM_CUDA_ELEMENT_KERNEL(reverse_sequence)

/* ---- scatter ---- */

/* Combines element i of the updates into element `to` of the output, atomically: the whole 4- or 8-byte word around it
 * is exchanged. The neighbours of a short element are written back as they are, or the exchange fails. */
template <typename Word>
static __device__ __forceinline__ void combine_atomically(const trm_scatter_args *args, int64_t to, int64_t i)
{
    uintptr_t address = (uintptr_t)args->y + (uintptr_t)(to * args->size);
    Word *word = (Word *)(address & ~(uintptr_t)(sizeof(Word) - 1));
    int64_t at = (int64_t)(address & (sizeof(Word) - 1)) / args->size;
    Word seen = *(volatile Word *)word, expected;
    do {
        Word changed = seen;
        expected = seen;
        trm_scatter_combine(args->reduction, args->dtype, &changed, at, args->updates, i);
        seen = atomicCAS(word, expected, changed);
    } while (seen != expected);
}

/* One update per thread and pass. Sums of floats come in any order. */
static __global__ void __launch_bounds__(256) scatter_updates(const trm_scatter_args args, int64_t count)
{
    begin_overlapped();
    for (int64_t i = global_thread(); i < count; i += global_threads()) {
        int64_t at[TRM_MAX_DIMS];
        if (args.form == TRM_SCATTER_ELEMENTS) {
            trm_element_place(&args.dims, i, at);
        }
        int64_t to = trm_scatter_target(&args, at, i);
        if (to < 0) {
            continue;
        }
        if (args.reduction == TRM_SCATTER_REPLACE) {
            trm_element_move(args.size, args.y, to, args.updates, i);
        } else if (args.size == 8) {
            combine_atomically<unsigned long long>(&args, to, i);
        } else {
            combine_atomically<unsigned>(&args, to, i);
        }
    }
}

bool trm_cuda_scatter_accepts(const trm_kernel_call *call)
{
    trm_scatter_args args;
    return trm_scatter_args_of(call, &args);
}

trm_status trm_cuda_scatter_run(const trm_kernel_call *call)
{
    trm_scatter_args args;
    int64_t size = trm_dims_count(&call->inputs[0].dims) * (int64_t)trm_dtype_size(call->inputs[0].dtype);
    if (!trm_scatter_args_of(call, &args) || size == 0) {
        return TRM_OK;
    }
    trm_status status = trm_stream_copy(call->stream, args.y, args.x, (size_t)size);
    int64_t updates = trm_dims_count(&args.dims);
    if (status != TRM_OK || updates == 0) {
        return status;
    }
    launch_overlapped(scatter_updates, grid_for(updates, 256), 256, 0, trm_cuda_stream(call->stream), args, updates);
    return trm_cuda_launched("cuda.scatter");
}
