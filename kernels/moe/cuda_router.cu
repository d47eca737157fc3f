/*
 * The router: logits of all experts and the choice among them in one kernel, for a few tokens, perhaps with the norm
 * before them; or the choice alone, among logits that a library's product made.
 */
#include "kernels/cuda/cluster.cuh"
#include "kernels/cuda/common.cuh"
#include "kernels/moe/element.h"

#define CLUSTER 8 /* blocks, where there are clusters */
#define WARPS   16
#define EACH    8 /* experts whose logits a warp makes at a time */
#define CHOOSE  8 /* warps of a block that chooses alone */

/* ---- choosing ---- */

/* Scores in the place of logits; a softmax's are not divided by their sum, which is returned. By one warp. */
static __device__ float score_all(const trm_moe_router &p, const float *logits, float *scores, int lane)
{
    if (!trm_moe_is_softmax(p.scoring)) {
        for (int e = lane; e < p.experts; e += 32) {
            scores[e] = trm_moe_score(p.scoring, logits[e]);
        }
        return 1.0f;
    }
    float most = -INFINITY, sum = 0.0f;
    for (int e = lane; e < p.experts; e += 32) {
        most = fmaxf(most, logits[e]);
    }
    most = warp_max(most);
    for (int e = lane; e < p.experts; e += 32) {
        scores[e] = expf(logits[e] - most);
        sum += scores[e];
    }
    return warp_sum(sum);
}

/* Takes away the keys that are not in the best groups, of which there are up to 32; lane i has group i. */
static __device__ void keep_groups(const trm_moe_router &p, const float *values, uint32_t *keys, int lane)
{
    const int members = p.experts / p.groups;
    uint32_t key = 0;
    bool kept = false;
    if (lane < p.groups) {
        float best = -INFINITY, second = -INFINITY;
        for (int e = lane * members; e < (lane + 1) * members; e++) {
            const float v = values[e];
            second = v > best ? best : v > second ? v : second;
            best = v > best ? v : best;
        }
        key = trm_moe_key(p.group_sum ? best + second : best);
    }
    for (int i = 0; i < p.top_groups; i++) {
        const uint32_t most = __reduce_max_sync(0xffffffffu, key);
        const unsigned owners = __ballot_sync(0xffffffffu, key == most && lane < p.groups);
        if (lane == __ffs((int)owners) - 1) {
            kept = true;
            key = 0;
        }
    }
    const unsigned groups = __ballot_sync(0xffffffffu, kept);
    for (int e = lane; e < p.experts; e += 32) {
        keys[e] = (groups >> (e / members) & 1) != 0 ? keys[e] : 0;
    }
    __syncwarp();
}

/*
 * By one warp: logits [experts] in shared memory; scores, values, keys are room for as many. Lane l has experts l, l +
 * 32, ...: up to R of them, whose keys are in registers.
 */
