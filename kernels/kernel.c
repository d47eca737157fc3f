/* The choice of a kernel from tables. */
#include "kernels/kernel.h"

#if !TRM_HAVE_CUDA
const trm_kernel_table trm_cuda_kernels = {NULL, 0};
#endif

const trm_kernel *trm_kernel_find(const trm_kernel_table *const *tables, int32_t n_tables, trm_backend backend,
                                  const trm_kernel_call *call)
{
    for (int32_t t = 0; t < n_tables; t++) {
        for (int32_t i = 0; i < tables[t]->count; i++) {
            const trm_kernel *kernel = &tables[t]->kernels[i];
            if (kernel->kind == call->layer->kind && kernel->backend == backend && kernel->accepts(call)) {
                return kernel;
            }
        }
    }
    return NULL;
}
