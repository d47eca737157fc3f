/* Counts the tokens that routers give to experts and prints them. */
#include "launcher/cli/job/expert_load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "launcher/text/strings/buffer.h"

/* The row of a layer, which is added where it is new; NULL when out of memory. */
static expert_layer *find_row(expert_load *load, const char *layer)
{
    for (size_t i = 0; i < load->n; i++) {
        if (strcmp(load->rows[i].layer, layer) == 0) {
            return &load->rows[i];
        }
    }
    void *rows = load->rows;
    load->status = trm_array_grow(&rows, &load->capacity, load->n + 1, sizeof(*load->rows));
    load->rows = rows;
    int64_t *tokens = load->status == TRM_OK ? calloc((size_t)load->n_experts, sizeof(*tokens)) : NULL;
    if (tokens == NULL) {
        load->status =
            trm_fail(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the load of %lld experts", (long long)load->n_experts);
        return NULL;
    }
    expert_layer *row = &load->rows[load->n++];
    snprintf(row->layer, sizeof(row->layer), "%s", layer);
    row->tokens = tokens;
    return row;
}

/* Also of one that is joined with the norm before it, a kind that programs do not know. */
static bool is_router(trm_layer_kind kind)
{
    const char *name = trm_layer_kind_name(kind), *last = strrchr(name, '_');
    return strcmp(last != NULL ? last + 1 : name, trm_layer_kind_name(TRM_LAYER_ROUTER)) == 0;
}

bool expert_load_add(void *user, const trm_debug_tensor *tensor)
{
    expert_load *load = user;
    if (!is_router(tensor->kind) || tensor->dtype != TRM_I32) { /* its weights are floats */
        return true;
    }
    expert_layer *row = find_row(load, tensor->layer);
    const int32_t *ids = tensor->data;
    for (int64_t i = 0; row != NULL && i < tensor->dims.d[0] * tensor->dims.d[1]; i++) {
        if (ids[i] < 0 || ids[i] >= load->n_experts) {
            load->status = trm_fail(TRM_ERROR_INTERNAL, "layer %s chooses expert %d of %lld", tensor->layer, ids[i],
                                    (long long)load->n_experts);
            return false;
        }
        row->tokens[ids[i]]++;
    }
    return row != NULL;
}

void expert_load_fini(expert_load *load)
{
    for (size_t i = 0; i < load->n; i++) {
        free(load->rows[i].tokens);
    }
    free(load->rows);
    *load = (expert_load){0};
}

typedef struct spread {
    int64_t least, most, unused;
    double mean;
} spread;

static spread spread_of(const expert_load *load, const expert_layer *row)
{
    spread s = {.least = row->tokens[0]};
    for (int64_t e = 0; e < load->n_experts; e++) {
        const int64_t n = row->tokens[e];
        s.least = n < s.least ? n : s.least;
        s.most = n > s.most ? n : s.most;
        s.unused += n == 0;
        s.mean += (double)n / (double)load->n_experts;
    }
    return s;
}

void expert_load_report(const expert_load *load, report *r, const char *key)
{
    report_open(r, key, '[');
    for (size_t i = 0; i < load->n; i++) {
        const spread s = spread_of(load, &load->rows[i]);
        report_open(r, NULL, '{');
        report_text(r, "layer", load->rows[i].layer);
        report_number(r, "imbalance", (double)s.most / s.mean);
        report_open(r, "tokens", '[');
        for (int64_t e = 0; e < load->n_experts; e++) {
            report_integer(r, NULL, load->rows[i].tokens[e]);
        }
        report_close(r);
        report_close(r);
    }
    report_close(r);
}

void expert_load_print(const expert_load *load)
{
    printf("\ntokens per expert in one run, of %lld experts a layer\n%-48s %8s %10s %8s %10s %8s\n",
           (long long)load->n_experts, "layer", "min", "mean", "max", "max/mean", "unused");
    for (size_t i = 0; i < load->n; i++) {
        const spread s = spread_of(load, &load->rows[i]);
        printf("%-48s %8lld %10.1f %8lld %10.2f %8lld\n", load->rows[i].layer, (long long)s.least, s.mean,
               (long long)s.most, (double)s.most / s.mean, (long long)s.unused);
    }
}
