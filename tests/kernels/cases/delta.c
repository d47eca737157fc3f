/* Cases and meanings of SHORT_CONVOLUTION and GATED_DELTA. */
#include <math.h>
#include <stdlib.h>

#include "kernels/cases/cases.h"
#include "kernels/cases/sequences.h"
#include "kernels/cases/support.h"

/* ---- short convolution ---- */

static void meaning_short_convolution(const kernel_case *test, double *const *inputs, double *const *outputs)
{
    const int64_t channels = test->inputs[0].dims.d[1], taps = test->inputs[1].dims.d[1];
    const int64_t places = test->inputs[TRM_SHORT_CONVOLUTION_CACHE].dims.d[1];
    const double *x = inputs[0], *weight = inputs[1];
    const double *bias = test->n_inputs > TRM_SHORT_CONVOLUTION_BIAS ? inputs[TRM_SHORT_CONVOLUTION_BIAS] : NULL;
    for (int64_t s = 0; s < test->inputs[TRM_SHORT_CONVOLUTION_SEQUENCE_LENGTHS].dims.d[0]; s++) {
        const int64_t start = (int64_t)inputs[TRM_SHORT_CONVOLUTION_SEQUENCE_STARTS][s];
        const int64_t count = (int64_t)inputs[TRM_SHORT_CONVOLUTION_SEQUENCE_STARTS][s + 1] - start;
        const int64_t length = (int64_t)inputs[TRM_SHORT_CONVOLUTION_SEQUENCE_LENGTHS][s], old = length - count;
        if (count == 0) {
            continue;
        }
        const double *slots = inputs[TRM_SHORT_CONVOLUTION_SEQUENCE_SLOTS] + 2 * s;
        const double *read = inputs[TRM_SHORT_CONVOLUTION_CACHE] + (int64_t)slots[0] * places * channels;
        double *written = inputs[TRM_SHORT_CONVOLUTION_CACHE] + (int64_t)slots[1] * places * channels;
        for (int64_t c = 0; c < channels; c++) {
            double *all = calloc((size_t)(taps + length), sizeof(*all)), *at = all + taps; /* by position */
            for (int64_t p = old >= places ? old - places : 0; p < old; p++) {
                at[p] = read[p % places * channels + c];
            }
            for (int64_t p = old; p < length; p++) {
                at[p] = x[(start + p - old) * channels + c];
                double sum = bias != NULL ? bias[c] : 0.0;
                for (int64_t j = 0; j < taps; j++) {
                    sum += weight[c * taps + j] * at[p - (taps - 1 - j)];
                }
                outputs[0][(start + p - old) * channels + c] =
                    meaning_activation(test->layer.short_convolution.activation, sum);
            }
            for (int64_t p = length >= places ? length - places : 0; p < length; p++) {
                written[p % places * channels + c] = at[p];
            }
            free(all);
        }
    }
}

static void convolution_case(kernel_case_bench *bench, trm_dtype dtype, trm_activation activation, const step *s,
                             int64_t channels, int64_t taps, int64_t places, bool bias)
{
    double sequences[64];
    const int64_t tokens = tokens_of(s);
    kernel_case test = new_case(TRM_LAYER_SHORT_CONVOLUTION,
                                "%s, %lld channels, %lld taps%s, %lld places, %d sequences", trm_dtype_name(dtype),
                                (long long)channels, (long long)taps, bias ? " and bias" : "", (long long)places, s->n);
    test.layer.short_convolution.activation = activation;
    add_data(&test, dtype, DIMS(tokens, channels));
    add_input(&test, dtype, DIMS(channels, taps), -1.0, 1.0);
    add_sequences(&test, s, sequences);
    add_data(&test, dtype, DIMS(2 * s->n + 1, places, channels))->is_state = true;
    if (bias) {
        add_data(&test, dtype, DIMS(channels));
    }
    add_output(&test, dtype, DIMS(tokens, channels));
    kernel_case_run(bench, &test, meaning_short_convolution);
}

/* ---- gated delta rule ---- */

