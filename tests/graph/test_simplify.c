/* The pass that simplifies: the network before and after it as text, and the numbers of both. */
#include "graph/check_pass.h"

#define RELU    TRM_ACTIVATION_RELU
#define SILU    TRM_ACTIVATION_SILU
#define SIGMOID TRM_ACTIVATION_SIGMOID
#define ADD     TRM_ELEMENTWISE_ADD
#define MUL     TRM_ELEMENTWISE_MUL

/* Until nothing changes. */
static trm_status simplify_and_clean(trm_network *network, int32_t *changes)
{
    for (int32_t once = 1; once > 0; *changes += once) {
        once = 0;
        TRM_TRY(trm_pass_simplify(network, &once));
        TRM_TRY(trm_pass_dead_code(network, &once));
    }
    return TRM_OK;
}

static trm_layer_desc transpose_by(int32_t a, int32_t b, int32_t c)
{
    return (trm_layer_desc){.kind = TRM_LAYER_TRANSPOSE, .transpose = {{a, b, c}}};
}

static trm_layer_desc reshape_to(trm_dims dims)
{
    return (trm_layer_desc){.kind = TRM_LAYER_RESHAPE, .reshape = {.dims = dims}};
}

static trm_layer_desc cast_to(trm_dtype dtype)
{
    return (trm_layer_desc){.kind = TRM_LAYER_CAST, .cast = {dtype}};
}

static trm_tensor *net_scalar(trm_network *network, const char *name, float value)
{
    trm_tensor *tensor = NULL;
    assert_ok(trm_network_add_constant(network, name, TRM_F32, (trm_dims){0}, &value, &tensor));
    return tensor;
}

static trm_tensor *net_sizes(trm_network *network, const char *name, trm_dims dims, const int64_t *values)
{
    trm_tensor *tensor = NULL;
    assert_ok(trm_network_add_constant(network, name, TRM_I64, dims, values, &tensor));
    return tensor;
}

static void layers_that_change_nothing_go(void **state)
{
    (void)state;
    static const int64_t ones[] = {1, 1};
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(-1, 4));
    trm_tensor *one = net_scalar(network, "one", 1), *zero = net_scalar(network, "zero", 0);
    trm_layer_desc slice = {.kind = TRM_LAYER_SLICE, .slice = {1, 0, 4, 1}}, pad = {.kind = TRM_LAYER_PAD};
    trm_layer_desc expand = {.kind = TRM_LAYER_EXPAND, .expand = {DIMS(1, 4)}}, tile = {.kind = TRM_LAYER_TILE};
    trm_tensor *a = net_layer(network, "a", cast_to(TRM_F32), net_unary(network, "r", RELU, x), NULL, NULL, NULL);
    trm_tensor *b = net_layer(network, "b", slice, net_binary(network, "m", MUL, one, a), NULL, NULL, NULL);
    trm_tensor *c = net_layer(network, "c", pad, net_binary(network, "p", ADD, b, zero), NULL, NULL, NULL);
    trm_tensor *d = net_layer(network, "d", expand, c, NULL, NULL, NULL);
    trm_tensor *e = net_layer(network, "e", tile, d, net_sizes(network, "ones", DIMS(2), ones), NULL, NULL);
    net_output(network,
               net_unary(network, "y", SILU, net_layer(network, "f", reshape_to(DIMS(-1, 4)), e, NULL, NULL, NULL)));
    check_pass(network, trm_pass_simplify,
               "r: f32 [?, 4] = unary(x) op=activation activation=relu\n"
               "y: f32 [?, 4] = unary(r) op=activation activation=silu\n"
               "output y\n");
}

