/* Cases and meanings of kinds over images other than convolution and pool, and of recurrent layers. */
#include "kernels/cases/support.h"
#include "kernels/cases/cases.h"

#include "graph/network.h"
#include "support/support.h"

static const trm_dtype real_types[] = {TRM_F32, TRM_F16, TRM_BF16, TRM_F64};

static bool has_input(const kernel_case *test, int32_t i)
{
    return i < test->n_inputs && test->inputs[i].dtype != TRM_DTYPE_NONE;
}

static void add_nothing(kernel_case *test)
{
    test->inputs[test->n_inputs++] = (kernel_case_input){.dtype = TRM_DTYPE_NONE};
}

/* Element of x at a place, 0 outside. */
static double at_or_zero(const trm_dims *dims, const double *x, const int64_t *i)
{
    for (int32_t axis = 0; axis < dims->n; axis++) {
        if (i[axis] < 0 || i[axis] >= dims->d[axis]) {
            return 0.0;
        }
    }
    return x[index_of(dims, i)];
}

/* ---- transposed convolution --------------------------------------------------------------------- */

/* Every input adds its window to the output. */
static void meaning_deconvolution(const kernel_case *test, double *const *inputs, double *const *outputs)
{
    const trm_convolution_params *p = &test->layer.convolution;
    const trm_dims *x = &test->inputs[0].dims, *w = &test->inputs[1].dims, *y = &test->outputs[0].dims;
    for (int64_t i = 0; i < trm_dims_count(y); i++) {
        outputs[0][i] = has_input(test, 2) ? inputs[2][place_of(y, i).i[1]] : 0.0;
    }
    for (int64_t i = 0; i < trm_dims_count(x); i++) {
        const place at = place_of(x, i);
        const int64_t group = at.i[1] / (x->d[1] / p->groups), taps = trm_dims_count(w) / w->d[0];
        for (int64_t t = 0; t < taps; t++) {
            const place tap = place_of(w, at.i[1] * taps + t);
            place to = {{at.i[0], group * w->d[1] + tap.i[1]}};
            bool inside = true;
            for (int32_t axis = 2; axis < x->n; axis++) {
                const int32_t k = axis - 2;
                int64_t before = p->before[k];
                const int64_t full = (int64_t)p->stride[k] * (x->d[axis] - 1) + p->output_padding[k] +
                                     p->dilation[k] * (w->d[axis] - 1) + 1;
                if (p->auto_pad != TRM_AUTO_PAD_NONE || has_input(test, 3)) {
                    const int64_t over = full > y->d[axis] ? full - y->d[axis] : 0;
                    before = p->auto_pad == TRM_AUTO_PAD_SAME_UPPER ? over / 2 : (over + 1) / 2;
                }
                to.i[axis] = at.i[axis] * p->stride[k] + tap.i[axis] * p->dilation[k] - before;
                inside = inside && to.i[axis] >= 0 && to.i[axis] < y->d[axis];
            }
            if (inside) {
                outputs[0][index_of(y, to.i)] += inputs[0][i] * inputs[1][at.i[1] * taps + t];
            }
        }
    }
    for (int64_t i = 0; i < trm_dims_count(y); i++) {
        outputs[0][i] = meaning_activation(p->activation, outputs[0][i]);
    }
}

static void deconvolution_case(kernel_case_bench *bench, trm_dtype dtype, trm_dims x, trm_dims w, trm_dims y,
                               trm_convolution_params p, const double *sizes)
{
    kernel_case test = new_case(TRM_LAYER_DECONVOLUTION, "%s of %lldd, groups %d stride %d", trm_dtype_name(dtype),
                                (long long)x.n - 2, (int)p.groups, (int)p.stride[0]);
    test.layer.convolution = p;
    test.tolerance = 4.0;
    add_data(&test, dtype, x);
    add_data(&test, dtype, w);
    add_data(&test, dtype, DIMS(y.d[1]));
    if (sizes != NULL) {
        add_input(&test, TRM_I64, DIMS(x.n - 2), 0, 0)->values = sizes;
    }
    add_output(&test, dtype, y);
    kernel_case_run(bench, &test, meaning_deconvolution);
}

