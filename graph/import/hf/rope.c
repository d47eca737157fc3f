/*
 * Rotary positions: their parameters in either spelling, and the inverse frequencies.
 *
 * transformers 4 writes rope_theta and rope_scaling {rope_type or type, ...}; transformers 5 writes all of it into
 * rope_parameters, one per layer type where full and sliding layers differ. The arithmetic follows
 * modeling_rope_utils.py of transformers 5 step by step, in f32, so that angles at far positions agree.
 */
#include "graph/import/hf/config.h"

#include <math.h>
#include <string.h>

#include "base/error.h"

static const double pi = 3.14159265358979323846;

/* ---- reading ------------------------------------------------------------------------------------------ */

/* "yarn" is what some early files of Phi-3 call it, with the factors of longrope. */
static trm_status keep_to_longrope(const char *name, trm_hf_rope_type *type)
{
    if (*type == TRM_HF_ROPE_YARN) {
        *type = TRM_HF_ROPE_LONGROPE;
    }
    if (*type != TRM_HF_ROPE_DEFAULT && *type != TRM_HF_ROPE_LONGROPE) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "config.json: rope_type is \"%s\", expected default or longrope", name);
    }
    return TRM_OK;
}

static trm_status read_type(const trm_json *object, const trm_hf_rope_keys *keys, trm_hf_rope_type *type)
{
    static const struct {
        const char *name;
        trm_hf_rope_type type;
    } known[] = {
        {"default", TRM_HF_ROPE_DEFAULT}, {"linear", TRM_HF_ROPE_LINEAR}, {"dynamic", TRM_HF_ROPE_DYNAMIC},
        {"yarn", TRM_HF_ROPE_YARN},       {"llama3", TRM_HF_ROPE_LLAMA3}, {"longrope", TRM_HF_ROPE_LONGROPE},
        {"su", TRM_HF_ROPE_LONGROPE}, /* first releases of Phi-3 */
    };
    const trm_json *value = trm_json_get(object, "rope_type");
    if (value == NULL) {
        value = trm_json_get(object, "type");
    }
    if (value == NULL) {
        *type = TRM_HF_ROPE_DEFAULT;
        return TRM_OK;
    }
    const char *name = trm_json_string(value);
    if (name == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "config.json: rope_type is not a string");
    }
    if (keys->is_mrope && strcmp(name, "mrope") == 0) {
        *type = TRM_HF_ROPE_DEFAULT;
        return TRM_OK;
    }
    if (keys->is_proportional && strcmp(name, "proportional") == 0) {
        *type = TRM_HF_ROPE_PROPORTIONAL;
        return TRM_OK;
    }
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (strcmp(known[i].name, name) == 0) {
            *type = known[i].type;
            return keys->is_longrope ? keep_to_longrope(name, type) : TRM_OK;
        }
    }
    TRM_FAIL(TRM_ERROR_UNSUPPORTED,
             "config.json: rope_type is \"%s\", expected one of default, linear, dynamic, yarn, llama3, longrope",
             name);
}

static trm_status read_positive(const trm_json_document *document, const trm_json *object, const char *key,
                                bool required, double *value)
{
    if (object == NULL) {
        return TRM_OK;
    }
    TRM_TRY(trm_json_member_number(document, object, key, required, value));
    if (trm_json_get(object, key) != NULL && !(*value > 0.0 && isfinite(*value))) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "config.json: %s is %g, expected a positive number", key, *value);
    }
    return TRM_OK;
}

static trm_status read_factors(const trm_hf_reader *reader, const trm_json *object, const char *key, int32_t n,
                               double **factors)
{
    const trm_json *list = trm_json_get(object, key);
    if (!trm_json_is_array(list) || trm_json_count(list) != (size_t)n) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "config.json: %s has %zu elements, expected a list of %d numbers", key,
                 trm_json_is_array(list) ? trm_json_count(list) : 0, n);
    }
    double *values = trm_arena_array(reader->arena, (size_t)n, sizeof(double));
    if (values == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    const trm_json *element = trm_json_first(list);
    for (int32_t i = 0; i < n; i++, element = trm_json_next(element)) {
        values[i] = trm_json_number(element, 0.0);
        if (!(values[i] > 0.0 && isfinite(values[i]))) {
            TRM_FAIL(TRM_ERROR_INVALID_MODEL, "config.json: %s[%d] is not a positive number", key, i);
        }
    }
    *factors = values;
    return TRM_OK;
}

