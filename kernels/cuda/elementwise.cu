/*
 * Element by element: binary operations with broadcasting, unary operations, gated activations. All are bound by device
 * memory: each input is read once (broadcast ones from cache), the output written once.
 */
#include <type_traits>

#include "kernels/cuda/common.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/strides.h"

/* ---- binary ---- */

static __device__ __forceinline__ float binary(trm_elementwise_op op, float a, float b)
{
    switch (op) {
    case TRM_ELEMENTWISE_ADD:
        return a + b;
    case TRM_ELEMENTWISE_SUB:
        return a - b;
    case TRM_ELEMENTWISE_MUL:
        return a * b;
    case TRM_ELEMENTWISE_DIV:
        return a / b;
    case TRM_ELEMENTWISE_MIN:
        return a < b || a != a ? a : b;
    case TRM_ELEMENTWISE_MAX:
        return a > b || a != a ? a : b;
    default:
        return powf(a, b);
    }
}

static __device__ __forceinline__ double binary(trm_elementwise_op op, double a, double b)
{
    switch (op) {
    case TRM_ELEMENTWISE_ADD:
        return a + b;
    case TRM_ELEMENTWISE_SUB:
        return a - b;
    case TRM_ELEMENTWISE_MUL:
        return a * b;
    case TRM_ELEMENTWISE_DIV:
        return a / b;
    case TRM_ELEMENTWISE_MIN:
        return a < b || a != a ? a : b;
    case TRM_ELEMENTWISE_MAX:
        return a > b || a != a ? a : b;
    default:
        return pow(a, b);
    }
}

/* Integers wrap; a division by zero gives 0, a negative exponent the truncated power. */
template <typename I> static __device__ I integer_power(I base, I exponent)
{
    if constexpr (std::is_signed<I>::value) {
        if (exponent < 0) {
            return base == 1 ? (I)1 : base == (I)-1 ? (exponent % 2 == 0 ? (I)1 : (I)-1) : (I)0;
        }
    }
    uint64_t result = 1, factor = (uint64_t)base;
    for (uint64_t left = (uint64_t)exponent; left > 0; left >>= 1) {
        if (left & 1) {
            result *= factor;
        }
        factor *= factor;
    }
    return (I)result;
}

template <typename I> static __device__ __forceinline__ I binary_integer(trm_elementwise_op op, I a, I b)
{
    switch (op) {
    case TRM_ELEMENTWISE_ADD:
        return (I)((uint64_t)a + (uint64_t)b);
    case TRM_ELEMENTWISE_SUB:
        return (I)((uint64_t)a - (uint64_t)b);
    case TRM_ELEMENTWISE_MUL:
        return (I)((uint64_t)a * (uint64_t)b);
    case TRM_ELEMENTWISE_DIV:
        return b == 0 ? (I)0 : std::is_signed<I>::value && b == (I)-1 ? (I)(0 - (uint64_t)a) : (I)(a / b);
    case TRM_ELEMENTWISE_MIN:
        return a < b || a != a ? a : b;
    case TRM_ELEMENTWISE_MAX:
        return a > b || a != a ? a : b;
    default:
        return integer_power(a, b);
    }
}

/* Loads, computes in the type's arithmetic, rounds once. */
static __device__ __forceinline__ float binary_typed(trm_elementwise_op op, float a, float b)
{
    return binary(op, a, b);
}
static __device__ __forceinline__ double binary_typed(trm_elementwise_op op, double a, double b)
{
    return binary(op, a, b);
}
static __device__ __forceinline__ __half binary_typed(trm_elementwise_op op, __half a, __half b)
{
    return __float2half_rn(binary(op, to_float(a), to_float(b)));
}
static __device__ __forceinline__ __nv_bfloat16 binary_typed(trm_elementwise_op op, __nv_bfloat16 a, __nv_bfloat16 b)
{
    return __float2bfloat16_rn(binary(op, to_float(a), to_float(b)));
}
#define BINARY_TYPED(I)                                                                                                \
    static __device__ __forceinline__ I binary_typed(trm_elementwise_op op, I a, I b)                                  \
    {                                                                                                                  \
        return binary_integer<I>(op, a, b);                                                                            \
    }
