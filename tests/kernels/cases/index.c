/* Cases and meanings of the kinds that take or place elements by position. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "kernels/cases/support.h"
#include "kernels/cases/cases.h"

/* ---- pad ---------------------------------------------------------------------------------------- */

static int64_t mirrored(int64_t at, int64_t n)
{
    while (n > 1 && (at < 0 || at >= n)) {
        at = at < 0 ? -at : 2 * (n - 1) - at;
    }
    return n == 1 ? 0 : at;
}

static void meaning_pad(const kernel_case *test, double *const *inputs, double *const *outputs)
{
    const trm_pad_params *p = &test->layer.pad;
    const trm_dims *x = &test->inputs[0].dims;
    for (int64_t i = 0; i < count_of_output(test); i++) {
        place at = place_of(&test->outputs[0].dims, i);
        bool inside = true;
        for (int32_t axis = 0; axis < x->n; axis++) {
            int64_t before = p->before[axis], after = p->after[axis];
            if (test->n_inputs > 1 && test->inputs[1].dtype != TRM_DTYPE_NONE) {
                before = (int64_t)inputs[1][axis];
                after = (int64_t)inputs[1][x->n + axis];
            }
            /* What is left of the axis after cutting, and the place in it. */
            const int64_t cut = before < 0 ? -before : 0;
            const int64_t n = x->d[axis] - cut - (after < 0 ? -after : 0);
            int64_t k = at.i[axis] - (before > 0 ? before : 0);
            if (k < 0 || k >= n) {
                inside = inside && p->mode != TRM_PAD_CONSTANT;
                k = p->mode == TRM_PAD_EDGE ? (k < 0 ? 0 : n - 1) : k;
                k = p->mode == TRM_PAD_REFLECT ? mirrored(k, n) : k;
                k = p->mode == TRM_PAD_WRAP ? ((k % n) + n) % n : k;
            }
            at.i[axis] = k + cut;
        }
        const bool valued = test->n_inputs > 2 && test->inputs[2].dtype != TRM_DTYPE_NONE;
        outputs[0][i] = inside ? inputs[0][index_of(x, at.i)] : valued ? inputs[2][0] : 0.0;
    }
}

/* pads: befores and afters; given as an input if `as_input`. */
static void pad_case(kernel_case_bench *bench, trm_dtype dtype, trm_dims x, trm_pad_mode mode, const int32_t *pads,
                     bool as_input, bool valued)
{
    kernel_case test = new_case(TRM_LAYER_PAD, "%s mode %d of %lld by %d..%s%s", trm_dtype_name(dtype), (int)mode,
                                (long long)trm_dims_count(&x), x.n > 0 ? (int)pads[0] : 0, as_input ? " input" : "",
                                valued ? " value" : "");
    double values[2 * TRM_MAX_DIMS];
    trm_dims y = x;
    test.layer.pad.mode = mode;
    for (int32_t i = 0; i < x.n; i++) {
        test.layer.pad.before[i] = as_input ? 0 : pads[i];
        test.layer.pad.after[i] = as_input ? 0 : pads[x.n + i];
        values[i] = pads[i];
        values[x.n + i] = pads[x.n + i];
        y.d[i] += pads[i] + pads[x.n + i];
    }
    test.tolerance = 0.0;
    add_data(&test, dtype, x);
    if (as_input || valued) {
        add_input(&test, as_input ? TRM_I64 : TRM_DTYPE_NONE, DIMS(2 * x.n), 0, 0)->values = values;
    }
    if (valued) {
        add_data(&test, dtype, SCALAR);
    }
    add_output(&test, dtype, y);
    kernel_case_run(bench, &test, meaning_pad);
}

