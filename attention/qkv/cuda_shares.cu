/*
 * As cuda_direct.cu, for steps that may have many keys: the tiles of all sequences are dealt out in equal shares to as
 * many blocks as run at once, whatever the lengths and however wide the block table. A warp's next tile is in flight
 * while one is computed, across the ends of units (a unit: a sequence's group of key-value heads), so that memory is
 * busy while queries are prepared and sums joined. A unit that several blocks share is joined by whichever ends last,
 * always in the blocks' order.
 */
#include "attention/qkv/cuda_f8.cuh"

#define LEAST_SHARE 4 /* tiles of a block at least, if the keys are enough */
#define JOIN_WARPS  4
/* Two blocks of the shares leave room for one of the join: 2 * 128 * 216 + 128 * 72 registers of 65536. */
#define SHARE_REGISTERS 216
#define ROOM_ROW(dim)   ((dim) + 8) /* floats */

/* One block's static shared memory. */
template <typename C, int DIM> struct share_block {
    float cosines[DIM / 2], sines[DIM / 2];
    float warp_state[DIRECT_WARPS][DIRECT_HEADS][2]; /* maximum in log2 units, sum of weights */
    __align__(16) C fresh[DIRECT_WARPS][2][DIM];     /* the step's key and value, of a warp's key-value head */
    bool is_last;
};

/* Tiles of each unit of a sequence; none if it has not exactly one query. */
template <int KEYS>
static __device__ __forceinline__ int32_t tiles_of(const trm_cuda_qkv &p, int32_t sequence, trm_key_range *range)
{
    int32_t queries = p.a.starts[sequence + 1] - p.a.starts[sequence];
    *range = seen_keys(p.a, 0, 1, p.a.lengths[sequence]);
    return queries == 1 ? trm_key_tiles(*range, KEYS) : 0;
}

static __device__ __forceinline__ int32_t sum_of_lanes(int32_t x)
{
#pragma unroll
    for (int i = 16; i > 0; i /= 2) {
        x += __shfl_xor_sync(0xffffffffu, x, i);
    }
    return x;
}

/* Tiles of a block; all tiles, and those of sequences before number `sequence`. By a warp. */
template <int KEYS>
static __device__ __forceinline__ int32_t share_of(const trm_cuda_qkv &p, int32_t groups, int32_t sequence,
                                                   int32_t *before, int32_t *total, int lane)
{
    int32_t all = 0, earlier = 0, units = 0, longest = 0;
    trm_key_range range;
    for (int32_t s = lane; s < p.a.sequences; s += 32) {
        int32_t tiles = tiles_of<KEYS>(p, s, &range);
        all += tiles;
        earlier += s < sequence ? tiles : 0;
        units += tiles > 0;
        longest = tiles > longest ? tiles : longest;
    }
#pragma unroll
    for (int i = 16; i > 0; i /= 2) {
        int32_t other = __shfl_xor_sync(0xffffffffu, longest, i);
        longest = other > longest ? other : longest;
    }
    /* Long units in fewer parts, where that leaves enough blocks: the join takes 32 parts at a time. */
    int32_t least = max(LEAST_SHARE, max(min(8, longest / 64), min(16, longest / 128)));
    *total = sum_of_lanes(all) * groups;
    *before = sum_of_lanes(earlier) * groups;
    return trm_key_share(*total, sum_of_lanes(units) * groups, longest, TRM_QKV_BLOCKS, least, DIRECT_WARPS / p.heads);
}

