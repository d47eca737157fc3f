/*
 * Which tactics of a problem are remembered for other batches, and in which order those try them: the same from any
 * order of the tactics, through a timing cache, and from the shortlist itself, as a plan keeps it.
 */
#include "tests/support/support.h"

#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/tuner/shortlist.h"

static trm_tactic tactic_of(const char *name, double microseconds)
{
    trm_tactic tactic = {.microseconds = microseconds};
    snprintf(tactic.name, sizeof(tactic.name), "%s", name);
    return tactic;
}

/* Names and times of a list as one text. */
static const char *text_of(const trm_shortlist *list, char text[1024])
{
    int used = 0;
    text[0] = '\0';
    for (int32_t i = 0; i < list->n; i++) {
        used += snprintf(text + used, 1024 - (size_t)used, "%s%s %.3f", i == 0 ? "" : "; ", list->tactics[i].name,
                         list->tactics[i].microseconds);
    }
    return text;
}

static void assert_shortlist(const trm_tactic *tactics, int32_t n, int32_t used, const char *expected)
{
    trm_shortlist list;
    char text[1024];
    trm_shortlist_make(tactics, n, used, &list);
    assert_string_equal(text_of(&list, text), expected);
}

static void test_the_best_of_each_engine(void **unused)
{
    (void)unused;
    const trm_tactic tactics[] = {
        {"cudnn.alone:5,3=1", 9},  {"cudnn.fused:7,2=0", 4},  {"cudnn.fused:7,2=1", 5},
        {"cudnn.fused:70,2=0", 6}, {"cudnn.alone:7,2=0", 7},  {"own.convolution", 1},
        {"cudnn.fused:11", 8},     {"wide.cudnn.fused:9", 2}, {"wide.cudnn.alone:4", 3},
    };
    assert_shortlist(tactics, 9, 1,
                     "cudnn.fused:7,2=0 4.000; cudnn.fused:70,2=0 6.000; cudnn.alone:7,2=0 7.000; "
                     "cudnn.fused:11 8.000");
    /* What is in use stands first also where it is not the fastest, and is its engine's only one. */
    assert_shortlist(tactics, 9, 2,
                     "cudnn.fused:7,2=1 5.000; cudnn.fused:70,2=0 6.000; cudnn.alone:7,2=0 7.000; "
                     "cudnn.fused:11 8.000");
    assert_shortlist(tactics, 9, 0,
                     "cudnn.alone:5,3=1 9.000; cudnn.fused:7,2=0 4.000; cudnn.fused:70,2=0 6.000; "
                     "cudnn.alone:7,2=0 7.000");
    assert_shortlist(tactics, 9, 7, "wide.cudnn.fused:9 2.000; wide.cudnn.alone:4 3.000");
    assert_shortlist(tactics, 9, 5, "own.convolution 1.000");
    assert_shortlist(tactics, 1, 0, "cudnn.alone:5,3=1 9.000");
}

static void test_what_is_no_engine_is_alone(void **unused)
{
    (void)unused;
    const trm_tactic tactics[] = {{"cublasLt:1.2", 1}, {"cublasLt:3.4", 2}, {"own.gemv", 3}, {"cudnn.fused:1", 4}};
    assert_shortlist(tactics, 4, 0, "cublasLt:1.2 1.000");
    assert_shortlist(tactics, 4, 2, "own.gemv 3.000");
}

static void test_ties_lose_none(void **unused)
{
    (void)unused;
    const trm_tactic tactics[] = {{"cudnn.fused:9", 5},     {"cudnn.fused:3,1=2", 5}, {"cudnn.fused:3,1=1", 5},
                                  {"cudnn.alone:9,1=1", 5}, {"cudnn.fused:4", 5},     {"cudnn.fused:8", 6}};
    assert_shortlist(tactics, 6, 0,
                     "cudnn.fused:9 5.000; cudnn.alone:9,1=1 5.000; cudnn.fused:3,1=1 5.000; cudnn.fused:4 5.000");
}

/* Tactics of few engines and few times, so that ties are many. */
static int32_t random_tactics(uint64_t *random, trm_tactic *tactics)
{
    static const char *const prefixes[] = {"cudnn.fused", "cudnn.alone", "wide.cudnn.fused", "wide.cudnn.alone"};
    const int32_t n = 1 + (int32_t)(test_random(random) % 24);
    for (int32_t i = 0; i < n; i++) {
        char name[64];
        snprintf(name, sizeof(name), "%s:%d,1=%d", prefixes[test_random(random) % 4], (int)(test_random(random) % 4),
                 (int)i);                                                             /* no two alike, as a library's */
        tactics[i] = tactic_of(name, 1 + (double)(test_random(random) % 5) * 0.0003); /* some differ in no file */
    }
    return n;
}

static void shuffle(uint64_t *random, trm_tactic *tactics, int32_t n)
{
    for (int32_t i = n - 1; i > 0; i--) {
        const int32_t k = (int32_t)(test_random(random) % (uint64_t)(i + 1));
        const trm_tactic other = tactics[k];
        tactics[k] = tactics[i];
        tactics[i] = other;
    }
}

