/*
 * The reference of SHORT_CONVOLUTION and GATED_DELTA: token by token, so that steps of any cut have the same bits.
 */
#include <math.h>
#include <string.h>

#include "kernels/delta/delta.h"
#include "kernels/host/host.h"

/* ---- short convolution -------------------------------------------------------------------------- */

bool trm_host_short_convolution_accepts(const trm_kernel_call *call)
{
    trm_short_convolution_args args;
    return trm_short_convolution_args_of(call, &args) && trm_host_activation_is_known(args.activation);
}

/* Elements `first` .. + n - 1 of x at a position of a sequence: of this step, of the cache, or zeros. */
static const float *load_x(const trm_short_convolution_args *a, int64_t sequence, int64_t position, int64_t first,
                           int64_t n, float *buffer)
{
    const int64_t end = a->sequences.starts[sequence + 1], length = a->sequences.lengths[sequence];
    const int64_t token = end - (length - position);
    if (position < 0) {
        memset(buffer, 0, (size_t)n * sizeof(*buffer));
        return buffer;
    }
    if (token >= a->sequences.starts[sequence]) {
        return trm_host_load(a->dtype, a->x, token * a->channels + first, n, buffer);
    }
    const int64_t row = (int64_t)a->sequences.slots[2 * sequence] * a->places + position % a->places;
    return trm_host_load(a->dtype, a->cache, row * a->channels + first, n, buffer);
}

static void convolve(const trm_short_convolution_args *a, int64_t sequence, int64_t position, int64_t first, int64_t n)
{
    const int64_t end = a->sequences.starts[sequence + 1], length = a->sequences.lengths[sequence];
    float sum[TRM_HOST_BLOCK] = {0}, buffer[TRM_HOST_BLOCK];
    for (int64_t j = 0; j < a->taps; j++) {
        const float *x = load_x(a, sequence, position - (a->taps - 1 - j), first, n, buffer);
        for (int64_t c = 0; c < n; c++) {
            sum[c] += trm_element_load_f32(a->dtype, a->weight, (first + c) * a->taps + j) * x[c];
        }
    }
    for (int64_t c = 0; c < n && a->bias != NULL; c++) {
        sum[c] += trm_element_load_f32(a->dtype, a->bias, first + c);
    }
    trm_host_activate(a->activation, sum, n);
    trm_host_store(a->dtype, a->y, (end - (length - position)) * a->channels + first, n, sum);
}

/* A run of channels of all sequences. What is stored overwrites what was read. */
static void convolve_channels(void *user, int64_t begin, int64_t end)
{
    const trm_short_convolution_args *a = user;
    float buffer[TRM_HOST_BLOCK];
    for (int64_t block = begin; block < end; block++) {
        const int64_t first = block * TRM_HOST_BLOCK, n = trm_host_min(a->channels - first, TRM_HOST_BLOCK);
        for (int64_t s = 0; s < a->sequences.n; s++) {
            const int64_t count = a->sequences.starts[s + 1] - a->sequences.starts[s];
            const int64_t length = a->sequences.lengths[s], old = length - count;
            for (int64_t position = old; position < length && count > 0; position++) {
                convolve(a, s, position, first, n);
            }
            const int64_t last = count > 0 ? trm_host_min(length, a->places) : 0;
            for (int64_t position = length - last; position < length; position++) {
                const int64_t row = (int64_t)a->sequences.slots[2 * s + 1] * a->places + position % a->places;
                trm_host_store(a->dtype, a->cache, row * a->channels + first, n,
                               load_x(a, s, position, first, n, buffer));
            }
        }
    }
}

trm_status trm_host_short_convolution_run(const trm_kernel_call *call)
{
    trm_short_convolution_args args;
    if (trm_short_convolution_args_of(call, &args)) {
        trm_host_for(call, (args.channels + TRM_HOST_BLOCK - 1) / TRM_HOST_BLOCK, 1, convolve_channels, &args);
    }
    return TRM_OK;
}

/* ---- gated delta rule ---------------------------------------------------------------------------- */

#define MAX_DIM 512 /* of keys and values of a head */

bool trm_host_gated_delta_accepts(const trm_kernel_call *call)
{
    trm_gated_delta_args args;
    return trm_gated_delta_args_of(call, &args) && args.key_dim <= MAX_DIM && args.value_dim <= MAX_DIM;
}

