/*
 * A load generator for servers with OpenAI's HTTP API: sends many concurrent streamed completions and times every
 * piece of text that comes back. One thread.
 */
#ifndef TRM_LAUNCHER_SERVE_LOAD_H
#define TRM_LAUNCHER_SERVE_LOAD_H

#include <stdio.h>

#include <trireme/types.h>

typedef struct load_options {
    const char *url;         /* "http://host:port" or https, optionally with the path before /v1 */
    const char *model;       /* NULL: the first in /v1/models */
    const char *key;         /* for Authorization; NULL: none */
    const char *authorities; /* PEM file of trusted CA certificates; NULL: the system's */
    int32_t requests, concurrency;
    double rate; /* requests per second, at random times; 0: as many as concurrency allows */
    int32_t prompt_tokens, output_tokens;
    bool spread;   /* draw log-normal lengths like those of ShareGPT (means 220 and 200) instead of these, up to the
                      context reported by /v1/models */
    int32_t vocab; /* prompts are random ids below this */
    uint64_t seed;
    double goal_first, goal_token; /* goals for the time to first token and the time per later token, in seconds, for
                                      goodput; 0: none */
    void (*progress)(void *user, int32_t done, int32_t total); /* may be NULL */
    void *progress_user;
} load_options;

/* One request and its result. Times in seconds since the run began. */
typedef struct load_result {
    double sent, first, last; /* first: 0 if no text came */
    int32_t prompt_tokens, output_tokens;
    bool done;
    char error[160]; /* empty: none */
} load_result;

typedef struct load_report {
    load_result *results; /* [n] */
    int32_t n;
    double *gaps; /* between pieces of text of one request, seconds [n_gaps] */
    size_t n_gaps;
    double seconds;
    char model[256];
    load_options options;
} load_report;

/* Errors: INVALID_ARGUMENT (bad URL), IO (the server is unreachable, or refuses everything). */
trm_status load_run(const load_options *options, load_report *report);
void load_report_fini(load_report *report);

typedef struct load_summary {
    double mean, p50, p90, p99;
} load_summary;
typedef struct load_figures {
    int32_t completed, failed;
    int64_t prompt_tokens, output_tokens;
    double requests_per_second, output_per_second, total_per_second,
        goodput;                               /* goodput: requests per second within the goals */
    load_summary first, per_token, gap, whole; /* seconds */
} load_figures;
trm_status load_figures_of(const load_report *report, load_figures *figures);

/* Writes a page with figures and plots, without external files. */
void load_write_html(FILE *out, const load_report *report, const load_figures *figures);

#endif
