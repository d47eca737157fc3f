/*
 * Binary operations element by element with broadcasting. Bound by device memory: each input is read once (broadcast
 * ones from cache), the output written once.
 */
#include <type_traits>

#include "kernels/cuda/common.cuh"
#include "kernels/kernel_list.h"
#include "kernels/cuda/strides.h"
#include "kernels/pointwise/element.h"

/* ---- binary ---- */

/* Loads, computes in the type's arithmetic, rounds once. */
static __device__ __forceinline__ double binary_typed(trm_elementwise_op op, double a, double b)
{
    return trm_binary_f64(op, a, b);
}
static __device__ __forceinline__ float binary_typed(trm_elementwise_op op, float a, float b)
{
    return trm_binary_f32(op, a, b);
}
static __device__ __forceinline__ __half binary_typed(trm_elementwise_op op, __half a, __half b)
{
    return __float2half_rn(trm_binary_f32(op, to_float(a), to_float(b)));
}
static __device__ __forceinline__ __nv_bfloat16 binary_typed(trm_elementwise_op op, __nv_bfloat16 a, __nv_bfloat16 b)
{
    return __float2bfloat16_rn(trm_binary_f32(op, to_float(a), to_float(b)));
}
template <typename I> static __device__ __forceinline__ I binary_typed(trm_elementwise_op op, I a, I b)
{
    if (std::is_signed<I>::value) {
        return (I)trm_binary_i64(op, (int64_t)a, (int64_t)b);
    }
    return (I)trm_binary_u64(op, (uint64_t)a, (uint64_t)b);
}

static __device__ __forceinline__ bool compare_typed(trm_elementwise_op op, double a, double b)
{
    return trm_compare_f64(op, a, b);
}
static __device__ __forceinline__ bool compare_typed(trm_elementwise_op op, float a, float b)
{
    return trm_compare_f32(op, a, b);
}
static __device__ __forceinline__ bool compare_typed(trm_elementwise_op op, __half a, __half b)
{
    return trm_compare_f32(op, to_float(a), to_float(b));
}
static __device__ __forceinline__ bool compare_typed(trm_elementwise_op op, __nv_bfloat16 a, __nv_bfloat16 b)
{
    return trm_compare_f32(op, to_float(a), to_float(b));
}
template <typename I> static __device__ __forceinline__ bool compare_typed(trm_elementwise_op op, I a, I b)
{
    if (std::is_signed<I>::value) {
        return trm_compare_i64(op, (int64_t)a, (int64_t)b);
    }
    return trm_compare_u64(op, (uint64_t)a, (uint64_t)b);
}

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

/* Comparisons, as above. */
template <typename T>
static __global__ void compare_any(trm_elementwise_op op, const T *a, const T *b, bool *to, trm_strided s,
                                   int64_t count)
{
    begin_overlapped();
    for (int64_t i = global_thread(); i < count; i += global_threads()) {
        int64_t at_a, at_b;
        offsets_of(s, i, &at_a, &at_b);
        to[i] = compare_typed(op, a[at_a], b[at_b]);
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
 * operand either advances by one (`a_step`, `b_step` 1) or stands still (0). POWER: for POW, MOD and FMOD, else for the
 * rest. */
template <typename T, bool POWER>
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
            va[j] = POWER ? trm_binary_power_f32(op, va[j], vb[j]) : trm_binary_plain_f32(op, va[j], vb[j]);
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
    trm_elementwise_op op = call->layer->elementwise.op;
    const T *a = (const T *)call->inputs[0].data, *b = (const T *)call->inputs[1].data;
    if (trm_elementwise_is_comparison(op)) {
        launch_overlapped(compare_any<T>, grid_for(count, 256), 256, 0, stream, op, a, b, (bool *)call->outputs[0].data,
                          *s, count);
    } else {
        launch_overlapped(elementwise_any<T>, grid_for(count, 256), 256, 0, stream, op, a, b,
                          (T *)call->outputs[0].data, *s, count);
    }
}

/* The last operand step of `s` tells whether an operand stands still: dispatch on the vector path for floats. */
template <typename T>
static void launch_elementwise(const trm_kernel_call *call, const trm_strided *s, int64_t count, cudaStream_t stream)
{
    const void *addresses[2] = {call->inputs[0].data, call->inputs[1].data};
    int64_t n = vec16<T>::n;
    trm_strided runs = *s;
    if (!trm_elementwise_is_comparison(call->layer->elementwise.op) && trm_aligned16(call->outputs[0].data) &&
        strided_to_runs(&runs, n, sizeof(T), addresses)) {
        trm_elementwise_op op = call->layer->elementwise.op;
        launch_overlapped(trm_elementwise_is_power(op) ? elementwise_vector<T, true> : elementwise_vector<T, false>,
                          grid_for(count / n, 256), 256, 0, stream, op, (const T *)addresses[0],
                          (const T *)addresses[1], (T *)call->outputs[0].data, runs, s->stride[0][s->n - 1] != 0,
                          s->stride[1][s->n - 1] != 0, count / n);
        return;
    }
    launch_elementwise_any<T>(call, s, count, stream);
}

bool trm_cuda_elementwise_accepts(const trm_kernel_call *call)
{
    trm_dtype dtype = call->inputs[0].dtype;
    trm_elementwise_op op = call->layer->elementwise.op;
    bool logical = trm_elementwise_is_logical(op), is_float = trm_element_is_float(dtype);
    bool fits = dtype == TRM_BOOL ? logical || op == TRM_ELEMENTWISE_EQUAL
                : is_float        ? !logical && !trm_elementwise_is_shift(op)
                                  : trm_element_is_integer(dtype);
    return call->n_inputs == 2 && fits && op >= TRM_ELEMENTWISE_ADD && op <= TRM_ELEMENTWISE_PRELU &&
           call->inputs[1].dtype == dtype &&
           call->outputs[0].dtype == (trm_elementwise_is_comparison(op) ? TRM_BOOL : dtype);
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
    switch (call->inputs[0].dtype) { /* comparisons give another */
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
    case TRM_BOOL:
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
