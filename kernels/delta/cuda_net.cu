/*
 * DELTA_NET for heads of 128 keys and 128 values, as Qwen3-Next and Qwen3.5 have: three launches behind the joined
 * product. The first makes of each token what the recurrence takes: q and k convolved and of length 1, v convolved,
 * decay and strength. The second goes token by token with the heads' matrices in registers. The third is the norm of
 * heads and the gate. Each token's results have the same bits however a step is cut.
 *
 * Where that need not be and prompts may be among the sequences of 16-bit floats, their tokens go by chunks
 * (cuda_chunk.cu): the second launch has what these leave.
 */
#include "kernels/cuda/common.cuh"
#include "kernels/cuda/mma.cuh"
#include "kernels/delta/cuda_net.cuh"
#include "kernels/kernel_list.h"
#include "kernels/program.h"

#define THREADS 128
#define WARPS   (THREADS / 32)
#define COLUMNS 32 /* of a block of the recurrence; 8 of a warp */
#define TOKENS  8  /* of it in shared memory at a time, twice */
/* Four elements as in memory, aligned for as many, and as f32. */
template <typename T> struct raw4 {
    typedef uint2 type;
};
template <> struct raw4<float> {
    typedef float4 type;
};
template <typename T> static __device__ __forceinline__ typename raw4<T>::type load_raw(const T *from)
{
    return *(const typename raw4<T>::type *)from;
}
static __device__ __forceinline__ void unpack4(const float4 &raw, float (&to)[4], float)
{
    to[0] = raw.x;
    to[1] = raw.y;
    to[2] = raw.z;
    to[3] = raw.w;
}
template <typename T> static __device__ __forceinline__ void unpack4(const uint2 &raw, float (&to)[4], T)
{
    unpack2(raw.x, to, T());
    unpack2(raw.y, to + 2, T());
}
template <typename T> static __device__ __forceinline__ void load4(const T *from, float (&to)[4])
{
    unpack4(load_raw(from), to, T());
}
static __device__ __forceinline__ void store4(float *to, const float (&from)[4])
{
    *(float4 *)to = make_float4(from[0], from[1], from[2], from[3]);
}
template <typename T> static __device__ __forceinline__ void store4(T *to, const float (&from)[4])
{
    *(uint2 *)to = make_uint2(pack2(from[0], from[1], T()), pack2(from[2], from[3], T()));
}

/* ---- tokens -------------------------------------------------------------------------------------- */

/* The tokens of a step that a warp convolves, all of one sequence. */
typedef struct token_run {
    int64_t start, first, end, count, old; /* start: of the sequence in the step; first and end count from there */
    int64_t chunked;                       /* tokens before this one go by chunks */
    int64_t read, written;                 /* slots */
} token_run;

/* Four channels of one of q, k and v: their weights, and the inputs that came before. */
template <typename T> struct channel_window {
    float weight[TAPS][4], input[TAPS][4];
    const T *x;                  /* of the step's first token of the sequence */
    const T *read;               /* the cache, in the slot that is read */
    T *written;                  /* and in the one that is written */
    int64_t width, step;         /* between rows of x and of the cache */
    typename raw4<T>::type next; /* the input of the next token */
};

/* Those of four channels, side by side in memory. */
template <typename T>
static __device__ __forceinline__ void load_weights(const T *from, int64_t channel, int taps, float (&to)[TAPS][4])
{
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float w[4];
        if (taps == TAPS) {
            load4(from + (channel + i) * TAPS, w);
        }
#pragma unroll
        for (int j = 0; j < TAPS; j++) {
            const int tap = j - (TAPS - taps);
            to[j][i] = taps == TAPS ? w[j] : tap >= 0 ? to_float(from[(channel + i) * taps + tap]) : 0.0f;
        }
    }
}

