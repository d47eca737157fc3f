/* Hopper devices and the driver's maps for tensor copies. */
#include "kernels/cuda/hopper.h"

#include <cuda_runtime_api.h>

#include "base/error.h"

typedef CUresult (*encode_fn)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *,
                              const cuuint64_t *, const cuuint32_t *, const cuuint32_t *, CUtensorMapInterleave,
                              CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

typedef CUresult (*encode_windows_fn)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *,
                                      const cuuint64_t *, const int *, const int *, cuuint32_t, cuuint32_t,
                                      const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                                      CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

/* The driver's function of this name, or NULL; *found keeps it, the same whoever stores it first. */
static void *find_function(const char *name, void **found)
{
    void *function = __atomic_load_n(found, __ATOMIC_RELAXED);
    if (function == NULL) {
        enum cudaDriverEntryPointQueryResult result;
        if (cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &result) != cudaSuccess ||
            result != cudaDriverEntryPointSuccess) {
            (void)cudaGetLastError();
            return NULL;
        }
        __atomic_store_n(found, function, __ATOMIC_RELAXED);
    }
    return function;
}

static encode_fn find_encode(void)
{
    static void *found = NULL;
    return (encode_fn)find_function("cuTensorMapEncodeTiled", &found);
}

static encode_windows_fn find_encode_windows(void)
{
    static void *found = NULL;
    return (encode_windows_fn)find_function("cuTensorMapEncodeIm2col", &found);
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
        encode == NULL ? CUDA_ERROR_NOT_FOUND
                       : encode(map,
                                dtype == TRM_I8    ? CU_TENSOR_MAP_DATA_TYPE_UINT8
                                : dtype == TRM_F16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                                   : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                                rank, (void *)(uintptr_t)data, dims, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                                swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result != CUDA_SUCCESS) {
        TRM_FAIL(TRM_ERROR_INTERNAL,
                 "no tensor map of a tensor of %u dimensions, the first of %llu elements: driver "
                 "error %d",
                 rank, (unsigned long long)dims[0], (int)result);
    }
    return TRM_OK;
}

/* The last place where a window begins, counted from the end of the axis. */
static int64_t end_corner(const trm_window_map *w, int axis)
{
    return (w->out[axis] - 1) * w->step[axis] + 1 - w->in[axis] - w->before[axis];
}

bool trm_cuda_window_map_fits(const trm_window_map *w, const int64_t reach[2])
{
    bool fits = find_encode_windows() != NULL && w->images <= INT32_MAX;
    for (int axis = 0; axis < 2; axis++) {
        const int64_t end = end_corner(w, axis);
        fits = fits && w->step[axis] <= 8 && w->before[axis] <= 128 && end >= -128 && end <= 127 &&
               reach[axis] <= 255 && w->in[axis] <= INT32_MAX / 2;
    }
    return fits;
}

trm_status trm_cuda_window_map(CUtensorMap *map, const trm_window_map *w, CUtensorMapSwizzle swizzle)
{
    const cuuint64_t dims[] = {(cuuint64_t)w->channels, (cuuint64_t)w->in[1], (cuuint64_t)w->in[0],
                               (cuuint64_t)w->images};
    const int begin[] = {(int)-w->before[1], (int)-w->before[0]};
    const int end[] = {(int)end_corner(w, 1), (int)end_corner(w, 0)};
    const cuuint32_t steps[] = {1, (cuuint32_t)w->step[1], (cuuint32_t)w->step[0], 1};
    const encode_windows_fn encode = find_encode_windows();
    const CUresult result =
        encode == NULL
            ? CUDA_ERROR_NOT_FOUND
            : encode(map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 4, (void *)(uintptr_t)w->data, dims, w->strides, begin, end,
                     (cuuint32_t)w->channels_taken, (cuuint32_t)w->rows, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
                     CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result != CUDA_SUCCESS) {
        TRM_FAIL(TRM_ERROR_INTERNAL, "no tensor map of windows over images of %lld x %lld x %lld: driver error %d",
                 (long long)w->in[0], (long long)w->in[1], (long long)w->channels, (int)result);
    }
    return TRM_OK;
}
