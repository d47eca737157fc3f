/*
 * Attention over latents on Hopper GPUs: multi-query attention with keys of 576 elements, the first 512 of which are
 * the values (as in DeepSeek's FlashMLA). Rows are pairs of a query and a head, 64 of them a tile, so a latent is read
 * once for 64 heads.
 *
 * A unit is a tile of rows (`width` tiles side by side, of as many blocks) against all keys of a sequence. All tiles of
 * keys of all units stand in one order, of which every block takes an equal share: the end of a unit, whole units, and
 * the beginning of another. Units that several blocks share are joined by a second kernel, in the order of blocks.
 */
#include "attention/cuda/hopper/compute.cuh"
#include "attention/latent/cuda.h"
#include "kernels/cuda/hopper.h"

/* Of compute.cuh's templates. */
struct latent_shape {
    static const int KEYS = TRM_LATENT_KEYS;
};

#define ROWS     TRM_LATENT_ROWS
#define KEYS     TRM_LATENT_KEYS
#define RANK     TRM_LATENT_RANK
#define DIM      (TRM_LATENT_RANK + TRM_LATENT_ROTATED)
#define PANELS   (DIM / 64)
#define PANEL    (64 * 128)       /* bytes of 64 rows of 64 elements, for rows as for keys */
#define TILE     (PANELS * PANEL) /* bytes of a tile of rows or of keys */
#define STAGES   2
#define BARRIERS (2 * STAGES + 2)
#define SHARED   ((1 + STAGES) * TILE + 8 * BARRIERS + 1024) /* 1024: to align the panels */
#define THREADS  384                                         /* the first warp group loads, two compute */
#define STEP     8                                           /* tiles that a block has at least */

/* What the kernel needs besides the call. */
typedef struct latent_call {
    trm_cuda_latent l;
    int32_t box_keys; /* neighbours in memory whatever the block table says */
} latent_call;

/* Tiles tile .. end - 1 of a unit. */
typedef struct latent_run {
    int32_t sequence, first, queries, keys; /* of the sequence; first: its first token */
    bool split;                             /* keys are those before the step's, which every query sees */
    int32_t unit, tile, end, tiles;         /* tiles: of the whole unit */
    int32_t left;                           /* tiles of the share behind them */
    bool is_first;                          /* of the share */
} latent_run;

static __device__ __forceinline__ int32_t share_of(const trm_cuda_latent &l)
{
    const int32_t *plan = l.plan + l.a.sequences;
    return trm_key_share(plan[0], plan[1], plan[2], l.shares, STEP, 1);
}

/* The sequence that place `at` of the order belongs to: the last one that begins at or before it, as empty ones before
 * it begin where it does. */
