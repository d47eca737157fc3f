/* config.json and generation_config.json: the keys that families share, their checks, and the choice of family. */
#include "graph/import/hf/config.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"

#define MAX_SIZE     (INT64_C(1) << 31)
#define MAX_HEAD_DIM (INT64_C(1) << 16)
#define MAX_LAYERS   100000

static bool is_null(const trm_json *object, const char *key)
{
    if (trm_json_get(object, key) != NULL) {
        return false;
    }
    for (const trm_json *member = trm_json_first(object); member != NULL; member = trm_json_next(member)) {
        if (strcmp(trm_json_key(member), key) == 0) {
            return true;
        }
    }
    return false;
}

trm_status trm_hf_read_size(const trm_hf_reader *reader, const char *key, int64_t *value)
{
    int64_t found = *value;
    TRM_TRY(trm_json_member_integer(reader->document, reader->object, key, *value == 0, &found));
    if (found < 1 || found > MAX_SIZE) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "config.json: %s is %lld, expected 1 to %lld", key, (long long)found,
                 (long long)MAX_SIZE);
    }
    *value = found;
    return TRM_OK;
}

trm_status trm_hf_read_count(const trm_hf_reader *reader, const char *key, int64_t *value)
{
    int64_t found = *value;
    TRM_TRY(trm_json_member_integer(reader->document, reader->object, key, false, &found));
    if (found < 0 || found > MAX_SIZE) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "config.json: %s is %lld, expected 0 to %lld", key, (long long)found,
                 (long long)MAX_SIZE);
    }
    *value = found;
    return TRM_OK;
}

trm_status trm_hf_read_real(const trm_hf_reader *reader, const char *key, double *value)
{
    if (is_null(reader->object, key)) {
        *value = 0.0;
        return TRM_OK;
    }
    return trm_json_member_number(reader->document, reader->object, key, false, value);
}

trm_status trm_hf_read_bool(const trm_hf_reader *reader, const char *key, bool *value)
{
    return trm_json_member_bool(reader->document, reader->object, key, false, value);
}

trm_status trm_hf_refuse(const trm_hf_reader *reader, const char *key)
{
    bool value = false;
    TRM_TRY(trm_hf_read_bool(reader, key, &value));
    if (value) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "config.json: %s is true, which is not supported", key);
    }
    return TRM_OK;
}

trm_status trm_hf_read_activation(const trm_hf_reader *reader, const char *key, trm_hf_config *config)
{
    static const struct {
        const char *name;
        trm_activation activation;
        bool squared;
    } known[] = {
        {"silu", TRM_ACTIVATION_SILU, false},
        {"swish", TRM_ACTIVATION_SILU, false},
        {"gelu", TRM_ACTIVATION_GELU, false},
        {"gelu_new", TRM_ACTIVATION_GELU_TANH, false},
        {"gelu_fast", TRM_ACTIVATION_GELU_TANH, false},
        {"gelu_pytorch_tanh", TRM_ACTIVATION_GELU_TANH, false},
        {"relu", TRM_ACTIVATION_RELU, false},
        {"relu2", TRM_ACTIVATION_RELU, true},
        {"quick_gelu", TRM_ACTIVATION_QUICK_GELU, false},
        {"gelu_python", TRM_ACTIVATION_GELU, false},
        {"gelu_python_tanh", TRM_ACTIVATION_GELU_TANH, false},
        {"gelu_accurate", TRM_ACTIVATION_GELU_TANH, false},
        {"tanh", TRM_ACTIVATION_TANH, false},
        {"sigmoid", TRM_ACTIVATION_SIGMOID, false},
        {"mish", TRM_ACTIVATION_MISH, false},
        {"hardswish", TRM_ACTIVATION_HARD_SWISH, false},
    };
    const char *name = NULL;
    TRM_TRY(trm_json_member_string(reader->document, reader->object, key, false, &name));
    if (name == NULL) {
        return TRM_OK;
    }
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (strcmp(known[i].name, name) == 0) {
            config->activation = known[i].activation;
            config->squared = known[i].squared;
            return TRM_OK;
        }
    }
    TRM_FAIL(TRM_ERROR_UNSUPPORTED,
             "config.json: %s is \"%s\", expected one of silu, gelu, gelu_new, gelu_fast, gelu_pytorch_tanh, relu, "
             "relu2, quick_gelu, tanh, sigmoid, mish, hardswish",
             key, name);
}

