/*
 * ROUTER and EXPERTS layers as calls of their kernels (moe.h).
 */
#ifndef TRM_KERNELS_MOE_LAYER_H
#define TRM_KERNELS_MOE_LAYER_H

#include "kernels/kernel_list.h"
#include "kernels/moe/moe.h"

/* False where the layer is not what the kernels are for. */
bool trm_moe_router_of(const trm_kernel_call *call, trm_moe_router *router);
bool trm_moe_experts_of(const trm_kernel_call *call, trm_moe_experts *experts);

#endif
