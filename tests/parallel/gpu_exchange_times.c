/*
 * Exchanges are measured once, kept in the timing cache, and chosen alike on all ranks: one GPU per rank of one host,
 * under mpirun; alone there is nothing to choose. Prints what was measured.
 */
#include "support/support.h"

#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "collectives/choice.h"
#include "dist/parallel/world.h"

enum { MOST_TEXT = 1 << 16, MOST_SHOWN = 640, LARGEST = 9 << 18 }; /* floats: 9 MiB */

static trm_world *world;
static trm_stream *stream;
static trm_mesh mesh;
static char path[256];

static const trm_choice unknown = {.n = 0};

/* As a started process has it. */
static void forget(void)
{
    world->chosen_exchanges = 0;
    for (int32_t op = 0; op < TRM_CHOICE_OPS; op++) {
        trm_communicator_set_peer_choice(world->communicator, (trm_choice_op)op, &unknown);
    }
}

/* How many ways and sizes were measured. */
static int32_t choose(int32_t level, const char *cache)
{
    const int32_t before = world->timed_exchanges;
    forget();
    assert_ok(trm_world_choose_exchanges(world, &mesh, level, cache));
    return world->timed_exchanges - before;
}

static void describe(char text[MOST_SHOWN])
{
    char first[256], second[256];
    trm_choice_describe(trm_communicator_peer_choice(world->communicator, TRM_CHOICE_ALL_REDUCE), first, sizeof(first));
    trm_choice_describe(trm_communicator_peer_choice(world->communicator, TRM_CHOICE_GATHER), second, sizeof(second));
    snprintf(text, MOST_SHOWN, "%s; %s", first, second);
}

static bool is_constant(void)
{
    return trm_communicator_peer_choice(world->communicator, TRM_CHOICE_ALL_REDUCE)->n == 0 &&
           trm_communicator_peer_choice(world->communicator, TRM_CHOICE_GATHER)->n == 0;
}

/* Between the steps of which rank 0 alone changes the file. */
static void meet(void)
{
    assert_ok(trm_world_all_ok(world, TRM_OK));
}

static void read_cache(char *text)
{
    char *found;
    size_t size;
    assert_ok(trm_file_read(path, MOST_TEXT - 1, &found, &size));
    snprintf(text, MOST_TEXT, "%s", found);
    free(found);
}

/* What the cache has first is what was fastest, and what is used. */
static void check_cache(void)
{
    trm_choice_machine machine;
    trm_tuner *tuner;
    char problem[TRM_PROBLEM_TEXT_SIZE];
    trm_communicator_peer_machine(world->communicator, &machine);
    assert_int_equal(machine.ranks, trm_world_size(world));
    assert_true(machine.nccl > 0 && machine.driver > 0);
    assert_ok(trm_tuner_create(world->device, &tuner));
    assert_ok(trm_tuner_load(tuner, path));
    for (int32_t op = 0; op < TRM_CHOICE_OPS; op++) {
        const trm_choice *choice = trm_communicator_peer_choice(world->communicator, (trm_choice_op)op);
        for (int32_t i = 0; i < trm_choice_n_sizes((trm_choice_op)op); i++) {
            const size_t bytes = trm_choice_size((trm_choice_op)op, i);
            trm_choice_problem(&machine, (trm_choice_op)op, bytes, problem);
            const trm_timing *timing = trm_tuner_find(tuner, problem);
            assert_non_null(timing);
            printf("%s:", problem);
            for (int32_t k = 0; k < timing->n_tactics; k++) {
                printf(" %s %.2f", timing->tactics[k].name, timing->tactics[k].microseconds);
                assert_true(timing->tactics[k].microseconds >= timing->tactics[0].microseconds);
            }
            printf("\n");
            assert_true(timing->n_tactics >= 2); /* NCCL, and one over peer memory at least */
            assert_string_equal(timing->tactics[0].name, trm_peer_way_name(trm_choice_way(choice, bytes)));
        }
    }
    trm_tuner_destroy(tuner);
}

