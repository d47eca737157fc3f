/*
 * Ranks along dp that share a batch, through engine and context: the results of one rank, whatever the batch is that
 * they divide, and one error on all of them where they do not.
 */
#include "graph/nets.h"

#include <math.h>
#include <stdio.h>

#include <trireme/trireme.h>

#include "dist/runtime/context.h"
#include "support/interpreter.h"
#include "support/world.h"

enum { WIDTH = 8, HEADS = 2, MOST_LENGTH = 5, MOST_BATCH = 24, SPARE = 3 };

typedef struct built {
    trm_network *network;
    trm_plan *plan; /* the engine's */
    trm_engine *engine;
    trm_context *context;
    test_interpreter *whole;
    int32_t n; /* ranks along dp */
} built;

static trm_mesh make_mesh(int32_t tp, int32_t pp)
{
    return (trm_mesh){{tp, pp, 1, 1, trm_world_size(test_world) / tp / pp}};
}

static trm_tensor *integers(trm_network *network, const char *name, trm_dims dims, const int64_t *values)
{
    trm_tensor *tensor = NULL;
    assert_ok(trm_network_add_constant(network, name, TRM_I64, dims, values, &tensor));
    return tensor;
}

static trm_tensor *whole_dim(trm_network *network, const char *name, trm_tensor *of, int32_t axis)
{
    return net_layer(network, name, (trm_layer_desc){.kind = TRM_LAYER_SHAPE, .shape = {axis, axis + 1}}, of, NULL,
                     NULL, NULL);
}

static trm_tensor *transpose(trm_network *network, const char *name, trm_tensor *x, int32_t a, int32_t b, int32_t c,
                             int32_t d)
{
    return net_layer(network, name, (trm_layer_desc){.kind = TRM_LAYER_TRANSPOSE, .transpose = {{a, b, c, d}}}, x, NULL,
                     NULL, NULL);
}

/*
 * As exporters write an encoder, of x [?, ?, 8] and counts [?, ?]: heads by shapes that are computed, entries of a mask
 * looked up by positions of the batch. `attended` keeps entries apart. `centered` does not: their mean is taken off.
 * `rows` are those of all entries, in one axis.
 */
