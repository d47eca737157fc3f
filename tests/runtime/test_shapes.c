/* Contexts of networks whose dims follow from values or from data. */
#include "graph/nets.h"

#include <math.h>
#include <stdio.h>

#include <trireme/trireme.h>

#include "support/world.h"

#include "dist/runtime/context.h"

typedef struct run {
    trm_engine *engine;
    trm_context *context;
} run;

static void open_run(run *r, trm_network *network, const trm_shape_bound *bounds, int32_t n_bounds)
{
    trm_build_options options = TRM_BUILD_OPTIONS_INIT;
    trm_plan *plan = NULL;
    options.backend = test_backend();
    options.bounds = bounds;
    options.n_bounds = n_bounds;
    *r = (run){NULL, NULL};
    assert_ok(trm_build(network, &options, &plan));
    r->context = test_open_context(plan, &r->engine);
    trm_network_destroy(network);
}

static void close_run(run *r)
{
    trm_context_destroy(r->context);
    trm_engine_destroy(r->engine);
}

static trm_tensor *net_integers(trm_network *network, const char *name, trm_dims dims, const int64_t *values)
{
    trm_tensor *tensor = NULL;
    assert_ok(trm_network_add_constant(network, name, TRM_I64, dims, values, &tensor));
    return tensor;
}

static void set_floats(run *r, const char *name, trm_dims dims)
{
    float values[256];
    for (int i = 0; i < 256; i++) {
        values[i] = (float)i;
    }
    assert_ok(trm_context_set_input(r->context, name, dims, values));
}

static void assert_dims(run *r, const char *name, trm_dims expected, const void **data)
{
    trm_dims dims;
    char found_text[TRM_DIMS_TEXT_SIZE], expected_text[TRM_DIMS_TEXT_SIZE];
    assert_ok(trm_context_output(r->context, name, &dims, data));
    assert_string_equal(trm_dims_format(&dims, found_text), trm_dims_format(&expected, expected_text));
}

/* x [?, 6] -> [?, 2, 3] by concat(shape(x)[0:1], {2, 3}), computed on the host. */
static void a_shape_computed_from_dims(void **state)
{
    (void)state;
    static const int64_t rest[] = {2, 3};
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(-1, 6));
    trm_layer_desc shape = {.kind = TRM_LAYER_SHAPE, .shape = {0, 1}}, concat = {.kind = TRM_LAYER_CONCAT};
    trm_layer_desc reshape = {.kind = TRM_LAYER_RESHAPE};
    trm_tensor *rows = net_layer(network, "rows", shape, x, NULL, NULL, NULL);
    trm_tensor *sizes =
        net_layer(network, "sizes", concat, rows, net_integers(network, "rest", DIMS(2), rest), NULL, NULL);
    trm_tensor *relu = net_unary(network, "relu", TRM_ACTIVATION_RELU, x);
    trm_tensor *y = net_layer(network, "y", reshape, relu, sizes, NULL, NULL);
    net_output(network, y);
    net_output(network, sizes);
    net_output(network, net_unary(network, "z", TRM_ACTIVATION_RELU, y));
    const trm_shape_bound bound = {.tensor = "x", .max = DIMS(8, 6)};
    run r;
    open_run(&r, network, &bound, 1);
    for (int64_t n = 8; n >= 0; n -= 2) {
        const void *data;
        set_floats(&r, "x", DIMS(n, 6));
        assert_ok(trm_context_run(r.context));
        assert_dims(&r, "y", DIMS(n, 2, 3), &data);
        assert_true(n == 0 || ((const float *)data)[6 * n - 1] == (float)(6 * n - 1));
        assert_dims(&r, "sizes", DIMS(3), &data);
        assert_int_equal(((const int64_t *)data)[0], n);
        assert_int_equal(((const int64_t *)data)[2], 3);
        assert_dims(&r, "z", DIMS(n, 2, 3), &data);
    }
    close_run(&r);
}

/* Pixels of a batch are made twice as many, down to a batch of none; whether or not the batch has a scale of its own.
 */
static void batches_of_none_are_resized(void **state)
{
    (void)state;
    static const float scales[] = {1, 2};
    for (int32_t own = 0; own < 2; own++) {
        trm_network *network = net_create();
        trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(-1, 3)), *by = NULL;
        assert_ok(trm_network_add_constant(network, "by", TRM_F32, DIMS(1 + own), scales + 1 - own, &by));
        const trm_layer_desc resize = {.kind = TRM_LAYER_RESIZE,
                                       .resize = {.mode = TRM_RESIZE_NEAREST, .axes = own == 1 ? 3 : 2}};
        net_output(network, net_layer(network, "y", resize, x, NULL, by, NULL));
        const trm_shape_bound bound = {.tensor = "x", .max = DIMS(2, 3)};
        run r;
        open_run(&r, network, &bound, 1);
        for (int64_t n = 2; n >= 0; n--) {
            const void *data;
            set_floats(&r, "x", DIMS(n, 3));
            assert_ok(trm_context_run(r.context));
            assert_dims(&r, "y", DIMS(n, 6), &data);
            assert_true(n == 0 || ((const float *)data)[6 * n - 1] == (float)(3 * n - 1));
        }
        close_run(&r);
    }
}

