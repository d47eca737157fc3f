/*
 * Unigram language model (Kudo 2018, arXiv:1804.10959): of all segmentations of a piece into tokens, the one with the
 * highest sum of scores, found by dynamic programming over the bytes of the piece.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/c_locale.h"
#include "base/error.h"
#include "launcher/text/strings/utf8.h"
#include "launcher/text/tokenizer/model.h"

#define UNKNOWN_PENALTY 10.0 /* score of an unknown character, relative to the lowest score */

/* The best path to the byte of this node. */
struct trm_path_node {
    double score;
    int32_t id;
    int32_t start; /* start of its last token; -1: no path leads here */
};

static void offer(trm_path_node *node, double score, int32_t id, size_t start)
{
    if (node->start < 0 || score > node->score) {
        *node = (trm_path_node){score, id, (int32_t)start};
    }
}

static trm_status missing_unknown(const char *character, size_t size)
{
    TRM_FAIL(TRM_ERROR_INVALID_MODEL, "character \"%.*s\" is not in the vocabulary, and the model has no unk_id",
             (int)size, character);
}

static trm_status search(const trm_unigram *unigram, const char *piece, size_t size, trm_path_node *path)
{
    for (size_t i = 0; i <= size; i++) {
        path[i] = (trm_path_node){.start = -1};
    }
    for (size_t start = 0, step; start < size; start += step) {
        double score = path[start].score;
        bool single = false;
        step = trm_utf8_size(piece[start]);
        uint32_t node = 0;
        for (size_t at = start; at < size; at++) {
            node = trm_trie_step(&unigram->trie, node, (uint8_t)piece[at]);
            if (node == 0) {
                break;
            }
            int32_t id = unigram->trie.nodes[node].id;
            if (id >= 0) {
                offer(&path[at + 1], score + unigram->scores[id], id, start);
                single = single || at + 1 - start == step;
            }
        }
        if (!single) {
            if (unigram->unk_id < 0 && path[start + step].start < 0) {
                return missing_unknown(piece + start, step);
            }
            offer(&path[start + step], score + unigram->unk_score, unigram->unk_id, start);
        }
    }
    return TRM_OK;
}

/* Appends the ids of text that became one token, or a run of unknown ones. */
static trm_status append_token(const trm_model *model, const char *text, size_t size, trm_ids *ids)
{
    const trm_unigram *unigram = &model->unigram;
    int32_t id = trm_vocab_find(&model->vocab, text, size);
    if (id >= 0) {
        return trm_ids_append(ids, id);
    }
    bool bytes = unigram->byte_fallback;
    for (size_t i = 0; i < size && bytes; i++) {
        bytes = unigram->byte_ids[(unsigned char)text[i]] >= 0;
    }
    if (!bytes) {
        return unigram->unk_id < 0 ? missing_unknown(text, trm_utf8_size(*text)) : trm_ids_append(ids, unigram->unk_id);
    }
    for (size_t i = 0; i < size; i++) {
        TRM_TRY(trm_ids_append(ids, unigram->byte_ids[(unsigned char)text[i]]));
    }
    return TRM_OK;
}

trm_status trm_unigram_encode(const trm_model *model, const char *piece, size_t size, trm_model_scratch *scratch,
                              trm_ids *ids)
{
    const trm_unigram *unigram = &model->unigram;
    if (size == 0) {
        return TRM_OK;
    }
    void *data = scratch->path;
    TRM_TRY(trm_array_grow(&data, &scratch->path_capacity, size + 1, sizeof(trm_path_node)));
    scratch->path = data;
    trm_path_node *path = scratch->path;
    TRM_TRY(search(unigram, piece, size, path));
    /* Reverses the best path: from each node on it, the next node replaces `id`. */
    size_t end = size;
    int32_t next = -1;
    while (end > 0) {
        size_t start = (size_t)path[end].start;
        bool unknown = path[end].id == unigram->unk_id;
        path[end].id = unknown ? 1 : 0;
        path[end].start = next; /* the end of the following token */
        next = (int32_t)end;
        end = start;
    }
    for (size_t start = 0; next >= 0; start = end) {
        end = (size_t)next;
        bool unknown = path[end].id != 0;
        next = path[end].start;
        while (unknown && next >= 0 && path[next].id != 0) { /* a run of unknown tokens is one */
            end = (size_t)next;
            next = path[end].start;
        }
        TRM_TRY(append_token(model, piece + start, end - start, ids));
    }
    return TRM_OK;
}

