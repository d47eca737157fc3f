/* `trireme bench`: tokens per second, latencies and layer times of a model, or of a named shape with random weights. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/unit.h"
#include "launcher/cli/commands.h"
#include "launcher/cli/job/expert_load.h"
#include "launcher/cli/job/job.h"
#include "launcher/cli/job/report.h"
#include "launcher/cli/job/stalls.h"
#include "launcher/cli/onnx/job.h"

typedef struct bench_run {
    trm_generate_stats stats;
    double seconds;
} bench_run;

typedef struct profile_row {
    char layer[96]; /* layer name with digits between dots replaced by "*", so that repeated blocks add up */
    char kernel[48];
    trm_layer_kind kind;
    double milliseconds;
    int32_t layers;
    int32_t order; /* order of execution: index of the first of the layers */
} profile_row;

#define MAX_PROFILE_ROWS 256
/* Decode steps averaged by a profile, or, with streamed weights and no profile, by the list of waits for weights. */
#define PROFILE_STEPS 16
#define STALL_STEPS   4

typedef struct bench_command {
    job job;
    const settings *all;
    int64_t batch, prompt_tokens, tokens;
    trm_backend backend;
    char mesh[64];
    int32_t *prompts; /* [batch, prompt_tokens] */
    trm_request *requests;
    bench_run *runs; /* [repeat] */
    int32_t n_runs;
    profile_row rows[MAX_PROFILE_ROWS];
    int32_t n_rows;
    stall_list stalls; /* with streamed weights: of one profiled step */
    expert_load experts;
    double *step_ends; /* seconds between tokens of sequence 0 in the last run */
    int64_t n_step_ends;
    bool profiles;      /* in the profiling run */
    int64_t n_started;  /* sequences of the profiling run whose prompt is done */
    int64_t n_sampled;  /* sequences of all runs, each of a seed of its own */
    trm_status started; /* whether profiling was enabled */
} bench_command;

static bool take_token(void *user, int32_t request, int32_t token)
{
    bench_command *c = user;
    (void)token;
    job_take_token(&c->job);
    if (c->profiles) {
        if (c->requests[request].n_generated == 1 && ++c->n_started == c->batch) { /* from here on steps only decode */
            c->started = trm_context_set_layer_timing(trm_generator_context(c->job.generator), true);
        }
        return c->started == TRM_OK;
    }
    if (request == 0 && c->n_step_ends < c->tokens) {
        c->step_ends[c->n_step_ends++] = wall_seconds();
    }
    return true;
}

/* Fills in the same pseudo-random tokens on every rank. */
static void make_prompts(bench_command *c, int64_t vocab)
{
    uint64_t state = (uint64_t)settings_integer(c->all, SETTING_SEED) * 2 + 1;
    for (int64_t i = 0; i < c->batch * c->prompt_tokens; i++) {
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        c->prompts[i] = (int32_t)((state >> 33) % (uint64_t)vocab);
    }
}

static trm_status run_once(bench_command *c, int64_t tokens, bench_run *result)
{
    for (int64_t i = 0; i < c->batch; i++) {
        c->requests[i] = (trm_request){.prompt = c->prompts + i * c->prompt_tokens,
                                       .n_prompt = c->prompt_tokens,
                                       .max_tokens = tokens,
                                       .sampling = TRM_SAMPLING_INIT,
                                       .ignore_eos = true};
        c->requests[i].sampling.temperature = (float)settings_number(c->all, SETTING_TEMPERATURE);
        c->requests[i].sampling.seed = (uint64_t)settings_integer(c->all, SETTING_SEED) + (uint64_t)c->n_sampled++;
    }
    c->n_step_ends = c->n_started = 0;
    double began = wall_seconds();
    TRM_TRY(trm_generate(c->job.generator, c->requests, (int32_t)c->batch, take_token, c, &result->stats));
    result->seconds = wall_seconds() - began;
    return TRM_OK;
}

