/* `trireme bench NET.onnx` and NET.plan: latency of a network on random or given inputs, and the time of every layer.
 */
#include "launcher/cli/onnx/bench.h"

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"

#define MAX_RUNS     ((int64_t)1 << 24)
#define MAX_KEPT     ((int64_t)1 << 20) /* of a bench without an end */
#define PROFILE_RUNS 10
#define CLOCK_RUNS   20
#define MAX_STREAMS  64

/* ---- measuring ----------------------------------------------------------------------------------------- */

static trm_status start_run(bench *b, int32_t stream, bench_run *run)
{
    double idle = settings_number(b->onnx.all, SETTING_IDLE);
    if (idle > 0) {
        usleep((useconds_t)(idle * 1e6));
    }
    *run = (bench_run){.began = wall_seconds(), .stream = stream};
    if (b->transfers) {
        TRM_TRY(onnx_set_inputs(&b->onnx, b->contexts[stream]));
    }
    return trm_context_start(b->contexts[stream]);
}

static trm_status finish_run(bench *b, bench_run *run)
{
    trm_context *context = b->contexts[run->stream];
    TRM_TRY(trm_context_finish(context));
    run->seconds = wall_seconds() - run->began;
    return b->transfers ? trm_context_times(context, &run->times) : TRM_OK;
}

/* The runs of one stream on a thread. */
typedef struct stream_thread {
    bench *bench;
    bench_run *runs; /* counter shared by all streams */
    int64_t n;
    int32_t stream;
    pthread_t thread;
    trm_held_error failure;
} stream_thread;

static void *run_stream_thread(void *user)
{
    stream_thread *l = user;
    trm_status status = TRM_OK;
    for (int64_t i = l->stream; status == TRM_OK && i < l->n; i += l->bench->n_streams) {
        status = start_run(l->bench, l->stream, &l->runs[i]);
        status = status == TRM_OK ? finish_run(l->bench, &l->runs[i]) : status;
    }
    trm_error_hold(status, &l->failure);
    return NULL;
}

static trm_status run_stream_threads(bench *b, bench_run *runs, int64_t n)
{
    stream_thread threads[MAX_STREAMS] = {0};
    int32_t n_begun = 0;
    trm_status status = TRM_OK;
    for (; n_begun < b->n_streams; n_begun++) {
        stream_thread *l = &threads[n_begun];
        *l = (stream_thread){.bench = b, .runs = runs, .n = n, .stream = n_begun};
        if (pthread_create(&l->thread, NULL, run_stream_thread, l) != 0) {
            status = trm_fail(TRM_ERROR_INTERNAL, "cannot create thread %d of %d", (int)n_begun, (int)b->n_streams);
            break;
        }
    }
    for (int32_t i = 0; i < n_begun; i++) {
        pthread_join(threads[i].thread, NULL);
        status = status == TRM_OK ? trm_error_give_back(&threads[i].failure) : status;
    }
    return status;
}

/* Runs `n` times, round robin over the streams: each starts its next run when its last one is done. */
static trm_status run_some(bench *b, bench_run *runs, int64_t n)
{
    if (b->threads) {
        return run_stream_threads(b, runs, n);
    }
    for (int64_t i = 0; i < n + b->n_streams; i++) {
        if (i >= b->n_streams && i - b->n_streams < n) {
            TRM_TRY(finish_run(b, &runs[i - b->n_streams]));
        }
        if (i < n) {
            TRM_TRY(start_run(b, (int32_t)(i % b->n_streams), &runs[i]));
        }
    }
    return TRM_OK;
}

/* Whether to continue, by rank 0's clock: every rank must run the same number of times. */
static trm_status agree(bench *b, bool mine, bool *more)
{
    uint8_t byte = mine;
    trm_status status = trm_world_broadcast(b->onnx.job.world, &byte, sizeof(byte), 0);
    *more = byte != 0;
    return status;
}

