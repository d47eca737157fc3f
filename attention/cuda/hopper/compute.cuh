/* The computing warp groups of hopper.cuh: scores, their softmax, weighted sums of values, and what is stored. */
#ifndef TRM_ATTENTION_CUDA_HOPPER_COMPUTE_CUH
#define TRM_ATTENTION_CUDA_HOPPER_COMPUTE_CUH

#include "attention/cuda/hopper/shape.cuh"
#include "attention/cuda/rows.cuh"

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

/* out [64, VP] += weights v of a warp group. */
template <typename T, typename S>
static __device__ __forceinline__ void multiply_values(float (&out)[S::VP / 2], const uint32_t (&weights)[S::KEYS / 4],
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

/* factor: from the rows' maxima to log2 units. */
template <typename T, typename S>
static __device__ __forceinline__ void store_tile(const hopper_call &c, const hopper_tile &t,
                                                  const float (&out)[S::VP / 2], const hopper_rows &rows, float factor,
                                                  int row, int lane)
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float total = rows.part[r] + __shfl_xor_sync(0xffffffffu, rows.part[r], 1);
        total += __shfl_xor_sync(0xffffffffu, total, 2);
        int32_t in_tile = row + 8 * r, query = t.start + in_tile / c.pack, head = t.head + in_tile % c.pack;
        total = with_sink(c.a, head, rows.largest[r] * factor, total);
        float scale = total == 0.0f ? 0.0f : __fdividef(c.a.value_scale, total); /* no key seen: zeros */
        const int64_t vector = (int64_t)(t.first + query) * c.a.query_heads + head;
        T *to = (T *)c.a.out + vector * c.a.value_dim;
        if (c.a.logs != NULL && query < t.queries && lane % 4 == 0) {
            c.a.logs[vector] = rows.largest[r] * factor + log2f(total);
        }
#pragma unroll
        for (int j = 0; j < S::VP / 32; j++) {
            const float *from = &out[16 * j + 2 * r];
            uint4 eight = exchange_columns(
                pack2(from[0] * scale, from[1] * scale, T()), pack2(from[4] * scale, from[5] * scale, T()),
                pack2(from[8] * scale, from[9] * scale, T()), pack2(from[12] * scale, from[13] * scale, T()), lane);
            int column = 32 * j + lane % 4 * 8;
            if (query < t.queries && column < c.a.value_dim) {
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
        hopper_tile t = take_tile<S>(shared, slots, turn, lane);
        if (t.first < 0) {
            return;
        }
        hopper_rows rows;
        float out[S::VP / 2], scores[S::KEYS / 2], shrink[2];
        uint32_t weights[S::KEYS / 4];
        const int32_t keys = a.share.ranks > 1 ? a.lengths[t.sequence] : t.keys; /* also those that are not held */
#pragma unroll
        for (int r = 0; r < 2; r++) {
            rows.largest[r] = -INFINITY;
            rows.part[r] = 0.0f;
            rows.ranges[r] = seen_places(a, t.start + (row + 8 * r) / c.pack, t.queries, keys);
        }
        /* What every row of this warp group sees needs no mask. */
        trm_key_range first = seen_places(a, t.start + group * (64 / c.pack), t.queries, keys);
        trm_key_range last = seen_places(a, t.start + (group + 1) * (64 / c.pack) - 1, t.queries, keys);
        int32_t inside_low = last.low, inside_high = first.high < t.keys ? first.high : t.keys;
#pragma unroll
        for (int i = 0; i < S::VP / 2; i++) {
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
                multiply_values<T, S>(out, weights, shared.v + v_stage() * S::VALUE_BYTES);
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
                for (int j = 0; j < S::VP / 8; j++) {
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
            multiply_values<T, S>(out, weights, shared.v + v_stage() * S::VALUE_BYTES);
            wgmma_commit();
            give_turn<S, PINGPONG>(group);
            wgmma_wait<0>();
            wgmma_pin(out);
            if (lane == 0) {
                barrier_arrive(shared.v_empty(v_stage()));
            }
            v_count++;
        }
        store_tile<T, S>(c, t, out, rows, factor, row, lane);
    }
}

#endif