/* to [n] = from [n] divided by its length, times scale. */
static void unit(const double *from, int64_t n, double eps, double scale, double *to)
{
    double squares = 0.0;
    for (int64_t i = 0; i < n; i++) {
        squares += from[i] * from[i];
    }
    for (int64_t i = 0; i < n; i++) {
        to[i] = from[i] * scale / sqrt(squares + eps);
    }
}

/* One token: s [dk, dv]. */
TEST_UNCHECKED static void delta_step(double *s, int64_t dk, int64_t dv, double decay, double strength, const double *q,
                                      const double *k, const double *v, double *out)
{
    for (int64_t j = 0; j < dv; j++) {
        double read = 0.0, result = 0.0;
        for (int64_t i = 0; i < dk; i++) {
            s[i * dv + j] *= decay;
            read += s[i * dv + j] * k[i];
        }
        for (int64_t i = 0; i < dk; i++) {
            s[i * dv + j] += k[i] * strength * (v[j] - read);
            result += s[i * dv + j] * q[i];
        }
        out[j] = result;
    }
}

static void meaning_gated_delta(const kernel_case *test, double *const *inputs, double *const *outputs)
{
    const trm_dims *state = &test->inputs[TRM_GATED_DELTA_STATE].dims;
    const int64_t heads = state->d[2], dk = state->d[3], dv = state->d[4], places = state->d[1], size = dk * dv;
    const int64_t key_heads = test->inputs[TRM_GATED_DELTA_K].dims.d[1];
    const double eps = (double)test->layer.gated_delta.eps;
    double *s = malloc((size_t)size * sizeof(*s)), *q = malloc((size_t)dk * 2 * sizeof(*q)), *k = q + dk;
    for (int64_t i = 0; i < test->inputs[TRM_GATED_DELTA_SEQUENCE_LENGTHS].dims.d[0]; i++) {
        const int64_t start = (int64_t)inputs[TRM_GATED_DELTA_SEQUENCE_STARTS][i];
        const int64_t count = (int64_t)inputs[TRM_GATED_DELTA_SEQUENCE_STARTS][i + 1] - start;
        const int64_t old = (int64_t)inputs[TRM_GATED_DELTA_SEQUENCE_LENGTHS][i] - count;
        const double *slots = inputs[TRM_GATED_DELTA_SEQUENCE_SLOTS] + 2 * i;
        for (int64_t h = 0; count > 0 && h < heads; h++) {
            const double *read = inputs[TRM_GATED_DELTA_STATE] + ((int64_t)slots[0] * places * heads + h) * size;
            double *written = inputs[TRM_GATED_DELTA_STATE] + ((int64_t)slots[1] * places * heads + h) * size;
            for (int64_t j = 0; j < size; j++) {
                s[j] = old == 0 ? 0.0 : read[old % places * heads * size + j];
            }
            for (int64_t t = start; t < start + count; t++) {
                const int64_t at = t * heads + h, key_at = (t * key_heads + h / (heads / key_heads)) * dk;
                const double a = inputs[TRM_GATED_DELTA_A][at] + inputs[TRM_GATED_DELTA_A_BIAS][h];
                const double decay = exp(-exp(inputs[TRM_GATED_DELTA_A_LOG][h]) * log1p(exp(a)));
                unit(inputs[TRM_GATED_DELTA_Q] + key_at, dk, eps, 1.0 / sqrt((double)dk), q);
                unit(inputs[TRM_GATED_DELTA_K] + key_at, dk, eps, 1.0, k);
                delta_step(s, dk, dv, decay, 1.0 / (1.0 + exp(-inputs[TRM_GATED_DELTA_B][at])), q, k,
                           inputs[TRM_GATED_DELTA_V] + at * dv, outputs[0] + at * dv);
                for (int64_t j = 0; j < size; j++) {
                    written[(old + t - start + 1) % places * heads * size + j] = s[j];
                }
            }
        }
    }
    free(s);
    free(q);
}

