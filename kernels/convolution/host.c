/*
 * Convolutions: the reference, element by element; the fast one, which unfolds the input tile by tile into columns and
 * multiplies each; and one for few output channels in a group (depthwise), which adds shifted rows.
 */
#include "kernels/convolution/element.h"

#include <string.h>

#include "kernels/host/element.h"
#include "kernels/host/gemm.h"

TRM_HOST_PLACED_ELEMENTS(convolution, trm_convolution_args)

bool trm_host_convolution_accepts(const trm_kernel_call *call)
{
    trm_convolution_args args;
    return trm_convolution_args_of(call, &args) && trm_host_activation_is_known(args.activation);
}

trm_status trm_host_convolution_run(const trm_kernel_call *call)
{
    trm_convolution_args args;
    if (trm_convolution_args_of(call, &args)) {
        trm_host_for_each(call, trm_dims_count(&args.dims), args.channels * args.w.kernel_size, convolution_range,
                          &args);
    }
    return TRM_OK;
}

/* Bias of channel m, residual and activation over n elements of the output from i on. */
static void finish_row(const trm_convolution_args *args, int64_t m, int64_t i, int64_t n, float *sums)
{
    if (args->bias != NULL) {
        const float bias = trm_element_load_f32(args->dtype, args->bias, m);
        for (int64_t j = 0; j < n; j++) {
            sums[j] += bias;
        }
    }
    if (args->residual != NULL) {
        float buffer[TRM_HOST_BLOCK];
        for (int64_t j = 0; j < n; j += TRM_HOST_BLOCK) {
            const int64_t block = trm_host_min(n - j, TRM_HOST_BLOCK);
            const float *residual = trm_host_load(args->dtype, args->residual, i + j, block, buffer);
            for (int64_t k = 0; k < block; k++) {
                sums[j + k] += residual[k];
            }
        }
    }
    trm_host_activate(args->activation, sums, n);
    if (args->dtype != TRM_F32 || sums != (float *)args->y + i) {
        trm_host_store(args->dtype, args->y, i, n, sums);
    }
}

/* Outputs 0 <= o < n of `out` for which o * stride + shift lies in 0 .. in - 1: first .. end - 1. */
static void reach(int64_t out, int64_t in, int64_t stride, int64_t shift, int64_t *first, int64_t *end)
{
    *first = shift >= 0 ? 0 : (-shift + stride - 1) / stride;
    *end = shift >= in ? 0 : trm_host_min(out, (in - 1 - shift) / stride + 1);
    *end = *end < *first ? *first : *end;
}

/* to[j] = x[from + j * stride] for n elements. */
static void load_strided(trm_dtype dtype, const void *x, int64_t from, int64_t stride, int64_t n, float *to)
{
    if (stride == 1) {
        const float *row = trm_host_load(dtype, x, from, n, to);
        if (row != to) {
            memcpy(to, row, (size_t)n * sizeof(float));
        }
    } else if (dtype == TRM_F32) {
        const float *row = (const float *)x + from;
        for (int64_t j = 0; j < n; j++) {
            to[j] = row[j * stride];
        }
    } else {
        for (int64_t j = 0; j < n; j++) {
            to[j] = trm_element_load_f32(dtype, x, from + j * stride);
        }
    }
}

/* ---- products of columns ---- */

/* Positions, rows of columns and rows of outputs at a time: columns (256 KiB), sums and converted weights (64 KiB
 * each) stay in a core's cache and on its stack. */
#define TILE_P 256
#define TILE_K 256
#define TILE_M 64

typedef struct columns_job {
    trm_convolution_args args;
    int64_t k;         /* channels of a group times taps */
    int64_t tiles_p;   /* of positions */
    int64_t tiles_m;   /* of outputs of a group */
    int64_t m;         /* outputs of a tile */
    bool flat, direct; /* the columns are the input itself; sums are made in the output */
} columns_job;

static void job_init(columns_job *job, const trm_kernel_call *call)
{
    trm_windows *w = &job->args.w;
    job->k = job->args.channels * w->kernel_size;
    job->flat = w->kernel_size == 1 && w->in_size == w->out_size;
    for (int32_t i = 0; i < TRM_MAX_SPATIAL; i++) {
        job->flat = job->flat && w->stride[i] == 1 && w->before[i] == 0;
    }
    job->direct = job->args.dtype == TRM_F32;
    job->tiles_p = (w->out_size + TILE_P - 1) / TILE_P;
    /* Outputs are divided where positions alone do not occupy every thread: it costs the columns once more. */
    const int64_t places = job->tiles_p * w->batch * job->args.groups;
    const int64_t wanted = (2 * trm_pool_threads(trm_host_pool(call)) + places - 1) / places;
    job->m = job->direct ? (job->args.outputs + wanted - 1) / wanted : TILE_M;
    job->m = job->m < TILE_M ? TILE_M : job->m;
    job->tiles_m = (job->args.outputs + job->m - 1) / job->m;
}

