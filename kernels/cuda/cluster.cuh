/*
 * Blocks of a cluster that add up what each of them has, through their shared memory. In code without clusters
 * (trm_cuda_has_clusters()) a block is alone, and a cluster's barrier is its own.
 */
#ifndef TRM_KERNELS_CUDA_CLUSTER_CUH
#define TRM_KERNELS_CUDA_CLUSTER_CUH

#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/overlap.cuh"

/* Eight floats at the same place of shared memory in block `block` of the cluster. */
static __device__ __forceinline__ void read_in(const float *place, int block, float (&to)[8])
{
#if __CUDA_ARCH__ >= 900
    uint32_t mapped;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(mapped) : "r"(shared_address(place)), "r"(block));
#pragma unroll
    for (int i = 0; i < 2; i++) {
        asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                     : "=f"(to[4 * i]), "=f"(to[4 * i + 1]), "=f"(to[4 * i + 2]), "=f"(to[4 * i + 3])
                     : "r"(mapped + 16 * i)
                     : "memory");
    }
#else
    (void)block;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        to[i] = place[i];
    }
#endif
}

/* To the same place of shared memory in block `block` of the cluster. */
static __device__ __forceinline__ void store_to_block(float *place, int block, float value)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("{ .reg .b32 at;\n"
                 "mapa.shared::cluster.u32 at, %0, %1;\n"
                 "st.shared::cluster.f32 [at], %2; }"
                 :
                 : "r"(shared_address(place)), "r"(block), "f"(value)
                 : "memory");
#else
    (void)block;
    *place = value;
#endif
}

static __device__ __forceinline__ void cluster_arrive(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.release.aligned;" : : : "memory");
#endif
}

static __device__ __forceinline__ void cluster_wait(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.wait.acquire.aligned;" : : : "memory");
#else
    __syncthreads();
#endif
}

static __device__ __forceinline__ void cluster_barrier(void)
{
    cluster_arrive();
    cluster_wait();
}

/* As launch_kernel(), with clusters of `blocks` blocks along x. */
template <typename... Parameters, typename... Arguments>
static inline void launch_clusters(unsigned blocks, bool overlapped, void (*kernel)(Parameters...), dim3 grid,
                                   dim3 block, size_t shared, cudaStream_t stream, Arguments... arguments)
{
    cudaLaunchAttribute attributes[MOST_ATTRIBUTES] = {};
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared;
    config.stream = stream;
    config.attrs = attributes;
    config.numAttrs = launch_attributes(attributes, overlapped, blocks);
    (void)cudaLaunchKernelEx(&config, kernel, arguments...); /* trm_cuda_launched() sees the error */
}

#endif
