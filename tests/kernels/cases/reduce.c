/* Cases and meanings of softmax and reductions. */
#include <math.h>

#include "kernels/cases/cases.h"
#include "kernels/cases/support.h"

/* First element, count and distance of the lines along an axis that element i of the folded dims stands for. */
static int64_t line_start(const trm_dims *x, int32_t axis, int64_t i, int64_t *stride)
{
    *stride = 1;
    for (int32_t j = axis + 1; j < x->n; j++) {
        *stride *= x->d[j];
    }
    return i / *stride * *stride * x->d[axis] + i % *stride;
}

static void meaning_softmax(const kernel_case *test, double *const *inputs, double *const *outputs)
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

static void meaning_reduce(const kernel_case *test, double *const *inputs, double *const *outputs)
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

static void softmax_case(kernel_case_bench *bench, trm_dtype dtype, trm_dims dims, int32_t axis, double range)
{
    kernel_case test = new_case(TRM_LAYER_SOFTMAX, "%s axis %d of %d-d, %lld, +-%g", trm_dtype_name(dtype), (int)axis,
                                (int)dims.n, (long long)trm_dims_count(&dims), range);
    test.layer.softmax.axis = axis;
    add_input(&test, dtype, dims, -range, range);
    add_output(&test, dtype, dims);
    kernel_case_run(bench, &test, meaning_softmax);
}

static void reduce_case(kernel_case_bench *bench, trm_dtype dtype, trm_reduce_op op, trm_dims dims, int32_t axis,
                        bool keep)
{
    kernel_case test = new_case(TRM_LAYER_REDUCE, "op %d %s axis %d of %d-d, %lld%s", (int)op, trm_dtype_name(dtype),
                                (int)axis, (int)dims.n, (long long)trm_dims_count(&dims), keep ? " keep" : "");
    test.layer.reduce = (trm_reduce_params){.op = op, .axis = axis, .keep_dims = keep};
    const int32_t at = axis < 0 ? axis + dims.n : axis;
    trm_dims out = {.n = 0};
    for (int32_t i = 0; i < dims.n; i++) {
        if (i != at || keep) {
            out.d[out.n++] = i == at ? 1 : dims.d[i];
        }
    }
    if (op == TRM_REDUCE_PROD) { /* neither overflow nor vanish */
        add_input(&test, dtype, dims,
                  is_floating(dtype)   ? 0.8
                  : is_unsigned(dtype) ? 1.0
                                       : -2.0,
                  is_floating(dtype) ? 1.25 : 2.0);
    } else {
        add_data(&test, dtype, dims);
    }
    add_output(&test, dtype, out);
    kernel_case_run(bench, &test, meaning_reduce);
}

void kernel_cases_fold(kernel_case_bench *bench)
{
    static const trm_dtype softmaxes[] = {TRM_F32, TRM_F16, TRM_BF16, TRM_F64};
    for (int32_t t = 0; t < COUNT(softmaxes); t++) {
        const trm_dtype dtype = softmaxes[t];
        softmax_case(bench, dtype, DIMS(5, 33), -1, 4.0);
        softmax_case(bench, dtype, DIMS(5, 33), 0, 4.0);
        softmax_case(bench, dtype, DIMS(3, 17, 130), 1, 4.0);
        softmax_case(bench, dtype, DIMS(3, 5000), 1, 10.0);
        softmax_case(bench, dtype, DIMS(3, 64), 1, 5000.0);
        softmax_case(bench, dtype, DIMS(4, 1), 1, 4.0);
        softmax_case(bench, dtype, DIMS(0, 4), 1, 4.0);
        softmax_case(bench, dtype, DIMS(4, 0), 1, 4.0);
    }
    for (int32_t t = 0; t < COUNT(numbers); t++) {
        for (int32_t op = TRM_REDUCE_SUM; op <= TRM_REDUCE_AVG; op++) {
            reduce_case(bench, numbers[t], (trm_reduce_op)op, DIMS(3, 9, 7), 1, true);
            reduce_case(bench, numbers[t], (trm_reduce_op)op, DIMS(3, 9, 7), -1, false);
            reduce_case(bench, numbers[t], (trm_reduce_op)op, DIMS(9), 0, false);
        }
        for (int32_t op = TRM_REDUCE_SUM; op <= TRM_REDUCE_AVG; op++) {
            reduce_case(bench, numbers[t], (trm_reduce_op)op, DIMS(2, 0, 3), 1, true);
            reduce_case(bench, numbers[t], (trm_reduce_op)op, DIMS(2, 0), 1, false);
        }
        reduce_case(bench, numbers[t], TRM_REDUCE_MAX, DIMS(33, 257), 0, false);
        reduce_case(bench, numbers[t], TRM_REDUCE_MIN, DIMS(2, 3, 1, 4), 2, false);
        reduce_case(bench, numbers[t], TRM_REDUCE_MAX, DIMS(0, 3), 1, true);
    }
    reduce_case(bench, TRM_BOOL, TRM_REDUCE_MAX, DIMS(30, 2, 3), 1, true);
    reduce_case(bench, TRM_BOOL, TRM_REDUCE_MIN, DIMS(30, 2), 1, false);
    reduce_case(bench, TRM_BOOL, TRM_REDUCE_MIN, DIMS(3, 0), 1, false);
    reduce_case(bench, TRM_F32, TRM_REDUCE_AVG, DIMS(3, 20001), 1, false);
    reduce_case(bench, TRM_BF16, TRM_REDUCE_MAX, DIMS(3, 20001), 1, true);
}
