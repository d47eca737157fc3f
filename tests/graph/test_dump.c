/* The text of a network: every kind, every sort of constant, pins and outputs. */
#include "graph/nets.h"

#include <stdio.h>

static void given_tensors_and_outputs(void **state)
{
    (void)state;
    trm_network *network = net_create();
    trm_tensor *w = net_weight(network, "w", DIMS(2, 3), 7), *half = NULL, *s = NULL, *made = NULL;
    net_values(network, "long", DIMS(3, 3));
    trm_tensor *x = net_input(network, "x", TRM_BF16, DIMS(-1, 4));
    assert_ok(trm_network_add_state(network, "s", TRM_F16, DIMS(-1, 16), &s));
    trm_weight *weight = NULL;
    assert_ok(trm_weight_random(TRM_F32, &DIMS(4), 3, 0, 1, &weight));
    assert_ok(trm_network_add_weight(network, "half", weight, TRM_F16, &half));
    static const struct {
        trm_dtype dtype;
        unsigned char bytes[16];
    } constants[] = {
        {TRM_F16, {0x00, 0x3c, 0x00, 0xc0}},
        {TRM_BF16, {0x80, 0x3f, 0x00, 0xc0}},
        {TRM_I8, {0xff, 2}},
        {TRM_U8, {0xff, 2}},
        {TRM_I16, {0xff, 0xff, 2}},
        {TRM_U16, {0xff, 0xff, 2}},
        {TRM_I32, {0xff, 0xff, 0xff, 0xff}},
        {TRM_U32, {0xff, 0xff, 0xff, 0xff}},
        {TRM_I64, {5}},
        {TRM_U64, {5, 0, 0, 0, 0, 0, 0, 1}},
        {TRM_BOOL, {0, 1}},
        {TRM_F64, {0, 0, 0, 0, 0, 0, 0xf0, 0x3f}},
    };
    for (size_t i = 0; i < sizeof(constants) / sizeof(constants[0]); i++) {
        assert_ok(trm_network_add_constant(network, trm_dtype_name(constants[i].dtype), constants[i].dtype, DIMS(2),
                                           constants[i].bytes, &made));
    }
    assert_ok(trm_network_add_constant(network, "scalar", TRM_F32, (trm_dims){0}, (float[]){0.1f}, &made));
    assert_ok(trm_network_add_constant(network, "empty", TRM_F32, DIMS(0, 2), NULL, &made));
    assert_ok(trm_network_pin(network, w, "split 0"));
    net_output(network, w);
    net_output(network, x);
    char described[2][128], expected[4096];
    trm_weight_describe(w->weight, described[0], sizeof(described[0]));
    trm_weight_describe(half->weight, described[1], sizeof(described[1]));
    snprintf(expected, sizeof(expected),
             "x: bf16 [?, 4] = input\n"
             "s: f16 [?, 16] = state\n"
             "w: f32 [2, 3] pin=\"split 0\" = weight %s\n"
             "long: f32 [3, 3] = constant {0.5, 0.75, 1, 1.25, 1.5, 1.75, 2, 2.25, ...} hash=070917639c941c78\n"
             "half: f16 [4] = weight %s stored=f32\n"
             "f16: f16 [2] = constant {1, -2}\n"
             "bf16: bf16 [2] = constant {1, -2}\n"
             "i8: i8 [2] = constant {-1, 2}\n"
             "u8: u8 [2] = constant {255, 2}\n"
             "i16: i16 [2] = constant {-1, 2}\n"
             "u16: u16 [2] = constant {65535, 2}\n"
             "i32: i32 [2] = constant {-1, 0}\n"
             "u32: u32 [2] = constant {4294967295, 0}\n"
             "i64: i64 [2] = constant {5, 0}\n"
             "u64: u64 [2] = constant {72057594037927941, 0}\n"
             "bool: bool [2] = constant {0, 1}\n"
             "f64: f64 [2] = constant {1, 0}\n"
             "scalar: f32 [] = constant {0.1}\n"
             "empty: f32 [0, 2] = constant {}\n"
             "output w\n"
             "output x\n",
             described[0], described[1]);
    assert_text(network, expected);
    trm_network_destroy(network);
}