trm_status trm_hf_check_sizes(const trm_hf_reader *reader, trm_hf_config *config)
{
    if (config->kv_heads == 0) {
        config->kv_heads = config->heads;
    }
    if (config->heads % config->kv_heads != 0) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL,
                 "config.json: num_attention_heads %lld is not a multiple of num_key_value_heads %lld",
                 (long long)config->heads, (long long)config->kv_heads);
    }
    if (config->head_dim == 0) {
        if (config->hidden % config->heads != 0) {
            TRM_FAIL(TRM_ERROR_INVALID_MODEL,
                     "config.json: the hidden size %lld is not a multiple of the %lld attention heads and there is no "
                     "head_dim",
                     (long long)config->hidden, (long long)config->heads);
        }
        config->head_dim = config->hidden / config->heads;
    }
    if (reader->layers > config->layers) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "%lld layers were asked for, the model has %lld",
                 (long long)reader->layers, (long long)config->layers);
    }
    config->n_stored = config->layers;
    if (reader->layers > 0) {
        config->layers = reader->layers;
    }
    if (config->layers > MAX_LAYERS || config->head_dim > MAX_HEAD_DIM) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL,
                 "config.json: %lld layers with heads of %lld elements, expected at most %d and %lld",
                 (long long)config->layers, (long long)config->head_dim, MAX_LAYERS, (long long)MAX_HEAD_DIM);
    }
    config->sliding = trm_arena_array(reader->arena, (size_t)config->layers, sizeof(bool));
    config->unrotated = trm_arena_array(reader->arena, (size_t)config->layers, sizeof(bool));
    return config->sliding != NULL && config->unrotated != NULL ? TRM_OK : TRM_ERROR_OUT_OF_MEMORY;
}

/* A size that may stay 0, to be derived. */
static trm_status read_optional_size(const trm_hf_reader *reader, const char *key, int64_t *value)
{
    return trm_json_get(reader->object, key) != NULL ? trm_hf_read_size(reader, key, value) : TRM_OK;
}

trm_status trm_hf_read_sizes(const trm_hf_reader *reader, trm_hf_config *config)
{
    TRM_TRY(trm_hf_read_size(reader, "hidden_size", &config->hidden));
    TRM_TRY(trm_hf_read_size(reader, "intermediate_size", &config->intermediate));
    TRM_TRY(trm_hf_read_size(reader, "num_hidden_layers", &config->layers));
    TRM_TRY(trm_hf_read_size(reader, "num_attention_heads", &config->heads));
    TRM_TRY(read_optional_size(reader, "num_key_value_heads", &config->kv_heads));
    TRM_TRY(read_optional_size(reader, "head_dim", &config->head_dim));
    TRM_TRY(trm_hf_read_size(reader, "vocab_size", &config->vocab));
    TRM_TRY(trm_hf_read_size(reader, "max_position_embeddings", &config->context_length));
    TRM_TRY(trm_hf_read_bool(reader, "tie_word_embeddings", &config->tied));
    return trm_hf_check_sizes(reader, config);
}

/* ---- windows ----------------------------------------------------------------------------------------- */

static trm_status check_windows(const trm_hf_config *config)
{
    for (int64_t i = 0; i < config->layers; i++) {
        if (config->sliding[i] && config->window < 1) {
            TRM_FAIL(TRM_ERROR_INVALID_MODEL,
                     "config.json: layer %lld uses sliding attention and there is no sliding_window", (long long)i);
        }
    }
    return TRM_OK;
}

trm_status trm_hf_read_layer_types(const trm_hf_reader *reader, trm_hf_config *config)
{
    const trm_json *types = trm_json_get(reader->object, "layer_types");
    if (types == NULL) {
        return check_windows(config);
    }
    if (!trm_json_is_array(types) || (int64_t)trm_json_count(types) < config->layers) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "config.json: layer_types has %zu elements, expected a list of %lld",
                 trm_json_count(types), (long long)config->layers);
    }
    const trm_json *type = trm_json_first(types);
    for (int64_t i = 0; i < config->layers; i++, type = trm_json_next(type)) {
        const char *name = trm_json_string(type);
        if (name == NULL) {
            TRM_FAIL(TRM_ERROR_INVALID_MODEL, "config.json: layer_types[%lld] is not a string", (long long)i);
        }
        const char *sliding = config->chunked ? "chunked_attention" : "sliding_attention";
        config->sliding[i] = strcmp(name, sliding) == 0;
        if (!config->sliding[i] && strcmp(name, "full_attention") != 0) {
            TRM_FAIL(TRM_ERROR_UNSUPPORTED, "config.json: layer_types[%lld] is \"%s\", expected full_attention or %s",
                     (long long)i, name, sliding);
        }
    }
    return check_windows(config);
}