/* The block's share, found by each warp for itself; false if the block has no share. */
template <int KEYS>
static __device__ __forceinline__ bool find_share(const trm_cuda_qkv &p, int32_t groups, trm_key_run *run,
                                                  trm_key_range *range, int32_t *share, int lane)
{
    int32_t before = 0, total;
    *share = share_of<KEYS>(p, groups, 0, &before, &total, lane);
    int64_t begin = (int64_t)blockIdx.x * *share;
    if (begin >= total) {
        return false;
    }
    for (int32_t chunk = 0;; chunk += 32) {
        int32_t s = chunk + lane, tiles = s < p.a.sequences ? tiles_of<KEYS>(p, s, range) * groups : 0, sum = tiles;
#pragma unroll
        for (int i = 1; i < 32; i *= 2) {
            int32_t lower = __shfl_up_sync(0xffffffffu, sum, i);
            sum += lane >= i ? lower : 0;
        }
        uint32_t past = __ballot_sync(0xffffffffu, before + sum > begin);
        if (past != 0) {
            int found = __ffs((int)past) - 1;
            int32_t start = before + __shfl_sync(0xffffffffu, sum - tiles, found), at = (int32_t)begin;
            int32_t each = tiles_of<KEYS>(p, chunk + found, range);
            *run = trm_key_run_first(chunk + found, each, at - start, at, total - at < *share ? total - at : *share);
            return true;
        }
        before += __shfl_sync(0xffffffffu, sum, 31);
    }
}

/* On to the block's next unit; false after the last. */
template <int KEYS>
static __device__ __forceinline__ bool follow(const trm_cuda_qkv &p, int32_t groups, trm_key_run *run,
                                              trm_key_range *range)
{
    int32_t sequence = run->sequence, group = run->group + 1, tiles = run->tiles;
    if (run->left == 0) {
        return false;
    }
    if (group == groups) {
        group = 0;
        do {
            tiles = tiles_of<KEYS>(p, ++sequence, range);
        } while (tiles == 0);
    }
    trm_key_run_follow(run, sequence, group, tiles);
    return true;
}

/* A block's part of a unit: rows of DIM sums, maximum, sum of weights, rows aligned to 16 bytes. */
template <int DIM>
static __device__ __forceinline__ float *part_of(const trm_cuda_qkv &p, int32_t block, int32_t part, int32_t row)
{
    return p.a.partial + (((int64_t)block * 2 + part) * p.heads * p.a.group + row) * TRM_QKV_PART_ROW(DIM);
}

/* Joins what its blocks have of a unit, in their order, a warp per row at a time. */
template <typename T, int DIM>
static __device__ __forceinline__ void join_parts(const trm_cuda_qkv &p, trm_key_owners owners, int32_t token,
                                                  int32_t first_head, int warp, int lane)
{
    const int n = DIM / 32, unrolled = 16;
    for (int row = warp; row < p.heads * p.a.group; row += DIRECT_WARPS) {
        float largest = -INFINITY, total = 0.0f, sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        for (int32_t chunk = owners.first; chunk <= owners.last; chunk += 32) {
            int32_t count = owners.last - chunk + 1 < 32 ? owners.last - chunk + 1 : 32, block = chunk + lane;
            float2 state = make_float2(-INFINITY, 0.0f);
            if (lane < count) {
                int32_t part = block == owners.first ? owners.first_part : 0;
                state = __ldcg((const float2 *)(part_of<DIM>(p, block, part, row) + DIM));
            }
            float most = fmaxf(largest, warp_max(state.x)), base = most == -INFINITY ? 0.0f : most;
            float shrink = exp2f(largest - base), scale = exp2f(state.x - base);
            total = total * shrink + warp_sum(state.y * scale);
            largest = most;
#pragma unroll
            for (int j = 0; j < n; j++) {
                sum[j] *= shrink;
            }
            for (int first = 0; first < count; first += unrolled) {
                float values[unrolled][4];
#pragma unroll
                for (int i = 0; i < unrolled; i++) {
                    int32_t at = chunk + (first + i < count ? first + i : count - 1);
                    const float *from = part_of<DIM>(p, at, at == owners.first ? owners.first_part : 0, row) + lane * n;
                    if (n == 4) {
                        *(float4 *)values[i] = __ldcg((const float4 *)from);
                    } else {
                        *(float2 *)values[i] = __ldcg((const float2 *)from);
                    }
                }
#pragma unroll
                for (int i = 0; i < unrolled; i++) {
                    float weight = __shfl_sync(0xffffffffu, scale, (first + i) % 32);
#pragma unroll
                    for (int j = 0; j < n; j++) {
                        sum[j] += first + i < count ? weight * values[i][j] : 0.0f;
                    }
                }
            }
        }
        total = with_sink(p.a, first_head + row, largest, total);
        float scale = total == 0.0f ? 0.0f : p.a.value_scale / total;
        T *to = (T *)p.a.out + ((int64_t)token * p.a.query_heads + first_head + row) * DIM + lane * n;
        *(uint32_t *)to = pack2(sum[0] * scale, sum[1] * scale, T());
        if (n == 4) {
            *(uint32_t *)(to + 2) = pack2(sum[2] * scale, sum[3] * scale, T());
        }
    }
}

