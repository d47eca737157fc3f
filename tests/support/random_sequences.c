/* Layers of random networks that work on sequences and heads: attention, recurrent states, adapters, plugins. */
#include "support/random_layers.h"

#include <stdio.h>

#include "support/product_plugin.h"

static trm_tensor *project(gen *g, trm_tensor *x, int64_t heads, int64_t head_dim)
{
    int64_t depth = x->dims.d[x->dims.n - 1];
    trm_layer_desc linear = {.kind = TRM_LAYER_MATMUL, .matmul = {.transpose_b = true}};
    trm_layer_desc reshape = {.kind = TRM_LAYER_RESHAPE, .reshape = {{3, {0, heads, head_dim}}}};
    trm_tensor *w = constant(g, (trm_dims){2, {heads * head_dim, depth}}, 1.5f / (float)depth);
    return add(g, &reshape, add_n(g, &linear, (trm_tensor *[]){x, w}, 2));
}

/* Of each head the last `rotary` elements. */
static trm_tensor *rotate_last(gen *g, trm_tensor *x, int32_t rotary)
{
    static const int32_t places[] = {3, 0, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5};
    trm_layer_desc desc = {.kind = TRM_LAYER_ROPE,
                           .rope = {.rotary_dim = rotary, .magnitude = 1.0f, .first = (int32_t)x->dims.d[2] - rotary}};
    trm_tensor *frequencies = constant(g, (trm_dims){1, {rotary / 2}}, 1.0f), *positions = g->positions;
    if (x->dims.d[0] >= 0) {
        trm_dims dims = {1, {x->dims.d[0]}};
        assert_ok(trm_network_add_constant(g->network, "places", TRM_I32, dims, places, &positions));
    }
    return add_n(g, &desc, (trm_tensor *[]){x, positions, frequencies}, 3);
}

static trm_tensor *rotate(gen *g, trm_tensor *x)
{
    return rotate_last(g, x, (int32_t)x->dims.d[2]);
}

/* Rotary positions of heads, of a known or an unknown number of tokens. */
bool test_make_rope(gen *g, trm_tensor *x)
{
    if (x->dims.n != 3 || x->dims.d[0] > 12 || x->dims.d[1] < 1 || x->dims.d[2] < 2 || x->dims.d[2] % 2 != 0) {
        return false;
    }
    rotate(g, x);
    return true;
}

/* An input of the one sequence of all tokens. */
static trm_tensor *sequence_input(gen *g, const char *name, trm_dims dims)
{
    trm_tensor *input = trm_network_find_tensor(g->network, name);
    if (input == NULL) {
        assert_ok(trm_network_add_input(g->network, name, TRM_I32, dims, &input));
    }
    return input;
}

bool test_make_packed_attention(gen *g, trm_tensor *x)
{
    if (x->dims.n != 2 || x->dims.d[1] < 1 || x->dims.d[0] >= 0) {
        return false;
    }
    int64_t kv_heads = 1 + below(g, 4), heads = kv_heads * (1 + below(g, 4)), head_dim = 2 + 2 * below(g, 2);
    trm_tensor *inputs[TRM_ATTENTION_INPUT_COUNT] = {
        rotate(g, project(g, x, heads, head_dim)), rotate(g, project(g, x, kv_heads, head_dim)),
        project(g, x, kv_heads, head_dim), sequence_input(g, "starts", trm_dims1(2))};
    inputs[TRM_ATTENTION_SINKS] = below(g, 3) == 0 ? constant(g, (trm_dims){1, {heads}}, 1.0f) : NULL;
    trm_layer_desc desc = {.kind = TRM_LAYER_ATTENTION,
                           .attention = {.causal = below(g, 2) == 0 ? TRM_CAUSAL_LOWER_RIGHT : TRM_CAUSAL_NONE}};
    trm_layer_desc join = {.kind = TRM_LAYER_RESHAPE, .reshape = {{2, {0, heads * head_dim}}}};
    add(g, &join, add_n(g, &desc, inputs, TRM_ATTENTION_INPUT_COUNT));
    return true;
}

