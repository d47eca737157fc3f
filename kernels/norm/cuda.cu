/*
 * RMS and layer norm over the last axis, alone or with the residual addition before it, and RMS norms that are
 * quantized for a product. Bound by device memory: each row is read once, kept in registers, written once (twice with
 * the residual: the sum and its norm).
 */
#include <cfloat>

#include "kernels/cuda/common.cuh"
#include "kernels/dequant/cuda_quantize.cuh"
#include "kernels/kernel_list.h"
#include "kernels/norm/cuda.h"

typedef struct norm_args {
    const void *x, *residual, *weight, *bias; /* all but x may be NULL */
    const void *parts[TRM_NORM_PARTS];        /* whose rounded sum x is, where there are any */
    int n_parts;
    void *to, *sum;  /* NULL where nothing reads them; sum: with residual */
    int8_t *numbers; /* or NULL: the rounded norm in units of number_scale */
    float number_scale, number_inverse;
    int64_t rows, n;
    float eps, weight_offset;
    bool layer;
} norm_args;

#define WARP_ROWS 4 /* rows of a block of norm_by_warps */

/* Weight and bias on their way into L2, by `threads` threads of which this is number `thread`, of the first block
 * alone: when thousands of blocks ask for the same lines, they wait for each other ([8192, 768] f16: 31 us, not 14). */
template <typename T>
static __device__ __forceinline__ void prefetch_weights(const norm_args &a, int thread, int threads)
{
    const int width = vec16<T>::n, runs = (int)(a.n / width);
    for (int run = thread * 8; blockIdx.x == 0 && run < runs; run += threads * 8) { /* of 128 bytes each */
        if (a.weight != NULL) {
            prefetch_l2((const T *)a.weight + run * width);
        }
        if (a.bias != NULL) {
            prefetch_l2((const T *)a.bias + run * width);
        }
    }
}

/* The sum of a run of all parts, in their order, in f32 and rounded. */
template <typename T> static __device__ __forceinline__ uint4 sum_parts(const norm_args &a, int64_t run)
{
    const int width = vec16<T>::n;
    uint4 raw[TRM_NORM_PARTS];
    float sum[width], v[width];
#pragma unroll
    for (int p = 0; p < TRM_NORM_PARTS; p++) {
        raw[p] = p < a.n_parts ? ((const uint4 *)a.parts[p])[run] : make_uint4(0, 0, 0, 0);
    }
    unpack16<T>(raw[0], sum);
#pragma unroll
    for (int p = 1; p < TRM_NORM_PARTS; p++) {
        unpack16<T>(raw[p], v);
#pragma unroll
        for (int j = 0; j < width; j++) {
            sum[j] = p < a.n_parts ? sum[j] + v[j] : sum[j];
        }
    }
    return pack16<T>(sum);
}

/* What a thread has of a row, VECTORS runs of 16 bytes that are `step` apart from `first` on: its values as they are
 * normalized, read, added to the residual, which is stored, and the sum of them or of their squares. All loads come
 * before the first store, which the compiler must take for one to the same memory. */
template <typename T, int VECTORS, bool PARTS>
static __device__ __forceinline__ float load_row(const norm_args &a, int64_t row, int first, int step,
                                                 float (&v)[VECTORS][vec16<T>::n])
{
    const int width = vec16<T>::n, runs = (int)(a.n / width);
    const uint4 *x = PARTS ? NULL : (const uint4 *)((const T *)a.x + row * a.n);
    const uint4 *residual = a.residual == NULL ? NULL : (const uint4 *)((const T *)a.residual + row * a.n);
    uint4 own[VECTORS], added[VECTORS];
    float total = 0.0f;
#pragma unroll
    for (int i = 0; i < VECTORS; i++) {
        const int run = first + i * step;
        own[i] = run >= runs ? make_uint4(0, 0, 0, 0) : PARTS ? sum_parts<T>(a, row * runs + run) : x[run];
        added[i] = residual != NULL && run < runs ? residual[run] : make_uint4(0, 0, 0, 0);
    }
#pragma unroll
    for (int i = 0; i < VECTORS; i++) {
        unpack16<T>(own[i], v[i]);
        if (residual != NULL) {
            float r[width];
            unpack16<T>(added[i], r);
#pragma unroll
            for (int j = 0; j < width; j++) {
                v[i][j] = to_float(from_float<T>(v[i][j] + r[j]));
            }
        }
#pragma unroll
        for (int j = 0; j < width; j++) {
            total += a.layer ? v[i][j] : v[i][j] * v[i][j];
        }
    }
#pragma unroll
    for (int i = 0; i < VECTORS; i++) {
        const int run = first + i * step;
        if (a.sum != NULL && run < runs) {
            store16((T *)a.sum + row * a.n + run * width, v[i]);
        }
    }
    return total;
}