BINARY_TYPED(int8_t)
BINARY_TYPED(uint8_t)
BINARY_TYPED(int16_t)
BINARY_TYPED(uint16_t)
BINARY_TYPED(int32_t)
BINARY_TYPED(uint32_t)
BINARY_TYPED(int64_t)
BINARY_TYPED(uint64_t)

/* The offsets of operands 0 and 1 for step i of the loop. */
static __device__ __forceinline__ void offsets_of(const trm_strided &s, int64_t i, int64_t *a, int64_t *b)
{
    int64_t at_a = 0, at_b = 0;
    if (i <= UINT32_MAX) { /* 32-bit division is several times cheaper */
        uint32_t rest = (uint32_t)i;
        for (int axis = s.n - 1; axis > 0; axis--) {
            uint32_t size = (uint32_t)s.d[axis], at = rest;
            if (s.d[axis] <= UINT32_MAX) {
                at = rest % size;
                rest /= size;
            } else {
                rest = 0;
            }
            at_a += at * s.stride[0][axis];
            at_b += at * s.stride[1][axis];
        }
        *a = at_a + rest * s.stride[0][0];
        *b = at_b + rest * s.stride[1][0];
        return;
    }
    for (int axis = s.n - 1; axis > 0; axis--) {
        int64_t at = i % s.d[axis];
        i /= s.d[axis];
        at_a += at * s.stride[0][axis];
        at_b += at * s.stride[1][axis];
    }
    *a = at_a + i * s.stride[0][0];
    *b = at_b + i * s.stride[1][0];
}

/* One element per thread and pass; any type, any broadcast. */
template <typename T>
static __global__ void elementwise_any(trm_elementwise_op op, const T *a, const T *b, T *to, trm_strided s,
                                       int64_t count)
{
    begin_overlapped();
    for (int64_t i = global_thread(); i < count; i += global_threads()) {
        int64_t at_a, at_b;
        offsets_of(s, i, &at_a, &at_b);
        to[i] = binary_typed(op, a[at_a], b[at_b]);
    }
}

template <int N> static __device__ __forceinline__ void fill(float (&to)[N], float value)
{
#pragma unroll
    for (int j = 0; j < N; j++) {
        to[j] = value;
    }
}

/* 16 bytes of output per thread and pass. The loop's last axis counts runs of vec16<T>::n elements, along which each
 * operand either advances by one (`a_step`, `b_step` 1) or stands still (0). */
template <typename T>
static __global__ void elementwise_vector(trm_elementwise_op op, const T *a, const T *b, T *to, trm_strided s,
                                          int a_step, int b_step, int64_t runs)
{
    const int n = vec16<T>::n;
    begin_overlapped();
    for (int64_t i = global_thread(); i < runs; i += global_threads()) {
        int64_t at_a, at_b;
        float va[n], vb[n];
        offsets_of(s, i, &at_a, &at_b);
        if (a_step) {
            load16(a + at_a, va);
        } else {
            fill(va, to_float(a[at_a]));
        }
        if (b_step) {
            load16(b + at_b, vb);
        } else {
            fill(vb, to_float(b[at_b]));
        }
#pragma unroll
        for (int j = 0; j < n; j++) {
            va[j] = binary(op, va[j], vb[j]);
        }
        store16(to + i * n, va);
    }
}

/* Turns the loop into one over runs of `n` elements; false where the last axis, a stride or an address forbids it. */
static bool strided_to_runs(trm_strided *s, int64_t n, size_t element, const void *const *addresses)
{
    int last = s->n - 1;
    if (s->d[last] % n != 0) {
        return false;
    }
    for (int o = 0; o < 2; o++) {
        if (s->stride[o][last] == 0) {
            continue;
        }
        if (s->stride[o][last] != 1 || (uintptr_t)addresses[o] % (element * (size_t)n) != 0) {
            return false;
        }
        for (int i = 0; i < last; i++) {
            if (s->stride[o][i] % n != 0) {
                return false;
            }
        }
    }
    s->d[last] /= n;
    s->stride[0][last] *= n;
    s->stride[1][last] *= n;
    return true;
}

template <typename T>
static void launch_elementwise_any(const trm_kernel_call *call, const trm_strided *s, int64_t count,
                                   cudaStream_t stream)
{
    launch_overlapped(elementwise_any<T>, grid_for(count, 256), 256, 0, stream, call->layer->elementwise.op,
                      (const T *)call->inputs[0].data, (const T *)call->inputs[1].data, (T *)call->outputs[0].data, *s,
                      count);
}

