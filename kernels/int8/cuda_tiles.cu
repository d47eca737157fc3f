/*
 * Products and convolutions of i8 on Hopper. A tile of the output is 64 or 128 rows (positions) by 32 to 256 columns
 * (channels). One thread brings operands through a ring of stages by tensor copies: rows of x, or the positions of one
 * tap of the windows, where copies put zeros outside the image; and rows of the weight. Behind the stages of a tile
 * comes one with its residual in i8. Warp groups with 64 rows each multiply. Blocks walk over tiles, so that copies of
 * the next ones run while sums become outputs.
 *
 * Rows of the weight lie in shared memory in such an order that a thread's sums are those of eight columns side by
 * side: what follows is done in registers, and whole sectors are read and written. Few tiles are split along k, by a
 * cluster whose blocks add up through shared memory.
 *
 * A block is its threads (warp groups and the copying warp), and a stage of rows + columns by 64 or 128 bytes of k.
 * Bound by tensor cores where k is long, by device memory in most convolutions.
 */
#include "kernels/cuda/cluster.cuh"
#include "kernels/cuda/hopper.h"
#include "kernels/cuda/overlap.cuh"
#include "kernels/cuda/stage_ring.cuh"
#include "kernels/cuda/wgmma.cuh"
#include "kernels/int8/cuda_tiles.h"

#pragma nv_diag_suppress 177 /* compiled for other GPUs, no kernel calls these functions */

#define MOST_STAGES 8
#define GROUP       32 /* columns whose order is changed, four threads have eight each */

template <int ROWS, int COLUMNS, int BYTES> struct tile_form {
    static const int computing = 2 * ROWS; /* threads */
    static const int threads = computing + 32;
    static const int blocks = COLUMNS > 128 ? 1 : ROWS *COLUMNS >= 128 * 128 ? 2 : 3; /* on a multiprocessor */
    static const int x_bytes = ROWS * BYTES, stage_bytes = x_bytes + COLUMNS * BYTES;
    static const int room = 227 * 1024 / blocks - 1024 - 1024 - 256 - 8 * COLUMNS;
    static const int stages = room / stage_bytes < MOST_STAGES ? room / stage_bytes : MOST_STAGES;
    static const int barriers_at = stages * stage_bytes;
    static const int terms_at = barriers_at + 16 * stages;           /* scales and biases of a tile's columns */
    static const int bytes = terms_at + 8 * COLUMNS + 1024;          /* 1024: to align the stages */
    static const int panel = COLUMNS < 128 ? COLUMNS : 128;          /* columns of a copy of the residual */
    static const bool residual_fits = ROWS * COLUMNS <= stage_bytes; /* in a stage */
    static const int units = ROWS * COLUMNS / 8;                     /* of eight sums side by side */
    static_assert(units * 32 <= stages * stage_bytes, "sums take the stages' place");
};

/* What follows sums, as code of its own: all of it in one would not fit the instruction cache. */
enum {
    FORM_BYTES,        /* i8, with a ReLU or without an activation */
    FORM_ADDED,        /* the same behind a residual in i8 */
    FORM_GELU,         /* i8 */
    FORM_FLOATS,       /* with a ReLU or without an activation */
    FORM_ADDED_FLOATS, /* the same behind a residual in i8 */
    FORM_ANY           /* element by element */
};

typedef struct tile_args {
    trm_int8_product_args product;
    int64_t rows;             /* of the output */
    int32_t columns, tiles_n; /* of the output */
    int32_t items;            /* tiles, or pairs of them that share rows of the weight */
    int32_t part_columns;     /* of the parts that the output is in */
    int32_t blocks, stages;   /* of BYTES channels in a tap; of all taps */
    int32_t splits;           /* blocks of a cluster that have a part of k each */
    int32_t share;            /* 2: blocks of a cluster bring half of the weight each, for both; or 1 */
    int32_t form;             /* FORM_ */
    float low;                /* the least number that leaves: 0 behind a ReLU */
    bool windows, constant;
    bool ordered;        /* columns are in groups */
    bool through_shared; /* one tile per block, whose sums go through shared memory */
    bool residual_comes; /* by copies */
} tile_args;

typedef struct tile_maps {
    CUtensorMap x, weight, residual;
} tile_maps;

/* ---- bringing operands ---- */

/* Stages of this block's part of k. */
static __device__ __forceinline__ int32_t split_begin(const tile_args &a, int32_t split)
{
    return (int32_t)((int64_t)a.stages * split / a.splits);
}

/* The number of block `rank`'s tile: those of a row side by side, those of a pair below each other. */
static __device__ __forceinline__ int32_t tile_of(const tile_args &a, int32_t item, int32_t rank)
{
    const int32_t row = item / a.tiles_n;
    return a.share == 1 ? item : (2 * row + rank) * a.tiles_n + (item - row * a.tiles_n);
}

/* Channels of a tap; those behind its last meet zeros of x. */
template <int COLUMNS, int BYTES>
static __device__ __forceinline__ void bring_weight(const tile_args &a, const tile_maps &maps, uint32_t to,
                                                    int32_t channel, int32_t column0, int32_t rank, uint32_t barrier)
{
    if (a.share > 1) {
        copy_shared_groups(to + rank * (COLUMNS / 2) * BYTES, &maps.weight, channel,
                           (column0 + rank * (COLUMNS / 2)) / GROUP, barrier);
    } else if (a.ordered) {
        copy_groups(to, &maps.weight, channel, column0 / GROUP, barrier);
    } else {
        copy_box(to, &maps.weight, channel, column0, 0, barrier);
    }
}