bool test_make_latent_attention(gen *g, trm_tensor *x)
{
    if (x->dims.n != 2 || x->dims.d[1] < 1 || x->dims.d[0] >= 0) {
        return false;
    }
    const int64_t heads = 1 + below(g, 8), plain = below(g, 4), value_dim = 1 + below(g, 3), rank = 1 + below(g, 5);
    const int32_t rotated = 2 + 2 * (int32_t)below(g, 2);
    trm_tensor *weight = constant(g, trm_dims2(rank, x->dims.d[1]), 1.5f / (float)x->dims.d[1]), *cache;
    char name[32];
    snprintf(name, sizeof(name), "cache.%d", (int)g->network->n_layers);
    assert_ok(trm_network_add_state(g->network, name, TRM_F32, trm_dims3(1, 64, rank + rotated), &cache));
    trm_layer_desc linear = {.kind = TRM_LAYER_MATMUL, .matmul = {.transpose_b = true}};
    trm_tensor *inputs[TRM_LATENT_ATTENTION_INPUT_COUNT] = {
        rotate_last(g, project(g, x, heads, plain + rotated), rotated),
        add_n(g, &linear, (trm_tensor *[]){x, weight}, 2),
        rotate(g, project(g, x, 1, rotated)),
        constant(g, trm_dims3(heads, plain + value_dim, rank), 1.0f),
        sequence_input(g, "starts", trm_dims1(2)),
        sequence_input(g, "lengths", trm_dims1(1)),
        sequence_input(g, "table", trm_dims2(1, 1)),
        cache};
    trm_layer_desc desc = {.kind = TRM_LAYER_LATENT_ATTENTION};
    trm_layer_desc join = {.kind = TRM_LAYER_RESHAPE, .reshape = {{2, {0, heads * value_dim}}}};
    add(g, &join, add_n(g, &desc, inputs, TRM_LATENT_ATTENTION_INPUT_COUNT));
    return true;
}

/* A product with x [T, n] to [T, heads, dim], by way of a short convolution with a state. */
static trm_tensor *convolved_heads(gen *g, trm_tensor *x, trm_tensor *const sequences[3], int64_t heads, int64_t dim)
{
    const trm_layer_desc convolution = {.kind = TRM_LAYER_SHORT_CONVOLUTION,
                                        .short_convolution = {.activation = TRM_ACTIVATION_SILU}};
    const trm_layer_desc linear = {.kind = TRM_LAYER_MATMUL, .matmul = {.transpose_b = true}};
    const trm_layer_desc split = {.kind = TRM_LAYER_RESHAPE, .reshape = {trm_dims3(0, heads, dim)}};
    const int64_t channels = heads * dim;
    trm_tensor *weight = constant(g, trm_dims2(channels, x->dims.d[1]), 1.5f / (float)x->dims.d[1]), *cache;
    char name[32];
    snprintf(name, sizeof(name), "inputs.%d", (int)g->network->n_layers);
    assert_ok(trm_network_add_state(g->network, name, TRM_F32, trm_dims3(1, 3, channels), &cache));
    trm_tensor *inputs[TRM_SHORT_CONVOLUTION_INPUT_COUNT] = {add_n(g, &linear, (trm_tensor *[]){x, weight}, 2),
                                                             constant(g, trm_dims2(channels, 3), 1.0f),
                                                             sequences[0],
                                                             sequences[1],
                                                             sequences[2],
                                                             cache};
    if (below(g, 2) == 0) {
        inputs[TRM_SHORT_CONVOLUTION_BIAS] = constant(g, trm_dims1(channels), 1.0f);
    }
    return add(g, &split, add_n(g, &convolution, inputs, TRM_SHORT_CONVOLUTION_INPUT_COUNT));
}

