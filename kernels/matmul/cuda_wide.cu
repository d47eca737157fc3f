/*
 * Matrix products of f64 and of integers, which no library call covers alike, and those floats whose rows must not
 * depend on their number and that cuda_invariant.cu does not take: 32 x 32 tiles through shared memory, in f64, in f32
 * for smaller floats, or in 64-bit integers whose low bits are stored; every sum in the order of k. Bound by shared
 * memory at best; for index arithmetic, small models and reference results, not for speed.
 */
#include "kernels/cuda/common.cuh"
#include "kernels/kernel_list.h"
#include "kernels/cuda/strides.h"
#include "kernels/pointwise/element.h"

#define TILE 32

typedef struct wide_args {
    const void *a, *b, *bias;
    void *out;
    int64_t m, n, k;
    trm_strided leading; /* operands a, b, bias: element strides of leading dims */
    int64_t batches;
    trm_activation activation;
    bool transpose_a, transpose_b;
} wide_args;

static __device__ __forceinline__ double finish_wide(trm_activation activation, double x)
{
    return trm_activate_f64(activation, x);
}
static __device__ __forceinline__ float finish_wide(trm_activation activation, float x)
{
    return activate(activation, x);
}
static __device__ __forceinline__ uint64_t finish_wide(trm_activation activation, uint64_t x)
{
    (void)activation;
    return x;
}

template <typename A, typename T> static __device__ __forceinline__ A widen(T x)
{
    return (A)x;
}
template <> __device__ __forceinline__ float widen<float, __half>(__half x)
{
    return to_float(x);
}
template <> __device__ __forceinline__ float widen<float, __nv_bfloat16>(__nv_bfloat16 x)
{
    return to_float(x);
}

template <typename T, typename A> static __device__ __forceinline__ T narrow(A x)
{
    return (T)x;
}
template <> __device__ __forceinline__ __half narrow<__half, float>(float x)
{
    return from_float<__half>(x);
}
template <> __device__ __forceinline__ __nv_bfloat16 narrow<__nv_bfloat16, float>(float x)
{
    return from_float<__nv_bfloat16>(x);
}

/* A 32 x 32 tile of the output per block, 32 x 8 threads with four rows each; 16 KiB of shared memory. Batches in z. */
template <typename T, typename A, typename Out>
static __global__ void __launch_bounds__(256) matmul_tiles(const wide_args p)
{
    __shared__ A left[TILE][TILE], right[TILE][TILE + 1];
    begin_overlapped();
    int64_t column = (int64_t)blockIdx.x * TILE + threadIdx.x, row0 = (int64_t)blockIdx.y * TILE;
    for (int64_t batch = blockIdx.z; batch < p.batches; batch += gridDim.z) {
        int64_t rest = batch, a_at = 0, b_at = 0, bias_at = 0;
        for (int axis = p.leading.n - 1; axis >= 0; axis--) {
            int64_t at = rest % p.leading.d[axis];
            rest /= p.leading.d[axis];
            a_at += at * p.leading.stride[0][axis];
            b_at += at * p.leading.stride[1][axis];
            bias_at += at * p.leading.stride[2][axis];
        }
        const T *a = (const T *)p.a + a_at, *b = (const T *)p.b + b_at;
        A sums[4] = {0, 0, 0, 0};
        for (int64_t k0 = 0; k0 < p.k; k0 += TILE) {
            for (int i = 0; i < 4; i++) {
                int y = (int)threadIdx.y + 8 * i, x = (int)threadIdx.x;
                int64_t row = row0 + y, k = k0 + x;
                left[y][x] = row < p.m && k < p.k ? widen<A>(a[p.transpose_a ? k * p.m + row : row * p.k + k]) : (A)0;
                k = k0 + y;
                right[y][x] =
                    column < p.n && k < p.k ? widen<A>(b[p.transpose_b ? column * p.k + k : k * p.n + column]) : (A)0;
            }
            __syncthreads();
            for (int k = 0; k < TILE; k++) {
                A x = right[k][threadIdx.x];
                for (int i = 0; i < 4; i++) {
                    sums[i] += left[threadIdx.y + 8 * i][k] * x;
                }
            }
            __syncthreads();
        }
        for (int i = 0; i < 4; i++) {
            int64_t row = row0 + threadIdx.y + 8 * i;
            if (row < p.m && column < p.n) {
                A sum = sums[i] + (p.bias != NULL ? widen<A>(((const T *)p.bias)[bias_at + column]) : (A)0);
                ((Out *)p.out)[(batch * p.m + row) * p.n + column] = narrow<Out>(finish_wide(p.activation, sum));
            }
        }
    }
}