static void deconvolution_cases(kernel_case_bench *bench)
{
    static const double sizes[] = {8, 9};
    for (int32_t t = 0; t < COUNT(real_types); t++) {
        deconvolution_case(bench, real_types[t], DIMS(2, 4, 5, 6), DIMS(4, 3, 3, 2), DIMS(2, 6, 10, 11),
                           (trm_convolution_params){.groups = 2,
                                                    .stride = {2, 2},
                                                    .dilation = {1, 1},
                                                    .before = {1, 1},
                                                    .after = {0, 0},
                                                    .activation = TRM_ACTIVATION_RELU},
                           NULL);
    }
    deconvolution_case(bench, TRM_F32, DIMS(1, 3, 7), DIMS(3, 5, 4), DIMS(1, 5, 27),
                       (trm_convolution_params){.groups = 1, .stride = {3}, .dilation = {2}, .output_padding = {2}},
                       NULL);
    deconvolution_case(bench, TRM_F32, DIMS(1, 3, 4, 4), DIMS(3, 2, 3, 3), DIMS(1, 2, 8, 9),
                       (trm_convolution_params){.groups = 1, .stride = {2, 2}, .dilation = {1, 1}}, sizes);
    deconvolution_case(
        bench, TRM_F32, DIMS(1, 2, 3, 4, 5), DIMS(2, 2, 2, 3, 3), DIMS(1, 2, 6, 8, 10),
        (trm_convolution_params){
            .groups = 1, .stride = {2, 2, 2}, .dilation = {1, 1, 1}, .auto_pad = TRM_AUTO_PAD_SAME_LOWER},
        NULL);
}

/* ---- deformable convolution --------------------------------------------------------------------- */

static double between(const trm_dims *dims, const double *x, int64_t n, int64_t c, double row, double column)
{
    const double r0 = floor(row), c0 = floor(column);
    double sum = 0.0;
    for (int32_t k = 0; k < 4; k++) {
        const int64_t at[] = {n, c, (int64_t)r0 + k / 2, (int64_t)c0 + k % 2};
        sum += (1.0 - fabs(row - (r0 + k / 2))) * (1.0 - fabs(column - (c0 + k % 2))) * at_or_zero(dims, x, at);
    }
    return sum;
}

static void meaning_deformable(const kernel_case *test, double *const *inputs, double *const *outputs)
{
    const trm_deformable_convolution_params *p = &test->layer.deformable_convolution;
    const trm_dims *x = &test->inputs[0].dims, *w = &test->inputs[1].dims, *y = &test->outputs[0].dims;
    const trm_dims *offset = &test->inputs[2].dims;
    for (int64_t i = 0; i < trm_dims_count(y); i++) {
        const place at = place_of(y, i);
        double sum = has_input(test, 3) ? inputs[3][at.i[1]] : 0.0;
        for (int64_t t = 0; t < w->d[1] * w->d[2] * w->d[3]; t++) {
            const place tap = place_of(w, at.i[1] * w->d[1] * w->d[2] * w->d[3] + t);
            const int64_t channel = at.i[1] / (y->d[1] / p->groups) * w->d[1] + tap.i[1];
            const int64_t which =
                channel / (x->d[1] / p->offset_groups) * w->d[2] * w->d[3] + tap.i[2] * w->d[3] + tap.i[3];
            const int64_t of_row[] = {at.i[0], 2 * which, at.i[2], at.i[3]};
            const int64_t of_column[] = {at.i[0], 2 * which + 1, at.i[2], at.i[3]};
            const double row = (double)(at.i[2] * p->stride[0] + tap.i[2] * p->dilation[0] - p->before[0]) +
                               inputs[2][index_of(offset, of_row)];
            const double column = (double)(at.i[3] * p->stride[1] + tap.i[3] * p->dilation[1] - p->before[1]) +
                                  inputs[2][index_of(offset, of_column)];
            double v = between(x, inputs[0], at.i[0], channel, row, column);
            if (has_input(test, 4)) {
                const int64_t of_mask[] = {at.i[0], which, at.i[2], at.i[3]};
                v *= inputs[4][index_of(&test->inputs[4].dims, of_mask)];
            }
            sum += v * inputs[1][at.i[1] * w->d[1] * w->d[2] * w->d[3] + t];
        }
        outputs[0][i] = sum;
    }
}

