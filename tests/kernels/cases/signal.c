/* Cases and meanings of Fourier transforms, determinants and random numbers. */
#include <math.h>

#include "kernels/cases/cases.h"
#include "kernels/cases/support.h"

/* ---- signals ------------------------------------------------------------------------------------ */

static void meaning_fourier(const kernel_case *test, double *const *inputs, double *const *outputs)
{
    const trm_fourier_params *p = &test->layer.fourier;
    const trm_dims *x = &test->inputs[0].dims, *y = &test->outputs[0].dims;
    const int32_t axis = axis_of(p->axis, x), last = x->n - 1;
    const bool real = p->inverse && p->onesided;
    const int64_t n = p->length > 0 ? p->length : real ? 2 * (x->d[axis] - 1) : x->d[axis];
    const double turn = (p->inverse ? 2.0 : -2.0) * acos(-1.0) / (double)n;
    for (int64_t i = 0; i < count_of_output(test); i++) {
        const place at = place_of(y, i);
        double sums[2] = {0.0, 0.0};
        for (int64_t j = 0; j < n; j++) {
            place from = at;
            const bool mirror = real && j > n / 2; /* the conjugate of what is not there */
            from.i[axis] = mirror ? n - j : j;
            if (from.i[axis] >= x->d[axis]) {
                continue;
            }
            from.i[last] = 0;
            const double a = inputs[0][index_of(x, from.i)];
            from.i[last] = 1;
            double b = x->d[last] == 2 ? inputs[0][index_of(x, from.i)] : 0.0;
            b = mirror ? -b : real && (j == 0 || 2 * j == n) ? 0.0 : b;
            const double angle = turn * (double)(j * at.i[axis] % n);
            sums[0] += a * cos(angle) - b * sin(angle);
            sums[1] += a * sin(angle) + b * cos(angle);
        }
        outputs[0][i] = sums[at.i[last]] / (p->inverse ? (double)n : 1.0);
    }
}

static void fourier_case(kernel_case_bench *bench, trm_dtype dtype, trm_fourier_params p, trm_dims from, trm_dims to)
{
    kernel_case test = new_case(TRM_LAYER_FOURIER, "%s of %lld%s%s, axis %d, length %lld", trm_dtype_name(dtype),
                                (long long)trm_dims_count(&from), p.inverse ? " inverse" : "",
                                p.onesided ? " onesided" : "", (int)p.axis, (long long)p.length);
    test.layer.fourier = p;
    add_input(&test, dtype, from, -1.0, 1.0);
    add_output(&test, dtype, to);
    kernel_case_run(bench, &test, meaning_fourier);
}

/* By the first row, recursively. */
static double determinant(const double *m, int64_t n, int64_t stride, uint32_t columns)
{
    double sum = n == 0 ? 1.0 : 0.0, sign = 1.0;
    for (int32_t j = 0; n > 0 && j < stride; j++) {
        if ((columns >> j & 1) != 0) {
            sum += sign * m[j] * determinant(m + stride, n - 1, stride, columns & ~(1u << j));
            sign = -sign;
        }
    }
    return sum;
}

static void meaning_determinant(const kernel_case *test, double *const *inputs, double *const *outputs)
{
    const trm_dims *x = &test->inputs[0].dims;
    const int64_t n = x->d[x->n - 1];
    for (int64_t i = 0; i < count_of_output(test); i++) {
        outputs[0][i] = determinant(inputs[0] + i * n * n, n, n, (1u << n) - 1);
    }
}

static void determinant_case(kernel_case_bench *bench, trm_dtype dtype, trm_dims from, trm_dims to)
{
    kernel_case test =
        new_case(TRM_LAYER_DETERMINANT, "%s of %lld", trm_dtype_name(dtype), (long long)trm_dims_count(&from));
    test.tolerance = 10.0;
    add_input(&test, dtype, from, -2.0, 2.0);
    add_output(&test, dtype, to);
    kernel_case_run(bench, &test, meaning_determinant);
}

/* ---- random ------------------------------------------------------------------------------------- */