static void delta_case(kernel_case_bench *bench, trm_dtype dtype, const step *s, int64_t key_heads, int64_t heads,
                       int64_t dk, int64_t dv, int64_t places)
{
    double sequences[64];
    const int64_t tokens = tokens_of(s);
    kernel_case test = new_case(
        TRM_LAYER_GATED_DELTA, "%s, %lld and %lld heads of %lld and %lld, %lld places, %d sequences, first %lld tokens",
        trm_dtype_name(dtype), (long long)key_heads, (long long)heads, (long long)dk, (long long)dv, (long long)places,
        s->n, (long long)s->tokens[0]);
    test.layer.gated_delta.eps = 1e-6f;
    test.tolerance = 2.0;
    /* A first token gives v times q * k, whose summands are at most 1 / sqrt(dk) together, however small their sum. */
    test.spread = 0x1p-24 / sqrt((double)dk);
    add_data(&test, dtype, DIMS(tokens, key_heads, dk));
    add_data(&test, dtype, DIMS(tokens, key_heads, dk));
    add_data(&test, dtype, DIMS(tokens, heads, dv));
    add_input(&test, dtype, DIMS(tokens, heads), -4.0, 2.0);
    add_data(&test, dtype, DIMS(tokens, heads));
    add_input(&test, TRM_F32, DIMS(heads), -3.0, 1.0);
    add_input(&test, TRM_F32, DIMS(heads), -1.0, 1.0);
    add_sequences(&test, s, sequences);
    add_input(&test, TRM_F32, (trm_dims){5, {2 * s->n + 1, places, heads, dk, dv}}, -1.0, 1.0)->is_state = true;
    add_output(&test, dtype, DIMS(tokens, heads, dv));
    kernel_case_run(bench, &test, meaning_gated_delta);
}

/* ---- from the joined product on ---- */

typedef struct net_sizes {
    int64_t key_heads, heads, dk, dv, taps;
    bool apart; /* a and b are in another tensor */
} net_sizes;

/* Columns start .. + columns - 1 of a tensor, or with taps those of a convolution. */
static double *cut(const double *from, int64_t rows, int64_t width, int64_t start, int64_t columns)
{
    double *to = malloc((size_t)(rows * columns) * sizeof(*to) + 1);
    for (int64_t t = 0; t < rows; t++) {
        for (int64_t i = 0; i < columns; i++) {
            to[t * columns + i] = from[t * width + start + i];
        }
    }
    return to;
}

static void round_all(const kernel_case *test, double *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        x[i] = kernel_case_round(test->inputs[TRM_DELTA_NET_X].dtype, x[i]);
    }
}

/* y = silu(z) * norm(y), of heads. */
static void gate_heads(const kernel_case *test, const double *z, const double *weight, int64_t heads, double *y)
{
    const trm_delta_net_params *p = &test->layer.delta_net;
    for (int64_t h = 0; h < heads; h++) {
        double squares = 0.0, *of_head = y + h * p->value_dim;
        for (int32_t i = 0; i < p->value_dim; i++) {
            squares += of_head[i] * of_head[i];
        }
        const double scale = 1.0 / sqrt(squares / p->value_dim + (double)p->norm_eps);
        for (int32_t i = 0; i < p->value_dim; i++) {
            of_head[i] *= scale * (weight[i] + (double)p->weight_offset);
        }
        round_all(test, of_head, p->value_dim);
        for (int32_t i = 0; i < p->value_dim; i++) {
            of_head[i] *= meaning_activation(p->gate, z[h * p->value_dim + i]);
        }
    }
}

