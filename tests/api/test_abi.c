/*
 * Programs compiled against other versions of the headers: option structs of every size that was ever published work,
 * and larger ones do as long as what is not known here is zero. So do structs of results that begin with their size.
 *
 * The table below is the record of the sizes. Adding a field to a struct adds a row with its size from then on; an old
 * row never changes. A new field must not lie in the padding at the end of the old struct, which older programs leave
 * undefined.
 */
#include "support/support.h"

#include "base/options.h"

#include <stddef.h>

#include <trireme/trireme.h>

/* Every size of each struct, and the first of the fields that came with it. */
static const struct {
    const char *name, *first_field;
    size_t size, first, now;
} sizes[] = {
#define SIZE(type, field, bytes)                                                                                       \
    {                                                                                                                  \
#type, #field, bytes, offsetof(type, field), sizeof(type)                                                      \
    }
    SIZE(trm_world_options, size, 48),
    SIZE(trm_build_options, size, 96),
    SIZE(trm_tune_options, size, 40),
    SIZE(trm_generator_options, size, 160),
    SIZE(trm_generator_options, pad_steps, 168),
    SIZE(trm_generator_options, max_adapters, 176),
    SIZE(trm_generator_options, draft_head, 184),
    SIZE(trm_generator_options, expert_profile, 192),
    SIZE(trm_scheduler_options, size, 48),
    SIZE(trm_serving_request, size, 184),
    SIZE(trm_serving_request, adapter, 192),
    SIZE(trm_serving_request, traceparent, 208),
    SIZE(trm_onnx_options, size, 88),
    SIZE(trm_chat_input, size, 48),
    SIZE(trm_llm_options, size, 72),
    SIZE(trm_llm_options, timeline, 80),
    SIZE(trm_llm_params, size, 48),
    SIZE(trm_model_experts, size, 72),
#undef SIZE
};
enum { SIZES = sizeof(sizes) / sizeof(sizes[0]) };

static void sizes_only_grow(void **state)
{
    (void)state;
    for (size_t i = 0; i < SIZES; i++) {
        const bool is_newest = i + 1 == SIZES || strcmp(sizes[i].name, sizes[i + 1].name) != 0;
        const bool is_oldest = i == 0 || strcmp(sizes[i].name, sizes[i - 1].name) != 0;
        if (is_newest && sizes[i].now != sizes[i].size) {
            fail_msg("%s had size %zu, and now has %zu: add a row, or bring back what is gone", sizes[i].name,
                     sizes[i].size, sizes[i].now);
        }
        if (!is_oldest && sizes[i].first < sizes[i - 1].size) {
            fail_msg("%s.%s lies at %zu, within the %zu bytes of older programs", sizes[i].name, sizes[i].first_field,
                     sizes[i].first, sizes[i - 1].size);
        }
    }
}

/* Of a struct of each size all is taken that it has, and nothing behind it. */
static void every_size_is_read(void **state)
{
    (void)state;
    for (size_t i = 0; i < SIZES; i++) {
        unsigned char given[512], own[512] = {0};
        assert_true(sizes[i].now <= sizeof(own));
        memset(given, 0xab, sizeof(given));
        memcpy(given, &sizes[i].size, sizeof(size_t));
        memcpy(own, &sizes[i].now, sizeof(size_t));
        assert_ok(trm_options_read(sizes[i].name, given, own));
        assert_memory_equal(own, &sizes[i].now, sizeof(size_t));
        for (size_t k = sizeof(size_t); k < sizeof(own); k++) {
            assert_int_equal(own[k], k < sizes[i].size ? 0xab : 0);
        }
    }
}