/* x [12] reshaped and then expanded by what inputs say: dims change with values alone. */
static void shapes_given_as_inputs(void **state)
{
    (void)state;
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(12)), *shape = net_input(network, "shape", TRM_I64, DIMS(2));
    trm_tensor *times = net_input(network, "times", TRM_I64, DIMS(2));
    trm_layer_desc reshape = {.kind = TRM_LAYER_RESHAPE}, tile = {.kind = TRM_LAYER_TILE};
    trm_tensor *square = net_layer(network, "square", reshape, x, shape, NULL, NULL);
    net_output(network, net_layer(network, "y", tile, square, times, NULL, NULL));
    const int64_t most[] = {3, 4}, twice[] = {2, 1};
    const trm_shape_bound bounds[] = {{.tensor = "shape", .max = DIMS(2), .max_values = most},
                                      {.tensor = "times", .max = DIMS(2), .max_values = twice}};
    run r;
    open_run(&r, network, bounds, 2);
    set_floats(&r, "x", DIMS(12));
    const int64_t shapes[][2] = {{3, 4}, {4, -1}, {1, 12}}, repeats[][2] = {{2, 1}, {1, 1}, {1, 2}};
    const int64_t expected[][2] = {{6, 4}, {4, 3}, {1, 24}};
    for (int i = 0; i < 6; i++) { /* the second time in one shape's memory of the other */
        const void *data;
        assert_ok(trm_context_set_input(r.context, "shape", DIMS(2), shapes[i % 3]));
        assert_ok(trm_context_set_input(r.context, "times", DIMS(2), repeats[i % 3]));
        assert_ok(trm_context_run(r.context));
        assert_dims(&r, "y", DIMS(expected[i % 3][0], expected[i % 3][1]), &data);
        assert_true(((const float *)data)[11] == 11);
    }
    const int64_t large[] = {60, 1};
    assert_ok(trm_context_set_input(r.context, "times", DIMS(2), large));
    assert_fails(trm_context_run(r.context), TRM_ERROR_UNSUPPORTED, "bytes");
    close_run(&r);
}

/* Without bounds for the values, memory comes in the run. */
static void values_no_plan_knows(void **state)
{
    (void)state;
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(3)), *times = net_input(network, "times", TRM_I64, DIMS(1));
    trm_layer_desc tile = {.kind = TRM_LAYER_TILE};
    trm_tensor *y = net_layer(network, "y", tile, x, times, NULL, NULL);
    net_output(network, net_unary(network, "z", TRM_ACTIVATION_RELU, y));
    run r;
    open_run(&r, network, NULL, 0);
    set_floats(&r, "x", DIMS(3));
    for (int64_t n = 1; n < 2000; n = n * 7 % 2003) {
        const void *data;
        assert_ok(trm_context_set_input(r.context, "times", DIMS(1), &n));
        assert_ok(trm_context_run(r.context));
        assert_dims(&r, "z", DIMS(3 * n), &data);
        assert_true(((const float *)data)[3 * n - 1] == 2);
        if (n == 1715) {
            break;
        }
    }
    close_run(&r);
}

/* Values that are made by a large layer on the device: the run stops there and reads them. */
static void values_made_on_the_device(void **state)
{
    (void)state;
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(-1, 4)), *w = net_values(network, "w", DIMS(1, 4));
    trm_tensor *sum = net_linear(network, "sum", x, w); /* products are not computed on the host */
    trm_layer_desc largest = {.kind = TRM_LAYER_REDUCE, .reduce = {TRM_REDUCE_MAX, 0, false}};
    trm_layer_desc cast = {.kind = TRM_LAYER_CAST, .cast = {TRM_I64}}, tile = {.kind = TRM_LAYER_TILE};
    trm_layer_desc ones = {.kind = TRM_LAYER_CONCAT};
    static const int64_t one = 1;
    trm_tensor *top = net_layer(network, "top", largest, sum, NULL, NULL, NULL);
    trm_tensor *times = net_layer(network, "times", cast, top, NULL, NULL, NULL);
    trm_tensor *repeats =
        net_layer(network, "repeats", ones, times, net_integers(network, "one", DIMS(1), &one), NULL, NULL);
    net_output(network,
               net_unary(network, "y", TRM_ACTIVATION_RELU, net_layer(network, "tiled", tile, x, repeats, NULL, NULL)));
    const trm_shape_bound bound = {.tensor = "x", .max = DIMS(8, 4)};
    run r;
    open_run(&r, network, &bound, 1);
    for (int64_t n = 8; n > 0; n--) {
        const void *data;
        float values[32] = {0};
        values[4 * (n - 1)] = (float)(2 * n); /* times 0.5 */
        assert_ok(trm_context_set_input(r.context, "x", DIMS(n, 4), values));
        assert_ok(trm_context_run(r.context));
        assert_dims(&r, "y", DIMS(n * n, 4), &data);
        assert_true(((const float *)data)[4 * (n * n - 1)] == (float)(2 * n));
    }
    close_run(&r);
}

/* x -> positions of what is not 0 -> the values there, doubled. */
static void counts_of_data(void **state)
{
    (void)state;
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(-1));
    trm_layer_desc non_zero = {.kind = TRM_LAYER_NON_ZERO}, flat = {.kind = TRM_LAYER_RESHAPE, .reshape = {DIMS(-1)}};
    trm_layer_desc gather = {.kind = TRM_LAYER_GATHER};
    trm_tensor *inputs[] = {x}, *outputs[2];
    assert_ok(trm_network_add_layer(network, "at", &non_zero, inputs, 1, outputs));
    trm_tensor *indices = net_layer(network, "indices", flat, outputs[0], NULL, NULL, NULL);
    trm_tensor *found = net_layer(network, "found", gather, x, indices, NULL, NULL);
    net_output(network, net_binary(network, "y", TRM_ELEMENTWISE_ADD, found, found));
    net_output(network, outputs[1]);
    const trm_shape_bound bound = {.tensor = "x", .max = DIMS(8)};
    run r;
    open_run(&r, network, &bound, 1);
    for (int bits = 0; bits < 256; bits += 15) {
        float values[8];
        int64_t count = 0;
        for (int i = 0; i < 8; i++) {
            values[i] = bits >> i & 1 ? (float)(i + 1) : 0;
            count += bits >> i & 1;
        }
        const void *data, *number;
        assert_ok(trm_context_set_input(r.context, "x", DIMS(8), values));
        assert_ok(trm_context_run(r.context));
        assert_dims(&r, "y", DIMS(count), &data);
        assert_dims(&r, "at:1", (trm_dims){0}, &number);
        assert_int_equal(*(const int64_t *)number, count);
        for (int i = 0, k = 0; i < 8; i++) {
            if (bits >> i & 1) {
                assert_true(((const float *)data)[k++] == (float)(2 * i + 2));
            }
        }
    }
    close_run(&r);
}

