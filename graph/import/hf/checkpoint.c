/* Weights by name, checked against what the decoder expects. */
#include "graph/import/hf/checkpoint.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "graph/network.h"
#include "kernels/kernel.h"

#define SHAPE_TEXT 192

trm_status trm_hf_checkpoint_open(const char *folder, trm_hf_checkpoint *checkpoint)
{
    trm_hf_checkpoint opened = {0};
    TRM_TRY(trm_safetensors_open(folder, &opened.stored));
    size_t count = (size_t)trm_safetensors_count(opened.stored);
    opened.taken = calloc(count + 1, sizeof(bool));
    opened.quantized = calloc(count + 1, sizeof(bool));
    if (opened.taken == NULL || opened.quantized == NULL) {
        trm_hf_checkpoint_fini(&opened);
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "no memory for a list of %zu weights", count);
    }
    *checkpoint = opened;
    return TRM_OK;
}

void trm_hf_checkpoint_random(trm_dtype dtype, uint64_t seed, trm_hf_checkpoint *checkpoint)
{
    *checkpoint = (trm_hf_checkpoint){.dtype = dtype, .seed = seed};
}

void trm_hf_checkpoint_fini(trm_hf_checkpoint *checkpoint)
{
    if (checkpoint->stored != NULL) {
        trm_safetensors_close(checkpoint->stored);
    }
    free(checkpoint->taken);
    free(checkpoint->quantized);
    *checkpoint = (trm_hf_checkpoint){0};
}

bool trm_hf_checkpoint_has(const trm_hf_checkpoint *checkpoint, const char *name)
{
    return checkpoint->stored == NULL || trm_safetensors_has(checkpoint->stored, name);
}

void trm_hf_checkpoint_reset(trm_hf_checkpoint *checkpoint)
{
    if (checkpoint->stored != NULL) {
        memset(checkpoint->taken, 0, (size_t)trm_safetensors_count(checkpoint->stored) * sizeof(bool));
    }
}

/* "[4096, 14336]" */
static void format_shape(const trm_dims *dims, char *text, size_t size)
{
    size_t used = (size_t)snprintf(text, size, "[");
    for (int32_t i = 0; i < dims->n && used < size; i++) {
        used += (size_t)snprintf(text + used, size - used, "%s%lld", i > 0 ? ", " : "", (long long)dims->d[i]);
    }
    if (used < size) {
        snprintf(text + used, size - used, "]");
    }
}

/* A seed for each name, so that a weight is the same whatever else is built. */
uint64_t trm_hf_checkpoint_seed(const trm_hf_checkpoint *checkpoint, const char *name)
{
    return trm_hash_bytes(TRM_HASH_START ^ checkpoint->seed, name, strlen(name));
}

static trm_status make_random(const trm_hf_checkpoint *checkpoint, const char *name, trm_hf_weight_use use,
                              const trm_dims *dims, trm_weight **weight)
{
    double width = (double)dims->d[dims->n - 1];
    double mean = 0.0, spread = 0.0;
    switch (use) {
    case TRM_HF_MATRIX: /* uniform in +-s has variance s^2 / 3 */
    case TRM_HF_TIED_EMBEDDING:
        spread = sqrt(3.0 / width);
        break;
    case TRM_HF_EMBEDDING:
        spread = sqrt(3.0);
        break;
    case TRM_HF_NORM:
        mean = 1.0;
        spread = 0.1;
        break;
    case TRM_HF_OFFSET_NORM:
    case TRM_HF_BIAS:
        spread = 0.1;
        break;
    }
    return trm_weight_random(checkpoint->dtype, dims, trm_hf_checkpoint_seed(checkpoint, name), (float)mean,
                             (float)spread, weight);
}

