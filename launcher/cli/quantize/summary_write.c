/* Reports as JSON, as a page, and as text. */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/unit.h"
#include "launcher/cli/job/report.h"
#include "launcher/cli/quantize/summary.h"

static bool ends_with(const char *name, const char *end)
{
    const size_t size = strlen(name), n = strlen(end);
    return size >= n && strcmp(name + size - n, end) == 0;
}

trm_status quantize_summary_check_path(const char *path)
{
    if (!ends_with(path, ".json") && !ends_with(path, ".html") && !ends_with(path, ".txt")) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "report is %s, expected a name that ends in .json, .html or .txt", path);
    }
    return TRM_OK;
}

/* ---- JSON ---------------------------------------------------------------------------------------------------------
 */

static void write_json_text(report *r, const evaluation *e)
{
    report_open(r, "text", '{');
    report_integer(r, "tokens", e->tokens);
    report_number(r, "perplexity_before", e->perplexity_before);
    report_number(r, "perplexity_after", e->perplexity_after);
    report_number(r, "divergence", e->divergence);
    report_number(r, "agreement", e->agreement);
    report_number(r, "tokens_per_second_before", e->rate_before);
    report_number(r, "tokens_per_second_after", e->rate_after);
    report_close(r);
}

static void write_json(const quantize_summary *summary, const quantize_totals *t, FILE *out)
{
    report r;
    report_begin(&r, out);
    report_text(&r, "model", summary->model);
    report_text(&r, "folder", summary->folder);
    report_text(&r, "weights", summary->weights);
    report_text(&r, "method", summary->method->text);
    report_integer(&r, "bytes_before", t->before);
    report_integer(&r, "bytes_after", t->after);
    report_number(&r, "error", t->mean);
    report_integer(&r, "sample_tokens", summary->samples);
    report_integer(&r, "layers_by_samples", summary->chosen);
    report_integer(&r, "layers_without_samples", summary->without);
    report_integer(&r, "inputs_with_factors", summary->rescaled);
    if (summary->text.tokens > 0) {
        write_json_text(&r, &summary->text);
    }
    report_open(&r, "layers", '[');
    for (size_t i = 0; i < summary->count; i++) {
        const trm_quantized_layer *layer = &summary->layers[i].layer;
        report_open(&r, NULL, '{');
        report_text(&r, "name", layer->name);
        report_integer(&r, "rows", layer->rows);
        report_integer(&r, "columns", layer->columns);
        report_integer(&r, "bytes_before", layer->bytes_before);
        report_integer(&r, "bytes_after", layer->bytes_after);
        report_number(&r, "error", layer->error);
        if (summary->layers[i].output_error >= 0.0) {
            report_number(&r, "output_error", summary->layers[i].output_error);
        }
        report_close(&r);
    }
    report_close(&r);
    if (summary->n_parts > 0) {
        report_open(&r, "sensitivity", '[');
    }
    for (int32_t i = 0; i < summary->n_parts; i++) {
        report_open(&r, NULL, '{');
        report_text(&r, "layers", summary->parts[i].pattern);
        report_number(&r, "divergence", summary->parts[i].divergence);
        report_close(&r);
    }
    if (summary->n_parts > 0) {
        report_close(&r);
    }
    report_end(&r);
}

/* ---- page ---------------------------------------------------------------------------------------------------------
 */

/* Text in a page. */
static void put_escaped(const char *text, FILE *out)
{
    for (; *text != '\0'; text++) {
        if (strchr("<>&\"'", *text) != NULL) {
            fprintf(out, "&#%d;", (int)*text);
        } else {
            fputc(*text, out);
        }
    }
}

/* A bar for each value, in the order of the model, with its name as a tooltip. */
typedef struct plot {
    const char *title, *unit;
    size_t n;
    double (*value)(const quantize_summary *summary, size_t i);
    const char *(*name)(const quantize_summary *summary, size_t i);
} plot;

#define PLOT_WIDTH  900.0
#define PLOT_HEIGHT 160.0

static void write_plot(const quantize_summary *summary, const plot *p, FILE *out)
{
    double most = 0.0;
    for (size_t i = 0; i < p->n; i++) {
        most = fmax(most, p->value(summary, i));
    }
    most = most > 0.0 ? most : 1.0;
    const double step = PLOT_WIDTH / (double)p->n;
    fprintf(out,
            "<h2>%s</h2>\n<svg viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" height=\"%.0f\" role=\"img\">\n"
            "<text x=\"0\" y=\"12\">%s %s</text>\n<line x1=\"0\" x2=\"%.0f\" y1=\"%.0f\" y2=\"%.0f\"/>\n",
            p->title, PLOT_WIDTH, PLOT_HEIGHT + 20.0, PLOT_WIDTH, PLOT_HEIGHT + 20.0, trm_number_text(most, 4).text,
            p->unit, PLOT_WIDTH, PLOT_HEIGHT + 18.0, PLOT_HEIGHT + 18.0);
    for (size_t i = 0; i < p->n; i++) {
        const double value = p->value(summary, i), height = fmax(value, 0.0) / most * PLOT_HEIGHT;
        fprintf(out, "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\"><title>", step * (double)i,
                PLOT_HEIGHT + 18.0 - height, fmax(step - 1.0, 0.5), height);
        put_escaped(p->name(summary, i), out);
        fprintf(out, ": %s %s</title></rect>\n", trm_number_text(value, 4).text, p->unit);
    }
    fputs("</svg>\n", out);
}

static double error_of(const quantize_summary *summary, size_t i)
{
    return 100.0 * summary->layers[i].layer.error;
}

static double output_error_of(const quantize_summary *summary, size_t i)
{
    return 100.0 * summary->layers[i].output_error;
}

