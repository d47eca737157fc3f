/* Every pass but simplification (test_simplify.c): the network before and after it as text, and the numbers of both. */
#include "graph/check_pass.h"

#define RELU    TRM_ACTIVATION_RELU
#define SILU    TRM_ACTIVATION_SILU
#define SIGMOID TRM_ACTIVATION_SIGMOID
#define ADD     TRM_ELEMENTWISE_ADD
#define MUL     TRM_ELEMENTWISE_MUL

static trm_status fuse_before(trm_network *network, int32_t *changes)
{
    return trm_pass_fuse(network, TRM_PASSES_BEFORE_PARTITION, changes);
}

static trm_status fuse_after(trm_network *network, int32_t *changes)
{
    return trm_pass_fuse(network, TRM_PASSES_AFTER_PARTITION, changes);
}

/* ---- dead code --------------------------------------------------------------------------------- */

static void dead_code_goes(void **state)
{
    (void)state;
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(-1, 4)), *unused = NULL;
    net_input(network, "unread", TRM_F32, DIMS(1));
    net_values(network, "unused", DIMS(4));
    assert_ok(trm_network_add_state(network, "forgotten", TRM_F32, DIMS(4), &unused));
    trm_tensor *y = net_unary(network, "y", RELU, x);
    trm_tensor *dead = net_binary(network, "dead", ADD, y, net_values(network, "v", DIMS(4)));
    net_unary(network, "more", RELU, dead);
    net_output(network, y);
    trm_network *changed = NULL;
    assert_ok(trm_network_clone(network, &changed));
    int32_t changes = 0;
    assert_ok(trm_pass_dead_code(changed, &changes));
    assert_text(changed, "x: f32 [?, 4] = input\n"
                         "unread: f32 [1] = input\n"
                         "y: f32 [?, 4] = unary(x) op=activation activation=relu\n"
                         "output y\n");
    assert_int_equal(changes, 2 + 5);
    trm_network_destroy(changed);
    check_pass(network, trm_pass_dead_code, "y: f32 [?, 4] = unary(x) op=activation activation=relu\noutput y\n");
}

static void layers_with_effects_stay(void **state)
{
    (void)state;
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(-1, 4)), *s = NULL;
    assert_ok(trm_network_add_state(network, "s", TRM_F32, DIMS(4), &s));
    trm_layer_desc send = {.kind = TRM_LAYER_DIST_COLLECTIVE, .collective = {TRM_SEND, .root = 1}};
    trm_tensor *sent = net_unary(network, "sent", RELU, x);
    net_layer(network, "send", send, sent, NULL, NULL, NULL);
    net_binary(network, "reads", ADD, x, s);
    char *text = trm_network_to_text(network);
    int32_t changes = 0;
    assert_ok(trm_pass_dead_code(network, &changes));
    assert_text(network, text);
    assert_int_equal(changes, 0);
    trm_free(text);
    trm_network_destroy(network);
}

/* ---- constant folding -------------------------------------------------------------------------- */

static void small_layers_of_constants_are_run(void **state)
{
    (void)state;
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(-1, 4));
    trm_tensor *v = net_values(network, "v", DIMS(4)), *w = net_weight(network, "w", DIMS(4), 3);
    trm_tensor *sum = net_binary(network, "sum", ADD, v, w);
    trm_layer_desc norm = {.kind = TRM_LAYER_NORM, .norm = {.residual = true, .eps = 1}};
    trm_tensor *inputs[] = {sum, v, v}, *outputs[2];
    assert_ok(trm_network_add_layer(network, "norm", &norm, inputs, 3, outputs));
    trm_tensor *y = net_binary(network, "y", ADD, x, outputs[0]);
    net_output(network, net_binary(network, "z", MUL, y, outputs[1]));
    check_pass(network, trm_pass_fold_constants,
               "y: f32 [?, 4] = elementwise(x, norm) op=add\n"
               "z: f32 [?, 4] = elementwise(y, norm:1) op=mul\n"
               "output z\n");
}

static void folded_constants_keep_their_values(void **state)
{
    (void)state;
    trm_network *network = net_create();
    trm_tensor *v = net_values(network, "v", DIMS(2)), *x = net_input(network, "x", TRM_F32, DIMS(2));
    trm_layer_desc linear = {.kind = TRM_LAYER_UNARY, .unary = {TRM_UNARY_LINEAR, 0, 2, 1}};
    trm_tensor *folded = net_layer(network, "folded", linear, v, NULL, NULL, NULL);
    net_output(network, net_binary(network, "y", ADD, x, folded));
    assert_ok(trm_pass_fold_constants(network, NULL));
    assert_text(network, "x: f32 [2] = input\n"
                         "folded: f32 [2] = constant {2, 2.5}\n"
                         "y: f32 [2] = elementwise(x, folded) op=add\n"
                         "output y\n");
    trm_network_destroy(network);
}

