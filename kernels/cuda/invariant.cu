/*
 * Products whose rows do not depend on how many there are: every element is the same sum in the same order whatever
 * else is computed beside it. The weight [n, k] is the left operand of the tensor cores' instruction, rows of x its
 * columns, which do not influence each other. k falls into splits that depend on n and k alone; each is one chain of
 * m16n8k16 instructions from zero, and their sums are added in the order of k. Tiles and who computes which split vary
 * with the number of rows; the chains do not.
 */
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/mma.cuh"

#define TILE_N      128 /* rows of the weight of a block */
#define TILE_K      64  /* elements of k of a stage: 128 bytes */
#define THREADS     256
#define MOST_SPLITS 8   /* blocks of a cluster, which every device allows */
#define LEAST_SPLIT 256 /* elements of k */
#define BLOCKS      528 /* wanted in all: four per multiprocessor of an H200 */
#define GROUP       16  /* tiles of rows that pass over the same weights one beside the other */
#define SUM_STRIDE  (TILE_N + 4)

typedef struct invariant_args {
    const void *weight, *x, *bias;
    void *out;
    int64_t n, k, rows, row_x;
    int32_t per_split, blocks; /* of TILE_K: in a split, in k */
    int32_t splits;
    int32_t tiles_n, tiles_rows;
    trm_activation activation;
} invariant_args;

/* How a block of 8 warps works: ROWS of x, COLUMNS warps beside each other along them, STAGES of shared memory. WALK:
 * it walks over all splits; otherwise it has one, and the blocks of a cluster join theirs. */
template <int ROWS, int COLUMNS, int STAGES_, bool WALK> struct invariant_form {
    static const int rows = ROWS, stages = STAGES_;
    static const bool walk = WALK;
    static const int columns = COLUMNS;
    static const int tiles_m = TILE_N / 16 / (8 / COLUMNS), tiles_n = ROWS / 8 / COLUMNS; /* of a warp */
    static const int stage = (TILE_N + ROWS) * TILE_K * 2;                                /* bytes */
    static const int sums = ROWS * SUM_STRIDE * 4;
    static const int bytes = stage * stages > sums ? stage *stages : sums;
};

/* Where chunk `chunk` of 16 bytes of a row of a stage lies: odd rows swap halves, so that the loads of eight lanes, two
 * rows by four chunks, meet no bank twice. */
static __device__ __forceinline__ uint32_t place_in(int row, int chunk)
{
    return (uint32_t)(row * 128 + ((chunk ^ (row & 1) << 2) << 4));
}

static __device__ __forceinline__ uint4 load_shared(uint32_t address)
{
    uint4 v;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(address)
                 : "memory");
    return v;
}

/* Starts the copies of `count` rows from `first` on of a matrix [rows, k], `stride` elements apart, block `block` of k,
 * into a part of a stage; zeros outside. */
template <typename T, int COUNT>
static __device__ __forceinline__ void copy_rows(uint32_t to, const T *from, int64_t first, int64_t rows,
                                                 int64_t stride, int64_t k, int32_t block)
{
    const int chunk = (int)threadIdx.x & 7;
    const int64_t column = (int64_t)block * TILE_K + chunk * 8;
    const T *at = from + (first + (threadIdx.x >> 3)) * stride + column;
#pragma unroll
    for (int i = 0; i < (COUNT * 8 + THREADS - 1) / THREADS; i++) {
        const int row = i * (THREADS / 8) + ((int)threadIdx.x >> 3);
        if (COUNT * 8 % THREADS == 0 || row < COUNT) {
            const bool valid = first + row < rows && column < k;
            copy16_async(to + place_in(row, chunk), valid ? at + i * (THREADS / 8) * stride : from, valid);
        }
    }
}

/* sums += the weight's rows of this warp times its rows of x, over one stage. Lane (g, t) has k = 8 t .. 8 t + 7 of
 * each 32: the first four for one instruction, the last four for the next. */