static void deformable_cases(kernel_case_bench *bench)
{
    for (int32_t t = 0; t < 2 * COUNT(real_types); t++) {
        const trm_dtype dtype = real_types[t / 2];
        kernel_case test =
            new_case(TRM_LAYER_DEFORMABLE_CONVOLUTION, "%s%s", trm_dtype_name(dtype), t % 2 ? " mask" : "");
        test.layer.deformable_convolution = (trm_deformable_convolution_params){
            .groups = 2, .offset_groups = 2, .stride = {2, 1}, .dilation = {1, 2}, .before = {1, 1}, .after = {1, 1}};
        test.tolerance = 4.0;
        add_data(&test, dtype, DIMS(2, 4, 7, 8));
        add_data(&test, dtype, DIMS(6, 2, 3, 2));
        add_data(&test, dtype, DIMS(2, 24, 4, 8));
        if (t % 2) {
            add_nothing(&test);
            add_data(&test, dtype, DIMS(2, 12, 4, 8));
        } else {
            add_data(&test, dtype, DIMS(6));
        }
        add_output(&test, dtype, DIMS(2, 6, 4, 8));
        kernel_case_run(bench, &test, meaning_deformable);
    }
}

/* ---- resize ------------------------------------------------------------------------------------- */

static double resize_coordinate(trm_resize_coordinates coordinates, int64_t in, int64_t out, int64_t at)
{
    const double scale = (double)out / (double)in;
    switch (coordinates) {
    case TRM_RESIZE_ASYMMETRIC:
        return (double)at / scale;
    case TRM_RESIZE_ALIGN_CORNERS: /* of the size that comes out, whatever scale asked for it */
        return out == 1 ? 0.0 : (double)at * (double)(in - 1) / (double)(out - 1);
    case TRM_RESIZE_PYTORCH_HALF_PIXEL:
        return out == 1 ? 0.0 : ((double)at + 0.5) / scale - 0.5;
    default:
        return ((double)at + 0.5) / scale - 0.5;
    }
}

/* Weight of input position k for output position `at` of an axis. */
static double resize_weight(const trm_resize_params *p, int64_t in, int64_t out, int64_t at, int64_t k)
{
    const double scale = (double)out / (double)in;
    const double x = resize_coordinate(p->coordinates, in, out, at);
    if (p->mode == TRM_RESIZE_NEAREST) { /* floor, in whole numbers: twice the coordinate, times out */
        const int64_t twice = p->coordinates == TRM_RESIZE_ASYMMETRIC ? 2 * at * in : (2 * at + 1) * in - out;
        const int64_t nearest = twice < 0 ? 0 : twice / (2 * out);
        return (double)(k == (nearest >= in ? in - 1 : nearest));
    }
    const double stretch = p->antialias && scale < 1.0 ? scale : 1.0, reach = p->mode == TRM_RESIZE_LINEAR ? 1.0 : 2.0;
    double own = 0.0, all = 0.0;
    for (int64_t i = (int64_t)floor(x - reach / stretch) - 1; i <= (int64_t)ceil(x + reach / stretch) + 1; i++) {
        const double d = fabs((double)i - x) * stretch, a = (double)p->cubic_a;
        const double w = p->mode == TRM_RESIZE_LINEAR ? fmax(0.0, 1.0 - d)
                         : d <= 1.0                   ? (a + 2) * d * d * d - (a + 3) * d * d + 1
                         : d < 2.0                    ? a * d * d * d - 5 * a * d * d + 8 * a * d - 4 * a
                                                      : 0.0;
        const int64_t inside = i < 0 ? 0 : i >= in ? in - 1 : i;
        if (i == inside || !p->exclude_outside) {
            all += w;
            own += inside == k ? w : 0.0;
        }
    }
    return own / all;
}

static void meaning_resize(const kernel_case *test, double *const *inputs, double *const *outputs)
{
    const trm_dims *x = &test->inputs[0].dims, *y = &test->outputs[0].dims;
    for (int64_t i = 0; i < trm_dims_count(y); i++) {
        const place at = place_of(y, i);
        double sum = 0.0;
        for (int64_t j = 0; j < trm_dims_count(x); j++) {
            const place from = place_of(x, j);
            double w = 1.0;
            for (int32_t axis = 0; axis < x->n && w != 0.0; axis++) {
                w *= x->d[axis] == y->d[axis]
                         ? (double)(from.i[axis] == at.i[axis])
                         : resize_weight(&test->layer.resize, x->d[axis], y->d[axis], at.i[axis], from.i[axis]);
            }
            sum += w * inputs[0][j];
        }
        outputs[0][i] = sum;
    }
}

