/* The cases of QKV_ATTENTION; its meaning is that of its parts, each rounded. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attention/cases.h"
#include "support/support.h"

#define COUNT(array) ((int32_t)(sizeof(array) / sizeof((array)[0])))
#define MOST         72 /* sequences */

typedef struct shape {
    int32_t hq, hkv, d;
    trm_rope_params rope;
    bool normed;
} shape;

/* Whether the cases that follow have sinks. */
static bool has_sinks;
/* Whether qkv has a gate for each query head behind it. */
static bool has_gates;

static double round_to(const kernel_case *test, double value)
{
    return kernel_case_round(test->inputs[TRM_QKV_ATTENTION_QKV].dtype, value);
}

static void normalize(const kernel_case *test, double *x, const double *weight, int64_t d)
{
    const trm_qkv_attention_params *p = &test->layer.qkv_attention;
    double total = 0.0;
    for (int64_t i = 0; i < d; i++) {
        total += x[i] * x[i];
    }
    for (int64_t i = 0; i < d; i++) {
        x[i] = round_to(test, x[i] / sqrt(total / (double)d + (double)p->eps) * (weight[i] + (double)p->weight_offset));
    }
}

static double frequency(const trm_rope_params *p, const double *inv_freq, double length, int64_t i)
{
    const int64_t pairs = p->rotary_dim / 2;
    const bool is_long = p->scaling != TRM_ROPE_PLAIN && length > (double)p->original_length;
    if (is_long && p->scaling == TRM_ROPE_DYNAMIC) {
        const double f = (double)p->factor, dim = (double)p->rotary_dim;
        const double base =
            (double)p->base * pow(f * length / (double)p->original_length - (f - 1.0), dim / (dim - 2.0));
        return 1.0 / pow(base, (double)(2 * i) / dim);
    }
    return inv_freq[is_long ? pairs + i : i];
}

static void rotate(const kernel_case *test, double *const *inputs, int64_t token, double *x)
{
    const trm_rope_params *p = &test->layer.qkv_attention.rope;
    const double length = p->scaling == TRM_ROPE_PLAIN ? 0.0 : inputs[TRM_QKV_ATTENTION_LENGTHS][token];
    const int64_t pairs = p->rotary_dim / 2;
    for (int64_t i = 0; i < pairs; i++) {
        const double f = frequency(p, inputs[TRM_QKV_ATTENTION_INV_FREQ], length, i);
        const double angle = (double)((float)inputs[TRM_QKV_ATTENTION_POSITIONS][token] * (float)f);
        const double c = cos(angle) * (double)p->magnitude, s = sin(angle) * (double)p->magnitude;
        const int64_t first = p->interleaved ? 2 * i : i, second = p->interleaved ? 2 * i + 1 : i + pairs;
        const double u = x[first], v = x[second];
        x[first] = round_to(test, u * c - v * s);
        x[second] = round_to(test, v * c + u * s);
    }
}

