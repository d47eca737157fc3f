/*
 * Kinds that read images between pixels: GRID_SAMPLE, ROI_POOL, DEFORMABLE_CONVOLUTION; one element of the output each.
 */
#ifndef TRM_KERNELS_VISION_SAMPLE_H
#define TRM_KERNELS_VISION_SAMPLE_H

#include <math.h>

#include "kernels/element.h"
#include "kernels/convolution/window.h"
#include "kernels/kernel.h"

/* ---- grid sample ------------------------------------------------------------------------------- */

typedef struct trm_grid_sample_args {
    trm_dims dims; /* [N, C, o1, o2, o3] */
    int64_t in[TRM_MAX_SPATIAL], in_size, out_size;
    int32_t n; /* spatial axes: the last n of three */
    const void *x, *grid;
    void *y;
    trm_dtype dtype, grid_dtype;
    trm_grid_sample_params p;
} trm_grid_sample_args;

static inline bool trm_grid_sample_args_of(const trm_kernel_call *call, trm_grid_sample_args *args)
{
    const trm_view *x = &call->inputs[0], *grid = &call->inputs[1], *y = &call->outputs[0];
    const int32_t n = x->dims.n - 2;
    if (call->n_inputs != 2 || call->n_outputs != 1 || n < 1 || n > TRM_MAX_SPATIAL || grid->dims.n != n + 2 ||
        y->dims.n != n + 2 || y->dtype != x->dtype || !trm_element_is_float(x->dtype) ||
        !trm_element_is_float(grid->dtype) || grid->dims.d[n + 1] != n) {
        return false;
    }
    args->n = n;
    args->dims.n = 2 + TRM_MAX_SPATIAL;
    args->dims.d[0] = y->dims.d[0];
    args->dims.d[1] = y->dims.d[1];
    args->in_size = args->out_size = 1;
    for (int32_t i = 0; i < TRM_MAX_SPATIAL; i++) {
        const int32_t from = i - (TRM_MAX_SPATIAL - n);
        args->in[i] = from < 0 ? 1 : x->dims.d[2 + from];
        args->dims.d[2 + i] = from < 0 ? 1 : y->dims.d[2 + from];
        args->in_size *= args->in[i];
        args->out_size *= args->dims.d[2 + i];
    }
    args->x = x->data;
    args->grid = grid->data;
    args->y = y->data;
    args->dtype = x->dtype;
    args->grid_dtype = grid->dtype;
    args->p = call->layer->grid_sample;
    return true;
}

/* x mirrored at low and high until it lies between them. */
TRM_ELEMENT double trm_grid_reflect(double x, double low, double high)
{
    const double range = high - low;
    if (range <= 0.0) {
        return low;
    }
    const double beyond = x < low ? low - x : x > high ? x - high : -1.0;
    if (beyond < 0.0) {
        return x;
    }
    const double turns = floor(beyond / range), rest = beyond - turns * range;
    const bool even = fmod(turns, 2.0) == 0.0;
    return (x < low) == even ? low + rest : high - rest;
}

/* Pixel position along an axis, or -1 for a zero outside. */
TRM_ELEMENT int64_t trm_grid_pixel(const trm_grid_sample_args *args, int32_t axis, int64_t at)
{
    const int64_t size = args->in[axis];
    if (at >= 0 && at < size) {
        return at;
    }
    if (args->p.padding == TRM_GRID_ZEROS) {
        return -1;
    }
    if (args->p.padding == TRM_GRID_BORDER) {
        return at < 0 ? 0 : size - 1;
    }
    const double low = args->p.align_corners ? 0.0 : -0.5;
    const int64_t inside = (int64_t)trm_grid_reflect((double)at, low, (double)size - 1.0 - low);
    return inside < 0 ? 0 : inside >= size ? size - 1 : inside;
}

/* Weight of tap k behind a coordinate whose part after the point is `rest`. */
TRM_ELEMENT double trm_grid_weight(trm_resize_mode mode, double rest, int32_t k)
{
    if (mode == TRM_RESIZE_LINEAR) {
        return k == 0 ? 1.0 - rest : rest;
    }
    const double a = -0.75, d = fabs(rest - (double)(k - 1));
    return d <= 1.0 ? ((a + 2.0) * d - (a + 3.0)) * d * d + 1.0 : ((a * d - 5.0 * a) * d + 8.0 * a) * d - 4.0 * a;
}

