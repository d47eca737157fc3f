/*
 * Tens to thousands of rows against a quantized weight [n, k], on Hopper: weight and rows of x come into shared memory
 * by tensor copies, numbers of the weight become bf16 in registers, exactly, as the left operand of a warp group's
 * products, and sums are in units of the scale of their weight row's last block: a new scale changes the unit. So the
 * weight is not rounded, and many rows need no more accumulators than those of their sums.
 *
 * A tile is 128 rows of the weight by up to 256 of x. Where tiles are fewer than the GPU has room for, blocks of a
 * cluster have a part of k each and add up through each other's shared memory. Otherwise blocks walk over tiles; two
 * neighbours in n then share x, of which each brings half for both. Of each block one thread brings operands through a
 * ring of stages, and two warp groups have 64 rows of the weight each: one makes left operands while the other's are
 * multiplied.
 *
 * By instructions bound up to some 64 rows (3 for two numbers, 5 in e4m3), by the tensor cores above.
 */
#include "kernels/cuda/cluster.cuh"
#include "kernels/cuda/hopper.h"
#include "kernels/cuda/stage_ring.cuh"
#include "kernels/cuda/wgmma.cuh"
#include "kernels/dequant/cuda_load.cuh"
#include "kernels/dequant/cuda_tiles.h"

#pragma nv_diag_suppress 177 /* compiled for other GPUs, no kernel calls these functions */

#define TILE_N      128 /* rows of the weight */
#define TURN        64  /* elements of k that are made and multiplied together */
#define ROW_BYTES   64  /* of the weight in a stage */
#define CONSUMERS   8   /* warps */
#define COMPUTING   (32 * CONSUMERS)
#define THREADS     (128 + COMPUTING)
#define MOST_SPLITS 8
#define PIECE       16           /* rows of x whose outputs are stored together where blocks walk over tiles */
#define SUM_STRIDE  (TILE_N + 4) /* floats, from a row of x to the next where sums lie in shared memory */
#define GROUP       8            /* tiles of x that are taken in turn, so that a weight's tile meets them in L2 */

/* SHARE: blocks that share rows of x. */
template <typename W, int ROWS, int SHARE> struct tiles_form {
    static const int blocks = ROWS <= 64 ? 2 : 1; /* on a multiprocessor */
    static const int k = ROW_BYTES * 8 / W::bits; /* elements of a stage */
    static const int turns = k / TURN;            /* of a stage */
    static const int x_bytes = ROWS * k * 2;      /* in panels of 64 elements of k */
    static const int stage_bytes = x_bytes + TILE_N * ROW_BYTES;
    static const int pieces = PIECE * SUM_STRIDE * 4;
    static const int room = (blocks == 2 ? 113 : 227) * 1024 - 1024 - pieces - 256;
    static const int stages = room / stage_bytes < 12 ? room / stage_bytes : 12;
    static const int pieces_at = stages * stage_bytes, barriers_at = pieces_at + pieces;
    static const int bytes = barriers_at + 16 * stages + 1024; /* 1024: to align the panels */
    static_assert(ROWS * SUM_STRIDE * 4 <= pieces_at, "sums of splits take the stages' place");
};

typedef struct tiles_args {
    trm_dequant_gemm gemm;
    int32_t tiles_n, tiles_m; /* tiles_n: of blocks that share rows of x */
    int32_t splits, per_split, stages;
} tiles_args;

typedef struct tiles_maps {
    CUtensorMap weight, x;
} tiles_maps;

/* ---- which part of the product ---- */

struct tile_place {
    int32_t n0, row0;
};

template <int ROWS, int SHARE>
static __device__ __forceinline__ tile_place find_tile(const tiles_args &a, int32_t item, int32_t rank)
{
    const int32_t per = GROUP * a.tiles_n, group = item / per, in = item - group * per;
    const int32_t rows = min(GROUP, a.tiles_m - group * GROUP), n = in / rows;
    return {(n * SHARE + (SHARE > 1 ? rank : 0)) * TILE_N, (group * GROUP + in - n * rows) * ROWS};
}

/* ---- bringing operands ---- */

