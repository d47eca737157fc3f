/* Statistics of a load run, and a page with plots. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/unit.h"
#include "launcher/serve/load/load.h"

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Nearest rank. */
static double percentile(const double *sorted, size_t n, double share)
{
    size_t at = (size_t)(share * (double)n);
    return n == 0 ? 0 : sorted[at < n ? at : n - 1];
}

static load_summary summarize(double *values, size_t n)
{
    load_summary s = {0};
    qsort(values, n, sizeof(*values), compare);
    for (size_t i = 0; i < n; i++) {
        s.mean += values[i] / (double)n;
    }
    s.p50 = percentile(values, n, 0.5);
    s.p90 = percentile(values, n, 0.9);
    s.p99 = percentile(values, n, 0.99);
    return s;
}

static bool succeeded(const load_result *r)
{
    return r->done && r->error[0] == '\0' && r->first > 0;
}

static double per_token(const load_result *r)
{
    return r->output_tokens > 1 ? (r->last - r->first) / (r->output_tokens - 1) : 0;
}

/* Collects one value of every successful request; returns their number. */
typedef enum column { FIRST, PER_TOKEN, WHOLE } column;
static size_t collect(const load_report *report, column which, double *values)
{
    size_t n = 0;
    for (int32_t i = 0; i < report->n; i++) {
        const load_result *r = &report->results[i];
        if (succeeded(r) && (which != PER_TOKEN || r->output_tokens > 1)) {
            values[n++] = which == FIRST ? r->first - r->sent : which == WHOLE ? r->last - r->sent : per_token(r);
        }
    }
    return n;
}

trm_status load_figures_of(const load_report *report, load_figures *figures)
{
    size_t most = report->n_gaps > (size_t)report->n ? report->n_gaps : (size_t)report->n;
    double *values = malloc((most + 1) * sizeof(*values));
    int32_t good = 0;
    if (values == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %zu times", most);
    }
    load_figures f = {0};
    for (int32_t i = 0; i < report->n; i++) {
        const load_result *r = &report->results[i];
        if (!succeeded(r)) {
            f.failed++;
            continue;
        }
        f.completed++;
        f.prompt_tokens += r->prompt_tokens;
        f.output_tokens += r->output_tokens;
        good += (report->options.goal_first <= 0 || r->first - r->sent <= report->options.goal_first) &&
                (report->options.goal_token <= 0 || per_token(r) <= report->options.goal_token);
    }
    double seconds = report->seconds > 0 ? report->seconds : 1e-9;
    f.requests_per_second = f.completed / seconds;
    f.output_per_second = (double)f.output_tokens / seconds;
    f.total_per_second = (double)(f.output_tokens + f.prompt_tokens) / seconds;
    f.goodput = good / seconds;
    f.first = summarize(values, collect(report, FIRST, values));
    f.per_token = summarize(values, collect(report, PER_TOKEN, values));
    f.whole = summarize(values, collect(report, WHOLE, values));
    if (report->n_gaps > 0) {
        memcpy(values, report->gaps, report->n_gaps * sizeof(*values));
    }
    f.gap = summarize(values, report->n_gaps);
    free(values);
    *figures = f;
    return TRM_OK;
}

enum { PLOT_WIDTH = 560, PLOT_HEIGHT = 160 };

/* Plots the share of sorted values [n], in seconds, below each time; the axis ends at the 99.5th percentile. */
static void plot_shares(FILE *out, const char *title, double *values, size_t n)
{
    qsort(values, n, sizeof(*values), compare);
    double most = percentile(values, n, 0.995);
    fprintf(out, "<h2>%s</h2><svg viewBox='-50 -10 %d %d'><path d='M0 0V%dH%d' class='axis'/><polyline points='", title,
            PLOT_WIDTH + 70, PLOT_HEIGHT + 40, PLOT_HEIGHT, PLOT_WIDTH);
    for (int32_t i = 0; i <= 200 && n > 0 && most > 0; i++) {
        double value = percentile(values, n, 0.995 * i / 200);
        fprintf(out, "%.1f,%.1f ", PLOT_WIDTH * value / most, PLOT_HEIGHT * (1 - 0.995 * i / 200));
    }
    fprintf(out,
            "'/><text x='-45' y='8'>100 %%</text><text x='-45' y='%d'>0 %%</text><text x='0' y='%d'>0</text>"
            "<text x='%d' y='%d' text-anchor='end'>%.3g ms</text></svg>\n",
            PLOT_HEIGHT, PLOT_HEIGHT + 20, PLOT_WIDTH, PLOT_HEIGHT + 20, most * 1000);
}

