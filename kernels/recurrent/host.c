/*
 * Recurrent layers in f64: one product of the whole input with its weight, then step by step, directions and entries of
 * the batch on their own.
 */
#include "kernels/recurrent/element.h"

#include <string.h>

#include "kernels/host/gemm.h"
#include "kernels/host/host.h"

typedef struct recurrent_job {
    trm_recurrent_args args;
    int64_t rows;       /* of gates */
    double *x, *w, *r;  /* converted */
    double *from_input; /* [directions, steps, batch, rows] */
    double *from_state; /* [directions, batch, rows] */
    double *h, *c;      /* [directions, batch, hidden] */
    double *reset;      /* GRU: r * h, like h */
} recurrent_job;

bool trm_host_recurrent_accepts(const trm_kernel_call *call)
{
    trm_recurrent_args args;
    return trm_recurrent_args_of(call, &args);
}

size_t trm_host_recurrent_workspace(const trm_kernel_call *call)
{
    trm_recurrent_args a;
    if (!trm_recurrent_args_of(call, &a)) {
        return 0;
    }
    const int64_t rows = a.gates * a.hidden, each = a.directions * a.batch;
    return sizeof(double) * (size_t)(a.steps * a.batch * a.in + a.directions * rows * (a.in + a.hidden) +
                                     (a.steps + 1) * each * rows + 3 * each * a.hidden);
}

static void convert(trm_dtype dtype, const void *from, int64_t n, double *to)
{
    for (int64_t i = 0; i < n; i++) {
        to[i] = from != NULL ? trm_element_load_f64(dtype, from, i) : 0.0;
    }
}

static void job_init(recurrent_job *job, const trm_kernel_call *call)
{
    const trm_recurrent_args *a = &job->args;
    const int64_t each = a->directions * a->batch;
    job->rows = a->gates * a->hidden;
    job->x = call->workspace;
    job->w = job->x + a->steps * a->batch * a->in;
    job->r = job->w + a->directions * job->rows * a->in;
    job->from_input = job->r + a->directions * job->rows * a->hidden;
    job->from_state = job->from_input + a->steps * each * job->rows;
    job->h = job->from_state + each * job->rows;
    job->c = job->h + each * a->hidden;
    job->reset = job->c + each * a->hidden;
    convert(a->dtype, a->x, a->steps * a->batch * a->in, job->x);
    convert(a->dtype, a->w, a->directions * job->rows * a->in, job->w);
    convert(a->dtype, a->r, a->directions * job->rows * a->hidden, job->r);
    convert(a->dtype, a->first_h, each * a->hidden, job->h);
    convert(a->dtype, a->first_c, each * a->hidden, job->c);
}

/* Rows begin .. end - 1 of steps * batch, for every direction. */
static void multiply_input(void *user, int64_t begin, int64_t end)
{
    const recurrent_job *job = user;
    const trm_recurrent_args *a = &job->args;
    for (int64_t d = 0; d < a->directions; d++) {
        trm_host_gemm_f64(end - begin, job->rows, a->in, job->x + begin * a->in, a->in, job->w + d * job->rows * a->in,
                          a->in, job->from_input + (d * a->steps * a->batch + begin) * job->rows, job->rows);
    }
}

/* One unit of one entry: GRU's second half is in `part` 1. */
static double gru_h(const recurrent_job *job, int64_t d, int64_t j, const double *input, const double *state, double h)
{
    const trm_recurrent_args *a = &job->args;
    const int64_t n = a->hidden;
    const double z = trm_recurrent_activate(a, d, 0, input[j] + state[j] + trm_recurrent_bias(a, d, j, true, true));
    double sum = input[2 * n + j] + trm_recurrent_bias(a, d, 2 * n + j, true, false);
    const double recurrent = state[2 * n + j] + trm_recurrent_bias(a, d, 2 * n + j, false, true);
    if (a->p.linear_before_reset) {
        sum += recurrent * trm_recurrent_activate(
                               a, d, 0, input[n + j] + state[n + j] + trm_recurrent_bias(a, d, n + j, true, true));
    } else {
        sum += recurrent;
    }
    return (1.0 - z) * trm_recurrent_activate(a, d, 1, sum) + z * h;
}