static double yarn_scale(double factor, double mscale)
{
    return factor <= 1.0 ? 1.0 : 0.1 * mscale * log(factor) + 1.0;
}

static trm_status read_yarn(const trm_json_document *document, const trm_json *object, trm_hf_rope *rope)
{
    double mscale = 0.0, mscale_all_dim = 0.0, beta_fast = 0.0, beta_slow = 0.0;
    rope->truncate = true;
    TRM_TRY(trm_json_member_number(document, object, "mscale", false, &mscale));
    TRM_TRY(trm_json_member_number(document, object, "mscale_all_dim", false, &mscale_all_dim));
    TRM_TRY(trm_json_member_number(document, object, "beta_fast", false, &beta_fast));
    TRM_TRY(trm_json_member_number(document, object, "beta_slow", false, &beta_slow));
    TRM_TRY(trm_json_member_bool(document, object, "truncate", false, &rope->truncate));
    rope->beta_fast = beta_fast != 0.0 ? beta_fast : 32.0;
    rope->beta_slow = beta_slow != 0.0 ? beta_slow : 1.0;
    if (!(rope->beta_fast > 0.0 && rope->beta_slow > 0.0 && rope->theta > 1.0)) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL,
                 "config.json: yarn rope has beta_fast %g, beta_slow %g and rope_theta %g, expected positive betas and "
                 "a theta over 1",
                 rope->beta_fast, rope->beta_slow, rope->theta);
    }
    if (rope->attention_factor == 0.0) {
        rope->attention_factor = mscale != 0.0 && mscale_all_dim != 0.0
                                     ? yarn_scale(rope->factor, mscale) / yarn_scale(rope->factor, mscale_all_dim)
                                     : yarn_scale(rope->factor, 1.0);
    }
    return TRM_OK;
}

static trm_status read_llama3(const trm_json_document *document, const trm_json *object, trm_hf_rope *rope)
{
    TRM_TRY(read_positive(document, object, "low_freq_factor", true, &rope->low_freq_factor));
    TRM_TRY(read_positive(document, object, "high_freq_factor", true, &rope->high_freq_factor));
    if (rope->high_freq_factor == rope->low_freq_factor) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "config.json: low_freq_factor and high_freq_factor are both %g",
                 rope->low_freq_factor);
    }
    return TRM_OK;
}

static trm_status read_longrope(const trm_hf_reader *reader, const trm_json *object, trm_hf_rope *rope)
{
    TRM_TRY(read_factors(reader, object, "short_factor", rope->dim / 2, &rope->short_factor));
    TRM_TRY(read_factors(reader, object, "long_factor", rope->dim / 2, &rope->long_factor));
    if (rope->attention_factor == 0.0) {
        rope->attention_factor = 1.0;
        if (rope->factor > 1.0 && rope->original_length > 1) {
            rope->attention_factor = sqrt(1.0 + log(rope->factor) / log((double)rope->original_length));
        }
    }
    return TRM_OK;
}

/* How many tokens the model saw before scaling. A top-level key, or the default of a family that has it (Phi-3), goes
 * before the one beside the type. */
static trm_status read_original_length(const trm_hf_reader *reader, const trm_json *object, const trm_hf_config *config,
                                       trm_hf_rope *rope)
{
    static const char key[] = "original_max_position_embeddings";
    if (rope->original_length == 0) {
        rope->original_length = config->context_length;
        if (rope->type == TRM_HF_ROPE_DYNAMIC) { /* transformers scales it from max_position_embeddings */
            return TRM_OK;
        }
        TRM_TRY(trm_json_member_integer(reader->document, object, key, false, &rope->original_length));
    }
    TRM_TRY(trm_json_member_integer(reader->document, reader->object, key, false, &rope->original_length));
    if (rope->original_length < 1) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "config.json: %s is %lld, expected a positive integer", key,
                 (long long)rope->original_length);
    }
    return TRM_OK;
}

