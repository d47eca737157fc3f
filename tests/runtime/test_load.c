/* Loading weights: every element in its place, whatever the pieces, threads and ways; failures and ends on the way. */
#include "support/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <trireme/trireme.h>

#include "dist/runtime/load.h"
#include "support/world.h"
#include "support/tiny_model.h"

/* An engine of a model with this type, whose weights may still be on their way. */
static trm_engine *begin_engine(const char *path, trm_dtype dtype)
{
    trm_model *model;
    assert_ok(trm_model_open(path, &model));
    trm_generator_options options = TRM_GENERATOR_OPTIONS_INIT;
    trm_build_options build = TRM_BUILD_OPTIONS_INIT;
    build.backend = trm_device_backend(test_world->device);
    options.dtype = dtype;
    options.max_context = 64;
    trm_plan *plan = NULL;
    int64_t cache;
    assert_ok(trm_generator_plan(model, &options, &build, &plan, &cache));
    trm_model_close(model); /* weights outlive it */
    trm_engine *engine = NULL;
    assert_ok(trm_engine_begin(plan, test_world, NULL, NULL, &engine));
    return engine;
}

/* Copies the weights of an engine between device and host. */
static void move_weights(const trm_engine *engine, unsigned char *host, bool up)
{
    trm_stream *stream;
    size_t bytes = engine->plan->weight_bytes;
    assert_ok(trm_stream_create(test_world->device, &stream));
    assert_ok(up ? trm_stream_upload(stream, engine->weights, host, bytes)
                 : trm_stream_download(stream, host, engine->weights, bytes));
    assert_ok(trm_stream_synchronize(stream));
    trm_stream_destroy(stream);
}

/* Makes all weights wrong. */
static void spoil(const trm_engine *engine)
{
    unsigned char *bytes = malloc(engine->plan->weight_bytes);
    assert_non_null(bytes);
    memset(bytes, 0xEE, engine->plan->weight_bytes);
    move_weights(engine, bytes, true);
    free(bytes);
}

TEST_UNCHECKED static size_t count_unequal(const unsigned char *a, const unsigned char *b, size_t bytes)
{
    size_t unequal = 0;
    for (size_t i = 0; i < bytes; i++) {
        unequal += a[i] != b[i];
    }
    return unequal;
}

/* Bytes that are wrong, over all weights. */
static size_t count_wrong(const trm_engine *engine)
{
    const trm_network *network = engine->plan->network;
    unsigned char *found = malloc(engine->plan->weight_bytes);
    assert_non_null(found);
    move_weights(engine, found, false);
    size_t wrong = 0;
    for (int32_t i = 0; i < network->n_tensors; i++) {
        const trm_tensor *tensor = network->tensors[i];
        if (tensor->role != TRM_TENSOR_CONSTANT) {
            continue;
        }
        size_t bytes = trm_dims_bytes(&tensor->dims, tensor->dtype);
        const unsigned char *expected = tensor->value;
        unsigned char *read = malloc(bytes + 1);
        assert_non_null(read);
        if (expected == NULL) {
            assert_ok(trm_weight_read(tensor->weight, tensor->dtype, 0, (size_t)trm_dims_count(&tensor->dims), read));
            expected = read;
        }
        wrong += count_unequal(found + engine->plan->weight_offsets[i], expected, bytes);
        free(read);
    }
    free(found);
    return wrong;
}

static void every_way_gives_the_weights(void **state)
{
    (void)state;
    static const trm_dtype types[] = {TRM_F32, TRM_BF16};
    static const trm_load_options ways[] = {
        {0},
        {.staged = true},
        {.piece_bytes = 4096, .threads = 3, .staged = true},
        {.piece_bytes = 1000, .threads = 1, .staged = true},
        {.piece_bytes = 65536, .threads = 9, .staged = true},
        {.piece_bytes = 5000, .threads = 4},
    };
    for (size_t t = 0; t < sizeof(types) / sizeof(types[0]); t++) {
        trm_engine *engine = begin_engine(TRM_SOURCE_DIR "/configs/models/kjv-7m", types[t]);
        assert_ok(trm_engine_finish_loading(engine, NULL, NULL));
        assert_ok(trm_engine_finish_loading(engine, NULL, NULL)); /* nothing is left to do */
        assert_int_equal(count_wrong(engine), 0);
        assert_true(engine->loaded_bytes > 0 && engine->loaded_bytes <= engine->plan->weight_bytes);
        assert_true(engine->load_seconds > 0);
        for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
            spoil(engine);
            assert_true(count_wrong(engine) > 0);
            assert_ok(trm_load_run(engine, &ways[i]));
            assert_int_equal(count_wrong(engine), 0);
        }
        trm_engine_destroy(engine);
    }
}