static void test_measured_once(void **state)
{
    (void)state;
    char chosen[MOST_SHOWN], again[MOST_SHOWN], *before = malloc(MOST_TEXT), *after = malloc(MOST_TEXT);
    double began = trm_clock_seconds();
    assert_true(choose(3, path) > 0);
    double seconds = trm_clock_seconds() - began;
    describe(chosen);
    assert_ok(trm_world_agree(world, "choice", chosen, strlen(chosen)));
    assert_false(is_constant());
    if (trm_world_rank(world) == 0) {
        check_cache();
        read_cache(before);
        printf("%s; measured in %.0f ms\n", chosen, seconds * 1e3);
    }
    meet();
    began = trm_clock_seconds();
    assert_int_equal(choose(3, path), 0);
    seconds = trm_clock_seconds() - began;
    describe(again);
    assert_string_equal(again, chosen);
    assert_int_equal(choose(1, path), 0);
    describe(again);
    assert_string_equal(again, chosen);
    if (trm_world_rank(world) == 0) {
        read_cache(after);
        assert_string_equal(before, after);
        printf("known after %.1f ms\n", seconds * 1e3);
    }
    forget();
    assert_true(is_constant());
    assert_ok(trm_world_choose_exchanges(world, &mesh, 0, path)); /* nobody asks */
    assert_true(is_constant());
    assert_ok(trm_world_choose_exchanges(world, &mesh, 3, path));
    assert_false(is_constant());
    free(before);
    free(after);
}

static void test_without_a_cache(void **state)
{
    (void)state;
    char other[300];
    snprintf(other, sizeof(other), "%s.other", path);
    assert_int_equal(choose(3, NULL), 0);
    assert_true(is_constant());
    assert_int_equal(choose(1, other), 0); /* knows nothing, and may not measure */
    assert_true(is_constant());
    assert_false(trm_file_exists(other));
}

/* What had no cache, or an empty one that it may not fill, is not the last to ask in its process. */
static void test_a_cache_comes_later(void **state)
{
    (void)state;
    char other[300], chosen[MOST_SHOWN], again[MOST_SHOWN];
    snprintf(other, sizeof(other), "%s.other", path);
    (void)choose(3, path); /* now it knows all */
    forget();
    const int32_t timed = world->timed_exchanges;
    assert_ok(trm_world_choose_exchanges(world, &mesh, 3, NULL));
    assert_ok(trm_world_choose_exchanges(world, &mesh, 1, other));
    assert_true(is_constant());
    assert_ok(trm_world_choose_exchanges(world, &mesh, 1, path));
    assert_false(is_constant());
    describe(chosen);
    assert_ok(trm_world_choose_exchanges(world, &mesh, 3, other)); /* once it was chosen, that is it */
    describe(again);
    assert_string_equal(again, chosen);
    assert_int_equal(world->timed_exchanges, timed);
    assert_false(trm_file_exists(other));
}

/* Bytes of the sum of 1.5 r + i % 251 over ranks r: exact in f32 whatever the order. */
static void check_sums(void)
{
    const int32_t n = trm_world_size(world), me = trm_world_rank(world);
    float *host = malloc(LARGEST * sizeof(float));
    void *from, *to;
    assert_ok(trm_device_alloc(world->device, LARGEST * sizeof(float), &from));
    assert_ok(trm_device_alloc(world->device, LARGEST * sizeof(float), &to));
    for (int32_t i = 0; i < LARGEST; i++) {
        host[i] = 1.5f * (float)me + (float)(i % 251);
    }
    assert_ok(trm_stream_upload(stream, from, host, LARGEST * sizeof(float)));
    for (size_t count = 3; count <= LARGEST; count = count == LARGEST      ? count + 1
                                                     : count * 3 < LARGEST ? count * 3
                                                                           : LARGEST) {
        const trm_exchange x = {TRM_ALL_REDUCE, TRM_REDUCE_SUM, TRM_F32, from, to, count, 0};
        for (int32_t turn = 0; turn < 2; turn++) {
            if (turn == 1 && count * sizeof(float) > TRM_PEER_BULK_BYTES) {
                continue;
            }
            assert_ok(trm_stream_fill_zero(stream, to, count * sizeof(float)));
            assert_ok(turn == 0 ? trm_communicator_exchange(world->communicator, &x, stream)
                                : trm_communicator_peer_sum(world->communicator, &x, stream));
            assert_ok(trm_stream_download(stream, host, to, count * sizeof(float)));
            assert_ok(trm_stream_synchronize(stream));
            for (size_t i = 0; i < count; i++) {
                const float expected = 1.5f * (float)(n * (n - 1) / 2) + (float)n * (float)(i % 251);
                if (host[i] != expected) {
                    fail_msg("%zu: element %zu is %g, expected %g", count, i, (double)host[i], (double)expected);
                }
            }
        }
    }
    assert_ok(trm_communicator_check(world->communicator));
    trm_device_free(world->device, from);
    trm_device_free(world->device, to);
    free(host);
}

