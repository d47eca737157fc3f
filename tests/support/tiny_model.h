/* A Llama of one layer with random weights and any vocabulary, written to a folder. */
#ifndef TESTS_DIST_TINY_MODEL_H
#define TESTS_DIST_TINY_MODEL_H

#include <stdio.h>

#include "support/support.h"

#ifndef TINY_HIDDEN /* a test may want more of both */
#define TINY_HIDDEN 16
#define TINY_HEADS  2
#endif

static inline void tiny_model_config(const char *folder, int32_t vocab, int64_t context)
{
    char path[4400], text[1024];
    snprintf(path, sizeof(path), "%s/config.json", folder);
    int length = snprintf(text, sizeof(text),
                          "{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\",\"hidden_size\":%d,"
                          "\"intermediate_size\":24,\"num_hidden_layers\":1,\"num_attention_heads\":%d,"
                          "\"num_key_value_heads\":%d,\"vocab_size\":%d,\"max_position_embeddings\":%lld,"
                          "\"rms_norm_eps\":1e-5,\"rope_theta\":10000.0,\"hidden_act\":\"silu\","
                          "\"tie_word_embeddings\":true,\"torch_dtype\":\"float32\",\"eos_token_id\":1}",
                          TINY_HIDDEN, TINY_HEADS, TINY_HEADS, vocab, (long long)context);
    test_write_file(path, text, (size_t)length);
}

/* Returns `folder`. */
static inline const char *tiny_model(const char *folder, int32_t vocab)
{
    const struct {
        const char *name;
        int32_t rows, columns; /* 0 columns: a vector */
    } weights[] = {
        {"model.embed_tokens.weight", vocab, TINY_HIDDEN},
        {"model.layers.0.input_layernorm.weight", TINY_HIDDEN, 0},
        {"model.layers.0.mlp.down_proj.weight", TINY_HIDDEN, 24},
        {"model.layers.0.mlp.gate_proj.weight", 24, TINY_HIDDEN},
        {"model.layers.0.mlp.up_proj.weight", 24, TINY_HIDDEN},
        {"model.layers.0.post_attention_layernorm.weight", TINY_HIDDEN, 0},
        {"model.layers.0.self_attn.k_proj.weight", TINY_HIDDEN, TINY_HIDDEN},
        {"model.layers.0.self_attn.o_proj.weight", TINY_HIDDEN, TINY_HIDDEN},
        {"model.layers.0.self_attn.q_proj.weight", TINY_HIDDEN, TINY_HIDDEN},
        {"model.layers.0.self_attn.v_proj.weight", TINY_HIDDEN, TINY_HIDDEN},
        {"model.norm.weight", TINY_HIDDEN, 0},
    };
    enum { COUNT = sizeof(weights) / sizeof(weights[0]) };
    static char header[4096];
    size_t used = 8, elements = 0;
    for (size_t i = 0; i < COUNT; i++) {
        size_t count = (size_t)weights[i].rows * (size_t)(weights[i].columns == 0 ? 1 : weights[i].columns);
        char shape[32];
        snprintf(shape, sizeof(shape), weights[i].columns == 0 ? "%d" : "%d,%d", weights[i].rows, weights[i].columns);
        used += (size_t)snprintf(header + used, sizeof(header) - used,
                                 "%s\"%s\":{\"dtype\":\"F32\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}",
                                 i == 0 ? "{" : ",", weights[i].name, shape, elements * 4, (elements + count) * 4);
        elements += count;
    }
    used += (size_t)snprintf(header + used, sizeof(header) - used, "}");
    while (used % 8 != 0) {
        header[used++] = ' ';
    }
    uint64_t length = used - 8;
    memcpy(header, &length, sizeof(length));
    unsigned char *file = malloc(used + elements * sizeof(float));
    assert_non_null(file);
    memcpy(file, header, used);
    uint64_t random = test_seed();
    for (size_t i = 0; i < elements; i++) {
        float value = test_random_float(&random);
        memcpy(file + used + i * sizeof(value), &value, sizeof(value));
    }
    char path[4400];
    snprintf(path, sizeof(path), "%s/model.safetensors", folder);
    test_write_file(path, file, used + elements * sizeof(float));
    free(file);
    tiny_model_config(folder, vocab, 64);
    return folder;
}

#endif
