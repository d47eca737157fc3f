/* experts FOLDER: a small mixture of experts with random weights, one tensor for each matrix of an expert, and token
 * ids ids.npy and few.npy for it, and bad.npy, of which one is out of its vocabulary. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <trireme/trireme.h>

#include "kernels/sampling/random.h"
#include "weight_stream/safetensors_write.h"

enum { VOCAB = 96, WIDTH = 64, INNER = 80, HEADS = 4, KV_HEADS = 2, LAYERS = 2, EXPERTS = 8, MOST = 128 };

static char names[MOST][96];
static trm_safetensors_output outputs[MOST];
static size_t count;

static const char config[] =
    "{\"architectures\": [\"MixtralForCausalLM\"], \"model_type\": \"mixtral\", \"vocab_size\": 96, \"hidden_size\": "
    "64, "
    "\"intermediate_size\": 80, \"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
    "\"num_local_experts\": 8, \"num_experts_per_tok\": 2, \"max_position_embeddings\": 512, \"rms_norm_eps\": 1e-05, "
    "\"rope_theta\": 10000.0, \"hidden_act\": \"silu\", \"tie_word_embeddings\": false, \"torch_dtype\": "
    "\"float32\"}\n";

static void add(const char *name, trm_dims dims)
{
    snprintf(names[count], sizeof(names[count]), "%s", name);
    outputs[count] = (trm_safetensors_output){names[count], "F32", dims, sizeof(float)};
    count++;
}

static void add_in_layer(int layer, const char *name, trm_dims dims)
{
    char text[96];
    snprintf(text, sizeof(text), "model.layers.%d.%s.weight", layer, name);
    add(text, dims);
}

static void list_layer(int layer)
{
    char text[64];
    const int64_t kv = WIDTH / HEADS * KV_HEADS;
    add_in_layer(layer, "input_layernorm", (trm_dims){1, {WIDTH}});
    add_in_layer(layer, "post_attention_layernorm", (trm_dims){1, {WIDTH}});
    add_in_layer(layer, "self_attn.q_proj", (trm_dims){2, {WIDTH, WIDTH}});
    add_in_layer(layer, "self_attn.k_proj", (trm_dims){2, {kv, WIDTH}});
    add_in_layer(layer, "self_attn.v_proj", (trm_dims){2, {kv, WIDTH}});
    add_in_layer(layer, "self_attn.o_proj", (trm_dims){2, {WIDTH, WIDTH}});
    add_in_layer(layer, "block_sparse_moe.gate", (trm_dims){2, {EXPERTS, WIDTH}});
    for (int e = 0; e < EXPERTS; e++) {
        for (int i = 1; i <= 3; i++) {
            snprintf(text, sizeof(text), "block_sparse_moe.experts.%d.w%d", e, i);
            add_in_layer(layer, text, i == 2 ? (trm_dims){2, {WIDTH, INNER}} : (trm_dims){2, {INNER, WIDTH}});
        }
    }
}

/* Norms are near 1, some columns of them larger; matrices keep the size of their input. */
static trm_status write_weight(void *user, size_t index, FILE *file)
{
    (void)user;
    const trm_dims dims = outputs[index].dims;
    int64_t n = 1;
    for (int32_t i = 0; i < dims.n; i++) {
        n *= dims.d[i];
    }
    for (int64_t i = 0; i < n; i++) {
        const float unit = trm_random_unit(index + 1, (uint64_t)i);
        const float value = dims.n == 1 ? 1.0f + 0.1f * unit + (i % 17 == 5 ? 8.0f : 0.0f) : 0.2f * unit;
        if (fwrite(&value, sizeof(value), 1, file) != 1) {
            return TRM_ERROR_IO;
        }
    }
    return TRM_OK;
}

static FILE *create(const char *folder, const char *name)
{
    char path[4096];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return fopen(path, "wb");
}

/* An array [n] of i32 that ends with `last`. */
static bool write_ids(const char *folder, const char *name, int n, int32_t last)
{
    char header[118];
    FILE *file = create(folder, name);
    if (file == NULL) {
        return false;
    }
    memset(header, ' ', sizeof(header));
    const int size = snprintf(header, sizeof(header), "{'descr': '<i4', 'fortran_order': False, 'shape': (%d,), }", n);
    header[size] = ' ';
    header[sizeof(header) - 1] = '\n';
    fwrite("\x93NUMPY\x01\x00\x76\x00", 1, 10, file);
    fwrite(header, 1, sizeof(header), file);
    for (int i = 0; i < n; i++) {
        const int32_t random = (int32_t)(fabsf(trm_random_unit(7, (uint64_t)i)) * (float)VOCAB) % VOCAB;
        const int32_t id = i == n - 1 ? last : random;
        fwrite(&id, sizeof(id), 1, file);
    }
    return fclose(file) == 0;
}

int main(int argc, char **argv)
{
    if (argc != 2 || (mkdir(argv[1], 0777) != 0 && errno != EEXIST)) {
        return 2;
    }
    add("model.embed_tokens.weight", (trm_dims){2, {VOCAB, WIDTH}});
    add("model.norm.weight", (trm_dims){1, {WIDTH}});
    add("lm_head.weight", (trm_dims){2, {VOCAB, WIDTH}});
    for (int i = 0; i < LAYERS; i++) {
        list_layer(i);
    }
    if (trm_safetensors_write(argv[1], outputs, count, (size_t)1 << 30, write_weight, NULL) != TRM_OK) {
        fprintf(stderr, "%s\n", trm_last_error());
        return 1;
    }
    FILE *file = create(argv[1], "config.json");
    if (file == NULL || fwrite(config, 1, sizeof(config) - 1, file) != sizeof(config) - 1 || fclose(file) != 0) {
        return 1;
    }
    const bool written = write_ids(argv[1], "ids.npy", 400, 1) && write_ids(argv[1], "few.npy", 3, 2) &&
                         write_ids(argv[1], "bad.npy", 9, VOCAB);
    return written ? 0 : 1;
}
