/*
 * Kernels over images that are one function per output element, in headers of the kind. Windows are read from cache;
 * what bounds them is device memory for pools and nearest samples, arithmetic otherwise.
 */
#include "kernels/cuda/element.cuh"
#include "kernels/kernel_list.h"
#include "kernels/vision/channels.h"
#include "kernels/convolution/element.h"
#include "kernels/vision/pool.h"
#include "kernels/vision/resize.h"
#include "kernels/vision/sample.h"

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

/* What a thread makes of the taps of a window, 16 bytes of channels: averages and the largest of floats, and the
 * largest of bytes. */
template <typename T, bool AVERAGE> struct pool_floats {
    static const int n = vec16<T>::n;
    float best[n];
    int taken;
    __device__ __forceinline__ pool_floats(void) : taken(0)
    {
#pragma unroll
        for (int j = 0; j < n; j++) {
            best[j] = AVERAGE ? 0.0f : -INFINITY;
        }
    }
    __device__ __forceinline__ void take(const void *from)
    {
        float v[n];
        load16((const T *)from, v);
        taken++;
#pragma unroll
        for (int j = 0; j < n; j++) { /* NaN is larger than anything */
            best[j] = AVERAGE ? best[j] + v[j] : v[j] > best[j] || v[j] != v[j] ? v[j] : best[j];
        }
    }
    __device__ __forceinline__ void store(void *to)
    {
#pragma unroll
        for (int j = 0; AVERAGE && j < n; j++) {
            best[j] = taken > 0 ? best[j] / (float)taken : 0.0f;
        }
        store16((T *)to, best);
    }
};

struct pool_bytes {
    uint4 best;
    __device__ __forceinline__ pool_bytes(void) : best(make_uint4(0x80808080u, 0x80808080u, 0x80808080u, 0x80808080u))
    {
    }
    __device__ __forceinline__ void take(const void *from)
    {
        const uint4 v = *(const uint4 *)from;
        best = make_uint4(__vmaxs4(best.x, v.x), __vmaxs4(best.y, v.y), __vmaxs4(best.z, v.z), __vmaxs4(best.w, v.w));
    }
    __device__ __forceinline__ void store(void *to)
    {
        *(uint4 *)to = best;
    }
};

/* Channels last: a thread per 16 bytes of channels of an output position, which reads the same channels of each tap:
 * bound by device memory, x once (windows overlap in cache) and y once. */
template <typename Window>
static __global__ void __launch_bounds__(256) pool_last(const trm_pool_args args, int64_t row_bytes, int64_t count)
{
    const trm_windows &w = args.w; /* row_bytes: of the channels of a position */
    const int per_position = (int)(row_bytes / 16);
    begin_overlapped();
    for (int64_t i = global_thread(); i < count; i += global_threads()) {
        const int64_t q = i / per_position, image = q / w.out_size;
        const int part = (int)(i - q * per_position), position = (int)(q - image * w.out_size);
        const int row = position / (int)w.out[2], layer = row / (int)w.out[1];
        const int x0 = (position - row * (int)w.out[2]) * (int)w.stride[2] - (int)w.before[2];
        const int y0 = (row - layer * (int)w.out[1]) * (int)w.stride[1] - (int)w.before[1];
        const int z0 = layer * (int)w.stride[0] - (int)w.before[0];
        const char *from = (const char *)args.x + image * w.in_size * row_bytes + part * 16;
        Window window;
        for (int a = 0; a < (int)w.kernel[0]; a++) {
            const int z = z0 + a * (int)w.dilation[0];
            for (int b = 0; b < (int)w.kernel[1]; b++) {
                const int y = y0 + b * (int)w.dilation[1];
                for (int k = 0; k < (int)w.kernel[2]; k++) {
                    const int x = x0 + k * (int)w.dilation[2];
                    if ((unsigned)z < (unsigned)w.in[0] && (unsigned)y < (unsigned)w.in[1] &&
                        (unsigned)x < (unsigned)w.in[2]) {
                        window.take(from + (((int64_t)z * w.in[1] + y) * w.in[2] + x) * row_bytes);
                    }
                }
            }
        }
        window.store((char *)args.y + i * 16);
    }
}

/* Whether pool_last does a call: 16-byte channels, positions in 32 bits, averages of 16-bit floats over what is there.
 */
static bool pools_last(const trm_pool_args *args)
{
    const bool narrow = args->dtype == TRM_F16 || args->dtype == TRM_BF16;
    const int64_t n = 16 / (int64_t)trm_dtype_size(args->dtype);
    const uintptr_t addresses = (uintptr_t)args->x | (uintptr_t)args->y;
    return args->channels_last && args->w.channels_in % n == 0 && addresses % 16 == 0 &&
           args->w.in_size <= INT32_MAX / 4 && args->w.out_size <= INT32_MAX && args->w.channels_in <= INT32_MAX &&
           (args->op == TRM_POOL_MAX ? narrow || args->dtype == TRM_F32 || args->dtype == TRM_I8
                                     : args->op == TRM_POOL_AVERAGE && narrow && !args->count_padding);
}

bool trm_cuda_pool_accepts(const trm_kernel_call *call)
{
    trm_pool_args args;
    return trm_pool_args_of(call, &args);
}

trm_status trm_cuda_pool_run(const trm_kernel_call *call)
{
    trm_pool_args args;
    if (!trm_pool_args_of(call, &args)) {
        return TRM_OK;
    }
    const int64_t count = trm_dims_count(&call->outputs[0].dims);
    if (count == 0 || !pools_last(&args)) {
        return launch_placed_elements<trm_pool_args, trm_element_pool>(call, args, count, "cuda.pool");
    }
    const int64_t vectors = count / (16 / (int64_t)trm_dtype_size(args.dtype));
    cudaStream_t stream = trm_cuda_stream(call->stream);
    const int64_t row_bytes = args.w.channels_in * (int64_t)trm_dtype_size(args.dtype);
#define POOL(window)                                                                                                   \
    launch_overlapped(pool_last<window>, grid_for(vectors, 256), 256, 0, stream, args, row_bytes, vectors)
    if (args.dtype == TRM_I8) {
        POOL(pool_bytes);
    } else if (args.op == TRM_POOL_AVERAGE) {
        DISPATCH_FLOAT(args.dtype, typedef pool_floats<T, true> window; POOL(window));
    } else {
        DISPATCH_FLOAT(args.dtype, typedef pool_floats<T, false> window; POOL(window));
    }
#undef POOL
    return trm_cuda_launched("cuda.pool");
}

KERNEL(deconvolution, trm_convolution_args, launch_placed_elements)
KERNEL(deformable_convolution, trm_deformable_convolution_args, launch_placed_elements)
KERNEL(resize, trm_resize_args, launch_placed_elements)
KERNEL(grid_sample, trm_grid_sample_args, launch_placed_elements)
KERNEL(roi_pool, trm_roi_pool_args, launch_placed_elements)
KERNEL(col2im, trm_col2im_args, launch_placed_elements)
KERNEL(lrn, trm_lrn_args, launch_elements)
