/* Sampling against a plain f64 version, and random fill against its formula. */
#include "kernels/sample_cases.h"

#include <math.h>
#include <stdio.h>

#include "base/half.h"
#include "kernels/sampling/logits.h"
#include "kernels/sampling/random.h"
#include "kernels/sampling/sample.h"
#include "support/device.h"
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

/* Samples on the device. */
static void sample(trm_stream *stream, int64_t rows, int64_t vocab, const float *logits,
                   const trm_sample_row *parameters, bool greedy_only, int32_t *tokens)
{
    trm_device *device = trm_stream_device(stream);
    trm_sample_args args = {.rows = rows, .vocab = vocab, .greedy_only = greedy_only};
    void *device_parameters = to_device(stream, parameters, (size_t)rows * sizeof(*parameters));
    args.logits = to_device(stream, logits, (size_t)(rows * vocab) * sizeof(float));
    args.parameters = device_parameters;
    args.tokens = to_device(stream, NULL, (size_t)rows * sizeof(int32_t));
    args.workspace = to_device(stream, NULL, trm_sample_workspace(stream, rows, vocab));
    assert_ok(trm_sample(stream, &args));
    assert_ok(trm_stream_download(stream, tokens, args.tokens, (size_t)rows * sizeof(int32_t)));
    assert_ok(trm_stream_synchronize(stream));
    trm_device_free(device, args.logits);
    trm_device_free(device, device_parameters);
    trm_device_free(device, args.tokens);
    trm_device_free(device, args.workspace);
}

static trm_sample_row neutral(void)
{
    return (trm_sample_row){.temperature = 1.0f, .top_p = 1.0f, .typical_p = 1.0f};
}

static void sample_greedy(trm_stream *stream)
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
        sample(stream, ROWS, VOCAB, &logits[0][0], parameters, greedy_only != 0, tokens);
        for (int32_t r = 0; r < ROWS; r++) {
            assert_int_equal(tokens[r], expected[r]);
        }
    }
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

typedef struct surprise {
    double distance, weight;
    candidate token;
} surprise;

static int by_distance(const void *a, const void *b)
{
    const surprise *x = a, *y = b;
    return (x->distance > y->distance) - (x->distance < y->distance);
}

