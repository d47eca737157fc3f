/*
 * RMS and layer norm over the last axis, alone or with the residual addition before it. Bound by device memory: each
 * row is read once, kept in registers, written once (twice with the residual: the sum and its norm).
 */
#include "kernels/cuda/common.cuh"
#include "kernels/cuda/launch.h"

typedef struct norm_args {
    const void *x, *residual, *weight, *bias; /* all but x may be NULL */
    void *to, *sum;                           /* sum: with residual */
    int64_t rows, n;
    float eps, weight_offset;
    bool layer;
} norm_args;

/* The sum of `x` over a row's threads: a warp (ONE_WARP) or the block. */
template <bool ONE_WARP> static __device__ __forceinline__ float row_sum(float x, float *scratch)
{
    return ONE_WARP ? warp_sum(x) : block_sum(x, scratch);
}

/*
 * Rows of n elements, n a multiple of vec16<T>::n, everything aligned to 16 bytes. VECTORS runs of 16 bytes per thread
 * in registers. ONE_WARP: 32 x 4 threads, a row per warp, for short rows (head norms); else one row per
 * block of up to 1024 threads, 128 bytes of shared memory for the reductions. Weight and bias are on their way from
 * before the wait.
 */
template <typename T, int VECTORS, bool ONE_WARP>
static __global__ void __launch_bounds__(ONE_WARP ? 128 : 1024) norm_rows(norm_args a)
{
    __shared__ float scratch[32];
    const int width = vec16<T>::n;
    int64_t row = ONE_WARP ? (int64_t)blockIdx.x * 4 + threadIdx.y : (int64_t)blockIdx.x;
    int runs = (int)(a.n / width);
    start_next();
    for (int run = (int)threadIdx.x * 8; run < runs; run += (int)blockDim.x * 8) { /* of 128 bytes each */
        if (a.weight != NULL) {
            prefetch_l2((const T *)a.weight + run * width);
        }
        if (a.bias != NULL) {
            prefetch_l2((const T *)a.bias + run * width);
        }
    }
    wait_for_previous();
    if (row >= a.rows) { /* whole warps of ONE_WARP only, which do not meet at a block's barriers */
        return;
    }
    const T *x = (const T *)a.x + row * a.n;
    const T *residual = a.residual == NULL ? NULL : (const T *)a.residual + row * a.n;
    const bool keep_weight = VECTORS <= 2; /* in registers, loaded along with x */
    uint4 weight[VECTORS];
    float v[VECTORS][vec16<T>::n];
    float total = 0.0f;
#pragma unroll
    for (int i = 0; i < VECTORS; i++) {
        int run = (int)threadIdx.x + i * (int)blockDim.x;
        if (run < runs) {
            load16(x + run * width, v[i]);
            if (keep_weight && a.weight != NULL) {
                weight[i] = *(const uint4 *)((const T *)a.weight + run * width);
            }
            if (residual != NULL) {
                float r[vec16<T>::n];
                load16(residual + run * width, r);
#pragma unroll
                for (int j = 0; j < width; j++) {
                    v[i][j] = to_float(from_float<T>(v[i][j] + r[j]));
                }
                store16((T *)a.sum + row * a.n + run * width, v[i]);
            }
        } else {
#pragma unroll
            for (int j = 0; j < width; j++) {
                v[i][j] = 0.0f;
            }
        }
#pragma unroll
        for (int j = 0; j < width; j++) {
            total += a.layer ? v[i][j] : v[i][j] * v[i][j];
        }
    }
    total = row_sum<ONE_WARP>(total, scratch);
    float mean = 0.0f;
    if (a.layer) {
        mean = total / (float)a.n;
        total = 0.0f;
#pragma unroll
        for (int i = 0; i < VECTORS; i++) {
            if ((int)threadIdx.x + i * (int)blockDim.x < runs) {
#pragma unroll
                for (int j = 0; j < width; j++) {
                    total += (v[i][j] - mean) * (v[i][j] - mean);
                }
            }
        }
        total = row_sum<ONE_WARP>(total, scratch);
    }
    float scale = 1.0f / sqrtf(total / (float)a.n + a.eps);
#pragma unroll
    for (int i = 0; i < VECTORS; i++) {
        int run = (int)threadIdx.x + i * (int)blockDim.x;
        if (run < runs) {
            float w[vec16<T>::n], b[vec16<T>::n];
            if (a.weight != NULL) {
                unpack16<T>(keep_weight ? weight[i] : *(const uint4 *)((const T *)a.weight + run * width), w);
            }
            if (a.bias != NULL) {
                load16((const T *)a.bias + run * width, b);
            }
#pragma unroll
            for (int j = 0; j < width; j++) {
                float y = (v[i][j] - mean) * scale;
                y = a.weight != NULL ? y * (w[j] + a.weight_offset) : y;
                v[i][j] = a.bias != NULL ? y + b[j] : y;
            }
            store16((T *)a.to + row * a.n + run * width, v[i]);
        }
    }
}

