/*
 * Throughput and latency of the scheduler, without HTTP: requests of random tokens at fixed concurrency, one taking the
 * place of the last as it ends. Of the first rank's process; the others follow.
 *
 * A case is PROMPT/OUTPUT@CONCURRENCY, then :N for steps of at most N tokens, +N for N tokens of prompts beside
 * sequences that decode, xN for N requests in all. --steps lists
 * what steps of each size took, --profile what their kernels took (layer by layer, so it measures nothing else).
 *
 * BENCH_SPECULATE is as --speculate; BENCH_CYCLE=N lets the output go round in a circle of N tokens, so that drafts are
 * right. BENCH_WEIGHT_BUDGET is as --weight-budget.
 *
 * usage: bench_serving MODEL|preset:NAME[:LAYERS] [--steps] [--profile] [--json FILE] CASE... (host with
 * TRM_TEST_BACKEND=host)
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/program.h"

#define CHECK(call) bench_check(call, #call)
/* Steps are listed by their tokens, STEP_GRAIN tokens to a line. */
#define STEP_GRAIN     64
#define STEP_KINDS     512
#define MOST_KERNELS   64
#define DEFAULT_ROUNDS 3

typedef struct samples {
    double *values;
    size_t n, capacity;
} samples;

typedef struct load {
    int64_t n_prompt, n_output, requests;
    int32_t concurrency, step_tokens, chunk;
} load;

typedef struct step_kind {
    int64_t steps, tokens, sequences, captured;
    double seconds, device;
} step_kind;

typedef struct kernel_time {
    char name[96];
    double milliseconds;
} kernel_time;

/* Steps that were profiled: one of many where there are several ranks or weights stream. */
typedef struct looked_at {
    int64_t steps;
    double device, layers, collectives; /* seconds */
} looked_at;

typedef struct bench {
    trm_scheduler *s;
    trm_generator *generator;
    int32_t *prompt; /* [n_prompt] */
    int64_t vocab;
    load load;
    uint64_t next_id, sent, total;
    double *submitted, *last; /* [total] */
    samples first, between;
    step_kind decode, kinds[STEP_KINDS];
    kernel_time kernels[MOST_KERNELS];
    int32_t n_kernels;
    bool list_steps, profile;
    looked_at looked_at;
    FILE *json;
    int32_t written;
} bench;

static void *allocate(size_t n, size_t size)
{
    void *memory = calloc(n, size);
    if (memory == NULL) {
        fprintf(stderr, "out of memory\n");
        exit(1);
    }
    return memory;
}

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

/* In ms; the samples are sorted. */
static double percentile(const samples *s, double p)
{
    return s->n == 0 ? 0.0 : 1e3 * s->values[(size_t)(p * (double)(s->n - 1))];
}

static double mean(const samples *s)
{
    double sum = 0.0;
    for (size_t i = 0; i < s->n; i++) {
        sum += s->values[i];
    }
    return s->n == 0 ? 0.0 : 1e3 * sum / (double)s->n;
}

/* ---- requests ---------------------------------------------------------------------------------- */

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
    for (int64_t i = 0; i < b->load.n_prompt; i++) { /* no two alike */
        b->prompt[i] = (int32_t)((b->next_id * 7919 + (uint64_t)i * 104729 + (uint64_t)(i * i)) % (uint64_t)b->vocab);
    }
    r.id = b->next_id++;
    r.prompt = b->prompt;
    r.n_prompt = b->load.n_prompt;
    r.max_tokens = b->load.n_output;
    r.ignore_eos = true;
    r.sampling.base.temperature = getenv("BENCH_TEMPERATURE") != NULL ? (float)atof(getenv("BENCH_TEMPERATURE")) : 0.0f;
    r.sampling.base.seed = r.id;
    if (getenv("BENCH_PENALTY") != NULL) {
        r.sampling.frequency_penalty = (float)atof(getenv("BENCH_PENALTY"));
    }
    r.logprobs = getenv("BENCH_LOGPROBS") != NULL ? atoi(getenv("BENCH_LOGPROBS")) : 0;
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

/* ---- steps ------------------------------------------------------------------------------------- */

static void note_step(bench *b, const trm_scheduler_stats *before, const trm_scheduler_stats *after)
{
    if (after->steps == before->steps) {
        return;
    }
    int32_t at = (after->last_step_tokens + STEP_GRAIN - 1) / STEP_GRAIN;
    step_kind *kind =
        after->decode_steps > before->decode_steps ? &b->decode : &b->kinds[at < STEP_KINDS ? at : STEP_KINDS - 1];
    kind->steps++;
    kind->tokens += after->last_step_tokens;
    kind->sequences += after->last_step_sequences;
    kind->captured += after->last_step_captured;
    kind->seconds += after->last_step_seconds;
    kind->device += after->last_device_seconds;
}

