/* Post-processors. */
#include "launcher/text/tokenizer/postprocess.h"

#include <string.h>

#include "base/error.h"
#include "launcher/text/tokenizer/vocab.h"

#define LONGEST_PATTERN ((size_t)1024)

static trm_status check_id(const trm_text_loader *loader, const trm_json *json, const char *what, int32_t *id)
{
    int64_t value = -1;
    if (!trm_json_integer(json, &value) || value < 0 || value >= TRM_VOCAB_LIMIT) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s: the post-processor's token %.80s has no id from 0 to %lld", loader->name,
                 what, (long long)TRM_VOCAB_LIMIT - 1);
    }
    *id = (int32_t)value;
    return TRM_OK;
}

/* Adds one id; the text stands for the result of earlier processors. */
static trm_status add(const trm_text_loader *loader, trm_ids *out, const trm_ids *before, int32_t id)
{
    size_t more = id == TRM_TEMPLATE_TEXT ? before->size : 1;
    if (out->size + more > LONGEST_PATTERN) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s: the post-processor adds more than %zu tokens", loader->name,
                 LONGEST_PATTERN);
    }
    if (id != TRM_TEMPLATE_TEXT) {
        return trm_ids_append(out, id);
    }
    for (size_t i = 0; i < before->size; i++) {
        TRM_TRY(trm_ids_append(out, before->data[i]));
    }
    return TRM_OK;
}

static trm_status add_special(const trm_text_loader *loader, const trm_json *specials, const char *name, trm_ids *out)
{
    const trm_json *ids = trm_json_get(trm_json_get(specials, name), "ids");
    if (!trm_json_is_array(ids)) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s: the template has token \"%.80s\", which is not in special_tokens",
                 loader->name, name);
    }
    for (const trm_json *id = trm_json_first(ids); id != NULL; id = trm_json_next(id)) {
        int32_t value = 0;
        TRM_TRY(check_id(loader, id, name, &value));
        TRM_TRY(add(loader, out, out, value));
    }
    return TRM_OK;
}

static trm_status load_template(const trm_text_loader *loader, const trm_json *json, const trm_ids *before,
                                trm_ids *out)
{
    const trm_json *pieces = trm_json_get(json, "single"), *specials = trm_json_get(json, "special_tokens");
    if (!trm_json_is_array(pieces)) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s: post-processor TemplateProcessing has no array \"single\"",
                 loader->name);
    }
    for (const trm_json *piece = trm_json_first(pieces); piece != NULL; piece = trm_json_next(piece)) {
        const trm_json *sequence = trm_json_get(piece, "Sequence"), *special = trm_json_get(piece, "SpecialToken");
        const char *name = trm_json_string(trm_json_get(sequence != NULL ? sequence : special, "id"));
        if (name == NULL || (sequence != NULL && strcmp(name, "A") != 0)) {
            TRM_FAIL(TRM_ERROR_INVALID_MODEL,
                     "%s: the template for one text has an entry that is neither sequence A nor a special token",
                     loader->name);
        }
        TRM_TRY(sequence != NULL ? add(loader, out, before, TRM_TEMPLATE_TEXT)
                                 : add_special(loader, specials, name, out));
    }
    return TRM_OK;
}

/* Reads the id of a member that is a pair [token, id]. */
static trm_status load_pair(const trm_text_loader *loader, const trm_json *json, const char *key, int32_t *id)
{
    const trm_json *pair = trm_json_get(json, key);
    if (!trm_json_is_array(pair) || trm_json_count(pair) != 2) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s: the post-processor's %s is not a pair of a token and an id",
                 loader->name, key);
    }
    return check_id(loader, trm_json_at(pair, 1), key, id);
}

static trm_status load_one(const trm_text_loader *loader, const trm_json *json, const char *type, const trm_ids *before,
                           trm_ids *out)
{
    int32_t cls, sep;
    if (strcmp(type, "TemplateProcessing") == 0) {
        return load_template(loader, json, before, out);
    }
    if (strcmp(type, "ByteLevel") == 0) { /* trims offsets, which are not reported */
        return add(loader, out, before, TRM_TEMPLATE_TEXT);
    }
    if (strcmp(type, "BertProcessing") != 0 && strcmp(type, "RobertaProcessing") != 0) {
        return trm_loader_unknown_type(loader, "post-processor", type);
    }
    TRM_TRY(load_pair(loader, json, "cls", &cls));
    TRM_TRY(load_pair(loader, json, "sep", &sep));
    TRM_TRY(add(loader, out, before, cls));
    TRM_TRY(add(loader, out, before, TRM_TEMPLATE_TEXT));
    return add(loader, out, before, sep);
}

trm_status trm_postprocessor_load(const trm_text_loader *loader, const trm_json *json, trm_postprocessor *postprocessor)
{
    if (json == NULL) {
        return TRM_OK;
    }
    const char *type = NULL;
    const trm_json *parts = NULL;
    bool sequence = false;
    TRM_TRY(trm_loader_type(loader, json, "post-processor", "processors", &type, &sequence, &parts));
    if (!postprocessor->given) {
        TRM_TRY(trm_ids_append(&postprocessor->pattern, TRM_TEMPLATE_TEXT));
        postprocessor->given = true;
    }
    for (const trm_json *part = trm_json_first(parts); sequence && part != NULL; part = trm_json_next(part)) {
        TRM_TRY(trm_postprocessor_load(loader, part, postprocessor));
    }
    if (sequence) {
        return TRM_OK;
    }
    trm_ids out = {0};
    trm_status status = load_one(loader, json, type, &postprocessor->pattern, &out);
    if (status != TRM_OK) {
        trm_ids_fini(&out);
        return status;
    }
    trm_ids_fini(&postprocessor->pattern);
    postprocessor->pattern = out;
    return TRM_OK;
}

void trm_postprocessor_fini(trm_postprocessor *postprocessor)
{
    trm_ids_fini(&postprocessor->pattern);
    *postprocessor = (trm_postprocessor){0};
}

trm_status trm_postprocessor_apply(const trm_postprocessor *postprocessor, const trm_ids *text, bool add_special_ids,
                                   trm_ids *out)
{
    static int32_t alone = TRM_TEMPLATE_TEXT;
    const trm_ids plain = {.data = &alone, .size = 1, .capacity = 1};
    const trm_ids *pattern = postprocessor->given ? &postprocessor->pattern : &plain;
    for (size_t i = 0; i < pattern->size; i++) {
        if (pattern->data[i] != TRM_TEMPLATE_TEXT) {
            TRM_TRY(add_special_ids ? trm_ids_append(out, pattern->data[i]) : TRM_OK);
            continue;
        }
        TRM_TRY(trm_ids_reserve(out, text->size));
        if (text->size > 0) {
            memcpy(out->data + out->size, text->data, text->size * sizeof(*text->data));
            out->size += text->size;
        }
    }
    return TRM_OK;
}
