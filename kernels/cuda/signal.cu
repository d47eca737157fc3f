/*
 * Fourier transforms as the sums that define them (n^2 in f64, for the lengths of audio frames), determinants by a
 * block per matrix, random numbers. Elements are in kernels/element.
 */
#include "kernels/cuda/element.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/element/determinant.h"
#include "kernels/element/fourier.h"
#include "kernels/element/random.h"

/* ---- fourier ---- */

typedef struct twiddle_args {
    double *table;
    int64_t n;
} twiddle_args;

static __host__ __device__ __forceinline__ void element_twiddle(const twiddle_args *args, int64_t k)
{
    trm_element_twiddle(args->table, args->n, k);
}

bool trm_cuda_fourier_accepts(const trm_kernel_call *call)
{
    trm_fourier_args args;
    return trm_fourier_args_of(call, &args);
}

size_t trm_cuda_fourier_workspace(const trm_kernel_call *call)
{
    trm_fourier_args args;
    return trm_fourier_args_of(call, &args) ? (size_t)args.n * 2 * sizeof(double) : 0;
}

trm_status trm_cuda_fourier_run(const trm_kernel_call *call)
{
    trm_fourier_args args;
    if (!trm_fourier_args_of(call, &args)) {
        return TRM_OK;
    }
    twiddle_args twiddles = {(double *)call->workspace, args.n};
    TRM_TRY((launch_elements<twiddle_args, element_twiddle>(call, twiddles, args.n, "cuda.fourier")));
    return launch_elements<trm_fourier_args, trm_element_fourier>(
        call, args, trm_dims_count(&call->outputs[0].dims) / args.out_parts, "cuda.fourier");
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