static void add_profile_row(void *user, const char *layer, trm_layer_kind kind, const char *kernel, double milliseconds,
                            int64_t runs)
{
    bench_command *c = user;
    (void)runs;
    profile_row row = {.kind = kind, .milliseconds = milliseconds, .layers = 1, .order = c->n_rows};
    layer_pattern(layer, row.layer, sizeof(row.layer));
    if (strcmp(kernel, TRM_KERNEL_WAIT) == 0) {
        stall_list_add(&c->stalls, layer, milliseconds * 1e-3);
    }
    snprintf(row.kernel, sizeof(row.kernel), "%s", kernel);
    for (int32_t i = 0; i < c->n_rows; i++) {
        if (strcmp(c->rows[i].layer, row.layer) == 0 && strcmp(c->rows[i].kernel, row.kernel) == 0) {
            c->rows[i].milliseconds += milliseconds;
            c->rows[i].layers++;
            return;
        }
    }
    if (c->n_rows < MAX_PROFILE_ROWS) {
        c->rows[c->n_rows++] = row;
    }
}

static int compare_rows(const void *a, const void *b)
{
    double x = ((const profile_row *)a)->milliseconds, y = ((const profile_row *)b)->milliseconds;
    return x < y ? 1 : x > y ? -1 : 0;
}

/* With a single token per prompt there are no decode steps: the profile is of prompt steps. */
static bool profiles_prompts(const bench_command *c)
{
    return c->tokens == 1;
}

static int64_t profile_steps(const bench_command *c)
{
    return settings_flag(c->all, SETTING_PROFILE) ? PROFILE_STEPS : STALL_STEPS;
}

/* Whether steps are profiled layer by layer. */
static bool profiles(const bench_command *c)
{
    return settings_flag(c->all, SETTING_PROFILE) || strcmp(settings_text(c->all, SETTING_WEIGHT_BUDGET), "off") != 0;
}

/* Averages layer times over the decode steps after the prompts, or over the prompt steps. */
static trm_status profile(bench_command *c)
{
    trm_context *context = trm_generator_context(c->job.generator);
    bench_run run;
    trm_status status;
    if (profiles_prompts(c)) {
        status = trm_context_set_layer_timing(context, true);
        status = status == TRM_OK ? run_once(c, 1, &run) : status;
    } else {
        c->profiles = true;
        status = run_once(c, profile_steps(c) + 1, &run);
        c->profiles = false;
        status = status == TRM_OK ? c->started : status;
    }
    if (status == TRM_OK) {
        trm_context_layer_times(context, add_profile_row, c);
        qsort(c->rows, (size_t)c->n_rows, sizeof(c->rows[0]), compare_rows);
        status = c->stalls.status;
    }
    trm_status off = trm_context_set_layer_timing(context, false);
    return status != TRM_OK ? status : off;
}