/* By `sizes`, or by `scales` if there are none. */
static void resize_case_by(kernel_case_bench *bench, trm_dtype dtype, trm_resize_params p, trm_dims x,
                           const double *sizes, const double *scales, trm_dims y)
{
    kernel_case test = new_case(TRM_LAYER_RESIZE, "%s mode %d coordinates %d%s%s to %lld", trm_dtype_name(dtype),
                                (int)p.mode, (int)p.coordinates, p.antialias ? " antialias" : "",
                                p.exclude_outside ? " exclude" : "", (long long)y.d[y.n - 1]);
    p.axes = 1u << 2 | 1u << 3;
    p.nearest = TRM_RESIZE_FLOOR;
    p.cubic_a = -0.75f;
    test.layer.resize = p;
    test.tolerance = p.mode == TRM_RESIZE_NEAREST ? 0.0 : 4.0;
    add_data(&test, dtype, x);
    add_nothing(&test);
    if (sizes != NULL) {
        add_nothing(&test);
        add_input(&test, TRM_I64, DIMS(2), 0, 0)->values = sizes;
    } else {
        add_input(&test, TRM_F32, DIMS(2), 0, 0)->values = scales;
    }
    add_output(&test, dtype, y);
    kernel_case_run(bench, &test, meaning_resize);
}

static void resize_case(kernel_case_bench *bench, trm_dtype dtype, trm_resize_params p, trm_dims x, const double *sizes,
                        trm_dims y)
{
    resize_case_by(bench, dtype, p, x, sizes, NULL, y);
}

static void resize_cases(kernel_case_bench *bench)
{
    static const double larger[] = {10, 9}, smaller[] = {3, 4};
    for (int32_t mode = TRM_RESIZE_NEAREST; mode <= TRM_RESIZE_CUBIC; mode++) {
        for (int32_t t = 0; t < COUNT(real_types); t++) {
            resize_case(bench, real_types[t], (trm_resize_params){.mode = (trm_resize_mode)mode}, DIMS(2, 2, 5, 6),
                        larger, DIMS(2, 2, 10, 9));
        }
        for (int32_t k = 0; k < 4; k++) {
            const trm_resize_params p = {.mode = (trm_resize_mode)mode,
                                         .coordinates = k % 2 ? TRM_RESIZE_ASYMMETRIC : TRM_RESIZE_HALF_PIXEL,
                                         .antialias = k >= 2 && mode != TRM_RESIZE_NEAREST,
                                         .exclude_outside = k == 1 && mode == TRM_RESIZE_CUBIC};
            resize_case(bench, TRM_F32, p, DIMS(2, 2, 5, 6), smaller, DIMS(2, 2, 3, 4));
            resize_case(bench, TRM_F32, p, DIMS(2, 2, 5, 6), larger, DIMS(2, 2, 10, 9));
        }
    }
    resize_case(bench, TRM_U8, (trm_resize_params){.mode = TRM_RESIZE_NEAREST}, DIMS(2, 2, 5, 6), larger,
                DIMS(2, 2, 10, 9));
    resize_case(bench, TRM_BOOL, (trm_resize_params){.mode = TRM_RESIZE_NEAREST}, DIMS(2, 2, 5, 6), smaller,
                DIMS(2, 2, 3, 4));
    static const double to_one[] = {1, 9}, scales[] = {2.5, 1.5};
    for (int32_t mode = TRM_RESIZE_LINEAR; mode <= TRM_RESIZE_CUBIC; mode++) {
        for (int32_t k = 0; k < 4; k++) {
            const trm_resize_params p = {.mode = (trm_resize_mode)mode,
                                         .coordinates =
                                             k % 2 ? TRM_RESIZE_ALIGN_CORNERS : TRM_RESIZE_PYTORCH_HALF_PIXEL,
                                         .antialias = k >= 2};
            resize_case(bench, TRM_F32, p, DIMS(2, 2, 5, 6), larger, DIMS(2, 2, 10, 9));
            resize_case(bench, TRM_F32, p, DIMS(2, 2, 5, 6), to_one, DIMS(2, 2, 1, 9));
        }
        resize_case_by(bench, TRM_F32,
                       (trm_resize_params){.mode = (trm_resize_mode)mode, .coordinates = TRM_RESIZE_ALIGN_CORNERS},
                       DIMS(2, 2, 5, 5), NULL, scales, DIMS(2, 2, 12, 7));
    }
    /* Sizes at which a rounded scale misses positions that are whole numbers. */
    static const double by_18_36[] = {18, 36}, by_22_54[] = {22, 54};
    for (int32_t k = 0; k < 2; k++) {
        const trm_resize_params p = {.mode = TRM_RESIZE_NEAREST,
                                     .coordinates = k == 0 ? TRM_RESIZE_ASYMMETRIC : TRM_RESIZE_HALF_PIXEL};
        resize_case(bench, TRM_F32, p, DIMS(1, 1, 14, 14), by_18_36, DIMS(1, 1, 18, 36));
        resize_case(bench, TRM_F32, p, DIMS(1, 1, 10, 10), by_22_54, DIMS(1, 1, 22, 54));
    }
}