template <int ROWS, int COLUMNS, int BYTES, typename F>
static __device__ void bring_operands(const tile_args &a, const tile_maps &maps, uint32_t base, int32_t rank)
{
    const int32_t split = a.share > 1 ? 0 : rank, cluster = a.splits * a.share;
    const trm_windows &w = a.product.w;
    const int32_t channels = (int32_t)w.channels_in, begin = split_begin(a, split), end = split_begin(a, split + 1);
    int32_t item = (int32_t)blockIdx.x / cluster, ahead = a.constant ? min(F::stages, end - begin) : 0;
    stage_ring<F> at(base, 1), early(base, 1); /* of a new barrier the phase of parity 1 has ended */
    prefetch_map(&maps.x);
    if (a.residual_comes) {
        prefetch_map(&maps.residual);
    }
    for (int32_t i = begin; i < begin + ahead; i++) {
        barrier_arrive_expect(early.full(), F::stage_bytes);
        bring_weight<COLUMNS, BYTES>(a, maps, early.weight(), i / a.blocks * channels + i % a.blocks * BYTES,
                                     item % a.tiles_n * COLUMNS, rank, early.full());
        early.next();
    }
    wait_for_previous();
    for (; item < a.items; item += (int32_t)gridDim.x / cluster) {
        const int32_t tile = tile_of(a, item, rank);
        const int64_t row0 = (int64_t)(tile / a.tiles_n) * ROWS;
        const int32_t column0 = tile % a.tiles_n * COLUMNS;
        const int32_t image = (int32_t)(row0 / w.out_size), place = (int32_t)(row0 - image * w.out_size);
        const int32_t x0 = place % (int32_t)w.out[2] * (int32_t)w.stride[2] - (int32_t)w.before[2];
        const int32_t y0 = place / (int32_t)w.out[2] * (int32_t)w.stride[1] - (int32_t)w.before[1];
        int32_t tap = begin / a.blocks, block = begin % a.blocks;
        int32_t tap_x = tap % (int32_t)w.kernel[2], tap_y = tap / (int32_t)w.kernel[2];
        for (int32_t i = begin; i < end; i++) {
            barrier_wait(at.empty(), at.parity);
            if (ahead > 0) {
                ahead--;
            } else {
                barrier_arrive_expect(at.full(), F::stage_bytes);
                bring_weight<COLUMNS, BYTES>(a, maps, at.weight(), tap * channels + block * BYTES, column0, rank,
                                             at.full());
            }
            if (a.windows) {
                copy_windows(at.x(), &maps.x, block * BYTES, x0, y0, image, (uint16_t)(tap_x * (int32_t)w.dilation[2]),
                             (uint16_t)(tap_y * (int32_t)w.dilation[1]), at.full());
            } else {
                copy_box(at.x(), &maps.x, block * BYTES, (int32_t)row0, 0, at.full());
            }
            if (++block == a.blocks) {
                block = 0;
                tap++;
                if (++tap_x == (int32_t)w.kernel[2]) {
                    tap_x = 0;
                    tap_y++;
                }
            }
            at.next();
        }
        if (F::residual_fits && a.residual_comes) {
            barrier_wait(at.empty(), at.parity);
            barrier_arrive_expect(at.full(), ROWS * COLUMNS);
            for (int32_t c = 0; c < COLUMNS; c += F::panel) {
                copy_box(at.x() + c * ROWS, &maps.residual, column0 + c, (int32_t)row0, 0, at.full());
            }
            at.next();
        }
    }
}

/* ---- products ---- */

