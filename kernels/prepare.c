/* Which kernels can be prepared. */
#include "kernels/prepare.h"

#include <string.h>

#if TRM_HAVE_CUDA
#include "kernels/cuda/prepare.h"

static const trm_preparation preparations[] = {
    {"cuda.convolution", trm_cuda_convolution_is_prepared, trm_cuda_convolution_prepare},
    {"cuda.matmul", trm_cuda_matmul_is_prepared, trm_cuda_matmul_prepare},
};

const trm_preparation *trm_preparation_find(const trm_kernel *kernel)
{
    for (size_t i = 0; i < sizeof(preparations) / sizeof(preparations[0]); i++) {
        if (strcmp(kernel->name, preparations[i].kernel) == 0) {
            return &preparations[i];
        }
    }
    return NULL;
}
#else
const trm_preparation *trm_preparation_find(const trm_kernel *kernel)
{
    (void)kernel;
    return NULL;
}
#endif
