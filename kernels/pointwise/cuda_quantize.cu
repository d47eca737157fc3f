/*
 * QUANTIZE and DEQUANTIZE: a thread per element; or per 16 elements that become i8 by one scale, bound by device
 * memory.
 */
#include "kernels/cuda/element.cuh"
#include "kernels/kernel_list.h"
#include "kernels/pointwise/quantize.h"

/* 16 elements by one scale: the same division and rounding as of one. */
template <typename T>
static __global__ void __launch_bounds__(256) quantize_runs(const trm_quantize_args args, int64_t count)
{
    const int n = vec16<T>::n;
    begin_overlapped();
    const float scale = trm_element_load_f32(args.scale_type, args.scale, 0);
    const float inverse = 1.0f / scale;
    const bool plain = fabsf(inverse) < INFINITY;
    const int zero = args.zero != NULL ? *(const int8_t *)args.zero : 0;
    for (int64_t i = global_thread(); i < count; i += global_threads()) {
        uint32_t words[4] = {};
#pragma unroll
        for (int part = 0; part < 16 / n; part++) {
            float v[n];
            load16((const T *)args.x + i * 16 + part * n, v);
#pragma unroll
            for (int j = 0; j < n; j++) {
                const float ratio = plain ? divide_by(v[j], scale, inverse) : v[j] / scale;
                const int at = part * n + j, near = min(max(__float2int_rn(ratio), -1 << 30), 1 << 30);
                const int whole = ratio != ratio ? 0 : near + zero;
                words[at / 4] |= ((uint32_t)min(max(whole, -128), 127) & 0xff) << at % 4 * 8;
            }
        }
        ((uint4 *)args.y)[i] = make_uint4(words[0], words[1], words[2], words[3]);
    }
}

static bool is_in_runs(const trm_quantize_args *args, int64_t count)
{
    const uintptr_t addresses = (uintptr_t)args->x | (uintptr_t)args->y;
    return args->scales == 0 && args->to == TRM_I8 && args->from != TRM_F64 && trm_element_is_float(args->scale_type) &&
           args->scale_type != TRM_F64 && count > 0 && count % 16 == 0 && addresses % 16 == 0;
}

bool trm_cuda_quantize_accepts(const trm_kernel_call *call)
{
    trm_quantize_args args;
    return trm_quantize_args_of(call, &args);
}

trm_status trm_cuda_quantize_run(const trm_kernel_call *call)
{
    trm_quantize_args args;
    int64_t count = trm_dims_count(&call->outputs[0].dims);
    if (!trm_quantize_args_of(call, &args)) {
        return TRM_OK;
    }
    if (call->layer->kind == TRM_LAYER_QUANTIZE && is_in_runs(&args, count)) {
        DISPATCH_FLOAT(args.from, launch_overlapped(quantize_runs<T>, grid_for(count / 16, 256), 256, 0,
                                                    trm_cuda_stream(call->stream), args, count / 16));
        return trm_cuda_launched("cuda.quantize runs");
    }
    if (call->layer->kind == TRM_LAYER_QUANTIZE) {
        return launch_elements<trm_quantize_args, trm_element_quantize>(call, args, count, "cuda.quantize");
    }
    return launch_elements<trm_quantize_args, trm_element_dequantize>(call, args, count, "cuda.dequantize");
}