/* Writes the cache again with `way` first wherever it stands. */
static void put_first(const char *way)
{
    trm_choice_machine machine;
    trm_tuner *tuner;
    trm_communicator_peer_machine(world->communicator, &machine);
    assert_ok(trm_tuner_create(world->device, &tuner));
    assert_ok(trm_tuner_load(tuner, path));
    for (int32_t i = 0; i < trm_choice_n_sizes(TRM_CHOICE_ALL_REDUCE); i++) {
        char problem[TRM_PROBLEM_TEXT_SIZE];
        trm_tactic tactics[TRM_PEER_WAYS];
        trm_choice_problem(&machine, TRM_CHOICE_ALL_REDUCE, trm_choice_size(TRM_CHOICE_ALL_REDUCE, i), problem);
        const trm_timing *timing = trm_tuner_find(tuner, problem);
        assert_non_null(timing);
        const int32_t n = timing->n_tactics;
        for (int32_t k = 0; k < n; k++) {
            tactics[k] = timing->tactics[k];
            tactics[k].microseconds = strcmp(tactics[k].name, way) == 0 ? 0.5 : tactics[k].microseconds + 1;
        }
        assert_ok(trm_tuner_record(tuner, problem, tactics, n));
    }
    assert_ok(trm_tuner_save(tuner, path));
    trm_tuner_destroy(tuner);
}

/* Every way gives the sums; one line that is gone is measured again, alone. */
static void test_ways(void **state)
{
    (void)state;
    static const char *const ways[] = {"nccl", "one_shot", "two_shot", "bulk"};
    const trm_choice *choice = trm_communicator_peer_choice(world->communicator, TRM_CHOICE_ALL_REDUCE);
    (void)choose(3, path);
    check_sums();
    for (int32_t w = 0; w < 4; w++) {
        if (trm_world_rank(world) == 0) {
            put_first(ways[w]);
        }
        meet();
        assert_int_equal(choose(3, path), 0);
        assert_string_equal(trm_peer_way_name(trm_choice_way(choice, 65536)), ways[w]);
        check_sums();
    }
    if (trm_world_rank(world) == 0) {
        char *text = malloc(MOST_TEXT);
        read_cache(text);
        char *line = strstr(text, "all_reduce of 65536 ");
        assert_non_null(line);
        *strchr(line, '\t') = ' '; /* not one of its problems any more */
        test_write_file(path, text, strlen(text));
        free(text);
    }
    meet();
    const int32_t timed = choose(3, path);
    assert_true(timed >= 2 && timed <= TRM_PEER_WAYS);
    assert_false(is_constant());
    check_sums();
}

/* The linker sends the library's calls here (CMakeLists.txt). */
trm_status __real_trm_cuda_peer_all_reduce(const trm_peer_link *link, trm_peer_way way, trm_dtype dtype,
                                           const void *from, void *to, size_t count, int32_t threads, void *stream);
trm_status __wrap_trm_cuda_peer_all_reduce(const trm_peer_link *link, trm_peer_way way, trm_dtype dtype,
                                           const void *from, void *to, size_t count, int32_t threads, void *stream);