/* Gives the tokens that are not typical -inf. `sorted` stays sorted. */
static void naive_typical(candidate *sorted, int64_t vocab, const trm_sample_row *p, double nudge)
{
    surprise *all = malloc((size_t)vocab * sizeof(*all));
    double mass = 0.0, entropy = 0.0, kept = 0.0;
    for (int64_t i = 0; i < vocab; i++) {
        all[i] = (surprise){0.0, exp((double)sorted[i].logit - (double)sorted[0].logit), sorted[i]};
        mass += all[i].weight;
    }
    for (int64_t i = 0; i < vocab; i++) {
        const double probability = all[i].weight / mass;
        entropy -= probability > 0.0 ? probability * log(probability) : 0.0;
    }
    for (int64_t i = 0; i < vocab; i++) {
        all[i].distance = fabs(-log(all[i].weight / mass) - entropy);
    }
    qsort(all, (size_t)vocab, sizeof(*all), by_distance);
    int64_t n = 0;
    while (n < vocab && kept < (double)p->typical_p * mass * (1.0 + nudge)) {
        kept += all[n++].weight;
    }
    while (n > 0 && n < vocab && all[n].distance <= all[n - 1].distance * (1.0 + 1e-6) + 1e-6) {
        n++; /* as near, up to rounding */
    }
    for (int64_t i = 0; i < vocab; i++) {
        sorted[i] = all[i].token;
        sorted[i].logit = i < n ? sorted[i].logit : -INFINITY;
    }
    qsort(sorted, (size_t)vocab, sizeof(candidate), by_logit);
    free(all);
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
static bool is_allowed(const float *logits, int64_t vocab, const trm_sample_row *p, int32_t token)
{
    candidate *sorted = malloc((size_t)vocab * sizeof(candidate));
    for (int64_t i = 0; i < vocab; i++) {
        const float logit = logits[i];
        sorted[i] = (candidate){isnan(logit) ? -INFINITY : logit / p->temperature, (int32_t)i};
    }
    qsort(sorted, (size_t)vocab, sizeof(candidate), by_logit);
    static const double hairs[] = {0.0, -1e-5, 1e-5};
    bool allowed = false;
    candidate *typical = malloc((size_t)vocab * sizeof(candidate));
    for (int32_t i = 0; i < 27 && !allowed; i++) {
        const double nudge[3] = {hairs[i % 3], hairs[i / 3 % 3], hairs[i / 9]};
        memcpy(typical, sorted, (size_t)vocab * sizeof(candidate));
        if (p->typical_p < 1.0f && isfinite(sorted[0].logit)) {
            naive_typical(typical, vocab, p, nudge[0]);
        }
        allowed = naive_sample(typical, vocab, p, nudge) == token;
    }
    free(typical);
    free(sorted);
    return allowed;
}

static void sample_equals_naive(trm_stream *stream)
{
    static const int64_t vocabs[] = {1, 2, 31, 33, 1000, 32003};
    static const trm_sample_row settings[] = {
        {.temperature = 1.0f, .top_p = 1.0f, .typical_p = 1.0f},
        {.temperature = 0.7f, .top_p = 0.9f, .typical_p = 1.0f},
        {.temperature = 1.3f, .top_p = 1.0f, .typical_p = 1.0f, .top_k = 40},
        {.temperature = 1.0f, .top_p = 0.5f, .typical_p = 1.0f, .top_k = 3},
        {.temperature = 2.0f, .top_p = 1.0f, .min_p = 0.1f, .typical_p = 1.0f},
        {.temperature = 0.9f, .top_p = 0.95f, .min_p = 0.02f, .typical_p = 1.0f, .top_k = 100},
        {.temperature = 1.0f, .top_p = 0.0f, .typical_p = 1.0f},
        {.temperature = 1.0f, .top_p = 1.0f, .typical_p = 1.0f, .top_k = 1},
        {.temperature = 5.0f, .top_p = 0.999f, .typical_p = 1.0f, .top_k = 1000000},
        {.temperature = 0.01f, .top_p = 0.999f, .typical_p = 1.0f},
        {.temperature = 1.0f, .top_p = 1.0f, .typical_p = 0.5f},
        {.temperature = 0.7f, .top_p = 0.9f, .typical_p = 0.2f, .top_k = 50},
        {.temperature = 1.5f, .top_p = 1.0f, .typical_p = 0.95f, .min_p = 0.01f},
    };
    enum { SETTINGS = sizeof(settings) / sizeof(settings[0]), ROWS = 3 * SETTINGS };
    const int64_t rows = test_is_brief() ? SETTINGS : ROWS;
    uint64_t random = test_seed();
    for (size_t v = 0; v < sizeof(vocabs) / sizeof(vocabs[0]) - (test_is_brief() ? 1 : 0); v++) {
        const int64_t vocab = vocabs[v];
        float *logits = malloc((size_t)(ROWS * vocab) * sizeof(float));
        trm_sample_row parameters[ROWS];
        int32_t tokens[ROWS], again[ROWS];
        for (int64_t r = 0; r < rows; r++) {
            parameters[r] = settings[r % SETTINGS];
            parameters[r].seed = test_random(&random);
            parameters[r].counter = (uint64_t)r;
            for (int64_t i = 0; i < vocab; i++) {
                /* Peaked, with equal values. */
                const float unit = test_random_float(&random);
                logits[r * vocab + i] = r % 3 == 0 ? floorf(unit * 6.0f) : unit * unit * unit * 12.0f;
            }
            if (vocab > 30) {
                logits[r * vocab + 7] = NAN;
                logits[r * vocab + 30] = -INFINITY;
            }
        }
        sample(stream, rows, vocab, logits, parameters, false, tokens);
        for (int64_t r = 0; r < rows; r++) {
            assert_in_range(tokens[r], 0, vocab - 1);
            if (!is_allowed(logits + r * vocab, vocab, &parameters[r], tokens[r])) {
                fail_msg("vocab %d, row %d (setting %d): token %d is not what the plain version gives, seed %llu",
                         (int)vocab, (int)r, (int)(r % SETTINGS), (int)tokens[r], (unsigned long long)test_seed());
            }
        }
        sample(stream, rows, vocab, logits, parameters, false, again);
        assert_memory_equal(tokens, again, (size_t)rows * sizeof(*tokens));
        free(logits);
    }
}

/* Thousands of equal or almost equal logits, where a selection must go to the ids. */
static void sample_of_flat_rows(trm_stream *stream)
{
    static const trm_sample_row settings[] = {
        {.temperature = 1.0f, .top_p = 1.0f, .typical_p = 1.0f},
        {.temperature = 1.0f, .top_p = 1.0f, .typical_p = 1.0f, .top_k = 7000},
        {.temperature = 0.5f, .top_p = 0.5f, .typical_p = 1.0f},
        {.temperature = 1.0f, .top_p = 0.3f, .min_p = 0.5f, .typical_p = 1.0f, .top_k = 12000},
        {.temperature = 1.0f, .top_p = 1.0f, .min_p = 0.9995f, .typical_p = 1.0f},
    };
    enum { SETTINGS = sizeof(settings) / sizeof(settings[0]), SHAPES = 6, ROWS = SETTINGS * SHAPES, VOCAB = 20000 };
    const int64_t rows = test_is_brief() ? SETTINGS : ROWS; /* with a setting each, and a shape */
    uint64_t random = test_seed();
    float *logits = malloc((size_t)ROWS * VOCAB * sizeof(float));
    trm_sample_row parameters[ROWS];
    int32_t tokens[ROWS];
    for (int64_t r = 0; r < rows; r++) {
        const int64_t shape = rows == ROWS ? r / SETTINGS : r;
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
            logits[r * VOCAB + i] = shapes[shape];
        }
    }
    sample(stream, rows, VOCAB, logits, parameters, false, tokens);
    for (int64_t r = 0; r < rows; r++) {
        if (!is_allowed(logits + r * VOCAB, VOCAB, &parameters[r], tokens[r])) {
            fail_msg("shape %d, setting %d: token %d is not what the plain version gives, seed %llu",
                     (int)(rows == ROWS ? r / SETTINGS : r), (int)(r % SETTINGS), (int)tokens[r],
                     (unsigned long long)test_seed());
        }
    }
    free(logits);
}