/* A box of x into the same place of both blocks that share it. */
static __device__ __forceinline__ void copy_shared_box(uint32_t to, const CUtensorMap *map, int32_t x, int32_t y,
                                                       uint32_t barrier)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
                 "[%1, {%2, %3, %4}], [%5], %6;"
                 :
                 : "r"(to), "l"(map), "r"(x), "r"(y), "r"(0), "r"(barrier), "h"((uint16_t)3)
                 : "memory");
}

template <int ROWS, int SHARE, typename F>
static __device__ void bring_operands(const tiles_args &a, const tiles_maps &maps, uint32_t base, int32_t rank,
                                      int32_t cluster, int32_t first, int32_t count)
{
    const int32_t items = a.tiles_n * a.tiles_m, mine = SHARE > 1 ? rank * (ROWS / SHARE) : 0;
    stage_ring<F> at(base, 1), early(base, 1);                   /* of a new barrier the phase of parity 1 has ended */
    int32_t ahead = a.gemm.constant ? min(F::stages, count) : 0; /* stages whose weight is on its way */
    const tile_place begin = find_tile<ROWS, SHARE>(a, blockIdx.x / cluster, rank);
    for (int32_t i = 0; i < ahead; i++) {
        barrier_arrive_expect(early.full(), F::stage_bytes);
        copy_box(early.weight(), &maps.weight, (first + i) * (ROW_BYTES / 2), begin.n0, 0, early.full());
        early.next();
    }
    wait_for_previous();
    for (int32_t item = blockIdx.x / cluster; item < items; item += gridDim.x / cluster) {
        const tile_place place = find_tile<ROWS, SHARE>(a, item, rank);
        for (int32_t i = first; i < first + count; i++, ahead--) {
            barrier_wait(at.empty(), at.parity);
            if (ahead <= 0) {
                barrier_arrive_expect(at.full(), F::stage_bytes);
                copy_box(at.weight(), &maps.weight, i * (ROW_BYTES / 2), place.n0, 0, at.full());
            }
#pragma unroll
            for (int p = 0; p < F::turns; p++) {
                const uint32_t to = at.x() + (p * ROWS + mine) * 128;
                if (SHARE > 1) {
                    copy_shared_box(to, &maps.x, i * F::k + p * TURN, place.row0 + mine, at.full());
                } else {
                    copy_box(to, &maps.x, i * F::k + p * TURN, place.row0, 0, at.full());
                }
            }
            at.next();
        }
    }
}

/* Gives a stage back to those that fill it. */
template <int SHARE> static __device__ __forceinline__ void release(uint32_t empty, int lane)
{
    if (SHARE == 1 && lane == 0) {
        barrier_arrive(empty);
    } else if (SHARE > 1 && lane < SHARE) {
        asm volatile("{ .reg .b32 at;\n"
                     "mapa.shared::cluster.u32 at, %0, %1;\n"
                     "mbarrier.arrive.shared::cluster.b64 _, [at]; }"
                     :
                     : "r"(empty), "r"(lane)
                     : "memory");
    }
}

/* ---- left operands ---- */

/* Of a warp's rows g and g + 8, the first in `row`: a turn's four steps. Numbers are in units of 1 / units(). */
static __device__ __forceinline__ void make_left(uint32_t (&left)[16], uint32_t weight, int turn, int row, int t,
                                                 const uint32_t (&minus)[2], weight_u4)
{
#pragma unroll
    for (int c = 0; c < 2; c++) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int at = row + 8 * h;
            const uint4 words = load_shared16(weight + at * ROW_BYTES + (((2 * turn + c) ^ (at >> 1 & 3)) << 4));
#pragma unroll
            for (int q = 0; q < 4; q++) { /* byte t of a word has numbers 2t and 2t + 1 */
                const uint32_t both = pick_bytes(word_of(words, q), 0, (uint32_t)t * 0x1111u) & 0x00f0000fu;
                const uint32_t scale = nibble_form<__nv_bfloat16>::from_low & 0xffffu |
                                       nibble_form<__nv_bfloat16>::from_high & 0xffff0000u;
                left[(2 * c + q / 2) * 4 + (q & 1) * 2 + h] = multiply_add2(both, scale, minus[h], __nv_bfloat16());
            }
        }
    }
}

