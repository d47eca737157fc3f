/*
 * Which way exchanges take by their measured times: crossings between sizes, what is missing or was edited, and the
 * same ranges from memory and from the timing cache, where entries are merged, read, damaged and changed.
 */
#include "support/support.h"

#include <stdio.h>

#include "base/file.h"
#include "collectives/choice.h"

#define KIB ((size_t)1024)

static trm_device *device;

static int setup(void **state)
{
    (void)state;
    return trm_device_open(TRM_BACKEND_HOST, 0, 1, &device);
}

static int teardown(void **state)
{
    (void)state;
    trm_device_close(device);
    return 0;
}

static const trm_choice_machine machine = {22809, 12080, TRM_JOINT_NVLINK, 2};

/* A start and a rate: ways of lines, so that crossings are known. bulk is 8 + KiB / 160, nccl 10 + KiB / 100, one shot
 * 2 + KiB / 80 up to 512 KiB, two shots 4 + KiB / 120 up to 1 MiB. */
static double time_of(trm_peer_way way, size_t bytes)
{
    static const double starts[] = {10, 2, 4, 8}, rates[] = {100, 80, 120, 160};
    return starts[way] + (double)bytes / 1024 / rates[way];
}

static void add_time(trm_choice_times *times, trm_peer_way way, double microseconds)
{
    times->ways[times->n] = way;
    times->microseconds[times->n++] = microseconds;
}

static void fill(trm_choice_op op, trm_choice_times *times)
{
    static const size_t most[] = {SIZE_MAX, 512 * KIB, 1024 * KIB, 8192 * KIB};
    trm_tactic tactics[TRM_PEER_WAYS];
    for (int32_t i = 0; i < trm_choice_n_sizes(op); i++) {
        const size_t bytes = trm_choice_size(op, i);
        times[i] = (trm_choice_times){.n = 0};
        for (int32_t w = 0; w < (op == TRM_CHOICE_GATHER ? 2 : TRM_PEER_WAYS); w++) {
            if (bytes <= most[w]) {
                add_time(&times[i], (trm_peer_way)w, time_of((trm_peer_way)w, bytes));
            }
        }
        trm_choice_write(&times[i], tactics);
    }
}

static void test_crossings(void **state)
{
    (void)state;
    trm_choice_times times[TRM_CHOICE_SIZES];
    trm_choice choice;
    char text[256];
    fill(TRM_CHOICE_ALL_REDUCE, times);
    trm_choice_make(TRM_CHOICE_ALL_REDUCE, times, &choice);
    trm_choice_describe(&choice, text, sizeof(text));
    /* 2 + k / 80 = 4 + k / 120: k = 480; two shots and bulk would meet at 1920, where two shots do not reach. */
    assert_string_equal(text, "one_shot up to 480 KiB, two_shot up to 1024 KiB, bulk up to 8192 KiB, nccl");
    assert_int_equal(trm_choice_way(&choice, 1), TRM_PEER_ONE_SHOT);
    assert_int_equal(trm_choice_way(&choice, 480 * KIB), TRM_PEER_ONE_SHOT);
    assert_int_equal(trm_choice_way(&choice, 480 * KIB + 1), TRM_PEER_TWO_SHOT);
    assert_int_equal(trm_choice_way(&choice, 8192 * KIB), TRM_PEER_BULK);
    assert_int_equal(trm_choice_way(&choice, 8192 * KIB + 1), TRM_PEER_NO_WAY);
    for (int32_t i = 0; i < TRM_CHOICE_SIZES; i++) { /* what was fastest where it was measured */
        assert_int_equal(trm_choice_way(&choice, trm_choice_size(TRM_CHOICE_ALL_REDUCE, i)), times[i].ways[0]);
    }
    fill(TRM_CHOICE_GATHER, times);
    trm_choice_make(TRM_CHOICE_GATHER, times, &choice);
    assert_int_equal(trm_choice_way(&choice, 256 * KIB), TRM_PEER_ONE_SHOT);
    assert_int_equal(trm_choice_way(&choice, 256 * KIB + 1), TRM_PEER_NO_WAY);
}

