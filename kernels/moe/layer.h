/*
 * ROUTER and EXPERTS layers as calls of their kernels (moe.h), and NORM_ROUTER as the layers it stands for.
 */
#ifndef TRM_KERNELS_MOE_LAYER_H
#define TRM_KERNELS_MOE_LAYER_H

#include "kernels/kernel.h"
#include "kernels/kernel_list.h"
#include "kernels/moe/moe.h"
#include "kernels/parts.h"

/* False where the layer is not what the kernels are for. */
bool trm_moe_router_of(const trm_kernel_call *call, trm_moe_router *router);
bool trm_moe_experts_of(const trm_kernel_call *call, trm_moe_experts *experts);

/* A NORM and the ROUTER of it. */
bool trm_norm_router_parts(const trm_kernel_call *call, trm_kernel_parts *parts);

#endif
