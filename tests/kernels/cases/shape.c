/* Cases and meanings of the kinds whose dims follow from values or from data. */
#include <stdlib.h>

#include "kernels/cases/support.h"
#include "kernels/cases/cases.h"

/* ---- shape, expand, tile, range ----------------------------------------------------------------- */

static void meaning_shape(const kernel_case *test, double *const *inputs, double *const *outputs)
{
    const trm_dims *x = &test->inputs[0].dims;
    int32_t start = test->layer.shape.start + (test->layer.shape.start < 0 ? x->n : 0);
    (void)inputs;
    for (int64_t i = 0; i < count_of_output(test); i++) {
        outputs[0][i] = (double)x->d[(start < 0 ? 0 : start) + i];
    }
}

static void shape_case(kernel_case_bench *bench, trm_dims dims, int32_t start, int32_t end, int64_t taken)
{
    kernel_case test = new_case(TRM_LAYER_SHAPE, "%d..%d of %d", (int)start, (int)end, (int)dims.n);
    test.layer.shape = (trm_shape_params){start, end};
    add_data(&test, TRM_U8, dims);
    add_output(&test, TRM_I64, DIMS(taken));
    kernel_case_run(bench, &test, meaning_shape);
}

static void meaning_repeat(const kernel_case *test, double *const *inputs, double *const *outputs)
{
    const trm_dims *x = &test->inputs[0].dims, *y = &test->outputs[0].dims;
    for (int64_t i = 0; i < count_of_output(test); i++) {
        place at = place_of(y, i), from = {{0}};
        for (int32_t axis = 0; axis < x->n; axis++) {
            from.i[axis] = at.i[axis + y->n - x->n] % x->d[axis];
        }
        outputs[0][i] = inputs[0][index_of(x, from.i)];
    }
}

static void expand_case(kernel_case_bench *bench, trm_dtype dtype, trm_dims from, trm_dims to, bool as_input)
{
    kernel_case test =
        new_case(TRM_LAYER_EXPAND, "%s %lld to %lld%s", trm_dtype_name(dtype), (long long)trm_dims_count(&from),
                 (long long)trm_dims_count(&to), as_input ? " input" : "");
    double sizes[TRM_MAX_DIMS];
    test.tolerance = 0.0;
    add_data(&test, dtype, from);
    for (int32_t i = 0; i < to.n; i++) {
        sizes[i] = (double)to.d[i];
    }
    if (as_input) {
        add_input(&test, TRM_I64, DIMS(to.n), 0, 0)->values = sizes;
    } else {
        test.layer.expand.dims = to;
    }
    add_output(&test, dtype, to);
    kernel_case_run(bench, &test, meaning_repeat);
}

static void tile_case(kernel_case_bench *bench, trm_dtype dtype, trm_dims from, const double *repeats)
{
    kernel_case test = new_case(TRM_LAYER_TILE, "%s of %lld", trm_dtype_name(dtype), (long long)trm_dims_count(&from));
    trm_dims to = from;
    test.tolerance = 0.0;
    add_data(&test, dtype, from);
    add_input(&test, TRM_I64, DIMS(from.n), 0, 0)->values = repeats;
    for (int32_t i = 0; i < from.n; i++) {
        to.d[i] *= (int64_t)repeats[i];
    }
    add_output(&test, dtype, to);
    kernel_case_run(bench, &test, meaning_repeat);
}

static void meaning_range(const kernel_case *test, double *const *inputs, double *const *outputs)
{
    for (int64_t i = 0; i < count_of_output(test); i++) {
        outputs[0][i] = inputs[0][0] + (double)i * inputs[2][0];
    }
}

static void range_case(kernel_case_bench *bench, trm_dtype dtype, const double *values, int64_t count)
{
    kernel_case test =
        new_case(TRM_LAYER_RANGE, "%s of %lld by %g", trm_dtype_name(dtype), (long long)count, values[2]);
    test.tolerance = is_floating(dtype) ? 1.0 : 0.0;
    for (int32_t i = 0; i < 3; i++) {
        add_input(&test, dtype, i == 1 ? DIMS(1) : SCALAR, 0, 0)->values = &values[i];
    }
    add_output(&test, dtype, DIMS(count));
    kernel_case_run(bench, &test, meaning_range);
}

/* ---- slices by inputs and backwards ------------------------------------------------------------- */