/* (bits & mask) | other in one instruction. */
template <uint32_t mask> static __device__ __forceinline__ uint32_t and_or(uint32_t bits, uint32_t other)
{
    uint32_t r;
    asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(r) : "r"(bits), "n"(mask), "r"(other));
    return r;
}

/* Two numbers of a row as bf16: 8 bits are a multiple of the smallest bf16, too. */
static __device__ __forceinline__ uint32_t pair_of(uint32_t bytes, weight_i8)
{
    const uint32_t plus_128 = pick_bytes(bytes, 0, 0x4140) ^ 0x00800080u;
    return multiply_add2(plus_128, nibble_form<__nv_bfloat16>::from_low, 0xc000c000u, __nv_bfloat16()); /* less 2 */
}
/* The bits of an e4m3 where a bf16 has its lower exponent bits are the number times 2^-120. */
static __device__ __forceinline__ uint32_t pair_of(uint32_t bytes, weight_f8)
{
    const uint32_t high = pick_bytes(bytes, 0, 0x1404), sign = high & 0x80008000u;
    return multiply_add2(and_or<0x07f007f0u>(high >> 4, sign), 0x7b807b80u, 0x80008000u, __nv_bfloat16());
}

template <typename W>
static __device__ __forceinline__ void make_left(uint32_t (&left)[16], uint32_t weight, int, int row, int t,
                                                 const uint32_t (&)[2], W)
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int at = row + 8 * h;
#pragma unroll
        for (int q = 0; q < 8; q++) { /* eights of columns */
            const uint32_t address = weight + at * ROW_BYTES + (((q >> 1) ^ (at >> 1 & 3)) << 4) + (q & 1) * 8 + 2 * t;
            uint32_t bytes;
            asm volatile("ld.shared.u16 %0, [%1];" : "=r"(bytes) : "r"(address) : "memory");
            left[(q >> 1) * 4 + (q & 1) * 2 + h] = pair_of(bytes, W());
        }
    }
}

static __device__ __forceinline__ float number_units(weight_u4)
{
    return 64.0f;
}
static __device__ __forceinline__ float number_units(weight_i8)
{
    return 64.0f;
}
static __device__ __forceinline__ float number_units(weight_f8)
{
    return 1.0f;
}

/* Scales and zeros of a lane's two rows as they were loaded. */
struct lane_scales {
    uint32_t scale[2], zero[2];
};

static __device__ __forceinline__ lane_scales load_scales(const trm_dequant_gemm &gemm, const lane_rows &rows,
                                                          int32_t column)
{
    lane_scales s = {};
    const uint32_t at = (uint32_t)min(column, (int32_t)gemm.scale_row - 1);
#pragma unroll
    for (int h = 0; h < 2; h++) {
        s.scale[h] = load_scale_bits(gemm, rows.scale[h] + at * scale_size(gemm));
        if (gemm.zero != NULL) {
            s.zero[h] = load_zero(rows.zero[h] + at);
        }
    }
    return s;
}

/* As good as 0 if it is 0, so that others can be divided by it. */
static __device__ __forceinline__ float unit_of(const trm_dequant_gemm &gemm, uint32_t bits)
{
    const float scale = scale_of(gemm, bits);
    return fabsf(scale) < 1e-30f ? 1e-30f : scale;
}

static __device__ __forceinline__ void take_zeros(const trm_dequant_gemm &gemm, const lane_scales &s,
                                                  uint32_t (&minus)[2])
{
    const uint32_t eight = nibble_form<__nv_bfloat16>::minus_eight;
    minus[0] = gemm.zero != NULL ? minus_zero<__nv_bfloat16, true>(s.zero[0]) : eight;
    minus[1] = gemm.zero != NULL ? minus_zero<__nv_bfloat16, true>(s.zero[1]) : eight;
}

