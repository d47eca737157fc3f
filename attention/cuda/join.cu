/*
 * Joins the results of attention over shares of the keys. Bound by device memory: reads what each rank found and writes
 * an n-th of it.
 */
#include "attention/attention_impl.h"
#include "attention/cuda/rows.cuh"
#include "kernels/kernel.h"

#define JOIN_WARPS 4

typedef struct join_call {
    const void *results; /* [ranks, rows, value_dim] */
    const float *logs;   /* [ranks, rows], in log2 units */
    const float *sinks;  /* [heads], or NULL */
    void *out;           /* [rows, value_dim] */
    int64_t rows;        /* pairs of query and head */
    int32_t heads, value_dim, ranks;
} join_call;

/* A warp per row; a lane has N neighbouring elements. Weights are found again for every group of elements: there are
 * one or two. */
template <typename T, int N> static __global__ void __launch_bounds__(JOIN_WARPS * 32) join_rows(join_call j)
{
    const int lane = threadIdx.x & 31;
    begin_overlapped();
    for (int64_t row = (int64_t)blockIdx.x * JOIN_WARPS + (threadIdx.x >> 5); row < j.rows;
         row += (int64_t)gridDim.x * JOIN_WARPS) {
        float largest = -INFINITY;
        for (int32_t r = 0; r < j.ranks; r++) {
            largest = fmaxf(largest, j.logs[r * j.rows + row]);
        }
        const float base = largest == -INFINITY ? 0.0f : largest;
        for (int32_t column = lane * N; column < j.value_dim; column += 32 * N) {
            float out[N] = {0.0f}, total = 0.0f;
            for (int32_t r = 0; r < j.ranks; r++) {
                const float weight = exp2f(j.logs[r * j.rows + row] - base);
                const T *from = (const T *)j.results + (r * j.rows + row) * j.value_dim + column;
                __align__(16) T values[N];
                if (N == 4 && sizeof(T) == 2) {
                    *(uint2 *)(void *)values = *(const uint2 *)(const void *)from;
                } else if (N == 4) {
                    *(uint4 *)(void *)values = *(const uint4 *)(const void *)from;
                } else {
                    values[0] = from[0];
                }
                total += weight;
#pragma unroll
                for (int i = 0; i < N; i++) {
                    out[i] += weight * to_float(values[i]);
                }
            }
            if (j.sinks != NULL && total > 0.0f) {
                total += exp2f(j.sinks[row % j.heads] * LOG2_E - base);
            }
            const float scale = total == 0.0f ? 0.0f : 1.0f / total;
            T *to = (T *)j.out + row * j.value_dim + column;
#pragma unroll
            for (int i = 0; i < N; i++) {
                to[i] = from_float<T>(out[i] * scale);
            }
        }
    }
}

bool trm_cuda_attention_join_accepts(const trm_kernel_call *call)
{
    trm_attention_join_shape s;
    const trm_dtype dtype = call->outputs[0].dtype;
    return trm_attention_join_describe(call, &s) && (dtype == TRM_F32 || dtype == TRM_F16 || dtype == TRM_BF16) &&
           s.heads <= INT32_MAX && s.value_dim <= INT32_MAX / 2;
}

trm_status trm_cuda_attention_join_run(const trm_kernel_call *call)
{
    trm_attention_join_shape s;
    if (!trm_attention_join_describe(call, &s) || trm_dims_count(&call->outputs[0].dims) == 0) {
        return TRM_OK;
    }
    const join_call j = {
        call->inputs[TRM_ATTENTION_JOIN_RESULTS].data,
        (const float *)call->inputs[TRM_ATTENTION_JOIN_LOGS].data,
        call->n_inputs > TRM_ATTENTION_JOIN_SINKS ? (const float *)call->inputs[TRM_ATTENTION_JOIN_SINKS].data : NULL,
        call->outputs[0].data,
        s.tokens * s.heads,
        (int32_t)s.heads,
        (int32_t)s.value_dim,
        s.ranks};
    const int64_t blocks = (j.rows + JOIN_WARPS - 1) / JOIN_WARPS;
    const unsigned grid = (unsigned)(blocks < 65536 ? blocks : 65536);
    const cudaStream_t stream = trm_cuda_stream(call->stream);
    if (s.value_dim % 4 == 0 && trm_aligned16(j.results) && trm_aligned16(j.out)) {
        DISPATCH_FLOAT(call->outputs[0].dtype, launch_overlapped(join_rows<T, 4>, grid, JOIN_WARPS * 32, 0, stream, j));
    } else {
        DISPATCH_FLOAT(call->outputs[0].dtype, launch_overlapped(join_rows<T, 1>, grid, JOIN_WARPS * 32, 0, stream, j));
    }
    return trm_cuda_launched("cuda.attention_join");
}
