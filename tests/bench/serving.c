/*
 * Throughput and latency of the scheduler, without HTTP: requests of random tokens at fixed concurrency, one taking the
 * place of the last as it ends. Of the first rank's process; the others follow.
 *
 * BENCH_SPECULATE is as --speculate; BENCH_CYCLE=N lets the output go round in a circle of N tokens, so that drafts are
 * right. BENCH_WEIGHT_BUDGET is as --weight-budget.
 *
 * usage: bench_serving MODEL|preset:NAME[:LAYERS] PROMPT OUTPUT CONCURRENCY... (host with TRM_TEST_BACKEND=host)
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/program.h"

#define CHECK(call)                                                                                                    \
    do {                                                                                                               \
        if ((call) != TRM_OK) {                                                                                        \
            fprintf(stderr, "%s: %s\n", #call, trm_last_error());                                                      \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

typedef struct samples {
    double *values;
    size_t n, capacity;
} samples;

typedef struct bench {
    trm_scheduler *s;
    int32_t *prompt; /* [n_prompt + requests] */
    int64_t n_prompt, n_output, vocab;
    uint64_t next_id, sent, total;
    double *submitted, *last; /* [total] */
    samples first, between;
} bench;

static void add(samples *s, double value)
{
    if (s->n == s->capacity) {
        s->capacity = s->capacity == 0 ? 4096 : s->capacity * 2;
        s->values = realloc(s->values, s->capacity * sizeof(*s->values));
        if (s->values == NULL) {
            exit(1);
        }
    }
    s->values[s->n++] = value;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double percentile(samples *s, double p)
{
    qsort(s->values, s->n, sizeof(*s->values), by_value);
    return s->n == 0 ? 0.0 : s->values[(size_t)(p * (double)(s->n - 1))];
}

/* Only one token may come, and in N steps the same. */
static trm_status go_round(void *user, uint64_t id, const int32_t *tokens, int64_t n_tokens, uint32_t *mask)
{
    const bench *b = user;
    (void)tokens;
    int64_t token = (int64_t)(id * 31 % 1000) + n_tokens % atoll(getenv("BENCH_CYCLE"));
    memset(mask, 0, (size_t)((b->vocab + 31) / 32) * sizeof(*mask));
    mask[token / 32] = 1u << (token % 32);
    return TRM_OK;
}

static void submit(bench *b)
{
    trm_serving_request r = TRM_SERVING_REQUEST_INIT;
    for (int64_t i = 0; i < b->n_prompt; i++) { /* no two alike */
        b->prompt[i] = (int32_t)((b->next_id * 7919 + (uint64_t)i * 104729 + (uint64_t)(i * i)) % (uint64_t)b->vocab);
    }
    r.id = b->next_id++;
    r.prompt = b->prompt;
    r.n_prompt = b->n_prompt;
    r.max_tokens = b->n_output;
    r.ignore_eos = true;
    r.sampling.base.temperature = getenv("BENCH_TEMPERATURE") != NULL ? (float)atof(getenv("BENCH_TEMPERATURE")) : 0.0f;
    r.sampling.base.seed = r.id;
    if (getenv("BENCH_PENALTY") != NULL) {
        r.sampling.frequency_penalty = (float)atof(getenv("BENCH_PENALTY"));
    }
    r.logprobs = getenv("BENCH_LOGPROBS") != NULL ? atoi(getenv("BENCH_LOGPROBS")) : -1;
    r.mask = getenv("BENCH_CYCLE") != NULL ? go_round : NULL;
    r.mask_user = b;
    b->submitted[b->sent++] = bench_now();
    CHECK(trm_scheduler_submit(b->s, &r));
}

static void take(bench *b, uint64_t first_id, const trm_serving_event *events, int32_t n)
{
    double at = bench_now();
    for (int32_t i = 0; i < n; i++) {
        uint64_t k = events[i].id - first_id;
        if (events[i].kind == TRM_EVENT_TOKEN) {
            if (events[i].index == 0) {
                add(&b->first, at - b->submitted[k]);
            } else {
                add(&b->between, at - b->last[k]);
            }
            b->last[k] = at;
        } else if (events[i].kind == TRM_EVENT_FINISHED && b->sent < b->total) {
            submit(b);
        }
    }
}

static void run(bench *b, int32_t concurrency)
{
    uint64_t first_id = b->next_id;
    b->sent = 0;
    b->total = (uint64_t)concurrency * (concurrency >= 32 ? 3 : 4);
    b->submitted = calloc(b->total, sizeof(double));
    b->last = calloc(b->total, sizeof(double));
    b->first = b->between = (samples){0};
    trm_scheduler_stats before, after;
    trm_scheduler_get_stats(b->s, &before);
    double began = bench_now();
    for (int32_t i = 0; i < concurrency; i++) {
        submit(b);
    }
    while (trm_scheduler_has_work(b->s)) {
        const trm_serving_event *events;
        int32_t n;
        CHECK(trm_scheduler_step(b->s, &events, &n));
        take(b, first_id, events, n);
    }
    double seconds = bench_now() - began;
    trm_scheduler_get_stats(b->s, &after);
    double steps = (double)(after.steps - before.steps);
    printf(
        "concurrency %4d: %9.1f output tok/s, %9.1f tok/s in all, ttft p50 %7.1f p99 %7.1f ms, itl p50 %6.2f p99 %6.2f "
        "ms, %.0f steps of %.3f ms, %.1f%% of the time waiting for the device, %.1f%% in steps, %lld preemptions, %lld "
        "of %lld drafted right\n",
        concurrency, (double)(after.generated_tokens - before.generated_tokens) / seconds,
        (double)(after.generated_tokens - before.generated_tokens + after.prompt_tokens - before.prompt_tokens) /
            seconds,
        1e3 * percentile(&b->first, 0.5), 1e3 * percentile(&b->first, 0.99), 1e3 * percentile(&b->between, 0.5),
        1e3 * percentile(&b->between, 0.99), steps, 1e3 * (after.step_seconds - before.step_seconds) / steps,
        100.0 * (after.wait_seconds - before.wait_seconds) / seconds,
        100.0 * (after.step_seconds - before.step_seconds) / seconds,
        (long long)(after.preemptions - before.preemptions),
        (long long)(after.accepted_tokens - before.accepted_tokens),
        (long long)(after.drafted_tokens - before.drafted_tokens));
    fflush(stdout);
    free(b->submitted);
    free(b->last);
    free(b->first.values);
    free(b->between.values);
}

static trm_model *open_model(const char *name)
{
    trm_model *model;
    if (strncmp(name, "preset:", 7) != 0) {
        CHECK(trm_model_open(name, &model));
        return model;
    }
    char preset[128] = "";
    int layers = 0;
    sscanf(name + 7, "%127[^:]:%d", preset, &layers);
    CHECK(trm_model_open_preset(preset, layers, 1, &model));
    return model;
}

int main(int argc, char **argv)
{
    if (argc < 5) {
        fprintf(stderr, "usage: %s MODEL|preset:NAME[:LAYERS] PROMPT OUTPUT CONCURRENCY...\n", argv[0]);
        return 2;
    }
    const char *backend = getenv("TRM_TEST_BACKEND");
    trm_world_options world_options = TRM_WORLD_OPTIONS_INIT;
    world_options.backend = backend != NULL && strcmp(backend, "host") == 0 ? TRM_BACKEND_HOST : TRM_BACKEND_CUDA;
    trm_world *world;
    CHECK(trm_world_open(&world_options, &world));
    trm_model *model = open_model(argv[1]);
    trm_model_info info;
    trm_model_get_info(model, &info);
    bench b = {.n_prompt = atoll(argv[2]), .n_output = atoll(argv[3]), .vocab = info.vocab, .next_id = 1};
    int32_t most = 1;
    for (int i = 4; i < argc; i++) {
        most = atoi(argv[i]) > most ? atoi(argv[i]) : most;
    }
    trm_generator_options options = TRM_GENERATOR_OPTIONS_INIT;
    options.max_sequences = most;
    options.max_context = b.n_prompt + b.n_output;
    const char *speculate = getenv("BENCH_SPECULATE"), *budget = getenv("BENCH_WEIGHT_BUDGET");
    CHECK(trm_speculation_parse(speculate == NULL ? "off" : speculate, &options.speculation));
    CHECK(trm_weight_budget_parse(budget == NULL ? "off" : budget, &options.weight_budget));
    CHECK(trm_mesh_parse(NULL, trm_world_size(world), &options.mesh));
    trm_generator *generator;
    double began = bench_now();
    CHECK(trm_generator_create(model, world, &options, &generator));
    double ready = bench_now() - began;
    trm_scheduler_options scheduler_options = TRM_SCHEDULER_OPTIONS_INIT;
    scheduler_options.prefix_cache = getenv("BENCH_NO_PREFIX_CACHE") == NULL;
    scheduler_options.step_tokens = getenv("BENCH_STEP_TOKENS") != NULL ? atoi(getenv("BENCH_STEP_TOKENS")) : 0;
    CHECK(trm_scheduler_create(generator, &scheduler_options, &b.s));
    if (trm_world_rank(world) == 0) {
        b.prompt = calloc((size_t)b.n_prompt, sizeof(*b.prompt));
        if (b.prompt == NULL) {
            return 1;
        }
        printf("%s, %d ranks, %lld + %lld tokens, ready after %.1f s\n", argv[1], trm_world_size(world),
               (long long)b.n_prompt, (long long)b.n_output, ready);
        for (int i = 4; i < argc; i++) {
            run(&b, atoi(argv[i]));
        }
        free(b.prompt);
        CHECK(trm_scheduler_end(b.s));
    } else {
        CHECK(trm_scheduler_follow(b.s));
    }
    trm_scheduler_destroy(b.s);
    trm_generator_destroy(generator);
    trm_model_close(model);
    trm_world_close(world);
    return 0;
}