static void meaning_qkv(const kernel_case *test, double *const *inputs, double *const *outputs)
{
    const trm_qkv_attention_params *p = &test->layer.qkv_attention;
    const trm_dims *whole = &test->inputs[TRM_QKV_ATTENTION_QKV].dims;
    const int64_t tokens = whole->d[0], heads[3] = {p->query_heads, p->kv_heads, p->kv_heads};
    const int64_t d = p->head_dim > 0 ? p->head_dim : whole->d[1] / (heads[0] + heads[1] + heads[2]);
    const bool normed =
        test->n_inputs > TRM_QKV_ATTENTION_Q_NORM && test->inputs[TRM_QKV_ATTENTION_Q_NORM].dtype != TRM_DTYPE_NONE;
    kernel_case inner = {.layer = {.kind = TRM_LAYER_ATTENTION, .attention = p->attention},
                         .n_inputs = TRM_ATTENTION_INPUT_COUNT};
    double *parts[TRM_ATTENTION_INPUT_COUNT] = {NULL};
    int64_t before = 0;
    for (int32_t i = 0; i < 3; i++) {
        parts[i] = malloc((size_t)(tokens * heads[i] * d) * sizeof(double) + 1);
        inner.inputs[i].dims = DIMS(tokens, heads[i], d);
        for (int64_t t = 0; t < tokens; t++) {
            for (int64_t h = 0; h < heads[i]; h++) {
                double *x = parts[i] + (t * heads[i] + h) * d;
                memcpy(x, inputs[TRM_QKV_ATTENTION_QKV] + t * whole->d[1] + (before + h) * d,
                       (size_t)d * sizeof(double));
                if (i < 2 && normed) {
                    normalize(test, x, inputs[TRM_QKV_ATTENTION_Q_NORM + i], d);
                }
                if (i < 2) {
                    rotate(test, inputs, t, x);
                }
            }
        }
        before += heads[i];
    }
    for (int32_t i = 0; i < 5; i++) {
        inner.inputs[TRM_ATTENTION_SEQUENCE_STARTS + i] = test->inputs[TRM_QKV_ATTENTION_SEQUENCE_STARTS + i];
        parts[TRM_ATTENTION_SEQUENCE_STARTS + i] = inputs[TRM_QKV_ATTENTION_SEQUENCE_STARTS + i];
    }
    if (test->n_inputs > TRM_QKV_ATTENTION_SINKS) {
        inner.inputs[TRM_ATTENTION_SINKS] = test->inputs[TRM_QKV_ATTENTION_SINKS];
        parts[TRM_ATTENTION_SINKS] = inputs[TRM_QKV_ATTENTION_SINKS];
    }
    attention_meaning_packed(&inner, parts, outputs);
    for (int32_t i = 0; i < 3; i++) {
        free(parts[i]);
    }
}

static void set_input(kernel_case *test, int32_t i, trm_dtype dtype, trm_dims dims, const double *values)
{
    test->inputs[i] = (kernel_case_input){.dtype = dtype, .dims = dims, .low = -2.0, .high = 2.0, .values = values};
    test->n_inputs = i + 1;
}