static void assert_same_list(const trm_shortlist *a, const trm_shortlist *b)
{
    assert_int_equal(a->n, b->n);
    for (int32_t i = 0; i < a->n; i++) {
        assert_string_equal(a->tactics[i].name, b->tactics[i].name);
        assert_true(a->tactics[i].microseconds == b->tactics[i].microseconds);
    }
}

static trm_shortlist shortlist_in(trm_tuner *tuner)
{
    trm_shortlist list;
    const trm_timing *timing = trm_tuner_find(tuner, "p");
    assert_non_null(timing);
    trm_shortlist_make(timing->tactics, timing->n_tactics, 0, &list);
    return list;
}

/* What was just timed, in whatever order, what a cache file has of it, and what a plan has. */
static void test_every_process_has_the_same(void **unused)
{
    (void)unused;
    uint64_t random = test_seed();
    trm_device *device;
    char path[512];
    assert_int_equal(trm_device_open(TRM_BACKEND_HOST, 0, 1, &device), TRM_OK);
    for (int turn = 0; turn < 200; turn++) {
        trm_tactic tactics[24];
        trm_shortlist timed;
        trm_tuner *tuner, *from_file, *from_plan;
        const int32_t n = random_tactics(&random, tactics);
        snprintf(path, sizeof(path), "%s/shortlist.%d", test_temporary_folder(), turn);
        assert_int_equal(trm_tuner_create(device, &tuner), TRM_OK);
        assert_int_equal(trm_tuner_create(device, &from_file), TRM_OK);
        assert_int_equal(trm_tuner_create(device, &from_plan), TRM_OK);
        assert_int_equal(trm_tuner_record(tuner, "p", tactics, n), TRM_OK);
        shuffle(&random, tactics, n);
        trm_tactics_sort(tactics, n);
        trm_shortlist_make(tactics, n, 0, &timed);
        assert_true(timed.n >= 1 && timed.n <= TRM_MOST_SHORTLISTED);
        const trm_shortlist recorded = shortlist_in(tuner);
        assert_same_list(&timed, &recorded);
        assert_int_equal(trm_tuner_save(tuner, path), TRM_OK);
        assert_int_equal(trm_tuner_load(from_file, path), TRM_OK);
        const trm_shortlist loaded = shortlist_in(from_file);
        assert_same_list(&timed, &loaded);
        assert_int_equal(trm_tuner_put(from_plan, "p", timed.tactics, timed.n), TRM_OK);
        const trm_shortlist planned = shortlist_in(from_plan);
        assert_same_list(&timed, &planned);
        trm_tuner_destroy(tuner);
        trm_tuner_destroy(from_file);
        trm_tuner_destroy(from_plan);
    }
    trm_device_close(device);
}

/* Engines of number 1 are such as load a kernel for each batch. */
static bool loads_kernels(const char *tactic)
{
    return strstr(tactic, ":1,") != NULL;
}

static void assert_order(const trm_tactic *tactics, int32_t n, const char *expected)
{
    trm_shortlist list, ordered;
    char text[1024];
    trm_shortlist_make(tactics, n, 0, &list);
    trm_shortlist_order(&list, loads_kernels, &ordered);
    assert_string_equal(text_of(&ordered, text), expected);
}

static void test_order(void **unused)
{
    (void)unused;
    const trm_tactic tactics[] = {
        {"cudnn.fused:1,8=0", 10}, {"cudnn.fused:2,8=0", 12.9}, {"cudnn.fused:3,8=0", 13}, {"cudnn.fused:4,8=0", 13.1}};
    assert_order(tactics, 4,
                 "cudnn.fused:2,8=0 12.900; cudnn.fused:3,8=0 13.000; cudnn.fused:1,8=0 10.000; "
                 "cudnn.fused:4,8=0 13.100");
    assert_order(tactics + 1, 3, "cudnn.fused:2,8=0 12.900; cudnn.fused:3,8=0 13.000; cudnn.fused:4,8=0 13.100");
    assert_order(tactics, 1, "cudnn.fused:1,8=0 10.000");
    const trm_tactic slow[] = {{"cudnn.fused:1,8=0", 10}, {"cudnn.fused:4,8=0", 13.1}};
    assert_order(slow, 2, "cudnn.fused:1,8=0 10.000; cudnn.fused:4,8=0 13.100");
    /* An engine of a plan that has no others. */
    trm_shortlist none = {.n = 0}, ordered;
    trm_shortlist_order(&none, loads_kernels, &ordered);
    assert_int_equal(ordered.n, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_best_of_each_engine),
        cmocka_unit_test(test_what_is_no_engine_is_alone),
        cmocka_unit_test(test_ties_lose_none),
        cmocka_unit_test(test_every_process_has_the_same),
        cmocka_unit_test(test_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