static trm_network *make_encoder(void)
{
    static const int64_t heads[] = {HEADS, WIDTH / HEADS}, zero = 0, one = 1, minus = -1;
    const trm_layer_desc concat = {.kind = TRM_LAYER_CONCAT}, reshape = {.kind = TRM_LAYER_RESHAPE};
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(-1, -1, WIDTH));
    trm_tensor *counts = net_input(network, "counts", TRM_F32, DIMS(-1, -1));
    trm_tensor *batch = whole_dim(network, "batch", x, 0), *length = whole_dim(network, "length", x, 1);
    trm_tensor *begin = integers(network, "begin", (trm_dims){0}, &zero);
    trm_tensor *step = integers(network, "step", (trm_dims){0}, &one);
    const trm_layer_desc scalar = {.kind = TRM_LAYER_RESHAPE, .reshape = {.dims = {0}}};
    trm_tensor *to = net_layer(network, "to", scalar, batch, NULL, NULL, NULL);
    trm_tensor *entries =
        net_layer(network, "entries", (trm_layer_desc){.kind = TRM_LAYER_RANGE}, begin, to, step, NULL);
    const trm_layer_desc gather = {.kind = TRM_LAYER_GATHER};
    trm_tensor *looked_up = net_layer(network, "looked_up", gather, counts, entries, NULL, NULL); /* [?, ?] */
    trm_tensor *sizes =
        net_layer(network, "sizes", concat, batch, length, integers(network, "heads", DIMS(2), heads), NULL);
    trm_tensor *flat_sizes =
        net_layer(network, "flat_sizes", concat, batch, length, integers(network, "rest", DIMS(1), &minus), NULL);
    trm_tensor *parts[3];
    for (int i = 0; i < 3; i++) {
        static const char *const names[][4] = {
            {"wq", "q", "q_split", "q_heads"}, {"wk", "k", "k_split", "k_heads"}, {"wv", "v", "v_split", "v_heads"}};
        trm_tensor *y = net_linear(network, names[i][1], x, net_weight(network, names[i][0], DIMS(WIDTH, WIDTH), i));
        y = net_layer(network, names[i][2], reshape, y, sizes, NULL, NULL);
        parts[i] = transpose(network, names[i][3], y, 0, 2, i == 1 ? 3 : 1, i == 1 ? 1 : 3);
    }
    const trm_layer_desc product = {.kind = TRM_LAYER_MATMUL};
    const trm_layer_desc apart = {.kind = TRM_LAYER_RESHAPE, .reshape = {.dims = DIMS(0, 1, 1, -1)}};
    trm_tensor *scores = net_layer(network, "scores", product, parts[0], parts[1], NULL, NULL);
    trm_tensor *mask = net_layer(network, "mask", apart, looked_up, NULL, NULL, NULL);
    scores = net_binary(network, "masked", TRM_ELEMENTWISE_ADD, scores, mask);
    const trm_layer_desc softmax = {.kind = TRM_LAYER_SOFTMAX, .softmax = {.axis = 3}};
    trm_tensor *y = net_layer(network, "weights", softmax, scores, NULL, NULL, NULL);
    y = transpose(network, "back", net_layer(network, "sums", product, y, parts[2], NULL, NULL), 0, 2, 1, 3);
    y = net_layer(network, "attended", reshape, y, flat_sizes, NULL, NULL);
    net_output(network, y);
    trm_layer_desc mean = {.kind = TRM_LAYER_REDUCE, .reduce = {TRM_REDUCE_AVG, 0, true}};
    trm_tensor *centered = net_binary(network, "difference", TRM_ELEMENTWISE_SUB, y,
                                      net_layer(network, "mean", mean, y, NULL, NULL, NULL));
    centered = net_unary(network, "centered", TRM_ACTIVATION_TANH, centered);
    net_output(network, centered);
    const trm_layer_desc flat = {.kind = TRM_LAYER_RESHAPE, .reshape = {.dims = DIMS(-1, WIDTH)}};
    net_output(network,
               net_unary(network, "rows", TRM_ACTIVATION_SILU, net_layer(network, "flat", flat, y, NULL, NULL, NULL)));
    return network;
}

/* Entries along the second axis of what a recurrent layer reads and the third of what it makes; of its first state, an
 * input, along the dimension with the name of the batch. */
static trm_network *make_recurrent(void)
{
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(-1, -1, WIDTH)), *outputs[TRM_MAX_LAYER_OUTPUTS];
    trm_tensor *state = net_input(network, "state", TRM_F32, DIMS(1, -1, WIDTH));
    assert_ok(trm_network_name_dim(network, x, 0, "batch"));
    assert_ok(trm_network_name_dim(network, state, 1, "batch"));
    const trm_layer_desc cell = {.kind = TRM_LAYER_RECURRENT,
                                 .recurrent = {.cell = TRM_RECURRENT_RNN,
                                               .hidden = WIDTH,
                                               .activations = {TRM_RECURRENT_TANH, TRM_RECURRENT_TANH}}};
    trm_tensor *inputs[] = {transpose(network, "steps_first", x, 1, 0, 2, 0),
                            net_weight(network, "w", DIMS(1, WIDTH, WIDTH), 4),
                            net_weight(network, "r", DIMS(1, WIDTH, WIDTH), 5),
                            NULL,
                            NULL,
                            state};
    assert_ok(trm_network_add_layer(network, "cell", &cell, inputs, 6, outputs));
    net_output(network, transpose(network, "all", outputs[0], 2, 0, 1, 3));
    net_output(network, outputs[1]);
    return network;
}

/* Rows as long as n entries, of which there need not be a multiple of n. */
static trm_network *make_rows(int32_t n)
{
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(-1, WIDTH));
    const trm_layer_desc rows = {.kind = TRM_LAYER_RESHAPE, .reshape = {.dims = DIMS(-1, WIDTH * n)}};
    net_output(network,
               net_unary(network, "y", TRM_ACTIVATION_TANH, net_layer(network, "rows", rows, x, NULL, NULL, NULL)));
    return network;
}