static void layers_that_change_something_stay(void **state)
{
    (void)state;
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(-1, 4)), *z = net_input(network, "z", TRM_F32, DIMS(1, 4));
    trm_tensor *one = net_scalar(network, "one", 1), *zero = net_scalar(network, "zero", 0);
    trm_layer_desc slice = {.kind = TRM_LAYER_SLICE, .slice = {0, 0, 4, 1}};
    trm_tensor *a = net_binary(network, "a", TRM_ELEMENTWISE_SUB, zero, x); /* -x */
    trm_tensor *b = net_binary(network, "b", TRM_ELEMENTWISE_DIV, one, z);  /* 1 / z */
    trm_tensor *c = net_layer(network, "c", slice, a, NULL, NULL, NULL);    /* at most four rows */
    trm_tensor *ones = net_values(network, "half", DIMS(1));
    net_output(network, net_binary(network, "d", MUL, b, ones));
    net_output(network, net_unary(network, "e", RELU, c));
    net_output(network, net_binary(network, "kept", MUL, z, one)); /* an output keeps its name */
    check_pass(network, trm_pass_simplify, NULL);
}

static void pairs_of_layers_are_joined(void **state)
{
    (void)state;
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(-1, 6, 4));
    trm_tensor *r = net_unary(network, "r", RELU, x);
    trm_tensor *a = net_layer(network, "a", transpose_by(1, 2, 0), r, NULL, NULL, NULL);
    trm_tensor *b = net_layer(network, "b", transpose_by(0, 2, 1), a, NULL, NULL, NULL);
    trm_tensor *c = net_layer(network, "c", reshape_to(DIMS(0, 2, 12)), r, NULL, NULL, NULL);
    trm_tensor *d = net_layer(network, "d", reshape_to(DIMS(0, 24)), c, NULL, NULL, NULL);
    trm_tensor *e = net_layer(network, "e", cast_to(TRM_F64), r, NULL, NULL, NULL);
    trm_tensor *f = net_layer(network, "f", cast_to(TRM_F16), e, NULL, NULL, NULL);
    trm_tensor *g = net_layer(network, "g", cast_to(TRM_F32), f, NULL, NULL, NULL); /* rounded: stays */
    net_output(network, net_unary(network, "y", SILU, b));
    net_output(network, net_unary(network, "z", SILU, d));
    net_output(network, net_unary(network, "w", SILU, g));
    trm_network *changed = NULL;
    assert_ok(trm_network_clone(network, &changed));
    assert_ok(trm_pass_simplify(changed, NULL));
    assert_ok(trm_pass_dead_code(changed, NULL));
    assert_text(changed, "x: f32 [?, 6, 4] = input\n"
                         "r: f32 [?, 6, 4] = unary(x) op=activation activation=relu\n"
                         "b: f32 [6, ?, 4] = transpose(r) perm=[1, 0, 2]\n"
                         "d: f32 [?, 24] = reshape(r) dims=[0, 24]\n"
                         "f: f16 [?, 6, 4] = cast(r) to=f16\n"
                         "g: f32 [?, 6, 4] = cast(f) to=f32\n"
                         "y: f32 [6, ?, 4] = unary(b) op=activation activation=silu\n"
                         "z: f32 [?, 24] = unary(d) op=activation activation=silu\n"
                         "w: f32 [?, 6, 4] = unary(g) op=activation activation=silu\n"
                         "output y\noutput z\noutput w\n");
    assert_same_numbers(network, changed, 5, test_seed());
    trm_network_destroy(changed);
    trm_network_destroy(network);
}

