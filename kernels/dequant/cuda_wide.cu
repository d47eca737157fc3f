/*
 * Tens of rows against a quantized weight [n, k], on Hopper: numbers become 16-bit floats in registers, exactly, as the
 * left operand of a warp group's products; rows of x lie in shared memory in the order in which lanes have k. What a
 * block of k makes is scaled in f32. The weight is read once for every 64 rows.
 *
 * Two warp groups compute, each with two tiles of 64 rows of the weight in turn: while one is multiplied, numbers of
 * the other become floats. Each of their threads has a ring of its own in shared memory for its pieces of the weight,
 * so that bytes for several stages are in flight without registers or barriers. A third brings x.
 */
#include "kernels/cuda/cluster.cuh"
#include "kernels/cuda/hopper.h"
#include "kernels/dequant/cuda_load.cuh"
#include "kernels/cuda/wgmma.cuh"

#pragma nv_diag_suppress 177 /* compiled for other GPUs, no kernel calls these functions */

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define HAS_WARP_GROUPS 1
#else
#define HAS_WARP_GROUPS 0
#endif

#define GROUPS      2
#define TILES       2 /* of 64 rows of the weight, of a warp group */
#define TILE_N      (64 * TILES * GROUPS)
#define COMPUTING   (128 * GROUPS)
#define BRINGING    128
#define MOST_SPLITS 4            /* clusters of more of these blocks hardly find room together */
#define SUM_STRIDE  (TILE_N + 4) /* floats, from a row of x to the next where sums lie in shared memory */
#define DEPTH       6            /* stages of the weight: one is read, the others are in flight */
/* Bytes: of two rows of the weight, 16 for each thread, tile and stage; of their scales, or of their zeros. */
#define WEIGHT_RING (DEPTH * TILES * COMPUTING * 32)
#define WORD_RING   (DEPTH * TILES * COMPUTING * 8)

typedef struct wide_args {
    trm_dequant_gemm gemm;
    int32_t splits, per_split, loads; /* blocks of a cluster; stages: of a split, of k */
    int32_t of_scale;                 /* SCALE_LOAD: stages that share a scale, a power of two */
} wide_args;

/* A stage is 4 x 16 bytes of each row of the weight, and ROWS of x. */
template <typename W, int ROWS, bool ZERO> struct wide_sizes {
    static const int k = 4 * W::elements;
    static const int x_stages = W::bits == 8 ? 8 : 4; /* in shared memory */
    static const int own = ROWS * k / 8 / 32;         /* units of 8 elements of x that a lane brings of it */
    static const int batch = own > 4 ? 4 : own;       /* of them, loaded together */
    static const int stage = ROWS * k * 2;            /* bytes of x, in panels of 64 elements of k */
    static const int weight = x_stages * stage;       /* where rings begin */
    static const int scale = weight + WEIGHT_RING;
    static const int zero = scale + WORD_RING;
    static const int barriers = zero + (ZERO ? WORD_RING : 0);
    static const int bytes = barriers + 2 * x_stages * 8 + 1024;
    static_assert(ROWS * SUM_STRIDE * 4 <= barriers, "sums take the rings' place");
};

/* ---- x ---- */

/* Where a row of x and the slots of lane t of it begin in a panel; slot_at: where those of step s of 16 elements of k
 * are, `high` for the second pair. */
static __device__ __forceinline__ uint32_t row_slots(int row, int t)
{
    return (uint32_t)(row * 128 + ((row & 7) << 4) + t * 4);
}
template <int ROWS> static __device__ __forceinline__ uint32_t slot_at(uint32_t slots, int s, int high)
{
    return (uint32_t)((s >> 2) * ROWS * 128) + (slots ^ (uint32_t)(((s & 3) * 2 + high) << 4));
}

static __device__ __forceinline__ void store_word(uint32_t address, uint32_t word)
{
    asm volatile("st.shared.u32 [%0], %1;" : : "r"(address), "r"(word) : "memory");
}

/* A unit is a word of 4 bits (two steps) or two words of 8 (a step each). */
template <typename W, int ROWS>
static __device__ __forceinline__ void store_unit(uint32_t stage, uint32_t slots, int q, const uint4 &v)
{
    const bool nibbles = W::bits == 4;
    store_word(stage + slot_at<ROWS>(slots, 2 * q, 0), nibbles ? pick_bytes(v.x, v.z, 0x5410) : v.x);
    store_word(stage + slot_at<ROWS>(slots, 2 * q, 1), nibbles ? pick_bytes(v.x, v.z, 0x7632) : v.y);
    store_word(stage + slot_at<ROWS>(slots, 2 * q + 1, 0), nibbles ? pick_bytes(v.y, v.w, 0x5410) : v.z);
    store_word(stage + slot_at<ROWS>(slots, 2 * q + 1, 1), nibbles ? pick_bytes(v.y, v.w, 0x7632) : v.w);
}

