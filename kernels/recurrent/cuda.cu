/*
 * Recurrent layers: the product of the whole input with its weight by the library where it can, then a launch per step
 * (two for a GRU whose reset comes before the product), each a warp per unit and entry of the batch. Bound by launches
 * and by reading the recurrent weight from L2 at every step.
 */
#include "kernels/cuda/common.cuh"
#include "kernels/matmul/cuda_cublaslt.h"
#include "kernels/kernel_list.h"
#include "kernels/recurrent/element.h"

#define LIBRARY_WORKSPACE ((size_t)32 << 20)
#define THREADS           256

/* States between steps, in R: f32, or f64 for f64. h is read from one half and written to the other. */
template <typename R> struct recurrent_memory {
    R *input; /* [directions, steps, batch, rows] */
    R *h[2];  /* [directions, batch, hidden] */
    R *c;     /* like h */
    R *reset; /* GRU: r * h */
    R *z;     /* GRU */
};

template <typename R> static __device__ __forceinline__ R load_real(trm_dtype dtype, const void *data, int64_t i);
template <> __device__ __forceinline__ float load_real<float>(trm_dtype dtype, const void *data, int64_t i)
{
    return trm_element_load_f32(dtype, data, i);
}
template <> __device__ __forceinline__ double load_real<double>(trm_dtype dtype, const void *data, int64_t i)
{
    return trm_element_load_f64(dtype, data, i);
}

template <typename R> static __device__ __forceinline__ R sum_of_warp(R x)
{
    for (int offset = 16; offset > 0; offset /= 2) {
        x += __shfl_xor_sync(0xffffffffu, x, offset);
    }
    return x;
}

/* The warp's number, and how many there are. */
static __device__ __forceinline__ int64_t global_warp(void)
{
    return global_thread() / 32;
}
static __device__ __forceinline__ int64_t global_warps(void)
{
    return global_threads() / 32;
}

template <typename R>
static __global__ void __launch_bounds__(THREADS)
    start_states(const trm_recurrent_args args, const recurrent_memory<R> memory, int64_t count)
{
    begin_overlapped();
    for (int64_t i = global_thread(); i < count; i += global_threads()) {
        memory.h[0][i] = args.first_h != NULL ? load_real<R>(args.dtype, args.first_h, i) : (R)0;
        memory.c[i] = args.first_c != NULL ? load_real<R>(args.dtype, args.first_c, i) : (R)0;
    }
}

/* input[d, row, n] = x[row] . w[d, n]: where the library has no product. A warp each. */
template <typename R>
static __global__ void __launch_bounds__(THREADS)
    multiply_input(const trm_recurrent_args args, R *input, int64_t rows, int64_t count)
{
    begin_overlapped();
    const int64_t places = args.steps * args.batch;
    for (int64_t i = global_warp(); i < count; i += global_warps()) {
        const int64_t n = i % rows, row = i / rows % places, d = i / rows / places;
        R sum = 0;
        for (int64_t k = threadIdx.x & 31; k < args.in; k += 32) {
            sum += load_real<R>(args.dtype, args.x, row * args.in + k) *
                   load_real<R>(args.dtype, args.w, (d * rows + n) * args.in + k);
        }
        sum = sum_of_warp(sum);
        if ((threadIdx.x & 31) == 0) {
            input[i] = sum;
        }
    }
}

/* h . r[row], by the warp. */
template <typename R>
static __device__ __forceinline__ R state_product(const trm_recurrent_args &args, const R *h, int64_t row)
{
    R sum = 0;
    for (int64_t k = threadIdx.x & 31; k < args.hidden; k += 32) {
        sum += h[k] * load_real<R>(args.dtype, args.r, row * args.hidden + k);
    }
    return sum_of_warp(sum);
}