/* Sequences of queries[i] tokens that are the last of keys[i]; `extra` columns of the table more than they need. */
static void qkv_case_of(kernel_case_bench *bench, trm_dtype dtype, trm_dtype cache, trm_attention_params p, shape h,
                        int64_t block_size, int32_t n, const int64_t *queries, const int64_t *keys, int64_t extra)
{
    double starts[MOST + 1] = {0}, lengths[MOST], *positions, *all_lengths, *table;
    int64_t columns = 1, used = 0, at = 0, next = 0;
    for (int32_t s = 0; s < n; s++) {
        const int64_t blocks = (keys[s] + block_size - 1) / block_size;
        lengths[s] = (double)keys[s];
        starts[s + 1] = starts[s] + (double)queries[s];
        columns = blocks + extra > columns ? blocks + extra : columns;
        used += blocks;
    }
    const int64_t tokens = (int64_t)starts[n], cache_blocks = (used | 1) + 2;
    positions = malloc((size_t)tokens * sizeof(double) + 1);
    all_lengths = malloc((size_t)tokens * sizeof(double) + 1);
    table = malloc((size_t)(n * columns) * sizeof(double) + 1);
    for (int32_t s = 0; s < n; s++) {
        for (int64_t i = 0; i < columns; i++) {
            const bool inside = i < (keys[s] + block_size - 1) / block_size;
            table[s * columns + i] = inside ? (double)(cache_blocks - 1 - (next++ * 2) % cache_blocks) : 1e9;
        }
        for (int64_t i = 0; i < queries[s]; i++, at++) {
            positions[at] = (double)(keys[s] - queries[s] + i);
            all_lengths[at] = (double)keys[s];
        }
    }
    kernel_case test;
    memset(&test, 0, sizeof(test));
    test.layer.kind = TRM_LAYER_QKV_ATTENTION;
    test.layer.qkv_attention = (trm_qkv_attention_params){.attention = p,
                                                          .rope = h.rope,
                                                          .query_heads = h.hq,
                                                          .kv_heads = h.hkv,
                                                          .head_dim = has_gates ? h.d : 0,
                                                          .eps = h.normed ? 1e-5f : 0.0f,
                                                          .weight_offset = h.normed ? 0.5f : 0.0f};
    test.tolerance = 3.0;
    snprintf(
        test.name, sizeof(test.name),
        "qkv_attention%s%s %s%s heads %d/%d dim %d rotary %d scaling %d normed %d causal %d window %d softcap %g, %d "
        "sequences, blocks of %d, last %d of %d",
        has_sinks ? " sinks" : "", has_gates ? " gates" : "", trm_dtype_name(dtype), cache == TRM_F8E4M3 ? " f8" : "",
        (int)h.hq, (int)h.hkv, (int)h.d, (int)h.rope.rotary_dim, (int)h.rope.scaling, (int)h.normed, (int)p.causal,
        (int)p.window, (double)p.softcap, (int)n, (int)block_size, (int)queries[n - 1], (int)keys[n - 1]);
    set_input(&test, TRM_QKV_ATTENTION_QKV, dtype,
              DIMS(tokens, (int64_t)((has_gates ? 2 : 1) * h.hq + 2 * h.hkv) * h.d), NULL);
    set_input(&test, TRM_QKV_ATTENTION_SEQUENCE_STARTS, TRM_I32, DIMS(n + 1), starts);
    set_input(&test, TRM_QKV_ATTENTION_SEQUENCE_LENGTHS, TRM_I32, DIMS(n), lengths);
    set_input(&test, TRM_QKV_ATTENTION_BLOCK_TABLE, TRM_I32, DIMS(n, columns), table);
    set_input(&test, TRM_QKV_ATTENTION_KEY_CACHE, cache, DIMS(cache_blocks, block_size, h.hkv, h.d), NULL);
    set_input(&test, TRM_QKV_ATTENTION_VALUE_CACHE, cache, DIMS(cache_blocks, block_size, h.hkv, h.d), NULL);
    test.inputs[TRM_QKV_ATTENTION_KEY_CACHE].is_state = test.inputs[TRM_QKV_ATTENTION_VALUE_CACHE].is_state = true;
    set_input(&test, TRM_QKV_ATTENTION_POSITIONS, TRM_I32, DIMS(tokens), positions);
    const int64_t pairs = h.rope.rotary_dim / 2;
    set_input(&test, TRM_QKV_ATTENTION_INV_FREQ, TRM_F32,
              h.rope.scaling == TRM_ROPE_LONG ? DIMS(2, pairs) : DIMS(pairs), NULL);
    test.inputs[TRM_QKV_ATTENTION_INV_FREQ].low = 0.0;
    test.inputs[TRM_QKV_ATTENTION_INV_FREQ].high = cache == TRM_F8E4M3 ? 0.0 : 1.0;
    if (h.rope.scaling != TRM_ROPE_PLAIN) {
        set_input(&test, TRM_QKV_ATTENTION_LENGTHS, TRM_I32, DIMS(tokens), all_lengths);
    }
    if (h.normed) {
        set_input(&test, TRM_QKV_ATTENTION_Q_NORM, dtype, DIMS(h.d), NULL);
        set_input(&test, TRM_QKV_ATTENTION_K_NORM, dtype, DIMS(h.d), NULL);
    }
    if (has_sinks) {
        set_input(&test, TRM_QKV_ATTENTION_SINKS, TRM_F32, DIMS(h.hq), attention_sinks);
    }
    test.n_outputs = 1;
    test.outputs[0] = (kernel_case_output){.dtype = dtype, .dims = DIMS(tokens, h.hq, h.d)};
    kernel_case_run(bench, &test, meaning_qkv);
    free(positions);
    free(all_lengths);
    free(table);
}

