/* Hopper devices and the driver's maps for tensor copies. */
#include "kernels/cuda/hopper.h"

#include <cuda_runtime_api.h>

#include "base/error.h"

typedef CUresult (*encode_fn)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *,
                              const cuuint64_t *, const cuuint32_t *, const cuuint32_t *, CUtensorMapInterleave,
                              CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

/* The driver's function, or NULL. */
static encode_fn find_encode(void)
{
    static void *found = NULL; /* the same whoever stores it first */
    void *function = __atomic_load_n(&found, __ATOMIC_RELAXED);
    if (function == NULL) {
        enum cudaDriverEntryPointQueryResult result;
        if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &result) !=
                cudaSuccess ||
            result != cudaDriverEntryPointSuccess) {
            (void)cudaGetLastError();
            return NULL;
        }
        __atomic_store_n(&found, function, __ATOMIC_RELAXED);
    }
    return (encode_fn)function;
}

int trm_cuda_hopper_processors(void)
{
    int device, major, minor, processors;
    bool known = cudaGetDevice(&device) == cudaSuccess &&
                 cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess &&
                 cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) == cudaSuccess &&
                 cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device) == cudaSuccess;
    return TRM_HAVE_SM90A && known && major == 9 && minor == 0 ? processors : 0;
}

bool trm_cuda_hopper_ready(void)
{
    return trm_cuda_hopper_processors() > 0 && find_encode() != NULL;
}

trm_status trm_cuda_tensor_map(CUtensorMap *map, const void *data, uint32_t rank, const cuuint64_t *dims,
                               const cuuint64_t *strides, const cuuint32_t *box, CUtensorMapSwizzle swizzle,
                               trm_dtype dtype)
{
    static const cuuint32_t steps[] = {1, 1, 1, 1, 1};
    const encode_fn encode = find_encode();
    CUresult result =
        encode == NULL
            ? CUDA_ERROR_NOT_FOUND
            : encode(map, dtype == TRM_F16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, rank,
                     (void *)(uintptr_t)data, dims, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
                     CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result != CUDA_SUCCESS) {
        TRM_FAIL(TRM_ERROR_INTERNAL,
                 "no tensor map of a tensor of %u dimensions, the first of %llu elements: driver "
                 "error %d",
                 rank, (unsigned long long)dims[0], (int)result);
    }
    return TRM_OK;
}
