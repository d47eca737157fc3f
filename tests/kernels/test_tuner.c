/* The timing cache: what is recorded is found, in order, after a file, too; files merge; damage costs a line. */
#include "tests/support/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "kernels/tuner/tuner.h"

#define LONGEST_SAVE 600 /* seconds */

static int warnings;

static void count_warning(void *user, trm_log_level level, const char *message)
{
    (void)user, (void)message;
    warnings += level == TRM_LOG_WARNING;
}

static trm_device *device;

static int setup(void **state)
{
    (void)state;
    trm_log_set(count_warning, NULL, TRM_LOG_WARNING);
    return trm_device_open(TRM_BACKEND_HOST, 0, 1, &device);
}

static int teardown(void **state)
{
    (void)state;
    trm_device_close(device);
    return 0;
}

static trm_tuner *make(void)
{
    trm_tuner *tuner;
    assert_int_equal(trm_tuner_create(device, &tuner), TRM_OK);
    return tuner;
}

static void path_of(const char *name, char *path, size_t size)
{
    snprintf(path, size, "%s/%s", test_temporary_folder(), name);
}

static void write_text(const char *path, const char *text)
{
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    assert_true(fputs(text, out) >= 0);
    assert_int_equal(fclose(out), 0);
}

static void record(trm_tuner *tuner, const char *problem, const char *tactic, double microseconds)
{
    trm_tactic tactics[2] = {{.microseconds = microseconds}, {"slower", microseconds + 1}};
    snprintf(tactics[0].name, sizeof(tactics[0].name), "%s", tactic);
    assert_int_equal(trm_tuner_record(tuner, problem, tactics, 2), TRM_OK);
}

static void test_records(void **state)
{
    (void)state;
    trm_tuner *tuner = make();
    trm_tactic tactics[TRM_MOST_TACTICS + 6] = {{"", 0}};
    for (int i = 0; i < TRM_MOST_TACTICS + 6; i++) {
        snprintf(tactics[i].name, sizeof(tactics[i].name), "t%d", i);
        tactics[i].microseconds = (i * 37) % 71 + 1;
    }
    assert_null(trm_tuner_find(tuner, "p"));
    assert_null(trm_tuner_last(tuner));
    assert_int_equal(trm_tuner_record(tuner, "p", tactics, 0), TRM_OK);
    assert_null(trm_tuner_find(tuner, "p"));
    assert_int_equal(trm_tuner_record(tuner, "p", tactics, TRM_MOST_TACTICS + 6), TRM_OK);
    const trm_timing *timing = trm_tuner_find(tuner, "p");
    assert_non_null(timing);
    assert_ptr_equal(trm_tuner_last(tuner), timing);
    assert_int_equal(timing->n_tactics, TRM_MOST_TACTICS);
    assert_string_equal(timing->tactics[0].name, "t0");
    for (int i = 1; i < timing->n_tactics; i++) {
        assert_true(timing->tactics[i - 1].microseconds <= timing->tactics[i].microseconds);
    }
    trm_tuner_forget_last(tuner);
    assert_null(trm_tuner_last(tuner));
    assert_null(trm_tuner_find(NULL, "p"));
    assert_int_equal(trm_tuner_record(NULL, "p", tactics, 1), TRM_OK);
    char longer[TRM_PROBLEM_TEXT_SIZE + 1];
    memset(longer, 'x', sizeof(longer) - 1);
    longer[sizeof(longer) - 1] = '\0';
    assert_int_equal(trm_tuner_record(tuner, longer, tactics, 1), TRM_OK);
    assert_null(trm_tuner_find(tuner, longer));
    trm_tuner_destroy(tuner);
}

static void test_levels(void **state)
{
    (void)state;
    static const int32_t expected[] = {0, 0, 4, 8, 16, TRM_MOST_TACTICS};
    trm_tuner *tuner = make();
    assert_int_equal(trm_tuner_proposals(NULL), 8);
    assert_int_equal(trm_tuner_proposals(tuner), 8);
    for (int32_t level = 0; level <= 5; level++) {
        trm_tuner_set_level(tuner, level);
        assert_int_equal(trm_tuner_proposals(tuner), expected[level]);
    }
    trm_tuner_destroy(tuner);
}

static void test_files_merge(void **state)
{
    (void)state;
    char path[512];
    path_of("a/b/merged.txt", path, sizeof(path));
    trm_tuner *one = make(), *two = make(), *three = make();
    record(one, "first", "x", 2);
    record(one, "both", "old", 5);
    assert_int_equal(trm_tuner_load(two, path), TRM_OK); /* not there yet */
    assert_int_equal(trm_tuner_save(one, path), TRM_OK);
    record(two, "second", "y", 3);
    record(two, "both", "new", 4);
    assert_int_equal(trm_tuner_save(two, path), TRM_OK);
    assert_int_equal(trm_tuner_load(three, path), TRM_OK);
    const trm_timing *timing = trm_tuner_find(three, "first");
    assert_non_null(timing);
    assert_string_equal(timing->tactics[0].name, "x");
    assert_true(timing->tactics[0].microseconds == 2.0);
    assert_string_equal(timing->tactics[1].name, "slower");
    assert_string_equal(trm_tuner_find(three, "both")->tactics[0].name, "new");
    assert_string_equal(trm_tuner_find(three, "second")->tactics[0].name, "y");
    /* What has been written is not written again: a line that somebody took out stays out. */
    write_text(path, "");
    assert_int_equal(trm_tuner_save(two, path), TRM_OK);
    assert_int_equal(trm_tuner_save(three, path), TRM_OK);
    struct stat file;
    assert_int_equal(stat(path, &file), 0);
    assert_int_equal(file.st_size, 0);
    trm_tuner_destroy(one);
    trm_tuner_destroy(two);
    trm_tuner_destroy(three);
}