/* ---- samples ------------------------------------------------------------------------------------ */

/* Bilinear with zeros outside. */
static void meaning_grid_sample(const kernel_case *test, double *const *inputs, double *const *outputs)
{
    const trm_dims *x = &test->inputs[0].dims, *y = &test->outputs[0].dims;
    for (int64_t i = 0; i < trm_dims_count(y); i++) {
        const place at = place_of(y, i);
        const double *g = inputs[1] + 2 * ((at.i[0] * y->d[2] + at.i[2]) * y->d[3] + at.i[3]);
        const double h = (double)x->d[2], w = (double)x->d[3];
        const bool corners = test->layer.grid_sample.align_corners;
        const double row = corners ? (g[1] + 1) / 2 * (h - 1) : ((g[1] + 1) * h - 1) / 2;
        const double column = corners ? (g[0] + 1) / 2 * (w - 1) : ((g[0] + 1) * w - 1) / 2;
        outputs[0][i] = between(x, inputs[0], at.i[0], at.i[1], (double)(float)row, (double)(float)column);
    }
}

/* Where a position off the border is read, or -1. */
static int64_t grid_tap(const trm_grid_sample_params *p, int64_t at, int64_t size)
{
    const int64_t period = p->align_corners ? 2 * (size - 1) : 2 * size;
    if (p->padding == TRM_GRID_REFLECTION && period > 0) { /* about the last pixel, or about its outer edge */
        at = (at % period + period) % period;
        at = at < size ? at : (p->align_corners ? period : period - 1) - at;
    }
    return at >= 0 && at < size ? at : p->padding == TRM_GRID_ZEROS ? -1 : at < 0 ? 0 : size - 1;
}

/* Bicubic: each of the 16 taps is padded by itself. */
static void meaning_grid_cubic(const kernel_case *test, double *const *inputs, double *const *outputs)
{
    const trm_grid_sample_params *p = &test->layer.grid_sample;
    const trm_dims *x = &test->inputs[0].dims, *y = &test->outputs[0].dims;
    for (int64_t i = 0; i < trm_dims_count(y); i++) {
        const place at = place_of(y, i);
        const double *g = inputs[1] + 2 * ((at.i[0] * y->d[2] + at.i[2]) * y->d[3] + at.i[3]);
        double pixel[2], sum = 0.0;
        for (int32_t axis = 0; axis < 2; axis++) {
            const double size = (double)x->d[2 + axis], from = g[1 - axis] + 1.0;
            pixel[axis] = (double)(float)(p->align_corners ? from / 2.0 * (size - 1.0) : (from * size - 1.0) / 2.0);
        }
        for (int64_t k = 0; k < 16; k++) {
            double w = 1.0;
            int64_t tap[2];
            for (int32_t axis = 0; axis < 2; axis++) {
                const int64_t to = (int64_t)floor(pixel[axis]) - 1 + (axis == 0 ? k / 4 : k % 4);
                const double a = -0.75, d = fabs((double)to - pixel[axis]);
                w *= d <= 1.0 ? (a + 2.0) * d * d * d - (a + 3.0) * d * d + 1.0
                              : a * d * d * d - 5.0 * a * d * d + 8.0 * a * d - 4.0 * a;
                tap[axis] = grid_tap(p, to, x->d[2 + axis]);
            }
            const bool inside = tap[0] >= 0 && tap[1] >= 0;
            const int64_t plane = (at.i[0] * x->d[1] + at.i[1]) * x->d[2];
            sum += inside ? w * inputs[0][(plane + tap[0]) * x->d[3] + tap[1]] : 0.0;
        }
        outputs[0][i] = sum;
    }
}

