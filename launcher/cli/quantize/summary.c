/* What reports are made of. */
#include "launcher/cli/quantize/summary.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/unit.h"

#define SHOWN 5 /* parts on the terminal */

bool quantize_summary_add(quantize_summary *summary, const trm_quantized_layer *layer, double output_error)
{
    if (summary->count == summary->room) {
        const size_t room = summary->room == 0 ? 256 : 2 * summary->room;
        summary_layer *layers = realloc(summary->layers, room * sizeof(*layers));
        if (layers == NULL) {
            return false;
        }
        summary->layers = layers;
        summary->room = room;
    }
    summary_layer *to = &summary->layers[summary->count];
    *to = (summary_layer){*layer, output_error};
    to->layer.name = strdup(layer->name);
    to->layer.differences = to->layer.squares = NULL;
    summary->count += to->layer.name != NULL ? 1 : 0;
    return to->layer.name != NULL;
}

static trm_status add_part(quantize_summary *summary, const char *pattern)
{
    for (int32_t i = 0; i < summary->n_parts; i++) {
        if (strcmp(summary->parts[i].pattern, pattern) == 0) {
            return TRM_OK;
        }
    }
    evaluated_part *parts = realloc(summary->parts, ((size_t)summary->n_parts + 1) * sizeof(*parts));
    if (parts == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "no memory for a list of layers");
    }
    summary->parts = parts;
    parts[summary->n_parts] = (evaluated_part){.pattern = strdup(pattern)};
    if (parts[summary->n_parts].pattern == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "no memory for the name of a layer");
    }
    summary->n_parts++;
    return TRM_OK;
}

trm_status quantize_summary_list_parts(quantize_summary *summary, const groups *all)
{
    char pattern[512];
    for (int32_t i = 0; i < all->n; i++) {
        for (int32_t k = 0; k < all->list[i].n_layers; k++) {
            const group_layer *layer = &all->list[i].layers[k];
            const char *experts = strstr(layer->weight, ".experts.");
            if (experts != NULL) {
                snprintf(pattern, sizeof(pattern), "%.*s.experts.*", (int)(experts - layer->weight), layer->weight);
            } else {
                snprintf(pattern, sizeof(pattern), "%.*s", (int)(strlen(layer->weight) - strlen(".weight")),
                         layer->weight);
            }
            TRM_TRY(layer->is_quantized ? add_part(summary, pattern) : TRM_OK);
        }
    }
    return TRM_OK;
}

void quantize_summary_fini(quantize_summary *summary)
{
    for (size_t i = 0; i < summary->count; i++) {
        free((char *)summary->layers[i].layer.name);
    }
    for (int32_t i = 0; i < summary->n_parts; i++) {
        free(summary->parts[i].pattern);
    }
    free(summary->layers);
    free(summary->parts);
    *summary = (quantize_summary){0};
}

quantize_totals quantize_summary_totals(const quantize_summary *summary)
{
    quantize_totals t = {.worst_name = ""};
    double weights = 0.0;
    for (size_t i = 0; i < summary->count; i++) {
        const trm_quantized_layer *layer = &summary->layers[i].layer;
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

void quantize_summary_describe_method(const quantize_summary *summary, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    if (strcmp(summary->method->text, "nearest") == 0) {
        return;
    }
    used += (size_t)snprintf(text, size, "%s", summary->method->text);
    if (summary->samples > 0) {
        used += (size_t)snprintf(text + used, size - used, " with %lld tokens", (long long)summary->samples);
    }
    if (summary->rescaled > 0) {
        used += (size_t)snprintf(text + used, size - used, ", factors for %d inputs", (int)summary->rescaled);
    }
    if (summary->method->gptq) {
        used += (size_t)snprintf(text + used, size - used, ", %d layers rounded by samples of their inputs",
                                 (int)summary->chosen);
    }
    if (summary->without > 0) {
        snprintf(text + used, size - used,
                 ", %d layers got no token, as their expert was not chosen, and are rounded to the nearest: give more "
                 "samples",
                 (int)summary->without);
    }
}

void quantize_summary_describe_text(const quantize_summary *summary, char *text, size_t size)
{
    const evaluation *e = &summary->text;
    text[0] = '\0';
    if (e->tokens > 0) {
        snprintf(
            text, size,
            "perplexity %s became %s, divergence %s nats, the same best token in %.1f%% of %lld tokens; prompts at "
            "%s tok/s became %s",
            trm_number_text(e->perplexity_before, 3).text, trm_number_text(e->perplexity_after, 3).text,
            trm_number_text(e->divergence, 4).text, 100.0 * e->agreement, (long long)e->tokens,
            trm_number_text(e->rate_before, 0).text, trm_number_text(e->rate_after, 0).text);
    }
}

static int compare_parts(const void *a, const void *b)
{
    const double x = ((const evaluated_part *)a)->divergence, y = ((const evaluated_part *)b)->divergence;
    return x > y ? -1 : x < y ? 1 : 0;
}

void quantize_summary_print_parts(const quantize_summary *summary, FILE *out)
{
    if (summary->n_parts > 0) {
        qsort(summary->parts, (size_t)summary->n_parts, sizeof(*summary->parts), compare_parts);
        fprintf(out, "layers that move the model the most, each quantized alone:\n");
    }
    for (int32_t i = 0; i < summary->n_parts && i < SHOWN; i++) {
        fprintf(out, "  %s nats  %s\n", trm_number_text(summary->parts[i].divergence, 6).text,
                summary->parts[i].pattern);
    }
}