/* What the gates of entry (d, b) make of its state. */
static void update_entry(const recurrent_job *job, int64_t d, int64_t b, int64_t t)
{
    const trm_recurrent_args *a = &job->args;
    const int64_t n = a->hidden, entry = d * a->batch + b;
    const double *input = job->from_input + ((d * a->steps + t) * a->batch + b) * job->rows;
    const double *state = job->from_state + entry * job->rows;
    double *h = job->h + entry * n, *c = job->c + entry * n;
    for (int64_t j = 0; j < n; j++) {
        double sums[4];
        if (a->p.cell == TRM_RECURRENT_GRU) {
            h[j] = gru_h(job, d, j, input, state, h[j]);
        } else {
            for (int64_t g = 0; g < a->gates; g++) {
                sums[g] = input[g * n + j] + state[g * n + j] + trm_recurrent_bias(a, d, g * n + j, true, true);
            }
            h[j] = a->p.cell == TRM_RECURRENT_RNN ? trm_recurrent_activate(a, d, 0, sums[0])
                                                  : trm_recurrent_lstm(a, d, j, sums, &c[j]);
        }
        trm_element_store_f64(a->dtype, a->y, ((t * a->directions + d) * a->batch + b) * n + j, h[j]);
    }
}

/* GRU whose reset comes before the product: the last gate sees r * h. */
static void multiply_reset(const recurrent_job *job, int64_t d, int64_t b0, int64_t m, int64_t s)
{
    const trm_recurrent_args *a = &job->args;
    const int64_t n = a->hidden, entry = d * a->batch + b0;
    for (int64_t b = b0; b < b0 + m; b++) {
        const int64_t length = trm_recurrent_length(a, b), at = (d * a->batch + b) * n;
        const int64_t t = s < length ? trm_recurrent_place(a, d, length, s) : 0;
        const double *input = job->from_input + ((d * a->steps + t) * a->batch + b) * job->rows;
        const double *state = job->from_state + (d * a->batch + b) * job->rows;
        for (int64_t j = 0; j < n; j++) {
            job->reset[at + j] =
                job->h[at + j] *
                trm_recurrent_activate(a, d, 0,
                                       input[n + j] + state[n + j] + trm_recurrent_bias(a, d, n + j, true, true));
        }
    }
    trm_host_gemm_f64(m, n, n, job->reset + entry * n, n, job->r + (d * job->rows + 2 * n) * n, n,
                      job->from_state + entry * job->rows + 2 * n, job->rows);
}

/* Entries b0 .. b0 + m - 1 of one direction through all steps. */
static void run_direction(const recurrent_job *job, int64_t d, int64_t b0, int64_t m)
{
    const trm_recurrent_args *a = &job->args;
    const int64_t n = a->hidden, entry = d * a->batch + b0;
    const bool reset_first = a->p.cell == TRM_RECURRENT_GRU && !a->p.linear_before_reset;
    for (int64_t s = 0; s < a->steps; s++) {
        trm_host_gemm_f64(m, reset_first ? 2 * n : job->rows, n, job->h + entry * n, n, job->r + d * job->rows * n, n,
                          job->from_state + entry * job->rows, job->rows);
        if (reset_first) {
            multiply_reset(job, d, b0, m, s);
        }
        for (int64_t b = b0; b < b0 + m; b++) {
            const int64_t length = trm_recurrent_length(a, b);
            if (s < length) {
                update_entry(job, d, b, trm_recurrent_place(a, d, length, s));
                continue;
            }
            for (int64_t j = 0; j < n; j++) {
                trm_element_store_f64(a->dtype, a->y, ((s * a->directions + d) * a->batch + b) * n + j, 0.0);
            }
        }
    }
    for (int64_t i = entry * n; i < (entry + m) * n; i++) {
        trm_element_store_f64(a->dtype, a->last_h, i, job->h[i]);
        if (a->last_c != NULL) {
            trm_element_store_f64(a->dtype, a->last_c, i, job->c[i]);
        }
    }
}

/* Entries begin .. end - 1 of directions * batch. */
static void run_entries(void *user, int64_t begin, int64_t end)
{
    const recurrent_job *job = user;
    const int64_t batch = job->args.batch;
    while (begin < end) {
        const int64_t d = begin / batch, b = begin - d * batch, m = trm_host_min(end - begin, batch - b);
        run_direction(job, d, b, m);
        begin += m;
    }
}

trm_status trm_host_recurrent_run(const trm_kernel_call *call)
{
    recurrent_job job;
    if (!trm_recurrent_args_of(call, &job.args) || job.args.batch == 0) {
        return TRM_OK;
    }
    job_init(&job, call);
    const trm_recurrent_args *a = &job.args;
    if (a->in > 0) {
        trm_host_for(call, a->steps * a->batch, 16, multiply_input, &job);
    } else {
        memset(job.from_input, 0, (size_t)(a->directions * a->steps * a->batch * job.rows) * sizeof(double));
    }
    trm_host_for(call, a->directions * a->batch, 1, run_entries, &job);
    return TRM_OK;
}
