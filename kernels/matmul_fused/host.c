/* MATMUL_GLU and NORM_MATMUL on the host: the layers they stand for, one after the other. */
#include "kernels/host/host.h"
#include "kernels/matmul_fused/matmul_glu.h"
#include "kernels/matmul_fused/norm_matmul.h"

bool trm_host_matmul_glu_accepts(const trm_kernel_call *call)
{
    return trm_matmul_glu_accepts(call, TRM_BACKEND_HOST);
}

size_t trm_host_matmul_glu_workspace(const trm_kernel_call *call)
{
    return trm_matmul_glu_workspace(call, TRM_BACKEND_HOST);
}

trm_status trm_host_matmul_glu_run(const trm_kernel_call *call)
{
    return trm_matmul_glu_run(call, TRM_BACKEND_HOST);
}

bool trm_host_norm_matmul_accepts(const trm_kernel_call *call)
{
    return trm_norm_matmul_accepts(call, TRM_BACKEND_HOST);
}

size_t trm_host_norm_matmul_workspace(const trm_kernel_call *call)
{
    return trm_norm_matmul_workspace(call, TRM_BACKEND_HOST);
}

trm_status trm_host_norm_matmul_run(const trm_kernel_call *call)
{
    return trm_norm_matmul_run(call, TRM_BACKEND_HOST);
}
