/*
 * SHORT_CONVOLUTION and GATED_DELTA.
 *
 * The gated delta rule goes token by token with the matrix of a head in registers: a decode step reads and writes it
 * once, and a prompt has the same bits however it is cut. The grids follow from dims alone; starts, lengths and slots
 * are read on the device.
 */
#include "kernels/cuda/common.cuh"
#include "kernels/delta/cuda_run.cuh"
#include "kernels/kernel_list.h"

#define THREADS 128

/* ---- short convolution -------------------------------------------------------------------------- */

#define MAX_TAPS 8

/* WIDTH elements from element i on, which is aligned for 8. */
template <typename T, int WIDTH>
static __device__ __forceinline__ void load_channels(const void *data, int64_t i, float (&to)[WIDTH])
{
    const T *from = (const T *)data + i;
    if (WIDTH == 8) {
        load8(from, to);
    } else {
        to[0] = to_float(from[0]);
    }
}

template <typename T, int WIDTH>
static __device__ __forceinline__ void store_channels(void *data, int64_t i, const float (&from)[WIDTH])
{
    T *to = (T *)data + i;
    if (WIDTH == 8) {
        store8(to, from);
    } else {
        to[0] = from_float<T>(from[0]);
    }
}

/*
 * A block has 128 threads of WIDTH channels each and, with `by_run`, RUN tokens of a sequence; else all tokens of one.
 * What came before a thread's tokens is in registers. The block of a sequence's first tokens stores the last inputs,
 * behind having read those from before the step: the others read none of the cache. Bound by device memory: each
 * element of x is read and written once, the cache besides.
 */
template <typename T, int WIDTH, int TAPS>
static __global__ void __launch_bounds__(THREADS) convolve(const trm_short_convolution_args a, bool by_run)
{
    const int64_t c = ((int64_t)blockIdx.y * THREADS + threadIdx.x) * WIDTH;
    int32_t s = (int32_t)blockIdx.x, run = 0;
    begin_overlapped();
    if (by_run) {
        find_run<RUN>(a.sequences, (int32_t)blockIdx.x, &s, &run);
    }
    if (c >= a.channels) {
        return;
    }
    const int64_t start = a.sequences.starts[s], count = a.sequences.starts[s + 1] - start;
    const int64_t first = by_run ? (int64_t)run * RUN : 0, end = by_run && first + RUN < count ? first + RUN : count;
    if (first >= end) {
        return;
    }
    const int64_t length = a.sequences.lengths[s], old = length - count;
    const int64_t read = a.sequences.slots[2 * s] * a.places, written = a.sequences.slots[2 * s + 1] * a.places;
    const int taps = (int)a.taps;
    float weight[TAPS][WIDTH], window[TAPS][WIDTH]; /* the oldest first; window: the last inputs, then a new one */
    float bias[WIDTH];
#pragma unroll
    for (int i = 0; i < WIDTH; i++) {
        bias[i] = a.bias != NULL ? to_float(((const T *)a.bias)[c + i]) : 0.0f;
    }
#pragma unroll
    for (int j = 0; j < TAPS; j++) {
        const int tap = j - (TAPS - taps);
        const int64_t token = first - (TAPS - 1 - j);
#pragma unroll
        for (int i = 0; i < WIDTH; i++) {
            weight[j][i] = tap >= 0 ? to_float(((const T *)a.weight)[(c + i) * taps + tap]) : 0.0f;
            window[j][i] = 0.0f;
        }
        if (j < TAPS - 1 && tap >= 0 && token >= 0) {
            load_channels<T, WIDTH>(a.x, (start + token) * a.channels + c, window[j]);
        } else if (j < TAPS - 1 && tap >= 0 && old + token >= 0) {
            load_channels<T, WIDTH>(a.cache, (read + (old + token) % a.places) * a.channels + c, window[j]);
        }
    }
    for (int64_t token = first; token < end; token++) {
        float y[WIDTH];
        load_channels<T, WIDTH>(a.x, (start + token) * a.channels + c, window[TAPS - 1]);
#pragma unroll
        for (int i = 0; i < WIDTH; i++) {
            y[i] = 0.0f;
#pragma unroll
            for (int j = 0; j < TAPS; j++) {
                y[i] += weight[j][i] * window[j][i];
            }
            y[i] = activate_as<T>(a.activation, y[i] + bias[i]);
#pragma unroll
            for (int j = 0; j < TAPS - 1; j++) {
                window[j][i] = window[j + 1][i];
            }
        }
        store_channels<T, WIDTH>(a.y, (start + token) * a.channels + c, y);
    }
    if (first > 0) {
        return;
    }
    for (int64_t position = length < a.places ? 0 : length - a.places; position < length; position++) {
        float x[WIDTH];
        if (position >= old) {
            load_channels<T, WIDTH>(a.x, (start + position - old) * a.channels + c, x);
        } else if (read != written) {
            load_channels<T, WIDTH>(a.cache, (read + position % a.places) * a.channels + c, x);
        } else {
            continue;
        }
        store_channels<T, WIDTH>(a.cache, (written + position % a.places) * a.channels + c, x);
    }
}

