/* Opening models: what the information says, where models are found, presets, and the form of the network. */
#include "support/support.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "graph/network.h"
#include "support/hf_golden.h"
#include "weight_stream/files.h"
#include "weight_stream/weight_form.h"

static trm_model *open_golden(const char *name)
{
    trm_model *model;
    assert_ok(trm_model_open(test_golden_folder(name), &model));
    return model;
}

static void information_is_that_of_the_files(void **state)
{
    (void)state;
    trm_model_info info;
    trm_model *model = open_golden("llama-sharded");
    trm_model_get_info(model, &info);
    assert_string_equal(info.path, test_golden_folder("llama-sharded"));
    assert_string_equal(info.architecture, "LlamaForCausalLM");
    assert_string_equal(info.model_type, "llama");
    assert_int_equal(info.weight_dtype, TRM_F32);
    assert_int_equal(info.layers, 2);
    assert_int_equal(info.hidden, 32);
    assert_int_equal(info.heads, 4);
    assert_int_equal(info.kv_heads, 2);
    assert_int_equal(info.head_dim, 8);
    assert_int_equal(info.intermediate, 48);
    assert_int_equal(info.vocab, 96);
    assert_int_equal(info.context_length, 128);
    /* embedding, head, final norm; per layer: q o, k v, gate up down, two norms */
    assert_int_equal(info.parameters, 2 * 96 * 32 + 32 + 2 * (2 * 32 * 32 + 2 * 16 * 32 + 3 * 48 * 32 + 2 * 32));
    assert_int_equal(info.weight_bytes, 4 * info.parameters);
    assert_int_equal(info.bos_token, 1);
    assert_int_equal(info.n_eos_tokens, 1);
    assert_int_equal(info.eos_tokens[0], 2);
    trm_model_close(model);

    model = open_golden("gemma3-images");
    trm_model_get_info(model, &info);
    assert_string_equal(info.model_type, "gemma3");
    assert_int_equal(info.n_eos_tokens, 2);
    assert_int_equal(info.eos_tokens[1], 7);
    trm_model_close(model);

    model = open_golden("llama-bf16");
    trm_model_get_info(model, &info);
    assert_int_equal(info.weight_dtype, TRM_BF16);
    assert_int_equal(info.weight_bytes, 2 * info.parameters);
    trm_model_close(model);
    trm_model_close(NULL);
}

static void check_tensor(const trm_network *network, const char *name, trm_tensor_role role, trm_dtype dtype,
                         trm_dims dims)
{
    trm_tensor *tensor = trm_network_find_tensor(network, name);
    if (tensor == NULL) {
        fail_msg("no tensor %s", name);
        return;
    }
    assert_int_equal(tensor->role, role);
    assert_int_equal(tensor->dtype, dtype);
    assert_int_equal(tensor->dims.n, dims.n);
    for (int32_t i = 0; i < dims.n; i++) {
        assert_int_equal(tensor->dims.d[i], dims.d[i]);
    }
}