template <int R>
static __device__ void choose(const trm_moe_router &p, int64_t token, const float *logits, float *scores, float *values,
                              uint32_t *keys, int lane)
{
    const float whole = score_all(p, logits, scores, lane);
    const bool by_score = trm_moe_keys_are_scores(&p);
    uint32_t key[R];
    for (int e = lane; by_score && e < p.experts; e += 32) {
        values[e] = scores[e] / whole + (p.correction != NULL ? p.correction[e] : 0.0f);
    }
    const float *from = by_score ? values : logits;
    __syncwarp();
#pragma unroll
    for (int r = 0; r < R; r++) {
        const int e = lane + 32 * r;
        key[r] = e < p.experts ? trm_moe_key(from[e]) : 0;
    }
    if (p.groups > 1) {
        for (int e = lane; e < p.experts; e += 32) {
            keys[e] = trm_moe_key(from[e]);
        }
        __syncwarp();
        keep_groups(p, from, keys, lane);
#pragma unroll
        for (int r = 0; r < R; r++) {
            const int e = lane + 32 * r;
            key[r] = e < p.experts ? keys[e] : 0;
        }
    }
    int chosen = 0;
    for (int i = 0; i < p.k; i++) {
        uint32_t best = key[0];
        int at = 0;
#pragma unroll
        for (int r = 1; r < R; r++) {
            at = key[r] > best ? r : at;
            best = key[r] > best ? key[r] : best;
        }
        const uint32_t most = __reduce_max_sync(0xffffffffu, best);
        const unsigned id = best == most ? (unsigned)(lane + 32 * at) : UINT32_MAX;
        const int taken = (int)__reduce_min_sync(0xffffffffu, id);
        chosen = lane == i ? taken : chosen;
#pragma unroll
        for (int r = 0; r < R; r++) {
            key[r] = taken == lane + 32 * r ? 0 : key[r];
        }
    }
    const float first = logits[__shfl_sync(0xffffffffu, chosen, 0)];
    float weight = 0.0f;
    if (lane < p.k) {
        weight = p.scoring == TRM_ROUTER_SOFTMAX_CHOSEN ? expf(logits[chosen] - first) : scores[chosen] / whole;
    }
    const float sum = warp_sum(weight);
    if (lane < p.k) {
        if (p.scoring == TRM_ROUTER_SOFTMAX_CHOSEN) {
            weight /= sum;
        } else if (p.renormalize) {
            weight /= sum + p.epsilon;
        }
        weight *= p.scale * (p.expert_scale != NULL ? p.expert_scale[chosen] : 1.0f);
        p.ids[token * p.k + lane] = chosen;
        p.weights[token * p.k + lane] = weight;
    }
}

static __device__ __forceinline__ void choose_any(const trm_moe_router &p, int64_t token, float *logits, int lane)
{
    float *scores = logits + p.experts, *values = scores + p.experts;
    uint32_t *keys = (uint32_t *)(values + p.experts);
    if (p.experts <= 128) {
        choose<4>(p, token, logits, scores, values, keys, lane);
    } else if (p.experts <= 256) {
        choose<8>(p, token, logits, scores, values, keys, lane);
    } else if (p.experts <= 512) {
        choose<16>(p, token, logits, scores, values, keys, lane);
    } else {
        choose<32>(p, token, logits, scores, values, keys, lane);
    }
}

/* A token per warp; 16 bytes of shared memory per warp and expert. Bound by the latency of k rounds. */
static __global__ void __launch_bounds__(CHOOSE * 32) choose_experts(const trm_moe_router p)
{
    extern __shared__ float room[];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    float *logits = room + warp * 4 * p.experts;
    begin_overlapped();
    const int64_t token = (int64_t)blockIdx.x * CHOOSE + warp;
    if (token >= p.tokens) {
        return;
    }
    for (int e = lane; e < p.experts; e += 32) {
        logits[e] = p.logits[token * p.experts + e] + (p.bias != NULL ? p.bias[e] : 0.0f);
    }
    __syncwarp();
    choose_any(p, token, logits, lane);
}

/* ---- the product ---- */

static __device__ __forceinline__ void unpack2(uint32_t, float *, float)
{
}

/* The N elements of x that meet 16 bytes of the weight. */
template <typename X, int N> static __device__ __forceinline__ void load_x(const X *from, float (&to)[N])
{
    const int each = vec16<X>::n;
    if (each > N) { /* 4 elements of 16 bits */
        const uint2 raw = *(const uint2 *)from;
        unpack2(raw.x, to, X());
        unpack2(raw.y, to + 2, X());
    } else {
#pragma unroll
        for (int i = 0; i < N; i += each) {
            load16(from + i, to + i);
        }
    }
}

static __device__ __forceinline__ uint4 load_early(const void *from)
{
    uint4 v;
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(from));
    return v;
}

/* How the warps of a cluster share a token's product: `parts` warps have every parts-th run of columns of the same
 * experts. */
typedef struct route_args {
    trm_moe_router p;
    trm_moe_norm norm;
    int32_t blocks, groups, parts; /* groups: of EACH experts */
} route_args;

