/*
 * Measurements of `trireme bench` of a network: bench.c makes them, bench_report.c prints them and writes files.
 */
#ifndef TRM_LAUNCHER_CLI_ONNX_BENCH_H
#define TRM_LAUNCHER_CLI_ONNX_BENCH_H

#include "launcher/cli/onnx/expect.h"

#define BENCH_MAX_PERCENTILES 16

typedef struct layer_time {
    char *layer, *kernel;
    trm_layer_kind kind;
    double milliseconds;
} layer_time;

/* One run. */
typedef struct bench_run {
    double began, seconds; /* since the first run; until its outputs were available */
    int32_t stream;
    trm_run_times times; /* with --transfers */
} bench_run;

/* Means of one rank, in milliseconds. */
typedef struct rank_times {
    double upload, compute, download, enqueue;
    double layers, communication; /* by the profile; 0 without one */
} rank_times;

typedef struct bench {
    onnx_job onnx;
    trm_context **contexts; /* [n_streams]; the first is the job's */
    int32_t n_streams;
    bool transfers, threads;
    bench_run *runs; /* [n_runs] */
    double *sorted;  /* [n_runs] seconds */
    int64_t n_runs;
    double total, copy_seconds; /* of all runs; of setting the inputs once */
    double percentiles[BENCH_MAX_PERCENTILES];
    int32_t n_percentiles;
    layer_time *layers;
    int32_t n_layers, capacity;
    bool lost;         /* out of memory while collecting layers */
    rank_times *ranks; /* [n_ranks] */
    onnx_expect expect;
} bench;

/* The latency that `percent` of the runs did not exceed. */
double bench_percentile(const bench *b, double percent);
/* Prints a table or JSON and writes the export files. */
trm_status bench_print(const bench *b);
/* Prints only the comparison of outputs with their references, which failed before anything was measured. */
void bench_print_refused(const bench *b);
/* Splits the profile into compute and communication. */
void bench_split_profile(const bench *b, double *compute, double *communication);

#endif