static void network_has_the_promised_form(void **state)
{
    (void)state;
    trm_network *network;
    trm_model *model = open_golden("llama-dynamic");
    assert_ok(trm_model_build_network(model, TRM_BF16, &network));
    assert_int_equal(trm_network_input_count(network), 7);
    static const char *const flat[] = {"token_ids",        "positions",  "sequence_starts",
                                       "sequence_lengths", "logit_rows", "rope_lengths"};
    for (size_t i = 0; i < 6; i++) {
        check_tensor(network, flat[i], TRM_TENSOR_INPUT, TRM_I32, (trm_dims){1, {-1}});
    }
    check_tensor(network, "block_table", TRM_TENSOR_INPUT, TRM_I32, (trm_dims){2, {-1, -1}});
    const trm_dims cache = {4, {-1, TRM_KV_BLOCK_SIZE, 2, 8}};
    check_tensor(network, "layers.0.key_cache", TRM_TENSOR_STATE, TRM_BF16, cache);
    check_tensor(network, "layers.1.value_cache", TRM_TENSOR_STATE, TRM_BF16, cache);
    check_tensor(network, "logits", TRM_TENSOR_ACTIVATION, TRM_F32, (trm_dims){2, {-1, 96}});
    check_tensor(network, "model.layers.1.mlp.up_proj.weight", TRM_TENSOR_CONSTANT, TRM_BF16, (trm_dims){2, {48, 32}});
    check_tensor(network, "model.layers.1.self_attn.q_proj", TRM_TENSOR_ACTIVATION, TRM_BF16, (trm_dims){2, {-1, 32}});
    assert_int_equal(trm_network_output_count(network), 1);
    assert_string_equal(trm_tensor_name(trm_network_output(network, 0)), "logits");
    trm_network_destroy(network);
    assert_fails(trm_model_build_network(model, TRM_I32, &network), TRM_ERROR_INVALID_ARGUMENT, "cannot compute");
    trm_model_close(model);

    model = open_golden("llama"); /* no rope lengths where the rope does not ask for them */
    assert_ok(trm_model_build_network(model, TRM_DTYPE_NONE, &network));
    assert_int_equal(trm_network_input_count(network), 6);
    trm_network_destroy(network);
    trm_model_close(model);
}

/* Rows of a tensor where a step has 5 tokens and the logits of 2 are wanted. */
static int64_t rows_of(const trm_network *network, const trm_dims *dims, const char *name)
{
    const trm_tensor *tensor = trm_network_find_tensor(network, name);
    assert_non_null(tensor);
    return dims[tensor->index].d[0];
}

static void the_last_layer_goes_on_with_what_is_wanted(void **state)
{
    (void)state;
    static const struct {
        const char *golden, *all[3], *wanted[4];
    } cases[] = {
        {"llama",
         {"model.layers.0.mlp.down_proj", "model.layers.1.self_attn.q_proj", "model.layers.1.attention.joined"},
         {"model.layers.1.self_attn.o_proj", "model.layers.1.mlp.gate_proj", "model.layers.1.mlp_residual", "logits"}},
        {"gpt-neox",
         {"gpt_neox.layers.0.residual", "gpt_neox.layers.1.input_layernorm", "gpt_neox.layers.1.attention.joined"},
         {"gpt_neox.layers.1.attention.dense", "gpt_neox.layers.1.mlp.dense_h_to_4h", "gpt_neox.layers.1.residual",
          "logits"}},
    };
    for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
        trm_network *network;
        trm_model *model = open_golden(cases[c].golden);
        assert_ok(trm_model_build_network(model, TRM_F32, &network));
        trm_dims *dims = calloc((size_t)network->n_tensors, sizeof(*dims));
        assert_non_null(dims);
        for (int32_t i = 0; i < network->n_tensors; i++) {
            const trm_tensor *tensor = network->tensors[i];
            dims[i] = tensor->dims;
            if (tensor->role == TRM_TENSOR_INPUT || tensor->role == TRM_TENSOR_STATE) {
                dims[i].d[0] = strcmp(tensor->name, "logit_rows") == 0        ? 2
                               : strcmp(tensor->name, "token_ids") == 0       ? 5
                               : strcmp(tensor->name, "positions") == 0       ? 5
                               : strcmp(tensor->name, "sequence_starts") == 0 ? 2
                                                                              : 1;
                dims[i].d[1] = dims[i].d[1] < 0 ? 1 : dims[i].d[1];
            }
        }
        assert_ok(trm_infer_network(network, dims));
        for (size_t i = 0; i < 3; i++) {
            assert_int_equal(rows_of(network, dims, cases[c].all[i]), 5);
        }
        for (size_t i = 0; i < 4; i++) {
            assert_int_equal(rows_of(network, dims, cases[c].wanted[i]), 2);
        }
        free(dims);
        trm_network_destroy(network);
        trm_model_close(model);
    }
}