/* A struct of zeros that has its size does what the program does by default. */
static void zero_is_the_default(void **state)
{
    (void)state;
#define ASSERT_ZEROS(type, init)                                                                                       \
    do {                                                                                                               \
        static const type zeros;                                                                                       \
        type made = init;                                                                                              \
        assert_int_equal(made.size, sizeof(made));                                                                     \
        made.size = 0;                                                                                                 \
        assert_memory_equal(&made, &zeros, sizeof(made));                                                              \
    } while (0)
    ASSERT_ZEROS(trm_world_options, TRM_WORLD_OPTIONS_INIT);
    ASSERT_ZEROS(trm_build_options, TRM_BUILD_OPTIONS_INIT);
    ASSERT_ZEROS(trm_tune_options, TRM_TUNE_OPTIONS_INIT);
    ASSERT_ZEROS(trm_generator_options, TRM_GENERATOR_OPTIONS_INIT);
    ASSERT_ZEROS(trm_scheduler_options, TRM_SCHEDULER_OPTIONS_INIT);
    ASSERT_ZEROS(trm_serving_request, TRM_SERVING_REQUEST_INIT);
    ASSERT_ZEROS(trm_onnx_options, TRM_ONNX_OPTIONS_INIT);
    ASSERT_ZEROS(trm_chat_input, TRM_CHAT_INPUT_INIT);
    ASSERT_ZEROS(trm_llm_options, TRM_LLM_OPTIONS_INIT);
    ASSERT_ZEROS(trm_llm_params, TRM_LLM_PARAMS_INIT);
    ASSERT_ZEROS(trm_model_experts, TRM_MODEL_EXPERTS_INIT);
#undef ASSERT_ZEROS
    assert_int_equal(trm_system_backend((trm_backend)0),
                     trm_system_gpu_count() > 0 ? TRM_BACKEND_CUDA : TRM_BACKEND_HOST);
}

/* Structs without a size of their own that others hold: they must not grow at all. */
static void held_structs_keep_their_size(void **state)
{
    (void)state;
    assert_int_equal(sizeof(trm_mesh), 20);
    assert_int_equal(sizeof(trm_sampling), 32);
    assert_int_equal(sizeof(trm_serving_sampling), 64);
    assert_int_equal(sizeof(trm_speculation), 8);
    assert_int_equal(sizeof(trm_weight_budget), 56);
    assert_int_equal(sizeof(trm_request), 80);
    assert_int_equal(sizeof(trm_shape_bound), 256);
}

/* A struct in its first version, as an old program was compiled with it, and in one with two more fields. */
typedef struct old_options {
    size_t size;
    int32_t level;
    const char *cache;
} old_options;
typedef struct new_options {
    size_t size;
    int32_t level;
    const char *cache;
    double limit; /* 0: no limit */
    int32_t device;
} new_options;

static void an_older_program_gets_defaults(void **state)
{
    (void)state;
    const old_options given = {.size = sizeof(given), .level = 2, .cache = "file"};
    new_options own = {.size = sizeof(own), .level = 3, .limit = 0, .device = -1};
    assert_ok(trm_options_read("test options", &given, &own));
    assert_int_equal(own.size, sizeof(own));
    assert_int_equal(own.level, 2);
    assert_string_equal(own.cache, "file");
    assert_int_equal(own.device, -1);
}

static void a_newer_program_may_not_ask_for_more(void **state)
{
    (void)state;
    new_options given = {.size = sizeof(given), .level = 2};
    old_options own = {.size = sizeof(own)};
    assert_ok(trm_options_read("test options", &given, &own));
    assert_int_equal(own.size, sizeof(own));
    assert_int_equal(own.level, 2);
    given.limit = 1;
    own.level = 7;
    assert_fails(trm_options_read("test options", &given, &own), TRM_ERROR_INVALID_ARGUMENT,
                 "test options have size 40, this library knows 24 bytes");
    assert_int_equal(own.level, 7);
}

static void a_size_that_was_not_set_is_refused(void **state)
{
    (void)state;
    static const size_t wrong[] = {0, 4, 23, SIZE_MAX, (size_t)1 << 32};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        const old_options given = {.size = wrong[i]};
        old_options own = {.size = sizeof(own)};
        assert_fails(trm_options_read("test options", &given, &own), TRM_ERROR_INVALID_ARGUMENT, "_INIT");
    }
}

