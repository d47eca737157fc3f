/* The tables of kernels, and the choice of a kernel from tables. */
#include "kernels/kernel_list.h"

/* Entry points by the form of a row. */
#define PLAIN(function)     .accepts = function##_accepts, .run = function##_run
#define WORKSPACE(function) PLAIN(function), .workspace = function##_workspace

#define PREPARED(function)                                                                                             \
    .accepts = function##_accepts, .workspace = function##_workspace, .prepare = function##_prepare
#define PREPARED_TUNED(function) PREPARED(function), .is_tuned = true

#define HOST_ROW(layer, text, form, family)                                                                            \
    {.name = "host." text, .kind = TRM_LAYER_##layer, .backend = TRM_BACKEND_HOST, form(trm_host_##family)},
#define CUDA_ROW(layer, text, form, family)                                                                            \
    {.name = "cuda." text, .kind = TRM_LAYER_##layer, .backend = TRM_BACKEND_CUDA, form(trm_cuda_##family)},
#define NO_ROW(layer, text, form, family)

static const trm_kernel host_kernels[] = {TRM_KERNELS(HOST_ROW, HOST_ROW, NO_ROW)};
const trm_kernel_table trm_host_kernels = {host_kernels, (int32_t)(sizeof(host_kernels) / sizeof(host_kernels[0]))};

#if TRM_HAVE_CUDA
static const trm_kernel cuda_kernels[] = {TRM_KERNELS(CUDA_ROW, NO_ROW, CUDA_ROW)};
const trm_kernel_table trm_cuda_kernels = {cuda_kernels, (int32_t)(sizeof(cuda_kernels) / sizeof(cuda_kernels[0]))};
#else
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