static trm_status warm_up(bench *b)
{
    double limit = settings_number(b->onnx.all, SETTING_WARM_UP), began = wall_seconds();
    bench_run runs[MAX_STREAMS];
    for (bool more = true; more;) {
        TRM_TRY(run_some(b, runs, b->n_streams));
        TRM_TRY(agree(b, wall_seconds() - began < limit, &more));
    }
    return TRM_OK;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Sorted latencies, and times since the first run. */
static trm_status sort_runs(bench *b)
{
    double first = b->runs[0].began;
    b->sorted = calloc((size_t)b->n_runs, sizeof(*b->sorted));
    if (b->sorted == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %lld times", (long long)b->n_runs);
    }
    for (int64_t i = 0; i < b->n_runs; i++) {
        b->runs[i].began -= first;
        b->sorted[i] = b->runs[i].seconds;
    }
    qsort(b->sorted, (size_t)b->n_runs, sizeof(*b->sorted), compare_doubles);
    return TRM_OK;
}

static volatile sig_atomic_t ended;

static void note_end(int signal)
{
    (void)signal;
    ended = 1;
}

/* Drops the older half of the kept runs. */
static void forget_half(bench *b)
{
    const int64_t half = b->n_runs / 2;
    b->total -= b->runs[half].began - b->runs[0].began;
    b->n_runs -= half;
    memmove(b->runs, b->runs + half, (size_t)b->n_runs * sizeof(*b->runs));
}

/* Measures in chunks of doubling size until there are enough runs and enough time has passed, or until SIGINT. */
static trm_status measure_runs(bench *b)
{
    const settings *all = b->onnx.all;
    int64_t least = settings_integer(all, SETTING_ITERATIONS);
    double duration = settings_number(all, SETTING_DURATION);
    const bool endless = duration < 0;
    bool more = true;
    duration = endless ? INFINITY : duration;
    for (int64_t chunk = 4 * b->n_streams; more; chunk *= 2) {
        if (endless && b->n_runs >= MAX_KEPT) {
            forget_half(b);
        }
        bench_run *grown = realloc(b->runs, (size_t)(b->n_runs + chunk) * sizeof(*grown));
        b->runs = grown != NULL ? grown : b->runs;
        trm_status status = grown != NULL
                                ? TRM_OK
                                : trm_fail(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %lld times", (long long)b->n_runs);
        TRM_TRY(trm_world_all_ok(b->onnx.job.world, status));
        double began = wall_seconds();
        TRM_TRY(run_some(b, b->runs + b->n_runs, chunk));
        b->n_runs += chunk;
        b->total += wall_seconds() - began;
        const bool wanted = b->n_runs < least || (b->total < duration && (endless || b->n_runs < MAX_RUNS));
        TRM_TRY(agree(b, wanted && ended == 0, &more));
        /* at most as many as fit the remaining time, and one second */
        double rate = (double)b->n_runs / (b->total > 1e-9 ? b->total : 1e-9);
        double left = fmin((duration - b->total) / 2, 1.0) * rate;
        int64_t fitting = left < 2 ? 2 : left < 500000 ? (int64_t)left + 1 : 500000;
        TRM_TRY(trm_world_broadcast(b->onnx.job.world, &fitting, sizeof(fitting), 0));
        chunk = fitting < chunk ? fitting : chunk;
    }
    return trm_world_all_ok(b->onnx.job.world, sort_runs(b));
}

/* On one rank SIGINT ends the measurement, and the runs so far are reported. Several ranks are ended by their launcher.
 */
static trm_status measure(bench *b)
{
    struct sigaction act = {.sa_handler = note_end}, before;
    sigemptyset(&act.sa_mask);
    const bool handled = b->onnx.n_ranks == 1 && sigaction(SIGINT, &act, &before) == 0;
    trm_status status = measure_runs(b);
    if (handled) {
        sigaction(SIGINT, &before, NULL);
    }
    return status;
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
    TRM_TRY(trm_context_set_layer_timing(b->onnx.context, true));
    for (int i = 0; i < PROFILE_RUNS; i++) {
        TRM_TRY(trm_context_run(b->onnx.context));
    }
    trm_context_layer_times(b->onnx.context, take_layer, b);
    TRM_TRY(trm_context_set_layer_timing(b->onnx.context, false));
    if (b->lost) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the times of the layers");
    }
    return TRM_OK;
}

static void add_times(rank_times *mean, const trm_run_times *times, double n)
{
    mean->upload += times->upload_milliseconds / n;
    mean->compute += times->compute_milliseconds / n;
    mean->download += times->download_milliseconds / n;
    mean->enqueue += times->enqueue_milliseconds / n;
}

/* Mean layer times of this rank: of the measured runs if they were profiled, otherwise of additional runs. */
static trm_status clock_runs(bench *b, rank_times *mine)
{
    *mine = (rank_times){0};
    for (int64_t i = 0; b->transfers && i < b->n_runs; i++) {
        add_times(mine, &b->runs[i].times, (double)b->n_runs);
    }
    if (!b->transfers) {
        TRM_TRY(trm_context_set_timing(b->onnx.context, true));
        for (int i = 0; i < CLOCK_RUNS; i++) {
            trm_run_times times;
            TRM_TRY(trm_context_run(b->onnx.context));
            TRM_TRY(trm_context_times(b->onnx.context, &times));
            add_times(mine, &times, CLOCK_RUNS);
        }
        TRM_TRY(trm_context_set_timing(b->onnx.context, false));
    }
    bench_split_profile(b, &mine->layers, &mine->communication);
    return TRM_OK;
}

/* Gathers the means of every rank on every rank. */
static trm_status gather_times(bench *b)
{
    rank_times mine;
    TRM_TRY(clock_runs(b, &mine));
    b->ranks = calloc((size_t)b->onnx.n_ranks, sizeof(*b->ranks));
    trm_status status =
        b->ranks != NULL ? TRM_OK : trm_fail(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the times of the ranks");
    TRM_TRY(trm_world_all_ok(b->onnx.job.world, status));
    const trm_collective_params gather = {.op = TRM_ALL_GATHER};
    return trm_world_collective(b->onnx.job.world, &gather, TRM_F64, &mine, b->ranks, sizeof(mine) / sizeof(double),
                                false);
}

/* ---- the command --------------------------------------------------------------------------------------- */

/* "50,90,99.9" */
static trm_status read_percentiles(bench *b)
{
    const char *text = settings_text(b->onnx.all, SETTING_PERCENTILES);
    for (bool more = true; more;) {
        char *end;
        double percent = strtod(text, &end);
        if (end == text || !(percent > 0 && percent <= 100) || (*end != ',' && *end != '\0') ||
            b->n_percentiles == BENCH_MAX_PERCENTILES) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                     "percentiles is \"%s\", expected at most %d numbers to 100, such as 50,99.9 (%s)",
                     settings_text(b->onnx.all, SETTING_PERCENTILES), BENCH_MAX_PERCENTILES,
                     b->onnx.all->origins[SETTING_PERCENTILES]);
        }
        b->percentiles[b->n_percentiles++] = percent;
        more = *end == ',';
        text = end + 1;
    }
    return TRM_OK;
}

