/*
 * A DELTA_NET's step of a token or few per sequence: convolutions, the rule, the norm of heads and the gate in one
 * launch. A block has a head with its matrix in registers, blocks of a cluster have the value heads of a key head: each
 * convolves q and k itself, and none stores their last inputs before all have read those from before.
 */
#include "kernels/cuda/cluster.cuh"
#include "kernels/cuda/common.cuh"
#include "kernels/delta/cuda_net.cuh"

#define THREADS      512
#define WARPS        (THREADS / 32)
#define MOST_CLUSTER 8
#define MOST_BLOCKS  512 /* more of them read slower than smaller blocks in three launches */

typedef struct step_memory {
    float q[4 * STRIDE], k[4 * STRIDE]; /* in quarters, as convolved */
    float v[DIM], y[DIM];
    float squares[2][DIM / 32], of_y[WARPS]; /* sums of warps */
    float decay, strength;
} step_memory;

/* A channel of q, k or v, of a thread. */
template <typename T> struct step_channel {
    const T *x;                      /* of the step's first token of the sequence */
    const T *read;                   /* the cache, in the slot that is read */
    T *written;                      /* and in the one that is written */
    int64_t step;                    /* between rows of the cache */
    float weight[TAPS], input[TAPS]; /* the oldest first */
};

/* `which` of q, k and v; `channel` of it. */
template <typename T>
static __device__ __forceinline__ void open_channel(const trm_delta_net &a, int32_t sequence, int old, int which,
                                                    int channel, step_channel<T> *c)
{
    const int keys = a.key_heads * DIM;
    const int64_t places = a.cache_places;
    c->step = which < 2 ? keys : a.heads * DIM;
    c->x = (const T *)a.x + a.sequences.starts[sequence] * a.x_width + which * keys + channel;
    c->read = (const T *)a.caches[which] + a.sequences.slots[2 * sequence] * places * c->step + channel;
    c->written = (T *)a.caches[which] + a.sequences.slots[2 * sequence + 1] * places * c->step + channel;
#pragma unroll
    for (int j = 0; j < TAPS; j++) {
        const int tap = j - (TAPS - a.taps), position = old - (TAPS - 1 - j);
        c->weight[j] = tap >= 0 ? to_float(((const T *)a.weights[which])[(int64_t)channel * a.taps + tap]) : 0.0f;
        c->input[j] =
            j < TAPS - 1 && tap >= 0 && position >= 0 ? to_float(c->read[position % a.cache_places * c->step]) : 0.0f;
    }
}

/* The next token, rounded to T as by a layer of its own. */
template <typename T>
static __device__ __forceinline__ float convolve_channel(const trm_delta_net &a, step_channel<T> *c, int token)
{
    float sum = 0.0f;
    c->input[TAPS - 1] = to_float(c->x[token * a.x_width]);
#pragma unroll
    for (int j = 0; j < TAPS; j++) {
        sum += c->weight[j] * c->input[j];
    }
#pragma unroll
    for (int j = 0; j < TAPS - 1; j++) {
        c->input[j] = c->input[j + 1];
    }
    return to_float(from_float<T>(activate_as<T>(a.activation, sum)));
}

/* The sequence's last inputs. */
template <typename T>
static __device__ __forceinline__ void store_channel(const trm_delta_net &a, int32_t sequence, int old, int count,
                                                     const step_channel<T> &c)
{
    const int length = old + count;
    const bool moves = a.sequences.slots[2 * sequence] != a.sequences.slots[2 * sequence + 1];
    for (int position = max(length - a.cache_places, 0); position < length; position++) {
        T *to = c.written + position % a.cache_places * c.step;
        if (position >= old) {
            *to = c.x[(position - old) * a.x_width];
        } else if (moves) {
            *to = c.read[position % a.cache_places * c.step];
        }
    }
}