/* The same text again, whatever the order of writing processes was; edits stay. */
static void test_file_is_edited(void **state)
{
    (void)state;
    char path[512], *text, *again;
    size_t size;
    path_of("edited.txt", path, sizeof(path));
    trm_tuner *tuner = make();
    record(tuner, "p", "fast", 1);
    assert_int_equal(trm_tuner_save(tuner, path), TRM_OK);
    assert_int_equal(trm_file_read(path, 4096, &text, &size), TRM_OK);
    char edited[4096], *line = strchr(text, '\n');
    assert_non_null(line);
    char *fast = strstr(line, "\tfast 1.000");
    assert_non_null(fast);
    *fast = '\0';
    snprintf(edited, sizeof(edited), "#\n# mine%s\tslower 2.000\tfast 1.000\n", line);
    write_text(path, edited);
    trm_tuner *other = make();
    assert_int_equal(trm_tuner_load(other, path), TRM_OK);
    assert_string_equal(trm_tuner_find(other, "p")->tactics[0].name, "slower");
    record(other, "q", "z", 1);
    assert_int_equal(trm_tuner_save(other, path), TRM_OK);
    assert_int_equal(trm_file_read(path, 4096, &again, &size), TRM_OK);
    assert_non_null(strstr(again, "\n#\n# mine\n"));
    assert_non_null(strstr(again, "p\tslower 2.000\tfast 1.000\n"));
    free(text);
    free(again);
    trm_tuner_destroy(tuner);
    trm_tuner_destroy(other);
}

static void test_damage(void **state)
{
    (void)state;
    char path[512], *text;
    size_t size;
    path_of("damaged.txt", path, sizeof(path));
    static const char *const lines[] = {
        "",          "no tab",     "\tx 1",      "p\t",           "p\tx",          "p\tx ",      "p\t 1",
        "p\tx 1 2",  "p\tx -1",    "p\tx 0",     "p\tx nan",      "p\tx inf",      "p\tx 1e999", "p\tx 1\t",
        "p\tx 1\ty", "p\x01\tx 1", "p\tx\x7f 1", "p\tx 1\ty\t 2", "p\tx 0x1p1 \t", "p\tx 1\r\r",
    };
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        fprintf(out, "%s\n", lines[i]);
    }
    fprintf(out, "good\tx 1\nlong\t");
    for (int i = 0; i < 5000; i++) {
        fputc('x', out);
    }
    fprintf(out, " 1\nmany");
    for (int i = 0; i < TRM_MOST_TACTICS + 1; i++) {
        fprintf(out, "\tx%d 1", i);
    }
    assert_int_equal(fclose(out), 0);
    trm_tuner *tuner = make();
    warnings = 0;
    assert_int_equal(trm_tuner_load(tuner, path), TRM_OK);
    assert_int_equal(warnings, 1);
    assert_null(trm_tuner_find(tuner, "p"));
    record(tuner, "q", "z", 1);
    assert_int_equal(trm_tuner_save(tuner, path), TRM_OK);
    assert_int_equal(trm_file_read(path, 4096, &text, &size), TRM_OK);
    assert_non_null(strstr(text, "\ngood\tx 1.000\n"));
    assert_null(strstr(text, "\np"));
    assert_null(strstr(text, "many"));
    free(text);
    trm_tuner_destroy(tuner);
}

static void test_cannot_write(void **state)
{
    (void)state;
    char path[512];
    path_of("file", path, sizeof(path));
    write_text(path, "");
    strcat(path, "/below.txt");
    trm_tuner *tuner = make();
    record(tuner, "p", "x", 1);
    assert_int_equal(trm_tuner_save(tuner, path), TRM_ERROR_IO);
    assert_non_null(strstr(trm_last_error(), "file/below.txt"));
    trm_tuner_destroy(tuner);
}

/* Whether the tuner was saved, in the end: a save gives up when others hold the file for long, which a slow disk can
 * do, and keeps what is new for the next. */
static bool is_saved(trm_tuner *tuner, const char *path)
{
    trm_status status;
    const time_t began = time(NULL);
    do {
        status = trm_tuner_save(tuner, path);
    } while (status == TRM_ERROR_IO && strstr(trm_last_error(), "another process holds") != NULL &&
             time(NULL) - began < LONGEST_SAVE);
    if (status != TRM_OK) {
        fprintf(stderr, "not saved after %d s: %s\n", (int)(time(NULL) - began), trm_last_error());
    }
    return status == TRM_OK;
}