/*
 * What a warp of the third warp group does: x of every fourth of `count` stages from `first` on, zeros for rows behind
 * the last. Lane (g, t) has 8 neighbouring elements at a time of rows g, g + 8, ... Nothing may be on its way at the
 * fence, which would wait for it.
 */
template <typename T, typename W, bool LANE, int ROWS, typename S>
static __device__ __forceinline__ void bring_x(const trm_dequant_gemm &gemm, uint32_t base, int64_t row0, int first,
                                               int count)
{
    const int warp = (threadIdx.x - COMPUTING) / 32, g = (threadIdx.x & 31) >> 2, t = threadIdx.x & 3;
    const int per_row = S::own / (ROWS / 8), batches = S::own / S::batch, ahead = batches < 3 ? batches : 3;
    const uint32_t filled = base + S::barriers, emptied = filled + S::x_stages * 8, slots = row_slots(g, t);
    const int64_t left = gemm.m - row0 - g; /* rows from the lane's first on */
    const T *x = (const T *)gemm.x + (row0 + g) * gemm.k + t * (LANE ? W::elements / 4 : W::elements);
    wait_for_previous();
    for (int stage = warp; stage < count; stage += BRINGING / 32) {
        const int place = stage % S::x_stages;
        const uint32_t to = base + place * S::stage;
        const T *from = x + (first + stage) * S::k;
        uint4 v[ahead][S::batch];
#pragma unroll
        for (int i = 0; i < S::own + ahead * S::batch; i++) {
            const int stored = i - ahead * S::batch;
            if (stored == 0) {
                barrier_wait(emptied + place * 8, (stage / S::x_stages & 1) ^ 1);
            }
            uint4 &unit = v[i / S::batch % ahead][i % S::batch];
            if (stored >= 0) {
                store_unit<W, ROWS>(to + stored / per_row * 1024, slots, stored % per_row, unit);
            }
            if (i < S::own) {
                const int row = i / per_row * 8, at = i % per_row * (LANE ? W::elements : 8);
                unit = row < left ? *(const uint4 *)(from + at) : make_uint4(0, 0, 0, 0);
                if (i % per_row == per_row - 1) {
                    from += 8 * gemm.k;
                    asm volatile("" : "+l"(from)); /* one pointer, not one for each row */
                }
            }
        }
        fence_async();
        barrier_arrive(filled + place * 8);
    }
}

/* ---- the weight ---- */

/* Starts a copy of the 4 bytes that hold what is there. */
static __device__ __forceinline__ void copy_word_async(uint32_t to, const void *from)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;"
                 :
                 : "r"(to), "l"((uintptr_t)from & ~(uintptr_t)3)
                 : "memory");
}

static __device__ __forceinline__ uint32_t load_shared4(uint32_t address)
{
    uint32_t v;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(address) : "memory");
    return v;
}

/* Where the scale of load i is in its row. */
template <typename W, scale_mode MODE>
static __device__ __forceinline__ uint32_t scale_column(const trm_dequant_gemm &gemm, int i, int t)
{
    const uint32_t at = MODE == SCALE_LANE ? (i * 4 + t) * W::elements : i * 4 * W::elements;
    return MODE == SCALE_ROW ? 0 : at >> gemm.shift_k;
}

/* Whether stage i of `count` from `first` on is the last of its scale's. In 4 bits each is, there are no registers for
 * more. */
template <typename W> static __device__ __forceinline__ bool ends_scale(const wide_args &a, int first, int i, int count)
{
    return W::bits == 4 || ((first + i + 1) & (a.of_scale - 1)) == 0 || i + 1 == count;
}