static void sample_follows_the_distribution(trm_stream *stream)
{
    enum { VOCAB = 9, MOST = 20000 };
    const int32_t draws = test_is_brief() ? 500 : MOST;
    static const float row[VOCAB] = {0.0f, 1.0f, -1.0f, 2.0f, 0.5f, -3.0f, 1.0f, -INFINITY, 0.25f};
    float *logits = malloc(sizeof(row) * (size_t)draws);
    trm_sample_row *parameters = malloc(sizeof(*parameters) * (size_t)draws);
    int32_t *tokens = malloc(sizeof(*tokens) * (size_t)draws);
    for (int32_t i = 0; i < draws; i++) {
        memcpy(logits + i * VOCAB, row, sizeof(row));
        parameters[i] = neutral();
        parameters[i].temperature = 0.8f;
        parameters[i].seed = 42;
        parameters[i].counter = (uint64_t)i;
    }
    sample(stream, draws, VOCAB, logits, parameters, false, tokens);
    int32_t counts[VOCAB] = {0};
    for (int32_t i = 0; i < draws; i++) {
        assert_in_range(tokens[i], 0, VOCAB - 1);
        counts[tokens[i]]++;
    }
    double sum = 0.0;
    for (int32_t i = 0; i < VOCAB; i++) {
        sum += exp((double)row[i] / 0.8);
    }
    for (int32_t i = 0; i < VOCAB; i++) {
        const double p = exp((double)row[i] / 0.8) / sum;
        const double sigma = sqrt(p * (1.0 - p) * draws);
        assert_true(fabs(counts[i] - p * draws) <= 5.0 * sigma);
    }
    free(logits);
    free(parameters);
    free(tokens);
}