static void tied_models_have_one_embedding(void **state)
{
    (void)state;
    trm_network *network;
    trm_model *model = open_golden("qwen2");
    assert_ok(trm_model_build_network(model, TRM_DTYPE_NONE, &network));
    trm_layer *readers[4];
    trm_tensor *embedding = trm_network_find_tensor(network, "model.embed_tokens.weight");
    assert_non_null(embedding);
    assert_int_equal(trm_network_consumers(network, embedding, readers, 4), 2);
    assert_int_equal(readers[0]->desc.kind, TRM_LAYER_EMBEDDING);
    assert_int_equal(readers[1]->desc.kind, TRM_LAYER_MATMUL);
    assert_null(trm_network_find_tensor(network, "lm_head.weight"));
    trm_network_destroy(network);
    trm_model_close(model);
}

static void models_are_found_in_the_cache(void **state)
{
    (void)state;
    char path[4400], hub[4200];
    trm_model *model;
    trm_model_info info;
    const char *home = test_temporary_folder();
    assert_int_equal(setenv("HF_HOME", home, 1), 0);
    unsetenv("HF_HUB_CACHE");
    assert_fails(trm_model_open("trireme-test/tiny", &model), TRM_ERROR_IO, "hf download trireme-test/tiny");

    static const char *const folders[] = {"", "/refs", "/snapshots"};
    snprintf(path, sizeof(path), "%s/hub", home);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(hub, sizeof(hub), "%s/hub/models--trireme-test--tiny", home);
    for (size_t i = 0; i < 3; i++) {
        snprintf(path, sizeof(path), "%s%s", hub, folders[i]);
        assert_int_equal(mkdir(path, 0700), 0);
    }
    snprintf(path, sizeof(path), "%s/refs/main", hub);
    test_write_file(path, "0123abcd\n", 9);
    assert_fails(trm_model_open("trireme-test/tiny", &model), TRM_ERROR_IO, "snapshots/0123abcd");
    snprintf(path, sizeof(path), "%s/snapshots/0123abcd", hub);
    assert_int_equal(symlink(test_golden_folder("llama"), path), 0);
    assert_ok(trm_model_open("trireme-test/tiny", &model));
    trm_model_get_info(model, &info);
    assert_string_equal(info.path, path);
    trm_model_close(model);

    snprintf(path, sizeof(path), "%s/hub", home);
    assert_int_equal(setenv("HF_HUB_CACHE", path, 1), 0); /* goes before HF_HOME */
    assert_int_equal(setenv("HF_HOME", "/nowhere", 1), 0);
    assert_ok(trm_model_open("trireme-test/tiny", &model));
    trm_model_close(model);
    unsetenv("HF_HOME");
    unsetenv("HF_HUB_CACHE");

    assert_fails(trm_model_open("../tiny", &model), TRM_ERROR_IO, "there is no such folder");
    assert_fails(trm_model_open("/nowhere/at/all", &model), TRM_ERROR_IO, "there is no such folder");
    assert_fails(trm_model_open("/dev/null", &model), TRM_ERROR_IO, "it is not a folder");
    assert_fails(trm_model_open("org/name@v1.0", &model), TRM_ERROR_UNSUPPORTED,
                 "hf download org/name --revision v1.0 ");
    assert_fails(trm_model_open("org/name.gguf", &model), TRM_ERROR_UNSUPPORTED, "GGUF files cannot be read");
    snprintf(path, sizeof(path), "%s/model.gguf", home);
    test_write_file(path, "GGUF", 4);
    assert_fails(trm_model_open(path, &model), TRM_ERROR_UNSUPPORTED, "GGUF files cannot be read");
    assert_fails(trm_model_open(home, &model), TRM_ERROR_UNSUPPORTED, "GGUF files cannot be read");
    assert_fails(trm_model_open("", &model), TRM_ERROR_INVALID_ARGUMENT, "no model");
    assert_fails(trm_model_open(NULL, &model), TRM_ERROR_INVALID_ARGUMENT, "no model");
}

/* ---- caches ------------------------------------------------------------------------------------------------ */