/* What is not 0 must be 4 elements, as they become [2, 2]: the largest count does not fit, so no memory is planned for
 * any. */
static void counts_that_are_reshaped_to_fixed_dims(void **state)
{
    (void)state;
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(-1));
    trm_layer_desc non_zero = {.kind = TRM_LAYER_NON_ZERO}, flat = {.kind = TRM_LAYER_RESHAPE, .reshape = {DIMS(-1)}};
    trm_layer_desc square = {.kind = TRM_LAYER_RESHAPE, .reshape = {DIMS(2, 2)}}, gather = {.kind = TRM_LAYER_GATHER};
    trm_tensor *inputs[] = {x}, *outputs[2];
    assert_ok(trm_network_add_layer(network, "at", &non_zero, inputs, 1, outputs));
    trm_tensor *indices = net_layer(network, "indices", flat, outputs[0], NULL, NULL, NULL);
    trm_tensor *found = net_layer(network, "found", gather, x, indices, NULL, NULL);
    trm_tensor *squared = net_layer(network, "square", square, found, NULL, NULL, NULL);
    net_output(network, net_binary(network, "y", TRM_ELEMENTWISE_ADD, squared, squared));
    const trm_shape_bound bound = {.tensor = "x", .max = DIMS(8), .min = DIMS(4)};
    run r;
    open_run(&r, network, &bound, 1);
    const float four[] = {0, 1, 2, 0, 3, 0, 0, 4}, three[] = {0, 1, 2, 0, 3, 0, 0, 0};
    const void *data;
    for (int i = 0; i < 3; i++) { /* one that fails is followed by one that works */
        assert_ok(trm_context_set_input(r.context, "x", DIMS(8), four));
        assert_ok(trm_context_run(r.context));
        assert_dims(&r, "y", DIMS(2, 2), &data);
        for (int k = 0; k < 4; k++) {
            assert_true(((const float *)data)[k] == (float)(2 * k + 2));
        }
        assert_ok(trm_context_set_input(r.context, "x", DIMS(8), three));
        assert_fails(trm_context_run(r.context), TRM_ERROR_INVALID_ARGUMENT, "square");
    }
    close_run(&r);
}

static char logged[512];

static void keep_log(void *user, trm_log_level level, const char *message)
{
    (void)user;
    if (level == TRM_LOG_WARNING || strstr(message, "data-dependent dims stay unknown") != NULL) {
        snprintf(logged, sizeof(logged), "%s", message);
    }
}

/* The elements that are not 0 and two more become one, which there never is; or x, of 8, becomes [2, 2] behind that. */
static trm_network *found_and_two(bool wrong_without_them)
{
    static const float two[] = {1, 2};
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(-1)), *more, *outputs[2];
    trm_layer_desc non_zero = {.kind = TRM_LAYER_NON_ZERO}, flat = {.kind = TRM_LAYER_RESHAPE, .reshape = {DIMS(-1)}};
    trm_layer_desc gather = {.kind = TRM_LAYER_GATHER}, concat = {.kind = TRM_LAYER_CONCAT};
    trm_layer_desc one = {.kind = TRM_LAYER_RESHAPE, .reshape = {DIMS(1)}};
    trm_layer_desc square = {.kind = TRM_LAYER_RESHAPE, .reshape = {DIMS(2, 2)}};
    assert_ok(trm_network_add_constant(network, "two", TRM_F32, DIMS(2), two, &more));
    assert_ok(trm_network_add_layer(network, "at", &non_zero, &x, 1, outputs));
    trm_tensor *indices = net_layer(network, "indices", flat, outputs[0], NULL, NULL, NULL);
    trm_tensor *found = net_layer(network, "found", gather, x, indices, NULL, NULL);
    trm_tensor *all = net_layer(network, "all", concat, found, more, NULL, NULL);
    net_output(network, wrong_without_them ? net_layer(network, "never", square, x, NULL, NULL, NULL)
                                           : net_layer(network, "single", one, all, NULL, NULL, NULL));
    net_output(network, all);
    return network;
}

/* A layer that fits no number of entries is logged when the plan is built, and an error in the run; a later layer
 * that does not need them is refused at once. */
