/* What each layer kind means, element by element in f64, written from the catalogue and not from the kernels. */
#include <math.h>

#include "kernels/case_support.h"
#include "kernels/cases.h"

void meaning_cast(const kernel_case *test, double *const *inputs, double *const *outputs)
{
    const trm_dtype from = test->inputs[0].dtype, to = test->layer.cast.to;
    for (int64_t i = 0; i < count_of_output(test); i++) {
        const double v = inputs[0][i];
        if (to >= TRM_I4 && to <= TRM_U2) {
            outputs[0][i] = isfinite(v) ? wrap(to, trunc(v)) : 0.0; /* keeps low bits */
        } else {
            outputs[0][i] = is_integer(from) && is_integer(to) ? wrap(to, v) : v; /* the rest by rounding to the type */
        }
    }
}

void meaning_reshape(const kernel_case *test, double *const *inputs, double *const *outputs)
{
    for (int64_t i = 0; i < count_of_output(test); i++) {
        outputs[0][i] = inputs[0][i];
    }
}

void meaning_transpose(const kernel_case *test, double *const *inputs, double *const *outputs)
{
    for (int64_t i = 0; i < count_of_output(test); i++) {
        const place out = place_of(&test->outputs[0].dims, i);
        place in = {{0}};
        for (int32_t axis = 0; axis < test->outputs[0].dims.n; axis++) {
            in.i[test->layer.transpose.perm[axis]] = out.i[axis];
        }
        outputs[0][i] = inputs[0][index_of(&test->inputs[0].dims, in.i)];
    }
}

void meaning_slice(const kernel_case *test, double *const *inputs, double *const *outputs)
{
    const trm_dims *x = &test->inputs[0].dims;
    const int32_t axis = axis_of(test->layer.slice.axis, x);
    int64_t start = test->layer.slice.start + (test->layer.slice.start < 0 ? x->d[axis] : 0);
    start = start < 0 ? 0 : start;
    for (int64_t i = 0; i < count_of_output(test); i++) {
        place p = place_of(&test->outputs[0].dims, i);
        p.i[axis] = start + p.i[axis] * test->layer.slice.step;
        outputs[0][i] = inputs[0][index_of(x, p.i)];
    }
}

void meaning_concat(const kernel_case *test, double *const *inputs, double *const *outputs)
{
    const int32_t axis = axis_of(test->layer.concat.axis, &test->outputs[0].dims);
    for (int64_t i = 0; i < count_of_output(test); i++) {
        place p = place_of(&test->outputs[0].dims, i);
        int32_t input = 0;
        while (p.i[axis] >= test->inputs[input].dims.d[axis]) {
            p.i[axis] -= test->inputs[input].dims.d[axis];
            input++;
        }
        outputs[0][i] = inputs[input][index_of(&test->inputs[input].dims, p.i)];
    }
}

void meaning_gather(const kernel_case *test, double *const *inputs, double *const *outputs)
{
    const trm_dims *x = &test->inputs[0].dims, *indices = &test->inputs[1].dims;
    const int32_t axis = axis_of(test->layer.gather.axis, x);
    for (int64_t i = 0; i < count_of_output(test); i++) {
        const place out = place_of(&test->outputs[0].dims, i);
        place in = {{0}};
        for (int32_t j = 0; j < x->n; j++) {
            in.i[j] = j == axis ? 0 : out.i[j < axis ? j : j + indices->n - 1];
        }
        double index = inputs[1][index_of(indices, out.i + axis)];
        index += index < 0.0 ? (double)x->d[axis] : 0.0;
        const bool inside = index >= 0.0 && index < (double)x->d[axis];
        in.i[axis] = inside ? (int64_t)index : 0;
        outputs[0][i] = inside ? inputs[0][index_of(x, in.i)] : 0.0;
    }
}

void meaning_embedding(const kernel_case *test, double *const *inputs, double *const *outputs)
{
    const int64_t rows = test->inputs[0].dims.d[0], width = test->inputs[0].dims.d[1];
    for (int64_t i = 0; i < count_of_output(test); i++) {
        const double row = inputs[1][i / width] - (double)test->layer.embedding.first_row;
        outputs[0][i] = row >= 0.0 && row < (double)rows ? inputs[0][(int64_t)row * width + i % width] : 0.0;
    }
}