template <typename T> static void launch_convolution(const trm_short_convolution_args *a, cudaStream_t stream)
{
    const bool wide = a->channels % 8 == 0 && trm_aligned16(a->x) && trm_aligned16(a->y) && trm_aligned16(a->cache);
    const bool by_run = a->tokens > 2 * a->sequences.n;
    const int64_t blocks = by_run ? a->tokens / RUN + a->sequences.n : a->sequences.n;
    const int64_t width = wide ? 8 * THREADS : THREADS;
    const dim3 grid((unsigned)blocks, (unsigned)((a->channels + width - 1) / width));
    if (wide && a->taps <= 4) {
        launch_overlapped(convolve<T, 8, 4>, grid, THREADS, 0, stream, *a, by_run);
    } else if (wide) {
        launch_overlapped(convolve<T, 8, MAX_TAPS>, grid, THREADS, 0, stream, *a, by_run);
    } else {
        launch_overlapped(convolve<T, 1, MAX_TAPS>, grid, THREADS, 0, stream, *a, by_run);
    }
}

bool trm_cuda_short_convolution_accepts(const trm_kernel_call *call)
{
    trm_short_convolution_args args;
    return trm_short_convolution_args_of(call, &args) && args.taps <= MAX_TAPS &&
           args.channels <= INT64_C(65535) * THREADS;
}

trm_status trm_cuda_short_convolution_run(const trm_kernel_call *call)
{
    trm_short_convolution_args args;
    if (!trm_short_convolution_args_of(call, &args) || args.tokens * args.channels == 0 || args.sequences.n == 0) {
        return TRM_OK;
    }
    DISPATCH_FLOAT(args.dtype, launch_convolution<T>(&args, trm_cuda_stream(call->stream)));
    return trm_cuda_launched("cuda.short_convolution");
}

/* ---- gated delta rule ---------------------------------------------------------------------------- */

#define WARPS   (THREADS / 32)
#define COLUMNS 32 /* of a block; 8 of a warp */
#define TOKENS  8  /* in shared memory at a time */

/*
 * A warp has 8 columns of a head's matrix in registers, a quarter of the rows in each group of 8 lanes. In shared
 * memory a quarter of q and k is DK / 4 + 4 elements long, so that four lanes read 16 bytes each of other banks.
 */
template <int DK> struct delta_shape {
    static const int rows = DK / 4, stride = DK / 4 + 4;
};

template <int DK> struct delta_memory {
    float q[TOKENS][4 * delta_shape<DK>::stride], k[TOKENS][4 * delta_shape<DK>::stride]; /* of length 1 */
    float v[TOKENS][COLUMNS], y[TOKENS][COLUMNS];
    float decay[TOKENS], strength[TOKENS], qk[TOKENS]; /* qk: their product */
};

/* to = from [DK, of which `n` are there] divided by its length, times scale, in quarters; returns the elements of this
 * lane. */
