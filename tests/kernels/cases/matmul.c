/* Cases and meaning of products of matrices. */
#include "kernels/cases/cases.h"
#include "kernels/cases/support.h"

static void meaning_matmul(const kernel_case *test, double *const *inputs, double *const *outputs)
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

typedef struct matmul_options {
    bool ta, tb, bias, biases; /* biases: with the leading dims of b */
    trm_activation activation;
    trm_dtype out;
} matmul_options;

static void matmul_case(kernel_case_bench *bench, trm_dtype dtype, trm_dims a, trm_dims b, trm_dims out,
                        matmul_options o)
{
    kernel_case test =
        new_case(TRM_LAYER_MATMUL, "%s%s%s%s%s -> %s m %lld n %lld k %lld", trm_dtype_name(dtype), o.ta ? " ta" : "",
                 o.tb ? " tb" : "",
                 o.bias     ? " bias"
                 : o.biases ? " biases"
                            : "",
                 o.activation != TRM_ACTIVATION_NONE ? " activation" : "", trm_dtype_name(o.out),
                 (long long)out.d[out.n - 2], (long long)out.d[out.n - 1], (long long)a.d[a.n - (o.ta ? 2 : 1)]);
    test.layer.matmul =
        (trm_matmul_params){.transpose_a = o.ta, .transpose_b = o.tb, .activation = o.activation, .out = o.out};
    /* Half precision products may round their sums once more before bias and activation. */
    test.tolerance = 2.0;
    const double high = is_floating(dtype) ? 1.0 : 100.0, low = is_unsigned(dtype) ? 0.0 : -high;
    add_input(&test, dtype, a, low, high);
    add_input(&test, dtype, b, low, high);
    if (o.bias) {
        add_input(&test, dtype, DIMS(out.d[out.n - 1]), low, high);
    }
    if (o.biases) {
        trm_dims dims = b;
        dims.d[dims.n - 2] = 1;
        dims.d[dims.n - 1] = out.d[out.n - 1];
        add_input(&test, dtype, dims, low, high);
    }
    add_output(&test, o.out == TRM_DTYPE_NONE ? dtype : o.out, out);
    kernel_case_run(bench, &test, meaning_matmul);
}

static void linear_case(kernel_case_bench *bench, trm_dtype dtype, int64_t m, int64_t n, int64_t k, matmul_options o)
{
    matmul_case(bench, dtype, o.ta ? DIMS(k, m) : DIMS(m, k), o.tb ? DIMS(n, k) : DIMS(k, n), DIMS(m, n), o);
}

