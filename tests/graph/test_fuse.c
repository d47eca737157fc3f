/* Residuals, sums over ranks, biases and activations that join another layer. */
#include "graph/check_pass.h"

#define RELU    TRM_ACTIVATION_RELU
#define SILU    TRM_ACTIVATION_SILU
#define SIGMOID TRM_ACTIVATION_SIGMOID
#define ADD     TRM_ELEMENTWISE_ADD
#define MUL     TRM_ELEMENTWISE_MUL

static void a_residual_add_joins_the_norm(void **state)
{
    (void)state;
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(-1, 4)), *w = net_weight(network, "w", DIMS(4, 4), 3);
    trm_tensor *g = net_values(network, "g", DIMS(4));
    trm_tensor *branch = net_linear(network, "branch", x, w);
    trm_tensor *sum = net_binary(network, "sum", ADD, x, branch);
    trm_tensor *early = net_unary(network, "early", RELU, sum); /* must move behind the norm */
    trm_tensor *y = net_norm(network, "y", sum, g);
    net_output(network, net_binary(network, "z", ADD, y, early));
    net_output(network, sum);
    check_pass(network, fuse_before,
               "branch: f32 [?, 4] = matmul(x, w) transpose_b\n"
               "y: f32 [?, 4], sum: f32 [?, 4] = norm(branch, x, g) op=rms residual eps=0.5\n"
               "early: f32 [?, 4] = unary(sum) op=activation activation=relu\n"
               "z: f32 [?, 4] = elementwise(y, early) op=add\n"
               "output z\n"
               "output sum\n");
}

static void a_residual_add_joins_a_norm_without_weight(void **state)
{
    (void)state;
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(-1, 4)), *w = net_weight(network, "w", DIMS(4, 4), 3);
    trm_tensor *sum = net_binary(network, "sum", ADD, x, net_linear(network, "branch", x, w));
    net_output(network, net_norm(network, "y", sum, NULL));
    check_pass(network, fuse_before,
               "branch: f32 [?, 4] = matmul(x, w) transpose_b\n"
               "y: f32 [?, 4], sum: f32 [?, 4] = norm(branch, x) op=rms residual eps=0.5\n"
               "output y\n");
}

static trm_tensor *net_all_reduce(trm_network *network, const char *name, trm_reduce_op reduce, trm_tensor *x)
{
    trm_collective_params params = {
        .op = TRM_ALL_REDUCE, .reduce = reduce, .n_ranks = 1, .n_groups = 1, .group_size = 1, .groups = {0}};
    trm_tensor *output = NULL;
    assert_ok(trm_network_add_collective(network, name, &params, x, &output));
    return output;
}

static void a_sum_over_ranks_joins_the_norm(void **state)
{
    (void)state;
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(-1, 4)), *w = net_weight(network, "w", DIMS(4, 4), 3);
    trm_tensor *g = net_values(network, "g", DIMS(4)), *b = net_values(network, "b", DIMS(4));
    trm_layer_desc norm = {.kind = TRM_LAYER_NORM, .norm = {.residual = true, .eps = 0.5f, .weight_offset = 1}};
    trm_tensor *first = net_all_reduce(network, "first", TRM_REDUCE_SUM, net_linear(network, "p", x, w));
    trm_tensor *inputs[] = {first, x, g, NULL}, *y[2], *z[2];
    assert_ok(trm_network_add_layer(network, "y", &norm, inputs, 3, y));
    /* the sum may be the residual as well */
    trm_tensor *second = net_all_reduce(network, "second", TRM_REDUCE_SUM, net_linear(network, "q", y[0], w));
    inputs[0] = y[1];
    inputs[1] = second;
    assert_ok(trm_network_add_layer(network, "z", &norm, inputs, 3, z));
    /* and there may be none */
    norm.norm = (trm_norm_params){.op = TRM_NORM_LAYER, .eps = 0.5f};
    trm_tensor *third = net_all_reduce(network, "third", TRM_REDUCE_SUM, z[0]);
    net_output(network, net_layer(network, "v", norm, third, g, b, NULL));
    net_output(network, z[1]);
    check_pass(network, trm_pass_fuse_exchanges,
               "p: f32 [?, 4] = matmul(x, w) transpose_b\n"
               "y: f32 [?, 4], y:1: f32 [?, 4] = all_reduce_norm(p, x, g) n_ranks=1 n_groups=1 group_size=1 groups=[0] "
               "op=rms residual eps=0.5 weight_offset=1\n"
               "q: f32 [?, 4] = matmul(y, w) transpose_b\n"
               "z: f32 [?, 4], z:1: f32 [?, 4] = all_reduce_norm(q, y:1, g) n_ranks=1 n_groups=1 group_size=1 "
               "groups=[0] op=rms residual eps=0.5 weight_offset=1\n"
               "v: f32 [?, 4] = all_reduce_norm(z, g, b) n_ranks=1 n_groups=1 group_size=1 groups=[0] op=layer "
               "eps=0.5\n"
               "output v\n"
               "output z:1\n");
}

