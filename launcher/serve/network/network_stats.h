/*
 * What a served network has done since it was loaded, in the form of KServe's statistics extension and for Prometheus.
 * Names of metrics are Triton's where they mean the same.
 */
#ifndef TRM_LAUNCHER_SERVE_NETWORK_NETWORK_STATS_H
#define TRM_LAUNCHER_SERVE_NETWORK_NETWORK_STATS_H

#include "launcher/serve/json/json_text.h"

#define NETWORK_STATS_BATCHES 128 /* sizes of batches counted one by one; the last entry also counts larger ones */

typedef struct stats_duration {
    uint64_t count, ns;
} stats_duration;

/* Requests have the durations of the runs that they were part of. */
typedef struct stats_batch {
    int64_t size;
    stats_duration input, infer, output;
} stats_batch;

typedef struct network_stats {
    int64_t last_inference;                    /* ms since 1970; 0: none yet */
    uint64_t inference_count, execution_count; /* batch elements, runs */
    stats_duration success, fail, queue, input, infer, output;
    stats_batch batches[NETWORK_STATS_BATCHES]; /* [n_batches] */
    int32_t n_batches;
    int32_t waiting, running; /* requests in the queue; runs at this moment */
    int32_t instances;
    uint64_t expired, cancelled,
        refused; /* requests that the queue dropped or did not take; the first two are in fail */
} network_stats;

/* Durations of one run, in seconds. */
typedef struct run_times {
    double input, infer, output;
} run_times;

void stats_add_duration(stats_duration *d, double seconds);
/* A run for `elements` batch elements of n_requests. */
void stats_add_run(network_stats *s, const run_times *times, int64_t elements, int32_t n_requests);

/* One entry of model_stats. */
void stats_write_json(const network_stats *s, const char *name, const char *version, json_text *json);

typedef struct named_stats {
    char name[201], version[24];
    network_stats stats;
} named_stats;
/* The text of /metrics for all networks [n], and replies by hundreds of their status. */
void stats_write_metrics(const named_stats *all, size_t n, const long long replies[6], json_text *out);

#endif
