/*
 * The kernel of hopper.cu and hopper_f8.cu: attention of packed sequences with Hopper's warp group products (Shah et
 * al. 2024, "FlashAttention-3").
 */
#ifndef TRM_ATTENTION_CUDA_HOPPER_CUH
#define TRM_ATTENTION_CUDA_HOPPER_CUH

#include "attention/cuda/attention.h"
#include "attention/cuda/fp8.cuh"
#include "attention/cuda/geometry.h"
#include "attention/cuda/rows.cuh"
#include "kernels/cuda/wgmma.cuh"

/* What the kernel needs besides the call. */
typedef struct hopper_call {
    trm_cuda_attention a;
    int32_t box_keys; /* rows of a box of keys or values: neighbours in memory whatever the block table says */
    int32_t pack;     /* query heads of one key-value head that share a tile; 1: a tile has one head */
    uint32_t *next;   /* number of the next tile, 0 when the kernel starts; NULL: tiles are dealt out in advance */
} hopper_call;

/* One tile of queries, as the loading warp describes it to the others. */
typedef struct hopper_tile {
    int32_t first;     /* token of the sequence's first query; -1: there are no more tiles */
    int32_t start;     /* query of the tile's first row */
    int32_t queries;   /* of the sequence */
    int32_t keys;      /* of the sequence */
    int32_t head;      /* query head of the tile's first row */
    int32_t low, high; /* tiles of keys that any row sees */
    int32_t sequence;
} hopper_tile;

/* The tensor maps of a call: boxes of 64 rows of queries, of `box_keys` keys or values, of a whole tile of them. */
typedef struct hopper_maps {
    CUtensorMap q, k_boxes, v_boxes, k_tiles, v_tiles;
} hopper_maps;

/* F8: keys and values are of an e4m3 cache, and two warps each expand them. */
template <int DP_, int KEYS_, int GROUPS_, bool F8_ = false> struct hopper_shape {
    static const int DP = DP_, KEYS = KEYS_, GROUPS = GROUPS_, STAGES = 2;
    static const bool F8 = F8_;
    static const int ROWS = 64 * GROUPS;                /* of a tile of queries, 64 for each consuming warp group */
    static const int THREADS = 128 * (GROUPS + 1);      /* the first warp group loads */
    static const int SWIZZLE = DP % 64 == 0 ? 128 : 64; /* bytes of a panel's row */
    static const int COLUMNS = SWIZZLE / 2;             /* elements of it */
    static const int PANELS = DP / COLUMNS;
    static const int Q_BYTES = 64 * DP * 2;      /* of one warp group */
    static const int TILE_BYTES = KEYS * DP * 2; /* of a tile of keys or of values */
    static const int BARRIERS = 4 * STAGES + 2 * GROUPS + 4 + 1;
    static const int TILES_AT = GROUPS * Q_BYTES + 2 * STAGES * TILE_BYTES;
    static const int BARRIERS_AT = TILES_AT + 2 * 32;
    static const int SHARED = BARRIERS_AT + 8 * BARRIERS + 1024; /* 1024: to align the panels */
    static const int LOAD_REGISTERS = F8 ? 72 : GROUPS == 2 ? 40 : 32;
    static const int REGISTERS = F8 ? 216 : GROUPS == 2 ? 232 : GROUPS == 3 ? 160 : 0;
    static const int LOADERS = F8 ? 2 : 1; /* warps that bring keys, and as many that bring values */
    static_assert(!F8 || GROUPS == 2, "the loaders' registers are those that two groups leave");
};

/* Addresses in shared memory. */
template <typename S> struct hopper_shared {
    uint32_t q, k, v, tiles, barriers;
    __device__ __forceinline__ uint32_t k_full(int stage) const
    {
        return barriers + 8 * stage;
    }
    __device__ __forceinline__ uint32_t k_empty(int stage) const
    {
        return barriers + 8 * (S::STAGES + stage);
    }
    __device__ __forceinline__ uint32_t v_full(int stage) const
    {
        return barriers + 8 * (2 * S::STAGES + stage);
    }
    __device__ __forceinline__ uint32_t v_empty(int stage) const
    {
        return barriers + 8 * (3 * S::STAGES + stage);
    }
    __device__ __forceinline__ uint32_t q_full(int group) const
    {
        return barriers + 8 * (4 * S::STAGES + group);
    }
    __device__ __forceinline__ uint32_t q_empty(int group) const
    {
        return barriers + 8 * (4 * S::STAGES + S::GROUPS + group);
    }
    __device__ __forceinline__ uint32_t tile_full(int slot) const
    {
        return barriers + 8 * (4 * S::STAGES + 2 * S::GROUPS + slot);
    }
    __device__ __forceinline__ uint32_t tile_empty(int slot) const
    {
        return tile_full(2 + slot);
    }
    __device__ __forceinline__ uint32_t tail_full(void) const
    {
        return tile_full(4);
    }
};

/* ---- loading ------------------------------------------------------------------------------------ */

