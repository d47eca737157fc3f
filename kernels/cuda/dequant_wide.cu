/*
 * Tens of rows against a quantized weight [n, k], on Hopper: numbers become 16-bit floats in registers, exactly, as the
 * left operand of a warp group's products; rows of x lie in shared memory in the order in which lanes have k. What a
 * block of k makes is scaled in f32. The weight is read once.
 */
#include "kernels/cuda/cluster.cuh"
#include "kernels/cuda/dequant_load.cuh"
#include "kernels/cuda/wgmma.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define HAS_WARP_GROUPS 1
#else
#define HAS_WARP_GROUPS 0
#endif

#define TILE_N      128 /* rows of the weight: 64 for each of two warp groups */
#define THREADS     256
#define MOST_SPLITS 8
#define SUM_STRIDE  (TILE_N + 4) /* floats, from a row of x to the next where sums lie in shared memory */

/* How a block works: ROWS of x, LOADS of 16 bytes in flight per lane and row of the weight, BLOCKS per multiprocessor.
 */
template <int ROWS, int LOADS, int BLOCKS> struct wide_form {
    static const int rows = ROWS, loads = LOADS, blocks = BLOCKS;
};

typedef struct wide_args {
    trm_dequant_gemm gemm;
    int32_t splits, per_split, loads; /* blocks of a cluster; of 4 x 16 bytes of a row: of a split, of k */
} wide_args;

template <typename W, typename F> struct wide_sizes {
    static const int k = 4 * W::elements;     /* of a stage */
    static const int units = F::rows * k / 8; /* of 8 elements of x in a stage */
    static const int own = (units + THREADS - 1) / THREADS;
    static const int stage = F::rows * k * 2; /* bytes, in panels of 64 elements of k */
    static const int sums = F::rows * SUM_STRIDE * 4;
    static const int bytes = (2 * stage > sums ? 2 * stage : sums) + 1024;
};

/* Unit u of a stage: 8 neighbouring elements of k, number q of lane t's, of a row of x. */
template <typename F> static __device__ __forceinline__ void unit_at(int u, int &row, int &q, int &t)
{
    t = u & 3;
    row = (u >> 2) % F::rows;
    q = (u >> 2) / F::rows;
}

template <typename T, typename W, bool LANE, typename F>
static __device__ __forceinline__ void load_x(uint4 (&to)[wide_sizes<W, F>::own], const trm_dequant_gemm &gemm,
                                              int64_t row0, int k0)
{
    typedef wide_sizes<W, F> S;
#pragma unroll
    for (int i = 0; i < S::own; i++) {
        const int u = i * THREADS + (int)threadIdx.x;
        int row, q, t;
        unit_at<F>(u, row, q, t);
        const int at = k0 + (LANE ? q * W::elements + t * (W::elements / 4) : t * W::elements + q * 8);
        const bool inside = (S::units % THREADS == 0 || u < S::units) && row0 + row < gemm.m && at < (int)gemm.k;
        to[i] = inside ? *(const uint4 *)((const T *)gemm.x + (row0 + row) * gemm.k + at) : make_uint4(0, 0, 0, 0);
    }
}

/* Where step s of 16 elements of k of row `row` begins, the slots of lane t of it; `high`: its second pair. */
static __device__ __forceinline__ uint32_t slot_of(uint32_t stage, int rows, int row, int s, int high, int t)
{
    const int panel = s >> 2, chunk = (s & 3) * 2 + high;
    return stage + (uint32_t)(panel * rows * 128 + row * 128 + ((chunk ^ (row & 7)) << 4) + t * 4);
}

static __device__ __forceinline__ void store_word(uint32_t address, uint32_t word)
{
    asm volatile("st.shared.u32 [%0], %1;" : : "r"(address), "r"(word) : "memory");
}

/* A unit is a word of 4 bits (two steps) or two words of 8 (a step each). */
template <typename W, typename F>
static __device__ __forceinline__ void store_x(uint32_t stage, const uint4 (&from)[wide_sizes<W, F>::own])
{
    typedef wide_sizes<W, F> S;
#pragma unroll
    for (int i = 0; i < S::own; i++) {
        const int u = i * THREADS + (int)threadIdx.x;
        int row, q, t;
        unit_at<F>(u, row, q, t);
        if (S::units % THREADS == 0 || u < S::units) {
            const uint4 v = from[i];
            const bool nibbles = W::bits == 4;
            store_word(slot_of(stage, F::rows, row, 2 * q, 0, t), nibbles ? pick_bytes(v.x, v.z, 0x5410) : v.x);
            store_word(slot_of(stage, F::rows, row, 2 * q, 1, t), nibbles ? pick_bytes(v.x, v.z, 0x7632) : v.y);
            store_word(slot_of(stage, F::rows, row, 2 * q + 1, 0, t), nibbles ? pick_bytes(v.y, v.w, 0x5410) : v.z);
            store_word(slot_of(stage, F::rows, row, 2 * q + 1, 1, t), nibbles ? pick_bytes(v.y, v.w, 0x7632) : v.w);
        }
    }
}

