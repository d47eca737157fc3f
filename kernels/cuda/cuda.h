/*
 * What the files of the CUDA backend share: error texts, stream handles, launch checks. C and CUDA C++.
 */
#ifndef TRM_KERNELS_CUDA_CUDA_H
#define TRM_KERNELS_CUDA_CUDA_H

#include <cuda_runtime_api.h>

#include "base/error.h"
#include "kernels/call.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Records "<what>: <CUDA's text>" with the status that fits the error, and returns that status. */
trm_status trm_cuda_fail(cudaError_t error, const char *what);

#define TRM_CUDA_TRY(call)                                                                                             \
    do {                                                                                                               \
        cudaError_t trm_cuda_error_ = (call);                                                                          \
        if (trm_cuda_error_ != cudaSuccess) {                                                                          \
            return trm_cuda_fail(trm_cuda_error_, #call);                                                              \
        }                                                                                                              \
    } while (0)

/* To be returned after the last launch of the kernel `name`. */
static inline trm_status trm_cuda_launched(const char *name)
{
    cudaError_t error = cudaGetLastError();
    return error == cudaSuccess ? TRM_OK : trm_cuda_fail(error, name);
}

static inline cudaStream_t trm_cuda_stream(trm_stream *stream)
{
    return (cudaStream_t)trm_stream_native(stream);
}

/* TRM_CUDA_STREAM_COUNTERS words of device memory that are 0 between any two kernels of the stream: kernels whose
 * blocks count each other leave them so. */
#define TRM_CUDA_STREAM_COUNTERS 1024
uint32_t *trm_cuda_stream_counters(trm_stream *stream);

/* The compute capability, such as 90, that the code which runs on the current device was compiled for; in kernels,
 * __CUDA_ARCH__ / 10. 0 if it is not known. */
int trm_cuda_code(void);

/* Whether that is 9.0 or newer: there are clusters of blocks, and launches that overlap. */
static inline bool trm_cuda_has_clusters(void)
{
    return trm_cuda_code() >= 90;
}

/* Bytes of shared memory that a block may have on the current device: 163 KiB on 8.0, 227 on 9.0 and 10.0, 99
 * on 8.6, 8.9 and 12.0. */
static inline int trm_cuda_block_memory(void)
{
    int device, bytes;
    return cudaGetDevice(&device) == cudaSuccess &&
                   cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) == cudaSuccess
               ? bytes
               : 0;
}

/* Whether an address may be read 16 bytes at a time. */
static inline bool trm_aligned16(const void *address)
{
    return ((uintptr_t)address & 15u) == 0;
}

#ifdef __cplusplus
}
#endif
#endif