static trm_status prepare(bench *b)
{
    onnx_job *j = &b->onnx;
    b->transfers = settings_flag(j->all, SETTING_TRANSFERS);
    b->threads = settings_flag(j->all, SETTING_STREAM_THREADS);
    if (trm_world_size(j->job.world) > 1 && (b->threads || settings_number(j->all, SETTING_DURATION) < 0)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "option --%s needs one rank: %d ranks run in one order",
                 b->threads ? "stream-threads" : "duration -1", trm_world_size(j->job.world));
    }
    TRM_TRY(read_percentiles(b));
    TRM_TRY(onnx_open(j, j->all->operands[0], trm_world_size(j->job.world)));
    TRM_TRY(onnx_build(j, false));
    TRM_TRY(onnx_check_outputs(j));
    return onnx_fill_inputs(j, (uint64_t)settings_integer(j->all, SETTING_SEED));
}

/* Creates the further contexts of the engine. */
static trm_status add_streams(bench *b)
{
    int32_t n = (int32_t)settings_integer(b->onnx.all, SETTING_STREAMS);
    b->contexts = calloc((size_t)n, sizeof(trm_context *));
    if (b->contexts == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %d streams", n);
    }
    b->contexts[0] = b->onnx.context;
    b->n_streams = 1;
    for (; b->n_streams < n; b->n_streams++) {
        TRM_TRY(trm_context_create(b->onnx.engine, &b->contexts[b->n_streams]));
    }
    for (int32_t i = 0; i < n; i++) {
        TRM_TRY(trm_context_set_optimization_profile(b->contexts[i],
                                                     (int32_t)settings_integer(b->onnx.all, SETTING_OPT_PROFILE)));
        TRM_TRY(onnx_set_inputs(&b->onnx, b->contexts[i]));
        TRM_TRY(trm_context_set_capture(b->contexts[i], !settings_flag(b->onnx.all, SETTING_NO_CAPTURE)));
        TRM_TRY(trm_context_set_timing(b->contexts[i], b->transfers));
    }
    return TRM_OK;
}