static uint64_t random_bits(uint64_t seed, uint64_t i)
{
    uint64_t z = seed + (i + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static double random_number(uint64_t seed, uint64_t i)
{
    return (double)(random_bits(seed, i) >> 11) / 9007199254740992.0;
}

static void meaning_random(const kernel_case *test, double *const *inputs, double *const *outputs)
{
    const trm_random_params *p = &test->layer.random;
    for (int64_t i = 0; i < count_of_output(test); i++) {
        const uint64_t at = (uint64_t)i;
        if (p->op == TRM_RANDOM_UNIFORM) {
            outputs[0][i] = (double)p->a + ((double)p->b - (double)p->a) * random_number(p->seed, at);
        } else if (p->op == TRM_RANDOM_NORMAL) {
            outputs[0][i] = (double)p->a + (double)p->b * sqrt(-2.0 * log1p(-random_number(p->seed, 2 * at))) *
                                               cos(2.0 * acos(-1.0) * random_number(p->seed, 2 * at + 1));
        } else if (p->op == TRM_RANDOM_BERNOULLI) {
            outputs[0][i] = random_number(p->seed, at) < inputs[0][i] ? 1.0 : 0.0;
        } else {
            const int64_t classes = test->inputs[0].dims.d[1], row = i / p->samples * classes;
            double all = 0.0, sum = 0.0;
            for (int64_t c = 0; c < classes; c++) {
                all += exp(inputs[0][row + c]);
            }
            int64_t c = 0;
            for (; c < classes - 1; c++) {
                sum += exp(inputs[0][row + c]);
                if (random_number(p->seed, at) * all < sum) {
                    break;
                }
            }
            outputs[0][i] = (double)c;
        }
    }
}

static void random_case(kernel_case_bench *bench, trm_random_params p, trm_dtype from, trm_dims x, const double *values,
                        trm_dims to)
{
    kernel_case test =
        new_case(TRM_LAYER_RANDOM, "op %d %s of %lld", (int)p.op, trm_dtype_name(p.to), (long long)trm_dims_count(&to));
    test.layer.random = p;
    add_input(&test, from, x, 0.0, 1.0)->values = values;
    add_output(&test, p.to, to);
    kernel_case_run(bench, &test, meaning_random);
}

void kernel_cases_signal(kernel_case_bench *bench)
{
    static const double shape[] = {7, 300}, empty[] = {7, 0};
    static const trm_dtype types[] = {TRM_F32, TRM_F16, TRM_BF16, TRM_F64};
    for (int32_t t = 0; t < COUNT(types); t++) {
        fourier_case(bench, types[t], (trm_fourier_params){.axis = 1}, DIMS(3, 16, 2), DIMS(3, 16, 2));
        fourier_case(bench, types[t], (trm_fourier_params){.axis = -2, .onesided = true}, DIMS(2, 5, 35, 1),
                     DIMS(2, 5, 18, 2));
        fourier_case(bench, types[t], (trm_fourier_params){.axis = 1, .inverse = true}, DIMS(2, 21, 3, 2),
                     DIMS(2, 21, 3, 2));
        fourier_case(bench, types[t], (trm_fourier_params){.axis = 0, .inverse = true, .onesided = true}, DIMS(9, 3, 2),
                     DIMS(16, 3, 1));
        determinant_case(bench, types[t], DIMS(3, 3), SCALAR);
        determinant_case(bench, types[t], DIMS(5, 2, 4, 4), DIMS(5, 2));
    }
    fourier_case(bench, TRM_F32, (trm_fourier_params){.axis = 0, .length = 20}, DIMS(13, 2), DIMS(20, 2));
    fourier_case(bench, TRM_F32, (trm_fourier_params){.axis = 0, .length = 10}, DIMS(13, 1), DIMS(10, 2));
    fourier_case(bench, TRM_F32, (trm_fourier_params){.axis = 0, .inverse = true, .onesided = true, .length = 15},
                 DIMS(8, 2), DIMS(15, 1));
    fourier_case(bench, TRM_F32, (trm_fourier_params){.axis = 1}, DIMS(0, 4, 2), DIMS(0, 4, 2));
    fourier_case(bench, TRM_F64, (trm_fourier_params){.axis = 0}, DIMS(300, 2), DIMS(300, 2));
    fourier_case(bench, TRM_F64, (trm_fourier_params){.axis = 0}, DIMS(257, 1), DIMS(257, 2));
    fourier_case(bench, TRM_F32, (trm_fourier_params){.axis = 1, .onesided = true}, DIMS(600, 24, 1), DIMS(600, 13, 2));
    fourier_case(bench, TRM_F32, (trm_fourier_params){.axis = 1}, DIMS(2, 1, 1), DIMS(2, 1, 2));
    determinant_case(bench, TRM_F32, DIMS(300, 1, 1), DIMS(300));
    determinant_case(bench, TRM_F64, DIMS(2, 8, 8), DIMS(2));
    determinant_case(bench, TRM_F64, DIMS(0, 8, 8), DIMS(0));
    for (int32_t t = 0; t < COUNT(types); t++) {
        const trm_random_params uniform = {TRM_RANDOM_UNIFORM, types[t], -1.0f, 3.0f, 42, 0};
        const trm_random_params normal = {TRM_RANDOM_NORMAL, types[t], 0.5f, 2.0f, 43, 0};
        const trm_random_params bernoulli = {.op = TRM_RANDOM_BERNOULLI, .to = TRM_BOOL, .seed = 5};
        const trm_random_params classes = {.op = TRM_RANDOM_MULTINOMIAL, .to = TRM_I64, .seed = 6, .samples = 50};
        random_case(bench, uniform, TRM_I64, DIMS(2), shape, DIMS(7, 300));
        random_case(bench, normal, TRM_I64, DIMS(2), shape, DIMS(7, 300));
        random_case(bench, bernoulli, types[t], DIMS(7, 300), NULL, DIMS(7, 300));
        random_case(bench, classes, types[t], DIMS(3, 10), NULL, DIMS(3, 50));
    }
    random_case(bench, (trm_random_params){TRM_RANDOM_UNIFORM, TRM_F32, 0.0f, 1.0f, 1, 0}, TRM_I64, DIMS(2), empty,
                DIMS(7, 0));
}