/* The coordinate along `axis` that the grid asks for at output i, in pixels. */
TRM_ELEMENT double trm_grid_coordinate(const trm_grid_sample_args *args, int32_t axis, int64_t point)
{
    const double size = (double)args->in[axis];
    const double g = trm_element_load_f64(args->grid_dtype, args->grid, point * args->n + (TRM_MAX_SPATIAL - 1 - axis));
    double x = args->p.align_corners ? (g + 1.0) / 2.0 * (size - 1.0) : ((g + 1.0) * size - 1.0) / 2.0;
    x = args->grid_dtype == TRM_F64 ? x : (double)(float)x;
    x = args->p.mode == TRM_RESIZE_NEAREST ? rint(x) : x;
    const double low = args->p.align_corners ? 0.0 : -0.5, high = size - 1.0 - low;
    if (!(x >= low && x <= high)) {
        /* Of cubic samples every tap is moved to the border by itself, as in torch. */
        if (args->p.padding == TRM_GRID_BORDER && args->p.mode != TRM_RESIZE_CUBIC) {
            x = x > 0.0 ? (x < size - 1.0 ? x : size - 1.0) : 0.0;
        } else if (args->p.padding == TRM_GRID_REFLECTION) {
            x = trm_grid_reflect(x, low, high);
        }
    }
    /* Far outside is outside, also for numbers that are none. */
    return x > -0x1p40 ? (x < 0x1p40 ? x : 0x1p40) : -0x1p40;
}

TRM_ELEMENT void trm_element_grid_sample(const trm_grid_sample_args *args, const int64_t *at, int64_t i)
{
    const int64_t place = (at[2] * args->dims.d[3] + at[3]) * args->dims.d[4] + at[4];
    const int64_t plane = (at[0] * args->dims.d[1] + at[1]) * args->in_size;
    const int32_t first = TRM_MAX_SPATIAL - args->n;
    const int32_t taps = args->p.mode == TRM_RESIZE_NEAREST ? 1 : args->p.mode == TRM_RESIZE_LINEAR ? 2 : 4;
    int64_t base[TRM_MAX_SPATIAL] = {0, 0, 0};
    double rest[TRM_MAX_SPATIAL] = {0.0, 0.0, 0.0};
    int32_t count[TRM_MAX_SPATIAL] = {1, 1, 1};
    for (int32_t axis = first; axis < TRM_MAX_SPATIAL; axis++) {
        const double x = trm_grid_coordinate(args, axis, at[0] * args->out_size + place);
        const double below = floor(x);
        base[axis] = (int64_t)below - (taps == 4 ? 1 : 0);
        rest[axis] = x - below;
        count[axis] = taps;
    }
    double sum = 0.0;
    for (int32_t a = 0; a < count[0]; a++) {
        const int64_t z = trm_grid_pixel(args, 0, base[0] + a);
        const double wz = count[0] > 1 ? trm_grid_weight(args->p.mode, rest[0], a) : 1.0;
        for (int32_t b = 0; z >= 0 && b < count[1]; b++) {
            const int64_t y = trm_grid_pixel(args, 1, base[1] + b);
            const double wy = count[1] > 1 ? wz * trm_grid_weight(args->p.mode, rest[1], b) : wz;
            for (int32_t c = 0; y >= 0 && c < count[2]; c++) {
                const int64_t x = trm_grid_pixel(args, 2, base[2] + c);
                const double w = count[2] > 1 ? wy * trm_grid_weight(args->p.mode, rest[2], c) : wy;
                if (x >= 0) {
                    sum +=
                        w * trm_element_load_f64(args->dtype, args->x, plane + (z * args->in[1] + y) * args->in[2] + x);
                }
            }
        }
    }
    trm_element_store_f64(args->dtype, args->y, i, sum);
}

/* ---- regions of interest ----------------------------------------------------------------------- */

typedef struct trm_roi_pool_args {
    trm_dims dims; /* [R, C, h, w] */
    int64_t batches, channels, height, width;
    const void *x, *rois;
    const int64_t *batch; /* or NULL: the first number of each roi */
    void *y;
    trm_dtype dtype;
    trm_roi_pool_params p;
} trm_roi_pool_args;