/* ---- logits before and after ------------------------------------------------------------------- */

enum { LOGITS_ROWS = 10, LOGITS_SLOTS = 5, LOGITS_MASKS = 2, LOGITS_BIAS = 50, LOGITS_DRAFTED = 7, LOGITS_DRAFTS = 2 };

static float adjusted_naively(float x, const trm_logits_row *p, uint16_t count, bool allowed, float bias)
{
    if (!allowed || bias <= -100.0f) {
        x = -INFINITY;
    } else {
        x += bias;
    }
    if (count != 0) {
        x = x > 0.0f ? x / p->repetition_penalty : x * p->repetition_penalty;
    }
    const int32_t times = count & 0x7fff;
    return times > 0 ? x - (p->presence_penalty + (float)times * p->frequency_penalty) : x;
}

/* Rows with all sorts of parameters. Those from LOGITS_DRAFTED on are of one sequence; else the same history in two
 * rows is not for a report. */
static void make_logits_rows(uint64_t *random, int64_t vocab, trm_logits_row *rows, float *logits, uint16_t *counts,
                             uint32_t *masks, trm_logits_bias *bias)
{
    const int64_t words = (vocab + 31) / 32;
    for (int64_t i = 0; i < LOGITS_SLOTS * vocab; i++) {
        counts[i] = (uint16_t)(test_random_below(random, 3) != 0 ? 0
                               : test_random_below(random, 2)    ? 0x8000 + test_random_below(random, 3)
                                                                 : 1 + test_random_below(random, 5));
    }
    for (int64_t i = 0; i < LOGITS_MASKS * words; i++) {
        masks[i] = (uint32_t)test_random(random);
    }
    for (int32_t i = 0; i < LOGITS_BIAS; i++) { /* no token twice within 5 */
        const int64_t at = (i % 5 * 7 + i / 5) % vocab;
        bias[i] = (trm_logits_bias){(int32_t)at, i % 9 == 4 ? -INFINITY : 5.0f * test_random_float(random)};
    }
    for (int32_t r = 0; r < LOGITS_ROWS; r++) {
        rows[r] = (trm_logits_row){.repetition_penalty = r % 2 == 0 ? 1.3f : 1.0f,
                                   .presence_penalty = r % 3 == 0 ? 0.7f : 0.0f,
                                   .frequency_penalty = r > 2 ? -0.4f : 0.25f,
                                   .history = r < 4                ? 3 - r
                                              : r < LOGITS_DRAFTED ? -1
                                                                   : LOGITS_SLOTS - 1,
                                   .n_drafts = r < LOGITS_DRAFTED ? 0 : r - LOGITS_DRAFTED,
                                   .n_behind = r == LOGITS_DRAFTED ? LOGITS_DRAFTS : 0,
                                   .mask = r % 3 == 1 ? r / 4 : -1,
                                   .first_bias = 5 * r,
                                   .n_bias = vocab < 40   ? 0
                                             : r % 4 == 3 ? 0
                                                          : 5,
                                   .n_top = r == 2   ? -1
                                            : r == 3 ? 0
                                            : r == 4 ? 20
                                                     : 3,
                                   .target = r == 5 ? 0 : -1};
        for (int64_t i = 0; i < vocab; i++) {
            logits[r * vocab + i] =
                r % 2 == 0 ? floorf(6.0f * test_random_float(random)) : 9.0f * test_random_float(random);
        }
    }
    if (vocab > 30) {
        logits[7] = NAN;
        logits[vocab + 30] = -INFINITY;
    }
}

