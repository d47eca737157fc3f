/* Cases and meaning of SELECTIVE_SCAN. */
#include <math.h>
#include <stdlib.h>

#include "kernels/cases/cases.h"
#include "kernels/cases/sequences.h"
#include "kernels/cases/support.h"

/* One token: s [dim, n]. */
TEST_UNCHECKED static void scan_step(double *s, int64_t dim, int64_t n, double decay, double dt, double skip,
                                     const double *x, const double *b, const double *c, double *out)
{
    for (int64_t i = 0; i < dim; i++) {
        out[i] = skip * x[i];
        for (int64_t j = 0; j < n; j++) {
            s[i * n + j] = decay * s[i * n + j] + dt * x[i] * b[j];
            out[i] += s[i * n + j] * c[j];
        }
    }
}

static void meaning_selective_scan(const kernel_case *test, double *const *inputs, double *const *outputs)
{
    const trm_selective_scan_params *p = &test->layer.selective_scan;
    const trm_dims *state = &test->inputs[TRM_SELECTIVE_SCAN_STATE].dims;
    const int64_t heads = state->d[2], dim = state->d[3], n = state->d[4], places = state->d[1], size = dim * n;
    const int64_t groups = test->inputs[TRM_SELECTIVE_SCAN_B].dims.d[1], of_slot = places * heads * size;
    double *s = malloc((size_t)size * sizeof(*s));
    for (int64_t i = 0; i < test->inputs[TRM_SELECTIVE_SCAN_SEQUENCE_LENGTHS].dims.d[0]; i++) {
        const int64_t start = (int64_t)inputs[TRM_SELECTIVE_SCAN_SEQUENCE_STARTS][i];
        const int64_t count = (int64_t)inputs[TRM_SELECTIVE_SCAN_SEQUENCE_STARTS][i + 1] - start;
        const int64_t old = (int64_t)inputs[TRM_SELECTIVE_SCAN_SEQUENCE_LENGTHS][i] - count;
        const double *slots = inputs[TRM_SELECTIVE_SCAN_SEQUENCE_SLOTS] + 2 * i;
        for (int64_t h = 0; count > 0 && h < heads; h++) {
            const double *read = inputs[TRM_SELECTIVE_SCAN_STATE] + (int64_t)slots[0] * of_slot + h * size;
            double *written = inputs[TRM_SELECTIVE_SCAN_STATE] + (int64_t)slots[1] * of_slot + h * size;
            for (int64_t j = 0; j < size; j++) {
                s[j] = old == 0 ? 0.0 : read[old % places * heads * size + j];
            }
            for (int64_t t = start; t < start + count; t++) {
                const int64_t at = t * heads + h, group_at = (t * groups + h / (heads / groups)) * n;
                const double raw = inputs[TRM_SELECTIVE_SCAN_STEP][at] + inputs[TRM_SELECTIVE_SCAN_STEP_BIAS][h];
                const double least = fmax(log1p(exp(raw)), (double)p->step_min);
                const double dt = p->step_max > 0.0f ? fmin(least, (double)p->step_max) : least;
                scan_step(s, dim, n, exp(-exp(inputs[TRM_SELECTIVE_SCAN_A_LOG][h]) * dt), dt,
                          inputs[TRM_SELECTIVE_SCAN_SKIP][h], inputs[TRM_SELECTIVE_SCAN_X] + at * dim,
                          inputs[TRM_SELECTIVE_SCAN_B] + group_at, inputs[TRM_SELECTIVE_SCAN_C] + group_at,
                          outputs[0] + at * dim);
                if (t >= start + count - places) {
                    double *to = written + (old + t - start + 1) % places * heads * size;
                    for (int64_t j = 0; j < size; j++) {
                        to[j] = s[j];
                    }
                }
            }
        }
    }
    free(s);
}

