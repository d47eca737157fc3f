/* Fusion around convolutions: the network before and after, and the numbers of both. */
#include "graph/compare.h"

#define ADD  TRM_ELEMENTWISE_ADD
#define MUL  TRM_ELEMENTWISE_MUL
#define RELU TRM_ACTIVATION_RELU

static trm_tensor *net_convolution(trm_network *network, const char *name, trm_tensor *x, trm_tensor *w, trm_tensor *b)
{
    return net_layer(
        network, name,
        (trm_layer_desc){
            .kind = TRM_LAYER_CONVOLUTION,
            .convolution = {.groups = 1, .stride = {1, 1}, .dilation = {1, 1}, .before = {1, 1}, .after = {1, 1}}},
        x, w, b, NULL);
}

/* After the pass there are `layers` layers and the same numbers; again changes nothing. Takes the network. */
static trm_network *check(trm_network *network, int32_t layers)
{
    trm_network *changed = NULL;
    int32_t changes = 0, again = 0;
    assert_ok(trm_network_clone(network, &changed));
    assert_ok(trm_pass_fuse_convolutions(changed, &changes));
    assert_consistent(changed);
    assert_int_equal(changed->n_layers, layers);
    assert_true((changes == 0) == (changed->n_layers == network->n_layers));
    assert_same_numbers(network, changed, 6, test_seed());
    assert_ok(trm_pass_fuse_convolutions(changed, &again));
    assert_int_equal(again, 0);
    trm_network_destroy(network);
    return changed;
}

static void a_norm_by_channel_goes_into_the_constants(void **state)
{
    (void)state;
    for (int32_t with_bias = 0; with_bias < 2; with_bias++) {
        for (int32_t from_weight = 0; from_weight < 2; from_weight++) {
            trm_network *network = net_create();
            trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(-1, 3, 5, -1));
            trm_tensor *w = from_weight ? net_weight(network, "w", DIMS(4, 3, 3, 3), 7)
                                        : net_values(network, "w", DIMS(4, 3, 3, 3));
            trm_tensor *b = with_bias ? net_values(network, "b", DIMS(4)) : NULL;
            trm_tensor *y = net_convolution(network, "conv", x, w, b);
            y = net_binary(network, "scaled", MUL, y, net_values(network, "factor", DIMS(4, 1, 1)));
            y = net_binary(network, "moved", ADD, net_values(network, "offset", DIMS(1, 4, 1, 1)), y);
            net_output(network, net_unary(network, "y", RELU, y));
            trm_network *changed = check(network, 1);
            const trm_layer *layer = changed->layers[0];
            assert_int_equal(layer->desc.kind, TRM_LAYER_CONVOLUTION);
            assert_int_equal(layer->desc.convolution.activation, RELU);
            assert_int_equal(layer->n_inputs, 3);
            assert_string_equal(layer->outputs[0]->name, "y");
            trm_network_destroy(changed);
        }
    }
}

static void a_residual_goes_into_the_later_convolution(void **state)
{
    (void)state;
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(-1, 4, 5, 6));
    trm_tensor *first = net_convolution(network, "first", x, net_values(network, "w", DIMS(4, 4, 3, 3)), NULL);
    trm_tensor *second = net_convolution(network, "second", net_unary(network, "act", RELU, x),
                                         net_values(network, "v", DIMS(4, 4, 3, 3)), NULL);
    net_output(network, net_unary(network, "y", RELU, net_binary(network, "sum", ADD, second, first)));
    trm_network *changed = check(network, 3);
    const trm_layer *last = changed->layers[2];
    assert_int_equal(last->n_inputs, 4);
    assert_string_equal(last->inputs[3]->name, "first");
    assert_int_equal(last->desc.convolution.activation, RELU);
    trm_network_destroy(changed);
}

static void what_does_not_fit_stays(void **state)
{
    (void)state;
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(2, 4, 4, 4));
    trm_tensor *shared = net_convolution(network, "shared", x, net_values(network, "w", DIMS(4, 4, 3, 3)), NULL);
    trm_tensor *along = net_convolution(network, "along", x, net_values(network, "v", DIMS(4, 4, 3, 3)), NULL);
    net_output(network, net_unary(network, "y", RELU, shared)); /* read twice */
    net_output(network, net_binary(network, "z", MUL, shared, net_values(network, "factor", DIMS(4, 1, 1))));
    net_output(network, net_binary(network, "row", MUL, along, net_values(network, "by_column", DIMS(4))));
    trm_tensor *broadcast = net_convolution(network, "broadcast", x, net_values(network, "u", DIMS(4, 4, 3, 3)), NULL);
    net_output(network,
               net_binary(network, "wide", ADD, broadcast, net_input(network, "one", TRM_F32, DIMS(2, 4, 1, 4))));
    trm_network_destroy(check(network, 7));
}

/* With a size in doubt, a sum is no residual: two convolutions of different padding meet only where one is 1. */
static void unknown_sizes_are_compared(void **state)
{
    (void)state;
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(-1, 4, -1, 6));
    trm_tensor *other = net_input(network, "other", TRM_F32, DIMS(6, 4, 6, 6));
    trm_tensor *y = net_convolution(network, "conv", x, net_values(network, "w", DIMS(4, 4, 3, 3)), NULL);
    net_output(network, net_binary(network, "sum", ADD, y, other));
    trm_tensor *z = net_convolution(network, "again", x, net_values(network, "v", DIMS(4, 4, 3, 3)), NULL);
    net_output(network, net_binary(network, "same", ADD, z, x)); /* same in every run: batch and rows stay */
    trm_network_destroy(check(network, 3));
}

static void norms_and_transposed_convolutions_take_activations(void **state)
{
    (void)state;
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(2, 4, 5, 6));
    trm_tensor *y = net_layer(network, "up",
                              (trm_layer_desc){.kind = TRM_LAYER_DECONVOLUTION,
                                               .convolution = {.groups = 1, .stride = {2, 2}, .dilation = {1, 1}}},
                              x, net_values(network, "w", DIMS(4, 2, 2, 2)), NULL, NULL);
    y = net_unary(network, "act", RELU, y);
    y = net_layer(network, "norm",
                  (trm_layer_desc){.kind = TRM_LAYER_GROUP_NORM, .group_norm = {.groups = 1, .eps = 0.1f}}, y, NULL,
                  NULL, NULL);
    net_output(network, net_unary(network, "y", TRM_ACTIVATION_TANH, y));
    trm_network_destroy(check(network, 2));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_norm_by_channel_goes_into_the_constants),
        cmocka_unit_test(a_residual_goes_into_the_later_convolution),
        cmocka_unit_test(what_does_not_fit_stays),
        cmocka_unit_test(unknown_sizes_are_compared),
        cmocka_unit_test(norms_and_transposed_convolutions_take_activations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
