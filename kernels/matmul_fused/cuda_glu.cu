/*
 * The GLU of a product of some hundred rows on Hopper, [m, k] x [2 n, k] -> [m, n], as one kernel: 16-bit floats, sums
 * in f32. Bound by reading the weight once.
 *
 * A tile is F::rows rows of x by F::half rows of the gate's weight and as many of the up's, so that both factors of an
 * output end in the same thread. A block's first warp group brings both operands by tensor copies through a ring of
 * stages, the weight's first ones ahead of the wait for the kernel before; the others have 64 rows of x each. The two
 * blocks of a cluster have neighbouring rows of the weight and the same of x, of which each brings one half for both:
 * a block that read all of x itself would be bound by the L2 cache.
 */
#include "kernels/matmul/cuda_gemm.h"
#include "kernels/cuda/hopper.h"
#include "kernels/cuda/wgmma.cuh"

#pragma nv_diag_suppress 177 /* compiled for other GPUs, no kernel calls these functions */

#define TILE_K    64 /* elements of k of a stage: 128 bytes */
#define CLUSTER   2
#define TANGENT   1.5957691216057308f /* 2 sqrt(2 / pi) */
#define ROW_BYTES (TILE_K * 2)
#define OUT_ROW   256            /* bytes of a row on its way out, whose 16 are swizzled */
#define OUT_BYTES (16 * OUT_ROW) /* of a warp */

template <int HALF, int ROWS, int STAGES> struct glu_form {
    static const int half = HALF, rows = ROWS, stages = STAGES, sums = HALF; /* sums: registers of a thread */
    static const int consumers = ROWS / 16, threads = 128 + consumers * 32;  /* warps; threads */
    static const int half_bytes = HALF * ROW_BYTES, x_bytes = ROWS * ROW_BYTES;
    static const int stage_bytes = x_bytes + 2 * half_bytes;
    static const int barriers_at = STAGES * stage_bytes + consumers * OUT_BYTES;
    static const int shared = barriers_at + 16 * STAGES + 1024; /* 1024: to align the panels */
    static_assert(HALF % 16 == 0 && HALF <= 128 && half_bytes % 1024 == 0 && shared <= 227 * 1024, "panels and room");
};

typedef struct glu_args {
    void *out;
    int64_t m, n;
    int32_t blocks_k, tiles_m, items; /* blocks of TILE_K; tiles of a cluster in all */
    int32_t brought;                  /* rows of x that each block brings of a tile */
    bool early;                       /* the weight may be read before the wait */
    float linear, cubic;              /* of what the gate is squashed by: see gated_pair */
} glu_args;

typedef struct glu_maps {
    CUtensorMap x, weight;
} glu_maps;

/* One box into the stage of both blocks of a cluster, at the same place. */
static __device__ __forceinline__ void copy_box_to_both(uint32_t to, const CUtensorMap *map, int32_t x, int32_t y,
                                                        int32_t z, uint32_t barrier)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
                 "[%1, {%2, %3, %4}], [%5], %6;"
                 :
                 : "r"(to), "l"(map), "r"(x), "r"(y), "r"(z), "r"(barrier), "h"((uint16_t)((1 << CLUSTER) - 1))
                 : "memory");
}

/* At the same barrier of a block of the cluster. */
static __device__ __forceinline__ void barrier_arrive_at(uint32_t barrier, uint32_t block)
{
    asm volatile("{ .reg .b32 at;\n"
                 "mapa.shared::cluster.u32 at, %0, %1;\n"
                 "mbarrier.arrive.shared::cluster.b64 _, [at]; }"
                 :
                 : "r"(barrier), "r"(block)
                 : "memory");
}

static __device__ __forceinline__ void sync_cluster(void)
{
    asm volatile("barrier.cluster.arrive.release.aligned;" : : : "memory");
    asm volatile("barrier.cluster.wait.acquire.aligned;" : : : "memory");
}

/* Addresses in shared memory. */
template <typename F> struct glu_ring {
    uint32_t stages, barriers;
    __device__ __forceinline__ uint32_t stage(int i) const
    {
        return stages + i * F::stage_bytes;
    }
    __device__ __forceinline__ uint32_t full(int i) const
    {
        return barriers + 8 * i;
    }
    __device__ __forceinline__ uint32_t empty(int i) const
    {
        return barriers + 8 * (F::stages + i);
    }
};

/* The tiles of rows of x and of the weight that a block of the cluster has of item number `item`. */
static __device__ __forceinline__ void find_tiles(const glu_args &a, int32_t item, int32_t rank, int32_t *tile_m,
                                                  int32_t *tile_n)
{
    *tile_m = item % a.tiles_m;
    *tile_n = item / a.tiles_m * CLUSTER + rank;
}

