/*
 * Group and instance normalization: a block per group reads it three times (mean, variance, result), from L2 after the
 * first where it fits there. Bound by device memory.
 */
#include "kernels/cuda/common.cuh"
#include "kernels/kernel_list.h"
#include "kernels/pointwise/element.h"

#define THREADS 512

typedef struct channel_norm_args {
    const void *x, *scale, *bias; /* scale, bias: or NULL */
    void *y;
    int64_t groups, channels, inner, count; /* groups in an image, channels of one, elements of a channel; all groups */
    float eps;
    trm_activation activation;
} channel_norm_args;

static bool args_of(const trm_kernel_call *call, channel_norm_args *args)
{
    const trm_view *x = &call->inputs[0];
    const int64_t channels = x->dims.n < 2 ? 0 : x->dims.d[1];
    const int64_t groups = call->layer->group_norm.groups == 0 ? channels : call->layer->group_norm.groups;
    if (call->n_inputs > 3 || call->n_outputs != 1 || x->dims.n < 2 || groups < 0 ||
        (groups > 0 && channels % groups != 0) || !trm_element_is_float(x->dtype) ||
        call->outputs[0].dtype != x->dtype || !trm_element_same_dims(&x->dims, &call->outputs[0].dims)) {
        return false;
    }
    for (int32_t i = 1; i < call->n_inputs; i++) {
        const trm_view *view = &call->inputs[i];
        if (view->dtype != TRM_DTYPE_NONE &&
            (view->dtype != x->dtype || view->dims.n != 1 || view->dims.d[0] != channels)) {
            return false;
        }
    }
    args->x = x->data;
    args->scale = trm_kernel_call_has(call, 1) ? call->inputs[1].data : NULL;
    args->bias = trm_kernel_call_has(call, 2) ? call->inputs[2].data : NULL;
    args->y = call->outputs[0].data;
    args->groups = groups;
    args->channels = groups > 0 ? channels / groups : 0;
    args->inner = trm_element_span(&x->dims, 2, x->dims.n);
    args->count = groups * x->dims.d[0];
    args->eps = call->layer->group_norm.eps;
    args->activation = call->layer->group_norm.activation;
    return true;
}

/* Sum of doubles over the block, given to all. */
static __device__ double block_total(double x, double *scratch)
{
    for (int offset = 16; offset > 0; offset /= 2) {
        x += __shfl_xor_sync(0xffffffffu, x, offset);
    }
    if ((threadIdx.x & 31) == 0) {
        scratch[threadIdx.x / 32] = x;
    }
    __syncthreads();
    x = 0.0;
    for (int i = 0; i < THREADS / 32; i++) {
        x += scratch[i];
    }
    __syncthreads();
    return x;
}

/* R: what a thread adds up in before the block's sum in f64: f32, or f64 for f64. */
template <trm_dtype D, typename R>
static __global__ void __launch_bounds__(THREADS) normalise_groups(const channel_norm_args args)
{
    __shared__ double scratch[THREADS / 32];
    begin_overlapped();
    const int64_t n = args.channels * args.inner;
    for (int64_t group = blockIdx.x; group < args.count; group += gridDim.x) {
        const int64_t start = group * n;
        R sum = 0;
        for (int64_t i = threadIdx.x; i < n; i += THREADS) {
            sum += (R)(D == TRM_F64 ? trm_element_load_f64(D, args.x, start + i)
                                    : (double)trm_element_load_f32(D, args.x, start + i));
        }
        const double mean = block_total((double)sum, scratch) / (double)n;
        R squares = 0;
        for (int64_t i = threadIdx.x; i < n; i += THREADS) {
            const R v = (R)trm_element_load_f64(D, args.x, start + i) - (R)mean;
            squares += v * v;
        }
        const double variance = block_total((double)squares, scratch) / (double)n;
        const double rest = 1.0 / sqrt(variance + (double)args.eps);
        for (int64_t c = 0; c < args.channels; c++) {
            const int64_t channel = group % args.groups * args.channels + c, from = start + c * args.inner;
            const double scale = args.scale != NULL ? trm_element_load_f64(D, args.scale, channel) : 1.0;
            const double bias = args.bias != NULL ? trm_element_load_f64(D, args.bias, channel) : 0.0;
            const R factor = (R)(rest * scale), offset = (R)(bias - mean * rest * scale);
            for (int64_t i = threadIdx.x; i < args.inner; i += THREADS) {
                const R v = (R)trm_element_load_f64(D, args.x, from + i) * factor + offset;
                if (D == TRM_F64) {
                    trm_element_store_f64(D, args.y, from + i, trm_activate_f64(args.activation, (double)v));
                } else {
                    trm_element_store_f32(D, args.y, from + i, activate(args.activation, (float)v));
                }
            }
        }
    }
}

bool trm_cuda_group_norm_accepts(const trm_kernel_call *call)
{
    channel_norm_args args;
    return args_of(call, &args);
}

trm_status trm_cuda_group_norm_run(const trm_kernel_call *call)
{
    channel_norm_args args;
    if (!args_of(call, &args) || trm_dims_count(&call->inputs[0].dims) == 0) {
        return TRM_OK;
    }
    const unsigned blocks = (unsigned)(args.count < 65535 ? args.count : 65535);
    cudaStream_t stream = trm_cuda_stream(call->stream);
    switch (call->inputs[0].dtype) {
    case TRM_F16:
        launch_overlapped(normalise_groups<TRM_F16, float>, blocks, THREADS, 0, stream, args);
        break;
    case TRM_BF16:
        launch_overlapped(normalise_groups<TRM_BF16, float>, blocks, THREADS, 0, stream, args);
        break;
    case TRM_F64:
        launch_overlapped(normalise_groups<TRM_F64, double>, blocks, THREADS, 0, stream, args);
        break;
    default:
        launch_overlapped(normalise_groups<TRM_F32, float>, blocks, THREADS, 0, stream, args);
        break;
    }
    return trm_cuda_launched("cuda.group_norm");
}
