/*
 * Sampling on the GPU, without the host: the walk of kernels/sampling/sample.h by selection instead of sorting. A row's
 * tokens fall into bins by their distance from the largest logit; the bin in which a count or a mass is reached is
 * gathered and sorted, the rest is never put in order.
 *
 * Weights e^(logit - largest) are f32 values taken as 64-bit integers of a fixed scale, so their sums are exact and the
 * same in whatever order they are added: the token depends on the logits and parameters alone. The host adds f64
 * weights; the two may differ where a draw or top-p falls within about 1e-6 of the boundary between two tokens, and
 * tokens whose weight is under the fixed scale's unit (2^-42 of the largest for vocabularies up to a million) are never
 * drawn.
 */
#include "kernels/cuda/common.cuh"
#include "kernels/sampling/backends.h"
#include "kernels/sampling/cuda_block.cuh"

#define SAMPLE_THREADS  1024
#define SAMPLE_BINS     2048 /* two per thread */
#define SAMPLE_GATHERED 4096 /* four per thread */
#define GREEDY_BLOCKS   32   /* per row */

/* ---- order ---- */

/* A logit as an unsigned number of the same order; both zeros are one, NaN is -inf. */
static __device__ __forceinline__ uint32_t order_of(float x)
{
    uint32_t bits = __float_as_uint(x == x ? (x == 0.0f ? 0.0f : x) : -INFINITY);
    return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

/* A token's place in the walk: descending logit, ascending id. Larger comes first; no two are equal. */
static __device__ __forceinline__ uint64_t place_of(float x, int64_t id)
{
    return (uint64_t)order_of(x) << 32 | (uint32_t) ~(uint32_t)id;
}

static __device__ __forceinline__ int32_t id_of(uint64_t place)
{
    return (int32_t) ~(uint32_t)place;
}

/* ---- greedy ---- */

/* Block (part, row) finds the first place of its part of the row. 16-byte loads do not help: bound by reading 4 * vocab
 * bytes per row, with 256 threads and 32 blocks a row. */
static __global__ void __launch_bounds__(256) greedy_parts(const float *logits, int64_t vocab, uint64_t *best)
{
    __shared__ uint64_t scratch[8];
    const float *row = logits + (int64_t)blockIdx.y * vocab;
    begin_overlapped();
    uint64_t first = 0; /* before every token's place, as order_of() is never 0 */
    for (int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x; i < vocab; i += GREEDY_BLOCKS * 256) {
        uint64_t place = place_of(row[i], i);
        first = place > first ? place : first;
    }
    first = warp_max_u64(first);
    if ((threadIdx.x & 31) == 0) {
        scratch[threadIdx.x >> 5] = first;
    }
    __syncthreads();
    if (threadIdx.x < 32) {
        first = warp_max_u64(threadIdx.x < 8 ? scratch[threadIdx.x] : 0);
        if (threadIdx.x == 0) {
            best[(int64_t)blockIdx.y * GREEDY_BLOCKS + blockIdx.x] = first;
        }
    }
}

/* One warp per row joins the parts. */
static __global__ void __launch_bounds__(32) greedy_join(const uint64_t *best, int32_t *tokens)
{
    int64_t row = blockIdx.x;
    begin_overlapped();
    uint64_t first = warp_max_u64(best[row * GREEDY_BLOCKS + threadIdx.x]);
    if (threadIdx.x == 0) {
        tokens[row] = id_of(first);
    }
}

/* ---- selection ---- */

typedef struct prefix {
    uint64_t count, mass; /* of tokens, from the first of the walk on */
} prefix;

/* When a walk stops: at a count, or at a mass reached (or exceeded, if strict). */
typedef struct goal {
    bool by_count, strict;
    uint64_t count;
    double mass;
} goal;

static __device__ __forceinline__ bool is_reached(const goal &g, const prefix &p)
{
    return g.by_count ? p.count >= g.count : g.strict ? (double)p.mass > g.mass : (double)p.mass >= g.mass;
}

/* Shared memory of a block: 88 KB. */
typedef struct sample_shared {
    uint64_t place[SAMPLE_GATHERED];
    uint64_t mass[SAMPLE_BINS], finer_mass[SAMPLE_BINS];
    uint32_t count[SAMPLE_BINS], finer_count[SAMPLE_BINS];
    prefix warps[32];
    uint64_t scratch[32];
    prefix before; /* what select_bin found */
    uint32_t bin, members, found;
} sample_shared;

/* A row under selection. */
typedef struct sample_row {
    const float *logits; /* divided by the temperature, without NaN */
    int64_t vocab;
    float largest;
    float unit; /* weights are multiples of 1 / unit */
} sample_row;

/* The weight of a logit in the fixed scale. */
static __device__ __forceinline__ uint64_t weight_of(const sample_row &r, float x)
{
    /* Equal before the difference, which is NaN between infinities. */
    float w = x == r.largest ? 1.0f : expf(x - r.largest);
    return (uint64_t)(w * r.unit);
}

/* 64 bins to a factor of e; the last holds all that is further away. Never decreases as x falls. */
static __device__ __forceinline__ uint32_t bin_of(const sample_row &r, float x)
{
    float distance = x == r.largest ? 0.0f : (r.largest - x) * 64.0f;
    return distance < (float)(SAMPLE_BINS - 1) ? (uint32_t)distance : SAMPLE_BINS - 1;
}

/* Adds a token to its bin; all lanes of a warp call it, also those without a token. Atomics on one bin go one after
 * another, and with flat logits nearly all tokens are in one bin. So where the bins were crowded when the warp last
 * looked, lanes that share the bin of the first are added up before, in two rounds: integers, so that the order changes
 * nothing. */
static __device__ __forceinline__ void add_to_bin(uint32_t *counts, uint64_t *masses, bool is_token, uint32_t bin,
                                                  uint64_t weight, bool crowded)
{
    if (crowded) {
        const uint32_t all = 0xffffffffu, low_bits = 21; /* weights have at most 42, and 32 of them are added up */
        const uint32_t lane = threadIdx.x & 31;
        uint32_t left = __ballot_sync(all, is_token);
        for (int round = 0; round < 2 && left != 0; round++) {
            const int leader = __ffs((int)left) - 1;
            const uint32_t theirs = __shfl_sync(all, bin, leader);
            const uint32_t same = __ballot_sync(all, is_token && bin == theirs);
            const bool added = (same >> lane & 1) != 0;
            const uint32_t low = __reduce_add_sync(all, added ? (uint32_t)weight & ((1u << low_bits) - 1) : 0);
            const uint32_t high = __reduce_add_sync(all, added ? (uint32_t)(weight >> low_bits) : 0);
            if ((int)lane == leader) {
                atomicAdd(&counts[bin], (uint32_t)__popc(same));
                atomicAdd((unsigned long long *)&masses[bin], ((unsigned long long)high << low_bits) + low);
            }
            is_token = is_token && !added;
            left &= ~same;
        }
    }
    if (is_token) {
        atomicAdd(&counts[bin], 1u);
        if (weight > 0) {
            atomicAdd((unsigned long long *)&masses[bin], (unsigned long long)weight);
        }
    }
}

/* Whether many lanes of the warp have a token in the bin of its first lane. */
static __device__ __forceinline__ bool is_crowded(bool is_token, uint32_t bin)
{
    const uint32_t theirs = __shfl_sync(0xffffffffu, bin, 0);
    return __popc(__ballot_sync(0xffffffffu, is_token && bin == theirs)) >= 6;
}
#define LOOKS 16 /* tokens of a lane between two looks */

/* Exclusive sums over the threads of the block, in thread order. */
static __device__ prefix block_scan(prefix own, sample_shared *s)
{
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    prefix sum = own;
    for (int offset = 1; offset < 32; offset *= 2) {
        uint64_t count = __shfl_up_sync(0xffffffffu, (unsigned long long)sum.count, offset);
        uint64_t mass = __shfl_up_sync(0xffffffffu, (unsigned long long)sum.mass, offset);
        if (lane >= offset) {
            sum.count += count;
            sum.mass += mass;
        }
    }
    if (lane == 31) {
        s->warps[warp] = sum;
    }
    __syncthreads();
    prefix earlier = {0, 0};
    for (int w = 0; w < warp; w++) {
        earlier.count += s->warps[w].count;
        earlier.mass += s->warps[w].mass;
    }
    __syncthreads();
    sum.count += earlier.count - own.count;
    sum.mass += earlier.mass - own.mass;
    return sum;
}

/* The bin in which the goal is reached, counting from `start`, and what lies before it: into s->bin, s->members,
 * s->before. If rounding keeps the goal out of reach it is the last bin that has tokens. */
static __device__ void select_bin(sample_shared *s, const uint32_t *counts, const uint64_t *masses, const goal &g,
                                  prefix start)
{
    int first = (int)threadIdx.x * 2;
    prefix own = {(uint64_t)counts[first] + counts[first + 1], masses[first] + masses[first + 1]};
    if (threadIdx.x == 0) {
        s->found = 0;
    }
    prefix sum = block_scan(own, s); /* its barriers order s->found, too */
    sum.count += start.count;
    sum.mass += start.mass;
    for (int i = first; i < first + 2; i++) {
        prefix next = {sum.count + counts[i], sum.mass + masses[i]};
        if (counts[i] > 0 && !is_reached(g, sum) && is_reached(g, next)) {
            s->bin = (uint32_t)i; /* one bin of all: sums never decrease */
            s->members = counts[i];
            s->before = sum;
            s->found = 1;
        }
        sum = next;
    }
    __syncthreads();
    bool missed = s->found == 0;
    if (missed) { /* the same for all threads */
        uint64_t last = block_max_u64(counts[first + 1] > 0 ? (uint64_t)first + 2
                                      : counts[first] > 0   ? (uint64_t)first + 1
                                                            : 0,
                                      s->scratch);
        prefix back = sum; /* after this thread's second bin */
        for (int i = first + 1; i >= first; i--) {
            back.count -= counts[i];
            back.mass -= masses[i];
            if (last == (uint64_t)i + 1) {
                s->bin = (uint32_t)i;
                s->members = counts[i];
                s->before = back;
            }
        }
    }
    __syncthreads();
}

/* Which tokens count: those of one bin whose order lies in low .. high. */
typedef struct membership {
    uint32_t bin, low, high;
} membership;

static __device__ __forceinline__ bool is_member(const sample_row &r, const membership &m, float x)
{
    uint32_t order = order_of(x);
    return bin_of(r, x) == m.bin && order >= m.low && order <= m.high;
}

/* Descending, in place; the places past `count` are filled with 0, which comes last. */
static __device__ void sort_places(uint64_t *place, uint32_t count)
{
    uint32_t size = 2;
    while (size < count) {
        size *= 2;
    }
    for (uint32_t i = count + threadIdx.x; i < size; i += SAMPLE_THREADS) {
        place[i] = 0;
    }
    __syncthreads();
    for (uint32_t run = 2; run <= size; run *= 2) { /* bitonic: Batcher 1968 */
        for (uint32_t step = run / 2; step > 0; step /= 2) {
            for (uint32_t i = threadIdx.x; i < size / 2; i += SAMPLE_THREADS) {
                uint32_t a = i / step * step * 2 + i % step, b = a + step;
                uint64_t x = place[a], y = place[b];
                bool descending = (a & run) == 0;
                if ((x < y) == descending) {
                    place[a] = y;
                    place[b] = x;
                }
            }
            __syncthreads();
        }
    }
}

/* Token number `rank` (from 0, by ascending id) of the members, all of one logit. */
static __device__ int32_t pick_equal(const sample_row &r, const membership &m, uint64_t rank, sample_shared *s)
{
    uint64_t passed = 0;
    for (int64_t base = 0; base < r.vocab; base += SAMPLE_THREADS) {
        int64_t i = base + threadIdx.x;
        prefix own = {i < r.vocab && is_member(r, m, r.logits[i]) ? 1u : 0u, 0};
        prefix sum = block_scan(own, s);
        if (own.count != 0 && passed + sum.count == rank) {
            s->found = (uint32_t)i;
        }
        if (threadIdx.x == SAMPLE_THREADS - 1) {
            s->scratch[0] = sum.count + own.count;
        }
        __syncthreads();
        passed += s->scratch[0];
        __syncthreads();
        if (passed > rank) {
            break;
        }
    }
    return (int32_t)s->found;
}

typedef struct selected {
    int32_t token; /* the last of the prefix */
    prefix upto;   /* the prefix, the token included */
} selected;

/* Members are all of one logit: how many of them the goal takes, by bisection. */
static __device__ selected select_equal(const sample_row &r, const membership &m, const goal &g, sample_shared *s)
{
    uint64_t members = s->members;
    prefix before = s->before;
    uint32_t order = m.low;
    float x = __uint_as_float((order & 0x80000000u) != 0 ? order & 0x7fffffffu : ~order);
    uint64_t weight = weight_of(r, x), low = 1, high = members;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        prefix p = {before.count + middle, before.mass + middle * weight};
        if (is_reached(g, p)) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    __syncthreads(); /* before s->found is used anew */
    selected result;
    result.token = pick_equal(r, m, low - 1, s);
    result.upto.count = before.count + low;
    result.upto.mass = before.mass + low * weight;
    __syncthreads();
    return result;
}

/* Gathers the members, sorts them, and walks them to the goal. */
static __device__ selected select_sorted(const sample_row &r, const membership &m, const goal &g, sample_shared *s)
{
    uint32_t members = s->members;
    prefix before = s->before;
    __syncthreads();
    if (threadIdx.x == 0) {
        s->found = 0;
    }
    __syncthreads();
    for (int64_t i = threadIdx.x; i < r.vocab; i += SAMPLE_THREADS) {
        float x = r.logits[i];
        if (is_member(r, m, x)) {
            s->place[atomicAdd(&s->found, 1u)] = place_of(x, i); /* in any order: they are sorted next */
        }
    }
    __syncthreads();
    sort_places(s->place, members);
    const int each = SAMPLE_GATHERED / SAMPLE_THREADS;
    uint32_t first = threadIdx.x * each;
    uint64_t weights[SAMPLE_GATHERED / SAMPLE_THREADS];
    prefix own = {0, 0};
#pragma unroll
    for (int i = 0; i < each; i++) {
        weights[i] = first + i < members ? weight_of(r, r.logits[id_of(s->place[first + i])]) : 0;
        own.count += first + i < members ? 1 : 0;
        own.mass += weights[i];
    }
    prefix sum = block_scan(own, s);
    sum.count += before.count;
    sum.mass += before.mass;
#pragma unroll
    for (int i = 0; i < each; i++) {
        if (first + i < members) {
            prefix next = {sum.count + 1, sum.mass + weights[i]};
            /* The first to reach the goal, or the last there is. */
            if (!is_reached(g, sum) && (is_reached(g, next) || first + i == members - 1)) {
                s->found = (uint32_t)id_of(s->place[first + i]);
                s->before = next;
            }
            sum = next;
        }
    }
    __syncthreads();
    selected result = {(int32_t)s->found, s->before};
    __syncthreads();
    return result;
}

/* Divides the members' orders into bins, the highest first, and leaves the one in which the goal is reached as the
 * members. */
static __device__ void refine(const sample_row &r, membership *m, const goal &g, sample_shared *s)
{
    prefix before = s->before;
    uint64_t range = (uint64_t)m->high - m->low + 1;
    for (int i = threadIdx.x; i < SAMPLE_BINS; i += SAMPLE_THREADS) {
        s->finer_count[i] = 0;
        s->finer_mass[i] = 0;
    }
    __syncthreads();
    bool crowded = false;
    for (int64_t base = 0; base < r.vocab; base += SAMPLE_THREADS) {
        const int64_t i = base + threadIdx.x;
        const float x = i < r.vocab ? r.logits[i] : 0.0f;
        const bool counts = i < r.vocab && is_member(r, *m, x);
        const uint64_t at = counts ? (uint64_t)(order_of(x) - m->low) * SAMPLE_BINS / range : 0;
        const uint32_t bin = SAMPLE_BINS - 1 - (uint32_t)at;
        crowded = base % (LOOKS * SAMPLE_THREADS) == 0 ? is_crowded(counts, bin) : crowded;
        add_to_bin(s->finer_count, s->finer_mass, counts, bin, counts ? weight_of(r, x) : 0, crowded);
    }
    __syncthreads();
    select_bin(s, s->finer_count, s->finer_mass, g, before);
    uint64_t part = SAMPLE_BINS - 1 - s->bin; /* orders with floor((order - low) * bins / range) == part */
    uint32_t low = m->low + (uint32_t)((part * range + SAMPLE_BINS - 1) / SAMPLE_BINS);
    uint32_t high = m->low + (uint32_t)(((part + 1) * range + SAMPLE_BINS - 1) / SAMPLE_BINS) - 1;
    m->low = low;
    m->high = high;
}

/* Smallest and largest order among the members. */
static __device__ void tighten(const sample_row &r, membership *m, sample_shared *s)
{
    uint32_t low = UINT32_MAX, high = 0;
    for (int64_t i = threadIdx.x; i < r.vocab; i += SAMPLE_THREADS) {
        float x = r.logits[i];
        if (is_member(r, *m, x)) {
            uint32_t order = order_of(x);
            low = order < low ? order : low;
            high = order > high ? order : high;
        }
    }
    m->high = (uint32_t)block_max_u64(high, s->scratch);
    m->low = ~(uint32_t)block_max_u64((uint32_t)~low, s->scratch);
}

/* The shortest prefix of the walk that reaches the goal. s->count and s->mass hold the row's bins. */
static __device__ selected select_prefix(const sample_row &r, const goal &g, sample_shared *s)
{
    prefix nothing = {0, 0};
    select_bin(s, s->count, s->mass, g, nothing);
    membership m = {s->bin, 0, UINT32_MAX};
    while (s->members > SAMPLE_GATHERED) { /* flat rows and ties; each turn divides the range by 2048 */
        tighten(r, &m, s);
        if (m.low == m.high) {
            return select_equal(r, m, g, s);
        }
        refine(r, &m, g, s);
    }
    return select_sorted(r, m, g, s);
}

/* ---- sampling ---- */

/* NaN, temperature: in place. Returns the first place of the walk. */
static __device__ uint64_t prepare(float *logits, int64_t vocab, const trm_sample_row &p, sample_shared *s)
{
    uint64_t first = 0;
    for (int64_t i = threadIdx.x; i < vocab; i += SAMPLE_THREADS) {
        float x = logits[i];
        if (p.temperature > 0.0f) {
            x = x == x ? x / p.temperature : -INFINITY;
            logits[i] = x;
        }
        uint64_t place = place_of(x, i);
        first = place > first ? place : first;
    }
    return block_max_u64(first, s->scratch); /* a barrier for the logits, too */
}

/* Tokens by bin, and their mass in all. */
static __device__ uint64_t fill_bins(const sample_row &r, sample_shared *s)
{
    for (int i = threadIdx.x; i < SAMPLE_BINS; i += SAMPLE_THREADS) {
        s->count[i] = 0;
        s->mass[i] = 0;
    }
    __syncthreads();
    bool crowded = false;
    for (int64_t base = 0; base < r.vocab; base += SAMPLE_THREADS) {
        const int64_t i = base + threadIdx.x;
        const bool is_token = i < r.vocab;
        const float x = is_token ? r.logits[i] : r.largest;
        const uint32_t bin = bin_of(r, x);
        crowded = base % (LOOKS * SAMPLE_THREADS) == 0 ? is_crowded(is_token, bin) : crowded;
        add_to_bin(s->count, s->mass, is_token, bin, weight_of(r, x), crowded);
    }
    __syncthreads();
    prefix own = {0, s->mass[2 * threadIdx.x] + s->mass[2 * threadIdx.x + 1]};
    prefix sum = block_scan(own, s);
    if (threadIdx.x == SAMPLE_THREADS - 1) {
        s->scratch[0] = sum.mass + own.mass;
    }
    __syncthreads();
    uint64_t all = s->scratch[0];
    __syncthreads();
    return all;
}

/* Tokens with a weight of at least min_p. */
static __device__ prefix probable_enough(const sample_row &r, float min_p, sample_shared *s)
{
    prefix own = {0, 0};
    for (int64_t i = threadIdx.x; i < r.vocab; i += SAMPLE_THREADS) {
        float x = r.logits[i];
        float w = x == r.largest ? 1.0f : expf(x - r.largest);
        if (w >= min_p) {
            own.count++;
            own.mass += weight_of(r, x);
        }
    }
    prefix sum = block_scan(own, s);
    if (threadIdx.x == SAMPLE_THREADS - 1) {
        s->before.count = sum.count + own.count;
        s->before.mass = sum.mass + own.mass;
    }
    __syncthreads();
    prefix all = s->before;
    __syncthreads();
    return all;
}

/* Mass of what remains after top-k, top-p and min-p. */
static __device__ uint64_t remaining_mass(const sample_row &r, const trm_sample_row &p, sample_shared *s)
{
    prefix remains = {(uint64_t)r.vocab, fill_bins(r, s)};
    if (p.top_k > 0 && p.top_k < r.vocab) {
        goal g = {true, false, (uint64_t)p.top_k, 0.0};
        remains = select_prefix(r, g, s).upto;
    }
    if (p.top_p < 1.0f) {
        goal g = {false, false, 0, (double)p.top_p * (double)remains.mass};
        prefix upto = {1, (uint64_t)r.unit}; /* at least one: a prefix of nothing reaches a goal of 0 */
        if (!is_reached(g, upto)) {
            upto = select_prefix(r, g, s).upto;
        }
        remains = upto.count < remains.count ? upto : remains;
    }
    if (p.min_p > 0.0f) {
        prefix probable = probable_enough(r, p.min_p, s);
        if (probable.count == 0) { /* min_p above 1 */
            probable.count = 1;
            probable.mass = (uint64_t)r.unit;
        }
        remains = probable.count < remains.count ? probable : remains;
    }
    return remains.mass;
}

/* A logit's distance from the typical one, as a number of the same order. */
static __device__ __forceinline__ uint32_t distance_of(const sample_row &r, float x, float typical)
{
    return __float_as_uint(fabsf(x - r.largest - typical)); /* not negative: its bits are ordered as it is */
}

/* Mass of the tokens that are no further away than `most`. */
static __device__ uint64_t typical_mass(const sample_row &r, float typical, uint32_t most, sample_shared *s)
{
    prefix own = {0, 0};
    for (int64_t i = threadIdx.x; i < r.vocab; i += SAMPLE_THREADS) {
        float x = r.logits[i];
        if (distance_of(r, x, typical) <= most) {
            own.mass += weight_of(r, x);
        }
    }
    prefix sum = block_scan(own, s);
    if (threadIdx.x == SAMPLE_THREADS - 1) {
        s->scratch[0] = sum.mass + own.mass;
    }
    __syncthreads();
    uint64_t all = s->scratch[0];
    __syncthreads();
    return all;
}

/* Leaves the typical tokens; the others get -inf. The distance up to which tokens stay is found bit by bit: 32 passes
 * over the row. Returns the first place of the walk. */
static __device__ uint64_t keep_typical(float *logits, const sample_row &r, float typical_p, sample_shared *s)
{
    double mass = 0.0, sum = 0.0;
    for (int64_t i = threadIdx.x; i < r.vocab; i += SAMPLE_THREADS) {
        float x = logits[i] - r.largest, w = expf(x);
        mass += (double)w;
        sum += w > 0.0f ? (double)w * (double)x : 0.0;
    }
    double *scratch = (double *)s->scratch;
    mass = block_sum_f64(mass, scratch);
    float typical = (float)(block_sum_f64(sum, scratch) / mass);
    const uint32_t infinity = 0x7f800000u;
    double enough = (double)typical_p * (double)typical_mass(r, typical, infinity, s);
    uint32_t low = 0, high = infinity;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if ((double)typical_mass(r, typical, middle, s) >= enough) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    uint64_t first = 0;
    for (int64_t i = threadIdx.x; i < r.vocab; i += SAMPLE_THREADS) {
        float x = logits[i];
        if (distance_of(r, x, typical) > low) {
            x = -INFINITY;
            logits[i] = x;
        }
        uint64_t place = place_of(x, i);
        first = place > first ? place : first;
    }
    return block_max_u64(first, s->scratch);
}

/* One row per block. Passes over the row: one to prepare, one for the bins, one or two for each of top-k, top-p, min-p
 * and the draw; all but the first from L2. Bound by those reads of one multiprocessor and by shared-memory atomics. */
static __global__ void __launch_bounds__(SAMPLE_THREADS) sample_rows(trm_sample_args args, float unit)
{
    extern __shared__ __align__(16) unsigned char shared[];
    sample_shared *s = (sample_shared *)shared;
    int64_t row = blockIdx.x;
    begin_overlapped();
    float *logits = args.logits + row * args.vocab;
    trm_sample_row p = args.parameters[row];
    uint64_t first = prepare(logits, args.vocab, p, s);
    int32_t token = id_of(first);
    if (p.temperature > 0.0f) {
        sample_row r = {logits, args.vocab, logits[token], unit};
        if (p.typical_p < 1.0f && isfinite(r.largest)) {
            token = id_of(keep_typical(logits, r, p.typical_p, s));
            r.largest = logits[token];
        }
        uint64_t mass = remaining_mass(r, p, s);
        goal g = {false, true, 0, trm_random_uniform(p.seed, p.counter) * (double)mass};
        token = select_prefix(r, g, s).token;
    }
    if (threadIdx.x == 0) {
        args.tokens[row] = token;
    }
}

size_t trm_cuda_sample_workspace(const trm_stream *stream, int64_t rows, int64_t vocab)
{
    (void)stream;
    (void)vocab;
    return (size_t)rows * GREEDY_BLOCKS * sizeof(uint64_t);
}

trm_status trm_cuda_sample(trm_stream *stream, const trm_sample_args *args)
{
    cudaStream_t handle = trm_cuda_stream(stream);
    if (args->greedy_only) {
        uint64_t *best = (uint64_t *)args->workspace;
        for (int64_t row = 0; row < args->rows; row += 32768) {
            int64_t rows = args->rows - row < 32768 ? args->rows - row : 32768;
            launch_overlapped(greedy_parts, dim3(GREEDY_BLOCKS, (unsigned)rows), 256, 0, handle,
                              args->logits + row * args->vocab, args->vocab, best + row * GREEDY_BLOCKS);
            launch_overlapped(greedy_join, (unsigned)rows, 32, 0, handle, best + row * GREEDY_BLOCKS,
                              args->tokens + row);
        }
        return trm_cuda_launched("cuda.sample greedy");
    }
    /* The largest scale at which the weights of a whole vocabulary, 1 each, still add up in 64 bits. */
    int bits = 42;
    while (bits > 20 && args->vocab > (int64_t)1 << (63 - bits)) {
        bits--;
    }
    float unit = (float)((uint64_t)1 << bits);
    TRM_CUDA_TRY(
        cudaFuncSetAttribute(sample_rows, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)sizeof(sample_shared)));
    launch_overlapped(sample_rows, (unsigned)args->rows, SAMPLE_THREADS, sizeof(sample_shared), handle, *args, unit);
    return trm_cuda_launched("cuda.sample");
}

/* A thread per sequence: some bytes. Kernels behind it read them ahead of their wait, as they do a run's inputs; so it
 * does not let the next one start, which then starts when all its blocks have ended, and a fence is behind its writes.
 */
static __global__ void advance_rows(trm_sample_advance_args args)
{
    const int64_t i = global_thread();
    wait_for_previous();
    if (i >= args.rows || args.lengths[i] <= 0) {
        return;
    }
    args.token_ids[i] = args.chosen[i];
    args.positions[i]++;
    args.lengths[i]++;
    if (args.rope_lengths != NULL) {
        args.rope_lengths[i] = args.lengths[i];
    }
    if (args.parameters != NULL) {
        args.parameters[i].counter++;
    }
    __threadfence();
}

trm_status trm_cuda_sample_advance(trm_stream *stream, const trm_sample_advance_args *args)
{
    launch_overlapped(advance_rows, (unsigned)((args->rows + 127) / 128), 128, 0, trm_cuda_stream(stream), *args);
    return trm_cuda_launched("cuda.sample advance");
}