/* A warp's sums into its room, for join_rooms() behind a barrier. */
template <typename C, int DIM>
static __device__ __forceinline__ void leave_sums(const trm_cuda_qkv &p, const direct_sums<DIM> &sums,
                                                  share_block<C, DIM> *block, float *rooms, int warp, int lane)
{
    float total = quad_sum(sums.total);
    if (lane % 4 == 0) {
        block->warp_state[warp][lane / 4][0] = sums.largest;
        block->warp_state[warp][lane / 4][1] = total;
    }
    put_sums<DIM, cache_form<C, DIM>::piece>(sums, p.a.group, rooms + warp * p.a.group * ROOM_ROW(DIM), ROOM_ROW(DIM),
                                             lane);
}

/* Ends a unit, or a block's part of it: the sums of the warps that share a key-value head, in the warps' order, to the
 * outputs if the unit is the block's alone, else to `part`. The warps' sums lie in their rooms. */
template <typename T, typename C, int DIM>
static __device__ __forceinline__ void join_rooms(const trm_cuda_qkv &p, const share_block<C, DIM> *block,
                                                  const float *rooms, bool is_whole, int32_t part, int32_t token,
                                                  int32_t first_head)
{
    for (int i = threadIdx.x; i < p.heads * p.a.group * (DIM / 4); i += DIRECT_THREADS) {
        int row = i / (DIM / 4), first = row / p.a.group, r = row - first * p.a.group, column = i % (DIM / 4) * 4;
        float largest = -INFINITY, total = 0.0f;
        float4 value = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        for (int w = first; w < DIRECT_WARPS; w += p.heads) {
            largest = fmaxf(largest, block->warp_state[w][r][0]);
        }
        float base = largest == -INFINITY ? 0.0f : largest;
        for (int w = first; w < DIRECT_WARPS; w += p.heads) {
            float shrink = exp2f(block->warp_state[w][r][0] - base);
            float4 one = *(const float4 *)(rooms + (w * p.a.group + r) * ROOM_ROW(DIM) + column);
            value.x += shrink * one.x;
            value.y += shrink * one.y;
            value.z += shrink * one.z;
            value.w += shrink * one.w;
            total += shrink * block->warp_state[w][r][1];
        }
        if (is_whole) {
            total = with_sink(p.a, first_head + row, largest, total);
            float scale = total == 0.0f ? 0.0f : p.a.value_scale / total;
            T *to = (T *)p.a.out + ((int64_t)token * p.a.query_heads + first_head + row) * DIM + column;
            *(uint2 *)to =
                make_uint2(pack2(value.x * scale, value.y * scale, T()), pack2(value.z * scale, value.w * scale, T()));
        } else {
            float *to = part_of<DIM>(p, (int32_t)blockIdx.x, part, row);
            *(float4 *)(to + column) = value;
            if (column == 0) {
                *(float2 *)(to + DIM) = make_float2(largest, total);
            }
        }
    }
}