/* Reads one set of parameters; object NULL is the default type. rope->theta and ->partial hold the defaults. */
static trm_status read_one(const trm_hf_reader *reader, const trm_json *object, const trm_hf_rope_keys *keys,
                           const trm_hf_config *config, trm_hf_rope *rope)
{
    const trm_json_document *document = reader->document;
    TRM_TRY(read_positive(document, object, "rope_theta", false, &rope->theta));
    TRM_TRY(read_positive(document, object, "partial_rotary_factor", false, &rope->partial));
    if (keys->partial == NULL && rope->partial != 1.0) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "config.json: partial_rotary_factor is %g, expected 1 for %s", rope->partial,
                 config->architecture);
    }
    const bool is_full = rope == &config->rope[0] && config->full_head_dim > 0;
    const int64_t head_dim = is_full ? config->full_head_dim : config->head_dim;
    double dim = (double)head_dim * rope->partial;
    if (!(dim >= 2.0 && dim <= (double)head_dim) || (int64_t)dim % 2 != 0) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED,
                 "config.json: %g of %lld elements of a head are rotated, expected an even number of them", dim,
                 (long long)head_dim);
    }
    rope->dim = (int32_t)dim;
    rope->attention_factor = 1.0;
    rope->factor = 1.0;
    if (object == NULL) {
        return TRM_OK;
    }
    TRM_TRY(read_type(object, keys, &rope->type));
    if (rope->type == TRM_HF_ROPE_DEFAULT) {
        return TRM_OK;
    }
    if (rope->type == TRM_HF_ROPE_PROPORTIONAL) {
        rope->pairs = rope->dim / 2;
        rope->dim = (int32_t)head_dim / 2 * 2;
        return read_positive(document, object, "factor", false, &rope->factor);
    }
    TRM_TRY(read_original_length(reader, object, config, rope));
    bool optional = rope->type == TRM_HF_ROPE_YARN || rope->type == TRM_HF_ROPE_LONGROPE;
    rope->factor = (double)config->context_length / (double)rope->original_length;
    TRM_TRY(read_positive(document, object, "factor", !optional, &rope->factor));
    switch (rope->type) {
    case TRM_HF_ROPE_YARN:
        rope->attention_factor = 0.0;
        TRM_TRY(read_positive(document, object, "attention_factor", false, &rope->attention_factor));
        return read_yarn(document, object, rope);
    case TRM_HF_ROPE_LONGROPE:
        rope->attention_factor = 0.0;
        TRM_TRY(read_positive(document, object, "attention_factor", false, &rope->attention_factor));
        return read_longrope(reader, object, rope);
    case TRM_HF_ROPE_LLAMA3:
        return read_llama3(document, object, rope);
    case TRM_HF_ROPE_DYNAMIC:
        if (rope->dim <= 2) {
            TRM_FAIL(TRM_ERROR_UNSUPPORTED, "config.json: dynamic rope over %d elements, expected more than 2",
                     rope->dim);
        }
        return TRM_OK;
    default:
        return TRM_OK;
    }
}

/* Member `key`, an object; NULL if it is absent or empty. */
static trm_status find_parameters(const trm_json *object, const char *key, const trm_json **parameters)
{
    *parameters = trm_json_get(object, key);
    if (*parameters != NULL && !trm_json_is_object(*parameters)) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "config.json: the rope parameters in %s are not an object", key);
    }
    if (trm_json_count(*parameters) == 0) {
        *parameters = NULL;
    }
    return TRM_OK;
}

/* Full and sliding layers differ: nested parameters, or scaling in the old spelling, which is for full layers alone. */
static trm_status read_two(const trm_hf_reader *reader, const trm_json *scaling, const trm_json *parameters,
                           const trm_hf_rope_keys *keys, trm_hf_config *config)
{
    trm_hf_rope *full = &config->rope[0], *sliding = &config->rope[1];
    config->sliding_rope = true;
    sliding->partial = full->partial;
    TRM_TRY(read_positive(reader->document, reader->object, keys->sliding_theta, false, &sliding->theta));
    if (scaling != NULL && parameters != NULL) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED,
                 "config.json: there are rope_scaling and rope_parameters, expected one of them");
    }
    const trm_json *object = scaling != NULL ? scaling : parameters, *full_object = NULL, *sliding_object = NULL;
    TRM_TRY(find_parameters(object, "full_attention", &full_object));
    TRM_TRY(find_parameters(object, "sliding_attention", &sliding_object));
    const bool is_nested = full_object != NULL || sliding_object != NULL;
    if (parameters != NULL && !is_nested) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL,
                 "config.json: rope_parameters has neither full_attention nor sliding_attention");
    }
    TRM_TRY(read_one(reader, is_nested ? full_object : scaling, keys, config, full));
    return read_one(reader, sliding_object, keys, config, sliding);
}

