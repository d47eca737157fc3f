/* Cases and meanings of rotary embeddings. */
#include <math.h>

#include "kernels/cases/cases.h"
#include "kernels/cases/support.h"

static void meaning_rope(const kernel_case *test, double *const *inputs, double *const *outputs)
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
                const int64_t at = (t * heads + h) * width + p->first;
                const double u = inputs[0][at + first], v = inputs[0][at + second];
                outputs[0][at + first] = u * c - v * s;
                outputs[0][at + second] = v * c + u * s;
            }
        }
    }
}

static void rope_case(kernel_case_bench *bench, trm_dtype dtype, trm_rope_params p, int64_t tokens, int64_t heads,
                      int64_t head_dim, double last_position)
{
    kernel_case test =
        new_case(TRM_LAYER_ROPE, "scaling %d %s rotary %d from %d of %lld%s, %lld tokens to %g", (int)p.scaling,
                 trm_dtype_name(dtype), (int)p.rotary_dim, (int)p.first, (long long)head_dim,
                 p.interleaved ? " interleaved" : "", (long long)tokens, last_position);
    double frequencies[1024];
    const int32_t pairs = p.rotary_dim / 2;
    for (int32_t i = 0; i < pairs; i++) {
        frequencies[i] = pow(10000.0, -2.0 * i / p.rotary_dim);
        frequencies[pairs + i] = frequencies[i] / (1.0 + i);
    }
    test.layer.rope = p;
    add_input(&test, dtype, DIMS(tokens, heads, head_dim), -2.0, 2.0);
    add_input(&test, TRM_I32, DIMS(tokens), 0.0, last_position);
    add_input(&test, TRM_F32, p.scaling == TRM_ROPE_LONG ? DIMS(2, pairs) : DIMS(pairs), 0, 0)->values = frequencies;
    if (p.scaling != TRM_ROPE_PLAIN) {
        add_input(&test, TRM_I32, DIMS(tokens), 1.0, 3.0 * (double)p.original_length);
    }
    /* A frequency of dynamic scaling may be one unit off, which grows with the position. */
    test.tolerance = p.scaling == TRM_ROPE_DYNAMIC ? 1.0 + last_position / 20.0 : 1.0;
    add_output(&test, dtype, DIMS(tokens, heads, head_dim));
    kernel_case_run(bench, &test, meaning_rope);
}

/* Of all elements, against the definition: pairs of an element and its partner. */
static void meaning_rotate(const kernel_case *test, double *const *inputs, double *const *outputs)
{
    const trm_dims *x = &test->inputs[0].dims, *angles = &test->inputs[1].dims;
    const trm_rotate_params *p = &test->layer.rotate;
    const int32_t last = x->n - 1, half = p->rotary_dim / 2;
    for (int64_t i = 0; i < count_of_output(test); i++) {
        place at = place_of(x, i), angle = {{0}};
        const int64_t column = at.i[last];
        outputs[0][i] = inputs[0][i];
        if (column >= p->rotary_dim) {
            continue;
        }
        const bool is_a = p->interleaved ? column % 2 == 0 : column < half;
        const int64_t pair = p->interleaved ? column / 2 : column % half;
        for (int32_t k = 0; k < angles->n - 1; k++) {
            angle.i[k] = angles->d[k] == 1 ? 0 : at.i[k + x->n - angles->n];
        }
        angle.i[angles->n - 1] = angles->d[angles->n - 1] == half ? pair : column;
        at.i[last] = p->interleaved ? 2 * pair + is_a : pair + (is_a ? half : 0);
        const double c = inputs[1][index_of(angles, angle.i)], s = inputs[2][index_of(angles, angle.i)];
        const double other = inputs[0][index_of(x, at.i)];
        outputs[0][i] = inputs[0][i] * c + (is_a ? -other : other) * s;
    }
}

static void rotate_case(kernel_case_bench *bench, trm_dtype dtype, trm_dims x, trm_dims angles, int32_t rotary,
                        bool interleaved)
{
    kernel_case test = new_case(TRM_LAYER_ROTATE, "%s %d of %lld, %s, %lld angles", trm_dtype_name(dtype), (int)rotary,
                                (long long)trm_dims_count(&x), interleaved ? "interleaved" : "halves",
                                (long long)trm_dims_count(&angles));
    test.layer.rotate = (trm_rotate_params){rotary, interleaved};
    add_data(&test, dtype, x);
    add_data(&test, dtype, angles);
    add_data(&test, dtype, angles);
    add_output(&test, dtype, x);
    kernel_case_run(bench, &test, meaning_rotate);
}

static void rotate_cases(kernel_case_bench *bench)
{
    static const trm_dtype dtypes[] = {TRM_F32, TRM_F16, TRM_BF16, TRM_F64};
    for (int32_t i = 0; i < 4; i++) {
        for (int32_t interleaved = 0; interleaved < 2; interleaved++) {
            rotate_case(bench, dtypes[i], DIMS(2, 3, 5, 8), DIMS(5, 8), 8, interleaved);
            rotate_case(bench, dtypes[i], DIMS(2, 3, 5, 8), DIMS(2, 1, 5, 3), 6, interleaved);
            rotate_case(bench, dtypes[i], DIMS(7, 10), DIMS(1, 2), 2, interleaved);
            rotate_case(bench, dtypes[i], DIMS(0, 10), DIMS(1, 4), 8, interleaved);
        }
    }
}

void kernel_cases_rope(kernel_case_bench *bench)
{
    rotate_cases(bench);
    for (int32_t t = 0; t < COUNT(floats); t++) {
        for (int32_t interleaved = 0; interleaved < 2; interleaved++) {
            trm_rope_params p = {.rotary_dim = 64, .interleaved = interleaved != 0, .magnitude = 1.0f};
            rope_case(bench, floats[t], p, 5, 3, 64, 100.0);
            rope_case(bench, floats[t], p, 1, 1, 64, 8191.0);
            rope_case(bench, floats[t], p, 4, 8, 80, 100000.0);
            rope_case(bench, floats[t], p, 0, 3, 64, 10.0);
            p.rotary_dim = 10;
            p.magnitude = 1.25f;
            rope_case(bench, floats[t], p, 33, 2, 12, 50.0);
            p.first = 1;
            rope_case(bench, floats[t], p, 33, 2, 12, 50.0);
            p.first = 128;
            p.rotary_dim = 64;
            rope_case(bench, floats[t], p, 7, 16, 192, 5000.0);
            p.first = 0;
            p.rotary_dim = 128;
            rope_case(bench, floats[t], p, 3, 5, 128, 4000.0);
            p.rotary_dim = 64;
            p.base = 10000.0f;
            p.factor = 4.0f;
            p.original_length = 100;
            p.scaling = TRM_ROPE_DYNAMIC;
            rope_case(bench, floats[t], p, 9, 2, 64, 90.0);
            p.scaling = TRM_ROPE_LONG;
            rope_case(bench, floats[t], p, 9, 2, 64, 299.0);
        }
    }
}