static void qkv_case(kernel_case_bench *bench, trm_dtype dtype, trm_attention_params p, shape h, int64_t block_size,
                     int32_t n, const int64_t *queries, const int64_t *keys, int64_t extra)
{
    qkv_case_of(bench, dtype, dtype, p, h, block_size, n, queries, keys, extra);
}

#define PLAIN(n)                                                                                                       \
    {                                                                                                                  \
        .rotary_dim = (n), .magnitude = 1.0f                                                                           \
    }

/* Wide tables, whose tiles of keys are dealt out to all blocks in equal shares: units of one block
 * and of many, shares of many units, sequences that take no part. */
static void shared_out(kernel_case_bench *bench, trm_dtype dtype, trm_dtype cache)
{
    const bool f8 =
        cache == TRM_F8E4M3; /* nothing that rounds keys in another order, as for attention_cases_qkv_f8() */
    shape shapes[] = {{8, 2, 64, PLAIN(64), !f8},
                      {4, 1, 128, PLAIN(128), false},
                      {16, 2, 128, PLAIN(128), !f8},
                      {6, 6, 64, {TRM_ROPE_DYNAMIC, 64, false, 1.0f, 1e4f, 4.0f, 100, 0}, false}};
    if (f8) {
        shapes[3].rope = shapes[0].rope;
    }
    static const trm_attention_params kinds[] = {{.causal = TRM_CAUSAL_LOWER_RIGHT},
                                                 {.causal = TRM_CAUSAL_LOWER_RIGHT, .window = 50, .softcap = 5.0f},
                                                 {.causal = TRM_CAUSAL_UPPER_LEFT},
                                                 {.causal = TRM_CAUSAL_NONE, .scale = 0.3f}};
    static const int64_t one[] = {1}, uneven[] = {2, 0, 1, 3, 0, 0, 1}, uneven_keys[] = {90, 12, 130, 3, 7, 9, 65};
    static const int64_t mixed[] = {1, 20, 0, 7, 1}, mixed_keys[] = {50, 20, 33, 90, 1};
    static int64_t many[72], many_keys[72];
    for (int32_t i = 0; i < COUNT(shapes); i++) {
        for (int32_t k = 0; k < COUNT(kinds); k++) {
            qkv_case_of(bench, dtype, cache, kinds[k], shapes[i], 16, COUNT(uneven), uneven, uneven_keys, 300);
            qkv_case_of(bench, dtype, cache, kinds[k], shapes[i], 32, COUNT(mixed), mixed, mixed_keys, 140);
            qkv_case_of(bench, dtype, cache, kinds[k], shapes[i], 16, 1, one, (const int64_t[]){1800}, 200);
        }
        for (int64_t keys = 15; keys <= 4300; keys = keys * 16 + 1) { /* 15, 241, 3857 */
            qkv_case_of(bench, dtype, cache, kinds[0], shapes[i], 16, 1, one, (const int64_t[]){keys}, 257);
        }
        for (int32_t n = 33; n <= COUNT(many); n += 39) { /* sequences; blocks of one and of several heads */
            for (int32_t s = 0; s < n; s++) {
                many[s] = s % 11 == 7 ? 0 : 1;
                many_keys[s] = s % 17 == 3 ? 700 : 1 + s * 7 % 83;
            }
            qkv_case_of(bench, dtype, cache, kinds[0], shapes[i], 16, n, many, many_keys, 257);
            if (shapes[i].hkv == 2) {
                qkv_case_of(bench, dtype, cache, kinds[1], (shape){16, 8, shapes[i].d, PLAIN(shapes[i].d), false}, 16,
                            n, many, many_keys, 257);
            }
        }
    }
}

