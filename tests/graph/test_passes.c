/* Passes that keep what layers are: dead code, folding, common subexpressions; all of a stage one after the other. The
 * network before and after as text, and the numbers of both. */
#include "graph/check_pass.h"

#define RELU    TRM_ACTIVATION_RELU
#define SILU    TRM_ACTIVATION_SILU
#define SIGMOID TRM_ACTIVATION_SIGMOID
#define ADD     TRM_ELEMENTWISE_ADD
#define MUL     TRM_ELEMENTWISE_MUL

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

/* y = norm(x + r) @ w^T, z = glu(y) @ v^T, both with quantized weights. */
static trm_network *quantized_products(trm_x_quantization quantization)
{
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(-1, 4)), *r = net_input(network, "r", TRM_F32, DIMS(-1, 4));
    const trm_layer_desc norm = {.kind = TRM_LAYER_NORM, .norm = {.residual = true, .eps = 0.5f}};
    const trm_layer_desc glu = {.kind = TRM_LAYER_GLU, .glu = {TRM_ACTIVATION_SILU}};
    const trm_layer_desc product = {.kind = TRM_LAYER_DEQUANT_MATMUL,
                                    .dequant_matmul = {.block_n = 1, .x_quantization = quantization}};
    trm_tensor *inputs[] = {x, r, net_values(network, "g", DIMS(4))}, *sum[2],
               *scale = net_values(network, "s", DIMS(4, 1));
    trm_tensor *w = net_input(network, "w", TRM_F8E4M3, DIMS(4, 4)),
               *v = net_input(network, "v", TRM_F8E4M3, DIMS(4, 2));
    assert_ok(trm_network_add_layer(network, "n", &norm, inputs, 3, sum));
    trm_tensor *y = net_layer(network, "y", product, sum[0], w, scale, NULL);
    net_output(network,
               net_layer(network, "z", product, net_layer(network, "h", glu, y, NULL, NULL, NULL), v, scale, NULL));
    net_output(network, sum[1]);
    return network;
}

/* Where x is quantized: there the norm and the GLU do that. */
static void quantized_products_take_norms_and_glus(void **state)
{
    (void)state;
    check_pass(quantized_products(TRM_X_DYNAMIC), trm_pass_fuse_norm_products,
               "y: f32 [?, 4], n:1: f32 [?, 4] = norm_dequant_matmul(x, w, s, -, -, g, r) product.block_n=1 "
               "product.x_quantization=dynamic residual eps=0.5\n"
               "z: f32 [?, 4] = glu_dequant_matmul(y, v, s) product.block_n=1 product.x_quantization=dynamic "
               "activation=silu\n"
               "output z\n"
               "output n:1\n");
    check_pass(quantized_products(TRM_X_AS_IS), trm_pass_fuse_norm_products,
               "n: f32 [?, 4], n:1: f32 [?, 4] = norm(x, r, g) op=rms residual eps=0.5\n"
               "y: f32 [?, 4] = dequant_matmul(n, w, s) block_n=1\n"
               "h: f32 [?, 2] = glu(y) activation=silu\n"
               "z: f32 [?, 4] = dequant_matmul(h, v, s) block_n=1\n"
               "output z\n"
               "output n:1\n");
}

/* What is normalized is read by others, too, before and after the router. */
static void routers_take_norms(void **state)
{
    (void)state;
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(-1, 4)), *r = net_input(network, "r", TRM_F32, DIMS(-1, 4));
    const trm_layer_desc norm = {.kind = TRM_LAYER_NORM, .norm = {.residual = true, .eps = 0.5f, .weight_offset = 1}};
    const trm_layer_desc router = {.kind = TRM_LAYER_ROUTER, .router = {.k = 2, .renormalize = true}};
    trm_tensor *of_norm[] = {x, r, net_values(network, "g", DIMS(4))}, *y[2], *chosen[2];
    assert_ok(trm_network_add_layer(network, "y", &norm, of_norm, 3, y));
    net_output(network, net_unary(network, "early", RELU, y[0]));
    trm_tensor *of_router[] = {y[0], net_weight(network, "w", DIMS(3, 4), 3), NULL, net_values(network, "c", DIMS(3))};
    assert_ok(trm_network_add_layer(network, "ids", &router, of_router, 4, chosen));
    net_output(network, chosen[1]);
    net_output(network, net_unary(network, "late", RELU, y[1]));
    check_pass(network, trm_pass_fuse_norm_products,
               "ids: i32 [?, 2], ids:1: f32 [?, 2], y: f32 [?, 4], y:1: f32 [?, 4] = norm_router(x, w, -, c, -, g, r) "
               "k=2 scoring=softmax renormalize residual eps=0.5 weight_offset=1\n"
               "early: f32 [?, 4] = unary(y) op=activation activation=relu\n"
               "late: f32 [?, 4] = unary(y:1) op=activation activation=relu\n"
               "output early\n"
               "output ids:1\n"
               "output late\n");
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
        cmocka_unit_test(quantized_products_take_norms_and_glus),
        cmocka_unit_test(routers_take_norms),
        cmocka_unit_test(norms_that_others_need_stay),
        cmocka_unit_test(layers_with_effects_stay),
        cmocka_unit_test(small_layers_of_constants_are_run),
        cmocka_unit_test(folded_constants_keep_their_values),
        cmocka_unit_test(moved_weights_become_views),
        cmocka_unit_test(a_cast_weight_is_converted_when_it_is_read),
        cmocka_unit_test(what_must_not_be_folded_stays),
        cmocka_unit_test(equal_layers_and_constants_are_merged),
        cmocka_unit_test(outputs_pins_and_messages_are_not_merged),
        cmocka_unit_test(stages_run_all_passes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