/* As trm_attention_find_tile, by a warp. */
static __device__ __forceinline__ trm_query_tile find_tile(const trm_cuda_attention &a, int32_t rows, int32_t tile,
                                                           int lane)
{
    trm_query_tile found = {-1, 0, 0, 0};
    for (int32_t base = 0; base < a.sequences; base += 32) {
        int32_t s = base + lane, first = 0, queries = 0;
        if (s < a.sequences) {
            first = a.packed ? a.starts[s] : s * a.queries;
            queries = a.packed ? a.starts[s + 1] - first : a.queries;
        }
        int32_t tiles = queries <= a.skipped ? 0 : (queries + rows - 1) / rows, sum = tiles;
#pragma unroll
        for (int offset = 1; offset < 32; offset *= 2) {
            int32_t other = __shfl_up_sync(0xffffffffu, sum, offset);
            sum += lane >= offset ? other : 0;
        }
        unsigned past = __ballot_sync(0xffffffffu, tile < sum);
        if (past != 0) {
            int from = __ffs((int)past) - 1;
            found.sequence = base + from;
            found.first = __shfl_sync(0xffffffffu, first, from);
            found.queries = __shfl_sync(0xffffffffu, queries, from);
            int32_t left = __shfl_sync(0xffffffffu, sum, from) - tile; /* from the end: the last tile comes first */
            found.start = (left - 1) * rows;
            return found;
        }
        tile -= __shfl_sync(0xffffffffu, sum, 31);
    }
    return found;
}

/* Where the boxes of one tile of keys lie in memory: lane i has the row of box i. */
typedef struct hopper_boxes {
    int32_t row, count;
    bool whole; /* one after the other */
} hopper_boxes;

template <typename S>
static __device__ __forceinline__ hopper_boxes find_boxes(const hopper_call &c, const hopper_tile &t, int32_t tile,
                                                          int lane)
{
    hopper_boxes boxes;
    int32_t key = tile * S::KEYS + lane * c.box_keys, left = t.keys - tile * S::KEYS;
    boxes.count = ((left < S::KEYS ? left : S::KEYS) + c.box_keys - 1) / c.box_keys;
    boxes.row = t.first + key;
    if (c.a.cached && lane < boxes.count) {
        int32_t block = (int32_t)((uint32_t)key / (uint32_t)c.a.block_size);
        boxes.row =
            c.a.table[(int64_t)t.sequence * c.a.table_blocks + block] * c.a.block_size + (key - block * c.a.block_size);
    }
    int32_t first = __shfl_sync(0xffffffffu, boxes.row, 0);
    boxes.whole = __all_sync(0xffffffffu, lane >= boxes.count || boxes.row == first + lane * c.box_keys);
    return boxes;
}

/* Starts the copies of a tile of keys or values into a stage; called by a warp. */
template <typename S>
static __device__ __forceinline__ void load_boxes(const hopper_call &c, const CUtensorMap *box_map,
                                                  const CUtensorMap *tile_map, const hopper_boxes &boxes, int32_t head,
                                                  uint32_t to, uint32_t barrier, int lane)
{
    if (boxes.whole) { /* what lies past the end of the sequence comes along */
        if (lane == 0) {
            barrier_arrive_expect(barrier, S::TILE_BYTES);
#pragma unroll
            for (int panel = 0; panel < S::PANELS; panel++) {
                copy_box(to + panel * (S::KEYS * S::SWIZZLE), tile_map, panel * S::COLUMNS, head, boxes.row, barrier);
            }
        }
        return;
    }
    if (lane == 0) {
        barrier_arrive_expect(barrier, (uint32_t)(boxes.count * c.box_keys * S::DP * 2));
    }
    __syncwarp();
    if (lane < boxes.count) {
#pragma unroll
        for (int panel = 0; panel < S::PANELS; panel++) {
            copy_box(to + panel * (S::KEYS * S::SWIZZLE) + lane * c.box_keys * S::SWIZZLE, box_map, panel * S::COLUMNS,
                     head, boxes.row, barrier);
        }
    }
}

static __device__ __forceinline__ void store_shared16(uint32_t address, uint4 value)
{
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};"
                 :
                 : "r"(address), "r"(value.x), "r"(value.y), "r"(value.z), "r"(value.w)
                 : "memory");
}

/* Addresses that a tensor copy with a swizzle of S::SWIZZLE bytes would write to. */
template <typename S> static __device__ __forceinline__ uint32_t swizzled(uint32_t address)
{
    return address ^ (address >> 3 & (S::SWIZZLE == 128 ? 0x70 : 0x30));
}

/* 16 numbers of a key or value of an e4m3 cache from element `column` on; zeros where the key is not `valid` and past
 * the dim. */
static __device__ __forceinline__ uint4 load_numbers(const trm_cuda_attention &a, const uint8_t *vector, int32_t column,
                                                     bool valid)
{
    uint4 raw = make_uint4(0, 0, 0, 0);
    if (a.dim % 16 == 0) {
        if (valid && column < a.dim) {
            raw = __ldg((const uint4 *)(vector + column));
        }
        return raw;
    }
    if (valid && column < a.dim) {
        uint2 half = __ldg((const uint2 *)(vector + column));
        raw.x = half.x;
        raw.y = half.y;
    }
    if (valid && column + 8 < a.dim) {
        uint2 half = __ldg((const uint2 *)(vector + column + 8));
        raw.z = half.x;
        raw.w = half.y;
    }
    return raw;
}

/* This warp's half, number `member` of two, of a tile of keys or values of an e4m3 cache: expanded into a stage, as
 * tensor copies write panels. Rows past the end of the sequence become zeros. */