static trm_tensor *product(gen *g, trm_tensor *x, int64_t columns)
{
    const trm_layer_desc linear = {.kind = TRM_LAYER_MATMUL, .matmul = {.transpose_b = true}};
    trm_tensor *weight = constant(g, trm_dims2(columns, x->dims.d[1]), 1.5f / (float)x->dims.d[1]);
    return add_n(g, &linear, (trm_tensor *[]){x, weight}, 2);
}

/* Starts, lengths and slots. */
static void sequence_inputs(gen *g, trm_tensor *sequences[3])
{
    sequences[0] = sequence_input(g, "starts", trm_dims1(2));
    sequences[1] = sequence_input(g, "lengths", trm_dims1(1));
    sequences[2] = sequence_input(g, "slots", trm_dims2(1, 2));
}

/* The gated delta rule, of a convolution's queries, keys and values. */
bool test_make_delta(gen *g, trm_tensor *x)
{
    if (x->dims.n != 2 || x->dims.d[1] < 1 || x->dims.d[0] >= 0) {
        return false;
    }
    const int64_t key_heads = 1 + below(g, 4), heads = key_heads * (1 + below(g, 3)), dk = 1 + below(g, 4);
    const int64_t dv = 1 + below(g, 3);
    trm_tensor *inputs[TRM_GATED_DELTA_INPUT_COUNT], *sequences[3];
    sequence_inputs(g, sequences);
    for (int32_t i = TRM_GATED_DELTA_Q; i <= TRM_GATED_DELTA_V; i++) {
        inputs[i] = convolved_heads(g, x, sequences, i == TRM_GATED_DELTA_V ? heads : key_heads,
                                    i == TRM_GATED_DELTA_V ? dv : dk);
    }
    inputs[TRM_GATED_DELTA_A] = product(g, x, heads);
    inputs[TRM_GATED_DELTA_B] = product(g, x, heads);
    inputs[TRM_GATED_DELTA_A_LOG] = constant(g, trm_dims1(heads), 1.0f);
    inputs[TRM_GATED_DELTA_A_BIAS] = constant(g, trm_dims1(heads), 1.0f);
    for (int32_t i = 0; i < 3; i++) {
        inputs[TRM_GATED_DELTA_SEQUENCE_STARTS + i] = sequences[i];
    }
    char name[32];
    snprintf(name, sizeof(name), "state.%d", (int)g->network->n_layers);
    const trm_dims dims = {5, {1, 2, heads, dk, dv}};
    assert_ok(trm_network_add_state(g->network, name, TRM_F32, dims, &inputs[TRM_GATED_DELTA_STATE]));
    const trm_layer_desc desc = {.kind = TRM_LAYER_GATED_DELTA, .gated_delta = {.eps = 1e-3f}};
    const trm_layer_desc join = {.kind = TRM_LAYER_RESHAPE, .reshape = {trm_dims2(0, heads * dv)}};
    add(g, &join, add_n(g, &desc, inputs, TRM_GATED_DELTA_INPUT_COUNT));
    return true;
}

