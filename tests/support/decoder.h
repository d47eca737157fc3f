/* Language model blocks built through the public calls, with random weights that nothing reads unless asked to. */
#ifndef TESTS_SUPPORT_DECODER_H
#define TESTS_SUPPORT_DECODER_H

#include "graph/network.h"

typedef struct test_decoder {
    int32_t layers;
    int64_t hidden, heads, kv_heads, head_dim, intermediate, vocab;
    bool tied;      /* the head is the embedding table */
    bool parallel;  /* GPT-NeoX: x + (attention(norm(x)) + mlp(norm(x))), LayerNorm, biases, no GLU */
    bool bias;      /* on q, k, v (Qwen2) */
    bool post_norm; /* Gemma: norms after attention and MLP too */
    trm_dtype dtype;
    float spread; /* of the weights */
} test_decoder;

/*
 * Inputs token_ids [T], positions [T], sequence_starts [S + 1], sequence_lengths [S], block_table [S, blocks]; states
 * layers.N.key_cache and value_cache; output logits f32 [T, vocab]. Layers are named as in Hugging Face:
 * "layers.0.q_proj", "layers.0.down_proj", ...
 */
trm_network *test_decoder_network(const test_decoder *decoder);

#endif
