/*
 * Unary operations and gated activations, element by element. Bound by device memory: the input is read once, the
 * output written once.
 */
#include <type_traits>

#include "kernels/cuda/common.cuh"
#include "kernels/kernel_list.h"
#include "kernels/pointwise/element.h"

/* ---- unary ---- */

/* One element in f32, by the kind of operation: each has a kernel of its own, so that the simple ones do not carry the
 * registers of the large ones. */
struct activation_op {
    trm_activation activation;
    __device__ __forceinline__ float operator()(float x) const
    {
        return trm_activate_f32(activation, x);
    }
};
struct plain_op {
    trm_unary_op op;
    float alpha, beta;
    __device__ __forceinline__ float operator()(float x) const
    {
        return trm_unary_plain_f32(op, alpha, beta, x);
    }
};
struct trigonometric_op {
    trm_unary_op op;
    __device__ __forceinline__ float operator()(float x) const
    {
        return trm_unary_trigonometric_f32(op, x);
    }
};

/* 16 bytes per thread and pass, then the rest one by one. Unaligned tensors: `vectors` is 0. */
template <typename T, typename Op>
static __global__ void unary_floats(Op op, const T *from, T *to, int64_t vectors, int64_t count)
{
    const int n = vec16<T>::n;
    begin_overlapped();
    for (int64_t i = global_thread(); i < vectors; i += global_threads()) {
        float v[n];
        load16(from + i * n, v);
#pragma unroll
        for (int j = 0; j < n; j++) {
            v[j] = op(v[j]);
        }
        store16(to + i * n, v);
    }
    for (int64_t i = vectors * n + global_thread(); i < count; i += global_threads()) {
        to[i] = from_float<T>(op(to_float(from[i])));
    }
}

/* f64, one element per thread and pass. */
static __global__ void unary_doubles(trm_unary_params p, const double *from, double *to, int64_t count)
{
    begin_overlapped();
    for (int64_t i = global_thread(); i < count; i += global_threads()) {
        double x = from[i];
        to[i] = p.op == TRM_UNARY_ACTIVATION       ? trm_activate_f64(p.activation, x)
                : trm_unary_is_trigonometric(p.op) ? trm_unary_trigonometric_f64(p.op, x)
                                                   : trm_unary_plain_f64(p.op, (double)p.alpha, (double)p.beta, x);
    }
}

/* IS_NAN and IS_INF, of any float type. */
static __global__ void unary_tests(trm_unary_params p, trm_dtype dtype, const void *from, bool *to, int64_t count)
{
    begin_overlapped();
    for (int64_t i = global_thread(); i < count; i += global_threads()) {
        to[i] = trm_unary_test_f64(p.op, (double)p.alpha, (double)p.beta, trm_element_load_f64(dtype, from, i));
    }
}

/* Integers and bool. */
template <typename T>
static __global__ void unary_integers(trm_unary_op op, bool is_bool, const T *from, T *to, int64_t count)
{
    begin_overlapped();
    for (int64_t i = global_thread(); i < count; i += global_threads()) {
        to[i] = (T)trm_unary_i64(op, std::is_unsigned<T>::value, is_bool, (int64_t)from[i]);
    }
}

bool trm_cuda_unary_accepts(const trm_kernel_call *call)
{
    trm_dtype dtype = call->inputs[0].dtype;
    trm_unary_op op = call->layer->unary.op;
    if (op < TRM_UNARY_ACTIVATION || op > TRM_UNARY_SWISH ||
        call->outputs[0].dtype != (trm_unary_is_test(op) ? TRM_BOOL : dtype)) {
        return false;
    }
    return trm_element_is_float(dtype) ? op != TRM_UNARY_NOT
                                       : (trm_element_is_integer(dtype) && trm_unary_takes_integers(op)) ||
                                             (dtype == TRM_BOOL && op == TRM_UNARY_NOT);
}

template <typename T, typename Op>
static void launch_floats(const trm_kernel_call *call, Op op, int64_t count, cudaStream_t stream)
{
    const T *from = (const T *)call->inputs[0].data;
    T *to = (T *)call->outputs[0].data;
    bool aligned = trm_aligned16(from) && trm_aligned16(to);
    int64_t vectors = aligned ? count / vec16<T>::n : 0;
    launch_overlapped(unary_floats<T, Op>, grid_for(aligned ? vectors : count, 256), 256, 0, stream, op, from, to,
                      vectors, count);
}

template <typename T> static void launch_integers(const trm_kernel_call *call, int64_t count, cudaStream_t stream)
{
    launch_overlapped(unary_integers<T>, grid_for(count, 256), 256, 0, stream, call->layer->unary.op,
                      call->inputs[0].dtype == TRM_BOOL, (const T *)call->inputs[0].data, (T *)call->outputs[0].data,
                      count);
}

static void launch_integers_of(const trm_kernel_call *call, int64_t count, cudaStream_t stream)
{
    switch (call->inputs[0].dtype) {
    case TRM_I8:
        launch_integers<int8_t>(call, count, stream);
        break;
    case TRM_U8:
    case TRM_BOOL:
        launch_integers<uint8_t>(call, count, stream);
        break;
    case TRM_I16:
        launch_integers<int16_t>(call, count, stream);
        break;
    case TRM_U16:
        launch_integers<uint16_t>(call, count, stream);
        break;
    case TRM_I32:
        launch_integers<int32_t>(call, count, stream);
        break;
    case TRM_U32:
        launch_integers<uint32_t>(call, count, stream);
        break;
    case TRM_I64:
        launch_integers<int64_t>(call, count, stream);
        break;
    default:
        launch_integers<uint64_t>(call, count, stream);
        break;
    }
}