static void meaning_slice_input(const kernel_case *test, double *const *inputs, double *const *outputs)
{
    const trm_dims *x = &test->inputs[0].dims;
    const int32_t axis = axis_of(test->layer.slice.axis, x);
    double start = (double)test->layer.slice.start, step = (double)test->layer.slice.step;
    start = test->n_inputs > 1 && test->inputs[1].dtype != TRM_DTYPE_NONE ? inputs[1][0] : start;
    step = test->n_inputs > 3 ? inputs[3][0] : step;
    start += start < 0 ? (double)x->d[axis] : 0.0;
    start = start < 0 ? 0 : step < 0 && start > (double)x->d[axis] - 1 ? (double)x->d[axis] - 1 : start;
    for (int64_t i = 0; i < count_of_output(test); i++) {
        place p = place_of(&test->outputs[0].dims, i);
        p.i[axis] = (int64_t)(start + (double)p.i[axis] * step);
        outputs[0][i] = inputs[0][index_of(x, p.i)];
    }
}

static void slice_case(kernel_case_bench *bench, trm_dtype dtype, trm_dims from, int32_t axis, const double *by,
                       bool as_input, int64_t taken)
{
    kernel_case test = new_case(TRM_LAYER_SLICE, "%s axis %d %g:%g:%g%s", trm_dtype_name(dtype), (int)axis, by[0],
                                by[1], by[2], as_input ? " input" : "");
    trm_dims to = from;
    test.tolerance = 0.0;
    test.layer.slice = (trm_slice_params){axis, 7, 9, 3};
    add_data(&test, dtype, from);
    if (as_input) {
        for (int32_t i = 0; i < 3; i++) {
            add_input(&test, i == 1 ? TRM_I32 : TRM_I64, i == 2 ? SCALAR : DIMS(1), 0, 0)->values = &by[i];
        }
    } else {
        test.layer.slice = (trm_slice_params){axis, (int64_t)by[0], (int64_t)by[1], (int64_t)by[2]};
    }
    to.d[axis] = taken;
    add_output(&test, dtype, to);
    kernel_case_run(bench, &test, meaning_slice_input);
}

/* ---- non_zero and unique ------------------------------------------------------------------------ */

static void meaning_non_zero(const kernel_case *test, double *const *inputs, double *const *outputs)
{
    const trm_dims *x = &test->inputs[0].dims;
    const int64_t count = x->n == 0 ? 0 : test->outputs[0].used / x->n;
    int64_t found = 0;
    for (int64_t i = 0; i < trm_dims_count(x); i++) {
        if (inputs[0][i] == 0.0) {
            continue;
        }
        const place at = place_of(x, i);
        for (int32_t axis = 0; axis < x->n; axis++) {
            outputs[0][axis * count + found] = (double)at.i[axis];
        }
        found++;
    }
    outputs[1][0] = (double)found;
}

/* Every `period`-th element is not 0; none for a period of 0. */
static void non_zero_case(kernel_case_bench *bench, trm_dtype dtype, trm_dims dims, int64_t period)
{
    kernel_case test = new_case(TRM_LAYER_NON_ZERO, "%s of %lld, 1 in %lld", trm_dtype_name(dtype),
                                (long long)trm_dims_count(&dims), (long long)period);
    const int64_t n = trm_dims_count(&dims);
    double *values = calloc((size_t)n + 1, sizeof(*values));
    int64_t count = 0;
    for (int64_t i = 0; period > 0 && i < n; i += period) {
        values[i] = is_unsigned(dtype) || i % 2 == 0 ? 1.0 : -1.0;
        count++;
    }
    if (is_floating(dtype) && n > 1 && period != 1) {
        values[1] = -0.0;
    }
    add_input(&test, dtype, dims, 0, 0)->values = values;
    add_output(&test, TRM_I64, DIMS(dims.n, n));
    add_output(&test, TRM_I64, SCALAR);
    test.outputs[0].partly = true;
    test.outputs[0].used = dims.n * count;
    kernel_case_run(bench, &test, meaning_non_zero);
    free(values);
}

static int compare_slices(const double *x, int64_t outer, int64_t n, int64_t inner, int64_t i, int64_t k)
{
    for (int64_t o = 0; o < outer; o++) {
        for (int64_t e = 0; e < inner; e++) {
            const double a = x[(o * n + i) * inner + e], b = x[(o * n + k) * inner + e];
            if (isnan(a) != isnan(b) || (!isnan(a) && a != b)) {
                return isnan(a) || (!isnan(b) && a > b) ? 1 : -1;
            }
        }
    }
    return 0;
}