void attention_cases_qkv(kernel_case_bench *bench)
{
    static const trm_dtype floats[] = {TRM_F32, TRM_F16, TRM_BF16};
    static const trm_attention_params causal = {.causal = TRM_CAUSAL_LOWER_RIGHT};
    static const shape shapes[] = {
        {8, 2, 64, PLAIN(64), false},
        {4, 1, 128, PLAIN(128), false},
        {6, 2, 96, PLAIN(48), true},
        {4, 2, 256, PLAIN(256), true},
        {20, 1, 64, PLAIN(64), false},
        {3, 3, 40, PLAIN(20), false},
        {4, 4, 136, PLAIN(6), true},
        {4, 2, 64, {.rotary_dim = 32, .interleaved = true, .magnitude = 1.2f}, false},
        {4, 2, 64, {TRM_ROPE_DYNAMIC, 64, false, 1.0f, 1e4f, 4.0f, 100, 0}, false},
        {4, 2, 96, {TRM_ROPE_LONG, 96, false, 1.3f, 1e4f, 1.0f, 100, 0}, true},
        {14, 2, 64, PLAIN(64), true},
        {8, 1, 128, PLAIN(128), true},
        {2, 2, 36, PLAIN(36), true}, /* no multiple of 8: apart */
    };
    static const int64_t one[] = {1}, ones[] = {1, 1, 1, 1, 1}, ones_keys[] = {1, 16, 17, 64, 200};
    static const int64_t mixed[] = {1, 20, 0, 7, 1}, mixed_keys[] = {50, 20, 33, 90, 1};
    /* No more tokens than sequences, but some have several: what decoding kernels must also do. */
    static const int64_t uneven[] = {2, 0, 1, 3, 0, 0, 1}, uneven_keys[] = {90, 12, 130, 3, 7, 9, 65};
    for (int32_t t = 0; t < COUNT(floats); t++) {
        const trm_dtype dtype = floats[t];
        for (int32_t i = 0; i < COUNT(shapes); i++) {
            if (test_is_brief() && i % COUNT(floats) != t) {
                continue; /* each shape in one type */
            }
            qkv_case(bench, dtype, causal, shapes[i], 16, 1, one, (const int64_t[]){1}, 1);
            qkv_case(bench, dtype, causal, shapes[i], 16, 1, one, (const int64_t[]){333}, 1);
            qkv_case(bench, dtype, causal, shapes[i], 16, COUNT(ones), ones, ones_keys, 1);
            qkv_case(bench, dtype, causal, shapes[i], 16, COUNT(mixed), mixed, mixed_keys, 0);
            qkv_case(bench, dtype, causal, shapes[i], 16, COUNT(uneven), uneven, uneven_keys, 3);
        }
        if (test_is_brief() && dtype != TRM_BF16) {
            continue;
        }
        /* Enough sequences that a block takes several key-value heads. */
        static int64_t many[72], many_keys[72];
        for (int32_t i = 0; i < COUNT(many); i++) {
            many[i] = 1;
            many_keys[i] = 1 + i * 7 % 83;
        }
        qkv_case(bench, dtype, causal, (shape){8, 4, 64, PLAIN(64), true}, 16, COUNT(many), many, many_keys, 1);
        qkv_case(bench, dtype, causal, (shape){12, 4, 128, PLAIN(128), false}, 32, 36, many, many_keys, 1);
        qkv_case(bench, dtype, causal, (shape){16, 8, 128, PLAIN(128), false}, 16, COUNT(many), many, many_keys, 0);
        many[5] = 40; /* two prompts among them */
        many_keys[5] = 70;
        many[33] = many_keys[33] = 9;
        qkv_case(bench, dtype, causal, (shape){16, 8, 128, PLAIN(128), false}, 16, 40, many, many_keys, 0);
        static const int64_t wide[] = {1, 9, 1}, wide_keys[] = {2600, 20, 4200};
        for (int32_t i = 0; i < 3; i++) {
            if (test_is_brief() && i > 0) {
                continue;
            }
            const trm_attention_params windowed = {.causal = TRM_CAUSAL_LOWER_RIGHT, .window = 50};
            const trm_attention_params capped = {.causal = TRM_CAUSAL_LOWER_RIGHT, .softcap = 5.0f, .scale = 0.3f};
            const trm_attention_params first = {.causal = TRM_CAUSAL_UPPER_LEFT}, all = {.causal = TRM_CAUSAL_NONE};
            qkv_case(bench, dtype, windowed, shapes[i], 7, COUNT(ones), ones, ones_keys, 1);
            qkv_case(bench, dtype, windowed, shapes[i], 16, COUNT(uneven), uneven, uneven_keys, 1);
            qkv_case(bench, dtype, capped, shapes[i], 1, COUNT(ones), ones, ones_keys, 1);
            qkv_case(bench, dtype, first, shapes[i], 16, COUNT(uneven), uneven, uneven_keys, 1);
            qkv_case(bench, dtype, all, shapes[i], 32, COUNT(uneven), uneven, uneven_keys, 1);
            /* Tables wide enough for several clusters of blocks, with few and with many keys in them. */
            qkv_case(bench, dtype, causal, shapes[i], 16, 1, one, (const int64_t[]){4999}, 0);
            qkv_case(bench, dtype, causal, shapes[i], 16, 1, one, (const int64_t[]){100}, 600);
            qkv_case(bench, dtype, windowed, shapes[i], 256, 1, one, (const int64_t[]){3000}, 90);
            qkv_case(bench, dtype, causal, shapes[i], 16, 2, ones, (const int64_t[]){2600, 3}, 100);
            qkv_case(bench, dtype, windowed, shapes[i], 16, COUNT(mixed), mixed, mixed_keys, 1);
            if (i == 0) {
                qkv_case(bench, dtype, causal, shapes[i], 16, COUNT(wide), wide, wide_keys, 0);
            }
        }
        if (dtype == TRM_BF16 || (dtype == TRM_F16 && !test_is_brief())) {
            shared_out(bench, dtype, dtype);
        }
    }
}