static void counts_that_never_fit(void **state)
{
    (void)state;
    const trm_shape_bound bound = {.tensor = "x", .max = DIMS(8)};
    const float four[] = {0, 1, 2, 0, 3, 0, 0, 4}, none[8] = {0};
    run r;
    logged[0] = '\0';
    trm_log_set(keep_log, NULL, TRM_LOG_DEBUG);
    open_run(&r, found_and_two(false), &bound, 1);
    trm_log_set(NULL, NULL, TRM_LOG_WARNING);
    assert_non_null(strstr(logged, "single"));
    assert_ok(trm_context_set_input(r.context, "x", DIMS(8), four));
    assert_fails(trm_context_run(r.context), TRM_ERROR_INVALID_ARGUMENT, "single");
    assert_ok(trm_context_set_input(r.context, "x", DIMS(8), none));
    assert_fails(trm_context_run(r.context), TRM_ERROR_INVALID_ARGUMENT, "single");
    close_run(&r);

    trm_network *network = found_and_two(true);
    trm_build_options options = TRM_BUILD_OPTIONS_INIT;
    trm_plan *plan = NULL;
    options.backend = test_backend();
    options.bounds = &bound;
    options.n_bounds = 1;
    assert_fails(trm_build(network, &options, &plan), TRM_ERROR_INVALID_ARGUMENT, "never");
    trm_network_destroy(network);
}

/* Elements -8 to 5: memory is planned from the smallest dims too, where they are said. */
static void profiles_say_what_is_planned(void **state)
{
    (void)state;
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(-1));
    trm_layer_desc slice = {.kind = TRM_LAYER_SLICE, .slice = {0, -8, 5, 1}};
    net_output(network,
               net_unary(network, "y", TRM_ACTIVATION_RELU, net_layer(network, "part", slice, x, NULL, NULL, NULL)));
    const trm_shape_bound bounds[] = {{.tensor = "x", .max = DIMS(12), .min = DIMS(8), .opt = DIMS(10)},
                                      {.tensor = "x", .max = DIMS(40), .min = DIMS(30), .profile = 1}};
    run r;
    open_run(&r, network, bounds, 2);
    const int64_t sizes[] = {12, 8, 10, 40, 30, 8}, expected[] = {1, 5, 3, 0, 0, 5};
    for (int i = 0; i < 6; i++) {
        const void *data;
        set_floats(&r, "x", DIMS(sizes[i]));
        assert_ok(trm_context_run(r.context));
        assert_dims(&r, "y", DIMS(expected[i]), &data);
        assert_true(expected[i] == 0 || ((const float *)data)[expected[i] - 1] == 4);
    }
    set_floats(&r, "x", DIMS(7));
    assert_fails(trm_context_run(r.context), TRM_ERROR_INVALID_ARGUMENT, "other profiles either");
    set_floats(&r, "x", DIMS(20));
    assert_fails(trm_context_run(r.context), TRM_ERROR_INVALID_ARGUMENT, "input x has 20");
    close_run(&r);
}

typedef struct seen_dims {
    int64_t sizes[32];
    int32_t n;
} seen_dims;

static bool note_size(void *user, const trm_debug_tensor *tensor)
{
    seen_dims *seen = user;
    if (strcmp(tensor->name, "y") == 0 && seen->n < 32) {
        seen->sizes[seen->n++] = tensor->dims.d[0];
    }
    return true;
}

/* All points of the profiles run, or of the one that the context is held to; then nothing is left of it. */
static void profiles_are_warmed_up(void **state)
{
    (void)state;
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(-1)), *times = net_input(network, "times", TRM_I64, DIMS(1));
    const trm_layer_desc tile = {.kind = TRM_LAYER_TILE};
    net_output(network,
               net_unary(network, "y", TRM_ACTIVATION_RELU, net_layer(network, "t", tile, x, times, NULL, NULL)));
    static const int64_t two[] = {2}, three[] = {3};
    const trm_shape_bound bounds[] = {
        {.tensor = "x", .max = DIMS(12), .min = DIMS(2), .opt = DIMS(10)},
        {.tensor = "times", .max = DIMS(1), .max_values = three, .min_values = two, .opt_values = two},
        {.tensor = "x", .max = DIMS(40), .min = DIMS(30), .profile = 1}};
    static const int64_t all[] = {4, 4, 20, 20, 36, 36, 60, 60, 80, 80, 120, 120}; /* opt of profile 1: max of x */
    run r;
    seen_dims seen = {.n = 0};
    const void *data;
    open_run(&r, network, bounds, 3);
    assert_ok(trm_context_set_debug(r.context, note_size, &seen));
    assert_ok(trm_context_warm_up(r.context));
    assert_int_equal(seen.n, sizeof(all) / sizeof(all[0]));
    assert_memory_equal(seen.sizes, all, sizeof(all));
    assert_ok(trm_context_set_optimization_profile(r.context, 0));
    seen.n = 0;
    assert_ok(trm_context_warm_up(r.context));
    assert_int_equal(seen.n, 6);
    assert_memory_equal(seen.sizes, all, 6 * sizeof(all[0]));
    assert_ok(trm_context_set_debug(r.context, NULL, NULL));
    assert_ok(trm_context_set_optimization_profile(r.context, -1));
    assert_fails(trm_context_run(r.context), TRM_ERROR_INVALID_ARGUMENT, "is not set");
    set_floats(&r, "x", DIMS(5));
    assert_ok(trm_context_set_input(r.context, "times", DIMS(1), two));
    assert_ok(trm_context_start(r.context));
    assert_fails(trm_context_warm_up(r.context), TRM_ERROR_INVALID_ARGUMENT, "started but not finished");
    assert_ok(trm_context_finish(r.context));
    assert_dims(&r, "y", DIMS(10), &data);
    assert_true(((const float *)data)[9] == 4);
    assert_fails(trm_context_warm_up(NULL), TRM_ERROR_INVALID_ARGUMENT, "NULL");
    close_run(&r);
}

/* Where few shapes lie between the points all of them run: inputs of equal bounds are of one size, others of every
 * combination. */
