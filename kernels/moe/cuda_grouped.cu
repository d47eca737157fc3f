/*
 * Experts of many tokens: the copy of tokens into the order of their experts, the products (cuda_grouped.cuh), and the
 * sum of every token's parts in the order of its slots.
 */
#include "kernels/moe/cuda_grouped.cuh"

/* ---- rows in their order ---- */

typedef struct gather_args {
    trm_moe_experts p;
    trm_moe_order order;
    void *to; /* [pairs, hidden], as many as experts have */
} gather_args;

/* A row per warp. Bytes moved: x from cache, its copies once. Bound by memory. */
static __global__ void __launch_bounds__(256) gather_rows(const gather_args a)
{
    const int lane = threadIdx.x & 31, eights = a.p.hidden / 8;
    begin_overlapped();
    const int32_t tiles = *a.order.tiles_n, warps = (int32_t)gridDim.x * 8;
    if (tiles == 0) {
        return;
    }
    const trm_moe_tile last = a.order.tiles[tiles - 1];
    const int32_t rows = last.row + last.rows;
    for (int32_t row = (int32_t)blockIdx.x * 8 + (threadIdx.x >> 5); row < rows; row += warps) {
        const uint4 *from = (const uint4 *)a.p.x + (int64_t)(a.order.pairs[row] / a.p.k) * eights;
        uint4 *to = (uint4 *)a.to + (int64_t)row * eights;
#pragma unroll 8
        for (int i = lane; i < eights; i += 32) {
            to[i] = from[i];
        }
    }
}

/* ---- the sum ---- */

typedef struct sum_args {
    trm_moe_experts p;
    const void *parts; /* [tokens * k, hidden] */
} sum_args;

/* A token per block in turn, eight elements per thread. Bytes moved: the parts once, y once. Bound by memory. */
template <typename T> static __global__ void __launch_bounds__(256) sum_parts(const sum_args a)
{
    const trm_moe_experts &p = a.p;
    __shared__ int32_t slots[TRM_MOE_MOST_CHOSEN]; /* those that are here, in their order */
    __shared__ float weights[TRM_MOE_MOST_CHOSEN];
    __shared__ int32_t slots_n;
    start_next();
    for (int64_t token = blockIdx.x; token < p.tokens; token += gridDim.x) {
        __syncthreads();
        if (threadIdx.x < 32) {
            const bool here = threadIdx.x < p.k && trm_moe_local(&p, p.ids[token * p.k + threadIdx.x]) >= 0;
            const unsigned all = __ballot_sync(0xffffffffu, here);
            if (here) {
                const int place = __popc(all & ((1u << threadIdx.x) - 1));
                slots[place] = threadIdx.x;
                weights[place] = p.weighted_input ? 1.0f : p.weights[token * p.k + threadIdx.x];
            }
            if (threadIdx.x == 0) {
                slots_n = __popc(all);
            }
        }
        __syncthreads();
        wait_for_previous(); /* for the parts: what the router chose has been there since the products began */
        const int n = slots_n;
        const T *parts = (const T *)a.parts + token * p.k * p.hidden;
        for (int32_t at = threadIdx.x * 8; at < p.hidden; at += 256 * 8) {
            float sum[8] = {};
            for (int s0 = 0; s0 < n; s0 += 8) {
                float v[8][8];
#pragma unroll
                for (int s = 0; s < 8; s++) {
                    load8(parts + slots[min(s0 + s, n - 1)] * (int64_t)p.hidden + at, v[s]);
                }
#pragma unroll
                for (int s = 0; s < 8; s++) {
#pragma unroll
                    for (int e = 0; e < 8; e++) {
                        sum[e] = s0 + s < n ? fmaf(weights[s0 + s], v[s][e], sum[e]) : sum[e];
                    }
                }
            }
            if (p.residual != NULL) {
                float v[8];
                load8((const T *)p.residual + token * p.hidden + at, v);
#pragma unroll
                for (int e = 0; e < 8; e++) {
                    sum[e] += v[e];
                }
            }
            store8((T *)p.y + token * p.hidden + at, sum);
        }
    }
}

/* ---- launching ---- */

/* Most tokens of a tile whose numbers are split into e4m3 (cuda_split.cuh). */
static int32_t most_split(const trm_moe_experts *p)
{
    const bool scales = p->hidden <= 32 * SPLIT_MOST && p->width <= 32 * SPLIT_MOST;
    return p->format == TRM_MOE_HALVES ? 0 : p->format == TRM_MOE_MXFP4 ? (scales ? 32 : 0) : 64;
}

bool trm_cuda_moe_splits(const trm_moe_experts *p)
{
    return most_split(p) > 0;
}

bool trm_cuda_moe_grouped_accepts(const trm_moe_experts *p)
{
    const bool scaled = p->format != TRM_MOE_MXFP4 || (p->hidden <= 32 * MOST_SCALES && p->width <= 32 * MOST_SCALES);
    const bool quantized = p->type == TRM_BF16 && p->activation != TRM_EXPERT_RELU2 && scaled;
    return trm_cuda_hopper_ready() && trm_cuda_moe_sort_accepts(p) && (p->format == TRM_MOE_HALVES || quantized);
}