static __device__ __forceinline__ int32_t sequence_at(const trm_cuda_latent &l, int32_t at)
{
    int32_t low = 0, high = l.a.sequences;
    while (high - low > 1) {
        int32_t middle = low + (high - low) / 2;
        if (l.plan[middle] <= at) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

/* The part of a share of `count` tiles that begins at tile `offset` of the sequence. */
static __device__ __forceinline__ latent_run run_at(const trm_cuda_latent &l, int32_t sequence, int32_t offset,
                                                    int32_t count, bool is_first)
{
    latent_run run;
    run.sequence = sequence;
    run.first = l.a.starts[sequence];
    run.queries = l.a.starts[sequence + 1] - run.first;
    run.keys = trm_cuda_latent_keys(l, sequence, run.queries);
    run.split = trm_cuda_latent_is_split(l, run.queries);
    run.tiles = (run.keys + KEYS - 1) / KEYS;
    run.unit = offset / run.tiles;
    run.tile = offset - run.unit * run.tiles;
    run.end = run.tiles - run.tile < count ? run.tiles : run.tile + count;
    run.left = count - (run.end - run.tile);
    run.is_first = is_first;
    return run;
}

/* What a share begins with; false: nothing. */
static __device__ __forceinline__ bool first_run(const trm_cuda_latent &l, int32_t number, latent_run *run)
{
    const int32_t total = l.plan[l.a.sequences], share = share_of(l);
    const int64_t start = (int64_t)number * share;
    if (start >= total) {
        return false;
    }
    const int32_t at = (int32_t)start, count = total - at < share ? total - at : share, sequence = sequence_at(l, at);
    *run = run_at(l, sequence, at - l.plan[sequence], count, true);
    return true;
}

/* Moves on to the next unit of the share; false after the last. */
static __device__ __forceinline__ bool next_run(const trm_cuda_latent &l, latent_run *run)
{
    if (run->left == 0) {
        return false;
    }
    int32_t sequence = run->sequence, offset = (run->unit + 1) * run->tiles;
    if (offset == l.plan[sequence + 1] - l.plan[sequence]) {
        offset = 0;
        do {
            sequence++;
        } while (l.plan[sequence + 1] == l.plan[sequence]);
    }
    *run = run_at(l, sequence, offset, run->left, false);
    return true;
}

/* The first of this block's rows in a run's sequence. */
static __device__ __forceinline__ int32_t row_of(const trm_cuda_latent &l, const latent_run &run, int32_t side)
{
    return (run.unit * l.width + side) * ROWS;
}

/* Keys that a query of the run's sequence sees. */
static __device__ __forceinline__ int32_t seen_keys(const latent_run &run, int32_t query)
{
    return run.split ? run.keys : run.keys - run.queries + query + 1;
}

/* One behind the last tile of the run that one of the rows from `row` on sees; run.tile: none does. */
static __device__ __forceinline__ int32_t seen_end(const trm_cuda_latent &l, const latent_run &run, int32_t row)
{
    const int32_t heads = l.a.query_heads, last = (row + ROWS - 1) / heads;
    if (row >= run.queries * heads) {
        return run.tile;
    }
    const int32_t end = (seen_keys(run, last < run.queries ? last : run.queries - 1) + KEYS - 1) / KEYS;
    return end < run.tile ? run.tile : end < run.end ? end : run.end;
}

/* Sums [64][512], then maxima and sums of weights [64][2], of part `part` of a share. */
static __device__ __forceinline__ float *partial_of(const trm_cuda_latent &l, int32_t number, int32_t part,
                                                    int32_t side)
{
    return l.a.partial + (((int64_t)number * 2 + part) * l.width + side) * (ROWS * (RANK + 2));
}

/* ---- loading --------------------------------------------------------------------------------------- */

typedef struct latent_shared {
    uint32_t q, k, barriers;
    __device__ __forceinline__ uint32_t stage(int i) const
    {
        return k + i * TILE;
    }
    __device__ __forceinline__ uint32_t full(int i) const
    {
        return barriers + 8 * i;
    }
    __device__ __forceinline__ uint32_t empty(int i) const
    {
        return barriers + 8 * (STAGES + i);
    }
    __device__ __forceinline__ uint32_t q_full(void) const
    {
        return barriers + 8 * (2 * STAGES);
    }
    __device__ __forceinline__ uint32_t q_empty(void) const
    {
        return barriers + 8 * (2 * STAGES + 1);
    }
} latent_shared;

typedef struct latent_maps {
    CUtensorMap q, boxes, tiles; /* 64 rows; box_keys keys, 64 keys */
} latent_maps;

/* Starts the copies of a tile of keys; called by a warp. What lies past the end of the sequence may come along. */
static __device__ __forceinline__ void load_keys(const latent_call &c, const latent_maps &maps, const latent_run &run,
                                                 int32_t tile, uint32_t to, uint32_t barrier, int lane)
{
    const trm_cuda_attention &a = c.l.a;
    int32_t key = tile * KEYS + lane * c.box_keys, left = run.keys - tile * KEYS, row = 0;
    int32_t count = ((left < KEYS ? left : KEYS) + c.box_keys - 1) / c.box_keys;
    if (lane < count) {
        int32_t block = (int32_t)((uint32_t)key / (uint32_t)a.block_size);
        row = a.table[(int64_t)run.sequence * a.table_blocks + block] * a.block_size + (key - block * a.block_size);
    }
    int32_t first = __shfl_sync(0xffffffffu, row, 0);
    bool whole = __all_sync(0xffffffffu, lane >= count || row == first + lane * c.box_keys);
    if (lane == 0) {
        barrier_arrive_expect(barrier, whole ? (uint32_t)TILE : (uint32_t)(count * c.box_keys * DIM * 2));
    }
    __syncwarp();
    if (whole && lane < PANELS) {
        copy_box(to + lane * PANEL, &maps.tiles, lane * 64, 0, first, barrier);
    }
    if (!whole && lane < count) {
#pragma unroll
        for (int panel = 0; panel < PANELS; panel++) {
            copy_box(to + panel * PANEL + lane * c.box_keys * 128, &maps.boxes, panel * 64, 0, row, barrier);
        }
    }
}

static __device__ void load_all(const latent_call &c, const latent_maps &maps, const latent_shared &shared,
                                int32_t number, int32_t side, int lane)
{
    const trm_cuda_latent &l = c.l;
    uint32_t count = 0, q_count = 0;
    latent_run run;
    for (bool more = first_run(l, number, &run); more; more = next_run(l, &run)) {
        const int32_t row = row_of(l, run, side), end = seen_end(l, run, row);
        if (end == run.tile) {
            continue;
        }
        barrier_wait(shared.q_empty(), (q_count++ & 1) ^ 1);
        if (lane == 0) {
            barrier_arrive_expect(shared.q_full(), TILE);
        }
        __syncwarp();
        if (lane < PANELS) {
            copy_box(shared.q + lane * PANEL, &maps.q, lane * 64, 0, run.first * l.a.query_heads + row,
                     shared.q_full());
        }
        for (int32_t n = run.tile; n < end; n++, count++) {
            const int stage = count % STAGES;
            barrier_wait(shared.empty(stage), (count / STAGES & 1) ^ 1);
            load_keys(c, maps, run, n, shared.stage(stage), shared.full(stage), lane);
        }
    }
}

/* ---- computing ------------------------------------------------------------------------------------- */

/* scores [64, KEYS] = rows times keys. */
template <typename T>
static __device__ __forceinline__ void multiply_latents(float (&scores)[KEYS / 2], uint32_t q, uint32_t k)
{
    const uint64_t a = wgmma_operand<128>(q, 0), b = wgmma_operand<128>(k, 0);
#pragma unroll
    for (int step = 0; step < DIM / 16; step++) {
        const int offset = (step / 4 * PANEL + step % 4 * 32) >> 4;
        wgmma_nt(scores, a + offset, b + offset, step > 0, T());
    }
}

/* out [64, RANK / 2] += weights times this warp group's half of the values. */
template <typename T>
static __device__ __forceinline__ void add_latents(float (&out)[RANK / 4], const uint32_t (&weights)[KEYS / 4],
                                                   uint32_t values)
{
    const uint64_t b = wgmma_operand<128>(values, PANEL);
#pragma unroll
    for (int step = 0; step < KEYS / 16; step++) {
        wgmma_nn(out, weights[4 * step], weights[4 * step + 1], weights[4 * step + 2], weights[4 * step + 3],
                 b + ((step * 16 * 128) >> 4), T());
    }
}

/* Zeros in place of what came along behind the sequence's last key: a weight of 0 must not meet a NaN. By both warp
 * groups. */
static __device__ __forceinline__ void clear_behind(uint32_t tile, int32_t keys)
{
    const int thread = (int)threadIdx.x - 128, units = (KEYS - keys) * 8; /* of 16 bytes in a panel */
    for (int i = thread; i < units * PANELS; i += 256) {
        const uint32_t to = tile + i / units * PANEL + keys * 128 + i % units * 16;
        asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};" : : "r"(to), "r"(0) : "memory");
    }
    fence_async();
    named_sync(3, 256);
}

/* A run's sums: to the output if the unit is this block's alone, else to the partial results. */
template <typename T>
static __device__ __forceinline__ void store_run(const trm_cuda_latent &l, const latent_run &run, int32_t number,
                                                 int32_t side, int32_t row, const float (&out)[RANK / 4],
                                                 const hopper_rows &rows, float factor, int group, int lane)
{
    const int32_t in_tile = ((int)threadIdx.x >> 5 & 3) * 16 + lane / 4, heads = l.a.query_heads;
    const bool alone = run.end - run.tile == run.tiles;
    float *partial = partial_of(l, number, run.is_first ? 0 : 1, side);
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float total = rows.part[r] + __shfl_xor_sync(0xffffffffu, rows.part[r], 1);
        total += __shfl_xor_sync(0xffffffffu, total, 2);
        const bool valid = row + in_tile + 8 * r < run.queries * heads;
        if (!alone) {
            float *to = partial + (in_tile + 8 * r) * RANK + group * (RANK / 2) + lane % 4 * 2;
#pragma unroll
            for (int j = 0; j < RANK / 16; j++) {
                *(float2 *)(to + 8 * j) = make_float2(out[4 * j + 2 * r], out[4 * j + 2 * r + 1]);
            }
            if (group == 0 && lane % 4 == 0) {
                *(float2 *)(partial + ROWS * RANK + (in_tile + 8 * r) * 2) =
                    make_float2(rows.largest[r] * factor, total);
            }
            continue;
        }
        if (run.split && valid && group == 0 && lane % 4 == 0) {
            l.logs[(int64_t)run.first * heads + row + in_tile + 8 * r] = rows.largest[r] * factor + log2f(total);
        }
        const float scale = total == 0.0f ? 0.0f : __fdividef(1.0f, total);
        T *to = (T *)l.a.out + ((int64_t)run.first * heads + row + in_tile + 8 * r) * RANK + group * (RANK / 2);
#pragma unroll
        for (int j = 0; j < RANK / 64; j++) {
            const float *from = &out[16 * j + 2 * r];
            const uint4 eight = exchange_columns(
                pack2(from[0] * scale, from[1] * scale, T()), pack2(from[4] * scale, from[5] * scale, T()),
                pack2(from[8] * scale, from[9] * scale, T()), pack2(from[12] * scale, from[13] * scale, T()), lane);
            if (valid) {
                *(uint4 *)(to + 32 * j + lane % 4 * 8) = eight;
            }
        }
    }
}