static void pad_cases(kernel_case_bench *bench)
{
    static const int32_t two[] = {1, 3, 2, 0}, cut[] = {-1, 2, 2, -2}, far[] = {7, 0, 9, 11}, none[] = {0, 0, 0, 0};
    static const int32_t both[] = {-1, -2, -1, -1}, eight[] = {1, 0, 1, 0, 1, 0, 1, 0, 0, 1, 0, 1, 0, 1, 0, 1};
    for (int32_t t = 0; t < COUNT(all_types); t++) {
        for (int32_t mode = TRM_PAD_CONSTANT; mode <= TRM_PAD_WRAP; mode++) {
            pad_case(bench, all_types[t], DIMS(4, 5), (trm_pad_mode)mode, two, mode % 2 == 0, mode == 0);
        }
    }
    for (int32_t mode = TRM_PAD_CONSTANT; mode <= TRM_PAD_WRAP; mode++) {
        pad_case(bench, TRM_F32, DIMS(4, 5), (trm_pad_mode)mode, cut, true, false);
        pad_case(bench, TRM_F32, DIMS(4, 5), (trm_pad_mode)mode, cut, false, true);
        pad_case(bench, TRM_F32, DIMS(4, 5), (trm_pad_mode)mode, both, false, false);
        pad_case(bench, TRM_F16, DIMS(3, 1), (trm_pad_mode)mode, far, true, false);
        pad_case(bench, TRM_I64, DIMS(300, 41), (trm_pad_mode)mode, far, false, false);
        pad_case(bench, TRM_I32, DIMS(3, 1), (trm_pad_mode)mode, none, true, false);
        pad_case(bench, TRM_BF16, DIMS(2, 3, 2, 3, 2, 3, 2, 3), (trm_pad_mode)mode, eight, true, false);
    }
    pad_case(bench, TRM_F32, SCALAR, TRM_PAD_CONSTANT, two, false, false);
    pad_case(bench, TRM_F32, DIMS(0, 2), TRM_PAD_CONSTANT, two, true, true);
    pad_case(bench, TRM_F32, DIMS(0, 2), TRM_PAD_EDGE, none, false, false);
}

/* ---- gather_elements, gather_nd ----------------------------------------------------------------- */

/* An index of an axis of n; -1 out of range. */
static int64_t position_of(double index, int64_t n)
{
    const int64_t at = (int64_t)index + (index < 0.0 ? n : 0);
    return at >= 0 && at < n ? at : -1;
}

static void meaning_gather_elements(const kernel_case *test, double *const *inputs, double *const *outputs)
{
    const trm_dims *x = &test->inputs[0].dims;
    const int32_t axis = axis_of(test->layer.gather_elements.axis, x);
    for (int64_t i = 0; i < count_of_output(test); i++) {
        place p = place_of(&test->outputs[0].dims, i);
        p.i[axis] = position_of(inputs[1][i], x->d[axis]);
        outputs[0][i] = p.i[axis] < 0 ? 0.0 : inputs[0][index_of(x, p.i)];
    }
}

static void gather_elements_case(kernel_case_bench *bench, trm_dtype dtype, trm_dims x, int32_t axis,
                                 trm_dtype index_type, trm_dims indices)
{
    kernel_case test = new_case(TRM_LAYER_GATHER_ELEMENTS, "%s of %lld axis %d by %lld %s", trm_dtype_name(dtype),
                                (long long)trm_dims_count(&x), (int)axis, (long long)trm_dims_count(&indices),
                                trm_dtype_name(index_type));
    const int64_t n = x.d[axis < 0 ? axis + x.n : axis];
    test.layer.gather_elements.axis = axis;
    test.tolerance = 0.0;
    add_data(&test, dtype, x);
    add_input(&test, index_type, indices, (double)-n - 1.0, (double)n);
    add_output(&test, dtype, indices);
    kernel_case_run(bench, &test, meaning_gather_elements);
}