/* Adds a layer of x with parameters and no other input. */
static void add(trm_network *network, trm_tensor *x, trm_layer_desc desc)
{
    net_layer(network, NULL, desc, x, NULL, NULL, NULL);
}

static void layers_of_one_input(void **state)
{
    (void)state;
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(-1, 4));
    add(network, x, (trm_layer_desc){.kind = TRM_LAYER_CAST, .cast = {TRM_BF16}});
    add(network, x, (trm_layer_desc){.kind = TRM_LAYER_RESHAPE, .reshape = {{3, {0, 2, -1}}}});
    add(network, x, (trm_layer_desc){.kind = TRM_LAYER_TRANSPOSE, .transpose = {{1, 0}}});
    add(network, x, (trm_layer_desc){.kind = TRM_LAYER_SLICE, .slice = {-1, 1, INT64_MAX, 1}});
    add(network, x, (trm_layer_desc){.kind = TRM_LAYER_SLICE, .slice = {1, 0, -1, 2}});
    add(network, x, (trm_layer_desc){.kind = TRM_LAYER_UNARY, .unary = {.activation = TRM_ACTIVATION_SILU}});
    add(network, x, (trm_layer_desc){.kind = TRM_LAYER_UNARY, .unary = {TRM_UNARY_LINEAR, 0, 2, 0.5f}});
    add(network, x, (trm_layer_desc){.kind = TRM_LAYER_GLU, .glu = {TRM_ACTIVATION_GELU_TANH}});
    add(network, x, (trm_layer_desc){.kind = TRM_LAYER_SOFTMAX, .softmax = {-1}});
    add(network, x, (trm_layer_desc){.kind = TRM_LAYER_REDUCE, .reduce = {TRM_REDUCE_AVG, 1, true}});
    add(network, x, (trm_layer_desc){.kind = TRM_LAYER_REDUCE, .reduce = {TRM_REDUCE_SUM, 1, false}});
    add(network, x, (trm_layer_desc){.kind = TRM_LAYER_DIST_COLLECTIVE, .collective = {.n_ranks = 2}});
    add(network, x,
        (trm_layer_desc){.kind = TRM_LAYER_DIST_COLLECTIVE,
                         .collective = {TRM_GATHER, TRM_REDUCE_NONE, 1, 1, 2, 2, 2, {0, 2, 1, 3}}});
    assert_ok(trm_network_rename_tensor(network, trm_network_find_tensor(network, "cast"), "renamed"));
    assert_text(network,
                "x: f32 [?, 4] = input\n"
                "renamed: bf16 [?, 4] = cast(x) to=bf16 # cast\n"
                "reshape: f32 [?, 2, 2] = reshape(x) dims=[0, 2, -1]\n"
                "transpose: f32 [4, ?] = transpose(x) perm=[1, 0]\n"
                "slice: f32 [?, 3] = slice(x) axis=1 start=1\n"
                "slice.1: f32 [?, 2] = slice(x) axis=1 end=-1 step=2\n"
                "unary: f32 [?, 4] = unary(x) op=activation activation=silu\n"
                "unary.1: f32 [?, 4] = unary(x) op=linear alpha=2 beta=0.5\n"
                "glu: f32 [?, 2] = glu(x) activation=gelu_tanh\n"
                "softmax: f32 [?, 4] = softmax(x) axis=1\n"
                "reduce: f32 [?, 1] = reduce(x) op=avg axis=1 keep_dims\n"
                "reduce.1: f32 [?] = reduce(x) op=sum axis=1\n"
                "dist_collective: f32 [?, 4] = dist_collective(x) op=all_reduce n_ranks=2\n"
                "dist_collective.1: f32 [?, 8] = dist_collective(x) op=gather reduce=none axis=1 root=1 n_ranks=2 "
                "n_groups=2 group_size=2 groups=[0, 2, 1, 3]\n");
    trm_network_destroy(network);
}

