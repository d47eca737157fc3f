/* Cases and meanings of the kinds that take or place elements by position. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "kernels/case_support.h"
#include "kernels/cases.h"

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

void kernel_cases_indexing(kernel_case_bench *bench)
{
    pad_cases(bench);
}