/* Load i of a tile's rows into the thread's places of the rings, their scales if the load is the last of them. */
template <typename W, scale_mode MODE, bool ZERO, typename S>
static __device__ __forceinline__ void start_load(const trm_dequant_gemm &gemm, const lane_rows &rows, uint32_t base,
                                                  int place, int tile, int i, int t, bool ends)
{
    const uint32_t column = scale_column<W, MODE>(gemm, i, t);
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const uint32_t number = ((place * TILES + tile) * 2 + h) * COMPUTING + threadIdx.x;
        copy16_async(base + S::weight + number * 16, rows.weight[h] + (uint32_t)i * 64, true);
        if (MODE == SCALE_LANE || (MODE == SCALE_LOAD && ends)) {
            copy_word_async(base + S::scale + number * 4, rows.scale[h] + column * scale_size(gemm));
        }
        if (ZERO) {
            copy_word_async(base + S::zero + number * 4, rows.zero[h] + column);
        }
    }
}

/* What start_load has brought. */
template <typename W, scale_mode MODE, bool ZERO, typename S>
static __device__ __forceinline__ void take_load(lane_load &load, const trm_dequant_gemm &gemm, const lane_rows &rows,
                                                 uint32_t base, int place, int tile, int i, int t)
{
    const uint32_t column = scale_column<W, MODE>(gemm, i, t);
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const uint32_t number = ((place * TILES + tile) * 2 + h) * COMPUTING + threadIdx.x;
        load.weight[h] = load_shared16(base + S::weight + number * 16);
        if (MODE != SCALE_ROW) {
            const uint32_t low = ((uint32_t)(uintptr_t)rows.scale[h] + column * scale_size(gemm)) & 2;
            load.scale[h] = load_shared4(base + S::scale + number * 4);
            load.scale[h] = gemm.scale_type == TRM_F32 ? load.scale[h] : load.scale[h] >> low * 8 & 0xffff;
        }
        if (ZERO) {
            const uint32_t low = ((uint32_t)(uintptr_t)rows.zero[h] + column) & 3;
            load.zero[h] = load_shared4(base + S::zero + number * 4) >> low * 8 & 0xff;
        }
    }
}

/* ---- products ---- */

/* A tile of 64 rows of the weight as a warp group works on it. */
template <typename W, scale_mode MODE, int ROWS> struct wide_tile {
    /* This many of a stage's 4 words of each row are multiplied together, as registers and scales allow. */
    static const int words = MODE == SCALE_LANE ? 1 : ROWS == 64 && (W::bits == 4 || MODE == SCALE_LOAD) ? 2 : 4;
    static const int turns = 4 / words;
    lane_load load;
    uint32_t left[words][2][W::bits == 4 ? 4 : 2];
    float totals[ROWS / 2], parts[ROWS / 2];
};

static __device__ __forceinline__ int row_of_tile(int n0, int warp, int tile)
{
    return n0 + (warp / 4 * TILES + tile) * 64 + warp % 4 * 16;
}

#if HAS_WARP_GROUPS
/* The left operands of a turn. */
template <typename T, typename W, scale_mode MODE, bool ZERO, int ROWS>
static __device__ __forceinline__ void make_left(wide_tile<W, MODE, ROWS> &tile, int turn, int lane)
{
    if (MODE == SCALE_LANE && turn == 0) {
        exchange_words(tile.load.weight[0], lane & 3);
        exchange_words(tile.load.weight[1], lane & 3);
    }
#pragma unroll
    for (int j = 0; j < tile.words; j++) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const uint32_t zero = ZERO && MODE == SCALE_LANE
                                      ? __shfl_sync(0xffffffffu, tile.load.zero[h], (lane & ~3) + turn)
                                      : tile.load.zero[h];
            const uint32_t word = word_of(tile.load.weight[h], turn * tile.words + j);
            pairs_of(word, minus_zero<T, ZERO>(zero), tile.left[j][h], W(), T());
        }
    }
}

/* Where a turn's products go. */
template <typename W, scale_mode MODE, int ROWS>
static __device__ __forceinline__ float (&sums_of(wide_tile<W, MODE, ROWS> &tile))[ROWS / 2]
{
    return MODE == SCALE_ROW ? tile.totals : tile.parts;
}

/* `anew`: what was scaled and added up is not added to again. */
template <typename T, typename W, scale_mode MODE, int ROWS>
static __device__ __forceinline__ void start_products(wide_tile<W, MODE, ROWS> &tile, uint32_t x, int turn, bool anew)
{
    const int steps = W::bits == 4 ? 2 : 1; /* of a word */
    wgmma_pin(sums_of(tile));
    wgmma_begin();
#pragma unroll
    for (int j = 0; j < tile.words; j++) {
#pragma unroll
        for (int s = 0; s < steps; s++) {
            const int step = (turn * tile.words + j) * steps + s;
            wgmma_nt(sums_of(tile), tile.left[j][0][2 * s], tile.left[j][1][2 * s], tile.left[j][0][2 * s + 1],
                     tile.left[j][1][2 * s + 1], wgmma_operand<128>(x + (step >> 2) * ROWS * 128 + (step & 3) * 32, 0),
                     j + s > 0 || !anew, T());
        }
    }
    wgmma_commit();
    wgmma_pin(sums_of(tile));
}

