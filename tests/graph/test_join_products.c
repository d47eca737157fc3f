/* Products of one input as one, and attention from their joined product on. */
#include "graph/check_pass.h"

#define RELU TRM_ACTIVATION_RELU
#define SILU TRM_ACTIVATION_SILU
#define ADD  TRM_ELEMENTWISE_ADD

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

/* A product [?, rows] with adapters beside it. */
static trm_tensor *adapted_linear(trm_network *network, const char *name, trm_tensor *x, trm_tensor *slots,
                                  int64_t rows, uint64_t seed)
{
    char text[3][32];
    trm_tensor *output, *inputs[TRM_LORA_INPUT_COUNT] = {x, slots};
    snprintf(text[0], sizeof(text[0]), "w%s", name);
    snprintf(text[1], sizeof(text[1]), "%s_a", name);
    snprintf(text[2], sizeof(text[2]), "%s_b", name);
    inputs[TRM_LORA_Y] = linear_with_bias(network, name, x, net_weight(network, text[0], DIMS(rows, 4), seed), NULL);
    assert_ok(trm_network_add_state(network, text[1], TRM_F32, DIMS(3, 2, 4), &inputs[TRM_LORA_A]));
    assert_ok(trm_network_add_state(network, text[2], TRM_F32, DIMS(3, rows, 2), &inputs[TRM_LORA_B]));
    const trm_layer_desc desc = {.kind = TRM_LAYER_LORA};
    snprintf(text[0], sizeof(text[0]), "%s.lora", name);
    assert_ok(trm_network_add_layer(network, text[0], &desc, inputs, TRM_LORA_INPUT_COUNT, &output));
    return output;
}

static void adapters_of_joined_products_are_one_layer(void **state)
{
    (void)state;
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(-1, 4)),
               *slots = net_input(network, "slots", TRM_I32, DIMS(-1));
    const trm_layer_desc glu = {.kind = TRM_LAYER_GLU, .glu = {SILU}};
    trm_tensor *gate = adapted_linear(network, "gate", x, slots, 6, 1),
               *up = adapted_linear(network, "up", x, slots, 6, 2);
    net_output(network, net_layer(network, "y", glu, gate, up, NULL, NULL));
    check_pass(network, trm_pass_join_matmuls,
               "gate+up: f32 [?, 12] = matmul(x, wgate+wup) transpose_b\n"
               "gate.lora+up.lora: f32 [?, 12] = lora(x, slots, gate+up, gate_a, gate_b, up_a, up_b)\n"
               "y: f32 [?, 6] = glu(gate.lora+up.lora) activation=silu\n"
               "output y\n");
    network = net_create();
    x = net_input(network, "x", TRM_F32, DIMS(-1, 4));
    slots = net_input(network, "slots", TRM_I32, DIMS(-1));
    net_output(network, adapted_linear(network, "q", x, slots, 6, 1));
    net_output(network, adapted_linear(network, "k", x, slots, 3, 2));
    check_pass(network, trm_pass_join_matmuls,
               "q+k: f32 [?, 9] = matmul(x, wq+wk) transpose_b\n"
               "q.lora+k.lora: f32 [?, 9] = lora(x, slots, q+k, q_a, q_b, k_a, k_b)\n"
               "q.lora: f32 [?, 6] = slice(q.lora+k.lora) axis=1 end=6\n"
               "k.lora: f32 [?, 3] = slice(q.lora+k.lora) axis=1 start=6 end=9\n"
               "output q.lora\n"
               "output k.lora\n");
    network = net_create(); /* one of them without adapters: each has its own slice */
    x = net_input(network, "x", TRM_F32, DIMS(-1, 4));
    slots = net_input(network, "slots", TRM_I32, DIMS(-1));
    net_output(network, adapted_linear(network, "q", x, slots, 6, 1));
    net_output(network, linear_with_bias(network, "k", x, net_weight(network, "wk", DIMS(3, 4), 2), NULL));
    check_pass(network, trm_pass_join_matmuls,
               "q+k: f32 [?, 9] = matmul(x, wq+wk) transpose_b\n"
               "q: f32 [?, 6] = slice(q+k) axis=1 end=6\n"
               "q.lora: f32 [?, 6] = lora(x, slots, q, q_a, q_b)\n"
               "k: f32 [?, 3] = slice(q+k) axis=1 start=6 end=9\n"
               "output q.lora\n"
               "output k\n");
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gate_and_up_are_joined_without_a_slice),
        cmocka_unit_test(adapters_of_joined_products_are_one_layer),
        cmocka_unit_test(quantized_products_join),
        cmocka_unit_test(a_glu_joins_its_product),
        cmocka_unit_test(products_of_one_input_are_joined_with_slices),
        cmocka_unit_test(products_with_weights_as_they_multiply_become_a_batch),
        cmocka_unit_test(products_that_differ_are_not_joined),
        cmocka_unit_test(attention_takes_the_joined_product),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
