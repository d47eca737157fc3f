/*
 * The host's loops over element functions (kernels/element.h).
 *
 *     TRM_HOST_ELEMENTS(one_hot, trm_one_hot_args)        defines one_hot_range for trm_element_one_hot(args, i)
 *     TRM_HOST_PLACED_ELEMENTS(pad, trm_pad_args)         the same with coordinates: trm_element_pad(args, at, i)
 *     trm_host_for_each(call, count, work, pad_range, &args);
 *
 *     TRM_HOST_ELEMENT_KERNEL(one_hot, 4)                 all there is to a kind whose elements are those of its output
 *     TRM_HOST_PLACED_ELEMENT_KERNEL(pad, 4 * args.dims.n)
 */
#ifndef TRM_KERNELS_HOST_ELEMENT_H
#define TRM_KERNELS_HOST_ELEMENT_H

#include "kernels/element.h"
#include "kernels/host/host.h"

#define TRM_HOST_ELEMENTS(kind, type)                                                                                  \
    static void kind##_range(void *user, int64_t begin, int64_t end)                                                   \
    {                                                                                                                  \
        const type args = *(const type *)user;                                                                         \
        for (int64_t i = begin; i < end; i++) {                                                                        \
            trm_element_##kind(&args, i);                                                                              \
        }                                                                                                              \
    }

#define TRM_HOST_PLACED_ELEMENTS(kind, type)                                                                           \
    static void kind##_range(void *user, int64_t begin, int64_t end)                                                   \
    {                                                                                                                  \
        const type args = *(const type *)user;                                                                         \
        int64_t at[TRM_MAX_DIMS];                                                                                      \
        trm_element_place(&args.dims, begin, at);                                                                      \
        for (int64_t i = begin; i < end; i++) {                                                                        \
            trm_element_##kind(&args, at, i);                                                                          \
            trm_element_next(&args.dims, at);                                                                          \
        }                                                                                                              \
    }

/* Runs `range` over 0 .. count - 1 on the call's pool; `work`: reads and operations of one element, to share it out. */
static inline void trm_host_for_each(const trm_kernel_call *call, int64_t count, int64_t work, trm_pool_fn range,
                                     void *args)
{
    if (count > 0) {
        trm_host_for(call, count, trm_host_row_grain(work), range, args);
    }
}

/* trm_host_KIND_accepts and trm_host_KIND_run by trm_KIND_args_of and trm_element_KIND. `work` may read `args`. */
#define TRM_HOST_ELEMENT_KERNEL(kind, work)                                                                            \
    TRM_HOST_ELEMENTS(kind, trm_##kind##_args)                                                                         \
    TRM_HOST_KERNEL_OF_RANGE(kind, work)
#define TRM_HOST_PLACED_ELEMENT_KERNEL(kind, work)                                                                     \
    TRM_HOST_PLACED_ELEMENTS(kind, trm_##kind##_args)                                                                  \
    TRM_HOST_KERNEL_OF_RANGE(kind, work)
#define TRM_HOST_KERNEL_OF_RANGE(kind, work)                                                                           \
    bool trm_host_##kind##_accepts(const trm_kernel_call *call)                                                        \
    {                                                                                                                  \
        trm_##kind##_args args;                                                                                        \
        return trm_##kind##_args_of(call, &args);                                                                      \
    }                                                                                                                  \
                                                                                                                       \
    trm_status trm_host_##kind##_run(const trm_kernel_call *call)                                                      \
    {                                                                                                                  \
        trm_##kind##_args args;                                                                                        \
        if (trm_##kind##_args_of(call, &args)) {                                                                       \
            trm_host_for_each(call, trm_dims_count(&call->outputs[0].dims), work, kind##_range, &args);                \
        }                                                                                                              \
        return TRM_OK;                                                                                                 \
    }

#endif
