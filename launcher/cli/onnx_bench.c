/* `trireme bench NET.onnx` and NET.plan: latency of a network on random or given inputs, and the time of every layer.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "launcher/cli/onnx_job.h"
#include "launcher/cli/report.h"

#define MOST_RUNS    ((int64_t)1 << 24)
#define PROFILE_RUNS 10

typedef struct layer_time {
    char *layer, *kernel;
    trm_layer_kind kind;
    double milliseconds;
} layer_time;

typedef struct bench {
    onnx_job onnx;
    double *seconds; /* [n_runs], sorted once they are all there */
    int64_t n_runs;
    double total, copy_seconds; /* copy: setting the inputs, once */
    layer_time *layers;
    int32_t n_layers, capacity;
    bool lost; /* memory ran out while layers were collected */
} bench;

/* ---- measuring ----------------------------------------------------------------------------------------- */

static trm_status run_once(bench *b, double *seconds)
{
    double began = wall_seconds();
    TRM_TRY(trm_context_run(b->onnx.context));
    *seconds = wall_seconds() - began;
    return TRM_OK;
}

/* Whether to go on, by rank 0's clock: every rank must take the same steps. */
static trm_status agree(bench *b, bool mine, bool *more)
{
    uint8_t byte = mine;
    trm_status status = trm_world_broadcast(b->onnx.job.world, &byte, sizeof(byte), 0);
    *more = byte != 0;
    return status;
}