/* This thread's part of the sum of squares around the mean. */
template <typename T, int VECTORS>
static __device__ __forceinline__ float squares_of(const norm_args &a, int first, int step, float mean,
                                                   const float (&v)[VECTORS][vec16<T>::n])
{
    const int width = vec16<T>::n, runs = (int)(a.n / width);
    float total = 0.0f;
#pragma unroll
    for (int i = 0; i < VECTORS; i++) {
#pragma unroll
        for (int j = 0; j < width; j++) {
            const float x = first + i * step < runs ? v[i][j] - mean : 0.0f;
            total += x * x;
        }
    }
    return total;
}

template <typename T>
static __device__ __forceinline__ void normalize_run(const norm_args &a, float mean, float scale,
                                                     float (&v)[vec16<T>::n], uint4 weight, uint4 bias)
{
    const int width = vec16<T>::n;
    float w[width], b[width];
    unpack16<T>(weight, w);
    unpack16<T>(bias, b);
#pragma unroll
    for (int j = 0; j < width; j++) {
        float y = (v[j] - mean) * scale;
        y = a.weight != NULL ? y * (w[j] + a.weight_offset) : y;
        v[j] = a.bias != NULL ? y + b[j] : y;
    }
}

/* As QUANTIZE does it, in the low byte; NaN becomes 0. */
static __device__ __forceinline__ uint32_t number_of(const norm_args &a, float v)
{
    return (uint32_t)min(max(__float2int_rn(divide_by(v, a.number_scale, a.number_inverse)), -128), 127) & 0xff;
}

template <typename T>
static __device__ __forceinline__ void store_run(const norm_args &a, int64_t row, int run, float mean, float scale,
                                                 float (&v)[vec16<T>::n], uint4 weight, uint4 bias)
{
    const int width = vec16<T>::n;
    const int64_t at = row * a.n + run * width;
    normalize_run<T>(a, mean, scale, v, weight, bias);
    if (a.to != NULL) {
        store16((T *)a.to + at, v);
    }
    if (a.numbers != NULL) {
        uint32_t words[width / 4] = {};
#pragma unroll
        for (int j = 0; j < width; j++) {
            words[j / 4] |= number_of(a, to_float(from_float<T>(v[j]))) << j % 4 * 8;
        }
#pragma unroll
        for (int j = 0; j < width / 4; j++) {
            ((uint32_t *)(a.numbers + at))[j] = words[j];
        }
    }
}

static __device__ __forceinline__ uint4 load_run(const void *from, int run)
{
    return from != NULL ? ((const uint4 *)from)[run] : make_uint4(0, 0, 0, 0);
}

/*
 * Rows of n elements, n a multiple of vec16<T>::n, everything aligned to 16 bytes: a row per warp, VECTORS runs of 16
 * bytes per lane in registers. No barriers, so that rows do not wait for each other. [8192, 768] f16 with residual:
 * 14.0 us on an H200, 50 MB and 79 % of its memory's 4.55 TB/s (a block per row: 22.2), [128, 768] 1.6 us (2.1).
 */
template <typename T, int VECTORS, bool PARTS>
static __global__ void __launch_bounds__(32 * WARP_ROWS) norm_by_warps(norm_args a)
{
    const int lane = threadIdx.x & 31, runs = (int)(a.n / vec16<T>::n);
    const int64_t row = (int64_t)blockIdx.x * WARP_ROWS + (threadIdx.x >> 5);
    start_next();
    prefetch_weights<T>(a, lane, 32);
    wait_for_previous();
    if (row >= a.rows) {
        return;
    }
    float v[VECTORS][vec16<T>::n];
    uint4 weight[VECTORS], bias[VECTORS];
    float total = load_row<T, VECTORS, PARTS>(a, row, lane, 32, v);
#pragma unroll
    for (int i = 0; i < VECTORS; i++) { /* on their way while the row is summed up */
        const int run = lane + i * 32;
        weight[i] = load_run(run < runs ? a.weight : NULL, run);
        bias[i] = load_run(run < runs ? a.bias : NULL, run);
    }
    total = warp_sum(total);
    float mean = 0.0f;
    if (a.layer) {
        mean = total / (float)a.n;
        total = warp_sum(squares_of<T, VECTORS>(a, lane, 32, mean, v));
    }
    const float scale = 1.0f / sqrtf(total / (float)a.n + a.eps);
#pragma unroll
    for (int i = 0; i < VECTORS; i++) {
        if (lane + i * 32 < runs) {
            store_run<T>(a, row, lane + i * 32, mean, scale, v[i], weight[i], bias[i]);
        }
    }
}