/* ---- products ---- */

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
/* What a lane knows of its rows from turn to turn. */
struct lane_units {
    float unit[2];      /* of its sums */
    uint32_t minus[2];  /* zeros */
    lane_scales coming; /* of the next block of k */
    int32_t column;     /* the number of this one */
};

/* Registers are what they are here: made before, not behind. */
static __device__ __forceinline__ void pin_left(uint32_t (&left)[16])
{
#pragma unroll
    for (int i = 0; i < 16; i++) {
        asm volatile("" : "+r"(left[i]) : : "memory");
    }
}

/* Sums are in units of the scales of the next block of k from now on. */
template <int N>
static __device__ __forceinline__ void change_unit(float (&sums)[N], lane_units &u, const trm_dequant_gemm &gemm,
                                                   const lane_rows &rows)
{
    float ratio[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const float scale = unit_of(gemm, u.coming.scale[h]);
        ratio[h] = __fdividef(u.unit[h], scale);
        u.unit[h] = scale;
    }
#pragma unroll
    for (int i = 0; i < N; i++) {
        sums[i] *= ratio[i >> 1 & 1];
    }
    u.column++;
    u.coming = load_scales(gemm, rows, u.column + 1);
}

/* One turn: multiplies by `left` while `next` is made for the one behind it. */
template <typename W, int ROWS, int SHARE, typename F>
static __device__ __forceinline__ void take_turn(float (&sums)[ROWS / 2], uint32_t (&left)[16], uint32_t (&next)[16],
                                                 lane_units &u, const trm_dequant_gemm &gemm, stage_ring<F> &at,
                                                 const lane_rows &rows, int32_t turn, int half, bool begins, bool last,
                                                 int row, int lane)
{
    const uint32_t x = at.x() + half * ROWS * 128, empty = at.empty();
    const bool ends = half == F::turns - 1; /* a stage */
    const bool changes = !last && ((turn + 1) * TURN) >> gemm.shift_k != u.column;
    wgmma_pin(sums);
    pin_left(left);
    wgmma_begin();
#pragma unroll
    for (int step = 0; step < TURN / 16; step++) {
        wgmma_nt(sums, left[4 * step], left[4 * step + 1], left[4 * step + 2], left[4 * step + 3],
                 wgmma_operand<128>(x + step * 32, 0), !begins || step > 0, __nv_bfloat16());
    }
    wgmma_commit();
    wgmma_pin(sums);
    if (ends) {
        at.next();
    }
    if (!last) {
        if (ends) {
            barrier_wait(at.full(), at.parity);
        }
        if (changes) {
            take_zeros(gemm, u.coming, u.minus);
        }
        make_left(next, at.weight(), F::turns > 1 ? half ^ 1 : 0, row, lane & 3, u.minus, W());
    }
    pin_left(next);
    wgmma_wait<0>();
    wgmma_pin(sums);
    pin_left(left);
    if (ends) {
        release<SHARE>(empty, lane);
    }
    if (changes) {
        change_unit(sums, u, gemm, rows);
    }
}

/* The sums of a tile over `count` stages from `first` on, by a warp group. */
template <typename W, int ROWS, int SHARE, typename F>
static __device__ __forceinline__ void multiply(float (&sums)[ROWS / 2], const trm_dequant_gemm &gemm,
                                                stage_ring<F> &at, const lane_rows &rows, int32_t first, int32_t count,
                                                int warp, int lane)
{
    const int32_t begin = first * F::turns, end = begin + count * F::turns;
    const int row = warp * 16 + (lane >> 2);
    uint32_t left[16], other[16] = {};
    lane_units u;
    u.column = (begin * TURN) >> gemm.shift_k;
    u.coming = load_scales(gemm, rows, u.column);
    u.unit[0] = unit_of(gemm, u.coming.scale[0]);
    u.unit[1] = unit_of(gemm, u.coming.scale[1]);
    take_zeros(gemm, u.coming, u.minus);
    u.coming = load_scales(gemm, rows, u.column + 1);
    barrier_wait(at.full(), at.parity);
    make_left(left, at.weight(), 0, row, lane & 3, u.minus, W());
    for (int32_t turn = begin; turn < end; turn += 2) {
        take_turn<W, ROWS, SHARE, F>(sums, left, other, u, gemm, at, rows, turn, 0, turn == begin, turn + 1 == end, row,
                                     lane);
        if (F::turns > 1 || turn + 1 < end) {
            take_turn<W, ROWS, SHARE, F>(sums, other, left, u, gemm, at, rows, turn + 1, F::turns - 1, false,
                                         turn + 2 == end, row, lane);
        }
    }
#pragma unroll
    for (int i = 0; i < ROWS / 2; i++) {
        sums[i] *= u.unit[i >> 1 & 1] * number_units(W());
    }
}
#endif