template <typename T, typename S>
static __device__ __forceinline__ void expand_tile(const hopper_call &c, const hopper_tile &t, const void *cache,
                                                   int32_t tile, uint32_t to, uint32_t barrier, int member, int lane)
{
    const trm_cuda_attention &a = c.a;
    constexpr int UNITS = S::DP / 16, EACH = S::KEYS * UNITS / 64; /* of a row, of a lane */
    constexpr int BATCH = EACH % 8 == 0 ? 8 : EACH % 7 == 0 ? 7 : 6;
    static_assert(S::KEYS * UNITS % 64 == 0 && EACH % BATCH == 0, "lanes have whole batches");
    key_rows rows = key_rows_of(a, t.sequence, 0, t.head / a.group);
#pragma unroll 1
    for (int first = 0; first < EACH; first += BATCH) {
        uint4 raw[BATCH];
#pragma unroll
        for (int i = 0; i < BATCH; i++) {
            int unit = (first + i) * 64 + member * 32 + lane, key = tile * S::KEYS + unit / UNITS;
            bool valid = key < t.keys;
            const uint8_t *vector = (const uint8_t *)cache + (valid ? vector_of(rows, key) * a.dim : 0);
            raw[i] = load_numbers(a, vector, unit % UNITS * 16, valid);
        }
#pragma unroll
        for (int i = 0; i < BATCH; i++) {
            int unit = (first + i) * 64 + member * 32 + lane, column = unit % UNITS * 16;
            uint32_t at =
                to + column / S::COLUMNS * (S::KEYS * S::SWIZZLE) + unit / UNITS * S::SWIZZLE + column % S::COLUMNS * 2;
            uint4 low = f8_unpack8<T>(make_uint2(raw[i].x, raw[i].y));
            uint4 high = f8_unpack8<T>(make_uint2(raw[i].z, raw[i].w));
            store_shared16(swizzled<S>(at), low);
            store_shared16(swizzled<S>(at + 16), high);
        }
    }
    fence_async();
    __syncwarp();
    if (lane == 0) {
        barrier_arrive(barrier);
    }
}

/* Numbers tiles as they are dealt out to `blocks` blocks in turn, there and back: the first tiles have the most keys.
 */
static __device__ __forceinline__ int32_t dealt_tile(int32_t turn)
{
    int32_t block = turn & 1 ? (int32_t)(gridDim.x - 1 - blockIdx.x) : (int32_t)blockIdx.x;
    return turn * (int32_t)gridDim.x + block;
}

/* The tile that is number `turn` of this block. */
template <typename S>
static __device__ __forceinline__ hopper_tile next_tile(const hopper_call &c, int32_t turn, int lane)
{
    const trm_cuda_attention &a = c.a;
    int32_t rows = S::ROWS / c.pack, heads = a.query_heads / c.pack, work;
    if (c.next != NULL) {
        work = lane == 0 ? (int32_t)atomicAdd(c.next, 1u) : 0;
        work = __shfl_sync(0xffffffffu, work, 0);
    } else {
        work = dealt_tile(turn);
    }
    trm_query_tile tile = find_tile(a, rows, work / heads, lane);
    hopper_tile t = {-1, 0, 0, 0, 0, 0, 0, 0};
    if (tile.sequence >= 0) {
        t.sequence = tile.sequence;
        t.first = tile.first;
        t.start = tile.start;
        t.queries = tile.queries;
        t.keys = a.cached ? a.lengths[tile.sequence] : tile.queries;
        t.head = work % heads * c.pack;
        int32_t left = tile.queries - tile.start, last = tile.start + (left < rows ? left : rows) - 1;
        trm_key_range low = trm_attention_range(a.causal, a.window, tile.start, tile.queries, t.keys);
        trm_key_range high = trm_attention_range(a.causal, a.window, last, tile.queries, t.keys);
        int32_t end = high.high < t.keys ? high.high : t.keys;
        t.low = low.low / S::KEYS;
        t.high = end > low.low ? (end + S::KEYS - 1) / S::KEYS : t.low;
    }
    return t;
}

/* One warp finds the tiles, tells the others, and loads queries and keys. */
template <typename T, typename S>
static __device__ __forceinline__ void load_queries_keys(const hopper_call &c, const hopper_maps &maps,
                                                         const hopper_shared<S> &shared, unsigned char *slots, int lane)
{
    uint32_t k_count = 0, q_count = 0;
    for (int32_t turn = 0;; turn++) {
        hopper_tile t = next_tile<S>(c, turn, lane);
        int slot = turn & 1;
        barrier_wait(shared.tile_empty(slot), (turn >> 1 & 1) ^ 1);
        if (lane == 0) {
            *(hopper_tile *)(slots + 32 * slot) = t;
            barrier_arrive(shared.tile_full(slot));
        }
        if (t.first < 0) {
            return;
        }
        for (int32_t n = t.high - 1; n >= t.low; n--) {
            int stage = k_count % S::STAGES;
            uint32_t to = shared.k + stage * S::TILE_BYTES;
            if constexpr (S::F8) {
                barrier_wait(shared.k_empty(stage), (k_count / S::STAGES & 1) ^ 1);
                expand_tile<T, S>(c, t, c.a.key_cache, n, to, shared.k_full(stage), 0, lane);
            } else {
                hopper_boxes boxes = find_boxes<S>(c, t, n, lane);
                barrier_wait(shared.k_empty(stage), (k_count / S::STAGES & 1) ^ 1);
                load_boxes<S>(c, &maps.k_boxes, &maps.k_tiles, boxes, t.head / c.a.group, to, shared.k_full(stage),
                              lane);
            }
            k_count++;
            if (n < t.high - 1) {
                continue;
            }
#pragma unroll 1
            for (int group = 0; group < S::GROUPS; group++) {
                barrier_wait(shared.q_empty(group), (q_count & 1) ^ 1);
                if (lane == 0) {
                    barrier_arrive_expect(shared.q_full(group), S::Q_BYTES);
#pragma unroll 1
                    for (int panel = 0; panel < S::PANELS; panel++) {
                        copy_box(shared.q + group * S::Q_BYTES + panel * (64 * S::SWIZZLE), &maps.q, panel * S::COLUMNS,
                                 t.head, t.first + t.start + group * (64 / c.pack), shared.q_full(group));
                    }
                }
            }
            q_count++;
        }
    }
}