template <typename T, typename F>
static __device__ __forceinline__ void multiply_stage(float (&sums)[F::tiles_m][F::tiles_n][4], uint32_t stage,
                                                      int warp_m, int warp_n, int lane)
{
    const int g = lane >> 2, t = lane & 3;
    const uint32_t weight = stage + warp_m * F::tiles_m * 16 * 128,
                   x = stage + (TILE_N + warp_n * F::tiles_n * 8) * 128;
#pragma unroll
    for (int half = 0; half < TILE_K / 32; half++) {
        uint4 low[F::tiles_m], high[F::tiles_m], right[F::tiles_n];
#pragma unroll
        for (int i = 0; i < F::tiles_m; i++) {
            low[i] = load_shared(weight + place_in(i * 16 + g, half * 4 + t));
            high[i] = load_shared(weight + place_in(i * 16 + g + 8, half * 4 + t));
        }
#pragma unroll
        for (int j = 0; j < F::tiles_n; j++) {
            right[j] = load_shared(x + place_in(j * 8 + g, half * 4 + t));
        }
#pragma unroll
        for (int i = 0; i < F::tiles_m; i++) {
#pragma unroll
            for (int j = 0; j < F::tiles_n; j++) {
                mma_16816(sums[i][j], low[i].x, high[i].x, low[i].y, high[i].y, right[j].x, right[j].y, T());
            }
        }
#pragma unroll
        for (int i = 0; i < F::tiles_m; i++) {
#pragma unroll
            for (int j = 0; j < F::tiles_n; j++) {
                mma_16816(sums[i][j], low[i].z, high[i].z, low[i].w, high[i].w, right[j].z, right[j].w, T());
            }
        }
    }
}

/* Eight floats at the same place of shared memory in block `block` of the cluster. */
static __device__ __forceinline__ void read_in(const float *place, int block, float (&to)[8])
{
    uint32_t mapped;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(mapped) : "r"(shared_address(place)), "r"(block));
#pragma unroll
    for (int i = 0; i < 2; i++) {
        asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                     : "=f"(to[4 * i]), "=f"(to[4 * i + 1]), "=f"(to[4 * i + 2]), "=f"(to[4 * i + 3])
                     : "r"(mapped + 16 * i)
                     : "memory");
    }
}

static __device__ __forceinline__ void cluster_barrier(void)
{
    asm volatile("barrier.cluster.arrive.release.aligned;" : : : "memory");
    asm volatile("barrier.cluster.wait.acquire.aligned;" : : : "memory");
}

/* Eight neighbouring outputs of a row. */
template <typename T, typename Out>
static __device__ __forceinline__ void store_outputs(const invariant_args &a, int64_t row, int64_t n, float (&v)[8])
{
    const int count = a.n - n < 8 ? (int)(a.n - n) : 8;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        if (a.bias != NULL && i < count) {
            v[i] += to_float(((const T *)a.bias)[n + i]);
        }
        v[i] = activate(a.activation, v[i]);
    }
    Out *to = (Out *)a.out + row * a.n + n;
    if (a.n % 8 == 0 && ((uintptr_t)a.out & 15) == 0) {
        store8(to, v);
        return;
    }
    for (int i = 0; i < count; i++) {
        to[i] = from_float<Out>(v[i]);
    }
}

/*
 * F::rows rows of x by 128 of the weight per block. Few rows: a cluster per tile, a split for each of its blocks, whose
 * sums are added through each other's shared memory; bound by reading the weight once, whose first stages are on their
 * way before the wait. Many: a block walks over the splits, with two sums for each output; bound by the tensor cores.
 */
