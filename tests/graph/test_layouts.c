/* Layouts for CUDA: the network before and after, and the numbers of both. */
#include <stdio.h>

#include "graph/compare.h"

static trm_tensor *net_convolution(trm_network *network, const char *name, trm_tensor *x, trm_tensor *w, trm_tensor *b,
                                   trm_tensor *residual)
{
    return net_layer(network, name,
                     (trm_layer_desc){.kind = TRM_LAYER_CONVOLUTION,
                                      .convolution = {.groups = 1,
                                                      .stride = {1, 1, 1},
                                                      .dilation = {1, 1, 1},
                                                      .before = {1, 1, 1},
                                                      .after = {1, 1, 1},
                                                      .activation = TRM_ACTIVATION_RELU}},
                     x, w, b, residual);
}

static int32_t count_kind(const trm_network *network, trm_layer_kind kind)
{
    int32_t count = 0;
    for (int32_t i = 0; i < network->n_layers; i++) {
        count += network->layers[i]->desc.kind == kind;
    }
    return count;
}

/* After the pass and those that follow it there are as many transposes and the same numbers; again changes nothing.
 * Takes the network. */
static trm_network *check(trm_network *network, int32_t transposes)
{
    trm_network *changed = NULL;
    int32_t changes = 0, again = 0;
    assert_ok(trm_network_clone(network, &changed));
    assert_ok(trm_pass_layouts(changed, true, &changes));
    assert_consistent(changed);
    assert_ok(trm_run_passes(changed, TRM_PASSES_AFTER_PARTITION));
    assert_consistent(changed);
    assert_same_numbers(network, changed, 6, test_seed());
    assert_int_equal(count_kind(changed, TRM_LAYER_TRANSPOSE), transposes);
    assert_ok(trm_pass_layouts(changed, true, &again));
    assert_int_equal(again, 0);
    trm_network_destroy(network);
    return changed;
}

static trm_tensor *net_pool(trm_network *network, const char *name, trm_pool_op op, trm_tensor *x)
{
    return net_layer(network, name,
                     (trm_layer_desc){.kind = TRM_LAYER_POOL,
                                      .pool = {.op = op,
                                               .kernel = {3, 2, 2},
                                               .stride = {2, 1, 1},
                                               .dilation = {1, 1, 1},
                                               .before = {1, 0, 0},
                                               .after = {1, 0, 0}}},
                     x, NULL, NULL, NULL);
}

static void chains_of_convolutions_have_channels_last(void **state)
{
    (void)state;
    for (int32_t keep = 0; keep < 2; keep++) {
        trm_network *network = net_create();
        trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(-1, 3, 6, 7));
        trm_tensor *y = net_convolution(network, "first", x, net_values(network, "u", DIMS(4, 3, 3, 3)),
                                        net_values(network, "b", DIMS(4)), NULL);
        trm_tensor *z = net_convolution(network, "second", y, net_values(network, "v", DIMS(4, 4, 3, 3)), NULL, y);
        z = net_pool(network, "pool", keep ? TRM_POOL_AVERAGE : TRM_POOL_MAX, z);
        z = net_convolution(network, "third", z, net_weight(network, "w", DIMS(5, 4, 3, 3), 3), NULL, NULL);
        z = net_layer(network, "rows",
                      (trm_layer_desc){.kind = TRM_LAYER_RESHAPE, .reshape = {.dims = {3, {0, 0, -1}}}}, z, NULL, NULL,
                      NULL);
        z = net_layer(network, "mean",
                      (trm_layer_desc){.kind = TRM_LAYER_REDUCE,
                                       .reduce = {.op = TRM_REDUCE_AVG, .axis = 2, .keep_dims = keep != 0}},
                      z, NULL, NULL, NULL);
        net_output(network, z);
        trm_network *changed = check(network, 1); /* of x */
        for (int32_t i = 0; i < changed->n_layers; i++) {
            const trm_layer_desc *desc = &changed->layers[i]->desc;
            assert_true(desc->kind != TRM_LAYER_CONVOLUTION || desc->convolution.channels_last);
            assert_true(desc->kind != TRM_LAYER_POOL || desc->pool.channels_last);
        }
        assert_int_equal(count_kind(changed, TRM_LAYER_CONVOLUTION), 3);
        trm_network_destroy(changed);
    }
}