/* Zeros into rows `row` .. KEYS - 1 of a tile of values, by a warp. */
template <typename S> static __device__ __forceinline__ void clear_rows(uint32_t tile, int32_t row, int lane)
{
    int32_t chunks = (S::KEYS - row) * (S::SWIZZLE / 16);
#pragma unroll 1
    for (int panel = 0; panel < S::PANELS; panel++) {
#pragma unroll 1
        for (int32_t i = lane; i < chunks; i += 32) {
            asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};"
                         :
                         : "r"(tile + (panel * S::KEYS + row) * S::SWIZZLE + i * 16), "r"(0)
                         : "memory");
        }
    }
    fence_async();
    __syncwarp();
}

/* Another warp loads values. */
template <typename S>
static __device__ __forceinline__ void load_values(const hopper_call &c, const hopper_maps &maps,
                                                   const hopper_shared<S> &shared, const unsigned char *slots, int lane)
{
    uint32_t v_count = 0, tails = 0;
    for (int32_t turn = 0;; turn++) {
        int slot = turn & 1;
        barrier_wait(shared.tile_full(slot), turn >> 1 & 1);
        hopper_tile t = *(const hopper_tile *)(slots + 32 * slot);
        __syncwarp();
        if (lane == 0) {
            barrier_arrive(shared.tile_empty(slot));
        }
        if (t.first < 0) {
            return;
        }
        for (int32_t n = t.high - 1; n >= t.low; n--) {
            hopper_boxes boxes = find_boxes<S>(c, t, n, lane);
            int stage = v_count % S::STAGES;
            uint32_t to = shared.v + stage * S::TILE_BYTES;
            /* What is multiplied by a weight of 0 must not be NaN: past the end of the sequence stand zeros. */
            bool tail = (n + 1) * S::KEYS > t.keys;
            barrier_wait(shared.v_empty(stage), (v_count / S::STAGES & 1) ^ 1);
            load_boxes<S>(c, &maps.v_boxes, &maps.v_tiles, boxes, t.head / c.a.group, to,
                          tail ? shared.tail_full() : shared.v_full(stage), lane);
            if (tail) {
                barrier_wait(shared.tail_full(), tails++ & 1);
                clear_rows<S>(to, t.keys - n * S::KEYS, lane);
                if (lane == 0) {
                    barrier_arrive(shared.v_full(stage));
                }
            }
            v_count++;
        }
    }
}

/* The other warps that expand an e4m3 cache: keys, or values, of which this one is number `member` of two. */
template <typename T, typename S>
static __device__ __forceinline__ void expand_tiles(const hopper_call &c, const hopper_shared<S> &shared,
                                                    const unsigned char *slots, bool is_key, int member, int lane)
{
    uint32_t count = 0;
    for (int32_t turn = 0;; turn++) {
        int slot = turn & 1;
        barrier_wait(shared.tile_full(slot), turn >> 1 & 1);
        hopper_tile t = *(const hopper_tile *)(slots + 32 * slot);
        __syncwarp();
        if (lane == 0) {
            barrier_arrive(shared.tile_empty(slot));
        }
        if (t.first < 0) {
            return;
        }
        for (int32_t n = t.high - 1; n >= t.low; n--) {
            int stage = count % S::STAGES;
            barrier_wait(is_key ? shared.k_empty(stage) : shared.v_empty(stage), (count / S::STAGES & 1) ^ 1);
            expand_tile<T, S>(c, t, is_key ? c.a.key_cache : c.a.value_cache, n,
                              (is_key ? shared.k : shared.v) + stage * S::TILE_BYTES,
                              is_key ? shared.k_full(stage) : shared.v_full(stage), member, lane);
            count++;
        }
    }
}

/* ---- computing ---------------------------------------------------------------------------------- */

static __device__ __forceinline__ float exp2_fast(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* Exact to f32's rounding near its limits, unlike tanh.approx. */
static __device__ __forceinline__ float tanh_fast(float x)
{
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(exp2_fast(x * 2.88539008177792681f) + 1.0f));
    return 1.0f - 2.0f * y;
}