/* A way that ends at a size is followed by what is fastest behind it, not by what is fastest at the next: two H200. */
static void test_envelope(void **state)
{
    (void)state;
    trm_choice_times times[TRM_CHOICE_SIZES];
    trm_tactic tactics[TRM_PEER_WAYS];
    trm_choice choice;
    fill(TRM_CHOICE_ALL_REDUCE, times);
    static const double at_512[] = {10.4, 6.3, 6.7, 7.7}, at_1024[] = {14.1, 0, 9.9, 9.4};
    for (int32_t i = 4; i < TRM_CHOICE_SIZES; i++) {
        times[i] = (trm_choice_times){.n = 0};
        for (int32_t w = 0; w < TRM_PEER_WAYS; w++) {
            if (i == 4 || (i == 5 && w != TRM_PEER_ONE_SHOT)) {
                add_time(&times[i], (trm_peer_way)w, i == 4 ? at_512[w] : at_1024[w]);
            } else if (i > 5 && w % 3 == 0) {
                add_time(&times[i], (trm_peer_way)w, w == 0 ? 50 : 10 + i);
            }
        }
        trm_choice_write(&times[i], tactics);
    }
    trm_choice_make(TRM_CHOICE_ALL_REDUCE, times, &choice);
    assert_int_equal(choice.n, 3);
    assert_int_equal(choice.ranges[0].way, TRM_PEER_ONE_SHOT);
    assert_int_equal(choice.ranges[0].most, 512 * KIB);
    assert_int_equal(choice.ranges[1].way, TRM_PEER_TWO_SHOT); /* 1.0 ahead, then 0.5 behind: two thirds */
    assert_int_equal(choice.ranges[1].most, 853 * KIB);
    assert_int_equal(choice.ranges[2].way, TRM_PEER_BULK);
    assert_int_equal(choice.ranges[2].most, 8192 * KIB);
}

/* NCCL first and last, a way that is missing at the next size or at the one before. */
static void test_ways_in_turn(void **state)
{
    (void)state;
    trm_choice_times times[TRM_CHOICE_SIZES] = {{.n = 0}};
    trm_tactic tactics[TRM_PEER_WAYS];
    trm_choice choice;
    for (int32_t i = 0; i < 4; i++) {
        add_time(&times[i], TRM_PEER_NO_WAY, 10);
        if (i != 3) {
            add_time(&times[i], TRM_PEER_ONE_SHOT, i == 1 ? 5 : 20);
        }
        trm_choice_write(&times[i], tactics);
    }
    trm_choice_make(TRM_CHOICE_GATHER, times, &choice);
    assert_int_equal(choice.n, 3);
    assert_int_equal(choice.ranges[0].way, TRM_PEER_NO_WAY); /* 10 of 4 to 16 KiB behind, then 5 ahead: two thirds */
    assert_int_equal(choice.ranges[0].most, 12 * KIB);
    assert_int_equal(choice.ranges[1].way, TRM_PEER_ONE_SHOT);
    assert_int_equal(choice.ranges[1].most, 32 * KIB);
    times[2] = times[3]; /* one shot does not reach the third */
    trm_choice_make(TRM_CHOICE_GATHER, times, &choice);
    assert_int_equal(choice.ranges[1].most, 16 * KIB);
    times[0].n = 1; /* and was not measured at the first */
    trm_choice_make(TRM_CHOICE_GATHER, times, &choice);
    assert_int_equal(choice.ranges[0].most, 16 * KIB - 1);
    assert_int_equal(trm_choice_way(&choice, 16 * KIB), TRM_PEER_ONE_SHOT);
    times[2].n = 0; /* a size that nobody knows */
    trm_choice_make(TRM_CHOICE_GATHER, times, &choice);
    assert_int_equal(choice.n, 0);
}

static void save(const char *path, const trm_choice_machine *of, trm_choice_op op, trm_choice_times *times)
{
    trm_tuner *tuner;
    trm_tactic tactics[TRM_PEER_WAYS];
    char problem[TRM_PROBLEM_TEXT_SIZE];
    assert_ok(trm_tuner_create(device, &tuner));
    for (int32_t i = 0; i < trm_choice_n_sizes(op); i++) {
        trm_choice_problem(of, op, trm_choice_size(op, i), problem);
        trm_choice_write(&times[i], tactics);
        assert_ok(trm_tuner_record(tuner, problem, tactics, times[i].n));
    }
    assert_ok(trm_tuner_save(tuner, path));
    trm_tuner_destroy(tuner);
}

