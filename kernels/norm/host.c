/* RMS and layer normalization over the last axis, with and without the residual sum before it. */
#include <math.h>

#include "base/error.h"
#include "kernels/host/host.h"

typedef struct norm {
    const trm_norm_params *params;
    const trm_view *x, *residual, *weight, *bias; /* all but x may be NULL */
    const trm_view *y, *sum;                      /* sum with a residual */
    int64_t width;
} norm;

static norm norm_of(const trm_kernel_call *call)
{
    const trm_norm_params *p = &call->layer->norm;
    const int32_t weight = p->residual ? 2 : 1;
    norm n = {.params = p,
              .x = &call->inputs[0],
              .residual = p->residual ? &call->inputs[1] : NULL,
              .weight = trm_kernel_call_has(call, weight) ? &call->inputs[weight] : NULL,
              .bias = trm_kernel_call_has(call, weight + 1) ? &call->inputs[weight + 1] : NULL,
              .y = &call->outputs[0],
              .sum = p->residual ? &call->outputs[1] : NULL};
    n.width = n.x->dims.n > 0 ? n.x->dims.d[n.x->dims.n - 1] : 0;
    return n;
}

static bool is_vector(const trm_view *view, int64_t width)
{
    return view == NULL || ((trm_host_is_float(view->dtype) || view->dtype == TRM_F64) && view->dims.n == 1 &&
                            view->dims.d[0] == width);
}

bool trm_host_norm_accepts(const trm_kernel_call *call)
{
    const norm n = norm_of(call);
    const int32_t required = n.params->residual ? 2 : 1;
    const bool wide = n.x->dtype == TRM_F64;
    if (call->n_inputs < required || call->n_inputs > required + 2 || call->n_outputs != (n.params->residual ? 2 : 1) ||
        (n.params->op != TRM_NORM_RMS && n.params->op != TRM_NORM_LAYER) || n.x->dims.n < 1 ||
        (!wide && !trm_host_is_float(n.x->dtype)) || n.y->dtype != n.x->dtype ||
        !trm_element_same_dims(&n.x->dims, &n.y->dims) || !is_vector(n.weight, n.width) ||
        !is_vector(n.bias, n.width) || (n.weight != NULL && (n.weight->dtype == TRM_F64) != wide) ||
        (n.bias != NULL && (n.bias->dtype == TRM_F64) != wide)) {
        return false;
    }
    return !n.params->residual ||
           (n.residual->dtype == n.x->dtype && trm_element_same_dims(&n.residual->dims, &n.x->dims) &&
            n.sum->dtype == n.x->dtype && trm_element_same_dims(&n.sum->dims, &n.x->dims));
}

/* Sum of x - shift, or of its square, in eight partial sums so that the loop becomes vector code. */
TRM_VECTOR_CLONES static double sum_of(const float *x, int64_t n, double shift, bool square)
{
    double parts[8] = {0};
    const int64_t whole = n / 8 * 8;
    if (square) {
        for (int64_t i = 0; i < whole; i += 8) {
            for (int j = 0; j < 8; j++) {
                const double v = (double)x[i + j] - shift;
                parts[j] += v * v;
            }
        }
    } else {
        for (int64_t i = 0; i < whole; i += 8) {
            for (int j = 0; j < 8; j++) {
                parts[j] += (double)x[i + j] - shift;
            }
        }
    }
    for (int64_t i = whole; i < n; i++) {
        const double v = (double)x[i] - shift;
        parts[0] += square ? v * v : v;
    }
    return ((parts[0] + parts[4]) + (parts[2] + parts[6])) + ((parts[1] + parts[5]) + (parts[3] + parts[7]));
}

/* Mean over a row of x (squared after the shift, if asked for). */
static double row_mean(const norm *n, const trm_view *x, int64_t row, double shift, bool square)
{
    float buffer[TRM_HOST_BLOCK];
    double sum = 0.0;
    for (int64_t i = 0; i < n->width; i += TRM_HOST_BLOCK) {
        const int64_t block = trm_host_min(n->width - i, TRM_HOST_BLOCK);
        sum += sum_of(trm_host_load(x->dtype, x->data, row * n->width + i, block, buffer), block, shift, square);
    }
    return sum / (double)n->width;
}

static void add_residual(const norm *n, int64_t row)
{
    float a[TRM_HOST_BLOCK], b[TRM_HOST_BLOCK], c[TRM_HOST_BLOCK];
    for (int64_t i = 0; i < n->width; i += TRM_HOST_BLOCK) {
        const int64_t block = trm_host_min(n->width - i, TRM_HOST_BLOCK), at = row * n->width + i;
        const float *pa = trm_host_load(n->x->dtype, n->x->data, at, block, a);
        const float *pb = trm_host_load(n->residual->dtype, n->residual->data, at, block, b);
        for (int64_t j = 0; j < block; j++) {
            c[j] = pa[j] + pb[j];
        }
        trm_host_store(n->sum->dtype, n->sum->data, at, block, c);
    }
}

/* y = (x - shift) * scale, times w + offset and plus b where they are given. */
TRM_VECTOR_CLONES static void apply(const float *x, float shift, float scale, const float *w, float offset,
                                    const float *b, int64_t n, float *y)
{
    if (w != NULL && b != NULL) {
        for (int64_t i = 0; i < n; i++) {
            y[i] = (x[i] - shift) * scale * (w[i] + offset) + b[i];
        }
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        y[i] = (x[i] - shift) * scale;
    }
    for (int64_t i = 0; i < n && w != NULL; i++) {
        y[i] *= w[i] + offset;
    }
    for (int64_t i = 0; i < n && b != NULL; i++) {
        y[i] += b[i];
    }
}

