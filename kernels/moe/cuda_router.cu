/*
 * The router: logits of all experts and the choice among them in one kernel, for a few tokens; or the choice alone,
 * among logits that a library's product made.
 */
#include "kernels/cuda/cluster.cuh"
#include "kernels/cuda/common.cuh"
#include "kernels/moe/element.h"

#define CLUSTER 8 /* blocks, where there are clusters */
#define WARPS   16
#define LOADS   8 /* of 16 bytes of a weight in flight in a lane */
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
/* To the same place of shared memory in block `block` of the cluster. */
static __device__ __forceinline__ void store_to_block(float *place, int block, float value)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("{ .reg .b32 at;\n"
                 "mapa.shared::cluster.u32 at, %0, %1;\n"
                 "st.shared::cluster.f32 [at], %2; }"
                 :
                 : "r"(shared_address(place)), "r"(block), "f"(value)
                 : "memory");
#else
    (void)block;
    *place = value;
#endif
}

static __device__ __forceinline__ uint4 load_early(const void *from)
{
    uint4 v;
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(from));
    return v;
}

template <typename W>
static __device__ __forceinline__ void load_weight(uint4 (&w)[LOADS], const W *row, int64_t k, int64_t k0, int lane)
{
#pragma unroll
    for (int u = 0; u < LOADS; u++) {
        const int64_t at = k0 + (u * 32 + lane) * vec16<W>::n;
        w[u] = row != NULL && at < k ? load_early(row + at) : make_uint4(0, 0, 0, 0);
    }
}

/*
 * M tokens per cluster of 8 blocks (one where there are no clusters) of 16 warps, a warp per expert in turn; logits go
 * to the first block's shared memory, where a warp per token chooses. 16 KiB of shared memory per token at most. Bytes
 * moved: the weight once per cluster, the first experts' ahead of the wait for the kernel before. Bound by latency: of
 * these loads, of two barriers of the cluster, and of the rounds of choosing. bench_moe, bf16, in a chain on an H200,
 * us: 4.1 to 4.3 for 1 to 8 tokens of qwen3-30b, 7.7 for 16, 14.7 for 64; 5.5, 11.2 and 21.2 for gpt-oss-120b.
 */
template <typename X, typename W, int M>
static __global__ void __launch_bounds__(WARPS * 32) route(const trm_moe_router p, int32_t blocks)
{
    extern __shared__ float room[];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, rank = (int)blockIdx.x % blocks;
    const int64_t token0 = (int64_t)(blockIdx.x / blocks) * M, k = p.hidden;
    const int n = vec16<W>::n, turn = LOADS * 32 * n;
    const W *weight = (const W *)p.weight;
    const X *x = (const X *)p.x + token0 * k;
    uint4 w[LOADS];
    int e = rank * WARPS + warp;
    start_next();
    load_weight(w, e < p.experts ? weight + e * k : (const W *)NULL, k, 0, lane);
    cluster_arrive();
    wait_for_previous();
    cluster_wait(); /* all blocks have begun */
    for (; e < p.experts; e += blocks * WARPS) {
        float sums[M] = {};
        for (int64_t k0 = 0; k0 < k; k0 += turn) {
#pragma unroll
            for (int m = 0; m < M; m++) {
                const X *row = x + (token0 + m < p.tokens ? m * k : 0);
#pragma unroll
                for (int u0 = 0; u0 < LOADS; u0 += 4) { /* four at a time: all loads, then all products */
                    float b[4][vec16<W>::n];
#pragma unroll
                    for (int u = 0; u < 4; u++) {
                        const int64_t at = k0 + ((u0 + u) * 32 + lane) * n;
                        load_x<X, vec16<W>::n>(row + (at < k ? at : 0), b[u]);
                    }
#pragma unroll
                    for (int u = 0; u < 4; u++) {
                        const int64_t at = k0 + ((u0 + u) * 32 + lane) * n;
                        float a[vec16<W>::n];
                        unpack16<W>(w[u0 + u], a);
#pragma unroll
                        for (int i = 0; i < n; i++) {
                            sums[m] = at < k ? fmaf(a[i], b[u][i], sums[m]) : sums[m];
                        }
                    }
                }
            }
            const bool more = k0 + turn < k;
            const int next = more ? e : e + blocks * WARPS;
            load_weight(w, next < p.experts ? weight + next * k : (const W *)NULL, k, more ? k0 + turn : 0, lane);
        }
#pragma unroll
        for (int m = 0; m < M; m++) {
            const float sum = warp_sum(sums[m]);
            if (lane == 0) {
                store_to_block(room + m * 4 * p.experts + e, 0, sum + (p.bias != NULL ? p.bias[e] : 0.0f));
            }
        }
    }
    cluster_barrier();
    if (rank == 0 && warp < M && token0 + warp < p.tokens) {
        choose_any(p, token0 + warp, room + warp * 4 * p.experts, lane);
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

template <typename X, typename W, int M>
static void launch_route(const trm_moe_router *p, bool constant_weight, cudaStream_t stream)
{
    const unsigned clusters = (unsigned)((p->tokens + M - 1) / M), blocks = trm_cuda_has_clusters() ? CLUSTER : 1;
    const size_t shared = (size_t)p->experts * 16 * M;
    if (shared > 48 * 1024) {
        (void)cudaFuncSetAttribute(route<X, W, M>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
    }
    cudaLaunchAttribute attributes[MOST_ATTRIBUTES] = {};
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(clusters * blocks);
    config.blockDim = dim3(WARPS * 32);
    config.dynamicSmemBytes = shared;
    config.stream = stream;
    config.attrs = attributes;
    config.numAttrs = launch_attributes(attributes, constant_weight, blocks);
    (void)cudaLaunchKernelEx(&config, route<X, W, M>, *p, (int32_t)blocks); /* trm_cuda_launched() sees the error */
}

template <typename X, typename W>
static void launch_typed(const trm_moe_router *p, bool constant_weight, cudaStream_t stream)
{
    if (p->tokens <= 8) {
        launch_route<X, W, 1>(p, constant_weight, stream);
    } else {
        launch_route<X, W, 4>(p, constant_weight, stream);
    }
}

template <typename X> static void launch_x(const trm_moe_router *p, bool constant_weight, cudaStream_t stream)
{
    DISPATCH_FLOAT(p->weight_type, (launch_typed<X, T>(p, constant_weight, stream)));
}

trm_status trm_cuda_moe_router_run(const trm_moe_router *p, bool constant_weight, void *user_stream)
{
    cudaStream_t stream = (cudaStream_t)user_stream;
    if (p->tokens == 0) {
        return TRM_OK;
    }
    if (p->logits != NULL) {
        const size_t shared = (size_t)p->experts * 16 * CHOOSE;
        if (shared > 48 * 1024) {
            (void)cudaFuncSetAttribute(choose_experts, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
        }
        launch_overlapped(choose_experts, (unsigned)((p->tokens + CHOOSE - 1) / CHOOSE), CHOOSE * 32, shared, stream,
                          *p);
    } else {
        DISPATCH_FLOAT(p->x_type, launch_x<T>(p, constant_weight, stream));
    }
    return trm_cuda_launched("moe router");
}
