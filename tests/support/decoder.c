/* Builds decoder networks for tests. */
#include "support/decoder.h"

#include <stdio.h>

#include "support/support.h"

typedef struct build {
    trm_network *network;
    const test_decoder *decoder;
    uint64_t seed;
    int32_t layer; /* -1: outside the layers */
} build;

static const char *name_of(const build *b, const char *what, char *name, size_t size)
{
    if (b->layer >= 0) {
        snprintf(name, size, "layers.%d.%s", (int)b->layer, what);
    } else {
        snprintf(name, size, "%s", what);
    }
    return name;
}

static trm_tensor *weight(build *b, const char *what, trm_dims dims, float mean, float spread)
{
    char name[128];
    trm_weight *random;
    trm_tensor *tensor;
    assert_ok(trm_weight_random(b->decoder->dtype, &dims, b->seed++, mean, spread, &random));
    assert_ok(
        trm_network_add_weight(b->network, name_of(b, what, name, sizeof(name)), random, b->decoder->dtype, &tensor));
    return tensor;
}

static trm_tensor *add(build *b, const char *what, trm_layer_desc desc, trm_tensor *const *inputs, int32_t n)
{
    char name[128];
    trm_tensor *outputs[TRM_MAX_LAYER_OUTPUTS];
    assert_ok(trm_network_add_layer(b->network, name_of(b, what, name, sizeof(name)), &desc, inputs, n, outputs));
    return outputs[0];
}

static trm_tensor *linear(build *b, const char *what, trm_tensor *x, int64_t out, bool bias)
{
    char name[96];
    int64_t in = x->dims.d[x->dims.n - 1];
    snprintf(name, sizeof(name), "%s.weight", what);
    trm_tensor *w = weight(b, name, (trm_dims){2, {out, in}}, 0.0f, b->decoder->spread);
    snprintf(name, sizeof(name), "%s.bias", what);
    trm_tensor *inputs[3] = {x, w, bias ? weight(b, name, (trm_dims){1, {out}}, 0.0f, b->decoder->spread) : NULL};
    return add(b, what, (trm_layer_desc){.kind = TRM_LAYER_MATMUL, .matmul = {.transpose_b = true}}, inputs, 3);
}

static trm_tensor *norm(build *b, const char *what, trm_tensor *x)
{
    char name[96];
    bool layer_norm = b->decoder->parallel;
    trm_dims dims = {1, {x->dims.d[x->dims.n - 1]}};
    snprintf(name, sizeof(name), "%s.weight", what);
    trm_tensor *inputs[3] = {x, weight(b, name, dims, 1.0f, 0.1f), NULL};
    snprintf(name, sizeof(name), "%s.bias", what);
    inputs[2] = layer_norm ? weight(b, name, dims, 0.0f, 0.1f) : NULL;
    trm_layer_desc desc = {.kind = TRM_LAYER_NORM,
                           .norm = {.op = layer_norm ? TRM_NORM_LAYER : TRM_NORM_RMS, .eps = 1e-5f}};
    return add(b, what, desc, inputs, 3);
}

static trm_tensor *sum(build *b, const char *what, trm_tensor *x, trm_tensor *y)
{
    return add(b, what, (trm_layer_desc){.kind = TRM_LAYER_ELEMENTWISE}, (trm_tensor *[]){x, y}, 2);
}

static trm_tensor *reshape(build *b, const char *what, trm_tensor *x, trm_dims dims)
{
    return add(b, what, (trm_layer_desc){.kind = TRM_LAYER_RESHAPE, .reshape = {dims}}, &x, 1);
}

static trm_tensor *input(build *b, const char *name, trm_dims dims)
{
    trm_tensor *tensor = trm_network_find_tensor(b->network, name);
    if (tensor == NULL) {
        assert_ok(trm_network_add_input(b->network, name, TRM_I32, dims, &tensor));
    }
    return tensor;
}

static trm_tensor *rope(build *b, const char *what, trm_tensor *x)
{
    const test_decoder *d = b->decoder;
    trm_tensor *frequencies = trm_network_find_tensor(b->network, "inv_freq");
    if (frequencies == NULL) {
        float values[256];
        for (int64_t i = 0; i < d->head_dim / 2; i++) {
            values[i] = 1.0f / (float)(1 + 3 * i);
        }
        assert_ok(trm_network_add_constant(b->network, "inv_freq", TRM_F32, (trm_dims){1, {d->head_dim / 2}}, values,
                                           &frequencies));
    }
    trm_layer_desc desc = {.kind = TRM_LAYER_ROPE, .rope = {.rotary_dim = (int32_t)d->head_dim, .magnitude = 1.0f}};
    return add(b, what, desc, (trm_tensor *[]){x, input(b, "positions", (trm_dims){1, {-1}}), frequencies}, 3);
}

static trm_tensor *cache(build *b, const char *what)
{
    const test_decoder *d = b->decoder;
    char name[128];
    trm_tensor *tensor;
    assert_ok(trm_network_add_state(b->network, name_of(b, what, name, sizeof(name)), d->dtype,
                                    (trm_dims){4, {-1, 16, d->kv_heads, d->head_dim}}, &tensor));
    return tensor;
}