static void norm_rows(void *user, int64_t begin, int64_t end)
{
    const norm *n = user;
    const trm_view *x = n->residual != NULL ? n->sum : n->x;
    const bool layer = n->params->op == TRM_NORM_LAYER;
    float fx[TRM_HOST_BLOCK], fw[TRM_HOST_BLOCK], fb[TRM_HOST_BLOCK], fy[TRM_HOST_BLOCK];
    for (int64_t row = begin; row < end; row++) {
        if (n->residual != NULL) {
            add_residual(n, row);
        }
        const double mean = layer ? row_mean(n, x, row, 0.0, false) : 0.0;
        const float scale = (float)(1.0 / sqrt(row_mean(n, x, row, mean, true) + (double)n->params->eps));
        const float shift = (float)mean;
        for (int64_t i = 0; i < n->width; i += TRM_HOST_BLOCK) {
            const int64_t block = trm_host_min(n->width - i, TRM_HOST_BLOCK);
            const int64_t at = row * n->width + i;
            const float *px = trm_host_load(x->dtype, x->data, at, block, fx);
            const float *pw = n->weight != NULL ? trm_host_load(n->weight->dtype, n->weight->data, i, block, fw) : NULL;
            const float *pb = n->bias != NULL ? trm_host_load(n->bias->dtype, n->bias->data, i, block, fb) : NULL;
            float *to = n->y->dtype == TRM_F32 ? (float *)n->y->data + at : fy;
            apply(px, shift, scale, pw, n->params->weight_offset, pb, block, to);
            if (to == fy) {
                trm_host_store(n->y->dtype, n->y->data, at, block, fy);
            }
        }
    }
}

static void norm_rows_f64(void *user, int64_t begin, int64_t end)
{
    const norm *n = user;
    const double *weight = n->weight != NULL ? n->weight->data : NULL, *bias = n->bias != NULL ? n->bias->data : NULL;
    for (int64_t row = begin; row < end; row++) {
        const double *x = (const double *)n->x->data + row * n->width;
        double *y = (double *)n->y->data + row * n->width;
        double mean = 0.0, square = 0.0;
        if (n->residual != NULL) {
            const double *residual = (const double *)n->residual->data + row * n->width;
            double *sum = (double *)n->sum->data + row * n->width;
            for (int64_t i = 0; i < n->width; i++) {
                sum[i] = x[i] + residual[i];
            }
            x = sum;
        }
        for (int64_t i = 0; i < n->width && n->params->op == TRM_NORM_LAYER; i++) {
            mean += x[i];
        }
        mean /= (double)n->width;
        for (int64_t i = 0; i < n->width; i++) {
            square += (x[i] - mean) * (x[i] - mean);
        }
        const double scale = 1.0 / sqrt(square / (double)n->width + (double)n->params->eps);
        for (int64_t i = 0; i < n->width; i++) {
            const double w = weight != NULL ? weight[i] + (double)n->params->weight_offset : 1.0;
            y[i] = (x[i] - mean) * scale * w + (bias != NULL ? bias[i] : 0.0);
        }
    }
}

trm_status trm_host_norm_run(const trm_kernel_call *call)
{
    norm n = norm_of(call);
    n.weight = n.weight != NULL && n.weight->data == NULL ? NULL : n.weight;
    n.bias = n.bias != NULL && n.bias->data == NULL ? NULL : n.bias;
    const int64_t count = trm_dims_count(&n.x->dims);
    if (count > 0) {
        trm_host_for(call, count / n.width, trm_host_row_grain(n.width * 2),
                     n.x->dtype == TRM_F64 ? norm_rows_f64 : norm_rows, &n);
    }
    return TRM_OK;
}

/* The norm's own call: the layer begins with its parameters, and the numbers are the last output. */
static trm_kernel_call without_numbers(const trm_kernel_call *call)
{
    trm_kernel_call inner = *call;
    inner.n_outputs--;
    return inner;
}

bool trm_host_norm_quantize_accepts(const trm_kernel_call *call)
{
    const trm_kernel_call inner = without_numbers(call);
    return inner.n_outputs >= 1 && trm_host_is_float(call->inputs[0].dtype) && trm_host_norm_accepts(&inner) &&
           call->outputs[inner.n_outputs].dtype == TRM_I8 &&
           trm_element_same_dims(&call->outputs[inner.n_outputs].dims, &call->outputs[0].dims);
}

trm_status trm_host_norm_quantize_run(const trm_kernel_call *call)
{
    const trm_kernel_call inner = without_numbers(call);
    const trm_view *y = &call->outputs[0];
    const int64_t count = trm_dims_count(&y->dims);
    int8_t *numbers = call->outputs[inner.n_outputs].data;
    float buffer[TRM_HOST_BLOCK];
    TRM_TRY(trm_host_norm_run(&inner));
    for (int64_t i = 0; i < count; i += TRM_HOST_BLOCK) {
        const int64_t block = trm_host_min(count - i, TRM_HOST_BLOCK);
        const float *from = trm_host_load(y->dtype, y->data, i, block, buffer);
        for (int64_t j = 0; j < block; j++) {
            const float whole = rintf(from[j] / call->layer->norm_quantize.scale);
            numbers[i + j] = (int8_t)(whole < -128.0f  ? -128.0f
                                      : whole > 127.0f ? 127.0f
                                      : whole == whole ? whole
                                                       : 0.0f);
        }
    }
    return TRM_OK;
}
