/*
 * Softmax and reductions along one axis, a tensor seen as [outer, n, inner] around it. With inner 1 a block walks each
 * row; else a thread walks each column, neighbours side by side. Bound by device memory or cache: softmax reads its
 * input three times, of which the second and third come from cache for rows that fit there.
 */
#include "kernels/cuda/common.cuh"
#include "kernels/kernel_list.h"
#include "kernels/cuda/strides.h"

/* ---- softmax ---- */

/* One row per block and pass; threads a power of two from 32 to 1024; 128 bytes of shared memory. */
template <typename T>
static __global__ void softmax_rows(const T *__restrict__ from, T *__restrict__ to, trm_axis_view v)
{
    __shared__ float scratch[32];
    for (int64_t row = blockIdx.x; row < v.outer; row += gridDim.x) {
        const T *x = from + row * v.n;
        T *y = to + row * v.n;
        float largest = -INFINITY, total = 0.0f;
        for (int64_t i = threadIdx.x; i < v.n; i += blockDim.x) {
            largest = fmaxf(largest, to_float(x[i]));
        }
        largest = block_max(largest, scratch);
        for (int64_t i = threadIdx.x; i < v.n; i += blockDim.x) {
            total += expf(to_float(x[i]) - largest);
        }
        total = block_sum(total, scratch);
        for (int64_t i = threadIdx.x; i < v.n; i += blockDim.x) {
            y[i] = from_float<T>(expf(to_float(x[i]) - largest) / total);
        }
    }
}

/* One column per thread and pass. */
template <typename T>
static __global__ void softmax_columns(const T *__restrict__ from, T *__restrict__ to, trm_axis_view v)
{
    for (int64_t c = global_thread(); c < v.outer * v.inner; c += global_threads()) {
        int64_t base = c / v.inner * v.n * v.inner + c % v.inner;
        float largest = -INFINITY, total = 0.0f;
        for (int64_t i = 0; i < v.n; i++) {
            largest = fmaxf(largest, to_float(from[base + i * v.inner]));
        }
        for (int64_t i = 0; i < v.n; i++) {
            total += expf(to_float(from[base + i * v.inner]) - largest);
        }
        for (int64_t i = 0; i < v.n; i++) {
            to[base + i * v.inner] = from_float<T>(expf(to_float(from[base + i * v.inner]) - largest) / total);
        }
    }
}

/* One row or column per block and pass, any stride: 256 threads, 2 KiB of shared memory. */
static __global__ void __launch_bounds__(256) softmax_f64(const double *from, double *to, trm_axis_view v)
{
    __shared__ double partial[256];
    begin_overlapped();
    for (int64_t c = blockIdx.x; c < v.outer * v.inner; c += gridDim.x) {
        int64_t base = c / v.inner * v.n * v.inner + c % v.inner;
        double largest = -INFINITY, total = 0.0;
        for (int64_t i = threadIdx.x; i < v.n; i += blockDim.x) {
            double x = from[base + i * v.inner];
            largest = x > largest || x != x ? x : largest;
        }
        partial[threadIdx.x] = largest;
        __syncthreads();
        for (int half = 128; half > 0; half /= 2) {
            if ((int)threadIdx.x < half) {
                double x = partial[threadIdx.x + half];
                partial[threadIdx.x] = x > partial[threadIdx.x] || x != x ? x : partial[threadIdx.x];
            }
            __syncthreads();
        }
        largest = partial[0];
        __syncthreads();
        for (int64_t i = threadIdx.x; i < v.n; i += blockDim.x) {
            total += exp(from[base + i * v.inner] - largest);
        }
        partial[threadIdx.x] = total;
        __syncthreads();
        for (int half = 128; half > 0; half /= 2) {
            if ((int)threadIdx.x < half) {
                partial[threadIdx.x] += partial[threadIdx.x + half];
            }
            __syncthreads();
        }
        for (int64_t i = threadIdx.x; i < v.n; i += blockDim.x) {
            to[base + i * v.inner] = exp(from[base + i * v.inner] - largest) / partial[0];
        }
        __syncthreads();
    }
}

/* Threads for a row of n: enough for one element each, a power of two from 32 to 1024. */
static unsigned threads_for_row(int64_t n)
{
    unsigned threads = 32;
    while (threads < 1024 && (int64_t)threads < n) {
        threads *= 2;
    }
    return threads;
}

static unsigned grid_for_rows(int64_t rows)
{
    return (unsigned)(rows < 1 << 20 ? rows : 1 << 20);
}

bool trm_cuda_softmax_accepts(const trm_kernel_call *call)
{
    return (is_half_or_float(call->inputs[0].dtype) || call->inputs[0].dtype == TRM_F64) &&
           call->outputs[0].dtype == call->inputs[0].dtype && call->inputs[0].dims.n > 0;
}