/* What reads the same tensor with channels first gets it so. */
static void borders_are_transposed(void **state)
{
    (void)state;
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(2, 3, 6));
    trm_tensor *y = net_convolution(network, "conv", x, net_values(network, "w", DIMS(4, 3, 3)), NULL, NULL);
    net_output(network, y);
    net_output(network, net_pool(network, "pool", TRM_POOL_MAX, y));
    trm_network_destroy(check(network, 3));
}

/* As a vision transformer begins: patches, then positions before channels. */
static void patches_become_rows_of_a_product(void **state)
{
    (void)state;
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(-1, 3, 6, 8));
    trm_layer_desc patch = {.kind = TRM_LAYER_CONVOLUTION,
                            .convolution = {.groups = 1, .stride = {3, 2}, .dilation = {1, 1}}};
    trm_tensor *y = net_layer(network, "patch", patch, x, net_weight(network, "w", DIMS(5, 3, 3, 2), 3),
                              net_values(network, "b", DIMS(5)), NULL);
    patch.convolution.stride[0] = patch.convolution.stride[1] = 2;
    trm_tensor *z = net_layer(network, "again", patch, y, net_values(network, "v", DIMS(4, 5, 2, 2)), NULL, NULL);
    z = net_layer(network, "flat", (trm_layer_desc){.kind = TRM_LAYER_RESHAPE, .reshape = {.dims = {3, {0, 0, -1}}}}, z,
                  NULL, NULL, NULL);
    z = net_layer(network, "rows", (trm_layer_desc){.kind = TRM_LAYER_TRANSPOSE, .transpose = {.perm = {0, 2, 1}}}, z,
                  NULL, NULL, NULL);
    net_output(network, net_unary(network, "z", TRM_ACTIVATION_TANH, z));
    trm_network *changed = check(network, 2); /* one for each convolution: what brings its patches together */
    assert_int_equal(count_kind(changed, TRM_LAYER_MATMUL), 2);
    trm_network_destroy(changed);
}

/* What cuBLASLt does not do in one kernel; f32 only where it may be TF32. */
static void weights_of_products_with_other_activations_are_turned(void **state)
{
    (void)state;
    static const trm_activation activations[] = {TRM_ACTIVATION_GELU, TRM_ACTIVATION_RELU, TRM_ACTIVATION_NONE};
    for (int32_t i = 0; i < 4; i++) {
        trm_network *network = net_create();
        trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(-1, 6));
        const trm_layer_desc matmul = {.kind = TRM_LAYER_MATMUL, .matmul = {.activation = activations[i % 3]}};
        net_output(network, net_layer(network, "y", matmul, x, net_weight(network, "w", DIMS(6, 5), 3),
                                      net_values(network, "b", DIMS(5)), NULL));
        int32_t changes = 0;
        assert_ok(trm_pass_layouts(network, i < 3, &changes));
        assert_ok(trm_run_passes(network, TRM_PASSES_AFTER_PARTITION));
        assert_consistent(network);
        assert_int_equal(changes, i == 0);
        assert_int_equal(network->n_layers, 1);
        assert_int_equal(network->layers[0]->desc.matmul.transpose_b, i == 0);
        assert_int_equal(network->layers[0]->inputs[1]->dims.d[0], i == 0 ? 5 : 6);
        trm_network_destroy(network);
    }
}

static void f32_stays_without_tf32(void **state)
{
    (void)state;
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(2, 3, 6, 6));
    net_output(network, net_convolution(network, "y", x, net_values(network, "w", DIMS(4, 3, 3, 3)), NULL, NULL));
    int32_t changes = 0;
    assert_ok(trm_pass_layouts(network, false, &changes));
    assert_int_equal(changes, 0);
    trm_network_destroy(network);
}

static trm_tensor *net_heads(trm_network *network, const char *name, trm_tensor *x, bool first)
{
    char rows[64];
    snprintf(rows, sizeof(rows), "%s.rows", name);
    trm_tensor *y = first
                        ? net_layer(network, rows,
                                    (trm_layer_desc){.kind = TRM_LAYER_RESHAPE, .reshape = {.dims = {4, {0, 0, 2, 4}}}},
                                    x, NULL, NULL, NULL)
                        : x;
    return net_layer(network, name, (trm_layer_desc){.kind = TRM_LAYER_TRANSPOSE, .transpose = {.perm = {0, 2, 1, 3}}},
                     y, NULL, NULL, NULL);
}