/* scores [64, KEYS] = q k^T of a warp group. */
template <typename T, typename S>
static __device__ __forceinline__ void multiply_keys(float (&scores)[S::KEYS / 2], uint32_t q, uint32_t k)
{
    uint64_t a = wgmma_operand<S::SWIZZLE>(q, 0), b = wgmma_operand<S::SWIZZLE>(k, 0);
#pragma unroll
    for (int step = 0; step < S::DP / 16; step++) {
        int panel = step / (S::COLUMNS / 16), within = step % (S::COLUMNS / 16) * 32;
        wgmma_nt(scores, a + ((panel * 64 * S::SWIZZLE + within) >> 4),
                 b + ((panel * S::KEYS * S::SWIZZLE + within) >> 4), step > 0, T());
    }
}

/* out [64, DP] += weights v of a warp group. */
template <typename T, typename S>
static __device__ __forceinline__ void multiply_values(float (&out)[S::DP / 2], const uint32_t (&weights)[S::KEYS / 4],
                                                       uint32_t v)
{
    uint64_t b = wgmma_operand<S::SWIZZLE>(v, S::KEYS * S::SWIZZLE);
#pragma unroll
    for (int step = 0; step < S::KEYS / 16; step++) {
        wgmma_nn(out, weights[4 * step], weights[4 * step + 1], weights[4 * step + 2], weights[4 * step + 3],
                 b + ((step * 16 * S::SWIZZLE) >> 4), T());
    }
}

/* One thread's two rows of a tile: row r's running maximum (of raw scores, or capped ones in log2 units) and this
 * thread's part of its sum. */
typedef struct hopper_rows {
    float largest[2], part[2];
    trm_key_range ranges[2];
} hopper_rows;

template <typename S, bool CAP>
static __device__ __forceinline__ void mask_tile(float (&scores)[S::KEYS / 2], const trm_key_range (&ranges)[2],
                                                 int32_t key, int lane)
{
    int32_t at = key + lane % 4 * 2;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        int32_t low = ranges[r].low - at, high = ranges[r].high - at;
#pragma unroll
        for (int j = 0; j < S::KEYS / 8; j++) {
#pragma unroll
            for (int i = 0; i < 2; i++) {
                int column = 8 * j + i;
                float &score = scores[4 * j + 2 * r + i];
                score = column >= low && column < high ? score : -INFINITY;
            }
        }
    }
}

/* Scores to weights; `shrink` receives what earlier sums must be multiplied by. factor: from scores to log2 units. */
template <typename S>
static __device__ __forceinline__ void softmax_tile(float (&scores)[S::KEYS / 2], hopper_rows &rows, float factor,
                                                    float (&shrink)[2])
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float part[4] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY};
#pragma unroll
        for (int j = 0; j < S::KEYS / 8; j++) {
            part[j % 2 * 2] = fmaxf(part[j % 2 * 2], scores[4 * j + 2 * r]);
            part[j % 2 * 2 + 1] = fmaxf(part[j % 2 * 2 + 1], scores[4 * j + 2 * r + 1]);
        }
        float largest = fmaxf(fmaxf(part[0], part[1]), fmaxf(part[2], part[3]));
        largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 1));
        largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 2));
        largest = fmaxf(largest, rows.largest[r]);
        float base = largest == -INFINITY ? 0.0f : largest * factor; /* a row that has seen nothing: weights 0 */
        shrink[r] = exp2_fast(rows.largest[r] * factor - base);
        rows.largest[r] = largest;
        part[0] = part[1] = part[2] = part[3] = 0.0f;
#pragma unroll
        for (int j = 0; j < S::KEYS / 8; j++) {
            float &x = scores[4 * j + 2 * r], &y = scores[4 * j + 2 * r + 1];
            x = exp2_fast(x * factor - base);
            y = exp2_fast(y * factor - base);
            part[j % 2 * 2] += x;
            part[j % 2 * 2 + 1] += y;
        }
        rows.part[r] = rows.part[r] * shrink[r] + ((part[0] + part[1]) + (part[2] + part[3]));
    }
}

/* The accumulators of two neighbouring tiles of 8 keys are the left operand of 16 keys. */
template <typename T, int N>
static __device__ __forceinline__ void pack_weights(uint32_t (&weights)[N / 4], const float (&scores)[N / 2])
{
#pragma unroll
    for (int i = 0; i < N / 4; i++) {
        weights[i] = pack2(scores[2 * i], scores[2 * i + 1], T());
    }
}

/* Four lanes that share a row have two neighbouring columns each of four groups of eight; they exchange them so that
 * lane t has the eight columns of group t. */
static __device__ __forceinline__ uint4 exchange_columns(uint32_t a, uint32_t b, uint32_t c, uint32_t d, int lane)
{
    bool odd = lane & 1, upper = lane & 2;
    uint32_t ab = __shfl_xor_sync(0xffffffffu, odd ? a : b, 1), cd = __shfl_xor_sync(0xffffffffu, odd ? c : d, 1);
    uint32_t a2 = odd ? ab : a, b2 = odd ? b : ab, c2 = odd ? cd : c, d2 = odd ? d : cd;
    uint32_t ac = __shfl_xor_sync(0xffffffffu, upper ? a2 : c2, 2),
             bd = __shfl_xor_sync(0xffffffffu, upper ? b2 : d2, 2);
    return make_uint4(upper ? ac : a2, upper ? bd : b2, upper ? c2 : ac, upper ? d2 : bd);
}