static void grid_sample_cases(kernel_case_bench *bench)
{
    for (int32_t padding = TRM_GRID_ZEROS; padding <= TRM_GRID_REFLECTION; padding++) {
        for (int32_t corners = 0; corners < 2; corners++) {
            kernel_case test = new_case(TRM_LAYER_GRID_SAMPLE, "cubic padding %d align %d", (int)padding, (int)corners);
            test.layer.grid_sample = (trm_grid_sample_params){
                .mode = TRM_RESIZE_CUBIC, .padding = (trm_grid_padding)padding, .align_corners = corners};
            test.tolerance = 16.0;
            add_data(&test, TRM_F32, DIMS(2, 3, 4, 5));
            add_input(&test, TRM_F32, DIMS(2, 5, 6, 2), -2.2, 2.2);
            add_output(&test, TRM_F32, DIMS(2, 3, 5, 6));
            kernel_case_run(bench, &test, meaning_grid_cubic);
        }
    }
    for (int32_t t = 0; t < 2 * COUNT(real_types); t++) {
        const trm_dtype dtype = real_types[t / 2];
        kernel_case test = new_case(TRM_LAYER_GRID_SAMPLE, "%s align %d", trm_dtype_name(dtype), (int)(t % 2));
        test.layer.grid_sample = (trm_grid_sample_params){.mode = TRM_RESIZE_LINEAR, .align_corners = t % 2};
        test.tolerance = dtype == TRM_F64 ? 1e8 : 8.0; /* coordinates of f64 are not rounded by the kernel */
        add_data(&test, dtype, DIMS(2, 3, 5, 7));
        add_input(&test, dtype, DIMS(2, 4, 6, 2), -1.3, 1.3);
        add_output(&test, dtype, DIMS(2, 3, 4, 6));
        kernel_case_run(bench, &test, meaning_grid_sample);
    }
}

/* ---- channels ----------------------------------------------------------------------------------- */

static void meaning_group_norm(const kernel_case *test, double *const *inputs, double *const *outputs)
{
    const trm_group_norm_params *p = &test->layer.group_norm;
    const trm_dims *x = &test->inputs[0].dims;
    const int64_t groups = p->groups == 0 ? x->d[1] : p->groups, n = trm_dims_count(x) / (x->d[0] * groups);
    for (int64_t i = 0; i < trm_dims_count(x); i++) {
        const double *group = inputs[0] + i / n * n;
        double mean = 0.0, variance = 0.0;
        for (int64_t j = 0; j < n; j++) {
            mean += group[j] / (double)n;
        }
        for (int64_t j = 0; j < n; j++) {
            variance += (group[j] - mean) * (group[j] - mean) / (double)n;
        }
        const int64_t channel = place_of(x, i).i[1];
        const double scale = has_input(test, 1) ? inputs[1][channel] : 1.0;
        const double bias = has_input(test, 2) ? inputs[2][channel] : 0.0;
        outputs[0][i] =
            meaning_activation(p->activation, (inputs[0][i] - mean) / sqrt(variance + (double)p->eps) * scale + bias);
    }
}

static void meaning_lrn(const kernel_case *test, double *const *inputs, double *const *outputs)
{
    const trm_lrn_params *p = &test->layer.lrn;
    const trm_dims *x = &test->inputs[0].dims;
    for (int64_t i = 0; i < trm_dims_count(x); i++) {
        place at = place_of(x, i);
        const int64_t channel = at.i[1];
        double sum = 0.0;
        for (at.i[1] = channel - (p->size - 1) / 2; at.i[1] <= channel + p->size / 2; at.i[1]++) {
            const double v = at_or_zero(x, inputs[0], at.i);
            sum += v * v;
        }
        outputs[0][i] = inputs[0][i] / pow((double)p->bias + (double)p->alpha / p->size * sum, (double)p->beta);
    }
}