/* A folder with the golden's model whose checkpoint has these f32 tensors as well, [] or [n] of value `values`. */
typedef struct extra {
    const char *name, *shape;
    float values[2];
} extra;

static const char *folder_with(const char *golden, const extra *extras, size_t n)
{
    static char folder[4200];
    char path[4400], entry[256], *file, *config, *header;
    size_t size, config_size;
    snprintf(folder, sizeof(folder), "%s", test_temporary_folder());
    snprintf(path, sizeof(path), "%s/config.json", test_golden_folder(golden));
    assert_ok(trm_file_read(path, 1 << 20, &config, &config_size));
    snprintf(path, sizeof(path), "%s/config.json", folder);
    test_write_file(path, config, config_size);
    free(config);
    snprintf(path, sizeof(path), "%s/model.safetensors", test_golden_folder(golden));
    assert_ok(trm_file_read(path, 1 << 24, &file, &size));
    uint64_t length;
    memcpy(&length, file, sizeof(length));
    size_t data_size = size - 8 - length, room = length + n * sizeof(entry) + 1;
    header = calloc(1, room);
    char *data = malloc(data_size + n * sizeof(extras->values));
    assert_true(header != NULL && data != NULL);
    memcpy(data, file + 8 + length, data_size);
    memcpy(header, file + 8, length);
    *strrchr(header, '}') = '\0';
    for (size_t i = 0; i < n; i++) {
        size_t bytes = strcmp(extras[i].shape, "[2]") == 0 ? 8 : 4;
        snprintf(entry, sizeof(entry), ",\"%s\":{\"dtype\":\"F32\",\"shape\":%s,\"data_offsets\":[%zu,%zu]}",
                 extras[i].name, extras[i].shape, data_size, data_size + bytes);
        strcat(header, entry);
        memcpy(data + data_size, extras[i].values, bytes);
        data_size += bytes;
    }
    strcat(header, "}");
    write_safetensors(folder, "model.safetensors", header, data, data_size);
    free(header);
    free(data);
    free(file);
    return folder;
}

static const trm_attention_params *attention_of(const trm_network *network, int32_t which)
{
    for (int32_t i = 0; i < network->n_layers; i++) {
        if (network->layers[i]->desc.kind == TRM_LAYER_ATTENTION && which-- == 0) {
            return &network->layers[i]->desc.attention;
        }
    }
    fail_msg("the network has too few attention layers");
    return NULL;
}

static trm_status build_with(const char *golden, const extra *extras, size_t n, trm_dtype cache, float scales[4])
{
    trm_model *model;
    trm_network *network;
    assert_ok(trm_model_open(folder_with(golden, extras, n), &model));
    trm_status status = trm_model_build_network_with_cache(model, TRM_DTYPE_NONE, cache, &network);
    for (int32_t i = 0; status == TRM_OK && i < 2; i++) {
        scales[2 * i] = attention_of(network, i)->k_scale;
        scales[2 * i + 1] = attention_of(network, i)->v_scale;
    }
    if (status == TRM_OK) {
        trm_network_destroy(network);
    }
    trm_model_close(model);
    return status;
}

#define LAYER(n) "model.layers." #n ".self_attn."

static void caches_may_be_e4m3(void **state)
{
    (void)state;
    trm_network *network;
    trm_model *model = open_golden("llama");
    const trm_dims cache = {4, {-1, TRM_KV_BLOCK_SIZE, 2, 8}};
    assert_ok(trm_model_build_network_with_cache(model, TRM_BF16, TRM_F8E4M3, &network));
    check_tensor(network, "layers.0.key_cache", TRM_TENSOR_STATE, TRM_F8E4M3, cache);
    check_tensor(network, "layers.1.value_cache", TRM_TENSOR_STATE, TRM_F8E4M3, cache);
    check_tensor(network, "model.layers.1.self_attn.q_proj", TRM_TENSOR_ACTIVATION, TRM_BF16, (trm_dims){2, {-1, 32}});
    assert_true(attention_of(network, 1)->k_scale == 0.0f);
    trm_network_destroy(network);
    assert_ok(trm_model_build_network_with_cache(model, TRM_BF16, TRM_BF16, &network));
    trm_network_destroy(network);
    assert_fails(trm_model_build_network_with_cache(model, TRM_BF16, TRM_F8E5M2, &network), TRM_ERROR_INVALID_ARGUMENT,
                 "cannot cache the keys and values of a model in f8e5m2, expected bf16 or f8e4m3");
    assert_fails(trm_model_build_network_with_cache(model, TRM_F32, TRM_F16, &network), TRM_ERROR_INVALID_ARGUMENT,
                 "in f16, expected f32");
    trm_model_close(model);
}

