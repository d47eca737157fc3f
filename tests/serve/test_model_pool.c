/* Which models are loaded and unloaded, and what becomes of a model whose job cannot be started. */
#include "launcher/serve/replicas/model_pool.h"
#include "launcher/serve/worker/worker.h"
#include "support/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static dispatcher_use unloaded(double wanted)
{
    return (dispatcher_use){.state = DISPATCHER_SLEEPING, .gone = true, .leaving = true, .wanted = wanted};
}

static dispatcher_use loaded(int32_t live, double used)
{
    return (dispatcher_use){.state = DISPATCHER_READY, .live = live, .used = used};
}

static void check(const dispatcher_use *models, int32_t n, int32_t most, pool_step expected)
{
    const pool_step step = pool_choose(models, n, most);
    assert_int_equal(step.load, expected.load);
    assert_int_equal(step.unload, expected.unload);
    assert_int_equal(step.retry, expected.retry);
    assert_int_equal(step.give_up, expected.give_up);
}

static const pool_step nothing = {-1, -1, -1, -1};

static pool_step load(int32_t model)
{
    return (pool_step){.load = model, .unload = -1, .give_up = -1, .retry = -1};
}

static pool_step unload(int32_t model)
{
    return (pool_step){.load = -1, .unload = model, .give_up = -1, .retry = -1};
}

static void models_come_and_go(void **state)
{
    (void)state;
    dispatcher_use models[] = {unloaded(0), unloaded(0), unloaded(0), unloaded(0)};
    check(models, 4, 2, nothing);
    models[2] = unloaded(7);
    check(models, 4, 2, load(2));
    models[3] = unloaded(5); /* waits for longer */
    check(models, 4, 2, load(3));
    models[3] = loaded(1, 5);
    check(models, 4, 2, load(2));
    models[0] = loaded(0, 6); /* two are loaded: the idle one leaves, though it was used later */
    check(models, 4, 2, unload(0));
    models[3] = loaded(0, 5); /* both are idle */
    check(models, 4, 2, unload(3));
    models[0] = loaded(2, 6); /* both are busy */
    models[3] = loaded(1, 9);
    check(models, 4, 2, unload(0));
    check(models, 4, 3, load(2));
    models[2] = unloaded(0); /* nobody waits any more */
    check(models, 4, 2, nothing);
}

static void one_change_at_a_time(void **state)
{
    (void)state;
    static const dispatcher_state busy[] = {DISPATCHER_LOADING, DISPATCHER_RECOVERING, DISPATCHER_DRAINING};
    dispatcher_use models[] = {loaded(0, 1), unloaded(3)};
    for (size_t i = 0; i < sizeof(busy) / sizeof(busy[0]); i++) {
        models[0].state = busy[i];
        check(models, 2, 2, nothing);
        check(models, 2, 1, nothing);
    }
    models[0] = loaded(1, 1); /* asked to leave already */
    models[0].leaving = true;
    check(models, 2, 2, nothing);
    models[0] = unloaded(0); /* its processes have not ended yet */
    models[0].gone = false;
    check(models, 2, 2, nothing);
    models[0].gone = true;
    check(models, 2, 2, load(1));
}

static void memory_is_short(void **state)
{
    (void)state;
    dispatcher_use models[] = {loaded(1, 1), loaded(0, 2), unloaded(3)};
    models[2].lacks_memory = true;
    check(models, 3, 3, (pool_step){.load = -1, .unload = 1, .give_up = -1, .retry = 2});
    models[1] = unloaded(0);
    check(models, 3, 3, (pool_step){.load = -1, .unload = 0, .give_up = -1, .retry = 2});
    models[0] = unloaded(0);
    check(models, 3, 3, (pool_step){.load = -1, .unload = -1, .give_up = 2, .retry = -1});
    models[2].lacks_memory = false;
    check(models, 3, 3, load(2));
}

static char program[4096];

static void keep_line(void *user, const char *line)
{
    snprintf(user, 1024, "%s", line);
}

/* Has a model loaded by ranks that fail in this way; returns where it then stands. */
static dispatcher_use fail_start(const char *way, char *line)
{
    char *command[] = {program, (char *)(uintptr_t)way, NULL};
    const supervisor_options job = {.command = command, .ranks = 1, .heartbeat_seconds = 60, .step_seconds = 60};
    const dispatcher_options options = {.name = "m",
                                        .on_demand = true,
                                        .start_seconds = 60,
                                        .replicas = &job,
                                        .n_replicas = 1,
                                        .max_requests = 8,
                                        .most_restarts = 3,
                                        .log = keep_line,
                                        .log_user = line};
    dispatcher *d;
    assert_ok(dispatcher_create(&options, &d));
    pool_tend(&d, 1, 1);
    assert_true(dispatcher_get_use(d).gone); /* nobody wants it yet */
    dispatcher_wake(d, true);
    assert_true(dispatcher_get_use(d).wanted > 0);
    pool_tend(&d, 1, 1);
    dispatcher_use use = dispatcher_get_use(d);
    assert_false(use.gone);
    const double until = supervisor_clock() + 120;
    while (!(use.gone && use.state == DISPATCHER_SLEEPING) && supervisor_clock() < until) {
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
        use = dispatcher_get_use(d);
    }
    dispatcher_stop(d);
    dispatcher_destroy(d);
    return use;
}

static void starts_fail(void **state)
{
    (void)state;
    char line[1024] = "";
    dispatcher_use use = fail_start("memory", line);
    assert_true(use.gone && use.lacks_memory);
    assert_string_equal(line, "cannot load model m: no room for a cache");
    use = fail_start("weights", line);
    assert_true(use.gone && !use.lacks_memory);
    assert_string_equal(line, "cannot load model m: no such weights");
}

/* A rank that fails: for want of memory, or for another cause. */
static int fail_as_rank(const char *way)
{
    worker *w;
    if (worker_create(getenv(WORKER_SOCKET_VARIABLE), 0, 1, &w) != TRM_OK) {
        return 1;
    }
    const trm_status status = strcmp(way, "memory") == 0 ? trm_fail(TRM_ERROR_OUT_OF_MEMORY, "no room for a cache")
                                                         : trm_fail(TRM_ERROR_INVALID_MODEL, "no such weights");
    worker_tell_failure(w, status);
    worker_destroy(w);
    return trm_status_exit_code(status);
}

int main(int argc, char **argv)
{
    if (argc > 1 && getenv(WORKER_SOCKET_VARIABLE) != NULL) {
        return fail_as_rank(argv[1]);
    }
    const ssize_t size = readlink("/proc/self/exe", program, sizeof(program) - 1);
    if (size < 0) {
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(models_come_and_go),
        cmocka_unit_test(one_change_at_a_time),
        cmocka_unit_test(memory_is_short),
        cmocka_unit_test(starts_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