trm_status trm_cuda_unary_run(const trm_kernel_call *call)
{
    const trm_unary_params *p = &call->layer->unary;
    trm_dtype dtype = call->inputs[0].dtype;
    const void *from = call->inputs[0].data;
    void *to = call->outputs[0].data;
    int64_t count = trm_dims_count(&call->outputs[0].dims);
    if (count == 0) {
        return TRM_OK;
    }
    cudaStream_t stream = trm_cuda_stream(call->stream);
    if (trm_unary_is_test(p->op)) {
        launch_overlapped(unary_tests, grid_for(count, 256), 256, 0, stream, *p, dtype, from, (bool *)to, count);
    } else if (dtype == TRM_F64) {
        launch_overlapped(unary_doubles, grid_for(count, 256), 256, 0, stream, *p, (const double *)from, (double *)to,
                          count);
    } else if (!is_half_or_float(dtype)) {
        launch_integers_of(call, count, stream);
    } else if (p->op == TRM_UNARY_ACTIVATION) {
        activation_op op = {p->activation};
        DISPATCH_FLOAT(dtype, launch_floats<T>(call, op, count, stream));
    } else if (trm_unary_is_trigonometric(p->op)) {
        trigonometric_op op = {p->op};
        DISPATCH_FLOAT(dtype, launch_floats<T>(call, op, count, stream));
    } else {
        plain_op op = {p->op, p->alpha, p->beta};
        DISPATCH_FLOAT(dtype, launch_floats<T>(call, op, count, stream));
    }
    return trm_cuda_launched("cuda.unary");
}

/* ---- gated activations ---- */

/* activation(gate) * up, both with rows `gate_stride` and `up_stride` apart -> rows of n. 16 bytes of output per thread
 * and pass (`vector`), else one element. n counts elements. */
template <typename T, bool VECTOR>
static __global__ void glu_rows(trm_activation activation, const T *gate, const T *up, T *to, int64_t rows, int64_t n,
                                int64_t gate_stride, int64_t up_stride)
{
    const int width = VECTOR ? vec16<T>::n : 1;
    int64_t runs = n / width, count = rows * runs;
    begin_overlapped();
    for (int64_t i = global_thread(); i < count; i += global_threads()) {
        int64_t row, run;
        if (count <= UINT32_MAX) {
            row = (uint32_t)i / (uint32_t)runs;
        } else {
            row = i / runs;
        }
        run = i - row * runs;
        const T *g = gate + row * gate_stride + run * width;
        const T *u = up + row * up_stride + run * width;
        T *target = to + row * n + run * width;
        if (VECTOR) {
            float vg[vec16<T>::n], vu[vec16<T>::n];
            load16(g, vg);
            load16(u, vu);
            if (activation == TRM_ACTIVATION_SILU) { /* asked once, not for every element */
#pragma unroll
                for (int j = 0; j < vec16<T>::n; j++) {
                    vg[j] = activate_as<T>(TRM_ACTIVATION_SILU, vg[j]) * vu[j];
                }
            } else {
#pragma unroll
                for (int j = 0; j < vec16<T>::n; j++) {
                    vg[j] = activate_as<T>(activation, vg[j]) * vu[j];
                }
            }
            store16(target, vg);
        } else {
            *target = from_float<T>(activate_as<T>(activation, to_float(*g)) * to_float(*u));
        }
    }
}

bool trm_cuda_glu_accepts(const trm_kernel_call *call)
{
    const trm_view *out = &call->outputs[0];
    return is_half_or_float(out->dtype) && call->inputs[0].dtype == out->dtype && out->dims.n > 0 &&
           (call->n_inputs < 2 || call->inputs[1].dtype == out->dtype);
}

trm_status trm_cuda_glu_run(const trm_kernel_call *call)
{
    const trm_view *gate = &call->inputs[0], *out = &call->outputs[0];
    int64_t count = trm_dims_count(&out->dims);
    if (count == 0) {
        return TRM_OK;
    }
    int64_t n = out->dims.d[out->dims.n - 1], rows = count / n;
    bool joined = call->n_inputs < 2;
    int64_t stride = joined ? 2 * n : n;
    cudaStream_t stream = trm_cuda_stream(call->stream);
    DISPATCH_FLOAT(
        out->dtype, const T *g = (const T *)gate->data; const T *u = joined ? g + n : (const T *)call->inputs[1].data;
        T *to = (T *)out->data; if (n % vec16<T>::n == 0 && trm_aligned16(g) && trm_aligned16(u) && trm_aligned16(to)) {
            launch_overlapped(glu_rows<T, true>, grid_for(count / vec16<T>::n, 128), 128, 0, stream,
                              call->layer->glu.activation, g, u, to, rows, n, stride, stride);
        } else {
            launch_overlapped(glu_rows<T, false>, grid_for(count, 256), 256, 0, stream, call->layer->glu.activation, g,
                              u, to, rows, n, stride, stride);
        });
    return trm_cuda_launched("cuda.glu");
}