template <typename T>
static __device__ __forceinline__ void open_window(const trm_delta_net &a, const token_run &r, int which,
                                                   int64_t channels, int64_t column, int64_t channel,
                                                   channel_window<T> *w)
{
    w->x = (const T *)a.x + r.start * a.x_width + column + channel;
    w->read = (const T *)a.caches[which] + r.read * a.cache_places * channels + channel;
    w->written = (T *)a.caches[which] + r.written * a.cache_places * channels + channel;
    w->width = a.x_width;
    w->step = channels;
    load_weights((const T *)a.weights[which], channel, a.taps, w->weight);
#pragma unroll
    for (int j = 0; j < TAPS; j++) {
        const int tap = j - (TAPS - a.taps);
        const int64_t token = r.first - (TAPS - 1 - j);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            w->input[j][i] = 0.0f;
        }
        if (j < TAPS - 1 && tap >= 0 && token >= 0) {
            load4(w->x + token * w->width, w->input[j]);
        } else if (j < TAPS - 1 && tap >= 0 && r.old + token >= 0) {
            load4(w->read + (r.old + token) % a.cache_places * w->step, w->input[j]);
        }
    }
    w->next = load_raw(w->x + r.first * w->width);
}

/* The next token, rounded to T as by a layer of its own. The one behind it, if there is one, is asked for before. */
template <typename T>
static __device__ __forceinline__ void convolve_token(const trm_delta_net &a, channel_window<T> *w, int64_t token,
                                                      int64_t end, float (&y)[4])
{
    unpack4(w->next, w->input[TAPS - 1], T());
    if (token + 1 < end) {
        w->next = load_raw(w->x + (token + 1) * w->width);
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        y[i] = 0.0f;
#pragma unroll
        for (int j = 0; j < TAPS; j++) {
            y[i] += w->weight[j][i] * w->input[j][i];
        }
#pragma unroll
        for (int j = 0; j < TAPS - 1; j++) {
            w->input[j][i] = w->input[j + 1][i];
        }
    }
    if (a.activation == TRM_ACTIVATION_SILU) { /* asked once, not by element */
#pragma unroll
        for (int i = 0; i < 4; i++) {
            y[i] = activate_as<T>(TRM_ACTIVATION_SILU, y[i]);
        }
    } else {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            y[i] = activate_as<T>(a.activation, y[i]);
        }
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        y[i] = to_float(from_float<T>(y[i]));
    }
}

/* The sequence's last inputs, by the warp that has the step's first: it alone has read the cache. */
template <typename T>
static __device__ __forceinline__ void store_inputs(const trm_delta_net &a, const token_run &r,
                                                    const channel_window<T> &w)
{
    const int64_t length = r.old + r.count;
    for (int64_t position = length < a.cache_places ? 0 : length - a.cache_places; position < length; position++) {
        float x[4];
        if (position >= r.old) {
            load4(w.x + (position - r.old) * w.width, x);
        } else if (r.read != r.written) {
            load4(w.read + position % a.cache_places * w.step, x);
        } else {
            continue;
        }
        store4(w.written + position % a.cache_places * w.step, x);
    }
}

/* A warp: a key head of a run of tokens. */
template <typename T> static __device__ void prepare_keys(const trm_delta_net &a, const token_run &r, int head)
{
    const int64_t channels = (int64_t)a.key_heads * DIM, channel = (int64_t)head * DIM + (threadIdx.x & 31) * 4;
    channel_window<T> q, k;
    open_window(a, r, 0, channels, 0, channel, &q);
    open_window(a, r, 1, channels, channels, channel, &k);
    for (int64_t token = r.first; token < r.end; token++) {
        float y[4], u[4], qq = 0.0f, kk = 0.0f, qk = 0.0f;
        convolve_token(a, &q, token, r.end, y);
        convolve_token(a, &k, token, r.end, u);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            qq += y[i] * y[i];
            kk += u[i] * u[i];
            qk += y[i] * u[i];
        }
        for (int offset = 16; offset > 0; offset /= 2) {
            qq += __shfl_xor_sync(0xffffffffu, qq, offset);
            kk += __shfl_xor_sync(0xffffffffu, kk, offset);
            qk += __shfl_xor_sync(0xffffffffu, qk, offset);
        }
        const float of_q = 1.0f / sqrtf((float)DIM) * rsqrtf(qq + a.eps), of_k = rsqrtf(kk + a.eps);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            y[i] *= of_q;
            u[i] *= of_k;
        }
        const int64_t at = (r.start + token) * a.key_heads + head;
        if (token < r.chunked) {
            store4((T *)(a.unit_q + at * DIM) + (threadIdx.x & 31) * 4, y);
            store4((T *)(a.unit_k + at * DIM) + (threadIdx.x & 31) * 4, u);
            continue;
        }
        store4(a.unit_q + at * DIM + (threadIdx.x & 31) * 4, y);
        store4(a.unit_k + at * DIM + (threadIdx.x & 31) * 4, u);
        if ((threadIdx.x & 31) == 0) {
            a.qk[at] = qk * of_q * of_k;
        }
    }
    if (r.first == 0) {
        store_inputs(a, r, q);
        store_inputs(a, r, k);
    }
}