/* Whether this block is the last of a unit's to have written its part. Counters are 0 again when all have asked. */
template <typename C, int DIM>
static __device__ __forceinline__ bool ends_last(const trm_cuda_qkv &p, trm_key_owners owners,
                                                 share_block<C, DIM> *block)
{
    if (threadIdx.x == 0) {
        __threadfence();
        uint32_t before = atomicAdd(&p.counters[owners.first], 1u);
        block->is_last = before == (uint32_t)(owners.last - owners.first);
        if (block->is_last) {
            p.counters[owners.first] = 0;
        }
    }
    __syncthreads();
    if (block->is_last) {
        __threadfence();
    }
    return block->is_last;
}

/* A sequence of several queries, by one block, one query after the other: rare in such steps, and slow. */
template <typename T, typename C, int DIM>
static __device__ __noinline__ void decode_several(const trm_cuda_qkv &p, int32_t sequence, int32_t group,
                                                   share_block<C, DIM> *block, float *rooms, int warp, int lane)
{
    typedef cache_form<C, DIM> form;
    const int keys_of_tile = form::keys;
    int32_t first = p.a.starts[sequence], queries = p.a.starts[sequence + 1] - first, keys = p.a.lengths[sequence];
    int32_t kv_head = group * p.heads + warp % p.heads, part = warp / p.heads, parts = DIRECT_WARPS / p.heads;
    int32_t row_bytes = p.a.kv_heads * DIM * (int32_t)sizeof(C);
    int shift = 31 - __clz(p.a.block_size);
    const int32_t *table = p.a.table + (int64_t)sequence * p.a.table_blocks;
    lane_places places = places_of<C, DIM>(p, kv_head, lane);
    for (int32_t query = 0; query < queries; query++) { /* all keys, before any query looks at one */
        find_angles(p, first + query, block->cosines, block->sines);
        __syncthreads();
        if (part == 0) {
            store_fresh<T, DIM>(p, key_rows_of(p.a, sequence, 0, kv_head), first + query, keys - queries + query,
                                block->cosines, block->sines, block->fresh[warp], lane, C());
        }
        __syncthreads();
    }
    __threadfence();
    __syncthreads();
    for (int32_t query = 0; query < queries; query++) {
        trm_key_range range = seen_keys(p.a, query, queries, keys);
        uint4 q[DIM / 32];
        direct_sums<DIM> sums;
        load_queries<T, DIM>(p, q, first + query, kv_head, lane);
        find_angles(p, first + query, block->cosines, block->sines);
        __syncthreads();
        prepare_elements<T, DIM>(p, q, (const T *)p.q_norm, block->cosines, block->sines, lane);
        float scale = take_queries<T, DIM>(p, q, lane, C());
        clear_sums<DIM>(sums);
        for (int32_t key = (range.low / keys_of_tile + part) * keys_of_tile; key < range.high;
             key += parts * keys_of_tile) {
            typename form::tile tile;
            float scores[keys_of_tile / 8][4];
            tile_place place = find_tile<keys_of_tile>(table, shift, key, range.high);
            load_keys(places, place, row_bytes, tile, lane);
            load_values(places, place, row_bytes, tile, lane);
            multiply_tile<typename form::math, DIM>(q, tile, scores);
            weigh_tile<DIM>(p, scale, scores, key, range, sums, lane);
            add_tile<typename form::math, DIM>(tile, scores, sums);
        }
        leave_sums<C, DIM>(p, sums, block, rooms, warp, lane);
        __syncthreads();
        join_rooms<T, C, DIM>(p, block, rooms, true, 0, first + query, group * p.heads * p.a.group);
        __syncthreads(); /* before the next query's angles and sums */
    }
}

/*
 * Block b, 128 threads: share b of the tiles. In a block the warps that have the same key-value head take a unit's
 * tiles in turn, each with its own softmax. The warp that sees the step's key also stores it and its value. Where the
 * inputs of the step allow it, the first tiles are on their way before the product of q, k and v has ended. Sequences
 * of several queries, rare in such steps, follow, a unit per block.
 */