/* Counts the tokens of experts in a run of its own. Its steps are not captured, so they are not padded. */
static trm_status count_expert_load(bench_command *c)
{
    trm_context *context = trm_generator_context(c->job.generator);
    bench_run run;
    TRM_TRY(trm_context_set_layer_timing(context, true));
    TRM_TRY(trm_context_set_debug(context, expert_load_add, &c->experts));
    trm_status status = run_once(c, c->tokens, &run);
    status = c->experts.status != TRM_OK ? c->experts.status : status;
    trm_status shown = trm_context_set_debug(context, NULL, NULL);
    trm_status off = trm_context_set_layer_timing(context, false);
    return status != TRM_OK ? status : shown != TRM_OK ? shown : off;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Statistics over all runs. */
typedef struct figure {
    double least, median, most;
} figure;

static figure figure_of(double *values, int32_t n)
{
    qsort(values, (size_t)n, sizeof(*values), compare_doubles);
    return (figure){values[0], (values[(n - 1) / 2] + values[n / 2]) / 2.0, values[n - 1]};
}

typedef struct summary {
    figure prefill_rate, decode_rate, first_token, step; /* tok/s, tok/s, s, s per decode step */
    double token_p50, token_p90, token_p99;              /* seconds between tokens of sequence 0 in the last run */
} summary;

static trm_status summarize(bench_command *c, summary *s)
{
    size_t n = (size_t)(c->n_runs > c->tokens ? c->n_runs : c->tokens);
    double *values = calloc(n + 1, sizeof(*values));
    if (values == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %zu statistics", n);
    }
    *s = (summary){0};
    for (int32_t i = 0; i < c->n_runs; i++) {
        values[i] = (double)c->runs[i].stats.prompt_tokens / c->runs[i].stats.prefill_seconds;
    }
    s->prefill_rate = figure_of(values, c->n_runs);
    for (int32_t i = 0; i < c->n_runs; i++) {
        values[i] = c->runs[i].stats.first_token_seconds;
    }
    s->first_token = figure_of(values, c->n_runs);
    if (c->tokens > 1) {
        for (int32_t i = 0; i < c->n_runs; i++) {
            values[i] = (double)c->runs[i].stats.decode_tokens / c->runs[i].stats.decode_seconds;
        }
        s->decode_rate = figure_of(values, c->n_runs);
        for (int32_t i = 0; i < c->n_runs; i++) {
            values[i] = c->runs[i].stats.decode_seconds / (double)(c->tokens - 1);
        }
        s->step = figure_of(values, c->n_runs);
        int64_t gaps = c->n_step_ends - 1;
        for (int64_t i = 0; i < gaps; i++) {
            values[i] = c->step_ends[i + 1] - c->step_ends[i];
        }
        if (gaps > 0) {
            qsort(values, (size_t)gaps, sizeof(*values), compare_doubles);
            s->token_p50 = values[gaps / 2];
            s->token_p90 = values[gaps * 9 / 10];
            s->token_p99 = values[gaps * 99 / 100];
        }
    }
    free(values);
    return TRM_OK;
}

/* Splits the milliseconds of a profiled step by kind of work. */
static void split_time(const bench_command *c, double *compute, double *communication, double *waiting)
{
    *compute = *communication = *waiting = 0;
    for (int32_t i = 0; i < c->n_rows; i++) {
        bool exchanges = c->rows[i].kind == TRM_LAYER_DIST_COLLECTIVE || c->rows[i].kind == TRM_LAYER_ALL_REDUCE_NORM;
        bool waits = strcmp(c->rows[i].kernel, TRM_KERNEL_WAIT) == 0;
        *(waits ? waiting : exchanges ? communication : compute) += c->rows[i].milliseconds;
    }
}

/* Whether decode steps copy the same bytes: not with cached experts, nor if a step yields several tokens. */
static bool copies_alike(const bench_command *c, const trm_streaming_info *info)
{
    const bool drafts = c->runs[c->n_runs - 1].stats.drafted_tokens > 0;
    return info->on && c->tokens > 1 && info->cached_layers == 0 && !drafts;
}

/* Bytes that a decode step copies; *least: the minimum seconds of the step. */
static size_t streamed_bytes(const bench_command *c, const trm_streaming_info *info, double *least)
{
    const bool few = c->batch <= TRM_HOST_COMPUTE_ROWS;
    *least = few ? info->run_seconds : info->large_run_seconds;
    return few ? info->streamed : info->large_streamed;
}

static void report_figure(report *r, const char *key, figure f)
{
    report_open(r, key, '{');
    report_number(r, "min", f.least);
    report_number(r, "median", f.median);
    report_number(r, "max", f.most);
    report_close(r);
}

static void print_json(const bench_command *c, const summary *s)
{
    trm_model_info info;
    trm_model_get_info(c->job.model, &info);
    trm_generator_limits limits;
    trm_generator_get_limits(c->job.generator, &limits);
    const trm_generate_stats *last = &c->runs[c->n_runs - 1].stats;
    report r;
    report_begin(&r, stdout);
    report_text(&r, "model", info.path);
    report_text(&r, "version", trm_version());
    report_integer(&r, "ranks", trm_world_size(c->job.world));
    report_text(&r, "mesh", c->mesh);
    report_text(&r, "backend", trm_backend_name(c->backend));
    report_text(&r, "dtype", settings_text(c->all, SETTING_DTYPE));
    report_text(&r, "kv_cache_dtype", settings_text(c->all, SETTING_KV_CACHE_DTYPE));
    report_integer(&r, "layers", info.layers);
    report_integer(&r, "parameters", info.parameters);
    report_integer(&r, "batch", c->batch);
    report_integer(&r, "prompt_tokens", c->prompt_tokens);
    report_integer(&r, "generated_tokens", c->tokens);
    report_integer(&r, "runs", c->n_runs);
    report_number(&r, "load_seconds", c->job.load_seconds);
    report_startup(&r, &c->job);
    report_integer(&r, "weight_bytes_per_rank", (int64_t)limits.memory.weights);
    report_integer(&r, "device_bytes_per_rank", (int64_t)limits.memory.total);
    report_streaming(&r, &limits.streaming);
    report_speculation(&r, last);
    if (copies_alike(c, &limits.streaming)) {
        double least, rate = (double)streamed_bytes(c, &limits.streaming, &least) / s->step.median;
        report_number(&r, "streamed_bytes_per_second", rate);
        report_number(&r, "link_share", rate / limits.streaming.link_rate);
        report_number(&r, "planned_share", least / s->step.median);
    }
    report_figure(&r, "prefill_tokens_per_second", s->prefill_rate);
    report_figure(&r, "decode_tokens_per_second", s->decode_rate);
    report_figure(&r, "decode_step_seconds", s->step);
    report_figure(&r, "first_token_seconds", s->first_token);
    report_number(&r, "token_seconds_p50", s->token_p50);
    report_number(&r, "token_seconds_p90", s->token_p90);
    report_number(&r, "token_seconds_p99", s->token_p99);
    if (limits.streaming.on) {
        report_number(&r, "weight_wait_seconds", c->stalls.seconds);
        stall_list_report(&c->stalls, &r, "weight_waits");
    }
    if (settings_flag(c->all, SETTING_PROFILE)) {
        double compute, communication, waiting;
        split_time(c, &compute, &communication, &waiting);
        report_number(&r, "profile_compute_ms", compute);
        report_number(&r, "profile_communication_ms", communication);
        report_number(&r, "profile_weight_wait_ms", waiting);
        report_open(&r, "profile", '[');
        for (int32_t i = 0; i < c->n_rows; i++) {
            report_open(&r, NULL, '{');
            report_text(&r, "layer", c->rows[i].layer);
            report_text(&r, "kind", trm_layer_kind_name(c->rows[i].kind));
            report_text(&r, "kernel", c->rows[i].kernel);
            report_integer(&r, "layers", c->rows[i].layers);
            report_number(&r, "milliseconds", c->rows[i].milliseconds);
            report_integer(&r, "order", c->rows[i].order);
            report_close(&r);
        }
        report_close(&r);
    }
    if (settings_flag(c->all, SETTING_EXPERT_LOAD)) {
        expert_load_report(&c->experts, &r, "expert_load");
    }
    report_end(&r);
}

static void print_rates(const char *name, const figure *rate)
{
    printf("%-28s %12s %12s %12s\n", name, trm_number_text(rate->least, 1).text, trm_number_text(rate->median, 1).text,
           trm_number_text(rate->most, 1).text);
}

static void print_table(const bench_command *c, const summary *s)
{
    trm_model_info info;
    trm_model_get_info(c->job.model, &info);
    printf("%s on %d rank%s (%s, %s): %lld prompt tokens, %lld new tokens, batch %lld, %d runs, loaded in %.2f s\n",
           info.path, trm_world_size(c->job.world), trm_world_size(c->job.world) == 1 ? "" : "s", c->mesh,
           trm_backend_name(c->backend), (long long)c->prompt_tokens, (long long)c->tokens, (long long)c->batch,
           c->n_runs, c->job.load_seconds);
    printf("%-28s %12s %12s %12s\n", "", "min", "median", "max");
    print_rates("prefill, tok/s", &s->prefill_rate);
    print_rates("decode, tok/s", &s->decode_rate);
    printf("%-28s %12.3f %12.3f %12.3f\n", "decode step, ms", s->step.least * 1e3, s->step.median * 1e3,
           s->step.most * 1e3);
    printf("%-28s %12.2f %12.2f %12.2f\n", "first token, ms", s->first_token.least * 1e3, s->first_token.median * 1e3,
           s->first_token.most * 1e3);
    trm_generator_limits limits;
    trm_generator_get_limits(c->job.generator, &limits);
    const trm_generate_stats *last = &c->runs[c->n_runs - 1].stats;
    if (last->drafted_tokens > 0) {
        printf("last run: %lld tokens in %lld steps, %lld of %lld draft tokens accepted\n",
               (long long)last->generated_tokens, (long long)last->steps, (long long)last->accepted_tokens,
               (long long)last->drafted_tokens);
    }
    if (copies_alike(c, &limits.streaming)) {
        double least;
        const size_t streamed = streamed_bytes(c, &limits.streaming, &least);
        const double rate = (double)streamed / s->step.median;
        printf("streamed weights: %s GB per step, %s GB/s while decoding, %.1f %% of the link (%s GB/s)\n",
               trm_number_text((double)streamed / 1e9, 3).text, trm_number_text(rate / 1e9, 2).text,
               rate / limits.streaming.link_rate * 100, trm_number_text(limits.streaming.link_rate / 1e9, 2).text);
        printf("decode step, lower bound of the plan: %.3f ms, %.1f %% of the median\n", least * 1e3,
               least / s->step.median * 100);
    }
    const int64_t found = limits.streaming.expert_hits, hosted = limits.streaming.expert_hosted;
    const int64_t used = found + hosted + limits.streaming.expert_misses;
    if (used > 0) {
        printf("expert cache: %d of %d experts in %d layers, %.1f %% of those used were cached, the CPU computed %.1f "
               "%%\n",
               (int)limits.streaming.expert_slots, (int)limits.streaming.experts, (int)limits.streaming.cached_layers,
               (double)found / (double)used * 100, (double)hosted / (double)used * 100);
    }
    if (used > 0 && limits.streaming.host_experts > 0) {
        printf("experts from files: %.1f %% of those used were read, host memory caches %d\n",
               (double)limits.streaming.expert_reads / (double)used * 100, (int)limits.streaming.host_experts);
    }
    printf("between tokens, ms: p50 %.3f, p90 %.3f, p99 %.3f\n", s->token_p50 * 1e3, s->token_p90 * 1e3,
           s->token_p99 * 1e3);
    stall_list_print(&c->stalls,
                     profiles_prompts(c) ? "waits for weights in a prompt step" : "waits for weights in a decode step");
    if (settings_flag(c->all, SETTING_PROFILE)) {
        double compute, communication, waiting;
        split_time(c, &compute, &communication, &waiting);
        printf("\none %s step, layer by layer (not captured): %.3f ms, of which %.3f ms communication, %.3f ms waiting "
               "for "
               "weights\n",
               profiles_prompts(c) ? "prompt" : "decode", compute + communication + waiting, communication, waiting);
        printf("%-48s %-28s %6s %10s %8s\n", "layer", "kernel", "count", "ms", "us each");
        for (int32_t i = 0; i < c->n_rows; i++) {
            printf("%-48s %-28s %6d %10.3f %8.1f\n", c->rows[i].layer, c->rows[i].kernel, c->rows[i].layers,
                   c->rows[i].milliseconds, c->rows[i].milliseconds * 1e3 / c->rows[i].layers);
        }
    }
    if (settings_flag(c->all, SETTING_EXPERT_LOAD)) {
        expert_load_print(&c->experts);
    }
}

static trm_status allocate(bench_command *c)
{
    c->n_runs = (int32_t)settings_integer(c->all, SETTING_REPEAT);
    c->prompts = calloc((size_t)(c->batch * c->prompt_tokens), sizeof(*c->prompts));
    c->requests = calloc((size_t)c->batch, sizeof(*c->requests));
    c->runs = calloc((size_t)c->n_runs, sizeof(*c->runs));
    c->step_ends = calloc((size_t)c->tokens, sizeof(*c->step_ends));
    if (c->prompts == NULL || c->requests == NULL || c->runs == NULL || c->step_ends == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %lld prompts of %lld tokens", (long long)c->batch,
                 (long long)c->prompt_tokens);
    }
    return TRM_OK;
}