/* A lane's 16 bytes of a run of the rows of a group's experts; zeros outside. */
template <typename W>
static __device__ __forceinline__ void load_weight(uint4 (&w)[EACH], const trm_moe_router &p, int group, int run,
                                                   int lane)
{
    const int64_t at = ((int64_t)run * 32 + lane) * vec16<W>::n;
    const W *row = (const W *)p.weight + (int64_t)group * EACH * p.hidden + at;
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        w[e] = group * EACH + e < p.experts && at < p.hidden ? load_early(row + (int64_t)e * p.hidden)
                                                             : make_uint4(0, 0, 0, 0);
    }
}

/* The sums over a warp of eight numbers of each lane: number `lane / 4` of them, in every lane. */
static __device__ __forceinline__ float sum_eight(float (&sums)[EACH], int lane)
{
#pragma unroll
    for (int half = EACH / 2; half > 0; half /= 2) {
        const int distance = half * 4;
        const bool upper = (lane & distance) != 0;
#pragma unroll
        for (int i = 0; i < half; i++) {
            const float kept = upper ? sums[i + half] : sums[i], given = upper ? sums[i] : sums[i + half];
            sums[i] = kept + __shfl_xor_sync(0xffffffffu, given, distance);
        }
    }
    sums[0] += __shfl_xor_sync(0xffffffffu, sums[0], 2);
    return sums[0] + __shfl_xor_sync(0xffffffffu, sums[0], 1);
}

/* The sum of what `parts` warps have made, `step` apart, in their order; eight loads at a time. */
static __device__ __forceinline__ float sum_parts(const float *from, int parts, int step)
{
    float sum = 0.0f;
    for (int part = 0; part < parts; part += 8) {
        float v[8];
#pragma unroll
        for (int i = 0; i < 8; i++) {
            v[i] = part + i < parts ? from[(part + i) * step] : 0.0f;
        }
#pragma unroll
        for (int i = 0; i < 8; i++) {
            sum += v[i];
        }
    }
    return sum;
}

/* What is normalized of a token, from element `at` on: with a residual the rounded sum. */
template <typename X, int N>
static __device__ __forceinline__ void load_sum(const route_args &a, const X *x, int64_t token, int64_t at,
                                                float (&v)[N])
{
    load_x<X, N>(x + at, v);
    if (a.norm.residual != NULL) {
        float r[N];
        load_x<X, N>((const X *)a.norm.residual + token * a.p.hidden + at, r);
#pragma unroll
        for (int i = 0; i < N; i++) {
            v[i] = to_float(from_float<X>(v[i] + r[i]));
        }
    }
}

/* What the choice reads, on its way into L2. */
static __device__ __forceinline__ void prefetch_vectors(const trm_moe_router &p)
{
    const float *vectors[] = {p.bias, p.correction, p.expert_scale};
    const int at = (int)threadIdx.x * 32;
#pragma unroll
    for (int i = 0; i < 3; i++) {
        if (vectors[i] != NULL && at < p.experts) {
            prefetch_l2(vectors[i] + at);
        }
    }
}

/* What a lane's N numbers of a run are multiplied by. */
template <typename X, int N, bool NORMED>
static __device__ __forceinline__ void load_factors(const route_args &a, int run, int lane, float (&g)[N])
{
    const int64_t at = ((int64_t)run * 32 + lane) * N;
    const bool given = NORMED && a.norm.weight != NULL && at < a.p.hidden;
    if (given) {
        load_x<X, N>((const X *)a.norm.weight + at, g);
    }
#pragma unroll
    for (int i = 0; i < N; i++) {
        g[i] = given ? g[i] + a.norm.offset : 1.0f;
    }
}

