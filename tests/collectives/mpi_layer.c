/* Collective layers between processes. */
#include "support/support.h"

#include "dist/parallel/world.h"
#include "norm_cases.h"

static trm_world *world;

static void test_layers(void **state)
{
    (void)state;
    trm_stream *stream;
    case_result result = {0};
    assert_ok(trm_stream_create(world->device, &stream));
    case_setup setup = {stream, NULL, NULL, 0, &result};
    layer_run_all(world->communicator, &setup);
    layer_run_peers(world->communicator, &setup);
    norm_run_all(world->communicator, &setup);
    if (result.failed > 0) {
        fail_msg("%d of %d layers failed, first: %s", (int)result.failed, (int)result.run, result.why);
    }
    trm_stream_destroy(stream);
}

int main(void)
{
    trm_world_options options = TRM_WORLD_OPTIONS_INIT;
    options.backend = TRM_BACKEND_HOST;
    if (trm_world_open(&options, &world) != TRM_OK) {
        fprintf(stderr, "cannot open the world: %s\n", trm_last_error());
        return 1;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_layers)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    trm_world_close(world);
    return failed;
}