static void load(const char *path, const trm_choice_machine *of, trm_choice_op op, trm_choice *choice)
{
    trm_tuner *tuner;
    trm_choice_times times[TRM_CHOICE_SIZES] = {{.n = 0}};
    char problem[TRM_PROBLEM_TEXT_SIZE];
    assert_ok(trm_tuner_create(device, &tuner));
    assert_ok(trm_tuner_load(tuner, path));
    for (int32_t i = 0; i < trm_choice_n_sizes(op); i++) {
        trm_choice_problem(of, op, trm_choice_size(op, i), problem);
        const trm_timing *timing = trm_tuner_find(tuner, problem);
        if (timing != NULL) {
            trm_choice_read(timing, &times[i]);
            assert_true(times[i].n <= TRM_PEER_WAYS);
        }
    }
    trm_tuner_destroy(tuner);
    trm_choice_make(op, times, choice);
}

static void assert_same(const trm_choice *a, const trm_choice *b)
{
    assert_int_equal(a->n, b->n);
    for (int32_t i = 0; i < a->n; i++) {
        assert_int_equal(a->ranges[i].most, b->ranges[i].most);
        assert_int_equal(a->ranges[i].way, b->ranges[i].way);
    }
}

/* Times of any digits mean in the file what they meant when they were measured; other machines have other entries. */
static void test_cache_keeps_the_choice(void **state)
{
    (void)state;
    char path[512];
    uint64_t random = test_seed();
    snprintf(path, sizeof(path), "%s/timing.txt", test_temporary_folder());
    for (int32_t turn = 0; turn < 200; turn++) {
        const trm_choice_machine of = {22809, 12080 + turn, TRM_JOINT_NVLINK, 2};
        trm_choice_times times[TRM_CHOICE_SIZES] = {{.n = 0}};
        trm_choice measured, known;
        trm_tactic tactics[TRM_PEER_WAYS];
        for (int32_t i = 0; i < TRM_CHOICE_SIZES; i++) {
            for (int32_t w = 0; w < TRM_PEER_WAYS; w++) {
                if (w == 0 || test_random_below(&random, 4) > 0) {
                    add_time(&times[i], (trm_peer_way)w, 5 + 4 * (double)test_random_float(&random));
                }
            }
            trm_choice_write(&times[i], tactics);
        }
        trm_choice_make(TRM_CHOICE_ALL_REDUCE, times, &measured);
        assert_true(measured.n > 0);
        for (int32_t i = 0; i < TRM_CHOICE_SIZES; i++) {
            assert_int_equal(trm_choice_way(&measured, trm_choice_size(TRM_CHOICE_ALL_REDUCE, i)), times[i].ways[0]);
        }
        for (int32_t i = 1; i < measured.n; i++) {
            assert_true(measured.ranges[i - 1].most < measured.ranges[i].most);
        }
        save(path, &of, TRM_CHOICE_ALL_REDUCE, times);
        load(path, &of, TRM_CHOICE_ALL_REDUCE, &known);
        assert_same(&measured, &known);
    }
    trm_choice_machine others[] = {machine, machine, machine, machine};
    others[0].ranks = 4;
    others[1].joint = TRM_JOINT_PCIE;
    others[2].nccl = 22810;
    others[3].driver = 13000;
    for (int32_t i = 0; i < 4; i++) {
        trm_choice known;
        load(path, &others[i], TRM_CHOICE_ALL_REDUCE, &known);
        assert_int_equal(known.n, 0);
    }
}

static void replace(char *text, size_t size, const char *old, const char *new)
{
    char *at = strstr(text, old);
    assert_non_null(at);
    char *rest = strdup(at + strlen(old));
    snprintf(at, size - (size_t)(at - text), "%s%s", new, rest);
    free(rest);
}