/* Plots the number of requests in flight over time. */
static void plot_flight(FILE *out, const load_report *report)
{
    enum { STEPS = 200 };
    int32_t most = 1, counts[STEPS + 1] = {0};
    for (int32_t i = 0; i <= STEPS; i++) {
        double at = report->seconds * i / STEPS;
        for (int32_t k = 0; k < report->n; k++) {
            const load_result *r = &report->results[k];
            counts[i] += r->sent <= at && r->last > at;
        }
        most = counts[i] > most ? counts[i] : most;
    }
    fprintf(
        out,
        "<h2>Requests in flight</h2><svg viewBox='-50 -10 %d %d'><path d='M0 0V%dH%d' class='axis'/><polyline points='",
        PLOT_WIDTH + 70, PLOT_HEIGHT + 40, PLOT_HEIGHT, PLOT_WIDTH);
    for (int32_t i = 0; i <= STEPS; i++) {
        fprintf(out, "%.1f,%.1f ", (double)PLOT_WIDTH * i / STEPS, PLOT_HEIGHT * (1 - (double)counts[i] / most));
    }
    fprintf(out,
            "'/><text x='-45' y='8'>%d</text><text x='-45' y='%d'>0</text><text x='%d' y='%d' "
            "text-anchor='end'>%.3g s</text></svg>\n",
            most, PLOT_HEIGHT, PLOT_WIDTH, PLOT_HEIGHT + 20, report->seconds);
}

static void write_row(FILE *out, const char *name, const load_summary *s)
{
    fprintf(out, "<tr><td>%s</td><td>%.2f</td><td>%.2f</td><td>%.2f</td><td>%.2f</td></tr>\n", name, s->mean * 1000,
            s->p50 * 1000, s->p90 * 1000, s->p99 * 1000);
}

static void write_escaped(FILE *out, const char *text)
{
    for (; *text != '\0'; text++) {
        if (*text == '<' || *text == '>' || *text == '&') {
            fprintf(out, "&#%d;", *text);
        } else {
            fputc(*text, out);
        }
    }
}

void load_write_html(FILE *out, const load_report *report, const load_figures *f)
{
    const load_options *o = &report->options;
    fputs("<!DOCTYPE html><html lang='en'><meta charset='utf-8'><title>Load on ", out);
    write_escaped(out, report->model);
    fputs("</title><style>body{font:15px/1.5 system-ui,sans-serif;max-width:44rem;margin:2rem auto;padding:0 1rem}"
          "table{border-collapse:collapse}td,th{padding:.1rem .8rem;text-align:right}td:first-child{text-align:left}"
          "svg{width:100%}.axis{fill:none;stroke:#888}polyline{fill:none;stroke:#0b6e8f;stroke-width:2}text{font-size:"
          "11px}"
          "h2{font-size:1rem}</style><h1>Load on ",
          out);
    write_escaped(out, report->model);
    fprintf(out, "</h1><p>%d requests, at most %d concurrent", report->n, o->concurrency);
    if (o->rate > 0) {
        fprintf(out, ", %g a second", o->rate);
    }
    if (o->spread) {
        fputs(", lengths drawn", out);
    } else {
        fprintf(out, ", %d tokens of prompt and %d of output", o->prompt_tokens, o->output_tokens);
    }
    fprintf(
        out,
        "; seed %llu; %.2f "
        "s.</p>\n<table><tr><td>completed</td><td>%d</td></tr><tr><td>failed</td><td>%d</td></tr><tr><td>requests/s</"
        "td><td>%s</td></tr><tr><td>output tokens/s</td><td>%s</td></tr><tr><td>total tokens/s</td><td>%s</td></tr>",
        (unsigned long long)o->seed, report->seconds, f->completed, f->failed,
        trm_number_text(f->requests_per_second, 2).text, trm_number_text(f->output_per_second, 1).text,
        trm_number_text(f->total_per_second, 1).text);
    if (o->goal_first > 0 || o->goal_token > 0) {
        fprintf(out, "<tr><td>requests/s within the goals</td><td>%s</td></tr>", trm_number_text(f->goodput, 2).text);
    }
    fputs("</table>\n<table><tr><th>ms</th><th>mean</th><th>p50</th><th>p90</th><th>p99</th></tr>\n", out);
    write_row(out, "first token", &f->first);
    write_row(out, "per later token", &f->per_token);
    write_row(out, "between pieces", &f->gap);
    write_row(out, "whole request", &f->whole);
    fputs("</table>\n", out);
    double *values = malloc(((size_t)report->n + 1) * sizeof(*values));
    if (values != NULL) {
        plot_shares(out, "First token", values, collect(report, FIRST, values));
        plot_shares(out, "Per later token", values, collect(report, PER_TOKEN, values));
        plot_shares(out, "Whole request", values, collect(report, WHOLE, values));
    }
    free(values);
    plot_flight(out, report);
    fputs("</html>\n", out);
}