/* The last operand step of `s` tells whether an operand stands still: dispatch on the vector path for floats. */
template <typename T>
static void launch_elementwise(const trm_kernel_call *call, const trm_strided *s, int64_t count, cudaStream_t stream)
{
    const void *addresses[2] = {call->inputs[0].data, call->inputs[1].data};
    int64_t n = vec16<T>::n;
    trm_strided runs = *s;
    if (trm_aligned16(call->outputs[0].data) && strided_to_runs(&runs, n, sizeof(T), addresses)) {
        launch_overlapped(elementwise_vector<T>, grid_for(count / n, 256), 256, 0, stream, call->layer->elementwise.op,
                          (const T *)addresses[0], (const T *)addresses[1], (T *)call->outputs[0].data, runs,
                          s->stride[0][s->n - 1] != 0, s->stride[1][s->n - 1] != 0, count / n);
        return;
    }
    launch_elementwise_any<T>(call, s, count, stream);
}

bool trm_cuda_elementwise_accepts(const trm_kernel_call *call)
{
    trm_dtype dtype = call->outputs[0].dtype;
    return call->inputs[0].dtype == dtype && call->inputs[1].dtype == dtype && trm_dtype_size(dtype) > 0 &&
           dtype != TRM_BOOL;
}

trm_status trm_cuda_elementwise_run(const trm_kernel_call *call)
{
    const trm_view *out = &call->outputs[0];
    int64_t count = trm_dims_count(&out->dims);
    if (count == 0) {
        return TRM_OK;
    }
    trm_strided s = {};
    s.n = out->dims.n;
    s.operands = 3; /* the output takes part so that only what is contiguous in it is joined */
    for (int i = 0; i < s.n; i++) {
        s.d[i] = out->dims.d[i];
    }
    trm_broadcast_strides(&call->inputs[0].dims, &out->dims, s.stride[0]);
    trm_broadcast_strides(&call->inputs[1].dims, &out->dims, s.stride[1]);
    trm_contiguous_strides(&out->dims, s.stride[2]);
    trm_strided_collapse(&s);
    cudaStream_t stream = trm_cuda_stream(call->stream);
    switch (out->dtype) {
    case TRM_F32:
        launch_elementwise<float>(call, &s, count, stream);
        break;
    case TRM_F16:
        launch_elementwise<__half>(call, &s, count, stream);
        break;
    case TRM_BF16:
        launch_elementwise<__nv_bfloat16>(call, &s, count, stream);
        break;
    case TRM_F64:
        launch_elementwise_any<double>(call, &s, count, stream);
        break;
    case TRM_I8:
        launch_elementwise_any<int8_t>(call, &s, count, stream);
        break;
    case TRM_U8:
        launch_elementwise_any<uint8_t>(call, &s, count, stream);
        break;
    case TRM_I16:
        launch_elementwise_any<int16_t>(call, &s, count, stream);
        break;
    case TRM_U16:
        launch_elementwise_any<uint16_t>(call, &s, count, stream);
        break;
    case TRM_I32:
        launch_elementwise_any<int32_t>(call, &s, count, stream);
        break;
    case TRM_U32:
        launch_elementwise_any<uint32_t>(call, &s, count, stream);
        break;
    case TRM_I64:
        launch_elementwise_any<int64_t>(call, &s, count, stream);
        break;
    default:
        launch_elementwise_any<uint64_t>(call, &s, count, stream);
        break;
    }
    return trm_cuda_launched("cuda.elementwise");
}

/* ---- unary ---- */

static __device__ __forceinline__ float unary(const trm_unary_params &p, float x)
{
    switch (p.op) {
    case TRM_UNARY_ACTIVATION:
        return activate(p.activation, x);
    case TRM_UNARY_NEG:
        return -x;
    case TRM_UNARY_ABS:
        return fabsf(x);
    case TRM_UNARY_EXP:
        return expf(x);
    case TRM_UNARY_LOG:
        return logf(x);
    case TRM_UNARY_SQRT:
        return sqrtf(x);
    case TRM_UNARY_RECIPROCAL:
        return 1.0f / x;
    case TRM_UNARY_ERF:
        return erff(x);
    case TRM_UNARY_LINEAR:
        return fmaf(p.alpha, x, p.beta);
    case TRM_UNARY_SOFTCAP:
        return p.alpha * tanhf(x / p.alpha);
    default:
        return x;
    }
}

