/*
 * Blocks of a cluster that add up what each of them has in its shared memory. In code without clusters
 * (trm_cuda_has_clusters()) a block is alone, and a cluster's barrier is its own.
 */
#ifndef TRM_KERNELS_CUDA_CLUSTER_CUH
#define TRM_KERNELS_CUDA_CLUSTER_CUH

#include "kernels/cuda/mma.cuh"

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

#endif
