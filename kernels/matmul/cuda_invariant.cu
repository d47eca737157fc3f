/*
 * Products whose rows do not depend on how many there are: every element is the same sum in the same order whatever
 * else is computed beside it. The weight [n, k] is the left operand of the tensor cores' instructions, rows of x their
 * columns, which do not influence each other. k falls into splits that depend on n and k alone; each is one chain of
 * instructions of 16 elements of k from zero, and their sums are added in the order of k. Tiles and who computes which
 * split vary with the number of rows; the chains do not. On Hopper instructions of a warp group take 8 to 256 columns;
 * that their sums do not depend on that is what kernels_gpu_invariant tests.
 */
#include "kernels/cuda/cluster.cuh"
#include "kernels/matmul/cuda_gemm.h"
#include "kernels/cuda/wgmma.cuh"

#define TILE_K      64  /* elements of k of a stage: 128 bytes */
#define PROCESSORS  132 /* of an H200 */
#define LEAST_SPLIT 256 /* elements of k */
#define GROUP       16  /* tiles of rows that pass over the same weights one beside the other */

/* Splits are blocks of a cluster. 8 rows on an H200, weights cold, us in 1 .. 8 splits:
 *   4096 x 4096   29.4 17.7 17.1 13.5 11.9 11.2 11.8 17.0
 *   6144 x 4096   31.6 23.6 17.7 15.1 22.4 21.7 20.5 18.5
 *   28672 x 4096  61.2 60.6 62.7 66.0 68.0 70.3 75.4 75.5
 */
#define MOST_SPLITS 7
#define BLOCKS      216 /* of 128 rows of the weight, at most where there are several splits */

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define HAS_WARP_GROUPS 1
#else
#define HAS_WARP_GROUPS 0
#endif

typedef struct invariant_args {
    const void *weight, *x, *bias;
    void *out;
    int64_t n, k, rows, row_x;
    int32_t per_split, blocks; /* of TILE_K: in a split, in k */
    int32_t splits;
    int32_t tiles_n, tiles_rows;
    trm_activation activation;
} invariant_args;

/* How a block works: two warp groups with 64 rows of the weight each, ROWS of x, STAGES of shared memory. WALK: it
 * walks over all splits; otherwise it has one, and the blocks of a cluster join theirs. */
template <int ROWS, int STAGES, bool WALK> struct invariant_form {
    static const int rows = ROWS, stages = STAGES, threads = 256, tile_n = 128;
    static const bool walk = WALK;
    static const bool single = ROWS > 128; /* no registers for a second set of sums: only if there is one split */
    static const int stage = (tile_n + ROWS) * TILE_K * 2; /* bytes, a multiple of 1024 */
    static const int sum_stride = tile_n + 4;              /* floats, where the sums lie in the stages' place */
    static const int sums = ROWS * sum_stride * 4;
    static const int bytes = (stage * stages > sums ? stage * stages : sums) + 1024; /* to begin at a multiple */
};

/* Starts the copies of COUNT rows from `first` on of a matrix [rows, k], `stride` elements apart, block `block` of k,
 * into a part of a stage, swizzled as a panel of wgmma.cuh; zeros outside. */
template <typename T, int COUNT, int THREADS>
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
            copy16_async(to + row * 128 + ((chunk ^ (row & 7)) << 4), valid ? at + i * (THREADS / 8) * stride : from,
                         valid);
        }
    }
}

#if HAS_WARP_GROUPS
/* sums [64, ROWS] of a warp group = (or +=) its rows of the weight times the rows of x, over one stage; in flight until
 * stages_wait. */
template <typename T, int ROWS>
static __device__ __forceinline__ void multiply_stage(float (&sums)[ROWS / 2], uint32_t weight, uint32_t x, bool first)
{
    wgmma_pin(sums);
    wgmma_begin();
#pragma unroll
    for (int step = 0; step < TILE_K / 16; step++) {
        wgmma_nt(sums, wgmma_operand<128>(weight + step * 32, 0), wgmma_operand<128>(x + step * 32, 0),
                 !first || step > 0, T());
    }
    wgmma_commit();
    wgmma_pin(sums);
}

template <int left, int N> static __device__ __forceinline__ void stages_wait(float (&sums)[N])
{
    wgmma_wait<left>();
    wgmma_pin(sums);
}
#else
/* The same by warps, 16 rows of the weight each. Lane (g, t) has k = 8 t .. 8 t + 7 of each 32: the first four for one
 * instruction, the last four for the next. */