/* Two transposes with layers between them that take elements one by one: both go. */
static void transposes_meet(void **state)
{
    (void)state;
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(-1, 6, 4));
    trm_tensor *a = net_layer(network, "a", transpose_by(0, 2, 1), net_unary(network, "r", RELU, x), NULL, NULL, NULL);
    trm_tensor *b = net_binary(network, "b", MUL, net_unary(network, "s", SILU, a), net_scalar(network, "half", 0.5f));
    net_output(network,
               net_unary(network, "y", SIGMOID, net_layer(network, "c", transpose_by(0, 2, 1), b, NULL, NULL, NULL)));
    trm_network *changed = NULL;
    assert_ok(trm_network_clone(network, &changed));
    int32_t changes;
    do {
        changes = 0;
        assert_ok(trm_pass_simplify(changed, &changes));
        assert_ok(trm_pass_dead_code(changed, &changes));
    } while (changes > 0);
    assert_text(changed, "x: f32 [?, 6, 4] = input\n"
                         "half: f32 [] = constant {0.5}\n"
                         "r: f32 [?, 6, 4] = unary(x) op=activation activation=relu\n"
                         "s: f32 [?, 6, 4] = unary(r) op=activation activation=silu\n"
                         "b: f32 [?, 6, 4] = elementwise(s, half) op=mul\n"
                         "y: f32 [?, 6, 4] = unary(b) op=activation activation=sigmoid\n"
                         "output y\n");
    assert_same_numbers(network, changed, 5, test_seed());
    trm_network_destroy(changed);
    trm_network_destroy(network);
}

/* x [?, ?, 24] -> [?, ?, 2, 12] by gathered and joined sizes, of a tensor with the same dims. */
static void computed_shapes_become_numbers(void **state)
{
    (void)state;
    static const int64_t heads[] = {2, 12}, zero = 0, one = 1;
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(-1, -1, 24));
    trm_layer_desc shape = {.kind = TRM_LAYER_SHAPE, .shape = {0, INT32_MAX}}, gather = {.kind = TRM_LAYER_GATHER};
    trm_layer_desc concat = {.kind = TRM_LAYER_CONCAT}, reshape = {.kind = TRM_LAYER_RESHAPE};
    trm_tensor *r = net_unary(network, "r", RELU, x), *dims = net_layer(network, "dims", shape, x, NULL, NULL, NULL);
    trm_tensor *rows = net_layer(network, "rows", gather, dims, net_sizes(network, "zero", DIMS(1), &zero), NULL, NULL);
    trm_tensor *columns =
        net_layer(network, "columns", gather, dims, net_sizes(network, "one", DIMS(1), &one), NULL, NULL);
    trm_tensor *sizes =
        net_layer(network, "sizes", concat, rows, columns, net_sizes(network, "heads", DIMS(2), heads), NULL);
    net_output(network, net_unary(network, "y", SILU, net_layer(network, "q", reshape, r, sizes, NULL, NULL)));
    trm_network *changed = NULL;
    assert_ok(trm_network_clone(network, &changed));
    assert_ok(trm_run_passes(changed, TRM_PASSES_BEFORE_PARTITION));
    assert_text(changed, "x: f32 [?, ?, 24] = input\n"
                         "r: f32 [?, ?, 24] = unary(x) op=activation activation=relu\n"
                         "q: f32 [?, ?, 2, 12] = reshape(r) dims=[0, 0, 2, 12]\n"
                         "y: f32 [?, ?, ?, ?] = unary(q) op=activation activation=silu\n"
                         "output y\n");
    assert_same_numbers(network, changed, 5, test_seed());
    trm_network_destroy(changed);
    trm_network_destroy(network);
}

