/* Sampling against a plain f64 version, and random fill against its formula. */
#include "kernels/sample_cases.h"

#include <math.h>
#include <stdio.h>

#include "base/half.h"
#include "kernels/random.h"
#include "kernels/sample.h"
#include "support/support.h"

/* Device memory with a copy of `bytes` (may be NULL). */
static void *to_device(trm_stream *stream, const void *bytes, size_t size)
{
    void *memory = NULL;
    assert_ok(trm_device_alloc(trm_stream_device(stream), size, &memory));
    if (bytes != NULL) {
        assert_ok(trm_stream_upload(stream, memory, bytes, size));
    }
    return memory;
}

static size_t seen_words(int64_t vocab)
{
    return (size_t)(vocab + 31) / 32;
}

/* Samples on the device; `seen` (may be NULL) is updated. */
static void sample(trm_stream *stream, int64_t rows, int64_t vocab, const float *logits,
                   const trm_sample_row *parameters, uint32_t *seen, bool greedy_only, int32_t *tokens)
{
    trm_device *device = trm_stream_device(stream);
    const size_t seen_size = (size_t)rows * seen_words(vocab) * sizeof(uint32_t);
    trm_sample_args args = {.rows = rows, .vocab = vocab, .greedy_only = greedy_only};
    void *device_parameters = to_device(stream, parameters, (size_t)rows * sizeof(*parameters));
    args.logits = to_device(stream, logits, (size_t)(rows * vocab) * sizeof(float));
    args.parameters = device_parameters;
    args.seen = seen != NULL ? to_device(stream, seen, seen_size) : NULL;
    args.tokens = to_device(stream, NULL, (size_t)rows * sizeof(int32_t));
    args.workspace = to_device(stream, NULL, trm_sample_workspace(stream, rows, vocab));
    assert_ok(trm_sample(stream, &args));
    assert_ok(trm_stream_download(stream, tokens, args.tokens, (size_t)rows * sizeof(int32_t)));
    if (seen != NULL) {
        assert_ok(trm_stream_download(stream, seen, args.seen, seen_size));
    }
    assert_ok(trm_stream_synchronize(stream));
    trm_device_free(device, args.logits);
    trm_device_free(device, device_parameters);
    trm_device_free(device, args.seen);
    trm_device_free(device, args.tokens);
    trm_device_free(device, args.workspace);
}

static trm_sample_row neutral(void)
{
    return (trm_sample_row){.temperature = 1.0f, .top_p = 1.0f, .repetition_penalty = 1.0f};
}

void sample_greedy(trm_stream *stream)
{
    enum { ROWS = 8, VOCAB = 70 };
    float logits[ROWS][VOCAB];
    static const int32_t expected[ROWS] = {3, 0, 69, 1, 0, 0, 40, 5};
    trm_sample_row parameters[ROWS];
    for (int32_t r = 0; r < ROWS; r++) {
        parameters[r] = neutral();
        parameters[r].temperature = 0.0f;
        parameters[r].top_k = 5; /* means nothing to the largest */
        for (int32_t i = 0; i < VOCAB; i++) {
            logits[r][i] = r == 1 ? 2.5f : r == 4 ? -INFINITY : r == 5 ? NAN : -1.0f - (float)i;
        }
    }
    logits[0][3] = logits[0][7] = logits[0][69] = 4.0f; /* the lowest id among equals */
    logits[2][69] = 1e30f;
    logits[3][0] = NAN; /* counts as -inf */
    logits[6][40] = INFINITY;
    logits[6][41] = INFINITY;
    logits[7][0] = NAN;
    for (int32_t i = 1; i < VOCAB; i++) {
        logits[7][i] = i == 5 ? -3e38f : -INFINITY;
    }
    for (int32_t greedy_only = 0; greedy_only < 2; greedy_only++) {
        int32_t tokens[ROWS];
        sample(stream, ROWS, VOCAB, &logits[0][0], parameters, NULL, greedy_only != 0, tokens);
        for (int32_t r = 0; r < ROWS; r++) {
            assert_int_equal(tokens[r], expected[r]);
        }
    }
    /* With a penalty the runner-up wins: a positive logit is divided, a negative one multiplied. */
    float pair[2][3] = {{0.9f, 0.7f, 0.0f}, {-1.0f, -1.5f, -9.0f}};
    trm_sample_row penalised[2] = {parameters[0], parameters[0]};
    penalised[0].repetition_penalty = penalised[1].repetition_penalty = 1.6f;
    uint32_t seen_pair[2] = {1, 1};
    int32_t tokens[2];
    sample(stream, 2, 3, &pair[0][0], penalised, seen_pair, false, tokens);
    assert_int_equal(tokens[0], 1);
    assert_int_equal(tokens[1], 1);
}