/* The same with a row per block of up to 1024 threads; 128 bytes of shared memory for the reductions. */
template <typename T, int VECTORS, bool PARTS>
static __global__ void __launch_bounds__(1024) norm_by_blocks(norm_args a)
{
    __shared__ float scratch[32];
    const bool keep = VECTORS <= 2; /* weights in registers, loaded along with x */
    const int runs = (int)(a.n / vec16<T>::n), first = (int)threadIdx.x, step = (int)blockDim.x;
    const int64_t row = (int64_t)blockIdx.x;
    start_next();
    prefetch_weights<T>(a, first, step);
    wait_for_previous();
    float v[VECTORS][vec16<T>::n];
    uint4 weight[VECTORS];
    float total = load_row<T, VECTORS, PARTS>(a, row, first, step, v);
#pragma unroll
    for (int i = 0; keep && i < VECTORS; i++) {
        weight[i] = load_run(first + i * step < runs ? a.weight : NULL, first + i * step);
    }
    total = block_sum(total, scratch);
    float mean = 0.0f;
    if (a.layer) {
        mean = total / (float)a.n;
        total = block_sum(squares_of<T, VECTORS>(a, first, step, mean, v), scratch);
    }
    const float scale = 1.0f / sqrtf(total / (float)a.n + a.eps);
#pragma unroll
    for (int i = 0; i < VECTORS; i++) {
        const int run = first + i * step;
        if (run < runs) {
            store_run<T>(a, row, run, mean, scale, v[i], keep ? weight[i] : load_run(a.weight, run),
                         load_run(a.bias, run));
        }
    }
}

/* RMS norms of rows in the same way, rounded to T and quantized: 2 bytes of an element are read, 4 with a residual,
 * and 1 is written, 3 with a sum. */
template <typename T, int VECTORS, bool GROUPS>
static __global__ void __launch_bounds__(1024) norm_quantized(norm_args a, trm_quantized_rows q)
{
    __shared__ float scratch[32];
    const int runs = (int)(a.n / 8), first = (int)threadIdx.x, step = (int)blockDim.x;
    const int64_t row = (int64_t)blockIdx.x;
    start_next();
    prefetch_weights<T>(a, first, step);
    wait_for_previous();
    float v[VECTORS][8];
    uint4 weight[VECTORS];
    float total = load_row<T, VECTORS, false>(a, row, first, step, v);
#pragma unroll
    for (int i = 0; i < VECTORS; i++) {
        weight[i] = load_run(first + i * step < runs ? a.weight : NULL, first + i * step);
    }
    total = block_sum(total, scratch);
    const float scale = 1.0f / sqrtf(total / (float)a.n + a.eps);
#pragma unroll
    for (int i = 0; i < VECTORS; i++) { /* zeros behind the row's end stay */
        normalize_run<T>(a, 0.0f, scale, v[i], weight[i], make_uint4(0, 0, 0, 0));
#pragma unroll
        for (int j = 0; j < 8; j++) {
            v[i][j] = to_float(from_float<T>(v[i][j]));
        }
    }
    quantize_row<VECTORS, GROUPS>(q, row, v, scratch);
}

