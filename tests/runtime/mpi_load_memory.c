/* How much memory a rank needs at most while it loads and runs a model: its part of the weights once, and little more.
 */
#define TINY_HIDDEN 1024
#define TINY_HEADS  8
#include "support/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <trireme/trireme.h>

#include "dist/llm/generator.h"
#include "support/world.h"
#include "support/tiny_model.h"

#define VOCAB   48000
#define MIB     ((size_t)1 << 20)
#define WEIGHTS ((size_t)VOCAB * TINY_HIDDEN * sizeof(float)) /* and 4.3 million numbers more in all */
#ifdef __SANITIZE_ADDRESS__                                   /* which keeps what was freed */
#define OTHERS (1024 * MIB)
#else
#define OTHERS (48 * MIB) /* activations, caches, buffers of libraries, stacks of threads */
#endif

/* A line of /proc/self/status, in bytes. */
static size_t status_of(const char *name)
{
    char line[256];
    size_t kilobytes = 0;
    FILE *file = fopen("/proc/self/status", "r");
    assert_non_null(file);
    while (fgets(line, sizeof(line), file) != NULL) {
        if (strncmp(line, name, strlen(name)) == 0) {
            kilobytes = strtoull(line + strlen(name) + 1, NULL, 10);
        }
    }
    fclose(file);
    assert_int_not_equal(kilobytes, 0);
    return kilobytes << 10;
}

/* Loads and runs with no more memory of its own than `most` bytes. The file's pages that are in the system's memory are
 * not counted: ranks share them, and they are given up where memory is needed. */
static void run_within(const char *folder, size_t most)
{
    static const int32_t prompt[] = {1, 2, 3};
    struct rlimit limit, before;
    assert_int_equal(getrlimit(RLIMIT_DATA, &before), 0);
    limit = before;
    const size_t had = status_of("VmData");
    limit.rlim_cur = had + most;
    assert_int_equal(setrlimit(RLIMIT_DATA, &limit), 0);
    trm_model *model;
    trm_generator *generator;
    assert_ok(trm_model_open(folder, &model));
    trm_generator_options options = TRM_GENERATOR_OPTIONS_INIT;
    options.dtype = TRM_F32;
    options.max_context = 64;
    options.max_sequences = 1;
    options.mesh.size[TRM_AXIS_TP] = trm_world_size(test_world);
    assert_ok(trm_generator_create(model, test_world, &options, &generator));
    trm_scheduler_options how = TRM_SCHEDULER_OPTIONS_INIT;
    trm_scheduler *s;
    assert_ok(trm_scheduler_create(generator, &how, &s));
    if (trm_world_rank(test_world) == 0) {
        trm_serving_request r = TRM_SERVING_REQUEST_INIT;
        r.prompt = prompt;
        r.n_prompt = 3;
        r.max_tokens = 4;
        assert_ok(trm_scheduler_submit(s, &r));
        while (trm_scheduler_has_work(s)) {
            const trm_serving_event *events;
            int32_t n;
            assert_ok(trm_scheduler_step(s, &events, &n));
        }
        assert_ok(trm_scheduler_end(s));
    } else {
        assert_ok(trm_scheduler_follow(s));
    }
    const size_t took = status_of("VmData") - had;
    trm_generator_limits limits;
    trm_generator_get_limits(generator, &limits);
    assert_true(limits.memory.weights > WEIGHTS / (size_t)trm_world_size(test_world) / 2);
    assert_true(took >= limits.memory.weights); /* else they lie where this does not look */
    printf("rank %d: %zu MiB of weights, %zu MiB planned, %zu MiB taken, at most %zu allowed\n",
           (int)trm_world_rank(test_world), limits.memory.weights / MIB, limits.memory.total / MIB, took / MIB,
           most / MIB);
    trm_scheduler_destroy(s);
    trm_generator_destroy(generator);
    trm_model_close(model);
    assert_int_equal(setrlimit(RLIMIT_DATA, &before), 0);
}

static void weights_are_held_once(void **state)
{
    (void)state;
    static char folder[4096];
    if (trm_world_rank(test_world) == 0) {
        snprintf(folder, sizeof(folder), "%s", tiny_model(test_temporary_folder(), VOCAB));
    }
    assert_ok(trm_world_broadcast(test_world, folder, sizeof(folder), 0));
    const size_t part = WEIGHTS / (size_t)trm_world_size(test_world);
    run_within(folder, part + part / 4 + OTHERS);
    assert_ok(trm_world_all_ok(test_world, TRM_OK));
    if (trm_world_rank(test_world) == 0) {
        char path[4200];
        snprintf(path, sizeof(path), "%s/model.safetensors", folder);
        assert_int_equal(unlink(path), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(weights_are_held_once)};
    return cmocka_run_group_tests(tests, test_open_shipped_model, test_close_world);
}