void attention_cases_qkv_gates(kernel_case_bench *bench)
{
    static const trm_dtype floats[] = {TRM_F32, TRM_F16, TRM_BF16};
    static const trm_attention_params causal = {.causal = TRM_CAUSAL_LOWER_RIGHT};
    static const shape shapes[] = {
        {8, 2, 64, PLAIN(64), false}, {16, 2, 256, PLAIN(64), true}, {8, 1, 128, PLAIN(128), true},
        {3, 3, 40, PLAIN(20), false}, {2, 1, 36, PLAIN(36), true},
    };
    static const int64_t ones[] = {1, 1, 1, 1, 1}, ones_keys[] = {1, 16, 17, 64, 200};
    static const int64_t mixed[] = {1, 20, 0, 7, 1}, mixed_keys[] = {50, 20, 33, 90, 1};
    has_gates = true;
    for (int32_t t = 0; t < COUNT(floats); t++) {
        for (int32_t i = 0; i < COUNT(shapes); i++) {
            qkv_case(bench, floats[t], causal, shapes[i], 16, COUNT(ones), ones, ones_keys, 1);
            qkv_case(bench, floats[t], causal, shapes[i], 16, COUNT(mixed), mixed, mixed_keys, 0);
            qkv_case(bench, floats[t], causal, shapes[i], 16, COUNT(ones), ones, ones_keys, 200);
        }
    }
    has_gates = false;
}

/* Angles are 0 here, so that keys are what they are on every backend before they are rounded to e4m3: where the last
 * bit of one differs, it may become another e4m3. A magnitude of 2 shows that they are rotated first. */