void meaning_matmul(const kernel_case *test, double *const *inputs, double *const *outputs)
{
    const trm_matmul_params *p = &test->layer.matmul;
    const trm_dims *a = &test->inputs[0].dims, *b = &test->inputs[1].dims, *out = &test->outputs[0].dims;
    const int64_t k_count = a->d[a->n - (p->transpose_a ? 2 : 1)];
    const int64_t columns = out->d[out->n - 1];
    trm_dims lead_a = *a, lead_b = *b, lead_out = *out;
    lead_a.n -= 2;
    lead_b.n -= 2;
    lead_out.n -= 2;
    const int64_t size_a = a->d[a->n - 1] * a->d[a->n - 2], size_b = b->d[b->n - 1] * b->d[b->n - 2];
    for (int64_t i = 0; i < count_of_output(test); i++) {
        const place at = place_of(out, i);
        const double *pa = inputs[0] + broadcast_index(&lead_a, &lead_out, &at) * size_a;
        const double *pb = inputs[1] + broadcast_index(&lead_b, &lead_out, &at) * size_b;
        const int64_t m = at.i[out->n - 2], n = at.i[out->n - 1];
        double sum = 0.0;
        for (int64_t k = 0; k < k_count; k++) {
            sum += pa[p->transpose_a ? k * a->d[a->n - 1] + m : m * k_count + k] *
                   pb[p->transpose_b ? n * k_count + k : k * columns + n];
        }
        if (test->n_inputs > 2 && inputs[2] != NULL) {
            trm_dims lead_bias = test->inputs[2].dims;
            lead_bias.n = lead_bias.n > 2 ? lead_bias.n - 2 : 0;
            sum += inputs[2][broadcast_index(&lead_bias, &lead_out, &at) * columns + n];
        }
        outputs[0][i] = is_integer(test->outputs[0].dtype) ? wrap(test->outputs[0].dtype, sum)
                                                           : meaning_activation(p->activation, sum);
    }
}

void meaning_norm(const kernel_case *test, double *const *inputs, double *const *outputs)
{
    const trm_norm_params *p = &test->layer.norm;
    const trm_dims *out = &test->outputs[0].dims;
    const int64_t n = out->d[out->n - 1], count = count_of_output(test);
    const int32_t weight = p->residual ? 2 : 1;
    const double *bias = test->n_inputs > weight + 1 ? inputs[weight + 1] : NULL;
    const double *x = inputs[0];
    if (p->residual) {
        for (int64_t i = 0; i < count; i++) {
            outputs[1][i] = kernel_case_round(test->outputs[1].dtype, inputs[0][i] + inputs[1][i]);
        }
        x = outputs[1];
    }
    for (int64_t row = 0; row < count; row += n) {
        double mean = 0.0, square = 0.0;
        for (int64_t i = 0; i < n && p->op == TRM_NORM_LAYER; i++) {
            mean += x[row + i] / (double)n;
        }
        for (int64_t i = 0; i < n; i++) {
            square += (x[row + i] - mean) * (x[row + i] - mean) / (double)n;
        }
        for (int64_t i = 0; i < n; i++) {
            const bool weighted = test->n_inputs > weight && inputs[weight] != NULL;
            const double w = weighted ? inputs[weight][i] + (double)p->weight_offset : 1.0;
            outputs[0][row + i] =
                (x[row + i] - mean) / sqrt(square + (double)p->eps) * w + (bias != NULL ? bias[i] : 0.0);
        }
    }
}

/* First element, count and distance of the lines along an axis that element i of the folded dims stands for. */
static int64_t line_start(const trm_dims *x, int32_t axis, int64_t i, int64_t *stride)
{
    *stride = 1;
    for (int32_t j = axis + 1; j < x->n; j++) {
        *stride *= x->d[j];
    }
    return i / *stride * *stride * x->d[axis] + i % *stride;
}

