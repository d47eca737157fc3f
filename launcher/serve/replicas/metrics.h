/*
 * Counters of the server and their Prometheus form. Names are vLLM's if it has one, so that dashboards made for it
 * work; ours begin with trireme_. One thread counts; readers copy under a lock.
 */
#ifndef TRM_LAUNCHER_SERVE_REPLICAS_METRICS_H
#define TRM_LAUNCHER_SERVE_REPLICAS_METRICS_H

#include <trireme/serving.h>

#include "launcher/serve/ipc/heartbeat.h"
#include "launcher/serve/ipc/ipc_frames.h"
#include "launcher/serve/json/json_text.h"
#include "launcher/serve/replicas/router.h"

#define METRICS_MAX_BUCKETS 20
#define METRICS_MAX_RANKS   64 /* of all replicas */

typedef struct histogram {
    const double *bounds; /* [n_bounds], ascending */
    int32_t n_bounds;
    int64_t counts[METRICS_MAX_BUCKETS + 1];
    int64_t count;
    double sum;
} histogram;

void histogram_observe(histogram *h, double value);

typedef enum metrics_finish {
    FINISHED_STOP,
    FINISHED_LENGTH,
    FINISHED_ABORT,
    FINISHED_ERROR,
    FINISHED_COUNT
} metrics_finish;

typedef struct metrics {
    trm_scheduler_stats engine; /* of all replicas together, counters since the server's start */
    int32_t live;               /* choices in the front end */
    int64_t prompt_tokens, output_tokens, finished[FINISHED_COUNT], restarts, refused, gone;
    int64_t replies[6]; /* HTTP replies by hundreds of their status */
    histogram first_token, between_tokens, end_to_end, queue, prefill, decode, prompt_size, output_size;
    histogram longest_output; /* of a request's choices */
    int32_t connections;
    int32_t replicas, ranks; /* ranks of each */
    struct {
        bool serves;
        int32_t live; /* choices that it has */
    } replica[ROUTER_MAX_REPLICAS];
    struct {
        uint64_t steps;
        heartbeat_times times;
        double heard, heard_ago; /* time of its last heartbeat on supervisor_clock, 0: none; and seconds since then */
    } rank[METRICS_MAX_RANKS];   /* ranks of the first replica, then those of the next */
    double recovery_seconds;     /* duration of the last one */
} metrics;

void metrics_init(metrics *m);
/* Add a job's counters since its start, and its gauges. Durations of a last step combine to the longest. */
void metrics_add_counters(trm_scheduler_stats *sum, const trm_scheduler_stats *job);
void metrics_add_gauges(trm_scheduler_stats *sum, const trm_scheduler_stats *job);
/* A model: its counters, its name, and its layers' waits for weights in the form of ipc_stalls. */
typedef struct metrics_source {
    const metrics *m;
    const char *model, *stalls;
} metrics_source;

/* Writes the text of /metrics. What the server counts for all `n` models is written once, with the name of the model
 * if there is one, otherwise with an empty name, which is as none. */
void metrics_write(const metrics_source *models, int32_t n, json_text *out);

#endif