/* ---- bringing operands ---- */

template <typename F>
static __device__ __forceinline__ void bring_weight(const glu_args &a, const glu_maps &maps, const glu_ring<F> &r,
                                                    int stage, int32_t block, int32_t tile_n)
{
    const uint32_t to = r.stage(stage) + F::x_bytes;
    barrier_arrive_expect(r.full(stage), (uint32_t)(2 * F::half_bytes + CLUSTER * a.brought * ROW_BYTES));
    copy_box(to, &maps.weight, block * TILE_K, tile_n * F::half, 0, r.full(stage));
    copy_box(to + F::half_bytes, &maps.weight, block * TILE_K, tile_n * F::half, 1, r.full(stage));
}

/* By one thread. */
template <typename F>
static __device__ void bring(const glu_args &a, const glu_maps &maps, const glu_ring<F> &r, int32_t rank)
{
    int32_t item = (int32_t)blockIdx.x / CLUSTER, tile_m, tile_n, ahead = 0;
    int stage = 0;
    uint32_t parity = 1; /* of a new barrier the phase of parity 1 has ended */
    find_tiles(a, item, rank, &tile_m, &tile_n);
    for (; a.early && ahead < F::stages && ahead < a.blocks_k; ahead++) {
        bring_weight<F>(a, maps, r, ahead, ahead, tile_n);
    }
    wait_for_previous();
    for (; item < a.items; item += (int32_t)gridDim.x / CLUSTER) {
        find_tiles(a, item, rank, &tile_m, &tile_n);
        for (int32_t block = 0; block < a.blocks_k; block++) {
            if (ahead > 0) {
                ahead--;
            } else {
                barrier_wait(r.empty(stage), parity);
                bring_weight<F>(a, maps, r, stage, block, tile_n);
            }
            const int32_t row = rank * a.brought;
            copy_box_to_both(r.stage(stage) + row * ROW_BYTES, &maps.x, block * TILE_K, tile_m * F::rows + row, 0,
                             r.full(stage));
            stage = stage + 1 == F::stages ? 0 : stage + 1;
            parity ^= stage == 0;
        }
    }
}

/* ---- products ---- */

/* Gives a stage back to those that fill it, in both blocks: each writes into both. */
template <typename F> static __device__ __forceinline__ void release(const glu_ring<F> &r, int stage, int lane)
{
    if (lane < CLUSTER) {
        barrier_arrive_at(r.empty(stage), (uint32_t)lane);
    }
}

template <typename T> static __device__ __forceinline__ float rounded(float x)
{
    return to_float(from_float<T>(x));
}

/* Two outputs: gate and up are rounded as a product's would be. Of a gate x both activations are x / (1 + exp(-x
 * (linear + cubic x^2))): SiLU with 1 and 0, GELU by its tangent with 2 sqrt(2 / pi) and 0.044715 times that. */
template <typename T>
static __device__ __forceinline__ uint32_t gated_pair(const glu_args &a, const float *gate, const float *up)
{
    float v[2];
#pragma unroll
    for (int e = 0; e < 2; e++) {
        const float x = rounded<T>(gate[e]), square = fminf(x * x, 1e30f); /* 0 times infinity is no number */
        v[e] = __fdividef(x, 1.0f + __expf(-x * (a.linear + a.cubic * square))) * rounded<T>(up[e]);
    }
    return pack2(v[0], v[1], T());
}

/* The outputs of a warp's 16 rows, through shared memory: lane (g, t) has elements 2t, 2t + 1 of each 8 of both
 * factors in rows g and g + 8. */
template <typename T, typename F>
static __device__ __forceinline__ void store_rows(const glu_args &a, uint32_t place, const float (&sums)[F::sums],
                                                  int64_t row0, int64_t n0, int lane)
{
    const int g = lane >> 2, t = lane & 3;
#pragma unroll
    for (int j = 0; j < F::half / 8; j++) {
        const uint32_t at = place + g * OUT_ROW + ((j ^ g) << 4) + 4 * t;
        const float *gate = sums + 4 * j, *up = sums + F::sums / 2 + 4 * j;
        asm volatile("st.shared.b32 [%0], %1;" : : "r"(at), "r"(gated_pair<T>(a, gate, up)) : "memory");
        asm volatile("st.shared.b32 [%0], %1;"
                     :
                     : "r"(at + 8 * OUT_ROW), "r"(gated_pair<T>(a, gate + 2, up + 2))
                     : "memory");
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < F::half / 16; i++) {
        const int at = i * 32 + lane, row = at / (F::half / 8), chunk = at % (F::half / 8);
        const uint4 v = load_shared16(place + row * OUT_ROW + ((chunk ^ (row & 7)) << 4));
        if (row0 + row < a.m && n0 + chunk * 8 < a.n) {
            *(uint4 *)((T *)a.out + (row0 + row) * a.n + n0 + chunk * 8) = v;
        }
    }
    __syncwarp();
}