/* A selective scan of what convolutions give. */
bool test_make_scan(gen *g, trm_tensor *x)
{
    if (x->dims.n != 2 || x->dims.d[1] < 1 || x->dims.d[0] >= 0) {
        return false;
    }
    const int64_t groups = 1 + below(g, 4), heads = groups * (1 + below(g, 3)), dim = 1 + below(g, 4);
    const int64_t columns = 1 + below(g, 3);
    trm_tensor *inputs[TRM_SELECTIVE_SCAN_INPUT_COUNT], *sequences[3];
    sequence_inputs(g, sequences);
    inputs[TRM_SELECTIVE_SCAN_X] = convolved_heads(g, x, sequences, heads, dim);
    inputs[TRM_SELECTIVE_SCAN_B] = convolved_heads(g, x, sequences, groups, columns);
    inputs[TRM_SELECTIVE_SCAN_C] = convolved_heads(g, x, sequences, groups, columns);
    inputs[TRM_SELECTIVE_SCAN_STEP] = product(g, x, heads);
    for (int32_t i = TRM_SELECTIVE_SCAN_A_LOG; i <= TRM_SELECTIVE_SCAN_SKIP; i++) {
        inputs[i] = constant(g, trm_dims1(heads), 1.0f);
    }
    for (int32_t i = 0; i < 3; i++) {
        inputs[TRM_SELECTIVE_SCAN_SEQUENCE_STARTS + i] = sequences[i];
    }
    char name[32];
    snprintf(name, sizeof(name), "state.%d", (int)g->network->n_layers);
    const trm_dims dims = {5, {1, 2, heads, dim, columns}};
    assert_ok(trm_network_add_state(g->network, name, TRM_F32, dims, &inputs[TRM_SELECTIVE_SCAN_STATE]));
    const trm_layer_desc desc = {.kind = TRM_LAYER_SELECTIVE_SCAN, .selective_scan = {.step_max = 1.0f}};
    const trm_layer_desc join = {.kind = TRM_LAYER_RESHAPE, .reshape = {trm_dims2(0, heads * dim)}};
    add(g, &join, add_n(g, &desc, inputs, TRM_SELECTIVE_SCAN_INPUT_COUNT));
    return true;
}

/* Adapters beside a product, of some tokens. */
bool test_make_lora(gen *g, trm_tensor *x)
{
    if (x->dims.n != 2 || x->dims.d[0] < 1 || x->dims.d[1] < 1) {
        return false;
    }
    int32_t slots[32];
    const int64_t tokens = x->dims.d[0], columns = pick_size(g), rank = 1 + below(g, 4), adapters = 1 + below(g, 3);
    for (int64_t i = 0; i < 32; i++) {
        slots[i] = (int32_t)below(g, adapters + 2) - 1;
    }
    if (tokens > 32) {
        return false;
    }
    trm_tensor *inputs[TRM_LORA_INPUT_COUNT] = {x};
    assert_ok(trm_network_add_constant(g->network, "adapter_slots", TRM_I32, trm_dims1(tokens), slots,
                                       &inputs[TRM_LORA_SLOTS]));
    inputs[TRM_LORA_Y] = product(g, x, columns);
    inputs[TRM_LORA_A] = constant(g, trm_dims3(adapters, rank, x->dims.d[1]), 1.0f);
    inputs[TRM_LORA_B] = constant(g, trm_dims3(adapters, columns, rank), 1.0f);
    const trm_layer_desc desc = {.kind = TRM_LAYER_LORA};
    add_n(g, &desc, inputs, TRM_LORA_INPUT_COUNT);
    return true;
}

bool test_make_plugin(gen *g, trm_tensor *x)
{
    const int64_t k = x->dims.n > 0 ? x->dims.d[x->dims.n - 1] : 0;
    if (k < 1) {
        return false;
    }
    const trm_layer_desc desc = {.kind = TRM_LAYER_PLUGIN, .plugin = {test_product_plugin()}};
    add_n(g, &desc, (trm_tensor *[]){x, constant(g, trm_dims2(k, pick_size(g)), 1.5f / (float)k)}, 2);
    return true;
}