trm_status trm_hf_read_rope_keys(const trm_hf_reader *reader, const trm_hf_rope_keys *keys, trm_hf_config *config)
{
    trm_hf_rope *rope = &config->rope[0];
    const char *partial = keys->partial != NULL ? keys->partial : "partial_rotary_factor";
    const trm_json *scaling, *parameters;
    TRM_TRY(read_positive(reader->document, reader->object, keys->theta, false, &rope->theta));
    TRM_TRY(read_positive(reader->document, reader->object, partial, false, &rope->partial));
    TRM_TRY(find_parameters(reader->object, "rope_scaling", &scaling));
    TRM_TRY(find_parameters(reader->object, "rope_parameters", &parameters));
    if (keys->sliding_theta != NULL) {
        return read_two(reader, scaling, parameters, keys, config);
    }
    const trm_json *object = scaling != NULL ? scaling : parameters;
    if (trm_json_get(object, "full_attention") != NULL || trm_json_get(object, "sliding_attention") != NULL) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "config.json: rope parameters by type of layer are not supported for %s",
                 config->architecture);
    }
    return read_one(reader, object, keys, config, rope);
}

trm_status trm_hf_read_rope(const trm_hf_reader *reader, trm_hf_config *config)
{
    static const trm_hf_rope_keys keys = {.theta = "rope_theta"};
    return trm_hf_read_rope_keys(reader, &keys, config);
}

/* ---- frequencies ------------------------------------------------------------------------------------ */

int32_t trm_hf_rope_rows(const trm_hf_rope *rope)
{
    return rope->type == TRM_HF_ROPE_LONGROPE ? 2 : 1;
}

/* theta ** (2 i / dim), every step rounded to f32. */
static float period(const trm_hf_rope *rope, int32_t i)
{
    float exponent = (float)(2 * i) / (float)rope->dim;
    return (float)pow((double)(float)rope->theta, (double)exponent);
}

static float llama3_frequency(const trm_hf_rope *rope, float frequency)
{
    float original = (float)rope->original_length;
    float factor = (float)rope->factor;
    float wavelength = (float)(2.0 * pi) / frequency;
    if (wavelength < (float)((double)rope->original_length / rope->high_freq_factor)) {
        return frequency;
    }
    if (wavelength > (float)((double)rope->original_length / rope->low_freq_factor)) {
        return frequency / factor;
    }
    float smooth = (original / wavelength - (float)rope->low_freq_factor) /
                   (float)(rope->high_freq_factor - rope->low_freq_factor);
    return (1.0f - smooth) * frequency / factor + smooth * frequency;
}

/* The pair of elements that turns `rotations` times over the original length. */
static double yarn_dimension(const trm_hf_rope *rope, double rotations)
{
    return (double)rope->dim * log((double)rope->original_length / (rotations * 2.0 * pi)) / (2.0 * log(rope->theta));
}

static void yarn_frequencies(const trm_hf_rope *rope, float *inv_freq)
{
    double low = yarn_dimension(rope, rope->beta_fast), high = yarn_dimension(rope, rope->beta_slow);
    if (rope->truncate) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0.0);
    high = fmin(high, (double)rope->dim - 1.0);
    if (low == high) {
        high += 0.001;
    }
    for (int32_t i = 0; i < rope->dim / 2; i++) {
        float ramp = ((float)i - (float)low) / (float)(high - low);
        float keep = 1.0f - fminf(fmaxf(ramp, 0.0f), 1.0f); /* 1: as trained, 0: interpolated */
        float base = period(rope, i);
        inv_freq[i] = 1.0f / ((float)rope->factor * base) * (1.0f - keep) + 1.0f / base * keep;
    }
}

void trm_hf_rope_frequencies(const trm_hf_rope *rope, float *inv_freq)
{
    int32_t n = rope->dim / 2;
    if (rope->type == TRM_HF_ROPE_YARN) {
        yarn_frequencies(rope, inv_freq);
        return;
    }
    for (int32_t i = 0; i < n; i++) {
        float base = period(rope, i);
        switch (rope->type) {
        case TRM_HF_ROPE_LINEAR:
            inv_freq[i] = 1.0f / base / (float)rope->factor;
            break;
        case TRM_HF_ROPE_PROPORTIONAL:
            inv_freq[i] = i < rope->pairs ? 1.0f / base / (float)rope->factor : 0.0f;
            break;
        case TRM_HF_ROPE_LLAMA3:
            inv_freq[i] = llama3_frequency(rope, 1.0f / base);
            break;
        case TRM_HF_ROPE_LONGROPE:
            inv_freq[i] = 1.0f / ((float)rope->short_factor[i] * base);
            inv_freq[n + i] = 1.0f / ((float)rope->long_factor[i] * base);
            break;
        default:
            inv_freq[i] = 1.0f / base;
            break;
        }
    }
}