static inline bool trm_roi_pool_args_of(const trm_kernel_call *call, trm_roi_pool_args *args)
{
    const trm_view *x = &call->inputs[0], *rois = &call->inputs[1], *y = &call->outputs[0];
    const bool align = call->layer->roi_pool.op != TRM_ROI_POOL_MAX;
    if (call->n_inputs != (align ? 3 : 2) || call->n_outputs != 1 || x->dims.n != 4 || y->dims.n != 4 ||
        rois->dims.n != 2 || rois->dims.d[1] != (align ? 4 : 5) || !trm_element_is_float(x->dtype) ||
        rois->dtype != x->dtype || y->dtype != x->dtype || (align && call->inputs[2].dtype != TRM_I64)) {
        return false;
    }
    args->dims = y->dims;
    args->batches = x->dims.d[0];
    args->channels = x->dims.d[1];
    args->height = x->dims.d[2];
    args->width = x->dims.d[3];
    args->x = x->data;
    args->rois = rois->data;
    args->batch = align ? (const int64_t *)call->inputs[2].data : NULL;
    args->y = y->data;
    args->dtype = x->dtype;
    args->p = call->layer->roi_pool;
    return true;
}

/* One sample of ROI alignment: the four pixels around, weighted, into a sum or the largest of them. */
TRM_ELEMENT void trm_roi_sample(const trm_roi_pool_args *args, int64_t plane, double y, double x, bool first,
                                double *value)
{
    const double height = (double)args->height, width = (double)args->width;
    double part[4] = {0.0, 0.0, 0.0, 0.0};
    if (y >= -1.0 && y <= height && x >= -1.0 && x <= width) {
        y = y > 0.0 ? y : 0.0;
        x = x > 0.0 ? x : 0.0;
        y = y < height - 1.0 ? y : height - 1.0;
        x = x < width - 1.0 ? x : width - 1.0;
        const int64_t y0 = (int64_t)y, x0 = (int64_t)x;
        const int64_t y1 = y0 + (y0 < args->height - 1), x1 = x0 + (x0 < args->width - 1);
        const double ly = y - (double)y0, lx = x - (double)x0;
        part[0] = (1.0 - ly) * (1.0 - lx) * trm_element_load_f64(args->dtype, args->x, plane + y0 * args->width + x0);
        part[1] = (1.0 - ly) * lx * trm_element_load_f64(args->dtype, args->x, plane + y0 * args->width + x1);
        part[2] = ly * (1.0 - lx) * trm_element_load_f64(args->dtype, args->x, plane + y1 * args->width + x0);
        part[3] = ly * lx * trm_element_load_f64(args->dtype, args->x, plane + y1 * args->width + x1);
    }
    if (args->p.op == TRM_ROI_ALIGN_AVERAGE) {
        *value += part[0] + part[1] + part[2] + part[3];
    } else {
        for (int32_t k = 0; k < 4; k++) {
            *value = (first && k == 0) || part[k] > *value ? part[k] : *value;
        }
    }
}

/* Corners of roi r in pixels. */
TRM_ELEMENT void trm_roi_corners(const trm_roi_pool_args *args, int64_t r, double *corner)
{
    const int32_t skip = args->batch == NULL ? 1 : 0;
    for (int32_t k = 0; k < 4; k++) {
        corner[k] =
            trm_element_load_f64(args->dtype, args->rois, r * (4 + skip) + skip + k) * (double)args->p.spatial_scale;
    }
}