/* [steps, batch, 8] as [8, batch, steps]: what stands at an entry is of others. */
static trm_network *make_turned(void)
{
    static const int64_t width = WIDTH;
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(-1, -1, WIDTH));
    const trm_layer_desc concat = {.kind = TRM_LAYER_CONCAT}, reshape = {.kind = TRM_LAYER_RESHAPE};
    trm_tensor *sizes = net_layer(network, "sizes", concat, integers(network, "first", DIMS(1), &width),
                                  whole_dim(network, "batch", x, 0), whole_dim(network, "length", x, 1), NULL);
    trm_tensor *steps = transpose(network, "steps", x, 1, 0, 2, 0);
    net_output(network, net_unary(network, "y", TRM_ACTIVATION_SILU,
                                  net_layer(network, "turned", reshape, steps, sizes, NULL, NULL)));
    return network;
}

static void open_network(built *b, trm_network *network, trm_mesh mesh)
{
    trm_shape_bound bounds[2];
    trm_build_options options = TRM_BUILD_OPTIONS_INIT;
    *b = (built){.network = network, .n = mesh.size[TRM_AXIS_DP]};
    for (; options.n_bounds < trm_network_input_count(network); options.n_bounds++) {
        const trm_tensor *input = trm_network_input(network, options.n_bounds);
        bounds[options.n_bounds] = (trm_shape_bound){.tensor = input->name, .max = input->dims, .min = input->dims};
        for (int32_t i = 0; i < input->dims.n; i++) {
            const bool is_open = input->dims.d[i] < 0;
            const bool is_batch = i == 0 || trm_tensor_dim_name(input, i) != NULL;
            bounds[options.n_bounds].max.d[i] = !is_open ? input->dims.d[i] : is_batch ? MOST_BATCH : MOST_LENGTH;
            bounds[options.n_bounds].min.d[i] = !is_open ? input->dims.d[i] : is_batch ? b->n : 1;
        }
    }
    options.backend = test_backend();
    options.bounds = bounds;
    options.mesh = mesh;
    options.rank = trm_world_rank(test_world);
    assert_ok(trm_build(network, &options, &b->plan));
    b->context = test_open_context(b->plan, &b->engine);
    const test_interpreter_options host = {.backend = TRM_BACKEND_HOST};
    assert_ok(test_interpreter_create(network, &host, &b->whole));
}

static void close_network(built *b)
{
    test_interpreter_destroy(b->whole);
    trm_context_destroy(b->context);
    trm_engine_destroy(b->engine);
    trm_network_destroy(b->network);
}

static trm_dims dims_of_run(const trm_tensor *input, int64_t batch, int64_t length)
{
    trm_dims dims = input->dims;
    for (int32_t i = 0; i < dims.n; i++) {
        const bool is_batch = i == 0 || trm_tensor_dim_name(input, i) != NULL;
        dims.d[i] = dims.d[i] >= 0 ? dims.d[i] : is_batch ? batch : length;
    }
    return dims;
}

/* One run of a batch, or the refusal of it where the ranks do not divide it. */
static void run_batch(built *b, int64_t batch, int64_t length)
{
    static float values[MOST_BATCH * MOST_LENGTH * WIDTH];
    uint64_t seed = (uint64_t)(100 * batch + length);
    bool refused = false;
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        values[i] = test_random_float(&seed);
    }
    for (int32_t i = 0; i < trm_network_input_count(b->network); i++) {
        const trm_tensor *input = trm_network_input(b->network, i);
        const trm_dims dims = dims_of_run(input, batch, length);
        const trm_status status = trm_context_set_input(b->context, input->name, dims, values);
        if (batch % b->n != 0 && input->dims.d[0] < 0) {
            char cause[128];
            snprintf(cause, sizeof(cause), "input %s has a batch of %d, expected a multiple of %d", input->name,
                     (int)batch, (int)b->n);
            assert_fails(status, TRM_ERROR_INVALID_ARGUMENT, cause);
            refused = true;
            continue;
        }
        assert_ok(status);
        assert_ok(test_interpreter_set_input(b->whole, input->name, &dims, values));
    }
    if (!refused) {
        assert_ok(trm_context_run(b->context));
        assert_ok(test_interpreter_run(b->whole));
        test_assert_outputs(b->context, b->whole);
    }
}