static const char *layer_of(const quantize_summary *summary, size_t i)
{
    return summary->layers[i].layer.name;
}

static double divergence_of(const quantize_summary *summary, size_t i)
{
    return summary->parts[i].divergence;
}

static const char *part_of(const quantize_summary *summary, size_t i)
{
    return summary->parts[i].pattern;
}

static void write_plots(const quantize_summary *summary, FILE *out)
{
    const plot errors = {"Error of weights", "%", summary->count, error_of, layer_of},
               outputs = {"Error of outputs on samples", "%", summary->count, output_error_of, layer_of},
               parts = {"Divergence with this layer quantized alone", "nats", (size_t)summary->n_parts, divergence_of,
                        part_of};
    write_plot(summary, &errors, out);
    if (summary->samples > 0) {
        write_plot(summary, &outputs, out);
    }
    if (summary->n_parts > 0) {
        write_plot(summary, &parts, out);
    }
}

/* Both models side by side. */
static void write_comparison(const quantize_summary *summary, const quantize_totals *t, FILE *out)
{
    const evaluation *e = &summary->text;
    fprintf(
        out,
        "<table>\n<tr><th></th><th>before</th><th>after</th></tr>\n<tr><td>layers</td><td>%s</td><td>%s</td></tr>\n",
        trm_size_text((double)t->before).text, trm_size_text((double)t->after).text);
    if (e->tokens > 0) {
        fprintf(out,
                "<tr><td>perplexity</td><td>%s</td><td>%s</td></tr>\n<tr><td>prompts, "
                "tok/s</td><td>%s</td><td>%s</td></tr>\n",
                trm_number_text(e->perplexity_before, 3).text, trm_number_text(e->perplexity_after, 3).text,
                trm_number_text(e->rate_before, 0).text, trm_number_text(e->rate_after, 0).text);
    }
    fputs("</table>\n", out);
}

static void write_rows(const quantize_summary *summary, FILE *out)
{
    fputs("<h2>Layers</h2>\n<table>\n<tr><th>layer</th><th>dims</th><th>before</th><th>after</th><th>error</th>"
          "<th>of outputs</th></tr>\n",
          out);
    for (size_t i = 0; i < summary->count; i++) {
        const trm_quantized_layer *layer = &summary->layers[i].layer;
        const double output = summary->layers[i].output_error;
        fputs("<tr><td>", out);
        put_escaped(layer->name, out);
        fprintf(out, "</td><td>%lld x %lld</td><td>%s</td><td>%s</td><td>%s %%</td><td>%s%s</td></tr>\n",
                (long long)layer->rows, (long long)layer->columns, trm_size_text((double)layer->bytes_before).text,
                trm_size_text((double)layer->bytes_after).text, trm_number_text(100.0 * layer->error, 3).text,
                output >= 0.0 ? trm_number_text(100.0 * output, 3).text : "", output >= 0.0 ? " %" : "");
    }
    fputs("</table>\n", out);
}

static void write_html(const quantize_summary *summary, const quantize_totals *t, FILE *out)
{
    char text[512];
    fputs("<!doctype html>\n<meta charset=\"utf-8\">\n<title>Quantized model</title>\n"
          "<style>body{font:14px sans-serif}td,th{padding:2px 12px;text-align:right}"
          "td:first-child,th:first-child{text-align:left}rect{fill:#36c}line{stroke:#888}text{font-size:12px}"
          "</style>\n<h1>",
          out);
    put_escaped(summary->model, out);
    fputs(" in ", out);
    put_escaped(summary->weights, out);
    fprintf(out, "</h1>\n<p>Method: %s. Mean error %s %%.</p>\n", summary->method->text,
            trm_number_text(100.0 * t->mean, 3).text);
    quantize_summary_describe_method(summary, text, sizeof(text));
    fprintf(out, "<p>%s</p>\n", text);
    quantize_summary_describe_text(summary, text, sizeof(text));
    fprintf(out, "<p>%s</p>\n", text);
    write_comparison(summary, t, out);
    write_plots(summary, out);
    write_rows(summary, out);
}

/* ---- text ---------------------------------------------------------------------------------------------------------
 */

static void write_text(const quantize_summary *summary, const quantize_totals *t, FILE *out)
{
    char text[512];
    fprintf(out, "%s in %s: %s became %s, mean error %s %%\n", summary->model, summary->weights,
            trm_size_text((double)t->before).text, trm_size_text((double)t->after).text,
            trm_number_text(100.0 * t->mean, 3).text);
    quantize_summary_describe_method(summary, text, sizeof(text));
    fprintf(out, "%s\n", text);
    quantize_summary_describe_text(summary, text, sizeof(text));
    fprintf(out, "%s\n", text);
    for (size_t i = 0; i < summary->count; i++) {
        const trm_quantized_layer *layer = &summary->layers[i].layer;
        fprintf(out, "%8s %%  %8lld x %-8lld %12s  %s\n", trm_number_text(100.0 * layer->error, 3).text,
                (long long)layer->rows, (long long)layer->columns, trm_size_text((double)layer->bytes_after).text,
                layer->name);
    }
    for (int32_t i = 0; i < summary->n_parts; i++) {
        fprintf(out, "%12s nats  %s\n", trm_number_text(summary->parts[i].divergence, 6).text,
                summary->parts[i].pattern);
    }
}

void quantize_summary_write(const quantize_summary *summary, const char *path, FILE *out)
{
    const quantize_totals t = quantize_summary_totals(summary);
    if (ends_with(path, ".json")) {
        write_json(summary, &t, out);
    } else if (ends_with(path, ".html")) {
        write_html(summary, &t, out);
    } else {
        write_text(summary, &t, out);
    }
}
