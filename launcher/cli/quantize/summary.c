/* Reports as JSON, as a page, and as text. */
#include "launcher/cli/quantize/summary.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/unit.h"
#include "launcher/cli/job/report.h"

bool quantize_summary_add(quantize_summary *summary, const trm_quantized_layer *layer)
{
    if (summary->count == summary->room) {
        const size_t room = summary->room == 0 ? 256 : 2 * summary->room;
        trm_quantized_layer *layers = realloc(summary->layers, room * sizeof(*layers));
        if (layers == NULL) {
            return false;
        }
        summary->layers = layers;
        summary->room = room;
    }
    trm_quantized_layer *to = &summary->layers[summary->count];
    *to = *layer;
    to->name = strdup(layer->name);
    summary->count += to->name != NULL ? 1 : 0;
    return to->name != NULL;
}

void quantize_summary_fini(quantize_summary *summary)
{
    for (size_t i = 0; i < summary->count; i++) {
        free((char *)summary->layers[i].name);
    }
    free(summary->layers);
    *summary = (quantize_summary){0};
}

quantize_totals quantize_summary_totals(const quantize_summary *summary)
{
    quantize_totals t = {.worst_name = ""};
    double weights = 0.0;
    for (size_t i = 0; i < summary->count; i++) {
        const trm_quantized_layer *layer = &summary->layers[i];
        const double count = (double)layer->rows * (double)layer->columns;
        t.before += layer->bytes_before;
        t.after += layer->bytes_after;
        t.mean += layer->error * count;
        weights += count;
        if (layer->error >= t.worst) {
            t.worst = layer->error;
            t.worst_name = layer->name;
        }
    }
    t.mean = weights > 0.0 ? t.mean / weights : 0.0;
    return t;
}

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

static void write_json(const quantize_summary *summary, const quantize_totals *t, FILE *out)
{
    report r;
    report_begin(&r, out);
    report_text(&r, "model", summary->model);
    report_text(&r, "folder", summary->folder);
    report_text(&r, "weights", summary->weights);
    report_integer(&r, "bytes_before", t->before);
    report_integer(&r, "bytes_after", t->after);
    report_number(&r, "error", t->mean);
    report_integer(&r, "layers_by_samples", summary->chosen);
    if (summary->text.tokens > 0) {
        report_open(&r, "text", '{');
        report_integer(&r, "tokens", summary->text.tokens);
        report_number(&r, "perplexity_before", summary->text.perplexity_before);
        report_number(&r, "perplexity_after", summary->text.perplexity_after);
        report_number(&r, "divergence", summary->text.divergence);
        report_number(&r, "agreement", summary->text.agreement);
        report_close(&r);
    }
    report_open(&r, "layers", '[');
    for (size_t i = 0; i < summary->count; i++) {
        const trm_quantized_layer *layer = &summary->layers[i];
        report_open(&r, NULL, '{');
        report_text(&r, "name", layer->name);
        report_integer(&r, "rows", layer->rows);
        report_integer(&r, "columns", layer->columns);
        report_integer(&r, "bytes_before", layer->bytes_before);
        report_integer(&r, "bytes_after", layer->bytes_after);
        report_number(&r, "error", layer->error);
        report_close(&r);
    }
    report_close(&r);
    report_end(&r);
}

void quantize_summary_describe_text(const quantize_summary *summary, char *text, size_t size)
{
    const evaluation *e = &summary->text;
    text[0] = '\0';
    if (e->tokens > 0) {
        snprintf(text, size,
                 "perplexity %s became %s, divergence %s nats, the same best token in %.1f%% of %lld tokens",
                 trm_number_text(e->perplexity_before, 3).text, trm_number_text(e->perplexity_after, 3).text,
                 trm_number_text(e->divergence, 4).text, 100.0 * e->agreement, (long long)e->tokens);
    }
}

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

static void write_html(const quantize_summary *summary, const quantize_totals *t, FILE *out)
{
    char text[256];
    fputs("<!doctype html>\n<meta charset=\"utf-8\">\n<title>Quantized model</title>\n"
          "<style>body{font:14px sans-serif}td,th{padding:2px 12px;text-align:right}"
          "td:first-child,th:first-child{text-align:left}</style>\n<h1>",
          out);
    put_escaped(summary->model, out);
    fputs(" in ", out);
    put_escaped(summary->weights, out);
    fprintf(out, "</h1>\n<p>%s became %s; mean error %s %%.</p>\n", trm_size_text((double)t->before).text,
            trm_size_text((double)t->after).text, trm_number_text(100.0 * t->mean, 3).text);
    quantize_summary_describe_text(summary, text, sizeof(text));
    fprintf(out, "<p>%s</p>\n", text);
    fputs("<table>\n<tr><th>layer</th><th>dims</th><th>before</th><th>after</th><th>error</th></tr>\n", out);
    for (size_t i = 0; i < summary->count; i++) {
        const trm_quantized_layer *layer = &summary->layers[i];
        fputs("<tr><td>", out);
        put_escaped(layer->name, out);
        fprintf(out, "</td><td>%lld x %lld</td><td>%s</td><td>%s</td><td>%s %%</td></tr>\n", (long long)layer->rows,
                (long long)layer->columns, trm_size_text((double)layer->bytes_before).text,
                trm_size_text((double)layer->bytes_after).text, trm_number_text(100.0 * layer->error, 3).text);
    }
    fputs("</table>\n", out);
}

static void write_text(const quantize_summary *summary, const quantize_totals *t, FILE *out)
{
    char text[256];
    quantize_summary_describe_text(summary, text, sizeof(text));
    fprintf(out, "%s in %s: %s became %s, mean error %s %%\n%s\n", summary->model, summary->weights,
            trm_size_text((double)t->before).text, trm_size_text((double)t->after).text,
            trm_number_text(100.0 * t->mean, 3).text, text);
    for (size_t i = 0; i < summary->count; i++) {
        const trm_quantized_layer *layer = &summary->layers[i];
        fprintf(out, "%8s %%  %8lld x %-8lld %12s  %s\n", trm_number_text(100.0 * layer->error, 3).text,
                (long long)layer->rows, (long long)layer->columns, trm_size_text((double)layer->bytes_after).text,
                layer->name);
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