trm_status trm_hf_read_unrotated_layers(const trm_hf_reader *reader, trm_hf_config *config)
{
    const trm_json *list = trm_json_get(reader->object, "no_rope_layers");
    int64_t interval = 4, is_rotated;
    TRM_TRY(trm_hf_read_size(reader, "no_rope_layer_interval", &interval));
    if (list == NULL || (trm_json_is_array(list) && trm_json_count(list) == 0)) {
        for (int64_t i = 0; i < config->layers; i++) {
            config->unrotated[i] = (i + 1) % interval == 0;
        }
        return TRM_OK;
    }
    if (!trm_json_is_array(list) || (int64_t)trm_json_count(list) < config->layers) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "config.json: no_rope_layers has %zu elements, expected a list of %lld",
                 trm_json_count(list), (long long)config->layers);
    }
    const trm_json *element = trm_json_first(list);
    for (int64_t i = 0; i < config->layers; i++, element = trm_json_next(element)) {
        if (!trm_json_integer(element, &is_rotated)) {
            TRM_FAIL(TRM_ERROR_INVALID_MODEL, "config.json: no_rope_layers[%lld] is not an integer", (long long)i);
        }
        config->unrotated[i] = is_rotated == 0;
    }
    return TRM_OK;
}

trm_status trm_hf_read_windows(const trm_hf_reader *reader, trm_hf_config *config, int64_t pattern)
{
    if (is_null(reader->object, "sliding_window")) {
        config->window = 0;
    } else if (trm_json_get(reader->object, "sliding_window") != NULL) {
        TRM_TRY(trm_hf_read_size(reader, "sliding_window", &config->window));
    }
    if (config->window > INT32_MAX) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "config.json: sliding_window is %lld, expected 1 to %d",
                 (long long)config->window, INT32_MAX);
    }
    for (int64_t i = 0; i < config->layers; i++) {
        config->sliding[i] = pattern == 0 ? config->window > 0 : (i + 1) % pattern != 0;
    }
    return TRM_OK;
}

/* ---- tokens ------------------------------------------------------------------------------------------- */

static trm_status read_token(const char *file, const trm_json *value, const char *key, int32_t *token)
{
    int64_t number;
    if (!trm_json_integer(value, &number) || number < 0 || number > INT32_MAX) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s: %s is not a token, expected an integer from 0", file, key);
    }
    *token = (int32_t)number;
    return TRM_OK;
}

/* Begin and end tokens: an integer or a list. Absent keys change nothing. */
static trm_status read_tokens(const char *file, const trm_json *object, trm_hf_config *config)
{
    const trm_json *bos = trm_json_get(object, "bos_token_id");
    if (trm_json_is_array(bos)) {
        bos = trm_json_at(bos, 0);
    }
    if (bos != NULL) {
        TRM_TRY(read_token(file, bos, "bos_token_id", &config->bos_token));
    }
    const trm_json *eos = trm_json_get(object, "eos_token_id");
    if (eos == NULL) {
        return TRM_OK;
    }
    if (!trm_json_is_array(eos)) {
        config->n_eos = 1;
        return read_token(file, eos, "eos_token_id", &config->eos[0]);
    }
    if (trm_json_count(eos) > TRM_HF_MAX_EOS) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "%s: eos_token_id lists %zu tokens, expected at most %d", file,
                 trm_json_count(eos), TRM_HF_MAX_EOS);
    }
    config->n_eos = 0;
    for (const trm_json *token = trm_json_first(eos); token != NULL; token = trm_json_next(token)) {
        TRM_TRY(read_token(file, token, "eos_token_id", &config->eos[config->n_eos++]));
    }
    return TRM_OK;
}