/* Gives a stage back to those that fill it. */
static __device__ __forceinline__ void release(uint32_t empty, int32_t share, int lane)
{
    if (share > 1 && lane < 2) {
        asm volatile("{ .reg .b32 at;\n"
                     "mapa.shared::cluster.u32 at, %0, %1;\n"
                     "mbarrier.arrive.shared::cluster.b64 _, [at]; }"
                     :
                     : "r"(empty), "r"(lane)
                     : "memory");
    } else if (share == 1 && lane == 0) {
        barrier_arrive(empty);
    }
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
/* The sums of a warp group's 64 rows over `count` stages. */
template <int COLUMNS, int BYTES, typename F>
static __device__ __forceinline__ void multiply(int32_t (&sums)[COLUMNS / 2], stage_ring<F> &at, int32_t count,
                                                int32_t share, int group, int lane)
{
    uint32_t before = 0;
    for (int32_t i = 0; i < count; i++) {
        barrier_wait(at.full(), at.parity);
        wgmma_pin(sums);
        wgmma_begin();
#pragma unroll
        for (int step = 0; step < BYTES / 32; step++) {
            wgmma_i8(sums, wgmma_operand<BYTES>(at.x() + group * 64 * BYTES + step * 32, 0),
                     wgmma_operand<BYTES>(at.weight() + step * 32, 0), i > 0 || step > 0);
        }
        wgmma_commit();
        wgmma_pin(sums);
        if (i > 0) { /* those of the stage before are done */
            wgmma_wait<1>();
            release(before, share, lane);
        }
        before = at.empty();
        at.next();
    }
    wgmma_wait<0>();
    wgmma_pin(sums);
    release(before, share, lane);
}
#endif

/* ---- results ---- */

/*
 * Conversions between whole numbers and floats run at a quarter of the rate of additions. So numbers are put into the
 * low bits of a float of 2^23 and more, and taken from there; sums, which may be larger, are converted.
 */
#define WHOLE_FLOAT 12582912.0f /* 1.5 * 2^23: what is added to it is rounded to the nearest, half to even */

/* Byte e of a word of i8. */
template <int e> static __device__ __forceinline__ float byte_float(uint32_t word)
{
    return __uint_as_float(__byte_perm(word ^ 0x80808080u, 0x4b000000u, 0x7440 | e)) - (8388608.0f + 128.0f);
}

/* The nearest whole numbers from `low` to 127. */
static __device__ __forceinline__ uint32_t four_bytes(const float *v, float inverse, float low)
{
    uint32_t near[4];
#pragma unroll
    for (int e = 0; e < 4; e++) {
        near[e] = __float_as_uint(fminf(fmaxf(v[e] * inverse, low), 127.0f) + WHOLE_FLOAT);
    }
    return __byte_perm(__byte_perm(near[0], near[1], 0x40), __byte_perm(near[2], near[3], 0x40), 0x5410);
}

/* erf within 1.5e-7 (Abramowitz and Stegun, 7.1.26): erff() takes some 100 instructions, more than a product of k 768.
 */
static __device__ __forceinline__ float gelu(float v)
{
    const float x = fabsf(v) * 0.70710678f, t = __fdividef(1.0f, fmaf(0.3275911f, x, 1.0f));
    const float sum =
        t * fmaf(t, fmaf(t, fmaf(t, fmaf(t, 1.061405429f, -1.453152027f), 1.421413741f), -0.284496736f), 0.254829592f);
    const float tail = 0.5f * sum * __expf(-x * x); /* of the normal distribution, from |v| on */
    return v * (v < 0.0f ? tail : 1.0f - tail);
}

template <bool F16> static __device__ __forceinline__ uint32_t two_halves(float low, float high)
{
    uint32_t word;
    if (F16) {
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    } else {
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    }
    return word;
}

template <bool F16>
static __device__ __forceinline__ void store_halves(const trm_int8_product_args &p, int64_t at, const float (&v)[8])
{
    *(uint4 *)((uint16_t *)p.y + at) = make_uint4(two_halves<F16>(v[0], v[1]), two_halves<F16>(v[2], v[3]),
                                                  two_halves<F16>(v[4], v[5]), two_halves<F16>(v[6], v[7]));
}

static __device__ __forceinline__ void store_floats(const trm_int8_product_args &p, int64_t at, const float (&v)[8])
{
    if (p.out == TRM_F32) {
        ((float4 *)((float *)p.y + at))[0] = make_float4(v[0], v[1], v[2], v[3]);
        ((float4 *)((float *)p.y + at))[1] = make_float4(v[4], v[5], v[6], v[7]);
    } else if (p.out == TRM_F16) {
        store_halves<true>(p, at, v);
    } else {
        store_halves<false>(p, at, v);
    }
}

/* Eight sums, scaled and with their bias. Terms come from shared memory each time: registers are few. */
static __device__ __forceinline__ void scale_eight(const float *scales, const float *biases, const int32_t (&sums)[8],
                                                   float (&v)[8])
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const float4 scale = ((const float4 *)scales)[half], bias = ((const float4 *)biases)[half];
        v[4 * half] = (float)sums[4 * half] * scale.x + bias.x;
        v[4 * half + 1] = (float)sums[4 * half + 1] * scale.y + bias.y;
        v[4 * half + 2] = (float)sums[4 * half + 2] * scale.z + bias.z;
        v[4 * half + 3] = (float)sums[4 * half + 3] * scale.w + bias.w;
    }
}

/* Outputs of eight columns of a row, the first of which is number `at`; scales and biases are theirs. */
template <int FORM>
static __device__ __forceinline__ void finish_eight(const tile_args &a, const float *scales, const float *biases,
                                                    int64_t at, const int32_t (&sums)[8], uint2 residual)
{
    const trm_int8_product_args &p = a.product;
    float v[8];
    scale_eight(scales, biases, sums, v);
    if (FORM == FORM_ADDED || FORM == FORM_ADDED_FLOATS) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const uint32_t word = half == 0 ? residual.x : residual.y;
            v[4 * half] += byte_float<0>(word) * p.residual_scale;
            v[4 * half + 1] += byte_float<1>(word) * p.residual_scale;
            v[4 * half + 2] += byte_float<2>(word) * p.residual_scale;
            v[4 * half + 3] += byte_float<3>(word) * p.residual_scale;
        }
    }
    if (FORM == FORM_FLOATS || FORM == FORM_ADDED_FLOATS) {
#pragma unroll
        for (int e = 0; e < 8; e++) {
            v[e] = fmaxf(v[e], a.low);
        }
        store_floats(p, at, v);
        return;
    }
    if (FORM == FORM_GELU) {
#pragma unroll
        for (int e = 0; e < 8; e++) {
            v[e] = gelu(v[e]);
        }
    }
    *(uint2 *)((int8_t *)p.y + at) =
        make_uint2(four_bytes(v, p.out_inverse, a.low), four_bytes(v + 4, p.out_inverse, a.low));
}