static void sizes_between_are_warmed_up(void **state)
{
    (void)state;
    static const int64_t largest[] = {5, 6, 70}; /* of a; of b, whose least is 4 */
    for (size_t i = 0; i < 3; i++) {
        trm_network *network = net_create();
        trm_tensor *a = net_input(network, "a", TRM_F32, DIMS(-1, 1)),
                   *b = net_input(network, "b", TRM_F32, DIMS(1, -1));
        trm_tensor *sum = net_binary(network, "s", TRM_ELEMENTWISE_ADD, a, b);
        if (i == 0) { /* of the same size as a */
            sum = net_binary(network, "t", TRM_ELEMENTWISE_ADD, sum, net_input(network, "c", TRM_F32, DIMS(-1, 1)));
        }
        net_output(network, net_unary(network, "y", TRM_ACTIVATION_RELU, sum));
        const trm_shape_bound bounds[] = {
            {.tensor = "a", .min = DIMS(4, 1), .opt = DIMS(5, 1), .max = DIMS(largest[i], 1)},
            {.tensor = "b", .min = DIMS(1, 1), .opt = DIMS(1, 2), .max = DIMS(1, 3)},
            {.tensor = "c", .min = DIMS(4, 1), .opt = DIMS(5, 1), .max = DIMS(5, 1)}};
        static const int64_t seen_of[][24] = {{4, 4, 5, 5, 5, 5, 4, 4, 5, 5, 4, 4, 5, 5, 4, 4, 5, 5},
                                              {4, 4, 5, 5, 6, 6, 4, 4, 5, 5, 6, 6, 4, 4, 5, 5, 6, 6, 4, 4, 5, 5, 6, 6},
                                              {4, 4, 5, 5, 70, 70}}; /* 201 shapes are too many */
        static const int32_t n_seen[] = {18, 24, 6};
        run r;
        seen_dims seen = {.n = 0};
        open_run(&r, network, bounds, i == 0 ? 3 : 2);
        assert_ok(trm_context_set_debug(r.context, note_size, &seen));
        assert_ok(trm_context_warm_up(r.context));
        assert_int_equal(seen.n, n_seen[i]);
        assert_memory_equal(seen.sizes, seen_of[i], (size_t)n_seen[i] * sizeof(int64_t));
        close_run(&r);
    }
}

/* A context that is held to a profile takes its dims alone, and is switched between runs. */
static void runs_are_held_to_a_profile(void **state)
{
    (void)state;
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(-1));
    net_output(network, net_unary(network, "y", TRM_ACTIVATION_RELU, x));
    const trm_shape_bound bounds[] = {{.tensor = "x", .max = DIMS(12), .min = DIMS(8)},
                                      {.tensor = "x", .max = DIMS(40), .min = DIMS(10), .profile = 1}};
    run r;
    const void *data;
    open_run(&r, network, bounds, 2);
    set_floats(&r, "x", DIMS(11));
    for (int32_t profile = -1; profile < 2; profile++) {
        assert_ok(trm_context_set_optimization_profile(r.context, profile));
        assert_ok(trm_context_run(r.context));
        assert_dims(&r, "y", DIMS(11), &data);
    }
    assert_ok(trm_context_set_optimization_profile(r.context, 0));
    set_floats(&r, "x", DIMS(13));
    assert_fails(trm_context_run(r.context), TRM_ERROR_INVALID_ARGUMENT,
                 "input x has 13 at dimension 0, expected 8 to 12 in profile 0");
    assert_ok(trm_context_set_optimization_profile(r.context, 1));
    assert_ok(trm_context_run(r.context));
    set_floats(&r, "x", DIMS(9));
    assert_fails(trm_context_run(r.context), TRM_ERROR_INVALID_ARGUMENT, "expected 10 to 40 in profile 1");
    assert_fails(trm_context_set_optimization_profile(r.context, 2), TRM_ERROR_INVALID_ARGUMENT,
                 "the plan has no such profile");
    assert_fails(trm_context_set_optimization_profile(r.context, -2), TRM_ERROR_INVALID_ARGUMENT,
                 "cannot set profile -2");
    assert_fails(trm_context_set_optimization_profile(NULL, 0), TRM_ERROR_INVALID_ARGUMENT, "NULL");
    assert_ok(trm_context_set_optimization_profile(r.context, -1));
    assert_ok(trm_context_run(r.context));
    close_run(&r);
}

/* Elements of value inputs lie in the range of the profile. */
static void values_are_held_to_a_profile(void **state)
{
    (void)state;
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(3, 1)),
               *shape = net_input(network, "shape", TRM_I64, DIMS(2));
    trm_layer_desc tile = {.kind = TRM_LAYER_TILE};
    net_output(network, net_layer(network, "y", tile, x, shape, NULL, NULL));
    static const int64_t low[2] = {2, 2}, high[2] = {6, 6}, wide[2] = {12, 2};
    const trm_shape_bound bounds[] = {
        {.tensor = "shape", .max = DIMS(2), .max_values = high, .min_values = low},
        {.tensor = "shape", .max = DIMS(2), .max_values = wide, .min_values = wide, .profile = 1}};
    run r;
    const void *data;
    static const int64_t three[2] = {3, 4};
    open_run(&r, network, bounds, 2);
    set_floats(&r, "x", DIMS(3, 1));
    assert_ok(trm_context_set_optimization_profile(r.context, 0));
    assert_ok(trm_context_set_input(r.context, "shape", DIMS(2), three));
    assert_ok(trm_context_run(r.context));
    assert_dims(&r, "y", DIMS(9, 4), &data);
    assert_ok(trm_context_set_input(r.context, "shape", DIMS(2), wide));
    assert_fails(trm_context_run(r.context), TRM_ERROR_INVALID_ARGUMENT,
                 "element 0 of input shape is 12, expected 2 to 6 in profile 0");
    assert_ok(trm_context_set_optimization_profile(r.context, 1));
    assert_ok(trm_context_run(r.context));
    assert_dims(&r, "y", DIMS(36, 2), &data);
    assert_ok(trm_context_set_input(r.context, "shape", DIMS(2), three));
    assert_fails(trm_context_run(r.context), TRM_ERROR_INVALID_ARGUMENT, "expected 12 to 12 in profile 1");
    assert_ok(trm_context_set_optimization_profile(r.context, -1));
    assert_ok(trm_context_run(r.context));
    close_run(&r);
}