/* Opens the model, checks that the load fits and allocates what the runs need. The cache holds `context` tokens per
 * sequence: one for the model's whole context would give the same times and may not fit. */
static trm_status prepare_bench(bench_command *c, int64_t *context)
{
    c->job.began = wall_seconds();
    TRM_TRY(open_model(c->all, c->all->operands[0], &c->job.model));
    c->job.model_seconds = wall_seconds() - c->job.began;
    trm_model_info info;
    trm_model_get_info(c->job.model, &info);
    trm_model_experts experts = TRM_MODEL_EXPERTS_INIT;
    TRM_TRY(trm_model_get_experts(c->job.model, &experts));
    c->experts.n_experts = experts.n_experts;
    if (settings_flag(c->all, SETTING_EXPERT_LOAD) && experts.n_experts == 0) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "model %s has no experts, option --expert-load needs some", info.path);
    }
    int64_t new_tokens = c->tokens;
    if (profiles(c) && !profiles_prompts(c) && new_tokens < profile_steps(c) + 1) {
        new_tokens = profile_steps(c) + 1;
    }
    int64_t given = settings_integer(c->all, SETTING_CONTEXT), needed = c->prompt_tokens + new_tokens;
    int64_t most = given > 0 ? given : info.context_length;
    if (most > 0 && needed > most) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "%lld prompt tokens and %lld new tokens exceed the context of %lld tokens",
                 (long long)c->prompt_tokens, (long long)new_tokens, (long long)most);
    }
    *context = given > 0 ? given : needed;
    TRM_TRY(job_backend(c->all, &c->backend));
    trm_mesh mesh;
    TRM_TRY(trm_mesh_parse(settings_text(c->all, SETTING_MESH), trm_world_size(c->job.world), &mesh));
    trm_mesh_format(&mesh, c->mesh, sizeof(c->mesh));
    TRM_TRY(allocate(c));
    make_prompts(c, info.vocab);
    return TRM_OK;
}

