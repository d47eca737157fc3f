/* The cases of latent attention, and its meaning in f64: the expanded form. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attention/cases.h"
#include "support/support.h"

#define COUNT(array)  ((int32_t)(sizeof(array) / sizeof((array)[0])))
#define MAX_SEQUENCES 70

typedef struct sizes {
    int64_t heads, plain, rotated, value_dim, rank;
} sizes;

static sizes sizes_of(const kernel_case *test)
{
    const trm_dims *weight = &test->inputs[TRM_LATENT_ATTENTION_WEIGHT].dims;
    const int64_t rotated = test->inputs[TRM_LATENT_ATTENTION_ROPE_KEY].dims.d[2];
    const int64_t plain = test->inputs[TRM_LATENT_ATTENTION_Q].dims.d[2] - rotated;
    return (sizes){weight->d[0], plain, rotated, weight->d[1] - plain, weight->d[2]};
}

/* out [n] = rows [n, width] times x [width] */
TEST_UNCHECKED static void multiply(const double *rows, int64_t n, const double *x, int64_t width, double *out)
{
    for (int64_t i = 0; i < n; i++) {
        const double *row = rows + i * width;
        double sums[4] = {0}; /* which do not wait for each other */
        int64_t k = 0;
        for (; k + 4 <= width; k += 4) {
            for (int j = 0; j < 4; j++) {
                sums[j] += row[k + j] * x[k + j];
            }
        }
        for (; k < width; k++) {
            sums[0] += row[k] * x[k];
        }
        out[i] = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    }
}

/* Keys and values of a head, [keys, plain + value_dim], from the cache. */
static double *expand(const kernel_case *test, double *const *inputs, const int64_t *rows, int64_t keys, int64_t head)
{
    const sizes s = sizes_of(test);
    const int64_t width = s.plain + s.value_dim;
    double *expanded = calloc((size_t)(keys * width) + 1, sizeof(*expanded));
    assert_non_null(expanded);
    for (int64_t j = 0; j < keys; j++) {
        multiply(inputs[TRM_LATENT_ATTENTION_WEIGHT] + head * width * s.rank, width,
                 inputs[TRM_LATENT_ATTENTION_CACHE] + rows[j] * (s.rank + s.rotated), s.rank, expanded + j * width);
    }
    return expanded;
}

/* One query against the first `keys` of its sequence. */
TEST_UNCHECKED static void attend(const kernel_case *test, double *const *inputs, const int64_t *rows, int64_t keys,
                                  const double *expanded, const double *q, double *out)
{
    const sizes s = sizes_of(test);
    const double given = (double)test->layer.latent_attention.scale;
    const double scale = given != 0.0 ? given : 1.0 / sqrt((double)(s.plain + s.rotated));
    const int64_t width = s.plain + s.value_dim;
    double *scores = malloc((size_t)keys * sizeof(*scores) + 1), largest = -INFINITY, sum = 0.0;
    for (int64_t j = 0; j < keys; j++) {
        double parts[2];
        multiply(expanded + j * width, 1, q, s.plain, &parts[0]);
        multiply(inputs[TRM_LATENT_ATTENTION_CACHE] + rows[j] * (s.rank + s.rotated) + s.rank, 1, q + s.plain,
                 s.rotated, &parts[1]);
        scores[j] = (parts[0] + parts[1]) * scale;
        largest = fmax(largest, scores[j]);
    }
    for (int64_t j = 0; j < keys; j++) {
        scores[j] = exp(scores[j] - largest);
        sum += scores[j];
    }
    for (int64_t i = 0; i < s.value_dim; i++) {
        out[i] = 0.0;
        for (int64_t j = 0; j < keys; j++) {
            out[i] += scores[j] / sum * expanded[j * width + s.plain + i];
        }
    }
    free(scores);
}