static void bad_profiles(void **state)
{
    (void)state;
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(-1, 4));
    net_output(network, net_unary(network, "y", TRM_ACTIVATION_RELU, x));
    trm_build_options options = TRM_BUILD_OPTIONS_INIT;
    options.backend = TRM_BACKEND_HOST;
    trm_plan *plan = NULL;
    trm_shape_bound bound = {.tensor = "x", .max = DIMS(8, 4), .min = DIMS(9, 4)};
    options.bounds = &bound;
    options.n_bounds = 1;
    assert_fails(trm_build(network, &options, &plan), TRM_ERROR_INVALID_ARGUMENT, "has 9 as min and 8 as opt");
    bound.min = DIMS(2, 3);
    assert_fails(trm_build(network, &options, &plan), TRM_ERROR_INVALID_ARGUMENT, "has 3 at dimension 1, expected 4");
    bound.min = DIMS(2);
    assert_fails(trm_build(network, &options, &plan), TRM_ERROR_INVALID_ARGUMENT, "has 1 dimensions, expected 2");
    bound.min = (trm_dims){0};
    bound.profile = TRM_MAX_PROFILES;
    assert_fails(trm_build(network, &options, &plan), TRM_ERROR_INVALID_ARGUMENT, "has profile 16");
    bound.profile = 1; /* and none in profile 0 */
    assert_fails(trm_build(network, &options, &plan), TRM_ERROR_INVALID_ARGUMENT,
                 "has unknown dimensions and no bound");
    trm_network_destroy(network);
}

/* x [n, 4] and z [n, 2], each by itself: n follows in profiles; where it has two sizes, both are kept with a warning.
 */
static void dimensions_of_one_name(void **state)
{
    (void)state;
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(-1, 4)), *z = net_input(network, "z", TRM_F32, DIMS(-1, 2));
    net_output(network, net_unary(network, "y", TRM_ACTIVATION_RELU, x));
    net_output(network, net_unary(network, "w", TRM_ACTIVATION_RELU, z));
    assert_ok(trm_network_name_dim(network, x, 0, "n"));
    assert_ok(trm_network_name_dim(network, z, 0, "n"));
    trm_build_options options = TRM_BUILD_OPTIONS_INIT;
    options.backend = TRM_BACKEND_HOST;
    trm_plan *plan = NULL;
    trm_shape_bound bounds[] = {{.tensor = "x", .max = DIMS(8, 4), .min = DIMS(2, 4)},
                                {.tensor = "z", .max = DIMS(7, 2)},
                                {.tensor = "x", .max = DIMS(20, 4), .profile = 1},
                                {.tensor = "z", .max = DIMS(20, 2), .profile = 1}};
    options.bounds = bounds;
    options.n_bounds = 4;
    const struct {
        int64_t max, min, next_max;
        const char *warning; /* or "" */
    } cases[] = {
        {7, 0, 20,
         "profile 0 at its max dims: dimension n is 8 at position 0 of input x and 7 at position 0 of input z: both "
         "are kept"},
        {8, 0, 21, "profile 1 at its max dims: dimension n is 20"},
        {8, 3, 20, "profile 0 at its min dims: dimension n is 2"},
        {8, 0, 20, ""}, /* its smallest dims follow those of x */
    };
    trm_log_set(keep_log, NULL, TRM_LOG_WARNING);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        bounds[1].max.d[0] = cases[i].max;
        bounds[1].min = cases[i].min > 0 ? DIMS(cases[i].min, 2) : (trm_dims){0};
        bounds[3].max.d[0] = cases[i].next_max;
        logged[0] = '\0';
        assert_ok(trm_build(network, &options, &plan));
        trm_plan_destroy(plan);
        assert_true(cases[i].warning[0] == '\0' ? logged[0] == '\0' : strstr(logged, cases[i].warning) != NULL);
    }
    run r;
    const void *data;
    open_run(&r, network, bounds, 4);
    assert_ok(trm_context_warm_up(r.context));
    set_floats(&r, "x", DIMS(4, 4));
    set_floats(&r, "z", DIMS(4, 2));
    assert_ok(trm_context_run(r.context));
    assert_string_equal(logged, "");
    set_floats(&r, "x", DIMS(5, 4));
    assert_ok(trm_context_run(r.context));
    assert_non_null(strstr(logged, "in a run, dimension n is 5 at position 0 of input x and 4 at position 0 of input "
                                   "z: both are kept"));
    assert_dims(&r, "y", DIMS(5, 4), &data);
    assert_dims(&r, "w", DIMS(4, 2), &data);
    logged[0] = '\0';
    set_floats(&r, "z", DIMS(6, 2)); /* a context warns once */
    assert_ok(trm_context_run(r.context));
    assert_string_equal(logged, "");
    assert_dims(&r, "w", DIMS(6, 2), &data);
    trm_log_set(NULL, NULL, TRM_LOG_WARNING);
    close_run(&r);
}