static trm_status bench(bench_command *c, bool *alike)
{
    *alike = true;
    int64_t context = 0;
    TRM_TRY(trm_world_all_ok(c->job.world, prepare_bench(c, &context)));
    TRM_TRY(job_open_generator(&c->job, context, (int32_t)c->batch));
    bench_run warm;
    trm_status status = run_once(c, c->tokens, &warm);
    *alike = status == TRM_ERROR_INVALID_ARGUMENT;
    for (int32_t i = 0; status == TRM_OK && i < c->n_runs; i++) {
        status = run_once(c, c->tokens, &c->runs[i]);
    }
    summary s = {0};
    if (status == TRM_OK) {
        status = summarize(c, &s);
    }
    if (status == TRM_OK && profiles(c)) {
        status = profile(c);
    }
    if (status == TRM_OK && settings_flag(c->all, SETTING_EXPERT_LOAD)) {
        status = count_expert_load(c);
    }
    if (status == TRM_OK && c->job.is_leader) {
        if (settings_flag(c->all, SETTING_JSON)) {
            print_json(c, &s);
        } else {
            print_table(c, &s);
        }
        if (settings_flag(c->all, SETTING_VERBOSE)) {
            print_startup(&c->job);
        }
    }
    return status;
}

int command_bench(const settings *all)
{
    trm_status checked = check_operand(all);
    if (checked != TRM_OK) {
        return print_failure_once(checked);
    }
    if (names_network(all->operands[0])) {
        return onnx_bench_command(all);
    }
    bench_command c = {.all = all,
                       .batch = settings_integer(all, SETTING_BATCH),
                       .prompt_tokens = settings_integer(all, SETTING_PROMPT_TOKENS),
                       .tokens = settings_integer(all, SETTING_TOKENS)};
    bool alike = true;
    trm_status status = job_open_world(&c.job, all);
    if (status == TRM_OK) {
        status = bench(&c, &alike);
    }
    int code = job_close(&c.job, status, alike);
    free(c.prompts);
    free(c.requests);
    free(c.runs);
    free(c.step_ends);
    stall_list_fini(&c.stalls);
    expert_load_fini(&c.experts);
    return code;
}