/* 16 bytes per thread and pass, then the rest one by one. Unaligned tensors: `vectors` is 0. */
template <typename T>
static __global__ void unary_floats(trm_unary_params p, const T *from, T *to, int64_t vectors, int64_t count)
{
    const int n = vec16<T>::n;
    begin_overlapped();
    for (int64_t i = global_thread(); i < vectors; i += global_threads()) {
        float v[n];
        load16(from + i * n, v);
#pragma unroll
        for (int j = 0; j < n; j++) {
            v[j] = unary(p, v[j]);
        }
        store16(to + i * n, v);
    }
    for (int64_t i = vectors * n + global_thread(); i < count; i += global_threads()) {
        to[i] = from_float<T>(unary(p, to_float(from[i])));
    }
}

/* Negation and absolute value of the types that are not computed as f32; integers wrap. One element per thread and
 * pass. */
template <typename T> static __global__ void unary_sign(bool negate, const T *from, T *to, int64_t count)
{
    begin_overlapped();
    for (int64_t i = global_thread(); i < count; i += global_threads()) {
        T x = from[i];
        if constexpr (std::is_integral<T>::value) {
            to[i] = negate || x < 0 ? (T)(0 - (uint64_t)x) : x;
        } else {
            to[i] = negate ? -x : fabs(x);
        }
    }
}

bool trm_cuda_unary_accepts(const trm_kernel_call *call)
{
    trm_dtype dtype = call->inputs[0].dtype;
    trm_unary_op op = call->layer->unary.op;
    bool sign = (op == TRM_UNARY_NEG || op == TRM_UNARY_ABS) &&
                (dtype == TRM_F64 || dtype == TRM_I8 || dtype == TRM_I16 || dtype == TRM_I32 || dtype == TRM_I64);
    return (is_half_or_float(dtype) || sign) && call->outputs[0].dtype == dtype;
}

template <typename T> static void launch_sign(const trm_kernel_call *call, int64_t count, cudaStream_t stream)
{
    launch_overlapped(unary_sign<T>, grid_for(count, 256), 256, 0, stream, call->layer->unary.op == TRM_UNARY_NEG,
                      (const T *)call->inputs[0].data, (T *)call->outputs[0].data, count);
}

static void launch_sign_of(const trm_kernel_call *call, int64_t count, cudaStream_t stream)
{
    switch (call->inputs[0].dtype) {
    case TRM_F64:
        launch_sign<double>(call, count, stream);
        break;
    case TRM_I8:
        launch_sign<int8_t>(call, count, stream);
        break;
    case TRM_I16:
        launch_sign<int16_t>(call, count, stream);
        break;
    case TRM_I32:
        launch_sign<int32_t>(call, count, stream);
        break;
    default:
        launch_sign<int64_t>(call, count, stream);
        break;
    }
}

trm_status trm_cuda_unary_run(const trm_kernel_call *call)
{
    const trm_view *in = &call->inputs[0], *out = &call->outputs[0];
    int64_t count = trm_dims_count(&out->dims);
    if (count == 0) {
        return TRM_OK;
    }
    bool aligned = trm_aligned16(in->data) && trm_aligned16(out->data);
    cudaStream_t stream = trm_cuda_stream(call->stream);
    if (!is_half_or_float(in->dtype)) {
        launch_sign_of(call, count, stream);
        return trm_cuda_launched("cuda.unary");
    }
    DISPATCH_FLOAT(in->dtype, int64_t vectors = aligned ? count / vec16<T>::n : 0;
                   launch_overlapped(unary_floats<T>, grid_for(aligned ? vectors : count, 256), 256, 0, stream,
                                     call->layer->unary, (const T *)in->data, (T *)out->data, vectors, count));
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
#pragma unroll
            for (int j = 0; j < vec16<T>::n; j++) {
                vg[j] = activate(activation, vg[j]) * vu[j];
            }
            store16(target, vg);
        } else {
            *target = from_float<T>(activate(activation, to_float(*g)) * to_float(*u));
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
