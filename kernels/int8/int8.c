/* Where products of i8 are fast. */
#include "kernels/int8/int8.h"

#if TRM_HAVE_CUDA
#include "kernels/cuda/hopper.h"
#endif

bool trm_int8_is_fast(trm_backend backend)
{
#if TRM_HAVE_CUDA
    return backend == TRM_BACKEND_CUDA && trm_cuda_hopper_ready();
#else
    (void)backend;
    return false;
#endif
}