static void scan_case(kernel_case_bench *bench, trm_dtype dtype, const step *s, int64_t groups, int64_t heads,
                      int64_t dim, int64_t n, int64_t places, trm_selective_scan_params params)
{
    double sequences[64];
    const int64_t tokens = tokens_of(s);
    kernel_case test =
        new_case(TRM_LAYER_SELECTIVE_SCAN,
                 "%s, %lld groups, %lld heads of %lld by %lld, %lld places, %d sequences, first %lld tokens",
                 trm_dtype_name(dtype), (long long)groups, (long long)heads, (long long)dim, (long long)n,
                 (long long)places, s->n, (long long)s->tokens[0]);
    test.layer.selective_scan = params;
    test.tolerance = 2.0;
    if (dtype != TRM_F32 && tokens >= 16 && dim % 16 == 0 && n >= 64) {
        /* By chunks, what a token adds to the state is rounded to the type, of some 8 that are left of all tokens. */
        test.spread = dtype == TRM_F16 ? 0x1p-10 : 0x1p-7;
    }
    add_data(&test, dtype, DIMS(tokens, heads, dim));
    add_data(&test, dtype, DIMS(tokens, groups, n));
    add_data(&test, dtype, DIMS(tokens, groups, n));
    add_input(&test, dtype, DIMS(tokens, heads), -4.0, 2.0);
    add_input(&test, TRM_F32, DIMS(heads), -3.0, 2.0);
    add_input(&test, TRM_F32, DIMS(heads), -1.0, 1.0);
    add_input(&test, TRM_F32, DIMS(heads), -1.0, 2.0);
    add_sequences(&test, s, sequences);
    add_input(&test, TRM_F32, (trm_dims){5, {2 * s->n + 1, places, heads, dim, n}}, -1.0, 1.0)->is_state = true;
    add_output(&test, dtype, DIMS(tokens, heads, dim));
    kernel_case_run(bench, &test, meaning_selective_scan);
}

void kernel_cases_scan(kernel_case_bench *bench)
{
    /* Decoding, first tokens, chunks of prompts behind others, drafts, and sequences that rest. */
    static const step one = {1, {1}, {9}}, first = {1, {1}, {1}}, ones = {5, {1, 1, 1, 1, 1}, {1, 2, 3, 30, 500}},
                      prompt = {1, {70}, {70}}, chunk = {2, {67, 5}, {200, 8}},
                      mixed = {6, {1, 20, 0, 3, 1, 0}, {50, 20, 33, 90, 1, 0}}, none = {2, {0, 0}, {4, 0}};
    static const step *const steps[] = {&one, &first, &ones, &prompt, &chunk, &mixed, &none};
    /* Prompts around the borders of chunks of 64 tokens, behind others or not, among sequences that decode. */
    static const step borders = {4, {63, 64, 65, 200}, {63, 190, 65, 200}},
                      decoding = {8, {1, 130, 0, 17, 4, 64, 1, 19}, {50, 130, 33, 90, 4, 300, 1, 19}},
                      last = {1, {128}, {1000}};
    static const step *const prompts[] = {&borders, &decoding, &last};
    const trm_selective_scan_params free_steps = {0}, limited = {.step_min = 0.05f, .step_max = 1.5f};
    for (int32_t t = 0; t < COUNT(floats); t++) {
        const trm_dtype dtype = floats[t];
        for (int32_t i = 0; i < COUNT(steps); i++) {
            scan_case(bench, dtype, steps[i], 2, 4, 8, 12, 1, free_steps);
            scan_case(bench, dtype, steps[i], 1, 3, 5, 7, 4, limited);
            scan_case(bench, dtype, steps[i], 1, 2, 64, 128, 1, free_steps);
        }
        for (int32_t i = 0; i < COUNT(prompts); i++) {
            scan_case(bench, dtype, prompts[i], 2, 4, 64, 128, 1, free_steps);
            scan_case(bench, dtype, prompts[i], 1, 9, 16, 64, 4, limited);
            scan_case(bench, dtype, prompts[i], 1, 1, 80, 256, 1, free_steps);
        }
        scan_case(bench, dtype, &mixed, 2, 4, 64, 128, 4, limited);
        scan_case(bench, dtype, &mixed, 4, 4, 80, 64, 2, free_steps);
        scan_case(bench, dtype, &mixed, 1, 2, 32, 256, 2, free_steps);
        scan_case(bench, dtype, &mixed, 1, 2, 32, 16, 2, free_steps);
    }
}