static void meaning_col2im(const kernel_case *test, double *const *inputs, double *const *outputs)
{
    const trm_col2im_params *p = &test->layer.col2im;
    const trm_dims *x = &test->inputs[0].dims, *y = &test->outputs[0].dims;
    const int64_t columns = p->image.d[1] + p->before[1] + p->after[1] - p->dilation[1] * (p->kernel[1] - 1);
    const int64_t per_row = (columns - 1) / p->stride[1] + 1, taps = (int64_t)p->kernel[0] * p->kernel[1];
    for (int64_t i = 0; i < trm_dims_count(y); i++) {
        outputs[0][i] = 0.0;
    }
    for (int64_t i = 0; i < trm_dims_count(x); i++) {
        const place at = place_of(x, i);
        const int64_t tap = at.i[1] % taps;
        const int64_t to[] = {at.i[0], at.i[1] / taps,
                              at.i[2] / per_row * p->stride[0] + tap / p->kernel[1] * p->dilation[0] - p->before[0],
                              at.i[2] % per_row * p->stride[1] + tap % p->kernel[1] * p->dilation[1] - p->before[1]};
        if (to[2] >= 0 && to[2] < y->d[2] && to[3] >= 0 && to[3] < y->d[3]) {
            outputs[0][index_of(y, to)] += inputs[0][i];
        }
    }
}

static void channel_cases(kernel_case_bench *bench)
{
    for (int32_t t = 0; t < COUNT(real_types); t++) {
        const trm_dtype dtype = real_types[t];
        for (int32_t groups = 0; groups <= 4; groups += 2) {
            kernel_case test = new_case(TRM_LAYER_GROUP_NORM, "%s %d groups", trm_dtype_name(dtype), (int)groups);
            test.layer.group_norm = (trm_group_norm_params){
                .groups = groups, .eps = 1e-3f, .activation = groups == 4 ? TRM_ACTIVATION_SILU : TRM_ACTIVATION_NONE};
            test.tolerance = 4.0;
            add_input(&test, dtype, DIMS(3, 8, 5, 41), 1.0, 3.0);
            if (groups != 2) {
                add_data(&test, dtype, DIMS(8));
                add_data(&test, dtype, DIMS(8));
            }
            add_output(&test, dtype, DIMS(3, 8, 5, 41));
            kernel_case_run(bench, &test, meaning_group_norm);
        }
        kernel_case test = new_case(TRM_LAYER_LRN, "%s", trm_dtype_name(dtype));
        test.layer.lrn = (trm_lrn_params){.size = 4, .alpha = 0.5f, .beta = 0.75f, .bias = 1.5f};
        test.tolerance = 4.0;
        add_data(&test, dtype, DIMS(2, 7, 3, 5));
        add_output(&test, dtype, DIMS(2, 7, 3, 5));
        kernel_case_run(bench, &test, meaning_lrn);
        kernel_case fold = new_case(TRM_LAYER_COL2IM, "%s", trm_dtype_name(dtype));
        fold.layer.col2im = (trm_col2im_params){.image = {2, {6, 7}},
                                                .kernel = {3, 2},
                                                .stride = {2, 1},
                                                .dilation = {1, 2},
                                                .before = {1, 0},
                                                .after = {1, 1}};
        fold.tolerance = 4.0;
        add_data(&fold, dtype, DIMS(2, 12, 18));
        add_output(&fold, dtype, DIMS(2, 2, 6, 7));
        kernel_case_run(bench, &fold, meaning_col2im);
    }
}

/* ---- regions ------------------------------------------------------------------------------------ */

static void meaning_roi_max(const kernel_case *test, double *const *inputs, double *const *outputs)
{
    /* One region over rows 1 .. 4 and columns 2 .. 5 of image 1, in bins of 2 by 2. */
    const trm_dims *x = &test->inputs[0].dims, *y = &test->outputs[0].dims;
    for (int64_t i = 0; i < trm_dims_count(y); i++) {
        const place at = place_of(y, i);
        double best = -INFINITY;
        for (int64_t k = 0; k < 4; k++) {
            const int64_t from[] = {1, at.i[1], 1 + 2 * at.i[2] + k / 2, 2 + 2 * at.i[3] + k % 2};
            best = fmax(best, inputs[0][index_of(x, from)]);
        }
        outputs[0][i] = best;
    }
}

static void meaning_roi_align(const kernel_case *test, double *const *inputs, double *const *outputs)
{
    const trm_roi_pool_params *p = &test->layer.roi_pool;
    const trm_dims *x = &test->inputs[0].dims, *y = &test->outputs[0].dims;
    for (int64_t i = 0; i < trm_dims_count(y); i++) {
        const place at = place_of(y, i);
        const double *roi = inputs[1] + 4 * at.i[0];
        const double bin_h = (roi[3] - roi[1]) / p->height, bin_w = (roi[2] - roi[0]) / p->width;
        double sum = 0.0;
        for (int32_t k = 0; k < 4; k++) { /* two samples each way; regions lie inside */
            const double row = roi[1] - 0.5 + ((double)at.i[2] + 0.25 + 0.5 * (k / 2)) * bin_h;
            const double column = roi[0] - 0.5 + ((double)at.i[3] + 0.25 + 0.5 * (k % 2)) * bin_w;
            sum += between(x, inputs[0], (int64_t)inputs[2][at.i[0]], at.i[1], row, column) / 4.0;
        }
        outputs[0][i] = sum;
    }
}

