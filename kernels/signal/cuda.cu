/*
 * Fourier transforms as the sums that define them (n^2 in f64, for the lengths of audio frames), determinants by a
 * block per matrix, random numbers. Elements are in headers of the kind.
 */
#include "kernels/cuda/element.cuh"
#include "kernels/kernel_list.h"
#include "kernels/signal/determinant.h"
#include "kernels/signal/fourier.h"
#include "kernels/signal/random.h"

/* ---- fourier ---- */

static __global__ void __launch_bounds__(256) fourier_twiddles(double *table, int64_t n)
{
    begin_overlapped();
    for (int64_t k = global_thread(); k < n; k += global_threads()) {
        trm_element_twiddle(table, n, k);
    }
}

/* One block of 256 threads per slot and line, its buffers in device memory, which for audio frames is the cache. */
static __global__ void __launch_bounds__(256) fourier_lines(const trm_fourier_args args)
{
    begin_overlapped();
    for (int64_t line = blockIdx.x; line < args.lines; line += args.slots) {
        double *x = args.buffers + blockIdx.x * 4 * args.n, *y = x + 2 * args.n;
        for (int64_t j = threadIdx.x; j < args.n; j += blockDim.x) {
            trm_fourier_load(&args, line, j, x + 2 * j);
        }
        int64_t stride = 1;
        for (int64_t length = args.n; length > 1;) {
            int64_t p = trm_fourier_factor(length);
            __syncthreads();
            trm_fourier_stage(&args, length, stride, p, x, y, threadIdx.x, blockDim.x);
            double *done = y;
            y = x;
            x = done;
            length /= p;
            stride *= p;
        }
        __syncthreads();
        for (int64_t k = threadIdx.x; k < args.to; k += blockDim.x) {
            trm_fourier_store(&args, line, k, x + 2 * k);
        }
        __syncthreads();
    }
}

bool trm_cuda_fourier_accepts(const trm_kernel_call *call)
{
    trm_fourier_args args;
    return trm_fourier_args_of(call, &args);
}

size_t trm_cuda_fourier_workspace(const trm_kernel_call *call)
{
    return trm_fourier_workspace(call);
}

trm_status trm_cuda_fourier_run(const trm_kernel_call *call)
{
    trm_fourier_args args;
    if (!trm_fourier_args_of(call, &args) || args.lines == 0 || args.n == 0) {
        return TRM_OK;
    }
    cudaStream_t stream = trm_cuda_stream(call->stream);
    launch_overlapped(fourier_twiddles, grid_for(args.n, 256), 256, 0, stream, args.table, args.n);
    launch_overlapped(fourier_lines, (unsigned)args.slots, 256, 0, stream, args);
    return trm_cuda_launched("cuda.fourier");
}

/* ---- random ---- */

bool trm_cuda_random_accepts(const trm_kernel_call *call)
{
    trm_random_args args;
    return trm_random_args_of(call, &args);
}

trm_status trm_cuda_random_run(const trm_kernel_call *call)
{
    trm_random_args args;
    if (!trm_random_args_of(call, &args)) {
        return TRM_OK;
    }
    return launch_elements<trm_random_args, trm_element_random>(call, args, trm_dims_count(&call->outputs[0].dims),
                                                                "cuda.random");
}

/* ---- determinant ---- */

/* One block of 256 threads per matrix: elimination in device memory, the pivot found by thread 0. */
static __global__ void __launch_bounds__(256) determinant_blocks(const trm_determinant_args args)
{
    __shared__ int64_t pivot;
    const int64_t n = args.n, size = n * n;
    begin_overlapped();
    for (int64_t batch = blockIdx.x; batch < args.batch; batch += gridDim.x) {
        double *m = args.matrices + batch * size;
        for (int64_t i = threadIdx.x; i < size; i += blockDim.x) {
            m[i] = trm_element_load_f64(args.dtype, args.x, batch * size + i);
        }
        double result = 1.0;
        for (int64_t column = 0; column < n && result != 0.0; column++) {
            __syncthreads();
            if (threadIdx.x == 0) {
                pivot = column;
                for (int64_t row = column + 1; row < n; row++) {
                    pivot = fabs(m[row * n + column]) > fabs(m[pivot * n + column]) ? row : pivot;
                }
            }
            __syncthreads();
            const int64_t chosen = pivot;
            const double value = m[chosen * n + column];
            result *= chosen == column ? value : -value;
            __syncthreads();
            for (int64_t j = column + threadIdx.x; chosen != column && j < n; j += blockDim.x) {
                double kept = m[column * n + j];
                m[column * n + j] = m[chosen * n + j];
                m[chosen * n + j] = kept;
            }
            __syncthreads();
            const int64_t rest = n - column - 1;
            for (int64_t i = threadIdx.x; value != 0.0 && i < rest * rest; i += blockDim.x) {
                int64_t row = column + 1 + i / rest, j = column + 1 + i % rest;
                m[row * n + j] -= m[row * n + column] / value * m[column * n + j];
            }
        }
        if (threadIdx.x == 0) {
            trm_element_store_f64(args.dtype, args.y, batch, result);
        }
        __syncthreads();
    }
}

bool trm_cuda_determinant_accepts(const trm_kernel_call *call)
{
    trm_determinant_args args;
    return trm_determinant_args_of(call, &args);
}

size_t trm_cuda_determinant_workspace(const trm_kernel_call *call)
{
    return trm_determinant_workspace(call);
}

trm_status trm_cuda_determinant_run(const trm_kernel_call *call)
{
    trm_determinant_args args;
    if (!trm_determinant_args_of(call, &args) || args.batch == 0) {
        return TRM_OK;
    }
    unsigned grid = (unsigned)(args.batch < 132 * 16 ? args.batch : 132 * 16);
    launch_overlapped(determinant_blocks, grid, 256, 0, trm_cuda_stream(call->stream), args);
    return trm_cuda_launched("cuda.determinant");
}
