/*
 * Launches that overlap the end of the kernel before them on the stream (programmatic dependent launch): a decode step
 * is a chain of kernels that take microseconds each, and so the next one's start is out of the way when its turn comes.
 *
 * A kernel that is launched so must, in every thread, call wait_for_previous() before it reads anything
 * that a kernel may have written or writes anything that a kernel may still read; memory is reused from layer to layer.
 * What is done before: only constants are read. As every kernel of the chain waits for its predecessor's end, a wait
 * covers all kernels before, not only the last. A kernel that does neither call may stand anywhere in the chain if it
 * is launched by <<< >>>, and so may copies and other libraries' kernels: they depend on the whole of what is before
 * them.
 *
 * GPUs before Hopper do not overlap launches: compiled for them, the two calls do nothing, and nothing is launched so.
 *
 * Such a kernel has no loads marked as read-only, neither by `__restrict__` nor as ld.global.nc: the compiler moves
 * them across the wait, up (before the data is there) or down (so that nothing is read ahead).
 */
#ifndef TRM_KERNELS_CUDA_OVERLAP_CUH
#define TRM_KERNELS_CUDA_OVERLAP_CUH

#include <cuda_runtime.h>

#include "kernels/cuda/cuda.h"

/* Until every kernel before this one on the stream has ended and its writes are visible. */
static __device__ __forceinline__ void wait_for_previous(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" : : : "memory");
#endif
}

/* Lets the next kernel start once all blocks of this one have called this or ended. It takes only what room this one's
 * blocks leave, as they have all started then; so it is best called first. */
static __device__ __forceinline__ void start_next(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" : : : "memory");
#endif
}

/* How a kernel begins that has nothing to do before the wait. */
static __device__ __forceinline__ void begin_overlapped(void)
{
    start_next();
    wait_for_previous();
}

/* Into L2, where all multiprocessors see the same: right at any time, also before the wait. */
static __device__ __forceinline__ void prefetch_l2(const void *address)
{
    asm volatile("prefetch.global.L2 [%0];" : : "l"(address));
}

/*
 * Kernels of a decode step ask for no division of a multiprocessor's memory into shared memory and L1, and use little
 * of the former: what a product has in flight, and the rows that its blocks share, take up L1. In a chain like a layer
 * of Llama-3-8B on an H200, of products with norms in them, a layer takes 105.9 us so, 108.6 with 32 KiB of shared
 * memory asked for, and 116.2 with all of it.
 */
#define MOST_ATTRIBUTES 2

/* Fills in the attributes of a launch; returns how many. cluster: blocks of a cluster along x, 1 for none. */
static inline unsigned launch_attributes(cudaLaunchAttribute *attributes, bool overlapped, unsigned cluster)
{
    unsigned n = 0;
    if (overlapped && trm_cuda_has_clusters()) {
        attributes[n].id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attributes[n++].val.programmaticStreamSerializationAllowed = 1;
    }
    if (cluster > 1) {
        attributes[n].id = cudaLaunchAttributeClusterDimension;
        attributes[n].val.clusterDim.x = cluster;
        attributes[n].val.clusterDim.y = attributes[n].val.clusterDim.z = 1;
        n++;
    }
    return n;
}

template <typename... Parameters, typename... Arguments>
static inline void launch_kernel(bool overlapped, void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared,
                                 cudaStream_t stream, Arguments... arguments)
{
    cudaLaunchAttribute attributes[MOST_ATTRIBUTES] = {};
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared;
    config.stream = stream;
    config.attrs = attributes;
    config.numAttrs = launch_attributes(attributes, overlapped, 1);
    (void)cudaLaunchKernelEx(&config, kernel, arguments...); /* trm_cuda_launched() sees the error */
}

template <typename... Parameters, typename... Arguments>
static inline void launch_overlapped(void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared,
                                     cudaStream_t stream, Arguments... arguments)
{
    launch_kernel(true, kernel, grid, block, shared, stream, arguments...);
}

#endif