static trm_status warm_up(bench *b)
{
    double limit = settings_number(b->onnx.all, SETTING_WARM_UP), began = wall_seconds(), seconds;
    for (bool more = true; more;) {
        TRM_TRY(run_once(b, &seconds));
        TRM_TRY(agree(b, wall_seconds() - began < limit, &more));
    }
    return TRM_OK;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Runs in chunks that double, until there are enough of them and enough time has passed. */
static trm_status measure(bench *b)
{
    const settings *all = b->onnx.all;
    int64_t least = settings_integer(all, SETTING_ITERATIONS);
    double duration = settings_number(all, SETTING_DURATION);
    bool more = true;
    for (int64_t chunk = 4; more; chunk *= 2) {
        double *grown = realloc(b->seconds, (size_t)(b->n_runs + chunk) * sizeof(*grown));
        b->seconds = grown != NULL ? grown : b->seconds;
        trm_status status = grown != NULL
                                ? TRM_OK
                                : trm_fail(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %lld times", (long long)b->n_runs);
        TRM_TRY(trm_world_all_ok(b->onnx.job.world, status));
        double began = wall_seconds();
        for (int64_t i = 0; i < chunk; i++) {
            TRM_TRY(run_once(b, &b->seconds[b->n_runs++]));
        }
        b->total += wall_seconds() - began;
        TRM_TRY(agree(b, b->n_runs < least || (b->total < duration && b->n_runs < MOST_RUNS), &more));
        /* No more of them than the time that is left seems to hold. */
        double rate = (double)b->n_runs / (b->total > 1e-9 ? b->total : 1e-9), left = (duration - b->total) * rate;
        int64_t fitting = left < 4 ? 2 : left < 1e6 ? (int64_t)(left / 2) + 1 : 500000;
        TRM_TRY(trm_world_broadcast(b->onnx.job.world, &fitting, sizeof(fitting), 0));
        chunk = fitting < chunk ? fitting : chunk;
    }
    qsort(b->seconds, (size_t)b->n_runs, sizeof(*b->seconds), compare_doubles);
    return TRM_OK;
}

static void take_layer(void *user, const char *layer, trm_layer_kind kind, const char *kernel, double milliseconds,
                       int64_t runs)
{
    bench *b = user;
    (void)runs;
    if (b->n_layers == b->capacity) {
        int32_t wanted = b->capacity * 2 + 64;
        layer_time *grown = realloc(b->layers, (size_t)wanted * sizeof(*grown));
        if (grown == NULL) {
            b->lost = true;
            return;
        }
        b->layers = grown;
        b->capacity = wanted;
    }
    layer_time row = {strdup(layer), strdup(kernel), kind, milliseconds};
    b->lost = b->lost || row.layer == NULL || row.kernel == NULL;
    b->layers[b->n_layers++] = row;
}

static trm_status profile(bench *b)
{
    TRM_TRY(trm_context_set_profiling(b->onnx.context, true));
    for (int i = 0; i < PROFILE_RUNS; i++) {
        TRM_TRY(trm_context_run(b->onnx.context));
    }
    trm_context_profile(b->onnx.context, take_layer, b);
    TRM_TRY(trm_context_set_profiling(b->onnx.context, false));
    if (b->lost) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the times of the layers");
    }
    return TRM_OK;
}

/* ---- tactics ------------------------------------------------------------------------------------------- */

static void print_tactic(void *user, const char *layer, const char *problem, const char *tactic, double microseconds,
                         bool best)
{
    const char **last = user;
    if (best) {
        printf("%s%s: %s\n", *last == NULL ? "\n" : "", layer, problem);
    }
    *last = layer;
    printf("  %c %10.2f us  %s\n", best ? '*' : ' ', microseconds, tactic);
}

static void report_tactic(void *user, const char *layer, const char *problem, const char *tactic, double microseconds,
                          bool best)
{
    report *r = user;
    report_open(r, NULL, '{');
    report_text(r, "layer", layer);
    report_text(r, "problem", problem);
    report_text(r, "tactic", tactic);
    report_number(r, "microseconds", microseconds);
    report_bool(r, "used", best);
    report_close(r);
}

/* ---- reporting ----------------------------------------------------------------------------------------- */

/* The time that `percent` of the runs took at most. */
static double percentile(const bench *b, double percent)
{
    int64_t index = (int64_t)ceil(percent / 100 * (double)b->n_runs) - 1;
    return b->seconds[index < 0 ? 0 : index];
}

static double mean(const bench *b)
{
    double sum = 0;
    for (int64_t i = 0; i < b->n_runs; i++) {
        sum += b->seconds[i];
    }
    return sum / (double)b->n_runs;
}

static void split_time(const bench *b, double *compute, double *communication)
{
    *compute = *communication = 0;
    for (int32_t i = 0; i < b->n_layers; i++) {
        *(b->layers[i].kind == TRM_LAYER_DIST_COLLECTIVE ? communication : compute) += b->layers[i].milliseconds;
    }
}

/* Bytes of weights per second of a run. */
static double streaming_rate(const bench *b)
{
    return (double)b->onnx.streaming.streamed / percentile(b, 50);
}

static void print_json(const bench *b, const char *mesh)
{
    const onnx_job *j = &b->onnx;
    report r;
    report_begin(&r, stdout);
    report_text(&r, "model", j->all->operands[0]);
    report_text(&r, "version", trm_version());
    report_integer(&r, "ranks", j->n_ranks);
    report_text(&r, "mesh", mesh);
    report_text(&r, "backend", trm_backend_name(j->backend));
    report_open(&r, "inputs", '{');
    for (int32_t i = 0; i < j->n_inputs; i++) {
        char dims[160];
        onnx_dims_text(&j->inputs[i].dims, dims, sizeof(dims));
        report_text(&r, j->inputs[i].port.name, j->inputs[i].fixed ? "constant" : dims);
    }
    report_close(&r);
    report_integer(&r, "layers", trm_network_layer_count(j->shown));
    report_number(&r, "import_seconds", j->import_seconds);
    report_number(&r, "build_seconds", j->build_seconds);
    report_number(&r, "tune_seconds", j->tune_seconds);
    report_integer(&r, "device_bytes_per_rank", (int64_t)j->memory.total);
    report_streaming(&r, &j->streaming);
    if (j->streaming.on) {
        report_number(&r, "link_share", streaming_rate(b) / j->streaming.link_rate);
    }
    report_integer(&r, "runs", b->n_runs);
    report_number(&r, "runs_per_second", (double)b->n_runs / b->total);
    report_number(&r, "input_copy_ms", b->copy_seconds * 1e3);
    report_open(&r, "latency_ms", '{');
    report_number(&r, "min", b->seconds[0] * 1e3);
    report_number(&r, "mean", mean(b) * 1e3);
    report_number(&r, "p50", percentile(b, 50) * 1e3);
    report_number(&r, "p90", percentile(b, 90) * 1e3);
    report_number(&r, "p95", percentile(b, 95) * 1e3);
    report_number(&r, "p99", percentile(b, 99) * 1e3);
    report_number(&r, "max", b->seconds[b->n_runs - 1] * 1e3);
    report_close(&r);
    if (b->n_layers > 0) {
        double compute, communication;
        split_time(b, &compute, &communication);
        report_number(&r, "profile_compute_ms", compute);
        report_number(&r, "profile_communication_ms", communication);
        report_open(&r, "profile", '[');
        for (int32_t i = 0; i < b->n_layers; i++) {
            report_open(&r, NULL, '{');
            report_text(&r, "layer", b->layers[i].layer);
            report_text(&r, "kind", trm_layer_kind_name(b->layers[i].kind));
            report_text(&r, "kernel", b->layers[i].kernel);
            report_number(&r, "milliseconds", b->layers[i].milliseconds);
            report_close(&r);
        }
        report_close(&r);
    }
    if (settings_flag(j->all, SETTING_TACTICS)) {
        report_open(&r, "tactics", '[');
        trm_context_tactics(j->context, report_tactic, &r);
        report_close(&r);
    }
    report_end(&r);
}

static void print_table(const bench *b, const char *mesh)
{
    const onnx_job *j = &b->onnx;
    printf("%s on %d rank%s (%s, %s): %d layers, imported in %.2f s, built and loaded in %.2f s, tuned in %.2f s, "
           "%.1f MiB per rank\n",
           j->all->operands[0], j->n_ranks, j->n_ranks == 1 ? "" : "s", mesh, trm_backend_name(j->backend),
           trm_network_layer_count(j->shown), j->import_seconds, j->build_seconds, j->tune_seconds,
           (double)j->memory.total / 0x1p20);
    for (int32_t i = 0; i < j->n_inputs; i++) {
        char dims[160];
        onnx_dims_text(&j->inputs[i].dims, dims, sizeof(dims));
        const char *source = j->inputs[i].fixed ? "constant" : j->inputs[i].from_file ? "from a file" : "random";
        printf("  %s %s %s, %s\n", j->inputs[i].port.name, j->inputs[i].port.type, j->inputs[i].fixed ? "" : dims,
               source);
    }
    printf("%lld runs, %.2f per second; inputs copied in %.3f ms\n", (long long)b->n_runs, (double)b->n_runs / b->total,
           b->copy_seconds * 1e3);
    if (j->streaming.on) {
        printf("weights streamed: %.1f MB per run, %.2f GB/s, %.1f %% of the link\n",
               (double)j->streaming.streamed / 1e6, streaming_rate(b) / 1e9,
               streaming_rate(b) / j->streaming.link_rate * 100);
    }
    printf("%-14s %10s %10s %10s %10s %10s %10s %10s\n", "", "min", "mean", "p50", "p90", "p95", "p99", "max");
    printf("%-14s %10.3f %10.3f %10.3f %10.3f %10.3f %10.3f %10.3f\n", "latency, ms", b->seconds[0] * 1e3,
           mean(b) * 1e3, percentile(b, 50) * 1e3, percentile(b, 90) * 1e3, percentile(b, 95) * 1e3,
           percentile(b, 99) * 1e3, b->seconds[b->n_runs - 1] * 1e3);
    if (b->n_layers > 0) {
        double compute, communication;
        split_time(b, &compute, &communication);
        printf("\nlayer by layer (not captured): %.3f ms, of which %.3f ms communication\n", compute + communication,
               communication);
        printf("%-56s %-20s %-28s %10s %6s\n", "layer", "kind", "kernel", "us", "%");
        for (int32_t i = 0; i < b->n_layers; i++) {
            printf("%-56s %-20s %-28s %10.1f %6.1f\n", b->layers[i].layer, trm_layer_kind_name(b->layers[i].kind),
                   b->layers[i].kernel, b->layers[i].milliseconds * 1e3,
                   100 * b->layers[i].milliseconds / (compute + communication));
        }
    }
    if (settings_flag(j->all, SETTING_TACTICS)) {
        const char *last = NULL;
        trm_context_tactics(j->context, print_tactic, &last);
    }
}

/* ---- the command --------------------------------------------------------------------------------------- */

static trm_status prepare(onnx_job *j)
{
    TRM_TRY(onnx_open(j, j->all->operands[0], trm_world_size(j->job.world)));
    TRM_TRY(onnx_build(j, false));
    return onnx_fill_inputs(j, (uint64_t)settings_integer(j->all, SETTING_SEED));
}

static trm_status run(bench *b, bool *alike)
{
    onnx_job *j = &b->onnx;
    *alike = true;
    TRM_TRY(trm_world_all_ok(j->job.world, prepare(j)));
    TRM_TRY(onnx_load(j));
    double began = wall_seconds();
    TRM_TRY(trm_world_all_ok(j->job.world, onnx_set_inputs(j)));
    b->copy_seconds = wall_seconds() - began;
    *alike = false;
    TRM_TRY(onnx_tune(j));
    TRM_TRY(warm_up(b));
    TRM_TRY(measure(b));
    if (settings_flag(j->all, SETTING_PROFILE)) {
        TRM_TRY(profile(b));
    }
    if (j->job.talks) {
        char mesh[64];
        trm_mesh_format(&j->mesh, mesh, sizeof(mesh));
        if (settings_flag(j->all, SETTING_JSON)) {
            print_json(b, mesh);
        } else {
            print_table(b, mesh);
        }
    }
    return TRM_OK;
}

int onnx_bench_command(const settings *all)
{
    bench b = {.onnx = {.all = all}};
    bool alike = true;
    trm_status status = job_open_world(&b.onnx.job, all);
    if (status == TRM_OK) {
        status = run(&b, &alike);
    }
    for (int32_t i = 0; i < b.n_layers; i++) {
        free(b.layers[i].layer);
        free(b.layers[i].kernel);
    }
    free(b.layers);
    free(b.seconds);
    if (status == TRM_OK || alike) { /* aborting ends the process as it is */
        onnx_close(&b.onnx);
    }
    return job_close(&b.onnx.job, status, alike);
}