template <typename T>
static __device__ void compute_all(const latent_call &c, const latent_shared &shared, int32_t number, int32_t side,
                                   int group, int lane)
{
    const trm_cuda_latent &l = c.l;
    const float factor = l.a.scale * LOG2_E;
    const int32_t in_tile = ((int)threadIdx.x >> 5 & 3) * 16 + lane / 4, heads = l.a.query_heads;
    uint32_t count = 0, q_count = 0;
    latent_run run;
    if (group == 1) {
        named_arrive(1, 256); /* the first group's products go first */
    }
    for (bool more = first_run(l, number, &run); more; more = next_run(l, &run)) {
        const int32_t row = row_of(l, run, side), end = seen_end(l, run, row);
        hopper_rows rows;
        float out[RANK / 4], scores[KEYS / 2], shrink[2];
        uint32_t weights[KEYS / 4];
#pragma unroll
        for (int r = 0; r < 2; r++) {
            rows.largest[r] = -INFINITY;
            rows.part[r] = 0.0f;
            rows.ranges[r].low = 0;
            rows.ranges[r].high = seen_keys(run, (row + in_tile + 8 * r) / heads);
        }
        const int32_t inside = seen_keys(run, row / heads); /* keys that every row sees */
#pragma unroll
        for (int i = 0; i < RANK / 4; i++) {
            out[i] = 0.0f;
        }
        if (end > run.tile) {
            barrier_wait(shared.q_full(), q_count++ & 1);
        }
        for (int32_t n = run.tile; n < end; n++, count++) {
            const int stage = count % STAGES;
            const uint32_t tile = shared.stage(stage);
            barrier_wait(shared.full(stage), count / STAGES & 1);
            if ((n + 1) * KEYS > run.keys) {
                clear_behind(tile, run.keys - n * KEYS);
            }
            named_sync(1 + group, 256);
            wgmma_pin(scores);
            wgmma_begin();
            multiply_latents<T>(scores, shared.q, tile);
            wgmma_commit();
            named_arrive(2 - group, 256);
            wgmma_wait<0>();
            wgmma_pin(scores);
            if (n == end - 1 && lane == 0) {
                barrier_arrive(shared.q_empty());
            }
            if ((n + 1) * KEYS > inside) {
                mask_tile<latent_shape, false>(scores, rows.ranges, n * KEYS, lane);
            }
            softmax_tile<latent_shape>(scores, rows, factor, shrink);
            pack_weights<T, KEYS>(weights, scores);
#pragma unroll
            for (int j = 0; j < RANK / 16; j++) {
                out[4 * j] *= shrink[0];
                out[4 * j + 1] *= shrink[0];
                out[4 * j + 2] *= shrink[1];
                out[4 * j + 3] *= shrink[1];
            }
            wgmma_pin(out);
            wgmma_begin();
            add_latents<T>(out, weights, tile + group * (RANK / 128) * PANEL);
            wgmma_commit();
            wgmma_wait<0>();
            wgmma_pin(out);
            if (lane == 0) {
                barrier_arrive(shared.empty(stage));
            }
        }
        store_run<T>(l, run, number, side, row, out, rows, factor, group, lane);
    }
}

