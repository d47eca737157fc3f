/*
 * A network whose heads read some rows each, over ranks: what one rank gives that computes them all, for the batches of
 * two profiles, though no rank makes products of rows that no head reads.
 */
#include "graph/nets.h"

#include <stdio.h>

#include <trireme/trireme.h>

#include "dist/runtime/context.h"
#include "dist/plan/plan.h"
#include "support/interpreter.h"
#include "support/world.h"

enum { ROWS = 9, WIDTH = 32, INNER = 128, READ = 3, BATCHES = 6 };

static trm_tensor *linear(trm_network *network, const char *name, trm_tensor *x, int64_t from, int64_t to)
{
    return net_linear(network, name, x, net_weight(network, "w", DIMS(to, from), (uint64_t)from + (uint64_t)to));
}

/* The last layer of an encoder, of x [?, 9, 32], and heads of its rows 0, 1 and, two at a time, 1 and 5. */
static trm_network *make_network(void)
{
    static const int64_t zero = 0, one = 1, two[] = {-4, 1};
    const trm_layer_desc softmax = {.kind = TRM_LAYER_SOFTMAX, .softmax = {1}},
                         sums = {.kind = TRM_LAYER_CUMULATIVE, .cumulative = {.axis = 1}},
                         gather = {.kind = TRM_LAYER_GATHER, .gather = {1}};
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(-1, ROWS, WIDTH)), *by[3];
    trm_tensor *stream = net_layer(network, "stream", softmax, x, NULL, NULL, NULL);
    trm_tensor *attended = net_layer(network, "attended", sums, stream, NULL, NULL, NULL);
    stream = net_binary(network, "sum", TRM_ELEMENTWISE_ADD, stream, linear(network, "o", attended, WIDTH, WIDTH));
    trm_tensor *y = net_norm(network, "norm", stream, net_values(network, "g", DIMS(WIDTH)));
    y = net_unary(network, "act", TRM_ACTIVATION_GELU, linear(network, "up", y, WIDTH, INNER));
    y = net_binary(network, "out", TRM_ELEMENTWISE_ADD, stream, linear(network, "down", y, INNER, WIDTH));
    assert_ok(trm_network_add_constant(network, "i", TRM_I64, (trm_dims){0}, &zero, &by[0]));
    assert_ok(trm_network_add_constant(network, "i", TRM_I64, (trm_dims){0}, &one, &by[1]));
    assert_ok(trm_network_add_constant(network, "i", TRM_I64, DIMS(2), two, &by[2]));
    for (int32_t i = 0; i < 3; i++) {
        static const char *const names[][2] = {{"first", "a"}, {"second", "b"}, {"both", "c"}};
        trm_tensor *rows = net_layer(network, names[i][0], gather, y, by[i], NULL, NULL);
        net_output(network, linear(network, names[i][1], rows, WIDTH, 4 + i));
    }
    return network;
}

/* Products are of the rows that heads read. */
static void expect_rows(const trm_network *network)
{
    static const char *const names[] = {"o", "act", "down", "out"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const trm_tensor *tensor = trm_network_find_tensor(network, names[i]);
        assert_non_null(tensor);
        assert_int_equal(tensor->dims.d[1], READ);
    }
}

/* Batches of `every` entries and multiples of it, in one profile or the other. */
static void run_on(const char *mesh, int64_t every)
{
    trm_network *network = make_network();
    const trm_shape_bound bounds[] = {
        {.tensor = "x", .max = DIMS(2 * every, ROWS, WIDTH), .min = DIMS(every, ROWS, WIDTH)},
        {.tensor = "x", .max = DIMS(BATCHES * every, ROWS, WIDTH), .min = DIMS(4 * every, ROWS, WIDTH), .profile = 1}};
    trm_build_options options = TRM_BUILD_OPTIONS_INIT;
    options.backend = test_backend();
    options.bounds = bounds;
    options.n_bounds = 2;
    options.rank = trm_world_rank(test_world);
    assert_ok(trm_mesh_parse(mesh, trm_world_size(test_world), &options.mesh));
    trm_plan *plan = NULL;
    trm_engine *engine = NULL;
    assert_ok(trm_build(network, &options, &plan));
    expect_rows(plan->network);
    trm_context *context = test_open_context(plan, &engine);
    test_interpreter_options host = {.backend = TRM_BACKEND_HOST};
    test_interpreter *whole = NULL;
    assert_ok(test_interpreter_create(network, &host, &whole));
    uint64_t seed = 5;
    for (int64_t i = 1; i <= BATCHES; i += i == 2 ? 2 : 1) {
        static float values[4 * BATCHES * ROWS * WIDTH];
        const trm_dims dims = DIMS(i * every, ROWS, WIDTH);
        for (int64_t k = 0; k < trm_dims_count(&dims); k++) {
            values[k] = test_random_float(&seed);
        }
        assert_ok(trm_context_set_input(context, "x", dims, values));
        assert_ok(test_interpreter_set_input(whole, "x", &dims, values));
        assert_ok(trm_context_run(context));
        assert_ok(test_interpreter_run(whole));
        test_assert_outputs(context, whole);
    }
    test_interpreter_destroy(whole);
    trm_context_destroy(context);
    trm_engine_destroy(engine);
    trm_network_destroy(network);
}

static void heads_over_ranks_of_layers(void **state)
{
    (void)state;
    run_on(NULL, 1);
}

static void heads_over_ranks_of_a_batch(void **state)
{
    (void)state;
    char mesh[32];
    snprintf(mesh, sizeof(mesh), "dp=%d", (int)trm_world_size(test_world));
    run_on(mesh, trm_world_size(test_world));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(heads_over_ranks_of_layers),
                                       cmocka_unit_test(heads_over_ranks_of_a_batch)};
    return cmocka_run_group_tests(tests, test_open_world, test_close_world);
}