void attention_cases_qkv_f8(kernel_case_bench *bench)
{
    static const trm_dtype floats[] = {TRM_F32, TRM_F16, TRM_BF16};
#define DOUBLED(n)                                                                                                     \
    {                                                                                                                  \
        .rotary_dim = (n), .magnitude = 2.0f                                                                           \
    }
    static const shape shapes[] = {
        {8, 2, 64, DOUBLED(64), false},
        {4, 1, 128, DOUBLED(128), false},
        {6, 2, 96, DOUBLED(48), false},
        {4, 2, 256, DOUBLED(256), false},
        {20, 1, 64, DOUBLED(64), false},
        {3, 3, 40, DOUBLED(20), false},
        {4, 2, 64, {.rotary_dim = 32, .interleaved = true, .magnitude = 2.0f}, false},
        {8, 1, 128, DOUBLED(128), false},
        {2, 2, 36, DOUBLED(36), false}, /* no multiple of 8: apart */
    };
#undef DOUBLED
    static const int64_t one[] = {1}, ones[] = {1, 1, 1, 1, 1}, ones_keys[] = {1, 16, 17, 64, 200};
    static const int64_t mixed[] = {1, 20, 0, 7, 1}, mixed_keys[] = {50, 20, 33, 90, 1};
    static const int64_t uneven[] = {2, 0, 1, 3, 0, 0, 1}, uneven_keys[] = {90, 12, 130, 3, 7, 9, 65};
    static const float scales[][2] = {{0.0f, 0.0f}, {0.037f, 0.0041f}, {0.5f, 4.0f}, {0.002f, 97.0f}};
    int64_t many[72], many_keys[72];
    for (int32_t i = 0; i < COUNT(many); i++) {
        many[i] = 1;
        many_keys[i] = 1 + i * 7 % 83;
    }
    for (int32_t t = 0; t < COUNT(floats); t++) {
        const trm_dtype dtype = floats[t], f8 = TRM_F8E4M3;
        for (int32_t i = 0; i < COUNT(shapes); i++) {
            const float *scale = scales[i % COUNT(scales)];
            const trm_attention_params p = {.causal = TRM_CAUSAL_LOWER_RIGHT, .k_scale = scale[0], .v_scale = scale[1]};
            const trm_attention_params windowed = {
                .causal = TRM_CAUSAL_LOWER_RIGHT, .window = 50, .k_scale = scale[0], .v_scale = scale[1]};
            qkv_case_of(bench, dtype, f8, p, shapes[i], 16, 1, one, (const int64_t[]){1}, 1);
            qkv_case_of(bench, dtype, f8, p, shapes[i], 16, 1, one, (const int64_t[]){333}, 1);
            qkv_case_of(bench, dtype, f8, p, shapes[i], 16, COUNT(ones), ones, ones_keys, 1);
            qkv_case_of(bench, dtype, f8, p, shapes[i], 16, COUNT(mixed), mixed, mixed_keys, 0);
            qkv_case_of(bench, dtype, f8, p, shapes[i], 16, COUNT(uneven), uneven, uneven_keys, 3);
            qkv_case_of(bench, dtype, f8, windowed, shapes[i], 7, COUNT(mixed), mixed, mixed_keys, 0);
        }
        const trm_attention_params p = {.causal = TRM_CAUSAL_LOWER_RIGHT, .k_scale = 0.02f, .v_scale = 0.3f};
        qkv_case_of(bench, dtype, f8, p, shapes[0], 16, 1, one, (const int64_t[]){4999}, 0);
        qkv_case_of(bench, dtype, f8, p, shapes[1], 16, 2, ones, (const int64_t[]){2600, 3}, 100);
        qkv_case_of(bench, dtype, f8, p, (shape){16, 8, 128, PLAIN(128), false}, 16, COUNT(many), many, many_keys, 0);
        if (dtype == TRM_BF16 || (dtype == TRM_F16 && !test_is_brief())) {
            shared_out(bench, dtype, f8);
        }
    }
}

/* Every way in which a step's sums are joined: one warp, one block, a cluster, several clusters, equal shares with and
 * without a kernel behind them, prompts through the kernels of ATTENTION. */