/* Element `i` of a row as it is normalised: with a residual the rounded sum. */
template <typename T> static __device__ __forceinline__ float row_element(const norm_args &a, int64_t at)
{
    float x = to_float(((const T *)a.x)[at]);
    if (a.residual != NULL) {
        x = to_float(from_float<T>(x + to_float(((const T *)a.residual)[at])));
    }
    return x;
}

/* Any length and alignment: 256 threads per row, which read the row two or three times, from cache after the first. */
template <typename T> static __global__ void __launch_bounds__(256) norm_rows_any(norm_args a)
{
    __shared__ float scratch[32];
    begin_overlapped();
    for (int64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
        float total = 0.0f, mean = 0.0f;
        for (int64_t i = threadIdx.x; i < a.n; i += blockDim.x) {
            float x = row_element<T>(a, row * a.n + i);
            if (a.residual != NULL) {
                ((T *)a.sum)[row * a.n + i] = from_float<T>(x);
            }
            total += a.layer ? x : x * x;
        }
        total = block_sum(total, scratch);
        if (a.layer) {
            mean = total / (float)a.n;
            total = 0.0f;
            for (int64_t i = threadIdx.x; i < a.n; i += blockDim.x) {
                float x = row_element<T>(a, row * a.n + i) - mean;
                total += x * x;
            }
            total = block_sum(total, scratch);
        }
        float scale = 1.0f / sqrtf(total / (float)a.n + a.eps);
        for (int64_t i = threadIdx.x; i < a.n; i += blockDim.x) {
            float y = (row_element<T>(a, row * a.n + i) - mean) * scale;
            if (a.weight != NULL) {
                y *= to_float(((const T *)a.weight)[i]) + a.weight_offset;
            }
            if (a.bias != NULL) {
                y += to_float(((const T *)a.bias)[i]);
            }
            ((T *)a.to)[row * a.n + i] = from_float<T>(y);
        }
    }
}

/* Sum over a block of 256 threads, given to all. */
static __device__ double block_sum_f64(double x, double *scratch)
{
    scratch[threadIdx.x] = x;
    __syncthreads();
    for (int half = 128; half > 0; half /= 2) {
        if ((int)threadIdx.x < half) {
            scratch[threadIdx.x] += scratch[threadIdx.x + half];
        }
        __syncthreads();
    }
    x = scratch[0];
    __syncthreads();
    return x;
}

static __global__ void __launch_bounds__(256) norm_rows_f64(norm_args a)
{
    __shared__ double scratch[256];
    begin_overlapped();
    for (int64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
        const double *x = (const double *)a.x + row * a.n;
        const double *weight = (const double *)a.weight, *bias = (const double *)a.bias;
        double *y = (double *)a.to + row * a.n;
        double total = 0.0, mean = 0.0;
        if (a.residual != NULL) {
            double *sum = (double *)a.sum + row * a.n;
            for (int64_t i = threadIdx.x; i < a.n; i += blockDim.x) {
                sum[i] = x[i] + ((const double *)a.residual)[row * a.n + i];
            }
            x = sum; /* each thread reads what it wrote */
        }
        if (a.layer) {
            for (int64_t i = threadIdx.x; i < a.n; i += blockDim.x) {
                total += x[i];
            }
            mean = block_sum_f64(total, scratch) / (double)a.n;
        }
        total = 0.0;
        for (int64_t i = threadIdx.x; i < a.n; i += blockDim.x) {
            total += (x[i] - mean) * (x[i] - mean);
        }
        double scale = 1.0 / sqrt(block_sum_f64(total, scratch) / (double)a.n + (double)a.eps);
        for (int64_t i = threadIdx.x; i < a.n; i += blockDim.x) {
            double w = weight != NULL ? weight[i] + (double)a.weight_offset : 1.0;
            y[i] = (x[i] - mean) * scale * w + (bias != NULL ? bias[i] : 0.0);
        }
    }
}