/* A warp: a value head of a run of tokens. */
template <typename T> static __device__ void prepare_values(const trm_delta_net &a, const token_run &r, int head)
{
    const int64_t channels = (int64_t)a.heads * DIM, channel = (int64_t)head * DIM + (threadIdx.x & 31) * 4;
    const float a_log = a.a_log[head], a_bias = a.a_bias[head];
    channel_window<T> v;
    open_window(a, r, 2, channels, 2 * (int64_t)a.key_heads * DIM, channel, &v);
    for (int64_t token = r.first + (threadIdx.x & 31); token < r.end; token += 32) {
        const T *gates = (const T *)a.gates + (r.start + token) * a.gates_width + head;
        const float decay = to_float(gates[a.a]) + a_bias;
        const float softplus = fmaxf(decay, 0.0f) + log1pf(expf(-fabsf(decay)));
        const float rate = -expf(a_log) * softplus; /* sums of what is far below 0 would lose what follows */
        *(float2 *)(a.rates + ((r.start + token) * a.heads + head) * 2) = make_float2(
            token < r.chunked ? fmaxf(rate, -80.0f) : expf(rate), 1.0f / (1.0f + expf(-to_float(gates[a.b]))));
    }
    for (int64_t token = r.first; token < r.end; token++) {
        float y[4];
        convolve_token(a, &v, token, r.end, y);
        store4((T *)a.v + ((r.start + token) * a.heads + head) * DIM + (threadIdx.x & 31) * 4, y);
    }
    if (r.first == 0) {
        store_inputs(a, r, v);
    }
}

/* 128 threads; a warp has a head of a run of tokens, four channels a lane. Bound by device memory: reads what it uses
 * of x once, writes q and k as f32 or, by chunks, as T. */
template <typename T> static __global__ void __launch_bounds__(THREADS) prepare_tokens(const trm_delta_net a)
{
    const int unit = (int)blockIdx.y * WARPS + (threadIdx.x >> 5);
    int32_t s = (int32_t)blockIdx.x, run = 0;
    begin_overlapped();
    if (unit >= a.key_heads + a.heads) {
        return;
    }
    if (a.by_run) {
        find_run<RUN>(a.sequences, (int32_t)blockIdx.x, &s, &run);
    }
    token_run r;
    r.start = a.sequences.starts[s];
    r.count = a.sequences.starts[s + 1] - r.start;
    r.first = (int64_t)run * RUN;
    r.end = a.by_run && r.first + RUN < r.count ? r.first + RUN : r.count;
    if (r.first >= r.end) {
        return;
    }
    r.old = a.sequences.lengths[s] - r.count;
    r.chunked = a.chunked ? chunked_tokens(r.count, a.places) : 0;
    r.read = a.sequences.slots[2 * s];
    r.written = a.sequences.slots[2 * s + 1];
    if (unit < a.key_heads) {
        prepare_keys<T>(a, r, unit);
    } else {
        prepare_values<T>(a, r, unit - a.key_heads);
    }
}

/* ---- the recurrence ------------------------------------------------------------------------------ */

template <typename T> struct token_memory {
    float q[TOKENS][4 * STRIDE], k[TOKENS][4 * STRIDE];
    T v[TOKENS][COLUMNS];
    float rates[TOKENS][2], qk[TOKENS];
};

/* `bytes` of 4, 8 or 16 into shared memory, through L1. */
template <int BYTES> static __device__ __forceinline__ void copy_async(void *to, const void *from)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;"
                 :
                 : "r"(shared_address(to)), "l"(from), "n"(BYTES)
                 : "memory");
}