TRM_ELEMENT double trm_roi_align(const trm_roi_pool_args *args, const int64_t *at, int64_t plane)
{
    double corner[4];
    trm_roi_corners(args, at[0], corner);
    const double offset = args->p.half_pixel ? 0.5 : 0.0;
    double height = corner[3] - corner[1], width = corner[2] - corner[0];
    if (!args->p.half_pixel) {
        height = height > 1.0 ? height : 1.0;
        width = width > 1.0 ? width : 1.0;
    }
    const double bin_h = height / (double)args->p.height, bin_w = width / (double)args->p.width;
    /* Samples without end would come from a roi without end. */
    const double rows = args->p.sampling_ratio > 0 ? (double)args->p.sampling_ratio : ceil(bin_h);
    const double columns = args->p.sampling_ratio > 0 ? (double)args->p.sampling_ratio : ceil(bin_w);
    const int64_t n_rows = rows > 0.0 ? (rows < 0x1p20 ? (int64_t)rows : 1 << 20) : 0;
    const int64_t n_columns = columns > 0.0 ? (columns < 0x1p20 ? (int64_t)columns : 1 << 20) : 0;
    double value = 0.0;
    for (int64_t a = 0; a < n_rows; a++) {
        const double y = corner[1] - offset + ((double)at[2] + ((double)a + 0.5) / rows) * bin_h;
        for (int64_t b = 0; b < n_columns; b++) {
            const double x = corner[0] - offset + ((double)at[3] + ((double)b + 0.5) / columns) * bin_w;
            trm_roi_sample(args, plane, y, x, a == 0 && b == 0, &value);
        }
    }
    const double count = (double)(n_rows * n_columns);
    return args->p.op == TRM_ROI_ALIGN_AVERAGE && count > 1.0 ? value / count : value;
}

/* Whole pixels of the bin: corners, scaled in their type, are rounded, both ends belong to the roi. An empty bin gives
 * 0. */
TRM_ELEMENT double trm_roi_max(const trm_roi_pool_args *args, const int64_t *at, int64_t plane)
{
    double corner[4];
    trm_roi_corners(args, at[0], corner);
    for (int32_t k = 0; k < 4; k++) {
        corner[k] = round(args->dtype == TRM_F64 ? corner[k] : (double)(float)corner[k]);
    }
    double height = corner[3] - corner[1] + 1.0, width = corner[2] - corner[0] + 1.0;
    height = (height > 1.0 ? height : 1.0) / (double)args->p.height;
    width = (width > 1.0 ? width : 1.0) / (double)args->p.width;
    double y0 = floor((double)at[2] * height) + corner[1], y1 = ceil((double)(at[2] + 1) * height) + corner[1];
    double x0 = floor((double)at[3] * width) + corner[0], x1 = ceil((double)(at[3] + 1) * width) + corner[0];
    y0 = y0 > 0.0 ? y0 : 0.0;
    x0 = x0 > 0.0 ? x0 : 0.0;
    y1 = y1 < (double)args->height ? y1 : (double)args->height;
    x1 = x1 < (double)args->width ? x1 : (double)args->width;
    double best = 0.0;
    bool any = false;
    for (double y = y0; y < y1; y += 1.0) {
        for (double x = x0; x < x1; x += 1.0) {
            const double v = trm_element_load_f64(args->dtype, args->x, plane + (int64_t)y * args->width + (int64_t)x);
            best = !any || v > best ? v : best;
            any = true;
        }
    }
    return best;
}

TRM_ELEMENT void trm_element_roi_pool(const trm_roi_pool_args *args, const int64_t *at, int64_t i)
{
    const int64_t batch =
        args->batch != NULL ? args->batch[at[0]] : (int64_t)trm_element_load_f64(args->dtype, args->rois, at[0] * 5);
    double value = 0.0;
    if (batch >= 0 && batch < args->batches) { /* another image does not exist: zeros */
        const int64_t plane = (batch * args->channels + at[1]) * args->height * args->width;
        value = args->p.op == TRM_ROI_POOL_MAX ? trm_roi_max(args, at, plane) : trm_roi_align(args, at, plane);
    }
    trm_element_store_f64(args->dtype, args->y, i, value);
}

/* ---- deformable convolution -------------------------------------------------------------------- */

typedef struct trm_deformable_convolution_args {
    trm_dims dims; /* [N, M, oh, ow] */
    trm_windows w;
    int64_t groups, channels, outputs, offset_groups;
    const void *x, *weight, *offset, *bias, *mask;
    void *y;
    trm_dtype dtype;
} trm_deformable_convolution_args;