/* Shapes, ranges and counts of constants are constants. */
static void new_kinds_fold(void **state)
{
    (void)state;
    static const int64_t five = 5, zero = 0, one = 1;
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(5));
    trm_layer_desc range = {.kind = TRM_LAYER_RANGE}, non_zero = {.kind = TRM_LAYER_NON_ZERO};
    trm_tensor *scalars[] = {net_sizes(network, "zero", (trm_dims){0}, &zero),
                             net_sizes(network, "five", (trm_dims){0}, &five),
                             net_sizes(network, "one", (trm_dims){0}, &one)};
    trm_tensor *at = net_layer(network, "at", range, scalars[0], scalars[1], scalars[2], NULL);
    trm_tensor *found = net_layer(network, "found", non_zero, at, NULL, NULL, NULL); /* 1 to 4 */
    trm_tensor *flat = net_layer(network, "flat", reshape_to(DIMS(-1)), found, NULL, NULL, NULL);
    trm_layer_desc gather = {.kind = TRM_LAYER_GATHER};
    net_output(network, net_layer(network, "y", gather, x, flat, NULL, NULL));
    trm_network *changed = NULL;
    assert_ok(trm_network_clone(network, &changed));
    assert_ok(trm_run_passes(changed, TRM_PASSES_BEFORE_PARTITION));
    assert_text(changed, "x: f32 [5] = input\n"
                         "flat: i64 [4] = constant {1, 2, 3, 4}\n"
                         "y: f32 [?] = gather(x, flat) axis=0\n"
                         "output y\n");
    assert_same_numbers(network, changed, 5, test_seed());
    trm_network_destroy(changed);
    trm_network_destroy(network);
}

static trm_tensor *turn(trm_network *network, const char *name, trm_tensor *x, int32_t a, int32_t b, int32_t c)
{
    trm_layer_desc desc = {.kind = TRM_LAYER_TRANSPOSE, .transpose = {.perm = {a, b, c}}};
    return net_layer(network, name, desc, x, NULL, NULL, NULL);
}

static void transposes_of_both_inputs_join(void **state)
{
    (void)state;
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(2, 3, 4)),
               *z = net_input(network, "z", TRM_F32, DIMS(2, 3, 4));
    trm_tensor *a = turn(network, "a", x, 0, 2, 1);
    trm_tensor *late = net_unary(network, "late", RELU, z);
    net_output(network, net_binary(network, "y", ADD, a, turn(network, "b", late, 0, 2, 1)));
    check_pass(network, simplify_and_clean,
               "late: f32 [2, 3, 4] = unary(z) op=activation activation=relu\n"
               "a: f32 [2, 3, 4] = elementwise(x, late) op=add\n"
               "y: f32 [2, 4, 3] = transpose(a) perm=[0, 2, 1]\n"
               "output y\n");

    network = net_create(); /* in different ways, and one that others read */
    x = net_input(network, "x", TRM_F32, DIMS(2, 3, 3));
    z = net_input(network, "z", TRM_F32, DIMS(3, 3, 2));
    net_output(network, net_binary(network, "y", ADD, turn(network, "a", x, 1, 2, 0), turn(network, "b", z, 1, 0, 2)));
    check_pass(network, simplify_and_clean, NULL);

    network = net_create();
    x = net_input(network, "x", TRM_F32, DIMS(2, 3, 4));
    z = net_input(network, "z", TRM_F32, DIMS(2, 3, 4));
    a = turn(network, "a", x, 0, 2, 1);
    net_output(network, net_binary(network, "y", ADD, a, turn(network, "b", z, 0, 2, 1)));
    net_output(network, a);
    check_pass(network, simplify_and_clean, NULL);
}

static void transposes_of_axes_of_one_are_reshapes(void **state)
{
    (void)state;
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(-1, 1, 4));
    net_output(network, turn(network, "y", x, 1, 0, 2));
    net_output(network, turn(network, "z", x, 0, 2, 1));
    net_output(network, turn(network, "w", x, 2, 1, 0));
    check_pass(network, fuse_after,
               "y: f32 [1, ?, 4] = reshape(x) dims=[1, -1, 4]\n"
               "z: f32 [?, 4, 1] = reshape(x) dims=[0, 4, 1]\n"
               "w: f32 [4, 1, ?] = transpose(x) perm=[2, 1, 0]\n"
               "output y\noutput z\noutput w\n");
}

