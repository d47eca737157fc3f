/* Statistics of served networks. */
#include "launcher/serve/network/network_stats.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <time.h>

void stats_add_duration(stats_duration *d, double seconds)
{
    d->count++;
    d->ns += seconds > 0 ? (uint64_t)(seconds * 1e9) : 0;
}

static stats_batch *find_batch(network_stats *s, int64_t size)
{
    for (int32_t i = 0; i < s->n_batches; i++) {
        if (s->batches[i].size == size) {
            return &s->batches[i];
        }
    }
    if (s->n_batches < NETWORK_STATS_BATCHES) {
        s->batches[s->n_batches++].size = size;
    }
    return &s->batches[s->n_batches - 1];
}

void stats_add_run(network_stats *s, const run_times *times, int64_t elements, int32_t n_requests)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    s->last_inference = (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
    s->execution_count++;
    s->inference_count += (uint64_t)elements;
    for (int32_t i = 0; i < n_requests; i++) {
        stats_add_duration(&s->input, times->input);
        stats_add_duration(&s->infer, times->infer);
        stats_add_duration(&s->output, times->output);
    }
    stats_batch *batch = find_batch(s, elements);
    stats_add_duration(&batch->input, times->input);
    stats_add_duration(&batch->infer, times->infer);
    stats_add_duration(&batch->output, times->output);
}

static void write_duration(json_text *json, const char *key, const stats_duration *d)
{
    json_object(json, key);
    json_integer(json, "count", (int64_t)d->count);
    json_integer(json, "ns", (int64_t)d->ns);
    json_end_object(json);
}

void stats_write_json(const network_stats *s, const char *name, const char *version, json_text *json)
{
    static const stats_duration none;
    json_object(json, NULL);
    json_string(json, "name", name);
    json_string(json, "version", version);
    json_integer(json, "last_inference", s->last_inference);
    json_integer(json, "inference_count", (int64_t)s->inference_count);
    json_integer(json, "execution_count", (int64_t)s->execution_count);
    json_object(json, "inference_stats");
    write_duration(json, "success", &s->success);
    write_duration(json, "fail", &s->fail);
    write_duration(json, "queue", &s->queue);
    write_duration(json, "compute_input", &s->input);
    write_duration(json, "compute_infer", &s->infer);
    write_duration(json, "compute_output", &s->output);
    write_duration(json, "cache_hit", &none);
    write_duration(json, "cache_miss", &none);
    json_end_object(json);
    json_array(json, "batch_stats");
    for (int32_t i = 0; i < s->n_batches; i++) {
        json_object(json, NULL);
        json_integer(json, "batch_size", s->batches[i].size);
        write_duration(json, "compute_input", &s->batches[i].input);
        write_duration(json, "compute_infer", &s->batches[i].infer);
        write_duration(json, "compute_output", &s->batches[i].output);
        json_end_object(json);
    }
    json_end_array(json);
    json_end_object(json);
}

typedef struct metric_row {
    const char *name, *type, *help;
    size_t offset; /* in network_stats */
    enum { WIDE, NARROW, NANOSECONDS } form;
} metric_row;

#define AT(member) offsetof(network_stats, member)
static const metric_row metric_rows[] = {
    {"nv_inference_request_success", "counter", "requests answered", AT(success.count), WIDE},
    {"nv_inference_request_failure", "counter", "requests that failed", AT(fail.count), WIDE},
    {"nv_inference_count", "counter", "batch elements computed", AT(inference_count), WIDE},
    {"nv_inference_exec_count", "counter", "runs of the network", AT(execution_count), WIDE},
    {"nv_inference_request_duration_us", "counter", "time of answered requests", AT(success.ns), NANOSECONDS},
    {"nv_inference_queue_duration_us", "counter", "time that requests waited", AT(queue.ns), NANOSECONDS},
    {"nv_inference_compute_input_duration_us", "counter", "time to set inputs", AT(input.ns), NANOSECONDS},
    {"nv_inference_compute_infer_duration_us", "counter", "time of runs", AT(infer.ns), NANOSECONDS},
    {"nv_inference_compute_output_duration_us", "counter", "time to write outputs", AT(output.ns), NANOSECONDS},
    {"nv_inference_pending_request_count", "gauge", "requests that wait", AT(waiting), NARROW},
    {"trireme_network_requests_refused_total", "counter", "requests refused by a full queue", AT(refused), WIDE},
    {"trireme_network_requests_expired_total", "counter", "requests that waited past their timeout", AT(expired), WIDE},
    {"trireme_network_requests_cancelled_total", "counter", "requests whose client left", AT(cancelled), WIDE},
    {"trireme_network_running", "gauge", "instances that run", AT(running), NARROW},
    {"trireme_network_instances", "gauge", "instances of the network", AT(instances), NARROW},
};

/* A label's value: backslash, quote and newline are escaped. */
static void write_label(json_text *out, const char *value)
{
    for (; *value != '\0'; value++) {
        const char plain[2] = {*value, '\0'};
        json_literal(out, *value == '\\' ? "\\\\" : *value == '"' ? "\\\"" : *value == '\n' ? "\\n" : plain);
    }
}

void stats_write_metrics(const named_stats *all, size_t n, const long long replies[6], json_text *out)
{
    char text[160];
    for (size_t r = 0; r < sizeof(metric_rows) / sizeof(metric_rows[0]); r++) {
        const metric_row *row = &metric_rows[r];
        snprintf(text, sizeof(text), "# HELP %s %s\n# TYPE %s ", row->name, row->help, row->name);
        json_literal(out, text);
        json_literal(out, row->type);
        json_literal(out, "\n");
        for (size_t i = 0; i < n; i++) {
            const char *at = (const char *)&all[i].stats + row->offset;
            const uint64_t value = row->form == NARROW
                                       ? (uint64_t) * (const int32_t *)(const void *)at
                                       : *(const uint64_t *)(const void *)at / (row->form == NANOSECONDS ? 1000 : 1);
            json_literal(out, row->name);
            json_literal(out, "{model=\"");
            write_label(out, all[i].name);
            json_literal(out, "\",version=\"");
            write_label(out, all[i].version);
            snprintf(text, sizeof(text), "\"} %" PRIu64 "\n", value);
            json_literal(out, text);
        }
    }
    json_literal(out, "# HELP trireme_http_replies_total HTTP replies by status\n"
                      "# TYPE trireme_http_replies_total counter\n");
    for (int i = 1; i < 6; i++) {
        snprintf(text, sizeof(text), "trireme_http_replies_total{status=\"%dxx\"} %lld\n", i, replies[i]);
        json_literal(out, text);
    }
}