static trm_status read_sampling(const trm_json_document *document, const trm_json *root, trm_model_sampling *sampling)
{
    const struct {
        const char *key;
        float *value;
        double least, most;
    } numbers[] = {{"temperature", &sampling->temperature, 0, 1000},
                   {"top_p", &sampling->top_p, 0, 1},
                   {"min_p", &sampling->min_p, 0, 1},
                   {"repetition_penalty", &sampling->repetition_penalty, 1e-9, 1000}};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        double value = -1;
        TRM_TRY(trm_json_member_number(document, root, numbers[i].key, false, &value));
        if (trm_json_get(root, numbers[i].key) != NULL && !(value >= numbers[i].least && value <= numbers[i].most)) {
            TRM_FAIL(TRM_ERROR_INVALID_MODEL, "generation_config.json: %s is %g, expected a number from %g to %g",
                     numbers[i].key, value, numbers[i].least, numbers[i].most);
        }
        *numbers[i].value = (float)value;
    }
    int64_t top_k = -1;
    bool samples = true;
    TRM_TRY(trm_json_member_integer(document, root, "top_k", false, &top_k));
    TRM_TRY(trm_json_member_bool(document, root, "do_sample", false, &samples));
    sampling->top_k = top_k > INT32_MAX ? INT32_MAX : top_k < 0 ? -1 : (int32_t)top_k;
    if (!samples) {
        sampling->temperature = 0;
    } else if (trm_json_get(root, "do_sample") != NULL && sampling->temperature < 0) {
        sampling->temperature = 1;
    }
    return TRM_OK;
}

trm_status trm_hf_config_read_generation(const trm_json_document *document, trm_hf_config *config)
{
    const trm_json *root = trm_json_root(document);
    if (!trm_json_is_object(root)) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "generation_config.json: expected an object");
    }
    TRM_TRY(read_tokens("generation_config.json", root, config));
    return read_sampling(document, root, &config->sampling);
}

/* ---- the file ----------------------------------------------------------------------------------------- */

static const trm_hf_family *find_family(const char *architecture)
{
    for (const trm_hf_family *const *family = trm_hf_families; *family != NULL; family++) {
        const char *other = (*family)->other_architecture;
        if (strcmp((*family)->architecture, architecture) == 0 || (other != NULL && strcmp(other, architecture) == 0)) {
            return *family;
        }
    }
    return NULL;
}

static const trm_hf_wrapper *find_wrapper(const char *architecture)
{
    for (const trm_hf_wrapper *wrapper = trm_hf_wrappers; wrapper->architecture != NULL; wrapper++) {
        if (strcmp(wrapper->architecture, architecture) == 0) {
            return wrapper;
        }
    }
    return NULL;
}

/* The family of a model_type, which one architecture has. */
static const trm_hf_family *find_model_type(const char *model_type)
{
    for (const trm_hf_family *const *family = trm_hf_families; *family != NULL; family++) {
        const char *text_type = (*family)->text_type;
        if (strcmp((*family)->model_type, model_type) == 0 ||
            (text_type != NULL && strcmp(text_type, model_type) == 0)) {
            return *family;
        }
    }
    return NULL;
}

/* transformers chooses the model by model_type, we by architecture: they must mean the same. */
static trm_status check_model_type(const char *architecture, const char *expected, const char *model_type)
{
    bool known = find_model_type(model_type) != NULL;
    for (const trm_hf_wrapper *wrapper = trm_hf_wrappers; wrapper->architecture != NULL; wrapper++) {
        known = known || strcmp(wrapper->model_type, model_type) == 0;
    }
    if (known && strcmp(expected, model_type) != 0) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL,
                 "config.json: model_type is \"%s\", which does not go with architecture %s, expected \"%s\"",
                 model_type, architecture, expected);
    }
    return TRM_OK;
}

static trm_status unknown_architecture(const char *architecture)
{
    char known[2048] = "";
    size_t used = 0;
    for (const trm_hf_family *const *family = trm_hf_families; *family != NULL && used < sizeof(known); family++) {
        used +=
            (size_t)snprintf(known + used, sizeof(known) - used, "%s%s", used > 0 ? ", " : "", (*family)->architecture);
    }
    for (const trm_hf_wrapper *wrapper = trm_hf_wrappers; wrapper->architecture != NULL && used < sizeof(known);
         wrapper++) {
        used += (size_t)snprintf(known + used, sizeof(known) - used, ", %s", wrapper->architecture);
    }
    TRM_FAIL(TRM_ERROR_UNSUPPORTED, "config.json: architecture %s is not supported, expected one of %s", architecture,
             known);
}

