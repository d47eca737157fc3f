/*
 * The loading warps of hopper.cuh: one finds tiles of queries and brings queries and keys by tensor copies, one brings
 * values; keys and values of an e4m3 cache are expanded by two warps each.
 */
#ifndef TRM_ATTENTION_CUDA_HOPPER_LOAD_CUH
#define TRM_ATTENTION_CUDA_HOPPER_LOAD_CUH

#include "attention/cuda/fp8.cuh"
#include "attention/cuda/hopper/shape.cuh"
#include "attention/cuda/rows.cuh"

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
    boxes.row = (c.a.packed ? t.first : t.sequence * c.a.keys) + key;
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

/* The same of latent attention: keys whose last panel all heads share, or values behind them. */
template <typename S, bool VALUES>
static __device__ __forceinline__ void load_latent(const hopper_maps &maps, int32_t row, int32_t head, uint32_t to,
                                                   uint32_t barrier, int lane)
{
    if (lane == 0) {
        barrier_arrive_expect(barrier, VALUES ? S::VALUE_BYTES : S::TILE_BYTES);
#pragma unroll
        for (int panel = 0; panel < (VALUES ? S::VP : S::DP - 64) / 64; panel++) {
            copy_box(to + panel * (S::KEYS * 128), &maps.k_tiles, (VALUES ? S::DP - 64 : 0) + panel * 64, head, row,
                     barrier);
        }
        if (!VALUES) {
            copy_box(to + (S::PANELS - 1) * (S::KEYS * 128), &maps.k_boxes, 0, 0, row, barrier);
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
        const int32_t keys = a.cached ? a.lengths[tile.sequence] : a.packed ? tile.queries : a.keys;
        t.keys = held_keys(a, keys);
        t.head = work % heads * c.pack;
        int32_t left = tile.queries - tile.start, last = tile.start + (left < rows ? left : rows) - 1;
        trm_key_range low = seen_places(a, tile.start, tile.queries, keys);
        trm_key_range high = seen_places(a, last, tile.queries, keys);
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
            } else if constexpr (S::LATENT) {
                barrier_wait(shared.k_empty(stage), (k_count / S::STAGES & 1) ^ 1);
                load_latent<S, false>(maps, t.first + n * S::KEYS, t.head, to, shared.k_full(stage), lane);
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
    for (int panel = 0; panel < S::VP / S::COLUMNS; panel++) {
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
        hopper_tile t = take_tile<S>(shared, slots, turn, lane);
        if (t.first < 0) {
            return;
        }
        for (int32_t n = t.high - 1; n >= t.low; n--) {
            int stage = v_count % S::STAGES;
            uint32_t to = shared.v + stage * S::VALUE_BYTES;
            /* What is multiplied by a weight of 0 must not be NaN: past the end of the sequence stand zeros. */
            bool tail = (n + 1) * S::KEYS > t.keys;
            const uint32_t full = tail ? shared.tail_full() : shared.v_full(stage);
            if constexpr (S::LATENT) {
                barrier_wait(shared.v_empty(stage), (v_count / S::STAGES & 1) ^ 1);
                load_latent<S, true>(maps, t.first + n * S::KEYS, t.head, to, full, lane);
            } else {
                hopper_boxes boxes = find_boxes<S>(c, t, n, lane);
                barrier_wait(shared.v_empty(stage), (v_count / S::STAGES & 1) ^ 1);
                load_boxes<S>(c, &maps.v_boxes, &maps.v_tiles, boxes, t.head / c.a.group, to, full, lane);
            }
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
        hopper_tile t = take_tile<S>(shared, slots, turn, lane);
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

#endif