bool test_make_padded_attention(gen *g, trm_tensor *x)
{
    trm_dims dims = x->dims;
    if (dims.n != 4 || dims.d[0] < 1 || dims.d[1] < 1 || dims.d[2] < 1 || dims.d[3] < 1) {
        return false;
    }
    int64_t shared = dims.d[1] % 2 == 0 ? 2 : 1;
    trm_dims kv = {4, {dims.d[0], dims.d[1] / shared, 3, dims.d[3]}};
    trm_tensor *inputs[TRM_ATTENTION_INPUT_COUNT] = {x, constant(g, kv, 1.0f), constant(g, kv, 1.0f)};
    if (below(g, 2) == 0) {
        trm_dims mask = {4, {below(g, 2) == 0 ? 1 : dims.d[0], below(g, 2) == 0 ? 1 : dims.d[1], dims.d[2], 3}};
        inputs[TRM_ATTENTION_MASK] = constant(g, mask, 1.0f);
    }
    inputs[TRM_ATTENTION_SINKS] = below(g, 3) == 0 ? constant(g, (trm_dims){1, {dims.d[1]}}, 1.0f) : NULL;
    trm_layer_desc desc = {
        .kind = TRM_LAYER_ATTENTION,
        .attention = {.form = TRM_ATTENTION_PADDED_BHND, .causal = (trm_causal)below(g, TRM_CAUSAL_LOWER_RIGHT + 1)}};
    desc.attention.window = desc.attention.causal == TRM_CAUSAL_NONE ? 0 : (int32_t)below(g, 3);
    desc.attention.chunked = desc.attention.window > 0 && below(g, 3) == 0;
    add_n(g, &desc, inputs, TRM_ATTENTION_INPUT_COUNT);
    return true;
}

/* The padded form written out, as exporters do. */
bool test_make_written_attention(gen *g, trm_tensor *x)
{
    trm_dims dims = x->dims;
    if (dims.n != 4 || has_unknown(x) || dims.d[0] < 1 || dims.d[1] < 1 || dims.d[2] < 1 || dims.d[3] < 1) {
        return false;
    }
    trm_layer_desc product = {.kind = TRM_LAYER_MATMUL}, softmax = {.kind = TRM_LAYER_SOFTMAX, .softmax = {3}};
    trm_layer_desc times = {.kind = TRM_LAYER_ELEMENTWISE, .elementwise = {TRM_ELEMENTWISE_MUL}};
    trm_layer_desc plus = {.kind = TRM_LAYER_ELEMENTWISE, .elementwise = {TRM_ELEMENTWISE_ADD}};
    trm_layer_desc turn = {.kind = TRM_LAYER_TRANSPOSE, .transpose = {{0, 1, 3, 2}}};
    trm_dims kv = {4, {dims.d[0], dims.d[1], 3, dims.d[3]}}, mask = {4, {1, 1, dims.d[2], 3}};
    trm_tensor *k = add(g, &turn, constant(g, kv, 1.0f));
    trm_tensor *scores = add_n(g, &product, (trm_tensor *[]){x, k}, 2);
    scores = add_n(g, &times, (trm_tensor *[]){scores, constant(g, (trm_dims){0}, 0.5f)}, 2);
    scores = below(g, 2) == 0 ? scores : add_n(g, &plus, (trm_tensor *[]){scores, constant(g, mask, 1.0f)}, 2);
    add_n(g, &product, (trm_tensor *[]){add(g, &softmax, scores), constant(g, kv, 1.0f)}, 2);
    return true;
}

/* Angles for the last axes of x. */
bool test_make_rotate(gen *g, trm_tensor *x)
{
    const int32_t n = x->dims.n;
    const int64_t width = n < 1 ? 0 : x->dims.d[n - 1];
    if (n < 2 || width < 2) {
        return false;
    }
    trm_layer_desc desc = {.kind = TRM_LAYER_ROTATE,
                           .rotate = {.rotary_dim = (int32_t)(width / 2 * 2), .interleaved = below(g, 2) == 0}};
    const int64_t rows = x->dims.d[n - 2] < 1 || below(g, 2) == 0 ? 1 : x->dims.d[n - 2];
    trm_dims angles = {2, {rows, below(g, 2) == 0 ? width / 2 * 2 : width / 2}};
    add_n(g, &desc, (trm_tensor *[]){x, constant(g, angles, 1.0f), constant(g, angles, 1.0f)}, 3);
    return true;
}
