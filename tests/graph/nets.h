/*
 * Short names for building networks in tests. Each fails the test when the call fails.
 */
#ifndef TESTS_GRAPH_NETS_H
#define TESTS_GRAPH_NETS_H

#include "support/support.h"

#include "graph/network.h"

#define DIMS(...) ((trm_dims){(int32_t)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), {__VA_ARGS__}})

static inline trm_network *net_create(void)
{
    trm_network *network = NULL;
    assert_ok(trm_network_create(&network));
    return network;
}

static inline trm_tensor *net_input(trm_network *network, const char *name, trm_dtype dtype, trm_dims dims)
{
    trm_tensor *tensor = NULL;
    assert_ok(trm_network_add_input(network, name, dtype, dims, &tensor));
    return tensor;
}

/* An f32 constant of values 0.5, 0.75, 1, ... */
static inline trm_tensor *net_values(trm_network *network, const char *name, trm_dims dims)
{
    float values[4096];
    int64_t count = 1;
    for (int32_t i = 0; i < dims.n; i++) {
        count *= dims.d[i];
    }
    assert_in_range(count, 0, 4096);
    for (int64_t i = 0; i < count; i++) {
        values[i] = 0.5f + 0.25f * (float)(i % 8);
    }
    trm_tensor *tensor = NULL;
    assert_ok(trm_network_add_constant(network, name, TRM_F32, dims, values, &tensor));
    return tensor;
}

/* A constant read from a weight of random numbers. */
static inline trm_tensor *net_weight(trm_network *network, const char *name, trm_dims dims, uint64_t seed)
{
    trm_weight *weight = NULL;
    trm_tensor *tensor = NULL;
    assert_ok(trm_weight_random(TRM_F32, &dims, seed, 0, 1, &weight));
    assert_ok(trm_network_add_weight(network, name, weight, TRM_F32, &tensor));
    return tensor;
}

/* A layer of up to four inputs, which end at the first NULL; its first output. */
static inline trm_tensor *net_layer(trm_network *network, const char *name, trm_layer_desc desc, trm_tensor *a,
                                    trm_tensor *b, trm_tensor *c, trm_tensor *d)
{
    trm_tensor *inputs[] = {a, b, c, d}, *outputs[TRM_MAX_LAYER_OUTPUTS] = {NULL};
    assert_ok(trm_network_add_layer(network, name, &desc, inputs, 4, outputs));
    return outputs[0];
}

static inline trm_tensor *net_unary(trm_network *network, const char *name, trm_activation activation, trm_tensor *x)
{
    trm_tensor *output = NULL;
    assert_ok(trm_network_add_activation(network, name, activation, x, &output));
    return output;
}

static inline trm_tensor *net_binary(trm_network *network, const char *name, trm_elementwise_op op, trm_tensor *a,
                                     trm_tensor *b)
{
    trm_tensor *output = NULL;
    assert_ok(trm_network_add_elementwise(network, name, op, a, b, &output));
    return output;
}

/* x @ w^T */
static inline trm_tensor *net_linear(trm_network *network, const char *name, trm_tensor *x, trm_tensor *w)
{
    trm_tensor *output = NULL;
    assert_ok(trm_network_add_matmul(network, name, x, w, NULL, true, &output));
    return output;
}

static inline trm_tensor *net_norm(trm_network *network, const char *name, trm_tensor *x, trm_tensor *weight)
{
    return net_layer(network, name, (trm_layer_desc){.kind = TRM_LAYER_NORM, .norm = {.eps = 0.5f}}, x, weight, NULL,
                     NULL);
}

static inline void net_output(trm_network *network, trm_tensor *tensor)
{
    assert_ok(trm_network_mark_output(network, tensor));
}

/* Positions, producers and the order of layers fit together. */
static inline void assert_consistent(const trm_network *network)
{
    for (int32_t i = 0; i < network->n_tensors; i++) {
        const trm_tensor *tensor = network->tensors[i];
        assert_int_equal(tensor->index, i);
        assert_true((tensor->role == TRM_TENSOR_ACTIVATION) == (tensor->producer != NULL));
        assert_true(tensor->role != TRM_TENSOR_CONSTANT || (tensor->value == NULL) != (tensor->weight == NULL));
    }
    for (int32_t i = 0; i < network->n_layers; i++) {
        const trm_layer *layer = network->layers[i];
        assert_int_equal(layer->index, i);
        for (int32_t j = 0; j < layer->n_inputs; j++) {
            const trm_tensor *input = layer->inputs[j];
            assert_true(input == NULL || network->tensors[input->index] == input);
            assert_true(input == NULL || input->producer == NULL || input->producer->index < i);
        }
    }
}

static inline void assert_text(const trm_network *network, const char *expected)
{
    char *text = trm_network_to_text(network);
    assert_non_null(text);
    if (strcmp(text, expected) != 0) {
        print_error("the network is\n%sexpected\n%s", text, expected);
        fail();
    }
    trm_free(text);
}

#endif