/* The elements a row of k indices addresses behind `batch` leading coordinates: the first, or -1. */
static int64_t row_start(const double *row, const trm_dims *data, const place *at, int32_t batch, int64_t k)
{
    place p = {{0}};
    for (int32_t axis = 0; axis < batch + k; axis++) {
        p.i[axis] = axis < batch ? at->i[axis] : position_of(row[axis - batch], data->d[axis]);
        if (p.i[axis] < 0) {
            return -1;
        }
    }
    return index_of(data, p.i);
}

static void meaning_gather_nd(const kernel_case *test, double *const *inputs, double *const *outputs)
{
    const trm_dims *x = &test->inputs[0].dims, *indices = &test->inputs[1].dims;
    const int64_t k = indices->d[indices->n - 1];
    const int32_t batch = test->layer.gather_nd.batch_dims;
    int64_t slice = 1;
    for (int32_t axis = batch + (int32_t)k; axis < x->n; axis++) {
        slice *= x->d[axis];
    }
    for (int64_t i = 0; i < count_of_output(test); i++) {
        const place at = place_of(&test->outputs[0].dims, i);
        const int64_t start = row_start(inputs[1] + i / slice * k, x, &at, batch, k);
        outputs[0][i] = start < 0 ? 0.0 : inputs[0][start + i % slice];
    }
}

static void gather_nd_case(kernel_case_bench *bench, trm_dtype dtype, trm_dims x, trm_dims indices, int32_t batch)
{
    kernel_case test = new_case(TRM_LAYER_GATHER_ND, "%s of %lld by %lld batch %d", trm_dtype_name(dtype),
                                (long long)trm_dims_count(&x), (long long)trm_dims_count(&indices), (int)batch);
    test.layer.gather_nd.batch_dims = batch;
    test.tolerance = 0.0;
    trm_dims y = indices;
    int64_t smallest = x.n > 0 ? x.d[0] : 1;
    y.n--;
    for (int32_t i = 0; i < x.n; i++) {
        smallest = x.d[i] < smallest ? x.d[i] : smallest;
        if (i >= batch + indices.d[indices.n - 1]) {
            y.d[y.n++] = x.d[i];
        }
    }
    add_data(&test, dtype, x);
    add_input(&test, TRM_I64, indices, (double)-smallest - 1.0, (double)smallest);
    add_output(&test, dtype, y);
    kernel_case_run(bench, &test, meaning_gather_nd);
}

static void gather_cases(kernel_case_bench *bench)
{
    for (int32_t t = 0; t < COUNT(all_types); t++) {
        gather_elements_case(bench, all_types[t], DIMS(4, 9, 3), 1, TRM_I64, DIMS(4, 5, 3));
        gather_nd_case(bench, all_types[t], DIMS(4, 5, 3), DIMS(6, 2), 0);
    }
    gather_elements_case(bench, TRM_F32, DIMS(40), 0, TRM_I32, DIMS(90));
    gather_elements_case(bench, TRM_F32, DIMS(7, 300), -1, TRM_I32, DIMS(5, 700));
    gather_elements_case(bench, TRM_F16, DIMS(7, 30, 2, 3), -3, TRM_I64, DIMS(7, 3, 1, 3));
    gather_elements_case(bench, TRM_F32, DIMS(7, 30), 0, TRM_I64, DIMS(0, 30));
    gather_elements_case(bench, TRM_F32, DIMS(0, 3), 0, TRM_I64, DIMS(2, 3));
    gather_nd_case(bench, TRM_F32, DIMS(2, 2, 5), DIMS(2, 1), 1);
    gather_nd_case(bench, TRM_F32, DIMS(3, 4, 5, 6), DIMS(3, 4, 7, 1), 2);
    gather_nd_case(bench, TRM_BF16, DIMS(60, 50), DIMS(100, 3, 2), 0);
    gather_nd_case(bench, TRM_BF16, DIMS(5, 1000), DIMS(9, 1), 0);
    gather_nd_case(bench, TRM_I64, DIMS(5, 6), DIMS(4, 0), 0);
    gather_nd_case(bench, TRM_I64, DIMS(5, 6), DIMS(2), 0);
    gather_nd_case(bench, TRM_I64, DIMS(5, 6), DIMS(0, 2), 0);
}