trm_status trm_cuda_softmax_run(const trm_kernel_call *call)
{
    const trm_view *in = &call->inputs[0], *out = &call->outputs[0];
    if (trm_dims_count(&in->dims) == 0) {
        return TRM_OK;
    }
    trm_axis_view v = trm_view_around(&in->dims, call->layer->softmax.axis);
    cudaStream_t stream = trm_cuda_stream(call->stream);
    if (in->dtype == TRM_F64) {
        launch_overlapped(softmax_f64, grid_for_rows(v.outer * v.inner), 256, 0, stream, (const double *)in->data,
                          (double *)out->data, v);
        return trm_cuda_launched("cuda.softmax");
    }
    DISPATCH_FLOAT(
        in->dtype, const T *from = (const T *)in->data; T *to = (T *)out->data; if (v.inner == 1) {
            softmax_rows<T><<<grid_for_rows(v.outer), threads_for_row(v.n), 0, stream>>>(from, to, v);
        } else { softmax_columns<T><<<grid_for(v.outer * v.inner, 128), 128, 0, stream>>>(from, to, v); });
    return trm_cuda_launched("cuda.softmax");
}

/* ---- reduce ---- */

/* How a type is summed up: floats in f32, f64 in f64, integers in 64 bits, and stored back. */
template <typename T> struct accumulator {
    typedef int64_t type;
    static __device__ type load(T x)
    {
        return (int64_t)x;
    }
    static __device__ T store(type x)
    {
        return (T)x;
    }
};
template <> struct accumulator<uint64_t> {
    typedef uint64_t type;
    static __device__ type load(uint64_t x)
    {
        return x;
    }
    static __device__ uint64_t store(type x)
    {
        return x;
    }
};
template <> struct accumulator<double> {
    typedef double type;
    static __device__ type load(double x)
    {
        return x;
    }
    static __device__ double store(type x)
    {
        return x;
    }
};
template <typename T> struct float_accumulator {
    typedef float type;
    static __device__ type load(T x)
    {
        return to_float(x);
    }
    static __device__ T store(type x)
    {
        return from_float<T>(x);
    }
};
template <> struct accumulator<float> : float_accumulator<float> {
};
template <> struct accumulator<__half> : float_accumulator<__half> {
};
template <> struct accumulator<__nv_bfloat16> : float_accumulator<__nv_bfloat16> {
};

/* MAX and MIN keep a NaN, from either side. */
template <typename A> static __device__ __forceinline__ A combine(trm_reduce_op op, A a, A b)
{
    switch (op) {
    case TRM_REDUCE_PROD:
        return a * b;
    case TRM_REDUCE_MAX:
        return a > b || a != a ? a : b;
    case TRM_REDUCE_MIN:
        return a < b || a != a ? a : b;
    default:
        return a + b;
    }
}

/* Of nothing: 0, 1, the smallest or the largest of the type. */
template <typename T> static __device__ T of_nothing(trm_reduce_op op)
{
    const bool has_sign = (T)-1 < (T)0;
    const T ones = (T) ~(T)0;
    const T largest = has_sign ? (T)(~0ull >> (65 - 8 * sizeof(T))) : ones;
    switch (op) {
    case TRM_REDUCE_PROD:
        return (T)1;
    case TRM_REDUCE_MAX:
        return has_sign ? (T)~largest : (T)0;
    case TRM_REDUCE_MIN:
        return largest;
    default:
        return (T)0;
    }
}
static __device__ double float_of_nothing(trm_reduce_op op)
{
    switch (op) {
    case TRM_REDUCE_PROD:
        return 1.0;
    case TRM_REDUCE_MAX:
        return -INFINITY;
    case TRM_REDUCE_MIN:
        return INFINITY;
    default:
        return 0.0;
    }
}
template <> __device__ bool of_nothing<bool>(trm_reduce_op op)
{
    return op == TRM_REDUCE_MIN;
}
template <> __device__ float of_nothing<float>(trm_reduce_op op)
{
    return (float)float_of_nothing(op);
}
template <> __device__ double of_nothing<double>(trm_reduce_op op)
{
    return float_of_nothing(op);
}
template <> __device__ __half of_nothing<__half>(trm_reduce_op op)
{
    return __float2half_rn((float)float_of_nothing(op));
}
template <> __device__ __nv_bfloat16 of_nothing<__nv_bfloat16>(trm_reduce_op op)
{
    return __float2bfloat16_rn((float)float_of_nothing(op));
}

template <typename A> static __device__ __forceinline__ A finish(trm_reduce_op op, A total, int64_t n)
{
    return op == TRM_REDUCE_AVG ? total / (A)n : total;
}

/* One row per block and pass. Threads beyond n have nothing to add: the tree below joins the first min(n, threads)
 * values, in an order that depends on n and the block size alone. Shared memory: one accumulator per thread, 8 KiB at
 * most. */
