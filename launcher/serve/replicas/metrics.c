/* Counters in Prometheus's text format. */
#include "launcher/serve/replicas/metrics.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

static const double seconds_bounds[] = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5,
                                        0.75,  1,     2.5,  5,    7.5,  10,   20,   40,  80,   160};
static const double short_bounds[] = {0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.025, 0.03,
                                      0.04,  0.05,  0.075, 0.1,   0.15,   0.2,  0.3,   0.4,  0.5,   1};
static const double token_bounds[] = {1,   2,    5,    10,   20,    50,    100,   200,
                                      500, 1000, 2000, 5000, 10000, 20000, 50000, 100000};

#define COUNT(array) ((int32_t)(sizeof(array) / sizeof((array)[0])))

void metrics_init(metrics *m)
{
    *m = (metrics){0};
    m->first_token = m->end_to_end = m->queue = m->prefill = m->decode =
        (histogram){.bounds = seconds_bounds, .n_bounds = COUNT(seconds_bounds)};
    m->between_tokens = (histogram){.bounds = short_bounds, .n_bounds = COUNT(short_bounds)};
    m->prompt_size = m->output_size = m->longest_output =
        (histogram){.bounds = token_bounds, .n_bounds = COUNT(token_bounds)};
}

void metrics_add_counters(trm_scheduler_stats *sum, const trm_scheduler_stats *job)
{
    sum->prefix_queries += job->prefix_queries;
    sum->prefix_hits += job->prefix_hits;
    sum->preemptions += job->preemptions;
    sum->steps += job->steps;
    sum->drafted_tokens += job->drafted_tokens;
    sum->accepted_tokens += job->accepted_tokens;
    sum->step_seconds += job->step_seconds;
    sum->wait_seconds += job->wait_seconds;
    sum->device_seconds += job->device_seconds;
    sum->streamed_bytes += job->streamed_bytes;
    sum->unpacked_bytes += job->unpacked_bytes;
    sum->hosted_bytes += job->hosted_bytes;
    sum->expert_hits += job->expert_hits;
    sum->expert_misses += job->expert_misses;
    sum->expert_hosted += job->expert_hosted;
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

void metrics_add_gauges(trm_scheduler_stats *sum, const trm_scheduler_stats *job)
{
    sum->running += job->running;
    sum->waiting += job->waiting;
    sum->blocks += job->blocks;
    sum->block_tokens = job->block_tokens > 0 ? job->block_tokens : sum->block_tokens;
    sum->blocks_used += job->blocks_used;
    sum->blocks_cached += job->blocks_cached;
    sum->last_step_seconds = larger(sum->last_step_seconds, job->last_step_seconds);
    sum->link_rate = larger(sum->link_rate, job->link_rate);
}

void histogram_observe(histogram *h, double value)
{
    int32_t i = 0;
    while (i < h->n_bounds && value > h->bounds[i]) {
        i++;
    }
    h->counts[i]++;
    h->count++;
    h->sum += value;
}

typedef struct writer {
    json_text *out;
    const char *label; /* {model_name="..."} without its closing brace */
} writer;

static void put(writer *w, const char *format, ...) TRM_PRINTF(2, 3);
static void put(writer *w, const char *format, ...)
{
    char line[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    json_literal(w->out, line);
}

static void head(writer *w, const char *name, const char *type, const char *help)
{
    put(w, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void single(writer *w, const char *name, const char *type, const char *help, double value)
{
    head(w, name, type, help);
    put(w, "%s%s} %.17g\n", name, w->label, value);
}

static void put_histogram(writer *w, const char *name, const char *help, const histogram *h)
{
    int64_t below = 0;
    head(w, name, "histogram", help);
    for (int32_t i = 0; i < h->n_bounds; i++) {
        below += h->counts[i];
        put(w, "%s_bucket%s,le=\"%g\"} %lld\n", name, w->label, h->bounds[i], (long long)below);
    }
    put(w, "%s_bucket%s,le=\"+Inf\"} %lld\n", name, w->label, (long long)h->count);
    put(w, "%s_sum%s} %.9g\n%s_count%s} %lld\n", name, w->label, h->sum, name, w->label, (long long)h->count);
}

static void put_engine(writer *w, const metrics *m)
{
    const trm_scheduler_stats *now = &m->engine;
    single(w, "vllm:num_requests_running", "gauge", "sequences in the engine's steps", now->running);
    single(w, "vllm:num_requests_waiting", "gauge", "sequences that wait for a slot", now->waiting);
    double used = now->blocks > 0 ? (double)now->blocks_used / now->blocks : 0;
    single(w, "vllm:kv_cache_usage_perc", "gauge", "fraction of KV cache blocks held by running sequences", used);
    single(w, "vllm:gpu_cache_usage_perc", "gauge", "deprecated name of kv_cache_usage_perc", used);
    head(w, "vllm:cache_config_info", "gauge", "always 1; labels describe the KV cache");
    put(w, "vllm:cache_config_info%s,block_size=\"%d\",num_gpu_blocks=\"%d\"} 1\n", w->label, now->block_tokens,
        now->blocks);
    single(w, "vllm:prefix_cache_queries_total", "counter", "prompt tokens looked up in the prefix cache",
           (double)now->prefix_queries);
    single(w, "vllm:prefix_cache_hits_total", "counter", "prompt tokens found in the prefix cache",
           (double)now->prefix_hits);
    single(w, "vllm:num_preemptions_total", "counter", "sequences that were preempted", (double)now->preemptions);
    single(w, "vllm:spec_decode_num_draft_tokens_total", "counter", "draft tokens verified",
           (double)now->drafted_tokens);
    single(w, "vllm:spec_decode_num_accepted_tokens_total", "counter", "of them right", (double)now->accepted_tokens);
    single(w, "trireme_steps_total", "counter", "engine steps", (double)now->steps);
    single(w, "trireme_step_seconds_total", "counter", "time in steps", now->step_seconds);
    single(w, "trireme_step_wait_seconds_total", "counter", "time of steps spent waiting for the device",
           now->wait_seconds);
    single(w, "trireme_step_device_seconds_total", "counter", "time of steps in which the device of rank 0 was busy",
           now->device_seconds);
    single(w, "trireme_last_step_seconds", "gauge", "duration of the last step", now->last_step_seconds);
    if (now->link_rate > 0) {
        double streamed = (double)now->streamed_bytes, steps = (double)now->steps;
        double share =
            steps > 0 && now->last_step_seconds > 0 ? streamed / steps / now->last_step_seconds / now->link_rate : 0;
        single(w, "trireme_streamed_bytes_total", "counter", "bytes of weights copied to the device of rank 0",
               streamed);
        single(w, "trireme_unpacked_bytes_total", "counter", "bytes of those weights after decompression",
               (double)now->unpacked_bytes);
        single(w, "trireme_hosted_bytes_total", "counter", "bytes of weights read by the CPU of rank 0",
               (double)now->hosted_bytes);
        single(w, "trireme_expert_cache_hits_total", "counter", "experts of steps that were cached on rank 0",
               (double)now->expert_hits);
        single(w, "trireme_expert_cache_misses_total", "counter", "experts of steps that were fetched to rank 0",
               (double)now->expert_misses);
        single(w, "trireme_expert_cache_hosted_total", "counter", "experts of steps that the CPU of rank 0 computed",
               (double)now->expert_hosted);
        single(w, "trireme_link_bytes_per_second", "gauge", "measured bandwidth of the link", now->link_rate);
        single(w, "trireme_last_step_link_share", "gauge", "fraction of the last step in which the link was busy",
               share);
    }
    single(w, "trireme_cache_blocks", "gauge", "KV cache blocks", now->blocks);
    single(w, "trireme_cache_blocks_used", "gauge", "KV cache blocks held by running sequences", now->blocks_used);
    single(w, "trireme_cache_blocks_cached", "gauge", "free KV cache blocks with cached prefixes", now->blocks_cached);
}

static void put_stalls(writer *w, const char *stalls)
{
    double sum = 0;
    head(w, "trireme_layer_weight_wait_seconds", "gauge",
         "time that a layer of rank 0 waited for streamed weights in the last profiled step, one in 64");
    for (const char *line = stalls, *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        char *name;
        double seconds = strtod(line, &name);
        json_text layer = {0};
        char text[512];
        snprintf(text, sizeof(text), "%.*s", (int)(end - name - 1), name + 1);
        json_string(&layer, NULL, text);
        put(w, "trireme_layer_weight_wait_seconds%s,layer=%.*s} %.9f\n", w->label, (int)layer.bytes.size,
            layer.bytes.data, seconds);
        json_text_fini(&layer);
        sum += seconds;
    }
    single(w, "trireme_step_weight_wait_seconds", "gauge", "total of all layers of rank 0", sum);
}

/* Counters that each rank reports with its heartbeats. */
static void put_ranks(writer *w, const metrics *m)
{
    static const struct {
        const char *name, *type, *help;
        size_t offset; /* of a double in heartbeat_times */
        bool exchange; /* only if there are several ranks */
    } rows[] = {
        {"trireme_rank_step_seconds_total", "counter", "time in them", offsetof(heartbeat_times, step), false},
        {"trireme_rank_device_seconds_total", "counter", "time of a rank's steps in which its device was busy",
         offsetof(heartbeat_times, device), false},
        {"trireme_rank_last_step_seconds", "gauge", "duration of a rank's last step",
         offsetof(heartbeat_times, last_step), false},
        {"trireme_rank_sampled_layer_seconds_total", "counter",
         "time of all layers in a rank's profiled steps, one in 1024, one in 64 with streamed weights",
         offsetof(heartbeat_times, layer), true},
        {"trireme_rank_sampled_collective_seconds_total", "counter",
         "time of profiled steps spent in collectives, waiting for other ranks included",
         offsetof(heartbeat_times, collective), true},
        {"trireme_rank_last_collective_seconds", "gauge", "time spent in collectives in the last profiled step",
         offsetof(heartbeat_times, last_collective), true},
    };
    char label[METRICS_MAX_RANKS][48];
    int32_t n = m->ranks * m->replicas;
    n = n < METRICS_MAX_RANKS ? n : METRICS_MAX_RANKS;
    for (int32_t i = 0; i < n; i++) {
        int used = m->replicas > 1 ? snprintf(label[i], sizeof(label[i]), "replica=\"%d\",", i / m->ranks) : 0;
        snprintf(label[i] + used, sizeof(label[i]) - (size_t)used, "rank=\"%d\"", i % m->ranks);
    }
    head(w, "trireme_rank_steps_total", "counter", "steps of a rank since its job started");
    for (int32_t i = 0; i < n; i++) {
        put(w, "trireme_rank_steps_total%s,%s} %llu\n", w->label, label[i], (unsigned long long)m->rank[i].steps);
    }
    for (size_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++) {
        if (rows[k].exchange && m->ranks < 2) {
            continue;
        }
        head(w, rows[k].name, rows[k].type, rows[k].help);
        for (int32_t i = 0; i < n; i++) {
            double value;
            memcpy(&value, (const char *)&m->rank[i].times + rows[k].offset, sizeof(value));
            put(w, "%s%s,%s} %.9g\n", rows[k].name, w->label, label[i], value);
        }
    }
    head(w, "trireme_rank_silent_seconds", "gauge", "time since a rank's last heartbeat");
    for (int32_t i = 0; i < n; i++) {
        put(w, "trireme_rank_silent_seconds%s,%s} %.3f\n", w->label, label[i], m->rank[i].heard_ago);
    }
}

static void put_replicas(writer *w, const metrics *m)
{
    head(w, "trireme_replica_serves", "gauge", "1 if the replica is serving");
    for (int32_t i = 0; i < m->replicas; i++) {
        put(w, "trireme_replica_serves%s,replica=\"%d\"} %d\n", w->label, i, m->replica[i].serves);
    }
    head(w, "trireme_replica_requests_live", "gauge", "live choices of a replica");
    for (int32_t i = 0; i < m->replicas; i++) {
        put(w, "trireme_replica_requests_live%s,replica=\"%d\"} %d\n", w->label, i, m->replica[i].live);
    }
}

static void write_label(const char *model, char *label, size_t size)
{
    json_text name = {0};
    json_string(&name, NULL, model); /* label values are escaped like JSON strings */
    snprintf(label, size, "{model_name=%.*s", (int)name.bytes.size, name.bytes.data);
    json_text_fini(&name);
}

static void write_model(const metrics_source *source, json_text *out)
{
    static const char *const reasons[FINISHED_COUNT] = {"stop", "length", "abort", "error"};
    const metrics *m = source->m;
    char label[512];
    write_label(source->model, label, sizeof(label));
    writer w = {out, label};
    put_engine(&w, m);
    if (*source->stalls != '\0') {
        put_stalls(&w, source->stalls);
    }
    single(&w, "vllm:prompt_tokens_total", "counter", "prompt tokens", (double)m->prompt_tokens);
    single(&w, "vllm:generation_tokens_total", "counter", "tokens generated", (double)m->output_tokens);
    head(&w, "vllm:request_success_total", "counter", "finished requests");
    for (int32_t i = 0; i < FINISHED_COUNT; i++) {
        put(&w, "vllm:request_success_total%s,finished_reason=\"%s\"} %lld\n", label, reasons[i],
            (long long)m->finished[i]);
    }
    put_histogram(&w, "vllm:time_to_first_token_seconds", "time from a request to its first token", &m->first_token);
    put_histogram(&w, "vllm:inter_token_latency_seconds", "time between tokens of a request", &m->between_tokens);
    put_histogram(&w, "vllm:time_per_output_token_seconds", "deprecated name of inter_token_latency_seconds",
                  &m->between_tokens);
    put_histogram(&w, "vllm:e2e_request_latency_seconds", "time from a request to its last token", &m->end_to_end);
    put_histogram(&w, "vllm:request_queue_time_seconds", "time from a request to its first step", &m->queue);
    put_histogram(&w, "vllm:request_prefill_time_seconds", "time from a request's first step to its first token",
                  &m->prefill);
    put_histogram(&w, "vllm:request_decode_time_seconds", "time from a request's first token to its last", &m->decode);
    put_histogram(&w, "vllm:request_prompt_tokens", "tokens per prompt", &m->prompt_size);
    put_histogram(&w, "vllm:request_generation_tokens", "tokens generated per request", &m->output_size);
    put_histogram(&w, "vllm:request_max_num_generation_tokens", "tokens generated by the longest choice of a request",
                  &m->longest_output);
    put_replicas(&w, m);
    put_ranks(&w, m);
    single(&w, "trireme_restarts_total", "counter", "jobs restarted after a rank was lost", (double)m->restarts);
    single(&w, "trireme_last_recovery_seconds", "gauge", "time from the last loss of a rank until serving again",
           m->recovery_seconds);
    single(&w, "trireme_requests_refused_total", "counter", "requests refused because of limits", (double)m->refused);
    single(&w, "trireme_clients_gone_total", "counter", "clients that disconnected before their reply",
           (double)m->gone);
    single(&w, "trireme_requests_live", "gauge", "live choices in the server", m->live);
}

static void write_server(const metrics *m, const char *model, json_text *out)
{
    char label[512];
    write_label(model, label, sizeof(label));
    writer w = {out, label};
    single(&w, "trireme_connections", "gauge", "open connections", m->connections);
    head(&w, "trireme_http_replies_total", "counter", "replies by class of status");
    for (int32_t i = 1; i < 6; i++) {
        put(&w, "trireme_http_replies_total%s,status=\"%dxx\"} %lld\n", label, i, (long long)m->replies[i]);
    }
}

#define HEAD "# HELP "

/* The end of the metric that begins at `text`: the next one, or the end of the text. */
static const char *metric_end(const char *text)
{
    const char *next = strstr(text + 1, "\n" HEAD);
    return next != NULL ? next + 1 : text + strlen(text);
}

/* Finds the metric that has the name of the one at `metric`. NULL if the text has no such metric. */
static const char *find_metric(const char *text, const char *metric)
{
    const size_t size = strlen(HEAD) + strcspn(metric + strlen(HEAD), " ") + 1;
    for (const char *at = text; *at != '\0'; at = metric_end(at)) {
        if (strncmp(at, metric, size) == 0) {
            return at;
        }
    }
    return NULL;
}

static void append(json_text *out, const char *data, size_t size)
{
    out->status = out->status == TRM_OK ? trm_bytes_append(&out->bytes, data, size) : out->status;
}

/* Joins the texts [n], each with every metric once: a metric of all must stand together, with one head. */
static void join(const char *const *texts, int32_t n, json_text *out)
{
    for (int32_t i = 0; i < n; i++) {
        for (const char *at = texts[i]; *at != '\0'; at = metric_end(at)) {
            bool written = false;
            for (int32_t k = 0; k < i && !written; k++) {
                written = find_metric(texts[k], at) != NULL;
            }
            if (written) {
                continue;
            }
            append(out, at, (size_t)(metric_end(at) - at));
            for (int32_t k = i + 1; k < n; k++) {
                const char *other = find_metric(texts[k], at), *samples = other;
                for (int line = 0; line < 2 && samples != NULL; line++) { /* without HELP and TYPE */
                    samples = strchr(samples, '\n') + 1;
                }
                if (other != NULL) {
                    append(out, samples, (size_t)(metric_end(other) - samples));
                }
            }
        }
    }
}

void metrics_write(const metrics_source *models, int32_t n, json_text *out)
{
    json_text *parts = calloc((size_t)n, sizeof(*parts));
    const char **texts = calloc((size_t)n, sizeof(*texts));
    if (parts == NULL || texts == NULL) {
        out->status = trm_fail(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the metrics of %d models", n);
    }
    for (int32_t i = 0; i < n && out->status == TRM_OK; i++) {
        write_model(&models[i], &parts[i]);
        append(&parts[i], "", 1);
        texts[i] = parts[i].bytes.data;
        out->status = parts[i].status;
    }
    if (out->status == TRM_OK) {
        join(texts, n, out);
        write_server(models[0].m, n == 1 ? models[0].model : "", out);
    }
    for (int32_t i = 0; parts != NULL && i < n; i++) {
        json_text_fini(&parts[i]);
    }
    free(parts);
    free(texts);
}
