/*
 * Products and convolutions of i8 on Hopper. A tile of the output is 64 or 128 rows (positions) by 32 to 256 columns
 * (channels). One thread brings operands through a ring of stages by tensor copies: rows of x, or the positions of one
 * tap of the windows, where copies put zeros outside the image; and rows of the weight. Warp groups with 64 rows each
 * multiply. Sums then go through shared memory, so that what is added and stored is whole lines.
 *
 * A block is its threads (warp groups and the copying warp), and a stage of rows + columns by 64 or 128 bytes of k.
 * Bound by tensor cores where k is long, by device memory in most convolutions.
 */
#include "kernels/cuda/hopper.h"
#include "kernels/cuda/overlap.cuh"
#include "kernels/cuda/stage_ring.cuh"
#include "kernels/cuda/wgmma.cuh"
#include "kernels/int8/cuda_tiles.h"

#pragma nv_diag_suppress 177 /* compiled for other GPUs, no kernel calls these functions */

#define MOST_STAGES 8
#define MOST_SMALL  255 /* products of two i8, the sum of whose magnitudes is below 2^22 */

template <int ROWS, int COLUMNS, int BYTES> struct tile_form {
    static const int computing = 2 * ROWS; /* threads */
    static const int threads = computing + 32;
    static const int blocks = COLUMNS > 128 ? 1 : ROWS *COLUMNS >= 128 * 128 ? 2 : 3; /* on a multiprocessor */
    static const int x_bytes = ROWS * BYTES, stage_bytes = x_bytes + COLUMNS * BYTES;
    static const int room = 227 * 1024 / blocks - 1024 - 1024 - 256;
    static const int stages = room / stage_bytes < MOST_STAGES ? room / stage_bytes : MOST_STAGES;
    static const int sum_stride = COLUMNS + 8; /* so that neither writing nor reading meets a bank twice */
    static const int barriers_at = stages * stage_bytes;
    static const int bytes = barriers_at + 16 * stages + 1024; /* 1024: to align the stages */
    static_assert(ROWS * sum_stride * 4 <= stages * stage_bytes, "sums take the stages' place");
};

typedef struct tile_args {
    trm_int8_product_args product;
    int64_t rows;                  /* of the output */
    int32_t columns, tiles_n;      /* of the output */
    int32_t taps, blocks;          /* of the window; of BYTES channels in a tap */
    bool windows, constant, small; /* small: sums are below 2^22 */
} tile_args;

typedef struct tile_maps {
    CUtensorMap x, weight;
} tile_maps;

/* ---- bringing operands ---- */

template <int BYTES, typename F>
static __device__ void bring_operands(const tile_args &a, const tile_maps &maps, uint32_t base, int64_t row0,
                                      int32_t column0)
{
    const trm_windows &w = a.product.w;
    const int32_t count = a.taps * a.blocks, ahead = a.constant ? min(F::stages, count) : 0;
    stage_ring<F> at(base, 1), early(base, 1); /* of a new barrier the phase of parity 1 has ended */
    for (int32_t i = 0; i < ahead; i++) {
        barrier_arrive_expect(early.full(), F::stage_bytes);
        copy_box(early.weight(), &maps.weight, i % a.blocks * BYTES, i / a.blocks, column0, early.full());
        early.next();
    }
    const int32_t image = (int32_t)(row0 / w.out_size), place = (int32_t)(row0 - image * w.out_size);
    const int32_t x0 = place % (int32_t)w.out[2] * (int32_t)w.stride[2] - (int32_t)w.before[2];
    const int32_t y0 = place / (int32_t)w.out[2] * (int32_t)w.stride[1] - (int32_t)w.before[1];
    int32_t tap = 0, tap_x = 0, tap_y = 0, block = 0;
    wait_for_previous();
    for (int32_t i = 0; i < count; i++) {
        barrier_wait(at.empty(), at.parity);
        if (i >= ahead) {
            barrier_arrive_expect(at.full(), F::stage_bytes);
            copy_box(at.weight(), &maps.weight, block * BYTES, tap, column0, at.full());
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
}

/* ---- products ---- */

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
/* The sums of a warp group's 64 rows. */
template <int COLUMNS, int BYTES, typename F>
static __device__ __forceinline__ void multiply(int32_t (&sums)[COLUMNS / 2], const tile_args &a, uint32_t base,
                                                int group, int lane)
{
    const int32_t count = a.taps * a.blocks;
    stage_ring<F> at(base, 0);
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
            if (lane == 0) {
                barrier_arrive(before);
            }
        }
        before = at.empty();
        at.next();
    }
    wgmma_wait<0>();
    wgmma_pin(sums);
}
#endif

