/* quantization_config: which of the known ways to store linear layers a checkpoint uses. */
#include "graph/import/hf/quantization/quantization.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"

#define CONFIG "config.json: quantization_config"

typedef struct reader {
    const trm_json_document *document;
    const trm_json *object; /* quantization_config */
    trm_hf_quantization *to;
} reader;

static trm_status refuse(const reader *r, const char *key, const char *found, const char *expected)
{
    return trm_fail(TRM_ERROR_UNSUPPORTED, CONFIG ": %s has %s %s, expected %s", r->to->method, key,
                    found != NULL ? found : "none", expected);
}

/* A text that must be one of those given, or absent where NULL is among them. */
static trm_status expect_text(const reader *r, const trm_json *object, const char *key, const char *first,
                              const char *second)
{
    const trm_json *member = trm_json_get(object, key);
    const char *text = trm_json_string(member);
    if (member == NULL ||
        (text != NULL && (strcmp(text, first) == 0 || (second != NULL && strcmp(text, second) == 0)))) {
        return TRM_OK;
    }
    char expected[128];
    snprintf(expected, sizeof(expected), "%s%s%s", first, second != NULL ? " or " : "", second != NULL ? second : "");
    return refuse(r, key, text != NULL ? text : "of another type", expected);
}

/* An object or a list that must be empty or absent. */
static trm_status expect_empty(const reader *r, const char *key)
{
    return trm_json_count(trm_json_get(r->object, key)) == 0 ? TRM_OK : refuse(r, key, "that is not empty", "none");
}

static trm_status read_size(const reader *r, const trm_json *object, const char *key, bool required, int32_t *size)
{
    int64_t value = *size;
    TRM_TRY(trm_json_member_integer(r->document, object, key, required, &value));
    if (value != -1 && (value < 1 || value > INT32_MAX)) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, CONFIG ": %s is %lld, expected 1 or more, or -1", key, (long long)value);
    }
    *size = value < 0 ? 0 : (int32_t)value;
    return TRM_OK;
}

static trm_status read_block(const reader *r, const trm_json *object, const char *key)
{
    const trm_json *block = trm_json_get(object, key);
    int64_t n = 0, k = 0;
    if (block == NULL) {
        return TRM_OK;
    }
    if (!trm_json_integer(trm_json_at(block, 0), &n) || !trm_json_integer(trm_json_at(block, 1), &k) || n < 1 ||
        k < 1 || n > INT32_MAX || k > INT32_MAX || trm_json_count(block) != 2) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, CONFIG ": %s is not a list of two sizes", key);
    }
    r->to->block_n = (int32_t)n;
    r->to->block_k = (int32_t)k;
    return TRM_OK;
}

static void take_f8(const reader *r, trm_x_quantization x)
{
    r->to->format = TRM_HF_QUANT_BYTES;
    r->to->bits = 8;
    r->to->type = TRM_F8E4M3;
    r->to->x = x;
}

/* Floats of 4 bits; activations stay as they are. */
static trm_status take_f4(const reader *r, int32_t group)
{
    r->to->format = TRM_HF_QUANT_F4;
    r->to->bits = 4;
    r->to->type = TRM_F4E2M1;
    r->to->block_n = 1;
    r->to->block_k = group;
    return TRM_OK;
}

/* weight_scale_inv by blocks, or one scale for a weight. */
static trm_status read_fp8(const reader *r)
{
    const char *scheme = "dynamic";
    TRM_TRY(expect_text(r, r->object, "fmt", "e4m3", "float8_e4m3fn"));
    TRM_TRY(expect_text(r, r->object, "activation_scheme", "dynamic", "static"));
    TRM_TRY(trm_json_member_string(r->document, r->object, "activation_scheme", false, &scheme));
    take_f8(r, strcmp(scheme, "static") == 0 ? TRM_X_STATIC : TRM_X_DYNAMIC);
    return read_block(r, r->object, "weight_block_size");
}

static trm_status read_fbgemm_fp8(const reader *r)
{
    double most = 0.0;
    take_f8(r, TRM_X_DYNAMIC);
    TRM_TRY(trm_json_member_number(r->document, r->object, "activation_scale_ub", false, &most));
    r->to->most_x_scale = most > 0.0 ? (float)most / 448.0f : 0.0f;
    return TRM_OK;
}