template <typename T> static __global__ void reduce_rows(trm_reduce_op op, const T *from, T *to, trm_axis_view v)
{
    typedef typename accumulator<T>::type A;
    __shared__ A partial[1024];
    for (int64_t row = blockIdx.x; row < v.outer; row += gridDim.x) {
        const T *x = from + row * v.n;
        int filled = (int)(v.n < blockDim.x ? v.n : blockDim.x);
        if ((int)threadIdx.x < filled) {
            A total = accumulator<T>::load(x[threadIdx.x]);
            for (int64_t i = threadIdx.x + blockDim.x; i < v.n; i += blockDim.x) {
                total = combine(op, total, accumulator<T>::load(x[i]));
            }
            partial[threadIdx.x] = total;
        }
        __syncthreads();
        for (int half = (int)blockDim.x / 2; half > 0; half /= 2) {
            int other = (int)threadIdx.x + half;
            if ((int)threadIdx.x < half && other < filled) {
                partial[threadIdx.x] = combine(op, partial[threadIdx.x], partial[other]);
            }
            filled = filled < half ? filled : half;
            __syncthreads();
        }
        if (threadIdx.x == 0) {
            to[row] = accumulator<T>::store(finish(op, partial[0], v.n));
        }
        __syncthreads();
    }
}

/* One column per thread and pass. */
template <typename T> static __global__ void reduce_columns(trm_reduce_op op, const T *from, T *to, trm_axis_view v)
{
    typedef typename accumulator<T>::type A;
    for (int64_t c = global_thread(); c < v.outer * v.inner; c += global_threads()) {
        if (v.n == 0) {
            to[c] = of_nothing<T>(op);
            continue;
        }
        int64_t base = c / v.inner * v.n * v.inner + c % v.inner;
        A total = accumulator<T>::load(from[base]);
        for (int64_t i = 1; i < v.n; i++) {
            total = combine(op, total, accumulator<T>::load(from[base + i * v.inner]));
        }
        to[c] = accumulator<T>::store(finish(op, total, v.n));
    }
}

template <typename T> static void launch_reduce(const trm_kernel_call *call, trm_axis_view v, cudaStream_t stream)
{
    const T *from = (const T *)call->inputs[0].data;
    T *to = (T *)call->outputs[0].data;
    if (v.inner == 1 && v.n > 0) {
        reduce_rows<T>
            <<<grid_for_rows(v.outer), threads_for_row(v.n), 0, stream>>>(call->layer->reduce.op, from, to, v);
    } else {
        reduce_columns<T><<<grid_for(v.outer * v.inner, 128), 128, 0, stream>>>(call->layer->reduce.op, from, to, v);
    }
}

bool trm_cuda_reduce_accepts(const trm_kernel_call *call)
{
    trm_dtype dtype = call->inputs[0].dtype;
    trm_reduce_op op = call->layer->reduce.op;
    bool number = dtype >= TRM_F32 && dtype <= TRM_U64;
    return (number || (dtype == TRM_BOOL && (op == TRM_REDUCE_MAX || op == TRM_REDUCE_MIN))) &&
           call->outputs[0].dtype == dtype && call->inputs[0].dims.n > 0;
}

trm_status trm_cuda_reduce_run(const trm_kernel_call *call)
{
    const trm_view *in = &call->inputs[0];
    trm_axis_view v = trm_view_around(&in->dims, call->layer->reduce.axis);
    if (trm_dims_count(&call->outputs[0].dims) == 0) {
        return TRM_OK;
    }
    cudaStream_t stream = trm_cuda_stream(call->stream);
    switch (in->dtype) {
    case TRM_F32:
        launch_reduce<float>(call, v, stream);
        break;
    case TRM_F16:
        launch_reduce<__half>(call, v, stream);
        break;
    case TRM_BF16:
        launch_reduce<__nv_bfloat16>(call, v, stream);
        break;
    case TRM_F64:
        launch_reduce<double>(call, v, stream);
        break;
    case TRM_I8:
        launch_reduce<int8_t>(call, v, stream);
        break;
    case TRM_BOOL: /* one byte, 0 or 1, as the language's */
        launch_reduce<bool>(call, v, stream);
        break;
    case TRM_U8:
        launch_reduce<uint8_t>(call, v, stream);
        break;
    case TRM_I16:
        launch_reduce<int16_t>(call, v, stream);
        break;
    case TRM_U16:
        launch_reduce<uint16_t>(call, v, stream);
        break;
    case TRM_I32:
        launch_reduce<int32_t>(call, v, stream);
        break;
    case TRM_U32:
        launch_reduce<uint32_t>(call, v, stream);
        break;
    case TRM_I64:
        launch_reduce<int64_t>(call, v, stream);
        break;
    default:
        launch_reduce<uint64_t>(call, v, stream);
        break;
    }
    return trm_cuda_launched("cuda.reduce");
}