static void meaning_delta_net(const kernel_case *test, double *const *inputs, double *const *outputs)
{
    const trm_delta_net_params *p = &test->layer.delta_net;
    const trm_dims *x = &test->inputs[TRM_DELTA_NET_X].dims, *gates = &test->inputs[TRM_DELTA_NET_GATES].dims;
    const int64_t keys = (int64_t)p->key_heads * p->key_dim, values = (int64_t)p->heads * p->value_dim;
    const int64_t tokens = x->d[0], starts[3] = {0, keys, 2 * keys}, columns[3] = {keys, keys, values};
    double *parts[TRM_GATED_DELTA_INPUT_COUNT] = {NULL};
    kernel_case inner = {.layer = {.kind = TRM_LAYER_GATED_DELTA, .gated_delta = {.eps = p->eps}}};
    for (int32_t i = 0; i < 3; i++) {
        kernel_case convolution = {
            .layer = {.kind = TRM_LAYER_SHORT_CONVOLUTION, .short_convolution = {.activation = p->activation}}};
        double *sliced = cut(inputs[TRM_DELTA_NET_X], tokens, x->d[1], starts[i], columns[i]);
        double *of_convolution[TRM_SHORT_CONVOLUTION_INPUT_COUNT] = {sliced, inputs[TRM_DELTA_NET_Q_TAPS + i]};
        convolution.inputs[0].dims = DIMS(tokens, columns[i]);
        convolution.inputs[1].dims = test->inputs[TRM_DELTA_NET_Q_TAPS + i].dims;
        for (int32_t k = 0; k < 3; k++) {
            of_convolution[TRM_SHORT_CONVOLUTION_SEQUENCE_STARTS + k] = inputs[TRM_DELTA_NET_SEQUENCE_STARTS + k];
            convolution.inputs[TRM_SHORT_CONVOLUTION_SEQUENCE_STARTS + k] =
                test->inputs[TRM_DELTA_NET_SEQUENCE_STARTS + k];
        }
        of_convolution[TRM_SHORT_CONVOLUTION_CACHE] = inputs[TRM_DELTA_NET_Q_CACHE + i];
        convolution.inputs[TRM_SHORT_CONVOLUTION_CACHE] = test->inputs[TRM_DELTA_NET_Q_CACHE + i];
        parts[i] = calloc((size_t)(tokens * columns[i]) + 1, sizeof(double));
        meaning_short_convolution(&convolution, of_convolution, &parts[i]);
        round_all(test, parts[i], tokens * columns[i]);
        free(sliced);
    }
    parts[TRM_GATED_DELTA_A] = cut(inputs[TRM_DELTA_NET_GATES], tokens, gates->d[1], p->a, p->heads);
    parts[TRM_GATED_DELTA_B] = cut(inputs[TRM_DELTA_NET_GATES], tokens, gates->d[1], p->b, p->heads);
    inner.inputs[TRM_GATED_DELTA_K].dims = DIMS(tokens, p->key_heads, p->key_dim);
    for (int32_t i = 0; i < 6; i++) {
        parts[TRM_GATED_DELTA_A_LOG + i] = inputs[TRM_DELTA_NET_A_LOG + i];
        inner.inputs[TRM_GATED_DELTA_A_LOG + i] = test->inputs[TRM_DELTA_NET_A_LOG + i];
    }
    meaning_gated_delta(&inner, parts, outputs);
    round_all(test, outputs[0], tokens * values);
    for (int64_t t = 0; t < tokens; t++) {
        gate_heads(test, inputs[TRM_DELTA_NET_X] + t * x->d[1] + p->z, inputs[TRM_DELTA_NET_NORM], p->heads,
                   outputs[0] + t * values);
    }
    for (int32_t i = 0; i <= TRM_GATED_DELTA_B; i++) {
        free(parts[i]);
    }
}

