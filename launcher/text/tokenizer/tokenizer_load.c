/* Opens tokenizers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/file.h"
#include "base/recorder.h"
#include "launcher/text/tokenizer/tokenizer.h"

#define LARGEST_FILE ((size_t)256 << 20)

static void set_entry(trm_tokenizer *tokenizer, int32_t id, const char *text, const char *decoded, size_t decoded_size)
{
    tokenizer->entries[id] = (trm_id_entry){.text = text, .decoded = decoded, .decoded_size = (uint32_t)decoded_size};
}

/* Joins the tokens of the model and the added tokens by id. */
static trm_status fill_entries(trm_tokenizer *tokenizer)
{
    const trm_vocab *vocab = &tokenizer->model.vocab;
    const trm_added *added = &tokenizer->added;
    tokenizer->size = vocab->size;
    for (size_t i = 0; i < added->count; i++) {
        tokenizer->size = added->tokens[i].id >= tokenizer->size ? added->tokens[i].id + 1 : tokenizer->size;
    }
    tokenizer->entries = trm_arena_array(&tokenizer->arena, (size_t)tokenizer->size, sizeof(*tokenizer->entries));
    if (tokenizer->entries == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    for (int32_t id = 0; id < vocab->size; id++) {
        const trm_token *token = &vocab->tokens[id];
        set_entry(tokenizer, id, token->text, token->text, token->size);
    }
    for (size_t i = 0; i < added->count; i++) {
        const trm_added_token *token = &added->tokens[i];
        set_entry(tokenizer, token->id, token->content, token->sought, token->sought_size);
    }
    /* A token is special if the decoder's view of it is the content of a special token. */
    for (size_t i = 0; i < added->count; i++) {
        const trm_added_token *token = &added->tokens[i];
        trm_id_entry *entry = &tokenizer->entries[token->id];
        entry->special = token->special && strcmp(entry->decoded, token->content) == 0;
    }
    return TRM_OK;
}

static trm_status load(trm_tokenizer *tokenizer, const trm_json_document *document, const char *name)
{
    const trm_json *root = trm_json_root(document);
    trm_text_loader loader = {document, name, &tokenizer->arena, &tokenizer->regexes};
    if (!trm_json_is_object(root)) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s: not an object", name);
    }
    TRM_TRY(trm_model_load(&loader, trm_json_get(root, "model"), &tokenizer->model));
    TRM_TRY(trm_normalizers_load(&loader, trm_json_get(root, "normalizer"), &tokenizer->normalizers));
    TRM_TRY(trm_pretokenizers_load(&loader, trm_json_get(root, "pre_tokenizer"), &tokenizer->pretokenizers));
    TRM_TRY(trm_added_load(&loader, trm_json_get(root, "added_tokens"), &tokenizer->model.vocab,
                           &tokenizer->normalizers, &tokenizer->added));
    TRM_TRY(trm_postprocessor_load(&loader, trm_json_get(root, "post_processor"), &tokenizer->postprocessor));
    TRM_TRY(trm_decode_steps_load(&loader, trm_json_get(root, "decoder"), &tokenizer->decoder));
    return fill_entries(tokenizer);
}

static trm_status open_document(const char *name, trm_json_document *document, trm_tokenizer **tokenizer)
{
    trm_tokenizer *opened = calloc(1, sizeof(*opened));
    trm_status status = opened == NULL ? trm_fail(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a tokenizer")
                                       : load(opened, document, name);
    trm_json_close(document);
    if (status != TRM_OK) {
        trm_tokenizer_close(opened);
        return status;
    }
    *tokenizer = opened;
    return TRM_OK;
}

trm_status trm_tokenizer_parse(const char *name, const char *text, size_t size, trm_tokenizer **tokenizer)
{
    trm_json_document *document;
    TRM_TRY(trm_json_parse(name, text, size, &document));
    return open_document(name, document, tokenizer);
}

TRM_CALL(NULL, trm_tokenizer_open, (const char *path, trm_tokenizer **tokenizer), (path, tokenizer))
{
    if (path == NULL || tokenizer == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "trm_tokenizer_open needs a path and an output argument");
    }
    struct stat about;
    char *file = NULL;
    if (asprintf(&file, stat(path, &about) == 0 && S_ISDIR(about.st_mode) ? "%s/tokenizer.json" : "%s", path) < 0) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a path");
    }
    trm_json_document *document;
    trm_status status = trm_json_read(file, LARGEST_FILE, &document);
    if (status == TRM_OK) {
        status = open_document(file, document, tokenizer);
    }
    free(file);
    return status;
}

void trm_tokenizer_close(trm_tokenizer *tokenizer)
{
    if (tokenizer == NULL) {
        return;
    }
    trm_normalizers_fini(&tokenizer->normalizers);
    trm_pretokenizers_fini(&tokenizer->pretokenizers);
    trm_postprocessor_fini(&tokenizer->postprocessor);
    trm_decode_steps_fini(&tokenizer->decoder);
    trm_regex_destroy(tokenizer->regexes);
    trm_arena_fini(&tokenizer->arena);
    free(tokenizer);
}