static void check_report(int32_t r, int64_t vocab, const float *logits, const trm_logits_row *p, int32_t token,
                         float logprob, const int32_t *top, const float *top_logprobs)
{
    candidate *sorted = malloc((size_t)vocab * sizeof(candidate));
    double mass = 0.0;
    for (int64_t i = 0; i < vocab; i++) {
        sorted[i] = (candidate){isnan(logits[i]) ? -INFINITY : logits[i], (int32_t)i};
    }
    const float target = sorted[p->target >= 0 ? p->target : token].logit;
    qsort(sorted, (size_t)vocab, sizeof(candidate), by_logit);
    for (int64_t i = 0; i < vocab; i++) {
        mass += exp((double)sorted[i].logit - (double)sorted[0].logit);
    }
    const double all = (double)sorted[0].logit + log(mass);
    if (!(fabs((double)logprob - ((double)target - all)) < 1e-5) && !isinf(target)) {
        fail_msg("row %d of %d: logprob %g, expected %g", r, (int)vocab, (double)logprob, (double)target - all);
    }
    for (int32_t i = 0; i < p->n_top; i++) {
        assert_int_equal(top[i], i < vocab ? sorted[i].id : -1);
        assert_true(i >= vocab || isinf(sorted[i].logit) ||
                    fabs((double)top_logprobs[i] - ((double)sorted[i].logit - all)) < 1e-5);
    }
    free(sorted);
}

