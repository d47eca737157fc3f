/* The table of attention kernels, of every backend. */
#include "attention/attention_impl.h"
#include "base/error.h"
#include "kernels/parts.h"

TRM_KERNEL_OF_PARTS(static, host_qkv, TRM_BACKEND_HOST, trm_qkv_attention_parts)
TRM_KERNEL_OF_PARTS(static, host_quantize, TRM_BACKEND_HOST, trm_attention_quantize_parts)
#if TRM_HAVE_CUDA
TRM_KERNEL_OF_PARTS(static, cuda_qkv, TRM_BACKEND_CUDA, trm_qkv_attention_parts)
TRM_KERNEL_OF_PARTS(static, cuda_quantize, TRM_BACKEND_CUDA, trm_attention_quantize_parts)

static trm_status cuda_quantize_either(const trm_kernel_call *call, trm_program *program)
{
    bool joined;
    TRM_TRY(trm_cuda_attention_quantize_prepare(call, program, &joined));
    return joined ? TRM_OK : cuda_quantize_prepare(call, program);
}
#endif

static const trm_kernel kernels[] = {
    {.name = "host.attention",
     .kind = TRM_LAYER_ATTENTION,
     .backend = TRM_BACKEND_HOST,
     .accepts = trm_host_attention_accepts,
     .prepare = trm_host_attention_prepare},
    {.name = "host.qkv_attention",
     .kind = TRM_LAYER_QKV_ATTENTION,
     .backend = TRM_BACKEND_HOST,
     .accepts = host_qkv_accepts,
     .workspace = host_qkv_workspace,
     .prepare = host_qkv_prepare},
    {.name = "host.attention_quantize",
     .kind = TRM_LAYER_ATTENTION_QUANTIZE,
     .backend = TRM_BACKEND_HOST,
     .accepts = host_quantize_accepts,
     .workspace = host_quantize_workspace,
     .prepare = host_quantize_prepare},
    {.name = "host.latent_attention",
     .kind = TRM_LAYER_LATENT_ATTENTION,
     .backend = TRM_BACKEND_HOST,
     .accepts = trm_host_latent_attention_accepts,
     .prepare = trm_host_latent_attention_prepare},
    {.name = "host.attention_join",
     .kind = TRM_LAYER_ATTENTION_JOIN,
     .backend = TRM_BACKEND_HOST,
     .accepts = trm_host_attention_join_accepts,
     .run = trm_host_attention_join_run},
#if TRM_HAVE_CUDA
    {.name = "cuda.attention_join",
     .kind = TRM_LAYER_ATTENTION_JOIN,
     .backend = TRM_BACKEND_CUDA,
     .accepts = trm_cuda_attention_join_accepts,
     .run = trm_cuda_attention_join_run},
    {.name = "cuda.attention_quantize",
     .kind = TRM_LAYER_ATTENTION_QUANTIZE,
     .backend = TRM_BACKEND_CUDA,
     .accepts = cuda_quantize_accepts,
     .workspace = cuda_quantize_workspace,
     .prepare = cuda_quantize_either},
    {.name = "cuda.qkv_attention",
     .kind = TRM_LAYER_QKV_ATTENTION,
     .backend = TRM_BACKEND_CUDA,
     .accepts = trm_cuda_qkv_attention_accepts,
     .workspace = trm_cuda_qkv_attention_workspace,
     .prepare = trm_cuda_qkv_attention_prepare},
    {.name = "cuda.qkv_attention.apart",
     .kind = TRM_LAYER_QKV_ATTENTION,
     .backend = TRM_BACKEND_CUDA,
     .accepts = cuda_qkv_accepts,
     .workspace = cuda_qkv_workspace,
     .prepare = cuda_qkv_prepare},
    {.name = "cuda.latent_attention",
     .kind = TRM_LAYER_LATENT_ATTENTION,
     .backend = TRM_BACKEND_CUDA,
     .accepts = trm_cuda_latent_attention_accepts,
     .workspace = trm_cuda_latent_attention_workspace,
     .prepare = trm_cuda_latent_attention_prepare,
     .is_tuned = true},
    {.name = "cuda.attention.hopper",
     .kind = TRM_LAYER_ATTENTION,
     .backend = TRM_BACKEND_CUDA,
     .accepts = trm_cuda_attention_hopper_accepts,
     .workspace = trm_cuda_attention_workspace,
     .prepare = trm_cuda_attention_hopper_prepare},
    {.name = "cuda.attention.products",
     .kind = TRM_LAYER_ATTENTION,
     .backend = TRM_BACKEND_CUDA,
     .accepts = trm_cuda_attention_products_accepts,
     .workspace = trm_cuda_attention_products_workspace,
     .prepare = trm_cuda_attention_products_prepare,
     .is_tuned = true},
    {.name = "cuda.attention",
     .kind = TRM_LAYER_ATTENTION,
     .backend = TRM_BACKEND_CUDA,
     .accepts = trm_cuda_attention_accepts,
     .workspace = trm_cuda_attention_workspace,
     .prepare = trm_cuda_attention_prepare},
#endif
};

const trm_kernel_table trm_attention_kernels = {kernels, (int32_t)(sizeof(kernels) / sizeof(kernels[0]))};
