/* CUMULATIVE, sums and products along an axis: a thread per line, or a block for long ones. Bound by device memory. */
#include "kernels/cuda/element.cuh"
#include "kernels/kernel_list.h"
#include "kernels/reduce/cumulative.h"

template <typename Sum> struct cumulative_value;
template <> struct cumulative_value<float> {
    static __device__ float load(trm_dtype dtype, const void *data, int64_t i)
    {
        return trm_element_load_f32(dtype, data, i);
    }
    static __device__ void store(trm_dtype dtype, void *data, int64_t i, float value)
    {
        trm_element_store_f32(dtype, data, i, value);
    }
};
template <> struct cumulative_value<double> {
    static __device__ double load(trm_dtype dtype, const void *data, int64_t i)
    {
        return trm_element_load_f64(dtype, data, i);
    }
    static __device__ void store(trm_dtype dtype, void *data, int64_t i, double value)
    {
        trm_element_store_f64(dtype, data, i, value);
    }
};
template <> struct cumulative_value<unsigned long long> {
    static __device__ unsigned long long load(trm_dtype dtype, const void *data, int64_t i)
    {
        return (unsigned long long)trm_element_load_i64(dtype, data, i);
    }
    static __device__ void store(trm_dtype dtype, void *data, int64_t i, unsigned long long value)
    {
        trm_element_store_i64(dtype, data, i, (int64_t)value);
    }
};

template <typename Sum> static __device__ __forceinline__ Sum join(trm_cumulative_op op, Sum a, Sum b)
{
    return op == TRM_CUMULATIVE_PROD ? a * b : a + b;
}

/* Long lines, one block of 256 threads each: 256 elements a pass, by warps and then across them, carried to the next.
 */
template <typename Sum> static __global__ void __launch_bounds__(256) cumulative_blocks(const trm_cumulative_args args)
{
    __shared__ Sum totals[8];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const Sum neutral = args.op == TRM_CUMULATIVE_PROD ? (Sum)1 : (Sum)0;
    begin_overlapped();
    for (int64_t line = blockIdx.x; line < args.lines; line += gridDim.x) {
        int64_t outer = line / args.inner, start = outer * args.inner * args.n + (line - outer * args.inner);
        Sum carry = neutral;
        for (int64_t first = 0; first < args.n; first += 256) {
            int64_t i = first + threadIdx.x;
            int64_t at = start + (args.reverse ? args.n - 1 - i : i) * args.inner;
            Sum sum = i < args.n ? cumulative_value<Sum>::load(args.dtype, args.x, at) : neutral;
            for (int step = 1; step < 32; step *= 2) {
                Sum other = __shfl_up_sync(0xffffffffu, sum, step);
                sum = lane >= step ? join(args.op, other, sum) : sum;
            }
            if (lane == 31) {
                totals[warp] = sum;
            }
            Sum before = __shfl_up_sync(0xffffffffu, sum, 1);
            before = lane == 0 ? neutral : before;
            __syncthreads();
            Sum lead = carry;
            for (int w = 0; w < 8; w++) {
                lead = w < warp ? join(args.op, lead, totals[w]) : lead;
                carry = join(args.op, carry, totals[w]);
            }
            if (i < args.n) {
                cumulative_value<Sum>::store(args.dtype, args.y, at,
                                             join(args.op, lead, args.exclusive ? before : sum));
            }
            __syncthreads();
        }
    }
}

bool trm_cuda_cumulative_accepts(const trm_kernel_call *call)
{
    trm_cumulative_args args;
    return trm_cumulative_args_of(call, &args);
}

trm_status trm_cuda_cumulative_run(const trm_kernel_call *call)
{
    trm_cumulative_args args;
    if (!trm_cumulative_args_of(call, &args) || args.lines == 0) {
        return TRM_OK;
    }
    /* A thread per line keeps all of the chip busy, or its lines are short. */
    if (args.n <= 32 || args.lines >= 132 * 1024) {
        return launch_elements<trm_cumulative_args, trm_element_cumulative>(call, args, args.lines, "cuda.cumulative");
    }
    unsigned grid = (unsigned)(args.lines < 132 * 16 ? args.lines : 132 * 16);
    cudaStream_t stream = trm_cuda_stream(call->stream);
    if (args.dtype == TRM_F64) {
        launch_overlapped(cumulative_blocks<double>, grid, 256, 0, stream, args);
    } else if (trm_element_is_float(args.dtype)) {
        launch_overlapped(cumulative_blocks<float>, grid, 256, 0, stream, args);
    } else {
        launch_overlapped(cumulative_blocks<unsigned long long>, grid, 256, 0, stream, args);
    }
    return trm_cuda_launched("cuda.cumulative");
}