#if HAS_WARP_GROUPS
/* Takes base + zero off pairs of numbers of 4 bits. */
template <typename T, bool ZERO>
static __device__ __forceinline__ void subtract_base(uint32_t (&pairs)[4], uint32_t zero)
{
    uint32_t rest;
    const uint32_t base = minus_base<T>(ZERO ? zero : 8, rest) & 0x7fff7fffu;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        pairs[i] = subtract2(pairs[i], base, T());
        if (ZERO && nibble_base<T>::most < 255) { /* 128 or 0, in bf16 */
            pairs[i] = subtract2(pairs[i], rest != 0 ? 0x43004300u : 0, T());
        }
    }
}
template <typename T, bool ZERO> static __device__ __forceinline__ void subtract_base(uint32_t (&)[2], uint32_t)
{
}

/* totals += what a load of the weight and the stage of x make. */
template <typename T, typename W, scale_mode MODE, bool ZERO, typename F>
static __device__ __forceinline__ void multiply_stage(float (&totals)[F::rows / 2], lane_load &load,
                                                      const trm_dequant_gemm &gemm, uint32_t stage, int lane)
{
    const int steps = W::bits == 4 ? 2 : 1; /* of a word */
    uint32_t left[4][2][2 * steps];
    float parts[F::rows / 2];
    if (MODE == SCALE_LANE) {
        exchange_words(load.weight[0], lane & 3);
        exchange_words(load.weight[1], lane & 3);
    }
#pragma unroll
    for (int j = 0; j < 4; j++) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const uint32_t zero =
                ZERO && MODE == SCALE_LANE ? __shfl_sync(0xffffffffu, load.zero[h], (lane & ~3) + j) : load.zero[h];
            pairs_of(word_of(load.weight[h], j), left[j][h], W(), T());
            subtract_base<T, ZERO>(left[j][h], zero);
        }
    }
#pragma unroll
    for (int j = 0; j < 4; j++) {
        float(&to)[F::rows / 2] = MODE == SCALE_ROW ? totals : parts;
        if (MODE == SCALE_LANE || (MODE == SCALE_LOAD && j == 0)) {
#pragma unroll
            for (int i = 0; i < F::rows / 2; i++) {
                parts[i] = 0.0f;
            }
        }
        if (MODE == SCALE_LANE || j == 0) {
            wgmma_pin(to);
            wgmma_begin();
        }
#pragma unroll
        for (int s = 0; s < steps; s++) {
            const int step = j * steps + s;
            wgmma_nt(to, left[j][0][2 * s], left[j][1][2 * s], left[j][0][2 * s + 1], left[j][1][2 * s + 1],
                     wgmma_operand<128>(stage + (step >> 2) * F::rows * 128 + (step & 3) * 32, 0), T());
        }
        if (MODE == SCALE_LANE || j == 3) {
            wgmma_commit();
            wgmma_pin(to);
            wgmma_wait<0>();
            wgmma_pin(to);
        }
        if (MODE == SCALE_LANE || (MODE == SCALE_LOAD && j == 3)) {
            float scale[2];
#pragma unroll
            for (int h = 0; h < 2; h++) {
                scale[h] = scale_of(gemm, load.scale[h]);
                scale[h] = MODE == SCALE_LANE ? __shfl_sync(0xffffffffu, scale[h], (lane & ~3) + j) : scale[h];
            }
#pragma unroll
            for (int i = 0; i < F::rows / 2; i++) {
                totals[i] = fmaf(parts[i], scale[i >> 1 & 1], totals[i]);
            }
        }
    }
}
#endif

