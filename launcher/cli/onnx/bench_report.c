/* Output of `trireme bench` of a network: text, JSON and export files. */
#include "launcher/cli/onnx/bench.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/unit.h"
#include "launcher/cli/job/report.h"

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

/* ---- figures ------------------------------------------------------------------------------------------- */

double bench_percentile(const bench *b, double percent)
{
    int64_t index = (int64_t)ceil(percent / 100 * (double)b->n_runs) - 1;
    return b->sorted[index < 0 ? 0 : index];
}

static double mean(const bench *b)
{
    double sum = 0;
    for (int64_t i = 0; i < b->n_runs; i++) {
        sum += b->sorted[i];
    }
    return sum / (double)b->n_runs;
}

void bench_split_profile(const bench *b, double *compute, double *communication)
{
    *compute = *communication = 0;
    for (int32_t i = 0; i < b->n_layers; i++) {
        trm_layer_kind kind = b->layers[i].kind;
        bool exchanges = kind == TRM_LAYER_DIST_COLLECTIVE || kind == TRM_LAYER_ALL_REDUCE_NORM;
        *(exchanges ? communication : compute) += b->layers[i].milliseconds;
    }
}

/* Bytes of weights read per second. */
static double streaming_rate(const bench *b)
{
    return (double)trm_context_streamed(b->onnx.context) / bench_percentile(b, 50);
}

static bool shows_profile(const bench *b)
{
    return settings_flag(b->onnx.all, SETTING_PROFILE);
}

/* ---- JSON ---------------------------------------------------------------------------------------------- */

static void report_layers(const bench *b, report *r, const char *key)
{
    double compute, communication;
    bench_split_profile(b, &compute, &communication);
    report_open(r, key, '[');
    for (int32_t i = 0; i < b->n_layers; i++) {
        report_open(r, NULL, '{');
        report_text(r, "layer", b->layers[i].layer);
        report_text(r, "kind", trm_layer_kind_name(b->layers[i].kind));
        report_text(r, "kernel", b->layers[i].kernel);
        report_number(r, "milliseconds", b->layers[i].milliseconds);
        report_number(r, "share", b->layers[i].milliseconds / (compute + communication));
        report_close(r);
    }
    report_close(r);
}

static void report_latency(const bench *b, report *r)
{
    report_open(r, "latency_ms", '{');
    report_number(r, "min", b->sorted[0] * 1e3);
    report_number(r, "mean", mean(b) * 1e3);
    for (int32_t i = 0; i < b->n_percentiles; i++) {
        char name[32];
        snprintf(name, sizeof(name), "p%g", b->percentiles[i]);
        report_number(r, name, bench_percentile(b, b->percentiles[i]) * 1e3);
    }
    report_number(r, "max", b->sorted[b->n_runs - 1] * 1e3);
    report_close(r);
}

static void report_ranks(const bench *b, report *r)
{
    report_open(r, "per_rank", '[');
    for (int32_t i = 0; i < b->onnx.n_ranks; i++) {
        const rank_times *t = &b->ranks[i];
        report_open(r, NULL, '{');
        report_integer(r, "rank", i);
        report_number(r, "upload_ms", t->upload);
        report_number(r, "compute_ms", t->compute);
        report_number(r, "download_ms", t->download);
        report_number(r, "enqueue_ms", t->enqueue);
        if (b->n_layers > 0) {
            report_number(r, "layers_ms", t->layers);
            report_number(r, "communication_ms", t->communication);
        }
        report_close(r);
    }
    report_close(r);
}

static void report_job(const onnx_job *j, report *r)
{
    char mesh[64];
    trm_mesh_format(&j->mesh, mesh, sizeof(mesh));
    report_text(r, "model", j->all->operands[0]);
    report_text(r, "version", trm_version());
    report_integer(r, "ranks", j->n_ranks);
    report_text(r, "mesh", mesh);
    report_text(r, "backend", trm_backend_name(j->backend));
    report_open(r, "inputs", '{');
    for (int32_t i = 0; i < j->n_inputs; i++) {
        char dims[160];
        onnx_dims_text(&j->inputs[i].dims, dims, sizeof(dims));
        report_text(r, j->inputs[i].port.name, j->inputs[i].fixed ? "constant" : dims);
    }
    report_close(r);
    report_integer(r, "layers", trm_network_layer_count(j->shown));
    report_number(r, "import_seconds", j->import_seconds);
    report_number(r, "build_seconds", j->build_seconds);
    report_number(r, "tune_seconds", j->tune_seconds);
    report_integer(r, "device_bytes_per_rank", (int64_t)j->memory.total);
    report_streaming(r, &j->streaming);
}