static trm_status read_modelopt(const reader *r)
{
    const char *found = "";
    TRM_TRY(trm_json_member_string(r->document, r->object, "quant_algo", true, &found));
    if (strcmp(found, "NVFP4") == 0) {
        return take_f4(r, 16);
    }
    const bool by_token = strcmp(found, "FP8_PER_CHANNEL_PER_TOKEN") == 0;
    if (!by_token && strcmp(found, "FP8") != 0) {
        return refuse(r, "quant_algo", found, "FP8, FP8_PER_CHANNEL_PER_TOKEN or NVFP4");
    }
    take_f8(r, by_token ? TRM_X_DYNAMIC : TRM_X_STATIC);
    return TRM_OK;
}

/* Experts alone; what is not converted has plain weights. */
static trm_status read_mxfp4(const reader *r)
{
    r->to->format = TRM_HF_QUANT_MXFP4;
    r->to->bits = 4;
    r->to->type = TRM_U8;
    return TRM_OK;
}

static trm_status expect_bits(const reader *r, int32_t bits, bool eight)
{
    char found[32];
    snprintf(found, sizeof(found), "%d", (int)bits);
    return bits == 4 || (eight && bits == 8) ? TRM_OK : refuse(r, "bits", found, eight ? "4 or 8" : "4");
}

static trm_status read_gptq(const reader *r)
{
    bool symmetric = false;
    int32_t bits = 0, group = 0;
    const char *layout = NULL;
    r->to->format = TRM_HF_QUANT_GPTQ;
    TRM_TRY(read_size(r, r->object, "bits", true, &bits));
    TRM_TRY(expect_bits(r, bits, true));
    TRM_TRY(read_size(r, r->object, "group_size", true, &group));
    TRM_TRY(trm_json_member_bool(r->document, r->object, "sym", false, &symmetric));
    TRM_TRY(expect_text(r, r->object, "checkpoint_format", "gptq", "gptq_v2"));
    TRM_TRY(trm_json_member_string(r->document, r->object, "checkpoint_format", false, &layout));
    TRM_TRY(expect_empty(r, "dynamic"));
    if (bits == 8 && !symmetric) {
        return refuse(r, "sym", "false with 8 bits", "true");
    }
    r->to->bits = bits;
    r->to->type = TRM_I8;
    r->to->block_n = 1;
    r->to->block_k = group;
    r->to->has_zero_points = !symmetric;
    r->to->zeros_less_one = layout == NULL || strcmp(layout, "gptq") == 0;
    return TRM_OK;
}

static trm_status read_awq(const reader *r)
{
    bool zero_points = true;
    int32_t bits = 0, group = 0;
    r->to->format = TRM_HF_QUANT_AWQ;
    TRM_TRY(read_size(r, r->object, "bits", true, &bits));
    TRM_TRY(expect_bits(r, bits, false));
    TRM_TRY(read_size(r, r->object, "group_size", true, &group));
    TRM_TRY(expect_text(r, r->object, "version", "gemm", "GEMM"));
    TRM_TRY(trm_json_member_bool(r->document, r->object, "zero_point", false, &zero_points));
    if (!zero_points) {
        return refuse(r, "zero_point", "false", "true");
    }
    r->to->bits = bits;
    r->to->block_n = 1;
    r->to->block_k = group;
    r->to->has_zero_points = true;
    return TRM_OK;
}

/* ---- compressed-tensors ------------------------------------------------------------------------------- */

/* Blocks by the strategy: tensor, channel, group or block. */
static trm_status read_strategy(const reader *r, const trm_json *weights)
{
    const char *strategy = "";
    TRM_TRY(trm_json_member_string(r->document, weights, "strategy", false, &strategy));
    if (strcmp(strategy, "tensor") == 0 || strcmp(strategy, "channel") == 0) {
        return TRM_OK;
    }
    if (strcmp(strategy, "group") == 0) {
        r->to->block_n = 1;
        return read_size(r, weights, "group_size", true, &r->to->block_k);
    }
    if (strcmp(strategy, "block") == 0) {
        return read_block(r, weights, "block_structure");
    }
    return refuse(r, "strategy", strategy, "tensor, channel, group or block");
}

/* How activations of a weight of e4m3 or i8 are quantized; those of others stay as they are. A single dynamic scale for
 * all tokens becomes one per token, which is at most as large, so that a token's results depend on no other. */