/* ---- results ---- */

/* Eight outputs of a row. */
static __device__ __forceinline__ void store_outputs(const trm_dequant_gemm &gemm, int row, int column, float (&v)[8])
{
    if (gemm.n % 8 == 0 && gemm.out != TRM_F32 && gemm.bias == NULL && ((uintptr_t)gemm.y & 15) == 0) {
        *(uint4 *)((char *)gemm.y + ((int64_t)row * (int)gemm.n + column) * 2) = pack16<__nv_bfloat16>(v);
        return;
    }
#pragma unroll
    for (int e = 0; e < 8; e++) {
        if (column + e < gemm.n) {
            store_output(gemm, row, column + e, v[e]);
        }
    }
}

/* The block's sums of N rows of x from number `from` on into shared memory: [row of x][row of the weight]. */
template <int N, int ROWS>
static __device__ __forceinline__ void put_sums(float *tile, const float (&sums)[ROWS / 2], int from, int warp,
                                                int lane)
{
#pragma unroll
    for (int i = 0; i < N / 2; i++) {
        const int row = i / 4 * 8 + (lane & 3) * 2 + (i & 1), n = warp * 16 + (lane >> 2) + (i & 2) * 4;
        tile[row * SUM_STRIDE + n] = sums[from / 2 + i];
    }
}

/* Sums of N rows of x as outputs, of all blocks of the cluster. */
template <int N>
static __device__ void join_splits(const tiles_args &a, const float *tile, const tile_place &place, int32_t rank,
                                   int thread)
{
    for (int i = rank * COMPUTING + thread; i < N * (TILE_N / 8); i += a.splits * COMPUTING) {
        const int row = i / (TILE_N / 8), column = i % (TILE_N / 8) * 8;
        float v[8] = {};
        if (place.row0 + row >= a.gemm.m || place.n0 + column >= a.gemm.n) {
            continue;
        }
#pragma unroll 4
        for (int b = 0; b < a.splits; b++) {
            float part[8];
            read_in(tile + row * SUM_STRIDE + column, b, part);
#pragma unroll
            for (int e = 0; e < 8; e++) {
                v[e] += part[e];
            }
        }
        store_outputs(a.gemm, place.row0 + row, place.n0 + column, v);
    }
}

/* All of a tile's sums as outputs, a piece at a time. */
template <int ROWS>
static __device__ __forceinline__ void store_tile(const tiles_args &a, const float (&sums)[ROWS / 2], float *tile,
                                                  const tile_place &place, int warp, int lane, int thread)
{
    const int row = thread / (TILE_N / 8), column = thread % (TILE_N / 8) * 8;
#pragma unroll
    for (int from = 0; from < ROWS; from += PIECE) {
        if (place.row0 + from < a.gemm.m) {
            named_sync(1, COMPUTING); /* all have read the piece before */
            put_sums<PIECE, ROWS>(tile, sums, from, warp, lane);
            named_sync(1, COMPUTING);
            if (place.row0 + from + row < a.gemm.m && place.n0 + column < a.gemm.n) {
                float v[8];
#pragma unroll
                for (int e = 0; e < 8; e++) {
                    v[e] = tile[row * SUM_STRIDE + column + e];
                }
                store_outputs(a.gemm, place.row0 + from + row, place.n0 + column, v);
            }
        }
    }
}

/* ---- the kernel ---- */