/* The family of a model with images, and where its keys are. */
static trm_status choose_text_family(trm_hf_reader *reader, const trm_hf_wrapper *wrapper, trm_hf_config *config)
{
    const char *text_type = wrapper->flat_type;
    const trm_json *text = trm_json_get(reader->root, "text_config");
    if (text != NULL || text_type == NULL) {
        if (!trm_json_is_object(text)) {
            TRM_FAIL(TRM_ERROR_INVALID_MODEL, "config.json: text_config is not an object");
        }
        reader->object = text;
        TRM_TRY(trm_json_member_string(reader->document, text, "model_type", true, &text_type));
    }
    config->family = find_model_type(text_type);
    if (config->family == NULL) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "config.json: model_type of text_config, \"%s\", is not supported", text_type);
    }
    return TRM_OK;
}

/* Sets what decides the reading: the family and the object that holds its keys. */
static trm_status choose_family(trm_hf_reader *reader, const char *architecture, trm_hf_config *config)
{
    const trm_hf_family *family = find_family(architecture);
    const trm_hf_wrapper *wrapper = find_wrapper(architecture);
    config->architecture = architecture;
    if (trm_hf_is_eagle(architecture)) {
        config->model_type = config->architecture;
        config->family = &trm_hf_eagle3;
        return TRM_OK;
    }
    if (family == NULL && wrapper == NULL) {
        return unknown_architecture(architecture);
    }
    TRM_TRY(trm_json_member_string(reader->document, reader->root, "model_type", true, &config->model_type));
    TRM_TRY(
        check_model_type(architecture, family != NULL ? family->model_type : wrapper->model_type, config->model_type));
    config->family = family;
    return family != NULL ? TRM_OK : choose_text_family(reader, wrapper, config);
}

static trm_status check_causal(const trm_hf_reader *reader)
{
    bool is_causal = true;
    TRM_TRY(trm_hf_read_bool(reader, "is_causal", &is_causal));
    if (!is_causal) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "config.json: is_causal is false, which is not supported");
    }
    return TRM_OK;
}

trm_status trm_hf_config_read(const trm_json_document *document, trm_arena *arena, int64_t layers,
                              trm_hf_config *config)
{
    const trm_json *root = trm_json_root(document);
    if (!trm_json_is_object(root)) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "config.json: expected an object");
    }
    const char *architecture = trm_json_string(trm_json_at(trm_json_get(root, "architectures"), 0));
    if (architecture == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL,
                 "config.json: architectures is missing, expected a list with the name of the architecture");
    }
    trm_hf_config found = {0};
    trm_hf_reader reader = {document, root, root, arena, layers};
    TRM_TRY(choose_family(&reader, architecture, &found));
    TRM_TRY(trm_hf_quantization_read(document, root, &found.quantization));
    if (reader.object != root) {
        TRM_TRY(trm_hf_quantization_read(document, reader.object, &found.quantization));
    }
    TRM_TRY(check_causal(&reader));
    found.bos_token = -1;
    found.sampling = (trm_model_sampling){-1, -1, -1, -1, -1};
    found.norm_eps = 1e-6;
    found.rotary = true;
    found.rope[0].theta = 10000.0;
    found.rope[0].partial = 1.0;
    TRM_TRY(found.family->read(&reader, &found));
    if (reader.object != root) { /* with images the file's own key goes before that of text_config */
        found.tied = found.tied || find_wrapper(architecture)->tied;
        TRM_TRY(trm_json_member_bool(document, root, "tie_word_embeddings", false, &found.tied));
    }
    if (!(found.norm_eps > 0.0)) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "config.json: the epsilon of norms is %g, expected a positive number",
                 found.norm_eps);
    }
    if (found.quantization.format != TRM_HF_QUANT_NONE && found.family->names.transposed) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "config.json: quantized weights of %s are not supported", architecture);
    }
    if (found.quantization.format == TRM_HF_QUANT_MXFP4 &&
        (found.moe.experts == 0 || found.family->names.experts_gate_up == NULL)) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "config.json: weights of %s in MXFP4 are not supported, stacked experts are",
                 architecture);
    }
    TRM_TRY(read_tokens("config.json", reader.object, &found));
    TRM_TRY(read_tokens("config.json", root, &found));
    *config = found;
    return TRM_OK;
}