static trm_status read_activations(const reader *r, const trm_json *activations)
{
    int32_t bits = 0, group = 0;
    bool dynamic = false;
    const bool is_float = r->to->type == TRM_F8E4M3;
    bool symmetric = true;
    const char *type = "", *strategy = "";
    if (r->to->format != TRM_HF_QUANT_BYTES || trm_json_count(activations) == 0) {
        return TRM_OK;
    }
    TRM_TRY(read_size(r, activations, "num_bits", true, &bits));
    TRM_TRY(trm_json_member_string(r->document, activations, "type", true, &type));
    if (bits != 8 || strcmp(type, is_float ? "float" : "int") != 0) {
        return refuse(r, "input_activations", "of another type than its weights", "that of the weights");
    }
    TRM_TRY(trm_json_member_bool(r->document, activations, "symmetric", false, &symmetric));
    if (!symmetric) {
        TRM_WARN(CONFIG ": input_activations have zero points; activations stay in the compute type");
        return TRM_OK;
    }
    TRM_TRY(trm_json_member_string(r->document, activations, "strategy", true, &strategy));
    TRM_TRY(trm_json_member_bool(r->document, activations, "dynamic", false, &dynamic));
    const bool by_group = strcmp(strategy, "group") == 0, by_tensor = strcmp(strategy, "tensor") == 0;
    if (!by_group && !by_tensor && strcmp(strategy, "token") != 0) {
        return refuse(r, "strategy of input_activations", strategy, "tensor, token or group");
    }
    TRM_TRY(by_group ? read_size(r, activations, "group_size", true, &group) : TRM_OK);
    if (by_group ? group != r->to->block_k : r->to->block_k != 0) {
        return refuse(r, "strategy of input_activations", strategy, "groups where the weights have blocks, as wide");
    }
    if (!dynamic && !by_tensor) {
        return refuse(r, "input_activations", "with scales that are stored, but not one for all", "dynamic ones");
    }
    r->to->x = dynamic ? TRM_X_DYNAMIC : TRM_X_STATIC;
    return TRM_OK;
}

static trm_status read_compressed_weights(const reader *r, const char *format, const trm_json *weights)
{
    int32_t bits = 0;
    const char *type = "";
    bool symmetric = true;
    TRM_TRY(read_size(r, weights, "num_bits", true, &bits));
    TRM_TRY(trm_json_member_string(r->document, weights, "type", true, &type));
    TRM_TRY(trm_json_member_bool(r->document, weights, "symmetric", false, &symmetric));
    const bool is_float = strcmp(type, "float") == 0, is_packed = strcmp(format, "pack-quantized") == 0;
    if (!is_float && strcmp(type, "int") != 0) {
        return refuse(r, "type", type, "float or int");
    }
    if (is_packed ? is_float : bits != 8) {
        return refuse(r, "weights", is_float ? "floats of other than 8 bits, or packed ones" : "of other than 8 bits",
                      "float-quantized or int-quantized of 8 bits, or pack-quantized integers");
    }
    TRM_TRY(expect_bits(r, bits, true));
    if (!symmetric && bits == 8) {
        return refuse(r, "symmetric", "false with 8 bits", "true");
    }
    r->to->format = is_packed ? TRM_HF_QUANT_PACKED : TRM_HF_QUANT_BYTES;
    r->to->bits = bits;
    r->to->type = is_float ? TRM_F8E4M3 : TRM_I8;
    r->to->has_zero_points = !symmetric;
    return read_strategy(r, weights);
}

/* NVFP4, or MXFP4 of linear layers: the group says which scales there are. */
static trm_status read_compressed_f4(const reader *r, const trm_json *weights, int32_t expected)
{
    int32_t bits = 0, group = 0;
    char found[32];
    TRM_TRY(read_size(r, weights, "num_bits", true, &bits));
    TRM_TRY(read_size(r, weights, "group_size", true, &group));
    snprintf(found, sizeof(found), "%d in %d bits", (int)group, (int)bits);
    return bits == 4 && group == expected
               ? take_f4(r, group)
               : refuse(r, "group_size", found, expected == 16 ? "16 in 4 bits" : "32 in 4 bits");
}