/* Prepares what depends on the dims of outputs, which are known after the first runs. */
static trm_status measure_and_print(bench *b)
{
    onnx_job *j = &b->onnx;
    TRM_TRY(measure(b));
    TRM_TRY(onnx_expect_compare(&b->expect, j, b->contexts, b->n_streams));
    if (settings_flag(j->all, SETTING_PROFILE) || settings_text(j->all, SETTING_EXPORT_PROFILE) != NULL ||
        j->n_ranks > 1) {
        TRM_TRY(profile(b));
    }
    TRM_TRY(gather_times(b));
    return j->job.is_leader ? bench_print(b) : TRM_OK;
}

static trm_status run(bench *b, bool *alike)
{
    onnx_job *j = &b->onnx;
    bool fits;
    *alike = true;
    TRM_TRY(trm_world_all_ok(j->job.world, prepare(b)));
    TRM_TRY(onnx_expect_open(&b->expect, j));
    TRM_TRY(onnx_load(j));
    double began = wall_seconds();
    TRM_TRY(trm_world_all_ok(j->job.world, onnx_set_inputs(j, j->context)));
    b->copy_seconds = wall_seconds() - began;
    TRM_TRY(trm_world_all_ok(j->job.world, add_streams(b)));
    *alike = false;
    TRM_TRY(onnx_tune(j));
    TRM_TRY(warm_up(b));
    TRM_TRY(onnx_expect_fits(&b->expect, j, b->contexts, b->n_streams, &fits));
    if (fits) {
        return measure_and_print(b);
    }
    TRM_TRY(onnx_expect_compare(&b->expect, j, b->contexts, b->n_streams));
    if (j->job.is_leader) {
        bench_print_refused(b);
    }
    return TRM_OK;
}

static void free_bench(bench *b)
{
    for (int32_t i = 0; i < b->n_layers; i++) {
        free(b->layers[i].layer);
        free(b->layers[i].kernel);
    }
    free(b->layers);
    free(b->runs);
    free(b->sorted);
    free(b->ranks);
}

int onnx_bench_command(const settings *all)
{
    bench b = {.onnx = {.all = all}};
    bool alike = true;
    trm_status status = job_open_world(&b.onnx.job, all);
    if (status == TRM_OK) {
        status = run(&b, &alike);
    }
    free_bench(&b);
    if (status == TRM_OK || alike || b.onnx.n_ranks <= 1) { /* aborting a job ends the process at once */
        for (int32_t i = 1; i < b.n_streams; i++) {
            trm_context_destroy(b.contexts[i]);
        }
        onnx_close(&b.onnx);
    }
    free(b.contexts);
    const bool holds = status != TRM_OK || onnx_expect_conclude(&b.expect, b.onnx.job.is_leader);
    onnx_expect_close(&b.expect);
    const int code = job_close(&b.onnx.job, status, alike);
    return holds ? code : trm_status_exit_code(TRM_ERROR_INTERNAL);
}