static void moved_weights_become_views(void **state)
{
    (void)state;
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(-1, 256));
    trm_tensor *w = net_weight(network, "w", DIMS(2, 128, 300), 3); /* 300 KiB: too large to be read */
    trm_tensor *half = net_weight(network, "half", DIMS(100, 256), 4);
    trm_tensor *moved = net_layer(network, "t", (trm_layer_desc){.kind = TRM_LAYER_TRANSPOSE, .transpose = {{2, 0, 1}}},
                                  w, NULL, NULL, NULL);
    assert_ok(trm_network_add_reshape(network, "r", moved, DIMS(300, -1), &moved));
    moved = net_layer(network, "s", (trm_layer_desc){.kind = TRM_LAYER_SLICE, .slice = {0, -200, INT64_MAX, 1}}, moved,
                      NULL, NULL, NULL);
    moved = net_layer(network, "c", (trm_layer_desc){.kind = TRM_LAYER_CONCAT}, moved, half, NULL, NULL);
    net_output(network, net_linear(network, "y", x, moved));
    check_pass(network, trm_pass_fold_constants, "y: f32 [?, 300] = matmul(x, c) transpose_b\noutput y\n");
}

static void a_cast_weight_is_converted_when_it_is_read(void **state)
{
    (void)state;
    trm_network *network = net_create();
    trm_weight *weight = NULL;
    trm_tensor *w = NULL, *x = net_input(network, "x", TRM_F32, DIMS(-1, 256));
    assert_ok(trm_weight_random(TRM_BF16, &DIMS(256, 256), 5, 0, 1, &weight));
    assert_ok(trm_network_add_weight(network, "w", weight, TRM_BF16, &w));
    trm_tensor *wide =
        net_layer(network, "wide", (trm_layer_desc){.kind = TRM_LAYER_CAST, .cast = {TRM_F32}}, w, NULL, NULL, NULL);
    net_output(network, net_linear(network, "y", x, wide));
    check_pass(network, trm_pass_fold_constants, "y: f32 [?, 256] = matmul(x, wide) transpose_b\noutput y\n");
}

static void what_must_not_be_folded_stays(void **state)
{
    (void)state;
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(-1, 256)), *v = net_values(network, "v", DIMS(4));
    /* a large weight that is read twice, one that a kernel would have to read, a result that is too large */
    trm_tensor *w = net_weight(network, "w", DIMS(256, 256), 4);
    trm_layer_desc transpose = {.kind = TRM_LAYER_TRANSPOSE, .transpose = {{1, 0}}};
    trm_tensor *turned = net_layer(network, "turned", transpose, w, NULL, NULL, NULL);
    net_output(network, net_linear(network, "a", net_linear(network, "b", x, w), turned));
    trm_tensor *large = net_unary(network, "large", RELU, net_weight(network, "u", DIMS(256, 256), 5));
    net_output(network, net_linear(network, "c", x, large));
    trm_tensor *column = net_values(network, "column", DIMS(2048, 1)), *row = net_values(network, "row", DIMS(1, 256));
    trm_tensor *product = net_binary(network, "product", MUL, column, row);
    net_output(network, net_linear(network, "d", x, product));
    /* an output, and a pinned tensor */
    net_output(network, net_unary(network, "asked", RELU, v));
    trm_tensor *pinned = net_unary(network, "pinned", SILU, v);
    assert_ok(trm_network_pin(network, pinned, "replicate"));
    net_output(network, net_binary(network, "e", ADD, pinned, pinned));
    check_pass(network, trm_pass_fold_constants, NULL);
}

/* ---- common subexpressions --------------------------------------------------------------------- */

static void equal_layers_and_constants_are_merged(void **state)
{
    (void)state;
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(-1, 4));
    trm_tensor *v = net_values(network, "v", DIMS(4)), *v2 = net_values(network, "v2", DIMS(4));
    trm_tensor *w = net_weight(network, "w", DIMS(4, 4), 3), *w2 = net_weight(network, "w2", DIMS(4, 4), 3);
    trm_tensor *w3 = net_weight(network, "w3", DIMS(4, 4), 4);
    trm_tensor *a = net_linear(network, "a", net_binary(network, "p", ADD, x, v), w);
    trm_tensor *b = net_linear(network, "b", net_binary(network, "q", ADD, x, v2), w2);
    trm_tensor *c = net_linear(network, "c", net_binary(network, "r", MUL, x, v2), w3);
    net_output(network, net_binary(network, "y", ADD, net_binary(network, "s", ADD, a, b), c));
    check_pass(network, trm_pass_common_subexpressions,
               "p: f32 [?, 4] = elementwise(x, v) op=add\n"
               "a: f32 [?, 4] = matmul(p, w) transpose_b\n"
               "r: f32 [?, 4] = elementwise(x, v) op=mul\n"
               "c: f32 [?, 4] = matmul(r, w3) transpose_b\n"
               "s: f32 [?, 4] = elementwise(a, a) op=add\n"
               "y: f32 [?, 4] = elementwise(s, c) op=add\n"
               "output y\n");
}

