/*
 * Rotary position embedding with its scalings. Bound by device memory: each element is read and written once. The
 * angles of a token are computed once, in shared memory, and used by all its heads.
 */
#include "kernels/cuda/common.cuh"
#include "kernels/kernel_list.h"
#include "kernels/rope/cuda.cuh"

typedef struct rope_args {
    const void *x;
    const int32_t *positions, *lengths; /* lengths: NULL with PLAIN */
    const float *inv_freq;
    void *to;
    int64_t tokens;
    int32_t heads, head_dim;
    trm_rope_params p;
} rope_args;

/*
 * One token per block and pass, 128 threads; where tokens are few, gridDim.y blocks share a token's heads. Shared
 * memory: cos and sin of each pair, 4 * rotary_dim bytes. VECTOR: 16 bytes of each half per thread, for the halves
 * layout where half the rotary dimension, what lies before it and the head are multiples of vec16<T>::n. Otherwise a
 * pair, or an element that is only copied, per thread.
 */
template <typename T, bool VECTOR> static __global__ void __launch_bounds__(128) rope_tokens(rope_args a)
{
    extern __shared__ float angles[];
    const int width = VECTOR ? vec16<T>::n : 1;
    int half = a.p.rotary_dim / 2, rest = a.head_dim - a.p.rotary_dim;
    float *cosines = angles, *sines = angles + half;
    start_next();
    for (int i = threadIdx.x * 32; i < half; i += blockDim.x * 32) {
        prefetch_l2(a.inv_freq + i);
    }
    wait_for_previous();
    for (int64_t t = blockIdx.x; t < a.tokens; t += gridDim.x) {
        float position = (float)a.positions[t];
        int32_t length = a.lengths != NULL ? a.lengths[t] : 0;
        for (int i = threadIdx.x; i < half; i += blockDim.x) {
            float s, c;
            sincosf(position * rope_frequency(a.p, a.inv_freq, i, length), &s, &c);
            cosines[i] = c * a.p.magnitude;
            sines[i] = s * a.p.magnitude;
        }
        __syncthreads();
        const T *x = (const T *)a.x + t * a.heads * a.head_dim;
        T *to = (T *)a.to + t * a.heads * a.head_dim;
        int pairs = half / width, items = (half + rest) / width; /* of one head: pairs, then what is only copied */
        for (int i = blockIdx.y * blockDim.x + threadIdx.x; i < a.heads * items; i += gridDim.y * blockDim.x) {
            int head = i / items, item = i - head * items;
            const T *from = x + (int64_t)head * a.head_dim;
            T *target = to + (int64_t)head * a.head_dim;
            if (VECTOR) {
                float u[vec16<T>::n], v[vec16<T>::n];
                if (item >= pairs) {
                    int at = (item - pairs) * width;
                    at += at < a.p.first ? 0 : a.p.rotary_dim;
                    *(uint4 *)(target + at) = *(const uint4 *)(from + at);
                    continue;
                }
                from += a.p.first + item * width;
                target += a.p.first + item * width;
                load16(from, u);
                load16(from + half, v);
#pragma unroll
                for (int j = 0; j < vec16<T>::n; j++) {
                    float c = cosines[item * width + j], s = sines[item * width + j];
                    float first = u[j] * c - v[j] * s, second = v[j] * c + u[j] * s;
                    u[j] = first;
                    v[j] = second;
                }
                store16(target, u);
                store16(target + half, v);
            } else if (item < pairs) {
                int first, second;
                rope_pair(a.p, item, &first, &second);
                first += a.p.first;
                second += a.p.first;
                float u = to_float(from[first]), v = to_float(from[second]), c = cosines[item], s = sines[item];
                target[first] = from_float<T>(u * c - v * s);
                target[second] = from_float<T>(v * c + u * s);
            } else {
                int at = item - pairs;
                at += at < a.p.first ? 0 : a.p.rotary_dim;
                target[at] = from[at];
            }
        }
        __syncthreads(); /* before the next token's angles */
    }
}

template <typename T> static void launch_rope(const rope_args *a, cudaStream_t stream)
{
    const int width = vec16<T>::n;
    size_t shared = (size_t)a->p.rotary_dim * sizeof(float);
    bool vector = !a->p.interleaved && a->p.rotary_dim / 2 % width == 0 && a->p.first % width == 0 &&
                  a->head_dim % width == 0 && trm_aligned16(a->x) && trm_aligned16(a->to);
    int64_t items = (int64_t)a->heads * (a->head_dim - a->p.rotary_dim / 2) / (vector ? width : 1);
    int64_t shares = a->tokens >= 132 ? 1 : (items + 127) / 128;
    dim3 grid((unsigned)(a->tokens < 1 << 20 ? a->tokens : 1 << 20), (unsigned)(shares < 16 ? shares : 16));
    if (vector) {
        launch_overlapped(rope_tokens<T, true>, grid, 128, shared, stream, *a);
    } else {
        launch_overlapped(rope_tokens<T, false>, grid, 128, shared, stream, *a);
    }
}

bool trm_cuda_rope_accepts(const trm_kernel_call *call)
{
    const trm_view *x = &call->inputs[0];
    return is_half_or_float(x->dtype) && x->dims.n == 3 && call->outputs[0].dtype == x->dtype &&
           call->layer->rope.rotary_dim <= 8192 && x->dims.d[1] * x->dims.d[2] <= INT32_MAX;
}

trm_status trm_cuda_rope_run(const trm_kernel_call *call)
{
    const trm_view *x = &call->inputs[0];
    const trm_rope_params *p = &call->layer->rope;
    if (trm_dims_count(&x->dims) == 0) {
        return TRM_OK;
    }
    rope_args a = {};
    a.x = x->data;
    a.positions = (const int32_t *)call->inputs[1].data;
    a.inv_freq = (const float *)call->inputs[2].data;
    a.lengths = p->scaling != TRM_ROPE_PLAIN ? (const int32_t *)call->inputs[3].data : NULL;
    a.to = call->outputs[0].data;
    a.tokens = x->dims.d[0];
    a.heads = (int32_t)x->dims.d[1];
    a.head_dim = (int32_t)x->dims.d[2];
    a.p = *p;
    cudaStream_t stream = trm_cuda_stream(call->stream);
    DISPATCH_FLOAT(x->dtype, launch_rope<T>(&a, stream));
    return trm_cuda_launched("cuda.rope");
}
