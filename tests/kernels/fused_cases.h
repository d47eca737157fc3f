/*
 * Random networks of layers that take elements one by one, run layer by layer and fused, on one backend.
 */
#ifndef TESTS_KERNELS_FUSED_CASES_H
#define TESTS_KERNELS_FUSED_CASES_H

#include <math.h>
#include <stdio.h>

#include "graph/nets.h"
#include "support/interpreter.h"

typedef struct fused_maker {
    trm_network *network;
    uint64_t random;
    trm_tensor *tensors[64];
    int32_t n;
} fused_maker;

/* A tensor of a type (NONE: any), of the whole dims if `whole`. */
static inline trm_tensor *fused_pick(fused_maker *self, trm_dtype dtype, bool whole)
{
    for (int32_t tries = 0; tries < 200; tries++) {
        trm_tensor *tensor = self->tensors[test_random_below(&self->random, self->n)];
        if ((dtype == TRM_DTYPE_NONE || tensor->dtype == dtype) &&
            (!whole || trm_dims_equal(&tensor->dims, &self->tensors[0]->dims))) {
            return tensor;
        }
    }
    return NULL;
}

static inline trm_tensor *fused_put(fused_maker *self, trm_layer_desc desc, trm_tensor *a, trm_tensor *b, trm_tensor *c)
{
    trm_tensor *inputs[] = {a, b, c}, *output = NULL;
    if (self->n < 64 && trm_network_add_layer(self->network, "t", &desc, inputs,
                                              c != NULL   ? 3
                                              : b != NULL ? 2
                                                          : 1,
                                              &output) == TRM_OK) {
        self->tensors[self->n++] = output;
    }
    return output;
}

static inline void fused_add_step(fused_maker *self)
{
    static const trm_dtype types[] = {TRM_F32, TRM_F32, TRM_F16, TRM_BF16, TRM_F64, TRM_I32,
                                      TRM_I64, TRM_I8,  TRM_U8,  TRM_U64,  TRM_BOOL};
    trm_tensor *a = fused_pick(self, TRM_DTYPE_NONE, true), *b, *c;
    trm_layer_desc desc = {.kind = TRM_LAYER_UNARY};
    switch (test_random_below(&self->random, 8)) {
    case 0:
    case 1:
    case 2: /* types that an operation does not take are refused, and nothing is added */
        b = fused_pick(self, a->dtype, false);
        desc = (trm_layer_desc){
            .kind = TRM_LAYER_ELEMENTWISE,
            .elementwise = {(trm_elementwise_op)test_random_below(&self->random, TRM_ELEMENTWISE_PRELU + 1)}};
        fused_put(self, desc, test_random_below(&self->random, 2) != 0 ? a : b,
                  test_random_below(&self->random, 2) != 0 ? b : a, NULL);
        break;
    case 3:
        desc.unary.op = TRM_UNARY_ACTIVATION;
        desc.unary.activation = (trm_activation)(1 + test_random_below(&self->random, TRM_ACTIVATION_SOFTSIGN));
        fused_put(self, desc, a, NULL, NULL);
        break;
    case 4:
    case 5:
        desc.unary = (trm_unary_params){.op = (trm_unary_op)(1 + test_random_below(&self->random, TRM_UNARY_SWISH)),
                                        .alpha = 0.25f + 0.25f * (float)test_random_below(&self->random, 4),
                                        .beta = 1.5f};
        fused_put(self, desc, a, NULL, NULL);
        break;
    case 6:
        b = fused_pick(self, TRM_BOOL, false);
        c = fused_pick(self, a->dtype, false);
        if (b != NULL) {
            fused_put(self, (trm_layer_desc){.kind = TRM_LAYER_SELECT}, b, a, c);
        }
        break;
    default:
        desc = (trm_layer_desc){.kind = TRM_LAYER_CAST, .cast = {.to = types[test_random_below(&self->random, 11)]}};
        fused_put(self, desc, a, NULL, NULL);
        break;
    }
}