static void print_json(const bench *b)
{
    const onnx_job *j = &b->onnx;
    report r;
    report_begin(&r, stdout);
    report_job(j, &r);
    if (j->streaming.on) {
        report_integer(&r, "streamed_per_run", (int64_t)trm_context_streamed(j->context));
        report_number(&r, "link_share", streaming_rate(b) / j->streaming.link_rate);
    }
    report_integer(&r, "streams", b->n_streams);
    report_bool(&r, "transfers", b->transfers);
    report_integer(&r, "runs", b->n_runs);
    report_number(&r, "runs_per_second", (double)b->n_runs / b->total);
    report_number(&r, "input_copy_ms", b->copy_seconds * 1e3);
    report_latency(b, &r);
    report_ranks(b, &r);
    if (shows_profile(b)) {
        double compute, communication;
        bench_split_profile(b, &compute, &communication);
        report_number(&r, "profile_compute_ms", compute);
        report_number(&r, "profile_communication_ms", communication);
        report_layers(b, &r, "profile");
    }
    if (settings_flag(j->all, SETTING_TACTICS)) {
        report_open(&r, "tactics", '[');
        trm_context_tactics(j->context, report_tactic, &r);
        report_close(&r);
    }
    onnx_expect_report(&b->expect, &r);
    report_end(&r);
}

/* ---- tables -------------------------------------------------------------------------------------------- */

static void print_head(const bench *b)
{
    const onnx_job *j = &b->onnx;
    char mesh[64];
    trm_mesh_format(&j->mesh, mesh, sizeof(mesh));
    printf("%s on %d rank%s (%s, %s): %d layers, imported in %.2f s, built and loaded in %.2f s, tuned in %.2f s, "
           "%s per rank\n",
           j->all->operands[0], j->n_ranks, j->n_ranks == 1 ? "" : "s", mesh, trm_backend_name(j->backend),
           trm_network_layer_count(j->shown), j->import_seconds, j->build_seconds, j->tune_seconds,
           trm_size_text((double)j->memory.total).text);
    for (int32_t i = 0; i < j->n_inputs; i++) {
        char dims[160];
        onnx_dims_text(&j->inputs[i].dims, dims, sizeof(dims));
        const onnx_input *input = &j->inputs[i];
        const char *source = input->fixed              ? "constant"
                             : input->from_file        ? "from a file"
                             : input->typed[0] != NULL ? "given"
                                                       : "random";
        printf("  %s %s %s, %s\n", j->inputs[i].port.name, j->inputs[i].port.type, j->inputs[i].fixed ? "" : dims,
               source);
    }
    printf("%lld runs, %s per second", (long long)b->n_runs, trm_number_text((double)b->n_runs / b->total, 2).text);
    if (b->n_streams > 1) {
        printf(", %d at a time", b->n_streams);
    }
    printf("%s; inputs copied in %.3f ms\n", b->transfers ? ", inputs copied in each" : "", b->copy_seconds * 1e3);
    if (j->streaming.on) {
        printf("streamed weights: %s MB per run, %s GB/s, %.1f %% of the link\n",
               trm_number_text((double)trm_context_streamed(j->context) / 1e6, 1).text,
               trm_number_text(streaming_rate(b) / 1e9, 2).text, streaming_rate(b) / j->streaming.link_rate * 100);
    }
}

static void print_latency(const bench *b)
{
    printf("%-14s %10s %10s", "", "min", "mean");
    for (int32_t i = 0; i < b->n_percentiles; i++) {
        char name[32];
        snprintf(name, sizeof(name), "p%g", b->percentiles[i]);
        printf(" %10s", name);
    }
    printf(" %10s\n%-14s %10.3f %10.3f", "max", "latency, ms", b->sorted[0] * 1e3, mean(b) * 1e3);
    for (int32_t i = 0; i < b->n_percentiles; i++) {
        printf(" %10.3f", bench_percentile(b, b->percentiles[i]) * 1e3);
    }
    printf(" %10.3f\n", b->sorted[b->n_runs - 1] * 1e3);
}

static void print_ranks(const bench *b)
{
    bool split = b->n_layers > 0;
    printf("%-14s %10s %10s %10s %10s%s\n", "ms per run", "inputs", "compute", "outputs", "enqueue",
           split ? "     layers  communication" : "");
    for (int32_t i = 0; i < b->onnx.n_ranks; i++) {
        const rank_times *t = &b->ranks[i];
        char name[32];
        snprintf(name, sizeof(name), "rank %d", (int)i);
        printf("%-14s %10.3f %10.3f %10.3f %10.3f", name, t->upload, t->compute, t->download, t->enqueue);
        if (split) {
            printf(" %10.3f %14.3f", t->layers, t->communication);
        }
        printf("\n");
    }
}

/* Notes on figures that may mislead. */
static void print_notes(const bench *b)
{
    const rank_times *t = &b->ranks[0];
    double sum = 0, middle = mean(b);
    for (int64_t i = 0; i < b->n_runs; i++) {
        sum += (b->sorted[i] - middle) * (b->sorted[i] - middle);
    }
    double spread = sqrt(sum / (double)b->n_runs) / middle;
    if (b->onnx.backend == TRM_BACKEND_CUDA && t->enqueue > 0.8 * t->compute) {
        printf("note: launching a run takes %.0f %% of the time of its layers: the GPU may wait for the host\n",
               100 * t->enqueue / t->compute);
    }
    if (b->transfers && (t->upload >= t->compute || t->download >= t->compute)) {
        printf("note: copies take as long as the layers\n");
    }
    if (spread > 0.1) {
        printf("note: latencies vary by %.0f %% of their mean%s\n", 100 * spread,
               b->n_streams > 1 ? ", and include the time that runs wait for each other" : "");
    }
}