/* Row `row` of the columns of the planes at `plane`: what its tap sees at positions p0 .. p0 + n - 1. */
static void unfold_row(const columns_job *job, int64_t plane, int64_t row, int64_t p0, int64_t n, float *to)
{
    const trm_windows *w = &job->args.w;
    const int64_t tap = row % w->kernel_size, kx = tap % w->kernel[2], ky = tap / w->kernel[2] % w->kernel[1];
    const int64_t kz = tap / (w->kernel[2] * w->kernel[1]);
    const int64_t shift = kx * w->dilation[2] - w->before[2];
    int64_t first, end;
    plane += row / w->kernel_size * w->in_size;
    reach(w->out[2], w->in[2], w->stride[2], shift, &first, &end);
    for (int64_t done = 0; done < n;) {
        const int64_t line = (p0 + done) / w->out[2], x0 = (p0 + done) - line * w->out[2];
        const int64_t x1 = trm_host_min(w->out[2], x0 + n - done);
        const int64_t y = line % w->out[1] * w->stride[1] - w->before[1] + ky * w->dilation[1];
        const int64_t z = line / w->out[1] * w->stride[0] - w->before[0] + kz * w->dilation[0];
        int64_t a = first < x0 ? x0 : first > x1 ? x1 : first, b = end > x1 ? x1 : end < a ? a : end;
        if (y < 0 || y >= w->in[1] || z < 0 || z >= w->in[0]) {
            a = b = x1;
        }
        float *out = to + done - x0;
        memset(out + x0, 0, (size_t)(a - x0) * sizeof(float));
        if (b > a) {
            load_strided(job->args.dtype, job->args.x, plane + (z * w->in[1] + y) * w->in[2] + a * w->stride[2] + shift,
                         w->stride[2], b - a, out + a);
        }
        memset(out + b, 0, (size_t)(x1 - b) * sizeof(float));
        done += x1 - x0;
    }
}

/* sums [m, n] = rows m0 .. of the weight times the columns of positions p0 .. */
static void multiply(const columns_job *job, int64_t plane, int64_t m0, int64_t m, int64_t p0, int64_t n, float *sums,
                     int64_t stride)
{
    const trm_convolution_args *args = &job->args;
    float columns[TILE_K * TILE_P], converted[TILE_M * TILE_K];
    for (int64_t k0 = 0; k0 < job->k; k0 += TILE_K) {
        const int64_t k = trm_host_min(job->k - k0, TILE_K);
        const float *b = columns, *a = converted;
        int64_t ldb = n, lda = k;
        if (job->flat && args->dtype == TRM_F32) {
            b = (const float *)args->x + plane + k0 * args->w.in_size + p0;
            ldb = args->w.in_size;
        } else {
            for (int64_t row = 0; row < k; row++) {
                if (job->flat) {
                    load_strided(args->dtype, args->x, plane + (k0 + row) * args->w.in_size + p0, 1, n,
                                 columns + row * n);
                } else {
                    unfold_row(job, plane, k0 + row, p0, n, columns + row * n);
                }
            }
        }
        if (args->dtype == TRM_F32) {
            a = (const float *)args->weight + m0 * job->k + k0;
            lda = job->k;
        } else {
            for (int64_t row = 0; row < m; row++) {
                load_strided(args->dtype, args->weight, (m0 + row) * job->k + k0, 1, k, converted + row * k);
            }
        }
        trm_host_gemm(false, false, m, n, k, a, lda, b, ldb, k0 > 0, sums, stride);
    }
}

static void run_columns(void *user, int64_t begin, int64_t end)
{
    const columns_job *job = user;
    const trm_convolution_args *args = &job->args;
    const trm_windows *w = &args->w;
    float buffer[TILE_M * TILE_P];
    for (int64_t tile = begin; tile < end; tile++) {
        const int64_t p0 = tile % job->tiles_p * TILE_P, n = trm_host_min(w->out_size - p0, TILE_P);
        int64_t rest = tile / job->tiles_p;
        const int64_t in_group = rest % job->tiles_m * job->m;
        const int64_t m = trm_host_min(args->outputs - in_group, job->m);
        rest /= job->tiles_m;
        const int64_t group = rest % args->groups, batch = rest / args->groups;
        const int64_t m0 = group * args->outputs + in_group;
        const int64_t out = (batch * args->dims.d[1] + m0) * w->out_size + p0;
        float *sums = job->direct ? (float *)args->y + out : buffer;
        const int64_t stride = job->direct ? w->out_size : n;
        multiply(job, (batch * w->channels_in + group * args->channels) * w->in_size, m0, m, p0, n, sums, stride);
        for (int64_t row = 0; row < m; row++) {
            finish_row(args, m0 + row, out + row * w->out_size, n, sums + row * stride);
        }
    }
}

bool trm_host_convolution_columns_accepts(const trm_kernel_call *call)
{
    trm_convolution_args args;
    return trm_convolution_args_of(call, &args) && !args.channels_last && args.dtype != TRM_F64 && args.channels > 0 &&
           args.w.kernel_size > 0 && args.w.in_size <= INT32_MAX && args.w.out_size <= INT32_MAX &&
           args.channels * args.w.kernel_size <= INT32_MAX && trm_host_activation_is_known(args.activation);
}

