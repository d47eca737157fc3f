/* Turns hidden states into embedding replies. */
#include "launcher/serve/responses/embedding.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/json.h"

#define CONFIG_LIMIT ((size_t)1 << 20)

trm_status embedding_pooling(const char *folder, trm_embedding *pooling)
{
    char path[4400];
    trm_json_document *document;
    bool mean = false, last = false;
    *pooling = TRM_EMBEDDING_LAST;
    int length = snprintf(path, sizeof(path), "%s/1_Pooling/config.json", folder);
    if (length < 0 || (size_t)length >= sizeof(path) || access(path, F_OK) != 0) {
        return TRM_OK;
    }
    TRM_TRY(trm_json_read(path, CONFIG_LIMIT, &document));
    const trm_json *root = trm_json_root(document);
    trm_status status = trm_json_member_bool(document, root, "pooling_mode_mean_tokens", false, &mean);
    if (status == TRM_OK) {
        status = trm_json_member_bool(document, root, "pooling_mode_lasttoken", false, &last);
    }
    *pooling = mean ? TRM_EMBEDDING_MEAN : last ? TRM_EMBEDDING_LAST : TRM_EMBEDDING_NONE;
    trm_json_close(document);
    return status;
}

trm_status embedding_keep(choice *ch, const float *values, int64_t n)
{
    int64_t wanted = ch->owner->request.dimensions;
    double sum = 0.0;
    n = wanted > 0 && wanted < n ? wanted : n;
    ch->embedding = malloc((size_t)n * sizeof(*ch->embedding));
    if (ch->embedding == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate an embedding of %lld numbers", (long long)n);
    }
    for (int64_t i = 0; i < n; i++) {
        sum += (double)values[i] * (double)values[i];
    }
    double scale = sum > 0.0 ? 1.0 / sqrt(sum) : 0.0;
    for (int64_t i = 0; i < n; i++) {
        ch->embedding[i] = (float)(scale * (double)values[i]);
    }
    ch->n_embedding = n;
    return TRM_OK;
}

/* Writes the numbers as base64 of their little-endian bytes, which clients ask for to save bytes. */
static void write_base64(json_text *json, const float *values, int64_t n)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t size = (size_t)n * sizeof(*values), at = 0;
    unsigned char *bytes = malloc(size + 2);
    char *text = malloc((size + 2) / 3 * 4 + 1);
    if (bytes == NULL || text == NULL) {
        json->status = trm_fail(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate an embedding of %lld numbers", (long long)n);
        free(bytes);
        free(text);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof(bits));
        for (size_t k = 0; k < sizeof(bits); k++) {
            bytes[(size_t)i * sizeof(bits) + k] = (unsigned char)(bits >> 8 * k);
        }
    }
    bytes[size] = bytes[size + 1] = 0;
    for (size_t i = 0; i < size; i += 3) {
        uint32_t three = (uint32_t)bytes[i] << 16 | (uint32_t)bytes[i + 1] << 8 | bytes[i + 2];
        for (size_t k = 0; k < 4; k++) {
            text[at++] = i + k > size ? '=' : digits[three >> (18 - 6 * k) & 63];
        }
    }
    json_bytes(json, "embedding", text, at);
    free(bytes);
    free(text);
}

void embedding_write(const completion *c, json_text *json)
{
    json_object(json, NULL);
    json_string(json, "object", "list");
    json_array(json, "data");
    for (int32_t i = 0; i < c->n_choices; i++) {
        const choice *ch = &c->choices[i];
        json_object(json, NULL);
        json_string(json, "object", "embedding");
        json_integer(json, "index", i);
        if (c->request.base64) {
            write_base64(json, ch->embedding, ch->n_embedding);
        } else {
            json_array(json, "embedding");
            for (int64_t k = 0; k < ch->n_embedding; k++) {
                json_number(json, NULL, (double)ch->embedding[k]);
            }
            json_end_array(json);
        }
        json_end_object(json);
    }
    json_end_array(json);
    json_string(json, "model", c->model);
    json_object(json, "usage");
    json_integer(json, "prompt_tokens", c->prompt_tokens);
    json_integer(json, "total_tokens", c->prompt_tokens);
    json_end_object(json);
    json_end_object(json);
}