template <typename T, typename C, int DIM>
static __global__ void __maxnreg__(SHARE_REGISTERS) decode_shares(const __grid_constant__ trm_cuda_qkv p)
{
    typedef cache_form<C, DIM> form;
    const int keys = form::keys;
    extern __shared__ __align__(16) unsigned char shared[];
    __shared__ share_block<C, DIM> block;
    float *rooms = (float *)shared;
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    /* p.heads is 1, 2 or 4. */
    int32_t parts = DIRECT_WARPS / p.heads, part = warp / p.heads, head = warp & (p.heads - 1);
    int32_t groups = p.a.kv_heads / p.heads, row_bytes = p.a.kv_heads * DIM * (int32_t)sizeof(C), share;
    int shift = 31 - __clz(p.a.block_size);
    trm_key_run run = {}, ahead = {};
    trm_key_range range = {}, seen = {}; /* of the sequences of run and ahead */
    int32_t next = 0;                    /* tile of ahead */
    bool more = true;
    const int32_t *table = NULL;
    lane_places places;
    tile_place place;
    typename form::tile tile;
    start_next();
    if (!p.early) {
        wait_for_previous();
    }
    bool is_first = true, works = find_share<keys>(p, groups, &run, &seen, &share, lane);
    auto find_unit = [&]() {
        next = ahead.tile + part;
        table = p.a.table + (int64_t)ahead.sequence * p.a.table_blocks;
        places = places_of<C, DIM>(p, ahead.group * p.heads + head, lane);
    };
    auto find_next = [&]() {
        while (more && next >= ahead.end) {
            more = follow<keys>(p, groups, &ahead, &seen);
            find_unit();
        }
        place = find_tile<keys>(table, shift, (seen.low / keys + next) * keys, more ? seen.high : 0);
        next += parts;
    };
    if (works) {
        ahead = run;
        find_unit();
        find_next();
        load_keys(places, place, row_bytes, tile, lane);
        load_values(places, place, row_bytes, tile, lane);
        find_angles(p, p.a.starts[run.sequence], block.cosines, block.sines);
    }
    if (p.early) {
        wait_for_previous(); /* also where there is nothing to do: a kernel that ends says that all before it have */
    }
    while (works) {
        int32_t token = p.a.starts[run.sequence], kv_head = run.group * p.heads + head;
        int32_t newest = p.a.lengths[run.sequence] - 1, first_head = run.group * p.heads * p.a.group;
        range = seen_keys(p.a, 0, 1, newest + 1);
        int32_t first_tile = range.low / keys, slot = newest / keys - first_tile;
        C(*fresh)[DIM] = block.fresh[warp];
        uint4 q[DIM / 32];
        direct_sums<DIM> sums;
        load_queries<T, DIM>(p, q, token, kv_head, lane);
        if (!is_first) {
            find_angles(p, token, block.cosines, block.sines);
        }
        is_first = false;
        __syncthreads();
        bool sees = newest < range.high && slot >= run.tile && slot < run.end && (slot - run.tile) % parts == part;
        bool unseen = newest >= range.high && run.tile == 0 && part == 0;
        if (sees || unseen) {
            store_fresh<T, DIM>(p, key_rows_of(p.a, run.sequence, 0, kv_head), token, newest, block.cosines,
                                block.sines, fresh, lane, C());
        }
        prepare_elements<T, DIM>(p, q, (const T *)p.q_norm, block.cosines, block.sines, lane);
        float scale = take_queries<T, DIM>(p, q, lane, C());
        clear_sums<DIM>(sums);
        for (int32_t t = run.tile + part; t < run.end; t += parts) {
            int32_t key = (first_tile + t) * keys;
            float scores[keys / 8][4];
            if (sees && t == slot) { /* what was read there is older */
                take_fresh<C, DIM>(tile, fresh, newest - key, lane);
            }
            find_next();
            multiply_tile<typename form::math, DIM>(q, tile, scores);
            load_keys(places, place, row_bytes, tile, lane);
            weigh_tile<DIM>(p, scale, scores, key, range, sums, lane);
            add_tile<typename form::math, DIM>(tile, scores, sums);
            load_values(places, place, row_bytes, tile, lane);
        }
        bool is_whole = run.tile == 0 && run.end == run.tiles;
        if (is_whole && parts == 1) {
            store_warp<T, DIM, form::piece>(p, sums, token, kv_head * p.a.group, lane);
        } else {
            leave_sums<C, DIM>(p, sums, &block, rooms, warp, lane);
            __syncthreads();
            join_rooms<T, C, DIM>(p, &block, rooms, is_whole, run.at % share == 0 ? 0 : 1, token, first_head);
        }
        __syncthreads(); /* parts are written; rooms, angles and states may be used again */
        if (!is_whole && !p.joined_apart) {
            trm_key_owners owners = trm_key_run_owners(&run, share);
            if (ends_last<C, DIM>(p, owners, &block)) {
                join_parts<T, DIM>(p, owners, token, first_head, warp, lane);
            }
            __syncthreads();
        }
        works = follow<keys>(p, groups, &run, &range);
    }
    for (int32_t i = blockIdx.x; !p.apart && i < p.a.sequences * groups; i += (int32_t)gridDim.x) {
        int32_t sequence = i / groups;
        if (p.a.starts[sequence + 1] - p.a.starts[sequence] > 1) {
            __syncthreads();
            decode_several<T, C, DIM>(p, sequence, i - sequence * groups, &block, rooms, warp, lane);
        }
    }
}

