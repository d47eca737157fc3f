/* Bad models: every refusal of the importer, and that no value of any key of config.json is worse than an error. */
#include "support/support.h"

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include <trireme/model.h>

#include "base/file.h"
#include "support/hf_golden.h"

/* ---- folders made from goldens -------------------------------------------------------------------------- */

static char folder[4096];
static const char *linked; /* the golden whose weights are in it; NULL: none, or others */

static const char *in_folder(const char *file)
{
    static char path[4200];
    snprintf(path, sizeof(path), "%s/%s", folder, file);
    return path;
}

static cJSON *read_config(const char *golden)
{
    char path[600], *text;
    size_t size;
    snprintf(path, sizeof(path), "%s/config.json", test_golden_folder(golden));
    assert_ok(trm_file_read(path, 1 << 20, &text, &size));
    cJSON *config = cJSON_Parse(text);
    assert_non_null(config);
    free(text);
    return config;
}

/* Makes `folder` a model with the golden's weights and this config, and takes the config over. */
static void make_folder(const char *golden, cJSON *config)
{
    char weights[600];
    if (folder[0] == '\0') {
        snprintf(folder, sizeof(folder), "%s", test_temporary_folder());
    }
    char *text = cJSON_Print(config);
    assert_non_null(text);
    test_write_file(in_folder("config.json"), text, strlen(text));
    cJSON_free(text);
    cJSON_Delete(config);
    unlink(in_folder("generation_config.json"));
    if (linked == NULL || strcmp(linked, golden) != 0) {
        unlink(in_folder("model.safetensors"));
        snprintf(weights, sizeof(weights), "%s/model.safetensors", test_golden_folder(golden));
        assert_int_equal(symlink(weights, in_folder("model.safetensors")), 0);
        linked = golden;
    }
}

/* Sets a key, or deletes it where value is NULL. "a.b" is key b of the object a. */
static void set_key(cJSON *config, const char *key, cJSON *value)
{
    const char *dot = strchr(key, '.');
    if (dot != NULL) {
        char outer[64];
        snprintf(outer, sizeof(outer), "%.*s", (int)(dot - key), key);
        config = cJSON_GetObjectItemCaseSensitive(config, outer);
        assert_non_null(config);
        key = dot + 1;
    }
    cJSON_DeleteItemFromObjectCaseSensitive(config, key);
    if (value != NULL) {
        cJSON_AddItemToObject(config, key, value);
    }
}

/* Opens the golden with a key set to the JSON text `value`, or deleted where it is NULL. */
static trm_status open_with(const char *golden, const char *key, const char *value)
{
    cJSON *config = read_config(golden);
    cJSON *item = value != NULL ? cJSON_Parse(value) : NULL;
    assert_true((value == NULL) == (item == NULL));
    set_key(config, key, item);
    make_folder(golden, config);
    trm_model *model;
    trm_status status = trm_model_open(folder, &model);
    if (status == TRM_OK) {
        trm_model_close(model);
    }
    return status;
}

/* ---- config.json ------------------------------------------------------------------------------------------ */

static void unknown_things_are_named(void **state)
{
    (void)state;
    const trm_status unsupported = TRM_ERROR_UNSUPPORTED;
    assert_fails(open_with("llama", "architectures", "[\"MambaForCausalLM\"]"), unsupported,
                 "architecture MambaForCausalLM is not supported, expected one of LlamaForCausalLM, Mistral");
    assert_fails(open_with("llama", "rope_parameters.rope_type", "\"spiral\""), unsupported,
                 "rope_type is \"spiral\", expected one of default, linear, dynamic, yarn, llama3, longrope");
    assert_fails(open_with("llama", "rope_scaling", "{\"type\": \"mrope\"}"), unsupported, "rope_type is \"mrope\"");
    assert_fails(open_with("llama", "hidden_act", "\"laplace\""), unsupported,
                 "hidden_act is \"laplace\", expected one of");
    assert_fails(open_with("apertus", "hidden_act", "\"silu\""), unsupported, "hidden_act is \"silu\", expected xielu");
    assert_fails(open_with("gemma2", "use_bidirectional_attention", "true"), unsupported,
                 "use_bidirectional_attention");
    assert_fails(open_with("gpt2", "add_cross_attention", "true"), unsupported, "add_cross_attention");
    assert_fails(open_with("gemma2", "layer_types", "[\"linear_attention\",\"a\",\"a\",\"a\"]"), unsupported,
                 "layer_types[0] is \"linear_attention\"");
    assert_fails(open_with("gpt-neox", "rope_parameters.partial_rotary_factor", "0.4"), unsupported,
                 "of 8 elements of a head are rotated");
    assert_fails(open_with("gpt-neox", "num_key_value_heads", "2"), unsupported, "2 key-value heads, expected all 4");
    assert_fails(open_with("gemma3-images", "text_config.model_type", "\"mamba\""), unsupported,
                 "model_type of text_config, \"mamba\", is not supported");
    assert_fails(open_with("llama", "eos_token_id", "[1,2,3,4,5,6,7,8,9]"), unsupported, "lists 9 tokens");
    assert_fails(open_with("deepseek-v2", "topk_method", "\"noaux_tc\""), unsupported,
                 "topk_method is \"noaux_tc\", expected greedy or group_limited_greedy");
    assert_fails(open_with("deepseek-v2", "norm_topk_prob", "true"), unsupported, "norm_topk_prob is true");
    assert_fails(open_with("deepseek-v3", "scoring_func", "\"softmax\""), unsupported,
                 "scoring_func is \"softmax\", expected \"sigmoid\"");
}