static __device__ __forceinline__ uint2 residual_bytes(const trm_int8_product_args &p, int64_t at)
{
    return *(const uint2 *)((const int8_t *)p.residual + at);
}

/* A call, so that what is rare takes no registers and no room. */
static __device__ __noinline__ void finish_one(const trm_int8_product_args *p, int32_t column, int64_t at, int32_t sum)
{
    trm_int8_finish(p, column, at, sum);
}

/* Where a copy put eight columns of a row of the residual: rows of a panel, its 16 bytes swapped as the map says. */
template <int ROWS, typename F> static __device__ __forceinline__ uint32_t residual_place(int row, int column)
{
    const int part = column % F::panel / 16;
    const int swap = F::panel == 128 ? row & 7 : F::panel == 64 ? row >> 1 & 3 : 0;
    return (uint32_t)(column / F::panel * ROWS * F::panel + row * F::panel + (part ^ swap) * 16 + column % 16);
}

static __device__ __forceinline__ uint2 load_shared(uint32_t address)
{
    uint2 v;
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(address) : "memory");
    return v;
}

/* Eight sums side by side: those of group g, in the thread's first row or in the one eight below. */
template <int COUNT>
static __device__ __forceinline__ void take_sums(const int32_t (&sums)[COUNT], int g, int below, int32_t (&to)[8])
{
#pragma unroll
    for (int e = 0; e < 8; e++) {
        to[e] = sums[(4 * g + e / 2) * 4 + 2 * below + e % 2];
    }
}

/* The number of an element of the output. */
static __device__ __forceinline__ int64_t output_place(const tile_args &a, int64_t row, int32_t column)
{
    if (a.part_columns == a.columns) {
        return row * a.columns + column;
    }
    const int32_t part = column / a.part_columns;
    return (part * a.rows + row) * a.part_columns + (column - part * a.part_columns);
}

/* A thread's sums as outputs; `residual`: the stage that it came to. */
template <int FORM, int ROWS, int COLUMNS, typename F>
static __device__ __forceinline__ void store_sums(const tile_args &a, const int32_t (&sums)[COLUMNS / 2], int32_t tile,
                                                  int thread, const float *terms, uint32_t residual)
{
    const int64_t row0 = (int64_t)(tile / a.tiles_n) * ROWS;
    const int first = (thread >> 5) * 16 + ((thread & 31) >> 2);
    const int32_t width = a.part_columns, own = (thread & 3) * 8;
    int32_t column0 = tile % a.tiles_n * COLUMNS;
    const int32_t part = column0 / width;
    int32_t in_part = column0 - part * width;
    int64_t from = (part * a.rows + row0 + first) * width + own; /* the thread's first row of the part */
    const bool has[2] = {row0 + first < a.rows, row0 + first + 8 < a.rows};
#pragma unroll
    for (int g = 0; g < COLUMNS / GROUP; g++) {
        if (column0 >= a.columns) {
            break;
        }
#pragma unroll
        for (int below = 0; below < 2; below++) {
            const int64_t at = from + in_part + below * 8 * width;
            int32_t eight[8];
            take_sums(sums, g, below, eight);
            if (has[below]) {
                uint2 added = make_uint2(0, 0);
                if (FORM == FORM_ADDED || FORM == FORM_ADDED_FLOATS) {
                    added = F::residual_fits
                                ? load_shared(residual + residual_place<ROWS, F>(first + below * 8, g * GROUP + own))
                                : residual_bytes(a.product, at);
                }
                finish_eight<FORM>(a, terms + g * GROUP + own, terms + COLUMNS + g * GROUP + own, at, eight, added);
            }
        }
        column0 += GROUP;
        in_part += GROUP;
        if (in_part == width) { /* the next part */
            in_part = 0;
            from += a.rows * width;
        }
    }
}

/* A thread's sums to where the cluster reads them, units of eight. */
template <int COLUMNS, typename F>
static __device__ __forceinline__ void put_sums(const int32_t (&sums)[COLUMNS / 2], int32_t *to, int thread)
{
#pragma unroll
    for (int unit = 0; unit < COLUMNS / 16; unit++) {
        int32_t eight[8];
        take_sums(sums, unit / 2, unit % 2, eight);
        int4 *at = (int4 *)(to + (unit * F::computing + thread) * 8);
        at[0] = make_int4(eight[0], eight[1], eight[2], eight[3]);
        at[1] = make_int4(eight[4], eight[5], eight[6], eight[7]);
    }
}