/*
 * Where units are few, and so the blocks of each many: block (query head, sequence), 8 warps that take a unit's parts
 * in turn. By several blocks a unit, it takes less than what the last of a unit's blocks would need for it.
 */
template <typename T, int DIM, int KEYS>
static __global__ void __launch_bounds__(JOIN_WARPS * 32) join_units(const __grid_constant__ trm_cuda_qkv p)
{
    const int n = DIM / 32, unrolled = 8;
    __shared__ float sums[JOIN_WARPS][DIM], states[JOIN_WARPS][2];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    int32_t rows = p.heads * p.a.group, group = (int32_t)blockIdx.x / rows, row = (int32_t)blockIdx.x - group * rows;
    int32_t sequence = blockIdx.y, groups = p.a.kv_heads / p.heads, before, total;
    trm_key_range range;
    start_next();
    if (!p.early) {
        wait_for_previous();
    }
    int32_t share = share_of<KEYS>(p, groups, sequence, &before, &total, lane),
            tiles = tiles_of<KEYS>(p, sequence, &range);
    int32_t token = p.a.starts[sequence];
    trm_key_run run = trm_key_run_first(sequence, tiles < 1 ? 1 : tiles, 0, before + group * tiles, tiles);
    trm_key_owners owners = trm_key_run_owners(&run, share);
    if (p.early) {
        wait_for_previous();
    }
    if (tiles == 0 || owners.first == owners.last) {
        return;
    }
    float largest = -INFINITY, all = 0.0f, sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    for (int32_t first = owners.first + warp; first <= owners.last; first += unrolled * JOIN_WARPS) {
        float values[unrolled][4];
        float2 state[unrolled];
#pragma unroll
        for (int i = 0; i < unrolled; i++) {
            int32_t block = first + i * JOIN_WARPS < owners.last ? first + i * JOIN_WARPS : owners.last;
            const float *from = part_of<DIM>(p, block, block == owners.first ? owners.first_part : 0, row);
            state[i] = __ldcg((const float2 *)(from + DIM));
            if (n == 4) {
                *(float4 *)values[i] = __ldcg((const float4 *)(from + lane * n));
            } else {
                *(float2 *)values[i] = __ldcg((const float2 *)(from + lane * n));
            }
        }
        float most = largest;
#pragma unroll
        for (int i = 0; i < unrolled; i++) {
            if (first + i * JOIN_WARPS > owners.last) {
                state[i] = make_float2(-INFINITY, 0.0f);
            }
            most = fmaxf(most, state[i].x);
        }
        float base = most == -INFINITY ? 0.0f : most, shrink = exp2f(largest - base);
        largest = most;
        all *= shrink;
#pragma unroll
        for (int j = 0; j < n; j++) {
            sum[j] *= shrink;
        }
#pragma unroll
        for (int i = 0; i < unrolled; i++) {
            float weight = exp2f(state[i].x - base);
            all += weight * state[i].y;
#pragma unroll
            for (int j = 0; j < n; j++) {
                sum[j] += weight * values[i][j];
            }
        }
    }
#pragma unroll
    for (int j = 0; j < n; j++) {
        sums[warp][lane * n + j] = sum[j];
    }
    if (lane == 0) {
        states[warp][0] = largest;
        states[warp][1] = all;
    }
    __syncthreads();
    if (threadIdx.x < DIM) {
        float most = -INFINITY, value = 0.0f, weights = 0.0f;
#pragma unroll
        for (int w = 0; w < JOIN_WARPS; w++) {
            most = fmaxf(most, states[w][0]);
        }
        float base = most == -INFINITY ? 0.0f : most;
#pragma unroll
        for (int w = 0; w < JOIN_WARPS; w++) {
            float shrink = exp2f(states[w][0] - base);
            value += shrink * sums[w][threadIdx.x];
            weights += shrink * states[w][1];
        }
        weights = with_sink(p.a, (int32_t)blockIdx.x, most, weights);
        ((T *)p.a.out)[((int64_t)token * p.a.query_heads + blockIdx.x) * DIM + threadIdx.x] =
            from_float<T>(weights == 0.0f ? 0.0f : value * (p.a.value_scale / weights));
    }
}

