/* Engines and contexts at the edges of their plans. */
#include "support/support.h"

#include <trireme/trireme.h>

#include "support/world.h"

static trm_context *open_context(trm_network *network, trm_dims most, trm_engine **engine)
{
    const trm_shape_bound bound = {.tensor = "x", .max = most};
    trm_build_options options = TRM_BUILD_OPTIONS_INIT;
    options.backend = TRM_BACKEND_HOST;
    trm_plan *plan = NULL;
    options.bounds = &bound;
    options.n_bounds = 1;
    assert_ok(trm_build(network, &options, &plan));
    return test_open_context(plan, engine);
}

/* x [n, 100] -> relu of rows -8 to 5: more of them in 8 rows than in 12. */
static void a_tensor_that_grows_as_its_input_shrinks(void **state)
{
    (void)state;
    trm_network *network;
    trm_tensor *x, *part, *y;
    assert_ok(trm_network_create(&network));
    assert_ok(trm_network_add_input(network, "x", TRM_F32, (trm_dims){2, {-1, 100}}, &x));
    trm_layer_desc slice = {.kind = TRM_LAYER_SLICE, .slice = {.axis = 0, .start = -8, .end = 5, .step = 1}};
    assert_ok(trm_network_add_layer(network, "part", &slice, &x, 1, &part));
    assert_ok(trm_network_add_activation(network, "y", TRM_ACTIVATION_RELU, part, &y));
    assert_ok(trm_network_mark_output(network, y));
    trm_engine *engine;
    trm_context *context = open_context(network, (trm_dims){2, {12, 100}}, &engine);
    float values[12 * 100];
    for (int i = 0; i < 12 * 100; i++) {
        values[i] = (float)i;
    }
    trm_dims dims;
    const void *data;
    for (int round = 0; round < 2; round++) {
        assert_ok(trm_context_set_input(context, "x", (trm_dims){2, {12, 100}}, values));
        assert_ok(trm_context_run(context));
        assert_ok(trm_context_output(context, "y", &dims, &data));
        assert_int_equal(dims.d[0], 1);
        assert_true(*(const float *)data == 400);
        assert_ok(trm_context_set_input(context, "x", (trm_dims){2, {8, 100}}, values));
        assert_fails(trm_context_run(context), TRM_ERROR_UNSUPPORTED, "has dims [5, 100] for these inputs");
        assert_fails(trm_context_output(context, "y", &dims, &data), TRM_ERROR_INVALID_ARGUMENT, "no run");
    }
    trm_context_destroy(context);
    trm_engine_destroy(engine);
    trm_network_destroy(network);
}

/* A network without inputs, of a constant that is too large to be folded. */
static void a_network_without_inputs(void **state)
{
    (void)state;
    enum { COUNT = 1 << 19 };
    float *values = malloc(COUNT * sizeof(*values));
    assert_non_null(values);
    for (int i = 0; i < COUNT; i++) {
        values[i] = (float)(i % 7) - 3;
    }
    trm_network *network;
    trm_tensor *c, *a, *y;
    assert_ok(trm_network_create(&network));
    assert_ok(trm_network_add_constant(network, "c", TRM_F32, (trm_dims){1, {COUNT}}, values, &c));
    assert_ok(trm_network_add_activation(network, "a", TRM_ACTIVATION_RELU, c, &a));
    assert_ok(trm_network_add_elementwise(network, "y", TRM_ELEMENTWISE_MUL, a, c, &y));
    assert_ok(trm_network_mark_output(network, y));
    trm_build_options options = TRM_BUILD_OPTIONS_INIT;
    options.backend = TRM_BACKEND_HOST;
    trm_plan *plan = NULL;
    trm_engine *engine = NULL;
    assert_ok(trm_build(network, &options, &plan));
    trm_context *context = test_open_context(plan, &engine);
    for (int round = 0; round < 2; round++) {
        trm_dims dims;
        const void *data;
        assert_ok(trm_context_run(context));
        assert_ok(trm_context_output(context, "y", &dims, &data));
        assert_int_equal(dims.d[0], COUNT);
        for (int i = 0; i < COUNT; i++) {
            assert_true(((const float *)data)[i] == (values[i] > 0 ? values[i] * values[i] : 0));
        }
    }
    trm_context_destroy(context);
    trm_engine_destroy(engine);
    trm_network_destroy(network);
    free(values);
}