/* This block's part of the units as outputs, of the sums of all blocks of the cluster. */
template <int ROWS, int COLUMNS, typename F>
static __device__ __forceinline__ void store_units(const tile_args &a, const int32_t *from, const float *terms,
                                                   int32_t tile, int32_t split, int thread)
{
    const int64_t row0 = (int64_t)(tile / a.tiles_n) * ROWS;
    const int32_t column0 = tile % a.tiles_n * COLUMNS;
    const int part = F::units / a.splits;
#pragma unroll 1
    for (int n = split * part + thread; n < (split + 1) * part; n += F::computing) {
        const int owner = n % F::computing, unit = n / F::computing, quad = owner & 3;
        const int64_t row = row0 + (owner >> 5) * 16 + ((owner & 31) >> 2) + unit % 2 * 8;
        int32_t sums[8] = {};
        for (int32_t block = 0; block < a.splits; block++) {
            float bits[8];
            read_in((const float *)(from + n * 8), block, bits);
#pragma unroll
            for (int e = 0; e < 8; e++) {
                sums[e] += __float_as_int(bits[e]);
            }
        }
        if (row >= a.rows) {
            continue;
        }
        const int32_t column = column0 + unit / 2 * GROUP + quad * 8;
        const int64_t at = output_place(a, row, column);
        if (a.ordered && a.form != FORM_ANY) {
            if (column >= a.columns) {
                continue;
            }
            const float *scales = terms + column - column0, *biases = scales + COLUMNS;
            if (a.form == FORM_BYTES) {
                finish_eight<FORM_BYTES>(a, scales, biases, at, sums, make_uint2(0, 0));
            } else if (a.form == FORM_ADDED) {
                finish_eight<FORM_ADDED>(a, scales, biases, at, sums, residual_bytes(a.product, at));
            } else if (a.form == FORM_GELU) {
                finish_eight<FORM_GELU>(a, scales, biases, at, sums, make_uint2(0, 0));
            } else if (a.form == FORM_FLOATS) {
                finish_eight<FORM_FLOATS>(a, scales, biases, at, sums, make_uint2(0, 0));
            } else {
                finish_eight<FORM_ADDED_FLOATS>(a, scales, biases, at, sums, residual_bytes(a.product, at));
            }
            continue;
        }
#pragma unroll
        for (int e = 0; e < 8; e++) {
            const int32_t own = a.ordered ? column + e : column0 + unit / 2 * GROUP + e / 2 * 8 + quad * 2 + e % 2;
            if (own < a.columns) {
                finish_one(&a.product, own, output_place(a, row, own), sums[e]);
            }
        }
    }
}

/* Scale and bias of one column of a tile: loaded before its products, put into shared memory behind them. */
typedef struct column_terms {
    float scale, bias;
} column_terms;

template <int COLUMNS>
static __device__ __forceinline__ column_terms load_terms(const tile_args &a, int32_t tile, int thread)
{
    const trm_int8_product_args &p = a.product;
    const int32_t column = tile % a.tiles_n * COLUMNS + thread;
    column_terms of = {0.0f, 0.0f};
    if (thread < COLUMNS && column < a.columns) {
        of.scale = p.scale[column * p.scale_step];
        of.bias = p.bias != NULL ? p.bias[column] : 0.0f;
    }
    return of;
}

template <int COLUMNS>
static __device__ __forceinline__ void put_terms(const column_terms &of, float *terms, int thread)
{
    if (thread < COLUMNS) {
        terms[thread] = of.scale;
        terms[COLUMNS + thread] = of.bias;
    }
}

/* ---- the kernel ---- */

template <int ROWS, int COLUMNS, int BYTES>
static __global__ void __launch_bounds__(tile_form<ROWS, COLUMNS, BYTES>::threads,
                                         tile_form<ROWS, COLUMNS, BYTES>::blocks)
    int8_tiles(const __grid_constant__ tile_args a, const __grid_constant__ tile_maps maps)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ unsigned char shared[];
    typedef tile_form<ROWS, COLUMNS, BYTES> F;
    const uint32_t base = (shared_address(shared) + 1023) / 1024 * 1024;
    const int32_t cluster = a.splits * a.share, rank = (int32_t)blockIdx.x % cluster, split = a.share > 1 ? 0 : rank;
    if (threadIdx.x == 0) {
        stage_ring<F> at(base, 0);
        for (int i = 0; i < F::stages; i++) {
            barrier_init(at.full(), 1);
            barrier_init(at.empty(), F::computing / 32 * a.share);
            at.next();
        }
        barrier_init_done();
    }
    if (a.share > 1) {
        cluster_barrier();
    } else {
        __syncthreads();
    }
    start_next();
    if (threadIdx.x >= F::computing) {
        if (threadIdx.x == F::computing) {
            bring_operands<ROWS, COLUMNS, BYTES, F>(a, maps, base, rank);
        }
        return;
    }
    const int thread = (int)threadIdx.x, lane = thread & 31;
    const int32_t count = split_begin(a, split + 1) - split_begin(a, split);
    int32_t sums[COLUMNS / 2];
    float *terms = (float *)(shared + (base - shared_address(shared)) + F::terms_at); /* [2, COLUMNS] */
    stage_ring<F> at(base, 0);
    wait_for_previous(); /* of this thread's own reads and writes */
    if (a.through_shared) {
        int32_t *units = (int32_t *)(shared + (base - shared_address(shared)));
        const column_terms of = load_terms<COLUMNS>(a, (int32_t)blockIdx.x / cluster, thread);
        multiply<COLUMNS, BYTES, F>(sums, at, count, a.share, thread >> 7, lane);
        named_sync(1, F::computing); /* all have read all stages, and sums take their place */
        put_sums<COLUMNS, F>(sums, units, thread);
        put_terms<COLUMNS>(of, terms, thread);
        cluster_barrier();
        store_units<ROWS, COLUMNS, F>(a, units, terms, (int32_t)blockIdx.x / cluster, split, thread);
        cluster_barrier(); /* the others may still read here */
        return;
    }
    for (int32_t item = (int32_t)blockIdx.x / cluster; item < a.items; item += (int32_t)gridDim.x / cluster) {
        const int32_t tile = tile_of(a, item, rank);
        const column_terms of = load_terms<COLUMNS>(a, tile, thread);
        multiply<COLUMNS, BYTES, F>(sums, at, count, a.share, thread >> 7, lane);
        named_sync(1, F::computing); /* all have read the terms of the tile before */
        put_terms<COLUMNS>(of, terms, thread);
        named_sync(1, F::computing);
        if (F::residual_fits && a.residual_comes) {
            barrier_wait(at.full(), at.parity);
        }
        if (a.form == FORM_BYTES) {
            store_sums<FORM_BYTES, ROWS, COLUMNS, F>(a, sums, tile, thread, terms, 0);
        } else if (a.form == FORM_GELU) {
            store_sums<FORM_GELU, ROWS, COLUMNS, F>(a, sums, tile, thread, terms, 0);
        } else if (a.form == FORM_FLOATS) {
            store_sums<FORM_FLOATS, ROWS, COLUMNS, F>(a, sums, tile, thread, terms, 0);
        } else if (a.form == FORM_ADDED) {
            store_sums<FORM_ADDED, ROWS, COLUMNS, F>(a, sums, tile, thread, terms, at.x());
        } else {
            store_sums<FORM_ADDED_FLOATS, ROWS, COLUMNS, F>(a, sums, tile, thread, terms, at.x());
        }
        if (F::residual_fits && a.residual_comes) {
            __syncwarp();
            release(at.empty(), a.share, lane);
            at.next();
        }
    }
    if (a.share > 1) { /* the other block may still arrive here */
        cluster_barrier();
    }