/* By counting for every slice how many first ones come before it: slow, and another way than the kernels'. */
static void meaning_unique(const kernel_case *test, double *const *inputs, double *const *outputs)
{
    const trm_unique_params *p = &test->layer.unique;
    const trm_dims *x = &test->inputs[0].dims;
    int64_t outer = 1, n = 1, inner = 1, count = 0;
    for (int32_t axis = 0; axis < x->n; axis++) {
        int64_t *size = p->flatten || axis == p->axis ? &n : axis < p->axis ? &outer : &inner;
        *size *= x->d[axis];
    }
    for (int64_t i = 0; i < n; i++) {
        outputs[3][i] = 0.0;
    }
    for (int64_t pass = 0; pass < 2; pass++) { /* first the number, which is the stride of the result */
        for (int64_t i = 0, total = 0; i < n; i++) {
            int64_t first = i, slot = 0;
            for (int64_t k = i - 1; k >= 0; k--) {
                first = compare_slices(inputs[0], outer, n, inner, i, k) == 0 ? k : first;
            }
            for (int64_t k = 0; k < n; k++) {
                bool is_first = true;
                for (int64_t j = 0; j < k; j++) {
                    is_first = is_first && compare_slices(inputs[0], outer, n, inner, j, k) != 0;
                }
                const bool before = p->sorted ? compare_slices(inputs[0], outer, n, inner, k, i) < 0 : k < first;
                slot += is_first && before;
            }
            total += first == i;
            if (pass == 0) {
                count = total;
                continue;
            }
            outputs[1][slot] = (double)first;
            outputs[2][i] = (double)slot;
            outputs[3][slot] += 1.0;
            for (int64_t e = 0; e < outer * inner; e++) {
                outputs[0][(e / inner * count + slot) * inner + e % inner] =
                    inputs[0][(e / inner * n + first) * inner + e % inner];
            }
        }
    }
    outputs[4][0] = (double)count;
}

/* axis -1: flattened. `kinds` slices differ. */
static void unique_case(kernel_case_bench *bench, trm_dtype dtype, trm_dims dims, int32_t axis, bool sorted,
                        const double *values, int64_t kinds)
{
    kernel_case test = new_case(TRM_LAYER_UNIQUE, "%s of %lld axis %d%s", trm_dtype_name(dtype),
                                (long long)trm_dims_count(&dims), (int)axis, sorted ? " sorted" : "");
    const bool flatten = axis < 0;
    const int64_t n = flatten ? trm_dims_count(&dims) : dims.d[axis];
    test.layer.unique = (trm_unique_params){.flatten = flatten, .sorted = sorted, .axis = flatten ? 0 : axis};
    test.tolerance = 0.0;
    add_input(&test, dtype, dims, 0, 0)->values = values;
    add_output(&test, dtype, flatten ? DIMS(n) : dims);
    for (int32_t i = 1; i < 5; i++) {
        add_output(&test, TRM_I64, i == 4 ? SCALAR : DIMS(n));
        test.outputs[i].partly = i == 1 || i == 3;
        test.outputs[i].used = kinds;
    }
    test.outputs[0].partly = true;
    test.outputs[0].used = n == 0 ? 0 : trm_dims_count(&dims) / n * kinds;
    kernel_case_run(bench, &test, meaning_unique);
}

