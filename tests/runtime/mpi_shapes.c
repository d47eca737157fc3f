/* Dims that follow from values and from data, over ranks: what one rank gives, as the test interpreter runs it. */
#include "graph/nets.h"

#include <stdio.h>

#include <trireme/trireme.h>

#include "kernels/kernel.h"
#include "support/interpreter.h"
#include "support/world.h"

enum { WIDTH = 8, HEADS = 4, MOST = 8 };

static trm_tensor *net_integers(trm_network *network, const char *name, trm_dims dims, const int64_t *values)
{
    trm_tensor *tensor = NULL;
    assert_ok(trm_network_add_constant(network, name, TRM_I64, dims, values, &tensor));
    return tensor;
}

/* x [?, 8] through a product, into heads by a computed shape, tiled as an input says, and the rows whose sum is more
 * than 0 picked out. */
static trm_network *make_network(void)
{
    static const int64_t heads[] = {HEADS, 2 * WIDTH / HEADS}, one[] = {1, 1};
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(-1, WIDTH)),
               *times = net_input(network, "times", TRM_I64, DIMS(1));
    trm_layer_desc shape = {.kind = TRM_LAYER_SHAPE, .shape = {0, 1}}, concat = {.kind = TRM_LAYER_CONCAT};
    trm_layer_desc reshape = {.kind = TRM_LAYER_RESHAPE}, tile = {.kind = TRM_LAYER_TILE};
    trm_layer_desc greater = {.kind = TRM_LAYER_ELEMENTWISE, .elementwise = {TRM_ELEMENTWISE_GREATER}};
    trm_layer_desc sum = {.kind = TRM_LAYER_REDUCE, .reduce = {TRM_REDUCE_SUM, 1, false}};
    trm_layer_desc non_zero = {.kind = TRM_LAYER_NON_ZERO}, gather = {.kind = TRM_LAYER_GATHER};
    trm_layer_desc flat = {.kind = TRM_LAYER_RESHAPE, .reshape = {.dims = DIMS(-1)}};
    trm_tensor *up = net_linear(network, "up", x, net_weight(network, "w", DIMS(2 * WIDTH, WIDTH), 7));
    trm_tensor *rows = net_layer(network, "rows", shape, x, NULL, NULL, NULL);
    trm_tensor *sizes =
        net_layer(network, "sizes", concat, rows, net_integers(network, "heads", DIMS(2), heads), NULL, NULL);
    trm_tensor *split =
        net_layer(network, "split", reshape, net_unary(network, "act", TRM_ACTIVATION_SILU, up), sizes, NULL, NULL);
    trm_tensor *repeats =
        net_layer(network, "repeats", concat, times, net_integers(network, "one", DIMS(2), one), NULL, NULL);
    trm_tensor *tiled = net_layer(network, "tiled", tile, split, repeats, NULL, NULL);
    net_output(network, net_unary(network, "y", TRM_ACTIVATION_RELU, tiled));
    trm_tensor *sums = net_layer(network, "sums", sum, x, NULL, NULL, NULL), *zero = NULL;
    static const float nothing = 0;
    assert_ok(trm_network_add_constant(network, "zero", TRM_F32, (trm_dims){0}, &nothing, &zero));
    trm_tensor *is_more = net_layer(network, "is_more", greater, sums, zero, NULL, NULL);
    trm_tensor *at = net_layer(network, "at", flat, net_layer(network, "found", non_zero, is_more, NULL, NULL, NULL),
                               NULL, NULL, NULL);
    trm_tensor *picked = net_layer(network, "picked", gather, up, at, NULL, NULL);
    net_output(network, net_linear(network, "z", picked, net_weight(network, "v", DIMS(WIDTH, 2 * WIDTH), 9)));
    return network;
}

/* Batches of `every` tokens and multiples of it. */
static void run_on(const char *mesh, int64_t every)
{
    static const int64_t most = 3;
    trm_network *network = make_network();
    const trm_shape_bound bounds[] = {
        {.tensor = "x", .max = DIMS(MOST / every * every, WIDTH), .min = DIMS(every, WIDTH)},
        {.tensor = "times", .max = DIMS(1), .max_values = &most}};
    trm_build_options options = TRM_BUILD_OPTIONS_INIT;
    options.backend = TRM_BACKEND_HOST;
    options.bounds = bounds;
    options.n_bounds = 2;
    options.rank = trm_world_rank(test_world);
    assert_ok(trm_mesh_parse(mesh, trm_world_size(test_world), &options.mesh));
    trm_plan *plan = NULL;
    trm_engine *engine = NULL;
    assert_ok(trm_build(network, &options, &plan));
    trm_context *context = test_open_context(plan, &engine);
    test_interpreter_options host = {.backend = TRM_BACKEND_HOST};
    test_interpreter *whole = NULL;
    assert_ok(test_interpreter_create(network, &host, &whole));
    uint64_t seed = 11;
    for (int64_t n = MOST / every * every; n > 0; n -= every) {
        float values[MOST * WIDTH];
        const int64_t times = 1 + n % most;
        for (int i = 0; i < MOST * WIDTH; i++) {
            values[i] = test_random_float(&seed);
        }
        assert_ok(trm_context_set_input(context, "x", DIMS(n, WIDTH), values));
        assert_ok(trm_context_set_input(context, "times", DIMS(1), &times));
        assert_ok(test_interpreter_set_input(whole, "x", &DIMS(n, WIDTH), values));
        assert_ok(test_interpreter_set_input(whole, "times", &DIMS(1), &times));
        assert_ok(trm_context_run(context));
        assert_ok(test_interpreter_run(whole));
        test_assert_outputs(context, whole);
    }
    test_interpreter_destroy(whole);
    trm_context_destroy(context);
    trm_engine_destroy(engine);
    trm_network_destroy(network);
}

static void runs_as_one_rank_does(void **state)
{
    (void)state;
    run_on(NULL, 1);
}

static void shares_batches_as_one_rank_does(void **state)
{
    (void)state;
    char mesh[32];
    snprintf(mesh, sizeof(mesh), "dp=%d", (int)trm_world_size(test_world));
    run_on(mesh, trm_world_size(test_world));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(runs_as_one_rank_does),
                                       cmocka_unit_test(shares_batches_as_one_rank_does)};
    return cmocka_run_group_tests(tests, test_open_world, test_close_world);
}