static void meaning_latent(const kernel_case *test, double *const *inputs, double *const *outputs)
{
    const sizes s = sizes_of(test);
    const int64_t size = test->inputs[TRM_LATENT_ATTENTION_CACHE].dims.d[1];
    const int64_t columns = test->inputs[TRM_LATENT_ATTENTION_BLOCK_TABLE].dims.d[1];
    for (int64_t i = 0; i < test->inputs[TRM_LATENT_ATTENTION_SEQUENCE_LENGTHS].dims.d[0]; i++) {
        const int64_t first = (int64_t)inputs[TRM_LATENT_ATTENTION_SEQUENCE_STARTS][i];
        const int64_t queries = (int64_t)inputs[TRM_LATENT_ATTENTION_SEQUENCE_STARTS][i + 1] - first;
        const int64_t keys = queries > 0 ? (int64_t)inputs[TRM_LATENT_ATTENTION_SEQUENCE_LENGTHS][i] : 0;
        int64_t *rows = malloc((size_t)keys * sizeof(*rows) + 1);
        for (int64_t j = 0; j < keys; j++) {
            const int64_t block = (int64_t)inputs[TRM_LATENT_ATTENTION_BLOCK_TABLE][i * columns + j / size];
            const int64_t token = first + j - (keys - queries);
            rows[j] = block * size + j % size;
            double *row = inputs[TRM_LATENT_ATTENTION_CACHE] + rows[j] * (s.rank + s.rotated);
            if (token >= first) {
                memcpy(row, inputs[TRM_LATENT_ATTENTION_LATENT] + token * s.rank, (size_t)s.rank * sizeof(*row));
                memcpy(row + s.rank, inputs[TRM_LATENT_ATTENTION_ROPE_KEY] + token * s.rotated,
                       (size_t)s.rotated * sizeof(*row));
            }
        }
        for (int64_t h = 0; h < s.heads; h++) {
            double *expanded = expand(test, inputs, rows, keys, h);
            for (int64_t j = 0; j < queries; j++) {
                const int64_t at = (first + j) * s.heads + h;
                attend(test, inputs, rows, keys - queries + j + 1, expanded,
                       inputs[TRM_LATENT_ATTENTION_Q] + at * (s.plain + s.rotated), outputs[0] + at * s.value_dim);
            }
            free(expanded);
        }
        free(rows);
    }
}

static void set_input(kernel_case *test, int32_t i, trm_dtype dtype, trm_dims dims, double range, const double *values)
{
    test->inputs[i] = (kernel_case_input){.dtype = dtype, .dims = dims, .low = -range, .high = range, .values = values};
}

static void latent_case(kernel_case_bench *bench, trm_dtype dtype, sizes s, float scale, int64_t block_size, int32_t n,
                        const int64_t *queries, const int64_t *keys)
{
    double starts[MAX_SEQUENCES + 1] = {0}, lengths[MAX_SEQUENCES];
    int64_t columns = 1, used = 0, next = 0;
    for (int32_t i = 0; i < n; i++) {
        const int64_t blocks = (keys[i] + block_size - 1) / block_size;
        starts[i + 1] = starts[i] + (double)queries[i];
        lengths[i] = (double)keys[i];
        columns = blocks + 1 > columns ? blocks + 1 : columns;
        used += blocks;
    }
    /* Blocks in an order with gaps; entries past a sequence point nowhere. */
    double *table = malloc((size_t)(n * columns) * sizeof(double) + 1);
    const int64_t cache_blocks = (used | 1) + 2, tokens = (int64_t)starts[n];
    for (int32_t i = 0; i < n; i++) {
        for (int64_t j = 0; j < columns; j++) {
            const bool inside = j < (keys[i] + block_size - 1) / block_size;
            table[i * columns + j] = inside ? (double)(cache_blocks - 1 - (next++ * 2) % cache_blocks) : 1e9;
        }
    }
    kernel_case test;
    memset(&test, 0, sizeof(test));
    test.layer.kind = TRM_LAYER_LATENT_ATTENTION;
    test.layer.latent_attention.scale = scale;
    test.tolerance = 2.0;
    /* Of 16-bit floats, the absorbed query and the sum of latents may be rounded to them. */
    test.spread = dtype == TRM_F32 ? 0.0 : dtype == TRM_F16 ? 0x1p-11 : 0x1p-8;
    snprintf(test.name, sizeof(test.name),
             "latent attention %s, %lld heads of %lld + %lld, %lld, rank %lld, %d sequences, last %lld of %lld, scale "
             "%g, blocks of %lld",
             trm_dtype_name(dtype), (long long)s.heads, (long long)s.plain, (long long)s.rotated,
             (long long)s.value_dim, (long long)s.rank, (int)n, n > 0 ? (long long)queries[n - 1] : 0,
             n > 0 ? (long long)keys[n - 1] : 0, (double)scale, (long long)block_size);
    const double weight = 1.7 / sqrt((double)s.rank); /* keys and values are of order one */
    set_input(&test, TRM_LATENT_ATTENTION_Q, dtype, DIMS(tokens, s.heads, s.plain + s.rotated), 2.0, NULL);
    set_input(&test, TRM_LATENT_ATTENTION_LATENT, dtype, DIMS(tokens, s.rank), 2.0, NULL);
    set_input(&test, TRM_LATENT_ATTENTION_ROPE_KEY, dtype, DIMS(tokens, 1, s.rotated), 2.0, NULL);
    set_input(&test, TRM_LATENT_ATTENTION_WEIGHT, dtype, DIMS(s.heads, s.plain + s.value_dim, s.rank), weight, NULL);
    set_input(&test, TRM_LATENT_ATTENTION_SEQUENCE_STARTS, TRM_I32, DIMS(n + 1), 0.0, starts);
    set_input(&test, TRM_LATENT_ATTENTION_SEQUENCE_LENGTHS, TRM_I32, DIMS(n), 0.0, lengths);
    set_input(&test, TRM_LATENT_ATTENTION_BLOCK_TABLE, TRM_I32, DIMS(n, columns), 0.0, table);
    set_input(&test, TRM_LATENT_ATTENTION_CACHE, dtype, DIMS(cache_blocks, block_size, s.rank + s.rotated), 2.0, NULL);
    test.inputs[TRM_LATENT_ATTENTION_CACHE].is_state = true;
    test.n_inputs = TRM_LATENT_ATTENTION_INPUT_COUNT;
    test.n_outputs = 1;
    test.outputs[0] = (kernel_case_output){.dtype = dtype, .dims = DIMS(tokens, s.heads, s.value_dim)};
    kernel_case_run(bench, &test, meaning_latent);
    free(table);
}

