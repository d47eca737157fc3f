/*
 * Kernels over images that are one function per output element (kernels/element). Windows are read from cache; what
 * bounds them is device memory for pools and nearest samples, arithmetic otherwise.
 */
#include "kernels/cuda/element.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/element/channels.h"
#include "kernels/element/convolution.h"
#include "kernels/element/pool.h"
#include "kernels/element/resize.h"
#include "kernels/element/sample.h"

/* accepts and run of a kind; LAUNCH is launch_placed_elements, or launch_elements. */
#define KERNEL(kind, type, LAUNCH)                                                                                     \
    bool trm_cuda_##kind##_accepts(const trm_kernel_call *call)                                                        \
    {                                                                                                                  \
        type args;                                                                                                     \
        return trm_##kind##_args_of(call, &args);                                                                      \
    }                                                                                                                  \
    trm_status trm_cuda_##kind##_run(const trm_kernel_call *call)                                                      \
    {                                                                                                                  \
        type args;                                                                                                     \
        if (!trm_##kind##_args_of(call, &args)) {                                                                      \
            return TRM_OK;                                                                                             \
        }                                                                                                              \
        return LAUNCH<type, trm_element_##kind>(call, args, trm_dims_count(&call->outputs[0].dims), "cuda." #kind);    \
    }

KERNEL(pool, trm_pool_args, launch_placed_elements)
KERNEL(deconvolution, trm_convolution_args, launch_placed_elements)
KERNEL(deformable_convolution, trm_deformable_convolution_args, launch_placed_elements)
KERNEL(resize, trm_resize_args, launch_placed_elements)
KERNEL(grid_sample, trm_grid_sample_args, launch_placed_elements)
KERNEL(roi_pool, trm_roi_pool_args, launch_placed_elements)
KERNEL(col2im, trm_col2im_args, launch_placed_elements)
KERNEL(lrn, trm_lrn_args, launch_elements)
