/*
 * WordPiece: from the start of a word, always the longest token; tokens within a word have a prefix. A word that
 * cannot be split this way is unknown as a whole.
 */
#include <string.h>

#include "base/error.h"
#include "launcher/text/strings/utf8.h"
#include "launcher/text/tokenizer/model.h"

static trm_status append_unknown(const trm_wordpiece *wordpiece, const char *piece, size_t size, trm_ids *ids)
{
    if (wordpiece->unk_id < 0) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL,
                 "word \"%.*s\" is not in the vocabulary, and neither is the unknown token \"%s\"",
                 (int)(size < 80 ? size : 80), piece, wordpiece->unk_token);
    }
    return trm_ids_append(ids, wordpiece->unk_id);
}

trm_status trm_wordpiece_encode(const trm_model *model, const char *piece, size_t size, trm_ids *ids)
{
    const trm_wordpiece *wordpiece = &model->wordpiece;
    if (trm_utf8_count(piece, size) > wordpiece->longest) {
        return append_unknown(wordpiece, piece, size, ids);
    }
    size_t before = ids->size;
    for (size_t at = 0, length = 0; at < size; at += length) {
        bool possible = at == 0 || wordpiece->continuation != 0 || !wordpiece->has_prefix;
        uint32_t node = at == 0 ? 0 : wordpiece->continuation;
        int32_t id = possible ? trm_trie_longest(&wordpiece->trie, node, piece + at, size - at, &length) : -1;
        if (id < 0) {
            ids->size = before;
            return append_unknown(wordpiece, piece, size, ids);
        }
        TRM_TRY(trm_ids_append(ids, id));
    }
    return TRM_OK;
}

trm_status trm_wordpiece_load(const trm_text_loader *loader, const trm_json *json, trm_model *model)
{
    trm_wordpiece *wordpiece = &model->wordpiece;
    const char *unk = "[UNK]", *prefix = "##";
    int64_t longest = 100;
    TRM_TRY(trm_json_member_string(loader->document, json, "unk_token", false, &unk));
    TRM_TRY(trm_json_member_string(loader->document, json, "continuing_subword_prefix", false, &prefix));
    TRM_TRY(trm_json_member_integer(loader->document, json, "max_input_chars_per_word", false, &longest));
    if (longest < 0) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s: model.max_input_chars_per_word is %lld, expected 0 or more",
                 loader->name, (long long)longest);
    }
    wordpiece->longest = (size_t)longest;
    wordpiece->unk_token = trm_arena_strdup(loader->arena, unk);
    wordpiece->unk_id = trm_vocab_find(&model->vocab, unk, strlen(unk));
    if (wordpiece->unk_token == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    TRM_TRY(trm_model_build_trie(loader, &model->vocab, &wordpiece->trie));
    wordpiece->has_prefix = *prefix != '\0';
    uint32_t node = 0;
    for (const char *p = prefix; *p != '\0'; p++) {
        node = trm_trie_step(&wordpiece->trie, node, (uint8_t)*p);
        if (node == 0) {
            break;
        }
    }
    wordpiece->continuation = node;
    return TRM_OK;
}