/* ---- the plain version -------------------------------------------------------------------------- */

typedef struct candidate {
    float logit;
    int32_t id;
} candidate;

static int by_logit(const void *a, const void *b)
{
    const candidate *x = a, *y = b;
    return x->logit != y->logit ? (x->logit < y->logit ? 1 : -1) : (x->id > y->id) - (x->id < y->id);
}

/* `nudge` moves each comparison of real numbers by a hair. */
static int32_t naive_sample(const candidate *sorted, int64_t vocab, const trm_sample_row *p, const double nudge[3])
{
    double *weights = malloc((size_t)vocab * sizeof(double));
    int64_t remain = p->top_k > 0 && p->top_k < vocab ? p->top_k : vocab;
    double mass = 0.0;
    for (int64_t i = 0; i < remain; i++) {
        weights[i] = exp((double)sorted[i].logit - (double)sorted[0].logit);
        mass += weights[i];
    }
    if (p->top_p < 1.0f) {
        double sum = 0.0;
        int64_t n = 0;
        while (n < remain && (n == 0 || sum < (double)p->top_p * mass * (1.0 + nudge[0]))) {
            sum += weights[n++];
        }
        remain = n;
    }
    int64_t n = 1;
    while (n < remain && weights[n] >= (double)p->min_p * (1.0 + nudge[1])) {
        n++;
    }
    remain = n;
    mass = 0.0;
    for (int64_t i = 0; i < remain; i++) {
        mass += weights[i];
    }
    const double target = trm_random_uniform(p->seed, p->counter) * mass + nudge[2] * mass;
    double sum = 0.0;
    int64_t i = 0;
    for (; i < remain - 1; i++) {
        sum += weights[i];
        if (sum > target) {
            break;
        }
    }
    free(weights);
    return sorted[i].id;
}

/* Whether a token is what the plain version gives, with room for the rounding of sums in f32. */
static bool is_allowed(const float *logits, int64_t vocab, const trm_sample_row *p, const uint32_t *seen, int32_t token)
{
    candidate *sorted = malloc((size_t)vocab * sizeof(candidate));
    for (int64_t i = 0; i < vocab; i++) {
        float logit = logits[i];
        if (seen != NULL && (seen[i / 32] >> (i % 32) & 1u) != 0) {
            logit = logit > 0.0f ? logit / p->repetition_penalty : logit * p->repetition_penalty;
        }
        sorted[i] = (candidate){isnan(logit) ? -INFINITY : logit / p->temperature, (int32_t)i};
    }
    qsort(sorted, (size_t)vocab, sizeof(candidate), by_logit);
    static const double hairs[] = {0.0, -1e-5, 1e-5};
    bool allowed = false;
    for (int32_t i = 0; i < 27 && !allowed; i++) {
        const double nudge[3] = {hairs[i % 3], hairs[i / 3 % 3], hairs[i / 9]};
        allowed = naive_sample(sorted, vocab, p, nudge) == token;
    }
    free(sorted);
    return allowed;
}

