/*
 * Small copies between the device and pinned host memory by a kernel, for what must not wait behind the large copies
 * that the copy engines are busy with.
 */
#include "kernels/cuda/cuda.h"
#include "kernels/device/cuda.h"

#define THREADS     256
#define MOST_BLOCKS 32 /* a few rows: what the link has in flight counts, not the multiprocessors */

typedef struct small_copies {
    trm_small_copy all[TRM_MAX_SMALL_COPIES];
    int32_t n;
} small_copies;

/* 16 bytes at a time where both addresses allow it, or 4, then single ones. Host memory is read past the caches, as the
 * processors have written it since the kernel before. Bound by the link: 16 KiB take about 2 us beside nothing else. */
static __global__ void __launch_bounds__(THREADS) copy_small(const __grid_constant__ small_copies copies)
{
    const size_t thread = (size_t)blockIdx.x * THREADS + threadIdx.x, threads = (size_t)gridDim.x * THREADS;
    for (int32_t i = 0; i < copies.n; i++) {
        const trm_small_copy *copy = &copies.all[i];
        const uintptr_t bits = (uintptr_t)copy->to | (uintptr_t)copy->from;
        const size_t quads = (bits & 15u) == 0 ? copy->size / 16 : 0;
        const size_t words = (bits & 3u) == 0 ? copy->size / 4 : 0;
        for (size_t k = thread; k < quads; k += threads) {
            ((uint4 *)copy->to)[k] = __ldcv((const uint4 *)copy->from + k);
        }
        for (size_t k = quads * 4 + thread; k < words; k += threads) {
            ((uint32_t *)copy->to)[k] = __ldcv((const uint32_t *)copy->from + k);
        }
        for (size_t k = words * 4 + thread; k < copy->size; k += threads) {
            ((unsigned char *)copy->to)[k] = __ldcv((const unsigned char *)copy->from + k);
        }
    }
}

trm_status trm_cuda_copy_small(trm_stream *stream, const trm_small_copy *copies, int32_t n)
{
    small_copies all = {};
    size_t most = 0;
    all.n = n;
    for (int32_t i = 0; i < n; i++) {
        all.all[i] = copies[i];
        most = copies[i].size > most ? copies[i].size : most;
    }
    const size_t blocks = (most / 16 + THREADS - 1) / THREADS;
    const unsigned grid = (unsigned)(blocks < 1 ? 1 : blocks < MOST_BLOCKS ? blocks : MOST_BLOCKS);
    cudaStream_t handle = trm_cuda_stream(stream);
    copy_small<<<grid, THREADS, 0, handle>>>(all);
    return trm_cuda_launched("cuda.copy_small");
}

cudaError_t trm_cuda_probe(void)
{
    struct cudaFuncAttributes attributes;
    return cudaFuncGetAttributes(&attributes, (const void *)copy_small);
}

#define MOST_DEVICES 64 /* whose answers are kept */

/* Asked with every launch: the driver is asked once for a device. */
int trm_cuda_code(void)
{
    static int versions[MOST_DEVICES]; /* 0: not known yet; the same whoever stores it first */
    struct cudaFuncAttributes attributes;
    int device = 0;
    if (cudaGetDevice(&device) != cudaSuccess) {
        (void)cudaGetLastError();
        return 0;
    }
    int version = device < MOST_DEVICES ? __atomic_load_n(&versions[device], __ATOMIC_RELAXED) : 0;
    if (version == 0) {
        if (cudaFuncGetAttributes(&attributes, (const void *)copy_small) != cudaSuccess) {
            (void)cudaGetLastError();
            return 0;
        }
        version = attributes.ptxVersion; /* code of compute_80 has no clusters, also compiled for a newer device */
        if (device < MOST_DEVICES) {
            __atomic_store_n(&versions[device], version, __ATOMIC_RELAXED);
        }
    }
    return version;
}