static void outputs_pins_and_messages_are_not_merged(void **state)
{
    (void)state;
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(-1, 4));
    net_output(network, net_unary(network, "a", RELU, x));
    net_output(network, net_unary(network, "b", RELU, x));
    trm_tensor *c = net_unary(network, "c", SILU, x), *d = net_unary(network, "d", SILU, x);
    assert_ok(trm_network_pin(network, d, "replicate"));
    net_output(network, net_binary(network, "y", ADD, c, d));
    check_pass(network, trm_pass_common_subexpressions, NULL);

    /* Exchanges: what is equal on this rank may differ on another. */
    network = net_create();
    x = net_input(network, "x", TRM_F32, DIMS(4));
    trm_layer_desc exchange = {.kind = TRM_LAYER_DIST_COLLECTIVE, .collective = {TRM_RECV, .root = 1}};
    net_layer(network, "r", exchange, x, NULL, NULL, NULL);
    net_layer(network, "r", exchange, x, NULL, NULL, NULL);
    exchange.collective = (trm_collective_params){TRM_ALL_REDUCE, .n_ranks = 2};
    net_layer(network, "a", exchange, x, NULL, NULL, NULL);
    net_layer(network, "a", exchange, x, NULL, NULL, NULL);
    trm_layer_desc attention = {.kind = TRM_LAYER_ATTENTION,
                                .attention = {.form = TRM_ATTENTION_PADDED_BHND, .n_ranks = 2}};
    trm_tensor *q = net_input(network, "q", TRM_F32, DIMS(1, 2, 3, 4));
    net_layer(network, "t", attention, q, q, q, NULL);
    net_layer(network, "t", attention, q, q, q, NULL);
    int32_t changes = 0;
    assert_ok(trm_pass_common_subexpressions(network, &changes));
    assert_ok(trm_pass_dead_code(network, &changes));
    assert_int_equal(changes, 0);
    assert_int_equal(network->n_layers, 6);
    trm_network_destroy(network);
}

/* ---- fusion ------------------------------------------------------------------------------------ */

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

/* ---- joined products --------------------------------------------------------------------------- */

static trm_tensor *linear_with_bias(trm_network *network, const char *name, trm_tensor *x, trm_tensor *w,
                                    trm_tensor *bias)
{
    trm_tensor *output = NULL;
    assert_ok(trm_network_add_matmul(network, name, x, w, bias, true, &output));
    return output;
}

static trm_network *gated_network(bool biased)
{
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(-1, 4));
    trm_tensor *bg = biased ? net_weight(network, "bg", DIMS(6), 8) : NULL;
    trm_tensor *bu = biased ? net_weight(network, "bu", DIMS(6), 9) : NULL;
    trm_tensor *up = linear_with_bias(network, "up", x, net_weight(network, "wu", DIMS(6, 4), 4), bu);
    trm_tensor *gate = linear_with_bias(network, "gate", x, net_weight(network, "wg", DIMS(6, 4), 3), bg);
    trm_layer_desc glu = {.kind = TRM_LAYER_GLU, .glu = {SILU}};
    net_output(network, net_layer(network, "y", glu, gate, up, NULL, NULL));
    return network;
}

static void gate_and_up_are_joined_without_a_slice(void **state)
{
    (void)state;
    check_pass(gated_network(false), trm_pass_join_matmuls,
               "gate+up: f32 [?, 12] = matmul(x, wg+wu) transpose_b\n"
               "y: f32 [?, 6] = glu(gate+up) activation=silu\n"
               "output y\n");
    check_pass(gated_network(true), trm_pass_join_matmuls,
               "gate+up: f32 [?, 12] = matmul(x, wg+wu, bg+bu) transpose_b\n"
               "y: f32 [?, 6] = glu(gate+up) activation=silu\n"
               "output y\n");
}

static trm_tensor *quantized_constant(trm_network *network, const char *name, const char *what, trm_dtype dtype,
                                      trm_dims dims, uint64_t seed)
{
    char text[32];
    trm_weight *weight = NULL;
    trm_tensor *tensor = NULL;
    snprintf(text, sizeof(text), "%s.%s", name, what);
    const bool bytes = dtype == TRM_U8;
    assert_ok(trm_weight_random(dtype, &dims, seed, bytes ? 100.0f : 0.01f, bytes ? 100.0f : 0.005f, &weight));
    assert_ok(trm_network_add_weight(network, text, weight, dtype, &tensor));
    return tensor;
}