/*
 * Block `side` of `width` of a share: one warp finds the parts of units and brings rows and keys by tensor copies, keys
 * into a ring of two tiles; two warp groups compute the same scores and half of the values each, so that weights stay
 * in registers. Their products are issued in turn: one's softmax runs beside the other's scores. 221 KiB of shared
 * memory. Bound by reading the cache, 1152 bytes a key, up to some 64 heads; by tensor cores beyond.
 */
template <typename T>
static __global__ void __launch_bounds__(THREADS, 1)
    latent_tiles(const __grid_constant__ latent_call c, const __grid_constant__ latent_maps maps)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ unsigned char memory[];
    latent_shared shared;
    shared.q = shared_address(memory);
    shared.q += -shared.q & 1023;
    shared.k = shared.q + TILE;
    shared.barriers = shared.k + STAGES * TILE;
    const int lane = threadIdx.x & 31, group = (int)threadIdx.x >> 7;
    const int32_t number = (int32_t)blockIdx.x / c.l.width, side = (int32_t)blockIdx.x % c.l.width;
    if (threadIdx.x == 0) {
        prefetch_map(&maps.q);
        prefetch_map(&maps.boxes);
        prefetch_map(&maps.tiles);
        for (int i = 0; i < STAGES; i++) {
            barrier_init(shared.full(i), 1);
            barrier_init(shared.empty(i), 8);
        }
        barrier_init(shared.q_full(), 1);
        barrier_init(shared.q_empty(), 8);
        barrier_init_done();
    }
    __syncthreads();
    begin_overlapped();
    if (group == 0) {
        registers_shrink<40>();
        if (threadIdx.x < 32) {
            load_all(c, maps, shared, number, side, lane);
        }
    } else {
        registers_grow<232>();
        compute_all<T>(c, shared, number, side, group - 1, lane);
    }