#endif
}

/* ---- launching ---- */

static bool has_windows(const trm_windows *w)
{
    bool plain = w->kernel_size == 1;
    for (int32_t i = 0; i < TRM_MAX_SPATIAL; i++) {
        plain = plain && w->before[i] == 0 && w->stride[i] == 1 && w->out[i] == w->in[i];
    }
    return !plain;
}

static trm_window_map windows_of(const trm_int8_tiles *t)
{
    const trm_windows *w = &t->product.w;
    trm_window_map map = {};
    map.data = t->product.x;
    map.channels = w->channels_in;
    map.images = w->batch;
    for (int i = 0; i < 2; i++) {
        map.in[i] = w->in[1 + i];
        map.out[i] = w->out[1 + i];
        map.step[i] = w->stride[1 + i];
        map.before[i] = w->before[1 + i];
    }
    for (int i = 0; i < 3; i++) {
        map.strides[i] = (cuuint64_t)t->strides[i];
    }
    return map;
}

/* The weight [M, taps * channels]; in groups, rows of each eighth side by side as one thread has them. */
static trm_status map_weight(const trm_int8_tiles *t, const tile_args &a, int columns, int bytes,
                             CUtensorMapSwizzle swizzle, CUtensorMap *map)
{
    const trm_int8_product_args *p = &t->product;
    const cuuint64_t k = (cuuint64_t)(p->w.channels_in * p->w.kernel_size), m = (cuuint64_t)p->outputs;
    if (a.ordered) {
        const cuuint64_t dims[] = {k, 2, 4, 4, m / GROUP}, strides[] = {k, 8 * k, 2 * k, GROUP * k};
        const cuuint32_t box[] = {(cuuint32_t)bytes, 2, 4, 4, (cuuint32_t)(columns / GROUP / a.share)};
        return trm_cuda_tensor_map(map, p->weight, 5, dims, strides, box, swizzle, TRM_I8);
    }
    const cuuint64_t dims[] = {k, m, 1}, strides[] = {k, k * m};
    const cuuint32_t box[] = {(cuuint32_t)bytes, (cuuint32_t)columns, 1};
    return trm_cuda_tensor_map(map, p->weight, 3, dims, strides, box, swizzle, TRM_I8);
}

static trm_status map_operands(const trm_int8_tiles *t, const tile_args &a, int rows, int columns, int bytes, int panel,
                               tile_maps *maps)
{
    const trm_int8_product_args *p = &t->product;
    const CUtensorMapSwizzle swizzle = bytes == 128 ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_64B;
    TRM_TRY(map_weight(t, a, columns, bytes, swizzle, &maps->weight));
    if (a.residual_comes) {
        const cuuint64_t dims[] = {(cuuint64_t)p->outputs, (cuuint64_t)a.rows, 1},
                         strides[] = {dims[0], dims[0] * dims[1]};
        const cuuint32_t box[] = {(cuuint32_t)panel, (cuuint32_t)rows, 1};
        TRM_TRY(trm_cuda_tensor_map(&maps->residual, p->residual, 3, dims, strides, box,
                                    panel == 128  ? CU_TENSOR_MAP_SWIZZLE_128B
                                    : panel == 64 ? CU_TENSOR_MAP_SWIZZLE_64B
                                                  : CU_TENSOR_MAP_SWIZZLE_NONE,
                                    TRM_I8));
    }
    if (a.windows) {
        trm_window_map map = windows_of(t);
        map.channels_taken = bytes;
        map.rows = rows;
        return trm_cuda_window_map(&maps->x, &map, swizzle);
    }
    const cuuint64_t row_dims[] = {(cuuint64_t)p->w.channels_in, (cuuint64_t)a.rows, 1};
    const cuuint64_t row_strides[] = {row_dims[0], row_dims[0] * row_dims[1]};
    const cuuint32_t row_box[] = {(cuuint32_t)bytes, (cuuint32_t)rows, 1};
    return trm_cuda_tensor_map(&maps->x, p->x, 3, row_dims, row_strides, row_box, swizzle, TRM_I8);
}