static void print_kind(const char *name, const step_kind *kind)
{
    double n = (double)kind->steps;
    if (kind->steps > 0) {
        printf("  %s: %5.0f steps, %7.1f tokens of %6.1f sequences, %8.3f ms, on the device %8.3f ms, %3.0f %% "
               "captured\n",
               name, n, (double)kind->tokens / n, (double)kind->sequences / n, 1e3 * kind->seconds / n,
               1e3 * kind->device / n, 100.0 * (double)kind->captured / n);
    }
}

static void print_steps(const bench *b)
{
    print_kind("decoding      ", &b->decode);
    for (int32_t i = 0; i < STEP_KINDS; i++) {
        char name[64];
        snprintf(name, sizeof(name), "to %5d tokens", i * STEP_GRAIN);
        print_kind(name, &b->kinds[i]);
    }
}

static void add_kernel(void *user, const char *layer, trm_layer_kind kind, const char *kernel, double milliseconds,
                       int64_t runs)
{
    bench *b = user;
    char name[96];
    (void)layer;
    (void)runs;
    snprintf(name, sizeof(name), "%s %s", trm_layer_kind_name(kind), kernel);
    for (int32_t i = 0; i < MOST_KERNELS; i++) {
        if (i == b->n_kernels) {
            memcpy(b->kernels[b->n_kernels++].name, name, sizeof(name));
        }
        if (strcmp(b->kernels[i].name, name) == 0) {
            b->kernels[i].milliseconds += milliseconds;
            return;
        }
    }
}

static void print_profile(bench *b)
{
    b->n_kernels = 0;
    memset(b->kernels, 0, sizeof(b->kernels));
    trm_context_layer_times(trm_generator_context(b->generator), add_kernel, b);
    for (int32_t i = 0; i < b->n_kernels; i++) {
        printf("  %9.3f ms a step  %s\n", b->kernels[i].milliseconds, b->kernels[i].name);
    }
}

/* ---- a case ------------------------------------------------------------------------------------ */

static void write_samples(bench *b, const char *name, const samples *s)
{
    fprintf(b->json, ", \"%s\": {\"mean\": %.3f, \"p50\": %.3f, \"p90\": %.3f, \"p99\": %.3f}", name, mean(s),
            percentile(s, 0.5), percentile(s, 0.9), percentile(s, 0.99));
}

static void write_kinds(bench *b)
{
    const char *comma = "";
    fprintf(b->json, ", \"steps\": [");
    for (int32_t i = -1; i < STEP_KINDS; i++) {
        const step_kind *k = i < 0 ? &b->decode : &b->kinds[i];
        if (k->steps > 0) {
            fprintf(b->json,
                    "%s{\"kind\": \"%s\", \"steps\": %lld, \"tokens\": %lld, \"sequences\": %lld, \"seconds\": %.6f, "
                    "\"device_seconds\": %.6f, \"captured\": %lld}",
                    comma, i < 0 ? "decode" : "mixed", (long long)k->steps, (long long)k->tokens,
                    (long long)k->sequences, k->seconds, k->device, (long long)k->captured);
            comma = ", ";
        }
    }
    fprintf(b->json, "]}");
}