void sample_equals_naive(trm_stream *stream)
{
    static const int64_t vocabs[] = {1, 2, 31, 33, 1000, 32003};
    static const trm_sample_row settings[] = {
        {.temperature = 1.0f, .top_p = 1.0f, .repetition_penalty = 1.0f},
        {.temperature = 0.7f, .top_p = 0.9f, .repetition_penalty = 1.0f},
        {.temperature = 1.3f, .top_p = 1.0f, .repetition_penalty = 1.2f, .top_k = 40},
        {.temperature = 1.0f, .top_p = 0.5f, .repetition_penalty = 0.8f, .top_k = 3},
        {.temperature = 2.0f, .top_p = 1.0f, .min_p = 0.1f, .repetition_penalty = 1.0f},
        {.temperature = 0.9f, .top_p = 0.95f, .min_p = 0.02f, .repetition_penalty = 1.1f, .top_k = 100},
        {.temperature = 1.0f, .top_p = 0.0f, .repetition_penalty = 1.0f},
        {.temperature = 1.0f, .top_p = 1.0f, .repetition_penalty = 1.0f, .top_k = 1},
        {.temperature = 5.0f, .top_p = 0.999f, .repetition_penalty = 1.0f, .top_k = 1000000},
        {.temperature = 0.01f, .top_p = 0.999f, .repetition_penalty = 1.0f},
    };
    enum { SETTINGS = sizeof(settings) / sizeof(settings[0]), ROWS = 3 * SETTINGS };
    uint64_t random = test_seed();
    for (size_t v = 0; v < sizeof(vocabs) / sizeof(vocabs[0]); v++) {
        const int64_t vocab = vocabs[v], words = (int64_t)seen_words(vocab);
        float *logits = malloc((size_t)(ROWS * vocab) * sizeof(float));
        uint32_t *seen = calloc((size_t)(ROWS * words), sizeof(uint32_t)), *before = malloc((size_t)(ROWS * words) * 4);
        trm_sample_row parameters[ROWS];
        int32_t tokens[ROWS], again[ROWS];
        for (int64_t r = 0; r < ROWS; r++) {
            parameters[r] = settings[r % SETTINGS];
            parameters[r].seed = test_random(&random);
            parameters[r].counter = (uint64_t)r;
            for (int64_t i = 0; i < vocab; i++) {
                /* Peaked, with equal values. */
                const float unit = test_random_float(&random);
                logits[r * vocab + i] = r % 3 == 0 ? floorf(unit * 6.0f) : unit * unit * unit * 12.0f;
                seen[r * words + i / 32] |= test_random_below(&random, 4) == 0 ? 1u << (i % 32) : 0;
            }
            if (vocab > 30) {
                logits[r * vocab + 7] = NAN;
                logits[r * vocab + 30] = -INFINITY;
            }
        }
        memcpy(before, seen, (size_t)(ROWS * words) * 4);
        sample(stream, ROWS, vocab, logits, parameters, seen, false, tokens);
        for (int64_t r = 0; r < ROWS; r++) {
            assert_in_range(tokens[r], 0, vocab - 1);
            if (!is_allowed(logits + r * vocab, vocab, &parameters[r], before + r * words, tokens[r])) {
                fail_msg("vocab %d, row %d (setting %d): token %d is not what the plain version gives, seed %llu",
                         (int)vocab, (int)r, (int)(r % SETTINGS), (int)tokens[r], (unsigned long long)test_seed());
            }
        }
        sample(stream, ROWS, vocab, logits, parameters, before, false, again);
        assert_memory_equal(tokens, again, sizeof(tokens));
        free(logits);
        free(seen);
        free(before);
    }
}

/* Thousands of equal or almost equal logits, where a selection must go to the ids. */
void sample_of_flat_rows(trm_stream *stream)
{
    static const trm_sample_row settings[] = {
        {.temperature = 1.0f, .top_p = 1.0f, .repetition_penalty = 1.0f},
        {.temperature = 1.0f, .top_p = 1.0f, .repetition_penalty = 1.0f, .top_k = 7000},
        {.temperature = 0.5f, .top_p = 0.5f, .repetition_penalty = 1.0f},
        {.temperature = 1.0f, .top_p = 0.3f, .min_p = 0.5f, .repetition_penalty = 1.0f, .top_k = 12000},
        {.temperature = 1.0f, .top_p = 1.0f, .min_p = 0.9995f, .repetition_penalty = 1.0f},
    };
    enum { SETTINGS = sizeof(settings) / sizeof(settings[0]), SHAPES = 6, ROWS = SETTINGS * SHAPES, VOCAB = 20000 };
    uint64_t random = test_seed();
    float *logits = malloc((size_t)ROWS * VOCAB * sizeof(float));
    trm_sample_row parameters[ROWS];
    int32_t tokens[ROWS];
    for (int64_t r = 0; r < ROWS; r++) {
        parameters[r] = settings[r % SETTINGS];
        parameters[r].seed = test_random(&random);
        for (int64_t i = 0; i < VOCAB; i++) {
            const float unit = test_random_float(&random);
            const float shapes[SHAPES] = {1.5f,
                                          unit < 0.0f ? -2.0f : 0.001f,
                                          unit * 1e-3f,
                                          floorf(unit * 10.0f) * 1e-3f,
                                          i % 3 == 0 ? 0.0f : -INFINITY,
                                          i % 2 == 0 ? 0.0f : -0.0f};
            logits[r * VOCAB + i] = shapes[r / SETTINGS];
        }
    }
    sample(stream, ROWS, VOCAB, logits, parameters, NULL, false, tokens);
    for (int64_t r = 0; r < ROWS; r++) {
        if (!is_allowed(logits + r * VOCAB, VOCAB, &parameters[r], NULL, tokens[r])) {
            fail_msg("shape %d, setting %d: token %d is not what the plain version gives, seed %llu",
                     (int)(r / SETTINGS), (int)(r % SETTINGS), (int)tokens[r], (unsigned long long)test_seed());
        }
    }
    free(logits);
}