/* One token of a column, as delta_token() but with q and k as convolved: their lengths are divided out of the sums. */
static __device__ __forceinline__ float run_token(const trm_delta_net &a, const step_memory &m, float (&s)[ROWS],
                                                  int quarter, float v)
{
    const float *q = m.q + quarter * STRIDE, *k = m.k + quarter * STRIDE;
    float of_k[4] = {}, of_q[4] = {}, of_both[4] = {}, qq = 0.0f, kk = 0.0f;
#pragma unroll
    for (int i = 0; i < ROWS; i += 4) {
        const float4 k4 = *(const float4 *)(k + i), q4 = *(const float4 *)(q + i);
        const float ks[4] = {k4.x, k4.y, k4.z, k4.w}, qs[4] = {q4.x, q4.y, q4.z, q4.w};
#pragma unroll
        for (int j = 0; j < 4; j++) {
            of_k[j] += s[i + j] * ks[j];
            of_q[j] += s[i + j] * qs[j];
            of_both[j] += ks[j] * qs[j];
        }
    }
#pragma unroll
    for (int i = 0; i < DIM / 32; i++) {
        qq += m.squares[0][i];
        kk += m.squares[1][i];
    }
    float sums[3] = {of_k[0] + of_k[1] + (of_k[2] + of_k[3]), of_q[0] + of_q[1] + (of_q[2] + of_q[3]),
                     of_both[0] + of_both[1] + (of_both[2] + of_both[3])};
#pragma unroll
    for (int i = 0; i < 3; i++) {
        sums[i] += __shfl_xor_sync(0xffffffffu, sums[i], 8);
        sums[i] += __shfl_xor_sync(0xffffffffu, sums[i], 16);
    }
    const float for_k = 1.0f / sqrtf(kk + a.eps), for_q = 1.0f / sqrtf((float)DIM) / sqrtf(qq + a.eps);
    const float decay = m.decay, delta = for_k * (m.strength * (v - decay * (for_k * sums[0])));
#pragma unroll
    for (int i = 0; i < ROWS; i += 4) {
        const float4 k4 = *(const float4 *)(k + i);
        s[i] = decay * s[i] + k4.x * delta;
        s[i + 1] = decay * s[i + 1] + k4.y * delta;
        s[i + 2] = decay * s[i + 2] + k4.z * delta;
        s[i + 3] = decay * s[i + 3] + k4.w * delta;
    }
    return for_q * (decay * sums[1] + sums[2] * delta);
}

/*
 * Warps have 8 columns of the matrix each, a quarter of the rows in each group of 8 lanes; four warps each convolve q,
 * k and v, and the last four have the gate. The state is read before the wait where only this layer writes it.
 */