static bool refuses_two_shots; /* this rank */

trm_status __wrap_trm_cuda_peer_all_reduce(const trm_peer_link *link, trm_peer_way way, trm_dtype dtype,
                                           const void *from, void *to, size_t count, int32_t threads, void *cuda_stream)
{
    if (refuses_two_shots && way == TRM_PEER_TWO_SHOT) {
        return trm_fail(TRM_ERROR_UNSUPPORTED, "two shots: refused by the test");
    }
    return __real_trm_cuda_peer_all_reduce(link, way, dtype, from, to, count, threads, cuda_stream);
}

/* What one rank alone cannot do none does, and the exchanges after it go well. */
static void test_a_way_of_all_but_one_rank(void **state)
{
    (void)state;
    char other[300];
    snprintf(other, sizeof(other), "%s.refused", path);
    refuses_two_shots = trm_world_rank(world) == trm_world_size(world) - 1;
    const double began = trm_clock_seconds();
    assert_true(choose(3, other) > 0);
    assert_true(trm_clock_seconds() - began < 10); /* nobody waited for the other till the deadline */
    refuses_two_shots = false;
    const trm_choice *choice = trm_communicator_peer_choice(world->communicator, TRM_CHOICE_ALL_REDUCE);
    for (int32_t i = 0; i < trm_choice_n_sizes(TRM_CHOICE_ALL_REDUCE); i++) {
        const trm_peer_way way = trm_choice_way(choice, trm_choice_size(TRM_CHOICE_ALL_REDUCE, i));
        assert_int_not_equal(way, TRM_PEER_TWO_SHOT);
    }
    if (trm_world_rank(world) == 0) {
        char *text;
        size_t size;
        assert_ok(trm_file_read(other, MOST_TEXT - 1, &text, &size));
        assert_null(strstr(text, "two_shot"));
        assert_non_null(strstr(text, "one_shot"));
        free(text);
        unlink(other);
        strcat(other, ".lock");
        unlink(other);
    }
    check_sums();
}

static void test_alone(void **state)
{
    (void)state;
    assert_ok(trm_world_choose_exchanges(world, &mesh, 3, path));
    assert_false(trm_file_exists(path));
}

int main(void)
{
    trm_world_options options = TRM_WORLD_OPTIONS_INIT;
    options.backend = TRM_BACKEND_CUDA;
    alarm(test_is_brief() ? 1200 : 120); /* whatever happens, no rank stays */
    if (trm_world_open(&options, &world) != TRM_OK || trm_stream_create(world->device, &stream) != TRM_OK) {
        fprintf(stderr, "cannot open the world: %s\n", trm_last_error());
        return trm_device_cuda_count(NULL, 0) == 0 ? 77 : 1;
    }
    char folder[] = "/tmp/trireme_exchange_times_XXXXXX";
    snprintf(path, sizeof(path), "%s/timing.txt", mkdtemp(folder) == NULL ? "/nowhere" : folder);
    if (trm_mesh_parse(NULL, trm_world_size(world), &mesh) != TRM_OK) {
        return 1;
    }
    if (trm_world_size(world) > 1 && trm_communicator_peer_link(world->communicator) == NULL) {
        fprintf(stderr, "the GPUs do not reach each other's memory\n");
        trm_world_close(world);
        return 77;
    }
    const struct CMUnitTest several[] = {
        cmocka_unit_test(test_measured_once),
        cmocka_unit_test(test_without_a_cache),
        cmocka_unit_test(test_a_cache_comes_later),
        cmocka_unit_test(test_ways),
        cmocka_unit_test(test_a_way_of_all_but_one_rank),
    };
    const struct CMUnitTest one[] = {cmocka_unit_test(test_alone)};
    int failed = trm_world_size(world) > 1 ? cmocka_run_group_tests(several, NULL, NULL)
                                           : cmocka_run_group_tests(one, NULL, NULL);
    unlink(path);
    strcat(path, ".lock");
    unlink(path);
    rmdir(folder);
    trm_stream_destroy(stream);
    trm_world_close(world);
    return failed;
}