/* to [n] = elements from `at` on, divided by their length and times `scale`. */
static void load_unit(const trm_gated_delta_args *a, const void *data, int64_t at, double scale, float *to)
{
    float buffer[MAX_DIM];
    const float *from = trm_host_load(a->dtype, data, at, a->key_dim, buffer);
    double squares = 0.0;
    for (int64_t i = 0; i < a->key_dim; i++) {
        squares += (double)from[i] * (double)from[i];
    }
    const float factor = (float)(scale / sqrt(squares + (double)a->eps));
    for (int64_t i = 0; i < a->key_dim; i++) {
        to[i] = from[i] * factor;
    }
}

/* to [rows, columns] = decay * from + k delta^T, with delta = strength * (v - decay * from^T k); out = to^T q. `from`
 * may be `to`, or NULL for zeros. */
TRM_VECTOR_CLONES static void update(const float *from, float *to, int64_t rows, int64_t columns, float decay,
                                     float strength, const float *q, const float *k, const float *v, float *out)
{
    float delta[MAX_DIM] = {0};
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < columns; j++) {
            const float s = from == NULL ? 0.0f : from[i * columns + j] * decay;
            to[i * columns + j] = s;
            delta[j] += s * k[i];
        }
    }
    for (int64_t j = 0; j < columns; j++) {
        delta[j] = strength * (v[j] - delta[j]);
        out[j] = 0.0f;
    }
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < columns; j++) {
            to[i * columns + j] += k[i] * delta[j];
            out[j] += to[i * columns + j] * q[i];
        }
    }
}

static float decay_of(const trm_gated_delta_args *a, int64_t at, int64_t head)
{
    const double x = (double)trm_element_load_f32(a->dtype, a->a, at) + (double)a->a_bias[head];
    const double softplus = x > 0.0 ? x + log1p(exp(-x)) : log1p(exp(x));
    return (float)exp(-exp((double)a->a_log[head]) * softplus);
}

static void run_head(const trm_gated_delta_args *a, int64_t sequence, int64_t head)
{
    const int64_t first = a->sequences.starts[sequence], count = a->sequences.starts[sequence + 1] - first;
    const int64_t old = a->sequences.lengths[sequence] - count;
    const int64_t read = a->sequences.slots[2 * sequence], written = a->sequences.slots[2 * sequence + 1];
    const int64_t size = a->key_dim * a->value_dim, key_head = head / (a->heads / a->key_heads);
    float q[MAX_DIM], k[MAX_DIM], buffer[MAX_DIM], out[MAX_DIM];
    for (int64_t t = 0; t < count; t++) {
        const int64_t at = (first + t) * a->heads + head, key_at = (first + t) * a->key_heads + key_head;
        const int64_t place = (t == 0 ? read : written) * a->places + (old + t) % a->places;
        const int64_t next = written * a->places + (old + t + 1) % a->places;
        load_unit(a, a->q, key_at * a->key_dim, 1.0 / sqrt((double)a->key_dim), q);
        load_unit(a, a->k, key_at * a->key_dim, 1.0, k);
        const float *v = trm_host_load(a->dtype, a->v, at * a->value_dim, a->value_dim, buffer);
        const float strength = (float)(1.0 / (1.0 + exp(-(double)trm_element_load_f32(a->dtype, a->b, at))));
        update(old + t == 0 ? NULL : a->state + (place * a->heads + head) * size,
               a->state + (next * a->heads + head) * size, a->key_dim, a->value_dim, decay_of(a, at, head), strength, q,
               k, v, out);
        trm_host_store(a->dtype, a->y, at * a->value_dim, a->value_dim, out);
    }
}

static void run_heads(void *user, int64_t begin, int64_t end)
{
    const trm_gated_delta_args *a = user;
    for (int64_t i = begin; i < end; i++) {
        run_head(a, i / a->heads, i % a->heads);
    }
}

trm_status trm_host_gated_delta_run(const trm_kernel_call *call)
{
    trm_gated_delta_args args;
    if (trm_gated_delta_args_of(call, &args)) {
        trm_host_for(call, args.sequences.n * args.heads, 1, run_heads, &args);
    }
    return TRM_OK;
}