static void scales_of_caches_are_the_checkpoint_s(void **state)
{
    (void)state;
    float found[4];
    const extra modules[] = {
        {LAYER(0) "k_scale", "[]", {0.5f}}, {LAYER(0) "v_scale", "[1]", {0.25f}}, {LAYER(1) "v_scale", "[1]", {3.0f}}};
    assert_ok(build_with("llama", modules, 3, TRM_F8E4M3, found));
    assert_true(found[0] == 0.5f && found[1] == 0.25f && found[2] == 0.0f && found[3] == 3.0f);
    assert_ok(build_with("llama", modules, 3, TRM_DTYPE_NONE, found));
    assert_true(found[0] == 0.0f && found[1] == 0.0f);
    const extra projections[] = {{LAYER(0) "k_proj.k_scale", "[1]", {0.5f}},
                                 {LAYER(0) "v_proj.v_scale", "[]", {0.25f}},
                                 {LAYER(1) "kv_scale", "[]", {2.0f}}};
    assert_ok(build_with("llama", projections, 3, TRM_F8E4M3, found));
    assert_true(found[0] == 0.5f && found[1] == 0.25f && found[2] == 2.0f && found[3] == 2.0f);
    const extra per_head[] = {{LAYER(1) "k_scale", "[2]", {0.5f, 0.5f}}};
    assert_fails(build_with("llama", per_head, 1, TRM_F8E4M3, found), TRM_ERROR_UNSUPPORTED,
                 "self_attn.k_scale has shape [2], expected one number");
    assert_ok(build_with("llama", per_head, 1, TRM_DTYPE_NONE, found));
    const extra zero[] = {{LAYER(1) "v_scale", "[]", {0.0f}}}, nan[] = {{LAYER(1) "v_scale", "[]", {NAN}}};
    assert_fails(build_with("llama", zero, 1, TRM_F8E4M3, found), TRM_ERROR_INVALID_MODEL,
                 "self_attn.v_scale is 0, expected a positive number");
    assert_fails(build_with("llama", nan, 1, TRM_F8E4M3, found), TRM_ERROR_INVALID_MODEL, "v_scale is nan");
}

/* ---- presets ----------------------------------------------------------------------------------------------- */

static void presets_have_the_published_sizes(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int64_t parameters;
    } published[] = {
        {"llama-3-8b", 8030261248},
        {"llama-3-70b", 70553706496},
        {"llama-3.2-1b", 1235814400},
        {"llama-3.2-3b", 3212749824},
        {"llama-3-8b-1m", 8030261248},
        {"llama-2-7b", 6738415616},
        {"mistral-7b", 7248023552},
        {"qwen2.5-0.5b", 494032768},
        {"qwen2.5-7b", 7615616512},
        {"qwen3-0.6b", 596049920},
        {"qwen3-1.7b", 1720574976},
        {"qwen3-4b", 4022468096},
        {"qwen3-14b", 14768307200},
        {"qwen3-8b", 8190735360},
        {"qwen3-32b", 32762123264},
        {"gemma-2-2b", 2614341888},
        {"gemma-3-1b", 999885952},
        {"phi-3-mini", 3821079552},
        {"gpt2", 124439808},
        {"gpt-neox-20b", 20554567680},
        {"qwen3-30b-a3b", 30532122624},
        {"qwen3-235b-a22b", 235093634560},
        {"mixtral-8x7b", 46702792704},
        {"deepseek-v3", 671026419200},
        {"kimi-k2", 1026408232448},
        {"qwen3-next-80b-a3b", 79674391296},
        {"qwen3.5-35b-a3b", 34660610688},
        {"qwen3.5-397b-a17b", 396346350336},
        {"glm-4.5", 352797829024}, /* of 358.34 billion, 5.54 are its unused layer 92 */
    };
    for (size_t i = 0; i < sizeof(published) / sizeof(published[0]); i++) {
        trm_model *model;
        trm_model_info info;
        assert_ok(trm_model_open_preset(published[i].name, 0, 1, &model));
        trm_model_get_info(model, &info);
        if (info.parameters != published[i].parameters) {
            fail_msg("%s has %lld parameters, expected %lld", published[i].name, (long long)info.parameters,
                     (long long)published[i].parameters);
        }
        assert_int_equal(info.weight_bytes, 2 * info.parameters);
        assert_string_equal(info.path, published[i].name);
        trm_model_close(model);
    }
}