/* ---- results ---- */

static __device__ __forceinline__ float low_half(uint32_t word, trm_dtype type)
{
    return type == TRM_F16 ? __half2float(__ushort_as_half((uint16_t)word)) : __uint_as_float(word << 16);
}

/*
 * Conversions between whole numbers and floats run at a quarter of the rate of additions, and would bound layers with a
 * short k. So numbers are put into the low bits of a float of 2^23 and more, and taken from there.
 */
#define WHOLE_FLOAT 12582912.0f /* 1.5 * 2^23: what is added to it is rounded to the nearest, half to even */
#define WHOLE_BITS  0x4b400000

/* Of magnitudes below 2^22. */
static __device__ __forceinline__ float small_float(int32_t whole)
{
    return __int_as_float(whole + WHOLE_BITS) - WHOLE_FLOAT;
}

/* Byte e of a word of i8. */
template <int e> static __device__ __forceinline__ float byte_float(uint32_t word)
{
    return __uint_as_float(__byte_perm(word ^ 0x80808080u, 0x4b000000u, 0x7440 | e)) - (8388608.0f + 128.0f);
}

/* The whole number from -128 to 127 that is nearest, in the low byte. */
static __device__ __forceinline__ uint32_t nearest_byte(float v)
{
    return __float_as_uint(fminf(fmaxf(v, -128.0f), 127.0f) + WHOLE_FLOAT);
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

/* Four elements of the residual, from number `at` on. */
static __device__ __forceinline__ void add_residual(const trm_int8_product_args &p, int64_t at, float (&v)[4])
{
    if (p.residual_type == TRM_I8) {
        const uint32_t word = *(const uint32_t *)((const int8_t *)p.residual + at);
        v[0] += byte_float<0>(word) * p.residual_scale;
        v[1] += byte_float<1>(word) * p.residual_scale;
        v[2] += byte_float<2>(word) * p.residual_scale;
        v[3] += byte_float<3>(word) * p.residual_scale;
    } else if (p.residual_type == TRM_F32) {
        const float4 four = *(const float4 *)((const float *)p.residual + at);
        v[0] += four.x;
        v[1] += four.y;
        v[2] += four.z;
        v[3] += four.w;
    } else {
        const uint2 words = *(const uint2 *)((const uint16_t *)p.residual + at);
        v[0] += low_half(words.x, p.residual_type);
        v[1] += low_half(words.x >> 16, p.residual_type);
        v[2] += low_half(words.y, p.residual_type);
        v[3] += low_half(words.y >> 16, p.residual_type);
    }
}

static __device__ __forceinline__ uint32_t two_halves(float low, float high, trm_dtype type)
{
    return type == TRM_F16 ? (uint32_t)trm_element_to_f16(low) | (uint32_t)trm_element_to_f16(high) << 16
                           : (uint32_t)trm_element_to_bf16(low) | (uint32_t)trm_element_to_bf16(high) << 16;
}

static __device__ __forceinline__ void store_four(const trm_int8_product_args &p, int64_t at, const float (&v)[4])
{
    if (p.out == TRM_I8) {
        const uint32_t low = __byte_perm(nearest_byte(v[0] * p.out_inverse), nearest_byte(v[1] * p.out_inverse), 0x40);
        const uint32_t high = __byte_perm(nearest_byte(v[2] * p.out_inverse), nearest_byte(v[3] * p.out_inverse), 0x40);
        *(uint32_t *)((int8_t *)p.y + at) = __byte_perm(low, high, 0x5410);
    } else if (p.out == TRM_F32) {
        *(float4 *)((float *)p.y + at) = make_float4(v[0], v[1], v[2], v[3]);
    } else {
        *(uint2 *)((uint16_t *)p.y + at) = make_uint2(two_halves(v[0], v[1], p.out), two_halves(v[2], v[3], p.out));
    }
}

/* Outputs of four columns: `scale` and `bias` are theirs. */
static __device__ __forceinline__ void finish_four(const trm_int8_product_args &p, bool small, int64_t at,
                                                   const int4 &sums, const float (&scale)[4], const float (&bias)[4])
{
    float v[4];
    if (small) {
        v[0] = small_float(sums.x);
        v[1] = small_float(sums.y);
        v[2] = small_float(sums.z);
        v[3] = small_float(sums.w);
    } else {
        v[0] = (float)sums.x;
        v[1] = (float)sums.y;
        v[2] = (float)sums.z;
        v[3] = (float)sums.w;
    }
#pragma unroll
    for (int e = 0; e < 4; e++) {
        v[e] = v[e] * scale[e] + bias[e];
    }
    if (p.product_scale > 0.0f) {
#pragma unroll
        for (int e = 0; e < 4; e++) {
            v[e] =
                (fminf(fmaxf(v[e] * p.product_inverse, -128.0f), 127.0f) + WHOLE_FLOAT - WHOLE_FLOAT) * p.product_scale;
        }
    }
    if (p.residual_type != TRM_DTYPE_NONE) {
        add_residual(p, at, v);
    }
    if (p.activation == TRM_ACTIVATION_RELU) {
#pragma unroll
        for (int e = 0; e < 4; e++) {
            v[e] = fmaxf(v[e], 0.0f);
        }
    } else if (p.activation == TRM_ACTIVATION_GELU) {
#pragma unroll
        for (int e = 0; e < 4; e++) {
            v[e] = gelu(v[e]);
        }
    } else if (p.activation != TRM_ACTIVATION_NONE) {
#pragma unroll
        for (int e = 0; e < 4; e++) {
            v[e] = trm_activate_f32(p.activation, v[e]);
        }
    }
    store_four(p, at, v);
}

/* All of a tile's sums, [row][column] in shared memory, as outputs. A thread keeps to four columns. */
template <int ROWS, int COLUMNS, typename F>
static __device__ __forceinline__ void store_tile(const tile_args &a, const int32_t *tile, int64_t row0,
                                                  int32_t column0, int thread)
{
    const trm_int8_product_args &p = a.product;
    const int four = thread % (COLUMNS / 4) * 4, column = column0 + four;
    const int rows = (int)min((int64_t)ROWS, a.rows - row0);
    if (a.columns % 4 != 0) { /* elements are not aligned to four */
        for (int row = thread / (COLUMNS / 4); row < rows; row += F::computing / (COLUMNS / 4)) {
            for (int e = 0; e < 4 && column + e < a.columns; e++) {
                trm_int8_finish(&p, column + e, (row0 + row) * a.columns + column + e,
                                tile[row * F::sum_stride + four + e]);
            }
        }
        return;
    }
    if (column >= a.columns) {
        return;
    }
    float scale[4], bias[4];
#pragma unroll
    for (int e = 0; e < 4; e++) {
        scale[e] = p.scale[(column + e) * p.scale_step];
        bias[e] = p.bias != NULL ? p.bias[column + e] : 0.0f;
    }
#pragma unroll 4
    for (int row = thread / (COLUMNS / 4); row < rows; row += F::computing / (COLUMNS / 4)) {
        finish_four(p, a.small, (row0 + row) * a.columns + column, *(const int4 *)(tile + row * F::sum_stride + four),
                    scale, bias);
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
    const int64_t row0 = (int64_t)(blockIdx.x / a.tiles_n) * ROWS;
    const int32_t column0 = (int32_t)(blockIdx.x % a.tiles_n) * COLUMNS;
    if (threadIdx.x == 0) {
        stage_ring<F> at(base, 0);
        for (int i = 0; i < F::stages; i++) {
            barrier_init(at.full(), 1);
            barrier_init(at.empty(), F::computing / 32);
            at.next();
        }
        barrier_init_done();
    }
    __syncthreads();
    start_next();
    if (threadIdx.x >= F::computing) {
        if (threadIdx.x == F::computing) {
            bring_operands<BYTES, F>(a, maps, base, row0, column0);
        }
        return;
    }
    const int thread = (int)threadIdx.x, warp = thread >> 5, lane = thread & 31;
    int32_t sums[COLUMNS / 2];
    multiply<COLUMNS, BYTES, F>(sums, a, base, thread >> 7, lane);
    named_sync(1, F::computing); /* all have read all stages, and sums take their place */
    int32_t *tile = (int32_t *)(shared + (base - shared_address(shared)));
#pragma unroll
    for (int i = 0; i < COLUMNS / 4; i++) {
        const int row = warp * 16 + (lane >> 2) + (i & 1) * 8, column = i / 2 * 8 + (lane & 3) * 2;
        *(int2 *)(tile + row * F::sum_stride + column) = make_int2(sums[2 * i], sums[2 * i + 1]);
    }
    named_sync(1, F::computing);
    wait_for_previous(); /* of this thread's own reads and writes */
    store_tile<ROWS, COLUMNS, F>(a, tile, row0, column0, thread);
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

static trm_status map_operands(const trm_int8_tiles *t, const tile_args &a, int rows, int columns, int bytes,
                               tile_maps *maps)
{
    const trm_int8_product_args *p = &t->product;
    const CUtensorMapSwizzle swizzle = bytes == 128 ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_64B;
    const cuuint64_t channels = (cuuint64_t)p->w.channels_in;
    const cuuint64_t dims[] = {channels, (cuuint64_t)p->w.kernel_size, (cuuint64_t)p->outputs};
    const cuuint64_t strides[] = {channels, channels * dims[1]};
    const cuuint32_t box[] = {(cuuint32_t)bytes, 1, (cuuint32_t)columns};
    TRM_TRY(trm_cuda_tensor_map(&maps->weight, p->weight, 3, dims, strides, box, swizzle, TRM_I8));
    if (a.windows) {
        trm_window_map map = windows_of(t);
        map.channels_taken = bytes;
        map.rows = rows;
        return trm_cuda_window_map(&maps->x, &map, swizzle);
    }
    const cuuint64_t row_dims[] = {channels, (cuuint64_t)a.rows, 1};
    const cuuint64_t row_strides[] = {channels, channels * row_dims[1]};
    const cuuint32_t row_box[] = {(cuuint32_t)bytes, (cuuint32_t)rows, 1};
    return trm_cuda_tensor_map(&maps->x, p->x, 3, row_dims, row_strides, row_box, swizzle, TRM_I8);
}

template <int ROWS, int COLUMNS, int BYTES> static trm_status launch(const trm_int8_tiles *t, cudaStream_t stream)
{
    typedef tile_form<ROWS, COLUMNS, BYTES> F;
    const trm_windows *w = &t->product.w;
    tile_args a = {};
    tile_maps maps;
    a.product = t->product;
    a.rows = w->batch * w->out_size;
    a.columns = (int32_t)t->product.outputs;
    a.tiles_n = (a.columns + COLUMNS - 1) / COLUMNS;
    a.taps = (int32_t)w->kernel_size;
    a.blocks = (int32_t)((w->channels_in + BYTES - 1) / BYTES);
    a.windows = has_windows(w);
    a.constant = t->constant;
    a.small = w->kernel_size * w->channels_in <= MOST_SMALL;
    TRM_TRY(map_operands(t, a, ROWS, COLUMNS, BYTES, &maps));
    TRM_CUDA_TRY(
        cudaFuncSetAttribute(int8_tiles<ROWS, COLUMNS, BYTES>, cudaFuncAttributeMaxDynamicSharedMemorySize, F::bytes));
    launch_kernel(true, int8_tiles<ROWS, COLUMNS, BYTES>, dim3((unsigned)((a.rows + ROWS - 1) / ROWS * a.tiles_n)),
                  dim3(F::threads), F::bytes, stream, a, maps);
    return trm_cuda_launched("cuda.int8_product tiles");
}

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
#define LAUNCH(rows, columns)                                                                                          \
    case TRM_INT8_TILE_##rows##x##columns:                                                                             \
        return wide ? launch<rows, columns, 128>(t, stream) : launch<rows, columns, 64>(t, stream);
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
                (rows + 63) / 64 * ((t->product.outputs + 31) / 32) <= INT32_MAX;
    if (fits && has_windows(w)) { /* of two dimensions */
        fits = w->in[0] == 1 && w->out[0] == 1 && w->kernel[0] == 1 && trm_cuda_window_map_fits(&map, reach);
    }
    return fits && trm_cuda_hopper_ready();
}

/* By rounds of blocks, and what one takes: bytes that come, with a third of the speed for sums that leave. */
int32_t trm_cuda_int8_tiles_choose(const trm_int8_tiles *t)
{
    static const int32_t sizes[][2] = {
#define SIZE(rows, columns) {rows, columns},
        TRM_INT8_TILES(SIZE)
#undef SIZE
    };
    const trm_windows *w = &t->product.w;
    const int64_t rows = w->batch * w->out_size, k = w->kernel_size * w->channels_in;
    const int processors = trm_cuda_hopper_processors();
    int32_t best = TRM_INT8_TILE_64x32;
    double least = 0.0;
    for (int32_t i = 0; i < TRM_INT8_TILE_COUNT; i++) {
        const int64_t r = sizes[i][0], c = sizes[i][1], blocks = c > 128 ? 1 : r * c >= 128 * 128 ? 2 : 3;
        const int64_t tiles = (rows + r - 1) / r * ((t->product.outputs + c - 1) / c);
        const int64_t places = processors * blocks, rounds = (tiles + places - 1) / places;
        const double shared = tiles >= places ? (double)blocks : (double)((tiles + processors - 1) / processors);
        const double time =
            (double)rounds * shared * ((double)((r + c) * k) + 3.0 * (double)(r * c) + 60000.0 / shared);
        if (i == 0 || time < least) {
            least = time;
            best = i;
        }
    }
    return best;
}

/* ---- blocks of positions ---- */

/* A thread per block: 16 bytes written; bound by device memory. */
static __global__ void __launch_bounds__(256)
    make_blocks(const trm_int8_blocks x, const trm_int8_blocks weight, int64_t n_x, int64_t count)
{
    begin_overlapped();
    for (int64_t at = global_thread(); at < count; at += global_threads()) {
        const trm_int8_blocks &b = at < n_x ? x : weight;
        const int64_t i = at < n_x ? at : at - n_x, rows = i / b.grid[1];
        const int y0 = (int)(rows % b.grid[0]) * 2 - b.before[0], x0 = (int)(i % b.grid[1]) * 2 - b.before[1];
        const int8_t *image = b.from + rows / b.grid[0] * b.in[0] * b.in[1] * b.channels;
        uint32_t words[4] = {};
#pragma unroll
        for (int n = 0; n < 16; n++) {
            const int place = n / b.channels, row = y0 + place / 2, column = x0 + place % 2;
            if (place < 4 && row >= 0 && row < b.in[0] && column >= 0 && column < b.in[1]) {
                const int64_t from = ((int64_t)row * b.in[1] + column) * b.channels + n - place * b.channels;
                words[n / 4] |= (uint32_t)(uint8_t)image[from] << n % 4 * 8;
            }
        }
        ((uint4 *)b.to)[i] = make_uint4(words[0], words[1], words[2], words[3]);
    }
}

trm_status trm_cuda_int8_blocks(const trm_int8_blocks blocks[2], cudaStream_t stream)
{
    const int64_t n_x = trm_int8_block_count(&blocks[0]), count = n_x + trm_int8_block_count(&blocks[1]);
    launch_overlapped(make_blocks, grid_for(count, 256), 256, 0, stream, blocks[0], blocks[1], n_x, count);
    return trm_cuda_launched("cuda.int8_product blocks");
}
