/* Worlds and models of tests. */
#include "support/world.h"

#include "support/device.h"
#include "support/support.h"

trm_world *test_world;
trm_model *test_model;
test_golden test_llama;

static bool has_llama;

trm_backend test_backend(void)
{
    const char *wanted = getenv("TRM_TEST_BACKEND");
    return wanted != NULL && strcmp(wanted, "cuda") == 0 ? TRM_BACKEND_CUDA : TRM_BACKEND_HOST;
}

bool test_lacks_backend(void)
{
    return test_backend() == TRM_BACKEND_CUDA && test_lacks_cuda();
}

trm_mesh test_mesh(void)
{
    trm_mesh mesh;
    assert_ok(trm_mesh_parse(getenv("TRM_TEST_MESH"), trm_world_size(test_world), &mesh));
    return mesh;
}

static void open_world(trm_backend backend, int32_t threads, bool bind)
{
    trm_world_options options = TRM_WORLD_OPTIONS_INIT;
    options.backend = backend;
    options.threads = threads;
    options.no_bind = !bind;
    assert_ok(trm_world_open(&options, &test_world));
}

/* On the host; beside a GPU as many as it takes. */
static int32_t one_thread(void)
{
    return test_backend() == TRM_BACKEND_HOST ? 1 : 0;
}

int test_open_world(void **state)
{
    (void)state;
    open_world(test_backend(), one_thread(), false);
    return 0;
}

static int open_shipped_model(int32_t threads)
{
    open_world(test_backend(), threads, true);
    assert_ok(trm_model_open(TRM_SOURCE_DIR "/configs/models/kjv-7m", &test_model));
    return 0;
}

int test_open_shipped_model(void **state)
{
    (void)state;
    return open_shipped_model(one_thread());
}

int test_open_two_threads(void **state)
{
    (void)state;
    return open_shipped_model(2);
}

int test_open_llama(void **state)
{
    (void)state;
    open_world(TRM_BACKEND_HOST, 1, false);
    test_golden_open("llama", &test_llama);
    has_llama = true;
    return 0;
}

int test_close_world(void **state)
{
    (void)state;
    if (has_llama) {
        test_golden_close(&test_llama);
        has_llama = false;
    }
    trm_model_close(test_model);
    test_model = NULL;
    trm_world_close(test_world);
    return 0;
}

int test_run_host_ranks(const struct CMUnitTest *tests, size_t n)
{
    open_world(TRM_BACKEND_HOST, 1, true);
    cmocka_set_test_filter(getenv("TRM_TEST_ONLY")); /* NULL: all */
    const int failed = _cmocka_run_group_tests("tests", tests, n, NULL, NULL);
    if (failed != 0) {
        trm_world_abort(test_world, TRM_ERROR_INTERNAL); /* peers may wait in a collective */
    }
    trm_world_close(test_world);
    return failed;
}

void test_refit_ranks(const char *one, const char *two, const char *plan_file, const char *wanted)
{
    trm_plan *plans[2], *loaded;
    for (int32_t rank = 0; rank < 2; rank++) {
        plans[rank] = test_build_onnx(one, true, 2, rank);
    }
    assert_ok(trm_plan_save((const trm_plan *const *)plans, 2, TRM_PLAN_WEIGHTS_STRIPPED, plan_file));
    for (int32_t rank = 0; rank < 2; rank++) {
        trm_plan *expected = test_build_onnx(two, true, 2, rank);
        assert_ok(trm_plan_refit(plan_file, rank, two, &loaded));
        char *text = trm_plan_to_text(loaded), *expected_text = trm_plan_to_text(expected);
        assert_string_equal(text, expected_text);
        assert_non_null(strstr(text, wanted));
        trm_free(text);
        trm_free(expected_text);
        trm_plan_destroy(loaded);
        trm_plan_destroy(expected);
        trm_plan_destroy(plans[rank]);
    }
}

trm_context *test_open_context(trm_plan *plan, trm_engine **engine)
{
    trm_context *context = NULL;
    assert_ok(trm_engine_create(plan, test_world, NULL, NULL, engine));
    assert_ok(trm_context_create(*engine, &context));
    return context;
}

trm_plan *test_build_onnx(const char *path, bool refittable, int32_t ranks, int32_t rank)
{
    trm_onnx *model;
    trm_network *network;
    trm_plan *plan;
    trm_onnx_options options = TRM_ONNX_OPTIONS_INIT;
    trm_build_options how = TRM_BUILD_OPTIONS_INIT;
    options.refittable = refittable;
    how.rank = rank;
    how.backend = test_backend();
    assert_ok(trm_mesh_parse("", ranks, &how.mesh));
    assert_ok(trm_onnx_open(path, &model));
    assert_ok(trm_onnx_build_network(model, &options, &network));
    assert_ok(trm_build(network, &how, &plan));
    trm_network_destroy(network);
    trm_onnx_close(model);
    return plan;
}