static void layers_of_several_inputs(void **state)
{
    (void)state;
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(-1, 4)), *ids = net_input(network, "ids", TRM_I32, DIMS(-1));
    trm_tensor *w = net_values(network, "w", DIMS(4, 4)), *v = net_values(network, "v", DIMS(4));
    trm_tensor *h = net_input(network, "h", TRM_F32, DIMS(-1, 2, 4)), *f = net_values(network, "f", DIMS(2));
    net_layer(network, NULL, (trm_layer_desc){.kind = TRM_LAYER_CONCAT, .concat = {0}}, x, x, x, NULL);
    net_layer(network, NULL, (trm_layer_desc){.kind = TRM_LAYER_GATHER, .gather = {1}}, x, ids, NULL, NULL);
    net_layer(network, NULL, (trm_layer_desc){.kind = TRM_LAYER_EMBEDDING, .embedding = {4}}, w, ids, NULL, NULL);
    net_layer(network, NULL, (trm_layer_desc){.kind = TRM_LAYER_EMBEDDING}, w, ids, NULL, NULL);
    net_layer(network, NULL, (trm_layer_desc){.kind = TRM_LAYER_MATMUL}, x, w, NULL, NULL);
    trm_layer_desc matmul = {.kind = TRM_LAYER_MATMUL, .matmul = {true, true, TRM_ACTIVATION_RELU, TRM_BF16}};
    net_layer(network, NULL, matmul, w, w, v, NULL);
    net_binary(network, NULL, TRM_ELEMENTWISE_POW, x, v);
    trm_layer_desc norm = {.kind = TRM_LAYER_NORM, .norm = {TRM_NORM_LAYER, true, 1e-5f, 1}};
    net_layer(network, NULL, norm, x, x, v, v);
    trm_layer_desc rope = {.kind = TRM_LAYER_ROPE, .rope = {.rotary_dim = 4, .magnitude = 1}};
    net_layer(network, NULL, rope, h, ids, f, NULL);
    rope.rope = (trm_rope_params){TRM_ROPE_DYNAMIC, 4, true, 0.5f, 10000, 2, 64, 0};
    net_layer(network, NULL, rope, h, ids, f, ids);
    trm_layer_desc attention = {
        .kind = TRM_LAYER_ATTENTION,
        .attention = {.form = TRM_ATTENTION_PADDED_BHND,
                      .causal = TRM_CAUSAL_UPPER_LEFT,
                      .window = 8,
                      .chunked = true,
                      .scale = 0.25f,
                      .softcap = 30,
                      .n_ranks = 2},
    };
    trm_tensor *q = net_input(network, "q", TRM_F32, DIMS(1, 2, 3, 4)), *output = NULL;
    trm_tensor *mask = net_input(network, "mask", TRM_BOOL, DIMS(3, 6));
    trm_tensor *inputs[TRM_ATTENTION_INPUT_COUNT] = {q, q, q, NULL, NULL, NULL, NULL, NULL, mask};
    assert_ok(trm_network_add_layer(network, NULL, &attention, inputs, TRM_ATTENTION_INPUT_COUNT, &output));
    trm_tensor *latent[TRM_LATENT_ATTENTION_INPUT_COUNT] = {h,
                                                            x,
                                                            net_input(network, "k", TRM_F32, DIMS(-1, 1, 2)),
                                                            net_input(network, "kv", TRM_F32, DIMS(2, 5, 4)),
                                                            ids,
                                                            net_input(network, "n", TRM_I32, DIMS(-1)),
                                                            net_input(network, "t", TRM_I32, DIMS(-1, -1)),
                                                            net_input(network, "c", TRM_F32, DIMS(-1, 16, 6))};
    attention = (trm_layer_desc){.kind = TRM_LAYER_LATENT_ATTENTION, .latent_attention = {0.25f}};
    assert_ok(trm_network_add_layer(network, NULL, &attention, latent, TRM_LATENT_ATTENTION_INPUT_COUNT, &output));
    trm_tensor *convolved[TRM_SHORT_CONVOLUTION_INPUT_COUNT] = {net_input(network, "xs", TRM_F32, DIMS(-1, 8)),
                                                                net_input(network, "taps", TRM_F32, DIMS(8, 4)),
                                                                ids,
                                                                latent[5],
                                                                net_input(network, "slots", TRM_I32, DIMS(-1, 2)),
                                                                net_input(network, "last", TRM_F32, DIMS(-1, -1, 8))};
    attention = (trm_layer_desc){.kind = TRM_LAYER_SHORT_CONVOLUTION, .short_convolution = {TRM_ACTIVATION_SILU}};
    assert_ok(trm_network_add_layer(network, NULL, &attention, convolved, TRM_SHORT_CONVOLUTION_INPUT_COUNT, &output));
    trm_tensor *gates = net_input(network, "gates", TRM_F32, DIMS(-1, 2));
    trm_tensor *decay = net_input(network, "decay", TRM_F32, DIMS(2));
    trm_tensor *delta[TRM_GATED_DELTA_INPUT_COUNT] = {
        h,
        h,
        h,
        gates,
        gates,
        decay,
        decay,
        ids,
        latent[5],
        convolved[4],
        net_input(network, "s", TRM_F32, (trm_dims){5, {-1, -1, 2, 4, 4}})};
    attention = (trm_layer_desc){.kind = TRM_LAYER_GATED_DELTA, .gated_delta = {1e-6f}};
    assert_ok(trm_network_add_layer(network, NULL, &attention, delta, TRM_GATED_DELTA_INPUT_COUNT, &output));
    trm_tensor *scan[TRM_SELECTIVE_SCAN_INPUT_COUNT] = {
        h, h, h, gates, decay, decay, decay, ids, latent[5], convolved[4], delta[TRM_GATED_DELTA_STATE]};
    attention = (trm_layer_desc){.kind = TRM_LAYER_SELECTIVE_SCAN, .selective_scan = {0.0f, 0.5f}};
    assert_ok(trm_network_add_layer(network, NULL, &attention, scan, TRM_SELECTIVE_SCAN_INPUT_COUNT, &output));
    attention = (trm_layer_desc){.kind = TRM_LAYER_LORA};
    trm_tensor *lora[TRM_LORA_INPUT_COUNT] = {convolved[0], ids, convolved[0],
                                              net_input(network, "a", TRM_F32, DIMS(2, 3, 8)),
                                              net_input(network, "b", TRM_F32, DIMS(2, 8, 3))};
    assert_ok(trm_network_add_layer(network, NULL, &attention, lora, TRM_LORA_INPUT_COUNT, &output));
    char *text = trm_network_to_text(network);
    const char *layers = strstr(text, "concat:");
    assert_non_null(layers);
    assert_string_equal(
        layers, "concat: f32 [?, 4] = concat(x, x, x) axis=0\n"
                "gather: f32 [?, ?] = gather(x, ids) axis=1\n"
                "embedding: f32 [?, 4] = embedding(w, ids) first_row=4\n"
                "embedding.1: f32 [?, 4] = embedding(w, ids)\n"
                "matmul: f32 [?, 4] = matmul(x, w)\n"
                "matmul.1: bf16 [4, 4] = matmul(w, w, v) transpose_a transpose_b activation=relu out=bf16\n"
                "elementwise: f32 [?, 4] = elementwise(x, v) op=pow\n"
                "norm: f32 [?, 4], norm:1: f32 [?, 4] = norm(x, x, v, v) op=layer residual eps=1e-05 "
                "weight_offset=1\n"
                "rope: f32 [?, 2, 4] = rope(h, ids, f) rotary_dim=4\n"
                "rope.1: f32 [?, 2, 4] = rope(h, ids, f, ids) scaling=dynamic rotary_dim=4 interleaved magnitude=0.5 "
                "base=10000 factor=2 original_length=64\n"
                "attention: f32 [1, 2, 3, 4] = attention(q, q, q, -, -, -, -, -, mask) form=padded_bhnd "
                "causal=upper_left window=8 chunked scale=0.25 softcap=30 n_ranks=2\n"
                "latent_attention: f32 [?, 2, 3] = latent_attention(h, x, k, kv, ids, n, t, c) scale=0.25\n"
                "short_convolution: f32 [?, 8] = short_convolution(xs, taps, ids, n, slots, last) activation=silu\n"
                "gated_delta: f32 [?, 2, 4] = gated_delta(h, h, h, gates, gates, decay, decay, ids, n, slots, s) "
                "eps=1e-06\n"
                "selective_scan: f32 [?, 2, 4] = selective_scan(h, h, h, gates, decay, decay, decay, ids, n, slots, s) "
                "step_max=0.5\n"
                "lora: f32 [?, 8] = lora(xs, ids, xs, a, b)\n");
    trm_free(text);
    trm_network_destroy(network);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(given_tensors_and_outputs),
        cmocka_unit_test(layers_of_one_input),
        cmocka_unit_test(layers_of_several_inputs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