static void attention_takes_rows_first(void **state)
{
    (void)state;
    for (int32_t form = 0; form < 4; form++) {
        const bool masked = form % 2 == 1, sinks = form / 2 == 1;
        trm_network *network = net_create();
        trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(-1, 5, 8));
        trm_tensor *inputs[TRM_ATTENTION_INPUT_COUNT] = {net_heads(network, "q", x, true),
                                                         net_heads(network, "k", x, true),
                                                         net_heads(network, "v", x, true)},
                   *y;
        if (masked) {
            inputs[TRM_ATTENTION_MASK] = net_values(network, "mask", DIMS(2, 5, 5));
        }
        if (sinks) {
            inputs[TRM_ATTENTION_SINKS] = net_values(network, "sinks", DIMS(2));
        }
        const trm_layer_desc desc = {.kind = TRM_LAYER_ATTENTION,
                                     .attention = {.form = TRM_ATTENTION_PADDED_BHND,
                                                   .causal = masked ? TRM_CAUSAL_NONE : TRM_CAUSAL_LOWER_RIGHT,
                                                   .n_ranks = 1}};
        assert_ok(trm_network_add_layer(network, "attention", &desc, inputs, TRM_ATTENTION_INPUT_COUNT, &y));
        net_output(network, net_unary(network, "y", TRM_ACTIVATION_RELU, net_heads(network, "back", y, false)));
        trm_network *changed = check(network, 0);
        assert_int_equal(count_kind(changed, TRM_LAYER_ATTENTION), 1);
        trm_network_destroy(changed);
    }
}

/* Masks of nothing, written out or expanded, and what is left of "all and x". */
static void masks_of_nothing_go(void **state)
{
    (void)state;
    for (int32_t kind = 0; kind < 4; kind++) {
        const bool sinks = kind == 3;
        trm_network *network = net_create();
        trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(-1, 2, 5, 4)), *all, *y;
        const uint8_t ones[25] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
        assert_ok(trm_network_add_constant(network, "all", TRM_BOOL, DIMS(1, 1, 5, 5), ones, &all));
        if (kind == 1) {
            all = net_layer(network, "expanded",
                            (trm_layer_desc){.kind = TRM_LAYER_EXPAND, .expand = {.dims = {4, {6, 2, 5, 5}}}}, all,
                            NULL, NULL, NULL);
        } else if (kind == 2) {
            const uint8_t some[5] = {1, 0, 1, 1, 0};
            trm_tensor *keys;
            assert_ok(trm_network_add_constant(network, "keys", TRM_BOOL, DIMS(1, 1, 1, 5), some, &keys));
            all = net_binary(network, "both", TRM_ELEMENTWISE_AND, all, keys);
        }
        trm_tensor *inputs[TRM_ATTENTION_INPUT_COUNT] = {x, x, x};
        inputs[TRM_ATTENTION_MASK] = all;
        inputs[TRM_ATTENTION_SINKS] = sinks ? net_values(network, "sinks", DIMS(2)) : NULL;
        const trm_layer_desc desc = {.kind = TRM_LAYER_ATTENTION,
                                     .attention = {.form = TRM_ATTENTION_PADDED_BHND, .n_ranks = 1}};
        assert_ok(trm_network_add_layer(network, "y", &desc, inputs, TRM_ATTENTION_INPUT_COUNT, &y));
        net_output(network, y);
        trm_network *changed = check(network, 0);
        assert_int_equal(changed->n_layers, 1);
        assert_int_equal(changed->layers[0]->n_inputs, sinks       ? TRM_ATTENTION_SINKS + 1
                                                       : kind == 2 ? TRM_ATTENTION_MASK + 1
                                                                   : TRM_ATTENTION_V + 1);
        assert_true(kind == 2 || changed->layers[0]->inputs[TRM_ATTENTION_MASK] == NULL);
        trm_network_destroy(changed);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chains_of_convolutions_have_channels_last),
        cmocka_unit_test(borders_are_transposed),
        cmocka_unit_test(patches_become_rows_of_a_product),
        cmocka_unit_test(weights_of_products_with_other_activations_are_turned),
        cmocka_unit_test(f32_stays_without_tf32),
        cmocka_unit_test(attention_takes_rows_first),
        cmocka_unit_test(masks_of_nothing_go),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