static trm_status read_compressed_tensors(const reader *r)
{
    static const char *const formats[] = {"float-quantized", "int-quantized",        "naive-quantized",
                                          "pack-quantized",  "nvfp4-pack-quantized", "mxfp4-pack-quantized"};
    const trm_json *groups = trm_json_get(r->object, "config_groups"), *group = trm_json_first(groups);
    const char *format = "";
    char found[32];
    if (trm_json_count(groups) != 1) {
        snprintf(found, sizeof(found), "%zu members", trm_json_count(groups));
        return refuse(r, "config_groups of", found, "1");
    }
    TRM_TRY(trm_json_member_string(r->document, r->object, "format", false, &format));
    TRM_TRY(trm_json_member_string(r->document, group, "format", false, &format));
    bool known = false;
    for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++) {
        known = known || strcmp(format, formats[i]) == 0;
    }
    if (!known) {
        return refuse(r, "format", format,
                      "float-quantized, int-quantized, naive-quantized, pack-quantized, nvfp4-pack-quantized or "
                      "mxfp4-pack-quantized");
    }
    TRM_TRY(expect_empty(r, "transform_config"));
    const trm_json *sparsity = trm_json_get(r->object, "sparsity_config");
    if (trm_json_count(sparsity) > 0) {
        TRM_TRY(expect_text(r, sparsity, "format", "dense", NULL));
    }
    if (strcmp(format, formats[4]) == 0 || strcmp(format, formats[5]) == 0) {
        return read_compressed_f4(r, trm_json_get(group, "weights"), format[0] == 'n' ? 16 : 32);
    }
    TRM_TRY(read_compressed_weights(r, format, trm_json_get(group, "weights")));
    return read_activations(r, trm_json_get(group, "input_activations"));
}

/* ---- all ------------------------------------------------------------------------------------------------ */

trm_status trm_hf_quantization_read(const trm_json_document *document, const trm_json *object,
                                    trm_hf_quantization *quantization)
{
    static const struct {
        const char *method;
        trm_status (*read)(const reader *r);
    } methods[] = {
        {"fp8", read_fp8},
        {"fbgemm_fp8", read_fbgemm_fp8},
        {"compressed-tensors", read_compressed_tensors},
        {"modelopt", read_modelopt},
        {"gptq", read_gptq},
        {"awq", read_awq},
        {"mxfp4", read_mxfp4},
    };
    const trm_json *config = trm_json_get(object, "quantization_config");
    if (config == NULL) {
        return TRM_OK;
    }
    trm_hf_quantization found = {.method = trm_json_string(trm_json_get(config, "quant_method"))};
    for (size_t i = 0; found.method != NULL && i < sizeof(methods) / sizeof(methods[0]); i++) {
        if (strcmp(methods[i].method, found.method) == 0) {
            const reader r = {document, config, &found};
            TRM_TRY(methods[i].read(&r));
            *quantization = found;
            return TRM_OK;
        }
    }
    TRM_FAIL(TRM_ERROR_UNSUPPORTED,
             CONFIG ": quant_method is %s, expected fp8, fbgemm_fp8, compressed-tensors, modelopt, gptq, awq or "
                    "mxfp4",
             found.method != NULL ? found.method : "not given");
}

#define FP8 .format = TRM_HF_QUANT_BYTES, .bits = 8, .type = TRM_F8E4M3

trm_status trm_hf_quantization_named(const char *name, trm_hf_quantization *quantization)
{
    static const struct {
        const char *name;
        trm_hf_quantization quantization;
    } known[] = {
        {"fp8", {FP8, .block_n = 1, .x = TRM_X_DYNAMIC}},
        {"fp8-weights", {FP8, .block_n = 1}},
        {"fp8-block", {FP8, .block_n = 128, .block_k = 128, .x = TRM_X_DYNAMIC}},
        {"fp8-block-weights", {FP8, .block_n = 128, .block_k = 128}},
        {"int8", {.format = TRM_HF_QUANT_BYTES, .bits = 8, .type = TRM_I8, .block_n = 1, .x = TRM_X_DYNAMIC}},
        {"int8-weights", {.format = TRM_HF_QUANT_BYTES, .bits = 8, .type = TRM_I8, .block_n = 1}},
        {"int4", {.format = TRM_HF_QUANT_PACKED, .bits = 4, .type = TRM_U8, .block_n = 1}},
        {"nvfp4", {.format = TRM_HF_QUANT_F4, .bits = 4, .type = TRM_F4E2M1, .block_n = 1, .block_k = 16}},
        {"mxfp4", {.format = TRM_HF_QUANT_F4, .bits = 4, .type = TRM_F4E2M1, .block_n = 1, .block_k = 32}},
        {"int4-128", {.format = TRM_HF_QUANT_PACKED, .bits = 4, .type = TRM_U8, .block_n = 1, .block_k = 128}},
    };
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (strcmp(known[i].name, name) == 0) {
            *quantization = known[i].quantization;
            quantization->method = known[i].name;
            return TRM_OK;
        }
    }
    TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
             "there are no quantized weights %s, expected fp8, fp8-weights, fp8-block, fp8-block-weights, int8, "
             "int8-weights, int4, int4-128, nvfp4 or mxfp4",
             name);
}
