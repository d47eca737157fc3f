/* The kernel tables of all rooms. In a file of its own, so that a program can link others. */
#include "dist/plan/plan.h"

const trm_kernel_table *const trm_all_kernels[] = {
    &trm_cuda_kernels,
    &trm_host_kernels,
    &trm_attention_kernels,
    &trm_collective_kernels,
};
const int32_t trm_all_kernels_count = sizeof(trm_all_kernels) / sizeof(trm_all_kernels[0]);
