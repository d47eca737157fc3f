/* A log that is read has every line, of ours and of child processes; one that is not read keeps nobody waiting. */
#include "launcher/serve/log/log_writer.h"
#include "support/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static log_writer *w;
static int ends[2]; /* of the pipe in place of standard error */

static void open_log(void)
{
    assert_int_equal(pipe(ends), 0);
    assert_ok(log_writer_create(ends[1], &w));
}

/* Everything that was written; to be freed. */
static char *read_log(void)
{
    size_t size = 0, capacity = (size_t)4 << 20;
    char *text = malloc(capacity);
    assert_non_null(text);
    close(ends[1]);
    for (ssize_t n = 1; n > 0; size += n > 0 ? (size_t)n : 0) {
        n = read(ends[0], text + size, capacity - size - 1);
        assert_true(n >= 0);
    }
    text[size] = '\0';
    close(ends[0]);
    return text;
}

static void lines_are_written(void **state)
{
    (void)state;
    open_log();
    log_print(w, "%d and %s", 1, "two");
    log_write(w, "a\nb\n", 4);
    assert_true(log_writer_destroy(w, 600));
    char *text = read_log();
    assert_string_equal(text, "trireme: 1 and two\na\nb\n");
    free(text);
}

/* Whole lines, though they come in parts. */
static void lines_of_children_are_written(void **state)
{
    (void)state;
    open_log();
    int child = log_writer_pipe(w);
    for (int i = 0; i < 1000; i++) {
        assert_int_equal(write(child, "of a ", 5), 5);
        log_write(w, "ours\n", 5);
        assert_int_equal(write(child, "child\n", 6), 6);
    }
    assert_int_equal(write(child, "the end", 7), 7);
    assert_true(log_writer_destroy(w, 600));
    char *text = read_log(), *rest = text;
    int of_child = 0, of_us = 0;
    assert_non_null(strstr(text, "the end"));
    for (char *line = strsep(&rest, "\n"); rest != NULL; line = strsep(&rest, "\n")) {
        of_child += strcmp(line, "of a child") == 0;
        of_us += strcmp(line, "ours") == 0;
    }
    assert_int_equal(of_child, 1000);
    assert_int_equal(of_us, 1000);
    free(text);
}

static void what_nobody_reads_is_counted(void **state)
{
    (void)state;
    enum { LINES = 100000 };
    char line[128];
    open_log();
    for (int i = 0; i < LINES; i++) { /* more than pipe and queue take, and it returns */
        log_write(w, line, (size_t)snprintf(line, sizeof(line), "line number %06d\n", i));
    }
    int written = 0, dropped = 0, n;
    FILE *in = fdopen(ends[0], "r");
    assert_non_null(in);
    while (written + dropped < LINES) {
        assert_non_null(fgets(line, sizeof(line), in));
        written += strncmp(line, "line number ", 12) == 0;
        dropped += sscanf(line, "trireme: dropped %d lines", &n) == 1 ? n : 0;
    }
    assert_true(written > 0 && dropped > 0);
    assert_int_equal(written + dropped, LINES);
    assert_true(log_writer_destroy(w, 600));
    fclose(in);
    close(ends[1]);
}

static void a_blocked_log_ends(void **state)
{
    (void)state;
    char line[1024];
    open_log();
    memset(line, 'x', sizeof(line));
    line[sizeof(line) - 1] = '\n';
    for (int i = 0; i < 1000; i++) {
        log_write(w, line, sizeof(line));
    }
    assert_false(log_writer_destroy(w, 0)); /* its thread still has the end that is written */
    close(ends[0]);
}

/* Its reader is gone: no signal ends this process. */
static void a_log_without_a_reader_goes_on(void **state)
{
    (void)state;
    open_log();
    close(ends[0]);
    for (int i = 0; i < 100; i++) {
        log_print(w, "line %d", i);
        usleep(100);
    }
    assert_true(log_writer_destroy(w, 600));
    close(ends[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_are_written),
        cmocka_unit_test(lines_of_children_are_written),
        cmocka_unit_test(what_nobody_reads_is_counted),
        cmocka_unit_test(a_blocked_log_ends),
        cmocka_unit_test(a_log_without_a_reader_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