/*
 * Parses a score like the tokenizers library: digits as an integer, divided by a power of ten. For many numbers that
 * is off by one unit in the last place, and scores decide ties between segmentations of the same tokens ("g gg" and
 * "gg g").
 */
static double read_score(double score)
{
    char text[40];
    int precision = 14;
    do {
        trm_c_snprintf(text, sizeof(text), "%.*e", precision, fabs(score));
    } while (trm_c_strtod(text, NULL) != fabs(score) && ++precision < 17); /* the shortest digits, as files have them */
    uint64_t digits = 0;
    int exponent = 0, zeros = 0;
    const char *p = text;
    for (; *p != 'e' && *p != '\0'; p++) {
        if (*p >= '0' && *p <= '9') {
            zeros = *p == '0' ? zeros + 1 : 0;
            digits = digits * 10 + (uint64_t)(*p - '0');
        }
    }
    for (int i = 0; i < zeros; i++) {
        digits /= 10;
    }
    exponent = *p == 'e' ? atoi(p + 1) - precision + zeros : 0;
    if (digits == 0 || abs(exponent) > 300) {
        return score;
    }
    snprintf(text, sizeof(text), "1e%d", abs(exponent));
    double power = trm_c_strtod(text, NULL), value = exponent < 0 ? (double)digits / power : (double)digits * power;
    return isfinite(value) ? copysign(value, score) : score;
}

/* Reads an entry of "vocab": [text, score]. */
static trm_status load_entry(const trm_text_loader *loader, const trm_json *json, int32_t id, trm_model *model)
{
    const char *text =
        trm_json_is_array(json) && trm_json_count(json) == 2 ? trm_json_string(trm_json_at(json, 0)) : NULL;
    const trm_json *score = text == NULL ? NULL : trm_json_at(json, 1);
    if (!trm_json_is_number(score) || !isfinite(trm_json_number(score, NAN))) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s: model.vocab[%d] is not a pair of a token and a finite score",
                 loader->name, (int)id);
    }
    model->unigram.scores[id] = read_score(trm_json_number(score, 0));
    text = trm_arena_strdup(loader->arena, text);
    if (text == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    trm_vocab_add(&model->vocab, id, text);
    return TRM_OK;
}

trm_status trm_unigram_load(const trm_text_loader *loader, const trm_json *json, trm_model *model)
{
    trm_unigram *unigram = &model->unigram;
    const trm_json *vocab = trm_json_get(json, "vocab");
    size_t count = trm_json_count(vocab);
    if (!trm_json_is_array(vocab) || count == 0 || count > (size_t)TRM_VOCAB_LIMIT) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s: model.vocab is %s, expected an array of 1 to %lld pairs", loader->name,
                 vocab == NULL ? "missing" : "something else", (long long)TRM_VOCAB_LIMIT);
    }
    int64_t unk_id = -1;
    TRM_TRY(trm_json_member_integer(loader->document, json, "unk_id", false, &unk_id));
    if (trm_json_get(json, "unk_id") != NULL && (unk_id < 0 || unk_id >= (int64_t)count)) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s: model.unk_id is %lld, expected 0 to %zu", loader->name,
                 (long long)unk_id, count - 1);
    }
    unigram->unk_id = (int32_t)unk_id;
    TRM_TRY(trm_json_member_bool(loader->document, json, "byte_fallback", false, &unigram->byte_fallback));
    TRM_TRY(trm_vocab_create(loader->arena, (int32_t)count, &model->vocab));
    unigram->scores = trm_arena_array(loader->arena, count, sizeof(*unigram->scores));
    if (unigram->scores == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    double lowest = INFINITY;
    int32_t id = 0;
    for (const trm_json *entry = trm_json_first(vocab); entry != NULL; entry = trm_json_next(entry), id++) {
        TRM_TRY(load_entry(loader, entry, id, model));
        lowest = fmin(lowest, unigram->scores[id]);
    }
    unigram->unk_score = lowest - UNKNOWN_PENALTY;
    trm_model_find_bytes(&model->vocab, unigram->byte_ids);
    return trm_model_build_trie(loader, &model->vocab, &unigram->trie);
}