static void reshapes_around_a_chain_go(void **state)
{
    (void)state;
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(-1, 3, 4)), *flat = NULL, *y = NULL;
    assert_ok(trm_network_add_reshape(network, "flat", x, DIMS(-1, 4), &flat));
    trm_tensor *a = net_unary(network, "a", RELU, flat), *c = NULL;
    const float half = 0.5f;
    assert_ok(trm_network_add_constant(network, "c", TRM_F32, DIMS(1), &half, &c));
    assert_ok(trm_network_add_reshape(network, "y", net_binary(network, "b", MUL, a, c), DIMS(-1, 3, 4), &y));
    net_output(network, net_unary(network, "end", SILU, y));
    check_pass(network, simplify_and_clean,
               NULL); /* that the batch comes back is not known: -1 starts a new dimension */

    network = net_create();
    x = net_input(network, "x", TRM_F32, DIMS(5, 3, 4));
    assert_ok(trm_network_add_reshape(network, "flat", x, DIMS(15, 4), &flat));
    a = net_unary(network, "a", RELU, flat);
    assert_ok(trm_network_add_reshape(network, "y", a, DIMS(5, 3, 4), &y));
    net_output(network, net_unary(network, "end", SILU, y));
    check_pass(network, simplify_and_clean,
               "a: f32 [5, 3, 4] = unary(x) op=activation activation=relu\n"
               "end: f32 [5, 3, 4] = unary(a) op=activation activation=silu\n"
               "output end\n");
}

/* In a rank's network tensors know what they are of; what holds other elements under its name, or in another order, is
 * of nothing any more. */
static void what_is_moved_is_no_part(void **state)
{
    (void)state;
    static const char *const names[] = {"turned", "chain", "y", "a", "sum", "flat", "kept", "z"};
    static const bool known[] = {true, false, true, false, true, true, true, true};
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(2, 3, 4)), *flat;
    trm_tensor *turned = turn(network, "turned", x, 0, 2, 1);
    net_output(network, turn(network, "y", net_unary(network, "chain", RELU, turned), 0, 2, 1));
    net_output(network,
               net_binary(network, "sum", ADD, turn(network, "a", x, 2, 0, 1), turn(network, "b", x, 2, 0, 1)));
    assert_ok(trm_network_add_reshape(network, "flat", x, DIMS(6, 4), &flat));
    trm_tensor *kept = net_unary(network, "kept", SILU, flat);
    assert_ok(trm_network_add_reshape(network, "z", kept, DIMS(2, 3, 4), &kept));
    net_output(network, kept);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        trm_tensor *tensor = trm_network_find_tensor(network, names[i]);
        assert_non_null(tensor);
        tensor->part = (trm_tensor_part){.kind = TRM_PART_WHOLE, .parts = 1, .of = tensor->name};
    }
    assert_ok(trm_pass_simplify(network, NULL));
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const trm_tensor *tensor = trm_network_find_tensor(network, names[i]);
        if (tensor != NULL && (tensor->part.of != NULL) != known[i]) {
            fail_msg("%s is of %s", names[i], tensor->part.of != NULL ? tensor->part.of : "nothing");
        }
    }
    trm_network_destroy(network);
}

static trm_tensor *product(trm_network *network, const char *name, trm_tensor *a, trm_tensor *b)
{
    return net_layer(network, name, (trm_layer_desc){.kind = TRM_LAYER_MATMUL}, a, b, NULL, NULL);
}

static trm_tensor *softmax(trm_network *network, const char *name, trm_tensor *x, int32_t axis)
{
    return net_layer(network, name, (trm_layer_desc){.kind = TRM_LAYER_SOFTMAX, .softmax = {axis}}, x, NULL, NULL,
                     NULL);
}

static trm_tensor *mean(trm_network *network, const char *name, trm_tensor *x, int32_t axis, bool keep_dims)
{
    const trm_layer_desc desc = {.kind = TRM_LAYER_REDUCE, .reduce = {TRM_REDUCE_AVG, axis, keep_dims}};
    return net_layer(network, name, desc, x, NULL, NULL, NULL);
}