template <typename T, int DK>
static __device__ __forceinline__ void stage_unit(const T *from, int n, float eps, float scale, float *to,
                                                  float (&v)[DK / 32])
{
    const int lane = threadIdx.x & 31;
    float squares = 0.0f;
#pragma unroll
    for (int i = 0; i < DK / 32; i++) {
        const int at = lane + 32 * i;
        v[i] = at < n ? to_float(from[at]) : 0.0f;
        squares += v[i] * v[i];
    }
    const float factor = scale / sqrtf(warp_sum(squares) + eps);
#pragma unroll
    for (int i = 0; i < DK / 32; i++) {
        const int at = lane + 32 * i, quarter = at / delta_shape<DK>::rows;
        v[i] *= factor;
        to[quarter * delta_shape<DK>::stride + at - quarter * delta_shape<DK>::rows] = v[i];
    }
}

/* Tokens `token` .. + n - 1 of the step into shared memory, a warp each. */
template <typename T, int DK>
static __device__ __forceinline__ void stage_tokens(const trm_gated_delta_args &a, delta_memory<DK> &memory,
                                                    int64_t token, int n, int head, int column)
{
    const int lane = threadIdx.x & 31, key_head = head / (int)(a.heads / a.key_heads);
    for (int t = threadIdx.x >> 5; t < n; t += WARPS) {
        const int64_t at = (token + t) * a.heads + head, key_at = ((token + t) * a.key_heads + key_head) * a.key_dim;
        float q[DK / 32], k[DK / 32], qk = 0.0f;
        const float v =
            column + lane < a.value_dim ? to_float(((const T *)a.v)[at * a.value_dim + column + lane]) : 0.0f;
        const float decay = to_float(((const T *)a.a)[at]) + a.a_bias[head], strength = to_float(((const T *)a.b)[at]);
        stage_unit<T, DK>((const T *)a.q + key_at, (int)a.key_dim, a.eps, 1.0f / sqrtf((float)a.key_dim), memory.q[t],
                          q);
        stage_unit<T, DK>((const T *)a.k + key_at, (int)a.key_dim, a.eps, 1.0f, memory.k[t], k);
#pragma unroll
        for (int i = 0; i < DK / 32; i++) {
            qk += q[i] * k[i];
        }
        qk = warp_sum(qk);
        memory.v[t][lane] = v;
        if (lane == 0) {
            const float softplus = fmaxf(decay, 0.0f) + log1pf(expf(-fabsf(decay)));
            memory.decay[t] = expf(-expf(a.a_log[head]) * softplus);
            memory.strength[t] = 1.0f / (1.0f + expf(-strength));
            memory.qk[t] = qk;
        }
    }
}

/*
 * A block has 128 threads and 32 columns of a head of a sequence, for all its tokens. Shared memory: 11 KB for heads of
 * 128. A decode step moves the state twice, 4 MB of a sequence with 32 heads of 128 by 128, against which all else is
 * little: bound by device memory with many sequences. A prompt takes 128 operations of a lane for a token, and waits
 * for the shuffles between two of them. `early`: starts, lengths and slots are there before the wait, and with them the
 * state, which only this layer writes, in the step before.
 */