template <typename T> static __global__ void __launch_bounds__(THREADS, 2) step_tokens(const trm_delta_net a)
{
    __shared__ __align__(16) step_memory m;
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, quarter = lane >> 3, column = warp * 8 + (lane & 7);
    const int head = (int)blockIdx.x, key_heads_of = a.heads / a.key_heads, part = (int)threadIdx.x / DIM;
    const int own = (int)threadIdx.x % DIM; /* channel of the part */
    const int32_t sequence = (int32_t)blockIdx.y;
    float s[ROWS];
    start_next();
    if (!a.early) {
        wait_for_previous();
    }
    const int64_t start = a.sequences.starts[sequence];
    const int count = (int)(a.sequences.starts[sequence + 1] - start), old = a.sequences.lengths[sequence] - count;
    const int64_t of_place = (int64_t)a.heads * DIM * DIM;
    const int64_t of_lane = ((int64_t)head * DIM + quarter * ROWS) * DIM + column;
    const int64_t read = count > 0 ? a.sequences.slots[2 * sequence] : 0;
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
        return; /* the whole cluster */
    }
    step_channel<T> channel;
    float norm = 0.0f;
    if (part < 3) {
        open_channel<T>(a, sequence, old, part, (part < 2 ? head / key_heads_of : head) * DIM + own, &channel);
    } else {
        norm = to_float(((const T *)a.norm)[own]) + a.weight_offset;
    }
    cluster_arrive();
    for (int token = 0; token < count; token++) {
        float z = 0.0f;
        if (part < 3) {
            const float x = convolve_channel<T>(a, &channel, token);
            float *to = part == 0 ? m.q : m.k;
            if (part < 2) {
                to[own / ROWS * STRIDE + own % ROWS] = x;
                const float squares = warp_sum(x * x);
                if (lane == 0) {
                    m.squares[part][own / 32] = squares;
                }
            } else {
                m.v[own] = x;
            }
        } else {
            z = to_float(((const T *)a.x)[(start + token) * a.x_width + a.z + head * DIM + own]);
            if (own == 0) {
                const T *gates = (const T *)a.gates + (start + token) * a.gates_width + head;
                const float rate = to_float(gates[a.a]) + a.a_bias[head];
                const float softplus = fmaxf(rate, 0.0f) + log1pf(expf(-fabsf(rate)));
                m.decay = expf(-expf(a.a_log[head]) * softplus);
                m.strength = 1.0f / (1.0f + expf(-to_float(gates[a.b])));
            }
        }
        __syncthreads();
        const float y = to_float(from_float<T>(run_token(a, m, s, quarter, m.v[column])));
        float squares = y * y; /* of 8 columns */
#pragma unroll
        for (int offset = 1; offset < 8; offset *= 2) {
            squares += __shfl_xor_sync(0xffffffffu, squares, offset);
        }
        if (quarter == 0) {
            m.y[column] = y;
        }
        if (lane == 0) {
            m.of_y[warp] = squares;
        }
        if (token >= count - a.places) {
            float *to = state + (int64_t)((old + token + 1) % a.places) * of_place;
#pragma unroll
            for (int i = 0; i < ROWS; i++) {
                to[i * DIM] = s[i];
            }
        }
        __syncthreads();
        if (part == 3) {
            float sum = 0.0f;
#pragma unroll
            for (int i = 0; i < WARPS; i++) {
                sum += m.of_y[i];
            }
            const float scale = 1.0f / sqrtf(sum / (float)DIM + a.norm_eps);
            const float normed = to_float(from_float<T>(m.y[own] * scale * norm));
            ((T *)a.out)[((start + token) * a.heads + head) * DIM + own] =
                from_float<T>(activate_as<T>(a.gate, z) * normed);
        }
    }
    cluster_wait();
    if (part == 2 || (part < 2 && head % key_heads_of == 0)) {
        store_channel<T>(a, sequence, old, count, channel);
    }
}

bool trm_cuda_delta_step_fits(const trm_delta_net *a)
{
    const int32_t cluster = a->heads / a->key_heads;
    return a->tokens <= 4 * a->sequences.n && a->sequences.n * a->heads <= MOST_BLOCKS &&
           (cluster == 1 || (cluster <= MOST_CLUSTER && trm_cuda_has_clusters()));
}

template <typename T> static void launch_step(const trm_delta_net *a, cudaStream_t stream)
{
    cudaLaunchAttribute attributes[MOST_ATTRIBUTES] = {};
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)a->heads, (unsigned)a->sequences.n);
    config.blockDim = THREADS;
    config.stream = stream;
    config.attrs = attributes;
    config.numAttrs = launch_attributes(attributes, true, (unsigned)(a->heads / a->key_heads));
    (void)cudaLaunchKernelEx(&config, step_tokens<T>, *a); /* trm_cuda_launched() sees the error */
}

trm_status trm_cuda_delta_step(void *net, trm_stream *stream)
{
    const trm_delta_net *a = (const trm_delta_net *)net;
    DISPATCH_FLOAT(a->dtype, launch_step<T>(a, trm_cuda_stream(stream)));
    return trm_cuda_launched("cuda.delta_net.step");
}