/* Tokens `token` .. + n - 1 of the step on their way to shared memory. */
template <typename T>
static __device__ __forceinline__ void fetch_tokens(const trm_delta_net &a, token_memory<T> *to, int64_t token, int n,
                                                    int head, int column)
{
    const int key_chunks = DIM / 4, value_chunks = COLUMNS * (int)sizeof(T) / 16,
              chunks = 2 * key_chunks + value_chunks + 2;
    const int key_head = head / (a.heads / a.key_heads);
    for (int i = threadIdx.x; i < n * chunks; i += THREADS) {
        const int t = i / chunks, j = i % chunks;
        const int64_t key_at = (token + t) * a.key_heads + key_head, at = (token + t) * a.heads + head;
        if (j < 2 * key_chunks) {
            const int chunk = j % key_chunks, place = chunk / (ROWS / 4) * STRIDE + chunk % (ROWS / 4) * 4;
            copy_async<16>((j < key_chunks ? to->q[t] : to->k[t]) + place,
                           (j < key_chunks ? a.unit_q : a.unit_k) + key_at * DIM + chunk * 4);
        } else if (j < 2 * key_chunks + value_chunks) {
            const int first = (j - 2 * key_chunks) * 16 / (int)sizeof(T);
            copy_async<16>(to->v[t] + first, (const T *)a.v + at * DIM + column + first);
        } else if (j == 2 * key_chunks + value_chunks) {
            copy_async<8>(to->rates[t], a.rates + at * 2);
        } else {
            copy_async<4>(&to->qk[t], a.qk + key_at);
        }
    }
}

/*
 * A block has 128 threads and 32 columns of a head of a sequence, for all its tokens; tokens come into shared memory
 * while those before them run (22 KB). A decode step moves the state once each way, 4 MB of a sequence with 32 heads,
 * against which all else is little: bound by device memory with many sequences. A token of a prompt takes 128
 * operations of a lane, and waits for the shuffles between two of them.
 */
template <typename T> static __global__ void __launch_bounds__(THREADS) run_tokens(const trm_delta_net a)
{
    __shared__ __align__(16) token_memory<T> memory[2];
    __shared__ float results[TOKENS][COLUMNS];
    const int blocks_of_head = DIM / COLUMNS;
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, quarter = lane >> 3, own = warp * 8 + (lane & 7);
    const int block = (int)(blockIdx.x % (unsigned)(a.heads * blocks_of_head));
    const int32_t sequence = (int32_t)(blockIdx.x / (unsigned)(a.heads * blocks_of_head));
    const int head = block / blocks_of_head, first_column = block % blocks_of_head * COLUMNS;
    float s[ROWS];
    start_next();
    if (!a.early) {
        wait_for_previous();
    }
    int64_t start = a.sequences.starts[sequence], count = a.sequences.starts[sequence + 1] - start;
    const int64_t chunked = a.chunked ? chunked_tokens(count, a.places) : 0;
    const int64_t old = a.sequences.lengths[sequence] - count + chunked, of_place = (int64_t)a.heads * DIM * DIM;
    start += chunked;
    count -= chunked;
    const int64_t of_lane = ((int64_t)head * DIM + quarter * ROWS) * DIM + first_column + own;
    const int64_t read = count > 0 ? a.sequences.slots[2 * sequence + (chunked > 0)] : 0;
    const int64_t written = count > 0 ? a.sequences.slots[2 * sequence + 1] : 0;
    const float *from = a.state + (read * a.places + old % a.places) * of_place + of_lane;
    float *state = a.state + written * a.places * of_place + of_lane;
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        s[i] = count > 0 && old > 0 ? from[i * DIM] : 0.0f;
    }
    if (a.early) {
        wait_for_previous();
    }
    if (count == 0) {
        return;
    }
    fetch_tokens<T>(a, &memory[0], start, count < TOKENS ? (int)count : TOKENS, head, first_column);
    copies_commit();
    for (int64_t token = 0, turn = 0; token < count; token += TOKENS, turn ^= 1) {
        const int n = count - token < TOKENS ? (int)(count - token) : TOKENS;
        const token_memory<T> &m = memory[turn];
        const int64_t left = count - token - TOKENS;
        if (left > 0) {
            fetch_tokens<T>(a, &memory[turn ^ 1], start + token + TOKENS, left < TOKENS ? (int)left : TOKENS, head,
                            first_column);
        }
        copies_commit();
        copies_wait<1>();
        __syncthreads();
        for (int t = 0; t < n; t++) {
            const float y = delta_token<DIM>(s, m.q[t] + quarter * STRIDE, m.k[t] + quarter * STRIDE, m.rates[t][0],
                                             m.rates[t][1], m.qk[t], to_float(m.v[t][own]));
            if (quarter == 0) {
                results[t][own] = y;
            }
            if (token + t >= count - a.places) {
                float *to = state + (old + token + t + 1) % a.places * of_place;
#pragma unroll
                for (int i = 0; i < ROWS; i++) {
                    to[i * DIM] = s[i];
                }
            }
        }
        __syncthreads();
        for (int i = threadIdx.x; i < n * COLUMNS; i += THREADS) {
            const int t = i / COLUMNS, c = i % COLUMNS;
            ((T *)a.y)[((start + token + t) * a.heads + head) * DIM + first_column + c] = from_float<T>(results[t][c]);
        }
    }
}