static inline bool trm_deformable_convolution_args_of(const trm_kernel_call *call,
                                                      trm_deformable_convolution_args *args)
{
    const trm_deformable_convolution_params *p = &call->layer->deformable_convolution;
    const trm_view *x = &call->inputs[0], *weight = &call->inputs[1], *y = &call->outputs[0];
    if (call->n_inputs < 3 || call->n_inputs > 5 || call->n_outputs != 1 || x->dims.n != 4 || weight->dims.n != 4 ||
        y->dims.n != 4 || call->inputs[2].dims.n != 4 || p->groups < 1 || p->offset_groups < 1 ||
        x->dims.d[1] % p->groups != 0 || x->dims.d[1] % p->offset_groups != 0 || y->dims.d[1] % p->groups != 0 ||
        !trm_element_is_float(x->dtype)) {
        return false;
    }
    for (int32_t i = 0; i < 5; i++) {
        if (i < call->n_inputs && call->inputs[i].dtype != TRM_DTYPE_NONE && call->inputs[i].dtype != x->dtype) {
            return false;
        }
    }
    trm_windows_init(&args->w, &x->dims, &y->dims, weight->dims.d + 2, p->stride, p->dilation, p->before,
                     TRM_AUTO_PAD_NONE);
    args->dims = y->dims;
    args->groups = p->groups;
    args->channels = x->dims.d[1] / p->groups;
    args->outputs = y->dims.d[1] / p->groups;
    args->offset_groups = p->offset_groups;
    args->x = x->data;
    args->weight = weight->data;
    args->offset = call->inputs[2].data;
    args->bias = trm_kernel_call_has(call, 3) ? call->inputs[3].data : NULL;
    args->mask = trm_kernel_call_has(call, 4) ? call->inputs[4].data : NULL;
    args->y = y->data;
    args->dtype = x->dtype;
    return true;
}

/* Bilinear, zeros outside. */
TRM_ELEMENT double trm_deformable_sample(const trm_deformable_convolution_args *args, int64_t plane, double y, double x)
{
    const int64_t height = args->w.in[1], width = args->w.in[2];
    if (!(y > -1.0 && x > -1.0 && y < (double)height && x < (double)width)) {
        return 0.0;
    }
    const double below = floor(y), left = floor(x);
    double sum = 0.0;
    for (int32_t a = 0; a < 2; a++) {
        for (int32_t b = 0; b < 2; b++) {
            const int64_t py = (int64_t)below + a, px = (int64_t)left + b;
            if (py >= 0 && py < height && px >= 0 && px < width) {
                const double wy = a == 0 ? 1.0 - (y - below) : y - below, wx = b == 0 ? 1.0 - (x - left) : x - left;
                sum += wy * wx * trm_element_load_f64(args->dtype, args->x, plane + py * width + px);
            }
        }
    }
    return sum;
}

TRM_ELEMENT void trm_element_deformable_convolution(const trm_deformable_convolution_args *args, const int64_t *at,
                                                    int64_t i)
{
    const trm_windows *w = &args->w;
    const int64_t group = at[1] / args->outputs, place = at[2] * args->dims.d[3] + at[3];
    const int64_t per_offset = w->channels_in / args->offset_groups;
    double sum = args->bias != NULL ? trm_element_load_f64(args->dtype, args->bias, at[1]) : 0.0;
    for (int64_t c = 0; c < args->channels; c++) {
        const int64_t channel = group * args->channels + c;
        const int64_t taps = (at[0] * args->offset_groups + channel / per_offset) * w->kernel_size;
        for (int64_t t = 0; t < w->kernel_size; t++) {
            const int64_t moved = 2 * (taps + t) * w->out_size + place;
            const double dy = trm_element_load_f64(args->dtype, args->offset, moved);
            const double dx = trm_element_load_f64(args->dtype, args->offset, moved + w->out_size);
            const double y = (double)(at[2] * w->stride[1] - w->before[1] + t / w->kernel[2] * w->dilation[1]) + dy;
            const double x = (double)(at[3] * w->stride[2] - w->before[2] + t % w->kernel[2] * w->dilation[2]) + dx;
            double v = trm_deformable_sample(args, (at[0] * w->channels_in + channel) * w->in_size, y, x);
            if (args->mask != NULL) {
                v *= trm_element_load_f64(args->dtype, args->mask, (taps + t) * w->out_size + place);
            }
            sum +=
                v * trm_element_load_f64(args->dtype, args->weight, (at[1] * args->channels + c) * w->kernel_size + t);
        }
    }
    trm_element_store_f64(args->dtype, args->y, i, sum);
}

#endif