void meaning_softmax(const kernel_case *test, double *const *inputs, double *const *outputs)
{
    const trm_dims *x = &test->inputs[0].dims;
    const int32_t axis = axis_of(test->layer.softmax.axis, x);
    const int64_t d = x->d[axis];
    for (int64_t line = 0; d > 0 && line < trm_dims_count(x) / d; line++) {
        int64_t stride;
        const int64_t start = line_start(x, axis, line, &stride);
        double largest = -INFINITY, sum = 0.0;
        for (int64_t i = 0; i < d; i++) {
            largest = fmax(largest, inputs[0][start + i * stride]);
        }
        for (int64_t i = 0; i < d; i++) {
            sum += exp(inputs[0][start + i * stride] - largest);
        }
        for (int64_t i = 0; i < d; i++) {
            outputs[0][start + i * stride] = exp(inputs[0][start + i * stride] - largest) / sum;
        }
    }
}

void meaning_reduce(const kernel_case *test, double *const *inputs, double *const *outputs)
{
    const trm_dims *x = &test->inputs[0].dims;
    const trm_reduce_op op = test->layer.reduce.op;
    const trm_dtype dtype = test->outputs[0].dtype;
    const int32_t axis = axis_of(test->layer.reduce.axis, x);
    const int64_t d = x->d[axis];
    for (int64_t i = 0; i < count_of_output(test); i++) {
        int64_t stride;
        const int64_t start = line_start(x, axis, i, &stride);
        if (d == 0) {
            const bool is_max = op == TRM_REDUCE_MAX, is_min = op == TRM_REDUCE_MIN;
            outputs[0][i] = dtype == TRM_BOOL ? is_min : is_max ? -INFINITY : is_min ? INFINITY : op == TRM_REDUCE_PROD;
            outputs[0][i] = op == TRM_REDUCE_AVG ? NAN : outputs[0][i];
            continue;
        }
        double value = inputs[0][start];
        for (int64_t j = 1; j < d; j++) {
            const double v = inputs[0][start + j * stride];
            value = op == TRM_REDUCE_PROD  ? value * v
                    : op == TRM_REDUCE_MAX ? fmax(value, v)
                    : op == TRM_REDUCE_MIN ? fmin(value, v)
                                           : value + v;
        }
        if (op == TRM_REDUCE_AVG) {
            value = is_integer(dtype) ? trunc(value / (double)d) : value / (double)d;
        }
        outputs[0][i] = is_integer(dtype) ? wrap(dtype, value) : value;
    }
}

void meaning_rope(const kernel_case *test, double *const *inputs, double *const *outputs)
{
    const trm_rope_params *p = &test->layer.rope;
    const trm_dims *x = &test->inputs[0].dims;
    const int64_t heads = x->d[1], width = x->d[2], pairs = p->rotary_dim / 2;
    for (int64_t t = 0; t < x->d[0]; t++) {
        const double length = p->scaling == TRM_ROPE_PLAIN ? 0.0 : inputs[3][t];
        const bool is_long = p->scaling != TRM_ROPE_PLAIN && length > (double)p->original_length;
        for (int64_t i = 0; i < heads * width; i++) {
            outputs[0][t * heads * width + i] = inputs[0][t * heads * width + i];
        }
        for (int64_t i = 0; i < pairs; i++) {
            double frequency = inputs[2][is_long && p->scaling == TRM_ROPE_LONG ? pairs + i : i];
            if (is_long && p->scaling == TRM_ROPE_DYNAMIC) {
                const double f = (double)p->factor, dim = (double)p->rotary_dim;
                const double base =
                    (double)p->base * pow(f * length / (double)p->original_length - (f - 1.0), dim / (dim - 2.0));
                frequency = 1.0 / pow(base, (double)(2 * i) / dim);
            }
            /* The angle is an f32, by definition. */
            const double angle = (double)((float)inputs[1][t] * (float)frequency);
            const double c = cos(angle) * (double)p->magnitude, s = sin(angle) * (double)p->magnitude;
            const int64_t first = p->interleaved ? 2 * i : i, second = p->interleaved ? 2 * i + 1 : i + pairs;
            for (int64_t h = 0; h < heads; h++) {
                const int64_t at = (t * heads + h) * width;
                const double u = inputs[0][at + first], v = inputs[0][at + second];
                outputs[0][at + first] = u * c - v * s;
                outputs[0][at + second] = v * c + u * s;
            }
        }
    }
}