template <typename T, typename F> static __device__ void multiply(const glu_args &a, const glu_ring<F> &r, int32_t rank)
{
    const int lane = threadIdx.x & 31, warp = ((int)threadIdx.x >> 5) - 4, group = warp >> 2;
    const uint32_t place = r.stage(F::stages) + warp * OUT_BYTES;
    int stage = 0;
    uint32_t parity = 0;
    for (int32_t item = (int32_t)blockIdx.x / CLUSTER; item < a.items; item += (int32_t)gridDim.x / CLUSTER) {
        float sums[F::sums];
        int32_t tile_m, tile_n;
        int last = 0;
        find_tiles(a, item, rank, &tile_m, &tile_n);
        for (int32_t block = 0; block < a.blocks_k; block++) {
            const uint32_t at = r.stage(stage);
            barrier_wait(r.full(stage), parity);
            wgmma_pin(sums);
            wgmma_begin();
#pragma unroll
            for (int step = 0; step < TILE_K / 16; step++) {
                wgmma_nt(sums, wgmma_operand<128>(at + group * 64 * ROW_BYTES + step * 32, 0),
                         wgmma_operand<128>(at + F::x_bytes + step * 32, 0), block > 0 || step > 0, T());
            }
            wgmma_commit();
            wgmma_pin(sums);
            if (block > 0) {
                wgmma_wait<1>();
                wgmma_pin(sums);
                release(r, last, lane);
            }
            last = stage;
            stage = stage + 1 == F::stages ? 0 : stage + 1;
            parity ^= stage == 0;
        }
        wgmma_wait<0>();
        wgmma_pin(sums);
        release(r, last, lane);
        const int64_t row0 = (int64_t)tile_m * F::rows + warp * 16, n0 = (int64_t)tile_n * F::half;
        if (row0 < a.m && n0 < a.n) { /* else a warp of rows that are not there, or the second block of an odd number */
            store_rows<T, F>(a, place, sums, row0, n0, lane);
        }
    }
}

template <typename T, typename F>
static __global__ void __launch_bounds__(F::threads, 1)
    multiply_glu(const __grid_constant__ glu_args a, const __grid_constant__ glu_maps maps)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ unsigned char shared[];
    const int32_t rank = (int32_t)blockIdx.x % CLUSTER;
    glu_ring<F> r;
    r.stages = (shared_address(shared) + 1023) / 1024 * 1024;
    r.barriers = r.stages + F::barriers_at;
    start_next();
    if (threadIdx.x == 0) {
        prefetch_map(&maps.x);
        prefetch_map(&maps.weight);
        for (int i = 0; i < F::stages; i++) {
            barrier_init(r.full(i), 1);
            barrier_init(r.empty(i), F::consumers * CLUSTER);
        }
        barrier_init_done();
    }
    sync_cluster();
    if (threadIdx.x < 128) {
        registers_shrink<40>();
        if (threadIdx.x == 0) {
            bring<F>(a, maps, r, rank);
        }
        __syncwarp();
    } else {
        registers_grow<232>();
        wait_for_previous();
        multiply<T, F>(a, r, rank);
    }
    sync_cluster(); /* the other block may still write and arrive here */
#endif
}

/* ---- launching ---- */

/* The map of `depth` matrices [rows, k], `row` elements from a row to the next, in boxes of a stage's columns. */
static trm_status make_map(CUtensorMap *map, const void *data, int64_t k, int64_t rows, int64_t row, int64_t depth,
                           int32_t box_rows, trm_dtype dtype)
{
    const cuuint64_t dims[3] = {(cuuint64_t)k, (cuuint64_t)rows, (cuuint64_t)depth};
    const cuuint64_t strides[2] = {(cuuint64_t)row * 2, (cuuint64_t)rows * (cuuint64_t)row * 2};
    const cuuint32_t box[3] = {TILE_K, (cuuint32_t)box_rows, 1};
    return trm_cuda_tensor_map(map, data, 3, dims, strides, box, CU_TENSOR_MAP_SWIZZLE_128B, dtype);
}