static void products_take_transposes(void **state)
{
    (void)state;
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(2, -1, 4)),
               *z = net_input(network, "z", TRM_F32, DIMS(2, 3, 4));
    net_output(network, product(network, "y", turn(network, "a", x, 0, 2, 1), x));
    net_output(network, product(network, "w", z, turn(network, "b", x, 0, 2, 1)));
    check_pass(network, simplify_and_clean,
               "y: f32 [2, 4, 4] = matmul(x, x) transpose_a\n"
               "w: f32 [2, 3, ?] = matmul(z, x) transpose_b\n"
               "output y\n"
               "output w\n");

    network = net_create(); /* one that others read, other axes, and values of attention */
    x = net_input(network, "x", TRM_F32, DIMS(2, 4, 4));
    z = net_input(network, "z", TRM_F32, DIMS(4, 3, 2));
    trm_tensor *a = turn(network, "a", x, 0, 2, 1);
    net_output(network, product(network, "y", x, a));
    net_output(network, a);
    net_output(network, product(network, "w", z, turn(network, "b", x, 1, 0, 2)));
    net_output(network, product(network, "v", softmax(network, "p", x, 2), turn(network, "c", x, 0, 2, 1)));
    check_pass(network, simplify_and_clean, NULL);
}

/* Layers along an axis stand between two transposes: the axis moves along. */
static void transposes_meet_behind_axes(void **state)
{
    (void)state;
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(-1, 6, 4));
    trm_tensor *s = softmax(network, "s", net_unary(network, "u", RELU, turn(network, "a", x, 2, 0, 1)), -2);
    net_output(network, net_unary(network, "y", SIGMOID, turn(network, "b", s, 1, 2, 0)));
    trm_tensor *m = mean(network, "m", turn(network, "c", x, 0, 2, 1), 1, true);
    net_output(network,
               net_unary(network, "z", SIGMOID, turn(network, "d", net_unary(network, "v", RELU, m), 0, 2, 1)));
    check_pass(network, simplify_and_clean,
               "u: f32 [?, 6, 4] = unary(x) op=activation activation=relu\n"
               "s: f32 [?, 6, 4] = softmax(u) axis=0\n"
               "y: f32 [?, 6, 4] = unary(s) op=activation activation=sigmoid\n"
               "m: f32 [?, 6, 1] = reduce(x) op=avg axis=2 keep_dims\n"
               "v: f32 [?, 6, 1] = unary(m) op=activation activation=relu\n"
               "z: f32 [?, 6, 1] = unary(v) op=activation activation=sigmoid\n"
               "output y\n"
               "output z\n");

    network = net_create(); /* a reduction that leaves the others in their order */
    x = net_input(network, "x", TRM_F32, DIMS(-1, 6, 4));
    net_output(network, mean(network, "y", turn(network, "a", x, 0, 2, 1), 1, false));
    check_pass(network, simplify_and_clean, "y: f32 [?, 6] = reduce(x) op=avg axis=2\noutput y\n");

    network = net_create();
    x = net_input(network, "x", TRM_F32, DIMS(-1, 6, 4));
    net_output(network, mean(network, "y", turn(network, "a", x, 2, 1, 0), 1, false));
    check_pass(network, simplify_and_clean, NULL);
}

static void what_is_undone_goes(void **state)
{
    (void)state;
    const trm_layer_desc neg = {.kind = TRM_LAYER_UNARY, .unary = {.op = TRM_UNARY_NEG}};
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(-1, 4)),
               *a = net_layer(network, "a", neg, x, NULL, NULL, NULL);
    net_output(network, net_unary(network, "y", RELU, net_layer(network, "b", neg, a, NULL, NULL, NULL)));
    net_output(network, net_unary(network, "z", RELU, a));
    check_pass(network, simplify_and_clean,
               "a: f32 [?, 4] = unary(x) op=neg\n"
               "y: f32 [?, 4] = unary(x) op=activation activation=relu\n"
               "z: f32 [?, 4] = unary(a) op=activation activation=relu\n"
               "output y\n"
               "output z\n");
}