/* x times a weight of 4 bits with `rows` and zero points, its scales for blocks of 3 rows and 4 columns. */
static trm_tensor *quantized_linear(trm_network *network, const char *name, trm_tensor *x, int64_t rows)
{
    trm_tensor *output = NULL, *inputs[TRM_DEQUANT_MATMUL_INPUT_COUNT] = {x};
    const trm_dims scales = DIMS((rows + 2) / 3, 2);
    const trm_layer_desc desc = {.kind = TRM_LAYER_DEQUANT_MATMUL, .dequant_matmul = {.block_n = 3, .block_k = 4}};
    inputs[TRM_DEQUANT_MATMUL_WEIGHT] = quantized_constant(network, name, "w", TRM_U8, DIMS(rows, 4), 1);
    inputs[TRM_DEQUANT_MATMUL_SCALE] = quantized_constant(network, name, "s", TRM_F32, scales, 2);
    inputs[TRM_DEQUANT_MATMUL_ZERO_POINT] = quantized_constant(network, name, "z", TRM_U8, scales, 3);
    assert_ok(trm_network_add_layer(network, name, &desc, inputs, TRM_DEQUANT_MATMUL_INPUT_COUNT, &output));
    return output;
}

/* All of what they read is joined; one whose last block of rows is cut off stays alone. */
static void quantized_products_join(void **state)
{
    (void)state;
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(-1, 8));
    net_output(network, quantized_linear(network, "q", x, 6));
    net_output(network, quantized_linear(network, "k", x, 3));
    net_output(network, quantized_linear(network, "v", x, 4));
    check_pass(network, trm_pass_join_matmuls,
               "q+k: f32 [?, 9] = dequant_matmul(x, q.w+k.w, q.s+k.s, -, q.z+k.z) block_n=3 block_k=4\n"
               "q: f32 [?, 6] = slice(q+k) axis=1 end=6\n"
               "k: f32 [?, 3] = slice(q+k) axis=1 start=6 end=9\n"
               "v: f32 [?, 4] = dequant_matmul(x, v.w, v.s, -, v.z) block_n=3 block_k=4\n"
               "output q\n"
               "output k\n"
               "output v\n");
    network = net_create();
    x = net_input(network, "x", TRM_F32, DIMS(-1, 8));
    trm_tensor *up = quantized_linear(network, "up", x, 6), *gate = quantized_linear(network, "gate", x, 6);
    const trm_layer_desc glu = {.kind = TRM_LAYER_GLU, .glu = {SILU}};
    net_output(network, net_layer(network, "y", glu, gate, up, NULL, NULL));
    check_pass(
        network, trm_pass_join_matmuls,
        "gate+up: f32 [?, 12] = dequant_matmul(x, gate.w+up.w, gate.s+up.s, -, gate.z+up.z) block_n=3 block_k=4\n"
        "y: f32 [?, 6] = glu(gate+up) activation=silu\n"
        "output y\n");
}

static void a_glu_joins_its_product(void **state)
{
    (void)state;
    for (int32_t shown = 0; shown < 2; shown++) {
        trm_network *network = net_create();
        trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(-1, 4));
        trm_tensor *both = net_linear(network, "both", x, net_weight(network, "w", DIMS(6, 4), 4));
        trm_layer_desc glu = {.kind = TRM_LAYER_GLU, .glu = {SILU}};
        net_output(network, net_layer(network, "y", glu, both, NULL, NULL, NULL));
        if (shown) {
            net_output(network, both);
        }
        check_pass(network, fuse_after, shown ? NULL : "y: f32 [?, 3] = matmul_glu(x, w) activation=silu\noutput y\n");
    }
    check_pass(gated_network(true), fuse_after, NULL); /* not joined yet; and with biases it would stay */
}

static trm_network *query_key_value(void)
{
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(-1, 4));
    trm_tensor *q =
        linear_with_bias(network, "q", x, net_weight(network, "wq", DIMS(8, 4), 3), net_values(network, "bq", DIMS(8)));
    trm_tensor *k =
        linear_with_bias(network, "k", x, net_weight(network, "wk", DIMS(2, 4), 4), net_values(network, "bk", DIMS(2)));
    trm_tensor *v =
        linear_with_bias(network, "v", x, net_weight(network, "wv", DIMS(2, 4), 5), net_values(network, "bv", DIMS(2)));
    net_output(network, q);
    net_output(network, net_binary(network, "y", ADD, k, v));
    return network;
}

static void products_of_one_input_are_joined_with_slices(void **state)
{
    (void)state;
    check_pass(query_key_value(), trm_pass_join_matmuls,
               "q+k+v: f32 [?, 12] = matmul(x, wq+wk+wv, bq+bk+bv) transpose_b\n"
               "q: f32 [?, 8] = slice(q+k+v) axis=1 end=8\n"
               "k: f32 [?, 2] = slice(q+k+v) axis=1 start=8 end=10\n"
               "v: f32 [?, 2] = slice(q+k+v) axis=1 start=10 end=12\n"
               "y: f32 [?, 2] = elementwise(k, v) op=add\n"
               "output q\n"
               "output y\n");
}