#endif
}

/* A row of a unit that several blocks share: sums over the sum of weights. A warp per row, 4 warps. */
template <typename T> static __global__ void __launch_bounds__(128) latent_join(trm_cuda_latent l)
{
    begin_overlapped();
    const int32_t rows = (int32_t)l.a.tokens * l.a.query_heads, lane = threadIdx.x & 31;
    const int32_t row = (int32_t)blockIdx.x * 4 + ((int)threadIdx.x >> 5), token = row / l.a.query_heads;
    if (row >= rows) {
        return;
    }
    const int32_t sequence = trm_attention_sequence_of(l.a.starts, l.a.sequences, token);
    if (sequence < 0) {
        return;
    }
    const int32_t queries = l.a.starts[sequence + 1] - l.a.starts[sequence];
    const int32_t tiles = (trm_cuda_latent_keys(l, sequence, queries) + KEYS - 1) / KEYS, share = share_of(l);
    if (tiles == 0) {
        return;
    }
    const int32_t within = row - l.a.starts[sequence] * l.a.query_heads, tile = within / ROWS;
    const int32_t start = l.plan[sequence] + tile / l.width * tiles, side = tile % l.width;
    const int32_t first = start / share, last = (start + tiles - 1) / share;
    if (first == last) {
        return;
    }
    float largest = -INFINITY, total = 0.0f, sums[RANK / 32];
    auto part_of = [&](int32_t number) {
        return partial_of(l, number, number == first && start != first * share ? 1 : 0, side);
    };
    for (int32_t i = first; i <= last; i++) {
        largest = fmaxf(largest, part_of(i)[ROWS * RANK + within % ROWS * 2]);
    }
#pragma unroll
    for (int j = 0; j < RANK / 32; j++) {
        sums[j] = 0.0f;
    }
    for (int32_t i = first; i <= last && largest > -INFINITY; i++) {
        const float *part = part_of(i);
        const float2 state = *(const float2 *)(part + ROWS * RANK + within % ROWS * 2);
        const float weight = exp2f(state.x - largest);
        total += weight * state.y;
#pragma unroll
        for (int j = 0; j < RANK / 128; j++) {
            const float4 four = *(const float4 *)(part + within % ROWS * RANK + j * 128 + lane * 4);
            sums[4 * j] += weight * four.x;
            sums[4 * j + 1] += weight * four.y;
            sums[4 * j + 2] += weight * four.z;
            sums[4 * j + 3] += weight * four.w;
        }
    }
    if (trm_cuda_latent_is_split(l, queries) && lane == 0) {
        l.logs[row] = largest + log2f(total);
    }
    const float scale = total == 0.0f ? 0.0f : 1.0f / total;
    T *to = (T *)l.a.out + (int64_t)row * RANK + lane * 4;
#pragma unroll
    for (int j = 0; j < RANK / 128; j++) {
        *(uint2 *)(to + j * 128) = make_uint2(pack2(sums[4 * j] * scale, sums[4 * j + 1] * scale, T()),
                                              pack2(sums[4 * j + 2] * scale, sums[4 * j + 3] * scale, T()));
    }
}

