/*
 * Transposed convolutions: the reference, element by element; and for f32 products of the weight and tiles of positions
 * whose rows are added to where their taps lie in the output.
 */
#include "kernels/convolution/element.h"

#include <string.h>

#include "kernels/host/element.h"
#include "kernels/host/gemm.h"

TRM_HOST_PLACED_ELEMENTS(deconvolution, trm_convolution_args)

bool trm_host_deconvolution_accepts(const trm_kernel_call *call)
{
    trm_convolution_args args;
    return trm_deconvolution_args_of(call, &args);
}

trm_status trm_host_deconvolution_run(const trm_kernel_call *call)
{
    trm_convolution_args args;
    if (trm_deconvolution_args_of(call, &args)) {
        trm_host_for_each(call, trm_dims_count(&args.dims), args.channels * args.w.kernel_size, deconvolution_range,
                          &args);
    }
    return TRM_OK;
}

#define TILE      65536 /* elements of products, 256 KiB on the stack */
#define POSITIONS 256   /* of the input in a tile */
#define OUTPUTS   16    /* channels of the output that a thread takes, at least, where a tile has room for them */

typedef struct product_job {
    trm_convolution_args args;
    int64_t outputs, blocks; /* channels of the output at a time, and how often per group */
} product_job;

TRM_VECTOR_CLONES static void add_spread(const float *restrict from, int64_t n, int64_t stride, float *restrict to)
{
    if (stride == 1) {
        for (int64_t i = 0; i < n; i++) {
            to[i] += from[i];
        }
    } else if (stride == 2) {
        for (int64_t i = 0; i < n; i++) {
            to[2 * i] += from[i];
        }
    } else {
        for (int64_t i = 0; i < n; i++) {
            to[i * stride] += from[i];
        }
    }
}

/* Adds what tap `tap` makes of positions p0 .. p0 + n - 1 of the input to a plane of the output. */
static void add_tap(const trm_windows *w, int64_t tap, int64_t p0, int64_t n, const float *products, float *plane)
{
    const int64_t kx = tap % w->kernel[2], ky = tap / w->kernel[2] % w->kernel[1];
    const int64_t kz = tap / (w->kernel[2] * w->kernel[1]);
    const int64_t shift = kx * w->dilation[2] - w->before[2], stride = w->stride[2];
    /* Columns of the input that come to lie within the output. */
    const int64_t least = shift >= 0 ? 0 : (-shift + stride - 1) / stride;
    const int64_t most = shift >= w->out[2] ? 0 : (w->out[2] - 1 - shift) / stride + 1;
    for (int64_t done = 0; done < n;) {
        const int64_t line = (p0 + done) / w->in[2], x0 = p0 + done - line * w->in[2];
        const int64_t x1 = trm_host_min(w->in[2], x0 + n - done);
        const int64_t y = line % w->in[1] * w->stride[1] - w->before[1] + ky * w->dilation[1];
        const int64_t z = line / w->in[1] * w->stride[0] - w->before[0] + kz * w->dilation[0];
        const int64_t first = least > x0 ? least : x0, end = trm_host_min(most, x1);
        if (y >= 0 && y < w->out[1] && z >= 0 && z < w->out[0] && end > first) {
            add_spread(products + done + first - x0, end - first, stride,
                       plane + (z * w->out[1] + y) * w->out[2] + first * stride + shift);
        }
        done += x1 - x0;
    }
}

/* Bias, residual and activation of a plane. */
static void finish_plane(const trm_convolution_args *args, int64_t m, float *plane)
{
    const int64_t n = args->w.out_size;
    const float bias = args->bias != NULL ? ((const float *)args->bias)[m] : 0.0f;
    const float *residual =
        args->residual != NULL ? (const float *)args->residual + (plane - (const float *)args->y) : NULL;
    for (int64_t i = 0; i < n && args->bias != NULL; i++) {
        plane[i] += bias;
    }
    for (int64_t i = 0; i < n && residual != NULL; i++) {
        plane[i] += residual[i];
    }
    trm_host_activate(args->activation, plane, n);
}

static void run_products(void *user, int64_t begin, int64_t end)
{
    const product_job *job = user;
    const trm_convolution_args *args = &job->args;
    const trm_windows *w = &args->w;
    const int64_t taps = w->kernel_size, row = args->outputs * taps; /* of the weight, from channel to channel */
    float products[TILE];
    for (int64_t item = begin; item < end; item++) {
        const int64_t block = item % job->blocks, group = item / job->blocks % args->groups;
        const int64_t batch = item / job->blocks / args->groups, first = block * job->outputs;
        const int64_t m = trm_host_min(args->outputs - first, job->outputs);
        const int64_t channel = group * args->outputs + first;
        const float *weight = (const float *)args->weight + group * args->channels * row + first * taps;
        const float *x = (const float *)args->x + (batch * w->channels_in + group * args->channels) * w->in_size;
        float *y = (float *)args->y + (batch * args->dims.d[1] + channel) * w->out_size;
        memset(y, 0, (size_t)(m * w->out_size) * sizeof(float));
        for (int64_t p0 = 0; p0 < w->in_size; p0 += POSITIONS) {
            const int64_t n = trm_host_min(w->in_size - p0, POSITIONS);
            trm_host_gemm(true, false, m * taps, n, args->channels, weight, row, x + p0, w->in_size, false, products,
                          n);
            for (int64_t i = 0; i < m * taps; i++) {
                add_tap(w, i % taps, p0, n, products + i * n, y + i / taps * w->out_size);
            }
        }
        for (int64_t i = 0; i < m; i++) {
            finish_plane(args, channel + i, y + i * w->out_size);
        }
    }
}

bool trm_host_deconvolution_products_accepts(const trm_kernel_call *call)
{
    trm_convolution_args args;
    return trm_deconvolution_args_of(call, &args) && args.dtype == TRM_F32 && args.channels > 0 &&
           args.w.kernel_size > 0 && args.w.kernel_size <= TILE / POSITIONS && args.w.in_size > 0 &&
           args.w.in_size <= INT32_MAX && args.channels <= INT32_MAX &&
           args.outputs * args.w.kernel_size <= INT32_MAX && trm_host_activation_is_known(args.activation);
}

trm_status trm_host_deconvolution_products_run(const trm_kernel_call *call)
{
    product_job job;
    if (trm_deconvolution_args_of(call, &job.args) && trm_dims_count(&job.args.dims) > 0) {
        const trm_convolution_args *args = &job.args;
        const int64_t room = TILE / POSITIONS / args->w.kernel_size;
        job.outputs = room < OUTPUTS ? room : OUTPUTS;
        job.blocks = (args->outputs + job.outputs - 1) / job.outputs;
        trm_host_for(call, args->w.batch * args->groups * job.blocks, 1, run_products, &job);
    }
    return TRM_OK;
}