static void products_with_weights_as_they_multiply_become_a_batch(void **state)
{
    (void)state;
    static const char *const names[] = {"q", "k", "v"}, *const weights[] = {"wq", "wk", "wv"};
    static const char *const biases[] = {"bq", "bk", "bv"};
    const trm_layer_desc matmul = {.kind = TRM_LAYER_MATMUL};
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(-1, 3, 4)), *parts[3];
    for (int32_t i = 0; i < 3; i++) {
        trm_tensor *w = net_weight(network, weights[i], DIMS(4, 6), (uint64_t)i + 1);
        trm_tensor *bias = i < 2 ? net_values(network, biases[i], DIMS(6)) : net_weight(network, "bv", DIMS(6), 9);
        parts[i] = net_layer(network, names[i], matmul, x, w, bias, NULL);
    }
    net_output(network, parts[0]);
    net_output(network, net_binary(network, "y", ADD, parts[1], parts[2]));
    check_pass(network, trm_pass_join_matmuls, /* v's bias is no number: it stays */
               "q+k+rows: f32 [?, 4] = reshape(x) dims=[-1, 4] zero_is_zero\n"
               "q+k: f32 [2, ?, 6] = matmul(q+k+rows, wq+wk, bq+bk)\n"
               "q+k+q: f32 [1, ?, 6] = slice(q+k) axis=0 end=1\n"
               "q: f32 [?, 3, 6] = reshape(q+k+q) dims=[-1, 3, 6] zero_is_zero\n"
               "q+k+k: f32 [1, ?, 6] = slice(q+k) axis=0 start=1 end=2\n"
               "k: f32 [?, 3, 6] = reshape(q+k+k) dims=[-1, 3, 6] zero_is_zero\n"
               "v: f32 [?, 3, 6] = matmul(x, wv, bv)\n"
               "y: f32 [?, 3, 6] = elementwise(k, v) op=add\n"
               "output q\n"
               "output y\n");
    network = net_create();
    x = net_input(network, "x", TRM_F32, DIMS(-1, 4));
    net_output(network, net_layer(network, "a", matmul, x, net_weight(network, "wa", DIMS(4, 6), 1), NULL, NULL));
    net_output(network, net_layer(network, "b", matmul, x, net_weight(network, "wb", DIMS(4, 6), 2), NULL, NULL));
    net_output(network, net_layer(network, "c", matmul, x, net_weight(network, "wc", DIMS(4, 2), 3), NULL, NULL));
    check_pass(network, trm_pass_join_matmuls,
               "a+b: f32 [2, ?, 6] = matmul(x, wa+wb)\n"
               "a+b+a: f32 [1, ?, 6] = slice(a+b) axis=0 end=1\n"
               "a: f32 [?, 6] = reshape(a+b+a) dims=[-1, 6] zero_is_zero\n"
               "a+b+b: f32 [1, ?, 6] = slice(a+b) axis=0 start=1 end=2\n"
               "b: f32 [?, 6] = reshape(a+b+b) dims=[-1, 6] zero_is_zero\n"
               "c: f32 [?, 2] = matmul(x, wc)\n"
               "output a\n"
               "output b\n"
               "output c\n");
    network = net_create(); /* more than one dimension that is not known */
    x = net_input(network, "x", TRM_F32, DIMS(-1, -1, 4));
    net_output(network, net_layer(network, "a", matmul, x, net_weight(network, "wa", DIMS(4, 6), 1), NULL, NULL));
    net_output(network, net_layer(network, "b", matmul, x, net_weight(network, "wb", DIMS(4, 6), 2), NULL, NULL));
    check_pass(network, trm_pass_join_matmuls, NULL);
}

static void products_that_differ_are_not_joined(void **state)
{
    (void)state;
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(-1, 4)), *z = net_unary(network, "z", RELU, x);
    trm_tensor *w = net_weight(network, "w", DIMS(4, 4), 1), *values = net_values(network, "values", DIMS(4, 4));
    net_output(network, linear_with_bias(network, "plain", x, w, NULL));
    net_output(network, linear_with_bias(network, "again", z, w, NULL)); /* w has two readers */
    net_output(network, linear_with_bias(network, "inline", x, values, NULL));
    net_output(network, linear_with_bias(network, "biased", x, net_weight(network, "w2", DIMS(4, 4), 2),
                                         net_weight(network, "b2", DIMS(4), 2)));
    net_output(network, linear_with_bias(network, "other", z, net_weight(network, "w3", DIMS(4, 4), 3), NULL));
    trm_layer_desc matmul = {.kind = TRM_LAYER_MATMUL, .matmul = {.transpose_b = true, .activation = RELU}};
    net_output(network, net_layer(network, "relu", matmul, x, net_weight(network, "w4", DIMS(4, 4), 4), NULL, NULL));
    matmul.matmul = (trm_matmul_params){0};
    net_output(network,
               net_layer(network, "straight", matmul, x, net_weight(network, "w5", DIMS(4, 4), 5), NULL, NULL));
    trm_tensor *pinned = net_weight(network, "w6", DIMS(4, 4), 6);
    assert_ok(trm_network_pin(network, pinned, "split 0"));
    net_output(network, linear_with_bias(network, "pinned", x, pinned, NULL));
    check_pass(network, trm_pass_join_matmuls, NULL);
}