static void unique_cases(kernel_case_bench *bench)
{
    static const double mixed[] = {3, 1, 3, 2, 1, 3, 7, 0, 0, 2, 2, 2}, nans[] = {NAN, 1, -1, NAN, 1, -2};
    double many[300];
    for (int32_t i = 0; i < 300; i++) {
        many[i] = (double)(i * 37 % 101);
    }
    for (int32_t t = 0; t < COUNT(numbers); t++) {
        for (int32_t sorted = 0; sorted < 2; sorted++) {
            unique_case(bench, numbers[t], DIMS(3, 4), -1, sorted != 0, mixed, 5);
            unique_case(bench, numbers[t], DIMS(6, 2), 0, sorted != 0, mixed, 6);
            unique_case(bench, numbers[t], DIMS(2, 6), 1, sorted != 0, mixed, 6);
        }
    }
    for (int32_t sorted = 0; sorted < 2; sorted++) {
        static const double rows[] = {1, 2, 1, 2, 3, 4, 1, 2, 3, 4, 1, 1},
                            planes[] = {0, 1, 0, 1, 2, 2, 0, 1, 0, 1, 2, 2};
        unique_case(bench, TRM_F32, DIMS(6, 2), 0, sorted != 0, rows, 3);
        unique_case(bench, TRM_F16, DIMS(2, 3, 2), 1, sorted != 0, planes, 2);
        unique_case(bench, TRM_F32, DIMS(6), -1, sorted != 0, nans, 4);
        unique_case(bench, TRM_I32, DIMS(300), -1, sorted != 0, many, 101);
        unique_case(bench, TRM_I64, DIMS(1), -1, sorted != 0, mixed, 1);
        unique_case(bench, TRM_I64, SCALAR, -1, sorted != 0, mixed, 1);
        unique_case(bench, TRM_I64, DIMS(0), -1, sorted != 0, mixed, 0);
    }
}

void kernel_cases_shapes(kernel_case_bench *bench)
{
    static const double two_three[] = {2, 3}, one_zero[] = {1, 0}, lots[] = {1, 3, 2, 1, 2};
    static const double up[] = {2, 9, 3}, down[] = {5, 1, -1}, down_2[] = {-1, -2147483648.0, -2},
                        past[] = {100, -100, -3};
    static const double floats_by[] = {0.5, 3.25, 0.25}, falling[] = {10, 0, -3}, none[] = {3, 0, 1};
    shape_case(bench, DIMS(3, 0, 5), 0, INT32_MAX, 3);
    shape_case(bench, DIMS(3, 4, 5), -2, -1, 1);
    shape_case(bench, DIMS(3, 4, 5), 2, 1, 0);
    shape_case(bench, SCALAR, 0, INT32_MAX, 0);
    for (int32_t t = 0; t < COUNT(all_types); t++) {
        expand_case(bench, all_types[t], DIMS(3, 1), DIMS(2, 3, 4), t % 2 == 0);
        tile_case(bench, all_types[t], DIMS(3, 5), two_three);
        slice_case(bench, all_types[t], DIMS(2, 7, 3), 1, down, t % 2 == 0, 4);
        non_zero_case(bench, all_types[t], DIMS(3, 7, 2), 3);
    }
    expand_case(bench, TRM_F32, SCALAR, DIMS(3, 2), false);
    expand_case(bench, TRM_F32, DIMS(1, 0), DIMS(4, 0), true);
    expand_case(bench, TRM_F32, DIMS(2, 3), DIMS(2, 3), false);
    expand_case(bench, TRM_F16, DIMS(1, 300), DIMS(70, 300), false);
    tile_case(bench, TRM_F32, DIMS(3, 5), one_zero);
    tile_case(bench, TRM_I64, DIMS(2, 3, 1, 9, 5), lots);
    for (int32_t t = 0; t < COUNT(floats); t++) {
        range_case(bench, floats[t], floats_by, 11);
    }
    range_case(bench, TRM_F64, floats_by, 11);
    range_case(bench, TRM_I16, falling, 4);
    range_case(bench, TRM_I32, falling, 4);
    range_case(bench, TRM_I64, falling, 4);
    range_case(bench, TRM_I64, none, 0);
    slice_case(bench, TRM_F32, DIMS(2, 7, 3), 1, up, true, 2);
    slice_case(bench, TRM_F32, DIMS(2, 7, 3), 1, down_2, true, 4);
    slice_case(bench, TRM_F32, DIMS(2, 7, 3), 1, past, false, 3);
    slice_case(bench, TRM_F32, DIMS(0, 3), 0, down, false, 0);
    slice_case(bench, TRM_BF16, DIMS(40, 64), 0, past, true, 14);
    non_zero_case(bench, TRM_F32, DIMS(50, 401), 7);
    non_zero_case(bench, TRM_BOOL, DIMS(30000), 1);
    non_zero_case(bench, TRM_BOOL, DIMS(30000), 0);
    non_zero_case(bench, TRM_F32, DIMS(0, 4), 1);
    non_zero_case(bench, TRM_F32, SCALAR, 1);
    unique_cases(bench);
}
