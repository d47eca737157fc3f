/* The table of attention kernels, of every backend. */
#include "attention/attention_impl.h"

static const trm_kernel kernels[] = {
    {.name = "host.attention",
     .kind = TRM_LAYER_ATTENTION,
     .backend = TRM_BACKEND_HOST,
     .accepts = trm_host_attention_accepts,
     .run = trm_host_attention_run},
};

const trm_kernel_table trm_attention_kernels = {kernels, (int32_t)(sizeof(kernels) / sizeof(kernels[0]))};
