/*
 * Reads a timeline, checks it, and prints a line RANK|ROW|CATEGORY|SPANS for the spans of each row, by rank and
 * in the order of the rows, and for each request a line RANK|request|NAMES|TRACEPARENT.
 *
 * Checked: processes and threads have names; times are numbers, and durations not negative; the spans of a row are
 * apart or nested; beginnings and ends of an id match in their order; layers lie within a step of their rank. usage:
 * timeline_rows FILE
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/json.h"

#define ERROR 0.0025 /* microseconds: a time and a duration are rounded */

typedef struct span {
    int64_t process, thread;
    double begin, end;
    const char *name, *category;
} span;

static span spans[1 << 20];
static size_t n_spans;
static const trm_json *events;
static int failures;

static void complain(const char *what, const char *name, double time)
{
    printf("BAD %s: %s at %.3f\n", what, name, time);
    failures++;
}

static const char *text(const trm_json *event, const char *key)
{
    const char *found = trm_json_string(trm_json_get(event, key));
    return found != NULL ? found : "";
}

static int64_t integer(const trm_json *event, const char *key)
{
    int64_t value = -1;
    (void)trm_json_integer(trm_json_get(event, key), &value);
    return value;
}

/* The name that a metadata event gives a process or thread; "" if none does. */
static const char *fact(const char *kind, int64_t process, int64_t thread)
{
    for (const trm_json *e = trm_json_first(events); e != NULL; e = trm_json_next(e)) {
        const bool same = strcmp(text(e, "ph"), "M") == 0 && strcmp(text(e, "name"), kind) == 0;
        if (same && integer(e, "pid") == process && (thread < 0 || integer(e, "tid") == thread)) {
            return text(trm_json_get(e, "args"), "name");
        }
    }
    return "";
}

static int by_row_and_time(const void *x, const void *y)
{
    const span *a = x, *b = y;
    if (a->process != b->process || a->thread != b->thread) {
        return a->process != b->process ? (a->process < b->process ? -1 : 1) : a->thread < b->thread ? -1 : 1;
    }
    return a->begin != b->begin ? (a->begin < b->begin ? -1 : 1) : a->end > b->end ? -1 : a->end < b->end;
}

static void take_spans(void)
{
    for (const trm_json *e = trm_json_first(events); e != NULL; e = trm_json_next(e)) {
        if (strcmp(text(e, "ph"), "X") != 0) {
            continue;
        }
        const double begin = trm_json_number(trm_json_get(e, "ts"), -1e18);
        const double duration = trm_json_number(trm_json_get(e, "dur"), -1);
        if (begin < -1e6 || duration < 0 || text(e, "name")[0] == '\0' || text(e, "cat")[0] == '\0') {
            complain("span", text(e, "name"), begin);
        }
        spans[n_spans++] =
            (span){integer(e, "pid"), integer(e, "tid"), begin, begin + duration, text(e, "name"), text(e, "cat")};
    }
    qsort(spans, n_spans, sizeof(spans[0]), by_row_and_time);
}

static void check_nesting(void)
{
    size_t open[64], depth = 0;
    for (size_t i = 0; i < n_spans; i++) {
        const bool new_row =
            i == 0 || spans[i].process != spans[i - 1].process || spans[i].thread != spans[i - 1].thread;
        depth = new_row ? 0 : depth;
        while (depth > 0 && spans[open[depth - 1]].end <= spans[i].begin + ERROR) {
            depth--;
        }
        if (depth > 0 && spans[i].end > spans[open[depth - 1]].end + ERROR) {
            complain("overlap", spans[i].name, spans[i].begin);
        }
        if (depth < 64) {
            open[depth++] = i;
        }
    }
}

/* Whether a step of the span's rank has it inside. */
static bool is_in_step(const span *layer)
{
    for (size_t i = 0; i < n_spans; i++) {
        if (strcmp(spans[i].category, "step") == 0 && spans[i].process == layer->process &&
            spans[i].begin <= layer->begin + ERROR && layer->end <= spans[i].end + 1) {
            return true;
        }
    }
    return false;
}

static void print_rows(void)
{
    for (size_t i = 0, begin = 0; i < n_spans; i++) {
        const bool ends =
            i + 1 == n_spans || spans[i + 1].process != spans[i].process || spans[i + 1].thread != spans[i].thread;
        if (!ends) {
            continue;
        }
        const char *rank = fact("process_name", spans[i].process, -1);
        const char *row = fact("thread_name", spans[i].process, spans[i].thread);
        if (rank[0] == '\0' || row[0] == '\0') {
            complain("row without a name", spans[i].name, spans[i].begin);
        }
        static const char *const categories[] = {"step", "layer", "exchange", "wait", "weights"};
        for (size_t k = 0; k < sizeof(categories) / sizeof(categories[0]); k++) {
            size_t n = 0;
            for (size_t j = begin; j <= i; j++) {
                n += strcmp(spans[j].category, categories[k]) == 0;
            }
            if (n > 0) {
                printf("%s|%s|%s|%zu\n", rank, row, categories[k], n);
            }
        }
        begin = i + 1;
    }
}

/* Requests in the order of the file: b and e of each part follow each other there. */
static void check_requests(void)
{
    char names[256] = "";
    double begin = 0, most = 0, least = 0;
    for (const trm_json *e = trm_json_first(events); e != NULL; e = trm_json_next(e)) {
        if (strcmp(text(e, "ph"), "b") != 0) {
            continue;
        }
        const trm_json *end = trm_json_next(e), *id = trm_json_get(trm_json_get(e, "id2"), "local");
        const double ts = trm_json_number(trm_json_get(e, "ts"), -1);
        const double to = trm_json_number(trm_json_get(end, "ts"), -1);
        if (strcmp(text(end, "ph"), "e") != 0 || strcmp(text(end, "name"), text(e, "name")) != 0 || to < ts ||
            trm_json_string(id) == NULL) {
            complain("request without an end", text(e, "name"), ts);
        }
        if (strcmp(text(e, "name"), "request") == 0) {
            if (names[0] != '\0') {
                printf("%s\n", names);
            }
            snprintf(names, sizeof(names), "%s|request|%s|", fact("process_name", integer(e, "pid"), -1),
                     text(trm_json_get(e, "args"), "traceparent"));
            least = begin = ts;
            most = to;
            continue;
        }
        if (ts < begin - ERROR || to > most + ERROR || ts < least - ERROR) {
            complain("part of a request", text(e, "name"), ts);
        }
        begin = to; /* the parts follow each other */
        snprintf(names + strlen(names), sizeof(names) - strlen(names), "%s ", text(e, "name"));
    }
    if (names[0] != '\0') {
        printf("%s\n", names);
    }
}

int main(int argc, char **argv)
{
    trm_json_document *document;
    if (argc != 2 || trm_json_read(argv[1], (size_t)1 << 30, &document) != TRM_OK) {
        fprintf(stderr, "timeline_rows: %s\n", argc != 2 ? "expected one file" : trm_last_error());
        return 1;
    }
    events = trm_json_get(trm_json_root(document), "traceEvents");
    if (trm_json_count(events) == 0) {
        complain("no events", "", 0);
    }
    take_spans();
    check_nesting();
    for (size_t i = 0; i < n_spans; i++) {
        if ((strcmp(spans[i].category, "layer") == 0 || strcmp(spans[i].category, "wait") == 0) &&
            !is_in_step(&spans[i])) {
            complain("layer outside of steps", spans[i].name, spans[i].begin);
        }
    }
    print_rows();
    check_requests();
    trm_json_close(document);
    return failures > 0;
}