/* The norm of a token and the sum before it, by all threads of the cluster. */
template <typename X>
static __device__ __forceinline__ void store_norm(const route_args &a, const X *x, int64_t token, int rank, float scale)
{
    const int n = vec16<X>::n, runs = a.p.hidden / n;
    for (int run = (int)threadIdx.x * a.blocks + rank; run < runs; run += WARPS * 32 * a.blocks) {
        float v[n], g[n];
        load_sum<X, n>(a, x, token, run * n, v);
        load_factors<X, n, true>(a, run / 32, run % 32, g);
        if (a.norm.sum != NULL) {
            store16((X *)a.norm.sum + token * a.p.hidden + run * n, v);
        }
#pragma unroll
        for (int i = 0; i < n; i++) {
            v[i] = v[i] * scale * g[i];
        }
        store16((X *)a.norm.to + token * a.p.hidden + run * n, v);
    }
}

/*
 * A token per cluster of 8 blocks (one where there are no clusters) of 16 warps. A warp has a run of columns of 8
 * experts in registers and so needs little of x; sums of runs go to the first block's shared memory, where a warp adds
 * them up and chooses. NORMED: x, added to the residual if there is one, is normalized, in that the logits are scaled
 * at the end: nothing waits for the whole row. Shared memory: 16 bytes for an expert, 4 for each of its sums, 20 KiB at
 * most. Bytes moved: the weight once per token, of which the first runs are on their way before the wait. Bound by
 * latency: of x, of two barriers of the cluster, of the rounds of choosing.
 */
template <typename X, typename W, bool NORMED>
static __global__ void __launch_bounds__(WARPS * 32) route(const __grid_constant__ route_args a)
{
    extern __shared__ float room[];
    const int n = vec16<W>::n;
    const trm_moe_router &p = a.p;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, rank = (int)blockIdx.x % a.blocks;
    const int64_t token = blockIdx.x / a.blocks;
    const int runs = (p.hidden + 32 * n - 1) / (32 * n), units = a.groups * a.parts;
    const X *x = (const X *)p.x + token * p.hidden;
    float *partial = room + 4 * p.experts, *squares = partial + a.parts * p.experts;
    uint4 w[EACH];
    float g[n];
    int unit = warp * a.blocks + rank;
    start_next();
    if (unit < units) {
        load_weight<W>(w, p, unit / a.parts, unit % a.parts, lane);
        load_factors<X, n, NORMED>(a, unit % a.parts, lane, g);
    }
    if (rank == 0) {
        prefetch_vectors(p);
    }
    cluster_arrive();
    wait_for_previous();
    cluster_wait(); /* all blocks have begun */
    for (; unit < units; unit += WARPS * a.blocks) {
        const int group = unit / a.parts, part = unit % a.parts;
        float sums[EACH] = {}, square = 0.0f;
        for (int run = part; run < runs; run += a.parts) {
            const int64_t at = ((int64_t)run * 32 + lane) * n;
            float v[n] = {};
            if (at < p.hidden && NORMED) {
                load_sum<X, n>(a, x, token, at, v);
#pragma unroll
                for (int i = 0; i < n; i++) {
                    square = fmaf(v[i], v[i], square);
                    v[i] *= g[i];
                }
            } else if (at < p.hidden) {
                load_x<X, n>(x + at, v);
            }
#pragma unroll
            for (int e = 0; e < EACH; e++) {
                float u[n];
                unpack16<W>(w[e], u);
#pragma unroll
                for (int i = 0; i < n; i++) {
                    sums[e] = fmaf(u[i], v[i], sums[e]);
                }
            }
            const bool more = run + a.parts < runs;
            const int next = more ? unit : unit + WARPS * a.blocks, next_run = more ? run + a.parts : next % a.parts;
            if (next < units) {
                load_weight<W>(w, p, next / a.parts, next_run, lane);
                load_factors<X, n, NORMED>(a, next_run, lane, g);
            }
        }
        const float sum = sum_eight(sums, lane);
        const int expert = group * EACH + lane / 4;
        if (lane % 4 == 0 && expert < p.experts) {
            store_to_block(partial + part * p.experts + expert, 0, sum);
        }
        if (NORMED && group == 0) {
            square = warp_sum(square);
            if (lane < a.blocks) {
                store_to_block(squares + part, lane, square);
            }
        }
    }
    cluster_barrier();
    float scale = 1.0f;
    if (NORMED) {
        scale = 1.0f / sqrtf(sum_parts(squares, a.parts, 1) / (float)p.hidden + a.norm.eps);
    }
    if (rank == 0 && warp == WARPS - 1) { /* the one with the least of the norm to store */
#pragma unroll 4
        for (int e = lane; e < p.experts; e += 32) {
            const float bias = p.bias != NULL ? p.bias[e] : 0.0f;
            room[e] = sum_parts(partial + e, a.parts, p.experts) * scale + bias;
        }
        __syncwarp();
        choose_any(p, token, room, lane);
    }
    if (NORMED) {
        store_norm<X>(a, x, token, rank, scale);
    }
}