/* Waits until at most `left` turns are in flight; `ends`: what was made since scales changed is scaled and added up. */
template <typename T, scale_mode MODE, int ROWS, int left, typename W>
static __device__ __forceinline__ void end_products(wide_tile<W, MODE, ROWS> &tile, const trm_dequant_gemm &gemm,
                                                    int turn, int lane, bool ends)
{
    wgmma_wait<left>();
    wgmma_pin(sums_of(tile));
    if (MODE != SCALE_ROW && ends) {
        float scale[2];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            scale[h] = scale_of(gemm, tile.load.scale[h]) * units<T>(W());
            scale[h] = MODE == SCALE_LANE ? __shfl_sync(0xffffffffu, scale[h], (lane & ~3) + turn) : scale[h];
        }
#pragma unroll
        for (int i = 0; i < ROWS / 2; i++) {
            tile.totals[i] = fmaf(tile.parts[i], scale[i >> 1 & 1], tile.totals[i]);
        }
    }
}
#endif

/* ---- results ---- */

/* Eight outputs of a row. */
static __device__ __forceinline__ void store_outputs(const trm_dequant_gemm &gemm, int row, int column, float (&v)[8])
{
    if (gemm.n % 8 == 0 && gemm.out != TRM_F32 && gemm.bias == NULL && ((uintptr_t)gemm.y & 15) == 0) {
        uint4 *to = (uint4 *)((char *)gemm.y + ((int64_t)row * (int)gemm.n + column) * 2);
        *to = gemm.out == TRM_BF16 ? pack16<__nv_bfloat16>(v) : pack16<__half>(v);
        return;
    }
#pragma unroll
    for (int e = 0; e < 8; e++) {
        if (column + e < gemm.n) {
            store_output(gemm, row, column + e, v[e]);
        }
    }
}

/* Sums of all blocks of the cluster as outputs. */
static __device__ __forceinline__ void join_sums(const trm_dequant_gemm &gemm, const float *tile, int rows, int splits,
                                                 int rank, int64_t n0, int64_t row0)
{
    for (int i = rank * COMPUTING + (int)threadIdx.x; i < rows * (TILE_N / 8); i += splits * COMPUTING) {
        const int row = i / (TILE_N / 8), column = i % (TILE_N / 8) * 8;
        float v[MOST_SPLITS][8];
        if (row0 + row >= gemm.m || n0 + column >= gemm.n) {
            continue;
        }
#pragma unroll
        for (int b = 0; b < MOST_SPLITS; b++) { /* all on their way at once */
            if (b < splits) {
                read_in(tile + row * SUM_STRIDE + column, b, v[b]);
            }
        }
#pragma unroll
        for (int b = 1; b < MOST_SPLITS; b++) {
#pragma unroll
            for (int e = 0; e < 8; e++) {
                v[0][e] += b < splits ? v[b][e] : 0.0f;
            }
        }
        store_outputs(gemm, (int)row0 + row, (int)n0 + column, v[0]);
    }
}

/*
 * ROWS rows of x by TILE_N of the weight per block; the blocks of a cluster have a split of k each and add up through
 * each other's shared memory.
 */