static void print_profile(const bench *b)
{
    double compute, communication;
    bench_split_profile(b, &compute, &communication);
    printf("\nlayer by layer (not captured): %.3f ms, of which %.3f ms communication\n", compute + communication,
           communication);
    printf("%-56s %-20s %-28s %10s %6s\n", "layer", "kind", "kernel", "us", "%");
    for (int32_t i = 0; i < b->n_layers; i++) {
        printf("%-56s %-20s %-28s %10.1f %6.1f\n", b->layers[i].layer, trm_layer_kind_name(b->layers[i].kind),
               b->layers[i].kernel, b->layers[i].milliseconds * 1e3,
               100 * b->layers[i].milliseconds / (compute + communication));
    }
}

/* ---- files --------------------------------------------------------------------------------------------- */

static trm_status open_file(const char *path, FILE **file)
{
    *file = fopen(path, "w");
    if (*file == NULL) {
        TRM_FAIL(TRM_ERROR_IO, "cannot write %s: %s", path, strerror(errno));
    }
    return TRM_OK;
}

static trm_status close_file(const char *path, FILE *file)
{
    bool written = !ferror(file);
    if (fclose(file) != 0 || !written) {
        TRM_FAIL(TRM_ERROR_IO, "cannot write %s: %s", path, strerror(errno));
    }
    return TRM_OK;
}

static trm_status export_times(const bench *b, const char *path)
{
    FILE *file;
    report r;
    TRM_TRY(open_file(path, &file));
    report_begin(&r, file);
    report_text(&r, "model", b->onnx.all->operands[0]);
    report_open(&r, "runs", '[');
    for (int64_t i = 0; i < b->n_runs; i++) {
        const bench_run *run = &b->runs[i];
        report_open(&r, NULL, '{');
        report_number(&r, "began_ms", run->began * 1e3);
        report_number(&r, "latency_ms", run->seconds * 1e3);
        report_integer(&r, "stream", run->stream);
        if (b->transfers) {
            report_number(&r, "upload_ms", run->times.upload_milliseconds);
            report_number(&r, "compute_ms", run->times.compute_milliseconds);
            report_number(&r, "download_ms", run->times.download_milliseconds);
            report_number(&r, "enqueue_ms", run->times.enqueue_milliseconds);
        }
        report_close(&r);
    }
    report_end(&r);
    return close_file(path, file);
}

static trm_status export_profile(const bench *b, const char *path)
{
    FILE *file;
    report r;
    TRM_TRY(open_file(path, &file));
    report_begin(&r, file);
    report_text(&r, "model", b->onnx.all->operands[0]);
    report_layers(b, &r, "layers");
    report_end(&r);
    return close_file(path, file);
}

/* The text of the inspector. */
static trm_status export_layers(const bench *b, const char *path)
{
    FILE *file;
    char *text = trm_context_to_json(b->onnx.context);
    if (text == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the text of a network");
    }
    trm_status status = open_file(path, &file);
    if (status == TRM_OK) {
        fputs(text, file);
        status = close_file(path, file);
    }
    trm_free(text);
    return status;
}

static trm_status write_files(const bench *b)
{
    const struct {
        setting_id id;
        trm_status (*write)(const bench *b, const char *path);
    } files[] = {{SETTING_EXPORT_TIMES, export_times},
                 {SETTING_EXPORT_PROFILE, export_profile},
                 {SETTING_EXPORT_LAYERS, export_layers}};
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        const char *path = settings_text(b->onnx.all, files[i].id);
        TRM_TRY(path == NULL ? TRM_OK : files[i].write(b, path));
    }
    return onnx_write_outputs(&b->onnx);
}

trm_status bench_print(const bench *b)
{
    TRM_TRY(write_files(b));
    if (settings_flag(b->onnx.all, SETTING_JSON)) {
        print_json(b);
        return TRM_OK;
    }
    print_head(b);
    print_latency(b);
    print_ranks(b);
    print_notes(b);
    if (shows_profile(b)) {
        print_profile(b);
    }
    if (settings_flag(b->onnx.all, SETTING_TACTICS)) {
        const char *last = NULL;
        trm_context_tactics(b->onnx.context, print_tactic, &last);
    }
    onnx_expect_print(&b->expect, b->onnx.all);
    return TRM_OK;
}

void bench_print_refused(const bench *b)
{
    if (!settings_flag(b->onnx.all, SETTING_JSON)) {
        onnx_expect_print(&b->expect, b->onnx.all);
        return;
    }
    report r;
    report_begin(&r, stdout);
    report_job(&b->onnx, &r);
    onnx_expect_report(&b->expect, &r);
    report_end(&r);
}