template <typename T, typename Out, typename F>
static __global__ void __launch_bounds__(THREADS) multiply_invariant(const __grid_constant__ invariant_args a)
{
    extern __shared__ __align__(128) unsigned char shared[];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warp_n = warp % F::columns, warp_m = warp / F::columns;
    const T *weight = (const T *)a.weight, *x = (const T *)a.x;
    int64_t tile_n, tile_row;
    int rank = 0;
    if (F::walk) { /* groups of tiles of rows share the weights that they pass over */
        const int64_t per_group = (int64_t)a.tiles_n * GROUP, group = blockIdx.x / per_group;
        const int64_t left = a.tiles_rows - group * GROUP, width = left < GROUP ? left : GROUP;
        const int64_t within = blockIdx.x - group * per_group;
        tile_n = within / width;
        tile_row = group * GROUP + within % width;
    } else {
        rank = (int)(blockIdx.x % a.splits);
        tile_n = blockIdx.x / a.splits;
        tile_row = blockIdx.y;
    }
    const int64_t n0 = tile_n * TILE_N, row0 = tile_row * F::rows;
    const int32_t first = rank * a.per_split, after = F::walk ? a.blocks : min(first + a.per_split, a.blocks);
    const uint32_t stages = shared_address(shared);
    start_next();
#pragma unroll
    for (int s = 0; s < F::stages - 1; s++) {
        if (first + s < after) {
            copy_rows<T, TILE_N>(stages + s * F::stage, weight, n0, a.n, a.k, a.k, first + s);
        }
    }
    wait_for_previous();
#pragma unroll
    for (int s = 0; s < F::stages - 1; s++) {
        if (first + s < after) {
            copy_rows<T, F::rows>(stages + s * F::stage + TILE_N * 128, x, row0, a.rows, a.row_x, a.k, first + s);
        }
        copies_commit();
    }
    float sums[F::tiles_m][F::tiles_n][4] = {}, totals[F::tiles_m][F::tiles_n][4];
    int stage = 0, filled = F::stages - 1;
    int32_t end_of_split = a.per_split;
    for (int32_t block = first; block < after; block++) {
        copies_wait<F::stages - 2>();
        __syncthreads(); /* every thread's copies are there, and the stage filled next is free */
        if (block + F::stages - 1 < after) {
            const uint32_t to = stages + filled * F::stage;
            copy_rows<T, TILE_N>(to, weight, n0, a.n, a.k, a.k, block + F::stages - 1);
            copy_rows<T, F::rows>(to + TILE_N * 128, x, row0, a.rows, a.row_x, a.k, block + F::stages - 1);
        }
        copies_commit();
        multiply_stage<T, F>(sums, stages + stage * F::stage, warp_m, warp_n, lane);
        stage = stage + 1 == F::stages ? 0 : stage + 1;
        filled = filled + 1 == F::stages ? 0 : filled + 1;
        if (F::walk && (block + 1 == end_of_split || block + 1 == after)) {
#pragma unroll
            for (int i = 0; i < F::tiles_m; i++) {
#pragma unroll
                for (int j = 0; j < F::tiles_n; j++) {
#pragma unroll
                    for (int c = 0; c < 4; c++) {
                        totals[i][j][c] = end_of_split == a.per_split ? sums[i][j][c] : totals[i][j][c] + sums[i][j][c];
                        sums[i][j][c] = 0.0f;
                    }
                }
            }
            end_of_split += a.per_split;
        }
    }
    copies_wait<0>();
    __syncthreads(); /* the stages' memory holds the sums now, [row of x][row of the weight] */
    float *tile = (float *)shared;
#pragma unroll
    for (int i = 0; i < F::tiles_m; i++) {
#pragma unroll
        for (int j = 0; j < F::tiles_n; j++) {
#pragma unroll
            for (int c = 0; c < 4; c++) {
                const int n = (warp_m * F::tiles_m + i) * 16 + (lane >> 2) + (c >= 2 ? 8 : 0);
                const int row = (warp_n * F::tiles_n + j) * 8 + (lane & 3) * 2 + (c & 1);
                tile[row * SUM_STRIDE + n] = F::walk ? totals[i][j][c] : sums[i][j][c];
            }
        }
    }
    const int blocks = F::walk ? 1 : a.splits;
    if (blocks > 1) {
        cluster_barrier();
    } else {
        __syncthreads();
    }
    for (int i = rank * THREADS + (int)threadIdx.x; i < F::rows * (TILE_N / 8); i += blocks * THREADS) {
        const int row = i / (TILE_N / 8), column = i % (TILE_N / 8) * 8;
        if (row0 + row >= a.rows || n0 + column >= a.n) {
            continue;
        }
        float v[8];
        read_in(tile + row * SUM_STRIDE + column, 0, v);
#pragma unroll
        for (int b = 1; b < MOST_SPLITS; b++) {
            if (b < blocks) {
                float next[8];
                read_in(tile + row * SUM_STRIDE + column, b, next);
#pragma unroll
                for (int e = 0; e < 8; e++) {
                    v[e] += next[e];
                }
            }
        }
        store_outputs<T, Out>(a, row0 + row, n0 + column, v);
    }
    if (blocks > 1) {
        cluster_barrier(); /* the others may still read here */
    }
}