template <typename T, int DK>
static __global__ void __launch_bounds__(THREADS)
    delta_rule(const trm_gated_delta_args a, int blocks_of_head, bool early)
{
    __shared__ __align__(16) delta_memory<DK> memory;
    const int rows = delta_shape<DK>::rows, stride = delta_shape<DK>::stride;
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, quarter = lane >> 3;
    const int of_sequence = (int)a.heads * blocks_of_head, block = blockIdx.x % of_sequence;
    const int32_t sequence = (int32_t)(blockIdx.x / of_sequence);
    const int head = block / blocks_of_head, first_column = block % blocks_of_head * COLUMNS;
    const int own = warp * 8 + (lane & 7), column = first_column + own;
    const bool is_there = column < a.value_dim;
    const int64_t size = a.key_dim * a.value_dim;
    float s[rows];
    start_next();
    if (!early) {
        wait_for_previous();
    }
    const int64_t start = a.sequences.starts[sequence], count = a.sequences.starts[sequence + 1] - start;
    const int64_t old = a.sequences.lengths[sequence] - count;
    const int64_t of_lane = head * size + (int64_t)quarter * rows * a.value_dim + column, place = a.heads * size;
    const int64_t read = count > 0 ? a.sequences.slots[2 * sequence] : 0;
    const int64_t written = count > 0 ? a.sequences.slots[2 * sequence + 1] : 0;
    const float *from = a.state + (read * a.places + old % a.places) * place + of_lane;
    float *state = a.state + written * a.places * place + of_lane;
#pragma unroll
    for (int i = 0; i < rows; i++) {
        s[i] = count > 0 && old > 0 && is_there && quarter * rows + i < a.key_dim ? from[i * a.value_dim] : 0.0f;
    }
    if (early) {
        wait_for_previous();
    }
    for (int64_t token = 0; token < count; token += TOKENS) {
        const int n = count - token < TOKENS ? (int)(count - token) : TOKENS;
        stage_tokens<T, DK>(a, memory, start + token, n, head, first_column);
        __syncthreads();
        for (int t = 0; t < n; t++) {
            const float y = delta_token<DK>(s, memory.q[t] + quarter * stride, memory.k[t] + quarter * stride,
                                            memory.decay[t], memory.strength[t], memory.qk[t], memory.v[t][own]);
            if (quarter == 0) {
                memory.y[t][own] = y;
            }
            if (token + t >= count - a.places && is_there) {
                float *to = state + (old + token + t + 1) % a.places * place;
#pragma unroll
                for (int i = 0; i < rows; i++) {
                    if (quarter * rows + i < a.key_dim) {
                        to[i * a.value_dim] = s[i];
                    }
                }
            }
        }
        __syncthreads();
        for (int i = threadIdx.x; i < n * COLUMNS; i += THREADS) {
            const int t = i / COLUMNS, c = i % COLUMNS;
            if (first_column + c < a.value_dim) {
                ((T *)a.y)[((start + token + t) * a.heads + head) * a.value_dim + first_column + c] =
                    from_float<T>(memory.y[t][c]);
            }
        }
    }
}

template <typename T> static void launch_delta(const trm_gated_delta_args *a, bool early, cudaStream_t stream)
{
    const int blocks_of_head = (int)((a->value_dim + COLUMNS - 1) / COLUMNS);
    const dim3 grid((unsigned)(a->sequences.n * a->heads * blocks_of_head));
    if (a->key_dim <= 64) {
        launch_overlapped(delta_rule<T, 64>, grid, THREADS, 0, stream, *a, blocks_of_head, early);
    } else if (a->key_dim <= 128) {
        launch_overlapped(delta_rule<T, 128>, grid, THREADS, 0, stream, *a, blocks_of_head, early);
    } else {
        launch_overlapped(delta_rule<T, 256>, grid, THREADS, 0, stream, *a, blocks_of_head, early);
    }
}

bool trm_cuda_gated_delta_accepts(const trm_kernel_call *call)
{
    trm_gated_delta_args args;
    return trm_gated_delta_args_of(call, &args) && args.key_dim <= 256 &&
           args.sequences.n * args.heads * ((args.value_dim + COLUMNS - 1) / COLUMNS) <= INT32_MAX;
}

trm_status trm_cuda_gated_delta_run(const trm_kernel_call *call)
{
    const uint32_t inputs = 1u << TRM_GATED_DELTA_SEQUENCE_STARTS | 1u << TRM_GATED_DELTA_SEQUENCE_LENGTHS |
                            1u << TRM_GATED_DELTA_SEQUENCE_SLOTS;
    trm_gated_delta_args args;
    if (!trm_gated_delta_args_of(call, &args) || args.tokens * args.heads * args.value_dim == 0 ||
        args.sequences.n == 0) {
        return TRM_OK;
    }
    const bool early = (call->constants & inputs) == inputs;
    DISPATCH_FLOAT(args.dtype, launch_delta<T>(&args, early, trm_cuda_stream(call->stream)));
    return trm_cuda_launched("cuda.gated_delta");
}