/* A line says what is used, not what is fastest; one that is damaged or names nothing that is known is not there. */
static void test_edited(void **state)
{
    (void)state;
    char path[512], *text, edited[8192];
    size_t size;
    trm_choice_times times[TRM_CHOICE_SIZES];
    trm_choice choice;
    snprintf(path, sizeof(path), "%s/timing.txt", test_temporary_folder());
    fill(TRM_CHOICE_GATHER, times);
    save(path, &machine, TRM_CHOICE_GATHER, times);
    assert_ok(trm_file_read(path, sizeof(edited), &text, &size));
    assert_non_null(strstr(text, "nccl 22809, driver 12080; 2 ranks, NVLink; all_gather of 65536 bytes of bf16"
                                 "\tone_shot 2.800\tnccl 10.640\n"));
    snprintf(edited, sizeof(edited), "%s", text);
    replace(edited, sizeof(edited), "\tone_shot 2.800\tnccl 10.640", "\tnccl 10.640\tone_shot 2.800");
    test_write_file(path, edited, strlen(edited));
    load(path, &machine, TRM_CHOICE_GATHER, &choice);
    assert_int_equal(choice.n, 3);
    assert_int_equal(trm_choice_way(&choice, 16 * KIB), TRM_PEER_ONE_SHOT);
    assert_int_equal(choice.ranges[0].most, 40 * KIB); /* in the middle, as no times say where */
    assert_int_equal(trm_choice_way(&choice, 64 * KIB), TRM_PEER_NO_WAY);
    assert_int_equal(trm_choice_way(&choice, 256 * KIB), TRM_PEER_ONE_SHOT);

    snprintf(edited, sizeof(edited), "%s", text);
    replace(edited, sizeof(edited), "\tone_shot 2.800", "\tsmoke_signals 0.100\tone_shot 2.800");
    test_write_file(path, edited, strlen(edited));
    load(path, &machine, TRM_CHOICE_GATHER, &choice); /* of another version, perhaps */
    assert_int_equal(choice.n, 1);
    snprintf(edited, sizeof(edited), "%s", text);
    replace(edited, sizeof(edited), "\tone_shot 2.800", "\tone_shot 2.800\tone_shot 1\tone_shot 2\tone_shot 3");
    test_write_file(path, edited, strlen(edited));
    load(path, &machine, TRM_CHOICE_GATHER, &choice); /* a way counts once */
    assert_int_equal(choice.n, 1);
    snprintf(edited, sizeof(edited), "%s", text);
    replace(edited, sizeof(edited), "\tone_shot 2.800", "\tone_shot 1e300");
    test_write_file(path, edited, strlen(edited));
    load(path, &machine, TRM_CHOICE_GATHER, &choice); /* no time of an exchange: its way is not there */
    assert_int_equal(trm_choice_way(&choice, 64 * KIB), TRM_PEER_NO_WAY);
    static const char *const damaged[] = {"\tone_shot -2.800", "\tone_shot fast", "\tsmoke_signals 0.1\tdrums 1",
                                          "\tone_shot 1e300\tnccl 1.001e9"};
    for (size_t i = 0; i < sizeof(damaged) / sizeof(*damaged); i++) {
        snprintf(edited, sizeof(edited), "%s", text);
        replace(edited, sizeof(edited), "\tone_shot 2.800\tnccl 10.640", damaged[i]);
        test_write_file(path, edited, strlen(edited));
        load(path, &machine, TRM_CHOICE_GATHER, &choice);
        assert_int_equal(choice.n, 0);
    }
    free(text);
}

/* What two processes measured, of 2 and of 4 ranks, is both there. */
static void test_merged(void **state)
{
    (void)state;
    char path[512];
    trm_choice_times two[TRM_CHOICE_SIZES], four[TRM_CHOICE_SIZES];
    trm_choice_machine of_four = machine;
    trm_choice choice;
    of_four.ranks = 4;
    snprintf(path, sizeof(path), "%s/timing.txt", test_temporary_folder());
    fill(TRM_CHOICE_ALL_REDUCE, two);
    fill(TRM_CHOICE_ALL_REDUCE, four);
    for (int32_t i = 0; i < TRM_CHOICE_SIZES; i++) {
        four[i].microseconds[0] *= 2;
    }
    save(path, &machine, TRM_CHOICE_ALL_REDUCE, two);
    save(path, &of_four, TRM_CHOICE_ALL_REDUCE, four);
    load(path, &machine, TRM_CHOICE_ALL_REDUCE, &choice);
    assert_int_equal(choice.ranges[0].most, 480 * KIB);
    load(path, &of_four, TRM_CHOICE_ALL_REDUCE, &choice);
    assert_true(choice.n > 0 && choice.ranges[0].most < 480 * KIB);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_crossings),    cmocka_unit_test(test_envelope),
        cmocka_unit_test(test_ways_in_turn), cmocka_unit_test(test_cache_keeps_the_choice),
        cmocka_unit_test(test_edited),       cmocka_unit_test(test_merged),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