/* check_pass() without numbers, which tests of kernels and of models compare. Takes the network. */
static void check_text(trm_network *network, pass_fn pass, const char *after)
{
    char *before = trm_network_to_text(network);
    int32_t changes = 0;
    assert_ok(pass(network, &changes));
    assert_consistent(network);
    char *text = trm_network_to_text(network);
    assert_int_equal(changes, after != NULL);
    assert_string_equal(layers_of(text), layers_of(after == NULL ? before : after));
    trm_free(before);
    trm_free(text);
    trm_network_destroy(network);
}

/* ---- attention from the joined product on ------------------------------------------------------- */

typedef struct joined_attention {
    bool normed, shown, crossed; /* shown: q is an output, too; crossed: k and v stand in the other order */
    float other_eps;             /* of the norm of k, if not 0 */
    int32_t other_dim;           /* rotary dims of k, if not 0 */
} joined_attention;

/* [T, heads, 4] from columns start .. of qkv. */
static trm_tensor *net_heads(trm_network *network, const char *name, trm_tensor *qkv, int64_t start, int64_t heads)
{
    char slice[32];
    snprintf(slice, sizeof(slice), "%s.slice", name);
    trm_layer_desc desc = {.kind = TRM_LAYER_SLICE,
                           .slice = {.axis = 1, .start = start, .end = start + 4 * heads, .step = 1}};
    trm_tensor *part = net_layer(network, slice, desc, qkv, NULL, NULL, NULL), *output = NULL;
    assert_ok(trm_network_add_reshape(network, name, part, DIMS(0, heads, 4), &output));
    return output;
}

static trm_network *attention_network(joined_attention a)
{
    trm_network *network = net_create();
    trm_tensor *qkv = net_input(network, "qkv", TRM_F32, DIMS(-1, 32));
    trm_tensor *positions = net_input(network, "positions", TRM_I32, DIMS(-1));
    trm_tensor *inv_freq = net_values(network, "inv_freq", DIMS(2)), *caches[2];
    trm_tensor *inputs[TRM_ATTENTION_VALUE_CACHE + 1] = {net_heads(network, "q", qkv, 0, 4),
                                                         net_heads(network, "k", qkv, a.crossed ? 24 : 16, 2),
                                                         net_heads(network, "v", qkv, a.crossed ? 16 : 24, 2),
                                                         net_input(network, "starts", TRM_I32, DIMS(-1)),
                                                         net_input(network, "lengths", TRM_I32, DIMS(-1)),
                                                         net_input(network, "table", TRM_I32, DIMS(-1, -1))};
    assert_ok(trm_network_add_state(network, "keys", TRM_F32, DIMS(-1, 16, 2, 4), &caches[0]));
    assert_ok(trm_network_add_state(network, "values", TRM_F32, DIMS(-1, 16, 2, 4), &caches[1]));
    inputs[TRM_ATTENTION_KEY_CACHE] = caches[0];
    inputs[TRM_ATTENTION_VALUE_CACHE] = caches[1];
    for (int32_t i = 0; i < 2; i++) {
        trm_layer_desc norm = {.kind = TRM_LAYER_NORM, .norm = {.eps = i == 1 && a.other_eps > 0 ? a.other_eps : 0.5f}};
        trm_layer_desc rope = {.kind = TRM_LAYER_ROPE,
                               .rope = {.rotary_dim = i == 1 && a.other_dim > 0 ? a.other_dim : 4, .magnitude = 1}};
        if (a.normed) {
            inputs[i] = net_layer(network, i == 0 ? "qn" : "kn", norm, inputs[i],
                                  net_values(network, i == 0 ? "wq" : "wk", DIMS(4)), NULL, NULL);
        }
        trm_tensor *freq = rope.rope.rotary_dim == 4 ? inv_freq : net_values(network, "other", DIMS(1));
        inputs[i] = net_layer(network, i == 0 ? "qr" : "kr", rope, inputs[i], positions, freq, NULL);
    }
    trm_layer_desc desc = {.kind = TRM_LAYER_ATTENTION, .attention = {.causal = TRM_CAUSAL_LOWER_RIGHT, .window = 7}};
    trm_tensor *output = NULL;
    assert_ok(trm_network_add_layer(network, "y", &desc, inputs, TRM_ATTENTION_VALUE_CACHE + 1, &output));
    net_output(network, output);
    if (a.shown) {
        net_output(network, inputs[0]);
    }
    return network;
}