/*
 * Tiles by how many tokens an expert has on average. bench_moe on an H200, us, every tile forced in turn; tokens of an
 * expert in brackets:
 *
 *   most of a tile                    16      32      64     128     256
 *   bf16, qwen3-30b, T 128 [8]       315     316     312       -       -
 *   bf16, qwen3-30b, T 512 [32]      405     385     350     365     401
 *   bf16, gpt-oss-20b, T 512 [64]    797     581     516     495     556
 *   bf16, qwen3-30b, T 2048 [128]      -     816     642     613     613
 *   bf16, gpt-oss-20b, T 2048 [256]    -       -    1407    1022    1077
 *   bf16, qwen3-30b, T 8192 [512]      -       -       -    1883    1907
 *   e4m3, qwen3-30b, T 128 [8]       179     177     186     226     355
 *   e4m3, qwen3-30b, T 512 [32]        -     248     232     261     374
 *   e4m3, qwen3-30b, T 2048 [128]      -     641     542     530     528
 *   MXFP4, gpt-oss-20b, T 64 [8]     191     209       -       -       -
 *   MXFP4, gpt-oss-20b, T 128 [16]   265     238     273       -     435
 *   MXFP4, gpt-oss-120b, T 512 [16]    -     801     992       -    1579
 *   MXFP4, gpt-oss-20b, T 512 [64]     -     551     510       -     501
 */
void trm_cuda_moe_grouped_choose(const trm_moe_experts *p, trm_moe_plan *plan)
{
    const int64_t each = p->tokens * p->k / p->experts;
    if (most_split(p) == 0) {
        plan->rows = each <= 8 ? 16 : each <= 20 ? 32 : each <= 40 ? 64 : each <= 96 ? 128 : 256;
    } else if (p->format == TRM_MOE_MXFP4) {
        plan->rows = each <= 8 ? 16 : each <= 40 ? 32 : 256;
    } else {
        plan->rows = each <= 8 ? 16 : each <= 20 ? 32 : each <= 96 ? 64 : 256;
    }
}

static bool is_split(const trm_moe_experts *p, int32_t rows)
{
    return rows <= most_split(p);
}

static void *take(grouped_room *room, void *workspace, size_t bytes)
{
    void *at = (char *)workspace + room->bytes;
    room->bytes += (bytes + 255) / 256 * 256;
    return at;
}

static grouped_room divide(const trm_moe_experts *p, const trm_moe_plan *plan, void *workspace)
{
    grouped_room room = {};
    const size_t pairs = (size_t)p->tokens * (size_t)p->k;
    room.order.tiles_n = (int32_t *)take(&room, workspace, sizeof(int32_t));
    room.order.tiles =
        (trm_moe_tile *)take(&room, workspace, (size_t)trm_cuda_moe_most_tiles(p, plan->rows) * sizeof(trm_moe_tile));
    room.order.pairs = (int32_t *)take(&room, workspace, pairs * sizeof(int32_t));
    const bool split = is_split(p, plan->rows);
    room.x = plan->rows >= 128 || split ? take(&room, workspace, pairs * (size_t)p->hidden * 2) : NULL;
    room.h = take(&room, workspace, pairs * (size_t)p->width * 2);
    room.h_split = split ? take(&room, workspace, pairs * (size_t)p->width * 2) : NULL;
    room.units = split ? (float *)take(&room, workspace, pairs * sizeof(float)) : NULL;
    room.parts = take(&room, workspace, pairs * (size_t)p->hidden * 2);
    return room;
}

size_t trm_cuda_moe_grouped_workspace(const trm_moe_experts *p, const trm_moe_plan *plan)
{
    return divide(p, plan, NULL).bytes;
}

template <typename T>
static trm_status launch_halves(const trm_moe_experts *p, const trm_moe_plan *plan, const grouped_room *room,
                                cudaStream_t stream)
{
    switch (plan->rows) {
    case 16:
        return launch_products<T, tile_form<16, 11>>(p, room, stream);
    case 32:
        return launch_products<T, tile_form<32, 10>>(p, room, stream);
    case 64:
        return launch_products<T, tile_form<64, 8>>(p, room, stream);
    case 128:
        return launch_products<T, tile_form<128, 6>>(p, room, stream);
    default:
        return launch_products<T, tile_form<256, 4>>(p, room, stream);
    }
}

template <typename T>
static trm_status launch(const trm_moe_experts *p, const trm_moe_plan *plan, const grouped_room *room,
                         cudaStream_t stream)
{
    if (room->x != NULL && room->units == NULL) {
        const gather_args gather = {*p, room->order, room->x};
        launch_overlapped(gather_rows, grid_for(p->tokens * p->k, 8), 256, 0, stream, gather);
    }
    TRM_TRY(p->format == TRM_MOE_HALVES  ? launch_halves<T>(p, plan, room, stream)
            : p->format == TRM_MOE_MXFP4 ? trm_cuda_moe_grouped_f4_run(p, plan, room, stream)
                                         : trm_cuda_moe_grouped_f8_run(p, plan, room, stream));
    const sum_args a = {*p, room->parts};
    const unsigned blocks = (unsigned)(p->tokens < 132 * 16 ? p->tokens : 132 * 16);
    launch_overlapped(sum_parts<T>, blocks, 256, 0, stream, a);
    return trm_cuda_launched("moe sum");
}

trm_status trm_cuda_moe_grouped_run(const trm_moe_experts *p, const trm_moe_plan *plan, void *workspace,
                                    cudaStream_t stream)
{
    const grouped_room room = divide(p, plan, workspace);
    TRM_TRY(trm_cuda_moe_sort_run(p, &room.order, plan->rows, stream));
    return p->type == TRM_BF16 ? launch<__nv_bfloat16>(p, plan, &room, stream) : launch<__half>(p, plan, &room, stream);
}