static void report(bench *b, const trm_scheduler_stats *before, const trm_scheduler_stats *after, double seconds)
{
    qsort(b->first.values, b->first.n, sizeof(double), by_value);
    qsort(b->between.values, b->between.n, sizeof(double), by_value);
    const load *l = &b->load;
    double steps = (double)(after->steps - before->steps);
    double output = (double)(after->generated_tokens - before->generated_tokens);
    double prompt = (double)(after->prompt_tokens - before->prompt_tokens);
    double device = after->device_seconds - before->device_seconds, share = 100.0 * device / seconds;
    printf("%lld/%lld, %4d at a time, steps of %d, chunks of %d: %9.1f output tok/s, %9.1f tok/s in all, ttft p50 "
           "%7.1f p99 %7.1f "
           "ms, itl p50 %6.2f p90 %6.2f p99 %6.2f ms, %.0f steps of %.3f ms, device at work %.1f%% of the time, %lld "
           "preemptions, %lld of %lld drafted right\n",
           (long long)l->n_prompt, (long long)l->n_output, l->concurrency, l->step_tokens, l->chunk, output / seconds,
           (output + prompt) / seconds, percentile(&b->first, 0.5), percentile(&b->first, 0.99),
           percentile(&b->between, 0.5), percentile(&b->between, 0.9), percentile(&b->between, 0.99), steps,
           1e3 * (after->step_seconds - before->step_seconds) / steps, share,
           (long long)(after->preemptions - before->preemptions),
           (long long)(after->accepted_tokens - before->accepted_tokens),
           (long long)(after->drafted_tokens - before->drafted_tokens));
    const looked_at *at = &b->looked_at;
    if (at->steps > 0) {
        double each = 1e3 / (double)at->steps;
        printf("  %lld steps were profiled: %.3f ms on the device, %.3f ms in layers, %.3f ms of it in collectives\n",
               (long long)at->steps, each * at->device, each * at->layers, each * at->collectives);
    }
    if (b->list_steps) {
        print_steps(b);
    }
    fflush(stdout);
    if (b->json != NULL) {
        fprintf(
            b->json,
            "%s\n{\"prompt\": %lld, \"output\": %lld, \"concurrency\": %d, \"step_tokens\": %d, \"prefill_chunk\": %d, "
            "\"requests\": "
            "%llu, \"seconds\": %.6f, \"output_rate\": %.2f, \"token_rate\": %.2f, \"device_percent\": %.2f, "
            "\"preemptions\": %lld",
            b->written++ == 0 ? "" : ",", (long long)l->n_prompt, (long long)l->n_output, l->concurrency,
            l->step_tokens, l->chunk, (unsigned long long)b->total, seconds, output / seconds,
            (output + prompt) / seconds, share, (long long)(after->preemptions - before->preemptions));
        write_samples(b, "ttft_ms", &b->first);
        write_samples(b, "itl_ms", &b->between);
        write_kinds(b);
    }
}

static void run(bench *b)
{
    const load *l = &b->load;
    uint64_t first_id = b->next_id;
    b->prompt = allocate((size_t)l->n_prompt, sizeof(*b->prompt));
    b->sent = 0;
    b->total = (uint64_t)(l->requests > 0 ? l->requests : (int64_t)l->concurrency * DEFAULT_ROUNDS);
    b->submitted = allocate(b->total, sizeof(double));
    b->last = allocate(b->total, sizeof(double));
    b->first = b->between = (samples){0};
    b->decode = (step_kind){0};
    memset(b->kinds, 0, sizeof(b->kinds));
    trm_scheduler_stats before, after, step;
    trm_scheduler_get_stats(b->s, &before);
    after = before;
    double began = bench_now();
    for (int32_t i = 0; i < l->concurrency && b->sent < b->total; i++) {
        submit(b);
    }
    while (trm_scheduler_has_work(b->s)) {
        const trm_serving_event *events;
        int32_t n;
        CHECK(trm_scheduler_step(b->s, &events, &n));
        take(b, first_id, events, n);
        trm_scheduler_get_stats(b->s, &step);
        note_step(b, &after, &step);
        after = step;
    }
    report(b, &before, &after, bench_now() - began);
    free(b->prompt);
    free(b->submitted);
    free(b->last);
    free(b->first.values);
    free(b->between.values);
}

static void note_times(void *user, const trm_step_times *times)
{
    bench *b = user;
    if (times->layer_seconds > 0) {
        b->looked_at.steps++;
        b->looked_at.device += times->device_seconds;
        b->looked_at.layers += times->layer_seconds;
        b->looked_at.collectives += times->collective_seconds;
    }
}