/* Inputs x0 .. x3 in f32 of dims that broadcast, up to 60 layers, and casts to f32 of the last ones as outputs. */
static inline trm_network *fused_network(uint64_t seed)
{
    static const trm_dims whole[] = {{3, {3, 5, 64}}, {2, {7, 33}}, {4, {2, 3, 4, 8}}, {1, {1000}}, {3, {4, 1, 24}}};
    fused_maker self = {.network = net_create(), .random = seed};
    trm_dims dims = whole[seed % 5];
    for (int32_t i = 0; i < 4; i++) {
        char name[16];
        trm_dims own = dims;
        for (int32_t k = 0; i > 1 && k < own.n; k++) {
            own.d[k] = test_random_below(&self.random, 2) != 0 ? 1 : own.d[k];
        }
        snprintf(name, sizeof(name), "x%d", (int)i);
        self.tensors[self.n++] = net_input(self.network, name, TRM_F32, own);
    }
    const float half = 0.5f;
    assert_ok(trm_network_add_constant(self.network, "half", TRM_F32, (trm_dims){0}, &half, &self.tensors[self.n++]));
    for (int32_t i = 0; i < 80; i++) {
        fused_add_step(&self);
    }
    int32_t outputs = 0;
    for (int32_t i = self.n; i-- > 5 && outputs < 3; outputs++) {
        trm_layer_desc desc = {.kind = TRM_LAYER_CAST, .cast = {.to = TRM_F32}};
        trm_tensor *wide = net_layer(self.network, "wide", desc, self.tensors[i], NULL, NULL, NULL);
        net_output(self.network, net_unary(self.network, "out", TRM_ACTIVATION_RELU, wide));
    }
    return self.network;
}

static inline test_interpreter *fused_run(const trm_network *network, trm_backend backend, trm_device *device,
                                          uint64_t seed)
{
    test_interpreter_options options = {.backend = backend, .device = device};
    test_interpreter *interpreter = NULL;
    assert_ok(test_interpreter_create(network, &options, &interpreter));
    for (int32_t i = 0; i < trm_network_input_count(network); i++) {
        const trm_tensor *input = trm_network_input(network, i);
        const size_t count = (size_t)trm_dims_count(&input->dims);
        float *values = malloc(count * sizeof(float));
        uint64_t random = seed + (uint64_t)i;
        assert_non_null(values);
        for (size_t k = 0; k < count; k++) {
            values[k] = 3 * test_random_float(&random);
        }
        assert_ok(test_interpreter_set_input(interpreter, input->name, &input->dims, values));
        free(values);
    }
    assert_ok(test_interpreter_run(interpreter));
    return interpreter;
}

/* Runs network number `seed` both ways: how many elements there are, and how many differ by more than `tolerance` times
 * their size. */
static inline void fused_compare(trm_backend backend, trm_device *device, uint64_t seed, float tolerance,
                                 int64_t *elements, int64_t *different, int32_t *fused_layers)
{
    trm_network *network = fused_network(seed), *fused = NULL;
    assert_ok(trm_network_clone(network, &fused));
    assert_ok(trm_pass_fuse_elementwise(fused, fused_layers));
    assert_consistent(fused);
    test_interpreter *plain = fused_run(network, backend, device, seed),
                     *whole = fused_run(fused, backend, device, seed);
    for (int32_t i = 0; i < network->n_outputs; i++) {
        trm_dims dims;
        const float *expected = test_interpreter_output(plain, network->outputs[i]->name, &dims);
        const float *found = test_interpreter_output(whole, network->outputs[i]->name, &dims);
        for (int64_t k = 0; k < trm_dims_count(&dims); k++) {
            const bool same = found[k] == expected[k] || (isnan(found[k]) && isnan(expected[k])) ||
                              fabsf(found[k] - expected[k]) <= tolerance * fabsf(expected[k]);
            *different += !same;
            ++*elements;
            if (!same && *different <= 3) {
                print_message("network %d: %s[%lld] is %g, layer by layer %g\n", (int)seed, network->outputs[i]->name,
                              (long long)k, (double)found[k], (double)expected[k]);
            }
        }
    }
    test_interpreter_destroy(plain);
    test_interpreter_destroy(whole);
    trm_network_destroy(fused);
    trm_network_destroy(network);
}

#endif