/* Sums of all blocks of the cluster as outputs. */
static __device__ __forceinline__ void join_sums(const trm_dequant_gemm &gemm, const float *tile, int rows, int splits,
                                                 int rank, int64_t n0, int64_t row0)
{
    for (int i = rank * THREADS + (int)threadIdx.x; i < rows * (TILE_N / 8); i += splits * THREADS) {
        const int row = i / (TILE_N / 8), column = i % (TILE_N / 8) * 8;
        float v[8];
        if (row0 + row >= gemm.m || n0 + column >= gemm.n) {
            continue;
        }
        read_in(tile + row * SUM_STRIDE + column, 0, v);
        for (int b = 1; b < splits; b++) {
            float next[8];
            read_in(tile + row * SUM_STRIDE + column, b, next);
#pragma unroll
            for (int e = 0; e < 8; e++) {
                v[e] += next[e];
            }
        }
#pragma unroll
        for (int e = 0; e < 8; e++) {
            if (n0 + column + e < gemm.n) {
                store_output(gemm, (int)row0 + row, (int)n0 + column + e, v[e]);
            }
        }
    }
}

/*
 * F::rows rows of x by TILE_N of the weight per block; the blocks of a cluster have a split of k each and add up
 * through each other's shared memory.
 */
template <typename T, typename W, scale_mode MODE, bool ZERO, typename F>
static __global__ void __launch_bounds__(THREADS, F::blocks) dequant_wide(const __grid_constant__ wide_args a)
{
#if HAS_WARP_GROUPS
    extern __shared__ unsigned char shared[];
    typedef wide_sizes<W, F> S;
    const trm_dequant_gemm &gemm = a.gemm;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, t = lane & 3;
    const int rank = (int)(blockIdx.x % a.splits);
    const int64_t n0 = (int64_t)(blockIdx.x / a.splits) * TILE_N, row0 = (int64_t)blockIdx.y * F::rows;
    const int first = rank * a.per_split, after = min(first + a.per_split, a.loads);
    const uint32_t stages = (shared_address(shared) + 1023) / 1024 * 1024;
    lane_load loads[F::loads];
    lane_rows rows;
    start_next();
    find_rows<W>(rows, gemm, (int)n0 + warp * 16, lane);
#pragma unroll
    for (int u = 0; u < F::loads; u++) {
        if (first + u < after) {
            load_rows<W, MODE, ZERO>(loads[u], gemm, rows, first + u, t);
        }
    }
    wait_for_previous();
    float totals[F::rows / 2];
#pragma unroll
    for (int i = 0; i < F::rows / 2; i++) {
        totals[i] = 0.0f;
    }
    uint4 x[S::own];
    load_x<T, W, MODE == SCALE_LANE, F>(x, gemm, row0, first * S::k);
    for (int load = first; load < after; load += F::loads) {
#pragma unroll
        for (int u = 0; u < F::loads; u++) {
            if (load + u < after) {
                const uint32_t stage = stages + (uint32_t)((load + u) & 1) * S::stage;
                store_x<W, F>(stage, x);
                load_x<T, W, MODE == SCALE_LANE, F>(x, gemm, row0,
                                                    load + u + 1 < after ? (load + u + 1) * S::k : (int)gemm.k);
                fence_async();
                __syncthreads(); /* the stage is filled, and the other one's products have ended */
                multiply_stage<T, W, MODE, ZERO, F>(totals, loads[u], gemm, stage, lane);
                if (load + u + F::loads < after) {
                    load_rows<W, MODE, ZERO>(loads[u], gemm, rows, load + u + F::loads, t);
                }
            }
        }
    }
    __syncthreads();
    /* The stages' memory holds the sums now, [row of x][row of the weight]. */
    float *tile = (float *)(shared + (stages - shared_address(shared)));
    float scale[2] = {1.0f, 1.0f};
    if (MODE == SCALE_ROW) {
        scale[0] = scale_of(gemm, load_scale_bits(gemm, rows.scale[0]));
        scale[1] = scale_of(gemm, load_scale_bits(gemm, rows.scale[1]));
    }
#pragma unroll
    for (int i = 0; i < F::rows / 2; i++) {
        const int n = warp * 16 + g + (i & 2) * 4, row = i / 4 * 8 + t * 2 + (i & 1);
        tile[row * SUM_STRIDE + n] = totals[i] * scale[i >> 1 & 1];
    }
    if (a.splits > 1) {
        cluster_barrier();
    } else {
        __syncthreads();
    }
    join_sums(gemm, tile, F::rows, a.splits, rank, n0, row0);
    if (a.splits > 1) {
        cluster_barrier(); /* the others may still read here */
    }
#endif
}

