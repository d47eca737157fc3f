/* The cases of attention, and its meaning in f64. */
#include "attention/cases.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/support.h"

#define COUNT(array)  ((int32_t)(sizeof(array) / sizeof((array)[0])))
#define MAX_SEQUENCES 64

static const trm_dtype floats[] = {TRM_F32, TRM_F16, TRM_BF16};

/* ---- meaning ------------------------------------------------------------------------------------ */

/* One query against its keys: vectors are reached through indices of rows. */
typedef struct query {
    const double *q, *k, *v;
    double *out;
    int64_t d, dv, keys;
    double k_scale, v_scale; /* what keys and values are numbers of */
    int64_t position;        /* of the query among the keys */
    const int64_t *k_rows;   /* [keys] */
    const int64_t *places;   /* [keys] of each among all keys of the sequence */
    double *log;             /* log2 of the sum of weights, or NULL */
    const double *mask;      /* [keys] of added values, or NULL */
    const double *sink;      /* of its head, or NULL */
} query;

#define SEVEN_SINKS 0.7, -1.2, 60.0, -1000.0, 4.0, 1000.0, 2.5
const double attention_sinks[ATTENTION_SINKS] = {SEVEN_SINKS, SEVEN_SINKS, SEVEN_SINKS, SEVEN_SINKS, SEVEN_SINKS,
                                                 SEVEN_SINKS, SEVEN_SINKS, SEVEN_SINKS, SEVEN_SINKS, 0.0};

static bool has_input(const kernel_case *test, int32_t i)
{
    return test->n_inputs > i && test->inputs[i].dtype != TRM_DTYPE_NONE;
}

/* Of a head. */
static const double *sink_of(const kernel_case *test, double *const *inputs, int64_t head)
{
    return has_input(test, TRM_ATTENTION_SINKS) ? inputs[TRM_ATTENTION_SINKS] + head : NULL;
}