template <typename T, typename W, scale_mode MODE, bool ZERO, int ROWS>
static __global__ void __launch_bounds__(COMPUTING + BRINGING, 1) dequant_wide(const __grid_constant__ wide_args a)
{
#if HAS_WARP_GROUPS
    extern __shared__ unsigned char shared[];
    typedef wide_sizes<W, ROWS, ZERO> S;
    const trm_dequant_gemm &gemm = a.gemm;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, t = lane & 3;
    const int rank = (int)(blockIdx.x % a.splits);
    const int64_t n0 = (int64_t)(blockIdx.x / a.splits) * TILE_N, row0 = (int64_t)blockIdx.y * ROWS;
    const int first = rank * a.per_split, count = min(a.per_split, a.loads - first);
    const uint32_t base = (shared_address(shared) + 1023) / 1024 * 1024;
    const uint32_t filled = base + S::barriers, emptied = filled + S::x_stages * 8;
    start_next();
    if (threadIdx.x == 0) {
        for (int i = 0; i < S::x_stages; i++) {
            barrier_init(filled + i * 8, 32);
            barrier_init(emptied + i * 8, COMPUTING / 32);
        }
        barrier_init_done();
    }
    __syncthreads();
    if (threadIdx.x >= COMPUTING) {
        registers_shrink<72>();
        bring_x<T, W, MODE == SCALE_LANE, ROWS, S>(gemm, base, row0, first, count);
        return;
    }
    registers_grow<216>();
    lane_rows rows[TILES];
#pragma unroll
    for (int i = 0; i < TILES; i++) {
        find_rows<W>(rows[i], gemm, row_of_tile((int)n0, warp, i), lane);
    }
#pragma unroll
    for (int u = 0; u < DEPTH - 1; u++) {
#pragma unroll
        for (int i = 0; i < TILES && u < count; i++) {
            start_load<W, MODE, ZERO, S>(gemm, rows[i], base, u, i, first + u, t, ends_scale<W>(a, first, u, count));
        }
        copies_commit();
    }
    wait_for_previous();
    wide_tile<W, MODE, ROWS> tiles[TILES];
#pragma unroll
    for (int i = 0; i < TILES * ROWS / 2; i++) {
        tiles[i / (ROWS / 2)].totals[i % (ROWS / 2)] = tiles[i / (ROWS / 2)].parts[i % (ROWS / 2)] = 0.0f;
    }
    int place = 0, last = DEPTH - 1; /* in the rings: of this stage, of the one before */
    copies_wait<DEPTH - 2>();
    take_load<W, MODE, ZERO, S>(tiles[0].load, gemm, rows[0], base, 0, 0, first, t);
    make_left<T, W, MODE, ZERO, ROWS>(tiles[0], 0, lane);
    for (int i = 0; i < count; i++) {
        const int stage = i % S::x_stages, after = place + 1 == DEPTH ? 0 : place + 1;
        const uint32_t x = base + stage * S::stage;
        const bool begins = i == 0 || ends_scale<W>(a, first, i - 1, count), ends = ends_scale<W>(a, first, i, count);
        barrier_wait(filled + stage * 8, i / S::x_stages & 1);
#pragma unroll
        for (int turn = 0; turn < tiles[0].turns; turn++) {
            const bool lanes = MODE == SCALE_LANE, scales = lanes || (ends && turn == tiles[0].turns - 1);
            const bool anew = lanes || (MODE == SCALE_LOAD && begins && turn == 0);
            start_products<T, W, MODE, ROWS>(tiles[0], x, turn, anew);
            if (turn == 0) {
                take_load<W, MODE, ZERO, S>(tiles[1].load, gemm, rows[1], base, place, 1, first + i, t);
            }
            make_left<T, W, MODE, ZERO, ROWS>(tiles[1], turn, lane);
            start_products<T, W, MODE, ROWS>(tiles[1], x, turn, anew);
            if (turn == 0) {
                const int next = i + DEPTH - 1;
                if (next < count) {
                    const bool next_ends = ends_scale<W>(a, first, next, count);
                    start_load<W, MODE, ZERO, S>(gemm, rows[0], base, last, 0, first + next, t, next_ends);
                    start_load<W, MODE, ZERO, S>(gemm, rows[1], base, last, 1, first + next, t, next_ends);
                }
                copies_commit();
            }
            end_products<T, MODE, ROWS, 1>(tiles[0], gemm, turn, lane, scales);
            if (turn + 1 < tiles[0].turns) {
                make_left<T, W, MODE, ZERO, ROWS>(tiles[0], turn + 1, lane);
            } else if (i + 1 < count) {
                copies_wait<DEPTH - 2>();
                take_load<W, MODE, ZERO, S>(tiles[0].load, gemm, rows[0], base, after, 0, first + i + 1, t);
                make_left<T, W, MODE, ZERO, ROWS>(tiles[0], 0, lane);
            }
            end_products<T, MODE, ROWS, 0>(tiles[1], gemm, turn, lane, scales);
        }
        if (lane == 0) {
            barrier_arrive(emptied + stage * 8);
        }
        last = place;
        place = after;
    }
    /* All have read all stages, and sums take their place: [row of x][row of the weight]. */
    copies_wait<0>();
    named_sync(1, COMPUTING);
    float *tile = (float *)(shared + (base - shared_address(shared)));
#pragma unroll
    for (int j = 0; j < TILES; j++) {
        float scale[2] = {1.0f, 1.0f};
        if (MODE == SCALE_ROW) {
            scale[0] = scale_of(gemm, load_scale_bits(gemm, rows[j].scale[0])) * units<T>(W());
            scale[1] = scale_of(gemm, load_scale_bits(gemm, rows[j].scale[1])) * units<T>(W());
        }
#pragma unroll
        for (int i = 0; i < ROWS / 2; i++) {
            const int n = row_of_tile(0, warp, j) + g + (i & 2) * 4, row = i / 4 * 8 + t * 2 + (i & 1);
            tile[row * SUM_STRIDE + n] = tiles[j].totals[i] * scale[i >> 1 & 1];
        }
    }
    if (a.splits > 1) {
        cluster_barrier();
    } else {
        named_sync(1, COMPUTING);
    }
    join_sums(gemm, tile, ROWS, a.splits, rank, n0, row0);
    if (a.splits > 1) {
        cluster_barrier(); /* the others may still read here */
    }
#endif
}