/* A stored weight of a type, or where that is NONE of f32, f16 or bf16. */
static trm_status take(trm_hf_checkpoint *checkpoint, const char *name, trm_dtype expected, const trm_dims *dims,
                       trm_weight **weight)
{
    trm_dtype dtype;
    trm_dims found;
    if (!trm_safetensors_describe(checkpoint->stored, name, &dtype, &found)) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "weight %s is missing from the checkpoint", name);
    }
    if (!trm_dims_equal(&found, dims)) {
        char found_text[SHAPE_TEXT], expected_text[SHAPE_TEXT];
        format_shape(&found, found_text, sizeof(found_text));
        format_shape(dims, expected_text, sizeof(expected_text));
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "weight %s has shape %s, expected %s", name, found_text, expected_text);
    }
    if (expected != TRM_DTYPE_NONE ? dtype != expected : dtype != TRM_F32 && dtype != TRM_F16 && dtype != TRM_BF16) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "weight %s is %s, expected %s", name,
                 dtype != TRM_DTYPE_NONE ? trm_dtype_name(dtype) : trm_safetensors_type(checkpoint->stored, name),
                 expected != TRM_DTYPE_NONE ? trm_dtype_name(expected) : "f32, f16 or bf16");
    }
    TRM_TRY(trm_safetensors_weight(checkpoint->stored, name, weight));
    int32_t index = trm_safetensors_find(checkpoint->stored, name);
    if (index >= 0) {
        checkpoint->taken[index] = true;
    }
    return TRM_OK;
}

trm_status trm_hf_checkpoint_take(trm_hf_checkpoint *checkpoint, const char *name, trm_hf_weight_use use,
                                  const trm_dims *dims, trm_weight **weight)
{
    return checkpoint->stored == NULL ? make_random(checkpoint, name, use, dims, weight)
                                      : take(checkpoint, name, TRM_DTYPE_NONE, dims, weight);
}

trm_status trm_hf_checkpoint_take_as(trm_hf_checkpoint *checkpoint, const char *name, trm_dtype dtype,
                                     const trm_dims *dims, trm_weight **weight)
{
    return take(checkpoint, name, dtype, dims, weight);
}

bool trm_hf_checkpoint_describe(const trm_hf_checkpoint *checkpoint, const char *name, trm_dtype *dtype, trm_dims *dims)
{
    return checkpoint->stored != NULL && trm_safetensors_describe(checkpoint->stored, name, dtype, dims);
}

bool trm_hf_checkpoint_has_floats(const trm_hf_checkpoint *checkpoint, const char *name, const trm_dims *dims)
{
    trm_dtype dtype;
    trm_dims found;
    return trm_hf_checkpoint_describe(checkpoint, name, &dtype, &found) && trm_dims_equal(&found, dims) &&
           (dtype == TRM_F32 || dtype == TRM_F16 || dtype == TRM_BF16);
}

static trm_status same_elements(const trm_weight *a, const trm_weight *b, float *buffer, size_t size, bool *same)
{
    const trm_dims dims = trm_weight_dims(a);
    const size_t count = (size_t)trm_dims_count(&dims);
    *same = true;
    for (size_t first = 0; first < count && *same; first += size) {
        const size_t n = count - first < size ? count - first : size;
        TRM_TRY(trm_weight_read(a, TRM_F32, first, n, buffer));
        TRM_TRY(trm_weight_read(b, TRM_F32, first, n, buffer + size));
        *same = memcmp(buffer, buffer + size, n * sizeof(float)) == 0;
    }
    return TRM_OK;
}

trm_status trm_hf_checkpoint_same(const trm_hf_checkpoint *checkpoint, const char *a, const char *b, bool *same)
{
    const size_t size = (size_t)1 << 16;
    trm_weight *first = NULL, *second = NULL;
    float *buffer = malloc(2 * size * sizeof(float));
    if (buffer == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "no memory to compare weights %s and %s", a, b);
    }
    trm_status status = trm_safetensors_weight(checkpoint->stored, a, &first);
    if (status == TRM_OK) {
        status = trm_safetensors_weight(checkpoint->stored, b, &second);
    }
    if (status == TRM_OK) {
        status = same_elements(first, second, buffer, size, same);
    }
    trm_weight_destroy(first);
    trm_weight_destroy(second);
    free(buffer);
    return status;
}