static void factors_are_one(void **state)
{
    (void)state;
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(-1, 4));
    trm_tensor *a = net_binary(network, "a", MUL, net_scalar(network, "two", 2), x);
    trm_tensor *b = net_binary(network, "b", TRM_ELEMENTWISE_DIV, a, net_scalar(network, "eight", 8));
    net_output(network, net_unary(network, "y", RELU, b));
    check_pass(network, simplify_and_clean,
               "b: f32 [?, 4] = elementwise(x, b.1) op=mul\n"
               "y: f32 [?, 4] = unary(b) op=activation activation=relu\n"
               "output y\n");

    network = net_create(); /* no number of the type; one that others read; a number divided by x */
    x = net_input(network, "x", TRM_F32, DIMS(-1, 4));
    a = net_binary(network, "a", MUL, x, net_scalar(network, "small", 1e-30f));
    net_output(network, net_binary(network, "y", MUL, a, net_scalar(network, "tiny", 1e-20f)));
    a = net_binary(network, "c", MUL, x, net_scalar(network, "two", 2));
    net_output(network, net_binary(network, "z", MUL, a, net_scalar(network, "three", 3)));
    net_output(network, a);
    a = net_binary(network, "d", TRM_ELEMENTWISE_DIV, net_scalar(network, "one", 1), x);
    net_output(network, net_binary(network, "w", MUL, a, net_scalar(network, "five", 5)));
    check_pass(network, simplify_and_clean, NULL);
}

/* An output that is another tensor is made by the layer that makes that. */
static void outputs_that_change_nothing_go(void **state)
{
    (void)state;
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(-1, 6, 4)), *t = net_unary(network, "t", RELU, x);
    net_output(network, net_binary(network, "y", ADD, t, net_scalar(network, "zero", 0)));
    net_output(network, net_unary(network, "z", SIGMOID, t));
    trm_tensor *back = turn(network, "b", turn(network, "a", net_unary(network, "u", SILU, x), 1, 0, 2), 1, 0, 2);
    net_output(network, back);
    check_pass(network, simplify_and_clean,
               "y: f32 [?, 6, 4] = unary(x) op=activation activation=relu # t\n"
               "z: f32 [?, 6, 4] = unary(y) op=activation activation=sigmoid\n"
               "b: f32 [?, 6, 4] = unary(x) op=activation activation=silu # u\n"
               "output y\n"
               "output z\n"
               "output b\n");

    network = net_create(); /* an input, and another output */
    x = net_input(network, "x", TRM_F32, DIMS(-1, 4));
    t = net_unary(network, "t", RELU, x);
    net_output(network, net_binary(network, "y", ADD, x, net_scalar(network, "zero", 0)));
    net_output(network, t);
    net_output(network, net_binary(network, "z", ADD, t, net_scalar(network, "none", 0)));
    check_pass(network, simplify_and_clean, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_that_change_nothing_go),
        cmocka_unit_test(layers_that_change_something_stay),
        cmocka_unit_test(pairs_of_layers_are_joined),
        cmocka_unit_test(transposes_meet),
        cmocka_unit_test(computed_shapes_become_numbers),
        cmocka_unit_test(new_kinds_fold),
        cmocka_unit_test(transposes_of_both_inputs_join),
        cmocka_unit_test(transposes_of_axes_of_one_are_reshapes),
        cmocka_unit_test(reshapes_around_a_chain_go),
        cmocka_unit_test(what_is_moved_is_no_part),
        cmocka_unit_test(products_take_transposes),
        cmocka_unit_test(transposes_meet_behind_axes),
        cmocka_unit_test(what_is_undone_goes),
        cmocka_unit_test(factors_are_one),
        cmocka_unit_test(outputs_that_change_nothing_go),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