static void *give_memory(void *user, const char *output, const trm_dims *dims, size_t bytes)
{
    void **given = user;
    assert_string_equal(output, "y");
    assert_int_equal(bytes, (size_t)trm_dims_count(dims) * sizeof(float));
    return given[0];
}

static void *refuse_memory(void *user, const char *output, const trm_dims *dims, size_t bytes)
{
    (void)user, (void)output, (void)dims, (void)bytes;
    return NULL;
}

/* Inputs and outputs in device memory of the caller's, and runs in two halves. */
static void memory_of_the_caller(void **state)
{
    (void)state;
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(-1, 4)), *b = net_input(network, "b", TRM_F32, DIMS(4));
    net_output(network, net_binary(network, "y", TRM_ELEMENTWISE_ADD, x, b));
    const trm_shape_bound bound = {.tensor = "x", .max = DIMS(8, 4)};
    run r;
    open_run(&r, network, &bound, 1);
    trm_device *device = r.engine->world->device;
    void *in[2], *out[2];
    float values[32], result[32];
    for (int i = 0; i < 2; i++) {
        assert_ok(trm_device_alloc(device, sizeof(values), &in[i]));
        assert_ok(trm_device_alloc(device, sizeof(values), &out[i]));
        for (int k = 0; k < 32; k++) {
            values[k] = (float)(100 * i + k);
        }
        assert_ok(trm_stream_upload(r.context->stream, in[i], values, sizeof(values)));
        assert_ok(trm_stream_synchronize(r.context->stream));
    }
    set_floats(&r, "b", DIMS(4));
    for (int round = 0; round < 4; round++) { /* alternating memory, and dims now and then */
        int64_t n = round < 2 ? 8 : 3;
        const void *data;
        assert_ok(trm_context_bind_input(r.context, "x", DIMS(n, 4), in[round % 2]));
        assert_ok(trm_context_bind_output(r.context, "y", out[round % 2], sizeof(values)));
        assert_ok(trm_context_start(r.context));
        assert_ok(trm_context_finish(r.context));
        assert_dims(&r, "y", DIMS(n, 4), &data);
        assert_ptr_equal(data, out[round % 2]);
        assert_ok(trm_stream_download(r.context->stream, result, data, (size_t)n * 16));
        assert_ok(trm_stream_synchronize(r.context->stream));
        for (int k = 0; k < 4 * n; k++) {
            assert_true(result[k] == (float)(100 * (round % 2) + k + k % 4));
        }
    }
    const void *data;
    assert_ok(trm_context_bind_output(r.context, "y", out[0], 16));
    assert_fails(trm_context_run(r.context), TRM_ERROR_INVALID_ARGUMENT, "needs 48 bytes, it is bound to 16");
    assert_fails(trm_context_finish(r.context), TRM_ERROR_INVALID_ARGUMENT, "none was started");
    assert_ok(trm_context_bind_output(r.context, "y", NULL, 0));
    assert_ok(trm_context_set_output_allocator(r.context, give_memory, &out[1]));
    assert_ok(trm_context_run(r.context));
    assert_dims(&r, "y", DIMS(3, 4), &data);
    assert_ptr_equal(data, out[1]);
    assert_ok(trm_context_set_output_allocator(r.context, refuse_memory, NULL));
    assert_fails(trm_context_run(r.context), TRM_ERROR_OUT_OF_MEMORY, "the output allocator has no 48 bytes");
    assert_ok(trm_context_set_output_allocator(r.context, NULL, NULL));
    set_floats(&r, "x", DIMS(2, 4)); /* and back to the context's own */
    assert_ok(trm_context_run(r.context));
    assert_dims(&r, "y", DIMS(2, 4), &data);
    assert_true(((const float *)data)[7] == 10);
    assert_fails(trm_context_bind_input(r.context, "x", DIMS(2, 4), (const char *)in[0] + 4),
                 TRM_ERROR_INVALID_ARGUMENT, "aligned to 256");
    assert_fails(trm_context_bind_output(r.context, "x", out[0], 4), TRM_ERROR_INVALID_ARGUMENT, "no output x");
    for (int i = 0; i < 2; i++) {
        trm_device_free(device, in[i]);
        trm_device_free(device, out[i]);
    }
    close_run(&r);
}

static void read_weight(int64_t count, uint64_t seed, float *values)
{
    trm_weight *weight = NULL;
    assert_ok(trm_weight_random(TRM_F32, &DIMS(count), seed, 0, 1, &weight));
    assert_ok(trm_weight_read(weight, TRM_F32, 0, (size_t)count, values));
    trm_weight_destroy(weight);
}

/* y [16, size - n + 1, size - n + 1] = relu(x [channels, size, size] convolved with w [16, channels, n, n]). */
static void convolve_plainly(const double *x, const float *w, int32_t channels, int32_t size, int32_t n, double *y)
{
    const int32_t out = size - n + 1, taps = n * n;
    for (int32_t i = 0; i < 16 * out * out; i++) {
        const int32_t m = i / (out * out), row = i / out % out, column = i % out;
        double sum = 0;
        for (int32_t k = 0; k < channels * taps; k++) {
            sum += x[(k / taps * size + row + k / n % n) * size + column + k % n] * (double)w[m * channels * taps + k];
        }
        y[i] = sum > 0 ? sum : 0;
    }
}