/* Gates 0 and 1 of a GRU: z, and r * h. */
template <typename R>
static __global__ void __launch_bounds__(THREADS)
    step_reset(const trm_recurrent_args args, const recurrent_memory<R> memory, int64_t s, int64_t count)
{
    begin_overlapped();
    const int64_t n = args.hidden, rows = 3 * n;
    const R *old = memory.h[s & 1];
    for (int64_t i = global_warp(); i < count; i += global_warps()) {
        const int64_t j = i % n, entry = i / n, b = entry % args.batch, d = entry / args.batch;
        const int64_t length = trm_recurrent_length(&args, b);
        if (s >= length) {
            continue;
        }
        const int64_t t = trm_recurrent_place(&args, d, length, s);
        const R *input = memory.input + ((d * args.steps + t) * args.batch + b) * rows;
        const R z = state_product<R>(args, old + entry * n, d * rows + j);
        const R r = state_product<R>(args, old + entry * n, d * rows + n + j);
        if ((threadIdx.x & 31) == 0) {
            memory.z[i] = (R)trm_recurrent_activate(
                &args, d, 0, (double)(input[j] + z) + trm_recurrent_bias(&args, d, j, true, true));
            memory.reset[i] =
                old[i] * (R)trm_recurrent_activate(
                             &args, d, 0, (double)(input[n + j] + r) + trm_recurrent_bias(&args, d, n + j, true, true));
        }
    }
}

/* The new h of unit j of a GRU; lane 0's counts. */
template <typename R>
static __device__ double step_gru(const trm_recurrent_args &args, const recurrent_memory<R> &memory, const R *old,
                                  const R *input, int64_t d, int64_t entry, int64_t j)
{
    const int64_t n = args.hidden, rows = 3 * n, i = entry * n + j;
    const double own = (double)input[2 * n + j] + trm_recurrent_bias(&args, d, 2 * n + j, true, false);
    const double bias = trm_recurrent_bias(&args, d, 2 * n + j, false, true);
    double z, sum;
    if (args.p.linear_before_reset) {
        const R of_z = state_product<R>(args, old + entry * n, d * rows + j);
        const R of_r = state_product<R>(args, old + entry * n, d * rows + n + j);
        const R of_h = state_product<R>(args, old + entry * n, d * rows + 2 * n + j);
        z = trm_recurrent_activate(&args, d, 0,
                                   (double)(input[j] + of_z) + trm_recurrent_bias(&args, d, j, true, true));
        const double r = trm_recurrent_activate(
            &args, d, 0, (double)(input[n + j] + of_r) + trm_recurrent_bias(&args, d, n + j, true, true));
        sum = own + r * ((double)of_h + bias);
    } else {
        z = (double)memory.z[i];
        sum = own + (double)state_product<R>(args, memory.reset + entry * n, d * rows + 2 * n + j) + bias;
    }
    return (1.0 - z) * trm_recurrent_activate(&args, d, 1, sum) + z * (double)old[i];
}

template <typename R>
static __global__ void __launch_bounds__(THREADS)
    step_units(const trm_recurrent_args args, const recurrent_memory<R> memory, int64_t s, int64_t count)
{
    begin_overlapped();
    const int64_t n = args.hidden, rows = args.gates * n;
    const R *old = memory.h[s & 1];
    R *next = memory.h[(s + 1) & 1];
    const bool first_lane = (threadIdx.x & 31) == 0;
    for (int64_t i = global_warp(); i < count; i += global_warps()) {
        const int64_t j = i % n, entry = i / n, b = entry % args.batch, d = entry / args.batch;
        const int64_t length = trm_recurrent_length(&args, b);
        if (s >= length) { /* the state stays, and the output there is 0 */
            if (first_lane) {
                next[i] = old[i];
                trm_element_store_f64(args.dtype, args.y, ((s * args.directions + d) * args.batch + b) * n + j, 0.0);
            }
            continue;
        }
        const int64_t t = trm_recurrent_place(&args, d, length, s);
        const R *input = memory.input + ((d * args.steps + t) * args.batch + b) * rows;
        double h, c = (double)memory.c[i];
        if (args.p.cell == TRM_RECURRENT_GRU) {
            h = step_gru<R>(args, memory, old, input, d, entry, j);
        } else {
            double sums[4];
            for (int g = 0; g < (int)args.gates; g++) {
                const R sum = state_product<R>(args, old + entry * n, d * rows + g * n + j);
                sums[g] = (double)(input[g * n + j] + sum) + trm_recurrent_bias(&args, d, g * n + j, true, true);
            }
            h = args.p.cell == TRM_RECURRENT_RNN ? trm_recurrent_activate(&args, d, 0, sums[0])
                                                 : trm_recurrent_lstm(&args, d, j, sums, &c);
        }
        if (first_lane) {
            next[i] = (R)h;
            memory.c[i] = (R)c;
            trm_element_store_f64(args.dtype, args.y, ((t * args.directions + d) * args.batch + b) * n + j, h);
        }
    }
}