void kernel_cases_matmul(kernel_case_bench *bench)
{
    static const int64_t sizes[][3] = {{1, 1, 1},    {1, 7, 5},      {2, 33, 17}, {3, 64, 64},
                                       {4, 100, 96}, {5, 31, 129},   {7, 48, 80}, {8, 256, 64},
                                       {9, 257, 65}, {65, 130, 300}, {17, 1, 40}, {1, 300, 513}};
    static const trm_dtype others[] = {TRM_F64, TRM_I8, TRM_U8, TRM_I16, TRM_U16, TRM_I32, TRM_U32, TRM_I64, TRM_U64};
    for (int32_t t = 0; t < COUNT(others); t++) {
        for (int32_t transposes = 0; transposes < 4; transposes++) {
            const matmul_options o = {
                .ta = (transposes & 1) != 0, .tb = (transposes & 2) != 0, .bias = transposes % 2 == 0};
            linear_case(bench, others[t], 5, 31, 40, o);
            linear_case(bench, others[t], 65, 130, 33, o);
            linear_case(bench, others[t], 1, 300, 17, o);
        }
        matmul_case(bench, others[t], DIMS(2, 1, 9, 16), DIMS(3, 10, 16), DIMS(2, 3, 9, 10),
                    (matmul_options){.tb = true});
        matmul_case(bench, others[t], DIMS(2, 1, 9, 16), DIMS(3, 16, 10), DIMS(2, 3, 9, 10),
                    (matmul_options){.biases = true});
        linear_case(bench, others[t], 3, 5, 0, (matmul_options){.tb = true, .bias = true});
        linear_case(bench, others[t], 0, 5, 3, (matmul_options){.tb = true});
    }
    for (int32_t activation = TRM_ACTIVATION_NONE; activation <= TRM_ACTIVATION_SOFTSIGN; activation++) {
        linear_case(bench, TRM_F64, 3, 40, 24,
                    (matmul_options){.tb = true, .bias = true, .activation = (trm_activation)activation});
    }
    for (int32_t t = 0; t < COUNT(floats); t++) {
        const trm_dtype dtype = floats[t];
        for (int32_t s = 0; s < COUNT(sizes); s++) {
            for (int32_t transposes = 0; transposes < 4; transposes++) {
                linear_case(bench, dtype, sizes[s][0], sizes[s][1], sizes[s][2],
                            (matmul_options){.ta = (transposes & 1) != 0, .tb = (transposes & 2) != 0});
            }
        }
        for (int32_t activation = TRM_ACTIVATION_NONE; activation <= TRM_ACTIVATION_SOFTSIGN; activation++) {
            const matmul_options o = {.tb = true, .bias = true, .activation = (trm_activation)activation};
            linear_case(bench, dtype, 3, 40, 24, o);
            linear_case(bench, dtype, 20, 40, 24, o);
        }
        linear_case(bench, dtype, 2, 50, 32, (matmul_options){.tb = true, .out = TRM_F32});
        /* Columns in 16 and more, K in 32, in 64 and in neither. */
        linear_case(bench, dtype, 1, 45, 96, (matmul_options){.tb = true});
        linear_case(bench, dtype, 4, 64, 1000, (matmul_options){.tb = true});
        linear_case(bench, dtype, 7, 33, 1056, (matmul_options){.tb = true, .bias = true});
        linear_case(bench, dtype, 11, 16, 64, (matmul_options){.tb = true});
        linear_case(bench, dtype, 16, 130, 1024, (matmul_options){.tb = true, .bias = true});
        linear_case(bench, dtype, 17, 45, 96, (matmul_options){.tb = true});
        linear_case(bench, dtype, 30, 50, 32, (matmul_options){.tb = true, .bias = true, .out = TRM_F32});
        /* A linear layer over leading dims; batches; both sides repeated. */
        matmul_case(bench, dtype, DIMS(2, 3, 16), DIMS(24, 16), DIMS(2, 3, 24), (matmul_options){.tb = true});
        matmul_case(bench, dtype, DIMS(5, 4, 16), DIMS(16, 24), DIMS(5, 4, 24), (matmul_options){.bias = true});
        matmul_case(bench, dtype, DIMS(2, 3, 9, 16), DIMS(2, 3, 16, 10), DIMS(2, 3, 9, 10),
                    (matmul_options){.ta = false});
        matmul_case(bench, dtype, DIMS(2, 1, 9, 16), DIMS(3, 10, 16), DIMS(2, 3, 9, 10), (matmul_options){.tb = true});
        matmul_case(bench, dtype, DIMS(2, 1, 9, 16), DIMS(3, 10, 16), DIMS(2, 3, 9, 10), /* the second is not aligned */
                    (matmul_options){.tb = true, .activation = TRM_ACTIVATION_SILU});
        matmul_case(bench, dtype, DIMS(9, 16), DIMS(4, 16, 10), DIMS(4, 9, 10), (matmul_options){.ta = false});
        matmul_case(bench, dtype, DIMS(4, 16, 9), DIMS(16, 10), DIMS(4, 9, 10), (matmul_options){.ta = true});
        /* Large enough for kernels that are planned, with an activation that cuBLASLt has not. */
        linear_case(bench, dtype, 130, 256, 512,
                    (matmul_options){.tb = true, .bias = true, .activation = TRM_ACTIVATION_GELU});
        linear_case(bench, dtype, 130, 256, 512, (matmul_options){.tb = true, .activation = TRM_ACTIVATION_SILU});
        /* Several weights for the same rows, each with its bias; a bias for all of them. */
        const trm_activation gelu = TRM_ACTIVATION_GELU;
        matmul_case(bench, dtype, DIMS(70, 64), DIMS(3, 64, 128), DIMS(3, 70, 128), (matmul_options){.biases = true});
        matmul_case(bench, dtype, DIMS(70, 64), DIMS(3, 64, 128), DIMS(3, 70, 128), (matmul_options){.bias = true});
        matmul_case(bench, dtype, DIMS(70, 64), DIMS(3, 128, 64), DIMS(3, 70, 128),
                    (matmul_options){.tb = true, .biases = true, .activation = gelu});
        matmul_case(bench, dtype, DIMS(2, 1, 9, 16), DIMS(3, 16, 10), DIMS(2, 3, 9, 10),
                    (matmul_options){.biases = true, .out = TRM_F32});
        matmul_case(bench, dtype, DIMS(5, 4, 16), DIMS(16, 24), DIMS(5, 4, 24), (matmul_options){.biases = true});
        matmul_case(bench, dtype, DIMS(3, 0), DIMS(2, 0, 8), DIMS(2, 3, 8), (matmul_options){.biases = true});
        linear_case(bench, dtype, 0, 8, 8, (matmul_options){.tb = true});
        linear_case(bench, dtype, 8, 0, 8, (matmul_options){.tb = true});
        linear_case(bench, dtype, 3, 5, 0, (matmul_options){.tb = true, .bias = true});
    }
}