/* ---- launching ---------------------------------------------------------------------------------- */

template <typename T, typename C, int DIM> static trm_status launch_shares(const trm_cuda_qkv *p, cudaStream_t stream)
{
    size_t shared = (size_t)(DIRECT_WARPS * p->a.group * ROOM_ROW(DIM)) * sizeof(float);
    launch_overlapped(decode_shares<T, C, DIM>, dim3(TRM_QKV_BLOCKS), DIRECT_THREADS, shared, stream, *p);
    TRM_TRY(trm_cuda_launched("cuda.qkv_attention decode"));
    if (!p->joined_apart) {
        return TRM_OK;
    }
    dim3 grid((unsigned)p->a.query_heads, (unsigned)p->a.sequences);
    launch_overlapped(join_units<T, DIM, cache_form<C, DIM>::keys>, grid, JOIN_WARPS * 32, 0, stream, *p);
    return trm_cuda_launched("cuda.qkv_attention join");
}

template <typename T, typename C> static trm_status launch_shares_for(const trm_cuda_qkv *p, cudaStream_t stream)
{
    return p->a.dim == 64 ? launch_shares<T, C, 64>(p, stream) : launch_shares<T, C, 128>(p, stream);
}

template <typename T> static trm_status launch_shares_of(const trm_cuda_qkv *p, cudaStream_t stream)
{
    return p->a.cache_f8 ? launch_shares_for<T, e4m3>(p, stream) : launch_shares_for<T, T>(p, stream);
}

trm_status trm_cuda_qkv_shares(const trm_cuda_qkv *p, cudaStream_t stream)
{
    return p->a.dtype == TRM_F16 ? launch_shares_of<__half>(p, stream) : launch_shares_of<__nv_bfloat16>(p, stream);
}