static void sums_that_others_need_stay(void **state)
{
    (void)state;
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(-1, 4)), *g = net_values(network, "g", DIMS(4));
    trm_tensor *read_twice = net_all_reduce(network, "read_twice", TRM_REDUCE_SUM, x);
    net_output(network, net_norm(network, "a", read_twice, g));
    net_output(network, net_unary(network, "b", RELU, read_twice));
    net_output(network, net_norm(network, "c", net_all_reduce(network, "no_sum", TRM_REDUCE_MAX, x), g));
    trm_tensor *output = net_all_reduce(network, "output", TRM_REDUCE_SUM, x);
    net_output(network, output);
    net_output(network, net_norm(network, "d", output, g));
    trm_tensor *before = net_all_reduce(network, "before", TRM_REDUCE_SUM, x); /* may not move behind the next */
    net_output(network, net_all_reduce(network, "between", TRM_REDUCE_MAX, x));
    net_output(network, net_norm(network, "e", before, g));
    trm_tensor *pinned = net_all_reduce(network, "pinned", TRM_REDUCE_SUM, x);
    assert_ok(trm_network_pin(network, pinned, "replicate"));
    net_output(network, net_norm(network, "f", pinned, g));
    check_pass(network, trm_pass_fuse_exchanges, NULL);
}

static void adds_that_broadcast_do_not_join_the_norm(void **state)
{
    (void)state;
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(-1, 4)),
               *row = net_input(network, "row", TRM_F32, DIMS(1, 4));
    trm_tensor *other = net_input(network, "other", TRM_F32, DIMS(-1, 4)); /* may have one row where x has more */
    trm_tensor *g = net_values(network, "g", DIMS(4));
    net_output(network, net_norm(network, "y", net_binary(network, "s", ADD, x, row), g));
    net_output(network, net_norm(network, "z", net_binary(network, "t", ADD, x, other), g));
    /* a weight that is no constant might depend on the sum */
    trm_tensor *scale = net_input(network, "scale", TRM_F32, DIMS(4));
    net_output(network, net_norm(network, "v", net_binary(network, "u", ADD, x, x), scale));
    check_pass(network, fuse_before, NULL);
}