static void results_fit_any_version(void **state)
{
    (void)state;
    const new_options own = {.size = sizeof(own), .level = 2, .cache = "file", .limit = 0.5, .device = 3};
    struct {
        old_options known;
        double behind;
    } older = {.known = {.size = sizeof(older.known)}, .behind = 7};
    assert_ok(trm_options_write("test results", &own, &older));
    assert_int_equal(older.known.size, sizeof(older.known));
    assert_int_equal(older.known.level, 2);
    assert_string_equal(older.known.cache, "file");
    assert_true(older.behind == 7);

    const old_options small = {.size = sizeof(small), .level = 2};
    new_options newer = {.size = sizeof(newer), .limit = 7, .device = 7};
    assert_ok(trm_options_write("test results", &small, &newer));
    assert_int_equal(newer.size, sizeof(newer));
    assert_int_equal(newer.level, 2);
    assert_true(newer.limit == 0);
    assert_int_equal(newer.device, 0);
    newer.size = 4;
    assert_fails(trm_options_write("test results", &small, &newer), TRM_ERROR_INVALID_ARGUMENT, "_INIT");
}

/* trm_tune_options as of 0.1.0, frozen, and with a field that is not there yet. */
typedef struct tune_options_0_1 {
    size_t size;
    int32_t level;
    const char *cache;
    bool (*progress)(void *user, int32_t done, int32_t total, double seconds_left);
    void *progress_user;
} tune_options_0_1;
typedef struct tune_options_to_come {
    tune_options_0_1 known;
    int64_t unknown;
} tune_options_to_come;

static void public_calls_take_any_version(void **state)
{
    (void)state;
    trm_network *network;
    trm_tensor *x, *y;
    trm_plan *plan;
    trm_engine *engine;
    trm_context *context;
    trm_world *world;
    trm_world_options where = TRM_WORLD_OPTIONS_INIT;
    where.backend = TRM_BACKEND_HOST;
    where.size = offsetof(trm_world_options, deadline_seconds); /* a program that knows no more */
    assert_ok(trm_world_open(&where, &world));
    assert_int_equal(trm_world_backend(world), TRM_BACKEND_HOST);
    assert_ok(trm_network_create(&network));
    assert_ok(trm_network_add_input(network, "x", TRM_F32, (trm_dims){1, {4}}, &x));
    assert_ok(trm_network_add_activation(network, "y", TRM_ACTIVATION_RELU, x, &y));
    assert_ok(trm_network_mark_output(network, y));
    trm_build_options options = TRM_BUILD_OPTIONS_INIT;
    options.backend = TRM_BACKEND_HOST;
    options.size = offsetof(trm_build_options, max_workspace);
    assert_ok(trm_build(network, &options, &plan));
    assert_ok(trm_engine_create(plan, world, NULL, NULL, &engine));
    assert_ok(trm_context_create(engine, &context));
    assert_ok(trm_context_set_input(context, "x", (trm_dims){1, {4}}, (const float[4]){1}));
    tune_options_to_come newer = {.known = {.size = sizeof(tune_options_0_1), .level = 1}, .unknown = 5};
    const trm_tune_options *given = (const trm_tune_options *)(const void *)&newer;
    assert_ok(trm_context_tune(context, given)); /* what lies behind its size is not read */
    newer.known.size = sizeof(newer);
    assert_fails(trm_context_tune(context, given), TRM_ERROR_INVALID_ARGUMENT, "tune options have size 48");
    newer.unknown = 0;
    assert_ok(trm_context_tune(context, given));
    trm_context_destroy(context);
    trm_engine_destroy(engine);
    trm_network_destroy(network);
    trm_world_close(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_only_grow),
        cmocka_unit_test(every_size_is_read),
        cmocka_unit_test(zero_is_the_default),
        cmocka_unit_test(held_structs_keep_their_size),
        cmocka_unit_test(an_older_program_gets_defaults),
        cmocka_unit_test(a_newer_program_may_not_ask_for_more),
        cmocka_unit_test(a_size_that_was_not_set_is_refused),
        cmocka_unit_test(results_fit_any_version),
        cmocka_unit_test(public_calls_take_any_version),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