static void run_batches(trm_network *network, trm_mesh mesh)
{
    built b;
    open_network(&b, network, mesh);
    for (int64_t batch = 2 * b.n; batch >= b.n; batch -= b.plan->partition.shares_batch ? 1 : b.n) {
        run_batch(&b, batch, 1 + batch % MOST_LENGTH);
    }
    run_batch(&b, 2 * b.n, MOST_LENGTH);
    close_network(&b);
}

static void expect_share(const trm_plan *plan, const char *of, int32_t axis, int32_t n)
{
    bool found = false;
    for (int32_t i = 0; i < plan->network->n_tensors; i++) {
        const trm_tensor_part *part = &plan->network->tensors[i]->part;
        found = found || (part->kind == TRM_PART_SPLIT && strcmp(part->of, of) == 0 && part->axis == axis &&
                          part->parts == n && part->whole == -1);
    }
    if (!found) {
        print_error("%s is not shared by %d ranks along axis %d\n%s", of, (int)n, (int)axis,
                    trm_network_to_text(plan->network));
        fail();
    }
}

static void shares_a_batch(void **state)
{
    (void)state;
    run_batches(make_encoder(), make_mesh(1, 1));
    run_batches(make_recurrent(), make_mesh(1, 1));
    run_batches(make_rows(trm_world_size(test_world)), make_mesh(1, 1));
    run_batches(make_turned(), make_mesh(1, 1));
}

static void does_a_part_each(void **state)
{
    (void)state;
    built b;
    const int32_t n = trm_world_size(test_world);
    if (n == 1) {
        return;
    }
    open_network(&b, make_encoder(), make_mesh(1, 1));
    assert_true(b.plan->partition.shares_batch);
    assert_string_equal(b.plan->partition.note, "");
    expect_share(b.plan, "scores", 0, n);
    expect_share(b.plan, "back", 0, n);
    expect_share(b.plan, "mask", 0, n);
    close_network(&b);
    open_network(&b, make_recurrent(), make_mesh(1, 1));
    expect_share(b.plan, "cell", 2, n);
    expect_share(b.plan, "cell:1", 1, n);
    close_network(&b);
}

/* Each share of a batch on two ranks along tp. */
static void shares_beside_tp(void **state)
{
    (void)state;
    if (trm_world_size(test_world) % 2 == 0) {
        run_batches(make_encoder(), make_mesh(2, 1));
    }
}

/* x [batch, 8] through two products. */
static trm_network *make_chain(int64_t batch)
{
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(batch, WIDTH));
    for (int i = 0; i < 2; i++) {
        static const char *const names[][3] = {{"w0", "p0", "a0"}, {"w1", "p1", "a1"}};
        x = net_linear(network, names[i][1], x, net_weight(network, names[i][0], DIMS(WIDTH, WIDTH), 7 + i));
        x = net_unary(network, names[i][2], TRM_ACTIVATION_TANH, x);
    }
    net_output(network, x);
    return network;
}

/* What goes between stages has the dims of inputs, or known ones: batches of unknown size are not shared, which is
 * told. */
static void shares_beside_stages(void **state)
{
    (void)state;
    const int32_t n = trm_world_size(test_world);
    if (n % 2 == 0) {
        built b;
        open_network(&b, make_chain(12), make_mesh(1, 2));
        assert_true(b.plan->partition.shares_batch == (n > 2));
        run_batch(&b, 12, 1);
        close_network(&b);
        open_network(&b, make_chain(-1), make_mesh(1, 2));
        assert_true((strstr(b.plan->partition.note, "with pipeline stages (pp) the batch needs a known size") !=
                     NULL) == (n > 2));
        run_batch(&b, 2 * n, 1);
        close_network(&b);
    }
}