template <typename T, typename W, scale_mode MODE, bool ZERO, int ROWS>
static trm_status launch_wide(const trm_dequant_gemm *gemm, int splits, cudaStream_t stream)
{
    typedef wide_sizes<W, ROWS, ZERO> S;
    wide_args a = {};
    a.gemm = *gemm;
    a.loads = (int32_t)(gemm->k / S::k);
    a.of_scale = MODE == SCALE_LOAD ? (int32_t)(gemm->block_k / S::k) : 1;
    a.per_split = (a.loads + splits - 1) / splits;
    a.splits = (a.loads + a.per_split - 1) / a.per_split;
    cudaLaunchAttribute attributes[MOST_ATTRIBUTES] = {};
    cudaLaunchConfig_t config = {};
    config.gridDim =
        dim3((unsigned)((gemm->n + TILE_N - 1) / TILE_N) * (unsigned)a.splits, (unsigned)((gemm->m + ROWS - 1) / ROWS));
    config.blockDim = dim3(COMPUTING + BRINGING);
    config.dynamicSmemBytes = S::bytes;
    config.stream = stream;
    config.attrs = attributes;
    config.numAttrs = launch_attributes(attributes, gemm->constant, (unsigned)a.splits);
    TRM_CUDA_TRY(cudaFuncSetAttribute(dequant_wide<T, W, MODE, ZERO, ROWS>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      S::bytes));
    (void)cudaLaunchKernelEx(&config, dequant_wide<T, W, MODE, ZERO, ROWS>, a); /* trm_cuda_launched() sees the error */
    return trm_cuda_launched("cuda.dequant_matmul wide");
}

#define MULTIPROCESSORS 132 /* of an H200 */
#define PER_CLUSTERS    16  /* of them, from which the blocks of a cluster are taken together */

bool trm_cuda_dequant_wide_accepts(const trm_dequant_gemm *gemm)
{
    const bool blocks =
        gemm->weight_type == TRM_U8 || gemm->block_k >= 4 * weight_f8::elements || gemm->block_k >= gemm->k;
    return trm_cuda_dequant_rows_accepts(gemm) && blocks && gemm->weight_type != TRM_F4E2M1 &&
           trm_cuda_hopper_processors() > 0;
}

template <typename T, typename W, scale_mode MODE, bool ZERO>
static trm_status launch_form(const trm_dequant_gemm *gemm, cudaStream_t stream)
{
    const int64_t rows = gemm->m <= 16 ? 16 : gemm->m <= 32 ? 32 : 64;
    const int64_t tiles = (gemm->n + TILE_N - 1) / TILE_N * ((gemm->m + rows - 1) / rows);
    const int64_t most = min((int64_t)MOST_SPLITS, gemm->k / (16 * W::elements));
    int splits = (int)max((int64_t)1, min(MULTIPROCESSORS / tiles, most));
    while (splits > 1 && tiles > MULTIPROCESSORS / PER_CLUSTERS * (PER_CLUSTERS / splits)) {
        splits--;
    }
    return rows == 16   ? launch_wide<T, W, MODE, ZERO, 16>(gemm, splits, stream)
           : rows == 32 ? launch_wide<T, W, MODE, ZERO, 32>(gemm, splits, stream)
                        : launch_wide<T, W, MODE, ZERO, 64>(gemm, splits, stream);
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
