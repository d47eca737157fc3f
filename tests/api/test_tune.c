/* Tuning and capture where there is nothing to choose and nothing to capture: on the host they change no result; wrong
 * options are refused. */
#include "support/support.h"
#include "support/world.h"

#include <stdio.h>

#include <trireme/trireme.h>

static trm_context *make_context(trm_engine **engine)
{
    trm_network *network;
    trm_tensor *x, *y;
    assert_ok(trm_network_create(&network));
    assert_ok(trm_network_add_input(network, "x", TRM_F32, (trm_dims){2, {2, 3}}, &x));
    assert_ok(trm_network_add_matmul(network, "y", x, x, NULL, true, &y));
    assert_ok(trm_network_mark_output(network, y));
    trm_build_options options = TRM_BUILD_OPTIONS_INIT;
    options.backend = TRM_BACKEND_HOST;
    options.allow_tf32 = true;
    trm_plan *plan;
    assert_ok(trm_build(network, &options, &plan));
    trm_network_destroy(network);
    return test_open_context(plan, engine);
}

static void assert_runs(trm_context *context, float first)
{
    const float x[] = {first, 2, 3, 4, 5, 6};
    trm_dims dims;
    const void *data;
    assert_ok(trm_context_set_input(context, "x", (trm_dims){2, {2, 3}}, x));
    assert_ok(trm_context_run(context));
    assert_ok(trm_context_output(context, "y", &dims, &data));
    assert_true(((const float *)data)[0] == first * first + 13);
}

static void count_tactic(void *user, const char *layer, const char *problem, const char *tactic, double microseconds,
                         bool best)
{
    (void)layer, (void)problem, (void)tactic, (void)microseconds, (void)best;
    ++*(int *)user;
}

static bool count_progress(void *user, int32_t done, int32_t total, double seconds_left)
{
    assert_true(done <= total && seconds_left >= 0);
    ++*(int *)user;
    return true;
}

static void tuning_changes_no_result(void **state)
{
    (void)state;
    trm_engine *engine;
    trm_context *context = make_context(&engine);
    char cache[512];
    int calls = 0, tactics = 0;
    snprintf(cache, sizeof(cache), "%s/timing/cache.txt", test_temporary_folder());
    trm_tune_options options = TRM_TUNE_OPTIONS_INIT;
    options.cache = cache;
    options.progress = count_progress;
    options.progress_user = &calls;
    assert_int_equal(trm_context_tune(context, &options), TRM_ERROR_INVALID_ARGUMENT); /* x is not set */
    assert_non_null(strstr(trm_last_error(), "input x is not set"));
    trm_context_tactics(context, count_tactic, &tactics);
    assert_int_equal(tactics, 0);
    assert_runs(context, 1);
    for (options.level = TRM_TUNE_OFF; options.level <= 5; options.level++) {
        assert_ok(trm_context_tune(context, &options));
        assert_runs(context, (float)options.level);
    }
    assert_ok(trm_context_tune(context, NULL));
    assert_int_equal(calls, 0); /* no kernel of the host chooses */
    trm_context_tactics(context, count_tactic, &tactics);
    assert_int_equal(tactics, 0);
    trm_context_destroy(context);
    trm_engine_destroy(engine);
}

static void wrong_options_are_refused(void **state)
{
    (void)state;
    trm_engine *engine;
    trm_context *context = make_context(&engine);
    assert_runs(context, 1);
    trm_tune_options options = TRM_TUNE_OPTIONS_INIT;
    assert_int_equal(trm_context_tune(NULL, &options), TRM_ERROR_INVALID_ARGUMENT);
    options.level = 6;
    assert_int_equal(trm_context_tune(context, &options), TRM_ERROR_INVALID_ARGUMENT);
    options.level = -2;
    assert_int_equal(trm_context_tune(context, &options), TRM_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(trm_last_error(), "level -2"));
    options.level = 3;
    options.size = 1;
    assert_int_equal(trm_context_tune(context, &options), TRM_ERROR_INVALID_ARGUMENT);
    assert_int_equal(trm_context_set_capture(NULL, true), TRM_ERROR_INVALID_ARGUMENT);
    trm_context_destroy(context);
    trm_engine_destroy(engine);
}

static void a_started_run_is_finished_first(void **state)
{
    (void)state;
    trm_engine *engine;
    trm_context *context = make_context(&engine);
    trm_tune_options options = TRM_TUNE_OPTIONS_INIT;
    trm_dims dims;
    const void *data;
    assert_runs(context, 1);
    assert_ok(trm_context_start(context));
    for (options.level = TRM_TUNE_OFF; options.level <= 5; options.level++) {
        assert_int_equal(trm_context_tune(context, &options), TRM_ERROR_INVALID_ARGUMENT);
        assert_non_null(strstr(trm_last_error(), "before the run that was started is finished"));
    }
    assert_ok(trm_context_finish(context)); /* the refusal left the run as it was */
    assert_ok(trm_context_output(context, "y", &dims, &data));
    assert_true(*(const float *)data == 14);
    assert_ok(trm_context_tune(context, NULL));
    trm_context_destroy(context);
    trm_engine_destroy(engine);
}

static void capture_changes_no_result(void **state)
{
    (void)state;
    trm_engine *engine;
    trm_context *context = make_context(&engine);
    assert_ok(trm_context_set_capture(context, true));
    for (int i = 0; i < 4; i++) {
        assert_runs(context, (float)i);
        assert_ok(trm_context_run(context)); /* with the same input */
    }
    assert_ok(trm_context_set_capture(context, false));
    assert_runs(context, 7);
    trm_context_destroy(context);
    trm_engine_destroy(engine);
}

static void the_cache_lies_in_the_users_folder(void **state)
{
    (void)state;
    assert_int_equal(setenv("XDG_CACHE_HOME", "/somewhere", 1), 0);
    char *path = trm_timing_cache_path(test_world);
    assert_non_null(path);
    assert_int_equal(strncmp(path, "/somewhere/trireme/timing/", 26), 0);
    assert_non_null(strstr(path, ".txt"));
    trm_free(path);
    assert_int_equal(setenv("XDG_CACHE_HOME", "relative", 1), 0); /* the specification: to be ignored */
    assert_int_equal(setenv("HOME", "/home/somebody", 1), 0);
    path = trm_timing_cache_path(test_world);
    assert_int_equal(strncmp(path, "/home/somebody/.cache/trireme/timing/", 37), 0);
    trm_free(path);
    assert_int_equal(unsetenv("HOME"), 0);
    assert_null(trm_timing_cache_path(test_world));
    assert_null(trm_timing_cache_path(NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tuning_changes_no_result),           cmocka_unit_test(wrong_options_are_refused),
        cmocka_unit_test(a_started_run_is_finished_first),    cmocka_unit_test(capture_changes_no_result),
        cmocka_unit_test(the_cache_lies_in_the_users_folder),
    };
    return cmocka_run_group_tests(tests, test_open_world, test_close_world);
}
