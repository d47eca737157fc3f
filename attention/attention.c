/* The table of attention kernels, of every backend. */
#include "attention/attention_impl.h"

static const trm_kernel kernels[] = {
    {.name = "host.attention",
     .kind = TRM_LAYER_ATTENTION,
     .backend = TRM_BACKEND_HOST,
     .accepts = trm_host_attention_accepts,
     .run = trm_host_attention_run},
#if TRM_HAVE_CUDA
    {.name = "cuda.attention.hopper",
     .kind = TRM_LAYER_ATTENTION,
     .backend = TRM_BACKEND_CUDA,
     .accepts = trm_cuda_attention_hopper_accepts,
     .workspace = trm_cuda_attention_workspace,
     .run = trm_cuda_attention_hopper_run},
    {.name = "cuda.attention.products",
     .kind = TRM_LAYER_ATTENTION,
     .backend = TRM_BACKEND_CUDA,
     .accepts = trm_cuda_attention_products_accepts,
     .workspace = trm_cuda_attention_products_workspace,
     .run = trm_cuda_attention_products_run,
     .tune = trm_cuda_attention_products_tune},
    {.name = "cuda.attention",
     .kind = TRM_LAYER_ATTENTION,
     .backend = TRM_BACKEND_CUDA,
     .accepts = trm_cuda_attention_accepts,
     .workspace = trm_cuda_attention_workspace,
     .run = trm_cuda_attention_run},
#endif
};

const trm_kernel_table trm_attention_kernels = {kernels, (int32_t)(sizeof(kernels) / sizeof(kernels[0]))};