static int32_t form_of(const trm_int8_product_args *p)
{
    const bool added = p->residual_type != TRM_DTYPE_NONE;
    if (p->product_scale > 0.0f || (added && p->residual_type != TRM_I8)) {
        return FORM_ANY;
    }
    if (p->activation == TRM_ACTIVATION_GELU && !added && p->out == TRM_I8) {
        return FORM_GELU;
    }
    if (p->activation != TRM_ACTIVATION_NONE && p->activation != TRM_ACTIVATION_RELU) {
        return FORM_ANY;
    }
    return p->out == TRM_I8 ? added ? FORM_ADDED : FORM_BYTES : added ? FORM_ADDED_FLOATS : FORM_FLOATS;
}

template <int ROWS, int COLUMNS, int BYTES>
static trm_status launch(const trm_int8_tiles *t, int splits, int share, cudaStream_t stream)
{
    typedef tile_form<ROWS, COLUMNS, BYTES> F;
    const trm_windows *w = &t->product.w;
    tile_args a = {};
    tile_maps maps = {};
    a.product = t->product;
    a.rows = w->batch * w->out_size;
    a.columns = (int32_t)t->product.outputs;
    a.part_columns = t->product.parts > 0 ? a.columns / t->product.parts : a.columns;
    a.tiles_n = (a.columns + COLUMNS - 1) / COLUMNS;
    const int64_t tiles_m = (a.rows + ROWS - 1) / ROWS;
    a.blocks = (int32_t)((w->channels_in + BYTES - 1) / BYTES);
    a.stages = (int32_t)w->kernel_size * a.blocks;
    for (a.splits = splits; a.splits > a.stages;) {
        a.splits /= 2;
    }
    a.windows = has_windows(w);
    a.constant = t->constant;
    a.ordered = a.columns % GROUP == 0 && a.part_columns % GROUP == 0;
    a.form = form_of(&t->product);
    a.low = t->product.activation == TRM_ACTIVATION_RELU ? 0.0f : t->product.out == TRM_I8 ? -128.0f : -INFINITY;
    a.through_shared = a.splits > 1 || !a.ordered || a.form == FORM_ANY;
    a.share = a.through_shared ? 1 : share;
    a.items = (int32_t)((tiles_m + a.share - 1) / a.share) * a.tiles_n;
    a.residual_comes = F::residual_fits && !a.through_shared && (a.form == FORM_ADDED || a.form == FORM_ADDED_FLOATS);
    TRM_TRY(map_operands(t, a, ROWS, COLUMNS, BYTES, F::panel, &maps));
    TRM_CUDA_TRY(
        cudaFuncSetAttribute(int8_tiles<ROWS, COLUMNS, BYTES>, cudaFuncAttributeMaxDynamicSharedMemorySize, F::bytes));
    const int cluster = a.splits * a.share, most = trm_cuda_hopper_processors() * F::blocks / cluster;
    launch_clusters((unsigned)cluster, true, int8_tiles<ROWS, COLUMNS, BYTES>,
                    dim3((unsigned)((a.through_shared || a.items < most ? a.items : most) * cluster)), dim3(F::threads),
                    F::bytes, stream, a, maps);
    return trm_cuda_launched("cuda.int8_product tiles");
}

static const int32_t tile_sizes[][4] = {
#define SIZE(rows, columns, splits, share) {rows, columns, splits, share},
    TRM_INT8_TILES(SIZE)
#undef SIZE
};

/* Bytes of k in a stage: as few zeros as possible behind the last channel. */
static bool is_wide(const trm_int8_tiles *t)
{
    const int64_t left = t->product.w.channels_in % 128;
    return left == 0 || left > 64;
}

trm_status trm_cuda_int8_tiles_launch(const trm_int8_tiles *t, int32_t size, cudaStream_t stream)
{
    const bool wide = is_wide(t);
    switch (size) {
#define LAUNCH(rows, columns, splits, share)                                                                           \
    case TRM_INT8_TILE_##rows##x##columns##x##splits##x##share:                                                        \
        return wide ? launch<rows, columns, 128>(t, splits, share, stream)                                             \
                    : launch<rows, columns, 64>(t, splits, share, stream);
        TRM_INT8_TILES(LAUNCH)
#undef LAUNCH
    default:
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "no tiles of size %d", (int)size);
    }
}

bool trm_cuda_int8_tiles_fit(const trm_int8_tiles *t)
{
    const trm_windows *w = &t->product.w;
    const int64_t rows = w->batch * w->out_size;
    const int64_t reach[] = {(w->kernel[1] - 1) * w->dilation[1], (w->kernel[2] - 1) * w->dilation[2]};
    const trm_window_map map = windows_of(t);
    bool fits = w->channels_in > 0 && w->channels_in % 16 == 0 && rows > 0 && rows <= INT32_MAX / 2 &&
                t->product.outputs > 0 && t->product.outputs <= INT32_MAX / 2 && w->kernel_size <= 65536 &&
                (rows + 63) / 64 * ((t->product.outputs + 31) / 32) <= INT32_MAX / 16;
    if (fits && has_windows(w)) { /* of two dimensions */
        fits = w->in[0] == 1 && w->out[0] == 1 && w->kernel[0] == 1 && trm_cuda_window_map_fits(&map, reach);
    }
    return fits && trm_cuda_hopper_ready();
}