/* The network below in f64, for each image: y [n, 24] within what sums in f32 may be off. */
static void assert_plain_meaning(const float *x, int64_t n, const float *y)
{
    static float a[16 * 4 * 9], b[16 * 16 * 9], c[24 * 16 * 8 * 8], d[16 * 16];
    static double image[4 * 12 * 12], first[16 * 10 * 10], second[16 * 8 * 8], third[16 * 8 * 8];
    read_weight(16 * 4 * 9, 1, a);
    read_weight(16 * 16 * 9, 2, b);
    read_weight(24 * 16 * 8 * 8, 3, c);
    read_weight(16 * 16, 4, d);
    for (int64_t i = 0; i < n; i++) {
        for (int32_t k = 0; k < 4 * 12 * 12; k++) {
            image[k] = (double)x[i * 4 * 12 * 12 + k];
        }
        convolve_plainly(image, a, 4, 12, 3, first);
        convolve_plainly(first, b, 16, 10, 3, second);
        convolve_plainly(second, d, 16, 8, 1, third);
        for (int32_t m = 0; m < 24; m++) {
            double sum = 0, size = 0;
            for (int32_t k = 0; k < 16 * 8 * 8; k++) {
                const double product = third[k] * (double)c[m * 16 * 8 * 8 + k];
                sum += product;
                size += fabs(product);
            }
            assert_true(fabs((double)y[i * 24 + m] - sum) <= 1e-4 * size);
        }
    }
}

/* Convolutions and a product for one batch after another, tuned at the first: each time what a fresh context gives, to
 * the bit, and what the layers mean, as contexts of a process share what they remember of algorithms. */
static void batches_in_any_order(void **state)
{
    (void)state;
    static const int64_t batches[] = {8, 5, 8, 3, 5, 1, 12, 3, 8, 2, 7, 6, 12, 4, 1};
    static float values[12 * 4 * 12 * 12];
    const trm_layer_desc convolution = {
        .kind = TRM_LAYER_CONVOLUTION,
        .convolution = {.groups = 1, .stride = {1, 1}, .dilation = {1, 1}, .activation = TRM_ACTIVATION_RELU}};
    const trm_layer_desc flatten = {.kind = TRM_LAYER_RESHAPE, .reshape = {.dims = DIMS(-1, 16 * 8 * 8)}};
    const trm_shape_bound bound = {
        .tensor = "x", .min = DIMS(1, 4, 12, 12), .opt = DIMS(8, 4, 12, 12), .max = DIMS(12, 4, 12, 12)};
    trm_tune_options tune = TRM_TUNE_OPTIONS_INIT;
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(-1, 4, 12, 12));
    x = net_layer(network, "first", convolution, x, net_weight(network, "a", DIMS(16, 4, 3, 3), 1), NULL, NULL);
    x = net_layer(network, "second", convolution, x, net_weight(network, "b", DIMS(16, 16, 3, 3), 2), NULL, NULL);
    x = net_layer(network, "third", convolution, x, net_weight(network, "d", DIMS(16, 16, 1, 1), 4), NULL, NULL);
    x = net_layer(network, "flat", flatten, x, NULL, NULL, NULL);
    net_output(network, net_linear(network, "y", x, net_weight(network, "c", DIMS(24, 16 * 8 * 8), 3)));
    for (int32_t i = 0; i < 12 * 4 * 12 * 12; i++) {
        values[i] = (float)(i * 7 % 23) / 16;
    }
    run r;
    open_run(&r, network, &bound, 1);
    assert_ok(trm_context_set_input(r.context, "x", bound.opt, values));
    assert_ok(trm_context_tune(r.context, &tune));
    assert_ok(trm_context_set_capture(r.context, true));
    assert_ok(trm_context_warm_up(r.context));
    for (size_t i = 0; i < sizeof(batches) / sizeof(batches[0]); i++) {
        const trm_dims in = DIMS(batches[i], 4, 12, 12), out = DIMS(batches[i], 24);
        run fresh = {.engine = r.engine};
        const void *found, *expected;
        assert_ok(trm_context_create(r.engine, &fresh.context));
        assert_ok(trm_context_set_input(r.context, "x", in, values));
        assert_ok(trm_context_run(r.context));
        assert_dims(&r, "y", out, &found);
        assert_ok(trm_context_set_input(fresh.context, "x", in, values));
        assert_ok(trm_context_run(fresh.context));
        assert_dims(&fresh, "y", out, &expected);
        assert_memory_equal(found, expected, (size_t)batches[i] * 24 * sizeof(float));
        assert_plain_meaning(values, batches[i], found);
        trm_context_destroy(fresh.context);
    }
    close_run(&r);
}

int main(void)
{
    if (test_lacks_backend()) {
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_shape_computed_from_dims),
        cmocka_unit_test(batches_of_none_are_resized),
        cmocka_unit_test(shapes_given_as_inputs),
        cmocka_unit_test(values_no_plan_knows),
        cmocka_unit_test(values_made_on_the_device),
        cmocka_unit_test(counts_of_data),
        cmocka_unit_test(counts_that_are_reshaped_to_fixed_dims),
        cmocka_unit_test(counts_that_never_fit),
        cmocka_unit_test(profiles_say_what_is_planned),
        cmocka_unit_test(profiles_are_warmed_up),
        cmocka_unit_test(sizes_between_are_warmed_up),
        cmocka_unit_test(runs_are_held_to_a_profile),
        cmocka_unit_test(values_are_held_to_a_profile),
        cmocka_unit_test(bad_profiles),
        cmocka_unit_test(dimensions_of_one_name),
        cmocka_unit_test(memory_of_the_caller),
        cmocka_unit_test(batches_in_any_order),
    };
    return cmocka_run_group_tests(tests, test_open_world, test_close_world);
}
