/* What the files of random networks share: a network that is being made, and how layers are added to it. */
#ifndef TESTS_SUPPORT_RANDOM_LAYERS_H
#define TESTS_SUPPORT_RANDOM_LAYERS_H

#include <stdlib.h>

#include "graph/network.h"
#include "kernels/kernel.h"
#include "support/support.h"

enum { MAX_POOL = 256, IDS = 7 };

typedef struct gen {
    trm_network *network;
    uint64_t seed;
    trm_tensor *pool[MAX_POOL]; /* f32 tensors made so far */
    int32_t n_pool;
    trm_tensor *ids, *positions;
} gen;

static inline int64_t below(gen *g, int64_t n)
{
    return test_random_below(&g->seed, n);
}

static inline int64_t pick_size(gen *g)
{
    static const int64_t sizes[] = {1, 2, 3, 4, 4, 5, 6, 6, 7, 8, 8, 12, 12};
    return sizes[below(g, (int64_t)(sizeof(sizes) / sizeof(sizes[0])))];
}

/* A recent tensor more often than an old one. */
static inline trm_tensor *pick(gen *g)
{
    int64_t back = below(g, 2) == 0 ? below(g, g->n_pool < 3 ? g->n_pool : 3) : below(g, g->n_pool);
    return g->pool[g->n_pool - 1 - back];
}

/* Another tensor of the same dims, or x itself. */
static inline trm_tensor *pick_like(gen *g, const trm_tensor *x)
{
    int64_t start = below(g, g->n_pool);
    for (int32_t i = 0; i < g->n_pool; i++) {
        trm_tensor *other = g->pool[(start + i) % g->n_pool];
        if (other != x && trm_dims_equal(&other->dims, &x->dims)) {
            return other;
        }
    }
    return (trm_tensor *)x;
}

static inline trm_tensor *constant(gen *g, trm_dims dims, float spread)
{
    int64_t count = trm_dims_count(&dims);
    trm_tensor *tensor;
    if (below(g, 2) == 0) {
        trm_weight *weight;
        assert_ok(trm_weight_random(TRM_F32, &dims, test_random(&g->seed), 0.0f, spread, &weight));
        assert_ok(trm_network_add_weight(g->network, "weight", weight, TRM_F32, &tensor));
        return tensor;
    }
    float *values = calloc((size_t)count + 1, sizeof(*values));
    assert_non_null(values);
    for (int64_t i = 0; i < count; i++) {
        values[i] = spread * test_random_float(&g->seed);
    }
    assert_ok(trm_network_add_constant(g->network, "constant", TRM_F32, dims, values, &tensor));
    free(values);
    return tensor;
}

static inline trm_tensor *add_n(gen *g, const trm_layer_desc *desc, trm_tensor *const *inputs, int32_t n)
{
    trm_tensor *outputs[TRM_MAX_LAYER_OUTPUTS];
    assert_ok(trm_network_add_layer(g->network, trm_layer_kind_name(desc->kind), desc, inputs, n, outputs));
    for (int32_t i = 0; i < trm_layer_output_count(desc); i++) {
        if (outputs[i]->dtype == TRM_F32 && g->n_pool < MAX_POOL) {
            g->pool[g->n_pool++] = outputs[i];
        }
    }
    return outputs[0];
}

static inline trm_tensor *add(gen *g, const trm_layer_desc *desc, trm_tensor *input)
{
    return add_n(g, desc, &input, 1);
}

static inline int32_t pick_axis(gen *g, const trm_tensor *x)
{
    return (int32_t)below(g, x->dims.n);
}

static inline trm_activation pick_activation(gen *g)
{
    return (trm_activation)below(g, TRM_ACTIVATION_QUICK_GELU + 1);
}

static inline bool has_unknown(const trm_tensor *x)
{
    bool unknown = false;
    for (int32_t i = 0; i < x->dims.n; i++) {
        unknown = unknown || x->dims.d[i] < 1;
    }
    return unknown;
}

/* random_sequences.c: one layer of a kind, or several around it; false where the tensor at hand does not suit. */
bool test_make_rope(gen *g, trm_tensor *x);
bool test_make_packed_attention(gen *g, trm_tensor *x);
bool test_make_latent_attention(gen *g, trm_tensor *x);
bool test_make_delta(gen *g, trm_tensor *x);
bool test_make_scan(gen *g, trm_tensor *x);
bool test_make_lora(gen *g, trm_tensor *x);
bool test_make_plugin(gen *g, trm_tensor *x);
bool test_make_padded_attention(gen *g, trm_tensor *x);
bool test_make_written_attention(gen *g, trm_tensor *x);
bool test_make_rotate(gen *g, trm_tensor *x);

#endif