template <typename T, typename S>
static __device__ __forceinline__ void store_tile(const hopper_call &c, const hopper_tile &t,
                                                  const float (&out)[S::DP / 2], const hopper_rows &rows, int row,
                                                  int lane)
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float total = rows.part[r] + __shfl_xor_sync(0xffffffffu, rows.part[r], 1);
        total += __shfl_xor_sync(0xffffffffu, total, 2);
        float scale = total == 0.0f ? 0.0f : __fdividef(c.a.value_scale, total); /* no key seen: zeros */
        int32_t in_tile = row + 8 * r, query = t.start + in_tile / c.pack, head = t.head + in_tile % c.pack;
        T *to = (T *)c.a.out + ((int64_t)(t.first + query) * c.a.query_heads + head) * c.a.dim;
#pragma unroll
        for (int j = 0; j < S::DP / 32; j++) {
            const float *from = &out[16 * j + 2 * r];
            uint4 eight = exchange_columns(
                pack2(from[0] * scale, from[1] * scale, T()), pack2(from[4] * scale, from[5] * scale, T()),
                pack2(from[8] * scale, from[9] * scale, T()), pack2(from[12] * scale, from[13] * scale, T()), lane);
            int column = 32 * j + lane % 4 * 8;
            if (query < t.queries && column < c.a.dim) {
                *(uint4 *)(to + column) = eight;
            }
        }
    }
}

template <typename S, bool PINGPONG> static __device__ __forceinline__ void take_turn(int group)
{
    if (PINGPONG) {
        named_sync(1 + group, 256);
    }
}
template <typename S, bool PINGPONG> static __device__ __forceinline__ void give_turn(int group)
{
    if (PINGPONG) {
        named_arrive(1 + (group + 1) % S::GROUPS, 256);
    }
}

template <typename T, typename S, bool CAP, bool PINGPONG>
static __device__ __forceinline__ void compute_all(const hopper_call &c, const hopper_shared<S> &shared,
                                                   const unsigned char *slots, int group, int lane)
{
    const trm_cuda_attention &a = c.a;
    int warp = (threadIdx.x >> 5) & 3, row = group * 64 + warp * 16 + lane / 4;
    uint32_t q = shared.q + group * S::Q_BYTES, k_count = 0, v_count = 0, q_count = 0;
    float factor = CAP ? 1.0f : a.scale * 1.44269504088896341f;
    float cap_in = CAP ? a.scale / a.softcap : 0.0f, cap_out = a.softcap * 1.44269504088896341f;
    if (PINGPONG && group == S::GROUPS - 1) {
        named_arrive(1, 256);
    }
    for (int32_t turn = 0;; turn++) {
        int slot = turn & 1;
        barrier_wait(shared.tile_full(slot), turn >> 1 & 1);
        hopper_tile t = *(const hopper_tile *)(slots + 32 * slot);
        __syncwarp();
        if (lane == 0) {
            barrier_arrive(shared.tile_empty(slot));
        }
        if (t.first < 0) {
            return;
        }
        hopper_rows rows;
        float out[S::DP / 2], scores[S::KEYS / 2], shrink[2];
        uint32_t weights[S::KEYS / 4];
#pragma unroll
        for (int r = 0; r < 2; r++) {
            rows.largest[r] = -INFINITY;
            rows.part[r] = 0.0f;
            rows.ranges[r] =
                trm_attention_range(a.causal, a.window, t.start + (row + 8 * r) / c.pack, t.queries, t.keys);
        }
        /* What every row of this warp group sees needs no mask. */
        trm_key_range first =
            trm_attention_range(a.causal, a.window, t.start + group * (64 / c.pack), t.queries, t.keys);
        trm_key_range last =
            trm_attention_range(a.causal, a.window, t.start + (group + 1) * (64 / c.pack) - 1, t.queries, t.keys);
        int32_t inside_low = last.low, inside_high = first.high < t.keys ? first.high : t.keys;
#pragma unroll
        for (int i = 0; i < S::DP / 2; i++) {
            out[i] = 0.0f;
        }
        if (t.high > t.low) {
            auto weigh = [&](int32_t n) {
                if (CAP) {
#pragma unroll
                    for (int i = 0; i < S::KEYS / 2; i++) {
                        scores[i] = cap_out * tanh_fast(scores[i] * cap_in);
                    }
                }
                if (n * S::KEYS < inside_low || (n + 1) * S::KEYS > inside_high) {
                    mask_tile<S, CAP>(scores, rows.ranges, n * S::KEYS, lane);
                }
                softmax_tile<S>(scores, rows, factor, shrink);
            };
            auto k_stage = [&]() { return k_count % S::STAGES; };
            auto v_stage = [&]() { return v_count % S::STAGES; };
            barrier_wait(shared.q_full(group), q_count++ & 1);
            barrier_wait(shared.k_full(k_stage()), k_count / S::STAGES & 1);
            take_turn<S, PINGPONG>(group);
            wgmma_pin(scores);
            wgmma_begin();
            multiply_keys<T, S>(scores, q, shared.k + k_stage() * S::TILE_BYTES);
            wgmma_commit();
            give_turn<S, PINGPONG>(group);
            wgmma_wait<0>();
            wgmma_pin(scores);
            if (lane == 0) {
                barrier_arrive(shared.k_empty(k_stage()));
            }
            k_count++;
            weigh(t.high - 1);
            pack_weights<T, S::KEYS>(weights, scores);
            for (int32_t n = t.high - 2; n >= t.low; n--) {
                barrier_wait(shared.k_full(k_stage()), k_count / S::STAGES & 1);
                take_turn<S, PINGPONG>(group);
                wgmma_pin(scores);
                wgmma_pin(out);
                wgmma_begin();
                multiply_keys<T, S>(scores, q, shared.k + k_stage() * S::TILE_BYTES);
                wgmma_commit();
                barrier_wait(shared.v_full(v_stage()), v_count / S::STAGES & 1);
                multiply_values<T, S>(out, weights, shared.v + v_stage() * S::TILE_BYTES);
                wgmma_commit();
                give_turn<S, PINGPONG>(group);
                wgmma_wait<1>();
                wgmma_pin(scores);
                if (lane == 0) {
                    barrier_arrive(shared.k_empty(k_stage()));
                }
                k_count++;
                weigh(n);
                wgmma_wait<0>();
                wgmma_pin(out);
                if (lane == 0) {
                    barrier_arrive(shared.v_empty(v_stage()));
                }
                v_count++;
#pragma unroll
                for (int j = 0; j < S::DP / 8; j++) {
                    out[4 * j] *= shrink[0];
                    out[4 * j + 1] *= shrink[0];
                    out[4 * j + 2] *= shrink[1];
                    out[4 * j + 3] *= shrink[1];
                }
                pack_weights<T, S::KEYS>(weights, scores);
            }
            if (lane == 0) {
                barrier_arrive(shared.q_empty(group));
            }
            barrier_wait(shared.v_full(v_stage()), v_count / S::STAGES & 1);
            take_turn<S, PINGPONG>(group);
            wgmma_pin(out);
            wgmma_begin();
            multiply_values<T, S>(out, weights, shared.v + v_stage() * S::TILE_BYTES);
            wgmma_commit();
            give_turn<S, PINGPONG>(group);
            wgmma_wait<0>();
            wgmma_pin(out);
            if (lane == 0) {
                barrier_arrive(shared.v_empty(v_stage()));
            }
            v_count++;
        }
        store_tile<T, S>(c, t, out, rows, row, lane);
    }
}

