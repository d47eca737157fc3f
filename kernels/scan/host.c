/*
 * The reference of SELECTIVE_SCAN: token by token, so that steps of any cut have the same bits.
 */
#include <math.h>

#include "kernels/host/host.h"
#include "kernels/scan/scan.h"

#define MAX_DIM 1024 /* rows and columns of a head's matrix */

bool trm_host_selective_scan_accepts(const trm_kernel_call *call)
{
    trm_selective_scan_args args;
    return trm_selective_scan_args_of(call, &args) && args.dim <= MAX_DIM && args.columns <= MAX_DIM;
}

/* to [rows, columns] = decay * from + dt x b^T; out = to c + skip x. `from` may be `to`, or NULL for zeros. */
TRM_VECTOR_CLONES static void update(const float *from, float *to, int64_t rows, int64_t columns, float decay, float dt,
                                     float skip, const float *x, const float *b, const float *c, float *out)
{
    for (int64_t i = 0; i < rows; i++) {
        const float factor = dt * x[i];
        float sum[8] = {0};
        for (int64_t j = 0; j < columns; j++) {
            const float s = (from == NULL ? 0.0f : from[i * columns + j] * decay) + factor * b[j];
            to[i * columns + j] = s;
            sum[j % 8] += s * c[j];
        }
        out[i] = ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7])) + skip * x[i];
    }
}

static float step_of(const trm_selective_scan_args *a, int64_t at, int64_t head)
{
    const double x = (double)trm_element_load_f32(a->dtype, a->step, at) + (double)a->step_bias[head];
    const double softplus = x > 0.0 ? x + log1p(exp(-x)) : log1p(exp(x));
    return (float)fmin(fmax(softplus, (double)a->step_min), (double)a->step_max);
}

static void run_head(const trm_selective_scan_args *a, int64_t sequence, int64_t head)
{
    const int64_t first = a->sequences.starts[sequence], count = a->sequences.starts[sequence + 1] - first;
    const int64_t old = a->sequences.lengths[sequence] - count;
    const int64_t read = a->sequences.slots[2 * sequence], written = a->sequences.slots[2 * sequence + 1];
    const int64_t size = a->dim * a->columns, group = head / (a->heads / a->groups);
    float x_buffer[MAX_DIM], b_buffer[MAX_DIM], c_buffer[MAX_DIM], out[MAX_DIM];
    for (int64_t t = 0; t < count; t++) {
        const int64_t at = (first + t) * a->heads + head, group_at = ((first + t) * a->groups + group) * a->columns;
        const int64_t place = (t == 0 ? read : written) * a->places + (old + t) % a->places;
        const int64_t next = written * a->places + (old + t + 1) % a->places;
        const float *x = trm_host_load(a->dtype, a->x, at * a->dim, a->dim, x_buffer);
        const float *b = trm_host_load(a->dtype, a->b, group_at, a->columns, b_buffer);
        const float *c = trm_host_load(a->dtype, a->c, group_at, a->columns, c_buffer);
        const float dt = step_of(a, at, head);
        update(old + t == 0 ? NULL : a->state + (place * a->heads + head) * size,
               a->state + (next * a->heads + head) * size, a->dim, a->columns, expf(-expf(a->a_log[head]) * dt), dt,
               a->skip[head], x, b, c, out);
        trm_host_store(a->dtype, a->y, at * a->dim, a->dim, out);
    }
}

static void run_heads(void *user, int64_t begin, int64_t end)
{
    const trm_selective_scan_args *a = user;
    for (int64_t i = begin; i < end; i++) {
        run_head(a, i / a->heads, i % a->heads);
    }
}

trm_status trm_host_selective_scan_run(const trm_kernel_call *call)
{
    trm_selective_scan_args args;
    if (trm_selective_scan_args_of(call, &args)) {
        trm_host_for(call, args.sequences.n * args.heads, 1, run_heads, &args);
    }
    return TRM_OK;
}
