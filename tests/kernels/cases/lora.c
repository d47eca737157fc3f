/* Cases and meaning of LORA. */
#include "kernels/cases/cases.h"
#include "kernels/cases/support.h"

#define MOST_TOKENS 200

static void meaning_lora(const kernel_case *test, double *const *inputs, double *const *outputs)
{
    const trm_dims *x = &test->inputs[TRM_LORA_X].dims;
    const int64_t width = test->inputs[TRM_LORA_Y].dims.d[1], adapters = test->inputs[TRM_LORA_A].dims.d[0];
    for (int64_t t = 0; t < x->d[0]; t++) {
        const int64_t adapter = (int64_t)inputs[TRM_LORA_SLOTS][t];
        int64_t column = t * width;
        for (int32_t p = TRM_LORA_A; p < test->n_inputs; p += 2) {
            const int64_t rank = test->inputs[p].dims.d[1], columns = test->inputs[p + 1].dims.d[1];
            for (int64_t n = 0; n < columns; n++, column++) {
                outputs[0][column] = inputs[TRM_LORA_Y][column];
                for (int64_t r = 0; adapter >= 0 && adapter < adapters && r < rank; r++) {
                    const double *a = inputs[p] + (adapter * rank + r) * x->d[1];
                    double inner = 0.0;
                    for (int64_t k = 0; k < x->d[1]; k++) {
                        inner += inputs[TRM_LORA_X][t * x->d[1] + k] * a[k];
                    }
                    outputs[0][column] += inner * inputs[p + 1][(adapter * columns + n) * rank + r];
                }
            }
        }
    }
}

/* Which adapters the tokens have. */
typedef enum mix { NONE, ONE, ALL, RUNS } mix;

static void lora_case(kernel_case_bench *bench, trm_dtype dtype, int64_t tokens, int64_t k, int64_t rank, mix mixed,
                      const int64_t *columns, int32_t n_pairs)
{
    static const char *const names[] = {"none", "one", "all", "runs"};
    double slots[MOST_TOKENS];
    const int64_t adapters = 3;
    int64_t width = 0;
    for (int32_t i = 0; i < n_pairs; i++) {
        width += columns[i];
    }
    for (int64_t i = 0; i < tokens; i++) {
        slots[i] = mixed == NONE  ? -1.0
                   : mixed == ONE ? 1.0
                   : mixed == ALL ? (double)(i % 5 - 1)
                                  : (double)(i / 23 - 1);
    }
    kernel_case test =
        new_case(TRM_LAYER_LORA, "%s, %lld tokens, [%lld, %lld] in %d, rank %lld, adapters: %s", trm_dtype_name(dtype),
                 (long long)tokens, (long long)width, (long long)k, n_pairs, (long long)rank, names[mixed]);
    test.tolerance = 2.0;
    add_data(&test, dtype, DIMS(tokens, k));
    add_input(&test, TRM_I32, DIMS(tokens), 0.0, 0.0)->values = slots;
    add_data(&test, dtype, DIMS(tokens, width));
    for (int32_t i = 0; i < n_pairs; i++) {
        add_input(&test, dtype, DIMS(adapters, rank, k), -1.0, 1.0);
        add_input(&test, dtype, DIMS(adapters, columns[i], rank), -0.2, 0.2);
    }
    add_output(&test, dtype, DIMS(tokens, width));
    kernel_case_run(bench, &test, meaning_lora);
}

void kernel_cases_lora(kernel_case_bench *bench)
{
    static const int64_t one[] = {64}, odd[] = {37}, three[] = {64, 16, 16}, uneven[] = {24, 7, 1, 9, 16, 5};
    for (int32_t t = 0; t < COUNT(floats); t++) {
        const trm_dtype dtype = floats[t];
        for (int32_t m = NONE; m <= RUNS; m++) {
            lora_case(bench, dtype, 1, 64, 8, (mix)m, one, 1);
            lora_case(bench, dtype, 5, 96, 16, (mix)m, three, 3);
            lora_case(bench, dtype, 9, 33, 3, (mix)m, odd, 1);
            lora_case(bench, dtype, 7, 40, 5, (mix)m, uneven, 6);
            lora_case(bench, dtype, 130, 64, 16, (mix)m, three, 3);
            lora_case(bench, dtype, 200, 136, 64, (mix)m, one, 1);
            lora_case(bench, dtype, 77, 33, 3, (mix)m, odd, 1);
            lora_case(bench, dtype, 70, 40, 5, (mix)m, uneven, 6);
        }
        lora_case(bench, dtype, 2, 1030, 1, ALL, one, 1);
        lora_case(bench, dtype, 3, 600, 128, ALL, three, 3);
        lora_case(bench, dtype, 80, 600, 128, ALL, odd, 1);
        lora_case(bench, dtype, 0, 64, 8, NONE, one, 1);
    }
}