/*
 * A block takes tile after tile of ROWS queries of one sequence (of `pack` neighbouring heads together): two warps load
 * queries, keys and values by tensor copies into rings of STAGES tiles, GROUPS warp groups compute 64 rows each. In a
 * warp group the product of queries and the next keys runs ahead of the softmax, whose weights meet the values while
 * the next softmax is computed; with PINGPONG, warp groups issue their products in turn. Keys pass from the last seen
 * to the first: masks are needed at the ends alone. Shared memory and registers: see hopper_shape. Bound by the tensor
 * cores, and in long runs by the power the GPU may draw: 687 TFLOP/s at 8192 tokens, 601 at 32768 (H200, bf16, 32 heads
 * of 128 over 8, causal, random data; bench_attention) of about 800 that a matrix product reaches.
 */
template <typename T, typename S, bool CAP, bool PINGPONG>
static __global__ void __launch_bounds__(S::THREADS, 1)
    hopper_tiles(const __grid_constant__ hopper_call c, const __grid_constant__ hopper_maps maps)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ unsigned char memory[];
    unsigned char *base = memory + (-shared_address(memory) & 1023);
    hopper_shared<S> shared;
    shared.q = shared_address(base);
    shared.k = shared.q + S::GROUPS * S::Q_BYTES;
    shared.v = shared.k + S::STAGES * S::TILE_BYTES;
    shared.tiles = shared.q + S::TILES_AT;
    shared.barriers = shared.q + S::BARRIERS_AT;
    int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    if (threadIdx.x == 0) {
        prefetch_map(&maps.q);
        if (!S::F8) {
            prefetch_map(&maps.k_tiles);
            prefetch_map(&maps.v_tiles);
        }
        for (int stage = 0; stage < S::STAGES; stage++) {
            barrier_init(shared.k_full(stage), S::LOADERS);
            barrier_init(shared.v_full(stage), S::LOADERS);
            barrier_init(shared.k_empty(stage), 4 * S::GROUPS);
            barrier_init(shared.v_empty(stage), 4 * S::GROUPS);
        }
        for (int group = 0; group < S::GROUPS; group++) {
            barrier_init(shared.q_full(group), 1);
            barrier_init(shared.q_empty(group), 4);
        }
        for (int slot = 0; slot < 2; slot++) {
            barrier_init(shared.tile_full(slot), 1);
            barrier_init(shared.tile_empty(slot), 4 * S::GROUPS + 2 * S::LOADERS - 1);
        }
        barrier_init(shared.tail_full(), 1);
        barrier_init_done();
    }
    __syncthreads();
    begin_overlapped();
    if (warp < 4) {
        registers_shrink<S::LOAD_REGISTERS>();
        if (warp == 0) {
            load_queries_keys<T, S>(c, maps, shared, base + S::TILES_AT, lane);
        } else if constexpr (S::F8) { /* warps 0 and 2 keys, 1 and 3 values */
            expand_tiles<T, S>(c, shared, base + S::TILES_AT, warp == 2, warp / 2, lane);
        } else if (warp == 1) {
            load_values<S>(c, maps, shared, base + S::TILES_AT, lane);
        }
    } else {
        registers_grow<S::REGISTERS>();
        compute_all<T, S, CAP, PINGPONG>(c, shared, base + S::TILES_AT, warp / 4 - 1, lane);
    }