/* As many parameters, in the bytes that numbers and scales take. */
static void presets_can_be_quantized(void **state)
{
    (void)state;
    static const struct {
        const char *weights;
        int64_t bytes;
    } kinds[] = {{NULL, 16060522496},         {"bf16", 16060522496},     {"fp8", 9083953152},
                 {"fp8-weights", 9083953152}, {"fp8-block", 9082052608}, {"fp8-block-weights", 9082052608},
                 {"int8", 9083953152},        {"int4", 5594292224},      {"int4-128", 5700591616}};
    trm_model *model;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        trm_model_info info;
        assert_ok(trm_model_open_preset_quantized("llama-3-8b", kinds[i].weights, 0, 1, &model));
        trm_model_get_info(model, &info);
        assert_int_equal(info.parameters, 8030261248);
        assert_int_equal(info.weight_bytes, kinds[i].bytes);
        trm_model_close(model);
    }
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) { /* experts, too */
        trm_model_info info;
        assert_ok(trm_model_open_preset_quantized("qwen3-30b-a3b", kinds[i].weights, 0, 1, &model));
        trm_model_get_info(model, &info);
        assert_int_equal(info.parameters, 30532122624);
        assert_true(10 * info.weight_bytes < info.parameters * (i < 2 ? 21 : i < 7 ? 11 : 6));
        trm_model_close(model);
    }
    static const struct {
        const char *name, *weights;
        int64_t parameters, bytes;
    } mixtures[] = {{"gpt-oss-20b", NULL, 20914757184, 13761264768},
                    {"gpt-oss-20b", "bf16", 20914757184, 2 * INT64_C(20914757184)},
                    {"gpt-oss-120b", NULL, 116829156672, 65248815744}};
    for (size_t i = 0; i < sizeof(mixtures) / sizeof(mixtures[0]); i++) {
        trm_model_info info;
        assert_ok(trm_model_open_preset_quantized(mixtures[i].name, mixtures[i].weights, 0, 1, &model));
        trm_model_get_info(model, &info);
        assert_int_equal(info.parameters, mixtures[i].parameters);
        assert_int_equal(info.weight_bytes, mixtures[i].bytes);
        trm_model_close(model);
    }
    assert_fails(trm_model_open_preset_quantized("llama-3-8b", "int3", 0, 1, &model), TRM_ERROR_INVALID_ARGUMENT,
                 "no quantized weights int3, expected fp8");
    assert_fails(trm_model_open_preset_quantized("gpt2", "int4", 0, 1, &model), TRM_ERROR_UNSUPPORTED,
                 "quantized weights of GPT2LMHeadModel");
}

