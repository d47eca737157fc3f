/* The timeline of a process: which spans it keeps, and what it writes. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/trace.h"
#include "support/support.h"

/* The events that are written, with the last one's comma removed. */
static trm_json_document *write_events(double origin, double ahead)
{
    char *text = NULL;
    size_t size = 0;
    trm_json_document *document;
    FILE *out = open_memstream(&text, &size);
    fputs("[", out);
    trm_trace_write(out, 3, origin, ahead);
    fputs("0]", out);
    fclose(out);
    assert_ok(trm_json_parse("events", text, size, &document));
    free(text);
    return document;
}

static const char *text_of(const trm_json *event, const char *key)
{
    return trm_json_string(trm_json_get(event, key));
}

static int32_t count(const trm_json_document *document, const char *phase)
{
    int32_t n = 0;
    for (const trm_json *e = trm_json_first(trm_json_root(document)); e != NULL; e = trm_json_next(e)) {
        n += trm_json_is_object(e) && strcmp(text_of(e, "ph"), phase) == 0;
    }
    return n;
}

/* The nth event of this phase. */
static const trm_json *find(const trm_json_document *document, const char *phase, int32_t n)
{
    const trm_json *e = trm_json_first(trm_json_root(document));
    for (; trm_json_is_object(e); e = trm_json_next(e)) {
        if (strcmp(text_of(e, "ph"), phase) == 0 && n-- == 0) {
            return e;
        }
    }
    return NULL;
}

static void add(const char *name, double begin, double seconds, int32_t row)
{
    const trm_trace_span span = {.category = "layer", .name = name, .begin = begin, .seconds = seconds, .row = row};
    trm_trace_add(&span);
}

static void the_oldest_spans_are_dropped(void **state)
{
    char name[24];
    (void)state;
    add("before", 1, 1, 0); /* it is off */
    trm_trace_begin(4);
    const int32_t row = trm_trace_row("steps");
    assert_int_equal(trm_trace_row("steps"), row);
    assert_int_not_equal(trm_trace_row("layers"), row);
    for (int i = 0; i < 10; i++) {
        snprintf(name, sizeof(name), "span %d", i);
        add(name, 10 + i, 0.5, row);
    }
    trm_json_document *document = write_events(10, 0);
    assert_int_equal(count(document, "X"), 4);
    for (int32_t i = 0; i < 4; i++) {
        snprintf(name, sizeof(name), "span %d", i + 6);
        const trm_json *event = find(document, "X", i);
        assert_string_equal(text_of(event, "name"), name);
        assert_true(trm_json_number(trm_json_get(event, "ts"), -1) == (i + 6) * 1e6);
        assert_true(trm_json_number(trm_json_get(event, "dur"), -1) == 5e5);
        assert_true(trm_json_number(trm_json_get(event, "pid"), -1) == 4);
    }
    assert_string_equal(text_of(trm_json_get(find(document, "M", 0), "args"), "name"), "rank 3, without 6 older spans");
    trm_json_close(document);
    trm_trace_end();
    add("after", 30, 1, row);
    document = write_events(10, 0);
    assert_int_equal(count(document, "X"), 4);
    trm_json_close(document);
    trm_trace_begin(4); /* anew */
    document = write_events(10, 0);
    assert_int_equal(count(document, "X"), 0);
    assert_string_equal(text_of(trm_json_get(find(document, "M", 0), "args"), "name"), "rank 3");
    trm_json_close(document);
    trm_trace_clear();
}

static void texts_and_times_are_kept(void **state)
{
    (void)state;
    trm_trace_begin(100);
    const int32_t row = trm_trace_row("rows \"of\" \xff");
    const trm_trace_value values[] = {
        {.key = "text", .text = "a \"b\" \\ \n \xff"}, {.key = "number", .number = -5}, {.key = "none", .text = ""}};
    const trm_trace_span span = {.category = "request",
                                 .name = "name \"x\" \xff",
                                 .begin = 2.5,
                                 .seconds = 0.0000015,
                                 .row = row,
                                 .id = 7,
                                 .values = values,
                                 .n_values = 3};
    trm_trace_add(&span);
    assert_true(trm_trace_after(row, 1) == 1); /* those of ids do not count */
    add("backward", 3, -1, row);
    assert_true(trm_trace_after(row, 1) == 3);
    assert_true(trm_trace_after(row, 4) == 4);
    trm_json_document *document = write_events(3, 0.25);
    const trm_json *begin = find(document, "b", 0), *end = find(document, "e", 0);
    assert_string_equal(text_of(begin, "name"), "name \"x\" \xef\xbf\xbd");
    assert_string_equal(text_of(trm_json_get(begin, "args"), "text"), "a \"b\" \\ ? ?");
    assert_true(trm_json_number(trm_json_get(trm_json_get(begin, "args"), "number"), 0) == -5);
    assert_true(trm_json_number(trm_json_get(begin, "ts"), 0) == -250000);
    assert_true(trm_json_number(trm_json_get(end, "ts"), 0) == -249998.5);
    assert_string_equal(text_of(trm_json_get(end, "id2"), "local"), "7");
    assert_true(trm_json_number(trm_json_get(find(document, "X", 0), "dur"), -1) == 0);
    trm_json_close(document);
    trm_trace_clear();
}

static void *add_many(void *user)
{
    const int32_t row = trm_trace_thread_row();
    for (int i = 0; i < 10000; i++) {
        add("span", i, 0.5, row);
    }
    *(int32_t *)user = row;
    return NULL;
}

static void threads_have_rows(void **state)
{
    pthread_t threads[4];
    int32_t rows[4];
    (void)state;
    trm_trace_begin(50000);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, add_many, &rows[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        for (int k = 0; k < i; k++) {
            assert_int_not_equal(rows[i], rows[k]);
        }
    }
    trm_json_document *document = write_events(0, 0);
    assert_int_equal(count(document, "X"), 40000);
    trm_json_close(document);
    trm_trace_clear();
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_oldest_spans_are_dropped),
                                       cmocka_unit_test(texts_and_times_are_kept), cmocka_unit_test(threads_have_rows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