static void logits_are_adjusted_and_reported(trm_stream *stream)
{
    static const int64_t vocabs[] = {3, 64, 1001, 40000, 3, 64, 3};
    trm_device *device = trm_stream_device(stream);
    uint64_t random = test_seed();
    for (size_t v = 0; v < sizeof(vocabs) / sizeof(vocabs[0]); v++) {
        const int64_t vocab = vocabs[v], words = (vocab + 31) / 32;
        const size_t logits_size = (size_t)(LOGITS_ROWS * vocab) * 4, counts_size = (size_t)(LOGITS_SLOTS * vocab) * 2;
        trm_logits_row rows[LOGITS_ROWS];
        trm_logits_bias bias[LOGITS_BIAS];
        float *logits = malloc(logits_size), *adjusted = malloc(logits_size), logprobs[LOGITS_ROWS];
        uint16_t *counts = malloc(counts_size), *counted = malloc(counts_size), *before = malloc(counts_size);
        uint32_t *masks = malloc((size_t)(LOGITS_MASKS * words) * 4);
        int32_t tokens[LOGITS_ROWS], top[LOGITS_ROWS][TRM_LOGITS_MAX_TOP];
        float top_logprobs[LOGITS_ROWS][TRM_LOGITS_MAX_TOP];
        make_logits_rows(&random, vocab, rows, logits, counts, masks, bias);
        counts[0] = 0x7fff; /* no more can be counted */
        for (int32_t r = 0; r < LOGITS_ROWS; r++) {
            tokens[r] = rows[r].history == 0 ? 0 : (int32_t)test_random_below(&random, vocab);
        }
        int32_t drafts[LOGITS_DRAFTS] = {tokens[LOGITS_DRAFTED], v % 2 == 0 ? tokens[LOGITS_DRAFTED] : 1};
        counts[(LOGITS_SLOTS - 1) * vocab + drafts[0]] = v == 1 ? 0x8000 : v == 2 ? 0xffff : 1;
        trm_logits_adjust_args adjust = {.logits = to_device(stream, logits, logits_size),
                                         .adjusted = to_device(stream, NULL, logits_size),
                                         .rows = LOGITS_ROWS,
                                         .vocab = vocab,
                                         .parameters = to_device(stream, rows, sizeof(rows)),
                                         .counts = to_device(stream, counts, counts_size),
                                         .bias = to_device(stream, bias, sizeof(bias)),
                                         .masks = to_device(stream, masks, (size_t)(LOGITS_MASKS * words) * 4),
                                         .drafts = to_device(stream, drafts, sizeof(drafts))};
        trm_logits_report_args report = {.logits = adjust.logits,
                                         .rows = LOGITS_ROWS,
                                         .vocab = vocab,
                                         .parameters = adjust.parameters,
                                         .tokens = to_device(stream, tokens, sizeof(tokens)),
                                         .drafts = adjust.drafts,
                                         .counts = (uint16_t *)(uintptr_t)adjust.counts,
                                         .logprobs = to_device(stream, NULL, sizeof(logprobs)),
                                         .top_tokens = to_device(stream, NULL, sizeof(top)),
                                         .top_logprobs = to_device(stream, NULL, sizeof(top_logprobs))};
        assert_ok(trm_logits_adjust(stream, &adjust));
        assert_ok(trm_logits_report(stream, &report));
        assert_ok(trm_stream_download(stream, adjusted, adjust.adjusted, logits_size));
        assert_ok(trm_stream_download(stream, counted, report.counts, counts_size));
        assert_ok(trm_stream_download(stream, logprobs, report.logprobs, sizeof(logprobs)));
        assert_ok(trm_stream_download(stream, top, report.top_tokens, sizeof(top)));
        assert_ok(trm_stream_download(stream, top_logprobs, report.top_logprobs, sizeof(top_logprobs)));
        assert_ok(trm_stream_synchronize(stream));
        memcpy(before, counts, counts_size);
        bool as_drafted = true;
        for (int32_t r = 0; r < LOGITS_ROWS; r++) {
            const trm_logits_row *p = &rows[r];
            for (int64_t i = 0; i < vocab; i++) {
                float favour = 0.0f;
                for (int32_t b = 0; b < p->n_bias; b++) {
                    favour += bias[p->first_bias + b].token == i ? bias[p->first_bias + b].bias : 0.0f;
                }
                const bool allowed = p->mask < 0 || (masks[p->mask * words + i / 32] >> (i % 32) & 1u) != 0;
                uint16_t count = p->history < 0 ? 0 : before[p->history * vocab + i];
                for (int32_t d = 0; d < p->n_drafts; d++) {
                    count = (uint16_t)(count + (drafts[d] == i && (count & 0x7fff) < 0x7fff));
                }
                const float expected = adjusted_naively(logits[r * vocab + i], p, count, allowed, favour);
                const float found = adjusted[r * vocab + i];
                if (found != expected && !(isnan(found) && isnan(expected))) {
                    fail_msg("row %d, token %d of %d: adjusted to %g, expected %g", r, (int)i, (int)vocab,
                             (double)found, (double)expected);
                }
            }
            if (p->n_top >= 0) {
                check_report(r, vocab, logits + r * vocab, p, tokens[r], logprobs[r], top[r], top_logprobs[r]);
            }
            as_drafted = as_drafted && (p->n_drafts == 0 || tokens[r - 1] == drafts[p->n_drafts - 1]);
            if (p->history >= 0 && as_drafted) {
                uint16_t *count = &counts[p->history * vocab + tokens[r]];
                *count = (uint16_t)(*count + ((*count & 0x7fff) < 0x7fff));
            }
        }
        assert_memory_equal(counted, counts, counts_size);
        void *const device_memory[] = {adjust.adjusted,
                                       report.logprobs,
                                       report.top_tokens,
                                       report.top_logprobs,
                                       report.counts,
                                       (void *)(uintptr_t)adjust.logits,
                                       (void *)(uintptr_t)adjust.parameters,
                                       (void *)(uintptr_t)adjust.bias,
                                       (void *)(uintptr_t)adjust.masks,
                                       (void *)(uintptr_t)adjust.drafts,
                                       (void *)(uintptr_t)report.tokens};
        for (size_t i = 0; i < sizeof(device_memory) / sizeof(device_memory[0]); i++) {
            trm_device_free(device, device_memory[i]);
        }
        free(logits);
        free(adjusted);
        free(counts);
        free(counted);
        free(before);
        free(masks);
    }
}

static void sample_refuses_bad_vocabularies(trm_stream *stream)
{
    trm_sample_args args = {.rows = 1, .vocab = 0};
    assert_fails(trm_sample(stream, &args), TRM_ERROR_INVALID_ARGUMENT, "sampling from 0 tokens");
    args = (trm_sample_args){.rows = 0, .vocab = 5};
    assert_ok(trm_sample(stream, &args));
}

