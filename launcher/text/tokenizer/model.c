/* Loading and dispatch of the models, and WordLevel. */
#include "launcher/text/tokenizer/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

void trm_model_scratch_fini(trm_model_scratch *scratch)
{
    free(scratch->symbols);
    free(scratch->heap);
    free(scratch->path);
    trm_bytes_fini(&scratch->text);
    *scratch = (trm_model_scratch){0};
}

void trm_model_find_bytes(const trm_vocab *vocab, int32_t byte_ids[256])
{
    for (int byte = 0; byte < 256; byte++) {
        char text[8];
        snprintf(text, sizeof(text), "<0x%02X>", (unsigned)byte);
        byte_ids[byte] = trm_vocab_find(vocab, text, 6);
    }
}

trm_status trm_model_build_trie(const trm_text_loader *loader, const trm_vocab *vocab, trm_trie *trie)
{
    trm_trie_entry *entries = malloc(((size_t)vocab->count + 1) * sizeof(*entries));
    if (entries == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %d entries of a trie", (int)vocab->count);
    }
    size_t count = 0;
    for (int32_t id = 0; id < vocab->size; id++) {
        const trm_token *token = &vocab->tokens[id];
        if (token->text != NULL && token->size > 0) {
            entries[count++] = (trm_trie_entry){token->text, token->size, id};
        }
    }
    trm_status status = trm_trie_build(loader->arena, entries, count, trie);
    free(entries);
    return status;
}

static trm_status read_id(const trm_text_loader *loader, const trm_json *member, int64_t *id)
{
    if (!trm_json_integer(member, id)) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s: the id of token \"%.80s\" is not an integer", loader->name,
                 trm_json_key(member));
    }
    if (*id < 0 || *id >= TRM_VOCAB_LIMIT) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s: token \"%.80s\" has id %lld, expected 0 to %lld", loader->name,
                 trm_json_key(member), (long long)*id, (long long)TRM_VOCAB_LIMIT - 1);
    }
    return TRM_OK;
}

/* Reads a vocabulary that is an object of ids. */
static trm_status load_vocab(const trm_text_loader *loader, const trm_json *json, trm_vocab *vocab)
{
    const trm_json *tokens = trm_json_get(json, "vocab");
    if (!trm_json_is_object(tokens)) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s: model.vocab is %s, expected an object of ids", loader->name,
                 tokens == NULL ? "missing" : "something else");
    }
    int64_t highest = -1, id;
    for (const trm_json *member = trm_json_first(tokens); member != NULL; member = trm_json_next(member)) {
        TRM_TRY(read_id(loader, member, &id));
        highest = id > highest ? id : highest;
    }
    if (highest < 0) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s: model.vocab is empty", loader->name);
    }
    TRM_TRY(trm_vocab_create(loader->arena, (int32_t)(highest + 1), vocab));
    for (const trm_json *member = trm_json_first(tokens); member != NULL; member = trm_json_next(member)) {
        TRM_TRY(read_id(loader, member, &id));
        const char *taken = vocab->tokens[id].text;
        if (taken != NULL) {
            TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s: tokens \"%.80s\" and \"%.80s\" both have id %lld", loader->name,
                     taken, trm_json_key(member), (long long)id);
        }
        const char *text = trm_arena_strdup(loader->arena, trm_json_key(member));
        if (text == NULL) {
            return TRM_ERROR_OUT_OF_MEMORY;
        }
        trm_vocab_add(vocab, (int32_t)id, text);
    }
    return TRM_OK;
}

/* Files of old versions have no type: the members decide. */
static const char *guess_type(const trm_json *json)
{
    if (trm_json_is_array(trm_json_get(json, "vocab"))) {
        return "Unigram";
    }
    if (trm_json_get(json, "merges") != NULL) {
        return "BPE";
    }
    return trm_json_get(json, "max_input_chars_per_word") != NULL ? "WordPiece" : "WordLevel";
}

static trm_status load_wordlevel(const trm_text_loader *loader, const trm_json *json, trm_model *model)
{
    const char *unk = "<unk>";
    TRM_TRY(trm_json_member_string(loader->document, json, "unk_token", false, &unk));
    model->wordpiece.unk_token = trm_arena_strdup(loader->arena, unk);
    model->wordpiece.unk_id = trm_vocab_find(&model->vocab, unk, strlen(unk));
    return model->wordpiece.unk_token == NULL ? TRM_ERROR_OUT_OF_MEMORY : TRM_OK;
}

trm_status trm_model_load(const trm_text_loader *loader, const trm_json *json, trm_model *model)
{
    static const char *const names[] = {"BPE", "Unigram", "WordPiece", "WordLevel"};
    if (!trm_json_is_object(json)) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s: model is %s, expected an object", loader->name,
                 json == NULL ? "missing" : "something else");
    }
    const char *type = guess_type(json);
    TRM_TRY(trm_json_member_string(loader->document, json, "type", false, &type));
    size_t kind = 0;
    while (kind < 4 && strcmp(type, names[kind]) != 0) {
        kind++;
    }
    model->kind = (trm_model_kind)kind;
    if (kind == 4) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "%s: model type \"%.80s\" is not supported", loader->name, type);
    }
    if (model->kind == TRM_MODEL_UNIGRAM) {
        return trm_unigram_load(loader, json, model);
    }
    TRM_TRY(load_vocab(loader, json, &model->vocab));
    switch (model->kind) {
    case TRM_MODEL_BPE:
        return trm_bpe_load(loader, json, model);
    case TRM_MODEL_WORDPIECE:
        return trm_wordpiece_load(loader, json, model);
    default:
        return load_wordlevel(loader, json, model);
    }
}

trm_status trm_model_encode(const trm_model *model, const char *piece, size_t size, trm_model_scratch *scratch,
                            trm_ids *ids)
{
    switch (model->kind) {
    case TRM_MODEL_BPE:
        return trm_bpe_encode(model, piece, size, scratch, ids);
    case TRM_MODEL_UNIGRAM:
        return trm_unigram_encode(model, piece, size, scratch, ids);
    case TRM_MODEL_WORDPIECE:
        return trm_wordpiece_encode(model, piece, size, ids);
    default:
        break;
    }
    int32_t id = trm_vocab_find(&model->vocab, piece, size);
    id = id < 0 ? model->wordpiece.unk_id : id;
    if (id < 0) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL,
                 "word \"%.*s\" is not in the vocabulary, and neither is the unknown token \"%s\"",
                 (int)(size < 80 ? size : 80), piece, model->wordpiece.unk_token);
    }
    return trm_ids_append(ids, id);
}