static void equal_unknown_dims_are_followed_through_layers(void **state)
{
    (void)state;
    trm_network *network = net_create();
    trm_tensor *ids = net_input(network, "ids", TRM_I32, DIMS(-1)), *g = net_values(network, "g", DIMS(8));
    trm_tensor *x = net_layer(network, "x", (trm_layer_desc){.kind = TRM_LAYER_EMBEDDING},
                              net_weight(network, "table", DIMS(4, 8), 1), ids, NULL, NULL);
    trm_tensor *h = net_linear(network, "h", x, net_weight(network, "w", DIMS(8, 8), 2));
    assert_ok(trm_network_add_reshape(network, "heads", h, DIMS(0, 2, 4), &h));
    trm_layer_desc turn = {.kind = TRM_LAYER_TRANSPOSE, .transpose = {{1, 0, 2}}};
    h = net_layer(network, "turned", turn, h, NULL, NULL, NULL);
    h = net_layer(network, "soft", (trm_layer_desc){.kind = TRM_LAYER_SOFTMAX, .softmax = {-1}}, h, NULL, NULL, NULL);
    h = net_layer(network, "back", turn, h, NULL, NULL, NULL);
    assert_ok(trm_network_add_reshape(network, "flat", h, DIMS(-1, 8), &h));
    net_output(network, net_norm(network, "y", net_binary(network, "sum", ADD, x, h), g));
    check_pass(network, fuse_before,
               "x: f32 [?, 8] = embedding(table, ids)\n"
               "h: f32 [?, 8] = matmul(x, w) transpose_b\n"
               "heads: f32 [?, 2, 4] = reshape(h) dims=[0, 2, 4]\n"
               "turned: f32 [2, ?, 4] = transpose(heads) perm=[1, 0, 2]\n"
               "soft: f32 [2, ?, 4] = softmax(turned) axis=2\n"
               "back: f32 [?, 2, 4] = transpose(soft) perm=[1, 0, 2]\n"
               "flat: f32 [?, 8] = reshape(back) dims=[-1, 8]\n"
               "y: f32 [?, 8], sum: f32 [?, 8] = norm(flat, x, g) op=rms residual eps=0.5\n"
               "output y\n");
}

static void a_bias_joins_the_product(void **state)
{
    (void)state;
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(-1, 4)), *w = net_weight(network, "w", DIMS(3, 4), 3);
    trm_tensor *bias = net_values(network, "bias", DIMS(3));
    net_output(network, net_binary(network, "y", ADD, net_linear(network, "a", x, w), bias));
    net_output(network, net_binary(network, "z", ADD, bias, net_linear(network, "b", x, w)));
    check_pass(network, fuse_before,
               "y: f32 [?, 3] = matmul(x, w, bias) transpose_b\n"
               "z: f32 [?, 3] = matmul(x, w, bias) transpose_b\n"
               "output y\n"
               "output z\n");
}

static void what_is_no_bias_stays_an_add(void **state)
{
    (void)state;
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(3, 4)), *w = net_weight(network, "w", DIMS(3, 4), 3);
    trm_tensor *one = net_values(network, "one", DIMS(1)), *column = net_values(network, "column", DIMS(3, 1));
    trm_tensor *input = net_input(network, "input", TRM_F32, DIMS(3)), *bias = net_values(network, "bias", DIMS(3));
    net_output(network, net_binary(network, "y0", ADD, net_linear(network, "a", x, w), one));
    net_output(network, net_binary(network, "y1", ADD, net_linear(network, "b", x, w), column));
    net_output(network, net_binary(network, "y2", ADD, net_linear(network, "c", x, w), input));
    trm_tensor *shared = net_linear(network, "shared", x, w);
    net_output(network, net_binary(network, "y3", ADD, shared, bias));
    net_output(network, net_unary(network, "y4", RELU, shared));
    trm_tensor *output = net_linear(network, "output", x, w);
    net_output(network, output);
    net_output(network, net_binary(network, "y5", ADD, output, bias));
    trm_tensor *pinned = net_linear(network, "pinned", x, w);
    assert_ok(trm_network_pin(network, pinned, "replicate"));
    net_output(network, net_binary(network, "y6", ADD, pinned, bias));
    check_pass(network, fuse_after, NULL);
}