/* Element `i` of a row as it is normalized: with a residual the rounded sum. */
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
            if (a.sum != NULL) {
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
            if (a.to != NULL) {
                ((T *)a.to)[row * a.n + i] = from_float<T>(y);
            }
            if (a.numbers != NULL) {
                a.numbers[row * a.n + i] = (int8_t)number_of(a, to_float(from_float<T>(y)));
            }
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

/* EIGHTS: of elements, per lane. */
template <typename T, int EIGHTS, bool PARTS> static void launch_by_warps(const norm_args *a, cudaStream_t stream)
{
    launch_overlapped(norm_by_warps<T, EIGHTS * 8 / vec16<T>::n, PARTS>,
                      (unsigned)((a->rows + WARP_ROWS - 1) / WARP_ROWS), 32 * WARP_ROWS, 0, stream, *a);
}

/* Rows of whole runs of 16 bytes that are aligned to them. */
template <typename T> static bool has_vectors(const norm_args *a)
{
    uintptr_t addresses = (uintptr_t)a->x | (uintptr_t)a->residual | (uintptr_t)a->weight | (uintptr_t)a->bias |
                          (uintptr_t)a->to | (uintptr_t)a->sum | (uintptr_t)a->numbers;
    for (int p = 0; p < a->n_parts; p++) {
        addresses |= (uintptr_t)a->parts[p];
    }
    return a->n % vec16<T>::n == 0 && addresses % 16 == 0 && a->n / vec16<T>::n <= 4096 && a->rows <= INT32_MAX;
}

template <typename T, bool PARTS> static void launch_vectors(const norm_args *a, cudaStream_t stream)
{
    const int64_t runs = a->n / vec16<T>::n;
    if (a->n <= 1024) {
        switch ((a->n + 255) / 256) {
        case 1:
            launch_by_warps<T, 1, PARTS>(a, stream);
            break;
        case 2:
            launch_by_warps<T, 2, PARTS>(a, stream);
            break;
        case 3:
            launch_by_warps<T, 3, PARTS>(a, stream);
            break;
        default:
            launch_by_warps<T, 4, PARTS>(a, stream);
        }
    } else if (runs <= 1024) {
        launch_overlapped(norm_by_blocks<T, 1, PARTS>, (unsigned)a->rows, (unsigned)((runs + 31) / 32 * 32), 0, stream,
                          *a);
    } else if (runs <= 2048) {
        launch_overlapped(norm_by_blocks<T, 2, PARTS>, (unsigned)a->rows, 1024, 0, stream, *a);
    } else {
        launch_overlapped(norm_by_blocks<T, 4, PARTS>, (unsigned)a->rows, 1024, 0, stream, *a);
    }
}

template <typename T> static void launch_norm(const norm_args *a, cudaStream_t stream)
{
    if (has_vectors<T>(a)) {
        launch_vectors<T, false>(a, stream);
    } else {
        launch_overlapped(norm_rows_any<T>, (unsigned)(a->rows < 65536 ? a->rows : 65536), 256, 0, stream, *a);
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

/* Of a call with elements. */
static norm_args args_of(const trm_kernel_call *call)
{
    const trm_norm_params *norm = &call->layer->norm;
    const trm_view *x = &call->inputs[0];
    int32_t weight = norm->residual ? 2 : 1;
    bool layer = norm->op == TRM_NORM_LAYER;
    norm_args a = {};
    a.x = x->data;
    a.residual = norm->residual ? call->inputs[1].data : NULL;
    a.weight = call->n_inputs > weight ? call->inputs[weight].data : NULL;
    a.bias = layer && call->n_inputs > weight + 1 ? call->inputs[weight + 1].data : NULL;
    a.to = call->outputs[0].data;
    /* In f64 the sum is read again. */
    const bool unread = norm->residual && (call->unread >> 1 & 1) != 0 && x->dtype != TRM_F64;
    a.sum = norm->residual && !unread ? call->outputs[1].data : NULL;
    a.n = x->dims.d[x->dims.n - 1];
    a.rows = trm_dims_count(&x->dims) / a.n;
    a.eps = norm->eps;
    a.weight_offset = norm->weight_offset;
    a.layer = layer;
    return a;
}

trm_status trm_cuda_norm_run(const trm_kernel_call *call)
{
    const trm_view *x = &call->inputs[0];
    if (trm_dims_count(&x->dims) == 0) {
        return TRM_OK;
    }
    norm_args a = args_of(call);
    cudaStream_t stream = trm_cuda_stream(call->stream);
    if (x->dtype == TRM_F64) {
        launch_overlapped(norm_rows_f64, (unsigned)(a.rows < 65536 ? a.rows : 65536), 256, 0, stream, a);
        return trm_cuda_launched("cuda.norm");
    }
    DISPATCH_FLOAT(x->dtype, launch_norm<T>(&a, stream));
    return trm_cuda_launched("cuda.norm");
}

bool trm_cuda_norm_quantize_accepts(const trm_kernel_call *call)
{
    return is_half_or_float(call->inputs[0].dtype) && trm_cuda_norm_accepts(call) && call->n_outputs > 1 &&
           call->outputs[call->n_outputs - 1].dtype == TRM_I8 && call->layer->norm_quantize.scale >= FLT_MIN;
}

trm_status trm_cuda_norm_quantize_run(const trm_kernel_call *call)
{
    const trm_view *x = &call->inputs[0];
    if (trm_dims_count(&x->dims) == 0) {
        return TRM_OK;
    }
    norm_args a = args_of(call); /* the layer begins with the norm's parameters */
    a.to = (call->unread & 1) != 0 ? NULL : a.to;
    a.numbers = (int8_t *)call->outputs[call->n_outputs - 1].data;
    a.number_scale = call->layer->norm_quantize.scale;
    a.number_inverse = 1.0f / a.number_scale;
    DISPATCH_FLOAT(x->dtype, launch_norm<T>(&a, trm_cuda_stream(call->stream)));
    return trm_cuda_launched("cuda.norm_quantize");
}

trm_status trm_cuda_norm_of_parts(const trm_norm_of_parts *n, const trm_norm_params *norm, void *cuda_stream)
{
    norm_args a = {};
    for (int p = 0; p < n->n_parts; p++) {
        a.parts[p] = n->parts[p];
    }
    a.n_parts = n->n_parts;
    a.residual = n->residual;
    a.weight = n->weight;
    a.bias = n->bias;
    a.to = n->to;
    a.sum = n->sum;
    a.n = n->width;
    a.rows = n->rows;
    a.eps = norm->eps;
    a.weight_offset = norm->weight_offset;
    a.layer = norm->op == TRM_NORM_LAYER;
    bool fits = false;
    if (n->n_parts >= 1 && n->n_parts <= TRM_NORM_PARTS && is_half_or_float(n->dtype)) {
        DISPATCH_FLOAT(n->dtype, fits = has_vectors<T>(&a));
    }
    if (!fits) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "the norm of %d parts of %lld rows of %lld %s, expected up to %d in runs of 16 bytes", (int)n->n_parts,
                 (long long)n->rows, (long long)n->width, trm_dtype_name(n->dtype), TRM_NORM_PARTS);
    }
    if (n->rows > 0) {
        DISPATCH_FLOAT(n->dtype, (launch_vectors<T, true>(&a, (cudaStream_t)cuda_stream)));
    }
    return trm_cuda_launched("cuda.norm of parts");
}

bool trm_cuda_norm_quantized_accepts(const trm_kernel_call *call)
{
    const trm_dtype dtype = call->inputs[0].dtype;
    if ((dtype != TRM_F16 && dtype != TRM_BF16) || trm_dims_count(&call->inputs[0].dims) == 0) {
        return false;
    }
    const norm_args a = args_of(call);
    return !a.layer && has_vectors<__half>(&a);
}

template <typename T, int VECTORS>
static void launch_quantized(const norm_args *a, const trm_quantized_rows *q, cudaStream_t stream)
{
    const int64_t runs = a->n / 8;
    const unsigned threads = runs > 1024 ? 1024 : (unsigned)((runs + 31) / 32 * 32);
    if (q->group < q->k) {
        launch_overlapped(norm_quantized<T, VECTORS, true>, (unsigned)a->rows, threads, 0, stream, *a, *q);
    } else {
        launch_overlapped(norm_quantized<T, VECTORS, false>, (unsigned)a->rows, threads, 0, stream, *a, *q);
    }
}

template <typename T>
static void launch_quantized_for(const norm_args *a, const trm_quantized_rows *q, cudaStream_t stream)
{
    if (a->n <= 1024 * 8) {
        launch_quantized<T, 1>(a, q, stream);
    } else if (a->n <= 2048 * 8) {
        launch_quantized<T, 2>(a, q, stream);
    } else {
        launch_quantized<T, 4>(a, q, stream);
    }
}

trm_status trm_cuda_norm_quantized(const trm_kernel_call *call, const trm_quantized_rows *to, void *cuda_stream)
{
    const norm_args a = args_of(call);
    if (call->inputs[0].dtype == TRM_F16) {
        launch_quantized_for<__half>(&a, to, (cudaStream_t)cuda_stream);
    } else {
        launch_quantized_for<__nv_bfloat16>(&a, to, (cudaStream_t)cuda_stream);
    }
    return trm_cuda_launched("cuda.norm quantized");
}