/* ---- scatter ------------------------------------------------------------------------------------ */

static double combined(trm_dtype dtype, trm_scatter_reduction reduction, double a, double b)
{
    double c = b;
    c = reduction == TRM_SCATTER_ADD ? a + b : c;
    c = reduction == TRM_SCATTER_MUL ? a * b : c;
    c = reduction == TRM_SCATTER_MIN ? (b < a ? b : a) : c;
    c = reduction == TRM_SCATTER_MAX ? (b > a ? b : a) : c;
    return is_integer(dtype) ? wrap(dtype, c) : dtype == TRM_BOOL ? c != 0.0 : c;
}

static void meaning_scatter(const kernel_case *test, double *const *inputs, double *const *outputs)
{
    const trm_scatter_params *p = &test->layer.scatter;
    const trm_dims *x = &test->inputs[0].dims, *updates = &test->inputs[2].dims, *indices = &test->inputs[1].dims;
    const int64_t k = p->form == TRM_SCATTER_ND ? indices->d[indices->n - 1] : 0;
    int64_t slice = 1;
    for (int32_t axis = (int32_t)k; axis < x->n; axis++) {
        slice *= x->d[axis];
    }
    for (int64_t i = 0; i < count_of_output(test); i++) {
        outputs[0][i] = inputs[0][i];
    }
    for (int64_t i = 0; i < trm_dims_count(updates); i++) {
        place at = place_of(updates, i);
        int64_t to;
        if (p->form == TRM_SCATTER_ELEMENTS) {
            const int32_t axis = axis_of(p->axis, x);
            at.i[axis] = position_of(inputs[1][i], x->d[axis]);
            to = at.i[axis] < 0 ? -1 : index_of(x, at.i);
        } else {
            to = row_start(inputs[1] + i / slice * k, x, &at, 0, k);
            to += to < 0 ? 0 : i % slice;
        }
        if (to >= 0) {
            outputs[0][to] = combined(test->inputs[0].dtype, p->reduction, outputs[0][to], inputs[2][i]);
        }
    }
}

/* Indices are different ones along each axis if nothing is combined. */
static void scatter_case(kernel_case_bench *bench, trm_dtype dtype, trm_scatter_form form,
                         trm_scatter_reduction reduction, trm_dims x, int32_t axis, trm_dtype index_type,
                         trm_dims indices)
{
    kernel_case test = new_case(TRM_LAYER_SCATTER, "%s form %d reduction %d of %lld axis %d by %lld %s",
                                trm_dtype_name(dtype), (int)form, (int)reduction, (long long)trm_dims_count(&x),
                                (int)axis, (long long)trm_dims_count(&indices), trm_dtype_name(index_type));
    static double distinct[65536];
    test.layer.scatter = (trm_scatter_params){.form = form, .reduction = reduction, .axis = axis};
    test.tolerance = reduction == TRM_SCATTER_ADD || reduction == TRM_SCATTER_MUL ? 8.0 : 0.0;
    trm_dims updates = indices;
    const int32_t at = axis < 0 ? axis + x.n : axis;
    int64_t limit = x.n > 0 ? x.d[at] : 1;
    if (form == TRM_SCATTER_ND) {
        updates.n--;
        for (int32_t i = 0; i < x.n; i++) {
            limit = x.d[i] < limit ? x.d[i] : limit;
            if (i >= indices.d[indices.n - 1]) {
                updates.d[updates.n++] = x.d[i];
            }
        }
    }
    for (int64_t i = 0; i < trm_dims_count(&indices) && reduction == TRM_SCATTER_REPLACE; i++) {
        const place p = place_of(&indices, i);
        if (form == TRM_SCATTER_ELEMENTS) { /* 7 k + 3 mod n, negative ones among them: n has no factor 7 */
            distinct[i] = (double)((7 * p.i[at] + 3) % limit) - (p.i[at] % 3 == 0 ? (double)limit : 0.0);
        } else {
            const int64_t k = indices.d[indices.n - 1];
            distinct[i] = (double)(p.i[indices.n - 1] == 0 ? i / k % x.d[0] : (i / k / x.d[0] + i) % limit);
        }
    }
    /* Beyond the signed numbers, too, where that makes a difference. */
    const bool large = dtype == TRM_U64 && reduction >= TRM_SCATTER_MIN;
    kernel_case_input *data = add_data(&test, dtype, x);
    data->high = large ? 1.8e19 : data->high;
    add_input(&test, index_type, indices, (double)-limit - 1.0, (double)limit)->values =
        reduction == TRM_SCATTER_REPLACE ? distinct : NULL;
    data = add_data(&test, dtype, updates);
    data->high = large ? 1.8e19 : data->high;
    add_output(&test, dtype, x);
    kernel_case_run(bench, &test, meaning_scatter);
}