static void random_fill_is_by_index(trm_stream *stream)
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

/* From a step to the next: sequences without a length, which pad a step, stay as they are. */
static void sample_advances(trm_stream *stream)
{
    enum { ROWS = 300 };
    trm_device *device = trm_stream_device(stream);
    int32_t chosen[ROWS], given[4][ROWS], got[4][ROWS];
    trm_sample_row rows[ROWS], rows_got[ROWS];
    for (int32_t with = 0; with < 2; with++) { /* parameters and rotary lengths, or neither */
        void *memory[4], *parameters;
        for (int32_t i = 0; i < ROWS; i++) {
            chosen[i] = 1000 + i;
            given[0][i] = i;                          /* token ids */
            given[1][i] = i * 5;                      /* positions */
            given[2][i] = i % 3 == 2 ? 0 : i * 5 + 1; /* lengths */
            given[3][i] = i * 5 + 1;
            rows[i] = neutral();
            rows[i].counter = UINT64_C(0xffffffff) + (uint64_t)i;
        }
        for (int32_t k = 0; k < 4; k++) {
            memory[k] = to_device(stream, given[k], sizeof(given[k]));
        }
        parameters = to_device(stream, rows, sizeof(rows));
        void *chosen_there = to_device(stream, chosen, sizeof(chosen));
        const trm_sample_advance_args args = {.rows = ROWS,
                                              .chosen = chosen_there,
                                              .token_ids = memory[0],
                                              .positions = memory[1],
                                              .lengths = memory[2],
                                              .rope_lengths = with ? memory[3] : NULL,
                                              .parameters = with ? parameters : NULL};
        assert_ok(trm_sample_advance(stream, &args));
        for (int32_t k = 0; k < 4; k++) {
            assert_ok(trm_stream_download(stream, got[k], memory[k], sizeof(got[k])));
        }
        assert_ok(trm_stream_download(stream, rows_got, parameters, sizeof(rows_got)));
        assert_ok(trm_stream_synchronize(stream));
        for (int32_t i = 0; i < ROWS; i++) {
            const int32_t more = i == 0 || i % 3 != 2;
            assert_int_equal(got[0][i], more ? 1000 + i : i);
            assert_int_equal(got[1][i], i * 5 + more);
            assert_int_equal(got[2][i], i % 3 == 2 ? 0 : i * 5 + 2);
            assert_int_equal(got[3][i], i * 5 + 1 + (with ? more : 0));
            assert_int_equal(rows_got[i].counter, rows[i].counter + (uint64_t)(with ? more : 0));
            assert_true(rows_got[i].temperature == 1.0f && rows_got[i].top_p == 1.0f);
        }
        for (int32_t k = 0; k < 4; k++) {
            trm_device_free(device, memory[k]);
        }
        trm_device_free(device, parameters);
        trm_device_free(device, chosen_there);
    }
}

#define TEST(name, call)                                                                                               \
    static void name(void **state)                                                                                     \
    {                                                                                                                  \
        (void)state;                                                                                                   \
        call(test_stream);                                                                                             \
    }

TEST(greedy, sample_greedy)
TEST(equals_naive, sample_equals_naive)
TEST(flat_rows, sample_of_flat_rows)
TEST(follows_the_distribution, sample_follows_the_distribution)
TEST(logits, logits_are_adjusted_and_reported)
TEST(advances, sample_advances)
TEST(refuses_bad_vocabularies, sample_refuses_bad_vocabularies)
TEST(random_fill, random_fill_is_by_index)

int sample_tests_run(int (*open)(void **state))
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(greedy),      cmocka_unit_test(equals_naive),
        cmocka_unit_test(flat_rows),   cmocka_unit_test(follows_the_distribution),
        cmocka_unit_test(logits),      cmocka_unit_test(refuses_bad_vocabularies),
        cmocka_unit_test(random_fill), cmocka_unit_test(advances),
    };
    return cmocka_run_group_tests(tests, open, test_close_device);
}