/* In four sums, which do not wait for each other. */
TEST_UNCHECKED static double product(const double *a, const double *b, int64_t n)
{
    double sums[4] = {0};
    int64_t i = 0;
    for (; i + 4 <= n; i += 4) {
        for (int k = 0; k < 4; k++) {
            sums[k] += a[i + k] * b[i + k];
        }
    }
    for (; i < n; i++) {
        sums[0] += a[i] * b[i];
    }
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

TEST_UNCHECKED static void attend(const trm_attention_params *p, const query *a)
{
    double *scores = malloc((size_t)a->keys * sizeof(double) + 1);
    const double scale = p->scale != 0.0f ? (double)p->scale : 1.0 / sqrt((double)a->d);
    const int64_t dv = a->dv;
    double largest = -INFINITY, sum = 0.0;
    for (int64_t j = 0; j < a->keys; j++) {
        double s = product(a->q, a->k + a->k_rows[j] * a->d, a->d) * (scale * a->k_scale);
        if (p->softcap > 0.0f) {
            s = (double)p->softcap * tanh(s / (double)p->softcap);
        }
        s += a->mask != NULL ? a->mask[j] : 0.0;
        const int64_t place = a->places[j];
        const bool after = p->causal != TRM_CAUSAL_NONE && place > a->position;
        const bool before = p->chunked ? place / p->window < a->position / p->window
                                       : p->window > 0 && place <= a->position - p->window;
        scores[j] = after || before ? -INFINITY : s;
        largest = fmax(largest, scores[j]);
    }
    for (int64_t i = 0; i < a->dv; i++) {
        a->out[i] = 0.0;
    }
    for (int64_t j = 0; largest > -INFINITY && j < a->keys; j++) {
        scores[j] = exp(scores[j] - largest);
        sum += scores[j];
    }
    if (a->log != NULL) {
        *a->log = largest / log(2.0) + log2(sum);
    }
    sum += a->sink != NULL && sum > 0.0 ? exp(*a->sink - largest) : 0.0;
    for (int64_t j = 0; sum > 0.0 && j < a->keys; j++) {
        const double weight = scores[j] / sum * a->v_scale, *v = a->v + a->k_rows[j] * a->dv;
        double *out = a->out;
        for (int64_t i = 0; i < dv; i++) {
            out[i] += weight * v[i];
        }
    }
    free(scores);
}

/* What a cache of a type holds of a key or value, as a number of the key or value; `scale` 0 means 1. */
static double cached_value(trm_dtype dtype, double value, float scale)
{
    if (dtype != TRM_F8E4M3) {
        return value;
    }
    const float inverse = 1.0f / (scale != 0.0f ? scale : 1.0f);
    return kernel_case_round(dtype, (double)((float)value * inverse));
}

void attention_meaning_packed(const kernel_case *test, double *const *inputs, double *const *outputs)
{
    const trm_attention_params *p = &test->layer.attention;
    const trm_dims *q = &test->inputs[TRM_ATTENTION_Q].dims, *k = &test->inputs[TRM_ATTENTION_K].dims;
    const trm_dims *v = &test->inputs[TRM_ATTENTION_V].dims;
    const double *starts = inputs[TRM_ATTENTION_SEQUENCE_STARTS];
    const bool cached = has_input(test, TRM_ATTENTION_KEY_CACHE);
    const int64_t hq = q->d[1], hkv = k->d[1], d = k->d[2], dv = v->d[2];
    const trm_dtype cache_type = cached ? test->inputs[TRM_ATTENTION_KEY_CACHE].dtype : TRM_DTYPE_NONE;
    const bool is_f8 = cache_type == TRM_F8E4M3;
    const int64_t ranks = p->cache_ranks > 1 ? p->cache_ranks : 1;
    for (int64_t s = 0; s + 1 < test->inputs[TRM_ATTENTION_SEQUENCE_STARTS].dims.d[0]; s++) {
        const int64_t first = (int64_t)starts[s], queries = (int64_t)starts[s + 1] - first;
        const int64_t keys = cached ? (int64_t)inputs[TRM_ATTENTION_SEQUENCE_LENGTHS][s] : queries;
        int64_t *rows = malloc((size_t)keys * sizeof(int64_t) + 1), held = 0; /* keys of the cache's share */
        int64_t *places = malloc((size_t)keys * sizeof(int64_t) + 1);
        for (int64_t h = 0; h < hkv; h++) {
            held = 0;
            for (int64_t j = 0; queries > 0 && j < keys; j++) {
                if (cached) {
                    const int64_t size = test->inputs[TRM_ATTENTION_KEY_CACHE].dims.d[1];
                    const int64_t columns = test->inputs[TRM_ATTENTION_BLOCK_TABLE].dims.d[1];
                    if (j / size % ranks != p->cache_rank) {
                        continue;
                    }
                    const int64_t block = (int64_t)inputs[TRM_ATTENTION_BLOCK_TABLE][s * columns + j / size / ranks];
                    rows[held] = (block * size + j % size) * hkv + h;
                    const int64_t token = first + j - (keys - queries);
                    for (int64_t i = 0; token >= first && i < d; i++) {
                        inputs[TRM_ATTENTION_KEY_CACHE][rows[held] * d + i] =
                            cached_value(cache_type, inputs[TRM_ATTENTION_K][(token * hkv + h) * d + i], p->k_scale);
                    }
                    for (int64_t i = 0; token >= first && i < dv; i++) {
                        inputs[TRM_ATTENTION_VALUE_CACHE][rows[held] * dv + i] =
                            cached_value(cache_type, inputs[TRM_ATTENTION_V][(token * hkv + h) * dv + i], p->v_scale);
                    }
                } else {
                    rows[held] = (first + j) * hkv + h;
                }
                places[held++] = j;
            }
            for (int64_t i = 0; i < queries; i++) {
                for (int64_t head = h * hq / hkv; head < (h + 1) * hq / hkv; head++) {
                    const int64_t at = (first + i) * hq + head;
                    const query a = {.q = inputs[TRM_ATTENTION_Q] + at * d,
                                     .k = inputs[cached ? TRM_ATTENTION_KEY_CACHE : TRM_ATTENTION_K],
                                     .v = inputs[cached ? TRM_ATTENTION_VALUE_CACHE : TRM_ATTENTION_V],
                                     .out = outputs[0] + at * dv,
                                     .d = d,
                                     .dv = dv,
                                     .k_scale = is_f8 && p->k_scale != 0.0f ? (double)p->k_scale : 1.0,
                                     .v_scale = is_f8 && p->v_scale != 0.0f ? (double)p->v_scale : 1.0,
                                     .keys = held,
                                     .position = i + (p->causal == TRM_CAUSAL_LOWER_RIGHT ? keys - queries : 0),
                                     .k_rows = rows,
                                     .places = places,
                                     .log = ranks > 1 ? outputs[1] + at : NULL,
                                     .sink = sink_of(test, inputs, head)};
                    attend(p, &a);
                }
            }
        }
        free(rows);
        free(places);
    }
}

static void meaning_padded(const kernel_case *test, double *const *inputs, double *const *outputs)
{
    const trm_attention_params *p = &test->layer.attention;
    const trm_dims *q = &test->inputs[TRM_ATTENTION_Q].dims, *k = &test->inputs[TRM_ATTENTION_K].dims;
    const int64_t hq = q->d[1], n = q->d[2], hkv = k->d[1], m = k->d[2], d = q->d[3];
    const int64_t dv = test->inputs[TRM_ATTENTION_V].dims.d[3];
    const trm_dims *mask = has_input(test, TRM_ATTENTION_MASK) ? &test->inputs[TRM_ATTENTION_MASK].dims : NULL;
    int64_t *rows = malloc((size_t)m * sizeof(int64_t) + 1), *places = malloc((size_t)m * sizeof(int64_t) + 1);
    double *added = malloc((size_t)m * sizeof(double) + 1);
    for (int64_t at = 0; at < q->d[0] * hq * n; at++) {
        const int64_t place[4] = {at / (hq * n), at / n % hq, at % n, 0};
        for (int64_t j = 0; j < m; j++) {
            rows[j] = (place[0] * hkv + place[1] * hkv / hq) * m + j;
            places[j] = j;
            int64_t index = 0;
            for (int32_t axis = 0; mask != NULL && axis < mask->n; axis++) {
                const int32_t of = axis + 4 - mask->n;
                index = index * mask->d[axis] + (mask->d[axis] == 1 ? 0 : of == 3 ? j : place[of]);
            }
            const double value = mask != NULL ? inputs[TRM_ATTENTION_MASK][index] : 0.0;
            added[j] = mask != NULL && test->inputs[TRM_ATTENTION_MASK].dtype == TRM_BOOL
                           ? (value != 0.0 ? 0.0 : -INFINITY)
                           : value;
        }
        const query a = {.q = inputs[TRM_ATTENTION_Q] + at * d,
                         .k = inputs[TRM_ATTENTION_K],
                         .v = inputs[TRM_ATTENTION_V],
                         .out = outputs[0] + at * dv,
                         .d = d,
                         .dv = dv,
                         .k_scale = 1.0,
                         .v_scale = 1.0,
                         .keys = m,
                         .position = place[2] + (p->causal == TRM_CAUSAL_LOWER_RIGHT ? m - n : 0),
                         .k_rows = rows,
                         .places = places,
                         .mask = added,
                         .sink = sink_of(test, inputs, place[1])};
        attend(p, &a);
    }
    free(rows);
    free(places);
    free(added);
}

/* ---- packed ------------------------------------------------------------------------------------- */

typedef struct heads {
    int64_t hq, hkv, d, dv;
} heads;

/* Whether the cases that follow have sinks. */
static bool has_sinks;

static kernel_case new_case(trm_dtype dtype, trm_attention_params p, heads h, const char *what)
{
    kernel_case test;
    memset(&test, 0, sizeof(test));
    test.layer.kind = TRM_LAYER_ATTENTION;
    test.layer.attention = p;
    test.tolerance = 2.0;
    snprintf(test.name, sizeof(test.name),
             "attention%s %s %s heads %lld/%lld dim %lld/%lld causal %d window %d%s scale %g softcap %g",
             has_sinks ? " sinks" : "", what, trm_dtype_name(dtype), (long long)h.hq, (long long)h.hkv, (long long)h.d,
             (long long)h.dv, (int)p.causal, (int)p.window, p.chunked ? " chunked" : "", (double)p.scale,
             (double)p.softcap);
    return test;
}

static void set_input(kernel_case *test, int32_t i, trm_dtype dtype, trm_dims dims, const double *values)
{
    test->inputs[i] = (kernel_case_input){.dtype = dtype, .dims = dims, .low = -2.0, .high = 2.0, .values = values};
    test->n_inputs = i + 1;
}

/* Behind all other inputs. */
static void set_sinks(kernel_case *test, heads h)
{
    if (has_sinks) {
        set_input(test, TRM_ATTENTION_SINKS, TRM_F32, DIMS(h.hq), attention_sinks);
    }
}

/* Sets q, k, v, starts and the output of sequences of queries[0], queries[1], ... tokens. */
static void set_packed(kernel_case *test, trm_dtype dtype, heads h, int32_t n, const int64_t *queries, double *starts)
{
    starts[0] = 0.0;
    for (int32_t i = 0; i < n; i++) {
        starts[i + 1] = starts[i] + (double)queries[i];
    }
    const int64_t tokens = (int64_t)starts[n];
    set_input(test, TRM_ATTENTION_Q, dtype, DIMS(tokens, h.hq, h.d), NULL);
    set_input(test, TRM_ATTENTION_K, dtype, DIMS(tokens, h.hkv, h.d), NULL);
    set_input(test, TRM_ATTENTION_V, dtype, DIMS(tokens, h.hkv, h.dv), NULL);
    set_input(test, TRM_ATTENTION_SEQUENCE_STARTS, TRM_I32, DIMS(n + 1), starts);
    test->n_outputs = 1;
    test->outputs[0] = (kernel_case_output){.dtype = dtype, .dims = DIMS(tokens, h.hq, h.dv)};
}

static void packed_case(kernel_case_bench *bench, trm_dtype dtype, trm_attention_params p, heads h, int32_t n,
                        const int64_t *queries)
{
    double starts[MAX_SEQUENCES + 1];
    kernel_case test = new_case(dtype, p, h, "packed");
    set_packed(&test, dtype, h, n, queries, starts);
    set_sinks(&test, h);
    kernel_case_run(bench, &test, attention_meaning_packed);
}

static const heads plain = {4, 4, 64, 64}, grouped = {8, 2, 64, 64}, single = {6, 1, 128, 128}, odd = {5, 5, 40, 24},
                   wide = {4, 2, 256, 256}, tiny = {3, 3, 8, 8}, large = {32, 8, 128, 128};
static const trm_attention_params causal = {.causal = TRM_CAUSAL_LOWER_RIGHT};

/* Every width that a kernel is built for, over several tiles of queries and keys, with ends inside of tiles; groups
 * that do and do not divide a tile. */
static const heads wide_range[] = {
    {4, 1, 64, 64}, {3, 1, 96, 96}, {4, 2, 128, 128}, {2, 2, 192, 192}, {4, 2, 256, 256}};
static const int64_t several[] = {193, 0, 1, 70};

void attention_cases_packed(kernel_case_bench *bench)
{
    static const int64_t mixed[] = {5, 0, 1, 33, 70, 0}, one[] = {1}, longer[] = {300, 129};
    for (int32_t t = 0; t < COUNT(floats); t++) {
        const trm_dtype dtype = floats[t];
        static const heads all[] = {{4, 4, 64, 64}, {8, 2, 64, 64}, {6, 1, 128, 128}, {5, 5, 40, 24}, {3, 3, 8, 8}};
        for (int32_t i = 0; i < COUNT(all); i++) {
            for (int32_t kind = TRM_CAUSAL_NONE; kind <= TRM_CAUSAL_LOWER_RIGHT; kind++) {
                packed_case(bench, dtype, (trm_attention_params){.causal = (trm_causal)kind}, all[i], COUNT(mixed),
                            mixed);
            }
        }
        packed_case(bench, dtype, causal, wide, 1, (const int64_t[]){65});
        packed_case(bench, dtype, causal, large, 1, one);
        packed_case(bench, dtype, causal, (heads){4, 2, 96, 96}, COUNT(mixed), mixed);
        packed_case(bench, dtype, causal, (heads){2, 2, 136, 136}, 2, (const int64_t[]){20, 70});
        packed_case(bench, dtype, causal, grouped, 2, longer);
        packed_case(bench, dtype, (trm_attention_params){.causal = TRM_CAUSAL_LOWER_RIGHT, .window = 16}, grouped, 2,
                    longer);
        packed_case(bench, dtype, (trm_attention_params){.causal = TRM_CAUSAL_UPPER_LEFT, .window = 1}, tiny, 1,
                    (const int64_t[]){40});
        packed_case(bench, dtype, (trm_attention_params){.causal = TRM_CAUSAL_LOWER_RIGHT, .scale = 0.3f}, plain,
                    COUNT(mixed), mixed);
        packed_case(bench, dtype,
                    (trm_attention_params){.causal = TRM_CAUSAL_LOWER_RIGHT, .scale = 1.0f, .softcap = 5.0f}, odd,
                    COUNT(mixed), mixed);
        packed_case(bench, dtype,
                    (trm_attention_params){.causal = TRM_CAUSAL_LOWER_RIGHT, .softcap = 50.0f, .window = 30}, wide, 1,
                    (const int64_t[]){90});
        for (int32_t i = 0; dtype != TRM_F32 && i < COUNT(wide_range); i++) {
            packed_case(bench, dtype, causal, wide_range[i], COUNT(several), several);
            packed_case(bench, dtype, (trm_attention_params){.causal = TRM_CAUSAL_NONE}, wide_range[i], COUNT(several),
                        several);
            packed_case(bench, dtype, (trm_attention_params){.causal = TRM_CAUSAL_LOWER_RIGHT, .window = 100},
                        wide_range[i], COUNT(several), several);
            packed_case(bench, dtype,
                        (trm_attention_params){.causal = TRM_CAUSAL_UPPER_LEFT, .window = 33, .softcap = 3.0f},
                        wide_range[i], COUNT(several), several);
        }
        packed_case(bench, dtype, (trm_attention_params){.causal = TRM_CAUSAL_LOWER_RIGHT, .scale = -0.2f}, grouped, 1,
                    longer);
        packed_case(bench, dtype, causal, plain, 2, (const int64_t[]){0, 0});
        packed_case(bench, dtype, causal, plain, 0, one);
    }
}

/* ---- with a cache ------------------------------------------------------------------------------- */

static void cached_case_of(kernel_case_bench *bench, trm_dtype dtype, trm_dtype cache, trm_attention_params p, heads h,
                           int64_t block_size, int32_t n, const int64_t *queries, const int64_t *keys)
{
    double starts[MAX_SEQUENCES + 1], lengths[MAX_SEQUENCES];
    int64_t columns = 1, used = 0;
    const int64_t run = block_size * (p.cache_ranks > 1 ? p.cache_ranks : 1);
    for (int32_t s = 0; s < n; s++) {
        const int64_t blocks = (keys[s] + run - 1) / run;
        lengths[s] = (double)keys[s];
        columns = blocks + 1 > columns ? blocks + 1 : columns;
        used += blocks;
    }
    /* Blocks in an order with gaps; entries past a sequence point nowhere. */
    double *table = malloc((size_t)(n * columns) * sizeof(double) + 1);
    const int64_t cache_blocks = (used | 1) + 2;
    int64_t next = 0;
    for (int32_t s = 0; s < n; s++) {
        for (int64_t i = 0; i < columns; i++) {
            const bool inside = i < (keys[s] + run - 1) / run;
            table[s * columns + i] = inside ? (double)(cache_blocks - 1 - (next++ * 2) % cache_blocks) : 1e9;
        }
    }
    char what[96], share[24] = "";
    if (p.cache_ranks > 1) {
        snprintf(share, sizeof(share), "share %d of %d, ", (int)p.cache_rank, (int)p.cache_ranks);
    }
    snprintf(what, sizeof(what), "%d %scached, %sblocks of %lld, last %lld of %lld", (int)n,
             cache == TRM_F8E4M3 ? "f8 " : "", share, (long long)block_size, (long long)queries[n - 1],
             (long long)keys[n - 1]);
    kernel_case test = new_case(dtype, p, h, what);
    set_packed(&test, dtype, h, n, queries, starts);
    set_input(&test, TRM_ATTENTION_SEQUENCE_LENGTHS, TRM_I32, DIMS(n), lengths);
    set_input(&test, TRM_ATTENTION_BLOCK_TABLE, TRM_I32, DIMS(n, columns), table);
    set_input(&test, TRM_ATTENTION_KEY_CACHE, cache, DIMS(cache_blocks, block_size, h.hkv, h.d), NULL);
    set_input(&test, TRM_ATTENTION_VALUE_CACHE, cache, DIMS(cache_blocks, block_size, h.hkv, h.dv), NULL);
    test.inputs[TRM_ATTENTION_KEY_CACHE].is_state = test.inputs[TRM_ATTENTION_VALUE_CACHE].is_state = true;
    set_sinks(&test, h);
    if (p.cache_ranks > 1) {
        test.n_outputs = 2;
        test.outputs[1] = (kernel_case_output){.dtype = TRM_F32, .dims = DIMS((int64_t)starts[n], h.hq)};
    }
    kernel_case_run(bench, &test, attention_meaning_packed);
    free(table);
}

static void cached_case(kernel_case_bench *bench, trm_dtype dtype, trm_attention_params p, heads h, int64_t block_size,
                        int32_t n, const int64_t *queries, const int64_t *keys)
{
    cached_case_of(bench, dtype, dtype, p, h, block_size, n, queries, keys);
}

void attention_cases_cached(kernel_case_bench *bench)
{
    /* Decoding, prefill, prefill after a prefix, all in one step, and sequences that rest. */
    static const int64_t one[] = {1}, decode_queries[] = {1, 1, 1, 1, 1}, decode_keys[] = {1, 16, 17, 64, 200};
    static const int64_t mixed_queries[] = {1, 20, 0, 7, 1}, mixed_keys[] = {50, 20, 33, 90, 1};
    for (int32_t t = 0; t < COUNT(floats); t++) {
        const trm_dtype dtype = floats[t];
        static const heads all[] = {{4, 4, 64, 64}, {8, 2, 64, 64}, {6, 1, 128, 128}, {5, 5, 40, 24}, {3, 3, 8, 8}};
        for (int32_t i = 0; i < COUNT(all); i++) {
            cached_case(bench, dtype, causal, all[i], 16, COUNT(decode_keys), decode_queries, decode_keys);
            cached_case(bench, dtype, causal, all[i], 16, COUNT(mixed_keys), mixed_queries, mixed_keys);
        }
        cached_case(bench, dtype, causal, large, 16, 1, one, (const int64_t[]){777});
        /* Many keys per head and few heads, the other way round, more query heads than a tile of 16, odd sizes. */
        cached_case(bench, dtype, causal, (heads){2, 1, 64, 64}, 16, 1, one, (const int64_t[]){2000});
        cached_case(bench, dtype, causal, (heads){64, 64, 8, 8}, 16, 1, one, (const int64_t[]){3000});
        cached_case(bench, dtype, causal, (heads){40, 2, 64, 64}, 16, COUNT(mixed_keys), mixed_queries, mixed_keys);
        cached_case(bench, dtype, causal, (heads){4, 2, 80, 80}, 16, COUNT(mixed_keys), mixed_queries, mixed_keys);
        cached_case(bench, dtype, causal, (heads){4, 2, 96, 96}, 16, COUNT(decode_keys), decode_queries, decode_keys);
        cached_case(bench, dtype, causal, (heads){88, 88, 136, 136}, 16, 1, one, (const int64_t[]){260});
        cached_case(bench, dtype, causal, grouped, 1, COUNT(mixed_keys), mixed_queries, mixed_keys);
        cached_case(bench, dtype, causal, grouped, 7, COUNT(mixed_keys), mixed_queries, mixed_keys);
        cached_case(bench, dtype, causal, grouped, 256, COUNT(mixed_keys), mixed_queries, mixed_keys);
        cached_case(bench, dtype, causal, grouped, 32, 1, (const int64_t[]){130}, (const int64_t[]){130});
        cached_case(bench, dtype, (trm_attention_params){.causal = TRM_CAUSAL_LOWER_RIGHT, .window = 16}, grouped, 16,
                    COUNT(mixed_keys), mixed_queries, mixed_keys);
        cached_case(bench, dtype, (trm_attention_params){.causal = TRM_CAUSAL_LOWER_RIGHT, .window = 20}, single, 16,
                    COUNT(decode_keys), decode_queries, decode_keys);
        const trm_attention_params chunked = {.causal = TRM_CAUSAL_LOWER_RIGHT, .window = 24, .chunked = true};
        cached_case(bench, dtype, chunked, grouped, 16, COUNT(mixed_keys), mixed_queries, mixed_keys);
        cached_case(bench, dtype, chunked, single, 16, COUNT(decode_keys), decode_queries, decode_keys);
        cached_case(bench, dtype,
                    (trm_attention_params){.causal = TRM_CAUSAL_LOWER_RIGHT, .softcap = 5.0f, .scale = 0.5f}, wide, 16,
                    COUNT(mixed_keys), mixed_queries, mixed_keys);
        static const int64_t several_keys[] = {260, 50, 200, 145};
        for (int32_t i = 0; dtype != TRM_F32 && i < COUNT(wide_range); i++) {
            cached_case(bench, dtype, causal, wide_range[i], 16, COUNT(several), several, several_keys);
            cached_case(bench, dtype, (trm_attention_params){.causal = TRM_CAUSAL_LOWER_RIGHT, .window = 70},
                        wide_range[i], 8, COUNT(several), several, several_keys);
            cached_case(bench, dtype,
                        (trm_attention_params){.causal = TRM_CAUSAL_LOWER_RIGHT, .window = 48, .chunked = true},
                        wide_range[i], 16, COUNT(several), several, several_keys);
            cached_case(bench, dtype, (trm_attention_params){.causal = TRM_CAUSAL_UPPER_LEFT, .softcap = 3.0f},
                        wide_range[i], 24, COUNT(several), several, several_keys);
        }
        cached_case(bench, dtype, causal, grouped, 128, COUNT(several), several, several_keys);
        cached_case(bench, dtype, causal, grouped, 256, COUNT(several), several, several_keys);
        cached_case(bench, dtype, (trm_attention_params){.causal = TRM_CAUSAL_NONE}, grouped, 16, COUNT(mixed_keys),
                    mixed_queries, mixed_keys);
        cached_case(bench, dtype, (trm_attention_params){.causal = TRM_CAUSAL_UPPER_LEFT}, grouped, 16,
                    COUNT(mixed_keys), mixed_queries, mixed_keys);
    }
}

void attention_cases_f8(kernel_case_bench *bench)
{
    static const int64_t one[] = {1}, ones[] = {1, 1, 1, 1, 1}, ones_keys[] = {1, 16, 17, 64, 200};
    static const int64_t mixed[] = {1, 20, 0, 7, 1}, mixed_keys[] = {50, 20, 33, 90, 1};
    static const int64_t several_keys[] = {260, 50, 200, 145};
    /* The smallest scale makes most of what is stored saturate, the largest makes it denormal. */
    static const float scales[][2] = {{0.0f, 0.0f}, {0.5f, 4.0f}, {0.037f, 0.0041f}, {0.001f, 97.0f}, {97.0f, 0.001f}};
    static const heads all[] = {{4, 4, 64, 64}, {8, 2, 64, 64},   {6, 1, 128, 128}, {5, 5, 40, 24},
                                {3, 3, 8, 8},   {40, 2, 64, 64},  {4, 2, 80, 80},   {4, 2, 96, 96},
                                {3, 3, 4, 4},   {2, 2, 300, 300}, {4, 2, 256, 256}, {2, 2, 192, 192}};
    for (int32_t t = 0; t < COUNT(floats); t++) {
        const trm_dtype dtype = floats[t], f8 = TRM_F8E4M3;
        for (int32_t i = 0; i < COUNT(all); i++) {
            trm_attention_params p = causal;
            p.k_scale = scales[i % COUNT(scales)][0];
            p.v_scale = scales[i % COUNT(scales)][1];
            cached_case_of(bench, dtype, f8, p, all[i], 16, 1, one, one);
            cached_case_of(bench, dtype, f8, p, all[i], 16, COUNT(ones), ones, ones_keys);
            cached_case_of(bench, dtype, f8, p, all[i], 16, COUNT(mixed), mixed, mixed_keys);
        }
        for (int32_t i = 0; i < COUNT(scales); i++) {
            const trm_attention_params windowed = {
                .causal = TRM_CAUSAL_LOWER_RIGHT, .window = 70, .k_scale = scales[i][0], .v_scale = scales[i][1]};
            const trm_attention_params capped = {.causal = TRM_CAUSAL_UPPER_LEFT,
                                                 .softcap = 3.0f,
                                                 .scale = 0.4f,
                                                 .k_scale = scales[i][0],
                                                 .v_scale = scales[i][1]};
            const trm_attention_params open = {
                .causal = TRM_CAUSAL_NONE, .k_scale = scales[i][0], .v_scale = scales[i][1]};
            cached_case_of(bench, dtype, f8, windowed, wide_range[i], 8, COUNT(several), several, several_keys);
            cached_case_of(bench, dtype, f8, capped, wide_range[i], 24, COUNT(several), several, several_keys);
            cached_case_of(bench, dtype, f8, open, wide_range[i], 16, COUNT(mixed), mixed, mixed_keys);
            cached_case_of(bench, dtype, f8, open, wide_range[i], 1, COUNT(mixed), mixed, mixed_keys);
            cached_case_of(bench, dtype, f8, windowed, wide_range[i], 7, COUNT(ones), ones, ones_keys);
        }
        cached_case_of(bench, dtype, f8, causal, large, 16, 1, one, (const int64_t[]){777});
        cached_case_of(bench, dtype, f8, causal, (heads){2, 1, 64, 64}, 16, 1, one, (const int64_t[]){2000});
        cached_case_of(bench, dtype, f8, causal, grouped, 128, COUNT(several), several, several_keys);
        cached_case_of(bench, dtype, f8, causal, grouped, 16, 1, (const int64_t[]){300}, (const int64_t[]){300});
    }
}

/* ---- shares of the keys -------------------------------------------------------------------------- */

static void join_meaning(const kernel_case *test, double *const *inputs, double *const *outputs)
{
    const trm_dims *out = &test->outputs[0].dims;
    const int64_t n = test->layer.attention_join.n_ranks, rows = out->d[0] * out->d[1], dv = out->d[2];
    for (int64_t row = 0; row < rows; row++) {
        double total = 0.0;
        for (int64_t r = 0; r < n; r++) {
            total += exp2(inputs[TRM_ATTENTION_JOIN_LOGS][r * rows + row]);
        }
        const double all = total + (test->n_inputs > TRM_ATTENTION_JOIN_SINKS && total > 0.0
                                        ? exp(inputs[TRM_ATTENTION_JOIN_SINKS][row % out->d[1]])
                                        : 0.0);
        for (int64_t i = 0; i < dv; i++) {
            double sum = 0.0;
            for (int64_t r = 0; r < n; r++) {
                sum += exp2(inputs[TRM_ATTENTION_JOIN_LOGS][r * rows + row]) *
                       inputs[TRM_ATTENTION_JOIN_RESULTS][(r * rows + row) * dv + i];
            }
            outputs[0][row * dv + i] = all > 0.0 ? sum / all : 0.0;
        }
    }
}

/* `unseen`: a share of which some queries see no key, and a query that sees none of any. */
static void join_case(kernel_case_bench *bench, trm_dtype dtype, int32_t n, int64_t tokens, heads h, bool unseen,
                      bool sinks)
{
    kernel_case test;
    memset(&test, 0, sizeof(test));
    test.layer.kind = TRM_LAYER_ATTENTION_JOIN;
    test.layer.attention_join.n_ranks = n;
    test.tolerance = 2.0;
    snprintf(test.name, sizeof(test.name), "attention_join %s of %d, %lld queries, %lld heads of %lld%s%s",
             trm_dtype_name(dtype), (int)n, (long long)tokens, (long long)h.hq, (long long)h.dv,
             unseen ? ", unseen" : "", sinks ? ", sinks" : "");
    const int64_t rows = tokens * h.hq;
    double *logs = malloc((size_t)(n * rows) * sizeof(double) + 1);
    for (int64_t i = 0; i < n * rows; i++) {
        const bool none = unseen && (i % rows == rows - 1 || (i / rows == 0 && i % 3 == 0));
        logs[i] = none ? -INFINITY : (double)((i * 37) % 96) * 0.25 - 12.0;
    }
    set_input(&test, TRM_ATTENTION_JOIN_RESULTS, dtype, DIMS(n * tokens, h.hq, h.dv), NULL);
    set_input(&test, TRM_ATTENTION_JOIN_LOGS, TRM_F32, DIMS(n * tokens, h.hq), logs);
    if (sinks) {
        set_input(&test, TRM_ATTENTION_JOIN_SINKS, TRM_F32, DIMS(h.hq), attention_sinks);
    }
    test.n_outputs = 1;
    test.outputs[0] = (kernel_case_output){.dtype = dtype, .dims = DIMS(tokens, h.hq, h.dv)};
    kernel_case_run(bench, &test, join_meaning);
    free(logs);
}

/* Each share of up to four ranks, of decoding and of prompts in chunks, with borders of blocks, queries and tiles in
 * all places, and queries that see nothing of a share. */
void attention_cases_shares(kernel_case_bench *bench)
{
    static const int64_t one[] = {1}, ones[] = {1, 1, 1, 1, 1}, ones_keys[] = {1, 16, 17, 64, 200};
    static const int64_t mixed[] = {1, 20, 0, 7, 1}, mixed_keys[] = {50, 20, 33, 90, 1};
    static const int64_t several_keys[] = {460, 50, 200, 145};
    static const heads all[] = {{8, 2, 64, 64}, {6, 1, 128, 128}, {4, 2, 96, 96},
                                {5, 5, 40, 24}, {4, 2, 256, 256}, {32, 8, 128, 128}};
    static const trm_attention_params kinds[] = {{.causal = TRM_CAUSAL_LOWER_RIGHT},
                                                 {.causal = TRM_CAUSAL_LOWER_RIGHT, .window = 20},
                                                 {.causal = TRM_CAUSAL_LOWER_RIGHT, .window = 48, .chunked = true},
                                                 {.causal = TRM_CAUSAL_LOWER_RIGHT, .softcap = 3.0f, .scale = 0.4f},
                                                 {.causal = TRM_CAUSAL_NONE},
                                                 {.causal = TRM_CAUSAL_UPPER_LEFT}};
    for (int32_t t = 0; t < COUNT(floats); t++) {
        const trm_dtype dtype = floats[t];
        for (int32_t i = 0; i < COUNT(all); i++) {
            for (int32_t k = 0; k < COUNT(kinds); k++) {
                trm_attention_params p = kinds[k];
                if ((i + k) % COUNT(floats) != t && k > 0) {
                    continue;
                }
                p.cache_ranks = 2 + (i + k) % 3;
                for (p.cache_rank = 0; p.cache_rank < p.cache_ranks; p.cache_rank++) {
                    cached_case(bench, dtype, p, all[i], 16, COUNT(ones), ones, ones_keys);
                    cached_case(bench, dtype, p, all[i], 16, COUNT(mixed), mixed, mixed_keys);
                    cached_case(bench, dtype, p, all[i], k % 2 == 0 ? 16 : 8, COUNT(several), several, several_keys);
                    cached_case(bench, dtype, p, all[i], 7, COUNT(mixed), mixed, mixed_keys);
                    cached_case(bench, dtype, p, all[i], 16, 1, one, (const int64_t[]){777});
                    cached_case_of(bench, dtype, TRM_F8E4M3, p, all[i], 16, COUNT(mixed), mixed, mixed_keys);
                }
            }
        }
        join_case(bench, dtype, 1, 3, (heads){5, 5, 40, 24}, false, false);
        join_case(bench, dtype, 2, 1, (heads){32, 8, 128, 128}, false, false);
        join_case(bench, dtype, 4, 33, (heads){8, 2, 64, 64}, true, false);
        join_case(bench, dtype, 4, 20, (heads){8, 2, 128, 128}, true, true);
        join_case(bench, dtype, 8, 5, (heads){3, 3, 256, 256}, true, true);
        join_case(bench, dtype, 3, 0, (heads){3, 3, 8, 8}, false, false);
    }
}

/* ---- padded ------------------------------------------------------------------------------------- */

/* [B, A, C, D] to [B, C, A, D]. */
static double *swap_axes(const trm_dims *dims, const double *from)
{
    const int64_t *d = dims->d;
    double *to = calloc((size_t)trm_dims_count(dims) + 1, sizeof(*to));
    assert_non_null(to);
    for (int64_t i = 0; i < trm_dims_count(dims); i++) {
        const int64_t e = i % d[3], c = i / d[3] % d[2], a = i / d[3] / d[2] % d[1], b = i / d[3] / d[2] / d[1];
        to[((b * d[2] + c) * d[1] + a) * d[3] + e] = from[i];
    }
    return to;
}

static trm_dims swapped(trm_dims dims)
{
    return DIMS(dims.d[0], dims.d[2], dims.d[1], dims.d[3]);
}

/* The form with rows first means what the other does on swapped axes. */
static void meaning_rows_first(const kernel_case *test, double *const *inputs, double *const *outputs)
{
    kernel_case other = *test;
    double *moved[TRM_MAX_LAYER_INPUTS];
    memcpy(moved, inputs, sizeof(moved));
    for (int32_t i = TRM_ATTENTION_Q; i <= TRM_ATTENTION_V; i++) {
        other.inputs[i].dims = swapped(test->inputs[i].dims);
        moved[i] = swap_axes(&test->inputs[i].dims, inputs[i]);
    }
    other.outputs[0].dims = swapped(test->outputs[0].dims);
    double *result = calloc((size_t)trm_dims_count(&other.outputs[0].dims) + 1, sizeof(*result));
    assert_non_null(result);
    meaning_padded(&other, moved, &result);
    double *back = swap_axes(&other.outputs[0].dims, result);
    memcpy(outputs[0], back, (size_t)trm_dims_count(&other.outputs[0].dims) * sizeof(*back));
    free(back);
    free(result);
    for (int32_t i = TRM_ATTENTION_Q; i <= TRM_ATTENTION_V; i++) {
        free(moved[i]);
    }
}

static void padded_form_case(kernel_case_bench *bench, trm_dtype dtype, trm_attention_params p, heads h, int64_t batch,
                             int64_t n, int64_t m, trm_dtype mask_type, trm_dims mask, const double *values,
                             bool rows_first, bool tf32)
{
    char what[64];
    snprintf(what, sizeof(what), "padded%s%s %lld x %lld by %lld mask %s %d-d", rows_first ? " bnhd" : "",
             tf32 ? " tf32" : "", (long long)batch, (long long)n, (long long)m, trm_dtype_name(mask_type), (int)mask.n);
    const trm_dims q = DIMS(batch, h.hq, n, h.d), k = DIMS(batch, h.hkv, m, h.d), v = DIMS(batch, h.hkv, m, h.dv);
    const trm_dims out = DIMS(batch, h.hq, n, h.dv);
    p.form = rows_first ? TRM_ATTENTION_PADDED_BNHD : TRM_ATTENTION_PADDED_BHND;
    kernel_case test = new_case(dtype, p, h, what);
    set_input(&test, TRM_ATTENTION_Q, dtype, rows_first ? swapped(q) : q, NULL);
    set_input(&test, TRM_ATTENTION_K, dtype, rows_first ? swapped(k) : k, NULL);
    set_input(&test, TRM_ATTENTION_V, dtype, rows_first ? swapped(v) : v, NULL);
    if (mask_type != TRM_DTYPE_NONE) {
        set_input(&test, TRM_ATTENTION_MASK, mask_type, mask, values);
        if (mask_type == TRM_BOOL) {
            test.inputs[TRM_ATTENTION_MASK].low = 0.0;
            test.inputs[TRM_ATTENTION_MASK].high = 1.0;
        }
    }
    set_sinks(&test, h);
    test.tf32 = tf32;
    test.n_outputs = 1;
    test.outputs[0] = (kernel_case_output){.dtype = dtype, .dims = rows_first ? swapped(out) : out};
    kernel_case_run(bench, &test, rows_first ? meaning_rows_first : meaning_padded);
}

static void padded_case(kernel_case_bench *bench, trm_dtype dtype, trm_attention_params p, heads h, int64_t batch,
                        int64_t n, int64_t m, trm_dtype mask_type, trm_dims mask, const double *values)
{
    padded_form_case(bench, dtype, p, h, batch, n, m, mask_type, mask, values, false, false);
    padded_form_case(bench, dtype, p, h, batch, n, m, mask_type, mask, values, true, false);
    if (dtype == TRM_F32) {
        padded_form_case(bench, dtype, p, h, batch, n, m, mask_type, mask, values, true, true);
    }
}

/* Values are the same for all keys of a head, so that whatever the weights are, outputs are eighths, or zeros: none
 * lies near the middle of two multiples of the scale. */
static void meaning_quantized(const kernel_case *test, double *const *inputs, double *const *outputs)
{
    const trm_dims *v = &test->inputs[TRM_ATTENTION_V].dims, *out = &test->outputs[0].dims;
    const double *mask = inputs[TRM_ATTENTION_MASK]; /* [B, 1, 1, M] */
    const int64_t keys = v->d[1], row = v->d[2] * v->d[3];
    for (int64_t i = 0; i < trm_dims_count(out); i++) {
        const int64_t batch = i / (out->d[1] * row);
        bool sees = false;
        for (int64_t key = 0; key < keys; key++) {
            sees = sees || mask == NULL || mask[batch * keys + key] != 0.0;
        }
        const double y = sees ? inputs[TRM_ATTENTION_V][batch * keys * row + i % row] : 0.0;
        outputs[0][i] = fmin(fmax(nearbyint(y / inputs[TRM_ATTENTION_QUANTIZE_SCALE][0]), -128.0), 127.0);
    }
}

static void quantized_case(kernel_case_bench *bench, trm_dtype dtype, heads h, int64_t batch, int64_t n, int64_t m,
                           bool masked, double scale)
{
    const trm_dims kv = DIMS(batch, m, h.hq, h.d), q = DIMS(batch, n, h.hq, h.d);
    double *values = malloc((size_t)trm_dims_count(&kv) * sizeof(*values)), mask[512];
    assert_non_null(values);
    for (int64_t i = 0; i < trm_dims_count(&kv); i++) {
        values[i] = (double)(i % (h.hq * h.d) * 7 % 41 - 20) / 8.0;
    }
    for (int64_t i = 0; i < batch * m; i++) {
        mask[i] = i / m != 1 && i % 3 != 1 ? 1.0 : 0.0; /* the second sequence sees nothing */
    }
    kernel_case test = new_case(dtype, (trm_attention_params){.form = TRM_ATTENTION_PADDED_BNHD}, h, "quantized");
    test.layer.kind = TRM_LAYER_ATTENTION_QUANTIZE;
    test.tolerance = 0.0;
    set_input(&test, TRM_ATTENTION_Q, dtype, q, NULL);
    set_input(&test, TRM_ATTENTION_K, dtype, kv, NULL);
    set_input(&test, TRM_ATTENTION_V, dtype, kv, values);
    if (masked) {
        set_input(&test, TRM_ATTENTION_MASK, TRM_BOOL, DIMS(batch, 1, 1, m), mask);
    }
    set_input(&test, TRM_ATTENTION_QUANTIZE_SCALE, TRM_F32, SCALAR, &scale);
    test.n_outputs = 1;
    test.outputs[0] = (kernel_case_output){.dtype = TRM_I8, .dims = q};
    kernel_case_run(bench, &test, meaning_quantized);
    free(values);
}

static void quantized_cases(kernel_case_bench *bench)
{
    static const heads whole = {3, 3, 64, 64}, part = {2, 2, 24, 24}, uneven = {2, 2, 10, 10};
    for (int32_t t = 0; t < COUNT(floats); t++) {
        quantized_case(bench, floats[t], whole, 2, 128, 128, true, 0.29);
        quantized_case(bench, floats[t], whole, 1, 70, 200, false, 0.0125);
        quantized_case(bench, floats[t], part, 3, 37, 65, true, 0.29);
        quantized_case(bench, floats[t], uneven, 2, 9, 17, true, 0.29);
        quantized_case(bench, floats[t], whole, 1, 300, 300, false, 0.29);
    }
}

void attention_cases_padded(kernel_case_bench *bench)
{
    quantized_cases(bench);
    /* Row 1 of the mask lets nothing through. */
    static const double closed[] = {1, 0, 1, 0, 0, 0, 0, 1, 1};
    const double added[] = {0.0, -INFINITY, 1.0, -INFINITY, -INFINITY, -INFINITY, -1e4, 0.5, 0.0};
    for (int32_t t = 0; t < COUNT(floats); t++) {
        const trm_dtype dtype = floats[t], none = TRM_DTYPE_NONE;
        for (int32_t kind = TRM_CAUSAL_NONE; kind <= TRM_CAUSAL_LOWER_RIGHT; kind++) {
            const trm_attention_params p = {.causal = (trm_causal)kind};
            padded_case(bench, dtype, p, plain, 2, 37, 37, none, SCALAR, NULL);
            padded_case(bench, dtype, p, grouped, 2, 9, 70, none, SCALAR, NULL);
            padded_case(bench, dtype, p, odd, 1, 30, 11, none, SCALAR, NULL);      /* some queries see no key */
            padded_case(bench, dtype, p, grouped, 2, 150, 40, none, SCALAR, NULL); /* whole tiles of them */
            padded_case(bench, dtype, p, grouped, 3, 70, 300, none, SCALAR, NULL);
            padded_case(bench, dtype, p, grouped, 2, 9, 70, TRM_BOOL, DIMS(2, 1, 1, 70), NULL);
            padded_case(bench, dtype, p, grouped, 2, 9, 70, dtype, DIMS(2, 8, 9, 70), NULL);
        }
        padded_case(bench, dtype, causal, tiny, 2, 3, 3, TRM_BOOL, DIMS(3, 3), closed);
        padded_case(bench, dtype, (trm_attention_params){.causal = TRM_CAUSAL_NONE}, tiny, 2, 3, 3, TRM_BOOL,
                    DIMS(3, 3), closed);
        padded_case(bench, dtype, (trm_attention_params){.causal = TRM_CAUSAL_NONE}, tiny, 2, 3, 3, TRM_F32,
                    DIMS(1, 3, 3), added);
        padded_case(bench, dtype, causal, tiny, 1, 5, 6, TRM_BOOL, SCALAR, NULL);
        padded_case(bench, dtype, causal, single, 1, 1, 200, TRM_BOOL, DIMS(200), NULL);
        padded_case(bench, dtype, (trm_attention_params){.causal = TRM_CAUSAL_LOWER_RIGHT, .window = 10}, plain, 1, 50,
                    60, none, SCALAR, NULL);
        padded_case(bench, dtype, (trm_attention_params){.causal = TRM_CAUSAL_LOWER_RIGHT, .window = 40}, large, 2, 200,
                    330, none, SCALAR, NULL);
        padded_case(bench, dtype, (trm_attention_params){.causal = TRM_CAUSAL_UPPER_LEFT, .window = 40}, grouped, 2,
                    200, 90, none, SCALAR, NULL); /* the last are past the window of the last key */
        padded_case(bench, dtype, (trm_attention_params){.softcap = 3.0f}, plain, 1, 5, 60, dtype, DIMS(5, 60), NULL);
        padded_case(bench, dtype, (trm_attention_params){.causal = TRM_CAUSAL_NONE}, plain, 2, 197, 197, none, SCALAR,
                    NULL);
        padded_case(bench, dtype, (trm_attention_params){.causal = TRM_CAUSAL_NONE}, plain, 2, 130, 130, TRM_BOOL,
                    DIMS(2, 1, 130, 130), NULL);
        padded_case(bench, dtype, (trm_attention_params){.causal = TRM_CAUSAL_NONE}, plain, 34, 70, 90, TRM_BOOL,
                    DIMS(34, 1, 1, 90), NULL); /* enough for large tiles */
        padded_case(bench, dtype, causal, plain, 0, 5, 6, none, SCALAR, NULL);
        padded_case(bench, dtype, causal, plain, 2, 0, 6, none, SCALAR, NULL);
        padded_case(bench, dtype, causal, plain, 2, 4, 0, none, SCALAR, NULL);
    }
}

/* Every kernel that takes sinks, and calls of those that do not, which another one has to take: decoding in one split
 * and in several, prompts of one tile and of many, groups up to 16 heads, windows, soft caps, caches of both kinds. */
void attention_cases_sinks(kernel_case_bench *bench)
{
    static const int64_t one[] = {1}, ones[] = {1, 1, 1, 1, 1}, ones_keys[] = {1, 16, 17, 64, 200};
    static const int64_t mixed[] = {1, 20, 0, 7, 1}, mixed_keys[] = {50, 20, 33, 90, 1};
    static const int64_t several_keys[] = {260, 50, 200, 145};
    static const heads all[] = {{8, 1, 64, 64}, {16, 2, 64, 64},  {8, 2, 128, 128}, {32, 2, 64, 64},
                                {6, 2, 96, 96}, {4, 2, 256, 256}, {5, 5, 40, 24},   {2, 2, 192, 192}};
    static const trm_attention_params kinds[] = {
        {.causal = TRM_CAUSAL_LOWER_RIGHT},
        {.causal = TRM_CAUSAL_LOWER_RIGHT, .window = 16},
        {.causal = TRM_CAUSAL_LOWER_RIGHT, .window = 128, .softcap = 3.0f, .k_scale = 0.5f, .v_scale = 4.0f},
        {.causal = TRM_CAUSAL_NONE, .scale = 0.3f},
        {.causal = TRM_CAUSAL_UPPER_LEFT, .scale = -0.2f}};
    has_sinks = true;
    for (int32_t t = 0; t < COUNT(floats); t++) {
        const trm_dtype dtype = floats[t];
        for (int32_t i = 0; i < COUNT(all); i++) {
            for (int32_t k = 0; k < COUNT(kinds); k++) {
                if ((i + k) % COUNT(floats) != t) {
                    continue; /* each shape and each kind in one type */
                }
                packed_case(bench, dtype, kinds[k], all[i], COUNT(several), several);
                cached_case(bench, dtype, kinds[k], all[i], 16, COUNT(ones), ones, ones_keys);
                cached_case(bench, dtype, kinds[k], all[i], 16, COUNT(mixed), mixed, mixed_keys);
                cached_case(bench, dtype, kinds[k], all[i], 16, COUNT(several), several, several_keys);
                cached_case_of(bench, dtype, TRM_F8E4M3, kinds[k], all[i], 16, COUNT(ones), ones, ones_keys);
                cached_case_of(bench, dtype, TRM_F8E4M3, kinds[k], all[i], 16, COUNT(several), several, several_keys);
            }
            cached_case(bench, dtype, causal, all[i], 16, 1, one, (const int64_t[]){777});
            padded_case(bench, dtype, kinds[1], all[i], 2, 9, 70, TRM_DTYPE_NONE, SCALAR, NULL);
            padded_case(bench, dtype, kinds[3], all[i], 2, 70, 90, TRM_BOOL, DIMS(2, 1, 1, 90), NULL);
            padded_case(bench, dtype, causal, all[i], 1, 30, 11, dtype, DIMS(30, 11), NULL); /* some see no key */
        }
    }
    has_sinks = false;
}