static void mixtures_must_be_known_and_fit(void **state)
{
    (void)state;
    const trm_status unsupported = TRM_ERROR_UNSUPPORTED, invalid = TRM_ERROR_INVALID_MODEL;
    static const struct {
        const char *golden, *key, *value;
        trm_status status;
        const char *text;
    } cases[] = {
        {"qwen3-moe", "num_local_experts", "70000", invalid, "there are 70000 experts, expected at most 65536"},
        {"qwen3-moe", "num_experts_per_tok", "9", invalid, "a token takes 9 of 8 experts"},
        {"mixtral", "hidden_act", "\"relu\"", unsupported, "the activation of experts is not silu"},
        {"olmoe", "clip_qkv", "8.0", unsupported, "clip_qkv is 8, expected null"},
        {"hunyuan-moe", "moe_topk", "[2, 3]", unsupported, "moe_topk lists 2 and 3, expected the same"},
        {"ernie4-5-moe", "moe_norm_min", "0.5", unsupported, "moe_norm_min is 0.5"},
        {"ernie4-5-moe", "moe_num_shared_experts", "-1", invalid, "moe_num_shared_experts is -1, expected 0 to"},
        {"glm4-moe", "scoring_func", "\"softmax\"", unsupported, "scoring_func is \"softmax\", expected \"sigmoid\""},
        {"glm4-moe", "n_group", "3", invalid, "n_group is 3 and topk_group 2, expected groups that divide 8 experts"},
        {"glm4-moe", "topk_group", "5", invalid, "n_group 4 and topk_group 5"},
        {"deepseek-v32", "mlp_layer_types", "[\"dense\", \"full\"]", invalid, "mlp_layer_types[1] is full"},
        {"glm-moe-dsa", "index_topk", "0", invalid, "index_topk is 0, expected 1"},
        {"dots1", "routed_scaling_factor", "0", invalid, "routed_scaling_factor is 0"},
        {"llama4", "floor_scale", "0.5", invalid, "floor_scale is 0.5"},
        {"llama4", "layer_types", "[\"sliding_attention\", \"a\", \"a\"]", unsupported,
         "layer_types[0] is \"sliding_attention\", expected full_attention or chunked_attention"},
        {"gemma4", "hidden_size_per_layer_input", "0.5", invalid, "hidden_size_per_layer_input is 0.5"},
        {"gemma4-small", "num_kv_shared_layers", "4", invalid, "no layer of the type of layer 1 is before those"},
        {"gemma4", "use_bidirectional_attention", "\"all\"", unsupported, "use_bidirectional_attention is \"all\""},
        {"gemma4", "rope_parameters", NULL, invalid, "rope_parameters lacks full_attention"},
        {"gemma4", "per_layer_config", "{\"0\": {\"head_dim\": 16}}", unsupported, "per_layer_config of layer 0"},
        {"gemma4-v4", "num_global_key_value_heads", "3", invalid, "3 key-value heads of 16 elements"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_fails(open_with(cases[i].golden, cases[i].key, cases[i].value), cases[i].status, cases[i].text);
    }
}

static void selective_scans_must_fit(void **state)
{
    (void)state;
    const trm_status unsupported = TRM_ERROR_UNSUPPORTED, invalid = TRM_ERROR_INVALID_MODEL;
    static const struct {
        const char *golden, *key, *value;
        trm_status status;
        const char *text;
    } cases[] = {
        {"granite-hybrid", "layer_types", "[\"mamba\"]", invalid, "have 1 elements, expected a list of 3"},
        {"granite-hybrid", "layer_types", "[\"mamba\", \"attention\", \"mlp\"]", unsupported,
         "the type of layer 2 is mlp, expected mamba"},
        {"granite-hybrid", "mamba_d_head", "8", invalid, "expected heads that have 64 elements in all"},
        {"granite-hybrid", "mamba_n_groups", "3", invalid, "3 groups, 4 heads of 16"},
        {"granite-hybrid", "time_step_limit", "[2.0, 1.0]", invalid, "time_step_limit is not a list"},
        {"nemotron-h-latent", "layers_block_type", NULL, invalid, "neither layers_block_type nor"},
        {"nemotron-h-latent", "layers_block_type", "[\"moe\", \"mamba\", \"attention2\"]", unsupported,
         "the type of block 2 is not known"},
        {"nemotron-h-latent", "num_hidden_layers", "4", invalid, "num_hidden_layers is 4, but 3 blocks have a type"},
        {"nemotron-h-latent", "mamba_hidden_act", "\"gelu\"", unsupported, "mamba_hidden_act is \"gelu\""},
        {"nemotron-h-latent", "mlp_hidden_act", "\"silu\"", unsupported, "another mlp_hidden_act than relu2"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_fails(open_with(cases[i].golden, cases[i].key, cases[i].value), cases[i].status, cases[i].text);
    }
    assert_ok(open_with("granite-hybrid", "mamba_d_head", "\"auto\""));
    assert_ok(open_with("granite-hybrid", "layer_types", "[\"mamba\", \"attention\", \"mamba\"]"));
}

/* What would run, and give other logits than transformers does. */
static void unlike_transformers_is_refused(void **state)
{
    (void)state;
    const trm_status unsupported = TRM_ERROR_UNSUPPORTED, invalid = TRM_ERROR_INVALID_MODEL;
    assert_fails(open_with("llama", "is_causal", "false"), unsupported, "is_causal is false");
    assert_fails(open_with("mistral", "architectures", "[\"LlamaForCausalLM\"]"), invalid,
                 "model_type is \"mistral\", which does not go with architecture LlamaForCausalLM, expected \"llama\"");
    assert_fails(open_with("llama", "partial_rotary_factor", "0.5"), unsupported,
                 "partial_rotary_factor is 0.5, expected 1 for LlamaForCausalLM");
    assert_fails(open_with("qwen3", "rope_parameters.partial_rotary_factor", "0.5"), unsupported,
                 "partial_rotary_factor is 0.5, expected 1 for Qwen3ForCausalLM");
    assert_fails(open_with("gemma2", "rope_parameters", "{\"full_attention\": {\"rope_type\": \"default\"}}"),
                 unsupported, "rope parameters by type of layer are not supported for Gemma2ForCausalLM");
    assert_fails(open_with("gemma3", "rope_parameters", "{\"rope_type\": \"default\"}"), invalid,
                 "rope_parameters has neither full_attention nor sliding_attention");
    assert_fails(open_with("gemma3", "rope_scaling", "{\"rope_type\": \"default\"}"), unsupported,
                 "there are rope_scaling and rope_parameters");
    assert_fails(open_with("phi3-longrope", "rope_parameters.rope_type", "\"linear\""), unsupported,
                 "rope_type is \"linear\", expected default or longrope");
    assert_fails(open_with("qwen2", "layer_types", "[\"full_attention\", \"sliding_attention\"]"), invalid,
                 "layer 1 uses sliding attention and there is no sliding_window");
    assert_fails(open_with("qwen2", "layer_types", "[\"full_attention\", \"chunked_attention\"]"), unsupported,
                 "layer_types[1] is \"chunked_attention\"");
    cJSON *config = read_config("llama-linear"); /* empty rope_scaling hides nothing */
    set_key(config, "rope_scaling", cJSON_CreateObject());
    set_key(config, "rope_parameters.factor", NULL);
    make_folder("llama-linear", config);
    trm_model *model;
    assert_fails(trm_model_open(folder, &model), invalid, "factor");
}

/* A quantized golden with one key of its quantization_config set. */
static trm_status quantized(const char *golden, const char *key, const char *value)
{
    char path[128];
    snprintf(path, sizeof(path), "quantization_config.%s", key);
    return open_with(golden, path, value);
}

static void quantizations_are_named(void **state)
{
    (void)state;
    const trm_status unsupported = TRM_ERROR_UNSUPPORTED, invalid = TRM_ERROR_INVALID_MODEL;
    assert_fails(
        open_with("llama", "quantization_config", "{\"quant_method\": \"bitsandbytes\"}"), unsupported,
        "quant_method is bitsandbytes, expected fp8, fbgemm_fp8, compressed-tensors, modelopt, gptq, awq or mxfp4");
    assert_fails(open_with("gemma3-images", "text_config.quantization_config", "{}"), unsupported,
                 "quant_method is not given");
    assert_fails(open_with("gpt2", "quantization_config", "{\"quant_method\": \"fp8\"}"), unsupported,
                 "quantized weights of GPT2LMHeadModel");
    assert_fails(quantized("quant-fp8", "fmt", "\"e5m2\""), unsupported, "fp8 has fmt e5m2, expected e4m3");
    assert_fails(quantized("quant-fp8", "weight_block_size", "[16]"), invalid,
                 "weight_block_size is not a list of two");
    assert_fails(quantized("quant-fp8", "weight_block_size", "[16, 0]"), invalid, "weight_block_size");
    assert_fails(quantized("quant-fp8", "activation_scheme", "\"block\""), unsupported,
                 "fp8 has activation_scheme block, expected dynamic or static");
    assert_fails(quantized("quant-modelopt", "quant_algo", "\"W4A8_AWQ\""), unsupported,
                 "modelopt has quant_algo W4A8_AWQ, expected FP8, FP8_PER_CHANNEL_PER_TOKEN or NVFP4");
    assert_fails(quantized("quant-gptq", "bits", "3"), unsupported, "gptq has bits 3, expected 4 or 8");
    assert_fails(quantized("quant-gptq", "bits", NULL), invalid, "bits");
    assert_fails(quantized("quant-gptq", "group_size", "0"), invalid, "group_size is 0");
    assert_fails(quantized("quant-gptq", "checkpoint_format", "\"marlin\""), unsupported, "checkpoint_format marlin");
    assert_fails(quantized("quant-gptq8", "sym", "false"), unsupported, "sym false with 8 bits");
    assert_fails(quantized("quant-awq", "bits", "8"), unsupported, "awq has bits 8, expected 4");
    assert_fails(quantized("quant-awq", "version", "\"gemv\""), unsupported, "version gemv, expected gemm");
    assert_fails(quantized("quant-awq", "zero_point", "false"), unsupported, "zero_point false");
    assert_fails(quantized("quant-int4", "format", "\"mxfp8-quantized\""), unsupported,
                 "format mxfp8-quantized, expected float-quantized");
    assert_fails(quantized("quant-nvfp4", "format", "\"mxfp4-pack-quantized\""), unsupported,
                 "group_size 16 in 4 bits, expected 32 in 4 bits");
    assert_fails(quantized("quant-int4", "config_groups", "{}"), unsupported, "config_groups of 0 members");
    assert_fails(quantized("quant-int4", "sparsity_config", "{\"format\": \"sparse-24-bitmask\"}"), unsupported,
                 "format sparse-24-bitmask, expected dense");
    assert_fails(quantized("quant-int4", "transform_config", "{\"config_groups\": {}}"), unsupported,
                 "transform_config");
    static const struct {
        const char *activations, *text;
    } activations[] = {
        {"\"num_bits\": 8, \"type\": \"int\", \"strategy\": \"token\", \"dynamic\": true",
         "input_activations of another type than its weights"},
        {"\"num_bits\": 8, \"type\": \"float\", \"strategy\": \"channel\", \"dynamic\": true",
         "strategy of input_activations channel, expected tensor, token or group"},
        {"\"num_bits\": 8, \"type\": \"float\", \"strategy\": \"group\", \"group_size\": 16, \"dynamic\": true",
         "strategy of input_activations group, expected groups where the weights have blocks"},
        {"\"num_bits\": 8, \"type\": \"float\", \"strategy\": \"token\", \"dynamic\": false",
         "input_activations with scales that are stored"},
    };
    for (size_t i = 0; i < sizeof(activations) / sizeof(activations[0]); i++) {
        char groups[512];
        snprintf(groups, sizeof(groups),
                 "{\"group_0\": {\"weights\": {\"num_bits\": 8, \"type\": \"float\", \"strategy\": \"channel\"}, "
                 "\"input_activations\": {%s}}}",
                 activations[i].activations);
        assert_fails(quantized("quant-float-dynamic", "config_groups", groups), unsupported, activations[i].text);
    }
    static const struct {
        const char *golden, *weights, *text;
    } weights[] = {
        {"quant-int4", "\"num_bits\": 3, \"type\": \"int\"", "bits 3, expected 4 or 8"},
        {"quant-int4", "\"num_bits\": 4, \"type\": \"posit\"", "type posit"},
        {"quant-int4", "\"num_bits\": 4, \"type\": \"float\"", "floats of other than 8 bits"},
        {"quant-int4", "\"num_bits\": 4, \"type\": \"int\", \"strategy\": \"tensor_group\"",
         "strategy tensor_group, expected tensor, channel, group or block"},
        {"quant-int8", "\"num_bits\": 8, \"type\": \"int\", \"symmetric\": false", "symmetric false with 8 bits"},
    };
    for (size_t i = 0; i < sizeof(weights) / sizeof(weights[0]); i++) {
        char groups[256];
        snprintf(groups, sizeof(groups), "{\"group_0\": {\"weights\": {%s}}}", weights[i].weights);
        assert_fails(quantized(weights[i].golden, "config_groups", groups), unsupported, weights[i].text);
    }
}

/* A golden with every `from` in its weights' names called `to`, which is as long. */
static trm_status renamed(const char *golden, const char *from, const char *to)
{
    char path[600], *bytes;
    size_t size, length = strlen(from);
    trm_model *model = NULL;
    make_folder(golden, read_config(golden));
    snprintf(path, sizeof(path), "%s/model.safetensors", test_golden_folder(golden));
    assert_ok(trm_file_read(path, 1 << 20, &bytes, &size));
    for (size_t i = 0; i + length < size; i++) {
        if (memcmp(bytes + i, from, length) == 0) {
            memcpy(bytes + i, to, length);
        }
    }
    unlink(in_folder("model.safetensors"));
    test_write_file(in_folder("model.safetensors"), bytes, size);
    free(bytes);
    linked = NULL;
    const trm_status status = trm_model_open(folder, &model);
    if (status == TRM_OK) {
        trm_model_close(model);
    }
    return status;
}

/* Spellings that transformers reads. */
static void other_spellings_are_read(void **state)
{
    (void)state;
    trm_model *model;
    assert_ok(renamed("llama", "\"model.", "      \"")); /* names of the model without its head: the space is JSON's */
    assert_ok(open_with("llama", "hidden_act", "\"gelu_python\""));
    assert_ok(open_with("gpt2", "activation_function", "\"tanh\""));
    assert_ok(open_with("llama", "partial_rotary_factor", "1.0"));
    assert_ok(open_with("gemma", "hidden_activation", "\"relu2\""));
    assert_ok(open_with("gemma3", "_sliding_window_pattern", "\"any\""));
    assert_ok(open_with("gemma3-images", "text_config.tie_word_embeddings", "false"));
    cJSON *config = read_config("mistral-layer-types");
    set_key(config, "model_type", cJSON_CreateString("ministral"));
    set_key(config, "architectures", cJSON_Parse("[\"MinistralForCausalLM\"]"));
    make_folder("mistral-layer-types", config);
    assert_ok(trm_model_open(folder, &model));
    trm_model_close(model);
}

static void quantized_weights_are_checked(void **state)
{
    (void)state;
    const trm_status unsupported = TRM_ERROR_UNSUPPORTED, invalid = TRM_ERROR_INVALID_MODEL;
    assert_fails(renamed("quant-fp8", ".weight_scale_inv", ".weight_scale_out"), invalid,
                 "q_proj.weight_scale is missing");
    assert_fails(renamed("quant-gptq", ".scales", ".states"), invalid, "q_proj.scales is missing");
    assert_fails(renamed("quant-gptq", ".qzeros", ".qzerus"), invalid, "q_proj.qzeros is missing");
    assert_fails(renamed("quant-int4-zeros", "_zero_point", "_zero_plane"), invalid, "weight_zero_point is missing");
    assert_fails(renamed("quant-int4", "weight_shape", "weight_g_idx"), unsupported, "order of activations (actorder)");
    assert_fails(quantized("quant-fp8", "weight_block_size", "[8, 32]"), invalid,
                 "weight_scale_inv has shape [2, 2], expected [4, 1]");
    assert_fails(quantized("quant-fp8-glm4", "weight_block_size", "[20, 16]"), unsupported,
                 "blocks of 20 rows with a scale each do not fit heads of 16 rows with interleaved rope");
    assert_fails(quantized("quant-fp8-phi3", "weight_block_size", "[24, 16]"), invalid, "weight_scale_inv has shape");
    assert_fails(quantized("quant-gptq", "group_size", "32"), unsupported, "column 16 is in group 1, expected 0");
    assert_fails(quantized("quant-awq", "group_size", "32"), invalid, "scales has shape [2, 32], expected [1, 32]");
    assert_fails(quantized("quant-gptq", "quant_method", "\"awq\""), invalid,
                 "qweight has shape [4, 32], expected [32, 4]");
    assert_fails(quantized("quant-fp8-tensor", "quant_method", "\"gptq\""), invalid, "bits");
    assert_fails(open_with("quant-fp8", "quantization_config", NULL), unsupported,
                 "q_proj.weight is f8e4m3, expected f32, f16 or bf16");
    assert_fails(renamed("quant-moe-fp8", "11.down_proj.weight_scale_inv", "11.down_proj.weight_scale_out"), invalid,
                 "weight model.layers.1.mlp.experts.11.down_proj.weight_scale is missing");
    assert_fails(renamed("quant-moe-stacked", "experts.down_proj_scale_inv", "experts.down_proj_scale_out"), invalid,
                 "weight model.layers.1.mlp.experts.down_proj_scale is missing");
    assert_fails(renamed("quant-mxfp4", "_proj_scales", "_proj_states"), invalid, "gate_up_proj_scales is missing");
    assert_fails(renamed("quant-mxfp4", "_proj_blocks", "_proj_bricks"), invalid, "gate_up_proj_blocks is missing");
    assert_fails(open_with("quant-mxfp4", "intermediate_size", "64"), invalid,
                 "gate_up_proj_blocks has shape [4, 192, 1, 16], expected [4, 128, 1, 16]");
    assert_fails(open_with("quant-mxfp4", "intermediate_size", "48"), invalid, "gate_up_proj_blocks has shape");
    assert_fails(open_with("quant-mxfp4", "quantization_config", NULL), invalid, "gate_up_proj is missing");
    assert_fails(open_with("llama", "quantization_config", "{\"quant_method\": \"mxfp4\"}"), unsupported,
                 "weights of LlamaForCausalLM in MXFP4 are not supported");
    assert_fails(renamed("quant-fp8", "\"F8_E4M3\"", "\"F8_E5M2\""), unsupported, "is F8_E5M2, expected f8e4m3");
}

static void keys_are_required_and_typed(void **state)
{
    (void)state;
    const trm_status invalid = TRM_ERROR_INVALID_MODEL;
    static const char *const required[] = {
        "architectures",     "model_type",          "hidden_size", "intermediate_size",
        "num_hidden_layers", "num_attention_heads", "vocab_size",  "max_position_embeddings"};
    for (size_t i = 0; i < sizeof(required) / sizeof(required[0]); i++) {
        assert_fails(open_with("llama", required[i], NULL), invalid, required[i]);
    }
    assert_fails(open_with("gpt2", "n_embd", NULL), invalid, "n_embd");
    assert_fails(open_with("llama-linear", "rope_parameters.factor", NULL), invalid, "factor");
    assert_fails(open_with("llama-llama3", "rope_parameters.low_freq_factor", NULL), invalid, "low_freq_factor");
    assert_fails(open_with("phi3-longrope", "rope_parameters.long_factor", NULL), invalid,
                 "long_factor has 0 elements");
    assert_fails(open_with("phi3-longrope", "rope_parameters.short_factor", "[1, 2, 3]"), invalid,
                 "short_factor has 3 elements, expected a list of 4 numbers");
    assert_fails(open_with("phi3-longrope", "rope_parameters.short_factor", "[1, 2, 3, \"x\"]"), invalid,
                 "short_factor[3] is not a positive number");

    assert_fails(open_with("llama", "hidden_size", "\"32\""), invalid, "hidden_size is \"32\", expected an integer");
    assert_fails(open_with("llama", "hidden_size", "-32"), invalid, "hidden_size is -32, expected 1 to");
    assert_fails(open_with("llama", "num_hidden_layers", "2.5"), invalid, "num_hidden_layers");
    assert_fails(open_with("llama", "num_hidden_layers", "200000"), invalid, "200000 layers");
    assert_fails(open_with("llama", "head_dim", "65538"), invalid, "heads of 65538 elements");
    assert_fails(open_with("llama", "rms_norm_eps", "\"small\""), invalid, "rms_norm_eps");
    assert_fails(open_with("llama", "rms_norm_eps", "-1"), invalid, "epsilon");
    assert_fails(open_with("llama", "attention_bias", "1"), invalid, "attention_bias");
    assert_fails(open_with("llama", "hidden_act", "7"), invalid, "hidden_act");
    assert_fails(open_with("llama", "rope_parameters", "[]"), invalid, "not an object");
    assert_fails(open_with("llama", "rope_parameters.rope_theta", "0"), invalid, "rope_theta is 0");
    assert_fails(open_with("llama", "rope_parameters.rope_type", "3"), invalid, "rope_type is not a string");
    assert_fails(open_with("llama-yarn", "rope_parameters.original_max_position_embeddings", "0"), invalid,
                 "original_max_position_embeddings is 0");
    assert_fails(open_with("llama-llama3", "rope_parameters.high_freq_factor", "1.0"), invalid, "are both 1");
    assert_fails(open_with("gemma3-images", "text_config", "[]"), invalid, "text_config is not an object");
    assert_fails(open_with("gemma3", "rope_parameters.full_attention", "4"), invalid,
                 "full_attention are not an object");
    assert_fails(open_with("gemma2", "query_pre_attn_scalar", "0"), invalid, "query_pre_attn_scalar is 0");
    assert_fails(open_with("gemma2", "final_logit_softcapping", "-1"), invalid, "final_logit_softcapping -1");
    assert_fails(open_with("gemma2", "layer_types", "[\"full_attention\"]"), invalid, "layer_types has 1 elements");
    assert_fails(open_with("gemma2", "layer_types", "[1, 2, 3, 4]"), invalid, "layer_types[0] is not a string");
    assert_fails(open_with("llama", "eos_token_id", "\"</s>\""), invalid, "eos_token_id is not a token");
    assert_fails(open_with("llama", "bos_token_id", "-1"), invalid, "bos_token_id is not a token");
    assert_fails(open_with("gemma3-images", "text_config.model_type", NULL), invalid, "model_type");
    assert_fails(open_with("smollm3", "no_rope_layers", "[1]"), invalid, "no_rope_layers has 1 elements");
    assert_fails(open_with("smollm3", "no_rope_layers", "[1, true]"), invalid, "no_rope_layers[1] is not an integer");
    assert_fails(open_with("granite", "logits_scaling", "0"), invalid, "logits_scaling 0, expected positive numbers");
    assert_fails(open_with("hunyuan-alpha", "rope_parameters.alpha", "-1"), invalid, "alpha is -1");
    assert_fails(open_with("exaone4", "sliding_window_pattern", "0"), invalid, "sliding_window_pattern is 0");
    assert_fails(open_with("ministral3", "rope_parameters", NULL), invalid, "rope_parameters is missing");
    assert_fails(open_with("ministral3", "rope_parameters.llama_4_scaling_beta", NULL), invalid,
                 "llama_4_scaling_beta");
    assert_fails(open_with("ministral3", "rope_parameters.original_max_position_embeddings", "0"), invalid,
                 "original_max_position_embeddings is 0");
}

static void sizes_must_fit_together(void **state)
{
    (void)state;
    const trm_status invalid = TRM_ERROR_INVALID_MODEL;
    assert_fails(open_with("llama", "num_key_value_heads", "3"), invalid,
                 "num_attention_heads 4 is not a multiple of num_key_value_heads 3");
    assert_fails(open_with("gpt2", "n_head", "5"), invalid,
                 "hidden size 32 is not a multiple of the 5 attention heads");
    assert_fails(open_with("mistral", "sliding_window", "3000000000"), invalid, "sliding_window is 3000000000");
    assert_fails(open_with("gemma2", "sliding_window", "null"), invalid, "layer 0 uses sliding attention");
}

/* ---- weights -------------------------------------------------------------------------------------------------- */

static void weights_must_have_the_shapes_expected(void **state)
{
    (void)state;
    const trm_status invalid = TRM_ERROR_INVALID_MODEL;
    assert_fails(open_with("llama", "intermediate_size", "64"), invalid,
                 "weight model.layers.0.mlp.gate_proj.weight has shape [48, 32], expected [64, 32]");
    assert_fails(open_with("llama", "vocab_size", "100"), invalid,
                 "weight model.embed_tokens.weight has shape [96, 32], expected [100, 32]");
    assert_fails(open_with("llama", "num_hidden_layers", "3"), invalid,
                 "weight model.layers.2.input_layernorm.weight is missing");
    assert_fails(open_with("llama", "attention_bias", "true"), invalid,
                 "weight model.layers.0.self_attn.q_proj.bias is missing");
    assert_fails(open_with("qwen2", "tie_word_embeddings", "false"), invalid,
                 "weight lm_head.weight is missing from the checkpoint, and tie_word_embeddings is false");
    assert_fails(open_with("gpt2", "n_positions", "65"), invalid,
                 "weight transformer.wpe.weight has shape [64, 32], expected [65, 32]");
    assert_fails(open_with("phi3", "num_key_value_heads", "4"), invalid,
                 "qkv_proj.weight has shape [64, 32], expected [96, 32]");
    assert_fails(renamed("gpt-neox", "gpt_neox.embed_in", "gpt_neox.embed_on"), invalid,
                 "weight gpt_neox.embed_in.weight is missing");
    assert_fails(open_with("llama", "num_attention_heads", "8"), invalid, "q_proj.weight has shape");
}

static void weights_must_be_floats(void **state)
{
    (void)state;
    static const char *const names[] = {"model.norm.weight", "model.embed_tokens.weight"};
    for (size_t i = 0; i < 2; i++) {
        char path[600], *bytes, what[128];
        size_t size;
        make_folder("llama", read_config("llama"));
        snprintf(path, sizeof(path), "%s/model.safetensors", test_golden_folder("llama"));
        assert_ok(trm_file_read(path, 1 << 20, &bytes, &size));
        char *entry = memmem(bytes, size, names[i], strlen(names[i]));
        char *type = entry != NULL ? memmem(entry, size - (size_t)(entry - bytes), "\"F32\"", 5) : NULL;
        assert_non_null(type);
        type[1] = 'I';
        linked = NULL;
        unlink(in_folder("model.safetensors"));
        test_write_file(in_folder("model.safetensors"), bytes, size);
        free(bytes);
        trm_model *model;
        snprintf(what, sizeof(what), "weight %s is i32, expected f32, f16 or bf16", names[i]);
        assert_fails(trm_model_open(folder, &model), TRM_ERROR_UNSUPPORTED, what);
    }
}

static char logged[1024];

static void keep_log(void *user, trm_log_level level, const char *message)
{
    (void)user;
    if (level == TRM_LOG_WARNING) {
        snprintf(logged, sizeof(logged), "%s", message);
    }
}

static void unused_weights_are_a_warning(void **state)
{
    (void)state;
    logged[0] = '\0';
    trm_log_set(keep_log, NULL, TRM_LOG_WARNING);
    assert_ok(open_with("llama", "num_hidden_layers", "2"));
    assert_string_equal(logged, "");
    assert_ok(open_with("llama", "num_hidden_layers", "1"));
    assert_non_null(
        strstr(logged, "9 weights of the checkpoint are not used: model.layers.1.input_layernorm.weight, "));
    assert_non_null(strstr(logged, ", ..."));
    trm_log_set(NULL, NULL, TRM_LOG_WARNING);
}

/* ---- files ---------------------------------------------------------------------------------------------------- */

static void files_are_missing_or_malformed(void **state)
{
    (void)state;
    trm_model *model;
    make_folder("llama", read_config("llama"));
    test_write_file(in_folder("config.json"), "{\"hidden_size\": }", 17);
    assert_fails(trm_model_open(folder, &model), TRM_ERROR_INVALID_MODEL, "config.json");
    test_write_file(in_folder("config.json"), "[1]", 3);
    assert_fails(trm_model_open(folder, &model), TRM_ERROR_INVALID_MODEL, "config.json: expected an object");
    unlink(in_folder("config.json"));
    assert_fails(trm_model_open(folder, &model), TRM_ERROR_IO, "config.json");
    make_folder("llama", read_config("llama"));
    linked = NULL;
    unlink(in_folder("model.safetensors"));
    assert_fails(trm_model_open(folder, &model), TRM_ERROR_IO, "model.safetensors");
    test_write_file(in_folder("model.safetensors"), "", 0);
    assert_fails(trm_model_open(folder, &model), TRM_ERROR_INVALID_MODEL, "model.safetensors");
}

static void generation_config_wins(void **state)
{
    (void)state;
    trm_model *model;
    trm_model_info info;
    static const char text[] =
        "{\"bos_token_id\": [5], \"eos_token_id\": [9, 8, 7], \"do_sample\": true, \"top_k\": 1, "
        "\"top_p\": 0.5, \"min_p\": null}";
    make_folder("llama", read_config("llama"));
    test_write_file(in_folder("generation_config.json"), text, sizeof(text) - 1);
    assert_ok(trm_model_open(folder, &model));
    trm_model_get_info(model, &info);
    assert_int_equal(info.bos_token, 5);
    assert_int_equal(info.n_eos_tokens, 3);
    assert_int_equal(info.eos_tokens[2], 7);
    assert_true(info.sampling.temperature == 1 && info.sampling.top_p == 0.5f && info.sampling.top_k == 1);
    assert_true(info.sampling.min_p < 0 && info.sampling.repetition_penalty < 0);
    trm_model_close(model);
    test_write_file(in_folder("generation_config.json"), "{\"do_sample\": false, \"temperature\": 0.6}", 40);
    assert_ok(trm_model_open(folder, &model));
    trm_model_get_info(model, &info);
    assert_true(info.sampling.temperature == 0);
    trm_model_close(model);
    test_write_file(in_folder("generation_config.json"), "{\"top_p\": 2}", 12);
    assert_fails(trm_model_open(folder, &model), TRM_ERROR_INVALID_MODEL, "top_p is 2, expected a number from 0 to 1");
    test_write_file(in_folder("generation_config.json"), "{\"eos_token_id\": {}}", 20);
    assert_fails(trm_model_open(folder, &model), TRM_ERROR_INVALID_MODEL, "generation_config.json: eos_token_id");
    test_write_file(in_folder("generation_config.json"), "7", 1);
    assert_fails(trm_model_open(folder, &model), TRM_ERROR_INVALID_MODEL, "generation_config.json: expected an object");

    cJSON *config = read_config("llama");
    set_key(config, "eos_token_id", NULL);
    set_key(config, "bos_token_id", cJSON_CreateNull());
    make_folder("llama", config);
    assert_ok(trm_model_open(folder, &model));
    trm_model_get_info(model, &info);
    assert_int_equal(info.bos_token, -1);
    assert_int_equal(info.n_eos_tokens, 0);
    trm_model_close(model);
}

/* ---- any value of any key ------------------------------------------------------------------------------------- */

static void try_values(const char *golden, const char *key)
{
    static const char *const values[] = {NULL,   "null",       "true", "\"x\"", "[]",     "{}",   "-1",
                                         "0",    "1",          "3",    "0.3",   "1e300",  "[1]",  "-0.5",
                                         "4096", "2147483647", "1e18", "[[]]",  "1e-300", "false"};
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        trm_status status = open_with(golden, key, values[i]);
        assert_true(status != TRM_ERROR_INTERNAL);
        assert_true(status == TRM_OK || trm_last_error()[0] != '\0');
    }
}

static void no_value_is_worse_than_an_error(void **state)
{
    (void)state;
    static const char *const goldens[] = {
        "llama-yarn-mscale", "qwen2-window-v4", "phi3-longrope",  "gemma3-v4",        "gpt-neox-v4",
        "quant-fp8",         "quant-int4",      "quant-gptq",     "quant-awq",        "ministral3",
        "smollm3",           "granite",         "exaone4",        "apertus",          "hunyuan-alpha",
        "quant-moe-gptq",    "glm4-moe",        "llama4",         "gemma4",           "hunyuan-moe",
        "minimax-m2-v4",     "kimi-k2",         "granite-hybrid", "nemotron-h-latent"};
    for (size_t g = 0; g < sizeof(goldens) / sizeof(goldens[0]); g++) {
        cJSON *config = read_config(goldens[g]);
        for (cJSON *member = config->child; member != NULL; member = member->next) {
            try_values(goldens[g], member->string);
            for (cJSON *inner = cJSON_IsObject(member) ? member->child : NULL; inner != NULL; inner = inner->next) {
                char key[128];
                snprintf(key, sizeof(key), "%s.%s", member->string, inner->string);
                try_values(goldens[g], key);
            }
        }
        cJSON_Delete(config);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unknown_things_are_named),        cmocka_unit_test(quantizations_are_named),
        cmocka_unit_test(mixtures_must_be_known_and_fit),  cmocka_unit_test(selective_scans_must_fit),
        cmocka_unit_test(unlike_transformers_is_refused),  cmocka_unit_test(other_spellings_are_read),
        cmocka_unit_test(quantized_weights_are_checked),   cmocka_unit_test(keys_are_required_and_typed),
        cmocka_unit_test(sizes_must_fit_together),         cmocka_unit_test(weights_must_have_the_shapes_expected),
        cmocka_unit_test(weights_must_be_floats),          cmocka_unit_test(unused_weights_are_a_warning),
        cmocka_unit_test(files_are_missing_or_malformed),  cmocka_unit_test(generation_config_wins),
        cmocka_unit_test(no_value_is_worse_than_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