static void scatter_cases(kernel_case_bench *bench)
{
    for (int32_t t = 0; t < COUNT(all_types); t++) {
        for (int32_t r = TRM_SCATTER_REPLACE; r <= TRM_SCATTER_MAX; r++) {
            const trm_scatter_reduction reduction = (trm_scatter_reduction)r;
            scatter_case(bench, all_types[t], TRM_SCATTER_ELEMENTS, reduction, DIMS(4, 11, 3), 1, TRM_I64,
                         DIMS(3, 8, 3));
            scatter_case(bench, all_types[t], TRM_SCATTER_ND, reduction, DIMS(5, 4, 3), 0, TRM_I64, DIMS(4, 1));
        }
    }
    for (int32_t r = TRM_SCATTER_REPLACE; r <= TRM_SCATTER_MAX; r++) {
        const trm_scatter_reduction reduction = (trm_scatter_reduction)r;
        scatter_case(bench, TRM_F32, TRM_SCATTER_ELEMENTS, reduction, DIMS(1000), 0, TRM_I32, DIMS(200));
        scatter_case(bench, TRM_F16, TRM_SCATTER_ELEMENTS, reduction, DIMS(30, 50), -1, TRM_I32, DIMS(30, 20));
        scatter_case(bench, TRM_F32, TRM_SCATTER_ND, reduction, DIMS(40, 30, 20), 0, TRM_I64, DIMS(7, 5, 1));
        scatter_case(bench, TRM_BF16, TRM_SCATTER_ND, reduction, DIMS(40, 300), 0, TRM_I64, DIMS(30, 2));
    }
    scatter_case(bench, TRM_F32, TRM_SCATTER_ELEMENTS, TRM_SCATTER_ADD, DIMS(4, 5), 0, TRM_I64, DIMS(0, 5));
    scatter_case(bench, TRM_F32, TRM_SCATTER_ELEMENTS, TRM_SCATTER_ADD, DIMS(0, 5), 1, TRM_I64, DIMS(0, 5));
    scatter_case(bench, TRM_F32, TRM_SCATTER_ND, TRM_SCATTER_ADD, DIMS(4, 5), 0, TRM_I64, DIMS(3, 0));
    scatter_case(bench, TRM_F32, TRM_SCATTER_ND, TRM_SCATTER_REPLACE, DIMS(4, 5), 0, TRM_I64, DIMS(0, 1));
}

/* ---- one_hot, reverse_sequence ------------------------------------------------------------------ */