template <typename T, typename W, scale_mode MODE, bool ZERO, typename F>
static trm_status launch_wide(const trm_dequant_gemm *gemm, int splits, cudaStream_t stream)
{
    typedef wide_sizes<W, F> S;
    wide_args a = {};
    a.gemm = *gemm;
    a.loads = (int32_t)((gemm->k + S::k - 1) / S::k);
    a.per_split = (a.loads + splits - 1) / splits;
    a.splits = (a.loads + a.per_split - 1) / a.per_split;
    cudaLaunchAttribute attributes[MOST_ATTRIBUTES] = {};
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)((gemm->n + TILE_N - 1) / TILE_N) * (unsigned)a.splits,
                          (unsigned)((gemm->m + F::rows - 1) / F::rows));
    config.blockDim = dim3(THREADS);
    config.dynamicSmemBytes = S::bytes;
    config.stream = stream;
    config.attrs = attributes;
    config.numAttrs = launch_attributes(attributes, gemm->constant, (unsigned)a.splits);
    TRM_CUDA_TRY(
        cudaFuncSetAttribute(dequant_wide<T, W, MODE, ZERO, F>, cudaFuncAttributeMaxDynamicSharedMemorySize, S::bytes));
    (void)cudaLaunchKernelEx(&config, dequant_wide<T, W, MODE, ZERO, F>, a); /* trm_cuda_launched() sees the error */
    return trm_cuda_launched("cuda.dequant_matmul wide");
}

#define MULTIPROCESSORS 132 /* of an H200 */

static bool is_hopper(void)
{
    int device = 0, major = 0;
    return TRM_HAVE_SM90A && cudaGetDevice(&device) == cudaSuccess &&
           cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess && major == 9;
}

bool trm_cuda_dequant_wide_accepts(const trm_dequant_gemm *gemm)
{
    const bool blocks =
        gemm->weight_type == TRM_U8 || gemm->block_k >= 4 * weight_f8::elements || gemm->block_k >= gemm->k;
    return trm_cuda_dequant_rows_accepts(gemm) && blocks && is_hopper();
}

template <typename T, typename W, scale_mode MODE, bool ZERO>
static trm_status launch_form(const trm_dequant_gemm *gemm, cudaStream_t stream)
{
    const int64_t rows = gemm->m <= 16 ? 16 : gemm->m <= 32 ? 32 : 64;
    const int64_t tiles = (gemm->n + TILE_N - 1) / TILE_N * ((gemm->m + rows - 1) / rows);
    const int64_t fill = 2 * MULTIPROCESSORS / tiles, most = gemm->k / (16 * W::elements);
    const int64_t splits = max((int64_t)1, min(min(fill, most), (int64_t)MOST_SPLITS));
    if (rows == 16) {
        return launch_wide<T, W, MODE, ZERO, wide_form<16, 4, 2>>(gemm, (int)splits, stream);
    }
    if (rows == 32) {
        return launch_wide<T, W, MODE, ZERO, wide_form<32, 4, 2>>(gemm, (int)splits, stream);
    }
    return launch_wide<T, W, MODE, ZERO, wide_form<64, 2, 2>>(gemm, (int)splits, stream);
}

template <typename T, typename W> static trm_status launch_eight(const trm_dequant_gemm *gemm, cudaStream_t stream)
{
    return gemm->block_k >= gemm->k ? launch_form<T, W, SCALE_ROW, false>(gemm, stream)
                                    : launch_form<T, W, SCALE_LOAD, false>(gemm, stream);
}

template <typename T, bool ZERO> static trm_status launch_four(const trm_dequant_gemm *gemm, cudaStream_t stream)
{
    return gemm->block_k >= gemm->k                   ? launch_form<T, weight_u4, SCALE_ROW, ZERO>(gemm, stream)
           : gemm->block_k >= 4 * weight_u4::elements ? launch_form<T, weight_u4, SCALE_LOAD, ZERO>(gemm, stream)
                                                      : launch_form<T, weight_u4, SCALE_LANE, ZERO>(gemm, stream);
}

template <typename T> static trm_status launch_type(const trm_dequant_gemm *gemm, cudaStream_t stream)
{
    return gemm->weight_type == TRM_F8E4M3 ? launch_eight<T, weight_f8>(gemm, stream)
           : gemm->weight_type == TRM_I8   ? launch_eight<T, weight_i8>(gemm, stream)
           : gemm->zero != NULL            ? launch_four<T, true>(gemm, stream)
                                           : launch_four<T, false>(gemm, stream);
}

trm_status trm_cuda_dequant_wide_run(const trm_dequant_gemm *gemm, cudaStream_t stream)
{
    const trm_dequant_gemm g = trm_dequant_shifted(gemm);
    return g.in == TRM_BF16 ? launch_type<__nv_bfloat16>(&g, stream) : launch_type<__half>(&g, stream);
}