template <typename T> static void launch_norm(const norm_args *a, cudaStream_t stream)
{
    const int width = vec16<T>::n;
    uintptr_t addresses = (uintptr_t)a->x | (uintptr_t)a->residual | (uintptr_t)a->weight | (uintptr_t)a->bias |
                          (uintptr_t)a->to | (uintptr_t)a->sum;
    int64_t runs = a->n / width;
    bool vectors = a->n % width == 0 && addresses % 16 == 0 && runs <= 4096 && a->rows <= INT32_MAX;
    if (!vectors) {
        launch_overlapped(norm_rows_any<T>, (unsigned)(a->rows < 65536 ? a->rows : 65536), 256, 0, stream, *a);
    } else if (runs <= 32) {
        launch_overlapped(norm_rows<T, 1, true>, (unsigned)((a->rows + 3) / 4), dim3(32, 4), 0, stream, *a);
    } else if (runs <= 1024) {
        launch_overlapped(norm_rows<T, 1, false>, (unsigned)a->rows, (unsigned)((runs + 31) / 32 * 32), 0, stream, *a);
    } else if (runs <= 2048) {
        launch_overlapped(norm_rows<T, 2, false>, (unsigned)a->rows, 1024, 0, stream, *a);
    } else {
        launch_overlapped(norm_rows<T, 4, false>, (unsigned)a->rows, 1024, 0, stream, *a);
    }
}

bool trm_cuda_norm_accepts(const trm_kernel_call *call)
{
    trm_dtype dtype = call->inputs[0].dtype;
    for (int32_t i = 0; i < call->n_inputs; i++) {
        if (call->inputs[i].dtype != dtype && call->inputs[i].dtype != TRM_DTYPE_NONE) {
            return false;
        }
    }
    return (is_half_or_float(dtype) || dtype == TRM_F64) && call->inputs[0].dims.n > 0 &&
           call->outputs[0].dtype == dtype;
}

trm_status trm_cuda_norm_run(const trm_kernel_call *call)
{
    const trm_norm_params *norm = &call->layer->norm;
    const trm_view *x = &call->inputs[0];
    int64_t count = trm_dims_count(&x->dims);
    if (count == 0) {
        return TRM_OK;
    }
    int32_t weight = norm->residual ? 2 : 1;
    bool layer = norm->op == TRM_NORM_LAYER;
    norm_args a = {};
    a.x = x->data;
    a.residual = norm->residual ? call->inputs[1].data : NULL;
    a.weight = call->n_inputs > weight ? call->inputs[weight].data : NULL;
    a.bias = layer && call->n_inputs > weight + 1 ? call->inputs[weight + 1].data : NULL;
    a.to = call->outputs[0].data;
    a.sum = norm->residual ? call->outputs[1].data : NULL;
    a.n = x->dims.d[x->dims.n - 1];
    a.rows = count / a.n;
    a.eps = norm->eps;
    a.weight_offset = norm->weight_offset;
    a.layer = layer;
    cudaStream_t stream = trm_cuda_stream(call->stream);
    if (x->dtype == TRM_F64) {
        launch_overlapped(norm_rows_f64, (unsigned)(a.rows < 65536 ? a.rows : 65536), 256, 0, stream, a);
        return trm_cuda_launched("cuda.norm");
    }
    DISPATCH_FLOAT(x->dtype, launch_norm<T>(&a, stream));
    return trm_cuda_launched("cuda.norm");
}