/* Processes that save at once lose nothing. */
static void test_processes(void **state)
{
    (void)state;
    enum { PROCESSES = 6, PROBLEMS = 20 };
    char path[512];
    path_of("shared.txt", path, sizeof(path));
    for (int i = 0; i < PROCESSES; i++) {
        if (fork() == 0) {
            trm_tuner *tuner = make();
            bool ok = true;
            for (int k = 0; k < PROBLEMS; k++) {
                char problem[32];
                snprintf(problem, sizeof(problem), "p%d.%d", i, k);
                record(tuner, problem, "x", 1);
                ok = is_saved(tuner, path) && ok;
            }
            trm_tuner_destroy(tuner);
            _exit(ok ? 0 : 1);
        }
    }
    for (int i = 0; i < PROCESSES; i++) {
        int status;
        assert_true(wait(&status) > 0);
        assert_int_equal(status, 0);
    }
    trm_tuner *tuner = make();
    assert_int_equal(trm_tuner_load(tuner, path), TRM_OK);
    for (int i = 0; i < PROCESSES * PROBLEMS; i++) {
        char problem[32];
        snprintf(problem, sizeof(problem), "p%d.%d", i / PROBLEMS, i % PROBLEMS);
        assert_non_null(trm_tuner_find(tuner, problem));
    }
    trm_tuner_destroy(tuner);
}

/* Looked up without being known, and what a kernel took. */
static void note(void *user, const char *problem, const trm_timing *taken)
{
    char *text = user;
    sprintf(text + strlen(text), "%s=%s", problem, taken == NULL ? "? " : "");
    for (int32_t i = 0; taken != NULL && i < taken->n_tactics; i++) {
        sprintf(text + strlen(text), "%s%s", taken->tactics[i].name, i + 1 < taken->n_tactics ? "," : " ");
    }
}

static void test_listener(void **state)
{
    (void)state;
    char heard[256] = "";
    trm_tuner *tuner = make();
    trm_tuner_set_listener(tuner, note, heard);
    assert_null(trm_tuner_find(tuner, "a"));
    record(tuner, "a", "fast", 1);
    assert_non_null(trm_tuner_find(tuner, "a"));
    const trm_timing *timing = trm_tuner_find(tuner, "a");
    trm_tuner_take(tuner, "a", timing->tactics, timing->n_tactics);
    trm_tuner_take(tuner, "a", &timing->tactics[1], 1);
    trm_tuner_set_listener(tuner, NULL, NULL);
    trm_tuner_take(tuner, "a", timing->tactics, 1);
    trm_tuner_take(NULL, "a", timing->tactics, 1);
    assert_null(trm_tuner_find(tuner, "b"));
    assert_string_equal(heard, "a=? a=fast,slower a=slower ");
    trm_tuner_destroy(tuner);
}

/* Times are kept as a file has them, and what was timed elsewhere stays as it stands, in no file. */
static void test_times_and_order(void **state)
{
    (void)state;
    char path[512], *text;
    size_t size;
    trm_tuner *tuner = make();
    const trm_tactic timed[] = {{"b", 1.0004}, {"a", 1.0001}, {"c", 0.00004}, {"d", 0.9996}};
    assert_int_equal(trm_tuner_record(tuner, "timed", timed, 4), TRM_OK);
    const trm_timing *timing = trm_tuner_find(tuner, "timed");
    static const char *const expected[] = {"c", "a", "b", "d"};
    for (int i = 0; i < 4; i++) { /* of 1 and three times 1000 ns */
        assert_string_equal(timing->tactics[i].name, expected[i]);
        assert_true(timing->tactics[i].microseconds == (i == 0 ? 0.001 : 1.0));
    }
    const trm_tactic elsewhere[] = {{"slow", 3}, {"fast", 1.0004}};
    assert_int_equal(trm_tuner_put(tuner, "elsewhere", elsewhere, 2), TRM_OK);
    timing = trm_tuner_find(tuner, "elsewhere");
    assert_int_equal(timing->n_tactics, 2);
    assert_string_equal(timing->tactics[0].name, "slow");
    assert_true(timing->tactics[1].microseconds == 1.0004);
    assert_int_equal(trm_tuner_put(NULL, "elsewhere", elsewhere, 2), TRM_OK);
    path_of("times.txt", path, sizeof(path));
    assert_int_equal(trm_tuner_save(tuner, path), TRM_OK);
    assert_int_equal(trm_file_read(path, 1 << 16, &text, &size), TRM_OK);
    assert_non_null(strstr(text, "timed\tc 0.001\ta 1.000\tb 1.000\td 1.000\n"));
    assert_null(strstr(text, "elsewhere"));
    free(text);
    trm_tuner_destroy(tuner);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_records),   cmocka_unit_test(test_levels),         cmocka_unit_test(test_files_merge),
        cmocka_unit_test(test_damage),    cmocka_unit_test(test_file_is_edited), cmocka_unit_test(test_cannot_write),
        cmocka_unit_test(test_processes), cmocka_unit_test(test_listener),       cmocka_unit_test(test_times_and_order),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