template <typename R>
static __global__ void __launch_bounds__(THREADS)
    store_states(const trm_recurrent_args args, const recurrent_memory<R> memory, int64_t count)
{
    begin_overlapped();
    for (int64_t i = global_thread(); i < count; i += global_threads()) {
        trm_element_store_f64(args.dtype, args.last_h, i, (double)memory.h[args.steps & 1][i]);
        if (args.last_c != NULL) {
            trm_element_store_f64(args.dtype, args.last_c, i, (double)memory.c[i]);
        }
    }
}

bool trm_cuda_recurrent_accepts(const trm_kernel_call *call)
{
    trm_recurrent_args args;
    return trm_recurrent_args_of(call, &args);
}

size_t trm_cuda_recurrent_workspace(const trm_kernel_call *call)
{
    trm_recurrent_args a;
    if (!trm_recurrent_args_of(call, &a)) {
        return 0;
    }
    const int64_t each = a.directions * a.batch;
    return LIBRARY_WORKSPACE + (a.dtype == TRM_F64 ? sizeof(double) : sizeof(float)) *
                                   (size_t)(a.steps * each * a.gates * a.hidden + 5 * each * a.hidden);
}

/* The input's part of every gate: a product for each direction. */
template <typename R>
static trm_status enqueue_input(const trm_recurrent_args *args, void *library, R *input, cudaStream_t stream)
{
    const int64_t rows = args->gates * args->hidden, places = args->steps * args->batch;
    const int64_t count = args->directions * places * rows;
    bool done = args->dtype != TRM_F64 && args->in > 0;
    for (int64_t d = 0; done && d < args->directions; d++) {
        trm_gemm gemm = {};
        gemm.m = places;
        gemm.n = rows;
        gemm.k = args->in;
        gemm.batch = 1;
        gemm.row_a = args->in;
        gemm.transpose_b = true;
        gemm.in = args->dtype;
        gemm.out = TRM_F32;
        gemm.a = args->x;
        gemm.b = (const char *)args->w + (size_t)(d * rows * args->in) * trm_dtype_size(args->dtype);
        gemm.c = input + d * places * rows;
        trm_status status = trm_cublaslt_run(&gemm, library, LIBRARY_WORKSPACE, stream);
        if (status != TRM_OK && status != TRM_ERROR_UNSUPPORTED) {
            return status;
        }
        done = status == TRM_OK;
    }
    if (!done) {
        launch_overlapped(multiply_input<R>, grid_for(count * 32, THREADS), THREADS, 0, stream, *args, input, rows,
                          count);
    }
    return TRM_OK;
}

template <typename R> static trm_status enqueue(const trm_kernel_call *call, const trm_recurrent_args &args)
{
    cudaStream_t stream = trm_cuda_stream(call->stream);
    const int64_t units = args.directions * args.batch * args.hidden;
    recurrent_memory<R> memory;
    memory.input = (R *)((char *)call->workspace + LIBRARY_WORKSPACE);
    memory.h[0] = memory.input + args.steps * units * args.gates;
    memory.h[1] = memory.h[0] + units;
    memory.c = memory.h[1] + units;
    memory.reset = memory.c + units;
    memory.z = memory.reset + units;
    launch_overlapped(start_states<R>, grid_for(units, THREADS), THREADS, 0, stream, args, memory, units);
    if (args.steps > 0) {
        TRM_TRY(enqueue_input<R>(&args, call->workspace, memory.input, stream));
    }
    const bool reset_first = args.p.cell == TRM_RECURRENT_GRU && !args.p.linear_before_reset;
    for (int64_t s = 0; s < args.steps; s++) {
        if (reset_first) {
            launch_overlapped(step_reset<R>, grid_for(units * 32, THREADS), THREADS, 0, stream, args, memory, s, units);
        }
        launch_overlapped(step_units<R>, grid_for(units * 32, THREADS), THREADS, 0, stream, args, memory, s, units);
    }
    launch_overlapped(store_states<R>, grid_for(units, THREADS), THREADS, 0, stream, args, memory, units);
    return trm_cuda_launched("cuda.recurrent");
}

trm_status trm_cuda_recurrent_run(const trm_kernel_call *call)
{
    trm_recurrent_args args;
    if (!trm_recurrent_args_of(call, &args) || args.batch == 0) {
        return TRM_OK;
    }
    return args.dtype == TRM_F64 ? enqueue<double>(call, args) : enqueue<float>(call, args);
}