/* ---- the norm and the gate ------------------------------------------------------------------------ */

/* A warp: a head of a token. Bound by device memory. */
template <typename T> static __global__ void __launch_bounds__(THREADS) gate_heads(const trm_delta_net a)
{
    const int64_t i = (int64_t)blockIdx.x * WARPS + (threadIdx.x >> 5);
    const int lane = threadIdx.x & 31;
    begin_overlapped();
    if (i >= a.tokens * a.heads) {
        return;
    }
    const int64_t token = i / a.heads, head = i % a.heads;
    float y[4], z[4], w[4], squares = 0.0f;
    load4((const T *)a.y + i * DIM + lane * 4, y);
    load4((const T *)a.x + token * a.x_width + a.z + head * DIM + lane * 4, z);
    load4((const T *)a.norm + lane * 4, w);
#pragma unroll
    for (int j = 0; j < 4; j++) {
        squares += y[j] * y[j];
    }
    const float scale = 1.0f / sqrtf(warp_sum(squares) / (float)DIM + a.norm_eps);
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const float normed = to_float(from_float<T>(y[j] * scale * (w[j] + a.weight_offset)));
        y[j] = activate_as<T>(a.gate, z[j]) * normed;
    }
    store4((T *)a.out + i * DIM + lane * 4, y);
}

/* ---- launches ------------------------------------------------------------------------------------ */

static trm_status launch_prepare(void *user, trm_stream *stream)
{
    const trm_delta_net *a = (const trm_delta_net *)user;
    const int64_t runs = a->by_run ? a->tokens / RUN + a->sequences.n : a->sequences.n;
    const dim3 grid((unsigned)runs, (unsigned)((a->key_heads + a->heads + WARPS - 1) / WARPS));
    DISPATCH_FLOAT(a->dtype, launch_overlapped(prepare_tokens<T>, grid, THREADS, 0, trm_cuda_stream(stream), *a));
    return trm_cuda_launched("cuda.delta_net.prepare");
}

static trm_status launch_run(void *user, trm_stream *stream)
{
    const trm_delta_net *a = (const trm_delta_net *)user;
    const dim3 grid((unsigned)(a->sequences.n * a->heads * (DIM / COLUMNS)));
    DISPATCH_FLOAT(a->dtype, launch_overlapped(run_tokens<T>, grid, THREADS, 0, trm_cuda_stream(stream), *a));
    return trm_cuda_launched("cuda.delta_net");
}

static trm_status launch_gate(void *user, trm_stream *stream)
{
    const trm_delta_net *a = (const trm_delta_net *)user;
    const dim3 grid((unsigned)((a->tokens * a->heads + WARPS - 1) / WARPS));
    DISPATCH_FLOAT(a->dtype, launch_overlapped(gate_heads<T>, grid, THREADS, 0, trm_cuda_stream(stream), *a));
    return trm_cuda_launched("cuda.delta_net.gate");
}

