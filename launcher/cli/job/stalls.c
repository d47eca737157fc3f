/* Collects the waits of layers for weights and prints them. */
#include "launcher/cli/job/stalls.h"

#include <stdlib.h>
#include <string.h>

#include "launcher/cli/job/job.h"
#include "launcher/text/strings/buffer.h"

#define MAX_GROUPS 64
#define SHOWN      6

void stall_list_add(void *user, const char *layer, double seconds)
{
    stall_list *list = user;
    void *rows = list->rows;
    if (list->status == TRM_OK) {
        list->status = trm_array_grow(&rows, &list->capacity, list->n + 1, sizeof(*list->rows));
        list->rows = rows;
    }
    if (list->status == TRM_OK) {
        stall *row = &list->rows[list->n++];
        snprintf(row->layer, sizeof(row->layer), "%s", layer);
        row->seconds = seconds;
        list->seconds += seconds;
    }
}

void stall_list_fini(stall_list *list)
{
    free(list->rows);
    *list = (stall_list){0};
}

void stall_list_report(const stall_list *list, report *r, const char *key)
{
    report_open(r, key, '[');
    for (size_t i = 0; i < list->n; i++) {
        report_open(r, NULL, '{');
        report_text(r, "layer", list->rows[i].layer);
        report_number(r, "seconds", list->rows[i].seconds);
        report_close(r);
    }
    report_close(r);
}

typedef struct group {
    char layer[128];
    double seconds;
    int32_t layers;
} group;

static int longest_first(const void *a, const void *b)
{
    double x = ((const group *)a)->seconds, y = ((const group *)b)->seconds;
    return x < y ? 1 : x > y ? -1 : 0;
}

void stall_list_print(const stall_list *list, const char *what)
{
    group groups[MAX_GROUPS];
    size_t n = 0, k;
    if (list->n == 0) {
        return;
    }
    for (size_t i = 0; i < list->n; i++) {
        char pattern[sizeof(groups[0].layer)];
        layer_pattern(list->rows[i].layer, pattern, sizeof(pattern));
        for (k = 0; k < n && strcmp(groups[k].layer, pattern) != 0; k++) {
        }
        if (k == n && n < MAX_GROUPS) {
            groups[n++] = (group){.layers = 0};
            memcpy(groups[k].layer, pattern, sizeof(pattern));
        }
        if (k < n) {
            groups[k].layers++;
            groups[k].seconds += list->rows[i].seconds;
        }
    }
    qsort(groups, n, sizeof(groups[0]), longest_first);
    printf("%s: %.3f ms in total", what, list->seconds * 1e3);
    for (k = 0; k < n && k < SHOWN && groups[k].seconds > 0; k++) {
        printf("%s %s %.3f ms (%d)", k == 0 ? ":" : ",", groups[k].layer, groups[k].seconds * 1e3, groups[k].layers);
    }
    printf("\n");
}