static void meaning_one_hot(const kernel_case *test, double *const *inputs, double *const *outputs)
{
    const trm_dims *y = &test->outputs[0].dims, *indices = &test->inputs[0].dims;
    const int32_t axis = axis_of(test->layer.one_hot.axis, y);
    for (int64_t i = 0; i < count_of_output(test); i++) {
        const place p = place_of(y, i);
        place from = {{0}};
        for (int32_t j = 0; j < indices->n; j++) {
            from.i[j] = p.i[j < axis ? j : j + 1];
        }
        const int64_t hot = position_of(trunc(inputs[0][index_of(indices, from.i)]), y->d[axis]);
        outputs[0][i] = inputs[2][hot == p.i[axis] ? 1 : 0];
    }
}

static void one_hot_case(kernel_case_bench *bench, trm_dtype index_type, trm_dtype dtype, trm_dims indices,
                         int32_t axis, int64_t depth)
{
    kernel_case test = new_case(TRM_LAYER_ONE_HOT, "%s by %s of %lld axis %d", trm_dtype_name(dtype),
                                trm_dtype_name(index_type), (long long)depth, (int)axis);
    const double depths[] = {(double)depth};
    static const double values[] = {0.0, 1.0};
    test.layer.one_hot.axis = axis;
    test.tolerance = 0.0;
    trm_dims y = {.n = indices.n + 1};
    const int32_t at = axis < 0 ? axis + y.n : axis;
    for (int32_t i = 0; i < y.n; i++) {
        y.d[i] = i < at ? indices.d[i] : i == at ? depth : indices.d[i - 1];
    }
    add_input(&test, index_type, indices, is_unsigned(index_type) ? 0.0 : (double)-depth - 1.0, (double)depth + 1.0);
    add_input(&test, TRM_I64, SCALAR, 0, 0)->values = depths;
    add_input(&test, dtype, DIMS(2), 0, 0)->values = values;
    add_output(&test, dtype, y);
    kernel_case_run(bench, &test, meaning_one_hot);
}

static void meaning_reverse_sequence(const kernel_case *test, double *const *inputs, double *const *outputs)
{
    const trm_reverse_sequence_params *p = &test->layer.reverse_sequence;
    const trm_dims *x = &test->inputs[0].dims;
    for (int64_t i = 0; i < count_of_output(test); i++) {
        place at = place_of(x, i);
        const int64_t length = (int64_t)inputs[1][at.i[p->batch_axis]];
        int64_t *time = &at.i[p->time_axis];
        *time = *time < length ? length - 1 - *time : *time;
        outputs[0][i] = inputs[0][index_of(x, at.i)];
    }
}

static void reverse_sequence_case(kernel_case_bench *bench, trm_dtype dtype, trm_dims x, int32_t time_axis)
{
    kernel_case test = new_case(TRM_LAYER_REVERSE_SEQUENCE, "%s of %lld time %d", trm_dtype_name(dtype),
                                (long long)trm_dims_count(&x), (int)time_axis);
    test.layer.reverse_sequence = (trm_reverse_sequence_params){.batch_axis = 1 - time_axis, .time_axis = time_axis};
    test.tolerance = 0.0;
    add_data(&test, dtype, x);
    add_input(&test, TRM_I64, DIMS(x.d[1 - time_axis]), 0.0, (double)x.d[time_axis]);
    add_output(&test, dtype, x);
    kernel_case_run(bench, &test, meaning_reverse_sequence);
}

static void one_hot_cases(kernel_case_bench *bench)
{
    for (int32_t t = 0; t < COUNT(numbers); t++) {
        one_hot_case(bench, numbers[t], TRM_F32, DIMS(2, 5), 1, 6);
    }
    for (int32_t t = 0; t < COUNT(all_types); t++) {
        one_hot_case(bench, TRM_I64, all_types[t], DIMS(9), -1, 12);
        reverse_sequence_case(bench, all_types[t], DIMS(5, 9, 3), t % 2);
    }
    one_hot_case(bench, TRM_I64, TRM_F32, SCALAR, 0, 4);
    one_hot_case(bench, TRM_I64, TRM_F32, DIMS(3, 4, 50), -4, 7);
    one_hot_case(bench, TRM_I64, TRM_F32, DIMS(3), 0, 0);
    reverse_sequence_case(bench, TRM_F32, DIMS(40, 70), 0);
    reverse_sequence_case(bench, TRM_F32, DIMS(40, 70, 2, 2), 1);
    reverse_sequence_case(bench, TRM_F32, DIMS(4, 0, 2), 1);
}