void attention_cases_latent(kernel_case_bench *bench)
{
    static const trm_dtype floats[] = {TRM_F32, TRM_F16, TRM_BF16};
    static const sizes tiny = {3, 6, 4, 5, 10}, small = {4, 32, 16, 32, 64}, real = {16, 128, 64, 128, 512},
                       many = {72, 128, 64, 128, 512}, narrow = {5, 64, 64, 128, 256}, wide = {4, 192, 64, 256, 512};
    /* Decoding, prompts, prompts after a prefix, all in one step, and sequences that rest. */
    static const int64_t one[] = {1}, ones[] = {1, 1, 1, 1, 1}, ones_keys[] = {1, 16, 17, 64, 200};
    static const int64_t mixed[] = {1, 20, 0, 7, 1}, mixed_keys[] = {50, 20, 33, 90, 1};
    static const int64_t prompts[] = {70, 3, 0, 129}, chunks_keys[] = {70, 203, 5, 190};
    for (int32_t t = 0; t < COUNT(floats); t++) {
        const trm_dtype dtype = floats[t];
        static const sizes all[] = {{3, 6, 4, 5, 10}, {4, 32, 16, 32, 64}, {16, 128, 64, 128, 512}};
        for (int32_t i = 0; i < COUNT(all); i++) {
            latent_case(bench, dtype, all[i], 0.0f, 16, COUNT(ones), ones, ones_keys);
            latent_case(bench, dtype, all[i], 0.0f, 16, COUNT(mixed), mixed, mixed_keys);
        }
        latent_case(bench, dtype, small, 0.3f, 16, COUNT(prompts), prompts, chunks_keys);
        latent_case(bench, dtype, small, 0.0f, 1, COUNT(mixed), mixed, mixed_keys);
        latent_case(bench, dtype, small, 0.0f, 7, COUNT(mixed), mixed, mixed_keys);
        latent_case(bench, dtype, small, -0.2f, 256, COUNT(mixed), mixed, mixed_keys);
        latent_case(bench, dtype, real, 0.0f, 64, COUNT(prompts), prompts, chunks_keys);
        latent_case(bench, dtype, real, 0.1f, 16, 1, one, (const int64_t[]){600});
        latent_case(bench, dtype, many, 0.0f, 16, 2, ones, (const int64_t[]){9, 70});
        latent_case(bench, dtype, many, 0.0f, 16, 2, (const int64_t[]){2, 5}, (const int64_t[]){2, 40});
        if (dtype != TRM_F32) { /* prompts in the expanded form, alone and behind a prefix, more heads than a tile */
            latent_case(bench, dtype, real, 0.0f, 16, 1, (const int64_t[]){100}, (const int64_t[]){100});
            latent_case(bench, dtype, real, 0.0f, 16, 1, (const int64_t[]){150}, (const int64_t[]){430});
            latent_case(bench, dtype, many, 0.0f, 16, 2, (const int64_t[]){1, 40}, (const int64_t[]){30, 70});
        }
        latent_case(bench, dtype, narrow, 0.0f, 16, COUNT(mixed), mixed, mixed_keys);
        latent_case(bench, dtype, wide, 0.0f, 16, COUNT(mixed), mixed, mixed_keys);
        latent_case(bench, dtype, tiny, 0.0f, 16, 1, (const int64_t[]){40}, (const int64_t[]){40});
        latent_case(bench, dtype, tiny, 0.0f, 16, 2, (const int64_t[]){0, 0}, (const int64_t[]){3, 0});
    }
}