/* ---- launching ---- */

bool trm_cuda_moe_router_accepts(const trm_moe_router *p)
{
    if (trm_moe_router_check(p) != TRM_OK || p->groups > 32 || p->scoring == TRM_ROUTER_SPARSE_MIXER) {
        return false;
    }
    const int32_t x_bytes = p->x_type == TRM_F32 ? 4 : 2, weight_bytes = p->weight_type == TRM_F32 ? 4 : 2;
    return p->logits != NULL || (p->hidden * x_bytes % 16 == 0 && p->hidden * weight_bytes % 16 == 0 &&
                                 trm_aligned16(p->x) && trm_aligned16(p->weight));
}

bool trm_cuda_moe_norm_router_accepts(const trm_moe_router *p, const trm_moe_norm *norm)
{
    return p->logits == NULL && trm_cuda_moe_router_accepts(p) && trm_aligned16(norm->weight) &&
           trm_aligned16(norm->residual) && trm_aligned16(norm->to) && trm_aligned16(norm->sum);
}

template <typename X, typename W> static void launch_route(route_args *a, bool constant_weights, cudaStream_t stream)
{
    const trm_moe_router *p = &a->p;
    const int32_t runs = (p->hidden + 32 * vec16<W>::n - 1) / (32 * vec16<W>::n);
    a->blocks = trm_cuda_has_clusters() ? CLUSTER : 1;
    a->groups = (p->experts + EACH - 1) / EACH;
    a->parts = WARPS * a->blocks / a->groups;
    a->parts = a->parts < 1 ? 1 : a->parts > runs ? runs : a->parts;
    const size_t shared = ((size_t)p->experts * (4 + a->parts) + (size_t)a->parts) * sizeof(float);
    launch_clusters((unsigned)a->blocks, constant_weights, a->norm.to != NULL ? route<X, W, true> : route<X, W, false>,
                    (unsigned)(p->tokens * a->blocks), WARPS * 32, shared, stream, *a);
}

template <typename X> static void launch_x(route_args *a, bool constant_weights, cudaStream_t stream)
{
    DISPATCH_FLOAT(a->p.weight_type, (launch_route<X, T>(a, constant_weights, stream)));
}

trm_status trm_cuda_moe_norm_router_run(const trm_moe_router *p, const trm_moe_norm *norm, bool constant_weights,
                                        void *user_stream)
{
    route_args a = {*p, *norm, 0, 0, 0};
    if (p->tokens > 0) {
        DISPATCH_FLOAT(p->x_type, launch_x<T>(&a, constant_weights, (cudaStream_t)user_stream));
    }
    return trm_cuda_launched("moe router");
}

trm_status trm_cuda_moe_router_run(const trm_moe_router *p, bool constant_weight, void *user_stream)
{
    if (p->tokens == 0) {
        return TRM_OK;
    }
    if (p->logits == NULL) {
        const trm_moe_norm none = {};
        return trm_cuda_moe_norm_router_run(p, &none, constant_weight, user_stream);
    }
    const size_t shared = (size_t)p->experts * 16 * CHOOSE;
    if (shared > 48 * 1024) {
        (void)cudaFuncSetAttribute(choose_experts, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
    }
    launch_overlapped(choose_experts, (unsigned)((p->tokens + CHOOSE - 1) / CHOOSE), CHOOSE * 32, shared,
                      (cudaStream_t)user_stream, *p);
    return trm_cuda_launched("moe router");
}