/* ---- launches -------------------------------------------------------------------------------------- */

static trm_status map_rows(CUtensorMap *map, const void *data, int64_t rows, int32_t box, trm_dtype dtype)
{
    const cuuint64_t dims[3] = {DIM, 1, (cuuint64_t)rows}, strides[2] = {DIM * 2, DIM * 2};
    const cuuint32_t boxes[3] = {64, 1, (cuuint32_t)box};
    return trm_cuda_tensor_map(map, data, 3, dims, strides, boxes, CU_TENSOR_MAP_SWIZZLE_128B, dtype);
}

template <typename T> static trm_status launch(const trm_cuda_latent *l, cudaStream_t stream)
{
    latent_call call = {*l, 8};
    latent_maps maps;
    while (call.box_keys < KEYS && l->a.block_size % (2 * call.box_keys) == 0) {
        call.box_keys *= 2;
    }
    TRM_TRY(map_rows(&maps.q, l->a.q, l->a.tokens * l->a.query_heads, ROWS, l->a.dtype));
    TRM_TRY(map_rows(&maps.boxes, l->a.key_cache, l->a.cache_rows, call.box_keys, l->a.dtype));
    TRM_TRY(map_rows(&maps.tiles, l->a.key_cache, l->a.cache_rows, KEYS, l->a.dtype));
    TRM_CUDA_TRY(cudaFuncSetAttribute(latent_tiles<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED));
    launch_overlapped(latent_tiles<T>, dim3((unsigned)(l->shares * l->width)), dim3(THREADS), (size_t)SHARED, stream,
                      call, maps);
    return trm_cuda_launched("cuda.latent_attention");
}

trm_status trm_cuda_latent_attention(const trm_cuda_latent *l, cudaStream_t stream)
{
    return l->a.dtype == TRM_F16 ? launch<__half>(l, stream) : launch<__nv_bfloat16>(l, stream);
}

trm_status trm_cuda_latent_join(const trm_cuda_latent *l, cudaStream_t stream)
{
    const unsigned grid = (unsigned)((l->a.tokens * l->a.query_heads + 3) / 4);
    if (l->a.dtype == TRM_F16) {
        launch_overlapped(latent_join<__half>, grid, 128, 0, stream, *l);
    } else {
        launch_overlapped(latent_join<__nv_bfloat16>, grid, 128, 0, stream, *l);
    }
    return trm_cuda_launched("cuda.latent_attention join");
}