trm_status trm_host_convolution_columns_run(const trm_kernel_call *call)
{
    columns_job job;
    if (trm_convolution_args_of(call, &job.args) && trm_dims_count(&job.args.dims) > 0) {
        job_init(&job, call);
        trm_host_for(call, job.args.w.batch * job.args.groups * job.tiles_m * job.tiles_p, 1, run_columns, &job);
    }
    return TRM_OK;
}

/* ---- shifted rows ---- */

TRM_VECTOR_CLONES static void add_scaled(const float *x, int64_t stride, int64_t n, float weight, float *sums)
{
    if (stride == 1) {
        for (int64_t j = 0; j < n; j++) {
            sums[j] += weight * x[j];
        }
    } else {
        for (int64_t j = 0; j < n; j++) {
            sums[j] += weight * x[j * stride];
        }
    }
}

/* sums[j] += weight * x[from + j * stride] */
static void add_shifted(const trm_convolution_args *args, int64_t from, int64_t stride, int64_t n, float weight,
                        float *sums)
{
    float buffer[TRM_HOST_BLOCK];
    if (args->dtype == TRM_F32) {
        add_scaled((const float *)args->x + from, stride, n, weight, sums);
    } else {
        load_strided(args->dtype, args->x, from, stride, n, buffer);
        add_scaled(buffer, 1, n, weight, sums);
    }
}

/* Outputs x0 .. x0 + n - 1 of row (z, y) of channel m in `sums`. */
static void sum_row(const trm_convolution_args *args, int64_t batch, int64_t m, const int64_t *start, int64_t x0,
                    int64_t n, float *sums)
{
    const trm_windows *w = &args->w;
    const int64_t first_channel = m / args->outputs * args->channels;
    for (int64_t c = 0; c < args->channels; c++) {
        const int64_t plane = (batch * w->channels_in + first_channel + c) * w->in_size;
        for (int64_t t = 0; t < w->kernel_size; t++) {
            const int64_t kx = t % w->kernel[2];
            const int64_t y = start[1] + t / w->kernel[2] % w->kernel[1] * w->dilation[1];
            const int64_t z = start[0] + t / (w->kernel[2] * w->kernel[1]) * w->dilation[0];
            if (y < 0 || y >= w->in[1] || z < 0 || z >= w->in[0]) {
                continue;
            }
            const int64_t shift = kx * w->dilation[2] - w->before[2];
            int64_t a, b;
            reach(x0 + n, w->in[2], w->stride[2], shift, &a, &b);
            a = a < x0 ? x0 : a;
            if (b > a) {
                const float weight =
                    trm_element_load_f32(args->dtype, args->weight, (m * args->channels + c) * w->kernel_size + t);
                add_shifted(args, plane + (z * w->in[1] + y) * w->in[2] + a * w->stride[2] + shift, w->stride[2], b - a,
                            weight, sums + a - x0);
            }
        }
    }
}

/* Lines begin .. end - 1 of the output's rows. */
static void run_rows(void *user, int64_t begin, int64_t end)
{
    const trm_convolution_args *args = user;
    const trm_windows *w = &args->w;
    float sums[TRM_HOST_BLOCK];
    for (int64_t line = begin; line < end; line++) {
        const int64_t row = line % w->out[1], rest = line / w->out[1];
        const int64_t layer = rest % w->out[0], plane = rest / w->out[0];
        const int64_t m = plane % args->dims.d[1], batch = plane / args->dims.d[1];
        const int64_t start[2] = {layer * w->stride[0] - w->before[0], row * w->stride[1] - w->before[1]};
        for (int64_t x0 = 0; x0 < w->out[2]; x0 += TRM_HOST_BLOCK) {
            const int64_t n = trm_host_min(w->out[2] - x0, TRM_HOST_BLOCK);
            memset(sums, 0, (size_t)n * sizeof(float));
            sum_row(args, batch, m, start, x0, n, sums);
            finish_row(args, m, line * w->out[2] + x0, n, sums);
        }
    }
}

bool trm_host_convolution_rows_accepts(const trm_kernel_call *call)
{
    trm_convolution_args args;
    /* With more outputs that share an input, a matrix product is faster. */
    return trm_convolution_args_of(call, &args) && !args.channels_last && args.dtype != TRM_F64 && args.outputs < 4 &&
           trm_host_activation_is_known(args.activation);
}

trm_status trm_host_convolution_rows_run(const trm_kernel_call *call)
{
    trm_convolution_args args;
    if (trm_convolution_args_of(call, &args) && trm_dims_count(&args.dims) > 0) {
        const trm_windows *w = &args.w;
        trm_host_for(call, w->batch * args.dims.d[1] * w->out[0] * w->out[1],
                     trm_host_row_grain(w->out[2] * args.channels * w->kernel_size), run_rows, &args);
    }
    return TRM_OK;
}