static void net_case(kernel_case_bench *bench, trm_dtype dtype, const step *s, net_sizes n, int64_t versions)
{
    double sequences[64];
    const int64_t tokens = tokens_of(s), keys = n.key_heads * n.dk, values = n.heads * n.dv, slots = 2 * s->n + 1;
    const int64_t columns[3] = {keys, keys, values}, behind = 2 * keys + 2 * values;
    const int64_t places = (n.taps > 2 ? n.taps - 1 : 1) + versions - 1;
    kernel_case test = new_case(TRM_LAYER_DELTA_NET,
                                "%s%s, %lld and %lld heads of %lld and %lld, %lld taps, %lld versions, %d sequences, "
                                "first %lld tokens",
                                trm_dtype_name(dtype), n.apart ? " apart" : "", (long long)n.key_heads,
                                (long long)n.heads, (long long)n.dk, (long long)n.dv, (long long)n.taps,
                                (long long)versions, s->n, (long long)s->tokens[0]);
    test.layer.delta_net = (trm_delta_net_params){.key_heads = (int32_t)n.key_heads,
                                                  .heads = (int32_t)n.heads,
                                                  .key_dim = (int32_t)n.dk,
                                                  .value_dim = (int32_t)n.dv,
                                                  .z = (int32_t)(behind - values),
                                                  .a = (int32_t)((n.apart ? 0 : behind) + n.heads),
                                                  .b = (int32_t)(n.apart ? 0 : behind),
                                                  .activation = TRM_ACTIVATION_SILU,
                                                  .gate = TRM_ACTIVATION_SILU,
                                                  .eps = 1e-6f,
                                                  .norm_eps = 1e-2f,
                                                  .weight_offset = 0.5f};
    test.tolerance = 4.0;
    /* A bit of q, k and v that falls otherwise, through the sums of a head. */
    test.spread = dtype == TRM_F32 ? 0.0 : dtype == TRM_F16 ? 0x1p-10 : 0x1p-7;
    add_data(&test, dtype, DIMS(tokens, behind + (n.apart ? 0 : 2 * n.heads)));
    add_data(&test, dtype, DIMS(tokens, n.apart ? 2 * n.heads : behind + 2 * n.heads));
    for (int32_t i = 0; i < 3; i++) {
        add_input(&test, dtype, DIMS(columns[i], n.taps), -1.0, 1.0);
    }
    for (int32_t i = 0; i < 3; i++) {
        add_data(&test, dtype, DIMS(slots, places, columns[i]))->is_state = true;
    }
    add_input(&test, TRM_F32, DIMS(n.heads), -3.0, 1.0);
    add_input(&test, TRM_F32, DIMS(n.heads), -1.0, 1.0);
    add_sequences(&test, s, sequences);
    add_input(&test, TRM_F32, (trm_dims){5, {slots, versions, n.heads, n.dk, n.dv}}, -1.0, 1.0)->is_state = true;
    add_input(&test, dtype, DIMS(n.dv), -1.0, 1.0);
    add_output(&test, dtype, DIMS(tokens, values));
    kernel_case_run(bench, &test, meaning_delta_net);
}

void kernel_cases_delta(kernel_case_bench *bench)
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
    for (int32_t t = 0; t < COUNT(floats); t++) {
        const trm_dtype dtype = floats[t];
        for (int32_t i = 0; i < COUNT(steps); i++) {
            convolution_case(bench, dtype, TRM_ACTIVATION_SILU, steps[i], 24, 4, 3, false);
            convolution_case(bench, dtype, TRM_ACTIVATION_SILU, steps[i], 8, 4, 7, true);
            convolution_case(bench, dtype, TRM_ACTIVATION_NONE, steps[i], 13, 3, 2, true);
            delta_case(bench, dtype, steps[i], 2, 4, 8, 12, 1);
            delta_case(bench, dtype, steps[i], 1, 3, 5, 7, 4);
            delta_case(bench, dtype, steps[i], 2, 4, 128, 128, 1);
            delta_case(bench, dtype, steps[i], 1, 2, 128, 64, 4);
        }
        for (int32_t i = 0; i < COUNT(steps); i++) {
            net_case(bench, dtype, steps[i], (net_sizes){2, 4, 128, 128, 4, false}, 1);
            net_case(bench, dtype, steps[i], (net_sizes){1, 2, 128, 128, 4, true}, 4);
            net_case(bench, dtype, steps[i], (net_sizes){2, 2, 6, 10, 3, i % 2 == 0}, 2);
        }
        for (int32_t i = 0; i < COUNT(prompts); i++) {
            net_case(bench, dtype, prompts[i], (net_sizes){1, 2, 128, 128, 4, i % 2 == 0}, 1);
            net_case(bench, dtype, prompts[i], (net_sizes){1, 1, 128, 128, 4, false}, 4);
        }
        net_case(bench, dtype, &mixed, (net_sizes){1, 3, 128, 128, 2, false}, 2);
        net_case(bench, dtype, &mixed, (net_sizes){1, 1, 128, 128, 5, false}, 2); /* in parts */
        convolution_case(bench, dtype, TRM_ACTIVATION_SILU, &mixed, 1600, 4, 3, true);
        convolution_case(bench, dtype, TRM_ACTIVATION_TANH, &mixed, 3, 1, 1, false);
        delta_case(bench, dtype, &mixed, 4, 4, 64, 64, 2);
        delta_case(bench, dtype, &mixed, 2, 2, 256, 256, 2);
    }
}