template <typename W, int ROWS, int SHARE>
static __global__ void __launch_bounds__(THREADS, tiles_form<W, ROWS, SHARE>::blocks)
    dequant_tiles(const __grid_constant__ tiles_args a, const __grid_constant__ tiles_maps maps)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ unsigned char shared[];
    typedef tiles_form<W, ROWS, SHARE> F;
    const uint32_t base = (shared_address(shared) + 1023) / 1024 * 1024;
    const int32_t cluster = SHARE > 1 ? SHARE : a.splits, rank = (int32_t)blockIdx.x % cluster;
    const int32_t first = SHARE > 1 ? 0 : rank * a.per_split, count = min(a.per_split, a.stages - first);
    if (threadIdx.x == 0) {
        stage_ring<F> at(base, 0);
        for (int i = 0; i < F::stages; i++) {
            barrier_init(at.full(), 1);
            barrier_init(at.empty(), CONSUMERS * SHARE);
            at.next();
        }
        barrier_init_done();
    }
    if (SHARE > 1) {
        cluster_barrier();
    } else {
        __syncthreads();
    }
    start_next();
    if (threadIdx.x < 128) {
        registers_shrink<F::blocks == 2 ? 32 : 40>();
        if (threadIdx.x == 0) {
            bring_operands<ROWS, SHARE, F>(a, maps, base, rank, cluster, first, count);
        }
        __syncwarp();
    } else {
        registers_grow<F::blocks == 2 ? 104 : 232>();
        const int thread = (int)threadIdx.x - 128, warp = thread >> 5, lane = thread & 31;
        const int32_t items = a.tiles_n * a.tiles_m;
        stage_ring<F> at(base, 0);
        float *stages = (float *)(shared + (base - shared_address(shared)));
        wait_for_previous();
        for (int32_t item = blockIdx.x / cluster; item < items; item += gridDim.x / cluster) {
            const tile_place place = find_tile<ROWS, SHARE>(a, item, rank);
            float sums[ROWS / 2];
            lane_rows rows;
            find_rows<W>(rows, a.gemm, place.n0 + warp * 16, lane);
            multiply<W, ROWS, SHARE, F>(sums, a.gemm, at, rows, first, count, warp, lane);
            if (SHARE == 1 && a.splits > 1) {
                named_sync(1, COMPUTING); /* all have read all stages, and sums take their place */
                put_sums<ROWS, ROWS>(stages, sums, 0, warp, lane);
                cluster_barrier();
                join_splits<ROWS>(a, stages, place, rank, thread);
                cluster_barrier(); /* the others may still read here */
            } else {
                store_tile<ROWS>(a, sums, stages + F::pieces_at / 4, place, warp, lane, thread);
            }
        }
    }
    if (SHARE > 1) { /* the other block may still write and arrive here */
        cluster_barrier();
    }
#endif
}

/* ---- launching ---- */

static trm_status map_rows(CUtensorMap *map, const void *data, int64_t pairs, int64_t rows, int box_pairs, int box_rows)
{
    const cuuint64_t dims[3] = {(cuuint64_t)pairs, (cuuint64_t)rows, 1};
    const cuuint64_t strides[2] = {dims[0] * 2, dims[0] * dims[1] * 2};
    const cuuint32_t box[3] = {(cuuint32_t)box_pairs, (cuuint32_t)box_rows, 1};
    const CUtensorMapSwizzle swizzle = box_pairs == TURN ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_64B;
    return trm_cuda_tensor_map(map, data, 3, dims, strides, box, swizzle, TRM_BF16);
}