static void roi_cases(kernel_case_bench *bench)
{
    static const double whole[] = {1, 2, 1, 5, 4}, regions[] = {1, 1, 5, 4, 2, 1.5, 4.5, 5}, images[] = {1, 0};
    for (int32_t t = 0; t < COUNT(real_types); t++) {
        const trm_dtype dtype = real_types[t];
        kernel_case test = new_case(TRM_LAYER_ROI_POOL, "%s largest", trm_dtype_name(dtype));
        test.layer.roi_pool =
            (trm_roi_pool_params){.op = TRM_ROI_POOL_MAX, .height = 2, .width = 2, .spatial_scale = 1.0f};
        test.tolerance = 0.0;
        add_data(&test, dtype, DIMS(2, 3, 7, 8));
        add_input(&test, dtype, DIMS(1, 5), 0, 0)->values = whole;
        add_output(&test, dtype, DIMS(1, 3, 2, 2));
        kernel_case_run(bench, &test, meaning_roi_max);
        kernel_case align = new_case(TRM_LAYER_ROI_POOL, "%s average", trm_dtype_name(dtype));
        align.layer.roi_pool = (trm_roi_pool_params){.op = TRM_ROI_ALIGN_AVERAGE,
                                                     .height = 3,
                                                     .width = 2,
                                                     .sampling_ratio = 2,
                                                     .spatial_scale = 1.0f,
                                                     .half_pixel = true};
        align.tolerance = 4.0;
        add_data(&align, dtype, DIMS(2, 3, 7, 8));
        add_input(&align, dtype, DIMS(2, 4), 0, 0)->values = regions;
        add_input(&align, TRM_I64, DIMS(2), 0, 0)->values = images;
        add_output(&align, dtype, DIMS(2, 3, 3, 2));
        kernel_case_run(bench, &align, meaning_roi_align);
    }
}

/* Boxes 0 and 1 overlap by more than half, box 2 lies apart, box 3 scores too little. */
static void meaning_suppression(const kernel_case *test, double *const *inputs, double *const *outputs)
{
    static const double expected[] = {0, 0, 1, 0, 0, 2, 0, 1, 2, 0, 1, 0};
    (void)test;
    (void)inputs;
    memcpy(outputs[0], expected, sizeof(expected));
    outputs[1][0] = 4;
}

static void suppression_case(kernel_case_bench *bench)
{
    static const double boxes[] = {0, 0, 4, 4, 4.5, 4.5, 0.5, 0.5, 10, 10, 12, 12, 20, 20, 21, 21};
    static const double scores[] = {0.5, 0.9, 0.6, 0.1, 0.8, 0.3, 0.95, 0.05}, most = 3, overlap = 0.5, least = 0.2;
    kernel_case test = new_case(TRM_LAYER_NON_MAX_SUPPRESSION, "two classes");
    add_input(&test, TRM_F32, DIMS(1, 4, 4), 0, 0)->values = boxes;
    add_input(&test, TRM_F32, DIMS(1, 2, 4), 0, 0)->values = scores;
    add_input(&test, TRM_I64, SCALAR, 0, 0)->values = &most;
    add_input(&test, TRM_F32, SCALAR, 0, 0)->values = &overlap;
    add_input(&test, TRM_F32, DIMS(1), 0, 0)->values = &least;
    add_output(&test, TRM_I64, DIMS(6, 3));
    add_output(&test, TRM_I64, SCALAR);
    test.tolerance = 0.0;
    test.outputs[0].partly = true;
    test.outputs[0].used = 12;
    kernel_case_run(bench, &test, meaning_suppression);
}

void kernel_cases_vision(kernel_case_bench *bench)
{
    deconvolution_cases(bench);
    deformable_cases(bench);
    resize_cases(bench);
    grid_sample_cases(bench);
    channel_cases(bench);
    roi_cases(bench);
    suppression_case(bench);
}