#endif /* else never launched */
}

/* ---- launching ---------------------------------------------------------------------------------- */

typedef CUresult (*hopper_encode)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *,
                                  const cuuint64_t *, const cuuint32_t *, const cuuint32_t *, CUtensorMapInterleave,
                                  CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

/* hopper.cu: the driver's function that describes tensors for copies, or NULL; multiprocessors of the current device if
 * it is a Hopper, else 0; a counter set to 0. */
hopper_encode trm_cuda_hopper_encode(void);
int trm_cuda_hopper_processors(void);
void trm_cuda_hopper_clear(uint32_t *counter, cudaStream_t stream);

/* The map of vectors [rows, heads, dim] of 16-bit elements in boxes of a panel's columns, `box_heads` heads and
 * `box_rows` rows. */
static inline trm_status hopper_map(hopper_encode encode, CUtensorMap *map, const void *data, int64_t rows,
                                    int32_t heads, int32_t dim, int32_t columns, int32_t box_heads, int32_t box_rows,
                                    trm_dtype dtype)
{
    cuuint64_t dims[3] = {(cuuint64_t)dim, (cuuint64_t)heads, (cuuint64_t)rows};
    cuuint64_t strides[2] = {(cuuint64_t)dim * 2, (cuuint64_t)heads * (cuuint64_t)dim * 2};
    cuuint32_t box[3] = {(cuuint32_t)columns, (cuuint32_t)box_heads, (cuuint32_t)box_rows}, steps[3] = {1, 1, 1};
    CUresult result = encode(map, dtype == TRM_F16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                             3, (void *)data, dims, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                             columns == 64 ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_64B,
                             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result != CUDA_SUCCESS) {
        TRM_FAIL(TRM_ERROR_INTERNAL, "no tensor map of attention vectors [%lld, %d, %d]: driver error %d",
                 (long long)rows, heads, dim, (int)result);
    }
    return TRM_OK;
}

template <typename T, typename S, bool CAP, bool PINGPONG>
static trm_status run_hopper(const hopper_call *call, const hopper_maps *maps, int blocks, cudaStream_t stream)
{
    TRM_CUDA_TRY(cudaFuncSetAttribute(hopper_tiles<T, S, CAP, PINGPONG>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      S::SHARED));
    launch_overlapped(hopper_tiles<T, S, CAP, PINGPONG>, dim3((unsigned)blocks), dim3(S::THREADS), (size_t)S::SHARED,
                      stream, *call, *maps);
    return trm_cuda_launched("cuda.attention hopper");
}

template <typename T, typename S, bool CAP, bool PINGPONG>
static trm_status launch_hopper(hopper_encode encode, const hopper_call *call, int blocks, cudaStream_t stream)
{
    const trm_cuda_attention *a = &call->a;
    int64_t rows = a->cached ? a->cache_rows : a->tokens;
    const void *k = a->cached ? a->key_cache : a->k, *v = a->cached ? a->value_cache : a->v;
    hopper_maps maps;
    TRM_TRY(hopper_map(encode, &maps.q, a->q, a->tokens, a->query_heads, a->dim, S::COLUMNS, call->pack,
                       64 / call->pack, a->dtype));
    if (S::F8) { /* read without maps */
        maps.k_boxes = maps.v_boxes = maps.k_tiles = maps.v_tiles = maps.q;
        return run_hopper<T, S, CAP, PINGPONG>(call, &maps, blocks, stream);
    }
    TRM_TRY(hopper_map(encode, &maps.k_boxes, k, rows, a->kv_heads, a->dim, S::COLUMNS, 1, call->box_keys, a->dtype));
    TRM_TRY(hopper_map(encode, &maps.v_boxes, v, rows, a->kv_heads, a->dim, S::COLUMNS, 1, call->box_keys, a->dtype));
    TRM_TRY(hopper_map(encode, &maps.k_tiles, k, rows, a->kv_heads, a->dim, S::COLUMNS, 1, S::KEYS, a->dtype));
    TRM_TRY(hopper_map(encode, &maps.v_tiles, v, rows, a->kv_heads, a->dim, S::COLUMNS, 1, S::KEYS, a->dtype));
    return run_hopper<T, S, CAP, PINGPONG>(call, &maps, blocks, stream);
}

static inline int32_t common_divisor(int32_t a, int32_t b)
{
    return b == 0 ? a : common_divisor(b, a % b);
}

template <typename T, typename S, bool PINGPONG>
static trm_status launch_shape(const trm_cuda_attention *a, cudaStream_t stream)
{
    hopper_call call;
    call.a = *a;
    call.box_keys = a->cached ? common_divisor(S::KEYS, a->block_size) : S::KEYS;
    call.pack = 64 % a->group == 0 ? a->group : 1;
    /* The tiles of one sequence are dealt out as evenly as first come, first served would. */
    call.next = a->sequences > 1 ? a->next_tile : NULL;
    if (call.next != NULL && !a->cached) {
        trm_cuda_hopper_clear(call.next, stream);
    }
    int blocks = trm_cuda_hopper_processors();
    return a->softcap > 0.0f ? launch_hopper<T, S, true, PINGPONG>(trm_cuda_hopper_encode(), &call, blocks, stream)
                             : launch_hopper<T, S, false, PINGPONG>(trm_cuda_hopper_encode(), &call, blocks, stream);
}

#endif
