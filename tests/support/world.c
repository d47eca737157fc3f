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

static void open_world(trm_backend backend, bool bind)
{
    trm_world_options options = TRM_WORLD_OPTIONS_INIT;
    options.backend = backend;
    options.threads = backend == TRM_BACKEND_HOST ? 1 : 0;
    options.bind = bind;
    assert_ok(trm_world_open(&options, &test_world));
}

int test_open_world(void **state)
{
    (void)state;
    open_world(test_backend(), false);
    return 0;
}

int test_open_shipped_model(void **state)
{
    (void)state;
    open_world(test_backend(), true);
    assert_ok(trm_model_open(TRM_SOURCE_DIR "/configs/models/kjv-7m", &test_model));
    return 0;
}

int test_open_llama(void **state)
{
    (void)state;
    open_world(TRM_BACKEND_HOST, false);
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