/* ---- the call ------------------------------------------------------------------------------------ */

static trm_delta_net net_of(const trm_kernel_call *call)
{
    const trm_delta_net_params *p = &call->layer->delta_net;
    const trm_view *in = call->inputs;
    const uint32_t given =
        1u << TRM_DELTA_NET_SEQUENCE_STARTS | 1u << TRM_DELTA_NET_SEQUENCE_LENGTHS | 1u << TRM_DELTA_NET_SEQUENCE_SLOTS;
    trm_delta_net a = {};
    a.sequences.n = in[TRM_DELTA_NET_SEQUENCE_STARTS].dims.d[0] - 1;
    a.sequences.starts = (const int32_t *)in[TRM_DELTA_NET_SEQUENCE_STARTS].data;
    a.sequences.lengths = (const int32_t *)in[TRM_DELTA_NET_SEQUENCE_LENGTHS].data;
    a.sequences.slots = (const int32_t *)in[TRM_DELTA_NET_SEQUENCE_SLOTS].data;
    a.x = in[TRM_DELTA_NET_X].data;
    a.gates = in[TRM_DELTA_NET_GATES].data;
    a.x_width = in[TRM_DELTA_NET_X].dims.d[1];
    a.gates_width = in[TRM_DELTA_NET_GATES].dims.d[1];
    a.tokens = in[TRM_DELTA_NET_X].dims.d[0];
    a.key_heads = p->key_heads;
    a.heads = p->heads;
    a.taps = (int32_t)in[TRM_DELTA_NET_Q_TAPS].dims.d[1];
    a.cache_places = (int32_t)in[TRM_DELTA_NET_Q_CACHE].dims.d[1];
    a.places = (int32_t)in[TRM_DELTA_NET_STATE].dims.d[1];
    a.z = p->z;
    a.a = p->a;
    a.b = p->b;
    for (int i = 0; i < 3; i++) {
        a.weights[i] = in[TRM_DELTA_NET_Q_TAPS + i].data;
        a.caches[i] = in[TRM_DELTA_NET_Q_CACHE + i].data;
    }
    a.a_log = (const float *)in[TRM_DELTA_NET_A_LOG].data;
    a.a_bias = (const float *)in[TRM_DELTA_NET_A_BIAS].data;
    a.state = (float *)in[TRM_DELTA_NET_STATE].data;
    a.norm = in[TRM_DELTA_NET_NORM].data;
    a.out = call->outputs[0].data;
    a.activation = p->activation;
    a.gate = p->gate;
    a.eps = p->eps;
    a.norm_eps = p->norm_eps;
    a.weight_offset = p->weight_offset;
    a.by_run = a.tokens > 2 * a.sequences.n;
    a.early = (call->constants & given) == given;
    a.dtype = in[TRM_DELTA_NET_X].dtype;
    return a;
}

bool trm_cuda_delta_net_accepts(const trm_kernel_call *call)
{
    const trm_delta_net_params *p = &call->layer->delta_net;
    const trm_view *in = call->inputs;
    const trm_dtype dtype = in[TRM_DELTA_NET_X].dtype;
    if (call->n_inputs != TRM_DELTA_NET_INPUT_COUNT || !is_half_or_float(dtype) || p->key_dim != DIM ||
        p->value_dim != DIM || p->heads % p->key_heads != 0 || p->z % 4 != 0 ||
        in[TRM_DELTA_NET_X].dims.d[1] % 4 != 0) {
        return false;
    }
    for (int i = 0; i < 3; i++) { /* the three convolutions are alike */
        const trm_view *taps = &in[TRM_DELTA_NET_Q_TAPS + i], *cache = &in[TRM_DELTA_NET_Q_CACHE + i];
        if (taps->dtype != dtype || cache->dtype != dtype || taps->dims.d[1] > TAPS ||
            taps->dims.d[1] != in[TRM_DELTA_NET_Q_TAPS].dims.d[1] ||
            cache->dims.d[1] != in[TRM_DELTA_NET_Q_CACHE].dims.d[1]) {
            return false;
        }
    }
    return in[TRM_DELTA_NET_GATES].dtype == dtype && in[TRM_DELTA_NET_NORM].dtype == dtype &&
           in[TRM_DELTA_NET_SEQUENCE_STARTS].dims.d[0] * p->heads * (DIM / COLUMNS) <= INT32_MAX &&
           in[TRM_DELTA_NET_X].dims.d[0] * p->heads <= INT32_MAX;
}