/* Experts that are not chosen are not read; of tables, one row is. */
static void a_token_reads_its_experts(void **state)
{
    (void)state;
    const int64_t oss = INT64_C(3) * 2880 * 2880, oss_biases = 3 * 2880; /* of an expert of gpt-oss */
    const struct {
        const char *name;
        int64_t experts, chosen, width, shared_width, layers;
        int64_t one_parameters, one_bytes; /* of an expert */
        int64_t table_rows, row_bytes;     /* of the embedding; 0: it is the output projection, too */
    } cases[] = {
        {"qwen3-30b-a3b", 128, 8, 768, 0, 48, 3 * 2048 * 768, 2 * 3 * 2048 * 768, 151936, 2 * 2048},
        {"mixtral-8x7b", 8, 2, 14336, 0, 32, 3 * 4096 * 14336, 2 * 3 * 4096 * 14336, 32000, 2 * 4096},
        {"glm-4.5", 160, 8, 1536, 1536, 89, 3 * 5120 * 1536, 2 * 3 * 5120 * 1536, 151552, 2 * 5120},
        {"qwen3.5-35b-a3b", 256, 8, 512, 512, 40, 3 * 2048 * 512, 2 * 3 * 2048 * 512, 248320, 2 * 2048},
        {"gpt-oss-120b", 128, 4, 2880, 0, 36, oss + oss_biases, oss / 2 + oss / 32 + 2 * oss_biases, 201088, 2 * 2880},
        {"llama-3-8b", 0, 0, 0, 0, 0, 0, 0, 128256, 2 * 4096},
        {"qwen3-0.6b", 0, 0, 0, 0, 0, 0, 0, 0, 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        trm_model *model;
        trm_model_info info;
        trm_model_experts e = TRM_MODEL_EXPERTS_INIT;
        const int64_t idle = cases[i].layers * (cases[i].experts - cases[i].chosen);
        const int64_t unread = cases[i].table_rows > 0 ? (cases[i].table_rows - 1) * cases[i].row_bytes : 0;
        assert_ok(trm_model_open_preset(cases[i].name, 0, 1, &model));
        trm_model_get_info(model, &info);
        assert_ok(trm_model_get_experts(model, &e));
        assert_int_equal(e.n_experts, cases[i].experts);
        assert_int_equal(e.experts_per_token, cases[i].chosen);
        assert_int_equal(e.expert_width, cases[i].width);
        assert_int_equal(e.shared_width, cases[i].shared_width);
        assert_int_equal(e.expert_layers, cases[i].layers);
        assert_int_equal(e.expert_bytes, cases[i].layers * cases[i].experts * cases[i].one_bytes);
        assert_int_equal(e.active_parameters, info.parameters - idle * cases[i].one_parameters);
        assert_int_equal(e.active_bytes, info.weight_bytes - idle * cases[i].one_bytes - unread);
        e.size = offsetof(trm_model_experts, experts_per_token); /* of a program that knows no more */
        e.n_experts = e.experts_per_token = -1;
        assert_ok(trm_model_get_experts(model, &e));
        assert_int_equal(e.n_experts, cases[i].experts);
        assert_int_equal(e.experts_per_token, -1);
        e.size = 0;
        assert_fails(trm_model_get_experts(model, &e), TRM_ERROR_INVALID_ARGUMENT, "model experts have size 0");
        trm_model_close(model);
    }
}

/* Layers that have zero points, of a golden in GPTQ's form all of whose words of zero points are `word`. */
static int32_t count_zero_points(const char *golden, uint32_t word)
{
    const char *folder = folder_with(golden, NULL, 0);
    char path[4400];
    trm_safetensors *set;
    trm_model *model;
    trm_network *network;
    assert_ok(trm_safetensors_open(folder, &set));
    snprintf(path, sizeof(path), "%s/model.safetensors", folder);
    FILE *stream = fopen(path, "r+b");
    assert_non_null(stream);
    for (int32_t i = 0; i < trm_safetensors_count(set); i++) {
        const char *name = trm_safetensors_name(set, i);
        trm_weight *weight;
        trm_weight_form form;
        if (strstr(name, ".qzeros") == NULL) {
            continue;
        }
        assert_ok(trm_safetensors_weight(set, name, &weight));
        trm_weight_get_form(weight, &form);
        assert_int_equal(fseek(stream, (long)form.begin, SEEK_SET), 0);
        for (size_t k = 0; k < trm_dims_bytes(&form.dims, TRM_U8); k++) {
            assert_int_equal(fwrite(&word, sizeof(word), 1, stream), 1);
        }
        trm_weight_destroy(weight);
    }
    assert_int_equal(fclose(stream), 0);
    trm_safetensors_close(set);
    assert_ok(trm_model_open(folder, &model));
    assert_ok(trm_model_build_network(model, TRM_DTYPE_NONE, &network));
    int32_t count = 0;
    for (int32_t i = 0; i < network->n_layers; i++) {
        const trm_layer *layer = network->layers[i];
        count += layer->desc.kind == TRM_LAYER_DEQUANT_MATMUL && layer->n_inputs > TRM_DEQUANT_MATMUL_ZERO_POINT &&
                 layer->inputs[TRM_DEQUANT_MATMUL_ZERO_POINT] != NULL;
    }
    trm_network_destroy(network);
    trm_model_close(model);
    return count;
}

/* A symmetric checkpoint has zero points of 8 all over, stored as 7; some have them as 8. Others are what they are. */
static void symmetric_checkpoints_need_no_zero_points(void **state)
{
    (void)state;
    const int32_t layers = count_zero_points("quant-gptq-phi3", 0x66666666);
    assert_true(layers >= 8);
    assert_int_equal(count_zero_points("quant-gptq-phi3", 0x77777777), 0);
    assert_int_equal(count_zero_points("quant-gptq-phi3", 0x88888888), 0);
    assert_int_equal(count_zero_points("quant-gptq-phi3", 0x88888887), layers);
    assert_int_equal(count_zero_points("quant-gptq-phi3", 0xffffffff), layers);
    assert_true(count_zero_points("quant-gptq", 0x77777777) > 0);
}

static void every_preset_opens(void **state)
{
    (void)state;
    int32_t count = 0;
    for (const char *name; (name = trm_model_preset_name(count)) != NULL; count++) {
        trm_model *model;
        trm_model_info info;
        trm_network *network;
        assert_ok(trm_model_open_preset(name, 2, 1, &model));
        trm_model_get_info(model, &info);
        assert_int_equal(info.layers, 2);
        assert_int_equal(info.weight_dtype, TRM_BF16);
        assert_ok(trm_model_build_network(model, TRM_DTYPE_NONE, &network));
        trm_network_destroy(network);
        trm_model_close(model);
    }
    assert_true(count >= 16);
    assert_null(trm_model_preset_name(-1));
    trm_model *model;
    assert_fails(trm_model_open_preset("llama-9", 0, 1, &model), TRM_ERROR_INVALID_ARGUMENT, "llama-9");
    assert_fails(trm_model_open_preset(NULL, 0, 1, &model), TRM_ERROR_INVALID_ARGUMENT, "no model shape");
    assert_fails(trm_model_open_preset("gpt2", 13, 1, &model), TRM_ERROR_INVALID_ARGUMENT, "the model has 12");
    assert_fails(trm_model_open_preset("gpt2", -1, 1, &model), TRM_ERROR_INVALID_ARGUMENT, "-1 layers");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(information_is_that_of_the_files),
        cmocka_unit_test(network_has_the_promised_form),
        cmocka_unit_test(the_last_layer_goes_on_with_what_is_wanted),
        cmocka_unit_test(tied_models_have_one_embedding),
        cmocka_unit_test(models_are_found_in_the_cache),
        cmocka_unit_test(caches_may_be_e4m3),
        cmocka_unit_test(scales_of_caches_are_the_checkpoint_s),
        cmocka_unit_test(presets_have_the_published_sizes),
        cmocka_unit_test(presets_can_be_quantized),
        cmocka_unit_test(a_token_reads_its_experts),
        cmocka_unit_test(symmetric_checkpoints_need_no_zero_points),
        cmocka_unit_test(every_preset_opens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