template <typename T, int ROWS>
static __device__ __forceinline__ void multiply_stage(float (&sums)[ROWS / 2], uint32_t weight, uint32_t x, bool first)
{
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5 & 3, g = lane >> 2, t = lane & 3;
#pragma unroll
    for (int i = 0; i < ROWS / 2; i++) {
        sums[i] = first ? 0.0f : sums[i];
    }
#pragma unroll
    for (int half = 0; half < TILE_K / 32; half++) {
        const uint32_t place = (((half * 4 + t) ^ g) << 4) + g * 128;
        const uint4 low = load_shared16(weight + warp * 16 * 128 + place);
        const uint4 high = load_shared16(weight + (warp * 16 + 8) * 128 + place);
#pragma unroll
        for (int j = 0; j < ROWS / 8; j++) {
            float(&c)[4] = *(float(*)[4])(sums + 4 * j);
            const uint4 right = load_shared16(x + j * 8 * 128 + place);
            mma_16816(c, low.x, high.x, low.y, high.y, right.x, right.y, T());
            mma_16816(c, low.z, high.z, low.w, high.w, right.z, right.w, T());
        }
    }
}

template <int left, int N> static __device__ __forceinline__ void stages_wait(float (&sums)[N])
{
    (void)sums;
}
#endif

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
#pragma unroll
    for (int i = 0; i < 8; i++) {
        if (i < count) {
            to[i] = from_float<Out>(v[i]);
        }
    }
}

/* A tile of sums in shared memory, [row of x][row of the weight], with those of the cluster's other splits, as outputs.
 */