template <typename T, typename F> static trm_status launch_form(const trm_gemm *gemm, cudaStream_t stream)
{
    glu_args a = {};
    glu_maps maps;
    const int64_t tiles_n = (gemm->n + F::half - 1) / F::half;
    a.out = gemm->c;
    a.m = gemm->m;
    a.n = gemm->n;
    a.blocks_k = (int32_t)((gemm->k + TILE_K - 1) / TILE_K);
    a.tiles_m = (int32_t)((gemm->m + F::rows - 1) / F::rows);
    a.items = (int32_t)((tiles_n + CLUSTER - 1) / CLUSTER) * a.tiles_m;
    /* By whole eights, as a panel's rows are swizzled. Zeros for rows that are not there take longer than rows, and
     * what lies there instead concerns no row that is. */
    a.brought = a.tiles_m > 1 ? F::rows / CLUSTER : (int32_t)((gemm->m + 15) / 16 * 8);
    a.early = gemm->constant_b;
    a.linear = gemm->activation == TRM_ACTIVATION_SILU ? 1.0f : TANGENT;
    a.cubic = gemm->activation == TRM_ACTIVATION_SILU ? 0.0f : 0.044715f * TANGENT;
    TRM_TRY(make_map(&maps.x, gemm->a, gemm->k, gemm->m, gemm->row_a, 1, a.brought, gemm->in));
    TRM_TRY(make_map(&maps.weight, gemm->b, gemm->k, gemm->n, gemm->k, 2, F::half, gemm->in));
    const int32_t clusters = trm_cuda_hopper_processors() / CLUSTER;
    cudaLaunchAttribute attributes[MOST_ATTRIBUTES] = {};
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)(a.items < clusters ? a.items : clusters) * CLUSTER);
    config.blockDim = dim3(F::threads);
    config.dynamicSmemBytes = F::shared;
    config.stream = stream;
    config.attrs = attributes;
    config.numAttrs = launch_attributes(attributes, true, CLUSTER);
    TRM_CUDA_TRY(cudaFuncSetAttribute(multiply_glu<T, F>, cudaFuncAttributeMaxDynamicSharedMemorySize, F::shared));
    (void)cudaLaunchKernelEx(&config, multiply_glu<T, F>, a, maps); /* trm_cuda_launched() sees the error */
    return trm_cuda_launched("cuda.matmul_glu");
}

/* So wide tiles of the weight that the multiprocessors have as even shares as can be. */
static const int32_t halves[] = {128, 112, 96, 80, 64};

static int32_t best_half(const trm_gemm *gemm)
{
    const int64_t processors = trm_cuda_hopper_processors() / CLUSTER * CLUSTER;
    int32_t best = halves[0];
    int64_t least = INT64_MAX;
    for (size_t i = 0; i < sizeof(halves) / sizeof(halves[0]); i++) {
        const int64_t tiles = (gemm->n + halves[i] - 1) / halves[i];
        const int64_t longest = (tiles + processors - 1) / processors * halves[i];
        best = longest < least ? halves[i] : best;
        least = longest < least ? longest : least;
    }
    return best;
}

template <typename T, int ROWS> static trm_status launch_rows(const trm_gemm *gemm, cudaStream_t stream)
{
    switch (best_half(gemm)) {
    case 128:
        return launch_form<T, glu_form<128, ROWS, 4>>(gemm, stream);
    case 112:
        return launch_form<T, glu_form<112, ROWS, ROWS == 64 ? 5 : 4>>(gemm, stream);
    case 96:
        return launch_form<T, glu_form<96, ROWS, ROWS == 64 ? 6 : 4>>(gemm, stream);
    case 80:
        return launch_form<T, glu_form<80, ROWS, ROWS == 64 ? 7 : 5>>(gemm, stream);
    default:
        return launch_form<T, glu_form<64, ROWS, ROWS == 64 ? 8 : 6>>(gemm, stream);
    }
}

template <typename T> static trm_status launch(const trm_gemm *gemm, cudaStream_t stream)
{
    return gemm->m <= 64 ? launch_rows<T, 64>(gemm, stream) : launch_rows<T, 128>(gemm, stream);
}

bool trm_cuda_glu_product_accepts(const trm_gemm *gemm)
{
    return trm_cuda_hopper_ready() && gemm->batch == 1 && !gemm->transpose_a && gemm->transpose_b && gemm->k > 0 &&
           gemm->k % 8 == 0 && gemm->row_a % 8 == 0 && gemm->n % 8 == 0 && gemm->bias == NULL && !gemm->normed &&
           (gemm->activation == TRM_ACTIVATION_SILU || gemm->activation == TRM_ACTIVATION_GELU_TANH) &&
           (gemm->in == TRM_BF16 || gemm->in == TRM_F16) && gemm->out == gemm->in && trm_aligned16(gemm->a) &&
           trm_aligned16(gemm->b) && trm_aligned16(gemm->c) && gemm->n <= INT32_MAX / 2 && gemm->k <= INT32_MAX &&
           gemm->m <= INT32_MAX / 2;
}

trm_status trm_cuda_glu_product_run(const trm_gemm *gemm, cudaStream_t stream)
{
    return gemm->in == TRM_BF16 ? launch<__nv_bfloat16>(gemm, stream) : launch<__half>(gemm, stream);
}