/* ---- topk, arg_reduce --------------------------------------------------------------------------- */

/* Whether element a of a row, at position i, comes before element b at j. */
static bool comes_before(double a, int64_t i, double b, int64_t j, bool smallest, bool last)
{
    if (isnan(a) != isnan(b)) {
        return isnan(a) != smallest;
    }
    if (!isnan(a) && a != b) {
        return smallest ? a < b : a > b;
    }
    return last ? i > j : i < j;
}

/* Place among the n elements `inner` apart at x. */
static int64_t rank_of(const double *x, int64_t n, int64_t inner, int64_t i, bool smallest, bool last)
{
    int64_t rank = 0;
    for (int64_t j = 0; j < n; j++) {
        rank += j != i && comes_before(x[j * inner], j, x[i * inner], i, smallest, last);
    }
    return rank;
}

static void meaning_topk(const kernel_case *test, double *const *inputs, double *const *outputs)
{
    const trm_topk_params *p = &test->layer.topk;
    const trm_dims *x = &test->inputs[0].dims, *y = &test->outputs[0].dims;
    const int32_t axis = axis_of(p->axis, x);
    for (int64_t i = 0; i < trm_dims_count(x); i++) {
        place at = place_of(x, i);
        const int64_t mine = at.i[axis];
        int64_t inner = 1;
        for (int32_t j = axis + 1; j < x->n; j++) {
            inner *= x->d[j];
        }
        at.i[axis] = rank_of(inputs[0] + i - mine * inner, x->d[axis], inner, mine, p->smallest, false);
        if (at.i[axis] < y->d[axis]) {
            outputs[0][index_of(y, at.i)] = inputs[0][i];
            outputs[1][index_of(y, at.i)] = (double)mine;
        }
    }
}

static void topk_case(kernel_case_bench *bench, trm_dtype dtype, trm_dims x, int32_t axis, int64_t k, bool smallest,
                      const double *values)
{
    kernel_case test =
        new_case(TRM_LAYER_TOPK, "%s of %lld axis %d k %lld%s%s", trm_dtype_name(dtype), (long long)trm_dims_count(&x),
                 (int)axis, (long long)k, smallest ? " smallest" : "", values != NULL ? " special" : "");
    const double ks[] = {(double)k};
    test.layer.topk = (trm_topk_params){.axis = axis, .smallest = smallest, .sorted = true};
    test.tolerance = 0.0;
    trm_dims y = x;
    y.d[axis < 0 ? axis + x.n : axis] = k;
    add_data(&test, dtype, x)->values = values;
    add_input(&test, TRM_I64, DIMS(1), 0, 0)->values = ks;
    add_output(&test, dtype, y);
    add_output(&test, TRM_I64, y);
    kernel_case_run(bench, &test, meaning_topk);
}

static void meaning_arg_reduce(const kernel_case *test, double *const *inputs, double *const *outputs)
{
    const trm_arg_reduce_params *p = &test->layer.arg_reduce;
    const trm_dims *x = &test->inputs[0].dims;
    const int32_t axis = axis_of(p->axis, x);
    int64_t inner = 1;
    for (int32_t j = axis + 1; j < x->n; j++) {
        inner *= x->d[j];
    }
    for (int64_t i = 0; i < count_of_output(test); i++) {
        const double *row = inputs[0] + i / inner * inner * x->d[axis] + i % inner;
        for (int64_t j = 0; j < x->d[axis]; j++) {
            if (rank_of(row, x->d[axis], inner, j, p->smallest, p->last) == 0) {
                outputs[0][i] = (double)j;
            }
        }
    }
}