/* Rows of data and of indices that nothing says are as many: the first of data are meant. */
static void keeps_whole_what_may_differ(void **state)
{
    (void)state;
    const int32_t n = trm_world_size(test_world);
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(-1, WIDTH));
    trm_tensor *at = net_input(network, "at", TRM_I64, DIMS(-1, 2));
    const trm_layer_desc gather = {.kind = TRM_LAYER_GATHER_ELEMENTS, .gather_elements = {1}};
    net_output(network,
               net_layer(network, "y", gather, net_unary(network, "a", TRM_ACTIVATION_TANH, x), at, NULL, NULL));
    trm_shape_bound bounds[] = {{.tensor = "x", .max = DIMS(4 * n, WIDTH)}, {.tensor = "at", .max = DIMS(4 * n, 2)}};
    trm_build_options options = TRM_BUILD_OPTIONS_INIT;
    options.backend = test_backend();
    options.bounds = bounds;
    options.n_bounds = 2;
    options.mesh = make_mesh(1, 1);
    options.rank = trm_world_rank(test_world);
    trm_plan *plan;
    trm_engine *engine;
    assert_ok(trm_build(network, &options, &plan));
    trm_context *context = test_open_context(plan, &engine);
    float values[4 * 4 * WIDTH];
    int64_t places[4 * 4 * 2];
    const void *data;
    trm_dims dims;
    assert_in_range(n, 1, 4);
    for (int32_t i = 0; i < 4 * n * WIDTH; i++) {
        values[i] = (float)i / (4 * 4 * WIDTH);
    }
    for (int32_t i = 0; i < 2 * n * 2; i++) {
        places[i] = (3 * i) % WIDTH;
    }
    assert_ok(trm_context_set_input(context, "x", DIMS(4 * n, WIDTH), values));
    assert_ok(trm_context_set_input(context, "at", DIMS(2 * n, 2), places));
    assert_ok(trm_context_run(context));
    assert_ok(trm_context_output(context, "y", &dims, &data));
    assert_true(trm_dims_equal(&dims, &DIMS(2 * n, 2)));
    for (int32_t i = 0; i < 4 * n; i++) {
        assert_true(fabsf(((const float *)data)[i] - tanhf(values[i / 2 * WIDTH + places[i]])) <= 1e-5f);
    }
    trm_context_destroy(context);
    trm_engine_destroy(engine);
    trm_network_destroy(network);
}

/* What is refused, or shares nothing, when it is built. */
static void says_what_it_cannot(void **state)
{
    (void)state;
    trm_network *network = make_encoder();
    trm_shape_bound bounds[] = {{.tensor = "x", .max = DIMS(8, 4, WIDTH), .min = DIMS(1, 4, WIDTH)},
                                {.tensor = "counts", .max = DIMS(8, 4), .min = DIMS(1, 4)}};
    trm_build_options options = TRM_BUILD_OPTIONS_INIT;
    options.backend = TRM_BACKEND_HOST;
    trm_plan *plan;
    options.bounds = bounds;
    options.n_bounds = 2;
    options.mesh = (trm_mesh){{1, 1, 1, 1, 2}};
    assert_fails(
        trm_build(network, &options, &plan), TRM_ERROR_INVALID_ARGUMENT,
        "profile 0 at its min dims: input x has a batch of 1, expected a multiple of 2, the ranks of mesh axis "
        "dp that share it");
    bounds[0].min = DIMS(2, 4, WIDTH);
    bounds[1].min = DIMS(2, 4);
    assert_ok(trm_build(network, &options, &plan));
    assert_true(plan->partition.shares_batch);
    trm_plan_destroy(plan);
    bounds[1].max = DIMS(7, 4); /* so counts have no part in the batch, and their rows are looked up in all of them */
    assert_ok(trm_build(network, &options, &plan));
    assert_int_equal(trm_network_find_tensor(plan->network, "x")->batch_ranks, 2);
    assert_int_equal(trm_network_find_tensor(plan->network, "counts")->batch_ranks, 0);
    trm_plan_destroy(plan);
    trm_network_destroy(network);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shares_a_batch),
        cmocka_unit_test(does_a_part_each),
        cmocka_unit_test(shares_beside_tp),
        cmocka_unit_test(shares_beside_stages),
        cmocka_unit_test(keeps_whole_what_may_differ),
        cmocka_unit_test(says_what_it_cannot),
    };
    return cmocka_run_group_tests(tests, test_open_world, test_close_world);
}