template <typename W, int ROWS, int SHARE>
static trm_status launch_tiles(const trm_dequant_gemm *gemm, int splits, cudaStream_t stream)
{
    typedef tiles_form<W, ROWS, SHARE> F;
    tiles_args a = {};
    tiles_maps maps;
    const int64_t tiles_n = (gemm->n + TILE_N - 1) / TILE_N;
    a.gemm = *gemm;
    a.tiles_n = (int32_t)((tiles_n + SHARE - 1) / SHARE);
    a.tiles_m = (int32_t)((gemm->m + ROWS - 1) / ROWS);
    a.stages = (int32_t)((gemm->k + F::k - 1) / F::k);
    a.per_split = (a.stages + splits - 1) / splits;
    a.splits = (a.stages + a.per_split - 1) / a.per_split;
    TRM_TRY(map_rows(&maps.weight, gemm->weight, gemm->k * W::bits / 16, gemm->n, ROW_BYTES / 2, TILE_N));
    TRM_TRY(map_rows(&maps.x, gemm->x, gemm->k, gemm->m, TURN, ROWS / SHARE));
    const int32_t cluster = SHARE > 1 ? SHARE : a.splits, items = a.tiles_n * a.tiles_m;
    const int32_t most = trm_cuda_hopper_processors() * F::blocks / cluster;
    cudaLaunchAttribute attributes[MOST_ATTRIBUTES] = {};
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)((a.splits > 1 || items < most ? items : most) * cluster));
    config.blockDim = dim3(THREADS);
    config.dynamicSmemBytes = F::bytes;
    config.stream = stream;
    config.attrs = attributes;
    config.numAttrs = launch_attributes(attributes, true, (unsigned)cluster);
    TRM_CUDA_TRY(
        cudaFuncSetAttribute(dequant_tiles<W, ROWS, SHARE>, cudaFuncAttributeMaxDynamicSharedMemorySize, F::bytes));
    (void)cudaLaunchKernelEx(&config, dequant_tiles<W, ROWS, SHARE>, a, maps); /* trm_cuda_launched() sees the error */
    return trm_cuda_launched("cuda.dequant_matmul tiles");
}

#define PER_CLUSTERS 16 /* multiprocessors from which the blocks of a cluster are taken together */

/* As many splits as find room at the same time, with some stages each. */
template <typename W, int ROWS> static int splits_of(const trm_dequant_gemm *gemm)
{
    typedef tiles_form<W, ROWS, 1> F;
    const int64_t tiles = (gemm->n + TILE_N - 1) / TILE_N * ((gemm->m + ROWS - 1) / ROWS);
    const int64_t processors = trm_cuda_hopper_processors(), stages = gemm->k / F::k;
    int splits = (int)min((int64_t)MOST_SPLITS, min(processors * F::blocks / tiles, stages / (2 * TURN * 4 / F::k)));
    while (splits > 1 && tiles > processors / PER_CLUSTERS * (PER_CLUSTERS * F::blocks / splits)) {
        splits--;
    }
    return max(splits, 1);
}

template <typename W> static trm_status launch_type(const trm_dequant_gemm *gemm, cudaStream_t stream)
{
    if (gemm->m > 128) {
        const int splits = splits_of<W, 256>(gemm);
        return splits > 1 || gemm->n <= TILE_N ? launch_tiles<W, 256, 1>(gemm, splits, stream)
                                               : launch_tiles<W, 256, 2>(gemm, 1, stream);
    }
    return gemm->m <= 16   ? launch_tiles<W, 16, 1>(gemm, splits_of<W, 16>(gemm), stream)
           : gemm->m <= 32 ? launch_tiles<W, 32, 1>(gemm, splits_of<W, 32>(gemm), stream)
           : gemm->m <= 64 ? launch_tiles<W, 64, 1>(gemm, splits_of<W, 64>(gemm), stream)
                           : launch_tiles<W, 128, 1>(gemm, splits_of<W, 128>(gemm), stream);
}

bool trm_cuda_dequant_tiles_accepts(const trm_dequant_gemm *gemm)
{
    return trm_cuda_dequant_rows_accepts(gemm) && gemm->in == TRM_BF16 && gemm->weight_type != TRM_F4E2M1 &&
           (gemm->block_k >= TURN || gemm->block_k >= gemm->k) && gemm->m > 0 && trm_cuda_hopper_ready();
}

trm_status trm_cuda_dequant_tiles_run(const trm_dequant_gemm *gemm, cudaStream_t stream)
{
    const trm_dequant_gemm g = trm_dequant_shifted(gemm);
    return g.weight_type == TRM_F8E4M3 ? launch_type<weight_f8>(&g, stream)
           : g.weight_type == TRM_I8   ? launch_type<weight_i8>(&g, stream)
                                       : launch_type<weight_u4>(&g, stream);
}