void attention_cases_qkv_sinks(kernel_case_bench *bench)
{
    static const trm_dtype floats[] = {TRM_F32, TRM_F16, TRM_BF16};
    static const shape shapes[] = {
        {8, 1, 64, PLAIN(64), false}, /* cuda_direct.cu and cuda_shares.cu */
        {16, 4, 64, PLAIN(64), true},  {6, 2, 128, PLAIN(128), false}, {6, 2, 96, PLAIN(48), true}, /* cuda.cu */
        {20, 1, 64, PLAIN(64), false}, {2, 2, 36, PLAIN(36), true},                                 /* apart */
    };
    static const trm_attention_params kinds[] = {{.causal = TRM_CAUSAL_LOWER_RIGHT},
                                                 {.causal = TRM_CAUSAL_LOWER_RIGHT, .window = 50},
                                                 {.causal = TRM_CAUSAL_LOWER_RIGHT, .window = 128, .softcap = 5.0f}};
    static const int64_t one[] = {1}, ones[] = {1, 1, 1, 1, 1}, ones_keys[] = {1, 16, 17, 64, 200};
    static const int64_t mixed[] = {1, 20, 0, 7, 1}, mixed_keys[] = {50, 20, 33, 90, 1};
    static const int64_t uneven[] = {2, 0, 1, 3, 0, 0, 1}, uneven_keys[] = {90, 12, 130, 3, 7, 9, 65};
    static int64_t many[MOST], many_keys[MOST];
    for (int32_t i = 0; i < COUNT(many); i++) {
        many[i] = i % 11 == 7 ? 0 : 1;
        many_keys[i] = i % 17 == 3 ? 700 : 1 + i * 7 % 83;
    }
    has_sinks = true;
    for (int32_t t = 0; t < COUNT(floats); t++) {
        const trm_dtype dtype = floats[t];
        for (int32_t i = 0; i < COUNT(shapes); i++) {
            for (int32_t k = 0; k < COUNT(kinds); k++) {
                if ((i + k) % COUNT(floats) != t) {
                    continue; /* each shape and each kind in one type */
                }
                qkv_case(bench, dtype, kinds[k], shapes[i], 16, 1, one, (const int64_t[]){333}, 1);
                qkv_case(bench, dtype, kinds[k], shapes[i], 16, COUNT(ones), ones, ones_keys, 1);
                qkv_case(bench, dtype, kinds[k], shapes[i], 16, COUNT(mixed), mixed, mixed_keys, 0);
                qkv_case(bench, dtype, kinds[k], shapes[i], 16, COUNT(uneven), uneven, uneven_keys, 3);
                qkv_case(bench, dtype, kinds[k], shapes[i], 16, COUNT(uneven), uneven, uneven_keys, 300);
                qkv_case(bench, dtype, kinds[k], shapes[i], 16, 1, one, (const int64_t[]){4999}, 0);
                qkv_case(bench, dtype, kinds[k], shapes[i], 16, COUNT(many), many, many_keys, 1);
                qkv_case(bench, dtype, kinds[k], shapes[i], 16, COUNT(many), many, many_keys, 257);
            }
            shape flat = shapes[i]; /* angles of an e4m3 cache's cases are 0 */
            flat.normed = false;
            flat.rope.magnitude = 2.0f;
            const trm_attention_params p = {.causal = TRM_CAUSAL_LOWER_RIGHT, .k_scale = 0.5f, .v_scale = 4.0f};
            qkv_case_of(bench, dtype, TRM_F8E4M3, p, flat, 16, COUNT(ones), ones, ones_keys, 1);
            qkv_case_of(bench, dtype, TRM_F8E4M3, p, flat, 16, COUNT(mixed), mixed, mixed_keys, 0);
            qkv_case_of(bench, dtype, TRM_F8E4M3, p, flat, 16, 1, one, (const int64_t[]){4999}, 0);
            qkv_case_of(bench, dtype, TRM_F8E4M3, p, flat, 16, COUNT(many), many, many_keys, 257);
        }
    }
    has_sinks = false;
}
