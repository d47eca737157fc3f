/*
 * DELTA_NET as the layers it stands for.
 */
#ifndef TRM_KERNELS_DELTA_NET_H
#define TRM_KERNELS_DELTA_NET_H

#include "kernels/parts.h"

#ifdef __cplusplus
extern "C" {
#endif

bool trm_delta_net_describe_parts(const trm_kernel_call *call, trm_kernel_parts *parts);

#ifdef __cplusplus
}
#endif
#endif