template <typename T, typename A, typename Out = T> static void launch_wide(const wide_args *p, cudaStream_t stream)
{
    int64_t rows = (p->m + TILE - 1) / TILE;
    dim3 grid((unsigned)((p->n + TILE - 1) / TILE), (unsigned)rows,
              (unsigned)(p->batches < 65535 ? p->batches : 65535));
    launch_overlapped(matmul_tiles<T, A, Out>, grid, dim3(32, 8), 0, stream, *p);
}

static bool is_wide(trm_dtype dtype)
{
    return dtype == TRM_F64 || (dtype >= TRM_I8 && dtype <= TRM_U64);
}

template <typename In> static void launch_floats(const wide_args *p, trm_dtype out, cudaStream_t stream)
{
    DISPATCH_FLOAT(out, launch_wide<In, float, T>(p, stream));
}

static bool takes_floats(const trm_kernel_call *call)
{
    return call->batch_invariant && is_half_or_float(call->inputs[0].dtype) && is_half_or_float(call->outputs[0].dtype);
}

bool trm_cuda_matmul_wide_accepts(const trm_kernel_call *call)
{
    const trm_view *a = &call->inputs[0], *b = &call->inputs[1], *c = &call->outputs[0];
    bool bias_fits = call->n_inputs < 3 || call->inputs[2].dtype == a->dtype || call->inputs[2].dtype == TRM_DTYPE_NONE;
    bool plain = call->layer->matmul.activation == TRM_ACTIVATION_NONE;
    bool typed = takes_floats(call) || (is_wide(a->dtype) && c->dtype == a->dtype && (a->dtype == TRM_F64 || plain));
    return typed && b->dtype == a->dtype && bias_fits && a->dims.n >= 2 && b->dims.n >= 2 &&
           c->dims.d[c->dims.n - 2] <= (int64_t)65535 * TILE;
}

trm_status trm_cuda_matmul_wide_run(const trm_kernel_call *call)
{
    const trm_view *a = &call->inputs[0], *b = &call->inputs[1], *c = &call->outputs[0];
    const trm_matmul_params *matmul = &call->layer->matmul;
    if (trm_dims_count(&c->dims) == 0) {
        return TRM_OK;
    }
    wide_args p = {};
    p.a = a->data;
    p.b = b->data;
    p.bias = call->n_inputs > 2 ? call->inputs[2].data : NULL;
    p.out = c->data;
    p.m = c->dims.d[c->dims.n - 2];
    p.n = c->dims.d[c->dims.n - 1];
    p.k = a->dims.d[a->dims.n - (matmul->transpose_a ? 2 : 1)];
    p.activation = matmul->activation;
    p.transpose_a = matmul->transpose_a;
    p.transpose_b = matmul->transpose_b;
    trm_dims leading_a = a->dims, leading_b = b->dims, leading = c->dims;
    leading_a.n -= 2;
    leading_b.n -= 2;
    leading.n -= 2;
    p.leading.n = leading.n;
    p.leading.operands = 3;
    trm_broadcast_strides(&leading_a, &leading, p.leading.stride[0]);
    trm_broadcast_strides(&leading_b, &leading, p.leading.stride[1]);
    for (int32_t i = 0; i < leading.n; i++) {
        p.leading.d[i] = leading.d[i];
        p.leading.stride[0][i] *= p.m * p.k;
        p.leading.stride[1][i] *= p.k * p.n;
    }
    const trm_dims none = {};
    trm_bias_strides(p.bias != NULL ? &call->inputs[2].dims : &none, &leading, p.leading.stride[2]);
    p.batches = trm_dims_count(&leading);
    cudaStream_t stream = trm_cuda_stream(call->stream);
    switch (a->dtype) {
    case TRM_F32:
        launch_floats<float>(&p, c->dtype, stream);
        break;
    case TRM_F16:
        launch_floats<__half>(&p, c->dtype, stream);
        break;
    case TRM_BF16:
        launch_floats<__nv_bfloat16>(&p, c->dtype, stream);
        break;
    case TRM_F64:
        launch_wide<double, double>(&p, stream);
        break;
    case TRM_I8:
        launch_wide<int8_t, uint64_t>(&p, stream);
        break;
    case TRM_U8:
        launch_wide<uint8_t, uint64_t>(&p, stream);
        break;
    case TRM_I16:
        launch_wide<int16_t, uint64_t>(&p, stream);
        break;
    case TRM_U16:
        launch_wide<uint16_t, uint64_t>(&p, stream);
        break;
    case TRM_I32:
        launch_wide<int32_t, uint64_t>(&p, stream);
        break;
    case TRM_U32:
        launch_wide<uint32_t, uint64_t>(&p, stream);
        break;
    case TRM_I64:
        launch_wide<int64_t, uint64_t>(&p, stream);
        break;
    default:
        launch_wide<uint64_t, uint64_t>(&p, stream);
        break;
    }
    return trm_cuda_launched("cuda.matmul_wide");
}