static void only_what_is_asked_for(void **state)
{
    (void)state;
    trm_engine *engine = begin_engine(tiny_model(test_temporary_folder(), 50), TRM_F32);
    assert_ok(trm_engine_finish_loading(engine, NULL, NULL));
    const trm_network *network = engine->plan->network;
    bool *only = calloc((size_t)network->n_tensors, sizeof(*only));
    assert_non_null(only);
    int32_t last = -1;
    for (int32_t i = 0; i < network->n_tensors; i++) {
        last = network->tensors[i]->role == TRM_TENSOR_CONSTANT && network->tensors[i]->weight != NULL ? i : last;
    }
    only[last] = true;
    size_t bytes = trm_dims_bytes(&network->tensors[last]->dims, network->tensors[last]->dtype);
    spoil(engine);
    size_t before = count_wrong(engine);
    assert_ok(trm_load_run(engine, &(trm_load_options){.only = only, .staged = true}));
    size_t after = count_wrong(engine);
    assert_true(after < before && after >= before - bytes);
    free(only);
    trm_engine_destroy(engine);
}

static void note_progress(void *user, size_t done, size_t total)
{
    size_t *last = user;
    assert_true(done >= *last && done <= total);
    *last = done;
}

static void progress_ends_at_the_total(void **state)
{
    (void)state;
    size_t last = 0;
    trm_engine *engine = begin_engine(TRM_SOURCE_DIR "/configs/models/kjv-7m", TRM_F32);
    assert_ok(trm_engine_finish_loading(engine, note_progress, &last));
    assert_int_equal(last, engine->loaded_bytes);
    trm_engine_destroy(engine);
}

static void a_file_that_is_cut_off_is_named(void **state)
{
    (void)state;
    const char *folder = tiny_model(test_temporary_folder(), 50);
    char path[4400];
    trm_engine *engine = begin_engine(folder, TRM_F32);
    assert_ok(trm_engine_finish_loading(engine, NULL, NULL));
    snprintf(path, sizeof(path), "%s/model.safetensors", folder);
    assert_int_equal(truncate(path, 2000), 0);
    for (int32_t staged = 0; staged < 2; staged++) {
        assert_fails(trm_load_run(engine, &(trm_load_options){.threads = 4, .piece_bytes = 64, .staged = staged != 0}),
                     TRM_ERROR_IO, "model.safetensors has 2000 bytes");
        assert_non_null(strstr(trm_last_error(), "weight "));
        trm_load *load = NULL;
        assert_ok(trm_load_start(engine, &(trm_load_options){.staged = staged != 0}, &load));
        for (int32_t i = 0; i < 2; i++) { /* as often as somebody asks */
            assert_fails(trm_load_wait(load, NULL, NULL), TRM_ERROR_IO, "model.safetensors has 2000 bytes");
        }
        trm_load_destroy(load);
    }
    trm_engine_destroy(engine);
}

/* Whatever is in flight is over when its engine is gone. */
static void engines_that_go_early(void **state)
{
    (void)state;
    for (int32_t i = 0; i < 5; i++) {
        trm_engine_destroy(begin_engine(TRM_SOURCE_DIR "/configs/models/kjv-7m", TRM_BF16));
    }
    trm_load_destroy(NULL);
    assert_ok(trm_load_wait(NULL, NULL, NULL));
}

int main(void)
{
    if (test_lacks_backend()) {
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_way_gives_the_weights), cmocka_unit_test(only_what_is_asked_for),
        cmocka_unit_test(progress_ends_at_the_total),  cmocka_unit_test(a_file_that_is_cut_off_is_named),
        cmocka_unit_test(engines_that_go_early),
    };
    return cmocka_run_group_tests(tests, test_open_world, test_close_world);
}