/* The case on all ranks, with a scheduler of its own. */
static void run_case(bench *b, bool leads)
{
    trm_scheduler_options options = TRM_SCHEDULER_OPTIONS_INIT;
    options.no_prefix_cache = getenv("BENCH_NO_PREFIX_CACHE") != NULL;
    options.step_tokens = b->load.step_tokens;
    options.prefill_chunk = b->load.chunk;
    options.max_waiting = b->load.concurrency > 1024 ? b->load.concurrency : 1024;
    options.on_step = note_times;
    options.user = b;
    b->looked_at = (looked_at){0};
    CHECK(trm_scheduler_create(b->generator, &options, &b->s));
    if (b->profile) {
        CHECK(trm_context_set_layer_timing(trm_generator_context(b->generator), true));
    }
    if (leads) {
        run(b);
        if (b->profile) {
            print_profile(b);
        }
        CHECK(trm_scheduler_end(b->s));
    } else {
        CHECK(trm_scheduler_follow(b->s));
    }
    trm_scheduler_destroy(b->s);
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

/* "PROMPT/OUTPUT@CONCURRENCY[:STEP_TOKENS][+CHUNK][xREQUESTS]" */
static bool read_case(const char *text, load *l)
{
    long long prompt, output, requests;
    int used = 0, concurrency, step_tokens, chunk;
    *l = (load){0};
    if (sscanf(text, "%lld/%lld@%d%n", &prompt, &output, &concurrency, &used) != 3 || prompt < 1 || output < 1 ||
        concurrency < 1) {
        return false;
    }
    *l = (load){.n_prompt = prompt, .n_output = output, .concurrency = concurrency};
    text += used;
    if (sscanf(text, ":%d%n", &step_tokens, &used) == 1) {
        l->step_tokens = step_tokens;
        text += used;
    }
    if (sscanf(text, "+%d%n", &chunk, &used) == 1) {
        l->chunk = chunk;
        text += used;
    }
    if (sscanf(text, "x%lld%n", &requests, &used) == 1) {
        l->requests = requests;
        text += used;
    }
    return *text == '\0';
}

static int usage(const char *program)
{
    fprintf(stderr,
            "usage: %s MODEL|preset:NAME[:LAYERS] [--steps] [--profile] [--json FILE] "
            "PROMPT/OUTPUT@CONCURRENCY[:STEP_TOKENS][+CHUNK][xREQUESTS]...\n",
            program);
    return 2;
}

static void create_generator(bench *b, trm_model *model, trm_world *world, const load *loads, int32_t n)
{
    trm_generator_options options = TRM_GENERATOR_OPTIONS_INIT;
    int64_t cache = 0;
    for (int32_t i = 0; i < n; i++) {
        int64_t context = loads[i].n_prompt + loads[i].n_output, all = (context + 32) * loads[i].concurrency;
        options.max_sequences =
            loads[i].concurrency > options.max_sequences ? loads[i].concurrency : options.max_sequences;
        options.max_context = context > options.max_context ? context : options.max_context;
        cache = all > cache ? all : cache;
    }
    options.cache_tokens = cache;
    const char *speculate = getenv("BENCH_SPECULATE"), *budget = getenv("BENCH_WEIGHT_BUDGET");
    CHECK(trm_speculation_parse(speculate == NULL ? "off" : speculate, &options.speculation));
    CHECK(trm_weight_budget_parse(budget == NULL ? "off" : budget, &options.weight_budget));
    CHECK(trm_mesh_parse(NULL, trm_world_size(world), &options.mesh));
    CHECK(trm_generator_create(model, world, &options, &b->generator));
}

int main(int argc, char **argv)
{
    bench b = {.next_id = 1};
    load *loads = allocate((size_t)argc, sizeof(*loads));
    const char *json = NULL;
    int32_t n = 0;
    for (int i = 2; i < argc; i++) {
        if (strcmp(argv[i], "--steps") == 0) {
            b.list_steps = true;
        } else if (strcmp(argv[i], "--profile") == 0) {
            b.profile = true;
        } else if (strcmp(argv[i], "--json") == 0 && i + 1 < argc) {
            json = argv[++i];
        } else if (!read_case(argv[i], &loads[n++])) {
            return usage(argv[0]);
        }
    }
    if (n == 0) {
        return usage(argv[0]);
    }
    const char *backend = getenv("TRM_TEST_BACKEND");
    trm_world_options world_options = TRM_WORLD_OPTIONS_INIT;
    world_options.backend = backend != NULL && strcmp(backend, "host") == 0 ? TRM_BACKEND_HOST : TRM_BACKEND_CUDA;
    trm_world *world;
    CHECK(trm_world_open(&world_options, &world));
    bool leads = trm_world_rank(world) == 0;
    trm_model *model = open_model(argv[1]);
    trm_model_info info;
    trm_model_get_info(model, &info);
    b.vocab = info.vocab;
    double began = bench_now();
    create_generator(&b, model, world, loads, n);
    if (leads) {
        printf("%s, %d ranks, ready after %.1f s\n", argv[1], trm_world_size(world), bench_now() - began);
        if (json != NULL) {
            b.json = fopen(json, "w");
            bench_check(b.json != NULL ? TRM_OK : TRM_ERROR_IO, json);
            fprintf(b.json, "{\"model\": \"%s\", \"ranks\": %d, \"cases\": [", argv[1], trm_world_size(world));
        }
    }
    for (int32_t i = 0; i < n; i++) {
        b.load = loads[i];
        run_case(&b, leads);
    }
    if (b.json != NULL) {
        fprintf(b.json, "\n]}\n");
        fclose(b.json);
    }
    free(loads);
    trm_generator_destroy(b.generator);
    trm_model_close(model);
    trm_world_close(world);
    return 0;
}