static void attention_takes_the_joined_product(void **state)
{
    (void)state;
    check_text(attention_network((joined_attention){0}), trm_pass_fuse_qkv,
               "y: f32 [?, 4, 4] = qkv_attention(qkv, starts, lengths, table, keys, values, positions, inv_freq) "
               "query_heads=4 kv_heads=2 causal=lower_right window=7 rotary_dim=4\n"
               "output y\n");
    check_text(attention_network((joined_attention){.normed = true}), trm_pass_fuse_qkv,
               "y: f32 [?, 4, 4] = qkv_attention(qkv, starts, lengths, table, keys, values, positions, inv_freq, "
               "-, wq, wk) query_heads=4 kv_heads=2 causal=lower_right window=7 rotary_dim=4 eps=0.5\n"
               "output y\n");
    check_text(attention_network((joined_attention){.shown = true}), trm_pass_fuse_qkv, NULL);
    check_text(attention_network((joined_attention){.crossed = true}), trm_pass_fuse_qkv, NULL);
    check_text(attention_network((joined_attention){.normed = true, .other_eps = 0.25f}), trm_pass_fuse_qkv, NULL);
    check_text(attention_network((joined_attention){.other_dim = 2}), trm_pass_fuse_qkv, NULL);
}

/* ---- all of them ------------------------------------------------------------------------------- */

static trm_status run_before(trm_network *network, int32_t *changes)
{
    char *text = trm_network_to_text(network);
    trm_status status = trm_run_passes(network, TRM_PASSES_BEFORE_PARTITION);
    char *after = trm_network_to_text(network);
    *changes += strcmp(text, after) != 0;
    trm_free(text);
    trm_free(after);
    return status;
}

static trm_status run_after(trm_network *network, int32_t *changes)
{
    char *text = trm_network_to_text(network);
    trm_status status = trm_run_passes(network, TRM_PASSES_AFTER_PARTITION);
    char *after = trm_network_to_text(network);
    *changes += strcmp(text, after) != 0;
    trm_free(text);
    trm_free(after);
    return status;
}

/* A norm, a gated MLP written with elementary layers, the residual add and the next norm. */
static trm_network *block_network(void)
{
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(-1, 4));
    trm_tensor *n = net_norm(network, "norm", x, net_values(network, "g", DIMS(4)));
    trm_tensor *gate = net_linear(network, "gate", n, net_weight(network, "wg", DIMS(6, 4), 3));
    trm_tensor *up = net_linear(network, "up", n, net_weight(network, "wu", DIMS(6, 4), 4));
    gate = net_binary(network, "silu", MUL, gate, net_unary(network, "sigmoid", SIGMOID, gate));
    trm_tensor *h = net_binary(network, "h", MUL, gate, up);
    trm_tensor *down = net_linear(network, "down", h, net_weight(network, "wd", DIMS(4, 6), 5));
    trm_layer_desc twice = {.kind = TRM_LAYER_UNARY, .unary = {TRM_UNARY_LINEAR, 0, 2, 0}};
    trm_tensor *bias = net_layer(network, "bias", twice, net_values(network, "half_bias", DIMS(4)), NULL, NULL, NULL);
    down = net_binary(network, "biased", ADD, down, bias);
    trm_tensor *sum = net_binary(network, "sum", ADD, x, down);
    net_output(network, net_norm(network, "out", sum, net_values(network, "g2", DIMS(4))));
    return network;
}

static void stages_run_all_passes(void **state)
{
    (void)state;
    check_pass(block_network(), run_before,
               "norm: f32 [?, 4] = norm(x, g) op=rms eps=0.5\n"
               "gate: f32 [?, 6] = matmul(norm, wg) transpose_b\n"
               "up: f32 [?, 6] = matmul(norm, wu) transpose_b\n"
               "h: f32 [?, 6] = glu(gate, up) activation=silu\n"
               "biased: f32 [?, 4] = matmul(h, wd, bias) transpose_b\n"
               "out: f32 [?, 4], sum: f32 [?, 4] = norm(biased, x, g) op=rms residual eps=0.5\n"
               "output out\n");
    check_pass(block_network(), run_after,
               "norm: f32 [?, 4] = norm(x, g) op=rms eps=0.5\n"
               "h: f32 [?, 6] = matmul_glu(norm, wg+wu) activation=silu\n"
               "biased: f32 [?, 4] = matmul(h, wd, bias) transpose_b\n"
               "out: f32 [?, 4], sum: f32 [?, 4] = norm(biased, x, g) op=rms residual eps=0.5\n"
               "output out\n");
}

