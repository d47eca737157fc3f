/*
 * Rows of 16-bit floats, or GLUs of them, as numbers of e4m3 and their scales, for the products of cuda_fp8.c.
 */
#include "kernels/dequant/cuda_quantize.cuh"

/* Runs of 8 elements of a row: as they are, or a GLU's, rounded as one of its own would be. */
struct plain_rows {
    const void *x;
    template <typename T> __device__ __forceinline__ void load(int64_t row, int64_t k, int run, float (&v)[8]) const
    {
        load16((const T *)x + row * k + run * 8, v);
    }
};
struct glu_rows {
    const void *gate_up;
    trm_activation activation;
    template <typename T> __device__ __forceinline__ void load(int64_t row, int64_t k, int run, float (&v)[8]) const
    {
        const T *gate = (const T *)gate_up + row * 2 * k + run * 8;
        float up[8];
        load16(gate, v);
        load16(gate + k, up);
        if (activation == TRM_ACTIVATION_SILU) { /* asked once, not for every element */
#pragma unroll
            for (int j = 0; j < 8; j++) {
                v[j] = to_float(from_float<T>(activate_as<T>(TRM_ACTIVATION_SILU, v[j]) * up[j]));
            }
        } else {
#pragma unroll
            for (int j = 0; j < 8; j++) {
                v[j] = to_float(from_float<T>(activate_as<T>(activation, v[j]) * up[j]));
            }
        }
    }
};

/* A row per block of up to 1024 threads, VECTORS runs of 8 elements per thread in registers; 128 bytes of shared
 * memory. Bound by memory: 2 bytes of an element are read (4 of a GLU) and 1 is written. */
template <typename T, typename SOURCE, int VECTORS, bool GROUPS>
static __global__ void __launch_bounds__(1024) quantize_rows(SOURCE source, trm_quantized_rows q)
{
    __shared__ float scratch[32];
    const int runs = (int)(q.k / 8);
    const int64_t row = (int64_t)blockIdx.x;
    float v[VECTORS][8];
    begin_overlapped();
#pragma unroll
    for (int i = 0; i < VECTORS; i++) {
        const int run = (int)(threadIdx.x + i * blockDim.x);
        if (run < runs) {
            source.template load<T>(row, q.k, run, v[i]);
        } else {
#pragma unroll
            for (int j = 0; j < 8; j++) {
                v[i][j] = 0.0f;
            }
        }
    }
    quantize_row<VECTORS, GROUPS>(q, row, v, scratch);
}

template <typename T, typename SOURCE, int VECTORS>
static void launch_vectors(SOURCE source, const trm_quantized_rows *q, cudaStream_t stream)
{
    const unsigned rows = (unsigned)q->m, threads = quantize_threads(q->k);
    if (q->group < q->k) {
        launch_overlapped(quantize_rows<T, SOURCE, VECTORS, true>, rows, threads, 0, stream, source, *q);
    } else {
        launch_overlapped(quantize_rows<T, SOURCE, VECTORS, false>, rows, threads, 0, stream, source, *q);
    }
}

template <typename T, typename SOURCE>
static void launch_for(SOURCE source, const trm_quantized_rows *q, cudaStream_t stream)
{
    switch (quantize_vectors(q->k)) {
    case 1:
        launch_vectors<T, SOURCE, 1>(source, q, stream);
        break;
    case 2:
        launch_vectors<T, SOURCE, 2>(source, q, stream);
        break;
    case 4:
        launch_vectors<T, SOURCE, 4>(source, q, stream);
        break;
    default:
        launch_vectors<T, SOURCE, 8>(source, q, stream);
    }
}

template <typename SOURCE>
static trm_status launch(SOURCE source, trm_dtype type, const trm_quantized_rows *to, cudaStream_t stream)
{
    if (type == TRM_F16) {
        launch_for<__half>(source, to, stream);
    } else {
        launch_for<__nv_bfloat16>(source, to, stream);
    }
    return trm_cuda_launched("cuda.quantize");
}

trm_status trm_cuda_quantize_rows(const void *x, trm_dtype type, const trm_quantized_rows *to, cudaStream_t stream)
{
    const plain_rows source = {x};
    return launch(source, type, to, stream);
}

trm_status trm_cuda_quantize_glu(const void *gate_up, trm_dtype type, trm_activation activation,
                                 const trm_quantized_rows *to, cudaStream_t stream)
{
    const glu_rows source = {gate_up, activation};
    return launch(source, type, to, stream);
}