static trm_tensor *attention(build *b, trm_tensor *x)
{
    const test_decoder *d = b->decoder;
    bool bias = d->bias || d->parallel;
    trm_tensor *q = linear(b, "q_proj", x, d->heads * d->head_dim, bias);
    trm_tensor *k = linear(b, "k_proj", x, d->kv_heads * d->head_dim, bias);
    trm_tensor *v = linear(b, "v_proj", x, d->kv_heads * d->head_dim, bias);
    trm_tensor *inputs[TRM_ATTENTION_INPUT_COUNT] = {
        [TRM_ATTENTION_Q] = rope(b, "q_rope", reshape(b, "q_heads", q, (trm_dims){3, {0, d->heads, d->head_dim}})),
        [TRM_ATTENTION_K] = rope(b, "k_rope", reshape(b, "k_heads", k, (trm_dims){3, {0, d->kv_heads, d->head_dim}})),
        [TRM_ATTENTION_V] = reshape(b, "v_heads", v, (trm_dims){3, {0, d->kv_heads, d->head_dim}}),
        [TRM_ATTENTION_SEQUENCE_STARTS] = input(b, "sequence_starts", (trm_dims){1, {-1}}),
        [TRM_ATTENTION_SEQUENCE_LENGTHS] = input(b, "sequence_lengths", (trm_dims){1, {-1}}),
        [TRM_ATTENTION_BLOCK_TABLE] = input(b, "block_table", (trm_dims){2, {-1, -1}}),
        [TRM_ATTENTION_KEY_CACHE] = cache(b, "key_cache"),
        [TRM_ATTENTION_VALUE_CACHE] = cache(b, "value_cache"),
    };
    trm_layer_desc desc = {.kind = TRM_LAYER_ATTENTION, .attention = {.causal = TRM_CAUSAL_LOWER_RIGHT}};
    trm_tensor *heads = add(b, "attention", desc, inputs, TRM_ATTENTION_INPUT_COUNT);
    trm_tensor *joined = reshape(b, "attention_joined", heads, (trm_dims){2, {0, d->heads * d->head_dim}});
    return linear(b, "o_proj", joined, d->hidden, d->parallel);
}

static trm_tensor *mlp(build *b, trm_tensor *x)
{
    const test_decoder *d = b->decoder;
    if (d->parallel) {
        trm_tensor *up = linear(b, "up_proj", x, d->intermediate, true);
        trm_layer_desc gelu = {.kind = TRM_LAYER_UNARY, .unary = {.activation = TRM_ACTIVATION_GELU}};
        return linear(b, "down_proj", add(b, "gelu", gelu, &up, 1), d->hidden, true);
    }
    trm_tensor *gate = linear(b, "gate_proj", x, d->intermediate, false);
    trm_tensor *up = linear(b, "up_proj", x, d->intermediate, false);
    trm_layer_desc silu = {.kind = TRM_LAYER_UNARY, .unary = {.activation = TRM_ACTIVATION_SILU}};
    trm_layer_desc mul = {.kind = TRM_LAYER_ELEMENTWISE, .elementwise = {TRM_ELEMENTWISE_MUL}};
    trm_tensor *activated = add(b, "silu", silu, &gate, 1);
    return linear(b, "down_proj", add(b, "gated", mul, (trm_tensor *[]){activated, up}, 2), d->hidden, false);
}

static trm_tensor *block(build *b, trm_tensor *x)
{
    const test_decoder *d = b->decoder;
    trm_tensor *y = attention(b, norm(b, "input_layernorm", x));
    if (d->parallel) {
        trm_tensor *z = mlp(b, norm(b, "post_attention_layernorm", x));
        return sum(b, "output", x, sum(b, "mlp_and_attention", z, y));
    }
    x = sum(b, "attention_output", x, d->post_norm ? norm(b, "attention_norm", y) : y);
    y = mlp(b, norm(b, "post_attention_layernorm", x));
    return sum(b, "output", x, d->post_norm ? norm(b, "mlp_norm", y) : y);
}

trm_network *test_decoder_network(const test_decoder *decoder)
{
    build b = {.decoder = decoder, .seed = 1, .layer = -1};
    assert_ok(trm_network_create(&b.network));
    trm_tensor *ids = input(&b, "token_ids", (trm_dims){1, {-1}});
    trm_dims table_dims = {2, {decoder->vocab, decoder->hidden}};
    trm_tensor *table = weight(&b, "embed_tokens.weight", table_dims, 0.0f, 1.0f);
    trm_tensor *x =
        add(&b, "embed_tokens", (trm_layer_desc){.kind = TRM_LAYER_EMBEDDING}, (trm_tensor *[]){table, ids}, 2);
    for (b.layer = 0; b.layer < decoder->layers; b.layer++) {
        x = block(&b, x);
    }
    b.layer = -1;
    x = norm(&b, "norm", x);
    trm_tensor *head = decoder->tied ? table : weight(&b, "lm_head.weight", table_dims, 0.0f, decoder->spread);
    trm_layer_desc desc = {.kind = TRM_LAYER_MATMUL, .matmul = {.transpose_b = true, .out = TRM_F32}};
    assert_ok(trm_network_mark_output(b.network, add(&b, "logits", desc, (trm_tensor *[]){x, head}, 2)));
    return b.network;
}