static void arg_reduce_case(kernel_case_bench *bench, trm_dtype dtype, trm_dims x, int32_t axis, bool smallest,
                            bool last, bool keep_dims)
{
    kernel_case test =
        new_case(TRM_LAYER_ARG_REDUCE, "%s of %lld axis %d%s%s", trm_dtype_name(dtype), (long long)trm_dims_count(&x),
                 (int)axis, smallest ? " smallest" : "", last ? " last" : "");
    test.layer.arg_reduce =
        (trm_arg_reduce_params){.axis = axis, .smallest = smallest, .last = last, .keep_dims = keep_dims};
    test.tolerance = 0.0;
    trm_dims y = x;
    const int32_t at = axis < 0 ? axis + x.n : axis;
    y.d[at] = 1;
    for (int32_t i = at; !keep_dims && i + 1 < x.n; i++) {
        y.d[i] = y.d[i + 1];
    }
    y.n -= keep_dims ? 0 : 1;
    kernel_case_input *input = add_data(&test, dtype, x);
    if (last && is_floating(dtype)) { /* equal ones */
        *input = (kernel_case_input){.dtype = dtype, .dims = x, .low = 0.0, .high = 0.0};
    }
    add_output(&test, TRM_I64, y);
    kernel_case_run(bench, &test, meaning_arg_reduce);
}

static void order_cases(kernel_case_bench *bench)
{
    static const double special[] = {0.0, NAN, -0.0, INFINITY, -INFINITY, 1.0, -1.0, NAN, 0.0, 2.0, -0.0, 1.0};
    for (int32_t t = 0; t < COUNT(all_types); t++) {
        for (int32_t flags = 0; flags < 4; flags++) {
            const bool smallest = (flags & 1) != 0, other = (flags & 2) != 0;
            arg_reduce_case(bench, all_types[t], DIMS(4, 9, 5), other ? 1 : -1, smallest, other, smallest);
            topk_case(bench, all_types[t], DIMS(4, 30, 5), other ? 1 : 0, other ? 7 : 3, smallest, NULL);
        }
        if (is_floating(all_types[t])) {
            topk_case(bench, all_types[t], DIMS(12), 0, 12, false, special);
            topk_case(bench, all_types[t], DIMS(12), 0, 9, true, special);
            topk_case(bench, all_types[t], DIMS(2, 6), 0, 1, true, special);
        }
    }
    topk_case(bench, TRM_F32, DIMS(3, 1000), 1, 1, false, NULL);
    topk_case(bench, TRM_F32, DIMS(3, 1000), 1, 1000, true, NULL);
    topk_case(bench, TRM_I8, DIMS(2, 1500), 1, 600, false, NULL);
    topk_case(bench, TRM_BF16, DIMS(2, 3000), -1, 2049, false, NULL);
    topk_case(bench, TRM_F64, DIMS(2, 400, 3), 1, 100, true, NULL);
    topk_case(bench, TRM_F32, DIMS(3, 10), 1, 0, false, NULL);
    topk_case(bench, TRM_F32, DIMS(0, 10), 1, 2, false, NULL);
    arg_reduce_case(bench, TRM_F32, DIMS(5, 3001), 1, false, false, true);
    arg_reduce_case(bench, TRM_I8, DIMS(5, 3001), 1, true, true, true);
    arg_reduce_case(bench, TRM_F16, DIMS(3, 40, 400), 1, false, true, false);
    arg_reduce_case(bench, TRM_F16, DIMS(0, 4), 1, false, true, false);
    arg_reduce_case(bench, TRM_F32, DIMS(40), 0, false, false, false);
}

void kernel_cases_indexing(kernel_case_bench *bench)
{
    pad_cases(bench);
    gather_cases(bench);
    scatter_cases(bench);
    one_hot_cases(bench);
    order_cases(bench);
}