bool trm_cuda_int8_tiles_can_split(const trm_int8_tiles *t, int32_t size)
{
    const trm_windows *w = &t->product.w;
    const int64_t bytes = is_wide(t) ? 128 : 64;
    return size >= 0 && size < TRM_INT8_TILE_COUNT &&
           w->kernel_size * ((w->channels_in + bytes - 1) / bytes) >= tile_sizes[size][2];
}

/* By rounds of blocks, and what one takes: bytes that come, with a third of the speed for sums that leave; and what
 * blocks of a cluster wait for each other. */
int32_t trm_cuda_int8_tiles_choose(const trm_int8_tiles *t)
{
    const trm_windows *w = &t->product.w;
    const int64_t rows = w->batch * w->out_size, k = w->kernel_size * w->channels_in;
    const int processors = trm_cuda_hopper_processors();
    int32_t best = TRM_INT8_TILE_64x32x1x1;
    double least = 0.0;
    for (int32_t i = 0; i < TRM_INT8_TILE_COUNT; i++) {
        const int64_t r = tile_sizes[i][0], c = tile_sizes[i][1], s = tile_sizes[i][2], share = tile_sizes[i][3];
        const int64_t blocks = c > 128 ? 1 : r * c >= 128 * 128 ? 2 : 3;
        const int64_t tiles = (rows + r - 1) / r * ((t->product.outputs + c - 1) / c) * s;
        const int64_t places = processors * blocks, rounds = (tiles + places - 1) / places;
        const double shared = tiles >= places ? (double)blocks : (double)((tiles + processors - 1) / processors);
        const double time =
            (double)rounds * shared *
            ((double)((r + c / share) * k / s) + 3.0 * (double)(r * c / s) + (s > 1 ? 160000.0 : 60000.0) / shared);
        if ((i == 0 || time < least) && trm_cuda_int8_tiles_can_split(t, i)) {
            least = time;
            best = i;
        }
    }
    return best;
}

/* ---- blocks of positions ---- */

#define BLOCK_THREADS 128

/* A thread block per row of blocks of positions: two rows of the image come to shared memory, and go 16 bytes a thread;
 * bound by device memory. */
template <int C>
static __global__ void __launch_bounds__(BLOCK_THREADS)
    make_blocks(const trm_int8_blocks x, const trm_int8_blocks weight, int64_t rows_x)
{
    extern __shared__ int8_t two_rows[];
    const bool of_x = blockIdx.x < rows_x;
    const trm_int8_blocks &b = of_x ? x : weight;
    const int64_t row = of_x ? blockIdx.x : blockIdx.x - rows_x, image = row / b.grid[0];
    const int bytes = b.in[1] * C, y0 = (int)(row - image * b.grid[0]) * 2 - b.before[0];
    begin_overlapped();
#pragma unroll
    for (int k = 0; k < 2; k++) {
        const int y = y0 + k;
        if (y < 0 || y >= b.in[0]) {
            continue;
        }
        const int8_t *from = b.from + (image * b.in[0] + y) * bytes;
        const int words = ((uintptr_t)from | (uintptr_t)bytes) % 4 == 0 ? bytes / 4 : 0;
        for (int i = (int)threadIdx.x; i < words; i += BLOCK_THREADS) {
            ((uint32_t *)(two_rows + k * bytes))[i] = ((const uint32_t *)from)[i];
        }
        for (int i = words * 4 + (int)threadIdx.x; i < bytes; i += BLOCK_THREADS) {
            two_rows[k * bytes + i] = from[i];
        }
    }
    __syncthreads();
    for (int column = (int)threadIdx.x; column < b.grid[1]; column += BLOCK_THREADS) {
        const int x0 = column * 2 - b.before[1];
        uint32_t words[4] = {};
#pragma unroll
        for (int n = 0; n < 4 * C; n++) {
            const int place = n / C, y = y0 + place / 2, at = x0 + place % 2;
            if (y >= 0 && y < b.in[0] && at >= 0 && at < b.in[1]) {
                words[n / 4] |= (uint32_t)(uint8_t)two_rows[place / 2 * bytes + at * C + n % C] << n % 4 * 8;
            }
        }
        ((uint4 *)b.to)[row * b.grid[1] + column] = make_uint4(words[0], words[1], words[2], words[3]);
    }
}

trm_status trm_cuda_int8_blocks(const trm_int8_blocks blocks[2], cudaStream_t stream)
{
    const int64_t rows_x = blocks[0].images * blocks[0].grid[0], rows = blocks[1].images * blocks[1].grid[0];
    const int widest = blocks[0].in[1] > blocks[1].in[1] ? blocks[0].in[1] : blocks[1].in[1];
    const size_t shared = (size_t)(2 * widest * blocks[0].channels);
    switch (blocks[0].channels) {
#define CHANNELS(c)                                                                                                    \
    case c:                                                                                                            \
        launch_overlapped(make_blocks<c>, (unsigned)(rows_x + rows), BLOCK_THREADS, shared, stream, blocks[0],         \
                          blocks[1], rows_x);                                                                          \
        break;
        CHANNELS(1)
        CHANNELS(2)
        CHANNELS(3)
        CHANNELS(4)
#undef CHANNELS
    }
    return trm_cuda_launched("cuda.int8_product blocks");
}