template <typename T, typename Out, typename F>
static trm_status launch_form(const invariant_args *given, bool early, cudaStream_t stream)
{
    invariant_args a = *given;
    a.tiles_n = (int32_t)((a.n + TILE_N - 1) / TILE_N);
    a.tiles_rows = (int32_t)((a.rows + F::rows - 1) / F::rows);
    const unsigned cluster = F::walk ? 1 : (unsigned)a.splits;
    cudaLaunchAttribute attributes[MOST_ATTRIBUTES] = {};
    cudaLaunchConfig_t config = {};
    config.gridDim = F::walk ? dim3((unsigned)a.tiles_n * (unsigned)a.tiles_rows)
                             : dim3((unsigned)a.tiles_n * cluster, (unsigned)a.tiles_rows);
    config.blockDim = dim3(THREADS);
    config.dynamicSmemBytes = F::bytes;
    config.stream = stream;
    config.attrs = attributes;
    config.numAttrs = launch_attributes(attributes, early, cluster, false);
    TRM_CUDA_TRY(
        cudaFuncSetAttribute(multiply_invariant<T, Out, F>, cudaFuncAttributeMaxDynamicSharedMemorySize, F::bytes));
    (void)cudaLaunchKernelEx(&config, multiply_invariant<T, Out, F>, a); /* trm_cuda_launched() sees the error */
    return trm_cuda_launched("cuda.matmul invariant");
}

template <typename T, typename Out>
static trm_status launch_rows(const invariant_args *a, int32_t width, bool walk, bool early, cudaStream_t stream)
{
    switch (width) {
    case 8:
        return launch_form<T, Out, invariant_form<8, 1, 4, false>>(a, early, stream);
    case 16:
        return launch_form<T, Out, invariant_form<16, 1, 4, false>>(a, early, stream);
    case 32:
        return launch_form<T, Out, invariant_form<32, 2, 4, false>>(a, early, stream);
    case 64:
        return launch_form<T, Out, invariant_form<64, 2, 4, false>>(a, early, stream);
    default:
        return walk ? launch_form<T, Out, invariant_form<128, 4, 4, true>>(a, early, stream)
                    : launch_form<T, Out, invariant_form<128, 4, 3, false>>(a, early, stream);
    }
}

int32_t trm_cuda_invariant_splits(int64_t n, int64_t k)
{
    const int64_t tiles = (n + TILE_N - 1) / TILE_N;
    int64_t splits = (BLOCKS + tiles - 1) / tiles, most = k / LEAST_SPLIT;
    splits = splits < most ? splits : most;
    return (int32_t)(splits < 1 ? 1 : splits < MOST_SPLITS ? splits : MOST_SPLITS);
}

bool trm_cuda_invariant_accepts(const trm_gemm *gemm)
{
    return gemm->batch == 1 && !gemm->transpose_a && gemm->transpose_b && gemm->k > 0 && gemm->k % 8 == 0 &&
           gemm->row_a % 8 == 0 && (gemm->in == TRM_BF16 || gemm->in == TRM_F16) &&
           (gemm->out == gemm->in || gemm->out == TRM_F32) && trm_aligned16(gemm->a) && trm_aligned16(gemm->b) &&
           gemm->n <= INT32_MAX && gemm->k <= INT32_MAX && gemm->m <= (int64_t)65535 * 8;
}

trm_status trm_cuda_invariant_run_as(const trm_gemm *gemm, int32_t width, bool walk, int32_t splits,
                                     cudaStream_t stream)
{
    invariant_args a = {};
    a.weight = gemm->b;
    a.x = gemm->a;
    a.bias = gemm->bias;
    a.out = gemm->c;
    a.n = gemm->n;
    a.k = gemm->k;
    a.rows = gemm->m;
    a.row_x = gemm->row_a;
    a.activation = gemm->activation;
    a.blocks = (int32_t)((gemm->k + TILE_K - 1) / TILE_K);
    a.per_split = (a.blocks + splits - 1) / splits;
    a.splits = (a.blocks + a.per_split - 1) / a.per_split;
    const bool early = gemm->constant_b; /* b is read before the wait */
    if (gemm->in == TRM_BF16) {
        return gemm->out == TRM_BF16 ? launch_rows<__nv_bfloat16, __nv_bfloat16>(&a, width, walk, early, stream)
                                     : launch_rows<__nv_bfloat16, float>(&a, width, walk, early, stream);
    }
    return gemm->out == TRM_F16 ? launch_rows<__half, __half>(&a, width, walk, early, stream)
                                : launch_rows<__half, float>(&a, width, walk, early, stream);
}

trm_status trm_cuda_invariant_run(const trm_gemm *gemm, cudaStream_t stream)
{
    const int64_t m = gemm->m, tiles = (gemm->n + TILE_N - 1) / TILE_N * ((m + 127) / 128);
    const int32_t width = m <= 8 ? 8 : m <= 16 ? 16 : m <= 32 ? 32 : m <= 64 ? 64 : 128;
    return trm_cuda_invariant_run_as(gemm, width, m > 128 && tiles >= BLOCKS / 4,
                                     trm_cuda_invariant_splits(gemm->n, gemm->k), stream);
}