template <typename T, typename Out, typename F>
static __device__ __forceinline__ void join_and_store(const invariant_args &a, const float *tile, int rank, int64_t n0,
                                                      int64_t row0)
{
    const int blocks = F::walk ? 1 : a.splits;
    if (blocks > 1) {
        cluster_barrier();
    } else {
        __syncthreads();
    }
    for (int i = rank * F::threads + (int)threadIdx.x; i < F::rows * (F::tile_n / 8); i += blocks * F::threads) {
        const int row = i / (F::tile_n / 8), column = i % (F::tile_n / 8) * 8;
        if (row0 + row >= a.rows || n0 + column >= a.n) {
            continue;
        }
        float v[8];
        read_in(tile + row * F::sum_stride + column, 0, v);
#pragma unroll
        for (int b = 1; b < MOST_SPLITS; b++) {
            if (b < blocks) {
                float next[8];
                read_in(tile + row * F::sum_stride + column, b, next);
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

/*
 * F::rows rows of x by F::tile_n of the weight per block. Few rows: a cluster per tile, a split for each of its blocks,
 * whose sums are added through each other's shared memory; bound by reading the weight once, whose first stages are on
 * their way before the wait. Many: a block walks over the splits, with two sums for each output; bound by what the
 * tensor cores can be fed. A stage is filled again two products after its own, so that one is always in flight.
 */
template <typename T, typename Out, typename F>
static __global__ void __launch_bounds__(F::threads) multiply_invariant(const __grid_constant__ invariant_args a)
{
    extern __shared__ unsigned char shared[];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, group = warp >> 2, ahead = F::stages - 2;
    const T *weight = (const T *)a.weight, *x = (const T *)a.x;
    int64_t tile_n, tile_row;
    int rank = 0;
    if (F::walk) { /* groups of tiles of rows share the weights that they pass over */
        const int64_t per_group = (int64_t)a.tiles_n * GROUP, index = blockIdx.x / per_group;
        const int64_t left = a.tiles_rows - index * GROUP, width = left < GROUP ? left : GROUP;
        const int64_t within = blockIdx.x - index * per_group;
        tile_n = within / width;
        tile_row = index * GROUP + within % width;
    } else {
        rank = (int)(blockIdx.x % a.splits);
        tile_n = blockIdx.x / a.splits;
        tile_row = blockIdx.y;
    }
    const int64_t n0 = tile_n * F::tile_n, row0 = tile_row * F::rows;
    const int32_t first = rank * a.per_split, after = F::walk ? a.blocks : min(first + a.per_split, a.blocks);
    const uint32_t stages = (shared_address(shared) + 1023) / 1024 * 1024;
    start_next();
#pragma unroll
    for (int s = 0; s < ahead; s++) {
        if (first + s < after) {
            copy_rows<T, F::tile_n, F::threads>(stages + s * F::stage, weight, n0, a.n, a.k, a.k, first + s);
        }
    }
    wait_for_previous();
#pragma unroll
    for (int s = 0; s < ahead; s++) {
        if (first + s < after) {
            copy_rows<T, F::rows, F::threads>(stages + s * F::stage + F::tile_n * 128, x, row0, a.rows, a.row_x, a.k,
                                              first + s);
        }
        copies_commit();
    }
    float sums[F::rows / 2], totals[F::rows / 2];
    int stage = 0, filled = ahead;
    int32_t left = a.per_split; /* of this split */
    for (int32_t block = first; block < after; block++) {
        copies_wait<F::stages - 3>();
#if HAS_WARP_GROUPS
        fence_async();
#endif
        stages_wait<1>(sums);
        __syncthreads(); /* every thread's copies are there, and the stage filled next is free */
        const uint32_t at = stages + stage * F::stage;
        multiply_stage<T, F::rows>(sums, at + group * 64 * 128, at + F::tile_n * 128, left == a.per_split);
        if (block + ahead < after) {
            const uint32_t to = stages + filled * F::stage;
            copy_rows<T, F::tile_n, F::threads>(to, weight, n0, a.n, a.k, a.k, block + ahead);
            copy_rows<T, F::rows, F::threads>(to + F::tile_n * 128, x, row0, a.rows, a.row_x, a.k, block + ahead);
        }
        copies_commit();
        stage = stage + 1 == F::stages ? 0 : stage + 1;
        filled = filled + 1 == F::stages ? 0 : filled + 1;
        left--;
        if (F::walk && !F::single && (left == 0 || block + 1 == after)) {
            const bool only = block < a.per_split;
            stages_wait<0>(sums);
#pragma unroll
            for (int i = 0; i < F::rows / 2; i++) {
                totals[i] = only ? sums[i] : totals[i] + sums[i];
            }
            left = a.per_split;
        }
    }
    stages_wait<0>(sums);
    copies_wait<0>();
    __syncthreads(); /* the stages' memory holds the sums now, [row of x][row of the weight] */
    float *tile = (float *)(shared + (stages - shared_address(shared)));
#pragma unroll
    for (int i = 0; i < F::rows / 2; i++) {
        const int n = warp * 16 + (lane >> 2) + (i & 2) * 4, row = i / 4 * 8 + (lane & 3) * 2 + (i & 1);
        tile[row * F::sum_stride + n] = F::walk && !F::single ? totals[i] : sums[i];
    }
    join_and_store<T, Out, F>(a, tile, rank, n0, row0);
}

template <typename T, typename Out, typename F>
static trm_status launch_form(const invariant_args *given, bool early, cudaStream_t stream)
{
    invariant_args a = *given;
    a.tiles_n = (int32_t)((a.n + F::tile_n - 1) / F::tile_n);
    a.tiles_rows = (int32_t)((a.rows + F::rows - 1) / F::rows);
    const unsigned cluster = F::walk ? 1 : (unsigned)a.splits;
    cudaLaunchAttribute attributes[MOST_ATTRIBUTES] = {};
    cudaLaunchConfig_t config = {};
    config.gridDim = F::walk ? dim3((unsigned)a.tiles_n * (unsigned)a.tiles_rows)
                             : dim3((unsigned)a.tiles_n * cluster, (unsigned)a.tiles_rows);
    config.blockDim = dim3(F::threads);
    config.dynamicSmemBytes = F::bytes;
    config.stream = stream;
    config.attrs = attributes;
    config.numAttrs = launch_attributes(attributes, early, cluster);
    TRM_CUDA_TRY(
        cudaFuncSetAttribute(multiply_invariant<T, Out, F>, cudaFuncAttributeMaxDynamicSharedMemorySize, F::bytes));
    (void)cudaLaunchKernelEx(&config, multiply_invariant<T, Out, F>, a); /* trm_cuda_launched() sees the error */
    return trm_cuda_launched("cuda.matmul invariant");
}

/* Those of launch_rows. */
static const trm_invariant_form forms[] = {{8, false, MOST_SPLITS},
                                           {16, false, MOST_SPLITS},
                                           {32, false, MOST_SPLITS},
                                           {64, false, MOST_SPLITS},
                                           {128, false, MOST_SPLITS},
                                           {128, true, MOST_SPLITS},
                                           {256, true, 1}};

typedef invariant_form<128, 5, true> walking_form;
typedef invariant_form<256, 4, true> widest_form;

/* The form, or the one with the same sums where it cannot run: without clusters a block walks over several splits. */
static int32_t form_that_runs(int32_t form, int32_t splits)
{
    const bool runs = trm_cuda_has_clusters() ||
                      (forms[form].walk ? form == 5 || trm_cuda_block_memory() >= widest_form::bytes : splits == 1);
    return runs ? form : 5;
}

template <typename T, typename Out>
static trm_status launch_rows(const invariant_args *a, int32_t form, bool early, cudaStream_t stream)
{
    switch (form_that_runs(form, a->splits)) {
    case 0:
        return launch_form<T, Out, invariant_form<8, 5, false>>(a, early, stream);
    case 1:
        return launch_form<T, Out, invariant_form<16, 5, false>>(a, early, stream);
    case 2:
        return launch_form<T, Out, invariant_form<32, 5, false>>(a, early, stream);
    case 3:
        return launch_form<T, Out, invariant_form<64, 4, false>>(a, early, stream);
    case 4:
        return launch_form<T, Out, invariant_form<128, 4, false>>(a, early, stream);
    case 5:
        return launch_form<T, Out, walking_form>(a, early, stream);
    default:
        return launch_form<T, Out, widest_form>(a, early, stream);
    }
}

#define FORMS (int32_t)(sizeof(forms) / sizeof(forms[0]))

int32_t trm_cuda_invariant_forms(const trm_invariant_form **all)
{
    *all = forms;
    return FORMS;
}

int32_t trm_cuda_invariant_splits(int64_t n, int64_t k)
{
    const int64_t tiles = (n + 127) / 128, most = k / LEAST_SPLIT;
    int64_t splits = BLOCKS / tiles;
    splits = splits < most ? splits : most;
    return (int32_t)(splits < 1 ? 1 : splits < MOST_SPLITS ? splits : MOST_SPLITS);
}

bool trm_cuda_invariant_accepts(const trm_gemm *gemm)
{
    return gemm->batch == 1 && !gemm->transpose_a && gemm->transpose_b && gemm->k > 0 && gemm->k % 8 == 0 &&
           gemm->row_a % 8 == 0 && (gemm->in == TRM_BF16 || gemm->in == TRM_F16) &&
           (gemm->out == gemm->in || gemm->out == TRM_F32) && trm_aligned16(gemm->a) && trm_aligned16(gemm->b) &&
           gemm->n <= INT32_MAX && gemm->k <= INT32_MAX && gemm->m <= (int64_t)65535 * 8 &&
           trm_cuda_block_memory() >= walking_form::bytes;
}

trm_status trm_cuda_invariant_run_as(const trm_gemm *gemm, int32_t form, int32_t splits, cudaStream_t stream)
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
        return gemm->out == TRM_BF16 ? launch_rows<__nv_bfloat16, __nv_bfloat16>(&a, form, early, stream)
                                     : launch_rows<__nv_bfloat16, float>(&a, form, early, stream);
    }
    return gemm->out == TRM_F16 ? launch_rows<__half, __half>(&a, form, early, stream)
                                : launch_rows<__half, float>(&a, form, early, stream);
}

/* Of the forms that walk, the one that reads least if all blocks take as long: tiles of 256 rows if there is one
 * split, if the last of them are not too empty. 28672 x 4096 by 2048 rows: 1504 and 1263 us. */
static int32_t form_of_many(int64_t m, int64_t n, int32_t splits)
{
    const int64_t tiles_n = (n + 127) / 128;
    int32_t best = 5;
    int64_t least = INT64_MAX;
    for (int32_t form = 5; form < FORMS && splits <= forms[form].most_splits; form++) {
        const int64_t waves = (tiles_n * ((m + forms[form].rows - 1) / forms[form].rows) + PROCESSORS - 1) / PROCESSORS;
        const int64_t cost = waves * (128 + forms[form].rows);
        best = cost < least ? form : best;
        least = cost < least ? cost : least;
    }
    return best;
}

trm_status trm_cuda_invariant_run(const trm_gemm *gemm, cudaStream_t stream)
{
    const int64_t m = gemm->m, tiles = (gemm->n + 127) / 128 * ((m + 127) / 128);
    const int32_t splits = trm_cuda_invariant_splits(gemm->n, gemm->k);
    int32_t form = m <= 8 ? 0 : m <= 16 ? 1 : m <= 32 ? 2 : m <= 64 ? 3 : 4;
    if (m > 128 && tiles >= PROCESSORS) {
        form = form_of_many(m, gemm->n, splits);
    }
    return trm_cuda_invariant_run_as(gemm, form, splits, stream);
}