static trm_network *activated_product(void)
{
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(-1, 4)), *w = net_weight(network, "w", DIMS(3, 4), 3);
    trm_tensor *bias = net_values(network, "bias", DIMS(3));
    trm_tensor *y = net_binary(network, "y", ADD, net_linear(network, "a", x, w), bias);
    net_output(network, net_unary(network, "z", RELU, net_unary(network, "act", TRM_ACTIVATION_GELU, y)));
    return network;
}

static void an_activation_becomes_an_epilogue_after_partitioning(void **state)
{
    (void)state;
    check_pass(activated_product(), fuse_before,
               "y: f32 [?, 3] = matmul(x, w, bias) transpose_b\n"
               "act: f32 [?, 3] = unary(y) op=activation activation=gelu\n"
               "z: f32 [?, 3] = unary(act) op=activation activation=relu\n"
               "output z\n");
    check_pass(activated_product(), fuse_after,
               "act: f32 [?, 3] = matmul(x, w, bias) transpose_b activation=gelu\n"
               "z: f32 [?, 3] = unary(act) op=activation activation=relu\n"
               "output z\n");
}

static void gate_and_up_become_a_glu(void **state)
{
    (void)state;
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(-1, 4));
    trm_tensor *gate = net_linear(network, "gate", x, net_weight(network, "wg", DIMS(6, 4), 3));
    trm_tensor *up = net_linear(network, "up", x, net_weight(network, "wu", DIMS(6, 4), 4));
    net_output(network, net_binary(network, "y", MUL, up, net_unary(network, "act", SILU, gate)));
    check_pass(network, fuse_after,
               "gate: f32 [?, 6] = matmul(x, wg) transpose_b\n"
               "up: f32 [?, 6] = matmul(x, wu) transpose_b\n"
               "y: f32 [?, 6] = glu(gate, up) activation=silu\n"
               "output y\n");
}

static void x_times_sigmoid_becomes_silu(void **state)
{
    (void)state;
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(-1, 4));
    net_output(network, net_binary(network, "y", MUL, x, net_unary(network, "gate", SIGMOID, x)));
    check_pass(network, fuse_before, "y: f32 [?, 4] = unary(x) op=activation activation=silu\noutput y\n");
}

static void products_that_are_no_glu_stay(void **state)
{
    (void)state;
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(-1, 4)), *row = net_values(network, "row", DIMS(4));
    trm_tensor *other = net_input(network, "other", TRM_F32, DIMS(-1, 4));
    net_output(network, net_binary(network, "y0", MUL, net_unary(network, "a", SILU, x), row));
    net_output(network, net_binary(network, "y1", MUL, net_unary(network, "b", SILU, x), other));
    trm_tensor *shared = net_unary(network, "c", SILU, x);
    net_output(network, net_binary(network, "y2", MUL, shared, shared));
    net_output(network, net_binary(network, "y3", MUL, net_unary(network, "d", RELU, x), x));
    trm_tensor *gate = net_input(network, "gate", TRM_F32, (trm_dims){0}); /* of a single number: no rows */
    trm_tensor *up = net_input(network, "up", TRM_F32, (trm_dims){0});
    net_output(network, net_binary(network, "y4", MUL, net_unary(network, "e", SILU, gate), up));
    check_pass(network, fuse_before, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_residual_add_joins_the_norm),
        cmocka_unit_test(a_residual_add_joins_a_norm_without_weight),
        cmocka_unit_test(a_sum_over_ranks_joins_the_norm),
        cmocka_unit_test(sums_that_others_need_stay),
        cmocka_unit_test(adds_that_broadcast_do_not_join_the_norm),
        cmocka_unit_test(equal_unknown_dims_are_followed_through_layers),
        cmocka_unit_test(a_bias_joins_the_product),
        cmocka_unit_test(what_is_no_bias_stays_an_add),
        cmocka_unit_test(an_activation_becomes_an_epilogue_after_partitioning),
        cmocka_unit_test(gate_and_up_become_a_glu),
        cmocka_unit_test(x_times_sigmoid_becomes_silu),
        cmocka_unit_test(products_that_are_no_glu_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