void sample_follows_the_distribution(trm_stream *stream)
{
    enum { VOCAB = 9, DRAWS = 20000 };
    static const float row[VOCAB] = {0.0f, 1.0f, -1.0f, 2.0f, 0.5f, -3.0f, 1.0f, -INFINITY, 0.25f};
    float *logits = malloc(sizeof(row) * DRAWS);
    trm_sample_row *parameters = malloc(sizeof(*parameters) * DRAWS);
    int32_t *tokens = malloc(sizeof(*tokens) * DRAWS);
    for (int32_t i = 0; i < DRAWS; i++) {
        memcpy(logits + i * VOCAB, row, sizeof(row));
        parameters[i] = neutral();
        parameters[i].temperature = 0.8f;
        parameters[i].seed = 42;
        parameters[i].counter = (uint64_t)i;
    }
    sample(stream, DRAWS, VOCAB, logits, parameters, NULL, false, tokens);
    int32_t counts[VOCAB] = {0};
    for (int32_t i = 0; i < DRAWS; i++) {
        assert_in_range(tokens[i], 0, VOCAB - 1);
        counts[tokens[i]]++;
    }
    double sum = 0.0;
    for (int32_t i = 0; i < VOCAB; i++) {
        sum += exp((double)row[i] / 0.8);
    }
    for (int32_t i = 0; i < VOCAB; i++) {
        const double p = exp((double)row[i] / 0.8) / sum;
        const double sigma = sqrt(p * (1.0 - p) * DRAWS);
        assert_true(fabs(counts[i] - p * DRAWS) <= 5.0 * sigma);
    }
    free(logits);
    free(parameters);
    free(tokens);
}

void sample_marks_seen_tokens(trm_stream *stream)
{
    enum { ROWS = 3, VOCAB = 40 };
    float logits[ROWS][VOCAB] = {{0}};
    uint32_t seen[ROWS][2] = {{0, 0}, {0x80000000u, 1}, {0, 0}};
    trm_sample_row parameters[ROWS] = {neutral(), neutral(), neutral()};
    int32_t tokens[ROWS];
    parameters[0].temperature = parameters[1].temperature = 0.0f;
    parameters[2].top_k = 1;
    logits[0][35] = logits[1][0] = logits[2][31] = 5.0f;
    for (int32_t greedy_only = 0; greedy_only < 2; greedy_only++) {
        uint32_t marked[ROWS][2];
        memcpy(marked, seen, sizeof(seen));
        sample(stream, ROWS - greedy_only, VOCAB, &logits[0][0], parameters, &marked[0][0], greedy_only != 0, tokens);
        assert_int_equal(tokens[0], 35);
        assert_int_equal(tokens[1], 0);
        assert_int_equal(marked[0][0], 0);
        assert_int_equal(marked[0][1], 8);
        assert_int_equal(marked[1][0], 0x80000001u);
        assert_int_equal(marked[1][1], 1);
        if (greedy_only == 0) {
            assert_int_equal(tokens[2], 31);
            assert_int_equal(marked[2][0], 0x80000000u);
        }
    }
}

void sample_refuses_bad_vocabularies(trm_stream *stream)
{
    trm_sample_args args = {.rows = 1, .vocab = 0};
    assert_fails(trm_sample(stream, &args), TRM_ERROR_INVALID_ARGUMENT, "sampling from 0 tokens");
    args = (trm_sample_args){.rows = 0, .vocab = 5};
    assert_ok(trm_sample(stream, &args));
}

void random_fill_is_by_index(trm_stream *stream)
{
    static const trm_dtype types[] = {TRM_F32, TRM_F16, TRM_BF16};
    enum { A = 3, B = 5, C = 130 };
    for (int32_t t = 0; t < 3; t++) {
        const size_t size = A * B * C * trm_dtype_size(types[t]);
        uint8_t *bytes = malloc(size);
        trm_random_fill_args args = {.to = {to_device(stream, NULL, size), types[t], {3, {A, B, C}}},
                                     .seed = 7,
                                     .mean = 0.5f,
                                     .spread = 0.3f,
                                     .strides = {1000000, -7, 3},
                                     .offset = 5000000000};
        assert_ok(trm_random_fill(stream, &args));
        assert_ok(trm_stream_download(stream, bytes, args.to.data, size));
        assert_ok(trm_stream_synchronize(stream));
        for (int64_t i = 0; i < A * B * C; i++) {
            const int64_t index = 5000000000 + i / (B * C) * 1000000 - i / C % B * 7 + i % C * 3;
            const float value = fmaf(0.3f, trm_random_unit(7, (uint64_t)index), 0.5f);
            const uint16_t *half = (const uint16_t *)(const void *)bytes;
            switch (types[t]) {
            case TRM_F32:
                assert_memory_equal(bytes + 4 * i, &value, 4);
                break;
            case TRM_F16:
                assert_int_equal(half[i], trm_f32_to_f16(value));
                break;
            default:
                assert_int_equal(half[i], trm_f32_to_bf16(value));
                break;
            }
        }
        args.to.dtype = TRM_I32;
        assert_fails(trm_random_fill(stream, &args), TRM_ERROR_UNSUPPORTED, "type i32");
        trm_device_free(trm_stream_device(stream), args.to.data);
        free(bytes);
    }
}
