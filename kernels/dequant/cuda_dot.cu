/*
 * A row against a weight of 8 bits [n, k] by plain multiply-adds, which start and end faster than tensor cores: the
 * products of decoding for one sequence, bound by reading the weight.
 */
#include "kernels/dequant/cuda_load.cuh"

/* How a block of dequant_dot works, as matmul/cuda_gemv.cu's dot_form. */
template <int WARPS, int ROWS, int LOADS> struct dot_form {
    static const int warps = WARPS, rows = ROWS, loads = LOADS;
};

template <typename W, bool SCALED, typename F>
static __device__ __forceinline__ void load_dot(uint4 (&w)[F::rows][F::loads], uint32_t (&scale)[F::rows][F::loads],
                                                const trm_dequant_gemm &gemm, int64_t n0, int k0, int lane)
{
#pragma unroll
    for (int u = 0; u < F::loads; u++) {
        const int at = k0 + u * 32 * W::elements + lane * W::elements;
#pragma unroll
        for (int r = 0; r < F::rows; r++) {
            const int64_t row = min(n0 + r, gemm.n - 1);
            w[r][u] = load_once((const char *)gemm.weight + row * gemm.k + min(at, (int)gemm.k - W::elements));
            if (SCALED) {
                const int column = min(at >> gemm.shift_k, (int)gemm.scale_row - 1);
                scale[r][u] =
                    load_scale_bits(gemm, (const char *)gemm.scale + ((row >> gemm.shift_n) * gemm.scale_row + column) *
                                                                         (int64_t)scale_size(gemm));
            }
        }
    }
}

/* F::rows outputs of n per block, whose warps share k in turns. 16 bytes have one scale. */
template <typename T, typename W, bool SCALED, typename F>
static __global__ void __launch_bounds__(F::warps * 32) dequant_dot(const __grid_constant__ trm_dequant_gemm gemm)
{
    __shared__ float partial[F::warps][F::rows];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, turn = F::warps * F::loads * 32 * W::elements;
    const int64_t n0 = (int64_t)blockIdx.x * F::rows;
    const T *x = (const T *)gemm.x;
    float sums[F::rows] = {};
    uint4 w[F::rows][F::loads];
    uint32_t scale[F::rows][F::loads];
    int k0 = warp * (F::loads * 32 * W::elements);
    start_next();
    load_dot<W, SCALED, F>(w, scale, gemm, n0, k0, lane);
    wait_for_previous();
    while (k0 < (int)gemm.k) {
#pragma unroll
        for (int u = 0; u < F::loads; u++) {
            const int at = k0 + u * 32 * W::elements + lane * W::elements;
            float parts[F::rows] = {};
#pragma unroll
            for (int half = 0; half < 2; half++) {
                float v[8];
                const uint4 from = at < (int)gemm.k ? *(const uint4 *)(x + at + half * 8) : make_uint4(0, 0, 0, 0);
                unpack16<T>(from, v);
#pragma unroll
                for (int r = 0; r < F::rows; r++) {
                    float &to = SCALED ? parts[r] : sums[r];
#pragma unroll
                    for (int j = 0; j < 2; j++) {
                        float number[4];
                        floats_of(word_of(w[r][u], 2 * half + j), number, W());
#pragma unroll
                        for (int e = 0; e < 4; e++) {
                            to = fmaf(number[e], v[4 * j + e], to);
                        }
                    }
                }
            }
            if (SCALED) {
#pragma unroll
                for (int r = 0; r < F::rows; r++) {
                    sums[r] = fmaf(parts[r], scale_of(gemm, scale[r][u]), sums[r]);
                }
            }
        }
        k0 += turn;
        if (k0 < (int)gemm.k) {
            load_dot<W, SCALED, F>(w, scale, gemm, n0, k0, lane);
        }
    }
#pragma unroll
    for (int r = 0; r < F::rows; r++) {
        const float sum = warp_sum(sums[r]);
        if (lane == 0) {
            partial[warp][r] = sum;
        }
    }
    __syncthreads();
    const int r = (int)threadIdx.x;
    if (r < F::rows && n0 + r < gemm.n) {
        float sum = 0.0f;
        for (int i = 0; i < F::warps; i++) {
            sum += partial[i][r];
        }
        if (!SCALED) {
            sum *= scale_of(gemm, load_scale_bits(gemm, (const char *)gemm.scale +
                                                            ((n0 + r) >> gemm.shift_n) * (int64_t)scale_size(gemm)));
        }
        store_output(gemm, 0, (int)n0 + r, sum);
    }
}

template <typename T, typename W, bool SCALED, typename F>
static void launch_dot(const trm_dequant_gemm *gemm, cudaStream_t stream)
{
    launch_kernel(gemm->constant, dequant_dot<T, W, SCALED, F>, (unsigned)((gemm->n + F::rows - 1) / F::rows),
                  F::warps * 32, 0, stream, *gemm);
}

bool trm_cuda_dequant_dot_accepts(const trm_dequant_gemm *gemm)
{
    return gemm->m == 1 && gemm->weight_type != TRM_U8 && gemm->weight_type != TRM_F4E2M1 &&
           trm_cuda_dequant_rows_accepts(gemm);
}

/* Of some forty forms: where the weight has few rows, more warps share the longest. */
#define FEW_ROWS 6000
#define LONG     7168

template <typename T, typename W, bool SCALED>
static void launch_form(const trm_dequant_gemm *gemm, cudaStream_t stream)
{
    if (gemm->n < FEW_ROWS && gemm->k >= LONG) {
        launch_dot<T, W, SCALED, dot_form<8, 4, 1>>(gemm, stream);
    } else {
        launch_dot<T, W, SCALED, dot_form<4, 4, 1>>(gemm, stream);
    }
}

template <typename T, typename W> static void launch_scaled(const trm_dequant_gemm *gemm, cudaStream_t stream)
{
    if (gemm->block_k >= gemm->k) {
        launch_form<T, W, false>(gemm, stream);
    } else {
        launch_form<T, W, true>(gemm, stream);
    }
}

template <typename T> static void launch_type(const trm_dequant_gemm *gemm, cudaStream_t stream)
{
    if (gemm->weight_type == TRM_F8E4M3) {
        launch_scaled<T, weight_f8>(gemm, stream);
    } else {
        launch_scaled<T, weight_i8>(gemm, stream);
    }
}

trm_status trm_cuda_dequant_dot_run(const trm_dequant_gemm *gemm, cudaStream_t stream)
{
    const trm_dequant_gemm g = trm_dequant_shifted(gemm);
    if (g.in == TRM_BF16) {
        launch_type<__nv_bfloat16>(&g, stream);
    } else {
        launch_type<__half>(&g, stream);
    }
    return trm_cuda_launched("cuda.dequant_matmul dot");
}
