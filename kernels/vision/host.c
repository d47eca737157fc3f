/* Kernels over images that are one function per output element, in headers of the kind. */
#include "kernels/vision/channels.h"
#include "kernels/vision/sample.h"
#include "kernels/host/element.h"

/* accepts and run of a kind whose element function is placed, or for LRN counted. */
#define KERNEL(kind, type, work)                                                                                       \
    bool trm_host_##kind##_accepts(const trm_kernel_call *call)                                                        \
    {                                                                                                                  \
        type args;                                                                                                     \
        return trm_##kind##_args_of(call, &args);                                                                      \
    }                                                                                                                  \
    trm_status trm_host_##kind##_run(const trm_kernel_call *call)                                                      \
    {                                                                                                                  \
        type args;                                                                                                     \
        if (trm_##kind##_args_of(call, &args)) {                                                                       \
            trm_host_for_each(call, trm_dims_count(&call->outputs[0].dims), work, kind##_range, &args);                \
        }                                                                                                              \
        return TRM_OK;                                                                                                 \
    }

TRM_HOST_PLACED_ELEMENTS(deformable_convolution, trm_deformable_convolution_args)
TRM_HOST_PLACED_ELEMENTS(grid_sample, trm_grid_sample_args)
TRM_HOST_PLACED_ELEMENTS(roi_pool, trm_roi_pool_args)
TRM_HOST_PLACED_ELEMENTS(col2im, trm_col2im_args)
TRM_HOST_ELEMENTS(lrn, trm_lrn_args)

KERNEL(deformable_convolution, trm_deformable_convolution_args, 8 * args.channels * args.w.kernel_size)
KERNEL(grid_sample, trm_grid_sample_args, 64)
KERNEL(roi_pool, trm_roi_pool_args, 256)
KERNEL(col2im, trm_col2im_args, 8 * args.taps)
KERNEL(lrn, trm_lrn_args, args.below + args.above + 32)