/* Of the same block after all other passes. */
static void norms_join_products(void **state)
{
    (void)state;
    trm_network *network = block_network();
    assert_ok(trm_run_passes(network, TRM_PASSES_AFTER_PARTITION));
    check_pass(network, trm_pass_fuse_norm_products,
               "h: f32 [?, 6] = norm_matmul(x, wg+wu, -, g) gated eps=0.5 activation=silu\n"
               "biased: f32 [?, 4] = matmul(h, wd, bias) transpose_b\n"
               "out: f32 [?, 4], sum: f32 [?, 4] = norm(biased, x, g) op=rms residual eps=0.5\n"
               "output out\n");
}

static trm_network *product_of_a_sum(void)
{
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(-1, 4)), *r = net_input(network, "r", TRM_F32, DIMS(-1, 4));
    trm_tensor *w = net_weight(network, "w", DIMS(4, 4), 3), *b = net_values(network, "b", DIMS(4));
    const trm_layer_desc norm = {.kind = TRM_LAYER_NORM, .norm = {.residual = true, .eps = 0.5f, .weight_offset = 1}};
    const trm_layer_desc product = {.kind = TRM_LAYER_MATMUL, .matmul = {.transpose_b = true, .activation = RELU}};
    trm_tensor *inputs[] = {x, r, net_values(network, "g", DIMS(4))}, *y[2];
    assert_ok(trm_network_add_layer(network, "y", &norm, inputs, 3, y));
    net_output(network, net_unary(network, "early", RELU, y[1]));
    net_output(network, net_layer(network, "z", product, y[0], w, b, NULL));
    net_output(network, y[1]);
    return network;
}

/* The sum of a norm may be read before the product, by another layer or outside. */
static void norms_with_a_residual_join_products(void **state)
{
    (void)state;
    check_pass(product_of_a_sum(), trm_pass_fuse_norm_products,
               "z: f32 [?, 4], y:1: f32 [?, 4] = norm_matmul(x, w, b, g, r) residual eps=0.5 weight_offset=1 "
               "activation=relu\n"
               "early: f32 [?, 4] = unary(y:1) op=activation activation=relu\n"
               "output early\n"
               "output z\n"
               "output y:1\n");
}

static void norms_that_others_need_stay(void **state)
{
    (void)state;
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(-1, 4)), *w = net_weight(network, "w", DIMS(4, 4), 3);
    trm_tensor *g = net_values(network, "g", DIMS(4));
    const trm_layer_desc layer = {.kind = TRM_LAYER_NORM, .norm = {.op = TRM_NORM_LAYER, .eps = 0.5f}};
    const trm_layer_desc residual = {.kind = TRM_LAYER_NORM, .norm = {.residual = true, .eps = 0.5f}};
    const trm_layer_desc across = {.kind = TRM_LAYER_MATMUL};
    trm_tensor *twice = net_norm(network, "twice", x, g), *seen = net_norm(network, "seen", x, g);
    net_output(network, net_linear(network, "a", twice, w));
    net_output(network, net_linear(network, "b", twice, net_weight(network, "v", DIMS(3, 4), 5)));
    net_output(network, net_linear(network, "c", seen, w));
    net_output(network, seen);
    net_output(network, net_linear(network, "d", net_layer(network, "layer", layer, x, g, NULL, NULL), w));
    net_output(network, net_layer(network, "e", across, net_norm(network, "n", x, g), w, NULL, NULL));
    trm_tensor *inputs[] = {x, x, g}, *y[2]; /* the product is of the sum */
    assert_ok(trm_network_add_layer(network, "y", &residual, inputs, 3, y));
    net_output(network, y[0]);
    net_output(network, net_linear(network, "f", y[1], w));
    check_pass(network, trm_pass_fuse_norm_products, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dead_code_goes),
        cmocka_unit_test(norms_join_products),
        cmocka_unit_test(norms_with_a_residual_join_products),
        cmocka_unit_test(norms_that_others_need_stay),
        cmocka_unit_test(layers_with_effects_stay),
        cmocka_unit_test(small_layers_of_constants_are_run),
        cmocka_unit_test(folded_constants_keep_their_values),
        cmocka_unit_test(moved_weights_become_views),
        cmocka_unit_test(a_cast_weight_is_converted_when_it_is_read),
        cmocka_unit_test(what_must_not_be_folded_stays),
        cmocka_unit_test(equal_layers_and_constants_are_merged),
        cmocka_unit_test(outputs_pins_and_messages_are_not_merged),
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
        cmocka_unit_test(gate_and_up_are_joined_without_a_slice),
        cmocka_unit_test(quantized_products_join),
        cmocka_unit_test(a_glu_joins_its_product),
        cmocka_unit_test(products_of_one_input_are_joined_with_slices),
        cmocka_unit_test(products_with_weights_as_they_multiply_become_a_batch),
        cmocka_unit_test(products_that_differ_are_not_joined),
        cmocka_unit_test(attention_takes_the_joined_product),
        cmocka_unit_test(stages_run_all_passes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