static bool may_chunk(const trm_kernel_call *call)
{
    const trm_view *x = &call->inputs[TRM_DELTA_NET_X];
    return x->dtype != TRM_F32 && !call->batch_invariant && x->dims.d[0] >= LEAST;
}

/* The next part of the workspace. Without a workspace, addresses count from 0 to find its size. */
static void *next_room(const trm_kernel_call *call, size_t *used, size_t bytes)
{
    void *room = call->workspace == NULL ? NULL : (char *)call->workspace + *used;
    *used += (bytes + 255) / 256 * 256;
    return room;
}

static size_t take_rooms(const trm_kernel_call *call, trm_delta_net *a)
{
    const size_t tokens = (size_t)a->tokens, keys = tokens * (size_t)a->key_heads, values = tokens * (size_t)a->heads;
    const size_t size = trm_dtype_size(a->dtype);
    size_t used = 0;
    a->unit_q = (float *)next_room(call, &used, keys * DIM * sizeof(float));
    a->unit_k = (float *)next_room(call, &used, keys * DIM * sizeof(float));
    a->qk = (float *)next_room(call, &used, keys * sizeof(float));
    a->rates = (float *)next_room(call, &used, values * 2 * sizeof(float));
    a->v = next_room(call, &used, values * DIM * size);
    a->y = next_room(call, &used, values * DIM * size);
    if (may_chunk(call)) { /* also if fewer sequences would have prompts among them */
        a->w = next_room(call, &used, values * DIM * size);
        a->scores = next_room(call, &used, values * CHUNK * size);
    }
    return used;
}

size_t trm_cuda_delta_net_workspace(const trm_kernel_call *call)
{
    trm_delta_net a = net_of(call);
    return take_rooms(call, &a);
}

static trm_status append_chunks(const trm_delta_net *a, trm_program *program)
{
    trm_delta_chunks *chunks = (trm_delta_chunks *)trm_program_alloc(program, sizeof(*chunks));
    if (chunks == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    *chunks = trm_delta_chunks{a->sequences, a->tokens, a->key_heads, a->heads, a->places, a->dtype,  a->state,
                               a->unit_q,    a->unit_k, a->rates,     a->v,     a->w,      a->scores, a->y};
    TRM_TRY(trm_program_append(program, "cuda.delta_net.solve", trm_cuda_delta_solve_chunks, chunks));
    return trm_program_append(program, "cuda.delta_net.chunks", trm_cuda_delta_run_chunks, chunks);
}

trm_status trm_cuda_delta_net_prepare(const trm_kernel_call *call, trm_program *program)
{
    trm_delta_net *a = (trm_delta_net *)trm_program_alloc(program, sizeof(*a));
    if (a == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    *a = net_of(call);
    if (take_rooms(call, a) > call->workspace_size) {
        TRM_FAIL(TRM_ERROR_INTERNAL, "a delta_net call does not fit the layer it was accepted for");
    }
    if (a->tokens == 0 || a->sequences.n == 0) {
        return TRM_OK;
    }
    /* Not if every sequence has its drafts at most. */
    a->chunked = may_chunk(call) && a->tokens >= a->sequences.n * a->places + LEAST - 1;
    if (!a->chunked && !call->batch_invariant && trm_cuda_delta_step_fits(a)) {
        return trm_program_append(program, "cuda.delta_net.step", trm_cuda_delta_step, a);
    }
    TRM_TRY(trm_program_append(program, "cuda.delta_net.prepare", launch_prepare, a));
    if (a->chunked) {
        a->early = false;
        TRM_TRY(append_chunks(a, program));
    }
    TRM_TRY(trm_program_append(program, "cuda.delta_net", launch_run, a));
    return trm_program_append(program, "cuda.delta_net.gate", launch_gate, a);
}