void trm_hf_checkpoint_skip(trm_hf_checkpoint *checkpoint, const char *name)
{
    const int32_t index = trm_safetensors_find(checkpoint->stored, name);
    if (index >= 0) {
        checkpoint->taken[index] = true;
    }
}

trm_status trm_hf_checkpoint_take_scale(trm_hf_checkpoint *checkpoint, const char *name, float *scale)
{
    trm_dtype dtype;
    trm_dims found;
    trm_weight *weight;
    if (!trm_safetensors_describe(checkpoint->stored, name, &dtype, &found)) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "weight %s is missing from the checkpoint", name);
    }
    if (found.n > 1 || trm_dims_count(&found) != 1) {
        char text[SHAPE_TEXT];
        format_shape(&found, text, sizeof(text));
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "weight %s has shape %s, expected one number for the whole layer", name, text);
    }
    TRM_TRY(trm_hf_checkpoint_take(checkpoint, name, TRM_HF_BIAS, &found, &weight));
    trm_status status = trm_weight_read(weight, TRM_F32, 0, 1, scale);
    trm_weight_destroy(weight);
    TRM_TRY(status);
    if (!(*scale >= 0x1p-126f && *scale <= 0x1p126f)) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "weight %s is %g, expected a positive number", name, (double)*scale);
    }
    return TRM_OK;
}

/* Tensors that files of older versions carry and no decoder needs, scales that only an F8E4M3 cache does, modules that
 * predict further tokens, and those that choose the tokens which sparse attention sees. */
static bool is_derived(const char *name)
{
    static const char *const suffixes[] = {
        ".rotary_emb.inv_freq",   ".attn.bias", ".attn.masked_bias", ".attention.bias",
        ".attention.masked_bias", ".k_scale",   ".v_scale",          ".kv_scale"};
    if (strncmp(name, "mtp.", 4) == 0 || strstr(name, ".self_attn.indexer.") != NULL) {
        return true;
    }
    size_t length = strlen(name);
    for (size_t i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]); i++) {
        size_t n = strlen(suffixes[i]);
        if (length >= n && strcmp(name + length - n, suffixes[i]) == 0) {
            return true;
        }
    }
    return false;
}

void trm_hf_checkpoint_skip_layers(trm_hf_checkpoint *checkpoint, const char *prefix, int64_t first, int64_t count)
{
    for (int32_t i = 0; checkpoint->stored != NULL && i < trm_safetensors_count(checkpoint->stored); i++) {
        const char *name = trm_safetensors_name(checkpoint->stored, i);
        const size_t length = strlen(prefix);
        char *end;
        if (strncmp(name, prefix, length) == 0) {
            const long long layer = strtoll(name + length, &end, 10);
            checkpoint->taken[i] = checkpoint->taken[i] || (*end == '.' && layer >= first && layer - first < count);
        }
    }
}

void trm_hf_checkpoint_warn_unused(const trm_hf_checkpoint *checkpoint)
{
    if (checkpoint->stored == NULL) {
        return;
    }
    char names[512] = "";
    size_t used = 0;
    int32_t count = 0;
    for (int32_t i = 0; i < trm_safetensors_count(checkpoint->stored); i++) {
        const char *name = trm_safetensors_name(checkpoint->stored, i);
        if (checkpoint->taken[i] || is_derived(name)) {
            continue;
        }
        if (++count <= 4 && used < sizeof(names)) {
            used += (size_t)snprintf(names + used, sizeof(names) - used, "%s%s", count > 1 ? ", " : "", name);
        }
    }
    if (count > 0) {
        TRM_WARN("%d weights of the checkpoint are not used: %s%s", count, names, count > 4 ? ", ..." : "");
    }
}