typedef struct progress {
    size_t done, total;
    int32_t calls;
} progress;

static void count_progress(void *user, size_t done, size_t total)
{
    progress *p = user;
    assert_true(done >= p->done && done <= total && (p->calls == 0 || p->total == total));
    *p = (progress){done, total, p->calls + 1};
}

/* Sizes that alignment rounds up: progress ends at its total all the same. */
static void progress_reaches_its_total(void **state)
{
    (void)state;
    static const float values[33] = {1};
    trm_network *network;
    trm_tensor *x, *a, *b, *sum, *y;
    assert_ok(trm_network_create(&network));
    assert_ok(trm_network_add_input(network, "x", TRM_F32, (trm_dims){2, {3, 11}}, &x));
    assert_ok(trm_network_add_constant(network, "a", TRM_F32, (trm_dims){2, {3, 11}}, values, &a));
    assert_ok(trm_network_add_constant(network, "b", TRM_F32, (trm_dims){1, {11}}, values, &b));
    assert_ok(trm_network_add_elementwise(network, "sum", TRM_ELEMENTWISE_ADD, x, a, &sum));
    assert_ok(trm_network_add_elementwise(network, "y", TRM_ELEMENTWISE_MUL, sum, b, &y));
    assert_ok(trm_network_mark_output(network, y));
    trm_build_options options = TRM_BUILD_OPTIONS_INIT;
    options.backend = TRM_BACKEND_HOST;
    trm_plan *plan = NULL;
    trm_engine *engine = NULL;
    progress p = {0};
    assert_ok(trm_build(network, &options, &plan));
    assert_ok(trm_engine_create(plan, test_world, count_progress, &p, &engine));
    assert_true(p.calls >= 1);
    assert_int_equal(p.total, 44 * sizeof(float));
    assert_int_equal(p.done, p.total);
    trm_engine_destroy(engine);
    trm_network_destroy(network);
}

/* Each tensor can be addressed, all of them together cannot. */
static void plans_past_the_address_space(void **state)
{
    (void)state;
    trm_network *network;
    trm_tensor *x, *y = NULL;
    assert_ok(trm_network_create(&network));
    assert_ok(trm_network_add_input(network, "x", TRM_F32, (trm_dims){1, {-1}}, &x));
    for (int32_t i = 0; i < 4; i++) { /* outputs live to the end */
        static const char *const names[] = {"a", "b", "c", "d"};
        assert_ok(trm_network_add_activation(network, names[i], i % 2 == 0 ? TRM_ACTIVATION_RELU : TRM_ACTIVATION_TANH,
                                             i < 2 ? x : y, &y));
        assert_ok(trm_network_mark_output(network, y));
    }
    trm_shape_bound bound = {.tensor = "x", .max = {1, {INT64_MAX / 4}}};
    trm_build_options options = TRM_BUILD_OPTIONS_INIT;
    options.backend = TRM_BACKEND_HOST;
    options.bounds = &bound;
    options.n_bounds = 1;
    trm_plan *plan = NULL;
    assert_fails(trm_build(network, &options, &plan), TRM_ERROR_OUT_OF_MEMORY, "address");
    bound.max.d[0] = INT64_MAX / 4 / 3; /* input and outputs fit apart */
    assert_fails(trm_build(network, &options, &plan), TRM_ERROR_OUT_OF_MEMORY, "address");
    bound.max.d[0] = (int64_t)1 << 40; /* far more than there is, found when memory is planned */
    assert_ok(trm_build(network, &options, &plan));
    trm_engine *engine = NULL;
    assert_fails(trm_engine_create(plan, test_world, NULL, NULL, &engine), TRM_ERROR_OUT_OF_MEMORY, "are free");
    assert_null(engine);
    trm_network_destroy(network);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_tensor_that_grows_as_its_input_shrinks),
        cmocka_unit_test(a_network_without_inputs),
        cmocka_unit_test(progress_reaches_its_total),
        cmocka_unit_test(plans_past_the_address_space),
    };
    return cmocka_run_group_tests(tests, test_open_world, test_close_world);
}
